"""Fits over generated patterns: how estimators follow a `Generation`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxnn.arrays import to_numpy
from cvxnn.bounds.base import Units
from cvxnn.budget import Budget
from cvxnn.estimators.posing import Fit, Posed
from cvxnn.generation.cells import units_of
from cvxnn.generation.programs import Generation
from cvxnn.generation.rounds import Round
from cvxnn.paths import DESCENTS
from cvxnn.problems import ConvexProblem, CReLU, lambda_max
from cvxnn.solvers.results import Solution

if TYPE_CHECKING:
    from cvxnn.estimators.base import NetworkEstimator, Watch

LAST_SHARE = 0.1  # of the time limit, for the last fit at least


def largest_strength(posed: Posed, generated: bool) -> float:
    """The strength from which on the model is constant; for generated patterns as far as a search
    knows, see `Generation.lambda_max`."""
    if not generated:
        return lambda_max(posed.problem)
    return Generation(posed.problem, random_state=posed.seed).lambda_max()


def fit_generated(
    estimator: NetworkEstimator,
    posed: Posed,
    watch: Watch,
    neurons: Units | None,
    clock: Budget,
) -> Fit:
    """Generate patterns for the program at its own strength, from these neurons, in the time that
    is left."""
    alpha = posed.problem.lam
    if alpha <= 0:
        raise ValueError(
            "alpha must be positive with patterns='generate': without a penalty every pattern pays"
        )
    generation = Generation(
        posed.problem,
        tol=estimator.tol,
        solver=estimator.solver,
        random_state=posed.seed,
        neurons=neurons,
        on_round=watch.on_round,
        on_iteration=watch.on_iteration,
        on_failure="ignore",
        max_seconds=time_for_a_fit(clock),
        **_limit(estimator),
        **_proof(estimator),
    )
    point = generation.at(alpha)
    return Fit(posed, point.solution, point)


def path_options(estimator: NetworkEstimator, seed: int | None) -> dict[str, Any]:
    """What `path` has to know besides, for patterns of either kind."""
    if estimator.patterns != "generate":
        return {"max_iter": estimator.max_iter, "device": estimator.device}
    return {"patterns": "generate", "random_state": seed, **_limit(estimator)}


def generation_of(
    estimator: NetworkEstimator, posed: Posed, on_round: Callable[[Round], object] | None
) -> Generation:
    """Generation along a path, as a fold follows it."""
    return Generation(
        posed.problem,
        tol=estimator.tol,
        solver=estimator.solver,
        random_state=posed.seed,
        on_round=on_round,
        on_failure="ignore",
        descents=DESCENTS,
        **_limit(estimator),
    )


def time_for_a_fit(clock: Budget) -> float | None:
    """What the last fit may take: the time that is left, or a little more, because a fit ends with
    a network in any case."""
    limit = max(clock.left, LAST_SHARE * clock.seconds)
    return None if math.isinf(limit) else limit


def _limit(estimator: NetworkEstimator) -> dict[str, Any]:
    """The limit on rounds, as `generate` takes it."""
    return {} if estimator.max_iter is None else {"max_rounds": estimator.max_iter}


def _proof(estimator: NetworkEstimator) -> dict[str, str]:
    """What is to be proven over all patterns, as `generate` takes it."""
    if not estimator.prove or estimator._problem is not CReLU:
        return {}
    return {"prove": "auto" if estimator.prove is True else str(estimator.prove)}


def neurons_of(solution: Solution) -> Units | None:
    """The neurons of a solution, which other programs can start from; None for gated ones, whose
    neurons are none of a ReLU network."""
    problem = solution.problem
    if not isinstance(problem, CReLU):
        return None
    return units_of(problem, to_numpy(problem.check_weights(solution.weights)))


def found_no_more(estimator: NetworkEstimator) -> bool:
    """Whether the patterns of a fitted ReLU network were generated until a search found no more
    that pay. A network that was improved since then is over other patterns."""
    rounds = all(isinstance(record, Round) for record in estimator.history_)
    return rounds and len(estimator.history_) > 0 and estimator.converged_


def usable(problem: ConvexProblem, *starts: object) -> Units | None:
    """The first of these starts that are neurons and fit the program."""
    _, d, outputs = problem.weight_shape
    for one in starts:
        if isinstance(one, Units) and len(one.W) > 0 and one.W.shape[1] == d:
            return one if int(np.max(one.classes)) < outputs else None
    return None
