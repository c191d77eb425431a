"""Tables of named columns, read from CSV, TSV and Parquet files, gzipped or not.

A column holds texts, or numbers where the file has a type for them; None and NaN are missing.
Whether texts are numbers is decided when somebody asks for numbers, so that the answer can name
the row that is none. Rows are counted as a spreadsheet shows them: the header of a CSV file is row
1, blank lines count, and lines inside quotes do not.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cvxnn.files import TABLE_BYTES, most_bytes, read_bounded, too_large, unpacked

MISSING = frozenset(
    {"", "?", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nil", "missing"}
)
_UNNAMED = re.compile(r"Unnamed: \d+")  # what pandas calls columns without a name
DELIMITERS = (",", ";", "\t", "|")
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".gz")  # what tables are called
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_FOREIGN = {  # how files begin that are often taken for tables
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
_CELL_BYTES = 10  # of a file, for each cell that is read: cells take a hundred bytes of memory
_MODEL_FILE = re.compile(rb".{8}\{.*cvxnn-model", re.DOTALL)  # see `modelfile.py`


class TableError(ValueError):
    """A file or a column that cannot be used; the message names file, column and row."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    columns : name -> an object array of texts (None is missing) or a float array (NaN is missing).
    source : what messages call the table.
    row_numbers : those of the rows, in the file.
    decimal_comma : texts such as 1,5 are numbers, in columns without decimal points.
    notes : what was done to make sense of the file, in words.
    """

    columns: dict[str, np.ndarray]
    source: str = "the table"
    row_numbers: np.ndarray | None = None
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()
    _known: dict[str, tuple[np.ndarray, int | None]] = field(
        default_factory=dict, init=False, repr=False
    )  # what `_parsed` has found

    def __post_init__(self) -> None:
        for name, values in self.columns.items():
            if not isinstance(values, np.ndarray) or values.dtype not in (object, np.float64):
                raise TypeError(f"column {name!r} must be an array of texts or of floats")
            if values.shape != (len(self),):
                raise ValueError(f"column {name!r} has shape {values.shape}, not ({len(self)},)")

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
        near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
        if near:
            return f": did you mean {folded[near[0]]!r}? It has {listed(self.names)}"
        if len(self.columns) == 1:
            return f"; it has one column only, {listed(self.names)}: is that the right delimiter?"
        no_header = any(map(_is_number, self.columns))
        return f"; it has {listed(self.names)}" + (": is the first row a header?" * no_header)

    def is_numeric(self, name: str) -> bool:
        """Whether every value of the column that is not missing is a number."""
        return self.first_text(name) is None

    def first_text(self, name: str) -> int | None:
        """The first row whose value is neither missing nor a number."""
        return self._parsed(name)[1]

    def _parsed(self, name: str) -> tuple[np.ndarray, int | None]:
        """The numbers of a column, NaN where there is none, and the first row with a text."""
        values = self.column(name)
        if values.dtype != object:
            return values, None
        if name not in self._known:
            point = "," if self.has_decimal_commas(name) else "."
            numbers, first = np.full(len(values), np.nan), None
            for i, text in enumerate(values):
                if text is not None and _is_number(text, point):
                    numbers[i] = float(text.replace(point, "."))
                elif text is not None and first is None:
                    first = i
            self._known[name] = numbers, first
        return self._known[name]

    def has_decimal_commas(self, name: str) -> bool:
        """Whether numbers of the column are written like 1,5."""
        values = self.column(name)
        if not self.decimal_comma or values.dtype != object:
            return False
        texts = [text for text in values if text is not None]
        return any("," in text and _is_number(text, ",") for text in texts) and not any(
            "." in text and _is_number(text) for text in texts
        )

    def missing(self, name: str) -> np.ndarray:
        values = self.column(name)
        if values.dtype == object:
            return np.array([value is None for value in values], dtype=bool)
        return np.isnan(values)

    def numbers(self, name: str) -> np.ndarray:
        """The column as numbers, NaN where missing; infinity and other texts are refused."""
        numbers, wrong = self._parsed(name)
        values = self.columns[name]
        if wrong is not None:
            raise TableError(f"{self.place(name, wrong)}: {short(values[wrong])} is not a number")
        infinite = np.flatnonzero(np.isinf(numbers))
        if len(infinite):
            value = values[infinite[0]]
            raise TableError(
                f"{self.place(name, infinite[0])}: {value} is not finite; leave the field empty if "
                "the value is missing"
            )
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
    whole = abs(value) < 2**53 and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def listed(names: Sequence[str], most: int = 12) -> str:
    """Some names, for messages."""
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def short(text: str) -> str:
    """A text, for messages."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def read_table(
    path: str | PathLike[str], *, delimiter: str | None = None, encoding: str | None = None
) -> Table:
    """Read a table with a header from a CSV, TSV or Parquet file, gzipped or not.

    delimiter : of a text file, "tab" for one; None to find it in the header, among comma,
        semicolon, tab and |.
    encoding : of a text file; None for UTF-8, or UTF-16 with a byte order mark.
    """
    path = Path(path)
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table")
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
        return _read_parquet(path, content, most)
    for beginning, what in _FOREIGN.items():
        if content[:100].lstrip().lower().startswith(beginning.lower()):
            raise TableError(f"{path} is {what}")
    if _MODEL_FILE.match(content[: 2**20]):
        raise TableError(f"{path} is a model file, not a table")
    return _read_text(path, _decoded(path, content, encoding), delimiter, most)


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
        raise TableError(f"there is no encoding {encoding!r}; utf-8 or latin-1 are some") from error
    except UnicodeError as error:
        start = getattr(error, "start", None)
        row = "" if start is None else f", row {content.count(bytes([10]), 0, start) + 1}"
        name = "utf-8" if encoding == "utf-8-sig" else encoding
        raise TableError(
            f"{path}{row}: not text in the encoding {name}; give its own, such as latin-1"
        ) from error
    if "\0" in text:
        raise TableError(
            f"{path} is not a table: it holds zero bytes, as text does in the encoding utf-16 only"
        )
    return text.removeprefix("\ufeff")


