"""Train on images to a certified gap, as a process of its own that may be killed at any moment.

    python benchmarks/train_images.py '{"data": "mnist", ...}' FOLDER SECONDS

Lines of JSON go to FOLDER/journal, one every few seconds: processor seconds and peak memory of this
process, iterations, passes and the gap of the whole run. The run itself is kept in FOLDER/run; the
same command goes on from there. The last line holds the outcome.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import cvxnn

EVERY = 10.0  # seconds between two lines
ROOT = Path(__file__).parent.parent


def data_file(name: str) -> Path:
    """Where the images are: `mnist.npz` in CVXNN_DATA, `cifar10.npz` in CVXNN_CIFAR10 or there."""
    folder = os.environ.get("CVXNN_DATA", str(ROOT.parent / "shared" / "data"))
    if name == "cifar10":
        folder = os.environ.get("CVXNN_CIFAR10", folder)
    return Path(folder) / f"{name}.npz"


def images(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[int, ...]]:
    """Rows and labels for training and for the test, and the shape of an image. The mean image of
    the training set is subtracted: brightness, which all pixels share, would make gates nearly
    equal and the program ill-conditioned, which costs several times the iterations."""
    if name == "digits":
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
        return *centred(X, X_test, 16), y, y_test, (8, 8)
    with np.load(data_file(name)) as content:
        X, y, X_test, y_test = (content[key] for key in ("X", "y", "X_test", "y_test"))
    shape = (28, 28) if name == "mnist" else (3, 32, 32)
    return *centred(X, X_test, 255), y, y_test, shape


def centred(X: np.ndarray, X_test: np.ndarray, largest: int) -> tuple[np.ndarray, np.ndarray]:
    mean = X.mean(axis=0)
    return ((X - mean) / largest).astype(np.float32), ((X_test - mean) / largest).astype(np.float32)


def gates_of(case: dict, shape: tuple[int, ...]) -> cvxnn.PatchGates | None:
    if not case.get("patch"):
        return None
    return cvxnn.PatchGates(shape, size=case["patch"], channel_axis=0)


def main(case: dict, folder: Path, limit: float) -> None:
    warnings.simplefilter("ignore")
    X, X_test, y, y_test, shape = images(case["data"])
    rows = slice(case.get("n"))
    X, y = X[rows], y[rows]
    patterns = cvxnn.sample_patterns(X, case["p"], gates=gates_of(case, shape), random_state=0)
    problem = cvxnn.CGReLU(
        X, np.eye(10)[y], patterns, 1.0, loss=case["loss"], normalize=case.get("normalize", False)
    )
    problem = problem.with_lam(case["share"] * cvxnn.lambda_max(problem))
    journal = (folder / "journal").open("a")
    told = [0.0]

    def tell(**found: object) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        line = {
            "process": os.getpid(),
            "processor": used.ru_utime + used.ru_stime,
            "megabytes": used.ru_maxrss / 1024,
            **found,
        }
        journal.write(json.dumps(line) + "\n")
        journal.flush()

    def follow(progress: cvxnn.solvers.results.Progress) -> None:
        now = time.monotonic()
        if now - told[0] < EVERY:
            return
        told[0] = now
        tell(
            seconds=progress.seconds,
            iterations=progress.n_iter,
            products=progress.n_products,
            gap=progress.relative_gap,
            left=progress.seconds_left,
        )

    solution = cvxnn.solve(
        problem,
        case.get("solver", "auto"),
        tol=case["tol"],
        max_seconds=limit,
        callback=follow,
        on_failure="ignore",
        checkpoint=folder / "run",
    )
    network = solution.network()

    def accuracy(rows: np.ndarray, labels: np.ndarray) -> float:
        found = [network.predict(part).argmax(axis=1) for part in np.array_split(rows, 20)]
        return float(np.mean(np.concatenate(found) == labels))

    tell(
        seconds=solution.seconds,
        iterations=solution.n_iter,
        products=solution.n_products,
        gap=solution.certificate.relative_gap,
        ended=str(solution.status),
        solver=solution.solver.name,
        neurons=solution.n_active,
        patterns=len(patterns),
        training=accuracy(X, y),
        test=accuracy(X_test, y_test),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
