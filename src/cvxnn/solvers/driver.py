"""`solve`: checks what it is given, finds the solver, and runs it."""

from __future__ import annotations

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from os import PathLike
from typing import Any

from cvxnn import budget, threads
from cvxnn.arrays import Array, Weights
from cvxnn.budget import Budget
from cvxnn.certificates import check_bounded, time_a_pass
from cvxnn.checkpoints import Store
from cvxnn.devices import find_device
from cvxnn.memory import TooLargeError, check_size_text, size_text
from cvxnn.problems import check_weights_fit
from cvxnn.protocols import Problem
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.base import Solver
from cvxnn.solvers.choice import choose_gated, suits_newton_on_a_path, suits_working_sets
from cvxnn.solvers.columns import in_better_columns
from cvxnn.solvers.conic import CVXPY
from cvxnn.solvers.decomposition import ConeDecomposition
from cvxnn.solvers.devices import OnDevice, check_offered, state_on_host
from cvxnn.solvers.direct import LSMR, Direct
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.results import (
    NotConvergedError,
    Progress,
    Solution,
    Start,
    Status,
    kind_of_run,
)
from cvxnn.solvers.rfista import RFISTA
from cvxnn.solvers.run import Run
from cvxnn.solvers.saving import INTERVAL, RunFile
from cvxnn.solvers.stochastic import Stochastic
from cvxnn.solvers.working_sets.method import WorkingSets
from cvxnn.validation import check_choice, check_integer, check_number, check_problem, suggest

SOLVERS: dict[str, Any] = {
    cls.name: cls
    for cls in (Newton, WorkingSets, Stochastic, RFISTA, AL, ConeDecomposition, Direct, LSMR, CVXPY)
}
DEFAULT_TOL = {"gap": 1e-4, "paper": 1e-3}  # by stopping rule
_OWN_OPTIONS = (
    "tol",
    "stop",
    "max_iter",
    "max_seconds",
    "max_memory",
    "device",
    "warm_start",
    "callback",
    "on_failure",
    "checkpoint",
    "checkpoint_seconds",
)


