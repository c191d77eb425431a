"""`verify` confirms what solvers certify, by code of its own, and nothing that is not so."""

import ast
import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy import special
from scipy.sparse import csr_array

import cvxnn
from conftest import PENALTIES, expanded_matrix, make_data, make_problem
from cvxnn import losses, operators, penalties, problems
from cvxnn.arrays import to_numpy
from cvxnn.certificates import CertificateError, lower_bound_of
from cvxnn.cones import cones
from cvxnn.verification import checks as verification
from cvxnn.verification import dual_points
from extras import CVXPY


def make_crelu(*args, **settings):
    return cvxnn.CReLU.from_gated(make_problem(*args, **settings))


def make_with_loss(
    loss, *, kind=cvxnn.CGReLU, output_bias=True, weighted=True, share=0.05, p=8, **other
):
    """A problem with that loss, on targets that are not separable."""
    X, Y = make_data(60, 3, C=3)
    Y[::2] = Y[1::2]
    if loss == "logistic":
        Y = np.where(np.median(Y) < Y, 1.0, -1.0)
    elif loss == "softmax":  # one row in three is not sure of its class
        Y = np.eye(3)[Y.argmax(axis=1)]
        Y[::3] = [0.5, 0.3, 0.2]
    problem = kind(
        X,
        Y,
        cvxnn.sample_patterns(X, p, random_state=0),
        lam=share,
        loss=loss,
        output_bias=output_bias,
        sample_weight=np.random.default_rng(0).uniform(0.2, 3, 60) if weighted else None,
        **other,
    )
    if problem.penalty_name in ("l2", "none"):
        return problem
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def solve(problem, solver, tol=1e-6):
    return cvxnn.solve(problem, solver, tol=tol, on_failure="ignore")


def confirm(solution):
    """Verified, and equal to the certificate in every number."""
    found, claim = cvxnn.verify(solution), solution.certificate
    assert found.agrees, str(found)
    assert found.differences == ()
    scale = claim.zero_objective
    assert found.objective == pytest.approx(claim.objective, rel=1e-10, abs=1e-20 * scale)
    # the scaling that is found here is the best one, that of a certificate a good one
    assert found.lower_bound == pytest.approx(claim.lower_bound, rel=1e-5, abs=1e-20 * scale)
    assert found.relative_gap == pytest.approx(claim.relative_gap, rel=1e-3, abs=1e-5)
    assert found.relative_gap <= claim.relative_gap
    assert found.zero_objective == pytest.approx(claim.zero_objective, rel=1e-12)
    size = float(np.abs(to_numpy(solution.problem.check_weights(solution.weights))).max())
    assert found.max_violation == pytest.approx(claim.max_violation, abs=1e-12 * size)
    if claim.network_objective is None:
        assert found.network_objective is None
    else:
        assert found.network_objective == pytest.approx(
            claim.network_objective, rel=1e-10, abs=1e-20 * scale
        )
    return found


def tampered(solution, **claims):
    return dataclasses.replace(
        solution, certificate=dataclasses.replace(solution.certificate, **claims)
    )


def only_difference(solution):
    differences = cvxnn.verify(solution).differences
    assert len(differences) == 1, differences
    return differences[0]


LOSSES = tuple(losses.LOSSES)


@pytest.fixture(scope="module", params=[*PENALTIES, "none", "cones", *LOSSES, "softmax cones"])
def solution(request):
    """A solved problem of each kind; n > p d, so that the unpenalised value is not zero. Losses
    have sample weights and an output bias."""
    loss = request.param.split()[0]
    if loss in LOSSES:
        kind = cvxnn.CReLU if "cones" in request.param else cvxnn.CGReLU
        return solve(make_with_loss(loss, kind=kind), "newton")
    if request.param == "cones":
        return solve(make_crelu(60, 3, p=8, C=2, share=0.05), "newton")
    if request.param == "none":
        return solve(make_problem(60, 3, p=8, C=2, penalty="none", share=0.0), "direct")
    return solve(make_problem(60, 3, p=8, C=2, penalty=request.param, share=0.05), "rfista")


