"""A method that works in other columns of a problem (problems/columns.py), behind its back.

Iterates are handed on with the way back to the weights of the problem, on whose X certificates are
computed: what the change of coordinates loses by rounding shows there, and the method goes on
without it.

In principal axes the method begins with the leading ones alone, where a pass costs little. Its dual
points are bounded on the whole X, now and then; as soon as the axes that were left out are what
holds the bound back, the method goes on with twice as many, and at last with all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cvxnn.arrays import Array, to_numpy
from cvxnn.problems import ConvexProblem
from cvxnn.problems.columns import Columns, FewerColumns, PrincipalAxes
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Solver, StalledError, Working, bound_of
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA
from cvxnn.solvers.run import STALL_ITERATIONS
from cvxnn.solvers.stochastic import Stochastic
from cvxnn.solvers.working_sets.method import WorkingSets
from cvxnn.validation import offers

ENOUGH = 0.1  # of the tolerance: a smaller gap in other columns should have ended the run
# In leading axes: of the gap in them that was looked at on the whole X, for the next look, and
# iterations after which there is one anyway.
SMALLER, LONGEST_WAIT = 0.8, 100
MINOR = 0.5  # of the whole gap: if that of the leading axes is less, more axes are needed
LOST = 1e-6  # of the squares of a start, at most, may be outside the axes


def in_better_columns(method: Solver, problem: Any) -> Solver:
    """The method in columns where it is quicker, or as it is."""
    if isinstance(method, WorkingSets | Stochastic) and axes_pay(problem):
        return InColumns(method, problem.data.principal_axes)
    if isinstance(method, Newton | WorkingSets | Stochastic | RFISTA) and fewer_pay(problem):
        return InColumns(method, problem.data.fewer_columns)
    return method


def axes_pay(problem: Any) -> bool:
    """Whether a method that takes steps in a metric is quicker in principal axes. Cones are in the
    plain metric."""
    return bool(
        problem.kind == "C-GReLU"
        and _can_change(problem)
        and not problem.operator.is_sparse
        and PrincipalAxes.pays(
            problem.operator.rows(), len(problem.patterns), problem.loss.Y.shape[1]
        )
    )


def fewer_pay(problem: Any) -> bool:
    """Whether there is something to be won in fewer columns. Sparse cones stay sparse."""
    operator = problem.operator
    sizes = operator.n, operator.d, len(problem.patterns), problem.loss.Y.shape[1]
    return bool(
        _can_change(problem)
        and not (operator.is_sparse and problem.kind == "C-ReLU")
        # what could be won at best, before the rank is looked at
        and FewerColumns.pays(*sizes, span=1, sparse=operator.is_sparse)
        and FewerColumns.pays(*sizes, span=problem.data.span, sparse=operator.is_sparse)
    )


def _can_change(problem: Any) -> bool:
    """Norms of neurons and squares do not change with the coordinates; other penalties do."""
    operator, penalty = problem.operator, problem.penalty
    return bool(
        isinstance(problem, ConvexProblem)
        and problem.lam > 0
        and operator.in_numpy
        and operator.in_memory
        and (offers(penalty, "neuron_norms") or offers(penalty, "squared_norm"))
    )


@dataclass(frozen=True)
class InColumns:
    """The method on the problem in other columns, then on the problem if it has to be."""

    name: ClassVar[str] = "other columns"
    default_max_iter: ClassVar[dict[str, int]] = {}

    method: Solver
    columns: Columns

    @property
    def patience(self) -> int:
        return getattr(self.method, "patience", STALL_ITERATIONS)

    def iterates(
        self, problem: Any, start: Array, stop: str, state: Any, tol: float
    ) -> Iterator[Iterate | Working]:
        columns, U = self.columns, to_numpy(start)
        if isinstance(columns, PrincipalAxes):
            U, state = yield from self._in_leading_axes(problem, columns, U, stop, state, tol)
        changed, restore = problem.in_columns(columns), _way_back(problem, columns)
        W = begin = changed.check_weights(columns.reduce(U))
        try:
            for iterate in self.method.iterates(changed, begin, stop, state, tol):
                if isinstance(iterate, Working):
                    yield iterate if iterate.U is None else replace(iterate, U=restore(iterate.U))
                    continue
                W = iterate.U
                # coordinates do not last, and so a run goes on from its best weights
                yield replace(iterate, restore=restore, snapshot=None)
                if _gap(changed, iterate) <= ENOUGH * tol:
                    break  # and yet the run goes on: what is missing is lost by rounding
        except StalledError:
            pass
        yield from self.method.iterates(problem, restore(W), stop, None, tol)

    def _in_leading_axes(
        self, problem: Any, axes: PrincipalAxes, U: np.ndarray, stop: str, state: Any, tol: float
    ) -> Generator[Iterate | Working, None, tuple[np.ndarray, Any]]:
        """The method in few axes and in more of them, until it takes all; the weights and the
        state that it goes on with. A start that needs more axes is given them."""
        for number in axes.numbers():
            few = axes.leading(number)
            W = few.reduce(U)
            if _squares(W) < (1 - LOST) * _squares(U):
                continue
            changed, restore = problem.in_columns(few), _way_back(problem, few)
            waiting, shown = 0, math.inf  # iterations since an iterate was handed on, and its gap
            try:
                for iterate in self.method.iterates(
                    changed, changed.check_weights(W), stop, state, tol
                ):
                    if isinstance(iterate, Working):
                        at = None if iterate.U is None else restore(iterate.U)
                        yield Working(waiting + iterate.n_inner, at)
                        continue
                    W, state = to_numpy(iterate.U), iterate.state
                    waiting += iterate.n_inner
                    gap = _gap(changed, iterate)
                    if gap > SMALLER * shown and waiting < LONGEST_WAIT:
                        yield Working(waiting)
                        continue
                    whole = replace(
                        iterate,
                        correlation=problem.operator.adjoint(iterate.Theta),
                        bound=None,  # that of the leading axes is none of the problem
                        n_inner=waiting,
                        restore=restore,
                        snapshot=None,
                    )
                    yield whole
                    waiting, shown = 0, gap
                    if gap <= MINOR * _gap(problem, whole):
                        break
            except StalledError:
                pass
            U = to_numpy(restore(W))
        return U, state


def _way_back(problem: Any, columns: Columns) -> Callable[[Array], Array]:
    """From weights in the columns to those of the problem."""

    def restore(W: Array) -> Array:
        return problem.check_weights(columns.restore(to_numpy(W)))

    return restore


def _squares(U: np.ndarray) -> float:
    """Their sum, in double precision: that of many numbers would be rounded by more than LOST."""
    return float(np.einsum("idk,idk->", U, U, dtype=np.float64))


def _gap(problem: Problem, iterate: Iterate) -> float:
    """The relative gap in these columns."""
    objective = problem.loss.value(iterate.fit) + problem.penalty.value(iterate.U)
    return (objective - bound_of(problem, iterate)) / max(objective, 1e-300)
