"""Newton systems in sample space: (diag(h) + sigma M P M') x = r, n equations.

P is the derivative of the prox, (1 - c_b) F_b + c_b q^_b q^_b' for each active block b. For free
blocks (F = I) and M_b = D_b X,

    sigma M P M' = (X X') o (D diag(w) D') + V V',
    w = sigma (1 - c),  V_b = sqrt(sigma c_b) M_b q^_b,

which has no factor d: it is formed at the cost of n^2 |A|, or applied at that of two products with
the active patterns. Faces of narrow cones have one or two dimensions, so there the columns of
M P^(1/2) are few and are formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack

from cvxnn.operators import ExpandedMatrix

# Rates at which the machine does what the systems are made of, in operations a second. Only their
# ratios matter: they choose between ways to the same solution, the same way on every machine.
PRODUCT_RATE, GRAM_RATE, FACTOR_RATE, CALL_COST = 1.2e11, 2.5e11, 5e10, 1e-4
MAX_ITERATIONS = 300  # of conjugate gradients
MAX_DENSE = 8000  # rows for which an n x n matrix is formed
MAX_ENTRIES = 2**26  # of the directions V, or of the columns that span faces
SINGLE_PRECISION = 1e-4  # products for residuals down to this are in float32


@dataclass(frozen=True)
class Linearisation:
    """Where the prox is linearised: the active blocks `on` of the working set, their unit
    vectors (a, d), and the ratios c in (0, 1)."""

    on: np.ndarray
    unit: np.ndarray
    ratio: np.ndarray

    def shrink(self, rows: np.ndarray) -> np.ndarray:
        """(1 - c) r + c <r, q^> q^ for rows r (a, d) that lie in the faces."""
        along = self.ratio * np.einsum("ij,ij->i", rows, self.unit)
        return (1 - self.ratio)[:, None] * rows + along[:, None] * self.unit


class Faces:
    """The faces of cones in which active blocks lie, from the rows they hold tight."""

    def __init__(self, groups: list[tuple[np.ndarray, np.ndarray]], n_blocks: int, d: int) -> None:
        """`groups` are blocks with equally many tight rows: which, and their rows (len, k, d)."""
        self.dimension = np.full(n_blocks, d)
        self._spans = []
        for which, rows in groups:
            if rows.shape[1]:
                self.dimension[which] -= rows.shape[1]
                self._spans.append((which, np.linalg.qr(rows.transpose(0, 2, 1))[0]))

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Rows (a, d), one for each block, projected onto the spans of the faces."""
        result = rows.copy()
        for which, Q in self._spans:
            part = Q.transpose(0, 2, 1) @ result[which][:, :, None]
            result[which] -= (Q @ part)[:, :, 0]
        return result


class System(Protocol):
    def solve(self, r: np.ndarray, tol: float) -> np.ndarray:
        """The solution, to a residual of `tol` ||r|| at most."""
        ...


class FaceSystem:
    """diag(h) + sigma C'C for columns C (R, n), factored: R equations where R < n. These systems
    are too ill-conditioned for a factor in single precision to be of use."""

    def __init__(self, curvature: np.ndarray, sigma: float, columns: np.ndarray) -> None:
        self._root = np.sqrt(curvature)
        columns *= np.sqrt(sigma) / self._root
        self._columns = columns
        R, n = columns.shape
        K = columns @ columns.T if n > R else columns.T @ columns
        K.flat[:: len(K) + 1] += 1
        self._factor = cho_factor(K, overwrite_a=True, check_finite=False)

    def solve(self, r: np.ndarray, tol: float) -> np.ndarray:
        C, r = self._columns, r / self._root
        if len(C) < len(r):
            x = r - C.T @ cho_solve(self._factor, C @ r, check_finite=False)
        else:
            x = cho_solve(self._factor, r, check_finite=False)
        return x / self._root


def factor_single(K: np.ndarray) -> np.ndarray:
    """The Cholesky factor of a symmetric float32 matrix with eigenvalues >= 1, overwritten; the
    diagonal grows until rounding no longer makes it indefinite."""
    diagonal = K.diagonal().copy()
    shift = 1e-6
    while True:
        K.flat[:: len(K) + 1] = diagonal * (1 + shift)
        factor, failed = lapack.spotrf(K.T, lower=0, clean=0)
        if not failed:
            return factor
        shift *= 10


def conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray],
    precondition: Callable[[np.ndarray], np.ndarray],
    r: np.ndarray,
    tol: float,
    max_iter: int,
) -> tuple[np.ndarray, int, bool]:
    """The solution to a residual of tol ||r||, the iterations, and whether they sufficed."""
    x = np.zeros_like(r)
    size = np.linalg.norm(r)
    if size == 0:
        return x, 0, True
    step, rz = np.zeros_like(r), math.inf
    for k in range(1, max_iter + 1):
        z = precondition(r).astype(np.float64)
        rz, before = float(r @ z), rz
        step = z + (rz / before) * step
        product = apply(step)
        curvature = float(step @ product)
        if not (0 < rz < math.inf and 0 < curvature < math.inf):
            return x, k, False  # single precision is exhausted
        x = x + (rz / curvature) * step
        r = r - (rz / curvature) * product
        if np.linalg.norm(r) <= tol * size:
            return x, k, True
    return x, max_iter, False


