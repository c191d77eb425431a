"""What the pieces of Tables 1 and 5 share: problems, the published solvers, norms and times."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import cvxnn
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.rfista import RFISTA
from replication.data import Task, synthetic
from replication.experiment import Row

Result = TypeVar("Result")


def published_rfista(tightness: float) -> RFISTA:
    """With the line search as printed, which only ever shrinks a step by 0.8."""
    return RFISTA(tightness=tightness, line_search="backtracking")


def posed(piece: Row) -> tuple[Task, cvxnn.CReLU]:
    name = piece["set"]
    task = synthetic() if name == "synthetic" else Task.of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        patterns = task.patterns(piece["patterns"], piece["seed"])
        return task, cvxnn.CReLU(task.X, task.targets, patterns, piece["lam"])


def solve_gated(problem: cvxnn.CGReLU, piece: Row) -> tuple[cvxnn.Solution, float]:
    """By R-FISTA, as published."""
    return timed(
        cvxnn.solve,
        problem,
        published_rfista(piece["tightness"]),
        stop="paper",
        max_iter=piece["rfista_iterations"],
        on_failure="ignore",
    )


def solve_al(problem: cvxnn.CReLU, piece: Row) -> cvxnn.Solution:
    """As published, for so many processor seconds at most: other processes do not count."""
    end = time.process_time() + piece["al_seconds"]
    return cvxnn.solve(
        problem,
        AL(
            max_inner=piece["al_inner"],
            gap_tol=piece["al_gap_tol"],
            inner=published_rfista(piece["tightness"]),
        ),
        stop="paper",
        callback=lambda progress: time.process_time() > end,
        on_failure="ignore",
    )


def timed(call: Callable[..., Result], *args: object, **options: object) -> tuple[Result, float]:
    """The result, and processor seconds with those of its certificate."""
    begin = time.process_time()
    return call(*args, **options), time.process_time() - begin


def group_norm(weights: Any) -> float:
    """The sum of the norms of all blocks, of u or of v and w."""
    parts = weights if isinstance(weights, tuple) else (weights,)
    return float(sum(np.linalg.norm(np.asarray(part), axis=1).sum() for part in parts))


def rounded(value: float) -> float:
    return float(f"{value:.6g}")
