"""Problems are solved in columns where that is quicker, fewer or principal axes, and certified on
X."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

import cvxnn
from cvxnn.problems.columns import FewerColumns, PrincipalAxes, span_bound
from cvxnn.solvers import columns as ways
from cvxnn.solvers.columns import _squares, axes_pay, fewer_pay

N, D, P = 30, 150, 20


def make(kind=cvxnn.CGReLU, loss="squared", sparse=False, repeat=False, rank=None, **settings):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < (0.1 if sparse else 1.0))
    if rank is not None:  # more rows than columns
        X = rng.standard_normal((120, rank)) @ rng.standard_normal((rank, 40))
    if repeat:
        X[N // 2 :] = X[: N - N // 2]
    scores = np.maximum(X[:, :6], 0) @ rng.standard_normal((6, 3))
    if loss == "softmax":
        Y = np.eye(3)[np.argmax(scores - scores.mean(axis=0), axis=1)]
    else:
        Y = np.where(scores > 0, 1.0, -1.0) if loss == "logistic" else scores
    X = csr_array(X) if sparse else X
    draw = {name: settings.get(name, False) for name in ("bias", "normalize")}
    problem = kind(
        X, Y, cvxnn.sample_patterns(X, P, random_state=0, **draw), 1.0, loss=loss, **settings
    )
    largest = 1.0 if settings.get("penalty") == "l2" else cvxnn.lambda_max(problem)
    return problem.with_lam(0.05 * largest)


@pytest.fixture
def counted(monkeypatch):
    """The shapes of the data that were solved for."""
    seen, iterates = [], cvxnn.Newton.iterates

    def watch(self, problem, *rest):
        seen.append(problem.operator.d)
        return iterates(self, problem, *rest)

    monkeypatch.setattr(cvxnn.Newton, "iterates", watch)
    return seen


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("repeat", [False, True])
def test_coordinates_are_those_of_an_isometry(sparse, repeat):
    problem = make(sparse=sparse, repeat=repeat)
    columns, X = problem.data.fewer_columns, problem.operator.rows()
    X = X.toarray() if sparse else X
    W = np.random.default_rng(1).standard_normal((4, N, 2))
    W[1] = 0
    U = columns.restore(W)
    atol = 1e-5 if sparse and repeat else 1e-9  # equal sparse rows are told apart by a ridge
    np.testing.assert_allclose(X @ U[0], columns.Z @ W[0], atol=atol)
    assert not U[1].any()
    inside = columns.restore(columns.reduce(U))
    np.testing.assert_allclose(X @ inside[2], X @ U[2], atol=atol)
    assert np.all(np.linalg.norm(U, axis=1) <= np.linalg.norm(W, axis=1) * (1 + 1e-9))
    if not (sparse and repeat):
        np.testing.assert_allclose(np.linalg.norm(U, axis=1), np.linalg.norm(W, axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "loss", "settings"),
    [
        (cvxnn.CGReLU, "squared", {}),
        (cvxnn.CGReLU, "squared", {"bias": True, "normalize": True}),
        (cvxnn.CGReLU, "logistic", {"output_bias": True}),
        (cvxnn.CGReLU, "softmax", {"output_bias": True, "bias": True}),
        (cvxnn.CGReLU, "squared", {"repeat": True}),
        (cvxnn.CGReLU, "logistic", {"sparse": True}),
        (cvxnn.CGReLU, "squared", {"sparse": True, "repeat": True}),
        (cvxnn.CGReLU, "squared", {"rank": 10, "bias": True, "normalize": True}),
        (cvxnn.CGReLU, "softmax", {"rank": 10, "output_bias": True}),
        (cvxnn.CReLU, "logistic", {"rank": 10, "bias": True, "output_bias": True}),
        (cvxnn.CReLU, "squared", {}),
        (cvxnn.CReLU, "softmax", {"bias": True, "normalize": True}),
    ],
)
def test_the_optimum_is_the_same(kind, loss, settings, monkeypatch):
    problem = make(kind, loss, **settings)
    assert fewer_pay(problem)
    ours = cvxnn.solve(problem, tol=1e-6)
    monkeypatch.setattr(ways, "fewer_pay", lambda problem: False)
    monkeypatch.setattr(ways, "axes_pay", lambda problem: False)
    theirs = cvxnn.solve(problem, tol=1e-6)
    assert ours.converged
    assert theirs.converged
    assert ours.solver == theirs.solver
    assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=3e-6)
    assert cvxnn.verify(ours).agrees
    if kind is cvxnn.CGReLU:  # bounds of one hold for the other
        assert ours.certificate.lower_bound <= theirs.certificate.objective
        assert theirs.certificate.lower_bound <= ours.certificate.objective


def test_the_run_has_as_many_columns_as_rows(counted):
    solution = cvxnn.solve(make(), tol=1e-6)
    assert counted == [N]
    assert solution.weights.shape == (P, D, 3)
    assert solution.network().n_features == D


def test_a_warm_start_and_a_path_go_along(counted):
    problem = make()
    first = cvxnn.solve(problem, tol=1e-6)
    assert cvxnn.solve(problem, tol=1e-5, warm_start=first).n_iter == 0
    path = cvxnn.path(problem, n_lams=4, eps=0.1)
    assert all(point.converged for point in path.solutions)
    assert set(counted) == {N}


def test_other_penalties_and_small_savings_are_left_alone(counted):
    assert not fewer_pay(make(penalty="l1"))
    assert not fewer_pay(make(penalty="feature"))
    assert not fewer_pay(make().with_lam(0))
    assert not FewerColumns.pays(1000, 1100, 500, 1, span=1000, sparse=False)
    assert not FewerColumns.pays(1000, 500, 500, 1, span=500, sparse=False)
    assert FewerColumns.pays(1000, 500, 500, 1, span=300, sparse=False)
    assert not FewerColumns.pays(1000, 2000, 1, 1, span=1000, sparse=False)
    assert not FewerColumns.pays(10**5, 10**6, 50, 1, span=10**5, sparse=True)
    cvxnn.solve(make(), "rfista", stop="paper", tol=1e-2)
    assert not counted


def test_what_rounding_loses_is_made_up_for_without_the_coordinates(counted, monkeypatch):
    restore = FewerColumns.restore
    monkeypatch.setattr(FewerColumns, "restore", lambda self, W: 1.01 * restore(self, W))
    solution = cvxnn.solve(make(), tol=1e-6)
    assert solution.converged
    assert counted == [N, D]


def test_the_rank_decides_where_columns_depend_on_each_other(counted):
    rng = np.random.default_rng(0)
    assert span_bound(rng.standard_normal((100, 40))) == 40
    assert span_bound(np.zeros((100, 40))) == 0
    assert make(rank=10).data.span == 10
    assert make(rank=10, bias=True).data.span == 11
    wide = np.vstack([rng.standard_normal((90, 4)) @ rng.standard_normal((4, 40)), np.eye(40)])
    assert span_bound(wide) == 40  # whatever the rows are that are looked at first
    codes = np.eye(30)[rng.integers(30, size=500)]
    assert span_bound(np.hstack([codes, codes])) == 30
    solution = cvxnn.solve(make(rank=10), tol=1e-6)
    assert counted == [10]
    assert solution.converged
    assert solution.weights.shape == (P, 40, 3)


def test_columns_of_unlike_units_keep_their_part():
    """Columns that are small beside others are still columns, and certificates know them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 20)) * np.logspace(0, -9, 20)
    X = np.hstack([X, X @ rng.standard_normal((20, 20))])
    y = X[:, 0] + X[:, 15] / np.abs(X[:, 15]).max()
    problem = cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, P, random_state=0), 1e-3)
    solution = cvxnn.solve(problem, tol=1e-6)
    assert solution.converged
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-6)
    assert solution.certificate.objective == pytest.approx(oracle.certificate.objective, rel=1e-5)


