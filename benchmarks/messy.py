"""Messy tables as they come: one command each, and what it guessed. The tables are in packages on
PyPI, which go into a folder of their own and are no part of the project."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table
from benchmarks.startup import processor_time_of_children

FOLDER = ROOT / ".venv-messy"
PACKAGES = (
    "palmerpenguins==0.1.6",
    "vega_datasets==0.9.0",
    "bokeh_sampledata==2026.1",
    "lifelines==0.30.3",
    "statsmodels==0.15.0",
    "ISLP==0.6.0",
)
CVXNN = str(Path(sys.executable).with_name("cvxnn"))


@dataclass(frozen=True)
class Case:
    """A table, the column to predict, and options that somebody who looks at the notes adds.

    why : what makes it messy.
    """

    file: str
    target: str
    why: str
    options: tuple[str, ...] = ()


CASES = {
    "penguins": Case(
        "palmerpenguins/data/penguins-raw.csv", "Species", "dates, keys, comments, missing values"
    ),
    "riots": Case("vega_datasets/_data/la-riots.csv", "type", "names, addresses, dates; 63 rows"),
    "weather": Case("vega_datasets/_data/seattle-weather.csv", "weather", "dates with slashes"),
    "stocks": Case("vega_datasets/_data/stocks.csv", "price", "dates such as Jan 1 2000"),
    "titanic": Case("bokeh_sampledata/_data/titanic_all.csv", "survived", "names, ages missing"),
    "wages": Case(
        "ISLP/data/Wage.csv",
        "wage",
        "ordered categories such as 1. < HS Grad; a column that gives the target away",
        ("--drop", "logwage"),
    ),
    "superstore": Case(
        "bokeh_sampledata/_data/SampleSuperstore.csv.gz",
        "Profit",
        "cities, codes",
        ("--model", "gated"),
    ),
    "elements": Case(
        "bokeh_sampledata/_data/elements.csv", "metal", "numbers in texts, many values missing"
    ),
    "senators": Case(
        "lifelines/datasets/canadian_senators.csv", "reason", "dates before 1900, rare labels"
    ),
    "marriages": Case(
        "statsmodels/datasets/fair/fair.csv", "rate_marriage", "grades from 1 to 5 as the target"
    ),
}


def measure(options: Options, earlier: Rows) -> Iterator[tuple[str, Row]]:
    ready = FOLDER / ".ready"
    if not ready.exists() or ready.read_text() != "\n".join(PACKAGES):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        subprocess.run([*pip, "--target", str(FOLDER), *PACKAGES], check=True)
        ready.write_text("\n".join(PACKAGES))
    for name, case in list(CASES.items())[: 2 if options.quick else None]:
        if name not in earlier:
            yield name, _fit(case)


def command_of(case: Case) -> list[str]:
    return ["fit", Path(case.file).name, "--target", case.target, "--alpha", "0.01", *case.options]


def _fit(case: Case) -> Row:
    before = processor_time_of_children()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, Path(case.file).name)
        file.symlink_to(FOLDER / case.file)
        line = [CVXNN, *command_of(case), "--json"]
        ended = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        told = json.loads(ended.stdout)
        checked = subprocess.run(
            [CVXNN, "certify", "model.cvxnn", file.name, "--quiet"], cwd=folder, check=False
        )
    if ended.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(line)}: {told}")
    return {
        "package": next(p for p in PACKAGES if p.startswith(case.file.split("/")[0])),
        "command": "cvxnn " + " ".join(command_of(case)),
        "why": case.why,
        "rows": sum(told["rows"].values()),
        "columns": len(told["columns"]),
        "features": len(told["features"]),
        "task": told["task"],
        "scores": told["scores"].get("held_out", {}),
        "gap": told["certificate"]["relative_gap"],
        "confirmed": checked.returncode == 0,
        "processor_seconds": processor_time_of_children() - before,
        "notes": told["notes"],
    }


def present(rows: Rows) -> str:
    lines = [
        "What `cvxnn fit` makes of tables as they come, by the command below each of them. The "
        "tables are in packages on PyPI at the versions named, in a folder of their own. Scores "
        "are those of the held-out fifth: R² stands for a regression, accuracy for classes. The "
        "penalty is given, so that the fits take seconds. All certificates were checked by `cvxnn "
        "certify`, whose time is included.",
        "",
    ]
    cells = [
        [
            name,
            row["why"],
            f"{row['rows']:,}",
            f"{row['columns']} / {row['features']}",
            _score(row),
            "yes" if row["confirmed"] else "NO",
            f"{row['processor_seconds']:.0f} s",
        ]
        for name, row in rows.items()
    ]
    titles = ["table", "what is in it", "rows", "columns used / features", "held out", "confirmed"]
    lines.append(markdown_table([*titles, "processor time"], cells, texts=2))
    for name, row in rows.items():
        lines += ["", f"## {name}", "", f"`{row['command']}`, from `{row['package']}`", ""]
        lines += [f"- {note}" for note in row["notes"]] or ["- Nothing was guessed."]
    return "\n".join(lines)


def _score(row: Row) -> str:
    kind = "accuracy" if row["task"] == "classification" else "r2"
    value = row["scores"].get(kind)
    return "-" if value is None else f"{'R²' if kind == 'r2' else kind} {value:.3f}"


def misses(rows: Rows) -> list[str]:
    return [
        f"{name}: the certificate is not confirmed"
        for name, r in rows.items()
        if not r["confirmed"]
    ]


BENCHMARK = Benchmark("messy", "Ten messy tables", measure, present, misses, resumable=True)
