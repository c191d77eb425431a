"""The page and the drawings of Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from benchmarks.record import markdown_table

from cvxnn.plots.drawing import BOUND, GAP, INK, OBJECTIVE, save_figure
from replication.experiment import Done, Row
from replication.pages import beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The points of the drawing; it shows -w
PRINTED = {"v": (25 / 7 + 2, -25 / 21 - 2 / 3), "w": (25 / 7, -20 / 7)}
METHODS = {"closed-form": "closed form", "min-norm": "smallest norm"}
PROBLEMS = ("C-GReLU", "NC-GReLU", "C-ReLU", "NC-ReLU")


def present(pieces: Sequence[Done]) -> str:
    found = {piece.key: piece for piece in pieces}
    parts = [
        "Both are drawings in the paper, without data. Here they are drawn from what the library "
        "computes."
    ]
    if "cone" in found:
        parts += ["## A cone decomposition", _cone(found["cone"].row)]
    if "relations" in found:
        parts += ["## Four problems", _relations(found["relations"])]
    return "\n\n".join(parts)


def _cone(row: Row) -> str:
    lines = []
    for method, name in METHODS.items():
        cells = [
            beside(row[method][point][k], PRINTED[point][k], 3, 0.001)
            for point in "vw"
            for k in range(2)
        ]
        lines.append([name, *cells, f"{row[method]['ratio']:.3f}"])
    table = markdown_table(
        ("decomposition", "v, x", "v, y", "w, x", "w, y", "(‖v‖ + ‖w‖) / ‖u‖"), lines
    )
    return "\n\n".join(
        [
            "u = (2, 1) as v - w, with v and w in the cone between the lines y = -x/3 and "
            "y = -4x/5, beside the points that the paper draws (it shows -w):",
            table,
            "The drawing is exact: these are the points of the closed form, with the "
            "pseudo-inverse of all rows, `w = X~^+ (-X~u)_+`. They are also the decomposition of "
            f"the smallest norm. It is {row['min-norm']['ratio']:.2f} times as long as u, although "
            "the two rows that make this cone have full row rank: the paper's own picture is a "
            "counterexample to the factor of 2 in its Proposition 3.4.",
        ]
    )


def _relations(piece: Done) -> str:
    row, settings = piece.row, piece.settings
    gated, relu = row["C-GReLU"], row["C-ReLU"]
    lines = []
    for name in PROBLEMS:
        value = row[name]
        bound = value.get("lower bound")
        lines.append(
            (
                name,
                f"{value['objective']:.8f}",
                "" if bound is None else f"{bound:.8f}",
                f"{value['neurons']}" if "neurons" in value else "",
                f"{value['back']:.8f}" if "back" in value else "",
            )
        )
    header = ("problem", "objective", "certified lower bound", "neurons", "mapped back")
    return "\n\n".join(
        [
            f"One problem: {settings['n']} rows, {settings['d']} columns, lambda = "
            f"{settings['lam']:g}, all {row['patterns']} patterns. The convex problems are solved "
            "to a certified optimum; the networks are what the maps make of their solutions, and "
            "the last column is the convex objective of what the map back makes of a network.",
            markdown_table(header, lines),
            "The maps keep the objective, as the theorems say, so that these networks are optimal. "
            "The cone decomposition of the gated solution has the objective "
            f"{row['decomposed']:.4f} in C-ReLU, whose optimum is {relu['objective']:.4f}: it is "
            "feasible, and far from optimal. The other way, v - w has the objective "
            f"{row['relaxed']:.4f} in C-GReLU, at least its optimum {gated['objective']:.4f}. The "
            'paper\'s caption writes "NC-GReLU and NC-GReLU" for NC-GReLU and NC-ReLU.',
        ]
    )


def draw(pieces: Sequence[Done], folder: Path) -> list[str]:
    import matplotlib.pyplot as plt

    names = []
    for piece in pieces:
        figure = _draw_cone(piece) if piece.key == "cone" else _draw_relations(piece.row)
        names.append(f"figure2-{piece.key}.png")
        save_figure(figure, folder / names[-1])
        plt.close(figure)
    return names


def _draw_cone(piece: Done) -> Figure:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
    u, found = np.array(piece.settings["u"]), piece.row["closed-form"]
    v, w = np.array(found["v"]), np.array(found["w"])
    edges = 20 * np.array([_edge(row, piece.settings["inside"]) for row in piece.settings["rows"]])
    for sign, name, colour, hatch in ((1, "K", OBJECTIVE, "//"), (-1, "−K", GAP, "..")):
        corners = np.vstack([np.zeros(2), sign * edges])
        ax.fill(*corners.T, facecolor=colour, alpha=0.18, linewidth=0)
        ax.fill(
            *corners.T, facecolor="none", edgecolor=colour, alpha=0.35, hatch=hatch, linewidth=0
        )
        place = sign * edges.mean(axis=0) / np.linalg.norm(edges.mean(axis=0)) * 5.2
        ax.text(*place, name, color=colour, fontsize=15, ha="center", va="center")
    for line in edges:
        ax.plot(*np.stack([-line, line]).T, color=INK, linewidth=1)
    for target, name, offset in ((v, "v", (8, 8)), (-w, "−w", (10, 8)), (u, "u", (8, 4))):
        if name != "u":
            arrow = {"arrowstyle": "->", "linestyle": "--", "color": BOUND, "linewidth": 1.6}
            ax.annotate("", xy=target, xytext=u, arrowprops=arrow)
        ax.plot(*target, "o", color=INK, markersize=6)
        text = f"{name} = ({target[0]:.3g}, {target[1]:.3g})".replace("-", "−")
        ax.annotate(text, target, xytext=offset, textcoords="offset points", fontsize=11)
    ax.set(xlim=(-6.5, 9.5), ylim=(-4.2, 4.2), xlabel="first weight", ylabel="second weight")
    ax.set_title(f"u = v − w,   ‖v‖ + ‖w‖ = {found['ratio']:.3f} ‖u‖", fontsize=11)
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def _edge(row: Sequence[float], inside: Sequence[float]) -> np.ndarray:
    """The unit vector along the line on which a row's product is zero, on the side of the cone."""
    edge = np.array([-row[1], row[0]]) / np.hypot(*row)
    return edge if edge @ np.array(inside) > 0 else -edge


