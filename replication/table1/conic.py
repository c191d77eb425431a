"""CD-SOCP through CVXPY, in a process of its own with limits on memory and processor time.

    min_w  sum_i ||u_i + w_i|| + ||w_i||   subject to   X~_i w_i >= (-X~_i u_i)_+

"joint" hands all blocks to the solver as one program, as the released code does, although it falls
apart into one program for each block; "separate" are these.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import cvxnn
from cvxnn.solvers.conic import import_cvxpy
from replication.data import Task
from replication.experiment import Row
from replication.limited import call, serve
from replication.table1.methods import group_norm, posed, rounded, solve_gated
from replication.table1.published import Blocks


def run(piece: Row) -> Row:
    """The piece in a process of its own, and how that ended."""
    limits = {key: piece[key] for key in ("seconds", "gigabytes")}
    found = call("replication.table1.conic", piece, **limits)
    if found["status"] == "failed":
        raise RuntimeError(f"the conic program failed: {found['reason']}")
    return found


def prepare(piece: Row) -> Callable[[], Row]:
    return lambda: solve(piece)


def solve(piece: Row) -> Row:
    task, problem = posed(piece)
    gated, _ = solve_gated(problem.gated, piece)
    begin = time.process_time()
    if piece["kind"] == "joint":
        V, W, status = joint(gated, task)
    else:
        (V, W), status = cvxnn.decompose(gated, "socp").weights, "optimal"
    seconds = time.process_time() - begin
    network = cvxnn.ReLUNetwork.from_convex(V, W)
    blocks = len(Blocks.of(gated).u)
    return {
        "status": status,
        "seconds": rounded(seconds),
        "accuracy": rounded(task.accuracy(network.predict(task.X_test))),
        "norm": rounded(group_norm((V, W))),
        "smallest_norm": rounded(group_norm(cvxnn.decompose(gated, "min-norm").weights)),
        "blocks": blocks,
        "constraints": blocks * len(task.X),
    }


def joint(gated: cvxnn.Solution, task: Task) -> tuple[np.ndarray, np.ndarray, str]:
    """All blocks in one program by Clarabel; what it returns is in the cones to its tolerances."""
    cp = import_cvxpy()
    blocks, X = Blocks.of(gated), task.X
    W = cp.Variable(blocks.u.shape)
    norms = cp.sum(cp.norm(blocks.u + W, 2, axis=1)) + cp.sum(cp.norm(W, 2, axis=1))
    inside = cp.multiply(blocks.signs, W @ X.T) >= blocks.shortage(X)
    program = cp.Problem(cp.Minimize(norms), [inside])
    program.solve(solver="CLARABEL")
    if W.value is None:
        raise RuntimeError(f"Clarabel ended with status {program.status!r}")
    shape = np.shape(gated.weights)
    v, w = (blocks.assembled(part, shape) for part in (blocks.u + W.value, W.value))
    return v, w, program.status


if __name__ == "__main__":
    sys.exit(serve(prepare))
