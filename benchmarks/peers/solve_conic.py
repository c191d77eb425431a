"""Timed runs of conic solvers through CVXPY in processes of their own (see protocol)."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import cvxpy
import numpy as np

from benchmarks.peers.protocol import serve_contained
from benchmarks.peers.solve_cvxnn import build, parts
from cvxnn.solvers.conic import program


def run(
    data: str,
    weights: str,
    kind: str,
    lam: float,
    max_seconds: float,
    solver: str,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """From the data to the solver's own point, which need not be feasible to the last digit."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    start = time.process_time()
    variables, conic_program = program(cvxpy, build(X, Y, gates, kind, lam))
    conic_program.solve(solver=solver, **settings)
    seconds = time.process_time() - start
    if any(variable.value is None for variable in variables):
        raise RuntimeError(f"ended with status {conic_program.status!r}")
    U = np.stack([variable.value for variable in variables], axis=2)
    np.savez(weights, **parts(kind, U if kind == "gated" else np.split(U, 2)))
    return {
        "seconds": seconds,
        "message": conic_program.status,
        "versions": {name: version(name) for name in ("cvxpy", solver.lower())},
    }


if __name__ == "__main__":
    serve_contained(run)
