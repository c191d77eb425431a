"""Performance profiles: solvers compared over many problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.plots.drawing import COLOURS, STYLES, cycled, new_axes, tidy, type_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_performance_profile(times: Mapping[str, ArrayLike], ax: Axes | None = None) -> Axes:
    """A performance profile (Dolan and Moré, 2002): for each solver and each factor, the share of
    the problems that it solves within that factor of the quickest solver's time. Returns the axes.

    The left end, at a factor of 1, shows how often a solver is the quickest; the right end, how
    often it succeeds at all. Problems that no solver solves count as well.

    times : solver name -> its times, for the same problems in the same order; inf or NaN where it
        failed.
    """
    table = _check_times(times)
    solved = np.isfinite(table)
    solvable = solved.any(axis=0)
    factors = table[:, solvable] / table[:, solvable].min(axis=0)
    end = 1.5 * float(factors[np.isfinite(factors)].max())

    ax = ax if ax is not None else new_axes(7, 4)
    for k, (name, row) in enumerate(zip(times, factors, strict=True)):
        reached = np.sort(row[np.isfinite(row)])
        shares = np.arange(len(reached) + 1) / table.shape[1]
        ax.step(
            [1.0, *reached, end],
            [*shares, shares[-1]],
            where="post",
            color=cycled(COLOURS, k),
            linestyle=cycled(STYLES, k),
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
    tidy(ax)
    return ax


def _check_times(times: Mapping[str, ArrayLike]) -> np.ndarray:
    """The times as (solvers, problems), inf where a solver failed."""
    if not isinstance(times, Mapping) or not times:
        raise TypeError(f"times must be a dict of each solver's times, got {type_name(times)}")
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
