"""The figure of Tables 2 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cvxnn.plots.drawing import COLOURS, INK, new_axes, save_figure, tidy
from replication.experiment import Done
from replication.table2.collected import COLUMNS, CONVEX, NAMES, Collected, lines

MARKERS = {"c_grelu": "o", "c_relu": "s"}


def draw(done: Sequence[Done], folder: Path) -> list[str]:
    """Accuracy of convex models above the best baseline, by the best and the median of five."""
    import matplotlib.pyplot as plt

    found = Collected.of(done)
    tops = {line.name: line for table in (2, 6) for line in lines(found, table, "best")}
    middles = {line.name: line for table in (2, 6) for line in lines(found, table, "median")}
    if not tops:
        return []
    names = list(tops)
    rival = np.array([max(tops[n].values[k] for k in COLUMNS if k not in CONVEX) for n in names])
    ax = new_axes(10, 4.8)
    for column, colour, shift in zip(CONVEX, COLOURS, (-0.15, 0.15), strict=False):
        x = np.arange(len(names)) + shift
        best = np.array([tops[name].values[column] for name in names]) - rival
        middle = np.array([middles[name].values[column] for name in names]) - rival
        ax.vlines(x, middle, best, color=colour, lw=1)
        marker, label = MARKERS[column], NAMES[column]
        ax.plot(x, best, marker, color=colour, ms=6, label=f"{label}, best of five")
        ax.plot(x, middle, marker, color=colour, ms=6, mfc="white", label=f"{label}, median")
    ax.axhline(0, color=INK, lw=1)
    ax.set_ylabel("points of test accuracy above the best baseline")
    ax.set_xticks(range(len(names)), [name[:20] for name in names], rotation=90, fontsize=8)
    ax.legend(frameon=False, ncols=2, fontsize=8)
    tidy(ax)
    name = "table2-best-and-median.png"
    save_figure(ax.figure, folder / name)
    plt.close(ax.figure)
    return [name]
