"""How large can it be: time and memory over rows, columns, patterns, classes and lambda.

One size at a time grows from a common problem (size_cases.py). A straight line through the larger
half of the points, in logarithms, is the exponent with which time grows there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from benchmarks.size_cases import run

LIMIT = 60.0  # seconds of one solve
KINDS = {"CGReLU": "gated", "CReLU": "ReLU"}
SHARE = {"CGReLU": 0.01, "CReLU": 0.1}  # of lambda_max, unless that is what varies
MOST_WITH_ROWS = 1.3  # exponent, which is 1 for what only reads the rows
BASE = {"n": 2000, "d": 50, "p": 1000, "C": 1}


class Line(NamedTuple):
    """One size, its values, and what else differs from the common problem."""

    size: str
    values: tuple[float, ...]
    loss: str = "squared"
    at: Mapping[str, int] = MappingProxyType({})

    @property
    def name(self) -> str:
        rest = "".join(f", {size}={value}" for size, value in self.at.items())
        return f"{self.size}, {self.loss}{rest}"


LINES = [
    Line("n", (500, 2000, 8000, 32_000, 128_000)),
    Line("n", (500, 2000, 8000, 32_000, 128_000), "logistic"),
    Line("d", (10, 50, 200, 1000)),
    Line("p", (200, 1000, 5000)),
    Line("C", (1, 3, 10, 30)),
    Line("C", (3, 10, 30, 100), "softmax", {"p": 500}),
    Line("1/lambda", (3, 10, 100, 1000)),  # lambda_max over lambda
    Line("1/lambda", (3, 10, 100, 1000), "logistic"),
]
QUICK = [Line("n", (50, 100), at={"d": 5, "p": 20})]


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    limit = options.max_seconds or LIMIT
    for line in QUICK if options.quick else LINES:
        for kind in KINDS:
            too_long = False
            for value in line.values:
                case = f"{KINDS[kind]}, {line.name}, {value:g}"
                if case not in rows:
                    row = (
                        {"failed": "not tried"}
                        if too_long
                        else run(_code(kind, line, value), limit)
                    )
                    facts = {"kind": kind, "line": line.name, "value": value, "limit": limit}
                    rows[case] = row | facts
                    yield case, rows[case]
                too_long = not _reached(rows[case])


def _code(kind: str, line: Line, value: float) -> str:
    sizes, share = BASE | dict(line.at), SHARE[kind]
    if line.size == "1/lambda":
        share = 1 / value
    else:
        sizes[line.size] = int(value)
    given = ", ".join(f"{size}={number}" for size, number in sizes.items())
    return f"solved('{kind}', {given}, share={share}, loss='{line.loss}')"


def _reached(row: Row) -> bool:
    return "failed" not in row and row["gap"] <= row["wanted"]


def exponent(values: list[float], seconds: list[float]) -> float:
    """Of the larger half of the points; NaN for less than two."""
    some = slice(-max(2, (len(values) + 1) // 2), None)
    if len(values) < 2:
        return math.nan
    return float(np.polyfit(np.log(values[some]), np.log(seconds[some]), 1)[0])


def lines_of(rows: Rows) -> dict[tuple[str, str], list[Row]]:
    """The rows of each line and kind, in the order of their values."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows.values():
        found.setdefault((row["line"], row["kind"]), []).append(row)
    return {key: sorted(its, key=lambda row: row["value"]) for key, its in found.items()}


def present(rows: Rows) -> str:
    lines = []
    for (name, kind), its in lines_of(rows).items():
        solved = [row for row in its if _reached(row)]
        grows = exponent([r["value"] for r in solved], [r["seconds"] for r in solved])
        lines.append(
            (
                f"{name}, {KINDS[kind]}",
                " / ".join(f"{row['value']:g}" for row in its),
                " / ".join(_text(row, "seconds", ".2g") for row in its),
                "" if math.isnan(grows) else f"{grows:.1f}",
                " / ".join(_text(row, "megabytes", ".0f") for row in its),
            )
        )
    longest = max(row["limit"] for row in rows.values())
    base = ", ".join(f"{size} = {value}" for size, value in BASE.items())
    header = ("what grows", "its values", "processor seconds", "exponent", "peak MB")
    return (
        f"One size at a time grows; the others are {base}, with squared loss, lambda at "
        f"{SHARE['CGReLU']} (gated) or {SHARE['CReLU']} (ReLU) of lambda_max, Gaussian gates, and "
        "a relative gap of 1e-3, on one thread. n are rows, d columns, p patterns, C outputs or "
        "classes; 1/lambda is lambda_max over lambda. Exponents are fitted to the larger half of "
        f"the values. A dash is a gap that was not reached in {longest:.0f} seconds; larger values "
        "of that line were not tried.\n\n"
        + markdown_table(header, lines, texts=2)
        + "\n\n![Seconds over each size](growth.png)\n\n"
        + _memory(rows)
    )


def _text(row: Row, key: str, form: str) -> str:
    return f"{row[key]:{form}}" if _reached(row) else "–"


def _memory(rows: Rows) -> str:
    """What a row costs, from the largest gated problem."""
    gated = lines_of(rows).get(("n, squared", "CGReLU"), [])
    gated = [row for row in gated if _reached(row)]
    if len(gated) < 2:
        return ""
    few, many = gated[0], gated[-1]
    bytes_a_row = (many["megabytes"] - few["megabytes"]) * 2**20 / (many["value"] - few["value"])
    least = BASE["d"] * 8 + BASE["p"] / 4
    return (
        f"A further row of {BASE['d']} columns and {BASE['p']} patterns takes {bytes_a_row:.0f} "
        "bytes of a gated solve, data included; the row itself and its bits, in the two "
        f"directions that products need, are {least:.0f}."
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for (name, kind), its in lines_of(rows).items():
        solved = [row for row in its if _reached(row)]
        grows = exponent([r["value"] for r in solved], [r["seconds"] for r in solved])
        if name.startswith("n,") and len(solved) > 2 and grows > MOST_WITH_ROWS:
            found.append(f"{name}, {KINDS[kind]}: time grows as n^{grows:.1f}")
    return found


def draw(rows: Rows, path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    lines = lines_of(rows)
    names = list(dict.fromkeys(name for name, _ in lines))
    columns = min(4, len(names))
    shape = (math.ceil(len(names) / columns), columns)
    fig, axes = plt.subplots(
        *shape, figsize=(3.1 * columns, 2.8 * shape[0]), layout="constrained", squeeze=False
    )
    for ax, name in zip(axes.flat, names, strict=False):
        for kind, colour, marker in (("CGReLU", "#1f5fa8", "o"), ("CReLU", "#c65d1e", "^")):
            its = [row for row in lines.get((name, kind), []) if _reached(row)]
            x, y = [row["value"] for row in its], [row["seconds"] for row in its]
            ax.plot(x, y, color=colour, marker=marker, ms=5, label=KINDS[kind])
        ax.set(xscale="log", yscale="log", title=name, xlabel=name.split(",")[0])
        for axis in (ax.xaxis, ax.yaxis):  # labels between the decades would meet
            axis.set_minor_formatter(NullFormatter())
        ax.grid(alpha=0.3, which="both")
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("processor seconds")
    axes[0, 0].legend(frameon=False)
    fig.savefig(path, dpi=150)
    plt.close(fig)


BENCHMARK = Benchmark(
    "growth", "How large can it be", measure, present, misses, resumable=True, draw=draw
)
