"""The losses against their formulas: values, derivatives, divergences, square roots of Hessians,
lower bounds, sample weights and output biases."""

import subprocess
import sys
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import expit, logsumexp, softmax, xlogy
from scipy.special import huber as huber_function

from cvxnn.arrays import array_namespace, to_numpy
from cvxnn.kernels import native
from cvxnn.losses import LOSSES, HuberLoss, SquaredLoss, make_loss
from cvxnn.losses.likelihoods import LogisticLoss

DELTA = 0.8
N, C = 9, 3
WEIGHTS = {"equal": None, "weighted": np.random.default_rng(7).uniform(0.2, 5, N)}
NO_LIMIT, NO_QUADRATIC = np.full(C, np.inf), np.zeros(C)

getcontext().prec = 200


def make_targets(name, seed=0, n=N, C=C):
    """Targets of each kind: every class occurs, and half of the probabilities are not 0 or 1."""
    rng = np.random.default_rng(seed)
    if name == "logistic":
        Y = rng.choice([-1.0, 1.0], (n, C))
        Y[0], Y[1] = 1, -1
        return Y
    if name == "softmax":
        Y = np.eye(C)[np.arange(n) % C]
        Y[::2] = rng.dirichlet(np.ones(C), len(Y[::2]))
        return Y
    return 1.5 * rng.standard_normal((n, C))


def settings_of(name):
    return {"huber_delta": DELTA} if name == "huber" else {}


def make(name, *, weight=None, intercept=False, seed=0, to=np.asarray):
    Y = to(make_targets(name, seed))
    return make_loss(name, Y, sample_weight=weight, intercept=intercept, **settings_of(name))


def points(seed=1, scale=1.0, count=2):
    return scale * np.random.default_rng(seed).standard_normal((count, N, C))


def formula(name, Z, Y, weight=None):
    """The loss as the docstring has it."""
    w = np.ones(len(Y)) if weight is None else np.asarray(weight)
    if name == "softmax":
        return w @ (logsumexp(Z, axis=1) - np.sum(Y * Z, axis=1)) / w.sum()
    terms = {
        "squared": lambda: (Z - Y) ** 2 / 2,
        "huber": lambda: huber_function(DELTA, Z - Y),
        "logistic": lambda: np.logaddexp(0, -Y * Z),
    }[name]()
    return float(np.sum(w[:, None] * terms)) / (w.sum() * Y.shape[1])


def formula_with_intercept(name, Z, Y, weight=None):
    """Its minimum over the output bias, by a method that looks at values and nothing else."""

    def value(b):
        return formula(name, Z + b, Y, weight)

    b = np.zeros(Y.shape[1])
    for _ in range(3):
        b = optimize.minimize(value, b, method="Powell", options={"xtol": 1e-9, "ftol": 1e-15}).x
    return value(b)


def conjugate(name, Theta, Y, weight=None):
    """f*(Theta), by the formulas of the literature."""
    w = np.ones(len(Y)) if weight is None else np.asarray(weight)
    share = w[:, None] / (w.sum() * (1 if name == "softmax" else Y.shape[1]))
    if name in ("squared", "huber"):
        if name == "huber" and np.any(np.abs(Theta) > DELTA * share * (1 + 1e-12)):
            return np.inf
        return float(np.sum(Theta * Y + Theta**2 / (2 * share)))
    if name == "logistic":
        q = -Y * Theta / share
        outside = np.any(q < 0) or np.any(q > 1 + 1e-12)
        q = np.clip(q, 0, 1)
        return np.inf if outside else float(np.sum(share * (xlogy(q, q) + xlogy(1 - q, 1 - q))))
    q = Y + Theta / share
    outside = np.any(q < -1e-12) or not np.allclose(q.sum(axis=1), 1, atol=1e-8)
    q = np.maximum(q, 0)
    return np.inf if outside else float(np.sum(share * xlogy(q, q)))


def hessian(loss, Z):
    """L L', column by column, as a matrix (n C, n C)."""
    root = loss.root(Z)
    unit = np.eye(Z.size).reshape(-1, *Z.shape)
    return np.stack([root.apply(root.adjoint(e)).reshape(-1) for e in unit], axis=1)


def differences(function, Z, step=1e-5):
    """Central differences of a function of Z in all directions."""
    moves = step * np.eye(Z.size).reshape(-1, *Z.shape)
    return np.array([(function(Z + move) - function(Z - move)) / (2 * step) for move in moves])


every_loss = pytest.mark.parametrize("name", LOSSES)
with_and_without = pytest.mark.parametrize("intercept", [False, True])
weighted_or_not = pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)


# ---- values and gradients ----------------------------------------------------------------------


@every_loss
@with_and_without
@weighted_or_not
def test_values_are_the_formula(name, intercept, weight, to_library):
    Y, (Z, _) = make_targets(name), points()
    loss = make(name, weight=weight, intercept=intercept, to=to_library)
    expected = formula_with_intercept if intercept else formula
    precision = 1e-9 if intercept else 1e-13
    assert loss.value(to_library(Z)) == pytest.approx(expected(name, Z, Y, weight), rel=precision)
    zero = expected(name, np.zeros_like(Y), Y, weight)
    assert loss.zero_value == pytest.approx(zero, rel=precision)


