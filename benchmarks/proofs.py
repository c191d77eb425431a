"""Proofs over all patterns: their gap and their time over rows, rank, strength and loss.

Instances are the first r - 1 columns of real tables, standardised, with a column of ones: rank r.
Strengths are in units of the largest price at the zero network; the time includes generation.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import cvxnn
from benchmarks.all_patterns import Problem, largest_price
from benchmarks.datasets import Dataset, available
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.bounds.one_input import OneInput

LOSSES = ("squared", "logistic")
SEARCHED = 2_000  # rows of made-up data that the unit of the strength is searched on
CHECKED = 60.0  # seconds at most for the check of a proof
SHARED = 3.0  # times the seconds that are allowed, by the clock, as others may use the machine
_VERDICTS = {True: "", False: " (not confirmed)", None: " (not finished)"}
TABLES = ("pima", "mammographic", "vertebral-column-2clases")


class Case(NamedTuple):
    """What is wanted of one instance: a gap within so many seconds; None if nothing is, and the
    page only says how far a proof got in the time."""

    table: str  # "" for made-up data
    n: int  # of made-up data
    rank: int  # 0 for all columns
    share: float
    loss: str
    gap: float | None
    seconds: float

    @property
    def name(self) -> str:
        what = self.table or f"n = {self.n:,}"
        rank = f"rank {self.rank}" if self.rank else "all columns"
        return f"{what}, {rank}, {self.loss}, {self.share:g}"


def _cases() -> Iterator[Case]:
    for loss in LOSSES:
        for share in (0.1, 0.01, 0.001):
            yield Case("", 1_000_000, 2, share, loss, 1e-6, 10.0)
        for table in TABLES:
            for share in (0.1, 0.03, 0.01):
                yield Case(table, 0, 3, share, loss, 1e-4, 15.0)
                yield Case(table, 0, 4, share, loss, 1e-4, 15.0)
                if share >= 0.03:
                    yield Case(table, 0, 5, share, loss, 1e-4, 30.0)
            yield Case(table, 0, 6, 0.1, loss, 1e-3, 60.0)
    # where it stops being useful
    for n in (1_000, 10_000, 100_000):
        for share in (0.1, 0.01):
            yield Case("", n, 3, share, "squared", None, 60.0)
    yield Case("pima", 0, 5, 0.01, "squared", None, 60.0)
    yield Case("pima", 0, 6, 0.03, "squared", None, 60.0)
    yield Case("pima", 0, 7, 0.3, "squared", None, 60.0)
    for table in ("pima", "heart-cleveland", "breast-cancer-wisc-diag"):
        for share in (0.5, 0.2, 0.1):
            yield Case(table, 0, 0, share, "squared", None, 60.0)


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    warnings.simplefilter("ignore")
    cases = list(_cases())
    if options.quick:
        cases = [Case("", 2_000, 2, 0.1, "squared", 1e-6, 10.0)]
        cases += [Case("", 200, 3, 0.1, loss, 1e-4, 15.0) for loss in LOSSES]
    tables = available(dict.fromkeys(case.table for case in cases if case.table))
    for case in cases:
        if case.name not in rows and (not case.table or case.table in tables):
            yield case.name, _proven(case)


def _proven(case: Case) -> Row:
    X, y = _data(case)
    lam = case.share * _largest_price(X, y, case.loss)
    clock, start = time.perf_counter(), time.process_time()
    result = cvxnn.train(
        X,
        y,
        lam,
        loss=case.loss,
        tol=0.3 * (case.gap or 1e-4),
        max_seconds=case.seconds if case.gap is None else SHARED * case.seconds,
        on_failure="ignore",
    )
    bound, taken = result.bound, time.process_time() - start
    wall = time.perf_counter() - clock
    checked: Row = {"bytes": 0, "check": None, "confirmed": None}
    if bound.over_all_patterns:
        start = time.process_time()
        verified = cvxnn.verify(bound, result.problem, max_seconds=CHECKED)
        checked = {
            "bytes": 0 if bound.evidence is None else bound.evidence.n_bytes,
            "check": time.process_time() - start,
            "confirmed": None if verified.verdict == "NOT finished" else verified.agrees,
        }
    return {
        **case._asdict(),
        "rows": len(X),
        "wanted": case.gap,
        "found": bound.relative_gap,
        "scope": bound.scope,
        "all": bound.over_all_patterns,
        "proven": bound.proven,
        "objective": bound.objective,
        "clock": wall,
        "processor": taken,
        **checked,
        "generation": result.solution.seconds,
        "neurons": result.network.n_neurons,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _largest_price(X: np.ndarray, y: np.ndarray, loss: str) -> float:
    """At the zero network: exact for one input, else as far as a search can tell."""
    if X.shape[1] > 1:
        return largest_price(X[:SEARCHED], y[:SEARCHED], loss)
    problem = Problem(X, y, loss, 1.0).convex(1)
    Theta = np.asarray(problem.loss.gradient(np.zeros((len(X), 1))))
    found = OneInput().bound(problem.operator_double.rows(), Theta, 1.0, tol=1e-6, max_seconds=60.0)
    return float(found.above[0])


def _data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Standardised columns and targets: -1 and 1 of a table, a noisy function for made-up rows."""
    if case.table:
        data = Dataset.load(case.table)
        X = data.X[:, : case.rank - 1] if case.rank else data.X
        y = np.where(data.labels > 0, 1.0, -1.0)
    else:
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, (case.n, case.rank - 1))
        y = np.sin(4 * X[:, 0]) + 0.5 * np.abs(X[:, -1]) + 0.3 * rng.standard_normal(case.n)
        if case.loss == "logistic":
            y = np.where(y > np.median(y), 1.0, -1.0)
    spread = X.std(axis=0)
    X = X[:, spread > 0]
    return (X - X.mean(axis=0)) / spread[spread > 0], y


