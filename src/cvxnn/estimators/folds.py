"""The rows of cross-validation: which are trained on, and which are tested.

A row goes into one fold with its whole weight. Equal rows may go into different folds: in a table
whose rows repeat, new rows will repeat training rows as well, and the folds should show that.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sklearn.model_selection import StratifiedKFold, check_cv

from cvxnn.estimators.rows import Rows
from cvxnn.estimators.targets import predicted_classes

if TYPE_CHECKING:
    from sklearn.model_selection import BaseCrossValidator

Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # the rows to train on, and those to test on
Folds: TypeAlias = "int | BaseCrossValidator | Iterable[Split] | None"


def default_splits(rows: Rows, n_folds: int, seed: int | None, stratified: bool) -> Iterator[Split]:
    """Shuffled folds, stratified by class for a classifier. Rows whose class would be missing from
    the training rows are trained on, not tested.

    Rows are sorted by content before they are shuffled, so that folds do not depend on the order in
    which the rows were given.
    """
    order = rows.in_order()
    labels = np.zeros(len(order), dtype=int)
    if stratified:
        labels = predicted_classes(rows.Y[order])
    n_folds = min(n_folds, int(np.bincount(labels).max()), len(order))
    if n_folds < 2:
        warnings.warn(
            "too few rows for folds: alpha is chosen by the training rows themselves",
            UserWarning,
            stacklevel=7,
        )
        yield order, order
        return
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = list(splitter.split(np.zeros(len(order)), labels))
    for train, test in splits:
        lost = ~np.isin(labels[test], labels[train])
        yield order[np.concatenate([train, test[lost]])], order[test[~lost]]


def own_splits(
    cv: BaseCrossValidator | Iterable[Split], rows: Rows, y: np.ndarray
) -> Iterator[Split]:
    """The folds of a user's splitter, which sees the rows as they were given."""
    for train, test in check_cv(cv).split(rows.X, y):
        train, test = np.asarray(train), np.asarray(test)
        yield train[rows.weight[train] > 0], test[rows.weight[test] > 0]
