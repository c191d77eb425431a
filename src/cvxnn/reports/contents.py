"""What a report says, as data: everything is computed here, and nothing is formatted."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import cvxnn
from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.estimators.targets import targets_of
from cvxnn.estimators.tasks import Classification
from cvxnn.generation.rounds import Round
from cvxnn.reports import importance, measures
from cvxnn.reports.claims import Claims, claims_of, is_gated
from cvxnn.reports.importance import Columns, Neurons
from cvxnn.reports.measures import Baseline, Calibration, Confusion, Measure, Residuals
from cvxnn.reports.program import Program
from cvxnn.reports.ranking import Ranking, rankings
from cvxnn.reports.rivals import Rivals, rivals_of
from cvxnn.reports.samples import (
    Sample,
    check_estimator,
    column_names,
    groups_of,
    take_sample,
    target_names,
)
from cvxnn.solvers.results import Progress
from cvxnn.validation import check_flag

TRAINING, GIVEN, HELD_OUT = "Training rows", "Rows given", "Held-out rows"
MAX_STEPS = 300  # records of the solver's history that are drawn
MAX_VALUES = 50  # a parameter with more values is shown by their number
_PACKAGES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Step:
    """A record of the solver's history."""

    passes: float
    objective: float
    lower_bound: float
    relative_gap: float


@dataclass(frozen=True, eq=False)
class Choice:
    """The cross-validation of alpha: (strengths,) arrays, in rising order of alpha.

    error : standard error of the mean score over the folds; NaN for one fold.
    neurons, fewest, most : mean, smallest and largest number of neurons over the folds.
    at_edge : "smallest" or "largest" if the chosen strength is an end of the grid.
    """

    alphas: np.ndarray
    score: np.ndarray
    error: np.ndarray
    neurons: np.ndarray
    fewest: np.ndarray
    most: np.ndarray
    chosen: int
    scoring: str
    n_folds: int
    rule: str
    at_edge: str | None


@dataclass(frozen=True)
class Result:
    """The predictions for some rows."""

    label: str
    n: int
    measures: tuple[Measure, ...]
    confusion: Confusion | None = None
    calibration: Calibration | None = None
    rankings: tuple[Ranking, ...] = ()
    residuals: tuple[Residuals, ...] = ()


@dataclass(frozen=True)
class Contents:
    """A report before it is a page. Names and notes are as users gave them; the page escapes
    them."""

    title: str
    estimator: str
    gated: bool
    classes: tuple[str, ...]  # empty for a regression
    outputs: tuple[str, ...]  # the targets of a regression
    n_columns: int
    n_neurons: int
    n_patterns: int
    alpha: float
    lambda_max: float
    converged: bool
    tol: float
    n_iter: int
    seconds: float | None
    weighted: bool
    certificate: Certificate
    bound: Bound
    claims: Claims
    steps: tuple[Step, ...]
    rounds: tuple[Round, ...]  # of a ReLU network over generated patterns
    choice: Choice | None
    results: tuple[Result, ...]
    baseline: str
    rivals: Rivals | None  # only where the rows are those of the training
    columns: Columns
    neurons: Neurons
    notes: str | None
    facts: tuple[tuple[str, str], ...]
    command: str | None
    parameters: tuple[tuple[str, str, bool], ...]  # name, value, whether it is the default
    versions: tuple[tuple[str, str], ...]
    snippet: str


