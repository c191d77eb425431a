"""Rows in a file under a hard limit of memory, against the same rows in memory.

Run as a module of its own (`python -m benchmarks.out_of_core REQUEST`), this is what is measured.
The limit is on its address space (RLIMIT_AS), so that exceeding it by a byte is an error.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.memory import peak_bytes
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

SIZE = {"n": 3_750_000, "d": 200, "p": 200, "limit": 2 * 10**9, "tol": 1e-2}  # 6 GB of rows
QUICK = {"n": 40_000, "d": 20, "p": 50, "limit": 2 * 10**9, "tol": 1e-2}
SHARE = 0.1  # of lambda_max
MAX_RATIO = 2.0  # of processor time, file to memory
LIMIT = 1800.0  # seconds of the solve, unless the command line says otherwise
MADE_AT_ONCE = 20_000  # rows


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    size = QUICK if options.quick else SIZE
    name = f"{size['n']:,} x {size['d']}, {size['p']} patterns"
    for where in ("file", "memory"):
        request = {**size, "where": where, "seconds": options.max_seconds or LIMIT}
        if f"{name}: {where}" not in rows:
            yield f"{name}: {where}", _run(request)


def _run(request: dict[str, Any]) -> Row:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.out_of_core", json.dumps(request)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measured_process(
    n: int, d: int, p: int, limit: int, tol: float, where: str, seconds: float
) -> Row:
    if where == "file":
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    import numpy as np

    import cvxnn

    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((d, 20)) / np.sqrt(d), rng.standard_normal(20)
    y = np.empty(n)

    def chunks() -> Iterator[np.ndarray]:
        for start in range(0, n, MADE_AT_ONCE):
            X = rng.standard_normal((min(MADE_AT_ONCE, n - start), d))
            y[start : start + len(X)] = np.maximum(X @ teacher[0], 0) @ teacher[1]
            yield X

    if where == "file":
        rows: Any = cvxnn.StoredRows.from_chunks(chunks())
    else:
        rows = np.empty((n, d))
        for k, X in enumerate(chunks()):
            rows[k * MADE_AT_ONCE : k * MADE_AT_ONCE + len(X)] = X
    y += 0.5 * y.std() * rng.standard_normal(n)
    patterns, sampling = _timed(lambda: cvxnn.sample_patterns(rows, p, random_state=0))
    problem = cvxnn.CGReLU(rows, y / y.std(), patterns, 1.0)
    problem = problem.with_lam(SHARE * cvxnn.lambda_max(problem))
    U = rng.standard_normal((p, d, 1)) / 100
    passes = {"forward": lambda: problem.operator.forward(U), "adjoint": lambda: _adjoint(problem)}
    found = {name: min(_timed(run)[1] for _ in range(3)) for name, run in passes.items()}
    row = {"gigabytes": 8e-9 * n * d, "sampling": sampling, **found, "limit": limit}
    if where == "file":
        solution, taken = _timed(
            lambda: cvxnn.solve(problem, tol=tol, max_seconds=seconds, on_failure="ignore")
        )
        row |= {"gap": solution.certificate.relative_gap, "products": solution.n_products}
        row |= {"solve": taken, "solver": solution.solver.name, "wanted": tol}
    return {**row, "peak": peak_bytes()}


def _adjoint(problem: Any) -> Any:
    return problem.operator.adjoint(problem.loss.Y)


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    found = run()
    return found, time.process_time() - begin


def present(rows: Rows) -> str:
    lines = []
    for case, row in rows.items():
        if "failed" in row:
            lines.append((case, row["failed"], "", "", "", "", ""))
            continue
        solve = ""
        if "solve" in row:
            solve = f"{row['gap']:.1e} after {row['products']} passes, {row['solve']:.0f} s"
        times = (row["sampling"], row["forward"], row["adjoint"], row["forward"] + row["adjoint"])
        peak = f"{row['peak'] / 1e9:.2f}"
        lines.append((case, *(f"{value:.2f}" for value in times), peak, solve))
    header = ("rows", "sampling", "forward", "adjoint", "both", "peak GB", "relative gap")
    limit = next((row["limit"] for row in rows.values() if "limit" in row), 0) / 1e9
    return (
        "Processor seconds of one thread: patterns sampled, and the best of three products, with "
        f"the rows in a file under a hard limit of {limit:g} GB on the address space, and in "
        f"memory without one. The solve is of a gated network at {SHARE:g} lambda_max.\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    failed = [f"{case}: {row['failed']}" for case, row in rows.items() if "failed" in row]
    if failed:
        return failed
    both = {case.rpartition(" ")[2]: r["forward"] + r["adjoint"] for case, r in rows.items()}
    found = []
    if len(both) == 2 and both["file"] > MAX_RATIO * both["memory"]:
        ratio = both["file"] / both["memory"]
        found = [f"a pass over the file takes {ratio:.1f} times that in memory"]
    for case, row in rows.items():
        if "gap" in row and row["gap"] > row["wanted"]:
            found.append(f"{case}: relative gap {row['gap']:.1e}, wanted {row['wanted']:g}")
    return found


BENCHMARK = Benchmark(
    "out_of_core", "Rows in a file under a hard limit of memory", measure, present, misses, True
)

if __name__ == "__main__":
    print(json.dumps(measured_process(**json.loads(sys.argv[1]))))
