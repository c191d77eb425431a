"""The convex program again, from the network and the rows of a report alone.

Estimators pose the program on scaled columns and targets, and map the network back to raw ones.
Here the network is scaled again, by the means and spreads of the given rows. On the training rows
this gives the certified objective, which checks both the certificate and the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxnn.certificates import Certificate
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.posing import Posing
from cvxnn.estimators.rows import Scaling
from cvxnn.estimators.targets import targets_of
from cvxnn.losses import make_loss
from cvxnn.networks import TwoLayerNetwork
from cvxnn.reports.samples import Sample

AGREEMENT = 1e-6  # relative; objectives that differ by more differ not only by rounding


@dataclass(frozen=True, eq=False)
class Program:
    """A network in the program of some rows.

    objective : its value there, of a mean of networks that of its first member; NaN if all rows
        have weight zero.
    agrees : whether that is the certified value, up to rounding. It may also be lower, within the
        gap, as it is for a pruned network.
    neuron_sizes : (m,) ||W1_j|| ||W2_j||_1 on scaled columns and targets. The penalty is alpha
        times their sum.
    """

    objective: float
    agrees: bool
    neuron_sizes: np.ndarray

    @classmethod
    def of(cls, estimator: NetworkEstimator, sample: Sample) -> Program:
        posing, network = Posing.of_fitted(estimator), estimator.network_
        posing = posing.with_categories(None)  # the sample's rows are encoded already
        certified, scores = network, sample.scores
        if has_members(estimator):
            certified = estimator.members_[0].network
            scores = certified.predict(sample.X).reshape(scores.shape)
        rows = posing.rows(sample.X, posing.targets.decode(sample.y), sample.weight)
        counted = np.flatnonzero(rows.weight > 0)
        if len(counted) == 0:
            return cls(np.nan, False, np.zeros(network.n_neurons))
        rows = rows.select(counted)
        numbers = posing.numbers(rows)
        sizes, own = (_sizes(one, numbers.columns, numbers.targets) for one in (network, certified))
        settings = posing.targets.loss_settings
        loss = make_loss(
            settings["loss"],
            numbers.targets.apply(rows.Y),
            sample_weight=rows.weight,
            huber_delta=settings.get("huber_delta"),
        )
        value = float(loss.value(numbers.targets.apply(scores[counted])))
        value += estimator.alpha_ * float(own.sum())
        return cls(value, _agrees(value, estimator.certificate_), sizes)


def has_members(estimator: NetworkEstimator) -> bool:
    """Whether the network is a mean of several, of which the first has the certificate."""
    return len(getattr(estimator, "members_", ())) > 1


def loss_name(estimator: NetworkEstimator) -> str:
    return targets_of(estimator).loss_settings["loss"]


def _agrees(value: float, certificate: Certificate) -> bool:
    rounding = AGREEMENT * certificate.objective
    below = min(certificate.gap, 1e-3 * certificate.objective)
    return -rounding - below <= value - certificate.objective <= rounding


def _sizes(network: TwoLayerNetwork, columns: Scaling, targets: Scaling) -> np.ndarray:
    first = network.W1 * columns.spread
    if network.b1 is not None:
        first = np.column_stack([first, network.b1 + network.W1 @ columns.mean])
    return np.linalg.norm(first, axis=1) * np.abs(network.W2 / targets.spread).sum(axis=1)