def solve(
    problem: Problem,
    solver: str | Solver = "auto",
    *,
    tol: float | None = None,
    stop: str = "gap",
    max_iter: int | None = None,
    max_seconds: float | None = None,
    max_memory: str | int | None = None,
    device: str | None = None,
    warm_start: Weights | Solution | Start | None = None,
    callback: Callable[[Progress], object] | None = None,
    on_failure: str = "warn",
    checkpoint: str | PathLike[str] | Store | None = None,
    checkpoint_seconds: float | None = None,
    **options: object,
) -> Solution:
    """Solve a convex training problem to a certified tolerance.

    Parameters
    ----------
    solver : "auto", "newton", "working-sets" and "cvxpy" for both problems, "rfista", "direct",
        "lsmr" for C-GReLU, "al", "decomposition" for C-ReLU, or a solver object such as
        `RFISTA(restart=False)`. "auto" is Newton for the neuron penalty, and working sets with a
        loss that couples its outputs (softmax), but for ReLU networks of few columns and outputs
        that start from weights; at lam = 0 and for l2 a least squares solver, with a decomposition
        for C-ReLU ("al" if the data are sparse); and R-FISTA for other penalties and for arrays
        that are not NumPy's.
    stop : "gap" stops on the certificate; "paper" on the rule published for the method: for
        R-FISTA the norm of the min-norm subgradient, for the augmented Lagrangian the larger of
        that and the constraint gap.
    tol : relative duality gap (default 1e-4), or the measure of the published rule (1e-3).
    max_iter, max_seconds : limits. A run ends in time: it keeps back what its certificate takes,
        and whatever cannot be interrupted is predicted to take half a second at most, or 5 % of
        the limit.
    max_memory : bytes, or a text such as "500MB", that the run may take beside the problem itself.
        "auto" then takes R-FISTA where Newton may need more. A run that is predicted to need more
        is an error. For data that do not fit at all, see `StoredRows`.
    device : where to work: "cuda", "cuda:1", "mps", or "cpu" to try it without a GPU; any device of
        PyTorch (pip install 'cvxnn[torch]'). The methods that are offered there are "rfista" and
        "al", which "auto" then takes. Weights and certificate come back as without it, and are
        proven in NumPy's float64; see the page on GPUs. Experimental.
    warm_start : weights or a `Solution` to start from; a solution of the same method also hands
        on its step size, multipliers and the like, and so does `solution.start()`, which holds
        none of the data. "direct", "lsmr", "decomposition" and "cvxpy" always begin afresh.
    callback : called with a `Progress` in every iteration, and about once a second if iterations
        take longer than that; a true answer stops the run.
    on_failure : "warn", "raise" or "ignore" if the tolerance is not met.
    checkpoint : a file that keeps the run, so that it can go on after its process has ended. If
        it is there already, it has to be of the same problem, solver and stopping rule; the run
        goes on from it, and iterations, passes, seconds and history are those of the whole run.
        `max_seconds` is for each call. The file stays: where it holds a run that meets `tol`, that
        is certified again and returned.
    checkpoint_seconds : how often the file is written, at most (60); each time between two
        iterations, so that a process that is killed loses that much and one iteration.
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
    interval = _interval(checkpoint, checkpoint_seconds)
    place = None if device is None else find_device(device)
    if place is not None and solver == "auto":
        solver = RFISTA.name if problem.kind == "C-GReLU" else AL.name
    across = problem.operator.base.across
    if place is not None and across.size > 1:
        raise ValueError("device= is for rows in one process; these are in several")
    limit = Budget(math.inf if max_seconds is None else float(max_seconds), across=across)
    near = warm_start is not None
    with threads.single_blas(), budget.spend(limit) as spent, interrupts(spent):
        if max_memory is not None:
            solver = _within(check_size_text(max_memory, "max_memory"), problem, solver, near)
        method = _make_solver(problem, solver, options, near)
        check_bounded(problem)
        if place is not None:
            check_offered(problem, method, place, SOLVERS)
        _check_capabilities(problem, method, stop)
        further = getattr(method, "further_bytes", None)
        check_weights_fit(problem, 0 if further is None else further(problem))
        start, state = _start_from(warm_start, problem, method)
        most = method.default_max_iter[stop] if max_iter is None else int(max_iter)
        file = None
        if checkpoint is not None:
            interval = getattr(checkpoint, "seconds", interval)
            file = RunFile(checkpoint, problem, method, stop, interval)
        run = Run(problem, tol, stop, most, spent, callback, file)
        told = callback is not None and across.rank == 0
        spent.on_silence = run.sign_of_life if told else None
        if math.isfinite(spent.seconds) and (place or not problem.operator.in_numpy):
            time_a_pass(problem)
        way: Any = method if place is None else OnDevice(method, place)
        if place is None and stop == "gap":
            way = in_better_columns(method, problem)
        solution = run.finish(method, *run.to_the_end(run.steps(way, start, state)))
        if place is not None:
            solution = replace(solution, state=state_on_host(solution.state))
    if not solution.converged and solution.status is not Status.STOPPED and on_failure != "ignore":
        if on_failure == "raise":
            raise NotConvergedError(solution.message, solution)
        from cvxnn.solvers.convergence import ConvergenceWarning

        warnings.warn(solution.message, ConvergenceWarning, stacklevel=2)
    return solution


@contextmanager
def interrupts(spent: Budget) -> Iterator[None]:
    """With rows in several processes, the first Ctrl-C ends the run on all of them at the same
    point, if rank 0 gets it; another one ends this process."""
    main = threading.current_thread() is threading.main_thread()
    if spent.across.size == 1 or not main:
        yield
        return

    def interrupted(*_: object) -> None:
        spent.wish(KeyboardInterrupt)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interval(checkpoint: object, seconds: float | None) -> float:
    """Seconds between two writes of a checkpoint."""
    if seconds is None:
        return INTERVAL
    if checkpoint is None:
        raise TypeError("checkpoint_seconds is given, but no checkpoint")
    return check_number(seconds, "checkpoint_seconds", minimum=0)


def _start_from(
    warm_start: Weights | Solution | Start | None, problem: Problem, method: Solver
) -> tuple[Array, object]:
    """The weights to start from, and the state of an earlier run of the same method."""
    state = None
    if isinstance(warm_start, Solution | Start):
        state = warm_start.state if warm_start.made_by == kind_of_run(method, problem) else None
        warm_start = warm_start.weights
    if warm_start is None:
        return problem.zero_weights(), state
    return problem.check_weights(warm_start, "warm_start"), state


def _make_solver(
    problem: Problem, solver: str | Solver, options: dict[str, object], near: bool
) -> Solver:
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
        solver = choose(problem, near).name
    cls = SOLVERS[solver]
    known = [f.name for f in fields(cls)]
    for option in options:
        if option not in known:
            hint = suggest(option, [*known, *_OWN_OPTIONS])
            raise TypeError(f"neither solve nor solver {solver!r} has {option!r}; {hint}")
    return cls(**options)


def choose(problem: Problem, near: bool = False) -> Solver:
    """The solver behind "auto", with its default settings; `near` says that it starts from the
    solution of a neighbouring problem."""
    if problem.kind == "C-GReLU":
        return choose_gated(problem)
    if suits_working_sets(problem) and not (near and suits_newton_on_a_path(problem)):
        return WorkingSets()
    if Newton().handles(problem):
        return Newton()
    decomposition = ConeDecomposition()
    return decomposition if problem.lam == 0 and decomposition.handles(problem) else AL()


def _within(most: int, problem: Problem, solver: str | Solver, near: bool) -> str | Solver:
    """The solver, or the leanest one for "auto", if a run of it takes so many bytes at most."""
    (blocks, d, C), n = problem.weight_shape, problem.operator.n
    automatic = solver == "auto"
    first = choose(problem, near) if automatic else _make_solver(problem, solver, {}, near)
    tried = [first, RFISTA()] if automatic and _handles(RFISTA(), problem) else [first]
    for method in tried:
        scratch = getattr(method, "scratch", RFISTA.scratch)
        need = scratch(n, d, blocks, C)
        if need <= most:
            return method.name if automatic else solver
    raise TooLargeError(
        f"max_memory={size_text(most)} is too little: a run of {tried[-1].name!r} with n = {n:,}, "
        f"d = {d:,}, {blocks:,} blocks and {C} outputs may take {size_text(need)} beside the "
        "problem; take fewer patterns"
    )


def _terms(problem: Problem) -> str:
    terms = f"penalty {problem.penalty_name!r} and lam = {problem.lam:g}"
    extras = [f"loss {problem.loss_name!r}"] if problem.loss_name != "squared" else []
    extras += ["sample weights"] if problem.loss.has_sample_weights else []
    extras += ["an output bias"] if problem.output_bias else []
    extras += ["sparse data"] if problem.operator.is_sparse else []
    if problem.operator.base.across.size > 1:
        extras += ["rows in several processes"]
    elif not problem.operator.in_memory:
        extras += ["rows in a file"]
    return ", ".join([*extras, terms])


def _handles(method: Solver, problem: Problem) -> bool:
    """Whether a method handles a problem, by its own account. Of rows in files there are products,
    and nothing else; vectors with an entry a row are in pieces where rows are."""
    if problem.operator.base.across.size > 1:
        if not getattr(method, "sums_ranks", False):
            return False
    elif not problem.operator.in_memory and not getattr(method, "products_only", False):
        return False
    return not hasattr(method, "handles") or method.handles(problem)


def _check_capabilities(problem: Problem, method: Solver, stop: str) -> None:
    if not _handles(method, problem):
        others = [name for name, cls in SOLVERS.items() if _handles(cls(), problem)]
        raise ValueError(
            f"solver {method.name!r} does not handle {problem.kind} with {_terms(problem)}; "
            f"use one of: {', '.join(others)}"
        )
    if stop not in method.default_max_iter:
        raise ValueError(f"stop {stop!r} has no meaning for solver {method.name!r}; use 'gap'")
