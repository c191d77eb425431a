"""Options that commands share, and checks on their values before any work is done."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

GENERATE = "generate"
DASH = Path("-")
Decorated = TypeVar("Decorated", bound=Callable[..., object])


def _finite(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not finite.")
    return value


def _readable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """A name to read from: - is the standard input, as elsewhere on command lines."""
    return Path("/dev/stdin") if path == DASH else path


def printable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file that can be written, or None to print: by default, and for -."""
    return None if path == DASH else writable(context, parameter, path)


def writable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file that can be written. If not, it is refused before any work is done."""
    if path is None:
        return None
    if path == DASH:
        raise click.BadParameter("this cannot be printed: give the name of a file.")
    folder = path.parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder} to write to.")
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"the folder {folder} cannot be written to.")
    if path.exists() and not path.is_file():
        raise click.BadParameter(f"{path} is not an ordinary file.")
    for name in ("data", "model"):
        given = context.params.get(name)
        if given is not None and path.exists() and given.exists() and path.samefile(given):
            raise click.BadParameter(f"{path} is the {name} file, which would be overwritten.")
    return path


def picture(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """The name of a picture that can be written."""
    if path is not None and path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise click.BadParameter(f"{path} does not end in .png, .pdf or .svg.")
    return writable(context, parameter, path)


def columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of columns, for the shell to complete."""
    from cvxnn.tables.reading import read_table
    from cvxnn.tables.table import TableError

    # while the value of an option is completed, click has not yet given arguments their names
    for data in filter(None, [context.params.get("data"), *context.args]):
        with suppress(TableError, OSError):
            names = [name for name in read_table(data).names if name.startswith(incomplete)]
            bash = os.environ.get("_CVXNN_COMPLETE", "").startswith(
                "bash"
            )  # others quote by themselves
            return [shlex.quote(name) for name in names] if bash else names
    return []


def _size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from cvxnn.memory import check_size_text

    try:
        return None if value is None else check_size_text(value, "--memory")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def refuse_unread(why: str, *names: str) -> None:
    """Refuse options that were given but would have no effect."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}.")


def output(
    default: str | None,
    help: str,
    callback: Callable[[click.Context, click.Parameter, Path | None], Path | None] = writable,
) -> Callable[[Decorated], Decorated]:
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None if default is None else Path(default),
        show_default=default is not None,
        callback=callback,
        help=help,
    )


def number(
    name: str, default: float | None, help: str, *, min: float, max: float | None = None
) -> Callable[[Decorated], Decorated]:
    return click.option(
        name,
        default=default,
        show_default=default is not None,
        type=click.FloatRange(min, max),
        callback=_finite,
        help=help,
    )


def _together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    def apply(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


MODEL = click.argument("model", type=click.Path(path_type=Path), is_eager=True)


def data(required: bool = True) -> Callable[[Decorated], Decorated]:
    return click.argument(
        "data",
        type=click.Path(path_type=Path),
        is_eager=True,
        required=required,
        callback=_readable,
    )


DATA = data()
READING = _together(
    click.option(
        "--delimiter",
        help="What separates columns, such as ';' or tab. Default: found in the header.",
    ),
    click.option("--encoding", help="Encoding of a text file, such as latin-1. Default: UTF-8."),
)
SAFE_CSV = click.option(
    "--safe-csv",
    "safe",
    is_flag=True,
    help="Put ' before texts that a spreadsheet would run as formulas.",
)
SPEAKING = _together(
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object for other programs to read."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
)


def seed(help: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--seed", default=0, show_default=True, type=click.IntRange(0, 2**31 - 1), help=help
    )


def patterns(
    default: int, help: str = "Number of activation patterns to sample.", *, least: int = 1
) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--patterns",
        "n_patterns",
        default=default,
        show_default=True,
        type=click.IntRange(min=least),
        help=help,
    )


class _Patterns(click.ParamType):
    """A number of patterns to sample, or the word that asks for generated ones."""

    name = "patterns"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[N|{GENERATE}]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if value == GENERATE:
            return GENERATE
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {GENERATE!r}.", param, ctx)
        if number < 1:
            self.fail(f"{number} is not in the range x>=1.", param, ctx)
        return number

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(GENERATE)] if GENERATE.startswith(incomplete) else []


def kind(help: str) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--model",
        "kind",
        type=click.Choice(["relu", "gated"]),
        default="relu",
        show_default=True,
        help=help,
    )


def _device(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from cvxnn.devices import find_device  # not for nothing: it takes a second to import

    try:
        return find_device(value).name
    except (ImportError, ValueError) as error:
        raise click.BadParameter(str(error).replace("`device`", "--device")) from error


DEVICE = click.option(
    "--device",
    metavar="NAME",
    callback=_device,
    help="Where to train: cuda, cuda:1 or mps; needs PyTorch. Experimental.",
)
MEMORY = click.option(
    "--memory",
    metavar="SIZE",
    callback=_size,
    help="Memory to keep to, such as 2GB: DATA is read in pieces, and rows that do not fit are "
    "trained on in a temporary file (--model gated).",
)
SEED = seed("Seed for held-out rows, patterns and folds. The same seed gives the same model.")
TOL = number("--tol", 1e-4, "Relative duality gap at which training ends.", min=0)
LEARNING = _together(
    click.option("--target", shell_complete=columns, help="The column to predict.  [required]"),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="Default: classification for texts and for up to ten different whole numbers. For a "
        "number that takes few values, give regression.",
    ),
    kind("A ReLU network, or a gated ReLU network, which trains faster."),
    click.option(
        "--drop",
        multiple=True,
        shell_complete=columns,
        help="A column to leave out. Repeat the option for more columns.",
    ),
    click.option(
        "--categorical",
        multiple=True,
        shell_complete=columns,
        help="A column whose values are categories even if they are numbers. May be repeated.",
    ),
    click.option(
        "--use",
        multiple=True,
        shell_complete=columns,
        help="A column to learn from that would be left out, as it looks like an identifier or has "
        "too many different texts. May be repeated.",
    ),
    click.option(
        "--na",
        multiple=True,
        metavar="TEXT",
        help="A text or number that stands for a missing value, such as -999. May be repeated.",
    ),
    click.option(
        "--day-first/--month-first",
        "day_first",
        default=None,
        help="Whether 01/02/2003 is in February. Default: as the other dates of the column show, "
        "else the month comes first.",
    ),
    click.option(
        "--weight", shell_complete=columns, help="The column that holds the weights of the rows."
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
    number(
        "--holdout", 0.2, "Share of the rows to hold out and score the model on.", min=0, max=0.9
    ),
    click.option(
        "--patterns",
        default="500",
        show_default=True,
        type=_Patterns(),
        help="Number of activation patterns to sample; or 'generate': search for those that pay, "
        "which takes longer and ends at a lower objective.",
    ),
    click.option(
        "--components",
        "n_components",
        type=click.IntRange(min=1),
        help="Train on so many leading principal components of the columns.",
    ),
    DEVICE,
    TOL,
    SEED,
)
