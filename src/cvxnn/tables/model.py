"""A model of a table: a trained estimator, the columns it takes, and what its bounds rest on.

    table -> encoder -> estimator -> predictions, by the names of columns and labels

The file of a model is data: JSON and arrays beside the network (see `modelfile.py`). It holds the
patterns of the convex program and the dual point behind the lower bound, so that the bound can be
checked again on the same rows, and which rows were trained on and which held out. The program is
defined by numbers that stand in the file: with them, another machine poses the same one.
"""

from __future__ import annotations

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

import cvxnn
from cvxnn import estimators, modelfile
from cvxnn.certificates import Certificate, Multipliers
from cvxnn.estimators.base import Watch, posed_program, take, train, unread_parameters
from cvxnn.estimators.posing import Fit, Posing
from cvxnn.estimators.rows import Numbers, Rows
from cvxnn.estimators.targets import Labels
from cvxnn.improvement import improve
from cvxnn.modelfile import Content, ModelFileError
from cvxnn.networks import NETWORKS
from cvxnn.paths import Path, path
from cvxnn.problems import ConvexProblem, lambda_max
from cvxnn.pruning import prune
from cvxnn.solvers.results import Progress, Solution, Status
from cvxnn.tables.encoding import MAX_CATEGORIES, Encoder
from cvxnn.tables.preparation import (
    HELD_OUT,
    TASKS,
    TRAINED,
    Part,
    Target,
    TrainingData,
    fingerprint_of,
)
from cvxnn.tables.reading import Table, TableError
from cvxnn.tables.restoration import HISTORY, restored
from cvxnn.validation import check_choice, suggest
from cvxnn.verification.checks import Verification, verify_network
from cvxnn.verification.programs import Program, Scales, network_value

