"""Convex programs by one method, with what it reached when.

Seconds are of the processor, and the runner sees to it that limits are as well. They count from
the call of a method, with patterns drawn and the data in memory. A trace ends with the last
iterate; `seconds` has the certificate in it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import cvxnn
from cvxnn.solvers import augmented_lagrangian
from replication.data import Task, synthetic
from replication.experiment import Row

LEVELS = 36  # objectives of a trace, beside those at the thresholds
THRESHOLDS = (1.0, 0.5, 0.1)  # of Figures 4, 7 and 8
# Iterations of the augmented Lagrangian between two points that are mapped to a network: few
# enough to see when a threshold is passed, for a tenth of the time.
SHOW_EVERY = 25
PROGRAMS = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}


def task_of(name: str) -> Task:
    return synthetic() if name == "synthetic" else Task.of(name)


def pose(task: Task, kind: str, patterns: int, seed: int, lam: float) -> Any:
    """The program of a task over the authors' patterns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        return PROGRAMS[kind](task.X, task.targets, task.patterns(patterns, seed), lam)


def run_programs(settings: Row) -> Row:
    """One method on the programs of a set, each from the start; programs that zero solves are left
    to Newton's method."""
    task = task_of(settings["set"])
    first = pose(
        task, settings["kind"], settings["patterns"], settings["seed"], settings["lams"][0]
    )
    limit = cvxnn.lambda_max(first)
    programs = []
    for lam in settings["lams"]:
        row: Row = {"lam": lam, "zero": bool(lam >= limit)}
        if not row["zero"] or settings["solver"] == "auto":
            problem = first.with_lam(lam)
            options = {"max_seconds": settings["max_seconds"], **settings["options"]}
            row |= solved(task, problem, settings["solver"], **options)
        programs.append(row)
    n, d = task.X.shape
    return {
        "n": n,
        "d": d,
        "outputs": task.targets.shape[1],
        "patterns": len(first.patterns),
        "lambda_max": rounded(limit),
        "programs": programs,
    }


def solved(task: Task, problem: Any, solver: str, **options: Any) -> Row:
    """What a solver makes of a program: its point, what is proven of it, and its trace."""
    with shown_often():
        trace = Trace()
        solution = cvxnn.solve(problem, solver, on_failure="ignore", callback=trace, **options)
        seconds = trace.seconds
    return {
        "status": str(solution.status),
        "objective": rounded(solution.certificate.objective),
        "gap": rounded(solution.certificate.relative_gap),
        "seconds": rounded(seconds),
        "iterations": solution.n_iter,
        "products": solution.n_products,
        "active": solution.n_active,
        "accuracy": rounded(task.accuracy(solution.network().predict(task.X_test))),
        "trace": thinned(trace.points),
    }


@contextmanager
def shown_often() -> Iterator[None]:
    """The augmented Lagrangian inside shows a point every SHOW_EVERY iterations."""
    every = augmented_lagrangian.SHOW_EVERY
    augmented_lagrangian.SHOW_EVERY = SHOW_EVERY
    try:
        yield
    finally:
        augmented_lagrangian.SHOW_EVERY = every


class Moment(NamedTuple):
    """Of a run: when, how low, and after how many iterations."""

    seconds: float
    objective: float
    iterations: int


class Trace:
    """A callback that notes processor seconds, the best objective so far, and iterations (rounds
    of generation)."""

    def __init__(self) -> None:
        self.points: list[Moment] = []
        self._begin = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self._begin

    def __call__(self, progress: Any) -> bool:
        count = progress.n_iter if hasattr(progress, "n_iter") else progress.n_round
        self.points.append(Moment(self.seconds, float(progress.objective), count))
        return False


def thinned(points: Sequence[Moment], levels: int = LEVELS) -> list[list[float]]:
    """When the objective first fell to each of some levels: the last objective times 1 + q, with q
    spread geometrically, and the levels that are asked for if the last objective is the best."""
    finite = [point for point in points if np.isfinite(point.objective)]
    if not finite:
        return []
    best = np.minimum.accumulate([point.objective for point in finite])
    farthest = max(best[0] / best[-1] - 1, 0.01) if best[-1] > 0 else 0.01
    above = [*np.geomspace(0.01, farthest, levels), *THRESHOLDS, 0.0]
    places = {int(np.argmax(best <= best[-1] * (1 + q))) for q in above} | {0}
    return [
        [rounded(finite[k].seconds), rounded(best[k]), finite[k].iterations] for k in sorted(places)
    ]


def rounded(value: float) -> float:
    """To six digits, which is what files keep."""
    return float(f"{value:.6g}")
