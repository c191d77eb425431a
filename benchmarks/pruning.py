"""Pruning: how many neurons trained networks can do without, and what that changes.

C-ReLU on UCI sets, by the default solver to a small gap and by the augmented Lagrangian to a large
one; the gated problem decomposed; and a wide network of random neurons with a least-squares second
layer. Each is pruned on its training rows. A later call goes on with the sets that have no row yet.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import cvxnn
from benchmarks.datasets import SPREAD, Dataset, available, column_norms
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.pruning import prune

SETS = SPREAD[:10]
PATTERNS, QUICK_PATTERNS = 300, 50
SHARE = 0.01  # of lambda_max
TOL = 1e-6
AL_TOL = 1e-2
AL_SECONDS, QUICK_AL_SECONDS = 60.0, 5.0
ROUGH_TOL = 1e-2
WIDTH = 2  # neurons of the wide network for each row
TRAIN_SHARE = 0.8
SEED = 0
NETWORKS = {
    "optimal": f"C-ReLU to a gap of {TOL:g}",
    "AL": f"C-ReLU by the augmented Lagrangian to a gap of {AL_TOL:g}",
    "decomposed": f"C-GReLU to a gap of {TOL:g}, decomposed",
    "wide": f"{WIDTH} random neurons for each row, second layer by least squares",
}
MAX_CHANGE = 1e-9
MAX_RISE = 1e-12


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    p, seconds = (QUICK_PATTERNS, QUICK_AL_SECONDS) if options.quick else (PATTERNS, AL_SECONDS)
    for name in available(SETS[2:3] if options.quick else SETS):
        if name not in rows:
            yield name, prune_all(Dataset.load(name), p, seconds)


def prune_all(data: Dataset, p: int, al_seconds: float) -> Row:
    order = np.random.default_rng(SEED).permutation(len(data.X))
    n_train = round(TRAIN_SHARE * len(data.X))
    train, test = order[:n_train], order[n_train:]
    X, X_test, Y = data.X[train], data.X[test], data.targets[train]
    patterns = cvxnn.sample_patterns(X, p, bias=True, normalize=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        problem = cvxnn.CReLU(X, Y, patterns, lam=1.0, bias=True, normalize=True)
    problem = problem.with_lam(SHARE * cvxnn.lambda_max(problem))
    return {
        "n": len(X),
        "d": X.shape[1],
        "c": Y.shape[1],
        "patterns": len(problem.patterns),
        "lam": problem.lam,
        "networks": {
            kind: compare(network, X, X_test, Y, problem.lam)
            for kind, network in networks(problem, X, Y, al_seconds).items()
        },
    }


def networks(
    problem: cvxnn.CReLU, X: np.ndarray, Y: np.ndarray, al_seconds: float
) -> dict[str, Any]:
    al = cvxnn.solve(problem, "al", tol=AL_TOL, max_seconds=al_seconds, on_failure="ignore")
    gated = cvxnn.solve(problem.gated, tol=TOL)
    return {
        "optimal": cvxnn.solve(problem, tol=TOL).network(),
        "AL": al.network(),
        "decomposed": cvxnn.decompose(gated).network(),
        "wide": wide(X, Y),
    }


def wide(X: np.ndarray, Y: np.ndarray) -> cvxnn.ReLUNetwork:
    rng = np.random.default_rng(SEED)
    m = WIDTH * len(X)
    W1, b1 = rng.standard_normal((m, X.shape[1])), rng.standard_normal(m)
    W1 /= column_norms(X)
    b1 /= np.sqrt(len(X))
    W2 = np.linalg.lstsq(np.maximum(X @ W1.T + b1, 0.0), Y)[0]
    return cvxnn.ReLUNetwork(W1=W1, b1=b1, W2=W2)


def compare(
    network: cvxnn.ReLUNetwork, X: np.ndarray, X_test: np.ndarray, Y: np.ndarray, lam: float
) -> Row:
    started = time.perf_counter()
    pruned = prune(network, X, normalize=True)
    seconds = time.perf_counter() - started
    rough = prune(network, X, normalize=True, tol=ROUGH_TOL)
    return {
        "neurons": network.n_neurons,
        "pruned": pruned.n_neurons,
        "rough": rough.n_neurons,
        "objective": objective(network, X, Y, lam),
        "pruned_objective": objective(pruned, X, Y, lam),
        "rough_objective": objective(rough, X, Y, lam),
        "change": change(network, pruned, X),
        "rough_change": change(network, rough, X),
        "held_out_change": change(network, pruned, X_test),
        "seconds": seconds,
    }


def objective(network: cvxnn.ReLUNetwork, X: np.ndarray, Y: np.ndarray, lam: float) -> float:
    """With balanced layers, on columns of unit norm, as the problem has it."""
    assert network.b1 is not None
    intercepts = np.sqrt(len(X)) * network.b1
    first = np.column_stack([network.W1 * column_norms(X), intercepts])
    decay = np.sum(np.linalg.norm(first, axis=1) * np.abs(network.W2).sum(axis=1))
    residual = network.predict(X).reshape(Y.shape) - Y
    return float(np.sum(residual**2) / (2 * Y.size) + lam * decay)


def change(network: cvxnn.ReLUNetwork, pruned: cvxnn.ReLUNetwork, X: np.ndarray) -> float:
    """The largest change of a prediction, relative to the largest prediction."""
    before = network.predict(X)
    return float(np.max(np.abs(pruned.predict(X) - before)) / np.max(np.abs(before)))


def present(rows: Rows) -> str:
    header = (
        "set",
        "network",
        "neurons",
        "pruned",
        "objective",
        "pruned",
        "change on training rows",
        "on held-out rows",
        "seconds",
        f"neurons at tol {ROUGH_TOL:g}",
        "objective",
        "change on training rows",
    )
    lines = []
    for name, row in rows.items():
        size = f" (n={row['n']} d={row['d']} C={row['c']})"
        for kind, result in row["networks"].items():
            lines.append(
                (
                    name + size,
                    kind,
                    result["neurons"],
                    result["pruned"],
                    f"{result['objective']:.6g}",
                    f"{result['pruned_objective']:.6g}",
                    f"{result['change']:.1e}",
                    f"{result['held_out_change']:.1e}",
                    f"{result['seconds']:.2f}",
                    result["rough"],
                    f"{result['rough_objective']:.6g}",
                    f"{result['rough_change']:.1e}",
                )
            )
    kinds = "; ".join(f"{kind}: {text}" for kind, text in NETWORKS.items())
    return "\n\n".join(
        [
            f"ReLU networks on {TRAIN_SHARE:.0%} of the rows, pruned on these: {kinds}. Problems "
            f"have up to {PATTERNS} sampled patterns, intercepts and columns of unit norm, at "
            f"lam = {SHARE:g} lambda_max. Objectives are theirs. A change is the largest one of a "
            "prediction, relative to the largest prediction. A network that is minimal already "
            f"does not change. The last columns are for tol = {ROUGH_TOL:g} instead of 1e-10, "
            "which also drops what nearly is a combination of others.",
            markdown_table(header, lines, texts=2),
        ]
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for name, row in rows.items():
        for kind, result in row["networks"].items():
            if not result["change"] <= MAX_CHANGE:
                found.append(f"{name}, {kind}: predictions change by {result['change']:.1e}")
            rise = result["pruned_objective"] / result["objective"] - 1
            if not rise <= MAX_RISE:
                found.append(f"{name}, {kind}: the objective rises by {rise:.1e}")
    return found


BENCHMARK = Benchmark(
    "pruning",
    "Pruning: the same predictions with fewer neurons",
    measure,
    present,
    misses,
    resumable=True,
)
