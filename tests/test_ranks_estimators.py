"""Estimators on rows in several processes. Choices by cross-validation have the folds, scores,
strength and network of one process with all rows; ReLU networks, trained on a sample, have bounds
that hold on all rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

import cvxnn
from cvxnn.estimators import sampled
from cvxnn.estimators.base import Watch, train
from cvxnn.estimators.folds import default_splits, own_splits
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.scores import ScorerOverRanks
from cvxnn.estimators.targets import mean_log_likelihood
from cvxnn.ranks import ALONE
from cvxnn.solvers.results import Status
from extras import required
from group import group

required("torch")

N, D = 150, 4
CUTS = {2: (0, 60, N), 3: (0, 1, 1, N)}  # uneven, and one process without rows


@pytest.fixture(scope="module")
def processes():
    with group(3) as made:
        yield made


def data(kind):
    """Distinct rows in sorted order, which one process trains on in this order."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, D))
    X = X[np.lexsort(X.T[::-1])]
    signal = np.abs(X[:, 0]) - np.abs(X[:, 1]) + 0.3 * rng.standard_normal(N)
    y = signal if kind == "values" else np.digitize(signal, [0] if kind == "two" else [-0.5, 0.5])
    return X, y, rng.integers(1, 3, N).astype(float)


def mine(ranks, *arrays):
    cut = CUTS[ranks.size]
    return [array[cut[ranks.rank] : cut[ranks.rank + 1]] for array in arrays]


CHOICES = {
    "values": ("values", {"scoring": None}),
    "two": ("two", {"class_weight": "balanced"}),
    "three": ("three", {"loss": "squared", "rule": "one_se", "eps": 0.3}),
    "scoring": ("two", {"scoring": "roc_auc", "cv": KFold(3), "random_state": None}),
    "learned": ("values", {"feature_scaling": "learned", "cv": [(range(90), range(90, N))]}),
}


def chosen(ranks, name):
    kind, settings = CHOICES[name]
    X, y, weight = data(kind)
    rows = X
    if ranks is not ALONE:
        rows, y, weight = mine(ranks, X, y, weight)
        rows = cvxnn.ShardedRows(rows, ranks)
    if "random_state" in settings:  # that of rank 0 decides
        settings = settings | {"random_state": check_random_state(5 + ranks.rank)}
    cls = cvxnn.GatedReLURegressorCV if kind == "values" else cvxnn.GatedReLUClassifierCV
    model = cls(**({"n_patterns": 10, "n_alphas": 3, "eps": 0.03, "cv": 2} | settings))
    model.fit(rows, y, weight)
    return {
        "alphas": model.alphas_,
        "scores": model.cv_scores_,
        "best": model.best_index_,
        "alpha": model.alpha_,
        "objective": model.certificate_.objective,
        "predictions": model.predict(X) if kind == "values" else model.decision_function(X),
        "proven": model.certificate_.proven,
    }


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_is_that_of_one_process(processes, name):
    size = 3 if name == "learned" else 2
    here, found = chosen(ALONE, name), processes.run(chosen, size, name)
    for there in found[1:]:
        for key, value in found[0].items():
            assert_array_equal(there[key], value, err_msg=key)
    assert here["best"] == found[0]["best"]
    for key, value in here.items():
        assert_allclose(found[0][key], value, rtol=1e-6, atol=1e-7, err_msg=key)


def test_folds_are_parts_of_those_of_one_process(processes):
    """Also with rows of weight zero, and with a class that has one row."""
    for own in (False, True):
        found = processes.run(folds, 3, own)
        for k, split in enumerate(folds(ALONE, own)):
            for which, index in enumerate(split):
                parts = [part[k][which] for part in found]
                assert_array_equal(np.sort(np.concatenate(parts)), np.sort(index))


