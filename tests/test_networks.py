"""Gated networks and the maps between them and convex weights, both ways."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxnn
from cvxnn import CGReLU, GatedReLUNetwork, Patterns, sample_patterns, solve
from extras import optional

torch = optional("torch")

quick = settings(max_examples=40, deadline=None, derandomize=True)
LAM = 0.03
cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "C": st.integers(1, 3),
        "bias": st.booleans(),
        "strict": st.booleans(),
        "sparsity": st.floats(0, 0.9),
    }
)


def make_case(seed=0, C=1, bias=False, strict=False, sparsity=0.5, n=25, d=3, p=12):
    """Data, targets, patterns and random weights, some of whose blocks are zero."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, C))
    patterns = sample_patterns(X, p, bias=bias, strict=strict, random_state=rng)
    U = rng.standard_normal((len(patterns), d + bias, C))
    U *= rng.random((len(patterns), 1, C)) >= sparsity
    U[0, 0, 0] = 1.0  # never the zero model
    return X, Y, patterns, U


def convex_fit(X, mask, U):
    """sum_i D_i X U_i in plain NumPy; weights with one row more carry the intercepts."""
    if U.shape[1] > X.shape[1]:
        X = np.column_stack([X, np.ones(len(X))])
    return np.einsum("ji,jd,idk->jk", mask, X, U)


def convex_objective(X, Y, mask, U, lam):
    loss = np.mean((convex_fit(X, mask, U) - Y) ** 2) / 2
    return loss + lam * np.linalg.norm(U, axis=1).sum()


def network_objective(network, X, Y, lam):
    """NC-GReLU by its definition, neuron by neuron."""
    Z, decay = np.zeros((len(X), network.n_outputs)), 0.0
    for j in range(network.n_neurons):
        gate = X @ network.gates[:, j] + network.gate_bias[j]
        on = gate > 0 if network.strict else gate >= 0
        b = 0.0 if network.b1 is None else network.b1[j]
        Z += np.outer(on * (X @ network.W1[j] + b), network.W2[j])
        decay += np.sum(network.W1[j] ** 2) + b**2 + np.abs(network.W2[j]).sum() ** 2
    Z += 0.0 if network.b2 is None else network.b2  # free
    return np.mean((Z - Y) ** 2) / 2 + lam / 2 * decay


def random_network(seed=0, m=8, d=3, C=2, bias=True, n_gates=None, b2=None):
    """Neurons with dense second layers; with fewer gates than neurons, some share a pattern."""
    rng = np.random.default_rng(seed)
    gates, gate_bias = rng.standard_normal((d, m)), rng.standard_normal(m)
    shared = np.arange(m) % (n_gates or m)
    return GatedReLUNetwork(
        gates=gates[:, shared],
        gate_bias=gate_bias[shared],
        W1=rng.standard_normal((m, d)),
        b1=rng.standard_normal(m) if bias else None,
        W2=rng.standard_normal((m, C)),
        b2=b2,
    )


# --------------------------------------------------------------- convex -> network -> convex


@quick
@given(case=cases)
def test_the_way_to_a_network_and_back_keeps_predictions_and_value(case):
    X, Y, patterns, U = make_case(**case)
    network = GatedReLUNetwork.from_convex(patterns, U, bias=case["bias"])
    fit = convex_fit(X, patterns.mask, U)
    value = convex_objective(X, Y, patterns.mask, U, LAM)

    assert network.n_neurons == np.count_nonzero(U.any(axis=1))
    np.testing.assert_allclose(network.predict(X), fit, atol=1e-10)
    assert network.objective(X, Y, LAM) == pytest.approx(value, rel=1e-10)
    assert network_objective(network, X, Y, LAM) == pytest.approx(value, rel=1e-10)

    back, V = network.to_convex(X)
    np.testing.assert_allclose(convex_fit(X, back.mask, V), fit, atol=1e-10)
    assert convex_objective(X, Y, back.mask, V, LAM) == pytest.approx(value, rel=1e-10)
    assert back.strict == patterns.strict
    live = np.flatnonzero(U.any(axis=(1, 2)))
    np.testing.assert_array_equal(back.mask, patterns.mask[:, live])
    np.testing.assert_array_equal(back.gates, patterns.gates[:, live])
    np.testing.assert_allclose(V, U[live], atol=1e-12)


