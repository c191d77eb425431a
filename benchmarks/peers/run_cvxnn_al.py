"""One timed run of cvxnn's augmented Lagrangian, in a process of its own (see protocol)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import cvxnn
from benchmarks.peers.protocol import serve
from cvxnn.solvers.results import Progress


def run(
    data: str, network: str, lam: float, target: float | None, tol: float, max_seconds: float
) -> dict[str, Any]:
    """Build and solve in float64 until the certified gap is `tol` or, if `target` is given, until
    the objective of a feasible point, which is that of its network, is no larger. The network goes
    to the file `network`."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    def reached(progress: Progress) -> bool:
        return target is not None and progress.objective <= target

    start = time.perf_counter(), time.process_time()
    patterns = cvxnn.Patterns.from_gates(X, gates, strict=True)
    problem = cvxnn.CReLU(X, Y, patterns, lam)
    solution = cvxnn.solve(
        problem, "al", tol=tol, max_seconds=max_seconds, callback=reached, on_failure="ignore"
    )
    net = solution.network()
    elapsed, seconds = time.perf_counter() - start[0], time.process_time() - start[1]

    np.savez(network, W1=net.W1, W2=net.W2)
    return {
        "seconds": seconds,
        "elapsed": elapsed,
        "iterations": solution.n_iter,
        "patterns": len(problem.patterns),
        "neurons": net.n_neurons,
        "status": str(solution.status),
        "convex_objective": solution.certificate.objective,
        "lower_bound": solution.certificate.lower_bound,
        "relative_gap": solution.certificate.relative_gap,
    }


if __name__ == "__main__":
    serve(run)
