"""Values of many rows, rounded outward: never below those in exact integers, and close."""

import dataclasses

import numpy as np
import pytest

import cvxnn
from cvxnn.networks import GatedReLUNetwork, ReLUNetwork
from cvxnn.verification import limbs, many_rows
from cvxnn.verification.many_rows import rounded_value, value_of
from cvxnn.verification.programs import Program, Scales, network_value


def table_of(trial):
    """Columns of very different sizes and offsets, and targets of three kinds."""
    rng = np.random.default_rng(trial)
    n, d = int(rng.integers(20, 120)), int(rng.integers(1, 5))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-6, 7, d)
    X += 10.0 ** rng.integers(-3, 7, d) * rng.integers(0, 2, d)
    z = np.maximum(X[:, 0] - X[:, 0].mean(), 0) / X[:, 0].std()
    noisy = z + 0.4 * rng.standard_normal(n)
    targets = {
        0: z * 10.0 ** rng.integers(-8, 8) + rng.integers(0, 2) * 1e6,
        1: np.where(noisy > 0.3, "a", "b").astype(object),
        2: np.array(["p", "q", "r"], dtype=object)[np.digitize(noisy, [0.1, 0.6])],
    }
    columns = {f"x{k}": X[:, k] for k in range(d)} | {"y": targets[trial % 3]}
    settings = {"alpha": 10.0 ** rng.uniform(-4, -1), "n_patterns": 15, "holdout": 0, "tol": 1e-3}
    settings["task"] = "regression" if trial % 3 == 0 else "classification"
    settings["kind"] = ("relu", "gated")[trial // 3 % 2]
    settings["use"] = [f"x{k}" for k in range(d)]
    if trial % 3 == 0 and trial % 2:
        settings["loss"] = "huber"
    if trial % 5 == 0:
        settings["n_components"] = 1
    return cvxnn.Table(columns, "t"), settings


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", range(18))
def test_the_bound_is_above_the_exact_value_and_close_to_it(trial):
    table, settings = table_of(trial)
    model = cvxnn.Model.fit(table, "y", **settings)
    posed = model._posed(table)
    exact = network_value(model.network, posed.program, posed.scales).objective
    found = rounded_value(model.network, posed.program, posed.scales).objective
    assert exact <= found <= exact * (1 + 1e-11) + 1e-300


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", range(8))
def test_claims_about_many_rows_are_confirmed_by_either_way(trial, monkeypatch):
    table, settings = table_of(trial)
    exactly = cvxnn.Model.fit(table, "y", **settings)
    monkeypatch.setattr(many_rows, "FEW", 0)
    model = cvxnn.Model.fit(table, "y", **settings)
    assert exactly.certificate.objective <= model.certificate.objective
    assert model.certificate.objective <= exactly.certificate.objective * (1 + 1e-11)
    found = model.verify(table)
    assert found.agrees
    assert sum("rounded outward" in text for text in found.checked) == 2
    # a claim that is as close as exact integers allow is not told false by rounding
    assert exactly.verify(table).agrees
    monkeypatch.setattr(many_rows, "FEW", 2**16)
    again = model.verify(table)
    assert again.agrees
    assert not any("rounded" in text for text in again.checked)
    assert found.lower_bound <= again.lower_bound <= found.lower_bound * (1 + 1e-11) + 1e-300


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", [0, 1, 2])
@pytest.mark.parametrize("claim", ["objective", "lower_bound", "zero_objective"])
def test_false_claims_about_many_rows_are_not_confirmed(claim, trial, monkeypatch):
    monkeypatch.setattr(many_rows, "FEW", 0)
    table, settings = table_of(trial)
    model = cvxnn.Model.fit(table, "y", **settings)
    true = getattr(model.certificate, claim)
    false = true * (1 - 1e-9 if claim == "objective" else 1 + 1e-2)
    model.estimator.certificate_ = dataclasses.replace(model.certificate, **{claim: false})
    assert any(text.startswith(claim) for text in model.verify(table).differences)


@pytest.mark.filterwarnings("ignore")
def test_what_floating_point_has_no_room_for_is_computed_exactly(monkeypatch):
    table, settings = table_of(1)
    exactly = cvxnn.Model.fit(table, "y", **settings).certificate.objective
    monkeypatch.setattr(many_rows, "FEW", 0)
    monkeypatch.setattr(limbs, "_ROOM", -1)
    assert cvxnn.Model.fit(table, "y", **settings).certificate.objective == exactly


def program_of(X, mask, **settings):
    n = len(X)
    Y = np.random.default_rng(1).standard_normal((n, 1))
    settings = {"weight": np.full(n, 1 / n), "lam": 1.0, "loss": "squared"} | settings
    return Program(X=np.hstack([X, np.ones((n, 1))]), mask=mask, Y=Y, scope="", **settings)


def relu_network(first, second):
    W1, W2 = np.array(first), np.array(second)[:, None]
    return ReLUNetwork(W1=W1, W2=W2, b1=np.zeros(2), b2=np.zeros(1))


def small_rows():
    return np.random.default_rng(0).standard_normal((20, 2))


@pytest.mark.parametrize("spread", [1e-290, 1e-150, 1e-55, 1e55, 1e150])
def test_sizes_of_neurons_are_bounded_or_left_to_exact_integers(spread):
    network = relu_network([[1.0, 2.0], [-1.0, 0.5]], [1.0, -1.0])
    scales = Scales(np.zeros(2), np.full(2, spread), np.zeros(1), np.full(1, spread))
    program = program_of(small_rows(), np.ones((20, 1), dtype=bool))
    exact = network_value(network, program, scales).objective
    found = rounded_value(network, program, scales).objective
    if spread in (1e-55, 1e55):
        assert exact <= found <= exact * (1 + 1e-11)
    else:
        assert found == np.inf
        assert value_of(network, program, scales).objective == exact


@pytest.mark.parametrize("factor", [1 - 9e-10, 1 + 9e-10, 1 + 1e-15])
def test_row_weights_count_as_they_are(factor):
    network = relu_network([[1.0, 2.0], [-1.0, 0.5]], [1.0, -1.0])
    scales = Scales(np.zeros(2), np.ones(2), np.zeros(1), np.ones(1))
    weight, mask = np.full(20, factor / 20), np.ones((20, 1), dtype=bool)
    program = program_of(small_rows(), mask, weight=weight, lam=1e-8)
    exact = network_value(network, program, scales).objective
    assert exact <= rounded_value(network, program, scales).objective <= exact * (1 + 1e-11)


@pytest.mark.parametrize("size", [1e30, 1e100, 1e200])
def test_neurons_of_very_different_sizes_get_a_good_bound_or_none(size):
    network = relu_network([[size, 0.0], [0.0, 1e-40]], [1 / size, 1e40])
    scales = Scales(np.zeros(2), np.ones(2), np.zeros(1), np.ones(1))
    program = program_of(small_rows(), np.ones((20, 1), dtype=bool), lam=1e-3)
    exact = network_value(network, program, scales).objective
    with np.errstate(all="ignore"):
        found = rounded_value(network, program, scales).objective
    assert exact <= found
    assert found <= exact * (1 + 1e-8) or found == np.inf
    assert (found == np.inf) == (size > 1e30)


def test_gates_that_go_through_a_row_choose_the_pattern_that_a_check_chooses():
    unlike = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, mean, spread = rng.standard_normal((12, 1)), rng.standard_normal(1), rng.random(1)
        gates = rng.standard_normal((1, 1))
        bias = -(gates[0] * spread * X[3] + gates[0] * mean)
        on = (X[3] < X) == (gates[0] > 0)
        mask = np.hstack([on, on])
        mask[3] = True, False  # both match up to rounding
        network = GatedReLUNetwork(
            W1=np.ones((1, 1)),
            W2=np.ones((1, 1)),
            b1=np.full(1, 3.0),
            b2=np.zeros(1),
            gates=gates,
            gate_bias=bias,
        )
        program, scales = program_of(X, mask), Scales(mean, spread, np.zeros(1), np.ones(1))
        exact = network_value(network, program, scales).objective
        assert exact <= rounded_value(network, program, scales).objective <= exact * (1 + 1e-11)
        heights = X @ (gates * spread).T + (gates[0] * mean + bias)
        unlike += not heights[3, 0]
    assert unlike > 10  # of which floating point alone says nothing
