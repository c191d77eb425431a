"""An interior-point solver on a program, in a process of its own with limits on processor time and
memory. A process that exceeds them, or dies, is an outcome."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from benchmarks.memory import peak_bytes
from benchmarks.record import ROOT

import cvxnn.solvers.conic
from replication.experiment import Row
from replication.figure4.convex import pose, rounded, solved, task_of

OUT_OF_MEMORY = 3  # what the process returns
ENDINGS = {
    OUT_OF_MEMORY: "out of memory",
    -6: "out of memory",  # SIGABRT, with which compiled code answers to a failed allocation
    -9: "out of time",  # SIGKILL, at the hard limit on processor time
    -24: "out of time",  # SIGXCPU
}
PREPARED = 1e6  # seconds that the solver is told it has: the process ends it, by processor time


def conic(program: Row, limits: Row) -> Row:
    """Clarabel on a program, which is made again in the other process."""
    request = json.dumps([program, limits])
    command = [sys.executable, "-m", "replication.figure4.conic", request]
    before = _child_seconds()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode == 0:
        found: Row = json.loads(ended.stdout.splitlines()[-1])
        return found
    seconds = rounded(_child_seconds() - before)
    failure = {"status": ENDINGS.get(ended.returncode, "failed"), "seconds": seconds, "trace": []}
    return failure | ({"reason": ended.stderr[-300:]} if failure["status"] == "failed" else {})


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(program: Row, limits: Row) -> int:
    task = task_of(program["set"])
    problem = pose(task, **{key: program[key] for key in ("kind", "patterns", "seed", "lam")})
    _limit(limits)
    cvxnn.solvers.conic.MAX_ENTRIES = sys.maxsize  # the limit on memory decides
    try:
        row = solved(task, problem, "cvxpy", tol=1e-3, max_seconds=PREPARED)
    except MemoryError:
        return OUT_OF_MEMORY
    sys.stdout.write(json.dumps({**row, "megabytes": round(peak_bytes() / 2**20)}) + "\n")
    return 0


def _limit(limits: Row) -> None:
    """Processor time counts from the beginning of the process, which takes seconds to begin."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + limits["max_seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    most = int(limits["gigabytes"] * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    sys.exit(main(*json.loads(sys.argv[1])))
