"""Networks that are improved: never worse, as good as an independent solver, clear about y."""

import warnings
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning as NotTrained
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

import cvxnn
from conftest import make_data
from cvxnn import ConvergenceWarning, GatedReLUNetwork, ReLUNetwork
from cvxnn.digits import text_below
from cvxnn.improvement import Improvement, improve
from extras import CVXPY, needs, optional

torch = optional("torch")
nn = torch.nn
Linear, ReLU, Sequential, Tanh = nn.Linear, nn.ReLU, nn.Sequential, nn.Tanh

D = 3


def relu_network(m=8, C=1, b1=True, b2=True, seed=0, **parts):
    rng = np.random.default_rng(seed)
    return ReLUNetwork(
        W1=rng.standard_normal((m, D)),
        W2=0.3 * rng.standard_normal((m, C)),
        b1=rng.standard_normal(m) if b1 else None,
        b2=rng.standard_normal(C) if b2 else None,
        **parts,
    )


def gated_network(m=8, seed=0, strict=False, **settings):
    relu, rng = relu_network(m, seed=seed, **settings), np.random.default_rng(seed + 1)
    return GatedReLUNetwork(
        gates=rng.standard_normal((D, m)),
        gate_bias=rng.standard_normal(m),
        W1=relu.W1,
        W2=relu.W2,
        b1=relu.b1,
        b2=relu.b2,
        strict=strict,
    )


MAKERS = {"relu": relu_network, "gated": gated_network}


def make_labels(X, n_classes=3):
    """Labels that need a network: sectors of the plane of two features."""
    angle = np.arctan2(X[:, 0], X[:, 1]) / (2 * np.pi) + 0.5
    return np.minimum((2 * n_classes * angle).astype(int) % n_classes, n_classes - 1)


def make_targets(loss, X, C, seed):
    if loss == "softmax":
        return np.arange(len(X)) % C
    Y = make_data(len(X), D, C, seed)[1]
    return np.where(np.median(Y, axis=0) < Y, 1.0, -1.0) if loss == "logistic" else Y


def assert_improved(result, X, y, alpha, **terms):
    """All that is promised of every result; y are targets as `objective` takes them."""
    network, given_network = result.network, result.given
    assert result.after <= result.before
    terms = {"loss": result.loss, **terms}
    assert result.before == given_network.objective(X, y, alpha, **terms)
    assert result.after == network.objective(X, y, alpha, **terms)
    bound = result.certificate.lower_bound
    assert bound <= result.after * (1 + 1e-9)
    assert type(network) is type(given_network)
    assert network.flat_output == given_network.flat_output
    assert (network.b1 is None) == (given_network.b1 is None)
    assert (network.b2 is None) == (given_network.b2 is None)


# ------------------------------------------------------------------------------ never worse


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["relu", "gated"]),
    st.sampled_from(["squared", "huber", "logistic", "softmax"]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 6]),
    st.sampled_from([1e-4, 1e-2, 1.0]),
)
def test_random_networks(seed, kind, loss, C, b1, b2, weighted, n_patterns, alpha):
    C = max(C, 2) if loss == "softmax" else C
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 20))
    X = rng.standard_normal((n, D))
    y = make_targets(loss, X, C, seed)
    network = MAKERS[kind](int(rng.integers(1, 9)), C=C, b1=b1, b2=b2, seed=seed)
    terms = {"sample_weight": rng.random(n) + 0.1 if weighted else None}
    if loss == "huber":
        terms["huber_delta"] = 0.1 if seed % 2 else 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=ConvergenceWarning)  # whether or not it converged
        result = improve(
            network, X, y, alpha, loss=loss, n_patterns=n_patterns, max_seconds=1, **terms
        )
    y = np.eye(C)[y] if loss == "softmax" else y
    assert_improved(result, X, y, alpha, **terms)
    if result.solution.converged:
        assert result.relative_gap <= 1.001e-4


@pytest.mark.parametrize(
    ("kind", "solver"), [("relu", "auto"), ("relu", "decomposition"), ("gated", "auto")]
)
def test_what_merging_balancing_and_the_output_bias_give_for_free(kind, solver):
    """If there is no time for anything else, and the solver does not start from the weights."""
    X, y = make_data(40, D)
    good = improve(MAKERS[kind](), X, y, 0.01).network
    m = good.n_neurons
    copies = good._select(np.repeat(np.arange(m), 3))
    b1 = 9 * copies.b1
    wasteful = replace(copies, W1=9 * copies.W1, b1=b1, W2=copies.W2 / 27, b2=good.b2 + 5)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        result = improve(wasteful, X, y, 0.01, solver=solver, max_seconds=1e-9, tol=1e-9)
    assert_improved(result, X, y, 0.01)
    assert result.before > 1.5 * result.after
    assert result.after <= good.objective(X, y, 0.01) * (1 + 1e-9)
    assert (result.n_neurons_before, result.n_neurons_after) == (3 * m, m)


