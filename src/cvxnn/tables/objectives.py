"""What the objective of a network is at most, for claims about many rows: in floating point, with a
bound on every rounding error.

A check computes it in exact integers (`verification.programs.network_value`). That takes far longer
than training where rows are many, and a claim needs only a number that is not below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxnn.losses import make_loss
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.rounding import UNIT, Ball, gradual_underflow, slack, up
from cvxnn.verification.exact import Exact
from cvxnn.verification.programs import Program, Scales, for_scaled_rows, wrong_rows

COST = 1e-9  # of a claim that is made in floating point
_ENTRIES = 2**22  # of pre-activations held at a time


def objective_above(network: TwoLayerNetwork, program: Program, scales: Scales) -> float:
    """Not below the objective of a network in a program of scaled rows; infinite where floating
    point has no room for it, or rounding may cost more than a share of COST."""
    if not gradual_underflow():
        return np.inf
    first, shift = (_nearest(part) for part in for_scaled_rows(network.W1, network.b1, scales))
    offset = -Exact.of(scales.target_mean)
    if network.b2 is not None:
        offset = offset + Exact.of(network.b2)
    bits = _gated_bits(network, program, scales) if isinstance(network, GatedReLUNetwork) else None
    mid, rad = np.empty(program.Y.shape), np.empty(program.Y.shape)
    for rows in _pieces(len(program.X), network.n_neurons):
        inputs = _affine(program.X[rows, : first.mid.shape[1]], first, shift)
        if bits is None:  # a ReLU moves no two numbers further apart
            hidden = Ball(np.maximum(inputs.mid, 0.0), inputs.rad)
        else:
            hidden = Ball(*(np.where(bits[rows], part, 0.0) for part in (inputs.mid, inputs.rad)))
        outputs = _affine(hidden, Ball(network.W2.T), Ball(np.zeros(len(offset.ints))))
        scaled = (outputs + _nearest(offset)) / scales.target_spread
        mid[rows], rad[rows] = scaled.mid, scaled.rad
    delta = program.delta if program.loss == "huber" else None
    loss: Any = make_loss(program.loss, program.Y, huber_delta=delta)
    loss = loss.with_rows(program.Y, program.weight[:, None])  # which sum to 1 up to rounding
    second = up(np.abs(network.W2 / scales.target_spread).sum(axis=1), network.n_outputs + 1)
    sizes = up(_norms_above(first, shift) * second, 1)
    decay = up(program.lam * float(sizes.sum()), network.n_neurons + 1)
    found, at_least = (loss.value_above(Ball(mid, part)) + decay for part in (rad, 0 * rad))
    return up(found, 2) if found <= (1 + COST) * at_least else np.inf


def _nearest(numbers: Exact) -> Ball:
    """Exact numbers as doubles, which are the nearest ones but for underflow, and for what is below
    2^-890 of the largest."""
    mid = numbers.floats()
    lost = 2.0**-890 * np.max(np.abs(mid), initial=0.0) + 2.0**-1070
    return Ball(mid, 2 * UNIT * np.abs(mid) + lost)


def _norms_above(weights: Ball, shift: Ball) -> np.ndarray:
    """The norms of neurons, each in a unit of its own size, so that no square is out of range."""
    sizes = np.column_stack([weights.magnitude(), shift.magnitude()])
    units = np.ldexp(1.0, np.frexp(sizes.max(axis=1))[1])
    squares = (sizes / units[:, None]) ** 2
    return up(np.sqrt(squares.sum(axis=1)) * units, sizes.shape[1] + 3)


def _affine(X: np.ndarray | Ball, W: Ball, b: Ball) -> Ball:
    """X W' + b, whatever the order of the sums."""
    rows = X if isinstance(X, Ball) else Ball(X, 0.0)
    k = W.mid.shape[1] + 2
    radius = np.broadcast_to(rows.rad, rows.mid.shape)
    large = np.abs(W.mid.T) + np.broadcast_to(W.rad, W.mid.shape).T
    size = np.abs(rows.mid) @ large
    error = np.abs(rows.mid) @ np.broadcast_to(W.rad, W.mid.shape).T + radius @ large
    product = Ball(rows.mid @ W.mid.T, up(error + slack(k) * size, k))
    return product + b


def _pieces(n: int, width: int) -> list[slice]:
    step = max(1, _ENTRIES // max(width, 1))
    return [slice(start, start + step) for start in range(0, n, step)]


def _gated_bits(network: GatedReLUNetwork, program: Program, scales: Scales) -> np.ndarray:
    """Where gated neurons are on: as `verification.programs` decides it. Rows with a height whose
    sign floating point does not tell have theirs computed exactly."""
    exact = for_scaled_rows(network.gates.T, network.gate_bias, scales)
    gates, shift = (_nearest(part) for part in exact)
    wrong = np.zeros((network.n_neurons, program.mask.shape[1]))
    unlike, bits = wrong.copy(), np.zeros((len(program.X), network.n_neurons), dtype=bool)
    for rows in _pieces(len(program.X), network.n_neurons + program.mask.shape[1]):
        X = program.X[rows, : gates.mid.shape[1]]
        found = _affine(X, gates, shift)
        heights, unsure = found.mid, np.any(~(np.abs(found.mid) > found.rad), axis=1)
        if np.any(unsure):
            heights[unsure] = (Exact.of(X[unsure]) @ exact[0].T + exact[1]).floats()
        wrong += wrong_rows(program, rows, heights, gates.mid, shift.mid)
        bits[rows] = heights > 0 if network.strict else heights >= 0
        on, mask = bits[rows].astype(np.float64), program.mask[rows]
        unlike += on.T @ ~mask + (1 - on).T @ mask
    known = wrong.min(axis=1) == 0
    chosen = np.argmin(np.where(wrong > 0, np.inf, unlike), axis=1)
    return np.where(known, program.mask[:, chosen], bits)
