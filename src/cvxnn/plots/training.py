"""How training went: the bounds of one run, a path over the penalty, a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.certificates import Certificate
from cvxnn.paths import Path
from cvxnn.plots.drawing import (
    BOUND,
    COLOURS,
    FAINT,
    GAP,
    INK,
    OBJECTIVE,
    check_fitted,
    cycled,
    fall_from_left,
    legend_without_repeats,
    new_axes,
    new_pair,
    tidy,
    type_name,
)
from cvxnn.solvers.results import Progress, Solution
from cvxnn.validation import check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvxnn.estimators.base import NetworkEstimator
    from cvxnn.estimators.cross_validation import CrossValidated


def plot_convergence(
    solution: Solution | NetworkEstimator, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Best objective and lower bound (left), and the relative gap between them (right), over the
    passes through the data. Returns the two axes.

    solution : a `Solution`, or a fitted estimator that keeps its history.
    axes : two matplotlib axes to draw on; new ones unless given.
    """
    history, certificate = _history_of(solution)
    axes = new_pair(9, 3.6) if axes is None else axes
    left, right = axes
    passes = np.array([record.n_products for record in history])
    objective = np.array([record.objective for record in history])
    bound = np.array([record.lower_bound for record in history])
    gap = np.array([record.relative_gap for record in history])

    marker = "." if len(history) < 40 else None  # many markers would hide the line
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
    tidy(left, right)
    return axes


def plot_path(
    path: Path,
    axes: Sequence[Axes] | None = None,
    *,
    show: str | None = None,
    strength: str = "lam",
) -> Sequence[Axes]:
    """A regularisation path (top), and its number of active neurons (bottom), over lam, which
    falls from left to right as it does along the path. Returns the two axes.

    axes : two matplotlib axes to draw on; new ones unless given.
    show :
        "norms"      the norm of each neuron's weights while it is active, in the problem's own
                     units; dashed for those that are subtracted, W of C-ReLU.
        "objective"  the objective and the lower bound of every point.
        None         "norms"; "objective" where patterns were generated and neurons are others from
                     point to point.
    strength : what the strength of the penalty is called: "lam" as in problems, or "alpha" as in
        estimators and models of tables.
    """
    if not isinstance(path, Path):
        raise TypeError(f"path must be a Path, which cvxnn.path returns; got {type_name(path)}")
    if show is None:
        show = "objective" if path.bounds else "norms"
    check_choice(show, "show", ("norms", "objective"))
    if len(path) == 0:
        raise ValueError(f"the path has no points to plot: {path.message}")
    if axes is None:
        axes = new_pair(7, 5, stacked=True, height_ratios=(2, 1))
    top, bottom = axes
    if show == "norms":
        _draw_norms(top, path)
    else:
        _draw_bounds(top, path)
    bottom.plot(path.lams, path.n_active, color=INK, marker=".", linewidth=1, clip_on=False)
    bottom.set(ylabel="active neurons", ylim=(0, None))
    for ax in (top, bottom):
        fall_from_left(ax, path.lams)
    bottom.set_xlabel(strength)
    tidy(top, bottom)
    return axes


def _draw_norms(ax: Axes, path: Path) -> None:
    norms = np.linalg.norm(path.coefs, axis=2)  # (points, blocks, outputs)
    n_patterns, C = len(path.problem.patterns), norms.shape[2]
    with_signs = norms.shape[1] > n_patterns
    for output, block in np.argwhere(norms.any(axis=0).T).tolist():
        subtracted = block >= n_patterns
        sign = ("subtracted" if subtracted else "added") if with_signs else ""
        ax.plot(
            path.lams,
            _without_zeros(norms[:, block, output]),
            color=cycled(COLOURS, output if C > 1 else int(subtracted)),
            linestyle="--" if subtracted else "-",
            linewidth=1,
            alpha=0.8,
            label=", ".join(filter(None, [f"output {output}" if C > 1 else "", sign])),
        )
    ax.set(ylabel="norm of each neuron", ylim=(0, None))
    if with_signs or C > 1:
        legend_without_repeats(ax)


def _without_zeros(norm: np.ndarray) -> np.ndarray:
    """A curve without its zeros, except those next to a point where the neuron is active. With
    them, all curves together would be a thick line along the axis."""
    active = np.pad(norm > 0, 1)
    return np.where(active[:-2] | active[1:-1] | active[2:], norm, np.nan)


