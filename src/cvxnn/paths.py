"""Regularisation paths: one problem at many penalty strengths, each started from the last.

From `lambda_max`, where the zero model is optimal, down to `eps lambda_max`. Every point is a
`Solution` with a certificate of its own. Neighbouring problems have neighbouring weights and dual
variables, so a warm start saves most of the work of a cold one. With generated patterns every point
has patterns of its own, which start from those of the last.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from cvxnn import threads
from cvxnn.arrays import Array, to_numpy
from cvxnn.bounds.base import Bound
from cvxnn.budget import Budget, OutOfTimeError, spend
from cvxnn.certificates import prove
from cvxnn.checkpoints import (
    CheckpointFile,
    packed,
    packed_patterns,
    unpacked,
    unpacked_patterns,
)
from cvxnn.generation.programs import Generation
from cvxnn.problems import ConvexProblem, has_lambda_max, lambda_max
from cvxnn.ranks import failing_together
from cvxnn.solvers.base import Solver
from cvxnn.solvers.driver import SOLVERS, choose, solve
from cvxnn.solvers.results import Solution, Status
from cvxnn.validation import (
    check_array,
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_problem,
    check_whole,
)

N_LAMS, EPS = 50, 1e-2  # of a path, unless given
_LEAST_SECONDS = 1e-3  # that a point is given, however late it is
DESCENTS = 1  # of generation at each point, which goes on from the patterns of the last


@dataclass(frozen=True, eq=False)
class Path:
    """Solutions from large to small lam, as a sequence.

    Attributes
    ----------
    problem : at the lam it came with; the points have their own.
    solutions : as many as were reached.
    planned : all the lams that were asked for; NaN if there was no time to find lambda_max.
    message : how the path ended, in words.
    interrupted, out_of_time : whether it was Ctrl-C that ended it, or the time limit.
    bounds : what is known of the training problem of each point's network itself, where patterns
        were generated; its `scope` says which patterns it covers.
    """

    problem: ConvexProblem
    solutions: tuple[Solution, ...]
    planned: np.ndarray
    message: str
    interrupted: bool = False
    bounds: tuple[Bound, ...] = ()
    out_of_time: bool = False

    def __len__(self) -> int:
        return len(self.solutions)

    @overload
    def __getitem__(self, index: int) -> Solution: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Solution, ...]: ...
    def __getitem__(self, index: int | slice) -> Solution | tuple[Solution, ...]:
        return self.solutions[index]

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    @property
    def complete(self) -> bool:
        return len(self.solutions) == len(self.planned)

    @property
    def lams(self) -> np.ndarray:
        """The lams reached, in falling order."""
        return self.planned[: len(self.solutions)]

    @property
    def coefs(self) -> np.ndarray:
        """All weights: (points, p, d, C), for C-ReLU (points, 2p, d, C) with V before W."""
        if self.bounds:
            raise ValueError(
                "the points have patterns of their own, so their weights are no single array: "
                "read them from the points"
            )
        weights = [self.problem.check_weights(solution.weights) for solution in self.solutions]
        shape = (len(weights), *self.problem.weight_shape)
        return np.array([to_numpy(U) for U in weights]).reshape(shape)

    @property
    def objectives(self) -> np.ndarray:
        return np.array([solution.certificate.objective for solution in self.solutions])

    @property
    def relative_gaps(self) -> np.ndarray:
        return np.array([solution.certificate.relative_gap for solution in self.solutions])

    @property
    def n_active(self) -> np.ndarray:
        """Neurons of each point."""
        return np.array([solution.n_active for solution in self.solutions])

    @property
    def seconds(self) -> float:
        return sum(solution.seconds for solution in self.solutions)

    def __repr__(self) -> str:
        if not self.solutions:
            return f"Path(no points of {len(self.planned)}: {self.message})"
        return (
            f"Path({len(self)} of {len(self.planned)} points, lam {self.lams[0]:.3g} to "
            f"{self.lams[-1]:.3g}, relative gap <= {self.relative_gaps.max():.2g}, "
            f"{self.n_active[-1]} neurons at the end, {self.seconds:.2f} s: {self.message})"
        )


def path(
    problem: ConvexProblem,
    n_lams: int | None = None,
    eps: float | None = None,
    tol: float = 1e-4,
    *,
    lams: ArrayLike | None = None,
    patterns: str = "given",
    solver: str | Solver = "auto",
    min_loss: float = 0.0,
    max_seconds: float | None = None,
    callback: Callable[[Solution], object] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool = False,
    **options: Any,
) -> Path:
    """Solve a problem for falling penalty strengths, each from the last.

    Parameters
    ----------
    problem : its own `lam` is not used.
    n_lams, eps : a geometric grid of n_lams (50) from lambda_max to eps lambda_max (1e-2).
    tol : relative duality gap of every point.
    lams : the grid itself, in any order, instead.
    patterns : "given", those of the problem for all points; or "generate": every point adds
        patterns that pay and drops others, from those of the point before. The grid then starts
        where a search finds the first neuron that pays, which is a heuristic. A gated problem keeps
        its own patterns beside them.
    solver, options : as in `solve`; with generated patterns `options` are those of `generate`, such
        as `random_state` and `max_rounds`, and `on_round`, which is called with every `Round`.
    min_loss : end as soon as the loss falls below this share of the zero model's.
    max_seconds : for the whole path; a point that is not finished in time is left out.
    callback : called with each `Solution`, on rank 0 where rows are in several processes; a true
        answer ends the path.
    checkpoint : a file that is written after every point. If it is there already, it has to be of
        the same problem, grid and tolerance. Its points are certified afresh, and those that meet
        the tolerance are taken instead of being solved for again.
    progress : print a line for each point to stderr.

    An interrupt (Ctrl-C) ends the path and returns the points that were finished. A point whose
    tolerance is not met stays in the path, with a warning and what it proves.
    """
    across = check_problem(problem).operator.base.across
    if patterns == "generate":
        check_whole(problem, "path with generated patterns")
    if checkpoint is not None:
        check_whole(problem, "the checkpoint of a path")
    tol = check_number(tol, "tol", minimum=0)
    min_loss = check_number(min_loss, "min_loss", minimum=0, maximum=1)
    check_flag(progress, "progress")
    check_choice(patterns, "patterns", ("given", "generate"))
    if "warm_start" in options:
        raise TypeError("path takes no warm_start: each point starts from the last")
    seconds = math.inf
    if max_seconds is not None:
        seconds = check_number(max_seconds, "max_seconds", minimum=0, strict=True)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    number = N_LAMS if n_lams is None else check_integer(n_lams, "n_lams", minimum=1)
    grid = np.full(number, np.nan)  # until lambda_max is known
    generation = None
    if patterns == "generate":
        if checkpoint is not None and "prove" in options:
            raise TypeError("checkpoint is given with prove: its file keeps no proofs")
        options = {"descents": DESCENTS} | options
        generation = Generation(problem, tol=tol, solver=solver, **options)
    steps = Steps(problem, tol, solver, options, generation)
    walk = _Walk(steps, min_loss, callback, progress)
    try:
        with threads.single_blas(), spend(Budget(seconds, across=across)):
            grid = _grid(problem, n_lams, eps, lams, generation)
            walk.run(
                grid,
                None
                if checkpoint is None
                else _Checkpoint(checkpoint, problem, grid, tol, generation),
            )
    except KeyboardInterrupt:  # between two solves
        walk.message, walk.interrupted = _UNFINISHED[Status.INTERRUPTED], True
    except OutOfTimeError:
        known = bool(np.isfinite(grid).all())
        reached = len(walk.solutions)
        where = f"at lam = {grid[reached]:.4g}" if known else "before lambda_max was known"
        walk.message, walk.out_of_time = f"{_UNFINISHED[Status.TIME_LIMIT]} {where}", True
    walk.forget(-2)
    return Path(
        problem,
        tuple(walk.solutions),
        grid,
        walk.message,
        interrupted=walk.interrupted,
        bounds=tuple(walk.bounds),
        out_of_time=walk.out_of_time,
    )


@dataclass(eq=False)
class Steps:
    """The points of a path one after the other, each started from the last.

    problem : its own `lam` is not used.
    tol, solver, options : as in `solve`; of generation those that are in `generation` already.
    generation : where every point has patterns of its own.
    start : weights that the first point starts from.
    """

    problem: ConvexProblem
    tol: float
    solver: str | Solver
    options: dict[str, Any]
    generation: Generation | None = None
    start: Array | None = None
    _last: list[Solution] = field(default_factory=list)  # two at most
    _count: int = 0

    def to(self, lam: float, max_seconds: float | None = None) -> tuple[Solution, Bound | None]:
        """The next point, and where patterns are generated what is known of all patterns."""
        limit = {} if max_seconds is None else {"max_seconds": max(max_seconds, _LEAST_SECONDS)}
        if self.generation is not None:
            point = self.generation.at(lam, self._count, **limit)
            found: tuple[Solution, Bound | None] = (point.solution, point.bound)
        else:
            start = _ahead(self._last, lam) if self._last else self.start
            problem = self.problem.with_lam(lam)
            options = self.options | limit
            found = solve(problem, self.solver, tol=self.tol, warm_start=start, **options), None
        if found[0].status not in _UNFINISHED:
            self._keep(found[0])
        return found

    def at_stored(self, solution: Solution) -> tuple[Solution, Bound | None]:
        """A point that was computed before, as the next one."""
        self._keep(solution)
        if self.generation is None:
            return solution, None
        self.generation.go_on_from(solution)
        return solution, Bound.of_certificate(solution.certificate)

    def _keep(self, solution: Solution) -> None:
        self._count += 1
        self._last = [*self._last[-1:], solution]


@dataclass(eq=False)
class _Walk:
    """The way along a grid, with the settings that `path` has checked."""

    steps: Steps
    min_loss: float
    callback: Callable[[Solution], object] | None
    progress: bool
    solutions: list[Solution] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)  # of generated patterns
    message: str = "all points are reached"
    interrupted: bool = False
    out_of_time: bool = False

    def run(self, grid: np.ndarray, file: _Checkpoint | None) -> None:
        """Solve for one lam after the other; points that the file holds are taken from there."""
        stored = [] if file is None else file.read()
        for k, lam in enumerate(grid.tolist()):
            solution, bound = (
                self.steps.at_stored(stored[k]) if k < len(stored) else self.steps.to(lam)
            )
            if solution.status in _UNFINISHED:
                self.interrupted = solution.status is Status.INTERRUPTED
                self.out_of_time = solution.status is Status.TIME_LIMIT
                self.message = f"{_UNFINISHED[solution.status]} at lam = {lam:.4g}"
                return
            self.forget(-2)
            self.solutions.append(solution)
            self.bounds += [] if bound is None else [bound]
            if file is not None and k >= len(stored):
                file.write(self.solutions)
            if self.progress and self.steps.problem.operator.base.across.rank == 0:
                sys.stderr.write(_line(solution, k + 1, len(grid)) + "\n")
            reason = _reason_to_stop(solution, self.min_loss, self.callback)
            if reason:
                self.message = reason
                return

    def forget(self, k: int) -> None:
        """Drop the state of a point that later ones no longer start from: it may be large."""
        if len(self.solutions) > 1:
            self.solutions[k] = replace(self.solutions[k], state=None)


def _ahead(last: Sequence[Solution], lam: float) -> Solution | None:
    """What to start from at `lam`: the last solution, with the state of its method carried on
    along the path where there are two, and the method knows how to."""
    if len(last) < 2:
        return last[0] if last else None
    before, start = last
    carry_on = getattr(start.solver, "carry_on", None)
    if carry_on is None or before.state is None or start.state is None:
        return start
    if before.solver.name != start.solver.name or start.problem.lam == before.problem.lam:
        return start
    share = (lam - start.problem.lam) / (start.problem.lam - before.problem.lam)
    return replace(start, state=carry_on(start.problem, before.state, start.state, share))


_UNFINISHED = {
    Status.INTERRUPTED: "interrupted",
    Status.TIME_LIMIT: "the time limit was reached",
}


def _grid(
    problem: ConvexProblem,
    n_lams: int | None,
    eps: float | None,
    lams: ArrayLike | None,
    generation: Generation | None,
) -> np.ndarray:
    if lams is not None:
        if n_lams is not None or eps is not None:
            raise TypeError("give lams, or n_lams and eps: lams is the whole grid")
        grid = to_numpy(check_array(lams, "lams")).astype(np.float64)
        if grid.ndim != 1 or len(grid) == 0 or not np.all(grid > 0):
            raise ValueError("lams must be a list of positive numbers")
        return np.sort(grid)[::-1].copy()
    eps = check_number(EPS if eps is None else eps, "eps", minimum=0, strict=True, maximum=1)
    if not has_lambda_max(problem):
        raise ValueError(f"penalty {problem.penalty_name!r} has no lambda_max: give lams")
    largest = lambda_max(problem) if generation is None else generation.lambda_max()
    if largest == 0:
        raise ValueError("lambda_max is 0, the zero model is optimal for every lam: give lams")
    number = N_LAMS if n_lams is None else n_lams
    grid = np.geomspace(largest, eps * largest, number) if number > 1 else np.array([largest])
    return np.asarray(problem.operator.base.across.agree(grid))


def _reason_to_stop(
    solution: Solution, min_loss: float, callback: Callable[[Solution], object] | None
) -> str:
    across = solution.problem.operator.base.across
    with failing_together(across):
        told = callback is not None and across.rank == 0 and bool(callback(solution))
    told, left = across.agree(np.array([told, loss_left(solution)]))
    if told:
        return "the callback asked to stop"
    if left < min_loss:
        return f"the loss is below {min_loss:g} of the zero model's"
    return ""


def loss_left(solution: Solution) -> float:
    """The loss of a solution, as a share of the zero model's."""
    certificate, problem = solution.certificate, solution.problem
    penalty = problem.penalty.value(problem.check_weights(solution.weights))
    loss = max(certificate.objective - penalty, 0.0)  # the difference may be rounding
    return loss / certificate.zero_objective if certificate.zero_objective > 0 else 0.0


