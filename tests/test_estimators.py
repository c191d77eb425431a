"""The scikit-learn estimators: the contract, weights, probabilities, cross-validation, messages."""

import pickle
import warnings
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import HuberRegressor
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxnn
from cvxnn.estimators import base, comparison, generating, posing
from cvxnn.estimators.comparison import Grid
from cvxnn.estimators.rows import Rows, Scaling
from extras import optional

pd = optional("pandas")
pl = optional("polars")

FEW = {"n_patterns": 20}
QUICK_CV = {**FEW, "n_alphas": 4, "cv": 3}
CLASSIFIERS = (cvxnn.ReLUClassifier, cvxnn.GatedReLUClassifier)
REGRESSORS = (cvxnn.ReLURegressor, cvxnn.GatedReLURegressor)
CLASSIFIERS_CV = (cvxnn.ReLUClassifierCV, cvxnn.GatedReLUClassifierCV)
REGRESSORS_CV = (cvxnn.ReLURegressorCV, cvxnn.GatedReLURegressorCV)

rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], np.array(["malignant", "benign"])[y[:200]]


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:200], y[:200]


# ---- the contract -------------------------------------------------------------------------------


# The checks are of an interface, and fit some thousand models of noise: a rough one will do.
ROUGH = {"n_patterns": 5, "tol": 0.1}
ROUGH_CV = {**ROUGH, "n_alphas": 2, "cv": 2}


@pytest.mark.filterwarnings("ignore")  # the checks fit noise, labels as targets and the like
@parametrize_with_checks(
    [cls(0.03, **ROUGH) for cls in (*CLASSIFIERS, *REGRESSORS)]
    + [cls(**ROUGH_CV, eps=0.3) for cls in CLASSIFIERS_CV]
    + [cls(**ROUGH_CV, eps=0.03) for cls in REGRESSORS_CV]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [cls(n_patterns=5) for cls in (*CLASSIFIERS, *REGRESSORS)]
    + [cls(n_patterns=5, n_alphas=2, cv=2) for cls in (*CLASSIFIERS_CV, *REGRESSORS_CV)]
)
def test_scikit_learn_contract_at_the_default_tolerance(estimator, check):
    check(estimator)


# ---- classification -----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_labels_of_any_kind(cls, cancer):
    X, y = cancer
    model = cls(0.02, **FEW).fit(X, y)
    assert list(model.classes_) == ["benign", "malignant"]
    assert model.score(X, y) > 0.9
    numbers = cls(0.02, **FEW).fit(X, y == "malignant")
    np.testing.assert_array_equal(numbers.decision_function(X), model.decision_function(X))
    assert model.converged_
    assert model.certificate_.relative_gap <= model.tol
    assert model.n_iter_ >= 1
    assert model.alpha_ == 0.02 < model.lambda_max_


@pytest.mark.parametrize("cls", CLASSIFIERS)
def test_probabilities_of_two_classes_and_of_three(cls, cancer, wine):
    for (X, y), alpha in ((cancer, 0.02), (wine, 0.03)):
        model = cls(alpha, **FEW).fit(X, y)
        probabilities = model.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(X), atol=1e-9)
        np.testing.assert_array_equal(
            model.classes_[probabilities.argmax(axis=1)], model.predict(X)
        )
        # the log-loss is what was minimised: the objective is that plus the penalty
        assert log_loss(y, probabilities) < model.certificate_.objective


def test_probabilities_are_calibrated_where_labels_are_drawn_from_them():
    X = rng.uniform(-2, 2, (3000, 2))
    truth = 1 / (1 + np.exp(-(3 * np.maximum(X[:, 0], 0) - 2)))
    y = rng.random(3000) < truth
    model = cvxnn.ReLUClassifier(2e-3, n_patterns=50).fit(X, y)
    assert np.abs(model.predict_proba(X)[:, 1] - truth).mean() < 0.05


def test_squared_loss_has_no_probabilities(cancer):
    X, y = cancer
    model = cvxnn.GatedReLUClassifier(0.02, loss="squared", **FEW).fit(X, y)
    assert accuracy_score(y, model.predict(X)) > 0.9
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = model.predict_proba


def test_class_weight_balances(cancer):
    X, y = cancer
    few = np.flatnonzero(y == "benign")[:15]
    rows = np.concatenate([few, np.flatnonzero(y == "malignant")])
    X, y = X[rows], y[rows]
    plain = cvxnn.GatedReLUClassifier(0.1, **FEW).fit(X, y)
    balanced = cvxnn.GatedReLUClassifier(0.1, class_weight="balanced", **FEW).fit(X, y)
    assert balanced.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05
    weights = {"benign": 2.0, "malignant": 1.0}
    by_hand = np.where(y == "benign", 2.0, 1.0)
    given = cvxnn.GatedReLUClassifier(0.1, class_weight=weights, **FEW).fit(X, y)
    same = cvxnn.GatedReLUClassifier(0.1, **FEW).fit(X, y, by_hand)
    np.testing.assert_array_equal(given.network_.W1, same.network_.W1)


