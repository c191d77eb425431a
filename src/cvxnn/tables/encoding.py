"""Tables as numbers for a network, the same for training rows and new ones.

An encoder is data: `Encoder.to_json` goes into a model file, and `Encoder.from_json` reads it back.
What a column becomes is decided in `deciding.py` and done in `columns.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvxnn.tables.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    column_of_json,
    json_of,
)
from cvxnn.tables.notes import Guess
from cvxnn.tables.numerals import Style, is_number, read_as
from cvxnn.tables.table import Table, count, listed

__all__ = ["CategoryColumn", "DateColumn", "Encoder", "NumberColumn", "reading_notes"]


@dataclass(frozen=True)
class Encoder:
    """How the columns of a table become the features of a network.

    columns : those that become features.
    na : further texts and numbers that stand for missing values, in all columns.
    """

    columns: tuple[Column, ...]
    na: tuple[str, ...] = ()

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
        table.check_has(column.name for column in self.columns)
        table = table.with_missing(self.na)
        X = np.empty((len(table), len(self.features)))
        start = 0
        for column in self.columns:
            stop = start + len(column.features)
            X[:, start:stop] = column.encode(table)
            start = stop
        notes = [Guess(note) for column in self.columns for note in column.surprises(table)]
        return X, [*notes, *reading_notes(table, self.columns)]

    def to_json(self) -> list[dict[str, object]]:
        return [json_of(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: object, na: object = ()) -> Encoder:
        """The encoder of a model file; ValueError or TypeError if it is not valid."""
        if not isinstance(columns, list) or not columns:
            raise ValueError("columns are missing")
        found = tuple(column_of_json(column) for column in columns)
        names = [column.name for column in found]
        if len(set(names)) < len(names):
            raise ValueError("columns are not distinct")
        if not isinstance(na, list | tuple) or not all(isinstance(word, str) for word in na):
            raise ValueError("na must be texts")
        return cls(found, tuple(na))


def reading_notes(table: Table, columns: Sequence[Column]) -> list[str]:
    """Notes on cells that are numbers only in the eyes of people, and on words that count as
    missing among numbers."""
    commas: dict[str, str] = {}
    notes = []
    for column in columns:
        if not isinstance(column, NumberColumn):
            continue
        plain = column.style.plain and not column.missing
        found = table.reading(column.name)
        if plain and found.style.plain and not found.absent:
            continue
        if table.column(column.name).dtype != object:
            continue
        values = table.column(column.name)
        found = read_as(values, column.style, column.missing)
        if found.wrong is not None:
            found = table.reading(column.name)
        if not found.style.plain:
            plain = found.style.point == "," and not found.style.group and not found.style.unit
            example = next((text for text in values.tolist() if _odd(text, found.style)), None)
            if example is not None and plain:
                commas[column.name] = f"{example} as {example.replace(',', '.')}"
            elif example is not None:
                number = found.style.number(example)
                notes.append(
                    f"column {column.name!r} is read as numbers, {example} as {number:.15g}"
                )
        if found.absent:
            where = np.isin(values, found.absent)
            notes.append(
                f"column {column.name!r}: {listed(found.absent, 4)} "
                f"count{'s' * (len(found.absent) == 1)} as missing among numbers, in "
                f"{count(int(where.sum()), 'row')}"
            )
    if commas:
        example = next(iter(commas.values()))
        notes.append(f"commas are read as decimal points, {example}: {listed(list(commas), 8)}")
    return notes


def _odd(text: str | None, style: Style) -> bool:
    return text is not None and not is_number(text) and style.number(text) is not None
