"""Programs for estimators: raw rows become a convex program, and its solution a network for them.

    raw rows (-> encoded rows) -> distinct rows -> scaled rows (-> components) -> patterns
             -> program -> solution -> network

Where columns hold codes, the network takes encoded rows. Where `feature_scaling` is learned, a
first solution says what scaled columns are multiplied by.

The program is posed on columns of zero mean and unit variance and, for regression, on targets of
that kind, so that `alpha` means the same for all data. The network is mapped back: it takes raw
rows and gives raw outputs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils import check_random_state

from cvxnn.arrays import Array, Matrix
from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate
from cvxnn.cones.singular import PatternWarning
from cvxnn.estimators.categories import Categories
from cvxnn.estimators.components import Components
from cvxnn.estimators.rows import Numbers, Rows, Scaling
from cvxnn.estimators.targets import Targets, targets_of
from cvxnn.generation.programs import Point
from cvxnn.generation.rounds import Round
from cvxnn.generation.training import first_patterns
from cvxnn.networks import TwoLayerNetwork
from cvxnn.patterns import GateDistribution, Patterns, sample_patterns
from cvxnn.problems import CGReLU, ConvexProblem, CReLU
from cvxnn.sharded import ShardedRows, taken_apart
from cvxnn.solvers.results import Solution
from cvxnn.stored import StoredRows

if TYPE_CHECKING:
    from cvxnn.estimators.base import NetworkEstimator
    from cvxnn.estimators.ensembles import ProvenMember


@dataclass(frozen=True, eq=False)
class Posing:
    """How the program of an estimator is posed.

    problem : the class of the program.
    targets : what they mean.
    seed : for the patterns; None for a fitted estimator, whose patterns are already sampled.
    factors : (d,), what columns of unit variance are multiplied by, where a first fit has learned
        it.
    categories : the columns that hold codes, if there are any.
    The rest are the parameters of the estimator.
    """

    problem: type[CReLU] | type[CGReLU]
    targets: Targets
    patterns: str
    n_patterns: int
    gates: GateDistribution | None
    fit_intercept: bool
    scale: bool
    feature_scaling: str
    n_components: int | None
    seed: int | None
    factors: np.ndarray | None = None
    categories: Categories | None = None

    @classmethod
    def of_fitted(cls, estimator: NetworkEstimator) -> Posing:
        posing = cls._of(estimator, targets_of(estimator), None)
        posing = posing.with_categories(getattr(estimator, "categories_", None))
        return posing.with_factors(getattr(estimator, "column_factors_", None))

    @classmethod
    def of_fit(cls, estimator: NetworkEstimator, targets: Targets) -> Posing:
        """For an estimator that is about to be fitted; the seed comes from its random state."""
        seed = check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max)
        return cls._of(estimator, targets, int(seed))

    @classmethod
    def _of(cls, estimator: NetworkEstimator, targets: Targets, seed: int | None) -> Posing:
        return cls(
            problem=estimator._problem,
            targets=targets,
            patterns=estimator.patterns,
            n_patterns=estimator.n_patterns,
            gates=estimator.gates,
            fit_intercept=estimator.fit_intercept,
            scale=estimator.scale,
            feature_scaling=estimator.feature_scaling,
            n_components=estimator.n_components,
            seed=seed,
        )

    def with_seed_of(self, k: int) -> Posing:
        """The same with patterns of another sampling, the k-th."""
        if self.seed is None:
            return self
        return self.with_seed(int(np.random.default_rng([self.seed, k]).integers(2**31)))

    def with_seed(self, seed: int) -> Posing:
        return replace(self, seed=seed)

    def with_factors(self, factors: np.ndarray | None) -> Posing:
        return replace(self, factors=factors)

    def with_gates(self, gates: GateDistribution) -> Posing:
        return replace(self, gates=gates)

    def with_categories(self, categories: Categories | None) -> Posing:
        return replace(self, categories=categories)

    def rows(
        self,
        X: Matrix | StoredRows | ShardedRows,
        y: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> Rows:
        """The rows of the network with encoded targets, one for each row given."""
        weight = np.ones(X.shape[0]) if weight is None else weight
        across = taken_apart(X)[1]
        if self.categories is not None:
            X = self.categories.encode(cast("np.ndarray", X))
        return Rows(X, self.targets.encode(y), self.targets.row_weights(y, weight, across))

    def numbers(self, rows: Rows, targets: Scaling | None = None) -> Numbers:
        """What defines the program of distinct rows. Targets are scaled by their own mean and
        spread unless `targets` is given: all folds of a cross-validation share one scale, or their
        losses could not be compared."""
        outputs = rows.Y.shape[1]
        # the softmax loss has one term for each row, the others have one for each output
        terms = 1 if self.targets.loss_settings["loss"] == "softmax" else outputs
        columns = self._column_scaling(rows)
        return Numbers(
            rows.weight / (rows.across.sum(rows.weight.sum()) * terms),
            columns,
            self.target_scaling(rows) if targets is None else targets,
            self._components(rows, columns),
            self.factors,
        )

    def target_scaling(self, rows: Rows) -> Scaling:
        if not self.scale:
            return Scaling.none(rows.Y.shape[1])
        return self.targets.scaling(rows, self.fit_intercept)

    def _column_scaling(self, rows: Rows) -> Scaling:
        if not self.scale and self.n_components is None:
            return Scaling.none(rows.X.shape[1])
        X, across = taken_apart(rows.X)
        scaling = Scaling.of(X, rows.weight, self.fit_intercept, across).of_columns()
        if not self.scale:  # components are those of centred columns
            return replace(scaling, spread=np.ones_like(scaling.spread))
        if self.factors is not None:
            return replace(scaling, spread=scaling.spread / self.factors)
        return scaling

    def _components(self, rows: Rows, columns: Scaling) -> Components | None:
        if self.n_components is None:
            return None
        return Components.of(columns.apply(rows.X), rows.weight, self.n_components)

    @property
    def learns_factors(self) -> bool:
        """Whether a first fit is to say how columns are scaled."""
        return self.feature_scaling == "learned" and self.has_scales

    @property
    def has_scales(self) -> bool:
        """Whether columns have scales that a fit may learn."""
        return self.scale and self.n_components is None

    def pose(self, rows: Rows, alpha: float = 1.0, targets: Scaling | None = None) -> Posed:
        """The program of distinct raw rows over sampled patterns, or over those that generation
        starts from; `targets` as for `numbers`."""
        numbers = self.numbers(rows, targets)
        scaled = numbers.scaled(rows)
        problem = self.program(scaled, alpha, self._first_patterns(scaled.X))
        return Posed(problem, numbers, self.targets, self.seed, self.categories)

    def program(self, scaled: Rows, alpha: float, patterns: Patterns) -> ConvexProblem:
        """The program of scaled rows over patterns of theirs."""
        # generated patterns have gates inside their cones, so that none of these is singular
        keep = self.generates and self.problem is CReLU
        settings: dict[str, Any] = {"singular": "keep"} if keep else {}
        with warnings.catch_warnings():
            # singular patterns are replaced, which is what estimators want
            warnings.simplefilter("ignore", category=PatternWarning)
            return self.problem(
                scaled.X,
                scaled.Y,
                patterns,
                alpha,
                bias=self.fit_intercept,
                output_bias=self.fit_intercept,
                sample_weight=scaled.weight,
                **self.targets.loss_settings,
                **settings,
            )

    @property
    def generates(self) -> bool:
        return self.patterns == "generate"

    def _first_patterns(self, X: Any) -> Patterns:
        if self.generates and self.problem is CReLU:
            return first_patterns(cast("Array", X), bias=self.fit_intercept)
        return self.sampled(X)

    def sampled(self, X: Any) -> Patterns:
        """Sampled patterns of scaled rows."""
        return sample_patterns(
            X,
            self.n_patterns,
            gates=self.gates,
            bias=self.fit_intercept,
            random_state=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Posed:
    """A program of scaled rows, and the way back to networks for raw ones; `seed` is for patterns
    that are yet to be generated."""

    problem: ConvexProblem
    numbers: Numbers
    targets: Targets
    seed: int | None = None
    categories: Categories | None = None

    @property
    def scope(self) -> str:
        """What is proven about which columns."""
        encoded = "" if self.categories is None else self.categories.scope
        return encoded + self.numbers.scope

    def at(self, alpha: float) -> Posed:
        return replace(self, problem=self.problem.with_lam(alpha))

    def certificate(self, certificate: Certificate) -> Certificate:
        """The certificate of a solution, with what it says of the columns."""
        return replace(certificate, scope=certificate.scope + self.scope)

    def network(self, solution: Solution) -> TwoLayerNetwork:
        """The network of a solution, for raw rows and in the units of the raw targets."""
        return self.for_raw_rows(solution.network())

    def for_raw_rows(self, network: TwoLayerNetwork) -> TwoLayerNetwork:
        return self.targets.shaped(self.numbers.unscale_network(network))


@dataclass(frozen=True, eq=False)
class Fit:
    """A program and its solution, and where patterns were generated, how. Estimators do not keep
    them, because they hold the training rows. Where the network is a mean of several, this is about
    the first of `members`."""

    posed: Posed
    solution: Solution
    point: Point | None = None
    members: tuple[ProvenMember, ...] = ()

    @property
    def rounds(self) -> tuple[Round, ...] | None:
        """Those of a ReLU network over generated patterns. A gated network has an objective of its
        own, and the rounds that found its gates do not speak of it."""
        if self.point is None or not isinstance(self.solution.problem, CReLU):
            return None
        return self.point.training.history

    @property
    def bound(self) -> Bound:
        """On the training problem of the network itself, with what it says of the columns."""
        if self.point is None:
            return Bound.of_certificate(self.solution.certificate)
        bound = self.point.bound
        if not bound.over_all_patterns:
            return bound
        return replace(bound, scope=bound.scope + self.posed.scope)


@dataclass(frozen=True, eq=False)
class Neurons:
    """The non-zero blocks of a solution, by their gates: the programs of all folds share these.

    gates : (m, d + 1), the last column being the bias.
    sign : (m,), 0 or 1: which half of the blocks of C-ReLU; always 0 for C-GReLU.
    blocks : (m, d, C).
    """

    gates: np.ndarray
    sign: np.ndarray
    blocks: np.ndarray

    @classmethod
    def of(cls, solution: Solution) -> Neurons:
        problem = solution.problem
        U = problem.check_weights(solution.weights)
        live = np.flatnonzero(np.any(U != 0, axis=(1, 2)))
        sign, pattern = np.divmod(live, len(problem.patterns))
        return cls(_gates(problem.patterns)[pattern], sign, U[live])

    def weights(self, problem: ConvexProblem) -> Array:
        """A feasible start for another program: each block goes where that program has its gate.
        Blocks of C-ReLU are projected, because other rows mean other cones."""
        place = {gate.tobytes(): i for i, gate in enumerate(_gates(problem.patterns))}
        U = problem.zero_weights()
        for gate, sign, block in zip(self.gates, self.sign, self.blocks, strict=True):
            pattern = place.get(gate.tobytes())
            if pattern is not None:
                U[pattern + sign * len(problem.patterns)] = block
        return problem.make_feasible(U)[0] if isinstance(problem, CReLU) else U


def _gates(patterns: Patterns) -> np.ndarray:
    """One row for each gate, with its bias. Sampled patterns have gates, and so do the patterns
    that replace singular ones."""
    gates, bias = patterns.gates, patterns.gate_bias
    if gates is None or bias is None:
        raise ValueError("the patterns have no gates")
    return np.column_stack([gates.T, bias])
