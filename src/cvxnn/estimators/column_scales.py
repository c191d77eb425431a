"""Column scales that a first fit learns.

On columns of unit variance the penalty treats all columns alike, although some matter more. A first
network says how much: by the root mean square, over the rows, of its derivative along each column.
Columns are multiplied by that and the program is solved again, so that a column that matters costs
less. Both fits are convex programs; the factors are part of the second one's data, and its network
is mapped back to raw columns like any other.
"""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import to_numpy
from cvxnn.patterns import spread_over
from cvxnn.problems import CGReLU, ConvexProblem, CReLU
from cvxnn.solvers.results import Solution

ROWS = 2000  # at most, that derivatives are averaged over
LEAST = 0.1  # of the largest factor: no column is lost


def factors_of(solution: Solution) -> np.ndarray:
    """What to multiply the columns of the next program by, after this solution: (d,), with a mean
    square of one; ones where no column matters."""
    problem = solution.problem
    assert isinstance(problem, CGReLU | CReLU)
    slopes = _slopes(problem, to_numpy(problem.check_weights(solution.weights)))
    if slopes.shape[2] > 1:  # what all outputs share changes no probability
        slopes = slopes - slopes.mean(axis=2, keepdims=True)
    across = problem.operator.base.across
    count = float(across.sum(len(slopes)))
    size = np.sqrt(across.sum(np.sum(slopes**2, axis=(0, 2))) / count)
    if not size.any():
        return np.ones(len(size))
    size = np.maximum(size, LEAST * size.max())
    return size / np.sqrt(np.mean(size**2))


def _slopes(problem: ConvexProblem, U: np.ndarray) -> np.ndarray:
    """The derivatives of all outputs along all columns, at some of the rows: (rows, d, C)."""
    p, d = len(problem.patterns), U.shape[1] - int(problem.bias)
    if isinstance(problem, CReLU):
        U = U[:p] - U[p:]
    live = np.flatnonzero(np.any(U != 0, axis=(1, 2)))
    rows = spread_over(problem.patterns.n_samples, ROWS, problem.operator.base.across)
    mask = problem.patterns.bits.mask(rows)[:, live].astype(np.float64)
    weights = U[live, :d]
    # with sizes, since nothing follows from those of a network without neurons
    flat = weights.reshape(len(live), d * U.shape[2])
    return (mask @ flat).reshape(len(rows), d, U.shape[2])
