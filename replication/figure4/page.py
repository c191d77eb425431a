"""The page of Figures 4, 7 and 8."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.record import markdown_table

from replication.experiment import Done
from replication.figure4.convex import THRESHOLDS
from replication.figure4.profiles import (
    FASTEST,
    FINAL,
    GRADIENT,
    NAMES,
    Contest,
    Profile,
    Program,
    compared,
    contests,
    programs,
)
from replication.figure4.settings import KINDS, LAMBDAS, LIMIT, PUBLISHED, TOL

KIND_NAMES = {"gated": "C-GReLU", "relu": "C-ReLU"}
FIGURES = dict(zip(THRESHOLDS, (4, 7, 8), strict=True))
ALL = 438  # problems of each kind
LISTED = 40  # programs without a certificate, at most


def present(done: Sequence[Done]) -> str:
    tried = {kind: programs(done, kind) for kind in KINDS}
    parts = [
        "A problem counts as solved when a method's objective is at most 1 + r times the smallest "
        "that any method found, with r = 1 in Figure 4, 0.5 in Figure 7 and 0.1 in Figure 8; a "
        "curve shows the share of the problems solved by a time. The paper's curves cannot be read "
        "off its source, so what is compared is what it says about them. Times are processor "
        "seconds of one thread, from the call of a method to its iterate; the paper's are of a "
        "graphics card.",
        *_certified(tried),
        *_by_strength(tried),
        *_published(tried),
        *_rivals(done),
        _readings(),
    ]
    return "\n\n".join(parts)


# --- All programs ---------------------------------------------------------------------------------


def _certified(tried: dict[str, list[Program]]) -> Iterable[str]:
    """The answer to: how many of the 876 programs can be solved to a certificate?"""
    if not any(tried.values()):
        return
    yield "## All programs, solved to a certificate"
    count = sum(map(len, tried.values()))
    proven = sum(program.certified for kind in KINDS for program in tried[kind])
    yield (
        f"The 73 sets at six strengths, with 5000 gated (seed 650) and 2500 ReLU patterns (seed "
        f"123): Newton's method, started from zero each time, with a limit of {LIMIT:g} processor "
        f"seconds for each program. {count} of {2 * ALL} programs have been tried, and {proven} of "
        f"these, {_percent(proven / count)}, are certified to a relative gap of {TOL:g}."
        + ("" if count == 2 * ALL else " Those that are missing are of larger sets: harder ones.")
    )
    yield markdown_table(
        (
            "problem",
            "tried",
            "solved by zero",
            "certified",
            "share",
            "median s",
            "90 % within s",
            "longest s",
            "all together, h",
        ),
        [_certified_line(kind, tried[kind]) for kind in KINDS if tried[kind]],
    )
    yield from _uncertified([program for kind in KINDS for program in tried[kind]])


def _certified_line(kind: str, tried: list[Program]) -> list[object]:
    seconds = sorted(program.rows["newton"]["seconds"] for program in tried)
    proven = sum(program.certified for program in tried)
    return [
        KIND_NAMES[kind],
        f"{len(tried)} of {ALL}",
        sum(program.zero for program in tried),
        proven,
        _percent(proven / len(tried)),
        _seconds(median(seconds)),
        _seconds(seconds[math.ceil(0.9 * len(seconds)) - 1]),
        _seconds(seconds[-1]),
        f"{sum(seconds) / 3600:.2f}",
    ]


def _uncertified(tried: list[Program]) -> Iterable[str]:
    failed = [program for program in tried if not program.certified]
    if not failed:
        yield "There is none among them without a certificate."
        return
    reasons = Counter(program.rows["newton"]["status"] for program in failed)
    told = ", ".join(f"{count} with status {status}" for status, count in reasons.items())
    smallest = Counter(f"{program.lam:.3g}" for program in failed)
    strengths = ", ".join(f"{count} at lam = {lam}" for lam, count in smallest.items())
    yield (
        f"Without a certificate of {TOL:g} ended {len(failed)} programs: {told}; {strengths}. "
        "They are large ones at small strengths, whose solutions have the most active neurons; "
        "the gap that is proven for each of them:"
    )
    yield markdown_table(
        ("set", "problem", "rows, columns, outputs", "lam", "gap", "active neurons", "seconds"),
        [_uncertified_line(program) for program in failed[:LISTED]],
    )
    if len(failed) > LISTED:
        yield f"The table shows the first {LISTED}; the others are of larger sets."


def _uncertified_line(program: Program) -> list[object]:
    row, size = program.rows["newton"], program.size
    return [
        program.name,
        KIND_NAMES[program.kind],
        f"{size['n']}, {size['d']}, {size['outputs']}",
        f"{program.lam:.3g}",
        f"{row['gap']:.1e}",
        row["active"],
        _seconds(row["seconds"]),
    ]


def _by_strength(tried: dict[str, list[Program]]) -> Iterable[str]:
    """What the published stop leaves, beside the optimum."""
    if not any(compared(tried[kind]) for kind in KINDS):
        return
    yield "## The published stop beside the optimum"
    yield (
        "R-FISTA stops at a subgradient of norm 1e-3 or at 2000 iterations, the augmented "
        "Lagrangian at the rule published for it, and both at a limit of time if they get there. "
        "The gap is certified: that share of the objective, at most, is more than the optimum. "
        "Medians over the programs that zero does not solve and that both methods were run on. "
        "Accuracies are of the test rows, in percent; the last column counts the programs in which "
        "the optimum gets more of them right than the published stop, and fewer."
    )
    for kind in KINDS:
        pairs = compared(tried[kind])
        if pairs:
            yield markdown_table(
                (
                    f"{KIND_NAMES[kind]}, lam",
                    "programs",
                    "Newton s",
                    f"{NAMES[PUBLISHED[kind][0]]} s",
                    "its stop met",
                    "gap there",
                    "active neurons at the optimum",
                    "at its stop",
                    "accuracy at the optimum",
                    "at its stop",
                    "more, fewer",
                ),
                [
                    _strength_line(f"{lam:.3g}", [p for p in pairs if p.lam == lam])
                    for lam in LAMBDAS
                    if any(p.lam == lam for p in pairs)
                ]
                + [_strength_line("all", pairs)],
            )


def _strength_line(shown: str, pairs: list[Program]) -> list[object]:
    other = PUBLISHED[pairs[0].kind][0]

    def middle(method: str, key: str) -> float:
        return median(program.rows[method][key] for program in pairs)

    differences = [p.rows["newton"]["accuracy"] - p.rows[other]["accuracy"] for p in pairs]
    stopped = sum(program.rows[other]["status"] == "converged" for program in pairs)
    return [
        shown,
        len(pairs),
        _seconds(middle("newton", "seconds")),
        _seconds(middle(other, "seconds")),
        stopped,
        f"{middle(other, 'gap'):.2g}",
        f"{middle('newton', 'active'):.0f}",
        f"{middle(other, 'active'):.0f}",
        f"{middle('newton', 'accuracy'):.1f}",
        f"{middle(other, 'accuracy'):.1f}",
        f"{sum(d > 0 for d in differences)}, {sum(d < 0 for d in differences)}",
    ]


def _published(tried: dict[str, list[Program]]) -> Iterable[str]:
    lines = []
    for kind in KINDS:
        pairs = compared(tried[kind])
        for method in (PUBLISHED[kind][0], "newton") if pairs else ():
            line: list[object] = [f"{NAMES[method]}, {KIND_NAMES[kind]}", len(pairs)]
            for r in THRESHOLDS:
                profile = Profile(program.passing(method, r) for program in pairs)
                line += [_percent(profile.share), _seconds(profile.half.seconds)]
            lines.append(line)
    if lines:
        yield "The profiles of the convex methods on the same programs:"
        header = ["method", "problems"]
        for r in THRESHOLDS:
            header += [f"solved, r = {r:g}", "half of all by, s"]
        yield markdown_table(header, lines)


# --- Smaller problems, all methods ----------------------------------------------------------------


def _rivals(done: Sequence[Done]) -> Iterable[str]:
    found = {kind: contests(done, kind) for kind in KINDS}
    if not any(problems for problems, _ in found.values()):
        return
    yield "## All methods on smaller problems"
    yield _rivals_text(found)
    for kind in KINDS:
        problems, _ = found[kind]
        if problems:
            yield _rivals_table(problems)
    yield from _full_size(done)
    yield from _released(found)
    yield from _conic_text([problem for problems, _ in found.values() for problem in problems])
    yield from _premises(found)


def _rivals_text(found: dict[str, tuple[list[Contest], int]]) -> str:
    counts = " and ".join(
        f"{len(found[kind][0])} of {KIND_NAMES[kind]} ({found[kind][1]} more are dropped, since "
        "zero solves them)"
        for kind in KINDS
    )
    return (
        f"On the same problems, {counts}: the convex methods, Clarabel through CVXPY in place of "
        "MOSEK, and Adam and SGD on the network, NC-GReLU with the gates of C-GReLU, NC-ReLU with "
        "as many neurons as the AL leaves active, at least 50. Of gradient descent counts the "
        "fastest success among all step sizes, as in the released code, or, under `smallest "
        "final`, the step size whose run ends with the smallest objective, as in the text. Runs of "
        "all step sizes are computed together, and a run is charged its share, one full gradient "
        "an epoch included. Iterations are those of a convex method, epochs of the others."
    )


def _rivals_table(problems: list[Contest]) -> str:
    kind, published = problems[0].kind, problems[0].published
    methods: list[tuple[str, str, str]] = [(published, FASTEST, "")]
    methods += [(method, FASTEST, "") for method in GRADIENT]
    methods += [(method, FINAL, ", smallest final") for method in GRADIENT]
    methods += [(method, FASTEST, "") for method in ("conic", "newton", "generated")]
    header = [KIND_NAMES[kind]]
    for figure in FIGURES.values():
        header += [f"Figure {figure}: solved", "half by, s", "after iterations"]
    lines = []
    for method, choice, note in methods:
        if method in GRADIENT or all(method in problem.row for problem in problems):
            line: list[object] = [NAMES[method] + note]
            for r in THRESHOLDS:
                profile = profile_of(problems, method, r, choice)
                half = profile.half
                line += [_percent(profile.share), _seconds(half.seconds), _count(half.iterations)]
            lines.append(line)
    return markdown_table(header, lines)


def _full_size(done: Sequence[Done]) -> Iterable[str]:
    problems = [p for kind in KINDS for p in contests(done, kind, "full")[0]]
    if not problems:
        return
    yield (
        "With the paper's number of patterns, on a few of these sets: seconds to pass 1 + r times "
        "the best objective, for r = 1 and 0.1, and in brackets iterations or epochs."
    )
    methods = ("published", *GRADIENT, "conic", "newton", "generated")
    lines = []
    for problem in problems:
        line: list[object] = [f"{problem.settings['set']}, {KIND_NAMES[problem.kind]}"]
        for method in methods:
            name = problem.published if method == "published" else method
            line.append(_both(problem, name))
        lines.append(line)
    header = ["problem", "R-FISTA or AL", *(NAMES[method] for method in methods[1:])]
    yield markdown_table(header, lines)


def _both(problem: Contest, method: str) -> str:
    """When a method passed the first and the last threshold."""
    if method not in GRADIENT and method not in problem.row:
        return ""
    cells = []
    for r in (THRESHOLDS[0], THRESHOLDS[-1]):
        seconds, iterations = problem.passing(method, r)
        count = _count(iterations)
        cells.append(_seconds(seconds) + (f" ({count})" if count else ""))
    return ", ".join(cells)


def profile_of(
    problems: Iterable[Contest],
    method: str,
    r: float,
    choice: str = FASTEST,
    scale: str = "convex",
) -> Profile:
    return Profile(problem.passing(method, r, choice, scale) for problem in problems)


def _released(found: dict[str, tuple[list[Contest], int]]) -> Iterable[str]:
    """The scale of the released objective, on the problems where it was run."""
    lines = []
    for kind in KINDS:
        problems = [p for p in found[kind][0] if "released" in p.row["descent"]]
        groups = {"two classes": 1, "more classes": 2}
        for name, outputs in groups.items():
            part = [p for p in problems if min(p.row["outputs"], 2) == outputs]
            for method in GRADIENT if part else ():
                line: list[object] = [f"{NAMES[method]}, {KIND_NAMES[kind]}, {name}", len(part)]
                for r in THRESHOLDS:
                    line += [
                        _percent(profile_of(part, method, r, FASTEST, scale).share)
                        for scale in ("convex", "released")
                    ]
                lines.append(line)
    if not lines:
        return
    yield (
        "The released code divides the loss of Adam and SGD by n alone, which is 2C times the loss "
        "of the convex problem at the same lam. Shares solved with the convex scale and with that "
        "one, whose objective is then compared with the convex optimum as it is:"
    )
    header = ["method", "problems"]
    for r in THRESHOLDS:
        header += [f"r = {r:g}: convex scale", "released scale"]
    yield markdown_table(header, lines)


def _conic_text(problems: list[Contest]) -> Iterable[str]:
    tried = [problem for problem in problems if "conic" in problem.row]
    if not tried:
        return
    ended = [problem for problem in tried if "objective" in problem.row["conic"]]
    statuses = Counter(p.row["conic"]["status"] for p in tried if p not in ended)
    failures = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "none fails"
    limits = tried[0].settings["conic"]
    text = (
        f"*Interior points.* With {limits['max_seconds']:g} processor seconds and "
        f"{limits['gigabytes']:g} GB, Clarabel solves {len(ended)} of {len(tried)} of these small "
        f"problems ({failures})."
    )
    if ended:
        ratios = [p.row["conic"]["seconds"] / p.row["newton"]["seconds"] for p in ended]
        memory = [p.row["conic"]["megabytes"] for p in ended]
        text += (
            f" Where it ends, it takes {median(ratios):.0f} times as long as Newton's method in "
            f"the median ({min(ratios):.0f} to {max(ratios):.0f}) and up to "
            f"{max(memory) / 1024:.1f} GB, CVXPY's preparation of the program included."
        )
    yield text


def below_optimum(problems: Iterable[Contest], method: str) -> list[float]:
    """How far networks of gradient descent (or of generated patterns) end below the proven optimum
    of the convex program over the sampled patterns, relative to that bound."""
    found = []
    for problem in problems:
        newton = problem.row["newton"]
        bound = newton["objective"] * (1 - newton["gap"])
        if method in GRADIENT:
            rescaled = [run["rescaled"] for run in problem.runs(method)]
            value = min((v for v in rescaled if v is not None), default=math.inf)
        else:
            value = problem.row[method]["objective"]
        found.append(1 - value / bound)
    return [share for share in found if share > 1e-5]  # beyond the digits that are kept


def _premises(found: dict[str, tuple[list[Contest], int]]) -> Iterable[str]:
    gated, relu = found["gated"][0], found["relu"][0]
    lines = []
    if gated:
        count = len({m for m in GRADIENT if below_optimum(gated, m)})
        told = (
            "no run of Adam or SGD ends below the bound that is proven for C-GReLU"
            if count == 0
            else "some runs end below the bound, which must not be"
        )
        lines.append(f"With gates, where both problems have the same optimal value, {told}.")
    for method in (*GRADIENT, "generated") if relu else ():
        below = below_optimum(relu, method)
        how_far = f", by {_percent(median(below))} in the median" if below else ""
        lines.append(
            f"{NAMES[method].capitalize() if method == 'generated' else NAMES[method]} on NC-ReLU: "
            f"below the proven optimum over the sampled patterns in {len(below)} of {len(relu)} "
            f"problems{how_far}."
        )
    if lines:
        yield (
            "*The premise of equal optimal values.* The paper compares both sides by one F\\*, "
            "because the convex and the non-convex problem have the same optimal value. For ReLU "
            "that needs all patterns; with a sample of them the network can do better. "
            + " ".join(lines)
        )


def _readings() -> str:
    return (
        "## Readings\n\n"
        "- Patterns: 5000 gated and 2500 ReLU, as in the released configuration; the text has them "
        "the other way round.\n"
        "- The objective of the AL is that of the network it is mapped to, feasible by "
        "construction; its sub-problems may take 2000 iterations, as in the released "
        "configuration. A point is mapped every 25 iterations, in the time that counts.\n"
        "- R-FISTA's line search is the library's, which needs fewer trials than the published one "
        "(Figures 9 and 12 compare both).\n"
        "- NC-GReLU has the gates of C-GReLU, as the text says. The released code gives it 100 "
        "others, a smaller problem whose objective cannot be compared.\n"
        "- The loss of Adam and SGD has the scale of the convex problem, 1/(2nC); the released "
        "scale is a table of its own.\n"
        "- `25 % more` in the claim about the AL may mean points or a ratio; both are given."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"


def _count(value: float) -> str:
    """Iterations, of methods that tell theirs."""
    return "" if math.isinf(value) or value == 0 else f"{value:.0f}"
