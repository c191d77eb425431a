"""Work in a process of its own with limits on processor time and memory.

Interior-point solvers take whatever they get, and may die for lack of it. A process that exceeds
its limits, or dies, is an outcome and not an error. Where the system knows no such limits (Windows)
there is only the wall clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from benchmarks.record import ROOT

from replication.experiment import Row

try:
    import resource
except ImportError:  # Windows
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
LAST = 2  # seconds between the soft and the hard limit


def call(module: str, request: Row, *, seconds: float, gigabytes: float) -> Row:
    """The row that `serve` prints in a process `python -m module`; or its status, as in ENDINGS or
    "failed" with the reason, and the processor seconds that it took."""
    limits = {"seconds": seconds, "gigabytes": gigabytes}
    command = [sys.executable, "-m", module, json.dumps([request, limits])]
    before, reason = _child_seconds(), ""
    try:
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=GRACE * seconds
        )
        code, reason = ended.returncode, ended.stderr[-2000:]
    except subprocess.TimeoutExpired:
        code = OUT_OF_TIME
    if code == 0:
        found: Row = json.loads(ended.stdout.splitlines()[-1])
        return found
    taken = round(_child_seconds() - before, 3)
    if code in ENDINGS:
        return {"status": ENDINGS[code], "seconds": taken}
    return {"status": "failed", "seconds": taken, "reason": f"exit code {code}: {reason}"}


def serve(prepare: Callable[[Row], Callable[[], Row]]) -> int:
    """What the module does when it is called: prepare the work, which is not limited, then do it
    within the limits and print its row."""
    request, limits = json.loads(sys.argv[1])
    work = prepare(request)
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime + limits["seconds"]) + 1
        most = int(limits["gigabytes"] * 2**30)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + LAST))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        row = work()
    except MemoryError:
        return OUT_OF_MEMORY
    sys.stdout.write(json.dumps(row) + "\n")
    return 0


def _child_seconds() -> float:
    if resource is None:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
