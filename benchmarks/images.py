"""Pictures with ten classes, trained to a certified gap: time, memory, accuracy.

A case runs in a process of its own, on as many threads as there are cores, and keeps its run in a
checkpoint beside the results. The command goes on with a case that did not end, and takes as long
as `--max-seconds` says for each (in this call), so that the measurements fit into several nights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.record import RESULTS, ROOT, Benchmark, Options, Row, Rows, markdown_table
from benchmarks.train_images import data_file

LIMIT = 4 * 3600.0  # seconds of a case in one call, unless the command line says otherwise
CORES = 2  # that targets are stated for


class Case(NamedTuple):
    settings: dict[str, Any]  # see train_images.py
    hours: float  # of two cores, at most
    gigabytes: float


MNIST = {"data": "mnist", "p": 1000, "share": 0.01, "tol": 1e-3}
CIFAR = {"data": "cifar10", "p": 500, "patch": 8, "share": 0.01, "tol": 1e-2}
DIGITS = {"data": "digits", "p": 50, "patch": 3, "share": 0.01, "tol": 1e-3}
QUICK = {
    "digits (1,347 x 64), squared": Case(DIGITS | {"loss": "squared"}, 0.1, 2.0),
    "digits (1,347 x 64), softmax": Case(DIGITS | {"loss": "softmax"}, 0.1, 2.0),
}
CASES = {
    **QUICK,
    "MNIST (60,000 x 784), squared": Case(MNIST | {"loss": "squared"}, 1.0, 6.0),
    "MNIST (60,000 x 784), softmax": Case(MNIST | {"loss": "softmax"}, 2.0, 6.0),
    "CIFAR-10 (50,000 x 3072), squared": Case(CIFAR | {"loss": "squared"}, 2.0, 12.0),
    "CIFAR-10 (50,000 x 3072), softmax": Case(CIFAR | {"loss": "softmax"}, 2.0, 12.0),
}


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            yield from _all(QUICK, options, rows, Path(folder))
    else:
        yield from _all(CASES, options, rows, RESULTS / "images")


def _all(
    cases: dict[str, Case], options: Options, rows: Rows, folder: Path
) -> Iterator[tuple[str, Row]]:
    for name, case in cases.items():
        data = case.settings["data"]
        if data != "digits" and not data_file(data).exists():
            click.echo(f"no {data_file(data).name}: set CVXNN_DATA or CVXNN_CIFAR10", err=True)
        elif rows.get(name, {}).get("ended") != "converged":
            place = folder / "-".join(map(str, case.settings.values()))
            place.mkdir(parents=True, exist_ok=True)
            yield name, _run(case, place, options.max_seconds or LIMIT)


def _run(case: Case, folder: Path, limit: float) -> Row:
    threads = str(os.cpu_count() or CORES)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": threads}
    program = [sys.executable, str(ROOT / "benchmarks" / "train_images.py")]
    command = [*program, json.dumps(case.settings), str(folder), str(limit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    row = {"settings": case.settings, "hours": case.hours, "gigabytes": case.gigabytes}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return row | {"failed": lines[-1] if lines else f"exit code {done.returncode}"}
    return row | summary(folder / "journal")


def summary(journal: Path) -> Row:
    """The last line, with the processor time and the memory of all processes of the run."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    by_process = {line["process"]: line["processor"] for line in lines}
    return lines[-1] | {
        "processor": sum(by_process.values()),
        "megabytes": max(line["megabytes"] for line in lines),
        "processes": len(by_process),
        "trace": [[line["processor"], line["gap"]] for line in lines if "gap" in line][-200:],
    }


def present(rows: Rows) -> str:
    lines = []
    for name, r in rows.items():
        case = f"{name}, p = {r['settings']['p']}"
        if "failed" in r:
            lines.append((case, r["failed"], *[""] * 6))
            continue
        reached = "" if r["gap"] <= r["settings"]["tol"] else " (not reached)"
        lines.append(
            (
                case,
                f"{r['gap']:.1e}{reached}",
                f"{r['processor']:,.0f}",
                f"{CORES * 3600 * r['hours']:,.0f}",
                f"{r['megabytes'] / 1000:.1f} of {r['gigabytes']:g}",
                f"{r['iterations']:,} / {r['products']:,}",
                f"{r['neurons']:,}",
                f"{r['training']:.1%} / {r['test']:.1%}",
            )
        )
    header = (
        "case",
        "relative gap",
        "processor seconds",
        "at most",
        "GB",
        "iterations / passes",
        "neurons",
        "accuracy: training / test",
    )
    missing = [name for name in CASES if name not in rows]
    return (
        'Gated networks with ten outputs at 0.01 lambda_max, solver "auto", all threads. Gates '
        "are Gaussian for MNIST, on patches of 3 x 3 pixels for digits and of 8 x 8 for CIFAR-10. "
        "The mean image is subtracted first. Seconds are those of all threads and of all "
        "processes that worked on the run, reading the data and the certificate included; the "
        "limits are stated for two cores. A pass is one product with all patterns and classes; "
        "one in few principal axes counts as their share, and Newton counts one for each output."
        "\n\n"
        + markdown_table(header, lines)
        + (f"\n\nNot measured so far: {'; '.join(missing)}." if missing else "")
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for name, r in rows.items():
        if "failed" in r:
            found.append(f"{name}: {r['failed']}")
            continue
        if r["gap"] > r["settings"]["tol"]:
            found.append(f"{name}: gap {r['gap']:.1e} after {r['processor']:,.0f} s")
        elif r["processor"] > CORES * 3600 * r["hours"]:
            found.append(f"{name}: {r['processor']:,.0f} processor seconds")
        if r["megabytes"] > 1000 * r["gigabytes"]:
            found.append(f"{name}: {r['megabytes'] / 1000:.1f} GB")
    if rows.keys() & (CASES.keys() - QUICK.keys()):
        found += [f"{name}: not measured" for name in CASES if name not in rows]
    return found


BENCHMARK = Benchmark("images", "Pictures with ten classes", measure, present, misses, True)
