"""Values from above: never below the true value, and hardly above it, as mpmath has it."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from cvxnn.networks import GatedReLUNetwork, ReLUNetwork
from cvxnn.verification.exact import Exact
from cvxnn.verification.many_rows import rounded_value
from cvxnn.verification.programs import (
    LOSSES,
    Program,
    Scales,
    good_bias,
    loss_above,
    network_value,
    penalty_above,
)


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(150):
        yield


SCALES = (1e-8, 1.0, 1e8)


def targets(loss, rng, n, C):
    Y = rng.standard_normal((n, C))
    if loss == "logistic":
        return np.where(Y > 0, 1.0, -1.0)
    if loss == "softmax":
        Y = np.eye(C)[Y.argmax(axis=1)]
        Y[::3] = rng.dirichlet(np.ones(C), len(Y[::3]))  # rows that do not sum to one exactly
    return Y


def make_program(loss, seed=0, scale=1.0, offset=0.0, n=12, C=3, **settings):
    rng = np.random.default_rng(seed)
    weight = 10.0 ** rng.uniform(-6, 6, n) if seed else rng.uniform(0.5, 2, n)
    Y = targets(loss, rng, n, C)
    settings = {"lam": 0.1, "delta": 1.35, "output_bias": True} | settings
    return Program(
        X=scale * (rng.standard_normal((n, 4)) + offset),
        mask=rng.random((n, 5)) < 0.5,
        Y=scale * (Y + offset) if loss in ("squared", "huber") else Y,
        weight=weight / (weight.sum() * (1 if loss == "softmax" else C)),
        loss=loss,
        scope="a test",
        **settings,
    )


def true_loss(program, Z):
    """f at predictions in mpmath, by the formulas of the documentation."""
    total, delta = mpf(0), mpf(program.delta)
    for z, y, w in zip(Z, program.Y.tolist(), program.weight.tolist(), strict=True):
        if program.loss == "softmax":
            top = max(z)
            lse = top + mpmath.log(sum(mpmath.exp(a - top) for a in z))
            total += mpf(w) * sum(mpf(b) * (lse - a) for a, b in zip(z, y, strict=True))
            continue
        for a, b in zip(z, y, strict=True):
            r = abs(a - mpf(b))
            terms = {
                "squared": lambda r=r: r**2 / 2,
                "huber": lambda r=r: r**2 / 2 if r <= delta else delta * r - delta**2 / 2,
                "logistic": lambda a=a, b=b: mpmath.log1p(mpmath.exp(-mpf(b) * a)),
            }
            total += mpf(w) * terms[program.loss]()
    return total


def mp(array):
    return [[mpf(value) for value in row] for row in np.asarray(array).tolist()]


def is_just_above(found, true):
    assert true <= mpf(found) <= true * (1 + mpf(2) ** -51)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1e-9, 1.0, 50.0, 600.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_from_above(loss, size, seed):
    program = make_program(loss, seed)
    Z = size * np.random.default_rng(seed).standard_normal(program.Y.shape)
    if loss in ("squared", "huber"):
        Z = program.Y + Z  # residuals that would cancel
    is_just_above(loss_above(program, Exact.of(Z)).above(), true_loss(program, mp(Z)))
    parts = [loss_above(program, Exact.of(Z[rows]), rows) for rows in (slice(0, 5), slice(5, 99))]
    is_just_above((parts[0] + parts[1]).above(), true_loss(program, mp(Z)))


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1", "l2"])
def test_penalties_from_above(penalty):
    program = make_program("squared", penalty=penalty)
    U = np.random.default_rng(0).standard_normal((5, 4, 3)) * 10.0 ** np.arange(-2, 2)[:, None]
    U[2] = 0
    blocks = {"neuron": (1, None), "feature": ((0, 2), None), "l1": (None, 1), "l2": (None, 2)}
    squares = np.vectorize(lambda v: mpf(v) ** 2, otypes=[object])(U)
    axis, kind = blocks[penalty]
    if kind == 2:
        true = squares.sum() / 2
    elif kind == 1:
        true = sum(mpf(v) for v in np.abs(U).ravel().tolist())
    else:
        true = sum(mpmath.sqrt(v) for v in np.ravel(squares.sum(axis=axis)))
    is_just_above(penalty_above(program, U).above(), mpf(program.lam) * true)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("kind", ["relu", "gated"])
@pytest.mark.parametrize("loss", LOSSES)
def test_networks_from_above(loss, kind, offset):
    """A network of raw columns and targets, in the program of scaled ones."""
    program, rng = make_program(loss), np.random.default_rng(1)
    d, C, m = 3, 3, 5
    plain = loss in ("logistic", "softmax")
    scales = Scales(
        mean=offset + rng.standard_normal(d),
        spread=rng.uniform(0.1, 9, d),
        target_mean=np.zeros(C) if plain else offset + rng.standard_normal(C),
        target_spread=np.ones(C) if plain else rng.uniform(0.1, 9, C),
    )
    parts = {
        "W1": rng.standard_normal((m, d)),
        "W2": rng.standard_normal((m, C)),
        "b2": rng.standard_normal(C) + scales.target_mean,
    }
    parts["b1"] = rng.standard_normal(m) - parts["W1"] @ scales.mean
    gates, gate_bias = rng.standard_normal((d, m)), rng.standard_normal(m)
    if kind == "relu":
        network = ReLUNetwork(**parts)
    else:
        gate_bias = gate_bias - gates.T @ scales.mean
        network = GatedReLUNetwork(gates=gates, gate_bias=gate_bias, **parts)
    found = network_value(network, program, scales)
    Z, size = [], mpf(0)
    mean, spread = ([mpf(v) for v in a.tolist()] for a in (scales.mean, scales.spread))

    def raised(W, b):
        first = [mpf(w) * s for w, s in zip(W, spread, strict=True)]
        return first, mpf(b) + sum(mpf(w) * v for w, v in zip(W, mean, strict=True))

    neurons = [raised(W, b) for W, b in zip(network.W1, network.b1, strict=True)]
    switches = neurons
    if kind == "gated":
        switches = [raised(g, c) for g, c in zip(network.gates.T, network.gate_bias, strict=True)]
    for x in mp(program.X[:, :d]):
        pre = [sum(a * b for a, b in zip(f, x, strict=True)) + c for f, c in neurons]
        on = [sum(a * b for a, b in zip(f, x, strict=True)) + c > 0 for f, c in switches]
        Z.append(
            [
                (
                    sum(p * mpf(v) for p, v, o in zip(pre, network.W2[:, k], on, strict=True) if o)
                    + mpf(network.b2[k])
                    - mpf(scales.target_mean[k])
                )
                / mpf(scales.target_spread[k])
                for k in range(C)
            ]
        )
    units, sized = [mpf(u) for u in program.units.tolist()], mpf(0)
    for (first, shift), second in zip(neurons, network.W2, strict=True):
        ratio = zip(second, scales.target_spread, strict=True)
        second = sum(abs(mpf(a)) / mpf(b) for a, b in ratio)
        size += mpmath.sqrt(sum(a**2 for a in first) + shift**2) * second
        terms = zip([*first, shift], units, strict=True)
        sized += mpmath.sqrt(sum((a * u) ** 2 for a, u in terms)) * second
    assert found.unmatched == m  # no neuron has one of the random patterns
    is_just_above(found.objective, true_loss(program, Z) + mpf(program.lam) * size)
    is_just_above(found.size, sized)


@pytest.mark.parametrize("share", [1e-10, 1e-25, 1e-290])
@pytest.mark.parametrize("value", [network_value, rounded_value])
def test_tiny_rows_count_in_patterns(value, share):
    """The last row is off for the neuron, and on in the only pattern, however small it is."""
    X = np.array([[1.0, 1.0], [2.0, 0.5], [share, -2 * share]])
    program = plain_program(X, np.ones((3, 1), dtype=bool))
    layers = {"W1": np.ones((1, 2)), "W2": np.full((1, 1), 0.5)}
    assert value(ReLUNetwork(**layers), program).unmatched == 1
    gates = {"gates": np.ones((2, 1)), "gate_bias": np.zeros(1)}
    assert value(GatedReLUNetwork(**layers, **gates), program).unmatched == 1


@pytest.mark.parametrize("row", [1.0, 1e-25, 1e-290, 1e-300])
def test_a_gate_is_on_in_tiny_rows(row):
    """Not so in the only pattern: the neuron matches none, and its objective is its own."""
    X = np.array([[1.0, 0.0, 1.0], [2.0, 0.0, 1.0], [0.0, row, 1.0]])
    program = plain_program(X, np.array([[True], [True], [False]]))
    network = GatedReLUNetwork(
        W1=[[0.0, 0.0, -1.0]], W2=[[1.0]], gates=[[1.0], [1.0], [0.0]], gate_bias=[0.0], strict=True
    )
    value = network_value(network, program)
    assert value.unmatched == 1
    assert value.objective == pytest.approx(network.objective(X, program.Y, program.lam))


@pytest.mark.parametrize("size", [1.0, 1e100, 1e200, 1e250])
def test_heights_beyond_doubles_have_patterns(size):
    X = size * np.array([[1.0, 1.0], [2.0, 0.5], [0.1, -0.2]])
    for on, unmatched in (([1, 1, 1], 1), ([1, 1, 0], 0)):
        program = plain_program(X, np.array(on, dtype=bool)[:, None])
        network = GatedReLUNetwork(
            W1=np.ones((1, 2)) / size, W2=[[0.5]], gates=np.full((2, 1), size), gate_bias=[0.0]
        )
        assert network_value(network, program).unmatched == unmatched


def plain_program(X, mask):
    n = len(X)
    return Program(X, mask, np.ones((n, 1)), np.full(n, 1 / n), 0.01, "squared", "a test")


def test_rows_in_pieces_are_rows(monkeypatch):
    program = make_program("squared", n=40)
    rng = np.random.default_rng(0)
    network = ReLUNetwork(W1=rng.standard_normal((6, 3)), W2=rng.standard_normal((6, 3)))
    whole = network_value(network, program)
    monkeypatch.setattr("cvxnn.verification.programs._ENTRIES", 50)
    assert network_value(network, program) == whole


@pytest.mark.parametrize("loss", LOSSES)
def test_a_good_bias_is_good(loss):
    program = make_program(loss)
    Z = Exact.of(np.random.default_rng(0).standard_normal(program.Y.shape))
    bias = good_bias(program, Z, None)
    best = loss_above(program, Z + bias).above()
    for k in range(3):
        for step in (-1e-3, 1e-3):
            other = bias + Exact.of(step * np.eye(3)[k])
            assert loss_above(program, Z + other).above() >= best
    with pytest.raises(ValueError, match="output_bias must have shape"):
        good_bias(program, Z, np.zeros(2))


def test_row_weights_have_to_be_shares():
    program = make_program("squared")
    doubled = Program(**{**vars(program), "weight": 2 * program.weight})
    np.testing.assert_allclose(doubled.weight, program.weight, rtol=1e-12)
    slightly = Program(**{**vars(program), "weight": program.weight * (1 + 1e-12)})
    assert np.all(slightly.weight == program.weight * (1 + 1e-12))  # as they are stored
    with pytest.raises(ValueError, match="weights of rows must be positive"):
        Program(**{**vars(program), "weight": -program.weight})
