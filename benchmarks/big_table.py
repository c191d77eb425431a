"""A CSV file of 200 MB, by the command line alone: fit, predict, certify, prune and report.

Each command runs in a process of its own, twice: with the table in memory, and with a limit on the
memory of the fit, which then reads the file in pieces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

CVXNN = str(Path(sys.executable).with_name("cvxnn"))  # the command that installation made
COLUMNS, ROWS, QUICK_ROWS = 16, 1_250_000, 5_000
MEMORY = 2_000  # megabytes of the fit that has a limit
MINUTES, MOST = 5, 6_000  # of fit and report together, and megabytes of any command
FIT = "cvxnn fit big.csv --target label --model gated --patterns 100 --alpha 0.005"
OTHERS = (
    "cvxnn predict {model} big.csv -o predictions.csv",
    "cvxnn certify {model} big.csv",
    "cvxnn prune {model} big.csv -o smaller.cvxnn",
    "cvxnn report {model} big.csv -o report.html",
)
WAYS = {
    "in memory": ("model.cvxnn", ""),
    "with a limit": ("limited.cvxnn", f" --memory {MEMORY}MB"),
}


def measure(options: Options, done: Rows) -> Iterator[tuple[str, Row]]:
    n = QUICK_ROWS if options.quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "big.csv"), n)
        size = Path(folder, "big.csv").stat().st_size / 1e6
        for way, (model, limit) in WAYS.items():
            for command in (f"{FIT}{limit} -o {{model}}", *OTHERS):
                shown = command.format(model=model)
                yield shown, {"rows": n, "file": size, "way": way, **_measured(shown, folder)}


def write(path: Path, n: int) -> None:
    """Columns of numbers and one of texts; three of them and noise decide the label."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(",".join([*(f"x{k}" for k in range(COLUMNS)), "city", "label"]) + "\n")
        for start in range(0, n, 10_000):
            X = rng.standard_normal((min(10_000, n - start), COLUMNS))
            city = rng.choice(["Lima", "Oslo", "Rome"], len(X))
            score = np.abs(X[:, 0]) - X[:, 1] * (city == "Oslo")
            label = np.where(score + 0.5 * rng.standard_normal(len(X)) > 0.8, "yes", "no")
            for row, *texts in zip(X.tolist(), city.tolist(), label.tolist(), strict=True):
                file.write(",".join([*(f"{value:.6f}" for value in row), *texts]) + "\n")


def _measured(command: str, folder: str) -> Row:
    line = [CVXNN, *command.split()[1:], "--json"]
    start = time.perf_counter()
    with Path(folder, "told.json").open("w+") as told:
        process = subprocess.Popen(line, cwd=folder, stdout=told, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        told.seek(0)
        found = json.load(told) if os.waitstatus_to_exitcode(status) == 0 else {}
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": seconds,
        "processor": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss / 1000,
        "gap": found.get("relative_gap", found.get("certificate", {}).get("relative_gap")),
        "confirmed": found.get("confirmed"),
    }


def present(rows: Rows) -> str:
    first = next(iter(rows.values()))
    lines = [
        (
            f"`{command}`",
            f"{row['seconds']:.0f}",
            f"{row['processor']:.0f}",
            f"{row['megabytes']:,.0f}",
            "-" if row["gap"] is None else f"{row['gap']:.1e}",
        )
        for command, row in rows.items()
    ]
    return (
        f"A CSV file of {first['file']:.0f} MB: {first['rows']:,} rows with {COLUMNS} columns of "
        "numbers, one of texts and a label, of which a fifth is held out. Each command in a "
        "process of its own on one BLAS thread, imports included; memory is the most that it had. "
        f"With `--memory {MEMORY}MB` the fit reads the file in pieces; the other commands have no "
        "such limit. `certify` checks objective and lower bound by a second route.\n\n"
        + markdown_table(("command", "seconds", "processor (s)", "memory (MB)", "gap"), lines)
    )


def misses(rows: Rows) -> list[str]:
    missed = [f"{command}: exit code {row['code']}" for command, row in rows.items() if row["code"]]
    missed += [f"{c}: not confirmed" for c, r in rows.items() if r["confirmed"] is False]
    for way in WAYS:
        spent = {c.split()[1]: r["processor"] for c, r in rows.items() if r["way"] == way}
        fit = spent.get("fit", 0.0)
        if fit + spent.get("report", 0.0) > 60 * MINUTES:
            missed.append(f"fit and report, {way}: more than {MINUTES} minutes")
        missed += [
            f"{name}, {way}: dearer than the fit"
            for name in ("certify", "prune")
            if spent.get(name, 0.0) > max(fit, 10)  # less than that is imports
        ]
    for command, row in rows.items():
        limit = MEMORY if "--memory" in command else MOST
        if row["megabytes"] > limit:
            missed.append(f"{command}: {row['megabytes']:,.0f} MB, wanted {limit:,}")
    return missed


BENCHMARK = Benchmark("big_table", "A table of 200 MB", measure, present, misses)
