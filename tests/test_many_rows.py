"""Products, logarithms and bounds for many rows, against exact integers and mpmath."""

import dataclasses

import mpmath
import numpy as np
import pytest

from cvxnn.rounding import Ball
from cvxnn.verification.dual_points import _Dual, bound_of
from cvxnn.verification.exact import Exact
from cvxnn.verification.limbs import correlations, product
from cvxnn.verification.logarithms import entropies_below, exp_above, log1p, log_of_sum_above
from cvxnn.verification.many_rows import rounded_loss
from cvxnn.verification.programs import LOSSES, PENALTIES, loss_above
from test_dual_points import gradient
from test_programs import make_program

U = 2.0**-53


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(60):
        yield


def spread_numbers(rng, shape, decades):
    numbers = rng.standard_normal(shape) * 10.0 ** rng.uniform(-decades, 0, shape)
    return np.where(rng.random(shape) < 0.1, 0.0, numbers)


@pytest.mark.parametrize("k", [1, 17, 600])
@pytest.mark.parametrize("decades", [0, 6, 40])
def test_products_are_within_an_ulp_of_exact_ones(decades, k):
    rng = np.random.default_rng(k)
    A = spread_numbers(rng, (40, k), decades) * 10.0 ** rng.uniform(-20, 20, k)
    B = spread_numbers(rng, (k, 7), decades) * 10.0 ** rng.uniform(-20, 20, 7)
    B = Exact.of(B) * Exact.of(1 / 3)  # of more bits than a double
    found, exact = product(A, B), Exact.of(A) @ B
    error = abs(exact - Exact.of(found.mid))
    assert np.all((Exact.of(found.rad) - error).ints >= 0)
    terms = (np.abs(A).max(axis=0)[:, None] * np.abs(B.floats())).max(axis=0)
    assert np.all(found.rad <= 2 * U * np.abs(found.mid) + k * 2.0**-56 * terms + 1e-300)


def test_products_of_numbers_without_room_claim_nothing():
    A, B = np.ones((2, 1)), np.ones((1, 1))
    for factor in (1e-70, 1e70, 1e300):
        assert np.all(product(factor * A, Exact.of(B)).rad == np.inf)
        assert np.all(product(A, Exact.of(factor * B)).rad == np.inf)
        assert correlations(factor * A, Exact.of(np.ones((2, 1))), np.ones((2, 1), bool)) is None


def test_products_of_columns_far_apart_hold_or_claim_nothing():
    A, B = np.ones((2, 1)), Exact.of(np.array([[1.0, 1e-290]]))
    found = product(A, B)
    error = abs(Exact.of(A) @ B - Exact.of(found.mid))
    off = np.where(np.isinf(found.rad), 1e300, found.rad)
    assert np.all((Exact.of(off) - error).ints >= 0)


@pytest.mark.parametrize("decades", [0, 6, 60])
def test_correlations_are_as_far_off_as_they_say(decades):
    rng = np.random.default_rng(decades)
    X = spread_numbers(rng, (300, 4), decades) * 10.0 ** rng.uniform(-20, 20, 4)
    T = Exact.of(spread_numbers(rng, (300, 3), decades)) * Exact.of(1 / 3)
    mask = rng.random((300, 9)) < 0.5
    found, off = correlations(X, T, mask)
    for k in range(3):
        exact = (Exact.of(X) * T[:, [k]]).sums_over(mask)
        error = abs(exact - found[:, :, k])
        assert np.all((off[:, k] - error).ints >= 0)
    largest = np.abs(X).max(axis=0)[:, None] * np.abs(T.floats()).max(axis=0)
    assert np.all(off.floats() <= 2.0**-75 * largest)


def doubles(n, low, high):
    return 10.0 ** np.random.default_rng(0).uniform(low, high, n)


def near_the_grid():
    points = np.arange(1, 200) / 128
    return np.concatenate([points, np.nextafter(points, 0), np.nextafter(points, 9)])


