"""Integers that do not round: against fractions, and logarithms and exponentials against mpmath."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from cvxnn.verification import exact
from cvxnn.verification.exact import ERROR, LN2, PLACES, Exact


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(900):
        yield


UNIT = mpmath.mpf(2) ** PLACES  # exact in any precision


def fractions(numbers):
    """Exact numbers as an object array of fractions."""
    scale = Fraction(2) ** numbers.exponent
    return np.vectorize(lambda i: Fraction(int(i)) * scale, otypes=[object])(numbers.ints)


def of_doubles(array):
    return np.vectorize(Fraction, otypes=[object])(array)


def wild(rng, shape, width=300):
    """Doubles of all sizes, some of them zero."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-width, width, shape)
    return np.where(rng.random(shape) < 0.1, 0.0, values)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_doubles_are_taken_as_they_are(rng):
    edges = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, 0.1]
    for array in (wild(rng, (7, 5), 500), np.array(edges), np.zeros(3), np.zeros((0, 2))):
        assert np.all(fractions(Exact.of(array)) == of_doubles(array)) or not array.size
    assert fractions(Exact.of(0.1))[()] == Fraction(0.1)
    assert Exact.of(np.array([True, False])).ints.tolist() == [1, 0]  # no bit more than needed


def test_sums_and_products_do_not_round(rng):
    a, b = wild(rng, (6, 4)), wild(rng, (6, 4))
    A, B, x, y = Exact.of(a), Exact.of(b), of_doubles(a), of_doubles(b)
    for found, expected in (
        (A + B, x + y),
        (A - B, x - y),
        (A * B, x * y),
        (-A, -x),
        (abs(A), abs(x)),
        (A.sum(axis=0), x.sum(axis=0)),
        ((A * B).sum(), (x * y).sum()),
        (abs(A).max(axis=1), abs(x).max(axis=1)),
        (A.times_two_to(-3), x / 8),
        (A[:, 1:] + B[0, 0], x[:, 1:] + y[0, 0]),
    ):
        assert np.all(fractions(found) == expected)


@pytest.mark.parametrize("widths", [(1, 1), (20, 300), (300, 2), (300, 300)])
@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 1), (3, 200, 2), (2, 0, 3), (4, 3, 0)])
def test_matrix_products_do_not_round(shape, widths, rng):
    n, m, k = shape
    a, b = wild(rng, (n, m), widths[0]), wild(rng, (m, k), widths[1])
    expected = np.zeros((n, k), dtype=object) + Fraction(0)
    for i, j in itertools.product(range(n), range(k)):
        expected[i, j] = sum(
            (Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)), Fraction(0)
        )
    assert np.all(fractions(Exact.of(a) @ Exact.of(b)) == expected) or not expected.size


def test_limbs_fill_a_double_and_no_more(rng):
    """The largest sums there can be: every bit of every limb is set."""
    for n in (1, 2, 3, 7, 8, 1000, 1023, 1024, 1025):
        ones = Exact(np.full((1, n), (1 << 500) - 1, dtype=object))
        assert (ones @ ones.T).ints[0, 0] == n * ((1 << 500) - 1) ** 2
        bits = Exact(np.ones((1, n), dtype=object))
        assert (bits @ ones.T).ints[0, 0] == n * ((1 << 500) - 1)


def test_rounding_to_doubles_goes_outward(rng):
    values = [Fraction(int(i), 2**j) for i in rng.integers(-(2**62), 2**62, 50) for j in (3, 900)]
    tiny = [Fraction(s, 2**1100) for s in (-3, -1, 0, 1, 3)]
    for value in [*values, *tiny, Fraction(2) ** 1023, Fraction(3)]:
        power = 2 ** max(value.denominator.bit_length() - 1, 0)
        number = Exact(int(value * power), -(power.bit_length() - 1))
        low, high = number.below(), number.above()
        assert Fraction(low) <= value <= Fraction(high)
        assert high in (low, math.nextafter(low, math.inf))
    huge = Exact(3, 1023)
    assert huge.above() == math.inf == -(-huge).below()
    assert huge.below() == math.nextafter(math.inf, 0)