def folds(ranks, own):
    """The rows of each fold, by their places among all."""
    X, y, weight = data("three")
    weight[::7], y[2] = 0, 3
    rows: object = cvxnn.StoredRows.from_array(X)
    start, Y = 0, np.eye(4)[y]
    if ranks is not ALONE:
        start = CUTS[ranks.size][ranks.rank]
        local, Y, y, weight = mine(ranks, X, Y, y, weight)
        rows = cvxnn.ShardedRows(local, ranks)
    given = Rows(rows, Y, weight)
    if own:
        splits = own_splits(KFold(3, shuffle=True, random_state=ranks.rank), given, y)
    else:
        splits = default_splits(given, 3, 0, True)
    return [(start + train, start + test) for train, test in splits]


def test_scores_are_those_of_scikit_learn(processes):
    for there in processes.run(scores, 3):
        for name, value in scores(ALONE).items():
            assert_allclose(there[name], value, rtol=1e-12, err_msg=name)


class OfLines:
    """An estimator with known outputs, which are those of a linear model."""

    _validated_rows = None

    def __init__(self, linear, decide):
        self.linear, self.network_ = linear, self
        self.classes_ = getattr(linear, "classes_", None)
        self.flat_output, self.n_outputs = True, 1
        self.decide = decide

    def predict(self, X):
        return self.decide(self.linear, X)


def scores(ranks):
    """Scores of linear models, by scikit-learn where one process has all rows."""
    found = {}
    X, y, weight = data("values")
    Y = np.column_stack([y, np.ones(N), X @ np.arange(D)])
    for name, target in (("flat", y), ("several", Y), ("constant", np.full(N, 2.0))):
        linear = LinearRegression().fit(X[:40], Y[:40] if name == "several" else y[:40])
        found[name] = _score(ranks, "r2", linear, LinearRegression.predict, X, target, weight)
    X, y, weight = data("two")
    linear = LogisticRegression().fit(X[:40], y[:40])
    decide = LogisticRegression.decision_function
    for name in ("accuracy", "neg_log_loss", "log-likelihood"):
        found[name] = _score(ranks, name, linear, decide, X, y, weight)
    return found


def _score(ranks, name, linear, decide, X, y, weight):
    known = {"log-likelihood": mean_log_likelihood, "neg_log_loss": mean_log_likelihood}
    scorer = known.get(name) or get_scorer(name)
    if ranks is ALONE:
        return scorer(linear, X, y, sample_weight=weight)
    X, y, weight = mine(ranks, X, y, weight)
    model, rows = OfLines(linear, decide), cvxnn.ShardedRows(X, ranks)
    if y.ndim > 1:
        model.flat_output, model.n_outputs = False, y.shape[1]
    return ScorerOverRanks(scorer, name)(model, rows, y, sample_weight=weight)


def test_what_a_choice_over_processes_does_not_offer(processes):
    for said in processes.run(refused, 2):
        assert "n_jobs=2 is for rows in one process" in said[0]
        assert "max_seconds=1e-09 is too short" in said[1]
        assert said[2].endswith("own splitter")
        assert "ensemble='folds' needs all rows in one process" in said[3]


def refused(ranks):
    X, y, _ = mine(ranks, *data("values"))
    said = []

    class Failing:
        def split(self, X, y):
            raise ValueError("own splitter")

        def get_n_splits(self):
            return 1

    for settings in (
        {"n_jobs": 2},
        {"max_seconds": 1e-9},
        {"cv": Failing()},
        {"ensemble": "folds"},
    ):
        try:
            cvxnn.GatedReLURegressorCV(n_patterns=5, **settings).fit(cvxnn.ShardedRows(X, ranks), y)
        except Exception as error:
            said.append(str(error))
    return said


# -- ReLU networks, trained on a sample


