"""Ensembles: the mean of several networks, which is one network again.

    "folds"     the network of all rows, and those of the folds
    "variants"  the same of three variants: the estimator as it is, with learned column scales, and
                with sparse gates; weighted by their losses on the rows that folds hold out

The second layers are divided by the number of networks, or multiplied by their shares, the output
biases are averaged, and neurons stand side by side (`TwoLayerNetwork.mean`). All members take the
same columns. Each is a certified optimum of its own program; nothing is proven of their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cvxnn.bits import Bits
from cvxnn.certificates import Certificate, Multipliers
from cvxnn.estimators.posing import Fit
from cvxnn.estimators.rows import Numbers, Rows, Scaling
from cvxnn.estimators.targets import Targets
from cvxnn.gates import SparseGates
from cvxnn.losses import make_loss
from cvxnn.networks import TwoLayerNetwork

FOLDS, VARIANTS = "folds", "variants"
# Of two columns, with biases so that varied shares of the rows are on.
SPARSE = SparseGates(2, active_share=(0.1, 0.9))
TEMPERATURE = 4.0  # shares are exp(-n loss / TEMPERATURE): losses of folds are noisy
LEAST_SHARE = 0.01  # of a variant; one with less is left out
_LEAST_LOSS = 1e-12  # of values, in units of their variance


class Member(NamedTuple):
    """A network that a mean of networks is made of, for raw rows and raw outputs, with the
    certificate of its program, the number of distinct rows that it was trained on, and its share
    of the mean."""

    network: TwoLayerNetwork
    certificate: Certificate
    n_rows: int
    share: float


@dataclass(frozen=True, eq=False)
class ProvenMember:
    """A member with what its bounds rest on.

    network : for raw rows and raw outputs.
    certificate, alpha, converged : those of its program, and whether its tolerance was met.
    share : of the mean.
    places : which of the rows given it was trained on, in rising order; None for all of them.
    bits, dual, multipliers, numbers : as in a `Model`. Only a file of version 3 has no numbers.
    """

    network: TwoLayerNetwork
    certificate: Certificate
    alpha: float
    converged: bool
    share: float
    places: np.ndarray | None
    bits: Bits
    dual: np.ndarray
    multipliers: Multipliers | None
    numbers: Numbers | None

    @classmethod
    def of(cls, fit: Fit, share: float, places: np.ndarray | None) -> ProvenMember:
        solution = fit.solution
        return cls(
            network=fit.posed.network(solution),
            certificate=fit.posed.certificate(solution.certificate),
            alpha=solution.problem.lam,
            converged=solution.converged,
            share=share,
            places=None if places is None else np.sort(places),
            bits=solution.problem.patterns.bits,
            dual=np.asarray(solution.dual),
            multipliers=solution.multipliers,
            numbers=fit.posed.numbers,
        )

    @property
    def plain(self) -> Member:
        return Member(self.network, self.certificate, self.bits.n, self.share)


def mean_of(members: Sequence[Member] | Sequence[ProvenMember]) -> TwoLayerNetwork:
    """The one network that stands for all of them."""
    networks = [member.network for member in members]
    return type(networks[0]).mean(networks, [member.share for member in members])


def loss_of(targets: Targets, units: Scaling, rows: Rows, outputs: np.ndarray) -> float:
    """The mean loss of raw outputs for raw rows, as programs have it; `units` are those of the
    targets."""
    settings = targets.loss_settings
    loss = make_loss(
        settings["loss"],
        units.apply(rows.Y),
        sample_weight=rows.weight,
        huber_delta=settings.get("huber_delta"),
    )
    return float(loss.value(units.apply(outputs.reshape(rows.Y.shape))))


def shares_of(losses: Sequence[float], n_rows: int, targets: Targets) -> np.ndarray:
    """What variants with these losses on `n_rows` rows held out have of a mean: in proportion to
    exp(-n_rows loss / TEMPERATURE), for a loss in units of log-likelihoods. That of values is half
    the logarithm of their mean squared error, as for normal errors of unknown variance."""
    found = np.asarray(losses, dtype=np.float64)
    if not targets.has_probabilities:
        found = 0.5 * np.log(np.maximum(found, _LEAST_LOSS))
    shares = np.exp(-(found - found.min()) * n_rows / TEMPERATURE)
    shares = np.where(shares < LEAST_SHARE * shares.sum(), 0.0, shares)
    return shares / shares.sum()
