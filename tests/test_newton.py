"""The Newton solver reaches the optimum that independent solvers find, by itself; it proves it,
warm-starts, keeps to limits, and hands over to another method where it gets stuck."""

import dataclasses
import itertools

import numpy as np
import pytest

import cvxnn
from conftest import expanded_matrix, make_data, make_problem
from cvxnn import AL, RFISTA, Status
from cvxnn.arrays import to_numpy
from cvxnn.kernels import native
from cvxnn.solvers.base import Iterate, Working
from cvxnn.solvers.newton import method as newton
from cvxnn.solvers.newton import systems
from cvxnn.solvers.newton.blocks import FIRST_LIMIT, ConeBlocks, GatedBlocks, make_blocks
from extras import required

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
KINDS = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}


@pytest.fixture
def alone(monkeypatch):
    """No other method may take over."""

    def refuse(*args, **kwargs):
        pytest.fail("the Newton solver got stuck")

    monkeypatch.setattr(newton, "RFISTA", refuse)
    monkeypatch.setattr(newton, "AL", refuse)


def make(kind, X, Y, *, p=12, share=0.1, bias=False, patterns=None, **settings):
    """A problem on these data at `share` of its lambda_max."""
    if patterns is None:
        patterns = cvxnn.sample_patterns(
            X, p, bias=bias, normalize=settings.get("normalize", False), random_state=0
        )
    problem = KINDS[kind](X, Y, patterns, lam=1.0, bias=bias, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def blocks_of(solution):
    """All blocks as one array (blocks, d, C)."""
    return to_numpy(solution.problem.check_weights(solution.weights)).astype(float)


def naive_objective(problem, U):
    """The formula of the problem, written out on the formed matrix."""
    Y = np.asarray(problem.loss.Y)
    p = len(problem.patterns)
    effective = U[:p] - U[p:] if problem.kind == "C-ReLU" else U
    fit = np.einsum("npd,pdc->nc", expanded_matrix(problem), effective)
    return ((fit - Y) ** 2).sum() / (2 * Y.size) + problem.lam * np.linalg.norm(U, axis=1).sum()


def assert_feasible(problem, U):
    """Every block lies in its cone, up to the rounding of the products."""
    if problem.kind == "C-ReLU":
        signs = np.where(problem.patterns.mask, 1.0, -1.0)
        X = np.asarray(problem.operator.rows())
        residuals = np.hstack([signs, signs])[:, :, None] * np.einsum("nd,pdc->npc", X, U)
        assert residuals.min() >= -1e-13 * np.linalg.norm(X, axis=1).max() * np.abs(U).max()


def assert_optimal(solution, tol=1e-6):
    """The certificate holds, is tight, and says what the formula and the oracle say."""
    problem, certificate = solution.problem, solution.certificate
    U = blocks_of(solution)
    assert solution.converged
    assert certificate.relative_gap <= tol
    assert_feasible(problem, U)
    assert certificate.objective == pytest.approx(naive_objective(problem, U), rel=1e-9)
    required("cvxpy")
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-7, settings=TIGHT, on_failure="ignore")
    exact = oracle.certificate
    assert certificate.objective == pytest.approx(exact.objective, rel=1e-6)
    assert certificate.lower_bound <= exact.objective * (1 + 1e-9)
    assert exact.lower_bound <= certificate.objective * (1 + 1e-9)


# ---- optimality --------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.9, 0.1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_of_the_oracle(alone, kind, C, share):
    problem = make(kind, *make_data(40, 3, C), p=12, share=share)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-8), tol=1e-8)


def with_duplicates(X):
    X[1::2] = X[::2]
    return X


def with_zero_rows(X):
    X[::4] = 0
    return X


def with_a_constant(X):
    X[:, 0] = 1
    return X