def _check_cells(path: Path, cells: int, most: int) -> None:
    """Refuse what would need far more memory than its bytes say."""
    if cells > most // _CELL_BYTES:
        raise TableError(
            f"{path} is too large: more than {most // _CELL_BYTES:,} cells, which is all that is "
            "read; set CVXNN_MAX_BYTES to ten times the number of cells to read more"
        )


def _read_text(path: Path, text: str, delimiter: str | None, most: int) -> Table:
    if delimiter is None:
        delimiter = _found_delimiter(path, text)
    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"the delimiter must be one character, got {delimiter!r}")
    _check_cells(path, text.count(delimiter) + text.count("\n") + text.count("\r"), most)
    records = _records(path, text, delimiter)
    if not records:
        raise TableError(f"{path} is empty")
    (_, header), *body = records
    for number, fields in body:
        if len(fields) != len(header):
            raise TableError(
                f"{path}, row {number}: {count(len(fields), 'field')}, but the header has "
                f"{len(header)}"
            )
    if not body:
        raise TableError(f"{path} has a header, but no rows")
    counted = header == [str(k) for k in range(len(header))]  # as some programs name columns
    if all(map(_is_number, header)) and not counted:
        raise TableError(
            f"{path} has no header: its first row holds numbers only; name the columns there"
        )
    columns = [
        np.array([_value(cell) for cell in column], dtype=object)
        for column in zip(*(fields for _, fields in body), strict=True)
    ]
    rows = np.array([number for number, _ in body])
    return replace(_named(path, header, columns, rows), decimal_comma=delimiter != ",")


