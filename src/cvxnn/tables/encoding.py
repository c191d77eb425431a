"""Columns of a table as numbers for a network, the same for training rows and new ones.

    numbers   -> themselves, and the median of the training rows for missing ones
    texts     -> a column of 0 and 1 for each category; all 0 for a category unseen in training
    missing   -> a further column of 0 and 1, if training rows had missing values there

A column holds numbers if all its values are numbers. Columns with a different text in every row, or
with very many texts, hold names rather than categories and are left out.

An encoder is data: `Encoder.to_json` goes into a model file, and `Encoder.from_json` reads it back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvxnn.tables.table import Table, TableError, count, listed, short
from cvxnn.validation import check_number

MAX_CATEGORIES = 50  # a column with more different texts is more likely one of names
_LIKE_A_NUMBER = re.compile(r"[^a-z]*\d[^a-z]*", re.IGNORECASE)  # 1,234 and $5 and 3 %


@dataclass(frozen=True)
class NumberColumn:
    """fill : the number used for missing values; None if they are refused.
    marked : whether a further column says which values were missing."""

    name: str
    fill: float | None
    marked: bool

    @property
    def features(self) -> list[str]:
        return [self.name, *_mark(self)]

    def encode(self, table: Table) -> np.ndarray:
        values = table.numbers(self.name)
        missing = _checked_missing(self, table)
        if self.fill is not None:
            values = np.where(missing, self.fill, values)
        return np.column_stack([values, missing] if self.marked else [values])

    def surprises(self, table: Table) -> list[str]:
        """Notes on values that were not seen in training."""
        return _filled(self, table)


@dataclass(frozen=True)
class CategoryColumn:
    """categories : in the order of their columns.
    fill : the category used for missing values; None if they are refused or marked."""

    name: str
    categories: tuple[str, ...]
    fill: str | None
    marked: bool

    @property
    def features(self) -> list[str]:
        return [*(f"{self.name}={category}" for category in self.categories), *_mark(self)]

    def encode(self, table: Table) -> np.ndarray:
        missing = _checked_missing(self, table)
        place = {category: k for k, category in enumerate(self.categories)}
        encoded = np.zeros((len(table), len(self.features)))
        for i, text in enumerate(table.texts(self.name)):
            known = self.fill if text is None else text
            if known in place:
                encoded[i, place[known]] = 1.0
        if self.marked:
            encoded[:, -1] = missing
        return encoded

    def surprises(self, table: Table) -> list[str]:
        """Notes on values that were not seen in training."""
        known = {*self.categories, None}
        texts = table.texts(self.name)
        rows = [i for i, text in enumerate(texts) if text not in known]
        notes = _filled(self, table)
        if rows:
            notes.append(
                f"column {self.name!r}: {count(len(rows), 'value')} of categories that training "
                f"did not see, the first is {short(texts[rows[0]])} in row {table.row(rows[0])}; "
                "they count as no category"
            )
        return notes


Column = NumberColumn | CategoryColumn


def _mark(column: Column) -> list[str]:
    return [f"{column.name} is missing"] if column.marked else []


def _checked_missing(column: Column, table: Table) -> np.ndarray:
    missing = table.missing(column.name)
    if missing.any() and column.fill is None and not column.marked:
        place = table.place(column.name, int(np.argmax(missing)))
        raise TableError(f"{place}: the value is missing, and missing values are refused")
    return missing


def _filled(column: Column, table: Table) -> list[str]:
    missing = table.missing(column.name)
    if column.marked or not missing.any():
        return []
    return [
        f"column {column.name!r}: {count(int(missing.sum()), 'missing value')}, the first in row "
        f"{table.row(int(np.argmax(missing)))}; training had none, so {column.fill!r} is filled in"
    ]


@dataclass(frozen=True)
class Encoder:
    """How the columns of a table become the features of a network."""

    columns: tuple[Column, ...]

    @classmethod
    def of(
        cls,
        table: Table,
        names: Sequence[str],
        *,
        impute: bool = True,
        max_categories: int = MAX_CATEGORIES,
    ) -> tuple[Encoder, list[str]]:
        """The encoder for some columns of training rows, and notes on what was done to them."""
        columns: list[Column] = []
        notes = []
        for name in names:
            if table.missing(name).all():
                notes.append(f"column {name!r} has no values: left out")
                continue
            column = _column(table, name, impute)
            if isinstance(column, CategoryColumn):
                notes += _number_like_texts(table, name)
                why_not = _why_not_categories(table, column, max_categories)
                if why_not:
                    notes.append(f"column {name!r} {why_not}: left out")
                    continue
            if _constant(table, column):
                notes.append(f"column {name!r} has only one value: left out")
                continue
            if isinstance(column, NumberColumn) and _counts_up(table.numbers(name)):
                notes.append(f"column {name!r} counts up: ignore it if it only numbers the rows")
            columns.append(column)
        if not columns:
            raise TableError(
                f"{table.source} has no column to learn from" + "".join(f"; {n}" for n in notes)
            )
        marked = [column.name for column in columns if column.marked]
        if marked:
            notes.append(f"missing values are filled in and marked: {listed(marked, 8)}")
        encoder = cls(tuple(columns))
        return encoder, [*notes, *comma_notes(table, encoder.numbers)]

    @property
    def features(self) -> list[str]:
        return [feature for column in self.columns for feature in column.features]

    @property
    def numbers(self) -> list[str]:
        """The names of the columns of numbers."""
        return [column.name for column in self.columns if isinstance(column, NumberColumn)]

    def encode(self, table: Table) -> tuple[np.ndarray, list[str]]:
        """Numbers (n, features), and notes on values that were not seen in training. Columns may be
        in any order, but none may be missing."""
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if absent:
            raise TableError(
                f"{table.source} lacks the column{'s' * (len(absent) > 1)} {listed(absent)} that "
                f"the model was trained with; it has {listed(table.names)}"
            )
        X = np.column_stack([column.encode(table) for column in self.columns])
        notes = [note for column in self.columns for note in column.surprises(table)]
        return X, [*notes, *comma_notes(table, self.numbers)]

    def to_json(self) -> list[dict[str, object]]:
        return [
            {**vars(column), "categories": list(column.categories)}
            if isinstance(column, CategoryColumn)
            else dict(vars(column))
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: object) -> Encoder:
        """The encoder of a model file; ValueError or TypeError if it is not valid."""
        if not isinstance(columns, list) or not columns:
            raise ValueError("columns are missing")
        found = tuple(_column_of_json(column) for column in columns)
        names = [column.name for column in found]
        if len(set(names)) < len(names):
            raise ValueError("columns are not distinct")
        return cls(found)


def _column(table: Table, name: str, impute: bool) -> Column:
    missing = table.missing(name)
    marked = bool(impute and missing.any())
    if table.is_numeric(name):
        values = np.sort(table.numbers(name)[~missing])
        low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
        fill = float(low / 2 + high / 2) if impute else None  # a sum might overflow
        return NumberColumn(name, fill, marked)
    counts = Counter(text for text in table.texts(name) if text is not None)
    # the most frequent category; of equally frequent ones, the first in the alphabet
    fill = min(counts, key=lambda text: (-counts[text], text)) if impute and not marked else None
    return CategoryColumn(name, tuple(sorted(counts)), fill, marked)


def _number_like_texts(table: Table, name: str) -> list[str]:
    """A note on a text column in which some texts look like numbers."""
    texts = [text for text in table.texts(name) if text is not None]
    if not any(map(_LIKE_A_NUMBER.fullmatch, texts)):
        return []
    row = table.first_text(name)
    assert row is not None  # or it would be a column of numbers
    text = short(table.texts(name)[row])
    return [
        f"column {name!r} is treated as text because {text} in row {table.row(row)} is not a number"
    ]


def _why_not_categories(table: Table, column: CategoryColumn, max_categories: int) -> str:
    """Why the texts of a column cannot be used as categories; empty if they can."""
    kinds, values = len(column.categories), int(np.sum(~table.missing(column.name)))
    if kinds == values > 2:
        return "has a different text in every row"
    return "" if kinds <= max_categories else f"has {kinds} different texts"


def _constant(table: Table, column: Column) -> bool:
    if column.marked:
        return False
    if isinstance(column, CategoryColumn):
        return len(column.categories) == 1
    values = table.numbers(column.name)
    return bool(values.min() == values.max())


def _counts_up(values: np.ndarray) -> bool:
    """Whether these are consecutive whole numbers in some order, of ten rows at least."""
    return len(values) >= 10 and bool(np.all(np.diff(np.sort(values)) == 1))


def comma_notes(table: Table, names: Sequence[str]) -> list[str]:
    """A note on commas that are read as decimal points."""
    commas = [name for name in names if table.has_decimal_commas(name)]
    if not commas:
        return []
    text = next(text for text in table.column(commas[0]) if text is not None and "," in text)
    plain = text.replace(",", ".")
    return [f"commas are read as decimal points, {text} as {plain}: {listed(commas, 8)}"]


def _column_of_json(column: object) -> Column:
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        raise ValueError("a column has no name")
    name, marked, fill = column["name"], column.get("marked"), column.get("fill")
    if not isinstance(marked, bool):
        raise ValueError(f"column {name!r}: marked must be true or false")
    if "categories" not in column:
        number = None if fill is None else check_number(fill, f"column {name!r}: fill")
        return NumberColumn(name, number, marked)
    categories = column["categories"]
    texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
    if not texts or not categories or len(set(categories)) < len(categories):
        raise ValueError(f"column {name!r}: categories must be different texts")
    if fill is not None and fill not in categories:
        raise ValueError(f"column {name!r}: fill is not one of its categories")
    return CategoryColumn(name, tuple(categories), fill, marked)