@every_loss
@with_and_without
@weighted_or_not
def test_gradients_are_those_of_the_values(name, intercept, weight, to_library):
    (Z, _), loss = points(), make(name, weight=weight, intercept=intercept, to=to_library)
    plain = make(name, weight=weight, intercept=intercept)
    gradient = to_numpy(loss.gradient(to_library(Z)))
    expected = differences(plain.value, Z).reshape(Z.shape)
    np.testing.assert_allclose(gradient, expected, atol=1e-8 * np.abs(expected).max())


@every_loss
@with_and_without
def test_only_quadratics_have_an_affine_gradient(name, intercept):
    loss, (a, b) = make(name, intercept=intercept), points()
    middle = (loss.gradient(a) + loss.gradient(b)) / 2
    affine = np.allclose(loss.gradient((a + b) / 2), middle, rtol=1e-12, atol=1e-14)
    assert affine == loss.affine_gradient == (name == "squared")


@every_loss
@with_and_without
def test_float32_predictions_and_targets_are_taken_to_float64(name, intercept, to_library):
    single = make_targets(name).astype(np.float32)
    loss = make_loss(name, to_library(single), intercept=intercept, **settings_of(name))
    plain = make_loss(name, single.astype(float), intercept=intercept, **settings_of(name))
    Z = points()[0].astype(np.float32)
    gradient = loss.gradient(to_library(Z))
    assert gradient.dtype == array_namespace(gradient).float64
    assert loss.value(to_library(Z)) == pytest.approx(plain.value(Z.astype(float)), rel=1e-14)
    expected = plain.gradient(Z.astype(float))
    np.testing.assert_allclose(to_numpy(gradient), expected, rtol=1e-12, atol=1e-16)


# ---- Bregman divergences -----------------------------------------------------------------------


@every_loss
@with_and_without
@weighted_or_not
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_divergences_are_the_difference_from_the_tangent(
    name, intercept, weight, scale, to_library
):
    """Steps of all lengths: below, around and beyond what a series is good for."""
    loss, plain = (
        make(name, weight=weight, intercept=intercept, to=to) for to in (to_library, np.asarray)
    )
    Z = points()[0]
    Z_new = Z + scale * points(2)[0]
    naive = plain.value(Z_new) - plain.value(Z) - np.sum(plain.gradient(Z) * (Z_new - Z))
    divergence = loss.bregman(to_library(Z_new), to_library(Z))
    assert divergence == pytest.approx(naive, rel=1e-9, abs=1e-14)


def exact_divergence(name, Z_new, Z, Y):
    """The same in decimal numbers of 200 digits, equal weights."""
    total = Decimal(0)

    def log_sum_exp(z):
        return sum((v.exp() for v in z), Decimal(0)).ln()

    def half_huber(r):
        delta = Decimal(DELTA)
        return r * r / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)

    for z_new, z, y in zip(*(np.asarray(a).tolist() for a in (Z_new, Z, Y)), strict=True):
        a, b, y = ([Decimal(v) for v in row] for row in (z_new, z, y))
        if name == "softmax":
            powers = [v.exp() for v in b]
            slope = sum(p * (u - v) for p, u, v in zip(powers, a, b, strict=True)) / sum(powers)
            total += log_sum_exp(a) - log_sum_exp(b) - slope
            continue
        for u, v, t in zip(a, b, y, strict=True):
            if name == "squared":
                total += (u - v) ** 2 / 2
            elif name == "huber":
                slope = max(min(v - t, Decimal(DELTA)), -Decimal(DELTA))
                total += half_huber(u - t) - half_huber(v - t) - slope * (u - v)
            else:
                slope = -t / (1 + (t * v).exp())
                total += (1 + (-t * u).exp()).ln() - (1 + (-t * v).exp()).ln() - slope * (u - v)
    return float(total / (len(Y) if name == "softmax" else Y.size))


@every_loss
@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-4, 1e-3, 0.03, 1.0, 1.0001, 30.0])
@pytest.mark.parametrize("where", [1.0, 5.0, 100.0])
def test_divergences_do_not_cancel(name, where, size):
    """Differences of values would be all rounding for small steps, and for predictions of which
    the loss is sure."""
    Z = where * points(3)[0]
    Z_new = Z + size * points(4)[0]
    expected = exact_divergence(name, Z_new, Z, make_targets(name))
    # Z_new - Z itself is rounded, and so is a huber's distance from its corner
    rounding = 4e-16 * where / size * 10 + 1e-9
    assert make(name).bregman(Z_new, Z) == pytest.approx(expected, rel=rounding, abs=1e-180)


@every_loss
@weighted_or_not
def test_divergences_with_an_intercept_do_not_cancel(name, weight):
    loss, (Z, step) = make(name, weight=weight, intercept=True), points(5)
    step = 1e-7 * step
    expected = step.reshape(-1) @ hessian(loss, Z) @ step.reshape(-1) / 2
    assert expected < 1e-14
    assert loss.bregman(Z + step, Z) == pytest.approx(expected, rel=1e-4)


@every_loss
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.floats(-12, 5),
    where=st.floats(-3, 5),
    intercept=st.booleans(),
)
def test_divergences_are_never_negative(name, seed, size, where, intercept):
    loss = make(name, intercept=intercept)
    Z, step = points(seed)
    Z = 10**where * Z
    assert loss.bregman(Z + 10**size * step, Z) >= 0
    assert loss.bregman(Z, Z) == 0


