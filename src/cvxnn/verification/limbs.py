"""Products for many rows: exact sums of limbs by BLAS, and a bound on what the limbs leave out.

A double is cut into integers of so few bits, its limbs, that a sum of products of limbs stays below
2^53. BLAS adds those without rounding, in whatever order. A few products of limbs give the leading
bits of a product of matrices; the rest is bounded.
"""

from __future__ import annotations

import numpy as np

from cvxnn.rounding import UNIT, Ball, up
from cvxnn.verification.exact import Exact

BITS = 66  # of each factor of a product that are kept, at least
DEEP = 90  # of each term of a long sum
ROWS = 2**14  # at a time
_ROOM = 200  # largest exponent of a unit, and of the inverse
_SPLITTER = 2.0**27 + 1  # splits a double into two of half the bits


def product(A: np.ndarray, B: Exact) -> Ball:
    """A @ B of doubles A (n, k) and a few exact numbers B (k, m), each within about an ulp.

    In units of the columns of A and of B, A = sum_a A_a 2^-aw and B = sum_b B_b 2^-bw, both with a
    rest of at most 2^-Lw, with integers up to 2^w. Left out are the rests and the products with
    a + b > L + 1: k (L^2/2 + 3) 2^-Lw at most. What is kept is added from its last bits on: the
    partial sums are below 2^54 units of their level, so that those of all but the last sum lose
    less than 3 2^-w units of the first level, which are 2^-2w.
    """
    k = A.shape[1]
    units = _exponents(A)
    hi, lo = (np.ldexp(part, units[:, None]) for part in two_doubles(B))
    own = _exponents(hi)
    if not has_room(units, own, A, hi):
        return Ball(np.zeros((len(A), len(own))), np.full((len(A), len(own)), np.inf))
    L = 3 if _width(3 * k) * 3 >= BITS else 4
    w = _width(L * k)
    left = _limbs(w, L, np.ldexp(A, -units))
    right = _limbs(w, L, np.ldexp(hi, -own), np.ldexp(lo, -own))
    total = np.zeros((len(A), len(own)))
    for level in range(L - 1, -1, -1):
        total = sum(left[a] @ right[level - a] for a in range(level + 1)) + total * 2.0**-w
    off = 3 * 2.0 ** (-3 * w) + k * ((L * L / 2 + 3) * 2.0 ** (-L * w) + 2.0**-100)
    mid = np.ldexp(total, own - 2 * w)
    off = np.where(hi.any(axis=0), np.ldexp(off, own), 0.0)
    return Ball(mid, up(UNIT * np.abs(mid) + off, 4))


def correlations(X: np.ndarray, T: Exact, mask: np.ndarray) -> tuple[Exact, Exact] | None:
    """X'D_i T for each pattern (p, d, C), and how far off each may be (d, C); None where there is
    no room for the numbers.

    x t is a double, its error another one (Dekker), and what is left of t times x a third, of which
    the last two are added. In units of the columns, 2^-103 is more than their roundings. Limbs of w
    bits of n terms have an exact sum if 2n 2^w <= 2^53; the rests are n 2^-Lw at most.
    """
    (n, d), C = X.shape, T.ints.shape[1]
    units, (hi, lo) = _exponents(X), two_doubles(T)
    own = _exponents(hi)
    if not has_room(units, own, X, hi):
        return None
    hi, lo = np.ldexp(hi, -own), np.ldexp(lo, -own)
    w = 53 - int(2 * n).bit_length()
    L = -(-DEEP // w)
    sums = np.zeros((L, mask.shape[1], d * C))
    step = max(1, min(ROWS, 2**22 // (d * C)))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        x, on = np.ldexp(X[rows], -units)[:, :, None], mask[rows].T.astype(np.float64)
        terms, errors = _two_product(x, hi[rows][:, None, :])
        errors += x * lo[rows][:, None, :]
        limbs = _limbs(w, L, terms.reshape(len(x), -1), errors.reshape(len(x), -1))
        for level, limb in enumerate(limbs):
            sums[level] += on @ limb
    ints = np.zeros(sums.shape[1:], dtype=object)
    for part in sums:
        ints = (ints << w) + part.astype(np.int64)
    shifts = (units[:, None] + own).astype(object)
    base = int(shifts.min())
    found = Exact(ints.reshape(-1, d, C) << (shifts - base), base - L * w)
    off = Exact.of(n * (2.0 ** (-L * w) + 2.0**-100))
    return found, Exact(off.ints << (shifts - base), off.exponent + base)


def has_room(units: np.ndarray, own: np.ndarray, *arrays: np.ndarray) -> bool:
    """Whether numbers are finite and of sizes for which nothing overflows, and underflow costs
    less than 2^-100 of a unit."""
    exponents = np.concatenate([units, own])
    return bool(np.all(np.abs(exponents) <= _ROOM)) and all(np.isfinite(a).all() for a in arrays)


def two_doubles(numbers: Exact) -> tuple[np.ndarray, np.ndarray]:
    """The nearest doubles and what they leave, to 2^-105 of the numbers and 2^-1073."""
    hi = numbers.floats()
    return hi, (numbers - Exact.of(np.where(np.isfinite(hi), hi, 0.0))).floats()


def _width(terms: int) -> int:
    return (53 - int(terms).bit_length()) // 2


def _exponents(A: np.ndarray) -> np.ndarray:
    """Of a power of 2 for each column that is above all of its entries."""
    largest = np.abs(A).max(axis=0, initial=0.0)
    return np.where(np.isfinite(largest) & (largest > 0), np.frexp(largest)[1], 0)


def _limbs(width: int, count: int, *parts: np.ndarray) -> list[np.ndarray]:
    """Integers A_a with |A - sum_a A_a 2^-a width| <= 2^-(count width + 1) for each part |A| <= 1,
    added over the parts. They are exact, as what rounding to a whole number leaves is a double."""
    limbs = []
    for _ in range(count):
        parts = tuple(part * 2.0**width for part in parts)
        whole = [np.rint(part) for part in parts]
        parts = tuple(part - limb for part, limb in zip(parts, whole, strict=True))
        limbs.append(np.sum(whole, axis=0) if len(whole) > 1 else whole[0])
    return limbs


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a b as a double, and its rounding error, for |a|, |b| <= 1."""
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    high = a * b
    return high, a2 * b2 - (((high - a1 * b1) - a2 * b1) - a1 * b2)


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    moved = _SPLITTER * a
    high = moved - (moved - a)
    return high, a - high
