"""R-FISTA on a working set of patterns for each class, then Newton steps on the support.

For losses that couple many classes: at the optimum a few per cent of the pairs (pattern, class) are
active, so products with the pairs that matter cost a tenth of a pass (operators/ragged.py). Every
few iterations one pass over all pairs gives a dual point and its bound; pairs whose weights are
zero and whose correlation is below the limit leave the sets, and those that exceed it the most come
in. Momentum goes on: new pairs have had the weight zero all along.

Products are in single precision; weights, predictions and the loss are in double. An output bias is
a variable of its own in here, with the step of the loss's own curvature; steps are in the metric of
the columns (pairs.py). Once the gap is small, the
weights that are not zero have settled, and the objective is smooth in them: Newton steps, by
conjugate gradients with the Hessian's diagonal blocks as preconditioner, end the run, with a few
iterations of R-FISTA in between that correct the support.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from cvxnn.arrays import Array, to_numpy
from cvxnn.certificates import lower_bound_of
from cvxnn.losses.intercepts import WithIntercept
from cvxnn.memory import DOUBLE
from cvxnn.problems import CReLU
from cvxnn.problems.columns import largest_square
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Snapshot, StalledError, Working
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.shrinkage import norms
from cvxnn.solvers.working_sets.pairs import ConeBlocks, FreeBlocks
from cvxnn.solvers.working_sets.support import Point, Support
from cvxnn.validation import check_integer, check_number

SLACK = 1e-4  # of the quadratic bound in the line search, relative
NOISE = 1e-12  # of differences of the loss, relative to it, with products in single precision
LOOSE, SHORTER = 3.0, 0.85  # a bound that is looser than this lets the curvature fall by that
VERY_LOOSE = 5.0  # at the first step, which then takes the curvature that it found
MAX_RISE, MIN_RISE = 4.0, 1.25  # of the curvature in one step of the line search
MAX_TRIALS = 60
# A share of new pairs above this asks for the next check soon, and so does a gap this near to the
# one that is wanted.
UNSETTLED, NEAR = 0.05, 3.0
# Of the momentum. Without a limit it would grow until long after the support has settled, when the
# objective is strongly convex in it: on random data with ten classes, twice as many iterations.
LONGEST_MEMORY = 40.0
# Of the pairs, those that exceed the limit the most have iterations of their own after a check,
# where there are so many weights for a class that the loss itself costs little beside products.
WORST, STEPS_OF_WORST, MANY_WEIGHTS = 0.05, 20, 50_000
# Iterations are slow if so many of them leave more than this share of the gap. Newton steps then
# begin at a gap of at most the last of these; before, the support is far from its last form.
SLOW_ITERATIONS, SLOW, NEWTON_AT_MOST = 40, 0.7, 0.1
NEWTON_COST = 100  # of a Newton step, in iterations
MAX_FAILURES = 3  # Newton steps in a row after which the gap was hardly smaller
MAX_UNPAID = 2  # the same before, with cones, where the dual method then goes on
SHORTEST = 0.05  # Newton step, of its full length
# Of the Hessian in a Newton step, in units of the curvature: without it, steps between blocks that
# are nearly alike would be far too long, and none of them of use.
FIRST_DAMPING, MORE, LESS, MAX_DAMPED = 1e-7, 30.0, 0.1, 4
# Newton steps in a row, while each takes this share of the gap, and systems are factored.
MAX_STEPS, WORTH = 8, 0.05
BETWEEN = 2  # iterations between them
# Of a run, beside its points.
_NUMBERS = (
    "curvature", "t", "gap", "best_gap", "failures", "taken", "first",
    "unsettled", "wait", "damping", "cheap", "unpaid",
)  # fmt: skip


@dataclass(frozen=True)
class WorkingSets:
    """Settings of the method.

    Attributes
    ----------
    every : iterations between passes over all pairs, each with a bound and new working sets; twice
        as many while the sets hardly change.
    batch : pairs of a class that may come in at a time; half as many as it has if that is more.
    newton_below : the relative gap from which Newton steps on the support are taken.
    """

    name: ClassVar[str] = "working-sets"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 100_000}

    every: int = 10
    batch: int = 30
    newton_below: float = 1e-3

    def __post_init__(self) -> None:
        check_integer(self.every, "every", minimum=1)
        check_integer(self.batch, "batch", minimum=1)
        check_number(self.newton_below, "newton_below", minimum=0)

    def handles(self, problem: Problem) -> bool:
        """Problems whose penalty is the sum of the neurons' norms, and whose loss has a Hessian;
        cones of sparse rows are for other methods."""
        return bool(
            (problem.kind == "C-GReLU" or not problem.operator.is_sparse)
            and problem.lam > 0
            and problem.operator.in_numpy
            and getattr(problem.penalty, "neuron_norms", False)
            and getattr(problem.loss, "has_root", False)
        )

    def further_bytes(self, problem: Problem) -> int:
        """The last projections of all pairs, where there are cones: indices, multipliers, and
        what they add up to."""
        if not isinstance(problem, CReLU):
            return 0
        m, d, C = problem.weight_shape
        return DOUBLE * m * C * (2 * problem.cones.width + d)

    def iterates(
        self,
        problem: Problem,
        start: Array,
        stop: str = "gap",
        state: Any = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate | Working]:
        run = _Run(problem, self, np.asarray(to_numpy(start), dtype=np.float64), state)
        return self._from(run, stop, tol)

    def resumed(
        self, problem: Problem, arrays: Mapping[str, np.ndarray], stop: str, tol: float
    ) -> Iterator[Iterate | Working]:
        return self._from(_Run.restored(problem, self, arrays), stop, tol, shown_before=True)

    def _from(
        self, run: _Run, stop: str, tol: float, *, shown_before: bool = False
    ) -> Iterator[Iterate | Working]:
        """The iterates of a run from where it is, which may have been shown in another process."""
        if shown_before:
            yield from run.advance(tol)
        while True:
            shown = run.check()
            yield replace(shown, snapshot=Snapshot(self.name, run.arrays()))
            yield from run.advance(tol)
            if run.stuck:
                break
        # on the dual, where rounding is met later
        last: Any = run.problem  # Newton knows the kinds of problems that there are
        for iterate in Newton().iterates(last, shown.U, stop, None, tol):
            yield replace(iterate, state=shown.state) if isinstance(iterate, Iterate) else iterate


class _Run:
    """The state of a run: working sets, the last point and the extrapolated one, the curvature."""

    def __init__(
        self, problem: Problem, settings: WorkingSets, start: np.ndarray, curvature: float | None
    ) -> None:
        self.problem, self.settings = problem, settings
        self.lam, self.loss = problem.lam, problem.loss
        self.plain: Any = getattr(problem.loss, "base", problem.loss)  # without its output bias
        if isinstance(problem, CReLU):
            start, _ = problem.make_feasible(start)
        self.blocks = ConeBlocks(problem) if isinstance(problem, CReLU) else FreeBlocks(problem)
        self.size, self.d, self.C = problem.weight_shape
        none = np.zeros(0, dtype=np.int64)
        empty = self.blocks.pairs([none] * self.C)
        live = [np.flatnonzero(np.any(start[:, :, k] != 0, axis=1)) for k in range(self.C)]
        self.pairs = self.blocks.pairs(live)
        self.blocks.renew(empty, self.pairs, np.full(len(self.pairs.pattern), -1))
        rows = np.concatenate([start[its, :, k] for k, its in enumerate(live)])
        fit = self.pairs.in_double().forward(rows)  # a start may be the optimum but for rounding
        bias = self.loss.intercept(fit)
        self.x = self.y = Point(rows, bias, fit + bias)
        self.first = curvature is None
        self.bias_scale, self.curvature = self._scales(curvature)
        self.t, self.gap, self.stuck = 1.0, math.inf, False
        self.unsettled = True  # whether many pairs came in at the last check
        self.best_gap, self.failures = math.inf, 0
        # since the last Newton steps: how many iterations, and the best gap, at each check
        self.progress: list[tuple[int, float]] = []
        self.wait = SLOW_ITERATIONS
        self.damping = FIRST_DAMPING  # of Newton steps, in units of the curvature
        self.cheap, self.unpaid = False, 0  # whether the last one was; how many gained too little
        self.taken = 1  # iterations since the last check, or the start
        self.others: np.ndarray | float = 0.0  # predictions of pairs that are not in the sets

    @classmethod
    def restored(
        cls, problem: Problem, settings: WorkingSets, arrays: Mapping[str, np.ndarray]
    ) -> Self:
        """The run that `arrays` were taken from, up to the rounding of its products."""
        run = cls(problem, settings, np.zeros(problem.weight_shape), float(arrays["curvature"]))
        blocks = np.split(arrays["blocks"], np.cumsum(arrays["sizes"])[:-1])
        run._change_pairs(blocks, np.full(len(arrays["blocks"]), -1))
        run.x, run.y = (Point(*(arrays[f"{p}.{part}"] for part in Point._fields)) for p in "xy")
        for name in _NUMBERS:
            setattr(run, name, arrays[name].item())
        run.progress = [(int(count), float(gap)) for count, gap in arrays["progress"]]
        return run

    def arrays(self) -> dict[str, Any]:
        """All that the next iterations depend on, the rows that projections start from apart."""
        found = {
            "blocks": np.concatenate(self.pairs.blocks),
            "sizes": np.array([len(its) for its in self.pairs.blocks]),
            "progress": np.array(self.progress).reshape(-1, 2),
        }
        for name, point in (("x", self.x), ("y", self.y)):
            found |= {f"{name}.{part}": value for part, value in point._asdict().items()}
        return found | {name: np.array(getattr(self, name)) for name in _NUMBERS}

    def advance(self, tol: float) -> Iterator[Working]:
        """The iterations up to the next check."""
        soon = self.unsettled or self.gap <= NEAR * tol
        if self.gap <= self.settings.newton_below or self._is_slow(tol):
            for _ in self.newton_steps():
                soon = True
                yield Working(self.taken)
        self.accelerate(self.settings.every * (1 if soon else 2))

    def _scales(self, curvature: float | None) -> tuple[float, float]:
        """The weight of the bias in the metric, and the curvature to start from."""
        n = self.blocks.operator.n
        largest = max(2.5 * largest_square(self.blocks.single.rows()) / n, 1e-300)
        return 1.0 / largest, largest if curvature is None else curvature

    # -- certificates and working sets

    def check(self) -> Iterate:
        """One pass over all pairs: what there is to show, and new working sets."""
        x, y = self.x, self.y
        # the driver asks for the value of the same array, whose bias is then known
        fit = self.problem.operator_double.like(x.Z - x.bias)
        shift = np.zeros(self.C)
        if isinstance(self.loss, WithIntercept):
            shift = self.loss.intercept(fit, x.bias) - x.bias
        Theta = to_numpy(self.loss.gradient(fit))
        self.x = x = x._replace(bias=x.bias + shift, Z=x.Z + shift)
        self.y = y._replace(bias=y.bias + shift, Z=y.Z + shift)
        correlation = self.blocks.correlation(Theta)
        objective = self._objective(x)
        bound, _ = lower_bound_of(self.problem, Theta, correlation)
        self.gap = (objective - bound) / max(objective, 1e-300)
        count, best = self.progress[-1] if self.progress else (0, math.inf)
        self.progress.append((count + self.taken, min(self.gap, best)))
        shown = self._iterate(x, fit, Theta, bound)
        self.taken = 0
        sizes = np.sqrt(np.einsum("bdk,bdk->kb", correlation, correlation))
        self._renew_pairs(sizes)
        # projections onto cones start from those of all pairs
        if self.x.rows.size > MANY_WEIGHTS * self.C and not isinstance(self.problem, CReLU):
            its = zip(sizes, self.pairs.blocks, strict=True)
            self._settle_worst(np.concatenate([of_class[blocks] for of_class, blocks in its]))
        return shown

    def _iterate(self, x: Point, fit: Array, Theta: np.ndarray, bound: float) -> Iterate:
        U = np.zeros(self.problem.weight_shape)
        for k, (its, part) in enumerate(zip(self.pairs.blocks, self.pairs.parts(), strict=True)):
            U[its, :, k] = x.rows[part]
        like = self.problem.operator_double.like
        return Iterate(
            U=like(U),
            fit=fit,
            Theta=like(Theta),
            bound=bound,
            step_size=1 / self.curvature,
            n_inner=self.taken,
            state=self.curvature,
            active=self.blocks.active,
        )

    def _renew_pairs(self, sizes: np.ndarray) -> None:
        """Keep pairs that have weights or exceed the limit, and add those that exceed it most;
        `sizes` (C, blocks) are the norms of all correlations."""
        live = np.any(self.x.rows != 0, axis=1) | np.any(self.y.rows != 0, axis=1)
        chosen, sources = [], []
        for k, (its, part) in enumerate(zip(self.pairs.blocks, self.pairs.parts(), strict=True)):
            kept = live[part] | (sizes[k, its] > self.lam)
            new = np.flatnonzero(sizes[k] > self.lam)
            new = new[~np.isin(new, its[kept], assume_unique=True)]
            room = max(self.settings.batch, int(kept.sum()) // 2)
            new = new[np.argsort(-sizes[k, new], kind="stable")[:room]]
            both = np.concatenate([its[kept], new])
            source = np.concatenate([np.flatnonzero(kept) + part.start, np.full(len(new), -1)])
            order = np.argsort(both)
            chosen.append(both[order])
            sources.append(source[order])
        source = np.concatenate(sources)
        self.unsettled = bool(np.count_nonzero(source < 0) > UNSETTLED * len(source))
        self._change_pairs(chosen, source)

    def _change_pairs(self, blocks: list[np.ndarray], source: np.ndarray) -> None:
        """New working sets; pair j was pair source[j], or is new for -1."""
        if np.array_equal(source, np.arange(len(self.pairs.pattern))):
            return
        pairs = self.blocks.pairs(blocks)
        self.blocks.renew(self.pairs, pairs, source)
        self.pairs, kept = pairs, source >= 0

        def moved(point: Point) -> Point:
            rows = np.zeros((len(source), self.d))
            rows[kept] = point.rows[source[kept]]
            return point._replace(rows=rows)

        self.x, self.y = moved(self.x), moved(self.y)

    def _settle_worst(self, sizes: np.ndarray) -> None:
        """Iterations in the pairs that exceed the limit the most, while all others stay where they
        are, and then in the worst of these; `sizes` are the norms of their correlations. A bound is
        no better than the worst pair, and where pairs are many, steps that suit all of them
        together are far too short for one that has to move alone."""
        worst = np.argsort(-sizes, kind="stable")[: int(WORST * len(sizes))]
        worst = np.sort(worst[sizes[worst] > self.lam])
        if len(worst) == 0:
            return
        part, x, y = self._part(worst), self.x, self.y
        begin = part.x
        part.accelerate(STEPS_OF_WORST)
        _, theta = self.plain.evaluate(part.x.Z)
        part._settle_worst(norms(part.pairs.adjoint(theta)))
        rows = np.zeros_like(x.rows)
        rows[worst] = part.x.rows - begin.rows
        change = Point(rows, part.x.bias - x.bias, part.x.Z - x.Z)
        self.x, self.y = (
            Point(*(a + b for a, b in zip(point, change, strict=True))) for point in (x, y)
        )

    def _part(self, some: np.ndarray) -> Self:
        """The run in some of the pairs (increasing indices), from where it is."""
        part, x = copy(self), self.x
        blocks, edges = self.pairs.blocks, np.searchsorted(some, self.pairs.operator.offsets)
        every = np.concatenate(blocks)[some]
        part.pairs = self.blocks.pairs([every[a:b] for a, b in pairwise(edges.tolist())])
        part.x = part.y = x._replace(rows=x.rows[some])
        part.others = x.Z - x.bias - part.pairs.forward(part.x.rows)
        part.t, part.first = 1.0, True
        return part

    # -- R-FISTA

    def accelerate(self, count: int) -> None:
        """Proximal gradient steps with momentum, on the working sets."""
        # in single precision rounding would hide the bound of a small step
        pairs = self.pairs if self.gap > self.settings.newton_below else self.pairs.in_double()
        x, y, lam, with_bias = self.x, self.y, self.lam, self.problem.output_bias
        metric = self.blocks.metric
        for _ in range(count):
            at_y, theta = self.plain.evaluate(y.Z)
            G, of_bias = pairs.adjoint(theta), theta.sum(axis=0) * with_bias
            for _ in range(MAX_TRIALS):
                L = self.curvature
                rows = self.blocks.prox(pairs, y.rows - G / (L * metric), lam / L)
                bias = y.bias - of_bias / (L * self.bias_scale)
                new = Point(rows, bias, self.others + pairs.forward(rows) + bias)
                change, of_bias_change = rows - y.rows, bias - y.bias
                value = self.plain.value(new.Z)
                bregman = value - at_y - float(np.vdot(theta, new.Z - y.Z))
                distance = self._squares(change, of_bias_change) * L / 2
                if bregman <= (1 + SLACK) * distance + NOISE * abs(at_y):
                    break
                rise = bregman / distance if distance > 0 else MAX_RISE
                self.curvature = L * min(max(rise, MIN_RISE), MAX_RISE)
            else:
                raise StalledError("the line search found no step: rounding")
            uphill = (
                float(np.vdot(self.blocks.scaled(change), rows - x.rows))
                + self.bias_scale * float(of_bias_change @ (bias - x.bias))
                < 0
            )
            self.t, momentum = (1.0, 0.0) if uphill else _momentum(self.t)
            y = Point(*(b + momentum * (b - a) for a, b in zip(x, new, strict=True)))
            x = new
            looseness = distance / max(bregman, 1e-300)
            if self.first and looseness > VERY_LOOSE:
                self.curvature /= min(looseness, 1e6) / 1.5
            elif looseness > LOOSE:
                self.curvature *= SHORTER
            self.first = False
        self.x, self.y = x, y
        self.taken += count

    def _squares(self, rows: np.ndarray, bias: np.ndarray) -> float:
        size = float(np.vdot(self.blocks.scaled(rows), rows))
        return size + self.bias_scale * float(bias @ bias)

    def _objective(self, point: Point) -> float:
        return self.plain.value(point.Z) + self.lam * float(norms(point.rows).sum())

    # -- Newton steps on the support

    def _is_slow(self, tol: float) -> bool:
        """Whether the gap has hardly become smaller for long enough to try Newton steps, for which
        it has to be longer after some that gained nothing, and the way to `tol` is still long."""
        if self.gap > NEWTON_AT_MOST:
            return False
        last, best = self.progress[-1]
        before = [(last - count, gap) for count, gap in self.progress if last - count >= self.wait]
        if not before:
            return False
        count, gap = before[-1]
        slow = best > SLOW ** (count / SLOW_ITERATIONS) * gap
        left = math.log(max(best / max(tol, 1e-300), 1.0))
        return slow and count * left >= NEWTON_COST * math.log(gap / best)

    def newton_steps(self) -> Iterator[None]:
        """Newton steps in the weights that are not zero, as long as they gain much, each followed
        by iterations that correct the support and the faces. `stuck` after some of no use."""
        above = self.gap > self.settings.newton_below
        useless = self.gap >= 0.9 * self.best_gap
        self.failures = self.failures + 1 if useless and not above else 0
        paid = self.gap < (0.9 if self.cheap else 0.5) * self.best_gap
        soonest = self.settings.every if self.cheap else SLOW_ITERATIONS
        self.wait = soonest if paid or not above else 2 * self.wait
        self.unpaid = 0 if paid or not above else self.unpaid + 1
        self.best_gap = min(self.gap, self.best_gap)
        self.progress = []
        self.stuck = self.failures > MAX_FAILURES
        if isinstance(self.problem, CReLU):  # with small lam, faces change for very long
            self.stuck |= self.unpaid >= MAX_UNPAID
        left = self._objective(self.x) * self.gap
        for _ in range(0 if self.stuck else MAX_STEPS):
            self._drop_zeros()
            before, support = self._objective(self.x), self._support()
            self.cheap = support is not None and support.is_factored
            if support is None or not self._newton_step(support, before):
                break
            yield
            if not self.cheap or before - self._objective(self.x) < WORTH * left:
                break
            self.accelerate(BETWEEN)

    def _support(self) -> Support | None:
        K, d = self.x.rows.shape
        if K == 0 or not Support.is_affordable(K, self.blocks.operator.n, d):
            return None
        return Support(
            self.x,
            self.pairs,
            self.plain,
            self.lam,
            with_bias=self.problem.output_bias,
            X=self.blocks.single.rows(),
            mask_of=self.blocks.operator.mask_of,
            faces=self.blocks.faces(self.pairs),
        )

    def _newton_step(self, support: Support, before: float) -> bool:
        """Whether a step led to a smaller objective."""
        for _ in range(MAX_DAMPED if support.is_factored else 1):
            step = support.step(self.damping * self.curvature)
            length = 1.0
            while length > SHORTEST:
                new = self._moved(support.unit, step, length)
                if self._objective(new) < before:
                    self.x = self.y = new
                    self.t = 1.0
                    self.damping *= LESS if length == 1.0 else 1.0
                    return True
                length /= 2
            self.damping *= MORE
        self.failures += 1
        return False

    def _moved(self, unit: np.ndarray, step: Point, length: float) -> Point:
        """The point further along the step; rows that would turn round become zero, and those that
        leave their cones return to them."""
        new = Point(*(a + length * b for a, b in zip(self.x, step, strict=True)))
        same = np.einsum("ij,ij->i", unit, new.rows) > 0
        rows = self.blocks.prox(self.pairs, new.rows * same[:, None], 0.0)
        if np.array_equal(rows, new.rows):
            return new
        return Point(rows, new.bias, self.pairs.in_double().forward(rows) + new.bias)

    def _drop_zeros(self) -> None:
        live = np.any(self.x.rows != 0, axis=1)
        parts = self.pairs.parts()
        kept = [its[live[part]] for its, part in zip(self.pairs.blocks, parts, strict=True)]
        self._change_pairs(kept, np.flatnonzero(live))
        self.y, self.t = self.x, 1.0


def _momentum(t: float) -> tuple[float, float]:
    following = min((1 + math.sqrt(1 + 4 * t * t)) / 2, LONGEST_MEMORY)
    return following, (t - 1) / following
