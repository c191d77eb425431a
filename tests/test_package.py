"""The package itself: lazy, complete, and free of side effects."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

import cvxnn

HEAVY = ("numpy", "scipy", "sklearn", "torch", "matplotlib", "cvxpy", "pandas", "safetensors")


def modules_after(program):
    """The modules that a fresh interpreter has loaded after a program."""
    report = "\nimport json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program + report]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert result.stderr == ""
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "program",
    [
        "import cvxnn",
        "import cvxnn; dir(cvxnn), cvxnn.__version__, cvxnn.__all__",
        "import cvxnn.cli",
        "from cvxnn.cli import main; main(['--help'], standalone_mode=False)",
        "from cvxnn.cli import main; main(['--version'], standalone_mode=False)",
        "from cvxnn.cli import main; main(['demo', '--help'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_used(program):
    assert not modules_after(program) & set(HEAVY)


def test_solving_loads_nothing_optional():
    loaded = modules_after(
        "import cvxnn\n"
        "X, y = [[1.0, 2.0], [-1.0, 0.5]], [1.0, 0.0]\n"
        "patterns = cvxnn.sample_patterns(X, 5, random_state=0)\n"
        "cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=0.1)).network().predict(X)\n"
        "cvxnn.plot_convergence"
    )
    assert "numpy" in loaded
    assert not loaded & {"torch", "matplotlib", "cvxpy", "pandas", "polars", "sklearn"}


def test_every_public_name_is_there():
    for name in cvxnn.__all__:
        assert getattr(cvxnn, name) is not None
    assert len(set(cvxnn.__all__)) == len(cvxnn.__all__)
    promised = {"sample_patterns", "CGReLU", "solve", "lambda_max", "load", "GatedReLUNetwork"}
    assert promised <= set(cvxnn.__all__)


def test_public_classes_and_functions_say_what_they_are():
    for name in set(cvxnn.__all__) - {"__version__"}:
        public = getattr(cvxnn, name)
        assert public.__name__ == name
        assert public.__module__.startswith("cvxnn.")
        assert public.__doc__


def test_star_import_gives_the_public_names():
    names = {}
    exec("from cvxnn import *", names)
    assert set(cvxnn.__all__) <= set(names)


def test_dir_lists_every_public_name():
    assert set(cvxnn.__all__) <= set(dir(cvxnn))
    assert dir(cvxnn) == sorted(dir(cvxnn))


def test_unknown_attributes_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'cvxnn' has no attribute 'sovle'"):
        cvxnn.sovle  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'sovle'"):
        from cvxnn import sovle  # noqa: F401
    assert not hasattr(cvxnn, "_private")


def test_names_are_looked_up_once():
    assert cvxnn.solve is cvxnn.solve
    assert "solve" in vars(cvxnn)


def test_the_version_is_that_of_the_installed_distribution():
    assert cvxnn.__version__ == metadata.version("cvxnn")
