"""The page of Figures 1 and 6: runs beside certified optima, curves, verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.record import markdown_table

from cvxnn.plots.drawing import COLOURS, INK, save_figure, tidy
from replication.experiment import Done, Judgement, Row, Verdict
from replication.figure1.settings import TEACHERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAR = 1.2  # times the best objective of all runs: a run that ends above it is sub-optimal
SPREAD = 0.01  # relative, of final objectives that count as nearly identical
FEW, MANY = 2, 6  # sub-optimal runs out of ten for which the claim counts as confirmed
SUBOPTIMAL, OPTIMAL, LAGRANGIAN = COLOURS[1], COLOURS[0], INK


class Runs(NamedTuple):
    """All that was run for one teacher: runs of SGD by seed, and rows of C-ReLU by seed."""

    sgd: list[Row]
    al: dict[int, Row]
    newton: dict[int, Row]
    majority: list[float]

    @classmethod
    def of(cls, done: Sequence[Done], teacher: str) -> Runs:
        sgd: list[Row] = []
        majority: list[float] = []
        convex: dict[str, dict[int, Row]] = {"al": {}, "newton": {}}
        for piece in done:
            settings = piece.settings
            if settings["teacher"] != teacher or settings["scale"] != "convex":
                continue
            if settings["kind"] == "sgd":
                sgd, majority = piece.row["runs"], piece.row["majority"]
            else:
                convex[settings["kind"]][settings["seeds"][0]] = piece.row
        return cls(sgd, convex["al"], convex["newton"], majority)

    @property
    def ended(self) -> list[Row]:
        return [run for run in self.sgd if run["status"] == "converged"]

    @property
    def suboptimal(self) -> list[Row]:
        """Converged, but not to a network that fits all rows, or far above the best run."""
        best = min((run["objective"] for run in self.ended), default=0.0)
        return [run for run in self.ended if run["accuracy"] < 100 or run["objective"] > FAR * best]

    @property
    def good(self) -> list[Row]:
        return [run for run in self.ended if run not in self.suboptimal]


def present(done: Sequence[Done]) -> str:
    parts = [_readings(done)]
    for teacher in TEACHERS:
        runs = Runs.of(done, teacher)
        if runs.sgd:
            parts += [f"## {_titles[teacher]}", _summary(runs), _table(runs)]
    return "\n\n".join(parts)


_titles = {
    "uniform": "Weights of the teacher uniform on [0, 1], as released",
    "gaussian": "Weights of the teacher Gaussian, as printed",
}


def _readings(done: Sequence[Done]) -> str:
    text = (
        "The labels are the signs of a ReLU network with 100 neurons, so that a network of that "
        "width can fit all of them. The text calls its weights Gaussian, the released code draws "
        "them uniformly from [0, 1]; both are run. The penalty (1e-4) and the halving of the step "
        "every 100 epochs are from the released code, the text gives neither. The patterns of each "
        "program are 100 random ones and all that the neurons of the run of SGD with the same seed "
        "had after any epoch, as the text says; the released code takes those of one further run "
        "for all. A run of SGD is called sub-optimal if it has converged (squared norm of the "
        "gradient at most 1e-6) and does not fit all rows, or has an objective more than "
        f"{FAR:g} times the best of the ten. Training objectives are those of the convex programs; "
        "the ones of SGD have their neurons rescaled, which lowers them a little."
    )
    released = [p.row for p in done if p.settings["scale"] == "released"]
    for row in released:
        diverged = [run for run in row["runs"] if run["status"] == "diverged"]
        epochs = max((run["epochs"] for run in diverged), default=0)
        text += (
            " With the loss as the released code scales it, twice as large, "
            f"{len(diverged)} of {len(row['runs'])} runs diverge with the same step, within "
            f"{epochs} epochs: the figures were not made with it."
        )
    return text


def _summary(runs: Runs) -> str:
    count, total = len(runs.suboptimal), len(runs.sgd)
    seeds = ", ".join(str(run["seed"]) for run in runs.suboptimal)
    diverged = sum(run["status"] == "diverged" for run in runs.sgd)
    text = (
        f"{count} of {total} runs of SGD are sub-optimal (printed: 4 of 10)"
        + (f": seeds {seeds}. " if count else ". ")
        + f"{diverged or 'None'} diverged (printed: 1). "
    )
    if runs.al:
        perfect = sum(row["accuracy"] == 100 for row in runs.al.values())
        gaps = [row["gap"] for row in runs.al.values()]
        text += (
            f"{perfect} of {len(runs.al)} runs of the augmented Lagrangian fit all rows. Their "
            f"published stop leaves a certified gap of up to {max(gaps):.0%} of the objective. "
        )
        above = [
            row["objective"] / runs.newton[seed]["objective"] - 1
            for seed, row in runs.al.items()
            if seed in runs.newton
        ]
        if above:
            text += (
                f"Made feasible, they end {min(above):.0%} to {max(above):.0%} above the optimum "
                "of the same program. "
            )
    if runs.newton:
        rows = list(runs.newton.values())
        text += (
            f"The optimum fits all rows in {sum(row['accuracy'] == 100 for row in rows)} of "
            f"{len(rows)} programs, each certified to a gap of at most "
            f"{max(row['gap'] for row in rows):.1e} within "
            f"{max(row['seconds'] for row in rows):.0f} processor seconds. "
        )
    return text + (
        f"Whoever always answers with the larger class is right on {runs.majority[0]:.1f} % of the "
        f"rows for training and {runs.majority[1]:.1f} % of those for the test."
    )


def _table(runs: Runs) -> str:
    header = (
        "seed",
        "SGD",
        "epochs",
        "objective",
        "train / test, %",
        "patterns",
        "AL objective",
        "gap",
        "train / test, %",
        "passes",
        "CPU s",
        "optimum",
        "gap",
        "train / test, %",
        "CPU s",
    )
    return markdown_table(header, [_line(run, runs) for run in runs.sgd])


def _line(run: Row, runs: Runs) -> tuple[str, ...]:
    seed = run["seed"]
    al, newton = runs.al.get(seed), runs.newton.get(seed)
    known = newton or al
    kind = "sub-optimal" if run in runs.suboptimal else run["status"]
    return (
        str(seed),
        kind,
        str(run["epochs"]),
        f"{run['objective']:.5f}" if "objective" in run else "",
        _accuracies(run) if "objective" in run else "",
        str(known["patterns"]) if known else "",
        *(
            (
                f"{al['objective']:.5f}",
                f"{al['gap']:.2f}",
                _accuracies(al),
                str(al["passes"]),
                f"{al['seconds']:.0f}",
            )
            if al
            else ("",) * 5
        ),
        *(
            (
                f"{newton['objective']:.5f}",
                f"{newton['gap']:.1e}",
                _accuracies(newton),
                f"{newton['seconds']:.0f}",
            )
            if newton
            else ("",) * 4
        ),
    )


def _accuracies(row: Row) -> str:
    return f"{row['accuracy']:.1f} / {row['test_accuracy']:.1f}"


class Panel(NamedTuple):
    """Which number of a curve is drawn, and how."""

    place: int
    label: str
    logarithmic: bool = False
    optimum: str = ""  # of the rows of Newton, drawn as a line across


OBJECTIVE = Panel(1, "training objective", optimum="objective")
GRADIENT = Panel(2, "squared norm of the gradient", logarithmic=True)
TRAINING = Panel(3, "training accuracy, %", optimum="accuracy")
TEST = Panel(4, "test accuracy, %", optimum="test_accuracy")


def draw(done: Sequence[Done], folder: Path) -> list[str]:
    names = []
    for teacher in TEACHERS:
        runs = Runs.of(done, teacher)
        if runs.sgd:
            for figure, panels in (
                ("1", (OBJECTIVE, TRAINING)),
                ("6", (OBJECTIVE, GRADIENT, TRAINING, TEST)),
            ):
                names.append(f"figure1-{figure}-{teacher}.png")
                _draw(runs, panels, folder / names[-1])
    return names


def _draw(runs: Runs, panels: Sequence[Panel], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6 * (len(panels) // 2)), layout="constrained")
    axes = figure.subplots(len(panels) // 2, 2).ravel()
    for ax, panel in zip(axes, panels, strict=True):
        for points, label, look in _curves(runs):
            ax.plot(
                [p[0] for p in points],
                [p[panel.place] for p in points],
                label=label,
                lw=1.3,
                **look,
            )
        if panel.optimum and runs.newton:
            level = statistics.median(row[panel.optimum] for row in runs.newton.values())
            ax.axhline(level, color=COLOURS[2], ls=":", lw=1.5, label="optimum, median (Newton)")
        _limit(ax, panel)
        tidy(ax)
    found = {
        name: handle for handle, name in zip(*axes[0].get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        found.values(), found, frameon=False, loc="outside lower center", ncols=len(found)
    )
    save_figure(figure, path)


def _limit(ax: Axes, panel: Panel) -> None:
    ax.set_xscale("log")
    ax.set_xlabel("passes over the data")
    ax.set_ylabel(panel.label)
    if panel.logarithmic:
        ax.set_yscale("log")
    elif panel is OBJECTIVE:
        ax.set_ylim(0, 0.06)
    else:
        ax.set_ylim(88, 100.5)


def _curves(runs: Runs) -> Iterator[tuple[list[list[float]], str, Row]]:
    for run in runs.ended:
        if run in runs.suboptimal:
            yield run["curve"], "SGD, sub-optimal end", {"color": SUBOPTIMAL, "ls": "-."}
        else:
            yield run["curve"], "SGD", {"color": OPTIMAL, "ls": "--"}
    for row in runs.al.values():
        yield row["curve"], "augmented Lagrangian", {"color": LAGRANGIAN, "ls": "-"}


def verdicts(done: Sequence[Done]) -> list[Verdict]:
    uniform, gaussian = (Runs.of(done, teacher) for teacher in TEACHERS)
    return [_stationary(uniform, gaussian), _perfect(uniform), _tested(uniform, gaussian)]


def _stationary(uniform: Runs, gaussian: Runs) -> Verdict:
    count = len(uniform.suboptimal)
    if len(uniform.sgd) < 10:
        return Verdict("F1a", Judgement.OPEN, f"{len(uniform.sgd)} of 10 runs", "Runs are missing.")
    judged = Judgement.HOLDS if FEW <= count <= MANY else Judgement.FAILS
    diverged = sum(run["status"] == "diverged" for run in uniform.sgd)
    other = f"; {len(gaussian.suboptimal)} of {len(gaussian.sgd)} with a Gaussian teacher"
    reason = (
        f"They have converged and are at least {_worse(uniform):.2g} times as high as the best "
        f"certified optimum of C-ReLU. {diverged or 'None'} diverged, where the paper has one."
    )
    return Verdict("F1a", judged, f"{count} of 10" + (other if gaussian.sgd else ""), reason)


def _worse(runs: Runs) -> float:
    """The smallest objective of a sub-optimal run over the smallest certified one."""
    optima = [row["objective"] for row in runs.newton.values()]
    ends = [run["objective"] for run in runs.suboptimal]
    return min(ends) / min(optima) if optima and ends else float("nan")


def _perfect(runs: Runs) -> Verdict:
    rows = list(runs.al.values())
    if len(rows) < 3:
        return Verdict("F1b", Judgement.OPEN, f"{len(rows)} of 10 runs", "Runs are missing.")
    perfect = sum(row["accuracy"] == 100 for row in rows)
    spread, exact = (_spread(list(found.values())) for found in (runs.al, runs.newton))
    number = f"{perfect} of {len(rows)} fit all rows; objectives spread by {spread:.1%}"
    if runs.newton:
        fits = sum(row["accuracy"] == 100 for row in runs.newton.values())
        number += f"; at the optimum {fits} of {len(runs.newton)}, {exact:.1%}"
    holds = perfect == len(rows) and spread < SPREAD
    reason = (
        "All fit perfectly, and they end nearly alike."
        if holds
        else (
            f"All fit perfectly. Their final objectives differ by more than {SPREAD:.0%}: as the "
            "text says, each run has the patterns of another run of SGD. The released code gives "
            "all ten those of one run, with which they may well be alike; that was not run."
            if perfect == len(rows)
            else "Some do not fit all rows."
        )
    )
    return Verdict("F1b", Judgement.HOLDS if holds else Judgement.FAILS, number, reason)


def _spread(rows: list[Row]) -> float:
    """The largest objective over the smallest, less one."""
    values = [row["objective"] for row in rows]
    return max(values) / min(values) - 1 if values else float("nan")


def _tested(uniform: Runs, gaussian: Runs) -> Verdict:
    texts, differences = [], []
    for runs, name in ((uniform, "uniform"), (gaussian, "Gaussian")):
        if runs.suboptimal and runs.al:
            bad, good, convex, exact = (
                statistics.median([row["test_accuracy"] for row in rows]) if rows else float("nan")
                for rows in (runs.suboptimal, runs.good, runs.al.values(), runs.newton.values())
            )
            differences.append(bad - convex)
            texts.append(
                f"{name}: sub-optimal {bad:.1f}, other SGD {good:.1f}, AL {convex:.1f} "
                f"({len(runs.al)} runs), optimum {exact:.1f} %"
            )
    if not texts:
        return Verdict("F6", Judgement.OPEN, "", "Runs are missing.")
    judged = Judgement.HOLDS if differences[0] < 0 else Judgement.FAILS
    reason = (
        "Sub-optimal runs test worse than the augmented Lagrangian."
        if judged is Judgement.HOLDS
        else "Sub-optimal runs do not test worse: the classes are so unequal that the larger one "
        f"alone gives {uniform.majority[1]:.1f} %, and fitting the few others does not carry over."
    )
    return Verdict("F6", judged, "; ".join(texts), reason)
