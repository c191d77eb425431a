"""Least squares with the expanded matrix, without forming it.

Two ways to min_U ||M U - B||^2 + shift ||U||^2: through the eigen-decomposition of the n x n
kernel M M', whose size does not depend on p and d, or by LSMR where n is too large for that.
Both also split R^n into range(M) and its complement, which certificates at lam = 0 need.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from cvxnn import budget
from cvxnn.arrays import Array, divide_columns, like, to_numpy
from cvxnn.operators.base import PatternOperator
from cvxnn.patterns import column_norms

MAX_KERNEL_ROWS = 5000  # an n x n eigen-decomposition: 200 MB and half a minute at this size
EIGEN_WORK = 10  # operations of an eigen-decomposition for each n^3, and of a singular one
MAX_FACTOR_WORK = 2 * 10**10  # n^2 p d, of factorizations of M' in pieces: some seconds


class KernelFactor:
    """M M' = Q diag(values) Q', cut at the numerical rank."""

    @staticmethod
    def fits(n: int) -> bool:
        """Whether a kernel of n rows may be factored, in the time that there is."""
        return n <= MAX_KERNEL_ROWS and budget.allows(KernelFactor.seconds(n))

    @staticmethod
    def seconds(n: int) -> float:
        return EIGEN_WORK * n**3 / budget.RATE

    def __init__(self, operator: PatternOperator) -> None:
        self.operator = operator
        n = operator.n
        budget.doing(f"factoring a kernel of {n} x {n} numbers", KernelFactor.seconds(n))
        values, vectors = np.linalg.eigh(to_numpy(operator.kernel()))
        # eigenvalues below this are rounding: dividing by them would give noise
        kept = values > max(values[-1], 0.0) * len(values) * np.finfo(np.float64).eps
        self.values, self.range_basis = values[kept], vectors[:, kept]

    def solve(self, B: Array, shift: float, refinements: int = 2) -> Array:
        """The minimum-norm minimiser U = M'(M M' + shift I)^+ B. Refinement takes back what
        squaring the condition number costs."""
        alpha = np.zeros(B.shape)
        for _ in range(refinements + 1):
            U = self.operator.adjoint(like(B, alpha))
            residual = to_numpy(B - self.operator.forward(U)) - shift * alpha
            alpha = alpha + self._apply_inverse(residual, shift)
        U = self.operator.adjoint(like(B, alpha))
        return U

    def _apply_inverse(self, B: np.ndarray, shift: float) -> np.ndarray:
        Q = self.range_basis
        return Q @ ((Q.T @ B) / (self.values + shift)[:, None])


def lsmr_solve(
    operator: PatternOperator, B: Array, shift: float, *, tol: float, max_iter: int
) -> tuple[Array, int]:
    """The minimiser by LSMR, one column of B at a time, and the number of iterations."""
    n, size = operator.n, operator.p * operator.d
    block = (operator.p, operator.d, 1)

    def forward(u: np.ndarray) -> np.ndarray:
        return to_numpy(operator.forward(operator.like(u.reshape(block))))[:, 0]

    def adjoint(r: np.ndarray) -> np.ndarray:
        return to_numpy(operator.adjoint(operator.like(r.reshape(n, 1)))).reshape(size)

    M = LinearOperator((n, size), matvec=forward, rmatvec=adjoint, dtype=np.float64)
    columns, n_iter = [], 0
    for b in to_numpy(B).T:
        u, _, iterations, *_rest = lsmr(
            M, b, damp=float(np.sqrt(shift)), atol=tol, btol=tol, conlim=0, maxiter=max_iter
        )
        columns.append(u.reshape(operator.p, operator.d))
        n_iter += int(iterations)
    return like(B, np.stack(columns, axis=2)), n_iter


class RangeComplement:
    """The projection onto the complement of range(M). The units of columns do not change it, and
    are taken out first. By an orthogonal basis from QR factorizations of pieces of M', which do not
    square its condition number; for sparse data or where it takes too long from the kernel, or by
    LSMR."""

    @staticmethod
    def method_for(operator: PatternOperator) -> str:
        """The best one for these sizes, and for the time that there is."""
        n, columns = operator.n, operator.p * operator.d
        longest = max(6 * min(columns, n) * n**2, EIGEN_WORK * n * min(columns, n) ** 2)
        few = n**2 * columns <= MAX_FACTOR_WORK and budget.allows(longest / budget.RATE)
        if few and not operator.is_sparse:
            return "qr"
        return "kernel" if KernelFactor.fits(n) else "lsmr"

    def __init__(self, operator: PatternOperator, method: str) -> None:
        X = operator.rows()
        units = column_norms(to_numpy(X, keep_sparse=True))
        self.operator = operator.with_data(divide_columns(X, units))
        self._basis = None
        if method == "qr":
            self._basis = self._range_basis()
        elif method == "kernel":
            self._basis = KernelFactor(self.operator).range_basis

    def _range_basis(self) -> np.ndarray:
        X = to_numpy(self.operator.rows())
        R: np.ndarray = np.zeros((0, len(X)))
        for patterns in budget.pieces(self.operator.p, max(1, 2 * len(X) // X.shape[1])):
            piece = self.operator.mask_of(patterns)[:, None, :] * X.T
            stacked = np.vstack([R, piece.reshape(-1, len(X))])
            R = np.asarray(np.linalg.qr(stacked, mode="r"))
        _, values, vectors = np.linalg.svd(R, full_matrices=False)
        rounding = max(len(X), self.operator.p * self.operator.d) * np.finfo(np.float64).eps
        return vectors[values > rounding * values[0]].T

    def of(self, B: Array) -> Array:
        """The part of B (n, C) outside range(M)."""
        if self._basis is None:
            U, _ = lsmr_solve(self.operator, B, 0.0, tol=1e-14, max_iter=10 * self.operator.n)
            return B - self.operator.forward(U)
        values = to_numpy(B)
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            values = values - self._basis @ (self._basis.T @ values)
        return like(B, values)
