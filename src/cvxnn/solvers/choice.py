"""Which solver "auto" takes for a gated problem."""

from __future__ import annotations

from typing import Any

from cvxnn.arrays import in_numpy
from cvxnn.least_squares import KernelFactor
from cvxnn.problems import ConvexProblem
from cvxnn.solvers.base import Solver
from cvxnn.solvers.direct import LSMR, Direct
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA


def choose_gated(problem: ConvexProblem) -> Solver:
    """The solver for a gated problem, with its default settings."""
    penalty = type(problem.penalty).__name__
    if penalty in Direct.penalties and handles_loss(Direct, problem):
        return Direct() if KernelFactor.fits(problem.operator.n) else LSMR()
    # Newton works on NumPy arrays; others stay where they are, on an accelerator perhaps
    if penalty in Newton.penalties and in_numpy(problem.operator.X):
        return Newton()
    return RFISTA()


def handles_loss(solver: Any, problem: ConvexProblem) -> bool:
    """Least squares solvers know one loss, unweighted; the others say nothing and take all."""
    known = getattr(solver, "losses", None)
    return known is None or (
        type(problem.loss).__name__ in known and not problem.loss.has_sample_weights
    )
