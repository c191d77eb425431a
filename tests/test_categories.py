"""Columns of codes, one-hot encoded where that is said, or where the folds say so."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import cvxnn
from cvxnn.estimators.base import posed_program
from cvxnn.estimators.categories import Categories, chosen_columns
from extras import optional

pd = optional("pandas")

FEW = {"n_patterns": 20, "tol": 1e-5}
FEW_CV = {**FEW, "n_alphas": 6, "cv": 3}
CLASSES = (
    cvxnn.ReLUClassifier,
    cvxnn.GatedReLUClassifier,
    cvxnn.ReLURegressor,
    cvxnn.GatedReLURegressor,
)


def _coded(n=150, seed=0):
    """Rows with a code from 0 to 5 in the middle that says the class by its parity, nearly."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal(n), rng.integers(0, 6, n), rng.standard_normal(n)])
    y = (X[:, 1] % 2 == 1) ^ (rng.random(n) < 0.1)
    return X, y.astype(int)


def _encoded(X):
    """By hand: quantities first, then a column for each code."""
    return np.column_stack([X[:, [0, 2]], X[:, [1]] == np.arange(6)]).astype(float)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_fit_is_that_of_the_encoded_columns(cls):
    X, y = _coded()
    model = cls(categorical_features=[1], **FEW).fit(X, y)
    by_hand = cls(**FEW).fit(_encoded(X), y)
    new, _ = _coded(40, seed=1)
    np.testing.assert_array_equal(model.predict(new), by_hand.predict(_encoded(new)))
    assert model.n_features_in_ == 3
    assert model.network_.n_features == 8
    np.testing.assert_array_equal(model.categories_.encode(new), _encoded(new))
    assert "with 1 column of categories one-hot encoded" in model.certificate_.scope
    assert model.certificate_.objective == by_hand.certificate_.objective


def test_a_certificate_is_that_of_the_program_on_encoded_columns():
    """Another solver, on the program of columns that were encoded and scaled by hand."""
    X, y = _coded()
    model = cvxnn.GatedReLURegressor(0.01, categorical_features=[1], **FEW).fit(X, y)
    program = posed_program(model, X, y.astype(float), alpha=0.01).problem
    scaled = _encoded(X)
    scaled = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    found = np.asarray(program.operator.X)[:, :8]
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(scaled, axis=0), atol=1e-12)
    other = cvxnn.solve(program, "rfista", tol=1e-6)
    assert other.certificate.objective == pytest.approx(model.certificate_.objective, rel=2e-5)
    assert model.certificate_.lower_bound <= other.certificate.objective


def test_folds_decide_whether_numbers_are_codes():
    X, y = _coded()
    coded = cvxnn.GatedReLUClassifierCV(**FEW_CV).fit(X, y)
    plain = cvxnn.GatedReLUClassifierCV(categorical_features=None, **FEW_CV).fit(X, y)
    by_place = cvxnn.GatedReLUClassifierCV(categorical_features=[1], **FEW_CV).fit(X, y)
    assert coded.categories_.columns == (1,)
    assert coded.best_score_ > plain.best_score_ + 0.05
    assert plain.categories_ is None

    rng = np.random.default_rng(0)
    X = rng.integers(0, 7, (80, 4)).astype(float)
    y = X.sum(axis=1) + rng.standard_normal(80)
    linear = cvxnn.GatedReLURegressorCV(**FEW_CV).fit(X, y)
    assert linear.categories_ is None
    same = cvxnn.GatedReLURegressorCV(categorical_features=None, **FEW_CV).fit(X, y)
    np.testing.assert_array_equal(linear.predict(X), same.predict(X))
    # a list is what is said, and no choice; its folds are those of the encoded rows
    assert by_place.best_score_ == pytest.approx(coded.best_score_, abs=0.1)