def _draw_bounds(ax: Axes, path: Path) -> None:
    bounds = np.array([solution.certificate.lower_bound for solution in path])
    ax.plot(path.lams, path.objectives, color=OBJECTIVE, label="objective (upper bound)")
    label = "lower bound, over the patterns of each point" if path.bounds else "lower bound"
    ax.plot(path.lams, bounds, color=BOUND, linestyle="--", label=label)
    over_all = [b.lower_bound if b.over_all_patterns else np.nan for b in path.bounds]
    if not np.isnan(over_all).all():
        label = "lower bound over all patterns"
        ax.plot(path.lams, over_all, color=GAP, marker=".", linestyle=":", label=label)
    ax.fill_between(path.lams, bounds, path.objectives, color=OBJECTIVE, alpha=0.1, linewidth=0)
    ax.set_ylabel("value")
    ax.set_title(f"Largest relative gap: {path.relative_gaps.max():.1e}", fontsize=10)
    ax.legend(frameon=False)


def plot_cv(estimator: CrossValidated, ax: Axes | None = None) -> Axes:
    """The scores of a cross-validation over alpha, which falls from left to right: the mean with
    its standard error, the single folds, and the alpha that was chosen. Returns the axes.

    estimator : a fitted estimator with cross-validation, such as `ReLUClassifierCV`.
    """
    if not hasattr(estimator, "fit"):
        raise TypeError(f"estimator must be a fitted estimator, got {type_name(estimator)}")
    check_fitted(estimator)
    if not hasattr(estimator, "cv_scores_"):
        raise TypeError(
            f"{type_name(estimator)} has no cross-validation to plot; use its variant with CV"
        )
    ax = ax if ax is not None else new_axes(7, 4)
    alphas, scores = estimator.alphas_, estimator.cv_scores_
    mean, chosen = scores.mean(axis=0), estimator.best_index_
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
    label = "mean" if error is None else "mean and standard error"
    bars = ax.errorbar(
        alphas,
        mean,
        error,
        color=OBJECTIVE,
        marker="o",
        markersize=4,
        capsize=2,
        zorder=3,
        label=label,
    )
    names = ["folds"] * len(scores)
    folds = ax.plot(alphas, scores.T, color=FAINT, alpha=0.6, linewidth=0.8, label=names)
    lines = [folds[0]]  # one entry in the legend for all of them
    if error is not None and estimator.rule == "one_se":
        best = int(np.argmax(mean))
        least, label = mean[best] - error[best], "best less one error"
        lines.append(ax.axhline(least, color=BOUND, linewidth=0.8, linestyle=":", label=label))
    label = f"chosen: {alphas[chosen]:.2g}"
    lines.append(ax.axvline(alphas[chosen], color=BOUND, linewidth=1, linestyle="--", label=label))
    fall_from_left(ax, alphas)
    ax.set(xlabel="alpha", ylabel=_score_name(estimator))
    ax.legend(handles=[bars, *lines], frameon=False)
    tidy(ax)
    return ax


def _score_name(estimator: CrossValidated) -> str:
    scoring = estimator.scoring
    if scoring is not None:
        return scoring.replace("_", " ") if isinstance(scoring, str) else "score"
    from cvxnn.estimators.targets import targets_of

    score = targets_of(estimator).default_score
    return {"log-likelihood": "mean log-likelihood", "R²": "r2"}.get(score, score)


def _history_of(
    run: Solution | NetworkEstimator,
) -> tuple[tuple[Progress, ...], Certificate]:
    """The records and the certificate of a solution or a fitted estimator."""
    if isinstance(run, Solution):
        _check_history(run.history, run)
        return run.history, run.certificate
    if not hasattr(run, "fit"):
        raise TypeError(f"solution must be a Solution or a fitted estimator, got {type_name(run)}")
    check_fitted(run)
    history = getattr(run, "history_", ())  # estimators of other packages have none
    _check_history(history, run)
    kept = tuple(record for record in history if isinstance(record, Progress))
    if not kept:
        raise ValueError(
            f"the history of this {type_name(run)} has rounds of generation, each over patterns of "
            "its own: there is no one lower bound that rises"
        )
    return kept, run.certificate_


def _check_history(history: Sequence[Progress], run: object) -> None:
    if not history:
        raise ValueError(f"this {type_name(run)} has no history to plot")
