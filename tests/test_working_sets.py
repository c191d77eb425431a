"""Working sets of patterns for each class: products, optimality, and what a run has to keep."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_iris

import cvxnn
from conftest import make_data
from cvxnn import Status
from cvxnn.cones.cones import Cones
from cvxnn.cones.screening import LastProjections
from cvxnn.kernels import native
from cvxnn.operators import ExpandedMatrix, expanded_matrix
from cvxnn.operators.ragged import RaggedSelections
from cvxnn.solvers.shrinkage import norms
from cvxnn.solvers.working_sets import method
from cvxnn.solvers.working_sets.method import WorkingSets, _Run
from extras import required

SETS = [[0, 3, 4], [], list(range(7, 71)), [69]]
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def make(kind="C-GReLU", loss="softmax", n=60, d=4, p=15, C=3, share=0.05, **settings):
    rng = np.random.default_rng(3)
    X, _ = make_data(n, d, C)
    scores = np.maximum(X @ rng.standard_normal((d, 6)), 0) @ rng.standard_normal((6, C))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)  # so that every class occurs
    if loss == "softmax":
        Y = np.eye(C)[np.argmax(scores, axis=1)]
    elif loss == "logistic":
        Y = np.where(scores > np.median(scores, axis=0), 1.0, -1.0)
    else:
        Y = scores + 0.1 * rng.standard_normal(scores.shape)
    patterns = cvxnn.sample_patterns(
        X, p, bias=settings.get("bias", False), normalize=settings.get("normalize", False),
        random_state=0,
    )  # fmt: skip
    make_problem = cvxnn.CReLU if kind == "C-ReLU" else cvxnn.CGReLU
    problem = make_problem(X, Y, patterns, 1.0, loss=loss, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compiled", [True, False])
def test_ragged_products_are_those_of_the_whole_operator(compiled, dtype):
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((101, 9)), rng.random((101, 71)) < 0.5
    operator, sets = ExpandedMatrix(X, mask), [np.array(its, dtype=np.int64) for its in SETS]
    if not compiled:
        ragged = RaggedSelections(operator, sets, dtype)
    elif native.library() is None:
        pytest.skip("no compiled kernels")
    else:
        ragged = operator.ragged(sets, dtype)
        assert not isinstance(ragged, RaggedSelections)
    rows, R = rng.standard_normal((68, 9)), rng.standard_normal((101, 4))
    U = np.zeros((71, 9, 4))
    for k, its in enumerate(sets):
        U[its, :, k] = rows[ragged.offsets[k] : ragged.offsets[k + 1]]
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    for twin, its_rtol in ((ragged, rtol), (ragged.in_double(), 1e-12)):
        wanted = operator.forward(U)
        np.testing.assert_allclose(twin.forward(rows), wanted, atol=its_rtol * np.abs(wanted).max())
        G = operator.adjoint(R)
        found = twin.adjoint(R)
        for k, its in enumerate(sets):
            part = found[ragged.offsets[k] : ragged.offsets[k + 1]]
            np.testing.assert_allclose(part, G[its, :, k], atol=its_rtol * np.abs(G).max())


def test_ragged_products_do_not_depend_on_the_threads(monkeypatch):
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((3000, 20)), rng.random((3000, 600)) < 0.5
    sets = [np.arange(k, 600, 2) for k in range(3)]
    found = []
    for count in ("1", "3"):
        monkeypatch.setenv("CVXNN_NUM_THREADS", count)
        ragged = ExpandedMatrix(X, mask).ragged(sets, np.float64)
        rows = np.ones((sum(map(len, sets)), 20))
        found.append((ragged.forward(rows), ragged.adjoint(np.ones((3000, 3)))))
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


def test_products_that_do_not_fit_are_refused():
    if native.library() is None:
        pytest.skip("no compiled kernels")
    ragged = ExpandedMatrix(np.ones((5, 2)), np.ones((5, 3), bool)).ragged(
        [np.array([0]), np.array([1, 2])], np.float64
    )
    with pytest.raises(ValueError, match=r"weights of shape \(2, 2\) do not fit"):
        ragged.forward(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"residuals of shape \(3, 5\) do not fit"):
        ragged.adjoint(np.ones((5, 3)))


@pytest.mark.parametrize("kind", ["C-GReLU", "C-ReLU"])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "softmax"])
@pytest.mark.parametrize(
    "settings", [{}, {"output_bias": True}, {"bias": True, "normalize": True}], ids=str
)
def test_agrees_with_the_oracle(kind, loss, settings):
    required("cvxpy")
    problem = make(kind, loss, n=40, p=8, **settings)
    # an old Clarabel may end before it has proven a small gap; its optimum is compared all the same
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-5, settings=TIGHT, on_failure="ignore")
    optimum = oracle.certificate
    solution = cvxnn.solve(problem, "working-sets", tol=1e-8)
    assert solution.converged
    assert solution.certificate.relative_gap <= 1e-8
    assert solution.certificate.objective == pytest.approx(optimum.objective, rel=1e-6)
    assert solution.certificate.lower_bound <= optimum.objective
    assert cvxnn.verify(solution).agrees


@pytest.mark.parametrize("share", [0.5, 0.01, 0.001])
@pytest.mark.parametrize("compiled", [True, False])
def test_all_classes_and_strengths_agree_with_newton(share, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    problem = make(n=80, p=30, C=7, share=share, output_bias=True)
    solution = cvxnn.solve(problem, "working-sets", tol=1e-7)
    other = cvxnn.solve(problem, "newton", tol=1e-7)
    assert solution.converged
    assert solution.certificate.objective == pytest.approx(other.certificate.objective, rel=3e-7)


def test_sparse_rows():
    from scipy.sparse import csr_array

    problem = make(n=80, p=12)
    X = np.where(np.abs(problem.operator.rows()) > 0.6, problem.operator.rows(), 0.0)
    patterns = cvxnn.sample_patterns(X, 12, random_state=0)
    dense, sparse = (
        cvxnn.CGReLU(data, problem.loss.Y, patterns, 0.003, loss="softmax")
        for data in (X, csr_array(X))
    )
    assert isinstance(sparse.operator, type(expanded_matrix(csr_array(X), patterns.mask)))
    ours, theirs = (cvxnn.solve(each, "working-sets", tol=1e-7) for each in (sparse, dense))
    assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=3e-7)


def test_single_precision_keeps_its_promise():
    problem = make(n=80, p=12)
    X, Y = (array.astype(np.float32) for array in (problem.operator.rows(), problem.loss.Y))
    single = cvxnn.CGReLU(X, Y, problem.patterns, problem.lam, loss="softmax")
    solution = cvxnn.solve(single, "working-sets", tol=1e-4)
    assert solution.converged
    assert solution.weights.dtype == np.float32


@pytest.mark.parametrize("settings", [{}, {"output_bias": True}])
def test_the_worst_pairs_are_settled_on_their_own(settings):
    """Others stay where they are, the objective falls, and so does the largest correlation."""
    problem = make(n=300, d=6, p=60, share=0.01, **settings)
    run = _Run(problem, WorkingSets(), np.zeros(problem.weight_shape), None)
    for _ in range(3):
        run.check()
        run.accelerate(10)
    sizes = norms(run.pairs.adjoint(problem.loss.gradient(run.x.Z - run.x.bias)))
    before, objective = run.x, run._objective(run.x)
    worst = np.argsort(-sizes)[: int(method.WORST * len(sizes))]
    assert len(worst) > 3
    assert sizes[worst[0]] > 1.01 * problem.lam
    run._settle_worst(sizes)
    assert run._objective(run.x) < objective
    moved = np.flatnonzero(np.any(run.x.rows != before.rows, axis=1))
    assert set(moved) <= set(worst)
    np.testing.assert_allclose(run.pairs.forward(run.x.rows) + run.x.bias, run.x.Z, atol=1e-4)
    np.testing.assert_allclose(run.pairs.forward(run.y.rows) + run.y.bias, run.y.Z, atol=1e-4)
    after = norms(run.pairs.adjoint(problem.loss.gradient(run.x.Z - run.x.bias)))
    assert after[worst].max() - problem.lam < 0.5 * (sizes.max() - problem.lam)


def test_settling_the_worst_pairs_spares_iterations(monkeypatch):
    problem, found = make(n=300, d=6, p=200, C=4, share=0.002), []
    for many in (math.inf, 0):
        monkeypatch.setattr(method, "MANY_WEIGHTS", many)
        found.append(cvxnn.solve(problem, "working-sets", tol=1e-3))
    plain, settled = found
    assert settled.converged
    assert settled.n_iter < plain.n_iter
    assert settled.certificate.objective == pytest.approx(plain.certificate.objective, rel=2e-3)


def test_above_lambda_max_zero_is_proven_at_once():
    solution = cvxnn.solve(make(share=1.001), "working-sets", tol=1e-9)
    assert solution.converged
    assert not solution.weights.any()
    assert solution.n_iter == 0


def test_a_warm_start_is_where_it_begins():
    problem = make(share=0.02)
    first = cvxnn.solve(problem, "working-sets", tol=1e-6)
    again = cvxnn.solve(problem, "working-sets", tol=1e-6, warm_start=first)
    assert again.n_iter == 0
    nearby = cvxnn.solve(problem.with_lam(0.9 * problem.lam), "working-sets", warm_start=first)
    cold = cvxnn.solve(problem.with_lam(0.9 * problem.lam), "working-sets")
    assert nearby.n_iter < cold.n_iter


def test_a_path_goes_along():
    path = cvxnn.path(make(share=0.1), n_lams=6, eps=0.02, tol=1e-4)
    assert all(solution.converged for solution in path.solutions)
    assert path.solutions[-1].solver.name == "working-sets"


@pytest.mark.parametrize("kind", ["C-GReLU", "C-ReLU"])
def test_bounds_never_cross_on_the_way(kind):
    problem = make(kind, n=100, p=20, share=0.02)
    best = cvxnn.solve(problem, "working-sets", tol=1e-8).certificate
    seen = []
    cvxnn.solve(problem, "working-sets", tol=1e-6, callback=lambda step: seen.append(step) and None)
    assert len(seen) > 3
    for step in seen:
        assert step.lower_bound <= best.objective * (1 + 1e-9)
        assert step.objective >= best.lower_bound * (1 - 1e-6)  # products in single precision


def test_it_stops_when_asked():
    problem = make(share=0.001, n=200, p=60, C=5)
    stopped = cvxnn.solve(problem, "working-sets", tol=0, callback=lambda step: step.n_iter > 25,
                          on_failure="ignore")  # fmt: skip
    assert stopped.status is Status.STOPPED
    limited = cvxnn.solve(problem, "working-sets", tol=0, max_iter=30, on_failure="ignore")
    assert limited.status is Status.MAX_ITER
    assert limited.n_iter <= 40
    none = cvxnn.solve(problem, "working-sets", max_seconds=1e-9, on_failure="ignore")
    assert none.status is Status.TIME_LIMIT


@pytest.mark.parametrize("kind", ["C-GReLU", "C-ReLU"])
def test_it_is_chosen_where_classes_are_coupled(kind):
    assert cvxnn.solve(make(kind, n=40, p=5)).solver.name == "working-sets"
    assert cvxnn.solve(make(kind, n=40, p=5, loss="logistic")).solver.name == "newton"


def test_sparse_rows_with_cones_are_for_newton():
    from scipy.sparse import csr_array

    problem = make("C-ReLU", n=40, p=5)
    X = csr_array(problem.operator.rows())
    sparse = cvxnn.CReLU(X, problem.loss.Y, problem.patterns, problem.lam, loss="softmax")
    assert cvxnn.solve(sparse).solver.name == "newton"


def test_the_last_multipliers_bound_new_projections(monkeypatch):
    rng = np.random.default_rng(0)
    X, gates = rng.standard_normal((60, 5)), rng.standard_normal((5, 40))
    cones = Cones(X, X @ gates >= 0, gates)
    projected = []
    original = Cones.project

    def counted(self, points, *args, **settings):
        projected.append(len(points))
        return original(self, points, *args, **settings)

    monkeypatch.setattr(Cones, "project", counted)
    points, blocks = rng.standard_normal((40, 5)), np.arange(40)
    last = LastProjections.none(cones, 50)
    enough = 0.3
    for scale, change in ((1.0, 0.0), (1.1, 0.02), (0.9, 0.02), (1.0, 0.0)):
        points = scale * points + change * rng.standard_normal(points.shape)
        found = last.project(cones, points, blocks + 10, blocks, enough)
        exact, _ = original(cones, points, blocks)
        long = np.linalg.norm(found, axis=1) > enough
        np.testing.assert_allclose(found[long], exact[long], atol=1e-9)
        assert np.all(np.linalg.norm(exact[~long], axis=1) <= enough)
        # what is short is a point x + X~'gamma: beyond the cone in no direction of it
        inside = cones.interior * (1 - 1e-9)
        excess = np.einsum("ij,ij->i", found - points, inside)
        assert np.all(excess >= -1e-9)
    assert np.any(~long)
    assert projected[0] == 40
    assert projected[-1] == np.count_nonzero(long)  # the others need no projection


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_both_ways_to_a_newton_step_agree(loss):
    problem = make("C-ReLU", loss, n=60, p=10, share=0.1, output_bias=True)
    run = _Run(problem, WorkingSets(), np.zeros(problem.weight_shape), None)
    for _ in range(5):
        run.check()
        run.accelerate(10)
    run._drop_zeros()
    support = run._support()
    assert support is not None
    assert support.is_factored
    for damping in (1e-3, 1.0):
        step = support.step(damping)
        other = support._iterated_step(damping, max_iter=500, tol=1e-7)
        # an output bias is determined up to a constant
        np.testing.assert_allclose(step.rows, other.rows, atol=1e-3 * np.abs(step.rows).max())
        shift = (other.Z - step.Z).mean(axis=1, keepdims=True) if loss == "softmax" else 0.0
        np.testing.assert_allclose(step.Z + shift, other.Z, atol=1e-3 * np.abs(step.Z).max())


def test_diagonal_blocks_are_those_of_the_hessian():
    problem = make(n=60, p=10, share=0.05)
    run = _Run(problem, WorkingSets(), np.zeros(problem.weight_shape), None)
    run.check()
    run.accelerate(20)
    run._drop_zeros()
    support = run._support()
    X, h = problem.operator.rows(), problem.loss.root(run.x.Z).diagonal()
    classes = np.repeat(np.arange(3), [len(its) for its in run.pairs.blocks])
    for block, pattern, k in zip(support._squares, run.pairs.pattern, classes, strict=True):
        rows = X * problem.patterns.mask[:, pattern, None]
        np.testing.assert_allclose(block, rows.T @ (rows * h[:, [k]]), rtol=1e-4, atol=1e-6)


def test_blocks_that_are_nearly_alike_do_not_slow_it_down():
    """Few columns, and patterns that differ in a row or two: with Newton steps at the end alone it
    takes more than 900 iterations."""
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    patterns = cvxnn.sample_patterns(X, 300, bias=True, random_state=0)
    problem = cvxnn.CReLU(
        X, np.eye(3)[y], patterns, 1.0, loss="softmax", bias=True, output_bias=True
    )
    problem = problem.with_lam(0.02 * cvxnn.lambda_max(problem))
    solution = cvxnn.solve(problem, "working-sets")
    assert solution.converged
    assert solution.n_iter < 700


@pytest.mark.parametrize("name", ["GatedReLUClassifier", "ReLUClassifier"])
def test_many_classes_have_an_answer(name):
    rng = np.random.default_rng(0)
    y = np.arange(160) % 40
    X = rng.standard_normal((40, 4))[y] + 0.1 * rng.standard_normal((160, 4))
    model = getattr(cvxnn, name)(n_patterns=15, random_state=0).fit(X, y)
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (lambda: make(loss="squared").with_lam(0), "lam = 0"),
        (lambda: make(loss="squared", penalty="l1"), "l1"),
    ],
)
def test_what_it_cannot_do_is_refused(problem, says):
    with pytest.raises((ValueError, TypeError), match=says):
        cvxnn.solve(problem(), "working-sets")


@pytest.mark.parametrize("setting", [{"every": 0}, {"batch": 0}, {"newton_below": -1.0}])
def test_settings_are_checked(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        WorkingSets(**setting)


@pytest.mark.parametrize("scale", [1e-100, 1e-20, 1e30, 1e100])
def test_units_do_not_matter(scale):
    """Beyond the range of single precision, too."""
    problem = make(n=60, p=10, output_bias=True)
    other = cvxnn.CGReLU(
        scale * problem.operator.rows(),
        problem.loss.Y,
        cvxnn.Patterns.from_mask(problem.patterns.mask),
        scale * problem.lam,
        loss="softmax",
        output_bias=True,
    )
    ours, theirs = (cvxnn.solve(each, "working-sets", tol=1e-6) for each in (problem, other))
    assert theirs.converged
    assert theirs.certificate.objective == pytest.approx(ours.certificate.objective, rel=3e-6)
