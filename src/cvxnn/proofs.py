"""Both ends of a certificate in floating-point numbers, with a bound on every rounding error.

The upper end is f(Z) + g(U) for predictions Z = M U that are known up to

    |fl(M U) - M U|_jk  <=  slack(p + d) ||x_j|| sum_i ||U_i^k||,

and the lower one -f*(tau T) for an exact dual point T, scaled by a tau for which the constraint
holds for every matrix within

    |fl(M'T) - M'T|     <=  slack(n) |X|'|T| + |X|' rad(T)

of the computed one: one vector for all patterns, since D_i <= I. It holds for any order of sums,
with and without fused multiplications, and for the products by table look-up. Where it is too
large, because terms cancel, the leading bits of X and T are multiplied without error, and only the
rest has one. Cones add X~'gamma to M'T, with an error of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from scipy.sparse import csr_array

from cvxnn.arrays import (
    Array,
    array_namespace,
    double,
    largest_entries,
    to_numpy,
)
from cvxnn.operators.base import PatternOperator
from cvxnn.rounding import (
    TINY,
    UNIT,
    Ball,
    depth,
    gradual_underflow,
    leading_bits,
    leading_grid,
    slack,
    tree_sum,
    up,
)
from cvxnn.stored import StoredRows
from cvxnn.validation import offers

if TYPE_CHECKING:
    from cvxnn.cones.projection import ActiveRows
    from cvxnn.problems import CReLU
    from cvxnn.protocols import Problem

MARGIN = 2.0**-46  # relative; room for the rounding of whoever checks the bound
PRECISE = 1e-12  # error of the dual constraint, relative to its limit, that needs no splitting
RADIUS = 10.0  # at lam = 0 a bound covers weights up to this many times the size of those given


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The multipliers gamma >= 0 of cone constraints behind a lower bound, three arrays (m,).

    block : flat blocks, as `CReLU.flat` orders them: sign, then pattern, then class.
    row : of X, as the problem holds it.
    value : gamma; the dual constraint bounds -+X'D_i T^k + sum gamma (2 D_i - I)_row x_row.
    """

    block: np.ndarray
    row: np.ndarray
    value: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.block, self.row, self.value))


class LowerBound(NamedTuple):
    """A proven lower bound, and what proves it.

    value : the bound.
    dual : (n, C), the doubles that stand for the exact dual point.
    multipliers : of the cones, or None.
    """

    value: float
    dual: np.ndarray
    multipliers: Multipliers | None


def has_cones(problem: Problem) -> TypeGuard[CReLU]:
    return problem.kind == "C-ReLU"


def obstacles(problem: Problem) -> tuple[str, ...]:
    """What stands in the way of a proof, in words: a loss or a penalty that does not bound its
    rounding errors, or arithmetic that is not IEEE's."""
    found = []
    for part, name in ((problem.loss, problem.loss_name), (problem.penalty, problem.penalty_name)):
        if not offers(part, "declares_rounding"):
            found.append(f"{name!r} does not declare its rounding errors")
    if problem.operator.base.across.max(float(not gradual_underflow())):
        found.append("this thread flushes small numbers to zero")
    return tuple(found)


# -- the upper end


def objectives_above(
    problem: Problem, U: np.ndarray, Z: Array, bias: np.ndarray | None
) -> tuple[float, float | None]:
    """Above f(M U + 1 bias') + g(U), for Z = fl(M U); and with cones what `network_objective_above`
    finds, of which nearly all is the same."""
    error, penalty = _prediction_error(problem, U), problem.penalty.value_above(U)

    def above(predictions: np.ndarray) -> float:
        return _with_margin(problem.loss.value_above(Ball(predictions, error), bias) + penalty)

    network = above(problem.network_predictions(U)) if has_cones(problem) else None
    return above(to_numpy(Z)), network


def zero_objective_above(problem: Problem) -> float:
    """The objective of the zero weights, as `objectives_above` computes it."""
    Z = array_namespace(problem.loss.Y).zeros_like(double(problem.loss.Y))
    bias = problem.loss.intercept(Z) if problem.output_bias else None
    return _with_margin(problem.loss.value_above(Ball(to_numpy(Z)), bias))