# ---- square roots of Hessians ------------------------------------------------------------------


@every_loss
@with_and_without
@weighted_or_not
def test_roots_are_of_the_hessian(name, intercept, weight):
    loss, (Z, x) = make(name, weight=weight, intercept=intercept), points()
    expected = differences(lambda z: loss.gradient(z).reshape(-1), Z)
    root = loss.root(Z)
    assert root.scale.shape == Z.shape
    np.testing.assert_allclose(hessian(loss, Z), expected, atol=1e-8 * np.abs(expected).max())
    r = points(6)[0]
    assert np.sum(root.apply(x) * r) == pytest.approx(np.sum(x * root.adjoint(r)), rel=1e-12)
    np.testing.assert_allclose(root.project(root.project(x)), root.project(x), atol=1e-15)


@every_loss
@weighted_or_not
def test_an_intercept_takes_its_directions_out_of_the_hessian(name, weight):
    """What is left of H after the minimisation over b: H - H 1 (1'H 1)^+ 1'H."""
    Z = points()[0]
    loss = make(name, weight=weight, intercept=True)
    H = hessian(loss.base, Z + loss.intercept(Z))
    ones = np.kron(np.ones((N, 1)), np.eye(C))
    expected = H - H @ ones @ np.linalg.pinv(ones.T @ H @ ones, rcond=1e-10) @ ones.T @ H
    np.testing.assert_allclose(hessian(loss, Z), expected, atol=1e-14)
    np.testing.assert_allclose(hessian(loss, Z) @ ones, 0, atol=1e-15)


def test_roots_of_nothing_have_no_span():
    """Outliers have no curvature, with or without an intercept."""
    loss = make("huber", intercept=True)
    far = np.where(np.arange(N) % 2, 1e3, -1e3)[:-1, None] * np.ones(C)
    few = make_loss("huber", make_targets("huber")[:-1], intercept=True, huber_delta=DELTA)
    root = few.root(far)
    assert not root.scale.any()
    assert root.span.shape[1] == 0
    np.testing.assert_array_equal(root.apply(np.ones_like(far)), 0)
    assert loss.root(points()[0]).span.shape[1] == C


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1e20, 1e100])
def test_the_intercept_of_a_huber_scales_with_its_targets(scale):
    """Also with an outlier from which all others are far outside delta."""
    Y = make_targets("huber")
    Y[0] = 1e8
    expected = make_loss("huber", Y, intercept=True, huber_delta=0.1)
    found = make_loss("huber", scale * Y, intercept=True, huber_delta=scale * 0.1)
    Z = np.zeros_like(Y)
    np.testing.assert_allclose(found.intercept(Z), scale * expected.intercept(Z), rtol=1e-7)
    assert found.zero_value == pytest.approx(scale**2 * expected.zero_value, rel=1e-12, abs=0)


# ---- lower bounds ------------------------------------------------------------------------------


def candidate(loss, name, seed):
    """A dual candidate: a gradient, one that is scaled or turned around, or just numbers."""
    rng = np.random.default_rng(seed)
    Z = 10 ** rng.uniform(-2, 2) * rng.standard_normal((N, C))
    Theta = loss.gradient(Z)
    kind = rng.integers(4)
    if kind == 1:
        Theta = rng.uniform(-3, 3) * Theta
    elif kind == 2:
        Theta = rng.standard_normal((N, C)) / (N * C)
    elif kind == 3:
        Theta = loss.dual_candidate(Theta + 0.1 * rng.standard_normal((N, C)) / (N * C))
    return Theta


@every_loss
@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    limit=st.floats(0.01, 10),
    quadratic=st.floats(0, 3),
    coupled=st.booleans(),
    weighted=st.booleans(),
    intercept=st.booleans(),
)
def test_bounds_hold_for_any_candidate(name, seed, limit, quadratic, coupled, weighted, intercept):
    """D(tau) = -f*(tau Theta) - tau^2 q for a feasible tau, and f(Z) >= <tau Theta, Z> - f*(.)
    everywhere. A candidate that is infeasible at any scale proves what tau = 0 does."""
    weight = WEIGHTS["weighted"] if weighted else None
    loss, Y = make(name, weight=weight, intercept=intercept), make_targets(name)
    Theta = candidate(loss, name, seed)
    size = 1 if coupled else C
    limits, quadratics = np.full(size, limit), np.full(size, quadratic)
    tau, value = loss.best_dual(Theta, limits, quadratics)
    assert tau.shape == (size,)
    assert np.all(np.abs(tau) <= limit)
    scaled = tau * Theta
    assert value == pytest.approx(
        -conjugate(name, scaled, Y, weight) - np.sum(tau**2 * quadratics), rel=1e-9, abs=1e-13
    )
    if intercept:
        assert np.all(np.abs(scaled.sum(axis=0)) <= 1e-9 * np.abs(scaled).sum(axis=0))
    bound = value + np.sum(tau**2 * quadratics)
    for Z in (*points(seed, 1.0), *points(seed, 100.0), *points(seed, 0.01)):
        assert (
            bound <= loss.value(Z) - np.sum(scaled * Z) + 1e-8 * np.sum(np.abs(scaled * Z)) + 1e-12
        )


