"""The driver: runs a solver, bounds its iterates, stops on a certificate.

Every iterate with a gradient gives a dual point for the price of a norm, so the relative gap
between the best objective and the best lower bound is known in every iteration. A run counts as
converged only if the final certificate, computed in float64 with fresh products, says so.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from cvxnn import budget, threads
from cvxnn.arrays import Array, array_namespace, in_numpy, is_double, is_sparse
from cvxnn.budget import Budget, OutOfTimeError
from cvxnn.certificates import (
    Certificate,
    Proof,
    lower_bound_of,
    prove,
    relative_gap,
)
from cvxnn.least_squares import KernelFactor
from cvxnn.networks import TwoLayerNetwork
from cvxnn.problems import ConvexProblem, check_problem, check_weights_fit
from cvxnn.proofs import PRECISE, Multipliers
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.base import Iterate, Solver, StalledError
from cvxnn.solvers.conic import CVXPY
from cvxnn.solvers.decomposition import ConeDecomposition
from cvxnn.solvers.direct import LSMR, Direct
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA
from cvxnn.validation import check_choice, check_integer, check_number, suggest

SOLVERS: dict[str, Any] = {
    cls.name: cls for cls in (Newton, RFISTA, AL, ConeDecomposition, Direct, LSMR, CVXPY)
}
DEFAULT_TOL = {"gap": 1e-4, "paper": 1e-3}  # by stopping rule
# A run has stalled if its gap did not fall by this factor within so many iterations.
STALL_FACTOR, STALL_ITERATIONS = 0.99, 5000
# Passes that a certificate takes, at most, which are kept back of a time limit; with cones, too.
PASSES_OF_A_PROOF = {"C-GReLU": 10, "C-ReLU": 16}
# A run diverges if an iterate is worse than the best one by this factor, or not a number.
DIVERGENCE_FACTOR = 1e8


_OWN_OPTIONS = ("tol", "stop", "max_iter", "max_seconds", "warm_start", "callback", "on_failure")


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
    published stopping rule under `stop="paper"`. A `note` says what is being done by a run that
    has not finished an iteration for a while; such signs of life are not in the history."""

    n_iter: int
    seconds: float
    objective: float
    lower_bound: float
    relative_gap: float
    residual: float | None
    step_size: float | None
    n_products: int
    note: str = ""


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

    problem: ConvexProblem
    weights: Any
    certificate: Certificate
    dual: Array
    status: Status
    message: str
    n_iter: int
    n_products: int
    seconds: float
    history: tuple[Progress, ...]
    solver: Solver
    state: Any = field(repr=False)
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

    def network(self) -> TwoLayerNetwork:
        """The network with these weights, in the units of the raw X."""
        return self.problem.network(self.weights)

    def __repr__(self) -> str:
        return (
            f"Solution({self.status}: {self.certificate}; {self.n_active} active neurons, "
            f"{self.n_iter} iterations, {self.seconds:.2f} s)"
        )


def solve(
    problem: ConvexProblem,
    solver: str | Solver = "auto",
    *,
    tol: float | None = None,
    stop: str = "gap",
    max_iter: int | None = None,
    max_seconds: float | None = None,
    warm_start: Any = None,
    callback: Callable[[Progress], object] | None = None,
    on_failure: str = "warn",
    **options: Any,
) -> Solution:
    """Solve a convex training problem to a certified tolerance.

    Parameters
    ----------
    solver : "auto", "newton" and "cvxpy" for both problems, "rfista", "direct", "lsmr" for
        C-GReLU, "al", "decomposition" for C-ReLU, or a solver object such as
        `RFISTA(restart=False)`. "auto" is Newton for the neuron penalty; at lam = 0 and for l2 a
        least squares solver, with a decomposition for C-ReLU ("al" if the data are sparse); and
        R-FISTA for other penalties and for arrays that are not NumPy's.
    stop : "gap" stops on the certificate; "paper" on the rule published for the method: for
        R-FISTA the norm of the min-norm subgradient, for the augmented Lagrangian the larger of
        that and the constraint gap.
    tol : relative duality gap (default 1e-4), or the measure of the published rule (1e-3).
    max_iter, max_seconds : limits. A run ends in time: it keeps back what its certificate takes,
        and whatever cannot be interrupted is predicted to take half a second at most, or 5 % of
        the limit.
    warm_start : weights or a `Solution` to start from; a solution of the same method also hands
        on its step size, multipliers and the like. "direct", "lsmr", "decomposition" and "cvxpy"
        always begin afresh.
    callback : called with a `Progress` in every iteration, and about once a second if iterations
        take longer than that; a true answer stops the run.
    on_failure : "warn", "raise" or "ignore" if the tolerance is not met.
    options : settings of the solver given by name, for instance `restart=False`.

    An interrupt (Ctrl-C) ends the run and returns the best point with its certificate.
    """
    check_problem(problem)
    check_choice(stop, "stop", DEFAULT_TOL)
    check_choice(on_failure, "on_failure", ("warn", "raise", "ignore"))
    tol = DEFAULT_TOL[stop] if tol is None else check_number(tol, "tol", minimum=0)
    if max_iter is not None:
        check_integer(max_iter, "max_iter", minimum=0)
    if max_seconds is not None:
        check_number(max_seconds, "max_seconds", minimum=0, strict=True)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    limit = Budget(math.inf if max_seconds is None else float(max_seconds))
    with threads.single_blas(), budget.spend(limit) as spent:
        method = _make_solver(problem, solver, options)
        _check_capabilities(problem, method, stop)
        further = getattr(method, "further_bytes", None)
        check_weights_fit(problem, 0 if further is None else further(problem))
        start, state = _start_from(warm_start, problem, method)
        most = method.default_max_iter[stop] if max_iter is None else int(max_iter)
        run = Run(problem, tol, stop, most, spent, callback)
        spent.on_silence = None if callback is None else run.sign_of_life
        solution = run.finish(method, *run.to_the_end(run.steps(method, start, state)))
    if not solution.converged and solution.status is not Status.STOPPED and on_failure != "ignore":
        if on_failure == "raise":
            raise NotConvergedError(solution.message, solution)
        from cvxnn.solvers.convergence import ConvergenceWarning

        warnings.warn(solution.message, ConvergenceWarning, stacklevel=2)
    return solution


