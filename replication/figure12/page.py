"""The page of Figures 12 to 14."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.record import markdown_table

from cvxnn.plots.drawing import save_figure
from replication.ablations import (
    LAMS,
    SHARE,
    Profile,
    by_set,
    degenerate,
    draw_profiles,
    draw_traces,
    problems,
    profile_table,
    profiles_of,
    shown,
)
from replication.experiment import Done, Judgement, Row, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUNDS = ("QB (10)", "QB (5)", "QB (2)")
PRINTED = (*BOUNDS, "WS", "FT")
OURS = "QB (5), cvxnn"
ENOUGH = 60  # problems below which a profile decides nothing
END = 2000  # of the paper's axis
ALIKE = 0.15  # how far two rules may be apart that perform alike

ABOUT = """
The curves of these figures are not in the paper's source, so that its text is all there is to
compare with. R-FISTA with plain backtracking starts each line search from the step of the last one:
grown by 1.25 where the quadratic bound was loose by a factor of at least c (QB, with c in
brackets), unchanged (WS), or always grown (FT). The paper prints `eta + (1 - alpha) eta` for a
grown step, which would shrink it; `alpha eta` is meant. Problems, the rule by which they are solved
and passes are those of [Figures 9 to 11](figure9.md). The last line is R-FISTA with the defaults of
this library, whose failed steps are shortened to the curvature that was seen.
"""


def present(pieces: Sequence[Done]) -> str:
    rows = list(problems(pieces, traced=False).values())
    parts = [ABOUT.strip(), "## Profiles"]
    if rows:
        parts += [
            f"{len(rows)} problems, and {degenerate(pieces)} more whose optimum is zero.",
            profile_table(rows, (*PRINTED, OURS)),
            _pairs(rows),
        ]
    for name, by_lam in by_set(problems(pieces, traced=True)).items():
        parts += [f"## {name}", _convergence(by_lam)]
    return "\n\n".join(parts)


def _pairs(rows: Sequence[Row]) -> str:
    """The profiles hide which problems they are about: the same, problem by problem."""
    lines = []
    for bound in BOUNDS:
        cells = [bound]
        for other in ("WS", "FT"):
            fewer = equal = 0
            for row in rows:
                mine, theirs = (_effort(row["methods"][name]) for name in (bound, other))
                fewer, equal = fewer + (mine < theirs), equal + (mine == theirs)
            cells.append(f"{fewer} fewer, {equal} equal, {len(rows) - fewer - equal} more")
        lines.append(cells)
    return "\n\n".join(
        ["Passes problem by problem:", markdown_table(("rule", "against WS", "against FT"), lines)]
    )


def _effort(run: Row) -> float:
    return float(run["passes"]) if run["solved"] else float("inf")


def _convergence(by_lam: dict[float, Row]) -> str:
    lines = [
        (
            f"{lam:.3g}",
            name,
            "yes" if run["solved"] else "no",
            run["iterations"],
            run["passes"],
            f"{run['objective']:.5f}",
            f"{run['gap']:.3f}",
        )
        for lam, row in sorted(by_lam.items())
        for name, run in row["methods"].items()
    ]
    lines += [
        (f"{lam:.3g}", "optimum", "", "", "", f"{row['optimum']['objective']:.5f}", "")
        for lam, row in sorted(by_lam.items())
    ]
    header = ("lambda", "rule", "solved", "iterations", "passes", "objective", "certified gap")
    return markdown_table(header, lines)


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    import matplotlib.pyplot as plt

    names = []
    rows = list(problems(pieces, traced=False).values())
    if rows:
        figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
        found = profiles_of(rows, (*PRINTED, OURS))
        draw_profiles(ax, found, END)
        names.append("figure12-profile.png")
        save_figure(figure, folder / names[-1])
        plt.close(figure)
    for name, by_lam in by_set(problems(pieces, traced=True)).items():
        figure = _convergence_figure(name, by_lam)
        names.append(f"figure12-{name}.png")
        save_figure(figure, folder / names[-1])
        plt.close(figure)
    return names


def _convergence_figure(name: str, by_lam: dict[float, Row]) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(by_lam), 3, figsize=(11, 3.2 * len(by_lam)), layout="constrained", squeeze=False
    )
    for (lam, row), (left, middle, right) in zip(sorted(by_lam.items()), axes, strict=True):
        traces = {rule: row["methods"][rule]["trace"] for rule in PRINTED}
        draw_traces(left, traces, "iterations", "objective", log=True)
        draw_traces(middle, traces, "iterations", "squared subgradient", log=True)
        draw_traces(right, traces, "iterations", "passes")
        middle.axhline(1e-6, color="#9a9a9a", linewidth=1)
        left.set(ylabel="best objective so far", title=f"{name}, λ = {lam:.3g}")
        middle.set(ylabel="squared norm of the subgradient")
        right.set(ylabel="passes over the data")
        for ax in (left, middle, right):
            ax.set(xlabel="iterations")
    axes[0, 2].legend(fontsize=8, framealpha=0.9)
    return figure


def verdicts(pieces: Sequence[Done]) -> list[Verdict]:
    rows = list(problems(pieces, traced=False).values())
    if len(rows) < ENOUGH:
        why = "Too few problems are done."
        first = [Verdict(c, Judgement.OPEN, f"{len(rows)} problems", why) for c in ("F12a", "F12b")]
    else:
        found = profiles_of(rows, PRINTED)
        first = [_f12a(found), _f12b(found)]
    return [*first, _f13(by_set(problems(pieces, traced=True)))]


def _f12a(found: dict[str, Profile]) -> Verdict:
    at = {name: profile.reaches(SHARE) for name, profile in found.items()}
    never = float("inf")
    slowest = max(never if at[name] is None else at[name] for name in BOUNDS)
    others = {name: never if at[name] is None else at[name] for name in ("WS", "FT")}
    holds = slowest < min(others.values())
    listed = ", ".join(f"{name} {shown(count)}" for name, count in at.items())
    reason = f"Passes for {SHARE:.0%} of {found['WS'].problems} problems: {listed}."
    if not holds:
        ahead = [name for name, count in others.items() if count <= slowest]
        reason += f" {' and '.join(ahead)} {'is' if len(ahead) == 1 else 'are'} not behind all QB."
    return Verdict("F12a", Judgement.HOLDS if holds else Judgement.FAILS, _range(at), reason)


def _range(at: dict[str, int | None]) -> str:
    counts = [count for name in BOUNDS if (count := at[name]) is not None]
    return f"QB {min(counts)} to {max(counts)}, WS {shown(at['WS'])}, FT {shown(at['FT'])}"


def _f12b(found: dict[str, Profile]) -> Verdict:
    warm, forward = (found[name].reaches(SHARE) for name in ("WS", "FT"))
    if warm is None or forward is None:
        return Verdict("F12b", Judgement.OPEN, "", f"A rule does not solve {SHARE:.0%}.")
    apart = forward / warm - 1
    halves = [found[name].reaches(0.5) for name in ("WS", "FT")]
    return Verdict(
        "F12b",
        Judgement.HOLDS if abs(apart) <= ALIKE else Judgement.FAILS,
        f"{100 * apart:+.0f} %",
        f"Passes of FT against WS for {SHARE:.0%} of the problems, {forward} against {warm}; for "
        f"half of them {shown(halves[1])} against {shown(halves[0])}. Within {ALIKE:.0%} counts as "
        "alike.",
    )


def _f13(found: dict[str, dict[float, Row]]) -> Verdict:
    cases = [
        (name, lam, found.get(name, {}).get(lam))
        for name in ("glass", "flags")
        for lam in (LAMS[0], LAMS[3])
    ]
    if any(row is None for _, _, row in cases):
        return Verdict("F13F14", Judgement.OPEN, "", "Its runs are not done.")
    fewer, texts = 0, []
    for name, lam, row in cases:
        assert row is not None
        forward = row["methods"]["FT"]
        bounds = [row["methods"][rule] for rule in BOUNDS]
        fewer += sum(run["passes"] < forward["passes"] for run in bounds)
        counts = "/".join(str(run["passes"]) for run in bounds)
        texts.append(f"{name} at {lam:.3g}: {counts} against {forward['passes']}")
    total = len(cases) * len(BOUNDS)
    return Verdict(
        "F13F14",
        Judgement.HOLDS if fewer == total else Judgement.FAILS,
        f"fewer in {fewer} of {total}",
        "Passes of QB with c = 10, 5, 2 against FT: " + "; ".join(texts) + ".",
    )
