"""The function of a model with one feature, and where its neurons switch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.plots.drawing import (
    COLOURS,
    FAINT,
    INK,
    Predictor,
    check_columns,
    check_fitted,
    cycled,
    legend_without_repeats,
    network_of,
    new_axes,
    switches,
    tidy,
    type_name,
)
from cvxnn.validation import check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_function(
    model: Predictor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    limits: Sequence[float] | None = None,
) -> Axes:
    """The function of a model with one feature, with the breakpoints of its neurons, and the
    data. Returns the axes.

    A ReLU network bends at its breakpoints, which are dots on the curve. A gated network jumps at
    its gates: there the curve is interrupted, and a dotted line is drawn.

    model : a network, or a fitted regressor, also of scikit-learn (which has no breakpoints).
    X, y : the data to draw, (n,) or (n, 1), and (n,) or (n, C).
    limits : the ends of the x-axis; by default those of X, or of the breakpoints, with a margin.
    """
    network = _check_one_feature(model)
    places, targets = _check_curve_data(X, y)
    breaks = np.zeros(0) if network is None else _breakpoints(network)
    low, high = _check_limits(limits, breaks if places is None else places)
    x, values = _curve(model, network, _between(breaks, low, high), low, high)

    ax = ax if ax is not None else new_axes(7, 4)
    several = values.shape[1] > 1
    if places is not None and targets is not None:
        for k, column in enumerate(targets.T):
            colour = cycled(COLOURS, k) if several else FAINT
            ax.scatter(places, column, s=12, color=colour, linewidth=0, zorder=3, label="data")
    for k in range(values.shape[1]):
        colour, label = cycled(COLOURS, k), f"output {k}" if several else "function"
        ax.plot(x, values[:, k], color=colour, linewidth=1.8, label=label)
        if network is not None and not isinstance(network, GatedReLUNetwork):
            bends = _between(_breakpoints(network, k), low, high)
            heights = np.interp(bends, x, values[:, k])
            ax.plot(
                bends,
                heights,
                "o",
                color=colour,
                markersize=5,
                markerfacecolor="white",
                label="breakpoints",
            )
    if isinstance(network, GatedReLUNetwork):
        for gate in _between(breaks, low, high):
            ax.axvline(gate, color=INK, linewidth=0.6, linestyle=":", label="gates")
    name = getattr(model, "feature_names_in_", ("x",))[0]
    ax.set(xlim=(low, high), xlabel=name, ylabel="prediction")
    legend_without_repeats(ax)
    tidy(ax)
    return ax


def _check_curve_data(
    X: ArrayLike | None, y: ArrayLike | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """X as (n,) and y as (n, C), or None where they are not given."""
    if X is None:
        if y is not None:
            raise ValueError("y needs X: targets are drawn over their rows")
        return None, None
    column = np.reshape(X, (-1, 1)) if np.ndim(X) == 1 else X
    places = check_columns(column, 1, "a function")[:, 0]
    if y is None:
        return places, None
    targets = np.asarray(y, dtype=float)
    n = len(places)
    if targets.ndim not in (1, 2) or len(targets) != n:
        raise ValueError(f"y must have {n} rows, as X has; got shape {targets.shape}")
    return places, targets.reshape(n, -1)


def _check_one_feature(model: Predictor) -> TwoLayerNetwork | None:
    """The network of a model with one feature; None for regressors without a network of ours."""
    if isinstance(model, TwoLayerNetwork):
        n_features = model.n_features
    else:
        from sklearn.base import is_regressor

        if not hasattr(model, "fit") or not is_regressor(model):
            raise TypeError(
                f"model must be a fitted regressor or a network, got {type_name(model)}; for the "
                "logits of a classifier, give its network_"
            )
        n_features = check_fitted(model).n_features_in_
    if n_features != 1:
        raise ValueError(f"a function can be drawn for one feature, but the model has {n_features}")
    return network_of(model, 1)


def _breakpoints(network: TwoLayerNetwork, output: int | None = None) -> np.ndarray:
    """Where neurons of a network with one feature switch, in rising order; all of them, or those
    of one output."""
    slopes, offsets = switches(network)
    second = network.W2 if output is None else network.W2[:, [output]]
    used = (slopes[:, 0] != 0) & second.any(axis=1)
    return np.unique(-offsets[used] / slopes[used, 0])


def _between(points: np.ndarray, low: float, high: float) -> np.ndarray:
    return points[(points > low) & (points < high)]


def _check_limits(limits: Sequence[float] | None, inside: np.ndarray) -> tuple[float, float]:
    """The given limits, or limits around the points `inside` them, with a margin."""
    if limits is not None:
        if np.shape(limits) != (2,):
            raise ValueError(f"limits must be two numbers, got {limits!r}")
        low, high = (check_number(end, "limits") for end in limits)
        if not low < high:
            raise ValueError(f"limits must rise, got {limits!r}")
        return low, high
    low, high = (-1.0, 1.0) if len(inside) == 0 else (float(inside.min()), float(inside.max()))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _curve(
    model: Predictor, network: TwoLayerNetwork | None, breaks: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Points x and values (n, C). A ReLU network is linear between its breakpoints, so these are
    enough. The curve of a gated one has a point on either side of each, and NaN between them."""
    if network is None:
        x = np.linspace(low, high, 500)
    elif isinstance(network, GatedReLUNetwork):
        step = 1e-9 * (high - low)
        x = np.column_stack([breaks - step, np.full(len(breaks), np.nan), breaks + step]).ravel()
        x = np.concatenate([[low], x, [high]])
    else:
        x = np.concatenate([[low], breaks, [high]])
    shown = np.isfinite(x)
    with warnings.catch_warnings():  # models that were trained on a frame expect column names
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = np.asarray(model.predict(x[shown, None])).reshape(shown.sum(), -1)
    values = np.full((len(x), found.shape[1]), np.nan)
    values[shown] = found
    return x, values