DATA = {
    "wide": (8, 12, None),
    "very wide": (5, 30, None),
    "tall": (120, 2, None),
    "one feature": (20, 1, None),
    "duplicated rows": (20, 3, with_duplicates),
    "zero rows": (20, 3, with_zero_rows),
    "a constant column": (20, 3, with_a_constant),
    "a zero column": (20, 3, lambda X: X * [1, 0, 1]),
    "equal columns": (20, 4, lambda X: X[:, [0, 1, 0, 1]]),
    "low rank": (20, 6, lambda X: X[:, :2] @ X[:2]),
    "correlated columns": (20, 4, lambda X: X[:, :1] + 1e-2 * X),
    "columns of different size": (20, 4, lambda X: X * [1e-2, 1, 1e2, 10]),
    "rows of different size": (20, 3, lambda X: X * np.logspace(-2, 2, 20)[:, None]),
    "signs": (20, 4, np.sign),
    "one row": (1, 3, None),
    "two rows": (2, 3, None),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_data(alone, kind, data):
    n, d, change = DATA[data]
    X, Y = make_data(n, d)
    X = X if change is None else change(X)
    if kind == "relu" and data in ("one feature", "signs"):  # gates tie, cones repeat
        X = X + 0.1
    assert_optimal(cvxnn.solve(make(kind, X, Y, p=10, share=0.05), "newton", tol=1e-7), tol=1e-7)


@pytest.mark.parametrize("settings", [{"bias": True}, {"normalize": True, "bias": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_bias_and_normalisation(alone, kind, settings):
    X, Y = make_data(25, 3, C=2)
    problem = make(kind, X * [1, 30, 0.1], Y, share=0.03, **settings)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-7), tol=1e-7)


@pytest.mark.parametrize(
    ("n", "d", "C", "p", "share"), [(60, 5, 1, 5, 1e-4), (5, 10, 3, 12, 1e-6), (30, 3, 2, 12, 1e-6)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_small_lam(alone, kind, n, d, C, p, share):
    """The way from lambda_max is long; the oracle's own accuracy ends before."""
    problem = make(kind, *make_data(n, d, C), p=p, share=share)
    solution = cvxnn.solve(problem, "newton", tol=1e-6)
    assert solution.converged
    assert solution.certificate.objective < 0.5 * solution.certificate.zero_objective
    assert_feasible(problem, blocks_of(solution))


@pytest.mark.parametrize("seed", [3, 4, 6])
def test_thin_cones(alone, seed):
    """Rows that are nearly parallel leave cones in which only long steps fit anything."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((8, 1)) + 1e-2 * rng.standard_normal((8, 3))
    patterns = cvxnn.Patterns.from_mask(rng.random((8, 4)) < 0.5)
    settings = {"share": 1e-3, "patterns": patterns, "singular": "keep"}
    problem = make("relu", X, rng.standard_normal(8), **settings)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-6))


@pytest.mark.parametrize("kind", KINDS)
def test_odd_patterns(alone, kind):
    """One pattern, the one that holds everywhere, and masks that no gate produces."""
    X, Y = make_data(15, 3)
    X = np.abs(X)  # so that the pattern of all rows has a cone
    rng = np.random.default_rng(0)
    masks = [np.ones((15, 1), bool), rng.random((15, 6)) < 0.5]
    singular = {"singular": "keep"} if kind == "relu" else {}
    for mask in (masks[0], np.hstack(masks)):
        patterns = cvxnn.Patterns.from_mask(mask)
        problem = make(kind, X, Y, share=0.05, patterns=patterns, **singular)
        assert_optimal(cvxnn.solve(problem, "newton", tol=1e-7), tol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_is_recognised(alone, kind):
    X, Y = make_data(30, 3)
    above = cvxnn.solve(make(kind, X, Y, share=1.001), "newton", tol=1e-9)
    assert above.n_active == above.n_iter == 0
    assert above.converged
    below = cvxnn.solve(make(kind, X, Y, share=0.999), "newton", tol=1e-9)
    assert below.n_active > 0
    assert_optimal(below, tol=1e-9)
    without = KINDS[kind](X, 0 * Y, below.problem.patterns, lam=0.1)
    nothing = cvxnn.solve(without, "newton", tol=1e-9)
    assert nothing.converged
    assert nothing.certificate.objective == 0
    one_of_two = KINDS[kind](X, np.stack([0 * Y, Y], axis=1), below.problem.patterns, lam=0.01)
    assert_optimal(cvxnn.solve(one_of_two, "newton", tol=1e-7), tol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_data_without_information(alone, kind):
    """X = 0 leaves nothing to fit."""
    patterns = cvxnn.Patterns.from_mask(np.ones((5, 1), bool))
    settings = {"singular": "keep"} if kind == "relu" else {}
    problem = KINDS[kind](np.zeros((5, 2)), np.ones(5), patterns, lam=0.1, **settings)
    solution = cvxnn.solve(problem, "newton")
    assert solution.converged
    assert solution.n_active == 0


@pytest.mark.parametrize("of_target", [1e6, 1e-6, 1e-12])
@pytest.mark.parametrize("of_data", [1.0, 1e-4, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_units_do_not_matter(alone, kind, of_data, of_target):
    """y and lam in other units are the same problem; so are X and lam."""
    X, Y = make_data(30, 3, C=2)
    plain = cvxnn.solve(make(kind, X, Y, share=0.02), "newton", tol=1e-7)
    scaled = plain.problem.lam * of_data * of_target
    problem = KINDS[kind](of_data * X, of_target * Y, plain.problem.patterns, lam=scaled)
    solution = cvxnn.solve(problem, "newton", tol=1e-7)
    assert solution.converged
    assert solution.n_iter <= 1.5 * plain.n_iter
    np.testing.assert_allclose(
        blocks_of(solution) * of_data / of_target,
        blocks_of(plain),
        atol=1e-3 * np.abs(blocks_of(plain)).max(),
    )
    expected = plain.certificate.objective * of_target**2
    assert solution.certificate.objective == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("kind", "other"), [("gated", "rfista"), ("relu", "al")])
def test_the_first_order_solvers_agree(alone, kind, other):
    """On a problem that is larger than the oracle's."""
    problem = make(kind, *make_data(80, 3), p=40, share=0.1, normalize=True)
    mine = cvxnn.solve(problem, "newton", tol=1e-7)
    theirs = cvxnn.solve(problem, other, tol=1e-6)
    assert mine.converged
    assert theirs.converged
    assert mine.certificate.objective == pytest.approx(theirs.certificate.objective, rel=1e-6)
    assert mine.certificate.lower_bound <= theirs.certificate.objective
    assert theirs.certificate.lower_bound <= mine.certificate.objective
    assert mine.n_iter < theirs.n_iter / 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_tolerance_is_met_and_not_overdone(alone, kind):
    problem = make(kind, *make_data(60, 4), p=40, share=0.02)
    runs = [cvxnn.solve(problem, "newton", tol=tol) for tol in (1e-2, 1e-4, 1e-9)]
    for run, tol in zip(runs, (1e-2, 1e-4, 1e-9), strict=True):
        assert run.converged
        assert run.certificate.relative_gap <= tol
    assert runs[0].n_iter < runs[1].n_iter < runs[2].n_iter
    assert runs[2].n_iter < 3 * runs[1].n_iter  # the order of a Newton method
    best = runs[2].certificate
    assert best.objective <= runs[1].certificate.objective <= best.objective * (1 + 1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_more_blocks_than_the_working_set_takes_at_once(alone, kind, monkeypatch):
    problem = make(kind, *make_data(60, 3), p=60, share=0.02)
    at_once = cvxnn.solve(problem, "newton", tol=1e-7)
    monkeypatch.setattr(GatedBlocks, "batch", 2)
    monkeypatch.setattr(ConeBlocks, "batch", 2)
    little = cvxnn.solve(problem, "newton", tol=1e-7)
    assert little.converged
    assert little.certificate.objective == pytest.approx(at_once.certificate.objective, rel=1e-7)


# ---- certificates ------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_dual_point_certifies_again(kind, C):
    problem = make(kind, *make_data(40, 3, C), share=0.02)
    solution = cvxnn.solve(problem, "newton", tol=1e-7)
    again = cvxnn.certify(problem, solution.weights, solution.dual)
    assert again.objective == solution.certificate.objective
    assert again.lower_bound == pytest.approx(solution.certificate.lower_bound, rel=1e-12)
    assert again.relative_gap <= 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_history_bounds_the_optimum_at_all_times(kind):
    """Also on the way, where a larger lam is solved for: its values would bound nothing."""
    problem = make(kind, *make_data(40, 3), p=30, share=1e-3)
    solution = cvxnn.solve(problem, "newton", tol=1e-9)
    optimum = solution.certificate.objective
    assert len(solution.history) > 3
    for record in solution.history:
        assert record.objective >= optimum * (1 - 1e-8)
        assert record.lower_bound <= optimum * (1 + 1e-8)
    for before, after in itertools.pairwise(solution.history):
        assert after.objective <= before.objective
        assert after.lower_bound >= before.lower_bound
        assert after.n_iter > before.n_iter
        assert after.n_products >= before.n_products
    assert solution.n_iter == solution.history[-1].n_iter


@pytest.mark.parametrize("tol", [1e-1, 1e-4])
def test_iterates_are_feasible_and_match_their_fit(tol):
    problem = make("relu", *make_data(40, 3), p=30, share=0.01)
    iterates = newton.Newton().iterates(problem, problem.zero_weights(), tol=tol)
    full = (iterate for iterate in iterates if isinstance(iterate, Iterate))
    for iterate in itertools.islice(full, 8):
        assert_feasible(problem, iterate.U)
        fit = problem.operator.forward(iterate.U)
        np.testing.assert_allclose(iterate.fit, fit, atol=1e-9 * max(1, np.abs(fit).max()))


@pytest.mark.parametrize("kind", KINDS)
def test_runs_are_reproducible_to_the_bit(kind, monkeypatch):
    problem = make(kind, *make_data(50, 4, C=2), p=60, share=0.01)
    first = cvxnn.solve(problem, "newton", tol=1e-7)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # what the kernels share the blocks among
    second = cvxnn.solve(problem, "newton", tol=1e-7)
    np.testing.assert_array_equal(blocks_of(first), blocks_of(second))
    np.testing.assert_array_equal(first.dual, second.dual)
    assert first.certificate == second.certificate
    assert first.n_iter == second.n_iter


# ---- warm starts -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "other"), [("gated", "rfista"), ("relu", "al")])
def test_weights_of_another_solver_are_a_start(kind, other):
    problem = make(kind, *make_data(60, 4, C=2), p=40, share=0.02)
    theirs = cvxnn.solve(problem, other, tol=1e-3)
    cold = cvxnn.solve(problem, "newton", tol=1e-7)
    for start in (theirs, theirs.weights):
        warm = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=start)
        assert warm.converged
        assert warm.history[0].objective == pytest.approx(theirs.certificate.objective)
        assert warm.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-7)
        assert warm.n_iter < cold.n_iter


@pytest.mark.parametrize("kind", KINDS)
def test_a_solution_at_the_same_lam_is_recognised(kind):
    problem = make(kind, *make_data(60, 4, C=2), p=40, share=0.02)
    solution = cvxnn.solve(problem, "newton", tol=1e-7)
    again = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=solution)
    assert again.converged
    assert again.n_iter == 0
    assert again.certificate.objective == pytest.approx(solution.certificate.objective, rel=1e-12)


@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_solution_at_another_lam_saves_work(alone, kind, factor):
    """And is not changed by that: a second run from it is the same."""
    problem = make(kind, *make_data(60, 4, C=2), p=40, share=0.02)
    near = cvxnn.solve(problem.with_lam(factor * problem.lam), "newton", tol=1e-7)
    cold = cvxnn.solve(problem, "newton", tol=1e-7)
    warm = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=near)
    assert warm.converged
    assert warm.n_iter < cold.n_iter
    assert warm.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-7)
    again = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=near)
    np.testing.assert_array_equal(blocks_of(warm), blocks_of(again))


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_down_and_up_again(alone, kind):
    """Continuation over lam, where each solution starts the next, stays optimal."""
    problem, last = make(kind, *make_data(40, 3), p=30, share=1.0), None
    for share in (1.0, 0.3, 0.1, 0.03, 0.01, 0.1, 1.01):
        last = cvxnn.solve(
            problem.with_lam(share * problem.lam), "newton", tol=1e-7, warm_start=last
        )
        assert_optimal(last, tol=1e-7)
    assert last.n_active == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_far_away_does_no_harm(kind):
    problem = make(kind, *make_data(40, 3), share=0.02)
    cold = cvxnn.solve(problem, "newton", tol=1e-7)
    U = np.random.default_rng(0).standard_normal(problem.weight_shape)
    if kind == "relu":
        U, _ = problem.make_feasible(U)
    far = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=1e3 * U)
    assert far.converged
    assert far.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-7)


