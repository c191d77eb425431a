"""Kills of workers of a Dask cluster during a fit, and what larger clusters should take.

One of two local workers is killed at a random moment, from the reading of the files to the last
certificate. Every fit has to end with a certified network, as good as that of the fit that nobody
disturbed. The cost model is arithmetic on stated assumptions; one of them, the rate of products, is
measured here as well.
"""

from __future__ import annotations

import math
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cvxnn
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

SEED = 0
N, D, FILES = 40_000, 10, 8
KILLS, QUICK_KILLS = 10, 1
RETURN = 60  # seconds for a killed worker to be there again
TOL = 1e-4
SETTINGS: dict[str, Any] = {"kind": "gated", "alpha": 3e-4, "n_patterns": 300, "tol": TOL}

# of the cost model
WORKERS, SIZES = (8, 64, 1024), (10**7, 10**8)
D_MODEL, P_MODEL = 100, 1000
RATE = 4e11  # n p d a second and worker, of a product with the patterns
BANDWIDTH, HOP = 1.25e9, 50e-6  # bytes a second of 10 Gb/s, and seconds a message
METHODS = {"R-FISTA": (600, 600), "Newton": (300, 1100)}  # passes, and sums over all workers


def write_rows(folder: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((N, D))
    values = np.maximum(X[:, 0], 0) - X[:, 1] * np.sign(X[:, 2]) + 0.5 * rng.standard_normal(N)
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(D)])
    frame["label"] = np.where(values > 0, "yes", "no")
    for k in range(FILES):
        frame[k * N // FILES : (k + 1) * N // FILES].to_parquet(folder / f"{k}.parquet")


def kills(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    """On a new cluster where workers of the last one did not come back in time."""
    rng = random.Random(SEED)
    n_kills = QUICK_KILLS if options.quick else KILLS
    plans = [(f"kill {k + 1}", rng.random(), rng.randrange(2)) for k in range(n_kills)]
    left = [plan for plan in plans if plan[0] not in rows]
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name))
        while left:
            for found in _on_one_cluster(Path(name), left):
                yield found
                left = [plan for plan in left if plan[0] != found[0]]


def _on_one_cluster(folder: Path, plans: list[tuple[str, float, int]]) -> Iterator[tuple[str, Row]]:
    from dask.distributed import Client, LocalCluster

    local = {"host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50, **local) as cluster,
        Client(cluster) as client,
    ):
        trained(client, folder)  # imports
        yield "undisturbed", (undisturbed := trained(client, folder))
        for case, share, which in plans:
            yield case, trained(client, folder, share * undisturbed["seconds"], which)
            try:
                client.wait_for_workers(2, timeout=RETURN)
            except TimeoutError:
                return


def trained(client: Any, folder: Path, moment: float | None = None, which: int = 0) -> Row:
    """A fit, in which a worker is killed after so many seconds."""
    from cvxnn.dask.tables import fit_on_cluster
    from cvxnn.tables.shards import FilesOfCluster, pieces_of

    reading = {"delimiter": None, "encoding": None}
    files = FilesOfCluster(folder, pieces_of(folder), reading)
    victim = sorted(client.run(os.getpid).values())[which]
    start, seen = time.perf_counter(), [0]

    def follow(progress: Any) -> None:
        seen[0] = progress.n_iter

    killed: dict[str, Any] = {}

    def kill() -> None:
        killed["iteration"] = seen[0]
        os.kill(victim, signal.SIGKILL)

    timer = threading.Timer(moment or 0, kill)
    if moment is not None:
        timer.start()
    try:
        model = fit_on_cluster(client, files, "label", on_iteration=follow, **SETTINGS)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "moment": moment, **killed}
    finally:
        timer.cancel()
    bounds = model.certificate
    return {
        "moment": moment,
        "seconds": time.perf_counter() - start,
        "objective": bounds.objective,
        "lower_bound": bounds.lower_bound,
        "gap": bounds.relative_gap,
        "proven": bounds.proven,
        **killed,
    }


