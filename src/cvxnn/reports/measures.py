"""How good predictions are: scores beside a baseline, confusions, residuals, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvxnn.estimators.targets import log_probabilities
from cvxnn.reports.ranking import areas
from cvxnn.reports.samples import Sample

SEED = 0  # for the choice of rows where there are too many to show
MAX_CLASSES = 12  # rows of a confusion matrix
MAX_PAIRS = 5  # confusions that are named
MAX_POINTS = 1000  # points of a scatter plot
MAX_OUTPUTS = 4  # outputs whose residuals are drawn
N_BINS, MAX_RESIDUAL_BINS = 10, 24


@dataclass(frozen=True)
class Measure:
    """A score, that of the constant model for the first sample of the report, and those of its
    rivals.

    unit : "share", "ratio" (of a size near 1), or "number".
    output : the target it belongs to, if there are several.
    """

    name: str
    value: float
    baseline: float
    unit: str = "number"
    output: str | None = None
    rivals: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Confusion:
    """counts[i, j] rows of class i were predicted as class j, and found[i] of them correctly. If
    there are too many classes, the last row and column stand for the `n_other` least frequent ones
    together."""

    classes: tuple[str, ...]
    counts: np.ndarray
    found: np.ndarray
    n_other: int
    pairs: tuple[tuple[str, str, int], ...]  # the most frequent confusions: true, predicted, rows


@dataclass(frozen=True)
class Bin:
    """Rows with a probability in (low, high]: how many, their mean probability, the share of them
    that have the class, and the 95 % interval of that share (Wilson)."""

    low: float
    high: float
    n: int
    mean: float
    share: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Calibration:
    bins: tuple[Bin, ...]
    error: float  # expected calibration error: the mean of |share - mean| over the rows


@dataclass(frozen=True, eq=False)
class Residuals:
    """One output's points to draw, true and predicted, and a histogram of true - predicted."""

    output: str
    n: int
    true: np.ndarray
    predicted: np.ndarray
    counts: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True, eq=False)
class Baseline:
    """The best constant model of some rows: shares of the classes, or the mean."""

    shares: np.ndarray
    mean: np.ndarray

    @classmethod
    def of(cls, sample: Sample, n_classes: int) -> Baseline:
        if n_classes:
            counts = np.bincount(sample.y, weights=sample.weight, minlength=n_classes)
            return cls(counts / counts.sum(), np.zeros(0))
        return cls(np.zeros(0), np.average(sample.y, axis=0, weights=sample.weight))


# -- scores


def classification_measures(
    sample: Sample, baseline: Baseline, with_probabilities: bool
) -> tuple[Measure, ...]:
    y, weight = sample.y, sample.weight
    right = sample.predicted == y
    majority = int(baseline.shares.argmax())
    present = [y == k for k in np.unique(y) if _total(weight, y == k) > 0]
    recalls = [_mean(right[rows], _part(weight, rows)) for rows in present]
    found = [
        Measure("accuracy", _mean(right, weight), _mean(y == majority, weight), "share"),
        Measure("balanced accuracy", float(np.mean(recalls)), 1 / len(present), "share"),
    ]
    if with_probabilities:
        with np.errstate(divide="ignore"):  # a class without rows in the first sample
            constant = np.log(baseline.shares)[y]
        found.append(
            Measure("log-loss", log_loss(sample.scores, y, weight), -_mean(constant, weight))
        )
    roc, precision, share = areas(sample)
    found.append(Measure("ROC AUC", roc, roc if np.isnan(roc) else 0.5, "ratio"))
    found.append(Measure("average precision", precision, share, "ratio"))
    return tuple(found)


