"""Every loss, with and without sample weights and an output bias, by every solver: the optimum of
an independent conic solver, proven by a gap. And what else depends on the loss: lambda_max, warm
starts, paths, precisions, saturation, networks."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import huber, logsumexp

import cvxnn
from conftest import expanded_matrix, make_data
from cvxnn.arrays import to_numpy
from cvxnn.certificates import lower_bound_of
from cvxnn.losses import LOSSES
from cvxnn.solvers import conic
from cvxnn.solvers.newton import blocks as newton_blocks
from cvxnn.solvers.newton import method as newton
from extras import required

KINDS = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}
DELTA = 0.5

every_loss = pytest.mark.parametrize("loss", LOSSES)
every_kind = pytest.mark.parametrize("kind", KINDS)
with_and_without_bias = pytest.mark.parametrize("output_bias", [False, True])
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def make_targets(loss, Y):
    """The targets of a regression, made into those of a loss."""
    Y = Y.reshape(len(Y), -1)
    if loss == "logistic":
        return np.where(np.median(Y, axis=0) < Y, 1.0, -1.0)
    return np.eye(Y.shape[1])[Y.argmax(axis=1)] if loss == "softmax" else Y


def settings_of(loss):
    return {"huber_delta": DELTA} if loss == "huber" else {}


def make(
    loss,
    kind="gated",
    *,
    output_bias=False,
    weighted=False,
    share=0.1,
    n=40,
    d=3,
    p=8,
    seed=0,
    noise=False,
    **other,
):
    """A problem at `share` of its lambda_max; of an absolute strength where there is none. With
    `noise`, the targets of every second row are those of another one."""
    X, Y = make_data(n, d, 3 if loss == "softmax" else 2, seed)
    if noise:
        Y[::2] = np.random.default_rng(seed).permutation(Y[::2])
    patterns = cvxnn.sample_patterns(X, p, random_state=seed)
    weight = np.random.default_rng(seed).uniform(0.2, 3, n) if weighted else None
    problem = KINDS[kind](
        X,
        make_targets(loss, Y),
        patterns,
        lam=share,
        loss=loss,
        output_bias=output_bias,
        sample_weight=weight,
        **settings_of(loss),
        **other,
    )
    if problem.penalty_name in ("l2", "none"):
        return problem
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def formula(loss, Z, Y, w):
    if loss == "softmax":
        return w @ (logsumexp(Z, axis=1) - np.sum(Y * Z, axis=1)) / w.sum()
    terms = {
        "squared": lambda: (Z - Y) ** 2 / 2,
        "huber": lambda: huber(DELTA, Z - Y),
        "logistic": lambda: np.logaddexp(0, -Y * Z),
    }[loss]()
    return float(np.sum(w @ terms)) / (w.sum() * Y.shape[1])


def blocks_of(solution):
    """All blocks as one array (blocks, d, C)."""
    return to_numpy(solution.problem.check_weights(solution.weights)).astype(float)


def naive_objective(problem, U):
    """The formula of the problem, written out on the formed matrix; the output bias is found by a
    method that looks at values only."""
    Y = to_numpy(problem.loss.Y).astype(float)
    p = len(problem.patterns)
    effective = U[:p] - U[p:] if problem.kind == "C-ReLU" else U
    fit = np.einsum("npd,pdc->nc", expanded_matrix(problem), effective)
    w = to_numpy(problem.loss.row_weight)[:, 0]

    def value(b):
        return formula(problem.loss_name, fit + b, Y, w)

    b = np.zeros(Y.shape[1])
    for _ in range(4 if problem.output_bias else 0):
        b = optimize.minimize(value, b, method="Powell", options={"xtol": 1e-9, "ftol": 1e-15}).x
    penalty = {
        "neuron": np.sqrt((U**2).sum(axis=1)).sum(),
        "feature": np.sqrt((U**2).sum(axis=(0, 2))).sum(),
        "l1": np.abs(U).sum(),
        "l2": (U**2).sum() / 2,
        "none": 0.0,
    }[problem.penalty_name]
    return value(b) + problem.lam * penalty


@cache
def problem_and_optimum(loss, kind, output_bias, weighted, **other):
    """A problem, and its optimal value as CVXPY and Clarabel compute it."""
    problem = make(loss, kind, output_bias=output_bias, weighted=weighted, **other)
    _, program = conic.program(required("cvxpy"), problem)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        program.solve(solver="CLARABEL")
    return problem, float(program.value)


def assert_optimal(solution, optimum, tol):
    """A tight certificate that says what the formula says, around the oracle's value."""
    certificate = solution.certificate
    assert solution.converged
    assert certificate.relative_gap <= tol
    naive = naive_objective(solution.problem, blocks_of(solution))
    assert certificate.objective == pytest.approx(naive, rel=1e-8)
    assert certificate.objective == pytest.approx(optimum, rel=max(1e-5, tol))
    assert certificate.lower_bound <= optimum * (1 + 1e-5)


