"""scikit-learn estimators: they validate, encode, scale and delegate.

    raw rows -> rows that count, merged and scaled -> patterns -> problem -> solve -> network

The convex program is posed on columns of zero mean and unit variance and, for regression, on
targets of that kind, so that `alpha` means the same for all data. The network is mapped back: it
takes raw rows and gives raw outputs.

Rows that occur more than once are merged and their weights added, and rows of weight zero are left
out, before anything depends on them. So a weight of two is a row given twice, to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed
from scipy.special import expit, softmax
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    _fit_context,
    is_classifier,
)
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import check_random_state, compute_sample_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from cvxnn.cones.singular import PatternWarning
from cvxnn.estimators.docs import describe
from cvxnn.estimators.rows import Rows, Scaling
from cvxnn.networks import TwoLayerNetwork
from cvxnn.paths import path
from cvxnn.patterns import Patterns, sample_patterns, warn_about_small
from cvxnn.problems import CGReLU, ConvexProblem, CReLU, lambda_max
from cvxnn.solvers import Solution, Status, solve
from cvxnn.solvers.convergence import ConvergenceWarning

N_PATTERNS = 500
ALPHA = 1e-2
N_ALPHAS, EPS, N_FOLDS = 15, 3e-3, 5
MIN_LOSS = 1e-3  # of the zero model's, below which nothing is left to fit


# -- what all estimators share


class _NetworkEstimator(BaseEstimator):
    """Parameters, fitting and prediction; subclasses say which problem, and what targets are."""

    _problem: ClassVar[Any]  # CGReLU or CReLU
    # who wants to know how far a fit is: called with the solver's progress, and with the number
    # of folds done and their total
    _on_iteration: Callable[[Any], object] | None = None
    _on_fold: Callable[[int, int], object] | None = None
    _column_names: Sequence[str] | None = None  # for messages, where X has none

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_patterns": [Interval(Integral, 1, None, closed="left")],
        "fit_intercept": ["boolean"],
        "scale": ["boolean"],
        "gates": [None, object],
        "solver": [str, object],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [None, Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=True,
            y_numeric=isinstance(self, RegressorMixin),
            ensure_min_samples=2,
        )

    def _scores(self, X: Any) -> np.ndarray:
        """The outputs of the network for raw rows, validated."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.network_.predict(X)

    def _scaling(self, rows: Rows) -> Scaling:
        if not self.scale:
            return Scaling.none(rows.X.shape[1])
        return Scaling.of(rows.X, rows.weight, self.fit_intercept).of_columns()

    def _pose(
        self, rows: Rows, alpha: float, patterns: Patterns | None = None
    ) -> tuple[ConvexProblem, Scaling]:
        """The convex program of scaled rows, over given patterns or sampled ones."""
        scaling = self._scaling(rows)
        X = scaling.apply(rows.X)
        if patterns is None:
            patterns = sample_patterns(
                X,
                self.n_patterns,
                gates=self.gates,
                bias=self.fit_intercept,
                random_state=self._seed,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=PatternWarning)  # replaced, as is right
            problem = self._problem(
                X,
                rows.Y,
                patterns,
                alpha,
                bias=self.fit_intercept,
                output_bias=self.fit_intercept,
                sample_weight=rows.weight,
                **self._loss_settings(rows.Y),
            )
        return problem, scaling

    def _unread(self: Any) -> Iterator[tuple[str, str]]:
        """Parameters that others make meaningless, and why."""
        if getattr(self, "huber_delta", None) is not None and self.loss != "huber":
            yield "huber_delta", f"loss={self.loss!r} has no threshold"
        if getattr(self, "alphas", None) is not None:
            yield from ((name, "alphas is the grid itself") for name in ("n_alphas", "eps"))

    def _warn_about_unread(self) -> None:
        """A grid of settings may well go over some that others make meaningless, so that they are
        no error here; those at their default need not have been given."""
        defaults = signature(type(self).__init__).parameters
        for name, why in self._unread():
            if getattr(self, name) != defaults[name].default:
                message = f"{name} is given, but {type(self).__name__} does not read it: {why}"
                warnings.warn(message, UserWarning, stacklevel=4)

    def _solve(self, problem: ConvexProblem, start: Any = None) -> Solution:
        solution = solve(
            problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            warm_start=start,
            callback=self._on_iteration,
            on_failure="ignore",
        )
        if not solution.converged:
            _warn_about(solution, self)
        return solution

    def _fit_rows(self, rows: Rows, alpha: float) -> None:
        problem, scaling = self._pose(rows, alpha)
        if self.scale:
            names = getattr(self, "feature_names_in_", self._column_names)
            warn_about_small(rows.X, scaling.spread, names, stacklevel=5)
        previous = getattr(self, "solution_", None) if self.warm_start else None
        if previous is not None and previous.problem.weight_shape != problem.weight_shape:
            previous = None
        solution = self._solve(problem, previous)
        self.lambda_max_ = lambda_max(problem)
        if solution.n_active == 0:
            _warn_about_zero(solution, self.lambda_max_)
        self._take(solution, scaling)
        self.solution_ = solution

    def _take(self, solution: Solution, scaling: Scaling) -> None:
        """The attributes of a fit."""
        self._columns = scaling
        self.network_: TwoLayerNetwork = self._finished(scaling.undo(solution.network()))
        self.certificate_ = solution.certificate
        self.alpha_ = solution.problem.lam
        self.n_iter_ = max(solution.n_iter, 1)
        self.converged_ = solution.converged
        self.history_ = solution.history
        self.n_patterns_ = len(solution.problem.patterns)

    def _finished(self, network: TwoLayerNetwork) -> TwoLayerNetwork:
        """The network in the units of the raw targets."""
        return network

    def _loss_settings(self, Y: np.ndarray) -> dict[str, Any]:
        raise NotImplementedError