def test_quotients_and_roots_are_enclosed(rng):
    for a, b in np.abs(wild(rng, (200, 2))):
        if b == 0:
            continue
        low, high = (exact.quotient(Exact.of(a), Exact.of(b), up=up) for up in (False, True))
        low, high, true = fractions(low)[()], fractions(high)[()], Fraction(a) / Fraction(b)
        assert low <= true <= high <= low * (1 + Fraction(1, 2 ** (PLACES - 1)))
        low, high = (fractions(exact.root(Exact.of(a), up=up))[()] for up in (False, True))
        assert low**2 <= Fraction(a) <= high**2
        assert high <= low * (1 + Fraction(1, 2 ** (PLACES - 1)))
    assert exact.root(Exact.of(9.0), up=True).above() == 3.0
    a, b = np.abs(wild(rng, (5, 3))), np.abs(wild(rng, (5, 1))) + 2.0**-300
    low, high = (fractions(exact.quotients(Exact.of(a), Exact.of(b), up=u)) for u in (False, True))
    true = of_doubles(a) / of_doubles(b)
    assert np.all((low <= true) & (true <= high))
    assert np.all(high - low <= true.max() / 2 ** (PLACES - 1))


def numbers(rng, count):
    """Integers of all lengths, and what is just above or below powers of two."""
    found = [int(rng.integers(1, 2**62)) << int(rng.integers(0, 2000)) for _ in range(count)]
    return found + [2**k + s for k in (70, 200, 1500) for s in (-1, 0, 1)]


def test_logarithms_are_within_their_error(rng):
    worst = abs(mpmath.log(2) * UNIT - LN2)
    for a, b in zip(numbers(rng, 400), numbers(rng, 400)[::-1], strict=True):
        a, b = max(a, b), min(a, b)
        worst = max(worst, abs(mpmath.log(mpmath.mpf(a) / b) * UNIT - exact.log_quotient(a, b)))
    for near in (1, 2**40, 2**100):  # a quotient close to one
        a = 2**200 + near
        error = mpmath.log(mpmath.mpf(a) / 2**200) * UNIT - exact.log_quotient(a, 2**200)
        worst = max(worst, abs(error))
    assert worst < ERROR / 4
    with pytest.raises(OverflowError):
        exact.log_quotient(1 << 5000, 1)


def test_exponentials_are_within_their_error(rng):
    worst = 0
    for x in [*(rng.random(300) ** 4 * 840), 0.0, 1e-300, 700.0, 839.9, math.log(2)]:
        a = int(Fraction(x) * 2**PLACES)
        true = mpmath.exp(-mpmath.mpf(a) / UNIT) * UNIT * mpmath.mpf(2) ** (a // LN2)
        worst = max(worst, abs(true - exact.exp_minus(a)))
    assert worst < ERROR / 4
    with pytest.raises(OverflowError):
        exact.exp_minus(1 << (PLACES + 12))


def test_entropies_are_from_below_and_close(rng):
    wholes = [int(i) << 1200 for i in rng.integers(1, 2**62, 100)]
    shares = [Fraction(1, 2), *(Fraction(float(s)) for s in 10.0 ** -rng.uniform(0, 300, 99))]
    for whole, share in zip(wholes, shares, strict=True):
        small = int(whole * share)
        for part in (small, whole - small, 1, whole - 1):
            true = part * mpmath.log(mpmath.mpf(whole) / part)
            found = mpmath.mpf(exact.entropy(part, whole)) / UNIT
            assert 0 <= found <= true
            assert true - found <= true / 2**60
    assert exact.entropy(0, 5) == exact.entropy(5, 5) == 0


@pytest.mark.parametrize("count", [0, 1, 5])
def test_logarithms_of_sums_are_from_above_and_close(count, rng):
    for size in (1e-300, 1e-9, 1.0, 40.0, 300.0, 700.0, 5000.0, 1e300):
        a = np.abs(rng.standard_normal(count)) * size
        gaps = Exact.of(a)
        found = exact.log_of_sum(list(gaps.ints), gaps.exponent)
        found = mpmath.mpf(int(found.ints)) * mpmath.mpf(2) ** found.exponent
        true = mpmath.log1p(sum((mpmath.exp(-mpmath.mpf(x)) for x in a), mpmath.mpf(0)))
        assert true <= found
        assert found - true <= true / 2**60 + count * mpmath.mpf(2) ** -1199


@pytest.mark.parametrize("n", [1, 7, 300])
def test_sums_over_masks_are_exact(n, rng, monkeypatch):
    monkeypatch.setattr(exact, "_BLOCK", 2 * n)  # two patterns at a time
    values = rng.standard_normal((n, 3)) * 10.0 ** rng.uniform(-30, 30, (n, 3))
    mask = rng.random((n, 5)) < 0.5
    found = Exact.of(values).sums_over(mask)
    assert found.ints.shape == (5, 3)
    for i, on in enumerate(mask.T):
        for k in range(3):
            true = sum(map(Fraction, values[on, k].tolist()), Fraction(0))
            assert Fraction(int(found.ints[i, k])) * Fraction(2) ** found.exponent == true
