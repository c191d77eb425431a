"""The command that trains a model again, from what its file says about it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace

import click
import numpy as np

from cvxnn.cli import main
from cvxnn.cli.options import GENERATE
from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.tables.columns import CategoryColumn, Column, DateColumn
from cvxnn.tables.deciding import Choices, decide
from cvxnn.tables.model import Model
from cvxnn.tables.preparation import HELD_OUT, TRAINED
from cvxnn.tables.table import Table, TableError

# Parameters of estimators that are options, under their names there.
_PARAMETERS = {
    "n_components": "--components",
    "tol": "--tol",
    "random_state": "--seed",
    "cv": "--folds",
    "rule": "--rule",
    "ensemble": "--ensemble",
    "max_seconds": "--max-seconds",
}


def command_of(model: Model, table: Table) -> str | None:
    """`cvxnn fit` with the options that differ from its defaults; None for a model that the command
    cannot train, such as an improved one, or one with parameters that it has no options for."""
    choices = _choices(model, table)
    if choices is None or any(note.startswith("improved: ") for note in model.notes):
        return None
    options = [*_of_the_table(model), *choices, *_of_the_estimator(model)]
    defaults = {
        name: option.default
        for option in main.commands["fit"].params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
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


def _of_the_table(model: Model) -> Iterator[tuple[str, object]]:
    yield "--model", "gated" if "Gated" in type(model.estimator).__name__ else "relu"
    yield "--task", model.task
    if model.target.weight is not None:
        yield "--weight", model.target.weight
    yield "--holdout", _share(model.rows)


def _choices(model: Model, table: Table) -> list[tuple[str, object]] | None:
    """The options about columns: where those of the model are not what would be decided without
    any. None if no options lead to them."""
    own = {column.name: column for column in model.encoder.columns}
    training = table.select(model.rows == TRAINED)
    names = [n for n in table.names if n not in (model.target.name, model.target.weight)]
    filled = any(column.fill is not None or column.marked for column in own.values())
    choices = Choices(na=model.encoder.na, impute=filled)
    try:
        usual = {column.name: column for column in decide(training, names, choices)[0].columns}
        asked = [_asked(column, usual.get(name), training) for name, column in own.items()]
        options = [option for option in asked if option is not None]
        choices = replace(
            choices,
            categorical=tuple(str(name) for what, name in options if what == "--categorical"),
            use=tuple(str(name) for what, name in options if what == "--use"),
            day_first=next((w == "--day-first" for w, _ in options if "-first" in w), None),
        )
        dropped = [name for name in usual if name not in own]
        kept = [name for name in names if name not in dropped]
        if decide(training, kept, choices)[0] != model.encoder:
            return None
    except TableError:
        return None
    return [
        *(("--drop", name) for name in dropped),
        *options,
        *(("--na", text) for text in model.encoder.na),
        *([] if filled else [("--missing", "refuse")]),
    ]


def _asked(own: Column, usual: Column | None, training: Table) -> tuple[str, object] | None:
    """What was asked for a column that is not what it would be."""
    if own == usual:
        return None
    if isinstance(own, DateColumn) and isinstance(usual, DateColumn):
        return ("--day-first" if own.order == "dmy" else "--month-first"), True
    if isinstance(own, CategoryColumn) and (usual or training.is_numeric(own.name)):
        return "--categorical", own.name
    return "--use", own.name


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
    told = ("n_patterns", "prove", "alpha", "categorical_features")  # tables encode by themselves
    idle = ("n_jobs", "verbose", "max_memory", "warm_start")  # without effect on the result
    for name in (*told, *idle):
        parameters.pop(name, None)
    for name, value in parameters.items():
        if name == "cv" and value is None:
            value = 5
        if name in _PARAMETERS:
            if value is not None:
                yield _PARAMETERS[name], value
        elif repr(value) != repr(plain[name]):
            yield name, value  # no option of the command
