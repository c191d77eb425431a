"""Every solver, penalty, array library and precision reaches the optimum an independent conic
solver finds, and proves it by its own duality gap."""

import numpy as np
import pytest

import cvxnn
from conftest import PENALTIES, expanded_matrix, make_problem
from cvxnn.arrays import to_numpy
from extras import needs, required

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
SHAPES = {"tall": (40, 3), "wide": (8, 12)}


def naive_objective(problem, U):
    """The formula of the problem, written out on the formed matrix."""
    U = to_numpy(U).astype(float)
    Y = to_numpy(problem.loss.Y).astype(float)
    fit = np.einsum("npd,pdc->nc", expanded_matrix(problem).astype(float), U)
    penalty = {
        "neuron": np.sqrt((U**2).sum(axis=1)).sum(),
        "feature": np.sqrt((U**2).sum(axis=(0, 2))).sum(),
        "l1": np.abs(U).sum(),
        "l2": (U**2).sum() / 2,
    }[problem.penalty_name]
    return ((fit - Y) ** 2).sum() / (2 * Y.size) + problem.lam * penalty


def oracle_value(problem):
    required("cvxpy")
    solution = cvxnn.solve(problem, "cvxpy", tol=1e-6, settings=TIGHT)
    return naive_objective(problem, solution.weights)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rfista_agrees_with_the_oracle(penalty, shape, C):
    n, d = SHAPES[shape]
    problem = make_problem(n, d, p=10, C=C, penalty=penalty, share=0.05)
    solution = cvxnn.solve(problem, "rfista", tol=1e-9)
    certificate = solution.certificate
    assert solution.converged
    assert certificate.relative_gap <= 1e-9
    assert certificate.objective == pytest.approx(naive_objective(problem, solution.weights))
    assert certificate.objective == pytest.approx(oracle_value(problem), rel=1e-7)
    assert certificate.lower_bound <= oracle_value(problem) * (1 + 1e-8)


@pytest.mark.parametrize("settings", [{"bias": True}, {"normalize": True, "bias": True}])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_bias_and_normalisation_agree_with_the_oracle(penalty, settings):
    problem = make_problem(30, 3, p=10, C=2, penalty=penalty, share=0.05, **settings)
    assert problem.weight_shape[1] == 4
    solution = cvxnn.solve(problem, "rfista", tol=1e-9)
    assert solution.certificate.objective == pytest.approx(oracle_value(problem), rel=1e-7)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", ["direct", "lsmr", "rfista"])
def test_ridge_solvers_agree_with_the_oracle(solver, shape, C):
    problem = make_problem(*SHAPES[shape], p=10, C=C, penalty="l2", share=0.05)
    solution = cvxnn.solve(problem, solver, tol=1e-9)
    assert solution.certificate.relative_gap <= 1e-9
    assert solution.certificate.objective == pytest.approx(oracle_value(problem), rel=1e-7)


@pytest.mark.parametrize("solver", ["direct", "lsmr", "rfista"])
def test_unpenalised_solvers_reach_the_least_squares_value(solver):
    """n > p d: the optimal value is positive, and the bound must meet it from below."""
    problem = make_problem(60, 2, p=5, C=2, share=0).with_lam(0)
    flat = expanded_matrix(problem).reshape(60, -1)
    residual = problem.loss.Y - flat @ np.linalg.lstsq(flat, problem.loss.Y)[0]
    value = np.sum(residual**2) / (2 * 60 * 2)
    solution = cvxnn.solve(problem, solver, tol=1e-8)
    assert solution.converged
    assert solution.certificate.objective == pytest.approx(value, rel=1e-7)
    assert solution.certificate.lower_bound == pytest.approx(value, rel=1e-7)
    assert solution.certificate.dual_infeasibility < 1e-9


@pytest.mark.parametrize("solver", ["direct", "lsmr"])
def test_interpolation_is_certified_and_has_minimum_norm(solver):
    problem = make_problem(10, 6, p=10, share=0).with_lam(0)
    solution = cvxnn.solve(problem, solver)
    assert solution.converged
    assert solution.certificate.objective < 1e-12 * solution.certificate.zero_objective
    flat = expanded_matrix(problem).reshape(10, -1)
    shortest = np.linalg.pinv(flat) @ problem.loss.Y
    np.testing.assert_allclose(solution.weights.reshape(-1, 1), shortest, atol=1e-6)


@pytest.mark.parametrize("penalty", [*PENALTIES, "none"])
def test_rfista_on_every_library(penalty, to_library):
    problem = make_problem(40, 2, p=6, C=2, penalty="neuron")
    lam = 0.0 if penalty == "none" else 0.02
    X, Y = problem.operator.rows(), problem.loss.Y
    values = []
    for array in (np.asarray, to_library):
        other = cvxnn.CGReLU(array(X), array(Y), problem.patterns, lam=lam, penalty=penalty)
        solution = cvxnn.solve(other, "rfista", tol=1e-8)
        assert solution.converged
        assert type(solution.weights) is type(array(X))
        values.append(solution.certificate.objective)
    assert values[1] == pytest.approx(values[0], rel=1e-7)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_single_precision_reaches_its_promise(penalty, to_library):
    """float32 promises a relative gap of 1e-4, certified in float64."""
    problem = make_problem(60, 5, p=30, penalty=penalty, share=0.05, dtype=np.float32)
    X, Y = problem.operator.rows(), problem.loss.Y
    single = cvxnn.CGReLU(
        to_library(X), to_library(Y), problem.patterns, lam=problem.lam, penalty=penalty
    )
    solution = cvxnn.solve(single, "rfista", tol=1e-4)
    assert solution.converged
    assert "float32" in str(solution.weights.dtype)
    exact = cvxnn.CGReLU(
        X.astype(float), Y.astype(float), problem.patterns, lam=problem.lam, penalty=penalty
    )
    weights, dual = (to_numpy(array).astype(float) for array in (solution.weights, solution.dual))
    certificate = cvxnn.certify(exact, weights, dual)
    assert certificate.relative_gap <= 1e-4 * (1 + 1e-6)
    assert certificate.objective == pytest.approx(solution.certificate.objective, rel=1e-10)


@needs("cvxpy")
def test_oracle_takes_other_backends_and_refuses_unknown_ones():
    problem = make_problem(20, 3, p=6)
    exact = cvxnn.solve(problem, "cvxpy", tol=1e-4).certificate.objective
    rough = cvxnn.solve(problem, "cvxpy", backend="SCS", on_failure="ignore").certificate.objective
    assert rough == pytest.approx(exact, rel=1e-2)
    with pytest.raises(ValueError, match=r"no solver 'NOSUCH'.*CLARABEL"):
        cvxnn.solve(problem, "cvxpy", backend="NOSUCH")


@needs("cvxpy")
def test_oracle_refuses_what_would_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr("cvxnn.solvers.conic.MAX_ENTRIES", 100)
    with pytest.raises(ValueError, match="expanded matrix would have"):
        cvxnn.solve(make_problem(), "cvxpy")


@needs("cvxpy")
def test_oracle_that_gives_up_says_so():
    with pytest.warns(cvxnn.ConvergenceWarning, match="CLARABEL ended with status 'user_limit'"):
        cvxnn.solve(make_problem(), "cvxpy", settings={"max_iter": 1})
