"""The cases of the benchmarks of size.

`python -m benchmarks.size_cases "digits('ReLUClassifier')" 60` runs one of them and prints a line
of JSON. Each has a process of its own, so that its peak memory is its own. Making the data does not
count; for a solve neither does posing the problem.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import cvxnn
from benchmarks.datasets import Dataset
from benchmarks.record import ROOT, Row

limit = math.inf  # seconds of the solve, from the command line


def run(code: str, seconds: float) -> Row:
    """What a case finds, or why it finds nothing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.size_cases", code, str(seconds)]
    patience = 3 * seconds + 60  # a fit has no limit of its own
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {patience:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def teacher(n: int, d: int, C: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Gaussian rows, and C scores of a random network with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    scores = np.maximum(X @ rng.standard_normal((d, 20)), 0) @ rng.standard_normal((20, C))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return X, scores + 0.5 * rng.standard_normal(scores.shape), rng


def solved(
    kind: str,
    n: int,
    d: int,
    p: int,
    C: int = 1,
    share: float = 0.01,
    tol: float = 1e-3,
    loss: str = "squared",
) -> Row:
    """One problem at `share` of lambda_max."""
    X, scores, rng = teacher(n, d, C)
    if loss == "softmax":
        scores = np.eye(C)[scores.argmax(axis=1)]
    elif loss == "logistic":
        scores = np.where(scores > 0, 1.0, -1.0)
    patterns = cvxnn.Patterns.from_gates(X, rng.standard_normal((d, p)))
    return timed(getattr(cvxnn, kind)(X, scores, patterns, 1.0, loss=loss), share, tol)


def timed(problem: cvxnn.CGReLU, share: float, tol: float) -> Row:
    problem = problem.with_lam(share * cvxnn.lambda_max(problem))
    begin = time.process_time()
    solution = cvxnn.solve(problem, tol=tol, max_seconds=limit, on_failure="ignore")
    return {
        "seconds": time.process_time() - begin,
        "gap": solution.certificate.relative_gap,
        "wanted": tol,
        "products": solution.n_products,
        "solver": solution.solver.name,
    }


def sparse(n: int = 2600, d: int = 200_000, p: int = 100) -> Row:
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, size=100 * n)  # entries that meet are added up
    entries = (rng.random(100 * n), (np.repeat(np.arange(n), 100), columns))
    X = csr_array(entries, shape=(n, d))
    y = np.where(X @ rng.standard_normal(d) > 0, 1.0, -1.0)
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    return timed(cvxnn.CGReLU(X, y, patterns, 1.0, loss="logistic"), 0.01, 1e-3)


def fitted(
    name: str, X: np.ndarray, y: np.ndarray, test: tuple[np.ndarray, np.ndarray] | None = None
) -> Row:
    """An estimator with its defaults, or scikit-learn's MLP for "MLP"."""
    if name == "MLP":
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), MLPClassifier(random_state=0))
    else:
        model = getattr(cvxnn, name)(random_state=0)
    begin = time.process_time()
    model.fit(X, y)
    found: Row = {"seconds": time.process_time() - begin}
    if name != "MLP":
        found |= {"gap": model.certificate_.relative_gap, "wanted": model.tol}
    return found | ({} if test is None else {"accuracy": model.score(*test)})


def digits(name: str) -> Row:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    return fitted(name, X, y, (X_test, y_test))


def pendigits(name: str) -> Row:
    from sklearn.model_selection import train_test_split

    data = Dataset.load("pendigits")
    X, X_test, y, y_test = train_test_split(data.X, data.labels, random_state=0)
    return fitted(name, X, y, (X_test, y_test))


def classes(name: str, n: int, d: int, C: int) -> Row:
    """Estimators on the classes of a random network; as many rows again are a test."""
    X, scores, _ = teacher(2 * n, d, C)
    y = scores.argmax(axis=1)
    return fitted(name, X[:n], y[:n], (X[n:], y[n:]))


def peak_megabytes() -> float:
    """Of this process; what `getrusage` says may be that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    limit = float(sys.argv[2])
    found = eval(sys.argv[1])  # one of the functions above, with its arguments
    found["megabytes"] = peak_megabytes()
    sys.stdout.write(json.dumps(found) + "\n")