@pytest.mark.parametrize("solver", ["newton", "al", "decomposition", CVXPY])
@pytest.mark.parametrize("max_seconds", [1e-9, None])
@pytest.mark.filterwarnings("ignore::cvxnn.ConvergenceWarning")
def test_any_solver_and_any_limit(solver, max_seconds):
    X, y = make_data(30, D)
    good = improve(relu_network(), X, y, 0.01).network
    result = improve(good, X, y, 0.01, solver=solver, max_seconds=max_seconds)
    assert_improved(result, X, y, 0.01)


def test_an_optimal_network_is_not_made_worse_by_rounding():
    X, y = make_data(30, D)
    network = gated_network()
    for _ in range(3):
        result = improve(network, X, y, 0.01, tol=1e-9)
        assert_improved(result, X, y, 0.01)
        network = result.network
    assert result.after >= (1 - 1e-8) * result.before


# ---------------------------------------------------------------------- what is proven


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("kind", MAKERS)
@needs("cvxpy")
def test_it_agrees_with_an_independent_solver(kind, loss):
    X, _ = make_data(25, D)
    y = make_targets(loss, X, 1, 0)
    result = improve(MAKERS[kind](m=5), X, y, 0.01, loss=loss, tol=1e-8)
    oracle = cvxnn.solve(result.solution.problem, "cvxpy", on_failure="ignore").certificate
    np.testing.assert_allclose(result.after, oracle.objective, rtol=1e-5)
    np.testing.assert_allclose(result.certificate.lower_bound, oracle.objective, rtol=1e-5)
    assert result.relative_gap <= 1e-8 * (1 + 1e-3)


def test_no_network_with_these_patterns_is_below_the_bound():
    X, y = make_data(30, D)
    network = relu_network(m=6)
    result = improve(network, X, y, 0.01, tol=1e-6)
    rng = np.random.default_rng(0)
    hidden = np.column_stack([network._hidden(X), np.ones(30)])
    for scale in (0, 1e-3, 1e-2, 0.1):  # other second layers leave the patterns as they are
        weights = np.linalg.lstsq(
            np.vstack([hidden, scale * np.eye(7)]), np.append(y, np.zeros(7)), rcond=None
        )[0]
        weights *= rng.uniform(0.9, 1.1, 7)
        other = replace(network, W2=weights[:-1, None], b2=weights[-1:]).balanced()
        assert other.objective(X, y, 0.01) > result.certificate.lower_bound
    assert result.certificate.network_objective == pytest.approx(result.after, rel=1e-9)


@pytest.mark.parametrize("C", [1, 2])
def test_again_with_the_same_patterns_there_is_nothing_to_gain(C):
    """Gates stay what they are. The neurons of a ReLU network move to the boundary of their cones
    and may go on from there, so for them the first bound says nothing about the second result."""
    X, Y = make_data(40, D, C)
    first = improve(gated_network(C=C), X, Y, 0.01)
    second = improve(first.network, X, Y, 0.01)
    assert second.solution.history[0].objective <= first.after * (1 + 1e-9)  # where it starts
    assert first.after < 0.9 * first.before
    assert first.certificate.lower_bound <= second.after
    assert second.after >= (1 - 1e-4) * first.after

    first = improve(relu_network(C=C), X, Y, 0.01)
    again = cvxnn.solve(first.solution.problem, warm_start=first.solution.weights, tol=1e-7)
    assert again.certificate.objective >= (1 - 1e-4) * first.after
    second = improve(first.network, X, Y, 0.01)
    assert second.after <= first.after


def test_sampled_patterns_help_and_seeds_repeat():
    X, y = make_data(40, D)
    network = relu_network(m=3)
    own = improve(network, X, y, 0.01, tol=1e-6)
    more = improve(network, X, y, 0.01, tol=1e-6, n_patterns=30)
    assert more.after < 0.9 * own.after
    n_own, n_more = (len(result.solution.problem.patterns) for result in (own, more))
    assert n_own < n_more <= n_own + 30
    again = improve(network, X, y, 0.01, tol=1e-6, n_patterns=30, random_state=0)
    other = improve(network, X, y, 0.01, tol=1e-6, n_patterns=30, random_state=1)
    np.testing.assert_array_equal(again.network.W1, more.network.W1)
    assert other.after != more.after