def _warn_about(solution: Solution, estimator: Any) -> None:
    gap, tol = solution.certificate.relative_gap, estimator.tol
    advice = {
        Status.MAX_ITER: "raise max_iter or tol, or alpha",
        Status.INTERRUPTED: "it was interrupted, and this is the best point until then",
    }.get(solution.status, "raise tol or alpha")
    warnings.warn(
        f"{type(estimator).__name__} did not converge: its relative duality gap is {gap:.2g}, "
        f"tol={tol:g} was asked for; {advice}",
        ConvergenceWarning,
        stacklevel=4,
    )


def _warn_about_zero(solution: Solution, largest: float) -> None:
    alpha, gap = solution.problem.lam, solution.certificate.relative_gap
    if largest == 0:
        message = "the targets do not depend on X: the model is constant"
    elif alpha >= largest:
        message = (
            f"all neurons are zero: alpha = {alpha:.4g} is not below lambda_max = {largest:.4g}, "
            "where the constant model is optimal; take a smaller alpha"
        )
    elif solution.converged:
        message = (
            f"all neurons are zero: the constant model is within tol, its relative duality gap is "
            f"{gap:.2g}; take a smaller tol or alpha"
        )
    else:  # which has been warned about
        return
    warnings.warn(message, UserWarning, stacklevel=5)


