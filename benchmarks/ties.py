"""What do rows that tie with gates cost? Integer columns and one-hot columns, cones with a bias.

Run as a module of its own (`python -m benchmarks.ties REQUEST`) this is the process measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.instances import Size
from benchmarks.memory import peak_bytes
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

SIZE, QUICK = Size(n=100_000, d=20, p=100), Size(n=2000, d=20, p=20)
DEFAULT_PATTERNS = 500  # of the estimators
MAX_BYTES, MAX_SECONDS = 10**9, 60.0
LAM = 1e-3
CASES = {
    "normal gates": "no ties, for comparison",
    "integer gates": "every gate ties with thousands of rows",
    "no gates": "patterns from a mask",
    "singular": "integer gates without a bias: rows and their opposites tie",
    "default estimator": "500 patterns of standardised columns, ties by chance",
}


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    size = QUICK if options.quick else SIZE
    for case in CASES:
        request = json.dumps({"size": asdict(size), "case": case})
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.ties", request],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        yield f"{size} {case}", {"size": str(size), "case": case, **json.loads(process.stdout)}


def measured_process(size: Size, case: str) -> Row:
    """Build the problem, and nothing else; the peak of the resident memory before and after."""
    import cvxnn

    rng = np.random.default_rng(0)
    X = _data(size, rng)
    y = np.where(X @ rng.standard_normal(size.d) > 0, 1.0, -1.0)
    patterns, settings = _patterns(X, size, case, rng)
    before, started = peak_bytes(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=cvxnn.PatternWarning)
        problem = cvxnn.CReLU(X, y, patterns, LAM, **settings)
    seconds = time.perf_counter() - started
    cones = problem.cones
    return {
        "seconds": seconds,
        "before": before,
        "peak": peak_bytes(),
        "sampled": len(patterns),
        "patterns": len(problem.patterns),
        "notes": len(problem.notes),
        "least_slack": float(cones.slack(cones.interior, np.arange(cones.p)).min()),
    }


def _data(size: Size, rng: Any) -> np.ndarray:
    """Half of the columns are small integers, the others the classes of one feature."""
    integers = rng.integers(-3, 4, (size.n, size.d // 2)).astype(float)
    classes = np.eye(size.d - size.d // 2)
    return np.hstack([integers, classes[rng.integers(0, len(classes), size.n)]])


def _patterns(X: np.ndarray, size: Size, case: str, rng: Any) -> tuple[Any, dict[str, bool]]:
    import cvxnn

    if case == "normal gates":
        return cvxnn.sample_patterns(X, size.p, bias=True, random_state=0), {"bias": True}
    if case == "default estimator":
        X -= X.mean(axis=0)
        X /= X.std(axis=0)
        patterns = cvxnn.sample_patterns(X, DEFAULT_PATTERNS, bias=True, random_state=0)
        return patterns, {"bias": True, "output_bias": True}
    gates = rng.integers(-2, 3, (size.d, size.p)).astype(float)
    if case == "singular":
        X[:, size.d // 2 :] = 0
        gates[0] = 1.0
        return cvxnn.Patterns.from_gates(X, gates), {}
    bias = rng.integers(-2, 3, size.p).astype(float)
    patterns = cvxnn.Patterns.from_gates(X, gates, bias)
    if case == "no gates":
        patterns = cvxnn.Patterns.from_mask(patterns.mask)
    return patterns, {"bias": True}


def present(rows: Rows) -> str:
    lines = [
        (
            f"{row['case']}: {CASES[row['case']]}",
            f"{row['seconds']:.1f}",
            f"{row['before'] / 1e6:.0f}",
            f"{row['peak'] / 1e6:.0f}",
            row["sampled"],
            row["patterns"],
            f"{row['least_slack']:.1e}",
        )
        for row in rows.values()
    ]
    sizes = sorted({row["size"] for row in rows.values()})
    header = ("patterns", "seconds", "MB before", "MB peak", "given", "kept", "least slack")
    return (
        f"Building a C-ReLU problem, {', '.join(sizes)}: half of the columns are integers from -3 "
        "to 3, the others one-hot. Each case in a fresh process; peaks of resident memory, with "
        "data and patterns in memory before. The slack is the least distance of an interior point, "
        "a unit vector, from a row of its cone.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        if row["peak"] >= MAX_BYTES:
            found.append(f"{case}: {row['peak'] / 1e6:.0f} MB, wanted < {MAX_BYTES / 1e6:.0f} MB")
        if row["seconds"] >= MAX_SECONDS:
            found.append(f"{case}: {row['seconds']:.0f} s, wanted < {MAX_SECONDS:.0f} s")
        if not row["least_slack"] > 0:
            found.append(f"{case}: a cone without an interior point")
    return found


BENCHMARK = Benchmark("ties", "Ties: interior points of cones", measure, present, misses)

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(measured_process(Size(**asked["size"]), asked["case"])))
