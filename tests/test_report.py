"""The report: what the page says is what was computed, whatever the data and the names are."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import metrics
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import cvxnn
from cvxnn.bounds.base import Bound
from cvxnn.reports import importance, measures
from cvxnn.reports.charts import TINY, Scale
from cvxnn.reports.contents import GIVEN, HELD_OUT, TRAINING, contents_of, source
from cvxnn.reports.markup import Markup, clean, element, join, name_of, shorten
from cvxnn.reports.numbers import alike, at_most, bounds, count, gap, number, percent, ratio, signed
from cvxnn.reports.page import page_of
from cvxnn.solvers.results import Progress
from extras import optional

fcntl, pd = optional("fcntl"), optional("pandas")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 4))
X_NEW = RNG.standard_normal((40, 4))
NAMES = ["left", "right", "noise", "constant"]
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav"),
    *("section", "div", "h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "pre", "code"),
    *("a", "bdi", "strong", "span", "figure", "figcaption", "svg", "path", "rect", "text"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}
HOSTILE = [
    "<script>document.title = 'taken'; alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "</style></title><script>alert(4)</script>",
    "&amp; &lt;b&gt;",
    "-->",
    "n" * 500,
    "שלום \u202eevil",
    "\x00\x07\x1b[31m",
    "\ud800 half",
    "line\nbreak\ttab",
    "javascript:alert(5)",
]


def draw():
    """Random numbers that do not depend on which tests ran before."""
    return np.random.default_rng(1)


def outcome(rows):
    return np.maximum(rows[:, 0], 0) - np.abs(rows[:, 1])


def two(rows):
    return np.where(outcome(rows) > -0.4, "yes", "no")


def three(rows):
    return np.digitize(outcome(rows), [-0.8, 0.0])


def targets(rows):
    return np.column_stack([outcome(rows), 100 * rows[:, 0], 1e-3 * rows[:, 1] ** 2])


@pytest.fixture(scope="module")
def classifier():
    """With cross-validation, on a frame with labels of text."""
    frame = pd.DataFrame(X, columns=NAMES).assign(constant=3.0)
    labels = pd.Series(two(X), name="answer")
    model = cvxnn.ReLUClassifierCV(n_patterns=15, n_alphas=5, cv=3).fit(frame, labels)
    new = pd.DataFrame(X_NEW, columns=NAMES).assign(constant=3.0)
    return model, frame, labels, (new, two(X_NEW))


@pytest.fixture(scope="module")
def gated():
    """Three classes, without cross-validation."""
    model = cvxnn.GatedReLUClassifier(n_patterns=12, tol=1e-3).fit(X, three(X))
    return model, X, three(X), (X_NEW, three(X_NEW))


@pytest.fixture(scope="module")
def regressor():
    model = cvxnn.ReLURegressor(n_patterns=15).fit(X, outcome(X))
    return model, X, outcome(X), (X_NEW, outcome(X_NEW))


@pytest.fixture(scope="module")
def multi():
    names = ["rise", "hundreds", "thousandths"]
    Y, Y_new = (pd.DataFrame(targets(rows), columns=names) for rows in (X, X_NEW))
    model = cvxnn.GatedReLURegressorCV(n_patterns=8, n_alphas=3, cv=2).fit(X, Y)
    return model, X, Y, (X_NEW, Y_new)


KINDS = ("classifier", "gated", "regressor", "multi")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.getfixturevalue(request.param)


def page(model, rows, y, test=None, **options):
    return page_of(contents_of(model, rows, y, test=test, **options))


def restored(model):
    """The estimator as a model file gives it back: parameters and fitted data, nothing else."""
    kept = {
        *(
            "network_",
            "certificate_",
            "bound_",
            "alpha_",
            "lambda_max_",
            "converged_",
            "history_",
            "classes_",
        ),
        *("n_iter_", "n_patterns_", "n_features_in_", "feature_names_in_"),
        *("alphas_", "cv_scores_", "cv_neurons_", "best_index_", "best_score_"),
    }
    other = type(model)(**model.get_params())
    vars(other).update({name: value for name, value in vars(model).items() if name in kept})
    return other


def invented(cls, network, classes=None, **parameters):
    """A fitted estimator with made-up attributes, for sizes that would take long to train."""
    model = cls(**parameters)
    certificate = cvxnn.Certificate(0.5, 0.4, 1.0, "C-ReLU over 7 given patterns")
    history = tuple(
        Progress(k, 0.1 * k, 1 / (k + 1), 0.0, 1.0, None, None, k + 1) for k in range(5000)
    )
    vars(model).update(
        network_=network,
        certificate_=certificate,
        bound_=Bound.of_certificate(certificate),
        alpha_=0.1,
        lambda_max_=1.0,
        converged_=False,
        n_iter_=5000,
        n_patterns_=7,
        history_=history,
        n_features_in_=network.n_features,
    )
    if classes is not None:
        model.classes_ = np.asarray(classes)
    return model


# -- the page as a tree


class Tree(HTMLParser):
    """Elements with their attributes and text; unbalanced tags are an error."""

    VOID = frozenset({"meta"})

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.elements, self.words, self.title = [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), f"repeated attributes of {tag}"
        self.elements.append((tag, dict(attributes), tuple(self.stack)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack, f"</{tag}> closes nothing"
        opened = self.stack.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"

    def handle_data(self, data):
        if "title" in self.stack:
            self.title += data
        elif "style" not in self.stack:
            self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def all(self, tag):
        return [attributes for found, attributes, _ in self.elements if found == tag]

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))


def style_of(text):
    return re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]


def test_tags_are_balanced_and_the_outline_is_in_order(kind):
    tree = Tree(page(*kind, notes="Some words."))
    assert tree.all("html") == [{"lang": "en"}]
    assert len(tree.all("h1")) == len(tree.all("main")) == len(tree.all("title")) == 1
    levels = [int(tag[1]) for tag, _, _ in tree.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes, _ in tree.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {link["href"] for link in tree.all("a")} == {f"#{name}" for name in ids}


def test_pictures_have_words_and_tables_have_scopes(kind):
    tree = Tree(page(*kind))
    for svg in tree.all("svg"):
        assert svg.get("aria-hidden") == "true" or (svg["role"] == "img" and svg["aria-label"])
    assert all(head.get("scope") in ("col", "row", "colgroup") for head in tree.all("th"))
    for tag, _, parents in tree.elements:
        assert tag != "table" or "div" in parents  # the box it scrolls in


def test_nothing_is_loaded_and_nothing_runs(kind):
    text = page(*kind)
    tree = Tree(text)
    assert {tag for tag, _, _ in tree.elements} <= TAGS
    for _, attributes, _ in tree.elements:
        assert not {"style", "src", "srcset", "data", "action", "xlink:href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    style = style_of(text)
    assert "url(" not in style
    assert "@import" not in style
    assert "http:" not in text
    assert "https:" not in text
    policy = next(m["content"] for m in tree.all("meta") if "http-equiv" in m)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


# -- hostile text


def test_text_of_users_is_text_wherever_it_comes_from():
    K = len(HOSTILE)
    rows = np.repeat(X, 2, axis=0)[:, [k % 4 for k in range(K)]]
    labels = np.array(HOSTILE, dtype=object)[np.arange(len(rows)) % K]
    network = cvxnn.ReLUNetwork(
        W1=draw().standard_normal((6, K)), W2=draw().standard_normal((6, K)), b1=np.zeros(6)
    )
    model = invented(cvxnn.ReLUClassifier, network, classes=sorted(HOSTILE))
    text = page(
        model,
        rows,
        labels,
        test=(rows[:20], labels[:20]),
        title=HOSTILE[0],
        feature_names=HOSTILE,
        notes="\n\n".join(HOSTILE),
        facts=[(words, words) for words in HOSTILE],
    )
    text.encode("utf-8")  # no half of a surrogate pair
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    assert "nnnnnnnnnn" * 41 in text  # in notes and facts long words stay whole
    tree = Tree(text)
    assert not {"script", "img", "b"} & {tag for tag, _, _ in tree.elements}
    for _, attributes, _ in tree.elements:
        assert not any(name.startswith("on") for name in attributes)
    for words in HOSTILE[:6]:
        assert tree.text.count(words) >= 4  # notes, facts (twice), columns, classes
    assert tree.title == HOSTILE[0]


def test_names_of_targets_and_values_of_parameters_are_text():
    network = cvxnn.ReLUNetwork(W1=np.eye(4), W2=np.ones((4, len(HOSTILE))))
    model = invented(cvxnn.ReLURegressor, network, solver=HOSTILE[0])
    Y = pd.DataFrame(
        draw().standard_normal((90, len(HOSTILE))), columns=pd.Index(HOSTILE, dtype=object)
    )
    tree = Tree(page(model, X, Y))
    assert "script" not in {tag for tag, _, _ in tree.elements}
    assert HOSTILE[0] in tree.text  # the solver
    assert tree.text.count(HOSTILE[2]) >= 4  # a target: measures, and a heading
    network = replace(network, W2=np.ones((4, 2)))
    model = invented(cvxnn.ReLUClassifierCV, network, classes=[0, 1], scoring="<i>score</i>")
    scores = np.zeros((2, 3))
    vars(model).update(
        network_=replace(network, W2=np.ones((4, 1))),
        alphas_=np.array([3.0, 2.0, 1.0]),
        cv_scores_=scores,
        cv_neurons_=scores,
        best_index_=0,
    )
    tree = Tree(page(model, X, (X[:, 0] > 0).astype(int)))
    assert "mean <i>score</i>" in tree.text
    assert "i" not in {tag for tag, _, _ in tree.elements}


def test_elements_escape_what_is_no_markup():
    made = element("p", "<b>", Markup("<i></i>"), None, 3, class_='"', aria_label=None, title="<")
    assert made == '<p class="&quot;" title="&lt;">&lt;b&gt;<i></i>3</p>'
    assert join("a&", Markup("&amp;"), by="<") == "a&amp;<&amp;"
    assert name_of("\ud800\x00") == "<bdi>\ufffd\ufffd</bdi>"


@given(st.text(max_size=200), st.integers(5, 60))
def test_shortened_text_keeps_both_ends(text, length):
    short = shorten(text, length)
    assert len(short) <= length
    assert "\n" not in short
    line = " ".join(clean(text).split())
    if short != line:
        beginning, end = short.rsplit("…", 1)
        assert len(short) == length
        assert line.startswith(beginning)
        assert line.endswith(end)


# -- what is computed


@pytest.mark.parametrize("weighted", [False, True])
def test_measures_of_classes_are_those_of_scikit_learn(classifier, weighted):
    model, rows, y, test = classifier
    weights = draw().integers(0, 4, len(y)).astype(float) if weighted else None
    contents = contents_of(model, rows, y, sample_weight=weights, test=test)
    kept = np.ones(len(y), bool) if weights is None else weights > 0
    given = {"sample_weight": weights[kept]} if weighted else {}
    found = {m.name: m for m in contents.results[0].measures}
    assert contents.results[0].n == kept.sum()
    truth, predicted = y[kept], model.predict(rows[kept])
    probabilities = model.predict_proba(rows[kept])
    expected = {
        "accuracy": metrics.accuracy_score(truth, predicted, **given),
        "balanced accuracy": metrics.balanced_accuracy_score(truth, predicted, **given),
        "log-loss": metrics.log_loss(truth, probabilities, **given),
        "ROC AUC": metrics.roc_auc_score(truth, probabilities[:, 1], **given),
        "average precision": metrics.average_precision_score(
            truth == "yes", probabilities[:, 1], **given
        ),
    }
    assert {name: m.value for name, m in found.items()} == pytest.approx(expected)
    shares = np.array(
        [np.average(truth == c, weights=given.get("sample_weight")) for c in ["no", "yes"]]
    )
    assert found["accuracy"].baseline == pytest.approx(shares.max())
    assert found["log-loss"].baseline == pytest.approx(-np.sum(shares * np.log(shares)))
    held_out = {m.name: m for m in contents.results[1].measures}
    majority = ["no", "yes"][shares.argmax()]
    assert held_out["accuracy"].value == pytest.approx(model.score(*test))
    assert held_out["accuracy"].baseline == pytest.approx(np.mean(test[1] == majority))
    assert contents.weighted == weighted


def test_measures_of_numbers_are_those_of_scikit_learn(multi):
    model, rows, Y, test = multi
    weights = draw().uniform(0.1, 2, len(Y))
    contents = contents_of(model, rows, Y, sample_weight=weights, test=test)
    assert contents.outputs == ("rise", "hundreds", "thousandths")
    predicted = model.predict(rows)
    found = {(m.output, m.name): m for m in contents.results[0].measures}
    for k, name in enumerate(contents.outputs):
        truth, guess, given = Y[name], predicted[:, k], {"sample_weight": weights}
        constant = np.full(len(truth), np.average(truth, weights=weights))
        for label, score in [
            ("R²", metrics.r2_score),
            ("RMSE", metrics.root_mean_squared_error),
            ("MAE", metrics.mean_absolute_error),
        ]:
            assert found[name, label].value == pytest.approx(score(truth, guess, **given))
            assert found[name, label].baseline == pytest.approx(
                score(truth, constant, **given), abs=1e-12
            )
    assert found[None, "mean R²"].value == pytest.approx(
        metrics.r2_score(Y, predicted, sample_weight=weights)
    )
    first = contents.results[1].measures[0]
    assert first.value == pytest.approx(model.score(*test))


def test_the_page_says_what_was_computed(classifier):
    model, rows, y, test = classifier
    contents = contents_of(model, rows, y, test=test)
    text = Tree(page_of(contents)).text.replace("\xa0", " ")
    certificate = model.certificate_
    low, high = bounds(certificate.lower_bound, certificate.objective)
    for words in (
        percent(model.score(*test)).replace("\xa0", " "),
        number(metrics.log_loss(test[1], model.predict_proba(test[0]))),
        f"objective of at least {low}",
        f"objective {high}",
        gap(certificate.relative_gap).replace("\xa0", " "),
        certificate.scope,
        f"alpha = {number(model.alpha_)}",
        repr(model.alpha_),
        f"{len(rows)} training rows and {len(test[1])} held-out rows",
        f"{model.network_.n_neurons}from {model.n_patterns_} patterns",
        f"with 3 folds, from {len(model.alphas_)} strengths",
        f"expected calibration error {number(contents.results[1].calibration.error, 2)}",
        f"cvxnn {cvxnn.__version__}",
        f"numpy {np.__version__}",
        "model = cvxnn.ReLUClassifierCV(n_alphas=5, cv=3, n_patterns=15)",
    ):
        assert words in text, words


@pytest.mark.parametrize("kind", ["ReLU", "GatedReLU"])
def test_the_page_says_that_the_program_is_on_components(kind):
    model = getattr(cvxnn, f"{kind}Regressor")(n_patterns=8, n_components=2).fit(X, outcome(X))
    contents = contents_of(model, X, outcome(X))
    text = Tree(page_of(contents)).text.replace("\xa0", " ")
    low, _ = bounds(model.certificate_.lower_bound, model.certificate_.objective)
    for words in (
        model.certificate_.scope,
        "on the 2 leading principal components, has, whatever its width and weights, an objective "
        f"of at least {low}",
        "over the neurons, on the 2 leading principal components, columns of zero mean",
    ):
        assert words in text, words
    assert contents.results[0].label == TRAINING  # the objective found is the certified one


def test_matrices_count_rows(gated):
    model, rows, y, test = gated
    contents = contents_of(model, rows, y, test=test)
    for result, (shown, truth) in zip(contents.results, [(rows, y), test], strict=True):
        expected = metrics.confusion_matrix(truth, model.predict(shown), labels=model.classes_)
        np.testing.assert_array_equal(result.confusion.counts, expected)
        np.testing.assert_array_equal(result.confusion.found, expected.diagonal())
        assert result.confusion.n_other == 0
        wrong = expected - np.diag(expected.diagonal())
        true, predicted, n = result.confusion.pairs[0]
        assert n == wrong.max() == wrong[int(true), int(predicted)]


def test_rare_classes_are_taken_together():
    K = 30
    y = np.repeat(np.arange(K), np.arange(1, K + 1))
    scores = np.eye(K)[draw().integers(0, K, len(y))]
    sample = measures.Sample(np.zeros((len(y), 1)), y, None, scores)
    names = [f"c{k}" for k in range(K)]
    kept = measures.frequent_classes(sample, K)
    found = measures.confusion(sample, names, kept)
    assert found.classes == (*names[-11:], "other classes")
    assert found.n_other == 19
    assert found.counts.sum() == len(y)
    expected = metrics.confusion_matrix(y, sample.predicted)
    np.testing.assert_array_equal(found.counts[:-1, :-1], expected[-11:, -11:])
    assert found.counts[-1, -1] == expected[:19, :19].sum()
    np.testing.assert_array_equal(found.found[:-1], expected.diagonal()[-11:])
    assert found.found[-1] == expected.diagonal()[:19].sum()


@pytest.mark.parametrize("name", ["classifier", "gated"])
def test_calibration_is_measured_in_bins(name, request):
    model, rows, y, test = request.getfixturevalue(name)
    found = contents_of(model, rows, y, test=test).results[1].calibration
    probabilities = model.predict_proba(test[0])
    if len(model.classes_) == 2:
        p, right = probabilities[:, 1], test[1] == model.classes_[1]
    else:
        p, right = probabilities.max(axis=1), test[1] == model.predict(test[0])
    error = 0.0
    for low in np.arange(10) / 10:
        inside = (p > low) & (p <= low + 0.1)
        if inside.any():
            error += abs(p[inside].mean() - right[inside].mean()) * inside.mean()
    assert found.error == pytest.approx(error)
    assert sum(one.n for one in found.bins) == len(p)
    for one in found.bins:
        assert one.interval[0] <= one.share <= one.interval[1]
        assert one.low <= one.mean <= one.high


def test_residuals_are_drawn_and_counted(regressor):
    model, rows, y, _ = regressor
    (found,) = contents_of(model, rows, y).results[0].residuals
    np.testing.assert_array_equal(found.predicted, model.predict(rows))
    assert found.counts.sum() == found.n == len(y)
    residual = y - model.predict(rows)
    assert found.edges[0] == pytest.approx(residual.min())
    assert found.edges[-1] == pytest.approx(residual.max())


# -- the certificate

SETTINGS = {
    "relu": (cvxnn.ReLUClassifier, two, {}),
    "gated": (cvxnn.GatedReLUClassifier, three, {}),
    "squared": (cvxnn.ReLUClassifier, three, {"loss": "squared"}),
    "balanced": (cvxnn.ReLUClassifier, two, {"class_weight": "balanced"}),
    "no class": (
        cvxnn.ReLUClassifier,
        three,
        {"class_weight": {0: 0.0, 1: 1.0, 2: 2.0}, "loss": "squared"},
    ),
    "raw": (cvxnn.ReLUClassifier, two, {"scale": False, "fit_intercept": False}),
    "regression": (cvxnn.ReLURegressor, outcome, {}),
    "huber": (cvxnn.GatedReLURegressor, outcome, {"loss": "huber", "huber_delta": 0.5}),
    "through zero": (cvxnn.ReLURegressor, outcome, {"fit_intercept": False}),
    "targets": (cvxnn.GatedReLURegressor, targets, {}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("data", ["dense", "sparse"])
@pytest.mark.parametrize("name", SETTINGS)
def test_training_rows_are_known_by_the_certified_objective(name, data, weighted):
    cls, make_targets, parameters = SETTINGS[name]
    rows = X * (X > 0.3) if data == "sparse" else 10 + 5 * X
    rows, y = (sparse.csr_array(rows) if data == "sparse" else rows), make_targets(X)
    weights = np.arange(len(y), dtype=float) % 4 if weighted else None
    model = cls(n_patterns=8, alpha=0.02, max_iter=30, tol=1e-2, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence and constant models
        model.fit(rows, y, weights)
    contents = contents_of(model, rows, y, sample_weight=weights)
    assert contents.results[0].label == TRAINING
    assert contents.claims.proven[-1][0] == "Checked here."
    other = contents_of(model, rows[:40], y[:40])
    assert other.results[0].label == GIVEN
    assert other.claims.proven[-1][0] == "Not checked here."


def test_a_mean_of_networks_is_said_not_to_be_certified():
    model = cvxnn.GatedReLUClassifierCV(
        n_patterns=15, cv=3, ensemble="folds", feature_scaling="learned"
    ).fit(X, two(X))
    contents = contents_of(model, X, two(X))
    # the network of all rows has the certified objective
    assert "the certified one" in dict(contents.claims.proven)["Checked here."]
    text = Tree(page_of(contents)).text.replace("\xa0", " ")
    assert "the first of the 4 networks whose mean the model predicts by" in text
    assert "nothing is proven of the mean" in text
    assert "multiplied by what a first fit has learned" in text


def test_a_certificate_in_words(classifier, gated, regressor):
    model, rows, y, test = classifier
    claims = contents_of(model, rows, y, test=test).claims
    assert f"more than {at_most(model.certificate_.relative_gap)} lower" in claims.verdict
    proven, open_ = dict(claims.proven), dict(claims.not_proven)
    assert "all have one of the" in proven["A lower bound."]
    assert "all ReLU networks has this value or a smaller one" in proven["The non-convex problem."]
    assert "The held-out rows" in open_["Anything about new rows."]
    assert f"{model.n_patterns_} patterns" in open_["That other patterns could not do better."]
    assert "mean logistic loss" in claims.objective

    claims = contents_of(*gated[:3]).claims
    proven = dict(claims.proven)
    assert "the same optimal value" in proven["The non-convex problem."]
    assert "No held-out rows" in dict(claims.not_proven)["Anything about new rows."]
    assert "mean softmax loss" in claims.objective

    model = restored(regressor[0])
    assert (
        "half the mean squared error, of targets scaled in the same way,"
        in contents_of(model, *regressor[1:3]).claims.objective
    )
    certificate = model.certificate_
    model.converged_ = False
    assert "stopped before" in contents_of(model, *regressor[1:3]).claims.verdict
    for bound, words in [(0.0, "Nothing is proven"), (certificate.objective, "up to rounding")]:
        model.certificate_ = replace(certificate, lower_bound=bound)
        assert words in contents_of(model, *regressor[1:3]).claims.verdict
    model.certificate_ = replace(certificate, dual_infeasibility=1e-12, radius=12.345)
    within = dict(contents_of(model, *regressor[1:3]).claims.proven)["Without a penalty"]
    assert "sum to at most 12.3," in within
    rounding = "That rounding errors do no harm."
    assert rounding not in dict(contents_of(model, *regressor[1:3]).claims.not_proven)
    model.certificate_ = replace(certificate, caveats=("2 weight vectors are not inside",))
    told = dict(contents_of(model, *regressor[1:3]).claims.not_proven)
    assert told[rounding] == "2 weight vectors are not inside."


def test_bounds_are_rounded_to_where_they_hold():
    rng = np.random.default_rng(0)
    values = rng.uniform(1e-6, 1e3, 200)
    for low in values:
        high = low * (1 + 10 ** rng.uniform(-9, 0))
        shown = [
            float(
                text.replace(",", "")
                .replace("\xa0×\xa0", "e")
                .translate(
                    str.maketrans({"⁻": "-", **{"⁰¹²³⁴⁵⁶⁷⁸⁹"[k]: str(k) for k in range(10)}})
                )
                .replace("e10", "e")
            )
            for text in bounds(low, high)
        ]
        assert shown[0] <= low < high <= shown[1]
        assert shown[0] < shown[1]
    assert at_most(0.00741) == "0.75\xa0%"


# -- training and cross-validation


def test_the_choice_of_alpha(classifier):
    model, rows, y, _ = classifier
    choice = contents_of(model, rows, y).choice
    scores = model.cv_scores_[:, ::-1]  # alphas fall in the estimator, and rise on the page
    np.testing.assert_array_equal(choice.alphas, model.alphas_[::-1])
    np.testing.assert_allclose(choice.score, scores.mean(axis=0))
    np.testing.assert_allclose(choice.error, scores.std(axis=0, ddof=1) / np.sqrt(3))
    np.testing.assert_allclose(choice.neurons, model.cv_neurons_[:, ::-1].mean(axis=0))
    np.testing.assert_array_equal(choice.most, model.cv_neurons_[:, ::-1].max(axis=0))
    assert choice.alphas[choice.chosen] == model.alpha_
    assert choice.score[choice.chosen] == pytest.approx(model.best_score_)
    assert choice.scoring == "log-likelihood"


def test_an_alpha_at_the_edge_is_said(classifier):
    model, rows, y, _ = classifier
    model = restored(model)
    for index, words in [(0, "largest"), (len(model.alphas_) - 1, "smallest")]:
        model.best_index_ = index
        assert f"This is the {words} strength that was tried" in Tree(page(model, rows, y)).text
    model.best_index_ = 1
    assert "strength that was tried" not in Tree(page(model, rows, y)).text
    model.rule = "one_se"
    assert "within one standard error" in Tree(page(model, rows, y)).text


def test_an_alpha_that_was_given_is_said(gated):
    assert "The strength was given, not chosen" in Tree(page(*gated)).text


def test_history_is_thinned_out_and_keeps_its_ends(regressor):
    model = restored(regressor[0])
    steps = contents_of(model, *regressor[1:3]).steps
    assert len(steps) == len(model.history_)
    assert steps[-1].objective == model.history_[-1].objective
    record = model.history_[0]
    model.history_ = tuple(replace(record, n_products=k + 1) for k in range(10_000))
    steps = contents_of(model, *regressor[1:3]).steps
    assert len(steps) <= 300
    assert (steps[0].passes, steps[-1].passes) == (1, 10_000)
    model.history_ = ()
    assert "keeps no record" in Tree(page(model, *regressor[1:3])).text


# -- what matters


@pytest.mark.parametrize("name", KINDS)
def test_shuffling_is_what_it_says(name, request):
    """The same by brute force: shuffle a column, predict, and compare."""
    model, rows, y, test = request.getfixturevalue(name)
    contents = contents_of(model, rows, y, test=test)
    fresh, truth = np.asarray(test[0], dtype=float), np.asarray(test[1])
    spread = np.std(np.asarray(y), axis=0) if not contents.classes else None

    def loss(given):
        scores = model.network_.predict(given)
        if contents.classes:
            kept = restored(model)
            vars(kept).pop("feature_names_in_", None)
            return metrics.log_loss(truth, kept.predict_proba(given), labels=model.classes_)
        return np.mean(((truth - scores) / spread) ** 2)

    rng = np.random.default_rng(measures.SEED)
    orders = [rng.permutation(len(fresh)) for _ in range(importance.N_SHUFFLES)]
    assert contents.columns.of == HELD_OUT
    names = list(getattr(rows, "columns", ["x0", "x1", "x2", "x3"]))
    for column in contents.columns.shown:
        k, rises = names.index(column.name), []
        for order in orders:
            moved = fresh.copy()
            moved[:, k] = moved[order, k]
            rises.append(loss(moved) - loss(fresh))
        assert column.rise == pytest.approx(np.mean(rises), abs=1e-10)
    ranked = [column.rise for column in contents.columns.shown]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_no_step_changes_outputs_by_more_than_the_weight(name, request):
    model, rows, y, _ = request.getfixturevalue(name)
    contents = contents_of(model, rows, y)
    rows = np.asarray(rows, dtype=float)
    weights = {column.name: column.weight for column in contents.columns.shown}
    scale = 1.0 if contents.classes else np.std(y)
    largest = []
    for k, column in enumerate(NAMES if contents.classes else ["x0", "x1", "x2", "x3"]):
        moved = rows.copy()
        moved[:, k] += rows[:, k].std()
        change = np.abs(model.network_.predict(moved) - model.network_.predict(rows)) / scale
        assert change.max() <= weights[column] * (1 + 1e-12)
        largest.append(change.max() / (weights[column] or 1.0))
    assert max(largest) > 0.3  # it is a bound, and not a loose one
    if contents.classes:
        assert weights["constant"] == 0


@pytest.mark.parametrize("kind_of_rows", [np.asarray, sparse.csr_array])
def test_spreads_of_columns(kind_of_rows):
    rows = np.column_stack(
        [X[:, 0] * (X[:, 0] > 0), np.full(90, 3.0), np.zeros(90), 1e150 * X[:, 1]]
    )
    expected = [rows[:, 0].std(), 0, 0, 1e150 * X[:, 1].std()]
    np.testing.assert_allclose(importance.column_spread(kind_of_rows(rows)), expected)


@pytest.mark.parametrize("name", ["classifier", "multi"])
def test_neurons_are_described(name, request):
    model, rows, y, _ = request.getfixturevalue(name)
    contents = contents_of(model, rows, y)
    network, given = model.network_, np.asarray(rows, dtype=float)
    assert contents.neurons.n_neurons == network.n_neurons
    sizes = [neuron.size for neuron in contents.neurons.shown]
    assert sizes == sorted(sizes, reverse=True)
    columns, outputs = given.std(axis=0), 1.0
    columns[columns == 0] = 1.0
    if name == "multi":
        outputs = np.asarray(y).std(axis=0)
    bias = network.b1 + network.W1 @ given.mean(axis=0)
    first = np.linalg.norm(np.column_stack([network.W1 * columns, bias]), axis=1)
    expected = first * np.abs(network.W2 / outputs).sum(axis=1)
    order = np.argsort(-expected)
    np.testing.assert_allclose(sizes, expected[order][: len(sizes)])
    top, j = contents.neurons.shown[0], order[0]
    assert top.share == pytest.approx(expected[j] / expected.sum())
    on = given @ network.W1[j] + network.b1[j] > 0
    if name == "multi":
        on = given @ network.gates[:, j] + network.gate_bias[j] >= 0
        assert top.output == contents.outputs[np.flatnonzero(network.W2[j])[0]]
    else:
        assert top.output == "yes"
        assert top.raises == (network.W2[j, 0] > 0)
    assert top.on == pytest.approx(on.mean())
    strongest = np.argmax(np.abs(network.W1[j] * given.std(axis=0)))
    assert top.columns[0][0] == list(getattr(rows, "columns", ["x0", "x1", "x2", "x3"]))[strongest]


# -- sizes


def test_pages_stay_small_whatever_the_data_are():
    n, d, m, K = 3000, 1500, 60, 100
    rows = draw().standard_normal((n, d))
    network = cvxnn.ReLUNetwork(
        W1=draw().standard_normal((m, d)), W2=draw().standard_normal((m, K)), b1=np.zeros(m)
    )
    names = [f"{'column ' * 60}{k}" for k in range(d)]
    labels = [f"{'label ' * 80}{k:03}" for k in range(K)]
    model = invented(cvxnn.ReLUClassifier, network, classes=labels, alpha=1e-5)
    y = np.array(labels)[draw().integers(0, K, n)]
    options = {"notes": "word " * 10**6, "facts": [("name" * 99, "value " * 10**5)] * 200}
    text = page(model, rows, y, test=(rows, y), feature_names=names, title="t" * 10**6, **options)
    assert len(text.encode()) < 500_000
    words = Tree(text).text
    assert (
        "The 11 classes that are most frequent in the rows given are shown; the other 89" in words
    )
    assert "1,000 of the 3,000 held-out rows" in words
    assert "Only the 100 with the largest weights were shuffled" in words
    for more in ("1,485 more columns", "48 more neurons", "150 more facts", "more characters"):
        assert more in words

    targets = rows[:, :90]
    network = replace(network, W2=network.W2[:, :90])
    model = invented(cvxnn.ReLURegressor, network, tol=0.0)
    text = page(model, rows, targets, test=(rows, targets))
    assert len(text.encode()) < 500_000
    words = Tree(text).text
    assert "78 more targets" in words  # in the table
    assert "86 more targets" in words  # with pictures
    assert "1,000 random ones are drawn" in words


# -- inputs of all kinds


def test_equal_arguments_give_equal_bytes(kind, tmp_path):
    model, rows, y, test = kind
    paths = [
        cvxnn.report(model, rows, y, tmp_path / name, test=test, facts=[("a", 1)])
        for name in ("a.html", "b.html")
    ]
    assert paths == [tmp_path / "a.html", tmp_path / "b.html"]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    cvxnn.report(restored(model), rows, y, str(tmp_path / "c.html"), test=test, facts=[("a", 1)])
    assert (tmp_path / "c.html").read_bytes() == paths[0].read_bytes()


def test_arrays_frames_and_lists_are_alike():
    pl = pytest.importorskip("polars")
    model = cvxnn.ReLUClassifier(n_patterns=8, tol=1e-2).fit(X, two(X))
    expected = page(model, X, two(X))
    names = ["x0", "x1", "x2", "x3"]
    assert page(model, X.tolist(), two(X).tolist()) == expected
    assert page(model, pd.DataFrame(X, columns=names), pd.Series(two(X))) == expected
    assert page(model, pd.DataFrame(X, columns=names), pd.Categorical(two(X))) == expected
    frame = pl.DataFrame({name: X[:, k] for k, name in enumerate(names)})
    assert page(model, frame, pl.Series(two(X).tolist())) == expected
    assert page(model, X, two(X)[:, None]) == expected
    assert page(model, X, two(X), test=[X, two(X), np.ones(90)])


@pytest.mark.parametrize("kind_of_rows", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_rows(kind_of_rows):
    rows = X * (X > 0)
    model = cvxnn.GatedReLUClassifier(n_patterns=8, tol=1e-2).fit(sparse.csr_array(rows), two(X))
    contents = contents_of(model, kind_of_rows(rows), two(X))
    assert contents.results[0].label == TRAINING
    dense = contents_of(model, rows, two(X))
    assert [m.value for m in dense.results[0].measures] == pytest.approx(
        [m.value for m in contents.results[0].measures]
    )
    assert [c.rise for c in dense.columns.shown] == pytest.approx(
        [c.rise for c in contents.columns.shown]
    )


def test_labels_that_are_numbers_may_be_of_another_type():
    model = cvxnn.ReLUClassifier(n_patterns=5, tol=1e-2).fit(X, X[:, 0] > 0)
    for y in (X[:, 0] > 0, (X[:, 0] > 0).astype(int), (X[:, 0] > 0).astype(float)):
        assert contents_of(model, X, y).classes == ("False", "True")


def test_one_row(kind):
    model, rows, y, test = kind
    Tree(page(model, rows[:1], y[:1], test=(test[0][:1], test[1][:1])))


def test_rows_of_one_class_and_constant_targets(classifier, regressor):
    model, rows, y, _ = classifier
    yes = (y == "yes").to_numpy()
    contents = contents_of(model, rows[yes], y[yes], test=(rows[~yes], y[~yes]))
    assert contents.results[1].measures[2].baseline == np.inf  # its class was never seen
    assert "∞" in Tree(page_of(contents)).text
    model, rows, y, _ = regressor
    contents = contents_of(model, rows, np.full_like(y, 7.0))
    assert np.isnan(contents.results[0].measures[0].value)
    Tree(page_of(contents))
    huge = contents_of(model, rows, 1e200 * y)
    assert huge.results[0].measures[1].value == pytest.approx(1e200 * np.sqrt(np.mean(y**2)))
    Tree(page_of(huge))


@pytest.mark.filterwarnings("ignore:all neurons are zero")
@pytest.mark.filterwarnings("ignore:the targets do not depend on X")
def test_networks_without_neurons():
    for model, y in [
        (cvxnn.ReLUClassifier(alpha=10, n_patterns=5), two(X)),
        (cvxnn.GatedReLURegressor(alpha=10, n_patterns=5), targets(X)),
        (cvxnn.ReLURegressorCV(n_patterns=5, cv=2), np.ones(90)),
    ]:
        text = Tree(page(model.fit(X, y), X, y)).text
        assert "No column matters" in text
        assert "The network has none: it is constant." in text


def test_scores_that_are_no_probabilities():
    model = cvxnn.ReLUClassifier(n_patterns=8, tol=1e-2, loss="squared").fit(X, two(X))
    contents = contents_of(model, X, two(X))
    names = [m.name for m in contents.results[0].measures]
    assert names == ["accuracy", "balanced accuracy", "ROC AUC", "average precision"]
    assert contents.columns.loss == "share of wrong classes"
    assert "probabilities need loss='log'" in Tree(page_of(contents)).text


def test_names_of_columns():
    model = cvxnn.ReLUClassifier(n_patterns=5, tol=1e-2).fit(X, two(X))
    frame = pd.DataFrame(X, columns=NAMES)
    for options, rows, expected in [
        ({}, X, {"x0", "x1", "x2", "x3"}),
        ({}, frame, set(NAMES)),
        ({"feature_names": "abcd"}, frame, set("abcd")),
        ({"feature_names": [1, 2, 3, 4]}, X, set("1234")),
    ]:
        contents = contents_of(model, rows, two(X), **options)
        assert {column.name for column in contents.columns.shown} == expected


def test_parameters_as_source():
    values = [None, True, 1, 0.1, "a'b", [1, "x"], (1,), {"k": 2.0}, np.float64(0.5), np.arange(3)]
    assert [eval(source(value)) for value in values[:-1]] == values[:-1]
    assert source(np.arange(3)) == "[0, 1, 2]"
    assert source(cvxnn.SparseGates(2)) == "cvxnn.SparseGates(n_features=2, active_share=None)"
    assert source(np.random.RandomState(0)) == "<numpy.random.mtrand.RandomState>"
    assert source(list(range(10_000))) == "<list of 10000 values>"
    assert source(two) == "<builtins.function>"


# -- refusals


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"estimator": cvxnn.ReLUClassifier()}, NotFittedError, "not fitted"),
        ({"estimator": LogisticRegression()}, TypeError, "such as ReLUClassifier; got Logistic"),
        ({"X": X[:, :3]}, ValueError, "the rows: X has 3 features, but .* 4"),
        ({"X": np.where(X > 1, np.nan, X)}, ValueError, "the rows: Input X contains NaN"),
        ({"X": X[:0], "y": []}, ValueError, "the rows: Found array with 0 sample"),
        ({"y": two(X)[:5]}, ValueError, "the rows: X has 90 rows, but y has 5"),
        ({"y": np.arange(90)}, ValueError, r"does not know: 0, 1, 2, 3, 4, \.\.\."),
        ({"y": [None] * 90}, ValueError, "does not know: None"),
        ({"y": np.column_stack([two(X), two(X)])}, ValueError, "one label for each row"),
        ({"test": (X,)}, ValueError, r"test must be \(X, y\)"),
        ({"test": (X[:, :2], two(X))}, ValueError, "test: X has 2 features"),
        ({"test": (X, X[:, 0])}, ValueError, "test: y holds labels"),
        ({"feature_names": ["a"]}, ValueError, "1 names for 4 columns"),
        ({"sample_weight": np.zeros(90)}, ValueError, "zero"),
        ({"sample_weight": -np.ones(90)}, ValueError, "[Nn]egative"),
    ],
)
def test_what_is_refused(change, error, message, tmp_path):
    model = cvxnn.ReLUClassifier(n_patterns=3, tol=0.1).fit(X, two(X))
    arguments = {"estimator": model, "X": X, "y": two(X), "path": tmp_path / "r.html", **change}
    with pytest.raises(error, match=message):
        cvxnn.report(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_targets_that_are_refused(regressor, multi):
    with pytest.raises(ValueError, match="y contains NaN"):
        contents_of(regressor[0], X, np.full(90, np.nan))
    with pytest.raises(ValueError, match="could not convert"):
        contents_of(regressor[0], X, two(X))
    with pytest.raises(ValueError, match="y has 1 columns, but the model has 3 outputs"):
        contents_of(multi[0], X, outcome(X))


def test_folders_are_checked_before_any_work(regressor, tmp_path, monkeypatch):
    monkeypatch.setattr("cvxnn.reports.contents_of", lambda *_, **__: pytest.fail("it worked"))
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        cvxnn.report(*regressor[:3], tmp_path / "nowhere" / "r.html")


def test_a_failure_leaves_the_old_page(regressor, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        cvxnn.report(*regressor[:3], path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# -- numbers and scales


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.0, 4, "0"),
        (0.123456, 4, "0.1235"),
        (-0.5, 4, "−0.5"),
        (12345.6, 6, "12,345.6"),
        (1.2e-5, 4, "1.2\xa0×\xa010⁻⁵"),
        (-4e12, 2, "−4\xa0×\xa010¹²"),
        (99.996, 4, "100"),
        (np.nan, 4, "–"),
        (None, 4, "–"),
        (-np.inf, 4, "−∞"),
    ],
)
def test_numbers_in_words(value, digits, expected):
    assert number(value, digits) == expected


def test_shares_counts_and_columns_of_numbers():
    assert [percent(share) for share in (0, 1, 0.9999, 0.5, 1e-6, np.nan)] == [
        "0\xa0%",
        "100\xa0%",
        "99.9\xa0%",
        "50.0\xa0%",
        "0.0001\xa0%",
        "–",
    ]
    assert (count(1, "row"), count(1234, "row"), count(2, "class", "classes")) == (
        "1 row",
        "1,234 rows",
        "2 classes",
    )
    assert alike([12.3456, 0.001, np.nan]) == ["12.35", "0.00", "–"]
    assert alike([0.0, 0.0], 2) == ["0.0", "0.0"]
    assert alike([2e-9, 1e-9], 2) == ["2\xa0×\xa010⁻⁹", "1\xa0×\xa010⁻⁹"]
    assert [ratio(value) for value in (0.87654, -1e-6, -2, 1e9, np.nan)] == [
        "0.877",
        "0",
        "−2.000",
        "1 × 10⁹".replace(" ", "\xa0"),
        "–",
    ]
    assert gap(3.71e-5) == "3.8\xa0×\xa010⁻⁵"
    assert (signed(0.125), signed(-1)) == ("+0.12", "−1.00")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12) | st.just(np.nan), min_size=1, max_size=5),
    st.booleans(),
    st.integers(2, 8),
)
def test_ticks_are_inside_and_told_apart(values, log, at_most):
    scale = Scale.of(values, log=log)
    assert scale.low < scale.high
    ticks = scale.ticks(at_most)
    room = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - room <= value <= scale.high + room for value, _ in ticks)
    assert len(ticks) <= at_most + 2
    assert len({label for _, label in ticks}) == len(ticks)
    finite = [value for value in values if np.isfinite(value) and (value > TINY or not log)]
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in scale.place(finite))


# -- in a browser

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
# the browser reads commands from file 3 and answers on file 4
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless browser, driven through its debugging pipe."""

    def __init__(self, folder):
        ours, theirs = os.pipe(), os.pipe()
        far = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (ours[0], theirs[1])]
        command = [sys.executable, "-c", START, *map(str, far), BROWSER, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=far,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (*far, ours[0], theirs[1]):
            os.close(end)
        self.write, self.read = ours[1], theirs[0]
        self.buffer, self.events, self.n, self.session = b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.n += 1
        message = {"id": self.n, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self.read, 1 << 16) if ready else b""
            if not chunk:
                pytest.fail("the browser does not answer")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width, *, dark=False, media=""):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events = []
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.methods:
            self.events.append(self.receive())

    @property
    def methods(self):
        return [event.get("method") for event in self.events]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self):
        os.close(self.write)
        os.close(self.read)
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome to look at pages with")
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(classifier, gated, regressor, multi, tmp_path_factory):
    """A page of every kind, and one with hostile names and many classes."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, (model, rows, y, test) in zip(
        KINDS, (classifier, gated, regressor, multi), strict=True
    ):
        found[name] = cvxnn.report(model, rows, y, folder / f"{name}.html", test=test)
    K = len(HOSTILE) + 5
    labels = [*HOSTILE, *"abcde"]
    network = cvxnn.ReLUNetwork(
        W1=draw().standard_normal((6, K)), W2=draw().standard_normal((6, K)), b1=np.zeros(6)
    )
    model = invented(cvxnn.ReLUClassifier, network, classes=labels)
    rows = draw().standard_normal((200, K))
    found["hostile"] = cvxnn.report(
        model,
        rows,
        np.array(labels, dtype=object)[np.arange(200) % K],
        folder / "hostile.html",
        title=HOSTILE[0],
        feature_names=labels,
        notes="\n\n".join(HOSTILE),
        facts=[(words, words) for words in HOSTILE],
    )
    return found


SHOWN = (*KINDS, "hostile")
# elements that stick out to the right, but for what scrolls in a box of its own
STICKING_OUT = """
[...document.body.querySelectorAll('*')].filter(e => !e.closest('.scroll, pre'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))
"""
# texts of a chart that leave it, or overlap each other
CLASHES = """
[...document.querySelectorAll('svg.chart')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(
    t => [t.textContent, t.getBoundingClientRect()]);
  const outside = texts.filter(([_, b]) => b.left < frame.left - 2 || b.right > frame.right + 2
    || b.top < frame.top - 2 || b.bottom > frame.bottom + 2).map(([t, _]) => 'outside: ' + t);
  const over = texts.flatMap(([t, a], i) => texts.slice(i + 1).filter(([_, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([u, _]) => t + ' over ' + u));
  return outside.concat(over);
})
"""
CONTRASTS = """
(() => {
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const of = (selector, property) => [...document.querySelectorAll(selector)].map(
    e => ratio(light(getComputedStyle(e)[property]), paper));
  const bar = light(getComputedStyle(document.querySelector('svg .between')).fill);
  return {
    paper: paper,
    text: Math.min(...of('body, .lead, .more, h2, a, td, th, dt', 'color'),
      ...of('svg text:not(.on-bar)', 'fill')),
    lines: Math.min(...of('svg .line, svg .dots', 'stroke')),
    bar: ratio(bar, paper),
  };
})()
"""


@pytest.mark.parametrize("name", SHOWN)
def test_pages_run_nothing_and_ask_for_nothing(name, pages, browser):
    browser.open(pages[name], 1200)
    sent = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert sent == [pages[name].as_uri()]
    said = [
        event
        for event in browser.events
        if event.get("method")
        in (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        )
    ]
    assert said == []
    assert browser.evaluate("document.title") == Tree(pages[name].read_text()).title
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert browser.evaluate("getComputedStyle(document.querySelector('.tiles')).display") == "grid"


@pytest.mark.parametrize("width", [360, 768, 1200])
@pytest.mark.parametrize("name", SHOWN)
def test_pages_fit_their_window(name, width, pages, browser):
    browser.open(pages[name], width)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(STICKING_OUT) == []
    assert browser.evaluate(CLASHES) == []


@pytest.mark.parametrize("name", SHOWN)
def test_pages_fit_on_paper(name, pages, browser):
    browser.open(pages[name], 680, dark=True, media="print")  # A4 between its margins
    assert browser.evaluate("document.documentElement.scrollWidth") == 680
    assert browser.evaluate(CLASHES) == []
    assert browser.evaluate(CONTRASTS)["paper"] == 1  # white, for those in the dark as well
    printed = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_the_paper(dark, pages, browser):
    browser.open(pages["classifier"], 1200, dark=dark)
    contrasts = browser.evaluate(CONTRASTS)
    assert contrasts["paper"] < 0.02 if dark else contrasts["paper"] == 1
    assert contrasts["text"] >= 4.5
    assert contrasts["lines"] >= 3
    assert contrasts["bar"] >= 4.5  # it has text on it, in the colour of the paper