# ---- optimality --------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch):
    """No other method may take over from Newton."""

    def refuse(*args, **kwargs):
        pytest.fail("the Newton solver got stuck")

    monkeypatch.setattr(newton, "RFISTA", refuse)
    monkeypatch.setattr(newton, "AL", refuse)


@every_loss
@every_kind
@with_and_without_bias
@weighted_or_not
def test_newton_agrees_with_the_oracle(alone, loss, kind, output_bias, weighted):
    problem, optimum = problem_and_optimum(loss, kind, output_bias, weighted)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-8), optimum, 1e-8)


@every_loss
@every_kind
def test_newton_by_products_agrees_with_the_oracle(alone, loss, kind, monkeypatch):
    """As on problems that are too large for the columns of active blocks to be formed."""
    for name in ("MAX_ENTRIES", "MAX_FORMED"):
        monkeypatch.setattr(newton_blocks, name, 0)
    problem, optimum = problem_and_optimum(loss, kind, True, True)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-7), optimum, 1e-7)


@every_loss
@with_and_without_bias
@weighted_or_not
def test_rfista_agrees_with_the_oracle(loss, output_bias, weighted):
    problem, optimum = problem_and_optimum(loss, "gated", output_bias, weighted)
    assert_optimal(cvxnn.solve(problem, "rfista", tol=1e-7), optimum, 1e-7)


@every_loss
@with_and_without_bias
@pytest.mark.parametrize("penalty", ["feature", "l1", "l2"])
def test_other_penalties_agree_with_the_oracle(loss, output_bias, penalty):
    share = 0.02 if penalty == "l2" else 0.1
    problem, optimum = problem_and_optimum(
        loss, "gated", output_bias, True, penalty=penalty, share=share
    )
    assert_optimal(cvxnn.solve(problem, "rfista", tol=1e-7), optimum, 1e-7)


@every_loss
@with_and_without_bias
def test_without_a_penalty_agrees_with_the_oracle(loss, output_bias):
    """Nothing separates the classes, so that there is an optimum; and its value is positive."""
    problem, optimum = problem_and_optimum(
        loss, "gated", output_bias, True, penalty="none", share=0.0, n=100, d=2, p=3, noise=True
    )
    solution = cvxnn.solve(problem, "rfista", tol=1e-6)
    assert solution.certificate.dual_infeasibility <= 1e-9
    assert_optimal(solution, optimum, 1e-6)


@every_loss
def test_decompositions_without_a_penalty_agree_with_the_oracle(loss):
    """Cones cost nothing there, so that the gated optimum is that of the ReLU problem."""
    size = {"share": 0.0, "n": 100, "d": 2, "p": 3, "noise": True}
    _, optimum = problem_and_optimum(loss, "gated", True, True, penalty="none", **size)
    problem = make(loss, "relu", output_bias=True, weighted=True, **size)
    solution = cvxnn.solve(problem, "decomposition", tol=1e-5)
    assert solution.converged
    assert solution.certificate.objective == pytest.approx(optimum, rel=1e-5)
    assert solution.certificate.max_violation < 1e-9


@every_loss
def test_the_augmented_lagrangian_agrees_with_the_oracle(loss):
    weighted = loss in ("huber", "softmax")
    size = {"n": 30, "d": 2, "p": 5, "share": 0.5}  # softmax takes seconds even there
    problem, optimum = problem_and_optimum(loss, "relu", True, weighted, **size)
    solution = cvxnn.solve(problem, "al", tol=1e-3)
    assert solution.n_active > 0
    assert_optimal(solution, optimum, 1e-3)
    assert solution.certificate.max_violation < 1e-12