def network_objective_above(problem: CReLU, U: np.ndarray, bias: np.ndarray | None) -> float:
    """Above f(sum +-(X v)_+ + 1 bias') + g(U), which knows no patterns. A ReLU magnifies no error,
    so that of the predictions is the same."""
    predictions = Ball(problem.network_predictions(U), _prediction_error(problem, U))
    return _with_margin(
        problem.loss.value_above(predictions, bias) + problem.penalty.value_above(U)
    )


def _with_margin(value: float) -> float:
    return math.inf if math.isnan(value) else value * (1 + 2 * MARGIN)


def _prediction_error(problem: Problem, U: np.ndarray) -> np.ndarray:
    """(n, C); the sums of V - W, over the blocks, and over the columns, in any order."""
    norms = block_norms_above(U)
    n_active = int(np.count_nonzero(np.any(norms > 0, axis=1)))
    if n_active == 0:
        return np.zeros((problem.operator.n, U.shape[2]))
    squares = problem.operator_double.base.row_squares()
    rows = up(np.sqrt(squares), U.shape[1] + 3) + 2.0**-500
    total = up(tree_sum(norms, 0), depth(len(norms)))
    steps = n_active + U.shape[1] + 4
    return up(slack(steps) * rows[:, None] * total, 3) + steps * TINY


def weights_radius(problem: Problem, U: np.ndarray) -> float:
    """RADIUS times the sum of the block norms of U, each column in its own units."""
    norms = block_norms_above(U * column_units(problem)[:, None])
    return RADIUS * float(norms.sum()) or 1.0


def column_units(problem: Problem) -> np.ndarray:
    """A power of 2 for each column of X, above its largest entry by a factor of 2 at most: (d,)."""
    X = to_numpy(problem.operator_double.rows(), keep_sparse=True)
    largest = largest_entries(X)
    return np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 0.5))[1])


def block_norms_above(U: np.ndarray) -> np.ndarray:
    """||U_i^k||, rounded up: (blocks, C); zero for zero blocks."""
    norms = up(np.sqrt(np.sum(U * U, axis=1)), U.shape[1] + 3) + 2.0**-500
    return np.where(np.any(U != 0, axis=1), norms, 0.0)


# -- the lower end


def lower_bound(
    problem: Problem,
    Theta: np.ndarray,
    *,
    start: ActiveRows | None = None,
    radius: float | None = None,
    precise: float = PRECISE,
) -> LowerBound:
    """What a dual candidate (n, C) proves, after it was made to satisfy the equations of the dual
    exactly. `start` is where projections onto cones may start; `radius` is for lam = 0."""
    try:
        dual, point = problem.loss.dual_point(Theta)
    except OverflowError:  # a sum beyond the largest double
        return LowerBound(0.0, np.zeros_like(Theta), None)
    across = problem.operator.base.across
    G, error = _correlation(problem, point, precise)
    multipliers = None
    if has_cones(problem) and problem.lam > 0:
        G, error, multipliers = _with_multipliers(problem, dual, G, error, start)
    limit = problem.penalty.dual_limit_below(G, error)
    quadratic = problem.penalty.conjugate_above(G, error)
    linear = np.zeros_like(limit)
    if radius is not None:
        each = (np.abs(G) + error) / column_units(problem)[:, None] + TINY
        linear = up(np.max(block_norms_above(each), axis=0) * radius, 3)
    # one scaling for all rows, whatever machine they are on
    limit, linear, quadratic = across.agree(np.stack([limit, linear, quadratic]))
    value = problem.loss.dual_below(point, limit, linear, quadratic)
    value = float(across.agree(value))
    value = max(value * (1 - 2 * MARGIN), 0.0) if math.isfinite(value) else 0.0
    return LowerBound(value, dual, multipliers)


def _correlation(problem: Problem, point: Ball, precise: float) -> tuple[np.ndarray, np.ndarray]:
    """M'T (blocks, d, C), and its error (1, d, C)."""
    operator = problem.operator_double
    base, n = operator.base, _terms(operator.base)  # signs double the blocks, not the work
    G = to_numpy(base.adjoint(base.like(point.mid)))
    outside: np.ndarray | float = (
        _magnitudes(base, np.asarray(point.rad), n)
        if base.across.max(float(np.any(point.rad)))
        else 0.0
    )
    error = up(_magnitudes(base, np.abs(point.mid), n) * slack(n) + outside, 2) + n * TINY
    if not _fine(problem, G, error, precise):
        exact = _split(base, point.mid)
        if exact is not None:
            G, rest = exact
            error = up(rest + outside, 2) + 2 * n * TINY
    if operator is not base:
        G = np.concatenate([G, -G], axis=0)
    return G, error[None]


