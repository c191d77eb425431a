"""Cone decompositions: feasible, same fit, norms as promised, and the paper's two false claims."""

import numpy as np
import pytest

import cvxnn
from conftest import make_data, make_problem
from cvxnn.cones.cones import Cones
from cvxnn.decompositions import FUNCTIONS, _non_zero_blocks
from cvxnn.problems import CReLU
from extras import installed, needs

METHODS = [name for name in FUNCTIONS if name != "socp" or installed("cvxpy")]
EVERYWHERE = [name for name in METHODS if name != "closed-form"]


@pytest.fixture(scope="module")
def tall():
    return cvxnn.solve(make_problem(40, 3, p=15, C=2, share=0.05), "rfista", tol=1e-6)


@pytest.fixture(scope="module")
def wide():
    """Full row rank."""
    return cvxnn.solve(make_problem(6, 10, p=8, share=0.05), "rfista", tol=1e-6)


def check(decomposition, gated):
    """v - w = u, both in the cone, certificate and network consistent."""
    problem = decomposition.problem
    V, W = decomposition.weights
    np.testing.assert_allclose(V - W, gated.weights, atol=1e-9 * max(1, np.abs(V).max()))
    stacked = np.concatenate([V, W])
    assert problem.max_violation(stacked) <= 1e-12 * np.abs(stacked).max()
    assert decomposition.certificate.objective == pytest.approx(problem.objective((V, W)))
    assert decomposition.certificate.network_objective == pytest.approx(
        decomposition.certificate.objective, rel=1e-9
    )
    assert decomposition.certificate.lower_bound >= gated.certificate.lower_bound
    norms = np.linalg.norm(stacked, axis=1).sum()
    assert decomposition.norm_ratio == pytest.approx(
        norms / np.linalg.norm(gated.weights, axis=1).sum()
    )
    X = np.asarray(problem.operator.rows())
    np.testing.assert_allclose(
        decomposition.network().predict(X),
        gated.network().predict(X),
        atol=1e-9 * max(1, np.abs(stacked).max()),
    )


@pytest.mark.parametrize("method", EVERYWHERE)
def test_every_method_decomposes_tall_data(tall, method):
    check(cvxnn.decompose(tall, method), tall)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_decomposes_data_of_full_row_rank(wide, method):
    check(cvxnn.decompose(wide, method), wide)


def test_norms_are_ordered_as_the_objectives_say(tall):
    result = {method: cvxnn.decompose(tall, method) for method in EVERYWHERE}
    least_w = np.linalg.norm(result["least-distance"].weights[1], axis=1).sum()
    for method in EVERYWHERE:
        assert result["min-norm"].norm_ratio <= result[method].norm_ratio * (1 + 1e-6)
        assert least_w <= np.linalg.norm(result[method].weights[1], axis=1).sum() * (1 + 1e-6)
    assert result["gate"].norm_ratio > result["min-norm"].norm_ratio


@pytest.mark.parametrize("fixture", ["tall", "wide"])
@needs("cvxpy")
def test_min_norm_is_the_socp(fixture, request):
    gated = request.getfixturevalue(fixture)
    ours, conic = cvxnn.decompose(gated, "min-norm"), cvxnn.decompose(gated, "socp")
    np.testing.assert_allclose(ours.block_ratios, conic.block_ratios, rtol=1e-4)


def test_min_norm_keeps_blocks_that_are_in_the_cone():
    """A block of K has ratio 1 with w = 0, one of -K with v = 0."""
    problem = make_problem(20, 3, p=6)
    gates = problem.patterns.gates
    U = np.zeros(problem.weight_shape)
    U[0, :, 0], U[1, :, 0] = gates[:, 0], -2 * gates[:, 1]
    solution = cvxnn.solve(problem, max_iter=0, warm_start=U, on_failure="ignore")
    result = cvxnn.decompose(solution)
    np.testing.assert_allclose(result.block_ratios, 1.0)
    np.testing.assert_allclose(result.weights[1][0], 0)
    np.testing.assert_allclose(result.weights[0][1], 0)


@pytest.mark.parametrize(
    "method", ["least-distance", "min-norm", pytest.param("socp", marks=needs("cvxpy"))]
)
@pytest.mark.parametrize("fixture", ["tall", "wide"])
def test_ratios_stay_below_the_bound_of_the_tight_rows(fixture, method, request):
    result = cvxnn.decompose(request.getfixturevalue(fixture), method)
    assert np.all(result.block_ratios <= result.block_bounds * (1 + 1e-6))


def test_closed_form_ratio_is_at_most_one_plus_two_kappa(wide):
    result = cvxnn.decompose(wide, "closed-form")
    kappa = np.linalg.cond(np.asarray(result.problem.operator.rows()))
    np.testing.assert_allclose(result.block_bounds, 1 + 2 * kappa)
    assert np.all(result.block_ratios <= 1 + 2 * kappa)


def test_closed_form_is_refused_without_full_row_rank(tall):
    with pytest.raises(ValueError, match="full row rank"):
        cvxnn.decompose(tall, "closed-form")


def test_the_printed_closed_form_leaves_the_cone():
    """Proposition 3.4 as printed, w = -X~_I^+ X~_I u: most random cases are infeasible."""
    outside = total = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((5, 8))
        gate, u = rng.standard_normal((2, 8))
        tilde = np.where(X @ gate >= 0, 1.0, -1.0)[:, None] * X
        violated = tilde @ u < 0
        if not violated.any() or violated.all():
            continue
        w = -np.linalg.pinv(tilde[violated]) @ tilde[violated] @ u
        total += 1
        outside += np.min(tilde @ w) < -1e-9 or np.min(tilde @ (u + w)) < -1e-9
        right = np.linalg.pinv(tilde) @ np.maximum(-tilde @ u, 0)
        assert np.min(tilde @ right) >= -1e-9
        assert np.min(tilde @ (u + right)) >= -1e-9
    assert outside > total / 2


