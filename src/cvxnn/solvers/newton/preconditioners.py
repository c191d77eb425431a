"""What conjugate gradients on Newton systems are preconditioned by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxnn import panels
from cvxnn.ranks import ALONE, Ranks

MAX_KEPT = 2**24  # numbers of a preconditioner that is kept in any case


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """In single precision: the inverse of the matrix whose Cholesky factor is given or, with a root
    (n,) and V (R, n), that of D (I + V'V) D for D = diag(root), by Woodbury's formula with the
    factor of I + V V'."""

    factor: np.ndarray
    root: np.ndarray | None = None
    V: np.ndarray | None = None
    across: Ranks = ALONE  # that have the other columns of V

    @property
    def is_large(self) -> bool:
        """Too large for an output to keep while others have their turn."""
        return self.factor.size + (0 if self.V is None else self.V.size) > MAX_KEPT

    def __call__(self, r: np.ndarray) -> np.ndarray:
        if self.root is None or self.V is None:
            return panels.cholesky_solve(self.factor, r)
        with np.errstate(all="ignore"):  # wide kernels of a BLAS may raise flags for nothing
            r = r.astype(np.float32) / self.root
            along = self.across.sum(self.V @ r).astype(np.float32, copy=False)
            return (r - panels.cholesky_solve(self.factor, along) @ self.V) / self.root


def factor_shifted(K: np.ndarray) -> np.ndarray:
    """The Cholesky factor of a positive definite matrix; the diagonal grows until rounding no
    longer makes it indefinite."""
    diagonal = K.diagonal().copy()
    shift = 1e-6 if K.dtype == np.float32 else 1e-14
    while shift < 1.0:
        K.flat[:: len(K) + 1] = diagonal * (1 + shift)
        factor = panels.cholesky(K.copy())
        if factor is not None:
            return factor
        shift *= 10
    raise np.linalg.LinAlgError("a matrix of a Newton system is far from positive definite")