def test_one_class_is_said():
    with pytest.raises(ValueError, match="at least two classes, but y has one class"):
        cvxnn.ReLUClassifier().fit(rng.standard_normal((9, 2)), ["a"] * 9)
    with pytest.raises(ValueError, match="one class with positive sample_weight"):
        cvxnn.ReLUClassifier().fit(
            rng.standard_normal((4, 2)), ["a", "a", "b", "b"], sample_weight=[1, 1, 0, 0]
        )


# ---- regression ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGRESSORS)
def test_regression_in_any_units(cls, diabetes):
    X, y = diabetes
    model = cls(0.03, **FEW).fit(X, y)
    assert model.score(X, y) > 0.4
    other = cls(0.03, **FEW).fit(X * [1e6, *[1e-3] * 9] + 7, 1e4 * y - 5)
    moved = X * [1e6, *[1e-3] * 9] + 7
    np.testing.assert_allclose(other.predict(moved), 1e4 * model.predict(X) - 5, rtol=1e-2)
    assert model.predict(X).shape == (200,)


@pytest.mark.parametrize("cls", REGRESSORS)
def test_several_targets(cls, diabetes):
    X, y = diabetes
    Y = np.column_stack([y, 1e3 * X[:, 2]])
    model = cls(0.03, **FEW).fit(X, Y)
    assert model.predict(X).shape == (200, 2)
    assert model.score(X, Y) > 0.5


def test_huber_is_robust():
    X = rng.standard_normal((150, 2))
    truth = np.maximum(X[:, 0], 0) + X[:, 1]
    y = truth + 0.05 * rng.standard_normal(150)
    y[:12] += 60
    squared = cvxnn.ReLURegressor(1e-3, n_patterns=40).fit(X, y)
    huber = cvxnn.ReLURegressor(1e-3, n_patterns=40, loss="huber", huber_delta=0.05).fit(X, y)
    error = [np.abs(m.predict(X) - truth)[12:].mean() for m in (squared, huber)]
    assert error[1] < 0.2 * error[0]
    assert error[1] < np.abs(HuberRegressor().fit(X, y).predict(X) - truth)[12:].mean()


def test_a_constant_target_gives_a_constant_model():
    X = rng.standard_normal((20, 3))
    with pytest.warns(UserWarning, match="the model is constant"):
        model = cvxnn.ReLURegressor(**FEW).fit(X, np.full(20, 3.5))
    np.testing.assert_allclose(model.predict(X), 3.5)


# ---- weights, duplicates, order -----------------------------------------------------------------


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *REGRESSORS])
def test_weights_are_repeated_rows_to_the_last_bit(cls):
    X, y = load_iris(return_X_y=True)
    X, y = X[::4], y[::4]
    weight = rng.integers(0, 4, len(X))
    weight[[0, 20, 30]] = 1
    weighted = cls(0.03, **FEW).fit(X, y, weight)
    order = rng.permutation(np.repeat(np.arange(len(X)), weight))
    repeated = cls(0.03, **FEW).fit(X[order], y[order])
    np.testing.assert_array_equal(weighted.network_.W1, repeated.network_.W1)
    np.testing.assert_array_equal(weighted.network_.b2, repeated.network_.b2)


@pytest.mark.parametrize("cls", [cvxnn.GatedReLUClassifierCV, cvxnn.GatedReLURegressorCV])
def test_cross_validation_too_for_folds_of_the_users_own(cls):
    """Repeated rows are then in one fold. Default folds may put them into different ones."""
    X, y = load_iris(return_X_y=True)
    X, y = X[::4], y[::4]
    weight, fold = 1 + np.arange(len(X)) % 3, np.arange(len(X)) % 4
    own = {**QUICK_CV, "eps": 0.1, "cv": PredefinedSplit(fold)}
    weighted = cls(**own).fit(X, y, weight)
    own["cv"] = PredefinedSplit(np.repeat(fold, weight))
    repeated = cls(**own).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.cv_scores_, repeated.cv_scores_, rtol=1e-9)
    assert weighted.alpha_ == repeated.alpha_
    np.testing.assert_array_equal(weighted.network_.W2, repeated.network_.W2)


def test_splitters_with_groups_say_how_to_give_their_folds(cancer):
    X, y = cancer
    groups = np.arange(len(X)) // 40
    model = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": GroupKFold(3)})
    with pytest.raises(ValueError, match=r"give its folds, cv=list\(GroupKFold\(...\).split"):
        model.fit(X, y)
    model.set_params(cv=list(GroupKFold(3).split(X, y, groups))).fit(X, y)
    assert len(model.cv_scores_) == 3


def test_frames_and_arrays_are_told_apart_once():
    frame = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) ** 2})
    labels = np.arange(9) % 2
    model = cvxnn.GatedReLUClassifier(**FEW).fit(frame, labels)
    with pytest.warns(UserWarning, match="does not have valid feature names") as caught:
        model.predict(frame.to_numpy())
    assert len(caught) == 1
    model.fit(frame.to_numpy(), labels)
    with pytest.warns(UserWarning, match="X has feature names") as caught:
        model.predict(frame)
    assert len(caught) == 1