@pytest.fixture(scope="module")
def relu():
    return solve(make_crelu(60, 3, p=8, C=2, share=0.05), "newton")


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("solver", ["rfista", CVXPY])
def test_gated_solutions_are_confirmed(solver, penalty, C):
    confirm(solve(make_problem(30, 4, p=10, C=C, penalty=penalty, share=0.05), solver))


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize(
    ("solver", "penalty"), [("newton", "neuron"), ("direct", "l2"), ("lsmr", "l2")]
)
def test_solutions_of_special_solvers_are_confirmed(solver, penalty, C):
    confirm(solve(make_problem(30, 4, p=10, C=C, penalty=penalty, share=0.05), solver))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [cvxnn.CGReLU, cvxnn.CReLU])
def test_every_loss_is_confirmed(kind, loss, output_bias, weighted):
    problem = make_with_loss(loss, kind=kind, output_bias=output_bias, weighted=weighted)
    confirm(solve(problem, "newton"))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", ["feature", "l1", "l2", "none"])
def test_every_loss_with_other_penalties_is_confirmed(penalty, loss):
    size = {"share": 0.0, "p": 2} if penalty == "none" else {}  # else classes are separable
    found = confirm(solve(make_with_loss(loss, penalty=penalty, **size), "rfista", tol=1e-5))
    assert found.relative_gap <= 1e-5


def test_a_class_without_an_optimum_does_not_spoil_the_bound_of_the_others():
    """Without a penalty, weights of a separable class grow without end, and its dual point is 0."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    Y = np.sign(np.stack([X[:, 0], rng.standard_normal(60)], axis=1))
    patterns = cvxnn.Patterns.from_mask(np.ones((60, 1), bool))
    problem = cvxnn.CGReLU(X, Y, patterns, lam=0, loss="logistic", penalty="none")
    run = cvxnn.solve(problem, "rfista", max_iter=2000, on_failure="ignore")
    found = confirm(run)
    alone = cvxnn.CGReLU(X, Y[:, 1], patterns, lam=0, loss="logistic", penalty="none")
    optimum = solve(alone, "rfista").certificate.objective / 2
    assert found.lower_bound == pytest.approx(optimum, rel=1e-5)
    assert found.objective > found.lower_bound


@pytest.mark.parametrize("loss", LOSSES)
def test_likelihoods_that_are_sure_are_confirmed(loss):
    """Probabilities below rounding, and no curvature in the search for the output bias."""
    X, Y = make_data(40, 3, C=3)
    Y = {"logistic": np.sign(X @ np.eye(3)), "softmax": np.eye(3)[X.argmax(axis=1)]}.get(loss, Y)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, lam=1.0, loss=loss, output_bias=True)
    confirm(solve(problem.with_lam(1e-4 * cvxnn.lambda_max(problem)), "newton", tol=1e-5))


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("solver", ["al", "newton", CVXPY, "decomposition"])
def test_relu_solutions_are_confirmed(solver, C):
    run = solve(make_crelu(30, 4, p=10, C=C, share=0.05), solver, tol=1e-4)
    found = confirm(run)
    assert "multipliers of cone constraints" in str(found)
    own = cvxnn.verify(dataclasses.replace(run, multipliers=None))
    assert own.lower_bound == pytest.approx(found.lower_bound, rel=1e-9)
    assert "non-negative least squares" in str(own)


@pytest.mark.parametrize(
    "settings", [{"bias": True}, {"normalize": True}, {"bias": True} | {"normalize": True}]
)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_intercepts_and_unit_columns_are_part_of_the_data(penalty, settings):
    problem = make_problem(30, 3, p=10, C=2, penalty=penalty, share=0.05, **settings)
    confirm(solve(problem, "rfista"))
    if penalty == "neuron":
        found = confirm(solve(cvxnn.CReLU.from_gated(problem), "newton"))
        assert ("unit-norm" in str(found)) == problem.normalize


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_library_and_precision(penalty, dtype, to_library):
    problem = make_problem(40, 4, p=20, C=2, penalty=penalty, share=0.05, dtype=dtype)
    X, Y = (to_library(np.asarray(array)) for array in (problem.operator.rows(), problem.loss.Y))
    other = cvxnn.CGReLU(X, Y, problem.patterns, lam=problem.lam, penalty=penalty)
    confirm(solve(other, "rfista", tol=1e-4))


@pytest.mark.parametrize("solver", ["al", "newton", "decomposition"])
def test_single_precision_cones(solver):
    problem = make_crelu(40, 4, p=15, C=2, share=0.05, dtype=np.float32)
    run = solve(problem, solver, tol=1e-3)
    assert run.weights[0].dtype == np.float64  # float32 would round them out of their cones
    confirm(run)


@pytest.mark.parametrize("solver", ["direct", "lsmr", "rfista", CVXPY])
@pytest.mark.parametrize("shape", [(60, 3, 6), (12, 4, 10)])
def test_without_a_penalty(solver, shape):
    """A positive optimal value, and interpolation."""
    n, d, p = shape
    run = solve(make_problem(n, d, p=p, C=2, share=0.0, penalty="none"), solver)
    found = confirm(run)
    assert "among weights whose block norms sum to at most" in str(found)
    assert (found.lower_bound > 1e-3) == (n == 60)


def test_without_a_penalty_and_with_cones():
    found = confirm(solve(make_crelu(60, 3, p=6, C=2).with_lam(0), "decomposition"))
    assert found.lower_bound > 1e-3
    assert found.relative_gap < 1e-6


def test_without_a_penalty_the_bound_survives_ill_conditioned_data():
    """The kernel M M' would square a condition number of 1e8."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) * [1, 1, 1e-2, 1e-4]
    y = np.maximum(X[:, 0], 0) + rng.standard_normal(80)
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    problem = cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 4, random_state=0), lam=0)
    M = expanded_matrix(problem).reshape(80, -1)
    residual = y - M @ np.linalg.lstsq(M, y, rcond=1e-14)[0]
    found = cvxnn.verify(solve(problem, "lsmr"))
    assert found.lower_bound == pytest.approx(residual @ residual / 160, rel=1e-4)
    assert found.lower_bound <= found.objective