def narrow_cone(alpha):
    """Two rows almost opposite each other: full row rank, and a cone of angle about alpha."""
    X = np.array([[1.0, alpha], [-1.0, alpha]])
    return X, np.ones((2, 1), bool)


def test_the_narrow_cone_has_no_constant_ratio():
    """Proposition 3.5, and a counterexample to the printed factor 2: at alpha = 0.1 the smallest
    ratio is 10, although X has full row rank."""
    ratios = {}
    for alpha in (0.1, 0.01):
        X, mask = narrow_cone(alpha)
        patterns = cvxnn.Patterns.from_mask(mask)
        problem = cvxnn.CGReLU(X, np.ones(2), patterns, lam=0.1)
        U = np.array([1.0, 0.0]).reshape(1, 2, 1)
        solution = cvxnn.solve(problem, max_iter=0, warm_start=U, on_failure="ignore")
        for method in {"min-norm", "socp"} & set(METHODS):
            assert cvxnn.decompose(solution, method).norm_ratio == pytest.approx(
                np.sqrt(1 + 1 / alpha**2), rel=1e-4
            )
        ratios[alpha] = cvxnn.decompose(solution).norm_ratio
    assert ratios[0.1] == pytest.approx(10, rel=0.01)
    assert ratios[0.01] > 90


def test_approximate_violation_is_bounded_for_full_row_rank(wide):
    """||(X~w)_-|| + ||(X~v)_-|| <= 2 rho / sigma_min, up to the solver's tolerance."""
    rho = 1e-3
    result = cvxnn.decompose(wide, "approximate", rho=rho, tol=1e-9, max_iter=100_000)
    X = np.asarray(result.problem.operator.rows())
    sigma = np.linalg.svd(X, compute_uv=False)[-1]
    assert result.violation_bound == pytest.approx(2 * rho / sigma)
    assert 0 < result.violation <= result.violation_bound / np.linalg.norm(X, axis=1).min()
    assert cvxnn.decompose(wide, "approximate", tol=1e-9).violation < result.violation


def test_approximate_reads_its_options(tall):
    rough = cvxnn.decompose(tall, "approximate", max_iter=5)
    fine = cvxnn.decompose(tall, "approximate", tol=1e-8)
    assert fine.violation < rough.violation
    assert fine.violation_bound is None  # not of full row rank
    assert cvxnn.decompose(tall, "approximate", rho=1.0).violation > fine.violation


def test_algorithm_one_end_to_end():
    """Sample, solve C-GReLU, decompose: a feasible point with an honest gap."""
    X, Y = make_data(30, 3)
    patterns = cvxnn.sample_patterns(X, 12, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.02)
    with pytest.warns(cvxnn.ConvergenceWarning, match="feasible, not optimal"):
        solution = cvxnn.solve(problem, "decomposition")
    assert solution.certificate.max_violation <= 1e-12
    assert solution.n_active > 0  # the decomposition itself, even where the zero model is better
    best = cvxnn.solve(problem, "al", tol=1e-5).certificate
    assert solution.certificate.lower_bound <= best.objective <= solution.certificate.objective
    with pytest.raises(ValueError, match="did you mean 'min-norm'"):
        cvxnn.solve(problem, "decomposition", method="min-nrm")
    worse = cvxnn.solve(problem, "decomposition", method="gate", on_failure="ignore")
    assert worse.certificate.objective > solution.certificate.objective


def test_a_zero_solution_decomposes_to_zero():
    problem = make_problem(20, 3, p=6, share=1.1)
    result = cvxnn.decompose(cvxnn.solve(problem))
    assert result.norm_ratio == 1
    assert not result.weights[0].any()
    assert result.network().n_neurons == 0


def test_what_cannot_be_decomposed_is_refused(tall):
    with pytest.raises(ValueError, match=r"unknown method 'min-nrm'; did you mean 'min-norm'"):
        cvxnn.decompose(tall, "min-nrm")
    with pytest.raises(TypeError, match="gated must be the Solution"):
        cvxnn.decompose(tall.weights)
    with pytest.raises(TypeError, match=r"'approximate' has no option 'roh'; did you mean 'rho'"):
        cvxnn.decompose(tall, "approximate", roh=1e-3)
    with pytest.raises(TypeError, match="'gate' has no option 'rho'; it has none"):
        cvxnn.decompose(tall, "gate", rho=1e-3)
    other = cvxnn.solve(make_problem(penalty="l1"))
    with pytest.raises(ValueError, match="neuron penalty"):
        cvxnn.decompose(other)
    X = np.array([[1.0, 0, 0], [0, 1, 0], [-1, -1, 0], [0, 0, 1]])
    singular = cvxnn.CGReLU(X, np.ones(4), cvxnn.Patterns.from_mask(np.ones((4, 1))), lam=1e-3)
    with pytest.raises(ValueError, match=r"cones of patterns \[0\] are singular"):
        cvxnn.decompose(cvxnn.solve(singular))


def test_blocks_are_those_of_the_solution(tall):
    problem = CReLU.from_gated(tall.problem)
    blocks, (i, k) = _non_zero_blocks(problem, tall.weights)
    assert len(blocks.u) == tall.n_active
    np.testing.assert_array_equal(blocks.u, tall.weights[i, :, k])
    assert isinstance(blocks.cones, Cones)


def test_a_decomposition_says_what_it_is(tall):
    text = repr(cvxnn.decompose(tall))
    assert "min-norm" in text
    assert "norm ratio" in text
    assert len(text) < 400
