"""Newton systems in sample space, n equations for each output of a loss.

The Newton step of the dual is L x with (I + L'A L) x = L'r, where H = L L' is the Hessian of the
loss (`losses.Root`), A = sigma M P M' for each output, and P the derivative of the prox,
(1 - c_b) F_b + c_b q^_b q^_b' for each active block b. This form needs no inverse of H, which may
vanish. `JointSolver` (joint.py) solves for all outputs; the systems here are of single ones,
I + S A S with S = diag(scale). For free blocks (F = I) and M_b = D_b X,

    sigma M P M' = (X X') o (D diag(w) D') + V V',
    w = sigma (1 - c),  V_b = sqrt(sigma c_b) M_b q^_b,

which has no factor d: it is formed at the cost of n^2 |A|, or applied at that of two products with
the active patterns. Faces of narrow cones have one or two dimensions, so there the columns of
M P^(1/2) are few and are formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from scipy.linalg import lapack

from cvxnn import budget, panels
from cvxnn.arrays import Matrix, is_sparse, row_squares
from cvxnn.operators.base import PatternOperator
from cvxnn.problems.columns import largest_square
from cvxnn.ranks import ALONE, Ranks, norm
from cvxnn.solvers.newton.faces import Faces, Linearisation
from cvxnn.solvers.newton.preconditioners import Preconditioner, factor_shifted
from cvxnn.threads import cached_property

# Rates at which the machine does what the systems are made of, in operations a second. Only their
# ratios matter: they choose between ways to the same solution, the same way on every machine.
PRODUCT_RATE, GRAM_RATE, FACTOR_RATE = 1.2e11, 2.5e11, 5e10
CALL_COST, RENEWAL_COST = 1e-4, 6e-4  # seconds of calls, which small systems notice
SPARSE_RATE = 2.5e9
POWER_STEPS = 20  # of the power method
RANK = 20  # of what stands for a sparse X in preconditioners
MAX_FORMED, MAX_FORMED_ENTRIES = 100, 2**22  # columns of free blocks that are formed
MAX_DENSE = 8000  # rows for which an n x n matrix is formed
MAX_ENTRIES = 2**26  # of the directions V, or of the columns that span faces
MASK_ENTRIES = 2**24  # of the boolean mask that are made from bits at a time
SINGLE_PRECISION = 1e-4  # products for residuals down to this are in float32


def leading_columns(X: Matrix) -> np.ndarray:
    """X itself or, if it is sparse, X Q with orthonormal Q (d, RANK) such that little is left of X
    outside, by subspace iteration."""
    if not is_sparse(X):
        return X
    Q = np.random.default_rng(0).standard_normal((X.shape[1], min(RANK, *X.shape)))
    for _ in range(4):
        Q = np.linalg.qr(X.T @ (X @ Q))[0]
    return (X @ Q).astype(X.dtype, copy=False)


def scale_of_square(X: np.ndarray, across: Ranks = ALONE) -> float:
    """The square of the largest singular value of a dense X, by eigenvalues of X'X or, where that
    takes long, to a few digits by the power method; it sets a scale. Over ranks,
    it is that of the rows of all."""
    n, d = X.shape
    if across.size > 1:
        return float(across.agree(np.linalg.eigvalsh(across.sum(X.T @ X))[-1]))
    if n * d**2 + d**3 <= panels.moment():
        return float(np.linalg.eigvalsh(X.T @ X)[-1])
    return largest_square(X, POWER_STEPS)


class System(Protocol):
    """I + S A S for one output."""

    exact: ClassVar[bool]  # whether `inverse` is

    @property
    def preconditioner(self) -> Preconditioner | None:
        """What `inverse` is in single precision, where that is no dense matrix."""

    def product(self, x: np.ndarray) -> np.ndarray:
        """S A S x."""
        ...

    def inverse(self, r: np.ndarray) -> np.ndarray:
        """(I + S A S)^-1 r, or something like it for a preconditioner."""
        ...

    def dense_inverse(self) -> np.ndarray:
        """(I + S A S)^-1 itself, (n, n), perhaps in single precision."""
        ...


class FaceSystem:
    """I + C'C for columns C (R, n), factored: R equations where R < n."""

    exact: ClassVar[bool] = True

    def __init__(
        self, scale: np.ndarray, sigma: float, columns: np.ndarray, across: Ranks = ALONE
    ) -> None:
        columns *= np.sqrt(sigma) * scale
        self.columns, self.across = columns, across

    @cached_property
    def _factor(self) -> np.ndarray:
        R, n = self.columns.shape
        K = panels.gram(self.columns if n > R or self._in_parts else self.columns.T)
        K = self.across.sum(K)
        K.flat[:: len(K) + 1] += 1
        return positive(panels.cholesky(K))

    @property
    def _in_parts(self) -> bool:
        return self.across.size > 1

    @property
    def preconditioner(self) -> Preconditioner:
        return Preconditioner(self._factor, None, self.columns, self.across)

    def product(self, x: np.ndarray) -> np.ndarray:
        return self.columns.T @ self.across.sum(self.columns @ x)

    def inverse(self, r: np.ndarray) -> np.ndarray:
        C = self.columns
        if len(C) < len(r) or self._in_parts:
            return r - C.T @ panels.cholesky_solve(self._factor, self.across.sum(C @ r))
        return panels.cholesky_solve(self._factor, r)

    def dense_inverse(self) -> np.ndarray:
        return self.inverse(np.eye(self.columns.shape[1]))


