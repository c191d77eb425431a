"""How commands run: with a console, and to an end with a message and an exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from cvxnn.cli import processes
from cvxnn.cli.outcomes import (
    FILE_TROUBLE,
    INTERRUPTED,
    TERMINATED,
    Run,
    current_run,
    failure_of,
)

if TYPE_CHECKING:
    from cvxnn.cli.console import Console
    from cvxnn.ranks import Ranks

Options: TypeAlias = Mapping[str, object]
Action: TypeAlias = str  # the function that does it: its module in this folder, and its name
SHARED: Action = "training.fit"  # what several processes can do together


class Command(click.Command):
    """A command that tells what became of a name with * that the shell has replaced."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        before = list(args)
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            takes_data = any(parameter.name == "data" for parameter in self.params)
            files = [word for word in before if Path(word).is_file()]
            if not takes_data or "unexpected extra argument" not in error.message or len(files) < 2:
                raise
            why = (
                "a table in several files is one argument: their folder, or a name with * in quotes"
            )
            raise click.UsageError(f"{error.message}; {why}", context) from error


class Commands(click.Group):
    """Commands that end with a message and an exit code, in JSON as well if that is asked for."""

    command_class = Command

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
