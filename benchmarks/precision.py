"""How small a certified gap can R-FISTA reach: 1e-9 in float64, 1e-4 in float32?

The runs are long. Each is recorded as soon as it ends, and a later call goes on with the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import cvxnn
from benchmarks.instances import COMPARED, DTYPES, LAMBDAS, QUICK, Size
from benchmarks.record import Benchmark, Options, Row, Rows, machine, markdown_table

WANTED = {"float64": 1e-9, "float32": 1e-4}
MAX_ITER = 500_000
MAX_SECONDS = 1500.0


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    sizes, lambdas = (QUICK, LAMBDAS[:1]) if options.quick else (COMPARED, LAMBDAS)
    limit = options.max_seconds or MAX_SECONDS
    # the largest lam first: these runs are short
    for lam, dtype, size in itertools.product(lambdas, DTYPES, sizes):
        case = f"{size} lam={lam:g} {dtype}"
        if not is_settled(rows.get(case), limit):
            yield case, reach(size, lam, dtype, limit)


def is_settled(row: Row | None, max_seconds: float) -> bool:
    """Whether running again could change nothing: a longer time limit is a reason to."""
    if row is None:
        return False
    return row["status"] != "time_limit" or row["max_seconds"] >= max_seconds


def reach(size: Size, lam: float, dtype: str, max_seconds: float) -> Row:
    instance = size.make()
    X = instance.X.astype(dtype)
    patterns = cvxnn.Patterns.from_gates(X, instance.gates, strict=True)
    problem = cvxnn.CGReLU(X, instance.Y, patterns, lam)
    solution = cvxnn.solve(
        problem,
        "rfista",
        tol=WANTED[dtype],
        max_iter=MAX_ITER,
        max_seconds=max_seconds,
        on_failure="ignore",
    )
    return {
        "size": str(size),
        "lam": lam,
        "dtype": dtype,
        "wanted": WANTED[dtype],
        "relative_gap": solution.certificate.relative_gap,
        "objective": solution.certificate.objective,
        "status": str(solution.status),
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "seconds": solution.seconds,
        "max_seconds": max_seconds,
        "active": solution.n_active,
        "date": machine()["date"],
    }


def present(rows: Rows) -> str:
    lines = [
        (
            row["size"],
            f"{row['lam']:g}",
            row["dtype"],
            f"{row['wanted']:.0e}",
            f"{row['relative_gap']:.2e}",
            row["status"],
            row["iterations"],
            row["passes"],
            f"{row['seconds']:.1f}",
        )
        for row in sorted(rows.values(), key=lambda row: (row["dtype"], row["size"], -row["lam"]))
    ]
    header = (
        "instance",
        "lam",
        "precision",
        "gap wanted",
        "gap certified",
        "status",
        "iterations",
        "passes",
        "seconds",
    )
    return (
        "R-FISTA until the relative duality gap, certified in float64, is below the wanted one. A "
        "pass is one product with the expanded matrix or its transpose.\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}: relative gap {row['relative_gap']:.1e}, wanted {row['wanted']:.0e} "
        f"({row['status']} after {row['seconds']:.0f} s)"
        for case, row in rows.items()
        if row["relative_gap"] > row["wanted"]
    ]


BENCHMARK = Benchmark(
    "precision", "How precise R-FISTA gets", measure, present, misses, resumable=True
)
