"""The page of Figures 9 to 11."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.record import markdown_table

from cvxnn.plots.drawing import save_figure
from replication.ablations import (
    LAMS,
    SHARE,
    SHOWN,
    Profile,
    by_set,
    degenerate,
    draw_profiles,
    draw_traces,
    problems,
    profile_table,
    profiles_of,
    ratio,
    shown,
    with_methods,
)
from replication.experiment import Done, Judgement, Row, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = ("R-FISTA", "FISTA", "PGD-LS", "PGD")  # the lines of the paper's figure
FURTHER = ("R-FISTA, released", "FISTA, released", "R-FISTA, cvxnn")
ACCELERATED = (*PRINTED[:2], *FURTHER)
ENOUGH = 60  # problems below which a profile decides nothing
END = 2000  # of the paper's axis
# The limits of the objective's axis in the authors' figures, where runs should end
LIMITS = {
    ("twonorm", LAMS[0]): (0.02, 0.15),
    ("twonorm", LAMS[3]): (0.246, 0.26),
    ("heart-cleveland", LAMS[0]): (0.002, 0.03),
    ("heart-cleveland", LAMS[3]): (0.0815, 0.0875),
}

ABOUT = """
The curves of these figures are not in the paper's source, so that its text is all there is to
compare with. A problem is a set with a strength of the penalty; it is solved when the min-norm
subgradient has a norm of at most 0.001. Problems whose optimum is the zero model are left out, as
in the paper. Passes are counted as in the paper: one for each point that a line search tries, minus
two, and one an iteration for a fixed step.

- *R-FISTA, FISTA, PGD-LS, PGD* are run as printed, with plain backtracking: a failed step is
  multiplied by 0.8, a loose one by 1.25. PGD-LS starts with a step of 0.01, which is in the
  authors' configuration alone. PGD is the best of the steps 10, 1, 0.1 and 0.01, chosen for each
  problem.
- *Released:* the authors' code differs from the paper in two ways. It multiplies by 1.2, and it has
  another momentum, `1 + sqrt(1 + 4 t^2)/2` for FISTA's `(1 + sqrt(1 + 4 t^2))/2`. This t grows
  twice as fast, and the proof of FISTA's rate does not cover it. The paper does not mention it; the
  verdicts are about the printed methods and give the numbers of these lines beside.
- *cvxnn* is R-FISTA with the defaults of this library, whose failed steps are shortened to the
  curvature that was seen.
