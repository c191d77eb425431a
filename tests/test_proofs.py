"""Proven bounds are proven: against rational arithmetic, at every scale, and for losses that say
nothing about their rounding they are not called so. The campaign in fuzz/ does this at large."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

import cvxnn
from conftest import PENALTIES, make_data, make_problem
from cvxnn import certificates, losses, penalties, proofs
from cvxnn.certificates import CertificateError, lower_bound_of, prove
from cvxnn.cones import cones
from cvxnn.rounding import Ball


def exact_block(problem, Theta, i, k):
    """X'D_i Theta^k in rational numbers."""
    X, on = np.asarray(problem.operator.rows(), dtype=float), problem.patterns.mask[:, i]
    rows = np.flatnonzero(on)
    theta = [Fraction(float(t)) for t in Theta[rows, k]]
    columns = X[rows].T
    return [sum(Fraction(float(x)) * t for x, t in zip(c, theta, strict=True)) for c in columns]


def hard_data(kind):
    X, Y = make_data(40, 3, C=2)
    if kind == "offset":
        X = X + 1e7
    elif kind == "weights":
        Y = Y * 10.0 ** np.linspace(-12, 12, 40)[:, None]
    elif kind == "units":
        X = X * [1e8, 1.0, 1e-8]
    return X, Y


@pytest.mark.parametrize("precise", [0.0, 1.0], ids=["in parts", "at once"])
@pytest.mark.parametrize("kind", ["plain", "offset", "weights", "units"])
def test_products_are_within_their_error(kind, precise):
    X, Y = hard_data(kind)
    problem = cvxnn.CGReLU(X, Y, cvxnn.sample_patterns(X, 5, bias=True, random_state=0), lam=1.0)
    Theta, point = problem.loss.dual_point(problem.loss.gradient(0 * Y))
    G, error = proofs._correlation(problem, point, precise)
    for i in range(len(problem.patterns)):
        for k in range(2):
            for j, exact in enumerate(exact_block(problem, Theta, i, k)):
                assert abs(Fraction(float(G[i, j, k])) - exact) <= Fraction(float(error[0, j, k]))
    if precise == 0 and kind == "offset":  # and what it is good for
        assert np.all(error < 0.1 * proofs._correlation(problem, point, 1.0)[1])


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
def test_predictions_are_within_their_error(kind, scale):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 4)) * scale
    X = {"dense": X, "sparse": csr_array(X), "float32": X.astype(np.float32)}[kind]
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    problem = cvxnn.CGReLU(X, rng.standard_normal(20), patterns, lam=0.1)
    U = rng.standard_normal(problem.weight_shape) * 10.0 ** rng.uniform(
        -8, 8, (len(patterns), 1, 1)
    )
    Z, error = problem.operator_double.forward(U), proofs._prediction_error(problem, U)
    data = X.toarray() if kind == "sparse" else np.asarray(X, dtype=float)
    for j in range(20):
        on = np.flatnonzero(patterns.mask[j])
        terms = [(x, u) for i in on for x, u in zip(data[j], U[i, :, 0], strict=True)]
        exact = sum(Fraction(float(x)) * Fraction(float(u)) for x, u in terms)
        assert abs(Fraction(float(Z[j, 0])) - exact) <= Fraction(float(error[j, 0]))
    assert np.all(error <= 1e-13 * np.linalg.norm(data, axis=1)[:, None] * np.abs(U).sum())


@pytest.mark.parametrize("penalty", PENALTIES)
def test_norms_are_above_for_any_matrix_within_the_error(penalty):
    rng = np.random.default_rng(0)
    rule = penalties.PENALTIES[penalty](0.3)
    G, error = rng.standard_normal((5, 3, 2)), np.abs(rng.standard_normal((1, 3, 2))) * 1e-3
    limit, conjugate = rule.dual_limit_below(G, error), rule.conjugate_above(G, error)
    for _ in range(50):
        other = G + error * rng.choice([-1.0, 1.0], G.shape)
        assert np.all(rule.dual_limit(other) >= limit)
        assert np.all(rule.conjugate(other) <= conjugate)
    assert np.all(limit >= 0.99 * rule.dual_limit(G))
    assert np.all(conjugate <= 1.01 * rule.conjugate(G))
    assert rule.value_above(G) >= rule.value(G)
    assert rule.value_above(0 * G) == 0