@every_loss
@every_kind
@pytest.mark.parametrize("share", [0.9, 1e-2, 1e-3])
def test_newton_at_other_strengths(alone, loss, kind, share):
    problem = make(loss, kind, output_bias=True, weighted=True, share=share)
    solution = cvxnn.solve(problem, "newton", tol=1e-6)
    assert solution.converged
    naive = naive_objective(problem, blocks_of(solution))
    assert solution.certificate.objective == pytest.approx(naive, rel=1e-7)
    assert cvxnn.verify(solution).agrees


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.floats(-3, 1),
    loss=st.sampled_from(list(LOSSES)),
    output_bias=st.booleans(),
    kind=st.sampled_from(list(KINDS)),
)
def test_any_candidate_bounds_the_optimum(seed, size, loss, output_bias, kind):
    problem, optimum = problem_and_optimum(loss, kind, output_bias, True)
    rng = np.random.default_rng(seed)
    Theta = 10**size * rng.standard_normal(problem.loss.Y.shape)
    Z = 10**size * rng.standard_normal(problem.loss.Y.shape)
    for candidate in (Theta, problem.loss.dual_candidate(Theta), problem.loss.gradient(Z)):
        bound, _ = lower_bound_of(problem, candidate)
        assert 0 <= bound <= optimum * (1 + 1e-5)


# ---- the zero model ----------------------------------------------------------------------------


@every_loss
@every_kind
@with_and_without_bias
def test_lambda_max_is_where_the_zero_model_ends(loss, kind, output_bias):
    above = cvxnn.solve(make(loss, kind, output_bias=output_bias, share=1.0001), tol=1e-9)
    assert above.n_active == 0
    assert above.converged
    assert above.certificate.objective == above.certificate.zero_objective
    below = cvxnn.solve(make(loss, kind, output_bias=output_bias, share=0.999), tol=1e-9)
    assert below.n_active > 0
    assert below.converged
    assert below.certificate.objective < below.certificate.zero_objective


@every_loss
def test_lambda_max_of_other_penalties(loss):
    for penalty in ("feature", "l1"):
        problem = make(loss, penalty=penalty, output_bias=True, share=1.0001)
        assert cvxnn.solve(problem, tol=1e-8).n_active == 0
        below = problem.with_lam(0.999 * problem.lam / 1.0001)
        assert cvxnn.solve(below, tol=1e-8).n_active > 0


@every_loss
def test_an_output_bias_lowers_the_optimum(loss):
    values = [
        cvxnn.solve(make(loss, output_bias=b, share=0.1, seed=1).with_lam(0.01), tol=1e-7)
        for b in (False, True)
    ]
    without, within = (solution.certificate for solution in values)
    assert within.objective < without.lower_bound
    assert within.zero_objective <= without.zero_objective  # equal for classes of equal size


# ---- runs --------------------------------------------------------------------------------------


@every_loss
@every_kind
def test_runs_are_reproducible_to_the_bit(loss, kind):
    problem = make(loss, kind, output_bias=True, weighted=True, share=0.02)
    first, second = (cvxnn.solve(problem, "newton", tol=1e-7) for _ in range(2))
    np.testing.assert_array_equal(blocks_of(first), blocks_of(second))
    np.testing.assert_array_equal(first.dual, second.dual)
    assert first.certificate == second.certificate


@every_loss
@every_kind
def test_warm_starts_save_work(alone, loss, kind):
    problem = make(loss, kind, output_bias=True, weighted=True, share=0.03)
    cold = cvxnn.solve(problem, "newton", tol=1e-7)
    again = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=cold)
    assert again.converged
    assert again.n_iter == 0
    near = problem.with_lam(0.8 * problem.lam)
    from_afar, warm = (
        cvxnn.solve(near, "newton", tol=1e-7, warm_start=start) for start in (None, cold)
    )
    assert warm.converged
    assert warm.n_iter < from_afar.n_iter
    value = from_afar.certificate.objective
    assert warm.certificate.objective == pytest.approx(value, rel=2e-7)


