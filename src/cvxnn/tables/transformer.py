"""`TableEncoder`: columns of tables as features, as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cvxnn.tables.deciding import MAX_CATEGORIES, Choices, decide
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.frames import as_table, is_frame
from cvxnn.tables.notes import warn_about_guesses
from cvxnn.tables.table import Table, TableError
from cvxnn.validation import check_flag, check_integer

if TYPE_CHECKING:
    from sklearn.utils import Tags


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of a table as numbers: texts, categories, booleans, dates, missing values.

    It is the encoder of `Model` and of the command line. Tables are frames of pandas, Polars or
    PyArrow, `cvxnn.Table`, or arrays. Numbers stay as they are, also where they are written as
    73.3%, $772.93 or 1,306,178; dates become days since 1970 and what recurs in them; texts
    become categories, with a column of 0 and 1 for each. Missing values are filled in with the
    median or the most frequent category, and marked in a further column if the training rows had
    any. Columns that look like identifiers, and those with a different text in every row, are left
    out, and `notes_` says so.

    Parameters
    ----------
    drop : names of columns to leave out.
    categorical : names of columns whose values are categories even if they are numbers.
    use : names of columns to learn from although they would be left out.
    na : further texts or numbers that stand for missing values, such as -999.
    impute : fill in missing values; otherwise they are an error.
    max_categories : columns with more different texts are left out.
    day_first : whether 01/02/2003 is in February; None to decide by the other dates of the column,
        and if they leave it open to take the month first.

    Attributes
    ----------
    encoder_ : what was decided, as data; a model file holds it.
    notes_ : what was done to the columns, in words.
    n_features_in_, feature_names_in_ : of the table that it was fitted on.
    """

    encoder_: Encoder
    notes_: tuple[str, ...]

    def __init__(
        self,
        *,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        use: Sequence[str] = (),
        na: Sequence[str | float] = (),
        impute: bool = True,
        max_categories: int = MAX_CATEGORIES,
        day_first: bool | None = None,
    ) -> None:
        self.drop = drop
        self.categorical = categorical
        self.use = use
        self.na = na
        self.impute = impute
        self.max_categories = max_categories
        self.day_first = day_first

    def fit(self, X: Any, y: object = None) -> TableEncoder:
        """Decide what the columns of X become; y is not used."""
        table = self._read(X, reset=True)
        self.encoder_, notes = self.learn(table)
        self.notes_ = (*table.notes, *notes)
        warn_about_guesses(notes)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features (n, k) of a table, whose columns may be in any order and among others."""
        check_is_fitted(self)
        features, notes = self.encoder_.encode(self._read(X, reset=False))
        warn_about_guesses(notes)
        return features

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the features: price, city=Rome, price is missing."""
        check_is_fitted(self)
        return np.array(self.encoder_.features, dtype=object)

    def learn(self, table: Table, without: Sequence[str] = ()) -> tuple[Encoder, list[str]]:
        """The encoder for training rows, and notes on what was done to them. `without` are columns
        that are no features, such as the target."""
        self.check(table)
        choices = Choices(
            tuple(self.categorical),
            tuple(self.use),
            self.words,
            self.impute,
            self.max_categories,
            self.day_first,
        )
        return decide(table, self.names(table, without), choices)

    @property
    def words(self) -> tuple[str, ...]:
        """Texts that stand for missing values."""
        return tuple(map(str, self.na))

    def names(self, table: Table, without: Sequence[str] = ()) -> list[str]:
        """The columns that may become features."""
        found = [name for name in table.names if name not in (*without, *self.drop)]
        if not found:
            besides = "".join(f" besides {name!r}" for name in without[:1])
            raise TableError(f"{table.source} has no column to learn from{besides}")
        return found

    def check(self, table: Table) -> None:
        """Refuse parameters that do not fit a table."""
        for what in ("drop", "categorical", "use", "na"):
            given = getattr(self, what)
            if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
                raise TypeError(f"{what} must be a list, got {given!r}")
            for name in given if what != "na" else ():
                table.check_name(name)
                if what != "drop" and name in self.drop:
                    raise TableError(
                        f"{table.source}, column {name!r} is given as drop and as {what}"
                    )
        check_flag(self.impute, "impute")
        check_integer(self.max_categories, "max_categories", minimum=2)
        if self.day_first is not None:
            check_flag(self.day_first, "day_first")

    def _read(self, X: Any, *, reset: bool) -> Table:
        if is_frame(X) or isinstance(X, Table):
            table = as_table(X)
            if reset:
                self.n_features_in_ = len(table.names)
                self.feature_names_in_ = np.array(table.names, dtype=object)
            return table
        finite, rows = "allow-nan", 2 if reset else 1
        return as_table(
            validate_data(
                self, X, dtype=None, ensure_all_finite=finite, ensure_min_samples=rows, reset=reset
            )
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