def test_a_start_outside_the_cones_is_projected(alone):
    """Gated weights, whose objective is below that of every feasible point."""
    problem = make("relu", *make_data(40, 3), share=0.02)
    gated = cvxnn.solve(problem.gated, "newton", tol=1e-7).weights
    outside = np.concatenate([gated, np.zeros_like(gated)])
    assert problem.max_violation(outside) > 1e-3
    settings = {"max_iter": 500, "max_seconds": 10}
    solution = cvxnn.solve(problem, "newton", tol=1e-7, warm_start=outside, **settings)
    projected, _ = problem.make_feasible(outside)
    assert solution.history[0].objective == pytest.approx(problem.objective(projected))
    assert_optimal(solution, tol=1e-7)


# ---- limits ------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def hard(request):
    return make(request.param, *make_data(60, 4), p=40, share=0.01)


def assert_honest(solution):
    """The best point so far, with its own certificate."""
    problem, certificate = solution.problem, solution.certificate
    assert_feasible(problem, blocks_of(solution))
    again = cvxnn.certify(problem, solution.weights, solution.dual)
    # projections that start from other rows end in others, by rounding
    assert again.lower_bound == pytest.approx(certificate.lower_bound, rel=1e-13)
    assert certificate == dataclasses.replace(again, lower_bound=certificate.lower_bound)
    assert certificate.objective == pytest.approx(solution.history[-1].objective)
    assert certificate.objective <= certificate.zero_objective
    assert certificate.relative_gap > 1e-9


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 9])
def test_iteration_limit(hard, limit):
    with pytest.warns(cvxnn.ConvergenceWarning, match="newton: the iteration limit"):
        solution = cvxnn.solve(hard, "newton", tol=1e-9, max_iter=limit)
    assert solution.status is Status.MAX_ITER
    assert solution.n_iter == solution.history[-1].n_iter <= limit
    assert_honest(solution)


