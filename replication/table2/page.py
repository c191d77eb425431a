"""The page of Tables 2 and 6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean

from benchmarks.record import markdown_table

from replication.experiment import Done
from replication.pages import agreement, beside
from replication.paper import printed, selected
from replication.table2.collected import (
    COLUMNS,
    CONVEX,
    NAMES,
    Collected,
    cell,
    lines,
    printed_lines,
    tolerance,
    wins,
)
from replication.table2.figures import draw
from replication.table2.settings import SEEDS
from replication.table2.verdicts import verdicts

__all__ = ["draw", "present", "verdicts"]

TABLES = (2, 6)
_INTRODUCTION = """\
Rows, split, columns (with one of ones), gates (seeds 650 to 654) and the values of lam and of the \
active share are the authors' own. The appendix says that the convex cells are the best of five \
samplings *on the test set*; the baselines have one run. So both the best and the median are here.

- *C-GReLU:* R-FISTA with 5000 patterns stops at a subgradient of norm 3.2e-4 (1e-7, squared) or \
after 2000 iterations, as released.
- *Gates on new rows:* where half of the training rows are to be active, gates have a bias. The \
released code keeps it in the units of a column of ones, while that column has unit norm: on test \
rows the biases are too small by the square root of the number of training rows, and the gated \
network is not the one that was trained. Cells beside printed ones are made in that way; "right \
gates" are those of the trained network.
- *C-ReLU:* Newton with 2500 patterns, to a certified relative gap of 1e-3, in place of the \
augmented Lagrangian, which is beside it for one sampling where it takes at most 60 processor \
seconds (as released: squared norms of 1e-7).
- *Random forest and SVMs:* the paper's grids, five folds on the training part, scikit-learn. No \
column of ones."""


def present(done: Sequence[Done]) -> str:
    found = Collected.of(done)
    parts = [_INTRODUCTION]
    for table in TABLES:
        if found.sets(table):
            parts += [f"## Table {table}", _accuracies(found, table)]
    parts += [
        "## Agreement",
        "Cells of both tables. Near means within one test row or 1.5 points.",
        _agreement(found),
        "## Every cell that is further away",
        _differences(found),
        "## Best of five, median of five, and the optimum",
        "Test accuracy in percent. The optimum is Newton's on the same patterns, with right gates.",
        _readings(found),
        "## Who is best",
        _WINS,
        _wins(found),
        "## What the published stop leaves",
        "Medians over samplings: the certified relative gap, iterations and processor seconds.",
        _solvers(found),
    ]
    return "\n\n".join(part for part in parts if part)


_WINS = """\
On how many sets a method has the highest accuracy, ties counted for all, among sets whose five \
samplings of both convex models are done. Baselines that are not computed here are as printed."""


def _accuracies(found: Collected, table: int) -> str:
    rows = []
    for name in found.sets(table):
        n_test = found.n_test(name)
        cells = []
        for column in COLUMNS:
            here = found.value(name, column)
            within = tolerance(n_test)
            cells.append("" if here is None else beside(here, cell(name, column), 1, within))
        rows.append([name, n_test, *cells])
    return markdown_table(("set", "test rows", *(NAMES[column] for column in COLUMNS)), rows)


def _kind(found: Collected, name: str, column: str) -> str | None:
    here = found.value(name, column)
    if here is None:
        return None
    return agreement(here, cell(name, column), 1, tolerance(found.n_test(name)))


def _agreement(found: Collected) -> str:
    rows = []
    sets = [name for table in TABLES for name in found.sets(table)]
    for column in ("linear_svm", "rbf_svm", "c_grelu", "c_relu", "random_forest"):
        count = Counter(filter(None, (_kind(found, name, column) for name in sets)))
        total = sum(count.values())
        if total:
            near = count["same"] + count["near"]
            rows.append((NAMES[column], total, count["same"], near, f"{100 * near / total:.0f} %"))
    return markdown_table(("column", "cells", "equal as printed", "equal or near", "share"), rows)


def _differences(found: Collected) -> str:
    texts = [
        f"- *{NAMES[column]}, {name}:* {found.value(name, column):.1f} here, "
        f"{cell(name, column):.1f} printed. {_REASONS[column](found, name)}"
        for column in COLUMNS
        for table in TABLES
        for name in found.sets(table)
        if _kind(found, name, column) == "far"
    ]
    return "\n".join(texts) if texts else "There is none."


def _gated_reason(found: Collected, name: str) -> str:
    there, chosen = cell(name, "c_grelu"), selected(2)[name]
    five = sorted(found.accuracies(name, "gated", "rfista", "accuracy_released"))
    right = sorted(found.accuracies(name, "gated", "rfista"))
    gap = found.numbers(name, "gated", "rfista", "gap")
    parts = [f"The five samplings give {_listed(five)}, with right gates {_listed(right)}."]
    if five[0] <= there <= five[-1] or right[0] <= there <= right[-1]:
        parts.append("The printed number is among them or between them.")
    parts.append(
        f"At the authors' lam of {chosen['c_grelu_lambda']:.3g} R-FISTA stops with a relative gap "
        f"of {gap:.2g}, so that the model depends on where exactly it stops."
    )
    return " ".join(parts)


