"""Convex losses f(Z) of the predictions Z (n, C), bound to their targets.

A loss gives its value and gradient, the Bregman divergence that a line search tests (computed
without cancellation), and its side of the dual problem: the lower bound

    D(tau) = -f*(tau Theta) - tau^2 q

of the best scaling tau of a dual candidate Theta, where the penalty says how far tau may go
(`limit`) and what quadratic it adds (`q`). Any Theta gives a valid bound; Theta = grad f(Z) at
the optimum gives the optimal value.
"""

from __future__ import annotations

from typing import Protocol

from cvxnn.arrays import Array, array_namespace, double, to_numpy
from cvxnn.validation import check_choice


class Loss(Protocol):
    Y: Array  # (n, C) targets
    affine_gradient: bool  # of a quadratic

    def value(self, Z: Array) -> float:
        """f(Z), summed in float64."""
        ...

    def gradient(self, Z: Array) -> Array:
        """grad f(Z): (n, C)."""
        ...

    def bregman(self, Z_new: Array, Z: Array) -> float:
        """f(Z_new) - f(Z) - <grad f(Z), Z_new - Z>, without taking differences of f."""
        ...

    @property
    def zero_value(self) -> float:
        """f(0), the loss of the zero prediction."""
        ...

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        """The scaling tau with |tau| <= limit that maximises D(tau), and the value.

        `limit` and `quadratic` have shape (C,) for one scaling a class, or (1,) for a common one.
        """
        ...

    def by_output(self) -> list[Loss]:
        """Losses of single outputs, (n, 1), whose sum this one is."""
        ...

    def conjugate(self, Theta: Array) -> float:
        """f*(Theta)."""
        ...

    def conjugate_gradient(self, Theta: Array) -> Array:
        """grad f*(Theta): the predictions at which the gradient of f is Theta."""
        ...

    def conjugate_curvature(self, Theta: Array) -> Array:
        """The diagonal of the Hessian of f* at Theta, the inverse of that of f."""
        ...


class SquaredLoss:
    """f(Z) = 1/(2 n C) ||Z - Y||^2, the paper's scaling.

    -f*(Theta) = -<Theta, Y> - s/2 ||Theta||^2 with s = n C, so the best scaling is a parabola's
    vertex, clipped to what the penalty allows.
    """

    affine_gradient = True

    def __init__(self, Y: Array, s: int | None = None) -> None:
        self.Y = Y
        self.s = Y.shape[0] * Y.shape[1] if s is None else s

    def value(self, Z: Array) -> float:
        R = double(Z) - double(self.Y)
        return float(array_namespace(R).sum(R * R)) / (2 * self.s)

    def gradient(self, Z: Array) -> Array:
        return (Z - self.Y) / self.s

    def bregman(self, Z_new: Array, Z: Array) -> float:
        step = Z_new - Z
        return float(array_namespace(step).sum(step * step)) / (2 * self.s)

    @property
    def zero_value(self) -> float:
        Y = double(self.Y)
        return float(array_namespace(Y).sum(Y * Y)) / (2 * self.s)

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta, Y = double(Theta), double(self.Y)
        limit, quadratic = double(limit), double(quadratic)
        xp = array_namespace(Theta)
        slope = -xp.sum(Theta * Y, axis=0)
        curvature = self.s * xp.sum(Theta * Theta, axis=0)
        if limit.shape[0] == 1:  # one scaling for all classes
            slope, curvature = xp.sum(slope)[None], xp.sum(curvature)[None]
        curvature = curvature + 2 * quadratic
        flat = curvature == 0
        vertex = slope / xp.where(flat, xp.ones_like(curvature), curvature)
        tau = xp.where(flat, xp.zeros_like(vertex), xp.clip(vertex, -limit, limit))
        return tau, float(xp.sum(tau * (slope - 0.5 * tau * curvature)))

    def by_output(self) -> list[Loss]:
        Y = to_numpy(double(self.Y))
        return [SquaredLoss(Y[:, [k]], self.s) for k in range(Y.shape[1])]

    def conjugate(self, Theta: Array) -> float:
        Theta = double(Theta)
        xp = array_namespace(Theta)
        return float(xp.sum(Theta * (double(self.Y) + 0.5 * self.s * Theta)))

    def conjugate_gradient(self, Theta: Array) -> Array:
        return self.Y + self.s * Theta

    def conjugate_curvature(self, Theta: Array) -> Array:
        return array_namespace(Theta).full_like(Theta, self.s)


LOSSES = {"squared": SquaredLoss}


def make_loss(name: str, Y: Array) -> Loss:
    return LOSSES[check_choice(name, "loss", LOSSES)](Y)
