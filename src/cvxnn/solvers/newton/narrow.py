"""Bases of faces with few dimensions, such as those of narrow cones."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from cvxnn import budget
from cvxnn.threads import cached_property

WIDE = 64  # features from which on bases are found one by one
WELL_CONDITIONED = 0.05  # the least distance of a row from those before it


class NarrowFaces:
    """Bases of faces with few dimensions, found one by one and kept while the tight rows stay the
    same. A QR factorisation of all tight rows would take several times as long."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def _random(self) -> np.ndarray:
        d = self.X.shape[1]
        return np.random.default_rng(0).standard_normal((d, d // 2))

    def holds(self, k: int) -> bool:
        """Whether faces with so many tight rows are for here."""
        d = self.X.shape[1]
        return d >= WIDE and 2 * (d - k) <= k < d

    def of(self, blocks: list[int], rows: np.ndarray) -> np.ndarray:
        """Orthonormal bases (len, d, m) of the blocks' faces, from their tight rows (len, k)."""
        bases = []
        for block, tight in zip(blocks, np.sort(rows, axis=1), strict=True):
            budget.look()
            before, basis = self._kept.get(block, (rows[:0], rows[:0]))
            if not np.array_equal(before, tight):
                basis = _complement(self.X[tight], self._random)
                self._kept[block] = tight, basis
            bases.append(basis)
        return np.stack(bases)


def _complement(A: np.ndarray, random: np.ndarray) -> np.ndarray:
    """An orthonormal basis (d, d - k) of what is orthogonal to the unit rows of A (k, d), k close
    to d: of `random` vectors (d, some), what is left of them outside the span of the rows."""
    k, d = A.shape
    factor, info = lapack.dpotrf(blas.dsyrk(1.0, A.T, trans=1, lower=1), lower=1, overwrite_a=1)
    if info:
        return np.linalg.qr(A.T, mode="complete")[0][:, k:]
    outside = random[:, : d - k]
    # the Gram matrix squares the condition number, of which its diagonal gives an idea
    for _ in range(1 if factor.diagonal().min() > WELL_CONDITIONED else 2):
        outside = outside - A.T @ lapack.dpotrs(factor, A @ outside, lower=1)[0]
    return _orthonormal(outside)


def _orthonormal(V: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what the columns of V span, by two Cholesky factors: a QR
    factorisation of so few columns takes several times as long."""
    for _ in range(2):
        upper, info = lapack.dpotrf(V.T @ V)
        if info:
            return np.linalg.qr(V)[0]
        V = blas.dtrsm(1.0, upper, V, side=1)
    return V