@pytest.mark.parametrize("weights", [None, [1.0, 0.0, 3.0]])
@pytest.mark.parametrize("kind", ["gated", "relu"])
def test_the_mean_of_networks_is_one_network(kind, weights):
    X = np.random.default_rng(1).standard_normal((20, 3))
    networks = [
        random_network(seed, m=seed + 2, bias=seed > 0, b2=[0.5, seed] if seed < 2 else None)
        for seed in range(3)
    ]
    if kind == "relu":
        networks = [cvxnn.ReLUNetwork(W1=n.W1, b1=n.b1, W2=n.W2, b2=n.b2) for n in networks]
    mean = type(networks[0]).mean(networks, weights)
    assert mean.n_neurons == 2 + 3 + 4
    outputs = [network.predict(X) for network in networks]
    np.testing.assert_allclose(mean.predict(X), np.average(outputs, axis=0, weights=weights))


def test_networks_that_differ_have_no_mean():
    network = random_network()
    with pytest.raises(ValueError, match="have no mean"):
        GatedReLUNetwork.mean([network, random_network(C=1)])
    with pytest.raises(ValueError, match="have no mean"):
        GatedReLUNetwork.mean([network, dataclasses.replace(network, strict=True)])
    with pytest.raises(TypeError, match="must be of the kind GatedReLUNetwork"):
        GatedReLUNetwork.mean([])
    with pytest.raises(TypeError, match="must be of the kind ReLUNetwork"):
        cvxnn.ReLUNetwork.mean([network])
    for weights in ([-1.0, 2.0], [0.0, 0.0]):
        with pytest.raises(ValueError, match="weights must not be negative"):
            GatedReLUNetwork.mean([network, network], weights)


@quick
@given(seed=st.integers(0, 2**32), C=st.integers(1, 3), bias=st.booleans())
def test_any_network_has_convex_weights_of_no_higher_value(seed, C, bias):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((20, 3)), rng.standard_normal((20, C))
    network = random_network(seed, m=9, C=C, bias=bias, n_gates=4)
    patterns, U = network.to_convex(X)
    assert len(patterns) <= 4
    np.testing.assert_allclose(convex_fit(X, patterns.mask, U), network.predict(X), atol=1e-10)
    value = convex_objective(X, Y, patterns.mask, U, LAM)
    assert value <= network.objective(X, Y, LAM) * (1 + 1e-12)
    again = GatedReLUNetwork.from_convex(patterns, U, bias=bias)
    np.testing.assert_allclose(again.predict(X), network.predict(X), atol=1e-10)
    assert again.objective(X, Y, LAM) == pytest.approx(value, rel=1e-10)


def test_neurons_whose_gates_differ_but_switch_alike_are_summed():
    X = np.random.default_rng(0).standard_normal((10, 2))
    network = GatedReLUNetwork(
        gates=np.array([[1.0, 2.0, 1.0 + 1e-12, -1.0], [0.5, 1.0, 0.5, -0.5]]),
        gate_bias=np.zeros(4),
        W1=np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [1.0, 1.0]]),
        b1=None,
        W2=np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0], [1.0, 1.0]]),
    )
    patterns, U = network.to_convex(X)
    assert len(patterns) == 2
    np.testing.assert_array_equal(patterns.gates, network.gates[:, [0, 3]])
    np.testing.assert_allclose(U[0], [[1.0, 6.0], [1.0, 0.0]])  # W1' W2 of the first three
    np.testing.assert_allclose(U[1], np.ones((2, 2)))


def test_collinear_balanced_neurons_are_merged_at_equal_value():
    X, Y, patterns, U = make_case(seed=3)
    single = GatedReLUNetwork.from_convex(patterns, U)
    halves = GatedReLUNetwork(  # each neuron twice, with half its output
        gates=np.repeat(single.gates, 2, axis=1),
        gate_bias=np.repeat(single.gate_bias, 2),
        W1=np.repeat(single.W1, 2, axis=0) / np.sqrt(2),
        b1=None,
        W2=np.repeat(single.W2, 2, axis=0) / np.sqrt(2),
    )
    value = single.objective(X, Y, LAM)
    assert halves.objective(X, Y, LAM) == pytest.approx(value, rel=1e-12)
    merged, V = halves.to_convex(X)
    assert len(merged) == single.n_neurons
    assert convex_objective(X, Y, merged.mask, V, LAM) == pytest.approx(value, rel=1e-12)