class _Regression(RegressorMixin):
    """Targets are scaled by their spread; the intercept takes care of their mean."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_NetworkEstimator._parameter_constraints,
        "loss": [StrOptions({"squared", "huber"})],
        "huber_delta": [Interval(Real, 0, None, closed="neither")],
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _rows(self: Any, X: Any, y: Any, sample_weight: Any) -> Rows:
        rows = self._raw_rows(X, y, sample_weight)
        self._targets = self._target_scaling(rows)
        return replace(rows, Y=self._targets.apply(rows.Y))

    def _raw_rows(self: Any, X: Any, y: Any, sample_weight: Any) -> Rows:
        X, y = self._validated(X, y)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if not np.any(weight > 0):
            raise ValueError("sample_weight is zero for all samples")
        self._flat = y.ndim == 1
        return Rows(X, y.reshape(len(y), -1).astype(np.float64), weight)

    def _target_scaling(self: Any, rows: Rows) -> Scaling:
        if not self.scale:
            return Scaling.none(rows.Y.shape[1])
        merged = rows.merged()
        return Scaling.of(merged.Y, merged.weight, self.fit_intercept)

    def _loss_settings(self: Any, Y: np.ndarray) -> dict[str, Any]:
        delta = {"huber_delta": self.huber_delta} if self.loss == "huber" else {}
        return {"loss": self.loss, **delta}

    def _finished(self: Any, network: Any) -> Any:
        return replace(self._targets.undo_outputs(network), flat_output=self._flat)

    def _raw_targets(self: Any, Y: np.ndarray) -> np.ndarray:
        raw = Y * self._targets.spread + self._targets.mean
        return raw[:, 0] if self._flat else raw

    def _default_scorer(self) -> Any:
        return get_scorer("r2")

    def predict(self: Any, X: Any) -> np.ndarray:
        """The outputs of the network: (n,), or (n, C) if there were several targets."""
        return self._scores(X)


class _Classification(ClassifierMixin):
    """Labels become -1 and 1, or one-hot rows for more than two classes."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_NetworkEstimator._parameter_constraints,
        "loss": [StrOptions({"log", "squared"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def _rows(self: Any, X: Any, y: Any, sample_weight: Any) -> Rows:
        return self._raw_rows(X, y, sample_weight)

    def _target_scaling(self: Any, rows: Rows) -> Scaling:
        return Scaling.none(rows.Y.shape[1])

    def _raw_rows(self: Any, X: Any, y: Any, sample_weight: Any) -> Rows:
        X, y = self._validated(X, column_or_1d(y, warn=True))
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.classes_ = np.unique(y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but y has one class"
                + (" with positive sample_weight" if len(np.unique(y)) > 1 else "")
            )
        known = np.isin(y, self.classes_)  # a class of weight zero is none
        X, y, weight = X[known], y[known], weight[known]
        if self.class_weight is not None:
            counted = weight > 0
            weight = weight.copy()
            weight[counted] *= compute_sample_weight(self.class_weight, y[counted])
        labels = np.searchsorted(self.classes_, y)
        return Rows(X, _encoded(labels, len(self.classes_)), weight)

    def _loss_settings(self: Any, Y: np.ndarray) -> dict[str, Any]:
        if self.loss == "squared":
            return {"loss": "squared"}
        return {"loss": "logistic" if Y.shape[1] == 1 else "softmax"}

    def _finished(self: Any, network: Any) -> Any:
        return replace(network, flat_output=len(self.classes_) == 2)

    def _raw_targets(self: Any, Y: np.ndarray) -> np.ndarray:
        return self.classes_[_labels(Y)]

    def _default_scorer(self: Any) -> Any:
        return _mean_log_likelihood if self.loss == "log" else get_scorer("accuracy")

    def decision_function(self, X: Any) -> np.ndarray:
        """The outputs of the network: (n,) for two classes, positive for the second one, else
        (n, C). With the log-loss they are logits."""
        return self._scores(X)

    def predict(self: Any, X: Any) -> np.ndarray:
        scores = self._scores(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    def _has_probabilities(self: Any) -> bool:
        if self.loss == "log":
            return True
        raise AttributeError("probabilities need loss='log'; the scores of loss='squared' are none")

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes: (n, C)."""
        scores = self._scores(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        scores = self._scores(X)
        if scores.ndim == 1:
            return -np.logaddexp(0.0, np.column_stack([scores, -scores]))
        shifted = scores - scores.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _encoded(labels: np.ndarray, n_classes: int) -> np.ndarray:
    if n_classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, None]
    return np.eye(n_classes)[labels]


class _Plain(_NetworkEstimator):
    """One value of alpha."""

    _own_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")]
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train the network.

        X : (n, d) numbers: an array, a DataFrame, or a sparse CSR matrix.
        y : labels, or one number or several for each row.
        sample_weight : (n,) weights of the rows, >= 0.
        """
        self._warn_about_unread()
        self._fit_rows(self._rows(X, y, sample_weight).merged(), self.alpha)
        return self


class _PlainRegressor(_Regression, _Plain):
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_Regression._parameter_constraints,
        **_Plain._own_constraints,
    }

    def __init__(
        self,
        alpha: float = ALPHA,
        *,
        n_patterns: int = N_PATTERNS,
        loss: str = "squared",
        huber_delta: float = 1.35,
        fit_intercept: bool = True,
        scale: bool = True,
        gates: Any = None,
        solver: Any = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.alpha = alpha
        self.n_patterns = n_patterns
        self.loss = loss
        self.huber_delta = huber_delta
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state


class _PlainClassifier(_Classification, _Plain):
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_Classification._parameter_constraints,
        **_Plain._own_constraints,
    }

    def __init__(
        self,
        alpha: float = ALPHA,
        *,
        n_patterns: int = N_PATTERNS,
        loss: str = "log",
        class_weight: Any = None,
        fit_intercept: bool = True,
        scale: bool = True,
        gates: Any = None,
        solver: Any = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.alpha = alpha
        self.n_patterns = n_patterns
        self.loss = loss
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state


# -- cross-validation


class _CrossValidated(_NetworkEstimator):
    """alpha is chosen by cross-validation, on warm-started paths from lambda_max down.

    Folds are of merged rows, so that a weight is a repeated row here as well, unless `cv` is a
    splitter of the user's, which sees the rows as they came.
    """

    _own_constraints: ClassVar[dict[str, list[Any]]] = {
        "alphas": ["array-like", None],
        "n_alphas": [Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "scoring": [None, str, callable],
        "rule": [StrOptions({"best", "one_se"})],
        "n_jobs": [None, Integral],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Choose alpha by cross-validation, then train on all rows.

        X : (n, d) numbers: an array, a DataFrame, or a sparse CSR matrix.
        y : labels, or one number or several for each row.
        sample_weight : (n,) weights of the rows, >= 0; they also weigh the scores.
        """
        self._warn_about_unread()
        given = self._rows(X, y, sample_weight)
        rows = given.merged()
        problem, _ = self._pose(rows, 1.0)
        self.alphas_ = self._grid(problem)
        if self.cv is None or isinstance(self.cv, Integral):
            given = rows
            folds = list(_folds(rows, int(self.cv or N_FOLDS), self._seed, is_classifier(self)))
        else:
            folds = list(_own_folds(self.cv, given))
        self.scorer_ = self._scorer()
        results = self._over_folds(given, folds)
        self.cv_scores_ = np.array([scores for scores, _ in results])
        self.cv_neurons_ = np.array([neurons for _, neurons in results])
        self.best_index_ = _choose(self.cv_scores_, self.rule)
        self.best_score_ = float(np.mean(self.cv_scores_[:, self.best_index_]))
        self._fit_rows(rows, float(self.alphas_[self.best_index_]))
        return self

    def _over_folds(self: Any, rows: Rows, folds: list[Any]) -> list[Any]:
        """The scores and neurons of all folds, in their order."""
        in_worker = copy(self)
        in_worker._on_iteration = in_worker._on_fold = None  # they stay with this process
        vars(in_worker).pop("solution_", None)
        # not every back end hands results out one by one, so that is asked for only if needed
        return_as = "list" if self._on_fold is None else "generator"
        results = []
        for result in Parallel(n_jobs=self.n_jobs, return_as=return_as)(
            delayed(_fold_scores)(in_worker, rows.select(train), rows.select(test))
            for train, test in folds
        ):
            results.append(result)
            if self._on_fold is not None:
                self._on_fold(len(results), len(folds))
        return results

    def _scorer(self: Any) -> Any:
        if self.scoring is None:
            return self._default_scorer()
        if self.scoring == "neg_log_loss":  # scikit-learn's wants all classes in every fold
            return _mean_log_likelihood
        return check_scoring(self, scoring=self.scoring)

    def _grid(self, problem: ConvexProblem) -> np.ndarray:
        if self.alphas is not None:
            grid = np.sort(np.asarray(self.alphas, dtype=np.float64).reshape(-1))[::-1]
            if len(grid) == 0 or not np.all(np.isfinite(grid)) or grid[-1] <= 0:
                raise ValueError("alphas must be positive numbers")
            return grid.copy()
        largest = lambda_max(problem)
        if largest == 0:
            return np.array([1.0])
        return np.geomspace(largest, self.eps * largest, self.n_alphas + 1)[1:]


def _folds(
    rows: Rows, n_folds: int, seed: int, stratified: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled folds, of all classes where there are any. A class that would be missing from the
    training rows is not tested."""
    labels = _labels(rows.Y) if stratified else np.zeros(len(rows), dtype=int)
    counts = np.bincount(labels)
    n_folds = min(n_folds, int(counts.max()), len(rows))
    if n_folds < 2:
        warnings.warn(
            "too few distinct rows for folds: alpha is chosen by the training rows themselves",
            UserWarning,
            stacklevel=3,
        )
        everything = np.arange(len(rows))
        yield everything, everything
        return
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        splits = list(splitter.split(np.zeros(len(rows)), labels))
    for train, test in splits:
        lost = ~np.isin(labels[test], labels[train])
        yield np.concatenate([train, test[lost]]), test[~lost]


def _own_folds(cv: Any, rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    labels = _labels(rows.Y) if rows.Y.shape[1] > 1 else rows.Y[:, 0]
    for train, test in check_cv(cv).split(np.zeros((len(rows), 1)), labels):
        train, test = np.asarray(train), np.asarray(test)
        yield train[rows.weight[train] > 0], test[rows.weight[test] > 0]


def _labels(Y: np.ndarray) -> np.ndarray:
    return (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(axis=1)


def _fold_scores(estimator: Any, train: Rows, test: Rows) -> tuple[list[float], list[int]]:
    """The scores at all alphas on the test rows, of a path on the training rows, and the neurons of
    its points. Where a path ends early, with nothing left to fit, the last point stands for the
    rest."""
    problem, scaling = estimator._pose(train.merged(), 1.0)
    points = path(
        problem,
        lams=estimator.alphas_,
        tol=estimator.tol,
        solver=estimator.solver,
        min_loss=MIN_LOSS,
        max_iter=estimator.max_iter,
        on_failure="ignore",
    )
    if points.message.startswith("interrupted"):
        raise KeyboardInterrupt  # the path keeps its points, but a choice needs all of them
    y, scores = estimator._raw_targets(test.Y), []
    for point in points:
        candidate = copy(estimator)
        vars(candidate).pop("feature_names_in_", None)  # the rows are no frame any more
        candidate._take(point, scaling)
        scores.append(estimator.scorer_(candidate, test.X, y, sample_weight=test.weight))
    neurons = points.n_active.tolist()
    rest = len(estimator.alphas_) - len(points)
    return scores + scores[-1:] * rest, neurons + neurons[-1:] * rest


def _mean_log_likelihood(classifier: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Minus the log-loss; rows need not have all classes."""
    logarithms = classifier.predict_log_proba(X)
    chosen = logarithms[np.arange(len(y)), np.searchsorted(classifier.classes_, y)]
    return float(np.average(chosen, weights=sample_weight))


def _choose(scores: np.ndarray, rule: str) -> int:
    """The alpha with the best mean score, or the largest one within a standard error of that."""
    mean = scores.mean(axis=0)
    best = int(np.argmax(mean))
    if rule == "best" or len(scores) < 2:
        return best
    error = scores[:, best].std(ddof=1) / np.sqrt(len(scores))
    return int(np.flatnonzero(mean >= mean[best] - error)[0])


class _RegressorCV(_Regression, _CrossValidated):
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_Regression._parameter_constraints,
        **_CrossValidated._own_constraints,
    }

    def __init__(
        self,
        *,
        alphas: Any = None,
        n_alphas: int = N_ALPHAS,
        eps: float = EPS,
        cv: Any = None,
        scoring: Any = None,
        rule: str = "best",
        n_jobs: int | None = None,
        n_patterns: int = N_PATTERNS,
        loss: str = "squared",
        huber_delta: float = 1.35,
        fit_intercept: bool = True,
        scale: bool = True,
        gates: Any = None,
        solver: Any = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.n_patterns = n_patterns
        self.loss = loss
        self.huber_delta = huber_delta
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state


class _ClassifierCV(_Classification, _CrossValidated):
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_Classification._parameter_constraints,
        **_CrossValidated._own_constraints,
    }

    def __init__(
        self,
        *,
        alphas: Any = None,
        n_alphas: int = N_ALPHAS,
        eps: float = EPS,
        cv: Any = None,
        scoring: Any = None,
        rule: str = "best",
        n_jobs: int | None = None,
        n_patterns: int = N_PATTERNS,
        loss: str = "log",
        class_weight: Any = None,
        fit_intercept: bool = True,
        scale: bool = True,
        gates: Any = None,
        solver: Any = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.n_jobs = n_jobs
        self.n_patterns = n_patterns
        self.loss = loss
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.gates = gates
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state


# -- the public classes


class ReLURegressor(_PlainRegressor):
    _problem = CReLU


class ReLUClassifier(_PlainClassifier):
    _problem = CReLU


class GatedReLURegressor(_PlainRegressor):
    _problem = CGReLU


class GatedReLUClassifier(_PlainClassifier):
    _problem = CGReLU


class ReLURegressorCV(_RegressorCV):
    _problem = CReLU


class ReLUClassifierCV(_ClassifierCV):
    _problem = CReLU


class GatedReLURegressorCV(_RegressorCV):
    _problem = CGReLU


class GatedReLUClassifierCV(_ClassifierCV):
    _problem = CGReLU


_KINDS = {
    CReLU: "two-layer ReLU network",
    CGReLU: "two-layer gated ReLU network, whose neurons are switched by fixed random gates",
}

for _cls in (
    ReLURegressor,
    ReLUClassifier,
    GatedReLURegressor,
    GatedReLUClassifier,
    ReLURegressorCV,
    ReLUClassifierCV,
    GatedReLURegressorCV,
    GatedReLUClassifierCV,
):
    _cls.__doc__ = describe(
        _KINDS[_cls._problem],
        list(signature(_cls.__init__).parameters)[1:],
        classifier=issubclass(_cls, ClassifierMixin),
        cv=issubclass(_cls, _CrossValidated),
    )