@pytest.mark.parametrize("loss", losses.LOSSES)
@pytest.mark.parametrize("output_bias", [False, True])
def test_rigour_costs_nothing_to_speak_of(loss, output_bias):
    X, Y = make_data(60, 3, C=3)
    Y = {"logistic": np.sign(Y), "softmax": np.eye(3)[Y.argmax(axis=1)]}.get(loss, Y)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, lam=1e-3, loss=loss, output_bias=output_bias)
    solution = cvxnn.solve(problem, tol=1e-6)
    certificate = solution.certificate
    plain, _ = lower_bound_of(problem, solution.dual)
    assert certificate.proven
    assert certificate.lower_bound <= plain * (1 + 1e-14)
    assert certificate.lower_bound == pytest.approx(plain, rel=2e-12)
    assert certificate.objective == pytest.approx(problem.objective(solution.weights), rel=2e-12)


@pytest.mark.parametrize("offset", [1e6, 1e9])
@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_targets_far_from_zero(penalty, loss, offset):
    """The bound used to stand above attained values, by 4.7e-3 at an offset of 1e6."""
    X, y = make_data(30, 3)
    patterns = cvxnn.sample_patterns(X, 5, random_state=1)
    settings = {"penalty": penalty, "loss": loss, "output_bias": True}
    near, far = (
        cvxnn.solve(cvxnn.CGReLU(X, target, patterns, 0.01, **settings), tol=1e-6)
        for target in (y, (y + offset) - offset + offset)
    )
    rounding = 1e-15 * offset  # of the targets themselves
    assert far.converged
    assert far.certificate.lower_bound <= near.certificate.objective + rounding
    assert far.certificate.objective == pytest.approx(near.certificate.objective, rel=1e-5)


class ShyLoss(losses.SquaredLoss):
    """A loss that says nothing about its rounding."""

    declares_rounding = False


class Shy(losses.LossChoice):
    name, bound = "shy", ShyLoss


def test_a_loss_that_does_not_declare_its_rounding_proves_nothing():
    X, y = make_data(30, 3)
    patterns = cvxnn.sample_patterns(X, 5, random_state=1)
    shy, open_ = (cvxnn.CGReLU(X, y, patterns, 0.01, loss=name) for name in (Shy(), "squared"))
    solution, proven = cvxnn.solve(shy, tol=1e-6), cvxnn.solve(open_, tol=1e-6)
    assert solution.converged
    assert not solution.certificate.proven
    assert "up to rounding: 'shy' does not declare its rounding errors" in str(solution.certificate)
    assert solution.certificate.lower_bound == pytest.approx(proven.certificate.lower_bound)
    assert proven.certificate.proven
    assert "up to rounding" not in str(proven.certificate)


def test_a_bound_above_an_objective_is_an_error(monkeypatch):
    """It should never happen; if it does, the user is told."""
    problem = make_problem()
    solution = cvxnn.solve(problem, tol=1e-6)
    true = proofs.lower_bound
    monkeypatch.setattr(
        certificates.proofs, "lower_bound", lambda *a, **k: true(*a, **k)._replace(value=1e9)
    )
    with pytest.raises(CertificateError, match="this is a mistake in cvxnn") as caught:
        cvxnn.certify(problem, solution.weights)
    assert caught.value.problem is problem
    assert caught.value.certificate.lower_bound == 1e9
    assert caught.value.dual.shape == solution.dual.shape


def test_multipliers_are_those_of_the_rows_of_the_problem():
    """-+X'D_i T^k + X~'gamma has a norm of at most lam over the scaling, block by block."""
    X, y = make_data(40, 3)
    problem = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), lam=0.01)
    solution = cvxnn.solve(problem, tol=1e-8)
    block, row, gamma = solution.multipliers
    assert np.all(gamma > 0)
    p = len(problem.patterns)
    blocks = np.concatenate(
        [-sign * problem.gated.operator.adjoint(solution.dual)[:, :, 0] for sign in (1, -1)]
    )
    signs = np.where(problem.patterns.mask.T, 1.0, -1.0)
    np.add.at(blocks, block, (gamma * signs[block % p, row])[:, None] * X[row])
    norms = np.linalg.norm(blocks, axis=1)
    assert norms.max() <= problem.lam * (1 + 1e-6)
    assert norms.max() >= problem.lam * (1 - 1e-6)  # some are tight


@pytest.mark.parametrize("kind", [cvxnn.CGReLU, cvxnn.CReLU])
def test_without_a_penalty_a_radius_is_stated(kind):
    X, y = make_data(60, 3)
    X = X * [1e2, 1.0, 1e-2]
    problem = kind(X, y, cvxnn.sample_patterns(X, 4, random_state=0), lam=0)
    proof = prove(problem, cvxnn.solve(problem, tol=1e-6).weights)
    U = problem.check_weights(proof.weights)
    size = np.linalg.norm(U * proofs.column_units(problem)[:, None], axis=1).sum()
    assert proof.certificate.radius == pytest.approx(proofs.RADIUS * size)
    assert proof.certificate.lower_bound > 0.99 * proof.certificate.objective
    smaller = dataclasses.replace(proof.certificate, radius=None)
    assert "block norms sum to at most" in str(proof.certificate)
    assert "block norms" not in str(smaller)


