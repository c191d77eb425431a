"""Figures 1 and 6: ten runs of SGD on a problem that a network fits perfectly, and C-ReLU with the
patterns that they went through.

Runs of SGD are NC-ReLU networks with 100 neurons. For each of them C-ReLU has 100 random patterns
and all that its neurons had after any epoch; it is solved by the augmented Lagrangian with the
published stop, and by Newton to a certified gap.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import cvxnn
from cvxnn import budget
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.base import Iterate
from cvxnn.solvers.rfista import RFISTA
from replication import data
from replication.descent import Run, descend, outputs
from replication.experiment import Experiment, Profile, Row
from replication.figure1 import page, settings

if TYPE_CHECKING:
    import torch

POINTS = 60  # of a curve, at passes that are about evenly spaced on a logarithmic axis
SHOWN = np.unique(np.geomspace(1, 20_000, 3 * POINTS).astype(int))


def run(piece: Row) -> Row:
    warnings.simplefilter("ignore", cvxnn.PatternWarning)
    task = data.synthetic(piece["teacher"])
    if piece["kind"] == "sgd":
        return gradient_runs(task, piece)
    patterns = harvested(task, piece)
    problem = cvxnn.CReLU(task.X, task.targets, patterns, piece["lam"])
    row = by_newton(problem, piece) if piece["kind"] == "newton" else by_al(task, problem, piece)
    return {"patterns": len(patterns), **row}


def gradient_runs(task: data.Task, piece: Row) -> Row:
    accuracies: dict[tuple[int, int], tuple[float, float]] = {}

    def note(epoch: int, places: list[int], U: torch.Tensor, A: torch.Tensor) -> None:
        if epoch in SHOWN:
            for k, place in enumerate(places):
                accuracies[place, epoch] = both_accuracies(task, U[k].numpy(), A[k].numpy())

    runs = trained(task, piece, trace_every=1, on_epoch=note)
    return {
        "majority": [_majority(task.labels), _majority(task.labels_test)],
        "runs": [_of_run(task, run, k, accuracies) for k, run in enumerate(runs)],
    }


def trained(task: data.Task, piece: Row, **options: Any) -> list[Run]:
    return descend(
        task.X,
        task.targets,
        piece["lam"],
        "sgd",
        width=piece["width"],
        steps=[piece["step"]],
        seeds=piece["seeds"],
        epochs=piece["epochs"],
        batch=piece["batch"],
        halve_every=piece["halve_every"],
        tol=piece["tol"],
        scale=piece["scale"],
        **options,
    )


def _of_run(
    task: data.Task, run: Run, place: int, accuracies: dict[tuple[int, int], tuple[float, float]]
) -> Row:
    row: Row = {"seed": run.seed, "status": run.status, "epochs": run.epochs}
    if run.status == "diverged":
        return row
    accuracy, test = accuracies[place, run.epochs] = both_accuracies(task, run.U, run.A)
    return row | {
        "objective": rounded(run.objective),
        "gradient": rounded(run.gradient),
        "accuracy": accuracy,
        "test_accuracy": test,
        "seconds": rounded(run.seconds),
        "curve": [
            [p.epoch, rounded(p.trained), rounded(p.gradient), *accuracies[place, p.epoch]]
            for p in run.trace
            if (place, p.epoch) in accuracies
        ],
    }


def harvested(task: data.Task, piece: Row) -> cvxnn.Patterns:
    """Those of random gates, and of every neuron after every epoch of the run."""
    snapshots = [data.gates(task.X.shape[1], piece["random_patterns"], piece["seeds"][0])]

    def keep(epoch: int, places: list[int], U: torch.Tensor, A: torch.Tensor) -> None:
        snapshots.append(U[0].double().numpy().copy())

    trained(task, piece, on_epoch=keep)
    return cvxnn.Patterns.harvest(task.X, snapshots, strict=True)


def by_newton(problem: cvxnn.CReLU, piece: Row) -> Row:
    begin = time.process_time()
    solution = cvxnn.solve(problem, "newton", tol=piece["newton_tol"], on_failure="ignore")
    return _solved(data.synthetic(piece["teacher"]), solution, time.process_time() - begin)


def by_al(task: data.Task, problem: cvxnn.CReLU, piece: Row) -> Row:
    curve = Curve(task, problem)
    end = time.process_time() + piece["seconds"]
    begin = time.process_time()
    solution = cvxnn.solve(
        problem,
        AL(inner=Watched(curve=curve)),
        stop="paper",
        callback=lambda progress: time.process_time() > end,
        on_failure="ignore",
    )
    seconds = time.process_time() - begin - curve.seconds
    trials = [record.n_trials or 0 for record in solution.history]
    row = _solved(task, solution, seconds)
    return row | {"passes": trials[-1], "updates": curve.updates, "curve": curve.points}


@dataclass
class Curve:
    """What a run of the augmented Lagrangian looks like on its way: passes over the data as the
    paper counts them, the objective of the mapped network, which is feasible by construction, the
    squared subgradient of the Lagrangian, and the network's accuracies."""

    task: data.Task
    problem: cvxnn.CReLU
    points: list[list[float]] = field(default_factory=list)
    updates: int = 0
    seconds: float = 0.0
    _due: int = 0

    def note(self, iterate: Iterate, passes: int) -> None:
        if passes < SHOWN[min(self._due, len(SHOWN) - 1)]:
            return
        self._due = int(np.searchsorted(SHOWN, passes, side="right"))
        begin = time.process_time()
        network = self.problem.network(iterate.U)
        Z = network.predict(self.task.X)
        loss = float(np.mean((Z.reshape(-1, 1) - self.task.targets) ** 2)) / 2
        assert iterate.residual is not None
        numbers = (
            loss + float(self.problem.penalty.value(iterate.U)),
            iterate.residual**2,
            data.accuracy(Z, self.task.labels),
            self.task.accuracy(network.predict(self.task.X_test)),
        )
        self.points.append([passes, *map(rounded, numbers)])
        self.seconds += time.process_time() - begin


