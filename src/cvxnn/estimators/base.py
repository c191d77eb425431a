"""What all estimators share: they validate, pose a program, solve it, and read its network.

Rows that occur more than once are merged and their weights added, and rows of weight zero are left
out, before a program depends on them. So a weight of two is a row given twice, to the last bit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from cvxnn import budget
from cvxnn.arrays import Array, Matrix, is_stored
from cvxnn.bounds.base import Bound, Units
from cvxnn.budget import Budget
from cvxnn.certificates import Certificate
from cvxnn.checkpoints import Store
from cvxnn.devices import find_device
from cvxnn.digits import text_above
from cvxnn.estimators.categories import Categories, Features, check_automatic, chosen_columns
from cvxnn.estimators.docs import describe
from cvxnn.estimators.ensembles import Member
from cvxnn.estimators.generating import fit_generated, neurons_of, time_for_a_fit, usable
from cvxnn.estimators.given import check_targets_given, explaining
from cvxnn.estimators.placement import place
from cvxnn.estimators.posing import Fit, Posed, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.targets import (
    Labels,
    Targets,
)
from cvxnn.generation.rounds import Round
from cvxnn.memory import check_size_text
from cvxnn.networks import TwoLayerNetwork
from cvxnn.patterns import GateDistribution, warn_about_small
from cvxnn.problems import CGReLU, CReLU, lambda_max
from cvxnn.progress import Follower, followed, log, step
from cvxnn.ranks import ALONE, Ranks, failing_together
from cvxnn.sharded import ShardedRows, is_sharded, taken_apart
from cvxnn.solvers.base import Solver
from cvxnn.solvers.convergence import ConvergenceWarning
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Progress, Solution, Start, Status
from cvxnn.stored import StoredRows
from cvxnn.validation import check_features

if TYPE_CHECKING:
    from sklearn.utils import Tags

N_PATTERNS = 500
IN_A_ROW = 3.0  # seconds from an interrupt of a fit to one that is meant for the caller of `fit`
PROOFS = ("auto", "exact", "branching", "semidefinite", "enumeration")
Seed: TypeAlias = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class Watch:
    """Callbacks that follow a fit, names for its messages, and a file that keeps it.

    on_iteration : called with the solver's progress.
    on_round : called with the rounds of generation.
    on_alpha : called with the number of strengths that all folds have been compared at, and with
        the number of those planned.
    column_names : names of the columns, used where X has none.
    checkpoint : where `solve` keeps its run; folds are not kept.
    """

    on_iteration: Callable[[Progress], object] | None = None
    on_round: Callable[[Round], object] | None = None
    on_alpha: Callable[[int, int], object] | None = None
    column_names: Sequence[str] | None = None
    checkpoint: Path | Store | None = None

    def also(self, tell: Callable[[str], object]) -> Watch:
        """The same callbacks, and `tell` called with their news in words."""

        def on_iteration(progress: Progress) -> object:
            tell(progress.words)
            return self.on_iteration and self.on_iteration(progress)

        def on_round(found: Round) -> object:
            tell(found.words)
            return self.on_round and self.on_round(found)

        def on_alpha(done: int, planned: int) -> object:
            tell(f"alpha {done} of {planned}")
            return self.on_alpha and self.on_alpha(done, planned)

        return replace(self, on_iteration=on_iteration, on_round=on_round, on_alpha=on_alpha)


def train(
    estimator: NetworkEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Fit an estimator, as its method `fit` does, and return the program and its solution."""
    watch = watch or Watch()
    if not getattr(estimator, "verbose", False):
        return estimator._train(X, y, sample_weight, watch)
    name = type(estimator).__name__
    with followed(Follower(lambda line: log(f"{name}: {line}"))) as follower, step("fitting"):
        fit = estimator._train(X, y, sample_weight, watch.also(follower.detail))
    solution = fit.solution
    gap = text_above(solution.certificate.relative_gap, 2)
    log(
        f"{name}: {solution.status}, relative gap {gap} at alpha {solution.problem.lam:.4g}, "
        f"{solution.n_active} neurons"
    )
    return fit