def test_squares_do_not_depend_on_coordinates():
    problem = make(loss="logistic", rank=10, penalty="l2")
    assert fewer_pay(problem)
    solution = cvxnn.solve(problem, "rfista", tol=1e-5)
    assert solution.converged
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-6)
    assert solution.certificate.objective == pytest.approx(oracle.certificate.objective, rel=1e-4)


def test_weights_are_restored_only_for_certificates(monkeypatch):
    calls, restore = [], FewerColumns.restore
    monkeypatch.setattr(FewerColumns, "restore", lambda s, W: (calls.append(1), restore(s, W))[1])
    solution = cvxnn.solve(make(), tol=1e-6)
    assert solution.n_iter > len(calls)


# ---- principal axes


def correlated(loss="softmax", kind=cvxnn.CGReLU, **settings):
    """Rows whose columns share most of their variance, as pixels do."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) @ np.diag(np.logspace(0, -1.5, 20))
    X = X @ np.linalg.qr(rng.standard_normal((20, 20)))[0]
    scores = np.maximum(X @ rng.standard_normal((20, 6)), 0) @ rng.standard_normal((6, 3))
    Y = np.eye(3)[np.argmax(scores - scores.mean(axis=0), axis=1)]
    if loss != "softmax":
        Y = 2 * Y - 1
    draw = {name: settings.get(name, False) for name in ("bias", "normalize")}
    patterns = cvxnn.sample_patterns(X, 40, random_state=0, **draw)
    problem = kind(X, Y, patterns, 1.0, loss=loss, **settings)
    return problem.with_lam(0.01 * cvxnn.lambda_max(problem))


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        ("softmax", {}),
        ("softmax", {"output_bias": True, "bias": True}),
        ("logistic", {"output_bias": True}),
        ("squared", {"bias": True}),
    ],
)
def test_the_optimum_in_principal_axes_is_the_same_and_takes_fewer_steps(
    loss, settings, monkeypatch
):
    problem = correlated(loss, **settings)
    assert axes_pay(problem)
    ours = cvxnn.solve(problem, "working-sets", tol=1e-6)
    monkeypatch.setattr(ways, "axes_pay", lambda problem: False)
    theirs = cvxnn.solve(problem, "working-sets", tol=1e-6)
    assert ours.converged
    assert theirs.converged
    assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=3e-6)
    assert cvxnn.verify(ours).agrees
    first = [next(g.n_products for g in s.history if g.relative_gap < 1e-2) for s in (ours, theirs)]
    assert first[0] < first[1]


def test_axes_are_orthogonal_and_as_many_as_the_rank():
    X = correlated().operator.rows()
    axes = PrincipalAxes(np.hstack([X, X @ np.ones((20, 3))]))
    assert axes.V.shape == (23, 20)
    np.testing.assert_allclose(axes.V.T @ axes.V, np.eye(20), atol=1e-12)
    products = axes.Z.T @ axes.Z
    sizes = np.diagonal(products)
    np.testing.assert_allclose(products, np.diag(sizes), atol=1e-10 * sizes[0])
    assert np.all(np.diff(sizes) <= 0)


def test_axes_that_spare_nothing_are_not_looked_for():
    rng = np.random.default_rng(0)
    alike = rng.standard_normal((300, 20))
    unlike = alike * np.logspace(0, -1.5, 20)
    assert PrincipalAxes.pays(unlike, 40, 3)
    assert not PrincipalAxes.pays(alike, 40, 3)
    assert not PrincipalAxes.pays(unlike, 1, 1)  # costs more than it spares
    assert not PrincipalAxes.pays(unlike[:10], 40, 3)
    assert not PrincipalAxes.pays(np.zeros((300, 20)), 40, 3)
    assert not axes_pay(correlated(kind=cvxnn.CReLU))
    assert not axes_pay(correlated(penalty="l1"))


# ---- leading axes


def steep(loss="softmax", **settings):
    """Rows with nearly all of their squares in a few of 32 directions, and scores that need more
    of them."""
    rng = np.random.default_rng(0)
    sizes = np.logspace(0, -3, 32)
    X = rng.standard_normal((200, 32)) * sizes @ np.linalg.qr(rng.standard_normal((32, 32)))[0]
    scores = np.maximum(X @ rng.standard_normal((32, 6)), 0) @ rng.standard_normal((6, 3))
    Y = np.eye(3)[np.argmax(scores - scores.mean(axis=0), axis=1)]
    Y = 2 * Y - 1 if loss != "softmax" else Y
    patterns = cvxnn.sample_patterns(X, 12, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, 1.0, loss=loss, **settings)
    return problem.with_lam(0.01 * cvxnn.lambda_max(problem))


@pytest.fixture
def widths(monkeypatch):
    """The numbers of columns that working sets were asked to solve for."""
    seen, iterates = [], cvxnn.WorkingSets.iterates

    def watch(self, problem, *rest):
        seen.append(problem.operator.d)
        return iterates(self, problem, *rest)

    monkeypatch.setattr(cvxnn.WorkingSets, "iterates", watch)
    return seen


@pytest.mark.parametrize(
    ("loss", "settings"),
    [("softmax", {}), ("softmax", {"output_bias": True}), ("logistic", {}), ("squared", {})],
)
def test_few_axes_come_first_and_the_optimum_is_that_of_all(loss, settings, widths):
    problem = steep(loss, **settings)
    numbers = problem.data.principal_axes.numbers()
    solution = cvxnn.solve(problem, "working-sets", tol=1e-5)
    assert solution.converged
    assert widths == [*numbers, 32]
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-4)
    assert solution.certificate.objective == pytest.approx(oracle.certificate.objective, rel=1e-4)
    assert cvxnn.verify(solution).agrees
    # bounds on the way are of the whole problem, too
    highest = max(progress.lower_bound for progress in solution.history)
    assert highest <= oracle.certificate.objective * (1 + 1e-9)
    assert solution.history[-1].n_iter == solution.n_iter


def test_a_rough_answer_needs_few_axes(widths):
    problem = steep().with_lam(0.1 * cvxnn.lambda_max(steep()))
    solution = cvxnn.solve(problem, "working-sets", tol=0.05)
    assert solution.converged
    assert max(widths) < 32
    assert solution.weights.shape == (12, 32, 3)
    assert cvxnn.verify(solution).agrees


def test_a_start_is_given_the_axes_that_it_needs(widths):
    problem = steep()
    first = cvxnn.solve(problem, "working-sets", tol=1e-6)
    widths.clear()
    again = cvxnn.solve(problem, "working-sets", tol=1e-5, warm_start=first)
    assert again.n_iter == 0
    assert widths == [32]


def test_a_run_in_few_axes_goes_on_there(widths, tmp_path):
    problem, file = steep(), tmp_path / "run"
    settings = {"solver": "working-sets", "tol": 1e-5, "checkpoint": file}
    part = cvxnn.solve(problem, callback=lambda progress: progress.n_iter >= 20, **settings)
    widths.clear()
    found = cvxnn.solve(problem, **settings)
    assert found.converged
    assert widths[0] < 32
    assert found.history[: len(part.history)] == part.history
    # products in single precision are rounded in another way
    assert found.history[len(part.history)].objective <= part.history[-1].objective * (1 + 1e-6)


def test_many_weights_in_single_precision_are_not_taken_for_lost():
    U = np.full((2000, 50, 40), 0.1, dtype=np.float32)
    assert _squares(U) == pytest.approx(U.size * float(U[0, 0, 0]) ** 2, rel=1e-12)


def test_leading_axes_are_few_or_none():
    axes = steep().data.principal_axes
    numbers = axes.numbers()
    assert len(numbers) >= 2
    assert all(b == 2 * a for a, b in pairwise(numbers))
    few = axes.leading(numbers[0])
    np.testing.assert_allclose(few.Z, axes.Z[:, : numbers[0]], atol=1e-12)
    outside = np.sum(axes.Z[:, numbers[0] :] ** 2) / np.sum(axes.Z**2)
    assert outside == pytest.approx(axes.left[numbers[0]])
    assert axes.left[0] == pytest.approx(1)
    assert axes.left[-1] == 0
    assert correlated().data.principal_axes.numbers() == []  # too much is left outside few of them
