"""R-FISTA on a working set of patterns for each class, then Newton steps on the support.

For losses that couple many classes: at the optimum a few per cent of the pairs (pattern, class) are
active, so products with the pairs that matter cost a tenth of a pass (operators/ragged.py). Every
few iterations one pass over all pairs gives a dual point and its bound; pairs whose weights are
zero and whose correlation is below the limit leave the sets, and those that exceed it the most come
in. Momentum goes on: new pairs have had the weight zero all along.

Products are in single precision; weights, predictions and the loss are in double. An output bias is
a variable of its own in here, with the step of the loss's own curvature. Once the gap is small, the
weights that are not zero have settled, and the objective is smooth in them: Newton steps, by
conjugate gradients with the Hessian's diagonal blocks as preconditioner, end the run, with a few
iterations of R-FISTA in between that correct the support.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array, to_numpy
from cvxnn.certificates import lower_bound_of
from cvxnn.operators.ragged import RaggedOperator
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, StalledError
from cvxnn.validation import check_integer, check_number

SLACK = 1e-4  # of the quadratic bound in the line search, relative
NOISE = 1e-14  # of differences of the loss, relative to it
LOOSE, SHORTER = 2.0, 0.85  # a bound that is looser than this lets the curvature fall by that
VERY_LOOSE = 5.0  # at the first step, which then takes the curvature that it found
MAX_RISE, MIN_RISE = 4.0, 1.25  # of the curvature in one step of the line search
MAX_TRIALS = 60
RIDGE = 1e-3  # of the preconditioner's diagonal, relative
MAX_BLOCK_WORK = 4 * 10**10  # operations for all diagonal blocks of one Hessian


class Sets(NamedTuple):
    """Patterns by class (increasing indices), and the products with them."""

    patterns: list[np.ndarray]
    operator: RaggedOperator

    @property
    def classes(self) -> np.ndarray:
        """The class of each pair: (K,)."""
        return np.repeat(np.arange(len(self.patterns)), np.diff(self.operator.offsets))


class Point(NamedTuple):
    rows: np.ndarray  # (K, d), the weights of the pairs
    bias: np.ndarray  # (C,)
    Z: np.ndarray  # (n, C), predictions with the bias


@dataclass(frozen=True)
class WorkingSets:
    """Settings of the method.

    Attributes
    ----------
    every : iterations between passes over all pairs, each with a bound and new working sets.
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
        """Problems without cones whose penalty is the sum of the neurons' norms, and whose loss has
        a Hessian."""
        return bool(
            problem.kind == "C-GReLU"
            and problem.lam > 0
            and problem.operator.in_numpy
            and getattr(problem.penalty, "neuron_norms", False)
            and getattr(problem.loss, "has_root", False)
        )

    def iterates(
        self,
        problem: Problem,
        start: Array,
        stop: str = "gap",
        state: Any = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate]:
        run = _Run(problem, self, np.asarray(to_numpy(start), dtype=np.float64), state)
        while True:
            yield run.check()
            if run.gap <= self.newton_below and not run.stuck:
                run.newton_step()
            run.accelerate(self.every)