def _start_from(warm_start: Any, problem: ConvexProblem, method: Solver) -> tuple[Array, Any]:
    """The weights to start from, and the state of an earlier run of the same method."""
    state = None
    if isinstance(warm_start, Solution):
        same = warm_start.solver.name == method.name and _alike(warm_start.problem, problem)
        state = warm_start.state if same else None
        warm_start = warm_start.weights
    if warm_start is None:
        return problem.zero_weights(), state
    return problem.check_weights(warm_start, "warm_start"), state


def _alike(a: ConvexProblem, b: ConvexProblem) -> bool:
    """Whether the state of a run on one may start a run on the other; values may differ."""
    return (
        a.weight_shape == b.weight_shape
        and a.loss.Y.shape == b.loss.Y.shape
        and (a.loss_name, a.output_bias) == (b.loss_name, b.output_bias)
    )


class _DivergedError(Exception):
    """An iterate is out of bounds."""


class _StoppedError(Exception):
    """The callback asked to stop while an iteration was under way."""


class Run:
    """The state of one run: the best point, the best bound, the history."""

    def __init__(
        self,
        problem: ConvexProblem,
        tol: float,
        stop: str,
        max_iter: int,
        spent: Budget,
        callback: Callable[[Progress], object] | None = None,
    ) -> None:
        self.problem, self.tol, self.stop = problem, tol, stop
        self.max_iter, self.budget, self.callback = max_iter, spent, callback
        self.zero_objective = problem.loss.zero_value
        self.history: list[Progress] = []
        self.best_U: Array = None
        self.best_Theta: Array = None
        self.best_active: Any = None
        self.objective, self.lower_bound = math.inf, -math.inf
        self.state: Any = None
        self.n_iter = -1  # the first iterate is the start
        self.proof: Proof | None = None
        self.confirm_below = tol
        self.patience = STALL_ITERATIONS
        self._stall_gap, self._stall_iter = math.inf, 0
        self._passes_before, self._started = spent.passes.total, spent.taken

    def steps(
        self, method: Solver, start: Array, state: Any
    ) -> Generator[None, None, tuple[Status, str]]:
        """Take iterates, one at a time, until one meets the tolerance or a limit; how it ended,
        and details."""
        self.patience = getattr(method, "patience", STALL_ITERATIONS)
        try:
            for iterate in method.iterates(self.problem, start, self.stop, state, self.tol):
                status = self._take(iterate)
                if status is not None:
                    return status, ""
                yield
        except KeyboardInterrupt:
            return Status.INTERRUPTED, ""
        except OutOfTimeError as error:
            return Status.TIME_LIMIT, str(error)
        except _StoppedError:
            return Status.STOPPED, ""
        except _DivergedError:
            return Status.DIVERGED, ""
        except StalledError as error:
            if self.best_U is None:
                raise RuntimeError(f"{method.name} returned no point: {error}") from error
            return Status.STALLED, str(error)
        return Status.STALLED, ""

    @staticmethod
    def to_the_end(steps: Generator[None, None, tuple[Status, str]]) -> tuple[Status, str]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def finish(self, method: Solver, status: Status, details: str) -> Solution:
        proof = self.proof or self._last_proof()
        certificate = proof.certificate
        if self.stop == "gap" and certificate.relative_gap <= self.tol:
            status = Status.CONVERGED
        return Solution(
            problem=self.problem,
            weights=self.problem.present(self.problem.check_weights(proof.weights)),
            certificate=certificate,
            dual=proof.dual,
            multipliers=proof.multipliers,
            output_bias=proof.output_bias,
            status=status,
            message=self._message(method, status, details, certificate),
            n_iter=max(self.n_iter, 0),
            n_products=self._n_products(),
            seconds=self.budget.taken - self._started,
            history=tuple(self.history),
            solver=method,
            state=self.state,
        )

    def _take(self, iterate: Iterate) -> Status | None:
        if iterate.U is None:
            return self._limit_reached(self.n_iter + iterate.n_inner)
        self._observe(iterate)
        self.n_iter += iterate.n_inner
        self.state = iterate.state
        return self._judge(iterate)

    def _observe(self, iterate: Iterate) -> None:
        """Keep the best objective and the best lower bound; they need not be of one iterate."""
        problem = self.problem
        objective = problem.loss.value(iterate.fit) + problem.penalty.value(iterate.U)
        if objective < self.objective or self.best_U is None:
            self.objective, self.best_U = objective, iterate.U
        budget.look()
        if not objective <= DIVERGENCE_FACTOR * max(self.objective, self.zero_objective):
            raise _DivergedError
        bound, _ = lower_bound_of(problem, iterate.Theta, iterate.correlation)
        if bound > self.lower_bound:
            self.lower_bound, self.best_Theta = bound, iterate.Theta
            self.best_active = iterate.active

    def _judge(self, iterate: Iterate) -> Status | None:
        """Record the iteration and decide whether it is the last."""
        progress = self._progress(iterate)
        self.history.append(progress)
        stop_asked = self.callback is not None and bool(self.callback(progress))
        self.budget.told()
        self._keep_time_for_a_proof()
        if self._is_converged(progress, iterate):
            return Status.CONVERGED
        if stop_asked:
            return Status.STOPPED
        limit = self._limit_reached(progress.n_iter)
        if limit is not None:
            return limit
        if progress.relative_gap < STALL_FACTOR * self._stall_gap:
            self._stall_gap, self._stall_iter = progress.relative_gap, progress.n_iter
        elif progress.n_iter - self._stall_iter >= self.patience and self.stop == "gap":
            return Status.STALLED
        return None

    def _limit_reached(self, n_iter: int) -> Status | None:
        if n_iter >= self.max_iter:
            return Status.MAX_ITER
        if self.budget.left <= self.budget.reserve:
            return Status.TIME_LIMIT
        return None

    def _keep_time_for_a_proof(self) -> None:
        passes = self.budget.passes
        if math.isfinite(self.budget.seconds) and passes.total:
            each = passes.seconds / (passes.forward + passes.adjoint)
            wanted = PASSES_OF_A_PROOF[self.problem.kind] * each
            self.budget.reserve = min(wanted, self.budget.seconds / 2)

    def _progress(self, iterate: Iterate, note: str = "") -> Progress:
        objective, lower_bound = self.objective, self.lower_bound
        if self.best_U is None:  # what is known of the zero model
            objective, lower_bound = self.zero_objective, 0.0
        return Progress(
            n_iter=max(self.n_iter, 0),
            seconds=self.budget.taken - self._started,
            objective=objective,
            lower_bound=lower_bound,
            relative_gap=relative_gap(objective, lower_bound, self.zero_objective),
            residual=iterate.residual,
            step_size=iterate.step_size,
            n_products=self._n_products(),
            note=note,
        )

    def sign_of_life(self) -> None:
        """Tell the callback of an iteration that takes long."""
        what = self.budget.doing or ("preparing" if self.best_U is None else "iterating")
        if self.callback is not None and self.callback(self._progress(Iterate(), what)):
            raise _StoppedError

    def _is_converged(self, progress: Progress, iterate: Iterate) -> bool:
        if self.stop == "paper":
            if progress.residual is None or progress.residual > self.tol:
                return False
            self.best_U = iterate.U  # the point whose residual is small
            return True
        if progress.relative_gap > self.confirm_below:
            return False
        proof = self._prove(enough=self.tol)
        if proof.certificate.relative_gap <= self.tol:
            self.proof = proof
            return True
        self.confirm_below = progress.relative_gap / 2  # rounding fooled us: ask for more
        return False

    def _prove(self, enough: float = -1.0, bounded: bool = True) -> Proof:
        return prove(
            self.problem,
            self.best_U,
            self.best_Theta,
            start=self.best_active,
            enough=enough,
            precise=max(PRECISE, 1e-3 * self.tol) if self.stop == "gap" else PRECISE,
            refuse=False,
            bounded=bounded,
        )

    def _last_proof(self) -> Proof:
        """What can be proven of the best point in the time that was kept back for it: at least
        its objective."""
        self.budget.on_silence = None
        self.budget.last_call()
        try:
            if self.best_U is not None:
                return self._prove()
        except OutOfTimeError:
            pass
        else:  # ended before the first iterate; zero is always feasible
            self.best_U = self.problem.zero_weights()
        self.budget.seconds = math.inf
        return self._prove(bounded=False)

    def _n_products(self) -> int:
        return self.budget.passes.total - self._passes_before

    def _message(
        self, method: Solver, status: Status, details: str, certificate: Certificate
    ) -> str:
        wanted = "relative gap" if self.stop == "gap" else "residual of the published rule"
        parts = [f"{method.name}: {status.help}", f"{wanted} wanted: {self.tol:g}"]
        if self.stop == "paper" and self.history and self.history[-1].residual is not None:
            parts.append(f"reached: {self.history[-1].residual:.2g}")
        parts.append(f"certified relative gap: {certificate.relative_gap:.2g}")
        if details:
            parts.append(details)
        if status is Status.STALLED and not is_double(self.problem.operator.X):
            parts.append("the data are float32")
        return "; ".join(parts)


