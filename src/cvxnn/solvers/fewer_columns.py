"""A method that works in fewer columns of a problem (problems/columns.py), behind its back.

Iterates are handed on with the way back to the weights of the problem, on whose X certificates are
computed: what the change of coordinates loses by rounding shows there, and the method goes on
without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cvxnn.arrays import Array
from cvxnn.certificates import lower_bound_of
from cvxnn.problems import ConvexProblem
from cvxnn.problems.columns import FewerColumns
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Solver, StalledError, Working
from cvxnn.solvers.run import STALL_ITERATIONS
from cvxnn.validation import offers

ENOUGH = 0.1  # of the tolerance: a smaller gap in fewer columns should have ended the run


@dataclass(frozen=True)
class InFewerColumns:
    """The method on the problem with fewer columns, then on the problem if it has to be."""

    name: ClassVar[str] = "fewer columns"
    default_max_iter: ClassVar[dict[str, int]] = {}

    method: Solver

    @property
    def patience(self) -> int:
        return getattr(self.method, "patience", STALL_ITERATIONS)

    @staticmethod
    def pays(problem: Problem) -> bool:
        """Whether there is something to be won. Norms of neurons and squares do not change with the
        coordinates; other penalties do. Sparse cones stay sparse."""
        operator, penalty = problem.operator, problem.penalty
        sizes = operator.n, operator.d, len(problem.patterns), problem.loss.Y.shape[1]
        return bool(
            isinstance(problem, ConvexProblem)
            and problem.lam > 0
            and operator.in_numpy
            and operator.in_memory
            and (offers(penalty, "neuron_norms") or offers(penalty, "squared_norm"))
            and not (operator.is_sparse and problem.kind == "C-ReLU")
            # what could be won at best, before the rank is looked at
            and FewerColumns.pays(*sizes, span=1, sparse=operator.is_sparse)
            and FewerColumns.pays(*sizes, span=problem.data.span, sparse=operator.is_sparse)
        )

    def iterates(
        self, problem: Any, start: Array, stop: str, state: Any, tol: float
    ) -> Iterator[Iterate | Working]:
        columns = problem.data.columns
        smaller = problem.with_fewer_columns()
        W = begin = smaller.check_weights(columns.reduce(start))

        def restore(W: Array) -> Array:
            return problem.check_weights(columns.restore(W))

        try:
            for iterate in self.method.iterates(smaller, begin, stop, state, tol):
                if isinstance(iterate, Working):
                    yield iterate if iterate.U is None else replace(iterate, U=restore(iterate.U))
                    continue
                W = iterate.U
                # coordinates do not last, and so a run goes on from its best weights
                yield replace(iterate, restore=restore, snapshot=None)
                if _gap(smaller, iterate) <= ENOUGH * tol:
                    break  # and yet the run goes on: what is missing is lost by rounding
        except StalledError:
            pass
        yield from self.method.iterates(problem, restore(W), stop, None, tol)


def _gap(problem: Problem, iterate: Iterate) -> float:
    """The relative gap in fewer columns."""
    objective = problem.loss.value(iterate.fit) + problem.penalty.value(iterate.U)
    bound, _ = lower_bound_of(problem, iterate.Theta, iterate.correlation)
    return (objective - bound) / max(objective, 1e-300)
