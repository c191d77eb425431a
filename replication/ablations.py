"""What Figures 9 to 17 share: their problems, passes as the paper counts them, and profiles.

The paper counts evaluations of the loss by line searches, one for each iteration and one for each
backtrack, and subtracts two; for a fixed step it counts iterations. A profile is the share of the
problems that are solved within so many passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from benchmarks.record import markdown_table

import cvxnn
from cvxnn.plots.drawing import COLOURS, STYLES, cycled, tidy
from cvxnn.solvers.results import Progress
from replication.data import Task
from replication.experiment import Done, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAMS = tuple(float(lam) for lam in np.logspace(-5, -1, 6))
SHOWN = (LAMS[0], LAMS[3])  # the two of the convergence figures
TOL = 1e-3  # of the min-norm subgradient
POINTS = 60  # of a trace, at most
SHARE = 0.8  # of the problems, where profiles are compared


def gated(settings: Row) -> cvxnn.CGReLU:
    task = Task.of(settings["set"])
    return cvxnn.CGReLU(
        task.X, task.targets, task.patterns(settings["patterns"]), lam=settings["lam"]
    )


def is_degenerate(problem: cvxnn.CGReLU | cvxnn.CReLU) -> bool:
    """Whether the zero model is optimal; the paper leaves such problems out."""
    return bool(problem.lam >= cvxnn.lambda_max(problem))


def passes(record: Progress) -> int:
    """As the paper counts them, for a method with a line search."""
    assert record.n_trials is not None
    return max(record.n_trials - 2, 0)


def outcome(solution: cvxnn.Solution, *, fixed: bool = False) -> Row:
    """What a row keeps of a run: its effort, whether it met the published rule, and what is
    certified of the point where it stopped."""
    return {
        "solved": solution.converged,
        "iterations": solution.n_iter,
        "passes": solution.n_iter if fixed else passes(solution.history[-1]),
        "products": solution.n_products,
        "objective": short(solution.certificate.objective),
        "gap": short(solution.certificate.relative_gap),
    }


def optimum(problem: cvxnn.CGReLU | cvxnn.CReLU, tol: float, max_seconds: float = 60.0) -> Row:
    """The certified optimum, by Newton's method."""
    solution = cvxnn.solve(problem, "newton", tol=tol, max_seconds=max_seconds, on_failure="ignore")
    return {
        "objective": short(solution.certificate.objective),
        "gap": short(solution.certificate.relative_gap),
    }


