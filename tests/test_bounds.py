"""Bounds over all patterns: every one is compared with what is exact, or with what is attained."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_array

import cvxnn
from cvxnn.bounds.base import (
    EXACT,
    GIVEN,
    SDP,
    Neurons,
    PriceBound,
    Units,
    bound_of_price,
    dual_value_below,
    network_objective_above,
    row_norms_above,
)
from cvxnn.bounds.choice import bound_over_all_patterns, choose_method
from cvxnn.bounds.enumeration import Enumeration, cells_of, enumerate_patterns, number_of_cells
from cvxnn.bounds.one_input import OneInput
from cvxnn.bounds.rotation import rotate
from cvxnn.bounds.semidefinite import Multipliers, Semidefinite, price_above
from cvxnn.losses import make_loss
from extras import needs

SCALES = [1e-150, 1e-40, 1.0, 1e40, 1e150]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# -- prices in whole numbers


def exact_price_squared(X, t):
    """The squared price of t on rows (n, 2), as a fraction: it is attained at a kink, or where the
    sum of t_i x_i over the active rows of some direction between two kinks points."""
    rows = [[Fraction(a) for a in row] for row in X.tolist()]
    t = [Fraction(a) for a in np.asarray(t).tolist()]
    kinks = [u for x in rows if any(x) for u in ((-x[1], x[0]), (x[1], -x[0]))]
    kinks = kinks or [(Fraction(1), Fraction(0)), (Fraction(-1), Fraction(0))]
    # next to each kink on both sides: its own row decides, and rows parallel to it
    inner = []
    for k in kinks:
        for side in ((-k[1], k[0]), (k[1], -k[0])):
            on = [
                value if value != 0 else x[0] * side[0] + x[1] * side[1]
                for x in rows
                for value in [x[0] * k[0] + x[1] * k[1]]
            ]
            active = [i for i, value in enumerate(on) if value > 0]
            c = [sum((t[i] * rows[i][j] for i in active), Fraction(0)) for j in range(2)]
            inner += [c, [-c[0], -c[1]]]
    best = Fraction(0)
    for u in [*kinks, *inner]:
        size = u[0] ** 2 + u[1] ** 2
        if size:
            value = sum(
                (a * max(x[0] * u[0] + x[1] * u[1], 0) for a, x in zip(t, rows, strict=True)),
                Fraction(0),
            )
            best = max(best, value**2 / size)
    return best


def plane_rows(rng, kind, n):
    X = rng.standard_normal((n, 2))
    if kind == "ones":
        X[:, 1] = 1
    elif kind == "ties":
        X = rng.integers(-2, 3, (n, 2)).astype(float)
    elif kind == "almost ties":
        X = np.round(X) + rng.integers(-2, 3, (n, 2)) * 2.0**-52
    elif kind == "far":
        X = np.stack([1e8 + rng.standard_normal(n), np.ones(n)], axis=1)
    elif kind == "columns":
        X *= [1e-120, 1e120]
    elif kind == "rows":
        X *= 10.0 ** rng.integers(-120, 120, (n, 1))
    elif kind == "parallel":
        X = rng.standard_normal((n, 1)) * rng.standard_normal((1, 2))
    return X


KINDS = ["normal", "ones", "ties", "almost ties", "far", "columns", "rows", "parallel"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_input_is_exact(kind, rng):
    for trial in range(40):
        X = plane_rows(rng, kind, int(rng.integers(1, 8)))
        t = rng.standard_normal(len(X))
        if trial % 4 == 0:
            t = np.round(t)
        if trial % 5 == 0:
            t -= t.mean()
        found = OneInput().bound(X, t[:, None], 0.0)
        exact = exact_price_squared(X, t)
        above = Fraction(float(found.above[0]))
        assert above**2 >= exact
        size = np.abs(t) @ np.max(np.abs(X), axis=1)
        assert float(found.above[0]) <= math.sqrt(exact) * (1 + 1e-13) + 1e-15 * size


@pytest.mark.parametrize("scale", SCALES)
def test_one_input_at_any_scale(scale, rng):
    for _ in range(20):
        X = plane_rows(rng, "normal", 6)
        t = rng.standard_normal(6)
        for x, y in ((X * scale, t), (X, t * scale), (X * scale, t / scale)):
            above = float(OneInput().bound(x, y[:, None], 0.0).above[0])
            exact = exact_price_squared(x, y)
            assert Fraction(above) ** 2 >= exact
            assert above <= math.sqrt(exact_price_squared(X, t)) * 1.0000001 * np.max(
                np.abs(x)
            ) / np.max(np.abs(X)) * (np.max(np.abs(y)) / np.max(np.abs(t)))


def test_one_input_says_nothing_of_what_is_not_finite():
    X = np.array([[1.0, 1.0], [2.0, 1.0]])
    assert OneInput().bound(X, np.array([[np.inf], [1.0]]), 0.0).above[0] == np.inf
    assert OneInput().bound(X, np.array([[np.nan], [1.0]]), 0.0).above[0] == np.inf
    assert OneInput().bound(X * 8e307, np.full((2, 1), 1e308), 0.0).above[0] == np.inf
    assert OneInput().bound(X, np.zeros((2, 1)), 0.0).above[0] == 0


def test_neurons_of_one_input_attain_their_prices(rng):
    X = np.stack([rng.standard_normal(300), np.ones(300)], axis=1)
    Theta = rng.standard_normal((300, 2))
    found = OneInput(limit=50).bound(X, Theta, 0.0)
    U, k, prices = found.neurons
    attained = np.sum(Theta[:, k] * np.maximum(X @ U.T, 0), axis=0)
    np.testing.assert_allclose(attained, prices, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1)
    assert len(prices) <= 50
    assert np.all(np.diff(np.abs(prices)) <= 0)
    for j in range(2):
        np.testing.assert_allclose(np.max(np.abs(prices[k == j])), found.above[j], rtol=1e-12)


def test_one_input_takes_a_million_rows(rng):
    n = 10**6
    X = np.stack([rng.standard_normal(n), np.ones(n)], axis=1)
    t = rng.standard_normal(n) / n
    found = OneInput().bound(X, t[:, None], 0.0)
    u = found.neurons.directions[0]
    attained = abs(math.fsum(t * np.maximum(X @ u, 0)))
    assert attained * (1 - 1e-13) <= found.above[0] <= attained * (1 + 1e-12)


def test_rows_in_a_plane_of_many_columns(rng):
    Z, V = rng.standard_normal((30, 2)), rng.standard_normal((2, 7))
    X, t = Z @ V, rng.standard_normal((30, 1))
    assert OneInput().handles(X, 1)
    assert not OneInput().handles(rng.standard_normal((30, 3)), 1)
    found = OneInput().bound(X, t, 0.0)
    u = found.neurons.directions[0]
    assert u.shape == (7,)
    attained = abs(t[:, 0] @ np.maximum(X @ u, 0)) / np.linalg.norm(u)
    assert attained * (1 - 1e-13) <= found.above[0] <= attained * (1 + 1e-11)


def test_rotation_bounds_what_it_loses(rng):
    X = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 6)) + 1e-9 * rng.standard_normal(6)
    rotation = rotate(X)
    lost = np.linalg.norm(X - rotation.Z @ rotation.V.T, axis=1)
    assert np.all(rotation.rest >= lost)
    assert rotation.stretch >= np.linalg.norm(rotation.V, 2) - 1e-15
    assert np.max(rotation.rest) < 1e-12 * np.max(np.abs(X))


# -- enumeration


def regions_by_subsets(X):
    """The number of cells (Zaslavsky): sum over sets of different planes of (-1)^(size - rank)."""
    lines = []
    for x in X:
        if np.any(x) and all(np.linalg.matrix_rank(np.stack([x, y])) == 2 for y in lines):
            lines.append(x)
    total = 0
    for size in range(len(lines) + 1):
        for chosen in combinations(lines, size):
            rank = np.linalg.matrix_rank(np.stack(chosen)) if size else 0
            total += (-1) ** (size - rank)
    return total


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_as_many_cells_as_the_formula_says(d, rng):
    for n in range(1, 9):
        X = rng.standard_normal((n, d))
        signs, points = cells_of(X)
        assert signs.shape == (n, number_of_cells(n, d))
        assert len(set(map(tuple, signs.T))) == signs.shape[1]
        np.testing.assert_array_equal(np.sign(X @ points), signs)


def test_cells_of_rows_in_special_position(rng):
    for _ in range(60):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        X = rng.integers(-1, 2, (n, d)).astype(float)
        signs, points = cells_of(X)
        assert signs.shape[1] == regions_by_subsets(X) == len(set(map(tuple, signs.T)))
        np.testing.assert_array_equal(np.sign(X @ points), signs)  # so each of them is there
        directions = rng.standard_normal((d, 200))
        assert set(map(tuple, np.sign(X @ directions).T)) <= set(map(tuple, signs.T))


def test_cells_are_seen_in_the_last_bit():
    X = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-52], [1.0, 1.0]])
    assert cells_of(X)[0].shape[1] == 4
    X[1, 1] = 1.0
    assert cells_of(X)[0].shape[1] == 2


def test_enumeration_refuses_too_many_cells(rng):
    with pytest.raises(ValueError, match="100 different rows of rank 5 can have"):
        enumerate_patterns(rng.standard_normal((100, 5)))
    assert number_of_cells(100, 5) == 2 * sum(math.comb(99, k) for k in range(5))


def test_enumerated_patterns(rng):
    X = np.vstack([rng.standard_normal((5, 1)), np.zeros((1, 1)), np.full((2, 1), 0.5)])
    patterns = enumerate_patterns(X, bias=True)
    assert patterns.gates is not None
    assert len(patterns) == regions_by_subsets(np.hstack([X, np.ones((8, 1))])) - 1
    sampled = cvxnn.sample_patterns(X, 500, bias=True, random_state=0)
    assert {tuple(c) for c in sampled.mask.T} <= {tuple(c) for c in patterns.mask.T}


def test_enumeration_and_one_input_agree(rng):
    for kind in KINDS[:5]:
        X = plane_rows(rng, kind, 7)
        Theta = rng.standard_normal((7, 2))
        one, all_ = OneInput().bound(X, Theta, 0.0), Enumeration().bound(X, Theta, 0.0)
        np.testing.assert_allclose(one.above, all_.above, rtol=1e-10 if kind != "far" else 1e-6)
        assert one.scope == all_.scope == EXACT


@pytest.mark.parametrize("scale", SCALES)
def test_enumeration_is_above_what_is_attained(scale, rng):
    for d in (1, 3, 4):
        X, t = rng.standard_normal((8, d)) * scale, rng.standard_normal((8, 1))
        found = Enumeration().bound(X, t, 0.0)
        U = rng.standard_normal((20000, d))
        U = np.vstack([U / np.linalg.norm(U, axis=1, keepdims=True), found.neurons.directions])
        attained = np.max(np.abs(t[:, 0] @ np.maximum(X @ U.T, 0)))
        assert attained * (1 - 1e-14) <= found.above[0] <= attained * (1 + 1e-10)


# -- the semidefinite bound


def test_any_multipliers_bound_the_price(rng):
    for _ in range(40):
        n, d = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        X, t = rng.standard_normal((n, d)), rng.standard_normal(n)
        price = float(Enumeration().bound(X, t[:, None], 0.0).above[0])
        draw = rng.standard_normal((3, n)) * 10.0 ** rng.integers(-3, 3)
        multipliers = Multipliers(np.abs(draw[0]), draw[1], draw[2])
        both = max(price_above(X, s * t, multipliers) for s in (1, -1))
        assert both >= price * (1 - 1e-10)


@needs("cvxpy")
@pytest.mark.parametrize("scale", SCALES)
def test_semidefinite_bound(scale, rng):
    for _ in range(3):
        n, d = int(rng.integers(3, 8)), int(rng.integers(2, 4))
        X, t = rng.standard_normal((n, d)), rng.standard_normal((n, 1))
        price = Enumeration().bound(X, t, 0.0).above
        found = Semidefinite().bound(X * scale, t, 1.0)
        assert found.scope == SDP
        assert np.all(found.above / scale >= price * (1 - 1e-12))
        assert np.all(found.above / scale <= 1.2 * price)


# -- from a price to a bound


LOSSES = ["squared", "huber", "logistic", "softmax"]


def small_problem(rng, loss=None, columns=None):
    """A C-ReLU problem over all patterns of its rows."""
    loss = loss or LOSSES[rng.integers(len(LOSSES))]
    n, d = int(rng.integers(3, 8)), int(rng.integers(1, 4)) if columns is None else columns - 1
    bias = bool(rng.integers(2)) or columns is not None
    X = rng.standard_normal((n, d))
    if rng.integers(3) == 0:
        X[-1] = X[0]
    if rng.integers(4) == 0:
        X = np.round(X)
    C = int(rng.integers(1, 3)) if loss != "softmax" else 3
    if loss == "logistic":
        Y = np.where(rng.random((n, C)) < 0.5, 1.0, -1.0)
        Y[0], Y[1] = 1.0, -1.0
    elif loss == "softmax":
        Y = np.eye(3)[rng.permutation(np.arange(n) % 3)]
    else:
        Y = rng.standard_normal((n, C)) * 10.0 ** rng.integers(-2, 3)
    weight = rng.uniform(0.5, 2, n) if rng.integers(2) else None
    settings = {
        "loss": loss, "bias": bias, "output_bias": bool(rng.integers(2)), "singular": "keep",
        "normalize": bool(rng.integers(2)), "sample_weight": weight,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patterns = enumerate_patterns(X, bias=bias)
        problem = cvxnn.CReLU(X, Y, patterns, 1.0, **settings)
    lam = cvxnn.lambda_max(problem) * 10.0 ** rng.uniform(-2.5, -0.1)
    return problem.with_lam(lam) if lam > 1e-9 else None


def check_bound(problem, solution, method):
    """The bound is below every objective, and as good as that of the enumerated program."""
    bound = bound_over_all_patterns(
        problem, solution.weights, solution.dual, method, tol=1e-9, max_seconds=20
    )
    certificate = solution.certificate
    assert bound.proven
    assert bound.over_all_patterns
    assert bound.lower_bound <= min(bound.objective, certificate.objective)
    assert bound.lower_bound <= certificate.network_objective
    assert bound.gap <= certificate.gap + 1e-6 * certificate.objective
    return bound


@pytest.mark.parametrize("number", [50, pytest.param(500, marks=pytest.mark.exhaustive)])
def test_bounds_of_random_problems(number):
    """Over losses, outputs, weights, biases and duplicates: no bound is above what is attained, and
    each is that of the enumerated program."""
    rng, count = np.random.default_rng(number), 0
    while count < number:
        problem = small_problem(rng)
        if problem is None:
            continue
        solution = cvxnn.solve(problem, tol=1e-7, on_failure="ignore")
        method = "exact" if problem.operator.d <= 2 and count % 2 else "enumeration"
        check_bound(problem, solution, method)
        count += 1


@needs("cvxpy")
@pytest.mark.parametrize("loss", LOSSES)
def test_semidefinite_bounds_of_problems(loss, rng):
    done = 0
    while done < 2:
        problem = small_problem(rng, loss)
        if problem is None:
            continue
        solution = cvxnn.solve(problem, tol=1e-7, on_failure="ignore")
        bound = bound_over_all_patterns(
            problem, solution.weights, solution.dual, "semidefinite", max_seconds=20
        )
        assert bound.scope == SDP
        assert bound.proven
        assert bound.lower_bound <= solution.certificate.objective
        done += 1


def test_a_dual_point_that_has_to_move_costs_its_distance(rng):
    """Prices are those of Theta, and the bound is that of the balanced point next to it."""
    for loss in LOSSES:
        for scale in (1.0, 1e-6, 1e6):
            while (problem := small_problem(rng, loss, columns=2)) is None:
                pass
            solution = cvxnn.solve(problem, tol=1e-7, on_failure="ignore")
            Theta = scale * np.asarray(solution.dual) + 0.1 * rng.standard_normal(
                problem.loss.Y.shape
            )
            above = OneInput().bound(problem.operator_double.rows(), Theta, problem.lam).above
            assert bound_of_price(problem, Theta, above) <= solution.certificate.objective


def test_nothing_is_proven_by_prices_that_are_not_numbers(rng):
    problem = None
    while problem is None:
        problem = small_problem(rng, "squared", columns=2)
    Theta = problem.loss.gradient(np.zeros(problem.loss.Y.shape))
    C = Theta.shape[1]
    for price in (np.inf, np.nan, -1.0):
        assert bound_of_price(problem, Theta, np.full(C, price)) == 0
    assert bound_of_price(problem, 0 * Theta, np.zeros(C)) == 0


@pytest.mark.parametrize("scale", SCALES)
def test_bounds_at_any_scale(scale):
    rng = np.random.default_rng(3)
    X = np.stack([rng.standard_normal(6), np.ones(6)], axis=1)
    Y = rng.standard_normal((6, 1))
    for x, y, lam in ((X * scale, Y, 0.05 * scale), (X, Y * scale, 0.05 * scale)):
        loss = make_loss("squared", y)
        reference = make_loss("squared", Y)
        Theta = loss.gradient(np.zeros_like(y))
        above = OneInput().bound(x, Theta, lam).above
        unscaled = OneInput().bound(X, reference.gradient(np.zeros_like(Y)), 0.05).above
        value = dual_value_below(x, loss, lam, Theta, above)
        expected = dual_value_below(
            X, reference, 0.05, reference.gradient(np.zeros_like(Y)), unscaled
        )
        factor = float(np.max(np.abs(y)) / np.max(np.abs(Y))) ** 2
        if 1e-290 < factor < 1e290:
            np.testing.assert_allclose(value, expected * factor, rtol=1e-9)
        assert value <= expected * factor * (1 + 1e-9) or factor == 0


def test_row_norms(rng):
    for scale in (*SCALES, 1e300):
        X = rng.standard_normal((5, 3)) * scale
        norms = row_norms_above(X)
        for x, norm in zip(X, norms, strict=True):
            exact = sum(Fraction(float(a)) ** 2 for a in x)
            assert Fraction(float(norm)) ** 2 >= exact
            assert norm <= np.linalg.norm(x / scale) * scale * (1 + 1e-14)
    assert np.all(row_norms_above(np.zeros((2, 2))) == 0)


def test_objective_of_a_network_without_patterns(rng):
    X, Y = rng.standard_normal((9, 2)), rng.standard_normal((9, 2))
    units = Units(rng.standard_normal((4, 2)), np.array([0, 1, 1, 0]), np.array([1, -1, 1, -1.0]))
    loss = make_loss("squared", Y)
    Z = np.zeros((9, 2))
    for w, k, sign in zip(*units, strict=True):
        Z[:, k] += sign * np.maximum(X @ w, 0)
    expected = loss.value(Z) + 0.1 * np.linalg.norm(units.W, axis=1).sum()
    above = network_objective_above(X, loss, 0.1, units, None)
    assert expected * (1 - 1e-14) <= above <= expected * (1 + 1e-12)


# -- the choice of a method


def test_choice_of_a_method(rng):
    X, y = rng.standard_normal((12, 1)), rng.standard_normal(12)
    patterns = cvxnn.sample_patterns(X, 20, bias=True, random_state=0)
    problem = cvxnn.CReLU(X, y, patterns, 0.01, bias=True)
    solution = cvxnn.solve(problem, tol=1e-6)
    assert isinstance(choose_method(problem), OneInput)
    bound = bound_over_all_patterns(problem, solution.weights, solution.dual)
    assert bound.scope == EXACT
    assert "all patterns (exact)" in str(bound)
    assert 0 < bound.lower_bound <= solution.certificate.lower_bound * (1 + 1e-12)
    given = bound_over_all_patterns(problem, solution.weights, solution.dual, "none")
    assert given.scope == GIVEN
    assert not given.over_all_patterns
    np.testing.assert_allclose(given.lower_bound, solution.certificate.lower_bound, rtol=1e-12)
    assert bound_over_all_patterns(problem, solution.weights).lower_bound > 0


def test_sparse_rows_have_the_same_bound(rng):
    X, y = np.round(rng.standard_normal((12, 2))), rng.standard_normal(12)
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    bounds = []
    for data in (X, csr_array(X)):
        problem = cvxnn.CReLU(data, y, patterns, 0.01, singular="keep")
        solution = cvxnn.solve(problem, tol=1e-6)
        bounds.append(bound_over_all_patterns(problem, solution.weights))
    assert bounds[0].scope == bounds[1].scope == EXACT
    np.testing.assert_allclose(bounds[0].lower_bound, bounds[1].lower_bound, rtol=1e-4)


class Clueless:
    """A method that proves nothing."""

    def handles(self, X, n_outputs):
        return True

    def bound(self, X, Theta, lam, *, tol, max_seconds):
        above = np.full(Theta.shape[1], np.inf)
        return PriceBound(above, "all patterns (of nothing)", Neurons.none(X.shape[1]))


class Hasty(OneInput):
    """A method that ends as soon as it has met a price above lam."""

    def bound(self, X, Theta, lam, *, tol, max_seconds):
        found = super().bound(X, Theta, lam)
        early = np.max(found.above) > (1 + tol) * lam
        return found._replace(above=10 * found.above) if early else found


def test_a_method_that_ends_early_tries_again(rng):
    for loss in LOSSES:
        while (problem := small_problem(rng, loss, columns=2)) is None:
            pass
        solution = cvxnn.solve(problem, tol=1e-2, on_failure="ignore")
        exact, hasty = (
            bound_over_all_patterns(problem, solution.weights, 2 * np.asarray(dual), method)
            for method, dual in ((OneInput(), solution.dual), (Hasty(), solution.dual))
        )
        assert hasty.lower_bound <= solution.certificate.objective
        np.testing.assert_allclose(hasty.lower_bound, exact.lower_bound, rtol=1e-5)


def test_a_method_that_proves_nothing_leaves_the_given_patterns(rng):
    X, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    problem = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), 0.01)
    solution = cvxnn.solve(problem, tol=1e-6)
    bound = bound_over_all_patterns(problem, solution.weights, solution.dual, Clueless())
    assert bound.scope == GIVEN
    assert bound.price is None


def test_what_has_no_bound_over_all_patterns(rng):
    X, y = rng.standard_normal((12, 3)), rng.standard_normal(12)
    patterns = cvxnn.sample_patterns(X, 5, random_state=0)
    gated, relu = cvxnn.CGReLU(X, y, patterns, 0.1), cvxnn.CReLU(X, y, patterns, 0.1)
    zero = relu.present(relu.zero_weights())
    with pytest.raises(TypeError, match="for C-ReLU, got C-GReLU"):
        bound_over_all_patterns(gated, gated.zero_weights())
    with pytest.raises(ValueError, match="lam must be positive"):
        bound_over_all_patterns(relu.with_lam(0), zero)
    with pytest.raises(ValueError, match="'exact' cannot prove anything about 12 rows"):
        bound_over_all_patterns(relu, zero, method="exact")
    with pytest.raises(ValueError, match="method"):
        bound_over_all_patterns(relu, zero, method="guess")
    with pytest.raises(ValueError, match="dual must hold finite numbers"):
        bound_over_all_patterns(relu, zero, np.zeros(3))
