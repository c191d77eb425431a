"""What a solver is: frozen settings, the penalties it handles, and a stream of iterates.

A solver knows the algorithm and nothing else. It yields `Iterate`s; the driver bounds them,
keeps the best, records history, and decides when to stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from cvxnn.arrays import Array

if TYPE_CHECKING:
    from cvxnn.problems import CGReLU


@dataclass(frozen=True)
class Iterate:
    """A point U with its predictions M U. With `Theta` = grad f(M U) and `gradient` = M'Theta it
    is a full iteration; without them a further candidate for the best objective."""

    U: Array
    fit: Array
    Theta: Array | None = None
    gradient: Array | None = None
    step_size: float | None = None


class StalledError(Exception):
    """Raised by a solver that can make no further progress; the message says why."""


class Solver(Protocol):
    name: ClassVar[str]
    penalties: ClassVar[frozenset[str]]  # the penalties it handles, by class name
    default_max_iter: ClassVar[int]

    def iterates(self, problem: CGReLU, start: Array, tol: float) -> Iterator[Iterate]: ...
