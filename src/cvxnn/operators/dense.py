"""The expanded matrix M = [D_1 X ... D_p X] as an object; it is never formed.

    forward:  (M U)_jk   = sum_i D_ji <x_j, U_i^k>      = <x_j, (D U)_j^k>
    adjoint:  (M'R)_i^k  = X' D_i R^k                    = D' (x_j R_jk)_j

Both are one product of the 0/1 matrix D with a dense (p, d C) or (n, d C) array. Where there are
compiled kernels, D is kept as bits and the products are made by table look-up (products.c).
Elsewhere they run at the speed of the BLAS: D is kept as floating numbers, transposed, where that
fits into `cache_bytes`; otherwise its rows are made from the bits as they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cvxnn import budget, panels, threads
from cvxnn.arrays import (
    Array,
    array_namespace,
    astype,
    in_numpy,
    is_double,
    is_sparse,
    like,
    row_squares,
    to_numpy,
)
from cvxnn.bits import Bits, Chosen
from cvxnn.kernels import native
from cvxnn.operators.batches import Batch, BitBatch, MaskBatch
from cvxnn.operators.ragged import RaggedBits, RaggedOperator, RaggedSelections
from cvxnn.ranks import ALONE, Ranks
from cvxnn.threads import cached_property

_BLOCK = 2**22  # entries of D U held at a time


class ExpandedMatrix:
    """[D_1 X ... D_p X] for data X (n, d) of any array library, and for patterns as bits or as a
    NumPy mask (n, p).

    Products are counted in the budget of the run, those of the double twin and of selections, too;
    each is `share` of a pass.
    """

    across: Ranks = ALONE

    def __init__(
        self,
        X: Array,
        patterns: Bits | np.ndarray,
        *,
        share: float = 1.0,
        cache_bytes: int = 2**29,
    ) -> None:
        self.X: Any = X
        self.n, self.d = X.shape
        self.bits = Bits.of(patterns)
        self.p = self.bits.shape[1]
        self._pass = share  # what a product counts
        self._twins: dict[str, Self] = {}
        self._active: tuple[bytes, Array] | None = None
        self._float_mask: Array | None = None  # (p, n), where there are no kernels
        if self.n * self.p * _width(X) <= cache_bytes and not native.multiplies(X):
            self._float_mask = like(X, self.bits.by_pattern())

    @property
    def n_all(self) -> int:
        return self.n

    @property
    def base(self) -> ExpandedMatrix:
        return self

    @property
    def dtype(self) -> Any:
        return self.X.dtype

    @property
    def is_double(self) -> bool:
        return is_double(self.X)

    @property
    def is_sparse(self) -> bool:
        return is_sparse(self.X)

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def in_numpy(self) -> bool:
        return in_numpy(self.X)

    def rows(self, rows: slice = slice(None)) -> Array:
        return self.X if rows == slice(None) else self.X[rows]

    def row_squares(self) -> np.ndarray:
        return row_squares(to_numpy(self.X, keep_sparse=True))

    def like(self, values: ArrayLike, dtype: object = None) -> Array:
        return like(self.X, values, dtype)

    @property
    def mask(self) -> np.ndarray:
        return self.bits.mask()

    def mask_of(self, patterns: Chosen) -> np.ndarray:
        return self.bits.by_pattern(patterns)

    @property
    def _xp(self) -> ModuleType:
        return array_namespace(self.X)

    def forward(self, U: Array) -> Array:
        """M U: (p, d, C) -> (n, C). Costs only as much as there are non-zero blocks."""
        with budget.product(forward=self._pass, timed=self.in_numpy):
            return self._forward(U)

    def _forward(self, U: Array) -> Array:
        if native.multiplies(self.X):
            return self.bits.forward(self.X, U)
        xp, C = self._xp, U.shape[2]
        flat = xp.reshape(U, (self.p, self.d * C))
        mask = self._float_mask
        if mask is not None:
            flat, mask = self._non_zero_blocks(flat, mask)
        pieces = []
        for rows in self._row_blocks(C):
            D = self._mask_rows(rows) if mask is None else mask[:, rows]
            DU = xp.reshape(xp.matmul(D.T, flat), (D.shape[1], self.d, C))
            pieces.append(xp.matmul(self.X[rows, None, :], DU)[:, 0, :])
        return pieces[0] if len(pieces) == 1 else xp.concat(pieces, axis=0)

    def adjoint(self, R: Array) -> Array:
        """M'R: (n, C) -> (p, d, C), in the precision of X."""
        with budget.product(adjoint=self._pass, timed=self.in_numpy):
            return self._adjoint(self.X, R)

    def _adjoint(self, X: Array, R: Array) -> Array:
        if native.multiplies(X):
            return self.bits.adjoint(to_numpy(X), R)
        xp, C = self._xp, R.shape[1]
        R = xp.astype(R, X.dtype, copy=False)
        total = None
        for rows in self._row_blocks(C):
            D = self._mask_rows(rows) if self._float_mask is None else self._float_mask[:, rows]
            XR = X[rows, :, None] * R[rows, None, :]
            piece = xp.matmul(D, xp.reshape(XR, (rows.stop - rows.start, X.shape[1] * C)))
            total = piece if total is None else total + piece
        return xp.reshape(total, (self.p, X.shape[1], C))

    def solve_system(
        self,
        scale: np.ndarray,
        weight: np.ndarray,
        along: np.ndarray,
        unit: np.ndarray,
        span: np.ndarray,
        preconditioner: tuple[np.ndarray | None, np.ndarray | None, np.ndarray],
        r: np.ndarray,
        start: np.ndarray | None,
        *,
        tol: float,
        error: float,
        max_iter: int,
    ) -> tuple[np.ndarray, int, bool] | None:
        work = 2 * self.n * self.p * self.d / native.PRODUCT_RATE
        if not native.multiplies(self.X) or work > threads.ALONE:
            return None
        x, count, done = native.solve_system(
            (self.bits.rows, self.bits.columns),
            self.X,
            scale,
            weight,
            along,
            unit,
            span,
            preconditioner,
            r,
            start,
            tol=tol,
            error=error,
            max_iter=max_iter,
        )
        with budget.product(forward=count * self._pass, adjoint=count * self._pass):
            return x, count, done

    def magnitudes(self, R: Array) -> Array:
        used = like(self.X, self._used_rows)
        return abs(self.X).T @ (R * used[:, None])

    @cached_property
    def _used_rows(self) -> np.ndarray:
        return self.bits.used_rows()

    def with_patterns(self, patterns: Bits) -> Self:
        return type(self)(self.X, patterns)

    def with_data(self, X: Array) -> Self:
        other = copy(self)
        other.X, other._twins, other._active = X, {}, None
        return other

    def block_norms(self) -> Array:
        """Frobenius norms of the blocks D_i X."""
        xp = self._xp
        squares = xp.sum(self.X * self.X, axis=1)[:, None]
        return xp.sqrt(self._adjoint(squares, xp.ones_like(squares))[:, 0, 0])

    def kernel(self) -> Array:
        """M M' = (X X') o (D D'), n x n whatever p and d are."""
        total = None
        for patterns in budget.pieces(self.p, _BLOCK // self.n):
            D = like(self.X, self.mask_of(patterns).T)
            piece = panels.gram(D)
            total = piece if total is None else total + piece
        return total * panels.gram(self.X)

    def in_double(self) -> Self:
        """The same operator in float64, or as near to that as its device comes; it keeps no float
        copy of the mask."""
        return self if self.is_double else self._in_precision("float64")

    def select(self, patterns: np.ndarray, dtype: DTypeLike | None = None) -> Self:
        """The operator of these patterns (indices), in float32 or float64 if asked for. It costs
        far less than a product, and a product with it counts len(patterns) / p of a pass."""
        patterns = np.asarray(patterns, dtype=np.int64)
        chosen = copy(self if dtype is None else self._in_precision(np.dtype(dtype).name))
        chosen.p = len(patterns)
        chosen._pass *= len(patterns) / self.p
        chosen.bits = self.bits.select(patterns)
        chosen._twins, chosen._active = {}, None
        chosen.__dict__.pop("_used_rows", None)
        if chosen._float_mask is not None:
            indices = like(self.X, patterns, self._xp.int64)
            chosen._float_mask = self._xp.take(chosen._float_mask, indices, axis=0)
        return chosen

    def in_single(self) -> Self:
        return self._in_precision("float32")

    def ragged(self, patterns: Sequence[np.ndarray], dtype: type) -> RaggedOperator:
        its = self._in_precision(np.dtype(dtype).name)
        if not native.multiplies(its.X):
            return RaggedSelections(self, patterns, dtype)
        share = self._pass * sum(map(len, patterns)) / (self.p * len(patterns))
        return RaggedBits(self.bits, its.X, self.in_double().X, patterns, share)

    def batch(self, rows: np.ndarray) -> Batch:
        single, share = self.in_single(), self._pass * len(rows) / self.n
        if not native.multiplies(single.X):
            return MaskBatch(single.X[rows], self.bits.mask(rows).astype(np.float32), share)
        return BitBatch(single.X[rows], self.bits.columns.take(rows, axis=1), self.p, share)

    def _in_precision(self, name: str) -> Self:
        """The same operator in another precision: the same bits, or no float copy of the mask."""
        dtype = getattr(self._xp, name)
        if self.X.dtype == dtype:
            return self
        if name not in self._twins:
            twin = copy(self)
            twin.X = astype(self.X, dtype)
            twin._twins, twin._active, twin._float_mask = {}, None, None
            self._twins[name] = twin
        return self._twins[name]

    def _row_blocks(self, C: int) -> Iterator[slice]:
        # without a float mask the converted rows count too
        width = self.d * C + (self.p if self._float_mask is None else 0)
        moment = budget.PIECE * budget.RATE / max(1, 2 * self.p * self.d * C)
        return budget.pieces(self.n, min(_BLOCK // width, int(moment)))

    def _mask_rows(self, rows: slice) -> Array:
        """Rows of the mask as floating numbers, transposed: (p, rows)."""
        return like(self.X, self.bits.mask(rows).T)

    def _non_zero_blocks(self, flat: Array, mask: Array) -> tuple[Array, Array]:
        """Leave out zero blocks where they are the majority. The rows of the mask that remain
        are kept for the next product: late in a solve the active set hardly moves."""
        xp = self._xp
        active = xp.any(flat != 0, axis=1)
        n_active = int(xp.sum(xp.astype(active, xp.int64)))
        if 2 * n_active > self.p:
            return flat, mask
        indices = xp.nonzero(active)[0]
        key, kept = to_numpy(active).tobytes(), self._active  # another thread may set the next one
        if kept is None or key != kept[0]:
            self._active = kept = None  # before the new one is made: it may be large
            self._active = kept = key, xp.take(mask, indices, axis=0)
        return xp.take(flat, indices, axis=0), kept[1]


def _width(X: Array) -> int:
    """Bytes of a number in X."""
    return 8 if X.dtype == array_namespace(X).float64 else 4