@pytest.mark.parametrize("max_iter", [0, 3])
@pytest.mark.parametrize("kind", ["gated", "relu"])
def test_unfinished_runs_are_confirmed(kind, max_iter):
    problem = make_problem(40, 3, p=10, share=0.01)
    problem = problem if kind == "gated" else cvxnn.CReLU.from_gated(problem)
    solver = "rfista" if kind == "gated" else "al"
    confirm(cvxnn.solve(problem, solver, max_iter=max_iter, on_failure="ignore"))


@pytest.mark.parametrize("kind", [cvxnn.CGReLU, cvxnn.CReLU])
def test_sparse_data(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.4)
    X[:, 0] += 0.1  # no row is zero
    patterns = cvxnn.sample_patterns(csr_array(X), 8, random_state=0)
    settings = {"loss": "logistic", "output_bias": True, "lam": 1e-3}
    problem = kind(csr_array(X), np.sign(rng.standard_normal(40)), patterns, **settings)
    confirm(solve(problem, "newton"))


def test_zero_rows_ties_and_singular_cones():
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (50, 3)).astype(float)
    X[7] = 0
    patterns = cvxnn.sample_patterns(X, 15, random_state=0)
    problem = cvxnn.CReLU(X, rng.standard_normal(50), patterns, lam=0.01, singular="keep")
    confirm(solve(problem, "newton", tol=1e-4))
    confirm(solve(problem.with_lam(100.0), "al"))  # the zero model


@pytest.mark.parametrize("seed", range(5))
def test_any_dual_candidate_proves_what_the_package_says(solution, seed):
    """Far from the optimum too, where other blocks limit the scaling; never above the optimum."""
    problem, rng = solution.problem, np.random.default_rng(seed)
    Theta = rng.standard_normal(solution.dual.shape)
    if problem.loss_name != "squared" or problem.output_bias:  # Theta has to be of some kind
        Theta = problem.loss.gradient(Theta)
    if problem.lam == 0:
        Theta = problem.range_complement(Theta)
    found = cvxnn.verify(dataclasses.replace(solution, dual=Theta, multipliers=None))
    expected, _ = lower_bound_of(problem, Theta)
    assert expected > 0
    assert found.lower_bound == pytest.approx(expected, rel=1e-9)
    assert found.lower_bound < solution.certificate.objective
    assert [text.split(":")[0] for text in found.differences] == ["lower_bound"]
    assert "NOT confirmed" in str(found)


