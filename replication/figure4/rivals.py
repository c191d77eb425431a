"""One program by all methods: convex ones, interior points, and gradient descent on the network."""

from __future__ import annotations

from typing import Any

import numpy as np

import cvxnn
from replication.data import Task
from replication.descent import Run, descend
from replication.experiment import Row
from replication.figure4.convex import (
    Moment,
    Trace,
    pose,
    rounded,
    solved,
    task_of,
    thinned,
)
from replication.figure4.settings import PUBLISHED

LEAST_WIDTH = 50  # of NC-ReLU, in the released configuration
LEVELS = 16  # of the traces of gradient descent, of which there are many


def run_rivals(settings: Row) -> Row:
    program = {key: settings[key] for key in ("set", "kind", "patterns", "seed", "lam")}
    kind, lam = settings["kind"], settings["lam"]
    task = task_of(settings["set"])
    problem = pose(task, kind, settings["patterns"], settings["seed"], lam)
    row: Row = {
        "patterns": len(problem.patterns),
        "outputs": task.targets.shape[1],
        "zero": bool(lam >= cvxnn.lambda_max(problem)),
    }
    if row["zero"]:
        return row
    published = PUBLISHED[kind][0]
    row["newton"] = solved(task, problem, "auto", **settings["exact"])
    row[published] = solved(task, problem, published, **settings["published"])
    if kind == "relu":
        row["generated"] = _generated(task, lam, settings["generated_seconds"])
    if settings["conic"]:
        from replication.figure4.conic import conic  # its limits are not on every system

        row["conic"] = conic(program, settings["conic"])
    network: dict[str, Any]
    if kind == "gated":
        network = {"gates": np.array(problem.patterns.mask)}
    else:
        network = {"width": max(LEAST_WIDTH, row["al"]["active"])}
        row["width"] = network["width"]
    row["descent"] = {
        scale: {
            method: _descended(task, lam, method, {**network, **settings["descent"]}, scale)
            for method in ("adam", "sgd")
        }
        for scale in settings["scales"]
    }
    return row


def _generated(task: Task, lam: float, seconds: float) -> Row:
    """Patterns that pay instead of sampled ones; nothing is asked about all others."""
    trace = Trace()
    training = cvxnn.train(
        task.X,
        task.targets,
        lam,
        bias=False,
        prove="none",
        tol=1e-3,
        max_seconds=seconds,
        callback=trace,
        on_failure="ignore",
    )
    taken = trace.seconds
    return {
        "status": str(training.status),
        "objective": rounded(training.objective),
        "seconds": rounded(taken),
        "patterns": len(training.solution.problem.patterns),
        "active": training.network.n_neurons,
        "accuracy": rounded(task.accuracy(training.network.predict(task.X_test))),
        "trace": thinned(trace.points),
    }


def _descended(task: Task, lam: float, method: str, options: Row, scale: str) -> list[Row]:
    runs = descend(task.X, task.targets, lam, method, scale=scale, trace_every=1, **options)
    return [_row(run) for run in runs]


def _row(run: Run) -> Row:
    """Objectives are those that the run minimizes; `rescaled` is what its network would cost with
    the weights of each neuron balanced, on the scale of the convex programs."""
    points = [Moment(point.seconds, point.trained, point.epoch) for point in run.trace]
    peak = max(point.objective for point in points)
    return {
        "step": run.step,
        "seed": run.seed,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": rounded(run.seconds),
        "objective": rounded(run.trained) if np.isfinite(run.trained) else None,
        "rescaled": rounded(run.objective) if np.isfinite(run.objective) else None,
        "steady": bool(np.isfinite(peak) and peak <= 10 * points[0].objective),
        "trace": thinned(points, LEVELS),
    }