def rate() -> float:
    """n p d a second, of products forth and back on one processor, in its own seconds."""
    rng = np.random.default_rng(SEED)
    n, d, p = 100_000, 20, 200
    X = rng.standard_normal((n, d))
    patterns = cvxnn.sample_patterns(X, p, random_state=SEED)
    operator = cvxnn.CGReLU(X, X[:, 0], patterns, lam=0.1).operator
    U, R = rng.standard_normal((p, d, 1)), rng.standard_normal((n, 1))
    taken = []
    for _ in range(5):
        start = time.process_time()
        operator.forward(U)
        operator.adjoint(R)
        taken.append((time.process_time() - start) / 2)
    return n * d * p / min(taken)


def predicted(n: int, workers: int, method: str) -> float:
    """Seconds of a fit: products, which the workers share, and sums over all of them of as many
    numbers as there are weights, in a tree forth and back."""
    passes, sums = METHODS[method]
    products = passes * n * P_MODEL * D_MODEL / (RATE * workers)
    message = 2 * math.log2(workers) * HOP + 2 * 8 * P_MODEL * D_MODEL / BANDWIDTH
    return products + sums * message


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    if "rate" not in rows:
        yield "rate", {"rate": rate()}
    yield from kills(options, rows)


def present(rows: Rows) -> str:
    lines = [
        (
            case,
            "-" if row["moment"] is None else f"{row['moment']:.1f}",
            row.get("iteration", "-"),
            *(_number(row, name, form) for name, form in _COLUMNS.items()),
            row.get("error", "certified" if _certified(row) else "not certified"),
        )
        for case, row in rows.items()
        if case != "rate"
    ]
    header = ("fit", "killed after s", "at iteration", "s", "objective", "gap", "ended")
    here = rows["rate"]["rate"] if "rate" in rows else math.nan
    model = [
        (_power(n), workers, *(_time(predicted(n, workers, method)) for method in METHODS))
        for n in SIZES
        for workers in WORKERS
    ]
    return "\n\n".join(
        [
            f"A gated network of {N:,} rows and {D} columns in {FILES} Parquet files, with "
            f"{SETTINGS['n_patterns']} patterns and the logistic loss, to a gap of {TOL:g}, on two "
            "local workers. One of them is killed with `kill -9` at a random moment; iteration 0 "
            "is before the first one, while files are read and processes meet. A kill so late "
            "that the fit had ended before it has no iteration.",
            markdown_table(header, lines),
            "## What larger clusters should take",
            "Arithmetic, not a measurement: products take passes · n · p · d / (rate · workers), "
            "and each sum over all workers 2 · log2(workers) messages and the time of 2 · 8 · p · d"
            f" bytes. Assumed: d = {D_MODEL}, p = {P_MODEL}, one output; {RATE:.0e} n·p·d a second "
            f"for a worker of eight processors (one processor here: {here:.1e}); 10 Gb/s and "
            f"{1e6 * HOP:.0f} µs a message; "
            + "; ".join(f"{m} {a} passes and {b:,} sums" for m, (a, b) in METHODS.items())
            + ". Left out: reading the files, deciding what columns become (each goes to all "
            "workers once or twice), scheduling, and workers that are slower than others, for "
            "which all wait.",
            markdown_table(("rows", "workers", *METHODS), model),
        ]
    )


_COLUMNS = {"seconds": "{:.1f}", "objective": "{:.8f}", "gap": "{:.1e}"}


def _number(row: Row, name: str, form: str) -> str:
    return form.format(row[name]) if name in row else "-"


def _power(n: int) -> str:
    return f"10^{round(math.log10(n))}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _certified(row: Row) -> bool:
    return bool(row.get("proven") and row["gap"] <= TOL)


def misses(rows: Rows) -> list[str]:
    fits = {case: row for case, row in rows.items() if case != "rate"}
    missed = [
        f"{case}: not certified to {TOL:g}" for case, row in fits.items() if not _certified(row)
    ]
    good = [row for row in fits.values() if _certified(row)]
    n_kills = sum(case.startswith("kill") for case in fits)
    if n_kills not in (QUICK_KILLS, KILLS):
        missed.append(f"{n_kills} kills, wanted {KILLS}")
    highest = max((row["lower_bound"] for row in good), default=0.0)
    missed += [
        f"{case}: its objective is below a lower bound of the same problem"
        for case, row in fits.items()
        if _certified(row) and row["objective"] < highest * (1 - 1e-9)
    ]
    return missed


BENCHMARK = Benchmark(
    "cluster", "Workers that are killed", measure, present, misses, resumable=True
)
