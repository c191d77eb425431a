"""An interior-point solver on a program, within limits on processor time and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.memory import peak_bytes

import cvxnn.solvers.conic
from replication.experiment import Row
from replication.figure4.convex import pose, solved, task_of
from replication.limited import call, serve

PREPARED = 1e6  # seconds that the solver is told it has: the process ends it, by processor time


def conic(program: Row, limits: Row) -> Row:
    """Clarabel on a program, which is made again in the other process."""
    most = {"seconds": limits["max_seconds"], "gigabytes": limits["gigabytes"]}
    return {"trace": []} | call("replication.figure4.conic", program, **most)


def prepare(program: Row) -> Callable[[], Row]:
    task = task_of(program["set"])
    problem = pose(task, **{key: program[key] for key in ("kind", "patterns", "seed", "lam")})
    cvxnn.solvers.conic.MAX_ENTRIES = sys.maxsize  # the limit on memory decides

    def work() -> Row:
        row = solved(task, problem, "cvxpy", tol=1e-3, max_seconds=PREPARED)
        return {**row, "megabytes": round(peak_bytes() / 2**20)}

    return work


if __name__ == "__main__":
    sys.exit(serve(prepare))
