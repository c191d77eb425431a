"""What each column of a table becomes, decided by the rows that a model is trained on.

A column holds numbers if all its values are numbers, or nine in ten are and there are many
different ones; dates if all its texts are dates; else categories. Columns that cannot help on other
rows are left out: identifiers, those with a different text in every row or with very many texts,
and those with one value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cvxnn.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn
from cvxnn.tables.encoding import Encoder, reading_notes
from cvxnn.tables.moments import days_of, find_order, useful_parts
from cvxnn.tables.notes import Guess
from cvxnn.tables.numerals import MOSTLY, absent
from cvxnn.tables.table import Table, TableError, count, listed, short

MAX_CATEGORIES = 50  # a column with more different texts is more likely one of names
MANY = 10  # different numbers, beyond which a few other texts do not make a column categories
_LIKE_A_NUMBER = re.compile(r"[^a-z]*\d[^a-z]*", re.IGNORECASE)  # 1_234 and 5-9
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_KEYS = frozenset(("id", "ids", "uid", "uuid", "guid", "rownames", "rowname", "rowid", "index"))
_COUNTERS = frozenset(("no", "nr", "num", "number", "key", "row", "record", "serial", "line"))
_YEARS = (1000, 2200)


@dataclass(frozen=True)
class Choices:
    """What users decide about the columns of a table themselves; see `TableEncoder`."""

    categorical: tuple[str, ...] = ()
    use: tuple[str, ...] = ()
    na: tuple[str, ...] = ()
    impute: bool = True
    max_categories: int = MAX_CATEGORIES
    day_first: bool | None = None


def decide(table: Table, names: Sequence[str], choices: Choices) -> tuple[Encoder, list[str]]:
    """The encoder for some columns of training rows, and notes on what was done to them."""
    table = table.with_missing(choices.na)
    decided = [_decided(table, name, choices) for name in names]
    if not any(column for column, _ in decided):
        # what counts the rows, such as a time, may be all there is to learn from
        counts = tuple(
            name for name in names if table.is_numeric(name) and not set(_words(name)) & _KEYS
        )
        choices = replace(choices, use=(*choices.use, *counts))
        decided = [_decided(table, name, choices) for name in names]
    columns = [column for column, _ in decided if column is not None]
    notes = [note for _, about in decided for note in about]
    if not columns:
        raise TableError(
            f"{table.source} has no column to learn from" + "".join(f"; {n}" for n in notes)
        )
    marked = [column.name for column in columns if column.marked]
    if marked:
        notes.append(f"missing values are filled in and marked: {listed(marked, 8)}")
    encoder = Encoder(tuple(columns), choices.na)
    return encoder, [*notes, *reading_notes(table, encoder.columns)]


def _decided(table: Table, name: str, choices: Choices) -> tuple[Column | None, list[str]]:
    """What a column becomes, None if it is left out, and notes on it."""
    if table.missing(name).all():
        return None, [f"column {name!r} has no values: left out"]
    asked = name in choices.use
    column, notes = _kind(table, name, choices)
    if isinstance(column, CategoryColumn) and not (asked or name in choices.categorical):
        why_not = _why_not_categories(table, column, choices.max_categories)
        if why_not:
            return None, [*notes, f"column {name!r} {why_not}: left out"]
    if _constant(table, column):
        return None, [*notes, f"column {name!r} has only one value: left out"]
    if isinstance(column, NumberColumn) and not asked:
        values = table.numbers(name, column.style, column.missing)
        different = _identifies(name, values[~np.isnan(values)])
        if different:
            return None, [
                *notes,
                Guess(
                    f"column {name!r} looks like an identifier, with {different}: left out; "
                    f"use=[{name!r}] (--use) learns from it"
                ),
            ]
    return column, notes


def _kind(table: Table, name: str, choices: Choices) -> tuple[Column, list[str]]:
    if name in choices.categorical or table.kinds.get(name) in ("category", "boolean"):
        return _categories(table, name, choices), []
    found = table.reading(name)
    if found.wrong is None:
        return _numbers(table, name, choices, ()), []
    dates, notes = _dates(table, name, choices)
    if dates is not None:
        return dates, notes
    stray, notes = _stray(table, name)
    if stray:
        return _numbers(table, name, choices, stray), notes
    return _categories(table, name, choices), _number_like_texts(table, name)


def _numbers(table: Table, name: str, choices: Choices, stray: tuple[str, ...]) -> NumberColumn:
    found = table.reading(name)
    missing = (*found.absent, *stray)
    values = np.sort(found.numbers[~np.isnan(found.numbers)])
    fill = _median(values) if choices.impute and len(values) else None
    marked = bool(choices.impute and len(values) < len(table))
    return NumberColumn(name, fill, marked, found.style, missing)


def _median(values: np.ndarray) -> float:
    """The median of sorted values; a sum might overflow."""
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    return float(low / 2 + high / 2)


def _dates(table: Table, name: str, choices: Choices) -> tuple[DateColumn | None, list[str]]:
    texts = table.texts(name)
    different = [text for text in dict.fromkeys(texts.tolist()) if text is not None]
    found = find_order(different, choices.day_first)
    if found is None:
        return None, []
    missing = tuple(text for text in different if days_of(text, found.order) is None)
    column = DateColumn(name, found.order, (), 0.0, True, missing)
    days = column.days(table)
    there = np.sort(days[~np.isnan(days)])
    marked = bool(choices.impute and len(there) < len(days))
    column = DateColumn(
        name,
        found.order,
        useful_parts(there, found.order),
        _median(there) if choices.impute else None,
        marked,
        missing,
    )
    parts = ", ".join(column.parts)
    example = short(different[0])
    text = (
        f"column {name!r} holds {'times' if found.order == 'time' else 'dates'} and becomes {parts}"
    )
    if found.certain:
        return column, [text]
    other = "month" if found.order == "dmy" else "day"
    return column, [
        Guess(
            f"{text}; {example} is read as {column.words()[6:-1]}: if the {other} comes first, "
            f"give day_first={other == 'day'} (--{other}-first)"
        )
    ]


def _stray(table: Table, name: str) -> tuple[tuple[str, ...], list[str]]:
    """Texts that count as missing because nearly all others of the column are numbers."""
    found = table.reading(name)
    different = np.unique(found.numbers[~np.isnan(found.numbers)])
    if found.share < MOSTLY or len(different) <= MANY or found.wrong is None:
        return (), []
    values = table.texts(name)
    bad = [
        text
        for text, number in zip(values.tolist(), found.numbers, strict=True)
        if text is not None and np.isnan(number) and not absent(text)
    ]
    stray = tuple(dict.fromkeys(bad))
    return stray, [
        Guess(
            f"column {name!r} is read as numbers, {100 * found.share:.3g} % of its values are; "
            f"others count as missing: {short(stray[0])} in row {table.row(found.wrong)}"
            + (f" and {count(len(bad) - 1, 'more value')}" if len(bad) > 1 else "")
            + f"; categorical=[{name!r}] (--categorical) keeps them as categories"
        )
    ]


def _categories(table: Table, name: str, choices: Choices) -> CategoryColumn:
    counts = Counter(text for text in table.texts(name).tolist() if text is not None)
    marked = bool(choices.impute and table.empty(name).any())
    # the most frequent category; of equally frequent ones, the first in the alphabet
    fill = None
    if choices.impute and not marked:
        fill = min(counts, key=lambda text: (-counts[text], text))
    return CategoryColumn(name, tuple(sorted(counts)), fill, marked)


def _number_like_texts(table: Table, name: str) -> list[str]:
    """A note on a text column in which some texts look like numbers."""
    texts = {text for text in table.texts(name).tolist() if text is not None}
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
    kinds, values = len(column.categories), int(np.sum(~table.empty(column.name)))
    if kinds == values > 2:
        return "has a different text in every row"
    return "" if kinds <= max_categories else f"has {kinds} different texts"


def _constant(table: Table, column: Column) -> bool:
    if column.marked:
        return False
    if isinstance(column, CategoryColumn):
        return len(column.categories) == 1
    values = (
        table.numbers(column.name, column.style, column.missing)
        if isinstance(column, NumberColumn)
        else column.days(table)
    )
    there = values[~np.isnan(values)]
    return bool(there.min() == there.max())


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _identifies(name: str, values: np.ndarray) -> str:
    """What makes numbers look like keys of the rows rather than measurements, in words; empty if
    nothing does. Years count rows, too, and are not keys."""
    if len(values) < MANY or not np.all(values == np.round(values)):
        return ""
    different = np.unique(values)
    if len(different) < MANY:
        return ""
    words = set(_words(name))
    all_different = len(different) == len(values)
    dense = np.ptp(different) < 1.5 * len(different)
    years = _YEARS[0] <= different[0] and different[-1] <= _YEARS[1] and not words & _KEYS
    if all_different and dense and not years:
        return "whole numbers that count the rows"
    if words & _KEYS and (all_different or len(different) > MAX_CATEGORIES):
        return f"{len(different):,} different whole numbers"
    if words & _COUNTERS and all_different:
        return "a different whole number in every row"
    return ""
