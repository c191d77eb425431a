"""The compiled products against their NumPy twins; the other kernels are tested with what they
serve."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxnn import native, threads
from cvxnn.operators import ExpandedMatrix

pytestmark = pytest.mark.skipif(
    native.library() is None,
    reason="the compiled kernels were not built: no C compiler at installation",
)

PRECISIONS = st.sampled_from([np.float32, np.float64])


def twins(X, mask):
    """The operator with and without the kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        plain = ExpandedMatrix(X, mask)
    return ExpandedMatrix(X, mask), plain


def assert_close(result, exact, size):
    """Equal up to the rounding of a sum, given the sum of the absolute values."""
    assert result.shape == exact.shape
    rounding = np.finfo(result.dtype).eps * size.max(initial=1.0)
    np.testing.assert_allclose(result, exact, rtol=0, atol=8 * rounding)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (32, 32), (33, 31), (5, 100), (100, 5)])
def test_bits_are_those_of_the_mask(n, p):
    mask = np.random.default_rng(0).random((n, p)) > 0.5
    rows = native.pack_bits(mask)
    columns = native.transpose_bits(rows, n)
    shifts = np.arange(32, dtype=np.uint32)[:, None]
    for bits, expected in ((rows, mask), (columns, mask.T)):
        unpacked = (bits[:, None, :] >> shifts & 1).reshape(-1, expected.shape[1])
        np.testing.assert_array_equal(unpacked[: len(expected)], expected)
        assert not unpacked[len(expected) :].any()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(1, 140),
    st.integers(1, 80),
    st.integers(1, 5),
    PRECISIONS,
    st.integers(0, 10**6),
)
def test_products_agree_with_numpy(n, d, p, C, dtype, seed):
    rng = np.random.default_rng(seed)
    X, mask = rng.standard_normal((n, d)).astype(dtype), rng.random((n, p)) < rng.random()
    U = rng.standard_normal((p, d, C)).astype(dtype) * (rng.random((p, 1, 1)) < rng.random())
    R = rng.standard_normal((n, C)).astype(dtype)
    compiled, plain = twins(X, mask)
    exact, sizes = plain.in_double(), ExpandedMatrix(np.abs(X).astype(float), mask)
    forward, adjoint = compiled.forward(U), compiled.adjoint(R)
    assert forward.dtype == adjoint.dtype == dtype
    assert_close(forward, exact.forward(U.astype(float)), sizes.forward(np.abs(U).astype(float)))
    assert_close(adjoint, exact.adjoint(R.astype(float)), sizes.adjoint(np.abs(R).astype(float)))
    product = np.sum(forward.astype(float) * R), np.sum(U.astype(float) * adjoint)
    size = np.sum(sizes.forward(np.abs(U).astype(float)) * np.abs(R))
    assert abs(product[0] - product[1]) <= 8 * np.finfo(dtype).eps * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_more_rows_than_a_tile_holds(dtype):
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((4100, 3)).astype(dtype), rng.random((4100, 2100)) > 0.5
    compiled, plain = twins(X, mask)
    exact, tolerance = plain.in_double(), 1e4 * np.finfo(dtype).eps
    U, R = rng.standard_normal((2100, 3, 1)), rng.standard_normal((4100, 1))
    U, R = U.astype(dtype), R.astype(dtype)
    np.testing.assert_allclose(compiled.forward(U), exact.forward(U), atol=tolerance)
    np.testing.assert_allclose(compiled.adjoint(R), exact.adjoint(R), atol=tolerance)


def test_single_precision_loses_no_more_digits_than_numpy():
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((3000, 20)).astype(np.float32), rng.random((3000, 2000)) > 0.5
    U, R = rng.standard_normal((2000, 20, 1)), rng.standard_normal((3000, 1))
    U, R = U.astype(np.float32), R.astype(np.float32)
    compiled, plain = twins(X, mask)
    exact = compiled.in_double()
    for name, argument in (("forward", U), ("adjoint", R)):
        right = getattr(exact, name)(argument.astype(float))
        errors = [np.linalg.norm(getattr(o, name)(argument) - right) for o in (compiled, plain)]
        assert errors[0] < 3 * errors[1]
        assert errors[0] < 1e-6 * np.linalg.norm(right)


