"""The data of the paper's experiments, from a folder beside the project; none of it is part of it.

The folder is that of the environment variable CVXNN_DATA, or ../shared/data from the root of the
repository (docs/replication/data.md says how to fill one). Every file is checked against the
SHA-256 sum of its arrays before its numbers are used. Rows, split, scaling and gates are those of
the authors' experiments, so that what is deterministic can be compared cell by cell:

    split    the rows in the order of default_rng(1995).shuffle, the first fifth for the test
    columns  divided by their norms on the training part
    targets  -1 and +1 for two classes, one-hot rows for more
    gates    default_rng(seed).standard_normal((d, p)), active where X g > 0
"""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from benchmarks.datasets import column_norms
from benchmarks.record import ROOT
from scipy.stats import ortho_group
from sklearn.model_selection import KFold

import cvxnn
from replication.paper import FOLDER

SPLIT_SEED = 1995
GATE_SEED = 650  # and the numbers after it for repetitions
DEFAULT_SEED = 123  # of gates, where the authors' configuration names none
TEST_SHARE = 0.2
CIFAR10_SUM = "32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493"


class MissingData(RuntimeError):
    """A set that is not in the folder."""


class Known(NamedTuple):
    """What is known of a set: its file, its size, and the sum of its arrays."""

    file: str
    n: int
    d: int
    classes: int
    sha256: str


@cache
def catalogue() -> dict[str, Known]:
    """All sets by name: the 73 of the paper's collection, nine further ones, and MNIST."""
    with (FOLDER / "data.csv").open(newline="") as file:
        return {
            row["name"]: Known(
                row["file"], int(row["n"]), int(row["d"]), int(row["classes"]), row["sha256"]
            )
            for row in csv.DictReader(file)
        }


def collection() -> list[str]:
    """The paper's 73 sets, the smallest (rows times columns times outputs) first."""
    found = {name: known for name, known in catalogue().items() if known.file.startswith("uci/")}

    def size(name: str) -> int:
        known = found[name]
        return known.n * known.d * (1 if known.classes == 2 else known.classes)

    return sorted(found, key=size)


def folder() -> Path:
    return Path(os.environ.get("CVXNN_DATA", ROOT.parent / "shared" / "data"))


def is_there(name: str) -> bool:
    return _file(name).exists()


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows X (n, d) and their classes (n,) of a UCI set."""
    X, y = _arrays(name, ("X", "y"))
    return X.astype(np.float64), y.astype(np.int64)


@cache
def images(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training pictures (n, d) of bytes and their labels, then those of the test."""
    X, y, X_test, y_test = _arrays(name, ("X", "y", "X_test", "y_test"))
    return X, y.astype(np.int64), X_test, y_test.astype(np.int64)


def file_of(name: str) -> str:
    """The file of a set in its folder."""
    return "cifar10.npz" if name == "cifar10" else catalogue()[name].file


def _file(name: str) -> Path:
    place = os.environ.get("CVXNN_CIFAR10") if name == "cifar10" else None
    return Path(place or folder()) / file_of(name)


def _arrays(name: str, keys: tuple[str, ...]) -> list[np.ndarray]:
    file = _file(name)
    if not file.exists():
        variable = "CVXNN_CIFAR10" if name == "cifar10" else "CVXNN_DATA"
        raise MissingData(f"there is no {file.name} in {file.parent}: set {variable} to its folder")
    with np.load(file) as content:
        arrays = [np.ascontiguousarray(content[key]) for key in keys]
    if sum_of(arrays) != wanted_sum(name):
        raise ValueError(f"{file} is not the {name} of the experiments: its SHA-256 sum differs")
    return arrays


