"""The estimators that choose alpha by cross-validation.

The program of all rows is posed once. It gives the grid of strengths and, at the strength that is
chosen, the final fit. That fit starts from the first fold's solution at this strength: both
programs have the same gates, and nearly the same rows.

A row goes into one fold with its whole weight. Equal rows may go into different folds: in a table
whose rows repeat, new rows will repeat training rows as well, and the folds should show that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import _fit_context, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils._param_validation import Interval, StrOptions

from cvxnn.bounds.base import Units
from cvxnn.estimators.base import (
    N_PATTERNS,
    Classification,
    NetworkEstimator,
    Regression,
    Seed,
    Watch,
    public,
    take,
)
from cvxnn.estimators.generating import (
    largest_strength,
    neurons_of,
    path_options,
    seconds_of_a_fold,
)
from cvxnn.estimators.posing import Fit, Neurons, Posing
from cvxnn.estimators.rows import Rows, Scaling
from cvxnn.estimators.targets import (
    ClassWeight,
    Scorer,
    Targets,
    mean_log_likelihood,
    predicted_classes,
)
from cvxnn.generation.rounds import Round
from cvxnn.paths import path
from cvxnn.patterns import GateDistribution
from cvxnn.problems import CGReLU, CReLU
from cvxnn.solvers.base import Solver
from cvxnn.solvers.convergence import ConvergenceWarning

if TYPE_CHECKING:
    from sklearn.model_selection import BaseCrossValidator

N_ALPHAS, EPS, N_FOLDS = 15, 3e-3, 5
MIN_LOSS = 1e-3  # a path ends below this share of the zero model's loss: little is left to fit

Fold: TypeAlias = tuple[np.ndarray, np.ndarray]  # the rows to train on, and those to test on
Folds: TypeAlias = "int | BaseCrossValidator | Iterable[Fold] | None"


class CrossValidated(NetworkEstimator):
    """alpha is chosen by cross-validation, on warm-started paths from lambda_max down."""

    alphas: ArrayLike | None
    n_alphas: int
    eps: float
    cv: Folds
    scoring: str | Scorer | None
    rule: str
    n_jobs: int | None

    alphas_: np.ndarray
    scorer_: Scorer
    cv_scores_: np.ndarray
    cv_neurons_: np.ndarray
    best_index_: int
    best_score_: float

    _own_constraints: ClassVar[dict[str, list[object]]] = {
        "alphas": ["array-like", None],
        "n_alphas": [Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "scoring": [None, str, callable],
        "rule": [StrOptions({"best", "one_se"})],
        "n_jobs": [None, Integral],
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Choose alpha by cross-validation, then train on all rows.

        X : (n, d) numbers: an array, a DataFrame, or a sparse CSR matrix.
        y : labels, or one number or several for each row.
        sample_weight : (n,) weights of the rows, >= 0; they also weigh the scores.
        """
        self._train(X, y, sample_weight, Watch())
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def _train(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, watch: Watch
    ) -> Fit:
        self._warn_about_unread()
        clock = self._clock()
        posing, given, targets = self._read(X, y, sample_weight)
        rows = given.merged()
        posed = posing.pose(rows)
        largest = largest_strength(posed, posing.generates)
        alphas = self._grid(largest)
        scorer = self._scorer(posing.targets)
        folds = self._folds(given, targets, posing.seed)
        comparison = _Comparison(self._bare(), posing, posed.numbers.targets, alphas, scorer)
        if posing.generates:
            jobs = effective_n_jobs(self.n_jobs)
            seconds = seconds_of_a_fold(clock, len(folds), jobs)
            on_round = watch.on_round if jobs == 1 else None  # other processes cannot tell
            comparison = replace(comparison, seconds=seconds, on_round=on_round)
        results = self._over_folds(comparison, given, targets, folds, watch)
        reached = min(len(result.scores) for result in results)
        self._check_reached(reached, len(alphas))
        self.alphas_, self.scorer_ = alphas[:reached], scorer
        self.cv_scores_ = np.array([result.scores[:reached] for result in results])
        self.cv_neurons_ = np.array([result.n_active[:reached] for result in results])
        self.best_index_ = best = _choose(self.cv_scores_, self.rule)
        self.best_score_ = float(np.mean(self.cv_scores_[:, best]))
        posed = posed.at(float(alphas[best]))
        found = results[0].neurons[best]
        start = found.weights(posed.problem) if isinstance(found, Neurons) else found
        return self._solve(posed, rows, largest, watch, clock, start)

    def _check_reached(self, reached: int, wanted: int) -> None:
        """Alphas that some fold has not reached in time are not compared."""
        if reached == 0:
            raise ValueError(
                f"max_seconds={self.max_seconds:g} is too short to choose alpha: not one was "
                "compared in all folds; raise it, take fewer folds, or give one alpha"
            )
        if reached < wanted:
            warnings.warn(
                f"max_seconds ended the folds: alpha is chosen from the {reached} largest of "
                f"{wanted}; raise max_seconds",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _bare(self) -> Self:
        """A copy for a worker: without what an earlier fit has left, and without column names,
        because the rows of folds are arrays."""
        other = copy(self)
        for name in [name for name in vars(self) if name.endswith("_") or name == "_start"]:
            delattr(other, name)
        return other

    def _folds(self, given: Rows, y: np.ndarray, seed: int | None) -> list[Fold]:
        if self.cv is None or isinstance(self.cv, Integral):
            n_folds = int(self.cv or N_FOLDS)
            return list(_default_folds(given, n_folds, seed, is_classifier(self)))
        return list(_own_folds(self.cv, given, y))

    def _over_folds(
        self,
        comparison: _Comparison,
        given: Rows,
        y: np.ndarray,
        folds: list[Fold],
        watch: Watch,
    ) -> list[_Result]:
        """The results of all folds, in their order."""
        # not every back end of joblib can return results one by one: ask for it only if needed
        return_as = "list" if watch.on_fold is None else "generator"
        results = []
        for result in Parallel(n_jobs=self.n_jobs, return_as=return_as)(
            delayed(comparison.on)(given.select(train), given.select(test), y[test])
            for train, test in folds
        ):
            results.append(result)
            if watch.on_fold is not None:
                watch.on_fold(len(results), len(folds))
        return results

    def _scorer(self, targets: Targets) -> Scorer:
        if self.scoring is None:
            return targets.default_scorer
        if self.scoring == "neg_log_loss":  # scikit-learn's own needs all classes in every fold
            return mean_log_likelihood
        return check_scoring(self, scoring=self.scoring)

    def _grid(self, largest: float) -> np.ndarray:
        if self.alphas is not None:
            grid = np.sort(np.asarray(self.alphas, dtype=np.float64).reshape(-1))[::-1]
            if len(grid) == 0 or not np.all(np.isfinite(grid)) or grid[-1] <= 0:
                raise ValueError("alphas must be positive numbers")
            return grid.copy()
        if largest == 0:
            return np.array([1.0])
        return np.geomspace(largest, self.eps * largest, self.n_alphas + 1)[1:]


def _default_folds(rows: Rows, n_folds: int, seed: int | None, stratified: bool) -> Iterator[Fold]:
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
            stacklevel=6,
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


def _own_folds(
    cv: BaseCrossValidator | Iterable[Fold], rows: Rows, y: np.ndarray
) -> Iterator[Fold]:
    """The folds of a user's splitter, which sees the rows as they were given."""
    for train, test in check_cv(cv).split(rows.X, y):
        train, test = np.asarray(train), np.asarray(test)
        yield train[rows.weight[train] > 0], test[rows.weight[test] > 0]


@dataclass(frozen=True, eq=False)
class _Result:
    """What one fold gives for each alpha: the score, the number of neurons, and these neurons. If a
    path ends early, with nothing left to fit, its last point stands for the rest; if its time is
    over, they are left out."""

    scores: list[float]
    n_active: list[int]
    neurons: list[Neurons | Units | None]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """A comparison of many alphas on one fold at a time, which may run in another process.

    estimator : the one to be scored; each alpha gives a copy of it another network.
    units : how targets are scaled, in every fold as in the final fit.
    seconds, on_round : of a path over generated patterns, which is all that they are for.
    """

    estimator: NetworkEstimator
    posing: Posing
    units: Scaling
    alphas: np.ndarray
    scorer: Scorer
    seconds: float | None = None
    on_round: Callable[[Round], object] | None = None

    def on(self, train: Rows, test: Rows, y: np.ndarray) -> _Result:
        """Follow a path on the training rows, and score its points on the test rows, whose targets
        are y before encoding."""
        posed = self.posing.pose(train.merged(), targets=self.units)
        options = path_options(self.estimator, self.posing.seed)
        if self.posing.generates:
            options["on_round"] = self.on_round
        points = path(
            posed.problem,
            lams=self.alphas,
            tol=self.estimator.tol,
            solver=self.estimator.solver,
            min_loss=MIN_LOSS,
            on_failure="ignore",
            max_seconds=self.seconds,
            **options,
        )
        if points.interrupted:
            raise KeyboardInterrupt  # the path has kept some points, but a choice needs them all
        scores = []
        for point in points:
            candidate = copy(self.estimator)
            take(candidate, Fit(posed, point))
            candidate._validated_rows = test.X
            scores.append(self.scorer(candidate, test.X, y, sample_weight=test.weight))
        n_rest = 0 if points.out_of_time else len(self.alphas) - len(points)
        last = [*range(len(points)), *[-1] * n_rest]
        n_active = points.n_active.tolist()
        handed_on = neurons_of if self.posing.generates else Neurons.of
        neurons = [handed_on(point) for point in points]
        return _Result(
            [scores[k] for k in last], [n_active[k] for k in last], [neurons[k] for k in last]
        )


def _choose(scores: np.ndarray, rule: str) -> int:
    """The alpha with the best mean score, or the largest one within a standard error of that."""
    mean = scores.mean(axis=0)
    best = int(np.argmax(mean))
    if rule == "best" or len(scores) < 2:
        return best
    error = scores[:, best].std(ddof=1) / np.sqrt(len(scores))
    return int(np.flatnonzero(mean >= mean[best] - error)[0])


class _RegressorCV(Regression, CrossValidated):
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **Regression._parameter_constraints,
        **CrossValidated._own_constraints,
    }

    def __init__(
        self,
        *,
        alphas: ArrayLike | None = None,
        n_alphas: int = N_ALPHAS,
        eps: float = EPS,
        cv: Folds = None,
        scoring: str | Scorer | None = None,
        rule: str = "best",
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "squared",
        huber_delta: float = 1.35,
        fit_intercept: bool = True,
        scale: bool = True,
        n_components: int | None = None,
        gates: GateDistribution | None = None,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        prove: bool | str = False,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        max_memory: str | int | None = None,
        warm_start: bool = False,
        random_state: Seed = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.patterns = patterns
        self.n_patterns = n_patterns
        self.loss = loss
        self.huber_delta = huber_delta
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.n_components = n_components
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.prove = prove
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.warm_start = warm_start
        self.random_state = random_state


class _ClassifierCV(Classification, CrossValidated):
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **Classification._parameter_constraints,
        **CrossValidated._own_constraints,
    }

    def __init__(
        self,
        *,
        alphas: ArrayLike | None = None,
        n_alphas: int = N_ALPHAS,
        eps: float = EPS,
        cv: Folds = None,
        scoring: str | Scorer | None = None,
        rule: str = "best",
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "log",
        class_weight: ClassWeight = None,
        fit_intercept: bool = True,
        scale: bool = True,
        n_components: int | None = None,
        gates: GateDistribution | None = None,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        prove: bool | str = False,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        max_memory: str | int | None = None,
        warm_start: bool = False,
        random_state: Seed = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.patterns = patterns
        self.n_patterns = n_patterns
        self.loss = loss
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.n_components = n_components
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.prove = prove
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.warm_start = warm_start
        self.random_state = random_state


@public
class ReLURegressorCV(_RegressorCV):
    _problem = CReLU


@public
class ReLUClassifierCV(_ClassifierCV):
    _problem = CReLU


@public
class GatedReLURegressorCV(_RegressorCV):
    _problem = CGReLU


@public
class GatedReLUClassifierCV(_ClassifierCV):
    _problem = CGReLU
