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


def test_conjugate_is_the_supremum(to_library):
    """f*(Theta) = max_Z <Theta, Z> - f(Z), attained at the conjugate's gradient."""
    plain, loss = SquaredLoss(Y), SquaredLoss(to_library(Y))
    Theta = rng.standard_normal(Y.shape)
    best = to_numpy(loss.conjugate_gradient(to_library(Theta)))
    value = loss.conjugate(to_library(Theta))
    assert value == pytest.approx(np.sum(Theta * best) - plain.value(best))
    for scale in (1e-3, 1.0, 1e3):
        other = best + scale * rng.standard_normal(Y.shape)
        assert value > np.sum(Theta * other) - plain.value(other)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_fenchel_young(seed, scale):
    """f(Z) + f*(Theta) >= <Z, Theta>, with equality if and only if Theta = grad f(Z)."""
    draw = np.random.default_rng(seed)
    targets, point = scale * draw.standard_normal((2, 5, 3))
    loss = SquaredLoss(targets)
    gradient = loss.gradient(point)
    np.testing.assert_allclose(loss.conjugate_gradient(gradient), point, atol=1e-13 * 5 * scale)
    value = loss.value(point)
    size = value + abs(loss.conjugate(gradient)) + np.sum(np.abs(gradient * point))
    touching = value + loss.conjugate(gradient) - np.sum(gradient * point)
    assert abs(touching) <= 1e-13 * size
    step = draw.standard_normal((5, 3)) * scale / loss.s
    excess = value + loss.conjugate(gradient + step) - np.sum((gradient + step) * point)
    assert excess == pytest.approx(loss.s / 2 * np.sum(step**2), rel=1e-6)


def test_conjugate_derivatives_are_those_of_its_values(to_library):
    plain, loss = SquaredLoss(Y), SquaredLoss(to_library(Y))
    Theta, step = rng.standard_normal((2, *Y.shape))
    h = 1e-4 * step
    slope = plain.conjugate(Theta + h) - plain.conjugate(Theta - h)
    gradient = to_numpy(loss.conjugate_gradient(to_library(Theta)))
    assert slope == pytest.approx(2 * np.sum(gradient * h), rel=1e-8)
    curvature = to_numpy(loss.conjugate_curvature(to_library(Theta)))
    assert curvature.shape == Y.shape
    change = plain.conjugate_gradient(Theta + h) - plain.conjugate_gradient(Theta - h)
    np.testing.assert_allclose(change, 2 * curvature * h, rtol=1e-8)


def test_single_outputs_add_up_to_the_loss(to_library):
    """As do their conjugates, dual bounds and all: the scaling 1/(2 n C) stays that of all."""
    loss = SquaredLoss(to_library(Y))
    parts = loss.by_output()
    Theta = rng.standard_normal(Y.shape) / 12
    assert len(parts) == Y.shape[1]
    assert sum(part.zero_value for part in parts) == pytest.approx(loss.zero_value)
    columns = [(part, Z[:, [k]], Theta[:, [k]]) for k, part in enumerate(parts)]
    assert sum(part.value(z) for part, z, _ in columns) == pytest.approx(loss.value(to_library(Z)))
    conjugate = loss.conjugate(to_library(Theta))
    assert sum(part.conjugate(t) for part, _, t in columns) == pytest.approx(conjugate)
    limit, none = np.array([0.7]), np.zeros(1)
    bounds = [part.best_dual(t, limit, none)[1] for part, _, t in columns]
    both = to_library(np.full(2, 0.7)), to_library(np.zeros(2))
    assert sum(bounds) == pytest.approx(loss.best_dual(to_library(Theta), *both)[1])
    for name, argument in (("gradient", Z), ("conjugate_gradient", Theta)):
        whole = to_numpy(getattr(loss, name)(to_library(argument)))
        pieces = [getattr(part, name)(argument[:, [k]]) for k, part in enumerate(parts)]
        np.testing.assert_allclose(np.hstack(pieces), whole)


def test_single_outputs_are_in_double_precision():
    parts = SquaredLoss(Y.astype(np.float32)).by_output()
    assert all(part.Y.dtype == np.float64 for part in parts)