@pytest.mark.parametrize("name", ["squared", "huber"])
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.floats(0.01, 10), quadratic=st.floats(0, 3))
def test_quadratics_find_the_best_scaling(name, seed, limit, quadratic):
    rng = np.random.default_rng(seed)
    loss, Y = make(name), make_targets(name)
    Theta = rng.standard_normal(Y.shape) / Y.size
    for size in (1, C):
        limits, quadratics = np.full(size, limit), np.full(size, quadratic)
        _, value = loss.best_dual(Theta, limits, quadratics)
        for _ in range(20):
            # outputs of a huber share the scaling that its box allows
            tau = rng.uniform(-limit, limit, size)
            largest = np.abs(Theta * Y.size).max()
            tau = np.clip(tau, -DELTA / largest, DELTA / largest) if name == "huber" else tau
            other = -conjugate(name, tau * Theta, Y) - np.sum(tau**2 * quadratics)
            assert value >= other - 1e-12


@every_loss
@with_and_without
@weighted_or_not
def test_bounds_are_tight_at_the_gradient(name, intercept, weight, to_library):
    """With nothing but the zero prediction, f(0) is the optimal value, and its gradient proves it.
    Elsewhere f(Z) + f*(Theta) = <Theta, Z> if and only if Theta is the gradient."""
    loss = make(name, weight=weight, intercept=intercept, to=to_library)
    Z = points()[0]
    limits, none = to_library(NO_LIMIT), to_library(NO_QUADRATIC)
    _, bound = loss.best_dual(loss.gradient(to_library(0 * Z)), limits, none)
    assert bound == pytest.approx(loss.zero_value, rel=1e-12)
    Theta = loss.gradient(to_library(Z))
    tau, bound = loss.best_dual(Theta, to_library(np.ones(C)), none)
    scaled = to_numpy(tau) * to_numpy(Theta)
    fenchel = loss.value(to_library(Z)) - np.sum(scaled * Z)
    assert bound <= fenchel + 1e-14
    if np.all(to_numpy(tau) == 1):
        assert bound == pytest.approx(fenchel, rel=1e-12)
    assert np.all(to_numpy(tau) == pytest.approx(1, abs=1e-12)) or name in ("squared", "huber")


@every_loss
@with_and_without
def test_a_limit_scales_into_the_feasible_set(name, intercept):
    """And a smaller multiple proves less at the zero prediction."""
    loss = make(name, intercept=intercept)
    Theta = loss.gradient(np.zeros((N, C)))
    bounds = []
    for limit in (1.0, 0.5, 1e-3, 0.0):
        tau, bound = loss.best_dual(Theta, np.full(C, limit), NO_QUADRATIC)
        np.testing.assert_allclose(tau, limit, rtol=1e-12)
        bounds.append(bound)
    assert bounds == sorted(bounds, reverse=True)
    if name != "softmax":  # whose smallest value is the entropy of the targets
        assert bounds[-1] == 0


@every_loss
def test_zero_candidate_bounds_by_zero(name, to_library):
    loss = make(name, to=to_library)
    zero, limit = to_library(np.zeros((N, C))), to_library(NO_LIMIT)
    _, value = loss.best_dual(zero, limit, to_library(NO_QUADRATIC))
    Y = make_targets(name)
    assert value == pytest.approx(-np.sum(xlogy(Y, Y)) / N if name == "softmax" else 0, abs=1e-15)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_what_is_outside_the_domain_proves_nothing(name):
    """Likelihoods have one side only: the gradient with the wrong sign is no candidate."""
    loss = make_loss(name, {"logistic": make_targets(name), "softmax": np.eye(3)}[name])
    Theta = -loss.gradient(np.zeros(loss.Y.shape))
    tau, value = loss.best_dual(Theta, NO_LIMIT, NO_QUADRATIC)
    assert np.all(tau == 0)
    assert value == 0


def test_rows_of_a_softmax_candidate_must_balance():
    loss = make_loss("softmax", np.eye(3))
    Theta = loss.gradient(np.zeros((3, 3)))
    for error, expected in ((1e-12, loss.zero_value), (1e-6, 0.0)):
        wrong = Theta + error * np.array([[1.0, 0, 0]] * 3)
        assert loss.best_dual(wrong, NO_LIMIT, NO_QUADRATIC)[1] == pytest.approx(expected)


@every_loss
def test_columns_of_a_candidate_must_balance_with_an_intercept(name):
    loss = make(name, intercept=True)
    Theta = loss.gradient(np.zeros((N, C)))
    smallest = loss.best_dual(0 * Theta, NO_LIMIT, NO_QUADRATIC)[1]
    for error, expected in ((1e-12, loss.zero_value), (1e-6, smallest)):
        wrong = Theta.copy()
        wrong[0] += error * np.array([-1.0, 0, 1])
        value = loss.best_dual(wrong, NO_LIMIT, NO_QUADRATIC)[1]
        assert value == pytest.approx(expected, rel=1e-8, abs=1e-15)


