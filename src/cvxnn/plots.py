"""Plots; each draws on given or new matplotlib axes and returns them."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from cvxnn.decompositions import Decomposition, decompose
from cvxnn.files import write_atomically
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.paths import Path
from cvxnn.solvers.results import Solution
from cvxnn.validation import check_choice, check_integer, check_matrix, check_number

# The palette of Okabe and Ito, which people see alike whatever their colour vision is.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
OBJECTIVE, BOUND, GAP = COLOURS[:3]
MARKERS = "os^DvPX"
STYLES = ("-", "--", "-.", ":")
INK, FAINT = "#333333", "#9a9a9a"


# -- training


def plot_convergence(solution: Any, axes: Any = None) -> Any:
    """Best objective and lower bound (left), and the relative gap between them (right), over the
    passes through the data. Returns the two axes.

    solution : a `Solution`, or a fitted estimator that keeps its history.
    axes : two matplotlib axes to draw on; new ones unless given.
    """
    history, certificate = _history_of(solution)
    left, right = axes = _new_axes(1, 2, figsize=(9, 3.6)) if axes is None else axes
    passes = np.array([record.n_products for record in history])
    objective = np.array([record.objective for record in history])
    bound = np.array([record.lower_bound for record in history])
    gap = np.array([record.relative_gap for record in history])

    marker = "." if len(history) < 40 else None  # few steps are worth seeing, many are a smear
    left.plot(passes, objective, marker=marker, color=OBJECTIVE, label="objective (upper bound)")
    left.plot(passes, bound, marker=marker, color=BOUND, label="lower bound")
    left.fill_between(passes, bound, objective, color=OBJECTIVE, alpha=0.1, linewidth=0)
    left.set_xscale("log")
    left.set(xlabel="passes over the data", ylabel="value")
    left.set_title("The optimal value lies between the curves", fontsize=10)
    left.legend(frameon=False)

    shown = gap > 0
    right.plot(passes[shown], gap[shown], marker=marker, color=GAP)
    if shown.any():  # a gap of zero from the start has no logarithm
        right.set_xscale("log")
        right.set_yscale("log")
    right.set(xlabel="passes over the data", ylabel="relative duality gap")
    right.set_title(f"Certified at the end: {certificate.relative_gap:.1e}", fontsize=10)
    _tidy(left, right)
    return axes


def plot_path(path: Path, axes: Any = None, *, show: str = "norms") -> Any:
    """A regularisation path (top), and its number of active neurons (bottom), over lam, which
    falls from left to right as it does along the path. Returns the two axes.

    axes : two matplotlib axes to draw on; new ones unless given.
    show :
        "norms"      the norm of each neuron's weights while it is active, in the problem's own
                     units; dashed for those that are subtracted, W of C-ReLU.
        "objective"  the objective and the lower bound of every point.
    """
    if not isinstance(path, Path):
        raise TypeError(f"path must be a Path, which cvxnn.path returns; got {_name(path)}")
    check_choice(show, "show", ("norms", "objective"))
    if len(path) == 0:
        raise ValueError(f"the path has no points to plot: {path.message}")
    if axes is None:
        axes = _new_axes(2, 1, figsize=(7, 5), sharex=True, height_ratios=(2, 1))
    top, bottom = axes
    if show == "norms":
        _draw_norms(top, path)
    else:
        _draw_bounds(top, path)
    bottom.plot(path.lams, path.n_active, color=INK, marker=".", linewidth=1, clip_on=False)
    bottom.set(ylabel="active neurons", ylim=(0, None))
    for ax in (top, bottom):
        _fall_from_left(ax, path.lams)
    bottom.set_xlabel("lam")
    _tidy(top, bottom)
    return axes


def _draw_norms(ax: Any, path: Path) -> None:
    norms = np.linalg.norm(path.coefs, axis=2)  # (points, blocks, outputs)
    n_patterns, C = len(path.problem.patterns), norms.shape[2]
    with_signs = norms.shape[1] > n_patterns
    for output, block in np.argwhere(norms.any(axis=0).T).tolist():
        subtracted = block >= n_patterns
        sign = ("subtracted" if subtracted else "added") if with_signs else ""
        ax.plot(
            path.lams,
            _without_rest(norms[:, block, output]),
            color=_cycled(COLOURS, output if C > 1 else int(subtracted)),
            linestyle="--" if subtracted else "-",
            linewidth=1,
            alpha=0.8,
            label=", ".join(filter(None, [f"output {output}" if C > 1 else "", sign])),
        )
    ax.set(ylabel="norm of each neuron", ylim=(0, None))
    if with_signs or C > 1:
        _legend_without_repeats(ax)


def _without_rest(norm: np.ndarray) -> np.ndarray:
    """A curve without the points at which a neuron is zero, as it is at the next ones too; else
    all curves together would be a thick line along the axis."""
    active = np.pad(norm > 0, 1)
    return np.where(active[:-2] | active[1:-1] | active[2:], norm, np.nan)


def _draw_bounds(ax: Any, path: Path) -> None:
    bounds = np.array([solution.certificate.lower_bound for solution in path])
    ax.plot(path.lams, path.objectives, color=OBJECTIVE, label="objective (upper bound)")
    ax.plot(path.lams, bounds, color=BOUND, linestyle="--", label="lower bound")
    ax.fill_between(path.lams, bounds, path.objectives, color=OBJECTIVE, alpha=0.1, linewidth=0)
    ax.set_ylabel("value")
    ax.set_title(f"Largest relative gap: {path.relative_gaps.max():.1e}", fontsize=10)
    ax.legend(frameon=False)


def plot_cv(estimator: Any, ax: Any = None) -> Any:
    """The scores of a cross-validation over alpha, which falls from left to right: the mean with
    its standard error, the folds behind it, and the alpha that was chosen. Returns the axes.

    estimator : a fitted estimator with cross-validation, such as `ReLUClassifierCV`.
    """
    if not hasattr(estimator, "fit"):
        raise TypeError(f"estimator must be a fitted estimator, got {_name(estimator)}")
    _check_fitted(estimator)
    if not hasattr(estimator, "cv_scores_"):
        raise TypeError(f"{_name(estimator)} has no cross-validation to plot; its CV class has")
    ax = ax if ax is not None else _new_axes(figsize=(7, 4))
    alphas, scores = estimator.alphas_, estimator.cv_scores_
    mean, chosen = scores.mean(axis=0), estimator.best_index_
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
    label = "mean" if error is None else "mean and standard error"
    style = {"color": OBJECTIVE, "marker": "o", "markersize": 4, "capsize": 2, "zorder": 3}
    shown = [ax.errorbar(alphas, mean, error, label=label, **style)]
    style = {"color": FAINT, "alpha": 0.6, "linewidth": 0.8}
    shown += ax.plot(alphas, scores.T, **style, label=["folds"] * len(scores))[:1]
    if error is not None and estimator.rule == "one_se":
        best = int(np.argmax(mean))
        style = {"color": BOUND, "linewidth": 0.8, "linestyle": ":"}
        shown += [ax.axhline(mean[best] - error[best], **style, label="best less one error")]
    style = {"color": BOUND, "linewidth": 1, "linestyle": "--"}
    shown += [ax.axvline(alphas[chosen], **style, label=f"chosen: {alphas[chosen]:.2g}")]
    _fall_from_left(ax, alphas)
    ax.set(xlabel="alpha", ylabel=_score_name(estimator))
    ax.legend(handles=shown, frameon=False)
    _tidy(ax)
    return ax


def _score_name(estimator: Any) -> str:
    scoring = estimator.scoring
    if scoring is not None:
        return scoring.replace("_", " ") if isinstance(scoring, str) else "score"
    from cvxnn.estimators.targets import targets_of

    score = targets_of(estimator).default_score
    return {"log-likelihood": "mean log-likelihood", "R²": "r2"}.get(score, score)


# -- what was learned


def plot_decision_boundary(
    model: Any, X: Any, y: Any, ax: Any = None, *, neurons: bool = True, resolution: int = 300
) -> Any:
    """The regions of the classes of a model with two features, the boundary between them, the
    rows of X, and the lines at which neurons switch. Returns the axes.

    A colour is as strong as the probability of its class, where the model has probabilities. The
    line of a ReLU neuron is where `x W1_j + b1_j = 0`, that of a gated one where its gate
    switches; the wider, the more the function bends (or jumps) there, measured in widths of the
    picture.

    model : a fitted classifier, also of scikit-learn, or a network whose outputs are scores.
    X, y : (n, 2) rows and their labels.
    neurons : whether to draw the lines; models other than those of cvxnn have none.
    resolution : points of the grid in each direction.
    """
    X = _check_columns(X, 2, "a decision boundary")
    resolution = check_integer(resolution, "resolution", minimum=2)
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"y must be {len(X)} labels, one for each row of X; got shape {y.shape}")
    classes = _classes_of(model, y)
    low, high = _box(X)
    ax = ax if ax is not None else _new_axes(figsize=(6, 4.5))
    _draw_regions(ax, model, classes, low, high, resolution)
    network = _network_of(model, 2)
    if neurons and network is not None:
        _draw_lines(ax, network, low, high)
    for k, label in enumerate(classes):
        style = {"color": _cycled(COLOURS, k), "marker": _cycled(MARKERS, k), "zorder": 3}
        rows = X[y == label]
        ax.scatter(*rows.T, s=22, edgecolor="white", linewidth=0.6, label=str(label), **style)
    names = getattr(model, "feature_names_in_", ("x1", "x2"))
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=names[0], ylabel=names[1])
    ax.legend(framealpha=0.9, edgecolor="none", handletextpad=0.2)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _classes_of(model: Any, y: np.ndarray) -> np.ndarray:
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
            raise TypeError(f"model must be a fitted classifier or a network, got {_name(model)}")
        _check_fitted(model)
        classes, n_features = model.classes_, model.n_features_in_
        unknown = np.setdiff1d(y, classes)
        if len(unknown):
            raise ValueError(f"y has labels that the model does not know: {unknown.tolist()}")
    if n_features != 2:
        raise ValueError(f"a decision boundary needs a model of 2 features, got {n_features}")
    return classes


def _draw_regions(
    ax: Any, model: Any, classes: np.ndarray, low: np.ndarray, high: np.ndarray, resolution: int
) -> None:
    from matplotlib.colors import to_rgb

    steps = (np.arange(resolution) + 0.5) / resolution
    first, second = (low[i] + steps * (high[i] - low[i]) for i in range(2))
    grid = np.column_stack([part.ravel() for part in np.meshgrid(first, second)])
    scores, strength = _class_scores(model, grid, classes)
    colours = np.array([to_rgb(_cycled(COLOURS, k)) for k in range(len(classes))])
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
    model: Any, rows: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C), the largest for the class that is predicted, and how sure that is, in [0, 1];
    one half everywhere for models without probabilities."""
    with warnings.catch_warnings():  # a model that was trained on a frame asks for names
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


