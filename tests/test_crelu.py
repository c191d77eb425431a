"""C-ReLU: the augmented Lagrangian, its certificates, and the theorems that tie the problems
together."""

import itertools
import pickle
import warnings
from typing import ClassVar

import numpy as np
import pytest

import cvxnn
from conftest import expanded_matrix, make_data
from cvxnn import AL, RFISTA, Status
from cvxnn.certificates import dual_bound
from cvxnn.kernels import native
from cvxnn.solvers.augmented_lagrangian import Lagrangian
from cvxnn.solvers.base import Iterate
from cvxnn.solvers.conic import program as conic_program
from extras import CVXPY, optional, required

cvxpy = optional("cvxpy")

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def make_crelu(n=30, d=3, p=10, C=1, *, share=0.1, seed=0, bias=False, **settings):
    """A random C-ReLU problem on unit columns at `share` of its lambda_max."""
    X, Y = make_data(n, d, C, seed)
    X = X / np.linalg.norm(X, axis=0)
    patterns = cvxnn.sample_patterns(X, p, bias=bias, random_state=seed)
    problem = cvxnn.CReLU(X, Y, patterns, lam=1.0, bias=bias, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def oracle(problem):
    required("cvxpy")
    return cvxnn.solve(problem, "cvxpy", tol=1e-5, settings=TIGHT)


def naive_objective(problem, V, W):
    Y = np.asarray(problem.loss.Y)
    gated = expanded_matrix(problem)
    fit = np.einsum("npd,pdc->nc", gated, V - W)
    norms = np.linalg.norm(V, axis=1).sum() + np.linalg.norm(W, axis=1).sum()
    return ((fit - Y) ** 2).sum() / (2 * Y.size) + problem.lam * norms


@pytest.fixture(scope="module")
def problem():
    return make_crelu()


@pytest.fixture(scope="module")
def solution(problem):
    return cvxnn.solve(problem, "al", tol=1e-6)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize(("n", "d"), [(30, 3), (8, 12)])
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_al_agrees_with_the_oracle(n, d, C, share):
    problem = make_crelu(n, d, p=8, C=C, share=share)
    solution = cvxnn.solve(problem, "al", tol=1e-5)
    certificate = solution.certificate
    exact = oracle(problem).certificate
    assert solution.converged
    assert certificate.objective == pytest.approx(exact.objective, rel=1e-5)
    assert certificate.lower_bound <= exact.objective * (1 + 1e-8)
    V, W = solution.weights
    assert V.shape == W.shape == (len(problem.patterns), d, C)
    assert naive_objective(problem, V, W) == pytest.approx(certificate.objective)
    signs = np.where(problem.patterns.mask, 1.0, -1.0)
    X = np.asarray(problem.operator.rows())
    for block in (V, W):
        assert np.min(signs[:, :, None] * np.einsum("nd,pdc->npc", X, block)) >= -1e-8


@pytest.mark.parametrize("settings", [{"bias": True}, {"bias": True, "normalize": True}])
def test_bias_and_normalisation_agree_with_the_oracle(settings):
    problem = make_crelu(25, 2, p=8, share=0.1, **settings)
    solution = cvxnn.solve(problem, "al", tol=1e-5)
    assert solution.certificate.objective == pytest.approx(
        oracle(problem).certificate.objective, rel=1e-5
    )


def test_the_network_is_worth_what_the_certificate_says(problem, solution):
    """Theorem 2.1: C-ReLU and NC-ReLU have equal values under the solution map."""
    X, Y = np.asarray(problem.operator.rows()), np.asarray(problem.loss.Y)
    network = solution.network()
    assert isinstance(network, cvxnn.ReLUNetwork)
    value = network.objective(X, Y, lam=problem.lam)
    assert value == pytest.approx(solution.certificate.objective, rel=1e-10)
    assert value == pytest.approx(solution.certificate.network_objective, rel=1e-10)
    np.testing.assert_allclose(
        network.predict(X)[:, None], problem.operator.forward(np.concatenate(solution.weights))
    )
    assert network.n_neurons == solution.n_active


def test_normalised_networks_predict_in_raw_units():
    X, Y = make_data(25, 3)
    X = X * np.array([1.0, 30.0, 0.1])
    patterns = cvxnn.sample_patterns(X, 10, bias=True, normalize=True, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.02, bias=True, normalize=True)
    solution = cvxnn.solve(problem, "al", tol=1e-3)
    fit = problem.operator.forward(np.concatenate(solution.weights))
    np.testing.assert_allclose(solution.network().predict(X)[:, None], fit, atol=1e-9)


def test_an_infeasible_point_is_never_a_bound(problem):
    """Every objective in the history is that of a feasible point, hence above the optimum."""
    optimum = oracle(problem).certificate.objective
    run = cvxnn.solve(problem, AL(window=None, delta=1e-3), max_iter=300, on_failure="ignore")
    assert len(run.history) > 1
    for record in run.history:
        assert record.objective >= optimum * (1 - 1e-9)
        assert record.lower_bound <= optimum * (1 + 1e-9)


def test_lower_bounds_from_multipliers_and_from_projections(problem, solution):
    """Both are valid; projections are the best multipliers, so at least as good."""
    gamma, delta, _ = solution.state
    lagrangian = Lagrangian(problem, gamma, delta)
    start = np.concatenate(solution.weights)
    Theta, correlation = lagrangian.gradient(lagrangian.point(start))
    by_multipliers = dual_bound(problem, Theta, correlation)
    by_projections = dual_bound(problem, Theta, problem.dual_correlation(Theta))
    optimum = oracle(problem).certificate.objective
    assert 0.99 * optimum < by_multipliers <= by_projections + 1e-12 <= optimum * (1 + 1e-8)


def test_the_gated_test_alone_would_be_weak(problem, solution):
    """||M'Theta|| <= lam without projections: valid, and far off."""
    gated = cvxnn.certify(problem.gated, problem.gated.zero_weights(), solution.dual)
    assert gated.lower_bound < solution.certificate.lower_bound * 0.999


def test_lambda_max_by_projections(problem):
    lam = cvxnn.lambda_max(problem)
    assert lam < cvxnn.lambda_max(problem.gated)
    above = cvxnn.solve(problem.with_lam(1.001 * lam), "al")
    assert above.n_active == 0
    assert above.certificate.relative_gap <= 1e-9
    below = oracle(problem.with_lam(0.98 * lam))
    assert below.certificate.objective < below.certificate.zero_objective * (1 - 1e-7)


def test_published_stop_literally(problem):
    solution = cvxnn.solve(problem, "al", stop="paper")
    assert solution.converged
    assert solution.history[-1].residual <= 1e-3
    assert solution.n_iter <= 10_000
    assert solution.certificate.max_violation <= 1e-12  # the weights are the feasible ones
    with pytest.warns(cvxnn.ConvergenceWarning, match="iteration limit"):
        capped = cvxnn.solve(problem, "al", stop="paper", tol=0, max_iter=50)
    assert capped.n_iter <= 51


class Watched(RFISTA):
    """R-FISTA that notes the subgradient and the violations of every point inside of the AL."""

    seen: ClassVar[list[tuple[float, float]]] = []

    def iterates(self, lagrangian, *arguments):
        for iterate in super().iterates(lagrangian, *arguments):
            self.seen.append((iterate.residual, lagrangian.constraint_gap(iterate.U)))
            yield iterate


def test_two_tolerances_of_the_published_stop(problem):
    """As printed both are 1e-3; the authors' code asks for squared violations of 1e-6."""
    gaps = {}
    for gap_tol in (None, 1e-6, 1e-8):
        Watched.seen.clear()
        solution = cvxnn.solve(problem, AL(gap_tol=gap_tol, inner=Watched()), stop="paper")
        assert solution.converged
        assert solution.history[-1].n_trials >= len(Watched.seen) - 1
        residual, gaps[gap_tol] = Watched.seen[-1]
        assert residual <= 1e-3
    assert 1e-6 < gaps[None] <= 1e-3
    assert 1e-8 < gaps[1e-6] <= 1e-6
    assert gaps[1e-8] <= 1e-8


def test_the_released_rule_is_tested_at_every_point(problem):
    """With subproblems that hardly ever end by themselves, a run ends where the rule is met."""
    Watched.seen.clear()
    settings = AL(window=None, delta=1e3, inner_tol=1e-9, gap_tol=1e-4, inner=Watched())
    solution = cvxnn.solve(problem, settings, stop="paper")
    assert solution.converged
    met = [residual <= 1e-3 and gap <= 1e-4 for residual, gap in Watched.seen]
    assert met.index(True) == len(met) - 1


def test_the_default_stop_goes_on_where_the_published_one_ends(problem):
    published = cvxnn.solve(problem, "al", stop="paper")
    certified = cvxnn.solve(problem, "al", tol=1e-6)
    assert certified.certificate.relative_gap <= 1e-6 < published.certificate.relative_gap
    assert certified.n_iter > published.n_iter


def test_windowing_brings_the_constraint_gap_into_the_window(problem):
    n = problem.operator.n
    for first in (1e-2, 1e4):
        run = cvxnn.solve(problem, AL(delta=first), tol=1e-4, on_failure="ignore")
        assert run.state.delta != first / n  # it moved
    ends = [
        cvxnn.solve(problem, AL(delta=first), tol=1e-4).state.delta * n for first in (1e-2, 1e4)
    ]
    assert ends[0] > 1e-2  # too small: doubled
    assert ends[1] < 1e4  # too large: halved
    wide = cvxnn.solve(problem, AL(delta=10.0, window=(0.0, 1e9)), tol=1e-4)
    assert wide.state.delta == pytest.approx(10.0 / n)


def test_the_search_for_delta_counts_and_shows_feasible_points(problem):
    run = cvxnn.solve(problem, AL(delta=1e-2), tol=1e-2)
    before = [r for r in run.history if r.step_size is None]  # the start, and the search
    assert len(before) > 3
    assert np.all(np.diff([r.n_iter for r in before]) > 0)
    optimum = oracle(problem).certificate.objective
    assert all(r.objective >= optimum * (1 - 1e-9) for r in before)


def test_delta_can_be_fixed(problem):
    run = cvxnn.solve(problem, AL(window=None, delta=50.0), tol=1e-4)
    assert run.converged
    assert run.state.delta == pytest.approx(50.0 / problem.operator.n)


def test_inner_settings_are_read():
    problem = make_crelu(40, 3, p=6, share=0.3)

    def iterations(**settings):
        return [r.n_iter for r in cvxnn.solve(problem, AL(**settings), tol=1e-4).history]

    base = iterations()
    assert iterations(inner=RFISTA(restart=False)) != base
    assert iterations(inner_tol=1e-5) != base
    assert iterations(window_tol=1e-4) != base
    assert iterations(tighten=0.1) != base
    short = iterations(max_inner=20)
    assert max(np.diff(short)) <= 20


def test_multipliers_can_decrease(problem):
    """They are updated as (gamma - delta X~v)_+; clipping X~v first would only let them grow."""
    seen = []
    for iterate in AL(window=None).iterates(problem, problem.zero_weights()):
        if isinstance(iterate, Iterate) and iterate.state is not None:
            seen.append(iterate.state.multipliers)
        if len(seen) == 6:
            break
    assert all(np.all(gamma >= 0) for gamma in seen)
    assert any(np.any(b < a - 1e-9) for a, b in itertools.pairwise(seen))
    assert any(np.any(b > a + 1e-9) for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_lagrangian_is_what_the_paper_writes(problem, compiled, monkeypatch):
    """Gradient and divergence of the smooth part, against differences of the formula, in both
    implementations."""
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("the compiled kernels were not built: no C compiler at installation")
    rng = np.random.default_rng(0)
    shape = problem.weight_shape
    gamma = np.maximum(rng.standard_normal((len(problem.pattern_of_block), 30)), 0)
    gamma[rng.random(len(gamma)) < 0.3] = 0
    lagrangian = Lagrangian(problem, gamma, delta=0.7)
    assert lagrangian.compiled == compiled
    signs, X = np.where(problem.patterns.mask, 1.0, -1.0), np.asarray(problem.operator.rows())
    both = np.concatenate([signs.T, signs.T])

    def value(U):
        slack = gamma / 0.7 - both * (U[:, :, 0] @ X.T)
        return problem.loss.value(problem.operator.forward(U)) + 0.35 * np.sum(
            np.maximum(slack, 0) ** 2
        )

    U = rng.standard_normal(shape)
    U[rng.random(shape[0]) < 0.5] = 0
    point = lagrangian.point(U)
    _, gradient = lagrangian.gradient(point)
    for scale in (1.0, 1e-3):
        step = scale * rng.standard_normal(shape)
        other = lagrangian.point(U + step)
        expected = value(U + step) - value(U) - np.sum(gradient * step)
        assert lagrangian.bregman(other, point) == pytest.approx(expected, rel=1e-6)
    h = 1e-6 * rng.standard_normal(shape)
    assert value(U + h) - value(U - h) == pytest.approx(2 * np.sum(gradient * h), rel=1e-5)
    below = np.minimum(both * (U[:, :, 0] @ X.T), 0)
    assert lagrangian.constraint_gap(U) == pytest.approx(np.sum(below**2))


def test_warm_starts_carry_multipliers_and_penalty(problem, solution):
    again = cvxnn.solve(problem, "al", tol=1e-6, warm_start=solution)
    assert again.n_iter < solution.n_iter / 3
    assert again.state.delta == solution.state.delta
    from_weights = cvxnn.solve(problem, "al", tol=1e-3, warm_start=solution.weights)
    assert from_weights.converged


def test_limits_hold_inside_a_subproblem(problem):
    hard = problem.with_lam(problem.lam / 100)
    capped = cvxnn.solve(hard, "al", tol=1e-12, max_iter=37, on_failure="ignore")
    assert capped.status is Status.MAX_ITER
    assert capped.n_iter <= 38
    timed = cvxnn.solve(hard, AL(max_inner=10**6), tol=1e-14, max_seconds=0.3, on_failure="ignore")
    assert timed.status is Status.TIME_LIMIT
    assert timed.seconds < 3
    inner = cvxnn.solve(
        hard.with_lam(1e-9), "decomposition", gated_tol=0, max_seconds=1e-3, on_failure="ignore"
    )
    assert inner.status is Status.TIME_LIMIT
    assert inner.seconds < 3


def test_infeasible_weights_are_not_certified(problem):
    gated = cvxnn.solve(problem.gated)
    weights = np.concatenate([gated.weights, np.zeros_like(gated.weights)])
    assert problem.max_violation(weights) > 1e-3
    with pytest.raises(ValueError, match="outside their cones by"):
        cvxnn.certify(problem, weights)
    feasible, _ = problem.make_feasible(weights)
    certificate = cvxnn.certify(problem, feasible)
    assert certificate.objective >= oracle(problem).certificate.lower_bound


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 0}, "delta must be > 0"),
        ({"window": (1.0, 0.1)}, "window must be an interval"),
        ({"tighten": 1.0}, "tighten must be < 1"),
        ({"max_inner": 0}, "max_inner must be a positive integer"),
        ({"inner_tol": -1}, "inner_tol must be > 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        AL(**settings)


def test_bad_input_is_refused(problem):
    X, Y = make_data(20, 3)
    patterns = cvxnn.sample_patterns(X, 5, random_state=0)
    with pytest.raises(ValueError, match="unknown singular 'drop'"):
        cvxnn.CReLU(X, Y, patterns, lam=0.1, singular="drop")
    with pytest.raises(ValueError, match="lam must be >= 0"):
        cvxnn.CReLU(X, Y, patterns, lam=-0.1)
    with pytest.raises(ValueError, match=r"'rfista' does not handle C-ReLU.*al"):
        cvxnn.solve(problem, "rfista")
    with pytest.raises(ValueError, match="'al' does not handle C-GReLU"):
        cvxnn.solve(problem.gated, "al")
    with pytest.raises(ValueError, match="warm_start must have shape"):
        cvxnn.solve(problem, "al", warm_start=(np.zeros((1, 3, 1)), np.zeros((1, 3, 1))))
    with pytest.raises(ValueError, match="stop 'paper' has no meaning for solver 'cvxpy'"):
        cvxnn.solve(problem, "cvxpy", stop="paper")


def test_single_precision_reaches_its_promise():
    X, Y = make_data(30, 3)
    X = (X / np.linalg.norm(X, axis=0)).astype(np.float32)
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.02)
    solution = cvxnn.solve(problem, "al", tol=1e-4)
    assert solution.converged
    assert solution.weights[0].dtype == np.float64  # which lie in their cones beyond doubt
    assert problem.cones.proven_inside(
        problem.flat(np.concatenate(solution.weights)), problem.pattern_of_block
    ).all()