KINDS = ("relu", "gated")
_OLD_FILE = (
    "a file of format version 3, whose claims were made up to rounding: the bounds found here are "
    "proven, for row weights and scalings as this machine computes them"
)
MARGIN = 2.0**-46  # of a claimed objective, above what was found
_NAMES = {
    (kind, task, cv): f"{prefix}{suffix}{'CV' if cv else ''}"
    for kind, prefix in zip(KINDS, ("ReLU", "GatedReLU"), strict=True)
    for task, suffix in zip(TASKS, ("Classifier", "Regressor"), strict=True)
    for cv in (True, False)
}


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with names for its columns and labels.

    Attributes
    ----------
    estimator : fitted.
    encoder : how columns become features.
    target : what is predicted.
    rows : (n,) of the table it came from: 0 trained on, 1 held out, 2 left out.
    fingerprint : of the training rows, to know them again.
    mask, dual : patterns and dual point of the certified program, on distinct training rows.
    multipliers : of its cone constraints; None for gated models, and in files of version 3.
    numbers : what else defines it; None in files of version 3, which have it computed again.
    scores : by "training" and "held out", the scores by name.
    notes : what was done to the data, in words.
    status : how the run ended that it comes from; None for a model from a file.
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
    multipliers: Multipliers | None = None
    numbers: Numbers | None = None
    status: Status | None = None

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
        on_data: Callable[[Sequence[str]], object] | None = None,
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
        on_data : called with the notes on the data, before training.
        on_iteration, on_fold : called while it goes on.
        settings : other parameters of the estimator, such as `n_patterns` or `tol`.
        """
        check_choice(kind, "kind", KINDS)
        data = TrainingData.of(
            table, target, task, ignore, weight, impute, holdout, max_categories, seed
        )
        if on_data is not None:
            on_data(data.notes)
        given = {} if alpha is None else {"alpha": alpha}
        estimator = _estimator(kind, data.target.task, alpha is None, seed, {**given, **settings})
        X, y, weights = data.part(TRAINED)
        watch = Watch(on_iteration, on_fold, data.encoder.features)
        found = train(estimator, X, y, weights, watch)
        model = cls(
            estimator=estimator,
            encoder=data.encoder,
            target=data.target,
            rows=data.rows,
            fingerprint=fingerprint_of(X, y, weights),
            scores=_scores_by_part(estimator, data.part(TRAINED), data.part(HELD_OUT)),
            notes=data.notes,
            versions=_versions(),
            numbers=found.posed.numbers,
            **_outcome(found.solution),
        )
        return model._claiming(model._posed(table))

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

    def training_rows(self, table: Table) -> Part:
        """Features, targets and weights of the rows that the model was trained on, if this is the
        table that they came from."""
        X, y, weights = self._part(table, TRAINED)
        if fingerprint_of(X, y, weights) != self.fingerprint:
            raise TableError(
                f"{table.source} has as many rows as the table that the model was trained on, but "
                "its training rows are not the same, or in another order"
            )
        return X, y, weights

    def held_out_rows(self, table: Table) -> Part:
        return self._part(table, HELD_OUT)

    def _part(self, table: Table, part: int) -> Part:
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
        posed = self._posed(table)
        found = verify_network(
            self.network,
            posed.program,
            self.dual,
            self.certificate,
            scales=posed.scales,
            multipliers=self.multipliers,
        )
        checked = found.checked if self.numbers is not None else (*found.checked, _OLD_FILE)
        return replace(found, checked=checked, differences=(*found.differences, *posed.differences))

    def prune(self, table: Table) -> Model:
        """A minimal network with the same predictions on the training rows, and no higher an
        objective there."""
        posed = self._posed(table)
        smaller = prune(posed.numbers.scale_network(self.network), posed.rows.X)
        return self._with_network(posed.numbers.unscale_network(smaller), table)

    def improve(
        self,
        table: Table,
        *,
        n_patterns: int = 0,
        alpha: float | None = None,
        tol: float = 1e-4,
        **options: Any,
    ) -> Model:
        """The best network with the patterns of this one, and `n_patterns` sampled ones."""
        posed = self._posed(table)
        network, rows = posed.numbers.scale_network(self.network), posed.rows
        huber: dict[str, Any] = (
            {"huber_delta": posed.program.delta} if posed.program.loss == "huber" else {}
        )
        found = improve(
            network,
            rows.X,
            rows.Y[:, 0] if network.flat_output else rows.Y,
            self.estimator.alpha_ if alpha is None else alpha,
            loss=posed.program.loss,
            sample_weight=rows.weight,
            n_patterns=n_patterns,
            tol=tol,
            **huber,
            **options,
        )
        estimator, solution = self._with_given_alpha(found.solution, tol), found.solution
        estimator.certificate_ = solution.certificate
        estimator.n_iter_ = max(solution.n_iter, 1)
        estimator.n_patterns_ = len(solution.problem.patterns)
        estimator.lambda_max_ = lambda_max(solution.problem)
        better = replace(
            self,
            estimator=estimator,
            notes=(*self.notes, _improved(network, found.solution, n_patterns)),
            numbers=posed.numbers.with_weights_of(solution.problem),
            **_outcome(solution),
        )
        return better._with_network(posed.numbers.unscale_network(found.network), table)

    def _with_given_alpha(self, solution: Solution, tol: float) -> Any:
        """The estimator as one that was told its alpha, after it was solved for again."""
        name = type(self.estimator).__name__.removesuffix("CV")
        cls = getattr(estimators, name)
        known = {k: v for k, v in self.estimator.get_params().items() if k in cls().get_params()}
        estimator = cls(**{**known, "alpha": solution.problem.lam, "tol": tol})
        chosen = ("alphas_", "cv_scores_", "cv_neurons_", "best_index_", "best_score_", "scorer_")
        own = {k: v for k, v in vars(self.estimator).items() if k.endswith("_") and k not in chosen}
        vars(estimator).update(own)
        estimator.alpha_, estimator.history_ = solution.problem.lam, solution.history
        estimator.converged_ = solution.converged
        return estimator

    def _posed(self, table: Table) -> _Posed:
        """The certified program of the training rows: from the numbers of the file and elementwise,
        so that it is the same everywhere."""
        estimator, posing = self.estimator, Posing.of_fitted(self.estimator)
        X, y, weights = self.training_rows(table)
        targets = posing.targets
        if isinstance(targets, Labels) and not np.array_equal(np.unique(y), targets.classes):
            raise ModelFileError(f"the model's classes are not those of its rows in {table.source}")
        rows = posing.rows(X, y, weights).merged()
        again = posing.numbers(rows)
        numbers = again if self.numbers is None else self.numbers
        if not len(self.mask) == len(rows) == len(numbers.row_weight):
            raise ModelFileError(
                f"the model's bounds are of {len(self.mask)} distinct rows, {table.source} has "
                f"{len(rows)} to train on"
            )
        rows = numbers.scaled(rows)
        p, kind = self.mask.shape[1], posing.problem.kind
        ones = np.ones((len(rows), int(estimator.fit_intercept)))
        program = Program(
            X=np.hstack([rows.X, ones]),
            mask=self.mask,
            Y=rows.Y,
            weight=numbers.row_weight,
            lam=estimator.alpha_,
            loss=targets.loss_settings["loss"],
            scope=f"{kind} over {p} given pattern{'s' if p > 1 else ''}",
            cones=kind == "C-ReLU",
            output_bias=estimator.fit_intercept,
            delta=targets.loss_settings.get("huber_delta", math.inf),
        )
        return _Posed(rows, program, numbers, tuple(numbers.differences(again)))

    def _with_network(self, network: Any, table: Table) -> Model:
        estimator = _copy(self.estimator)
        estimator.network_ = network
        found = _scores_by_part(estimator, self.training_rows(table), self.held_out_rows(table))
        model = replace(self, estimator=estimator, scores=found)
        return model._claiming(model._posed(table))

    def _claiming(self, posed: _Posed) -> Model:
        """The model, with a certificate that claims of its network, as it stands in the file, what
        was found without rounding."""
        estimator, claim = _copy(self.estimator), self.certificate
        found = network_value(self.network, posed.program, posed.scales).objective
        objective = max(found, claim.lower_bound) * (1 + MARGIN)
        own = objective if posed.program.cones else None
        estimator.certificate_ = replace(claim, objective=objective, network_objective=own)
        return replace(self, estimator=estimator)

    # -- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file of data, never code; `cvxnn.load` reads it. Parameters that are
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
            [math.nan if value is None else value for value in map(vars(record).get, HISTORY)]
            for record in estimator.history_
        ]
        arrays: dict[str, np.ndarray] = {
            "rows": self.rows.astype(np.uint8),
            "mask": np.packbits(self.mask, axis=0),
            "dual": np.asarray(self.dual, dtype=np.float64),
            "history": np.array(history, dtype=np.float64).reshape(-1, len(HISTORY)),
        }
        if self.numbers is not None:
            arrays |= {
                "row_weight": self.numbers.row_weight,
                "column_mean": self.numbers.columns.mean,
                "column_spread": self.numbers.columns.spread,
                "target_mean": self.numbers.targets.mean,
                "target_spread": self.numbers.targets.spread,
            }
        if self.multipliers is not None:
            arrays |= {
                "multiplier_block": np.asarray(self.multipliers.block, dtype=np.int32),
                "multiplier_row": np.asarray(self.multipliers.row, dtype=np.int32),
                "multiplier_value": np.asarray(self.multipliers.value, dtype=np.float64),
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
        content = modelfile.read(path, NETWORKS)
        if content.description is None:
            raise ModelFileError(
                f"{path} holds a network alone, which knows no columns: cvxnn.load reads it"
            )
        return cls.of_file(content, path)

    @classmethod
    def of_file(cls, content: Content, path: str | PathLike[str]) -> Model:
        """The model of a file's contents; `path` is for messages."""
        try:
            return cls(**restored(content))
        except KeyError as error:
            raise ModelFileError(f"{path} is incomplete: {error} is missing") from error
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"{path} is inconsistent: {error}") from error


