"""The 0/1 matrix of the patterns as bits, and products with it by table look-up (products.c)."""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import Array
from cvxnn.kernels import native
from cvxnn.threads import cached_property


class Bits:
    """The mask as bits, for products with NumPy arrays of either precision. `rows` (ceil(n/32), p)
    holds 32 rows of the mask in a word, `columns` (ceil(p/32), n) holds 32 columns."""

    def __init__(self, rows: np.ndarray, n: int) -> None:
        self.rows, self.n = rows, n
        self._active: tuple[bytes, Bits] | None = None

    @cached_property
    def columns(self) -> np.ndarray:
        return native.transpose_bits(self.rows, self.n)

    def select(self, patterns: np.ndarray) -> Bits:
        return Bits(self.rows.take(patterns, axis=1), self.n)

    def forward(self, X: np.ndarray, U: Array) -> np.ndarray:
        """Zero blocks are left out where they are the majority. The bits that remain are kept for
        the next product: late in a solve the active set hardly moves."""
        U = np.ascontiguousarray(U, dtype=X.dtype)
        active = native.nonzero_blocks(U)
        if 2 * len(active) > len(U):
            return native.expanded_forward(self.columns, X, U)
        key, kept = active.tobytes(), self._active  # another thread may set the next one
        if kept is None or key != kept[0]:
            self._active = kept = key, self.select(active)
        return native.expanded_forward(kept[1].columns, X, U[active])

    def adjoint(self, X: np.ndarray, R: Array) -> np.ndarray:
        return native.expanded_adjoint(self.rows, X, np.asarray(R))
