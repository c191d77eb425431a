"""[M, -M], the operator of C-ReLU."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array, array_namespace
from cvxnn.operators.base import PatternOperator


class SignedMatrix:
    """[M, -M], for weights (2p, d, C) that stack the positive and the negative blocks."""

    def __init__(self, base: PatternOperator) -> None:
        self.base = base
        self.n, self.d, self.p = base.n, base.d, 2 * base.p

    @property
    def dtype(self) -> Any:
        return self.base.dtype

    @property
    def is_double(self) -> bool:
        return self.base.is_double

    @property
    def is_sparse(self) -> bool:
        return self.base.is_sparse

    @property
    def in_memory(self) -> bool:
        return self.base.in_memory

    @property
    def in_numpy(self) -> bool:
        return self.base.in_numpy

    @property
    def mask(self) -> np.ndarray:
        return self.base.mask

    def rows(self, rows: slice = slice(None)) -> Array:
        return self.base.rows(rows)

    def like(self, values: ArrayLike, dtype: object = None) -> Array:
        return self.base.like(values, dtype)

    def forward(self, U: Array) -> Array:
        return self.base.forward(U[: self.base.p, ...] - U[self.base.p :, ...])

    def adjoint(self, R: Array) -> Array:
        G = self.base.adjoint(R)
        return array_namespace(G).concat([G, -G], axis=0)

    def block_norms(self) -> Array:
        norms = self.base.block_norms()
        return array_namespace(norms).concat([norms, norms])

    def in_double(self) -> Self:
        base = self.base.in_double()
        return self if base is self.base else type(self)(base)
