"""Losses as users choose them: frozen settings, which a problem binds to its targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from cvxnn.arrays import Array
from cvxnn.losses.base import WeightedLoss
from cvxnn.losses.likelihoods import LogisticLoss, SoftmaxLoss
from cvxnn.losses.squared import HUBER_DELTA, HuberLoss, SquaredLoss
from cvxnn.validation import check_number


@dataclass(frozen=True)
class LossChoice:
    """A loss before it knows its targets. The fields of a subclass are the settings of the loss.

    name : what messages call it.
    bound : the class of the loss itself, which is bound to targets.
    """

    name: ClassVar[str]
    bound: ClassVar[type[WeightedLoss]]

    @property
    def settings(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def bind(self, Y: Array, sample_weight: np.ndarray | None = None) -> WeightedLoss:
        """The loss of targets Y (n, C), with rows that count in proportion to weights (n,)."""
        return self.bound.bind(Y, sample_weight, **self.settings)


@dataclass(frozen=True)
class Squared(LossChoice):
    """1/(2s) sum w (z - y)^2, s = C sum w."""

    name = "squared"
    bound = SquaredLoss


@dataclass(frozen=True)
class Huber(LossChoice):
    """1/s sum w h(z - y): squares r^2/2 up to |r| = delta, linear beyond."""

    name = "huber"
    bound = HuberLoss

    delta: float = HUBER_DELTA

    def __post_init__(self) -> None:
        check_number(self.delta, "delta", minimum=0, strict=True)


@dataclass(frozen=True)
class Logistic(LossChoice):
    """1/s sum w log(1 + exp(-y z)), y = +-1."""

    name = "logistic"
    bound = LogisticLoss


@dataclass(frozen=True)
class Softmax(LossChoice):
    """1/s sum w sum_k y_k (log sum exp(z) - z_k), rows y of probabilities, s = sum w."""

    name = "softmax"
    bound = SoftmaxLoss


LOSSES: Mapping[str, type[LossChoice]] = {
    choice.name: choice for choice in (Squared, Huber, Logistic, Softmax)
}
