"""Columns of a table as numbers for a network, the same for training rows and new ones.

    numbers   -> themselves, missing ones the median of the training rows
    texts     -> one column of 0 and 1 a category, all 0 for a category that training did not see
    missing   -> a further column of 0 and 1, if training rows had missing values there

An encoder is data: it goes into a model file as JSON and comes back by `Encoder.from_json`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxnn.tables import Table, TableError

MAX_CATEGORIES = 50  # of a column of texts; one with more is more likely a name than a category


@dataclass(frozen=True)
class NumberColumn:
    """fill : what stands for missing values; None if they are refused.
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


@dataclass(frozen=True)
class CategoryColumn:
    """categories : in the order of their columns.
    fill : the category that stands for missing values; None if they are refused or marked."""

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

    def unseen(self, table: Table) -> list[tuple[int, str]]:
        """The rows, and their texts, that are none of the categories."""
        known = set(self.categories)
        texts = table.texts(self.name)
        return [(i, text) for i, text in enumerate(texts) if text is not None and text not in known]


Column = NumberColumn | CategoryColumn


def _mark(column: Column) -> list[str]:
    return [f"{column.name} is missing"] if column.marked else []


def _checked_missing(column: Column, table: Table) -> np.ndarray:
    missing = table.missing(column.name)
    if missing.any() and column.fill is None and not column.marked:
        place = table.place(column.name, int(np.argmax(missing)))
        raise TableError(f"{place}: the value is missing, and missing values are refused")
    return missing


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
        """The encoder for some columns of training rows, and notes on what it leaves out."""
        columns: list[Column] = []
        notes = []
        for name in names:
            column = _column(table, name, impute)
            kinds = len(column.categories) if isinstance(column, CategoryColumn) else 0
            if table.missing(name).all():
                notes.append(f"column {name!r} has no values: left out")
            elif kinds > max_categories:
                notes.append(
                    f"column {name!r} has {kinds} different texts: left out as no category"
                )
            else:
                columns.append(column)
                if _constant(table, column):
                    notes.append(f"column {name!r} has one value only, and tells nothing")
        if not columns:
            raise TableError(
                f"{table.source} has no column to learn from" + "".join(f"; {n}" for n in notes)
            )
        return cls(tuple(columns)), notes

    @property
    def features(self) -> list[str]:
        return [feature for column in self.columns for feature in column.features]

    def encode(self, table: Table) -> tuple[np.ndarray, list[str]]:
        """Numbers (n, features), and notes on what training had not seen. Columns may be in any
        order; all that are needed have to be there."""
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if absent:
            raise TableError(
                f"{table.source} lacks {_listed(absent)} that the model was trained with"
            )
        X = np.column_stack([column.encode(table) for column in self.columns])
        notes = []
        for column in self.columns:
            if isinstance(column, CategoryColumn) and (unseen := column.unseen(table)):
                row, text = unseen[0]
                notes.append(
                    f"column {column.name!r}: {len(unseen)} rows have categories that training did "
                    f"not see, the first is {text!r} in row {table.row(row)}; they count as none"
                )
        return X, notes

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {**vars(column), "categories": list(column.categories)}
            if isinstance(column, CategoryColumn)
            else dict(vars(column))
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: Any) -> Encoder:
        """The encoder of a model file; ValueError if it is none."""
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
        values = table.numbers(name)[~missing]
        fill = float(np.median(values)) if impute and len(values) else None
        return NumberColumn(name, fill, marked)
    counts = Counter(text for text in table.texts(name) if text is not None)
    # the most frequent one, the first of the alphabet among equals
    fill = min(counts, key=lambda text: (-counts[text], text)) if impute and not marked else None
    return CategoryColumn(name, tuple(sorted(counts)), fill, marked)


def _constant(table: Table, column: Column) -> bool:
    if column.marked:
        return False
    if isinstance(column, CategoryColumn):
        return len(column.categories) == 1
    return bool(np.ptp(table.numbers(column.name)) == 0)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return f"the column{'s' if len(names) > 1 else ''} {shown}"


def _column_of_json(column: Any) -> Column:
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        raise ValueError("a column has no name")
    name, marked, fill = column["name"], column.get("marked"), column.get("fill")
    if not isinstance(marked, bool):
        raise ValueError(f"column {name!r}: marked must be true or false")
    if "categories" not in column:
        number = isinstance(fill, (int, float)) and not isinstance(fill, bool)
        if fill is not None and not (number and math.isfinite(fill)):
            raise ValueError(f"column {name!r}: fill must be a number")
        return NumberColumn(name, None if fill is None else float(fill), marked)
    categories = column["categories"]
    texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
    if not texts or not categories or len(set(categories)) < len(categories):
        raise ValueError(f"column {name!r}: categories must be different texts")
    if fill is not None and fill not in categories:
        raise ValueError(f"column {name!r}: fill is none of its categories")
    return CategoryColumn(name, tuple(categories), fill, marked)