def _relu_reason(found: Collected, name: str) -> str:
    five = sorted(found.accuracies(name, "relu", "optimum"))
    text = f"The optimal models of five samplings have {_listed(five)}"
    al = found.accuracies(name, "al", "al")
    if al:
        text += f"; the AL's of one, ended early, has {al[0]:.1f}"
    chosen = selected(2)[name]
    return (
        f"{text}. The printed cell is of an augmented Lagrangian that is stopped short of the "
        f"optimum, at lam = {chosen['c_relu_lambda']:.3g}."
    )


def _baseline_reason(found: Collected, name: str) -> str:
    return "Several settings of the grid are equally good in cross-validation up to a few rows."


def _forest_reason(found: Collected, name: str) -> str:
    return (
        "A forest depends on its random numbers, and so does which of the 20 settings wins; other "
        "versions of scikit-learn draw others."
    )


_REASONS = {
    "c_grelu": _gated_reason,
    "c_relu": _relu_reason,
    "random_forest": _forest_reason,
    "linear_svm": _baseline_reason,
    "rbf_svm": _baseline_reason,
}


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _readings(found: Collected) -> str:
    header = (
        "set",
        "C-GReLU, released gates: best",
        "median",
        "right gates: best",
        "median",
        "optimum: best",
        "median",
        "C-ReLU, optimum: best",
        "median",
        "AL, one sampling",
    )
    rows = []
    for name in (name for table in TABLES for name in found.sets(table)):
        cells = [
            found.value(name, "c_grelu", rule, gates)
            for gates in ("accuracy_released", "accuracy")
            for rule in ("best", "median")
        ]
        optimal = sorted(found.accuracies(name, "gated", "optimum"))
        whole = len(optimal) == len(SEEDS)
        cells += [optimal[-1], optimal[len(SEEDS) // 2]] if whole else [None, None]
        cells += [found.value(name, "c_relu", rule) for rule in ("best", "median")]
        cells += found.accuracies(name, "al", "al")[:1] or [None]
        if any(value is not None for value in cells):
            rows.append([name, *("" if value is None else f"{value:.1f}" for value in cells)])
    return markdown_table(header, rows)


def _wins(found: Collected) -> str:
    shown = (*COLUMNS, "convex")
    rows = []
    for table in TABLES:
        names = [line.name for line in lines(found, table, "best")]
        if not names:
            continue
        readings = {
            "printed": printed_lines(table, names),
            "best of five": lines(found, table, "best"),
            "median of five": lines(found, table, "median"),
            "best of five, right gates": lines(found, table, "best", "accuracy"),
            "median of five, right gates": lines(found, table, "median", "accuracy"),
        }
        for reading, found_lines in readings.items():
            counts = wins(found_lines)
            means = [mean(line.values[column] for line in found_lines) for column in CONVEX]
            rows.append(
                (
                    f"Table {table}, {len(names)} of {len(printed(table))} sets: {reading}",
                    *(counts[column] for column in shown),
                    *(f"{value:.1f}" for value in means),
                )
            )
    names = {**NAMES, "convex": "either convex"}
    header = ("", *(names[column] for column in shown), "mean of C-GReLU", "mean of C-ReLU")
    return markdown_table(header, rows) if rows else "No set is complete yet."


def _solvers(found: Collected) -> str:
    header = (
        "set",
        "lam: C-GReLU",
        "R-FISTA: gap",
        "iterations",
        "seconds",
        "Newton: gap",
        "seconds",
        "lam: C-ReLU",
        "Newton: gap",
        "seconds",
        "AL: gap",
        "iterations",
        "seconds",
    )
    columns = (
        (("gated", "rfista"), ("gap", "iterations", "seconds")),
        (("gated", "optimum"), ("gap", "seconds")),
        (("relu", "optimum"), ("gap", "seconds")),
        (("al", "al"), ("gap", "iterations", "seconds")),
    )
    rows = []
    for name in (name for table in TABLES for name in found.sets(table)):
        values = [
            found.numbers(name, *solver, what) for solver, numbers in columns for what in numbers
        ]
        if all(value is None for value in values):
            continue
        texts = ["" if value is None else f"{value:.3g}" for value in values]
        chosen = selected(2)[name]
        gated, relu = (f"{chosen[f'{column}_lambda']:.3g}" for column in CONVEX)
        late = any(
            row["al"]["status"] == "stopped" for row in found.convex["al"].get(name, {}).values()
        )
        texts[-1] += "\\*" if late else ""
        rows.append([name, gated, *texts[:5], relu, *texts[5:]])
    return markdown_table(header, rows) + "\n\n\\* ended at the limit of time." if rows else ""