def test_logarithms_are_within_their_roundings():
    x = np.concatenate(
        [doubles(2000, -20, 20), doubles(2000, -3, 1), near_the_grid(), [0.0, 1e300]]
    )
    true = [mpmath.log1p(mpmath.mpf(v)) for v in x]
    errors = [abs(a - b) for a, b in zip(log1p(x).tolist(), true, strict=True)]
    assert all(e <= 16 * U * b for e, b in zip(errors, true, strict=True))


def test_exponentials_are_above_and_close():
    x = np.concatenate([doubles(2000, -20, 2.8), near_the_grid(), [0.0]])
    for value, at in zip(exp_above(x).tolist(), x.tolist(), strict=True):
        true = mpmath.exp(-mpmath.mpf(at))
        assert true <= value <= true * (1 + 60 * U)
    assert np.all(exp_above(np.array([701.0, 1e300])) >= float(mpmath.exp(-701)))


def test_logarithms_of_sums_are_above_and_close():
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random((500, 4)) < 0.3, -1e-12, 1.0) * doubles((500, 4), -8, 2.9)
    for value, row in zip(log_of_sum_above(gaps).tolist(), gaps.tolist(), strict=True):
        true = mpmath.log1p(sum(mpmath.exp(-mpmath.mpf(gap)) for gap in row))
        assert true <= value <= true * (1 + 200 * U) + 2 * max(-min(row), 0) + 1e-303


def test_entropies_are_below_and_close():
    shares = doubles((500, 3), -20, 0)
    shares[::7, 0] = 0
    for value, row in zip(entropies_below(shares).tolist(), shares.tolist(), strict=True):
        q = [mpmath.mpf(v) for v in row]
        true = sum(v * mpmath.log(sum(q) / v) for v in q if v)
        assert true * (1 - 100 * U) <= value <= true


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_above_and_close(loss, size):
    program = make_program(loss, 3, n=40)
    rng = np.random.default_rng(0)
    Z, rad = size * rng.standard_normal((40, 3)), 1e-12 * rng.random((40, 3))
    exact = loss_above(program, Exact.of(Z)).above()
    assert exact <= rounded_loss(program, Ball(Z, 0 * rad)) <= exact * (1 + 1e-13)
    with_radius = rounded_loss(program, Ball(Z, rad))
    for _ in range(5):
        other = Z + rad * rng.choice([-0.999, 0.999], Z.shape)
        assert loss_above(program, Exact.of(other)).above() <= with_radius
    assert rounded_loss(program, Ball(Z * np.nan, rad)) == np.inf


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_are_below_exact_ones_and_close(loss, penalty, output_bias):
    program = make_program(loss, 1, n=30, penalty=penalty, output_bias=output_bias, lam=1e-2)
    if penalty == "none":
        program = dataclasses.replace(program, lam=0.0)
    Theta = gradient(program, 1, 0.3)
    exact, how = bound_of(program, Theta, None, None, 1.0)
    found, how_found = bound_of(program, Theta, None, None, 1.0, rounded=True)
    assert "exact" in how
    assert "rounded" in how_found
    assert exact * (1 - 1e-12) <= found <= exact


@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_of_cones_are_below_exact_ones_and_close(loss):
    program = make_program(loss, 2, n=30, cones=True, lam=10.0, output_bias=False)
    Theta = gradient(program, 2, 0.3)
    exact, _ = bound_of(program, Theta, None, None, 1.0)
    found, _ = bound_of(program, Theta, None, None, 1.0, rounded=True)
    assert 0 < exact * (1 - 1e-12) <= found <= exact


def test_a_bound_counts_by_how_much_correlations_are_off():
    program = make_program("squared", 1, n=30, lam=1e-2)
    point = _Dual.of(program, gradient(program, 1), rounded=True)
    assert np.all(point.off.ints > 0)
    exact = _Dual.of(program, gradient(program, 1))
    assert not exact.off.ints.any()
