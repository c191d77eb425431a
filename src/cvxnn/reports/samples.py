"""What a report is about: a fitted estimator, and rows with the outputs of its network."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from cvxnn.arrays import Matrix
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.targets import log_probabilities, predicted_classes
from cvxnn.estimators.tasks import Classification
from cvxnn.tables.model import Model
from cvxnn.threads import cached_property


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, and the outputs of the network for them.

    X : (n, d), dense or in CSR format, as the network takes them.
    y : (n,) indices of classes, or (n, C) values.
    weight : (n,) positive weights of the rows, None if all are equal.
    scores : (n, C) outputs; C = 1 for two classes.
    """

    X: Matrix
    y: np.ndarray
    weight: np.ndarray | None
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def predicted(self) -> np.ndarray:
        """The indices of the predicted classes."""
        return predicted_classes(self.scores)

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """(n, K) logarithms of the probabilities of the classes."""
        return log_probabilities(self.scores)


def check_estimator(estimator: NetworkEstimator) -> None:
    if not isinstance(estimator, NetworkEstimator):
        raise TypeError(
            "a report is about one of the estimators of cvxnn, such as ReLUClassifier; got "
            f"{type(estimator).__name__}"
            + (": save it, and run cvxnn report" if isinstance(estimator, Model) else "")
        )
    check_is_fitted(estimator, "network_")


def take_sample(
    estimator: NetworkEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    what: str,
) -> Sample:
    """The rows, checked; messages of errors begin with `what` they are."""
    try:
        return _take_sample(estimator, X, y, sample_weight)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _take_sample(
    estimator: NetworkEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> Sample:
    with warnings.catch_warnings():
        # the page may show column names that the fit did not have
        warnings.filterwarnings("ignore", message="X has feature names")
        rows = validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, reset=False)
    if sparse.issparse(rows):
        rows = sparse.csr_array(rows)  # networks do not take SciPy's older csr_matrix
    rows = estimator._network_rows(rows)
    if isinstance(estimator, Classification):
        targets = _classes(estimator, y)
    else:
        targets = _values(estimator, y)
    if len(targets) != rows.shape[0]:
        raise ValueError(f"X has {rows.shape[0]} rows, but y has {len(targets)}")
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
        counted = np.flatnonzero(weight > 0)  # training leaves rows of weight zero out as well
        if len(counted) == 0:
            raise ValueError("sample_weight is zero for all rows")
        rows, targets, weight = rows[counted], targets[counted], weight[counted]
    scores = estimator.network_.predict(rows)
    return Sample(rows, targets, weight, scores.reshape(len(scores), -1))


def _classes(estimator: Classification, y: ArrayLike) -> np.ndarray:
    labels = np.asarray(y, dtype=None if hasattr(y, "dtype") else object)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label for each row, got shape {labels.shape}")
    index = {label: k for k, label in enumerate(estimator.classes_.tolist())}
    found = labels.tolist()
    unknown = list(dict.fromkeys(repr(label) for label in found if label not in index))
    if unknown:
        listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise ValueError(f"y holds labels that the estimator does not know: {listed}")
    return np.array([index[label] for label in found], dtype=int)


def _values(estimator: NetworkEstimator, y: ArrayLike) -> np.ndarray:
    values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=estimator)
    values = values.reshape(len(values), -1)
    n_outputs = estimator.network_.n_outputs
    if values.shape[1] != n_outputs:
        raise ValueError(f"y has {values.shape[1]} columns, but the model has {n_outputs} outputs")
    return values


def column_names(
    estimator: NetworkEstimator, X: ArrayLike, given: Sequence[object] | None
) -> tuple[str, ...]:
    """The names of raw columns that are given; else those of the fit, then those of X, then x0,
    x1, ..."""
    d = estimator.n_features_in_
    for names in (
        given,
        getattr(estimator, "feature_names_in_", None),
        getattr(X, "columns", None),
    ):
        if names is not None:
            found = tuple(str(name) for name in names)
            if len(found) != d:
                raise ValueError(f"there are {len(found)} names for {d} columns")
            return found
    return tuple(f"x{k}" for k in range(d))


@dataclass(frozen=True)
class Group:
    """A column of a table: its name, and the places of the features that were made from it."""

    name: str
    places: tuple[int, ...]


def groups_of(names: Sequence[str], columns: Sequence[object] | None) -> tuple[Group, ...]:
    """The columns that features come from; by default every feature is a column of its own."""
    if columns is None:
        return tuple(Group(name, (k,)) for k, name in enumerate(names))
    if len(columns) != len(names):
        raise ValueError(f"columns must name one for each of {len(names)} features")
    places: dict[str, list[int]] = {}
    for k, column in enumerate(columns):
        places.setdefault(str(column), []).append(k)
    return tuple(Group(name, tuple(found)) for name, found in places.items())


def target_names(estimator: NetworkEstimator, y: ArrayLike) -> tuple[str, ...]:
    """The names of a regression's outputs: those of y if it is a frame or a series."""
    C = estimator.network_.n_outputs
    names, name = getattr(y, "columns", None), getattr(y, "name", None)
    if names is None and name is not None:
        names = [name]
    if names is not None and len(names) == C:
        return tuple(str(name) for name in names)
    return ("target",) if C == 1 else tuple(f"target {k}" for k in range(C))
