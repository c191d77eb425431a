"""The command that trains a model again, from what its file says about it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import click
import numpy as np

from cvxnn.cli import main
from cvxnn.cli.options import GENERATE
from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.tables.encoding import CategoryColumn
from cvxnn.tables.model import Model
from cvxnn.tables.preparation import HELD_OUT, TRAINED
from cvxnn.tables.table import Table

# Parameters of estimators that are options, under their names there.
_PARAMETERS = {
    "n_components": "--components",
    "tol": "--tol",
    "random_state": "--seed",
    "cv": "--folds",
    "rule": "--rule",
    "max_seconds": "--max-seconds",
}


def command_of(model: Model, table: Table) -> str | None:
    """`cvxnn fit` with the options that differ from its defaults; None for a model that the command
    cannot train, such as an improved one, or one with parameters that it has no options for.
    Columns that the model does not use are ignored by name."""
    if any(note.startswith("improved: ") for note in model.notes):
        return None
    options = [*_of_the_table(model, table), *_of_the_estimator(model)]
    defaults = {
        option.opts[-1]: option.default
        for option in main.commands["fit"].params
        if isinstance(option, click.Option)
    }
    words = ["cvxnn", "fit", table.source, "--target", model.target.name]
    for name, value in options:
        if name not in defaults:
            return None
        if value is True:
            words.append(name)
        elif str(value) != str(defaults[name]):
            words += [name, str(value)]
    return _join(words)


def _join(words: list[str]) -> str:
    """For the shell, an option a line where one line is too long."""
    if sys.platform == "win32":
        return " ".join(f'"{word}"' if " " in word else word for word in words)
    text = shlex.join(words)
    if len(text) <= 80:
        return text
    quoted = [shlex.quote(word) for word in words]
    lines, line = [], ""
    for word in quoted:
        if word.startswith("--") and line:
            lines.append(line)
            line = "    " + word
        else:
            line = f"{line} {word}" if line else word
    return " \\\n".join([*lines, line])


def _of_the_table(model: Model, table: Table) -> Iterator[tuple[str, object]]:
    kind = "gated" if "Gated" in type(model.estimator).__name__ else "relu"
    yield "--model", kind
    yield "--task", model.task
    if model.target.weight is not None:
        yield "--weight", model.target.weight
    columns = model.encoder.columns
    used = {column.name for column in columns} | {model.target.name, model.target.weight}
    for name in table.names:
        if name not in used:
            yield "--ignore", name
    kinds = [len(c.categories) for c in columns if isinstance(c, CategoryColumn)]
    yield "--max-categories", max([50, *kinds])
    if all(column.fill is None and not column.marked for column in columns):
        yield "--missing", "refuse"
    yield "--holdout", _share(model.rows)


def _share(rows: np.ndarray) -> float:
    """A share, with as few digits as possible, by which as many rows are held out."""
    n, held_out = int(np.sum(rows <= HELD_OUT)), int(np.sum(rows == HELD_OUT))
    assert TRAINED < HELD_OUT
    for digits in range(1, 17):
        share = round(held_out / n, digits)
        if round(share * n) == held_out:
            return share
    return held_out / n


def _of_the_estimator(model: Model) -> Iterator[tuple[str, object]]:
    estimator = model.estimator
    parameters = estimator.get_params()
    plain = type(estimator)().get_params()
    generated = parameters.pop("patterns") == GENERATE
    yield "--patterns", GENERATE if generated else parameters["n_patterns"]
    if generated and parameters["prove"]:
        yield "--prove", True
    if not isinstance(estimator, CrossValidated):
        yield "--alpha", estimator.alpha_
    for name in ("n_patterns", "prove", "alpha", "n_jobs", "verbose", "max_memory", "warm_start"):
        parameters.pop(name, None)  # told already, or without effect on the result
    for name, value in parameters.items():
        if name == "cv" and value is None:
            value = 5
        if name in _PARAMETERS:
            if value is not None:
                yield _PARAMETERS[name], value
        elif repr(value) != repr(plain[name]):
            yield name, value  # no option of the command
