"""Solves and fits of this version against those of another, in turns.

`CVXNN_OTHER=FOLDER` names the `src` folder of the other version, with its kernels compiled; without
it, this version runs against itself, which shows the noise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

REPEATS = 5
SLOWER = 1.25  # than the other version, in the median: more than the noise of two shared cores
RACE = """
import json, sys, time, warnings
import numpy as np
import cvxnn
from sklearn.datasets import load_breast_cancer, load_diabetes

warnings.simplefilter("ignore")
quick = sys.argv[1] == "quick"
rng = np.random.default_rng(0)


def problem(kind, n, d, p, share, loss="squared", **settings):
    n, p = (n // 10, p // 10) if quick else (n, p)
    X = rng.standard_normal((n, d))
    scores = np.maximum(X @ rng.standard_normal((d, 8)), 0) @ rng.standard_normal(8)
    y = scores / scores.std() + 0.1 * rng.standard_normal(n)
    y = np.sign(y - np.median(y)) if loss == "logistic" else y
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    whole = kind(X, y, patterns, 1.0, loss=loss, **settings)
    return whole.with_lam(share * cvxnn.lambda_max(whole))


def cross_validation():
    X, y = load_breast_cancer(return_X_y=True)
    cvxnn.ReLUClassifierCV(random_state=0, n_patterns=50, n_alphas=8, cv=3).fit(X, y)


def regression():
    X, y = load_diabetes(return_X_y=True)
    cvxnn.ReLURegressor(random_state=0, n_patterns=100).fit(X, y)


gated = problem(cvxnn.CGReLU, 2000, 50, 500, 0.1)
races = {
    "gated, squared, Newton, 1e-6": (
        cvxnn.solve, problem(cvxnn.CGReLU, 2000, 50, 1000, 0.01), 1e-6),
    "gated, squared, R-FISTA, 1e-4": (
        lambda which, tol: cvxnn.solve(which, "rfista", tol=tol), gated, 1e-4),
    "gated, logistic, Newton, 1e-5": (
        cvxnn.solve,
        problem(cvxnn.CGReLU, 2000, 20, 500, 0.01, "logistic", output_bias=True), 1e-5),
    "ReLU, squared, Newton, 1e-5": (cvxnn.solve, problem(cvxnn.CReLU, 1000, 20, 300, 0.05), 1e-5),
    "ReLU, squared, AL, 1e-3": (
        lambda which, tol: cvxnn.solve(which, "al", tol=tol),
        problem(cvxnn.CReLU, 300, 8, 60, 0.1), 1e-3),
    "gated path, 15 strengths": (
        lambda which, tol: cvxnn.path(which, n_lams=15, eps=0.05, tol=tol), gated, 1e-4),
}
found = {}
for name, (solve, which, tol) in races.items():
    begin = time.process_time()
    solve(which, tol=tol)
    found[name] = time.process_time() - begin
for name, fit in {"ReLURegressor, diabetes": regression,
                  "ReLUClassifierCV, breast cancer": cross_validation}.items():
    begin = time.process_time()
    fit()
    found[name] = time.process_time() - begin
print(json.dumps(found))
"""


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    other = Path(os.environ.get("CVXNN_OTHER", ROOT / "src")).resolve()
    sources = {"now": ROOT / "src", "before": other}
    taken: dict[str, dict[str, list[float]]] = {}
    for _ in range(1 if options.quick else REPEATS):
        for version, source in sources.items():
            for name, seconds in _race(source, options.quick).items():
                taken.setdefault(name, {}).setdefault(version, []).append(seconds)
    for name, versions in taken.items():
        now, before = (statistics.median(versions[version]) for version in sources)
        yield name, {"now": now, "before": before, "same": other == ROOT / "src"}


def _race(source: Path, quick: bool) -> dict[str, float]:
    command = [sys.executable, "-c", RACE, "quick" if quick else "whole"]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def present(rows: Rows) -> str:
    lines = [
        (name, f"{r['before']:.2f}", f"{r['now']:.2f}", f"{r['now'] / r['before']:.2f}")
        for name, r in rows.items()
    ]
    header = ("what", "processor seconds before", "now", "ratio")
    return (
        f"Medians of {REPEATS} runs of each version in turns, one thread. Before: the version "
        "whose `src` folder `CVXNN_OTHER` named.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{name}: {r['now']:.2f} s, {r['before']:.2f} before"
        for name, r in rows.items()
        if r["now"] > SLOWER * r["before"] and not r["same"]
    ]


BENCHMARK = Benchmark("versions", "This version against another", measure, present, misses)
