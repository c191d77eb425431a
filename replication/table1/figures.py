"""Figures of Tables 1 and 5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cvxnn.plots.drawing import COLOURS, FAINT, new_pair, save_figure, tidy
from replication.experiment import Done
from replication.table1.collected import MIXED_UP, NAMES, Collected, cell

SHOWN = {"rfista": "o", "cd_socp": "s", "cd_a": "^", "al": "D"}


def draw(done: Sequence[Done], folder: Path) -> list[str]:
    found = Collected.of(done)
    import matplotlib.pyplot as plt

    left, right = new_pair(10, 4.6)
    _norms(left, found)
    _times(right, found)
    tidy(left, right)
    name = "table1-norms-and-times.png"
    save_figure(left.figure, folder / name)
    plt.close(left.figure)
    return [name]


def _norms(ax, found: Collected) -> None:
    """Norms here against the printed ones."""
    for colour, (method, marker) in zip(COLOURS, SHOWN.items(), strict=False):
        pairs = [
            (there, here)
            for name in found.sets
            if name not in MIXED_UP
            and (there := cell(name, method, "norm")) is not None
            and (here := found.median(name, method, "norm")) is not None
        ]
        if pairs:
            x, y = np.array(pairs).T
            label = NAMES[method]
            ax.plot(x, y, marker, color=colour, ms=5, mfc="none", mew=1.4, label=label)
    ax.set(xscale="log", yscale="log", xlabel="norm of the model, printed", ylabel="norm, here")
    if ax.lines:
        low, high = (f(*ax.get_xlim(), *ax.get_ylim()) for f in (min, max))
        ax.plot([low, high], [low, high], "-", color=FAINT, lw=1, zorder=0, label="equal")
        ax.legend(frameon=False)


def _times(ax, found: Collected) -> None:
    """Processor seconds by set, in the order of R-FISTA's."""
    names = sorted(found.sets, key=lambda name: found.median(name, "rfista", "seconds") or 0.0)
    for colour, (method, marker) in zip(COLOURS, SHOWN.items(), strict=False):
        values = [found.median(name, method, "seconds") for name in names]
        heights = [np.nan if value is None else value for value in values]
        ax.plot(range(len(names)), heights, marker, color=colour, ms=5, mfc="none", mew=1.4)
    ax.set(yscale="log", ylabel="processor seconds, each step by itself")
    ax.set_xticks(range(len(names)), [name[:20] for name in names], rotation=90, fontsize=7)
