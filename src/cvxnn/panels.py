"""Large dense linear algebra in panels: shared among threads, with a look at the clock between.

The bounds of panels depend on sizes alone and every entry is computed by one call of the BLAS on
one thread, so results are the same to the last bit on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import overload

import numpy as np
from scipy.linalg import lapack, solve_triangular

from cvxnn import budget, threads
from cvxnn.arrays import Array, Matrix, blocks, is_sparse

PANEL = 512  # columns of a matrix that are factored at a time
TILE = 256
MOMENT = 0.05  # predicted seconds of a call of the BLAS


def moment() -> float:
    """The operations of one call of the BLAS, at most."""
    return MOMENT * budget.RATE


def multiply(A: np.ndarray, B: Array) -> np.ndarray:
    """A @ B; B may be sparse."""
    work = 2.0 * A.shape[0] * math.prod(B.shape)
    if work <= moment() or not isinstance(B, np.ndarray):
        return A @ B
    result = np.empty((A.shape[0], B.shape[1]), dtype=np.result_type(A, B))

    def run(rows: slice) -> None:
        np.matmul(A[rows], B, out=result[rows])

    _share(run, len(A), work)
    return result


@overload
def gram(V: Matrix) -> np.ndarray: ...
@overload
def gram(V: Array) -> Array: ...
def gram(V: Array) -> Array:
    """V V', dense, of which each half is computed once."""
    if is_sparse(V):
        return (V @ V.T).toarray()
    if not isinstance(V, np.ndarray):
        return V @ V.T
    work = 1.0 * V.shape[0] * math.prod(V.shape)
    if work <= moment():
        return V @ V.T
    K = np.empty((len(V), len(V)), dtype=V.dtype)

    def run(rows: slice) -> None:
        K[rows, : rows.stop] = V[rows] @ V[: rows.stop].T

    _share(run, len(V), work)
    mirror(K)
    return K


def mirror(K: np.ndarray) -> None:
    """Copy the half below the diagonal to the one above, in tiles that fit into the cache."""
    for rows in budget.pieces(len(K), TILE):
        for columns in blocks(rows.start, TILE):
            K[columns, rows] = K[rows, columns].T
        corner = K[rows, rows]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T


def cholesky(K: np.ndarray) -> np.ndarray | None:
    """L with L L' = K, of the half of K (C-contiguous) below its diagonal, which is overwritten;
    None if K is not positive definite. What is above the diagonal is left as it was."""
    n = len(K)
    if n**3 / 3 <= moment():
        return K if _factor_block(K) else None
    for columns in budget.pieces(n, PANEL):
        corner, below = K[columns, columns], K[columns.stop :, columns]
        if not _factor_block(corner):
            return None
        if len(below):
            _solve_panel(below, np.ascontiguousarray(corner))
            _subtract_products(K[columns.stop :, columns.stop :], below)
    return K


def cholesky_solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(L L')^-1 b."""
    if len(L) == 0:  # LAPACK refuses empty matrices
        return b
    potrs = lapack.spotrs if L.dtype == np.float32 else lapack.dpotrs
    return potrs(L.T, b.astype(L.dtype, copy=False), lower=0)[0]


def _factor_block(K: np.ndarray) -> bool:
    """Factor a small matrix in place, below its diagonal; whether that was possible."""
    potrf = lapack.spotrf if K.dtype == np.float32 else lapack.dpotrf
    factor, failed = potrf(K.T, lower=0, clean=0, overwrite_a=True)
    if not np.may_share_memory(factor, K):  # it was a part of a larger one
        K[...] = factor.T
    return not failed


def _solve_panel(below: np.ndarray, corner: np.ndarray) -> None:
    """below <- below corner'^-1."""

    def run(rows: slice) -> None:
        below[rows] = solve_triangular(corner, below[rows].T, lower=True, check_finite=False).T

    _share(run, len(below), 1.0 * len(below) * len(corner) ** 2, in_place=True)


def _subtract_products(K: np.ndarray, below: np.ndarray) -> None:
    """K <- K - below below', of the half below the diagonal."""
    below = np.ascontiguousarray(below)

    def run(rows: slice) -> None:
        K[rows, : rows.stop] -= below[rows] @ below[: rows.stop].T

    _share(run, len(below), 1.0 * len(below) * math.prod(below.shape), in_place=True)


def _share(run: Callable[[slice], object], n: int, work: float, in_place: bool = False) -> None:
    """Run over rows in pieces of equal size, each a moment of work. Pieces that work in place
    cannot be run again, so nobody is told about them, who might fork."""
    pieces = list(blocks(n, math.ceil(n / max(1, math.ceil(work / moment())))))
    threads.share(run, pieces, work / budget.RATE, telling=not in_place)
