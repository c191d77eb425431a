"""What a dual point proves: lower bounds on the value of a convex program, from below and never by
more than rounding to a double.

    D = -f*(tau T) - g*(tau M'T), of a tau for which tau T is dual feasible

    squared    -f*(T) = -<T, Y> - sum T^2 / (2 w); for a huber while |T| <= delta w
    logistic   sum of the entropies of (q, 1 - q), times w, with q = -y T / w in [0, 1]
    softmax    sum of the entropies of q, times w, with q = Y + T / w >= 0
    neuron     ||tau X'D_i T^k|| <= lam; with cones gamma >= 0 relaxes it to
               ||tau (-+X'D_i T^k + sum gamma (2 D_i - I)_row x_row)|| <= lam
    feature    sqrt(sum_ik (tau x_j'D_i T^k)^2) <= lam;   l1  |tau x_j'D_i T^k| <= lam
    l2         g* = tau^2 ||M'T||^2 / (2 lam)
    lam = 0    g* = |tau| max_ik ||S^-1 X'D_i T^k|| R, among weights with sum_ik ||S U_i^k|| <= R,
               where S holds a power of 2 for each column of X, about its largest entry

T is the point that the doubles Theta stand for, exactly:

    softmax       rows sum to zero: in each row, the entry with the largest Y + Theta/w stands for
                  minus the sum of the others
    output bias   columns sum to zero: what is left of the sum of a column is taken from the entry
                  that is largest in its direction; for softmax it is moved, in the row with most
                  room, to the column with most room

Floats choose (tau, and gamma where none is given); integers prove. Where rows are many, sums over
rows may be rounded outward instead (`limbs.py`, `logarithms.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from cvxnn.arrays import to_numpy
from cvxnn.certificates import Multipliers
from cvxnn.rounding import down
from cvxnn.validation import check_array
from cvxnn.verification.exact import (
    PLACES,
    Exact,
    entropy,
    quotient,
    quotients,
    root,
    roots,
    stacked,
)
from cvxnn.verification.limbs import correlations
from cvxnn.verification.logarithms import entropies_below
from cvxnn.verification.programs import Program

EXACT, ROUNDED = ", in exact integers", ", rounded outward"
_ZERO = Exact(0)
_NEAR = 1e-9  # quotients this close in floats are compared exactly
# At lam = 0 a bound is among weights no larger than this multiple of the given ones, if it does not
# say itself how large.
RADIUS = 10.0


def bound_of(
    program: Program,
    dual: ArrayLike,
    multipliers: Multipliers | None,
    radius: float | None,
    size: float,
    *,
    rounded: bool = False,
) -> tuple[float, str]:
    """The bound of the best scaling of the dual point, or 0, which always holds; and how it was
    found, in words. Sums over rows are exact, or for many rows rounded outward."""
    Theta = to_numpy(check_array(dual, "dual")).astype(np.float64)
    if Theta.shape != program.Y.shape:
        raise ValueError(f"dual must have shape {program.Y.shape}, got {Theta.shape}")
    point, how = (
        _Dual.of(program, Theta, rounded),
        "of the best dual feasible multiple of the dual point",
    )
    if program.cones and multipliers is None and program.lam > 0:
        multipliers, by = _own_multipliers(point)
        how += by
    elif multipliers is not None:
        _check_multipliers(program, multipliers)
        how += f", by {len(multipliers.value)} multipliers of cone constraints"
    squares = _squared_limits(point, multipliers)
    if program.penalty == "none":
        if radius is None or not math.isfinite(radius):
            radius = RADIUS * size
        how += f", among weights whose block norms sum to at most {radius:.6g}"
        bound = point.bound_within(squares, radius)
    else:
        bound = point.bound(squares)
    if point.dead.any():
        how += (
            "; a column of it sums to more than can be taken from one entry, so it proves nothing"
        )
    return max(bound.below(), 0.0), how + (ROUNDED if rounded else EXACT)


def bound_of_prices(program: Program, dual: ArrayLike, prices: np.ndarray) -> float:
    """The bound over all patterns of the best scaling of the dual point, whose prices (C,) are at
    most these: no ReLU network of any width has a smaller objective. The prices are those of the
    doubles; the exact point T that they stand for costs sum_j |T_jk - Theta_jk| ||x_j|| more."""
    Theta = to_numpy(check_array(dual, "dual")).astype(np.float64)
    if Theta.shape != program.Y.shape or np.shape(prices) != program.Y.shape[1:]:
        raise ValueError(f"dual and prices must be for {program.Y.shape}, got {Theta.shape}")
    if program.penalty != "neuron":
        raise ValueError(f"nothing is known over all patterns of the penalty {program.penalty!r}")
    point = _Dual.of(replace(program, mask=program.mask[:, :0]), Theta)
    moved = abs(point.T - Exact.of(Theta))
    rows = np.flatnonzero(np.any(moved.ints != 0, axis=1))
    X = Exact.of(program.X[rows])
    extra = (moved[rows] * roots((X * X).sum(axis=1), up=True).reshape(-1, 1)).sum(axis=0)
    known = np.isfinite(prices) & (np.asarray(prices) >= 0)
    point.dead[~known] = True
    total = Exact.of(np.where(known, prices, 0.0)) + extra
    return max(point.bound(total * total).below(), 0.0)


def _squared_limits(point: _Dual, multipliers: Multipliers | None) -> Exact:
    """For each class, or all, the square of the norm that the dual constraint bounds; of l2 the sum
    of squares."""
    program, G, off = point.program, point.correlation, point.off
    if not program.cones:
        G = abs(G) + off
    if program.penalty == "none":
        G = G * Exact.of(1 / program.units[:, None])
    if program.penalty == "l2":
        return (G * G).sum(axis=(0, 1))
    if program.penalty == "feature":
        return stacked([(G * G).sum(axis=(0, 2)).max()])
    if program.penalty == "l1":
        return (G * G).max(axis=(0, 1))
    if not program.cones:
        return (G * G).sum(axis=1).max(axis=0)
    flat = np.moveaxis(G.ints, 1, 2).reshape(-1, G.ints.shape[1])
    blocks = Exact(np.concatenate([-flat, flat]), G.exponent)
    if multipliers is not None and len(multipliers.value):
        blocks = _relaxed(program, blocks, multipliers)
    C = program.Y.shape[1]
    blocks = abs(blocks) + Exact(np.tile(off.ints.T, (2 * program.mask.shape[1], 1)), off.exponent)
    return (blocks * blocks).sum(axis=1).reshape(-1, C).max(axis=0)


def _relaxed(program: Program, blocks: Exact, multipliers: Multipliers) -> Exact:
    """The blocks, with sum gamma (2 D_i - I)_row x_row added; negative gamma count as zero."""
    order = np.argsort(multipliers.block, kind="stable")
    block, row = multipliers.block[order], multipliers.row[order]
    gamma, C = np.maximum(multipliers.value[order], 0.0), program.Y.shape[1]
    pattern = block // C % program.mask.shape[1]
    signed = Exact.of(np.where(program.mask[row, pattern], gamma, -gamma)[:, None])
    terms = Exact.of(program.X)[row] * signed
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    sums = Exact(np.add.reduceat(terms.ints, starts, axis=0), terms.exponent)
    base = min(blocks.exponent, sums.exponent)
    ints = np.array(blocks.at(base))
    ints[block[starts]] += sums.at(base)
    return Exact(ints, base)


def _check_multipliers(program: Program, multipliers: Multipliers) -> None:
    block, row, value = multipliers
    n_blocks = 2 * program.mask.shape[1] * program.Y.shape[1]
    inside = np.all((block >= 0) & (block < n_blocks)) and np.all(
        (row >= 0) & (row < len(program.Y))
    )
    if not (block.shape == row.shape == value.shape == (len(value),) and inside):
        raise ValueError("multipliers must have a block, a row and a value each")
    if not np.isfinite(value).all():
        raise ValueError("multipliers must be finite")


def _own_multipliers(point: _Dual) -> tuple[Multipliers, str]:
    """Multipliers, by non-negative least squares, of blocks that would shorten the best multiple:
    longest first, since the others do not matter."""
    program, G = point.program, point.correlation.floats()
    p, _, C = G.shape
    block, row, value = [np.zeros(0, dtype=int)], [np.zeros(0, dtype=int)], [np.zeros(0)]
    lengths = np.linalg.norm(program.X, axis=1, keepdims=True)
    unit = program.X / np.where(lengths > 0, lengths, 1.0)
    norms, solved, failed = np.linalg.norm(G, axis=1), 0, 0
    for k in range(C):
        tau = abs(point.best_multiple((k,) if len(point.groups) > 1 else tuple(range(C))))
        largest = program.lam / tau if tau > 0 else math.inf
        for i in np.argsort(-norms[:, k]):
            if norms[i, k] <= largest:
                break
            rows = np.where(program.mask[:, [i]], unit, -unit)
            for sign in (0, 1):
                c = G[i, :, k] if sign else -G[i, :, k]
                solved += 1
                try:
                    gamma, _ = nnls(rows.T, -c, maxiter=30 * len(rows))
                except RuntimeError:
                    failed += 1
                    continue
                used = np.flatnonzero(gamma > 0)
                largest = max(largest, float(np.linalg.norm(c + rows.T[:, used] @ gamma[used])))
                block.append(np.full(len(used), (sign * p + i) * C + k))
                row.append(used)
                value.append(gamma[used] / lengths[used, 0])
    how = f", by {solved} non-negative least squares"
    if failed:
        how += f"; {failed} of them failed and count unprojected, so the bound may be too low"
    return Multipliers(np.concatenate(block), np.concatenate(row), np.concatenate(value)), how


def _exact_point(program: Program, Theta: np.ndarray) -> tuple[Exact, np.ndarray]:
    """The exact point that the doubles stand for (see the head of this module), and the columns
    whose sum could not be made zero."""
    T = Exact.of(Theta)
    ints, dead = np.array(T.ints), np.zeros(Theta.shape[1], dtype=bool)
    if program.loss == "softmax":
        weight, rows = program.weight[:, None], np.arange(len(Theta))
        with np.errstate(over="ignore"):
            q = program.Y + Theta / weight
            room = weight * q
        largest = q.argmax(axis=1)
        ints[rows, largest] = 0
        ints[rows, largest] = -ints.sum(axis=1)
        if not np.isfinite(q).all():
            dead[:] = True
        elif program.output_bias:
            _move_sums(ints, room)
    elif program.output_bias:
        for k, total in enumerate(ints.sum(axis=0)):
            if total != 0:
                row = np.argmax(Theta[:, k] if total > 0 else -Theta[:, k])
                dead[k] = abs(total) > abs(ints[row, k])
                ints[row, k] -= total
    return Exact(ints, T.exponent), dead


def _exact_correlations(program: Program, T: Exact) -> tuple[Exact, Exact]:
    X, (_, C) = Exact.of(program.X), T.ints.shape
    G = [(X * T[:, [k]]).sums_over(program.mask) for k in range(C)]  # all with one exponent
    none = Exact(np.full((program.X.shape[1], C), 0, dtype=object))
    return Exact(np.stack([part.ints for part in G], axis=2), G[0].exponent), none


def _move_sums(ints: np.ndarray, room: np.ndarray) -> None:
    """Move the sum of each column to the one with most room, in the row with most room."""
    sums = ints.sum(axis=0)
    heaviest = int(np.argmax([math.fsum(column) for column in room.T]))
    for k, total in enumerate(sums):
        if k != heaviest and total != 0:
            row = np.argmax(room[:, k if total > 0 else heaviest])
            ints[row, k] -= total
            ints[row, heaviest] += total


@dataclass(frozen=True, eq=False)
class _Dual:
    """A dual point, exactly.

    T : (n, C).
    dead : (C,), the columns whose sum could not be made zero.
    """

    program: Program
    T: Exact
    dead: np.ndarray
    correlation: Exact  # M'T: X'D_i T for each pattern, (p, d, C)
    off: Exact  # by how much it may be off, (d, C)
    rounded: bool
    groups: tuple[tuple[int, ...], ...]  # classes that are scaled alike

    @classmethod
    def of(cls, program: Program, Theta: np.ndarray, rounded: bool = False) -> _Dual:
        T, dead = _exact_point(program, Theta)
        C = Theta.shape[1]
        together = program.loss == "softmax" or program.penalty == "feature"
        groups = (tuple(range(C)),) if together else tuple((k,) for k in range(C))
        found = correlations(program.X, T, program.mask) if rounded else None
        correlation, off = found or _exact_correlations(program, T)
        return cls(program, T, dead, correlation, off, rounded, groups)

    def bound(self, squares: Exact) -> Exact:
        """-f*(tau T) - g*(tau M'T) of the best tau, a class or all."""
        total, lam = _ZERO, Exact.of(self.program.lam)
        for i, group in enumerate(self.groups):
            own = squares[[i]] if len(self.groups) > 1 else squares
            if self.program.penalty == "l2":
                half = quotient(own.sum(), lam, up=True).times_two_to(-1)
                total += self.value(group, self.best_multiple(group, quadratic=half), half)
                continue
            square, top = own.max(), math.inf
            if square.ints > 0:
                top = root(quotient(lam * lam, square)).below()
            total += self.value(group, self.best_multiple(group, top))
        return total

    def bound_within(self, squares: Exact, radius: float) -> Exact:
        """At lam = 0: -f*(tau T) - max_k |tau_k| m_k R, with m_k the largest ||X'D_i T^k||, for one
        tau a class and for one for all; norms are in units of columns."""
        everything, best = tuple(range(self.T.ints.shape[1])), _ZERO
        for groups in {self.groups, (everything,)}:
            total, cost = _ZERO, _ZERO
            for group in groups:
                norm = root(squares[list(group)].max(), up=True)
                price = norm * Exact.of(radius)
                tau = self.best_multiple(group, price=price)
                total += self.value(group, tau)
                cost = stacked([cost, Exact.of(abs(tau)) * price]).max()
            best = stacked([best, total - cost]).max()
        return best

    def best_multiple(
        self,
        group: tuple[int, ...],
        top: float = math.inf,
        quadratic: Exact = _ZERO,
        price: Exact = _ZERO,
    ) -> float:
        """The tau up to `top` with -f*(tau T) - tau^2 quadratic - |tau| price largest, about: the
        bound is a concave function of it. Never outside the domain of f*."""
        if self.dead[list(group)].any():
            return 0.0
        top = min(top, self._longest(group))
        if self.program.loss in ("squared", "huber"):
            slope, curvature = self._parabola(group)
            rise, curvature = abs(slope) - price, curvature + quadratic.times_two_to(1)
            if rise.ints <= 0 or curvature.ints <= 0:
                return 0.0
            tau = min(quotient(rise, curvature).below(), top)
            return tau if slope.ints > 0 else -tau
        if not 0 < top < math.inf:
            return 0.0
        T, Y = (a[:, list(group)] for a in (self.T.floats(), self.program.Y))
        linear, w = price.floats(), self.program.weight[:, None]
        steepness = 2 * quadratic.floats()
        live = T != 0
        T, Y, w = T[live], Y[live], np.broadcast_to(w, live.shape)[live]
        one = self.program.loss == "logistic"

        def slope_at(tau: float) -> float:
            part = -tau * Y * T if one else w * Y + tau * T
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(np.maximum(part, 0.0))
                logs = logs - np.log(np.maximum(w - part, 0.0)) if one else logs
                terms = (Y if one else -1.0) * T * logs
            return float(np.sum(terms)) - tau * float(steepness) - float(linear)

        low, high = 0.0, top
        if not slope_at(high) >= 0:
            for _ in range(80):  # more than the bits of a double; any tau gives a valid bound
                middle = (low + high) / 2
                low, high = (middle, high) if slope_at(middle) >= 0 else (low, middle)
            high = low
        return high

    def value(self, group: tuple[int, ...], tau: float, quadratic: Exact = _ZERO) -> Exact:
        """-f*(tau T) - tau^2 quadratic, from below; 0 if tau T is not in the domain of f*."""
        program, t, columns = self.program, Exact.of(tau), list(group)
        if program.loss in ("squared", "huber"):
            if program.loss == "huber" and np.any(
                (self._room(group) - abs(t * self._rate(group))).ints < 0
            ):
                return _ZERO
            slope, curvature = self._parabola(group)
            return t * slope - t * t * (curvature.times_two_to(-1) + quadratic)
        weight = Exact.of(program.weight[:, None])
        if program.loss == "logistic":
            part = t * self._rate(group)
            parts = [part, weight - part]
        else:
            parts = [self._room(group)[:, [k]] + t * self.T[:, [k]] for k in columns]
        base = min(part.exponent for part in parts)
        shares = np.concatenate([part.at(base) for part in parts], axis=1)
        if np.any(shares < 0):
            return _ZERO
        if program.loss == "logistic":
            C = len(columns)
            pairs = np.stack([shares[:, :C], shares[:, C:]], axis=2).reshape(-1, 2)
        else:
            pairs = shares
        if self.rounded:
            low = down(Exact(pairs, base).floats(), 2)
            total = down(math.fsum(entropies_below(low)), 1)
            return Exact.of(total) - t * t * quadratic
        wholes = pairs.sum(axis=1)
        entropies = sum(
            entropy(part, whole)
            for row, whole in zip(pairs.tolist(), wholes, strict=True)
            for part in row
        )
        return Exact(entropies, base - PLACES) - t * t * quadratic

    def _parabola(self, group: tuple[int, ...]) -> tuple[Exact, Exact]:
        """Slope and curvature of -f*(tau T) = -tau <T, Y> - tau^2/2 sum T^2 / w, from above."""
        T = self.T[:, list(group)]
        slope = -(T * Exact.of(self.program.Y[:, list(group)])).sum()
        return slope, quotients(T * T, Exact.of(self.program.weight[:, None]), up=True).sum()

    def _room(self, group: tuple[int, ...]) -> Exact:
        """How far tau times the rate may go in the domain of f*."""
        program, weight = self.program, Exact.of(self.program.weight[:, None])
        if program.loss == "softmax":
            return weight * Exact.of(program.Y[:, list(group)])
        ones = Exact.of(np.ones((1, len(group))))
        return weight * ones * (Exact.of(program.delta) if program.loss == "huber" else Exact(1))

    def _rate(self, group: tuple[int, ...]) -> Exact:
        T = self.T[:, list(group)]
        if self.program.loss == "huber":
            return abs(T)
        return (
            -(T * Exact.of(self.program.Y[:, list(group)]))
            if self.program.loss == "logistic"
            else -T
        )

    def _longest(self, group: tuple[int, ...]) -> float:
        """The largest tau for which tau T is in the domain of f*."""
        if self.program.loss == "squared":
            return math.inf
        room, rate = self._room(group), self._rate(group)
        if self.program.loss == "logistic" and np.any(rate.ints < 0):
            return 0.0
        live = rate.ints > 0
        if not live.any():
            return math.inf if self.program.loss == "huber" else 1.0
        room, rate = room[live], rate[live]
        with np.errstate(divide="ignore", invalid="ignore"):
            about = room.floats() / rate.floats()
        near = np.flatnonzero(~(about > np.nanmin(about) * (1 + _NEAR)))
        return min(quotient(room[i], rate[i]).below() for i in near)
