"""Frames of other libraries as tables, and the encoder as a transformer of scikit-learn."""

from __future__ import annotations

import datetime
import decimal
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxnn
from cvxnn.tables.frames import as_table
from cvxnn.tables.notes import TableWarning
from cvxnn.tables.reading import read_table
from cvxnn.tables.table import Table, TableError
from extras import needs, optional

pd, pl, pa = optional("pandas"), optional("polars"), optional("pyarrow")


@parametrize_with_checks([cvxnn.TableEncoder()])
@pytest.mark.filterwarnings("ignore::cvxnn.tables.notes.TableWarning")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


N = 60
DAY = datetime.datetime(2024, 1, 31, 12)


def values():
    """Columns of all kinds, as lists: None is missing."""
    rng = np.random.default_rng(0)
    return {
        "age": [None if k == 7 else int(a) for k, a in enumerate(rng.integers(20, 60, N))],
        "price": [f"${1000 + 10.5 * k:,.2f}" for k in range(N)],
        "share": [f"{k % 13}%" for k in range(N)],
        "city": [None if k == 3 else ["Rome", "Oslo", "Bonn"][k % 3] for k in range(N)],
        "member": [bool(k % 2) for k in range(N)],
        "since": [None if k == 5 else DAY + datetime.timedelta(hours=31 * k) for k in range(N)],
        "label": [["no", "yes"][int(k % 3 == 0) ^ int(k % 2)] for k in range(N)],
    }


def arrow():
    columns = {name: pa.array(column) for name, column in values().items()}
    return pa.table(columns | {"city": columns["city"].dictionary_encode()})


MAKERS = {
    "pandas": lambda: pd.DataFrame(values()).astype({"city": "category"}),
    "pandas, nullable": lambda: pd.DataFrame(values()).convert_dtypes(),
    "polars": lambda: pl.DataFrame(values(), strict=False).cast({"city": pl.Categorical}),
    "polars, lazy": lambda: pl.DataFrame(values(), strict=False).lazy(),
    "pyarrow": arrow,
    "a dict": values,
}


@pytest.fixture(params=MAKERS)
def frame(request):
    library = request.param.split(",")[0]
    if library != "a dict":
        pytest.importorskip(library)
    return MAKERS[request.param]()


def test_every_library_gives_the_same_features(frame):
    encoder = cvxnn.TableEncoder(drop=["label"]).fit(frame)
    expected = cvxnn.TableEncoder(drop=["label"]).fit(values())
    assert encoder.encoder_ == expected.encoder_
    assert encoder.get_feature_names_out().tolist() == [
        *("age", "age is missing", "price", "share"),
        *("city=Bonn", "city=Oslo", "city=Rome", "city is missing"),
        *("member=False", "member=True"),
        *("since: days since 1970", "since: weekday", "since: hour", "since is missing"),
    ]
    np.testing.assert_array_equal(encoder.transform(frame), expected.transform(values()))


@needs("pandas")
def test_a_frame_and_its_csv_file_give_the_same_features(tmp_path):
    frame = pd.DataFrame(values())
    frame.to_csv(tmp_path / "data.csv", index=False)
    encoder = cvxnn.TableEncoder(drop=["label"]).fit(frame)
    table = read_table(tmp_path / "data.csv")
    again = cvxnn.TableEncoder(drop=["label"]).fit(table)
    np.testing.assert_array_equal(again.transform(table), encoder.transform(frame))
    np.testing.assert_array_equal(again.transform(frame), encoder.transform(table))


def test_values_of_every_type():
    hour = datetime.timedelta(hours=6)
    table = as_table(
        {
            "whole": np.arange(3),
            "half": np.array([1.5, np.nan, 3], dtype=np.float32),
            "true": np.array([True, False, True]),
            "decimal": [decimal.Decimal("1.5"), None, 3],
            "day": [datetime.date(2024, 1, 31), None, datetime.date(2024, 2, 1)],
            "numpy": np.array(["2024-01-31T12:30", "NaT", "2024-02-01"], dtype="datetime64[m]"),
            "time": [datetime.time(12, 30), None, datetime.time(0)],
            "duration": np.array([hour, 2 * hour, None], dtype="timedelta64[s]"),
            "text": np.array(["a ", "NA", "c"]),
            "mixed": [1, "two", 2.5],
        }
    )
    assert {name: table.texts(name).tolist() for name in table.names} == {
        "whole": ["0", "1", "2"],
        "half": ["1.5", None, "3"],
        "true": ["True", "False", "True"],
        "decimal": ["1.5", None, "3"],
        "day": ["2024-01-31", None, "2024-02-01"],
        "numpy": ["2024-01-31T12:30:00", None, "2024-02-01T00:00:00"],
        "time": ["12:30:00", None, "00:00:00"],
        "duration": ["0.25", "0.5", None],
        "text": ["a", None, "c"],
        "mixed": ["1", "two", "2.5"],
    }


