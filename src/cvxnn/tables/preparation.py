"""From a table to training data: what is predicted, from which features, on which rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from cvxnn.arrays import is_stored, row_blocks
from cvxnn.ranks import Ranks, failing_together
from cvxnn.stored import StoredRows
from cvxnn.tables.columns import NumberColumn
from cvxnn.tables.encoding import Encoder, reading_notes
from cvxnn.tables.notes import Guess
from cvxnn.tables.numerals import is_number
from cvxnn.tables.shards import ShardedTable
from cvxnn.tables.spilling import encoded_rows
from cvxnn.tables.table import Table, TableError, count, listed, number_text, short
from cvxnn.tables.transformer import TableEncoder
from cvxnn.validation import check_choice, check_integer, check_number

TASKS = ("classification", "regression")
LABELS = ("text", "number", "boolean")
MAX_CLASSES = 10  # up to so many different whole numbers are classes, unless the task is given
TRAINED, HELD_OUT, LEFT_OUT = 0, 1, 2  # what became of a row
_FINGERS = 20_000  # rows that are hashed at a time

Part = tuple[Any, np.ndarray, np.ndarray | None]  # features, targets, weights


@dataclass(frozen=True)
class Target:
    """What is predicted.

    name : the name of the column.
    weight : the name of the column of sample weights, if there is one.
    classes : the labels as texts, or None for a regression.
    labels : what the labels were in the table, one of `LABELS`.
    """

    name: str
    classes: tuple[str, ...] | None
    weight: str | None = None
    labels: str = "text"

    @property
    def task(self) -> str:
        return TASKS[0] if self.classes is not None else TASKS[1]

    def values(self, table: Table) -> np.ndarray:
        """Labels or numbers; a row without one is an error."""
        if self.classes is None:
            return table.numbers(self.name)
        labels = _labels(table, self.name)
        unknown = set(labels.tolist()) - set(self.classes)
        if unknown:
            i = next(i for i, label in enumerate(labels) if label in unknown)
            label = labels[i]
            what = "the label is missing" if label is None else f"{label!r} is not a known label"
            raise TableError(f"{table.place(self.name, i)}: {what}")
        return labels.astype(str)

    def restored(self, labels: np.ndarray) -> np.ndarray:
        """Labels as they were in the table: numbers and truths again, where they were some."""
        if self.labels == "boolean":
            return np.array([text == "True" for text in labels], dtype=bool)
        if self.labels == "text":
            return labels
        numbers = labels.astype(np.float64)
        whole = np.all(np.abs(numbers) < 2**53) and np.all(numbers == np.round(numbers))
        return numbers.astype(np.int64) if whole else numbers

    def weights(self, table: Table) -> np.ndarray | None:
        return None if self.weight is None else _weights(table, self.weight)

    @classmethod
    def from_json(cls, target: Mapping[str, object]) -> Target:
        """The target of a model file; ValueError or the like if it is not valid."""
        name, weight, classes = target["name"], target["weight"], target["classes"]
        if not isinstance(name, str) or not isinstance(weight, str | None):
            raise ValueError("the target and its weight must have names")
        if classes is None:
            return cls(name, None, weight)
        if not isinstance(classes, list) or not all(isinstance(label, str) for label in classes):
            raise ValueError("classes must be texts")
        if len(classes) < 2 or classes != sorted(set(classes)):
            raise ValueError("classes must be at least two texts, in order")
        labels = check_choice(target.get("labels", LABELS[0]), "labels", LABELS)
        if labels == "number" and not all(map(is_number, classes)):
            raise ValueError("labels are said to be numbers, and are not")
        return cls(name, tuple(classes), weight, labels)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features, targets and weights of the rows with a target, and what became of every row.

    rows : (n,) of the table, TRAINED, HELD_OUT or LEFT_OUT; the other arrays have no rows that
        were left out, and where several processes share the rows, those of this one.
    notes : what was done to the data, in words.
    here : which rows of the table this process has, if not all.
    ranks : the processes that have the others.
    """

    X: np.ndarray | StoredRows
    y: np.ndarray
    weights: np.ndarray | None
    rows: np.ndarray
    encoder: Encoder
    target: Target
    notes: tuple[str, ...]
    here: np.ndarray | None = None
    ranks: Ranks | None = None

    @classmethod
    def of(
        cls,
        given: Table | ShardedTable,
        target: str,
        task: str | None,
        weight: str | None,
        holdout: float,
        seed: int,
        encoder: TableEncoder,
    ) -> TrainingData:
        """Prepare the rows of a table. `encoder` says what users decide about its columns."""
        sharded = given if isinstance(given, ShardedTable) else None
        table = given.whole if isinstance(given, ShardedTable) else given
        if task is not None:
            check_choice(task, "task", TASKS)
        check_number(holdout, "holdout", minimum=0, maximum=1, strict_maximum=True)
        check_integer(seed, "seed", minimum=0)
        encoder.check(table)
        for column, what in ((target, "target"), (weight, "weight")):
            if not isinstance(column, str) and not (column is None and what == "weight"):
                got = repr(column)
                if getattr(column, "shape", ()):
                    got = f"values ({type(column).__name__}): put them into the table"
                raise TypeError(f"{what} must be the name of one column, got {got}")
        without = (target, *([] if weight is None else [weight]))
        for one in without:
            table.check_name(one)
        if weight == target:
            raise TableError(f"{table.source}, column {target!r} is both target and weight")
        for name, what in ((target, "the target"), (weight, "the weight")):
            for option in ("drop", "categorical", "use"):
                if name in getattr(encoder, option):
                    raise TableError(
                        f"{table.source}, column {name!r} is {what} and cannot be given as "
                        f"{option} as well"
                    )
        encoder.names(table, without)
        table = table.with_missing(encoder.words)
        left_out, notes = _left_out(table, target, weight)
        present = table.select(~left_out)
        aim = _target(present, target, weight, task)
        y, weights = aim.values(present), aim.weights(present)
        held_out = _held_out(y, holdout, seed, aim.classes is not None)
        # made from the training rows alone, so that the held-out rows are new to the model
        training = present.select(~held_out)
        found, about = encoder.learn(training, without)
        notes += _about_target(present, aim, task is None)
        rows = np.full(len(table), LEFT_OUT)
        rows[~left_out] = np.where(held_out, HELD_OUT, TRAINED)
        everything = (*table.notes, *notes, *about)
        if sharded is None:
            X = encoded_rows(found, present) if table.in_files else found.encode(present)[0]
            return cls(X, y, weights, rows, found, aim, everything)
        here = sharded.places
        mine = here[~left_out[here]]  # and their places among the rows that are present
        own = np.cumsum(~left_out)[mine] - 1
        with failing_together(sharded.ranks):
            local = sharded.local.with_missing(encoder.words)
            if left_out.any():
                local = local.select(~left_out[here])
            X = found.encode(local)[0]
        weights = None if weights is None else weights[own]
        return cls(X, y[own], weights, rows, found, aim, everything, here, sharded.ranks)

    def part(self, which: int) -> Part:
        rows = self.rows if self.here is None else self.rows[self.here]
        chosen = rows[rows != LEFT_OUT] == which
        weights = None if self.weights is None else self.weights[chosen]
        X = self.X.select(chosen) if is_stored(self.X) and not chosen.all() else self.X
        return X if is_stored(X) else X[chosen], self.y[chosen], weights


