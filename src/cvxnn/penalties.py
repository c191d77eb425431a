"""Penalties g(U) on the gated weights U (p, d, C): one class each.

Every penalty has its value, prox, min-norm subgradient, and its side of the dual problem. A
norm `g = lam ||.||` bounds the dual variable by `dual_norm(M'Theta) <= lam`; a smooth penalty
adds its conjugate `g*(M'Theta)` instead.

What a certificate claims is computed apart from that, with a bound on every rounding error (see
rounding.py): `value_above`, and `dual_limit_below` and `conjugate_above` from an M'Theta that is
known up to an error. A penalty that declares its rounding has all three.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

import numpy as np

from cvxnn.arrays import Array, array_namespace, double, to_numpy
from cvxnn.rounding import SQUARES, TINY, depth, down, tree_sum, up
from cvxnn.validation import check_choice, check_object


class Penalty(Protocol):
    """A norm also has `dual_norm(G)`, its dual norm without lam: (C,), or (1,) if classes are
    coupled. `lambda_max` and paths without `lams` need it."""

    name: ClassVar[str]
    lam: float
    neuron_norms: ClassVar[bool]  # whether it is lam sum_ik ||U_i^k||, for Newton and cones
    squared_norm: ClassVar[bool]  # whether it is lam/2 ||U||^2, for least squares
    declares_rounding: ClassVar[bool]  # whether it has the three methods that come last
    any_device: ClassVar[bool]  # whether its formula takes arrays of any library, not NumPy's alone

    @property
    def settings(self) -> dict[str, object]:
        """What it depends on beside lam, by name."""
        ...

    def with_lam(self, lam: float) -> Self:
        """The same penalty at another strength > 0."""
        ...

    def value(self, U: Array) -> float: ...

    def prox(self, U: Array, step: float) -> Array:
        """argmin_V  1/2 ||V - U||^2 + step g(V)."""
        ...

    def min_norm_subgradient(self, U: Array, gradient: Array) -> Array:
        """The smallest element of gradient + (subdifferential of g at U): zero iff U is optimal
        for a smooth part with that gradient."""
        ...

    def dual_limit(self, G: Array) -> Array:
        """How far G = M'Theta may be scaled and stay dual feasible: (C,), or (1,) if classes are
        coupled."""
        ...

    def conjugate(self, G: Array) -> Array:
        """g*(G) of a quadratic penalty, zero for a norm; shaped as `dual_limit`."""
        ...

    def value_above(self, U: np.ndarray) -> float:
        """Above g(U)."""
        ...

    def dual_limit_below(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Below `dual_limit` of any matrix within `error` of G, elementwise; its first axis may
        have length 1, if the error is the same for all blocks."""
        ...

    def conjugate_above(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Above `conjugate` of any matrix within `error` of G."""
        ...


_METHODS = frozenset(
    {"group_norms", "value", "prox", "min_norm_subgradient", "dual_norm", "dual_limit", "conjugate"}
)
# What a subclass must not change, or a declaration of the class that it comes from is void.
_RESTS_ON = {
    "neuron_norms": _METHODS | {"axes"},
    "squared_norm": _METHODS,
    "declares_rounding": _METHODS,
    "any_device": _METHODS,
}


class ScaledPenalty:
    """What penalties with a strength share. Users choose one without lam, as `L1()`; the problem
    gives it its own.

    A subclass of a penalty that changes its formula is another penalty: what was declared for the
    first one does not hold for it, unless it says so itself.
    """

    neuron_norms: ClassVar[bool] = False
    squared_norm: ClassVar[bool] = False
    declares_rounding: ClassVar[bool] = False
    any_device: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for quality, parts in _RESTS_ON.items():
            if quality not in vars(cls) and not parts.isdisjoint(vars(cls)):
                setattr(cls, quality, False)

    def __init__(self, lam: float = 1.0) -> None:
        self.lam = lam

    @property
    def settings(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "lam"}

    def with_lam(self, lam: float) -> Self:
        other = copy.copy(self)
        other.lam = lam
        return other


class GroupNorm(ScaledPenalty):
    """g(U) = lam * sum over groups of ||U_group||_2; subclasses say what a group is.

    `group_norms` reduces over `axes`, keeping them as length 1 so that it broadcasts.
    """

    axes: ClassVar[tuple[int, ...]]
    declares_rounding = True
    any_device = True

    def group_norms(self, U: Array) -> Array:
        xp = array_namespace(U)
        return xp.sqrt(xp.sum(U * U, axis=self.axes, keepdims=True))

    def value(self, U: Array) -> float:
        norms = double(self.group_norms(U))
        return self.lam * float(array_namespace(U).sum(norms))

    def prox(self, U: Array, step: float) -> Array:
        return U * self._shrinkage(self.group_norms(U), step * self.lam)

    def min_norm_subgradient(self, U: Array, gradient: Array) -> Array:
        xp = array_namespace(U)
        norms = self.group_norms(U)
        zero = norms == 0
        at_zero = gradient * self._shrinkage(self.group_norms(gradient), self.lam)
        elsewhere = gradient + self.lam * U / xp.where(zero, xp.ones_like(norms), norms)
        return xp.where(zero, at_zero, elsewhere)

    def dual_norm(self, G: Array) -> Array:
        """The largest group norm, class by class where groups do not couple classes."""
        xp = array_namespace(G)
        norms = self.group_norms(double(G))  # squares of small float32 numbers would underflow
        return xp.max(xp.max(norms, axis=1), axis=0)

    def dual_limit(self, G: Array) -> Array:
        xp = array_namespace(G)
        norm = self.dual_norm(G)
        positive = norm > 0
        return xp.where(
            positive,
            self.lam / xp.where(positive, norm, xp.ones_like(norm)),
            xp.full_like(norm, math.inf),
        )

    def conjugate(self, G: Array) -> Array:
        xp = array_namespace(G)
        return xp.zeros_like(double(G[0, 0, :1] if 2 in self.axes else G[0, 0, :]))

    def value_above(self, U: np.ndarray) -> float:
        norms = self._norms_above(U)
        return float(up(self.lam * tree_sum(norms), depth(norms.size) + 1)) if np.any(U) else 0.0

    def dual_limit_below(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        """By the triangle inequality: the norm of G, and that of the error."""
        norms = up(self._norms_above(G) + self._norms_above(error, len(G)), 1)
        largest = norms.max(axis=1).max(axis=0)
        limit = down(self.lam / np.where(largest == 0, 1.0, largest), 1)
        return np.where(largest == 0, np.inf, np.where(largest < np.inf, limit, 0.0))

    def conjugate_above(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        return np.zeros(1 if 2 in self.axes else G.shape[2])

    def _norms_above(self, U: np.ndarray, blocks: int | None = None) -> np.ndarray:
        """The norms of the groups; of `blocks` equal ones if U has only one. A zero group has the
        norm zero."""
        norms = to_numpy(self.group_norms(U))
        if not self.axes:
            return norms
        n = math.prod(U.shape[axis] for axis in self.axes)
        if blocks is not None and len(U) == 1 and 0 in self.axes:
            n, norms = n * blocks, norms * math.sqrt(blocks)
        return np.where(
            np.any(U != 0, axis=self.axes, keepdims=True), up(norms, n + 3) + SQUARES * n, 0.0
        )

    @staticmethod
    def _shrinkage(norms: Array, threshold: float) -> Array:
        xp = array_namespace(norms)
        kept = norms > threshold
        # a quotient of the others would be computed, too, and warn or be NaN at zero
        safe = xp.where(kept, norms, xp.ones_like(norms))
        return xp.where(kept, 1 - threshold / safe, xp.zeros_like(norms))


class NeuronGroups(GroupNorm):
    """lam * sum_{i,k} ||U_i^k||: the paper's penalty; a group is one neuron of one class."""

    name: ClassVar[str] = "neuron"
    neuron_norms = True
    declares_rounding = True
    any_device = True
    axes = (1,)

    def group_norms(self, U: Array) -> Array:
        xp = array_namespace(U)
        return xp.sqrt(xp.vecdot(U, U, axis=-2))[:, None, :]  # without an array of squares


class FeatureGroups(GroupNorm):
    """lam * sum_j ||U_{.j.}||: a group is one feature over all patterns and classes."""

    name: ClassVar[str] = "feature"
    axes = (0, 2)


class L1(GroupNorm):
    """lam * sum |U|: every weight is a group."""

    name: ClassVar[str] = "l1"
    axes = ()
    declares_rounding = True
    any_device = True

    def group_norms(self, U: Array) -> Array:
        return array_namespace(U).abs(U)


class L2(ScaledPenalty):
    """g(U) = lam/2 ||U||^2, with g*(G) = ||G||^2 / (2 lam): no constraint on the dual variable."""

    name: ClassVar[str] = "l2"
    squared_norm = True
    declares_rounding = True
    any_device = True

    def value(self, U: Array) -> float:
        U = double(U)
        return 0.5 * self.lam * float(array_namespace(U).sum(U * U))

    def prox(self, U: Array, step: float) -> Array:
        return U / (1 + step * self.lam)

    def min_norm_subgradient(self, U: Array, gradient: Array) -> Array:
        return gradient + self.lam * U

    def dual_limit(self, G: Array) -> Array:
        return array_namespace(G).full_like(self.conjugate(G), math.inf)

    def conjugate(self, G: Array) -> Array:
        G = double(G)
        return array_namespace(G).sum(G * G, axis=(0, 1)) / (2 * self.lam)

    def value_above(self, U: np.ndarray) -> float:
        total = 0.5 * self.lam * tree_sum(U * U)
        lost = self.lam * (U.size * TINY)
        return float(up(total + lost, depth(U.size) + 4)) if np.any(U) else 0.0

    def dual_limit_below(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        return np.full(G.shape[2], np.inf)

    def conjugate_above(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        largest = (np.abs(G) + error).reshape(-1, G.shape[2])
        squares = tree_sum(largest * largest, 0) + len(largest) * TINY
        return up(squares / (2 * self.lam), depth(len(largest)) + 5)


class NoPenalty:
    """g = 0, also any penalty with lam = 0. Its dual points satisfy M'Theta = 0, which scaling
    cannot achieve: the certificate projects them first (`certificates.unpenalised_bound`)."""

    name: ClassVar[str] = "none"
    lam = 0.0
    neuron_norms: ClassVar[bool] = True  # zero times any norm
    squared_norm: ClassVar[bool] = True
    declares_rounding: ClassVar[bool] = True
    any_device: ClassVar[bool] = True
    settings: ClassVar[dict[str, object]] = {}

    def with_lam(self, lam: float) -> Self:
        if lam != 0:
            raise ValueError(f"penalty 'none' has no strength: lam must be 0, got {lam:g}")
        return self

    def value(self, U: Array) -> float:
        return 0.0

    def prox(self, U: Array, step: float) -> Array:
        return U

    def min_norm_subgradient(self, U: Array, gradient: Array) -> Array:
        return gradient

    def dual_limit(self, G: Array) -> Array:
        xp = array_namespace(G)
        return xp.full_like(double(G[0, 0, :]), math.inf)

    def conjugate(self, G: Array) -> Array:
        return array_namespace(G).zeros_like(double(G[0, 0, :]))

    def value_above(self, U: np.ndarray) -> float:
        return 0.0

    def dual_limit_below(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        return np.full(G.shape[2], np.inf)

    def conjugate_above(self, G: np.ndarray, error: np.ndarray) -> np.ndarray:
        return np.zeros(G.shape[2])


PENALTIES: Mapping[str, type[Penalty]] = {
    cls.name: cls for cls in (NeuronGroups, FeatureGroups, L1, L2, NoPenalty)
}


def choose_penalty(penalty: str | Penalty) -> Penalty:
    """The object behind a name; an object is taken as it is. Neither has its strength yet."""
    if isinstance(penalty, str):
        chosen: Penalty = PENALTIES[check_choice(penalty, "penalty", PENALTIES)]()
        return chosen
    return check_object(penalty, "penalty", "with_lam", PENALTIES)


def make_penalty(penalty: str | Penalty, lam: float) -> Penalty:
    """The penalty at the strength lam >= 0."""
    chosen = choose_penalty(penalty)
    return chosen.with_lam(lam) if lam > 0 else NoPenalty()