@dataclass(frozen=True)
class Watched(RFISTA):
    """R-FISTA that shows its iterates."""

    curve: Curve | None = None

    def iterates(self, *args: Any, **options: Any) -> Iterator[Iterate]:
        assert self.curve is not None
        self.curve.updates += 1
        for iterate in super().iterates(*args, **options):
            spent = budget.current()
            self.curve.note(iterate, 0 if spent is None else spent.passes.trials)
            yield iterate


def _solved(task: data.Task, solution: cvxnn.Solution, seconds: float) -> Row:
    certificate, network = solution.certificate, solution.network()
    return {
        "objective": rounded(certificate.objective),
        "lower_bound": rounded(certificate.lower_bound),
        "gap": rounded(certificate.relative_gap),
        "proven": certificate.proven,
        "accuracy": rounded(data.accuracy(network.predict(task.X), task.labels)),
        "test_accuracy": rounded(task.accuracy(network.predict(task.X_test))),
        "neurons": solution.n_active,
        "iterations": solution.n_iter,
        "status": str(solution.status),
        "seconds": rounded(seconds),
    }


def both_accuracies(task: data.Task, U: np.ndarray, A: np.ndarray) -> tuple[float, float]:
    """On the rows for training and on those for the test, in percent."""
    return (
        rounded(data.accuracy(outputs(task.X, U, A), task.labels)),
        rounded(task.accuracy(outputs(task.X_test, U, A))),
    )


def _majority(labels: np.ndarray) -> float:
    """The share of the larger class, in percent."""
    return rounded(100.0 * float(np.bincount(labels).max()) / len(labels))


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


EXPERIMENT = Experiment(
    name="figure1",
    title="Figures 1 and 6: SGD and the augmented Lagrangian on a realizable problem",
    floats=("Figure 1", "Figure 6"),
    pieces=settings.pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: settings.SMOKE_REDUCTION,
        Profile.DESK: settings.DESK_REDUCTION,
    },
)