def test_two_fits_are_bit_identical(cancer):
    X, y = cancer
    a, b = (cvxnn.ReLUClassifier(0.01, n_patterns=60).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(a.network_.W1, b.network_.W1)
    other = cvxnn.ReLUClassifier(0.01, n_patterns=60, random_state=1).fit(X, y)
    assert other.network_.W1.shape != a.network_.W1.shape or np.any(
        other.network_.W1 != a.network_.W1
    )


def test_random_state_instances_are_drawn_from(cancer):
    X, y = cancer
    state = np.random.RandomState(0)
    a = cvxnn.GatedReLUClassifier(0.02, random_state=state, **FEW).fit(X, y)
    b = cvxnn.GatedReLUClassifier(0.02, random_state=state, **FEW).fit(X, y)
    assert np.any(a.network_.gates[0, 0] != b.network_.gates[0, 0])


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_rows_are_merged(make):
    X = np.array([[1.0, 0], [0, 2], [1, 0], [1, 0], [0, 2]])
    Y = np.array([[1.0], [1], [1], [-1], [1]])
    merged = Rows(make(X), Y, np.array([1.0, 2, 3, 4, 0])).merged()
    dense = merged.X.toarray() if sparse.issparse(merged.X) else merged.X
    found = {
        (*x, *y): w
        for x, y, w in zip(dense.tolist(), merged.Y.tolist(), merged.weight, strict=True)
    }
    assert found == {(1, 0, 1): 4, (0, 2, 1): 2, (1, 0, -1): 4}


# ---- scaling ------------------------------------------------------------------------------------


def test_scaling_is_that_of_weighted_rows_and_survives_extremes():
    X = np.array([[1e300, 1e-300, 5.0], [3e300, 4e-300, 5.0], [3e300, 4e-300, 5.0]])
    scaling = Scaling.of(X, np.array([2.0, 1, 1]), True)
    scaled = scaling.apply(X)
    np.testing.assert_allclose(np.average(scaled, axis=0, weights=[2, 1, 1]), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(scaled**2, axis=0, weights=[2, 1, 1]), [1, 1, 0])


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *REGRESSORS])
@pytest.mark.parametrize("settings", [{}, {"scale": False}, {"fit_intercept": False}])
def test_the_network_takes_raw_rows(cls, settings, cancer):
    X, y = cancer
    X = X[:, :5]
    y = (y == "benign").astype(float)
    model = cls(0.02, **FEW, **settings).fit(X, y)
    out = model.decision_function(X) if cls in CLASSIFIERS else model.predict(X)
    np.testing.assert_array_equal(model.network_.predict(X), out)
    if settings.get("fit_intercept") is False:
        assert model.network_.b1 is None
        assert model.network_.b2 is None


def test_the_certificate_is_of_the_scaled_program(diabetes):
    """Written out: loss and weight decay of the network in scaled units are the objective."""
    X, y = diabetes
    model = cvxnn.ReLURegressor(0.03, **FEW).fit(X, y)
    spread = X.std(axis=0)
    W1 = model.network_.W1 * spread
    b1 = model.network_.b1 + model.network_.W1 @ X.mean(axis=0)
    norms = np.sqrt(np.sum(W1**2, axis=1) + b1**2) * np.abs(model.network_.W2[:, 0])
    residual = (model.predict(X) - y) / y.std()
    objective = np.mean(residual**2) / 2 + 0.03 * norms.sum() / y.std()
    assert model.certificate_.objective == pytest.approx(objective, rel=1e-9)


# ---- frames, pipelines, persistence -------------------------------------------------------------


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_feature_names(library, cancer):
    X, y = cancer
    frame = library({f"column {j}": X[:, j] for j in range(4)})
    model = cvxnn.GatedReLUClassifier(0.05, **FEW).fit(frame, y)
    assert list(model.feature_names_in_) == [f"column {j}" for j in range(4)]
    renamed = library({f"other {j}": X[:, j] for j in range(4)})
    with pytest.raises(ValueError, match="feature names"):
        model.predict(renamed)


def test_cross_validation_of_frames_is_silent(cancer):
    X, y = cancer
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(frame, y)
    assert list(model.feature_names_in_) == list("abcd")


def test_pipelines_grids_and_clones(cancer):
    X, y = cancer
    pipeline = make_pipeline(StandardScaler(), cvxnn.GatedReLUClassifier(0.05, **FEW))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    grid = GridSearchCV(cvxnn.GatedReLUClassifier(**FEW), {"alpha": [0.3, 0.03]}, cv=3).fit(X, y)
    assert grid.best_params_["alpha"] in (0.3, 0.03)
    model = cvxnn.ReLUClassifierCV(n_alphas=7, rule="one_se")
    assert clone(model).get_params() == model.get_params()


