"""A model of a table: a trained estimator, the columns it takes, and what its bounds rest on.

    table -> encoder -> estimator -> predictions, by the names of columns and labels

The file of a model is data: JSON and arrays beside the network (see `modelfile.py`). It holds the
patterns of the convex program and the dual point behind the lower bound, so that the bound can be
checked again on the same rows, and which rows were trained on and which held out.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

import cvxnn
from cvxnn import estimators, modelfile
from cvxnn.certificates import Certificate
from cvxnn.encoding import MAX_CATEGORIES, Encoder
from cvxnn.improvement import improve
from cvxnn.modelfile import Content, ModelFileError
from cvxnn.paths import Path, path
from cvxnn.patterns import Patterns
from cvxnn.problems import ConvexProblem, lambda_max
from cvxnn.pruning import prune
from cvxnn.rows import Rows, Scaling
from cvxnn.solvers import Progress
from cvxnn.tables import Table, TableError, count, number_text, short
from cvxnn.validation import check_choice, check_flag, check_integer, check_number, suggest
from cvxnn.verification import Verification, verify_network

TASKS = ("classification", "regression")
KINDS = ("relu", "gated")
MAX_CLASSES = 10  # different whole numbers that are taken for classes unless told otherwise
_TRAINED, _HELD_OUT, _LEFT_OUT = 0, 1, 2  # what became of a row
_NAMES = {
    (kind, task, cv): f"{prefix}{suffix}{'CV' if cv else ''}"
    for kind, prefix in zip(KINDS, ("ReLU", "GatedReLU"), strict=True)
    for task, suffix in zip(TASKS, ("Classifier", "Regressor"), strict=True)
    for cv in (True, False)
}


@dataclass(frozen=True)
class Target:
    """What is predicted.

    name : of the column.
    weight : the name of the column of sample weights, if there is one.
    classes : the labels as texts, or None for a regression.
    """

    name: str
    classes: tuple[str, ...] | None
    weight: str | None = None

    @property
    def task(self) -> str:
        return TASKS[0] if self.classes is not None else TASKS[1]

    def values(self, table: Table) -> np.ndarray:
        """Labels or numbers; every row has to have one."""
        if self.classes is None:
            return table.numbers(self.name)
        labels = _labels(table, self.name)
        for i, label in enumerate(labels):
            if label not in self.classes:
                what = "the label is missing" if label is None else f"{label!r} is no known label"
                raise TableError(f"{table.place(self.name, i)}: {what}")
        return labels.astype(str)

    def weights(self, table: Table) -> np.ndarray | None:
        return None if self.weight is None else _weights(table, self.weight)

    @classmethod
    def from_json(cls, target: Any) -> Target:
        """The target of a model file; ValueError or the like if it is none."""
        name, weight, classes = target["name"], target["weight"], target["classes"]
        if not isinstance(name, str) or not isinstance(weight, str | None):
            raise ValueError("the target and its weight must have names")
        if classes is None:
            return cls(name, None, weight)
        texts = isinstance(classes, list) and all(isinstance(label, str) for label in classes)
        if not texts or len(classes) < 2 or classes != sorted(set(classes)):
            raise ValueError("classes must be at least two texts, in order")
        return cls(name, tuple(classes), weight)


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with names for its columns and labels.

    Attributes
    ----------
    estimator : fitted; read from a file it has everything but `solution_`.
    encoder : how columns become features.
    target : what is predicted.
    rows : (n,) of the table it came from: 0 trained on, 1 held out, 2 left out.
    fingerprint : of the training rows, to know them again.
    mask, dual : patterns and dual point of the certified program, on distinct training rows.
    scores : by "training" and "held out", the scores by name.
    notes : what was done to the data, in words.
    """

    estimator: Any
    encoder: Encoder
    target: Target
    rows: np.ndarray
    fingerprint: str
    mask: np.ndarray
    dual: np.ndarray
    scores: dict[str, dict[str, float]]
    notes: tuple[str, ...] = ()
    versions: dict[str, str] | None = None

    @property
    def network(self) -> Any:
        return self.estimator.network_

    @property
    def certificate(self) -> Certificate:
        return self.estimator.certificate_

    @property
    def task(self) -> str:
        return self.target.task

    # -- training

    @classmethod
    def fit(
        cls,
        table: Table,
        target: str,
        *,
        task: str | None = None,
        kind: str = "relu",
        alpha: float | None = None,
        ignore: Sequence[str] = (),
        weight: str | None = None,
        impute: bool = True,
        holdout: float = 0.2,
        max_categories: int = MAX_CATEGORIES,
        seed: int = 0,
        on_iteration: Callable[[Progress], object] | None = None,
        on_fold: Callable[[int, int], object] | None = None,
        **settings: Any,
    ) -> Model:
        """Train a model of a column of a table.

        Parameters
        ----------
        target : the name of the column to predict; rows without a value there are left out.
        task : "classification" or "regression"; None to tell by the target: texts and up to ten
            different whole numbers are classes.
        kind : "relu" or "gated".
        alpha : strength of the penalty; None to choose by cross-validation.
        ignore : names of columns not to learn from.
        weight : the name of a column of sample weights; rows of weight zero are left out.
        impute : fill missing values in; otherwise they are refused.
        holdout : share of the rows that are not trained on, but scored.
        max_categories : columns with more different texts are left out.
        seed : of the rows held out, the patterns, and the folds.
        on_iteration, on_fold : called while it goes on.
        settings : other parameters of the estimator, such as `n_patterns` or `tol`.
        """
        check_choice(kind, "kind", KINDS)
        data = _Data.of(table, target, task, ignore, weight, impute, holdout, max_categories, seed)
        given = {} if alpha is None else {"alpha": alpha}
        estimator = _estimator(
            kind, data.target.task, alpha is None, random_state=seed, **given, **settings
        )
        estimator._on_iteration, estimator._on_fold = on_iteration, on_fold
        X, y, weights = data.part(_TRAINED)
        estimator.fit(X, y, sample_weight=weights)
        estimator._on_iteration = estimator._on_fold = None
        solution = estimator.solution_
        return cls(
            estimator=estimator,
            encoder=data.encoder,
            target=data.target,
            rows=data.rows,
            fingerprint=_fingerprint(X, y, weights),
            mask=solution.problem.patterns.mask,
            dual=np.asarray(solution.dual),
            scores=_scores_by_part(estimator, data.part(_TRAINED), data.part(_HELD_OUT)),
            notes=(*table.notes, *data.notes),
            versions=_versions(),
        )

    # -- use

    def predict(self, table: Table) -> tuple[dict[str, Any], list[str]]:
        """Columns of predictions, one value for each row of the table, and notes: `prediction`,
        and `probability_<class>` for each class where the loss gives probabilities."""
        X, notes = self.encoder.encode(table)
        columns: dict[str, Any] = {"prediction": self.estimator.predict(X)}
        if hasattr(self.estimator, "predict_proba"):
            probabilities = self.estimator.predict_proba(X)
            for k, label in enumerate(self.estimator.classes_):
                columns[f"probability_{label}"] = probabilities[:, k]
        return columns, notes

    def training_rows(self, table: Table) -> _Part:
        """Features, targets and weights of the rows that the model was trained on, if this is the
        table that they came from."""
        X, y, weights = self._part(table, _TRAINED)
        if _fingerprint(X, y, weights) != self.fingerprint:
            raise TableError(
                f"{table.source} has as many rows as the table that the model was trained on, but "
                "its training rows are not the same"
            )
        return X, y, weights

    def held_out_rows(self, table: Table) -> _Part:
        return self._part(table, _HELD_OUT)

    def _part(self, table: Table, part: int) -> _Part:
        if len(table) != len(self.rows):
            raise TableError(
                f"{table.source} has {len(table)} rows, but the model was trained on a table with "
                f"{len(self.rows)}: give that one"
            )
        some = table.select(self.rows == part)
        return self.encoder.encode(some)[0], self.target.values(some), self.target.weights(some)

    def verify(self, table: Table) -> Verification:
        """Check the bounds of the certificate on the table that the model was trained on, by code
        that shares nothing with the solvers (see `verification.verify_network`)."""
        network, problem, _ = self._posed(table)
        return verify_network(network, problem, self.dual, self.certificate)

    def prune(self, table: Table) -> Model:
        """A minimal network with the same predictions on the training rows, and no higher an
        objective there."""
        network, _, scaled = self._posed(table)
        smaller = prune(network, scaled.rows.X)
        return self._with_network(scaled.undo(smaller), table)

    def improve(
        self, table: Table, *, n_patterns: int = 0, alpha: float | None = None, **options: Any
    ) -> Model:
        """The best network with the patterns of this one, and `n_patterns` sampled ones."""
        network, problem, scaled = self._posed(table)
        rows = scaled.rows
        found = improve(
            network,
            rows.X,
            rows.Y[:, 0] if network.flat_output else rows.Y,
            self.estimator.alpha_ if alpha is None else alpha,
            loss=problem.loss_name,
            sample_weight=rows.weight,
            n_patterns=n_patterns,
            **options,
        )
        estimator = _copy(self.estimator)
        solution = found.solution
        estimator.certificate_ = replace(solution.certificate, objective=found.after)
        estimator.alpha_ = solution.problem.lam
        estimator.converged_, estimator.history_ = solution.converged, solution.history
        estimator.n_iter_ = max(solution.n_iter, 1)
        estimator.n_patterns_ = len(solution.problem.patterns)
        estimator.solution_ = solution
        better = replace(
            self,
            estimator=estimator,
            mask=solution.problem.patterns.mask,
            dual=np.asarray(solution.dual),
        )
        return better._with_network(scaled.undo(found.network), table)

    def _posed(self, table: Table) -> tuple[Any, ConvexProblem, _Scaled]:
        """The network for scaled rows, and the certified program of these rows."""
        estimator = _copy(self.estimator)
        rows = estimator._rows(*self.training_rows(table)).merged()
        if len(self.mask) != len(rows):
            raise ModelFileError(
                f"the model's bounds are of {len(self.mask)} distinct rows, {table.source} has "
                f"{len(rows)} to train on"
            )
        try:
            problem, scaling = estimator._pose(rows, estimator.alpha_, Patterns(self.mask))
        except ValueError as error:
            raise ModelFileError(
                f"the model's bounds are not about the rows of {table.source}: {error}"
            ) from error
        targets = getattr(estimator, "_targets", Scaling.none(rows.Y.shape[1]))
        scaled = _Scaled(replace(rows, X=scaling.apply(rows.X)), scaling, targets)
        return scaled.apply(self.network), problem, scaled

    def _with_network(self, network: Any, table: Table) -> Model:
        estimator = _copy(self.estimator)
        estimator.network_ = network
        found = _scores_by_part(estimator, self.training_rows(table), self.held_out_rows(table))
        return replace(self, estimator=estimator, scores=found)

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file of data, never code; `Model.load` reads it. Parameters that are
        no data, such as gates or a solver of your own, are not kept."""
        estimator = self.estimator
        fitted = {
            "alpha": estimator.alpha_,
            "lambda_max": estimator.lambda_max_,
            "converged": bool(estimator.converged_),
            "n_iter": int(estimator.n_iter_),
            "n_patterns": int(estimator.n_patterns_),
            "n_dual_rows": int(self.mask.shape[0]),
        }
        description = {
            "estimator": type(estimator).__name__,
            "parameters": _plain(estimator.get_params()),
            "fitted": fitted,
            "certificate": vars(estimator.certificate_),
            "columns": self.encoder.to_json(),
            "target": vars(self.target),
            "fingerprint": self.fingerprint,
            "scores": self.scores,
            "notes": list(self.notes),
            "versions": self.versions or {},
        }
        history = [
            [math.nan if value is None else value for value in vars(record).values()]
            for record in estimator.history_
        ]
        arrays: dict[str, np.ndarray] = {
            "rows": self.rows.astype(np.uint8),
            "mask": np.packbits(self.mask, axis=0),
            "dual": np.asarray(self.dual, dtype=np.float64),
            "history": np.array(history, dtype=np.float64).reshape(-1, len(_HISTORY)),
        }
        if hasattr(estimator, "cv_scores_"):
            arrays |= {
                "alphas": estimator.alphas_,
                "cv_scores": estimator.cv_scores_,
                "cv_neurons": estimator.cv_neurons_.astype(np.int64),
            }
            fitted["best_index"] = int(estimator.best_index_)
        modelfile.write(Content(estimator.network_, description, arrays), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Model:
        """Read a model that `Model.save` or `cvxnn fit` has written."""
        content = modelfile.read(path)
        if content.description is None:
            raise ModelFileError(
                f"{path} holds a network alone, which knows no columns: cvxnn.load reads it"
            )
        try:
            return _restored(content)
        except KeyError as error:
            raise ModelFileError(f"{path} is incomplete: {error} is missing") from error
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"{path} is inconsistent: {error}") from error


_HISTORY = tuple(inspect.signature(Progress).parameters)


@dataclass(frozen=True)
class TablePath:
    """A path of models of a table: one row of values for each point, and how it ended."""

    points: list[dict[str, float]]
    path: Path
    target: Target
    notes: tuple[str, ...]


def fit_path(
    table: Table,
    target: str,
    *,
    task: str | None = None,
    kind: str = "relu",
    n_alphas: int = 30,
    eps: float = 1e-2,
    ignore: Sequence[str] = (),
    weight: str | None = None,
    impute: bool = True,
    holdout: float = 0.2,
    max_categories: int = MAX_CATEGORIES,
    seed: int = 0,
    tol: float = 1e-4,
    checkpoint: str | PathLike[str] | None = None,
    on_point: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> TablePath:
    """Models of a column of a table at falling strengths of the penalty. Parameters are those of
    `Model.fit` and `cvxnn.path`."""
    check_choice(kind, "kind", KINDS)
    data = _Data.of(table, target, task, ignore, weight, impute, holdout, max_categories, seed)
    estimator = _estimator(kind, data.target.task, False, random_state=seed, tol=tol, **settings)
    training, held_out = data.part(_TRAINED), data.part(_HELD_OUT)
    problem, scaling = estimator._pose(estimator._rows(*training).merged(), 1.0)
    if lambda_max(problem) == 0:
        raise TableError(
            f"{table.source}, column {target!r} does not depend on the others: the constant model "
            "is the best one at every strength"
        )
    done = 0

    def count(solution: Any) -> None:
        nonlocal done
        done += 1
        if on_point is not None:
            on_point(done, n_alphas)

    found = path(problem, n_alphas, eps, tol, checkpoint=checkpoint, callback=count)
    points = []
    for solution in found:
        estimator._take(solution, scaling)
        certificate = solution.certificate
        point = {
            "alpha": solution.problem.lam,
            "objective": certificate.objective,
            "lower_bound": certificate.lower_bound,
            "relative_gap": certificate.relative_gap,
            "neurons": solution.n_active,
        }
        for part, values in _scores_by_part(estimator, training, held_out).items():
            for name, value in values.items():
                point[f"{part.replace(' ', '_')}_{name}"] = value
        points.append(point)
    return TablePath(points, found, data.target, (*table.notes, *data.notes))


def pose(
    table: Table, target: str, *, kind: str = "relu", alpha: float, seed: int = 0, **settings: Any
) -> ConvexProblem:
    """The convex program of all rows of a table, with everything else at its default."""
    check_choice(kind, "kind", KINDS)
    data = _Data.of(table, target, None, (), None, True, 0.0, MAX_CATEGORIES, seed)
    estimator = _estimator(kind, data.target.task, False, random_state=seed, **settings)
    return estimator._pose(estimator._rows(*data.part(_TRAINED)).merged(), alpha)[0]


def _estimator(kind: str, task: str, choosing: bool, /, **settings: Any) -> Any:
    cls = getattr(estimators, _NAMES[kind, task, choosing])
    for name in settings:
        if name not in cls._get_param_names():
            known = suggest(name, cls._get_param_names())
            raise TypeError(f"{cls.__name__} has no parameter {name!r}; {known}")
    return cls(**settings)


_Part = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _scores_by_part(
    estimator: Any, training: _Part, held_out: _Part
) -> dict[str, dict[str, float]]:
    parts = {"training": training, "held out": held_out}
    return {
        label: scores(estimator, X, y, weights)
        for label, (X, y, weights) in parts.items()
        if len(y)
    }


def scores(estimator: Any, X: Any, y: Any, weights: Any = None) -> dict[str, float]:
    """What is reported of predictions, by name."""
    if is_classifier(estimator):
        found = {"accuracy": float(estimator.score(X, y, sample_weight=weights))}
        if hasattr(estimator, "predict_proba"):
            probabilities = estimator.predict_proba(X)
            found["log_loss"] = float(
                log_loss(y, probabilities, labels=estimator.classes_, sample_weight=weights)
            )
        return found
    size = float(np.max(np.abs(y))) or 1.0  # taken out, so that no square over- or underflows
    y, predictions = y / size, estimator.predict(X) / size
    error = root_mean_squared_error(y, predictions, sample_weight=weights)
    found = {"rmse": size * float(error)}
    if len(y) > 1:
        found["r2"] = float(r2_score(y, predictions, sample_weight=weights))
    return found


@dataclass(frozen=True)
class _Scaled:
    """Training rows as the convex program has them, and the way of networks there and back."""

    rows: Rows
    columns: Scaling
    targets: Scaling

    def apply(self, network: Any) -> Any:
        return self.targets.inverse().undo_outputs(self.columns.inverse().undo(network))

    def undo(self, network: Any) -> Any:
        return self.targets.undo_outputs(self.columns.undo(network))


@dataclass(frozen=True)
class _Data:
    """A table, made ready for training: the rows that have a target, and what became of all."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    rows: np.ndarray
    encoder: Encoder
    target: Target
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        table: Table,
        target: str,
        task: str | None,
        ignore: Sequence[str],
        weight: str | None,
        impute: bool,
        holdout: float,
        max_categories: int,
        seed: int,
    ) -> _Data:
        if not isinstance(table, Table):
            raise TypeError(
                f"table must be a Table, as read_table returns, got {type(table).__name__}"
            )
        if task is not None:
            check_choice(task, "task", TASKS)
        if isinstance(ignore, str):
            raise TypeError(f"ignore must be a list of names, got {ignore!r}")
        check_flag(impute, "impute")
        check_number(holdout, "holdout", minimum=0, maximum=1, strict_maximum=True)
        check_integer(max_categories, "max_categories", minimum=2)
        check_integer(seed, "seed", minimum=0)
        for name in (target, *ignore, *([] if weight is None else [weight])):
            table.column(name)  # which has to be there
        used = [name for name in table.names if name not in (target, weight, *ignore)]
        if weight == target:
            raise TableError(f"{table.source}, column {target!r} is both target and weight")
        if not used:
            raise TableError(f"{table.source} has no column to learn from but {target!r}")
        left_out, notes = _left_out(table, target, weight)
        present = table.select(~left_out)
        aim = _target(present, target, weight, task)
        encoder, about = Encoder.of(present, used, impute=impute, max_categories=max_categories)
        X, _ = encoder.encode(present)
        y, weights = aim.values(present), aim.weights(present)
        held_out = _held_out(y, holdout, seed, aim.classes is not None)
        rows = np.full(len(table), _LEFT_OUT)
        rows[~left_out] = np.where(held_out, _HELD_OUT, _TRAINED)
        return cls(X, y, weights, rows, encoder, aim, (*notes, *about))

    def part(self, which: int) -> _Part:
        chosen = self.rows[self.rows != _LEFT_OUT] == which
        weights = None if self.weights is None else self.weights[chosen]
        return self.X[chosen], self.y[chosen], weights


