"""The estimators that choose alpha by cross-validation.

The program of all rows is posed once. It gives the grid of strengths and, at the strength that is
chosen, the final fit. That fit starts from the first fold's solution at this strength: both
programs have the same gates, and nearly the same rows. An ensemble is made of such choices: see
`ensembles`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar, Self, cast

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import _fit_context, is_classifier
from sklearn.metrics import check_scoring
from sklearn.utils._param_validation import Interval, StrOptions

from cvxnn.arrays import Array, is_stored
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
from cvxnn.estimators.choices import Choice, Search, networks_of, share_of
from cvxnn.estimators.column_scales import factors_of
from cvxnn.estimators.comparison import Comparison, Grid, Outcome, Part, compare
from cvxnn.estimators.ensembles import (
    FOLDS,
    SPARSE,
    VARIANTS,
    ProvenMember,
    mean_of,
    shares_of,
)
from cvxnn.estimators.folds import Folds, Split, default_splits, own_splits
from cvxnn.estimators.generating import largest_strength
from cvxnn.estimators.posing import Fit, Posed, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.scores import ScorerOverRanks
from cvxnn.estimators.targets import ClassWeight, Scorer, Targets, mean_log_likelihood
from cvxnn.estimators.tasks import Classification, Regression
from cvxnn.gates import GateDistribution
from cvxnn.problems import CGReLU, CReLU
from cvxnn.sharded import is_sharded
from cvxnn.solvers.base import Solver
from cvxnn.solvers.convergence import ConvergenceWarning
from cvxnn.solvers.results import Start, Status

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
    ensemble: str | None
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
        "ensemble": [None, StrOptions({FOLDS, VARIANTS})],
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
        if self.ensemble is not None and is_sharded(X):
            raise TypeError(
                f"ensemble={self.ensemble!r} needs all rows in one process: leave it out, or train "
                "on a sample"
            )
        if self.ensemble is not None and is_stored(given.X):
            raise ValueError(
                f"ensemble={self.ensemble!r} needs rows in memory: raise max_memory, or do without"
            )
        splits = self._splits(given, targets, posing.seed)
        varied = self.ensemble == VARIANTS
        first = share_of(clock, 1 / 3) if varied else clock
        found = self._best_encoding(posing, given, targets, splits, first, watch)
        ranked = self._ranked(found, clock) if varied else [(found, 1.0)]
        found = ranked[0][0]
        self.alphas_, self.cv_scores_ = found.outcome.alphas, found.outcome.scores
        self.cv_neurons_, self.best_index_ = found.outcome.n_active, found.best
        self.best_score_ = found.score
        self.scorer_ = self._scorer(posing.targets)
        own = clock if self.ensemble is None else share_of(clock, 1 / 2)
        fit = self._solve(found.posed, found.rows, found.largest, watch, own, found.start)
        if self.ensemble is None or fit.solution.status is Status.INTERRUPTED:
            return fit
        return self._with_mean(fit, ranked, clock)

    def _best_encoding(
        self,
        posing: Posing,
        given: Rows,
        targets: np.ndarray,
        splits: Sequence[Split],
        clock: Budget,
        watch: Watch,
    ) -> Choice:
        """The choice on the columns as they are, or where it is better on columns of categories."""

        def choice(posing: Posing, given: Rows, clock: Budget) -> Choice:
            parts = [Part(given, train, test, targets) for train, test in splits]
            # the choice should not depend on one sampling of patterns; the first fold has that of
            # the final fit, which starts from it
            others = [posing.with_seed_of(k) for k in range(1, len(parts))]
            return self._found(
                Search(posing, [posing, *others], given.merged(), parts, clock, watch)
            )

        automatic = isinstance(self.categorical_features, str)
        likely = Categories.likely(given.X, given.weight) if automatic else None
        if likely is None:
            return choice(posing, given, clock)
        plain = choice(posing, given, Budget(clock.left / 2))
        encoded = replace(given, X=likely.encode(cast("np.ndarray", given.X)))
        other = choice(posing.with_categories(likely), encoded, clock)
        return other if other.score > plain.score else plain

    def _found(self, search: Search) -> Choice:
        """The choice on some columns, in the scales that they are to have."""
        found = self._choose(search)
        if not search.posing.learns_factors:
            return found
        first = self._fit_posed(found.posed, Watch(), search.clock, found.start)
        return self._choose(search.with_factors(factors_of(first.solution), found.factors))

    def _ranked(self, found: Choice, clock: Budget) -> list[tuple[Choice, float]]:
        """The choices of all variants with their shares, the best first, but for those that have
        next to none. The first variant is the one that was found."""
        choices = [*self._variants(found, clock)]
        search = found.search
        n_rows = int(np.count_nonzero(search.parts[0].rows.weight > 0))
        losses = [choice.outcome.loss(choice.best) for choice in choices]
        shares = shares_of(losses, n_rows, search.posing.targets)
        order = np.argsort(-shares, kind="stable")
        return [(choices[k], float(shares[k])) for k in order if shares[k] > 0]

    def _variants(self, found: Choice, clock: Budget) -> Iterator[Choice]:
        """The choice that was found, and those of variants on its columns."""
        search, posing = found.search, found.search.posing
        if posing.has_scales and posing.factors is None:
            fit = self._fit_posed(found.posed, Watch(), search.clock, found.start)
            yield replace(found, fitted=fit)
            learned = search.with_factors(factors_of(fit.solution), found.factors)
            yield self._choose(replace(learned, clock=share_of(clock, 1 / 2)))
        else:
            yield found
        if not posing.generates and search.rows.X.shape[1] > SPARSE.n_features:
            yield self._choose(replace(search.with_gates(SPARSE), clock=clock))

    def _with_mean(self, fit: Fit, ranked: Sequence[tuple[Choice, float]], clock: Budget) -> Fit:
        """Take the mean of the networks of all rows and of those of the folds, of one choice or of
        several; `fit` is the first of them."""
        tasks = [task for choice, share in ranked for task in networks_of(choice, share)]
        estimator = self._bare()
        estimator.prove = False  # that is for the network of all rows
        try:
            others = Parallel(n_jobs=self.n_jobs)(
                delayed(estimator._member)(
                    posed := task.posed(),
                    task.start(posed),
                    task.share,
                    task.places,
                    share_of(clock, 1 / (len(tasks) - k)).seconds,
                )
                for k, task in enumerate(tasks)
                if k > 0
            )
        except KeyboardInterrupt:
            warnings.warn(
                "interrupted before the networks of the ensemble were there: the model is the "
                "network of all rows",
                ConvergenceWarning,
                stacklevel=5,
            )
            return fit
        members = (ProvenMember.of(fit, tasks[0].share, None), *others)
        self.members_ = tuple(member.plain for member in members)
        self.network_ = mean_of(members)
        unmet = [m.certificate.relative_gap for m in others if not m.converged]
        if unmet:
            self.converged_ = False
            warnings.warn(
                f"{len(unmet)} of the {len(members)} networks of the ensemble did not converge: "
                f"their relative duality gaps are up to {max(unmet):.2g}, tol={self.tol:g} was "
                "asked for; raise max_seconds, max_iter, tol or alpha",
                ConvergenceWarning,
                stacklevel=5,
            )
        return replace(fit, members=members)

    def _member(
        self,
        posed: Posed,
        start: Array | Start | Units | None,
        share: float,
        places: np.ndarray | None,
        seconds: float,
    ) -> ProvenMember:
        fit = self._fit_posed(posed, Watch(), Budget(seconds), start)
        if fit.solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return ProvenMember.of(fit, share, places)

    def _choose(self, search: Search) -> Choice:
        """Compare strengths on the folds."""
        posing, watch = search.posing, search.watch
        posed = posing.pose(search.rows)
        largest = largest_strength(posed, posing.generates)
        comparison = Comparison(
            self._bare(),
            search.fold_posings,
            posed.numbers.targets,
            self._scorer_of(search.rows, posing.targets),
            self._asks_for_factors(posing),
            self.ensemble == VARIANTS,
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
        return Choice(at_best, search, largest, outcome, best)

    def _asks_for_factors(self, posing: Posing) -> bool:
        """Whether folds say what their columns are to be multiplied by, for a second comparison."""
        wanted = posing.learns_factors or (self.ensemble == VARIANTS and posing.has_scales)
        return wanted and posing.factors is None

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

    def _scorer_of(self, rows: Rows, targets: Targets) -> Scorer:
        scorer = self._scorer(targets)
        if not is_sharded(rows.X):
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
        ensemble: str | None = None,
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "squared",
        huber_delta: float = 1.35,
        fit_intercept: bool = True,
        scale: bool = True,
        feature_scaling: str = "unit",
        categorical_features: Features = "auto",
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
        self.ensemble = ensemble
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
        ensemble: str | None = None,
        n_jobs: int | None = None,
        patterns: str = "sample",
        n_patterns: int = N_PATTERNS,
        loss: str = "log",
        class_weight: ClassWeight = None,
        fit_intercept: bool = True,
        scale: bool = True,
        feature_scaling: str = "unit",
        categorical_features: Features = "auto",
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
        self.ensemble = ensemble
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