def _make_solver(problem: ConvexProblem, solver: str | Solver, options: dict[str, Any]) -> Solver:
    if not isinstance(solver, str):
        if isinstance(solver, type) or not hasattr(solver, "iterates"):
            raise TypeError(
                f"solver must be a name or a solver object, got {type(solver).__name__}; "
                f"{suggest('', ['auto', *SOLVERS])}"
            )
        if options:
            raise TypeError(f"options {sorted(options)} are for a solver given by name")
        return solver
    check_choice(solver, "solver", ["auto", *SOLVERS])
    if solver == "auto":
        solver = choose(problem).name
    cls = SOLVERS[solver]
    known = [f.name for f in fields(cls)]
    for option in options:
        if option not in known:
            hint = suggest(option, [*known, *_OWN_OPTIONS])
            raise TypeError(f"neither solve nor solver {solver!r} has {option!r}; {hint}")
    return cls(**options)


def choose(problem: ConvexProblem) -> Solver:
    """The solver behind "auto", with its default settings."""
    if problem.kind == "C-ReLU" and problem.lam == 0:
        return AL() if is_sparse(problem.operator.X) else ConeDecomposition()
    if problem.kind == "C-ReLU":
        return Newton()
    penalty = type(problem.penalty).__name__
    if penalty in Direct.penalties and _handles_loss(Direct, problem):
        return Direct() if KernelFactor.fits(problem.operator.n) else LSMR()
    # Newton works on NumPy arrays; others stay where they are, on an accelerator perhaps
    if penalty in Newton.penalties and in_numpy(problem.operator.X):
        return Newton()
    return RFISTA()


