"""Threads: one pool for large pieces of work, and one thread for each call of the BLAS.

Work is cut into pieces that are independent of each other, and the pool works on as many of them at
a time as there are processors. So results are the same to the last bit on any number of processors
and under any other load. The threads of the BLAS itself would not do: how they split a sum depends
on their number, and they wait for each other in busy loops, which is slowest on a busy machine.

The thread that asked for the work waits, and looks at the clock meanwhile (`budget.look`).

A process may fork at any moment, in the middle of a solve too. The child has one thread, the one
that forked; locks, pools and limits that the others left behind are reset here.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from threadpoolctl import ThreadpoolController

from cvxnn import budget

T = TypeVar("T")
Piece = TypeVar("Piece")

WAIT = 0.05  # seconds between two looks at the clock
ALONE = 2e-3  # seconds of work that are not worth another thread

_lock = threading.Lock()
_pool: tuple[int, ThreadPoolExecutor] | None = None
_inside = threading.local()  # whether this thread is one of the pool


class cached_property(functools.cached_property[T]):
    """That of the standard library without its lock, which Python 3.11 still has. The lock is one
    for all objects of a class and is held while a value is computed; a child that is forked then
    would wait for it forever."""

    def __init__(self, func: Callable[..., T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


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
    telling: bool = True,
) -> None:
    """Run all pieces, which are predicted to take so many seconds together, and look at the clock
    meanwhile. `stop` asks the pieces that are running to give up, for those that take long and can.

    Pieces are independent of each other and do not overwrite what they read, because they may run
    again after a fork in their middle. Pieces that do overwrite it are shared without `telling`:
    then no callback is called, which might fork.
    """
    alone = budget.PIECE if min(len(pieces), n_threads()) <= 1 else ALONE
    if seconds <= alone or getattr(_inside, "pool", False):
        for piece in pieces:
            budget.look()
            run(piece)
        return
    budget.look()
    shared = _Shared(run, pieces)
    try:
        shared.start()
        while shared.left:
            shared.wait()
            budget.look(telling)
        shared.check()
    except BaseException:
        if stop is not None:
            stop()
        shared.abandon()
        raise


class _Shared(Generic[Piece]):
    """Pieces of work in the pool. Whoever comes first takes a piece, so each is run once, even if
    the pool does not take all of them."""

    def __init__(self, run: Callable[[Piece], object], pieces: Sequence[Piece]) -> None:
        self._run = run
        self.left = dict(enumerate(pieces))  # those that have not ended
        self._errors: list[BaseException] = []
        self._prepare()

    def _prepare(self) -> None:
        self._process = os.getpid()
        self._waiting = deque(self.left.items())
        self._ended: SimpleQueue[int] = SimpleQueue()

    def start(self) -> None:
        try:
            for _ in range(len(self.left)):  # of which some may have ended by now
                _the_pool().submit(self._take)
        except RuntimeError:  # no more threads: the interpreter ends, or the system has no more
            while self._waiting:
                budget.look()
                self._take()

    def _take(self) -> None:
        try:
            index, piece = self._waiting.popleft()
        except IndexError:
            return
        try:
            self._run(piece)
        except BaseException as error:
            self._errors.append(error)
        # here, and not by whoever waits: an interrupt there would lose what it has just heard
        self.left.pop(index, None)
        self._ended.put(index)

    def wait(self) -> None:
        """Until a piece has ended, or for a while."""
        if os.getpid() != self._process:  # a callback has forked
            self._start_again()
        with suppress(Empty):
            self._ended.get(timeout=WAIT)
        self.check()

    def check(self) -> None:
        """Raise what a piece has raised."""
        if self._errors:
            raise self._errors[0]

    def _start_again(self) -> None:
        """In a child: the threads at work have stayed with the parent."""
        self._prepare()
        self.start()

    def abandon(self) -> None:
        """Wait for the pieces that are running, so that none is left behind the back of whoever
        catches the exception; pieces that wait are dropped."""
        if os.getpid() != self._process:
            return
        with suppress(IndexError):
            while True:
                del self.left[self._waiting.popleft()[0]]
        while self.left:
            with suppress(Empty):
                self._ended.get(timeout=WAIT)


def _the_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        size = n_threads()
        if _pool is None or _pool[0] != size:
            _pool = size, ThreadPoolExecutor(size, "cvxnn", initializer=_mark)
        return _pool[1]


def _mark() -> None:
    _inside.pool = True


class _Threads(Protocol):
    """A library with threads of its own, as threadpoolctl describes one."""

    filepath: str

    @property
    def num_threads(self) -> int: ...
    def set_num_threads(self, number: int) -> None: ...


def _set_threads(library: _Threads, number: int) -> None:
    """Set the number from any thread. threadpoolctl >= 3.8 silently ignores all threads but the
    first that set one, and here the last run to end restores it, whatever its thread."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


