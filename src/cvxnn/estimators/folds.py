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

from cvxnn.arrays import Matrix
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.targets import predicted_classes
from cvxnn.ranks import Ranks, failing_together

if TYPE_CHECKING:
    from sklearn.model_selection import BaseCrossValidator

Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # the rows to train on, and those to test on
Folds: TypeAlias = "int | BaseCrossValidator | Iterable[Split] | None"


def default_splits(rows: Rows, n_folds: int, seed: int | None, stratified: bool) -> Iterator[Split]:
    """Shuffled folds, stratified by class for a classifier. Rows whose class would be missing from
    the training rows are trained on, not tested.

    Rows are sorted by content before they are shuffled, so that folds do not depend on the order in
    which the rows were given; rows in files or in several processes stay in their order. Folds are
    those of the rows of all ranks, and what comes back is the part of them that is here.
    """
    order = rows.in_order()
    labels = np.zeros(len(order), dtype=np.int32)
    if stratified:
        labels = predicted_classes(rows.Y[order]).astype(np.int32)
    here, labels = _joined(labels, rows.across)
    n_folds = min(n_folds, int(np.bincount(labels).max()))
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
        tested_in = np.zeros(len(labels), dtype=np.int32)  # folds as index arrays are large
        for k, (_, test) in enumerate(splitter.split(np.zeros(len(labels)), labels)):
            tested_in[test] = k
    for k in range(n_folds):
        test = tested_in == k
        lost = test & ~np.isin(labels, labels[~test])
        train, test, lost = ~test[here], (test & ~lost)[here], lost[here]
        yield np.concatenate([order[train], order[lost]]), order[test]


def own_splits(
    cv: BaseCrossValidator | Iterable[Split], rows: Rows, y: np.ndarray
) -> Iterator[Split]:
    """The folds of a user's splitter, which sees the rows as they were given. Where they are in
    several processes, it is that of rank 0, and sees their targets and their number alone."""
    across = rows.across
    here, y = _joined(y, across)
    with failing_together(across):
        splits: list[Split] = []
        if across.rank == 0:
            X = rows.X if across.size == 1 else np.empty((len(y), 0))
            splits = [(np.asarray(a), np.asarray(b)) for a, b in _splits(cv, X, y)]
    for train, test in across.gather(splits)[0]:
        if across.size > 1:
            train, test = _own(train, here), _own(test, here)
        yield train[rows.weight[train] > 0], test[rows.weight[test] > 0]


def _splits(cv: BaseCrossValidator | Iterable[Split], X: Matrix, y: np.ndarray) -> Iterator[Split]:
    try:
        yield from check_cv(cv).split(X, y)
    except ValueError as error:
        if "'groups' parameter should not be None" not in str(error):
            raise
        raise ValueError(
            f"{type(cv).__name__} needs groups, and fit takes none: give its folds, "
            f"cv=list({type(cv).__name__}(...).split(X, y, groups))"
        ) from error


def _own(index: np.ndarray, here: slice) -> np.ndarray:
    """Those of the rows of all ranks that are here, by their places here."""
    return index[(here.start <= index) & (index < here.stop)] - here.start


def _joined(values: np.ndarray, across: Ranks) -> tuple[slice, np.ndarray]:
    """The values of all ranks, and where those of this one are."""
    parts = across.gather(values)
    start = sum(len(part) for part in parts[: across.rank])
    return slice(start, start + len(values)), np.concatenate([part for part in parts if len(part)])