def _handles_loss(solver: Any, problem: ConvexProblem) -> bool:
    """Least squares solvers know one loss, unweighted; the others say nothing and take all."""
    known = getattr(solver, "losses", None)
    return known is None or (
        type(problem.loss).__name__ in known and not problem.loss.has_sample_weights
    )


def _terms(problem: ConvexProblem) -> str:
    terms = f"penalty {problem.penalty_name!r} and lam = {problem.lam:g}"
    extras = [f"loss {problem.loss_name!r}"] if problem.loss_name != "squared" else []
    extras += ["sample weights"] if problem.loss.has_sample_weights else []
    extras += ["an output bias"] if problem.output_bias else []
    extras += ["sparse data"] if is_sparse(problem.operator.X) else []
    return ", ".join([*extras, terms])


def _check_capabilities(problem: ConvexProblem, method: Solver, stop: str) -> None:
    penalty = type(problem.penalty).__name__

    def able(candidate: Any) -> bool:
        return (
            problem.kind in candidate.problems
            and penalty in candidate.penalties
            and _handles_loss(candidate, problem)
            and not (is_sparse(problem.operator.X) and getattr(candidate, "dense_only", False))
        )

    if not able(method):
        others = [name for name, cls in SOLVERS.items() if able(cls)]
        raise ValueError(
            f"solver {method.name!r} does not handle {problem.kind} with {_terms(problem)}; "
            f"use one of: {', '.join(others)}"
        )
    if stop not in method.default_max_iter:
        raise ValueError(f"stop {stop!r} has no meaning for solver {method.name!r}; use 'gap'")