def test_units_do_not_decide_what_is_sampled():
    X, y = make_data(40, D)
    X[:, 0] = 1e4 * np.abs(X[:, 0])
    result = improve(relu_network(b1=False), X, y, 0.1, n_patterns=20, max_seconds=10)
    sampled = result.solution.problem.patterns.mask[:, -10:]
    assert 0.1 < np.mean(sampled) < 0.9
    assert np.sum(sampled.any(axis=0) & ~sampled.all(axis=0)) >= 8


def test_weights_of_rows_count_like_copies():
    X, y = make_data(20, D)
    counts = 1 + np.arange(20) % 3
    network = relu_network(m=4)
    weighted = improve(network, X, y, 0.01, sample_weight=counts, tol=1e-8)
    copied = improve(network, X.repeat(counts, axis=0), y.repeat(counts), 0.01, tol=1e-8)
    np.testing.assert_allclose(weighted.before, copied.before, rtol=1e-12)
    np.testing.assert_allclose(weighted.after, copied.after, rtol=1e-7)


def test_the_text_says_what_is_proven_and_what_is_not():
    X, y = make_data(30, D)
    result = improve(relu_network(), X, y, 0.01)
    assert isinstance(result, Improvement)
    first, proven, not_proven = str(result).splitlines()
    assert first.startswith(f"squared objective {result.before:.6g} -> {result.after:.6g}")
    assert f"neurons 8 -> {result.n_neurons_after}" in first
    bound = text_below(result.certificate.lower_bound, 6)
    assert f"is below {bound} (relative gap" in proven
    assert "with these patterns" in proven
    assert "other patterns" in not_proven
    assert "new data" in not_proven


# ------------------------------------------------------------------------- all networks


def test_networks_that_are_off_for_all_rows():
    X, y = make_data(30, D)
    off = relu_network()
    off = replace(off, W1=0 * off.W1, b1=-np.ones(8))
    for dead in (off, off._select(np.arange(0)), gated_network()._select(np.arange(0))):
        result = improve(dead, X, y, 0.001)
        assert len(result.solution.problem.patterns) == 1  # on for all rows
        assert_improved(result, X, y, 0.001)
        assert result.after < 0.9 * result.before
        sampled = improve(dead, X, y, 0.001, n_patterns=20)
        assert_improved(sampled, X, y, 0.001)
        assert sampled.after < 0.9 * result.after


def test_zero_and_single_neurons():
    X, y = make_data(30, D)
    zero = replace(relu_network(), W2=np.zeros((8, 1)))
    assert len(improve(zero, X, y, 0.001).solution.problem.patterns) > 1  # it has patterns
    for network in (zero, relu_network(m=1, flat_output=True), relu_network(m=1, b1=False)):
        assert_improved(improve(network, X, y, 0.001), X, y, 0.001)


def test_a_large_penalty_leaves_the_output_bias():
    X, y = make_data(30, D)
    result = improve(relu_network(), X, y, 1e3)
    assert result.n_neurons_after == 0
    np.testing.assert_allclose(result.network.b2, [y.mean()])
    np.testing.assert_allclose(result.after, np.var(y) / 2)


def test_ties_and_duplicate_rows():
    """Rows on the boundary of many neurons, where cones may be singular."""
    X = np.array(np.meshgrid([-1, 0, 1], [-1, 0, 1], [0, 1])).reshape(3, -1).T.astype(float)
    X = np.vstack([X, X])
    y = np.abs(X[:, 0]) - X[:, 1] * X[:, 2]
    W1 = np.vstack([np.eye(D), -np.eye(D), np.ones((1, D)), [[1, -1, 0]]])
    for b1 in (None, np.zeros(8)):
        network = ReLUNetwork(W1=W1, W2=np.ones((8, 1)), b1=b1)
        result = improve(network, X, y, 0.001)
        assert_improved(result, X, y, 0.001)
        assert result.after < 0.1 * result.before


@pytest.mark.parametrize("strict", [False, True])
def test_gated_networks_keep_their_gates(strict):
    X, y = make_data(40, D)
    network = gated_network(strict=strict, b1=False)
    result = improve(network, X, y, 0.001)
    given_gates = {tuple(gate) for gate in network.gates.T}
    assert {tuple(gate) for gate in result.network.gates.T} <= given_gates
    assert result.network.strict == strict
    assert result.certificate.network_objective is None
    assert_improved(improve(network, X, y, 0.001, n_patterns=9), X, y, 0.001)


