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

REPEATS = 3
FASTER_FITS, FASTER_PATHS = 3, 5  # than 0.1.0: fits, and paths than its cold solves
SLOWER = 1.25  # than the other version, in the median: more than the noise of two shared cores
ESTIMATORS = tuple(
    f"{kind}{what}" for kind in ("ReLU", "GatedReLU") for what in ("Classifier", "Regressor")
)
RACE = """
import json, os, sys, time, warnings
from pathlib import Path
import numpy as np
import cvxnn
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_classification

warnings.simplefilter("ignore")
quick = sys.argv[1] == "quick"
rng = np.random.default_rng(0)
found = {}


def problem(kind, n, d, p, share, loss="squared", **settings):
    n, p = (n // 10, p // 10) if quick else (n, p)
    X = rng.standard_normal((n, d))
    scores = np.maximum(X @ rng.standard_normal((d, 8)), 0) @ rng.standard_normal(8)
    y = scores / scores.std() + 0.1 * rng.standard_normal(n)
    y = np.sign(y - np.median(y)) if loss == "logistic" else y
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    whole = kind(X, y, patterns, 1.0, loss=loss, **settings)
    return whole.with_lam(share * cvxnn.lambda_max(whole))


def timed(name, run, times=1):
    seconds = []
    for _ in range(times):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    found[name] = min(seconds)


def estimator(name, X, y, **settings):
    # a small fit is repeated: its first time is that of imports and caches, too
    settings = {"random_state": 0, **settings}
    if quick:
        settings["n_patterns"] = 20
    return lambda: getattr(cvxnn, name)(**settings).fit(X, y)


def cold_solves(which, lams):
    return lambda: [cvxnn.solve(which.with_lam(lam), tol=1e-4) for lam in lams]


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
for name, (solve, which, tol) in races.items():
    timed(name, lambda: solve(which, tol=tol))

tables = {
    "breast cancer": load_breast_cancer(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "768 x 8": make_classification(768, 8, n_informative=6, flip_y=0.2, random_state=0),
}
pima = Path(os.environ.get("CVXNN_DATA", "")) / "uci" / "pima.npz"
if pima.is_file():
    stored = np.load(pima)
    tables["pima"] = stored["X"].astype(float), stored["y"]
diabetes = load_diabetes(return_X_y=True)
for kind in ("ReLU", "GatedReLU"):
    for name, (X, y) in tables.items():
        timed(f"{kind}Classifier, {name}", estimator(f"{kind}Classifier", X, y), 3)
    timed(f"{kind}Regressor, diabetes", estimator(f"{kind}Regressor", *diabetes), 3)
    X, y = tables["768 x 8"]
    timed(f"{kind}Regressor, 768 x 8", estimator(f"{kind}Regressor", X, y.astype(float)), 3)
    folds = {"n_alphas": 8, "cv": 3}
    timed(f"{kind}ClassifierCV, 768 x 8", estimator(f"{kind}ClassifierCV", X, y, **folds))
    timed(f"{kind}RegressorCV, diabetes", estimator(f"{kind}RegressorCV", *diabetes, **folds))

paths = {
    "gated, n=1000 d=20 p=300": problem(cvxnn.CGReLU, 1000, 20, 300, 1.0),
    "gated, logistic, n=768 d=8 p=300": problem(
        cvxnn.CGReLU, 768, 8, 300, 1.0, "logistic", output_bias=True),
    "ReLU, n=768 d=8 p=300": problem(cvxnn.CReLU, 768, 8, 300, 1.0),
}
for name, which in paths.items():
    lams = np.geomspace(which.lam, 0.01 * which.lam, 20).tolist()
    timed(f"path: {name}", lambda: cvxnn.path(which, lams=lams, tol=1e-4))
    timed(f"cold: {name}", cold_solves(which, lams))
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
        (name, f"{r['before']:.3f}", f"{r['now']:.3f}", f"{r['before'] / r['now']:.2f}")
        for name, r in rows.items()
        if not name.startswith(("path: ", "cold: "))
    ]
    header = ("what", "processor seconds before", "now", "times faster")
    fits = [r["before"] / r["now"] for name, r in rows.items() if name.startswith(ESTIMATORS)]
    return "\n\n".join(
        [
            f"Medians of {REPEATS} runs of each version in turns, one thread; of the small fits "
            "the quickest of three in each run. Before: the version whose `src` folder "
            "`CVXNN_OTHER` named.",
            markdown_table(header, lines),
            "Estimators have their own settings, those with CV in their name 3 folds and a grid "
            "planned for 8 strengths, which this version may end sooner. All fits together are "
            f"{statistics.geometric_mean(fits or [1.0]):.2f} times faster (geometric mean).",
            "Paths of 20 strengths down to a hundredth of lambda_max to a gap of 1e-4, against "
            "solves of the same problems from zero:",
            _paths(rows),
        ]
    )


def _paths(rows: Rows) -> str:
    lines = []
    for name, path in rows.items():
        cold = rows.get(name.replace("path: ", "cold: "))
        if name.startswith("path: ") and cold is not None:
            seconds = cold["before"], cold["now"], path["before"], path["now"]
            ratio = f"{cold['before'] / path['now']:.2f}"
            lines.append((name.removeprefix("path: "), *(f"{s:.3f}" for s in seconds), ratio))
    header = ("problem", "cold before", "cold now", "path before", "path now", "times faster")
    return markdown_table(header, lines)


def misses(rows: Rows) -> list[str]:
    """What is slower than before, and what is not as much faster than 0.1.0 as is wanted."""
    slow = []
    for name, r in rows.items():
        if name.startswith(ESTIMATORS) and r["before"] < FASTER_FITS * r["now"]:
            slow.append((name, r["before"] / r["now"], FASTER_FITS))
        cold = rows.get(name.replace("path: ", "cold: "))
        if name.startswith("path: ") and cold and cold["before"] < FASTER_PATHS * r["now"]:
            slow.append((f"{name}, against cold solves", cold["before"] / r["now"], FASTER_PATHS))
    wanted = [
        f"{name}: {ratio:.2f} times faster, wanted {least:g}"
        for name, ratio, least in slow
        if not rows[name.split(", against")[0]]["same"]
    ]
    return wanted + [
        f"{name}: {r['now']:.2f} s, {r['before']:.2f} before"
        for name, r in rows.items()
        if r["now"] > SLOWER * r["before"] and not r["same"]
    ]


BENCHMARK = Benchmark("versions", "This version against another", measure, present, misses)
