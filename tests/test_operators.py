"""The expanded matrix as an object: products, adjoint, norms, kernel, selections, on every array
library and with and without the compiled kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxnn
from conftest import expanded_matrix, make_data, make_problem
from cvxnn import least_squares
from cvxnn.arrays import to_numpy
from cvxnn.budget import Budget, spend
from cvxnn.kernels import native
from cvxnn.least_squares import KernelFactor, lsmr_solve
from cvxnn.operators.dense import ExpandedMatrix


@pytest.fixture(params=["native", "numpy"])
def implementation(request, monkeypatch):
    """Both implementations of the products; the compiled one where it was built."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("the compiled kernels were not built: no C compiler at installation")
    return request.param


def random_operator(n, d, p, seed=0, **settings):
    rng = np.random.default_rng(seed)
    X, mask = rng.standard_normal((n, d)), rng.random((n, p)) > 0.5
    return ExpandedMatrix(X, mask, **settings), mask[:, :, None] * X[:, None, :], rng


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_numpy_products_equal_those_of_the_formed_matrix(n, d, p, C, cached):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        operator, M, rng = random_operator(n, d, p, cache_bytes=2**20 if cached else 0)
    U, R = rng.standard_normal((p, d, C)), rng.standard_normal((n, C))
    np.testing.assert_allclose(operator.forward(U), np.einsum("npd,pdc->nc", M, U), atol=1e-12)
    np.testing.assert_allclose(operator.adjoint(R), np.einsum("npd,nc->pdc", M, R), atol=1e-12)


def test_products_on_every_library(to_library, implementation):
    operator, _, rng = random_operator(20, 3, 8)
    other = ExpandedMatrix(to_library(operator.rows()), operator.mask)
    U, R = rng.standard_normal((8, 3, 2)), rng.standard_normal((20, 2))
    U[:6] = 0  # a majority of zero blocks takes the shorter way
    forward = other.forward(to_library(U))
    assert type(forward) is type(to_library(U))
    np.testing.assert_allclose(to_numpy(forward), operator.forward(U), atol=1e-12)
    np.testing.assert_allclose(
        to_numpy(other.adjoint(to_library(R))), operator.adjoint(R), atol=1e-12
    )
    np.testing.assert_allclose(to_numpy(other.block_norms()), operator.block_norms())
    np.testing.assert_allclose(to_numpy(other.kernel()), operator.kernel())


def test_adjoint_identity(implementation):
    operator, _, rng = random_operator(50, 6, 20)
    U, R = rng.standard_normal((20, 6, 3)), rng.standard_normal((50, 3))
    assert np.sum(operator.forward(U) * R) == pytest.approx(np.sum(U * operator.adjoint(R)))


