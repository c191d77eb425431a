"""What estimators are given that is not numbers: errors that name the columns and say what to do.

Good rows are not looked at twice: the columns are searched once scikit-learn has refused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.validation import is_missing

_MOST = 8  # columns that a message names
_INSTEAD = "cvxnn.TableEncoder makes numbers of them, and cvxnn.Model.fit takes tables as they are"


def targets_array(y: ArrayLike) -> np.ndarray:
    """Targets as an array; lists of labels of different lengths are refused."""
    try:
        return np.asarray(y)
    except ValueError as error:
        raise ValueError(
            "y has rows of different lengths: a row has one label, or as many numbers as the "
            "others; sklearn.preprocessing.MultiLabelBinarizer makes columns of sets of labels"
        ) from error


def check_targets_given(y: ArrayLike, *, numbers: bool) -> None:
    """Refuse targets of which some are missing, and texts where `numbers` are expected."""
    values = targets_array(y)
    texts = _not_numbers(values.ravel()) if numbers and values.dtype.kind in "OUS" else ""
    if texts:
        raise ValueError(f"y holds {texts}: a regression predicts numbers, a classifier labels")
    if values.dtype.kind not in "fcOmM" or values.ndim == 0:
        return
    if values.dtype.kind == "O":
        missing = np.array([is_missing(value) for value in values.ravel()], dtype=bool)
    else:
        missing = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    rows = np.flatnonzero(missing.reshape(len(values), -1).any(axis=1))
    if len(rows):
        raise ValueError(
            f"y is missing (None or NaN) in {len(rows)} of {len(values)} rows, the first is row "
            f"{rows[0]} counted from 0: leave these rows out of X and y; cvxnn.Model.fit does so "
            "by itself"
        )


@contextmanager
def explaining(X: Any) -> Iterator[None]:
    """Say which columns of X are not numbers, where that is why they are refused. Dates are always
    refused: scikit-learn takes a table of nothing but dates for nanoseconds."""
    if any(_is_time(kind) for kind in _kinds(X)):
        raise ValueError(_reason(X))
    try:
        yield
    except (TypeError, ValueError) as error:
        reason = _reason(X)
        if not reason:
            raise
        raise ValueError(reason) from error


def _kinds(X: Any) -> list[str]:
    """The types of the columns of a frame, or that of an array."""
    if hasattr(X, "columns"):
        return [str(kind).lower() for kind in getattr(X, "dtypes", ())]
    return [str(X.dtype)] if isinstance(X, np.ndarray) else []


def _is_time(kind: str) -> bool:
    return kind.startswith(("date", "time", "duration"))


def _reason(X: Any) -> str:
    """Which columns hold text, dates or missing values; empty if none does."""
    texts, missing = [], []
    for name, values in _columns(X):
        if values.dtype.kind in "fiub":
            absent = np.isnan(values).sum() if values.dtype.kind == "f" else 0
        else:
            there = [value for value in values.astype(object) if not is_missing(value)]
            absent = len(values) - len(there)
            what = "dates" if values.dtype.kind in "mM" else _not_numbers(there)
            if what:
                texts.append(f"column {name} holds {what}")
        if absent:
            missing.append(f"{name} ({absent})")
    if texts:
        return f"X must be numbers, but {_listed(texts)}: {_INSTEAD}"
    if missing:
        return (
            f"X has missing values (NaN) in {_listed(missing)}: fill them in, as "
            "sklearn.impute.SimpleImputer or cvxnn.TableEncoder do, or leave these rows out"
        )
    return ""


def _columns(X: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of a frame or of dense rows, with what messages call them."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for j, name in enumerate(X.columns):
            yield repr(name), np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[name])
    elif not hasattr(X, "tocsr"):
        rows = np.asarray(X, dtype=None if isinstance(X, np.ndarray) else object)
        if rows.ndim == 2:
            yield from ((str(j), column) for j, column in enumerate(rows.T))


def _not_numbers(values: Iterable[object]) -> str:
    """What values hold beside numbers and texts that are some; empty if nothing is known of it."""
    for value in values:
        if isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64):
            return "dates"
        if isinstance(value, str | bytes):
            try:
                float(value)
            except ValueError:
                return f"text such as {value[:40]!r}"
    return ""


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    return ", ".join(parts[:_MOST]) + more
