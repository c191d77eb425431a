"""Leaves of a tree of cones, proven many at a time.

On the cone of vertices v_j, and for any numbers s_i in [0, 1],

    F(sum_j alpha_j v_j)  <=  sum_j alpha_j (b_j + g v_j),    F(u) = l u + sum_i t_i (z_i u)_+
    b_j = l v_j + sum_{t_i > 0} t_i (z_i v_j)_+,    g = sum_{t_i < 0} s_i t_i z_i,

so the leaf is proven by a vector w with w v_j >= b_j + g v_j for all j, and ||w|| at most the
threshold. These w are the points g + x + sum_j gamma_j d_j with gamma >= 0, where V x = b and d_j
are the columns of V^-1. A short one is found by Wolfe's algorithm: g is a convex combination of
atoms, those of s_i = 1 where z_i w > 0, and enters with the rays d_j into the non-negative least
squares that are equivalent to it. Floating-point numbers find w. Then the inequalities are checked
with a bound on every rounding error, and w is moved into them along the middle of the cone where it
missed them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from cvxnn.rounding import slack, up

BLOCK = 1024  # rows that are summed up in one product
STEPS = 40  # entries into the least squares of a leaf
_CLOSE = 2.0**-36  # a norm this much below the threshold is checked
_ZERO = 1e-13


@dataclass(frozen=True, eq=False)
class Rows:
    """F on a cone: rows whose signs are not decided there, and the sum of the others.

    positive, negative : (m, r), rows with t_i > 0 and t_i < 0, times |t_i|.
    linear : (r,), l.
    error : above what values of F, b and g v may be off by, for a v of length 1; half of that
        which is charged.
    """

    positive: np.ndarray
    negative: np.ndarray
    linear: np.ndarray
    error: float

    @property
    def n_open(self) -> int:
        return len(self.positive) + len(self.negative)

    def at(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b and the terms of negative weight at V (k, r): F is their difference."""
        plus, minus = (_relu_sums(rows, V) for rows in (self.positive, self.negative))
        return V @ self.linear + plus, minus

    def atoms(self, W: np.ndarray) -> np.ndarray:
        """g (r, k) of s_i = 1 where z_i w > 0, for the columns w of W (r, k)."""
        total = np.zeros(W.shape)
        for start in range(0, len(self.negative), BLOCK):
            rows = self.negative[start : start + BLOCK]
            total -= rows.T @ (rows @ W > 0).astype(np.float64)
        return total


def _relu_sums(rows: np.ndarray, V: np.ndarray) -> np.ndarray:
    total = np.zeros(len(V))
    for start in range(0, len(rows), BLOCK):
        heights = V @ rows[start : start + BLOCK].T
        total += np.maximum(heights, 0.0, out=heights).sum(axis=1)
    return total


def roundings(n: int, rank: int) -> int:
    """More than the roundings that a term of F, b or g v goes through, for n rows: one for t_i z_i,
    r for each product with a vertex or of coefficients and atoms, those of a sum of blocks, and for
    the linear part those of sums by halves, one for each time that rows were decided."""
    return min(n, BLOCK) + n // BLOCK + 3 * rank + 160


@np.errstate(all="ignore")
def prove(V: np.ndarray, b: np.ndarray, rows: Rows, threshold: float) -> np.ndarray:
    """Which leaves are proven, for vertices V (L, r, r) and b (L, r) at them."""
    proven = np.zeros(len(V), dtype=bool)
    search, left = _Wolfe.of(V, b, rows, threshold), np.arange(len(V))
    for _ in range(STEPS):
        going = np.ones(len(left), dtype=bool)
        tried = np.flatnonzero(search.norms() <= threshold * (1 - _CLOSE))
        if len(tried):
            holds = _holds(search.some(tried), rows, threshold)
            proven[left[tried[holds]]] = True
            going[tried[holds]] = False
            search, left = search.some(np.flatnonzero(going)), left[going]
        if not len(left):
            break
        going = search.step(rows, threshold)
        if not going.all():
            search, left = search.some(np.flatnonzero(going)), left[going]
    return proven


