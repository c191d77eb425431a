"""Means of several networks as one: of folds, and of variants with shares by their losses."""

from __future__ import annotations

import numpy as np
import pytest

import cvxnn
from cvxnn.estimators.ensembles import shares_of
from cvxnn.estimators.targets import Labels, Values

FEW = {"n_patterns": 12, "n_alphas": 4, "cv": 3, "tol": 1e-5}
SPARSE = cvxnn.SparseGates(2, active_share=(0.1, 0.9))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4))
    return X, (np.abs(X[:, 0]) - X[:, 1] + 0.5 * rng.standard_normal(90) > 0.5).astype(int)


def test_variants_have_shares_by_their_losses_on_rows_held_out(rows, monkeypatch):
    """Those of three estimators fitted for themselves: folds of equal size have mean scores."""
    monkeypatch.setattr("cvxnn.estimators.comparison.FOLD_TOL", 0.0)
    X, y = rows
    y = np.sort(y)[np.argsort(np.argsort(y, kind="stable"))]
    settings = [{}, {"feature_scaling": "learned"}, {"gates": SPARSE}]
    apart = [cvxnn.GatedReLUClassifierCV(**FEW, **own).fit(X, y) for own in settings]
    model = cvxnn.GatedReLUClassifierCV(**FEW, ensemble="variants").fit(X, y)
    weights = np.exp([len(y) / 4 * one.best_score_ for one in apart])
    weights /= weights.sum()
    order = np.argsort(-weights)
    found = [member.share for member in model.members_]
    np.testing.assert_allclose(found, np.repeat(weights[order] / 4, 4), rtol=1e-2)
    assert sum(found) == pytest.approx(1)
    for k, place in enumerate(order):
        alone = apart[place].network_
        np.testing.assert_allclose(
            model.members_[4 * k].network.predict(X), alone.predict(X), atol=2e-2
        )
    best = apart[order[0]]
    assert model.alpha_ == pytest.approx(best.alpha_)
    np.testing.assert_allclose(model.cv_scores_, best.cv_scores_, atol=1e-3)
    outputs = [member.share * member.network.predict(X) for member in model.members_]
    np.testing.assert_allclose(model.decision_function(X), np.sum(outputs, axis=0), atol=1e-10)


def test_shares_fall_with_the_loss():
    labels = Labels(np.array([0, 1]), "log")
    found = shares_of([0.50, 0.52, 0.90], 100, labels)
    assert found[2] == 0  # next to nothing
    assert found[1] / found[0] == pytest.approx(np.exp(-100 * 0.02 / 4))
    assert found.sum() == pytest.approx(1)
    values = Values("squared", 1.35, flat=True)  # a mean squared error that is 10 percent larger
    found = shares_of([0.5, 0.55], 40, values)
    assert found[1] / found[0] == pytest.approx(1.1 ** (-40 / 8))
    np.testing.assert_array_equal(shares_of([0.0, 0.0], 40, values), 0.5)


def test_a_mean_does_not_depend_on_jobs_or_on_the_order_of_rows(rows):
    X, y = rows
    model = cvxnn.GatedReLURegressorCV(**FEW, ensemble="variants")
    one = model.fit(X, y).predict(X)
    np.testing.assert_array_equal(model.fit(X[::-1], y[::-1]).predict(X), one)
    np.testing.assert_array_equal(model.set_params(n_jobs=2).fit(X, y).predict(X), one)


def test_folds_that_lack_a_class_have_no_part_in_the_mean(rows):
    X, y = rows
    y = np.where(np.arange(90) < 10, 2, y)
    rest = np.arange(10, 90)
    splits = [
        (rest, np.arange(10)),  # trains on two of the three classes
        (np.setdiff1d(np.arange(90), rest[::2]), rest[::2]),
        (np.arange(90), rest[1::2]),  # on all rows, as the last fit does
    ]
    few = {**FEW, "cv": splits}
    # with the log-loss no network is optimal without the third class, which is an error
    model = cvxnn.GatedReLUClassifierCV(**few, loss="squared", ensemble="folds").fit(X, y)
    assert [member.n_rows for member in model.members_] == [90, 50]
    assert model.decision_function(X).shape == (90, 3)
    numbers = cvxnn.GatedReLURegressorCV(**few, ensemble="folds").fit(X, y)
    assert [member.n_rows for member in numbers.members_] == [90, 80, 50]


def test_networks_that_did_not_converge_are_told(rows):
    X, y = rows
    few = {**FEW, "tol": 1e-12, "max_iter": 2}
    model = cvxnn.GatedReLUClassifierCV(**few, solver="rfista", ensemble="folds")
    with pytest.warns(cvxnn.ConvergenceWarning) as told:
        model.fit(X, y)
    assert "3 of the 4 networks of the ensemble did not" in str(told[-1].message)
    assert not model.converged_


def test_time_is_shared_among_all_networks(rows):
    X, y = rows
    model = cvxnn.GatedReLUClassifierCV(**FEW, ensemble="variants", max_seconds=1e3).fit(X, y)
    assert len(model.members_) > 4
    assert model.converged_


def test_variants_of_generated_patterns_are_in_two_scales(rows):
    """Sparse gates are for sampled patterns."""
    X, y = rows
    settings = {"patterns": "generate", "alphas": [0.3], "cv": 2, "tol": 5e-2}
    model = cvxnn.ReLURegressorCV(**settings, ensemble="variants").fit(X[:40, :3], y[:40])
    scopes = [member.certificate.scope.endswith("learned scales") for member in model.members_]
    assert sorted(scopes) == [False, False, False, True, True, True]
    assert all(member.certificate.relative_gap <= 5e-2 for member in model.members_)


def test_rows_in_files_are_refused(rows, tmp_path):
    X, y = rows
    X.tofile(tmp_path / "rows")
    stored = cvxnn.StoredRows(tmp_path / "rows", 4)
    with pytest.raises(ValueError, match="ensemble='folds' needs rows in memory"):
        cvxnn.GatedReLURegressorCV(**FEW, ensemble="folds").fit(stored, y)
