"""UCI classification sets from a folder beside the project; none of them is part of it.

The folder is that of the environment variable CVXNN_DATA, or ../shared/data from the root of the
repository; it holds `uci/NAME.npz` or `uci_extra/NAME.npz` with X (n, d) and the classes y (n,),
from 0 on. Where it is missing, benchmarks say so and leave their UCI rows out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.instances import Instance
from benchmarks.record import ROOT

# Those of the paper's Table 1
TABLE_1 = ("energy-y1", "ecoli", "glass", "pima", "oocytes_trisopterus_nucleus_2f")

# A spread of the paper's sets over sizes, widths and numbers of classes
SPREAD = (
    "parkinsons",
    "conn-bench-sonar-mines-rocks",
    "seeds",
    "statlog-heart",
    "ionosphere",
    "breast-cancer-wisc-diag",
    "energy-y1",
    "statlog-german-credit",
    "car",
    "cardiotocography-3clases",
    "chess-krvkp",
    "bank",
)

# Which of the sets named to use: all of them, or those that are there.
Sets = Callable[[Iterable[str]], Iterable[str]]


def available(names: Iterable[str]) -> list[str]:
    """The sets that are there; says which are not."""
    wanted = list(names)
    found = [name for name in wanted if _file(name).exists()]
    missing = [name for name in wanted if name not in found]
    if missing:
        click.echo(f"no data for {', '.join(missing)}: set CVXNN_DATA to their folder", err=True)
    return found


@dataclass(frozen=True)
class Dataset:
    X: np.ndarray
    labels: np.ndarray

    @classmethod
    def load(cls, name: str) -> Dataset:
        with np.load(_file(name)) as content:
            return cls(content["X"].astype(np.float64), content["y"])

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def targets(self) -> np.ndarray:
        """+-1 for two classes, one-hot rows for more: (n, C)."""
        if self.n_classes == 2:
            return np.where(self.labels == 1, 1.0, -1.0)[:, None]
        return np.eye(self.n_classes)[self.labels]

    def instance(self, p: int, seed: int = 0) -> Instance:
        """The set on columns of unit norm, with p Gaussian gates."""
        gates = np.random.default_rng(seed).standard_normal((self.X.shape[1], p))
        return Instance(self.X / column_norms(self.X), self.targets, gates)


def maker(name: str, p: int) -> Callable[[], Instance]:
    """The same, from the set's name when called."""
    return lambda: Dataset.load(name).instance(p)


def column_norms(X: np.ndarray) -> np.ndarray:
    """Norms of the columns, 1 for those that are zero."""
    norms = np.linalg.norm(X, axis=0)
    return np.where(norms > 0, norms, 1.0)


def folder() -> Path:
    """Where all sets are."""
    return Path(os.environ.get("CVXNN_DATA", ROOT.parent / "shared" / "data"))


def _file(name: str) -> Path:
    extra = folder() / "uci_extra" / f"{name}.npz"
    return extra if extra.exists() else folder() / "uci" / f"{name}.npz"
