"""Tables from CSV, TSV and Parquet files, gzipped or not."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from cvxnn.files import TABLE_BYTES, most_bytes, read_bounded, unpacked
from cvxnn.tables.arrow import ArrowColumns, read_cells
from cvxnn.tables.numerals import is_number
from cvxnn.tables.parquet import read_columns
from cvxnn.tables.several import files_of, joined, names_several
from cvxnn.tables.table import (
    Table,
    TableError,
    check_cells,
    count,
    number_text,
    text_or_missing,
)

_UNNAMED = re.compile(r"Unnamed: \d+")  # what pandas calls columns without a name
DELIMITERS = (",", ";", "\t", "|")
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".gz")  # of the files of tables
FOREIGN = {  # beginnings of other files that are often mistaken for tables
    b"PK\x03\x04": "a zip archive or an Excel file: save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the sheet as CSV",
    b"%PDF": "a PDF file",
    b"\x89PNG": "a picture",
    b"SQLite format": "a database",
    b"BZh": "compressed by bzip2: unpack it first, or use gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it first, or use gzip",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
    b"{": "a JSON file: save the table as CSV",
    b"[": "a JSON file: save the table as CSV",
}
_LINE = re.compile(r"[^\r\n]*+(\r\n|[\r\n])|[^\r\n]++")
_QUOTED = re.compile(r'"[^"]*+(""[^"]*+)*+"')
_ESCAPED = 'quotes inside of texts are written as \\": backslashes are left out'
_MODEL_FILE = re.compile(rb".{8}\{.*cvxnn-model", re.DOTALL)  # see `modelfile.py`


def read_table(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> Table:
    """Read a table with a header from a CSV, TSV or Parquet file, gzipped or not, or from several:
    those in a folder, or those that fit a name with * or ?, such as rows/*.parquet.

    delimiter : what separates columns in a text file; "tab" is a tab. None to find it in the
        header, among comma, semicolon, tab and |.
    encoding : encoding of a text file; None for UTF-8, or UTF-16 with a byte order mark.
    """
    path = Path(path)
    if not names_several(path):
        return read_file(path, delimiter=delimiter, encoding=encoding)
    tables = [read_file(p, delimiter=delimiter, encoding=encoding) for p in files_of(path)]
    return joined(tables, str(path))


def read_file(path: Path, *, delimiter: str | None = None, encoding: str | None = None) -> Table:
    """A table from one file; the parameters are those of `read_table`."""
    if not path.exists():
        raise TableError(f"there is no file {path}")
    most = most_bytes(TABLE_BYTES)
    content = read_bounded(path, most, TableError)
    if content.startswith(b"\x1f\x8b"):
        content = _unzipped(path, content, most)
    if not content:
        raise TableError(f"{path} is empty")
    if content.startswith(b"PAR1"):
        for name, value in (("delimiter", delimiter), ("encoding", encoding)):
            if value is not None:
                raise TableError(f"{path} is a Parquet file, which has no {name}: give none")
        names, columns = read_columns(path, content, most)
        n_rows = len(columns[0]) if columns else 0
        return _named(path, names, columns, np.arange(n_rows) + 1)
    for beginning, what in FOREIGN.items():
        if content[:100].lstrip().lower().startswith(beginning.lower()):
            raise TableError(f"{path} is {what}")
    if _MODEL_FILE.match(content[: 2**20]):
        raise TableError(f"{path} is a model file, not a table")
    if encoding in (None, "utf-8", "utf8", "UTF-8"):
        quick = _read_quickly(path, content, delimiter, most)
        if quick is not None:
            return quick
    return _read_text(path, _decoded(path, content, encoding), delimiter, most)


def _read_quickly(path: Path, content: bytes, delimiter: str | None, most: int) -> Table | None:
    """A table in UTF-8 by PyArrow, if it can read the file just as `_read_text` does."""
    beginning = content[:100_000].decode("utf-8", errors="replace").removeprefix("\ufeff")
    delimiter = find_delimiter(path, beginning) if delimiter is None else delimiter
    if delimiter not in DELIMITERS or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    check_cells(path, content.count(delimiter.encode()) + content.count(b"\n"), most)
    found = read_cells(content, delimiter)
    if found is None:
        return None
    header, cells = found
    _check_names(path, header)
    table = _named(path, header, cells, np.arange(cells.n_rows) + 2)
    return replace(table, decimal_comma=delimiter != ",")


def is_model_file(path: Path) -> bool:
    """Whether a file begins as a model does."""
    with path.open("rb") as file:
        return _MODEL_FILE.match(file.read(2**20)) is not None


def _unzipped(path: Path, content: bytes, most: int) -> bytes:
    try:
        return unpacked(gzip.GzipFile(fileobj=io.BytesIO(content)), path, most, TableError)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file: {error}") from error


def _decoded(path: Path, content: bytes, encoding: str | None) -> str:
    if encoding is None:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        encoding = "utf-16" if wide else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except LookupError as error:
        raise TableError(f"unknown encoding {encoding!r}; try utf-8 or latin-1") from error
    except UnicodeError as error:
        start = getattr(error, "start", None)
        row = "" if start is None else f", row {content.count(bytes([10]), 0, start) + 1}"
        name = "utf-8" if encoding == "utf-8-sig" else encoding
        raise TableError(
            f"{path}{row}: not text in the encoding {name}; give another one, such as latin-1"
        ) from error
    if "\0" in text:
        raise TableError(
            f"{path} is not a table: it holds zero bytes, which only text in utf-16 does"
        )
    return text.removeprefix("\ufeff")


def _read_text(path: Path, text: str, delimiter: str | None, most: int) -> Table:
    """A table from text; one that cannot be read with quotes doubled, is tried with quotes
    escaped by a backslash, as some databases and Spark write them."""
    try:
        return _parsed(path, text, delimiter, most)
    except TableError:
        if '\\"' not in text:
            raise
        with suppress(TableError):
            table = _parsed(path, text, delimiter, most, escape="\\")
            return replace(table, notes=(*table.notes, _ESCAPED))
        raise


def _parsed(
    path: Path, text: str, delimiter: str | None, most: int, escape: str | None = None
) -> Table:
    if delimiter is None:
        delimiter = find_delimiter(path, text)
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"the delimiter must be one character, got {delimiter!r}")
    check_cells(path, text.count(delimiter) + text.count("\n") + text.count("\r"), most)
    records = _records(path, text, delimiter, escape)
    if not records:
        raise TableError(f"{path} is empty")
    (_, header), *body = records
    for number, fields in body:
        same_fields(path, number, fields, header)
    if not body:
        raise TableError(f"{path} has a header, but no rows")
    _check_names(path, header)
    columns = [
        np.array([text_or_missing(cell) for cell in column], dtype=object)
        for column in zip(*(fields for _, fields in body), strict=True)
    ]
    rows = np.array([number for number, _ in body])
    return replace(_named(path, header, columns, rows), decimal_comma=delimiter != ",")


def _check_names(path: Path, header: list[str]) -> None:
    counted = header == [str(k) for k in range(len(header))]  # names of some programs
    if all(map(is_number, header)) and not counted:
        raise TableError(
            f"{path} has no header: its first row holds numbers only; name the columns there"
        )


def same_fields(path: Path, number: int, fields: list[str], header: list[str]) -> None:
    if len(fields) != len(header):
        raise TableError(
            f"{path}, row {number}: {count(len(fields), 'field')}, but the header has {len(header)}"
        )


def _records(
    path: Path, text: str, delimiter: str, escape: str | None
) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, with their numbers."""
    lines = (line.group() for line in _LINE.finditer(text))
    reader = csv.reader(
        lines, delimiter=delimiter, escapechar=escape, strict=True, skipinitialspace=True
    )
    rows: list[tuple[int, list[str]]] = []
    number = before = 0
    try:
        for number, fields in enumerate(reader, start=1):
            before = reader.line_num
            fields = [field.strip() for field in fields]
            if fields not in ([], [""]):
                rows.append((number, fields))
    except csv.Error as error:
        start = next(itertools.islice(_LINE.finditer(text), before, None)).start()
        what = _reason(text[start:], delimiter, rows[0][1] if rows else []) or str(error)
        raise TableError(f"{path}, row {number + 1}: {what}") from error
    return rows


def _reason(text: str, delimiter: str, header: list[str]) -> str:
    """Why `csv` cannot read the row that `text` begins with: a quote is not closed, or a field is
    too long. Empty for other errors, for which the message of `csv` is used."""
    plain = re.compile(rf"[^{re.escape(delimiter)}\r\n]*")
    start, column, most = 0, 1, csv.field_size_limit()
    while True:
        quoted = text.startswith('"', start)
        found = (_QUOTED if quoted else plain).match(text, start)
        if found is None:
            return "a quote is opened and not closed"
        field = found[0][1:-1].replace('""', '"') if quoted else found[0]
        if len(field) > most:
            break
        if not text.startswith(delimiter, found.end()):
            rest = text[found.end() : found.end() + 20].splitlines()[:1]
            if not quoted or not rest or not rest[0].strip():
                return ""
            name = repr(header[column - 1]) if column <= len(header) else str(column)
            return (
                f"column {name}: {rest[0]!r} follows a closing quote; inside of quotes write a "
                'quote twice, ""'
            )
        start, column = found.end() + 1, column + 1
    name = repr(header[column - 1]) if column <= len(header) else str(column)
    lines = ": is a quote not closed?" if "\n" in field else ""
    return f"column {name} has {len(field):,} characters, and at most {most:,} are read{lines}"


def find_delimiter(path: Path, text: str) -> str:
    """The delimiter that is most frequent in the header, outside quotes."""
    beginning = re.sub(r'"[^"]*"', "", text[:100_000])
    header = next((line for line in re.split("[\r\n]", beginning) if line.strip()), "")
    if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) and "\t" in header:
        return "\t"
    return max(DELIMITERS, key=header.count)


def _named(
    path: Path,
    header: Sequence[str],
    columns: Sequence[np.ndarray] | ArrowColumns,
    rows: np.ndarray,
) -> Table:
    """The table, if its columns have distinct names. Two kinds of columns without a name, which
    programs write unasked, are left out: an index at the beginning, and a column without values."""
    notes: list[str] = []
    places: dict[str, int] = {}
    header = ["" if _UNNAMED.fullmatch(name) else name for name in header]
    for k, name in enumerate(header):
        if name in places:
            numbers = ": is the first row a header?" if is_number(name) else ""
            raise TableError(f"{path} has more than one column {name!r}{numbers}")
        if name:
            places[name] = k
            continue
        values = columns[str(k)] if isinstance(columns, ArrowColumns) else columns[k]
        if k == 0 and len(header) > 1 and _is_index(values):
            notes.append("the first column has no name and numbers the rows: left out")
        elif all(value is None for value in values):
            notes.append(f"column {k + 1} has neither a name nor values: left out")
        else:
            raise TableError(f"{path}: column {k + 1} has no name in the header")
    if not places:
        raise TableError(f"{path} has no column with a name")
    if isinstance(columns, ArrowColumns):
        named: Mapping[str, np.ndarray] = columns.named(list(places), list(places.values()))
    else:
        named = {name: columns[k] for name, k in places.items()}
    return Table(named, str(path), rows, notes=tuple(notes))


def _is_index(values: np.ndarray) -> bool:
    """Whether these are different whole numbers, like an index, perhaps with gaps."""
    texts = [number_text(v) if isinstance(v, float) else str(v) for v in values]
    return len(set(texts)) == len(texts) and all(map(str.isdecimal, texts))