def contents_of(
    estimator: NetworkEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    test: Sequence[ArrayLike | None] | None = None,
    title: str | None = None,
    feature_names: Sequence[object] | None = None,
    notes: str | None = None,
    facts: Iterable[tuple[object, object]] = (),
    columns: Sequence[object] | None = None,
    command: str | None = None,
    baselines: bool = True,
) -> Contents:
    """Compute all that a report shows; arguments as for `report`."""
    check_estimator(estimator)
    sample = take_sample(estimator, X, y, sample_weight, "the rows")
    names = column_names(estimator, X, feature_names)
    categories = getattr(estimator, "categories_", None)
    if categories is not None:
        columns = [(columns or names)[j] for j in categories.origins]
        names = tuple(categories.names(names))
    held_out = _held_out(estimator, test)
    program = Program.of(estimator, sample)
    label = TRAINING if program.agrees else GIVEN
    samples = {label: sample} if held_out is None else {label: sample, HELD_OUT: held_out}

    classes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    if isinstance(estimator, Classification):
        classes = tuple(str(c) for c in estimator.classes_.tolist())
    else:
        outputs = target_names(estimator, y)
    baseline = Baseline.of(sample, len(classes))
    rivals = None
    if program.agrees and check_flag(baselines, "baselines"):
        rivals = rivals_of(list(samples.values()), len(classes))
    network = estimator.network_
    last = list(samples)[-1]
    name = type(estimator).__name__
    return Contents(
        title=f"Report on a {name}" if title is None else str(title),
        estimator=name,
        gated=is_gated(estimator),
        classes=classes,
        outputs=outputs,
        n_columns=network.n_features,
        n_neurons=network.n_neurons,
        n_patterns=int(estimator.n_patterns_),
        alpha=float(estimator.alpha_),
        lambda_max=float(estimator.lambda_max_),
        converged=bool(estimator.converged_),
        tol=float(estimator.tol),
        n_iter=int(estimator.n_iter_),
        seconds=float(estimator.history_[-1].seconds) if estimator.history_ else None,
        weighted=any(part.weight is not None for part in samples.values()),
        certificate=estimator.certificate_,
        bound=estimator.bound_,
        claims=claims_of(estimator, program, held_out is not None),
        steps=_steps([r for r in estimator.history_ if isinstance(r, Progress)]),
        rounds=tuple(r for r in estimator.history_ if isinstance(r, Round)),
        choice=_choice(estimator),
        results=_results(estimator, samples, classes, outputs, baseline, rivals),
        rivals=rivals,
        command=command,
        baseline=_baseline_in_words(baseline, classes, label),
        columns=importance.important_columns(
            estimator, sample, samples[last], last, groups_of(names, columns)
        ),
        neurons=importance.largest_neurons(
            estimator, sample, program.neuron_sizes, names, _output_names(classes, outputs)
        ),
        notes=None if notes is None else str(notes),
        facts=tuple((str(label), str(value)) for label, value in facts),
        parameters=_parameters(estimator),
        versions=_versions(),
        snippet=_snippet(estimator),
    )


def parts_of(test: Any) -> Sequence[Any]:
    """X, y and perhaps weights of held-out rows."""
    if not isinstance(test, (tuple, list)) or len(test) not in (2, 3):
        raise ValueError("test must be (X, y) or (X, y, sample_weight)")
    return test


def _held_out(
    estimator: NetworkEstimator, test: Sequence[ArrayLike | None] | None
) -> Sample | None:
    if test is None:
        return None
    X, y, *weight = parts_of(test)
    return take_sample(estimator, X, y, weight[0] if weight else None, "test")


# -- predictions


def _results(
    estimator: NetworkEstimator,
    samples: dict[str, Sample],
    classes: tuple[str, ...],
    outputs: tuple[str, ...],
    baseline: Baseline,
    rivals: Rivals | None,
) -> tuple[Result, ...]:
    likely = bool(classes) and targets_of(estimator).has_probabilities

    def measured(sample: Sample) -> tuple[Measure, ...]:
        if classes:
            return measures.classification_measures(sample, baseline, likely)
        return measures.regression_measures(sample, baseline, outputs)

    found = []
    for k, (label, sample) in enumerate(samples.items()):
        others = [] if rivals is None else [(one.name, one.samples[k]) for one in rivals.models]
        scores = measured(sample)
        beside = zip(*(measured(other) for _, other in others), strict=True)
        if others:
            scores = tuple(
                replace(one, rivals=tuple(other.value for other in rest))
                for one, rest in zip(scores, beside, strict=True)
            )
        result = Result(label, len(sample), scores)
        if classes:
            kept = measures.frequent_classes(next(iter(samples.values())), len(classes))
            result = replace(
                result,
                confusion=measures.confusion(sample, classes, kept),
                calibration=measures.calibration(sample) if likely else None,
                rankings=rankings(sample, classes, others),
            )
        else:
            result = replace(result, residuals=measures.residuals(sample, outputs))
        found.append(result)
    return tuple(found)