class _Run:
    """The state of a run: working sets, the last point and the extrapolated one, the curvature."""

    def __init__(
        self, problem: Problem, settings: WorkingSets, start: np.ndarray, curvature: float | None
    ) -> None:
        self.problem, self.settings = problem, settings
        self.lam, self.loss = problem.lam, problem.loss
        self.plain: Any = getattr(problem.loss, "base", problem.loss)  # without its output bias
        self.n, self.C = problem.loss.Y.shape
        base = problem.operator_double.base
        self.base, self.single, self.p = base, base.in_single(), base.p
        patterns = [np.flatnonzero(np.any(start[:, :, k] != 0, axis=1)) for k in range(self.C)]
        self.sets = self._make_sets(patterns)
        rows = np.concatenate([start[its, :, k] for k, its in enumerate(patterns)])
        fit = self.sets.operator.forward(rows)
        bias = self.loss.intercept(fit)
        self.x = self.y = Point(rows, bias, fit + bias)
        self.first = curvature is None
        self.bias_scale, self.curvature = self._scales(curvature)
        self.t, self.gap, self.stuck = 1.0, math.inf, False
        self.best_gap, self.failures = math.inf, 0
        self.value = self.plain.value(self.x.Z)

    def _make_sets(self, patterns: list[np.ndarray]) -> Sets:
        return Sets(patterns, self.base.ragged(patterns, np.float32))

    def _scales(self, curvature: float | None) -> tuple[float, float]:
        """The weight of the bias in the metric, and the curvature to start from."""
        X = self.single.rows()
        v = np.random.default_rng(0).standard_normal(X.shape[1])
        for _ in range(5):  # powers of X'X: no more than an order of magnitude is asked for
            v = np.asarray(X.T @ (X @ (v / max(float(np.linalg.norm(v)), 1e-300))), dtype=float)
        largest = max(2.5 * float(np.linalg.norm(v)) / self.n, 1e-300)
        return 1.0 / largest, largest if curvature is None else curvature

    # -- certificates and working sets

    def check(self) -> Iterate:
        """One pass over all pairs: what there is to show, and new working sets."""
        x, y = self.x, self.y
        fit = x.Z - x.bias
        Theta = to_numpy(self.loss.gradient(fit))
        shift = self.loss.intercept(fit) - x.bias
        self.x = x = x._replace(bias=x.bias + shift, Z=x.Z + shift)
        self.y = y._replace(bias=y.bias + shift, Z=y.Z + shift)
        correlation = self._correlation(Theta)
        norms = np.sqrt(np.einsum("pdk,pdk->kp", correlation, correlation))
        objective = self.plain.value(x.Z) + self.lam * float(_norms(x.rows).sum())
        bound, _ = lower_bound_of(self.problem, Theta, correlation)
        self.gap = (objective - bound) / max(objective, 1e-300)
        shown = self._iterate(x, Theta, correlation)
        self._renew_sets(norms)
        return shown

    def _correlation(self, Theta: np.ndarray) -> np.ndarray:
        """M'Theta in single precision, class by class: (p, d, C)."""
        parts = [np.asarray(self.single.adjoint(column[:, None]))[:, :, 0] for column in Theta.T]
        return np.stack(parts).transpose(1, 2, 0)

    def _iterate(self, x: Point, Theta: np.ndarray, correlation: np.ndarray) -> Iterate:
        U = np.zeros(self.problem.weight_shape)
        for k, (its, part) in enumerate(zip(self.sets.patterns, self._parts(), strict=True)):
            U[its, :, k] = x.rows[part]
        like = self.problem.operator_double.like
        return Iterate(
            U=like(U),
            fit=like(x.Z - x.bias),
            Theta=like(Theta),
            correlation=correlation,
            step_size=1 / self.curvature,
            n_inner=self.settings.every,
            state=self.curvature,
        )

    def _parts(self) -> list[slice]:
        offsets = self.sets.operator.offsets
        return [slice(a, b) for a, b in pairwise(offsets)]

    def _renew_sets(self, norms: np.ndarray) -> None:
        """Keep pairs that have weights or exceed the limit, and add those that exceed it most."""
        live = np.any(self.x.rows != 0, axis=1) | np.any(self.y.rows != 0, axis=1)
        chosen, sources = [], []
        for k, (its, part) in enumerate(zip(self.sets.patterns, self._parts(), strict=True)):
            kept = live[part] | (norms[k, its] > self.lam)
            new = np.flatnonzero(norms[k] > self.lam)
            new = new[~np.isin(new, its[kept], assume_unique=True)]
            room = max(self.settings.batch, int(kept.sum()) // 2)
            new = new[np.argsort(-norms[k, new], kind="stable")[:room]]
            both = np.concatenate([its[kept], new])
            source = np.concatenate([np.flatnonzero(kept) + part.start, np.full(len(new), -1)])
            order = np.argsort(both)
            chosen.append(both[order])
            sources.append(source[order])
        source = np.concatenate(sources)
        if np.array_equal(source, np.arange(len(self.x.rows))):
            return
        self.sets = self._make_sets(chosen)
        self.x, self.y = (
            point._replace(rows=np.where(source[:, None] >= 0, point.rows[source], 0.0))
            if len(point.rows)
            else point._replace(rows=np.zeros((len(source), self.base.d)))
            for point in (self.x, self.y)
        )

    # -- R-FISTA

    def accelerate(self, count: int) -> None:
        """Proximal gradient steps with momentum, on the working sets."""
        operator = self.sets.operator
        if self.gap <= self.settings.newton_below:  # where rounding would hide the bound of a step
            operator = operator.in_double()
        forward, adjoint = operator.forward, operator.adjoint
        x, y, lam, with_bias = self.x, self.y, self.lam, self.problem.output_bias
        for _ in range(count):
            at_y, theta = self.plain.evaluate(y.Z)
            G, of_bias = adjoint(theta), theta.sum(axis=0) * with_bias
            for _ in range(MAX_TRIALS):
                L = self.curvature
                rows = _shrink(y.rows - G / L, lam / L)
                bias = y.bias - of_bias / (L * self.bias_scale)
                new = Point(rows, bias, forward(rows) + bias)
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
                float(np.vdot(change, rows - x.rows))
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

    def _squares(self, rows: np.ndarray, bias: np.ndarray) -> float:
        return float(np.vdot(rows, rows)) + self.bias_scale * float(bias @ bias)

    # -- Newton steps on the support

    def newton_step(self) -> None:
        """A Newton step in the weights that are not zero; `stuck` if it was of no use."""
        self.failures = 0 if self.gap < 0.9 * self.best_gap else self.failures + 1
        self.best_gap = min(self.gap, self.best_gap)
        if self.failures > 3:
            self.stuck = True
            return
        self._drop_zeros()
        K, d = self.x.rows.shape
        if K == 0 or 2 * K * self.n * d * d > MAX_BLOCK_WORK:
            self.stuck = True
            return
        support = _Support(self)
        step = support.step()
        before, length = self._objective(self.x), 1.0
        while length > 1e-3:
            new = support.moved(step, length)
            if self._objective(new) < before:
                self.x = self.y = new
                self.t = 1.0
                return
            length /= 2
        self.stuck = True

    def _objective(self, point: Point) -> float:
        return self.plain.value(point.Z) + self.lam * float(_norms(point.rows).sum())

    def _drop_zeros(self) -> None:
        live = np.any(self.x.rows != 0, axis=1)
        if not live.all():
            its = [i[live[part]] for i, part in zip(self.sets.patterns, self._parts(), strict=True)]
            self.sets = self._make_sets(its)
        self.x = self.x._replace(rows=self.x.rows[live])
        self.y, self.t = self.x, 1.0


class _Support:
    """The objective around a point whose rows are all non-zero, as a quadratic in them."""

    def __init__(self, run: _Run) -> None:
        self.run, self.x = run, run.x
        self.operator = run.sets.operator
        self.size = _norms(self.x.rows)
        self.unit = self.x.rows / self.size[:, None]
        self.bend = (run.lam / self.size)[:, None]  # of the norm, across the row
        root = run.plain.root(self.x.Z)
        self.hessian, self.diagonal = root.hessian, root.diagonal()
        self.with_bias = run.problem.output_bias
        self.inverse = self._diagonal_blocks()
        self.bias_inverse = self.with_bias / np.maximum(self.diagonal.sum(axis=0), 1e-12)

    def _diagonal_blocks(self) -> np.ndarray:
        """The inverses of the Hessian's diagonal blocks: (K, d, d)."""
        run, d = self.run, self.x.rows.shape[1]
        X, mask = run.single.rows(), run.base.mask_by_pattern
        blocks = np.empty((len(self.x.rows), d, d), dtype=np.float32)
        at = 0
        for k, its in enumerate(run.sets.patterns):
            weight = self.diagonal[:, k].astype(np.float32)
            for pattern in its:
                on = mask[pattern]
                rows = X[on]
                scaled = (
                    rows.multiply(weight[on, None])
                    if run.base.is_sparse
                    else (rows * weight[on, None])
                )
                found = rows.T @ scaled
                blocks[at] = found.toarray() if run.base.is_sparse else found
                at += 1
            budget.look()
        unit = self.unit.astype(np.float32)
        bend = self.bend.astype(np.float32)[:, :, None]
        blocks -= bend * unit[:, :, None] * unit[:, None, :]
        along = np.arange(d)
        blocks[:, along, along] += bend[:, :, 0]
        blocks[:, along, along] *= 1 + RIDGE
        return np.linalg.inv(blocks)

    def _precondition(self, rows: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.matmul(self.inverse, rows[:, :, None])[:, :, 0], self.bias_inverse * bias

    def step(self, max_iter: int = 80, tol: float = 0.1) -> Point:
        """The Newton step, by conjugate gradients."""
        run = self.run
        _, theta = run.plain.evaluate(self.x.Z)
        r = -(self.operator.adjoint(theta) + run.lam * self.unit)
        of_bias = -theta.sum(axis=0) * self.with_bias
        total = Point(np.zeros_like(self.x.rows), np.zeros(run.C), np.zeros_like(self.x.Z))
        s, sb = self._precondition(r, of_bias)
        square = first = float(np.vdot(r, s)) + float(of_bias @ sb)
        for _ in range(max_iter):
            Z = self.operator.forward(s) + sb
            curved = self.hessian(Z)
            along = np.einsum("ij,ij->i", self.unit, s)[:, None]
            Hs = self.operator.adjoint(curved) + self.bend * (s - self.unit * along)
            Hb = curved.sum(axis=0) * self.with_bias
            curvature = float(np.vdot(s, Hs)) + float(sb @ Hb)
            if not curvature > 0:
                break
            a = square / curvature
            total = Point(total.rows + a * s, total.bias + a * sb, total.Z + a * Z)
            r, of_bias = r - a * Hs, of_bias - a * Hb
            g, gb = self._precondition(r, of_bias)
            before, square = square, float(np.vdot(r, g)) + float(of_bias @ gb)
            if square < tol**2 * first:
                break
            s, sb = g + square / before * s, gb + square / before * sb
        return total

    def moved(self, step: Point, length: float) -> Point:
        """The point further along the step; rows that would turn round become zero."""
        new = Point(*(a + length * b for a, b in zip(self.x, step, strict=True)))
        same = np.einsum("ij,ij->i", self.unit, new.rows) > 0
        if same.all():
            return new
        rows = new.rows * same[:, None]
        return Point(rows, new.bias, self.operator.forward(rows) + new.bias)


def _norms(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def _shrink(rows: np.ndarray, by: float) -> np.ndarray:
    return rows * np.maximum(1 - by / np.maximum(_norms(rows), 1e-300), 0.0)[:, None]


def _momentum(t: float) -> tuple[float, float]:
    following = (1 + math.sqrt(1 + 4 * t * t)) / 2
    return following, (t - 1) / following