@every_loss
@every_kind
@with_and_without_bias
def test_paths(loss, kind, output_bias):
    problem = make(loss, kind, output_bias=output_bias, weighted=True)
    path = cvxnn.path(problem, n_lams=5, eps=0.05, tol=1e-5)
    assert path.relative_gaps.max() <= 1e-5
    assert path[0].n_active == 0
    assert np.all(np.diff(path.objectives) < 0)
    alone = cvxnn.solve(path[3].problem, tol=1e-7).certificate
    assert path[3].certificate.objective == pytest.approx(alone.objective, rel=2e-5)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "huber"])
@with_and_without_bias
def test_single_precision_reaches_its_promise(loss, output_bias):
    """float32 promises a relative gap of 1e-4, certified in float64."""
    exact = make(loss, output_bias=output_bias, share=0.05, n=60, p=20)
    X, Y = (np.asarray(a, dtype=np.float32) for a in (exact.operator.rows(), exact.loss.Y))
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    settings = {"loss": loss, "output_bias": output_bias, **settings_of(loss)}
    problem = cvxnn.CGReLU(X, Y, patterns, lam=exact.lam, **settings)
    solution = cvxnn.solve(problem, "rfista", tol=1e-4)
    assert solution.converged
    assert solution.weights.dtype == np.float32
    double = cvxnn.CGReLU(X.astype(float), Y.astype(float), patterns, lam=exact.lam, **settings)
    certificate = cvxnn.certify(double, solution.weights.astype(float), solution.dual)
    assert certificate.relative_gap <= 1e-4 * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_rfista_on_every_library(loss, to_library):
    problem = make(loss, output_bias=True, weighted=True, share=0.1, d=2, p=5)
    best = cvxnn.solve(problem, "newton", tol=1e-8).certificate
    X, Y = (to_library(np.asarray(array)) for array in (problem.operator.rows(), problem.loss.Y))
    other = cvxnn.CGReLU(
        X,
        Y,
        problem.patterns,
        lam=problem.lam,
        loss=loss,
        output_bias=True,
        sample_weight=to_library(problem.loss.row_weight[:, 0]),
    )
    solution = cvxnn.solve(other, tol=1e-5)
    assert solution.converged
    assert type(solution.weights) is type(X)
    assert solution.certificate.objective == pytest.approx(best.objective, rel=1e-5)
    fit = other.operator.forward(solution.weights)
    predictions = solution.network().predict(to_numpy(X))
    b = other.loss.intercept(fit)
    np.testing.assert_allclose(predictions, to_numpy(fit) + b, atol=1e-10)


