"""The span of sparse rows of unit norm, through their Gram matrix.

Where features are many, a cone may have as many active rows as there are samples, each of them with
few entries. Projections onto their span need solutions of A A'z = r: by conjugate gradients, which
take no memory and few steps if the rows are nearly orthogonal, and otherwise by a Cholesky factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxnn import budget, panels
from cvxnn.arrays import divide_rows
from cvxnn.threads import cached_property

FEW_ROWS = 100  # for which a factor costs next to nothing
FEW_COLUMNS = 500  # for which the rows, which are no more, are made dense
MAX_ITERATIONS = 60  # of conjugate gradients
RIDGE = 1e-13  # on the diagonal of Gram matrices


class Span:
    """Some of the unit rows of a sparse X as A (k, d), and solutions of A A'z = r."""

    def __init__(self, X: Any, rows: np.ndarray, signs: np.ndarray | None = None) -> None:
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