def present(rows: Rows) -> str:
    order = {case.name: k for k, case in enumerate(_cases())}
    header = (
        "data, rank, loss, strength",
        "rows",
        "proven gap",
        "wanted",
        "at most, s",
        "clock, s",
        "processor, s",
        "size of the proof",
        "checking it",
        "neurons",
        "scope",
    )
    lines = [
        (
            name,
            f"{r['rows']:,}",
            f"{r['found']:.1e}" if r["all"] else "none",
            "" if r["wanted"] is None else f"{r['wanted']:.0e}",
            f"{r['seconds']:.0f}",
            f"{r['clock']:.1f}",
            f"{r['processor']:.1f}",
            f"{r['bytes'] / 1000:,.1f} kB" if r.get("bytes") else "",
            "" if r.get("check") is None else f"{r['check']:.1f} s" + _VERDICTS[r["confirmed"]],
            r["neurons"],
            r["scope"],
        )
        for name, r in sorted(rows.items(), key=lambda item: order.get(item[0], len(order)))
    ]
    return (
        '`cvxnn.train(..., prove="auto")` on real tables (first columns, standardised, with a '
        "column of ones that counts in the rank) and on made-up rows. The gap is that between the "
        "objective of the network and a lower bound over all networks of any width, both proven "
        "with rounding errors included. Seconds include generation, by the clock on the cores "
        "stated below and by the processor; what is wanted has to come in time by the clock. A "
        "proof is checked by code that shares nothing with the search, in processor seconds; where "
        "it has no size, the check finds its own.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for name, r in rows.items():
        if r["wanted"] is None:
            continue
        taken = r["clock"]
        if not r["all"] or r["found"] > r["wanted"]:
            gap = f"gap {r['found']:.1e}" if r["all"] else "not proven over all patterns"
            found.append(f"{name}: {gap} after {taken:.1f} s")
        elif taken > r["seconds"]:
            found.append(f"{name}: {taken:.1f} s")
    found += [
        f"{name}: proof not confirmed" for name, r in rows.items() if r.get("confirmed") is False
    ]
    return found


BENCHMARK = Benchmark(
    "proofs", "Proofs over all patterns", measure, present, misses, resumable=True
)
