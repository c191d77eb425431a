"""The figures: accuracy and neurons over the strength, and gaps of the published stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.plots.drawing import COLOURS, MARKERS, STYLES, save_figure, tidy
from replication.experiment import Done
from replication.figure5.curves import (
    GATED,
    LAGRANGIAN,
    PUBLISHED,
    RELU,
    Curve,
    Curves,
    Method,
    collect,
)
from replication.figure5.settings import MAIN, PATTERNS, SETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRENGTH = "strength of the penalty"
ACCURACY = "test accuracy (%)"


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    curves = collect(pieces)
    figures = {
        "figure5-primary-tumor.png": _main,
        "figure5-gated.png": lambda curves, file: _grid(curves, (PUBLISHED, GATED), file),
        "figure5-relu.png": lambda curves, file: _grid(curves, (RELU,), file),
        "figure5-gaps.png": _gaps,
    }
    return [name for name, make in figures.items() if make(curves, folder / name)]


def _main(curves: Curves, file: Path) -> bool:
    """Figure 5: both problems, and the optimum of the gated one."""
    import matplotlib.pyplot as plt

    methods = [m for m in (PUBLISHED, GATED, RELU) if (m, MAIN, PATTERNS[0]) in curves]
    if not methods:
        return False
    figure, axes = plt.subplots(
        len(methods), 2, figsize=(9, 2.7 * len(methods)), squeeze=False, layout="constrained"
    )
    for method, (left, right) in zip(methods, axes, strict=True):
        for k, p in enumerate(PATTERNS):
            if (method, MAIN, p) in curves:
                curve = curves[method, MAIN, p]
                _line(left, curve, curve.accuracy, k, f"{p} patterns")
                _line(right, curve, curve.neurons, k, f"{p} patterns")
        if method == RELU and (LAGRANGIAN, MAIN, 100) in curves:
            curve = curves[LAGRANGIAN, MAIN, 100]
            for ax, values in ((left, curve.accuracy), (right, curve.neurons)):
                _line(ax, curve, values, 3, "100, augmented Lagrangian")
        left.set(title=f"{MAIN}: {method.title}", ylabel=ACCURACY)
        right.set(title=f"{MAIN}: {method.title}", ylabel="active neurons", yscale="log")
        left.legend(frameon=False, fontsize="small")
    for ax in axes[-1]:
        ax.set_xlabel(STRENGTH)
    tidy(*axes.flat)
    save_figure(figure, file)
    plt.close(figure)
    return True


def _grid(curves: Curves, methods: tuple[Method, ...], file: Path) -> bool:
    """Figures 18 and 19: a panel for each of the nine sets. The first method has quartiles; a
    second one is drawn thin."""
    import matplotlib.pyplot as plt

    sets = [data for data in SETS if data != MAIN and _has(curves, methods[0], data)]
    if not sets:
        return False
    lines = -(-len(sets) // 3)
    figure, axes = plt.subplots(
        lines, 3, figsize=(10, 2.6 * lines + 0.4), squeeze=False, layout="constrained"
    )
    for data, ax in zip(sets, axes.flat, strict=False):
        for k, p in enumerate(PATTERNS):
            for method in methods:
                if (method, data, p) in curves:
                    curve = curves[method, data, p]
                    thin = method != methods[0]
                    label = f"{p}, optimum" if thin else f"{p} patterns"
                    _line(ax, curve, curve.accuracy, k, label, thin=thin)
        ax.set(title=data)
    for ax in axes.flat[len(sets) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel(ACCURACY)
    for k, ax in enumerate(axes.flat[: len(sets)]):
        if k + 3 >= len(sets):
            ax.set_xlabel(STRENGTH)
    handles = {
        label: handle
        for ax in axes.flat
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False
    )
    tidy(*axes.flat[: len(sets)])
    save_figure(figure, file)
    plt.close(figure)
    return True


def _has(curves: Curves, method: Method, data: str) -> bool:
    return any((method, data, p) in curves for p in PATTERNS)


def _line(
    ax: Axes, curve: Curve, values: np.ndarray, k: int, label: str, *, thin: bool = False
) -> None:
    """The median over samplings where there are neurons, with quartiles unless thin."""
    alive = curve.alive
    lams = curve.lams[alive]
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)[:, alive]
    if thin:
        ax.plot(lams, middle, color=COLOURS[k], linestyle=":", linewidth=1.1, label=label)
    else:
        ax.fill_between(lams, low, high, color=COLOURS[k], alpha=0.18, linewidth=0)
        ax.plot(
            lams,
            middle,
            color=COLOURS[k],
            linestyle=STYLES[k],
            marker=MARKERS[k],
            markersize=3,
            linewidth=1.4,
            label=label,
        )
    ax.set_xscale("log")


def _gaps(curves: Curves, file: Path) -> bool:
    """Certified gaps of the published stop: each set, by the number of patterns."""
    import matplotlib.pyplot as plt

    there = [p for p in PATTERNS if any(key[::2] == (PUBLISHED, p) for key in curves)]
    if not there:
        return False
    figure, axes = plt.subplots(
        1, len(there), figsize=(10, 3.4), sharey=True, squeeze=False, layout="constrained"
    )
    for p, ax in zip(there, axes[0], strict=True):
        for method, name, k in ((PUBLISHED, "R-FISTA", 0), (LAGRANGIAN, "augmented Lagrangian", 1)):
            own = [c for (of, _, number), c in curves.items() if (of, number) == (method, p)]
            for j, curve in enumerate(own):
                ax.plot(
                    curve.lams[curve.alive],
                    np.median(curve.gap, axis=0)[curve.alive],
                    color=COLOURS[k],
                    linestyle=STYLES[k],
                    linewidth=1,
                    label=f"{name}, one line a set" if j == 0 else None,
                )
        ax.set(title=f"{p} patterns", xlabel=STRENGTH, xscale="log", yscale="log", ylim=(1e-4, 1.2))
        ax.legend(frameon=False, fontsize="small", loc="lower left")
    axes[0, 0].set_ylabel("certified relative gap")
    tidy(*axes[0])
    save_figure(figure, file)
    plt.close(figure)
    return True