def test_blocks_of_rows_change_nothing(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    operator, _, rng = random_operator(40, 3, 10)
    U, R = rng.standard_normal((10, 3, 2)), rng.standard_normal((40, 2))
    whole = operator.forward(U), operator.adjoint(R), operator.block_norms(), operator.kernel()
    monkeypatch.setattr("cvxnn.operators.dense._BLOCK", 50)
    for cache_bytes in (2**20, 0):
        small = ExpandedMatrix(operator.rows(), operator.mask, cache_bytes=cache_bytes)
        assert len(list(small._row_blocks(2))) > 3
        parts = small.forward(U), small.adjoint(R), small.block_norms(), small.kernel()
        for part, expected in zip(parts, whole, strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-12)


def test_zero_blocks_are_left_out_and_a_changed_active_set_is_noticed(implementation):
    operator, M, rng = random_operator(30, 4, 20)
    for active in ([3, 5], [3, 5], [3, 6], [], [0, 1, 2], list(range(20))):
        U = np.zeros((20, 4, 1))
        U[active] = rng.standard_normal((len(active), 4, 1))
        np.testing.assert_allclose(operator.forward(U), np.einsum("npd,pdc->nc", M, U), atol=1e-12)


def test_block_norms_and_kernel_against_the_formed_matrix(implementation):
    operator, M, _ = random_operator(25, 4, 9)
    np.testing.assert_allclose(operator.block_norms(), np.sqrt((M**2).sum(axis=(0, 2))))
    flat = M.reshape(25, -1)
    np.testing.assert_allclose(operator.kernel(), flat @ flat.T, atol=1e-12)


def test_passes_are_counted():
    operator, _, _ = random_operator(10, 2, 3)
    some = operator.select(np.array([0, 2])).select(np.array([1]), np.float32)
    with spend(Budget()) as spent:
        operator.forward(np.ones((3, 2, 1)))
        operator.adjoint(np.ones((10, 1)))
        operator.adjoint(np.ones((10, 1)))
        assert (spent.passes.forward, spent.passes.adjoint) == (1, 2)
        with spend(Budget()) as inner:
            for _ in range(3):
                some.forward(np.ones((1, 2, 1), dtype=np.float32))
        assert inner.passes.forward == pytest.approx(1)
        assert spent.passes.forward == pytest.approx(2)
        assert spent.passes.total == 4  # an integer, though thirds do not add up to one
        some.in_double().adjoint(np.ones((10, 1)))
        assert spent.passes.total == 5


@pytest.mark.parametrize("patterns", [[4], [7, 2, 2, 5], [], list(range(8))])
@pytest.mark.parametrize("dtype", [None, np.float32, "float64"])
@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_a_selection_is_the_operator_of_its_patterns(
    to_library, implementation, patterns, dtype, of
):
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((20, 3)).astype(of), rng.random((20, 8)) > 0.5
    operator = ExpandedMatrix(to_library(X), mask)
    some = operator.select(np.array(patterns, dtype=int), dtype)
    precision = np.dtype(of if dtype is None else dtype)
    M = mask[:, patterns, None] * X[:, None, :].astype(precision).astype(float)
    U = rng.standard_normal((len(patterns), 3, 2)).astype(precision)
    R = rng.standard_normal((20, 2)).astype(precision)

    forward, adjoint = some.forward(to_library(U)), some.adjoint(to_library(R))
    assert forward.dtype == adjoint.dtype == to_library(U).dtype
    rounding = 20 * np.finfo(precision).eps
    expected = np.einsum("npd,pdc->nc", M, U)
    np.testing.assert_allclose(to_numpy(forward), expected, atol=rounding)
    np.testing.assert_allclose(to_numpy(adjoint), np.einsum("npd,nc->pdc", M, R), atol=rounding)
    np.testing.assert_allclose(
        to_numpy(some.block_norms()), np.sqrt((M**2).sum(axis=(0, 2))), rtol=rounding
    )
    np.testing.assert_array_equal(some.mask, mask[:, patterns])
    again = to_numpy(some.in_double().forward(to_library(U.astype(float))))
    np.testing.assert_allclose(again, expected, atol=1e-13)


def test_selections_share_data_and_bits(implementation):
    operator, _, _ = random_operator(20, 3, 8)
    assert operator.select(np.array([1])).X is operator.rows()
    first, second = (operator.select(np.array([k]), np.float32) for k in (1, 2))
    assert first.X is second.X
    if implementation == "native":
        single = ExpandedMatrix(operator.rows().astype(np.float32), operator.mask)
        assert single.in_double().bits is single.bits


def test_single_precision_has_a_double_twin(implementation):
    X, _ = make_data(20, 3)
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)
    operator = ExpandedMatrix(X.astype(np.float32), patterns.mask)
    U = np.random.default_rng(0).standard_normal((len(patterns), 3, 1))
    assert operator.forward(U.astype(np.float32)).dtype == np.float32
    exact = operator.in_double().forward(U)
    assert exact.dtype == np.float64
    reference = np.einsum("np,nd,pdc->nc", patterns.mask, X.astype(np.float32).astype(float), U)
    np.testing.assert_allclose(exact, reference, atol=1e-12)


@pytest.mark.parametrize(("n", "p", "d"), [(12, 10, 3), (60, 4, 3)])
@pytest.mark.parametrize("shift", [0.0, 0.7])
@pytest.mark.parametrize("method", ["kernel", "lsmr"])
def test_least_squares_both_ways(n, p, d, shift, method):
    operator, M, rng = random_operator(n, d, p)
    B = rng.standard_normal((n, 2))
    flat = M.reshape(n, -1)
    if method == "kernel":
        U = KernelFactor(operator).solve(B, shift)
    else:
        U, n_iter = lsmr_solve(operator, B, shift, tol=1e-14, max_iter=10_000)
        assert n_iter > 0
    if shift == 0:
        expected = np.linalg.pinv(flat) @ B  # the minimum-norm solution
    else:
        expected = np.linalg.solve(flat.T @ flat + shift * np.eye(p * d), flat.T @ B)
    np.testing.assert_allclose(U.reshape(p * d, 2), expected, atol=1e-8)


def test_range_complement_by_factorizations_the_kernel_and_lsmr(monkeypatch):
    problem = make_problem(n=50, d=3, p=6)
    B = np.random.default_rng(1).standard_normal((50, 2))
    flat = expanded_matrix(problem).reshape(50, -1)
    expected = B - flat @ np.linalg.lstsq(flat, B)[0]
    assert np.linalg.norm(expected) > 0.1
    np.testing.assert_allclose(problem.range_complement(B), expected, atol=1e-12)
    for limit in ("MAX_FACTOR_WORK", "MAX_KERNEL_ROWS"):  # as for a large n
        monkeypatch.setattr(least_squares, limit, 0)
        np.testing.assert_allclose(problem.range_complement(B), expected, atol=1e-8)
    assert list(problem._range_complements) == ["qr", "kernel", "lsmr"]


def test_the_units_of_columns_do_not_change_the_range():
    X = np.random.default_rng(0).standard_normal((40, 4))
    patterns = cvxnn.sample_patterns(X, 3, random_state=0)
    B = np.random.default_rng(1).standard_normal((40, 1))
    units = 10.0 ** np.array([8, 0, -8, 3])
    plain, scaled = (
        cvxnn.CGReLU(data, B, cvxnn.Patterns.from_mask(patterns.mask), lam=0)
        for data in (X, X * units)
    )
    outside = scaled.range_complement(B)
    np.testing.assert_allclose(outside, plain.range_complement(B), atol=1e-12)
    assert np.abs(scaled.operator.adjoint(outside) / units[:, None]).max() < 1e-13
