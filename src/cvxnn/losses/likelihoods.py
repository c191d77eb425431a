"""Negative log-likelihoods: logistic and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxnn import rounding
from cvxnn.arrays import Array, SomeArray, array_namespace, double, to_numpy
from cvxnn.kernels import native
from cvxnn.losses.base import BALANCED, Minimum, Root, WeightedLoss, column_roots
from cvxnn.ranks import exact_sum, failing_together, first_largest
from cvxnn.rounding import UNIT, Ball, depth, down, total_below, tree_sum, up


class LogisticLoss(WeightedLoss):
    """With q = -s/w y Theta in [0, 1], f*(Theta) = 1/s sum w (q log q + (1 - q) log(1 - q))."""

    declares_rounding = True
    any_device = True
    sums_ranks = True

    def check_targets(self, intercept: bool) -> None:
        Y = to_numpy(self.Y)
        with failing_together(self.across):
            if not np.all(np.abs(Y) == 1):
                raise ValueError("Y must hold -1 and 1 for the logistic loss")
        if intercept and np.any(self.across.max(np.stack([_any(Y > 0), _any(Y < 0)])) == 0):
            raise ValueError("Y has one class only: with an intercept, no finite model is optimal")

    def value(self, Z: Array) -> float:
        margin = double(self.Y) * double(Z)
        return self._weighted_sum(_softplus(-margin))

    def gradient(self, Z: SomeArray) -> SomeArray:
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
        return column_roots(self, Z, np.zeros(Z.shape[1]) if start is None else start)

    def minimum(self, Z: np.ndarray, start: np.ndarray | None = None) -> Minimum:
        own = type(self) is not LogisticLoss  # of another formula
        if native.library() is None or own or self.across.size > 1:
            return super().minimum(Z, start)
        start = np.zeros(Z.shape[1]) if start is None else start
        return Minimum(self, Z, *native.logistic_minimum(Z, *self._numbers(), start))

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        q = np.clip(-self.Y * Theta / self.row_weight, 0.0, 1.0)
        curvature = self.row_weight * q * (1 - q)
        size, excess = self._sums(curvature, Theta)
        return Theta - curvature * (excess / np.where(size > 0, size, 1.0))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta = double(Theta)
        xp = array_namespace(Theta)
        alone = self.across.size == 1
        if isinstance(Theta, np.ndarray) and native.library() is not None and alone:
            tau, value = native.logistic_dual(Theta, *self._numbers(), to_numpy(limit))
            return tau, value - float(np.sum(tau * tau * to_numpy(quadratic)))
        q = -double(self.Y) * Theta / self.row_weight
        if alone:
            top, least = xp.max(q, axis=0), xp.min(q, axis=0)
        else:
            ends = [np.max(end, axis=0, initial=-np.inf) for end in (q, -q)]
            top, least = self.across.max(np.stack(ends)) * [[1], [-1]]
        allowed = 1.0 / xp.maximum(top, xp.ones_like(top))
        allowed = xp.where(least < 0, xp.zeros_like(allowed), allowed)
        if limit.shape[0] == 1:
            allowed = xp.min(allowed)[None]
        tau = xp.minimum(double(limit), allowed)
        q = tau * q
        value = self._weighted_sum(_entropy(q) + _entropy(1 - q))
        return tau, value - float(xp.sum(tau * tau * double(quadratic)))

    def root(self, Z: np.ndarray) -> Root:
        e = np.exp(-np.abs(Z))  # of both outcomes, the curvature is e / (1 + e)^2
        return Root(np.sqrt(self.row_weight * e) / (1 + e), across=self.across)

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
        top, outside = self.across.max(
            np.stack([np.max(q.above(), axis=0, initial=0.0), _any(side.mid < side.rad)])
        )
        longest = np.where(top > 1, down(1 / np.maximum(top, 1.0), 1), 1.0)
        longest = np.where(outside > 0, 0.0, longest)  # outside the domain
        tau = np.minimum(limit, longest if len(limit) > 1 else longest.min())
        q = q * tau
        ends = (np.clip(end, 0.0, 1.0) for end in (q.below(), q.above()))
        terms = [rounding.entropy_below(q) + rounding.rest_entropy_below(q) for q in ends]
        here = down(tree_sum(w * np.maximum(np.minimum(*terms), 0.0)), depth(Y.size) + 2)
        gain = total_below(here, self.across)
        return _less(gain, tau, linear, quadratic)


class SoftmaxLoss(WeightedLoss):
    """With q = Y + s/w Theta >= 0 and t the row sums of Y, which are those of q,
    f*(Theta) = 1/s sum w (sum_k q log q - t log t). Targets that are not certain seldom sum to
    exactly 1 in floating-point numbers; t makes up for it."""

    coupled = True
    declares_rounding = True
    any_device = True
    sums_ranks = True

    def __init__(self, Y: Array, row_weight: Array | None = None) -> None:
        super().__init__(Y, row_weight)
        Y = double(Y)
        self._total = array_namespace(Y).sum(Y, axis=1, keepdims=True)

    def check_targets(self, intercept: bool) -> None:
        Y = to_numpy(self.Y)
        with failing_together(self.across):
            if Y.shape[1] < 2:
                raise ValueError(
                    "Y must have a column for each class for the softmax loss, got one column"
                )
            if np.any(Y < 0) or not np.allclose(Y.sum(axis=1), 1.0, rtol=0, atol=1e-6):
                raise ValueError("Y must hold rows of probabilities (one-hot) for the softmax loss")
        if intercept and not np.all(self.across.max(_any(Y != 0))):
            raise ValueError(
                "Y has a class that never occurs: with an intercept, no finite model is optimal"
            )

    def value(self, Z: Array) -> float:
        Z = double(Z)
        Z = Z - array_namespace(Z).max(Z, axis=1, keepdims=True)
        against = array_namespace(Z).sum(double(self.Y) * Z, axis=1, keepdims=True)
        return self._weighted_sum(self._total * _log_sum_exp(Z) - against)

    def gradient(self, Z: SomeArray) -> SomeArray:
        return self._theta(self._total * _softmax(double(Z)))

    def evaluate(self, Z: Array) -> tuple[float, Any]:
        if not isinstance(Z, np.ndarray):
            return super().evaluate(Z)
        Z = Z - Z.max(axis=1, keepdims=True)
        q = np.exp(Z)
        sums = q.sum(axis=1, keepdims=True)
        against = np.einsum("ij,ij->i", self.Y, Z)[:, None]
        value = self._weighted_sum(self._total * np.log(sums) - against)
        return value, (q * (self._total / sums) - self.Y) * self.row_weight

    def _theta(self, q: SomeArray) -> SomeArray:
        """w/s (q - Y), with rows that add up to zero even where q is 0 and 1 up to rounding: the
        largest q makes up for it."""
        xp = array_namespace(q)
        change = q - double(self.Y)
        largest = xp.astype(q == xp.max(q, axis=1, keepdims=True), q.dtype)
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
        """b is determined up to a constant, and sums to zero. Predictions so large that the loss
        has no curvature left are first scaled down, then solved again for larger and larger shares
        of them. For predictions of zero, the probabilities are the shares of the classes."""
        if not self.across.max(float(Z.any())):
            logs = self.across.agree(np.log(self._sums(self.row_weight * self.Y)[0]))
            return logs - logs.mean()
        Z = Z - Z.mean(axis=1, keepdims=True)
        sums, counts = self._sums(Z, np.ones_like(Z))
        mean = sums / counts
        Z = Z - mean
        b, found = self._balancing_steps(Z, np.zeros_like(mean) if start is None else start + mean)
        ends = [np.max(Z, initial=-np.inf), np.max(-Z, initial=-np.inf)]
        spread = float(np.sum(self.across.max(np.array(ends))))
        if not found and np.isfinite(spread):
            b, sharpness = np.zeros_like(mean), 10 / max(spread, 1e-300)
            while sharpness < 1:
                b, _ = self._balancing_steps(sharpness * Z, b, enough=0.1)
                b, sharpness = b * min(2.0, 1 / sharpness), 2 * sharpness
            b, _ = self._balancing_steps(Z, b)
        return self.across.agree(b - mean)

    def _balancing_steps(
        self, Z: np.ndarray, b: np.ndarray, enough: float = 0.0
    ) -> tuple[np.ndarray, bool]:
        """Newton steps towards columns of the gradient that sum to zero, until they are no longer
        than `enough` or all rounding, and whether they got there. A step of range r descends if it
        is shortened by log(1 + r)/r (Sun and Tran-Dinh, Mathematical Programming 178, 2019), so no
        values are compared."""
        last = np.inf
        for _ in range(30):
            q = _softmax(Z + b)
            gradient = self._theta(self._total * q)
            slope, size = self._sums(gradient, np.abs(gradient))
            left = float(np.max(np.abs(slope) / np.maximum(size, 1e-300)))
            hessian = self._summed_hessian(q)
            if not np.isfinite(hessian).all() or not np.isfinite(slope).all():
                break  # predictions beyond the range of doubles, at which LAPACK prints complaints
            step = -self.across.agree(np.linalg.lstsq(hessian, slope, rcond=1e-14)[0])
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
        hessian = self.across.sum(-(self.row_weight * q).T @ q)
        np.fill_diagonal(hessian, 0.0)
        np.fill_diagonal(hessian, -hessian.sum(axis=1))
        return hessian

    def dual_candidate(self, Theta: SomeArray) -> SomeArray:
        """Inside the domain, q >= 0; forming q itself would lose all of Theta but its leading bits
        where q is nearly 1."""
        Theta, Y = double(Theta), double(self.Y)
        xp = array_namespace(Theta)
        Theta = xp.maximum(Theta, -Y * self.row_weight)
        q = Y + Theta / self.row_weight
        largest = xp.astype(q == xp.max(q, axis=1, keepdims=True), q.dtype)
        excess = xp.sum(Theta, axis=1, keepdims=True) / xp.sum(largest, axis=1, keepdims=True)
        return Theta - largest * excess

    def balance(self, Theta: np.ndarray) -> np.ndarray:
        q = np.maximum(self.Y + Theta / self.row_weight, 0.0)
        hessian, sums = self._summed_hessian(q), self._sums(Theta)[0]
        if not np.isfinite(hessian).all() or not np.isfinite(sums).all():
            return np.zeros_like(Theta)  # balanced, where there is nothing to compute with
        b = self.across.agree(np.linalg.lstsq(hessian, sums, rcond=1e-14)[0])
        return self.dual_candidate(Theta - self.row_weight * q * (b - (q @ b)[:, None]))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        """One scaling for all classes, since rows of q add up to 1."""
        Theta, Y = double(Theta), double(self.Y)
        xp = array_namespace(Theta)
        change = Theta / self.row_weight
        size = xp.sum(xp.abs(Theta), axis=1)
        unbalanced = bool(xp.any(xp.abs(xp.sum(Theta, axis=1)) > BALANCED * size))
        falling = -change > Y  # the others allow tau = 1
        safe = xp.where(falling, -change, xp.ones_like(change))
        longest = xp.where(falling, Y / safe, xp.ones_like(Y))
        allowed = 0.0 if unbalanced else float(xp.min(longest)) if 0 not in Y.shape else 1.0
        tau = min(float(xp.min(limit)), -float(self.across.max(-allowed)))
        value = self._weighted_sum(_entropy(Y + tau * change))
        value -= self._weighted_sum(_entropy(self._total))
        value -= tau**2 * float(xp.sum(double(quadratic)))
        return xp.full_like(double(limit), tau), value

    def root(self, Z: np.ndarray) -> Root:
        q = _softmax(Z)
        scale = np.sqrt(self.row_weight * self._total * q)
        return Root(scale, np.sqrt(q), across=self.across)

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
            parts = np.stack([tree_sum(Theta, 0), tree_sum(np.abs(Theta), 0)])
            sums, sizes = self.across.sum(parts)
            if np.all(np.abs(sums) <= 4 * UNIT * sizes):
                break
            for k, c, row in self._moves(Theta, sums):
                if row is not None:
                    Theta[row, k] -= sums[k]
                    Theta[row, c] += sums[k]
            Theta = self._implied(Theta)
        rows, h = np.arange(len(Y)), np.argmax(Y + Theta / w, axis=1)
        point = Ball(Theta.copy(), np.zeros_like(Theta))
        point.mid[rows, h] = 0.0
        others = point.sum(axis=1)
        point.mid[rows, h], point.rad[rows, h] = -others.mid, others.rad  # type: ignore[index]
        if balanced:
            sums = np.array([self._column_sum(Theta, h, k) for k in range(Y.shape[1])])
            for k, c, row in self._moves(Theta, sums):
                if row is not None:
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

    def _moves(self, Theta: np.ndarray, sums: np.ndarray) -> list[tuple[int, int, int | None]]:
        """Which column sums are moved to which column, the one with most in it, in which row, which
        may be on another rank. When all the others sum to zero it does so too, as all rows do."""
        Y, w = self._numbers()
        room = w * (Y + Theta / w)
        c = int(np.argmax([exact_sum(column, self.across) for column in room.T]))
        return [
            (k, c, first_largest(room[:, k if sums[k] > 0 else c], self.across))
            for k in range(len(sums))
            if k != c and sums[k] != 0
        ]

    def _column_sum(self, Theta: np.ndarray, implied: np.ndarray, k: int) -> float:
        """The sum of column k, correctly rounded, where implied entries are exact."""
        others = np.arange(Theta.shape[1]) != k
        own, mine = Theta[implied != k, k], Theta[implied == k][:, others]
        return exact_sum(np.concatenate([own, -mine.reshape(-1)]), self.across)

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
        longest = np.where(falling, down(down(w * Y, 1) / fall, 1), 1.0)
        allowed = -float(self.across.max(-np.min(longest, initial=1.0)))
        tau = min(float(limit.min()), allowed)
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
        gains = Ball(np.concatenate([terms, excess], axis=1)) * w
        gain = gains.sum().over(self.across).below()
        return _less(max(float(gain), 0.0), np.full_like(limit, tau), linear, quadratic)


def _any(marks: np.ndarray) -> np.ndarray:
    """Which columns have a mark, as numbers."""
    return np.any(marks, axis=0).astype(np.float64)


def _less(gain: Any, tau: np.ndarray, linear: np.ndarray, quadratic: np.ndarray) -> float:
    """gain - tau linear - tau^2 quadratic, from below."""
    cost = np.where(tau > 0, tau * (linear + tau * quadratic), 0.0)
    return (
        float((Ball(np.asarray(gain)) - up(np.sum(cost), len(tau) + 4)).below())
        if np.any(cost)
        else float(gain)
    )


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), to the last digits for any x."""
    xp = array_namespace(x)
    return xp.exp(xp.minimum(x, xp.zeros_like(x))) / (1 + xp.exp(-xp.abs(x)))


def _softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    xp = array_namespace(x)
    return xp.maximum(x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))


def _log_sum_exp(Z: Array) -> Array:
    xp = array_namespace(Z)
    largest = xp.max(Z, axis=1, keepdims=True)
    return largest + xp.log(xp.sum(xp.exp(Z - largest), axis=1, keepdims=True))


def _log_softmax(Z: Array) -> Array:
    xp = array_namespace(Z)
    Z = Z - xp.max(Z, axis=1, keepdims=True)
    return Z - _log_sum_exp(Z)


def _softmax(Z: SomeArray) -> SomeArray:
    return array_namespace(Z).exp(_log_softmax(Z))


def _excess(d: Array) -> Array:
    """exp(d) - 1 - d, by its series where that would cancel."""
    xp = array_namespace(d)
    series = d * d * (0.5 + d * (1 / 6 + d / 24))
    return xp.where(xp.abs(d) < 1e-3, series, xp.expm1(d) - d)


def _entropy(q: Array) -> Array:
    """-q log q, 0 at 0."""
    xp = array_namespace(q)
    positive = q > 0
    return xp.where(positive, -q * xp.log(xp.where(positive, q, xp.ones_like(q))), 0.0 * q)
