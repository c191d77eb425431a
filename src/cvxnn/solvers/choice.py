"""Which solver "auto" takes for a gated problem."""

from __future__ import annotations

from cvxnn.least_squares import KernelFactor
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Solver
from cvxnn.solvers.direct import LSMR, Direct, is_least_squares
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA
from cvxnn.solvers.working_sets.method import WorkingSets


def choose_gated(problem: Problem) -> Solver:
    """The solver for a gated problem, with its default settings."""
    if is_least_squares(problem):
        return Direct() if KernelFactor.fits(problem.operator.n) else LSMR()
    if getattr(problem.loss, "coupled", False) and WorkingSets().handles(problem):
        return WorkingSets()
    # Newton works on NumPy arrays; others stay where they are, on an accelerator perhaps
    if Newton().handles(problem) and problem.operator.in_numpy:
        return Newton()
    return RFISTA()