def test_neurons_that_cancel_are_merged_at_a_lower_value():
    X, Y, patterns, U = make_case(seed=3)
    single = GatedReLUNetwork.from_convex(patterns, U)
    cancelling = GatedReLUNetwork(
        gates=np.repeat(single.gates, 2, axis=1),
        gate_bias=np.repeat(single.gate_bias, 2),
        W1=np.repeat(single.W1, 2, axis=0),
        b1=None,
        W2=np.stack([2 * single.W2, -single.W2], axis=1).reshape(-1, 1),
    )
    np.testing.assert_allclose(cancelling.predict(X), single.predict(X), atol=1e-12)
    merged, V = cancelling.to_convex(X)
    value = convex_objective(X, Y, merged.mask, V, LAM)
    assert value == pytest.approx(single.objective(X, Y, LAM), rel=1e-12)
    assert value < cancelling.objective(X, Y, LAM) - 1e-3


def test_neurons_that_are_on_nowhere_drop_out():
    X = np.abs(np.random.default_rng(0).standard_normal((10, 2)))

    def network(*gates):
        m = len(gates)
        layers = {"W1": np.ones((m, 2)), "b1": None, "W2": np.ones((m, 2))}
        return GatedReLUNetwork(gates=np.column_stack(gates), gate_bias=np.zeros(m), **layers)

    half_asleep = network([1.0, 1.0], [-1.0, -1.0])
    patterns, U = half_asleep.to_convex(X)
    np.testing.assert_array_equal(patterns.gates, [[1.0], [1.0]])
    np.testing.assert_allclose(convex_fit(X, patterns.mask, U), half_asleep.predict(X), atol=1e-12)
    with pytest.raises(ValueError, match="no neuron of this network is on for any row of X"):
        network([-1.0, -1.0]).to_convex(X)


# ------------------------------------------------------------------- problems and networks


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_network_and_problem_have_one_objective(C, bias):
    X, Y, patterns, U = make_case(C=C, bias=bias)
    problem = CGReLU(X, Y, patterns, lam=LAM, bias=bias)
    network = problem.network(U)
    assert network.objective(X, Y, LAM) == pytest.approx(problem.objective(U), rel=1e-12)
    solution = solve(problem, tol=1e-6)
    certified = solution.certificate.objective
    assert solution.network().objective(X, Y, LAM) == pytest.approx(certified, rel=1e-10)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_with_normalize_predictions_are_in_raw_units_and_the_value_in_unit_columns(C, bias):
    X, Y, _, _ = make_case(C=C)
    X = X * [1.0, 1e3, 1e-3] + [0.0, 5e2, 0.0]
    patterns = sample_patterns(X, 12, bias=bias, normalize=True, random_state=0)
    problem = CGReLU(X, Y, patterns, lam=LAM, bias=bias, normalize=True)
    U = np.random.default_rng(1).standard_normal(problem.weight_shape)

    design = np.column_stack([X, np.ones(len(X))]) if bias else X
    norms = np.linalg.norm(design, axis=0)
    fit = np.einsum("ji,jd,idk->jk", patterns.mask, design / norms, U)
    np.testing.assert_allclose(problem.network(U).predict(X), fit, atol=1e-10)

    # on the unit columns the intercept is a feature like the others, and so is the gates' bias
    gates = np.vstack([patterns.gates, patterns.gate_bias]) if bias else patterns.gates
    on_unit_columns = Patterns.from_mask(patterns.mask, gates * norms[:, None])
    network = GatedReLUNetwork.from_convex(on_unit_columns, U)
    value = np.mean((fit - Y) ** 2) / 2 + LAM * np.linalg.norm(U, axis=1).sum()
    assert problem.objective(U) == pytest.approx(value, rel=1e-12)
    assert network.objective(design / norms, Y, LAM) == pytest.approx(value, rel=1e-12)


def test_new_rows_are_switched_by_the_gates():
    _, _, patterns, U = make_case(seed=5, C=2, bias=True)
    network = GatedReLUNetwork.from_convex(patterns, U, bias=True)
    new = np.random.default_rng(9).standard_normal((40, 3))
    mask = new @ patterns.gates + patterns.gate_bias >= 0
    np.testing.assert_allclose(network.predict(new), convex_fit(new, mask, U), atol=1e-10)


@pytest.mark.parametrize(("strict", "expected"), [(False, 2.0), (True, 0.0)])
def test_a_row_that_ties_is_on_unless_strict(strict, expected):
    network = GatedReLUNetwork(
        gates=[[1.0], [-1.0]], gate_bias=[0.0], W1=[[1.0, 1.0]], b1=None, W2=[[1.0]], strict=strict
    )
    assert network.predict([[1.0, 1.0]]).item() == expected
    assert network.predict([[2.0, 1.0]]).item() == 3.0


