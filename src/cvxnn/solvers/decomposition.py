"""The paper's algorithm 1: solve C-GReLU, then decompose onto the cones.

The result is feasible for C-ReLU and, at lam = 0 with non-singular cones, optimal. At lam > 0 it
carries the norm of the decomposition; the certificate says how far that is from the bound.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array
from cvxnn.budget import Budget, OutOfTimeError
from cvxnn.decompositions import FUNCTIONS, decompose
from cvxnn.problems import CReLU
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, StalledError, Working, full_iterate
from cvxnn.solvers.choice import choose_gated
from cvxnn.solvers.results import Status
from cvxnn.solvers.run import Run
from cvxnn.validation import check_choice, check_number


@dataclass(frozen=True)
class ConeDecomposition:
    """`method` as in `cvxnn.decompose`; `gated_tol` is the relative gap of the gated problem."""

    name: ClassVar[str] = "decomposition"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 200_000}

    method: str = "min-norm"
    gated_tol: float = 1e-6

    def __post_init__(self) -> None:
        check_choice(self.method, "method", FUNCTIONS)
        check_number(self.gated_tol, "gated_tol", minimum=0)

    def handles(self, problem: Problem) -> bool:
        return problem.kind == "C-ReLU" and not problem.operator.is_sparse

    def iterates(
        self,
        problem: CReLU,
        start: Array,
        stop: str = "gap",
        state: object = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate | Working]:
        method = choose_gated(problem.gated)
        spent = budget.current() or Budget()
        run = Run(problem.gated, self.gated_tol, "gap", method.default_max_iter["gap"], spent)
        steps = run.steps(method, problem.gated.zero_weights(), None)
        status = yield from _with_signs_of_life(steps)
        if status[0] is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if status[0] is Status.TIME_LIMIT:
            raise OutOfTimeError("the gated problem was not solved in time")
        result = decompose(run.finish(method, *status), self.method)
        weights = np.concatenate(result.weights, axis=0)
        yield full_iterate(problem, weights)
        raise StalledError(
            f"a decomposition is feasible, not optimal; its norm is {result.norm_ratio:.3g} times "
            "that of the gated solution: solver 'al' goes on to the optimum"
        )


def _with_signs_of_life(
    steps: Generator[None, None, tuple[Status, str]],
) -> Generator[Iterate | Working, None, tuple[Status, str]]:
    """Run the steps of an inner solve, telling the driver about each, for the limits."""
    n_inner = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        n_inner += 1
        yield Working(n_inner)
