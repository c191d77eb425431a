"""Semidefinite bounds of prices, checked.

The inequalities are those of `bounds/semidefinite.py`, for rows x_i of any length and any numbers
p_i > 0, |beta_i| + c_i ||x_i|| <= 1, c_i >= 0:

    t_i > 0:  t_i (z)_+ <= t_i z/2 + t_i/4 (p_i z^2 + 1/p_i),            z = x_i u
    t_i < 0:  t_i (z)_+ <= t_i z/2 (1 + beta_i) - |t_i|/2 c_i z^2,       as |z| <= ||x_i||.

Their sum is k + b'u + u'Q u, at most k + h + mu + 2 s on the unit ball if the matrix
S = [[h, -b'/2], [-b/2, mu I - Q]] has no eigenvalue below -s. The saved multipliers say which p_i,
beta_i and c_i are good; they are rounded here so that the inequalities hold, and b and Q are then
exact integers. Eigenvalues are bounded by a triangular L: S + shift - L L', without rounding, has
no eigenvalue below minus its largest sum of absolute values in a row.
"""

from __future__ import annotations

import math

import numpy as np

from cvxnn.rounding import down, up
from cvxnn.verification.exact import Exact, root
from cvxnn.verification.trees import RefusedError

_HALVINGS = 200
_SHIFTS = 40
_SMALLEST = 2.0**-900  # of the largest weight; smaller ones might underflow


@np.errstate(all="ignore")
def check_relaxation(X: np.ndarray, t: np.ndarray, above: float, multipliers: np.ndarray) -> None:
    """Confirm max sum_i t_i (x_i u)_+ <= above over ||u|| <= 1 by multipliers (3, n), or raise
    `RefusedError`."""
    if not (np.isfinite(X).all() and np.isfinite(t).all() and 0 <= above < math.inf):
        raise RefusedError("data, dual point and price have to be finite")
    if multipliers.shape != (3, len(t)):
        raise RefusedError("the multipliers do not fit the data")
    used = (t != 0) & np.any(X != 0, axis=1)
    X, t, multipliers = X[used], t[used], multipliers[:, used]
    if not np.any(t > 0):
        return
    units = [int(np.frexp(np.max(np.abs(part)))[1]) for part in (X, t)]
    given = X, t
    X, t = (np.ldexp(part, -unit) for part, unit in zip(given, units, strict=True))
    back = [np.ldexp(part, unit) for part, unit in zip((X, t), units, strict=True)]
    if not all(map(np.array_equal, given, back)) or np.min(np.abs(t)) < _SMALLEST:
        raise RefusedError("numbers of too different sizes for this check")
    a = np.ldexp(multipliers[0], -units[0])
    found = _bound(X, t, a, multipliers[1], multipliers[2])
    claim = Exact.of(above).times_two_to(-sum(units))
    if not found < math.inf or (Exact.of(found) - claim).ints > 0:
        raise RefusedError(
            f"the multipliers prove a price of {np.ldexp(found, sum(units)):.10g}, above the "
            f"{above:.10g} that is claimed"
        )


def _bound(
    X: np.ndarray, t: np.ndarray, a: np.ndarray, beta: np.ndarray, gamma: np.ndarray
) -> float:
    norms = np.array([_norm_above(row) for row in X])
    plus, size = t > 0, np.abs(t)
    p = np.clip(1 / np.where(a > 0, a, 1.0), 1 / norms, 2.0**60 / norms)
    beta = np.clip(np.nan_to_num(beta), -1.0, 1.0)
    linear = np.where(plus, t / 2, t * (1 + beta) / 2)
    room = np.maximum(
        1 - np.abs(beta) - 2.0**-50, 0.0
    )  # that beta is the one of a rounded `linear`
    c = np.minimum(np.clip(np.nan_to_num(gamma), 0.0, 1.0), room) / norms
    quadratic = np.where(plus, up(size * p / 4, 3), -down(size * c / 2, 5))
    k = up(math.fsum(up(size[plus] / (4 * p[plus]), 3)), 1)
    if not (np.isfinite(quadratic).all() and math.isfinite(k)):
        return math.inf
    rows = Exact.of(X)
    b = (rows * Exact.of(linear[:, None])).sum(axis=0)
    Q = rows.T @ (rows * Exact.of(quadratic[:, None]))
    h, mu = _multipliers_of_ball(b.floats(), Q.floats())
    lowest = _lowest_eigenvalue(b, Q, h, mu)
    return up(k + h + mu + 2 * lowest, 5)


def _norm_above(row: np.ndarray) -> float:
    exact = Exact.of(row)
    return root((exact * exact).sum(), up=True).above()


def _multipliers_of_ball(b: np.ndarray, Q: np.ndarray) -> tuple[float, float]:
    """h = b'(mu - Q)^-1 b / 4 and mu >= 0 of about the least sum: the mu at which the derivative
    1 - sum_i q_i^2 / (4 (mu - e_i)^2) changes its sign."""
    eigenvalues, vectors = np.linalg.eigh((Q + Q.T) / 2)
    squares = (vectors.T @ b) ** 2 / 4
    low = max(float(eigenvalues[-1]), 0.0)
    reach = math.sqrt(float(squares.sum())) + 1e-12 * low + 1e-300
    left, right = 0.0, 2 * reach
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if float(np.sum(squares / (low + middle - eigenvalues) ** 2)) > 1:
            left = middle
        else:
            right = middle
    mu = low + right
    return float(np.sum(squares / (mu - eigenvalues))), mu


def _lowest_eigenvalue(b: Exact, Q: Exact, h: float, mu: float) -> float:
    """An s for which S has no eigenvalue below -s."""
    d = len(b.ints)
    if not (math.isfinite(h) and math.isfinite(mu)):
        return math.inf
    corner, half = Exact.of(h), (-b).times_two_to(-1)
    block = Exact.of(np.diag(np.full(d, mu))) - Q
    base = min(corner.exponent, half.exponent, block.exponent)
    ints = np.empty((d + 1, d + 1), dtype=object)
    ints[0, 0], ints[1:, 1:] = int(corner.at(base)), block.at(base)
    ints[0, 1:] = ints[1:, 0] = half.at(base)
    S = Exact(ints, base)
    rounded = S.floats()
    shift = 2.0**-50 * float(np.trace(np.abs(rounded))) + 1e-300
    for _ in range(_SHIFTS):
        try:
            L = np.linalg.cholesky(rounded + shift * np.eye(d + 1))
        except np.linalg.LinAlgError:
            shift *= 2
            continue
        factor = Exact.of(L)
        left = S + Exact.of(np.diag(np.full(d + 1, shift))) - factor @ factor.T
        worst = Exact(abs(left.ints).sum(axis=1).max(), left.exponent).above()
        return up(shift + worst, 1)
    return math.inf
