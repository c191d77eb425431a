"""The page of Tables 3, 7 and 8: cells beside the printed ones, why they differ, gaps, times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.record import markdown_table

from cvxnn.plots.drawing import COLOURS, MARKERS, save_figure, tidy
from replication.experiment import Done, Judgement, Profile, Verdict
from replication.paper import selected
from replication.table3.cells import (
    ADAM,
    ADAM_FEW,
    ADAM_RELEASED,
    ADAM_RELU,
    AUGMENTED,
    GATED_COLUMNS,
    GATED_OPTIMUM,
    R_FISTA,
    RELU_COLUMNS,
    RELU_OPTIMUM,
    ROUNDING,
    SGD,
    SGD_FEW,
    SGD_RELEASED,
    SGD_RELU,
    Cell,
    Cells,
    Column,
)
from replication.table3.settings import EPOCHS, GATED, RELEASED

FULL_EPOCHS = 2000
ENOUGH = 8  # sets, to judge by
WORSE = -1.0  # points: a mean difference below is a worse model
FRACTION = 0.5  # of a training time
CATASTROPHE = 50.0  # percent


def present(done: Sequence[Done]) -> str:
    cells = Cells(done)
    parts = [
        _readings(),
        "## Gated networks: Tables 3 and 7",
        _table(cells, GATED_COLUMNS, beside=(R_FISTA, ADAM, SGD)),
        "## ReLU networks: Tables 3 and 8",
        _table(cells, RELU_COLUMNS, beside=(AUGMENTED, RELU_OPTIMUM, ADAM_RELU, SGD_RELU)),
        "## How well they agree",
        _agreement(cells),
        "## Larger differences",
        _differences(cells),
        "## Beside the published stop, the optimum",
        _gaps(cells),
        "## Times",
        _times(cells),
    ]
    return "\n\n".join(parts)


def _readings() -> str:
    return (
        "Cells are medians of five runs with their quartiles, here and, behind the sign, as "
        "printed; Table 3 prints the same medians as Tables 7 and 8. Penalties and step sizes are "
        "those that the authors' cross-validation selected. Convex programs have five samplings "
        "of patterns (the augmented Lagrangian the first of them at the desk), NC-GReLU with "
        f"{GATED} gates has the same five, with other weights at the start. The released code "
        f"builds NC-GReLU with {RELEASED} gates of one seed instead, and with a loss that is "
        "2C times as large for C outputs; these are run as well. NC-ReLU is as wide as the optimum "
        "of C-ReLU with the same penalty has neurons, at least 50, and its five runs differ in "
        "their seed; in the released code they differ in the width alone. A gated network with "
        "several outputs has one hidden vector for each gate, the convex program one for each gate "
        "and class: for these sets NC-GReLU can do less than C-GReLU with the same gates."
    )


def _table(cells: Cells, groups: Iterable[Sequence[Column]], beside: Sequence[Column]) -> str:
    columns = [column for group in groups for column in group]
    lines = []
    for name in cells.sets:
        line = [name]
        for column in columns:
            cell = cells.get(name, column)
            if cell is None:
                line.append("")
            elif column in beside:
                line.append(cell.shown + _failures(cell))
            else:
                line.append(f"{cell.median:.1f}" + _failures(cell))
        if any(line[1:]):
            lines.append(tuple(line))
    return markdown_table(("set", *(column.title for column in columns)), lines)


def _failures(cell: Cell) -> str:
    """How many runs ran out of time or diverged, if any."""
    found = []
    for status, name in (("stopped", "out of time"), ("diverged", "diverged")):
        count = sum(run["status"] == status for run in cell.runs)
        if count:
            found.append(f"{count} of {len(cell.runs)} {name}")
    return f" ({', '.join(found)})" if found else ""


def _agreement(cells: Cells) -> str:
    lines = []
    for column in (R_FISTA, ADAM, SGD, AUGMENTED, RELU_OPTIMUM, ADAM_RELU, SGD_RELU):
        found = list(cells.of(column))
        kinds = [cell.agreement for cell in found]
        apart = [cell.median - cell.printed for cell in found]
        if found:
            lines.append(
                (
                    column.name,
                    str(len(found)),
                    *(str(kinds.count(kind)) for kind in ("same", "near", "far")),
                    f"{statistics.mean(apart):+.1f}",
                )
            )
    header = ("method", "sets", "equal", "near", "further", "here minus printed, mean")
    near = "Near is at most 1.5 points or one test row away."
    return near + "\n\n" + markdown_table(header, lines)


def _differences(cells: Cells) -> str:
    columns = (R_FISTA, ADAM, SGD, RELU_OPTIMUM, ADAM_RELU, SGD_RELU)
    far = [cell for column in columns for cell in cells.of(column) if cell.agreement == "far"]
    if not far:
        return "There are none."
    lines = [
        (
            cell.set,
            cell.column.name,
            f"{cell.median:.1f}",
            f"{cell.printed:.1f}",
            f"{cell.cross_validated:.1f}",
            f"{cell.rows_apart} of {cell.n_test}",
            _why(cell, cells),
        )
        for cell in far
    ]
    header = ("set", "method", "here", "printed", "authors' CV", "test rows apart", "why")
    return (
        "The authors' released selection comes with the accuracy that the selected values had in "
        "their own cross-validation. Printed gated cells are often far below it, as if they had "
        "been made with other values than the selected ones. The last column gives the first of "
        "these that fits: the spread of the runs here, another penalty of the grid, the gates and "
        "the loss of the released code, the published stop, the cross-validation, runs that have "
        "not converged. With so many to choose from and few test rows some fit by chance: they are "
        "candidates, not causes that were shown.\n\n" + markdown_table(header, lines)
    )


def _why(cell: Cell, cells: Cells) -> str:
    """The first explanation that the numbers support."""
    low, high = min(cell.accuracies), max(cell.accuracies)
    if low <= cell.printed + 0.05 and cell.printed - 0.05 <= high:
        return f"the printed median is in the range of the runs here, {low:.1f} to {high:.1f}"
    if cell.column == R_FISTA:
        other = _other_penalty(cell, cells)
        if other:
            return other
    for few in {ADAM: (ADAM_FEW, ADAM_RELEASED), SGD: (SGD_FEW, SGD_RELEASED)}.get(cell.column, ()):
        beside = cells.get(cell.set, few)
        if beside is not None and beside.agreement != "far":
            return f"the printed cell is near what {few.title} give: {beside.median:.1f}"
    if cell.column == RELU_OPTIMUM:
        published = cells.get(cell.set, AUGMENTED)
        if published is not None and published.agreement != "far":
            return f"the published stop of the AL gives {published.median:.1f}; this is the optimum"
    here, there = (abs(x - cell.cross_validated) for x in (cell.median, cell.printed))
    if here < there:
        return (
            f"{here:.1f} points from what the selected values had in the authors' own "
            f"cross-validation, the printed cell {there:.1f}"
        )
    limit = sum(run["status"] == "limit" for run in cell.runs)
    if limit and cell.column.method:
        epochs = max(run["epochs"] for run in cell.runs)
        return f"{limit} of {len(cell.runs)} runs have not converged after {epochs} epochs"
    if cell.column == R_FISTA and cell.set not in cells.grids:
        return "not known: the other penalties of the grid have not been run"
    return "not known: none of the candidates fits"


def _other_penalty(cell: Cell, cells: Cells) -> str:
    """Penalties of the authors' grid, other than the selected one, that give the printed cell."""
    grid = cells.grids.get(cell.set)
    if grid is None:
        return ""
    pairs = zip(grid.settings["lams"], grid.row["accuracies"], strict=True)
    tolerance = 100 / cell.n_test + ROUNDING
    fitting = [lam for lam, accuracy in pairs if abs(accuracy - cell.printed) <= tolerance]
    chosen = selected(3)[cell.set]["c_grelu_rfista_lambda"]
    if fitting:
        listing = ", ".join(f"{lam:.2g}" for lam in fitting)
        return (
            f"the penalties {listing} of the grid give it within one test row, "
            f"the selected {chosen:.2g} does not"
        )
    return ""


