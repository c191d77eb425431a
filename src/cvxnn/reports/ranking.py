"""How well the outputs for a class put its rows before the others: areas under two curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from cvxnn.reports.samples import Sample

MAX_CURVES = 3  # classes whose curves are drawn
MAX_POINTS = 120  # of a curve


@dataclass(frozen=True, eq=False)
class Curve:
    """Points (x, y) of a curve, thinned out, and its area: the ROC curve's own, or the average
    precision."""

    x: np.ndarray
    y: np.ndarray
    area: float


@dataclass(frozen=True, eq=False)
class Ranking:
    """The two curves of a class, or of a rival; `share` is that of the rows of the class."""

    name: str
    roc: Curve
    precision: Curve
    share: float


def areas(sample: Sample) -> tuple[float, float, float]:
    """The area under the ROC curve, the average precision, and what a constant model has for that:
    of the second of two classes, else the mean over the classes that the rows have. NaN where the
    rows are of one class only."""
    found = [
        (
            roc_auc_score(true, score, sample_weight=sample.weight),
            average_precision_score(true, score, sample_weight=sample.weight),
            float(np.average(true, weights=sample.weight)),
        )
        for true, score in (_one_class(sample, k) for k in _classes(sample))
        if true.any() and not true.all()
    ]
    if not found:
        return np.nan, np.nan, np.nan
    roc, precision, share = np.mean(found, axis=0)
    return float(roc), float(precision), float(share)


def rankings(sample: Sample, names: Sequence[str], others: Sequence[tuple[str, Sample]]) -> tuple:
    """What is drawn: with two classes the network beside its rivals, else the network for the most
    frequent classes."""
    if len(names) == 2:
        drawn = [("network", sample, 1), *((name, other, 1) for name, other in others)]
    else:
        counts = np.bincount(sample.y, minlength=len(names))
        most = np.sort(np.argsort(-counts, kind="stable")[:MAX_CURVES])
        drawn = [(names[k], sample, int(k)) for k in most]
    found = (_ranking(name, one, k) for name, one, k in drawn)
    return tuple(ranking for ranking in found if ranking is not None)


def _classes(sample: Sample) -> range:
    return range(1, 2) if sample.scores.shape[1] == 1 else range(sample.scores.shape[1])


def _one_class(sample: Sample, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are of class k, and how much the outputs speak for it: its probability against
    all others, as a logit."""
    if sample.scores.shape[1] == 1:
        return sample.y == k, sample.scores[:, 0] if k == 1 else -sample.scores[:, 0]
    return sample.y == k, sample.log_probabilities[:, k]


def _ranking(name: str, sample: Sample, k: int) -> Ranking | None:
    true, score = _one_class(sample, k)
    if true.all() or not true.any():
        return None
    weight = sample.weight
    false_rate, true_rate, _ = roc_curve(true, score, sample_weight=weight)
    precision, recall, _ = precision_recall_curve(true, score, sample_weight=weight)
    return Ranking(
        name,
        _curve(false_rate, true_rate, roc_auc_score(true, score, sample_weight=weight)),
        _curve(
            recall[::-1],
            precision[::-1],
            average_precision_score(true, score, sample_weight=weight),
        ),
        float(np.average(true, weights=weight)),
    )


def _curve(x: np.ndarray, y: np.ndarray, area: float) -> Curve:
    """Points of equal distance along the curve, first and last included."""
    if len(x) > MAX_POINTS:
        length = np.append(0.0, np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y))))
        places = np.searchsorted(length, np.linspace(0, length[-1], MAX_POINTS))
        kept = np.unique(np.clip(places, 0, len(x) - 1))
        x, y = x[kept], y[kept]
    return Curve(x, y, float(area))
