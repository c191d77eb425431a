"""Plots; each draws on given or new matplotlib axes and returns them."""

from cvxnn.plots.boundaries import plot_decision_boundary
from cvxnn.plots.curves import plot_function
from cvxnn.plots.decompositions import plot_decomposition
from cvxnn.plots.drawing import save_figure
from cvxnn.plots.profiles import plot_performance_profile
from cvxnn.plots.training import plot_convergence, plot_cv, plot_path

__all__ = [
    "plot_convergence",
    "plot_cv",
    "plot_decision_boundary",
    "plot_decomposition",
    "plot_function",
    "plot_path",
    "plot_performance_profile",
    "save_figure",
]
