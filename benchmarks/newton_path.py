"""Paths down to a hundredth of lambda_max: warm starts against cold solves and against adelie's."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks import standings
from benchmarks.contest import (
    REPEATS,
    SOLVER,
    Contest,
    Entrant,
    Plan,
    Run,
    Task,
    prepared,
)
from benchmarks.datasets import SPREAD, Sets, available, maker
from benchmarks.instances import GATED, QUICK, RELU, WIDE_TEACHER, Instance
from benchmarks.newton_gated import ADELIE, UCI_PATTERNS
from benchmarks.record import Benchmark, Options, Row, Rows
from benchmarks.standings import Comparison

NAME = "newton_path"
N_LAMS, QUICK_LAMS, EPS = 50, 10, 1e-2
COLD_TOL, ADELIE_GAP = 1e-4, 1e-3
JUDGED_EVERY = 5  # points; the last one is among them
MAX_SECONDS = 400.0
RELU_UCI = ("pima",)

COLD = Entrant(
    "cold solves",
    "solve_cvxnn",
    goal=COLD_TOL,
    ladder=({"solver": "cold", "method": SOLVER, "tol": COLD_TOL},),
)
ADELIE_PATH = replace(
    ADELIE, goal=ADELIE_GAP, ladder=tuple({"tol": 10.0**-k} for k in range(9, 15))
)
ENTRANTS = (COLD, ADELIE_PATH)
COMPARISONS = (
    Comparison("the sum of cold solves", (COLD.name,), f"a gap of {COLD_TOL:g}", 4),
    Comparison(
        "adelie's path (C-GReLU)", (ADELIE.name,), f"a gap of {ADELIE_GAP:g}, or its best", 1.5
    ),
)


@dataclass(frozen=True)
class PathTask(Task):
    """The same program at many values of lam."""

    lams: tuple[float, ...] = ()

    @property
    def request(self) -> Run:
        return {"kind": self.kind, "lam": list(self.lams)}

    def our_request(self, **settings: Any) -> Run:
        return {"solver": "path", "eps": EPS, **settings}

    def judged(self, found: Mapping[str, np.ndarray], bound: float) -> Run:
        """The largest gap of the points that are judged."""
        gaps = []
        for k in range(JUDGED_EVERY - 1, len(self.lams), JUDGED_EVERY):
            point = {name: array[k] for name, array in found.items()}
            task = Task(self.name, self.kind, self.instance, self.lams[k])
            known = task.bound(point["Theta"]) if self.kind == "relu" else bound
            gaps.append(task.judged(point, known)["gap"])
        return {"gap": max(gaps)}


class Paths(Contest):
    """Races along paths; every point has to prove its gap, so there is no reference."""

    goals: ClassVar[tuple[float, ...]] = (ADELIE_GAP, COLD_TOL)

    def reference(self, task: Task) -> tuple[float, Row]:
        return 0.0, {}


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    for kind, entrants in (("gated", ENTRANTS), ("relu", (COLD,))):
        with (
            tempfile.TemporaryDirectory() as folder,
            Paths(entrants, options, Path(folder), MAX_SECONDS) as contest,
        ):
            yield from contest.run(plans(kind, options.quick), rows)


def plans(kind: str, quick: bool, sets: Sets = available) -> Iterator[Plan]:
    n_lams = QUICK_LAMS if quick else N_LAMS
    for name, make in instances(kind, quick, sets):
        case = name if kind == "gated" else f"C-ReLU {name}"
        yield case, {"points": n_lams}, functools.partial(task, case, kind, make, n_lams)


def instances(kind: str, quick: bool, sets: Sets) -> Iterator[tuple[str, Callable[[], Instance]]]:
    if quick:
        yield str(QUICK[0]), QUICK[0].make
        return
    neurons = {} if kind == "gated" else {"neurons": WIDE_TEACHER}
    for size in GATED if kind == "gated" else RELU[:3]:
        yield str(size), functools.partial(size.make, **neurons)
    for name in sets(SPREAD if kind == "gated" else RELU_UCI):
        yield name, maker(name, UCI_PATTERNS)


def task(name: str, kind: str, make: Callable[[], Instance], n_lams: int) -> PathTask:
    instance, largest = prepared(make, kind)
    lams = np.geomspace(largest, EPS * largest, n_lams)
    return PathTask(name, kind, instance, largest, tuple(lams.tolist()))


def present(rows: Rows) -> str:
    points = max(row["points"] for row in rows.values())
    return "\n\n".join(
        [
            f"`cvxnn.path`: {points} values of lam from lambda_max down to {EPS:g} of it, each "
            "certified. Processor seconds on one thread from the data to all weights, medians of "
            f"up to {REPEATS} runs in turn. The cold solves are those of `{SOLVER}` at the same "
            "values, each from zero. adelie's path is run with tighter and tighter tolerances "
            f"until no gap is above {ADELIE_GAP:g}; if none gets there, the one with the smallest "
            "gap counts, and ours is run to that gap. Gaps are relative duality gaps, computed "
            f"afresh in float64 at every {JUDGED_EVERY}th point, and the largest counts.",
            standings.standings(COMPARISONS, rows),
            "Seconds, and in brackets how many times that is what the path takes.",
            standings.times(ENTRANTS, rows, (ADELIE_GAP, COLD_TOL)),
            "Passes (products with the expanded matrix or its transpose) where they are counted, "
            "and peaks of memory in MB, imports and all weights included.",
            standings.work(ENTRANTS, rows, COLD_TOL),
            standings.left_out(ENTRANTS, rows),
            standings.versions(rows),
        ]
    )


def misses(rows: Rows) -> list[str]:
    planned = [case for kind in ("gated", "relu") for case, _, _ in plans(kind, False, iter)]
    found = standings.missing(rows, planned)
    found += [miss for comparison in COMPARISONS for miss in comparison.misses(rows)]
    return found + standings.unsolved(rows)


BENCHMARK = Benchmark(
    NAME,
    "Paths: warm starts against cold solves and adelie",
    measure,
    present,
    misses,
    resumable=True,
)
