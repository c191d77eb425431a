"""Estimators for tables: made from settings by name, and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

from cvxnn import estimators
from cvxnn.estimators.base import NetworkEstimator, unread_parameters
from cvxnn.estimators.tasks import Classification
from cvxnn.ranks import Ranks
from cvxnn.tables.gathered import scores_over
from cvxnn.tables.preparation import TASKS, Part
from cvxnn.validation import suggest

KINDS = ("relu", "gated")
_NAMES = {
    (kind, task, cv): f"{prefix}{suffix}{'CV' if cv else ''}"
    for kind, prefix in zip(KINDS, ("ReLU", "GatedReLU"), strict=True)
    for task, suffix in zip(TASKS, ("Classifier", "Regressor"), strict=True)
    for cv in (True, False)
}


def make_estimator(
    kind: str, task: str, choosing: bool, seed: int, settings: Mapping[str, object]
) -> NetworkEstimator:
    """The estimator with these settings; settings without effect are refused. `choosing` is for one
    that chooses alpha by cross-validation."""
    cls = getattr(estimators, _NAMES[kind, task, choosing])
    refuse(settings, ("random_state",), "seed sets it")
    refuse(settings, ("warm_start",), "there is no earlier fit to start from")
    if not choosing:
        refuse(settings, ("ensemble",), "it is made of the folds, and with alpha there are none")
    refuse(
        settings,
        ("categorical_features",),
        "tables encode their columns themselves; name columns of codes by categorical=[...]",
    )
    for name in settings:
        if name not in cls._get_param_names():
            known = suggest(name, cls._get_param_names())
            raise TypeError(f"{cls.__name__} has no parameter {name!r}; {known}")
    estimator = cls(**settings, categorical_features=None, random_state=seed)
    for name, why in unread_parameters(estimator):
        refuse(settings, (name,), why)
    return estimator


def refuse(settings: Mapping[str, object], names: Sequence[str], why: str) -> None:
    for name in names:
        if name in settings:
            raise TypeError(f"{name} is given, but nothing reads it: {why}")


def scores_by_part(
    estimator: NetworkEstimator, parts: dict[str, Part], ranks: Ranks | None = None
) -> dict[str, dict[str, float]]:
    """The scores of all parts that have rows, here or on other ranks."""
    if ranks is not None:
        return scores_over(ranks, estimator, parts)
    return {
        label: scores(estimator, X, y, weights)
        for label, (X, y, weights) in parts.items()
        if len(y)
    }


def scores(
    estimator: NetworkEstimator, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, float]:
    """The scores that are reported for predictions, by name."""
    if isinstance(estimator, Classification):
        found = {"accuracy": float(estimator.score(X, y, sample_weight=weights))}
        if hasattr(estimator, "predict_proba"):
            probabilities = estimator.predict_proba(X)
            found["log_loss"] = float(
                log_loss(y, probabilities, labels=estimator.classes_, sample_weight=weights)
            )
        return found
    values = np.asarray(y)
    size = float(np.max(np.abs(values))) or 1.0  # taken out, so that no square over- or underflows
    true, predicted = values / size, estimator.predict(X) / size
    error = root_mean_squared_error(true, predicted, sample_weight=weights)
    found = {"rmse": size * float(error)}
    if len(true) > 1:
        found["r2"] = float(r2_score(true, predicted, sample_weight=weights))
    return found
