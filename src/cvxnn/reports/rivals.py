"""Two models that everybody knows, trained on the same rows, to see what the network is worth:
linear or logistic regression, and boosted trees, both of scikit-learn with its own defaults."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from cvxnn.reports.measures import SEED, some_rows
from cvxnn.reports.samples import Sample

MAX_ROWS = 50_000  # to train on
MAX_ITER = 1000  # of the logistic regression, whose default of 100 is often too few


@dataclass(frozen=True, eq=False)
class Rival:
    """name, and samples with its outputs in place of those of the network, as the network has
    them: logits for classes."""

    name: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Rivals:
    """What was trained, on how many of how many rows."""

    models: tuple[Rival, ...]
    n_rows: int
    n_given: int


def rivals_of(samples: Sequence[Sample], n_classes: int) -> Rivals:
    """Train on the first of the samples, and predict all of them."""
    training = samples[0]
    rows = some_rows(len(training), MAX_ROWS)
    part = Sample(
        training.X[rows],
        training.y[rows],
        None if training.weight is None else training.weight[rows],
        training.scores[rows],
    )
    fitting = _classifiers(part, n_classes) if n_classes else _regressors(part)
    # with several threads sums may be rounded in another order every time
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they have to say is not about the network
        found = []
        for name, model, step in fitting:
            weights = {} if part.weight is None else {f"{step}sample_weight": part.weight}
            y = part.y if n_classes or part.y.shape[1] > 1 else part.y[:, 0]
            model.fit(part.X, y, **weights)
            found.append(Rival(name, tuple(_outputs(model, one, n_classes) for one in samples)))
    return Rivals(tuple(found), len(rows), len(training))


def _classifiers(part: Sample, n_classes: int) -> list[tuple[str, Any, str]]:
    if len(np.unique(part.y)) < n_classes:
        return []  # rows of another table, without some class
    scale = StandardScaler(with_mean=not sparse.issparse(part.X))
    logistic = make_pipeline(scale, LogisticRegression(max_iter=MAX_ITER))
    found: list[tuple[str, Any, str]] = [("logistic", logistic, "logisticregression__")]
    if not sparse.issparse(part.X):
        found.append(("boosting", HistGradientBoostingClassifier(random_state=SEED), ""))
    return found


def _regressors(part: Sample) -> list[tuple[str, Any, str]]:
    found: list[tuple[str, Any, str]] = [("linear", LinearRegression(), "")]
    if not sparse.issparse(part.X) and part.y.shape[1] == 1:
        found.append(("boosting", HistGradientBoostingRegressor(random_state=SEED), ""))
    return found


def _outputs(model: Any, sample: Sample, n_classes: int) -> Sample:
    scores = model.decision_function(sample.X) if n_classes else model.predict(sample.X)
    return Sample(sample.X, sample.y, sample.weight, scores.reshape(len(sample), -1))
