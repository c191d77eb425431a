"""One sampling of patterns, at all strengths: what the published stop leaves, and the optimum.

    gated   C-GReLU by R-FISTA with the published stop, from zero at every strength; then exactly
    relu    C-ReLU exactly
    al      C-ReLU by the augmented Lagrangian with the published stop

"Exactly" is a path of Newton's method to a certified relative gap of `tol`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import cvxnn
from cvxnn.solvers.results import Solution
from replication.data import Task
from replication.experiment import Experiment, Profile, Row
from replication.figure5 import figures, page, settings


def run(piece: Row) -> Row:
    task = Task.of(piece["data"])
    patterns = task.patterns(piece["patterns"], piece["seed"])
    program = cvxnn.CReLU if piece["kind"] != "gated" else cvxnn.CGReLU
    problem = program(task.X, task.targets, patterns, lam=1.0)
    lams = settings.strengths(piece)
    row: Row = {"patterns": len(patterns), "test_rows": len(task.X_test)}
    if piece["kind"] != "relu":
        solver, limits = "al", {}
        if piece["kind"] == "gated":
            solver, limits = "rfista", {"max_iter": piece["max_iter"]}
        published = (
            cvxnn.solve(problem.with_lam(lam), solver, stop="paper", on_failure="ignore", **limits)
            for lam in lams
        )
        row["published"] = _curve(task, published)
    if piece["kind"] != "al":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cvxnn.ConvergenceWarning)  # the gap is in the row
            path = cvxnn.path(problem, lams=lams, tol=piece["tol"], solver="newton")
        row["exact"] = _curve(task, reversed(path.solutions))
    return row


def _curve(task: Task, solutions: Iterable[Solution]) -> Row:
    """What is kept of solutions: a list for each number, in the order of the strengths."""
    columns: dict[str, list[float]] = {}
    for solution in solutions:
        found = {
            "accuracy": task.accuracy(solution.network().predict(task.X_test)),
            "neurons": solution.n_active,
            "objective": solution.certificate.objective,
            "gap": solution.certificate.relative_gap,
            "iterations": solution.n_iter,
        }
        for name, value in found.items():
            columns.setdefault(name, []).append(
                value if isinstance(value, int) else float(f"{value:.6g}")
            )
    return columns


EXPERIMENT = Experiment(
    name="figure5",
    title="Accuracy over the penalty and the number of patterns",
    floats=("Figure 5", "Figure 18", "Figure 19"),
    pieces=settings.pieces,
    run=run,
    present=page.present,
    draw=figures.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: "One set, ten patterns, two samplings, every seventh strength.",
        Profile.DESK: (
            "Gated networks are run in full. ReLU networks are trained exactly, by Newton's method "
            f"at every other of the {len(settings.LAMS)} strengths (for {settings.SLOW} from "
            f"{settings.LEAST:g} on); the augmented Lagrangian runs on {len(settings.AL_SETS)} of "
            f"the {len(settings.SETS)} sets, with {settings.AL_PATTERNS} patterns and "
            f"{settings.AL_SAMPLINGS} samplings."
        ),
    },
)
