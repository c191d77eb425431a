"""The convex program's own units, from the network and its rows alone.

Estimators pose the program on scaled columns and targets, and map the network back to raw ones.
Here it goes the other way, with the scaling of the rows at hand. On the training rows that gives
the certified objective again: a check of the certificate, and of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import compute_sample_weight

from cvxnn.estimators.rows import Scaling
from cvxnn.losses import make_loss
from cvxnn.reports.samples import Sample

AGREEMENT = 1e-6  # of the objective: more is no rounding


@dataclass(frozen=True, eq=False)
class Program:
    """A network in the program of some rows.

    objective : its value there; NaN if no row has any weight.
    agrees : whether that is the certified value, up to rounding. It may lie below, within the gap,
        as that of a pruned network does.
    neuron_sizes : (m,) ||W1_j|| ||W2_j||_1 on scaled columns and targets. The penalty is alpha
        times their sum.
    """

    objective: float
    agrees: bool
    neuron_sizes: np.ndarray

    @classmethod
    def of(cls, estimator: Any, sample: Sample) -> Program:
        weight = _weights(estimator, sample)
        rows = np.flatnonzero(weight > 0)
        weight = weight[rows]
        targets = Scaling.none(estimator.network_.n_outputs)
        if len(rows) == 0:
            return cls(np.nan, False, np.zeros(estimator.network_.n_neurons))
        Y = _encoded(estimator, sample.y[rows])
        if not is_classifier(estimator):
            targets = _scaling(estimator, Y, weight)
        columns = _scaling(estimator, sample.X[rows], weight).of_columns()
        sizes = _sizes(estimator.network_, columns, targets)
        huber = estimator.loss == "huber"
        settings = {"huber_delta": estimator.huber_delta} if huber else {}
        loss = make_loss(loss_name(estimator), targets.apply(Y), sample_weight=weight, **settings)
        value = float(loss.value(targets.apply(sample.scores[rows])))
        value += estimator.alpha_ * float(sizes.sum())
        return cls(value, _agrees(value, estimator.certificate_), sizes)


def loss_name(estimator: Any) -> str:
    if is_classifier(estimator) and estimator.loss == "log":
        return "logistic" if len(estimator.classes_) == 2 else "softmax"
    return estimator.loss


def _agrees(value: float, certificate: Any) -> bool:
    rounding = AGREEMENT * certificate.objective
    below = min(certificate.gap, 1e-3 * certificate.objective)
    return -rounding - below <= value - certificate.objective <= rounding


def _sizes(network: Any, columns: Scaling, targets: Scaling) -> np.ndarray:
    first = network.W1 * columns.spread
    if network.b1 is not None:
        first = np.column_stack([first, network.b1 + network.W1 @ columns.mean])
    return np.linalg.norm(first, axis=1) * np.abs(network.W2 / targets.spread).sum(axis=1)


def _scaling(estimator: Any, columns: Any, weight: np.ndarray) -> Scaling:
    if not estimator.scale:
        return Scaling.none(columns.shape[1])
    return Scaling.of(columns, weight, estimator.fit_intercept)


def _weights(estimator: Any, sample: Sample) -> np.ndarray:
    weight = np.ones(len(sample)) if sample.weight is None else sample.weight
    if is_classifier(estimator) and estimator.class_weight is not None:
        labels = estimator.classes_[sample.y]
        return weight * compute_sample_weight(estimator.class_weight, labels)
    return weight


def _encoded(estimator: Any, y: np.ndarray) -> np.ndarray:
    """Targets as the program has them."""
    if not is_classifier(estimator):
        return y
    K = len(estimator.classes_)
    return np.where(y == 1, 1.0, -1.0)[:, None] if K == 2 else np.eye(K)[y]