@dataclass(eq=False)
class _Wolfe:
    """The search for a short w in each leaf. Leaves are the last axis of all arrays, so that sums
    over the others are sums of long vectors.

    V, b : (r, r, L) and (r, L), vertices and b at them.
    apex : (r, L), x with V x = b; rays : (r, r, L), the unit vectors along d_j.
    columns : (k, r + 1, L), in k slots, the atoms in use, (g + x, threshold), and rays, (d_j, 0),
        over their lengths.
    atoms : (k, r, L), the g of atoms.
    gram : (k, k, L), the products of columns.
    share : (k, L), their coefficients, 0 where a slot is free.
    point : (r, L), w.
    """

    V: np.ndarray
    b: np.ndarray
    apex: np.ndarray
    rays: np.ndarray
    columns: np.ndarray
    atoms: np.ndarray
    gram: np.ndarray
    share: np.ndarray
    point: np.ndarray

    @classmethod
    def of(cls, V: np.ndarray, b: np.ndarray, rows: Rows, threshold: float) -> _Wolfe:
        L, r, _ = V.shape
        inverse = np.ascontiguousarray(np.moveaxis(_inverses(V), 0, 2))
        V, b = np.ascontiguousarray(np.moveaxis(V, 0, 2)), np.ascontiguousarray(b.T)
        apex = np.sum(inverse * b, axis=1)
        rays = np.swapaxes(inverse, 0, 1)
        rays = rays / np.sqrt(np.sum(rays * rays, axis=1))[:, None]
        k = r + 2
        columns, atoms = np.zeros((k, r + 1, L)), np.zeros((k, r, L))
        found = cls(V, b, apex, rays, columns, atoms, np.zeros((k, k, L)), np.zeros((k, L)), apex)
        first = rows.atoms(np.mean(V, axis=0))
        found._enter(np.zeros(L, dtype=int), first + apex, np.full(L, threshold), first)
        found.share[0], found.point = 1.0, first + apex
        return found

    def some(self, index: np.ndarray) -> _Wolfe:
        return _Wolfe(*(part.take(index, axis=-1) for part in vars(self).values()))

    def norms(self) -> np.ndarray:
        return np.sqrt(np.sum(self.point * self.point, axis=0))

    def weights(self) -> np.ndarray:
        """The coefficients (k, L) of the atoms, with a sum of 1 at most."""
        share = self.share * self.columns[:, -1]
        return share / np.sum(share, axis=0) * (1 - 2.0**-44)

    def step(self, rows: Rows, threshold: float) -> np.ndarray:
        """Let a ray or an atom into each; which of them can still come below the threshold."""
        r, L = self.point.shape
        norms = self.norms()
        along = np.sum(self.rays * self.point, axis=1)
        ray = np.argmin(along, axis=0)
        entering = np.take_along_axis(self.rays, ray[None, None], axis=0)[0]
        height, atom, going = np.zeros(L), np.zeros((r, L)), np.ones(L, dtype=bool)
        others = np.flatnonzero(~(np.min(along, axis=0) < -_ZERO * norms))
        if len(others):
            point, size = self.point[:, others], norms[others]
            g = rows.atoms(point)
            column = g + self.apex[:, others]
            reach = np.sum(column * point, axis=0)
            # no w of this leaf is shorter than reach / norm
            going[others] = (reach <= threshold * size) & (reach < size**2 * (1 - _ZERO))
            entering[:, others], height[others], atom[:, others] = column, threshold, g
        free = np.argmin(self.share != 0, axis=0)
        self._enter(free, entering, height, atom)
        self._correct(free, threshold)
        return going & (self.norms() <= norms * (1 + 1e-9))

    def _enter(
        self, slot: np.ndarray, column: np.ndarray, height: np.ndarray, atom: np.ndarray
    ) -> None:
        line, r = np.arange(len(slot)), len(column)
        length = np.sqrt(np.sum(column * column, axis=0) + height * height)
        self.columns[slot, :r, line] = (column / length).T
        self.columns[slot, r, line] = height / length
        self.atoms[slot, :, line] = atom.T
        products = np.sum(self.columns * self.columns[slot, :, line].T, axis=1)
        self.gram[slot, :, line] = products.T
        self.gram[:, slot, line] = products

    def _correct(self, free: np.ndarray, threshold: float) -> None:
        """The best non-negative coefficients of the columns in use (Lawson and Hanson)."""
        k, L = self.share.shape
        used, left = self.share != 0, np.arange(L)
        used[free, np.arange(L)] = True
        gram, mask, now, right = self.gram, used, self.share, self.columns[:, -1]
        for _ in range(k):
            system = gram * (mask[:, None] & mask)
            system[np.arange(k), np.arange(k)] += np.where(mask, 1e-15, 1.0)
            best = _eliminated(system, right * mask)
            short = mask & ~(best > 0)
            step = np.min(np.where(short, now / (now - best), 1.0), axis=0)
            moved = now + step * (best - now)
            moved[short & ~(moved > _ZERO * np.max(moved, axis=0))] = 0.0
            moved[~mask] = 0.0
            self.share[:, left] = moved
            wrong = np.flatnonzero(short.any(axis=0))
            if not len(wrong):
                break
            left, now = left[wrong], moved[:, wrong]
            gram, mask, right = gram.take(wrong, axis=-1), now != 0, right[:, wrong]
        total = np.sum(self.share[:, None] * self.columns, axis=0)
        self.point = total[:-1] * (threshold / total[-1])