def test_soft_targets_need_not_sum_to_one():
    """0.1 + 0.2 + 0.7 is not 1 in floating-point numbers; the lower bound holds all the same."""
    X, _ = make_data(30, 3)
    Y = np.tile([0.1, 0.2, 0.7], (30, 1))
    Y[::2] = [0.3, 0.3, 0.4 + 5e-7]
    problem = cvxnn.CGReLU(X, Y, cvxnn.sample_patterns(X, 5, random_state=0), 1e-3, loss="softmax")
    assert np.array_equal(problem.loss.Y, Y)
    solution = cvxnn.solve(problem, tol=1e-9)
    assert solution.converged
    assert solution.certificate.proven


# -- numbers next to the ends of the range of doubles


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1"])
def test_products_that_overflow_prove_nothing(penalty):
    X = np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, -1.0], [1.0, 1.0]]) * 1e250
    patterns = cvxnn.Patterns.from_mask(np.ones((4, 1), bool))
    y = np.array([1.0, -2.0, 1.0, 1.0]) * 1e100
    problem = cvxnn.CGReLU(X, y, patterns, 1.0, penalty=penalty)
    assert cvxnn.certify(problem, problem.zero_weights()).lower_bound == 0


def test_a_row_next_to_zero_leaves_a_bound_true():
    """Its multiplier would be infinite."""
    X, y = np.array([[1e-310, 0.0], [1.0, 1.0], [1.0, -1.0]]), -np.ones(3)
    patterns = cvxnn.Patterns.from_mask(np.ones((3, 1), bool))
    problem = cvxnn.CReLU(X, y, patterns, 1e-3, singular="keep")
    # w = (1, 0) is inside, by less than products may be off, and leaves a residual of 1 in one row
    attained = 1 / 6 + 1e-3
    zero = np.zeros((1, 2, 1))
    proof = prove(problem, (zero, zero))
    assert proof.certificate.lower_bound <= attained
    assert np.isfinite(proof.multipliers.value).all()


def test_predictions_that_cancel_have_no_small_objective():
    """1e40 + 1e22 - 1e40 is 0 in floating-point numbers."""
    patterns = cvxnn.Patterns.from_mask(np.ones((2, 1), bool))
    X, Y = np.ones((2, 3)), np.array([[1.0, 0.0], [0.0, 1.0]])
    problem = cvxnn.CGReLU(X, Y, patterns, 0.0, loss="softmax", penalty="none")
    U = np.zeros((1, 3, 2))
    U[0, :, 1] = 1e40, 1e22, -1e40
    assert cvxnn.certify(problem, U).objective >= 5e21


def test_squares_that_underflow_are_not_forgotten():
    squared = losses.SquaredLoss(np.array([[1e-20]]), np.ones((1, 1)))
    point = Ball(np.array([[-1e150]]), np.zeros((1, 1)))
    bound = squared.dual_below(point, np.array([np.inf]), np.zeros(1), np.zeros(1))
    assert 4e-41 < bound <= 5e-41
    assert penalties.L2(1e300).value_above(np.full((1, 1, 1), 1e-170)) >= 5e-41
    G = np.full((1, 1, 1), 1e-170)
    assert np.all(penalties.L2(1e-300).conjugate_above(G, 0 * G) >= 5e-41)
    tiny = losses.SquaredLoss(np.array([[1e-170]]), np.ones((1, 1)))
    assert tiny.value_above(Ball(np.zeros((1, 1)))) > 0
    assert squared.value_above(Ball(np.array([[1e-20]]))) == 0


def test_signs_of_tiny_weights_are_not_taken_on_trust():
    x = np.array([[1.3662463810637219e140, -3.5318014794863344e139, -8.355019597814099e139]])
    v = np.array([[5.18162427248333e-310, 4.91343107217394e-310, 6.3962137188818e-310]])
    exact = sum(Fraction(a) * Fraction(b) for a, b in zip(x[0], v[0], strict=True))
    assert exact < 0
    assert not cones.Cones(x, np.ones((1, 1), bool)).proven_inside(v, np.zeros(1, int)).any()


def test_sums_beyond_all_numbers_prove_nothing():
    X, y = np.ones((3, 1)), np.array([1.0, 2.0, 4.0])
    patterns = cvxnn.Patterns.from_mask(np.ones((3, 1), bool))
    problem = cvxnn.CGReLU(X, y, patterns, 0.1, output_bias=True)
    certificate = cvxnn.certify(problem, problem.zero_weights(), np.array([1e308, 1e308, 1.5e308]))
    assert 0 <= certificate.lower_bound <= certificate.objective
