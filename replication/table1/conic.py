"""CD-SOCP through CVXPY, in a process of its own with limits on memory and processor time.

    min_w  sum_i ||u_i + w_i|| + ||w_i||   subject to   X~_i w_i >= (-X~_i u_i)_+

"joint" hands all blocks to the solver as one program, as the released code does, although it falls
apart into one program for each block; "separate" are these. A process that dies is an outcome.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
from benchmarks.record import ROOT

import cvxnn
from cvxnn.solvers.conic import import_cvxpy
from replication.data import Task
from replication.experiment import Row
from replication.table1.methods import group_norm, posed, rounded, solve_gated
from replication.table1.published import Blocks

try:
    import resource
except ImportError:  # Windows, where there are no such limits
    resource = None

OUT_OF_MEMORY, OUT_OF_TIME = 3, 4  # what the process returns
ENDINGS = {
    OUT_OF_TIME: "out of time",
    -9: "out of time",  # SIGKILL, at the hard limit on processor time
    -24: "out of time",  # SIGXCPU
    OUT_OF_MEMORY: "out of memory",
    -6: "out of memory",  # SIGABRT, with which compiled code answers to a failed allocation
}
GRACE = 100.0  # wall time for a processor second, at most: other processes may be busy


def run(piece: Row) -> Row:
    """The piece in a process of its own, and how that ended."""
    before = _child_seconds()
    command = [sys.executable, "-m", "replication.table1.conic", json.dumps(piece)]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=GRACE * piece["seconds"]
        )
        code, text = ended.returncode, ended.stdout
    except subprocess.TimeoutExpired:
        code, text = OUT_OF_TIME, ""
    if code == 0:
        return json.loads(text.splitlines()[-1])
    if code not in ENDINGS:
        raise RuntimeError(f"the conic program ended with {code}: {ended.stderr[-2000:]}")
    return {"status": ENDINGS[code], "seconds": rounded(_child_seconds() - before)}


def _child_seconds() -> float:
    if resource is None:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def main() -> None:
    piece = json.loads(sys.argv[1])
    if resource is not None:
        seconds, most = int(piece["seconds"]), int(piece["gigabytes"] * 2**30)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        sys.stdout.write(json.dumps(solve(piece)) + "\n")
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main()