def _terms(operator: PatternOperator) -> int:
    """Of the sums in an adjoint product, and the additions that join those of several ranks."""
    return operator.n_all + operator.across.size - 1


def _magnitudes(operator: PatternOperator, R: np.ndarray, n: int) -> np.ndarray:
    """|X|'R, rounded up: (d, C)."""
    return up(to_numpy(operator.magnitudes(operator.like(R))), n)


def _fine(problem: Problem, G: np.ndarray, error: np.ndarray, precise: float) -> bool:
    """Whether the error of the products costs no more than `precise` of the scaling, or of the
    conjugate of a penalty that is no norm."""
    norm = hasattr(problem.penalty, "dual_norm")
    size = problem.lam if norm else float(np.max(np.abs(G), initial=0.0))
    fine = np.max(error, initial=0.0) <= precise * size
    return bool(problem.operator.base.across.agree(float(fine)))


def _split(operator: PatternOperator, Theta: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """M'Theta and its error (d, C), with X = X1 + X2 and Theta = T1 + T2: sums of n products of X1
    and T1 are whole numbers below 2^53 in units of their grids, hence exact in any order."""
    X, n, across = operator.rows(), _terms(operator), operator.across
    X1: Any
    X2: Any
    bits = (53 - math.ceil(math.log2(n + 1))) // 2
    if not isinstance(X, np.ndarray | StoredRows):
        return None
    grid = leading_grid(across.max(largest_entries(X)), bits)
    T1 = leading_bits(Theta, bits, 0, across)
    if isinstance(X, StoredRows):
        X1, X2 = X.leading(grid), X.rest(grid)
    else:
        X1 = np.rint(X / grid) * grid
        X2 = X - X1
    largest = (across.max(largest_entries(X1)), across.max(largest_entries(T1)))
    smallest = (float(np.min(part, where=part > 0, initial=1.0)) for part in largest)
    if math.prod(smallest) < 2.0**-900:  # products could underflow
        return None
    T2 = Theta - T1
    leading, rest = operator.with_data(X1), operator.with_data(X2)
    G = leading.adjoint(T1)
    small = leading.adjoint(T2) + rest.adjoint(Theta)
    error = slack(n + 2) * up(
        _magnitudes(leading, np.abs(T2), n) + _magnitudes(rest, np.abs(Theta), n), 1
    )
    G = G + small
    return G, up(error + 2 * UNIT * np.max(np.abs(G), axis=0), 2)


def _with_multipliers(
    problem: CReLU, Theta: np.ndarray, G: np.ndarray, error: np.ndarray, start: ActiveRows | None
) -> tuple[np.ndarray, np.ndarray, Multipliers]:
    """-M'T + X~'gamma block by block, its error, and the multipliers that projections onto the
    cones end with. Any gamma >= 0 gives a valid bound."""
    rows, C = -problem.flat(G), G.shape[2]
    errors = np.tile(error[0].T, (len(rows) // C, 1))
    large, active = problem.project_correlation(rows, Theta, start)
    multipliers = problem.multipliers_of(large, active)
    where, row, gamma = multipliers
    blocks, first, counts = np.unique(where, return_index=True, return_counts=True)
    if len(blocks):
        signs = problem.cones.signs[problem.pattern_of_block[where], row]
        shape, edges = (len(blocks), problem.operator.n), np.append(first, len(where))
        # they come block by block; the rows are copied because SciPy sorts them in place
        signed = csr_array((signs * gamma, row.copy(), edges), shape=shape)
        X = problem.operator_double.rows()
        steps = int(counts.max()) + 3
        size = up(np.abs(rows[blocks]) + abs(signed) @ abs(X), steps)
        rows[blocks] = rows[blocks] + signed @ X
        errors[blocks] = up(errors[blocks] + slack(steps) * size, 2) + steps * TINY
    return problem.unflat(rows), problem.unflat(errors), multipliers