def test_codes_are_looked_for_among_columns_of_few_values():
    rng = np.random.default_rng(0)
    late = np.zeros(3000)
    late[1500:] = rng.standard_normal(1500)  # few values at first
    codes = rng.integers(0, 5, 3000)
    rare = np.where(np.arange(3000) == 2000, 7.0, rng.integers(0, 3, 3000))
    X = np.column_stack([late, codes, rng.standard_normal(3000), codes % 2, rare])
    weight = np.ones(3000)
    found = Categories.likely(X, weight)
    assert found.columns == (1, 4)
    np.testing.assert_array_equal(found.values[1], [0, 1, 2, 7])
    weight[2000] = 0  # rows that do not count have no say
    np.testing.assert_array_equal(Categories.likely(X, weight).values[1], [0, 1, 2])
    assert Categories.likely(X[:, [0, 2, 3]], weight) is None
    many = rng.integers(0, 10, (200, 60)).astype(float)
    assert Categories.likely(many, np.ones(200)) is None  # 600 columns
    assert len(Categories.likely(many[:, :50], np.ones(200)).columns) == 50


@pytest.mark.parametrize("settings", [{"ensemble": "folds"}, {"feature_scaling": "learned"}])
def test_other_choices_of_cross_validation_work_on_codes(settings):
    X, y = _coded()
    model = cvxnn.GatedReLUClassifierCV(categorical_features="auto", **FEW_CV, **settings)
    model.fit(X, y)
    assert model.categories_ is not None
    assert model.score(X, y) > 0.85
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_nothing_is_left_of_an_earlier_fit():
    X, y = _coded()
    model = cvxnn.GatedReLUClassifier(categorical_features=[1], **FEW).fit(X, y)
    model.set_params(categorical_features=None).fit(X, y)
    assert model.categories_ is None
    assert model.network_.n_features == 3
    assert clone(model).get_params()["categorical_features"] is None


def test_rows_may_be_sparse_or_unlike_those_of_training_when_predicted():
    from scipy.sparse import csr_array

    X, y = _coded()
    model = cvxnn.GatedReLUClassifier(categorical_features=[1], **FEW).fit(X, y)
    np.testing.assert_array_equal(model.predict(csr_array(X)), model.predict(X))
    unseen = X[:5].copy()
    unseen[:, 1] = 17
    np.testing.assert_array_equal(model.categories_.encode(unseen)[:, 2:], 0)
    assert np.all(np.isfinite(model.predict_proba(unseen)))
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="X must have 3 columns"):
        model.categories_.encode(X[:, :2])


def test_values_of_weight_zero_are_no_categories():
    X, y = _coded()
    weight = (X[:, 1] < 5).astype(float)
    model = cvxnn.GatedReLUClassifier(categorical_features=[1], **FEW)
    some = model.fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(model.categories_.values[0], np.arange(5))
    model.fit(X[X[:, 1] < 5], y[X[:, 1] < 5])
    np.testing.assert_array_equal(model.predict_proba(X), some)


def test_columns_are_given_by_place_name_or_mask():
    names = ["a", "b", "c"]
    for given in ([1], ["b"], [False, True, False], np.array([1])):
        assert chosen_columns(given, 3, names) == [1]
    assert chosen_columns([], 3, None) == []
    assert chosen_columns([2, 0, 2], 3, None) == [0, 2]
    wrong = {
        "is a mask of 2 columns, but X has 3": [True, False],
        "X has no column 'z'": ["z"],
        "X has no column 3; its 3 columns": [3],
        "a list of columns": [[1]],
    }
    for message, given in wrong.items():
        with pytest.raises(ValueError, match=message):
            chosen_columns(given, 3, names)
    with pytest.raises(
        ValueError, match="X has no column -1; its 3 columns have the places 0 to 2"
    ):
        chosen_columns([-1], 3, names)
    with pytest.raises(ValueError, match="X has no names of columns"):
        chosen_columns(["b"], 3, None)