def test_export_of_a_classifier(cancer, wine, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    for (X, y), link in ((cancer, "logistic"), (wine, "softmax")):
        model = cvxnn.ReLUClassifier(0.03, **FEW).fit(X, y)
        model.network_.to_onnx(tmp_path / "m.onnx", link=link)
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
        (probabilities,) = session.run(["probabilities"], {"X": X})
        np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-6)


def test_model_files_and_pruning(cancer, tmp_path):
    X, y = cancer
    model = cvxnn.ReLUClassifier(0.003, n_patterns=60).fit(X, y)
    model.network_.save(tmp_path / "m.cvxnn")
    loaded = cvxnn.load(tmp_path / "m.cvxnn")
    np.testing.assert_array_equal(loaded.predict(X), model.decision_function(X))
    small = cvxnn.prune(model.network_, X)
    assert small.n_neurons <= model.network_.n_neurons
    np.testing.assert_allclose(small.predict(X), model.decision_function(X), rtol=1e-6, atol=1e-8)


def test_unfitted_and_bad_parameters(cancer):
    X, y = cancer
    with pytest.raises(NotFittedError):
        cvxnn.ReLUClassifier().predict(X)
    for bad in ({"alpha": -1.0}, {"n_patterns": 0}, {"loss": "hinge"}, {"tol": "small"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            cvxnn.ReLUClassifier(**bad).fit(X, y)
    with pytest.raises(ValueError, match="unknown solver 'newtn'; did you mean 'newton'"):
        cvxnn.ReLUClassifier(solver="newtn").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        cvxnn.ReLUClassifier().fit(np.where(X > 1000, np.nan, X), y)


# ---- messages -----------------------------------------------------------------------------------


def test_not_converged_is_a_warning_with_the_gap(cancer):
    X, y = cancer
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap is .*raise max_iter or tol"):
        model = cvxnn.ReLUClassifier(0.001, max_iter=2, **FEW).fit(X, y)
    assert not model.converged_
    assert model.certificate_.relative_gap > model.tol


def test_a_zero_model_is_a_warning(cancer):
    X, y = cancer
    with pytest.warns(UserWarning, match="not below lambda_max"):
        model = cvxnn.ReLUClassifier(50.0, **FEW).fit(X, y)
    assert model.network_.n_neurons == 0
    shares = np.unique(y, return_counts=True)[1] / len(y)
    np.testing.assert_allclose(model.predict_proba(X), np.tile(shares, (len(X), 1)), rtol=1e-9)


def test_a_run_that_was_cut_short_says_nothing_of_lambda_max(cancer):
    X, y = cancer
    with pytest.warns(cvxnn.ConvergenceWarning) as caught:
        model = cvxnn.GatedReLUClassifier(0.001, max_iter=1, **FEW).fit(X, y)
    assert model.network_.n_neurons == 0  # which is its start
    assert model.alpha_ < model.lambda_max_
    assert ["lambda_max" in str(warning.message) for warning in caught] == [False]


def test_a_zero_model_within_tol_says_so(cancer):
    X, y = cancer
    with pytest.warns(
        UserWarning, match="the constant model is within tol, its relative"
    ) as caught:
        model = cvxnn.ReLUClassifier(0.05, tol=0.99, **FEW).fit(X, y)
    assert model.alpha_ < model.lambda_max_
    assert len(caught) == 1


def test_ordinary_fits_are_silent(cancer):
    X, y = cancer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cvxnn.ReLUClassifier(0.01, **FEW).fit(X, y)


@pytest.mark.parametrize("solver", ["newton", "al", cvxnn.AL(max_inner=500)])
def test_solvers_by_name_or_object(solver, cancer):
    X, y = cancer
    X = X[:60, :3]
    y = y[:60]
    model = cvxnn.ReLUClassifier(0.05, n_patterns=8, solver=solver, tol=1e-3).fit(X, y)
    assert model.converged_


def test_warm_starts_save_iterations(cancer):
    X, y = cancer
    model = cvxnn.GatedReLUClassifier(0.02, warm_start=True, n_patterns=60).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < cold
    model.set_params(alpha=0.015).fit(X, y)
    assert model.converged_
    model.fit(X[:, :4], y)  # another shape: from the start


# ---- cross-validation ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSIFIERS_CV)
def test_alpha_by_cross_validation(cls, cancer):
    X, y = cancer
    model = cls(**QUICK_CV).fit(X, y)
    assert model.cv_scores_.shape == model.cv_neurons_.shape == (3, len(model.alphas_))
    ratio = model.eps ** (1 / model.n_alphas)
    np.testing.assert_allclose(model.alphas_[1:] / model.alphas_[:-1], ratio)
    assert model.alphas_[0] == pytest.approx(ratio * model.lambda_max_)
    assert model.best_index_ == model.cv_scores_.mean(axis=0).argmax()
    assert model.alpha_ == model.alphas_[model.best_index_]
    assert model.best_score_ == model.cv_scores_[:, model.best_index_].mean()
    assert model.certificate_.relative_gap <= model.tol
    plain = clone(model).set_params(alphas=[model.alpha_], n_alphas=15, cv=2).fit(X, y)
    objective = plain.certificate_.objective  # of the same program, started from other folds
    assert objective == pytest.approx(model.certificate_.objective, rel=2 * model.tol)


def test_scores_are_those_of_fits_on_the_folds(cancer, monkeypatch):
    """One fold by hand: the same rows, alpha and patterns give the same score. The first fold has
    the patterns of the estimator's seed, the others have samplings of their own."""
    monkeypatch.setattr(comparison, "FOLD_TOL", 0.0)
    X, y = cancer
    folds = list(KFold(3).split(X))
    model = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": folds}, tol=1e-6).fit(X, y)
    swapped = [folds[1], folds[0], folds[2]]
    other = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": swapped}, tol=1e-6).fit(X, y)
    train, test = folds[0]
    for k in (0, 2):
        by_hand = cvxnn.GatedReLUClassifier(model.alphas_[k], tol=1e-6, **FEW)
        by_hand.fit(X[train], y[train])
        score = -log_loss(y[test], by_hand.predict_proba(X[test]))
        assert model.cv_scores_[0, k] == pytest.approx(score, abs=1e-4)
        assert abs(other.cv_scores_[1, k] - score) > 1e-3


def test_folds_are_less_precise_than_what_is_kept(cancer, monkeypatch):
    X, y = cancer
    quick = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "tol": 1e-5}).fit(X, y)
    monkeypatch.setattr(comparison, "FOLD_TOL", 0.0)
    exact = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "tol": 1e-5}).fit(X, y)
    assert not np.array_equal(quick.cv_scores_, exact.cv_scores_)
    k = min(len(quick.alphas_), len(exact.alphas_))
    np.testing.assert_allclose(quick.cv_scores_[:, :k], exact.cv_scores_[:, :k], atol=5e-3)
    assert quick.alpha_ == exact.alpha_
    assert quick.certificate_.relative_gap <= 1e-5


