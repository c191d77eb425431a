"""What a report sets beside the network, how it ranks rows, and the columns of a table."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn import metrics
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import cvxnn
from cvxnn.cli import main
from cvxnn.cli.reproducing import command_of
from cvxnn.reports import rivals
from cvxnn.reports.contents import contents_of
from cvxnn.reports.page import page_of
from cvxnn.reports.ranking import MAX_POINTS
from cvxnn.reports.samples import groups_of
from extras import optional

pd = optional("pandas")
RNG = np.random.default_rng(0)
X, X_NEW = RNG.standard_normal((120, 4)), RNG.standard_normal((60, 4))


def outcome(rows):
    return np.maximum(rows[:, 0], 0) - np.abs(rows[:, 1])


def two(rows):
    return np.where(outcome(rows) > -0.4, "yes", "no")


def three(rows):
    return np.digitize(outcome(rows), [-0.8, 0.0])


@pytest.fixture(scope="module")
def binary():
    return cvxnn.ReLUClassifier(0.02, n_patterns=10).fit(X, two(X))


@pytest.fixture(scope="module")
def ternary():
    return cvxnn.GatedReLUClassifier(0.02, n_patterns=10).fit(X, three(X))


@pytest.mark.parametrize("weighted", [False, True])
def test_areas_of_two_classes_are_those_of_scikit_learn(binary, weighted):
    weight = np.random.default_rng(1).uniform(0.1, 2, len(X_NEW)) if weighted else None
    contents = contents_of(binary, X, two(X), test=(X_NEW, two(X_NEW), weight))
    found = {measure.name: measure for measure in contents.results[1].measures}
    truth, score = two(X_NEW) == "yes", binary.predict_proba(X_NEW)[:, 1]
    given = {"sample_weight": weight}
    assert found["ROC AUC"].value == pytest.approx(metrics.roc_auc_score(truth, score, **given))
    assert found["average precision"].value == pytest.approx(
        metrics.average_precision_score(truth, score, **given)
    )
    assert found["ROC AUC"].baseline == 0.5
    assert found["average precision"].baseline == pytest.approx(np.average(truth, weights=weight))


def test_areas_of_more_classes_are_means_over_them(ternary):
    contents = contents_of(ternary, X, three(X), test=(X_NEW, three(X_NEW)))
    found = {measure.name: measure for measure in contents.results[1].measures}
    expected = metrics.roc_auc_score(
        three(X_NEW), ternary.predict_proba(X_NEW), multi_class="ovr", average="macro"
    )
    assert found["ROC AUC"].value == pytest.approx(expected)
    assert [ranking.name for ranking in contents.results[1].rankings] == ["0", "1", "2"]


def test_the_scores_of_rivals_are_those_of_scikit_learn(binary):
    contents = contents_of(binary, X, two(X), test=(X_NEW, two(X_NEW)))
    scale = StandardScaler().fit(X)
    logistic = LogisticRegression(max_iter=1000).fit(scale.transform(X), two(X))
    trees = HistGradientBoostingClassifier(random_state=0).fit(X, two(X))
    assert [one.name for one in contents.rivals.models] == ["logistic", "boosting"]
    found = {measure.name: measure for measure in contents.results[1].measures}
    parts = [(logistic, scale.transform(X_NEW)), (trees, X_NEW)]
    assert found["accuracy"].rivals == pytest.approx([m.score(x, two(X_NEW)) for m, x in parts])
    assert found["log-loss"].rivals == pytest.approx(
        [metrics.log_loss(two(X_NEW), m.predict_proba(x)) for m, x in parts]
    )


def test_rivals_of_a_regression():
    weight = np.random.default_rng(1).uniform(0.1, 2, len(X))
    model = cvxnn.ReLURegressor(0.02, n_patterns=10).fit(X, outcome(X), weight)
    contents = contents_of(model, X, outcome(X), sample_weight=weight, test=(X_NEW, outcome(X_NEW)))
    assert [one.name for one in contents.rivals.models] == ["linear", "boosting"]
    found = {measure.name: measure for measure in contents.results[1].measures}
    others = (LinearRegression(), HistGradientBoostingRegressor(random_state=0))
    expected = [m.fit(X, outcome(X), weight).score(X_NEW, outcome(X_NEW)) for m in others]
    assert found["R²"].rivals == pytest.approx(expected)
    text = page_of(contents)
    assert "A linear regression and boosted trees of scikit-learn" in text


def test_rivals_are_left_out_where_they_would_be_unfair(binary):
    assert contents_of(binary, X_NEW, two(X_NEW)).rivals is None  # other rows than those trained on
    contents = contents_of(binary, X, two(X), baselines=False)
    assert contents.rivals is None
    assert "boosted trees" not in page_of(contents)
    alone = page_of(contents_of(binary, X, two(X)))
    assert "favour those that fit them closely" in alone
    with pytest.raises(TypeError, match="baselines must be True or False"):
        contents_of(binary, X, two(X), baselines="all")


def test_many_rows_are_thinned_out_for_rivals_and_the_page_says_so(binary, monkeypatch):
    monkeypatch.setattr(rivals, "MAX_ROWS", 50)
    text = page_of(contents_of(binary, X, two(X)))
    assert "are trained on 50 of the 120 training rows" in text


def test_several_targets_have_a_linear_rival_only():
    Y = np.column_stack([outcome(X), X[:, 0]])
    model = cvxnn.GatedReLURegressor(0.02, n_patterns=5).fit(X, Y)
    contents = contents_of(model, X, Y)
    assert [one.name for one in contents.rivals.models] == ["linear"]
    assert "A linear regression of scikit-learn, with default settings, is trained" in page_of(
        contents
    )


def test_sparse_rows_have_a_logistic_rival_only():
    from scipy import sparse

    rows = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0))
    model = cvxnn.GatedReLUClassifier(0.02, n_patterns=5).fit(rows, two(X))
    assert [one.name for one in contents_of(model, rows, two(X)).rivals.models] == ["logistic"]


def test_curves_are_those_of_scikit_learn_thinned_out():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((2000, 3))
    y = rows[:, 0] + rng.standard_normal(2000) > 0
    model = cvxnn.GatedReLUClassifier(0.05, n_patterns=5).fit(rows, y)
    first, *others = contents_of(model, rows, y).results[0].rankings
    assert [one.name for one in (first, *others)] == ["network", "logistic", "boosting"]
    false_rate, true_rate, _ = metrics.roc_curve(y, model.decision_function(rows))
    assert len(first.roc.x) <= MAX_POINTS < len(false_rate)
    for curve, points in (
        (first.roc, (false_rate, true_rate)),
        (first.precision, metrics.precision_recall_curve(y, model.decision_function(rows))[1::-1]),
    ):
        exact = {(float(a), float(b)) for a, b in zip(*points, strict=True)}
        assert set(zip(curve.x.tolist(), curve.y.tolist(), strict=True)) <= exact
    assert (first.roc.x[0], first.roc.y[0], first.roc.x[-1], first.roc.y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(first.roc.y, first.roc.x) == pytest.approx(first.roc.area, abs=0.01)


def test_rows_of_one_class_have_no_curves(binary):
    yes = two(X_NEW) == "yes"
    contents = contents_of(binary, X, two(X), test=(X_NEW[yes], two(X_NEW)[yes]))
    assert contents.results[1].rankings == ()
    assert np.isnan(contents.results[1].measures[-1].value)
    assert "nan" not in page_of(contents).lower()


# -- columns of a table


def test_features_of_a_column_are_shuffled_together(ternary):
    """Two features that are one column: the rise is that of shuffling both by one order."""
    contents = contents_of(ternary, X, three(X), columns=["a", "b", "a", "c"])
    found = {column.name: column for column in contents.columns.shown}
    assert set(found) == {"a", "b", "c"}
    assert contents.columns.n_features == 4
    single = {c.name: c for c in contents_of(ternary, X, three(X)).columns.shown}
    assert found["a"].weight == pytest.approx(single["x0"].weight + single["x2"].weight)
    assert found["c"].weight == pytest.approx(single["x3"].weight)
    before = metrics.log_loss(three(X), ternary.predict_proba(X))
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(X)) for _ in range(5)]
    rises = []
    for order in orders:
        moved = X.copy()
        moved[:, [0, 2]] = X[order][:, [0, 2]]
        rises.append(metrics.log_loss(three(X), ternary.predict_proba(moved)) - before)
    assert found["a"].rise == pytest.approx(np.mean(rises), abs=1e-9)
    text = page_of(contents_of(ternary, X, three(X), columns=["a", "b", "a", "c"]))
    assert "The 4 features of the network come from 3 columns of the table" in text
    assert "3 columns with 4 features" in text


def test_columns_have_to_be_those_of_the_features(ternary):
    with pytest.raises(ValueError, match="columns must name one for each of 4 features"):
        contents_of(ternary, X, three(X), columns=["a"])
    assert groups_of(["a", "a"], None)[1].places == (1,)  # features may share a name


# -- the command that does it again


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=["a", "b b", "c", "d"]).round(4)
    frame["town"] = np.where(X[:, 2] > 0, "Oslo", "Rome")
    frame.loc[::9, "c"] = None
    frame["key"] = np.arange(1000, 1000 + len(X))
    frame["when"] = [f"0{1 + k % 9}/0{1 + k % 7}/2024" for k in range(len(X))]
    frame["w"] = 1 + np.arange(len(X)) % 3
    frame["label"], frame["value"] = two(X), outcome(X).round(4)
    frame.to_csv("data.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        "--target label --drop value --alpha 0.02 --patterns 20",
        "--target value --drop label --model gated --alpha 0.1 --holdout 0.35 --seed 3",
        "--target label --drop value --patterns 8 --folds 3 --rule one_se --weight w --tol 1e-3",
        "--target value --drop label --drop c --missing refuse --alpha 0.1 --components 2",
        "--target label --drop value --alpha 0.1 --patterns generate --tol 1e-2",
        "--target value --drop label --alpha 0.1 --categorical w --use key --na Rome",
        "--target value --drop label --alpha 0.1 --day-first --use when",
    ],
)
def test_the_command_of_a_report_trains_the_same_model(files, options):
    assert CliRunner().invoke(main, ["fit", "data.csv", *options.split()]).exit_code == 0
    model, table = cvxnn.Model.load("model.cvxnn"), cvxnn.read_table("data.csv")
    command = command_of(model, table)
    words = command.replace("\\\n", " ").split()
    assert words[:3] == ["cvxnn", "fit", "data.csv"]
    result = CliRunner().invoke(main, [*words[1:], "-o", "again.cvxnn"])
    assert result.exit_code == 0, result.output
    again = cvxnn.Model.load("again.cvxnn")
    for name in ("W1", "W2"):
        np.testing.assert_array_equal(getattr(again.network, name), getattr(model.network, name))
    assert again.certificate == model.certificate
    assert again.scores == model.scores
    made = CliRunner().invoke(main, ["report", "model.cvxnn", "data.csv"])
    assert made.exit_code == 0
    text = Path("report.html").read_text()
    assert "On the command line" in text
    assert "cvxnn fit data.csv" in text


def test_names_are_quoted_for_the_shell(files):
    run = CliRunner().invoke
    fit = ["fit", "data.csv", "--target", "label", "--drop", "b b", "--alpha", "0.1"]
    assert run(main, fit).exit_code == 0
    model, table = cvxnn.Model.load("model.cvxnn"), cvxnn.read_table("data.csv")
    assert "--drop 'b b'" in command_of(model, table)


@pytest.mark.filterwarnings("ignore::cvxnn.TableWarning")
def test_there_is_no_command_for_what_none_trains(files):
    table = cvxnn.read_table("data.csv")
    model = cvxnn.Model.fit(table, "label", alpha=0.1, n_patterns=5, solver="rfista", kind="gated")
    assert command_of(model, table) is None
    model = cvxnn.Model.fit(table, "label", alpha=0.1, n_patterns=5)
    assert command_of(model.improve(table), table) is None
    assert command_of(model, table) is not None