def test_time_limit(hard):
    solution = cvxnn.solve(hard, "newton", tol=1e-9, max_seconds=1e-9, on_failure="ignore")
    assert solution.status is Status.TIME_LIMIT
    assert solution.n_iter == solution.n_active == 0
    assert solution.certificate.lower_bound == 0  # what costs no time


def test_the_limits_are_looked_at_after_every_newton_step(hard):
    """Not only at full iterates."""
    steps = [
        iterate.n_inner for iterate in run_to_convergence(hard) if isinstance(iterate, Working)
    ]
    assert len(steps) > 5
    assert max(steps) <= newton.MAX_STEPS + 1


def run_to_convergence(problem):
    """The iterates, until they have no more to show."""
    n_iter = cvxnn.solve(problem, "newton", tol=1e-6).n_iter
    count = 0
    for iterate in newton.Newton().iterates(problem, problem.zero_weights(), tol=1e-6):
        yield iterate
        count += 0 if isinstance(iterate, Working) else iterate.n_inner
        if count > n_iter:
            return


def test_callback_can_stop(hard):
    seen = []

    def callback(progress):
        seen.append(progress)
        return len(seen) == 4

    solution = cvxnn.solve(hard, "newton", tol=1e-9, callback=callback)
    assert solution.status is Status.STOPPED
    assert tuple(seen) == solution.history
    assert solution.n_iter == seen[-1].n_iter >= 3
    assert_honest(solution)


