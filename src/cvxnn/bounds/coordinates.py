"""Few coordinates for the price of rows that span few dimensions, with a bound on what is lost.

The price of theta on X is the maximum of sum_i t_i (x_i u)_+ over ||u|| <= 1, for t = theta and
t = -theta. With x_i = Q z_i + e_i for the doubles Q (d, r) and z_i,

    sum_i t_i (x_i u)_+  <=  sum_i t_i (z_i Q'u)_+ + sum_i |t_i| ||e_i||   as |a_+ - b_+| <= |a - b|
                         <=  ||Q|| max_{||v|| <= 1} sum_i t_i (z_i v)_+ + sum_i |t_i| ||e_i||.

Rows are scaled by powers of 2, which moves into t, so that nothing overflows; rows that are then
equal become one. So `Weighted` is another sum of the same kind, and

    price on X  <=  2^exponent (||Q|| price of the weighted rows + extra).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cvxnn.bounds.rotation import rotate
from cvxnn.rounding import TINY, UNIT, down, up

SOME = 64  # rows that may show at once that there are too many dimensions
UNDERFLOW = 2.0**-1000  # more than the underflows of a row cost


class Weighted(NamedTuple):
    """sum_i w_i (z_i u)_+ for one t, without rows of weight zero.

    rows : (m, r), the z_i; weights : (m,).
    total : above sum_i |w_i| ||z_i||.
    extra : what merging, scaling and the coordinates may have lost.
    exponent, norm : a bound b for this sum is one of 2^exponent (norm b + extra) for X.
    """

    rows: np.ndarray
    weights: np.ndarray
    total: float
    extra: float
    exponent: int
    norm: float

    def above(self, bound: float) -> float:
        """What a bound for this sum proves for X."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = up(self.norm * bound + self.extra, 3)
            scaled = float(np.ldexp(value, self.exponent))
        return scaled + 2 * TINY if not math.isnan(scaled) else math.inf

    def below(self, price: float) -> float:
        """A bound for this sum that proves a price on X, negative where none can."""
        with np.errstate(over="ignore"):
            scaled = float(np.ldexp(price - 2 * TINY, -self.exponent))
        if scaled <= self.extra:
            return -1.0
        return down((scaled - self.extra) / self.norm, 8)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Rows X (n, d) in r coordinates.

    rows : (m, r), different from each other, with a largest entry from 1/2 to 1.
    group : (n,), the row that stands for each row of X.
    exponents : (n,), x_i = 2^exponent (Q z + e).
    errors : (n,), above ||e||.
    Q : (d, r), or None for the unit matrix.
    norm : above ||Q||.
    """

    rows: np.ndarray
    group: np.ndarray
    exponents: np.ndarray
    errors: np.ndarray
    Q: np.ndarray | None
    norm: float

    @classmethod
    def of(cls, X: np.ndarray, most: int) -> Coordinates | None:
        """At most so many coordinates, or None where rows span more dimensions."""
        rows, exponents = _scaled(X)
        if _rank(rows[:SOME]) > most:
            return None
        rotation = rotate(rows)
        rank = rotation.Z.shape[1]
        if rank > most:
            return None
        Q = rotation.V if rank < X.shape[1] else None
        rows, more = _scaled(rotation.Z)
        errors, exponents = np.ldexp(rotation.rest, -more), exponents + more
        different, group = np.unique(rows + 0.0, axis=0, return_inverse=True)
        return cls(different, group.reshape(-1), exponents, errors, Q, rotation.stretch)

    @property
    def rank(self) -> int:
        return self.rows.shape[1]

    def weighted(self, theta: np.ndarray) -> Weighted:
        """The sum for t = theta (n,)."""
        m, r = self.rows.shape
        fraction, exponent = np.frexp(theta)
        exponent = exponent + self.exponents
        nonzero = np.any(self.rows[self.group] != 0, axis=1) | (self.errors > UNDERFLOW)
        nonzero &= theta != 0
        top = int(np.max(exponent[nonzero], initial=-(2**30)))
        below = np.where(nonzero, np.maximum(exponent - top, -2000), -2000)
        t = np.where(nonzero, np.ldexp(fraction, below), 0.0)
        weights = np.bincount(self.group, t, m)
        sizes = up(np.bincount(self.group, np.abs(t), m), len(t))
        counts = np.bincount(self.group, minlength=m)
        norms = up(np.sqrt(np.sum(self.rows * self.rows, axis=1)), r + 3)
        merging = np.where(counts > 1, 1.01 * (counts + 4) * UNIT, 0.0) * sizes * norms
        lost = float(np.sum(merging)) + float(np.abs(t) @ self.errors)
        extra = up(lost, len(t) + m + 4) + UNDERFLOW * (len(t) + 1) if nonzero.any() else 0.0
        kept = (weights != 0) & np.any(self.rows != 0, axis=1)
        total = up(float(np.abs(weights[kept]) @ norms[kept]), m + 4)
        return Weighted(self.rows[kept], weights[kept], total, extra, top, self.norm)

    def directions(self, U: np.ndarray) -> np.ndarray:
        """Unit vectors (k, d) from directions (k, r)."""
        V = U if self.Q is None else U @ self.Q.T
        return V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), TINY)


def _scaled(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose largest entry is from 1/2 to 1, and the powers of 2 that were taken out."""
    _, exponents = np.frexp(np.max(np.abs(X), axis=1, initial=0.0))
    exponents = exponents.astype(np.int64)
    half = -exponents // 2  # in two steps: a single power of 2 may overflow
    return np.ldexp(np.ldexp(X, half[:, None]), (-exponents - half)[:, None]), exponents


def _rank(rows: np.ndarray) -> int:
    return rotate(rows).Z.shape[1] if len(rows) else 0
