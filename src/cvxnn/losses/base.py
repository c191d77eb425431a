"""What a loss is, and what losses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from cvxnn import rounding
from cvxnn.arrays import Array, SomeArray, array_namespace, double, like, to_numpy, widest
from cvxnn.ranks import ALONE, Ranks
from cvxnn.rounding import Ball, depth, total_above, tree_sum, up

# Sums that have to vanish in the dual count as zero up to this, relative to their terms, while a
# solver runs; certificates have points where they vanish exactly.
BALANCED = 1e-9
SomeLoss = TypeVar("SomeLoss", bound="WeightedLoss")


@dataclass(frozen=True, eq=False)
class Root:
    """A square root of a Hessian, H = L L': L x = scale o (x - v <v, x>), row by row, after the
    part of x in the span of Q was taken out.

    scale : (n, C).
    unit : v, unit rows (n, C), or None.
    span : Q, orthonormal columns (n C, m) orthogonal to v, or None.
    across : the ranks that have the other rows.
    """

    scale: np.ndarray
    unit: np.ndarray | None = None
    span: np.ndarray | None = None
    across: Ranks = ALONE

    def project(self, x: np.ndarray) -> np.ndarray:
        """x (n, C) without its parts along v and in the span."""
        if self.unit is not None:
            x = x - self.unit * np.sum(self.unit * x, axis=1, keepdims=True)
        if self.span is not None:
            along = self.across.sum(self.span.T @ x.reshape(-1))
            x = x - (self.span @ along).reshape(x.shape)
        return x

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """H x."""
        return self.apply(self.scale * x)

    def diagonal(self) -> np.ndarray:
        """Of H, without regard to the span: (n, C)."""
        return self.scale**2 * (1.0 if self.unit is None else 1 - self.unit**2)

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.scale * self.project(x)

    def adjoint(self, r: np.ndarray) -> np.ndarray:
        return self.project(self.scale * r)


class Loss(Protocol):
    Y: Array  # (n, C) targets
    row_weight: Array  # (n, 1), w / s
    settings: dict[str, float]  # its numbers by name, such as the delta of a huber
    affine_gradient: bool  # of a quadratic
    least_squares: bool  # whether it is 1/(2s) ||Z - Y||^2, without weights and output bias
    has_sample_weights: bool
    has_root: bool  # whether it has `by_output`, `around` and `root`, which Newton needs
    declares_rounding: bool  # whether it has the three methods that come last
    any_device: bool  # whether its formula takes arrays of any library, not NumPy's alone
    sums_ranks: bool  # whether its sums over rows are those over all ranks in `across`
    across: Ranks  # that have the other rows

    def value(self, Z: Array) -> float:
        """f(Z), summed in float64."""
        ...

    def gradient(self, Z: SomeArray) -> SomeArray:
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

    def dual_candidate(self, Theta: SomeArray) -> SomeArray:
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


FORMULA = frozenset({"value", "gradient", "bregman", "best_dual", "dual_candidate"})
_OF_FORMULA = (
    "affine_gradient",
    "least_squares",
    "has_root",
    "declares_rounding",
    "any_device",
    "sums_ranks",
)


class WeightedLoss:
    """What the losses share: targets, row weights, settings, and no equations in the dual.

    A subclass of a loss that changes its formula is another loss: what was declared for the first
    one does not hold for it, unless it says so itself.
    """

    affine_gradient = False
    least_squares: Any = False  # a property where it depends on the weights
    coupled = False  # outputs
    translates = False  # whether only Z - Y matters
    has_root = False
    declares_rounding = False
    any_device = False
    sums_ranks = False
    across: Ranks = ALONE

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not FORMULA.isdisjoint(vars(cls)):
            for quality in _OF_FORMULA:
                if quality not in vars(cls):
                    setattr(cls, quality, False)
        if "root" in vars(cls):
            cls.has_root = True

    def __init__(self, Y: Array, row_weight: Array | None = None, **settings: float) -> None:
        self.Y, self.settings = Y, settings
        n, C = Y.shape
        if row_weight is None:
            row_weight = np.full((n, 1), 1.0 / max(n if self.coupled else n * C, 1))
        self.row_weight = like(Y, row_weight, dtype=widest(Y))

    @classmethod
    def bind(cls, Y: Array, sample_weight: np.ndarray | None = None, **settings: float) -> Self:
        """The loss of these targets, with rows that count in proportion to weights (n,)."""
        if sample_weight is None:
            return cls(Y, None, **settings)
        n_terms = 1 if cls.coupled else Y.shape[1]  # of each row
        return cls(Y, sample_weight[:, None] / (sample_weight.sum() * n_terms), **settings)

    def check_targets(self, intercept: bool) -> None:
        """Raise a ValueError for targets that this loss is not made for, or for which no finite
        model is optimal; `intercept` says whether there is an output bias."""

    @property
    def has_sample_weights(self) -> bool:
        weight = to_numpy(self.row_weight)
        if self.across.size == 1:
            return bool(np.any(weight != weight[0]))
        ends = np.array([np.max(weight, initial=-np.inf), np.max(-weight, initial=-np.inf)])
        largest, smallest = self.across.max(ends)
        return bool(largest != -smallest)

    def _weighted_sum(self, terms: Array) -> float:
        return float(self.across.sum(array_namespace(terms).sum(self.row_weight * terms)))

    def _sums(self, *parts: Array) -> list[Any]:
        """Sums over all rows, of each column: (n, C) -> (C,)."""
        sums = [array_namespace(part).sum(part, axis=0) for part in parts]
        return sums if self.across.size == 1 else list(self.across.sum(np.stack(sums)))

    def value(self, Z: Array) -> float:
        raise NotImplementedError

    @property
    def zero_value(self) -> float:
        return self.value(array_namespace(self.Y).zeros_like(double(self.Y)))

    def intercept(self, Z: Array) -> np.ndarray:
        return np.zeros(self.Y.shape[1])

    def evaluate(self, Z: Array) -> tuple[float, Any]:
        """f(Z) and grad f(Z), for losses that have them cheaper together."""
        return self.value(Z), self.gradient(Z)  # type: ignore[attr-defined]

    def minimum(self, Z: np.ndarray, start: np.ndarray | None = None) -> Minimum:
        """The loss at the best output bias, for losses that have it cheaper together."""
        return Minimum(self, Z, self.best_intercept(Z, start))  # type: ignore[attr-defined]

    def dual_candidate(self, Theta: SomeArray) -> SomeArray:
        return Theta

    def around(self, Z: Array, tail: float) -> Self:
        return self

    def in_numpy(self) -> Self:
        """The same loss in NumPy float64."""
        return self.with_targets(double(to_numpy(self.Y)))

    def by_output(self) -> list[Self]:
        plain = self.in_numpy()
        if self.coupled:
            return [plain]
        return [plain.with_targets(plain.Y[:, [k]]) for k in range(plain.Y.shape[1])]

    def on_rows(self, rows: np.ndarray) -> Self:
        """The loss of these rows, each so often that in expectation over random rows it is that of
        all of them."""
        weight = to_numpy(self.row_weight)
        return self.with_rows(self.Y[rows], weight[rows] * (len(weight) / len(rows)))

    def with_rows(self, Y: Array, row_weight: np.ndarray) -> Self:
        """The same loss of other rows, with weights (n, 1)."""
        return self.shared(type(self)(Y, row_weight, **self.settings))

    def shared(self, other: SomeLoss) -> SomeLoss:
        """The other loss, with the ranks of this one."""
        other.across = self.across
        return other

    def with_targets(self, Y: Array) -> Self:
        """The same loss of other targets of the same rows, of any library and on any device."""
        return self.with_rows(Y, to_numpy(self.row_weight))

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Targets and row weights in NumPy float64."""
        return double(to_numpy(self.Y)), to_numpy(self.row_weight)

    def _sum_above(self, terms: np.ndarray, roundings: int) -> float:
        """Above the weighted sum of terms >= 0, each computed with so many roundings."""
        weighted = to_numpy(self.row_weight) * terms
        here = up(tree_sum(weighted), depth(weighted.size) + roundings + 1)
        return float(total_above(here, self.across))

    def dual_point(self, Theta: np.ndarray, balanced: bool = False) -> tuple[np.ndarray, Ball]:
        if not balanced:
            return Theta, Ball(Theta, np.zeros_like(Theta))
        columns = [rounding.zero_sum(column, self.across) for column in Theta.T]
        parts = [(theta, point.mid, point.rad) for theta, point in columns]
        Theta, mid, rad = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        return Theta, Ball(mid, rad)


