"""The squared loss and its dual side."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxnn.arrays import to_numpy
from cvxnn.losses import SquaredLoss

rng = np.random.default_rng(0)
Y, Z, Z_NEW = (rng.standard_normal((6, 2)) for _ in range(3))
NO_LIMIT, NO_QUADRATIC = np.full(2, np.inf), np.zeros(2)


def test_value_and_gradient_are_the_formula(to_library):
    loss = SquaredLoss(to_library(Y))
    assert loss.value(to_library(Z)) == pytest.approx(np.sum((Z - Y) ** 2) / 24)
    assert loss.zero_value == pytest.approx(np.sum(Y**2) / 24)
    gradient = to_numpy(loss.gradient(to_library(Z)))
    step = 1e-6 * rng.standard_normal(Z.shape)
    plain = SquaredLoss(Y)
    change = plain.value(Z + step) - plain.value(Z - step)
    assert change == pytest.approx(2 * np.sum(gradient * step), rel=1e-6)


def test_bregman_is_the_divergence_but_does_not_cancel():
    loss = SquaredLoss(Y)
    naive = loss.value(Z_NEW) - loss.value(Z) - np.sum(loss.gradient(Z) * (Z_NEW - Z))
    assert loss.bregman(Z_NEW, Z) == pytest.approx(naive)
    tiny = 1e-9 * np.ones_like(Z)  # the difference of function values would be all rounding
    assert loss.bregman(Z + tiny, Z) == pytest.approx(1e-18 * 12 / 24, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 10), st.floats(0, 3), st.booleans())
def test_best_dual_is_the_best_feasible_scaling(seed, limit, quadratic, coupled):
    draw = np.random.default_rng(seed)
    Theta = draw.standard_normal(Y.shape) / 12
    size = 1 if coupled else 2
    limits, quadratics = np.full(size, limit), np.full(size, quadratic)
    loss = SquaredLoss(Y)

    def dual(tau):
        scaled = tau * Theta
        conjugate = np.sum(scaled * Y) + loss.s / 2 * np.sum(scaled**2)
        return -conjugate - np.sum(tau**2 * quadratics)

    tau, value = loss.best_dual(Theta, limits, quadratics)
    assert np.all(np.abs(tau) <= limit)
    assert value == pytest.approx(dual(tau))
    for _ in range(50):
        assert value >= dual(draw.uniform(-limit, limit, size)) - 1e-12


def test_weak_and_strong_duality_without_a_penalty():
    loss = SquaredLoss(Y)
    Theta = loss.gradient(Z)
    _, bound = loss.best_dual(Theta, NO_LIMIT, NO_QUADRATIC)
    assert bound <= loss.zero_value + 1e-15  # Z = 0 is feasible for every operator
    _, best = loss.best_dual(loss.gradient(np.zeros_like(Y)), NO_LIMIT, NO_QUADRATIC)
    assert best == pytest.approx(loss.zero_value)


def test_zero_candidate_bounds_by_zero(to_library):
    loss = SquaredLoss(to_library(Y))
    zero, limit = to_library(np.zeros_like(Y)), to_library(NO_LIMIT)
    tau, value = loss.best_dual(zero, limit, to_library(NO_QUADRATIC))
    assert value == 0
    assert np.all(to_numpy(tau) == 0)
