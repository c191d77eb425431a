"""How a gated weight splits into two weights in a cone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.cones.cones import Cones
from cvxnn.decompositions import Decomposition, decompose
from cvxnn.plots.drawing import BOUND, FAINT, GAP, INK, OBJECTIVE, new_axes, tidy, type_name
from cvxnn.solvers.results import Solution
from cvxnn.validation import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_decomposition(
    decomposition: Decomposition | Solution, neuron: int | None = None, ax: Axes | None = None
) -> Axes:
    """How a gated weight u splits into v - w, with v and w in the cone of its pattern, for problems
    with two columns: two features, or one and an intercept. Returns the axes.

    The cone K holds the weights with which a ReLU neuron has the pattern. u may be outside; v and w
    are inside. Together they are longer than u, which is what the decomposition costs.

    decomposition : a `Decomposition`, or the solution of a `CGReLU` problem, which is decomposed.
    neuron : which of the non-zero blocks, in the order of `block_ratios`; by default the one whose
        shorter part, v or w, is longest.
    """
    if not isinstance(decomposition, Decomposition | Solution):
        raise TypeError(
            "decomposition must be a Decomposition or a gated Solution, got "
            f"{type_name(decomposition)}"
        )
    d = decomposition.problem.weight_shape[1]
    if d != 2:
        raise ValueError(f"a cone can be drawn in two columns, but the problem has {d}")
    if isinstance(decomposition, Solution):
        decomposition = decompose(decomposition)
    pattern, v, w = _block(decomposition, neuron)
    u = v - w

    ax = ax if ax is not None else new_axes(6, 4.5)
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
    ax.legend(handles=cone, frameon=False)  # arrows are labelled in the picture
    tidy(ax)
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


def _edge_angles(cones: Cones, pattern: int) -> tuple[float, float]:
    """The angles between which a cone in the plane lies. Its points are at most 90 degrees from
    every row of X~, and each of these rows is less than 90 degrees from an interior point."""
    x, y = cones.interior[pattern]
    rows = cones.X[cones.live] * cones.signs[pattern, cones.live, None]
    angles = np.arctan2(rows @ [-y, x], rows @ [x, y])  # from the interior point
    centre = math.atan2(y, x)
    return centre + float(angles.max()) - math.pi / 2, centre + float(angles.min()) + math.pi / 2


def _draw_arrow(ax: Axes, name: str, arrow: np.ndarray, colour: str) -> None:
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
    right, up = 12 * arrow / np.linalg.norm(arrow)
    ax.annotate(
        name,
        (arrow[0], arrow[1]),
        xytext=(right, up),
        textcoords="offset points",
        color=colour,
        ha="center",
        va="center",
        fontsize=12,
        fontstyle="italic",
    )
