"""The finished pieces of Tables 1 and 5 by set and sampling, and medians over samplings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from replication.experiment import Done, Row
from replication.paper import printed
from replication.table1.settings import CONGRESSIONAL, SEEDS, SONAR, by_size

# What the methods are called on the page, and the columns of Table 5 that they stand beside.
NAMES = {
    "rfista": "R-FISTA",
    "rfista_printed_c": "R-FISTA, c = 5",
    "cd_socp": "CD-SOCP",
    "cd_a": "CD-A",
    "cd_a_released": "CD-A, divided by n",
    "cd_a_feasible": "CD-A, feasible",
    "al": "AL",
    "al_released": "AL, 1e-6",
    "gated_optimum": "C-GReLU optimum",
    "relu_optimum": "C-ReLU optimum",
}
PRINTED = ("rfista", "cd_socp", "cd_a", "al")
# Columns of Table 5 that hold the numbers of another set in these two rows.
MIXED_UP = {CONGRESSIONAL, SONAR}


class Collected(NamedTuple):
    """methods[set][seed][method] is what a method gave; conic[kind][set], the conic programs of
    the first sampling."""

    methods: dict[str, dict[int, Row]]
    conic: dict[str, dict[str, Row]]

    @classmethod
    def of(cls, done: Sequence[Done]) -> Collected:
        methods: dict[str, dict[int, Row]] = {}
        conic: dict[str, dict[str, Row]] = {"joint": {}, "separate": {}}
        for piece in sorted(done, key=lambda piece: (piece.settings["seed"], piece.key)):
            kind, name, seed = (piece.settings[key] for key in ("kind", "set", "seed"))
            if kind in conic:
                conic[kind].setdefault(name, piece.row)
                continue
            found = methods.setdefault(name, {}).setdefault(seed, {})
            found |= {"al_released": piece.row["al"]} if kind == "al-released" else piece.row
        return cls(methods, conic)

    @property
    def sets(self) -> list[str]:
        """Those of Table 5 (or of the smoke profile), the smallest first."""
        found = [name for name in self.methods if name in printed(5)]
        return by_size(found) if found else list(self.methods)

    def samplings(self, name: str, method: str) -> list[Row]:
        rows = self.methods.get(name, {}).values()
        return [row[method] for row in rows if method in row]

    def median(self, name: str, method: str, what: str) -> float | None:
        values = [row[what] for row in self.samplings(name, method)]
        return median(values) if values else None

    def is_whole(self, name: str, *methods: str) -> bool:
        """Whether all samplings are done, so that medians are those of the paper."""
        return all(len(self.samplings(name, method)) == len(SEEDS) for method in methods)

    def fact(self, name: str, what: str) -> int:
        return next(row[what] for row in self.methods[name].values() if what in row)

    def ratios(self, over: tuple[str, str], under: tuple[str, str]) -> dict[str, float]:
        """By set, the median of one method's number over that of another, where there are both."""
        found = {}
        for name in self.sets:
            top, bottom = self.median(name, *over), self.median(name, *under)
            if top is not None and bottom is not None:
                found[name] = top / bottom
        return found

    def theorems(self) -> list[Row]:
        return [
            row["theorem"]
            for samplings in self.methods.values()
            for row in samplings.values()
            if "theorem" in row
        ]


def cell(name: str, method: str, what: str) -> float | None:
    """The printed number of a set, or None: accuracy, seconds or norm."""
    columns = {
        "accuracy": "test_accuracy_percent_median",
        "seconds": "time_seconds_median",
        "norm": "group_norm_median",
    }
    return printed(5).get(name, {}).get(f"{method}_{columns[what]}")


def printed_ratio(name: str, over: str, under: str, what: str) -> float:
    top, bottom = cell(name, over, what), cell(name, under, what)
    if top is None or bottom is None:
        raise ValueError(f"Table 5 does not have both numbers of {name}")
    return top / bottom


def tolerance(n_test: int) -> float:
    """In points of accuracy: one test row, or 1.5, and half a unit of the last printed digit."""
    return max(1.5, 100 / n_test) + 0.05
