"""C-GReLU: the second-order solver against R-FISTA, packages for the group lasso, and pyscnn."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import standings
from benchmarks.contest import (
    GOAL,
    MAX_MEMORY,
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
from benchmarks.instances import GATED, QUICK, Instance
from benchmarks.record import Benchmark, Options, Row, Rows, geometric_mean
from benchmarks.standings import Comparison

NAME = "newton_gated"
SHARES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of lambda_max
UCI_SHARES = (0.1, 0.01)
UCI_PATTERNS = 500
LADDER_PATIENCE = 0.5  # these run several times for each lam
MAX_BYTES = 1e9  # of our peak, on all instances

RFISTA = Entrant(
    "R-FISTA",
    "solve_cvxnn",
    ladder=({"solver": "rfista", "tol": GOAL},),
    patience=2.0,
    environment={"CVXNN_NATIVE": "0"},  # NumPy products in float64, as in the first release
)
ADELIE = Entrant(
    "adelie",
    "solve_adelie",
    ladder=tuple({"tol": 10.0**-k} for k in range(7, 20, 2)),  # of squares
    peer="adelie",
    or_best=True,
    patience=LADDER_PATIENCE,
)
SKGLM = Entrant(
    "skglm",
    "solve_skglm",
    ladder=tuple({"tol": 10.0**-k} for k in range(3, 10)),
    peer="skglm",
    or_best=True,
    patience=LADDER_PATIENCE,
    entry_bytes=8,
)
CELER = Entrant(
    "celer",
    "solve_celer",
    ladder=tuple({"tol": 10.0**-k} for k in range(5, 12)),
    peer="celer",
    or_best=True,
    patience=LADDER_PATIENCE,
    entry_bytes=8,
)
PYSCNN = Entrant("pyscnn", "solve_pyscnn", goal=None, peer="pyscnn")
ENTRANTS = (RFISTA, ADELIE, SKGLM, CELER, PYSCNN)
GROUP_LASSO = (ADELIE.name, SKGLM.name, CELER.name)
COMPARISONS = (
    Comparison("our R-FISTA, NumPy in float64", (RFISTA.name,), "a gap of 1e-6", 10),
    Comparison("best of adelie, skglm, celer", GROUP_LASSO, "a gap of 1e-6, or their best", 6),
    *(Comparison(name, (name,), "a gap of 1e-6, or its best") for name in GROUP_LASSO),
    Comparison("pyscnn's R-FISTA", (PYSCNN.name,), "the objective of its default stop", 5),
)


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Contest(ENTRANTS, options, Path(folder)) as contest,
    ):
        yield from contest.run(plans(options.quick), rows)


def plans(quick: bool, sets: Sets = available) -> Iterator[Plan]:
    for name, make, shares in instances(quick, sets):
        for share in shares:
            case = f"{name} lam={share:g} lambda_max"
            yield case, {"share": share}, functools.partial(task, name, make, share)


def instances(
    quick: bool, sets: Sets
) -> Iterator[tuple[str, Callable[[], Instance], tuple[float, ...]]]:
    for size in QUICK if quick else GATED:
        yield str(size), size.make, UCI_SHARES if quick else SHARES
    for name in () if quick else sets(SPREAD):
        yield name, maker(name, UCI_PATTERNS), UCI_SHARES


def task(name: str, make: Callable[[], Instance], share: float) -> Task:
    instance, largest = prepared(make, "gated")
    return Task(name, "gated", instance, share * largest)


def present(rows: Rows) -> str:
    return "\n\n".join(
        [
            f"`{SOLVER}` against what else solves C-GReLU: the same data and gates, processor "
            "seconds on one thread from the data to the weights, medians of up to "
            f"{REPEATS} runs in turn. The gap is the relative duality gap of the returned weights "
            "(and of the dual point that came with them, if one did), computed afresh in float64 "
            "by one function for all. R-FISTA has the products of NumPy, and skglm and celer form "
            f"the expanded matrix, which is left out beyond {MAX_MEMORY / 1e9:g} GB. adelie, skglm "
            "and celer are run with tolerances that ask for about ten times more at each step, and "
            "the shortest run that reaches the gap counts; if none does, the one with the smallest "
            f"gap, and `{SOLVER}` is timed to that gap. pyscnn, in float64, stops where it does by "
            f"default, and `{SOLVER}` at the objective reached there.",
            standings.standings(COMPARISONS, rows),
            "A race is left out where the other could not run or ran out of time; the last mean "
            "counts time limits as times, and bounds the true one from below. If the objective "
            f"alone counted, within {GOAL:g} of the best lower bound known, and not the proof, the "
            f"best of adelie, skglm and celer would be {_by_objective(rows)}.",
            standings.show_profile(NAME),
            "Seconds, and in brackets how many times that is what "
            f"`{SOLVER}` takes to the same goal; `>` marks a time limit.",
            standings.times(ENTRANTS, rows),
            "Passes (products with the expanded matrix or its transpose) where they are counted, "
            "and peaks of memory in MB, imports included.",
            standings.work(ENTRANTS, rows),
            standings.left_out(ENTRANTS, rows),
            standings.versions(rows),
        ]
    )


def _by_objective(rows: Rows) -> str:
    """The mean ratio to the shortest runs of a group lasso package with that excess."""
    ratios = []
    for row in rows.values():
        tried = [run for name in GROUP_LASSO for run in _tried(row, name)]
        close = [run["seconds"] for run in tried if run.get("excess", 1.0) <= GOAL]
        if close:
            ratios.append(min(close) / row[SOLVER][f"tol={GOAL:.3g}"]["seconds"])
    if not ratios:
        return "at none of these problems"
    return f"{geometric_mean(ratios):.1f} times slower over {len(ratios)} problems"


def _tried(row: Row, name: str) -> list[Run]:
    return row["entrants"].get(name, {"tried": []})["tried"]


def draw(rows: Rows, path: Path) -> None:
    gap_entrants = [entrant for entrant in ENTRANTS if entrant.goal is not None]
    standings.draw_profile(path, standings.profile_times(gap_entrants, rows, GOAL), GOAL)


def misses(rows: Rows) -> list[str]:
    found = standings.missing(rows, (case for case, _, _ in plans(False, iter)))
    found += [miss for comparison in COMPARISONS for miss in comparison.misses(rows)]
    for case, row in rows.items():
        peak = max(run.get("peak_bytes", 0) for run in row[SOLVER].values())
        if peak > MAX_BYTES:
            found.append(f"{case}: {peak / 1e6:.0f} MB, wanted below {MAX_BYTES / 1e6:.0f} MB")
    return found + standings.unsolved(rows)


BENCHMARK = Benchmark(
    NAME,
    "C-GReLU: the second-order solver against all others",
    measure,
    present,
    misses,
    resumable=True,
    draw=draw,
)