def _draw_lines(ax: Any, network: TwoLayerNetwork, low: np.ndarray, high: np.ndarray) -> None:
    """The lines of the neurons that cross a box. In units of the box it is [-1/2, 1/2]^2, which a
    line a x = -b crosses if |b| <= (|a_1| + |a_2|) / 2."""
    from matplotlib.collections import LineCollection

    span, centre = high - low, (high + low) / 2
    normals, offsets = _switches(network)
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


def plot_function(
    model: Any, X: Any = None, y: Any = None, ax: Any = None, *, limits: Any = None
) -> Any:
    """The function of a model with one feature, with the breakpoints of its neurons, and the
    data. Returns the axes.

    ReLU networks bend at a breakpoint, which is a dot on the curve. Gated networks jump at their
    gates: a dotted line, and a curve that is interrupted there.

    model : a network, or a fitted regressor, also of scikit-learn (which has no breakpoints).
    X, y : the data to draw, (n,) or (n, 1), and (n,) or (n, C).
    limits : the ends of the x-axis; those of X, or of the breakpoints, with a margin unless given.
    """
    network = _check_one_feature(model)
    X, y = _check_curve_data(X, y)
    breaks = np.zeros(0) if network is None else _breakpoints(network)
    low, high = _check_limits(limits, breaks if X is None else X)
    x, values = _curve(model, network, _between(breaks, low, high), low, high)

    ax = ax if ax is not None else _new_axes(figsize=(7, 4))
    several = values.shape[1] > 1
    for k in range(0 if y is None else y.shape[1]):
        colour = _cycled(COLOURS, k) if several else FAINT
        ax.scatter(X, y[:, k], s=12, color=colour, linewidth=0, zorder=3, label="data")
    for k in range(values.shape[1]):
        colour, label = _cycled(COLOURS, k), f"output {k}" if several else "function"
        ax.plot(x, values[:, k], color=colour, linewidth=1.8, label=label)
        if network is not None and not isinstance(network, GatedReLUNetwork):
            bends = _between(_breakpoints(network, k), low, high)
            heights = np.interp(bends, x, values[:, k])
            style = {"markersize": 5, "markerfacecolor": "white", "label": "breakpoints"}
            ax.plot(bends, heights, "o", color=colour, **style)
    if isinstance(network, GatedReLUNetwork):
        for place in _between(breaks, low, high):
            ax.axvline(place, color=INK, linewidth=0.6, linestyle=":", label="gates")
    name = getattr(model, "feature_names_in_", ("x",))[0]
    ax.set(xlim=(low, high), xlabel=name, ylabel="prediction")
    _legend_without_repeats(ax)
    _tidy(ax)
    return ax


