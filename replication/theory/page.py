"""The page on the paper's theorems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.record import markdown_table

from cvxnn.plots.drawing import COLOURS, FAINT, MARKERS, save_figure, tidy
from replication.experiment import Done, Judgement, Row, Verdict

KINDS = {"gated": "C-GReLU and NC-GReLU", "relu": "C-ReLU and NC-ReLU"}
ROUNDING = 1e-12  # relative, of the objectives that are compared
FACTOR = 2.0  # of Proposition 3.4


def present(pieces: Sequence[Done]) -> str:
    return "\n\n".join(["## Equal optimal values", _values(pieces), "## Norms", _norms(pieces)])


def of_kind(pieces: Sequence[Done], *kinds: str) -> list[Done]:
    return [piece for piece in pieces if piece.settings["kind"] in kinds]


def _values(pieces: Sequence[Done]) -> str:
    lines = []
    for kind, name in KINDS.items():
        rows = [piece.row for piece in of_kind(pieces, kind)]
        if rows:
            lines.append(
                (
                    name,
                    len(rows),
                    f"{max(_gap(row) for row in rows):.1e}",
                    f"{max(map(_mapped, rows)):.1e}",
                    sum(len(row["reached"]) for row in rows),
                    sum(map(_below, rows)),
                    f"{min(_excess(row, 0) for row in rows):.1e}",
                    f"{max(_excess(row, -1) for row in rows):.1e}",
                )
            )
    header = (
        "problems",
        "how many",
        "certified gap, at most",
        "mapped network off by",
        "runs of L-BFGS",
        "below the lower bound",
        "best run above it by",
        "worst run above it by",
    )
    return "\n\n".join(
        [
            "Random problems, solved to a certified optimum; the solution mapped to a network; and "
            "networks with as many neurons as the program has blocks, trained by L-BFGS from "
            "random weights. All numbers are relative.",
            markdown_table(header, lines),
        ]
    )


def _gap(row: Row) -> float:
    return float(row["objective"] / row["lower bound"] - 1)


def _mapped(row: Row) -> float:
    return float(abs(row["network"] / row["objective"] - 1))


def _below(row: Row) -> int:
    """How many runs end below the lower bound, by more than rounding."""
    return sum(value < row["lower bound"] * (1 - ROUNDING) for value in row["reached"])


def _excess(row: Row, k: int) -> float:
    return float(row["reached"][k] / row["lower bound"] - 1)


def _norms(pieces: Sequence[Done]) -> str:
    lines = []
    for piece in of_kind(pieces, "norms", "narrow"):
        smallest, closed = (piece.row["ratios"][m] for m in ("min-norm", "closed-form"))
        lines.append(
            (
                _name(piece),
                len(smallest),
                f"{piece.row['condition']:.3g}",
                f"{max(smallest):.4g}",
                sum(ratio > FACTOR for ratio in smallest),
                f"{max(closed):.4g}",
                sum(ratio > FACTOR for ratio in closed),
                f"{1 + 2 * piece.row['condition']:.3g}",
            )
        )
    header = (
        "rows",
        "blocks",
        "condition number",
        "smallest norm: largest ratio",
        "above 2",
        "closed form: largest ratio",
        "above 2",
        "1 + 2 kappa",
    )
    return "\n\n".join(
        [
            "Rows of full rank, and weights u that are decomposed as v - w: the ratio "
            "(‖v‖ + ‖w‖) / ‖u‖ of the decomposition with the smallest norm, and that of the closed "
            "form `w = X~^+ (-X~u)_+`. (The printed closed form, with a pseudo-inverse of some "
            "rows only, leaves the cone.) Two nearly opposite rows make a narrow cone, where the "
            "smallest ratio is known exactly.",
            markdown_table(header, lines),
        ]
    )


def _name(piece: Done) -> str:
    settings = piece.settings
    if settings["kind"] == "narrow":
        return f"narrow, {settings['angle']:g}"
    return f"Gaussian, {settings['n']} x {settings['d']}"


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for k, (kind, name) in enumerate(KINDS.items()):
        for piece in of_kind(pieces, kind):
            seed, reached = piece.settings["seed"], piece.row["reached"]
            above = [max(value / piece.row["lower bound"] - 1, 1e-13) for value in reached]
            label = name if seed == 0 else None
            style = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 5, "alpha": 0.6}
            left.plot([seed + 0.2 * k] * len(above), above, linestyle="", label=label, **style)
    left.set(
        yscale="log",
        xlabel="problem",
        ylabel="where a run of L-BFGS ends,\nrelative to the certified bound",
    )
    left.legend(fontsize=8)
    for k, piece in enumerate(of_kind(pieces, "norms")):
        ratios = piece.row["ratios"]["min-norm"]
        shares = [(j + 1) / len(ratios) for j in range(len(ratios))]
        style = {"color": COLOURS[k], "marker": MARKERS[k], "markevery": 0.1, "markersize": 5}
        right.plot(ratios, shares, label=_name(piece), **style)
    right.axvline(FACTOR, color=FAINT, linestyle="--", label="the printed bound")
    right.set(xlabel="smallest (‖v‖ + ‖w‖) / ‖u‖", ylabel="share of the decompositions")
    right.legend(fontsize=8, loc="lower right")
    tidy(left, right)
    save_figure(figure, folder / "theory.png")
    plt.close(figure)
    return ["theory.png"]


def verdicts(pieces: Sequence[Done]) -> list[Verdict]:
    return [_th1(of_kind(pieces, *KINDS)), _th2(of_kind(pieces, "norms", "narrow"))]


def _th1(pieces: Sequence[Done]) -> Verdict:
    if not pieces:
        return Verdict("TH1", Judgement.OPEN, "", "No problem is done.")
    rows = [piece.row for piece in pieces]
    off, below = max(map(_mapped, rows)), sum(map(_below, rows))
    runs = sum(len(row["reached"]) for row in rows)
    closest = min(_excess(row, 0) for row in rows)
    holds = off <= ROUNDING * 100 and below == 0
    return Verdict(
        "TH1",
        Judgement.HOLDS if holds else Judgement.FAILS,
        f"{off:.0e} apart; {below} of {runs} runs below",
        f"On {len(rows)} problems the mapped network has the objective of the certified convex "
        f"solution, and no run of L-BFGS ends below the lower bound; the best comes within "
        f"{closest:.0e}. The same holds for ReLU networks with all patterns.",
    )


def _th2(pieces: Sequence[Done]) -> Verdict:
    if not of_kind(pieces, "norms") or not of_kind(pieces, "narrow"):
        return Verdict("TH2", Judgement.OPEN, "", "Its decompositions are not done.")
    random = [r for p in of_kind(pieces, "norms") for r in p.row["ratios"]["min-norm"]]
    narrow = {
        p.settings["angle"]: p.row["ratios"]["min-norm"][0] for p in of_kind(pieces, "narrow")
    }
    above = sum(ratio > FACTOR for ratio in random)
    worst = max([*random, *narrow.values()])
    angle = min(narrow)
    return Verdict(
        "TH2",
        Judgement.FAILS if worst > FACTOR else Judgement.HOLDS,
        f"{worst:.4g} (printed 2)",
        f"Even the decomposition with the smallest norm exceeds the bound: in {above} of "
        f"{len(random)} random cases of full row rank, and by any factor in narrow cones "
        f"({narrow[angle]:.4g} at an angle of {angle:g}). 1 + 2 kappa of the rows is a bound. The "
        "cone of the paper's Figure 2 is a counterexample too.",
    )
