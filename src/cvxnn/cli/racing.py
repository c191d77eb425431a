"""The race of solvers: `cvxnn bench`."""

from __future__ import annotations

import time
from importlib.util import find_spec

from cvxnn.cli.console import Console
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.progress import step
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Solution, Status
from cvxnn.tables.paths import pose
from cvxnn.tables.table import Table


def bench(
    console: Console,
    table: Table | None,
    target: str | None,
    kind: str,
    n_patterns: int,
    alpha: float,
    tol: float,
    max_seconds: float,
    seed: int,
) -> int:
    if table is None or target is None:  # no file was given
        table, target = _breast_cancer(), "diagnosis"
    problem = pose(table, target, kind=kind, alpha=alpha, n_patterns=n_patterns, seed=seed)
    console.say(str(problem))
    results: list[dict[str, object]] = []
    console.say(f"  {'solver':<8} {'seconds':>9} {'iterations':>11} {'passes':>8} {'gap':>9}")
    for name in _racing(problem):
        started = time.process_time()
        try:
            with console.progress() as bars, step(name):
                solution = solve(
                    problem,
                    name,
                    tol=tol,
                    max_seconds=max_seconds,
                    callback=bars.gap(tol),
                    on_failure="ignore",
                )
        except RuntimeError as error:  # a solver of another package has given up
            console.say(f"  {name:<8} failed: {error}")
            results.append({"solver": name, "status": f"failed: {error}"})
            continue
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        seconds = time.process_time() - started
        results.append(_result(name, solution, seconds))
        gap = solution.certificate.relative_gap
        console.say(
            f"  {name:<8} {seconds:>9.3f} {solution.n_iter:>11} {solution.n_products:>8} "
            f"{gap:>9.1e}  {solution.status}"
        )
    console.say(f"processor seconds, to a relative gap of {tol:g}")
    console.result({"problem": str(problem), "tol": tol, "solvers": results})
    return 0


def _racing(problem: ConvexProblem) -> list[str]:
    names = ["newton", "al" if isinstance(problem, CReLU) else "rfista"]
    both = find_spec("clarabel") and find_spec("cvxpy")
    return [*names, "cvxpy"] if both else names


def _result(name: str, solution: Solution, seconds: float) -> dict[str, object]:
    return {
        "solver": name,
        "seconds": seconds,
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "relative_gap": solution.certificate.relative_gap,
        "status": str(solution.status),
    }


def _breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    columns["diagnosis"] = data.target_names[data.target].astype(object)
    return Table(columns, "breast cancer")
