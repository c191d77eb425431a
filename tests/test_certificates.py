"""Certificates bound the optimal value from both sides, for any point and any dual candidate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxnn
from conftest import PENALTIES, make_data, make_problem
from cvxnn.certificates import Certificate, dual_bound, relative_gap, unpenalised_bound
from cvxnn.digits import text_below
from cvxnn.losses import LOSSES


def with_loss(loss):
    """A problem with that loss, sample weights and an output bias."""
    X, Y = make_data(25, 3, C=2)
    signs = np.sign(Y - np.mean(Y, axis=0))
    Y = {"logistic": signs, "softmax": np.eye(2)[Y.argmax(axis=1)]}.get(loss, Y)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    settings = {"loss": loss, "output_bias": True, "sample_weight": np.arange(1, 26)}
    problem = cvxnn.CGReLU(X, Y, patterns, lam=1.0, **settings)
    return problem.with_lam(0.1 * cvxnn.lambda_max(problem))


@pytest.fixture(scope="module", params=[*PENALTIES, *LOSSES])
def solved(request):
    if request.param in LOSSES:
        problem = with_loss(request.param)
    else:
        problem = make_problem(25, 3, p=8, C=2, penalty=request.param, share=0.1)
    return problem, cvxnn.solve(problem, "rfista", tol=1e-10)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 1e3))
def test_any_point_and_candidate_bound_the_optimal_value(solved, seed, scale):
    problem, solution = solved
    rng = np.random.default_rng(seed)
    U = scale * rng.standard_normal(problem.weight_shape)
    Theta = scale * rng.standard_normal(problem.loss.Y.shape)
    certificate = cvxnn.certify(problem, U, Theta)
    optimum = solution.certificate.objective
    assert certificate.objective == pytest.approx(problem.objective(U))
    assert certificate.objective >= solution.certificate.lower_bound
    assert 0 <= certificate.lower_bound <= optimum * (1 + 1e-9)


def test_gap_closes_at_the_optimum(solved):
    problem, solution = solved
    fresh = cvxnn.certify(problem, solution.weights)
    # likelihoods have no choice of the scaling, so that an error of the weights costs more
    quadratic = problem.loss_name in ("squared", "huber")
    assert fresh.relative_gap <= (1e-8 if quadratic else 1e-5)
    assert fresh.gap == pytest.approx(fresh.objective - fresh.lower_bound)


def test_a_solution_carries_what_its_certificate_needs(solved):
    problem, solution = solved
    assert cvxnn.certify(problem, solution.weights, solution.dual) == solution.certificate


@pytest.mark.parametrize("max_iter", [0, 5, 50])
def test_the_dual_of_an_unfinished_run_proves_its_bound(max_iter):
    problem = make_problem(30, 3, p=10, share=0.01)
    run = cvxnn.solve(problem, "rfista", tol=0, max_iter=max_iter, on_failure="ignore")
    bound = dual_bound(problem, run.dual, problem.dual_correlation(run.dual))
    assert bound == pytest.approx(run.certificate.lower_bound, rel=1e-12)


def test_scaling_is_class_by_class():
    """A class whose residual is far from feasible must not spoil the bound of the others."""
    X, Y = make_data(25, 3, C=2)
    Y = Y * np.array([1.0, 100.0])
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, lam=0.05)
    certificate = cvxnn.certify(problem, problem.zero_weights())
    alone = [
        cvxnn.certify(single, single.zero_weights()).lower_bound
        for single in (cvxnn.CGReLU(X, Y[:, k], patterns, lam=0.1) for k in range(2))
    ]
    # with s = 2n the two classes are independent problems at twice the strength, each half
    assert certificate.lower_bound == pytest.approx(sum(alone) / 2)


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1"])
def test_lambda_max_is_where_the_zero_model_stops_being_optimal(penalty):
    problem = make_problem(30, 4, p=10, C=2, penalty=penalty)
    lam = cvxnn.lambda_max(problem)
    above = cvxnn.solve(problem.with_lam(1.0001 * lam), "rfista")
    assert above.n_active == 0
    assert above.certificate.gap <= 1e-12
    assert above.certificate.objective == pytest.approx(above.certificate.zero_objective)
    below = cvxnn.solve(problem.with_lam(0.99 * lam), "rfista", tol=1e-8)
    assert below.n_active > 0
    assert below.certificate.objective < above.certificate.objective


@pytest.mark.parametrize("penalty", ["l2", "none"])
def test_lambda_max_does_not_exist_without_a_norm(penalty):
    problem = make_problem(penalty=penalty, share=0.0)
    with pytest.raises(ValueError, match="no lambda_max"):
        cvxnn.lambda_max(problem)


def test_unpenalised_bound_of_an_infeasible_candidate_is_only_zero(monkeypatch):
    problem = make_problem(40, 2, p=4).with_lam(0)
    Theta = problem.loss.gradient(np.zeros_like(problem.loss.Y))
    honest, infeasibility = unpenalised_bound(problem, Theta)
    assert honest > 0
    assert infeasibility < 1e-12
    monkeypatch.setattr(problem, "range_complement", lambda B: B, raising=False)
    assert unpenalised_bound(problem, Theta) == (0.0, 0.0)


def test_relative_gap_where_the_objective_vanishes():
    assert relative_gap(0.0, 0.0, 0.0) == 0
    assert relative_gap(0.0, 0.0, 5.0) == 0
    assert relative_gap(1e-20, 0.0, 1.0) == pytest.approx(1e-12)  # floor 1e-8 f(0)
    assert relative_gap(2.0, 1.0, 5.0) == pytest.approx(0.5)
    assert relative_gap(1.0, 1.0 + 1e-16, 5.0) == 0
    assert relative_gap(np.inf, 0.0, 5.0) == 1


def test_certificates_speak_of_what_they_bound():
    problem = make_problem(20, 3, p=6, normalize=True)
    text = str(cvxnn.certify(problem, problem.zero_weights()))
    assert f"C-GReLU over {len(problem.patterns)} given patterns on unit-norm columns" in text
    assert ">= optimal value >=" in text
    plain = make_problem(20, 3, p=6)
    assert "unit-norm" not in plain.scope
    assert Certificate(1.0, 0.5, 2.0, "x").relative_gap == pytest.approx(0.5)


def test_single_precision_runs_are_certified_in_double():
    problem = make_problem(40, 4, p=20, dtype=np.float32)
    solution = cvxnn.solve(problem, "rfista", tol=1e-3)
    twin = cvxnn.CGReLU(
        np.asarray(problem.operator.rows(), float),
        np.asarray(problem.loss.Y, float),
        problem.patterns,
        lam=problem.lam,
    )
    exact = cvxnn.certify(twin, np.asarray(solution.weights, float))
    assert solution.certificate.objective == pytest.approx(exact.objective, rel=1e-12)


@pytest.mark.parametrize(
    ("Theta", "message"),
    [
        (np.full((30, 1), np.nan), "Theta contains NaN|Theta holds NaN|NaN"),
        (np.zeros((5, 1)), r"Theta must have shape \(30, 1\), got \(5, 1\)"),
        (np.zeros((30, 2)), r"Theta must have shape \(30, 1\), got \(30, 2\)"),
    ],
)
def test_what_is_no_dual_candidate_is_refused(Theta, message):
    X, y = make_data(30, 3)
    problem = cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), lam=0.1)
    with pytest.raises(ValueError, match=message):
        cvxnn.certify(problem, problem.zero_weights(), Theta)


def test_a_dual_candidate_of_one_output_may_be_a_vector():
    X, y = make_data(30, 3)
    problem = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), lam=0.1)
    solution = cvxnn.solve(problem, tol=1e-6)
    again = cvxnn.certify(problem, solution.weights, solution.dual[:, 0])
    assert again == cvxnn.certify(problem, solution.weights, solution.dual)


def test_weights_outside_their_cones_can_be_projected():
    X, y = make_data(30, 3)
    problem = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), lam=0.1)
    V, W = np.random.default_rng(1).standard_normal((2, len(problem.patterns), 3, 1))
    with pytest.raises(ValueError, match="outside their cones"):
        cvxnn.certify(problem, (V, W))
    projected = problem.project((V, W))
    assert cvxnn.certify(problem, projected).max_violation < 1e-12
    np.testing.assert_allclose(problem.project(projected)[0], projected[0], atol=1e-12)


def test_weights_of_cones_are_a_pair_or_one_array():
    X, y = make_data(30, 3)
    problem = cvxnn.CReLU(X, y, cvxnn.sample_patterns(X, 8, random_state=0), lam=0.1)
    solution = cvxnn.solve(problem, tol=1e-6)
    both = np.stack(solution.weights)
    expected = cvxnn.certify(problem, solution.weights, solution.dual)
    assert cvxnn.certify(problem, both, solution.dual) == expected
    with pytest.raises(ValueError, match=r"weights must be the pair \(V, W\), each of"):
        cvxnn.certify(problem, both[0])
    with pytest.raises(TypeError, match=r"certify\(problem, solution.weights, solution.dual\)"):
        cvxnn.certify(problem, solution)


def test_without_a_penalty_the_bound_says_among_which_weights():
    X, y = make_data(30, 3)
    problem = cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 2, random_state=0), lam=0.0)
    solution = cvxnn.solve(problem, tol=1e-6)
    certificate = solution.certificate
    assert certificate.dual_infeasibility > 0
    assert certificate.radius > 0
    assert f"weights whose block norms sum to at most {text_below(certificate.radius, 3)}" in str(
        certificate
    )
