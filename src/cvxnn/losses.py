"""Convex losses f(Z) of the predictions Z (n, C), bound to their targets and weights.

    squared    1/(2s) sum w (z - y)^2            s = C sum w
    huber      1/s sum w h(z - y)                h(r) = r^2/2 up to |r| = delta, linear beyond
    logistic   1/s sum w log(1 + exp(-y z))      y = +-1
    softmax    1/s sum w sum_k y_k (log sum exp(z) - z_k)   rows y of probabilities, s = sum w

A loss gives its value and gradient, the Bregman divergence that a line search tests (computed
without cancellation), a square root of its Hessian for Newton's method, and its side of the dual
problem: the lower bound

    D(tau) = -f*(tau Theta) - tau^2 q

of a scaling tau of a dual candidate Theta, where the penalty says how far tau may go (`limit`)
and what quadratic it adds (`q`). Theta = grad f(Z) at the optimum gives the optimal value.

What a certificate claims is computed apart from that, with a bound on every rounding error (see
rounding.py): `value_above` from predictions with their errors, `dual_below` from a `dual_point`,
which satisfies the equations of the dual exactly. A loss that declares its rounding has all three.

`WithIntercept` makes min_b f(Z + 1 b') a loss of Z, so that an unpenalised output bias is nobody
else's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from cvxnn import rounding
from cvxnn.arrays import Array, array_namespace, double, like, to_numpy
from cvxnn.rounding import TINY, UNIT, Ball, depth, down, slack, tree_sum, up
from cvxnn.validation import check_choice, check_number, check_vector

HUBER_DELTA = 1.35  # 95 % efficient for normal errors of unit variance
# Sums that have to vanish in the dual count as zero up to this, relative to their terms.
BALANCED = 1e-9


@dataclass(frozen=True)
class Root:
    """A square root of a Hessian, H = L L': L x = scale o (x - v <v, x>), row by row, after the
    part of x in the span of Q was taken out.

    scale : (n, C).
    unit : v, unit rows (n, C), or None.
    span : Q, orthonormal columns (n C, m) orthogonal to v, or None.
    """

    scale: np.ndarray
    unit: np.ndarray | None = None
    span: np.ndarray | None = None

    def project(self, x: np.ndarray) -> np.ndarray:
        """x (n, C) without its parts along v and in the span."""
        if self.unit is not None:
            x = x - self.unit * np.sum(self.unit * x, axis=1, keepdims=True)
        if self.span is not None:
            x = x - (self.span @ (self.span.T @ x.reshape(-1))).reshape(x.shape)
        return x

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.scale * self.project(x)

    def adjoint(self, r: np.ndarray) -> np.ndarray:
        return self.project(self.scale * r)


class Loss(Protocol):
    Y: Array  # (n, C) targets
    row_weight: Array  # (n, 1), w / s
    affine_gradient: bool  # of a quadratic
    has_sample_weights: bool
    declares_rounding: bool  # whether it has the three methods that come last

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

    def intercept(self, Z: Array) -> np.ndarray:
        """The b (C,) that minimises f(Z + 1 b'); zero for a loss without one."""
        ...

    def dual_candidate(self, Theta: Array) -> Array:
        """Theta, made to satisfy the equations of the dual problem if there are any."""
        ...

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        """The scaling tau with |tau| <= limit for which D(tau) is best, or as good, and the value.

        `limit` and `quadratic` have shape (C,) for one scaling a class, or (1,) for a common one.
        """
        ...

    def by_output(self) -> list[Loss]:
        """Losses in NumPy whose sum this one is, over consecutive outputs: of one each, unless
        they are coupled."""
        ...

    def around(self, Z: Array, tail: float) -> Loss:
        """A loss with positive curvature that touches this one at Z, and is nowhere below; itself
        where it has that."""
        ...

    def root(self, Z: np.ndarray) -> Root:
        """A square root of the Hessian at Z."""
        ...

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        """Above f(Z + 1 bias') for predictions that are known up to an error."""
        ...

    def dual_point(self, Theta: np.ndarray, balanced: bool = False) -> tuple[np.ndarray, Ball]:
        """Doubles next to Theta, and the point that they stand for: it satisfies the equations of
        the dual exactly. With `balanced`, columns sum to zero."""
        ...

    def dual_below(
        self,
        point: Ball,
        limit: np.ndarray,
        linear: np.ndarray,
        quadratic: np.ndarray,
        balanced: bool = False,
    ) -> float:
        """Below -f*(tau T) - tau linear - tau^2 quadratic, or 0, for the T that `point` stands for
        and some tau in [0, limit] of its choice; shapes as in `best_dual`."""
        ...


class _WeightedLoss:
    """What the losses share: targets, row weights, and no equations in the dual."""

    affine_gradient = False
    coupled = False  # outputs
    translates = False  # whether only Z - Y matters
    declares_rounding = False

    def __init__(self, Y: Array, row_weight: Array | None = None) -> None:
        self.Y = Y
        n, C = Y.shape
        if row_weight is None:
            row_weight = np.full((n, 1), 1.0 / (n if self.coupled else n * C))
        xp = array_namespace(Y)
        self.row_weight = like(Y, row_weight, dtype=xp.float64)

    @property
    def has_sample_weights(self) -> bool:
        weight = to_numpy(self.row_weight)
        return bool(np.any(weight != weight[0]))

    def _weighted_sum(self, terms: Array) -> float:
        return float(array_namespace(terms).sum(self.row_weight * terms))

    def value(self, Z: Array) -> float:
        raise NotImplementedError

    @property
    def zero_value(self) -> float:
        return self.value(array_namespace(self.Y).zeros_like(double(self.Y)))

    def intercept(self, Z: Array) -> np.ndarray:
        return np.zeros(self.Y.shape[1])

    def dual_candidate(self, Theta: Array) -> Array:
        return Theta

    def around(self, Z: Array, tail: float) -> Self:
        return self

    def in_numpy(self) -> Self:
        """The same loss in NumPy float64."""
        return self._with(to_numpy(double(self.Y)))

    def by_output(self) -> list[Any]:
        plain = self.in_numpy()
        if self.coupled:
            return [plain]
        return [plain._with(plain.Y[:, [k]]) for k in range(plain.Y.shape[1])]

    def _with(self, Y: Array) -> Self:
        return type(self)(Y, to_numpy(self.row_weight))

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Targets and row weights in NumPy float64."""
        return to_numpy(double(self.Y)), to_numpy(self.row_weight)

    def _sum_above(self, terms: np.ndarray, roundings: int) -> float:
        """Above the weighted sum of terms >= 0, each computed with so many roundings."""
        if not np.any(terms):
            return 0.0
        weighted = to_numpy(self.row_weight) * terms
        return float(up(tree_sum(weighted), depth(weighted.size) + roundings + 1))

    def dual_point(self, Theta: np.ndarray, balanced: bool = False) -> tuple[np.ndarray, Ball]:
        if not balanced:
            return Theta, Ball(Theta, np.zeros_like(Theta))
        columns = [rounding.zero_sum(column) for column in Theta.T]
        parts = [(theta, point.mid, point.rad) for theta, point in columns]
        Theta, mid, rad = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        return Theta, Ball(mid, rad)


class SquaredLoss(_WeightedLoss):
    """-f*(Theta) = -<Theta, Y> - 1/2 sum s/w Theta^2, so the best scaling is a parabola's vertex,
    clipped to what is allowed."""

    affine_gradient = True
    translates = True
    declares_rounding = True

    def value(self, Z: Array) -> float:
        R = double(Z) - double(self.Y)
        return self._weighted_sum(R * R) / 2

    def gradient(self, Z: Array) -> Array:
        return (double(Z) - double(self.Y)) * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        step = double(Z_new) - double(Z)
        return self._weighted_sum(step * step) / 2

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """The weighted mean of Y - Z, plus that of what it leaves: rounding of the first is made up
        for by the second, and a constant column is met exactly, whatever the weights."""
        left, total = self.Y - Z, np.sum(self.row_weight)
        mean = np.sum(self.row_weight * left, axis=0) / total
        return mean + np.sum(self.row_weight * (left - mean), axis=0) / total

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        return Theta - self.row_weight * (Theta.sum(axis=0) / np.sum(self.row_weight))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta, limit, quadratic = double(Theta), double(limit), double(quadratic)
        xp = array_namespace(Theta)
        slope = -xp.sum(Theta * double(self.Y), axis=0)
        curvature = xp.sum(Theta * Theta / self.row_weight, axis=0)
        limit = xp.minimum(limit, self._domain(Theta))
        if limit.shape[0] == 1:  # one scaling for all classes
            slope, curvature = xp.sum(slope)[None], xp.sum(curvature)[None]
        curvature = curvature + 2 * quadratic
        flat = curvature == 0
        vertex = slope / xp.where(flat, xp.ones_like(curvature), curvature)
        tau = xp.where(flat, xp.zeros_like(vertex), xp.clip(vertex, -limit, limit))
        return tau, float(xp.sum(tau * (slope - 0.5 * tau * curvature)))

    def _domain(self, Theta: Array) -> Array:
        """How far Theta may be scaled inside the domain of f*, all outputs alike."""
        xp = array_namespace(Theta)
        return xp.full_like(Theta[0, :1], xp.inf)

    def root(self, Z: np.ndarray) -> Root:
        return Root(np.broadcast_to(np.sqrt(self.row_weight), Z.shape))

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        r = self._distance(Z, bias)
        return self._sum_above(0.5 * r * r, 2)

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
        targets: Any = Ball(Y) - np.sum(w * Y, axis=0) / np.sum(w) if balanced else Y
        slope = (point * targets).sum(axis=0)
        curvature = (point * point / w).sum(axis=0).above()
        if len(limit) == 1:
            slope, curvature = slope.sum().reshape(1), np.atleast_1d(up(curvature.sum(), Y.size))
        curvature = up(curvature + 2 * quadratic, 3)
        limit = np.minimum(limit, self._domain_below(point))
        rise = down(np.maximum(np.abs(slope.mid) - up(slope.rad + linear, 2), 0.0), 2)
        flat = ~((rise > 0) & (curvature > 0))
        tau = np.where(flat, 0.0, np.minimum(limit, rise / np.where(flat, 1.0, curvature)))
        first, second = tau * rise, 0.5 * tau * tau * curvature
        value = first - second - slack(4) * (first + second) - TINY
        return float(down(np.sum(np.maximum(np.nan_to_num(value), 0.0)), len(tau)))

    def _domain_below(self, point: Ball) -> float:
        """How far the point may be scaled inside the domain of f*."""
        return np.inf


class HuberLoss(SquaredLoss):
    """f* is that of the squared loss inside the box |Theta| <= delta w/s."""

    affine_gradient = False

    def __init__(
        self, Y: Array, row_weight: Array | None = None, delta: float = HUBER_DELTA
    ) -> None:
        super().__init__(Y, row_weight)
        self.delta = delta

    def _with(self, Y: Array) -> Self:
        return type(self)(Y, to_numpy(self.row_weight), self.delta)

    def _residual(self, Z: Array) -> tuple[Array, Array]:
        """The residual, and the part of it that is not beyond delta."""
        R = double(Z) - double(self.Y)
        return R, array_namespace(R).clip(R, -self.delta, self.delta)

    def value(self, Z: Array) -> float:
        R, inner = self._residual(Z)
        return self._weighted_sum(inner * (R - 0.5 * inner))

    def gradient(self, Z: Array) -> Array:
        return self._residual(Z)[1] * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        R, inner = self._residual(Z_new)
        change = inner - self._residual(Z)[1]
        return self._weighted_sum(change * (0.5 * change + (R - inner)))

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        return _column_roots(self, Z, super().best_intercept(Z) if start is None else start)

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        inside = self.row_weight * (np.abs(Theta) < (1 - 1e-12) * self.delta * self.row_weight)
        total = inside.sum(axis=0)
        return Theta - inside * (Theta.sum(axis=0) / np.where(total > 0, total, 1.0))

    def _domain(self, Theta: Array) -> Array:
        xp = array_namespace(Theta)
        largest = xp.max(xp.abs(Theta) / self.row_weight)[None]
        allowed = xp.where(largest > 0, largest, xp.ones_like(largest))
        return xp.where(largest > 0, self.delta / allowed, xp.full_like(largest, xp.inf))

    def around(self, Z: Array, tail: float) -> Any:
        R, inner = self._residual(Z)
        return _SmoothedHuber(self, R - inner, tail)

    def root(self, Z: np.ndarray) -> Root:
        R, inner = self._residual(Z)
        return Root(np.sqrt(self.row_weight) * (inner == R))

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        r = self._distance(Z, bias)
        inner = np.minimum(r, self.delta)
        return self._sum_above(inner * (r - 0.5 * inner), 3)

    def _domain_below(self, point: Ball) -> float:
        _, w = self._numbers()
        largest = up(float(np.max(point.magnitude() / w)), 1) if np.any(point.mid) else 0.0
        return float(down(self.delta / largest, 1)) if largest > 0 else np.inf


class _SmoothedHuber(HuberLoss):
    """min_E  1/(2s) sum w (z - y - e)^2 + w delta/s |e| + t w/(2s) (e - e0)^2.

    Without the last term, the minimum is Huber's loss: e is the part of a residual that counts as
    an outlier. With it the loss has curvature everywhere, touches Huber's where e0 = e, and the
    proximal point method in e converges to it.
    """

    def __init__(self, base: HuberLoss, outliers: np.ndarray, tail: float) -> None:
        super().__init__(base.Y, base.row_weight, base.delta)
        self.outliers, self.tail = outliers, tail

    def _split(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        R = Z - self.Y
        raw = R + self.tail * self.outliers
        E = (raw - np.clip(raw, -self.delta, self.delta)) / (1 + self.tail)
        return R, E

    def value(self, Z: np.ndarray) -> float:
        R, E = self._split(Z)
        terms = (
            0.5 * (R - E) ** 2 + self.delta * np.abs(E) + 0.5 * self.tail * (E - self.outliers) ** 2
        )
        return self._weighted_sum(terms)

    def gradient(self, Z: np.ndarray) -> np.ndarray:
        R, E = self._split(Z)
        return (R - E) * self.row_weight

    def root(self, Z: np.ndarray) -> Root:
        _, E = self._split(Z)
        return Root(np.sqrt(self.row_weight * np.where(E != 0, self.tail / (1 + self.tail), 1.0)))


class LogisticLoss(_WeightedLoss):
    """With q = -s/w y Theta in [0, 1], f*(Theta) = 1/s sum w (q log q + (1 - q) log(1 - q))."""

    declares_rounding = True

    def value(self, Z: Array) -> float:
        margin = double(self.Y) * double(Z)
        return self._weighted_sum(_softplus(-margin))

    def gradient(self, Z: Array) -> Array:
        Y = double(self.Y)
        return -Y * _sigmoid(-Y * double(Z)) * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        """The divergence of two distributions: sum q (e^d - 1 - d) over both outcomes, d the
        change of log q, is a sum of non-negative terms. Long steps do not cancel if q is the
        smaller one; the targets do not matter."""
        Z, step = double(Z), double(Z_new) - double(Z)
        xp = array_namespace(Z)
        margin, step = xp.abs(Z), xp.where(Z < 0, -step, step)
        q, short = _sigmoid(-margin), xp.clip(step, -1.0, 1.0)
        right = -xp.log1p(q * xp.expm1(-short))  # change of log(1 - q)
        near = q * _excess(right - short) + (1 - q) * _excess(right)
        far = _softplus(-margin - step) - _softplus(-margin) + q * step
        return self._weighted_sum(xp.where(short == step, near, far))

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        return _column_roots(self, Z, np.zeros(Z.shape[1]) if start is None else start)

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        q = np.clip(-self.Y * Theta / self.row_weight, 0.0, 1.0)
        curvature = self.row_weight * q * (1 - q)
        total = curvature.sum(axis=0)
        return Theta - curvature * (Theta.sum(axis=0) / np.where(total > 0, total, 1.0))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta = double(Theta)
        xp = array_namespace(Theta)
        q = -double(self.Y) * Theta / self.row_weight
        allowed = 1.0 / xp.maximum(xp.max(q, axis=0), xp.ones_like(q[0, :]))
        allowed = xp.where(xp.min(q, axis=0) < 0, xp.zeros_like(allowed), allowed)
        if limit.shape[0] == 1:
            allowed = xp.min(allowed)[None]
        tau = xp.minimum(double(limit), allowed)
        q = tau * q
        value = self._weighted_sum(_entropy(q) + _entropy(1 - q))
        return tau, value - float(xp.sum(tau * tau * double(quadratic)))

    def root(self, Z: np.ndarray) -> Root:
        q = _sigmoid(Z)
        return Root(np.sqrt(self.row_weight * q * _sigmoid(-Z)))

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        Y, _ = self._numbers()
        Z = Z if bias is None else Z + bias
        against = Ball(-Y * Z.mid, Z.rad).above()  # a change of sign is exact
        return self._sum_above(rounding.softplus_above(against), 2)

    def dual_below(
        self,
        point: Ball,
        limit: np.ndarray,
        linear: np.ndarray,
        quadratic: np.ndarray,
        balanced: bool = False,
    ) -> float:
        """The longest multiple up to 1. The entropy of q is concave, and least at an end."""
        Y, w = self._numbers()
        side = Ball(-Y * point.mid, point.rad)
        q = side / w
        top = np.max(q.above(), axis=0)
        longest = np.where(top > 1, down(1 / np.maximum(top, 1.0), 1), 1.0)
        longest = np.where(np.any(side.mid < side.rad, axis=0), 0.0, longest)  # outside the domain
        tau = np.minimum(limit, longest if len(limit) > 1 else longest.min())
        q = q * tau
        ends = (np.clip(end, 0.0, 1.0) for end in (q.below(), q.above()))
        terms = [rounding.entropy_below(q) + rounding.rest_entropy_below(q) for q in ends]
        gain = down(tree_sum(w * np.maximum(np.minimum(*terms), 0.0)), depth(Y.size) + 2)
        return _less(gain, tau, linear, quadratic)


class SoftmaxLoss(_WeightedLoss):
    """With q = Y + s/w Theta >= 0 and t the row sums of Y, which are those of q,
    f*(Theta) = 1/s sum w (sum_k q log q - t log t). Targets that are not certain seldom sum to
    exactly 1 in floating-point numbers; t makes up for it."""

    coupled = True
    declares_rounding = True

    def __init__(self, Y: Array, row_weight: Array | None = None) -> None:
        super().__init__(Y, row_weight)
        Y = double(Y)
        self._total = array_namespace(Y).sum(Y, axis=1, keepdims=True)

    def value(self, Z: Array) -> float:
        Z = double(Z)
        Z = Z - array_namespace(Z).max(Z, axis=1, keepdims=True)
        against = array_namespace(Z).sum(double(self.Y) * Z, axis=1, keepdims=True)
        return self._weighted_sum(self._total * _log_sum_exp(Z) - against)

    def gradient(self, Z: Array) -> Array:
        return self._theta(self._total * _softmax(double(Z)))

    def _theta(self, q: Array) -> Array:
        """w/s (q - Y), with rows that add up to zero even where q is 0 and 1 up to rounding: the
        largest q makes up for it."""
        xp = array_namespace(q)
        change = q - double(self.Y)
        largest = xp.astype(q == xp.max(q, axis=1, keepdims=True), xp.float64)
        excess = xp.sum(change, axis=1, keepdims=True) / xp.sum(largest, axis=1, keepdims=True)
        return (change - largest * excess) * self.row_weight

    def bregman(self, Z_new: Array, Z: Array) -> float:
        """log sum q e^d = log(1 + sum q (e^d - 1 - d)) for the step d, less its mean under q."""
        Z, step = double(Z), double(Z_new) - double(Z)
        xp = array_namespace(Z)
        log_q = _log_softmax(Z)
        q = xp.exp(log_q)
        step = step - xp.sum(q * step, axis=1, keepdims=True)
        short = xp.minimum(step, xp.full_like(step, 500.0))
        near = xp.log1p(xp.sum(q * _excess(short), axis=1, keepdims=True))
        far = xp.maximum(_log_sum_exp(log_q + step), xp.zeros_like(near))
        within = xp.all(short == step, axis=1, keepdims=True)
        return self._weighted_sum(self._total * xp.where(within, near, far))

    def best_intercept(self, Z: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """b is determined up to a constant, and sums to zero. Where predictions are so sure of
        themselves that they leave no curvature, it is found for less and less blunted ones."""
        Z = Z - Z.mean(axis=1, keepdims=True)
        mean = Z.mean(axis=0)
        Z = Z - mean
        b, found = self._balancing_steps(Z, np.zeros_like(mean) if start is None else start + mean)
        if not found:
            b, sharpness = np.zeros_like(mean), 10 / max(float(np.ptp(Z)), 1e-300)
            while sharpness < 1:
                b, _ = self._balancing_steps(sharpness * Z, b, enough=0.1)
                b, sharpness = b * min(2.0, 1 / sharpness), 2 * sharpness
            b, _ = self._balancing_steps(Z, b)
        return b - mean

    def _balancing_steps(
        self, Z: np.ndarray, b: np.ndarray, enough: float = 0.0
    ) -> tuple[np.ndarray, bool]:
        """Newton steps towards columns of the gradient that sum to zero, until they are no longer
        than `enough` or all rounding, and whether they got there. A step of range r descends if it
        is shortened by log(1 + r)/r (Sun and Tran-Dinh, Mathematical Programming 178, 2019), so no
        values are compared."""
        last = np.inf
        for _ in range(30):
            gradient = self.gradient(Z + b)
            slope = gradient.sum(axis=0)
            left = float(np.max(np.abs(slope) / np.maximum(np.abs(gradient).sum(axis=0), 1e-300)))
            step = -np.linalg.lstsq(self._summed_hessian(_softmax(Z + b)), slope, rcond=1e-14)[0]
            if not np.all(np.abs(step) < 1e100):
                break
            step -= step.mean()
            length = float(np.ptp(step))
            if left <= 1e-14 or length <= enough or (length < 1e-6 and left >= last):
                return b, left <= 1e-12 or enough > 0
            b, last = b + step * (np.log1p(length) / length), left
        return b, False

    def _summed_hessian(self, q: np.ndarray) -> np.ndarray:
        """diag(sum w q) - sum w q q', by its entries off the diagonal: rows sum to zero."""
        hessian = -(self.row_weight * q).T @ q
        np.fill_diagonal(hessian, 0.0)
        np.fill_diagonal(hessian, -hessian.sum(axis=1))
        return hessian

    def dual_candidate(self, Theta: Array) -> Array:
        """Inside the domain, q >= 0; forming q itself would lose all of Theta but its leading bits
        where q is nearly 1."""
        Theta, Y = double(Theta), double(self.Y)
        xp = array_namespace(Theta)
        Theta = xp.maximum(Theta, -Y * self.row_weight)
        q = Y + Theta / self.row_weight
        largest = xp.astype(q == xp.max(q, axis=1, keepdims=True), xp.float64)
        excess = xp.sum(Theta, axis=1, keepdims=True) / xp.sum(largest, axis=1, keepdims=True)
        return Theta - largest * excess

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        q = np.maximum(self.Y + Theta / self.row_weight, 0.0)
        b = np.linalg.lstsq(self._summed_hessian(q), Theta.sum(axis=0), rcond=1e-14)[0]
        return self.dual_candidate(Theta - self.row_weight * q * (b - (q @ b)[:, None]))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        """One scaling for all classes, since rows of q add up to 1."""
        Theta, Y = double(Theta), double(self.Y)
        xp = array_namespace(Theta)
        change = Theta / self.row_weight
        tau = min(1.0, float(xp.min(limit)))
        size = xp.sum(xp.abs(Theta), axis=1)
        if bool(xp.any(xp.abs(xp.sum(Theta, axis=1)) > BALANCED * size)):
            tau = 0.0
        falling = -change > Y  # the others allow tau = 1
        safe = xp.where(falling, -change, xp.ones_like(change))
        tau = min(tau, float(xp.min(xp.where(falling, Y / safe, xp.full_like(Y, xp.inf)))))
        value = self._weighted_sum(_entropy(Y + tau * change))
        value -= self._weighted_sum(_entropy(self._total))
        value -= tau**2 * float(xp.sum(double(quadratic)))
        return xp.full_like(double(limit), tau), value

    def root(self, Z: np.ndarray) -> Root:
        q = _softmax(Z)
        return Root(np.sqrt(self.row_weight * self._total * q), np.sqrt(q))

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        """With h the largest prediction of a row, t (lse - z_h) + sum_k y_k (z_h - z_k): no term is
        negative, and none cancels."""
        Y, _ = self._numbers()
        Z = Z if bias is None else Z + bias
        h = np.argmax(Z.mid, axis=1)[:, None]
        rad = np.broadcast_to(Z.rad, Z.mid.shape)
        ahead = Ball(np.take_along_axis(Z.mid, h, 1), np.take_along_axis(rad, h, 1)) - Z
        others = np.arange(Y.shape[1]) != h
        tails = np.where(others, rounding.exp_above((-ahead).above()), 0.0)
        excess = rounding.log1p(up(tails.sum(axis=1, keepdims=True), Y.shape[1]))
        behind = np.sum(Y * np.where(others, ahead.above(), 0.0), axis=1, keepdims=True)
        total = Ball(Y).sum(axis=1).above()[:, None]
        return self._sum_above(
            total * excess + np.maximum(behind, 0.0), rounding.LOG + Y.shape[1] + 3
        )

    def dual_point(self, Theta: np.ndarray, balanced: bool = False) -> tuple[np.ndarray, Ball]:
        """In each row the entry with the largest q stands for minus the exact sum of the others.
        Sums of columns are then moved to one of them, in the row that has most to give; what
        rounding leaves of them is moved exactly, in the point alone."""
        Y, w = self._numbers()
        Theta = self._implied(np.where((Y == 0) & (Theta < 0), 0.0, Theta))
        for _ in range(3 if balanced else 0):
            sums, sizes = tree_sum(Theta, 0), tree_sum(np.abs(Theta), 0)
            if np.all(np.abs(sums) <= 4 * UNIT * sizes):
                break
            for k, c, row in self._moves(Theta, sums):
                Theta[row, k] -= sums[k]
                Theta[row, c] += sums[k]
            Theta = self._implied(Theta)
        rows, h = np.arange(len(Y)), np.argmax(Y + Theta / w, axis=1)
        point = Ball(Theta.copy(), np.zeros_like(Theta))
        point.mid[rows, h] = 0.0
        others = point.sum(axis=1)
        point.mid[rows, h], point.rad[rows, h] = -others.mid, others.rad  # type: ignore[index]
        if balanced:
            sums = np.array([_column_sum(Theta, h, k) for k in range(Y.shape[1])])
            for k, c, row in self._moves(Theta, sums):
                point.take_from((row, k), sums[k])
                point.take_from((row, c), -sums[k])
        return Theta, point

    def _implied(self, Theta: np.ndarray) -> np.ndarray:
        """Rows that sum to zero up to rounding, by their entry with the largest q."""
        Y, w = self._numbers()
        rows, Theta = np.arange(len(Y)), Theta.copy()
        h = np.argmax(Y + Theta / w, axis=1)
        Theta[rows, h] = 0.0
        Theta[rows, h] = -Theta.sum(axis=1)
        return Theta

    def _moves(self, Theta: np.ndarray, sums: np.ndarray) -> list[tuple[int, int, int]]:
        """Which column sums are moved to which column, the one with most in it, in which row. When
        all the others sum to zero it does so too, as all rows do."""
        Y, w = self._numbers()
        room = w * (Y + Theta / w)
        c = int(np.argmax([math.fsum(column) for column in room.T]))
        return [
            (k, c, int(np.argmax(room[:, k if sums[k] > 0 else c])))
            for k in range(len(sums))
            if k != c and sums[k] != 0
        ]

    def dual_below(
        self,
        point: Ball,
        limit: np.ndarray,
        linear: np.ndarray,
        quadratic: np.ndarray,
        balanced: bool = False,
    ) -> float:
        """The longest multiple up to 1. -q log q is concave, and least at an end of q; where the
        target is above 1/2, 1 - q is known better than q. t log t >= t - 1."""
        Y, w = self._numbers()
        falling = point.mid < point.rad
        fall = up(np.where(falling, point.rad - point.mid, 1.0), 1)
        longest = np.where(falling, down(w * Y / fall, 2), 1.0)
        tau = min(1.0, float(limit.min()), float(longest.min()))
        step = point * tau / w
        sure = Y > 0.5
        start = np.where(sure, 1.0 - Y, Y)  # exact
        q = Ball(np.where(sure, -step.mid, step.mid), step.rad) + start
        ends = (
            np.where(sure, np.minimum(end, 1.0), np.maximum(end, 0.0))
            for end in (q.below(), q.above())
        )
        terms = np.minimum(*(
            np.where(sure, rounding.rest_entropy_below(end), rounding.entropy_below(end))
            for end in ends
        ))  # fmt: skip
        excess = (Ball(Y).sum(axis=1) - 1.0).below()[:, None]
        gain = (Ball(np.concatenate([terms, excess], axis=1)) * w).sum().below()
        return _less(max(float(gain), 0.0), np.full_like(limit, tau), linear, quadratic)


class WithIntercept:
    """min_b f(Z + 1 b') as a loss of Z. Its gradient is that of f at the minimum, whose columns
    sum to zero, and that equation is all it adds to the dual: f* is the same on it."""

    def __init__(
        self,
        base: Any,
        *,
        start: np.ndarray | None = None,
        warm: bool = False,
        centre: bool = True,
    ) -> None:
        """With `warm`, the search for b starts where the last one ended, or from `start`: quicker,
        but results depend, by rounding, on what was asked before. With `centre`, targets of which
        only differences matter are centred first: far from zero, sums would be all rounding."""
        self.base = base
        self._start, self._warm = start, warm
        self._recent: list[tuple[Array, np.ndarray]] = []  # predictions and their intercepts
        self.Y, self.row_weight = base.Y, base.row_weight
        self.affine_gradient = base.affine_gradient
        self.coupled, self.has_sample_weights = base.coupled, base.has_sample_weights
        self.declares_rounding = base.declares_rounding
        self._plain = base.in_numpy() if not isinstance(base.Y, np.ndarray) else base
        self._centre: np.ndarray | float = 0.0
        self._centred, self._plain_centred = base, self._plain
        if centre and base.translates:
            Y, w = self._plain._numbers()
            self._centre = np.sum(w * Y, axis=0) / np.sum(w)
            self._centred = base._with(double(base.Y) - like(double(base.Y), self._centre))
            self._plain_centred = self._plain._with(Y - self._centre)

    def intercept(self, Z: Array) -> np.ndarray:
        return self._centre + self._small_intercept(Z)

    def _small_intercept(self, Z: Array) -> np.ndarray:
        """The best b for the centred targets."""
        for known, b in self._recent:
            if known is Z:
                return b
        b = self._plain_centred.best_intercept(to_numpy(double(Z)), self._start)
        self._recent = [(Z, b), *self._recent[:1]]
        if self._warm:
            self._start = b
        return b

    def _shifted(self, Z: Array) -> Array:
        b = self._small_intercept(Z)
        Z = double(Z)
        return Z + like(Z, b)

    def value(self, Z: Array) -> float:
        return self._centred.value(self._shifted(Z))

    def gradient(self, Z: Array) -> Array:
        return self._centred.gradient(self._shifted(Z))

    def bregman(self, Z_new: Array, Z: Array) -> float:
        """Columns of the gradient sum to zero, so the shifts do not matter for its product."""
        return self._centred.bregman(self._shifted(Z_new), self._shifted(Z))

    @property
    def zero_value(self) -> float:
        return self.value(array_namespace(self.Y).zeros_like(double(self.Y)))

    def dual_candidate(self, Theta: Array) -> Array:
        Theta = self.base.dual_candidate(double(Theta))
        values = to_numpy(Theta)
        sums, sizes = tree_sum(values, 0), tree_sum(np.abs(values), 0)
        if np.all(np.abs(sums) <= 16 * UNIT * sizes):  # as balanced as rounding allows
            return Theta
        return like(Theta, self._plain.balance(values))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta = double(Theta)
        xp = array_namespace(Theta)
        size = xp.sum(xp.abs(Theta), axis=0)
        if bool(xp.any(xp.abs(xp.sum(Theta, axis=0)) > BALANCED * size)):
            limit = xp.zeros_like(limit)  # nothing but the zero multiple is feasible
        return self._centred.best_dual(Theta, limit, quadratic)

    def value_above(self, Z: Ball, bias: np.ndarray | None = None) -> float:
        return self._plain.value_above(Z, bias)

    def dual_point(self, Theta: np.ndarray, balanced: bool = True) -> tuple[np.ndarray, Ball]:
        return self._plain.dual_point(Theta, balanced=True)

    def dual_below(
        self,
        point: Ball,
        limit: np.ndarray,
        linear: np.ndarray,
        quadratic: np.ndarray,
        balanced: bool = True,
    ) -> float:
        return self._plain.dual_below(point, limit, linear, quadratic, balanced=True)

    def by_output(self) -> list[Loss]:
        return [WithIntercept(part, warm=True) for part in self.base.by_output()]

    def around(self, Z: Array, tail: float) -> Loss:
        near = self._centred.around(self._shifted(Z), tail)
        if near is self._centred:
            return self
        return WithIntercept(near, start=self._start, warm=self._warm, centre=False)

    def root(self, Z: np.ndarray) -> Root:
        """Of H - H 1 (1'H 1)^+ 1'H: the span of L'1 is taken out, for each output."""
        root = self._centred.root(self._shifted(Z))
        C = Z.shape[1]
        ones = np.zeros((C, *Z.shape))
        ones[range(C), :, range(C)] = 1.0
        columns = np.stack([root.adjoint(column).reshape(-1) for column in ones], axis=1)
        basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
        return replace(root, span=basis[:, sizes > 1e-10 * max(sizes.max(), 1e-300)])


LOSSES: dict[str, Callable[..., Any]] = {
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "logistic": LogisticLoss,
    "softmax": SoftmaxLoss,
}


def make_loss(
    name: str,
    Y: Array,
    *,
    sample_weight: Any = None,
    intercept: bool = False,
    huber_delta: float = HUBER_DELTA,
) -> Loss:
    """The loss of that name for targets Y (n, C), weighted row by row, with an output bias that is
    chosen best for any prediction if `intercept` is set."""
    cls = LOSSES[check_choice(name, "loss", LOSSES)]
    settings: dict[str, Any] = {}
    if name == "huber":
        settings["delta"] = check_number(huber_delta, "huber_delta", minimum=0, strict=True)
    if name in _CHECKS:
        _CHECKS[name](to_numpy(Y), intercept)
    row_weight = None
    if sample_weight is not None:
        weight = check_vector(sample_weight, "sample_weight", Y.shape[0])
        if not np.all(weight > 0):
            raise ValueError("sample_weight must be positive: drop rows of weight 0")
        total = weight.sum() * (1 if cls is SoftmaxLoss else Y.shape[1])
        row_weight = weight[:, None] / total
    loss = cls(Y, row_weight, **settings)
    return WithIntercept(loss) if intercept else loss


def _check_signs(Y: np.ndarray, intercept: bool) -> None:
    if not np.all(np.abs(Y) == 1):
        raise ValueError("Y must hold -1 and 1 for the logistic loss")
    if intercept and np.any(np.all(Y[0] == Y, axis=0)):
        raise ValueError("Y has one class only: with an intercept, no finite model is optimal")


def _check_distributions(Y: np.ndarray, intercept: bool) -> None:
    if Y.shape[1] < 2:
        raise ValueError("Y must have a column for each class for the softmax loss, got one column")
    if np.any(Y < 0) or not np.allclose(Y.sum(axis=1), 1.0, rtol=0, atol=1e-6):
        raise ValueError("Y must hold rows of probabilities (one-hot) for the softmax loss")
    if intercept and not np.all(Y.any(axis=0)):
        raise ValueError("Y has a class that never occurs: with an intercept, no finite model is "
                         "optimal")  # fmt: skip


_CHECKS = {"logistic": _check_signs, "softmax": _check_distributions}


# -- functions of single numbers and rows


def _sigmoid(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.exp(-_softplus(-x))


def _softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    xp = array_namespace(x)
    return xp.logaddexp(x, xp.zeros_like(x))


def _log_sum_exp(Z: Array) -> Array:
    xp = array_namespace(Z)
    largest = xp.max(Z, axis=1, keepdims=True)
    return largest + xp.log(xp.sum(xp.exp(Z - largest), axis=1, keepdims=True))


def _log_softmax(Z: Array) -> Array:
    xp = array_namespace(Z)
    Z = Z - xp.max(Z, axis=1, keepdims=True)
    return Z - _log_sum_exp(Z)


def _softmax(Z: Array) -> Array:
    return array_namespace(Z).exp(_log_softmax(Z))


def _excess(d: Array) -> Array:
    """exp(d) - 1 - d, by its series where that would cancel."""
    xp = array_namespace(d)
    series = d * d * (0.5 + d * (1 / 6 + d / 24))
    return xp.where(xp.abs(d) < 1e-3, series, xp.expm1(d) - d)


def _column_sum(Theta: np.ndarray, implied: np.ndarray, k: int) -> float:
    """The sum of column k, correctly rounded, where implied entries are exact."""
    others = np.arange(Theta.shape[1]) != k
    own, mine = Theta[implied != k, k], Theta[implied == k][:, others]
    return math.fsum(np.concatenate([own, -mine.reshape(-1)]))


def _less(gain: Any, tau: np.ndarray, linear: np.ndarray, quadratic: np.ndarray) -> float:
    """gain - tau linear - tau^2 quadratic, from below."""
    cost = np.where(tau > 0, tau * (linear + tau * quadratic), 0.0)
    return (
        float((Ball(np.asarray(gain)) - up(np.sum(cost), len(tau) + 4)).below())
        if np.any(cost)
        else float(gain)
    )


def _entropy(q: Array) -> Array:
    """-q log q, 0 at 0."""
    xp = array_namespace(q)
    positive = q > 0
    return xp.where(positive, -q * xp.log(xp.where(positive, q, xp.ones_like(q))), 0.0 * q)


def _column_roots(loss: Any, Z: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The b at which the columns of grad f(Z + 1 b') sum to zero, where outputs are not coupled:
    Newton steps as long as they halve, else the bracket is halved, or looked for."""
    b, low, high = start, np.full_like(start, -np.inf), np.full_like(start, np.inf)
    reach, last = np.ones_like(b), np.full_like(b, 2.0)
    for _ in range(200):
        gradient = loss.gradient(Z + b)
        slope, size = gradient.sum(axis=0), np.abs(gradient).sum(axis=0)
        low, high = np.where(slope <= 0, b, low), np.where(slope >= 0, b, high)
        done = (np.abs(slope) <= 1e-14 * size) | (high - low <= 4e-16 * np.abs(b))
        if np.all(done):
            break
        curvature = np.sum(loss.root(Z + b).scale ** 2, axis=0)
        curved = curvature > 1e-100 * np.abs(slope)
        newton = -slope / np.where(curved, curvature, 1.0)
        inside = (low < b + newton) & (b + newton < high)
        good = curved & inside & (2 * np.abs(newton) <= last)
        bounded = np.isfinite(high - low)
        other = -np.sign(slope) * reach
        other[bounded] = ((low + high) / 2 - b)[bounded]
        step = np.where(done, 0.0, np.where(good, newton, other))
        if np.all(b + step == b):
            break
        b, last, reach = b + step, np.abs(step), np.where(good, reach, 2 * reach)
    return b
