"""Tables 2 and 6: test accuracy of convex models on binary sets, beside forests and SVMs.

C-GReLU by R-FISTA as released, C-ReLU by the augmented Lagrangian, both by Newton to a certified
gap; all with the values that the authors' cross-validation selected.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import cvxnn
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.rfista import RFISTA
from replication.data import Task
from replication.experiment import Experiment, Profile, Row
from replication.table2 import baselines, page, settings
from replication.table2.patterns import as_released, sampled


def run(piece: Row) -> Row:
    return RUNS[piece["kind"]](piece)


def run_gated(piece: Row) -> Row:
    task, patterns = posed(piece)
    problem = cvxnn.CGReLU(task.X, task.targets, patterns, piece["lam"])
    rfista = RFISTA(line_search="backtracking")
    limits = {"stop": "paper", "tol": piece["tol"], "max_iter": piece["iterations"]}
    exact = {"tol": piece["newton_tol"], "seconds": piece["seconds"]}
    return {
        **sizes(task, patterns),
        "rfista": outcome(task, *solved(problem, rfista, **limits)),
        "optimum": outcome(task, *solved(problem, "newton", **exact)),
    }


def run_relu(piece: Row) -> Row:
    task, patterns = posed(piece)
    exact = {"tol": piece["newton_tol"], "seconds": piece["seconds"]}
    found = solved(relu_problem(task, patterns, piece), "newton", **exact)
    return {**sizes(task, patterns), "optimum": outcome(task, *found)}


def run_al(piece: Row) -> Row:
    task, patterns = posed(piece)
    method = AL(
        max_inner=piece["max_inner"],
        gap_tol=piece["gap_tol"],
        inner_tol=piece["tol"],
        inner=RFISTA(line_search="backtracking"),
    )
    limits = {"stop": "paper", "tol": piece["tol"], "seconds": piece["seconds"]}
    found = solved(relu_problem(task, patterns, piece), method, **limits)
    return {**sizes(task, patterns), "al": outcome(task, *found)}


def posed(piece: Row) -> tuple[Task, cvxnn.Patterns]:
    """The set with a column of ones, and the authors' patterns on it."""
    task = Task.of(piece["set"], ones=True)
    half_active = piece["half_active"]
    return task, sampled(task.X, piece["patterns"], piece["seed"], half_active=half_active)


def relu_problem(task: Task, patterns: cvxnn.Patterns, piece: Row) -> cvxnn.CReLU:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        return cvxnn.CReLU(task.X, task.targets, patterns, piece["lam"])


def solved(
    problem: Any, method: Any, *, seconds: float = float("inf"), **limits: Any
) -> tuple[cvxnn.Solution, float]:
    """The solution and its processor seconds, of which there are `seconds`: other processes on the
    machine do not count."""
    begin = time.process_time()

    def late(progress: object) -> bool:
        return time.process_time() - begin > seconds

    solution = cvxnn.solve(problem, method, callback=late, on_failure="ignore", **limits)
    return solution, time.process_time() - begin


def sizes(task: Task, patterns: cvxnn.Patterns) -> Row:
    return {
        "n": len(task.X),
        "n_test": len(task.X_test),
        "d": task.X.shape[1],
        "patterns": len(patterns),
    }


def outcome(task: Task, solution: cvxnn.Solution, seconds: float) -> Row:
    network = solution.network()
    row = {
        "accuracy": round(task.accuracy(network.predict(task.X_test)), 4),
        "gap": float(f"{solution.certificate.relative_gap:.6g}"),
        "objective": float(f"{solution.certificate.objective:.6g}"),
        "neurons": solution.n_active,
        "iterations": solution.n_iter,
        "seconds": float(f"{seconds:.4g}"),
        "status": str(solution.status),
    }
    if isinstance(network, cvxnn.GatedReLUNetwork):
        kept = as_released(network, task.X[0, -1])
        row["accuracy_released"] = round(task.accuracy(kept.predict(task.X_test)), 4)
    return row


RUNS = {
    "gated": run_gated,
    "relu": run_relu,
    "al": run_al,
    **dict.fromkeys(settings.BASELINES, baselines.run),
}

EXPERIMENT = Experiment(
    name="table2",
    title="Tables 2 and 6: accuracy beside forests and support vector machines",
    floats=("Table 2", "Table 6"),
    pieces=settings.pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: settings.SMOKE_REDUCTION,
        Profile.DESK: settings.DESK_REDUCTION,
        Profile.PAPER: settings.PAPER_DIFFERENCE,
    },
)