def _inverses(V: np.ndarray) -> np.ndarray:
    """The inverses of (L, r, r); NaN where there is none."""
    try:
        return np.linalg.inv(V)
    except np.linalg.LinAlgError:  # one of them is singular
        found = np.full(V.shape, np.nan)
        for k, matrix in enumerate(V):
            with suppress(np.linalg.LinAlgError):
                found[k] = np.linalg.inv(matrix)
        return found


def _eliminated(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The x (k, L) of A x = y for positive definite A (k, k, L); both are overwritten."""
    k = len(A)
    for j in range(k - 1):
        factors = A[j + 1 :, j] / A[j, j]
        A[j + 1 :, j + 1 :] -= factors[:, None] * A[j, j + 1 :]
        y[j + 1 :] -= factors * y[j]
    for j in reversed(range(k)):
        y[j] = (y[j] - np.sum(A[j, j + 1 :] * y[j + 1 :], axis=0)) / A[j, j]
    return y


def _holds(found: _Wolfe, rows: Rows, threshold: float) -> np.ndarray:
    """Whether w proves its leaf, with a bound on every rounding error."""
    V, w, r = found.V, found.point, len(found.b)
    g = np.sum(found.weights()[:, None] * found.atoms, axis=0)
    lengths = up(np.sqrt(np.sum(V * V, axis=1)), r + 3)
    needed = found.b + np.sum(V * g, axis=1) + up(2 * rows.error, 1) * lengths
    axis = np.mean(V / lengths[:, None], axis=0)
    along = np.sum(V * axis, axis=1)
    for _ in range(2):
        size = up(np.sqrt(np.sum(w * w, axis=0)), r + 3)
        reached = np.sum(V * w, axis=1) - slack(2 * r + 8) * size * lengths
        missing = needed + slack(4) * (np.abs(needed) + size * lengths) - reached
        fits = np.all(missing <= 0, axis=0) & np.all(along > 0, axis=0)
        room = slack(64) * (np.abs(needed) + size * lengths)  # for what rounds after it
        move = np.max(np.maximum(missing + room, 0.0) / along, axis=0) * (1 + 2.0**-20)
        w = np.where(fits, w, w + move * axis)
    return fits & (size <= threshold)
