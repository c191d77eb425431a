"""Which solver "auto" takes for a gated problem, and for losses that couple outputs."""

from __future__ import annotations

from cvxnn.least_squares import KernelFactor
from cvxnn.problems import lambda_max
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Solver
from cvxnn.solvers.direct import LSMR, Direct, is_least_squares
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA
from cvxnn.solvers.stochastic import Stochastic
from cvxnn.solvers.working_sets.method import WorkingSets

# Predictions (rows times classes) from which a stochastic start is worth its time, and the
# strength, relative to lambda_max, up to which. On MNIST (6e5) it is ahead for the first third of a
# run to a gap of 1e-2, and loses nothing later. With fewer rows an epoch has too few steps; near
# lambda_max few pairs are active, and the working sets alone are quicker.
MANY, WEAK = 500_000, 1e-2
# Columns times outputs up to which Newton's method is ahead of working sets for ReLU networks where
# it goes on from a neighbour on a path: it needs a few steps from there, while they begin anew. On
# nine data sets with 3 to 10 classes it was up to 5 times as quick at small strengths with 126 and
# fewer, as quick with 366, half as quick with 650. Gated networks took as long with it or longer on
# five of seven.
NARROW = 200


def suits_working_sets(problem: Problem) -> bool:
    """Whether the loss couples the outputs, and the method for that handles the problem."""
    return bool(getattr(problem.loss, "coupled", False)) and WorkingSets().handles(problem)


def suits_newton_on_a_path(problem: Problem) -> bool:
    """Whether Newton's method goes on sooner than working sets from a neighbouring solution."""
    _, d, outputs = problem.weight_shape
    return d * outputs <= NARROW and Newton().handles(problem)


def choose_gated(problem: Problem) -> Solver:
    """The solver for a gated problem, with its default settings."""
    if problem.operator.base.across.size > 1:
        return Newton() if Newton().handles(problem) else RFISTA()
    if not problem.operator.in_memory:
        return LSMR() if is_least_squares(problem) else RFISTA()
    if is_least_squares(problem):
        return Direct() if KernelFactor.fits(problem.operator.n) else LSMR()
    if suits_working_sets(problem):
        return Stochastic() if _is_large(problem) else WorkingSets()
    # Newton works on NumPy arrays; others stay where they are, on an accelerator perhaps
    if Newton().handles(problem) and problem.operator.in_numpy:
        return Newton()
    return RFISTA()


def _is_large(problem: Problem) -> bool:
    n, C = problem.loss.Y.shape
    return (
        n * C >= MANY
        and Stochastic().handles(problem)
        and problem.lam <= WEAK * lambda_max(problem)
    )
