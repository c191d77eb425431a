"""The profiles as figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cvxnn.plots.drawing import COLOURS, new_pair, save_figure, tidy
from replication.experiment import Done
from replication.figure4.convex import THRESHOLDS
from replication.figure4.page import FIGURES, KIND_NAMES, profile_of
from replication.figure4.profiles import (
    GRADIENT,
    NAMES,
    Profile,
    compared,
    contests,
    programs,
)
from replication.figure4.settings import KINDS, LIMIT, PUBLISHED

# Colour and line of each method.
LOOKS: dict[str, tuple[str, Any]] = {
    "rfista": (COLOURS[0], "-"),
    "al": (COLOURS[0], "-"),
    "adam": (COLOURS[1], "--"),
    "sgd": (COLOURS[2], "-."),
    "conic": (COLOURS[3], ":"),
    "newton": (COLOURS[6], (0, (6, 1))),
    "generated": (COLOURS[4], (0, (3, 1, 1, 1, 1, 1))),
}
LINES = dict(zip(THRESHOLDS, ("-", "--", ":"), strict=True))


def draw(done: Sequence[Done], folder: Path) -> list[str]:
    names = []
    if any(contests(done, kind)[0] for kind in KINDS):
        for r, figure in FIGURES.items():
            names.append(f"figure4-rivals-{figure}.png")
            _draw_rivals(done, r, folder / names[-1])
    if any(compared(programs(done, kind)) for kind in KINDS):
        names.append("figure4-programs.png")
        _draw_programs(done, folder / names[-1])
    if any(programs(done, kind) for kind in KINDS):
        names.append("figure4-certified.png")
        _draw_certified(done, folder / names[-1])
    return names


def _draw_rivals(done: Sequence[Done], r: float, file: Path) -> None:
    """Left C-GReLU and NC-GReLU, right C-ReLU and NC-ReLU, as in the paper."""
    axes = new_pair(10, 4)
    for ax, kind in zip(axes, KINDS, strict=True):
        problems, _ = contests(done, kind)
        for method in (PUBLISHED[kind][0], *GRADIENT, "conic", "newton", "generated"):
            if problems and (method in GRADIENT or all(method in p.row for p in problems)):
                colour, line = LOOKS[method]
                profile = profile_of(problems, method, r)
                _draw_curve(ax, profile, color=colour, linestyle=line, label=NAMES[method])
        _finish(ax, f"{KIND_NAMES[kind]}, r = {r:g}, {len(problems)} problems")
    _save(axes, file)


def _draw_programs(done: Sequence[Done], file: Path) -> None:
    axes = new_pair(10, 4)
    for ax, kind in zip(axes, KINDS, strict=True):
        pairs = compared(programs(done, kind))
        for method in (PUBLISHED[kind][0], "newton") if pairs else ():
            for r, line in LINES.items():
                profile = Profile(program.passing(method, r) for program in pairs)
                label = f"{NAMES[method]}, r = {r:g}"
                _draw_curve(ax, profile, color=LOOKS[method][0], linestyle=line, label=label)
        _finish(ax, f"{KIND_NAMES[kind]}, {len(pairs)} of the paper's problems")
    _save(axes, file)


def _draw_certified(done: Sequence[Done], file: Path) -> None:
    """The share of all programs tried that Newton's method has certified by a time."""
    axes = new_pair(10, 4)
    for ax, kind in zip(axes, KINDS, strict=True):
        tried = programs(done, kind)
        strengths = sorted({program.lam for program in tried})
        for k, lam in enumerate(strengths):
            seconds = sorted(
                program.rows["newton"]["seconds"] if program.certified else math.inf
                for program in tried
                if program.lam == lam
            )
            # the strongest penalties give zero at once; a darker line is a smaller strength
            shade = 0.85 * (len(strengths) - 1 - k) / max(1, len(strengths) - 1)
            style = ("-", "--", "-.", ":")[k % 4]
            _curve(ax, seconds, color=_faded(shade), linestyle=style, label=f"lam = {lam:.3g}")
        _finish(ax, f"{KIND_NAMES[kind]}, {len(tried)} programs tried", "share certified")
        ax.axvline(LIMIT, color=COLOURS[1], linewidth=1)
    _save(axes, file)


def _faded(shade: float) -> tuple[float, float, float]:
    """From a light grey-blue (0) to a dark one (1)."""
    light, dark = (0.62, 0.76, 0.88), (0.0, 0.12, 0.3)
    return tuple(a + shade * (b - a) for a, b in zip(light, dark, strict=True))  # type: ignore


def _draw_curve(ax: Any, profile: Profile, **look: Any) -> None:
    _curve(ax, profile.seconds, **look)


def _curve(ax: Any, seconds: list[float], **look: Any) -> None:
    solved = [max(value, 1e-3) for value in seconds if math.isfinite(value)]
    shares = [100 * k / len(seconds) for k in range(len(solved) + 1)]
    # from the left edge to the right one
    ax.step([1e-4, *solved, 1e4], [*shares, shares[-1]], where="post", linewidth=1.8, **look)


def _finish(ax: Any, title: str, what: str = "problems solved") -> None:
    ax.axhline(50, color="#9a9a9a", linestyle="--", linewidth=0.8)
    ax.set_xscale("log")
    ax.set(
        xlim=(1e-3, 1e2),
        ylim=(0, 103),
        xlabel="processor seconds",
        ylabel=f"{what} (%)",
        title=title,
    )
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best", framealpha=0.9, edgecolor="none", fontsize=8)
    tidy(ax)


def _save(axes: Any, file: Path) -> None:
    import matplotlib.pyplot as plt

    save_figure(axes[0].figure, file)
    plt.close(axes[0].figure)