def posed_program(
    estimator: NetworkEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    alpha: float = 1.0,
) -> Posed:
    """The program that an estimator would solve for these rows."""
    posing, given, _ = estimator._read(X, y, sample_weight)
    return posing.pose(given.merged(), alpha)


def take(estimator: NetworkEstimator, fit: Fit) -> None:
    """Set the attributes that a fit leaves on an estimator."""
    solution, targets, rounds = fit.solution, fit.posed.targets, fit.rounds
    estimator.network_ = fit.posed.network(solution)
    estimator.__dict__.pop("members_", None)  # of a mean that an earlier fit has taken
    estimator.certificate_ = fit.posed.certificate(solution.certificate)
    estimator.alpha_ = solution.problem.lam
    estimator.column_factors_ = fit.posed.numbers.factors
    estimator.categories_ = fit.posed.categories
    # neither the dual point nor the evidence: both are as large as the rows, or larger
    kept = np.zeros((0, solution.problem.weight_shape[2]))
    estimator.bound_ = replace(fit.bound, dual=kept, evidence=None)
    estimator.n_iter_ = max(solution.n_iter if rounds is None else len(rounds), 1)
    estimator.converged_ = solution.converged
    estimator.history_ = solution.history if rounds is None else rounds
    estimator.n_patterns_ = len(solution.problem.patterns)
    if isinstance(targets, Labels):
        estimator.classes_ = targets.classes


def unread_parameters(estimator: NetworkEstimator) -> Iterator[tuple[str, str]]:
    """Parameters that have no effect because of others, and why."""
    if getattr(estimator, "huber_delta", None) is not None and estimator.loss != "huber":
        yield "huber_delta", f"loss={estimator.loss!r} has no threshold"
    if estimator.patterns == "generate" and estimator._problem is CReLU:
        yield "n_patterns", "patterns='generate' finds as many as pay"
        yield "gates", "patterns='generate' finds the gates itself"
    if estimator.patterns != "generate":
        yield "prove", "it is for patterns='generate'"
    if estimator.patterns == "generate" and estimator._problem is CGReLU:
        yield "prove", "a bound over all patterns is for ReLU networks"
    if not estimator.scale:
        yield "feature_scaling", "scale=False leaves columns as they are"
    elif estimator.n_components is not None:
        yield "feature_scaling", "components have their own scales"
    if getattr(estimator, "alphas", None) is not None:
        yield from ((name, "alphas is the grid itself") for name in ("n_alphas", "eps"))


