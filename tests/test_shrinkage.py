"""The prox of norms, in the plain metric and in others."""

import numpy as np
import pytest

from cvxnn.solvers.shrinkage import shrink, shrink_in_metric


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_the_prox_is_optimal_in_its_metric(spread, dtype):
    """0 is in t u / ||u|| + h o (u - w), or ||h o w|| <= t where u = 0."""
    rng = np.random.default_rng(0)
    W, h = rng.standard_normal((200, 9)), np.exp(spread * rng.standard_normal(9))
    sizes = np.linalg.norm(h * W, axis=1)
    at_zero, elsewhere = (1e-5, 1e-3) if dtype == np.float32 else (1e-12, 1e-10)
    for t in np.quantile(sizes, [0.0, 0.5, 0.99, 1.0]):
        U = shrink_in_metric(W.astype(dtype), t, h).astype(float)
        zero = ~np.any(np.abs(U) > 1e-150, axis=1)
        assert np.all(sizes[zero] <= t * (1 + at_zero))
        assert np.all(sizes[~zero] >= t * (1 - at_zero))
        U, W_live = U[~zero], W[~zero]
        length = np.linalg.norm(U, axis=1, keepdims=True)
        slope = t * U / length + h * (U - W_live)
        assert np.all(np.linalg.norm(slope, axis=1) <= elsewhere * sizes[~zero])
    np.testing.assert_array_equal(shrink_in_metric(W, 0.0, h), W)


def test_a_metric_of_ones_is_the_plain_one():
    W = np.random.default_rng(0).standard_normal((50, 4)) * np.logspace(-200, 100, 50)[:, None]
    for t in (1e-250, 1e-60, 1.0):
        plain, other = shrink(W, t), shrink_in_metric(W, t, np.ones(4))
        np.testing.assert_allclose(other, plain, rtol=1e-12)
        assert not np.isnan(other).any()


@pytest.mark.parametrize("excess", [1e-15, 1e-9, 1e-3, 1e3])
def test_rows_that_are_hardly_longer_than_the_threshold(excess):
    """The search for their norm starts far above it."""
    rng = np.random.default_rng(0)
    W, h = rng.standard_normal((100, 30)), np.logspace(0, -8, 30)
    W *= (1 + excess) / np.linalg.norm(h * W, axis=1, keepdims=True)
    U = shrink_in_metric(W, 1.0, h)
    length = np.linalg.norm(U, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(length > 0, U / length + h * (U - W), 0.0)
    assert np.all(np.linalg.norm(slope, axis=1) <= 1e-9 * (1 + excess))