def _check_curve_data(X: Any, y: Any) -> tuple[Any, Any]:
    """X as (n,) and y as (n, C); None where there are none."""
    if X is None:
        if y is not None:
            raise ValueError("y needs X: targets are drawn over their rows")
        return None, None
    X = np.reshape(X, (-1, 1)) if np.ndim(X) == 1 else X
    X = _check_columns(X, 1, "a function")[:, 0]
    if y is None:
        return X, None
    y = np.asarray(y, dtype=float)
    if y.ndim not in (1, 2) or len(y) != len(X):
        raise ValueError(f"y must have {len(X)} rows, as X has; got shape {y.shape}")
    return X, y.reshape(len(X), -1)


def _check_one_feature(model: Any) -> TwoLayerNetwork | None:
    """The network of a model with one feature; None for regressors that have none."""
    if isinstance(model, TwoLayerNetwork):
        n_features = model.n_features
    else:
        from sklearn.base import is_regressor

        if not hasattr(model, "fit") or not is_regressor(model):
            raise TypeError(
                f"model must be a fitted regressor or a network, got {_name(model)}; the logits "
                "of a classifier are the function of its network_"
            )
        _check_fitted(model)
        n_features = model.n_features_in_
    if n_features != 1:
        raise ValueError(f"a function can be drawn for one feature, but the model has {n_features}")
    return _network_of(model, 1)


