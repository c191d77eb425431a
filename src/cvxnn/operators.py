"""The expanded matrix M = [D_1 X ... D_p X] as an object; it is never formed.

    forward:  (M U)_jk   = sum_i D_ji <x_j, U_i^k>      = <x_j, (D U)_j^k>
    adjoint:  (M'R)_i^k  = X' D_i R^k                    = D' (x_j R_jk)_j

Both are one product of the 0/1 matrix D with a dense (p, d C) or (n, d C) array, which runs at
the speed of the BLAS. D is kept as floating numbers, transposed, where that fits into
`cache_bytes`; otherwise rows of the boolean mask are converted as they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxnn.arrays import Array, array_namespace, blocks, double, is_double, like, to_numpy

_BLOCK = 2**22  # entries of D U held at a time


@dataclass
class Passes:
    """Products over all the data so far."""

    forward: int = 0
    adjoint: int = 0

    @property
    def total(self) -> int:
        return self.forward + self.adjoint


class ExpandedMatrix:
    """[D_1 X ... D_p X] for data X (n, d) of any array library and a NumPy mask (n, p).

    `passes` counts the passes over the data, those of the double twin included.
    """

    def __init__(self, X: Array, mask: np.ndarray, *, cache_bytes: int = 2**29) -> None:
        self.X = X
        self.mask = mask
        self.n, self.d = X.shape
        self.p = mask.shape[1]
        self.passes = Passes()
        itemsize = 8 if is_double(X) else 4
        self._float_mask: Array | None = None  # (p, n)
        if self.n * self.p * itemsize <= cache_bytes:
            dtype = np.float64 if is_double(X) else np.float32
            self._float_mask = like(X, np.ascontiguousarray(mask.T, dtype=dtype))
        self._double: ExpandedMatrix | None = self if is_double(X) else None
        self._active_rows = b""
        self._active_mask: Array | None = None

    @property
    def _xp(self) -> Any:
        return array_namespace(self.X)

    def forward(self, U: Array) -> Array:
        """M U: (p, d, C) -> (n, C). Costs only as much as there are non-zero blocks."""
        self.passes.forward += 1
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
        self.passes.adjoint += 1
        xp, C = self._xp, R.shape[1]
        R = xp.astype(R, self.X.dtype, copy=False)
        total = None
        for rows in self._row_blocks(C):
            D = self._mask_rows(rows) if self._float_mask is None else self._float_mask[:, rows]
            XR = self.X[rows, :, None] * R[rows, None, :]
            piece = xp.matmul(D, xp.reshape(XR, (rows.stop - rows.start, self.d * C)))
            total = piece if total is None else total + piece
        return xp.reshape(total, (self.p, self.d, C))

    def block_norms(self) -> Array:
        """Frobenius norms of the blocks D_i X, each an upper bound of the spectral norm: (p,)."""
        xp = self._xp
        squares = xp.sum(self.X * self.X, axis=1)[:, None]
        total = None
        for rows in blocks(self.n, _BLOCK // self.p):
            piece = xp.matmul(self._mask_rows(rows), squares[rows, :])
            total = piece if total is None else total + piece
        return xp.sqrt(xp.reshape(total, (self.p,)))

    def kernel(self) -> Array:
        """M M' = (X X') o (D D'), n x n whatever p and d are."""
        xp = self._xp
        total = None
        for patterns in blocks(self.p, _BLOCK // self.n):
            D = like(self.X, self.mask[:, patterns].astype(np.float64))
            piece = xp.matmul(D, D.T)
            total = piece if total is None else total + piece
        return total * xp.matmul(self.X, self.X.T)

    def in_double(self) -> ExpandedMatrix:
        """The same operator in float64; it keeps no float copy of the mask."""
        if self._double is None:
            self._double = ExpandedMatrix(double(self.X), self.mask, cache_bytes=0)
            self._double.passes = self.passes
        return self._double

    def _row_blocks(self, C: int) -> list[slice]:
        # without a float mask the converted rows count too
        width = self.d * C + (self.p if self._float_mask is None else 0)
        return list(blocks(self.n, _BLOCK // width))

    def _mask_rows(self, rows: slice) -> Array:
        """Rows of the mask as floating numbers, transposed: (p, rows)."""
        dtype = np.float64 if is_double(self.X) else np.float32
        return like(self.X, self.mask[rows].T.astype(dtype))

    def _non_zero_blocks(self, flat: Array, mask: Array) -> tuple[Array, Array]:
        """Leave out zero blocks where they are the majority. The rows of the mask that remain
        are kept for the next product: late in a solve the active set hardly moves."""
        xp = self._xp
        active = xp.any(flat != 0, axis=1)
        n_active = int(xp.sum(xp.astype(active, xp.int64)))
        if 2 * n_active > self.p:
            return flat, mask
        indices = xp.nonzero(active)[0]
        key = to_numpy(active).tobytes()
        if self._active_mask is None or key != self._active_rows:
            self._active_mask = None  # before the new one is made: it may be large
            self._active_rows, self._active_mask = key, xp.take(mask, indices, axis=0)
        return xp.take(flat, indices, axis=0), self._active_mask


class SignedMatrix:
    """[M, -M], for weights (2p, d, C) that stack the positive and the negative blocks."""

    def __init__(self, base: ExpandedMatrix) -> None:
        self.base = base
        self.X, self.mask = base.X, base.mask
        self.n, self.d, self.p = base.n, base.d, 2 * base.p

    @property
    def passes(self) -> Passes:
        return self.base.passes

    def forward(self, U: Array) -> Array:
        return self.base.forward(U[: self.base.p, ...] - U[self.base.p :, ...])

    def adjoint(self, R: Array) -> Array:
        G = self.base.adjoint(R)
        return array_namespace(G).concat([G, -G], axis=0)

    def block_norms(self) -> Array:
        norms = self.base.block_norms()
        return array_namespace(norms).concat([norms, norms])

    def in_double(self) -> SignedMatrix:
        base = self.base.in_double()
        return self if base is self.base else SignedMatrix(base)
