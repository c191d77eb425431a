"""One run of a solver: its iterates are bounded, the best is kept, a certificate stops it.

Every iterate with a gradient gives a dual point for the price of a norm, so the relative gap
between the best objective and the best lower bound is known in every iteration. A run counts as
converged only if the final certificate, computed in float64 with fresh products, says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array
from cvxnn.budget import Budget, OutOfTimeError, StopAskedError, unlimited
from cvxnn.certificates import Certificate, Proof, prove, relative_gap
from cvxnn.cones.projection import ActiveRows
from cvxnn.proofs import PRECISE
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Snapshot, Solver, StalledError, Working, bound_of
from cvxnn.solvers.forecasts import seconds_left
from cvxnn.solvers.results import Progress, Solution, Status
from cvxnn.solvers.saving import RunFile, Saved

# A run has stalled if its gap did not fall by this factor within so many iterations.
STALL_FACTOR, STALL_ITERATIONS = 0.99, 5000
# Passes over the data that a certificate takes at most. A time limit keeps that much in reserve.
PASSES_OF_A_PROOF = {"C-GReLU": 10, "C-ReLU": 16}
KEPT_BACK = 0.02  # the least share of a time limit that is kept in reserve
# A run diverges if an iterate is worse than the best one by this factor, or not a number.
DIVERGENCE_FACTOR = 1e8


class _DivergedError(Exception):
    """An iterate is out of bounds."""


class Run:
    """The state of one run: the best point, the best bound, the history."""

    def __init__(
        self,
        problem: Problem,
        tol: float,
        stop: str,
        max_iter: int,
        spent: Budget,
        callback: Callable[[Progress], object] | None = None,
        file: RunFile | None = None,
    ) -> None:
        self.problem, self.tol, self.stop = problem, tol, stop
        self._across = problem.operator.base.across
        self.max_iter, self.budget, self.callback = max_iter, spent, callback
        self.file, self._remark = file, ""
        self._snapshot: Snapshot | None = None
        with unlimited():  # also what a run ends with that has no time for anything else
            self.zero_objective = float(self._across.agree(problem.loss.zero_value))
        self.history: list[Progress] = []
        self.best_U: Array | None = None
        self._restore: Callable[[Array], Array] | None = None  # its way back to weights
        self._unmeasured: Array | None = None  # the last point of a method that shows no iterates
        self.best_Theta: Array | None = None
        self.best_active: ActiveRows | None = None
        self.objective, self.lower_bound = math.inf, -math.inf
        self.state: object = None
        self.n_iter = -1  # the first iterate is the start
        self.proof: Proof | None = None
        self._earlier: Proof | None = None  # of the checkpoint, for a run that finds nothing better
        self.confirm_below = tol
        self.patience = STALL_ITERATIONS
        self._stall_gap, self._stall_iter = math.inf, 0
        self._passes_before, self._trials_before = spent.passes.total, spent.passes.trials
        self._started = spent.taken
        self._new = False  # whether there is anything that the file does not hold

    def steps(
        self, method: Solver, start: Array, state: object
    ) -> Generator[None, None, tuple[Status, str]]:
        """Take iterates, one at a time, until one meets the tolerance or a limit. Returns how the
        run ended, and details."""
        self.patience = getattr(method, "patience", STALL_ITERATIONS)
        try:
            saved = None if self.file is None else self.file.read()
            status = None if saved is None else self._go_on_from(saved)
            if status is not None:
                return status, ""
            for iterate in self._iterates(method, start, state, saved):
                status = self._take(iterate)
                if status is not None:
                    return status, ""
                yield
        except KeyboardInterrupt:
            return Status.INTERRUPTED, ""
        except OutOfTimeError as error:
            return Status.TIME_LIMIT, str(error)
        except StopAskedError:
            return Status.STOPPED, ""
        except _DivergedError:
            return Status.DIVERGED, ""
        except StalledError as error:
            if self.best_U is None:
                raise RuntimeError(f"{method.name} returned no point: {error}") from error
            return Status.STALLED, str(error)
        return Status.STALLED, ""

    def _iterates(
        self, method: Solver, start: Array, state: object, saved: Saved | None
    ) -> Iterator[Iterate | Working]:
        """Those of a new run, or those that follow in one that was saved."""
        if saved is None:
            return method.iterates(self.problem, start, self.stop, state, self.tol)
        snapshot, resumed = saved.snapshot, getattr(method, "resumed", None)
        if snapshot is not None and snapshot.method == method.name and resumed is not None:
            assert self.file is not None
            with self.file.refusing():
                return resumed(self.problem, snapshot.arrays, self.stop, self.tol)
        self._remark = "it went on from the best weights of its checkpoint"
        return method.iterates(self.problem, saved.weights, self.stop, None, self.tol)

    def _go_on_from(self, saved: Saved) -> Status | None:
        """Go on from a saved run, whose bounds are computed again; how it ends if it does here."""
        self.best_U, self.best_Theta = saved.weights, saved.dual
        self.history, self.n_iter = list(saved.history), saved.n_iter
        self._stall_iter = saved.n_iter
        self._passes_before -= saved.n_products
        self._trials_before -= (saved.history[-1].n_trials or 0) if saved.history else 0
        self._started -= saved.seconds
        assert self.file is not None
        with self.file.refusing():  # weights outside of their cones
            proof = prove(self.problem, saved.weights, saved.dual, enough=self.tol)
        found = proof.certificate
        self.objective, self.lower_bound = found.objective, found.lower_bound
        self.best_U, self.best_Theta = proof.weights, proof.dual
        measure: float | None = found.relative_gap
        if self.stop == "paper":
            measure = saved.history[-1].residual if saved.history else None
        if measure is not None and measure <= self.tol:
            self.proof = proof
            return Status.CONVERGED
        self._earlier = proof
        self._keep_time_for_a_proof()
        return self._limit_reached(self.n_iter)

    def _save(self) -> None:
        if self.file is None or self.best_U is None or self.best_Theta is None:
            return
        self.file.write(
            Saved(
                weights=self._best_weights(),
                dual=self.best_Theta,
                history=tuple(self.history),
                n_iter=max(self.n_iter, 0),
                n_products=self._n_products(),
                seconds=self.budget.taken - self._started,
                snapshot=self._snapshot,
            )
        )
        self._new = False

    @staticmethod
    def to_the_end(steps: Generator[None, None, tuple[Status, str]]) -> tuple[Status, str]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def finish(self, method: Solver, status: Status, details: str) -> Solution:
        if self._new:
            self._save()
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

    def _take(self, iterate: Iterate | Working) -> Status | None:
        if isinstance(iterate, Working):
            self._unmeasured = self._unmeasured if iterate.U is None else iterate.U
            self._keep_time_for_a_proof()
            return self._limit_reached(self.n_iter + iterate.n_inner)
        self._observe(iterate)
        self.n_iter += iterate.n_inner
        self.state = iterate.state
        status = self._judge(iterate)
        if self.file is not None:
            self._snapshot, self._new = iterate.snapshot, True
            if status is None and self.file.is_due:
                self._save()
        return status

    def _observe(self, iterate: Iterate) -> None:
        """Keep the best objective and the best lower bound; they need not be of one iterate."""
        problem = self.problem
        objective = iterate.objective
        if objective is None:
            objective = problem.loss.value(iterate.fit) + problem.penalty.value(iterate.U)
        bound = bound_of(problem, iterate)
        objective, bound = self._across.agree(np.array([objective, bound])).tolist()
        if objective < self.objective or self.best_U is None:
            self.objective, self.best_U = objective, iterate.U
            self._restore = iterate.restore
        budget.look()
        if not objective <= DIVERGENCE_FACTOR * max(self.objective, self.zero_objective):
            raise _DivergedError
        if bound > self.lower_bound:
            self.lower_bound, self.best_Theta = bound, iterate.Theta
            self.best_active = iterate.active

    def _judge(self, iterate: Iterate) -> Status | None:
        """Record the iteration and decide whether it is the last."""
        progress = self._progress(iterate)
        self.history.append(progress)
        stop_asked = self._agrees(self._tell(progress))
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

    def _tell(self, progress: Progress) -> bool:
        """Call the callback, on rank 0; whether it asks to stop. An interrupt in it may not end the
        run on one rank alone."""
        if self.callback is None or self._across.rank > 0:
            return False
        try:
            return bool(self.callback(progress))
        except KeyboardInterrupt:
            if self._across.size == 1:
                raise
            self.budget.wish(KeyboardInterrupt)
            return False

    def _agrees(self, decision: bool) -> bool:
        """The decision of rank 0."""
        return bool(self._across.agree(float(decision)))

    def _limit_reached(self, n_iter: int) -> Status | None:
        if n_iter >= self.max_iter:
            return Status.MAX_ITER
        if self._agrees(self.budget.left <= self.budget.reserve):
            return Status.TIME_LIMIT
        return None

    def _keep_time_for_a_proof(self) -> None:
        if math.isfinite(self.budget.seconds):
            wanted = PASSES_OF_A_PROOF[self.problem.kind] * self.budget.passes.seconds
            least = KEPT_BACK * self.budget.seconds
            self.budget.reserve = min(max(wanted, least), self.budget.seconds / 2)

    def _progress(self, iterate: Iterate | None = None, note: str = "") -> Progress:
        objective, lower_bound = self.objective, self.lower_bound
        if self.best_U is None:  # what is known of the zero model
            objective, lower_bound = self.zero_objective, 0.0
        return Progress(
            n_iter=max(self.n_iter, 0),
            seconds=self.budget.taken - self._started,
            objective=objective,
            lower_bound=lower_bound,
            relative_gap=relative_gap(objective, lower_bound, self.zero_objective),
            residual=None if iterate is None else iterate.residual,
            step_size=None if iterate is None else iterate.step_size,
            n_products=self._n_products(),
            n_trials=self.budget.passes.trials - self._trials_before,
            seconds_left=seconds_left(self.history, self.tol, self.stop) if self.callback else None,
            note=note,
        )

    def sign_of_life(self) -> None:
        """Tell the callback about an iteration that takes long."""
        what = self.budget.doing or ("preparing" if self.best_U is None else "iterating")
        if self._tell(self._progress(note=what)):
            raise StopAskedError

    def _is_converged(self, progress: Progress, iterate: Iterate) -> bool:
        if self.stop == "paper":
            if progress.residual is None or progress.residual > self.tol:
                return False
            # the point whose residual is small
            self.best_U, self._restore = iterate.U, iterate.restore
            return True
        if progress.relative_gap > self.confirm_below:
            return False
        proof = self._prove(enough=self.tol)
        if proof.certificate.relative_gap <= self.tol:
            self.proof = proof
            return True
        self.confirm_below = (
            progress.relative_gap / 2
        )  # the quick bound was too good: ask for a smaller gap
        return False

    def _prove(self, enough: float = -1.0, bounded: bool = True) -> Proof:
        return prove(
            self.problem,
            self._best_weights(),
            self.best_Theta,
            start=self.best_active,
            enough=enough,
            precise=max(PRECISE, 1e-3 * self.tol) if self.stop == "gap" else PRECISE,
            refuse=False,
            bounded=bounded,
        )

    def _best_weights(self) -> Array:
        assert self.best_U is not None
        if self._restore is not None:
            self.best_U, self._restore = self._restore(self.best_U), None
        return self.best_U

    def _last_proof(self) -> Proof:
        """What can be proven of the best point in the time that was kept back for it: at least
        its objective, or what was proven when the run went on from its file."""
        earlier = self._earlier
        if earlier and self.best_U is earlier.weights and self.best_Theta is earlier.dual:
            return earlier
        self.budget.on_silence = None
        self.budget.last_call()
        try:
            if self.best_U is None and self._unmeasured is not None:
                self._measure(self._unmeasured)
            if self.best_U is not None:
                return self._prove()
        except OutOfTimeError:
            if earlier is not None:
                return earlier
        else:  # ended before the first iterate; zero is always feasible
            self.best_U = self.problem.zero_weights()
        self.budget.seconds = math.inf
        return self._prove(bounded=False)

    def _measure(self, U: Array) -> None:
        """Keep a point that is better than zero, for a run without iterates."""
        problem = self.problem
        fit = problem.operator.forward(U)
        if problem.loss.value(fit) + problem.penalty.value(U) < self.zero_objective:
            self.best_U = U

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
        parts += filter(None, (details, self._remark))
        if status is Status.STALLED and not self.problem.operator.is_double:
            parts.append("the data are float32")
        return "; ".join(parts)
