"""The page: what the curves say in tables, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from benchmarks.record import markdown_table

from replication.experiment import Done, Judgement, Verdict
from replication.figure5.curves import (
    ENOUGH,
    GATED,
    LAGRANGIAN,
    POINTS,
    PUBLISHED,
    RELU,
    ROWS,
    Curve,
    Curves,
    Method,
    collect,
    judged,
)
from replication.figure5.settings import LAMS, PATTERNS, SETS

MOST = 2 / 3  # of the curves, for a claim about all of them to hold
CLEAREST, VARIABLE = {"monks-3", "statlog-heart"}, "heart-va"  # the paper's own examples


def present(pieces: Sequence[Done]) -> str:
    curves = collect(pieces)
    return "\n\n".join(
        [
            _introduction(),
            "## Where accuracy is best",
            "The median test accuracy at the smallest strength that is run, the best median, the "
            "strength where it is, and the median number of neurons there.",
            *(_best(curves, method) for method in (PUBLISHED, GATED, RELU)),
            "## How much samplings differ",
            "The range between the quartiles over samplings of the patterns, in percentage points: "
            "its mean over all strengths at which there are neurons. In brackets what one test row "
            "is worth, and the number of samplings.",
            *(_spreads(curves, method) for method in (PUBLISHED, RELU)),
            "## What the published stop leaves",
            _gaps(curves),
        ]
    )


def _introduction() -> str:
    return (
        "Test accuracy against the strength of the penalty, for networks over 10, 100 and 1000 "
        "sampled patterns (duplicates removed): medians and quartiles over samplings. The paper "
        "shows curves and prints no number of them, so there are no cells to compare; its three "
        "statements about them are judged below. The grid is the released one with "
        f"{len(LAMS)} strengths (the text says thirty). The text speaks of an inverted U and the "
        "appendix of a U: the first is meant. A network without neurons puts out zero, which is "
        "wrong for two classes and the first class for more; the released limits of the axes leave "
        "such strengths out, and so do the numbers here. Active neurons are blocks (pattern, "
        "class) that are not zero. *Published stop* is R-FISTA from zero at each strength until "
        "the norm of the min-norm subgradient is 1e-3, 1000 iterations at most; *optimum* is "
        "Newton's method along the path to a certified relative gap of 1e-3."
    )


def _best(curves: Curves, method: Method) -> str:
    def cell(curve: Curve | None) -> str:
        if curve is None:
            return "–"
        neurons = float(np.median(curve.neurons[:, curve.best]))
        start, best = curve.median[0], curve.median[curve.best]
        return f"{start:.1f} → {best:.1f} at {curve.lams[curve.best]:.1e}, {neurons:.0f}"

    return _by_set(curves, method, cell)


def _spreads(curves: Curves, method: Method) -> str:
    def cell(curve: Curve | None) -> str:
        if curve is None:
            return "–"
        return f"{curve.spread[curve.alive].mean():.1f} ({curve.row:.2g}, {curve.samplings})"

    return _by_set(curves, method, cell)


def _by_set(curves: Curves, method: Method, cell: Callable[[Curve | None], str]) -> str:
    lines = [
        (data, *(cell(curves.get((method, data, p))) for p in PATTERNS))
        for data in SETS
        if any((method, data, p) in curves for p in PATTERNS)
    ]
    return markdown_table((method.title, *(f"{p} patterns" for p in PATTERNS)), lines)


def _gaps(curves: Curves) -> str:
    lines = []
    for exponent in (-6, -5, -4, -3):
        line = [f"1e{exponent}"]
        for method, p in [*((PUBLISHED, p) for p in PATTERNS), (LAGRANGIAN, 100)]:
            found = _gaps_near(curves, method, p, 10.0**exponent)
            line.append(
                f"{np.median(found):.2g} ({min(found):.1g}–{max(found):.1g})" if found else "–"
            )
        lines.append(line)
    header = ["strength", *(f"{p} patterns" for p in PATTERNS), "augmented Lagrangian, 100"]
    return (
        "Certified relative gaps at the published stop near four strengths: the median over sets "
        "(of medians over samplings), and the range.\n\n"
        + markdown_table(header, lines)
        + "\n\n"
        + _left_end(curves)
    )


def _gaps_near(curves: Curves, method: Method, p: int, lam: float) -> list[float]:
    found = []
    for (of, _, number), curve in curves.items():
        k = int(np.argmin(np.abs(np.log(curve.lams / lam))))
        if of == method and number == p and curve.alive[k]:
            found.append(float(np.median(curve.gap[:, k])))
    return found


def _left_end(curves: Curves) -> str:
    """What the gaps mean for accuracy."""
    both = [
        (curves[PUBLISHED, data, p], curves[GATED, data, p])
        for data in SETS
        for p in PATTERNS
        if (PUBLISHED, data, p) in curves and (GATED, data, p) in curves
    ]
    if not both:
        return ""
    left = [published.median[0] - exact.median[0] for published, exact in both]
    best = [
        published.median[published.best] - exact.median[exact.best] for published, exact in both
    ]
    return (
        f"So the left ends of the curves show the stopping rule. At {LAMS[0]:g} the median "
        f"accuracy at the published stop differs from the optimum's by {min(left):+.1f} to "
        f"{max(left):+.1f} points over {len(both)} curves ({np.mean(left):+.1f} on average, higher "
        f"on {sum(x > 0 for x in left)} and lower on {sum(x < 0 for x in left)}); at the best "
        f"strength of each by {min(best):+.1f} to {max(best):+.1f} ({np.mean(best):+.1f} on "
        "average)."
    )


def verdicts(pieces: Sequence[Done]) -> list[Verdict]:
    curves = collect(pieces)
    return [_stable(curves), _inverted(curves), _examples(curves)]


def _open(claim: str, found: Curves, wanted: int) -> Verdict | None:
    """The verdict while too few curves have enough samplings."""
    if len(found) >= MOST * wanted:
        return None
    number = f"{len(found)} of {wanted} curves"
    reason = f"Too few curves have {ENOUGH} samplings so far."
    return Verdict(claim, Judgement.OPEN, number, reason)


def _stable(curves: Curves) -> Verdict:
    methods = (PUBLISHED, RELU)
    found = judged(curves, *methods)
    early = _open("F5a", found, len(methods) * len(SETS) * len(PATTERNS))
    if early:
        return early
    own = {p: [c for (_, _, number), c in found.items() if number == p] for p in PATTERNS}
    own = {p: curves_of for p, curves_of in own.items() if curves_of}
    shares = {p: np.concatenate([c.steady for c in own[p]]).mean() for p in own}
    spread = {p: np.mean([c.spread[c.alive].mean() for c in own[p]]) for p in own}
    holds = all(share > 0.5 for share in shares.values())
    return Verdict(
        "F5a",
        Judgement.HOLDS if holds else Judgement.FAILS,
        ", ".join(f"{share:.0%} ({p})" for p, share in shares.items()),
        f"Shares of strengths at which quartiles are at most {ROWS} test rows or {POINTS} points "
        f"apart, by the number of patterns, over {len(found)} curves of gated (published stop) and "
        "ReLU networks (optimum). The mean distance is "
        + ", ".join(f"{points:.1f} ({p})" for p, points in spread.items())
        + " points.",
    )


def _inverted(curves: Curves) -> Verdict:
    methods = (PUBLISHED, GATED, RELU)
    found = judged(curves, *methods)
    early = _open("F5b", found, len(methods) * len(SETS) * len(PATTERNS))
    if early:
        return early
    counts, fewer, shares = [], [], []
    for method in methods:
        own = [curve for (of, _, _), curve in found.items() if of == method]
        shares.append(sum(curve.inverted for curve in own) / max(1, len(own)))
        counts.append(f"{sum(curve.inverted for curve in own)} of {len(own)} ({method.title})")
        fewer += [_share_of_neurons(curve) for curve in own]
    holds = all(share >= MOST for share in shares)
    gains = [curve.gain for curve in found.values()]
    return Verdict(
        "F5b",
        Judgement.HOLDS if holds else Judgement.FAILS,
        ", ".join(counts),
        "Curves whose best median lies inside the range and beats both of its ends. The best is "
        f"{np.median(gains):.1f} points above the left end in the median, with "
        f"{np.median(fewer):.0%} of its neurons.",
    )


def _share_of_neurons(curve: Curve) -> float:
    neurons = np.median(curve.neurons, axis=0)
    return float(neurons[curve.best] / max(1.0, neurons[0]))


def _examples(curves: Curves) -> Verdict:
    methods = (PUBLISHED, RELU)
    found = judged(curves, *methods)
    early = _open("F18F19", found, len(methods) * len(SETS) * len(PATTERNS))
    if early:
        return early
    gains, spreads = {}, {}
    for data in SETS:
        own = [curve for (_, of, _), curve in found.items() if of == data]
        if own:
            gains[data] = float(np.mean([curve.gain for curve in own]))
            spreads[data] = float(np.mean([curve.spread[curve.alive].mean() for curve in own]))
    clearest = sorted(gains, key=lambda data: -gains[data])[:3]
    widest = sorted(spreads, key=lambda data: -spreads[data])[:3]
    holds = set(clearest[:2]) == CLEAREST and widest[0] == VARIABLE
    return Verdict(
        "F18F19",
        Judgement.HOLDS if holds else Judgement.FAILS,
        "largest gains "
        + ", ".join(f"{data} {gains[data]:.1f}" for data in clearest)
        + "; widest quartiles "
        + ", ".join(f"{data} {spreads[data]:.1f}" for data in widest),
        "Points by which the best median beats the left end, and mean distances of the quartiles, "
        "both over gated (published stop) and ReLU networks (optimum). "
        + _examples_in_words(clearest, widest, gains, spreads),
    )


def _examples_in_words(
    clearest: list[str], widest: list[str], gains: dict[str, float], spreads: dict[str, float]
) -> str:
    among = " and ".join(
        f"{data} ({sorted(gains, key=lambda d: -gains[d]).index(data) + 1}.)"
        for data in sorted(CLEAREST & set(gains))
    )
    place = (
        sorted(spreads, key=lambda d: -spreads[d]).index(VARIABLE) + 1 if VARIABLE in spreads else 0
    )
    return f"Places of the paper's examples: {among} by gain, {VARIABLE} ({place}.) by spread."
