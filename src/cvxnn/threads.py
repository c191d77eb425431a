"""Threads: one pool for large pieces of work, and one thread for each call of the BLAS.

Work is cut into pieces whose number and bounds depend on its size alone, and the pool works on as
many of them at a time as there are processors. So results are the same to the last bit on any
number of processors and beside any other load. Threads of the BLAS itself give none of this: they
share sums by their number, and wait for each other in loops, which costs a busy machine most.

The thread that asked waits, and looks at the clock while it does (`budget.look`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from cvxnn import budget

Piece = TypeVar("Piece")

WAIT = 0.05  # seconds between two looks at the clock
ALONE = 2e-3  # seconds of work that are not worth another thread

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_inside = threading.local()  # whether this thread is one of the pool


def n_threads() -> int:
    """As many as BLAS would take: OMP_NUM_THREADS, else the processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(
    run: Callable[[Piece], object],
    pieces: Sequence[Piece],
    seconds: float,
    stop: Callable[[], object] | None = None,
) -> None:
    """Run all pieces, which are independent of each other and predicted to take so many seconds
    together, and look at the clock meanwhile. `stop` asks the pieces that are running to give up,
    for those that take long and can."""
    budget.look()
    if seconds <= ALONE or getattr(_inside, "pool", False):
        for piece in pieces:
            run(piece)
        return
    if len(pieces) == 1 and seconds <= budget.PIECE:
        run(pieces[0])
        return
    futures: list[Future[object]] = [_the_pool().submit(run, piece) for piece in pieces]
    try:
        left = set(futures)
        while left:
            left = wait(left, timeout=WAIT).not_done
            budget.look()
    except BaseException:
        if stop is not None:
            stop()
        for future in futures:
            future.cancel()
        wait(futures)  # none is left running behind the back of whoever catches this
        raise
    for future in futures:
        future.result()


def _the_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None or _pool._max_workers != n_threads():
            _pool = ThreadPoolExecutor(n_threads(), "cvxnn", initializer=_mark)
        return _pool


def _mark() -> None:
    _inside.pool = True


class _BlasLimit:
    """One thread for each call of the BLAS as long as somebody wants that. The limit is one for
    the process, so those who come later find it set, and the last to leave restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: Any = None
        self._limits: Any = None

    def take(self) -> None:
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                self._limits = self._controller.limit(limits=1, user_api="blas")

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limits.restore_original_limits()


_blas_limit = _BlasLimit()


@contextmanager
def single_blas() -> Iterator[None]:
    """Keep the BLAS to one thread for a while."""
    _blas_limit.take()
    try:
        yield
    finally:
        _blas_limit.release()


def _after_fork() -> None:
    """A child has none of its parent's threads, and of its runs only the one that forked."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()
    _inside.pool = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
