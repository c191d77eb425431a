"""Products with a few rows of the expanded matrix at a time, for methods that sample them.

Weights are (C, p, d), class after class, in single precision: what is read and written stands side
by side. A batch is gathered from X and from the bits of its rows; both are small beside a product.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cvxnn import budget
from cvxnn.kernels import native


class Batch(Protocol):
    """Some rows of M, class by class."""

    def forward(self, U: np.ndarray) -> np.ndarray:
        """Weights (C, p, d) to predictions (rows, C)."""

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        """Residuals (rows, C) to correlations (C, p, d)."""


class BitBatch:
    """Products by the compiled kernels; `columns` (ceil(p / 32), rows) are the bits."""

    def __init__(self, X: np.ndarray, columns: np.ndarray, p: int, share: float) -> None:
        self._X, self._columns, self._p = X, columns, p
        self._share = share  # of a pass over all rows

    def forward(self, U: np.ndarray) -> np.ndarray:
        C, p, d = U.shape
        # the kernel takes bits for each class; to repeat them is cheaper than weights (p, d, C)
        with budget.product(forward=self._share):
            return native.ragged_forward(
                np.concatenate([self._columns] * C),
                np.arange(C + 1) * p,
                self._X,
                U.reshape(C * p, d),
            ).T

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        rows = native.transpose_bits(self._columns, self._p)
        with budget.product(adjoint=self._share):
            return native.expanded_adjoint(rows, self._X, R).transpose(2, 0, 1)


class MaskBatch:
    """Products by the BLAS; `mask` (rows, p) holds floating numbers."""

    def __init__(self, X: np.ndarray, mask: np.ndarray, share: float) -> None:
        self._X, self._mask, self._share = X, mask, share

    def forward(self, U: np.ndarray) -> np.ndarray:
        with budget.product(forward=self._share):
            sums = np.matmul(self._mask, U)  # (C, rows, d)
            return np.einsum("kbj,bj->bk", sums, self._X)

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        with budget.product(adjoint=self._share):
            scaled = R.T[:, :, None] * self._X
            return np.matmul(self._mask.T, scaled.astype(self._X.dtype))
