"""What a run may use, and what it has used: seconds, and products over the data.

Whoever starts a run opens a budget with `spend`. Whatever works below it counts its products and
looks at the clock between two pieces of work, with `look`, which ends the run by an exception once
the time is up. A piece of work cannot be interrupted, neither by a limit nor by Ctrl-C, so none is
predicted to take longer than `Budget.longest`; where a method has no smaller pieces, `allows` says
whether to take another one. Predictions come from sizes, so that the same problem with the same
limit is solved by the same steps on every machine, however busy it is.

A budget belongs to the thread that opened it, so runs in several threads have one each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from cvxnn.arrays import blocks
from cvxnn.ranks import ALONE, Ranks

clock = time.perf_counter  # tests have one of their own
# What one thread does in a second on a slow machine: operations of dense linear algebra in float64.
RATE = 2e10
SPARSE_RATE = 5e8  # and of products with sparse matrices
LONGEST, SHARE = 0.5, 0.05  # of a piece of work: seconds, or a share of the limit if that is more
PIECE = 0.1  # seconds of the pieces that work is cut into where that can be chosen
SILENCE = 0.7  # seconds without an iteration after which the callback is called


class OutOfTimeError(Exception):
    """The time of a run is up. It never leaves `solve`."""


class StopAskedError(Exception):
    """The callback has asked to stop while an iteration was under way. It never leaves `solve`."""


ENDS = (OutOfTimeError, StopAskedError, KeyboardInterrupt)  # of a run, from outside its method


@dataclass
class Passes:
    """Products over all the data so far; one with some of the patterns is a fraction. `seconds` is
    what a whole one has taken lately. `trials` are the points that line searches have tried."""

    forward: float = 0.0
    adjoint: float = 0.0
    trials: int = 0
    seconds: float = 0.0
    _share: float = 0.0  # of the products since `seconds` was set, and the time that they took
    _taken: float = 0.0

    def took(self, share: float, seconds: float) -> None:
        """A product, or a part of one, has taken so long."""
        self._share, self._taken = self._share + share, self._taken + seconds
        if self._share > 0.5:
            self.seconds = self._taken / self._share
            self._share = self._taken = 0.0

    @property
    def total(self) -> int:
        return math.ceil(self.forward + self.adjoint - 1e-6)  # sums of fractions are rounded


class Budget:
    """The time and the products of one run.

    seconds : until it has to end.
    on_silence : called when the callback was not called for a while (see `told`).

    across : the ranks that share the rows. All have to end at the same point, so there is no end by
        `look`: it is noted, and the next sum over all rows tells the others (`total`).

    `reserve` are seconds that are kept back for its end, for a certificate.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        on_silence: Callable[[], object] | None = None,
        across: Ranks = ALONE,
    ) -> None:
        self.seconds, self.on_silence, self.across = seconds, on_silence, across
        self._wish: type[BaseException] | None = None  # how rank 0 wishes to end
        self.started = self._told = clock()
        self.passes = Passes()
        self.reserve = 0.0
        self.doing = ""  # what takes so long, in words

    @property
    def taken(self) -> float:
        return clock() - self.started

    @property
    def left(self) -> float:
        return self.seconds - self.taken

    @property
    def longest(self) -> float:
        """What a piece of work may be predicted to take."""
        return max(LONGEST, SHARE * self.seconds)

    def last_call(self) -> None:
        """Open the reserve for the final certificate. It may also exceed the limit by half of the
        longest piece of work; the other half is for the fallback if even that is too short."""
        self.seconds, self.reserve = self.seconds + self.longest / 2, 0.0

    def told(self) -> None:
        """The callback was called just now."""
        self._told = clock()

    def look(self, telling: bool = True) -> None:
        if self.across.size == 1:
            self._look(telling)
        elif self.across.rank == 0:
            try:
                self._look(telling)
            except ENDS as end:
                self.wish(type(end))

    def wish(self, end: type[BaseException]) -> None:
        """End the run in this way, on all ranks, at the next sum over all rows."""
        self._wish = end

    def take_wish(self) -> type[BaseException] | None:
        """The way to end, once."""
        wish, self._wish = self._wish, None
        return wish

    def _look(self, telling: bool) -> None:
        now = clock()
        if now - self.started >= self.seconds - self.reserve:
            raise OutOfTimeError
        if telling and self.on_silence is not None and now - self._told >= SILENCE:
            self._told = now
            self.on_silence()