class Minimum:
    """A loss at predictions Z (n, C) plus b (C,), the output bias that is best for them: its value,
    its gradient and a root of its Hessian there, each computed when it is first asked for unless it
    was found together with b. All in NumPy."""

    def __init__(
        self,
        loss: Any,
        Z: np.ndarray,
        b: np.ndarray,
        value: float | None = None,
        gradient: np.ndarray | None = None,
        scale: np.ndarray | None = None,  # of a root that has no other part
    ) -> None:
        self._loss, self._Z, self.b = loss, Z, b
        self._value, self._gradient = value, gradient
        self._root = None if scale is None else Root(scale)

    @property
    def value(self) -> float:
        if self._value is None:
            self._value = self._loss.value(self._Z + self.b)
        return self._value

    @property
    def gradient(self) -> np.ndarray:
        if self._gradient is None:
            self._gradient = self._loss.gradient(self._Z + self.b)
        return self._gradient

    @property
    def root(self) -> Root:
        if self._root is None:
            self._root = self._loss.root(self._Z + self.b)
        return self._root


class CurvedLoss(Protocol):
    """What Newton steps on an output bias need of a loss."""

    across: Ranks

    def gradient(self, Z: np.ndarray) -> np.ndarray: ...
    def root(self, Z: np.ndarray) -> Root: ...


def column_roots(
    loss: CurvedLoss, Z: np.ndarray, start: np.ndarray, reach: np.ndarray | None = None
) -> np.ndarray:
    """The b at which the columns of grad f(Z + 1 b') sum to zero, where outputs are not coupled.
    Newton steps are taken while each is at most half the last one. Otherwise the bracket is
    bisected or, while there is none, searched for with steps that double, from `reach` on."""
    b, low, high = start, np.full_like(start, -np.inf), np.full_like(start, np.inf)
    reach = np.ones_like(b) if reach is None else reach  # of the next step towards a bracket
    last = 2 * reach  # the length of the last step
    for _ in range(200):
        gradient = loss.gradient(Z + b)
        parts = np.stack([gradient.sum(axis=0), np.abs(gradient).sum(axis=0)])
        slope, size = loss.across.sum(parts)
        low, high = np.where(slope <= 0, b, low), np.where(slope >= 0, b, high)
        done = (np.abs(slope) <= 1e-14 * size) | (high - low <= 4e-16 * np.abs(b))
        if np.all(done):
            break
        curvature = loss.across.sum(np.sum(loss.root(Z + b).scale ** 2, axis=0))
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