def test_interrupt_returns_the_best_point(hard):
    def interrupt(progress):
        if progress.n_iter > 3:
            raise KeyboardInterrupt

    with pytest.warns(cvxnn.ConvergenceWarning, match="newton: interrupted"):
        solution = cvxnn.solve(hard, "newton", tol=1e-9, callback=interrupt)
    assert solution.status is Status.INTERRUPTED
    assert solution.n_iter > 3
    assert_honest(solution)
    finished = cvxnn.solve(hard, "newton", tol=1e-6, warm_start=solution)
    assert finished.converged


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_beyond_rounding_it_stalls_honestly(kind, seed):
    """A gap that rounding makes negative is no progress."""
    problem = make(kind, *make_data(40, 3, seed=seed), share=0.02)
    solution = cvxnn.solve(problem, "newton", tol=0, max_seconds=60, on_failure="ignore")
    assert solution.status in (Status.STALLED, Status.CONVERGED)
    assert solution.certificate.relative_gap <= 1e-10
    assert "nan" not in solution.message


def test_what_it_does_not_handle_is_refused():
    problem = make_problem()
    with pytest.raises(ValueError, match="stop 'paper' has no meaning for solver 'newton'"):
        cvxnn.solve(problem, "newton", stop="paper")
    with pytest.raises(ValueError, match=r"'newton' does not handle C-GReLU with penalty 'l1'"):
        cvxnn.solve(make_problem(penalty="l1"), "newton")
    with pytest.raises(ValueError, match=r"'newton' does not handle C-GReLU.*lam = 0"):
        cvxnn.solve(problem.with_lam(0), "newton")
    with pytest.raises(TypeError, match="neither solve nor solver 'newton' has 'sigma'"):
        cvxnn.solve(problem, "newton", sigma=1.0)


