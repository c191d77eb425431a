"""Talking to a package in a process, and where need be an environment, of its own.

A request is one line of JSON and so is its answer; arrays travel in .npz files named in the
request. The process stays alive between requests, so that imports are paid once and runs of
different packages can be interleaved; while it waits it uses no processor time.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.memory import peak_bytes

# A run that can stop by itself gets this much more processor time to do so before it is ended.
SLACK, GRACE = 1.25, 1


class Worker:
    """`python -m MODULE` under the given interpreter, answering requests."""

    def __init__(
        self,
        python: str | Path,
        module: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", module],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.module = module

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.module} ended without an answer; see its messages above")
        return json.loads(answer)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()  # the end of its requests ends the process


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """The other side: call `answer(**request)` for each request until there are no more."""
    replies = sys.stdout
    sys.stdout = sys.stderr  # what a package prints must not get between the replies
    for line in sys.stdin:
        replies.write(json.dumps(answer(**json.loads(line))) + "\n")
        replies.flush()


def serve_contained(answer: Callable[..., dict[str, Any]]) -> None:
    """As `serve`, with a child process for each request. A child that exceeds `max_seconds` of
    processor time is ended, whatever language it is in; its peak of memory is its own; and what
    goes wrong in it is an answer, not an end."""
    serve(lambda **request: _contained(answer, request))


def _contained(answer: Callable[..., dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(_answered(answer, request)))
        finally:
            os._exit(0)  # whatever happened, the child is not to go on serving
    os.close(writing)
    with os.fdopen(reading) as pipe:
        reply = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if reply:
        return json.loads(reply)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return {"status": "time_limit", "seconds": usage.ru_utime + usage.ru_stime}
    return {"status": "failed", "reason": f"ended with {os.waitstatus_to_exitcode(status)}"}


def _answered(answer: Callable[..., dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    limit = math.ceil(SLACK * request["max_seconds"]) + GRACE
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + GRACE))
    gc.collect()  # touches what a child would otherwise copy when the run first touches it
    try:
        result = answer(**request)
    except BaseException as error:  # a panic of a compiled package is no Exception
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {"status": "ended", **result, "peak_bytes": peak_bytes()}
