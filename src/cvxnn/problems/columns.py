"""Fewer columns for the same problem: X = Z V' with orthonormal columns V (d, n), Z (n, n).

Where rows are fewer than columns, weights outside the span of the rows change no prediction and
only cost norm. So U = V W, with [D_1 X ... D_p X] U = [D_1 Z ... D_p Z] W, the same norms, the same
patterns and, for cones, the same constraints: who solves for W has solved for U. Dual points are
the same, and so are the norms of their correlations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import qr, solve_triangular

from cvxnn import budget, panels
from cvxnn.arrays import Array, Matrix, is_sparse, to_numpy

RIDGE = 1e-14  # of the products of sparse rows with each other, so that they can be factored
PASSES = 100  # that a run is expected to make
MAX_SPARSE_ROWS = 5000  # of which all products with each other are formed


class FewerColumns:
    """The coordinates of weights in the span of the rows. V is formed for dense rows only; for
    sparse ones it is X'L^-T, with L L' = X X'."""

    Z: np.ndarray

    @staticmethod
    def pays(n: int, d: int, p: int, C: int, *, sparse: bool) -> bool:
        """Whether the factorization costs less than it saves, in the time that there is."""
        if sparse:
            return d > 2 * n and n <= MAX_SPARSE_ROWS and budget.allows(n**3 / 3 / budget.RATE)
        work, saved = 4 * d * n * n, PASSES * n * p * C * (d - n)
        return 4 * d > 5 * n and saved > work and budget.allows(work / budget.RATE)

    def __init__(self, X: Array) -> None:
        self._X: Matrix | None = None
        data = to_numpy(X, keep_sparse=True).astype(np.float64)
        n, d = data.shape
        if is_sparse(data):
            budget.doing(f"factoring the products of {n} rows with each other", n**3 / budget.RATE)
            K = panels.gram(data)
            K.flat[:: n + 1] += RIDGE * max(float(np.trace(K)), 1e-300)
            factor = panels.cholesky(K)
            if factor is None:
                raise np.linalg.LinAlgError("the rows cannot be factored")
            self.Z, self._X = np.tril(factor), data
        else:
            budget.doing(f"factoring {n} x {d} numbers", 4 * d * n * n / budget.RATE)
            self._V, R = qr(data.T, mode="economic", check_finite=False)
            self.Z = np.ascontiguousarray(R.T)

    def restore(self, W: np.ndarray) -> np.ndarray:
        """V W, block by block: (m, n, C) -> (m, d, C)."""
        return _by_block(W, self._times_V)

    def reduce(self, U: np.ndarray) -> np.ndarray:
        """V'U, block by block: (m, d, C) -> (m, n, C)."""
        return _by_block(U, self.coordinates)

    def coordinates(self, columns: np.ndarray) -> np.ndarray:
        """V' times vectors: (d, k) -> (n, k)."""
        if self._X is None:
            return self._V.T @ columns
        return solve_triangular(self.Z, self._X @ columns, lower=True)

    def _times_V(self, columns: np.ndarray) -> np.ndarray:
        if self._X is None:
            return self._V @ columns
        return self._X.T @ solve_triangular(self.Z, columns, lower=True, trans="T")


def _by_block(U: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A function of columns, applied to the blocks that are not zero."""
    m, _, C = U.shape
    rows = U.transpose(0, 2, 1).reshape(m * C, -1)
    live = np.flatnonzero(np.any(rows != 0, axis=1))
    found = function(np.ascontiguousarray(rows[live].T))
    result = np.zeros((m * C, len(found)))
    result[live] = found.T
    return np.ascontiguousarray(result.reshape(m, C, -1).transpose(0, 2, 1))
