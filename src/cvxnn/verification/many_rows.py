"""What networks and predictions are worth where rows are many: rounded outward instead of exact.

Integers without rounding take longer than training once there are some ten thousand rows. Here a
product has an ulp of error (`limbs.py`), a logarithm a few (`logarithms.py`), and every error is
bounded, so that the numbers are still from the safe side. They are within some dozens of ulps of
the terms of a sum; where a claim is closer to the truth than that, exact integers decide
(`checks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.rounding import TINY, Ball, gradual_underflow, up
from cvxnn.verification.exact import Exact
from cvxnn.verification.limbs import ROWS, product, two_doubles
from cvxnn.verification.logarithms import log_of_sum_above
from cvxnn.verification.programs import (
    Layers,
    NetworkValue,
    Program,
    Scales,
    bits_of_gates,
    for_scaled_rows,
    network_value,
    wrong_rows,
    zero_bias,
    zero_objective_above,
)

FEW = 2**16  # entries, of activations for instance, for which exact integers take about a second


def is_large(program: Program, width: int = 0) -> bool:
    """Whether there are so many rows that numbers are rounded outward."""
    return len(program.X) * max(width, program.mask.shape[1]) > FEW


def value_of(
    network: TwoLayerNetwork, program: Program, scales: Scales | None = None
) -> NetworkValue:
    """The value of a network from above: exact where rows are few, or floating point has no room
    for the numbers, else rounded."""
    if is_large(program, network.n_neurons):
        found = rounded_value(network, program, scales)
        if math.isfinite(found.objective):
            return found
    return network_value(network, program, scales)


def zero_objective_of(program: Program) -> tuple[float, float]:
    """The same of `zero_objective_above`."""
    if not is_large(program):
        return zero_objective_above(program)
    bias, slack = zero_bias(program)
    value = rounded_loss(program, _nearest(bias) + np.zeros_like(program.Y))
    return (value, slack) if math.isfinite(value) else zero_objective_above(program)


@np.errstate(all="ignore")
def rounded_value(
    network: TwoLayerNetwork, program: Program, scales: Scales | None = None
) -> NetworkValue:
    """The same as `network_value`, rounded outward; infinite where there is no room for it."""
    layers = Layers.of(network, scales)
    if isinstance(network, GatedReLUNetwork):
        gates = for_scaled_rows(network.gates.T, network.gate_bias, layers.scales)
        some = ((rows, heights.mid) for rows, heights in _signed(program, *gates))
        bits, unmatched = bits_of_gates(network, program, gates, some)
    wrong, losses = np.zeros((network.n_neurons, program.mask.shape[1])), []
    second, size = layers.second, np.abs(layers.second.floats())
    offset, spread = _nearest(layers.offset), layers.scales.target_spread
    for rows, pre in _signed(program, layers.first, layers.shift):
        if isinstance(network, GatedReLUNetwork):
            hidden = Ball(*(np.where(bits[rows], part, 0.0) for part in (pre.mid, pre.rad)))
        else:  # a ReLU moves no two numbers further apart
            hidden = Ball(np.maximum(pre.mid, 0.0), pre.rad)
            wrong += wrong_rows(program, rows, pre.mid, layers.first, layers.shift)
        Z = product(hidden.mid, second)
        Z = Ball(Z.mid, up(Z.rad + hidden.rad @ size, network.n_neurons + 4) + TINY)
        losses.append(rounded_loss(program, (Z + offset) / spread, rows))
    if not isinstance(network, GatedReLUNetwork):
        unmatched = int(np.sum(wrong.min(axis=1) > 0))
    total = up(math.fsum(losses), 1)
    if not (math.isfinite(total) and gradual_underflow()):
        return NetworkValue(math.inf, unmatched, math.inf, rounded=True)
    return replace(layers.worth(program, Exact.of(total), unmatched), rounded=True)


def rounded_loss(program: Program, Z: Ball, rows: slice = slice(None)) -> float:
    """The part of f that belongs to some rows, from above, of predictions (n, C)."""
    weight, Y = program.weight[rows], program.Y[rows]
    if not (np.isfinite(Z.mid).all() and np.isfinite(Z.rad).all()):
        return math.inf
    if program.loss in ("squared", "huber"):
        R = (Z - Y).magnitude()
        terms = R * R
        if program.loss == "huber":
            terms = np.where(program.delta < R, program.delta * (2 * R - program.delta), terms)
        terms = up(terms, 3) / 2
    elif program.loss == "logistic":  # log(1 + exp(t)) = t_+ + log(1 + exp(-|t|)), t = -y z
        t = (Z * -Y).above()
        terms = up(np.maximum(t, 0.0) + log_of_sum_above(np.abs(t)[..., None]), 1)
    else:  # sum_k y_k (z_max - z_k) + s log sum_k exp(z_k - z_max), where z_max has the gap 0
        n, top = np.arange(len(Y)), Z.mid.argmax(axis=1)
        highest = Ball(Z.mid[n, top], np.asarray(Z.rad)[n, top]).reshape(-1, 1)
        gaps = highest - Z
        others = np.arange(Y.shape[1]) != top[:, None]
        logs = log_of_sum_above(gaps.below()[others].reshape(len(Y), -1))
        over = np.where(others, np.maximum(gaps.above(), 0.0), 0.0)
        terms = up((Y * over).sum(axis=1) + up(Y.sum(axis=1), Y.shape[1]) * logs, Y.shape[1] + 2)
        terms = terms[:, None]
    losses = up(weight * up(terms.sum(axis=1), Y.shape[1]), 2)
    return up(math.fsum(losses), 1) if np.isfinite(losses).all() else math.inf


def _signed(program: Program, W: Exact, b: Exact) -> Iterator[tuple[slice, Ball]]:
    """Pre-activations with the right signs: those that rounding leaves open are exact."""
    some = np.any(W.ints != 0, axis=1) | (b.ints != 0)  # heights of the other neurons are zero
    for rows, heights in _pre_activations(program, W, b):
        unclear = ~(np.abs(heights.mid) > heights.rad) & some
        open_ = np.flatnonzero(unclear.any(axis=1))
        if len(open_):
            X = program.X[rows][open_, : W.ints.shape[1]]
            heights.mid[open_] = (Exact.of(X) @ W.T + b).floats()
        yield rows, heights


def _pre_activations(program: Program, W: Exact, b: Exact) -> Iterator[tuple[slice, Ball]]:
    """X W' + b, some rows at a time."""
    d = W.ints.shape[1]
    base = min(W.exponent, b.exponent)
    weights = Exact(np.vstack([W.T.at(base), b.at(base)[None]]), base)
    for start in range(0, len(program.X), ROWS):
        rows = slice(start, start + ROWS)
        X = program.X[rows, :d]
        yield rows, product(np.hstack([X, np.ones((len(X), 1))]), weights)


def _nearest(numbers: Exact) -> Ball:
    hi, lo = two_doubles(numbers)
    return Ball(hi, up(np.abs(lo), 4))
