"""One input: a ReLU network that is proven optimal among all of them, for any number of rows.

An exchange method. The master problem has few neurons of fixed directions, w >= 0 of each:

    min_w  f(sum_a sign_a w_a (X u_a)_+)  +  lam sum_a w_a.

Exact pricing (bounds/one_input.py) then says which directions would improve it most, and how far it
is from the optimum over all directions, in one pass over the cells. Rows that are sorted by their
angle are switched on by a direction in one interval of a circle. So neurons cut the rows into few
segments: sums over segments give the Hessian and the gradient of the master problem, and the
predictions are linear on each. A Newton step costs a few passes over the rows, however many neurons
there are, and for the squared loss one step is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve

from cvxnn import budget
from cvxnn.bounds.base import (
    EXACT,
    Bound,
    Units,
    dual_value_below,
    network_objective_above,
)
from cvxnn.bounds.one_input import Kinks, kinks_of, price, search
from cvxnn.certificates import relative_gap
from cvxnn.losses import Loss
from cvxnn.losses.intercepts import on_rows, with_rows
from cvxnn.rounding import TINY

MANY_ROWS, GROUPS = 100_000, 20_000  # so many rows start from neurons of groups of them
FEW_TARGETS = 10  # that groups are made for, each on its own
NEW_NEURONS = 40  # that a round adds
MAX_ROUNDS = 200
SAME_NEURON = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5)  # angles at which neurons may be one
NEWTON_STEPS = 30  # of one master problem
ACCURACY = (1e-12, 1e-10)  # of the last of them, in units of the objective
RIDGE = 1e-13  # of the Hessian, relative to its diagonal: neurons may be nearly parallel
FLAT = 1e-3  # of the row weights, the least curvature: a huber loss has none at outliers


class ExchangeRound(NamedTuple):
    """One round for one output, as callbacks see it; nothing in it is proven."""

    output: int
    n_round: int
    seconds: float
    objective: float
    lower_bound: float
    n_neurons: int
    price_ratio: float  # the price over all directions, in units of lam


@dataclass(frozen=True, eq=False)
class OneInputTraining:
    """A network on one input, in the units of the design matrix.

    units : its neurons; `output_bias` (C,) or None.
    objective : as computed; that of the bound is rounded up.
    bound : on the training problem over all networks, with its dual point.
    n_rounds : of all outputs.
    converged : whether the relative gap is below the tolerance.
    interrupted : whether Ctrl-C ended it.
    """

    units: Units
    output_bias: np.ndarray | None
    objective: float
    bound: Bound
    n_rounds: int
    seconds: float
    converged: bool
    interrupted: bool = False


def solve_one_input(
    X: np.ndarray,
    loss: Loss,
    lam: float,
    *,
    output_bias: bool = False,
    tol: float = 1e-6,
    max_seconds: float = math.inf,
    callback: Callable[[ExchangeRound], object] | None = None,
) -> OneInputTraining:
    """Train a ReLU network on rows X (n, 1) or (n, 2), the second column mostly ones.

    Parameters
    ----------
    loss : bound to its targets (n, C), with a root of its Hessian, not coupled; see `handles`.
    output_bias : whether the loss is one with an intercept, which is then the network's.
    tol : relative gap, which is proven over all networks.
    max_seconds : after which the best network so far is returned.
    callback : called after each round; a true answer ends the run.
    """
    if not handles(X, loss):
        raise ValueError("one input, and a loss with a Hessian that does not couple its outputs")
    k = int(np.frexp(np.max(np.abs(X), initial=0.0))[1])
    scaled = np.ldexp(X, -k)
    with np.errstate(over="ignore"):
        strength = float(np.ldexp(lam, -k))
    if not np.array_equal(np.ldexp(scaled, k), X) or not TINY < strength < math.inf:
        k, scaled, strength = 0, X, lam  # numbers that no power of 2 brings to size 1
    found = _solve_scaled(scaled, loss, strength, output_bias, tol, max_seconds, callback)
    assert found.bound.price is not None
    W = found.units.W[:, : X.shape[1]]
    with np.errstate(over="ignore"):
        units = found.units._replace(W=np.ldexp(W, -k))
        price_above = np.ldexp(found.bound.price, k)
        same = np.array_equal(np.ldexp(units.W, k), W)
    price_above = np.where(price_above < TINY, np.nextafter(price_above, 1.0), price_above)
    bound = replace(found.bound, price=np.where(found.bound.price > 0, price_above, 0.0))
    if not same:  # weights that underflow are another network
        value = network_objective_above(X, loss, lam, units, found.output_bias)
        bound = replace(bound, objective=value)
    return replace(found, units=units, bound=bound)


def _solve_scaled(
    X: np.ndarray,
    loss: Loss,
    lam: float,
    output_bias: bool,
    tol: float,
    max_seconds: float,
    callback: Callable[[ExchangeRound], object] | None,
) -> OneInputTraining:
    """The same for rows of size 1: the problem is equal, with weights in other units. Rounds work
    on rows in the order of their angles, so that what is summed up is contiguous in memory."""
    clock = budget.Budget(max_seconds)
    order, ordered = _in_order(X, loss)
    rows = X[order]
    circle = _Circle(kinks_of(rows))
    parts = ordered.by_output()
    runs = [_Exchange(circle, part, lam, k, clock, callback) for k, part in enumerate(parts)]
    interrupted = False
    try:
        for run, part in zip(runs, parts, strict=True):
            _start_from_groups(run, rows, part, lam, 0.1 * tol)
            run.until(0.5 * tol)
            run.simplify(0.5 * tol)
    except KeyboardInterrupt:
        interrupted = True
    while True:
        found = _finish(circle.kinks, ordered, lam, runs, output_bias)
        done = found.bound.relative_gap <= tol
        ends = done or interrupted or clock.left <= 0
        goes_on = [not ends and run.once_more() for run in runs]
        if not any(goes_on):
            break
    dual = np.empty_like(found.bound.dual)
    dual[order] = found.bound.dual
    return replace(
        found,
        bound=replace(found.bound, dual=dual),
        n_rounds=sum(run.n_rounds for run in runs),
        seconds=clock.taken,
        converged=done,
        interrupted=interrupted,
    )


def handles(X: np.ndarray, loss: Loss) -> bool:
    return X.shape[1] <= 2 and loss.has_root and not getattr(loss, "coupled", False)


def _in_order(X: np.ndarray, loss: Loss) -> tuple[np.ndarray, Loss]:
    """The rows by their angle, and their loss; as they are where the loss has no other order."""
    order = np.argsort(np.arctan2(X[:, -1], X[:, 0]), kind="stable")
    ordered = on_rows(loss, order)
    return (np.arange(len(X)), loss) if ordered is None else (order, ordered)


def _start_from_groups(run: _Exchange, X: np.ndarray, loss: Loss, lam: float, tol: float) -> None:
    """Neurons of nearly the same problem, where there are many rows: neighbours in groups, each of
    them as one row."""
    found = _groups(X, loss) if len(X) >= MANY_ROWS else None
    if found is not None:
        rows, part = found
        groups = _Exchange(_Circle(kinks_of(rows)), part, lam, run.output, run.clock, None)
        groups.until(tol)
        run.start(groups.atoms)


def _groups(X: np.ndarray, loss: Loss) -> tuple[np.ndarray, Loss] | None:
    """Means of rows X that follow each other, and the loss with their weights. A quadratic takes
    the mean of their targets. For other losses rows of a group have one target; where there are too
    many of these, a random sample of the rows."""
    y, weight = np.asarray(loss.Y)[:, 0], np.asarray(loss.row_weight)[:, 0]
    label = np.arange(len(y)) * GROUPS // len(y)
    if not loss.affine_gradient:
        values, which = np.unique(y, return_inverse=True)
        if len(values) > FEW_TARGETS:
            rows = np.sort(np.random.default_rng(0).choice(len(y), GROUPS, replace=False))
            some = on_rows(loss, rows)
            return None if some is None else (X[rows], some)
        label = label * len(values) + which
    sums = np.stack([np.bincount(label, weight * x) for x in (1.0, *X.T, y)], axis=1)
    sums = sums[sums[:, 0] > 0]
    means = sums[:, 1:] / sums[:, :1]
    part = with_rows(loss, means[:, -1:], sums[:, :1])
    return None if part is None else (means[:, :-1], part)


def _finish(
    kinks: Kinks, loss: Loss, lam: float, runs: list[_Exchange], output_bias: bool
) -> OneInputTraining:
    """The network of all outputs, with a proven bound."""
    W = np.concatenate([run.atoms.weights for run in runs])
    signs = np.concatenate([run.atoms.signs for run in runs])
    classes = np.repeat(np.arange(len(runs)), [len(run.atoms.signs) for run in runs])
    units = Units(W, classes, signs)
    Z = units.predictions(kinks.X, len(runs))
    bias = loss.intercept(Z) if output_bias else None
    Theta = np.concatenate([run.Theta for run in runs], axis=1)
    Theta = loss.dual_point(loss.dual_candidate(Theta))[0]
    above = price(kinks, Theta, lam, 1).above
    zero = np.zeros_like(Z)
    none = loss.intercept(zero) if output_bias else None
    nobody = Units(W[:0], classes[:0], signs[:0])
    bound = Bound(
        objective=network_objective_above(kinks.X, loss, lam, units, bias),
        lower_bound=dual_value_below(kinks.X, loss, lam, Theta, above),
        zero_objective=network_objective_above(kinks.X, loss, lam, nobody, none),
        scope=EXACT,
        proven=bool(loss.declares_rounding),
        dual=Theta,
        price=above,
    )
    objective = float(loss.value(Z)) + lam * float(np.sum(np.linalg.norm(W, axis=1)))
    return OneInputTraining(units, bias, objective, bound, 0, 0.0, False)


class _Atoms(NamedTuple):
    """Unit directions U (k, 2) with signs (k,) and sizes w (k,) >= 0."""

    U: np.ndarray
    signs: np.ndarray
    w: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        return self.U * self.w[:, None]

    def select(self, which: np.ndarray) -> _Atoms:
        return _Atoms(self.U[which], self.signs[which], self.w[which])


class _Circle:
    """The rows of `Kinks` by their angle: a direction switches on an interval of them, [first,
    last), or what is outside of it."""

    def __init__(self, kinks: Kinks) -> None:
        self.kinks = kinks
        before = ~kinks.after
        place = np.concatenate([np.flatnonzero(before), np.flatnonzero(kinks.after)])
        self.order, self.rows = kinks.order[place], kinks.rows[place]
        self.n_before = int(before.sum())
        self.passed_before = np.concatenate([[0], np.cumsum(before)])  # of the first j kinks

    def intervals(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """First, last and whether the rows outside are meant, of directions U (k, 2)."""
        passed, opposite = self.kinks.position(U)
        first = self.passed_before[passed]
        return first, self.n_before + passed - first, opposite


class _Segments:
    """The rows of a circle, cut by neurons U (k, 2); `active` (k, m) says which are on where."""

    def __init__(self, circle: _Circle, U: np.ndarray) -> None:
        self.circle, self.U = circle, U
        first, last, opposite = circle.intervals(U)
        n = len(circle.order)
        cuts = np.unique(np.concatenate([[0], first, last]))
        self.starts = cuts[cuts < n]
        self.lengths = np.diff(np.append(self.starts, n))
        inside = (self.starts >= first[:, None]) & (self.starts < last[:, None])
        self.active = (inside ^ opposite[:, None]).astype(np.float64)

    def predictions(self, weights: np.ndarray, n: int) -> np.ndarray:
        """sum_a (X w_a)_+ for multiples w_a (k, 2) of the directions: (n, 1)."""
        Z = np.zeros((n, 1))
        slopes = np.repeat(self.active.T @ weights, self.lengths, axis=0)
        Z[self.circle.order, 0] = np.einsum("ij,ij->i", slopes, self.circle.rows)
        return Z

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """theta'(X u_a)_+: (k,)."""
        sums = self._sums(theta[self.circle.order, None] * self.circle.rows)
        return np.sum((self.active @ sums) * self.U, axis=1)

    def hessian(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """sum_i h_i (x_i u_a)_+ (x_i u_b)_+ (k, k), and sum_i h_i (x_i u_a)_+ (k,)."""
        x, h = self.circle.rows, h[self.circle.order]
        hx = h[:, None] * x
        moments = self._sums(
            np.stack([hx[:, 0] * x[:, 0], hx[:, 0] * x[:, 1], hx[:, 1] * x[:, 1]], 1)
        )
        A, (u1, u2) = self.active, self.U.T
        m11, m12, m22 = ((A * moments[:, i]) @ A.T for i in range(3))
        cross = np.outer(u1, u2)
        H = np.outer(u1, u1) * m11 + (cross + cross.T) * m12 + np.outer(u2, u2) * m22
        return H, np.sum((A @ self._sums(hx)) * self.U, axis=1)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, self.starts, axis=0) if len(values) else values


