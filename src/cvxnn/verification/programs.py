"""Convex programs as plain arrays, and what weights and networks are worth in them: from above,
and never by more than rounding to a double (see `verification.py`).

    squared    sum w (z - y)^2 / 2         huber  sum w h(z - y), h linear beyond delta
    logistic   sum w log(1 + exp(-y z))    softmax  sum w sum_k y_k (lse(z) - z_k)
    penalties  neuron lam sum_ik ||U_i^k||, feature lam sum_j ||U_.j.||, l1, l2 lam/2 ||U||^2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize
from scipy.sparse import csr_array
from scipy.special import expit, logsumexp, softmax

from cvxnn.arrays import to_numpy
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.protocols import Problem
from cvxnn.validation import check_array, check_whole
from cvxnn.verification.exact import Exact, log_of_sum, quotients, roots, stacked

LOSSES = ("squared", "huber", "logistic", "softmax")
PENALTIES = ("neuron", "feature", "l1", "l2", "none")
# How far the sum of the row weights may be from what it should be.
SLACK = 1e-9
# Distance from the edge of a neuron's half-space that is rounding, relative to the terms of a sum.
EDGE = 1e-7
_ENTRIES = 2**18  # of pre-activations held at a time


@dataclass(frozen=True, eq=False)
class Program:
    """A convex program as plain arrays of doubles, and in words.

    X, mask, Y, weight : (n, d) with its column of ones, (n, p), (n, C), and (n,) shares of rows.
    cones : whether it is C-ReLU.
    delta : of a huber.
    """

    X: np.ndarray
    mask: np.ndarray
    Y: np.ndarray
    weight: np.ndarray
    lam: float
    loss: str
    scope: str
    cones: bool = False
    output_bias: bool = False
    penalty: str = "neuron"
    delta: float = math.inf

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise NotImplementedError(f"verify does not know the loss {self.loss!r}")
        if self.penalty not in PENALTIES:
            raise NotImplementedError(f"verify does not know the penalty {self.penalty!r}")
        outputs = 1 if self.loss == "softmax" else self.Y.shape[1]
        total = math.fsum(self.weight) * outputs
        if not (np.all(self.weight > 0) and total < math.inf):
            raise ValueError("weights of rows must be positive")
        if abs(total - 1) > SLACK:  # their scale is not trusted
            object.__setattr__(self, "weight", self.weight / total)
        if self.lam == 0:
            object.__setattr__(self, "penalty", "none")

    @property
    def units(self) -> np.ndarray:
        """A power of 2 for each column of X, above its largest entry by a factor of 2 at most, in
        which sizes of weights are measured at lam = 0: (d,)."""
        largest = np.abs(self.X).max(axis=0)
        return np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 0.5))[1])

    @classmethod
    def of(cls, problem: Problem) -> Program:
        check_whole(problem, "verify")
        X = problem.operator.rows()
        return cls(
            X=(X.toarray() if isinstance(X, csr_array) else to_numpy(X)).astype(np.float64),
            mask=problem.patterns.mask,
            Y=to_numpy(problem.loss.Y).astype(np.float64),
            weight=to_numpy(problem.loss.row_weight)[:, 0],
            lam=problem.lam,
            loss=problem.loss_name,
            scope=problem.scope,
            cones=problem.kind == "C-ReLU",
            output_bias=problem.output_bias,
            penalty=problem.penalty_name,
            delta=problem.loss.settings.get("delta", math.inf),
        )


# -- losses and penalties


def loss_above(
    program: Program, Z: Exact, rows: slice = slice(None), spread: Exact | None = None
) -> Exact:
    """f from above, of predictions Z (n, C), or the part of it that belongs to some rows. Losses of
    residuals are told the `spread` of targets by which predictions are still to be divided."""
    weight, Y = Exact.of(program.weight[rows]), Exact.of(program.Y[rows])
    if program.loss in ("squared", "huber"):
        R = abs(Z - Y) if spread is None else quotients(abs(Z - Y * spread), spread, up=True)
        terms = R * R
        if program.loss == "huber":
            delta = Exact.of(program.delta)
            tail = (delta * R).times_two_to(1) - delta * delta
            base = min(terms.exponent, tail.exponent)
            outside = (R - delta).ints > 0
            terms = Exact(np.where(outside, tail.at(base), terms.at(base)), base)
        return (weight * terms.sum(axis=1)).sum().times_two_to(-1)
    if program.loss == "logistic":  # log(1 + exp(t)) = t_+ + log(1 + exp(-|t|)), t = -y z
        t = -(Y * Z)
        linear = Exact(np.where(t.ints > 0, t.ints, 0), t.exponent).sum(axis=1)
        logs = stacked([log_of_sum([abs(a)], t.exponent) for a in t.ints.ravel()])
        return (weight * (linear + logs.reshape(*t.ints.shape).sum(axis=1))).sum()
    # sum_k y_k (lse(z) - z_k) = sum_k y_k (z_max - z_k) + s log sum_k exp(z_k - z_max)
    gaps = Exact(Z.ints.max(axis=1)[:, None] - Z.ints, Z.exponent)
    logs = stacked([log_of_sum(_without_one_zero(row), gaps.exponent) for row in gaps.ints])
    return (weight * ((Y * gaps).sum(axis=1) + Y.sum(axis=1) * logs)).sum()


def _without_one_zero(gaps: np.ndarray) -> list[int]:
    rest = gaps.tolist()
    rest.remove(0)
    return rest


def penalty_above(program: Program, U: np.ndarray) -> Exact:
    """g(U) from above."""
    lam, blocks = Exact.of(program.lam), Exact.of(U)
    if program.penalty == "none":
        return Exact(0)
    if program.penalty == "l1":
        return lam * abs(blocks).sum()
    squares = blocks * blocks
    if program.penalty == "l2":
        return (lam * squares.sum()).times_two_to(-1)
    axis: int | tuple[int, int] = 1 if program.penalty == "neuron" else (0, 2)
    return lam * roots(squares.sum(axis), up=True).sum()


def zero_objective_above(program: Program) -> tuple[float, float]:
    """The loss of the zero prediction at a good bias, and by how much the last digit of that bias
    may change it, which matters where targets are far from zero."""
    bias, slack = zero_bias(program)
    return loss_above(program, Exact.of(np.zeros_like(program.Y)) + bias).above(), slack


def zero_bias(program: Program) -> tuple[Exact, float]:
    """A good bias without weights, and by how much its last digit may change the loss."""
    bias = good_bias(program, Exact.of(np.zeros_like(program.Y)), None)
    return bias, float(np.sum(np.spacing(bias.floats()) ** 2))


def summed_outputs(program: Program, ints: np.ndarray, k: np.ndarray, exponent: int) -> Exact:
    """The sums of the columns that belong to each class."""
    C = program.Y.shape[1]
    return Exact(np.stack([ints[:, k == c].sum(axis=1) for c in range(C)], axis=1), exponent)


def largest_violation(program: Program, outside: Exact) -> float:
    """The largest distance of a block from a half-space of its cone."""
    if not np.any(outside.ints > 0):
        return 0.0
    norms = np.linalg.norm(program.X, axis=1, keepdims=True)
    distances = outside.floats() / np.where(norms > 0, norms, 1.0)
    return float(max(distances.max(), math.ulp(0.0)))


def good_bias(program: Program, Z: Exact, given: ArrayLike | None) -> Exact:
    """The output bias (C,): the given one, or a good one. Any bias gives a valid bound."""
    if not program.output_bias:
        return Exact.of(np.zeros(program.Y.shape[1]))
    if given is None:
        return Exact.of(_best_bias(program, Z.floats()))
    bias = to_numpy(check_array(given, "output_bias")).astype(np.float64)
    if bias.shape != program.Y.shape[1:]:
        raise ValueError(f"output_bias must have shape {program.Y.shape[1:]}, got {bias.shape}")
    return Exact.of(bias)


def _best_bias(program: Program, Z: np.ndarray) -> np.ndarray:
    R, share = program.Y - Z, program.weight[:, None]
    if program.loss == "squared":
        mean = np.sum(share * R, axis=0) / share.sum()
        return np.clip(mean, R.min(axis=0), R.max(axis=0))  # rounding may take it outside
    if program.loss == "softmax":
        return _softmax_bias(program, Z)
    biases = []
    for y, z, r in zip(program.Y.T, Z.T, R.T, strict=True):
        if program.loss == "huber":
            slope = partial(_huber_slope, r=r, share=share[:, 0], delta=program.delta)
            low, high = r.min(), r.max()
        else:
            slope = partial(_logistic_slope, y=y, z=z, share=share[:, 0])
            low, high = -z.max() - 700, 700 - z.min()
        biases.append(low if low == high else brentq(slope, low, high, xtol=1e-12))
    return np.array(biases)


def _huber_slope(b: float, r: np.ndarray, share: np.ndarray, delta: float) -> float:
    return float(share @ np.clip(b - r, -delta, delta))


def _logistic_slope(b: float, y: np.ndarray, z: np.ndarray, share: np.ndarray) -> float:
    return -float(share @ (y * expit(-y * (z + b))))


def _softmax_bias(program: Program, Z: np.ndarray) -> np.ndarray:
    share, Y = program.weight[:, None], program.Y

    def value_and_slope(b: np.ndarray) -> tuple[float, np.ndarray]:
        terms = logsumexp(Z + b, axis=1, keepdims=True) - np.sum(Y * (Z + b), axis=1, keepdims=True)
        slope = np.sum(share * (softmax(Z + b, axis=1) - Y), axis=0)
        return float(np.sum(share * terms)), slope

    b = -np.mean(Z, axis=0)
    for _ in range(3):  # restarts, since its estimate of the curvature may be outdated
        options = {"maxiter": 1000, "ftol": 0.0, "gtol": 1e-13}
        b = minimize(value_and_slope, b, jac=True, method="L-BFGS-B", options=options).x
    return b


# -- networks


@dataclass(frozen=True, eq=False)
class Scales:
    """Columns x' = (x - mean) / spread and targets of a program, whose network takes raw ones. With
    directions Q (d, k) its columns are x' Q instead."""

    mean: np.ndarray
    spread: np.ndarray
    target_mean: np.ndarray
    target_spread: np.ndarray
    directions: np.ndarray | None = None