def _baseline_in_words(baseline: Baseline, classes: tuple[str, ...], label: str) -> str:
    of = label[0].lower() + label[1:]
    if classes:
        return f"the most frequent class of the {of}, with the frequencies there as probabilities"
    return f"the mean of the {of}"


def _output_names(classes: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[str, ...]:
    """What the outputs of the network stand for; with two classes, the one output stands for the
    second class."""
    return outputs or (classes[1:] if len(classes) == 2 else classes)


# -- training


def _steps(history: Sequence[Progress]) -> tuple[Step, ...]:
    """The history, thinned out if it is long; the first and the last record stay."""
    places = range(len(history))
    if len(history) > MAX_STEPS:
        # evenly spaced on the logarithmic axis they are drawn on, and all of the first records
        spaced = np.geomspace(1, len(history), MAX_STEPS).round().astype(int) - 1
        places = np.unique(spaced).tolist()
    return tuple(
        Step(
            float(history[k].n_products),
            float(history[k].objective),
            float(history[k].lower_bound),
            float(history[k].relative_gap),
        )
        for k in places
    )


def _choice(estimator: NetworkEstimator) -> Choice | None:
    if not isinstance(estimator, CrossValidated):
        return None
    order = np.argsort(estimator.alphas_, kind="stable")
    scores = np.asarray(estimator.cv_scores_, dtype=float)[:, order]
    neurons = np.asarray(estimator.cv_neurons_)[:, order]
    n_folds, n_alphas = scores.shape
    chosen = int(np.flatnonzero(order == estimator.best_index_)[0])
    spread = scores.std(axis=0, ddof=1) if n_folds > 1 else np.full(n_alphas, np.nan)
    edge = {0: "smallest", n_alphas - 1: "largest"} if n_alphas > 1 else {}
    return Choice(
        alphas=np.asarray(estimator.alphas_, dtype=float)[order],
        score=scores.mean(axis=0),
        error=spread / math.sqrt(n_folds),
        neurons=neurons.mean(axis=0),
        fewest=neurons.min(axis=0),
        most=neurons.max(axis=0),
        chosen=chosen,
        scoring=_scoring(estimator),
        n_folds=n_folds,
        rule=estimator.rule,
        at_edge=edge.get(chosen),
    )


def _scoring(estimator: CrossValidated) -> str:
    if isinstance(estimator.scoring, str):
        return estimator.scoring.replace("_", " ")
    if estimator.scoring is not None:
        return "score"
    return targets_of(estimator).default_score


# -- how to reproduce it


def _parameters(estimator: NetworkEstimator) -> tuple[tuple[str, str, bool], ...]:
    found = []
    for name, parameter in signature(type(estimator)).parameters.items():
        value = getattr(estimator, name)
        found.append((name, source(value), _is_default(value, parameter)))
    return tuple(found)


def _is_default(value: object, parameter: Parameter) -> bool:
    return type(value) is type(parameter.default) and bool(value == parameter.default)


def source(value: object) -> str:
    """A value as Python source if it can be written so, else its type. The repr of an object may
    hold its address, and equal arguments have to give equal pages."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple, dict)) and len(value) > MAX_VALUES:
        return f"<{type(value).__name__} of {len(value)} values>"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(source(part) for part in value)
        if isinstance(value, tuple):
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return f"[{inner}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source(k)}: {source(v)}" for k, v in value.items()) + "}"
    if type(value).__module__.startswith("cvxnn."):
        return f"cvxnn.{value!r}"
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _snippet(estimator: NetworkEstimator) -> str:
    changed = [f"{name}={value}" for name, value, default in _parameters(estimator) if not default]
    call = f"cvxnn.{type(estimator).__name__}"
    one_line = f"model = {call}({', '.join(changed)})"
    if len(one_line) > 80:
        one_line = "\n".join([f"model = {call}(", *(f"    {part}," for part in changed), ")"])
    return "\n".join(
        [
            "import cvxnn",
            "",
            one_line,
            "model.fit(X, y)  # the training rows, with their sample weights if there were any",
            "print(model.certificate_)",
            'cvxnn.report(model, X, y, "report.html")',
        ]
    )


def _versions() -> tuple[tuple[str, str], ...]:
    return (
        ("cvxnn", cvxnn.__version__),
        ("Python", platform.python_version()),
        *((name, version(name)) for name in _PACKAGES),
    )
