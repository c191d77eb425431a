"""From neurons to patterns and weights of the convex program, and back.

A neuron w of the network is a point of the cell of directions with its pattern, and the neurons
that matter lie on the boundary of theirs, where some rows have a pre-activation of zero. Which of
the cells around such a point it is counted to makes no difference to it, but every cone should
have an interior, with its gate in there: neurons on a boundary have a gate next to them.
"""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import Matrix, blocks, row_squares
from cvxnn.bits import Bits
from cvxnn.bounds.base import Neurons, Units
from cvxnn.networks import ReLUNetwork
from cvxnn.patterns import Patterns, activation_bits
from cvxnn.problems import CReLU

TIE = 1e-8  # a pre-activation below this, in units of both norms, is at a kink
ASIDE = 1e-6  # how far from such a neuron its gate is
TRIALS = 8  # of gates without a tie
ROWS = 4096  # in a block


def no_units(d: int) -> Units:
    return Units(np.zeros((0, d)), np.zeros(0, dtype=np.intp), np.zeros(0))


def units_of(problem: CReLU, U: np.ndarray) -> Units:
    """The neurons of convex weights (2p, d, C), in the units of the problem."""
    block, k = np.nonzero(np.any(U != 0, axis=1))
    return Units(U[block, :, k], k, np.where(block < len(problem.patterns), 1.0, -1.0))


def starts_of(units: Units) -> Neurons:
    """Neurons as starts of a search: the price of one that adds to its output is negative."""
    norms = np.linalg.norm(units.W, axis=1)
    directions = units.W / np.where(norms > 0, norms, 1.0)[:, None]
    return Neurons(directions, units.classes, -units.signs)


def network_of(problem: CReLU, units: Units, output_bias: np.ndarray | None) -> ReLUNetwork:
    """The network for the raw X."""
    V, W = np.zeros((2, *units.W.shape, problem.weight_shape[2]))
    for part, which in ((V, units.signs > 0), (W, units.signs < 0)):
        chosen = np.flatnonzero(which)
        part[chosen, :, units.classes[chosen]] = units.W[chosen] / problem.column_scale
    return ReLUNetwork.from_convex(
        V, W, bias=problem.bias, b2=output_bias, flat_output=problem.flat_targets
    )


def gates_near(X: Matrix, W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors (m, d) in the direction of W, or next to it where rows tie."""
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    centre = W / np.where(norms > 0, norms, 1.0)
    gates = centre.copy()
    sizes = np.sqrt(row_squares(X))
    sizes = np.where(sizes > 0, sizes, np.inf)  # rows of zeros never change sides
    tied = np.arange(len(W))
    for _ in range(TRIALS):
        tied = tied[_least_residuals(X, sizes, gates[tied]) < TIE]
        if len(tied) == 0:
            break
        aside = rng.standard_normal((len(tied), W.shape[1]))
        aside *= ASIDE / np.linalg.norm(aside, axis=1, keepdims=True)
        gates[tied] = centre[tied] + aside
    return gates


def _least_residuals(X: Matrix, sizes: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """How close each gate comes to a row, in units of their norms."""
    least = np.full(len(gates), np.inf)
    for rows in blocks(X.shape[0], ROWS):
        with np.errstate(invalid="ignore"):
            residual = np.abs(X[rows] @ gates.T) / sizes[rows, None]
        residual[np.isinf(sizes[rows])] = np.inf
        least = np.minimum(least, residual.min(axis=0, initial=np.inf))
    return least


def patterns_of(problem: CReLU, gates: np.ndarray) -> Patterns | None:
    """The distinct patterns of gates (m, d) in the units of the problem; None if they are on for no
    row."""
    X, strict = problem.operator_double.rows(), problem.patterns.strict
    bits = activation_bits(X, np.ascontiguousarray(gates.T), np.zeros(len(gates)), strict)
    keep, _ = bits.distinct()
    return _with_gates(problem, bits.select(keep), gates[keep]) if len(keep) else None


def _with_gates(problem: CReLU, bits: Bits, gates: np.ndarray) -> Patterns:
    """Patterns with gates in the units of the raw X."""
    raw = gates / problem.column_scale
    if problem.bias:
        return Patterns(bits, raw[:, :-1].T, raw[:, -1], problem.patterns.strict)
    return Patterns(bits, raw.T, None, problem.patterns.strict)


def over_units(problem: CReLU, units: Units, rng: np.random.Generator) -> tuple[CReLU, np.ndarray]:
    """The problem over its own patterns and those of these neurons, and the neurons as its weights
    (2p, d, C), feasible."""
    X, strict = problem.operator_double.rows(), problem.patterns.strict
    gates = gates_near(X, units.W, rng)
    found = patterns_of(problem, gates)
    patterns = problem.patterns if found is None else problem.patterns.join(found)
    other = problem.with_patterns(patterns)
    place = {key: i for i, key in enumerate(other.patterns.bits.keys())}
    bits = activation_bits(X, np.ascontiguousarray(gates.T), np.zeros(len(gates)), strict)
    U, p = np.zeros(other.weight_shape), len(other.patterns)
    for j, key in enumerate(bits.keys()):
        i = place.get(key)  # none for neurons that are on for no row
        if i is not None:
            U[i + (p if units.signs[j] < 0 else 0), :, units.classes[j]] += units.W[j]
    return other, other.make_feasible(U)[0]


def consolidated(problem: CReLU, U: np.ndarray, cosine: float) -> np.ndarray:
    """Weights (2p, d, C) in fewer blocks: those that point in nearly the same direction as a longer
    one of their class and sign are added to it. Neurons on the common boundary of some cones may be
    shared out among them in any way, and solvers leave them in all."""
    merged, p = np.zeros_like(U), len(problem.patterns)
    for half in (slice(0, p), slice(p, 2 * p)):
        for k in range(U.shape[2]):
            W = U[half, :, k]
            norms = np.linalg.norm(W, axis=1)
            order = np.argsort(-norms, kind="stable")[: np.count_nonzero(norms)]
            units = W[order] / norms[order, None]
            near, free = units @ units.T > cosine, np.ones(len(order), dtype=bool)
            for i, block in enumerate(order.tolist()):
                if free[i]:
                    joined = near[i] & free
                    merged[half][block, :, k] = W[order[joined]].sum(axis=0)
                    free &= ~joined
    return problem.make_feasible(merged)[0]