def _gaps(cells: Cells) -> str:
    lines = []
    for name in cells.sets:
        line = [name]
        for column in (R_FISTA, GATED_OPTIMUM, AUGMENTED, RELU_OPTIMUM):
            cell = cells.get(name, column)
            if cell is None:
                line += ["", ""]
            else:
                gap = statistics.median(run["gap"] for run in cell.runs)
                line += [f"{gap:.1e}", f"{cell.median:.1f}"]
        if any(line[1:]):
            lines.append(tuple(line))
    header = (
        "set",
        *("R-FISTA: gap", "accuracy"),
        *("optimum: gap", "accuracy"),
        *("AL: gap", "accuracy"),
        *("optimum: gap", "accuracy"),
    )
    text = "Certified relative gaps (medians), and test accuracies in percent."
    pairs = list(cells.pairs(GATED_OPTIMUM, R_FISTA))
    if pairs:
        mean = statistics.mean(exact.median - stop.median for exact, stop in pairs)
        text += (
            f" Over {len(pairs)} sets the optimum of C-GReLU tests {mean:+.1f} points against what "
            "the published stop of R-FISTA leaves."
        )
    return text + "\n\n" + markdown_table(header, lines)


def _times(cells: Cells) -> str:
    columns = (R_FISTA, GATED_OPTIMUM, ADAM, SGD, AUGMENTED, RELU_OPTIMUM, ADAM_RELU, SGD_RELU)
    lines = []
    for name in cells.sets:
        found = [cells.get(name, column) for column in columns]
        if any(found):
            lines.append((name, *("" if cell is None else f"{_time(cell):.2g}" for cell in found)))
    header = ("set", *(column.name for column in columns))
    return (
        "Processor seconds of one final model, medians. Those of gradient methods are the run's "
        f"share of its batch, and for runs that reached their limit of epochs they are taken on to "
        f"{FULL_EPOCHS} epochs.\n\n" + markdown_table(header, lines)
    )


