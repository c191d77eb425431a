"""The page: printed accuracies beside ours, gaps, the cost of the full setting, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.record import markdown_table

from cvxnn.plots.drawing import COLOURS, MARKERS, STYLES, save_figure, tidy
from replication.experiment import Done, Judgement, Row, Verdict
from replication.pages import agreement, beside
from replication.paper import printed
from replication.table4.settings import (
    DATA,
    GATES,
    METHODS,
    NAMES,
    ORDER,
    SIZES,
    STOCHASTIC,
    work,
)

TITLES = {"rfista": "R-FISTA", "adam": "Adam", "sgd": "SGD", "adagrad": "Adagrad"}
COLUMNS = {
    method: f"{trained}_grelu_test_accuracy_percent"
    for method, trained in zip(
        METHODS, ("convex_rfista_c", "adam_nc", "sgd_nc", "adagrad_nc"), strict=True
    )
}
NEAR = 1.5  # points
CLAIMS = {"mnist": "T4a", "cifar10": "T4b"}
WITHIN = 1.0  # points of the best stochastic method, for the claims


class Case(NamedTuple):
    """One line of a table."""

    size: str
    data: str
    gates: str


class Found(NamedTuple):
    """The rows of one case by method; SGD on the released scale of the loss apart."""

    rows: dict[str, Row]
    released: Row | None

    @property
    def complete(self) -> bool:
        return all(method in self.rows for method in METHODS)

    @property
    def best_stochastic(self) -> float:
        rows = [self.rows[method] for method in STOCHASTIC]
        return max(row["test"] for row in [*rows, *([self.released] if self.released else [])])

    @property
    def lead(self) -> float:
        """Of the convex program over the best stochastic method, in points."""
        return self.rows["rfista"]["test"] - self.best_stochastic


Cases = dict[Case, Found]


def collect(pieces: Sequence[Done]) -> Cases:
    """The cases in the order of sizes, sets and gates."""
    found: Cases = {}
    for size in ORDER:
        for data in DATA:
            for gates in GATES:
                parts = [p for p in pieces if _case(p) == (size, data, gates)]
                rows = {p.settings["method"]: p.row for p in parts if not _is_released(p)}
                released = next((p.row for p in parts if _is_released(p)), None)
                if parts:
                    found[Case(size, data, gates)] = Found(rows, released)
    return found


def _case(piece: Done) -> tuple[str, str, str]:
    return piece.settings["size"], piece.settings["data"], piece.settings["gates"]


def _is_released(piece: Done) -> bool:
    return piece.settings.get("scale") == "released"


def cell(data: str, method: str) -> float:
    """The printed accuracy."""
    return printed(4)[data][COLUMNS[method]]


def present(pieces: Sequence[Done]) -> str:
    cases = collect(pieces)
    parts = [_introduction(), "## Test accuracy, here and printed", _accuracies(cases)]
    parts += [_agreement(cases), "## What R-FISTA leaves", _gaps(cases)]
    return "\n\n".join([*parts, "## What the full setting would take", _costs(cases)])


def _introduction() -> str:
    return (
        "Gated networks on pictures: the convex program by R-FISTA, and NC-GReLU with the same "
        "gates by Adam, SGD with momentum 0.9 and Adagrad. Strengths and step sizes are those that "
        "the authors selected in the full setting; here nothing is selected again. Channels are "
        "standardized, then columns have the norm 1. The text has gates on patches of 3 x 3 "
        "pixels, the released configuration of MNIST dense ones: both are run. The released "
        "networks minimize 2C times the loss of the convex program; SGD, whose steps depend on "
        "that, is run with both scales. Whether the authors trained again on all rows after the "
        "selection is not said; the rows here are the first of those that they train on while they "
        "select. All numbers are from one run, as in the paper."
    )


def _accuracies(cases: Cases) -> str:
    header = ("size", "rows x gates", *TITLES.values(), "SGD, released scale", "optimum")
    lines = []
    for case, found in cases.items():
        size = SIZES[case.size][case.data]
        cells = [_beside(case.data, method, found) for method in METHODS]
        released = "–" if found.released is None else f"{found.released['test']:.1f}"
        optimum = f"{found.rows['optimum']['test']:.1f}" if "optimum" in found.rows else "–"
        lines.append((_name(case), f"{size.rows:,} x {size.gates:,}", *cells, released, optimum))
    return (
        "In percent of all 10,000 test rows. The optimum is that of R-FISTA's program, by Newton's "
        "method.\n\n" + markdown_table(header, lines)
    )


def _beside(data: str, method: str, found: Found) -> str:
    if method not in found.rows:
        return "–"
    row = found.rows[method]
    ended = " (diverged)" if row["status"] == "diverged" else ""
    return beside(row["test"], cell(data, method), 1, NEAR) + ended


def _agreement(cases: Cases) -> str:
    """How many cells agree at the largest size, and why the others do not."""
    lines = []
    for data in DATA:
        own = [case for case in cases if case.data == data and cases[case].complete]
        if not own:
            continue
        last = own[-1].size
        largest = [case for case in own if case.size == last]
        kinds = [
            agreement(cases[case].rows[method]["test"], cell(data, method), 1, NEAR)
            for case in largest
            for method in METHODS
        ]
        here, full = SIZES[last][data], SIZES["full"][data]
        text = (
            f"{NAMES[data]}, {last} size: {len(kinds) - kinds.count('far')} of {len(kinds)} cells "
            f"are within {NEAR} points of the printed ones"
        )
        if "far" in kinds and last != "full":
            text += (
                f". Training has {here.rows:,} of {full.rows:,} rows, {here.gates:,} of "
                f"{full.gates:,} gates, and {here.epochs} of {full.epochs:,} epochs"
            )
            text += _growth(cases, data, last)
        lines.append(f"- {text}.")
    return "\n".join(lines)


def _growth(cases: Cases, data: str, last: str) -> str:
    """Whether cells come nearer to the printed ones with the size."""
    before, after = [], []
    for gates in GATES:
        small, large = (cases.get(Case(size, data, gates)) for size in ("small", last))
        if last != "small" and small and large and small.complete and large.complete:
            for method in METHODS:
                before.append(cell(data, method) - small.rows[method]["test"])
                after.append(cell(data, method) - large.rows[method]["test"])
    if not before:
        return "; how much of the distance is due to that cannot be told from one size"
    return (
        f"; from the small size to this one the mean distance falls from {np.mean(before):.1f} to "
        f"{np.mean(after):.1f} points"
    )


def _gaps(cases: Cases) -> str:
    header = (
        "size",
        "iterations",
        "stopped by",
        "objective",
        "certified gap",
        "at most so many times the optimal value",
        "accuracy: training / test",
        "optimum: objective",
        "certified gap",
        "accuracy: training / test",
    )
    lines = []
    for case, found in cases.items():
        if "rfista" in found.rows:
            lines.append((_name(case), *_stop(found.rows["rfista"]), *_optimum(found)))
    return (
        "Objectives are those of the convex program. R-FISTA stops at the authors' tolerance or "
        "iteration limit, whichever is first; its certificate says how much of its objective may "
        "be above the optimum.\n\n" + markdown_table(header, lines) + _worth(cases)
    )


def _stop(row: Row) -> tuple[str, ...]:
    why = "tolerance" if row["status"] == "converged" else "limit"
    times = row["objective"] / row["lower_bound"] if row["lower_bound"] > 0 else np.inf
    return (
        str(row["iterations"]),
        why,
        f"{row['objective']:.3g}",
        f"{row['gap']:.4f}",
        f"{times:,.0f}",
        f"{row['training']:.1f} / {row['test']:.1f}",
    )


def _optimum(found: Found) -> tuple[str, ...]:
    if "optimum" not in found.rows:
        return "–", "–", "–"
    row = found.rows["optimum"]
    accuracies = f"{row['training']:.1f} / {row['test']:.1f}"
    return f"{row['objective']:.3g}", f"{row['gap']:.2g}", accuracies


def _worth(cases: Cases) -> str:
    """What training to the end changes."""
    both = [f.rows for f in cases.values() if "optimum" in f.rows and "rfista" in f.rows]
    if not both:
        return ""
    ratios = [rows["rfista"]["objective"] / rows["optimum"]["objective"] for rows in both]
    points = [rows["optimum"]["test"] - rows["rfista"]["test"] for rows in both]
    listed = ", ".join(
        f"{ratio:,.0f} ({change:+.1f})" for ratio, change in zip(ratios, points, strict=True)
    )
    return (
        "\n\nR-FISTA's objective in multiples of that of the optimum, and in brackets the points "
        f"of test accuracy by which the optimum's network differs from it: {listed}."
    )


def _costs(cases: Cases) -> str:
    """Seconds times the full numbers, from the largest case there is: of the same set if any."""
    lines, total = [], 0.0
    for data in DATA:
        for method in METHODS:
            own = [(case, f.rows[method]) for case, f in cases.items() if method in f.rows]
            if not own:
                continue
            case, row = max(own, key=lambda pair: (pair[0].data == data, _place(pair[0])))
            full = SIZES["full"][data]
            factor = work(data, full) / work(case.data, SIZES[case.size][case.data])
            number = full.iterations if method == "rfista" else full.epochs
            hours = row["seconds_each"] * factor * number / 3600
            total += hours
            lines.append(
                (
                    f"{NAMES[data]}, {TITLES[method]}",
                    _name(case),
                    f"{row['seconds_each']:.2f}",
                    f"{factor:.0f}",
                    f"{number:,}",
                    f"{hours:.0f}",
                )
            )
    header = ("method", "measured at", "s each", "times", "full number", "processor hours")
    return (
        "Processor seconds of an iteration or an epoch here, times the ratio of rows x gates x "
        f"columns, times the full number of them: {total:.0f} hours in all for one kind of gates, "
        "without any selection.\n\n" + markdown_table(header, lines)
    )


def _place(case: Case) -> int:
    return ORDER.index(case.size)


def _name(case: Case) -> str:
    return f"{NAMES[case.data]}, {case.gates}, {case.size}"


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    """Accuracy by the number of rows and gates, and the printed one in its place."""
    import matplotlib.pyplot as plt

    cases = collect(pieces)
    shown = [data for data in DATA if any(c.data == data and f.rows for c, f in cases.items())]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(4.8 * len(shown), 3.8), squeeze=False, layout="constrained"
    )
    for data, ax in zip(shown, axes[0], strict=True):
        for k, method in enumerate(METHODS):
            for gates, style in zip(GATES, STYLES, strict=False):
                own = [
                    (SIZES[case.size][data].rows * SIZES[case.size][data].gates, f.rows[method])
                    for case, f in cases.items()
                    if (case.data, case.gates) == (data, gates) and method in f.rows
                ]
                if own:
                    ax.plot(
                        [x for x, _ in own],
                        [row["test"] for _, row in own],
                        color=COLOURS[k],
                        marker=MARKERS[k],
                        linestyle=style,
                        markerfacecolor=COLOURS[k] if gates == "patch" else "white",
                        label=f"{TITLES[method]}, {gates}",
                    )
            full = SIZES["full"][data]
            ax.plot(
                full.rows * full.gates,
                cell(data, method),
                color=COLOURS[k],
                marker=MARKERS[k],
                markersize=9,
                markerfacecolor="none",
                linestyle="none",
            )
        ax.set(title=NAMES[data], xscale="log", xlabel="rows x gates (hollow, far right: printed)")
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[0, 0].legend(frameon=False, fontsize="x-small")
    tidy(*axes[0])
    save_figure(figure, folder / "table4-accuracies.png")
    plt.close(figure)
    return ["table4-accuracies.png"]


def verdicts(pieces: Sequence[Done]) -> list[Verdict]:
    cases = collect(pieces)
    return [_comparable(cases, data) for data in DATA]


def _comparable(cases: Cases, data: str) -> Verdict:
    own = {case: f for case, f in cases.items() if case.data == data and f.complete}
    patch = [case for case in own if case.gates == "patch" and case.size != "smoke"]
    if not patch:
        reason = "No size has runs of all four methods so far."
        return Verdict(CLAIMS[data], Judgement.OPEN, "–", reason)
    last = patch[-1]
    found, size = own[last], SIZES[last.size][data]
    others = ", ".join(
        f"{f.lead:+.1f} with {case.gates} gates at the {case.size} size"
        for case, f in own.items()
        if case != last
    )
    accuracies = ", ".join(f"{TITLES[m]} {found.rows[m]['test']:.1f}" for m in METHODS)
    return Verdict(
        CLAIMS[data],
        Judgement.HOLDS if found.lead >= -WITHIN else Judgement.FAILS,
        f"{found.lead:+.1f} points ({accuracies})",
        f"R-FISTA minus the best stochastic method, SGD on either scale of the loss, with "
        f"{size.rows:,} rows and {size.gates:,} patch gates; at most {WITHIN:g} below counts as "
        f"comparable. Elsewhere: {others or 'nothing yet'}. One run each, at the strengths "
        "selected for the full size.",
    )
