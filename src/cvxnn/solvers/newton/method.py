"""Semismooth Newton on the dual, over a working set: the second-order solver for both problems.

The proximal point method in the weights, U <- argmin f(M U) + g(U) + ||U - U_k||^2 / (2 sigma),
has the dual problem

    min_theta  phi(theta) = f*(theta) + ||u||^2 / (2 sigma),
    u = prox_{sigma g}(U_k - sigma M'theta),

in n variables for each output, with the gradient z - M u, where theta = grad f(z), and the
generalised Hessian H^-1 + sigma M P M', where H is the Hessian of f at z and P the derivative of
the prox. It is minimised by Newton steps (see systems.py), u is the next U, and sigma
grows. Every point has a primal value, at u, and a dual one, at theta.

- Blocks enter the working set when they violate the dual constraint; a certificate looks at all.
- When sigma has grown, the optimality conditions are first linearised at U itself, which predicts
  the solution up to second order once the active blocks are right; the prox at the old theta
  would amplify its error by sigma.
- Steps are taken in z, so that theta stays in the domain of f*: with log-likelihoods a step in
  theta would be cut short at its boundary. For quadratic losses it is the same.
- Each output has a problem of its own, unless the loss couples them.
- Decisions depend on counts alone, never on time: two runs take the same steps.

Should it get stuck, R-FISTA or the augmented Lagrangian go on from the best point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array, to_numpy
from cvxnn.losses import Loss, Root
from cvxnn.operators import ShardedMatrix
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.protocols import Problem
from cvxnn.ranks import norm, total
from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.base import Iterate, Snapshot, Solver, StalledError, Working
from cvxnn.solvers.newton.blocks import (
    JointBlocks,
    Memory,
    join_active_rows,
    make_blocks,
    row_norms,
    single_rows,
)
from cvxnn.solvers.newton.faces import Linearisation
from cvxnn.solvers.newton.systems import MASK_ENTRIES, MAX_ENTRIES, leading_columns, scale_of_square
from cvxnn.solvers.rfista import RFISTA
from cvxnn.validation import offers

FIRST_SIGMA, MAX_SIGMA = 4.0, 1e14  # in units of the curvature of f* over ||X||^2
GROWTH = 5.0  # of sigma, at most
MAX_STEPS, FEW_STEPS = 12, 8  # Newton steps for one proximal point; how many let sigma grow
INEXACT = 3.0  # error of a proximal point, relative to its distance from the centre
PRECISION = 0.3  # of a Newton step, in the same units: a tenth of what ends the steps
STEP_AGAIN = 8.0  # times the last step length, at most 1, is tried first
SMALL = 1e-4  # curvature of the loss, relative to the largest, that is left to the model
MIN_TAIL = 1e-4  # curvature of Huber's tails, relative to its middle
STEP_ERROR = 0.3  # of a step in z, which is that of the system itself, relative to the step
KEEP = 0.7  # blocks of the working set whose dual constraint is tighter than this stay
ROUGHLY = 0.1  # relative gap below which certificates are made as good as they can be
ON_THE_WAY = 0.3  # relative gap at the larger lam of a continuation
KAPPA = 10.0  # sigma lam over the mean norm of the active blocks, at least, on the way
ROUNDING = 1e-11  # relative gap that is as good as none
MAX_FAILURES = 10  # proximal steps without progress of the gap before another method takes over


class Place(NamedTuple):
    """Where a step starts, on the working set."""

    Z: np.ndarray  # (n, C)
    theta: np.ndarray  # (n, C), the gradient of the loss at Z
    correlation: np.ndarray  # (k, d), -M'theta


class Point(NamedTuple):
    """A dual point and what belongs to it, on the working set."""

    Z: np.ndarray  # (n, C)
    theta: np.ndarray  # (n, C), the gradient of the loss at Z
    correlation: np.ndarray  # (k, d), -M'theta
    projected: np.ndarray  # (k, d), of centre + sigma correlation
    norms: np.ndarray  # (k,), of `projected`
    U: np.ndarray  # (k, d), the prox
    phi: float


class Seen(NamedTuple):
    """A point of the working set that is perhaps outside its cones by rounding."""

    objective: float
    U: np.ndarray
    fit: np.ndarray


NOTHING = Seen(math.inf, np.zeros((0, 0)), np.zeros((0, 0)))


class OutputState(NamedTuple):
    """What a warm start needs of one output beside the weights, or of several coupled ones."""

    Z: np.ndarray
    kappa: float  # sigma lam over the mean norm of the active blocks
    memory: list[Memory | None]  # of the blocks, output by output


@dataclass(frozen=True)
class Newton:
    """The second-order working-set solver; it has no settings."""

    name: ClassVar[str] = "newton"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 5000}
    sums_ranks: ClassVar[bool] = True  # over rows in several processes

    @staticmethod
    def scratch(n: int, d: int, p: int, C: int) -> int:
        """Bytes that a run takes at most, beside the problem: X in single precision, for every
        output a preconditioner, and predictions and weights of a few points."""
        kept = C * min(n * p, MAX_ENTRIES) + C * n * d
        return 4 * (n * d + kept + MASK_ENTRIES) + RFISTA.scratch(n, d, p, C)

    def handles(self, problem: Problem) -> bool:
        """Problems with the neurons' norms, whose prox is in here, and a loss with a Hessian. The
        method measures norms in units of lam, so lam = 0 is not among them. Rows in several
        processes have to be in memory."""
        penalty, loss, operator = problem.penalty, problem.loss, problem.operator.base
        if isinstance(operator, ShardedMatrix) and not operator.local_in_memory:
            return False
        return problem.lam > 0 and offers(penalty, "neuron_norms") and offers(loss, "has_root")

    def iterates(
        self,
        problem: ConvexProblem,
        start: Array,
        stop: str = "gap",
        state: list[OutputState] | None = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate | Working]:
        if state is None and isinstance(problem, CReLU):
            start, _ = problem.make_feasible(start)
        weights = np.asarray(to_numpy(start), dtype=np.float64)
        outputs: list[_Output] = []
        k, size, shared = 0, None, single_rows(problem)
        for loss in problem.loss.by_output():
            C = loss.Y.shape[1]
            rows = weights[:, :, k : k + C].transpose(2, 0, 1).reshape(-1, weights.shape[1])
            its = None if state is None else state[len(outputs)]
            blocks = make_blocks(problem, C, shared)
            if size is None:
                size = scale_of_square(leading_columns(blocks.X), blocks.across) or 1.0
            outputs.append(_Output(blocks, loss, problem.lam, rows, its, size))
            k += C
        yield self._iterate(problem, outputs, 1)
        failures, best_gap = 0, math.inf
        while failures < MAX_FAILURES:
            n_inner, sigmas = 0, [output.sigma for output in outputs]
            try:
                for output in outputs:
                    if output.gap > 0.5 * tol * output.objective:
                        for _ in output.proximal_step(tol):
                            n_inner += 1
                            yield Working(n_inner)
                        if len(outputs) > 1:
                            output.blocks.release()
            except np.linalg.LinAlgError:
                break
            yield self._iterate(problem, outputs, n_inner)
            gap = max(sum(output.gap for output in outputs), 0.0)  # rounding may make it negative
            waiting = any(
                output.lam > output.target or output.sigma > before
                for output, before in zip(outputs, sigmas, strict=True)
            )
            failures = 0 if gap < 0.99 * best_gap else failures + (0 if waiting else 1)
            best_gap = min(gap, best_gap)
        shown = self._iterate(problem, outputs, 0)
        if best_gap <= ROUNDING * sum(output.objective for output in outputs):
            raise StalledError("the point is optimal up to rounding")
        other: Solver = AL() if problem.kind == "C-ReLU" else RFISTA()
        for iterate in other.iterates(problem, problem.check_weights(shown.U), stop, None, tol):
            yield replace(iterate, state=shown.state) if isinstance(iterate, Iterate) else iterate

    def resumed(
        self, problem: ConvexProblem, arrays: Mapping[str, np.ndarray], stop: str, tol: float
    ) -> Iterator[Iterate | Working]:
        """A warm start at the last proximal points, with their dual points and step sizes: the
        working sets are chosen again, and a lam on the way to the target is left behind."""
        weights, states = np.zeros(problem.weight_shape), []
        k = 0
        for i, loss in enumerate(problem.loss.by_output()):
            C = loss.Y.shape[1]
            rows = np.zeros((C * len(weights), weights.shape[1]))
            rows[arrays[f"{i}.work"]] = arrays[f"{i}.centre"]
            weights[:, :, k : k + C] = rows.reshape(C, -1, weights.shape[1]).transpose(1, 2, 0)
            states.append(OutputState(arrays[f"{i}.Z"], float(arrays[f"{i}.kappa"]), [None] * C))
            k += C
        return self.iterates(problem, problem.operator_double.like(weights), stop, states, tol)

    def carry_on(
        self,
        problem: ConvexProblem,
        before: list[OutputState],
        last: list[OutputState],
        share: float,
    ) -> list[OutputState]:
        """The state further along a path: z changes nearly in proportion to lam. With cones the
        rows that are active change too, and nothing is won."""
        if isinstance(problem, CReLU):
            return last
        return [
            new._replace(Z=new.Z + share * (new.Z - old.Z))
            for old, new in zip(before, last, strict=True)
        ]

    def _iterate(self, problem: ConvexProblem, outputs: list[_Output], n_inner: int) -> Iterate:
        weights, k = np.zeros(problem.weight_shape), 0
        for output in outputs:
            budget.look()  # there may be many of them
            C = output.loss.Y.shape[1]
            output.write_weights(weights[:, :, k : k + C])
            k += C

        sharded = problem.operator.base.across.size > 1  # Z is that of the rows here

        def stack(parts: list[np.ndarray]) -> Array:
            return problem.operator_double.like(np.concatenate(parts, axis=-1))

        return Iterate(
            U=problem.operator_double.like(weights),
            fit=stack([output.fit for output in outputs]),
            Theta=stack([output.best_theta for output in outputs]),
            bound=max(sum(output.lower_bound for output in outputs), 0.0),
            active=join_active_rows([output.blocks for output in outputs]),
            n_inner=n_inner,
            state=[OutputState(o.Z, o.kappa, o.blocks.memory) for o in outputs],
            snapshot=None if sharded else Snapshot(self.name, _arrays(outputs)),
        )


def _arrays(outputs: list[_Output]) -> dict[str, np.ndarray]:
    """What `resumed` needs; kappa is that of the present sigma."""
    found: dict[str, np.ndarray] = {}
    for i, output in enumerate(outputs):
        kappa = output.sigma * output.lam / max(output._mean_norm(), 1e-300)
        its = {"work": output.blocks.work, "centre": output.centre, "Z": output.Z}
        found |= {f"{i}.{name}": value for name, value in its.items()}
        found[f"{i}.kappa"] = np.array(kappa)
    return found


class Line(NamedTuple):
    """Points along a step."""

    at: Callable[[float], Point]  # by the length of the step
    slope: float  # of phi at its start

    def search(self, start: Point, last: float) -> tuple[Point, float]:
        """A point with enough less phi (Armijo), and the length of the step to it. Steps are often
        shortened several times in a row, so the first one tried is not much longer than the `last`
        one that was taken."""
        step = min(1.0, STEP_AGAIN * last)
        for _ in range(30):
            new = self.at(step)
            if new.phi <= start.phi + 1e-4 * step * self.slope + 1e-13 * abs(start.phi):
                break
            # the minimum of the parabola
            shorter = -self.slope * step / (2 * ((new.phi - start.phi) / step - self.slope))
            step *= min(max(shorter / step, 0.1), 0.5)
        return new, step


@dataclass(frozen=True, eq=False)
class ProximalProblem:
    """The dual problem min phi(theta) of one proximal point, see above, and Newton steps for it.

    loss : with curvature everywhere.
    centre : U_k (k, d), of the working set.
    """

    blocks: JointBlocks
    loss: Loss
    centre: np.ndarray
    sigma: float
    lam: float

    @property
    def threshold(self) -> float:
        """By which the prox shortens blocks."""
        return self.sigma * self.lam

    def evaluate(
        self,
        Z: np.ndarray,
        theta: np.ndarray | None = None,
        correlation: np.ndarray | None = None,
    ) -> Point:
        if theta is None or correlation is None:
            theta = self.loss.gradient(Z)
            correlation = self.blocks.correlation(theta)
        threshold = self.threshold
        q = self.blocks.project(self.centre + self.sigma * correlation, threshold)
        norms = self.blocks.across.agree(row_norms(q))
        kept = norms > threshold
        U = q * np.where(kept, 1 - threshold / np.where(kept, norms, 1.0), 0.0)[:, None]
        phi = self._conjugate(Z, theta) + self.blocks.agree(np.sum(U * U)) / (2 * self.sigma)
        return Point(Z, theta, correlation, q, norms, U, phi)

    def _conjugate(self, Z: np.ndarray, theta: np.ndarray) -> float:
        """f*(theta) where theta is the gradient at Z."""
        return total(theta * Z, self.blocks.across) - self.loss.value(Z)

    def linearise(self, point: Point) -> Linearisation:
        on = np.flatnonzero(point.norms > self.threshold)
        norms = point.norms[on]
        return Linearisation(on, point.projected[on] / norms[:, None], self.threshold / norms)

    def predict(self, start: Place) -> Point:
        """A Newton step on the optimality conditions, linearised at the centre instead of the
        prox: the prox of U + sigma lam U/||U|| is U.

        It needs no projections at the start. Where they are dear they are only made if it does not
        pay: phi is a maximum over weights, phi(theta) = f*(theta) + max_U <-M'theta, U> - ..., so
        that at the start it is no less than what the weights of the new point give there.
        Elsewhere their active rows make it a little better."""
        Z, theta, correlation = start
        point = None if self.blocks.dear else self.evaluate(*start)
        norms = self.blocks.across.agree(row_norms(self.centre))
        on = np.flatnonzero(norms > 0)
        unit = self.centre[on] / norms[on][:, None]
        at = Linearisation(on, unit, self.threshold / (norms[on] + self.threshold))
        U = np.zeros_like(self.centre)
        change = self.sigma * (correlation[on] - self.lam * unit)
        U[on] = self.centre[on] + self.blocks.derivative(at, change)
        root, residual = self.loss.root(Z), Z - self.blocks.forward(U)
        new = self.line(start, root, at, residual, 0.01).at(1.0)
        if point is None:
            least = new.phi + self._conjugate(Z, theta) - self._conjugate(new.Z, new.theta)
            least += self.blocks.agree(np.sum((correlation - new.correlation) * new.U))
        else:
            least = point.phi
        if new.phi <= least:
            return new
        return self.evaluate(*start)  # for its active rows

    def line(
        self, start: Place, root: Root, at: Linearisation, residual: np.ndarray, tol: float
    ) -> Line:
        """The line of the Newton step, computed to a relative residual of `tol`, with the root of
        the Hessian there."""
        direction = self._direction(root, at, residual, tol)
        slope = total(residual * direction, self.blocks.across)
        change = self.blocks.correlation(direction)
        if self.loss.affine_gradient:  # lines are straight in theta, too
            dZ = direction / root.scale**2
            return Line(
                lambda step: self.evaluate(
                    start.Z + step * dZ,
                    start.theta + step * direction,
                    start.correlation + step * change,
                ),
                slope,
            )
        moved = np.zeros_like(start.correlation)
        moved[at.on] = self.sigma * self.blocks.derivative(at, change[at.on])
        dZ = self.blocks.forward(moved) - residual
        # The system was not solved exactly. H dZ = direction makes this a descent direction all
        # the same; where H is small, errors would be blown up, and hardly matter.
        curvature = root.scale**2
        error = direction - root.apply(root.adjoint(dZ))
        largest = self.blocks.across.max(curvature.max(initial=0.0))
        dZ += error / (curvature + SMALL * largest)
        return Line(lambda step: self.evaluate(start.Z + step * dZ), slope)

    def _direction(
        self, root: Root, at: Linearisation, residual: np.ndarray, tol: float
    ) -> np.ndarray:
        """The Newton step in theta."""
        if len(at.on) == 0:
            return -root.apply(root.adjoint(residual))
        error = math.inf if self.loss.affine_gradient else STEP_ERROR
        return -self.blocks.solve(root, self.sigma, at, residual, max(tol, 1e-7), error)


class _Output:
    """The problem of one output, or of several that the loss couples: dual variable, proximal
    centre and working set."""

    def __init__(
        self,
        blocks: JointBlocks,
        loss: Loss,
        lam: float,
        start: np.ndarray,
        state: OutputState | None,
        size: float,  # the square of the largest singular value of X
    ) -> None:
        self.blocks, self.loss, self.target = blocks, loss, lam
        self.lam = lam  # larger than the target on the way to it
        live = np.flatnonzero(np.any(start != 0, axis=1))
        self.centre = start[live]
        blocks.set_work(live, 1.0)
        self.fit = blocks.forward(self.centre)
        norms = blocks.agree(row_norms(self.centre).sum())
        self.objective = loss.value(self.fit) + self.lam * norms
        self._best = (live, self.centre)
        self._centre_fit = self.fit
        curved = loss.around(self.fit, 1.0)
        self.Z = self.fit if state is None else state.Z
        # a state is from the end of a run, when tails were hardly bent any more
        near = curved if state is None else loss.around(self.fit, MIN_TAIL)
        self.theta: np.ndarray = near.gradient(self.Z)
        squares = curved.root(self.fit).scale ** 2
        curvature = total(squares, blocks.across) / total(np.ones_like(squares), blocks.across)
        self._sigma_unit = 1 / max(curvature * size, 1e-300)
        self.sigma = FIRST_SIGMA * self._sigma_unit
        if state is not None and len(live):
            self.sigma = state.kappa * self._mean_norm() / self.lam
        if state is not None:
            blocks.memory = state.memory
        self.lower_bound = -math.inf
        self.kappa = self._way_kappa = KAPPA
        self._last_gap = math.inf
        self._step = 1.0
        self._seen = NOTHING
        self._n_points = 0
        self._certify()
        if len(live) == 0 and blocks.continuation:
            self.lam = max(self.target, blocks.continuation * float(self._norms.max()))
        self._choose_work(np.arange(len(live)))

    @property
    def gap(self) -> float:
        return self.objective - self.lower_bound

    def write_weights(self, weights: np.ndarray) -> None:
        """The best weights into zeros (blocks, d, C)."""
        live, rows = self._best
        which, output = live % len(weights), live // len(weights)
        weights[which, :, output] = rows

    def proximal_step(self, tol: float) -> Iterator[None]:
        """One proximal point, found by Newton steps (yields after each), then the certificate,
        the next working set and the next sigma."""
        tail = min(FIRST_SIGMA * self._sigma_unit / self.sigma, 1.0)
        curved = self.loss.around(self._centre_fit, max(tail, MIN_TAIL))
        inner = ProximalProblem(self.blocks, curved, self.centre, self.sigma, self.lam)
        theta = curved.gradient(self.Z)
        differs = float(not np.array_equal(theta, self.theta))
        same = not self.blocks.across.max(differs)  # as in the last certificate
        correlation = self.blocks.last_correlation() if same else self.blocks.correlation(theta)
        start = Place(self.Z, theta, correlation)
        if self.centre.any():
            point = inner.predict(start)
            yield
        else:
            point = inner.evaluate(*start)
        for n_steps in range(MAX_STEPS + 1):
            fit = self.blocks.forward(point.U)
            residual = point.Z - fit
            rows = self.blocks.dual_rows(
                point.correlation, point.projected, self.centre, self.sigma
            )
            gap = self._note(point, fit, rows)
            root = curved.root(point.Z)
            error = norm(root.adjoint(residual), self.blocks.across)
            moved = self.blocks.agree(float(np.linalg.norm(point.U - self.centre)))
            moved /= math.sqrt(self.sigma)
            enough = 0.8 * tol if self.lam == self.target else ON_THE_WAY
            solved = gap <= enough * self.objective or error <= INEXACT * moved
            if solved or n_steps == MAX_STEPS:
                break
            precision = min(0.1, PRECISION * moved / max(error, 1e-300))
            line = inner.line(Place(*point[:3]), root, inner.linearise(point), residual, precision)
            point, self._step = line.search(point, self._step)
            yield
        self.Z, self.theta = point.Z, point.theta
        if solved:  # else the next steps go on with the same proximal point
            self.centre, self._centre_fit = point.U, fit
        self._keep()
        self._certify(rows)
        if self._n_points == 0 or self.lam > self.target:
            # later points start closer, so they say nothing of what a warm start needs
            most = GROWTH if n_steps == 0 else 1.0  # the prediction was enough: it may be larger
            correction = min(max(self._shortfall(gap, tol), 0.01), most)
            self.kappa = self.sigma * self.lam / max(self._mean_norm(), 1e-300) * correction
        self._n_points += 1
        self._prepare_next(n_steps, gap, tol)

    # -- bounds

    def _bound(self, theta: np.ndarray, norm: float, lam: float) -> float:
        limit = np.array([lam / norm if norm > 0 else math.inf])
        return self.loss.best_dual(theta, limit, np.zeros(1))[1]

    def _note(self, point: Point, fit: np.ndarray, rows: np.ndarray) -> float:
        """Note the point if it is the best; the gap that its theta leaves on the working set."""
        loss, penalty = self.loss.value(fit), self.blocks.agree(row_norms(point.U).sum())
        objective = loss + self.target * penalty
        if objective < min(self.objective, self._seen.objective):
            self._seen = Seen(objective, point.U, fit)
        largest = self.blocks.agree(row_norms(rows).max(initial=0.0))
        bound = self._bound(point.theta, largest, self.lam)
        if self.lam > self.target:
            return loss + self.lam * penalty - bound
        return min(self.objective, self._seen.objective) - bound

    def _keep(self) -> None:
        """Keep the best point that was seen with this working set if it still is the best after it
        was made feasible, which takes about as long as a Newton step."""
        objective, U, fit = self._seen
        self._seen = NOTHING
        if objective >= self.objective:
            return
        live = np.flatnonzero(np.any(U != 0, axis=1))
        if self.blocks.constrained:
            feasible = np.zeros_like(U)
            feasible[live] = self.blocks.lift(self.blocks.work[live], U[live])
            U, fit = feasible, self.blocks.forward(feasible)
            objective = self.loss.value(fit) + self.target * float(row_norms(U).sum())
        if objective < self.objective:
            self.objective, self.fit = objective, fit
            self._best = (self.blocks.work[live], U[live])

    def _certify(self, known: np.ndarray | None = None) -> None:
        """Bound the optimal value with theta and all blocks; `known` are dual rows of the working
        set that may be shorter than those found here."""
        rough = self.gap > ROUGHLY * self.objective  # else this point will be close as well
        rows = self.blocks.all_correlations(self.theta, self.lam, known, self.sigma, rough)
        bound = self._measure(rows)
        close = self.objective - bound <= ROUGHLY * self.objective
        on_the_way = self.lam > self.target  # which only asks for the blocks that come in next
        if self.blocks.constrained and rough and (close or on_the_way):
            self.blocks.shorten(rows, self.lam, few=not close)
            bound = self._measure(rows)
        if bound > self.lower_bound:
            self.lower_bound, self.best_theta = bound, self.theta

    def _measure(self, rows: np.ndarray) -> float:
        """The lower bound that theta proves with these rows, whose norms are kept."""
        budget.look()
        self._norms = self.blocks.across.agree(row_norms(rows))
        return self._bound(self.theta, float(self._norms.max()), self.target)

    # -- what comes next

    def _prepare_next(self, n_steps: int, gap: float, tol: float) -> None:
        """The next lam, sigma and working set, from the gap that is left on this one. sigma grows
        if the proximal point was easy to find and no blocks are missing, and falls if it was not
        found and nothing was gained."""
        gained = gap < 0.9 * self._last_gap
        self._last_gap = gap
        on_the_way = self.lam > self.target
        if on_the_way and gap <= ON_THE_WAY * self.objective:
            self.lam = max(self.target, self.blocks.continuation * self.lam)
            self.sigma = max(self.sigma, self._way_kappa * self._mean_norm() / self.lam)
            self._last_gap = math.inf
        elif n_steps <= FEW_STEPS and (on_the_way or self.gap <= 3 * gap):
            growth = GROWTH if on_the_way else min(max(self._shortfall(gap, tol), 2.0), GROWTH)
            self.sigma = min(growth * self.sigma, MAX_SIGMA * self._sigma_unit)
        elif n_steps == MAX_STEPS and not gained:
            self.sigma /= GROWTH
            self._way_kappa /= GROWTH
        keep = np.flatnonzero(
            np.any(self.centre != 0, axis=1) | (self._norms[self.blocks.work] > KEEP * self.lam)
        )
        self._choose_work(keep)

    def _shortfall(self, gap: float, tol: float) -> float:
        """By which factor sigma was too small for the tolerance: the gap that the proximal term
        leaves falls with the square of sigma."""
        return math.sqrt(max(gap, 0.0) / max(0.5 * tol * self.objective, 1e-300))

    def _mean_norm(self) -> float:
        """The mean of the norms of the active blocks, each weighted with itself."""
        norms = row_norms(self.centre)
        return self.blocks.agree(norms @ norms / max(norms.sum(), 1e-300))

    def _choose_work(self, keep: np.ndarray) -> None:
        """Keep these of the working set, and add the blocks that violate most."""
        budget.look()
        work = self.blocks.work
        outside = np.ones(self.blocks.size, dtype=bool)
        outside[work] = False
        violators = np.flatnonzero((self._norms > self.lam) & outside)
        order = np.argsort(-self._norms[violators], kind="stable")
        batch = max(self.blocks.batch, len(keep))
        new = violators[order[:batch]]
        chosen = np.concatenate([work[keep], new])
        centre = np.concatenate([self.centre[keep], np.zeros((len(new), self.blocks.d))])
        order = np.argsort(chosen)
        self.centre = centre[order]
        self.blocks.set_work(chosen[order], self.sigma)