@pytest.mark.parametrize("solver", ["newton", "al", CVXPY])
@pytest.mark.parametrize("seed", [7, 26])
def test_iterates_stay_in_singular_cones(seed, solver):
    """Columns of very different scale, with ties: projections onto these cones end outside them,
    by up to their own size, because rows that are nearly dependent count as dependent. The driver
    then refused the solver's own point."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 40)), int(rng.integers(2, 8))
    X = rng.integers(-3, 4, (n, d)) * 10.0 ** rng.uniform(-6, 6, d)
    if rng.random() < 0.4:
        X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3) * 10 ** rng.uniform(-6, 6, d)
    gates = rng.integers(-1, 2, (d, 20)) / np.maximum(np.abs(X).max(axis=0), 1e-9)[:, None]
    mask = np.unique(X @ gates >= 0, axis=1)
    patterns = cvxnn.Patterns.from_mask(mask[:, mask.any(axis=0)])
    y = rng.standard_normal(n)
    problem = cvxnn.CReLU(X, y, patterns, lam=1.0, singular="keep")
    assert problem.cones.singular.any()
    problem = problem.with_lam(cvxnn.lambda_max(problem) * 10 ** rng.uniform(-4, -0.5))
    run = cvxnn.solve(problem, solver, max_iter=100, on_failure="ignore")
    U = np.concatenate(run.weights)
    assert run.certificate.max_violation <= 1e-9 * np.abs(U).max()
    rows, pattern = problem.flat(np.ones_like(U)), problem.pattern_of_block
    rows *= 10 ** rng.uniform(-6, 6, rows.shape) * rng.choice([-1, 1], rows.shape)
    feasible, _ = problem.make_feasible(problem.unflat(rows))
    assert problem.cones.contains(problem.flat(feasible), pattern, tol=1e-9).all()
    regular = ~problem.cones.singular[pattern]
    assert problem.cones.proven_inside(problem.flat(feasible), pattern)[regular].all()


# ---- theorems ----------------------------------------------------------------------------------


def all_masks(n):
    return np.array(list(itertools.product([False, True], repeat=n))[1:]).T


def test_without_a_penalty_relu_and_gated_values_agree():
    """Theorem 3.3 at lam = 0, for non-singular cones; n > p d, so the value is positive."""
    problem = make_crelu(40, 2, p=4).with_lam(0)
    assert not problem.cones.singular.any()
    relu = cvxnn.solve(problem)
    gated = cvxnn.solve(problem.gated)
    assert relu.solver.name == "decomposition"
    assert relu.converged
    assert relu.certificate.objective == pytest.approx(gated.certificate.objective, rel=1e-8)
    assert relu.certificate.objective > 1e-3
    assert relu.certificate.max_violation <= 1e-12


def test_the_value_of_relu_lies_between_the_gated_one_and_its_decomposition():
    """d* <= p* <= d* + 2 lam sum_i kappa_i ||u_i||."""
    problem = make_crelu(25, 4, p=12, share=0.05)
    gated = cvxnn.solve(problem.gated, tol=1e-8)
    relu = oracle(problem).certificate.objective
    decomposition = cvxnn.decompose(gated, "least-distance")
    norms = np.linalg.norm(gated.weights, axis=1)
    norms = norms[norms > 0]
    kappa = (decomposition.block_bounds - 1) / 2
    upper = gated.certificate.objective + 2 * problem.lam * np.sum(kappa * norms)
    assert gated.certificate.lower_bound <= relu <= upper


def test_full_enumeration_bounds_every_network():
    """With all patterns C-ReLU bounds the non-convex problem: no network of any width is below."""
    rng = np.random.default_rng(0)
    X, Y = make_data(8, 2)
    angles = np.linspace(0, 2 * np.pi, 2000, endpoint=False) + 1e-4
    patterns = cvxnn.Patterns.from_gates(X, np.stack([np.cos(angles), np.sin(angles)]))
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.05)
    certificate = oracle(problem).certificate
    for _ in range(300):
        m = rng.integers(1, 20)
        network = cvxnn.ReLUNetwork(
            W1=rng.standard_normal((m, 2)), W2=0.3 * rng.standard_normal((m, 1)), flat_output=True
        ).balanced()
        assert network.objective(X, Y, lam=0.05) >= certificate.lower_bound


def test_under_full_enumeration_singular_patterns_do_not_matter():
    X = np.array([[1.0, 0, 0], [0, 1, 0], [-1, -1, 0], [0, 0, 1]])
    Y = np.array([1.0, -0.5, 0.3, 1.0])
    every = cvxnn.Patterns.from_mask(all_masks(4))
    kept = cvxnn.CReLU(X, Y, every, lam=0.02, singular="keep")
    assert 0 < kept.cones.singular.sum() < len(every)
    regular = every.select(np.flatnonzero(~kept.cones.singular))
    without = cvxnn.CReLU(X, Y, regular, lam=0.02)
    assert oracle(without).certificate.objective == pytest.approx(
        oracle(kept).certificate.objective, rel=1e-7
    )


def test_rfista_keeps_its_rate():
    """F(x_k) - F* <= 2 L ||x*||^2 / (k + 1)^2 with the step 1/L: O(1/sqrt(eps)) iterations."""
    problem = make_crelu(40, 3, p=15, share=0.02).gated
    curvature = problem.loss.row_weight[0, 0]  # that of the loss, the same for all rows
    lipschitz = np.linalg.eigvalsh(problem.operator.kernel())[-1] * curvature
    best = cvxnn.solve(problem, "rfista", tol=1e-12, on_failure="ignore")
    distance = np.sum(best.weights**2)
    solver = RFISTA(step="fixed", first_step=1 / lipschitz, restart=False)
    points = solver.iterates(problem, problem.zero_weights())
    for k, iterate in enumerate(itertools.islice(points, 400)):
        value = problem.loss.value(iterate.fit) + problem.penalty.value(iterate.U)
        bound = 2 * lipschitz * distance / (k + 1) ** 2
        assert value - best.certificate.objective <= bound + 1e-12


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_augmented_lagrangian_keeps_its_rate(delta):
    """Proximal point on the dual: d* - d(gamma_k) <= ||gamma*||^2 / (2 delta k)."""
    problem = make_crelu(20, 2, p=6, share=0.1)
    _, program = conic_program(cvxpy, problem)
    optimum = program.solve(solver="CLARABEL", **TIGHT)
    gamma_star = program.constraints[0].dual_value
    assert dual_function(problem, gamma_star.T) == pytest.approx(optimum, rel=1e-6)
    n, C = problem.loss.Y.shape
    settings = AL(window=None, delta=delta * n * C, inner_tol=1e-8, max_inner=20_000)
    iterates = settings.iterates(problem, problem.zero_weights(), "paper")
    outer = (found for found in iterates if isinstance(found, Iterate) and found.state is not None)
    for k, iterate in enumerate(itertools.islice(outer, 15), start=1):
        bound = np.sum(gamma_star**2) / (2 * delta * k)
        assert optimum - dual_function(problem, iterate.state.multipliers) <= bound + 1e-7


def dual_function(problem, gamma):
    """min_v F(v) - <gamma, X~v> by the oracle: how good multipliers are as a dual point."""
    _, program = conic_program(cvxpy, problem)
    constraint = program.constraints[0].args[1]  # X~ v, (n, blocks)
    lagrangian = program.objective.expr - cvxpy.sum(cvxpy.multiply(gamma.T, constraint))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        return cvxpy.Problem(cvxpy.Minimize(lagrangian)).solve(solver="CLARABEL", **TIGHT)


def test_a_real_set(data_folder):
    """Agreement with the oracle on a UCI set."""
    data = np.load(data_folder / "uci" / "seeds.npz")
    X, labels = data["X"][::5], data["y"][::5]
    X = X / np.linalg.norm(X, axis=0)
    Y = np.eye(3)[labels]
    patterns = cvxnn.sample_patterns(X, 15, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=1e-3)
    solution = cvxnn.solve(problem, "al", tol=1e-5)
    assert solution.certificate.objective == pytest.approx(
        oracle(problem).certificate.objective, rel=1e-5
    )


@pytest.mark.parametrize(("of_target", "of_data"), [(1e4, 1.0), (1e-4, 1.0), (1.0, 1e-6)])
def test_units_do_not_matter(of_target, of_data):
    """y and lam in other units are the same problem; so are X and lam."""
    X, Y = make_data(30, 3)
    X = X / np.linalg.norm(X, axis=0)
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)
    plain = cvxnn.solve(cvxnn.CReLU(X, Y, patterns, lam=0.02), tol=1e-3)
    scaled = cvxnn.CReLU(of_data * X, of_target * Y, patterns, lam=0.02 * of_target * of_data)
    solution = cvxnn.solve(scaled, tol=1e-3)
    assert solution.converged
    assert solution.n_iter < 3 * plain.n_iter
    assert solution.certificate.objective == pytest.approx(
        plain.certificate.objective * of_target**2, rel=2e-3
    )


def test_an_interrupt_before_the_first_iterate_returns_the_zero_model(problem, monkeypatch):
    def interrupt(*args, **kwargs):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(type(problem), "make_feasible", interrupt)
    with pytest.warns(cvxnn.ConvergenceWarning, match="interrupted"):
        solution = cvxnn.solve(problem, "al")
    assert solution.status is Status.INTERRUPTED
    assert solution.n_active == 0
    assert solution.certificate.objective == pytest.approx(solution.certificate.zero_objective)


def test_problems_and_solutions_travel(problem, solution):
    """They can be pickled, as joblib does to send them to other processes."""
    again = pickle.loads(pickle.dumps(solution))
    assert again.certificate == solution.certificate
    assert cvxnn.certify(again.problem, again.weights, again.dual) == cvxnn.certify(
        problem, solution.weights, solution.dual
    )
    assert repr(again.problem).startswith("CReLU(30 rows, 3 columns, 1 outputs, ")
    assert len(repr(again.network())) < 100
    assert len(repr(problem.patterns)) < 100
