"""Patterns as bits: what is packed comes out again, in both implementations."""

import numpy as np
import pytest

from cvxnn.bits import Bits
from cvxnn.kernels import native

SIZES = [(1, 1), (31, 3), (32, 33), (33, 32), (100, 70), (2000, 5)]


@pytest.fixture(params=["native", "numpy"], autouse=True)
def implementation(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("the kernels are not compiled")


def some_mask(n, p):
    return np.random.default_rng(0).random((n, p)) > 0.6


@pytest.mark.parametrize(("n", "p"), SIZES)
def test_a_mask_comes_out_as_it_went_in(n, p):
    mask = some_mask(n, p)
    bits = Bits.of(mask)
    assert bits.shape == (n, p)
    assert bits.rows.nbytes == 4 * -(-n // 32) * p
    np.testing.assert_array_equal(bits.mask(), mask)
    np.testing.assert_array_equal(bits.by_pattern(), mask.T)
    rows, patterns = np.array([n - 1, 0, n // 2]), np.array([p - 1, 0])
    np.testing.assert_array_equal(bits.mask(rows), mask[rows])
    np.testing.assert_array_equal(bits.mask(slice(n // 3, n)), mask[n // 3 :])
    np.testing.assert_array_equal(bits.by_pattern(patterns), mask[:, patterns].T)
    np.testing.assert_array_equal(bits.select(patterns).mask(), mask[:, patterns])
    np.testing.assert_array_equal(bits.used_rows(), mask.any(axis=1))


def test_both_implementations_pack_the_same_words(monkeypatch):
    mask = some_mask(77, 40)
    words = Bits.of(mask).rows
    monkeypatch.undo()
    np.testing.assert_array_equal(Bits.of(mask).rows, words)


@pytest.mark.parametrize("step", [32, 64, 96])
def test_bits_are_put_and_taken_by_rows(step):
    mask = some_mask(150, 9)
    bits = Bits.empty(150, 9)
    for start in range(0, 150, step):
        rows = slice(start, min(start + step, 150))
        bits.put(mask[rows], rows)
        np.testing.assert_array_equal(bits.of_rows(rows).mask(), mask[rows])
    np.testing.assert_array_equal(bits.mask(), mask)


def test_equal_patterns_are_found():
    mask = some_mask(70, 4)[:, [0, 1, 0, 2, 3, 1]]
    mask[:, 3] = False
    keep, position = Bits.of(mask).distinct()
    assert keep.tolist() == [0, 1, 4]
    assert position.tolist() == [0, 1, 0, -1, 2, 1]
    both = Bits.of(mask[:, :2]).join(Bits.of(mask[:, 2:]))
    np.testing.assert_array_equal(both.mask(), mask)
    assert both.keys() == Bits.of(mask).keys()


@pytest.mark.parametrize("n", [1, 8, 31, 32, 33, 1000])
def test_octets_are_those_of_numpy(n):
    mask = np.random.default_rng(n).random((n, 7)) < 0.5
    octets = Bits.of(mask).octets()
    np.testing.assert_array_equal(octets, np.packbits(mask, axis=0))
    again = Bits.of_octets(octets | (0 if n % 8 == 0 else [[0]] * (len(octets) - 1) + [[1]]), n)
    np.testing.assert_array_equal(again.mask(), mask)  # bits beyond the last row do not count
    np.testing.assert_array_equal(again.rows, Bits.of(mask).rows)
