"""Other columns for the same problem: X = Z V' with orthonormal columns V (d, r), Z (n, r).

Weights outside the span of the rows change no prediction and only cost norm. So U = V W, with
[D_1 X ... D_p X] U = [D_1 Z ... D_p Z] W, the same norms, the same patterns and, for cones, the
same constraints: who solves for W has solved for U. Dual points are the same, and so are the norms
of their correlations.

The rows span fewer dimensions than there are columns where rows are fewer, or where columns depend
on each other: indicators of categories beside a column of ones, pixels that are always black,
embeddings of low rank. What counts as dependent is a matter of rounding (DEPENDENT); certificates
are computed on X itself, so a wrong decision shows as a gap, never as a false bound.

Principal axes are such columns too, as many as before. Methods that take gradient steps in a metric
of the columns need fewer of them there, because the columns of Z are orthogonal.

The leading axes alone are another problem: weights in their span V_r are feasible, at the same
objective, but its dual points need not be. With the axes that are left out, the norms of their
correlations are

    ||X'D_i theta||^2 = ||V_r'X'D_i theta||^2 + ||(X - Z_r V_r')'D_i theta||^2,

so what is left out counts only by its square: a tenth of the limit costs half a per cent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from cvxnn import budget, panels
from cvxnn.arrays import Array, Matrix, is_sparse, to_numpy
from cvxnn.threads import cached_property

RIDGE = 1e-14  # of the products of sparse rows with each other, so that they can be factored
PASSES = 100  # that a run is expected to make
MAX_SPARSE_ROWS = 5000  # of which all products with each other are formed
FEWER = 0.8  # of the columns, at most, are worth a change of coordinates
DEPENDENT = 1e-14  # square of what is left of a column beside others, relative to the largest one
POWERS = 5  # of X'X, for its size and no more
LEAST_COLUMNS = 16  # for which the rank is looked at
# Of the passes, at least, are spared in principal axes, on pictures more than half of them; and of
# the largest mean square in any direction, a mean over all of them that leaves something to gain.
SPARED, UNLIKE = 0.15, 0.2
SAMPLE = 2  # rows that are looked at first, in multiples of the columns
# Leading axes are enough to begin with if they leave so little of all squares, and few if they are
# at most this share of all axes. More than the last share of them are no better than all.
LITTLE, FEW, MOST = 0.05, 0.25, 0.6


def span_bound(X: Array) -> int:
    """An upper bound of the dimension of the span of the rows, or d where it is not small. Some
    rows that span everything, as is usual, spare a look at all of them."""
    n, d = X.shape
    if n < d or is_sparse(X) or d < LEAST_COLUMNS:
        return min(n, d)
    if n > SAMPLE * d:
        some = np.random.default_rng(0).choice(n, SAMPLE * d, replace=False)
        if _rank(np.asarray(X[np.sort(some)], dtype=np.float64)) > FEWER * d:
            return d
    return _rank(np.asarray(X, dtype=np.float64))


def _rank(X: np.ndarray) -> int:
    return _factor_columns(X)[1]


def _factor_columns(X: np.ndarray) -> tuple[np.ndarray, int]:
    """R (d, d), of which the first `rank` rows span the rows of X: X'X = R'R, by Cholesky with
    pivots."""
    K = panels.gram(np.ascontiguousarray(X.T))
    largest = float(np.max(K.diagonal(), initial=0.0))
    if not 0 < largest < np.inf:
        return K, 0 if largest == 0 else X.shape[1]
    factor, pivots, rank, _ = lapack.dpstrf(K, tol=DEPENDENT * largest)
    R = np.empty_like(K)
    R[:, pivots - 1] = np.triu(factor)
    return R, int(rank)


class Columns:
    """The coordinates of weights in columns V: Z = X V. A product counts `share` of a pass."""

    Z: np.ndarray
    V: np.ndarray
    share: float = 1.0

    def restore(self, W: np.ndarray) -> np.ndarray:
        """V W, block by block: (m, r, C) -> (m, d, C)."""
        return _by_block(W, self._times_V)

    def reduce(self, U: np.ndarray) -> np.ndarray:
        """V'U, block by block: (m, d, C) -> (m, r, C)."""
        return _by_block(U, self.coordinates)

    def coordinates(self, columns: np.ndarray) -> np.ndarray:
        """V' times vectors: (d, k) -> (r, k)."""
        return self.V.T @ columns

    def _times_V(self, columns: np.ndarray) -> np.ndarray:
        return self.V @ columns