@every_loss
@with_and_without
@weighted_or_not
def test_candidates_are_made_to_balance(name, intercept, weight, to_library):
    """Gradients that are rounded, or of a prediction nearby, still prove nearly all they did."""
    loss = make(name, weight=weight, intercept=intercept, to=to_library)
    limits, none = to_library(np.ones(C)), to_library(NO_QUADRATIC)
    Theta = to_numpy(loss.gradient(to_library(points()[0])))
    _, exact = loss.best_dual(to_library(Theta), limits, none)
    for noise in (0.0, 1e-7):
        noisy = Theta * (1 + noise * points(8)[0])
        mended = loss.dual_candidate(to_library(noisy))
        np.testing.assert_allclose(
            to_numpy(mended), noisy, atol=10 * noise * np.abs(Theta).max() + 1e-16
        )
        if intercept:
            np.testing.assert_allclose(to_numpy(mended).sum(axis=0), 0, atol=1e-12)
        if name == "softmax":
            np.testing.assert_allclose(to_numpy(mended).sum(axis=1), 0, atol=1e-16)
        _, value = loss.best_dual(mended, limits, none)
        assert value == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
@with_and_without
@pytest.mark.parametrize("margin", [60, 720])  # where probabilities are no normal numbers
def test_candidates_of_sure_predictions_stay_in_the_domain(name, intercept, margin):
    """Probabilities far below rounding must not become negative by mending."""
    loss = make_loss(
        name,
        {"logistic": make_targets(name), "softmax": np.eye(C)[np.arange(N) % C]}[name],
        intercept=intercept,
    )
    Z = margin * loss.Y + points()[0]
    Z[0] = 0
    Theta = loss.gradient(Z)
    tau, value = loss.best_dual(loss.dual_candidate(Theta), np.ones(C), NO_QUADRATIC)
    np.testing.assert_allclose(tau, 1)
    assert value == pytest.approx(loss.best_dual(Theta, np.ones(C), NO_QUADRATIC)[1], rel=1e-9)
    noisy = loss.dual_candidate(Theta * (1 + 1e-10 * points(8)[0]))
    assert loss.best_dual(noisy, np.ones(C), NO_QUADRATIC)[1] == pytest.approx(value, rel=1e-6)


# ---- parts and neighbours ----------------------------------------------------------------------


@every_loss
@with_and_without
@weighted_or_not
def test_parts_add_up_to_the_loss(name, intercept, weight, to_library):
    """Values, gradients, bounds and intercepts; the scaling is that of all outputs."""
    loss = make(name, weight=weight, intercept=intercept, to=to_library)
    parts = loss.by_output()
    Z = points()[0]
    assert [part.Y.shape[1] for part in parts] == ([C] if name == "softmax" else [1] * C)
    columns = np.split(Z, len(parts), axis=1)
    pairs = list(zip(parts, columns, strict=True))
    assert sum(part.value(z) for part, z in pairs) == pytest.approx(loss.value(to_library(Z)))
    assert sum(part.zero_value for part in parts) == pytest.approx(loss.zero_value)
    gradients = [part.gradient(z) for part, z in pairs]
    np.testing.assert_allclose(
        np.hstack(gradients), to_numpy(loss.gradient(to_library(Z))), atol=1e-14
    )
    intercepts = np.concatenate([part.intercept(z) for part, z in pairs])
    np.testing.assert_allclose(intercepts, loss.intercept(to_library(Z)), atol=1e-12)
    if name != "huber":  # whose outputs share the scaling that the box allows
        limits = np.split(np.full(C, 0.7), len(parts))
        bounds = [
            part.best_dual(theta, limit, 0 * limit)[1]
            for part, theta, limit in zip(parts, gradients, limits, strict=True)
        ]
        both = to_library(np.full(C, 0.7)), to_library(NO_QUADRATIC)
        whole = loss.best_dual(loss.gradient(to_library(Z)), *both)[1]
        assert sum(bounds) == pytest.approx(whole)


@every_loss
@with_and_without
def test_parts_are_in_double_precision(name, intercept):
    single = make_targets(name).astype(np.float32)
    parts = make_loss(name, single, intercept=intercept).by_output()
    assert all(isinstance(part.Y, np.ndarray) for part in parts)
    assert all(part.Y.dtype == np.float64 for part in parts)


@every_loss
@with_and_without
@pytest.mark.parametrize("tail", [1.0, 1e-2, 1e-4])
def test_neighbours_touch_the_loss_and_are_nowhere_below(name, intercept, tail):
    loss, Z = make(name, weight=WEIGHTS["weighted"], intercept=intercept), points(scale=3.0)[0]
    near = loss.around(Z, tail)
    assert near.value(Z) == pytest.approx(loss.value(Z), rel=1e-13)
    np.testing.assert_allclose(near.gradient(Z), loss.gradient(Z), atol=1e-12)
    for other in (*points(2, 1.0), *points(3, 10.0), *(Z + points(4, 1e-3))):
        assert near.value(other) >= loss.value(other) * (1 - 1e-13)
        expected = differences(near.value, other).reshape(Z.shape)
        np.testing.assert_allclose(near.gradient(other), expected, atol=1e-7)
    assert (near is loss) == (name != "huber")
    if name == "huber":
        smallest = (near.base if intercept else near).root(Z).scale.min()
        assert smallest > 0.9 * np.sqrt(tail / (1 + tail) * loss.row_weight.min())
        expected = differences(lambda z: near.gradient(z).reshape(-1), Z)
        np.testing.assert_allclose(hessian(near, Z), expected, atol=1e-8)


# ---- intercepts --------------------------------------------------------------------------------