class NetworkEstimator(BaseEstimator):
    """Parameters, fitting and prediction; subclasses say which problem, and what targets are."""

    _problem: ClassVar[type[CReLU] | type[CGReLU]]
    # Rows that need no validation: those of a fold, which were validated with all the others.
    _validated_rows: Matrix | None = None
    _compares_encodings: ClassVar[bool] = False  # what categorical_features="auto" asks for
    _start: Start | Units | None  # kept by warm_start, for the next fit
    _interrupted_at: ClassVar[float] = -math.inf  # the last fit of any estimator that was

    patterns: str
    n_patterns: int
    loss: str
    fit_intercept: bool
    scale: bool
    feature_scaling: str
    categorical_features: Features
    n_components: int | None
    gates: GateDistribution | None
    solver: str | Solver
    tol: float
    prove: bool | str
    max_iter: int | None
    max_seconds: float | None
    max_memory: str | int | None
    device: str | None
    warm_start: bool
    verbose: bool
    random_state: Seed

    network_: TwoLayerNetwork
    members_: tuple[Member, ...]
    certificate_: Certificate
    bound_: Bound
    alpha_: float
    column_factors_: np.ndarray | None
    categories_: Categories | None
    lambda_max_: float
    converged_: bool
    n_iter_: int
    n_patterns_: int
    history_: tuple[Progress, ...] | tuple[Round, ...]

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "patterns": [StrOptions({"sample", "generate"})],
        "n_patterns": [Interval(Integral, 1, None, closed="left")],
        "fit_intercept": ["boolean"],
        "scale": ["boolean"],
        "feature_scaling": [StrOptions({"unit", "learned"})],
        "categorical_features": [None, str, "array-like"],
        "n_components": [None, Interval(Integral, 1, None, closed="left")],
        "gates": [None, object],
        "solver": [str, object],
        "tol": [Interval(Real, 0, None, closed="left")],
        "prove": ["boolean", StrOptions(set(PROOFS))],
        "max_iter": [None, Interval(Integral, 1, None, closed="left")],
        "max_seconds": [None, Interval(Real, 0, None, closed="neither")],
        "max_memory": [None, str, Interval(Integral, 1, None, closed="left")],
        "device": [None, str],
        "warm_start": ["boolean"],
        "verbose": ["boolean"],
        "random_state": ["random_state"],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, watch: Watch
    ) -> Fit:
        raise NotImplementedError

    def _read(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Posing, Rows, np.ndarray]:
        """How the program is posed, the validated rows with encoded targets, and the validated
        targets before encoding."""
        self._check_device()
        if is_sharded(X):
            return self._read_sharded(X, y, sample_weight)
        y, numeric = self._flattened(y), isinstance(self, RegressorMixin)
        check_targets_given(y, numbers=numeric)
        with explaining(X):
            X = self._placed(X, y)
        if is_stored(X):
            data, self.n_features_in_ = check_features(X), X.shape[1]
            targets = _check_y(y, multi_output=True, y_numeric=numeric, estimator=self)
            check_consistent_length(X, targets)
        else:
            with explaining(X):
                data, targets = validate_data(
                    self,
                    X,
                    y,
                    accept_sparse="csr",
                    dtype=np.float64,
                    multi_output=True,
                    y_numeric=numeric,
                    ensure_min_samples=2,
                )
        weight = _check_sample_weight(sample_weight, data, ensure_non_negative=True)
        posing = Posing.of_fit(self, self._targets(targets, weight))
        posing = posing.with_categories(self._categories(data, weight))
        return posing, posing.rows(data, targets, weight), targets

    def _categories(self, X: Any, weight: np.ndarray) -> Categories | None:
        """The columns that are said to hold codes."""
        given = self.categorical_features
        if isinstance(given, str):
            check_automatic(given, offered=self._compares_encodings, name=type(self).__name__)
            return None  # cross-validation decides
        if given is None:
            return None
        names = getattr(self, "feature_names_in_", None)
        columns = chosen_columns(given, X.shape[1], names)
        if columns and not isinstance(X, np.ndarray):
            raise ValueError("categorical_features needs a dense X in memory: encode it before")
        return Categories.of(X[weight > 0], columns) if columns else None

    def _read_sharded(
        self, X: ShardedRows, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Posing, Rows, np.ndarray]:
        """The same for the rows of this process, which may have none."""
        self._check_sharded()
        with failing_together(X.ranks):
            rows, numeric = X.local, isinstance(self, RegressorMixin)
            y = self._flattened(y)
            check_consistent_length(rows, y)
            if len(X):
                check_targets_given(y, numbers=numeric)
                y = _check_y(y, multi_output=True, y_numeric=numeric, estimator=self)
                rows = self._placed(rows if is_stored(rows) else check_features(rows), y)
            weight = np.ones(0)
            if len(X):
                weight = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
        data: Any = X.with_rows(rows)
        self.n_features_in_, targets = X.shape[1], np.asarray(y)
        posing = Posing.of_fit(self, self._targets(targets, weight, X.ranks))
        posing = posing.with_seed(int(X.ranks.agree(posing.seed)))  # which may be a random one
        return posing, posing.rows(data, targets, weight), targets

    def _check_sharded(self) -> None:
        """Refuse what needs all rows in one process."""
        if self.patterns == "generate":
            raise ValueError(
                "patterns='generate' needs all rows in one process; sample them instead"
            )
        if self._problem is CReLU and self._compares_encodings:
            raise ValueError(
                "alpha of a ReLU network is not chosen on rows in several processes: choose it for "
                "a gated network, or on a sample, then train a ReLU network with that alpha"
            )
        if self._problem is CReLU and self.feature_scaling == "learned":
            raise ValueError(
                "feature_scaling='learned' needs all rows of a ReLU network in one process"
            )
        coded = self.categorical_features
        if isinstance(coded, str):  # which looks for codes where it can
            check_automatic(coded, offered=self._compares_encodings, name=type(self).__name__)
            coded = None
        for name, given in (("n_components", self.n_components), ("categorical_features", coded)):
            if given is not None:
                raise ValueError(f"{name} needs all rows in one process")

    def _flattened(self, y: ArrayLike) -> ArrayLike:
        return y

    def _check_device(self) -> None:
        """Before any work: a device that is not there, or that has nothing to do."""
        if self.device is None:
            return
        find_device(self.device)
        if self.patterns == "generate":
            raise ValueError(
                f"device={self.device!r} is for patterns='sample': generated patterns take many "
                "small programs, which are quicker without a device; leave one of the two out"
            )

    def _placed(self, X: ArrayLike, y: ArrayLike) -> Any:
        """X, or its rows in a file where max_memory asks for it."""
        if self.max_memory is None:
            return X
        placed = place(
            X,
            n_patterns=self.n_patterns,
            n_outputs=self._n_outputs(np.asarray(y)),
            cones=self._problem is CReLU,
            generated=self.patterns == "generate",
            most=check_size_text(self.max_memory, "max_memory"),
        )
        if placed is not X:
            _check_feature_names(self, X, reset=True)
        return placed

    def _n_outputs(self, y: np.ndarray) -> int:
        return 1 if y.ndim < 2 else y.shape[1]

    def _targets(self, y: np.ndarray, weight: np.ndarray, across: Ranks = ALONE) -> Targets:
        """What the targets mean, here and on the other ranks."""
        raise NotImplementedError

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """The outputs of the network for raw rows, or for those of a fold, which are encoded."""
        check_is_fitted(self)
        if X is self._validated_rows:
            return self.network_.predict(X)
        if is_stored(X):
            X = check_features(X, self.n_features_in_)
        else:
            if hasattr(X, "columns") and hasattr(self, "feature_names_in_"):
                _check_feature_names(self, X, reset=False)  # other columns before their values
            with explaining(X):
                X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.network_.predict(self._network_rows(X))

    def _network_rows(self, X: Matrix | StoredRows) -> Matrix | StoredRows:
        """Checked raw rows as the network takes them."""
        categories = getattr(self, "categories_", None)  # those of tables have none
        return X if categories is None else categories.encode(_dense(X))

    def _warn_about_unread(self) -> None:
        """Warn about parameters without effect. They are no error, because a grid search may well
        combine settings like that. Parameters at their default count as not given."""
        defaults = signature(type(self).__init__).parameters
        for name, why in unread_parameters(self):
            if getattr(self, name) != defaults[name].default:
                message = f"{name} is given, but {type(self).__name__} does not read it: {why}"
                warnings.warn(message, UserWarning, stacklevel=6)

    def _solve(
        self,
        posed: Posed,
        rows: Rows,
        largest: float,
        watch: Watch,
        clock: Budget,
        start: Array | Start | Units | None = None,
    ) -> Fit:
        """Solve the program of the distinct raw rows, and take its network. `largest` is the
        program's lambda_max; `start` are weights or neurons to start from, unless warm_start has
        kept those of an earlier fit."""
        if self.scale:
            names = getattr(self, "feature_names_in_", watch.column_names)
            if posed.categories is not None:
                names = posed.categories.names(names)
            X, across = taken_apart(rows.X)
            spread = posed.numbers.unit_spread
            warn_about_small(X, spread, names, stacklevel=7, across=across)
        fit = self._fit_posed(posed, watch, clock, start)
        solution, searched = fit.solution, fit.rounds is not None
        if solution.status is Status.INTERRUPTED:
            self._raise_if_repeated()
        if fit.point is not None and not searched:  # gates are known now, and so is this
            largest = lambda_max(solution.problem)
        if not solution.converged:
            _warn_about(solution, self)
        if fit.point is not None and fit.point.training.unproven:
            message = f"nothing is proven over all patterns: {fit.point.training.unproven}"
            warnings.warn(message, UserWarning, stacklevel=6)
        if solution.n_active == 0:
            _warn_about_zero(solution, largest, searched=searched)
        take(self, fit)
        self.lambda_max_ = largest
        self.__dict__.pop("_start", None)
        if self.warm_start:
            self._start = solution.start() if fit.point is None else neurons_of(solution)
        return fit

    @staticmethod
    def _raise_if_repeated() -> None:
        """One Ctrl-C ends a fit, which returns its best network. A search over many settings then
        goes on with the next one, and another Ctrl-C in that ends the search."""
        before, now = NetworkEstimator._interrupted_at, budget.clock()
        NetworkEstimator._interrupted_at = now
        if now - before < IN_A_ROW:
            raise KeyboardInterrupt

    def _clock(self) -> Budget:
        """The time of a fit, from now on."""
        return Budget(math.inf if self.max_seconds is None else self.max_seconds)

    def _fit_posed(
        self,
        posed: Posed,
        watch: Watch,
        clock: Budget,
        start: Array | Start | Units | None = None,
    ) -> Fit:
        """Solve a program over the patterns that it has, or over those that are generated."""
        earlier = getattr(self, "_start", None) if self.warm_start else None
        if self.patterns == "generate":
            return fit_generated(self, posed, watch, usable(posed.problem, earlier, start), clock)
        if isinstance(earlier, Start) and earlier.shape == posed.problem.weight_shape:
            start = earlier
        solution = solve(
            posed.problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            warm_start=None if isinstance(start, Units) else start,
            callback=watch.on_iteration,
            on_failure="ignore",
            checkpoint=watch.checkpoint,
            max_seconds=time_for_a_fit(clock),
            device=self.device,
        )
        return Fit(posed, solution)


