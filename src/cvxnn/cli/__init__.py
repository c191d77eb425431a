"""The command line. What a command does is in `commands.py`, imported when it runs, so that
`cvxnn --help` is instant.

Exit codes: 0 done; 1 a failure that is cvxnn's fault; 2 bad input or options; 3 done, but the
tolerance was not met; 4 a certificate was not confirmed; 5 a file could not be read or written;
130 interrupted, 143 terminated. With --json there is one JSON object on stdout whatever happens.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cvxnn import __version__
from cvxnn.cli.outcomes import (
    BAD_INPUT,
    FAULT,
    FILE_TROUBLE,
    INTERRUPTED,
    TERMINATED,
    Failure,
)


class _Commands(click.Group):
    """Commands that end with a message and an exit code, in JSON as well if that is asked for."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.obj = {
            "json": "--json" in args,  # before they are known to be sound
            "written": [],  # files, so far
            "interrupted": INTERRUPTED,  # what an interrupt exits with
        }
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            with _terminable(context.obj):
                return super().invoke(context)
        except BaseException as error:
            failure = _failure(error, context.obj)
            if failure is not None and context.obj["json"]:
                told = {"error": failure.format_message(), "exit_code": failure.exit_code}
                click.echo(json.dumps(told))
            if failure is None or failure is error:
                raise
            raise failure from error

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:  # nobody takes what there is to say
            if os.environ.get("CVXNN_DEBUG"):
                raise
            click.echo(f"Error: output: {error.strerror}", err=True)
            sys.exit(FILE_TROUBLE)


@contextmanager
def _terminable(told: dict[str, Any]) -> Iterator[None]:
    """Take SIGTERM, which batch systems send some time before they kill, for a Ctrl-C: what is good
    for that is good for both. Somebody else's handler stays."""

    def terminate(*_: object) -> None:
        told["interrupted"] = TERMINATED
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


# -- what options and commands have in common


def _finite(context: click.Context, parameter: click.Parameter, value: float | None) -> Any:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not finite.")
    return value


def _writable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Any:
    """Refuse before any work what could not be written after it."""
    if path is None:
        return None
    folder = path.parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder} to write to.")
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"the folder {folder} cannot be written to.")
    if path.exists() and not path.is_file():
        raise click.BadParameter(f"{path} is no ordinary file.")
    for name in ("data", "model"):
        given = context.params.get(name)
        if given is not None and path.exists() and given.exists() and path.samefile(given):
            raise click.BadParameter(f"{path} is the {name} file, which would be lost.")
    return path


def _picture(context: click.Context, parameter: click.Parameter, path: Path | None) -> Any:
    if path is not None and path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise click.BadParameter(f"{path} does not end in .png, .pdf or .svg.")
    return _writable(context, parameter, path)


def _columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of columns, for the shell to complete."""
    from cvxnn.tables.reading import TableError, read_table

    # an option that waits for its value ends the parsing before arguments are named
    for data in filter(None, [context.params.get("data"), *context.args]):
        with suppress(TableError, OSError):
            names = [name for name in read_table(data).names if name.startswith(incomplete)]
            bash = os.environ.get("_CVXNN_COMPLETE", "").startswith("bash")  # others quote
            return [shlex.quote(name) for name in names] if bash else names
    return []


def _refuse_unread(why: str, *names: str) -> None:
    """Refuse options that were given and would not be looked at."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} {why}.")


def _output(default: str | None, help: str, callback: Any = _writable) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None if default is None else Path(default),
        show_default=default is not None,
        callback=callback,
        help=help,
    )


def _number(name: str, default: float | None, help: str, **limits: Any) -> Callable[..., Any]:
    return click.option(
        name,
        default=default,
        show_default=default is not None,
        type=click.FloatRange(**limits),
        callback=_finite,
        help=help,
    )


def _together(*options: Callable[..., Any]) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