class _Exchange:
    """The rounds of one output."""

    def __init__(
        self,
        circle: _Circle,
        loss: Loss,
        lam: float,
        output: int,
        clock: budget.Budget,
        callback: Callable[[ExchangeRound], object] | None,
    ) -> None:
        self.circle, self.loss, self.lam, self.output = circle, loss, lam, output
        self.clock, self.callback = clock, callback
        self.n = len(circle.kinks.X)
        self.atoms = _Atoms(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
        self.Z = np.zeros((self.n, 1))
        self.zero = self.value = float(loss.value(self.Z))
        self.best = 0.0  # lower bound, as computed, and the dual point behind it
        self.Theta = np.zeros((self.n, 1))
        self.n_rounds, self.ended = 0, False
        self.accuracy = ACCURACY[1]  # of master problems: they need be no better than the prices

    def start(self, atoms: _Atoms) -> None:
        """From neurons of another run."""
        self._take(self._solve(atoms))

    def until(self, tol: float) -> None:
        while not self.ended and self._round() > tol:
            pass

    def once_more(self) -> bool:
        """Another round, where one is left."""
        if not self.ended:
            self._round()
        return not self.ended

    def simplify(self, tol: float) -> None:
        """Fewer neurons, as long as the relative gap stays below tol: the optimal kink is between
        two of the rows, or two neurons approach it from both sides."""
        for angle in SAME_NEURON if len(self.atoms.w) > 1 else ():
            atoms = self._solve(self._joined(angle))
            value = self._look(atoms)[1]
            fewer = len(atoms.w) < len(self.atoms.w)
            if fewer and relative_gap(value, self.best, self.zero) <= tol:
                self._take(atoms)
                return

    def _joined(self, angle: float) -> _Atoms:
        """Neurons of one sign whose directions follow each other by less than an angle, as sums."""
        atoms = self.atoms
        at = np.arctan2(atoms.U[:, 1], atoms.U[:, 0])
        order = np.lexsort((at, atoms.signs))
        new = (np.diff(at[order], prepend=-9.0) > angle) | (
            np.diff(atoms.signs[order], prepend=0.0) != 0
        )
        return _sums(atoms.select(order), np.cumsum(new) - 1)

    def _round(self) -> float:
        """Price all directions, take in those that pay, solve; the relative gap before that."""
        Theta = self.loss.gradient(self.Z)
        found = search(self.circle.kinks, Theta[:, 0], self.lam, NEW_NEURONS)
        highest = float(np.max(np.abs(found.prices), initial=0.0))
        limit = np.array([self.lam / highest if highest > 0 else math.inf])
        lower_bound = self.loss.best_dual(Theta, limit, np.zeros(1))[1]
        if lower_bound >= self.best:
            self.best, self.Theta = lower_bound, Theta
        gap = relative_gap(self.value, self.best, self.zero)
        self.n_rounds += 1
        self.accuracy = float(np.clip(1e-4 * gap, *ACCURACY))
        self._tell(highest)
        pays = np.abs(found.prices) > self.lam * (1 + 1e-14)
        if self.n_rounds >= MAX_ROUNDS or self.clock.left <= 0 or not pays.any():
            self.ended = True
        if not self.ended:
            before = self.value
            self._take_in(found.directions[pays], -np.sign(found.prices[pays]))
            self.ended = self.value >= before * (1 - 1e-16) and gap < 1e-9
        return gap

    def _tell(self, highest: float) -> None:
        if self.callback is None:
            return
        record = ExchangeRound(
            self.output, self.n_rounds, self.clock.taken, self.value, self.best,
            len(self.atoms.w), highest / self.lam,
        )  # fmt: skip
        self.ended = bool(self.callback(record)) or self.ended

    def _take_in(self, U: np.ndarray, signs: np.ndarray) -> None:
        old = self.atoms
        atoms = _Atoms(
            np.concatenate([old.U, U]),
            np.concatenate([old.signs, signs]),
            np.concatenate([old.w, np.zeros(len(U))]),
        )
        for _ in range(6):
            atoms = self._solve(atoms)
            merged = self._merged(atoms)
            if len(merged.w) == len(atoms.w):
                break
            atoms = merged
        self._take(atoms)

    def _take(self, atoms: _Atoms) -> None:
        looks = self._look(atoms)
        self.atoms, (self.Z, self.value) = atoms, looks

    def _look(self, atoms: _Atoms) -> tuple[np.ndarray, float]:
        """The predictions and the objective of neurons."""
        segments = _Segments(self.circle, atoms.U)
        Z = segments.predictions(atoms.weights * atoms.signs[:, None], self.n)
        return Z, float(self.loss.value(Z)) + self.lam * float(atoms.w.sum())

    def _merged(self, atoms: _Atoms) -> _Atoms:
        """Neurons of one sign that switch at the same row are one: their sum has the same fit."""
        atoms = atoms.select(atoms.w > 0)
        first, last, opposite = self.circle.intervals(atoms.U)
        keys = np.stack([first, last, opposite, atoms.signs > 0], axis=1).astype(np.int64)
        return _sums(atoms, np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1))

    def _solve(self, atoms: _Atoms) -> _Atoms:
        """The master problem, by Newton steps."""
        if len(atoms.w) == 0:
            return atoms
        segments, loss, w = _Segments(self.circle, atoms.U), self.loss, atoms.w
        signs = atoms.signs
        Z = segments.predictions(atoms.weights * signs[:, None], self.n)
        value = float(loss.value(Z)) + self.lam * float(w.sum())
        for _ in range(NEWTON_STEPS):
            gradient = signs * segments.gradient(loss.gradient(Z)[:, 0])
            root = loss.root(Z)
            h = np.maximum(root.scale[:, 0] ** 2, FLAT * loss.row_weight[:, 0])
            H, ones = segments.hessian(h)
            if root.span is not None:
                H = H - np.outer(ones, ones) / float(h.sum())
            H = H * np.outer(signs, signs)
            target = nonnegative_quadratic(H, gradient + self.lam - H @ w, w)
            step, share = target - w, 1.0
            slope = float((gradient + self.lam) @ step)
            if not slope < 0:
                break
            while share > 1e-6:
                w_new = w + share * step
                Z_new = segments.predictions(atoms.U * (w_new * signs)[:, None], self.n)
                new = float(loss.value(Z_new)) + self.lam * float(w_new.sum())
                if new <= value + 1e-4 * share * slope:
                    break
                share /= 2
            else:
                break
            fall, w, Z, value = value - new, w_new, Z_new, new
            if loss.affine_gradient or fall <= self.accuracy * value:
                break
        return atoms._replace(w=w).select(w > 0)


