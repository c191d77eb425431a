"""What is reported on: a fitted estimator, and rows with what its network says about them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.targets import log_probabilities, predicted_classes
from cvxnn.threads import cached_property


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, and the outputs of the network for them.

    X : (n, d), dense or in CSR format.
    y : (n,) indices of classes, or (n, C) values.
    weight : (n,) positive weights of the rows, None if all are equal.
    scores : (n, C) outputs; C = 1 for two classes.
    """

    X: Any
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


def check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, NetworkEstimator):
        raise TypeError(
            "a report is about one of the estimators of cvxnn, such as ReLUClassifier; got "
            f"{type(estimator).__name__}"
        )
    check_is_fitted(estimator, "network_")


def take_sample(estimator: Any, X: Any, y: Any, sample_weight: Any, what: str) -> Sample:
    """The rows, checked; errors begin with what they are."""
    try:
        return _take_sample(estimator, X, y, sample_weight)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _take_sample(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Sample:
    with warnings.catch_warnings():
        # names of columns that the fit did not have do no harm: they go onto the page
        warnings.filterwarnings("ignore", message="X has feature names")
        X = validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, reset=False)
    if sparse.issparse(X):
        X = sparse.csr_array(X)  # a matrix of the old kind is none of the arrays that cvxnn takes
    y = _classes(estimator, y) if is_classifier(estimator) else _values(estimator, y)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)}")
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        counted = np.flatnonzero(weight > 0)  # a row of weight zero is none
        if len(counted) == 0:
            raise ValueError("sample_weight is zero for all rows")
        X, y, weight = X[counted], y[counted], weight[counted]
    scores = estimator.network_.predict(X)
    return Sample(X, y, weight, scores.reshape(len(scores), -1))


def _classes(estimator: Any, y: Any) -> np.ndarray:
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


def _values(estimator: Any, y: Any) -> np.ndarray:
    values = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=estimator)
    values = values.reshape(len(values), -1)
    n_outputs = estimator.network_.n_outputs
    if values.shape[1] != n_outputs:
        raise ValueError(f"y has {values.shape[1]} columns, but the model has {n_outputs} outputs")
    return values


def column_names(estimator: Any, X: Any, given: Sequence[object] | None) -> tuple[str, ...]:
    """The given names, or those of the fit, or those of X, or x0, x1, ..."""
    d = estimator.network_.n_features
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


def target_names(estimator: Any, y: Any) -> tuple[str, ...]:
    """What the outputs of a regression are called."""
    C = estimator.network_.n_outputs
    names = getattr(y, "columns", None)
    if names is None and getattr(y, "name", None) is not None:
        names = [y.name]
    if names is not None and len(names) == C:
        return tuple(str(name) for name in names)
    return ("target",) if C == 1 else tuple(f"target {k}" for k in range(C))
