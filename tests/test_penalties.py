"""Penalties: prox, subgradients and dual norms by their defining properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import PENALTIES
from cvxnn.arrays import to_numpy
from cvxnn.penalties import NoPenalty, make_penalty

LAM = 0.7
NORMS = ("neuron", "feature", "l1")


def random_weights(seed, scale=1.0, zeros=0.3):
    rng = np.random.default_rng(seed)
    U = scale * rng.standard_normal((4, 3, 2))
    U[rng.random(4) < zeros] = 0
    return U


def naive_value(name, U):
    if name == "neuron":
        return LAM * sum(np.linalg.norm(U[i, :, k]) for i in range(4) for k in range(2))
    if name == "feature":
        return LAM * sum(np.linalg.norm(U[:, j, :]) for j in range(3))
    if name == "l1":
        return LAM * np.abs(U).sum()
    return LAM / 2 * (U**2).sum()


@pytest.mark.parametrize("name", PENALTIES)
def test_value_is_the_formula(name, to_library):
    U = random_weights(0)
    penalty = make_penalty(name, LAM)
    assert penalty.value(to_library(U)) == pytest.approx(naive_value(name, U))


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), step=st.floats(1e-3, 10), scale=st.floats(1e-3, 10))
def test_prox_minimises_its_objective(name, seed, step, scale):
    """prox(U) beats random nearby points, and U - prox(U) is step times a subgradient."""
    penalty, U = make_penalty(name, LAM), random_weights(seed, scale)
    V = penalty.prox(U, step)

    def objective(W):
        return np.sum((W - U) ** 2) / 2 + step * penalty.value(W)

    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2, 1.0):
        W = V + size * scale * rng.standard_normal(U.shape)
        assert objective(V) <= objective(W) + 1e-12 * objective(U)
    optimality = penalty.min_norm_subgradient(V, (V - U) / step)
    assert np.linalg.norm(optimality) <= 1e-9 * (1 + np.linalg.norm(U) / step)


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_prox_is_firmly_non_expansive(name, seed):
    penalty = make_penalty(name, LAM)
    A, B = random_weights(seed), random_weights(seed + 1)
    a, b = penalty.prox(A, 0.5), penalty.prox(B, 0.5)
    assert np.sum((a - b) ** 2) <= np.sum((a - b) * (A - B)) + 1e-12


@pytest.mark.parametrize("name", PENALTIES)
def test_min_norm_subgradient_is_a_subgradient_and_the_smallest(name):
    """Against random elements of the subdifferential, and the subgradient inequality."""
    penalty = make_penalty(name, LAM)
    U = random_weights(3)
    U[:, 1, :] = 0  # a zero group for every kind of group
    rng = np.random.default_rng(0)
    G = rng.standard_normal(U.shape)
    S = penalty.min_norm_subgradient(U, G)
    for _ in range(200):
        W = U + rng.standard_normal(U.shape) * 10 ** rng.uniform(-3, 1)
        slack = penalty.value(W) - penalty.value(U) - np.sum((S - G) * (W - U))
        assert slack >= -1e-10
    # moving against S is the direction of steepest descent: the derivative is -||S||^2
    h = 1e-7
    change = (penalty.value(U - h * S) - penalty.value(U) - h * np.sum(G * S)) / h
    assert change == pytest.approx(-np.sum(S * S), rel=1e-4)


@pytest.mark.parametrize("name", NORMS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_dual_norm_is_dual(name, seed):
    """<G, U> <= dual_norm(G) ||U|| class by class, with equality for some U."""
    penalty = make_penalty(name, LAM)
    G, U = random_weights(seed, zeros=0), random_weights(seed + 1)
    bound = np.max(penalty.dual_norm(G))
    assert np.sum(G * U) <= bound * penalty.value(U) / LAM + 1e-10
    norms = np.broadcast_to(penalty.group_norms(G), G.shape)
    aligned = np.where(norms == norms.max(), G, 0)
    attained = np.sum(G * aligned) / (penalty.value(aligned) / LAM)
    assert attained == pytest.approx(bound)


@pytest.mark.parametrize("name", NORMS)
def test_dual_limit_scales_to_the_boundary(name, to_library):
    penalty = make_penalty(name, LAM)
    G = random_weights(5, zeros=0)
    limit = to_numpy(penalty.dual_limit(to_library(G)))
    np.testing.assert_allclose(penalty.dual_norm(limit[None, None, :] * G), LAM)
    assert np.all(np.isinf(to_numpy(penalty.dual_limit(to_library(0 * G)))))


def test_l2_conjugate_is_the_supremum():
    penalty, G = make_penalty("l2", LAM), random_weights(7)
    U = G / LAM  # where the supremum of <G, U> - g(U) is attained
    assert np.sum(penalty.conjugate(G)) == pytest.approx(np.sum(G * U) - penalty.value(U))


@pytest.mark.parametrize("name", [*PENALTIES, "none"])
def test_zero_strength_is_no_penalty(name):
    penalty = make_penalty(name, 0.0)
    assert isinstance(penalty, NoPenalty)
    U = random_weights(0)
    assert penalty.value(U) == 0
    assert penalty.prox(U, 3.0) is U
    np.testing.assert_array_equal(penalty.min_norm_subgradient(U, 2 * U), 2 * U)


@pytest.mark.parametrize("name", PENALTIES)
def test_libraries_agree(name, to_library):
    penalty, U, G = make_penalty(name, LAM), random_weights(1), random_weights(2)
    np.testing.assert_allclose(to_numpy(penalty.prox(to_library(U), 0.3)), penalty.prox(U, 0.3))
    np.testing.assert_allclose(
        to_numpy(penalty.min_norm_subgradient(to_library(U), to_library(G))),
        penalty.min_norm_subgradient(U, G),
    )
    np.testing.assert_allclose(to_numpy(penalty.conjugate(to_library(G))), penalty.conjugate(G))


def test_single_precision_stays_single():
    U = random_weights(0).astype(np.float32)
    for name in PENALTIES:
        penalty = make_penalty(name, LAM)
        assert penalty.prox(U, 0.1).dtype == np.float32
        assert penalty.min_norm_subgradient(U, U).dtype == np.float32
