"""What a solver is: frozen settings, what it can handle, and a stream of iterates.

A solver knows the algorithm and nothing else. It yields `Iterate`s, and `Working` while it has
nothing to show; the driver bounds them, keeps the best, records history, and decides when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Protocol

from cvxnn.arrays import Array
from cvxnn.certificates import lower_bound_of
from cvxnn.cones.projection import ActiveRows
from cvxnn.protocols import Problem


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Where a method is at an iterate, for a run that goes on there after its process has ended.

    method : its name.
    arrays : all that it needs, by name; numbers are arrays without axes. Nobody changes them, so
        that they can be kept without a copy.
    """

    method: str
    arrays: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Iterate:
    """What a solver has to show.

    U, fit : a feasible point and its predictions M U.
    Theta, correlation : a dual candidate (n, C) and, block by block, what the dual constraint
        bounds: M'Theta, for cones with any multipliers subtracted.
    bound : the lower bound that Theta gives, where the method knows it; `correlation` may then be
        left out.
    objective : the value at U, where the method knows it.
    residual : the published stopping rule's measure, where it was asked for.
    n_inner : iterations of the method that were spent since the last full iterate.
    state : what a warm start needs beside the weights.
    restore : the way from U to weights of the problem, where U is in other coordinates; the norms
        of its blocks are the same.
    active : where the projections of a fresh certificate of Theta may start; see
        `problem.dual_correlation`.
    snapshot : where the method is, if it can go on from there.
    """

    U: Array
    fit: Array
    Theta: Array
    correlation: Array | None = None
    _: KW_ONLY
    bound: float | None = None
    objective: float | None = None
    residual: float | None = None
    step_size: float | None = None
    n_inner: int = 1
    state: object = None
    restore: Callable[[Array], Array] | None = None
    active: ActiveRows | None = None
    snapshot: Snapshot | None = None


def bound_of(problem: Problem, iterate: Iterate) -> float:
    """The lower bound that the dual candidate of an iterate gives."""
    if iterate.bound is not None:
        return iterate.bound
    return lower_bound_of(problem, iterate.Theta, iterate.correlation)[0]


@dataclass(frozen=True, eq=False)
class Working:
    """Yielded between two iterates, so that the driver can check its limits.

    n_inner : as for an iterate.
    U : a feasible point whose value is not known. A run that ends before its first iterate
        returns the last one.
    """

    n_inner: int = 1
    U: Array | None = None


def full_iterate(problem: Problem, U: Array) -> Iterate:
    """A feasible point with the dual candidate of its own gradient."""
    fit = problem.operator.forward(U)
    Theta = problem.loss.gradient(fit)
    return Iterate(U, fit, Theta, problem.dual_correlation(Theta))


class StalledError(Exception):
    """Raised by a solver that can make no further progress; the message says why."""


class Solver(Protocol):
    """`default_max_iter` is by stopping rule. A method may also have

    handles(problem) : whether it can solve the problem; without it, the method takes every one.
    any_device : whether it works on arrays of any library on any device, not on NumPy's alone.
    carry_on(problem, before, last, share) : the state for a path's next point from those of the
        last two; `share` is the next step of lam relative to the last one.
    further_bytes(problem) : what it needs beside weights, for a refusal before it is too late.
    resumed(problem, arrays, stop, tol) : the iterates that follow the one with the snapshot
        `arrays`. Without it, a run goes on from its best weights.
    """

    name: ClassVar[str]
    default_max_iter: ClassVar[dict[str, int]]

    def iterates(
        self, problem: Any, start: Array, stop: str, state: Any, tol: float
    ) -> Iterator[Iterate | Working]:
        """Iterates from `start`, of a problem that the method handles. `stop` is "gap" or "paper":
        with the latter every iterate carries its residual. `state` is that of an earlier run of
        the same method, or None. `tol` is what will end the run, for methods that solve
        subproblems no better than needed."""
        ...