def _line(solution: Solution, k: int, total: int) -> str:
    return (
        f"{k:4d}/{total}  lam {solution.problem.lam:.4g}  objective "
        f"{solution.certificate.objective:.6g}  relative gap "
        f"{solution.certificate.relative_gap:.1e}  {solution.n_active} neurons  "
        f"{solution.n_iter} iterations  {solution.seconds:.2f} s"
    )


class _Checkpoint:
    """The finished points of a path in a file."""

    def __init__(
        self,
        file: str | PathLike[str],
        problem: ConvexProblem,
        grid: np.ndarray,
        tol: float,
        generation: Generation | None,
    ) -> None:
        self.problem, self.grid, self.tol = problem, grid, tol
        self.generated = generation is not None
        parts, settings = "problem, grid or tolerance", repr(tol)
        if generation is not None:
            settings += f" {generation.settings}"
            parts = "problem, grid, tolerance or seed"
        self.content = CheckpointFile(file, "path", problem, settings, grid, parts=parts)

    def write(self, solutions: Sequence[Solution]) -> None:
        arrays: dict[str, np.ndarray] = {}
        points = []
        for k, solution in enumerate(solutions):
            problem = solution.problem
            U = to_numpy(problem.check_weights(solution.weights))
            arrays |= {f"{k}.{name}": array for name, array in packed(U).items()}
            if self.generated:
                its = packed_patterns(problem.patterns)
                arrays |= {f"{k}.{name}": array for name, array in its.items()}
            arrays[f"{k}.dual"] = to_numpy(solution.dual)
            points.append(
                {
                    "solver": solution.solver.name,
                    "message": solution.message,
                    "n_iter": solution.n_iter,
                    "n_products": solution.n_products,
                    "seconds": solution.seconds,
                }
            )
        self.content.write(arrays, {"points": points})

    def read(self) -> list[Solution]:
        """The points up to the first that does not meet the tolerance; none without a file."""
        found = self.content.read()
        if found is None:
            return []
        solutions = []
        with self.content.refusing():
            for k, point in enumerate(found.header["points"]):
                solution = self._restore(found.arrays, k, point)
                if not solution.certificate.relative_gap <= self.tol:
                    break
                solutions.append(solution)
        return solutions

    def _restore(self, arrays: dict[str, np.ndarray], k: int, point: dict[str, Any]) -> Solution:
        problem = self.problem.with_lam(float(self.grid[k]))
        if self.generated:
            its = {name: arrays[f"{k}.{name}"] for name in ("mask", "gates", "gate_bias")}
            problem = problem.with_patterns(unpacked_patterns(its, self.problem.patterns))
        its = {name: arrays[f"{k}.{name}"] for name in ("pairs", "rows", "dual")}
        weights = problem.check_weights(unpacked(its, problem.weight_shape))
        dual = to_numpy(check_array(its["dual"], "dual")).reshape(problem.loss.Y.shape)
        dual = problem.operator_double.like(dual)
        proof = prove(problem, weights, dual)
        return Solution(
            problem=problem,
            weights=problem.present(problem.check_weights(proof.weights)),
            certificate=proof.certificate,
            dual=proof.dual,
            multipliers=proof.multipliers,
            output_bias=proof.output_bias,
            status=Status.CONVERGED,
            message=str(point["message"]),
            n_iter=int(point["n_iter"]),
            n_products=int(point["n_products"]),
            seconds=float(point["seconds"]),
            history=(),
            solver=SOLVERS[point["solver"]]() if point["solver"] in SOLVERS else choose(problem),
            state=None,
        )
