"""A large CSV file as a table and as features, with PyArrow and without, and by Polars alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

COLUMNS = 16
WAYS = {
    "cvxnn, with PyArrow": "encode(read_table(path))",
    "cvxnn, the core alone": "arrow.LEAST = 10**12; encode(read_table(path))",
    "Polars: texts, then numbers": "polars(path)",
}
PROGRAM = """
import json, sys, time
from cvxnn import TableEncoder, read_table
from cvxnn.tables import arrow
def encode(table):
    global read
    read = time.process_time() - start
    encoder, _ = TableEncoder().learn(table)
    encoder.encode(table)
def polars(path):
    global read
    import polars as pl
    frame = pl.read_csv(path, infer_schema=False)
    read = time.process_time() - start
    [frame[f"x{k}"].cast(pl.Float64).to_numpy() for k in range(16)]
def peak():  # of this program alone: what getrusage says includes the program that started it
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
path, before, start = sys.argv[1], peak(), time.process_time()
WAY
spent = time.process_time() - start
print(json.dumps({"read": read, "seconds": spent, "megabytes": peak() - before}))
"""


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    rows = 20_000 if options.quick else 240_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.csv")
        _write(path, rows)
        size = path.stat().st_size / 1e6
        for name, way in WAYS.items():
            line = [sys.executable, "-c", PROGRAM.replace("WAY", way), str(path)]
            told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
            yield name, {"rows": rows, "file": size, **json.loads(told)}


def _write(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    numbers, city = rng.standard_normal((n, COLUMNS)), rng.choice(["Lima", "Oslo", "Rome"], n)
    with path.open("w") as file:
        file.write(",".join([*(f"x{k}" for k in range(COLUMNS)), "city"]) + "\n")
        for row, name in zip(numbers.tolist(), city.tolist(), strict=True):
            file.write(",".join([*(f"{value:.6f}" for value in row), name]) + "\n")


def present(rows: Rows) -> str:
    first = next(iter(rows.values()))
    cells = [
        [name, f"{r['read']:.2f} s", f"{r['seconds']:.2f} s", f"{r['megabytes']:,.0f} MB"]
        for name, r in rows.items()
    ]
    titles = ["way", "read", "read and encoded", "memory at most, beyond the imports"]
    return (
        f"A CSV file of {first['file']:.0f} MB: {first['rows']:,} rows with {COLUMNS} columns of "
        "numbers and one of texts, in processor seconds. Polars reads the cells as texts, as cvxnn "
        "does, and casts the numbers; it decides nothing about the columns.\n\n"
        + markdown_table(titles, cells)
    )


def misses(rows: Rows) -> list[str]:
    seconds = [row["seconds"] for row in rows.values()]
    slow = len(seconds) > 1 and seconds[0] > seconds[1] / 2
    return ["PyArrow saves less than half of the time"] if slow else []


BENCHMARK = Benchmark("reading", "Reading tables", measure, present, misses)
