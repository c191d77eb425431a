"""Proximal steps on a few rows at a time, then the working sets from there to a certificate.

With many rows, one step on all of them costs as much as hundreds on a few. In the course of some
passes over shuffled rows

    M = 0.9 M + 0.1 G,   G the gradient of the loss of a batch,
    h_j = root mean square of the past G in column j, over all patterns and classes,
    U_i^k -= step M_i^k / h,
    U_i^k = argmin_u  step lam ||u|| + 1/2 sum_j h_j (u_j - U_ij^k)^2.

The metric is that of Adam, but shared by all patterns and classes: the penalty is the same for all
of them, and its prox is then one root of one variable for each group (shrinkage.py). The prox is
taken every few steps, for all of them at once. The step grows at first, then falls linearly to
zero, which averages out the noise of the batches.

All of that is in single precision, and nothing is proven of it: it is a start. The working sets
take over and stop on their certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array, to_numpy
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Working
from cvxnn.solvers.shrinkage import shrink_in_metric
from cvxnn.solvers.working_sets.method import WorkingSets
from cvxnn.validation import check_integer, check_number

MEMORY, METRIC_MEMORY = 0.9, 0.999  # of the gradient, and of its squares
WARM_UP = 0.1  # the share of all steps in which the step grows
EVERY = 4  # steps between two proxes
SHOWN = 20  # batches between two points that are handed out
SMALL = 1e-12  # of the metric, relative to its largest entry


@dataclass(frozen=True)
class Stochastic:
    """Settings of the method.

    Attributes
    ----------
    epochs : passes over the rows, in batches, before the working sets take over.
    batch : rows of a batch.
    step : the longest step, relative to the size of the rows and to the number of patterns.
    seed : for the order of the rows; equal seeds give equal runs.
    then : the settings of the working sets.
    """

    name: ClassVar[str] = "stochastic"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 100_000}

    epochs: int = 5
    batch: int = 512
    step: float = 4.0
    seed: int = 0
    then: WorkingSets = field(default_factory=WorkingSets)

    def __post_init__(self) -> None:
        check_integer(self.epochs, "epochs", minimum=0)
        check_integer(self.batch, "batch", minimum=1)
        check_number(self.step, "step", minimum=0, strict=True)
        check_integer(self.seed, "seed", minimum=0)
        if not isinstance(self.then, WorkingSets):
            raise TypeError(f"then must be WorkingSets, got {type(self.then).__name__}")

    def handles(self, problem: Problem) -> bool:
        """What the working sets handle, without cones, to which every step would have to be
        projected, and with rows that are dense."""
        dense = problem.kind == "C-GReLU" and not problem.operator.is_sparse
        return dense and self.then.handles(problem)

    def further_bytes(self, problem: Problem) -> int:
        """Weights, gradients and momentum, in single precision."""
        m, d, C = problem.weight_shape
        return 4 * 4 * m * d * C

    def iterates(
        self,
        problem: Problem,
        start: Array,
        stop: str = "gap",
        state: Any = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate | Working]:
        passed = 0
        if state is None and not np.any(to_numpy(start)):  # a warm start is better than ours
            for working in self._epochs(problem):
                if working.U is not None:
                    start, passed = working.U, working.n_inner
                yield working
        yield from self._handed_on(self.then.iterates(problem, start, stop, state, tol), passed)

    def resumed(
        self, problem: Problem, arrays: Mapping[str, np.ndarray], stop: str, tol: float
    ) -> Iterator[Iterate | Working]:
        """The working sets go on; epochs leave nothing to go on from."""
        return self._handed_on(self.then.resumed(problem, arrays, stop, tol), 0)

    def _handed_on(
        self, iterates: Iterator[Iterate | Working], passed: int
    ) -> Iterator[Iterate | Working]:
        """What the working sets show, with their snapshots as our own; the first one counts the
        epochs that have passed."""
        for iterate in iterates:
            if isinstance(iterate, Working):
                yield iterate
                continue
            snapshot = iterate.snapshot
            if snapshot is not None and snapshot.method == self.then.name:
                snapshot = replace(snapshot, method=self.name)
            yield replace(iterate, n_inner=iterate.n_inner + passed, snapshot=snapshot)
            passed = 0

    def _epochs(self, problem: Problem) -> Iterator[Working]:
        n = problem.operator.n
        steps = _Steps(problem, self)
        rng = np.random.default_rng(self.seed)
        for epoch in range(self.epochs):
            budget.doing(f"epoch {epoch + 1} of {self.epochs}")
            order = rng.permutation(n)
            for count, first in enumerate(range(0, n, self.batch), 1):
                steps.take(order[first : first + self.batch])
                if count % SHOWN == 0:
                    yield Working(epoch, steps.weights())
            yield Working(epoch + 1, steps.weights())
        budget.doing("")


class _Steps:
    """The state between two steps. Weights are (C, p, d), class after class."""

    def __init__(self, problem: Problem, settings: Stochastic) -> None:
        self.operator, self.like = problem.operator.base, problem.operator.like
        self.lam, self.loss = problem.lam, problem.loss
        self.plain: Any = getattr(problem.loss, "base", problem.loss)  # without its output bias
        self.with_bias = problem.output_bias
        p, d, C = problem.weight_shape
        self.U = np.zeros((C, p, d), dtype=np.float32)
        self.bias = self.loss.intercept(np.zeros((self.operator.n, C)))
        length = math.sqrt(max(float(np.mean(self.operator.row_squares())), 1e-300))
        self.longest = settings.step / (p * length)
        # of a column of ones that sqrt(p) patterns share
        self.of_bias = math.sqrt(p / d) * length
        self.total = settings.epochs * math.ceil(self.operator.n / settings.batch)
        self.momentum, self.squares = np.zeros_like(self.U), np.zeros(d)
        self.bias_momentum, self.bias_squares = np.zeros(C), 0.0
        self.taken, self.owed = 0, 0.0

    def weights(self) -> Array:
        """A copy, as the problem has them."""
        return self.like(np.ascontiguousarray(self.U.transpose(1, 2, 0)))

    def take(self, rows: np.ndarray) -> None:
        batch = self.operator.batch(rows)
        theta = self.plain.on_rows(rows).gradient(batch.forward(self.U) + self.bias)
        G = batch.adjoint(theta.astype(np.float32))
        self.taken += 1
        share = self.taken / self.total
        step = self.longest * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))
        unbiased = step / (1 - MEMORY**self.taken)
        h = self._metric(G)
        self.momentum *= np.float32(MEMORY)
        self.momentum += np.float32(1 - MEMORY) * G
        self.U -= self.momentum * (unbiased / h).astype(np.float32)
        if self.with_bias:
            self._move_bias(theta.sum(axis=0), unbiased)
        self.owed += step
        if self.taken % EVERY == 0 or self.taken == self.total:
            shape = self.U.shape
            rows = self.U.reshape(-1, shape[2])
            self.U = shrink_in_metric(rows, self.owed * self.lam, h).reshape(shape)
            self.owed = 0.0

    def _metric(self, G: np.ndarray) -> np.ndarray:
        flat = G.reshape(-1, G.shape[2])
        self.squares *= METRIC_MEMORY
        self.squares += (1 - METRIC_MEMORY) * np.einsum("ij,ij->j", flat, flat) / len(flat)
        h = np.sqrt(self.squares / (1 - METRIC_MEMORY**self.taken))
        return np.maximum(h, max(SMALL * float(h.max()), 1e-30))

    def _move_bias(self, slope: np.ndarray, step: float) -> None:
        self.bias_momentum = MEMORY * self.bias_momentum + (1 - MEMORY) * slope
        self.bias_squares *= METRIC_MEMORY
        self.bias_squares += (1 - METRIC_MEMORY) * float(np.mean(slope**2))
        h = math.sqrt(self.bias_squares / (1 - METRIC_MEMORY**self.taken))
        self.bias = self.bias - self.of_bias * step / max(h, 1e-30) * self.bias_momentum
