"""Generated patterns for programs of either kind, at one penalty strength after another.

Paths, folds and estimators follow a `Generation`: it carries the patterns from one lam to the next.
Gated networks get the gates of the ReLU network: V - W are weights of the gated program over the
same patterns with the same predictions and no larger a penalty, from where that program is solved.

A gated neuron pays if ||X' D theta|| > lam, whatever its gate. That asks for less than the price of
a ReLU neuron, whose direction has to switch itself, so the gates of a ReLU network are not all that
a gated one can use: random ones are often better. A gated problem therefore keeps its own patterns
beside those that are generated, and ends no higher than with them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cvxnn.arrays import Weights, to_numpy
from cvxnn.bounds.base import Bound, Units
from cvxnn.generation import exact
from cvxnn.generation.cells import over_units
from cvxnn.generation.method import generate
from cvxnn.generation.pricing import THOROUGH, Pricing
from cvxnn.generation.rounds import Round, Training
from cvxnn.patterns import Patterns
from cvxnn.problems import CGReLU, ConvexProblem, CReLU
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Solver
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Progress, Solution, Status
from cvxnn.validation import Seed, check_random_state

_UNFINISHED = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED)


@dataclass(frozen=True, eq=False)
class Point:
    """What generation found at one penalty strength.

    solution : of the program over the generated patterns. For C-ReLU, how it ended and how long it
        took are those of all rounds.
    bound : on the training problem of the network itself.
    training : of the ReLU network, also where the program is a gated one.
    """

    solution: Solution
    bound: Bound
    training: Training


class Generation:
    """Generation for one problem, at one lam after another.

    Parameters
    ----------
    problem : C-ReLU, or C-GReLU with the neuron penalty; its `lam` is not used. The patterns of
        C-ReLU are where generation starts, those of C-GReLU stay in every program.
    tol : as in `generate`, and the relative gap of the gated program.
    solver : of the programs of this kind.
    random_state : seed; every point has a seed of its own, so that it does not matter which points
        were computed before.
    neurons : of another network, in the units of the problem, to start from.
    on_round, on_iteration : called with each `Round`, and with the progress of a gated program.
    options : as in `generate`.
    """

    def __init__(
        self,
        problem: ConvexProblem,
        *,
        tol: float = 1e-4,
        solver: str | Solver = "auto",
        random_state: Seed = 0,
        neurons: Units | None = None,
        on_round: Callable[[Round], object] | None = None,
        on_iteration: Callable[[Progress], object] | None = None,
        on_failure: str = "warn",
        **options: Any,
    ) -> None:
        self.problem, self.tol, self.solver = problem, tol, solver
        self.on_round, self.on_iteration = on_round, on_iteration
        self.on_failure, self.options = on_failure, options
        if "prove" in options and not isinstance(problem, CReLU):
            raise TypeError("prove is given, but a bound over all patterns is for ReLU networks")
        self._relu = _relu(problem, problem.patterns.select([0]))
        self._seed = int(check_random_state(random_state).integers(2**62))
        self._neurons = neurons
        self._last: tuple[CReLU, Weights | None] | None = None

    @property
    def settings(self) -> str:
        """What its points depend on besides problem, lam and tolerance, for checkpoints."""
        return f"generated {self._seed}"

    def lambda_max(self) -> float:
        """The highest price at the zero model that a search finds. The zero model of all ReLU
        networks is optimal from some lam on, which is this one or a larger one: a search may miss
        what is higher, so this is an estimate from below."""
        loss = self._relu.loss
        Theta = loss.gradient(np.zeros(loss.Y.shape))
        pricing = Pricing(self._relu.operator_double.rows(), np.random.default_rng(self._seed))
        prices = np.abs(pricing.search(Theta, effort=THOROUGH).prices)
        return float(prices.max(initial=0.0))

    def at(self, lam: float, place: int = 0, **limits: Any) -> Point:
        """Patterns and weights at `lam`; `place` is its place on the path, for the seed, `limits`
        are options for this point alone."""
        rng = np.random.default_rng([self._seed, place])
        problem, weights = self._start(lam, rng)
        on_failure = self.on_failure if isinstance(self.problem, CReLU) else "ignore"
        options = self.options | limits
        if "prove" not in options and exact.handles(problem, "exact"):
            options = options | {"prove": "exact"}  # quicker than a search, and a proof besides
        training = generate(
            problem,
            warm_start=weights,
            tol=self.tol,
            solver=self.solver if isinstance(self.problem, CReLU) else "auto",
            callback=self.on_round,
            random_state=rng,
            on_failure=on_failure,
            **options,
        )
        self._last = training.problem, training.solution.weights
        if isinstance(self.problem, CReLU):
            solution = replace(
                training.solution,
                status=training.status,
                message=training.message,
                seconds=training.seconds,
            )
            return Point(solution, training.bound, training)
        solution = self._gated(training)
        return Point(solution, Bound.of_certificate(solution.certificate), training)

    def go_on_from(self, solution: Solution) -> None:
        """Start the next point from one that was found before; weights of a gated program are not
        those of a ReLU network, and only its patterns are carried over."""
        problem = solution.problem
        if isinstance(problem, CReLU):
            self._last = problem, solution.weights
            return
        own, keys = set(self.problem.patterns.bits.keys()), problem.patterns.bits.keys()
        new = [key not in own for key in keys]
        self._last = _relu(problem, problem.patterns.select(new if any(new) else [0])), None

    def _start(self, lam: float, rng: np.random.Generator) -> tuple[CReLU, Weights | None]:
        if self._last is not None:
            problem, weights = self._last
            return problem.with_lam(lam), weights
        problem = self._relu.with_lam(lam)
        if self._neurons is None:
            return problem, None
        return over_units(problem, self._neurons, rng)

    def _gated(self, training: Training) -> Solution:
        """The gated program with the gates of these patterns beside its own, from the weights of
        the network."""
        patterns = self.problem.patterns.join(training.patterns)
        problem = self.problem.with_patterns(patterns).with_lam(training.lam)
        V, W = np.split(to_numpy(training.problem.check_weights(training.solution.weights)), 2)
        place = {key: i for i, key in enumerate(patterns.bits.keys())}
        keys, start = training.patterns.bits.keys(), np.zeros(problem.weight_shape)
        start[[place[key] for key in keys]] = V - W
        over = training.status in _UNFINISHED
        solution = solve(
            problem,
            self.solver,
            tol=self.tol,
            warm_start=start,
            callback=self.on_iteration,
            on_failure="ignore" if over else self.on_failure,
            max_iter=0 if over else None,
        )
        if not over:
            return solution
        return replace(solution, status=training.status, message=training.message)


def _relu(problem: Problem, patterns: Patterns) -> CReLU:
    """The problem itself if it is that of a ReLU network, else that network's over some patterns of
    the gated one."""
    if isinstance(problem, CReLU):
        return problem
    assert isinstance(problem, CGReLU)
    return CReLU.from_gated(problem.with_patterns(patterns))