def _left_out(table: Table, target: str, weight: str | None) -> tuple[np.ndarray, list[str]]:
    """The rows that cannot be learnt from, and notes on them."""
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
        raise TableError("; ".join([f"{table.source} has {found} to learn from, not 2", *notes]))
    return left_out, notes


def _weights(table: Table, name: str) -> np.ndarray:
    weights = table.numbers(name)
    bad = np.flatnonzero(~(weights >= 0))
    if len(bad):
        value = weights[bad[0]]
        what = "the weight is missing" if np.isnan(value) else f"{value:g} is no weight"
        raise TableError(f"{table.place(name, bad[0])}: {what}; weights must be >= 0")
    return weights


def _labels(table: Table, name: str) -> np.ndarray:
    """Texts; numbers are written alike, so that 1 and 1.0 are one label."""
    if not table.is_numeric(name):
        return table.texts(name)
    numbers = table.numbers(name)
    return np.array([None if np.isnan(v) else number_text(v) for v in numbers], dtype=object)


def _target(table: Table, name: str, weight: str | None, task: str | None) -> Target:
    numeric = table.is_numeric(name)
    if task is None:
        task = TASKS[1] if numeric and not _few_whole_numbers(table.numbers(name)) else TASKS[0]
    if task == TASKS[1]:
        table.numbers(name)  # which has to be numbers
        return Target(name, None, weight)
    labels = [label for label in _labels(table, name) if label is not None]
    classes = sorted(set(labels))
    if len(classes) < 2:
        raise TableError(
            f"{table.source}, column {name!r} has one value only, {short(classes[0])}: there is "
            "nothing to tell apart"
        )
    if len(classes) > max(len(labels) / 2, 2):
        raise TableError(
            f"{table.source}, column {name!r} has {len(classes)} different labels in {len(labels)} "
            "rows: too many to learn"
            + (", is it a regression?" if numeric else ", is it the right column?")
        )
    return Target(name, tuple(classes), weight)


