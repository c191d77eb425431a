"""How one column of a table becomes features: data that a model file holds, and no code.

numbers   -> themselves, and the median of the training rows for missing ones
dates     -> days since 1970, and what of day of year, weekday and hour tells them apart
texts     -> a column of 0 and 1 for each category; all 0 for a category unseen in training
missing   -> a further column of 0 and 1, if training rows had missing values there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxnn.tables.moments import ORDERS, PARTS, days_of, part_of
from cvxnn.tables.numerals import PLAIN, Style, absent
from cvxnn.tables.table import Table, TableError, count, listed, short
from cvxnn.validation import check_number

_TRUTHS = frozenset({"true", "false"})


@dataclass(frozen=True)
class NumberColumn:
    """fill : the number used for missing values; None if they are refused.
    marked : whether a further column says which values were missing.
    style : how the numbers were written in training.
    missing : texts that counted as missing in training."""

    name: str
    fill: float | None
    marked: bool
    style: Style = PLAIN
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        return [self.name, *_mark(self)]

    def encode(self, table: Table) -> np.ndarray:
        values = self._numbers(table)
        missing = _checked(self, table, np.isnan(values))
        if self.fill is not None:
            values = np.where(missing, self.fill, values)
        return np.column_stack([values, missing] if self.marked else [values])

    def surprises(self, table: Table) -> list[str]:
        """Notes on values that were not seen in training."""
        return _filled(self, table, np.isnan(self._numbers(table)))

    def words(self) -> str:
        if self.style.plain:
            return "number"
        signs = [f"{self.style.group!r} between thousands"] if self.style.group else []
        signs += ["a decimal comma"] if self.style.point == "," else []
        signs += [f"in {self.style.unit}"] if self.style.unit else []
        return f"number ({', '.join(signs) or 'as people write them'})"

    def _numbers(self, table: Table) -> np.ndarray:
        return table.numbers(self.name, self.style, self.missing)


@dataclass(frozen=True)
class DateColumn:
    """order : of day, month and year in texts, or "time" for times of the day.
    parts : some of `moments.PARTS`.
    fill, marked : as for numbers; `fill` is in days since 1970.
    missing : texts that counted as missing in training."""

    name: str
    order: str
    parts: tuple[str, ...]
    fill: float | None
    marked: bool
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        return [*(f"{self.name}: {part}" for part in self.parts), *_mark(self)]

    def encode(self, table: Table) -> np.ndarray:
        days = self.days(table)
        missing = _checked(self, table, np.isnan(days))
        if self.fill is not None:
            days = np.where(missing, self.fill, days)
        parts = [part_of(days, part) for part in self.parts]
        return np.column_stack([*parts, missing] if self.marked else parts)

    def surprises(self, table: Table) -> list[str]:
        """Notes on values that were not seen in training."""
        return _filled(self, table, np.isnan(self.days(table)))

    def words(self) -> str:
        if self.order == "time":
            return "time of the day"
        return f"date ({'year, month, day' if self.order == 'ymd' else ' '.join(self._spelled)})"

    @property
    def _spelled(self) -> list[str]:
        return [{"d": "day", "m": "month", "y": "year"}[letter] for letter in self.order]

    def days(self, table: Table) -> np.ndarray:
        """Days since 1970 (n,), NaN where the value is missing."""
        texts = table.texts(self.name)
        known: dict[str | None, float] = {None: np.nan}
        for text in set(texts.tolist()) - {None}:
            days = days_of(text, self.order)
            if days is None and not (text in self.missing or absent(text)):
                row = int(np.argmax(texts == text))
                what = "time" if self.order == "time" else f"date ({self.words()[6:-1]})"
                raise TableError(f"{table.place(self.name, row)}: {short(text)} is not a {what}")
            known[text] = np.nan if days is None else days
        return np.array([known[text] for text in texts.tolist()])


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
        missing = _checked(self, table, table.empty(self.name))
        place: dict[str | None, int] = {text: k for k, text in enumerate(self.categories)}
        place[None] = place.get(self.fill, -1)
        codes = np.array([place.get(text, -1) for text in self.texts(table)], dtype=int)
        encoded = np.zeros((len(table), len(self.features)))
        encoded[np.flatnonzero(codes >= 0), codes[codes >= 0]] = 1.0
        if self.marked:
            encoded[:, -1] = missing
        return encoded

    def surprises(self, table: Table) -> list[str]:
        """Notes on values that were not seen in training."""
        known = {*self.categories, None}
        texts = self.texts(table)
        unseen = {text for text in set(texts.tolist()) if text not in known}
        notes = _filled(self, table, table.empty(self.name))
        if unseen:
            rows = [i for i, text in enumerate(texts) if text in unseen]
            notes.append(
                f"column {self.name!r}: {count(len(rows), 'value')} of categories that training "
                f"did not see, the first is {short(texts[rows[0]])} in row {table.row(rows[0])}; "
                "they count as no category"
            )
        return notes

    def words(self) -> str:
        return f"{len(self.categories)} categories: {listed(self.categories, 5)}"

    @property
    def truths(self) -> bool:
        """Whether the categories are true and false."""
        return {category.casefold() for category in self.categories} == _TRUTHS

    def texts(self, table: Table) -> np.ndarray:
        """The texts of the column. Programs write truths differently: TRUE, true and True are the
        same here."""
        texts = table.texts(self.name)
        if not self.truths:
            return texts
        spelled = {category.casefold(): category for category in self.categories}
        found = [text if text is None else spelled.get(text.casefold(), text) for text in texts]
        return np.array(found, dtype=object)


Column = NumberColumn | DateColumn | CategoryColumn


def _mark(column: Column) -> list[str]:
    return [f"{column.name} is missing"] if column.marked else []


def _checked(column: Column, table: Table, missing: np.ndarray) -> np.ndarray:
    if missing.any() and column.fill is None and not column.marked:
        place = table.place(column.name, int(np.argmax(missing)))
        raise TableError(f"{place}: the value is missing, and missing values are refused")
    return missing


def _filled(column: Column, table: Table, missing: np.ndarray) -> list[str]:
    if column.marked or not missing.any():
        return []
    return [
        f"column {column.name!r}: {count(int(missing.sum()), 'missing value')}, the first in row "
        f"{table.row(int(np.argmax(missing)))}; training had none, so {column.fill!r} is filled in"
    ]


# -- files


def json_of(column: Column) -> dict[str, object]:
    found: dict[str, object] = {**vars(column)}
    if isinstance(column, NumberColumn):
        found["style"] = vars(column.style)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def column_of_json(column: object) -> Column:
    """The column of a model file; ValueError or TypeError if it is not valid. Columns of files
    before version 8 have neither a style nor texts for missing values."""
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        raise ValueError("a column has no name")
    name, marked, fill = column["name"], column.get("marked"), column.get("fill")
    if not isinstance(marked, bool):
        raise ValueError(f"column {name!r}: marked must be true or false")
    if "categories" in column:
        categories = _texts(column["categories"], f"column {name!r}: categories", least=1)
        if fill is not None and fill not in categories:
            raise ValueError(f"column {name!r}: fill is not one of its categories")
        return CategoryColumn(name, categories, fill, marked)
    number = None if fill is None else check_number(fill, f"column {name!r}: fill")
    missing = _texts(column.get("missing", []), f"column {name!r}: missing")
    if "order" in column:
        order, parts = column["order"], _texts(column["parts"], f"column {name!r}: parts", least=1)
        if order not in ORDERS or not set(parts) <= set(PARTS):
            raise ValueError(f"column {name!r}: unknown order or parts of a date")
        return DateColumn(name, order, parts, number, marked, missing)
    return NumberColumn(name, number, marked, _style(name, column.get("style", {})), missing)


def _texts(given: Any, what: str, least: int = 0) -> tuple[str, ...]:
    texts = isinstance(given, list) and all(isinstance(text, str) for text in given)
    if not texts or len(given) < least or len(set(given)) < len(given):
        raise ValueError(f"{what} must be different texts")
    return tuple(given)


def _style(name: str, given: Any) -> Style:
    known = isinstance(given, dict) and given.keys() <= {"point", "group", "unit"}
    if not known or not all(isinstance(text, str) for text in given.values()):
        raise ValueError(f"column {name!r}: style must have the texts point, group and unit")
    style = Style(**given)
    if style.point not in (".", ",") or style.group not in ("", ",", ".", " ", "'"):
        raise ValueError(f"column {name!r}: unknown decimal sign or sign between thousands")
    return style