def short(value: float) -> float | None:
    """Six digits are enough; JSON has no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def thinned(columns: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    """At most POINTS of a trace: half of them evenly spaced, half denser towards its begin."""
    length = len(next(iter(columns.values())))
    spaced = [*np.geomspace(1, length, POINTS // 2), *np.linspace(1, length, POINTS // 2)]
    places = range(length) if length <= POINTS else sorted({round(k) - 1 for k in spaced})
    return {name: [short(values[k]) for k in places] for name, values in columns.items()}


def trace(history: Sequence[Progress], *, fixed: bool = False) -> dict[str, list[float | None]]:
    """Passes, iterations, the best objective so far and the squared subgradient."""
    kept = [record for record in history if record.residual is not None]
    return thinned(
        {
            "passes": [record.n_iter if fixed else passes(record) for record in kept],
            "iterations": [record.n_iter for record in kept],
            "objective": [record.objective for record in kept],
            "squared subgradient": [float(record.residual or 0) ** 2 for record in kept],
        }
    )


class Profile(NamedTuple):
    """The passes after which problems were solved, in rising order, and how many there were."""

    solved: tuple[int, ...]
    problems: int

    @classmethod
    def of(cls, outcomes: Iterable[Row]) -> Profile:
        rows = list(outcomes)
        return cls(tuple(sorted(row["passes"] for row in rows if row["solved"])), len(rows))

    @property
    def share(self) -> float:
        """Of the problems, how many were solved in the end."""
        return len(self.solved) / self.problems if self.problems else 0.0

    def reaches(self, share: float) -> int | None:
        """The passes within which this share of the problems is solved."""
        needed = math.ceil(share * self.problems - 1e-9)
        return self.solved[needed - 1] if 0 < needed <= len(self.solved) else None

    def within(self, most: int) -> float:
        """The share that is solved within so many passes."""
        return float(np.searchsorted(self.solved, most, side="right") / max(self.problems, 1))


def shown(value: float | None, digits: int = 0) -> str:
    return "never" if value is None else f"{value:.{digits}f}"


def ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def draw_profiles(
    ax: Axes,
    profiles: Mapping[str, Profile],
    end: int,
    looks: Mapping[str, Mapping[str, object]] | None = None,
) -> None:
    """Steps from left to right, with the legend below them. `looks` are the lines' properties by
    name; without it each line has a colour and a style of its own."""
    for k, (name, profile) in enumerate(profiles.items()):
        shares = np.arange(len(profile.solved) + 1) / max(profile.problems, 1)
        own = {"label": name, "color": cycled(COLOURS, k), "linestyle": line_style(k)}
        look: Mapping[str, Any] = looks[name] if looks else own | {"linewidth": 1.8}
        ax.step([0, *profile.solved, end], [*shares, shares[-1]], where="post", **look)
    ax.axhline(SHARE, color="#9a9a9a", linewidth=1, linestyle=(0, (6, 4)))
    ax.set(
        xlim=(0, end),
        ylim=(0, 1.02),
        xlabel="passes over the data, as the paper counts them",
        ylabel="share of the problems solved",
    )
    tidy(ax)
    ax.get_figure(root=True).legend(
        loc="outside lower center", ncols=4, fontsize=8, frameon=False, handlelength=3
    )


def line_style(k: int) -> object:
    """Solid, dashed and dotted first; then dashes of other lengths."""
    more = ((0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 1)), (0, (10, 2, 2, 2)))
    return cycled((*STYLES, *more), k)


def draw_traces(ax: Axes, traces: Mapping[str, Row], x: str, y: str, *, log: bool = False) -> None:
    for k, (name, columns) in enumerate(traces.items()):
        values = [math.nan if value is None else value for value in columns[y]]
        ax.plot(
            columns[x],
            values,
            label=name,
            color=cycled(COLOURS, k),
            linestyle=line_style(k),
            linewidth=1.6,
        )
    if log:
        _make_logarithmic(ax)
    tidy(ax)


def _make_logarithmic(ax: Axes) -> None:
    """Powers of ten, and between them numbers as people write them where there are few powers."""
    from matplotlib.ticker import LogLocator

    low, high = ax.dataLim.y0, ax.dataLim.y1
    if low > 0 and high < 3 * low:
        return  # nothing that a linear axis would not show
    ax.set_yscale("log")
    if low > 0 and high < 100 * low:
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        ax.yaxis.set_minor_formatter("{x:g}")


def problems(pieces: Sequence[Done], *, traced: bool) -> dict[tuple[str, float], Row]:
    """The rows of profiles, or of the convergence figures, by set and strength of the penalty. What
    several pieces have about one problem is put together; zero models are left out."""
    found: dict[tuple[str, float], Row] = {}
    for piece in pieces:
        if piece.settings["traced"] == traced and not piece.row["degenerate"]:
            row = found.setdefault(_problem(piece), {"methods": {}})
            row.update(piece.row | {"methods": row["methods"] | piece.row["methods"]})
    return found


def with_methods(rows: Iterable[Row], methods: Iterable[str]) -> list[Row]:
    """The rows that have all of these methods, so that profiles are about the same problems."""
    wanted = set(methods)
    return [row for row in rows if wanted <= row["methods"].keys()]


def degenerate(pieces: Sequence[Done]) -> int:
    """How many problems have the zero model as their optimum."""
    return len({_problem(p) for p in pieces if not p.settings["traced"] and p.row["degenerate"]})


def _problem(piece: Done) -> tuple[str, float]:
    return piece.settings["set"], piece.settings["lam"]


def profiles_of(rows: Sequence[Row], methods: Iterable[str]) -> dict[str, Profile]:
    return {name: Profile.of(row["methods"][name] for row in rows) for name in methods}


def by_set(found: Mapping[tuple[str, float], Row]) -> dict[str, dict[float, Row]]:
    sets: dict[str, dict[float, Row]] = {}
    for (name, lam), row in found.items():
        sets.setdefault(name, {})[lam] = row
    return sets


def profile_table(rows: Sequence[Row], methods: Iterable[str]) -> str:
    """How many problems are solved and when, and what is certified where a run stopped."""
    lines = []
    for name, profile in profiles_of(rows, methods).items():
        runs = [row["methods"][name] for row in rows]
        gaps = [run["gap"] for run in runs if run["solved"] and run["gap"] is not None]
        lines.append(
            (
                name,
                f"{100 * profile.share:.1f} %",
                shown(profile.reaches(0.5)),
                shown(profile.reaches(SHARE)),
                f"{np.median([run['iterations'] for run in runs]):.0f}",
                "" if not gaps else f"{np.median(gaps):.2g} ({min(gaps):.1g} to {max(gaps):.2g})",
            )
        )
    header = (
        "method",
        "solved",
        "passes for 50 %",
        f"passes for {100 * SHARE:.0f} %",
        "median iterations",
        "certified gap where it was solved: median (range)",
    )
    return markdown_table(header, lines)
