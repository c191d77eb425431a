"""The expanded matrix with a working set of patterns for each class.

At the optimum of a loss that couples many classes only a few per cent of the pairs (pattern, class)
are active, but half of the patterns are active for some class. Products with a set of patterns for
each class cost as much as there are pairs. Weights are rows (K, d), one for each pair, class after
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol, Self

import numpy as np

from cvxnn import budget
from cvxnn.bits import Bits
from cvxnn.kernels import native
from cvxnn.operators.base import PatternOperator


class RaggedOperator(Protocol):
    """A linear map from the weights of chosen pairs (K, d) to predictions (n, C)."""

    offsets: np.ndarray  # (C + 1,), where the pairs of a class begin

    def forward(self, U: np.ndarray) -> np.ndarray: ...

    def adjoint(self, R: np.ndarray) -> np.ndarray: ...

    def in_double(self) -> Self:
        """The same pairs in float64."""


class RaggedBits:
    """Products by the compiled kernels, of all classes in one call."""

    def __init__(
        self,
        bits: Bits,
        X: np.ndarray,
        X_double: np.ndarray,
        patterns: Sequence[np.ndarray],
        share: float,
    ) -> None:
        self.X, self._X_double, self.offsets = X, X_double, _offsets(patterns)
        self._share = share  # of a pass over all pairs
        self._rows = bits.rows.take(np.concatenate(patterns), axis=1)
        ends = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        words = [native.transpose_bits(self._rows[:, a:b], bits.n) for a, b in ends if b > a]
        self._columns = np.concatenate(words) if words else np.empty((0, bits.n), dtype=np.uint32)

    def in_double(self) -> Self:
        twin = copy(self)
        twin.X = self._X_double
        return twin

    def forward(self, U: np.ndarray) -> np.ndarray:
        with budget.product(forward=self._share):
            return native.ragged_forward(self._columns, self.offsets, self.X, U).T

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        with budget.product(adjoint=self._share):
            return native.ragged_adjoint(self._rows, self.offsets, self.X, R.T)


class RaggedSelections:
    """Products class by class, for any kind of data that NumPy computes with."""

    def __init__(
        self, operator: PatternOperator, patterns: Sequence[np.ndarray], dtype: type
    ) -> None:
        self._source, self._patterns = operator, patterns
        self.offsets = _offsets(patterns)
        self.n, self.d = operator.n, operator.d
        self._parts = [operator.select(its, dtype) if len(its) else None for its in patterns]

    def in_double(self) -> Self:
        return type(self)(self._source, self._patterns, np.float64)

    def forward(self, U: np.ndarray) -> np.ndarray:
        Z = np.zeros((self.n, len(self._parts)))
        for k, part in enumerate(self._parts):
            if part is not None:
                rows = U[self.offsets[k] : self.offsets[k + 1], :, None]
                Z[:, k] = np.asarray(part.forward(rows.astype(part.dtype)))[:, 0]
        return Z

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        G = np.empty((self.offsets[-1], self.d))
        for k, part in enumerate(self._parts):
            if part is not None:
                found = np.asarray(part.adjoint(R[:, k : k + 1]))
                G[self.offsets[k] : self.offsets[k + 1]] = found[:, :, 0]
        return G


def _offsets(patterns: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(its) for its in patterns])]).astype(np.int64)