# ---- saturation --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@every_kind
@with_and_without_bias
def test_separable_data_with_a_small_penalty(alone, loss, kind, output_bias):
    """Probabilities come close to 0 and 1, and the loss loses its curvature."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    score = (
        X @ rng.standard_normal((3, 3)) if loss == "softmax" else X @ rng.standard_normal((3, 1))
    )
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = KINDS[kind](
        X,
        make_targets(loss, score),
        patterns,
        lam=1.0,
        loss=loss,
        output_bias=output_bias,
    )
    problem = problem.with_lam(1e-6 * cvxnn.lambda_max(problem))
    solution = cvxnn.solve(problem, "newton", tol=1e-6)
    assert solution.converged
    assert cvxnn.verify(solution).agrees
    assert solution.certificate.objective < 0.1 * solution.certificate.zero_objective


@every_kind
@with_and_without_bias
@pytest.mark.parametrize("delta", [0.1, 1e3])
def test_hubers_of_extreme_deltas(alone, kind, output_bias, delta):
    """Most rows are outliers, as for absolute errors; or none is, as for squares."""
    X, Y = make_data(40, 3, C=2)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    settings = {"output_bias": output_bias, "lam": 1.0}
    problem = KINDS[kind](X, Y, patterns, loss="huber", huber_delta=delta, **settings)
    problem = problem.with_lam(0.05 * cvxnn.lambda_max(problem))
    solution = cvxnn.solve(problem, "newton", tol=1e-6)
    assert solution.converged
    assert cvxnn.verify(solution).agrees
    if delta == 1e3:
        squared = KINDS[kind](X, Y, patterns, **settings).with_lam(problem.lam)
        expected = cvxnn.solve(squared, "newton", tol=1e-6).certificate.objective
        assert solution.certificate.objective == pytest.approx(expected, rel=1e-6)
    else:
        required("cvxpy")
        reference = cvxnn.solve(problem, "cvxpy", on_failure="ignore").certificate.objective
        assert solution.certificate.objective <= reference * (1 + 1e-6)


# ---- weights and networks ----------------------------------------------------------------------


@every_loss
@every_kind
def test_integer_weights_are_repeated_rows(loss, kind):
    X, Y = make_data(25, 3, C=3)
    Y, counts = make_targets(loss, Y), np.random.default_rng(1).integers(1, 4, 25)
    again = np.repeat(np.arange(25), counts)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    repeated = cvxnn.Patterns.from_gates(X[again], patterns.gates)
    settings = {"lam": 1.0, "loss": loss, "output_bias": True}
    weighted = KINDS[kind](X, Y, patterns, sample_weight=counts, **settings)
    plain = KINDS[kind](X[again], Y[again], repeated, **settings)
    lam = 0.1 * cvxnn.lambda_max(weighted)
    assert cvxnn.lambda_max(plain) == pytest.approx(10 * lam, rel=1e-9)
    values = [
        cvxnn.solve(problem.with_lam(lam), tol=1e-8).certificate for problem in (weighted, plain)
    ]
    assert values[0].objective == pytest.approx(values[1].objective, rel=1e-7)
    assert values[0].zero_objective == pytest.approx(values[1].zero_objective, rel=1e-12)


@every_loss
@every_kind
@with_and_without_bias
@weighted_or_not
def test_networks_have_the_value_of_the_certificate(loss, kind, output_bias, weighted):
    """Predictions are the fit with its output bias, which is free."""
    problem, _ = problem_and_optimum(loss, kind, output_bias, weighted)
    solution = cvxnn.solve(problem, tol=1e-6)
    network = solution.network()
    X, Y = problem.operator.rows(), problem.loss.Y
    fit = problem.operator.forward(problem.check_weights(solution.weights))
    predictions = network.predict(X)
    np.testing.assert_allclose(predictions, fit + problem.loss.intercept(fit), atol=1e-10)
    assert (network.b2 is None) == (not output_bias)
    weight = problem.loss.row_weight[:, 0] if weighted else None
    terms = {"loss": loss, "sample_weight": weight, **settings_of(loss)}
    value = network.objective(X, Y, problem.lam, **terms)
    assert value == pytest.approx(solution.certificate.objective, rel=1e-9)
    if kind == "relu":
        assert solution.certificate.network_objective == pytest.approx(value, rel=1e-9)


CONSTANT_WEIGHTS = {
    "equal": None,
    "different": np.random.default_rng(0).uniform(0.1, 3, 40),
    "wide": 10 ** np.random.default_rng(1).uniform(-12, 12, 40),
}


@pytest.mark.parametrize("level", [0.1, 1e9 + 0.3, -3e-7])
@pytest.mark.parametrize("weights", CONSTANT_WEIGHTS)
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_constant_target_is_fitted_exactly_by_the_output_bias(loss, weights, level):
    """Zero weights are optimal with the value 0. A rounded mean leaves 1e-34 of it, and then no
    bound ends a run: the relative gap is that to zero."""
    X, _ = make_data(40, 3)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    target = np.full(40, level)
    settings = {"loss": loss, "output_bias": True, "sample_weight": CONSTANT_WEIGHTS[weights]}
    gated = cvxnn.CGReLU(X, target, patterns, lam=1e-3, **settings)
    ridge = cvxnn.CGReLU(X, target, patterns, lam=1e-3, penalty="l2", **settings)
    relu = cvxnn.CReLU(X, target, patterns, lam=1e-3, **settings)
    runs = [(gated, "newton"), (gated, "rfista"), (ridge, "rfista")]
    runs += [(relu, "newton"), (relu, "al"), (relu, "decomposition")]
    for problem, solver in runs:
        solution = cvxnn.solve(problem, solver)
        assert solution.converged, solution.message
        assert solution.certificate.gap <= 1e-40
        assert problem.loss.intercept(np.zeros((40, 1))) == level
        assert cvxnn.verify(solution).agrees