_MODEL = click.argument("model", type=click.Path(path_type=Path), is_eager=True)
_DATA = click.argument("data", type=click.Path(path_type=Path), is_eager=True)
_READING = _together(
    click.option(
        "--delimiter",
        help="What separates columns, such as ';' or tab. Default: found in the header.",
    ),
    click.option("--encoding", help="Encoding of a text file, such as latin-1. Default: UTF-8."),
)
_SAFE_CSV = click.option(
    "--safe-csv",
    "safe",
    is_flag=True,
    help="Put ' before texts that a spreadsheet would run as formulas.",
)
_SPEAKING = _together(
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object for other programs to read."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
)
_SEED = click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**31 - 1),
    help="Seed for held-out rows, patterns and folds. The same seed gives the same model.",
)
_TOL = _number("--tol", 1e-4, "Relative duality gap at which training ends.", min=0)
_LEARNING = _together(
    click.option("--target", shell_complete=_columns, help="The column to predict.  [required]"),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="Default: classification for texts and for up to ten different whole numbers.",
    ),
    click.option(
        "--model",
        "kind",
        type=click.Choice(["relu", "gated"]),
        default="relu",
        show_default=True,
        help="A ReLU network, or a gated ReLU network, which trains faster.",
    ),
    click.option(
        "--ignore",
        multiple=True,
        shell_complete=_columns,
        help="A column to leave out. Repeat the option for more columns.",
    ),
    click.option(
        "--weight", shell_complete=_columns, help="The column that holds the weights of the rows."
    ),
    click.option(
        "--missing",
        type=click.Choice(["impute", "refuse"]),
        default="impute",
        show_default=True,
        help="Fill in missing values and mark them, or stop with an error.",
    ),
    click.option(
        "--max-categories",
        default=50,
        show_default=True,
        type=click.IntRange(min=2),
        help="Leave out text columns with more different texts than this.",
    ),
    _number("--holdout", 0.2, "Share of the rows to score and not to train on.", min=0, max=0.9),
    click.option(
        "--patterns",
        "n_patterns",
        default=500,
        show_default=True,
        type=click.IntRange(min=1),
        help="Number of activation patterns to sample.",
    ),
    _TOL,
    _SEED,
)


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command with a console, and end with the exit code that it returns."""

    @wraps(command)
    def run(*args: Any, as_json: bool = False, quiet: bool = False, **options: Any) -> None:
        from cvxnn.cli.console import Console

        code = command(Console(as_json=as_json, quiet=quiet), *args, **options)
        if code == INTERRUPTED:
            code = click.get_current_context().find_root().obj["interrupted"]
        if code:
            raise click.exceptions.Exit(code)

    return run


def _failure(error: BaseException, told: dict[str, Any]) -> click.ClickException | None:
    """The message for an error; None to let it pass."""
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, KeyboardInterrupt):
        done = " and ".join(told["written"]) or "nothing"
        text = str(error) or f"interrupted; {done} was written"
        return Failure(text, told["interrupted"])
    if isinstance(error, (click.exceptions.Exit, click.Abort)):
        return None
    if not isinstance(error, Exception) or os.environ.get("CVXNN_DEBUG"):
        return None
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:
            return None  # whoever read has left; click ends quietly
        return Failure(f"{error.filename or 'output'}: {error.strerror or error}", FILE_TROUBLE)
    if isinstance(error, MemoryError):
        from cvxnn.memory import TooLargeError

        if isinstance(error, TooLargeError):  # which says what to do
            return Failure(str(error), BAD_INPUT)
        return Failure(f"not enough memory, take fewer patterns or rows: {error}", BAD_INPUT)
    if isinstance(error, (ValueError, ImportError)):
        return Failure(str(error), BAD_INPUT)
    return Failure(
        f"unexpected {type(error).__name__}: {error}; this is a fault of cvxnn, please report it "
        "(CVXNN_DEBUG=1 shows where)",
        FAULT,
    )


# -- the commands


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="cvxnn COMMAND --help has options and examples.",
)
@click.version_option(__version__, prog_name="cvxnn")
def main() -> None:
    """Train two-layer ReLU networks to a certified optimum.

    \b
    From a CSV file to a page in the browser:
        cvxnn fit data.csv --target label -o model.cvxnn
        cvxnn predict model.cvxnn new.csv -o predictions.csv
        cvxnn report model.cvxnn data.csv -o report.html
    """


@main.command(short_help="Train a model of a column of a table.")
@_DATA
@_output("model.cvxnn", "The model file.")
@_LEARNING
@_number("--alpha", None, "Strength of the penalty; by cross-validation unless given.", min=0)
@click.option(
    "--folds",
    default=5,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of folds.",
)
@click.option(
    "--rule",
    type=click.Choice(["best", "one_se"]),
    default="best",
    show_default=True,
    help="The alpha with the best score, or the largest alpha within one standard error of it.",
)
@click.option(
    "--jobs",
    default=1,
    show_default=True,
    type=int,
    help="Number of folds to run at the same time; -1 for one per processor.",
)
@_READING
@_SPEAKING
@_guarded
def fit(console: Any, **options: Any) -> int:
    """Train a model of the column --target of DATA: CSV, TSV or Parquet, gzipped or not.

    Columns of texts become categories, missing values are filled in, and the strength of the
    penalty is chosen by cross-validation. What was done is said. A fifth of the rows is held out
    to score the model on.

    \b
    Examples:
        cvxnn fit data.csv --target label
        cvxnn fit data.csv --target price --model gated --alpha 0.01 -o price.cvxnn
        cvxnn fit data.parquet --target label --ignore id --jobs 2 --json
    """
    from cvxnn.cli.commands import fit

    if options["alpha"] is not None:
        why = "is for cross-validation, which --alpha leaves out"
        _refuse_unread(why, "folds", "rule", "jobs")
    return fit(console, **options)


@main.command(short_help="Predict the rows of a table.")
@_MODEL
@_DATA
@_output(None, "The CSV file of predictions; printed unless given.")
@click.option(
    "--keep",
    multiple=True,
    shell_complete=_columns,
    help="Copy a column of DATA, such as a key, to the output. May be repeated.",
)
@_SAFE_CSV
@_READING
@_SPEAKING
@_guarded
def predict(console: Any, **options: Any) -> int:
    """Predict the rows of DATA, whose columns may be in any order.

    The predictions are a CSV table in the order of the rows: prediction, and for classes one
    column probability_<class> each.

    \b
    Examples:
        cvxnn predict model.cvxnn new.csv -o predictions.csv
        cvxnn predict model.cvxnn new.csv | head
    """
    from cvxnn.cli.commands import predict

    return predict(console, **options)


@main.command(short_help="Train at many strengths of the penalty.")
@_DATA
@_output("path.csv", "The CSV file of the path.")
@_LEARNING
@click.option(
    "--points",
    default=30,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of points on the path.",
)
@_number("--eps", 1e-2, "The smallest alpha, relative to the largest one.", min=1e-12, max=1)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_picture,
    help="Draw the path to this file: .png, .pdf or .svg.",
)
@_SAFE_CSV
@_READING
@_SPEAKING
@_guarded
def path(console: Any, **options: Any) -> int:
    """Train at many strengths of the penalty, from the one where all neurons are zero down.

    Each point is certified. What is done is kept in a file beside the output until all is: the
    same command goes on where it was stopped.

    \b
    Examples:
        cvxnn path data.csv --target label
        cvxnn path data.csv --target label --points 50 --eps 1e-3 -o path.csv --plot path.png
    """
    from cvxnn.cli.commands import path

    return path(console, **options)


@main.command(short_help="Check the bounds of a model again.")
@_MODEL
@_DATA
@_READING
@_SPEAKING
@_guarded
def certify(console: Any, **options: Any) -> int:
    """Check the bounds of MODEL again, on the DATA that it was trained on.

    The check shares no code with the solvers. It computes the objective of the network, and what
    the dual point in the file proves of all networks with these patterns.

    \b
    Example:
        cvxnn certify model.cvxnn data.csv
    """
    from cvxnn.cli.commands import certify

    return certify(console, **options)


@main.command(short_help="Solve again over the patterns of a model's network.")
@_MODEL
@_DATA
@_output("improved.cvxnn", "The model file of the improved network.")
@click.option(
    "--patterns",
    "n_patterns",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Number of patterns to sample in addition to those of the network.",
)
@_number("--alpha", None, "Strength of the penalty; that of the model unless given.", min=1e-300)
@_TOL
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**31 - 1),
    help="Random seed for the sampled patterns.",
)
@_READING
@_SPEAKING
@_guarded
def improve(console: Any, **options: Any) -> int:
    """Solve again over the patterns that the network of MODEL has on its training rows.

    The training objective never gets worse; how good the result is on other rows is not promised.

    \b
    Example:
        cvxnn improve model.cvxnn data.csv --patterns 1000 -o better.cvxnn
    """
    from cvxnn.cli.commands import improve

    if options["n_patterns"] == 0:
        _refuse_unread("is for sampled patterns, and --patterns asks for none", "seed")
    return improve(console, **options)


@main.command(short_help="Drop the neurons that a model can do without.")
@_MODEL
@_DATA
@_output("pruned.cvxnn", "The model file of the pruned network.")
@_READING
@_SPEAKING
@_guarded
def prune(console: Any, **options: Any) -> int:
    """Drop the neurons that MODEL can do without on the rows that it was trained on.

    Predictions stay the same on these rows, and the objective does not rise. Elsewhere predictions
    may change.

    \b
    Example:
        cvxnn prune model.cvxnn data.csv -o small.cvxnn
    """
    from cvxnn.cli.commands import prune

    return prune(console, **options)


@main.command(short_help="Write a model's network as ONNX, PyTorch or safetensors.")
@_MODEL
@_output(None, "Where it goes; the suffix says what it is: .onnx, .pt2 or .safetensors.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Type of the numbers in .onnx and .pt2 files.",
)
@_SPEAKING
@_guarded
def export(console: Any, **options: Any) -> int:
    """Write the network of MODEL for other programs.

    \b
    .onnx          for onnxruntime and others; with probabilities for classes
    .pt2           for torch.export.load; with probabilities for classes
    .safetensors   the arrays of the network alone, as cvxnn.load reads them

    All of them take the features of the model, scaled inside: numbers as they are, categories as
    0 and 1. The command lists the features in their order.

    \b
    Example:
        cvxnn export model.cvxnn -o model.onnx
    """
    from cvxnn.cli.commands import export

    if str(options["output"]).endswith(".safetensors"):
        _refuse_unread("is for .onnx and .pt2; .safetensors holds what the model has", "dtype")
    return export(console, **options)


@main.command(short_help="Write a page about a model for the browser.")
@_MODEL
@_DATA
@_output("report.html", "The page.")
@click.option("--title", help="Title of the page.")
@_READING
@_SPEAKING
@_guarded
def report(console: Any, **options: Any) -> int:
    """Write a page for the browser: what is proven of MODEL, how good it is, what matters in it.

    DATA is the table that the model was trained on, or another one with the same columns. The page
    needs nothing but itself.

    \b
    Example:
        cvxnn report model.cvxnn data.csv -o report.html
    """
    from cvxnn.cli.commands import report

    return report(console, **options)


@main.command(short_help="Train on data of scikit-learn, and show what is proven.")
@_output("demo.png", "Where the picture of the convergence goes: .png, .pdf or .svg.", _picture)
@click.option("--patterns", default=1000, show_default=True, type=click.IntRange(min=1))
@_number("--lam", 3e-3, "Strength of the penalty.", min=0)
@_number("--tol", 1e-6, "Relative duality gap at which training ends.", min=0)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
def demo(output: Path, patterns: int, lam: float, tol: float, seed: int) -> None:
    """Train a gated ReLU network on the breast-cancer data and show what is proven about it.

    \b
    Example:
        cvxnn demo --lam 1e-2 -o convergence.png
    """
    from cvxnn.cli.demo import run

    run(output, n_patterns=patterns, lam=lam, tol=tol, seed=seed)


@main.command(short_help="Race the solvers.")
@click.argument("data", type=click.Path(path_type=Path), required=False, is_eager=True)
@click.option("--target", shell_complete=_columns, help="The column to predict.")
@click.option(
    "--model",
    "kind",
    type=click.Choice(["relu", "gated"]),
    default="relu",
    show_default=True,
    help="The problem to solve.",
)
@click.option(
    "--patterns",
    "n_patterns",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of activation patterns to sample.",
)
@_number("--alpha", 1e-2, "Strength of the penalty.", min=1e-300)
@_TOL
@_number("--max-seconds", 30.0, "Time limit of each solver.", min=1e-3)
@_SEED
@_READING
@_SPEAKING
@_guarded
def bench(console: Any, **options: Any) -> int:
    """Race the solvers on DATA, or on the breast-cancer data of scikit-learn.

    \b
    Examples:
        cvxnn bench
        cvxnn bench data.csv --target label --model gated --alpha 1e-3
    """
    from cvxnn.cli.commands import bench

    if options["data"] is None:
        _refuse_unread("is for a file, and none was given", "target", "delimiter", "encoding")
    return bench(console, **options)


@main.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and names of columns.

    \b
    Examples:
        eval "$(cvxnn completion bash)"                                    # in ~/.bashrc
        cvxnn completion fish > ~/.config/fish/completions/cvxnn.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "cvxnn", "_CVXNN_COMPLETE").source())
