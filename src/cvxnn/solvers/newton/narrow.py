"""Bases of faces with few dimensions, such as those of narrow cones."""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from cvxnn import budget
from cvxnn.cones.cones import Cones
from cvxnn.cones.factors import KeptFactors
from cvxnn.threads import cached_property

WIDE = 64  # features from which on bases are found one by one
WELL_CONDITIONED = 0.05  # the least distance of a row from those before it


class NarrowFaces:
    """Bases of faces with few dimensions, found one by one and kept while the tight rows stay the
    same. A QR factorisation of all tight rows would take several times as long; `factors` are
    those that projections have left behind."""

    def __init__(self, cones: Cones, factors: KeptFactors) -> None:
        self.cones, self.factors = cones, factors
        self._kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @cached_property
    def _random(self) -> np.ndarray:
        d = self.cones.d
        return np.random.default_rng(0).standard_normal((d, d // 2))

    def of(self, blocks: np.ndarray, rows: np.ndarray, count: np.ndarray) -> dict[int, np.ndarray]:
        """Orthonormal bases (m, d) of those faces that are narrow, by the place of their blocks in
        the list, from the tight rows (a, some) and how many of them there are, (a,)."""
        d = self.cones.d
        if d < WIDE:
            return {}
        narrow = np.flatnonzero((2 * (d - count) <= count) & (count < d))
        return {b: self._of(int(blocks[b]), rows[b, : count[b]]) for b in narrow.tolist()}

    def _of(self, block: int, tight: np.ndarray) -> np.ndarray:
        budget.look()
        ordered = np.sort(tight)
        before, basis = self._kept.get(block, (tight[:0], None))
        if basis is None or not np.array_equal(before, ordered):
            signs = self.cones.signs[block % self.cones.p, tight]
            A = self.cones.X[tight] * signs[:, None]
            basis = _complement(A, self._random, self.factors.factor(block, tight)).T
            self._kept[block] = ordered, basis
        return basis


def _complement(A: np.ndarray, random: np.ndarray, packed: np.ndarray | None = None) -> np.ndarray:
    """An orthonormal basis (d, d - k) of what is orthogonal to the unit rows of A (k, d), k close
    to d: of `random` vectors (d, some), what is left of them outside the span of the rows. The
    factor of their Gram matrix is made unless it is given, packed."""
    k, d = A.shape
    if packed is not None:
        upper = lapack.dtpttr(k, packed)[0]
    else:
        upper, info = lapack.dpotrf(blas.dsyrk(1.0, A.T, trans=1), overwrite_a=1)
        if info:
            return np.linalg.qr(A.T, mode="complete")[0][:, k:]
    outside = random[:, : d - k]
    # the Gram matrix squares the condition number, of which its diagonal gives an idea
    for _ in range(1 if upper.diagonal().min() > WELL_CONDITIONED else 2):
        outside = outside - A.T @ lapack.dpotrs(upper, A @ outside)[0]
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