def _breakpoints(network: TwoLayerNetwork, output: int | None = None) -> np.ndarray:
    """Where neurons of a network with one feature switch, in rising order; all of them, or those
    of one output."""
    slopes, offsets = _switches(network)
    second = network.W2 if output is None else network.W2[:, [output]]
    used = (slopes[:, 0] != 0) & second.any(axis=1)
    return np.unique(-offsets[used] / slopes[used, 0])


def _between(points: np.ndarray, low: float, high: float) -> np.ndarray:
    return points[(points > low) & (points < high)]


def _check_limits(limits: Any, inside: np.ndarray) -> tuple[float, float]:
    """The given limits, or those of points that are to be inside, with a margin."""
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
    model: Any, network: TwoLayerNetwork | None, breaks: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Points x and values (n, C). A ReLU network is linear between its breakpoints, so these are
    enough; for a gated one the curve ends at either side of each, with NaN between."""
    if network is None:
        x = np.linspace(low, high, 500)
    elif isinstance(network, GatedReLUNetwork):
        step = 1e-9 * (high - low)
        x = np.column_stack([breaks - step, np.full(len(breaks), np.nan), breaks + step]).ravel()
        x = np.concatenate([[low], x, [high]])
    else:
        x = np.concatenate([[low], breaks, [high]])
    shown = np.isfinite(x)
    with warnings.catch_warnings():  # a model that was trained on a frame asks for names
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        found = np.asarray(model.predict(x[shown, None])).reshape(shown.sum(), -1)
    values = np.full((len(x), found.shape[1]), np.nan)
    values[shown] = found
    return x, values


# -- gated to ReLU


def plot_decomposition(decomposition: Any, neuron: int | None = None, ax: Any = None) -> Any:
    """How a gated weight u splits into v - w with v and w in the cone of its pattern, where there
    are two columns: two features, or one and an intercept. Returns the axes.

    The cone K is where a ReLU neuron has the pattern. u may be outside; v and w are inside, and
    longer together, which is what the decomposition costs.

    decomposition : a `Decomposition`, or the solution of a `CGReLU` problem, which is decomposed.
    neuron : which of the non-zero blocks, in the order of `block_ratios`; unless given, one for
        which both v and w are long.
    """
    if not isinstance(decomposition, Decomposition | Solution):
        raise TypeError(
            f"decomposition must be a Decomposition or a gated Solution, got {_name(decomposition)}"
        )
    d = decomposition.problem.weight_shape[1]
    if d != 2:
        raise ValueError(f"a cone can be drawn in two columns, but the problem has {d}")
    if isinstance(decomposition, Solution):
        decomposition = decompose(decomposition)
    pattern, v, w = _block(decomposition, neuron)
    u = v - w

    ax = ax if ax is not None else _new_axes(figsize=(6, 4.5))
    low, high = _square_box(np.stack([np.zeros(2), u, v, w]))
    first, last = _edge_angles(decomposition.problem.cones, pattern)
    angles = np.linspace(first, last, 50)
    far = 2 * np.linalg.norm(high - low) * np.column_stack([np.cos(angles), np.sin(angles)])
    corners = np.vstack([np.zeros(2), far])
    cone = ax.fill(*corners.T, color=GAP, alpha=0.15, linewidth=0, label="cone K")
    if v.any() and w.any():  # the other two sides of the parallelogram with diagonal v
        ax.plot(*np.stack([u, v, w]).T, color=FAINT, linewidth=1, linestyle=":")
    for name, arrow, colour in (("u", u, INK), ("v", v, OBJECTIVE), ("w", w, BOUND)):
        if arrow.any():
            _draw_arrow(ax, name, arrow, colour)
    ratio = (np.linalg.norm(v) + np.linalg.norm(w)) / np.linalg.norm(u)
    ax.set_title(f"u = v − w,   ‖v‖ + ‖w‖ = {ratio:.3g} ‖u‖", fontsize=10)
    with_intercept = decomposition.problem.bias
    names = ("weight", "intercept") if with_intercept else ("first weight", "second weight")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=names[0], ylabel=names[1])
    ax.set_aspect("equal")
    ax.locator_params(nbins=6)
    ax.legend(handles=cone, frameon=False)  # arrows have their names beside them
    _tidy(ax)
    return ax


def _block(decomposition: Decomposition, neuron: int | None) -> tuple[int, np.ndarray, np.ndarray]:
    """The pattern, v and w of a neuron."""
    V, W = decomposition.weights
    places = np.argwhere(np.any(V != W, axis=1))  # (pattern, output) where u is not zero
    if len(places) == 0:
        raise ValueError("all weights are zero: there is nothing to decompose")
    if neuron is None:
        shorter = np.minimum(np.linalg.norm(V, axis=1), np.linalg.norm(W, axis=1))
        neuron = int(np.argmax(shorter[tuple(places.T)]))
    if check_integer(neuron, "neuron", minimum=0) >= len(places):
        raise ValueError(f"neuron must be one of 0 to {len(places) - 1}, got {neuron}")
    pattern, output = places[neuron].tolist()
    return pattern, V[pattern, :, output], W[pattern, :, output]


def _square_box(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a square around points, with room for their names."""
    low, high = points.min(axis=0), points.max(axis=0)
    centre, half = (low + high) / 2, 0.62 * float((high - low).max())
    return centre - half, centre + half


