"""The penalty strength from which on the zero model is optimal."""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import Array, array_namespace, double
from cvxnn.problems.relu import CReLU
from cvxnn.problems.sizes import check_weights_fit
from cvxnn.protocols import Problem
from cvxnn.validation import check_problem

FIRST, MANY = 16, 256  # blocks that are projected at a time: at first, and then


def lambda_max(problem: Problem) -> float:
    """The smallest lam for which the zero model is optimal: the dual norm of M' grad f(0), for
    C-ReLU that of its projections onto the cones, which is smaller."""
    check_problem(problem)
    if not has_lambda_max(problem):
        raise ValueError(
            f"penalty {problem.penalty_name!r} has no lambda_max: no strength gives the zero model"
        )
    xp = array_namespace(problem.loss.Y)
    gradient = problem.loss.gradient(xp.zeros_like(double(problem.loss.Y)))
    check_weights_fit(problem)
    correlation = problem.operator_double.adjoint(gradient)
    if isinstance(problem, CReLU):
        return _largest_projection(problem, correlation)
    largest = float(xp.max(problem.chosen_penalty.dual_norm(correlation)))  # type: ignore[attr-defined]
    return float(problem.operator.base.across.agree(largest))


def has_lambda_max(problem: Problem) -> bool:
    """Whether a large enough lam gives the zero model: a penalty that is a norm has a dual one."""
    return hasattr(problem.chosen_penalty, "dual_norm")


def _largest_projection(problem: CReLU, G: Array) -> float:
    """max ||Pi_K(-G)|| over the blocks, largest first: a block is given up as soon as it is known
    to stay below the largest one found."""
    rows, pattern = -problem.flat(G), problem.pattern_of_block
    norms = np.linalg.norm(rows, axis=1)
    order, largest = np.argsort(-norms), 0.0
    # many at a time are faster, few at a time leave out more of the later ones
    for part in np.split(order, [FIRST, *range(FIRST + MANY, len(order), MANY)]):
        part = part[norms[part] > largest]
        if len(part):
            projected, _ = problem.cones.project(rows[part], pattern[part], enough=largest)
            largest = max(largest, float(np.linalg.norm(projected, axis=1).max()))
    return largest
