"""Tables of named columns, read from CSV, TSV and Parquet files, gzipped or not.

A column holds texts, or numbers where the file has a type for them; None and NaN are missing.
Whether texts are numbers is decided when somebody asks for numbers, so that the answer can name
the row that is none. Rows are counted as in the file: the header of a CSV file is row 1.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

MISSING = frozenset(
    {"", "?", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nil", "missing"}
)
DELIMITERS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_FOREIGN = {  # how files begin that are often taken for tables
    b"PK\x03\x04": "a zip archive or an Excel file: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the sheet as CSV",
    b"%PDF": "a PDF file",
    b"\x89PNG": "a picture",
    b"SQLite format": "a database",
    b"BZh": "compressed by bzip2: unpack it first, or use gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it first, or use gzip",
}


class TableError(ValueError):
    """A file or a column that cannot be used; the message names file, column and row."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    columns : name -> an object array of texts (None is missing) or a float array (NaN is missing).
    source : what messages call the table.
    row_numbers : those of the rows, in the file.
    decimal_comma : texts such as 1,5 are numbers.
    notes : what was done to make sense of the file, in words.
    """

    columns: dict[str, np.ndarray]
    source: str = "the table"
    row_numbers: np.ndarray | None = None
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def row(self, index: int) -> int:
        """The number, in the file, of a row of the table."""
        return int(index) + 1 if self.row_numbers is None else int(self.row_numbers[index])

    def select(self, rows: np.ndarray) -> Table:
        """Some of the rows, which keep their numbers."""
        numbers = np.arange(len(self)) + 1 if self.row_numbers is None else self.row_numbers
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, columns=columns, row_numbers=numbers[rows])

    def column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise TableError(f"{self.source} has no column {name!r}{self._hint(name)}")
        return self.columns[name]

    def _hint(self, name: str) -> str:
        folded = {other.casefold(): other for other in self.columns}
        near = difflib.get_close_matches(name.casefold(), folded, n=1)
        hint = f": did you mean {folded[near[0]]!r}? It has " if near else "; it has "
        listed = ", ".join(map(repr, self.names[:12]))
        return hint + listed + (", ..." if len(self.columns) > 12 else "")

    def is_numeric(self, name: str) -> bool:
        """Whether every value of the column that is not missing is a number."""
        values = self.column(name)
        return values.dtype != object or all(map(self._is_number, _present(values)))

    def _is_number(self, text: str) -> bool:
        return _is_number(text) or (self.decimal_comma and _is_comma_number(text))

    def missing(self, name: str) -> np.ndarray:
        values = self.column(name)
        if values.dtype == object:
            return np.array([value is None for value in values], dtype=bool)
        return np.isnan(values)

    def numbers(self, name: str) -> np.ndarray:
        """The column as numbers, NaN where missing; infinity and other texts are refused."""
        values = self.column(name)
        if values.dtype == object:
            numbers = np.full(len(values), np.nan)
            for i, text in enumerate(values):
                if text is None:
                    continue
                if not self._is_number(text):
                    raise TableError(f"{self.place(name, i)}: {_short(text)} is not a number")
                numbers[i] = float(text.replace(",", ".") if self.decimal_comma else text)
        else:
            numbers = values
        infinite = np.flatnonzero(np.isinf(numbers))
        if len(infinite):
            value = values[infinite[0]]
            raise TableError(f"{self.place(name, infinite[0])}: {value} is not finite")
        return numbers

    def texts(self, name: str) -> np.ndarray:
        """The column as texts, None where missing; whole numbers without a fraction."""
        values = self.column(name)
        if values.dtype == object:
            return values
        texts = [None if np.isnan(v) else number_text(v) for v in values]
        return np.array(texts, dtype=object)

    def place(self, name: str, index: int) -> str:
        """Where a value is, for messages."""
        return f"{self.source}, column {name!r}, row {self.row(index)}"


def number_text(value: float) -> str:
    """A number as text: 3 rather than 3.0, and all digits it takes otherwise."""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def read_table(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> Table:
    """Read a table with a header from a CSV, TSV or Parquet file, gzipped or not.

    delimiter : of a text file; None to find it in the header, among comma, semicolon, tab and |.
    encoding : of a text file; None for UTF-8, or UTF-16 with a byte order mark.
    """
    path = Path(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table")
    if not path.exists():
        raise TableError(f"there is no file {path}")
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = _unzipped(path, content)
    if not content.strip():
        raise TableError(f"{path} is empty")
    if content.startswith(b"PAR1"):
        return _read_parquet(path, content)
    for beginning, what in _FOREIGN.items():
        if content.startswith(beginning):
            raise TableError(f"{path} is {what}")
    return _read_text(path, _decoded(path, content, encoding), delimiter)


def _unzipped(path: Path, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file: {error}") from error


def _decoded(path: Path, content: bytes, encoding: str | None) -> str:
    if encoding is None:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        encoding = "utf-16" if wide else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except LookupError as error:
        raise TableError(f"there is no encoding {encoding!r}") from error
    except UnicodeError as error:
        start = getattr(error, "start", None)
        row = "" if start is None else f", row {content.count(bytes([10]), 0, start) + 1}"
        name = "utf-8" if encoding == "utf-8-sig" else encoding
        raise TableError(
            f"{path}{row}: not text in the encoding {name}; give its own, such as latin-1"
        ) from error
    if "\0" in text:
        raise TableError(f"{path} is not a text file: it holds zero bytes")
    return text


def _read_text(path: Path, text: str, delimiter: str | None) -> Table:
    if delimiter is None:
        delimiter = _found_delimiter(path, text)
    elif len(delimiter) != 1:
        raise TableError(f"the delimiter must be one character, got {delimiter!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for fields in reader:
            if fields:  # blank lines are none
                rows.append([field.strip() for field in fields])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise TableError(f"{path}, line {reader.line_num}: {error}") from error
    header, *body = rows
    for number, fields in enumerate(body, start=2):
        if len(fields) != len(header):
            raise TableError(
                f"{path}, row {number}: {len(fields)} fields, but the header has {len(header)} "
                f"(line {lines[number - 1]} of the file)"
            )
    if not body:
        raise TableError(f"{path} has a header, but no rows")
    columns = [
        np.array([_value(cell) for cell in column], dtype=object)
        for column in zip(*body, strict=True)
    ]
    if all(_is_number(name) for name in header if name) and any(header):
        raise TableError(
            f"{path} has no header: its first row holds numbers only; name the columns there"
        )
    table = _named(path, header, columns, first_row=2)
    return replace(table, decimal_comma=delimiter != ",")


def _found_delimiter(path: Path, text: str) -> str:
    """The one that is most frequent in the header, outside quotes."""
    header = next(line for line in text.splitlines() if line.strip())
    bare = re.sub(r'"[^"]*"', "", header)
    if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) and "\t" in bare:
        return "\t"
    return max(DELIMITERS, key=bare.count)


def _value(cell: str) -> str | None:
    return None if cell.lower() in MISSING else cell


def _named(path: Path, header: Sequence[str], columns: list[np.ndarray], first_row: int) -> Table:
    """The table, if its names are fit for use. An unnamed first column that counts the rows is an
    index that some programs write, and left out."""
    notes = []
    names = list(header)
    if len(names) > 1 and names[0] == "" and _counts(columns[0]):
        notes.append("the first column has no name and counts the rows: left out")
        names, columns = names[1:], columns[1:]
    unnamed = [k + 1 for k, name in enumerate(header) if name == "" and len(names) > k]
    if "" in names:
        raise TableError(f"{path}: column {unnamed[0]} has no name in the header")
    repeated = [name for k, name in enumerate(names) if name in names[:k]]
    if repeated:
        raise TableError(f"{path} has more than one column {repeated[0]!r}")
    rows = np.arange(len(columns[0])) + first_row
    return Table(dict(zip(names, columns, strict=True)), str(path), rows, notes=tuple(notes))


def _counts(values: np.ndarray) -> bool:
    texts = [str(value) for value in values]
    return any(texts == [str(k + start) for k in range(len(texts))] for start in (0, 1))


def _read_parquet(path: Path, content: bytes) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TableError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'cvxnn[data]'"
        ) from error
    try:
        data = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path} is a damaged Parquet file: {error}") from error
    names = [str(name) for name in data.column_names]
    index = [k for k, name in enumerate(names) if re.fullmatch(r"__index_level_\d+__", name)]
    data = data.drop_columns([names[k] for k in index]) if index else data
    names = [name for k, name in enumerate(names) if k not in index]
    if not names:
        raise TableError(f"{path} has no columns")
    if data.num_rows == 0:
        raise TableError(f"{path} has columns, but no rows")
    columns = [_arrow_column(path, name, data.column(k)) for k, name in enumerate(names)]
    return _named(path, names, columns, first_row=1)


def _arrow_column(path: Path, name: str, column: Any) -> np.ndarray:
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_nested(kind) or types.is_binary(kind):
        raise TableError(f"{path}, column {name!r}: values of type {kind} cannot be used")
    values = column.to_pylist()
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return np.array([np.nan if v is None else float(v) for v in values])
    if types.is_decimal(kind):
        return np.array([np.nan if v is None else float(v) for v in values])
    return np.array([None if v is None else _value(str(v).strip()) for v in values], dtype=object)


def write_csv(columns: dict[str, Iterable[Any]]) -> str:
    """Columns as CSV text, numbers with all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rows = zip(*columns.values(), strict=True)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _present(values: np.ndarray) -> Iterable[str]:
    return (value for value in values if value is not None)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None  # float() would take 1_000 and nan, too


def _is_comma_number(text: str) -> bool:
    return "." not in text and _is_number(text.replace(",", ".", 1))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
