"""What races amount to: geometric means against targets, tables, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cvxnn
from benchmarks.contest import GOAL, OURS, SOLVER, Entrant, Run, is_complete
from benchmarks.record import Row, Rows, geometric_mean, markdown_table

MAX_REASON = 120  # characters


@dataclass(frozen=True)
class Comparison:
    """Against one entrant, or against the best of several: how many times faster at least."""

    label: str
    entrants: tuple[str, ...]
    at: str
    target: float | None = None

    def duels(self, row: Row) -> list[Row]:
        return [row["entrants"][name] for name in self.entrants if name in row["entrants"]]

    def ratio(self, row: Row) -> float | None:
        """Of those that reached the goal, or if none did of all, the one that comes closest."""
        measured = [duel for duel in self.duels(row) if duel["ratio"] is not None]
        reached = [duel for duel in measured if duel["reached"]]
        return min((duel["ratio"] for duel in reached or measured), default=None)

    def at_least(self, row: Row) -> float | None:
        """The ratio, or a lower bound where time ran out."""
        bounds = [duel["at_least"] for duel in self.duels(row) if duel["at_least"] is not None]
        return self.ratio(row) or min(bounds, default=None)

    def mean(self, rows: Rows) -> float | None:
        return _mean([self.ratio(row) for row in rows.values()])

    def mean_at_least(self, rows: Rows) -> float | None:
        return _mean([self.at_least(row) for row in rows.values()])

    def line(self, rows: Rows) -> tuple[object, ...]:
        ratios = [self.ratio(row) for row in rows.values() if self.duels(row)]
        measured = [ratio for ratio in ratios if ratio is not None]
        return (
            self.label,
            self.at,
            len(measured),
            len(ratios) - len(measured),
            f"{min(measured):.2g} to {max(measured):.2g}" if measured else "",
            f"**{_number(self.mean(rows))}**",
            _number(self.mean_at_least(rows)),
            f"{self.target:g}" if self.target else "",
        )

    def misses(self, rows: Rows) -> list[str]:
        """Whoever ran out of time is slower than that, so the mean that counts time limits as times
        is a bound on the true one, and what the target is held against."""
        mean = self.mean_at_least(rows)
        if self.target is None or (mean is not None and mean >= self.target):
            return []
        found = "nothing was measured" if mean is None else f"at least {mean:.2f} times faster"
        return [f"{self.label}, at {self.at}: {found}, wanted {self.target:g}"]


def standings(comparisons: Sequence[Comparison], rows: Rows) -> str:
    header = (
        "against",
        "at",
        "races",
        "left out",
        "times faster",
        "geometric mean",
        "with time limits as times",
        "wanted",
    )
    return markdown_table(header, [comparison.line(rows) for comparison in comparisons], texts=2)


def times(entrants: Sequence[Entrant], rows: Rows, goals: Sequence[float] = (GOAL,)) -> str:
    """Seconds of all, and for the others how many times that is what we take to the same goal."""
    header = (
        "instance",
        "lam",
        *(f"{SOLVER} to {goal:g}" for goal in goals),
        *(entrant.name for entrant in entrants),
    )
    lines = []
    for row in rows.values():
        ours = [row[SOLVER][f"tol={goal:.3g}"] for goal in goals]
        cells = [_cell(row["entrants"].get(entrant.name)) for entrant in entrants]
        lines.append((label(row), lam_label(row), *map(_our_cell, ours), *cells))
    return markdown_table(header, lines)


def work(entrants: Sequence[Entrant], rows: Rows, goal: float = GOAL) -> str:
    """Passes over the data where they are known, and peaks of memory in MB."""
    header = (
        "instance",
        "lam",
        "active neurons",
        f"{SOLVER}: passes",
        "MB",
        *(f"{entrant.name}: passes, MB" for entrant in entrants),
    )
    lines = []
    for row in rows.values():
        run = row[SOLVER][f"tol={goal:.3g}"]
        others = [_work_cell(row["entrants"].get(entrant.name)) for entrant in entrants]
        facts = (run.get("active", ""), run.get("passes", ""), _megabytes(run))
        lines.append((label(row), lam_label(row), *facts, *others))
    return markdown_table(header, lines)


def left_out(entrants: Sequence[Entrant], rows: Rows) -> str:
    """Who could not run what, and why."""
    cases: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows.values():
        for entrant in entrants:
            duel = row["entrants"].get(entrant.name)
            if duel is not None and duel["ratio"] is None and duel["reason"]:
                reason = duel["reason"].split("\n")[0][:MAX_REASON]
                found = cases.setdefault((entrant.name, reason), {})
                found.setdefault(row["instance"], []).append(lam_label(row))
    limits = sorted({row["max_seconds"] for row in rows.values()})
    limit = " or ".join(f"{limit:g} s" for limit in limits)
    lines = [f"The time limit of a run was {limit}{_shares((OURS, *entrants))}."]
    lines += ["Left out are:", ""] if cases else ["Nobody was left out of a race."]
    for (name, reason), found in cases.items():
        listed = "; ".join(f"{instance} at {', '.join(lams)}" for instance, lams in found.items())
        lines.append(f"- {name}, {reason}: {listed}.")
    return "\n".join(lines)


def _shares(entrants: Sequence[Entrant]) -> str:
    shares = [f"{e.patience:g} times that for {e.name}" for e in entrants if e.patience != 1]
    return f" of processor time, {', '.join(shares)}" if shares else " of processor time"


def versions(rows: Rows) -> str:
    found: dict[str, str] = {}
    for row in rows.values():
        for duel in row["entrants"].values():
            for run in duel["tried"]:
                found.update(run.get("versions", {}))
    return "The others: " + ", ".join(f"{name} {v}" for name, v in sorted(found.items())) + "."


def unsolved(rows: Rows, max_n: float = math.inf) -> list[str]:
    """Runs of ours that did not do what they were asked for, or that the judge does not believe."""
    found = []
    for case, row in rows.items():
        for key, run in row[SOLVER].items():
            goal = run["settings"].get("tol", GOAL)
            if row["n"] <= max_n and run["status"] not in ("converged", "stopped"):
                why = run.get("message", run.get("reason", ""))
                found.append(f"{case}, {key}: {run['status']}; {why}")
            elif run["status"] == "converged" and not run["gap"] <= goal * (1 + 1e-3):
                found.append(f"{case}, {key}: judged to have a gap of {run['gap']:.1e}")
    return found


def missing(rows: Rows, planned: Iterable[str]) -> list[str]:
    """The cases without a row, which no mean knows of; those of a quick run are others."""
    cases = list(planned)
    absent = [case for case in cases if case not in rows]
    if not absent or len(absent) == len(cases):
        return []
    return [f"{len(absent)} of {len(cases)} cases are not measured: {'; '.join(absent)}"]


def draw_profile(path: Path, seconds: Mapping[str, Sequence[float]], gap: float) -> None:
    """The performance profile of these times; none if nobody has solved anything."""
    from matplotlib.figure import Figure

    if not any(np.isfinite(row).any() for row in seconds.values()):
        return
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = cvxnn.plot_performance_profile(seconds, figure.subplots())
    problems = len(next(iter(seconds.values())))
    title = f"{problems} problems, to a relative gap of {gap:g} within the time limit"
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120, metadata={"Software": None})


def show_profile(name: str) -> str:
    return (
        "![Share of the problems solved over the time relative to the quickest solver]"
        f"({name}.png)\n\nA performance profile: the share of the problems that a solver brings to "
        "the gap in at most so many times the seconds of the quickest. What was not run, because "
        "time had run out at a larger lam, counts as not solved."
    )


def profile_times(entrants: Sequence[Entrant], rows: Rows, gap: float) -> dict[str, list[float]]:
    """Of each solver and problem, the shortest run that has at most that gap."""

    def shortest(runs: Sequence[Run]) -> float:
        solved = [
            run["seconds"] for run in runs if is_complete(run) and run["gap"] <= gap * (1 + 1e-3)
        ]
        return min(solved, default=math.inf)

    table = {SOLVER: [shortest(list(row[SOLVER].values())) for row in rows.values()]}
    for entrant in entrants:
        duels = [row["entrants"].get(entrant.name, {"tried": []}) for row in rows.values()]
        table[entrant.name] = [shortest(duel["tried"]) for duel in duels]
    return table


def label(row: Row) -> str:
    classes = f" C={row['c']}" if row["c"] > 1 else ""
    size = f"n={row['n']} d={row['d']} p={row['p']}{classes}"
    return row["instance"] if "n=" in row["instance"] else f"{row['instance']} ({size})"


def lam_label(row: Row) -> str:
    if isinstance(row["lam"], list):
        return f"{row['lam'][0]:.2g} to {row['lam'][-1]:.2g}"
    return f"{row['share']:g} lambda_max" if "share" in row else f"{row['lam']:g}"


def _cell(duel: Row | None) -> str:
    if duel is None:
        return ""
    if duel["ratio"] is not None:
        run = duel["tried"][duel["chosen"]]
        at = "" if duel["reached"] else f" to {run['gap']:.0e}"
        sign = "< " if duel["at_most"] else ""
        return f"{_seconds(run['seconds'])}{at} ({sign}{duel['ratio']:.1f}x)"
    if duel["at_least"] is not None:
        return f"> {duel['tried'][-1]['seconds']:.0f} (> {duel['at_least']:.0f}x)"
    return "not run" if not duel["tried"] else duel["reason"].split(":")[0]


def _our_cell(run: Run) -> str:
    limited = run["status"] not in ("converged", "stopped")
    return run["status"] if limited else _seconds(run["seconds"])


def _work_cell(duel: Row | None) -> str:
    if duel is None or duel["chosen"] is None:
        return ""
    run = duel["tried"][duel["chosen"]]
    passes = f"{run['passes']}, " if "passes" in run else ""
    return passes + _megabytes(run)


def _megabytes(run: Run) -> str:
    return f"{run['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in run else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.{3 if seconds < 1 else 2 if seconds < 10 else 0}f}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return geometric_mean(known) if known else None


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"
