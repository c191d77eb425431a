"""The files of a command: a table and a model to open, and what is written.

Everything here is quick to import, so that a wrong name is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cvxnn.cli.outcomes import BAD_INPUT, FILE_TROUBLE, Failure, current_run
from cvxnn.progress import step
from cvxnn.tables.reading import SUFFIXES, is_model_file, read_table
from cvxnn.tables.table import Table, listed

if TYPE_CHECKING:
    from cvxnn.tables.model import Model

_NAMES = (
    "drop",
    "categorical",
    "use",
    "keep",
    "weight",
)  # options that name columns, beside --target


def opened(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command with the table in place of its file, and how that is read, if the
    command takes one. Whatever is amiss with the names of files and columns is an error here."""
    given = dict(options)
    if "model" in given:
        _check_model(given["model"])
    if "data" not in given:
        return given
    data = given.pop("data")
    reading = {name: given.pop(name) for name in ("delimiter", "encoding")}
    if data is None:
        return {**given, "table": None}
    with step(f"reading {data}"):
        if given.get("memory") is None:
            table = read_table(data, **reading)
        else:
            from cvxnn.tables.spilling import spill_table

            table = spill_table(data, **reading)
    if "target" in given:
        _check_target(given["target"], table)
    for name in _NAMES:
        columns = given.get(name) or ()
        for column in [columns] if isinstance(columns, str) else columns:
            table.column(column)  # an error if there is none
    return {**given, "table": table}


def _check_model(path: Path) -> None:
    """Refuse what cannot be a model; what is wrong inside of one is found when it is loaded."""
    if path.is_dir() or not path.exists():
        raise Failure(f"there is no model file {path}", BAD_INPUT)
    if path.suffix.lower() in SUFFIXES and not is_model_file(path):
        raise Failure(
            f"{path} is not a model file; the model comes first, then the table", BAD_INPUT
        )


def load_model(path: Path) -> Model:
    from cvxnn.tables.model import Model

    with step(f"loading {path}"):
        return Model.load(path)


def _check_target(target: str | None, table: Table) -> None:
    """Refuse a column to predict that the table does not have."""
    if target is None:
        raise Failure(
            f"--target has to name the column to predict; {table.source} has {listed(table.names)}",
            BAD_INPUT,
        )
    table.column(target)  # an error if there is none


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors while a file is written into a message. Also note whether the file was written,
    for the message in case of a later interrupt."""
    before = _identity(path)
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise Failure(f"{path} could not be written: {reason}", FILE_TROUBLE) from error
    finally:
        if _identity(path) != before:
            current_run().written.append(str(path))


def _identity(path: Path) -> tuple[int, int] | None:
    """What identifies the file of this name: it changes with every write."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None
