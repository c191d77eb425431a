"""An output bias that is chosen best for any prediction, as part of a loss."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cvxnn.arrays import Array, SomeArray, array_namespace, double, like, to_numpy
from cvxnn.losses.base import BALANCED, Loss, Minimum, Root
from cvxnn.ranks import ALONE, Ranks, orthogonal, total
from cvxnn.rounding import UNIT, Ball, tree_sum

RECENT = 3  # predictions whose bias is remembered


class WithIntercept:
    """min_b f(Z + 1 b') as a loss of Z. Its gradient is that of f at the minimum, whose columns
    sum to zero, and that equation is all it adds to the dual: f* is the same on it."""

    least_squares = False

    def __init__(
        self,
        base: Any,
        *,
        start: np.ndarray | None = None,
        warm: bool = False,
        centre: bool = True,
    ) -> None:
        """With `warm`, the search for b starts where the last one ended, or from `start`: quicker,
        but results then depend, by rounding, on earlier calls. With `centre`, the targets of losses
        that depend on Z - Y alone are centred first: far from zero, sums would be all rounding."""
        self.base = base
        self._start, self._warm = start, warm
        self._recent: list[tuple[Array, Minimum]] = []  # predictions and what was found for them
        self.Y, self.row_weight, self.settings = base.Y, base.row_weight, base.settings
        self.affine_gradient = base.affine_gradient
        self.coupled, self.has_sample_weights = base.coupled, base.has_sample_weights
        self.has_root, self.declares_rounding = base.has_root, base.declares_rounding
        self.any_device = getattr(base, "any_device", False)
        self.sums_ranks = getattr(base, "sums_ranks", False)
        self.across: Ranks = getattr(base, "across", ALONE)
        self._plain = base.in_numpy() if not isinstance(base.Y, np.ndarray) else base
        self._centre: np.ndarray | float = 0.0
        self._centred, self._plain_centred = base, self._plain
        if centre and base.translates:
            Y, w = self._plain._numbers()
            self._centre = self.across.sum(np.sum(w * Y, axis=0)) / total(w, self.across)
            self._centred = base.with_targets(double(base.Y) - like(double(base.Y), self._centre))
            self._plain_centred = self._plain.with_targets(Y - self._centre)

    def with_targets(self, Y: Array) -> WithIntercept:
        """The same loss of other targets of the same rows, of any library and on any device."""
        return WithIntercept(self.base.with_targets(Y))

    def intercept(self, Z: Array, near: np.ndarray | None = None) -> np.ndarray:
        """The best b; the search for it starts from `near`, if that is given. What is asked about
        the same Z next needs no search."""
        return self._centre + self._minimum(Z, None if near is None else near - self._centre).b

    def _minimum(self, Z: Array, near: np.ndarray | None = None) -> Minimum:
        """With the best b for the centred targets, in NumPy."""
        for known, found in self._recent:
            if known is Z:
                return found
        start = self._start if near is None else near
        found = self._plain_centred.minimum(double(to_numpy(Z)), start)
        self._recent = [(Z, found), *self._recent[: RECENT - 1]]
        if self._warm:
            self._start = found.b
        return found

    def _shifted(self, Z: SomeArray) -> SomeArray:
        b = self._minimum(Z).b
        Z = double(Z)
        return Z + like(Z, b)

    def value(self, Z: Array) -> float:
        if isinstance(Z, np.ndarray):
            return self._minimum(Z).value
        return self._centred.value(self._shifted(Z))

    def gradient(self, Z: SomeArray) -> SomeArray:
        if isinstance(Z, np.ndarray):
            return self._minimum(Z).gradient  # type: ignore[return-value]
        return self._centred.gradient(self._shifted(Z))

    def bregman(self, Z_new: Array, Z: Array) -> float:
        """Columns of the gradient sum to zero, so the shifts do not matter for its product."""
        return self._centred.bregman(self._shifted(Z_new), self._shifted(Z))

    @property
    def zero_value(self) -> float:
        return self.value(array_namespace(self.Y).zeros_like(double(self.Y)))

    def dual_candidate(self, Theta: SomeArray) -> SomeArray:
        Theta = self.base.dual_candidate(double(Theta))
        values = to_numpy(Theta)
        sums, sizes = self.across.sum(np.stack([tree_sum(values, 0), tree_sum(np.abs(values), 0)]))
        if np.all(np.abs(sums) <= 16 * UNIT * sizes):  # as balanced as rounding allows
            return Theta
        return like(Theta, self._plain.balance(values))

    def best_dual(self, Theta: Array, limit: Array, quadratic: Array) -> tuple[Array, float]:
        Theta = double(Theta)
        xp = array_namespace(Theta)
        sums, size = xp.sum(Theta, axis=0), xp.sum(xp.abs(Theta), axis=0)
        if self.across.size > 1:
            sums, size = self.across.sum(np.stack([sums, size]))
        if bool(xp.any(xp.abs(sums) > BALANCED * size)):
            limit = xp.zeros_like(limit)  # only the zero multiple is feasible
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
        root, C = self._minimum(Z).root, Z.shape[1]
        if root.unit is None and C == 1:  # one column, L'1 itself
            size = float(np.linalg.norm(root.scale))
            if self.across.size > 1:
                size = math.sqrt(self.across.sum(size**2))
            if not math.isfinite(size):
                raise np.linalg.LinAlgError("the curvature of the loss is not finite")
            return replace(root, span=root.scale / size if size > 0 else root.scale[:, :0])
        ones = np.zeros((C, *Z.shape))
        ones[range(C), :, range(C)] = 1.0
        columns = np.stack([root.adjoint(column).reshape(-1) for column in ones], axis=1)
        if self.across.max(float(not np.isfinite(columns).all())):  # LAPACK would complain
            raise np.linalg.LinAlgError("the curvature of the loss is not finite")
        basis, sizes = orthogonal(columns, self.across)
        return replace(root, span=basis[:, sizes > 1e-10 * max(sizes.max(), 1e-300)])


def on_rows(loss: Any, rows: np.ndarray) -> Loss | None:
    """The loss of some rows, with its output bias if there is one; None where a loss of the user's
    own has no part for them."""
    return _with_base(loss, "on_rows", rows)


def with_rows(loss: Any, Y: np.ndarray, row_weight: np.ndarray) -> Loss | None:
    """The same loss of other targets (n, C) with weights (n, 1); None like `on_rows`."""
    return _with_base(loss, "with_rows", Y, row_weight)


def _with_base(loss: Any, method: str, *arguments: np.ndarray) -> Loss | None:
    if isinstance(loss, WithIntercept):
        base = _with_base(loss.base, method, *arguments)
        return None if base is None else WithIntercept(base, warm=True)
    part: Loss | None = getattr(loss, method)(*arguments) if hasattr(loss, method) else None
    return part
