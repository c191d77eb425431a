"""ReLU networks and the exact maps between them and C-ReLU weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxnn
from conftest import make_data
from cvxnn import ReLUNetwork


def random_network(m=9, d=3, C=2, bias=True, seed=0, **settings):
    rng = np.random.default_rng(seed)
    return ReLUNetwork(
        W1=rng.standard_normal((m, d)),
        W2=rng.standard_normal((m, C)),
        b1=rng.standard_normal(m) if bias else None,
        **settings,
    )


def convex_value(X, Y, patterns, V, W, lam, bias):
    problem = cvxnn.CReLU(X, Y, patterns, lam=lam, bias=bias, singular="keep")
    return problem.objective((V, W))


def test_predictions_are_the_formula():
    network, X = random_network(), make_data(20, 3)[0]
    expected = np.maximum(X @ network.W1.T + network.b1, 0) @ network.W2
    np.testing.assert_allclose(network.predict(X), expected)
    b2 = np.array([1.0, -2.0])
    np.testing.assert_allclose(random_network(b2=b2).predict(X), expected + b2)
    flat = random_network(C=1, bias=False, flat_output=True)
    np.testing.assert_allclose(flat.predict(X), (np.maximum(X @ flat.W1.T, 0) @ flat.W2)[:, 0])


def test_objective_is_the_papers_for_vector_outputs():
    network, (X, Y) = random_network(), make_data(20, 3, C=2)
    decay = np.sum(network.W1**2) + np.sum(network.b1**2)
    decay += np.sum(np.sum(np.abs(network.W2), axis=1) ** 2)
    expected = np.sum((network.predict(X) - Y) ** 2) / 80 + 0.15 * decay
    assert network.objective(X, Y, lam=0.3) == pytest.approx(expected)
    b2 = np.array([1.0, -2.0])  # the output bias costs nothing
    assert random_network(b2=b2).objective(X, Y + b2, lam=0.3) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_network_to_convex_keeps_the_fit_and_never_raises_the_value(seed, C, bias):
    network = random_network(seed=seed, C=C, bias=bias).balanced()
    X, Y = make_data(12, 3, C=C, seed=seed)
    patterns, (V, W) = network.to_convex(X)
    design = np.column_stack([X, np.ones(12)]) if bias else X
    fit = np.einsum("np,nd,pdc->nc", patterns.mask, design, V - W)
    np.testing.assert_allclose(fit, network.predict(X), atol=1e-10)
    value = convex_value(X, Y, patterns, V, W, 0.1, bias)
    assert value <= network.objective(X, Y, lam=0.1) + 1e-10
    back = ReLUNetwork.from_convex(V, W, bias=bias)
    np.testing.assert_allclose(back.predict(X), network.predict(X), atol=1e-10)
    assert back.objective(X, Y, lam=0.1) == pytest.approx(value, rel=1e-10)


def test_collinear_neurons_merge_without_changing_the_value():
    X, Y = make_data(15, 3)
    base = random_network(m=1, C=1, bias=False)
    double_ = ReLUNetwork(
        W1=np.vstack([base.W1, 3 * base.W1]), W2=np.array([[0.7], [0.2]]), flat_output=True
    ).balanced()
    merged = double_.merged(X)
    assert merged.n_neurons == 1
    np.testing.assert_allclose(merged.predict(X), double_.predict(X))
    assert merged.objective(X, Y, lam=0.2) == pytest.approx(double_.objective(X, Y, lam=0.2))


def test_neurons_of_one_pattern_merge_to_a_smaller_value():
    X, Y = make_data(6, 4)
    rng = np.random.default_rng(0)
    gate = rng.standard_normal(4)
    patterns = cvxnn.Patterns.from_gates(X, gate[:, None])
    cones = cvxnn.CReLU(X, Y, patterns, lam=0.1).cones
    W1, _ = cones.project(gate + 0.5 * rng.standard_normal((3, 4)), np.zeros(3, int))
    network = ReLUNetwork(W1=W1 + 0.2 * gate, W2=np.ones((3, 1))).balanced()
    merged = network.merged(X)
    assert merged.n_neurons == 1
    np.testing.assert_allclose(merged.predict(X), network.predict(X), atol=1e-10)
    assert merged.objective(X, Y, lam=0.1) < network.objective(X, Y, lam=0.1)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_optimal_weights_survive_the_round_trip(C, bias):
    """Optimal neurons lie on cone boundaries; given patterns are preferred there."""
    X, Y = make_data(25, 3, C=C)
    patterns = cvxnn.sample_patterns(X, 10, bias=bias, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.05, bias=bias)
    solution = cvxnn.solve(problem, "al", tol=1e-4)
    network = solution.network()
    assert network.n_neurons > 0
    found, (V, W) = network.to_convex(X, patterns=patterns)
    np.testing.assert_array_equal(found.mask, patterns.mask)  # no new pattern is needed
    # a neuron on a boundary may change its block, never its fit or value
    assert problem.objective((V, W)) == pytest.approx(solution.certificate.objective, rel=1e-10)
    fit = problem.operator.forward(np.concatenate([V, W]))
    expected = problem.operator.forward(np.concatenate(solution.weights))
    np.testing.assert_allclose(fit, expected, atol=1e-10)
    free, (V, W) = network.to_convex(X)
    value = convex_value(X, Y, free, V, W, 0.05, bias)
    assert value <= solution.certificate.objective * (1 + 1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_an_output_bias_goes_beside_the_convex_weights(bias):
    X, _ = make_data(12, 3, C=2)
    network, b2 = random_network(bias=bias), np.array([1.0, -2.0])
    biased = random_network(bias=bias, b2=b2)
    patterns, (V, W) = biased.to_convex(X)
    plain_patterns, plain = network.to_convex(X)
    np.testing.assert_array_equal(patterns.mask, plain_patterns.mask)
    np.testing.assert_array_equal((V, W), plain)
    back = ReLUNetwork.from_convex(V, W, bias=bias, b2=b2)
    np.testing.assert_allclose(back.predict(X), biased.predict(X), atol=1e-10)
    np.testing.assert_allclose(biased.merged(X).predict(X), biased.predict(X), atol=1e-10)
    np.testing.assert_allclose(biased.balanced().predict(X), biased.predict(X), atol=1e-10)


def test_neurons_of_an_intercept_alone_survive_every_map():
    X, _ = make_data(12, 2)
    network = ReLUNetwork(W1=[[0.0, 0.0], [1.0, 2.0]], b1=[3.0, 0.5], W2=[[1.0], [-1.0]])
    expected = 3.0 - np.maximum(X @ [1.0, 2.0] + 0.5, 0)
    for same in (network, network.balanced(), network.merged(X)):
        assert same.n_neurons == 2
        np.testing.assert_allclose(same.predict(X)[:, 0], expected, atol=1e-12)


def test_new_patterns_come_after_the_given_ones():
    X, _ = make_data(15, 3)
    network = random_network(m=4, C=1, bias=False)
    given_ = cvxnn.sample_patterns(X, 5, random_state=3)
    found, (V, _) = network.to_convex(X, patterns=given_)
    np.testing.assert_array_equal(found.mask[:, : len(given_)], given_.mask)
    assert len(found) > len(given_)
    assert V.shape[0] == len(found)
    other = cvxnn.sample_patterns(make_data(15, 3, seed=9)[0], 5, random_state=3)
    with pytest.raises(ValueError, match="patterns belong to other data"):
        network.to_convex(X, patterns=other)


def test_neurons_that_are_off_everywhere_drop_out():
    X = np.abs(make_data(10, 2)[0])
    network = ReLUNetwork(W1=np.array([[1.0, 1.0], [-1.0, -1.0]]), W2=np.ones((2, 1)))
    patterns, _ = network.to_convex(X)
    assert len(patterns) == 1
    dead = ReLUNetwork(W1=-np.ones((1, 2)), W2=np.ones((1, 1)))
    with pytest.raises(ValueError, match="no neuron of this network is on"):
        dead.to_convex(X)


def test_the_zero_network_goes_both_ways():
    X, _ = make_data(15, 3)
    zero = ReLUNetwork.from_convex(np.zeros((4, 3, 1)), np.zeros((4, 3, 1)))
    patterns = cvxnn.sample_patterns(X, 4, random_state=0)
    found, (V, W) = zero.to_convex(X, patterns=patterns)
    assert found is patterns
    assert not V.any()
    assert not W.any()
    assert zero.merged(X).n_neurons == 0


def test_balancing_keeps_the_function_and_lowers_the_objective():
    network, (X, Y) = random_network(), make_data(20, 3, C=2)
    balanced = network.balanced()
    np.testing.assert_allclose(balanced.predict(X), network.predict(X))
    first = np.linalg.norm(np.column_stack([balanced.W1, balanced.b1]), axis=1)
    np.testing.assert_allclose(first, np.abs(balanced.W2).sum(axis=1))
    assert balanced.objective(X, Y, lam=0.1) < network.objective(X, Y, lam=0.1)


def test_files_hold_relu_networks(tmp_path):
    for network in (
        random_network(),
        random_network(b2=[1.0, -2.0]),
        random_network(C=1, bias=False, flat_output=True),
    ):
        network.save(tmp_path / "m.cvxnn")
        loaded = cvxnn.load(tmp_path / "m.cvxnn")
        assert isinstance(loaded, ReLUNetwork)
        X = make_data(10, 3)[0]
        np.testing.assert_array_equal(loaded.predict(X), network.predict(X))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"W2": np.ones((3, 1))}, "W2 must have shape"),
        ({"b1": np.ones(3)}, "b1 must have shape"),
        ({"W1": np.full((2, 2), np.nan)}, "W1 holds NaN"),
        ({"b2": np.ones(2)}, r"b2 must have shape \(1,\), got \(2,\)"),
        ({"b2": 1.0}, r"b2 must have shape \(1,\), got \(\)"),
        ({"b2": [np.inf]}, "b2 holds NaN or infinity"),
        ({"W2": np.ones((2, 2)), "flat_output": True}, "flat_output needs one output"),
    ],
)
def test_inconsistent_parts_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        ReLUNetwork(**{"W1": np.ones((2, 2)), "W2": np.ones((2, 1)), **parts})


def test_inconsistent_convex_weights_are_refused():
    with pytest.raises(ValueError, match="W must have shape"):
        ReLUNetwork.from_convex(np.ones((2, 3, 1)), np.ones((2, 2, 1)))
