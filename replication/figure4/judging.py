"""Verdicts on what the paper says about Figures 4, 7 and 8."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replication.data import catalogue, collection
from replication.experiment import Done, Judgement, Verdict
from replication.figure4.convex import THRESHOLDS
from replication.figure4.page import profile_of
from replication.figure4.profiles import GRADIENT, NAMES, Contest, Profile, contests
from replication.figure4.settings import KINDS, PATTERNS, PUBLISHED

LEAST = 12  # problems of a kind, below which nothing is judged
TWO_ORDERS = 30.0  # a ratio of times that counts as two orders of magnitude
MORE = 10.0  # points of difference that count as 25 % more
PAPER_GIGABYTES = 32.0
LOADED = 250  # megabytes of a process that has loaded CVXPY
SLOWER = 10.0  # times, from which on a method scales badly on problems of this size


def verdicts(done: Sequence[Done]) -> list[Verdict]:
    found = {kind: contests(done, kind)[0] for kind in KINDS}
    few = [kind for kind in KINDS if len(found[kind]) < LEAST]
    if few:
        counts = ", ".join(f"{len(found[kind])} {kind}" for kind in KINDS)
        why = f"Fewer than {LEAST} of the problems of a kind have been run by all methods so far."
        return [
            Verdict(claim, Judgement.OPEN, f"problems: {counts}", why)
            for claim in ("F4a", "F4b", "F4c", "F7F8", "ABS")
        ]
    return [
        _faster(found["gated"], contests(done, "gated", "full")[0]),
        _more(found["relu"]),
        _interior(found),
        _order(found),
        _abstract(found),
    ]


def _ratios(problems: list[Contest], r: float) -> dict[str, float]:
    """How much later than the published convex method half of the problems are solved."""
    base = profile_of(problems, problems[0].published, r).half.seconds
    return {
        method: profile_of(problems, method, r).half.seconds / base
        for method in (*GRADIENT, "conic")
        if method in GRADIENT or all(method in problem.row for problem in problems)
    }


def _faster(problems: list[Contest], full: list[Contest]) -> Verdict:
    ratios = _ratios(problems, 1.0)
    least = min(ratios[method] for method in GRADIENT)
    half = {m: profile_of(problems, m, 1.0).half for m in ("rfista", *GRADIENT)}
    told = " and ".join(
        f"{NAMES[method]} by a factor of {_times(ratios[method])}" for method in GRADIENT
    )
    counts = ", ".join(f"{NAMES[m]} {_shown(half[m].iterations)}" for m in half)
    return Verdict(
        "F4a",
        Judgement.HOLDS if least >= TWO_ORDERS else Judgement.FAILS,
        f"half of the problems solved sooner than by {told}",
        f"On {len(problems)} smaller problems, r = 1, fastest step size of each problem. Half are "
        f"solved after iterations or epochs: {counts}. {_at_full_size(full)}All run on one core "
        "here; on the paper's card the small products of mini-batches cost relatively more.",
    )


def _at_full_size(problems: list[Contest]) -> str:
    """The same factors, problem by problem, with the paper's number of patterns."""
    factors = []
    for problem in problems:
        base = problem.passing("rfista", 1.0).seconds
        rival = min(problem.passing(method, 1.0).seconds for method in GRADIENT)
        factors.append(f"{_times(rival / base)} on {problem.settings['set']}")
    if not factors:
        return ""
    return f"With 5000 patterns the better of the two is later by {', '.join(factors)}. "


def _more(problems: list[Contest]) -> Verdict:
    shares = {m: profile_of(problems, m, 1.0).share for m in ("al", *GRADIENT)}
    best = max(GRADIENT, key=lambda method: shares[method])
    points = 100 * (shares["al"] - shares[best])
    relative = 100 * (shares["al"] / shares[best] - 1) if shares[best] else math.inf
    half = {m: profile_of(problems, m, 1.0).half.seconds for m in ("al", best)}
    return Verdict(
        "F4b",
        Judgement.HOLDS if points > MORE and half["al"] < half[best] else Judgement.FAILS,
        f"AL solves {points:+.1f} points ({relative:+.0f} %) against {NAMES[best]}",
        f"On {len(problems)} smaller problems, r = 1: AL {_percent(shares['al'])}, "
        f"{NAMES[best]} {_percent(shares[best])}; half of them by {_shown(half['al'])} s and "
        f"{_shown(half[best])} s. The AL stops by its published rule, which leaves large gaps at "
        "small strengths, and NC-ReLU is not bound to the sampled patterns.",
    )


