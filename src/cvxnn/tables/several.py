"""Tables in several files: which files there are, and how their rows become one table.

A folder stands for the tables in it, a name with * or ? for those that fit it, in the order of
their names. All have the same columns, in any order. A column holds numbers in all files or texts
in all of them; where it has no values it may be either.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cvxnn.tables.arrow import ArrowColumns
from cvxnn.tables.table import Segment, Table, TableError, listed

SUFFIXES = (".csv", ".tsv", ".tab", ".parquet")
NUMBERS, TEXTS, NOTHING = "numbers", "texts", "no values"  # what a column holds in one file


def names_several(data: Path) -> bool:
    """Whether the name stands for several files."""
    if data.is_dir():
        return True
    return glob.has_magic(str(data)) and not data.exists()


def files_of(data: Path) -> list[Path]:
    """The files of the tables that a name stands for, in order."""
    if not names_several(data):
        return [data]
    found = list(data.iterdir()) if data.is_dir() else [Path(name) for name in glob.glob(str(data))]
    files = sorted(path for path in found if path.is_file() and not path.name.startswith("."))
    if data.is_dir():
        files = [path for path in files if _is_table(path)]
        if not files:
            raise TableError(f"{data} is a folder without tables ({', '.join(SUFFIXES)})")
    if not files:
        raise TableError(f"there is no file {data}")
    return files


def _is_table(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(SUFFIXES)


def joined(tables: Sequence[Table], source: str, holding: Mapping[str, str] | None = None) -> Table:
    """The rows of several tables, one after the other. `holding` are the columns that there are in
    all processes, with what each holds; by default those of these tables."""
    holding = common_columns([(table.source, kinds(table)) for table in tables], holding)
    lengths = np.cumsum([0, *map(len, tables)])
    segments = [
        Segment(int(start) + segment.start, segment.source, segment.first)
        for start, table in zip(lengths, tables, strict=False)
        for segment in segments_of(table)
    ]
    parts = [table.columns for table in tables]
    columns: Mapping[str, np.ndarray] = {
        name: np.concatenate([np.zeros(0, _DTYPES[what]), *(_as(what, p[name]) for p in parts)])
        for name, what in (holding.items() if not _all_arrow(parts) else ())
    }
    if _all_arrow(parts):
        columns = ArrowColumns.joined(parts, list(holding))  # type: ignore[arg-type]
    return Table(
        columns,
        source,
        decimal_comma=any(table.decimal_comma for table in tables),
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
        segments=tuple(segments),
    )


_DTYPES: dict[str, type] = {NUMBERS: np.float64, TEXTS: object, NOTHING: object}


def _as(what: str, values: np.ndarray) -> np.ndarray:
    """Values of a column, which in other files holds numbers or texts."""
    if values.dtype == _DTYPES[what]:
        return values
    if what == NUMBERS:
        return np.full(len(values), np.nan)
    return np.full(len(values), None, dtype=object)


def _all_arrow(parts: Sequence[object]) -> bool:
    return bool(parts) and all(isinstance(part, ArrowColumns) for part in parts)


def kinds(table: Table) -> dict[str, str]:
    """What each column of a table holds."""
    if isinstance(table.columns, ArrowColumns):
        return dict.fromkeys(table.names, TEXTS)
    found = {}
    for name in table.names:
        values = table.column(name)
        there = table.empty(name)
        found[name] = NOTHING if there.all() else TEXTS if values.dtype == object else NUMBERS
    return found


def common_columns(
    found: Sequence[tuple[str, Mapping[str, str]]], start: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What each column holds in all files, in the order of the first file; an error that names the
    files where they do not agree. `found` are the names of files and what their columns hold."""
    common = dict(start or {})
    first = "other files"
    where: dict[str, str] = {}
    for source, its in found:
        if not common:
            common, first = dict(its), source
        lacking = [name for name in common if name not in its]
        further = [name for name in its if name not in common]
        if lacking or further:
            names, what = (lacking, "lacks") if lacking else (further, "has")
            few = f"the column{'s' * (len(names) > 1)} {listed(names)}"
            raise TableError(
                f"{source} {what} {few}, which {first} {'has' if lacking else 'lacks'}"
            )
        for name, what in its.items():
            if what == NOTHING:
                continue
            if common[name] == NOTHING:
                common[name] = what
            elif common[name] != what:
                other = where.get(name, first)
                raise TableError(
                    f"{source}, column {name!r} holds {what}, but {common[name]} in {other}"
                )
            where.setdefault(name, source)
    return common


def segments_of(table: Table) -> tuple[Segment, ...]:
    """Where the rows of a table are in its files."""
    if table.segments or not len(table):
        return table.segments
    if table.row_numbers is None:
        return (Segment(0, table.source, 1),)
    jumps = np.flatnonzero(np.diff(table.row_numbers) != 1) + 1
    starts = [0, *jumps.tolist()]
    return tuple(Segment(k, table.source, int(table.row_numbers[k])) for k in starts)
