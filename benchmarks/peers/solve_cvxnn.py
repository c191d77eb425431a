"""Timed runs of cvxnn in processes of their own (see protocol)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cvxnn
from benchmarks.peers.protocol import serve_contained
from cvxnn.solvers.results import Progress, Solution


def run(data: str, weights: str, solver: str, **request: Any) -> dict[str, Any]:
    instance = np.load(data)
    arrays = instance["X"], instance["Y"], instance["gates"]
    runs: dict[str, Callable[..., dict[str, Any]]] = {"path": path, "cold": cold}
    if solver in runs:
        return runs[solver](arrays, weights, **request)
    return solve(arrays, weights, solver, **request)


def build(X: np.ndarray, Y: np.ndarray, gates: np.ndarray, kind: str, lam: float) -> Any:
    patterns = cvxnn.Patterns.from_gates(X, gates, strict=True)
    return (cvxnn.CGReLU if kind == "gated" else cvxnn.CReLU)(X, Y, patterns, lam)


def solve(
    arrays: tuple,
    weights: str,
    solver: str,
    kind: str,
    lam: float,
    tol: float,
    max_seconds: float,
    objective: float | None = None,
) -> dict[str, Any]:
    """Until the certified gap is `tol`, the objective `objective`, or the time is over."""
    start = time.process_time()

    def done(progress: Progress) -> bool:
        reached = objective is not None and progress.objective <= objective
        return reached or time.process_time() - start > max_seconds

    problem = build(*arrays, kind, lam)
    solution = cvxnn.solve(problem, solver, tol=tol, callback=done, on_failure="ignore")
    seconds = time.process_time() - start
    np.savez(weights, **parts(kind, solution.weights), Theta=solution.dual)
    status = "time_limit" if seconds > max_seconds else str(solution.status)
    return {
        "seconds": seconds,
        "status": status,
        "message": solution.message,
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "active": solution.n_active,
        "certified_gap": solution.certificate.relative_gap,
    }


def path(
    arrays: tuple,
    weights: str,
    kind: str,
    lam: list[float],
    eps: float,
    tol: float,
    max_seconds: float,
) -> dict[str, Any]:
    """The path from lambda_max down to `eps` of it, which is where the values of `lam` are."""
    start = time.process_time()
    problem = build(*arrays, kind, lam[0])
    found = cvxnn.path(problem, n_lams=len(lam), eps=eps, tol=tol)
    seconds = time.process_time() - start
    np.testing.assert_allclose(found.lams, lam, rtol=1e-9)
    return {"seconds": seconds, **_points(kind, weights, list(found))}


def cold(
    arrays: tuple,
    weights: str,
    kind: str,
    lam: list[float],
    method: str,
    tol: float,
    max_seconds: float,
) -> dict[str, Any]:
    """Each of `lam` from zero, on one problem object: products are set up once."""
    start = time.process_time()
    problem = build(*arrays, kind, lam[0])
    found = [
        cvxnn.solve(problem.with_lam(value), method, tol=tol, on_failure="ignore") for value in lam
    ]
    seconds = time.process_time() - start
    return {"seconds": seconds, **_points(kind, weights, found)}


def _points(kind: str, weights: str, found: list[Solution]) -> dict[str, Any]:
    arrays = [{**parts(kind, point.weights), "Theta": point.dual} for point in found]
    np.savez(weights, **{name: np.stack([part[name] for part in arrays]) for name in arrays[0]})
    failed = [str(point.status) for point in found if not point.converged]
    return {
        "status": failed[0] if failed else "converged",
        "passes": sum(point.n_products for point in found),
        "iterations": sum(point.n_iter for point in found),
        "active": found[-1].n_active,
        "certified_gap": max(point.certificate.relative_gap for point in found),
    }


def parts(kind: str, weights: Any) -> dict[str, np.ndarray]:
    return {"U": weights} if kind == "gated" else dict(zip("VW", weights, strict=True))


def warm_up() -> None:
    """Load what is loaded when first used: in the parent of all runs, so that none pays for it."""
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((20, 3)), rng.standard_normal((20, 1)), np.eye(3)
    for kind in ("gated", "relu"):
        cvxnn.solve(build(*arrays, kind, 0.01), tol=1e-2)


if __name__ == "__main__":
    warm_up()
    serve_contained(run)
