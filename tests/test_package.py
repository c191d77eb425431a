"""The package itself: lazy, complete, and free of side effects."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
import subprocess
import sys
import warnings
from importlib import import_module, metadata

import pytest
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

import cvxnn
from extras import needs

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


def test_one_filter_catches_the_warnings_of_both():
    assert issubclass(cvxnn.ConvergenceWarning, SklearnConvergenceWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", category=SklearnConvergenceWarning)
        solution = cvxnn.solve(small_problem(), "rfista", tol=0, max_iter=2)
    assert not solution.converged


def small_problem():
    X, y = [[1.0, 2.0], [-1.0, 0.5], [0.3, 0.4]], [1.0, 0.0, 2.0]
    return cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 5, random_state=0), lam=0.1)


def holds_arrays(cls):
    names = ("ndarray", "Array", "ConvexProblem", "Patterns", "Solution")
    fields = [field for field in dataclasses.fields(cls) if field.compare]
    return any(name in str(field.type) for field in fields for name in names)


@needs("onnx", "torch")  # it imports every module
def test_what_holds_arrays_is_compared_by_identity():
    modules = [m.name for m in pkgutil.walk_packages(cvxnn.__path__, "cvxnn.")]
    classes = {
        value
        for name in modules
        if not name.endswith("libcvxnn")
        for value in vars(import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name and dataclasses.is_dataclass(value)
    }
    wrong = {cls for cls in classes if holds_arrays(cls) and cls.__eq__ is not object.__eq__}
    assert len(classes) > 40
    assert wrong == set()


def test_solutions_and_paths_can_be_compared_and_kept_in_sets():
    problem = small_problem()
    one, other = cvxnn.solve(problem), cvxnn.solve(problem)
    assert one == one
    assert one != other
    assert one.certificate == other.certificate  # numbers and words
    assert {one, other, one} == {other, one}
    assert [one, other].index(other) == 1
    path = cvxnn.path(problem, 2)
    assert path == path
    assert {path} != {cvxnn.path(problem, 2)}
    assert hash(cvxnn.CVXPY(settings={"a": 1})) == hash(cvxnn.CVXPY(settings={"a": 2}))


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
