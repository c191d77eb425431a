"""The files of a command: a model to load, a column to predict, and what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cvxnn.cli.outcomes import BAD_INPUT, FILE_TROUBLE, Failure, current_run
from cvxnn.modelfile import ModelFileError
from cvxnn.tables.model import Model
from cvxnn.tables.reading import SUFFIXES
from cvxnn.tables.table import Table, listed


def load_model(path: Path) -> Model:
    if path.is_dir() or not path.exists():
        raise Failure(f"there is no model file {path}", BAD_INPUT)
    try:
        return Model.load(path)
    except ModelFileError as error:
        if path.suffix.lower() not in SUFFIXES:
            raise
        raise Failure(
            f"{path} is not a model file; the model comes first, then the table", BAD_INPUT
        ) from error


def named_target(target: str | None, table: Table) -> str:
    """The column to predict, if the table has it."""
    if target is None:
        raise Failure(
            f"--target has to name the column to predict; {table.source} has {listed(table.names)}",
            BAD_INPUT,
        )
    table.column(target)  # an error if there is none
    return target


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
