"""One timed run of cvxnn's R-FISTA, in a process of its own (see protocol)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import cvxnn
from benchmarks.peers.protocol import serve
from cvxnn.solvers.results import Progress


def run(
    data: str, weights: str, lam: float, dtype: str, tol: float, objective: float | None
) -> dict[str, Any]:
    """Build and solve to a subgradient norm <= tol; if `objective` is given, go on until the
    objective is no larger than that too. The weights go to the file `weights`."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    def both_reached(progress: Progress) -> bool:
        return progress.residual <= tol and progress.objective <= objective

    start = time.perf_counter()
    X = X.astype(dtype)
    patterns = cvxnn.Patterns.from_gates(X, gates, strict=True)
    problem = cvxnn.CGReLU(X, Y, patterns, lam)
    if objective is None:
        solution = cvxnn.solve(problem, "rfista", stop="paper", tol=tol)
    else:
        solution = cvxnn.solve(problem, "rfista", stop="paper", tol=0, callback=both_reached)
    seconds = time.perf_counter() - start

    np.savez(weights, gates=patterns.gates, U=solution.weights)
    return {
        "seconds": seconds,
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "patterns": len(patterns),
        "status": str(solution.status),
        "relative_gap": solution.certificate.relative_gap,
    }


if __name__ == "__main__":
    serve(run)