@pytest.mark.parametrize("kind", ["values", "two", "three"])
def test_a_relu_network_is_trained_on_a_sample_and_bounded_on_all_rows(processes, kind):
    """The sample is the same on any number of ranks, and both bounds hold on all rows."""
    first, *others = processes.run(relu, 2, kind) + processes.run(relu, 3, kind)
    for other in others:
        for key, value in first.items():
            if key != "model":
                assert_allclose(other[key], value, rtol=1e-6, err_msg=key)
    X, y, weight = data(kind)
    model, alpha = first["model"], 0.05
    targets = {"values": y, "two": 2.0 * y - 1}.get(kind)
    targets = np.eye(3)[y] if targets is None else targets
    loss = {"values": "squared", "two": "logistic", "three": "softmax"}[kind]
    settings = {"loss": loss, "sample_weight": weight}
    own = model.network_.objective(X, targets, alpha, **settings)
    assert own <= first["objective"] * (1 + 1e-12)
    assert_allclose(first["objective"], own, rtol=1e-8)  # no more than rounding above
    patterns = cvxnn.Patterns.from_network(X, model.network_)
    problem = cvxnn.CReLU(
        X, targets, patterns, alpha, bias=True, output_bias=True, singular="keep", **settings
    )
    best = cvxnn.solve(problem, tol=1e-6).certificate
    assert 0 < first["bound"] <= best.objective <= own * (1 + 1e-6)
    assert model.certificate_.proven
    assert f"over {model.n_patterns_} patterns of all rows" in model.certificate_.scope
    assert "trained on 60 of the rows" in model.certificate_.scope
    assert model.bound_.objective == first["objective"]


def relu(ranks, kind):
    sampled.SAMPLE = 60  # of 150 rows
    X, y, weight = mine(ranks, *data(kind))
    cls = cvxnn.ReLURegressor if kind == "values" else cvxnn.ReLUClassifier
    model = cls(0.05, n_patterns=10, scale=False, tol=1e-6)
    model.fit(cvxnn.ShardedRows(X, ranks), y, weight)
    bounds = model.certificate_
    return {
        "objective": bounds.objective,
        "bound": bounds.lower_bound,
        "lambda_max": model.lambda_max_,
        "W1": model.network_.W1,
        "model": model,
    }


def test_an_interrupt_of_rank_0_ends_training_on_a_sample(processes):
    for status, gap in processes.run(interrupted, 2):
        assert status == Status.INTERRUPTED
        assert 0.1 < gap < 1, "there is a bound all the same"


def interrupted(ranks):
    X, y, _ = mine(ranks, *data("values"))
    told = []

    def once(progress):
        told.append(progress)
        if len(told) == 2:
            raise KeyboardInterrupt

    model = cvxnn.ReLURegressor(0.01, n_patterns=30, tol=1e-9)
    fit = train(model, cvxnn.ShardedRows(X, ranks), y, watch=Watch(on_iteration=once))
    return fit.solution.status, model.certificate_.relative_gap


def test_a_sample_is_spread_over_all_ranks(processes):
    for size in (2, 3):
        for rows in processes.run(sample, size):
            assert_array_equal(rows, sample(ALONE))


def sample(ranks):
    X, y, weight = data("values")
    rows: object = X
    if ranks is not ALONE:
        rows, y, weight = mine(ranks, X, y, weight)
        rows = cvxnn.ShardedRows(rows, ranks)
    drawn = sampled.sample_of(Rows(rows, y[:, None], weight), 40, 3)
    return np.column_stack([drawn.X, drawn.Y, drawn.weight])


def test_what_relu_networks_on_a_sample_do_not_offer(processes):
    for said in processes.run(refused_relu, 2):
        assert "needs those of every process in memory" in said[0]
        assert "alpha of a ReLU network is not chosen" in said[1]
        assert "feature_scaling='learned'" in said[2]


def refused_relu(ranks):
    X, y, _ = mine(ranks, *data("values"))
    stored = cvxnn.StoredRows.from_array(X)
    said = []
    for model, rows in (
        (cvxnn.ReLURegressor(), stored),
        (cvxnn.ReLURegressorCV(), X),
        (cvxnn.ReLURegressor(feature_scaling="learned"), X),
    ):
        with pytest.raises(ValueError) as caught:
            model.fit(cvxnn.ShardedRows(rows, ranks), y)
        said.append(str(caught.value))
    return said
