"""How much memory does a problem take whose expanded matrix would need 12 GB?

Run as a module of its own (`python -m benchmarks.memory REQUEST`) this is the process measured.
"""

from __future__ import annotations

import itertools
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.instances import DTYPES, LARGE, QUICK, Size
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

MAX_BYTES = 10**9
LAM = 1e-3
# late in a run, when most blocks are zero, products keep a copy of the others' patterns
ITERATIONS = (20, 100)
STAGES = ("imports", "data", "patterns", "problem", "solve and certify")


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    size = QUICK[0] if options.quick else LARGE
    for dtype, iterations in itertools.product(DTYPES, ITERATIONS):
        request = json.dumps({"size": asdict(size), "dtype": dtype, "iterations": iterations})
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", request],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        row = {"size": str(size), "dtype": dtype, **json.loads(process.stdout)}
        yield f"{size} {dtype} {iterations} iterations", row


def measured_process(size: Size, dtype: str, iterations: int) -> Row:
    """Sample, build, iterate and certify; the peak of the resident memory after each stage."""
    import cvxnn
    import cvxnn.solvers

    peaks = [peak_bytes()]
    instance = size.make()
    X, Y = instance.X.astype(dtype), instance.Y.astype(dtype)
    peaks.append(peak_bytes())
    patterns = cvxnn.sample_patterns(X, size.p, random_state=0)
    peaks.append(peak_bytes())
    problem = cvxnn.CGReLU(X, Y, patterns, LAM)
    peaks.append(peak_bytes())
    solution = cvxnn.solve(problem, "rfista", tol=0, max_iter=iterations, on_failure="ignore")
    peaks.append(peak_bytes())
    return {
        "peaks": dict(zip(STAGES, peaks, strict=True)),
        "expanded_matrix": size.n * size.p * size.d * X.itemsize,
        "patterns": len(patterns),
        "iterations": solution.n_iter,
        "active": solution.n_active,
        "relative_gap": solution.certificate.relative_gap,
    }


def peak_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux `getrusage` also counts the parent as it was when it started us, VmHWM does not.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def present(rows: Rows) -> str:
    lines = [
        (
            f"{row['size']}, {row['dtype']}",
            row["iterations"],
            *(f"{row['peaks'][stage] / 1e6:.0f}" for stage in STAGES),
            f"{row['expanded_matrix'] / 1e6:.0f}",
        )
        for row in rows.values()
    ]
    return (
        "Peak resident memory in MB after each stage, in a fresh process; the last stage is "
        "R-FISTA for the given number of iterations, and the certificate.\n\n"
        + markdown_table(("instance", "iterations", *STAGES, "expanded matrix"), lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}: {max(row['peaks'].values()) / 1e6:.0f} MB, wanted below {MAX_BYTES / 1e6:.0f} MB"
        for case, row in rows.items()
        if max(row["peaks"].values()) >= MAX_BYTES
    ]


BENCHMARK = Benchmark(
    "memory", "Memory: the expanded matrix is never formed", measure, present, misses
)

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    size = Size(**asked["size"])
    print(json.dumps(measured_process(size, asked["dtype"], asked["iterations"])))