def _few_whole_numbers(values: np.ndarray) -> bool:
    distinct = np.unique(values[~np.isnan(values)])
    return len(distinct) <= MAX_CLASSES and bool(np.all(distinct == np.round(distinct)))


def _held_out(y: np.ndarray, share: float, seed: int, stratify: bool) -> np.ndarray:
    """Which rows to hold out: of all classes alike, where there are enough. At least one row of
    each class is trained on."""
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


def _fingerprint(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(X).tobytes())
    digest.update("\0".join(map(str, y.tolist())).encode())
    digest.update(b"" if weights is None else np.ascontiguousarray(weights).tobytes())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"cvxnn": cvxnn.__version__, **found}


def _copy(estimator: Any) -> Any:
    other = type(estimator)(**estimator.get_params())
    vars(other).update(vars(estimator))
    return other


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of the parameters that are data."""
    found = {}
    for name, value in parameters.items():
        value = value.tolist() if hasattr(value, "tolist") else value
        with suppress(TypeError):
            json.dumps(value)
            found[name] = value
    return found


def _restored(content: Content) -> Model:
    """The model of a file; KeyError, TypeError, ValueError and the like where it is none."""
    told, arrays = content.description or {}, content.arrays
    network, fitted = content.network, told["fitted"]
    encoder, target = Encoder.from_json(told["columns"]), Target.from_json(told["target"])
    outputs = 1 if target.classes is None or len(target.classes) == 2 else len(target.classes)
    shape = network.n_features, network.n_outputs
    if shape != (len(encoder.features), outputs):
        raise ValueError(
            f"columns and target make {len(encoder.features)} features and {outputs} outputs, the "
            f"network has {shape[0]} and {shape[1]}"
        )
    rows = _array(arrays, "rows", np.uint8, None)
    if rows.max(initial=0) > _LEFT_OUT:
        raise ValueError("rows must hold 0, 1 and 2")
    n_rows = check_integer(fitted["n_dual_rows"], "n_dual_rows", minimum=1)
    n_patterns = check_integer(fitted["n_patterns"], "n_patterns", minimum=1)
    if n_rows > np.sum(rows == _TRAINED):
        raise ValueError("there are fewer training rows than rows of the dual point")
    mask = _array(arrays, "mask", np.uint8, (n_rows + 7) // 8, n_patterns)
    scores = {
        _text(part): {_text(name): float(value) for name, value in values.items()}
        for part, values in told["scores"].items()
    }
    return Model(
        estimator=_restored_estimator(told, content, target),
        encoder=encoder,
        target=target,
        rows=rows.astype(int),
        fingerprint=_text(told["fingerprint"]),
        mask=np.unpackbits(mask, axis=0, count=n_rows).astype(bool),
        dual=_finite(_array(arrays, "dual", np.float64, n_rows, outputs), "dual"),
        scores=scores,
        notes=tuple(map(_text, told["notes"])),
        versions={_text(name): _text(number) for name, number in told["versions"].items()},
    )


def _restored_estimator(told: dict[str, Any], content: Content, target: Target) -> Any:
    if told["estimator"] not in _NAMES.values():
        raise ValueError(f"there is no estimator {told['estimator']!r}")
    estimator = getattr(estimators, told["estimator"])(**told["parameters"])
    estimator._validate_params()
    if (target.classes is not None) != is_classifier(estimator):
        raise ValueError("the estimator does not fit the target")
    fitted, network = told["fitted"], content.network
    vars(estimator).update(
        network_=network,
        certificate_=_restored_certificate(told["certificate"]),
        alpha_=check_number(fitted["alpha"], "alpha", minimum=0),
        lambda_max_=check_number(fitted["lambda_max"], "lambda_max", minimum=0),
        converged_=check_flag(fitted["converged"], "converged"),
        n_iter_=check_integer(fitted["n_iter"], "n_iter", minimum=0),
        n_patterns_=fitted["n_patterns"],
        history_=tuple(
            map(_progress, _array(content.arrays, "history", np.float64, None, len(_HISTORY)))
        ),
        n_features_in_=network.n_features,
    )
    if target.classes is not None:
        estimator.classes_ = np.array(target.classes)
    else:
        estimator._flat = True
    if told["estimator"].endswith("CV"):
        vars(estimator).update(_restored_choice(fitted, content.arrays))
    return estimator


def _restored_certificate(told: dict[str, Any]) -> Certificate:
    certificate = Certificate(**told)
    _text(certificate.scope)
    for name, value in vars(certificate).items():
        if name != "scope" and not (name == "network_objective" and value is None):
            check_number(value, name)
    return certificate


def _restored_choice(fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What cross-validation leaves behind."""
    alphas = _finite(_array(arrays, "alphas", np.float64, None), "alphas")
    cv_scores = _array(arrays, "cv_scores", np.float64, None, len(alphas))
    best = check_integer(fitted["best_index"], "best_index", minimum=0)
    return {
        "alphas_": alphas,
        "cv_scores_": cv_scores,
        "cv_neurons_": _array(arrays, "cv_neurons", np.int64, *cv_scores.shape),
        "best_index_": best,
        "best_score_": float(np.mean(cv_scores[:, best])),
    }


def _array(arrays: dict[str, np.ndarray], name: str, dtype: Any, *shape: int | None) -> np.ndarray:
    """An array of a file, if it has this dtype and this shape; None stands for any length."""
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    return array


def _finite(array: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return array


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _progress(record: np.ndarray) -> Progress:
    values = dict(zip(_HISTORY, record.tolist(), strict=True))
    for name in ("n_iter", "n_products"):
        values[name] = int(values[name])
    for name in ("residual", "step_size"):
        values[name] = None if math.isnan(values[name]) else values[name]
    return Progress(**values)
