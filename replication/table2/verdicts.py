"""Verdicts on the claims about Tables 2 and 6."""

from __future__ import annotations

from collections.abc import Sequence

from replication.experiment import Done, Judgement, Verdict
from replication.paper import printed
from replication.table2.collected import (
    Collected,
    cell,
    lines,
    printed_lines,
    tolerance,
    wins,
)

ENOUGH = 0.6  # share of the sets of a table that have to be done before its counts are judged
NEAR = 2  # sets by which a count may differ from the printed one


def verdicts(done: Sequence[Done]) -> list[Verdict]:
    found = Collected.of(done)
    return [_table_2(found), _rule(found), _table_6(found), _baselines(found)]


def _judged(claim: str, holds: bool, number: str, reason: str) -> Verdict:
    return Verdict(claim, Judgement.HOLDS if holds else Judgement.FAILS, number, reason)


def _open(claim: str, done: int, of: int) -> Verdict:
    return Verdict(claim, Judgement.OPEN, f"{done} of {of} sets", "Too few sets are done.")


def _table_2(found: Collected) -> Verdict:
    best, total = lines(found, 2, "best"), len(printed(2))
    if len(best) < ENOUGH * total:
        return _open("T2a", len(best), total)
    here, middle = wins(best), wins(lines(found, 2, "median"))
    there = wins(printed_lines(2, [line.name for line in best]))
    keys = ("c_grelu", "c_relu", "convex", "rbf_svm")
    return _judged(
        "T2a",
        all(abs(here[key] - there[key]) <= NEAR for key in keys),
        f"C-GReLU best on {here['c_grelu']}, C-ReLU on {here['c_relu']}, together on "
        f"{here['convex']}, RBF SVM on {here['rbf_svm']} of {len(best)} sets; printed for these "
        f"{', '.join(str(there[key]) for key in keys)}",
        "With the best of five samplings on the test set, as in the paper. With the median of five "
        f"a convex model is best on {middle['convex']}.",
    )


def _rule(found: Collected) -> Verdict:
    both = [line for table in (2, 6) for line in lines(found, table, "best")]
    total = len(printed(2)) + len(printed(6))
    if len(both) < ENOUGH * total:
        return _open("T2b", len(both), total)
    middle = [line for table in (2, 6) for line in lines(found, table, "median")]
    best_wins, median_wins = wins(both)["convex"], wins(middle)["convex"]
    return _judged(
        "T2b",
        best_wins > median_wins,
        f"a convex model is best on {best_wins} of {len(both)} sets with the best of five, on "
        f"{median_wins} with the median",
        "The baselines have one run each, so that only the convex models choose on the test set.",
    )


def _table_6(found: Collected) -> Verdict:
    best, total = lines(found, 6, "best"), len(printed(6))
    if len(best) < ENOUGH * total:
        return _open("T6", len(best), total)
    here = wins(best)
    there = wins(printed_lines(6, [line.name for line in best]))
    keys = ("convex", "rbf_svm")
    return _judged(
        "T6",
        all(abs(here[key] - there[key]) <= NEAR for key in keys),
        f"convex best on {here['convex']}, RBF SVM on {here['rbf_svm']} of {len(best)} sets; "
        f"printed cells of these: {there['convex']} and {there['rbf_svm']}",
        "The caption's 9 for the RBF SVM is 8 by its own bold cells. With the median of five a "
        f"convex model is best on {wins(lines(found, 6, 'median'))['convex']}.",
    )


def _baselines(found: Collected) -> Verdict:
    near, totals, equal = {}, {}, {}
    for kind, rows in found.baselines.items():
        apart = [
            (abs(row["accuracy"] - cell(name, kind)), tolerance(row["n_test"]))
            for name, row in rows.items()
        ]
        near[kind] = sum(distance <= within for distance, within in apart)
        equal[kind] = sum(distance <= 0.051 for distance, _ in apart)
        totals[kind] = len(apart)
    machines = ("linear_svm", "rbf_svm")
    done = sum(totals[kind] for kind in machines)
    if done < 30:
        return _open("T26base", done // 2, len(printed(2)) + len(printed(6)))
    right = sum(near[kind] for kind in machines)
    exact = sum(equal[kind] for kind in machines)
    forests = (
        f"; forests {near['random_forest']} of {totals['random_forest']} near"
        if totals["random_forest"]
        else ""
    )
    return _judged(
        "T26base",
        right >= 0.9 * done,
        f"SVM cells {exact} of {done} equal, {right} near{forests}",
        "Within one test row or 1.5 points, on the same rows and folds; sets of at most 1000 rows.",
    )
