"""The documentation: every Python block runs, and what is generated is up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cvxnn
from extras import required

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRONT = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in FRONT), *sorted((ROOT / "docs").glob("*.md"))]
NEEDED = {  # all other pages do with the core
    "command-line": ["pandas"],
    "decompositions": ["cvxpy"],
    "estimators": ["pandas", "torch"],
    "export": ["torch", "onnx", "onnxruntime"],
    "getting-started": ["matplotlib"],
    "improving": ["torch"],
    "plots": ["matplotlib"],
    "report": ["pandas"],
    "solvers": ["cvxpy"],
    "tables": ["pandas"],
}


def blocks_of(page):
    """The Python blocks of a page, each moved to its own line so that errors point there."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if BLOCK.search(page.read_text())],
    ids=lambda page: page.stem,
)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    for package in NEEDED.get(page.stem, ()):
        required(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    for block in blocks_of(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_no_block_escapes_the_test():
    """Blocks that are indented, or closed differently, would be skipped without a word."""
    for page in PAGES:
        text = page.read_text()
        assert len(re.findall(r"```\s*py", text)) == len(BLOCK.findall(text)), page.name


def test_the_comparison_in_the_readme_is_up_to_date():
    command = [sys.executable, str(ROOT / "docs" / "update_readme.py"), "--check"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def test_an_outdated_comparison_is_noticed(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import update_readme

    readme = (ROOT / "README.md").read_text()
    assert update_readme.fill(readme, "another table") != readme
    with pytest.raises(SystemExit, match="lacks the markers"):
        update_readme.fill(readme.replace(update_readme.END, ""), "a table")


@pytest.mark.parametrize("name", sorted(set(cvxnn.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_api(name):
    assert re.search(rf"^\.\. auto\w+:: {name}$", (ROOT / "docs" / "api.md").read_text(), re.M)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