def _about_target(table: Table, target: Target, guessed: bool) -> list[str]:
    if target.classes is None:
        style = table.reading(target.name).style
        return reading_notes(table, [NumberColumn(target.name, None, False, style)])
    labels, counts = np.unique(target.values(table), return_counts=True)
    rare = [str(label) for label in labels[counts == 1]]
    notes: list[str] = []
    if guessed and len(labels) > 2 and table.is_numeric(target.name):
        notes.append(
            Guess(
                f"{target.name!r} has {len(labels)} different whole numbers, which are taken as "
                f"{len(labels)} classes; task='regression' (--task regression) predicts a number"
            )
        )
    if rare:
        notes.append(
            f"labels with a single row, too few to learn from or to test on: {listed(rare, 8)}"
        )
    return notes


def _left_out(table: Table, target: str, weight: str | None) -> tuple[np.ndarray, list[str]]:
    """Which rows cannot be learned from, and notes on them."""
    reasons = {f"{target!r} is missing": table.missing(target)}
    if weight is not None:
        reasons[f"the weight {weight!r} is 0"] = _weights(table, weight) == 0
    notes = [
        f"{count(int(rows.sum()), 'row')} left out because {reason}, the first is row "
        f"{table.row(int(np.argmax(rows)))}"
        for reason, rows in reasons.items()
        if rows.any()
    ]
    left_out = np.any(list(reasons.values()), axis=0)
    if np.sum(~left_out) < 2:
        found = count(int(np.sum(~left_out)), "row")
        short_of = f"{table.source} has {found} to learn from, and needs at least 2"
        raise TableError("; ".join([short_of, *notes]))
    return left_out, notes


