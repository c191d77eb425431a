"""Floating-point numbers with a bound on their error: what rigorous certificates are made of.

A `Ball` is a centre and a radius; the real number that it stands for is within the radius of the
centre. Assumed of the machine are the IEEE operations + - * / sqrt in double precision, rounded to
nearest, with numbers below 2^-1022 (`gradual_underflow` checks that). Nothing is assumed about the
order of sums, nor about the accuracy of log and exp. With u = 2^-53,

    |fl(a op b) - (a op b)| <= u |fl(a op b)|,   plus 2^-1022 where a product or quotient underflows
    |fl(sum) - sum| <= slack(k) sum |terms|      for at most k roundings on the way of any term

and `slack(k)` has room for the few roundings of its own use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.ranks import ALONE, Ranks, exact_sum, first_largest

Number = TypeVar("Number", float, np.ndarray)  # one, or an array of them

UNIT = 2.0**-53
TINY = 2.0**-1022  # more than an underflow costs
SQUARES = 2.0**-510  # more than the underflow of a square costs its square root
LOG = 24  # roundings that a term with one logarithm, or one of its series, is charged with
_LN2 = math.log(2.0)
_LN2_HIGH = 0.6931471803691238  # the leading 32 bits of log 2: products with exponents are exact
_LN2_LOW = 1.9082149292705877e-10
_SMALLEST_LOG = 1e-290  # smaller arguments count as zero in -q log q, which is then too small


def gradual_underflow() -> bool:
    """Whether there are numbers between 0 and 2^-1022. Some libraries switch them off for a thread
    to gain speed; then sums of small numbers have errors that are not bounded here."""
    return bool(np.all(np.full(8, TINY) / 2 > 0)) and TINY / 2 > 0


def slack(k: float) -> float:
    """More than k u / (1 - k u), the relative error of k roundings."""
    if k > 1e12:
        raise OverflowError("a sum of so many terms has no useful error bound")
    return 1.01 * (k + 4) * UNIT


def up(x: Number, k: float) -> Number:
    """Above the exact value of x >= 0, which was computed with at most k roundings."""
    return x * (1 + slack(k)) + k * TINY


def down(x: Number, k: float) -> Number:
    """Below the exact value of x >= 0, which was computed with at most k roundings."""
    return np.maximum(x * (1 - slack(k)) - k * TINY, 0.0)


def tree_sum(x: np.ndarray, axis: int | None = None) -> np.ndarray:
    """The sum along an axis, or of everything, by halves: log2 of the length roundings a term."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    x = np.moveaxis(x, axis, 0) if axis else x
    if x.shape[0] == 0:
        return np.zeros(x.shape[1:])
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        folded = x[:half] + x[half : 2 * half]
        if x.shape[0] % 2:
            folded = np.concatenate([folded, x[-1:]])
        x = folded
    return x[0]


def depth(n: int) -> int:
    """The roundings of a term in `tree_sum` of n terms."""
    return max(1, math.ceil(math.log2(max(n, 2))) + 1)


def total_above(x: np.ndarray, across: Ranks) -> np.ndarray:
    """Above the sum over all ranks of exact values >= 0 that x is above on each."""
    return x if across.size == 1 else up(across.sum(x), across.size)


def total_below(x: np.ndarray, across: Ranks) -> np.ndarray:
    """Below the sum over all ranks of exact values >= 0 that x is below on each."""
    return x if across.size == 1 else down(across.sum(x), across.size)


