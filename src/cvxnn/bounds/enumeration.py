"""Tiny problems: every pattern that there is, found in whole numbers.

The rows of X cut R^d into cells, the interiors of which have one pattern each. Rows are inserted
one by one. The plane of a new row cuts a cell of the earlier ones exactly if there is a cell with
the same signs among the cells into which the earlier ones cut that plane: the same problem with one
dimension less. Doubles are whole numbers in units of a power of 2, so every sign is exact, and
rows that are equal, parallel or dependent are seen as what they are. For r = rank(X) there are at
most 2 sum_{k<r} C(n-1, k) cells, and as many for rows in general position.

The price is the largest ||Pi_K(+-c)|| of the cones K of all patterns, c = X'D t, which
min_{gamma >= 0} ||+-c + X~'gamma|| bounds from above with any gamma (see proofs.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from cvxnn.arrays import to_numpy
from cvxnn.bounds.base import EXACT, Goal, Neurons, PriceBound, TimedMethod, row_norms_above
from cvxnn.patterns import Patterns
from cvxnn.rounding import TINY, slack, up
from cvxnn.validation import check_features, check_flag, check_integer

MAX_CELLS = 20_000
ROOM = 2.0**-36  # of a price, for a check that finds its own proof

Whole = tuple[int, ...]  # a vector of whole numbers
Cell = tuple[Whole, Whole]  # signs of the rows, and a point with these signs


def number_of_cells(n: int, rank: int) -> int:
    """The most cells that n rows of this rank can make."""
    return 2 * sum(math.comb(n - 1, k) for k in range(min(rank, n))) if n > 0 else 1


def enumerate_patterns(X: ArrayLike, *, bias: bool = False, max_cells: int = MAX_CELLS) -> Patterns:
    """All patterns of the rows X (n, d) but the one without active rows: the program over them is
    the training problem of the network itself.

    With `bias`, they are those of X with a column of ones. Rows of zeros are active in all of them.
    Where every cell is wide enough for a double inside, patterns have gates. Data that could have
    more than `max_cells` of them are refused: 2 sum_{k<r} C(n-1, k) for n rows of rank r.
    """
    data = to_numpy(check_features(X)).astype(np.float64)
    check_integer(max_cells, "max_cells", minimum=1)
    ones = np.ones((len(data), 1))
    signs, points = cells_of(
        np.hstack([data, ones]) if check_flag(bias, "bias") else data, max_cells
    )
    mask = signs >= 0
    some = mask.any(axis=0)
    mask, points = mask[:, some], points[:, some]
    gates, gate_bias = (points[:-1], points[-1]) if bias else (points, None)
    patterns = Patterns.from_gates(data, gates, gate_bias)
    if len(patterns) == mask.shape[1] and np.array_equal(patterns.mask, mask):
        return patterns
    return Patterns.from_mask(mask)


def cells_of(X: np.ndarray, max_cells: int = MAX_CELLS) -> tuple[np.ndarray, np.ndarray]:
    """The signs of the rows of X (n, d) in each cell (n, p), and a point of each as nearly as
    doubles can have it (d, p); a ValueError where there could be too many."""
    if not np.isfinite(X).all():
        raise ValueError("X has entries that are not finite")
    rows = [_whole(row) for row in X.tolist()]
    lines, line_of, side = _lines(rows)
    rank = min(_rank(lines), X.shape[1])
    count = number_of_cells(len(lines), rank)
    if count > max_cells:
        raise ValueError(
            f"{len(lines)} different rows of rank {rank} can have {count} patterns; enumeration "
            f"takes up to {max_cells}: take fewer rows or columns, or another method"
        )
    cells = _cells(lines, X.shape[1])
    signs = np.array([[cell[0][j] if j >= 0 else 0 for j in line_of] for cell in cells], dtype=int)
    signs = signs.reshape(len(cells), len(rows)) * np.array(side, dtype=int)
    points = np.array([_unit(point) for _, point in cells]).reshape(len(cells), -1)
    return signs.T, points.T


@dataclass(frozen=True)
class Enumeration(TimedMethod):
    """Every pattern of tiny data (`PriceMethod`)."""

    max_cells: int = MAX_CELLS

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        return number_of_cells(len(X), X.shape[1]) <= self.max_cells

    def _bound(self, X: np.ndarray, Theta: np.ndarray, goal: Goal) -> PriceBound:
        """The price itself, up to rounding; strength, tolerance and time do not matter."""
        signs, _ = cells_of(X, self.max_cells)
        columns = [_scaled_price(X, signs, theta) for theta in Theta.T]
        above = np.array([value for value, _, _ in columns]) * (1 + ROOM)
        best = np.argsort(-above, kind="stable")
        neurons = Neurons(
            np.array([columns[k][1] for k in best]), best, np.array([columns[k][2] for k in best])
        )
        return PriceBound(above, EXACT, neurons)


@np.errstate(all="ignore")
def _scaled_price(
    X: np.ndarray, signs: np.ndarray, t: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """`_price` in units of the largest entries."""
    if not np.isfinite(t).all():
        return math.inf, np.eye(1, X.shape[1])[0], 0.0
    k, j = (int(np.frexp(np.max(np.abs(x), initial=0.0))[1]) for x in (X, t))
    above, direction, attained = _price(np.ldexp(X, -k), signs, np.ldexp(t, -j))
    above = float(np.ldexp(above, k + j)) + (TINY if above > 0 else 0.0)
    return above, direction, float(np.ldexp(attained, k + j))


def _price(X: np.ndarray, signs: np.ndarray, t: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Above the price of t (n,), a direction that attains nearly as much, and its price."""
    (n, d), active = X.shape, signs > 0
    C = X.T @ (t[:, None] * active)
    error = up(np.abs(X).T @ np.abs(t), n + 1) * slack(n + 1) + 2 * n * TINY
    lost = float(row_norms_above(error[None])[0])
    above, direction, attained = 0.0, np.eye(1, d)[0], 0.0
    norms = row_norms_above(C.T)
    for j in np.argsort(-norms, kind="stable"):
        if norms[j] <= above:
            break
        for sign in (1.0, -1.0):
            left = _projection(X * signs[:, [j]], sign * C[:, j])
            size = min(float(row_norms_above(left[0][None])[0]) + left[1], float(norms[j]))
            u = left[0] / max(float(np.linalg.norm(left[0])), 1e-300)
            value = float(t @ np.maximum(X @ u, 0.0))
            if abs(value) > abs(attained):
                direction, attained = u, value
            above = max(above, up(size, 1))
    return up(above + lost, 2), direction, attained