def test_predictions_have_the_shape_of_the_targets():
    X, Y, patterns, _ = make_case()
    flat = solve(CGReLU(X, Y[:, 0], patterns, lam=LAM)).network()
    column = solve(CGReLU(X, Y, patterns, lam=LAM)).network()
    assert flat.predict(X).shape == (25,)
    assert column.predict(X).shape == (25, 1)
    assert flat.predict(X[:1]).shape == (1,)
    np.testing.assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    assert flat.balanced().predict(X).shape == (25,)
    assert flat.objective(X, Y[:, 0], LAM) == column.objective(X, Y, LAM)


def test_the_zero_model_is_a_network_without_neurons():
    X, Y, patterns, U = make_case(C=2, bias=True)
    zero = GatedReLUNetwork.from_convex(patterns, 0 * U, bias=True)
    assert (zero.n_neurons, zero.n_features, zero.n_outputs) == (0, 3, 2)
    np.testing.assert_array_equal(zero.predict(X), np.zeros((25, 2)))
    assert zero.objective(X, Y, LAM) == pytest.approx(np.mean(Y**2) / 2, rel=1e-14)
    assert zero.balanced().n_neurons == 0
    with pytest.raises(ValueError, match="no neuron of this network is on"):
        zero.to_convex(X)


def test_predict_goes_in_blocks(monkeypatch):
    X, _, patterns, U = make_case(C=2)
    network = GatedReLUNetwork.from_convex(patterns, U)
    expected = network.predict(X)
    monkeypatch.setattr(cvxnn.networks, "_BLOCK", 20)
    np.testing.assert_allclose(network.predict(X), expected, atol=1e-14)


def test_networks_of_torch_problems_are_plain_numpy():
    X, Y, patterns, _ = make_case()
    network = solve(CGReLU(torch.asarray(X), Y, patterns, lam=LAM)).network()
    for array in (network.gates, network.W1, network.W2, network.predict(torch.asarray(X))):
        assert type(array) is np.ndarray
        assert array.dtype == np.float64


def test_networks_of_float32_problems_predict_in_float64():
    X, Y, patterns, _ = make_case()
    network = solve(CGReLU(X.astype(np.float32), Y, patterns, lam=LAM)).network()
    assert network.W1.dtype == network.predict(X.astype(np.float32)).dtype == np.float64


# ----------------------------------------------------------------------------- output bias


def test_an_output_bias_moves_predictions_and_is_not_penalised():
    X, Y, _, _ = make_case(C=2)
    b2 = np.array([3.0, -1.0])
    plain, biased = random_network(), random_network(b2=b2)
    np.testing.assert_allclose(biased.predict(X), plain.predict(X) + b2, rtol=1e-14)
    value = network_objective(biased, X, Y, LAM)
    assert biased.objective(X, Y, LAM) == pytest.approx(value, rel=1e-12)
    assert biased.objective(X, Y + b2, LAM) == pytest.approx(plain.objective(X, Y, LAM))


@pytest.mark.parametrize("bias", [False, True])
def test_an_output_bias_goes_beside_the_convex_weights(bias):
    X, _, patterns, U = make_case(C=2, bias=bias)
    b2 = np.array([1.0, 2.0])
    network = GatedReLUNetwork.from_convex(patterns, U, bias=bias, b2=b2)
    fit = convex_fit(X, patterns.mask, U)
    np.testing.assert_allclose(network.predict(X), fit + b2, atol=1e-10)
    back, V = network.to_convex(X)
    np.testing.assert_allclose(convex_fit(X, back.mask, V), fit, atol=1e-10)
    with pytest.raises(ValueError, match=r"^b2 must have shape \(2,\), got \(1,\)"):
        GatedReLUNetwork.from_convex(patterns, U, bias=bias, b2=[1.0])


def test_without_neurons_the_output_bias_is_left():
    X, Y, patterns, U = make_case(C=2)
    constant = GatedReLUNetwork.from_convex(patterns, 0 * U, b2=Y.mean(axis=0)).balanced()
    assert constant.n_neurons == 0
    np.testing.assert_array_equal(constant.predict(X), np.tile(Y.mean(axis=0), (25, 1)))
    assert constant.objective(X, Y, LAM) == pytest.approx(np.mean(np.var(Y, axis=0)) / 2)


def logistic_loss(Z, Y):
    return np.log1p(np.exp(-Y * Z)).mean(axis=1)