_current: ContextVar[Budget | None] = ContextVar("cvxnn_budget", default=None)


@contextmanager
def spend(budget: Budget) -> Iterator[Budget]:
    """Open a budget for what is done inside; one within another ends no later than that, and breaks
    its silence."""
    outer = _current.get()
    if outer is not None:
        budget.seconds = min(budget.seconds, outer.left)
        budget.on_silence = budget.on_silence or outer.on_silence
    before = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(before)
        if outer is not None:
            outer.passes.forward += budget.passes.forward
            outer.passes.adjoint += budget.passes.adjoint
            outer.passes.trials += budget.passes.trials


@contextmanager
def unlimited() -> Iterator[None]:
    """No limit for what is done inside: quick work that even a run without time needs."""
    before = _current.set(None)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> Budget | None:
    return _current.get()


def look(telling: bool = True) -> None:
    """Look at the clock, between two pieces of work: raises once the time of the run is up. With
    `telling`, a callback that was silent for long is called."""
    budget = _current.get()
    if budget is not None:
        budget.look(telling)


def allows(seconds: float) -> bool:
    """Whether a piece of work that is predicted to take so long may be done in one go."""
    budget = _current.get()
    return seconds <= (math.inf if budget is None else budget.longest)


def seconds_left() -> float:
    budget = _current.get()
    return math.inf if budget is None else max(budget.left, 0.0)


def limits_of_highs() -> dict[str, float]:
    """The options of HiGHS that end it with the run."""
    left = seconds_left()
    return {"time_limit": left} if math.isfinite(left) else {}


def doing(what: str, seconds: float = 0.0) -> None:
    """Note what is done next, for the callback, which is called at once if the work is predicted to
    take long and cannot be interrupted."""
    budget = _current.get()
    if budget is not None:
        budget.doing = what
        alone = budget.across.size == 1  # else a callback may not end the run here
        if seconds > SILENCE and budget.on_silence is not None and alone:
            budget.told()
            budget.on_silence()


def total(x: np.ndarray, across: Ranks) -> np.ndarray:
    """The sum over all ranks of an array of each. It ends the run on all of them if rank 0 wishes
    so, at the same point of the program."""
    budget = _current.get()
    if budget is None or budget.across.size == 1:
        return across.sum(x)
    budget.look()
    wish = budget.take_wish()
    code = 0 if wish is None else ENDS.index(wish) + 1
    found = across.sum(np.append(x, code if across.rank == 0 else 0))
    if found[-1]:
        raise ENDS[int(found[-1]) - 1]
    return found[:-1].reshape(x.shape)


@contextmanager
def product(*, forward: float = 0.0, adjoint: float = 0.0, timed: bool = True) -> Iterator[None]:
    """Count a product over the data, or a fraction of one, and its time if `timed` is set."""
    budget = _current.get()
    if budget is None:
        yield
        return
    budget.passes.forward += forward
    budget.passes.adjoint += adjoint
    before, share = budget.taken, forward + adjoint
    yield
    if timed:
        budget.passes.took(share, budget.taken - before)


def count_trial() -> None:
    """Count a point that a line search tries."""
    budget = _current.get()
    if budget is not None:
        budget.passes.trials += 1


def pieces(n: int, size: int) -> Iterator[slice]:
    """Slices that cover range(n) in pieces of at most `size`, with a look at the clock before
    each."""
    for piece in blocks(n, size):
        look()
        yield piece
