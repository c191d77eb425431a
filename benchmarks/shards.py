"""Rows in several processes against all of them in one: answers, processor time, and what is sent.

Run as a module of its own (`python -m benchmarks.shards REQUEST`), this is a process of a group, or
the one that has a Dask cluster train on more rows than anybody would give one process.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_bytes
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

LOSSES = ("squared", "huber", "logistic", "softmax")
CUTS = {  # where the rows of each process begin, as shares, and where those of the last one end
    "1": (0, 1),
    "2": (0, 0.5, 1),
    "3": (0, 0.3, 0.7, 1),
    "uneven": (0, 0.004, 0.004, 1),  # one row, none, and all the others
}
SMALL = {"n": 300, "d": 4, "p": 20, "share": 0.2}
LARGE = {"n": 200_000, "d": 50, "p": 500, "share": 0.1}
COUPLED = {"n": 20_000, "d": 10, "p": 100, "share": 0.03}
MANY = {"n": 10_000_000, "d": 20, "p": 200, "tol": 1e-2, "files": 40}
AGREEMENT, SINGLE, MORE = 1e-10, 1e-5, 1.10  # at most: differences, and processor time
SECONDS = 600.0  # of a fit on the cluster


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    def wanted(case: str) -> bool:
        return case not in rows and all(word in case for word in options.only)

    for loss in LOSSES:
        for solver in ("newton", "rfista"):
            case = f"agreement: {loss}, {solver}"
            if wanted(case):
                yield case, _agreement({**SMALL, "loss": loss, "solver": solver})
    size = {**LARGE, "n": 4000} if options.quick else LARGE
    for solver, steps in (("rfista", 30), ("newton", 6)):
        case = f"time: {solver}, {size['n']:,} x {size['d']}, {size['p']} patterns"
        request = {**size, "loss": "squared", "solver": solver, "max_iter": steps, "tol": 0.0}
        if wanted(case):
            one = _group(1, [{**request, "cut": None}])
            two = _group(2, [{**request, "cut": _evenly(2)}])
            yield case, {"one": one[0][0], "two": two[0]}
    size = {**COUPLED, "n": 3000} if options.quick else COUPLED
    case = f"softmax: newton, {size['n']:,} x {size['d']}, 4 classes, {size['p']} patterns"
    if wanted(case):
        request = {**size, "loss": "softmax", "solver": "newton", "tol": 1e-4}
        found = _group(3, [{**request, "cut": _evenly(ranks)} for ranks in (1, 2, 3)])
        yield case, {str(len(its)): its[0] for its in found}
    size = {**MANY, "n": 40_000, "files": 4} if options.quick else MANY
    case = f"cluster: {size['n']:,} x {size['d']}, {size['p']} patterns"
    if wanted(case):
        request = {**size, "cluster": True, "seconds": options.max_seconds or SECONDS}
        yield case, _process(request)


def _agreement(request: dict[str, Any]) -> Row:
    """Every cut against one process, in both precisions."""
    runs = [
        {**request, "dtype": dtype, "tol": tol, "cut": cut}
        for dtype, tol in (("float64", 1e-8), ("float32", 1e-5))
        for cut in (None, *CUTS.values())
    ]
    (here, *there), (here_single, *there_single) = _halves(_group(3, runs))
    row: Row = {
        "float64": {name: _difference(its, here[0]) for name, its in zip(CUTS, there, strict=True)},
        "float32": {
            name: _difference(its, here_single[0])
            for name, its in zip(CUTS, there_single, strict=True)
        },
    }
    return row


def _halves(found: list[list[Row]]) -> tuple[list[list[Row]], list[list[Row]]]:
    return found[: len(found) // 2], found[len(found) // 2 :]


def _difference(found: list[Row], here: Row) -> Row:
    there = found[0]
    return {
        "difference": abs(there["objective"] - here["objective"]) / here["objective"],
        "support": there["support"] == here["support"],
        "overlap": there["bound"] <= here["objective"] and here["bound"] <= there["objective"],
        "same": all(other["digest"] == there["digest"] for other in found),
        "gap": there["gap"],
    }


def _evenly(size: int) -> tuple[float, ...] | None:
    return tuple(k / size for k in range(size + 1)) if size > 1 else None


def _group(size: int, requests: list[dict[str, Any]]) -> list[list[Row]]:
    """What so many processes find, one request after the other: those of each request, of which
    there may be fewer. One without a cut is for one process with all rows."""
    runs = [{**request, "port": _free_port()} for request in requests]
    running = [_start({"rank": rank, "runs": runs}) for rank in range(size)]
    answers = [_answer(process) for process in running]
    return [[row for row in rows if row is not None] for rows in zip(*answers, strict=True)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _process(request: dict[str, Any]) -> Row:
    return _answer(_start(request))


def _start(request: dict[str, Any]) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.shards", json.dumps(request)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _answer(process: subprocess.Popen[str]) -> Any:
    told, complaints = process.communicate()
    if process.returncode:
        raise RuntimeError(complaints)
    return json.loads(told.splitlines()[-1])


# -- in a process of its own


def process_of_a_group(request: dict[str, Any], rank: int) -> Row | None:
    """One solve, on the rows of this process; None if it has no part in that."""
    import hashlib

    import numpy as np

    import cvxnn
    from cvxnn.ranks import ALONE, Ranks, TorchRanks
    from cvxnn.solvers.newton import joint
    from cvxnn.solvers.newton.systems import conjugate_gradients

    cut = request["cut"]
    ranks: Ranks = ALONE
    size = 1 if cut is None else len(cut) - 1
    if rank >= size:
        return None
    if cut is not None:
        ranks = TorchRanks.connect("shards", rank, size, ("127.0.0.1", request["port"]))
    X, Y = _data(request)
    rows: Any = X
    if cut is not None:
        own = slice(*(round(end * len(X)) for end in cut[ranks.rank : ranks.rank + 2]))
        rows, Y = cvxnn.ShardedRows(X[own].copy(), ranks), Y[own].copy()
        del X
    counts: list[int] = []
    solve_by_gradients = conjugate_gradients

    def counting(*args: Any, **options: Any) -> Any:
        found = solve_by_gradients(*args, **options)
        counts.append(found[1])
        return found

    joint.conjugate_gradients = counting
    bias = request["loss"] != "huber"  # with an output bias and without
    patterns = cvxnn.sample_patterns(rows, request["p"], bias=True, random_state=0)
    problem = cvxnn.CGReLU(
        rows, Y, patterns, 1.0, loss=request["loss"], bias=True, output_bias=bias
    )
    problem = problem.with_lam(request["share"] * cvxnn.lambda_max(problem))
    sent = getattr(ranks, "n_calls", 0), getattr(ranks, "n_bytes", 0)
    began = time.thread_time()
    solution = cvxnn.solve(
        problem,
        request["solver"],
        tol=request["tol"],
        max_iter=request.get("max_iter"),
        on_failure="ignore",
    )
    seconds = time.thread_time() - began
    weights = np.asarray(solution.weights)
    return {
        "objective": solution.certificate.objective,
        "bound": solution.certificate.lower_bound,
        "gap": solution.certificate.relative_gap,
        "support": np.flatnonzero(np.any(weights, axis=1)).tolist(),
        "digest": hashlib.sha256(weights.tobytes()).hexdigest(),
        "seconds": seconds,
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "collectives": getattr(ranks, "n_calls", 0) - sent[0],
        "bytes": getattr(ranks, "n_bytes", 0) - sent[1],
        "cg": sum(counts),
        "systems": len(counts),
    }


def _data(request: dict[str, Any]) -> tuple[Any, Any]:
    import numpy as np

    rng = np.random.default_rng(1)
    n, d, loss = request["n"], request["d"], request["loss"]
    C = 4 if loss == "softmax" else 1
    X = rng.standard_normal((n, d)).astype(request.get("dtype", "float64"))
    hidden = np.maximum(X @ rng.standard_normal((d, 8)), 0)
    Z = hidden @ rng.standard_normal((8, C)) + 0.5 * rng.standard_normal((n, C))
    if loss == "logistic":
        return X, np.sign(Z)
    return X, np.eye(C)[Z.argmax(axis=1)] if loss == "softmax" else Z


def process_of_a_cluster(request: dict[str, Any]) -> Row:
    """Rows in Parquet files, which two workers of a Dask cluster read and train on."""
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    from cvxnn.dask import DaskGatedReLURegressor

    folder = Path(tempfile.mkdtemp(prefix="cvxnn-shards-"))
    try:
        columns = _write(folder, request["n"], request["d"], request["files"])
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
        )
        with cluster, Client(cluster) as client:
            before = client.run(peak_bytes)
            table = dd.read_parquet(folder / "*.parquet")
            model = DaskGatedReLURegressor(
                client=client,
                n_patterns=request["p"],
                tol=request["tol"],
                max_seconds=request["seconds"],
            )
            began = time.monotonic()
            model.fit(table[columns], table["y"])
            seconds = time.monotonic() - began
            peaks = client.run(peak_bytes)
        bounds = model.certificate_
        return {
            "gigabytes": 8e-9 * request["n"] * request["d"],
            "seconds": seconds,
            "objective": bounds.objective,
            "bound": bounds.lower_bound,
            "gap": bounds.relative_gap,
            "proven": bounds.proven,
            "wanted": request["tol"],
            "iterations": int(model.n_iter_),
            "passes": model.history_[-1].n_products,
            "neurons": len(model.network_.W1),
            "before": max(before.values()),
            "peaks": sorted(peaks.values()),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, n: int, d: int, files: int) -> list[str]:
    """Rows in pieces, so that they are never in memory together; the names of the columns."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((d, 10)) / np.sqrt(d), rng.standard_normal(10)
    columns = [f"x{k}" for k in range(d)]
    for part in range(files):
        X = rng.standard_normal((n // files, d))
        y = np.maximum(X @ first, 0) @ second + 0.3 * rng.standard_normal(len(X))
        content = dict(zip(columns, X.T, strict=True)) | {"y": y}
        pq.write_table(pa.table(content), folder / f"part{part:03}.parquet", compression=None)
    return columns


# -- what is shown


def present(rows: Rows) -> str:
    parts = [_agreement_table(rows), _time_table(rows), _softmax_table(rows), _cluster_table(rows)]
    return "\n\n".join(part for part in parts if part)


def _chosen(rows: Rows, kind: str) -> list[tuple[str, Row]]:
    return [(case.partition(": ")[2], row) for case, row in rows.items() if case.startswith(kind)]


def _agreement_table(rows: Rows) -> str:
    lines = [
        (case, dtype, *(f"{its[cut]['difference']:.0e}" for cut in CUTS), _same(its))
        for case, row in _chosen(rows, "agreement")
        for dtype, its in row.items()
    ]
    if not lines:
        return ""
    header = ("loss, solver", "numbers", *CUTS, "support")
    n, d, p = SMALL["n"], SMALL["d"], SMALL["p"]
    return (
        f"Objectives of gated networks ({n} rows, {d} columns, {p} patterns, "
        f"{SMALL['share']:g} lambda_max) on rows in several processes against one process: "
        "relative differences by number of processes, at a relative gap of 1e-8 in float64 and "
        "1e-5 in float32. Uneven shards are one row, none, and all the others. The last column "
        "says whether the same pairs of pattern and class are active.\n\n"
        + markdown_table(header, lines)
    )


def _same(its: Row) -> str:
    return "same" if all(its[cut]["support"] for cut in CUTS) else "different"


def _time_table(rows: Rows) -> str:
    lines = []
    for case, row in _chosen(rows, "time"):
        one, two = row["one"]["seconds"], [found["seconds"] for found in row["two"]]
        first = row["two"][0]
        sent = f"{first['bytes'] / 1e6:.1f}"
        times = (f"{one:.1f}", " + ".join(f"{s:.1f}" for s in two), f"{sum(two) / one:.2f}")
        lines.append((case, *times, first["iterations"], first["collectives"], sent))
    if not lines:
        return ""
    header = ("solver", "one process", "two", "ratio", "iterations", "collectives", "MB sent")
    return (
        "Processor seconds of the solver's thread, and what each process puts into collectives, "
        "for the same number of iterations. Where the rows are in one process, Newton's systems "
        "are solved in one compiled call; with several, their iterations are in NumPy.\n\n"
        + markdown_table(header, lines)
    )


def _softmax_table(rows: Rows) -> str:
    lines = []
    for _, row in _chosen(rows, "softmax"):
        for ranks, its in row.items():
            mean = f"{its['cg'] / max(its['systems'], 1):.1f}"
            sent = f"{its['bytes'] / 1e6:.1f}"
            steps = (its["iterations"], its["systems"], its["cg"], mean)
            lines.append((ranks, *steps, its["collectives"], sent, f"{its['gap']:.0e}"))
    if not lines:
        return ""
    header = (
        "processes",
        "iterations",
        "solves",
        "conjugate gradients",
        "for each",
        "collectives",
        "MB sent",
        "relative gap",
    )
    case = _chosen(rows, "softmax")[0][0]
    return (
        f"A loss that couples outputs ({case}): iterations of conjugate gradients for Newton's "
        "systems. One process may also take preconditioners that have all rows in one matrix.\n\n"
        + markdown_table(header, lines)
    )


def _cluster_table(rows: Rows) -> str:
    lines = []
    for case, row in _chosen(rows, "cluster"):
        peaks = " and ".join(f"{peak / 1e9:.1f}" for peak in row["peaks"])
        proven = f"{row['gap']:.1e}" + ("" if row["proven"] else ", up to rounding")
        sizes = (f"{row['gigabytes']:.1f}", f"{row['seconds']:.0f}", row["passes"])
        lines.append((case, *sizes, proven, peaks))
    if not lines:
        return ""
    header = ("rows", "GB", "seconds", "passes", "relative gap", "peak GB of each worker")
    return (
        "`DaskGatedReLURegressor` from Parquet files on two workers of one thread, on this "
        "machine; seconds are by the clock, with reading.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in _chosen(rows, "agreement"):
        for dtype, most in (("float64", AGREEMENT), ("float32", SINGLE)):
            for cut in CUTS:
                its, where = row[dtype][cut], f"{case}, {dtype}, {cut} shards"
                if not its["difference"] <= most:
                    found.append(f"{where}: objectives differ by {its['difference']:.0e}")
                if not its["overlap"] or not its["same"]:
                    found.append(f"{where}: certificates or weights contradict each other")
                if dtype == "float64" and not its["support"]:
                    found.append(f"{where}: another support")
    for case, row in _chosen(rows, "time"):
        ratio = sum(its["seconds"] for its in row["two"]) / row["one"]["seconds"]
        if ratio > MORE:
            found.append(f"{case}: two processes take {ratio:.2f} times the processor time of one")
    for case, row in _chosen(rows, "cluster"):
        if row["gap"] > row["wanted"] or not row["proven"]:
            found.append(f"{case}: relative gap {row['gap']:.1e}, wanted {row['wanted']:g}")
    return found


BENCHMARK = Benchmark(
    name="shards",
    title="Rows in several processes",
    measure=measure,
    present=present,
    misses=misses,
    resumable=True,
)

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    answer: Any
    if "cluster" in asked:
        answer = process_of_a_cluster(asked)
    else:
        answer = [process_of_a_group(run, asked["rank"]) for run in asked["runs"]]
    sys.stdout.write(json.dumps(answer) + "\n")