def test_claims_that_are_too_good_are_caught(solution):
    claim = solution.certificate
    scale = claim.objective
    raised = tampered(solution, lower_bound=claim.lower_bound + 1e-6 * scale)
    assert only_difference(raised).startswith("lower_bound: claimed")
    lowered = tampered(solution, objective=claim.objective - 1e-8 * scale)
    assert only_difference(lowered).startswith("objective: claimed")
    assert only_difference(tampered(solution, lower_bound=np.nan)).startswith("lower_bound")
    assert only_difference(tampered(solution, objective=np.nan)).startswith("objective")
    zero = tampered(solution, zero_objective=2 * claim.zero_objective)
    assert only_difference(zero).startswith("zero_objective")
    assert only_difference(tampered(solution, scope="all networks")).startswith("scope")


def test_claims_that_are_too_modest_are_true(solution):
    claim = solution.certificate
    modest = tampered(solution, lower_bound=0.5 * claim.lower_bound, objective=2 * claim.objective)
    assert cvxnn.verify(modest).agrees


def balanced(problem, Theta):
    """The point that doubles stand for, as the documentation has it, up to rounding."""
    T, w, Y = Theta.copy(), problem.loss.row_weight, problem.loss.Y
    if problem.loss_name != "softmax":
        for k, total in enumerate(T.sum(axis=0)):
            T[np.argmax(T[:, k] * np.sign(total)), k] -= total
        return T
    room, every = w * (Y + T / w), np.arange(len(T))
    largest = (Y + T / w).argmax(axis=1)
    T[every, largest] -= T.sum(axis=1)
    to = room.sum(axis=0).argmax()
    for k, total in enumerate(T.sum(axis=0)):
        row = room[:, k if total > 0 else to].argmax()
        if problem.output_bias and k != to:
            T[row, k] -= total
            T[row, to] += total
    return T


@pytest.mark.parametrize("loss", LOSSES)
def test_duals_that_break_an_equation_stand_for_others(loss):
    """Columns sum to zero with an output bias, rows for the softmax loss. What doubles lack of that
    is taken from one entry; if it cannot be, what is left is the bound of the zero multiple."""
    run = solve(make_with_loss(loss), "newton")
    columns = run.dual + 1e-4 * np.abs(run.dual).mean() * np.array([1.0, -1.0, 0.0])
    assert np.abs(columns.sum(axis=0)).max() > 1e-6
    found = cvxnn.verify(dataclasses.replace(run, dual=columns))
    other = cvxnn.verify(dataclasses.replace(run, dual=balanced(run.problem, columns)))
    assert 0 < found.lower_bound == pytest.approx(other.lower_bound, rel=1e-12)
    assert found.lower_bound < run.certificate.objective
    assert found.lower_bound != pytest.approx(run.certificate.lower_bound, rel=1e-8)
    Y, share = run.problem.loss.Y, run.problem.loss.row_weight
    entropy = -np.sum(share * special.xlogy(Y, Y)) if loss == "softmax" else 0.0
    far = run.dual + 10 * np.abs(run.dual).max() * np.array([1.0, -1.0, float(loss != "softmax")])
    found = cvxnn.verify(dataclasses.replace(run, dual=far))
    assert found.lower_bound == pytest.approx(entropy, abs=1e-12)
    assert found.differences[0].startswith("lower_bound: claimed")
    assert ("sums to more than can be taken" in str(found)) == (loss != "softmax")
    if loss == "softmax":
        plain = solve(make_with_loss(loss, output_bias=False), "newton")
        rows = plain.dual * (1 + 1e-4 * np.array([1.0, 0.0, 0.0]))
        found = cvxnn.verify(dataclasses.replace(plain, dual=rows))
        other = cvxnn.verify(dataclasses.replace(plain, dual=balanced(plain.problem, rows)))
        assert found.lower_bound == pytest.approx(other.lower_bound, rel=1e-12)