REFUSED = {
    "a number": (5, TypeError, "a table is a frame of pandas"),
    "one dimension": (np.zeros(3), TypeError, "a table is a frame of pandas"),
    "sparse": (sparse.eye_array(3), TypeError, "got dia_array"),
    "lists in a column": ({"a": [[1], [2]]}, TableError, r"column 'a': values have shape \(1,\)"),
    "dicts in a column": ({"a": [{}, {}]}, TableError, "values of type dict cannot be used"),
    "complex numbers": ({"a": np.array([1j])}, TableError, "complex numbers cannot be used"),
    "lengths": ({"a": [1], "b": [1, 2]}, TableError, "different lengths"),
    "nothing": ({}, TableError, "has no columns"),
    "no rows": ({"a": []}, TableError, "has no rows"),
    "an empty list": ([], TableError, "has no rows"),
    "no file": ("no.csv", TableError, "there is no file no.csv"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_table_is_refused(case):
    data, error, says = REFUSED[case]
    with pytest.raises(error, match=says):
        as_table(data)


@needs("pandas")
def test_one_row_is_a_dict_of_its_values():
    rng = np.random.default_rng(0)
    a, city = rng.standard_normal(N), rng.choice(["Rome", "Oslo"], N)
    label = np.where(a + (city == "Rome") > 0.5, "yes", "no")
    table = {"a": a, "city": city, "label": label}
    model = cvxnn.Model.fit(table, "label", kind="gated", alpha=0.01, n_patterns=10)
    expected = model.predict_proba(table)
    one = model.predict_proba({"city": str(city[3]), "a": a[3]})
    several = model.predict_proba([{"a": a[k], "city": city[k]} for k in range(5)])
    np.testing.assert_allclose(one, expected[[3]], atol=1e-12)
    np.testing.assert_allclose(several, expected[:5], atol=1e-12)
    without = as_table([{"a": 1.0, "city": "Rome"}, {"a": 2.0}])
    assert without.missing("city").tolist() == [False, True]
    with pytest.raises(TableError, match="column 'a': one value, where other columns have several"):
        as_table({"a": 1.0, "city": ["Rome", "Oslo"]})


@pytest.mark.parametrize("others", [[], [2.5], ["two"]])
def test_whole_numbers_beyond_floats_are_infinite(others):
    table = as_table({"a": [10**400, -(10**400), *others]})
    values = [float(value) for value in table.column("a")[:2]]
    assert values == [np.inf, -np.inf]
    with pytest.raises(TableError, match="'a', row 1: inf is not finite"):
        table.select(np.arange(2)).numbers("a")


@needs("pandas")
def test_a_series_is_no_row():
    with pytest.raises(TypeError, match=r"pass frame.iloc\[\[0\]\]"):
        as_table(pd.DataFrame({"a": [1.0]}).iloc[0])


@needs("pandas", "polars")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_estimators_name_the_columns_that_are_not_numbers(library):
    frame = pd.DataFrame(
        {
            "a": np.arange(9.0),
            "city": ["Rome", "Oslo", None] * 3,
            "when": pd.date_range("2026-01-01", periods=9),
        }
    )
    y = np.array([0, 1, 1] * 3)
    frame = frame if library == "pandas" else pl.from_pandas(frame)
    estimator = cvxnn.GatedReLUClassifier(n_patterns=5)
    for names, reason in (
        (
            ["a", "city", "when"],
            "'city' holds text such as 'Rome', column 'when' holds dates: cvxnn",
        ),
        (["when"], "column 'when' holds dates"),  # scikit-learn would take nanoseconds
    ):
        with pytest.raises(ValueError, match=reason):
            estimator.fit(frame[names], y)
    numbers = pd.DataFrame({"a": np.arange(9.0), "b": np.ones(9)})
    gaps = numbers.mask(numbers < 2)
    estimator.fit(numbers, y)
    with pytest.raises(ValueError, match=r"missing values \(NaN\) in 'a' \(2\), 'b' \(9\): fill"):
        estimator.predict(gaps)
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame[["a", "city"]] if library == "pandas" else numbers[["b", "a"]])


def test_an_encoder_is_part_of_a_pipeline(tmp_path):
    frame = pd.DataFrame(values())
    X, y = frame.drop(columns="label"), frame["label"]
    estimator = cvxnn.ReLUClassifier(n_patterns=20, alpha=1e-3, random_state=0)
    pipe = make_pipeline(cvxnn.TableEncoder(), estimator).fit(X, y)
    assert pipe.score(X, y) > 0.8
    backwards = X[X.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(pipe.predict(backwards), pipe.predict(X))
    rows = X.head(3).to_dict("records")
    np.testing.assert_array_equal(pipe.predict(rows), pipe.predict(X)[:3])
    np.testing.assert_array_equal(pipe.predict(rows[0]), pipe.predict(X)[:1])
    again = pickle.loads(pickle.dumps(clone(pipe).fit(X, y)))
    np.testing.assert_array_equal(again.predict_proba(X), pipe.predict_proba(X))
    shown = cvxnn.TableEncoder().set_output(transform="pandas").fit_transform(X)
    assert list(shown.columns) == pipe[0].get_feature_names_out().tolist()
    mixed = make_column_transformer((cvxnn.TableEncoder(), ["city", "age"]), ("passthrough", []))
    make_pipeline(mixed, LogisticRegression()).fit(X, y)


@needs("pandas")
def test_what_is_new_in_a_frame_is_a_warning():
    frame = pd.DataFrame(values())
    encoder = cvxnn.TableEncoder().fit(frame)
    with pytest.warns(TableWarning, match="'city': 1 value of categories .* is 'Lima' in row 1"):
        encoder.transform(frame.assign(city=["Lima", *frame["city"][1:]]))
    with pytest.raises(TableError, match="lacks the column 'age'"):
        encoder.transform(frame.drop(columns="age"))
    frame["customer_id"] = np.arange(N) * 3
    with pytest.warns(TableWarning, match="'customer_id' looks like an identifier"):
        assert "customer_id" not in cvxnn.TableEncoder().fit(frame).get_feature_names_out()


@needs("pandas")
def test_a_report_on_a_pipeline_is_about_the_columns_of_the_table(tmp_path):
    frame = pd.DataFrame(values())
    X, y = frame.drop(columns="label"), frame["label"]
    settings = {"n_patterns": 20, "alpha": 1e-3, "random_state": 0}
    pipe = make_pipeline(cvxnn.TableEncoder(), cvxnn.ReLUClassifier(**settings)).fit(X[:45], y[:45])
    path = cvxnn.report(pipe, X[:45], y[:45], tmp_path / "a.html", test=(X[45:], y[45:]))
    page = path.read_text()
    assert "Training rows" in page  # the certified objective was found again
    assert "column &#x27;since&#x27; holds dates" in page or "'since' holds dates" in page
    direct = tmp_path / "b.html"
    rows = pipe[0].transform(X)
    cvxnn.report(
        pipe[-1],
        rows[:45],
        y[:45],
        direct,
        test=(rows[45:], y[45:]),
        feature_names=pipe[0].get_feature_names_out(),
        columns=[c.name for c in pipe[0].encoder_.columns for _ in c.features],
        notes="\n\n".join(pipe[0].notes_),
    )
    assert direct.read_text() == page
    alone = make_pipeline(cvxnn.ReLUClassifier(**settings)).fit(rows, y)
    assert "Training rows" in cvxnn.report(alone, rows, y, tmp_path / "c.html").read_text()
    with pytest.raises(TypeError, match="one of the estimators of cvxnn"):
        cvxnn.report(make_pipeline(cvxnn.TableEncoder(), DummyClassifier()).fit(X, y), X, y)
    with pytest.raises(TypeError, match="got Model: save it, and run cvxnn report"):
        cvxnn.report(cvxnn.Model.fit(frame, "label", n_patterns=5, alpha=0.1), X, y)
    with pytest.raises(ValueError, match=r"test must be \(X, y\)"):
        cvxnn.report(pipe, X, y, tmp_path / "b.html", test=X)


# --------------------------------------------------------------------------------- models

SETTINGS = {"n_patterns": 20, "alpha": 1e-3}


def test_a_model_of_a_frame(frame, tmp_path):
    model = cvxnn.Model.fit(frame, "label", **SETTINGS)
    model.save(tmp_path / "model.cvxnn")
    again = cvxnn.load(tmp_path / "model.cvxnn")
    labels = np.array(values()["label"])
    assert np.mean(again.predict(frame) == labels) > 0.8
    np.testing.assert_array_equal(
        again.classes_[again.predict_proba(frame).argmax(1)], again.predict(frame)
    )
    assert again.verify(frame).agrees
    assert again.encoder == model.encoder


LABELS = {
    "numbers": ([0, 1], np.int64),
    "numbers with fractions": ([0.5, 1.5], np.float64),
    "truths": ([False, True], np.bool_),
    "texts": (["no", "yes"], np.str_),
}


@pytest.mark.parametrize("case", LABELS)
def test_predictions_are_labels_as_they_were(case, tmp_path):
    labels, dtype = LABELS[case]
    x = np.random.default_rng(0).standard_normal(N)
    frame = {"x": x, "y": [labels[int(v > 0)] for v in x]}
    model = cvxnn.Model.fit(frame, "y", task="classification", **SETTINGS)
    model.save(tmp_path / "model.cvxnn")
    for known in (model, cvxnn.load(tmp_path / "model.cvxnn")):
        predicted = known.predict(frame)
        assert np.issubdtype(predicted.dtype, dtype)
        assert np.mean(predicted == np.array(frame["y"])) > 0.9
        assert known.classes_.tolist() == labels


def test_a_regression_predicts_numbers_and_has_no_classes():
    frame = {"x": np.linspace(0, 1, N), "y": [f"${k * 1000:,}" for k in range(N)]}
    model = cvxnn.Model.fit(frame, "y", **SETTINGS)
    assert model.task == "regression"
    np.testing.assert_allclose(model.predict(frame), 1000 * np.arange(N), atol=2500)
    for ask in (lambda: model.predict_proba(frame), lambda: model.classes_):
        with pytest.raises(AttributeError, match="regression"):
            ask()


def test_guesses_about_the_target_are_warnings_in_python():
    rng = np.random.default_rng(0)
    frame = {"x": rng.standard_normal(N), "stars": rng.integers(1, 6, N)}
    with pytest.warns(TableWarning, match=r"'stars' has 5 different whole numbers, .* 5 classes"):
        model = cvxnn.Model.fit(frame, "stars", n_patterns=5, alpha=0.01)
    assert model.task == "classification"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cvxnn.Model.fit(frame, "stars", n_patterns=5, alpha=0.01, task="regression")


def test_a_model_fits_on_a_screen():
    rng = np.random.default_rng(0)
    frame = {f"a long name of a column, number {k}": rng.standard_normal(N) for k in range(40)}
    frame["y"] = rng.integers(0, 2, N)
    shown = repr(cvxnn.Model.fit(frame, "y", n_patterns=5, alpha=0.1))
    assert shown.startswith("Model of 'y' (2 classes) from 40 columns, 40 features\n  ReLUClassi")
    assert "held out: accuracy" in shown
    assert len(shown.splitlines()) < 8
    assert max(map(len, shown.splitlines())) <= 100


def test_a_file_of_version_7_is_read(tmp_path):
    frame = {"x": np.linspace(0, 1, N), "c": ["a", "b"] * (N // 2), "y": ["no", "yes"] * (N // 2)}
    model = cvxnn.Model.fit(frame, "y", **SETTINGS)
    content = cvxnn.tables.model.content_of(model)
    for column in content.description["columns"]:
        for new in ("style", "missing"):
            column.pop(new, None)
    del content.description["na"], content.description["target"]["labels"]
    from cvxnn import modelfile

    before = modelfile.VERSION
    try:
        modelfile.VERSION = 7
        modelfile.write(content, tmp_path / "old.cvxnn")
    finally:
        modelfile.VERSION = before
    old = cvxnn.load(tmp_path / "old.cvxnn")
    assert old.encoder == model.encoder
    np.testing.assert_array_equal(old.predict_proba(frame), model.predict_proba(frame))


def test_a_file_can_be_given_by_its_name(tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{k / 7},{k % 2}\n" for k in range(N)))
    model = cvxnn.Model.fit(tmp_path / "data.csv", "y", **SETTINGS)
    assert len(model.predict(str(tmp_path / "data.csv"))) == N
    assert isinstance(as_table(Table({"x": np.zeros(1)})), Table)