def _weights(table: Table, name: str) -> np.ndarray:
    weights = table.numbers(name)
    bad = np.flatnonzero(~(weights >= 0))
    if len(bad):
        value = weights[bad[0]]
        what = "the weight is missing" if np.isnan(value) else f"{value:g} is not a weight"
        raise TableError(f"{table.place(name, bad[0])}: {what}; weights must be >= 0")
    return weights


def _labels(table: Table, name: str) -> np.ndarray:
    """Labels as texts. Numbers are all written in the same way, so that 1 and 1.0 are one label."""
    if not table.is_numeric(name) or table.kinds.get(name) == "category":
        return table.texts(name)
    different, owner = np.unique(table.numbers(name), return_inverse=True)
    texts = [None if np.isnan(v) else number_text(v) for v in different]
    return np.array(texts, dtype=object)[owner]


def _target(table: Table, name: str, weight: str | None, task: str | None) -> Target:
    numeric = table.is_numeric(name) and table.kinds.get(name) != "category"
    if task is None:
        dressed = not table.reading(name).style.plain  # labels have no unit
        few = numeric and not dressed and _few_whole_numbers(table.numbers(name))
        task = TASKS[1] if numeric and not few else TASKS[0]
    if task == TASKS[1]:
        table.numbers(name)  # an error if some value is not a number
        return Target(name, None, weight)
    labels = [label for label in _labels(table, name) if label is not None]
    classes = sorted(set(labels))
    if len(classes) < 2:
        raise TableError(
            f"{table.source}, column {name!r} has only one value, {short(classes[0])}: there is "
            "nothing to predict"
        )
    if len(classes) > max(len(labels) / 2, 2):
        raise TableError(
            f"{table.source}, column {name!r} has {len(classes)} different labels in {len(labels)} "
            "rows: too many to learn"
            + (", is it a regression?" if numeric else ", is it the right column?")
        )
    if table.column(name).dtype != object:
        return Target(name, tuple(classes), weight, "number")
    truths = table.kinds.get(name) == "boolean"
    return Target(name, tuple(classes), weight, "boolean" if truths else "text")


def _few_whole_numbers(values: np.ndarray) -> bool:
    distinct = np.unique(values[~np.isnan(values)])
    return len(distinct) <= MAX_CLASSES and bool(np.all(distinct == np.round(distinct)))


def _held_out(y: np.ndarray, share: float, seed: int, stratify: bool) -> np.ndarray:
    """Which rows to hold out: the same share of each class if there are enough rows. At least one
    row of each class is trained on."""
    held_out = np.zeros(len(y), dtype=bool)
    n_test = round(share * len(y))
    if n_test == 0 or n_test > len(y) - 2:
        return held_out
    layers = None
    if stratify:
        _, owner, counts = np.unique(y, return_inverse=True, return_counts=True)
        if counts.min() >= 2 and min(n_test, len(y) - n_test) >= len(counts):
            layers = owner
    _, test = train_test_split(
        np.arange(len(y)), test_size=n_test, random_state=seed, stratify=layers
    )
    held_out[test] = True
    if stratify:
        held_out &= np.isin(y, y[~held_out])
    return held_out


def fingerprint_of(X: Any, y: np.ndarray, weights: np.ndarray | None) -> str:
    digest = hashlib.sha256()
    for _, rows in row_blocks(X, _FINGERS):
        digest.update(np.ascontiguousarray(rows).tobytes())
    digest.update("\0".join(map(str, y.tolist())).encode())
    digest.update(b"" if weights is None else np.ascontiguousarray(weights).tobytes())
    return digest.hexdigest()
