"""Cones of sparse rows: spans of such rows, through their Gram matrix, and projections.

Where features are many, a cone may have as many active rows as there are samples, each of them with
few entries. Projections onto their span need solutions of A A'z = r: by conjugate gradients, which
take no memory and few steps if the rows are nearly orthogonal, and otherwise by a Cholesky factor.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from cvxnn import budget, panels
from cvxnn.arrays import divide_rows
from cvxnn.cones.interiors import TIE
from cvxnn.cones.projection import TOLERANCE, ZERO
from cvxnn.threads import cached_property

MAX_STEPS = 1000  # of a projection; each adds many rows
FEW_ROWS = 100  # for which a factor costs next to nothing
FEW_COLUMNS = 500  # for which the rows, which are no more, are made dense
MAX_ITERATIONS = 60  # of conjugate gradients
RIDGE = 1e-13  # on the diagonal of Gram matrices


class Span:
    """Some of the unit rows of a sparse X as A (k, d), and solutions of A A'z = r."""

    def __init__(self, X: csr_array, rows: np.ndarray, signs: np.ndarray | None = None) -> None:
        few_columns = X.shape[1] <= FEW_COLUMNS
        A = X[rows].toarray() if few_columns else X[rows]
        self.A = A if signs is None else divide_rows(A, signs[rows].astype(float))
        self._transposed = self.A.T
        self.factored = few_columns or len(rows) <= FEW_ROWS

    def __len__(self) -> int:
        return self.A.shape[0]

    def combine(self, z: np.ndarray) -> np.ndarray:
        """A'z."""
        return self._transposed @ z

    def remove(self, x: np.ndarray) -> np.ndarray:
        """What is left of x (d,) or (d, m) outside the span."""
        for _ in range(2):  # the Gram matrix squares the condition number
            x = x - self.combine(self.solve(self.A @ x, 1e-4))
        return x

    def solve(self, r: np.ndarray, tol: float) -> np.ndarray:
        """z for r (k,) or (k, m), to a residual of `tol` ||r|| or rounding."""
        if not self.factored and r.ndim == 1:
            z, self.factored = self._iterate(r, tol)
            if not self.factored:
                return z
        return panels.cholesky_solve(self._factor[0], r) if len(r) else r

    def independent(self) -> np.ndarray:
        """Which rows are not in the span of those before them, up to rounding: (k,) boolean."""
        factor, ridge = self._factor
        return factor.diagonal() ** 2 > 10 * ridge

    def _iterate(self, r: np.ndarray, tol: float) -> tuple[np.ndarray, bool]:
        """z by conjugate gradients, and whether they failed."""
        z = np.zeros_like(r)
        square = float(r @ r)
        enough = tol * tol * square
        step = r
        for _ in range(MAX_ITERATIONS):
            budget.look()
            if square <= enough:
                return z, False
            product = self.A @ self.combine(step)
            curvature = float(step @ product)
            if not curvature > 0:  # underflow
                break
            length = square / curvature
            z = z + length * step
            r = r - length * product
            before, square = square, float(r @ r)
            step = r + (square / before) * step
        return z, square > enough

    @cached_property
    def _factor(self) -> tuple[np.ndarray, float]:
        """The lower Cholesky factor of A A', and the ridge that rounding makes necessary."""
        K, ridge = panels.gram(self.A), RIDGE
        diagonal = K.diagonal().copy()
        while True:
            K.flat[:: len(K) + 1] = diagonal + ridge
            factor = panels.cholesky(K.copy())
            if factor is not None:
                return factor, ridge
            ridge *= 10


class SparseProjection:
    """The active-set iteration for one point and sparse rows, without offsets.

    A product with all rows costs little here and there may be as many active rows as samples, so
    many violated rows are added at once. Every step shortens w = x + X~'gamma, so that no active
    set comes twice.
    """

    def __init__(self, X: csr_array, signs: np.ndarray, point: np.ndarray) -> None:
        self.X, self.signs, self.point = X, signs, point
        self.scale = float(np.linalg.norm(point))

    def run(self, start: np.ndarray, enough: float, max_rows: int) -> np.ndarray:
        """The projection; `rows` and `gamma` are then its active rows and their multipliers."""
        d = self.X.shape[1]
        banned = np.zeros(0, dtype=np.int64)  # rows just rejected, until the active set moves
        self._set_rows(start, np.zeros(len(start)))
        w = self._settle()
        for _ in range(MAX_STEPS):
            budget.look()
            size = float(np.linalg.norm(w))
            if size <= ZERO * self.scale or (len(self.rows) >= d and size <= TIE * self.scale):
                return np.zeros_like(w)
            if size <= enough or max_rows <= 0 or len(self.rows) >= d:
                break
            residual = self.signs * (self.X @ w)
            residual[self.rows] = residual[banned] = 0.0
            violated = np.flatnonzero(residual < -TOLERANCE * self.scale)
            if len(violated) == 0:
                break
            many = min(max(1, (d - len(self.rows)) // 4), max_rows)
            new = violated[np.argsort(residual[violated], kind="stable")[:many]]
            before, max_rows = self.rows, max_rows - len(new)
            w = self._add(new)
            unmoved = np.array_equal(self.rows, before)
            banned = np.concatenate([banned, new]) if unmoved else banned[:0]
        return w

    def _set_rows(self, rows: np.ndarray, gamma: np.ndarray) -> None:
        self.rows, self.gamma = rows, gamma
        self._span = Span(self.X, rows, self.signs)

    def _add(self, new: np.ndarray) -> np.ndarray:
        """The point of the active rows and of these; those that depend on others are left out."""
        k, added = len(self.rows), np.zeros(len(new))
        self._set_rows(np.append(self.rows, new), np.append(self.gamma, added))
        if self._span.factored:
            kept = self._span.independent()
            kept[:k] = True
            if not kept.all():
                self._set_rows(self.rows[kept], self.gamma[kept])
        return self._settle()

    def _settle(self) -> np.ndarray:
        """The w that is tight on the active rows, after those whose multipliers would not be
        positive were dropped: all of them where that shortens w, else the first to vanish."""
        size = np.linalg.norm(self._reached(self.gamma))
        while True:
            z, w = self._tight()
            bad = z <= 0
            if not bad.any():
                self.gamma = z
                return w
            clipped = np.where(bad, 0.0, z)
            clipped_size = np.linalg.norm(self._reached(clipped))
            if clipped_size < size:
                gamma, size = clipped, clipped_size
            else:
                ratio = self.gamma[bad] / np.maximum(self.gamma[bad] - z[bad], 1e-300)
                step = min(float(ratio.min()), 1.0)
                bad[bad] = ratio <= step * (1 + 1e-12)
                gamma = np.maximum(self.gamma + step * (z - self.gamma), 0.0)
                gamma[bad] = 0.0
                size = np.linalg.norm(self._reached(gamma))
            self._set_rows(self.rows[~bad], gamma[~bad])

    def _tight(self) -> tuple[np.ndarray, np.ndarray]:
        """The multipliers with which the active rows are tight, and w. They are refined, since the
        Gram matrix squares the condition number, unless one of them is not positive anyway."""
        z = self.gamma
        for _ in range(4):
            w = self._reached(z)
            short = self._span.A @ w
            if np.abs(short).max(initial=0.0) <= 0.01 * TOLERANCE * self.scale:
                break
            z = z - self._span.solve(short, 1e-5)
            if (z <= 0).any():
                break
        return z, self._reached(z)

    def _reached(self, gamma: np.ndarray) -> np.ndarray:
        """x + X~'gamma."""
        return self.point + self._span.combine(gamma)
