"""The squared loss and Huber's, which are functions of the residual."""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import Array, SomeArray, array_namespace, double, to_numpy
from cvxnn.losses.base import Root, WeightedLoss, column_roots
from cvxnn.ranks import total
from cvxnn.rounding import TINY, Ball, down, slack, total_above, up

HUBER_DELTA = 1.35  # 95 % efficient for normal errors of unit variance


class SquaredLoss(WeightedLoss):
    """-f*(Theta) = -<Theta, Y> - 1/2 sum s/w Theta^2, so the best scaling is a parabola's vertex,
    clipped to what is allowed."""

    affine_gradient = True
    translates = True
    declares_rounding = True
    any_device = True
    sums_ranks = True

    @property
    def least_squares(self) -> bool:
        return self.affine_gradient and not self.has_sample_weights

    def value(self, Z: Array) -> float:
        R = double(Z) - double(self.Y)
        return self._weighted_sum(R * R) / 2

    def gradient(self, Z: SomeArray) -> SomeArray:
        return (double(Z) - double(self.Y)) * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        step = double(Z_new) - double(Z)
        return self._weighted_sum(step * step) / 2

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """The weighted mean of Y - Z, plus that of what it leaves: rounding of the first is made up
        for by the second, and a constant column is met exactly, whatever the weights."""
        left, size = self.Y - Z, total(self.row_weight, self.across)
        mean = self._sums(self.row_weight * left)[0] / size
        return mean + self._sums(self.row_weight * (left - mean))[0] / size

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        share = self._sums(Theta)[0] / total(self.row_weight, self.across)
        return Theta - self.row_weight * share

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta, limit, quadratic = double(Theta), double(limit), double(quadratic)
        if isinstance(Theta, np.ndarray) and Theta.shape[1] == 1:
            return self._best_dual_of_column(Theta, to_numpy(limit), to_numpy(quadratic))
        xp = array_namespace(Theta)
        slope, curvature = self._sums(-Theta * double(self.Y), Theta * Theta / self.row_weight)
        limit = xp.minimum(limit, self._domain(Theta))
        if limit.shape[0] == 1:  # one scaling for all classes
            slope, curvature = xp.sum(slope)[None], xp.sum(curvature)[None]
        curvature = curvature + 2 * quadratic
        flat = curvature == 0
        vertex = slope / xp.where(flat, xp.ones_like(curvature), curvature)
        tau = xp.where(flat, xp.zeros_like(vertex), xp.clip(vertex, -limit, limit))
        return tau, float(xp.sum(tau * (slope - 0.5 * tau * curvature)))

    def _best_dual_of_column(
        self, Theta: np.ndarray, limit: np.ndarray, quadratic: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """The same for one output, in numbers: a run asks often, and arrays of one entry cost more
        than the sums."""
        Y, w = self._numbers()
        sums = np.array([-np.dot(Theta[:, 0], Y[:, 0]), np.sum(Theta * Theta / w)])
        slope, curvature = self.across.sum(sums).tolist()
        curvature += 2 * float(quadratic[0])
        most = min(float(limit[0]), float(self._domain(Theta)[0]))
        tau = 0.0 if curvature == 0 else min(max(slope / curvature, -most), most)
        return np.array([tau]), tau * (slope - 0.5 * tau * curvature)

    def _domain(self, Theta: Array) -> Array:
        """How far Theta may be scaled inside the domain of f*, all outputs alike."""
        xp = array_namespace(Theta)
        return xp.full_like(xp.sum(Theta, axis=0)[:1], xp.inf)  # of no rows, too

    def root(self, Z: np.ndarray) -> Root:
        return Root(np.broadcast_to(np.sqrt(self.row_weight), Z.shape), across=self.across)

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        r = self._distance(Z, bias)
        return self._sum_above(0.5 * r * r, 2) if self._any(r) else 0.0

    def _any(self, r: np.ndarray) -> bool:
        return bool(self.across.max(float(np.any(r))))

    def _distance(self, Z: Ball, bias: np.ndarray | None) -> np.ndarray:
        """|z + b - y| from above. The bias and the target are subtracted first, which is exact
        where both are far from zero."""
        Y, _ = self._numbers()
        return (Z - (Y if bias is None else Ball(Y) - bias)).magnitude()

    def dual_below(
        self,
        point: Ball,
        limit: np.ndarray,
        linear: np.ndarray,
        quadratic: np.ndarray,
        balanced: bool = False,
    ) -> float:
        """The best multiple. Where columns of T sum to zero, any number may be subtracted from the
        targets of a column."""
        Y, w = self._numbers()
        targets: Ball | np.ndarray = Y
        if balanced:
            targets = Ball(Y) - self._sums(w * Y)[0] / total(w, self.across)
        slope = (point * targets).sum(axis=0).over(self.across)
        curvature = total_above((point * point / w).sum(axis=0).above(), self.across)
        if len(limit) == 1:
            slope = slope.sum().reshape(1)
            curvature = np.atleast_1d(up(curvature.sum(), Y.shape[1]))
        curvature = up(curvature + 2 * quadratic, 3)
        limit = np.minimum(limit, self._domain_below(point))
        rise = down(np.maximum(np.abs(slope.mid) - up(slope.rad + linear, 2), 0.0), 2)
        flat = ~((rise > 0) & (curvature > 0))
        tau = np.where(flat, 0.0, np.minimum(limit, rise / np.where(flat, 1.0, curvature)))
        first, second = tau * rise, 0.5 * tau * (tau * curvature)
        value = first - second - slack(4) * (first + second) - TINY
        return float(down(np.sum(np.maximum(np.nan_to_num(value), 0.0)), len(tau)))

    def _domain_below(self, point: Ball) -> float:
        """How far the point may be scaled inside the domain of f*."""
        return np.inf


class HuberLoss(SquaredLoss):
    """f* is that of the squared loss inside the box |Theta| <= delta w/s."""

    affine_gradient = False
    declares_rounding = True
    any_device = True
    sums_ranks = True

    def __init__(
        self, Y: Array, row_weight: Array | None = None, delta: float = HUBER_DELTA
    ) -> None:
        super().__init__(Y, row_weight, delta=delta)
        self.delta = delta

    def _residual(self, Z: Array) -> tuple[Array, Array]:
        """The residual, and the part of it that is not beyond delta."""
        R = double(Z) - double(self.Y)
        return R, array_namespace(R).clip(R, -self.delta, self.delta)

    def value(self, Z: Array) -> float:
        R, inner = self._residual(Z)
        return self._weighted_sum(inner * (R - 0.5 * inner))

    def gradient(self, Z: SomeArray) -> SomeArray:
        return self._residual(Z)[1] * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        R, inner = self._residual(Z_new)
        change = inner - self._residual(Z)[1]
        return self._weighted_sum(change * (0.5 * change + (R - inner)))

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """No further from `start` than the largest residual, however large or small targets are."""
        start = super().best_intercept(Z) if start is None else start
        largest = np.max(np.abs(self.Y - Z - start), axis=0, initial=0.0)
        return column_roots(self, Z, start, self.across.max(largest))

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        inside = self.row_weight * (np.abs(Theta) < (1 - 1e-12) * self.delta * self.row_weight)
        size, excess = self._sums(inside, Theta)
        return Theta - inside * (excess / np.where(size > 0, size, 1.0))

    def _domain(self, Theta: Array) -> Array:
        xp = array_namespace(Theta)
        distances = xp.abs(Theta) / self.row_weight
        if self.across.size > 1:
            largest = np.atleast_1d(self.across.max(np.max(distances, initial=0.0)))
        else:
            largest = xp.max(distances)[None]
        allowed = xp.where(largest > 0, largest, xp.ones_like(largest))
        return xp.where(largest > 0, self.delta / allowed, xp.full_like(largest, xp.inf))

    def around(self, Z: Array, tail: float) -> HuberLoss:
        R, inner = self._residual(Z)
        return _SmoothedHuber(self, R - inner, tail)

    def root(self, Z: np.ndarray) -> Root:
        R, inner = self._residual(Z)
        return Root(np.sqrt(self.row_weight) * (inner == R), across=self.across)

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        r = self._distance(Z, bias)
        inner = np.minimum(r, self.delta)
        return self._sum_above(inner * (r - 0.5 * inner), 3) if self._any(r) else 0.0

    def _domain_below(self, point: Ball) -> float:
        _, w = self._numbers()
        largest = float(self.across.max(np.max(point.magnitude() / w, initial=0.0)))
        largest = up(largest, 1) if largest > 0 else 0.0
        return float(down(self.delta / largest, 1)) if largest > 0 else np.inf


class _SmoothedHuber(HuberLoss):
    """min_E  1/(2s) sum w (z - y - e)^2 + w delta/s |e| + t w/(2s) (e - e0)^2.

    Without the last term, the minimum is Huber's loss: e is the part of a residual that counts as
    an outlier. With it the loss has curvature everywhere, touches Huber's where e0 = e, and the
    proximal point method in e converges to it.
    """

    def __init__(self, base: HuberLoss, outliers: np.ndarray, tail: float) -> None:
        super().__init__(base.Y, base.row_weight, base.delta)
        base.shared(self)
        self.outliers, self.tail = outliers, tail

    def _split(self, Z: Array) -> tuple[Array, Array]:
        R = Z - self.Y
        raw = R + self.tail * self.outliers
        E = (raw - np.clip(raw, -self.delta, self.delta)) / (1 + self.tail)
        return R, E

    def value(self, Z: Array) -> float:
        R, E = self._split(Z)
        terms = (
            0.5 * (R - E) ** 2 + self.delta * np.abs(E) + 0.5 * self.tail * (E - self.outliers) ** 2
        )
        return self._weighted_sum(terms)

    def gradient(self, Z: SomeArray) -> SomeArray:
        R, E = self._split(Z)
        return (R - E) * self.row_weight

    def root(self, Z: np.ndarray) -> Root:
        _, E = self._split(Z)
        curvature = np.where(E != 0, self.tail / (1 + self.tail), 1.0)
        return Root(np.sqrt(self.row_weight * curvature), across=self.across)
