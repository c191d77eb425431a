"""Plots; each draws on given or new matplotlib axes and returns them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxnn.solvers import Solution

OBJECTIVE, BOUND, GAP = "#1f5a96", "#c65d1e", "#3c7a3c"


def plot_convergence(solution: Solution, axes: Any = None) -> Any:
    """Best objective and lower bound (left), and the relative gap between them (right), over the
    passes through the data. Returns the two axes."""
    if not solution.history:
        raise ValueError("the solution has no history to plot")
    plt = _import_pyplot()
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left, right = axes
    passes = np.array([record.n_products for record in solution.history])
    objective = np.array([record.objective for record in solution.history])
    bound = np.array([record.lower_bound for record in solution.history])
    gap = np.array([record.relative_gap for record in solution.history])

    left.plot(passes, objective, color=OBJECTIVE, label="objective (upper bound)")
    left.plot(passes, bound, color=BOUND, label="lower bound")
    left.fill_between(passes, bound, objective, color=OBJECTIVE, alpha=0.1, linewidth=0)
    left.set_xscale("log")
    left.set(xlabel="passes over the data", ylabel="value")
    left.set_title("The optimal value lies between the curves", fontsize=10)
    left.legend(frameon=False)

    shown = gap > 0
    right.plot(passes[shown], gap[shown], color=GAP)
    if shown.any():  # a gap of zero from the start has no logarithm
        right.set_xscale("log")
        right.set_yscale("log")
    right.set(xlabel="passes over the data", ylabel="relative duality gap")
    right.set_title(f"Certified at the end: {solution.certificate.relative_gap:.1e}", fontsize=10)
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return axes


def _import_pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cvxnn[plot]'") from error
    return plt
