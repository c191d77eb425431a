"""The smooth part of a problem, as R-FISTA sees it: points, gradients, Bregman divergences.

A point carries its weights and their predictions, so that extrapolation costs no product.

Single precision is for products only. Weights and predictions are kept in double: rounding the
weights would make steps below 1e-7 of them vanish, which stalls a run at relative gaps of 1e-3.
And predictions are those of a reference point, computed in double, plus the product of the
difference from it in single precision, whose rounding is relative to a small quantity. The
reference moves along every now and then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvxnn.arrays import Array, double
from cvxnn.losses import Loss
from cvxnn.operators.base import Operator
from cvxnn.ranks import Ranks

REFERENCE_USES = 100  # products in single precision between two in double, which cost more


class Point(NamedTuple):
    U: Array  # weights
    fit: Array  # M U


class Smooth:
    """f(M U): a loss of the predictions of an operator with `forward` and `adjoint`."""

    def __init__(self, operator: Operator, loss: Loss) -> None:
        self.operator, self.loss = operator, loss
        self._reference: Point | None = None
        self._n_uses = 0

    @property
    def affine_gradient(self) -> bool:
        """Whether the gradient is an affine function of U, so that it can be combined."""
        return self.loss.affine_gradient

    def point(self, U: Array) -> Point:
        if self.operator.is_double:
            return Point(U, self.operator.forward(U))
        U = double(U)
        if self._reference is None or self._n_uses >= REFERENCE_USES:
            self._reference, self._n_uses = Point(U, self.operator.in_double().forward(U)), 0
            return self._reference
        self._n_uses += 1
        difference = self.operator.like(U - self._reference.U)
        return Point(U, self._reference.fit + self.operator.forward(difference))

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Theta = grad f(M U), and the gradient M'Theta with respect to U."""
        Theta = self.loss.gradient(point.fit)
        return Theta, self.operator.adjoint(Theta)

    def bregman(self, new: Point, old: Point) -> float:
        """The divergence of the smooth part from its linear model at `old`."""
        return self.loss.bregman(new.fit, old.fit)

    @property
    def across(self) -> Ranks:
        """The processes that the rows are spread over."""
        return self.operator.base.across

    @property
    def is_sharded(self) -> bool:
        """Whether predictions are those of some rows only."""
        return self.across.size > 1

    def agree(self, *numbers: float) -> tuple[float, ...]:
        """Numbers that decisions depend on, as rank 0 has them: other machines may round them
        differently."""
        if not self.is_sharded:
            return numbers
        return tuple(self.across.agree(np.array(numbers)).tolist())

    def extrapolate(self, new: Point, old: Point, momentum: float) -> Point:
        """new + momentum (new - old)."""
        if momentum == 0:
            return new
        return Point(new.U + momentum * (new.U - old.U), new.fit + momentum * (new.fit - old.fit))
