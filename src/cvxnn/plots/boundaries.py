"""The decision boundary of a classifier with two features."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.networks import TwoLayerNetwork
from cvxnn.plots.drawing import (
    COLOURS,
    INK,
    MARKERS,
    Predictor,
    box,
    check_columns,
    check_fitted,
    cycled,
    network_of,
    new_axes,
    switches,
    type_name,
)
from cvxnn.validation import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_decision_boundary(
    model: Predictor,
    X: ArrayLike,
    y: ArrayLike,
    ax: Axes | None = None,
    *,
    neurons: bool = True,
    resolution: int = 300,
) -> Axes:
    """The regions of the classes of a model with two features, the boundary between them, the
    rows of X, and the lines at which neurons switch. Returns the axes.

    If the model has probabilities, a colour is stronger where its class is more probable. The line
    of a ReLU neuron is where `x W1_j + b1_j = 0`, that of a gated one where its gate switches. A
    line is the wider, the more the function bends or jumps there over the width of the picture.

    model : a fitted classifier, also of scikit-learn, or a network whose outputs are scores.
    X, y : (n, 2) rows and their labels.
    neurons : whether to draw the lines; models other than those of cvxnn have none.
    resolution : points of the grid in each direction.
    """
    rows = check_columns(X, 2, "a decision boundary")
    resolution = check_integer(resolution, "resolution", minimum=2)
    labels = np.asarray(y)
    if labels.shape != (len(rows),):
        raise ValueError(
            f"y must be {len(rows)} labels, one for each row of X; got shape {labels.shape}"
        )
    classes = _classes_of(model, labels)
    low, high = box(rows)
    ax = ax if ax is not None else new_axes(6, 4.5)
    _draw_regions(ax, model, classes, low, high, resolution)
    network = network_of(model, 2)
    if neurons and network is not None:
        _draw_lines(ax, network, low, high)
    for k, label in enumerate(classes):
        first, second = rows[labels == label].T
        ax.scatter(
            first,
            second,
            s=22,
            color=cycled(COLOURS, k),
            marker=cycled(MARKERS, k),
            edgecolor="white",
            linewidth=0.6,
            zorder=3,
            label=str(label),
        )
    names = getattr(model, "feature_names_in_", ("x1", "x2"))
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=names[0], ylabel=names[1])
    ax.legend(framealpha=0.9, edgecolor="none", handletextpad=0.2)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _classes_of(model: Predictor, y: np.ndarray) -> np.ndarray:
    """The classes, in the order of the model's outputs."""
    if isinstance(model, TwoLayerNetwork):
        classes, n_features = np.unique(y), model.n_features
        if len(classes) != max(model.n_outputs, 2):
            raise ValueError(
                f"y has {len(classes)} classes, but the network's outputs stand for "
                f"{max(model.n_outputs, 2)}"
            )
    else:
        from sklearn.base import is_classifier

        if not hasattr(model, "fit") or not is_classifier(model):
            raise TypeError(
                f"model must be a fitted classifier or a network, got {type_name(model)}"
            )
        fitted = check_fitted(model)
        classes, n_features = fitted.classes_, fitted.n_features_in_
        unknown = np.setdiff1d(y, classes)
        if len(unknown):
            raise ValueError(f"y has labels that the model does not know: {unknown.tolist()}")
    if n_features != 2:
        raise ValueError(f"a decision boundary needs a model of 2 features, got {n_features}")
    return classes


def _draw_regions(
    ax: Axes,
    model: Predictor,
    classes: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    resolution: int,
) -> None:
    from matplotlib.colors import to_rgb

    steps = (np.arange(resolution) + 0.5) / resolution
    first, second = (low[i] + steps * (high[i] - low[i]) for i in range(2))
    grid = np.column_stack([part.ravel() for part in np.meshgrid(first, second)])
    scores, strength = _class_scores(model, grid, classes)
    colours = np.array([to_rgb(cycled(COLOURS, k)) for k in range(len(classes))])
    shade = 1 - 0.4 * strength[:, None] * (1 - colours[scores.argmax(axis=1)])
    ax.imshow(
        shade.reshape(resolution, resolution, 3),
        extent=(low[0], high[0], low[1], high[1]),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
    )
    for margin in _margins(scores):
        if margin.min() < 0 < margin.max():
            surface = margin.reshape(resolution, resolution)
            ax.contour(first, second, surface, [0.0], colors=INK, linewidths=1.6)


def _class_scores(
    model: Predictor, rows: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C), the largest being that of the predicted class, and how certain this class is,
    in [0, 1]; one half everywhere for models without probabilities."""
    with warnings.catch_warnings():  # models that were trained on a frame expect column names
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        if hasattr(model, "predict_proba"):
            probabilities = model.predict_proba(rows)
            least = 1 / len(classes)
            return probabilities, (probabilities.max(axis=1) - least) / (1 - least)
        if isinstance(model, TwoLayerNetwork):
            scores = model.predict(rows)
        elif hasattr(model, "decision_function"):
            scores = model.decision_function(rows)
        else:
            scores = (model.predict(rows)[:, None] == classes).astype(float)
    if scores.size == len(rows):  # one output, positive for the second class
        scores = np.column_stack([-scores.ravel(), scores.ravel()])
    return scores, np.full(len(rows), 0.5)


def _margins(scores: np.ndarray) -> list[np.ndarray]:
    """For each class, by how much it beats the others; two classes share one boundary."""
    if scores.shape[1] == 2:
        return [scores[:, 1] - scores[:, 0]]
    columns = range(scores.shape[1])
    return [scores[:, k] - np.delete(scores, k, axis=1).max(axis=1) for k in columns]


def _draw_lines(ax: Axes, network: TwoLayerNetwork, low: np.ndarray, high: np.ndarray) -> None:
    """The lines of the neurons that cross a box. In units in which the box is [-1/2, 1/2]^2, the
    line a x = -b crosses it if |b| <= (|a_1| + |a_2|) / 2."""
    from matplotlib.collections import LineCollection

    span, centre = high - low, (high + low) / 2
    normals, offsets = switches(network)
    a, b = normals * span, offsets + normals @ centre
    crossing = np.flatnonzero((np.abs(b) <= np.abs(a).sum(axis=1) / 2) & a.any(axis=1))
    a, b = a[crossing], b[crossing]
    length = np.linalg.norm(a, axis=1, keepdims=True)
    foot, along = -b[:, None] * a / length**2, np.column_stack([-a[:, 1], a[:, 0]]) / length
    ends = np.stack([foot - 1.5 * along, foot + 1.5 * along], axis=1) * span + centre
    bend = np.linalg.norm(network.W1 * span, axis=1) * np.abs(network.W2).sum(axis=1)
    widths = 0.3 + 1.7 * bend[crossing] / (bend.max(initial=0.0) or 1.0)
    lines = LineCollection(list(ends), colors=INK, linewidths=widths, alpha=0.5, linestyles="--")
    ax.add_collection(lines, autolim=False)
