"""Cells of Tables 3, 7 and 8: five accuracies here beside the printed median and quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from replication.experiment import Done, Row
from replication.pages import agreement, marked
from replication.paper import printed, selected
from replication.table3.settings import GATED, RELEASED

NEAR = 1.5  # points; or one test row, if that is more
ROUNDING = 0.06  # of a printed cell


class Column(NamedTuple):
    """A method of the tables: which pieces hold its runs, and where its cell is printed."""

    title: str
    kind: str
    runs: str  # of the rows of these pieces
    printed: str
    table: int
    cross_validated: str = ""  # the columns of the authors' selection
    method: str = ""
    patterns: int = 0
    scale: str = "convex"

    @property
    def name(self) -> str:
        """With its problem."""
        return f"{'C-ReLU' if self.kind == 'AL' else self.kind}, {self.title}"

    def takes(self, settings: Row) -> bool:
        if settings["kind"] != self.kind:
            return False
        if not self.method:
            return True
        wanted: Row = {"method": self.method, "scale": self.scale}
        if self.patterns:
            wanted["patterns"] = self.patterns
        return all(settings[name] == value for name, value in wanted.items())


def _gradient(method: str, name: str) -> list[Column]:
    """NC-GReLU with all gates and with a hundred, in both scales; then NC-ReLU."""
    column = f"nc_grelu_{method}"
    of_gates = [
        Column(f"{name}, {p} gates{more}", "NC-GReLU", "runs", column, 7, column, method, p, scale)
        for p, scale, more in (
            (GATED, "convex", ""),
            (RELEASED, "convex", ""),
            (RELEASED, "released", ", loss as released"),
        )
    ]
    column = f"nc_relu_{method}"
    return [*of_gates, Column(name, "NC-ReLU", "runs", column, 8, column, method)]


R_FISTA = Column("R-FISTA", "C-GReLU", "rfista", "c_grelu", 7, "c_grelu_rfista")
GATED_OPTIMUM = Column("optimum", "C-GReLU", "optimum", "c_grelu", 7, "c_grelu_rfista")
AUGMENTED = Column("AL", "AL", "al", "c_relu", 8, "c_relu_al")
RELU_OPTIMUM = Column("optimum", "C-ReLU", "optimum", "c_relu", 8, "c_relu_al")
ADAM, ADAM_FEW, ADAM_RELEASED, ADAM_RELU = _gradient("adam", "Adam")
SGD, SGD_FEW, SGD_RELEASED, SGD_RELU = _gradient("sgd", "SGD")
GATED_COLUMNS = (
    (R_FISTA, GATED_OPTIMUM),
    (ADAM, ADAM_FEW, ADAM_RELEASED),
    (SGD, SGD_FEW, SGD_RELEASED),
)
RELU_COLUMNS = ((AUGMENTED, RELU_OPTIMUM), (ADAM_RELU,), (SGD_RELU,))


class Cell(NamedTuple):
    """The runs of one method on one set."""

    set: str
    column: Column
    n_test: int
    runs: list[Row]

    @property
    def accuracies(self) -> list[float]:
        return [run["accuracy"] for run in self.runs]

    @property
    def median(self) -> float:
        return statistics.median(self.accuracies)

    @property
    def seconds(self) -> float:
        return statistics.median(run["seconds"] for run in self.runs)

    @property
    def printed(self) -> float:
        return self._printed("median")

    def _printed(self, what: str) -> float:
        name = f"{self.column.printed}_test_accuracy_percent_{what}"
        return printed(self.column.table)[self.set][name]

    @property
    def cross_validated(self) -> float:
        """What the authors' selected values reached in their own cross-validation, in percent."""
        name = f"{self.column.cross_validated}_cv_accuracy_median_of_folds"
        return 100 * selected(3)[self.set][name]

    @property
    def agreement(self) -> str:
        return agreement(self.median, self.printed, 1, max(NEAR, 100 / self.n_test + ROUNDING))

    @property
    def shown(self) -> str:
        """Median and quartiles, here and printed."""
        low, high = np.percentile(self.accuracies, [25, 75])
        here = f"{self.median:.1f}"
        if len(self.runs) > 1:
            here += f" ({low:.1f}/{high:.1f})"
        quartiles = (self._printed("first_quartile"), self._printed("third_quartile"))
        there = f"{self.printed:.1f} ({quartiles[0]:.1f}/{quartiles[1]:.1f})"
        return marked(here, there, self.agreement)

    @property
    def rows_apart(self) -> int:
        return round(abs(self.median - self.printed) * self.n_test / 100)


class Cells:
    """All cells that there are, by set and column."""

    def __init__(self, done: Sequence[Done]) -> None:
        self._found: dict[tuple[str, Column], Cell] = {}
        self.grids = {p.settings["set"]: p for p in done if p.settings["kind"] == "grid"}
        columns = [c for groups in (GATED_COLUMNS, RELU_COLUMNS) for group in groups for c in group]
        for piece in done:
            name = piece.settings["set"]
            for column in columns:
                if column.takes(piece.settings):
                    cell = self._found.setdefault(
                        (name, column), Cell(name, column, piece.row["n_test"], [])
                    )
                    cell.runs.extend(piece.row[column.runs])

    def get(self, name: str, column: Column) -> Cell | None:
        return self._found.get((name, column))

    def of(self, column: Column) -> Iterator[Cell]:
        return (cell for (_, other), cell in self._found.items() if other == column)

    def pairs(self, one: Column, other: Column) -> Iterator[tuple[Cell, Cell]]:
        """Of all sets that have both."""
        for cell in self.of(one):
            beside = self.get(cell.set, other)
            if beside is not None:
                yield cell, beside

    @property
    def sets(self) -> list[str]:
        """Those of which there is anything, in the order of the table."""
        there = {name for name, _ in self._found}
        return [name for name in printed(3) if name in there]
