"""Balls hold the real result of every operation; logs, exponentials and entropies their bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxnn import rounding
from cvxnn.rounding import TINY, UNIT, Ball

NUMBERS = st.floats(-1e150, 1e150, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-150)


@pytest.fixture(autouse=True)
def precision():
    before = ctx.prec
    ctx.prec = 2000
    yield
    ctx.prec = before


def holds(ball, exact):
    """Whether the ball holds the exact number, in rational arithmetic."""
    mid, rad = Fraction(float(ball.mid)), Fraction(float(ball.rad))
    return abs(exact - mid) <= rad


@settings(max_examples=200, deadline=None)
@given(a=NUMBERS, b=NUMBERS, r=st.floats(0, 1e-3), s=st.floats(0, 1e-3), at=st.floats(-1, 1))
def test_operations_hold_their_results(a, b, r, s, at):
    x, y = Ball(np.float64(a), np.float64(r * abs(a))), Ball(np.float64(b), np.float64(s * abs(b)))
    inside = [Fraction(float(z.mid)) + Fraction(at) * Fraction(float(z.rad)) for z in (x, y)]
    assert holds(x + y, sum(inside))
    assert holds(x - y, inside[0] - inside[1])
    assert holds(-x, -inside[0])
    if abs(a * b) < 1e290:
        assert holds(x * y, inside[0] * inside[1])
    if b != 0 and abs(a / b) < 1e290:
        assert holds(x / np.float64(b), inside[0] / Fraction(b))


@given(a=st.floats(-1e-160, 1e-160), b=st.floats(-1e-160, 1e-160))
def test_products_that_underflow(a, b):
    assert holds(Ball(np.float64(a)) * b, Fraction(a) * Fraction(b))


def test_exact_results_have_no_radius():
    """Zero stays zero, and differences of neighbours are exact."""
    x = np.array([0.0, 1e9 + 0.5, -3.0])
    assert np.all((Ball(x) - (x + np.array([0, 1e-3, 1]))).rad == 0)
    assert np.all((Ball(np.zeros(3)) * x).rad == 0)
    assert (Ball(np.zeros(3)) * x).sum().above() == 0


@pytest.mark.parametrize("shape", [(1,), (7,), (1000,), (33, 4)])
@pytest.mark.parametrize("axis", [None, 0])
def test_sums_hold_their_results(shape, axis):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-20, 20, shape)
    total = Ball(x, np.abs(x) * 1e-3).sum(axis)
    columns = x.reshape(len(x), -1).T if axis == 0 else x.reshape(1, -1)
    for mid, rad, column in zip(np.ravel(total.mid), np.ravel(total.rad), columns, strict=True):
        exact = sum(map(Fraction, column.tolist()))
        spread = sum(Fraction(float(r)) for r in np.abs(column) * 1e-3)
        assert abs(exact - Fraction(float(mid))) + spread <= Fraction(float(rad))
    plain = Ball(x).sum(axis)
    size = np.sum(np.abs(x), axis=axis)
    assert np.all(plain.rad <= 20 * UNIT * size)  # and is no larger than it has to be


def test_ends_are_rounded_outwards():
    ball = Ball(np.array([1.0, 1.0, 0.0]), np.array([UNIT / 4, 0.0, 1e-300]))
    assert ball.above()[0] > 1
    assert ball.above()[1] == ball.below()[1] == 1
    assert ball.below()[0] < 1
    assert ball.below()[2] <= -1e-300


def points():
    rng = np.random.default_rng(0)
    near_one = 1 + rng.uniform(-1, 1, 300) * 10.0 ** rng.uniform(-16, 0, 300)
    return np.concatenate([near_one[near_one > 0], 10.0 ** rng.uniform(-300, 300, 300), [1.0, 2.0]])


def test_logarithms_are_as_exact_as_they_say():
    x = points()
    for value, argument in zip(rounding.log(x), x, strict=True):
        exact = arb(float(argument)).log()
        assert bool(abs(arb(float(value)) - exact) <= arb(16 * UNIT) * abs(exact)) or argument == 1
    t = np.concatenate([10.0 ** np.linspace(-300, 6, 400), [0.0, 1.0]])
    for value, argument in zip(rounding.log1p(t), t, strict=True):
        exact = arb(float(argument)).log1p()
        assert bool(abs(arb(float(value)) - exact) <= arb(16 * UNIT) * exact)


def test_exponentials_and_softplus_are_above_by_little():
    x = np.concatenate([-(10.0 ** np.linspace(-20, 2.9, 400)), [0.0, 1e-16, 1e-3, -1e9]])
    for value, argument in zip(rounding.exp_above(x), x, strict=True):
        exact = arb(float(argument)).exp()
        assert bool(arb(float(value)) >= exact)
        assert bool(arb(float(value)) <= exact * (1 + arb(40 * UNIT)) + arb(2 * TINY))
    both = np.concatenate([x, -x[x > -1e3]])
    for value, argument in zip(rounding.softplus_above(both), both, strict=True):
        exact = arb(float(argument)).exp().log1p()
        assert bool(arb(float(value)) >= exact)
        assert bool(arb(float(value)) <= exact * (1 + arb(100 * UNIT)) + arb(8 * TINY))


def test_entropies_are_below_by_little():
    q = np.concatenate([10.0 ** np.linspace(-280, 0, 400), 1 - 10.0 ** np.linspace(-15.9, -1, 200)])
    for value, argument in zip(rounding.entropy_below(q), q, strict=True):
        exact = -arb(float(argument)) * arb(float(argument)).log()
        assert bool(arb(float(value)) <= exact)
        assert bool(arb(float(value)) >= exact * (1 - arb(80 * UNIT)))
    assert rounding.entropy_below(np.array([0.0, 1e-300])).tolist() == [0, 0]
    for value, argument in zip(rounding.rest_entropy_below(q), q, strict=True):
        rest = 1 - arb(float(argument))
        exact = -rest * rest.log() if argument < 1 else arb(0)
        assert bool(arb(float(value)) <= exact)
        assert bool(arb(float(value)) >= exact * (1 - arb(80 * UNIT)) - 8 * arb(UNIT) * rest)
    for beyond in (1e-20, 1e-9, 0.5):
        rest = 1 + arb(beyond)
        assert bool(
            arb(float(rounding.rest_entropy_below(np.float64(-beyond)))) <= -rest * rest.log()
        )


def candidates():
    rng = np.random.default_rng(3)
    for n in (2, 3, 10, 200):
        for spread in (0, 3, 24):
            theta = rng.standard_normal(n) * 10.0 ** rng.uniform(-spread / 2, spread / 2, n)
            theta[0] -= theta.sum()
            yield theta
    yield np.array([1e12, -1e12, 1e-12, 3e-13])
    yield np.array([0.1, 0.2, -0.3])
    yield np.array([1e-200, -3e-200, 2e-200 + 1e-216])


@pytest.mark.parametrize("theta", list(candidates()), ids=len)
def test_zero_sums_are_exact(theta):
    """The doubles stand for themselves, less their exact sum in one entry; no sign changes."""
    doubles, point = rounding.zero_sum(theta)
    left = sum(map(Fraction, doubles.tolist()))
    exact = list(map(Fraction, doubles.tolist()))
    if left != 0:
        exact[np.argmax(doubles * np.sign(math.fsum(doubles)))] -= left
    assert sum(exact) == 0
    for mid, rad, value, given_value in zip(point.mid, point.rad, exact, theta, strict=True):
        assert abs(value - Fraction(mid)) <= Fraction(rad)
        assert value * Fraction(given_value) >= 0
    assert np.abs(point.mid - theta).sum() <= 1e-13 * np.abs(theta).sum()
    np.testing.assert_array_equal(rounding.zero_sum(doubles)[0], doubles)


def test_what_cannot_be_balanced_is_zero():
    for theta in ([1.0, 2.0, 1.5], [1e-200, 1e-170]):
        doubles, point = rounding.zero_sum(np.array(theta))
        assert not doubles.any()
        assert not point.mid.any()


def test_leading_bits_multiply_exactly():
    rng = np.random.default_rng(0)
    n, bits = 1000, 21
    X, t = rng.standard_normal((n, 3)) * [1, 1e8, 1e-8], rng.standard_normal((n, 1)) * 1e-5
    X1, t1 = rounding.leading_bits(X, bits, 0), rounding.leading_bits(t, bits, 0)
    assert np.all(np.abs(X - X1) <= np.max(np.abs(X), axis=0) * 2.0**-bits)
    order = rng.permutation(n)
    np.testing.assert_array_equal(X1.T @ t1, X1[order].T @ t1[order])
    exact = [sum(Fraction(a) * Fraction(b) for a, b in zip(x, t1[:, 0], strict=True)) for x in X1.T]
    assert [Fraction(value) for value in (X1.T @ t1)[:, 0]] == exact


def test_sums_of_too_many_terms_are_refused():
    with pytest.raises(OverflowError, match="no useful error bound"):
        rounding.slack(1e13)
