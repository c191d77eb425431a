"""Columns whose numbers are codes: each becomes a column of zeros and ones for each of its values.

A code is no quantity, and no linear function of it says "this value". The program is posed on the
encoded columns, and so is its network: a network that takes the codes themselves and does the same
would have another layer. `Categories.encode` is the way from raw rows to the rows of the network.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

LEAST, MOST = 3, 10  # distinct values of a column that may hold codes; two need no encoding
WIDEST = 500  # encoded columns; where there would be more, nobody looks for codes
GLANCE = 1000  # rows that show most quantities to be none
Features: TypeAlias = "str | ArrayLike | None"
_NAMED = 10  # columns that a message names
_ENCODED = (
    "After a cvxnn.TableEncoder, which encodes texts itself, write TableEncoder(categorical=[{!r}])"
)


@dataclass(frozen=True, eq=False)
class Categories:
    """Which columns hold codes, and their values.

    n_features : the number of raw columns.
    columns : their places, in rising order.
    values : for each of them its values in the training rows, in rising order.
    """

    n_features: int
    columns: tuple[int, ...]
    values: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, X: np.ndarray, columns: Sequence[int]) -> Categories:
        places = tuple(sorted(columns))
        return cls(X.shape[1], places, tuple(np.unique(X[:, j]) for j in places))

    @classmethod
    def likely(cls, X: Any, weight: np.ndarray) -> Categories | None:
        """The columns with few distinct values, if there are any, in rows that count. Whether
        their numbers are codes or quantities, only the loss on other rows can say."""
        if not isinstance(X, np.ndarray):
            return None
        rows = X[weight > 0]
        maybe = [j for j in range(X.shape[1]) if len(np.unique(rows[:GLANCE, j])) <= MOST]
        found = cls.of(rows, maybe)
        few = [
            (j, values)
            for j, values in zip(found.columns, found.values, strict=True)
            if LEAST <= len(values) <= MOST
        ]
        width = X.shape[1] + sum(len(values) - 1 for _, values in few)
        if not few or width > WIDEST:
            return None
        return cls(X.shape[1], *zip(*few, strict=True))

    @property
    def scope(self) -> str:
        """What a certificate says of the columns."""
        k = len(self.columns)
        return f" with {k} column{'s' if k > 1 else ''} of categories one-hot encoded"

    def encode(self, X: np.ndarray) -> np.ndarray:
        """Raw rows (n, n_features) as the network takes them: the columns of quantities, then one
        of zeros and ones for each value. A value that no training row has is none of them."""
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, but its shape is {X.shape}")
        shown = [X[:, [j]] == values for j, values in zip(self.columns, self.values, strict=True)]
        return np.column_stack([np.delete(X, self.columns, axis=1), *shown]).astype(np.float64)

    @property
    def origins(self) -> tuple[int, ...]:
        """The raw column that each encoded one comes from."""
        kept = [j for j in range(self.n_features) if j not in self.columns]
        pairs = zip(self.columns, self.values, strict=True)
        return (*kept, *(j for j, values in pairs for _ in values))

    def names(self, raw: Sequence[str] | None) -> list[str] | None:
        """Names of the encoded columns."""
        if raw is None:
            return None
        kept = [name for j, name in enumerate(raw) if j not in self.columns]
        pairs = zip(self.columns, self.values, strict=True)
        return kept + [f"{raw[j]}={value:g}" for j, values in pairs for value in values]


def check_automatic(given: str, *, offered: bool, name: str) -> None:
    """Refuse a text in place of a list of columns, unless it is "auto" and that is offered."""
    if given == "auto" and not offered:
        raise ValueError(
            "categorical_features='auto' compares encodings on folds, which "
            f"{name} does not have: take {name}CV, or a list of columns"
        )
    if given != "auto":
        auto = "'auto', or " if offered else ""
        raise ValueError(
            f"categorical_features must be {auto}a list of columns, not {given!r}: for one column "
            f"write [{given!r}]"
        )


def chosen_columns(given: ArrayLike, n_features: int, names: Sequence[str] | None) -> list[int]:
    """The places of columns that are given by place, by name, or by a mask over all columns."""
    wanted = np.asarray(given)
    if wanted.ndim != 1:
        raise ValueError("categorical_features must be a list of columns, or a mask over all")
    if wanted.size == 0:
        return []
    if wanted.dtype.kind == "b":
        if len(wanted) != n_features:
            raise ValueError(
                f"categorical_features is a mask of {len(wanted)} columns, but X has {n_features}"
            )
        return np.flatnonzero(wanted).tolist()
    if wanted.dtype.kind in "UO":
        return _named_columns(wanted.tolist(), n_features, names)
    if wanted.dtype.kind not in "iu":
        raise ValueError(
            "categorical_features must be names of columns, a mask over all, or places from 0 to "
            f"{n_features - 1}, not {given!r}"
        )
    outside = [place for place in wanted.tolist() if not 0 <= place < n_features]
    if outside:
        raise ValueError(
            f"categorical_features: X has no column {', '.join(map(str, outside))}; its "
            f"{n_features} columns have the places 0 to {n_features - 1}"
        )
    return sorted(set(wanted.tolist()))


def _named_columns(
    wanted: Sequence[str], n_features: int, names: Sequence[str] | None
) -> list[int]:
    if names is None:
        raise ValueError(
            f"categorical_features names columns ({', '.join(map(repr, wanted))}), but X has no "
            f"names of columns: give places from 0 to {n_features - 1}, or a DataFrame. "
            + _ENCODED.format(wanted[0])
        )
    known = list(names)
    missing = [name for name in wanted if name not in known]
    if not missing:
        return sorted({known.index(name) for name in wanted})
    near = difflib.get_close_matches(str(missing[0]), known, n=1)
    some = ", ".join(map(repr, known[:_NAMED])) + (", ..." if len(known) > _NAMED else "")
    message = f"categorical_features: X has no column {', '.join(map(repr, missing))}"
    message += f"; did you mean {near[0]!r}? It has {some}" if near else f"; it has {some}"
    if any(name.startswith(f"{missing[0]}=") for name in known):
        message += ". " + _ENCODED.format(missing[0])
    raise ValueError(message)