class _TorchThreads:
    """The OpenMP threads of PyTorch. In a forked child they would wait forever for the parent's."""

    filepath = "torch"

    @property
    def num_threads(self) -> int:
        return sys.modules["torch"].get_num_threads()

    def set_num_threads(self, number: int) -> None:
        sys.modules["torch"].set_num_threads(number)


class _BlasLimit:
    """One thread for each call of the BLAS while any run asks for that. The limit belongs to the
    process: later runs find it set, and the last one to end restores what the first one found. That
    is noted before the limit is set and forgotten after it was restored, so that an interruption at
    any point leaves a state from which the next run can go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[object, int] = {}  # and their threads
        self._libraries: list[_Threads] = []
        self._n_modules = 0  # when these were listed, which takes longer than a small solve
        self._forked_torch = False
        self._found: dict[
            str, tuple[_Threads, int]
        ] = {}  # libraries under the limit, and what they had

    def take(self, holder: object) -> None:
        with self._lock:
            self._holders[holder] = threading.get_ident()
            self._list_libraries()
            for library in self._libraries:
                threads = library.num_threads
                if library.filepath not in self._found and threads != 1:
                    self._found[library.filepath] = library, threads
                    _set_threads(library, 1)

    def release(self, holder: object) -> None:
        with self._lock:
            self._holders.pop(holder, None)
            if not self._holders:
                self._restore()

    def after_fork(self) -> None:
        """Only the thread that forked goes on in the child, perhaps in the middle of a solve."""
        self._lock = threading.Lock()
        own = threading.get_ident()
        self._holders = {h: thread for h, thread in self._holders.items() if thread == own}
        self._n_modules = 0
        self._forked_torch = "torch" in sys.modules  # one that comes later is not forked
        if not self._holders:
            self._restore()

    def _list_libraries(self) -> None:
        """A library of the BLAS comes with a module: SciPy's own with scipy.linalg, say. One that
        is built on OpenMP is left alone: its limit is one for each thread, and for OpenMP."""
        n_modules = len(sys.modules)
        if n_modules == self._n_modules:
            return
        self._libraries = [
            library
            for library in ThreadpoolController().select(user_api="blas").lib_controllers
            if getattr(library, "threading_layer", None) != "openmp"
        ]
        if self._forked_torch:
            self._libraries.append(_TorchThreads())
        self._n_modules = n_modules

    def _restore(self) -> None:
        for name, (library, threads) in list(self._found.items()):
            _set_threads(library, threads)
            del self._found[name]


_blas_limit = _BlasLimit()


@contextmanager
def single_blas() -> Iterator[None]:
    """Keep the BLAS to one thread for a while."""
    holder = object()
    try:
        _blas_limit.take(holder)
        yield
    finally:
        _blas_limit.release(holder)


def _after_fork() -> None:
    """A child has none of its parent's threads, and of its runs only the one that forked."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()
    _inside.pool = False
    _blas_limit.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
