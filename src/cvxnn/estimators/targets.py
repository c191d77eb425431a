"""What targets mean: how labels and values enter a program, and how its outputs are read.

    labels, two classes    -> a column of -1 and 1; the output is positive for the second class
    labels, more classes   -> one-hot rows; the largest output is that of the predicted class
    values                 -> themselves, scaled by their spread where the estimator scales

With the log-loss, the outputs of a classifier are logits: probabilities are their logistic function
for two classes and their softmax for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NotRequired, Protocol, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils import compute_sample_weight

from cvxnn.estimators.rows import Rows, Scaling
from cvxnn.networks import SomeNetwork
from cvxnn.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from cvxnn.estimators.base import NetworkEstimator
    from cvxnn.estimators.tasks import Classification

ClassWeight: TypeAlias = Mapping[object, float] | Literal["balanced"] | None


class LossSettings(TypedDict):
    """A loss by its name, and its setting if it has one, as problems take them."""

    loss: str
    huber_delta: NotRequired[float]


class Scorer(Protocol):
    """A score of a fitted estimator on rows, larger being better."""

    def __call__(
        self,
        estimator: NetworkEstimator,
        X: ArrayLike,
        y: ArrayLike,
        /,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> float: ...


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes, and what a classifier trains them with.

    classes : (K,), in order.
    loss : "log" or "squared".
    class_weight : as in scikit-learn.
    """

    classes: np.ndarray
    loss: str
    class_weight: ClassWeight = None

    @property
    def n_outputs(self) -> int:
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def has_probabilities(self) -> bool:
        return self.loss == "log"

    @property
    def loss_settings(self) -> LossSettings:
        if self.loss == "squared":
            return {"loss": "squared"}
        return {"loss": "logistic" if self.n_outputs == 1 else "softmax"}

    @property
    def default_score(self) -> str:
        """The score that alpha is chosen by if no other is given."""
        return "log-likelihood" if self.has_probabilities else "accuracy"

    @property
    def default_scorer(self) -> Scorer:
        return mean_log_likelihood if self.has_probabilities else get_scorer("accuracy")

    def encode(self, y: np.ndarray) -> np.ndarray:
        """Labels (n,) as the outputs (n, C) that stand for them. Labels of weight zero need not be
        among the classes; they get the outputs of some class, which does not matter."""
        places = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        return one_output_or_one_hot(places, self.n_outputs)

    def decode(self, places: np.ndarray) -> np.ndarray:
        """The labels of places among the classes."""
        return self.classes[places]

    def row_weights(self, y: np.ndarray, weight: np.ndarray, across: Ranks = ALONE) -> np.ndarray:
        """The weights of the rows, with those of their classes, which are counted on all ranks."""
        if self.class_weight is None:
            return weight
        counted = weight > 0  # rows of weight zero do not count for "balanced"
        weight = weight.copy()
        if across.size > 1:
            places = np.searchsorted(self.classes, y[counted])
            weight[counted] *= self._class_weights(places, across)[places]
            return weight
        weight[counted] *= compute_sample_weight(self.class_weight, y[counted])
        return weight

    def _class_weights(self, places: np.ndarray, across: Ranks) -> np.ndarray:
        """Of each class, whose rows have these places."""
        if isinstance(self.class_weight, Mapping):
            return np.array([self.class_weight.get(label, 1.0) for label in self.classes.tolist()])
        counts = across.sum(np.bincount(places, minlength=len(self.classes)))
        return counts.sum() / (len(counts) * counts)

    def scaling(self, rows: Rows, centre: bool) -> Scaling:
        return Scaling.none(self.n_outputs)

    def shaped(self, network: SomeNetwork) -> SomeNetwork:
        """The network with outputs as scikit-learn wants them: (n,) for two classes."""
        return replace(network, flat_output=self.n_outputs == 1)


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers, and what a regressor trains them with.

    loss : "squared" or "huber".
    huber_delta : threshold of the Huber loss; unused otherwise.
    flat : the targets are (n,), and so are the predictions.
    """

    loss: str
    huber_delta: float
    flat: bool
    default_score: ClassVar[str] = "R²"
    has_probabilities: ClassVar[bool] = False

    @property
    def loss_settings(self) -> LossSettings:
        if self.loss == "huber":
            return {"loss": self.loss, "huber_delta": self.huber_delta}
        return {"loss": self.loss}

    @property
    def default_scorer(self) -> Scorer:
        return get_scorer("r2")

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (y[:, None] if y.ndim == 1 else y).astype(np.float64)

    def decode(self, values: np.ndarray) -> np.ndarray:
        return values

    def row_weights(self, y: np.ndarray, weight: np.ndarray, across: Ranks = ALONE) -> np.ndarray:
        return weight

    def scaling(self, rows: Rows, centre: bool) -> Scaling:
        return Scaling.of(rows.Y, rows.weight, centre, rows.across)

    def shaped(self, network: SomeNetwork) -> SomeNetwork:
        return replace(network, flat_output=self.flat)


Targets = Labels | Values


def targets_of(estimator: NetworkEstimator) -> Targets:
    """What the targets of a fitted estimator mean."""
    if is_classifier(estimator):
        return Labels(estimator.classes_, estimator.loss, estimator.class_weight)
    return Values(estimator.loss, estimator.huber_delta, estimator.network_.flat_output)


def one_output_or_one_hot(places: np.ndarray, n_outputs: int) -> np.ndarray:
    """The places of labels among the classes, as a column of -1 and 1 or as one-hot rows."""
    if n_outputs == 1:
        return np.where(places == 1, 1.0, -1.0)[:, None]
    return np.eye(n_outputs)[places]


def predicted_classes(outputs: np.ndarray) -> np.ndarray:
    """The places of the predicted classes, for outputs (n,) or (n, C)."""
    if outputs.size == len(outputs):
        return (outputs.reshape(-1) > 0).astype(int)
    return outputs.argmax(axis=1)


def probabilities(outputs: np.ndarray) -> np.ndarray:
    """The probabilities (n, K) of the classes, for logits (n,) or (n, C)."""
    if outputs.size == len(outputs):
        return np.column_stack([expit(-outputs), expit(outputs)])
    return softmax(outputs, axis=1)


def log_probabilities(outputs: np.ndarray) -> np.ndarray:
    """The logarithms of `probabilities`, exact where these round to 0 or 1."""
    if outputs.size == len(outputs):
        return log_expit(np.column_stack([-outputs, outputs]))
    return log_softmax(outputs, axis=1)


def mean_log_likelihood(
    classifier: Classification,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Minus the log-loss. scikit-learn's own scorer needs rows of all classes in every fold."""
    logarithms = classifier.predict_log_proba(X)
    places = np.searchsorted(classifier.classes_, y)
    chosen = logarithms[np.arange(len(places)), places]
    weights = None if sample_weight is None else np.asarray(sample_weight)
    return float(np.average(chosen, weights=weights))
