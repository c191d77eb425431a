"""Tables from frames of other libraries: pandas, Polars, PyArrow, and whatever has names of columns
and gives each as an array. That is all a table needs of them, so no library stands in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from numbers import Number
from os import PathLike
from typing import Any, TypeGuard

import numpy as np

from cvxnn.tables.reading import read_table
from cvxnn.tables.table import Table, TableError, number_text, text_or_missing
from cvxnn.validation import is_missing

_DAY = 86400.0


def is_frame(data: object) -> bool:
    """Whether data have named columns, or are rows that name their values."""
    if isinstance(data, Mapping) or hasattr(data, "collect_schema") or _are_rows(data):
        return True
    return hasattr(data, "__getitem__") and (
        hasattr(data, "columns") or hasattr(data, "column_names")
    )


def as_table(data: Any) -> Table:
    """The table of a frame, of a mapping from names to values, of one row or of several as such
    mappings, of the rows of an array, or of a file."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | PathLike):
        return read_table(data)
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a lazy frame of Polars
        data = data.collect()
    one_row = isinstance(data, Mapping) and not hasattr(data, "tocsr")  # as some sparse rows have
    if one_row and not any(map(_is_column, data.values())):
        data = [data]
    if isinstance(data, list | tuple) and not data:
        raise TableError("the table has no rows")
    if _are_rows(data):
        data = _columns_of(data)
    if is_frame(data):
        return _of_frame(data)
    rows = np.asarray(data) if not hasattr(data, "toarray") else None
    if rows is None or rows.ndim != 2:
        raise TypeError(
            "a table is a frame of pandas, Polars or PyArrow, a cvxnn.Table, a dict of columns or "
            "of the values of one row, a list of such rows, a file or an array of two dimensions, "
            f"got {type(data).__name__}" + _about_one_row(data)
        )
    columns = {f"x{k}": rows[:, k] for k in range(rows.shape[1])}
    return _of_columns(columns, {})


def _are_rows(data: object) -> TypeGuard[Sequence[Mapping[Any, object]]]:
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(isinstance(row, Mapping) for row in data)


def _is_column(values: object) -> bool:
    """Whether there may be several values."""
    several = hasattr(values, "__len__") and getattr(values, "ndim", 1) > 0
    return several and not isinstance(values, str | bytes)


def _columns_of(rows: Sequence[Mapping[Any, object]]) -> dict[Any, np.ndarray]:
    """The columns of rows; what a row does not name is missing there."""
    columns = {name: np.full(len(rows), None) for row in rows for name in row}
    for name, values in columns.items():
        for i, row in enumerate(rows):
            values[i] = row.get(name)
    return columns


def _about_one_row(data: object) -> str:
    is_series = hasattr(data, "to_frame") and hasattr(data, "iloc")
    return ": for one row of a frame pass frame.iloc[[0]]" if is_series else ""


def _of_frame(data: Any) -> Table:
    names = list(data) if isinstance(data, Mapping) else _names(data)
    texts = [str(name) for name in names]
    twice = [name for name in dict.fromkeys(texts) if texts.count(name) > 1]
    if twice:
        raise TableError(f"the table has more than one column {twice[0]!r}: rename one of them")
    columns = {text: data[name] for text, name in zip(texts, names, strict=True)}
    declared = {name: "category" for name, values in columns.items() if _is_categorical(values)}
    return _of_columns(columns, declared)


def _names(data: Any) -> list[Any]:
    return list(getattr(data, "column_names", None) or data.columns)


def _is_categorical(values: Any) -> bool:
    kind = str(getattr(values, "dtype", getattr(values, "type", ""))).lower()
    return kind.startswith(("category", "categorical", "enum", "dictionary"))


def _of_columns(columns: Mapping[str, Any], declared: Mapping[str, str]) -> Table:
    found, kinds = {}, dict(declared)
    for name, values in columns.items():
        found[name], kind = _column(name, values)
        if name in declared and found[name].dtype != object:
            texts = [None if np.isnan(v) else number_text(v) for v in found[name]]
            found[name] = np.array(texts, dtype=object)
        elif kind:
            kinds.setdefault(name, kind)
    lengths = {len(values) for values in found.values()}
    if len(lengths) > 1:
        raise TableError(f"the columns of the table have different lengths: {sorted(lengths)}")
    if not found or lengths == {0}:
        raise TableError("the table has no " + ("rows" if found else "columns"))
    return Table(found, kinds=kinds)


def _column(name: str, values: Any) -> tuple[np.ndarray, str]:
    """A column as texts or floats, and its kind if it is a special one."""
    if hasattr(values, "dictionary_decode") or hasattr(values, "combine_chunks"):
        values = np.array(values.to_pylist(), dtype=object)  # PyArrow's own way drops nulls
    array = np.asarray(values)
    if array.ndim == 0:
        raise TableError(
            f"the table, column {name!r}: one value, where other columns have several; give a list"
        )
    if array.ndim != 1:
        raise TableError(f"the table, column {name!r}: values have shape {array.shape[1:]}")
    if array.dtype.kind in "fiu":
        return array.astype(np.float64), ""
    if array.dtype.kind == "m":
        days = array / np.timedelta64(1, "s") / _DAY
        return days.astype(np.float64), ""
    if array.dtype.kind == "M":
        return _moments(array), "date"
    if array.dtype.kind == "c":
        raise TableError(f"the table, column {name!r}: complex numbers cannot be used")
    return _objects(name, array.astype(object))


def _moments(array: np.ndarray) -> np.ndarray:
    """Dates as the texts that a CSV file would have."""
    whole = array.astype("datetime64[D]")
    missing = np.isnat(array)
    unit = "D" if np.all((whole == array) | missing) else "s"
    texts: Any = np.datetime_as_string(array, unit=unit)  # type: ignore[call-overload]
    found = texts.astype(object)
    found[missing] = None
    return found


def _objects(name: str, array: np.ndarray) -> tuple[np.ndarray, str]:
    values = [None if is_missing(value) else value for value in array.tolist()]
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not there:
        return np.array(values, dtype=object), ""
    if all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return _as_texts(values, str), "boolean"
    if all(issubclass(kind, timedelta) for kind in kinds):
        days = [np.nan if v is None else v.total_seconds() / _DAY for v in values]
        return np.array(days), ""
    if all(issubclass(kind, Number) and not issubclass(kind, bool) for kind in kinds):
        if any(issubclass(kind, complex) for kind in kinds):
            raise TableError(f"the table, column {name!r}: complex numbers cannot be used")
        return np.array([np.nan if v is None else _float(v) for v in values]), ""
    if all(issubclass(kind, date | time) for kind in kinds):  # a datetime is a date
        return _as_texts(values, _iso), "date"
    nested = next((v for v in there if isinstance(v, list | tuple | dict | set | np.ndarray)), None)
    if nested is not None:
        raise TableError(
            f"the table, column {name!r}: values of type {type(nested).__name__} cannot be used; "
            "make a column of each part"
        )
    return np.array([None if v is None else _text(v) for v in values], dtype=object), ""


def _as_texts(values: list[Any], write: Any) -> np.ndarray:
    return np.array([None if value is None else write(value) for value in values], dtype=object)


def _text(value: object) -> str | None:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number_text(_float(value))
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text_or_missing(text.strip())


def _float(value: Any) -> float:
    """The nearest float; infinite for whole numbers of Python that are larger than all."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _iso(value: date | time) -> str:
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    return value.isoformat()
