"""The expanded matrix of sparse data, which multiplies with X pattern by pattern."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from cvxnn import budget
from cvxnn.arrays import Array, row_squares
from cvxnn.bits import Bits, Chosen
from cvxnn.operators.dense import ExpandedMatrix

_BLOCK = 2**22  # entries of D U held at a time


class SparseExpandedMatrix(ExpandedMatrix):
    """[D_1 X ... D_p X] for sparse X, in NumPy: the products of X with the weights of many patterns
    at a time, D_i X U_i, or of X' with the residuals of the rows where they are on, X' (D_i R)."""

    def __init__(self, X: csr_array, patterns: Bits | np.ndarray) -> None:
        super().__init__(X, patterns, cache_bytes=0)

    def _forward(self, U: Array) -> np.ndarray:
        U = np.asarray(U, dtype=self.X.dtype)
        C = U.shape[2]
        fit = np.zeros((self.n, C), dtype=self.X.dtype)
        active = np.flatnonzero(np.any(U != 0, axis=(1, 2)))
        for part in self._pattern_blocks(len(active), C):
            weights = U[active[part]].transpose(1, 0, 2)  # (d, patterns, C)
            products = (self.X @ weights.reshape(self.d, -1)).reshape(self.n, -1, C)
            products *= self._switches(active[part])
            fit += products.sum(axis=1)
        return fit

    def _adjoint(self, X: csr_array, R: Array) -> np.ndarray:
        R = np.asarray(R, dtype=X.dtype)
        C = R.shape[1]
        result = np.empty((self.p, self.d, C), dtype=X.dtype)
        for part in self._pattern_blocks(self.p, C):
            residuals = self._switches(part) * R[:, None, :]
            products = X.T @ residuals.reshape(self.n, -1)
            result[part] = products.reshape(self.d, -1, C).transpose(1, 0, 2)
        return result

    def block_norms(self) -> np.ndarray:
        squares, found = row_squares(self.X), np.empty(self.p)
        for part in self._pattern_blocks(self.p, 1):
            found[part] = self.mask_of(part) @ squares
        return np.sqrt(found)

    def _switches(self, patterns: Chosen) -> np.ndarray:
        """Their mask, (n, k, 1)."""
        return np.ascontiguousarray(self.mask_of(patterns).T)[:, :, None]

    def _pattern_blocks(self, p: int, C: int) -> Iterator[slice]:
        moment = budget.PIECE * budget.SPARSE_RATE / max(1, self.X.nnz * C)
        return budget.pieces(p, min(_BLOCK // ((self.n + self.d) * C), int(moment)))