class PrincipalAxes(Columns):
    """The eigenvectors of X'X, for dense rows, largest first.

    left : (r + 1,), the share of all squares that is left outside the first axes, by their number.
    """

    @staticmethod
    def pays(X: np.ndarray, p: int, C: int) -> bool:
        """Whether the axes are of unlike size, and cost less than they spare, in the time that
        there is."""
        n, d = X.shape
        work, saved = 3.0 * n * d * d + 10.0 * d**3, SPARED * PASSES * n * p * C * d
        if n < d or d < LEAST_COLUMNS or saved < work or not budget.allows(work / budget.RATE):
            return False
        total = float(np.einsum("ij,ij->", X, X, dtype=np.float64))
        return 0 < total / d < UNLIKE * largest_square(X) < np.inf

    def __init__(self, X: Array) -> None:
        self._X = to_numpy(X).astype(np.float64, copy=False)
        n, d = self._X.shape
        budget.doing(f"finding {d} principal axes", (2.0 * n * d * d + 10.0 * d**3) / budget.RATE)
        squares, V = np.linalg.eigh(panels.gram(np.ascontiguousarray(self._X.T)))
        kept = np.flatnonzero(squares > DEPENDENT * squares[-1])[::-1]
        self.V = np.ascontiguousarray(V[:, kept])
        sizes = np.append(0.0, squares[kept[::-1]])
        self.left = (np.cumsum(sizes) / max(float(sizes.sum()), 1e-300))[::-1]

    @cached_property
    def Z(self) -> np.ndarray:
        return panels.multiply(self._X, self.V)

    def numbers(self) -> list[int]:
        """Of leading axes that are worth a problem of their own: those with most of the squares,
        if they are few, then twice as many until that is most of them."""
        enough, most = int(np.argmax(self.left <= LITTLE)), self.V.shape[1]
        if enough > FEW * most:
            return []
        return [enough << k for k in range(most.bit_length()) if enough << k <= MOST * most]

    def leading(self, number: int) -> Columns:
        """The first axes."""
        few = Columns()
        few.V = np.ascontiguousarray(self.V[:, :number])
        few.Z = panels.multiply(self._X, few.V)
        few.share = number / self.V.shape[1]
        return few


def largest_square(X: Matrix, powers: int = POWERS) -> float:
    """The largest eigenvalue of X'X, from below, by so many steps of the power method."""
    v: np.ndarray = np.random.default_rng(0).standard_normal((X.shape[1],))
    size = 0.0
    for _ in range(powers):
        unit = (v / max(_length(v), 1e-300)).astype(X.dtype)  # others would make a copy of X
        v = np.asarray(X.T @ (X @ unit), dtype=float)
        size = _length(v)
    return size


def _length(v: np.ndarray) -> float:
    """The norm, also of entries whose squares are beyond the range of numbers."""
    unit = max(float(np.max(np.abs(v))), 1e-300)
    return unit * float(np.linalg.norm(v / unit))


class FewerColumns(Columns):
    """As many columns as the rows span. V is formed for dense rows only; for sparse ones it is
    X'L^-T, with L L' = X X'."""

    @staticmethod
    def pays(n: int, d: int, p: int, C: int, *, span: int, sparse: bool) -> bool:
        """Whether the factorization costs less than it saves, in the time that there is; `span` is
        the dimension of the span of the rows, or a bound of it."""
        if sparse:
            return d > 2 * n and n <= MAX_SPARSE_ROWS and budget.allows(n**3 / 3 / budget.RATE)
        work, saved = _work(n, d, span), PASSES * n * p * C * (d - span)
        return span <= FEWER * d and saved > work and budget.allows(work / budget.RATE)

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
            return
        budget.doing(f"factoring {n} x {d} numbers", _work(n, d, min(n, d)) / budget.RATE)
        if n < d:
            self.V, R = qr(data.T, mode="economic", check_finite=False)
            self.Z = np.ascontiguousarray(R.T)
        else:
            R, rank = _factor_columns(data)
            self.V = qr(R[: max(rank, 1)].T, mode="economic", check_finite=False)[0]
            self.Z = panels.multiply(data, self.V)

    def coordinates(self, columns: np.ndarray) -> np.ndarray:
        if self._X is None:
            return super().coordinates(columns)
        return solve_triangular(self.Z, self._X @ columns, lower=True)

    def _times_V(self, columns: np.ndarray) -> np.ndarray:
        if self._X is None:
            return super()._times_V(columns)
        return self._X.T @ solve_triangular(self.Z, columns, lower=True, trans="T")


def _work(n: int, d: int, span: int) -> float:
    """Operations of a factorization of dense rows."""
    return 4.0 * d * n * n if n < d else 1.0 * n * d * d + d**3 / 3 + 4.0 * d * span**2


def _by_block(U: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A function of columns, applied to the blocks that are not zero."""
    m, _, C = U.shape
    rows = U.transpose(0, 2, 1).reshape(m * C, -1)
    live = np.flatnonzero(np.any(rows != 0, axis=1))
    found = function(np.ascontiguousarray(rows[live].T))
    result = np.zeros((m * C, len(found)))
    result[live] = found.T
    return np.ascontiguousarray(result.reshape(m, C, -1).transpose(0, 2, 1))