def _projection(A: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, float]:
    """c + A'gamma for the gamma >= 0 that makes it shortest, or another, and its error."""
    size = float(np.max(np.abs(c), initial=0.0))
    norms = np.maximum(np.max(np.abs(A), axis=1), 1e-300)
    if size == 0 or not np.isfinite(A / norms[:, None]).all():
        return c, 0.0
    unit = A / norms[:, None]
    try:
        gamma = nnls(-unit.T, c / size)[0] * size / norms
    except RuntimeError:  # it did not end
        return c, 0.0
    if not np.isfinite(gamma).all():
        return c, 0.0
    bound = slack(len(A) + 3) * up(np.abs(c) + np.abs(A).T @ gamma, len(A) + 2) + len(A) * TINY
    return c + A.T @ gamma, float(row_norms_above(bound[None])[0])


# -- cells in whole numbers


def _cells(lines: Sequence[Whole], d: int) -> list[Cell]:
    """The cells of rows no two of which are parallel."""
    cells: list[Cell] = [((), (0,) * d)]
    for i, x in enumerate(lines):
        on_plane = _on_plane(lines[:i], x, d)
        found: list[Cell] = []
        for signs, point in cells:
            if signs in on_plane:
                ahead, behind = _off_plane(lines[:i], x, on_plane[signs])
                found += [((*signs, 1), ahead), ((*signs, -1), behind)]
            else:
                found.append(((*signs, 1 if _dot(x, point) > 0 else -1), point))
        cells = found
    return cells


