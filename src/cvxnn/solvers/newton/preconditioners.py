"""What conjugate gradients on Newton systems are preconditioned by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxnn import budget, panels
from cvxnn.ranks import ALONE, Ranks

MAX_KEPT = 2**24  # numbers of a preconditioner that is kept in any case
MAX_DIRECTIONS = 4000  # of all outputs together, whose Gram matrix is factored
PIECE = 2**22  # numbers that are multiplied by coupling at a time


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
    def n_directions(self) -> int:
        return 0 if self.V is None else len(self.V)

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


class CoupledPreconditioner:
    """The inverse of T (I + S A S) T on the range of T = I - v v', row by row, where D (I + V'V) D
    of `Preconditioner` stands for I + S A S of each output; in the precision of the V.

    In y = D x that is P (I + V'V) P with P = I - u u' for the unit rows u along v / D, so the
    coupling of a row is exact, and Woodbury's formula takes one matrix I + V P V' for all outputs:
    the Gram matrices of single ones, less that of the rows V_k u_k.
    """

    def __init__(self, parts: list[Preconditioner], v: np.ndarray, across: Ranks = ALONE) -> None:
        n = len(v)
        self._across = across
        self._V = [its.V for its in parts if its.V is not None]
        self._dtype = np.result_type(*self._V)
        ones = np.ones(n, dtype=self._dtype)
        self._root = np.stack([ones if its.root is None else its.root for its in parts], axis=1)
        u = v / self._root
        self._u = (u / np.maximum(np.linalg.norm(u, axis=1)[:, None], 1e-30)).astype(self._dtype)
        self._edges = np.cumsum([len(V) for V in self._V])
        K = np.zeros((self._edges[-1],) * 2, dtype=self._dtype)
        for piece in budget.pieces(n, max(PIECE // max(len(K), 1), 1)):
            along = [V[:, piece] * self._u[piece, k] for k, V in enumerate(self._V)]
            K -= panels.gram(np.concatenate(along))
        for V, stop in zip(self._V, self._edges, strict=True):
            own = slice(stop - len(V), stop)
            K[own, own] += panels.gram(V)
        K = across.sum(K).astype(self._dtype, copy=False)
        K.flat[:: len(K) + 1] += 1
        self._factor = factor_shifted(K)

    @property
    def is_large(self) -> bool:
        return self._factor.size + sum(V.size for V in self._V) > MAX_KEPT

    def __call__(self, r: np.ndarray) -> np.ndarray:
        """(n, C) -> (n, C)."""
        with np.errstate(all="ignore"):  # wide kernels of a BLAS may raise flags for nothing
            s = self._uncoupled(r.astype(self._dtype) / self._root)
            along = np.concatenate([V @ s[:, k] for k, V in enumerate(self._V)])
            along = self._across.sum(along).astype(self._dtype, copy=False)
            parts = np.split(panels.cholesky_solve(self._factor, along), self._edges[:-1])
            for k, (V, part) in enumerate(zip(self._V, parts, strict=True)):
                s[:, k] -= part @ V
            return self._uncoupled(s) / self._root

    def _uncoupled(self, x: np.ndarray) -> np.ndarray:
        return x - self._u * np.sum(self._u * x, axis=1, keepdims=True)


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
