"""`torchrun -m cvxnn fit`: one command as several processes, each with a share of the rows.

Process 0 speaks for all. What goes wrong elsewhere is left in the store that the processes share,
and told by process 0; the others are silent.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from cvxnn.cli.outcomes import LOST, TERMINATED, Failure, Run, current_run, failure_of

if TYPE_CHECKING:
    from cvxnn.ranks import Ranks

MEETING = 300.0  # seconds that processes wait for each other to start
TELLING = 2.0  # seconds that process 0 has to tell what went wrong elsewhere
AGAIN = 5.0  # seconds in which another signal is the same one: a terminal and torchrun send both

_WRONG = "what went wrong"


def several() -> bool:
    """Whether torchrun, or another program like it, has started this process among others."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


def speaks() -> bool:
    """Whether this process is the one that speaks for all."""
    return not several() or int(os.environ["RANK"]) == 0


def be_silent() -> None:
    if not os.environ.get("CVXNN_DEBUG"):
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def leave(ended: SystemExit) -> NoReturn:
    """End this process at once: threads of PyTorch's process groups that are still there when the
    interpreter takes itself down may abort it, and torchrun would call the run failed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


@contextmanager
def in_group() -> Iterator[Ranks]:
    """The processes as ranks. An error in one of them ends all, and is told once."""
    from torch import distributed

    from cvxnn.ranks import TorchRanks

    wait = timedelta(seconds=MEETING)
    store, rank, size = next(distributed.rendezvous("env://", timeout=wait))
    store = distributed.PrefixStore("cvxnn", store)
    ranks = TorchRanks.of_store(store, rank, size)
    with _signals(rank):
        try:
            yield ranks
        except BaseException as error:
            word = "" if rank == 0 else _word(rank, error)
            if word:
                with suppress(RuntimeError):
                    store.compare_set(_WRONG, "", word)  # the first one counts
            ranks.close()  # whoever waits for this process ends as well
            if rank > 0:
                time.sleep(TELLING)
                raise click.exceptions.Exit(int(word.partition(" ")[0] or 1)) from error
            raise _first_error(store, error) from error
        ranks.gather(None)  # nobody goes before all are done: torchrun would end the others
        ranks.close()


def _word(rank: int, error: BaseException) -> str:
    """What went wrong here, for process 0, after its exit code; empty if it knows already."""
    from cvxnn.ranks import OtherRankError

    if isinstance(error, OtherRankError):
        return ""
    failure = failure_of(error, Run(as_json=False))
    if failure is None:
        return ""
    return f"{failure.exit_code} process {rank}: {failure.format_message()}"


def _first_error(store: object, error: BaseException) -> BaseException:
    """On process 0: its own error, or the one that it follows from."""
    from cvxnn.ranks import LostRankError, OtherRankError

    if isinstance(error, OtherRankError):  # which quotes it
        return Failure(str(error), _code(store))
    if not isinstance(error, LostRankError | KeyboardInterrupt):
        return error
    until = time.monotonic() + TELLING / 2
    while time.monotonic() < until:
        with suppress(RuntimeError):
            if store.check([_WRONG]):  # type: ignore[attr-defined]
                _, _, message = store.get(_WRONG).decode().partition(" ")  # type: ignore[attr-defined]
                return Failure(message, _code(store))
        if isinstance(error, KeyboardInterrupt):
            return _of_a_signal(error)
        time.sleep(0.05)
    return Failure(f"the fit has ended, because {error}", LOST)


def _of_a_signal(error: KeyboardInterrupt) -> BaseException:
    run = current_run()
    if run.interrupted != TERMINATED or run.written:
        return error
    why = "ended by SIGTERM, which torchrun sends as well when it has lost another process"
    return Failure(f"{why}; nothing was written", TERMINATED)


def _code(store: object) -> int:
    with suppress(RuntimeError, ValueError):
        if store.check([_WRONG]):  # type: ignore[attr-defined]
            return int(store.get(_WRONG).decode().partition(" ")[0])  # type: ignore[attr-defined]
    return 2


@contextmanager
def _signals(rank: int) -> Iterator[None]:
    """Process 0 decides on interrupts; the others ignore them, and end with it."""
    run, last = current_run(), -AGAIN

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if rank == 0 and last - before >= AGAIN:
            run.interrupted = 128 + number
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    earlier = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, earlier, strict=True):
            signal.signal(number, handler)