@every_loss
@weighted_or_not
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.floats(-3, 3), shift=st.floats(-1e3, 1e3))
def test_intercepts_are_optimal(name, weight, seed, size, shift):
    loss = make(name, weight=weight, intercept=True, seed=seed)
    Z = 10**size * points(seed)[0] + shift
    b = loss.intercept(Z)
    assert b.shape == (C,)
    gradient = loss.gradient(Z)
    sums, sizes = np.abs(gradient.sum(axis=0)), np.abs(gradient).sum(axis=0)
    assert np.all(sums <= 1e-12 * (1 + np.abs(Z).max()) * sizes + 1e-300)
    value = loss.value(Z)
    rng = np.random.default_rng(seed)
    for step in 10 ** rng.uniform(-6, 3, 10)[:, None] * rng.standard_normal((10, C)):
        assert value <= loss.base.value(Z + b + step) * (1 + 1e-13)


@every_loss
def test_shifts_do_not_matter_with_an_intercept(name, to_library):
    loss, Z = make(name, intercept=True, to=to_library), points()[0]
    shifted = to_library(Z + np.array([1.0, -20.0, 300.0]))
    assert loss.value(shifted) == pytest.approx(loss.value(to_library(Z)), rel=1e-12)
    np.testing.assert_allclose(
        to_numpy(loss.gradient(shifted)), to_numpy(loss.gradient(to_library(Z))), atol=1e-12
    )


@every_loss
def test_without_an_intercept_it_is_zero(name, to_library):
    np.testing.assert_array_equal(make(name, to=to_library).intercept(to_library(points()[0])), 0)


@pytest.mark.parametrize("weight", [None, [1.0, 3.0, 1.0, 1.0]])
def test_intercepts_of_the_zero_prediction_are_known(weight):
    w = np.ones(4) if weight is None else np.array(weight)
    zero = np.zeros((4, 1))
    y = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    odds = np.log(w @ (y[:, 0] > 0) / (w @ (y[:, 0] < 0)))
    settings = {"sample_weight": weight, "intercept": True}
    assert make_loss("logistic", y, **settings).intercept(zero) == pytest.approx([odds], abs=1e-14)
    mean = np.average(y[:, 0], weights=w)
    assert make_loss("squared", y, **settings).intercept(zero) == pytest.approx([mean])
    classes = np.eye(3)[[0, 1, 2, 2]]
    b = make_loss("softmax", classes, **settings).intercept(np.zeros((4, 3)))
    np.testing.assert_allclose(np.exp(b) / np.exp(b).sum(), w @ classes / w.sum(), rtol=1e-12)
    assert b.sum() == pytest.approx(0, abs=1e-14)


def test_a_huber_with_small_delta_has_the_median_as_intercept():
    y = np.array([0.0, 1.0, 5.0, 100.0, 1e6])[:, None]
    loss = make_loss("huber", y, intercept=True, huber_delta=1e-6)
    assert loss.intercept(np.zeros((5, 1))) == pytest.approx([5.0], abs=1e-5)


# ---- sample weights ----------------------------------------------------------------------------


@every_loss
@with_and_without
def test_integer_weights_are_repeated_rows(name, intercept):
    counts = np.random.default_rng(3).integers(1, 4, N)
    Y, (Z, Z_new) = make_targets(name), points()
    again = np.repeat(np.arange(N), counts)
    weighted = make(name, weight=counts, intercept=intercept)
    repeated = make_loss(name, Y[again], intercept=intercept, **settings_of(name))
    assert weighted.has_sample_weights
    assert not repeated.has_sample_weights
    assert weighted.value(Z) == pytest.approx(repeated.value(Z[again]), rel=1e-13)
    assert weighted.zero_value == pytest.approx(repeated.zero_value, rel=1e-13)
    np.testing.assert_allclose(weighted.intercept(Z), repeated.intercept(Z[again]), atol=1e-12)
    Theta = weighted.gradient(Z)
    share = Theta[again] / counts[again, None]
    np.testing.assert_allclose(repeated.gradient(Z[again]), share, atol=1e-14)
    divergence = repeated.bregman(Z_new[again], Z[again])
    assert weighted.bregman(Z_new, Z) == pytest.approx(divergence, rel=1e-12)
    for limit in (0.5, 1.0):
        bounds = [
            loss.best_dual(dual, np.full(C, limit), NO_QUADRATIC)[1]
            for loss, dual in ((weighted, Theta), (repeated, share))
        ]
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


@every_loss
@with_and_without
def test_the_scale_of_weights_does_not_matter(name, intercept, to_library):
    Z = to_library(points()[0])
    weight = WEIGHTS["weighted"]
    one, thousand = (
        make(name, weight=scale * weight, intercept=intercept, to=to_library) for scale in (1, 1e3)
    )
    assert one.value(Z) == pytest.approx(thousand.value(Z), rel=1e-13)
    none, equal = (make(name, weight=w, intercept=intercept) for w in (None, np.full(N, 0.3)))
    assert not equal.has_sample_weights
    assert equal.value(points()[0]) == pytest.approx(none.value(points()[0]), rel=1e-13)


# ---- what is refused ---------------------------------------------------------------------------


def test_a_name_that_is_none():
    with pytest.raises(ValueError, match="loss"):
        make_loss("hinge", np.ones((3, 1)))


