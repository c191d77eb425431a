"""What a default fit costs on an idle machine and beside two busy processes, against the same fit
with one thread for each call of the BLAS asked for from outside.

`CVXNN_OTHER=FOLDER` names the `src` folder of another version, to be measured beside this one.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

REPEATS = 1
WORST = 1.5  # processor seconds of a default fit, over those with one thread
BUSY = "while True: pass"
CODE = "from cvxnn.cli import main; main()"
SETTINGS = {"default": {}, "one thread": {"OMP_NUM_THREADS": "1"}}
LOADS = {"idle": 0, "two busy processes": 2}  # processes that do nothing but count


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    from sklearn.datasets import load_breast_cancer

    sources = {"this version": ROOT / "src"}
    if os.environ.get("CVXNN_OTHER"):
        sources["before"] = Path(os.environ["CVXNN_OTHER"]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        data = load_breast_cancer(as_frame=True).frame
        data.to_csv(Path(folder) / "data.csv", index=False)
        for source, load, setting in product(sources, LOADS, SETTINGS):
            name = f"{source}, {load}, {setting}"
            if name not in rows:
                repeats = []
                for _ in range(1 if options.quick else REPEATS):
                    with _busy(LOADS[load]):
                        taken = _fit(Path(folder), sources[source], SETTINGS[setting], options)
                    repeats.append(taken)
                wall, cpu = (statistics.median(values) for values in zip(*repeats, strict=True))
                yield (
                    name,
                    {"source": source, "load": load, "setting": setting, "wall": wall, "cpu": cpu},
                )


@contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _fit(
    folder: Path, source: Path, variables: dict[str, str], options: Options
) -> tuple[float, float]:
    # without the limits that all benchmarks run under
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {"PYTHONPATH": str(source), **variables}
    extra = ["--alpha", "0.01"] if options.quick else []
    command = ["fit", "data.csv", "--target", "target", "-o", "model.cvxnn", "--quiet", *extra]
    before, started = _children(), time.perf_counter()
    subprocess.run([sys.executable, "-c", CODE, *command], cwd=folder, env=environment, check=True)
    return time.perf_counter() - started, _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def present(rows: Rows) -> str:
    lines = [
        (r["source"], r["load"], r["setting"], f"{r['wall']:.1f}", f"{r['cpu']:.1f}")
        for r in rows.values()
    ]
    header = ("version", "machine", "BLAS threads", "wall seconds", "processor seconds")
    return (
        "`cvxnn fit` of 569 rows (breast cancer) with default settings: cross-validation over 15 "
        "strengths and five folds. `one thread` sets "
        "`OMP_NUM_THREADS=1`.\n\n" + markdown_table(header, lines, texts=3)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for load in LOADS:
        names = [f"this version, {load}, {setting}" for setting in SETTINGS]
        if all(name in rows for name in names):
            default, one = (rows[name]["cpu"] for name in names)
            if default > WORST * one:
                found.append(f"{load}: {default:.1f} processor seconds, {one:.1f} with one thread")
    return found


BENCHMARK = Benchmark(
    "threads", "Threads, idle and beside others", measure, present, misses, resumable=True
)
