"""Shared fixtures: array libraries, small problems, the independent oracle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Two cores and several test processes: more BLAS threads than cores only slow everything down.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import array_api_strict
import numpy as np
import pytest

import cvxnn
from cvxnn import progress
from cvxnn.generation import descents, method, programs
from cvxnn.generation.pricing import Effort
from extras import needs, optional, skip_without_packages

torch = optional("torch")

PENALTIES = ("neuron", "feature", "l1", "l2")
LIBRARIES = ("numpy", "strict", pytest.param("torch", marks=needs("torch")))


# A shell has what it starts in the background ignore Ctrl-C, and so would programs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    skip_without_packages(items)


@pytest.fixture(autouse=True)
def no_lines_about_progress(monkeypatch):
    """A busy machine makes every step a long one, and tests look at all of what is printed."""
    monkeypatch.setattr(progress, "FIRST", 600.0)


@pytest.fixture(params=LIBRARIES)
def to_library(request):
    """Turn a NumPy array into one of the array library under test."""
    library = {"numpy": np, "strict": array_api_strict, "torch": torch}[request.param]
    return library.asarray


def make_data(n, d, C=1, seed=0):
    """Gaussian rows, targets of a small random ReLU network plus noise; 1-d targets for C = 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    hidden = np.maximum(X @ rng.standard_normal((d, 4)), 0)
    Y = hidden @ rng.standard_normal((4, C)) + 0.3 * rng.standard_normal((n, C))
    return X, Y[:, 0] if C == 1 else Y


def make_problem(n=30, d=4, p=12, C=1, *, share=0.1, seed=0, bias=False, dtype=None, **settings):
    """A random problem at `share` of its lambda_max (of an absolute lam for l2)."""
    X, Y = make_data(n, d, C, seed)
    X = X.astype(dtype or np.float64)
    patterns = cvxnn.sample_patterns(X, p, bias=bias, random_state=seed)
    problem = cvxnn.CGReLU(X, Y, patterns, lam=share, bias=bias, **settings)
    if problem.penalty_name in ("l2", "none"):
        return problem
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def expanded_matrix(problem):
    """[D_1 X ... D_p X] as an array (n, p, d), formed naively: the operators' reference."""
    X = np.asarray(problem.operator.rows())
    return problem.patterns.mask[:, :, None] * X[:, None, :]


@pytest.fixture(scope="session")
def data_folder():
    """The folder with the UCI sets and MNIST; tests that need it are skipped without it."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CVXNN_DATA", default))
    if not (folder / "INDEX.csv").is_file():
        pytest.skip("no data folder: set CVXNN_DATA to a folder with INDEX.csv, uci/ and mnist.npz")
    return folder


@pytest.fixture
def quick_search(monkeypatch):
    """Searches of generation with few starts, where the interface is tested and not what is
    found."""
    few = Effort(gaussian=8, rows=16, steps=10, polished=2)
    for module, name in ((method, "DEEP"), (method, "THOROUGH"), (programs, "THOROUGH")):
        monkeypatch.setattr(module, name, few)
    monkeypatch.setattr(descents, "WIDTH", 5)
    monkeypatch.setattr(descents, "STEPS", 10)