@dataclass(frozen=True, eq=False)
class Ball:
    """Numbers within `rad` of `mid`, elementwise; operands that are not balls count as exact."""

    mid: np.ndarray
    rad: np.ndarray | float = 0.0

    __array_ufunc__ = None  # so that NumPy leaves `array * ball` to the ball

    def __neg__(self) -> Ball:
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Ball | ArrayLike) -> Ball:
        """The rounding error of a sum is a floating-point number itself, and computed (Knuth): sums
        that are exact stay so."""
        a, b = self, _ball(other)
        mid = a.mid + b.mid
        part = mid - a.mid
        error = np.abs((a.mid - (mid - part)) + (b.mid - part))
        return Ball(mid, (a.rad + b.rad + error) * (1 + 8 * UNIT))

    __radd__ = __add__

    def __sub__(self, other: Ball | ArrayLike) -> Ball:
        return self + -_ball(other)

    def __rsub__(self, other: Ball | ArrayLike) -> Ball:
        return _ball(other) + -self

    def __mul__(self, other: Ball | ArrayLike) -> Ball:
        a, b = self, _ball(other)
        mid = a.mid * b.mid
        rad = np.abs(a.mid) * b.rad + (np.abs(b.mid) + b.rad) * a.rad + UNIT * np.abs(mid)
        zero = ((a.mid == 0) & (a.rad == 0)) | ((b.mid == 0) & (b.rad == 0))
        return Ball(mid, np.where(zero, 0.0, rad * (1 + 8 * UNIT) + 4 * TINY))

    __rmul__ = __mul__

    def __truediv__(self, other: np.ndarray) -> Ball:
        """By exact numbers."""
        mid = self.mid / other
        rad = self.rad / np.abs(other) + UNIT * np.abs(mid)
        zero = (self.mid == 0) & (self.rad == 0)
        return Ball(mid, np.where(zero, 0.0, rad * (1 + 8 * UNIT) + 4 * TINY))

    def sum(self, axis: int | None = None) -> Ball:
        mid = np.asarray(self.mid)
        n = mid.size if axis is None else mid.shape[axis]
        error = slack(depth(n)) * tree_sum(np.abs(mid), axis)
        rad = tree_sum(np.broadcast_to(self.rad, mid.shape), axis)
        return Ball(
            tree_sum(mid, axis), up(rad + error, depth(n)) if np.any(mid) or np.any(rad) else rad
        )

    def over(self, across: Ranks) -> Ball:
        """The sum over all ranks of the numbers that each has."""
        if across.size == 1:
            return self
        rad = np.broadcast_to(self.rad, np.shape(self.mid))
        mid, size, rad = across.sum(np.stack([self.mid, np.abs(self.mid), rad]))
        above = up(rad + slack(across.size) * size, across.size + 2)
        return Ball(mid, np.where((size > 0) | (rad > 0), above, 0.0))

    def reshape(self, *shape: int) -> Ball:
        return Ball(np.reshape(self.mid, shape), np.reshape(self.rad, shape))

    def above(self) -> np.ndarray:
        """The upper end, rounded up."""
        end = self.mid + self.rad
        return np.where(np.asarray(self.rad) == 0, self.mid, np.nextafter(end, np.inf))

    def below(self) -> np.ndarray:
        return -(-self).above()

    def take_from(self, index: int | tuple[int, ...], S: float) -> None:
        """Subtract a number from an entry, in place; S is that number, correctly rounded."""
        assert isinstance(self.rad, np.ndarray)
        self.mid[index] -= S
        error = 2 * UNIT * (abs(S) + abs(self.mid[index]))
        self.rad[index] = (self.rad[index] + error) * (1 + 8 * UNIT) + TINY

    def magnitude(self) -> np.ndarray:
        """The largest absolute value, rounded up."""
        return Ball(np.abs(self.mid), self.rad).above()


def _ball(x: Ball | ArrayLike) -> Ball:
    return x if isinstance(x, Ball) else Ball(np.asarray(x, dtype=np.float64))


# -- logarithms and exponentials from + - * / alone


def log(x: np.ndarray) -> np.ndarray:
    """log(x) for normal x > 0, within 16 u |log x|.

    With x = m 2^e and m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s) for s = (m - 1)/(m + 1), where
    m - 1 is exact and |s| < 0.172; the series up to s^23 leaves less than 2e-20. That is within
    5 u. e log 2 has 2 u, and is no more than twice log x, so nothing cancels by much.
    """
    m, e = np.frexp(x)
    low = m < math.sqrt(0.5)
    m, e = np.where(low, 2 * m, m), np.where(low, e - 1, e)
    f = m - 1.0
    return e * _LN2 + 2 * _atanh(f / (2.0 + f), 23)


def log1p(t: np.ndarray) -> np.ndarray:
    """log(1 + t) for t >= 0, within 16 u of it relatively: up to 1 by the series of
    2 atanh(t / (2 + t)), whose argument is at most 1/3; beyond, 1 + t is as good as exact."""
    small = np.minimum(t, 1.0)
    return np.where(t > 1, log(1 + np.maximum(t, 1.0)), 2 * _atanh(small / (2.0 + small), 37))


def _atanh(s: np.ndarray, last: int) -> np.ndarray:
    z = s * s
    series = np.full_like(s, 1 / last)
    for odd in range(last - 2, 0, -2):
        series = series * z + 1 / odd
    return s * series


def exp_above(x: np.ndarray) -> np.ndarray:
    """Above exp(x) for x <= 0, by 16 u of it, and 2^-1022 at most.

    With k the whole number next to x / log 2, r = x - k log 2 is off by less than u: k times the
    leading bits of log 2 is exact, and so is the difference. The series in r, |r| < 0.35, leaves
    less than 1e-17 after r^13, and its sum is within 4 u.
    """
    x = np.clip(x, -746.0, 1e4)
    k = np.rint(x / _LN2)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = np.full_like(r, 1 / 13)
    for i in range(12, 0, -1):
        series = (1 + series * r) / i
    return np.ldexp((1 + series * r) * (1 + slack(12)), k.astype(np.int64)) + TINY