@dataclass(frozen=True, eq=False)
class TablePath:
    """A path of models of a table: one row of values for each point, and how it ended."""

    points: list[dict[str, float]]
    path: Path


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
    on_data: Callable[[Sequence[str]], object] | None = None,
    on_point: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> TablePath:
    """Models of a column of a table at falling strengths of the penalty.

    Parameters are those of `Model.fit` and `cvxnn.path`. `settings` are other parameters of the
    estimator, but those that a path has no use for: it has strengths and starts of its own.
    """
    check_choice(kind, "kind", KINDS)
    data = TrainingData.of(
        table, target, task, ignore, weight, impute, holdout, max_categories, seed
    )
    if on_data is not None:
        on_data(data.notes)
    _refuse(settings, ("alpha",), "fit_path goes through many strengths")
    estimator = _estimator(kind, data.target.task, False, seed, {"tol": tol, **settings})
    training, held_out = data.part(TRAINED), data.part(HELD_OUT)
    posed = posed_program(estimator, *training)
    if lambda_max(posed.problem) == 0:
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

    found = path(
        posed.problem,
        n_alphas,
        eps,
        tol,
        solver=estimator.solver,
        max_iter=estimator.max_iter,
        checkpoint=checkpoint,
        callback=count,
    )
    points = []
    for solution in found:
        take(estimator, Fit(posed, solution))
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
    return TablePath(points, found)