@pytest.mark.skipif(pd is None, reason="needs pandas")
def test_columns_of_frames_have_names():
    X, y = _coded()
    frame = pd.DataFrame(X, columns=["size", "code", "age"])
    model = cvxnn.GatedReLUClassifier(categorical_features=["code"], **FEW).fit(frame, y)
    assert model.categories_.columns == (1,)
    names = model.categories_.names(model.feature_names_in_)
    assert names == ["size", "age", *(f"code={k}" for k in range(6))]


def test_what_cannot_be_encoded_is_refused():
    from scipy.sparse import csr_array

    X, y = _coded()
    with pytest.raises(ValueError, match="categorical_features needs a dense X"):
        cvxnn.GatedReLUClassifier(categorical_features=[1]).fit(csr_array(X), y)
    with pytest.raises(ValueError, match="take GatedReLUClassifierCV, or a list of columns"):
        cvxnn.GatedReLUClassifier(categorical_features="auto").fit(X, y)  # folds have to decide
    sparse = cvxnn.GatedReLUClassifierCV(categorical_features="auto", **FEW_CV)
    assert sparse.fit(csr_array(X), y).categories_ is None


@pytest.mark.skipif(pd is None, reason="needs pandas")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["cod"], "no column 'cod'; did you mean 'code'? It has 'size', 'code', 'age'"),
        (["size", "weight"], "no column 'weight'; it has 'size', 'code', 'age'"),
        ([True, False], "a mask of 2 columns, but X has 3"),
        ([1.5], "names of columns, a mask over all, or places from 0 to 2"),
    ],
)
def test_messages_name_the_columns(given, message):
    X, y = _coded()
    frame = pd.DataFrame(X, columns=["size", "code", "age"])
    with pytest.raises(ValueError, match=re.escape(message)):
        cvxnn.GatedReLUClassifier(categorical_features=given, **FEW).fit(frame, y)


@pytest.mark.skipif(pd is None, reason="needs pandas")
def test_columns_that_are_encoded_already_are_named_where_that_is_done():
    encoder = cvxnn.TableEncoder().set_output(transform="pandas")
    X, y = _coded()
    frame = encoder.fit_transform(
        pd.DataFrame({"city": np.where(y, "Rome", "Oslo"), "size": X[:, 0]})
    )
    with pytest.raises(ValueError, match=r"TableEncoder\(categorical=\['city'\]\)"):
        cvxnn.GatedReLUClassifier(categorical_features=["city"], **FEW).fit(frame, y)


def test_few_distinct_values_are_likely_codes():
    X = np.column_stack([np.arange(22), np.arange(22) % 3, np.arange(22) % 2, np.arange(22) % 10])
    found = Categories.likely(X.astype(float), np.ones(22))
    assert found.columns == (1, 3)
    assert Categories.likely(X[:, :1].astype(float), np.ones(22)) is None
    assert replace(found, columns=(1,)).scope.startswith(" with 1 column of")


def test_a_report_is_about_the_raw_columns(tmp_path):
    from cvxnn.reports.contents import TRAINING, contents_of

    X, y = _coded(200)
    model = cvxnn.ReLUClassifierCV(**FEW_CV).fit(X[:150], y[:150])
    assert model.categories_ is not None
    names = ["width", "site", "height"]
    found = contents_of(
        model, X[:150], y[:150], test=(X[150:], y[150:]), feature_names=names, baselines=False
    )
    assert {column.name for column in found.columns.shown} == set(names)
    assert found.columns.shown[0].name == "site"
    assert (found.columns.n_columns, found.columns.n_features) == (3, 8)
    assert found.results[0].label == TRAINING  # the certified objective, computed again
    weights = {name for neuron in found.neurons.shown for name, _ in neuron.columns}
    assert weights <= {"width", "height", *(f"site={k}" for k in range(6))}
    page = cvxnn.report(model, X, y, path=tmp_path / "page.html", baselines=False).read_text()
    assert "1 column of categories one-hot encoded" in page