def sum_of(arrays: Iterable[np.ndarray]) -> str:
    """The SHA-256 sum of the bytes of all arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def wanted_sum(name: str) -> str:
    return CIFAR10_SUM if name == "cifar10" else catalogue()[name].sha256


@dataclass(frozen=True)
class Task:
    """Rows for training and for the test, columns scaled, with the labels of both."""

    X: np.ndarray
    labels: np.ndarray
    X_test: np.ndarray
    labels_test: np.ndarray

    @classmethod
    def of(cls, name: str, *, ones: bool = False) -> Self:
        """A UCI set in the authors' split, with a column of ones if asked for."""
        X, labels = load(name)
        train, test = split(len(X))
        return cls(X[train], labels[train], X[test], labels[test])._scaled(ones)

    @classmethod
    def folds(cls, name: str, *, ones: bool = False) -> Iterator[Self]:
        """The authors' five folds of the training part: each in turn takes the place of the test,
        and columns have unit norm on the other four."""
        X, labels = load(name)
        rows, _ = split(len(X))
        folds = KFold(5, shuffle=True, random_state=SPLIT_SEED).split(rows)
        for train, test in ((rows[train], rows[test]) for train, test in folds):
            yield cls(X[train], labels[train], X[test], labels[test])._scaled(ones)

    def _scaled(self, ones: bool) -> Self:
        X, X_test = self.X, self.X_test
        if ones:
            X, X_test = (np.hstack([part, np.ones((len(part), 1))]) for part in (X, X_test))
        scale = column_norms(X)
        return replace(self, X=X / scale, X_test=X_test / scale)

    @property
    def classes(self) -> int:
        return int(max(self.labels.max(), self.labels_test.max())) + 1

    @property
    def targets(self) -> np.ndarray:
        """(n, 1) of -1 and +1 for two classes, one-hot rows (n, C) for more."""
        if self.classes == 2:
            return np.where(self.labels == 1, 1.0, -1.0)[:, None]
        return np.eye(self.classes)[self.labels]

    def accuracy(self, predictions: np.ndarray) -> float:
        """The share of test rows that are right, in percent."""
        return accuracy(predictions, self.labels_test)

    def patterns(self, p: int, seed: int = GATE_SEED) -> cvxnn.Patterns:
        """The authors' patterns: distinct ones of p Gaussian gates, none without an active row."""
        return patterns_of(self.X, gates(self.X.shape[1], p, seed))


def split(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows for training and for the test."""
    order = np.arange(n)
    np.random.default_rng(SPLIT_SEED).shuffle(order)
    k = int(np.floor(TEST_SHARE * n))
    return order[k:], order[:k]


def gates(d: int, p: int, seed: int = GATE_SEED) -> np.ndarray:
    """(d, p) Gaussian numbers."""
    return np.random.default_rng(seed).standard_normal((d, p))


def patterns_of(X: np.ndarray, G: np.ndarray) -> cvxnn.Patterns:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        return cvxnn.Patterns.from_gates(X, G, strict=True)


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """In percent; an output of exactly zero decides nothing and is wrong."""
    predictions = np.asarray(predictions).reshape(len(labels), -1)
    if predictions.shape[1] == 1:
        right = np.sign(predictions[:, 0]) == np.where(labels == 1, 1.0, -1.0)
    else:
        right = predictions.argmax(axis=1) == labels
    return 100.0 * float(np.mean(right))


def synthetic(teacher: str = "uniform", seed: int = 951) -> Task:
    """The classification problem of Figure 1: 250 rows for training and 250 for the test, d = 50.

    Rows are Gaussian with a covariance of condition number 10; labels are the signs of a ReLU
    network with 100 neurons. Its weights are uniform on [0, 1] as in the released configuration, or
    "gaussian" as the text has it.
    """
    n, d, m = 500, 50, 100
    rng = np.random.default_rng(seed)
    draw = {"uniform": rng.random, "gaussian": rng.standard_normal}[teacher]
    W1, W2 = draw((m, d)), draw((1, m))
    Q = ortho_group.rvs(d, random_state=rng)
    spread = np.concatenate([[10.0, 1.0], rng.uniform(1.0, 10.0, d - 2)])
    X = rng.multivariate_normal(np.zeros(d), Q.T @ (spread[:, None] * Q), size=n)
    labels = (np.maximum(X @ W1.T, 0) @ W2[0] > 0).astype(np.int64)
    order = np.arange(n)
    rng.shuffle(order)
    X, labels = X[order], labels[order]
    return Task(X[: n // 2], labels[: n // 2], X[n // 2 :], labels[n // 2 :])._scaled(ones=False)