@dataclass(frozen=True)
class NetworkValue:
    """What a network is worth in a program.

    objective : from above, with lam sum_j ||W1_j|| ||W2_j||_1, that of balanced layers.
    unmatched : how many neurons have a pattern that is not one of the program's. Rows on the edge
        of a half-space, up to rounding, match either way.
    size : sum_j ||W1_j|| ||W2_j||_1 in units of columns, from above.
    rounded : whether predictions and losses were rounded outward.
    """

    objective: float
    unmatched: int
    size: float
    rounded: bool = False


def network_value(
    network: TwoLayerNetwork, program: Program, scales: Scales | None = None
) -> NetworkValue:
    """The value of a network: with W1' = W1 o spread, or (W1 o spread) Q, and b1' = b1 + W1 mean it
    takes the program's rows, and its outputs less `target_mean`, over `target_spread`, are those of
    the program. A gated neuron is on where the pattern of its gate is."""
    layers = Layers.of(network, scales)
    if isinstance(network, GatedReLUNetwork):
        bits, unmatched = _gated_bits(network, program, layers)
    wrong, total = np.zeros((network.n_neurons, program.mask.shape[1])), Exact(0)
    for rows, pre in _pre_activations(program, layers.first, layers.shift):
        if isinstance(network, GatedReLUNetwork):
            on = bits[rows]
        else:
            on = pre.ints > 0
            wrong += wrong_rows(program, rows, pre.floats(), layers.first, layers.shift)
        Z = Exact(np.where(on, pre.ints, 0), pre.exponent) @ layers.second + layers.offset
        total = total + loss_above(program, Z, rows, layers.spread)
    if not isinstance(network, GatedReLUNetwork):
        unmatched = int(np.sum(wrong.min(axis=1) > 0))
    return layers.worth(program, total, unmatched)


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a network for scaled rows, exactly: outputs are (X first' + shift)_+ second +
    offset, over `spread`."""

    first: Exact  # (m, d)
    shift: Exact  # (m,)
    second: Exact  # (m, C)
    offset: Exact  # (C,)
    spread: Exact  # (C,)
    scales: Scales

    @classmethod
    def of(cls, network: TwoLayerNetwork, scales: Scales | None) -> Layers:
        if scales is None:
            m, C = network.n_features, network.n_outputs
            scales = Scales(np.zeros(m), np.ones(m), np.zeros(C), np.ones(C))
        first, shift = for_scaled_rows(network.W1, network.b1, scales)
        offset = -Exact.of(scales.target_mean)
        if network.b2 is not None:
            offset = offset + Exact.of(network.b2)
        spread = Exact.of(scales.target_spread)
        return cls(first, shift, Exact.of(network.W2), offset, spread, scales)

    def worth(self, program: Program, loss: Exact, unmatched: int) -> NetworkValue:
        """The value of the network, whose loss is at most this."""
        first, shift = self.first, self.shift
        norms = roots((first * first).sum(axis=1) + shift * shift, up=True)
        second = quotients(abs(self.second), self.spread, up=True).sum(axis=1)
        objective = (loss + Exact.of(program.lam) * (norms * second).sum()).above()
        units = np.append(program.units, 1.0)  # the last is that of the column of ones, if any
        d = first.ints.shape[1]
        first, shift = first * Exact.of(units[:d]), shift * Exact.of(units[d])
        size = roots((first * first).sum(axis=1) + shift * shift, up=True) * second
        return NetworkValue(objective, unmatched, size.sum().above())


def _gated_bits(
    network: GatedReLUNetwork, program: Program, layers: Layers
) -> tuple[np.ndarray, int]:
    """Where gated neurons are on, and how many of them match no pattern, by exact heights."""
    gates = for_scaled_rows(network.gates.T, network.gate_bias, layers.scales)
    some = ((rows, exact.floats()) for rows, exact in _pre_activations(program, *gates))
    return bits_of_gates(network, program, gates, some)


def bits_of_gates(
    network: GatedReLUNetwork,
    program: Program,
    gates: tuple[Exact, Exact],
    heights: Iterable[tuple[slice, np.ndarray]],
) -> tuple[np.ndarray, int]:
    """Where gated neurons are on, (n, m), and how many of them match no pattern of the program. A
    neuron is on where the pattern of its gate says so; of several patterns that match up to
    rounding, the closest counts. A neuron that matches none is on where its gate says so: where the
    heights, whose signs are right, are positive."""
    wrong = np.zeros((network.n_neurons, program.mask.shape[1]))
    unlike, bits = wrong.copy(), np.zeros((len(program.X), network.n_neurons), dtype=bool)
    for rows, some in heights:
        mask = program.mask[rows]
        wrong += wrong_rows(program, rows, some, *gates)
        bits[rows] = some > 0 if network.strict else some >= 0
        on = bits[rows].astype(float)
        unlike += on.T @ ~mask + (1 - on).T @ mask
    known = wrong.min(axis=1) == 0
    chosen = np.argmin(np.where(wrong > 0, np.inf, unlike), axis=1)
    return np.where(known, program.mask[:, chosen], bits), int(np.sum(~known))


def _pre_activations(program: Program, W: Exact, b: Exact) -> Iterator[tuple[slice, Exact]]:
    """X W' + b, some rows at a time."""
    m, d = W.ints.shape
    step = max(1, _ENTRIES // max(m, d))
    for start in range(0, len(program.X), step):
        rows = slice(start, start + step)
        yield rows, Exact.of(program.X[rows, :d]) @ W.T + b


def for_scaled_rows(W: np.ndarray, b: np.ndarray | None, scales: Scales) -> tuple[Exact, Exact]:
    """Weights (m, d) and intercepts (m,) for scaled rows, from those for raw rows."""
    weights = Exact.of(W)
    shift = (weights * Exact.of(scales.mean)).sum(axis=1)
    weights = weights * Exact.of(scales.spread)
    if scales.directions is not None:
        weights = weights @ Exact.of(scales.directions)
    return weights, shift if b is None else shift + Exact.of(b)


def wrong_rows(
    program: Program, rows: slice, heights: np.ndarray, weights: Exact, shift: Exact
) -> np.ndarray:
    """In how many rows each neuron differs from each pattern, beyond rounding: (m, p)."""
    W, b = np.abs(weights.floats()), np.abs(shift.floats())
    X, mask = np.abs(program.X[rows, : W.shape[1]]), program.mask[rows]
    with np.errstate(over="ignore", invalid="ignore"):
        edge = EDGE * (X @ W.T + b)
    edge = np.where(np.isfinite(edge), edge, 0.0)  # beyond doubles, the signs decide alone
    on, off = (heights > edge).astype(float), (heights < -edge).astype(float)
    return on.T @ ~mask + off.T @ mask
