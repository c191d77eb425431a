"""Arithmetic that bounds its own error: integers with a common exponent, and what is not exact
rounded outward.

A double is an integer times a power of two. An array of doubles is an array of Python integers
times one common power of two, and sums and products of such arrays are of that kind again: `Exact`
has no rounding at all. Matrix products go through BLAS all the same. Integers are cut into limbs
of so few bits that a sum of n products of limbs stays below 2^53 in magnitude. Then all partial
sums are integers that a double holds exactly, in whatever order they come.

Quotients, roots, logarithms and exponentials are integers in units of 2^-PLACES, computed with
+ - * // and isqrt of integers alone. Their errors are bounded in the docstrings; nothing is taken
from the C library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

Axes: TypeAlias = int | tuple[int, ...] | None
_Indices: TypeAlias = SupportsIndex | slice | list[int] | np.ndarray  # along one axis
_Index: TypeAlias = _Indices | tuple[_Indices, ...]

PLACES = 160  # binary places of logarithms, exponentials and quotients
ERROR = 1 << 24  # of a logarithm or exponential, in units of 2^-PLACES: more than there can be
_BLOCK = 2**23  # entries of a mask that are floating numbers at a time
_SMALL = 64  # log(1 + x) of x below 2^-64 is x, up to 2^-64 of it
_LONG = 900  # bits of an integer that becomes a double as it is
_LEAST = math.ulp(0.0)
_TAIL = 1200  # binary places of a softplus, whose terms may be tiny


@dataclass(frozen=True, eq=False)
class Exact:
    """The numbers ints * 2^exponent.

    ints : an object array of Python integers, or one of them.
    """

    ints: Any
    exponent: int = 0

    @classmethod
    def of(cls, numbers: ArrayLike) -> Exact:
        """Doubles as they are; the common exponent is that of the lowest bit of all."""
        mantissa, exponent = np.frexp(np.asarray(numbers, dtype=np.float64))
        ints = (mantissa * 2.0**53).astype(np.int64)
        low = np.frexp((ints & -ints).astype(np.float64))[1] - 1  # trailing zeros
        low = np.where(ints == 0, 0, low)
        exponent = exponent.astype(np.int64) - 53 + low
        base = int(np.min(exponent, initial=2000, where=ints != 0)) if np.any(ints) else 0
        shifts = np.where(ints == 0, 0, exponent - base)
        return cls((ints >> low).astype(object) << shifts.astype(object), base)

    def at(self, exponent: int) -> Any:
        """The integers for a smaller exponent."""
        shift = self.exponent - exponent
        return self.ints << shift if shift else self.ints

    def __add__(self, other: Exact) -> Exact:
        exponent = min(self.exponent, other.exponent)
        return Exact(self.at(exponent) + other.at(exponent), exponent)

    def __neg__(self) -> Exact:
        return Exact(-self.ints, self.exponent)

    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    def __mul__(self, other: Exact) -> Exact:
        return Exact(self.ints * other.ints, self.exponent + other.exponent)

    def __abs__(self) -> Exact:
        return Exact(abs(self.ints), self.exponent)

    def __getitem__(self, index: _Index) -> Exact:
        return Exact(self.ints[index], self.exponent)

    def reshape(self, *shape: int) -> Exact:
        return Exact(self.ints.reshape(*shape), self.exponent)

    @property
    def T(self) -> Exact:
        return Exact(self.ints.T, self.exponent)

    def times_two_to(self, power: int) -> Exact:
        return Exact(self.ints, self.exponent + power)

    def sum(self, axis: Axes = None) -> Exact:
        return Exact(np.sum(self.ints, axis=axis, initial=0), self.exponent)

    def max(self, axis: Axes = None) -> Exact:
        """The largest of numbers >= 0; 0 if there are none."""
        return Exact(np.max(self.ints, axis=axis, initial=0), self.exponent)

    def __matmul__(self, other: Exact) -> Exact:
        """The product of two matrices, in limbs of a and b bits with n 2^(a + b) <= 2^53."""
        A, B = self.ints, other.ints
        room = 53 - int(A.shape[1]).bit_length()
        a_bits, b_bits = _bits(A), _bits(B)
        a = b = room // 2  # equal widths, so that many products have the same shift
        if min(a_bits, b_bits) < a:
            a = a_bits if a_bits <= b_bits else room - b_bits
            b = room - a
        levels: dict[int, np.ndarray] = {}
        right = list(_limbs(B, b, b_bits))
        for i, left in _limbs(A, a, a_bits):
            for j, limb in right:
                product = (left @ limb).astype(np.int64)
                levels[i + j] = levels.get(i + j, 0) + product
        total = np.zeros((A.shape[0], B.shape[1]), dtype=object)
        for shift, level in levels.items():
            total = total + (level.astype(object) << shift)
        return Exact(total, self.exponent + other.exponent)

    def sums_over(self, mask: np.ndarray) -> Exact:
        """The sums of the rows (n, d) that each column of a mask (n, p) selects: (p, d)."""
        (n, p), width = mask.shape, 53 - int(mask.shape[0]).bit_length()
        limbs = list(_limbs(self.ints, width, _bits(self.ints)))
        total = np.zeros((p, self.ints.shape[1]), dtype=object)
        step = max(1, _BLOCK // max(n, 1))
        for start in range(0, p, step):
            some = mask[:, start : start + step].T.astype(np.float64)
            for shift, limb in limbs:
                part = (some @ limb).astype(np.int64).astype(object)
                total[start : start + step] += part << shift
        return Exact(total, self.exponent)

    def floats(self) -> np.ndarray:
        """About the nearest doubles, each with the sign of its number however small that is."""
        ints: Any = self.ints
        exponent: Any = self.exponent
        if _bits(ints) > _LONG:
            shift = _beyond_long(ints)
            ints, exponent = ints >> shift, np.asarray(exponent + shift, dtype=np.int64)
        with np.errstate(under="ignore", over="ignore"):
            found = np.ldexp(np.asarray(ints, dtype=np.float64), exponent)
        if self.exponent < -1074:
            lost = (found == 0) & (self.ints != 0)
            found = np.where(lost, np.where(self.ints < 0, -_LEAST, _LEAST), found)
        return found

    def below(self) -> float:
        """Of one number: the largest double that is not above it."""
        value = int(self.ints)
        if value.bit_length() + self.exponent > 1024:
            return math.nextafter(math.inf, 0) if value > 0 else -math.inf
        shift = max(value.bit_length() - 53, -1074 - self.exponent, 0)
        return math.ldexp(value >> shift, self.exponent + shift)

    def above(self) -> float:
        """Of one number: the smallest double that is not below it."""
        return -(-self).below()


def stacked(numbers: Sequence[Exact]) -> Exact:
    """Single numbers as an array (m,)."""
    base = min((number.exponent for number in numbers), default=0)
    ints = np.empty(len(numbers), dtype=object)
    ints[:] = [number.at(base) for number in numbers]
    return Exact(ints, base)


_beyond_long = np.frompyfunc(lambda value: max(int(value).bit_length() - _LONG, 0), 1, 1)


def _bits(ints: Any) -> int:
    return max(int(np.max(np.abs(ints), initial=0)).bit_length(), 1)


def _limbs(ints: np.ndarray, width: int, bits: int) -> Iterator[tuple[int, np.ndarray]]:
    """Shift and value of each limb, as doubles: `ints` is the sum of limb * 2^shift."""
    magnitude, sign = np.abs(ints), np.where(ints < 0, -1.0, 1.0)
    for shift in range(0, bits, width):
        limb = ((magnitude >> shift) & ((1 << width) - 1)).astype(np.float64)
        if limb.any():
            yield shift, sign * limb


# -- quotients and roots of single numbers >= 0


def quotient(a: Exact, b: Exact, *, up: bool = False) -> Exact:
    """a / b from below, or from above, to a part in 2^PLACES; for a >= 0 and b > 0."""
    numerator, denominator = int(a.ints), int(b.ints)
    shift = max(PLACES + 1 - numerator.bit_length() + denominator.bit_length(), 0)
    numerator = numerator << shift
    ratio = -(-numerator // denominator) if up else numerator // denominator
    return Exact(ratio, a.exponent - b.exponent - shift)


def quotients(a: Exact, b: Exact, *, up: bool = False) -> Exact:
    """The same for arrays, to a part in 2^PLACES of the largest quotient at least."""
    shift = max(PLACES + 1 - _bits(a.ints) + _bits(b.ints), 0)
    numerators = a.ints << shift
    ratios = -(-numerators // b.ints) if up else numerators // b.ints
    return Exact(ratios, a.exponent - b.exponent - shift)


def root(a: Exact, *, up: bool = False) -> Exact:
    """sqrt(a) from below, or from above, to a part in 2^PLACES; for a >= 0."""
    value = int(a.ints)
    shift = max(2 * PLACES + 2 - value.bit_length(), 0)
    shift += (a.exponent - shift) % 2
    value = value << shift
    found = math.isqrt(value)
    return Exact(found + (up and found * found < value), (a.exponent - shift) // 2)


def roots(a: Exact, *, up: bool = False) -> Exact:
    """Square roots of an array, one by one."""
    found = stacked([root(Exact(value, a.exponent), up=up) for value in np.ravel(a.ints)])
    return found.reshape(*np.shape(a.ints))


# -- logarithms and exponentials, in units of 2^-PLACES

_ONE = 1 << PLACES


def _atanh(z: int) -> int:
    """2 atanh(z) for 0 <= z <= 1/3, low by at most 6 units a term, of which there are < 64: a
    power of z is low by e' <= e/9 + 1/3 + 1 < 2, if the one before was low by e < 2, and the
    quotient adds 1."""
    square, total, odd = (z * z) >> PLACES, 0, 1
    while z:
        total += z // odd
        z = (z * square) >> PLACES
        odd += 2
    return 2 * total


LN2 = _atanh(_ONE // 3)  # 2 atanh(1/3)


def log_quotient(a: int, b: int) -> int:
    """log(a / b) for a >= b > 0, off by less than ERROR.

    a / b = 2^k m with 1 <= m < 2, and log m = 8 log m^(1/8) = 16 atanh((r - 1) / (r + 1)) with
    r = m^(1/8) < 1.1. Each root halves what errors there are and adds a unit, the quotient adds
    one, the series 6 for each of at most 20 terms: below 2^7 in all, and 2^11 after the factors.
    LN2 is off by less than 2^9, so k LN2 by less than 2^21 for k < 4000.
    """
    k = a.bit_length() - b.bit_length()
    if a < b << k:
        k -= 1
    if k >= 4000:
        raise OverflowError("a logarithm of more than doubles hold")
    r = (a << PLACES) // (b << k)
    for _ in range(3):
        r = math.isqrt(r << PLACES)
    return k * LN2 + 8 * _atanh(((r - _ONE) << PLACES) // (r + _ONE))


def exp_minus(a: int) -> int:
    """2^(k + PLACES) exp(-a) with k = a // LN2, for a >= 0 below 2^11, off by less than ERROR.

    exp(-a) = 2^-k / exp(s)^256 with s = (a - k LN2) / 256 < 0.003. The series of exp(s) is low by
    2 units for each of its at most 25 terms, and 8 squarings make less than 2^15 of it; k LN2 is
    off by less than 2^21 for k < 3000, and the result is at most 1.
    """
    if a >> (PLACES + 11):
        raise OverflowError("an exponential below what doubles hold")
    s = (a % LN2) >> 8
    total, term, j = _ONE, s, 1
    while term:
        total += term
        j += 1
        term = ((term * s) >> PLACES) // j
    for _ in range(8):
        total = (total * total) >> PLACES
    return (_ONE * _ONE) // total


def entropy(part: int, whole: int) -> int:
    """part log(whole / part) from below, in units of 2^-PLACES, to 2^-60 of it: 0 <= part <= whole.
    Near part = whole it is part (whole - part) / whole, as log x >= 1 - 1/x."""
    if part == 0 or part == whole:
        return 0
    rest = whole - part
    if rest << _SMALL < whole:
        return ((part * rest) << PLACES) // whole
    return part * (log_quotient(whole, part) - ERROR)


def log_of_sum(gaps: list[int], exponent: int) -> Exact:
    """log(1 + sum_i exp(-a_i)) from above, to 2^-60 of it or 2^-1199, for a_i = gaps_i 2^exponent
    >= 0."""
    total = 0  # of the exponentials, from above, in units of 2^-(PLACES + _TAIL)
    for gap in gaps:
        shift = exponent + PLACES
        a = gap << shift if shift >= 0 else gap >> -shift  # smaller, so that exp(-a) is larger
        if a >= 840 << PLACES:  # below 2^-1200
            total += _ONE
        else:
            total += ((exp_minus(a) + ERROR) << _TAIL >> a // LN2) + 1
    if total < 1 << (PLACES + _TAIL - _SMALL):
        return Exact(total, -PLACES - _TAIL)
    one = 1 << (PLACES + _TAIL)
    return Exact((log_quotient(one + total, one) + ERROR) << _TAIL, -PLACES - _TAIL)
