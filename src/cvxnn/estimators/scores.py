"""Scores of networks on rows of which every process has some.

The scores that alpha is chosen by if no other is given are sums over rows, and so over ranks. For
others every rank gets the outputs for all rows, of which there are far fewer than numbers in the
rows, and the scorer is asked as in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cvxnn.estimators.targets import Scorer, log_probabilities, predicted_classes
from cvxnn.networks import TwoLayerNetwork
from cvxnn.ranks import Ranks, failing_together
from cvxnn.sharded import ShardedRows

if TYPE_CHECKING:
    from cvxnn.estimators.base import NetworkEstimator

# A score of outputs, targets and weights of the rows here and on other ranks.
Sum: TypeAlias = "Callable[[Any, np.ndarray, np.ndarray, np.ndarray, Ranks], float]"


@dataclass(frozen=True, eq=False)
class ScorerOverRanks:
    """A scorer that takes `ShardedRows`: its score is that of one process with all rows.

    scorer : for rows in one process.
    name : that of the score, if it has one.
    """

    scorer: Scorer
    name: str | None

    def __call__(
        self,
        estimator: NetworkEstimator,
        X: Any,
        y: Any,
        /,
        *,
        sample_weight: Any = None,
    ) -> float:
        rows: ShardedRows = X
        with failing_together(rows.ranks):
            outputs = _outputs(estimator.network_, rows.local)
        of_sums = _SUMS.get(self.name or "")
        if of_sums is None:
            score = self._gathered(estimator, rows.ranks, outputs, y, sample_weight)
        else:
            score = of_sums(estimator, outputs, y, sample_weight, rows.ranks)
        return float(rows.ranks.agree(score))

    def _gathered(
        self,
        estimator: NetworkEstimator,
        across: Ranks,
        outputs: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
    ) -> float:
        parts = [part for part in across.gather((outputs, y, weight)) if len(part[0])]
        outputs, y, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
        known, X = copy(estimator), np.empty((len(y), 0))
        known.network_, known._validated_rows = _Known(outputs), X  # type: ignore[assignment]
        return float(self.scorer(known, X, y, sample_weight=weight))


@dataclass(frozen=True, eq=False)
class _Known:
    """A network whose outputs for the rows in question are known."""

    outputs: np.ndarray

    def predict(self, X: object) -> np.ndarray:
        return self.outputs


def _outputs(network: TwoLayerNetwork, rows: Any) -> np.ndarray:
    """Also where there are no rows."""
    if len(rows):
        return network.predict(rows)
    return np.zeros(0 if network.flat_output else (0, network.n_outputs))


def _mean(values: np.ndarray, weight: np.ndarray, across: Ranks) -> float:
    total, size = across.sum(np.array([weight @ values, weight.sum()]))
    return float(total / size) if size > 0 else np.nan


def _log_likelihood(
    estimator: Any, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray, across: Ranks
) -> float:
    """See `mean_log_likelihood`."""
    places = np.searchsorted(estimator.classes_, y)
    logarithms = log_probabilities(outputs)[np.arange(len(places)), places]
    return _mean(logarithms, weight, across)


def _accuracy(
    estimator: Any, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray, across: Ranks
) -> float:
    right = estimator.classes_[predicted_classes(outputs)] == y
    return _mean(right.astype(np.float64), weight, across)


def _r2(
    estimator: Any, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray, across: Ranks
) -> float:
    """The mean of the targets' scores, with 0 or 1 for a constant target, as in scikit-learn."""
    if across.sum(float(len(y))) < 2:
        return np.nan
    shape = len(y), estimator.network_.n_outputs
    Y, Z = y.reshape(shape), outputs.reshape(shape)
    mean = across.sum(weight @ Y) / across.sum(weight.sum())
    left, spread = across.sum(np.stack([weight @ (Y - Z) ** 2, weight @ (Y - mean) ** 2]))
    scores = 1 - left / np.where(spread > 0, spread, 1.0)
    constant = np.where(left > 0, 0.0, 1.0)
    return float(np.mean(np.where(spread > 0, scores, constant)))


_SUMS: dict[str, Sum] = {
    "log-likelihood": _log_likelihood,
    "neg_log_loss": _log_likelihood,
    "accuracy": _accuracy,
    "R²": _r2,
    "r2": _r2,
}
