"""The price of rows in a plane, checked in whole numbers.

A direction that turns by half a circle meets one kink u_i, orthogonal to x_i, of each row. Between
two kinks the rows that are active are the same, so that sum_i t_i (x_i v)_+ = c v there, and on the
opposite side of the circle the others are active: (S - c) (-v) for the sum S of all t_i x_i. With
kinks in order, c is a sum of t_i x_i up to a place. The claim |c v| <= A ||v|| between two kinks
holds if ||c|| <= A, or if neither c nor -c is between them and it holds at both.

Doubles are whole numbers in units of a power of 2. Order, sums and comparisons are exact;
floating-point numbers only tell where a claim holds with so much room that it need not be
compared exactly.
"""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import Any

import numpy as np

from cvxnn.verification.exact import Exact
from cvxnn.verification.trees import RefusedError

_ROOM = 1e-9  # relative, where floating-point numbers decide
_PASSES = 50  # over neighbours in a wrong order, before all are sorted exactly
_BITS = 900  # of whole numbers that doubles hold


def check_plane(X: np.ndarray, t: np.ndarray, above: float) -> int:
    """Confirm |sum_i t_i (x_i u)_+| <= above ||u|| for rows X (n, 2), or raise `RefusedError`:
    the number of cells."""
    if not (np.isfinite(X).all() and np.isfinite(t).all()):
        raise RefusedError("data and dual point have to be finite")
    if not 0 <= above < math.inf:
        raise RefusedError(f"nothing is proven by a price of {above}")
    used = np.any(X != 0, axis=1) & (t != 0)
    if not used.any():
        return 0
    rows = Exact.of(X[used])
    limit = Exact.of(above)
    order, x, y = _in_order(X[used], rows)
    weights = Exact.of(t[used])
    signs = np.where(_flipped(x, y), -1, 1)
    kinks = (-y * signs, x * signs)
    terms = [weights.ints[order] * part for part in (x, y)]
    sums = [part.sum() for part in terms]
    exponent = rows.exponent + weights.exponent
    # rows whose kink keeps its sign are active before it, the others after it
    before = [part[signs > 0].sum() for part in terms]
    after = [np.cumsum(part * -signs) for part in terms]
    inside = tuple(start + part for start, part in zip(before, after, strict=True))
    opposite = tuple(total - part for total, part in zip(sums, inside, strict=True))
    base = min(exponent, limit.exponent)
    claim, shift = int(limit.at(base)), exponent - base
    for c in (inside, opposite):
        _check_cells(tuple(part << shift for part in c), kinks, claim)
    return 2 * len(signs)


def _flipped(x: Any, y: Any) -> np.ndarray:
    """Whether (-y, x) is in the lower half-plane, so that the kink is (y, -x)."""
    return np.asarray((x < 0) | ((x == 0) & (y > 0)), dtype=bool)


def _in_order(X: np.ndarray, rows: Exact) -> tuple[np.ndarray, Any, Any]:
    """The rows by the angle of their kinks, which is between 0 and pi: places, and the columns."""
    scaled = np.ldexp(X, -np.frexp(np.abs(X).max(axis=1))[1][:, None])
    flip = np.where(_flipped(scaled[:, 0], scaled[:, 1]), -1.0, 1.0)
    order = np.argsort(np.arctan2(scaled[:, 0] * flip, -scaled[:, 1] * flip), kind="stable")
    x, y = rows.ints[order, 0], rows.ints[order, 1]
    sign = np.where(_flipped(x, y), -1, 1)
    x, y = x * sign, y * sign
    for _ in range(_PASSES):
        # kinks (-y, x): the next one is clockwise of this one
        wrong = np.flatnonzero(np.asarray(x[:-1] * y[1:] < y[:-1] * x[1:], dtype=bool))
        if not len(wrong):
            return order, rows.ints[order, 0], rows.ints[order, 1]
        wrong = wrong[np.diff(wrong, prepend=-2) > 1]
        for part in (order, x, y):
            part[wrong], part[wrong + 1] = part[wrong + 1], part[wrong]

    def compared(i: int, j: int) -> int:
        turn = x[i] * y[j] - y[i] * x[j]
        return -1 if turn > 0 else 1 if turn < 0 else 0

    places = sorted(range(len(x)), key=cmp_to_key(compared))
    order = order[np.array(places)]
    return order, rows.ints[order, 0], rows.ints[order, 1]


def _check_cells(c: tuple[Any, Any], kinks: tuple[Any, Any], claim: int) -> None:
    """|c v| <= claim ||v|| from each kink to the next one, of which the last is minus the first."""
    doubtful = np.flatnonzero(~_surely(c, kinks, claim))
    n = len(kinks[0])
    for k in doubtful.tolist():
        if k + 1 < n:
            following = kinks[0][k + 1], kinks[1][k + 1]
        else:
            following = -kinks[0][0], -kinks[1][0]
        _check_cell((c[0][k], c[1][k]), (kinks[0][k], kinks[1][k]), following, claim)


def _check_cell(c: tuple[int, int], p: tuple[int, int], q: tuple[int, int], claim: int) -> None:
    if c[0] ** 2 + c[1] ** 2 <= claim**2:
        return
    left, right = p[0] * c[1] - p[1] * c[0], c[0] * q[1] - c[1] * q[0]
    if (left >= 0 and right >= 0) or (left <= 0 and right <= 0):
        raise RefusedError("a direction between two kinks has a higher price")
    for end in (p, q):
        if (c[0] * end[0] + c[1] * end[1]) ** 2 > claim**2 * (end[0] ** 2 + end[1] ** 2):
            raise RefusedError("the direction of a kink has a higher price")


@np.errstate(all="ignore")
def _surely(c: tuple[Any, Any], kinks: tuple[Any, Any], claim: int) -> np.ndarray:
    """The cells whose claim holds with room to spare, by floating-point numbers; rounding is far
    below that room, as all of them are whole numbers below 2^900, rounded once."""
    n = len(kinks[0])
    if max(_bits(part) for part in (*c, *kinks, claim)) > _BITS // 2:
        return np.zeros(n, dtype=bool)
    x, y, p, q = (np.asarray(part, dtype=np.float64) for part in (*c, *kinks))
    limit = float(claim) * (1 - _ROOM)
    short = np.hypot(x, y) <= limit
    lengths = np.hypot(p, q)
    p, q = p / lengths, q / lengths
    size = np.hypot(x, y)
    low = np.abs(x * p + y * q) + _ROOM * 1e-3 * size <= limit
    next_p, next_q = np.append(p[1:], -p[0]), np.append(q[1:], -q[0])
    low &= np.abs(x * next_p + y * next_q) + _ROOM * 1e-3 * size <= limit
    left, right = p * y - q * x, x * next_q - y * next_p
    away = ((left > 1e-12 * size) & (right < -1e-12 * size)) | (
        (left < -1e-12 * size) & (right > 1e-12 * size)
    )
    return short | (low & away)


def _bits(part: Any) -> int:
    return int(np.max(np.abs(np.asarray(part, dtype=object)), initial=0)).bit_length()
