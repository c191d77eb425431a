"""From near a kink to a local maximum of a price.

F(u) = sum_i t_i (x_i u)_+ is linear on cells, and at a local maximum on the sphere some rows with
t_i < 0 have x_i u = 0: F falls on both sides of their kinks. The gradient there points across, so
that steps along it only zigzag. With these rows K held at zero, F is smooth around u, and

    u ~ c - X_K'm,   c = X'D t  over the other rows,   c - X_K'm orthogonal to the rows of K,

is its maximum on that face. It is one of F as well if 0 <= m_i <= -t_i for all rows of K: neither
side of a kink then leads up. A row that violates this is let go, to the side that does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvxnn.arrays import Matrix

ROUNDS = 60  # faces that are visited at most
ZERO = 1e-11  # of products of unit vectors: rounding
RISE = 1e-13  # relative, that counts


def polish(X: Matrix, weights: np.ndarray, u: np.ndarray, price: float) -> tuple[np.ndarray, float]:
    """A unit vector with a price sum_i weights_i (x_i u)_+ that is no lower, and that price."""
    face = _Face(X, weights, u, price)
    for _ in range(ROUNDS):
        if not face.rise() and not face.let_go():
            break
    return face.u, face.price


class _Step(NamedTuple):
    u: np.ndarray
    price: float
    row: int  # at whose kink it ends; -1 for none


class _Face:
    """The rows that are held at their kinks, and the best point so far."""

    def __init__(self, X: Matrix, weights: np.ndarray, u: np.ndarray, price: float) -> None:
        self.X, self.weights, self.u, self.price = X, weights, u, price
        self.rows: list[int] = []
        self.side: dict[int, bool] = {}  # of rows that were let go, while they are near zero
        self.multipliers = np.zeros(0)

    def rise(self) -> bool:
        """Go to the maximum on this face, or to the first better point on the way. False if there
        is none."""
        a = self.X @ self.u
        a[self.rows] = 0.0
        target = self._target(a)
        if target is None:
            return False
        step = self._line_search(a, target)
        if step is None:
            return False
        self.u, self.price = step.u, step.price
        self.side = {}
        if step.row >= 0:
            self.rows.append(step.row)
        return True

    def let_go(self) -> bool:
        """Give up the row whose multiplier is the furthest out of bounds. False if all are fine."""
        if not self.rows:
            return False
        limits = -self.weights[self.rows]
        size = max(float(np.max(np.abs(limits))), 1e-300)
        excess = np.maximum(-self.multipliers, self.multipliers - limits)
        worst = int(np.argmax(excess))
        if excess[worst] <= 1e-10 * size:
            return False
        row = self.rows.pop(worst)
        if row in self.side:  # it came back: rounding
            return False
        self.side[row] = bool(self.multipliers[worst] > limits[worst])
        return True

    def _target(self, a: np.ndarray) -> np.ndarray | None:
        """The direction in which F rises fastest on the face: its maximum there, if no row changes
        sides on the way."""
        on = a > 0
        for row, side in self.side.items():
            on[row] = side
        c = self.X.T @ (self.weights * on)
        self.multipliers = np.zeros(len(self.rows))
        if self.rows:
            A = self.X[self.rows]
            A = A.toarray() if hasattr(A, "toarray") else A
            self.multipliers = np.linalg.lstsq(A.T, c, rcond=None)[0]
            c = c - A.T @ self.multipliers
        size = float(np.linalg.norm(c))
        return c / size if size > 0 else None

    def _line_search(self, a: np.ndarray, target: np.ndarray) -> _Step | None:
        """The best of the points where rows change sides between u and the target, and the target;
        None if none is better than u."""
        b = self.X @ target
        b[self.rows] = 0.0
        crossing = np.flatnonzero(a * b < 0)
        shares = a[crossing] / (a[crossing] - b[crossing])
        order = np.argsort(shares, kind="stable")
        crossing, shares = crossing[order], shares[order]
        # F((1 - e) u + e v) is piecewise linear in e: value and slope change at the crossings
        on = (a > 0) | ((a == 0) & (b > 0))
        on[self.rows] = False
        value, slope = self.weights[on] @ a[on], self.weights[on] @ (b[on] - a[on])
        jumps = self.weights[crossing] * np.abs(b[crossing] - a[crossing])
        ends = np.append(shares, 1.0)
        slopes = slope + np.concatenate([[0.0], np.cumsum(jumps)])
        starts = np.concatenate([[0.0], shares])
        values = value + np.cumsum(slopes * (ends - starts))
        cosine = float(self.u @ target)
        squares = (1 - ends) ** 2 + ends**2 + 2 * ends * (1 - ends) * cosine
        prices = values / np.sqrt(np.maximum(squares, 1e-16))
        best = int(np.argmax(prices))
        if not prices[best] > self.price * (1 + RISE) + 1e-300:
            return None
        point = (1 - ends[best]) * self.u + ends[best] * target
        point /= np.linalg.norm(point)
        row = int(crossing[best]) if best < len(crossing) else -1
        if row >= 0 and (self.weights[row] >= 0 or len(self.rows) >= self.X.shape[1] - 1):
            row = -1
        exact = float(self.weights @ np.maximum(self.X @ point, 0.0))
        return _Step(point, exact, row) if exact > self.price * (1 + RISE) else None
