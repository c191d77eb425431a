"""The smooth part of a problem, as R-FISTA sees it: points, gradients, Bregman divergences.

A point carries its weights and their predictions, so that extrapolation costs no product.

Single precision is for products only. Weights and predictions are kept in double: rounding the
weights would make steps below 1e-7 of them vanish, which stalls a run at relative gaps of 1e-3.
And the prediction of a new point is that of a point near by plus the product of the difference,
whose rounding is relative to a small quantity; every now and then one product is made in double,
so that what is left does not add up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cvxnn.arrays import Array, double, is_double, like
from cvxnn.losses import Loss

MAX_DIFFERENCES = 200  # products in single precision between two in double


class Point(NamedTuple):
    U: Array  # weights
    fit: Array  # M U


class Smooth:
    """f(M U): a loss of the predictions of an operator with `forward` and `adjoint`."""

    def __init__(self, operator: Any, loss: Loss) -> None:
        self.operator, self.loss = operator, loss
        self._n_differences = 0

    def point(self, U: Array, near: Point | None = None) -> Point:
        """The point with weights U; `near` is one that may save digits in single precision."""
        if is_double(self.operator.X):
            return Point(U, self.operator.forward(U))
        U = double(U)
        if near is None or self._n_differences == MAX_DIFFERENCES:
            self._n_differences = 0
            return Point(U, self.operator.in_double().forward(U))
        self._n_differences += 1
        difference = like(self.operator.X, U - near.U)
        return Point(U, near.fit + self.operator.forward(difference))

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Theta = grad f(M U), and the gradient M'Theta with respect to U."""
        Theta = self.loss.gradient(point.fit)
        return Theta, self.operator.adjoint(Theta)

    def bregman(self, new: Point, old: Point) -> float:
        """The divergence of the smooth part from its linear model at `old`."""
        return self.loss.bregman(new.fit, old.fit)

    def extrapolate(self, new: Point, old: Point, momentum: float) -> Point:
        """new + momentum (new - old)."""
        if momentum == 0:
            return new
        return Point(new.U + momentum * (new.U - old.U), new.fit + momentum * (new.fit - old.fit))
