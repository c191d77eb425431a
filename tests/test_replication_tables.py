"""What Tables 1 and 2 of the replication add to the library: gates, CD-A as printed, counting."""

import numpy as np
import pytest
from replication.data import gates, synthetic
from replication.table1 import published
from replication.table2.collected import Line, wins
from replication.table2.patterns import as_released, sampled

import cvxnn


def with_ones(n, d=4, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return np.hstack([X, np.full((n, 1), 0.25)])


@pytest.mark.parametrize("n", [20, 21])
def test_half_of_the_rows_are_above_the_median_of_every_gate(n):
    X = with_ones(n)
    patterns = sampled(X, 50, 650, half_active=True)
    products = X[:, :-1] @ gates(X.shape[1] - 1, 50, 650)
    wanted = np.unique(products > np.median(products, axis=0), axis=1)
    np.testing.assert_array_equal(np.unique(patterns.mask, axis=1), wanted)
    assert np.all(patterns.mask.sum(axis=0) == n // 2)


def test_gates_without_a_bias_do_not_see_the_column_of_ones():
    X = with_ones(30)
    patterns = sampled(X, 40, 650, half_active=False)
    assert not patterns.gates[-1].any()
    products = X[:, :-1] @ gates(X.shape[1] - 1, 40, 650)
    np.testing.assert_array_equal(np.unique(patterns.mask, axis=1), np.unique(products > 0, axis=1))


def test_the_last_column_has_to_be_a_constant():
    with pytest.raises(ValueError, match="constant"):
        sampled(with_ones(10)[:, :-1], 5, 650, half_active=True)


def test_released_gates_are_off_by_the_scale_of_the_column():
    X = with_ones(30)
    problem = cvxnn.CGReLU(X, X[:, 0], sampled(X, 30, 650, half_active=True), lam=1e-3)
    network = cvxnn.solve(problem, tol=1e-3).network()
    released = as_released(network, X[0, -1])
    np.testing.assert_array_equal(released.gates[:-1], network.gates[:-1])
    np.testing.assert_allclose(released.gates[-1], network.gates[-1] * 0.25)


@pytest.mark.parametrize("divided_by_rows", [False, True])
def test_cd_a_as_printed_keeps_the_difference_and_ends_near_the_cones(divided_by_rows):
    task = synthetic()
    problem = cvxnn.CGReLU(task.X, task.targets, task.patterns(10), lam=1e-3)
    gated = cvxnn.solve(problem, tol=1e-3)
    found = published.approximate(gated, task.X, divided_by_rows=divided_by_rows)
    np.testing.assert_allclose(found.V - found.W, gated.weights, atol=1e-12)
    blocks = published.Blocks.of(gated)
    assert found.residual**2 <= published.SQUARED_TOL
    assert found.violation < 0.01 * blocks.shortage(task.X).max()


def test_ties_are_wins_of_all():
    first = Line("a", {"c_grelu": 80.0, "c_relu": 80.0, "linear_svm": 79.0})
    second = Line("b", {"c_grelu": 70.0, "c_relu": 71.0, "linear_svm": 72.0})
    assert first.best() == {"c_grelu", "c_relu"}
    counts = wins([first, second])
    assert (counts["c_grelu"], counts["linear_svm"], counts["convex"]) == (1, 1, 1)