def positive(factor: np.ndarray | None) -> np.ndarray:
    if factor is None:
        raise np.linalg.LinAlgError("a matrix of a Newton system is not positive definite")
    return factor


def conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray],
    precondition: Callable[[np.ndarray], np.ndarray],
    r: np.ndarray,
    tol: float,
    max_iter: int,
    error: float = math.inf,
    start: np.ndarray | None = None,
    across: Ranks = ALONE,
) -> tuple[np.ndarray, int, bool]:
    """The solution x to a residual of tol ||r|| and error ||x||, the iterations, and whether they
    sufficed. `start` is where x starts, or zero. Vectors go on on other ranks."""
    x = np.zeros_like(r) if start is None else start
    size = norm(r, across)
    if size == 0:
        return x, 0, True
    if start is not None:
        r = r - apply(start)
    step, rz = np.zeros_like(r), math.inf
    for k in range(1, max_iter + 1):
        budget.look()
        z = precondition(r).astype(np.float64)
        rz, before = float(across.sum(r @ z)), rz
        step = z + (rz / before) * step
        product = apply(step)
        curvature = float(across.sum(step @ product))
        if not (0 < rz < math.inf and 0 < curvature < math.inf):
            return x, k, False  # single precision is exhausted
        x = x + (rz / curvature) * step
        r = r - (rz / curvature) * product
        if norm(r, across) <= min(tol * size, error * norm(x, across)):
            return x, k, True
    return x, max_iter, False


class SingleRows:
    """X in single precision, and what is computed from it once for the systems of all outputs."""

    def __init__(self, operator: PatternOperator) -> None:
        self.operator = operator

    @cached_property
    def X(self) -> Matrix:
        return self.operator.in_single().rows()

    @cached_property
    def row_squares(self) -> np.ndarray:
        return self.operator.row_squares()

    @cached_property
    def leading(self) -> np.ndarray:
        """The leading columns, as rows."""
        return leading_columns(self.X).T

    @cached_property
    def share(self) -> np.ndarray | float:
        """Of the leading directions in the squares of rows."""
        if not is_sparse(self.X):
            return 1.0
        return row_squares(self.leading.T) / np.maximum(self.row_squares, 1e-300)

    @property
    def seconds_a_pattern(self) -> float:
        """Of a product with X."""
        if is_sparse(self.X):
            return self.X.nnz / SPARSE_RATE
        return self.operator.n_all * self.operator.d / PRODUCT_RATE

    @cached_property
    def gram(self) -> np.ndarray:
        """X X' in single precision."""
        return panels.gram(self.X)


