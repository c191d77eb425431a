"""What is wrong in the paper's print, and the number that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.record import markdown_table

from replication.errata import cells, statements
from replication.experiment import Done, Experiment, Piece, Profile, Row


class Erratum(NamedTuple):
    """A place in the paper, what it prints, what is right, and the numbers that show it."""

    where: str
    printed: str
    right: str
    numbers: Callable[[], Row]
    shown: str  # a sentence with the numbers in it
    cost: float = 0.1
    data: bool = False  # whether it needs the folder


ERRATA = {
    "closed form": Erratum(
        "Proposition 3.4",
        "for data of full row rank, w = -pinv(A_I) A_I u, with A = (2D - I)X and I the rows where "
        "A u < 0, decomposes u",
        "w = pinv(A) (-A u)_+",
        statements.closed_form,
        "In {printed} of {cases} random cases the printed w leaves the cone, the corrected one in "
        "{corrected}.",
    ),
    "factor two": Erratum(
        "Proposition 3.4",
        "for data of full row rank, norms at most double",
        "they grow by 1 + 2 kappa(X) at most, and the narrow cone of Proposition 3.5, of full row "
        "rank, needs far more than 2",
        statements.factor_two,
        "The smallest ratio for u = (1, 0) and the cone of width 0.1 is {ratio:.2f}.",
    ),
    "singular patterns": Erratum(
        "Theorem 3.3",
        "singular patterns of any sampled list can be dropped without changing the value of C-ReLU",
        "true for the list of all patterns, false for a sample of them",
        statements.singular_patterns,
        "The paper's 4 x 3 example with the singular pattern alone: the value is between "
        "{bound:.5f} and {kept:.5f}, and {dropped:.3f} if it is dropped.",
    ),
    "restart": Erratum(
        "Section 4.1",
        "restart when <x+ - x, x+ - y> > 0",
        "restart when <y - x+, x+ - x> > 0",
        statements.restart_sign,
        "On a small group lasso the printed test restarts {restarts_printed} times in "
        "{iterations_printed} iterations; the corrected one needs {iterations} iterations and "
        "{restarts} restarts.",
    ),
    "growth": Erratum(
        "Section 4.1",
        "steps grow as eta + (1 - alpha) eta",
        "eta + (alpha - 1) eta",
        statements.step_growth,
        "From a first step of 0.001, the printed rule shrinks it to {step_printed:.1g} and ends "
        "{excess_printed:.0%} above the optimum; the corrected one is there after {iterations} "
        "iterations, with a step of {step:.2g}.",
    ),
    "threshold": Erratum(
        "Appendix on data normalisation",
        "the proximal step shrinks blocks by lam",
        "by eta lam",
        statements.threshold,
        "With the printed threshold, iterations end {excess_printed:.0%} above the optimum of the "
        "same group lasso.",
    ),
    "Table 5, how many sets": Erratum(
        "Section 5.1, appendix D.3",
        "23 sets",
        "28",
        cells.rows_of_table5,
        "Table 5 has {rows} rows.",
    ),
    "Table 5, labels": Erratum(
        "Table 5",
        'CD-A accuracies of 97.3 for "congressional" and 64.4 for "sonar"',
        "they belong to breast-cancer-wisc-diag and congressional-voting",
        cells.impossible_accuracies,
        "No share of their test rows comes nearer than {congressional:.2f} and {sonar:.2f} points "
        "(rounding apart); for the two sets named here the distances are "
        "{congressional_as_wisc_diag:.2f} and {sonar_as_congressional:.2f}.",
    ),
    "Table 5, norms of two rows": Erratum(
        "Table 5",
        'norms of "congressional" and "sonar"',
        "those of breast-cancer-wisc-diag and congressional-voting",
        cells.norms_of_two_rows,
        "R-FISTA on the authors' rows and gates gives {wisc_diag:.1f} for breast-cancer-wisc-diag "
        '(printed for "congressional": {printed_congressional:.1f}) and {congressional:.1f} for '
        'congressional-voting (printed for "sonar": {printed_sonar:.1f}).',
        8.0,
        True,
    ),
    "Table 5, strength": Erratum(
        "Section 5.1, appendix D.3",
        "lam = 0.01",
        "lam = 0.001",
        cells.strength_of_table5,
        "Norms of glass: printed {glass_printed:.1f}, {glass_as_printed:.1f} at 0.01 and "
        "{glass_as_released:.1f} at 0.001; of pima: printed {pima_printed:.1f}, "
        "{pima_as_printed:.1f} and {pima_as_released:.1f}.",
        8.0,
        True,
    ),
    "scale of the loss": Erratum(
        "Section 4.1 and two appendices",
        "the loss as ||.||^2, as ||.||^2 / 2, and divided by n k",
        "||.||^2 / (2 n C) in the experiments",
        cells.scale_of_the_loss,
        "Norm of ecoli in Table 5: {printed:.1f}; here {per_row_and_class:.1f} with 1/(2nC), "
        "{half:.0f} with 1/2, {plain:.0f} with 1.",
        60.0,
        True,
    ),
    "Table 5, norms of CD-A": Erratum(
        "Appendix D.3",
        "CD-A has a less severe effect on the norm than CD-SOCP",
        "it cannot where it is feasible, CD-SOCP being the minimum",
        cells.norms_of_cd_a,
        "The printed norm of CD-A is the larger one in {larger} of {rows} rows.",
    ),
    "Tables 1 and 5, times": Erratum(
        "Tables 1 and 5",
        "two times for CD-A on the same sets",
        "cannot be told",
        cells.times_of_cd_a,
        "They differ for {differ} of {sets} sets.",
    ),
    "speed of CD-A": Erratum(
        "Caption of Table 1",
        "CD-A is two orders of magnitude faster than CD-SOCP",
        "by the tables themselves it is on two of five sets",
        cells.speed_of_cd_a,
        "Printed ratios in Table 1: {least:.0f} to {most:.0f}, at least 100 on {hundredfold} of "
        "{sets} sets; in Table 5 the median is {median_table5:.1f}, and CD-A is slower on "
        "{slower_table5}.",
    ),
    "Tables 2 and 6, sets": Erratum(
        "Section 5.2, appendix E",
        "37 sets, 18 and 19, from the 73",
        "38, 18 and 20, nine of them from elsewhere",
        cells.sets_of_tables_2_and_6,
        "Table 2 has {table2} rows and Table 6 {table6}; {not_among_73} of these sets are not "
        "among the 73.",
    ),
    "Table 6, bold cells": Erratum(
        "Caption of Table 6",
        "the RBF SVM is best on 9 sets",
        "on 8, by the bold cells",
        cells.bold_cells,
        "{bold:.0f} cells of the RBF SVM are in bold.",
    ),
    "Table 3, grid": Erratum(
        "Appendix on Table 3",
        "3.59e-2 in the grid for lam",
        "3.59e-3",
        cells.grid_of_table3,
        "Ten values from 1e-6 to {largest:g} on a logarithmic scale include {value:.3g}; 3.59e-2 "
        "is beyond the largest.",
    ),
    "selection of sets": Erratum(
        "Appendix on the UCI sets",
        "sets have at least 150 rows and at most ten classes",
        "two of the 73 do not",
        cells.selection_rule,
        "monks-3 has {rows} rows, primary-tumor {classes} classes.",
    ),
}


def pieces(profile: Profile) -> list[Piece]:
    return [
        Piece(key, {"erratum": key}, erratum.cost)
        for key, erratum in ERRATA.items()
        if not (erratum.data and profile is Profile.SMOKE)
    ]


def run(settings: Row) -> Row:
    return {name: float(f"{x:.6g}") for name, x in ERRATA[settings["erratum"]].numbers().items()}


def present(done: Sequence[Done]) -> str:
    found = {piece.key: piece.row for piece in done}
    lines = []
    for key, erratum in ERRATA.items():
        if key in found:
            shown = erratum.shown.format(**{name: _whole(x) for name, x in found[key].items()})
            cells_of_line = (erratum.where, erratum.printed, erratum.right, shown)
            lines.append([cell.replace("|", "\\|") for cell in cells_of_line])
    header = ("where", "printed", "right", "shown by")
    table = markdown_table(header, lines).replace("---:", "---")
    return "\n\n".join([INTRODUCTION, table, WITHOUT_NUMBERS])


def _whole(x: float) -> float | int:
    return int(x) if x == int(x) else x


INTRODUCTION = (
    "Two of the paper's statements, Proposition 3.4 and Theorem 3.3, do not hold as they stand; "
    "[the mathematics](../mathematics.md#corrections-to-the-paper) has the corrected ones. The "
    "other lines are misprints, and numbers that contradict each other. None of them touches the "
    "paper's main results: the convex programs, their equivalence with networks, and the solvers."
)
WITHOUT_NUMBERS = """Misprints that no computation has to show:

- The normalised data are X H^-1, not H^-1 X (appendix on data normalisation): H is d x d.
- The last line of the proof of Theorem 3.7 has p* where d* is meant.
- The text on Figure 4 gives 5000 patterns to C-ReLU and 2500 to C-GReLU; everywhere else, and in
  the released configuration, it is the other way round.
- The caption of Figure 3 says "NC-GReLU and NC-GReLU" for NC-GReLU and NC-ReLU, that of Table 5
  "FISTA" for R-FISTA; Table 6 heads the linear SVM "SVM"."""


EXPERIMENT = Experiment(
    "errata",
    "Errata of the paper",
    (),
    pieces,
    run,
    present,
)
