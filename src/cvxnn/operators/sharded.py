"""The expanded matrix of rows of which every process has some.

Products with weights are local. Those with residuals are, too, until the sum over all processes at
their end, which also carries what rank 0 wishes: to end the run, because its time is up for
instance (`budget.total`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cvxnn import budget
from cvxnn.arrays import Array
from cvxnn.bits import Bits, Chosen
from cvxnn.operators.base import PatternOperator
from cvxnn.operators.batches import Batch
from cvxnn.operators.ragged import RaggedOperator
from cvxnn.ranks import Ranks


class ShardedMatrix:
    """[D_1 X ... D_p X] for the rows X of all ranks; `local` is that of the rows here, in memory or
    in a file."""

    in_memory, in_numpy, is_sparse = False, True, False

    def __init__(self, local: PatternOperator, across: Ranks) -> None:
        self.local, self.across = local, across
        self.n, self.d, self.p = local.n, local.d, local.p
        self.n_all = int(across.sum(self.n))

    @property
    def base(self) -> ShardedMatrix:
        return self

    @property
    def local_in_memory(self) -> bool:
        """Whether the rows of every process are in memory."""
        return not self.across.max(float(not self.local.in_memory))

    @property
    def dtype(self) -> Any:
        return self.local.dtype

    @property
    def is_double(self) -> bool:
        return self.local.is_double

    @property
    def bits(self) -> Bits:
        return self.local.bits

    @property
    def mask(self) -> np.ndarray:
        return self.local.mask

    def mask_of(self, patterns: Chosen) -> np.ndarray:
        return self.local.mask_of(patterns)

    def rows(self, rows: slice = slice(None)) -> Any:
        """Those of this process."""
        return self.local.rows(rows)

    def like(self, values: ArrayLike, dtype: object = None) -> Array:
        return self.local.like(values, dtype)

    def forward(self, U: Array) -> Array:
        """M U for the rows here: (p, d, C) -> (n, C)."""
        if self.n == 0:
            return self.like(np.zeros((0, U.shape[2])))
        return self.local.forward(U)

    def adjoint(self, R: Array) -> np.ndarray:
        """M'R over the rows of all ranks, in the precision of X: (n, C) -> (p, d, C)."""
        if self.n == 0:
            here = np.zeros((self.p, self.d, R.shape[1]))
        else:
            here = np.asarray(self.local.adjoint(R), dtype=np.float64)
        found = budget.total(here, self.across)
        return found.astype(self.dtype, copy=False)

    def magnitudes(self, R: Array) -> np.ndarray:
        if self.n == 0:
            here = np.zeros((self.d, R.shape[1]))
        else:
            here = np.asarray(self.local.magnitudes(R), dtype=np.float64)
        return self.across.sum(here)

    def row_squares(self) -> np.ndarray:
        return self.local.row_squares() if self.n else np.zeros(0)

    def block_norms(self) -> np.ndarray:
        here = np.asarray(self.local.block_norms()) if self.n else np.zeros(self.p)
        return np.sqrt(self.across.sum(here**2))

    def kernel(self) -> np.ndarray:
        raise TypeError("rows are in several processes; their products are not formed")

    def solve_system(self, *args: object, **options: object) -> None:
        """No compiled call speaks to other processes."""

    def select(self, patterns: np.ndarray, dtype: DTypeLike | None = None) -> Self:
        return self._with(self.local.select(patterns, dtype))

    def ragged(self, patterns: Sequence[np.ndarray], dtype: type) -> RaggedOperator:
        raise TypeError("rows are in several processes; classes have one set of patterns")

    def batch(self, rows: np.ndarray) -> Batch:
        raise TypeError("rows are in several processes; methods that sample them do not run there")

    def in_single(self) -> Self:
        return self._with(self.local.in_single())

    def in_double(self) -> Self:
        return self._with(self.local.in_double())

    def with_data(self, X: Array) -> Self:
        return self._with(self.local.with_data(X))

    def with_patterns(self, patterns: Bits) -> Self:
        return self._with(self.local.with_patterns(patterns))

    def _with(self, local: PatternOperator) -> Self:
        if local is self.local:
            return self
        other = copy(self)
        other.local, other.p, other.d = local, local.p, local.d
        return other
