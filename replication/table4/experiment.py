"""One method on one set of pictures, with the values that the authors selected.

    rfista             C-GReLU, until the min-norm subgradient is small or at the iteration limit
    adam, sgd, adagrad NC-GReLU with the same gates, for a number of epochs
    optimum            the program of R-FISTA by Newton's method, to a small certified gap

Runs on the convex program go on after an interruption: they are kept in a temporary folder until
they are done. The others take a few minutes each and begin again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import cvxnn
from cvxnn.solvers.results import Progress
from replication import descent
from replication.experiment import Experiment, Profile, Row
from replication.table4 import page, settings
from replication.table4.pictures import Pictures, predict

TRACE = 20  # points of a trace, or somewhat more


def run(piece: Row) -> Row:
    pictures = Pictures.of(piece)
    convex = piece["method"] in ("rfista", "optimum")
    found = _convex(piece, pictures) if convex else _descent(piece, pictures)
    return {"patterns": len(pictures.patterns), **_rounded(found)}


def _convex(piece: Row, pictures: Pictures) -> Row:
    problem = cvxnn.CGReLU(pictures.X, pictures.targets, pictures.patterns, lam=piece["lam"])
    file = _checkpoint(piece)
    started: list[int] = []

    def follow(progress: Progress) -> None:
        if not started:
            started.append(progress.n_iter)

    begin = time.process_time()
    solution = cvxnn.solve(
        problem, **_options(piece), callback=follow, on_failure="ignore", checkpoint=file
    )
    seconds = time.process_time() - begin
    network = solution.network()
    outputs = (predict(network, rows) for rows in (pictures.X, pictures.X_test))
    history = solution.history[:: max(1, len(solution.history) // TRACE)]
    file.unlink(missing_ok=True)
    return {
        **pictures.accuracies(*outputs),
        "objective": solution.certificate.objective,
        "lower_bound": solution.certificate.lower_bound,
        "gap": solution.certificate.relative_gap,
        "neurons": solution.n_active,
        "iterations": solution.n_iter,
        "status": str(solution.status),
        "residual": solution.history[-1].residual,
        # of this process alone, which may have gone on from a file
        "seconds_each": seconds / max(1, solution.n_iter - started[0]),
        "trace": [[point.n_iter, point.objective, point.relative_gap] for point in history],
    }


def _options(piece: Row) -> dict[str, Any]:
    """Of `solve`: the authors' settings, or those of the exact method."""
    if piece["method"] == "optimum":
        return {"solver": "newton", "tol": piece["tol"]}
    return {
        "solver": cvxnn.RFISTA(first_step=piece["step"], grow=1.2),
        "stop": "paper",
        "tol": piece["residual"],
        "max_iter": piece["iterations"],
    }


def _checkpoint(piece: Row) -> Path:
    name = hashlib.sha256(json.dumps(piece, sort_keys=True).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / "cvxnn-replication-table4"
    folder.mkdir(exist_ok=True)
    return folder / name


def _descent(piece: Row, pictures: Pictures) -> Row:
    epochs = piece["epochs"]
    every = max(1, epochs // TRACE)
    gates = pictures.active(pictures.X)
    (run,) = descent.descend(
        pictures.X,
        pictures.targets,
        piece["lam"],
        piece["method"],
        steps=[piece["step"]],
        seeds=[piece["seed"]],
        gates=gates,
        epochs=epochs,
        halve_every=200,
        momentum=0.9 if piece["method"] == "sgd" else 0.0,
        scale=piece["scale"],
        tol=0.0,
        check_every=every,
        trace_every=every,
    )
    outputs = [
        descent.outputs(rows, run.U, run.A, on)
        for rows, on in ((pictures.X, gates), (pictures.X_test, pictures.active(pictures.X_test)))
    ]
    return {
        **pictures.accuracies(*outputs),
        "objective": run.objective,
        "epochs": run.epochs,
        "status": run.status,
        "seconds_each": run.seconds / max(1, run.epochs),
        "trace": [[point.epoch, point.objective] for point in run.trace],
    }


def _rounded(value: Any) -> Any:
    """Numbers of six digits."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _sizes(name: str) -> str:
    parts = [
        f"{settings.NAMES[data]} with {size.rows:,} rows, {size.gates:,} gates, "
        f"{size.iterations} iterations or {size.epochs} epochs"
        for data, size in settings.SIZES[name].items()
    ]
    return "; ".join(parts)


EXPERIMENT = Experiment(
    name="table4",
    title="MNIST and CIFAR-10",
    floats=("Table 4",),
    pieces=settings.pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: "MNIST with 300 rows and 20 gates.",
        Profile.DESK: (
            f"Two sizes below the paper's, both with all test rows. Small: {_sizes('small')}. "
            f"Large: {_sizes('large')}; patch gates only. The paper's: "
            f"{_sizes('full')}. The values that the authors selected are taken, one run each."
        ),
    },
)
