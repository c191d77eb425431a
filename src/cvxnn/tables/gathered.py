"""What a model says of rows of which every process has some: its scores, as sums over all, and its
claim about the objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.targets import log_probabilities, predicted_classes
from cvxnn.estimators.tasks import Classification
from cvxnn.networks import TwoLayerNetwork
from cvxnn.ranks import Ranks
from cvxnn.tables.preparation import Part

_LEAST = float(np.log(np.finfo(np.float64).eps))  # log-likelihood of a row, as in scikit-learn


def scores_over(
    ranks: Ranks, estimator: NetworkEstimator, parts: dict[str, Part]
) -> dict[str, dict[str, float]]:
    """The scores by name, for all parts that have rows; see `scores` in `estimation.py`."""
    found = {}
    for label, (X, y, weights) in parts.items():
        if ranks.sum(float(len(y))):
            weight = np.ones(len(y)) if weights is None else weights
            outputs = outputs_of(estimator.network_, X)
            score = _of_labels if isinstance(estimator, Classification) else _of_numbers
            found[label] = score(ranks, estimator, outputs, y, weight)
    return found


def outputs_of(network: TwoLayerNetwork, X: Any) -> np.ndarray:
    """Also where there are no rows."""
    if len(X):
        return network.predict(X)
    return np.zeros(0 if network.flat_output else (0, network.n_outputs))


def _of_labels(
    ranks: Ranks, estimator: Any, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> dict[str, float]:
    places = np.searchsorted(estimator.classes_, y)
    right = predicted_classes(outputs) == places
    sums = [weight.sum(), weight @ right]
    if estimator.loss == "log":
        logarithms = log_probabilities(outputs)[np.arange(len(y)), places]
        sums.append(weight @ np.maximum(logarithms, _LEAST))
    size, correct, *likelihood = ranks.sum(np.array(sums)).tolist()
    found = {"accuracy": correct / size}
    if likelihood:
        found["log_loss"] = -likelihood[0] / size
    return found


def _of_numbers(
    ranks: Ranks, estimator: Any, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> dict[str, float]:
    size = float(ranks.max(np.max(np.abs(y), initial=0.0))) or 1.0  # so that no square overflows
    true, errors = y / size, (y - outputs) / size
    n, total, mean = ranks.sum(np.array([len(y), weight.sum(), weight @ true])).tolist()
    squares = np.array([weight @ errors**2, weight @ (true - mean / total) ** 2])
    left, spread = ranks.sum(squares).tolist()
    found = {"rmse": size * float(np.sqrt(left / total))}
    if n > 1:
        found["r2"] = 1 - left / spread if spread > 0 else float(left == 0)
    return found
