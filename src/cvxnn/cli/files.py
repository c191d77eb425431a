"""The files of a command: a table and a model to open, and what is written.

Everything here is quick to import, so that a wrong name is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cvxnn.cli.outcomes import BAD_INPUT, FILE_TROUBLE, Failure, current_run
from cvxnn.modelfile import column_names
from cvxnn.progress import step
from cvxnn.tables.reading import SUFFIXES, is_model_file, read_table
from cvxnn.tables.several import names_several
from cvxnn.tables.shards import FilesOfCluster, ShardedTable, pieces_of, read_share
from cvxnn.tables.table import Table, listed

if TYPE_CHECKING:
    from cvxnn.ranks import Ranks
    from cvxnn.tables.model import Model

_NAMES = (
    "drop",
    "categorical",
    "use",
    "keep",
    "weight",
)  # options that name columns, beside --target


def opened(options: Mapping[str, Any], ranks: Ranks | None = None) -> dict[str, Any]:
    """The options of a command with the table in place of its file, and how that is read, if the
    command takes one. Whatever is amiss with the names of files and columns is an error here. Where
    several processes share the rows, or are to do so on a cluster, the table is one of these."""
    given = dict(options)
    if "model" in given:
        _check_model(given["model"])
    if "data" not in given:
        return given
    data = given.pop("data")
    reading = {name: given.pop(name) for name in ("delimiter", "encoding")}
    if data is None:
        return {**given, "table": None}
    table = _read(data, reading, given, ranks)
    if not isinstance(table, FilesOfCluster):
        _check_columns(given, table.whole if isinstance(table, ShardedTable) else table)
    return {**given, "table": table}


def _read(
    data: Path, reading: dict[str, Any], given: dict[str, Any], ranks: Ranks | None
) -> Table | ShardedTable | FilesOfCluster:
    memory, address = given.get("memory"), given.get("cluster")
    if address is not None:
        if ranks is not None:
            raise Failure("--cluster is for one process, which asks a cluster", BAD_INPUT)
        with step(f"looking at {data}"):
            return FilesOfCluster(data, pieces_of(data), reading)
    with step(f"reading {data}"):
        if ranks is not None:
            return read_share(data, ranks, **reading)
        if memory is None or names_several(data):
            return read_table(data, **reading)
        from cvxnn.tables.spilling import spill_table

        return spill_table(data, **reading)


def _check_columns(given: dict[str, Any], table: Table) -> None:
    """Refuse names of columns that the table does not have."""
    if "target" in given:
        _check_target(given["target"], table)
    if "model" in given:
        table.check_has(column_names(given["model"]))
    for name in _NAMES:
        columns = given.get(name) or ()
        for column in [columns] if isinstance(columns, str) else columns:
            table.check_name(column)


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
    table.check_name(target)


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
