"""Logarithms and exponentials of many numbers, with proven errors: exact values on a grid, rounded
outward, and Taylor's formula between them. Nothing is taken from the C library.

Each result has fewer than ROUNDINGS roundings of the size of itself, its tables' included.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cvxnn.rounding import down, up
from cvxnn.verification.exact import ERROR, LN2, PLACES, Exact, exp_minus, log_quotient

ROUNDINGS = 24
_GRID = 64  # points to a unit: no number is further than 1/128 from one
_LARGEST = 700  # exp(-x) beyond is no more than there
_SMALLEST = 1e-290  # a share below this counts as none: it has an entropy, which is left out


def log1p(x: np.ndarray) -> np.ndarray:
    """log(1 + x) for x >= 0, within 16 roundings.

    1 + x = 2^e (1 + f) with f < 1; up to x = 1 that is f = x, beyond it has one rounding, which
    changes a logarithm of 0.69 and more. With the point c of the grid next to f, log(1 + f) =
    log(1 + c) + log(1 + t), t = (f - c)/(1 + c), |t| <= 1/128, where f - c is exact. The series up
    to t^9 leaves less than 2^-66 |t|. Nothing cancels by more than a half, since log(65/64) > 1/65.
    """
    m, e = np.frexp(1.0 + x)
    large = x >= 1
    f, e = np.where(large, 2 * m - 1, x), np.where(large, e - 1, 0)
    k = np.rint(_GRID * f).astype(np.int64)
    t = (f - k / _GRID) / (1 + k / _GRID)
    series = np.full_like(t, 1 / 9)
    for i in range(8, 0, -1):
        series = 1 / i - t * series
    grid, of_two = _logarithms()
    return (e * of_two + grid[k]) + t * series


def exp_above(x: np.ndarray) -> np.ndarray:
    """Above exp(-x) for x >= 0, by no more than twice ROUNDINGS.

    x = j + k/64 + r with |r| <= 1/128, all of them exact; exp(-r) by its series up to r^8 leaves
    less than 2^-80 of it.
    """
    x = np.minimum(x, _LARGEST)
    j = np.floor(x).astype(np.int64)
    k = np.rint(_GRID * (x - j)).astype(np.int64)
    r = (x - j) - k / _GRID
    series = np.full_like(r, 1.0)
    for i in range(8, 0, -1):
        series = 1 - r * series / i
    wholes, parts = _exponentials()
    return up(wholes[j] * parts[k] * series, ROUNDINGS)


def log_of_sum_above(gaps: np.ndarray) -> np.ndarray:
    """Above log(1 + sum_k exp(-gaps_k)) over the last axis; gaps may be negative."""
    taken = np.maximum(-gaps.min(axis=-1, initial=0.0), 0.0)  # 1 <= exp(taken), out of the sum
    total = exp_above(down(gaps + taken[..., None], 1)).sum(axis=-1)
    return up(taken + up(log1p(up(total, gaps.shape[-1])), ROUNDINGS), 1)


def entropies_below(shares: np.ndarray) -> np.ndarray:
    """Below sum_k q_k log(sum_j q_j / q_k) for numbers that are not below these (n, C) >= 0: it
    grows with each of them, and is sum_k q_k log(1 + rest_k / q_k)."""
    zeros = np.zeros((len(shares), 1))
    before = np.hstack([zeros, np.cumsum(shares[:, :-1], axis=1)])
    after = np.hstack([np.cumsum(shares[:, :0:-1], axis=1)[:, ::-1], zeros])
    counts = shares > _SMALLEST
    ratio = np.where(counts, before + after, 0.0) / np.where(counts, shares, 1.0)
    terms = np.where(counts, shares, 0.0) * log1p(ratio)
    return down(terms.sum(axis=1), 3 * shares.shape[1] + ROUNDINGS)


@cache
def _logarithms() -> tuple[np.ndarray, float]:
    """log(1 + k/64) for k = 0, ..., 64, and log 2."""
    logs = [log_quotient(_GRID + k, _GRID) for k in range(_GRID + 1)]
    return np.array([Exact(value, -PLACES).below() for value in logs]), Exact(LN2, -PLACES).below()


@cache
def _exponentials() -> tuple[np.ndarray, np.ndarray]:
    """exp(-j) for j = 0, ..., 700, and exp(-k/64) for k = 0, ..., 64, from above."""
    wholes = [_exponential(j << PLACES) for j in range(_LARGEST + 1)]
    return np.array(wholes), np.array(
        [_exponential((k << PLACES) // _GRID) for k in range(_GRID + 1)]
    )


def _exponential(a: int) -> float:
    return Exact(exp_minus(a) + ERROR, -PLACES - a // LN2).above()