def _time(cell: Cell) -> float:
    """Of one model; a run that has not converged would have gone on."""
    return statistics.median(
        run["seconds"] * (FULL_EPOCHS / run["epochs"] if run["status"] == "limit" else 1.0)
        if cell.column.method
        else run["seconds"]
        for run in cell.runs
    )


class Comparison(NamedTuple):
    """Accuracies of a convex column minus those of a gradient method, over all sets with both."""

    name: str
    differences: list[float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.differences)

    def __str__(self) -> str:
        signs = [sum(np.sign(d) == sign for d in self.differences) for sign in (1, 0, -1)]
        return f"{self.name} {self.mean:+.1f} ({signs[0]}/{signs[1]}/{signs[2]})"


def _comparison(cells: Cells, convex: Column, gradient: Column, name: str) -> Comparison:
    pairs = cells.pairs(convex, gradient)
    return Comparison(name, [round(one.median - two.median, 2) for one, two in pairs])


def verdicts(done: Sequence[Done]) -> list[Verdict]:
    cells = Cells(done)
    return [_generalises(cells), _fraction(cells), _catastrophe(cells)]


def _generalises(cells: Cells) -> Verdict:
    decisive = [
        _comparison(cells, R_FISTA, ADAM, "gated minus Adam"),
        _comparison(cells, R_FISTA, SGD, "minus SGD"),
        _comparison(cells, RELU_OPTIMUM, ADAM_RELU, "ReLU minus Adam"),
        _comparison(cells, RELU_OPTIMUM, SGD_RELU, "minus SGD"),
    ]
    few = [
        _comparison(cells, R_FISTA, ADAM_FEW, f"with {RELEASED} gates: minus Adam"),
        _comparison(cells, R_FISTA, SGD_FEW, "minus SGD"),
    ]
    sizes = [len(comparison.differences) for comparison in decisive]
    if min(sizes) < ENOUGH:
        return Verdict(
            "T3a", Judgement.OPEN, f"{min(sizes)} of {ENOUGH} sets needed", "Too few sets are done."
        )
    worst = min(decisive, key=lambda comparison: comparison.mean)
    judged = Judgement.HOLDS if worst.mean >= WORSE else Judgement.FAILS
    number = ", ".join(str(c) for c in [*decisive, *few] if c.differences)
    reason = (
        f"Mean differences in points over {min(sizes)} to {max(sizes)} sets (wins, ties, losses), "
        "C-ReLU at its optimum. "
        + (
            "None is below -1."
            if judged is Judgement.HOLDS
            else f"The mean of '{worst.name}' is below -1."
        )
    )
    return Verdict("T3a", judged, number, reason)


