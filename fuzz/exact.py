"""The convex program and its dual in extended precision, by python-flint.

    P(U) = f(sum_i D_i X U_i + 1 b') + g(U),   C-ReLU: U_i = V_i - W_i, (2D_i - I) X v >= 0

for the numbers as they are stored. Sums and products of doubles are exact at `PRECISION` bits;
roots, quotients and logarithms are enclosed in balls (arb), so that a comparison is true only if it
holds for certain. Nothing here comes from cvxnn but the numbers of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from scipy.optimize import brentq

PRECISION = 2400  # bits: doubles range over 2100, so their sums fit
LOGARITHMS = 400  # bits, of exponentials and logarithms
ctx.prec = PRECISION

ZERO, ONE = arb(0), arb(1)
Ball = Any  # arb has no types of its own
Rows = list[list[Ball]]  # a matrix (n, C)


@dataclass(frozen=True)
class Program:
    """A problem as the plain numbers that define it."""

    X: np.ndarray  # (n, d), with the column of ones and in unit norms, if any
    mask: np.ndarray  # (n, p)
    Y: np.ndarray  # (n, C)
    w: np.ndarray  # (n,)
    lam: float
    loss: str
    penalty: str  # "none" at lam = 0
    delta: float  # of a huber
    output_bias: bool
    cones: bool

    @classmethod
    def of(cls, problem: Any) -> Program:
        X = problem.operator.rows()
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        return cls(
            X=X.astype(np.float64),
            mask=np.asarray(problem.patterns.mask, dtype=bool),
            Y=np.asarray(problem.loss.Y).astype(np.float64),
            w=np.asarray(problem.loss.row_weight).astype(np.float64)[:, 0],
            lam=float(problem.lam),
            loss=problem.loss_name,
            penalty=problem.penalty_name if problem.lam > 0 else "none",
            delta=float(problem.loss.settings.get("delta", math.inf)),
            output_bias=problem.output_bias,
            cones=problem.kind == "C-ReLU",
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """n, d, p, C."""
        return *self.X.shape, self.mask.shape[1], self.Y.shape[1]

    @cached_property
    def expanded(self) -> arb_mat:
        """M = [D_1 X ... D_p X]: (n, p d)."""
        n, d, p, _ = self.shape
        return matrix((self.mask[:, :, None] * self.X[:, None, :]).reshape(n, p * d))

    @cached_property
    def units(self) -> np.ndarray:
        """The power of 2 next above the largest entry of each column: (d,)."""
        largest = np.abs(self.X).max(axis=0)
        return np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 0.5))[1])

    @cached_property
    def coupled(self) -> bool:
        """Whether the dual has one scaling for all classes."""
        return self.loss == "softmax" or self.penalty == "feature"


def matrix(A: np.ndarray) -> arb_mat:
    return arb_mat(A.tolist())


def total(terms: Iterable[Ball]) -> Ball:
    return sum(terms, ZERO)


def norm(terms: Iterable[Ball]) -> Ball:
    return total(x * x for x in terms).sqrt()


# -- the primal side


def blocks(program: Program, weights: Any) -> np.ndarray:
    """Weights as one float64 array: (p, d, C), for C-ReLU (2p, d, C) with V over W."""
    parts = weights if program.cones and isinstance(weights, (tuple, list)) else [weights]
    return np.concatenate([np.asarray(part).astype(np.float64) for part in parts])


def predictions(program: Program, U: np.ndarray) -> Rows:
    """sum_i D_i X U_i."""
    _, d, p, C = program.shape
    Z = program.expanded * matrix(U[:p].reshape(p * d, C))
    if program.cones:
        Z -= program.expanded * matrix(U[p:].reshape(p * d, C))
    return Z.tolist()


def neurons(program: Program, U: np.ndarray) -> list[list[list[Ball]]]:
    """X u for every block and class: (n, blocks, C)."""
    _, d, _, C = program.shape
    columns = np.ascontiguousarray(U.transpose(1, 0, 2)).reshape(d, -1)
    rows = (matrix(program.X) * matrix(columns)).tolist()
    return [[row[C * i : C * (i + 1)] for i in range(len(U))] for row in rows]


def in_cones(program: Program, inside: Sequence[Sequence[Sequence[Ball]]]) -> np.ndarray:
    """Which of the blocks and classes (blocks, C) satisfy (2 D - I) X u >= 0; `inside` is X u."""
    p = program.shape[2]
    answer = [
        [
            all(
                (x[i][k] >= 0) if on[i % p] else (x[i][k] <= 0)
                for x, on in zip(inside, program.mask, strict=True)
            )
            for k in range(program.shape[3])
        ]
        for i in range(len(inside[0]))
    ]
    return np.array(answer)


def network_predictions(program: Program, inside: Sequence[Sequence[Sequence[Ball]]]) -> Rows:
    """sum_j +-(X v_j)_+ for X v as `neurons` gives it."""
    p, C = program.shape[2:]
    return [
        [total((1 if i < p else -1) * x[k].max(ZERO) for i, x in enumerate(row)) for k in range(C)]
        for row in inside
    ]


def loss(program: Program, Z: Rows, b: Sequence[Any] | None) -> Ball:
    """f(Z + 1 b'); b of floats or balls."""
    shift = [ZERO] * program.shape[3] if b is None else [arb(x) for x in b]
    term = _ROW_LOSSES[program.loss]
    delta = arb(program.delta) if math.isfinite(program.delta) else ZERO
    return total(
        w * term([z + s for z, s in zip(row, shift, strict=True)], y, delta)
        for row, y, w in zip(Z, program.Y.tolist(), program.w.tolist(), strict=True)
    )


def _squared(z: list[Ball], y: list[float], delta: Ball) -> Ball:
    return total((a - b) * (a - b) for a, b in zip(z, y, strict=True)) / 2


def _huber(z: list[Ball], y: list[float], delta: Ball) -> Ball:
    sizes = [abs(a - b) for a, b in zip(z, y, strict=True)]
    return total(r * r / 2 if r <= delta else delta * (r - delta / 2) for r in sizes)


def _logistic(z: list[Ball], y: list[float], delta: Ball) -> Ball:
    margins = [a * b for a, b in zip(z, y, strict=True)]
    with ctx.workprec(LOGARITHMS):
        return total((-m).max(ZERO) + (-abs(m)).exp().log1p() for m in margins)


def _softmax(z: list[Ball], y: list[float], delta: Ball) -> Ball:
    largest = max(z, key=lambda a: float(a.mid()))
    below = [largest - a for a in z]  # lse(z) - z_k = log sum exp(-below) + below_k
    with ctx.workprec(LOGARITHMS):
        lse = total((-a).exp() for a in below).log()
        return total(share * (lse + a) for share, a in zip(y, below, strict=True))


_ROW_LOSSES = {"squared": _squared, "huber": _huber, "logistic": _logistic, "softmax": _softmax}


def penalty(program: Program, U: np.ndarray) -> Ball:
    """g(U)."""
    if program.penalty == "none":
        return ZERO
    if program.penalty == "l2":
        return arb(program.lam) / 2 * total(arb(x) * x for x in U.reshape(-1).tolist())
    return arb(program.lam) * total(norm(group) for group in _groups(program.penalty, U))


def size(program: Program, U: np.ndarray) -> Ball:
    """sum ||units U_i^k||, which a bound at lam = 0 is limited by."""
    return total(norm(group) for group in _groups("neuron", U * program.units[:, None]))


def _groups(name: str, U: np.ndarray) -> list[list[Ball]]:
    order = {"neuron": (0, 2, 1), "feature": (1, 0, 2), "l1": (0, 1, 2)}[name]
    length = {"neuron": U.shape[1], "feature": U.shape[0] * U.shape[2], "l1": 1}[name]
    groups = U.transpose(order).reshape(-1, length)
    return [[arb(x) for x in group] for group in groups.tolist() if any(group)]


def best_mean(program: Program, Z: Rows) -> list[Ball]:
    """The b that minimises a squared loss f(Z + 1 b')."""
    w, whole = program.w.tolist(), total(map(arb, program.w.tolist()))
    rows = list(zip(Z, program.Y.tolist(), w, strict=True))
    return [total(v * (y[k] - z[k]) for z, y, v in rows) / whole for k in range(program.shape[3])]


# -- the dual side


def dual_point(program: Program, Theta: np.ndarray) -> Rows:
    """The exact point T that the doubles Theta mean. The equations of the dual hold exactly:

    softmax: in each row the entry of the largest q = Y + Theta/w makes up for the others;
    output bias: in each column the entry with most room makes up for the sum. For a softmax it
        gives it to the column with most room in all, in the same row.
    """
    Theta = np.asarray(Theta).astype(np.float64)
    T = [[arb(x) for x in row] for row in Theta.tolist()]
    q = program.Y + Theta / program.w[:, None]
    if program.loss == "softmax":
        for row, h in zip(T, q.argmax(axis=1).tolist(), strict=True):
            row[h] = -total(x for k, x in enumerate(row) if k != h)
        if program.output_bias:
            _balance_softmax(T, program.w[:, None] * q)
    elif program.output_bias:
        for k in range(program.shape[3]):
            _balance_column(T, Theta[:, k], k)
    return T


def _balance_column(T: Rows, theta: np.ndarray, k: int) -> None:
    S = total(row[k] for row in T)
    if S.is_zero():
        return
    r = int(np.argmax(theta if S > 0 else -theta))
    if abs(S) > abs(theta[r].item()):  # the zero column is the only one left
        for row in T:
            row[k] = ZERO
    else:
        T[r][k] -= S


def _balance_softmax(T: Rows, room: np.ndarray) -> None:
    C = room.shape[1]
    c = int(np.argmax([math.fsum(room[:, k].tolist()) for k in range(C)]))
    sums = [total(row[k] for row in T) for k in range(C)]
    for k, S in enumerate(sums):
        if k != c and not S.is_zero():
            r = int(np.argmax(room[:, k] if S > 0 else room[:, c]))
            T[r][k] -= S
            T[r][c] += S


def dual_bound(program: Program, T: Rows, multipliers: Any, radius: float | None) -> Ball:
    """The best bound over the scalings tau of T: -f*(tau T), less the conjugate of the penalty.

    tau is one number a class, or one for all where loss or penalty couples the classes. At lam = 0
    the bound holds among weights with sum ||units U_i^k|| <= radius.
    """
    C = program.shape[3]
    G = program.expanded.transpose() * arb_mat(T)
    groups = [range(C)] if program.coupled else [range(k, k + 1) for k in range(C)]
    curves = [_curve(program, T, group) for group in groups]
    if program.penalty == "l2":
        energies = [total(row[k] * row[k] for row in G.tolist() for k in group) for group in groups]
        parts = [
            _best(curve, quadratic=energy / (2 * arb(program.lam)))
            for curve, energy in zip(curves, energies, strict=True)
        ]
        return total(value for _, value in parts)
    if program.penalty == "none":
        units = np.tile(program.units, program.shape[2]).tolist()
        scaled = arb_mat([[x / u for x in row] for row, u in zip(G.tolist(), units, strict=True)])
        norms = _class_norms(program, scaled, None)
        return _unpenalised(program, T, norms, radius)
    norms = _class_norms(program, G, multipliers)
    limits = [_quotient(program.lam, [norms[k] for k in group]) for group in groups]
    parts = [_best(curve, limit=limit) for curve, limit in zip(curves, limits, strict=True)]
    return total(value for _, value in parts)


def _unpenalised(program: Program, T: Rows, norms: list[Ball], radius: float | None) -> Ball:
    """-f*(T tau) - radius max |tau_k| ||.||_k, with one tau and with one a class: the better."""
    C = program.shape[3]
    if radius is None or not math.isfinite(radius):
        return ZERO
    price = [arb(radius) * x for x in norms]
    common = _best(_curve(program, T, range(C)), cost=_largest(price))[1]
    if program.coupled:
        return common
    by_class = [_best(_curve(program, T, range(k, k + 1)), cost=price[k]) for k in range(C)]
    dearest = _largest([abs(tau) * price[k] for k, (tau, _) in enumerate(by_class)])
    values = [value + abs(tau) * price[k] for k, (tau, value) in enumerate(by_class)]
    return common.max(total(values) - dearest)


def _class_norms(program: Program, G: arb_mat, multipliers: Any) -> list[Ball]:
    """For each class, the largest group norm that the dual constraint bounds by lam."""
    _, d, p, C = program.shape
    rows = G.tolist()  # (p d, C)
    if program.cones and multipliers is not None:
        return _cone_norms(program, rows, multipliers)
    if program.penalty == "l1":
        return [_largest([abs(row[k]) for row in rows]) for k in range(C)]
    if program.penalty == "feature":
        norms = [norm(x for i in range(p) for x in rows[i * d + j]) for j in range(d)]
        return [_largest(norms)] * C
    return [
        _largest([norm(row[k] for row in rows[i * d : (i + 1) * d]) for i in range(p)])
        for k in range(C)
    ]


def _cone_norms(program: Program, rows: Rows, multipliers: Any) -> list[Ball]:
    """|| -s X'D_i T^k + sum gamma (2 D_i - I)_row x_row || for the blocks (s, i, k)."""
    _, d, p, C = program.shape
    blocks = [
        [(-1 if s == 0 else 1) * rows[i * d + j][k] for j in range(d)]
        for s in range(2)
        for i in range(p)
        for k in range(C)
    ]
    X = program.X.tolist()
    triples = (np.asarray(a).tolist() for a in multipliers)
    for block, row, value in zip(*triples, strict=True):
        if not value >= 0:
            raise ValueError(f"a multiplier is {value}")
        gamma = arb(value) if program.mask[row, block // C % p] else -arb(value)
        blocks[block] = [x + gamma * a for x, a in zip(blocks[block], X[row], strict=True)]
    return [_largest([norm(block) for block in blocks[k::C]]) for k in range(C)]


def _largest(values: Sequence[Ball]) -> Ball:
    result = ZERO
    for value in values:
        result = result.max(value)
    return result


def _quotient(lam: float, norms: Sequence[Ball]) -> Ball | None:
    """lam / max norm; None stands for infinity."""
    largest = _largest(norms)
    return None if largest.is_zero() else arb(lam) / largest


# -- functions of tau


@dataclass(frozen=True)
class Parabola:
    """tau slope - tau^2 curvature/2 up to |tau| = top: -f* of a squared loss or a huber.

    With cones, -T has the multipliers of T, with the signs of the blocks exchanged, and so the same
    largest norm: tau may have either sign."""

    slope: Ball
    curvature: Ball
    top: Ball | None

    def best(self, end: Ball | None, quadratic: Ball, cost: Ball) -> Ball:
        curvature = self.curvature + 2 * quadratic
        gain = abs(self.slope) - cost
        if curvature.is_zero() or not gain > 0:
            return ZERO
        tau = gain / curvature
        tau = tau if end is None else tau.min(end)
        return -tau if self.slope < 0 else tau

    def value(self, tau: Ball) -> Ball:
        return tau * (self.slope - tau * self.curvature / 2)


@dataclass(frozen=True)
class Entropy:
    """sum w (-q log q) + constant with q = a + tau t/w >= 0, where sum t = 0: -f* of a softmax, and
    of a logistic loss with q and 1 - q as two classes."""

    entries: list[tuple[Ball, Ball, Ball]]  # w, w a, t; those with t != 0
    constant: Ball
    top: Ball | None

    def value(self, tau: Ball) -> Ball:
        parts = [(w, (wa + tau * t) / w) for w, wa, t in self.entries]
        with ctx.workprec(LOGARITHMS):
            return self.constant + total(w * _minus_q_log_q(q) for w, q in parts)

    def best(self, end: Ball | None, quadratic: Ball, cost: Ball) -> Ball:
        """Near the maximum: a root of the slope in floats, then Newton steps."""
        if not self.entries or end is None or not end > 0:
            return ZERO
        w, wa, t = (np.array([float(e[i]) for e in self.entries]) for i in range(3))
        flat, steep = float(cost), 2 * float(quadratic)

        def slope(tau: float) -> float:
            with np.errstate(all="ignore"):
                q = np.maximum((wa + tau * t) / w, 0.0)
                value = -float(np.sum(t * np.log(np.maximum(q, 1e-320)))) - steep * tau - flat
            return value if math.isfinite(value) else -math.inf

        low, high = 0.0, float(end)
        if not math.isfinite(high) or slope(high) >= 0:
            return end
        if slope(low) <= 0:
            return ZERO
        tau = arb(brentq(slope, low, high, xtol=1e-300, rtol=1e-14))
        return self._polished(tau, end, quadratic, cost)

    def _polished(self, tau: Ball, end: Ball, quadratic: Ball, cost: Ball) -> Ball:
        if not (tau > 0 and tau < end):
            return end
        with ctx.workprec(LOGARITHMS):
            for _ in range(3):
                q = [(w, (wa + tau * t) / w, t) for w, wa, t in self.entries]
                slope = -total(t * x.log() for _, x, t in q) - 2 * quadratic * tau - cost
                curvature = total(t * t / (w * x) for w, x, t in q) + 2 * quadratic
                new = (tau + slope / curvature).mid()
                if not (new > 0 and new < end):
                    break
                tau = new
        return tau


def _minus_q_log_q(q: Ball) -> Ball:
    if q > 0:
        return -q * q.log()
    if q.is_zero():
        return ZERO
    upper = q.upper()  # zero up to the width of the ball
    return ZERO.union(-upper * upper.log())


def _curve(program: Program, T: Rows, classes: Iterable[int]) -> Any:
    """-f*(tau T) of some classes, as a function of tau."""
    classes = list(classes)
    cells = [
        (arb(w), arb(y[k]), row[k])
        for row, y, w in zip(T, program.Y.tolist(), program.w.tolist(), strict=True)
        for k in classes
    ]
    if program.loss in ("squared", "huber"):
        top = None
        if program.loss == "huber":
            ends = [arb(program.delta) * w / abs(t) for w, _, t in cells if not t.is_zero()]
            top = _smallest(ends)
        slope = -total(t * y for _, y, t in cells)
        return Parabola(slope, total(t * t / w for w, _, t in cells), top)
    if program.loss == "logistic":  # q = -y t/w and 1 - q
        entries = [e for w, y, t in cells for e in ((w, ZERO, -y * t), (w, w, y * t))]
        constant = ZERO
    else:
        entries = [(w, w * y, t) for w, y, t in cells]
        constant = _softmax_constant(program)
        still = [(w, y) for w, y, t in cells if t.is_zero()]
        with ctx.workprec(LOGARITHMS):
            constant += total(w * _minus_q_log_q(y) for w, y in still)
    moving = [e for e in entries if not e[2].is_zero()]
    ends = [wa / -t for _, wa, t in moving if t < 0]
    return Entropy(moving, constant, _smallest([arb(1), *ends]))  # nobody looks beyond tau = 1


def _softmax_constant(program: Program) -> Ball:
    """sum_j w_j s_j log s_j, where a row of Y sums to s_j."""
    sums = [(w, total(map(arb, y))) for w, y in zip(program.w, program.Y.tolist(), strict=True)]
    with ctx.workprec(LOGARITHMS):
        return -total(arb(w.item()) * _minus_q_log_q(s) for w, s in sums if not (s - 1).is_zero())


def _smallest(values: Sequence[Ball]) -> Ball | None:
    result = None
    for value in values:
        result = value if result is None else result.min(value)
    return result


def _best(
    curve: Any, limit: Ball | None = None, quadratic: Ball = ZERO, cost: Ball = ZERO
) -> tuple[Ball, Ball]:
    """tau with |tau| <= limit, and curve(tau) - quadratic tau^2 - cost |tau|, near its maximum."""
    end = _smallest([x for x in (limit, curve.top) if x is not None])
    tau = curve.best(end, quadratic, cost)
    return tau, curve.value(tau) - quadratic * tau * tau - cost * abs(tau)
