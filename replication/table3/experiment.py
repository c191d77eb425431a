"""Tables 3, 7 and 8: test accuracy of convex models beside that of Adam and SGD.

C-GReLU by R-FISTA at its published stop, C-ReLU by the augmented Lagrangian at its own, both by
Newton to their certified optimum; NC-ReLU and NC-GReLU by Adam and SGD, the latter with the gates
of C-GReLU and with the hundred of the released code.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import cvxnn
from cvxnn.solvers.augmented_lagrangian import AL
from replication import data
from replication.descent import Run, descend, outputs
from replication.experiment import Experiment, Profile, Row
from replication.table3 import page, settings

Result = TypeVar("Result")


def run(piece: Row) -> Row:
    warnings.simplefilter("ignore", cvxnn.PatternWarning)
    task = data.synthetic() if piece.get("rows") == "synthetic" else data.Task.of(piece["set"])
    kinds = {
        "C-GReLU": convex,
        "C-ReLU": convex,
        "grid": grid,
        "AL": augmented,
        "NC-ReLU": relu,
        "NC-GReLU": gated,
    }
    found = kinds[piece["kind"]](task, piece)
    n, d = task.X.shape
    return {"n": n, "n_test": len(task.X_test), "d": d, "classes": task.classes, **found}


def convex(task: data.Task, piece: Row) -> Row:
    """Of every sampling: the published stop of R-FISTA for C-GReLU, and the optimum."""
    row: Row = {"optimum": []}
    for seed in piece["gate_seeds"]:
        problem = posed(task, piece, seed)
        if piece["kind"] == "C-GReLU":
            found = timed(published_stop, problem, piece["iterations"])
            row.setdefault("rfista", []).append(outcome(task, *found))
        exact = timed(optimum, problem, piece["newton_tol"], piece["seconds"])
        row["optimum"].append(outcome(task, *exact))
    return row


def grid(task: data.Task, piece: Row) -> Row:
    """The test accuracy of R-FISTA with every penalty, for one sampling."""
    problem = posed(task, piece | {"lam": piece["lams"][0]}, piece["gate_seeds"][0])
    solutions = [
        published_stop(problem.with_lam(lam), piece["iterations"]) for lam in piece["lams"]
    ]
    return {
        "accuracies": [
            rounded(task.accuracy(solution.network().predict(task.X_test)))
            for solution in solutions
        ]
    }


def augmented(task: data.Task, piece: Row) -> Row:
    """The published stop of the augmented Lagrangian, in so many processor seconds."""
    found = []
    for seed in piece["gate_seeds"]:
        problem = posed(task, piece, seed)
        solved = timed(
            cvxnn.solve,
            problem,
            AL(max_inner=piece["max_inner"]),
            stop="paper",
            callback=until(piece["seconds"]),
            on_failure="ignore",
        )
        found.append(outcome(task, *solved))
    return {"al": found}


def relu(task: data.Task, piece: Row) -> Row:
    """As many neurons as the optimum of C-ReLU has, and not too few."""
    problem = posed(task, piece, piece["gate_seed"])
    neurons = optimum(problem, 1e-2, piece["seconds"]).n_active
    width = max(piece["width"], neurons)
    runs = descended(task, piece, piece["seeds"], width=width)
    return {"width": width, "runs": [_of_run(task, run) for run in runs]}


def gated(task: data.Task, piece: Row) -> Row:
    """Other gates for every seed, or the same for all."""
    X, p, seeds = task.X, piece["patterns"], piece["gate_seeds"]
    batches = [piece["seeds"]] if len(seeds) == 1 else [[seed] for seed in piece["seeds"]]
    found = []
    for batch, seed in zip(batches, seeds, strict=False):
        G = data.gates(X.shape[1], p, seed)
        active = task.X_test @ G > 0
        runs = descended(task, piece, batch, gates=X @ G > 0)
        found += [_of_run(task, run, active) for run in runs]
    return {"runs": found}


def descended(task: data.Task, piece: Row, seeds: list[int], **network: Any) -> list[Run]:
    return descend(
        task.X,
        task.targets,
        piece["lam"],
        piece["method"],
        steps=[piece["step"]],
        seeds=seeds,
        epochs=piece["epochs"],
        scale=piece["scale"],
        check_every=piece["check_every"],
        **network,
    )


def _of_run(task: data.Task, run: Run, active: np.ndarray | None = None) -> Row:
    finite = bool(np.isfinite(run.U).all() and np.isfinite(run.A).all())
    # a network whose weights are not finite is right about nothing
    accuracy = task.accuracy(outputs(task.X_test, run.U, run.A, active)) if finite else 0.0
    return {
        "accuracy": rounded(accuracy),
        "objective": rounded(run.objective) if np.isfinite(run.objective) else None,
        "gradient": rounded(run.gradient) if np.isfinite(run.gradient) else None,
        "status": run.status,
        "epochs": run.epochs,
        "seconds": rounded(run.seconds),
    }


def posed(task: data.Task, piece: Row, seed: int) -> Any:
    kind = cvxnn.CGReLU if piece["kind"] in ("C-GReLU", "grid") else cvxnn.CReLU
    return kind(task.X, task.targets, task.patterns(piece["patterns"], seed), piece["lam"])


def published_stop(problem: cvxnn.CGReLU, iterations: int) -> cvxnn.Solution:
    return cvxnn.solve(problem, "rfista", stop="paper", max_iter=iterations, on_failure="ignore")


def optimum(problem: Any, tol: float, seconds: float) -> cvxnn.Solution:
    """By Newton; the certificate says how near it is if the processor seconds are used up."""
    return cvxnn.solve(problem, "newton", tol=tol, callback=until(seconds), on_failure="ignore")


def until(seconds: float) -> Callable[[object], bool]:
    """Ends a run after so many processor seconds: other processes do not count."""
    end = time.process_time() + seconds
    return lambda progress: time.process_time() > end


def outcome(task: data.Task, solution: cvxnn.Solution, seconds: float) -> Row:
    certificate = solution.certificate
    return {
        "accuracy": rounded(task.accuracy(solution.network().predict(task.X_test))),
        "seconds": rounded(seconds),
        "objective": rounded(certificate.objective),
        "gap": rounded(certificate.relative_gap),
        "neurons": solution.n_active,
        "iterations": solution.n_iter,
        "status": str(solution.status),
    }


def timed(call: Callable[..., Result], *args: object, **options: object) -> tuple[Result, float]:
    """The result, and processor seconds with those of its certificate."""
    begin = time.process_time()
    return call(*args, **options), time.process_time() - begin


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


EXPERIMENT = Experiment(
    name="table3",
    title="Tables 3, 7 and 8: accuracy beside Adam and SGD",
    floats=("Table 3", "Table 7", "Table 8"),
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
