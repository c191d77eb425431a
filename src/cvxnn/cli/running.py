"""How commands run: with a console, and to an end with a message and an exit code."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from cvxnn.cli import processes
from cvxnn.cli.outcomes import (
    BAD_INPUT,
    FAULT,
    FILE_TROUBLE,
    INTERRUPTED,
    LOST,
    TERMINATED,
    Failure,
    Run,
    current_run,
)

if TYPE_CHECKING:
    from cvxnn.cli.console import Console
    from cvxnn.ranks import Ranks

Options: TypeAlias = Mapping[str, object]
Action: TypeAlias = str  # the function that does it: its module in this folder, and its name
SHARED: Action = "training.fit"  # what several processes can do together


class Commands(click.Group):
    """Commands that end with a message and an exit code, in JSON as well if that is asked for."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        # looked up here, because an error in the other options is to be JSON as well
        context.obj = Run(as_json="--json" in args)
        if not processes.speaks():
            processes.be_silent()
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            with _terminable(context.obj):
                return super().invoke(context)
        except BaseException as error:
            failure = failure_of(error, context.obj)
            if failure is not None and context.obj.as_json:
                answer = {"error": failure.format_message(), "exit_code": failure.exit_code}
                click.echo(json.dumps(answer))
            if failure is None or failure is error:
                raise
            raise failure from error

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:  # stdout or stderr cannot be written to
            if os.environ.get("CVXNN_DEBUG"):
                raise
            click.echo(f"Error: output: {error.strerror}", err=True)
            sys.exit(FILE_TROUBLE)


@contextmanager
def _terminable(run: Run) -> Iterator[None]:
    """Treat SIGTERM, which batch systems send some time before they kill, like Ctrl-C, so that a
    command saves what it has. A handler that somebody else has installed stays."""

    def terminate(*_: object) -> None:
        run.interrupted = TERMINATED
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def runs(choose: Callable[[Options], Action]) -> Callable[..., None]:
    """A command from a function of its options, which checks them and says what to do. The files
    are looked at first: what does the work takes a second to import, which nobody should wait for
    only to be told of a slip. The command does its work with a console, and ends with the exit code
    that the work returns."""

    @wraps(choose)
    def run(*, as_json: bool = False, quiet: bool = False, **options: object) -> None:
        action = choose(options)
        from cvxnn.cli.console import Console

        console = Console(as_json=as_json, quiet=quiet)
        if not processes.several():
            code = _done(console, action, options)
        else:
            if action != SHARED:
                raise click.UsageError("cvxnn fit is what several processes can do together.")
            with processes.in_group() as ranks:
                code = _done(console, action, options, ranks)
                code = code if ranks.rank == 0 else 0
        if code == INTERRUPTED:
            code = current_run().interrupted
        if code:
            raise click.exceptions.Exit(code)

    return run


def _done(console: Console, action: Action, options: Options, ranks: Ranks | None = None) -> int:
    from cvxnn.cli.files import opened
    from cvxnn.progress import step

    module, name = action.split(".")
    with console.progress():
        given = opened(options, ranks)
        with step("starting"):
            work = getattr(import_module(f"cvxnn.cli.{module}"), name)
    return work(console, **given)


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
