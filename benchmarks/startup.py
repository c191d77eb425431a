"""How long people wait: import, help, errors, demonstration and a first fit."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.cli.outcomes import BAD_INPUT

PYTHON = sys.executable
CVXNN = str(Path(sys.executable).with_name("cvxnn"))  # the command that installation made

FIRST_FIT = """
from sklearn.datasets import load_breast_cancer
from cvxnn import ReLUClassifierCV
ReLUClassifierCV(n_jobs=2).fit(*load_breast_cancer(return_X_y=True))
"""

# what is shown: (command, repeats, target in seconds or None, exit code)
COMMANDS = {
    "python -c pass": ([PYTHON, "-c", "pass"], 5, None, 0),
    'python -c "import cvxnn"': ([PYTHON, "-c", "import cvxnn"], 5, 0.3, 0),
    "cvxnn --help": ([CVXNN, "--help"], 5, 0.5, 0),
    "cvxnn fit data.csv --targt y": ([CVXNN, "fit", "data.csv", "--targt", "y"], 5, 0.5, BAD_INPUT),
    "cvxnn fit nothing.csv --target y": (
        [CVXNN, "fit", "nothing.csv", "--target", "y"],
        5,
        0.5,
        BAD_INPUT,
    ),
    "cvxnn fit data.csv --target z": (
        [CVXNN, "fit", "data.csv", "--target", "z"],
        5,
        0.5,
        BAD_INPUT,
    ),
    "cvxnn predict data.csv data.csv": (
        [CVXNN, "predict", "data.csv", "data.csv"],
        5,
        0.5,
        BAD_INPUT,
    ),
    "cvxnn demo": ([CVXNN, "demo"], 2, 15.0, 0),
    "ReLUClassifierCV(n_jobs=2).fit(X, y), breast cancer": ([PYTHON, "-c", FIRST_FIT], 3, 20.0, 0),
}


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    for shown, (command, repeats, target, code) in COMMANDS.items():
        times(command, code)  # fills the caches of compiled modules and fonts
        measured = [times(command, code) for _ in range(1 if options.quick else repeats)]
        seconds, processor = (list(values) for values in zip(*measured, strict=True))
        yield (
            shown,
            {
                "seconds": seconds,
                "median": statistics.median(seconds),
                "median_processor": statistics.median(processor),
                "target": target,
            },
        )


def times(command: list[str], code: int = 0) -> tuple[float, float]:
    """Wall time and processor time; on a busy machine the first includes waiting for a core."""
    with tempfile.TemporaryDirectory() as folder:  # the demonstration writes a picture
        Path(folder, "data.csv").write_text("x,y\n1,2\n2,3\n")
        start, used = time.perf_counter(), processor_time_of_children()
        ended = subprocess.run(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert ended.returncode == code, command
        return time.perf_counter() - start, processor_time_of_children() - used


def processor_time_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def present(rows: Rows) -> str:
    lines = [
        (
            f"`{case}`",
            f"{row['median']:.3f}",
            f"{min(row['seconds']):.3f}-{max(row['seconds']):.3f}",
            f"{row['median_processor']:.3f}",
            len(row["seconds"]),
            "-" if row["target"] is None else f"{row['target']:g}",
        )
        for case, row in rows.items()
    ]
    header = (
        "command",
        "median (s)",
        "range (s)",
        "processor (s)",
        "repeats",
        "target (s)",
    )
    return (
        "Wall time of the whole command in a fresh interpreter, after installation and one "
        "run that is not counted; processor time is the median too.\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}: {row['median']:.3f} s, wanted below {row['target']:g} s"
        for case, row in rows.items()
        if row["target"] is not None and row["median"] >= row["target"]
    ]


BENCHMARK = Benchmark("startup", "Start-up times", measure, present, misses)