@pytest.mark.parametrize("cls", [cvxnn.GatedReLUClassifierCV, cvxnn.ReLUClassifierCV])
def test_programs_of_large_folds_are_not_kept(cancer, monkeypatch, cls):
    """Posed again for each strength, they give the same choice, and the same mean."""
    X, y = cancer
    settings = {**QUICK_CV, "tol": 1e-6, "ensemble": "folds"}
    monkeypatch.setattr(comparison, "FOLD_TOL", 0.0)
    kept = cls(**settings).fit(X, y)
    compared, posed = comparison.compare, []
    monkeypatch.setattr(comparison, "AT_ONCE", 0)

    def watched(*arguments, **options):
        found = compared(*arguments, **options)
        posed.extend(fold.posed for fold in found.folds)
        return found

    monkeypatch.setattr("cvxnn.estimators.cross_validation.compare", watched)
    again = cls(**settings).fit(X, y)
    assert posed == [None] * 3
    np.testing.assert_allclose(again.cv_scores_, kept.cv_scores_, atol=1e-4)
    assert again.alpha_ == kept.alpha_
    np.testing.assert_allclose(again.predict_proba(X), kept.predict_proba(X), atol=1e-3)


def test_a_grid_ends_after_the_best_strength_and_goes_on_while_the_last_is_the_best():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    noise = cvxnn.GatedReLURegressorCV(**FEW).fit(X, X[:, 0] + 2 * rng.standard_normal(150))
    assert len(noise.alphas_) < noise.n_alphas
    assert noise.alphas_[-1] <= 0.1 * noise.lambda_max_  # scores above may scatter
    assert noise.best_index_ <= len(noise.alphas_) - 3
    exact = cvxnn.GatedReLURegressorCV(**FEW, n_alphas=5, eps=0.1).fit(X, X @ [1.0, 2.0, 3.0])
    assert 5 < len(exact.alphas_) <= 10
    assert exact.alpha_ < 0.09 * exact.lambda_max_  # below the planned end


def test_strengths_that_are_given_are_all_compared():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    alphas = np.geomspace(1.0, 1e-4, 7)
    y = X[:, 0] + 2 * rng.standard_normal(150)
    model = cvxnn.GatedReLURegressorCV(**FEW, alphas=alphas).fit(X, y)
    np.testing.assert_array_equal(model.alphas_, alphas)
    assert model.cv_scores_.shape == (5, 7)


@pytest.mark.parametrize(
    ("mean", "end"),
    [
        ([1, 2, 3], None),
        ([3, 2, 1], None),  # the third is above a tenth of the largest
        ([3, 2, 1, 0], 4),
        ([1, 2, 3, 2, 2], 5),
        ([1, 2, 3, 2, 4], None),
        ([1, 2, 3, 4, 5, 6, 7, 8], 8),  # twice as many as planned
    ],
)
def test_where_a_grid_ends(mean, end):
    grid = Grid.below(1.0, 4, 0.1**1.2)
    assert grid[2] > 0.1 > grid[3]
    assert grid.end(mean) == end
    assert Grid(given=(3.0, 2.0, 1.0)).end(mean[:2]) is None
    assert Grid(given=(3.0, 2.0, 1.0)).end([3, 2, 1]) == 3


