"""The estimators with one value of alpha."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import ClassVar, Self

from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval

from cvxnn.budget import Budget
from cvxnn.estimators.base import (
    N_PATTERNS,
    NetworkEstimator,
    Seed,
    Watch,
    public,
    take,
    train,
)
from cvxnn.estimators.categories import Features
from cvxnn.estimators.column_scales import factors_of
from cvxnn.estimators.generating import largest_strength
from cvxnn.estimators.posing import Fit, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.sampled import fit_on_sample
from cvxnn.estimators.targets import ClassWeight
from cvxnn.estimators.tasks import Classification, Regression
from cvxnn.patterns import GateDistribution
from cvxnn.problems import CGReLU, CReLU
from cvxnn.sharded import is_sharded
from cvxnn.solvers.base import Solver
from cvxnn.solvers.convergence import ConvergenceWarning

ALPHA = 1e-2


class _Plain(NetworkEstimator):
    """One value of alpha."""

    alpha: float

    _own_constraints: ClassVar[dict[str, list[object]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")]
    }

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the network.

        X : (n, d) numbers: an array, a DataFrame, or a sparse CSR matrix.
        y : labels, or one number or several for each row.
        sample_weight : (n,) weights of the rows, >= 0.
        """
        train(self, X, y, sample_weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def _train(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, watch: Watch
    ) -> Fit:
        self._warn_about_unread()
        clock = self._clock()
        posing, given, _ = self._read(X, y, sample_weight)
        rows = given.merged()
        if is_sharded(rows.X) and self._problem is CReLU:
            return self._train_on_sample(posing, rows, watch, clock)
        posed = posing.pose(rows, self.alpha)
        if posing.learns_factors:
            first = self._fit_posed(posed, Watch(), clock)
            posed = posing.with_factors(factors_of(first.solution)).pose(rows, self.alpha)
        return self._solve(posed, rows, largest_strength(posed, posing.generates), watch, clock)

    def _train_on_sample(self, posing: Posing, rows: Rows, watch: Watch, clock: Budget) -> Fit:
        found = fit_on_sample(self, posing, rows, self.alpha, watch, clock)
        solution = found.fit.solution
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge on its sample of the rows: "
                f"{solution.message}",
                ConvergenceWarning,
                stacklevel=6,
            )
        take(self, found.fit)
        self.network_ = found.fit.posed.for_raw_rows(found.network)
        self.lambda_max_, self.n_patterns_ = found.largest, found.n_patterns
        return found.fit


class _PlainRegressor(Regression, _Plain):
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **Regression._parameter_constraints,
        **_Plain._own_constraints,
    }

    def __init__(
        self,
        alpha: float = ALPHA,
        *,
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
        self.alpha = alpha
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


class _PlainClassifier(Classification, _Plain):
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        **Classification._parameter_constraints,
        **_Plain._own_constraints,
    }

    def __init__(
        self,
        alpha: float = ALPHA,
        *,
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
        self.alpha = alpha
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
class ReLURegressor(_PlainRegressor):
    _problem = CReLU


@public
class ReLUClassifier(_PlainClassifier):
    _problem = CReLU


@public
class GatedReLURegressor(_PlainRegressor):
    _problem = CGReLU


@public
class GatedReLUClassifier(_PlainClassifier):
    _problem = CGReLU