def _dense(X: Any) -> np.ndarray:
    """New rows, whose network was trained on dense ones, as these."""
    if is_stored(X):
        return X[:]
    return X if isinstance(X, np.ndarray) else X.toarray()


def _warn_about(solution: Solution, estimator: NetworkEstimator) -> None:
    gap, tol = solution.certificate.relative_gap, estimator.tol
    advice = {
        Status.MAX_ITER: "raise max_iter or tol, or alpha",
        Status.TIME_LIMIT: "raise max_seconds, tol or alpha",
        Status.INTERRUPTED: "it was interrupted, and this is the best point so far",
    }.get(solution.status, "raise tol or alpha")
    reached = f"its relative duality gap is {gap:.2g}, tol={tol:g} was asked for"
    if estimator.patterns == "generate" and gap <= tol:
        reached = f"patterns that pay were still being found, up to tol={tol:g}"
    warnings.warn(
        f"{type(estimator).__name__} did not converge: {reached}; {advice}",
        ConvergenceWarning,
        stacklevel=7,
    )


def _warn_about_zero(solution: Solution, largest: float, *, searched: bool) -> None:
    alpha, gap = solution.problem.lam, solution.certificate.relative_gap
    if largest == 0:
        message = "the targets do not depend on X: the model is constant"
    elif alpha >= largest:
        why = "above which no search found a neuron that pays"
        message = (
            f"all neurons are zero: alpha = {alpha:.4g} is not below lambda_max = {largest:.4g}, "
            f"{why if searched else 'where the constant model is optimal'}; take a smaller alpha"
        )
    elif solution.converged:
        message = (
            f"all neurons are zero: the constant model is within tol, its relative duality gap is "
            f"{gap:.2g}; take a smaller tol or alpha"
        )
    else:  # the warning that it did not converge is enough
        return
    warnings.warn(message, UserWarning, stacklevel=7)


_KINDS = {
    CReLU: "two-layer ReLU network",
    CGReLU: "two-layer gated ReLU network, whose neurons are switched by fixed random gates",
}
Class = TypeVar("Class", bound=type[NetworkEstimator])


def public(cls: Class) -> Class:
    """Make a class part of the public interface: give it a docstring, and the module where users
    find it, so that pickles do not depend on the file it is written in."""
    cls.__module__ = "cvxnn.estimators"
    cls.__doc__ = describe(
        _KINDS[cls._problem],
        list(signature(cls).parameters),
        classifier=issubclass(cls, ClassifierMixin),
    )
    return cls
