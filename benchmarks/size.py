"""Many classes, many columns, many rows: processor seconds of one thread and peak memory.

Each case (size_cases.py) runs in a process of its own, with scikit-learn's MLP beside it where that
does the same job. The targets are those that the project has set itself; a case that misses its own
is listed as a miss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.datasets import available
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from benchmarks.size_cases import run

LIMIT = 300.0  # seconds of a case, unless the command line says otherwise


class Case(NamedTuple):
    code: str  # a function of size_cases.py, with its arguments
    seconds: float  # of the processor, at most
    rival: str = ""
    megabytes: float | None = None  # at most


CASES = {
    "digits, GatedReLUClassifier": Case("digits('GatedReLUClassifier')", 1.5, "digits('MLP')"),
    "digits, ReLUClassifier": Case("digits('ReLUClassifier')", 4.0, "digits('MLP')"),
    "100 classes, n=2000 d=50, GatedReLUClassifier": Case(
        "classes('GatedReLUClassifier', 2000, 50, 100)", 15.0, "classes('MLP', 2000, 50, 100)"
    ),
    "100 classes, n=2000 d=50, ReLUClassifier": Case(
        "classes('ReLUClassifier', 2000, 50, 100)", 30.0, "classes('MLP', 2000, 50, 100)"
    ),
    "softmax n=2000 d=50 p=1000 C=10, gated, 0.1 lambda_max": Case(
        "solved('CGReLU', 2000, 50, 1000, 10, 0.1, loss='softmax')", 1.5
    ),
    "softmax n=2000 d=50 p=1000 C=10, gated, 0.01 lambda_max": Case(
        "solved('CGReLU', 2000, 50, 1000, 10, 0.01, loss='softmax')", 2.5
    ),
    "pendigits, ReLUClassifier": Case("pendigits('ReLUClassifier')", 8.0, "pendigits('MLP')"),
    "26 classes, n=20,000 d=16, ReLUClassifier": Case(
        "classes('ReLUClassifier', 20_000, 16, 26)", 60.0, "classes('MLP', 20_000, 16, 26)"
    ),
    "ReLU n=2000 d=200 p=1000, squared, 0.1 lambda_max, to 1e-6": Case(
        "solved('CReLU', 2000, 200, 1000, share=0.1, tol=1e-6)", 6.0
    ),
    "ReLU n=2000 d=200 p=1000, logistic, 0.1 lambda_max, to 1e-6": Case(
        "solved('CReLU', 2000, 200, 1000, share=0.1, tol=1e-6, loss='logistic')", 6.0
    ),
    "two classes, n=100,000 d=50, ReLUClassifier": Case(
        "classes('ReLUClassifier', 100_000, 50, 2)", 60.0, "classes('MLP', 100_000, 50, 2)", 2000
    ),
    "gated n=2000 d=4096 p=200 C=20, squared, 0.01 lambda_max": Case(
        "solved('CGReLU', 2000, 4096, 200, 20)", 45.0
    ),
    "sparse 2600 x 200,000, gated, logistic, p=100, 0.01 lambda_max": Case("sparse()", 15.0),
    "gated n=1,000,000 d=20 p=200, squared, 0.01 lambda_max": Case(
        "solved('CGReLU', 1_000_000, 20, 200)", 60.0, megabytes=1500
    ),
    "gated n=1,000,000 d=20 p=200, logistic, 0.01 lambda_max": Case(
        "solved('CGReLU', 1_000_000, 20, 200, loss='logistic')", 60.0, megabytes=1500
    ),
}
QUICK = {
    "softmax n=200 d=10 p=50 C=5, gated": Case(
        "solved('CGReLU', 200, 10, 50, 5, 0.1, loss='softmax')", 10.0
    ),
    "sparse 60 x 5,000": Case("sparse(60, 5000, 10)", 10.0),
}


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    limit = options.max_seconds or LIMIT
    for name, case in (QUICK if options.quick else CASES).items():
        if name in rows or (name.startswith("pendigits") and not available(["pendigits"])):
            continue
        row = run(case.code, limit) | {"target": case.seconds, "room": case.megabytes}
        if case.rival:
            row["rival"] = run(case.rival, limit)
        yield name, row


def present(rows: Rows) -> str:
    header = (
        "case",
        "processor seconds",
        "at most",
        "relative gap",
        "peak MB",
        "at most",
        "scikit-learn's MLP",
    )
    return (
        "One run of each case, one thread, to a relative gap of 1e-3 unless the case says "
        "otherwise, and to their own tolerance for estimators. Seconds are those of the solve or "
        "of the fit; making the data does not count. Peak memory is that of the whole process, "
        "data included. Percentages are accuracies on rows that were held out.\n\n"
        + markdown_table(header, [_line(name, row) for name, row in rows.items()])
    )


def _line(name: str, r: Row) -> tuple[str, ...]:
    room = f"{r['room']:.0f}" if r["room"] else ""
    if "failed" in r:
        return name, r["failed"], f"{r['target']:g}", "", "", room, ""
    gap = f"{r['gap']:.1e}" + ("" if r["gap"] <= r["wanted"] else " (not reached)")
    return (
        name,
        _seconds(r),
        f"{r['target']:g}",
        gap,
        f"{r['megabytes']:.0f}",
        room,
        _seconds(r["rival"]) if "rival" in r else "",
    )


def _seconds(r: Row) -> str:
    if "failed" in r:
        return r["failed"]
    return f"{r['seconds']:.1f}" + (f", {r['accuracy']:.1%}" if "accuracy" in r else "")


def misses(rows: Rows) -> list[str]:
    found = []
    for name, r in rows.items():
        if "failed" in r:
            found.append(f"{name}: {r['failed']}")
        elif r["seconds"] > r["target"] or r["gap"] > r["wanted"]:
            found.append(f"{name}: {r['seconds']:.1f} s, gap {r['gap']:.1e}")
        elif r["room"] and r["megabytes"] > r["room"]:
            found.append(f"{name}: {r['megabytes']:.0f} MB")
    return found


BENCHMARK = Benchmark("size", "Many classes, columns and rows", measure, present, misses, True)
