"""Many classes, many columns, many rows: processor seconds of one thread and peak memory.

Each case runs in a process of its own, with a rival beside it where there is one. The targets are
those that the project has set itself; a case that misses its own is listed as a miss.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

LIMIT = 300.0  # seconds of a case, unless the command line says otherwise


class Case(NamedTuple):
    code: str  # one of the functions below, with its arguments
    target: float  # processor seconds
    rival: str = ""


CASES = {
    "digits, GatedReLUClassifier": Case("digits('GatedReLUClassifier')", 1.5, "digits_mlp()"),
    "digits, ReLUClassifier": Case("digits('ReLUClassifier')", 4.0, "digits_mlp()"),
    "softmax n=2000 d=50 p=1000 C=10, gated, 0.1 lambda_max, 1e-3": Case(
        "softmax('CGReLU', 2000, 50, 1000, 10, 0.1)", 1.5
    ),
    "softmax n=2000 d=50 p=1000 C=10, gated, 0.01 lambda_max, 1e-3": Case(
        "softmax('CGReLU', 2000, 50, 1000, 10, 0.01)", 2.5
    ),
    "100 classes n=2000 d=50, GatedReLUClassifier": Case("classes('GatedReLUClassifier')", 15.0),
    "100 classes n=2000 d=50, ReLUClassifier": Case("classes('ReLUClassifier')", 30.0),
    "C-ReLU n=2000 d=200 p=1000, squared, 0.1 lambda_max, 1e-6": Case(
        "squared('CReLU', 2000, 200, 1000, 1, 0.1, 1e-6)", 6.0
    ),
    "gated n=2000 d=4096 p=200 C=20, squared, 0.01 lambda_max, 1e-3": Case(
        "squared('CGReLU', 2000, 4096, 200, 20, 0.01, 1e-3)", 45.0
    ),
    "sparse 2600 x 200,000, gated, logistic, p=100, 0.01 lambda_max, 1e-3": Case("sparse()", 15.0),
    "gated n=1,000,000 d=20 p=200, squared, 0.1 lambda_max, 1e-3": Case(
        "squared('CGReLU', 1_000_000, 20, 200, 1, 0.1, 1e-3)", 60.0
    ),
}
QUICK = {
    "softmax n=200 d=10 p=50 C=5, gated": Case("softmax('CGReLU', 200, 10, 50, 5, 0.1)", 10.0),
    "sparse 60 x 5,000": Case("sparse(60, 5000, 10)", 10.0),
}
PROGRAM = """
import json, resource, sys, time, warnings
import numpy as np
import cvxnn

warnings.simplefilter("ignore")
limit = float(sys.argv[2])


def teacher(n, d, C, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = np.maximum(X @ rng.standard_normal((d, 20)), 0) @ rng.standard_normal((20, C))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return X, scores + 0.5 * rng.standard_normal(scores.shape), rng


def solved(kind, X, Y, p, share, tol, rng, **settings):
    patterns = cvxnn.Patterns.from_gates(X, rng.standard_normal((X.shape[1], p)))
    problem = getattr(cvxnn, kind)(X, Y, patterns, 1.0, **settings)
    problem = problem.with_lam(share * cvxnn.lambda_max(problem))
    begin = time.process_time()
    solution = cvxnn.solve(problem, tol=tol, max_seconds=limit, on_failure="ignore")
    taken = time.process_time() - begin
    return {"seconds": taken, "gap": solution.certificate.relative_gap, "wanted": tol,
            "products": solution.n_products, "solver": solution.solver.name}


def softmax(kind, n, d, p, C, share, tol=1e-3):
    X, scores, rng = teacher(n, d, C)
    return solved(kind, X, np.eye(C)[scores.argmax(axis=1)], p, share, tol, rng, loss="softmax")


def squared(kind, n, d, p, C, share, tol):
    X, scores, rng = teacher(n, d, C)
    return solved(kind, X, scores, p, share, tol, rng)


def sparse(n=2600, d=200_000, p=100):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, size=100 * n)  # entries that meet are added up
    entries = (rng.random(100 * n), (np.repeat(np.arange(n), 100), columns))
    X = csr_array(entries, shape=(n, d))
    y = np.where(X @ rng.standard_normal(d) > 0, 1.0, -1.0)
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    problem = cvxnn.CGReLU(X, y, patterns, 1.0, loss="logistic")
    problem = problem.with_lam(0.01 * cvxnn.lambda_max(problem))
    begin = time.process_time()
    solution = cvxnn.solve(problem, tol=1e-3, max_seconds=limit, on_failure="ignore")
    return {"seconds": time.process_time() - begin, "wanted": 1e-3,
            "gap": solution.certificate.relative_gap, "products": solution.n_products,
            "solver": solution.solver.name}


def fitted(name, X, y, test=None):
    model = getattr(cvxnn, name)(random_state=0)
    begin = time.process_time()
    model.fit(X, y)
    taken = time.process_time() - begin
    return {"seconds": taken, "gap": model.certificate_.relative_gap, "wanted": model.tol,
            "accuracy": None if test is None else model.score(*test)}


def digits_split():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    return train_test_split(*load_digits(return_X_y=True), random_state=0)


def digits(name):
    X, X_test, y, y_test = digits_split()
    return fitted(name, X, y, (X_test, y_test))


def digits_mlp():
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, X_test, y, y_test = digits_split()
    model = make_pipeline(StandardScaler(), MLPClassifier(random_state=0))
    begin = time.process_time()
    model.fit(X, y)
    return {"seconds": time.process_time() - begin, "accuracy": model.score(X_test, y_test)}


def classes(name):
    X, scores, _ = teacher(2000, 50, 100)
    return fitted(name, X, scores.argmax(axis=1))


found = eval(sys.argv[1])
found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps(found))
"""


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    limit = options.max_seconds or LIMIT
    for name, case in (QUICK if options.quick else CASES).items():
        if name not in rows:
            row = _run(case.code, limit) | {"target": case.target}
            if case.rival:
                row["rival"] = _run(case.rival, limit)
            yield name, row


def _run(code: str, limit: float) -> Row:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, code, str(limit)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=2 * limit
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {2 * limit:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def present(rows: Rows) -> str:
    lines = []
    for name, r in rows.items():
        if "failed" in r:
            lines.append((name, r["failed"], "", "", f"{r['target']:g}", ""))
            continue
        rival = r.get("rival", {})
        accuracy = f", {r['accuracy']:.1%}" if r.get("accuracy") else ""
        beside = f"MLP {rival['seconds']:.1f} s, {rival['accuracy']:.1%}" if rival else ""
        gap = f"{r['gap']:.1e}" + ("" if r["gap"] <= r["wanted"] else " (not reached)")
        lines.append(
            (
                name,
                f"{r['seconds']:.1f}{accuracy}",
                gap,
                f"{r['megabytes']:.0f}",
                f"{r['target']:g}",
                beside,
            )
        )
    header = ("case", "processor seconds", "relative gap", "peak MB", "wanted at most", "rival")
    return (
        "One run of each case, one thread. Seconds are those of the solve or of the fit; making "
        "the data does not count.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for name, r in rows.items():
        if "failed" in r:
            found.append(f"{name}: {r['failed']}")
        elif r["seconds"] > r["target"] or r["gap"] > r["wanted"]:
            found.append(f"{name}: {r['seconds']:.1f} s, gap {r['gap']:.1e}")
    return found


BENCHMARK = Benchmark("size", "Many classes, columns and rows", measure, present, misses, True)
