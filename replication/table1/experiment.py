"""Tables 1 and 5: what cone decompositions give for a ReLU network.

The gated problem by R-FISTA; its solution decomposed with the smallest norm (the optimum of the
paper's CD-SOCP) and approximately (CD-A, as published and made feasible); C-ReLU by the augmented
Lagrangian; and both problems by Newton to their certified optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cvxnn
from replication.data import Task
from replication.experiment import Experiment, Profile, Row
from replication.table1 import conic, page, published, settings
from replication.table1.methods import (
    group_norm,
    posed,
    rounded,
    solve_al,
    solve_gated,
    timed,
)

PRINTED_TIGHTNESS = 5.0


def run(piece: Row) -> Row:
    return RUNS[piece["kind"]](piece)


def run_decompositions(piece: Row) -> Row:
    task, problem = posed(piece)
    gated = solve_gated(problem.gated, piece)
    exact_gated = timed(cvxnn.solve, problem.gated, "newton", tol=1e-6, on_failure="ignore")
    exact = timed(cvxnn.solve, problem, "newton", tol=piece["newton_tol"], on_failure="ignore")
    solution = gated[0]
    printed_c = {**piece, "tightness": PRINTED_TIGHTNESS}
    shortest = timed(cvxnn.decompose, solution, "min-norm")
    return {
        "n": len(task.X),
        "n_test": len(task.X_test),
        "d": task.X.shape[1],
        "classes": task.classes,
        "patterns": len(problem.patterns),
        "rfista": outcome(task, *gated),
        "rfista_printed_c": outcome(task, *solve_gated(problem.gated, printed_c)),
        "cd_socp": outcome(task, *shortest),
        "cd_a_feasible": outcome(task, *timed(cvxnn.decompose, solution, "approximate")),
        "cd_a": as_published(task, solution, piece["lam"], divided_by_rows=False),
        "cd_a_released": as_published(task, solution, piece["lam"], divided_by_rows=True),
        "gated_optimum": outcome(task, *exact_gated),
        "relu_optimum": outcome(task, *exact),
        "theorem": theorem(exact_gated[0], exact[0], piece["lam"]),
    }


def run_al(piece: Row) -> Row:
    task, problem = posed(piece)
    return {"al": outcome(task, *timed(solve_al, problem, piece))}


def outcome(task: Task, result: Any, seconds: float) -> Row:
    """Of a solution or a decomposition, which is feasible and certified."""
    certificate = result.certificate
    row = {
        "accuracy": rounded(task.accuracy(result.network().predict(task.X_test))),
        "seconds": rounded(seconds),
        "norm": rounded(group_norm(result.weights)),
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "gap": rounded(certificate.relative_gap),
        "neurons": result.n_active,
    }
    if isinstance(result, cvxnn.Solution):
        row |= {"iterations": result.n_iter, "status": str(result.status)}
    return row


def as_published(task: Task, gated: cvxnn.Solution, lam: float, *, divided_by_rows: bool) -> Row:
    """CD-A as it comes out. Its weights are outside of their cones, so that their convex objective
    bounds nothing; that of the network does."""
    found, seconds = timed(published.approximate, gated, task.X, divided_by_rows=divided_by_rows)
    network = cvxnn.ReLUNetwork.from_convex(found.V, found.W)
    return {
        "accuracy": rounded(task.accuracy(network.predict(task.X_test))),
        "seconds": rounded(seconds),
        "norm": rounded(group_norm((found.V, found.W))),
        "network_objective": rounded(network.objective(task.X, task.targets, lam)),
        "iterations": found.n_iter,
        "residual": rounded(found.residual),
        "violation": rounded(found.violation),
    }


def theorem(gated: cvxnn.Solution, relu: cvxnn.Solution, lam: float) -> Row:
    """What d* <= p* <= d* + 2 lam kappa sum ||u|| says of these patterns: certified bounds of both
    optimal values, and the sum of kappa_i ||u_i|| over blocks, with the largest kappa."""
    parts = cvxnn.decompose(gated, "min-norm")
    assert parts.block_bounds is not None  # min-norm has them
    kappa = (parts.block_bounds - 1) / 2
    sizes = np.linalg.norm(published.Blocks.of(gated).u, axis=1)
    return {
        "gated": [gated.certificate.lower_bound, gated.certificate.objective],
        "relu": [relu.certificate.lower_bound, relu.certificate.objective],
        "norm": rounded(float(sizes.sum())),
        "kappa": rounded(float(kappa.max(initial=0.0))),
        "weighted_norm": rounded(float(kappa @ sizes)),
        "decomposed": parts.certificate.objective,
    }


RUNS = {
    "decompositions": run_decompositions,
    "al": run_al,
    "al-released": run_al,
    "joint": conic.run,
    "separate": conic.run,
}

EXPERIMENT = Experiment(
    name="table1",
    title="Tables 1 and 5: cone decompositions",
    floats=("Table 1", "Table 5"),
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
