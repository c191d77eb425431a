"""Training on one input, to the optimum over all networks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cvxnn
from cvxnn.bounds.base import EXACT
from cvxnn.bounds.enumeration import enumerate_patterns
from cvxnn.bounds.one_input import OneInput, kinks_of, price, search
from cvxnn.generation import one_input
from cvxnn.generation.one_input import nonnegative_quadratic, solve_one_input
from cvxnn.losses import make_loss

SEPARATE = ["squared", "huber", "logistic"]


def data(n, loss, C=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n)
    Y = np.stack([np.sin(3 * x + k) + 0.3 * rng.standard_normal(n) for k in range(C)], axis=1)
    return np.stack([x, np.ones(n)], axis=1), np.sign(Y) if loss == "logistic" else Y


def largest_lam(X, loss):
    return float(OneInput().bound(X, loss.gradient(np.zeros(loss.Y.shape)), 0.0).above.max())


def objective(X, Y, training, loss, lam):
    units = training.units
    Z = np.zeros(Y.shape)
    for w, k, sign in zip(*units, strict=True):
        Z[:, k] += sign * np.maximum(X @ w, 0)
    return loss.value(Z) + lam * np.linalg.norm(units.W, axis=1).sum()


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("loss", SEPARATE)
def test_training_ends_with_a_proof(loss, output_bias):
    for C, weighted in ((1, False), (2, True)):
        X, Y = data(3000, loss, C)
        weight = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
        bound_loss = make_loss(loss, Y, sample_weight=weight, intercept=output_bias)
        top = largest_lam(X, bound_loss)
        for share in (0.1, 0.01):
            training = solve_one_input(X, bound_loss, share * top, output_bias=output_bias)
            assert training.converged
            assert training.bound.proven
            assert training.bound.scope == EXACT
            assert training.bound.relative_gap <= 1e-6
            value = objective(X, Y, training, bound_loss, share * top)
            assert training.bound.lower_bound <= value <= training.bound.objective * (1 + 1e-14)
            assert (training.output_bias is not None) == output_bias


@pytest.mark.parametrize("loss", SEPARATE)
def test_training_reaches_the_enumerated_program(loss):
    for seed, bias, normalize in ((0, True, False), (1, True, True), (2, False, False)):
        X, Y = data(9, loss, seed=seed)
        X = X[:, :1]
        X[-1] = X[0]
        patterns = enumerate_patterns(X, bias=bias)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = cvxnn.CReLU(X, Y, patterns, 1.0, loss=loss, bias=bias, normalize=normalize)
        problem = problem.with_lam(0.05 * cvxnn.lambda_max(problem))
        solution = cvxnn.solve(problem, tol=1e-8, on_failure="ignore")
        training = solve_one_input(
            problem.operator_double.rows(), problem.loss, problem.lam, tol=1e-8
        )
        assert training.units.W.shape[1] == 1 + bias
        assert training.bound.relative_gap <= 1e-8
        assert training.bound.lower_bound <= solution.certificate.objective
        assert solution.certificate.lower_bound <= training.bound.objective
        np.testing.assert_allclose(
            training.bound.objective, solution.certificate.objective, rtol=1e-6
        )


def test_groups_of_many_rows_come_first(monkeypatch):
    monkeypatch.setattr(one_input, "MANY_ROWS", 2000)
    monkeypatch.setattr(one_input, "GROUPS", 500)
    for loss in ("squared", "logistic", "huber"):
        X, Y = data(4000, loss)
        bound_loss = make_loss(loss, Y, intercept=True)
        lam = 0.02 * largest_lam(X, bound_loss)
        training = solve_one_input(X, bound_loss, lam, output_bias=True)
        assert training.bound.relative_gap <= 1e-6
        monkeypatch.setattr(one_input, "MANY_ROWS", 10**9)
        other = solve_one_input(X, bound_loss, lam, output_bias=True)
        np.testing.assert_allclose(training.bound.objective, other.bound.objective, rtol=2e-6)
        assert training.n_rounds < other.n_rounds
        monkeypatch.setattr(one_input, "MANY_ROWS", 2000)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_groups_are_nearly_the_same_problem(monkeypatch, loss):
    monkeypatch.setattr(one_input, "GROUPS", 400)
    X, Y = data(4000, loss)
    order = np.argsort(X[:, 0])
    X, full = X[order], make_loss(loss, Y[order])
    rows, part = one_input._groups(X, full)
    assert 400 <= len(rows) <= 800
    np.testing.assert_allclose(np.sum(part.row_weight), np.sum(full.row_weight))
    slope = np.array([[0.3], [0.2]])
    some, all_of_them = part.gradient(rows @ slope), full.gradient(X @ slope)
    np.testing.assert_allclose(rows.T @ some, X.T @ all_of_them, atol=1e-5)


def test_a_search_finds_the_neurons_of_the_proof():
    X, Y = data(500, "squared")
    kinks = kinks_of(X)
    proven = price(kinks, Y[:, :1], 20.0, 10)
    found = search(kinks, Y[:, 0], 20.0, 10)
    assert len(found.prices) == len(proven.neurons.prices) > 1
    np.testing.assert_allclose(found.prices, proven.neurons.prices, rtol=1e-12)
    np.testing.assert_allclose(found.directions, proven.neurons.directions, rtol=0, atol=1e-12)
    assert abs(found.prices[0]) <= proven.above[0]


def test_neurons_that_are_nearly_one_become_one(monkeypatch):
    X, Y = data(20_000, "squared")
    loss = make_loss("squared", Y)
    lam = 0.01 * largest_lam(X, loss)
    simple = solve_one_input(X, loss, lam)
    monkeypatch.setattr(one_input, "SAME_NEURON", ())
    plain = solve_one_input(X, loss, lam)
    assert len(simple.units.signs) < len(plain.units.signs)
    assert simple.bound.relative_gap <= 1e-6


@pytest.mark.parametrize("scale", [2.0**-500, 2.0**-100, 2.0**100, 2.0**500])
def test_rows_of_any_size_have_the_same_network(scale):
    X, Y = data(300, "squared")
    loss = make_loss("squared", Y)
    lam = 0.02 * largest_lam(X, loss)
    plain, scaled = solve_one_input(X, loss, lam), solve_one_input(X * scale, loss, lam * scale)
    assert scaled.bound.lower_bound == plain.bound.lower_bound
    np.testing.assert_array_equal(scaled.units.W * scale, plain.units.W)
    np.testing.assert_array_equal(scaled.bound.price / scale, plain.bound.price)


def test_nothing_pays_above_the_largest_lam():
    X, Y = data(200, "squared")
    loss = make_loss("squared", Y)
    training = solve_one_input(X, loss, 1.01 * largest_lam(X, loss))
    assert len(training.units.signs) == 0
    assert training.converged
    assert training.bound.relative_gap < 1e-10


def test_an_interrupt_leaves_the_network_of_its_rounds():
    X, Y = data(300, "squared")

    def interrupt(record):
        if record.n_round == 3:
            raise KeyboardInterrupt

    with pytest.warns(cvxnn.ConvergenceWarning, match="interrupted"):
        result = cvxnn.train(X[:, :1], Y[:, 0], 1e-3, callback=interrupt)
    assert result.status is cvxnn.Status.INTERRUPTED
    assert result.network.n_neurons > 0
    assert result.objective == pytest.approx(result.history[-1].objective, rel=1e-6)
    assert result.bound.scope == EXACT
    assert 0 < result.bound.lower_bound < result.objective


def test_limits_leave_a_network_and_a_bound():
    X, Y = data(2000, "squared")
    loss = make_loss("squared", Y)
    lam = 0.001 * largest_lam(X, loss)
    rounds = []
    stopped = solve_one_input(
        X, loss, lam, tol=1e-12, callback=lambda r: rounds.append(r) or len(rounds) >= 3
    )
    assert len(rounds) == 3 == stopped.n_rounds
    assert not stopped.converged
    assert 0 < stopped.bound.lower_bound < stopped.bound.objective
    assert rounds[0].objective > rounds[2].objective
    late = solve_one_input(X, loss, lam, max_seconds=0.0)
    assert late.n_rounds == 1
    assert not late.converged
    assert late.bound.proven


def test_coupled_outputs_and_more_columns_are_refused():
    X, _ = data(30, "squared")
    softmax = make_loss("softmax", np.eye(3)[np.arange(30) % 3])
    with pytest.raises(ValueError, match="does not couple"):
        solve_one_input(X, softmax, 0.1)
    with pytest.raises(ValueError, match="one input"):
        solve_one_input(np.zeros((30, 3)), make_loss("squared", np.ones((30, 1))), 0.1)


def test_quadratic_programs_with_signs():
    rng = np.random.default_rng(0)
    for _ in range(50):
        k = int(rng.integers(1, 12))
        A = rng.standard_normal((k + 2, k))
        H, q = A.T @ A, rng.standard_normal(k)
        w = nonnegative_quadratic(H, q, np.maximum(rng.standard_normal(k), 0))
        slope = H @ w + q
        assert np.all(w >= 0)
        assert np.all(slope >= -1e-9)
        assert abs(w @ slope) < 1e-9


def test_strengths_that_overflow_in_other_units():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 1)), rng.standard_normal(20)
    result = cvxnn.train(x * 1e-300, y, lam=1e10, bias=False)
    assert result.bound.lower_bound <= result.bound.objective
    assert result.network.n_neurons == 0


def test_targets_that_overflow_come_to_an_end():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 1))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cvxnn.train(
            x, 1e307 * np.sin(3 * x[:, 0]), lam=1e300, output_bias=True, max_seconds=3
        )
    assert not result.bound.lower_bound > result.bound.objective