@pytest.mark.parametrize("wrong", [0.0, 0.5, 2.0])
def test_logistic_targets_are_signs(wrong):
    with pytest.raises(ValueError, match="Y must hold -1 and 1 for the logistic loss"):
        make_loss("logistic", np.array([[1.0], [-1.0], [wrong]]))


@pytest.mark.parametrize(
    "row", [[0.5, 0.4], [1.0, 1.0], [-0.1, 1.1], [0.0, 0.0], [1.00001, 0.0]], ids=str
)
def test_softmax_targets_are_probabilities(row):
    with pytest.raises(ValueError, match="Y must hold rows of probabilities"):
        make_loss("softmax", np.array([[1.0, 0.0], row]))


def test_softmax_has_a_column_for_each_class():
    with pytest.raises(ValueError, match="Y must have a column for each class"):
        make_loss("softmax", np.ones((3, 1)))


def test_one_class_and_an_intercept_have_no_optimum():
    signs = np.array([[1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(ValueError, match="Y has one class only: with an intercept"):
        make_loss("logistic", signs, intercept=True)
    assert make_loss("logistic", signs).value(0 * signs) == pytest.approx(np.log(2))
    classes = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match="Y has a class that never occurs: with an intercept"):
        make_loss("softmax", classes, intercept=True)
    assert make_loss("softmax", classes).value(0 * classes) == pytest.approx(np.log(3))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 0.0, 1.0], "sample_weight must be positive: drop rows of weight 0"),
        ([1.0, -1.0, 1.0], "sample_weight must be positive"),
        ([1.0, np.nan, 1.0], "sample_weight holds NaN"),
        ([1.0, np.inf, 1.0], "sample_weight holds NaN or infinity"),
        ([1.0, 1.0], "sample_weight"),
        (np.ones((3, 1)), "sample_weight"),
    ],
    ids=["zero", "negative", "nan", "infinite", "short", "matrix"],
)
def test_weights_are_positive_numbers_one_a_row(weight, message):
    with pytest.raises(ValueError, match=message):
        make_loss("squared", np.ones((3, 2)), sample_weight=weight)


@pytest.mark.parametrize("delta", [0.0, -1.0, np.nan, np.inf])
def test_a_huber_needs_a_positive_delta(delta):
    with pytest.raises(ValueError, match="huber_delta"):
        make_loss("huber", np.ones((3, 1)), huber_delta=delta)


def test_probabilities_in_single_precision_are_probabilities(to_library):
    """They add up to 1 in float32 only. The loss is unbounded unless they do exactly."""
    Y = np.random.default_rng(0).dirichlet(np.ones(7), 50).astype(np.float32)
    loss = make_loss("softmax", to_library(Y))
    Theta = loss.gradient(to_library(np.zeros(Y.shape)))
    limits, none = to_library(np.full(7, np.inf)), to_library(np.zeros(7))
    assert loss.best_dual(Theta, limits, none)[1] == pytest.approx(loss.zero_value, rel=1e-12)


# ---- extremes ----------------------------------------------------------------------------------


@every_loss
@with_and_without
@pytest.mark.parametrize("size", [1e3, 1e5])
def test_extreme_predictions(name, intercept, size, to_library):
    """Sure and right, sure and wrong: finite numbers that are what the formulas say."""
    loss = make(name, intercept=intercept, to=to_library)
    Y, (Z, Z_new) = make_targets(name), points(9, size)
    value = loss.value(to_library(Z))
    b = to_numpy(loss.intercept(to_library(Z)))
    assert value == pytest.approx(formula(name, Z + b, Y), rel=1e-9)
    gradient = to_numpy(loss.gradient(to_library(Z)))
    expected = {
        "squared": lambda R: R / Y.size,
        "huber": lambda R: np.clip(R, -DELTA, DELTA) / Y.size,
        "logistic": lambda R: -Y * expit(-Y * (Z + b)) / Y.size,
        "softmax": lambda R: (softmax(Z + b, axis=1) - Y) / N,
    }[name](Z + b - Y)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-12)
    for other in (Z_new, -Z, 0 * Z, Z + 1e-3, Z + 2):
        divergence = loss.bregman(to_library(other), to_library(Z))
        assert np.isfinite(divergence)
        assert divergence >= 0
        naive = loss.value(to_library(other)) - value - np.sum(gradient * (other - Z))
        assert divergence == pytest.approx(naive, rel=1e-8, abs=1e-9 * size)
    _, bound = loss.best_dual(
        to_library(gradient), to_library(np.ones(C)), to_library(NO_QUADRATIC)
    )
    assert np.isfinite(bound)
    assert bound <= loss.zero_value
    plain = make(name, intercept=intercept)
    assert np.isfinite(plain.root(Z).apply(Z)).all()


@every_loss
@with_and_without
@pytest.mark.parametrize("size", [1e3, 1e5])
def test_a_common_shift_is_not_extreme_for_an_intercept(name, intercept, size):
    """Predictions that are off by the same amount in all rows; curvature is zero there."""
    loss = make(name, intercept=True)
    Z = points()[0]
    shift = size * np.array([1.0, -1.0, 0.5])
    assert loss.value(Z + shift) == pytest.approx(loss.value(Z), rel=1e-9)


# --------------------------------------------------------- beyond the range of doubles

