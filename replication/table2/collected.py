"""The finished pieces of Tables 2 and 6 by set, and what five samplings give."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from replication.experiment import Done, Row
from replication.paper import printed
from replication.table2.settings import BASELINES, SEEDS

COLUMNS = ("c_grelu", "c_relu", "random_forest", "linear_svm", "rbf_svm")
NAMES = {
    "c_grelu": "C-GReLU",
    "c_relu": "C-ReLU",
    "random_forest": "random forest",
    "linear_svm": "linear SVM",
    "rbf_svm": "RBF SVM",
}
CONVEX = COLUMNS[:2]
RULES = {"best": max, "median": median}


class Collected(NamedTuple):
    """convex[kind][set][seed] is a row of "gated", "relu" or "al"; baselines[kind][set]."""

    convex: dict[str, dict[str, dict[int, Row]]]
    baselines: dict[str, dict[str, Row]]

    @classmethod
    def of(cls, done: Sequence[Done]) -> Collected:
        convex: dict[str, dict[str, dict[int, Row]]] = {"gated": {}, "relu": {}, "al": {}}
        baselines: dict[str, dict[str, Row]] = {kind: {} for kind in BASELINES}
        for piece in done:
            kind, name = piece.settings["kind"], piece.settings["set"]
            if kind in convex:
                convex[kind].setdefault(name, {})[piece.settings["seed"]] = piece.row
            else:
                baselines[kind][name] = piece.row
        return cls(convex, baselines)

    def sets(self, table: int) -> list[str]:
        """Those of a table that have any result, in the table's order."""
        everywhere = [*self.convex.values(), *self.baselines.values()]
        return [name for name in printed(table) if any(name in found for found in everywhere)]

    def n_test(self, name: str) -> int:
        rows = [row for found in self.convex.values() for row in found.get(name, {}).values()]
        rows += [found[name] for found in self.baselines.values() if name in found]
        return rows[0]["n_test"]

    def accuracies(self, name: str, kind: str, method: str, what: str = "accuracy") -> list[float]:
        """Of the samplings that are done; those of a convex problem whose solver gave up far from
        its optimum are no less a result of it."""
        return [row[method][what] for row in self.convex[kind].get(name, {}).values()]

    def value(
        self, name: str, column: str, rule: str = "best", gates: str = "accuracy_released"
    ) -> float | None:
        """The accuracy of a set, as the paper's column has it: for convex models by the best or
        the median of five samplings, None while there are fewer. `gates` says which gates the
        gated network has on new rows: those of the released code, or "accuracy", the right ones."""
        if column not in CONVEX:
            row = self.baselines[column].get(name)
            return None if row is None else row["accuracy"]
        if column == "c_grelu":
            found = self.accuracies(name, "gated", "rfista", gates)
        else:
            found = self.accuracies(name, "relu", "optimum")
        return float(RULES[rule](found)) if len(found) == len(SEEDS) else None

    def numbers(self, name: str, kind: str, method: str, what: str) -> float | None:
        """The median over samplings of a gap, of seconds or of iterations."""
        found = [row[method][what] for row in self.convex[kind].get(name, {}).values()]
        return median(found) if found else None


def cell(name: str, column: str) -> float:
    """The printed accuracy."""
    table = 2 if name in printed(2) else 6
    return printed(table)[name][f"{column}_test_accuracy_percent"]


def tolerance(n_test: int) -> float:
    """In points of accuracy: one test row, or 1.5, and half a unit of the last printed digit."""
    return max(1.5, 100 / n_test) + 0.05


class Line(NamedTuple):
    """All five accuracies of a set, those of the baselines as printed where there are none."""

    name: str
    values: dict[str, float]

    def best(self) -> set[str]:
        top = max(self.values.values())
        return {column for column, value in self.values.items() if value > top - 0.051}


def lines(found: Collected, table: int, rule: str, gates: str = "accuracy_released") -> list[Line]:
    """The sets of a table whose convex models are done."""
    complete = []
    for name in printed(table):
        values = {column: found.value(name, column, rule, gates) for column in COLUMNS}
        if values["c_grelu"] is None or values["c_relu"] is None:
            continue
        filled = {k: cell(name, k) if value is None else value for k, value in values.items()}
        complete.append(Line(name, filled))
    return complete


def printed_lines(table: int, names: Sequence[str]) -> list[Line]:
    return [Line(name, {column: cell(name, column) for column in COLUMNS}) for name in names]


def wins(found: Sequence[Line]) -> dict[str, int]:
    """On how many sets each column is best, ties counted for all; "convex" is either of two."""
    counts = {column: sum(column in line.best() for line in found) for column in COLUMNS}
    return counts | {"convex": sum(bool(line.best() & set(CONVEX)) for line in found)}