def test_nothing_that_was_given_is_changed():
    X, y = make_data(30, D)
    network = relu_network()
    copies = {name: getattr(network, name).copy() for name in network.arrays}
    X_copy, y_copy = X.copy(), y.copy()
    result = improve(network, X, y, 0.01)
    assert result.given is network
    for name, array in copies.items():
        np.testing.assert_array_equal(getattr(network, name), array)
    np.testing.assert_array_equal(X, X_copy)
    np.testing.assert_array_equal(y, y_copy)


FORMS = {"sparse": csr_matrix, "torch": torch.tensor, "float32": np.float32, "list": list}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_data_of_all_kinds(form):
    X, y = make_data(30, D)
    X = np.round(X, 3).astype(np.float32).astype(float)
    given_X = X.tolist() if form is list else form(X)
    result = improve(relu_network(), given_X, y, 0.01)
    np.testing.assert_allclose(result.before, relu_network().objective(X, y, 0.01), rtol=1e-12)
    np.testing.assert_allclose(result.after, improve(relu_network(), X, y, 0.01).after, rtol=1e-4)


# ------------------------------------------------------------------- torch, scikit-learn


def adam(module, criterion, X, y, steps=60):
    torch.manual_seed(0)
    for layer in (module[0], module[2]):
        layer.reset_parameters()
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05, weight_decay=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(module(X), y).backward()
        optimizer.step()
    return module


def test_a_torch_classifier():
    X, _ = make_data(90, D)
    labels = make_labels(X)
    module = Sequential(Linear(D, 12), ReLU(), Linear(12, 3))
    adam(module, torch.nn.CrossEntropyLoss(), X, labels)
    result = improve(module, X, labels, 1e-3)
    assert result.loss == "softmax"
    assert_improved(result, X, np.eye(3)[labels], 1e-3)
    assert result.after < 0.9 * result.before

    def accuracy(network):
        return np.mean(network.predict(X).argmax(axis=1) == labels)

    assert accuracy(result.network) > 0.9
    assert accuracy(result.given) > 0.6
    with torch.no_grad():
        Z = module(torch.tensor(X, dtype=torch.float32)).double().numpy()
    loss = -np.mean(log_softmax(Z, axis=1)[np.arange(90), labels])
    decay = (result.given.W1**2).sum() + (result.given.b1**2).sum()
    decay += (np.abs(result.given.W2).sum(axis=1) ** 2).sum()
    np.testing.assert_allclose(result.before, loss + 5e-4 * decay, rtol=1e-5)


def test_a_torch_regressor_without_hidden_biases():
    X, y = make_data(60, D)
    module = Sequential(Linear(D, 10, bias=False), ReLU(), Linear(10, 1))
    adam(module, torch.nn.MSELoss(), X, y.astype(np.float32)[:, None])
    result = improve(module, X, y, 1e-3)
    assert result.loss == "squared"
    assert result.network.b1 is None
    assert_improved(result, X, y, 1e-3)
    assert np.corrcoef(result.network.predict(X)[:, 0], y)[0, 1] > 0.95


def trained(cls, X, y, **parameters):
    mlp = cls(hidden_layer_sizes=(10,), max_iter=150, random_state=0, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=NotTrained)
        return mlp.fit(X, y)


def test_a_binary_classifier_of_scikit_learn():
    X, _ = make_data(80, D)
    y = np.array(["no", "yes"])[make_labels(X, 2)]
    mlp = trained(MLPClassifier, X, y)
    result = improve(mlp, X, y, 1e-3)
    assert result.loss == "logistic"
    assert result.classes.tolist() == ["no", "yes"]
    assert_improved(result, X, np.where(y == "yes", 1.0, -1.0), 1e-3)
    predicted = result.classes[(result.network.predict(X) > 0).astype(int)]
    assert np.mean(predicted == y) > max(mlp.score(X, y), 0.9)