BEYOND = """
import warnings
import numpy as np
from cvxnn.losses import WithIntercept, make_loss

warnings.simplefilter("ignore")
Y = np.eye(3)[[0, 1, 2, 0, 1, 2, 2]]
Z = np.outer([1, -1, 1, 1, -1, 1, 0.5], [1.7e308, -1.7e308, 1.0])
loss = make_loss("softmax", Y)
print(loss.best_intercept(Z).shape)
weights = np.array([1e-300, 1, 1, 1, 1, 1, 1])
weighted = make_loss("softmax", Y, sample_weight=weights)
print(np.abs(weighted.balance(np.full(Y.shape, 1e100))).max())
try:
    WithIntercept(loss).root(np.full(Y.shape, np.nan))
except np.linalg.LinAlgError as error:
    print(error)
"""


def test_lapack_does_not_complain_on_the_terminal():
    """What it prints goes past Python, so a process of its own is listened to."""
    result = subprocess.run([sys.executable, "-c", BEYOND], capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout == "(3,)\n0.0\nthe curvature of the loss is not finite\n"


# ---- in one compiled call ----------------------------------------------------------------------


@pytest.fixture
def without_kernels(monkeypatch):
    """Switches the compiled kernels off, when it is called."""
    return lambda: monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.skipif(native.library() is None, reason="the kernels were not built")
@pytest.mark.parametrize("size", [1e-9, 1.0, 40.0, 1e5])
@pytest.mark.parametrize(("n", "C"), [(2, 1), (129, 1), (300, 3)])
def test_the_logistic_loss_at_its_best_bias_is_that_of_numpy(n, C, size, without_kernels):
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((n, C)) < 0.3, 1.0, -1.0)
    Y[:2] = [[1.0], [-1.0]]
    Z, weight = size * rng.standard_normal((n, C)), rng.uniform(0.1, 2, n)
    loss = LogisticLoss.bind(Y, weight)
    found = [loss.minimum(Z), loss.minimum(Z, np.full(C, -900.0))]
    without_kernels()
    plain = loss.minimum(Z)
    for its in found:
        assert its.value == pytest.approx(plain.value, rel=1e-13, abs=1e-300)
        sizes = np.abs(its.gradient).sum(axis=0)
        assert np.all(np.abs(its.gradient.sum(axis=0)) <= 2e-14 * sizes)
        np.testing.assert_allclose(its.gradient, loss.gradient(Z + its.b), rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(its.root.scale, loss.root(Z + its.b).scale, atol=1e-12)
    if size < 100:  # beyond, a whole interval is best
        np.testing.assert_allclose(found[0].b, plain.b, rtol=1e-9, atol=1e-12)


def test_the_best_bias_is_where_a_root_finder_finds_it():
    """scipy's `brentq` on the sum of gradients."""
    rng = np.random.default_rng(1)
    z, y = 3 * rng.standard_normal(200), np.where(rng.random(200) < 0.2, 1.0, -1.0)
    found = LogisticLoss(y[:, None]).minimum(z[:, None])
    expected = optimize.brentq(lambda b: np.sum(y * expit(-y * (z + b))), -50, 50, xtol=1e-14)
    assert found.b[0] == pytest.approx(expected, abs=1e-12)
    assert found.value == pytest.approx(np.mean(np.logaddexp(0, -y * (z + expected))), rel=1e-14)


@pytest.mark.skipif(native.library() is None, reason="the kernels were not built")
@pytest.mark.parametrize("n_limits", [1, 3])
@pytest.mark.parametrize("kind", ["inside", "beyond", "outside", "zero"])
def test_the_compiled_logistic_dual_is_that_of_numpy(n_limits, kind, without_kernels):
    rng = np.random.default_rng(2)
    Y = np.where(rng.random((150, 3)) < 0.4, 1.0, -1.0)
    loss = LogisticLoss.bind(Y, rng.uniform(0.1, 2, 150))
    share = {"inside": 1.0, "beyond": 5.0, "outside": 1.0, "zero": 0.0}[kind]
    Theta = share * loss.gradient(2 * rng.standard_normal(Y.shape))
    if kind == "outside":
        Theta[7, 1] *= -1
    limit, quadratic = rng.uniform(0.2, 1.5, n_limits), rng.uniform(0, 0.1, n_limits)
    found = loss.best_dual(Theta, limit, quadratic)
    without_kernels()
    expected = loss.best_dual(Theta, limit, quadratic)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)
    assert found[1] == pytest.approx(expected[1], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("kind", [SquaredLoss, HuberLoss])
@pytest.mark.parametrize("limit", [0.3, 100.0])
def test_the_best_dual_of_one_output_is_that_of_two_alike(kind, limit):
    """One output is computed in numbers, several in arrays."""
    rng = np.random.default_rng(0)
    y, theta = rng.standard_normal((20, 1)), 0.01 * rng.standard_normal((20, 1))
    weight = np.full((20, 1), 0.05)
    one, two = (
        kind(np.tile(y, (1, c)), weight).best_dual(
            np.tile(theta, (1, c)), np.full(c, limit), np.full(c, 0.01)
        )
        for c in (1, 2)
    )
    assert one[0].shape == (1,)
    assert two[0] == pytest.approx(np.tile(one[0], 2), rel=1e-12)
    assert two[1] == pytest.approx(2 * one[1], rel=1e-12)