@pytest.mark.parametrize("C", [1, 3])
def test_threads_do_not_change_the_products(monkeypatch, C):
    rng = np.random.default_rng(0)
    operator = ExpandedMatrix(rng.standard_normal((1501, 21)), rng.random((1501, 1203)) > 0.5)
    U, R = rng.standard_normal((1203, 21, C)), rng.standard_normal((1501, C))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    forward, adjoint = operator.forward(U), operator.adjoint(R)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    parts = []
    share = threads.share

    def counted(run, pieces, *arguments):
        share(lambda part: (parts.append(part), run(part)), pieces, *arguments)

    monkeypatch.setattr(threads, "share", counted)
    np.testing.assert_array_equal(operator.forward(U), forward)
    np.testing.assert_array_equal(operator.adjoint(R), adjoint)
    assert len(parts) == 6


def test_any_memory_layout_will_do():
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((40, 7)), rng.random((40, 50)) > 0.5
    U, R = rng.standard_normal((50, 7, 3)), rng.standard_normal((40, 3))
    compiled, _ = twins(X, mask)
    strided, _ = twins(np.repeat(X, 2, axis=1)[:, ::2], np.asfortranarray(mask))
    expected = compiled.forward(U), compiled.adjoint(R)
    np.testing.assert_array_equal(strided.forward(np.asfortranarray(U)), expected[0])
    np.testing.assert_array_equal(strided.forward(U[:, :, ::-1])[:, ::-1], expected[0])
    np.testing.assert_array_equal(strided.adjoint(np.asfortranarray(R)), expected[1])
    np.testing.assert_array_equal(strided.adjoint(R[:, :1]), expected[1][:, :, :1])


def test_arrays_of_another_shape_are_refused():
    operator = ExpandedMatrix(np.ones((40, 2)), np.ones((40, 70), dtype=bool))
    for shape in ((40, 2, 1), (70, 3, 1)):
        with pytest.raises(ValueError, match="weights of shape"):
            operator.forward(np.ones(shape))
    with pytest.raises(ValueError, match="residuals of shape"):
        operator.adjoint(np.ones((41, 1)))


def test_rows_outside_a_pattern_do_not_matter():
    """Not even if they are not finite, unlike in a product with a matrix of floating numbers."""
    mask = np.ones((40, 3), dtype=bool)
    mask[7, 1] = False
    X = np.ones((40, 2))
    X[7] = np.inf
    adjoint = ExpandedMatrix(X, mask).adjoint(np.ones((40, 1)))
    np.testing.assert_array_equal(adjoint[:, 0, 0], [np.inf, 39, np.inf])


def test_an_operator_goes_on_where_there_are_no_kernels(monkeypatch):
    rng = np.random.default_rng(0)
    operator = ExpandedMatrix(rng.standard_normal((40, 3)), rng.random((40, 9)) > 0.5)
    U, R = rng.standard_normal((9, 3, 1)), rng.standard_normal((40, 1))
    forward, adjoint = operator.forward(U), operator.adjoint(R)
    travelled = pickle.loads(pickle.dumps(operator))
    monkeypatch.setattr(native, "library", lambda: None)
    np.testing.assert_allclose(travelled.forward(U), forward, atol=1e-12)
    np.testing.assert_allclose(travelled.adjoint(R), adjoint, atol=1e-12)


def test_memory_is_two_bits_for_an_entry_of_the_mask():
    operator = ExpandedMatrix(np.ones((640, 2)), np.ones((640, 320), dtype=bool))
    assert operator._float_mask is None
    assert operator._bits.rows.nbytes + operator._bits.columns.nbytes == 640 * 320 // 4