def test_a_multi_class_classifier_of_scikit_learn():
    X, _ = make_data(90, D)
    y = np.array(["c", "a", "b"])[make_labels(X)]
    mlp = trained(MLPClassifier, X, y)
    result = improve(mlp, X, y, 1e-3)
    assert result.loss == "softmax"
    np.testing.assert_array_equal(result.classes, mlp.classes_)
    one_hot = (y[:, None] == mlp.classes_).astype(float)
    assert_improved(result, X, one_hot, 1e-3)
    assert improve(mlp, X, one_hot, 1e-3).before == result.before
    predicted = result.classes[result.network.predict(X).argmax(axis=1)]
    assert np.mean(predicted == y) > 0.8 > mlp.score(X, y)


def test_a_multi_label_classifier_of_scikit_learn():
    X, _ = make_data(60, D)
    Y = (X[:, :2] > 0.3).astype(int)
    result = improve(trained(MLPClassifier, X, Y), X, Y, 1e-2)
    assert result.loss == "logistic"
    assert_improved(result, X, 2.0 * Y - 1, 1e-2)


@pytest.mark.parametrize("C", [1, 2])
def test_a_regressor_of_scikit_learn(C):
    X, Y = make_data(60, D, C)
    mlp = trained(MLPRegressor, X, Y)
    result = improve(mlp, X, Y, 1e-3)
    assert result.loss == "squared"
    assert result.network.predict(X).shape == Y.shape
    assert_improved(result, X, Y, 1e-3)
    assert np.mean((result.network.predict(X) - Y) ** 2) < np.mean((mlp.predict(X) - Y) ** 2)
    # whole numbers are no labels to a regressor
    assert improve(mlp, X, np.sign(Y).astype(int), 1e-2).loss == "squared"


# ------------------------------------------------------------------------------ targets


def test_two_classes_in_all_forms():
    X, _ = make_data(30, D)
    larger = make_labels(X, 2) == 1
    network = relu_network()
    signs = np.where(larger, 1.0, -1.0)
    expected = network.objective(X, signs, 0.01, loss="logistic")
    labels = {
        "booleans": larger,
        "text": np.where(larger, "b", "a"),
        "integers": np.where(larger, 7, 3),
        "signs": signs.astype(int),
        "a list": np.where(larger, "b", "a").tolist(),
        "objects": np.where(larger, "b", "a").astype(object),
        "a column": larger[:, None],
        "a tensor": torch.tensor(larger),
    }
    for name, y in labels.items():
        result = improve(network, X, y, 0.01, max_seconds=10)
        assert (result.loss, result.before) == ("logistic", expected), name
    for y in (signs, larger.astype(float), signs[:, None]):  # numbers need the name of the loss
        assert improve(network, X, y, 0.01).loss == "squared"
        assert improve(network, X, y, 0.01, loss="logistic").before == expected


def test_three_classes_in_all_forms():
    X, _ = make_data(30, D)
    labels = make_labels(X)
    network = relu_network(C=3)
    expected = network.objective(X, np.eye(3)[labels], 0.01, loss="softmax")
    for y in (labels, np.array(["x", "y", "z"])[labels], labels.astype(np.uint8) * 10):
        result = improve(network, X, y, 0.01)
        assert (result.loss, result.before) == ("softmax", expected)
        np.testing.assert_array_equal(result.classes, np.unique(y))
    for y in (labels.astype(float), np.eye(3)[labels]):
        assert improve(network, X, y, 0.01, loss="softmax").before == expected
    assert improve(network, X, np.eye(3)[labels], 0.01).loss == "squared"
    rows = 2 * np.eye(3)[labels] - 1
    several = improve(network, X, np.eye(3)[labels], 0.01, loss="logistic")
    assert several.before == network.objective(X, rows, 0.01, loss="logistic")


def test_whole_numbers_that_are_no_two_classes_are_numbers():
    X, y = make_data(30, D)
    counts = np.round(y).astype(int)
    result = improve(relu_network(), X, counts, 0.01)
    assert (result.loss, result.classes) == ("squared", None)
    assert_improved(result, X, counts, 0.01)
    huber = improve(relu_network(), X, counts, 0.01, loss="huber", huber_delta=2.0)
    assert_improved(huber, X, counts, 0.01, huber_delta=2.0)


# ------------------------------------------------------------------------- wrong inputs

X_OK, Y_OK = make_data(30, D)
LABELS = make_labels(X_OK)
TEXT = np.array(["x", "y", "z"])[LABELS]
NAN = np.where(np.arange(30) == 4, np.nan, Y_OK)

