"""What all plots share: colours, axes, and the models they are drawn for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.files import write_atomically
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.validation import check_matrix

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Item = TypeVar("Item")

# The palette of Okabe and Ito, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
OBJECTIVE, BOUND, GAP = COLOURS[:3]
MARKERS = "os^DvPX"
STYLES = ("-", "--", "-.", ":")
INK, FAINT = "#333333", "#9a9a9a"


class Predictor(Protocol):
    """A network, or a fitted estimator of any library."""

    def predict(self, X: ArrayLike, /) -> np.ndarray: ...


class Fitted(Predictor, Protocol):
    """A fitted estimator; only a classifier has classes."""

    n_features_in_: int
    classes_: np.ndarray


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as .png, .pdf or .svg, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    write_atomically(path, content.getvalue())


def check_fitted(estimator: Predictor) -> Fitted:
    """The estimator, if it is fitted; an error otherwise."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    return cast(Fitted, estimator)


def network_of(model: Predictor, n_features: int) -> TwoLayerNetwork | None:
    """The network of a model, if it has one with this number of features."""
    network = model if isinstance(model, TwoLayerNetwork) else getattr(model, "network_", None)
    return network if network is not None and network.n_features == n_features else None


def switches(network: TwoLayerNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Normals (m, d) and offsets (m,) of the hyperplanes at which neurons switch."""
    if isinstance(network, GatedReLUNetwork):
        return network.gates.T, network.gate_bias
    return network.W1, np.zeros(network.n_neurons) if network.b1 is None else network.b1


def check_columns(X: ArrayLike, n_columns: int, what: str) -> np.ndarray:
    rows = np.asarray(check_matrix(X, "X"), dtype=float)
    if rows.shape[1] != n_columns:
        features = "2 features" if n_columns == 2 else "one feature"
        raise ValueError(f"{what} can be drawn for {features}, but X has {rows.shape[1]}")
    return rows


def box(points: np.ndarray, margin: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box around points, with a margin relative to its sides."""
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    return low - margin * span, high + margin * span


def cycled(choices: Sequence[Item], k: int) -> Item:
    """Choice k, starting again from the first where they run out."""
    return choices[k % len(choices)]


def fall_from_left(ax: Axes, strengths: np.ndarray) -> None:
    """A logarithmic axis along which the penalty strength falls, as it does on a path."""
    ax.set_xscale("log")
    margin = (strengths[0] / strengths[-1]) ** 0.03
    if margin > 1:
        ax.set_xlim(strengths[0] * margin, strengths[-1] / margin)


def legend_without_repeats(ax: Axes) -> None:
    handles = {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    ax.legend(handles.values(), handles.keys(), frameon=False)


def tidy(*axes: Axes) -> None:
    for ax in axes:
        ax.set_axisbelow(True)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)


def new_axes(width: float, height: float) -> Axes:
    """Axes on a figure of this size in inches."""
    _, ax = _import_pyplot().subplots(figsize=(width, height), layout="constrained")
    return ax


def new_pair(
    width: float, height: float, *, stacked: bool = False, height_ratios: Sequence[float] = (1,)
) -> Sequence[Axes]:
    """Two axes on one figure: side by side, or one above the other over the same x-axis."""
    _, axes = _import_pyplot().subplots(
        *((2, 1) if stacked else (1, 2)),
        figsize=(width, height),
        sharex=stacked,
        height_ratios=height_ratios,
        layout="constrained",
    )
    return axes


def type_name(value: object) -> str:
    return type(value).__name__


def _import_pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cvxnn[plot]'") from error
    return plt