def test_an_imbalance_below_rounding_proves_nothing_more():
    """Targets of 1.7e9 turn a sum of 1e-9 of the terms into a bound above the optimal value."""
    X, y = make_data(40, 3)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = cvxnn.CGReLU(X, y + 1.7e9, patterns, lam=0.01, output_bias=True)
    run = solve(problem, "newton")
    sure = cvxnn.verify(run)
    forged = run.dual - 0.9e-9 * np.abs(run.dual).mean()
    found = cvxnn.verify(dataclasses.replace(run, dual=forged))
    assert abs(forged.sum()) < 1e-9 * np.abs(forged).sum()
    slope = -float(np.sum(forged * (y[:, None] + 1.7e9)))
    assert slope - 20 * float(np.sum(forged**2)) > 2 * sure.objective  # what floats would prove
    assert found.lower_bound <= sure.objective


@pytest.mark.parametrize("loss", ["huber", "logistic", "softmax"])
def test_duals_outside_the_domain_are_caught(loss):
    """Wrong signs, or more than an outlier may pull."""
    run = solve(make_with_loss(loss, output_bias=False, share=0.9), "newton")
    wrong = -run.dual
    if loss == "huber":
        wrong = run.dual.copy()
        wrong[0] *= 1e4
    found = cvxnn.verify(dataclasses.replace(run, dual=wrong))
    assert found.lower_bound < 0.9 * run.certificate.lower_bound
    assert [text.split(":")[0] for text in found.differences] == ["lower_bound"]


def test_other_weights_are_caught(solution):
    weights = solution.weights
    if isinstance(weights, tuple):
        longer = tuple(1.01 * part for part in weights)  # still in the cones
    else:
        longer = 1.01 * weights
    differences = cvxnn.verify(dataclasses.replace(solution, weights=longer)).differences
    assert differences[0].startswith("objective: claimed")
    assert not any(text.startswith("max_violation") for text in differences)


def test_a_cheaper_point_outside_the_cones_is_caught(relu):
    """The relaxation's weights have a smaller objective, but violate the cones."""
    problem = relu.problem
    gated = solve(problem.gated, "newton")
    weights = (gated.weights, np.zeros_like(gated.weights))
    cheat = dataclasses.replace(relu, weights=weights, output_bias=None)
    found = cvxnn.verify(cheat)
    cheat = tampered(cheat, objective=found.objective, network_objective=found.network_objective)
    assert cheat.certificate.objective < 0.99 * relu.certificate.objective
    found = cvxnn.verify(cheat)
    assert found.max_violation > 1e-3
    assert any(text.startswith("max_violation: claimed") for text in found.differences)
    assert any("lower bound found is above the objective" in text for text in found.differences)


def test_a_small_step_out_of_a_cone_is_caught(relu):
    """By 1e-7 of the weights, with a certificate that says so and is right about the rest."""
    problem, (V, W) = relu.problem, relu.weights
    i, _, k = np.argwhere(V != 0)[0]
    X, on = problem.operator.rows(), problem.patterns.mask[:, i]
    tilde = np.where(on[:, None], X, -X) / np.linalg.norm(X, axis=1, keepdims=True)
    tightest = np.argmin(tilde @ V[i, :, k])
    outside = 1e-7 * np.abs(V).max()
    moved = V.copy()
    moved[i, :, k] -= ((tilde @ V[i, :, k])[tightest] + outside) * tilde[tightest]
    honest = dataclasses.replace(relu, weights=(moved, W))
    found = cvxnn.verify(honest)
    honest = tampered(
        honest,
        objective=found.objective,
        network_objective=found.network_objective,
        max_violation=outside,
    )
    assert cvxnn.verify(honest).max_violation == pytest.approx(outside, rel=1e-6)
    assert only_difference(honest).startswith("max_violation")


def test_the_network_is_checked_on_its_own(relu):
    value = relu.certificate.network_objective
    better = tampered(relu, network_objective=value * (1 - 1e-8))
    assert only_difference(better).startswith("network_objective: claimed")


