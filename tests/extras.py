"""Packages that not every environment has: tests that need a missing one are skipped, and say so.

`make test` installs all of them, `make test-core` none. A test file that is all about a package
begins with `torch = required("torch")`. Others say where they need it:

    torch = optional("torch")    # the package, or a stand-in
    @needs("cvxpy")              # a mark, for where cvxnn itself imports the package
    required("cvxpy")            # in a helper of tests
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

import pytest

_EXTRAS = {
    "clarabel": "cvx",
    "cvxpy": "cvx",
    "dask": "dask",
    "distributed": "dask",
    "matplotlib": "plot",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "pandas": "data",
    "polars": "test",
    "pyarrow": "data",
    "torch": "torch",
}
_OF_UNIX = ("fcntl", "pty", "resource", "termios")  # in the standard library


def advice(package: str) -> str:
    top = package.partition(".")[0]
    if top in _OF_UNIX:
        return f"needs {top}, which only Unix has"
    return f"needs {top}: pip install 'cvxnn[{_EXTRAS[top]}]'"


def installed(package: str) -> bool:
    if package in _OF_UNIX:  # Windows has files of such names, which cannot be imported
        return os.name == "posix"
    return find_spec(package.partition(".")[0]) is not None


def needs(*packages: str) -> pytest.MarkDecorator:
    """A mark for tests that cannot do without these packages."""
    missing = [advice(package) for package in packages if not installed(package)]
    return pytest.mark.skipif(bool(missing), reason="; ".join(missing))


CVXPY = pytest.param("cvxpy", marks=needs("cvxpy"))  # among solvers


def required(package: str) -> Any:
    """The package; without it, the test or the test file that asks is skipped."""
    return pytest.importorskip(package, reason=advice(package))


def optional(package: str) -> Any:
    """The package, or a stand-in that skips the test which uses it."""
    return importlib.import_module(package) if installed(package) else Missing(advice(package))


class Missing:
    """Stands for a missing package and for all that is made with it.

    Test files make their parameters when they are imported, where skipping would skip the whole
    file. So attributes and results are stand-ins, too. A test that uses one is skipped, and so is
    a test that has one among its parameters (`skip_without_packages`).
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("_"):  # Python, NumPy and pytest ask for such names on their own
            raise AttributeError(name)
        return self()

    def __repr__(self) -> str:
        return "missing"  # the same in every worker, for names of tests

    def __call__(self, *args: Any, **kwargs: Any) -> Missing:
        if "PYTEST_CURRENT_TEST" in os.environ:  # set by pytest while a test runs
            pytest.skip(self._reason)
        return self


def skip_without_packages(tests: list[pytest.Item]) -> None:
    """Skip the tests whose parameters could not be made."""
    for test in tests:
        parameters = getattr(test, "callspec", None)
        for value in parameters.params.values() if parameters else ():
            for part in value.values() if isinstance(value, dict) else (value,):
                if isinstance(part, Missing):
                    test.add_marker(pytest.mark.skip(reason=part._reason))