def _on_plane(rows: Sequence[Whole], x: Whole, d: int) -> dict[Whole, Whole]:
    """The cells into which rows cut the plane of x: their signs, and points on it."""
    basis = _plane(x)
    inside = [tuple(_dot(row, b) for b in basis) for row in rows]
    lines, line_of, side = _lines(inside)
    return {
        tuple(signs[j] * s for j, s in zip(line_of, side, strict=True)): tuple(
            sum(w * b[k] for w, b in zip(point, basis, strict=True)) for k in range(d)
        )
        for signs, point in _cells(lines, d - 1)
    }


def _off_plane(rows: Sequence[Whole], x: Whole, point: Whole) -> tuple[Whole, Whole]:
    """Points on both sides of the plane of x, half as far as other signs allow, and no farther than
    the point is from the origin. Powers of 2 keep the numbers short."""
    top = max(map(abs, point)) or max(map(abs, x))
    step = Fraction(top, max(map(abs, x)))
    for row in rows:
        away = abs(_dot(row, x))
        if away:
            step = min(step, Fraction(abs(_dot(row, point)), 2 * away))
    k = step.numerator.bit_length() - step.denominator.bit_length() - 1  # 2^k <= step
    far, near = 2 ** max(-k, 0), 2 ** max(k, 0)
    return (
        _reduced(far * p + near * a for p, a in zip(point, x, strict=True)),
        _reduced(far * p - near * a for p, a in zip(point, x, strict=True)),
    )


def _plane(x: Whole) -> list[Whole]:
    """A basis of the vectors that are orthogonal to x."""
    k = next(i for i, a in enumerate(x) if a != 0)
    return [
        _reduced(x[k] if i == j else -x[j] if i == k else 0 for i in range(len(x)))
        for j in range(len(x))
        if j != k
    ]


def _lines(rows: Sequence[Whole]) -> tuple[list[Whole], list[int], list[int]]:
    """Rows without multiples of others; which of these each row is a multiple of, -1 for zero, and
    the sign of the factor."""
    known: dict[Whole, int] = {}
    line_of, side = [], []
    for row in rows:
        reduced = _reduced(row)
        first = next((a for a in reduced if a != 0), 0)
        if first == 0:
            line_of.append(-1)
            side.append(0)
            continue
        sign = 1 if first > 0 else -1
        line_of.append(known.setdefault(tuple(sign * a for a in reduced), len(known)))
        side.append(sign)
    return list(known), line_of, side


def _rank(rows: Iterable[Whole]) -> int:
    left, rank = [list(map(Fraction, row)) for row in rows], 0
    while left:
        pivot = left.pop()
        k = next((i for i, a in enumerate(pivot) if a != 0), None)
        if k is None:
            continue
        rank += 1
        left = [
            [a - row[k] / pivot[k] * b for a, b in zip(row, pivot, strict=True)] for row in left
        ]
    return rank


def _whole(row: Sequence[float]) -> Whole:
    """A row of doubles in whole numbers, up to a positive factor."""
    parts = [Fraction(a) for a in row]
    common = max((part.denominator for part in parts), default=1)  # powers of 2
    return _reduced(int(part * common) for part in parts)


def _reduced(values: Iterable[int]) -> Whole:
    numbers = tuple(values)
    divisor = reduce(math.gcd, numbers, 0)
    return tuple(a // divisor for a in numbers) if divisor > 1 else numbers


def _unit(point: Whole) -> list[float]:
    """Nearly the point, over its largest entry."""
    top = max((abs(a) for a in point), default=0)
    return [float(Fraction(a, top)) if top else 0.0 for a in point]


def _dot(a: Whole, b: Whole) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