# ---- precisions, libraries, kernels ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gated_problems_of_every_library(alone, to_library, dtype):
    X, Y = make_data(60, 4, C=2)
    X, Y = X.astype(dtype), Y.astype(dtype)
    patterns = cvxnn.sample_patterns(X, 30, random_state=0)
    exact = cvxnn.solve(cvxnn.CGReLU(X.astype(float), Y, patterns, lam=0.02), "newton", tol=1e-9)
    single = dtype == "float32"
    problem = cvxnn.CGReLU(to_library(X), to_library(Y), patterns, lam=0.02)
    solution = cvxnn.solve(problem, "newton", tol=1e-5 if single else 1e-8)
    assert solution.converged
    assert type(solution.weights) is type(to_library(X))
    assert dtype in str(solution.weights.dtype)
    value = exact.certificate.objective
    assert solution.certificate.objective == pytest.approx(value, rel=1e-5 if single else 1e-8)
    again = cvxnn.solve(problem, "newton", tol=1e-4, warm_start=solution)
    assert again.n_iter == 0


def test_relu_problems_in_single_precision(alone):
    X, Y = make_data(40, 3)
    X = X.astype(np.float32)
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    solution = cvxnn.solve(cvxnn.CReLU(X, Y, patterns, lam=0.02), "newton", tol=1e-4)
    assert solution.converged
    assert solution.weights[0].dtype == np.float64  # inside their cones beyond doubt
    exact = cvxnn.solve(cvxnn.CReLU(X.astype(float), Y, patterns, lam=0.02), "newton", tol=1e-8)
    value = exact.certificate.objective
    assert solution.certificate.objective == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_without_compiled_kernels(alone, kind, monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    problem = make(kind, *make_data(40, 3, C=2), share=0.01)
    assert_optimal(cvxnn.solve(problem, "newton", tol=1e-7), tol=1e-7)


def test_large_faces_take_the_matrix_free_system(alone, monkeypatch):
    """With the same result as the factored one."""
    problem = make("relu", *make_data(40, 5), p=30, share=0.01)
    formed = cvxnn.solve(problem, "newton", tol=1e-8)
    monkeypatch.setattr("cvxnn.solvers.newton.blocks.MAX_ENTRIES", 0)
    monkeypatch.setattr("cvxnn.solvers.newton.blocks.FaceSystem", None)
    free = cvxnn.solve(problem, "newton", tol=1e-8)
    assert free.converged
    assert free.certificate.objective == pytest.approx(formed.certificate.objective, rel=1e-8)


# ---- the other method --------------------------------------------------------------------------


@pytest.fixture
def taken_over(monkeypatch):
    """The names of the methods that took over."""
    names = []
    for cls in (RFISTA, AL):

        class Spy(cls):
            def iterates(self, *args, **kwargs):
                names.append(self.name)
                return super().iterates(*args, **kwargs)

        monkeypatch.setattr(newton, cls.__name__, Spy)
    return names


@pytest.mark.parametrize(("kind", "other"), [("gated", "rfista"), ("relu", "al")])
def test_another_method_takes_over_where_it_gets_stuck(kind, other, taken_over, monkeypatch):
    problem = make(kind, *make_data(40, 3), share=0.05)
    exact = cvxnn.solve(problem, "newton", tol=1e-8)
    assert not taken_over
    monkeypatch.setattr(newton, "MAX_FAILURES", 0)
    solution = cvxnn.solve(problem, "newton", tol=1e-5)
    assert taken_over[0] == other
    assert solution.converged
    assert solution.solver.name == "newton"
    value = exact.certificate.objective
    assert solution.certificate.objective == pytest.approx(value, rel=1e-5)
    monkeypatch.undo()
    assert cvxnn.solve(problem, "newton", tol=1e-8, warm_start=solution).converged


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize(("kind", "other"), [("gated", "rfista"), ("relu", "al")])
def test_a_factorisation_that_fails_is_not_the_end(kind, other, after, taken_over, monkeypatch):
    """The other method goes on from the best point until then."""
    problem = make(kind, *make_data(40, 3), share=0.05)
    calls = itertools.count()

    def failing(factor):
        def wrapped(*args, **kwargs):
            if next(calls) >= after:
                raise np.linalg.LinAlgError("not positive definite")
            return factor(*args, **kwargs)

        return wrapped

    for name in ("positive", "factor_shifted"):
        monkeypatch.setattr(systems, name, failing(getattr(systems, name)))
    solution = cvxnn.solve(problem, "newton", tol=1e-5)
    assert next(calls) > after
    assert taken_over[0] == other
    assert solution.converged
    for earlier, later in itertools.pairwise(solution.history):
        assert later.objective <= earlier.objective
        assert later.n_iter >= earlier.n_iter


def test_a_cold_start_shortens_no_block_that_it_will_not_look_at():
    """Its first rows bound all projections and find the longest ones, and where none is longer than
    the lam that it begins with, it leaves them."""
    X, y = make_data(n=80, d=5, seed=3)[:2]
    problem = make("relu", X, y, p=60, share=0.01)
    (blocks,) = make_blocks(problem, 1).parts
    blocks.set_work(np.zeros(0, dtype=np.int64), 1.0)
    theta = problem.loss.gradient(np.zeros_like(problem.loss.Y))[:, 0]
    found = np.linalg.norm(blocks.all_correlations(theta, problem.lam, None, 1.0), axis=1)
    G = problem.operator_double.base.adjoint(theta[:, None])[:, :, 0]
    pattern = np.tile(np.arange(len(G)), 2)
    exact = np.linalg.norm(problem.cones.project(np.concatenate([-G, G]), pattern)[0], axis=1)
    assert np.all(found >= exact * (1 - 1e-12))
    assert np.isclose(found[exact.argmax()], cvxnn.lambda_max(problem), rtol=1e-9)
    first = FIRST_LIMIT * exact.max()
    assert np.all(found[exact <= 0.8 * first] <= first)
    assert np.count_nonzero(found > 1.1 * exact) > 5  # more than that was not asked for


def test_few_proximal_points_along_a_path():
    """Where predictions are enough, the next point of the path begins with a larger sigma."""
    X, y = make_data(n=120, d=5, seed=3)[:2]
    problem = make("relu", X, y, p=60)
    points = cvxnn.path(problem, n_lams=20, eps=0.05, tol=1e-4)
    assert points.complete
    assert max(points.relative_gaps) <= 1e-4
    assert sum(len(point.history) for point in points) <= 60


@pytest.fixture
def cone_blocks():
    problem = make("relu", *make_data(40, 4))
    part = make_blocks(problem, 1).parts[0]
    assert isinstance(part, ConeBlocks)
    return problem.cones, part


def test_rows_are_projected_again_only_where_lifting_moves_them(cone_blocks, monkeypatch):
    cones, part = cone_blocks
    rng = np.random.default_rng(0)
    every = np.arange(part.size) % part.p
    inside = cones.project(rng.standard_normal((part.size, part.d)), every)[0]
    blocks = np.flatnonzero(np.linalg.norm(inside, axis=1) > 0.1)
    inside, pattern = inside[blocks], every[blocks]
    outside = inside + 1e-3 * rng.standard_normal(inside.shape)
    nearest, lifted = cones.project(outside, pattern)[0], part.lift(blocks, outside)
    assert cones.proven_inside(lifted, pattern).all()
    np.testing.assert_allclose(lifted, nearest, atol=1e-8)
    assert np.abs(cones.lift(outside, pattern) - nearest).max() > 1e-4  # not by lifting alone
    monkeypatch.setattr(type(cones), "project", None)
    np.testing.assert_allclose(part.lift(blocks, inside), inside, atol=1e-8)


def test_rows_that_are_not_rough_are_as_short_as_they_can_be(cone_blocks):
    cones, part = cone_blocks
    theta = np.random.default_rng(0).standard_normal(part.n)
    part.set_work(np.array([0]), 1.0)
    lam = 0.2 * np.linalg.norm(part.all_correlations(theta, np.inf, None, 1.0), axis=1).max()
    rows = part.all_correlations(theta, lam, None, 1.0, rough=False)
    exact = cones.project(part._correlations, np.arange(part.size) % part.p)[0]
    large = np.linalg.norm(rows, axis=1) > lam
    assert large.any()
    np.testing.assert_allclose(rows[large], exact[large], atol=1e-8)
