"""Sphinx configuration; `make docs` builds the site into docs/_build/html."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "cvxnn"
author = "the cvxnn developers"
copyright = author
release = version = metadata.version("cvxnn")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "commands",
    "mathml",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
maximum_signature_line_length = 100
smartquotes = False
html_math_renderer = "mathml"  # of docs/_ext: formulas are there without a network, too

# The programs in examples/ run when the documentation is built; docs/gallery/ is generated.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),  # what an example has to say, it prints
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"cvxnn {release}"
html_static_path = ["_static"]
html_css_files = ["cvxnn.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"**": ["search-field.html", "globaltoc.html"]}
html_theme_options = {
    "logo": {"text": "cvxnn"},
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "navbar_persistent": [],  # the search is in the column on the left
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
