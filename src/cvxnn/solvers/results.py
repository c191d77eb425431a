"""What comes out of a run: how it ended, how it went, and weights with what is proven of them."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TypeAlias, cast

import numpy as np

from cvxnn.arrays import Array, Weights, array_namespace, to_numpy
from cvxnn.certificates import Certificate
from cvxnn.networks import TwoLayerNetwork
from cvxnn.proofs import Multipliers
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Solver

KindOfRun: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], str, bool]


class Status(enum.StrEnum):
    """How a run ended. `help` says what it means and what to do about it."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    STALLED = "stalled"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"

    @property
    def help(self) -> str:
        return _HELP[self]


_HELP = {
    Status.CONVERGED: "the tolerance is met",
    Status.MAX_ITER: "the iteration limit was reached: raise max_iter or tol, or take a larger lam",
    Status.TIME_LIMIT: "the time limit was reached: raise max_seconds or tol, or take a larger lam",
    Status.STALLED: "no further progress: raise tol, take a larger lam, use float64 data, or "
    "normalize=True if columns differ in scale",
    Status.DIVERGED: "the objective grew out of bounds: a fixed step is too large",
    Status.INTERRUPTED: "interrupted: this is the best point until then",
    Status.STOPPED: "the callback asked to stop: this is the best point until then",
}


class NotConvergedError(RuntimeError):
    """Raised instead of the warning with `on_failure="raise"`; `solution` holds the result."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution


@dataclass(frozen=True)
class Progress:
    """One iteration, as callbacks and the history see it. `objective` and `lower_bound` are the
    best so far, which is what the relative gap compares; `residual` is the measure of the
    published stopping rule under `stop="paper"`. `n_trials` are the points that the line searches
    of R-FISTA have tried, those that failed included: its iterations and backtracks, which is how
    the paper counts passes; None in the history of a model from a file. `seconds_left` is a guess
    at when the tolerance will be met, if the gap goes on falling as it did lately (forecasts.py);
    None while there is nothing to go by. A `note` says what is being done by a run that has not
    finished an iteration for a while; such signs of life are not in the history."""

    n_iter: int
    seconds: float
    objective: float
    lower_bound: float
    relative_gap: float
    residual: float | None
    step_size: float | None
    n_products: int
    n_trials: int | None = field(default=None, compare=False)
    seconds_left: float | None = field(default=None, compare=False)
    note: str = ""

    @property
    def words(self) -> str:
        """For people who wait."""
        gap = min(max(self.relative_gap, 0.0), 1.0)
        words = f"gap {gap:.1e}, iteration {self.n_iter}"
        return f"{words}, {self.note}" if self.note else words


# What files keep of an iteration. Only signs of life have notes, and guesses are of their moment;
# trials are for checkpoints alone, which have an array of them.
NOT_KEPT = ("n_trials", "seconds_left", "note")
HISTORY = tuple(f.name for f in fields(Progress) if f.name not in NOT_KEPT)


def array_of_history(history: Iterable[Progress]) -> np.ndarray:
    """Iterations as an array (k, len(HISTORY)), with NaN where there is no number."""
    rows = [[getattr(record, name) for name in HISTORY] for record in history]
    return np.array(rows, dtype=np.float64).reshape(-1, len(HISTORY))


def history_of_array(rows: np.ndarray) -> tuple[Progress, ...]:
    """The iterations that such an array stands for."""
    return tuple(map(_progress, rows))


def _progress(row: np.ndarray) -> Progress:
    values = dict(zip(HISTORY, row.tolist(), strict=True))
    for name in ("n_iter", "n_products"):
        values[name] = int(values[name])
    for name in ("residual", "step_size"):
        values[name] = None if math.isnan(values[name]) else values[name]
    return Progress(**values)


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights with what is proven about them. Two runs are two solutions: compare their parts.

    Attributes
    ----------
    problem : what was solved.
    weights : (p, d, C) in the problem's own units; for C-ReLU the pair (V, W), feasible.
    certificate : bounds on the optimal value of the problem.
    dual : (n, C), the dual candidate behind the lower bound: `certify(problem, weights, dual)`
        computes the certificate again.
    multipliers : of the cone constraints behind the lower bound; None without cones.
    output_bias : (C,), the one behind the objective; None for a problem without.
    status : how the run ended; `message` puts it in words.
    n_iter, n_products, seconds : effort; a product is one pass over the data, forward or adjoint.
    history : one `Progress` an iteration.
    """

    problem: Problem
    weights: Weights
    certificate: Certificate
    dual: Array
    status: Status
    message: str
    n_iter: int
    n_products: int
    seconds: float
    history: tuple[Progress, ...]
    solver: Solver
    state: object = field(repr=False)
    multipliers: Multipliers | None = field(default=None, repr=False)
    output_bias: np.ndarray | None = None

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    @property
    def n_active(self) -> int:
        """Non-zero blocks (pattern, class): the neurons of the network."""
        U = self.problem.check_weights(self.weights)
        xp = array_namespace(U)
        return int(xp.sum(xp.astype(xp.any(U != 0, axis=1), xp.int64)))

    @property
    def made_by(self) -> KindOfRun:
        return kind_of_run(self.solver, self.problem)

    def start(self) -> Start:
        """What another run needs of this one; it holds none of the data."""
        U = to_numpy(self.problem.check_weights(self.weights))
        live = np.flatnonzero(np.any(U != 0, axis=(1, 2)))
        return Start(U.shape, live, U[live], self.made_by, self.state)

    def network(self) -> TwoLayerNetwork:
        """The network with these weights, in the units of the raw X."""
        return cast(TwoLayerNetwork, self.problem.network(self.weights))

    def __repr__(self) -> str:
        return (
            f"Solution({self.status}: {self.certificate}; {self.n_active} active neurons, "
            f"{self.n_iter} iterations, {self.seconds:.2f} s)"
        )


@dataclass(frozen=True, eq=False)
class Start:
    """What a run hands on to the next one: weights and the state of its method, but no data.

    Attributes
    ----------
    shape : of all weights, (blocks, features, classes).
    live, values : which blocks are not zero, and these blocks.
    made_by : the method, and the kind of problem, that the state belongs to.
    state : of the method.
    """

    shape: tuple[int, ...]
    live: np.ndarray
    values: np.ndarray
    made_by: KindOfRun
    state: object = field(repr=False)

    @property
    def weights(self) -> np.ndarray:
        U = np.zeros(self.shape, dtype=self.values.dtype)
        U[self.live] = self.values
        return U


def kind_of_run(solver: Solver, problem: Problem) -> KindOfRun:
    """Runs of one kind may start from each other's states; the numbers in them may differ."""
    return (
        solver.name,
        problem.weight_shape,
        tuple(problem.loss.Y.shape),
        problem.loss_name,
        problem.output_bias,
    )