def log_loss(scores: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    return -_mean(log_probabilities(scores)[np.arange(len(y)), y], weight)


def regression_measures(
    sample: Sample, baseline: Baseline, names: Sequence[str]
) -> tuple[Measure, ...]:
    """R², root mean squared error and mean absolute error of each output; if there are several
    outputs, the mean R² comes first."""
    weight, several = sample.weight, len(names) > 1
    found = []
    for k, name in enumerate(names):
        y, predicted, mean = sample.y[:, k], sample.scores[:, k], baseline.mean[k]
        output = name if several else None
        found += [
            Measure(
                "R²",
                r_squared(y, predicted, weight),
                r_squared(y, np.full_like(y, mean), weight),
                unit="ratio",
                output=output,
            ),
            Measure("RMSE", _rmse(y - predicted, weight), _rmse(y - mean, weight), output=output),
            Measure(
                "MAE",
                _mean(np.abs(y - predicted), weight),
                _mean(np.abs(y - mean), weight),
                output=output,
            ),
        ]
    if several:
        squares = found[::3]
        value, constant = (
            float(np.mean([getattr(m, part) for m in squares])) for part in ("value", "baseline")
        )
        found.insert(0, Measure("mean R²", value, constant, unit="ratio"))
    return tuple(found)


def r_squared(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """1 - squared error / that of the mean; undefined (NaN) where y is constant."""
    spread = _rmse(y - _mean(y, weight), weight)
    constant = spread <= 1e-13 * np.abs(y).max()
    return np.nan if constant else 1 - (_rmse(y - predicted, weight) / spread) ** 2


def _rmse(residual: np.ndarray, weight: np.ndarray | None) -> float:
    size = float(np.abs(residual).max()) or 1.0  # taken out, so that no square overflows
    return size * float(np.sqrt(_mean((residual / size) ** 2, weight)))


def _mean(values: np.ndarray, weight: np.ndarray | None) -> float:
    return float(np.average(values, weights=weight))


def _part(weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if weight is None else weight[rows]


def _total(weight: np.ndarray | None, rows: np.ndarray) -> float:
    return float(rows.sum() if weight is None else weight[rows].sum())


# -- pictures, which count every row once, whatever its weight


def frequent_classes(sample: Sample, n_classes: int) -> np.ndarray:
    """The most frequent classes, as many as a confusion matrix has room for, in class order."""
    if n_classes <= MAX_CLASSES:
        return np.arange(n_classes)
    counts = np.bincount(sample.y, minlength=n_classes)
    return np.sort(np.argsort(-counts, kind="stable")[: MAX_CLASSES - 1])


def confusion(sample: Sample, names: Sequence[str], kept: np.ndarray) -> Confusion:
    K = len(names)
    every = np.bincount(sample.y * K + sample.predicted, minlength=K * K).reshape(K, K)
    n_other = K - len(kept)
    place = np.full(K, len(kept))  # the others share the last place
    place[kept] = np.arange(len(kept))
    size = len(kept) + bool(n_other)
    counts, found = np.zeros((size, size), dtype=int), np.zeros(size, dtype=int)
    np.add.at(counts, (place[:, None], place), every)
    np.add.at(found, place, every.diagonal())
    wrong = every * (1 - np.eye(K, dtype=int))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
    pairs = [(*divmod(int(k), K), int(wrong.flat[k])) for k in order if wrong.flat[k] > 0]
    return Confusion(
        tuple(names[k] for k in kept) + (("other classes",) if n_other else ()),
        counts,
        found,
        n_other,
        tuple((names[i], names[j], n) for i, j, n in pairs),
    )


def calibration(sample: Sample) -> Calibration:
    """Ten bins of equal width: of the probability of the second of two classes, or, for more, of
    that of the predicted class."""
    probabilities = np.exp(sample.log_probabilities)
    if probabilities.shape[1] == 2:
        p, came_true = probabilities[:, 1], sample.y == 1
    else:
        p, came_true = probabilities.max(axis=1), sample.predicted == sample.y
    place = np.clip(np.ceil(p * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    bins = []
    for k in range(N_BINS):
        rows = place == k
        if rows.any():
            n, share = int(rows.sum()), float(came_true[rows].mean())
            low, high = k / N_BINS, (k + 1) / N_BINS
            bins.append(Bin(low, high, n, float(p[rows].mean()), share, _wilson(share, n)))
    error = sum(one.n * abs(one.share - one.mean) for one in bins) / len(sample)
    return Calibration(tuple(bins), error)


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def residuals(sample: Sample, names: Sequence[str]) -> tuple[Residuals, ...]:
    found = []
    shown = some_rows(len(sample), MAX_POINTS)
    for k, name in enumerate(names[:MAX_OUTPUTS]):
        y, predicted = sample.y[:, k], sample.scores[:, k]
        residual = y - predicted
        low, high = residual.min(), residual.max()
        if not high - low > 1e-9 * max(abs(low), abs(high)):  # all the same, up to rounding
            half = max(abs(high), 1.0) / 2
            low, high = low - half, high + half
        n_bins = int(np.clip(2 * np.sqrt(len(y)), 4, MAX_RESIDUAL_BINS))
        counts, edges = np.histogram(residual, bins=n_bins, range=(low, high))
        found.append(Residuals(name, len(y), y[shown], predicted[shown], counts, edges))
    return tuple(found)


def some_rows(n: int, limit: int) -> np.ndarray:
    """All rows, or `limit` of them chosen at random, the same ones every time."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).choice(n, limit, replace=False))