def _records(path: Path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, with their numbers."""
    lines = (line.group() for line in _LINE.finditer(text))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
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
        what = _what_is_wrong(text[start:], delimiter, rows[0][1] if rows else []) or str(error)
        raise TableError(f"{path}, row {number + 1}: {what}") from error
    return rows


def _what_is_wrong(text: str, delimiter: str, header: list[str]) -> str:
    """Why `csv` cannot read the row that `text` begins with: a quote is not closed, or a field is
    too long. Empty if it is something else, which `csv` has words of its own for."""
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
            return ""
        start, column = found.end() + 1, column + 1
    name = repr(header[column - 1]) if column <= len(header) else str(column)
    lines = ": is a quote not closed?" if "\n" in field else ""
    return f"column {name} has {len(field):,} characters, and at most {most:,} are read{lines}"


def _found_delimiter(path: Path, text: str) -> str:
    """The one that is most frequent in the header, outside quotes."""
    beginning = re.sub(r'"[^"]*"', "", text[:100_000])
    header = next((line for line in re.split("[\r\n]", beginning) if line.strip()), "")
    if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")) and "\t" in header:
        return "\t"
    return max(DELIMITERS, key=header.count)


def _value(cell: str) -> str | None:
    return None if cell.lower() in MISSING else cell


def _named(path: Path, header: Sequence[str], columns: list[np.ndarray], rows: np.ndarray) -> Table:
    """The table, if its names are fit for use. Columns without a name are left out if they are
    what programs write without being asked: an index at the beginning, or no values."""
    notes, named = [], {}
    header = ["" if _UNNAMED.fullmatch(name) else name for name in header]
    for k, (name, values) in enumerate(zip(header, columns, strict=True)):
        if name in named:
            numbers = ": is the first row a header?" if _is_number(name) else ""
            raise TableError(f"{path} has more than one column {name!r}{numbers}")
        if name:
            named[name] = values
        elif k == 0 and len(header) > 1 and _number_rows(values):
            notes.append("the first column has no name and numbers the rows: left out")
        elif all(value is None for value in values):
            notes.append(f"column {k + 1} has neither a name nor values: left out")
        else:
            raise TableError(f"{path}: column {k + 1} has no name in the header")
    if not named:
        raise TableError(f"{path} has no column with a name")
    return Table(named, str(path), rows, notes=tuple(notes))


def _number_rows(values: np.ndarray) -> bool:
    """Whether these are different whole numbers, as an index is, be it of some of the rows."""
    texts = [number_text(v) if isinstance(v, float) else str(v) for v in values]
    return len(set(texts)) == len(texts) and all(map(str.isdecimal, texts))


def _read_parquet(path: Path, content: bytes, most: int) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TableError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'cvxnn[data]'"
        ) from error
    try:
        file = parquet.ParquetFile(io.BytesIO(content))
        _check_parquet(path, file.metadata, most)
        texts = [f.name for f in file.schema_arrow if pyarrow.types.is_string(f.type)]
        # a text that occurs often is stored once, and so it stays
        data = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path} is a damaged Parquet file: {_first_line(error)}") from error
    names = [str(name) for name in data.column_names]
    index = [k for k, name in enumerate(names) if re.fullmatch(r"__index_level_\d+__", name)]
    data = data.drop_columns([names[k] for k in index]) if index else data
    names = [name for k, name in enumerate(names) if k not in index]
    if data.num_rows == 0:
        raise TableError(f"{path} has columns, but no rows")
    columns = [_arrow_column(path, name, data.column(k)) for k, name in enumerate(names)]
    return _named(path, names, columns, np.arange(data.num_rows) + 1)


def _check_parquet(path: Path, facts: Any, most: int) -> None:
    """Refuse before it is read what a few bytes may say: billions of rows."""
    groups = [facts.row_group(k) for k in range(facts.num_row_groups)]
    parts = [group.column(k) for group in groups for k in range(group.num_columns)]
    cells = sum(max(part.num_values, 0) for part in parts)
    _check_cells(path, max(cells, facts.num_rows * facts.num_columns), most)
    if sum(max(part.total_uncompressed_size, 0) for part in parts) > most:
        raise TableError(too_large(path, most, "unpacked, "))


def _arrow_column(path: Path, name: str, column: Any) -> np.ndarray:
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return np.concatenate([_from_dictionary(path, name, chunk) for chunk in column.chunks])
    if types.is_nested(kind) or "binary" in str(kind):
        raise TableError(f"{path}, column {name!r}: values of type {kind} cannot be used")
    values = column.to_pylist()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return np.array([np.nan if v is None else float(v) for v in values])
    # as programs write them to CSV, so that False is False there and here
    return np.array([None if v is None else _value(str(v).strip()) for v in values], dtype=object)


def _from_dictionary(path: Path, name: str, chunk: Any) -> np.ndarray:
    values = _arrow_column(path, name, chunk.dictionary)
    missing = None if values.dtype == object else np.nan
    values = np.append(values, np.array([missing], dtype=values.dtype))
    return values[chunk.indices.cast("int64").fill_null(len(values) - 1).to_numpy()]


def write_csv(columns: Mapping[str, Iterable[Any]], *, safe: bool = False) -> str:
    """Columns as CSV text, numbers with all their digits.

    safe : put ' before names and texts that spreadsheets would run as formulas.
    """
    lines: list[str] = []
    # with this terminator, texts that hold a carriage return alone are quoted as well
    out = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(out, lineterminator="\r\n")
    shown = _harmless if safe else str
    writer.writerow(map(shown, columns))
    rows = zip(*columns.values(), strict=True)
    writer.writerows([shown(_cell(value)) for value in row] for row in rows)
    return "".join(lines)


def _harmless(cell: str) -> str:
    formula = cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(cell)
    return "'" + cell if formula else cell


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _is_number(text: str, point: str = ".") -> bool:
    """Whether a text is a number; float() would take 1_000 and nan, too."""
    plain = text if point == "." else text.replace(".", " ").replace(point, ".")
    return _NUMBER.fullmatch(plain) is not None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def count(number: int, noun: str) -> str:
    """A number of things, for messages."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
