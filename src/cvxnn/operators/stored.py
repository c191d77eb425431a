"""The expanded matrix of rows in a file, which multiplies chunk by chunk.

The bits of the patterns stay in memory, a 64th of what X would take for as many patterns as
columns. Every product reads all rows once. Sums over chunks are in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cvxnn import budget
from cvxnn.arrays import Array, row_squares
from cvxnn.bits import Bits, Chosen
from cvxnn.operators.batches import Batch
from cvxnn.operators.dense import ExpandedMatrix
from cvxnn.operators.ragged import RaggedOperator, RaggedSelections
from cvxnn.ranks import ALONE, Ranks
from cvxnn.stored import StoredRows
from cvxnn.threads import cached_property


class StoredMatrix:
    """[D_1 X ... D_p X] for rows X in a file; a chunk of it is an `ExpandedMatrix`."""

    is_sparse, in_numpy, in_memory = False, True, False
    across: Ranks = ALONE

    def __init__(self, X: StoredRows, patterns: Bits | np.ndarray) -> None:
        self.X = X.written()
        self.n, self.d = X.shape
        self.bits = Bits.of(patterns)
        self.p = self.bits.shape[1]
        self._pass = 1.0  # what a product counts
        self._active: tuple[bytes, Bits] | None = None

    @property
    def n_all(self) -> int:
        return self.n

    @property
    def base(self) -> StoredMatrix:
        return self

    @property
    def dtype(self) -> Any:
        return self.X.dtype

    @property
    def is_double(self) -> bool:
        return self.X.dtype == np.float64

    @property
    def mask(self) -> np.ndarray:
        return self.bits.mask()

    def mask_of(self, patterns: Chosen) -> np.ndarray:
        return self.bits.by_pattern(patterns)

    def rows(self, rows: slice = slice(None)) -> Any:
        """Some of the rows as an array, or all of them where they are."""
        return self.X if rows == slice(None) else self.X[rows]

    def like(self, values: ArrayLike, dtype: Any = None) -> np.ndarray:
        return np.asarray(values, dtype=self.X.dtype if dtype is None else dtype)

    def forward(self, U: Array) -> np.ndarray:
        """M U: (p, d, C) -> (n, C)."""
        with budget.product(forward=self._pass):
            U = self.like(U)
            bits, U = self._non_zero_blocks(U)
            fit = np.empty((self.n, U.shape[2]), dtype=self.X.dtype)
            for rows, chunk in self._chunks(bits):
                fit[rows] = chunk._forward(U)
            return fit

    def adjoint(self, R: Array) -> np.ndarray:
        """M'R: (n, C) -> (p, d, C), in the precision of X."""
        with budget.product(adjoint=self._pass):
            R = self.like(R)
            total = np.zeros((R.shape[1], self.p, self.d)).transpose(1, 2, 0)  # as chunks have it
            for rows, chunk in self._chunks(self.bits):
                total += chunk._adjoint(chunk.X, R[rows])
            return total.astype(self.X.dtype, copy=False)

    def _chunks(self, bits: Bits) -> Iterator[tuple[slice, ExpandedMatrix]]:
        for rows, X in self.X.chunks():
            budget.look()
            yield rows, ExpandedMatrix(X, bits.of_rows(rows), cache_bytes=0)

    def _non_zero_blocks(self, U: np.ndarray) -> tuple[Bits, np.ndarray]:
        """Leave out zero blocks where they are the majority; their bits are kept for the next
        product."""
        active = np.flatnonzero(np.any(U != 0, axis=(1, 2)))
        if 2 * len(active) > self.p:
            return self.bits, U
        key, kept = active.tobytes(), self._active  # another thread may set the next one
        if kept is None or key != kept[0]:
            self._active = kept = key, self.bits.select(active)
        return kept[1], U[active]

    def magnitudes(self, R: Array) -> np.ndarray:
        R = self.like(R) * self._used_rows[:, None]
        return sum(np.abs(X).T @ R[rows] for rows, X in self.X.chunks())

    @cached_property
    def _used_rows(self) -> np.ndarray:
        return self.bits.used_rows()

    def row_squares(self) -> np.ndarray:
        return row_squares(self.X)

    def block_norms(self) -> np.ndarray:
        """Frobenius norms of the blocks D_i X."""
        squares = self.row_squares()[:, None]
        column = ExpandedMatrix(squares, self.bits, cache_bytes=0)
        return np.sqrt(column._adjoint(squares, np.ones_like(squares))[:, 0, 0])

    def kernel(self) -> np.ndarray:
        raise TypeError("X is in a file; the products of its rows with each other are not formed")

    def solve_system(self, *args: object, **options: object) -> None:
        """No compiled call reads files."""

    def select(self, patterns: np.ndarray, dtype: DTypeLike | None = None) -> Self:
        chosen = self._copy()
        chosen.bits = self.bits.select(np.asarray(patterns, dtype=np.int64))
        chosen.p, chosen._pass = len(patterns), self._pass * len(patterns) / self.p
        return chosen if dtype is None else chosen._in_precision(dtype)

    def ragged(self, patterns: Sequence[np.ndarray], dtype: type) -> RaggedOperator:
        return RaggedSelections(self, patterns, dtype)

    def batch(self, rows: np.ndarray) -> Batch:
        some = ExpandedMatrix(self.X[rows], Bits.of(self.bits.mask(rows)), cache_bytes=0)
        some._pass = self._pass * len(rows) / self.n
        return some.batch(np.arange(len(rows)))

    def in_single(self) -> Self:
        return self._in_precision(np.float32)

    def in_double(self) -> Self:
        return self._in_precision(np.float64)

    def _in_precision(self, dtype: DTypeLike) -> Self:
        """The same file, whose numbers are converted as they are read."""
        return self if self.X.dtype == dtype else self.with_data(self.X.astype(dtype))

    def with_data(self, X: Any) -> Self:
        other = self._copy()
        other.X = X
        return other

    def with_patterns(self, patterns: Bits) -> Self:
        return type(self)(self.X, patterns)

    def _copy(self) -> Self:
        other = copy(self)
        other._active = None
        other.__dict__.pop("_used_rows", None)
        return other
