"""What regression and classification add to an estimator: targets, predictions, probabilities."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.given import targets_array
from cvxnn.estimators.targets import (
    ClassWeight,
    Labels,
    Values,
    log_probabilities,
    predicted_classes,
    probabilities,
)
from cvxnn.ranks import ALONE, Ranks, failing_together

if TYPE_CHECKING:
    from sklearn.utils import Tags


class Regression(RegressorMixin, NetworkEstimator):
    """Values of one target, or of several."""

    huber_delta: float

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **NetworkEstimator._parameter_constraints,
        "loss": [StrOptions({"squared", "huber"})],
        "huber_delta": [Interval(Real, 0, None, closed="neither")],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: np.ndarray, weight: np.ndarray, across: Ranks = ALONE) -> Values:
        if not across.max(float(np.any(weight > 0))):
            raise ValueError("sample_weight is zero for all samples")
        return Values(self.loss, self.huber_delta, flat=y.ndim == 1)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The outputs of the network: (n,), or (n, C) if there were several targets."""
        return self._outputs(X)


class Classification(ClassifierMixin, NetworkEstimator):
    """Labels of two classes, or of more."""

    class_weight: ClassWeight
    classes_: np.ndarray

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **NetworkEstimator._parameter_constraints,
        "loss": [StrOptions({"log", "squared"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def _flattened(self, y: ArrayLike) -> ArrayLike:
        shape = targets_array(y).shape
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y should be a 1d array, got an array of shape {shape} instead: a row has one "
                f"label. For {shape[1]} yes-or-no labels in each row take "
                f"sklearn.multioutput.MultiOutputClassifier({type(self).__name__}(...))"
            )
        return column_or_1d(y, warn=True)

    def _n_outputs(self, y: np.ndarray) -> int:
        n_classes = len(np.unique(y))
        return 1 if n_classes == 2 else n_classes

    def _targets(self, y: np.ndarray, weight: np.ndarray, across: Ranks = ALONE) -> Labels:
        with failing_together(across):
            if len(y):
                check_classification_targets(y)
            own = np.unique(y[weight > 0])  # rows of weight zero do not count
        classes = np.unique(np.concatenate([part for part in across.gather(own) if len(part)]))
        if len(classes) < 2:
            several = across.max(float(len(np.unique(y))))
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but y has one class"
                + (" with positive sample_weight" if several > 1 else "")
            )
        return Labels(classes, self.loss, self.class_weight)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """The outputs of the network: (n,) for two classes, positive for the second one, else
        (n, C). With the log-loss they are logits."""
        return self._outputs(X)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The predicted labels: (n,)."""
        places = predicted_classes(self._outputs(X))
        return self.classes_[places]

    def _has_probabilities(self) -> bool:
        if self.loss == "log":
            return True
        raise AttributeError(f"probabilities need loss='log', but this is loss={self.loss!r}")

    @available_if(_has_probabilities)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probabilities of the classes: (n, C)."""
        return probabilities(self._outputs(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """The logarithms of these probabilities, exact where they round to 0 or 1: (n, C)."""
        return log_probabilities(self._outputs(X))