@pytest.mark.parametrize("cls", [cvxnn.GatedReLURegressor, cvxnn.ReLURegressorCV])
def test_learned_scales_favour_the_columns_that_matter(cls):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6)) * [1.0, 1e3, 1e-3, 1.0, 1e4, 1.0] + 5
    y = np.abs(X[:, 0] - 5) + (X[:, 1] - 5) / 1e3 + 0.3 * rng.standard_normal(300)
    test = slice(200, None)
    model = cls(**FEW, feature_scaling="learned").fit(X[:200], y[:200])
    factors = model.column_factors_
    assert factors.shape == (6,)
    assert np.mean(factors**2) == pytest.approx(1)
    assert min(factors[:2]) > 1.5 * max(factors[2:])
    assert model.certificate_.relative_gap <= model.tol
    assert model.certificate_.scope.endswith("on columns in learned scales")
    unit = cls(**FEW).fit(X[:200], y[:200])
    assert unit.column_factors_ is None
    assert model.score(X[test], y[test]) > unit.score(X[test], y[test])


def test_learned_scales_are_those_of_the_derivative():
    """By differences of the network itself, on columns of unit variance."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3)), rng.integers(0, 3, 80)
    X[:, 1] += y
    first = cvxnn.GatedReLUClassifier(0.02, **FEW).fit(X, y)
    step = 1e-6 * X.std(axis=0)
    slopes = [
        (first.decision_function(X + e) - first.decision_function(X - e)) / 2e-6
        for e in np.diag(step)
    ]
    size = [np.sqrt(np.mean(np.sum((s - s.mean(1, keepdims=True)) ** 2, 1))) for s in slopes]
    expected = np.maximum(size, 0.1 * max(size))
    expected /= np.sqrt(np.mean(expected**2))
    learned = cvxnn.GatedReLUClassifier(0.02, **FEW, feature_scaling="learned").fit(X, y)
    np.testing.assert_allclose(learned.column_factors_, expected, rtol=1e-2)


def test_a_network_without_neurons_leaves_columns_as_they_are(cancer):
    model = cvxnn.GatedReLUClassifier(1e3, **FEW, feature_scaling="learned")
    with pytest.warns(UserWarning, match="all neurons are zero"):
        model.fit(*cancer)
    np.testing.assert_array_equal(model.column_factors_, 1)


@pytest.mark.parametrize("cls", [cvxnn.ReLUClassifierCV, cvxnn.GatedReLUClassifierCV])
def test_the_mean_of_the_networks_of_all_rows_and_of_the_folds(cls, cancer):
    X, y = cancer
    plain = cls(**QUICK_CV).fit(X, y)
    model = cls(**QUICK_CV, ensemble="folds").fit(X, y)
    assert model.alpha_ == plain.alpha_
    first, *others = model.members_
    assert len(others) == 3
    np.testing.assert_array_equal(first.network.W1, plain.network_.W1)
    assert first.certificate == plain.certificate_ == model.certificate_
    for member in others:
        assert member.certificate.relative_gap <= model.tol
        assert member.n_rows < first.n_rows
    mean = np.mean([member.network.predict(X) for member in model.members_], axis=0)
    np.testing.assert_allclose(model.decision_function(X), mean, atol=1e-10)
    again = model.set_params(ensemble=None).fit(X, y)
    assert not hasattr(again, "members_")
    np.testing.assert_array_equal(again.network_.W1, plain.network_.W1)


@pytest.mark.parametrize("settings", [{"scale": False}, {"n_components": 2}])
def test_learned_scales_need_scaled_columns(settings, diabetes):
    X, y = diabetes
    model = cvxnn.GatedReLURegressor(**FEW, feature_scaling="learned", **settings)
    with pytest.warns(UserWarning, match="feature_scaling is given, but"):
        model.fit(X, y)
    assert model.column_factors_ is None


def test_one_standard_error_gives_a_larger_alpha(cancer):
    X, y = cancer
    best = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "n_alphas": 8}).fit(X, y)
    rule = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "n_alphas": 8}, rule="one_se").fit(X, y)
    np.testing.assert_array_equal(best.cv_scores_, rule.cv_scores_)
    mean = best.cv_scores_.mean(axis=0)
    error = best.cv_scores_[:, best.best_index_].std(ddof=1) / np.sqrt(3)
    allowed = np.flatnonzero(mean >= mean.max() - error)
    assert rule.best_index_ == allowed[0] <= best.best_index_


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "neg_log_loss", "neg_brier_score"])
def test_scoring_by_name(scoring, cancer):
    X, y = cancer
    model = cvxnn.GatedReLUClassifierCV(**QUICK_CV, scoring=scoring).fit(X, y == "benign")
    assert np.all(np.isfinite(model.cv_scores_))


def test_scoring_of_regressors(diabetes):
    X, y = diabetes
    for scoring in (None, "neg_mean_absolute_error"):
        model = cvxnn.ReLURegressorCV(**QUICK_CV, scoring=scoring).fit(X, y)
        assert model.score(X, y) > 0.3
    assert np.all(model.cv_scores_ < -10)  # in the units of y


def test_parallel_folds_give_the_same(cancer):
    X, y = cancer
    one = cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(X, y)
    two = cvxnn.GatedReLUClassifierCV(**QUICK_CV, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.cv_scores_, two.cv_scores_)
    assert one.alpha_ == two.alpha_


def test_splitters_and_small_classes(wine):
    X, y = wine
    splitter = StratifiedKFold(2, shuffle=True, random_state=0)
    model = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": splitter}).fit(X, y)
    assert model.cv_scores_.shape == (2, len(model.alphas_))
    y = y.copy()
    y[0] = 7  # a class of its own: never tested, always trained on
    model = cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(X, y)
    assert 7 in model.classes_
    assert np.all(np.isfinite(model.cv_scores_))


def test_one_fold_is_no_cross_validation(cancer):
    X, y = cancer
    for cv in (0, 1):
        with pytest.raises(ValueError, match=f"'cv' parameter .* Got {cv} instead"):
            cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": cv}).fit(X, y)
    with pytest.warns(UserWarning, match="too few rows for folds"):
        cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(X[[0, 19]], ["a", "b"])


def test_an_interrupt_ends_the_choice(cancer, monkeypatch):
    from cvxnn.solvers.newton.method import Newton

    def interrupted(*arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(Newton, "iterates", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(*cancer)


def test_bad_grids_are_refused(cancer):
    X, y = cancer
    for bad in ([], [0.1, -1.0], [np.inf]):
        with pytest.raises(ValueError, match="alphas must be positive"):
            cvxnn.GatedReLUClassifierCV(alphas=bad).fit(X, y)


def test_one_program_for_each_fold_and_one_for_all_rows(cancer, monkeypatch):
    """The program of all rows gives both the grid and the final fit, and all rows are validated
    together: what is scored are rows of the fit."""
    counts = Counter()

    def count(owner, name):
        function = getattr(owner, name)

        def counted(*arguments, **settings):
            counts[name] += 1
            return function(*arguments, **settings)

        monkeypatch.setattr(owner, name, counted)

    count(cvxnn.CReLU, "__init__")
    count(posing, "sample_patterns")
    count(base, "validate_data")
    count(generating, "lambda_max")
    cvxnn.ReLUClassifierCV(**QUICK_CV).fit(*cancer)  # three folds, four strengths
    assert counts == {"__init__": 4, "sample_patterns": 4, "validate_data": 1, "lambda_max": 1}


@pytest.mark.parametrize("cls", CLASSIFIERS_CV)
def test_the_final_fit_starts_from_a_fold(cls, cancer):
    X, y = cancer
    chosen = cls(**QUICK_CV).fit(X, y)
    cold = getattr(cvxnn, cls.__name__.removesuffix("CV"))(chosen.alpha_, **FEW).fit(X, y)
    assert chosen.n_iter_ < cold.n_iter_
    assert chosen.converged_
    assert chosen.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=2e-4)


# ---- folds --------------------------------------------------------------------------------------


def table_with_equal_rows():
    """1800 rows of which 20 are different, with labels drawn from their probabilities."""
    generator = np.random.default_rng(0)
    levels = np.array(list(product(range(3), (0, 1), (0, 1), (0, 1))))
    truth = 1 / (1 + np.exp(-generator.normal(0, 1.5, 20)))
    drawn = generator.integers(0, 20, 1800)
    return levels[drawn].astype(float), generator.random(1800) < truth[drawn], truth[drawn]


def folds_of(X, y, weight=None, **settings):
    """The rows that are tested in each fold: their content, and how many of it."""
    model = cvxnn.GatedReLUClassifierCV(random_state=0, **settings)
    how, given, labels = model._read(X, y, weight)
    folds = model._splits(given, labels, how.seed)
    return [Counter(map(tuple, np.column_stack([X[test], y[test]]).tolist())) for _, test in folds]


def test_equal_rows_are_in_different_folds():
    """New rows repeat old ones, and so do test rows: with all copies of a row in one fold, the best
    alpha was that of a model which has to guess them (0.063, with a log-loss of 0.672)."""
    X, y, truth = table_with_equal_rows()
    train, test = slice(0, 1300), slice(1300, None)
    model = cvxnn.ReLUClassifierCV(n_patterns=50, n_alphas=8).fit(X[train], y[train])
    best = log_loss(y[test], truth[test])
    assert log_loss(y[test], model.predict_proba(X[test])) < 1.01 * best
    assert model.alpha_ < 2e-3
    for fold in folds_of(X[train], y[train]):
        assert len(fold) > 30  # nearly all of the 40 kinds of rows are tested in every fold


def test_folds_depend_on_the_rows_and_not_on_their_weights():
    X, y, _ = table_with_equal_rows()
    X, y = X[:200], y[:200]
    folds = folds_of(X, y)
    assert folds == folds_of(X, y, np.full(200, 10.0))
    assert folds == folds_of(X, y, rng.uniform(0.1, 0.9, 200))
    assert folds == folds_of(X, y, class_weight="balanced")
    assert folds != folds_of(X, ~y)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_cross_validation_does_not_depend_on_the_order_of_the_rows(make):
    X, y, _ = table_with_equal_rows()
    X, y = X[:150], y[:150]
    weight = rng.choice([0.1, 0.3, 0.7, 0.0], 150)
    order = rng.permutation(150)
    models = [
        cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(make(X[rows]), y[rows], weight[rows])
        for rows in (np.arange(150), order)
    ]
    np.testing.assert_array_equal(*(model.cv_scores_ for model in models))
    np.testing.assert_array_equal(*(model.network_.W1 for model in models))


def test_classes_of_weight_zero_leave_the_users_folds_as_they_are(wine):
    X, y = wine
    weight = np.where(y == 0, 0.0, 1.0)
    fold = np.arange(len(X)) % 3
    model = cvxnn.GatedReLUClassifierCV(**{**QUICK_CV, "cv": PredefinedSplit(fold)})
    model.fit(X, y, weight)
    some = y != 0
    model_of_some = clone(model).set_params(cv=PredefinedSplit(fold[some])).fit(X[some], y[some])
    np.testing.assert_array_equal(model.cv_scores_, model_of_some.cv_scores_)
    assert list(model.classes_) == [1, 2]


# ---- what a fit keeps ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [cvxnn.ReLUClassifier, cvxnn.GatedReLUClassifier])
def test_a_pickle_holds_no_training_rows(cls):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((1000, 38))  # 0.3 MB
    y = X[:, 0] + np.maximum(X[:, 1], 0) > 0
    model = cls(0.01).fit(X, y)
    content = pickle.dumps(model)
    assert len(content) < 100_000
    assert X[17].tobytes() not in content
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert clone(again).get_params() == model.get_params()
    assert again.certificate_ == model.certificate_


def test_pickles_name_the_package_and_not_a_file(cancer):
    for name in cvxnn.estimators.__all__:
        cls = getattr(cvxnn.estimators, name)
        assert cls.__module__ == "cvxnn.estimators"
        assert getattr(cvxnn, name) is cls
        assert pickle.loads(pickle.dumps(cls)) is cls


def test_warm_starts_survive_a_pickle(cancer):
    X, y = cancer
    model = cvxnn.ReLUClassifier(0.02, warm_start=True, n_patterns=60).fit(X, y)
    cold = model.n_iter_
    again = pickle.loads(pickle.dumps(model)).fit(X, y)
    assert again.n_iter_ < cold
    again.set_params(warm_start=False).fit(X, y)
    assert again.n_iter_ == cold
    assert len(pickle.dumps(again)) < len(pickle.dumps(model))  # nothing to start from is kept


def test_warnings_are_at_the_line_that_fits(cancer):
    X, y = cancer
    two = X[[0, 19]], ["a", "b"]
    fits = [
        lambda: cvxnn.ReLUClassifier(0.001, max_iter=2, **FEW).fit(X, y),
        lambda: cvxnn.ReLUClassifier(50.0, **FEW).fit(X, y),
        lambda: cvxnn.ReLURegressor(0.1, huber_delta=2.0, **FEW).fit(X, y == "benign"),
        lambda: cvxnn.ReLURegressorCV(**QUICK_CV, alphas=[0.1]).fit(X, y == "benign"),
        lambda: cvxnn.GatedReLUClassifier(0.1, **FEW).fit(X * [1e-310, *[1] * 29], y),
        lambda: cvxnn.GatedReLUClassifierCV(**QUICK_CV).fit(*two),
    ]
    for fit in fits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit()
        assert {warning.filename for warning in caught} == {__file__}


# ---- sparse data --------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [*CLASSIFIERS, *REGRESSORS])
def test_sparse_rows_are_the_same_rows(cls):
    X = np.where(rng.random((80, 6)) < 0.4, rng.standard_normal((80, 6)), 0.0)
    y = (X[:, 0] + np.maximum(X[:, 1], 0) > 0.2).astype(int)
    scale = {"scale": False, "tol": 1e-7, **FEW}  # dense columns are centred as well
    dense = cls(0.02, **scale).fit(X, y)
    model = cls(0.02, **scale).fit(sparse.csr_array(X), y)
    assert model.certificate_.objective == pytest.approx(dense.certificate_.objective, rel=1e-6)
    np.testing.assert_allclose(
        model.network_.predict(X), dense.network_.predict(X), rtol=0.01, atol=0.01
    )
    scaled = cls(0.02, **FEW).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(
        scaled.predict(sparse.csr_array(X)), scaled.predict(X), rtol=1e-12, atol=1e-12
    )