"""


def present(pieces: Sequence[Done]) -> str:
    rows = list(problems(pieces, traced=False).values())
    both = with_methods(rows, (*PRINTED, *FURTHER))
    parts = [ABOUT.strip(), "## Profiles"]
    if both:
        parts += [
            f"{len(both)} problems, and {degenerate(pieces)} more whose optimum is zero.",
            profile_table(both, (*PRINTED, *FURTHER)),
        ]
    more = with_methods(rows, ACCELERATED)
    if len(more) > len(both):
        parts += [
            f"The accelerated methods have done {len(more)} problems:",
            profile_table(more, ACCELERATED),
        ]
    parts.append(_optimum(more))
    for name, by_lam in by_set(problems(pieces, traced=True)).items():
        parts += [f"## {name}", _convergence(name, by_lam)]
    return "\n\n".join(filter(None, parts))


def _optimum(rows: Sequence[Row]) -> str:
    above = [
        row["methods"]["R-FISTA"]["objective"] / row["optimum"]["objective"] - 1
        for row in rows
        if row["methods"]["R-FISTA"]["solved"]
    ]
    if not above:
        return ""
    above.sort()
    return (
        "What the published rule leaves: where R-FISTA counts as solved, its objective is "
        f"{100 * above[len(above) // 2]:.1f} % above the certified optimum in the median, and "
        f"{100 * above[-1]:.0f} % at worst. The optimum is Newton's, to a certified gap of at most "
        f"{max(row['optimum']['gap'] for row in rows):.1e}. The subgradient does not fall "
        "steadily, so that a run may meet the rule early by chance, far from the optimum."
    )


def _convergence(name: str, by_lam: dict[float, Row]) -> str:
    lines = []
    for lam, row in sorted(by_lam.items()):
        low, high = LIMITS.get((name, lam), (math.nan, math.nan))
        steps = row.get("steps", {})
        runs = row["methods"] | {f"PGD ({step})": run for step, run in steps.items()}
        for method, run in runs.items():
            if method == "PGD" or run.get("status") == "diverged":
                continue
            inside = "" if math.isnan(low) else ("yes" if low <= run["objective"] <= high else "no")
            lines.append(
                (
                    f"{lam:.3g}",
                    method,
                    "yes" if run["solved"] else "no",
                    run["iterations"],
                    run["passes"],
                    f"{run['objective']:.5f}",
                    f"{run['gap']:.3f}",
                    inside,
                )
            )
        best = row["optimum"]["objective"]
        lines.append((f"{lam:.3g}", "optimum", "", "", "", f"{best:.5f}", "", ""))
    header = (
        "lambda",
        "method",
        "solved",
        "iterations",
        "passes",
        "objective",
        "certified gap",
        "within the paper's axis",
    )
    return markdown_table(header, lines)


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    import matplotlib.pyplot as plt

    figures = {}
    every = (*PRINTED, *FURTHER)
    rows = list(problems(pieces, traced=False).values())
    shown_methods = every if with_methods(rows, every) else ACCELERATED
    rows = with_methods(rows, shown_methods)
    if rows:
        figures["figure9-profile.png"], ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
        draw_profiles(ax, profiles_of(rows, shown_methods), END)
    for name, by_lam in by_set(problems(pieces, traced=True)).items():
        figures[f"figure9-{name}.png"] = _convergence_figure(name, by_lam)
    for name, figure in figures.items():
        save_figure(figure, folder / name)
        plt.close(figure)
    return list(figures)


def _convergence_figure(name: str, by_lam: dict[float, Row]) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(by_lam), 2, figsize=(9, 3.4 * len(by_lam)), layout="constrained", squeeze=False
    )
    for (lam, row), (left, right) in zip(sorted(by_lam.items()), axes, strict=True):
        methods = row["methods"]
        traces = {name: methods[name]["trace"] for name in PRINTED[:3] if name in methods}
        for step, run in row.get("steps", {}).items():
            if run["status"] != "diverged":
                traces[f"PGD ({step})"] = run["trace"]
        draw_traces(left, traces, "passes", "objective")
        draw_traces(right, traces, "passes", "squared subgradient", log=True)
        right.axhline(1e-6, color="#9a9a9a", linewidth=1)
        low, high = LIMITS.get((name, lam), (None, None))
        left.set(ylabel="best objective so far", ylim=(low, high), title=f"{name}, λ = {lam:.3g}")
        right.set(ylabel="squared norm of the subgradient")
        for ax in (left, right):
            ax.set(xlabel="passes over the data", xscale="log", xlim=(1, END))
    axes[0, 1].legend(fontsize=8, framealpha=0.9)
    return figure


def verdicts(pieces: Sequence[Done]) -> list[Verdict]:
    rows = list(problems(pieces, traced=False).values())
    figures = by_set(problems(pieces, traced=True))
    return [
        _of_profiles("F9a", _f9a, rows, ACCELERATED),
        _of_profiles("F9b", _f9b, rows, PRINTED),
        _of_profiles("F9c", _f9c, rows, PRINTED),
        _of_runs("F11", _f11, figures.get("heart-cleveland", {}), ACCELERATED),
        _of_runs("F10", _f10, figures.get("twonorm", {}), PRINTED),
    ]


def _of_profiles(
    claim: str,
    judge: Callable[[dict[str, Profile]], Verdict],
    rows: Sequence[Row],
    methods: Sequence[str],
) -> Verdict:
    """The verdict on the problems that all of these methods have done, if there are enough."""
    chosen = with_methods(rows, methods)
    if len(chosen) < ENOUGH:
        why = f"At least {ENOUGH} problems would be needed."
        return Verdict(claim, Judgement.OPEN, f"{len(chosen)} problems", why)
    return judge(profiles_of(chosen, methods))


def _of_runs(
    claim: str,
    judge: Callable[[dict[float, Row]], Verdict],
    by_lam: dict[float, Row],
    methods: Sequence[str],
) -> Verdict:
    """The verdict on the two runs of a convergence figure, if they are there."""
    if len(with_methods((by_lam.get(lam, {"methods": {}}) for lam in SHOWN), methods)) < len(SHOWN):
        return Verdict(claim, Judgement.OPEN, "", "Its runs are not done.")
    return judge(by_lam)


def _f9a(found: dict[str, Profile]) -> Verdict:
    ours, theirs = (found[name].reaches(SHARE) for name in ("R-FISTA", "FISTA"))
    released = ratio(
        found["R-FISTA, released"].reaches(SHARE), found["FISTA, released"].reaches(SHARE)
    )
    value = ratio(ours, theirs)
    if value is None:
        return Verdict("F9a", Judgement.OPEN, "", "A method does not solve 80 % of the problems.")
    holds = Judgement.HOLDS if 0.6 <= value <= 0.9 else Judgement.FAILS
    return Verdict(
        "F9a",
        holds,
        f"{value:.2f} (printed 0.75)",
        f"{SHARE:.0%} of {found['FISTA'].problems} problems take {ours} passes with restarts and "
        f"{theirs} without; with the momentum of the authors' code the ratio is "
        f"{shown(released, 2)}.",
    )


def _f9b(found: dict[str, Profile]) -> Verdict:
    slow, quick = found["PGD-LS"].reaches(0.5), found["FISTA"].reaches(0.5)
    value = ratio(slow, quick)
    if quick is None:
        return Verdict("F9b", Judgement.OPEN, "", "FISTA does not solve half of the problems.")
    holds = slow is None or (value is not None and value > 2)
    number = "never against " + str(quick) if slow is None else f"{shown(value, 1)} times"
    return Verdict(
        "F9b",
        Judgement.HOLDS if holds else Judgement.FAILS,
        number,
        f"Half of the problems take PGD-LS {shown(slow)} passes and FISTA {quick}; in "
        f"{END} passes PGD-LS solves {found['PGD-LS'].within(END):.0%}, FISTA "
        f"{found['FISTA'].within(END):.0%}.",
    )


def _f9c(found: dict[str, Profile]) -> Verdict:
    fixed, searched = found["PGD"].within(END), found["PGD-LS"].within(END)
    return Verdict(
        "F9c",
        Judgement.HOLDS if fixed < searched else Judgement.FAILS,
        f"{fixed:.0%} solved",
        f"Within {END} passes the best of four fixed steps solves {fixed:.0%} of the problems, "
        f"PGD-LS {searched:.0%}, R-FISTA {found['R-FISTA'].within(END):.0%}. The passes of the "
        "three other steps are not even counted.",
    )


def _f11(by_lam: dict[float, Row]) -> Verdict:
    values = {}
    for lam in (LAMS[3], LAMS[0]):
        methods = by_lam[lam]["methods"]
        values[lam] = methods["R-FISTA"]["iterations"] / methods["FISTA"]["iterations"]
        values[lam, "released"] = (
            methods["R-FISTA, released"]["iterations"] / methods["FISTA, released"]["iterations"]
        )
    equal, half = values[LAMS[3]], values[LAMS[0]]
    theirs = values[LAMS[0], "released"]
    nearer = "nearer to" if abs(theirs - 0.5) < abs(half - 0.5) else "further from"
    holds = 0.9 <= equal <= 1.1 and 0.35 <= half <= 0.65
    return Verdict(
        "F11",
        Judgement.HOLDS if holds else Judgement.FAILS,
        f"{equal:.2f} and {half:.2f} (printed 1 and 0.5)",
        "Iterations of R-FISTA over those of FISTA at 2.51e-3 and at 1e-5. With the momentum of "
        f"the authors' code, which is not FISTA's, {values[LAMS[3], 'released']:.2f} and "
        f"{theirs:.2f}: {nearer} what is printed.",
    )


def _f10(by_lam: dict[float, Row]) -> Verdict:
    fast = all(by_lam[lam]["methods"][m]["solved"] for lam in by_lam for m in PRINTED[:2])
    texts, stalled = [], True
    for lam, row in sorted(by_lam.items()):
        best = row["optimum"]["objective"]
        pgd = min((run["objective"] or math.inf) for run in row["steps"].values())
        ours = row["methods"]["R-FISTA"]["objective"]
        stalled &= not row["methods"]["PGD"]["solved"]
        texts.append(
            f"at {lam:.3g} the best fixed step ends {100 * (pgd / best - 1):.1f} % above the "
            f"optimum, R-FISTA {100 * (ours / best - 1):.1f} %"
        )
    return Verdict(
        "F10",
        Judgement.HOLDS if fast and stalled else Judgement.FAILS,
        "PGD unsolved at both" if stalled else "PGD solves one",
        f"After {END} passes: "
        + "; ".join(texts)
        + ". "
        + (
            "R-FISTA and FISTA meet the published rule."
            if fast
            else "Not every accelerated method meets the published rule."
        ),
    )
