"""From finished pieces to profiles: when each method passed (1 + r) times the best objective.

As in the paper, the best objective F* of a problem is the smallest that any of its methods found:
R-FISTA or the augmented Lagrangian, the interior-point solver, Adam and SGD; Newton's method solves
the same programs and counts as well. Generated patterns are another problem and do not. Problems
that the zero model solves are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from replication.experiment import Done, Row
from replication.figure4.settings import LIMIT, PUBLISHED, TOL

NAMES = {
    "rfista": "R-FISTA",
    "al": "AL",
    "adam": "Adam",
    "sgd": "SGD",
    "conic": "interior point",
    "newton": "Newton",
    "generated": "generated patterns",
}
GRADIENT = ("adam", "sgd")
# Which of the runs of gradient descent counts: the one with the smallest objective at its end, as
# the paper has it, or the first to pass, as its released code has it.
FINAL, FASTEST = "final", "fastest"


class Passing(NamedTuple):
    """When a method passed a level, after how many iterations (epochs); never is inf."""

    seconds: float = math.inf
    iterations: float = math.inf


def passing(trace: Iterable[Sequence[float]], level: float) -> Passing:
    for seconds, objective, iterations in trace:
        if objective <= level:
            return Passing(seconds, iterations)
    return Passing()


class Profile:
    """A method on some problems."""

    def __init__(self, passings: Iterable[Passing]) -> None:
        self.passings = list(passings)
        self.seconds = sorted(found.seconds for found in self.passings)
        self.iterations = sorted(found.iterations for found in self.passings)

    @property
    def share(self) -> float:
        """Of the problems that are solved at all."""
        return sum(map(math.isfinite, self.seconds)) / max(1, len(self.seconds))

    @property
    def half(self) -> Passing:
        """The seconds, and the iterations, by which half of the problems are solved."""
        middle = math.ceil(len(self.seconds) / 2) - 1
        return Passing(self.seconds[middle], self.iterations[middle])


@dataclass(frozen=True)
class Contest:
    """A smaller problem by all methods."""

    settings: Row
    row: Row

    @property
    def kind(self) -> str:
        return str(self.settings["kind"])

    @property
    def published(self) -> str:
        return PUBLISHED[self.kind][0]

    @property
    def convex(self) -> list[str]:
        """The methods for the convex program of the problem that were run."""
        return [name for name in ("newton", self.published, "conic") if name in self.row]

    def runs(self, method: str, scale: str = "convex") -> list[Row]:
        found: list[Row] = self.row["descent"][scale][method]
        return found

    def lowest(self, method: str, scale: str = "convex") -> float:
        """The smallest objective at the end of a run."""
        values = (run["objective"] for run in self.runs(method, scale))
        return min((value for value in values if value is not None), default=math.inf)

    def best(self, scale: str = "convex") -> float:
        """F*."""
        solved = [self.row[name].get("objective", math.inf) for name in self.convex]
        return min(*solved, *(self.lowest(method, scale) for method in GRADIENT))

    def passing(
        self, method: str, r: float, choice: str = FASTEST, scale: str = "convex"
    ) -> Passing:
        level = (1 + r) * self.best(scale)
        if method not in GRADIENT:
            return passing(self.row[method]["trace"], level)
        runs = self.runs(method, scale)
        if choice == FINAL:
            ended = [run for run in runs if run["objective"] is not None]
            return passing(min(ended, key=itemgetter("objective"))["trace"], level)
        steady = (passing(run["trace"], level) for run in runs if run["steady"])
        return min(steady, default=Passing())


def contests(done: Sequence[Done], kind: str, part: str = "rivals") -> tuple[list[Contest], int]:
    """The smaller problems of a kind (or the "full" ones), and how many were left out because zero
    solves them."""
    rivals = [
        piece for piece in done if piece.settings["part"] == part and piece.settings["kind"] == kind
    ]
    found = [Contest(piece.settings, piece.row) for piece in rivals if not piece.row["zero"]]
    return found, len(rivals) - len(found)


@dataclass
class Program:
    """One of the paper's problems, by the methods that were run on it."""

    kind: str
    name: str
    lam: float
    size: Row
    rows: dict[str, Row]

    @property
    def zero(self) -> bool:
        return any(row["zero"] for row in self.rows.values())

    @property
    def certified(self) -> bool:
        """By Newton's method, within the limit."""
        row = self.rows["newton"]
        return bool(row["gap"] <= TOL and row["seconds"] <= LIMIT)

    def passing(self, method: str, r: float) -> Passing:
        best = min(row["objective"] for row in self.rows.values())
        return passing(self.rows[method]["trace"], (1 + r) * best)


def programs(done: Sequence[Done], kind: str) -> list[Program]:
    """The paper's problems of a kind that Newton's method was run on, the smallest sets first."""
    found: dict[tuple[str, float], Program] = {}
    for piece in done:
        settings = piece.settings
        if settings["part"] == "programs" and settings["kind"] == kind:
            method = "newton" if settings["solver"] == "auto" else settings["solver"]
            size = {key: piece.row[key] for key in ("n", "d", "outputs", "patterns")}
            for row in piece.row["programs"]:
                key = settings["set"], row["lam"]
                program = found.setdefault(key, Program(kind, *key, size, {}))
                program.rows[method] = row
    tried = [program for program in found.values() if "newton" in program.rows]
    return sorted(tried, key=lambda program: (_entries(program), program.name, program.lam))


def compared(tried: Sequence[Program]) -> list[Program]:
    """The problems that are not solved by zero and that both methods were run on."""
    return [program for program in tried if not program.zero and len(program.rows) == 2]


def _entries(program: Program) -> int:
    size = program.size
    return int(size["n"] * size["d"] * size["outputs"])
