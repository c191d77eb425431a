"""C-ReLU: the second-order solver against the augmented Lagrangians, conic solvers and adelie."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import standings
from benchmarks.contest import (
    GOAL,
    REFERENCE_TOL,
    REPEATS,
    SOLVER,
    Contest,
    Entrant,
    Plan,
    Task,
    prepared,
)
from benchmarks.datasets import SPREAD, Sets, available, maker
from benchmarks.instances import RELU, WIDE_TEACHER, Instance, Size
from benchmarks.record import Benchmark, Options, Row, Rows
from benchmarks.standings import Comparison

NAME = "newton_relu"
LAMBDAS = (1e-3, 1e-4, 1e-5)
QUICK = Size(n=100, d=5, p=20)
UCI_LARGE, LARGE_PATTERNS = ("pima", "spambase", "magic"), 500
UCI_LAMBDAS, UCI_PATTERNS = (1e-3, 1e-4), 100
MUST_SOLVE = 4000  # rows up to which every instance has to reach the goal
AL_GAP = 1e-3
CONIC_BYTES = 4 * 16  # the matrix and the constraints, of V and of W; a value and an index
LADDER_PATIENCE = 0.5  # these run several times for each lam

AL = Entrant(
    "AL",
    "solve_cvxnn",
    goal=AL_GAP,
    ladder=({"solver": "al", "tol": AL_GAP},),
)
PYSCNN = Entrant("pyscnn", "solve_pyscnn", goal=None, peer="pyscnn", patience=3.0)
CLARABEL = Entrant(
    "Clarabel",
    "solve_conic",
    ladder=tuple(
        {
            "solver": "CLARABEL",
            "settings": dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tol),
        }
        for tol in (1e-6, 1e-8, 1e-10)  # its own are the second
    ),
    or_best=True,
    entry_bytes=CONIC_BYTES,
)
SCS = Entrant(
    "SCS",
    "solve_conic",
    ladder=tuple(
        {"solver": "SCS", "settings": {"eps_abs": tol, "eps_rel": tol, "max_iters": 10**6}}
        for tol in (1e-4, 1e-6, 1e-8)
    ),
    or_best=True,
    patience=LADDER_PATIENCE,
    entry_bytes=CONIC_BYTES,
)
ADELIE = Entrant(
    "adelie",
    "solve_adelie",
    ladder=(
        {"tol": 1e-7},  # its own
        {"tol": 1e-9},
        {"tol": 1e-11, "tight": True},
        {"tol": 1e-13, "tight": True},
    ),
    peer="adelie",
    or_best=True,
    patience=LADDER_PATIENCE,
)
ENTRANTS = (AL, PYSCNN, CLARABEL, SCS, ADELIE)
COMPARISONS = (
    Comparison("our augmented Lagrangian", (AL.name,), "a certified gap of 1e-3", 25),
    Comparison("pyscnn's augmented Lagrangian", (PYSCNN.name,), "its final objective", 100),
    Comparison("CVXPY and Clarabel", (CLARABEL.name,), "a gap of 1e-6, or its best", 15),
    Comparison("CVXPY and SCS", (SCS.name,), "a gap of 1e-6, or its best"),
    Comparison("adelie", (ADELIE.name,), "a gap of 1e-6, or its best"),
)


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Contest(ENTRANTS, options, Path(folder)) as contest,
    ):
        yield from contest.run(plans(options.quick), rows)


def plans(quick: bool, sets: Sets = available) -> Iterator[Plan]:
    for name, make, lambdas in instances(quick, sets):
        for lam in lambdas:
            yield f"{name} lam={lam:g}", {}, functools.partial(task, name, make, lam)


def instances(
    quick: bool, sets: Sets
) -> Iterator[tuple[str, Callable[[], Instance], tuple[float, ...]]]:
    if quick:
        yield str(QUICK), QUICK.make, UCI_LAMBDAS[:1]
        return
    for size in RELU:
        yield str(size), functools.partial(size.make, neurons=WIDE_TEACHER), LAMBDAS
    for name in sets(UCI_LARGE):
        yield name, maker(name, LARGE_PATTERNS), LAMBDAS
    for name in sets(SPREAD):
        yield name, maker(name, UCI_PATTERNS), UCI_LAMBDAS


def task(name: str, make: Callable[[], Instance], lam: float) -> Task:
    instance, _ = prepared(make, "relu")
    return Task(name, "relu", instance, lam)


def present(rows: Rows) -> str:
    return "\n\n".join(
        [
            f"`{SOLVER}` against what else solves C-ReLU: the same data and gates, processor "
            "seconds on one thread from the data to the weights, medians of up to "
            f"{REPEATS} runs in turn. The gap is that of the objective above the best lower bound "
            f"known, relative to the objective. The bound is of a dual point of `{SOLVER}`, asked "
            f"for a gap of {REFERENCE_TOL:g}, and is proven afresh: products in NumPy, cones by "
            "SciPy's non-negative least squares. Weights outside their cones are moved into them "
            f"before their objective is taken, at no charge. Only `{SOLVER}` and AL have to prove "
            "their gaps themselves. Clarabel, SCS and adelie are run with tighter and tighter "
            "tolerances, and the shortest run that reaches the gap counts; if none does, the one "
            f"with the smallest gap, and `{SOLVER}` is timed to that gap. pyscnn, in float64, "
            "stops where it does by default; its final objective is that of its network, and "
            f"`{SOLVER}` is timed until a feasible point is as good.",
            standings.standings(COMPARISONS, rows),
            "A race is left out where the other could not run or ran out of time; the last mean "
            "counts time limits as times, and bounds the true one from below.",
            standings.show_profile(NAME),
            "Seconds, and in brackets how many times that is what "
            f"`{SOLVER}` takes to the same goal; `>` marks a time limit.",
            standings.times(ENTRANTS, rows, (AL_GAP, GOAL)),
            "Passes (products with the expanded matrix or its transpose) where they are counted, "
            "and peaks of memory in MB, imports included.",
            standings.work(ENTRANTS, rows),
            standings.left_out(ENTRANTS, rows),
            standings.versions(rows),
        ]
    )


def draw(rows: Rows, path: Path) -> None:
    standings.draw_profile(path, standings.profile_times(ENTRANTS, rows, AL_GAP), AL_GAP)


def misses(rows: Rows) -> list[str]:
    found = standings.missing(rows, (case for case, _, _ in plans(False, iter)))
    found += [miss for comparison in COMPARISONS for miss in comparison.misses(rows)]
    return found + standings.unsolved(rows, MUST_SOLVE)


BENCHMARK = Benchmark(
    NAME,
    "C-ReLU: the second-order solver against all others",
    measure,
    present,
    misses,
    resumable=True,
    draw=draw,
)
