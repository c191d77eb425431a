"""The estimators that choose alpha by cross-validation.

The program of all rows is posed once. It gives the grid of strengths and, at the strength that is
chosen, the final fit. That fit starts from the first fold's solution at this strength: both
programs have the same gates, and nearly the same rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import ClassVar, Self, cast

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import _fit_context, is_classifier
from sklearn.metrics import check_scoring
from sklearn.utils._param_validation import Interval, StrOptions

from cvxnn.arrays import Array
from cvxnn.bounds.base import Units
from cvxnn.budget import Budget
from cvxnn.estimators.base import (
    N_PATTERNS,
    NetworkEstimator,
    Seed,
    Watch,
    public,
    train,
)
from cvxnn.estimators.categories import Categories, Features
from cvxnn.estimators.column_scales import factors_of
from cvxnn.estimators.comparison import Comparison, Grid, Outcome, Part, compare
from cvxnn.estimators.folds import Folds, Split, default_splits, own_splits
from cvxnn.estimators.generating import largest_strength
from cvxnn.estimators.posing import Fit, Member, Posed, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.scores import ScorerOverRanks
from cvxnn.estimators.targets import ClassWeight, Scorer, Targets, mean_log_likelihood
from cvxnn.estimators.tasks import Classification, Regression
from cvxnn.patterns import GateDistribution
from cvxnn.problems import CGReLU, CReLU
from cvxnn.ranks import Ranks
from cvxnn.solvers.base import Solver
from cvxnn.solvers.convergence import ConvergenceWarning

N_ALPHAS, EPS, N_FOLDS = 15, 3e-3, 5
FOLDS_SHARE = 0.7  # of the time limit, for the choice; the final fit has the rest


class CrossValidated(NetworkEstimator):
    """alpha is chosen by cross-validation, on warm-started paths from lambda_max down."""

    alphas: ArrayLike | None
    n_alphas: int
    eps: float
    cv: Folds
    scoring: str | Scorer | None
    rule: str
    average: bool
    n_jobs: int | None

    alphas_: np.ndarray
    scorer_: Scorer
    cv_scores_: np.ndarray
    cv_neurons_: np.ndarray
    best_index_: int
    best_score_: float

    _compares_encodings = True

    _own_constraints: ClassVar[dict[str, list[object]]] = {
        "alphas": ["array-like", None],
        "n_alphas": [Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "scoring": [None, str, callable],
        "rule": [StrOptions({"best", "one_se"})],
        "average": ["boolean"],
        "n_jobs": [None, Integral],
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Choose alpha by cross-validation, then train on all rows.

        X : (n, d) numbers: an array, a DataFrame, or a sparse CSR matrix.
        y : labels, or one number or several for each row.
        sample_weight : (n,) weights of the rows, >= 0; they also weigh the scores.
        """
        train(self, X, y, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def _train(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, watch: Watch
    ) -> Fit:
        self._warn_about_unread()
        clock = self._clock()
        posing, given, targets = self._read(X, y, sample_weight)
        splits = self._splits(given, targets, posing.seed)
        found = self._best_encoding(posing, given, targets, splits, clock, watch)
        self.alphas_, self.cv_scores_ = found.outcome.alphas, found.outcome.scores
        self.cv_neurons_, self.best_index_ = found.outcome.n_active, found.best
        self.best_score_ = found.score
        self.scorer_ = self._scorer(posing.targets)
        fit = self._solve(found.posed, found.rows, found.largest, watch, clock, found.start)
        if self.average:
            self._take_mean(fit, found, clock)
        return fit

    def _best_encoding(
        self,
        posing: Posing,
        given: Rows,
        targets: np.ndarray,
        splits: Sequence[Split],
        clock: Budget,
        watch: Watch,
    ) -> _Choice:
        """The choice on the columns as they are, or where it is better on columns of categories."""

        def choice(posing: Posing, given: Rows, clock: Budget) -> _Choice:
            parts = [Part(given, train, test, targets) for train, test in splits]
            # the choice should not depend on one sampling of patterns; the first fold has that of
            # the final fit, which starts from it
            others = [posing.with_seed_of(k) for k in range(1, len(parts))]
            return self._found(
                _Search(posing, [posing, *others], given.merged(), parts, clock, watch)
            )

        automatic = isinstance(self.categorical_features, str)
        likely = Categories.likely(given.X, given.weight) if automatic else None
        if likely is None:
            return choice(posing, given, clock)
        plain = choice(posing, given, Budget(clock.left / 2))
        encoded = replace(given, X=likely.encode(cast("np.ndarray", given.X)))
        other = choice(posing.with_categories(likely), encoded, clock)
        return other if other.score > plain.score else plain

    def _found(self, search: _Search) -> _Choice:
        """The choice on some columns, in the scales that they are to have."""
        found = self._choose(search)
        if not search.posing.learns_factors:
            return found
        first = self._fit_posed(found.posed, Watch(), search.clock, found.start)
        return self._choose(search.with_factors(factors_of(first.solution), found.factors))

    def _take_mean(self, fit: Fit, found: _Choice, clock: Budget) -> None:
        """Take the mean of the network of all rows and of those of the folds."""
        estimator = self._bare()
        alpha = fit.solution.problem.lam
        fits = Parallel(n_jobs=self.n_jobs)(
            delayed(estimator._fit_posed)(
                posed.at(alpha), Watch(), clock, fold.start(found.best, posed)
            )
            for fold, posed in found.outcome.programs()
        )
        self.members_ = tuple(Member.of(one) for one in (fit, *fits))
        networks = [member.network for member in self.members_]
        self.network_ = type(networks[0]).mean(networks)

    def _choose(self, search: _Search) -> _Choice:
        """Compare strengths on the folds."""
        posing, watch = search.posing, search.watch
        posed = posing.pose(search.rows)
        largest = largest_strength(posed, posing.generates)
        comparison = Comparison(
            self._bare(),
            search.fold_posings,
            posed.numbers.targets,
            self._scorer_over(search.rows.across, posing.targets),
            posing.learns_factors and posing.factors is None,
            watch.on_round,
        )
        outcome = compare(
            comparison,
            self._grid(largest),
            search.parts,
            n_jobs=self.n_jobs,
            clock=Budget(FOLDS_SHARE * search.clock.left),
            on_alpha=watch.on_alpha,
        )
        self._check_reached(outcome)
        best = _best(outcome.scores, self.rule)
        at_best = posed.at(float(outcome.alphas[best]))
        return _Choice(at_best, search.rows, largest, outcome, best)

    def _check_reached(self, found: Outcome) -> None:
        """Alphas that some fold has not reached in time are not compared."""
        reached = len(found.alphas)
        if reached == 0:
            raise ValueError(
                f"max_seconds={self.max_seconds:g} is too short to choose alpha: not one was "
                "compared in all folds; raise it, take fewer folds, or give one alpha"
            )
        if found.out_of_time:
            warnings.warn(
                f"max_seconds ended the folds: alpha is chosen from the {reached} largest alone; "
                "raise max_seconds",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _bare(self) -> Self:
        """A copy for a worker: without what an earlier fit has left, and without column names,
        because the rows of folds are arrays."""
        other = copy(self)
        for name in [name for name in vars(self) if name.endswith("_") or name == "_start"]:
            delattr(other, name)
        return other

    def _splits(self, given: Rows, y: np.ndarray, seed: int | None) -> list[Split]:
        if self.cv is None or isinstance(self.cv, Integral):
            n_folds = int(self.cv or N_FOLDS)
            return list(default_splits(given, n_folds, seed, is_classifier(self)))
        return list(own_splits(self.cv, given, y))

    def _scorer(self, targets: Targets) -> Scorer:
        if self.scoring is None:
            return targets.default_scorer
        if self.scoring == "neg_log_loss":  # scikit-learn's own needs all classes in every fold
            return mean_log_likelihood
        return check_scoring(self, scoring=self.scoring)

    def _scorer_over(self, across: Ranks, targets: Targets) -> Scorer:
        scorer = self._scorer(targets)
        if across.size == 1:
            return scorer
        name = targets.default_score if self.scoring is None else self.scoring
        return ScorerOverRanks(scorer, name if isinstance(name, str) else None)

    def _check_sharded(self) -> None:
        super()._check_sharded()
        if self.n_jobs not in (None, 1):
            raise ValueError(
                f"n_jobs={self.n_jobs} is for rows in one process; with rows in several, these "
                "train one fold after another together"
            )

    def _grid(self, largest: float) -> Grid:
        if self.alphas is None:
            return Grid.below(largest, self.n_alphas, self.eps)
        grid = np.sort(np.asarray(self.alphas, dtype=np.float64).reshape(-1))[::-1]
        if len(grid) == 0 or not np.all(np.isfinite(grid)) or grid[-1] <= 0:
            raise ValueError("alphas must be positive numbers")
        return Grid(given=tuple(grid.tolist()))


@dataclass(frozen=True, eq=False)
class _Search:
    """What strengths are compared on.

    posing, fold_posings : of the program of all rows, and of the folds.
    rows, parts : distinct rows, and those of each fold.
    """

    posing: Posing
    fold_posings: Sequence[Posing]
    rows: Rows
    parts: Sequence[Part]
    clock: Budget
    watch: Watch

    def with_factors(self, factors: np.ndarray, of_folds: Sequence[np.ndarray | None]) -> _Search:
        """The same on columns in the scales that first fits have learned."""
        posings = zip(self.fold_posings, of_folds, strict=True)
        return replace(
            self,
            posing=self.posing.with_factors(factors),
            fold_posings=[posing.with_factors(own) for posing, own in posings],
        )


@dataclass(frozen=True, eq=False)
class _Choice:
    """The program of all rows at the strength that was chosen.

    rows : these rows.
    largest : its lambda_max.
    best : the place of the strength among those compared.
    """

    posed: Posed
    rows: Rows
    largest: float
    outcome: Outcome
    best: int

    @property
    def score(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.outcome.scores[:, self.best]))

    @property
    def start(self) -> Array | Units | None:
        """Where the fit on all rows starts: from the first fold, which has the same gates."""
        return self.outcome.folds[0].start(self.best, self.posed)

    @property
    def factors(self) -> list[np.ndarray | None]:
        """What the folds have learned about their columns."""
        return [fold.points[self.best].factors for fold in self.outcome.folds]


def _best(scores: np.ndarray, rule: str) -> int:
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
        average: bool = False,
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "squared",
        huber_delta: float = 1.35,
        fit_intercept: bool = True,
        scale: bool = True,
        feature_scaling: str = "unit",
        categorical_features: Features = None,
        n_components: int | None = None,
        gates: GateDistribution | None = None,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        prove: bool | str = False,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        max_memory: str | int | None = None,
        device: str | None = None,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Seed = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.average = average
        self.n_jobs = n_jobs
        self.patterns = patterns
        self.n_patterns = n_patterns
        self.loss = loss
        self.huber_delta = huber_delta
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.feature_scaling = feature_scaling
        self.categorical_features = categorical_features
        self.n_components = n_components
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.prove = prove
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.device = device
        self.warm_start = warm_start
        self.verbose = verbose
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
        average: bool = False,
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "log",
        class_weight: ClassWeight = None,
        fit_intercept: bool = True,
        scale: bool = True,
        feature_scaling: str = "unit",
        categorical_features: Features = None,
        n_components: int | None = None,
        gates: GateDistribution | None = None,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        prove: bool | str = False,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        max_memory: str | int | None = None,
        device: str | None = None,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: Seed = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.average = average
        self.n_jobs = n_jobs
        self.patterns = patterns
        self.n_patterns = n_patterns
        self.loss = loss
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.feature_scaling = feature_scaling
        self.categorical_features = categorical_features
        self.n_components = n_components
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.prove = prove
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.max_memory = max_memory
        self.device = device
        self.warm_start = warm_start
        self.verbose = verbose
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