def softplus_above(x: np.ndarray) -> np.ndarray:
    """Above log(1 + exp(x)), relatively by a few dozen roundings."""
    return up(np.maximum(x, 0.0) + log1p(exp_above(-np.abs(x))) * (1 + slack(LOG)), 3)


def entropy_below(q: np.ndarray) -> np.ndarray:
    """Below -q log q, q >= 0: by LOG roundings, except that tiny q count as zero."""
    counts = q > _SMALLEST_LOG
    value = -q * log(np.where(counts, q, 1.0))
    return np.where(counts, value - slack(LOG) * np.abs(value), 0.0)


def rest_entropy_below(t: np.ndarray) -> np.ndarray:
    """Below -(1 - t) log(1 - t) for t <= 1.

    1 - t is exact from t = 1/2 on; below that, its rounding of u/2 changes the value by less than
    2 u. For small t the value is t - t^2/2 - t^3/6 - t^4/12 - t^5/20 - ..., the last ones below
    t^5/15 together; for negative t, which rounding may leave, it is above -2 |t| down to t = -1.
    """
    rest = 1.0 - t
    value = -rest * log(np.where(rest > 0, rest, 1.0))
    value = value - slack(LOG) * np.abs(value) - 2 * UNIT * rest
    series = t * (1 - t * (1 / 2 + t * (1 / 6 + t * (1 / 12 + t / 15)))) * (1 - slack(LOG))
    return np.where(t < 0, 2 * t, np.where(t < 2.0**-12, series, value))


# -- sums that vanish exactly


def zero_sum(theta: np.ndarray, across: Ranks = ALONE) -> tuple[np.ndarray, Ball]:
    """Numbers next to theta (n,), of which other ranks have more, with no sign changed, and the
    exact zero-sum point they stand for.

    `math.fsum` is correctly rounded and a sum of doubles is a multiple of 2^-1074, so a sum is
    zero if and only if fsum says so. What it leaves, S, is taken from an entry that shrinks or
    hardly notices: the largest one for which the difference is exact, else the smallest one, whose
    rounding is finest. Where that does not end, the entry that S fits into best stands for itself
    minus the exact S. If it fits into none, only zero is left.
    """
    theta = theta.copy()
    for _ in range(40):
        S = exact_sum(theta, across)
        if S == 0:
            break
        size, moved = np.abs(theta), theta - S
        shrinks = (np.sign(theta) == np.sign(S)) & (size >= abs(S))
        able = shrinks | (size >= 2.0**40 * abs(S))  # growing by so little costs nothing
        part = moved - theta
        exact = able & ((theta - (moved - part)) + (-S - part) == 0)
        closer = able & (moved != theta)
        first, second, third = (
            bool(found) for found in across.max(_any([exact & shrinks, exact, closer]))
        )
        if first or second:
            r = first_largest(np.where(exact & shrinks if first else exact, size, -1.0), across)
        elif third:
            r = first_largest(np.where(closer, -size, -np.inf), across)
        else:
            break
        if r is not None:
            theta[r] = moved[r]
    S = exact_sum(theta, across)
    point = Ball(theta.copy(), np.zeros_like(theta))
    if S != 0:
        r = first_largest(theta * np.sign(S), across)  # it shrinks by the least share
        others = theta if r is None else np.delete(theta, r)
        if np.sign(exact_sum(others, across)) == np.sign(S):
            return 0 * theta, Ball(0 * theta, point.rad)
        if r is not None:
            point.take_from(r, S)
    return theta, point


def _any(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([float(part.any()) for part in parts])


# -- products with data


def leading_bits(X: np.ndarray, bits: int, axis: int | None, across: Ranks = ALONE) -> np.ndarray:
    """The leading bits of X, on a grid of its own for each line along `axis`, which goes on on the
    other ranks: multiples of a power of 2, below 2^bits of it. X minus these is exact."""
    top = across.max(np.max(np.abs(X), axis=axis, keepdims=True, initial=0.0))
    grid = leading_grid(top, bits)
    return np.rint(X / grid) * grid


def leading_grid(top: np.ndarray, bits: int) -> np.ndarray:
    """The grid of these leading bits, for lines whose largest absolute values are `top`."""
    _, exponent = np.frexp(np.where(top > 0, top, 1.0))
    return np.ldexp(1.0, np.maximum(exponent - bits, -1000))
