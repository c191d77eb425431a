"""[M, -M], the operator of C-ReLU."""

from __future__ import annotations

from cvxnn.arrays import Array, array_namespace
from cvxnn.operators.dense import ExpandedMatrix


class SignedMatrix:
    """[M, -M], for weights (2p, d, C) that stack the positive and the negative blocks."""

    def __init__(self, base: ExpandedMatrix) -> None:
        self.base = base
        self.X, self.mask = base.X, base.mask
        self.n, self.d, self.p = base.n, base.d, 2 * base.p

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