@dataclass(eq=False)
class Products:
    """What the systems of one output share that are applied by products: the rows, which those of
    other outputs share too, and the last preconditioner, which serves later systems."""

    rows: SingleRows
    preconditioner: Preconditioner | None = None

    def release(self) -> None:
        if self.preconditioner is not None and self.preconditioner.is_large:
            self.preconditioner = None


@dataclass(frozen=True, eq=False)
class ProductSystem:
    """I + S A S, applied by products with the active patterns; `inverse` is a preconditioner.

    That is diag + S ((sum w / 4) X X' + V V') S by Woodbury: a pattern holds for half of the rows
    and two for a quarter, so this is the mean of the Hadamard product. Sparse X are replaced by
    their leading directions there. Where even a new one needs
    too many iterations, the matrix of free blocks is factored in single precision instead.

    shared : what it has in common with the other systems of the output.
    scale, sigma : S = diag(scale), A = sigma M P M'.
    patterns, at : the active patterns, and where the prox of their blocks is linearised.
    faces : the faces that the blocks lie in; None if they are free.
    dtype : the precision of products.
    """

    shared: Products
    scale: np.ndarray
    sigma: float
    patterns: np.ndarray
    at: Linearisation
    faces: Faces | None = None
    dtype: type[np.floating] = np.float64

    exact: ClassVar[bool] = False

    def with_precision(self, tol: float) -> ProductSystem:
        """The same system with products that are precise enough for residuals down to `tol`."""
        return replace(self, dtype=np.float32 if tol >= SINGLE_PRECISION else np.float64)

    @cached_property
    def _restricted(self) -> PatternOperator:
        """The operator of the active patterns."""
        return self.shared.rows.operator.select(self.patterns, self.dtype)

    @cached_property
    def _w(self) -> np.ndarray:
        """The weights of the patterns in A, per dimension of their faces."""
        w = self.sigma * (1 - self.at.ratio)
        return w if self.faces is None else w * self.faces.dimension / self.shared.rows.operator.d

    @cached_property
    def _v(self) -> np.ndarray:
        """The weights of the blocks' own directions in A."""
        return self.sigma * self.at.ratio

    @property
    def ready(self) -> bool:
        """Whether there is a preconditioner, of an earlier system perhaps."""
        return self.shared.preconditioner is not None

    @property
    def may_be_dense(self) -> bool:
        operator = self.shared.rows.operator
        return self.faces is None and operator.n <= MAX_DENSE and operator.across.size == 1

    @property
    def n_directions(self) -> int:
        """Of the cheap preconditioner."""
        return len(self.patterns) + len(self.shared.rows.leading)

    @property
    def costs(self) -> np.ndarray:
        """Of a product, and of the two preconditioners."""
        shared = self.shared.rows
        n, a, d = shared.operator.n_all, len(self.patterns), len(shared.leading)
        return np.array(
            [
                4 * a * shared.seconds_a_pattern + CALL_COST,
                n * (a + d) * (a + 5 * d) / GRAM_RATE + RENEWAL_COST,
                2 * n * n * a / GRAM_RATE + n**3 / 3 / FACTOR_RATE + RENEWAL_COST,
            ]
        )

    def renew(self, dense: bool) -> None:
        """Make a preconditioner of this system, for it and for later ones."""
        self.shared.preconditioner = None  # before the next one is made: it may be large
        self.shared.preconditioner = (
            self._dense_preconditioner() if dense else self._cheap_preconditioner()
        )

    def product(self, x: np.ndarray) -> np.ndarray:
        rows = self._restricted.adjoint((self.scale * x)[:, None])[:, :, 0]
        if self.faces is not None:
            rows = self.faces.project(rows)
        rows = self.sigma * self.at.shrink(rows)
        return self.scale * self._restricted.forward(rows[:, :, None])[:, 0]

    @property
    def preconditioner(self) -> Preconditioner | None:
        return self.shared.preconditioner

    def inverse(self, r: np.ndarray) -> np.ndarray:
        assert self.shared.preconditioner is not None
        return self.shared.preconditioner(r)

    def _directions(self, blocks: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Fill V with S V' (a, n) for some of the active blocks; returns D w (n,) for them."""
        rows, scale = self.shared.rows, self.scale.astype(np.float32)
        scaled = (self.at.unit * np.sqrt(self._v)[:, None]).astype(np.float32)
        weighted = np.zeros(rows.operator.n, dtype=np.float32)
        for part in budget.pieces(len(blocks), MASK_ENTRIES // max(rows.operator.n, 1)):
            some = blocks[part]
            mask = rows.operator.mask_of(self.patterns[some])
            V[part] = panels.multiply(scaled[some], rows.X.T)
            V[part] *= mask
            V[part] *= scale
            weighted += self._w[some].astype(np.float32) @ mask
        return weighted

    def _cheap_preconditioner(self) -> Preconditioner:
        shared = self.shared.rows
        across = shared.operator.across
        most = max(MAX_ENTRIES // int(across.max(shared.operator.n)), 1)
        blocks = np.sort(np.argsort(-self._v, kind="stable")[:most])
        V = np.empty((len(blocks) + len(shared.leading), shared.operator.n), dtype=np.float32)
        mean = self._w.sum() / 4
        diagonal = self._directions(blocks, V) - mean * shared.share
        squares = shared.row_squares * self.scale**2
        root = np.sqrt(1 + np.maximum(diagonal, 0) * squares).astype(np.float32)
        scale = (np.sqrt(mean) * self.scale).astype(np.float32)
        np.multiply(shared.leading, scale, out=V[len(blocks) :])
        V /= root
        K = across.sum(panels.gram(V)).astype(np.float32)
        K.flat[:: len(K) + 1] += 1
        return Preconditioner(factor_shifted(K), root, V, across)

    def _dense_factor(self) -> np.ndarray:
        """The Cholesky factor of I + S A S in single precision."""
        rows, blocks = self.shared.rows, np.arange(len(self.patterns))
        D = rows.operator.mask_of(self.patterns) * np.sqrt(self._w).astype(np.float32)[:, None]
        K = panels.gram(D.T)
        K *= rows.gram
        V = D  # its memory is used again
        self._directions(blocks, V)
        scale = self.scale.astype(np.float32)
        K *= scale
        K *= scale[:, None]
        K += panels.gram(V.T)
        K.flat[:: len(K) + 1] += 1
        return factor_shifted(K)

    def _dense_preconditioner(self) -> Preconditioner:
        return Preconditioner(self._dense_factor())

    def iterate(
        self,
        span: np.ndarray | None,
        r: np.ndarray,
        start: np.ndarray | None,
        tol: float,
        error: float,
        max_iter: int,
    ) -> tuple[np.ndarray, int, bool] | None:
        """What `conjugate_gradients` finds, in one compiled call; None where there is none."""
        its = self.shared.preconditioner
        if its is None or self.faces is not None:
            return None
        return self._restricted.solve_system(
            self.scale,
            self.sigma * (1 - self.at.ratio),
            self._v,
            self.at.unit,
            np.zeros((0, len(r))) if span is None else span.T,
            (its.root, its.V, its.factor),
            r,
            start,
            tol=tol,
            error=error,
            max_iter=max_iter,
        )

    def dense_inverse(self) -> np.ndarray:
        upper = np.triu(lapack.spotri(self._dense_factor().T, lower=0, overwrite_c=True)[0])
        return upper + np.triu(upper, 1).T