WRONG = {
    "width": ({"X": X_OK[:, :2]}, ValueError, "X has 2 features, but 3 are expected"),
    "NaN in X": ({"X": np.full((30, D), np.nan)}, ValueError, "X holds NaN"),
    "length": ({"y": Y_OK[:-1]}, ValueError, "X has 30 rows, but y has 29"),
    "NaN in y": ({"y": NAN}, ValueError, "y holds NaN or infinity: nan at row 4"),
    "NaN label": ({"y": NAN, "loss": "logistic"}, ValueError, "y holds NaN or infinity"),
    "no label": (
        {"y": np.where(np.arange(30) < 9, None, TEXT)},
        TypeError,
        "y must hold labels of one kind, none of them missing",
    ),
    "no y": ({"y": None}, TypeError, "y must be a full array of numbers or labels, got NoneType"),
    "sparse y": ({"y": csr_matrix(Y_OK[:, None])}, TypeError, "y must be a full array"),
    "three axes": ({"y": np.ones((30, 1, 1))}, ValueError, r"y must have shape \(n,\) or \(n, C\)"),
    "one class": ({"y": np.full(30, "a")}, ValueError, "y has 1 class, but the network has 1 out"),
    "one number": ({"y": np.ones(30), "loss": "logistic"}, ValueError, "y has 1 class"),
    "many classes": ({"y": TEXT}, ValueError, "y has 3 classes, but the network has 1 output, for"),
    "few classes": (
        {"y": LABELS, "network": relu_network(C=4)},
        ValueError,
        "y has 3 classes, but the network has 4 outputs",
    ),
    "columns": (
        {"y": np.eye(3)[LABELS]},
        ValueError,
        "y has 3 columns of numbers, but the network has 1 output$",
    ),
    "one column": (
        {"network": relu_network(C=3)},
        ValueError,
        "y has 1 column of numbers, but the network has 3 outputs; for labels give loss='softmax'",
    ),
    "softmax": ({"loss": "softmax"}, ValueError, "need an output for each class, but the network"),
    "logistic": (
        {"y": LABELS, "loss": "logistic", "network": relu_network(C=3)},
        ValueError,
        "labels y with the logistic loss need one output, but the network has 3",
    ),
    "text": ({"y": TEXT, "loss": "squared"}, TypeError, "y holds text"),
    "an absent class": (
        {"y": np.eye(4)[LABELS], "loss": "softmax", "network": relu_network(C=4)},
        ValueError,
        "Y has a class that never occurs",
    ),
    "loss": ({"loss": "log"}, ValueError, "unknown loss 'log'"),
    "alpha": ({"alpha": 0}, ValueError, "alpha must be > 0"),
    "n_patterns": ({"n_patterns": -1}, ValueError, "n_patterns must be an integer >= 0"),
    "random_state": ({"random_state": "a"}, TypeError, "random_state must be a seed"),
    "tol": ({"tol": -1}, ValueError, "tol must be >= 0"),
    "solver": ({"solver": "sgd"}, ValueError, "unknown solver 'sgd'"),
    "weights": ({"sample_weight": np.zeros(30)}, ValueError, "sample_weight must be positive"),
    "no network": ({"network": LogisticRegression()}, TypeError, "network must be a ReLUNetwork"),
    "unfitted": ({"network": MLPRegressor()}, NotFittedError, "not fitted yet"),
    "layers": (
        {"network": Sequential(Linear(D, 2), Tanh(), Linear(2, 1))},
        ValueError,
        "found Linear, Tanh, Linear",
    ),
}


@pytest.mark.parametrize(("changes", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs(changes, error, message):
    arguments = {"network": relu_network(), "X": X_OK, "y": Y_OK, "alpha": 0.01, **changes}
    with pytest.raises(error, match=message):
        improve(**arguments)


def test_wrong_models_of_scikit_learn():
    mlp = trained(MLPClassifier, X_OK, TEXT)
    with pytest.raises(ValueError, match=r"y holds 'w', which is not among the network's \['x'"):
        improve(mlp, X_OK, np.where(TEXT == "x", "w", TEXT), 0.01)
    tanh = trained(MLPClassifier, X_OK, TEXT, activation="tanh")
    with pytest.raises(ValueError, match="activation='relu', got 'tanh'"):
        improve(tanh, X_OK, TEXT, 0.01)
    if "loss" not in signature(MLPRegressor).parameters:  # before scikit-learn 1.7
        return
    counts = trained(MLPRegressor, X_OK, LABELS, loss="poisson")
    with pytest.raises(ValueError, match="trained with the loss 'poisson'; choose another one"):
        improve(counts, X_OK, LABELS, 0.01)
    assert improve(counts, X_OK, LABELS, 0.01, loss="huber").loss == "huber"
