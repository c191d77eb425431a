"""The smooth part of a problem, as R-FISTA sees it: points, gradients, Bregman divergences.

A point carries its weights and their predictions, so that extrapolation costs no product.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cvxnn.arrays import Array
from cvxnn.losses import Loss


class Point(NamedTuple):
    U: Array  # weights
    fit: Array  # M U


class Smooth:
    """f(M U): a loss of the predictions of an operator with `forward` and `adjoint`."""

    def __init__(self, operator: Any, loss: Loss) -> None:
        self.operator, self.loss = operator, loss

    def point(self, U: Array) -> Point:
        return Point(U, self.operator.forward(U))

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
