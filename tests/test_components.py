"""Estimators on principal components: the program is the one on the columns, restricted, and the
same on every machine; networks take raw rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

import cvxnn
from cvxnn.estimators.base import posed_program, train
from cvxnn.estimators.components import Components
from extras import required

QUICK = {"n_patterns": 20, "tol": 1e-5}


def columns(n=80, d=7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.standard_normal(d)
    return X, np.abs(X[:, 0]) - X[:, 1] + 0.1 * rng.standard_normal(n)


def classes(y):
    return np.digitize(y, np.quantile(y, [0.3, 0.7]))


def test_components_are_those_of_scikit_learn():
    X, _ = columns()
    found = Components.of(X - X.mean(axis=0), np.ones(len(X)), 3)
    pca = PCA(3).fit(X)
    for mine, theirs in zip(found.directions.T, pca.components_, strict=True):
        assert_allclose(np.abs(mine @ theirs), 1, rtol=1e-12)
    assert_allclose(found.held / found.total, pca.explained_variance_ratio_.sum(), rtol=1e-12)
    assert_allclose(found.directions.T @ found.directions, np.eye(3), atol=1e-14)


def test_a_weight_is_a_repeated_row():
    X, _ = columns(20)
    X = X - X.mean(axis=0)
    weight = np.arange(1, 21)
    weighted = Components.of(X, weight, 3)
    repeated = Components.of(np.repeat(X, weight, axis=0), np.ones(weight.sum()), 3)
    assert_allclose(weighted.directions, repeated.directions, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 33, 784])
def test_products_are_exact_sums_in_any_order(d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, d)) * np.exp(3 * rng.standard_normal(d))
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0][:, : min(d, 5)]
    found = Components(np.ascontiguousarray(directions), 1.0, 1.0)
    order = rng.permutation(d)
    other = Components(np.ascontiguousarray(directions[order]), 1.0, 1.0)
    product = found.apply(X)
    # the BLAS adds in another order, with other blocks; each row alone is one more
    assert_array_equal(other.apply(np.asfortranarray(X[:, order])), product)
    assert_allclose(product, X @ directions, atol=1e-10 * np.abs(X).max())


@pytest.mark.parametrize("kind", ["ReLU", "GatedReLU"])
def test_all_components_are_the_columns(kind):
    """A rotation changes the patterns that gates have, but not the program over given ones."""
    X, y = columns()
    model = getattr(cvxnn, f"{kind}Regressor")(n_components=7, **QUICK)
    fit = train(model, X, y)
    turned, numbers = fit.posed.problem, fit.posed.numbers
    mean, spread = numbers.columns.mean, numbers.columns.spread
    straight = type(turned)(
        (X - mean) / spread,
        turned.loss.Y[np.argsort(np.lexsort(X.T[::-1]))],
        cvxnn.Patterns.from_gates(
            (X - mean) / spread,
            numbers.components.directions @ turned.patterns.gates,
            turned.patterns.gate_bias,
        ),
        turned.lam,
        bias=True,
        output_bias=True,
    )
    optimum = cvxnn.solve(straight, tol=1e-6).certificate
    assert optimum.objective == pytest.approx(model.certificate_.objective, rel=2e-5)
    assert "100.0 % of their variance" in str(model.certificate_)


@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("kind", ["ReLU", "GatedReLU"])
def test_networks_take_raw_rows(kind, settings):
    X, y = columns()
    model = getattr(cvxnn, f"{kind}Classifier")(n_components=3, **QUICK, **settings)
    fit = train(model, X, classes(y))
    assert fit.posed.problem.operator.d == 3 + model.fit_intercept
    inner = fit.solution.network().predict(fit.posed.problem.operator.rows()[:, :3])
    order = np.lexsort(X.T[::-1])  # distinct rows are sorted
    assert_allclose(model.decision_function(X[order]), inner, atol=1e-9)
    assert model.network_.n_features == 7
    assert model.certificate_.scope.startswith(fit.solution.certificate.scope)
    assert "on the 3 leading principal components of the columns, with" in str(model.certificate_)


@pytest.mark.parametrize("kind", ["ReLU", "GatedReLU"])
def test_the_optimum_is_that_of_the_oracle(kind):
    required("cvxpy")
    X, y = columns(40)
    model = getattr(cvxnn, f"{kind}Regressor")(n_components=2, n_patterns=8, tol=1e-6).fit(X, y)
    problem = posed_program(model, X, y, alpha=model.alpha).problem
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-4, on_failure="ignore").certificate
    assert model.certificate_.objective == pytest.approx(oracle.objective, rel=1e-5)


def test_folds_have_components_of_their_own():
    X, y = columns()
    model = cvxnn.GatedReLURegressorCV(n_components=3, cv=2, n_alphas=3, n_patterns=10).fit(X, y)
    assert model.cv_scores_.shape == (2, len(model.alphas_))
    assert model.converged_
    assert "3 leading principal components" in model.certificate_.scope


def test_what_is_refused():
    X, y = columns()
    with pytest.raises(ValueError, match="n_components=8, but X has 7 columns"):
        cvxnn.GatedReLURegressor(n_components=8, **QUICK).fit(X, y)
    with pytest.raises(TypeError, match="n_components needs a dense X"):
        cvxnn.GatedReLURegressor(n_components=2, **QUICK).fit(csr_array(X), y)
    with pytest.raises(ValueError, match="'n_components' parameter"):
        cvxnn.GatedReLURegressor(n_components=0, **QUICK).fit(X, y)


def test_constant_columns_have_no_variance_to_hold():
    X = np.ones((10, 3))
    found = Components.of(X - 1, np.ones(10), 2)
    assert "100.0 %" in found.words
    assert_array_equal(found.apply(X - 1), np.zeros((10, 2)))
