"""Pruning: fewer neurons, the same predictions on X, never a higher objective."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import qr
from scipy.optimize import nnls

import cvxnn
from conftest import make_data
from cvxnn import GatedReLUNetwork, ReLUNetwork, pruning
from cvxnn.pruning import prune

TOL = 1e-10  # the default


def relu_network(m=40, d=3, C=1, bias=True, seed=0, one_output=False, **parts):
    rng = np.random.default_rng(seed)
    W2 = rng.standard_normal((m, C))
    if one_output:  # as networks of convex solutions have it
        W2 *= np.eye(C)[rng.integers(0, C, m)]
    b1 = rng.standard_normal(m) if bias else None
    return ReLUNetwork(W1=rng.standard_normal((m, d)), W2=W2, b1=b1, **parts)


def gated_network(m=40, d=3, seed=0, **settings):
    relu = relu_network(m, d, seed=seed, **settings)
    rng = np.random.default_rng(seed + 1)
    return GatedReLUNetwork(
        gates=rng.standard_normal((d, m)),
        gate_bias=rng.standard_normal(m),
        W1=relu.W1,
        W2=relu.W2,
        b1=relu.b1,
        b2=relu.b2,
    )


MAKERS = {"relu": relu_network, "gated": gated_network}


def hidden(network, X):
    pre = X @ network.W1.T + (0 if network.b1 is None else network.b1)
    if isinstance(network, ReLUNetwork):
        return np.maximum(pre, 0)
    return pre * (X @ network.gates + network.gate_bias >= 0)


def decay(network, X=None):
    """The weight decay of balanced layers; on columns of unit norm if X is given."""
    first, intercept = network.W1, network.b1
    if X is not None:
        first = first * np.linalg.norm(X, axis=0)
        intercept = None if intercept is None else intercept * np.sqrt(len(X))
    if intercept is not None:
        first = np.column_stack([first, intercept])
    return np.sum(np.linalg.norm(first, axis=1) * np.abs(network.W2).sum(axis=1))


def assert_pruned(pruned, network, X, **settings):
    """All that is promised of `pruned`."""
    scale = np.max(np.abs(hidden(network, X)) @ np.abs(network.W2), initial=0)
    np.testing.assert_allclose(
        pruned.predict(X), network.predict(X), rtol=0, atol=max(1e-10 * scale, 1e-300)
    )
    normalized = X if settings.get("normalize") else None
    assert decay(pruned, normalized) <= decay(network, normalized) * (1 + 1e-12)
    assert pruned.n_neurons <= network.n_neurons
    assert pruned.W2.any(axis=1).all()
    for k in range(pruned.n_outputs):
        fits = hidden(pruned, X)[:, pruned.W2[:, k] != 0]
        assert fits.shape[1] <= len(X)
        sizes = np.linalg.norm(fits, axis=0)
        assert (sizes > 0).all()
        distances = np.abs(np.diag(qr(fits / sizes, mode="r", pivoting=True)[0]))
        assert (distances > 0.5 * TOL).all()  # independent
    assert prune(pruned, X, **settings) is pruned  # nothing more can go


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["relu", "gated"]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(1, 25),
    st.booleans(),
)
def test_random_networks(seed, kind, C, bias, one_output, n, normalize):
    b2 = np.arange(1.0, C + 1) if seed % 2 else None
    network = MAKERS[kind](C=C, bias=bias, seed=seed, one_output=one_output, b2=b2)
    X = make_data(n, 3, seed=seed)[0]
    pruned = prune(network, X, normalize=normalize)
    assert_pruned(pruned, network, X, normalize=normalize)
    assert np.count_nonzero(pruned.W2, axis=0).max(initial=0) <= n
    assert pruned.b2 is b2 or np.array_equal(pruned.b2, b2)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-14, 1e-12, 1e-11, 1e-9, 1e-6]),
    st.booleans(),
    st.integers(-6, 6),
)
def test_nearly_dependent_neurons(seed, distance, cancel, scale):
    """Copies at all distances, of all sizes, on data with ties."""
    rng = np.random.default_rng(seed)
    base = relu_network(m=10, bias=False, seed=seed)
    copies = np.repeat(np.arange(10), 4)
    W2 = np.abs(base.W2[copies]) * 10.0 ** (scale * rng.random((40, 1)))
    if cancel:
        W2 *= np.tile([[1.0], [-1.0]], (20, 1))
    W1 = base.W1[copies] + distance * rng.standard_normal((40, 3))
    network = ReLUNetwork(W1=W1, W2=W2)
    X = np.round(rng.standard_normal((30, 3)))
    assert_pruned(prune(network, X), network, X)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_objective_of_the_network_does_not_rise(kind):
    X, Y = make_data(30, 3, C=2)
    network = MAKERS[kind](m=80, C=2, b2=np.array([1.0, -1.0]))
    pruned = prune(network, X)
    assert pruned.n_neurons < 80
    assert pruned.objective(X, Y, lam=0.1) <= network.balanced().objective(X, Y, lam=0.1)


def test_more_neurons_than_rows():
    """Every vertex is reached in general position with as many neurons as rows, or with fewer."""
    X = make_data(20, 30)[0]
    network = relu_network(m=200, d=30, bias=False)
    pruned = prune(network, X)
    assert pruned.n_neurons == 20
    assert_pruned(pruned, network, X)
    assert decay(pruned) < 0.9 * decay(network)


def test_signs_and_first_layers_stay():
    """For neurons with patterns of their own, only the second layer is scaled."""
    X = make_data(20, 30)[0]
    network = relu_network(m=100, d=30, bias=False)
    pruned = prune(network, X)
    directions = pruned.W1 / np.linalg.norm(pruned.W1, axis=1)[:, None] * np.sign(pruned.W2)
    before = network.W1 / np.linalg.norm(network.W1, axis=1)[:, None] * np.sign(network.W2)
    assert np.abs(directions @ before.T - 1).min(axis=1).max() < 1e-12
    assert np.ptp(np.linalg.norm(pruned.W1, axis=1) / np.abs(pruned.W2[:, 0])) < 1e-12  # balanced


def test_a_vertex_agrees_with_an_independent_solver():
    """Where the remaining fits give the predictions, they do so in one way only."""
    X = make_data(25, 3)[0]
    network = gated_network(m=60)
    pruned = prune(network, X)
    fits = hidden(pruned, X) * pruned.W2[:, 0]
    factors, residual = nnls(fits, network.predict(X)[:, 0])
    np.testing.assert_allclose(factors, 1, rtol=1e-6)
    assert residual < 1e-10


def test_a_minimal_network_comes_back_as_it_is():
    X = make_data(50, 3)[0]
    network = relu_network(m=5)
    assert prune(network, X) is network


def test_the_same_input_gives_the_same_network():
    X = make_data(20, 3)[0]
    one, two = (prune(relu_network(m=100, C=2), X) for _ in range(2))
    np.testing.assert_array_equal(one.W1, two.W1)
    np.testing.assert_array_equal(one.W2, two.W2)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_zero_neurons_and_one(kind):
    X = make_data(10, 3)[0]
    empty = MAKERS[kind](m=0, C=2, b2=np.ones(2))
    assert prune(empty, X) is empty
    one = MAKERS[kind](m=1)
    shifted = np.concatenate([X, X + 100 * one.W1])  # some rows are on
    assert prune(one, shifted) is one
    zero = replace(one, W2=np.zeros((1, 1)))
    assert prune(zero, X).n_neurons == 0


def test_neurons_that_are_off_go():
    X = np.abs(make_data(10, 2)[0])
    W1 = np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    network = ReLUNetwork(W1=W1, W2=np.ones((3, 1)), flat_output=True)
    pruned = prune(network, X)
    assert pruned.n_neurons == 1
    assert_pruned(pruned, network, X)
    dead = prune(ReLUNetwork(W1=W1[1:], W2=np.ones((2, 1)), b2=np.ones(1)), X)
    assert dead.n_neurons == 0
    np.testing.assert_array_equal(dead.predict(X), np.ones((10, 1)))


def test_neurons_that_are_on_by_rounding_only_go():
    """Neurons on the boundary of their cones have activations of 1e-17 there."""
    X = np.array([[1.0, 3.0], [2.0, 6.0]])
    network = ReLUNetwork(W1=np.array([[0.3, -0.1 * (1 - 1e-16)], [1.0, 0.0]]), W2=np.ones((2, 1)))
    assert prune(network, X).n_neurons == 1


def test_duplicate_and_collinear_neurons_become_one():
    X, Y = make_data(15, 3)
    base = relu_network(m=1, bias=False, seed=1)
    network = ReLUNetwork(
        W1=np.outer([1.0, 1.0, 3.0], base.W1[0]), W2=np.array([[0.5], [0.5], [0.2]])
    ).balanced()
    pruned = prune(network, X)
    assert pruned.n_neurons == 1
    assert_pruned(pruned, network, X)
    # collinear neurons add up: the objective is the same, not lower
    assert pruned.objective(X, Y, 0.1) == pytest.approx(network.objective(X, Y, 0.1), rel=1e-12)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_neurons_that_cancel_each_other_all_go(kind):
    X = make_data(15, 3)[0]
    half = MAKERS[kind](m=20, C=2)
    twice = half._select(np.tile(np.arange(20), 2))
    network = replace(twice, W2=np.concatenate([half.W2, -half.W2]), b2=np.ones(2))
    pruned = prune(network, X)
    assert pruned.n_neurons == 0
    np.testing.assert_allclose(network.predict(X), 1, atol=1e-12)
    np.testing.assert_array_equal(pruned.predict(X), np.ones((15, 2)))


def test_a_zero_sum_of_many_fits():
    """Neurons of different patterns whose fits add up to zero, in no pairs."""
    X = make_data(6, 3)[0]
    network = gated_network(m=30, bias=False)
    fits = hidden(network, X)
    null = np.linalg.svd(fits)[2][-1]
    assert np.sum(np.abs(null) > 1e-3) > 20
    network = replace(network, W2=null[:, None])
    assert prune(network, X).n_neurons == 0


def test_several_outputs_share_neurons():
    """Neurons with several outputs are not split, even if splitting would lower the objective."""
    X = make_data(10, 12)[0]
    network = relu_network(m=8, d=12, C=3, bias=False)
    assert prune(network, X) is network
    wide = relu_network(m=50, d=12, C=3, bias=False)
    pruned = prune(wide, X)
    assert 10 <= pruned.n_neurons <= 30
    np.testing.assert_array_equal(np.count_nonzero(pruned.W2, axis=0), [10, 10, 10])
    assert_pruned(pruned, wide, X)


def test_neurons_of_one_pattern_are_merged():
    """Their fits may be independent, and still one neuron does."""
    X = np.abs(make_data(30, 4)[0])
    W1 = np.random.default_rng(0).random((6, 4))
    W2 = np.array([[1.0, 0], [2, 0], [-1, 0], [0, 1], [0, -1], [0, -3]])
    network = ReLUNetwork(W1=W1, W2=W2)
    pruned = prune(network, X)
    assert pruned.n_neurons == 4  # a sign and an output each
    assert_pruned(pruned, network, X)
    assert decay(pruned) < decay(network)
    gated = GatedReLUNetwork(gates=np.ones((4, 6)), gate_bias=np.zeros(6), W1=W1, W2=W2)
    pruned = prune(gated, X)
    assert pruned.n_neurons == 2  # gated neurons of both signs are one
    assert_pruned(pruned, gated, X)


def test_other_rows_than_those_of_the_training():
    X, y = make_data(60, 3)
    patterns = cvxnn.sample_patterns(X, 30, random_state=0)
    network = cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=1e-3), tol=1e-3).network()
    few = make_data(8, 3, seed=5)[0]
    pruned = prune(network, few)
    assert pruned.n_neurons <= 8 < network.n_neurons
    np.testing.assert_allclose(pruned.predict(few), network.predict(few), atol=1e-10)
    assert np.abs(pruned.predict(X) - network.predict(X)).max() > 1e-3


def test_elsewhere_predictions_change_no_faster_than_the_distance():
    X = make_data(30, 2)[0]
    network = relu_network(m=60, d=2)
    pruned = prune(network, X)
    new = make_data(200, 2, seed=1)[0]
    change = np.abs(pruned.predict(new) - network.predict(new))[:, 0]
    distance = np.linalg.norm(new[:, None] - X, axis=2).min(axis=1)
    assert change.max() > 1e-2
    assert (change <= (decay(network) + decay(pruned)) * distance + 1e-10).all()


def test_a_larger_tolerance_drops_more():
    X = make_data(100, 2)[0]
    network = relu_network(m=150, d=2)
    exact, rough = prune(network, X), prune(network, X, tol=1e-2)
    assert rough.n_neurons < 0.8 * exact.n_neurons
    assert decay(rough) <= decay(network)
    change = np.abs(rough.predict(X) - network.predict(X)).max() / np.abs(network.predict(X)).max()
    assert 1e-8 < change < 0.1


@pytest.mark.parametrize("normalize", [False, True])
def test_an_optimal_network_keeps_its_objective(normalize):
    """Neurons that were split become one again, and nothing is better than the optimum."""
    X, y = make_data(25, 3)
    X = X * [1.0, 10.0, 0.1]
    patterns = cvxnn.sample_patterns(X, 40, normalize=normalize, random_state=0)
    problem = cvxnn.CReLU(X, y, patterns, lam=1.0, normalize=normalize)
    problem = problem.with_lam(0.02 * cvxnn.lambda_max(problem))
    network = cvxnn.solve(problem, tol=1e-8).network()
    spread = network._select(np.repeat(np.arange(network.n_neurons), 3))
    W2 = spread.W2 * np.tile([[0.2], [0.3], [0.5]], (network.n_neurons, 1))
    spread = replace(spread, W2=W2).balanced()  # the same network with three times the neurons
    pruned = prune(spread, X, normalize=normalize)
    assert_pruned(pruned, spread, X, normalize=normalize)
    assert pruned.n_neurons <= network.n_neurons
    scale = X if normalize else None
    assert decay(pruned, scale) == pytest.approx(decay(network, scale), rel=1e-6)


def test_a_decomposed_network_loses_weight():
    """Decompositions have two neurons for each gated one, and are not optimal."""
    X, y = make_data(20, 4)
    patterns = cvxnn.sample_patterns(X, 40, random_state=0)
    gated = cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=1e-5), tol=1e-8)
    network = cvxnn.decompose(gated).network()
    pruned = prune(network, X)
    assert pruned.n_neurons <= 20 < network.n_neurons
    assert_pruned(pruned, network, X)
    assert decay(pruned) < decay(network)


def test_thousands_of_neurons_take_seconds():
    X = make_data(400, 10)[0]
    network = relu_network(m=2000, d=10)
    started = time.perf_counter()
    pruned = prune(network, X)
    assert time.perf_counter() - started < 60
    assert pruned.n_neurons == 400
    change = np.abs(pruned.predict(X) - network.predict(X)).max()
    assert change < 1e-11 * np.abs(network.predict(X)).max()


def test_lists_and_single_precision_are_taken():
    X = make_data(8, 3)[0].astype(np.float32)
    network = relu_network(flat_output=True)
    pruned = prune(network, X.tolist())
    assert pruned.flat_output
    assert pruned.predict(X).shape == (8,)
    np.testing.assert_array_equal(prune(network, X).W1, pruned.W1)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"X": np.ones((4, 2))}, ValueError, "X has 2 features, but 3 are expected"),
        ({"X": np.ones(3)}, ValueError, "X must be 2-dimensional"),
        ({"X": np.full((2, 3), np.nan)}, ValueError, "X holds NaN"),
        ({"tol": 0}, ValueError, "tol must be >= 1e-13"),
        ({"tol": 1}, ValueError, "tol must be <= 0.1"),
        ({"normalize": 1}, TypeError, "normalize must be True or False"),
        ({"network": "a file"}, TypeError, "network must be a ReLUNetwork or GatedReLUNetwork"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        prune(**{"network": relu_network(), "X": np.ones((4, 3)), **settings})


def test_rows_in_pieces_prune_the_same(monkeypatch):
    wide = relu_network(m=40, C=2)
    X = np.random.default_rng(3).standard_normal((300, 3))
    twice = replace(
        wide,
        W1=np.vstack([wide.W1, 2 * wide.W1[:9]]),
        b1=np.append(wide.b1, 2 * wide.b1[:9]),
        W2=np.vstack([wide.W2, wide.W2[:9]]),
    )
    whole = prune(twice, X)
    monkeypatch.setattr(pruning, "_ENTRIES", 1)  # pieces of as many rows as there are neurons
    pieces = prune(twice, X)
    for smaller in (whole, pieces):
        assert list(np.count_nonzero(smaller.W2, axis=0)) == [40, 40]
        np.testing.assert_allclose(smaller.predict(X), twice.predict(X), atol=1e-8)