@pytest.mark.parametrize(
    ("cls", "method", "mistake"),
    [
        (penalties.GroupNorm, "dual_limit_below", lambda limit: 1.01 * limit),
        (penalties.GroupNorm, "value_above", lambda value: 0.99 * value),
        (losses.SquaredLoss, "value_above", lambda value: 0.99 * value),
        (operators.ExpandedMatrix, "adjoint", lambda G: 0.99 * G),
        (operators.ExpandedMatrix, "forward", lambda Z: Z - 0.01),
        (problems.CReLU, "network_predictions", lambda Z: Z - 0.01),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_mistake_in_the_package_is_noticed(relu, cls, method, mistake, monkeypatch):
    correct = getattr(cls, method)
    monkeypatch.setattr(cls, method, lambda *args, **kw: mistake(correct(*args, **kw)))
    wrong = claimed(relu.problem, relu.weights, relu.dual)
    assert wrong != relu.certificate
    assert not cvxnn.verify(dataclasses.replace(relu, certificate=wrong)).agrees


def claimed(problem, weights, dual):
    """The certificate, even if the package itself notices that it cannot be right."""
    try:
        return cvxnn.certify(problem, weights, dual)
    except CertificateError as error:
        return error.certificate


BOUND = {name: choice.bound for name, choice in losses.LOSSES.items()}
WITH_LOSSES = [
    *((name, cls, "value_above", lambda value: 0.99 * value) for name, cls in BOUND.items()),
    *(
        (name, cls, "dual_below", lambda value: 1.01 * value)
        for name, cls in BOUND.items()
        if "dual_below" in vars(cls)
    ),
    ("huber", losses.HuberLoss, "_domain_below", lambda limit: 2 * limit),
    ("logistic", losses.WithIntercept, "value_above", lambda value: 0.99 * value),
]


@pytest.mark.parametrize(("name", "cls", "method", "mistake"), WITH_LOSSES)
def test_a_mistake_in_a_loss_is_noticed(name, cls, method, mistake, monkeypatch):
    share = 0.9 if method == "_domain_below" else 0.05
    run = solve(make_with_loss(name, output_bias=method != "_domain_below", share=share), "newton")
    correct = getattr(cls, method)
    monkeypatch.setattr(cls, method, lambda *args, **kw: mistake(correct(*args, **kw)))
    dual = 1.5 * run.dual if method == "_domain_below" else run.dual
    wrong = claimed(run.problem, run.weights, dual)
    assert wrong != run.certificate
    found = cvxnn.verify(dataclasses.replace(run, certificate=wrong, dual=dual))
    assert not found.agrees


@pytest.mark.parametrize("loss", LOSSES)
def test_the_scale_of_weights_is_not_taken_on_trust(loss):
    """A loss that is divided by the wrong number."""
    run = solve(make_with_loss(loss), "newton")
    problem = run.problem.with_lam(run.problem.lam)
    problem.data = dataclasses.replace(problem.data, loss=copy.deepcopy(problem.loss))
    for part in (problem.loss, problem.loss.base):
        part.row_weight = part.row_weight * 0.5
    wrong = cvxnn.certify(problem, run.weights, run.dual)
    assert wrong.objective < run.certificate.objective
    found = cvxnn.verify(dataclasses.replace(run, problem=problem, certificate=wrong))
    assert any(text.startswith("objective: claimed") for text in found.differences)
    assert found.objective == pytest.approx(run.certificate.objective, rel=1e-9)


def test_nothing_that_is_checked_takes_part_in_the_check(solution, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("verify has to do this itself")

    suspects = (operators.ExpandedMatrix, operators.SignedMatrix, cones.Cones)
    groups = (penalties.GroupNorm, penalties.NeuronGroups, penalties.L1, penalties.L2)
    of_losses = (losses.WeightedLoss, losses.WithIntercept, *BOUND.values())
    own = (penalties.NoPenalty, type(solution.problem))
    for cls in (*suspects, *groups, *of_losses, *own):
        for name, value in vars(cls).items():
            if callable(value) and not name.startswith("__") and name != "rows":  # the data
                monkeypatch.setattr(cls, name, refuse)
    assert cvxnn.verify(solution).agrees


def test_only_containers_and_checks_are_imported():
    parts = Path(verification.__file__).parent.glob("*.py")
    own = {f"cvxnn.verification.{part.stem}": part for part in parts}
    imported = {
        (node.module.removeprefix("cvxnn."), alias.name)
        for file in own.values()
        for node in ast.walk(ast.parse(Path(file).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("cvxnn")
        for alias in node.names
        if node.module not in own
    }
    assert imported == {
        ("arrays", "to_numpy"),
        *(("bounds.base", name) for name in ("EXACT", "SDP", "Bound")),
        ("bounds.evidence", "Evidence"),
        ("certificates", "Certificate"),
        ("certificates", "Multipliers"),
        ("digits", "text_above"),
        ("digits", "text_below"),
        ("generation.rounds", "Training"),
        ("networks", "GatedReLUNetwork"),
        ("networks", "TwoLayerNetwork"),
        ("protocols", "Problem"),
        *(("rounding", name) for name in ("UNIT", "TINY", "Ball", "gradual_underflow")),
        *(("rounding", name) for name in ("down", "slack", "tree_sum", "up")),
        ("solvers.results", "Solution"),
        ("validation", "check_array"),
        ("validation", "check_problem"),
        ("validation", "check_whole"),
    }


def test_projections_that_fail_only_lower_the_bound(relu, monkeypatch):
    """Without any projection what remains is the bound of the gated relaxation."""

    def give_up(*args, **kwargs):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(dual_points, "nnls", give_up)
    found = cvxnn.verify(dataclasses.replace(relu, multipliers=None))
    plain, _ = lower_bound_of(relu.problem.gated, relu.dual)
    assert found.lower_bound == pytest.approx(plain, rel=1e-12)
    assert found.lower_bound < 0.999 * relu.certificate.lower_bound
    assert not found.agrees
    assert "failed and count unprojected" in str(found)


def test_poor_multipliers_only_lower_the_bound(relu, monkeypatch):
    best = dual_points.nnls

    def rough(A, b, maxiter):
        gamma, norm = best(A, b, maxiter=maxiter)
        return gamma * 0.9 - 1e-3, norm  # and some of them negative

    monkeypatch.setattr(dual_points, "nnls", rough)
    found = cvxnn.verify(dataclasses.replace(relu, multipliers=None))
    assert 0 < found.lower_bound < relu.certificate.lower_bound


def test_what_is_not_known_is_refused(relu):
    gated = solve(make_problem(), "rfista")
    for run in (gated, relu):
        problem = run.problem.with_lam(run.problem.lam)
        problem.data = dataclasses.replace(problem.data, loss_name="hinge")
        with pytest.raises(NotImplementedError, match="loss 'hinge'"):
            cvxnn.verify(dataclasses.replace(run, problem=problem))
    problem = gated.problem.with_lam(gated.problem.lam)
    problem.data = dataclasses.replace(problem.data, penalty_name="pattern")
    with pytest.raises(NotImplementedError, match="penalty 'pattern'"):
        cvxnn.verify(dataclasses.replace(gated, problem=problem))


def test_bad_input_is_refused(relu):
    with pytest.raises(TypeError, match="a Training or a Bound, got CReLU"):
        cvxnn.verify(relu.problem)
    with pytest.raises(ValueError, match="dual must have shape"):
        cvxnn.verify(dataclasses.replace(relu, dual=relu.dual[:-1]))
    with pytest.raises(ValueError, match=r"dual .*NaN"):
        cvxnn.verify(dataclasses.replace(relu, dual=np.nan * relu.dual))
    with pytest.raises(ValueError, match="weights must have shape"):
        cvxnn.verify(dataclasses.replace(relu, weights=relu.weights[0]))


def test_the_report_in_words(relu):
    text = str(cvxnn.verify(relu))
    assert text.startswith("certificate confirmed: C-ReLU over 8 given patterns\nfound: objective")
    for part in ("one product a pattern", "cones, row by row", "the ReLU network's own objective"):
        assert part in text
    assert "differs" not in text
    assert "differs: lower_bound: claimed 1000, found 0." in str(
        cvxnn.verify(tampered(relu, lower_bound=1000.0))
    )
