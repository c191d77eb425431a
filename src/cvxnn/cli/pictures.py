"""Pictures in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cvxnn.plots import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check_matplotlib() -> None:
    """Raise an error that names the extra to install if there is no matplotlib. Otherwise choose a
    back end that needs no screen."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cvxnn[plot]'") from error
    matplotlib.use("Agg")


def save_plot(axes: Sequence[Axes], file: Path) -> None:
    """Write the figure of these axes, whole or not at all, and close it."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    figure = axes[0].figure
    assert isinstance(figure, Figure)  # not a part of one
    save_figure(figure, file)
    plt.close(figure)