def _interior(found: dict[str, list[Contest]]) -> Verdict:
    tried = [p for kind in KINDS for p in found[kind] if "conic" in p.row]
    if not tried:
        return Verdict("F4c", Judgement.OPEN, "not run", "The interior-point solver was not run.")
    ended = [p for p in tried if "objective" in p.row["conic"]]
    late = {kind: _ratios(found[kind], 1.0)["conic"] for kind in KINDS}
    outgrown = {kind: _out_of_memory(found[kind]) for kind in KINDS}
    bad = min(late.values()) >= SLOWER
    return Verdict(
        "F4c",
        Judgement.HOLDS if bad and min(outgrown.values()) > 0 else Judgement.FAILS,
        f"half of the problems solved later than by {_late(late)}",
        f"Clarabel ends on {len(ended)} of {len(tried)} smaller problems within its limits. Memory "
        "is extrapolated: if it grows with the entries of the expanded matrix as measured there, "
        f"{outgrown['gated']} of 73 sets need more than {PAPER_GIGABYTES:g} GB with the paper's "
        f"gated patterns and {outgrown['relu']} with its ReLU ones.",
    )


def _late(late: dict[str, float]) -> str:
    return " and ".join(
        f"{NAMES[PUBLISHED[kind][0]]} by a factor of {_times(late[kind])}" for kind in KINDS
    )


def _out_of_memory(problems: list[Contest]) -> int:
    """How many sets would need more memory than the paper had, by the least memory for an entry (of
    a row, column, output and pattern) that the larger half of the runs shows."""
    used = sorted(
        (entries(p.settings["set"], p.row["patterns"]), p.row["conic"]["megabytes"])
        for p in problems
        if "megabytes" in p.row.get("conic", {})
    )
    if not used:
        return 0
    rate = min((megabytes - LOADED) / size for size, megabytes in used[len(used) // 2 :])
    kind = problems[0].kind
    needs = [rate * entries(name, PATTERNS[kind]) / 1024 for name in collection()]
    return sum(need > PAPER_GIGABYTES for need in needs)


def entries(name: str, patterns: int) -> float:
    """Of the expanded matrix, once for each output."""
    if name not in catalogue():
        return 250.0 * 50 * patterns
    known = catalogue()[name]
    outputs = 1 if known.classes == 2 else known.classes
    return 0.8 * known.n * known.d * outputs * patterns


def _order(found: dict[str, list[Contest]]) -> Verdict:
    """Ranks by the share solved in the end, then by the time for half."""
    orders = {r: [_ranked(found[kind], r) for kind in KINDS] for r in THRESHOLDS}
    same = all(order == orders[1.0] for order in orders.values())
    told = "; ".join(
        f"r = {r:g}: " + ", ".join(" > ".join(NAMES[m] for m in rank) for rank in ranks)
        for r, ranks in orders.items()
    )
    return Verdict(
        "F7F8",
        Judgement.HOLDS if same else Judgement.FAILS,
        told,
        "Order by the share of the problems solved in the end, and where that is equal by the time "
        "for half of them; gated first, then ReLU.",
    )


def _ranked(problems: list[Contest], r: float) -> list[str]:
    def rank(method: str) -> tuple[float, float]:
        profile: Profile = profile_of(problems, method, r)
        return -profile.share, profile.half.seconds

    return sorted((problems[0].published, *GRADIENT), key=rank)


def _abstract(found: dict[str, list[Contest]]) -> Verdict:
    ratios = {kind: _ratios(found[kind], 1.0) for kind in KINDS}
    sgd, conic = ([ratios[kind].get(m, math.nan) for kind in KINDS] for m in ("sgd", "conic"))
    holds = all(ratio > 1 for ratio in (*sgd, *conic))
    return Verdict(
        "ABS",
        Judgement.HOLDS if holds else Judgement.FAILS,
        f"SGD later by {_times(sgd[0])} (gated) and {_times(sgd[1])} (ReLU), interior points by "
        f"{_times(conic[0])} and {_times(conic[1])}",
        "Ratios of the times by which half of the smaller problems are solved at r = 1, against "
        "R-FISTA and the AL; below 1 the other one is sooner.",
    )


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "(cannot be told)"
    return "infinity (never there)" if math.isinf(ratio) else f"{ratio:.2g}"


def _shown(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