class ProductSystem:
    """diag(h) + sigma M P M', applied by products with the active patterns, solved by
    preconditioned conjugate gradients.

    The preconditioner is diag + (sum w / 4) X X' + V V' by Woodbury: a pattern holds for half of
    the rows and two for a quarter, so that is the mean of the Hadamard product. It is kept for
    later systems as long as it serves. Where even a new one needs too many iterations, the matrix
    of free blocks is factored in single precision instead.
    """

    def __init__(self, operator: ExpandedMatrix) -> None:
        self.operator = operator
        self._X = operator.X.astype(np.float32)
        self._row_squares = np.einsum("ij,ij->i", operator.X, operator.X)
        self._gram: np.ndarray | None = None
        self._dense = False
        self._preconditioner: Callable[[np.ndarray], np.ndarray] | None = None
        self._count_when_new = 0

    def update(
        self,
        curvature: np.ndarray,
        sigma: float,
        patterns: np.ndarray,
        at: Linearisation,
        faces: Faces | None = None,
    ) -> ProductSystem:
        """The system of these active patterns; without `faces` the blocks are free."""
        self._h, self._sigma, self._patterns, self._at = curvature, sigma, patterns, at
        self._faces = faces
        self._w, self._v = sigma * (1 - at.ratio), sigma * at.ratio
        if faces is not None:
            self._w = self._w * faces.dimension / self.operator.d
        return self

    def solve(self, r: np.ndarray, tol: float) -> np.ndarray:
        n, a, d = self.operator.n, len(self._patterns), self.operator.d
        dtype = np.float32 if tol >= SINGLE_PRECISION else np.float64
        self._restricted = self.operator.select(self._patterns, dtype)
        product = 4 * n * a * d / PRODUCT_RATE + CALL_COST
        cheap = n * (a + d) * (a + 5 * d) / GRAM_RATE
        dense = 2 * n * n * a / GRAM_RATE + n**3 / 3 / FACTOR_RATE
        if self._preconditioner is not None:
            worth = int((dense if self._dense else cheap) / product)
            x, _, done = self._iterate(r, tol, self._count_when_new + max(worth, 3))
            if done:
                return x
        self._preconditioner = None  # before the next one is made: it may be large
        if not self._dense:
            self._preconditioner = self._cheap_preconditioner()
            may_be_dense = self._faces is None and n <= MAX_DENSE
            limit = max(20, int(dense / product)) if may_be_dense else MAX_ITERATIONS
            x, self._count_when_new, done = self._iterate(r, tol, limit)
            if done or not may_be_dense:
                return x
            self._dense = True
        self._preconditioner = self._dense_preconditioner()
        x, self._count_when_new, _ = self._iterate(r, tol, MAX_ITERATIONS)
        return x

    def _iterate(self, r: np.ndarray, tol: float, limit: int) -> tuple[np.ndarray, int, bool]:
        assert self._preconditioner is not None
        return conjugate_gradients(self._apply, self._preconditioner, r, tol, limit)

    def _apply(self, x: np.ndarray) -> np.ndarray:
        rows = self._restricted.adjoint(x[:, None])[:, :, 0]
        if self._faces is not None:
            rows = self._faces.project(rows)
        rows = self._sigma * self._at.shrink(rows)
        return self._h * x + self._restricted.forward(rows[:, :, None])[:, 0]

    def _directions(self, blocks: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """V' (a, n) and the mask of its patterns (a, n), for some of the active blocks."""
        mask = self.operator.mask_by_pattern[self._patterns[blocks]]
        scaled = self._at.unit[blocks] * np.sqrt(self._v[blocks])[:, None]
        V = scaled.astype(np.float32) @ self._X.T
        V *= mask
        return V, mask

    def _cheap_preconditioner(self) -> Callable[[np.ndarray], np.ndarray]:
        most = max(MAX_ENTRIES // self.operator.n, 1)
        blocks = np.sort(np.argsort(-self._v, kind="stable")[:most])
        V, mask = self._directions(blocks)
        mean = self._w.sum() / 4
        diagonal = self._w[blocks].astype(np.float32) @ mask - mean
        root = np.sqrt(self._h + np.maximum(diagonal, 0) * self._row_squares).astype(np.float32)
        V = np.concatenate([V, np.float32(np.sqrt(mean)) * self._X.T])
        V /= root
        K = V @ V.T
        K.flat[:: len(K) + 1] += 1
        factor = factor_single(K)

        def apply(r: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):  # wide kernels of a BLAS may raise flags for nothing
                r = r.astype(np.float32) / root
                return (r - lapack.spotrs(factor, V @ r, lower=0)[0] @ V) / root

        return apply

    def _dense_preconditioner(self) -> Callable[[np.ndarray], np.ndarray]:
        if self._gram is None:
            self._gram = self._X @ self._X.T
        V, mask = self._directions(slice(None))
        D = mask * np.sqrt(self._w).astype(np.float32)[:, None]
        K = D.T @ D
        K *= self._gram
        K += V.T @ V
        root = np.sqrt(self._h).astype(np.float32)
        K /= root
        K /= root[:, None]
        K.flat[:: len(K) + 1] += 1
        factor = factor_single(K)

        def apply(r: np.ndarray) -> np.ndarray:
            return lapack.spotrs(factor, r.astype(np.float32) / root, lower=0)[0] / root

        return apply
