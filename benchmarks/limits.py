"""Time limits: how long runs take that are given less time than they need, and who hears of them.

Each run is in a process of its own, so that none finds what an earlier one has made.
Run as a module of its own (`python -m benchmarks.limits CASE SECONDS`) this is the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import random_array

from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

SECONDS, QUICK_SECONDS = (2.0, 10.0), (0.5,)
LATE, SHARE = 0.5, 0.05  # seconds, or share of the limit, that a run may be late
SILENCE = 1.5  # seconds without a word to the callback


@dataclass(frozen=True)
class Case:
    kind: str
    n: int
    d: int
    p: int
    C: int = 1
    loss: str = "squared"
    lam: float = 1e-5
    density: float = 1.0
    solver: str = "auto"

    def __str__(self) -> str:
        sparse = "sparse " if self.density < 1 else ""
        sizes = f"n = {self.n:,}, d = {self.d:,}, p = {self.p:,}, C = {self.C}"
        return f"{self.kind}, {sparse}{self.loss}, lam = {self.lam:g}, {sizes}"

    def problem(self) -> Any:
        import cvxnn

        rng = np.random.default_rng(0)
        X = rng.standard_normal((self.n, self.d))
        if self.density < 1:
            X = random_array((self.n, self.d), density=self.density, format="csr", random_state=rng)
        Y = rng.standard_normal((self.n, self.C))
        if self.loss == "logistic":
            Y = np.where(Y > 0, 1.0, -1.0)
        elif self.loss == "softmax":
            Y = np.eye(self.C)[Y.argmax(axis=1)]
        patterns = cvxnn.sample_patterns(X, self.p, random_state=0)
        return getattr(cvxnn, self.kind)(X, Y, patterns, self.lam, loss=self.loss)


CASES = (
    Case("CGReLU", 20_000, 100, 2000),
    Case("CReLU", 20_000, 100, 2000),
    Case("CGReLU", 2000, 5000, 100, 10, "softmax", density=5e-3),
    Case("CReLU", 2000, 5000, 100, 10, "softmax", density=5e-3),
    Case("CGReLU", 5000, 50, 500, 10, "softmax"),
    Case("CReLU", 5000, 50, 200, 1, "logistic"),
    Case("CGReLU", 5000, 50, 500, solver="rfista"),
    Case("CReLU", 5000, 30, 200, solver="al"),
    Case("CGReLU", 5000, 50, 200, lam=0.0),
    Case("CReLU", 3000, 30, 100, lam=0.0),
    Case("CGReLU", 500, 20, 100, solver="cvxpy"),
)


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    for k, case in enumerate(CASES):
        for seconds in QUICK_SECONDS if options.quick else SECONDS:
            process = subprocess.run(
                [sys.executable, "-m", "benchmarks.limits", str(k), str(seconds)],
                cwd=ROOT,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            row = {"case": str(case), **json.loads(process.stdout)}
            yield f"{case}, {case.solver}, {seconds:g} s", row


def measured_process(case: Case, seconds: float) -> Row:
    import cvxnn

    problem = case.problem()
    heard: list[float] = []
    started = time.perf_counter()
    solution = cvxnn.solve(
        problem,
        case.solver,
        tol=1e-8,
        max_seconds=seconds,
        callback=lambda progress: heard.append(time.perf_counter() - started),
        on_failure="ignore",
    )
    taken = time.perf_counter() - started
    return {
        "asked": seconds,
        "taken": taken,
        "solver": solution.solver.name,
        "status": str(solution.status),
        "relative_gap": solution.certificate.relative_gap,
        "n_iter": solution.n_iter,
        "first": heard[0] if heard else taken,
        "silence": float(np.max(np.diff([0.0, *heard, taken]))),
    }


def present(rows: Rows) -> str:
    lines = [
        (
            row["case"],
            row["solver"],
            f"{row['asked']:g}",
            f"{row['taken']:.2f}",
            row["status"],
            f"{row['relative_gap']:.1e}",
            f"{row['first']:.2f}",
            f"{row['silence']:.2f}",
        )
        for row in rows.values()
    ]
    header = ("problem", "solver", "asked", "taken", "status", "gap", "first word", "silence")
    return (
        "Seconds asked by `max_seconds` and taken by `solve`, its certificate included, at a "
        "tolerance that is out of reach. The first word is when the callback was first called, the "
        "silence the longest time that it was not.\n\n" + markdown_table(header, lines, texts=2)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for name, row in rows.items():
        if row["taken"] > row["asked"] + max(LATE, SHARE * row["asked"]):
            found.append(f"{name}: took {row['taken']:.2f} s")
        if row["silence"] > SILENCE:
            found.append(f"{name}: silent for {row['silence']:.2f} s")
    return found


BENCHMARK = Benchmark("limits", "Time limits asked and taken", measure, present, misses)

if __name__ == "__main__":
    print(json.dumps(measured_process(CASES[int(sys.argv[1])], float(sys.argv[2]))))