def _draw_relations(row: Row) -> Figure:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
    ax.set(xlim=(0, 20), ylim=(0, 10))
    ax.axis("off")
    for bottom, colour, name in ((5.7, OBJECTIVE, "convex"), (0.3, BOUND, "non-convex")):
        frame = plt.Rectangle((0.2, bottom), 19.6, 4.0, facecolor=colour, alpha=0.1)
        ax.add_patch(frame)
        ax.text(10, bottom + 0.35, name, color=colour, ha="center", fontsize=10)
    places = {
        "C-GReLU": (4.2, 7.9),
        "C-ReLU": (15.8, 7.9),
        "NC-GReLU": (4.2, 2.5),
        "NC-ReLU": (15.8, 2.5),
    }
    for name, (x, y) in places.items():
        value = row[name]
        lower = value.get("lower bound")
        text = f"{name}\n{value['objective']:.6f}"
        text += f"\n≥ {_below(lower)}, certified" if lower else f"\n{value['neurons']} neurons"
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=11,
            bbox={"facecolor": "white", "edgecolor": INK, "boxstyle": "round,pad=0.5"},
        )
    for x, back in ((4.2, row["NC-GReLU"]["back"]), (15.8, row["NC-ReLU"]["back"])):
        _arrow(ax, (x, 6.7), (x, 3.7), "<->", INK)
        ax.text(x + 0.3, 5.1, f"solution map\nand back: {back:.6f}", fontsize=9, va="center")
    _arrow(ax, (7.2, 8.3), (12.8, 8.3), "->", BOUND)
    ax.text(10, 8.5, f"cone decomposition: {row['decomposed']:.4f}", ha="center", fontsize=9)
    _arrow(ax, (12.8, 7.3), (7.2, 7.3), "->", INK)
    ax.text(10, 6.6, f"u = v − w: {row['relaxed']:.6f}", ha="center", fontsize=9)
    return figure


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], style: str, colour: str
) -> None:
    look = {"arrowstyle": style, "color": colour, "linewidth": 1.8}
    ax.annotate("", xy=end, xytext=start, arrowprops=look)


def _below(value: float) -> str:
    """Rounded down, as a lower bound has to be."""
    return f"{np.floor(value * 1e6) / 1e6:.6f}"
