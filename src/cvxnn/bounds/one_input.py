"""One input: the price over all directions of a plane, exactly, for any number of rows.

Rows x_i (n, 2), for instance an input and a column of ones, switch at kinks: the two directions u
with x_i u = 0. While u turns by half a circle it meets one kink of each row, so one sort of the
rows puts all 2(n + 1) cells in order. Between two kinks the price is linear, c'u with
c = sum of t_i x_i over the active rows; c changes by +-t_i x_i at a kink. On the opposite side of
the circle the other rows are active, and their sum is what is left of sum_i t_i x_i. The largest
|c'u| on an arc is ||c|| if c points into the arc (or -c does), else it is at one of its ends.

The half circle has two sectors, u = (1, s) and u = (-s, 1) with -1 <= s <= 1, and the kink of a row
is a quotient in one of them. What makes it a proof:

- Quotients are rounded monotonically: rows whose rounded kinks differ are in their true order. A
  row can be on the wrong side of u only where u is between its kink and the rounded one, and there
  |x_i u| <= max_j |x_ij| 2^-53 |s|.
- Sums of t_i x_i are split into whole multiples of two grids, so coarse that no sum of them rounds;
  what is left is below 2^-60 of sum_i |t_i x_i| for a million rows.
- An arc that c misses by rounding alone counts as one that it points into.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cvxnn.bounds.base import EXACT, Goal, Neurons, PriceBound, TimedMethod
from cvxnn.bounds.evidence import Evidence
from cvxnn.bounds.rotation import rotate
from cvxnn.rounding import SQUARES, TINY, UNIT, slack, up

MAX_NEURONS = 200  # that a pricing hands over
ROOM = 2.0**-40  # of a price on rotated rows, for a check that rounds in other places
_SPLITTER = 134217729.0  # 2^27 + 1


class Kinks:
    """The rows X (n, 2) in the order in which a direction that turns meets their kinks.

    order : (n,), of the rows that are not zero; those of the first sector come first.
    after : (n,), whether a row is active once its kink has been passed; before it, the others are.
    ends : (m + 1,), where groups of equal kinks end, from 0 on.
    arcs : cell by cell, how many groups have been passed: (m + 2,), one cell for both sectors.
    left, right : (m + 2,), the ends of each arc as the number s of its sector.
    second : (m + 2,), whether an arc is in the second sector; n_first groups are in the first.
    scaled, leading, largest : the ordered rows (2, n) in units of 2^exponent, their leading bits,
        and the largest entry of each.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        x1, x2 = X[:, 0], X[:, 1]
        rows = np.flatnonzero((x1 != 0) | (x2 != 0))
        steep = np.abs(x1[rows]) > np.abs(x2[rows])
        parts, numbers = [], []
        for mine, above, below, sign in (
            (rows[~steep], x1, x2, -1.0),
            (rows[steep], x2, x1, 1.0),
        ):
            s = sign * (above[mine] / below[mine])
            order = np.argsort(s, kind="stable")
            parts.append(mine[order])
            numbers.append(s[order])
        self.order = np.concatenate(parts)
        n_first = len(parts[0])
        is_second = np.arange(len(self.order)) >= n_first
        self.rows = X[self.order]
        self.after = np.where(is_second, self.rows[:, 0] < 0, self.rows[:, 1] > 0)
        self._lay_out(numbers, n_first)
        self.finite = bool(np.isfinite(X).all())
        self.exponent = _exponent(self.rows) if self.finite else 0
        self.scaled = np.ldexp(np.ascontiguousarray(self.rows.T), -self.exponent)
        self.leading = _leading(self.scaled)
        self.largest = np.max(np.abs(self.scaled), axis=0)

    def _lay_out(self, numbers: list[np.ndarray], n_first: int) -> None:
        """Groups of equal kinks, and the arcs between them."""
        starts = [np.flatnonzero(np.diff(s, prepend=np.nan) != 0) for s in numbers]
        kinks = [s[at] for s, at in zip(numbers, starts, strict=True)]
        self.starts = np.concatenate([starts[0], starts[1] + n_first])
        self.kinks = np.concatenate(kinks)
        self.n_first, m = len(kinks[0]), len(self.kinks)
        m_first = self.n_first
        self.ends = np.append(self.starts, len(self.order))
        one = np.ones(1)
        self.left = np.concatenate([-one, kinks[0], -one, kinks[1]])
        self.right = np.concatenate([kinks[0], one, kinks[1], one])
        self.length_left = np.sqrt(1 + self.left * self.left)
        self.arcs = np.concatenate([np.arange(m_first + 1), np.arange(m_first, m + 1)])
        self.second = np.arange(m + 2) > m_first

    def position(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where directions U (k, 2) are: how many of the ordered rows they have passed, (k,), and
        whether they are on the opposite side of the circle, (k,)."""
        flat = np.abs(U[:, 1]) <= np.abs(U[:, 0])
        opposite = np.where(flat, U[:, 0] < 0, U[:, 1] < 0)
        s = np.where(flat, U[:, 1], -U[:, 0]) / np.where(flat, U[:, 0], U[:, 1])
        first = np.searchsorted(self.kinks[: self.n_first], s, side="left")
        second = self.n_first + np.searchsorted(self.kinks[self.n_first :], s, side="left")
        return self.ends[np.where(flat, first, second)], opposite

    def directions(self, at: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Unit vectors (k, 2) with the number s on the arcs `at`."""
        U = np.where(
            self.second[at, None], np.stack([-s, np.ones_like(s)], 1), np.stack([s * 0 + 1, s], 1)
        )
        return U / np.sqrt(1 + s * s)[:, None]


@dataclass(frozen=True)
class OneInput(TimedMethod):
    """All cells of rows in a plane (`PriceMethod`). `limit` is how many neurons are handed over."""

    limit: int = MAX_NEURONS

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        """Rows in a plane; a few of them mostly show that they are not."""
        if X.shape[1] <= 2:
            return True
        return rotate(X[:8]).Z.shape[1] <= 2 and rotate(X).Z.shape[1] <= 2

    def _bound(self, X: np.ndarray, Theta: np.ndarray, goal: Goal) -> PriceBound:
        """The price itself, up to rounding; tolerance and time do not matter."""
        if X.shape[1] <= 2:
            found = price(kinks_of(X), Theta, goal.lam, self.limit)
            return _in_columns(found, np.eye(2)[: X.shape[1]])
        rotation = rotate(X)
        found = price(kinks_of(rotation.Z), Theta, goal.lam, self.limit)
        V = np.zeros((X.shape[1], 2))
        V[:, : rotation.V.shape[1]] = rotation.V
        above = rotation.price_above(found.above, Theta) * (1 + ROOM)
        evidence = Evidence(coordinates=rotation.V)
        return _in_columns(found, V)._replace(above=above, evidence=evidence)


def _in_columns(found: PriceBound, V: np.ndarray) -> PriceBound:
    """With directions in other coordinates, V (d, 2)."""
    neurons = found.neurons._replace(directions=found.neurons.directions @ V.T)
    return found._replace(neurons=neurons)


def kinks_of(X: np.ndarray) -> Kinks:
    """The kinks of rows with one or two columns."""
    if X.ndim != 2 or X.shape[1] not in (1, 2):
        raise ValueError(f"X must have one or two columns, got shape {X.shape}")
    X = np.asarray(X, dtype=np.float64)
    return Kinks(X if X.shape[1] == 2 else np.concatenate([X, np.zeros_like(X)], axis=1))


@np.errstate(all="ignore")  # what is not finite proves nothing, and says so
def price(kinks: Kinks, Theta: np.ndarray, lam: float, limit: int = MAX_NEURONS) -> PriceBound:
    """The price of each column of Theta (n, C), with its local maximisers that exceed lam, or the
    highest one."""
    C = Theta.shape[1]
    columns = [_Price(kinks, np.asarray(Theta[:, k], dtype=np.float64)) for k in range(C)]
    above = np.array([column.above for column in columns])
    found = [column.maximisers(lam, limit) for column in columns]
    directions = np.concatenate([U for U, _ in found])
    prices = np.concatenate([values for _, values in found])
    classes = np.repeat(np.arange(C), [len(values) for _, values in found])
    best = np.argsort(-np.abs(prices), kind="stable")[:limit]
    neurons = Neurons(directions[best], classes[best], prices[best])
    return PriceBound(above, EXACT, neurons)


@np.errstate(all="ignore")
def search(kinks: Kinks, t: np.ndarray, lam: float, limit: int) -> Neurons:
    """The same neurons for one column t (n,), up to rounding: nothing is proven, and it takes a
    third of the time."""
    directions, prices = _Price(kinks, t, proven=False).maximisers(lam, limit)
    return Neurons(directions, np.zeros(len(prices), dtype=np.intp), prices)


class _Price:
    """The price of one column t (n,) on all arcs, in units of 2^exponent; `above` is a bound on it,
    if that is to be proven."""

    def __init__(self, kinks: Kinks, t: np.ndarray, proven: bool = True) -> None:
        self.kinks = kinks
        t = t[kinks.order]
        finite = bool(np.isfinite(t).all()) and kinks.finite
        if not finite or not t.any():
            self.sides, self.above = None, 0.0 if finite else math.inf
            return
        unit = _exponent(t)
        sums, others, left, size = _cell_sums(kinks, np.ldexp(t, -unit), proven)
        self.exponent = kinks.exponent + unit + size
        self.sides = [_Side(kinks, part, left) for part in (sums, others)]
        self.above = math.inf
        if proven:
            wrong = _wrong_sides(kinks, np.ldexp(np.abs(t), -unit)) * 2.0**-size
            highest = max(side.highest(wrong) for side in self.sides)
            above = _ldexp_up(up(highest, 4), self.exponent)
            self.above = math.inf if math.isnan(above) else above

    def maximisers(self, lam: float, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Directions (k, 2) and prices (k,): the highest above lam in each part of the circle, of
        `limit` parts with as many arcs each, or the highest of all."""
        if self.sides is None:
            return np.zeros((0, 2)), np.zeros(0)
        floor = float(np.ldexp(lam, -self.exponent))
        found = [side.maximisers(floor) for side in self.sides]
        if not any(len(part.at) for part in found):
            found = [side.maximisers(0.0) for side in self.sides]
            limit = 1
        at = np.concatenate([part.at for part in found])
        values = np.concatenate([part.values for part in found])
        U = np.concatenate([found[0].directions, -found[1].directions])
        side = np.repeat([1.0, -1.0], [len(part.at) for part in found])
        order = np.argsort(-np.abs(values), kind="stable")
        part = at[order] * limit // len(self.kinks.arcs)
        label = 4 * part + 2 * (side[order] > 0) + (values[order] > 0)
        best = order[np.sort(np.unique(label, return_index=True)[1])][:limit]
        return U[best], side[best] * np.ldexp(values[best], self.exponent)


class _Maxima(NamedTuple):
    at: np.ndarray  # arcs
    directions: np.ndarray  # (k, 2)
    values: np.ndarray  # of c'u


class _Side:
    """One half of the circle: c (2, m + 2) arc by arc, in the coordinates of the sector, so that
    c'u = (c_1 + s c_2) / sqrt(1 + s^2). Each entry is off by 2^-53 of itself and `left` at most."""

    def __init__(self, kinks: Kinks, sums: np.ndarray, left: float) -> None:
        self.kinks, self.left, m = kinks, left, kinks.n_first
        c = sums[:, kinks.arcs]
        self.c1 = np.concatenate([c[0, : m + 1], c[1, m + 1 :]])
        self.c2 = np.concatenate([c[1, : m + 1], -c[0, m + 1 :]])
        # c or -c points into the arc where these have different signs
        self.from_left = self.c2 - kinks.left * self.c1
        self.from_right = self.c2 - kinks.right * self.c1
        self.at_left = (self.c1 + kinks.left * self.c2) / kinks.length_left

    def highest(self, wrong: np.ndarray) -> float:
        """Above the largest |c'u| over all arcs, with what rows on the wrong side add.

        Its right end is the left end of the next arc, where c'u is the same but for the rows that
        switch there. The end of the last arc is the beginning of the other half of the circle.
        """
        size = np.abs(self.c1) + np.abs(self.c2)
        error = slack(12) * size + up(4 * self.left, 1)
        near = 2.0**-45 * size + error
        inside = (self.from_left > near) & (self.from_right > near)
        inside |= (self.from_left < -near) & (self.from_right < -near)
        inside = ~inside
        around = wrong + np.insert(wrong[:-1], 0, wrong[0])
        ends = float(np.max(np.abs(self.at_left) + error + around))
        last = abs(float(self.c1[-1] + self.c2[-1])) / math.sqrt(2) + float(error[-1] + wrong[-1])
        c1, c2 = self.c1[inside], self.c2[inside]
        norms = np.sqrt(c1 * c1 + c2 * c2) + error[inside] + wrong[inside] + SQUARES
        return up(max(ends, last, float(np.max(norms, initial=0.0))), 8)

    def maximisers(self, floor: float) -> _Maxima:
        """Local maximisers of |c'u| that exceed `floor`, as computed: on arcs, and kinks as high as
        their neighbours."""
        kinks = self.kinks
        arcs = np.flatnonzero((self.from_left >= 0) != (self.from_right > 0))
        norms = np.sqrt(self.c1[arcs] ** 2 + self.c2[arcs] ** 2)
        arcs, norms = arcs[norms > floor], norms[norms > floor]
        height = np.abs(self.at_left)
        tops = np.flatnonzero(height > floor)
        before, after = np.maximum(tops - 1, 0), np.minimum(tops + 1, len(height) - 1)
        tops = tops[(height[tops] >= height[before]) & (height[tops] >= height[after])]
        with np.errstate(all="ignore"):
            s = np.clip(self.c2[arcs] / self.c1[arcs], -1.0, 1.0)
        U = np.concatenate([kinks.directions(arcs, s), kinks.directions(tops, kinks.left[tops])])
        values = np.concatenate([np.sign(self.c1[arcs]) * norms, self.at_left[tops]])
        return _Maxima(np.concatenate([arcs, tops]), U, values)


def _cell_sums(
    kinks: Kinks, t: np.ndarray, proven: bool
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """sum t_i x_i over the active rows of each cell (2, m + 1), and over the others, both in units
    of 2^k: there, sum |t_i x_i| is below 1. What they may be off by beside one rounding, and k.
    Where nothing is to be proven, plain sums, and nothing is known of their error."""
    at, rows = kinks.ends, kinks.scaled
    t = np.where(kinks.after, t, -t)
    product = t * rows
    parts, left, k = ((product,), math.inf, 0) if not proven else _split(kinks, t, product)
    sums, others = np.zeros((2, len(at))), np.zeros((2, len(at)))
    for part in parts:  # if they are split, every sum is exact but those of the two parts
        passed = np.concatenate([np.zeros((2, 1)), np.cumsum(part, axis=1)], axis=1)
        before = np.sum(part[:, ~kinks.after], axis=1, keepdims=True)
        active = passed[:, at] - before
        sums += active
        others += (passed[:, -1:] - 2 * before) - active
    return sums, others, left, k


def _split(
    kinks: Kinks, t: np.ndarray, product: np.ndarray
) -> tuple[tuple[np.ndarray, ...], float, int]:
    """The products t_i x_i (2, n) as multiples of two grids, in units of 2^k; what their sums may
    be off by, and k."""
    n = len(t)
    rest = _product_error(t, kinks.scaled, kinks.leading, product)
    size = up(float(np.max(np.sum(np.abs(product), axis=1))), n) + TINY
    k = math.frexp(size)[1]
    fine = 2.0 ** (math.frexp(n)[1] - 104)
    # roundings below, and underflow that was scaled up by 2^-k at most
    left = n * (fine + 4 * UNIT * 2.0**-52) + n * math.ldexp(8 * TINY, max(-k, 0))
    product, rest = np.ldexp(product, -k), np.ldexp(rest, -k)
    high = np.rint(product * 2.0**52) * 2.0**-52
    low = np.rint((product - high + rest) / fine) * fine
    return (high, low), left, k


def _product_error(a: np.ndarray, b: np.ndarray, b1: np.ndarray, product: np.ndarray) -> np.ndarray:
    """a b minus its rounded product, exactly but for underflow (Dekker); |a|, |b| <= 1, and b1 are
    the leading bits of b."""
    a1 = _leading(a)
    a2, b2 = a - a1, b - b1
    return a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _leading(a: np.ndarray) -> np.ndarray:
    scaled = _SPLITTER * a
    return scaled - (scaled - a)


def _wrong_sides(kinks: Kinks, t: np.ndarray) -> np.ndarray:
    """Arc by arc (m + 2,), what rows at its ends can add that are on the wrong side of u."""
    group = up(np.add.reduceat(t * kinks.largest, kinks.starts), len(t) + 1)
    each = group * up(UNIT * np.abs(kinks.kinks) + TINY, 2)
    padded = np.concatenate([[0.0], each, [0.0]])  # none before the first kink, none after the last
    return up(padded[kinks.arcs] + padded[kinks.arcs + 1], 3)


def _exponent(x: np.ndarray) -> int:
    """The k for which |x| <= 2^k."""
    return int(np.frexp(np.max(np.abs(x), initial=0.0))[1])


def _ldexp_up(x: float, k: int) -> float:
    value = float(np.ldexp(x, k))
    return math.nextafter(value, math.inf) if value < TINY else value
