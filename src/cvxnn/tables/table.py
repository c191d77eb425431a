"""Tables of named columns.

A column holds texts, or numbers if the file has a type for them; None and NaN are missing values.
Whether texts are numbers is decided only when numbers are asked for, so that an error can name the
row that is not a number. Rows are counted as a spreadsheet shows them: the header of a CSV file is
row 1, blank lines count, and line breaks inside quotes do not.
"""

from __future__ import annotations

import csv
import difflib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from cvxnn.tables.numerals import Reading, Style, is_number, present, read_as, read_numbers

MISSING = frozenset(
    {"", "?", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "nil", "missing"}
)
_CELL_BYTES = 10  # of a file, for each cell that is read: a cell takes a hundred bytes of memory


class TableError(ValueError):
    """A file or a column that cannot be used; the message names file, column and row."""


class Segment(NamedTuple):
    """Rows of a table, from the one at `start`, that are in one file, the first one as row
    `first`."""

    start: int
    source: str
    first: int


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    columns : name -> an object array of texts (None is missing) or a float array (NaN is missing).
        Those of a large table are in files and loaded when asked for (see `spilling`).
    source : the name of the table in messages.
    row_numbers : the numbers of the rows in the file; None for 1, 2, ...
    decimal_comma : whether 1,500 is rather 1.5 than 1500, as in files that are not separated by
        commas.
    notes : what was done to make sense of the file, in words.
    kinds : what a frame has said of a column: "category", "boolean" or "date".
    segments : where the rows are, if they are in several files; `row_numbers` count them all.
    """

    columns: Mapping[str, np.ndarray]
    source: str = "the table"
    row_numbers: np.ndarray | None = None
    decimal_comma: bool = False
    notes: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    _known: dict[str, Reading] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, dict):
            return
        for name, values in self.columns.items():
            if not isinstance(values, np.ndarray) or values.dtype not in (object, np.float64):
                raise TypeError(f"column {name!r} must be an array of texts or of floats")
            if values.shape != (len(self),):
                raise ValueError(f"column {name!r} has shape {values.shape}, not ({len(self)},)")

    def __len__(self) -> int:
        if not isinstance(self.columns, dict):
            return self.columns.n_rows  # type: ignore[attr-defined]
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def in_files(self) -> bool:
        """Whether the columns are in files, because they are too large for the memory."""
        return getattr(self.columns, "in_files", False)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def row(self, index: int) -> int | str:
        """The number that a row of the table has in the file; with the name of the file, if there
        are several."""
        number = int(index) + 1 if self.row_numbers is None else int(self.row_numbers[index])
        if not self.segments:
            return number
        its = self.segments[bisect_right(self.segments, number - 1, key=lambda s: s.start) - 1]
        return f"{its.first + number - 1 - its.start} of {its.source}"

    def select(self, rows: np.ndarray | slice) -> Table:
        """Some of the rows, which keep their numbers."""
        numbers = np.arange(len(self)) + 1 if self.row_numbers is None else self.row_numbers
        columns: Mapping[str, np.ndarray]
        if isinstance(self.columns, dict):
            columns = {name: values[rows] for name, values in self.columns.items()}
        else:
            columns = self.columns.select(rows)  # type: ignore[attr-defined]
        return replace(self, columns=columns, row_numbers=numbers[rows])

    def column(self, name: str) -> np.ndarray:
        self.check_name(name)
        return self.columns[name]

    def check_name(self, name: str) -> None:
        """Refuse the name of a column that there is not."""
        if name not in self.columns:
            raise TableError(f"{self.source} has no column {name!r}{self._hint(name)}")

    def check_has(self, names: Iterable[str]) -> None:
        """Refuse a table that lacks columns of a model."""
        absent = [name for name in names if name not in self.columns]
        if absent:
            raise TableError(
                f"{self.source} lacks the column{'s' * (len(absent) > 1)} {listed(absent)} that "
                f"the model was trained with; it has {listed(self.names)}"
            )

    def _hint(self, name: str) -> str:
        folded = {other.casefold(): other for other in self.columns}
        near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
        if near:
            return f": did you mean {folded[near[0]]!r}? It has {listed(self.names)}"
        if len(self.columns) == 1:
            return f"; it has one column only, {listed(self.names)}: is that the right delimiter?"
        no_header = any(map(is_number, self.columns))
        return f"; it has {listed(self.names)}" + (": is the first row a header?" * no_header)

    def is_numeric(self, name: str) -> bool:
        """Whether every value of the column that is not missing is a number."""
        return self.first_text(name) is None

    def first_text(self, name: str) -> int | None:
        """The first row whose value is neither missing nor a number."""
        return self.reading(name).wrong

    def reading(self, name: str) -> Reading:
        """The column as numbers, in the style that most of its texts are written in."""
        if name in self._known:
            return self._known[name]
        quick = getattr(self.columns, "numbers", None)  # columns that are not texts yet
        found = quick(name) if quick is not None and name in self.columns else None
        if found is None:
            values = self.column(name)
            if values.dtype != object:
                return Reading(values)
            found = read_numbers(values, decimal_comma=self.decimal_comma)
        if self.in_files:  # of what is loaded, only the last column is kept
            self._known.clear()
        self._known[name] = found
        return found

    def missing(self, name: str) -> np.ndarray:
        """Which values are missing: among numbers, words such as n.v. are as well."""
        found = self.reading(name)
        return np.isnan(found.numbers) if found.wrong is None else self.empty(name)

    def empty(self, name: str) -> np.ndarray:
        """Which values are missing whatever the column holds."""
        values = self.column(name)
        return ~present(values) if values.dtype == object else np.isnan(values)

    def numbers(
        self, name: str, style: Style | None = None, missing: tuple[str, ...] = ()
    ) -> np.ndarray:
        """The column as numbers, NaN where missing; infinity and other texts are refused.

        style : how numbers were written in the rows that a model was trained on; another style is
            taken if the column has one.
        missing : texts that count as missing.
        """
        found = self._reading_in(name, style, missing)
        if found.wrong is not None:
            text = short(self.column(name)[found.wrong])
            raise TableError(f"{self.place(name, found.wrong)}: {text} is not a number")
        infinite = np.flatnonzero(np.isinf(found.numbers))
        if len(infinite):
            value = self.column(name)[infinite[0]]
            raise TableError(
                f"{self.place(name, infinite[0])}: {value} is not finite; leave the field empty if "
                "the value is missing"
            )
        return found.numbers

    def _reading_in(self, name: str, style: Style | None, missing: tuple[str, ...]) -> Reading:
        if style is None or (style.plain and not missing):
            return self.reading(name)
        values = self.column(name)
        if values.dtype != object:
            return self.reading(name)
        found = read_as(values, style, missing)
        if found.wrong is None:
            return found
        other = self.reading(name)
        same_unit = other.style.unit in ("", style.unit) or not style.unit
        return other if other.wrong is None and same_unit else found

    def with_missing(self, words: Sequence[str]) -> Table:
        """The table in which further words, or numbers, stand for missing values."""
        if not words:
            return self
        folded = frozenset(str(word).strip().casefold() for word in words)
        codes = [float(word) for word in folded if is_number(word)]
        columns: Mapping[str, np.ndarray] = Emptied(self.columns, folded, tuple(codes))
        if isinstance(self.columns, dict):
            columns = dict(columns)
        return replace(self, columns=columns)

    def texts(self, name: str) -> np.ndarray:
        """The column as texts, None where missing; whole numbers have no decimal point."""
        values = self.column(name)
        if values.dtype == object:
            return values
        texts = [None if np.isnan(v) else number_text(v) for v in values]
        return np.array(texts, dtype=object)

    def place(self, name: str, index: int) -> str:
        """Where a value is, for messages."""
        return f"{self.source}, column {name!r}, row {self.row(index)}"


class Emptied(Mapping[str, np.ndarray]):
    """Columns in which words or numbers stand for missing values."""

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        words: frozenset[str],
        codes: tuple[float, ...],
    ) -> None:
        self._columns, self._words, self._codes = columns, words, codes
        self.in_files = getattr(columns, "in_files", False)
        self.n_rows = getattr(columns, "n_rows", 0)

    def __getitem__(self, name: str) -> np.ndarray:
        values = self._columns[name]
        if values.dtype != object:
            return np.where(np.isin(values, self._codes), np.nan, values)
        empty = {text for text in set(values.tolist()) if self._stands_for_missing(text)}
        if not empty:
            return values
        return np.array([None if text in empty else text for text in values], dtype=object)

    def _stands_for_missing(self, text: str | None) -> bool:
        if text is None:
            return False
        return text.casefold() in self._words or (is_number(text) and float(text) in self._codes)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def select(self, rows: np.ndarray | slice) -> Emptied:
        return Emptied(self._columns.select(rows), self._words, self._codes)  # type: ignore[attr-defined]


def number_text(value: float) -> str:
    """A number as text: 3 rather than 3.0, otherwise with all the digits that define it."""
    whole = abs(value) < 2**53 and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def listed(names: Sequence[str], most: int = 12) -> str:
    """The first names of a list, for messages."""
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def short(text: str) -> str:
    """A text in quotes, cut if it is long, for messages."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def count(number: int, noun: str) -> str:
    """1 row, 2 rows: a number of things, for messages."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def write_csv(columns: Mapping[str, Iterable[object]], *, safe: bool = False) -> str:
    """Columns as CSV text, numbers with all their digits.

    safe : put ' before names and texts that spreadsheets would run as formulas.
    """
    lines: list[str] = []
    # csv quotes texts with the characters of its line terminator: with "\r\n", also those that
    # hold a lone carriage return
    out = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(out, lineterminator="\r\n")
    shown = _no_formula if safe else str
    writer.writerow(map(shown, columns))
    rows = zip(*columns.values(), strict=True)
    writer.writerows([shown(_cell(value)) for value in row] for row in rows)
    return "".join(lines)


def _no_formula(cell: str) -> str:
    formula = cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number(cell)
    return "'" + cell if formula else cell


def _cell(value: object) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def text_or_missing(cell: str) -> str | None:
    """A text of a file; None if it stands for a missing value."""
    return None if cell.lower() in MISSING else cell


def check_cells(path: Path, cells: int, most: int) -> None:
    """Refuse a file whose cells would need far more memory than its size suggests."""
    if cells > most // _CELL_BYTES:
        raise TableError(
            f"{path} is too large: more than {most // _CELL_BYTES:,} cells, which is all that is "
            "read; set CVXNN_MAX_BYTES to ten times the number of cells to read more"
        )