def softmax_loss(Z, Y):
    return np.log(np.exp(Z).sum(axis=1)) - (Y * Z).sum(axis=1)


def huber_loss(Z, Y, delta=0.5):
    far = np.maximum(np.abs(Z - Y) - delta, 0)
    near = np.abs(Z - Y) - far
    return (near**2 / 2 + delta * far).mean(axis=1)


LOSSES = {
    "squared": lambda Z, Y: np.mean((Z - Y) ** 2, axis=1) / 2,
    "logistic": logistic_loss,
    "softmax": softmax_loss,
    "huber": huber_loss,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_takes_losses_and_sample_weights(loss, weighted):
    X, Y, _, _ = make_case(C=2)
    Y = {"logistic": np.sign(Y), "softmax": np.eye(2)[np.argmax(Y, axis=1)]}.get(loss, Y)
    network = random_network(b2=[0.5, -0.5])
    weight = np.random.default_rng(1).uniform(0.1, 3, 25) if weighted else None
    fit = np.average(LOSSES[loss](network.predict(X), Y), weights=weight)
    decay = np.sum(network.W1**2) + np.sum(network.b1**2)
    decay += np.sum(np.sum(np.abs(network.W2), axis=1) ** 2)
    delta = {"huber_delta": 0.5} if loss == "huber" else {}
    value = network.objective(X, Y, LAM, loss=loss, sample_weight=weight, **delta)
    assert value == pytest.approx(fit + LAM / 2 * decay, rel=1e-12)


# --------------------------------------------------------------------------------- balance


@quick
@given(seed=st.integers(0, 2**32), C=st.integers(1, 3), bias=st.booleans())
def test_balancing_keeps_predictions_and_never_raises_the_objective(seed, C, bias):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((20, 3)), rng.standard_normal((20, C))
    network = random_network(seed, C=C, bias=bias, b2=rng.standard_normal(C))
    balanced = network.balanced()
    np.testing.assert_allclose(balanced.predict(X), network.predict(X), atol=1e-10)
    assert balanced.objective(X, Y, LAM) <= network.objective(X, Y, LAM) * (1 + 1e-12)
    first = np.sum(balanced.W1**2, axis=1) + (balanced.b1**2 if bias else 0)
    np.testing.assert_allclose(np.sqrt(first), np.abs(balanced.W2).sum(axis=1), rtol=1e-12)


def test_unbalanced_layers_cost_strictly_more():
    X, Y, patterns, U = make_case(C=2, bias=True)
    network = GatedReLUNetwork.from_convex(patterns, U, bias=True)
    skewed = dataclasses.replace(
        network, W1=10 * network.W1, b1=10 * network.b1, W2=network.W2 / 10
    )
    assert skewed.objective(X, Y, LAM) > 2 * network.objective(X, Y, LAM)
    value = skewed.balanced().objective(X, Y, LAM)
    assert value == pytest.approx(network.objective(X, Y, LAM), rel=1e-12)


def test_networks_from_convex_weights_are_balanced_already():
    _, _, patterns, U = make_case(C=2)
    network = GatedReLUNetwork.from_convex(patterns, U)
    np.testing.assert_allclose(network.balanced().W1, network.W1, rtol=1e-12)
    np.testing.assert_allclose(network.balanced().W2, network.W2, rtol=1e-12)


def test_balancing_drops_neurons_that_contribute_nothing():
    network = random_network(m=4, C=2)
    W1, b1, W2 = network.W1.copy(), network.b1.copy(), network.W2.copy()
    W1[0], b1[0], W2[2] = 0.0, 0.0, 0.0
    idle = dataclasses.replace(network, W1=W1, b1=b1, W2=W2)
    balanced = idle.balanced()
    np.testing.assert_array_equal(balanced.gates, network.gates[:, [1, 3]])
    X = np.random.default_rng(0).standard_normal((10, 3))
    np.testing.assert_allclose(balanced.predict(X), idle.predict(X), atol=1e-12)
    W1[1] = 0.0
    only_intercept = dataclasses.replace(network, W1=W1, b1=b1, W2=W2)
    assert only_intercept.balanced().n_neurons == 2


def test_lists_make_a_network():
    network = GatedReLUNetwork(gates=[[1], [0]], gate_bias=[0], W1=[[1, 2]], b1=[3], W2=[[2, -1]])
    np.testing.assert_array_equal(network.predict([[1, 1], [-1, 1]]), [[12, -6], [0, 0]])
