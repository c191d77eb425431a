"""What long work is doing, said now and then to whoever asked for it.

Work names its parts with `step`, and callbacks say how far they are with `Follower.detail`. Both
do nothing unless somebody listens: the command line, or an estimator with `verbose`. A thread of
the follower speaks when a step has been silent for a while, so that even work that cannot be
interrupted, such as a factorization, is heard of.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

FIRST = 1.5  # seconds of silence before the first line about a step
SLOWER, SELDOM = 1.6, 30.0  # then each silence is longer than the last by this factor, to a limit
LOGGER = "cvxnn"


class Follower:
    """Says what is being done: `write` gets a line after FIRST seconds of a step, and further lines
    ever more seldom. `show`, if there is one, gets the name of every step at once."""

    def __init__(
        self, write: Callable[[str], object], show: Callable[[str], object] | None = None
    ) -> None:
        self._write, self._show = write, show
        self._steps: list[tuple[str, float]] = []
        self._detail = ""
        self._silence, self._last = FIRST, monotonic()
        self._ended = threading.Event()

    def detail(self, text: str) -> None:
        """How far the step is: part of its next line."""
        self._detail = text

    def begin(self, name: str) -> None:
        self._steps.append((name, monotonic()))
        self._turn()

    def end(self) -> None:
        self._steps.pop()
        self._turn()

    def _turn(self) -> None:
        self._detail, self._silence, self._last = "", FIRST, monotonic()
        if self._show is not None:
            self._show(self._steps[-1][0] if self._steps else "")

    def line(self) -> str:
        """What is being done at this moment, and for how long; empty for nothing."""
        steps = self._steps[-1:]  # a copy, because the work may end the step meanwhile
        if not steps:
            return ""
        (name, since), detail = steps[0], self._detail
        return f"{name}{detail and f': {detail}'} ({monotonic() - since:.0f} s)"

    def speak(self) -> None:
        """Run in a thread: write lines until `close`."""
        while not self._ended.wait(0.1):
            if monotonic() - self._last < self._silence:
                continue
            line = self.line()
            self._last = monotonic()
            if line:
                self._silence = min(SLOWER * self._silence, SELDOM)
                try:
                    self._write(line)
                except OSError:  # nobody reads it any more, which the work itself will notice
                    return

    def close(self) -> None:
        self._ended.set()


_current: ContextVar[Follower | None] = ContextVar("cvxnn_progress", default=None)


@contextmanager
def followed(follower: Follower) -> Iterator[Follower]:
    """Have the work inside followed. One within another takes its place meanwhile."""
    thread = threading.Thread(target=follower.speak, name="cvxnn-progress", daemon=True)
    before = _current.set(follower)
    thread.start()
    try:
        yield follower
    finally:
        _current.reset(before)
        follower.close()
        thread.join()


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name what is done inside."""
    follower = _current.get()
    if follower is None:
        yield
        return
    follower.begin(name)
    try:
        yield
    finally:
        follower.end()


def log(text: str) -> None:
    """A line of the logger `cvxnn`: to its handlers if it has any, else to stderr."""
    logger = logging.getLogger(LOGGER)
    if logger.level and not logger.isEnabledFor(logging.INFO):
        return
    record = logger.makeRecord(LOGGER, logging.INFO, "", 0, text, (), None)
    if logger.hasHandlers():
        logger.handle(record)
    elif sys.stderr is not None:
        sys.stderr.write(f"{LOGGER}: {text}\n")
        sys.stderr.flush()