def _edge_angles(cones: Any, pattern: int) -> tuple[float, float]:
    """The angles between which a cone in the plane lies: less than 90 degrees from every row of
    X~, all of which are less than 90 degrees from an interior point."""
    x, y = cones.interior[pattern]
    rows = cones.X[cones.live] * cones.signs[pattern, cones.live, None]
    angles = np.arctan2(rows @ [-y, x], rows @ [x, y])  # from the interior point
    centre = math.atan2(y, x)
    return centre + float(angles.max()) - math.pi / 2, centre + float(angles.min()) + math.pi / 2


def _draw_arrow(ax: Any, name: str, arrow: np.ndarray, colour: str) -> None:
    ax.quiver(
        0.0,
        0.0,
        *arrow,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        color=colour,
        width=0.007,
        label=name,
        zorder=3,
    )
    outwards = 12 * arrow / np.linalg.norm(arrow)
    ax.annotate(
        name,
        arrow,
        xytext=outwards,
        textcoords="offset points",
        color=colour,
        ha="center",
        va="center",
        fontsize=12,
        fontstyle="italic",
    )


# -- comparing solvers


def plot_performance_profile(times: Mapping[str, Any], ax: Any = None) -> Any:
    """A performance profile (Dolan and Moré, 2002): for each solver, the share of the problems
    that it solves in at most so many times the time of the quickest. Returns the axes.

    Left, at 1, stands how often a solver is the quickest; right, how often it succeeds at all.
    Problems that none of them solves count as well.

    times : the times of each solver by its name, for the same problems in the same order; inf or
        NaN where it failed.
    """
    table = _check_times(times)
    solved = np.isfinite(table)
    solvable = solved.any(axis=0)
    factors = table[:, solvable] / table[:, solvable].min(axis=0)
    end = 1.5 * float(factors[np.isfinite(factors)].max())

    ax = ax if ax is not None else _new_axes(figsize=(7, 4))
    for k, (name, row) in enumerate(zip(times, factors, strict=True)):
        reached = np.sort(row[np.isfinite(row)])
        shares = np.arange(len(reached) + 1) / table.shape[1]
        ax.step(
            [1.0, *reached, end],
            [*shares, shares[-1]],
            where="post",
            color=_cycled(COLOURS, k),
            linestyle=_cycled(STYLES, k),
            linewidth=1.8,
            label=str(name),
        )
    ax.set_xscale("log", base=10 if end > 100 else 2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(
        xlim=(1, end),
        ylim=(0, 1.03),
        xlabel="times the time of the quickest",
        ylabel="share of the problems solved",
    )
    ax.legend(loc="lower right", framealpha=0.9, edgecolor="none")
    _tidy(ax)
    return ax


def _check_times(times: Any) -> np.ndarray:
    """The times as (solvers, problems), inf where a solver failed."""
    if not isinstance(times, Mapping) or not times:
        raise TypeError(f"times must be a dict of each solver's times, got {_name(times)}")
    rows = {name: np.asarray(row, dtype=float) for name, row in times.items()}
    shapes = {row.shape for row in rows.values()}
    if len(shapes) > 1 or any(row.ndim != 1 or len(row) == 0 for row in rows.values()):
        found = ", ".join(f"{name!r} {row.shape}" for name, row in rows.items())
        raise ValueError(f"times must be one number for each problem and solver, got {found}")
    table = np.array(list(rows.values()))
    table[np.isnan(table)] = np.inf
    if np.any(table <= 0):
        raise ValueError("times must be positive; inf or NaN where a solver failed")
    if not np.isfinite(table).any():
        raise ValueError("times: no solver has solved any problem")
    return table


def save_figure(figure: Any, path: FilePath) -> None:
    """Write a figure as .png, .pdf or .svg, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    write_atomically(path, content.getvalue())


# -- what all plots share


def _history_of(run: Any) -> tuple[Any, Any]:
    """The records and the certificate of a solution or a fitted estimator."""
    if isinstance(run, Solution):
        return _not_empty(run.history, run), run.certificate
    if hasattr(run, "fit"):
        _check_fitted(run)
        return _not_empty(getattr(run, "history_", ()), run), run.certificate_
    raise TypeError(f"solution must be a Solution or a fitted estimator, got {_name(run)}")


def _not_empty(history: Any, run: Any) -> Any:
    if not history:
        raise ValueError(f"this {_name(run)} has no history to plot")
    return history


def _check_fitted(estimator: Any) -> None:
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)


def _network_of(model: Any, n_features: int) -> TwoLayerNetwork | None:
    """The network of a model, if it has one that takes the model's features as they are."""
    network = model if isinstance(model, TwoLayerNetwork) else getattr(model, "network_", None)
    return network if network is not None and network.n_features == n_features else None


def _switches(network: TwoLayerNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Normals (m, d) and offsets (m,) of the hyperplanes at which neurons switch."""
    if isinstance(network, GatedReLUNetwork):
        return network.gates.T, network.gate_bias
    return network.W1, np.zeros(network.n_neurons) if network.b1 is None else network.b1


def _check_columns(X: Any, n_columns: int, what: str) -> np.ndarray:
    X = np.asarray(check_matrix(X, "X"), dtype=float)
    if X.shape[1] != n_columns:
        features = "2 features" if n_columns == 2 else "one feature"
        raise ValueError(f"{what} can be drawn for {features}, but X has {X.shape[1]}")
    return X


def _box(points: np.ndarray, margin: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box around points, with a margin relative to its sides."""
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return low - margin * span, high + margin * span


def _cycled(choices: Any, k: int) -> Any:
    return choices[k % len(choices)]


def _fall_from_left(ax: Any, strengths: np.ndarray) -> None:
    """A logarithmic axis along which the penalty strength falls, as it does on a path."""
    ax.set_xscale("log")
    margin = (strengths[0] / strengths[-1]) ** 0.03
    if margin > 1:
        ax.set_xlim(strengths[0] * margin, strengths[-1] / margin)


def _legend_without_repeats(ax: Any) -> None:
    handles = {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    ax.legend(handles.values(), handles.keys(), frameon=False)


def _tidy(*axes: Any) -> None:
    for ax in axes:
        ax.set_axisbelow(True)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)


def _new_axes(*shape: int, **settings: Any) -> Any:
    _, axes = _import_pyplot().subplots(*shape, layout="constrained", **settings)
    return axes


def _name(value: Any) -> str:
    return type(value).__name__


def _import_pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cvxnn[plot]'") from error
    return plt
