"""ReLU networks for rows in several processes: trained on a sample, bounded on all rows.

Cones take all rows in one place, and a ReLU network that is made of a gated one has a penalty that
grows with the rows. So C-ReLU is solved for a sample of the rows, which is the same on any number
of ranks, and what it gives is measured where all rows are:

- its objective on all rows, rounded up. It is an upper bound of the optimal value of networks with
  any patterns;
- a lower bound of the objectives of ReLU networks whose neurons switch all rows as one of certain
  patterns: those that the gates of the sample have on all rows, and those of the network's own
  neurons. The gated program over these patterns is a relaxation of theirs, and a dual point of it,
  found by `solve` where the rows are, proves the bound.

The two meet where neither the sample nor the relaxation loses anything, so the gap says how much
both of them may cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.arrays import is_stored, to_numpy
from cvxnn.bounds.base import Units, network_objective_above
from cvxnn.budget import Budget
from cvxnn.certificates import Certificate
from cvxnn.estimators.generating import time_for_a_fit
from cvxnn.estimators.posing import Fit, Posed, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.generation.cells import units_of
from cvxnn.networks import ReLUNetwork
from cvxnn.patterns import Patterns
from cvxnn.problems import CGReLU, CReLU, lambda_max
from cvxnn.protocols import Problem
from cvxnn.ranks import Ranks, failing_together
from cvxnn.sharded import taken_apart
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Solution, Status

if TYPE_CHECKING:
    from cvxnn.estimators.base import NetworkEstimator, Watch

SAMPLE = 2000  # rows at most that a ReLU network is trained on
BOUND_TOL = 1e-2  # relative gap of the relaxation that gives the bound
SHARE = 0.5  # of the time limit, for the sample


@dataclass(frozen=True, eq=False)
class SampledFit:
    """A network trained on a sample.

    fit : the program of the sample and its solution, with the certificate of all rows.
    network : for scaled rows, with the output bias that is best on all rows.
    largest : lambda_max of the relaxation.
    n_patterns : that the lower bound covers.
    """

    fit: Fit
    network: ReLUNetwork
    largest: float
    n_patterns: int


def fit_on_sample(
    estimator: NetworkEstimator,
    posing: Posing,
    rows: Rows,
    alpha: float,
    watch: Watch,
    clock: Budget,
) -> SampledFit:
    """Train on a sample of the rows of all ranks, and bound on all of them."""
    across = rows.across
    with failing_together(across):
        if is_stored(rows.X.local):
            raise ValueError(
                "a ReLU network for rows in several processes is measured on all of them, and "
                "needs those of every process in memory; train a gated network, or use more "
                "processes"
            )
    numbers = posing.numbers(rows)
    scaled = numbers.scaled(rows)
    sample = sample_of(scaled, SAMPLE, posing.seed or 0)
    program = posing.program(sample, alpha, posing.sampled(sample.X))
    assert isinstance(program, CReLU)
    posed = Posed(program, numbers, posing.targets, posing.seed)
    solution = _solved(estimator, program, watch, Budget(SHARE * clock.left), across)
    U = to_numpy(program.check_weights(solution.weights))
    # other ranks may have stopped elsewhere, or found weights that differ in their last digits
    ended = {"status": solution.status, "message": solution.message, "n_iter": solution.n_iter}
    units, network, ended = across.gather((units_of(program, U), solution.network(), ended))[0]
    solution = replace(solution, **ended)
    gated = _relaxation(posing, scaled, alpha, program.patterns, units)
    relaxed = solve(
        gated,
        tol=max(estimator.tol, BOUND_TOL),
        max_iter=0 if solution.status is Status.INTERRUPTED else None,
        max_seconds=time_for_a_fit(clock),
        callback=watch.on_iteration,
        checkpoint=watch.checkpoint,
        on_failure="ignore",
    )
    certificate, bias = _certificate(gated, units, relaxed.certificate, len(sample))
    return SampledFit(
        Fit(posed, replace(solution, certificate=certificate)),
        network if bias is None else replace(network, b2=bias),
        lambda_max(gated),
        len(gated.patterns),
    )


def sample_of(rows: Rows, most: int, seed: int) -> Rows:
    """At most so many rows of all ranks, drawn at random, the same ones on any number of ranks; all
    ranks get them."""
    across = rows.across
    counts = across.gather(len(rows))
    n, before = sum(counts), sum(counts[: across.rank])
    chosen = np.arange(n)
    if n > most:
        chosen = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    here = rows.select(chosen[(before <= chosen) & (chosen < before + len(rows))] - before)
    parts = across.gather((taken_apart(here.X)[0], here.Y, here.weight))
    return Rows(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _solved(
    estimator: NetworkEstimator, program: CReLU, watch: Watch, clock: Budget, across: Ranks
) -> Solution:
    """Every rank solves for the sample, so that none waits for another longer than it has to."""
    with failing_together(across):
        return solve(
            program,
            estimator.solver,
            tol=estimator.tol,
            max_iter=estimator.max_iter,
            max_seconds=None if math.isinf(clock.seconds) else clock.seconds,
            callback=watch.on_iteration if across.rank == 0 else None,
            on_failure="ignore",
        )


def _relaxation(
    posing: Posing, scaled: Rows, alpha: float, sampled: Patterns, units: Units
) -> CGReLU:
    """The gated program of all rows over the patterns that the gates of the sample have there, and
    those of the neurons."""
    assert sampled.gates is not None
    assert sampled.gate_bias is not None
    d = sampled.gates.shape[0]
    own = units.W[:, d] if posing.fit_intercept else np.zeros(len(units.W))
    gates = np.concatenate([units.W[:, :d].T, sampled.gates], axis=1)
    patterns = Patterns.from_gates(scaled.X, gates, np.concatenate([own, sampled.gate_bias]))
    gated = replace(posing, problem=CGReLU).program(scaled, alpha, patterns)
    assert isinstance(gated, CGReLU)
    return gated


def _certificate(
    gated: Problem, units: Units, relaxed: Certificate, n_sampled: int
) -> tuple[Certificate, np.ndarray | None]:
    """What is known of the network on all rows, and the output bias that is best there."""
    across, X = gated.operator.base.across, to_numpy(gated.operator_double.rows())
    bias = None
    if gated.output_bias:
        Z = units.predictions(X, gated.loss.Y.shape[1])
        bias = across.agree(gated.loss.intercept(Z))
    objective = network_objective_above(X, gated.loss, gated.lam, units, bias)
    objective = float(across.agree(objective))
    certificate = replace(
        relaxed,
        objective=objective,
        network_objective=objective,
        scope=f"ReLU networks over {len(gated.patterns)} patterns of all rows, bounded by their "
        f"gated relaxation, the network being trained on {n_sampled} of the rows",
    )
    return certificate, bias
