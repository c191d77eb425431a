"""How fast are products with the expanded matrix, by the compiled kernels and by NumPy?"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import numpy as np

from benchmarks.instances import DTYPES, LARGE, QUICK, SMALL, Size
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.kernels import native
from cvxnn.operators.dense import ExpandedMatrix

SIZES = (
    SMALL,
    Size(n=4000, d=57, p=2500),
    LARGE,
    Size(n=2000, d=200, p=1000),
    Size(n=250, d=50, p=100),
    Size(n=2000, d=30, p=500, c=5),
)
ROUNDS = 9
SECONDS = 0.02  # of one measurement, at least: the clock of the processor is not fine
WAYS = ("forward", "adjoint")
KINDS = ("numpy", "kernels")


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    if native.library() is None:
        return
    for size in QUICK if options.quick else SIZES:
        for dtype in DTYPES:
            yield f"{size} {dtype}", compare(size, dtype)


def compare(size: Size, dtype: str) -> Row:
    """Processor seconds of a product, medians of rounds in which all take turns, and the peak of
    the memory while the operator is made and used once."""
    instance = size.make()
    X, mask = instance.X.astype(dtype), instance.X @ instance.gates >= 0
    rng = np.random.default_rng(0)
    U = rng.standard_normal((size.p, size.d, size.c)).astype(dtype)
    R = rng.standard_normal((size.n, size.c)).astype(dtype)
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    for kind in KINDS:
        operator = make(kind, X, mask)
        runs[kind, "forward"] = partial(operator.forward, U)
        runs[kind, "adjoint"] = partial(operator.adjoint, R)
    repeats = {key: max(1, round(SECONDS / seconds(run, 1))) for key, run in runs.items()}
    rounds = [{key: seconds(run, repeats[key]) for key, run in runs.items()} for _ in range(ROUNDS)]
    return {
        "size": str(size),
        "dtype": dtype,
        "operations": 2 * size.n * size.d * size.p * size.c,
        "seconds": {
            kind: {way: statistics.median(times[kind, way] for times in rounds) for way in WAYS}
            for kind in KINDS
        },
        "bytes": {kind: peak_bytes(kind, X, mask, U, R) for kind in KINDS},
    }


def make(kind: str, X: np.ndarray, mask: np.ndarray) -> ExpandedMatrix:
    with mock.patch.object(native, "multiplies", return_value=kind == "kernels"):
        return ExpandedMatrix(X, mask)


def peak_bytes(kind: str, X: np.ndarray, mask: np.ndarray, U: np.ndarray, R: np.ndarray) -> int:
    tracemalloc.start()
    operator = make(kind, X, mask)
    operator.forward(U)
    operator.adjoint(R)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def seconds(run: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        run()
    return max(1e-9, time.process_time() - start) / repeats


def ratio(row: Row, way: str) -> float:
    return float(row["seconds"]["numpy"][way] / row["seconds"]["kernels"][way])


def present(rows: Rows) -> str:
    lines = []
    for row in rows.values():
        line = [row["size"], row["dtype"]]
        for way in WAYS:
            times = (row["seconds"][kind][way] for kind in KINDS)
            line += [f"{row['operations'] / taken / 1e9:.0f}" for taken in times]
            line.append(f"{ratio(row, way):.1f}")
        lines.append([*line, *(f"{row['bytes'][kind] / 1e6:.1f}" for kind in KINDS)])
    speeds = ("forward: NumPy", "kernels", "ratio", "adjoint: NumPy", "kernels", "ratio")
    header = ("instance", "precision", *speeds, "MB: NumPy", "kernels")
    return (
        "Speed in GFlop/s, counting 2 n d p C operations for a product: NumPy multiplies with the "
        "mask as floating numbers, the kernels look up sums by bits of the mask. Processor time, "
        f"medians of {ROUNDS} rounds in turn. Memory is the peak while the operator is made and "
        "used once both ways, without the data and the boolean mask.\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}, {way}: {ratio(row, way):.2f} times the speed of NumPy, wanted 1"
        for case, row in rows.items()
        for way in WAYS
        if not ratio(row, way) >= 1
    ]


BENCHMARK = Benchmark(
    "products", "Products: bits of the mask and floating numbers", measure, present, misses
)