def _fraction(cells: Cells) -> Verdict:
    texts, ratios = [], {}
    for convex, gradient in (
        (R_FISTA, ADAM),
        (R_FISTA, SGD),
        (GATED_OPTIMUM, ADAM),
        (AUGMENTED, ADAM_RELU),
        (AUGMENTED, SGD_RELU),
        (RELU_OPTIMUM, ADAM_RELU),
    ):
        found = [_time(one) / _time(two) for one, two in cells.pairs(convex, gradient)]
        if len(found) >= ENOUGH:
            ratios[convex, gradient] = statistics.median(found)
            name = "Newton" if convex.title == "optimum" else convex.title
            kind = gradient.kind
            texts.append(f"{name} / {gradient.title} ({kind}) {statistics.median(found):.2g}")
    published = [ratios.get(pair) for pair in ((R_FISTA, ADAM), (AUGMENTED, ADAM_RELU))]
    if None in published:
        return Verdict("T3b", Judgement.OPEN, "; ".join(texts), "Too few sets are done.")
    gated, relu = (ratio is not None and ratio <= FRACTION for ratio in published)
    judged = Judgement.HOLDS if gated and relu else Judgement.FAILS
    reason = (
        "Median ratios of processor seconds for one final model on one core, gradient runs taken "
        f"on to {FULL_EPOCHS} epochs where {EPOCHS[Profile.DESK]} did not suffice. "
    )
    if gated and not relu:
        reason += (
            "It holds for R-FISTA and not for the augmented Lagrangian, whose program has far more "
            "neurons than the network beside it; the paper's times are those of a GPU."
        )
    elif not gated:
        reason += "R-FISTA does not take half of the time of Adam."
    return Verdict("T3b", judged, "; ".join(texts), reason)


def _catastrophe(cells: Cells) -> Verdict:
    cell = cells.get("ecoli", SGD)
    if cell is None:
        return Verdict("T3c", Judgement.OPEN, "", "The runs on ecoli are missing.")
    others = [
        f"{column.title} {other.median:.1f} %"
        for column in (SGD_FEW, SGD_RELEASED)
        if (other := cells.get("ecoli", column)) is not None
    ]
    number = (
        f"median {cell.median:.1f} % ({min(cell.accuracies):.1f} to {max(cell.accuracies):.1f})"
    )
    judged = Judgement.HOLDS if cell.median < CATASTROPHE else Judgement.FAILS
    diverged = sum(run["status"] == "diverged" for run in cell.runs)
    reason = (
        f"Five runs with the selected step and penalty, of which {diverged or 'none'} diverged. "
        f"The authors' own cross-validation has {cell.cross_validated:.1f} % for these values."
    )
    return Verdict("T3c", judged, "; ".join([number, *others]), reason)


def draw(done: Sequence[Done], folder: Path) -> list[str]:
    from matplotlib.figure import Figure

    cells = Cells(done)
    groups = {
        "gated networks": (R_FISTA, ADAM, SGD),
        "ReLU networks": (RELU_OPTIMUM, ADAM_RELU, SGD_RELU),
    }
    labels = ("convex", "Adam", "SGD")
    drawn = {cell.set for columns in groups.values() for c in columns for cell in cells.of(c)}
    sets = [name for name in cells.sets if name in drawn]
    figure = Figure(figsize=(9, 1.4 + 0.34 * len(sets)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (title, columns) in zip(axes, groups.items(), strict=True):
        for k, (column, label) in enumerate(zip(columns, labels, strict=True)):
            found = list(cells.of(column))
            places = [sets.index(cell.set) + 0.22 * (k - 1) for cell in found]
            look = {"marker": MARKERS[k], "ls": "", "color": COLOURS[k], "ms": 5}
            ax.plot([c.median for c in found], places, label=f"{label}, here", **look)
            ax.plot(
                [c.printed for c in found], places, label=f"{label}, printed", mfc="none", **look
            )
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("median test accuracy, %")
        tidy(ax)
    axes[0].set_yticks(range(len(sets)), sets, fontsize=8)
    axes[0].set_ylim(len(sets) - 0.5, -0.5)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, loc="outside lower center", ncols=6)
    save_figure(figure, folder / "table3-accuracies.png")
    return ["table3-accuracies.png"]