def pose(
    table: Table, target: str, *, kind: str = "relu", alpha: float, seed: int = 0, **settings: Any
) -> ConvexProblem:
    """The convex program of all rows of a table, with everything else at its default. `settings`
    are those parameters of the estimator that the program depends on."""
    check_choice(kind, "kind", KINDS)
    data = TrainingData.of(table, target, None, (), None, True, 0.0, MAX_CATEGORIES, seed)
    _refuse(settings, ("solver", "tol", "max_iter"), "pose solves nothing")
    estimator = _estimator(kind, data.target.task, False, seed, settings)
    return posed_program(estimator, *data.part(TRAINED), alpha=alpha).problem


def _estimator(kind: str, task: str, choosing: bool, seed: int, settings: dict[str, Any]) -> Any:
    """The estimator with these settings, every one of which it reads."""
    cls = getattr(estimators, _NAMES[kind, task, choosing])
    _refuse(settings, ("random_state",), "seed is what sets it")
    _refuse(settings, ("warm_start",), "there is no earlier fit to start from")
    for name in settings:
        if name not in cls._get_param_names():
            known = suggest(name, cls._get_param_names())
            raise TypeError(f"{cls.__name__} has no parameter {name!r}; {known}")
    estimator = cls(**settings, random_state=seed)
    for name, why in unread_parameters(estimator):
        _refuse(settings, (name,), why)
    return estimator


def _refuse(settings: dict[str, Any], names: Sequence[str], why: str) -> None:
    for name in names:
        if name in settings:
            raise TypeError(f"{name} is given, but nothing reads it: {why}")


def _scores_by_part(estimator: Any, training: Part, held_out: Part) -> dict[str, dict[str, float]]:
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


@dataclass(frozen=True, eq=False)
class _Posed:
    """The convex program of a model.

    rows : distinct and scaled, with their raw weights.
    differences : numbers of the program that these rows do not have, in words.
    """

    rows: Rows
    program: Program
    numbers: Numbers
    differences: tuple[str, ...]

    @property
    def scales(self) -> Scales:
        columns, targets = self.numbers.columns, self.numbers.targets
        return Scales(columns.mean, columns.spread, targets.mean, targets.spread)


def _outcome(solution: Solution) -> dict[str, Any]:
    """How a run ended, and what its lower bound rests on."""
    return {
        "status": solution.status,
        "mask": solution.problem.patterns.mask,
        "dual": np.asarray(solution.dual),
        "multipliers": solution.multipliers,
    }


def _improved(network: Any, solution: Solution, n_sampled: int) -> str:
    p = len(solution.problem.patterns)
    return (
        f"improved: solved again over {p} patterns, those of an earlier network with "
        f"{network.n_neurons} neurons and up to {n_sampled} sampled ones"
    )


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
