"""Talking to a package in a process, and where need be an environment, of its own.

A request is one line of JSON and so is its answer; arrays travel in .npz files named in the
request. The process stays alive between requests, so that imports are paid once and runs of
different packages can be interleaved; while it waits it uses no processor time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any


class Worker:
    """`python -m MODULE` under the given interpreter, answering requests."""

    def __init__(self, python: str | Path, module: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", module],
            cwd=folder,
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
        if self._process.stdin is not None:
            self._process.stdin.close()  # the end of its requests ends the process
        self._process.wait()


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """The other side: call `answer(**request)` for each request until there are no more."""
    replies = sys.stdout
    sys.stdout = sys.stderr  # what a package prints must not get between the replies
    for line in sys.stdin:
        replies.write(json.dumps(answer(**json.loads(line))) + "\n")
        replies.flush()
