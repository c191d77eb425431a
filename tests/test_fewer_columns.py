"""Problems with more columns than rows are solved in the span of the rows, and certified on X."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import cvxnn
from cvxnn.problems.columns import FewerColumns
from cvxnn.solvers.fewer_columns import InFewerColumns

N, D, P = 30, 150, 20


def make(kind=cvxnn.CGReLU, loss="squared", sparse=False, repeat=False, **settings):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < (0.1 if sparse else 1.0))
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
    return problem.with_lam(0.05 * cvxnn.lambda_max(problem))


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
    columns, X = problem.data.columns, problem.operator.rows()
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
        (cvxnn.CReLU, "squared", {}),
        (cvxnn.CReLU, "softmax", {"bias": True, "normalize": True}),
    ],
)
def test_the_optimum_is_the_same(kind, loss, settings, monkeypatch):
    problem = make(kind, loss, **settings)
    assert InFewerColumns.pays(problem)
    ours = cvxnn.solve(problem, tol=1e-6)
    monkeypatch.setattr(InFewerColumns, "pays", lambda problem: False)
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
    assert not InFewerColumns.pays(make(penalty="l1"))
    assert not InFewerColumns.pays(make(penalty="feature"))
    assert not InFewerColumns.pays(make().with_lam(0))
    assert not FewerColumns.pays(1000, 1100, 500, 1, sparse=False)
    assert not FewerColumns.pays(1000, 500, 500, 1, sparse=False)
    assert not FewerColumns.pays(1000, 2000, 1, 1, sparse=False)
    assert not FewerColumns.pays(10**5, 10**6, 50, 1, sparse=True)
    cvxnn.solve(make(), "rfista", stop="paper", tol=1e-2)
    assert not counted


def test_what_rounding_loses_is_made_up_for_without_the_coordinates(counted, monkeypatch):
    restore = FewerColumns.restore
    monkeypatch.setattr(FewerColumns, "restore", lambda self, W: 1.01 * restore(self, W))
    solution = cvxnn.solve(make(), tol=1e-6)
    assert solution.converged
    assert counted == [N, D]