def _sums(atoms: _Atoms, group: np.ndarray) -> _Atoms:
    """The sums of groups (k,) of neurons, which are numbered from 0 and of one sign each."""
    weights = np.zeros((int(group.max(initial=-1)) + 1, 2))
    signs = np.zeros(len(weights))
    np.add.at(weights, group, atoms.weights)
    signs[group] = atoms.signs
    w = np.linalg.norm(weights, axis=1)
    return _Atoms(weights / np.maximum(w, 1e-300)[:, None], signs, w).select(w > 0)


def nonnegative_quadratic(H: np.ndarray, q: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Nearly the w >= 0 that minimises w'H w/2 + q'w, by active sets from the support of `start`
    (Lawson and Hanson's method)."""
    k = len(q)
    w, free = start.copy(), start > 0
    scale = float(np.max(np.abs(q), initial=0.0))
    diagonal = np.maximum(np.diag(H), 1e-300)
    for _ in range(3 * k + 20):
        target = _minimum_on(H, q, free, diagonal)
        while np.any(free) and np.min(target[free]) <= 0:
            out = free & (target <= 0)
            shares = w[out] / np.maximum(w[out] - target[out], 1e-300)
            first = int(np.argmin(shares))
            w = np.where(free, w + shares[first] * (target - w), 0.0)
            free &= ~(out & (w <= 1e-14 * np.max(w, initial=0.0)))
            free[np.flatnonzero(out)[first]] = False  # whatever overflows, this comes to an end
            w[~free] = 0.0
            target = _minimum_on(H, q, free, diagonal)
        w = target
        slope = np.where(free, np.inf, (H @ w + q) / np.sqrt(diagonal))
        j = int(np.argmin(slope))
        if not slope[j] < -1e-12 * scale / math.sqrt(float(diagonal[j])):
            break
        free[j] = True
    return np.maximum(w, 0.0)


def _minimum_on(H: np.ndarray, q: np.ndarray, free: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """The minimum over the free entries; the others are zero."""
    w = np.zeros(len(q))
    if free.any():
        unit = 1 / np.sqrt(diagonal[free])
        A = H[np.ix_(free, free)] * np.outer(unit, unit)
        A[np.diag_indices_from(A)] += RIDGE
        try:
            w[free] = unit * solve(A, -unit * q[free], assume_a="pos")
        except np.linalg.LinAlgError:  # so nearly parallel that rounding decides
            w[free] = unit * np.linalg.lstsq(A, -unit * q[free], rcond=RIDGE)[0]
    return w
