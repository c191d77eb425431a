"""How commands end: exit codes, failures with a message, and what a failure has to know."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

import click

EXIT_CODES = {
    0: "done",
    1: "a failure that is cvxnn's own fault",
    2: "bad input or options",
    3: "done, but the tolerance was not met",
    4: "the certificate was not confirmed",
    5: "a file could not be read or written",
    6: "another process, a worker or the scheduler of a cluster was lost",
    130: "interrupted (Ctrl-C)",
    143: "terminated (SIGTERM)",
}
FAULT, BAD_INPUT, NOT_CONVERGED, NOT_CONFIRMED, FILE_TROUBLE = 1, 2, 3, 4, 5
LOST, INTERRUPTED, TERMINATED = 6, 130, 143


class Failure(click.ClickException):
    """An end with a message and an exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = exit_code  # click has one for the class


@dataclass
class Run:
    """One run of a command, as its end has to know it.

    as_json : whether the answer, or the error, is to be JSON.
    written : names of the files written so far.
    interrupted : the exit code of an interrupt: that of Ctrl-C, or of a termination.
    """

    as_json: bool
    written: list[str] = field(default_factory=list)
    interrupted: int = INTERRUPTED


def current_run() -> Run:
    return click.get_current_context().find_root().obj


def failure_of(error: BaseException, run: Run) -> click.ClickException | None:
    """The message for an error; None to let it pass."""
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, KeyboardInterrupt):
        done = " and ".join(run.written) or "nothing"
        text = str(error) or f"interrupted; {done} was written"
        return Failure(text, run.interrupted)
    if isinstance(error, (click.exceptions.Exit, click.Abort)):
        return None
    if not isinstance(error, Exception) or os.environ.get("CVXNN_DEBUG"):
        return None
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:
            return None  # the reader of our output has left; click ends quietly
        return Failure(f"{error.filename or 'output'}: {error.strerror or error}", FILE_TROUBLE)
    if type(error).__name__ in ("ClusterError", "LostRankError"):  # whose modules are slow
        return Failure(str(error), LOST)
    if isinstance(error, MemoryError):
        from cvxnn.memory import TooLargeError

        if isinstance(error, TooLargeError):  # its message says what to do
            return Failure(str(error), BAD_INPUT)
        return Failure(f"not enough memory, take fewer patterns or rows: {error}", BAD_INPUT)
    if isinstance(error, (ValueError, ImportError)):
        return Failure(str(error), BAD_INPUT)
    return Failure(
        f"unexpected {type(error).__name__}: {error}; this is a fault of cvxnn, please report it "
        "(CVXNN_DEBUG=1 shows where)",
        FAULT,
    )
