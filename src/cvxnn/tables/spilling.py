"""Tables that are larger than the memory for them: read once, a few rows at a time, into a file for
each column, of numbers or of codes of texts. A column is loaded when it is asked for.

What a column holds is decided as `Table` does: numbers if all its values are numbers. A column
with more than `MAX_TEXTS` different texts holds names rather than categories and is left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from cvxnn.stored import RawFile, StoredRows
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.numerals import Style, is_number, read_as, read_numbers
from cvxnn.tables.parquet import arrow_batches
from cvxnn.tables.reading import FOREIGN, find_delimiter, same_fields
from cvxnn.tables.table import Table, TableError, count, listed, short, text_or_missing

ROWS = 20_000  # read, and encoded, at a time
MAX_TEXTS = 5000
_MISSING = -1  # the code of a missing text


def spill_table(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> Table:
    """The table of a file, as `read_table` reads it, with its columns in temporary files."""
    path = Path(path)
    if path.is_dir() or not path.exists():
        raise TableError(f"there is no file {path}")
    with path.open("rb") as file:
        beginning = file.read(100)
    if beginning.startswith(b"PAR1"):
        columns = _Columns()
        for names, batch in arrow_batches(path, ROWS):
            columns.add(names, batch)
        return columns.table(path, None, decimal_comma=False)
    for known, what in FOREIGN.items():
        if beginning.lstrip().lower().startswith(known.lower()):
            raise TableError(f"{path} is {what}")
    return _spill_text(path, beginning.startswith(b"\x1f\x8b"), delimiter, encoding)


def encoded_rows(encoder: Encoder, table: Table) -> StoredRows:
    """The features of a table as rows in a file."""
    starts = range(0, len(table), ROWS)
    parts = (table.select(slice(start, min(start + ROWS, len(table)))) for start in starts)
    return StoredRows.from_chunks((encoder.encode(part)[0] for part in parts), np.float64)


class StoredColumns(Mapping[str, np.ndarray]):
    """Columns in files, of all rows or of some."""

    in_files = True

    def __init__(self, columns: dict[str, _Column], n_rows: int, rows: Any = None) -> None:
        self._columns, self._rows = columns, rows
        self.n_rows = n_rows if rows is None else len(rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name].load(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def select(self, rows: np.ndarray | slice) -> StoredColumns:
        index = (np.arange(self.n_rows) if self._rows is None else self._rows)[rows]
        return StoredColumns(self._columns, self.n_rows, index)


class _Column:
    """One column as it is read: numbers as long as all are, and codes as long as texts are few."""

    def __init__(self) -> None:
        self.numbers: RawFile | None = RawFile.temporary(None)
        self.codes: RawFile | None = RawFile.temporary(None)
        self.texts: dict[str, int] = {}
        self.style: Style | None = None  # of the numbers so far, once they show one
        self.first_text: tuple[int, str] | None = None
        self.n = 0

    def add(self, values: np.ndarray, decimal_comma: bool) -> None:
        """Values as `Table` has them."""
        numbers = values if values.dtype != object else self._parsed(values, decimal_comma)
        if self.first_text is not None:
            self.numbers = None
        if self.numbers is not None:
            self.numbers.write(np.ascontiguousarray(numbers))
        if values.dtype != object:  # a file with types
            self.codes = None
        if self.codes is not None:
            found = [_MISSING if v is None else self._code(v) for v in values]
            if len(self.texts) > MAX_TEXTS:
                self.codes, self.texts = None, {}
            else:
                self.codes.write(np.array(found, dtype=np.int32))
        self.n += len(values)

    def _code(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _parsed(self, values: np.ndarray, decimal_comma: bool) -> np.ndarray:
        """Numbers in the style of the rows before, as far as these have shown one."""
        if self.numbers is None:
            return np.full(len(values), np.nan)
        found = read_numbers(values, decimal_comma=decimal_comma)
        shows = not found.style.plain or any("." in text for text in values if text is not None)
        if self.style is None or (self.style.plain and found.style.point == "."):
            self.style = found.style if shows else self.style
        elif shows and found.style != self.style:
            found = read_as(values, self.style)
        if found.wrong is not None:
            self.first_text = (self.n + found.wrong, values[found.wrong])
        return found.numbers

    def load(self, rows: np.ndarray | None) -> np.ndarray:
        if self.numbers is not None:
            return _loaded(self.numbers, np.float64, self.n, rows)
        assert self.codes is not None
        codes = _loaded(self.codes, np.int32, self.n, rows)
        return np.array([*self.texts, None], dtype=object)[codes]  # the last is that of missing


def _loaded(file: RawFile, dtype: type, n: int, rows: np.ndarray | None) -> np.ndarray:
    first, last = (0, n) if rows is None else (int(rows.min(initial=n)), int(rows.max(initial=-1)))
    stop = n if rows is None else last + 1
    values: np.ndarray = np.empty(max(stop - first, 0), dtype=dtype)
    file.read_into(values, first * values.itemsize)
    return values if rows is None else values[rows - first]


class _Columns:
    """The columns of a table as it is read."""

    def __init__(self, decimal_comma: bool = False) -> None:
        self._columns: dict[str, _Column] = {}
        self._decimal_comma = decimal_comma

    def add(self, names: Sequence[str], batch: Sequence[np.ndarray]) -> None:
        for name, values in zip(names, batch, strict=True):
            self._columns.setdefault(name, _Column()).add(values, self._decimal_comma)

    def table(self, path: Path, rows: np.ndarray | None, *, decimal_comma: bool) -> Table:
        usable = {name: c for name, c in self._columns.items() if c.numbers or c.codes}
        n = next((column.n for column in self._columns.values()), 0)
        if n == 0:
            raise TableError(f"{path} has columns, but no rows")
        notes = []
        for name in self._columns.keys() - usable.keys():
            row, text = self._columns[name].first_text or (0, "")
            where = int(rows[row]) if rows is not None else row + 1
            notes.append(
                f"column {name!r} has more than {MAX_TEXTS:,} different values and is not of "
                f"numbers, the first text is {short(text)} in row {where}: left out"
            )
        if not usable:
            raise TableError(f"{path} has no column that can be used")
        columns = StoredColumns(usable, n)
        return Table(columns, str(path), rows, decimal_comma, tuple(sorted(notes)))


def _spill_text(path: Path, zipped: bool, delimiter: str | None, encoding: str | None) -> Table:
    with _opened(path, zipped, encoding) as text:
        beginning = text.read(100_000)
    if delimiter is None:
        delimiter = find_delimiter(path, beginning)
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"the delimiter must be one character, got {delimiter!r}")
    columns, numbers = _Columns(delimiter != ","), []
    with _opened(path, zipped, encoding) as text:
        records = _records(path, text, delimiter)
        _, header = next(records, (0, []))
        _check_header(path, header)
        for batch in iter(lambda: list(itertools.islice(records, ROWS)), []):
            for number, fields in batch:
                same_fields(path, number, fields, header)
            numbers.append(np.array([number for number, _ in batch]))
            cells = zip(*(fields for _, fields in batch), strict=True)
            columns.add(header, [_texts(column) for column in cells])
    if not numbers:
        raise TableError(f"{path} has a header, but no rows")
    return columns.table(path, np.concatenate(numbers), decimal_comma=delimiter != ",")


def _texts(cells: Sequence[str]) -> np.ndarray:
    values = np.empty(len(cells), dtype=object)
    values[:] = [text_or_missing(cell) for cell in cells]
    return values


def _opened(path: Path, zipped: bool, encoding: str | None) -> IO[str]:
    opened: Any = gzip.open if zipped else open
    file = opened(path, "rb")
    try:
        return io.TextIOWrapper(file, encoding=encoding or "utf-8-sig", newline="")
    except LookupError as error:
        raise TableError(f"unknown encoding {encoding!r}; try utf-8 or latin-1") from error


def _records(path: Path, text: IO[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, with their numbers."""
    number = 0
    try:
        for number, fields in enumerate(
            csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=True), 1
        ):
            fields = [field.strip() for field in fields]
            if fields not in ([], [""]):
                yield number, fields
    except csv.Error as error:
        raise TableError(
            f"{path}, row {number + 1}: {error}; inside of quotes write a quote twice"
        ) from error
    except UnicodeError as error:
        raise TableError(
            f"{path}, after row {number}: not text in the encoding that was given; try another "
            "one, such as latin-1"
        ) from error


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise TableError(f"{path} is empty")
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice or "" in header:
        what = f"more than one column {listed(twice)}" if twice else "columns without a name"
        raise TableError(f"{path} has {what}: give {count(len(header), 'column')} distinct names")
    if all(map(is_number, header)) and header != [str(k) for k in range(len(header))]:
        raise TableError(
            f"{path} has no header: its first row holds numbers only; name the columns there"
        )
