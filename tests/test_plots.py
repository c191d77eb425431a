"""Plots: the data that they draw are those they should, and wrong input is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cvxnn
from conftest import make_data, make_problem
from cvxnn import plots
from extras import optional, required

pd = optional("pandas")
matplotlib = required("matplotlib")
matplotlib.use("Agg")
plt = optional("matplotlib.pyplot")
to_rgb = matplotlib.colors.to_rgb
LineCollection, Quiver = matplotlib.collections.LineCollection, matplotlib.quiver.Quiver


@pytest.fixture(autouse=True)
def no_window_and_no_figure_left(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("plots never call show")

    monkeypatch.setattr(plt, "show", refuse)
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def solution():
    return cvxnn.solve(make_problem(), tol=1e-6)


@pytest.fixture(scope="module")
def plane():
    """Two features of different units, three classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) * [1.0, 100.0] + [5.0, 0.0]
    return X, np.where(X[:, 0] < 5, "a", np.where(X[:, 1] > 0, "b", "c"))


@pytest.fixture(scope="module")
def line():
    x = np.linspace(-2, 2, 40)
    return x[:, None], np.abs(x) + 0.3 * np.sin(5 * x)


@pytest.fixture(scope="module")
def classifiers(plane):
    X, y = plane
    return {
        "relu": cvxnn.ReLUClassifier(n_patterns=20).fit(X, y),
        "gated": cvxnn.GatedReLUClassifier(n_patterns=20).fit(X, y),
        "two": cvxnn.ReLUClassifier(n_patterns=20).fit(X, y == "a"),
        "squared": cvxnn.ReLUClassifier(n_patterns=20, loss="squared").fit(X, y == "a"),
    }


@pytest.fixture(scope="module")
def regressors(line):
    x, y = line
    settings = {"alpha": 1e-3, "n_patterns": 30}
    return {
        "relu": cvxnn.ReLURegressor(**settings).fit(x, y),
        "gated": cvxnn.GatedReLURegressor(**settings).fit(x, y),
        "two": cvxnn.ReLURegressor(**settings).fit(x, np.column_stack([y, x**2])),
    }


def curves(ax):
    """The lines of some axes by their labels."""
    return {line.get_label(): line for line in ax.get_lines()}


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


# -- all of them


def test_drawing_is_left_to_matplotlib_which_is_loaded_when_needed():
    program = (
        "import sys, cvxnn.plots\n"
        "assert not {'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "sys.modules['matplotlib.pyplot'] = None\n"
        "try: cvxnn.plots.plot_performance_profile({'a': [1.0]})\n"
        "except ImportError as error: assert 'cvxnn[plot]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_public_names_are_those_of_the_module():
    names = [name for name in cvxnn.__all__ if name.startswith("plot_")]
    assert sorted(names) == sorted(name for name in vars(plots) if name.startswith("plot_"))


def test_given_axes_are_used_and_returned(solution, classifiers, regressors, plane, line):
    gated = cvxnn.solve(make_problem(d=2, n=8), tol=1e-6)
    single = (
        lambda ax: cvxnn.plot_decision_boundary(classifiers["relu"], *plane, ax),
        lambda ax: cvxnn.plot_function(regressors["relu"], *line, ax),
        lambda ax: cvxnn.plot_decomposition(gated, ax=ax),
        lambda ax: cvxnn.plot_performance_profile({"a": [1.0, 2.0]}, ax),
    )
    for draw in single:
        _, ax = plt.subplots()
        assert draw(ax) is ax
        assert ax.has_data()
    _, pair = plt.subplots(1, 2)
    assert cvxnn.plot_convergence(solution, pair) is pair
    assert len(plt.get_fignums()) == len(single) + 1


def test_new_figures_have_a_layout_without_overlap(solution):
    left, _ = cvxnn.plot_convergence(solution)
    assert left.figure.get_layout_engine().__class__.__name__ == "ConstrainedLayoutEngine"


# -- convergence


def test_convergence_shows_the_history(solution):
    left, right = cvxnn.plot_convergence(solution)
    passes = [record.n_products for record in solution.history]
    upper, lower = curves(left)["objective (upper bound)"], curves(left)["lower bound"]
    np.testing.assert_array_equal(upper.get_xdata(), passes)
    np.testing.assert_array_equal(upper.get_ydata(), [r.objective for r in solution.history])
    np.testing.assert_array_equal(lower.get_ydata(), [r.lower_bound for r in solution.history])
    gaps = np.array([record.relative_gap for record in solution.history])
    np.testing.assert_array_equal(right.get_lines()[0].get_ydata(), gaps[gaps > 0])
    assert f"{solution.certificate.relative_gap:.1e}" in right.get_title()


def test_convergence_of_an_estimator_is_that_of_its_history(classifiers):
    model = classifiers["relu"]
    left, right = cvxnn.plot_convergence(model)
    drawn = curves(left)["objective (upper bound)"].get_ydata()
    np.testing.assert_array_equal(drawn, [record.objective for record in model.history_])
    assert f"{model.certificate_.relative_gap:.1e}" in right.get_title()


def test_convergence_of_a_gap_that_is_zero_from_the_start(solution):
    record = replace(solution.history[0], relative_gap=0.0)
    _, right = cvxnn.plot_convergence(replace(solution, history=(record,)))
    assert len(right.get_lines()[0].get_xdata()) == 0


def test_convergence_says_what_is_missing(solution):
    with pytest.raises(ValueError, match="this Solution has no history to plot"):
        cvxnn.plot_convergence(replace(solution, history=()))
    with pytest.raises(NotFittedError, match="ReLUClassifier instance is not fitted"):
        cvxnn.plot_convergence(cvxnn.ReLUClassifier())
    with pytest.raises(TypeError, match="must be a Solution or a fitted estimator, got list"):
        cvxnn.plot_convergence([1.0])
    with pytest.raises(ValueError, match="this LinearRegression has no history to plot"):
        cvxnn.plot_convergence(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))


# -- paths


@pytest.fixture(scope="module", params=["gated", "relu", "two outputs"])
def path(request):
    problem = make_problem(C=2 if request.param == "two outputs" else 1)
    if request.param == "relu":
        problem = cvxnn.CReLU.from_gated(problem)
    return cvxnn.path(problem, n_lams=6, eps=0.05)


def test_a_path_shows_the_norm_of_every_neuron_while_it_is_active(path):
    top, bottom = cvxnn.plot_path(path)
    assert bottom.get_xlabel() == "lam"
    assert cvxnn.plot_path(path, strength="alpha")[1].get_xlabel() == "alpha"
    norms = np.linalg.norm(path.coefs, axis=2).reshape(len(path), -1)
    expected = norms[:, norms.any(axis=0)]
    drawn = np.array([line.get_ydata() for line in top.get_lines()]).T
    assert drawn.shape == expected.shape
    active = expected > 0
    order, drawn_order = (np.lexsort(np.nan_to_num(part)) for part in (expected, drawn))
    np.testing.assert_array_equal(
        np.nan_to_num(drawn)[:, drawn_order], expected[:, order], strict=True
    )
    beside = np.zeros_like(active)
    beside[1:] |= active[:-1]
    beside[:-1] |= active[1:]
    np.testing.assert_array_equal(np.isnan(drawn[:, drawn_order]), ~(active | beside)[:, order])
    np.testing.assert_array_equal(bottom.get_lines()[0].get_ydata(), path.n_active)


def test_lam_falls_along_a_path(path):
    for ax in cvxnn.plot_path(path):
        assert ax.get_xscale() == "log"
        left, right = ax.get_xlim()
        assert left > path.lams[0] > path.lams[-1] > right


def test_the_legend_of_a_path_names_signs_and_outputs_once(path):
    legend = cvxnn.plot_path(path)[0].get_legend()
    if path.problem.weight_shape[2] > 1:
        assert texts(legend) == ["output 0", "output 1"]
    elif path.problem.kind == "C-ReLU":
        assert sorted(texts(legend)) == ["added", "subtracted"]
    else:
        assert legend is None


def test_a_path_can_show_its_bounds(path):
    top, _ = cvxnn.plot_path(path, show="objective")
    np.testing.assert_array_equal(
        curves(top)["objective (upper bound)"].get_ydata(), path.objectives
    )
    bounds = [point.certificate.lower_bound for point in path]
    np.testing.assert_array_equal(curves(top)["lower bound"].get_ydata(), bounds)
    assert f"{path.relative_gaps.max():.1e}" in top.get_title()


def test_a_path_of_one_point_can_be_drawn():
    path = cvxnn.path(make_problem(), lams=[0.1])
    _, bottom = cvxnn.plot_path(path)
    np.testing.assert_array_equal(bottom.get_lines()[0].get_xdata(), [0.1])


def test_what_is_no_path_is_refused(solution, path):
    with pytest.raises(TypeError, match=r"which cvxnn.path returns; got Solution"):
        cvxnn.plot_path(solution)
    with pytest.raises(ValueError, match="no points to plot: interrupted"):
        cvxnn.plot_path(replace(path, solutions=(), message="interrupted"))
    with pytest.raises(ValueError, match="unknown show 'norm'; did you mean 'norms'"):
        cvxnn.plot_path(path, show="norm")


# -- cross-validation


@pytest.fixture(scope="module")
def searches():
    X, y = make_data(60, 3)
    settings = {"n_patterns": 15, "n_alphas": 5, "cv": 3}
    return {
        "regression": cvxnn.GatedReLURegressorCV(**settings).fit(X, y),
        "one error": cvxnn.GatedReLUClassifierCV(**settings, rule="one_se").fit(X, y > 0),
        "accuracy": cvxnn.GatedReLUClassifierCV(**settings, loss="squared").fit(X, y > 0),
        "named": cvxnn.GatedReLUClassifierCV(**settings, scoring="balanced_accuracy").fit(X, y > 0),
    }


def test_cross_validation_shows_folds_mean_error_and_choice(searches):
    model = searches["regression"]
    ax = cvxnn.plot_cv(model)
    mean, _, (bars,) = ax.containers[0]
    np.testing.assert_array_equal(mean.get_xdata(), model.alphas_)
    np.testing.assert_allclose(mean.get_ydata(), model.cv_scores_.mean(axis=0))
    heights = [bar[1, 1] - bar[0, 1] for bar in bars.get_segments()]
    error = model.cv_scores_.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(heights, 2 * error, atol=1e-12)
    folds = [line.get_ydata() for line in ax.get_lines() if line.get_label() == "folds"]
    np.testing.assert_array_equal(folds, model.cv_scores_)
    choice = next(line for line in ax.get_lines() if line.get_label().startswith("chosen"))
    assert list(choice.get_xdata()) == [model.alpha_, model.alpha_]
    assert ax.get_xlim()[0] > model.alphas_[0] > model.alphas_[-1] > ax.get_xlim()[1]
    assert texts(ax.get_legend())[:2] == ["mean and standard error", "folds"]


def test_the_rule_of_one_error_is_drawn(searches):
    model = searches["one error"]
    threshold = curves(cvxnn.plot_cv(model))["best less one error"].get_ydata()[0]
    mean = model.cv_scores_.mean(axis=0)
    assert model.best_index_ == np.flatnonzero(mean >= threshold)[0]


def test_scores_have_their_names(searches):
    names = {name: cvxnn.plot_cv(model).get_ylabel() for name, model in searches.items()}
    assert names == {
        "regression": "r2",
        "one error": "mean log-likelihood",
        "accuracy": "accuracy",
        "named": "balanced accuracy",
    }


def test_one_fold_has_no_standard_error(line):
    x, y = line
    split = [(np.arange(0, 40, 2), np.arange(1, 40, 2))]
    model = cvxnn.GatedReLURegressorCV(n_patterns=10, alphas=[0.1, 0.01], cv=split).fit(x, y)
    assert texts(cvxnn.plot_cv(model).get_legend())[0] == "mean"


def test_cross_validation_says_what_is_missing(classifiers):
    with pytest.raises(NotFittedError, match="ReLURegressorCV instance is not fitted"):
        cvxnn.plot_cv(cvxnn.ReLURegressorCV())
    with pytest.raises(TypeError, match="ReLUClassifier has no cross-validation"):
        cvxnn.plot_cv(classifiers["relu"])
    with pytest.raises(TypeError, match="must be a fitted estimator, got dict"):
        cvxnn.plot_cv({})


# -- decision boundaries


def pixels(ax):
    image = ax.get_images()[0]
    left, right, bottom, top = image.get_extent()
    shade = image.get_array()
    steps = (np.arange(len(shade)) + 0.5) / len(shade)
    grid = np.meshgrid(left + steps * (right - left), bottom + steps * (top - bottom))
    return np.column_stack([part.ravel() for part in grid]), shade.reshape(-1, 3)


@pytest.mark.parametrize("kind", ["relu", "gated", "two"])
def test_colours_are_those_of_the_class_and_its_probability(classifiers, plane, kind):
    model, (X, y) = classifiers[kind], plane
    y = y if kind != "two" else y == "a"
    rows, shade = pixels(cvxnn.plot_decision_boundary(model, X, y, resolution=20))
    C = len(model.classes_)
    full = np.array([to_rgb(colour) for colour in plots.drawing.COLOURS[:C]])
    predicted = np.searchsorted(model.classes_, model.predict(rows))
    sure = (model.predict_proba(rows).max(axis=1) - 1 / C) / (1 - 1 / C)
    np.testing.assert_allclose(shade, 1 - 0.4 * sure[:, None] * (1 - full[predicted]))


@pytest.mark.parametrize(
    "model", [Perceptron(), NearestCentroid(), KNeighborsClassifier(), LogisticRegression()]
)
def test_other_classifiers_have_regions_and_no_lines(plane, model):
    X, y = plane
    model = make_pipeline(StandardScaler(), model).fit(X, y)
    ax = cvxnn.plot_decision_boundary(model, X, y, resolution=30)
    rows, shade = pixels(ax)
    full = np.array([to_rgb(colour) for colour in plots.drawing.COLOURS[:3]])
    if not hasattr(model, "predict_proba"):
        predicted = np.searchsorted(model.classes_, model.predict(rows))
        np.testing.assert_allclose(shade, 1 - 0.2 * (1 - full[predicted]))
    assert not [part for part in ax.collections if isinstance(part, LineCollection)]


@pytest.mark.parametrize("kind", ["two", "squared"])
def test_the_boundary_is_where_the_score_is_zero(classifiers, plane, kind):
    model, (X, y) = classifiers[kind], plane
    ax = cvxnn.plot_decision_boundary(model, X, y == "a", neurons=False)
    contours = [part for part in ax.collections if part.__class__.__name__ == "QuadContourSet"]
    (boundary,) = contours
    points = boundary.get_paths()[0].vertices
    assert len(points) > 10
    typical = np.abs(model.decision_function(X)).mean()
    assert np.abs(model.decision_function(points)).max() < 0.02 * typical


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_lines_of_neurons_are_where_they_switch(classifiers, plane, kind):
    model, (X, y) = classifiers[kind], plane
    network = model.network_
    ax = cvxnn.plot_decision_boundary(model, X, y, resolution=10)
    (lines,) = [part for part in ax.collections if isinstance(part, LineCollection)]
    if kind == "relu":
        normals, offsets = network.W1, network.b1
    else:
        normals, offsets = network.gates.T, network.gate_bias
    ends = np.array(lines.get_segments())
    values = np.einsum("jk,iek->ije", normals, ends) + offsets[None, :, None]
    size = np.abs(normals) @ np.abs(ends).max(axis=(0, 1)) + np.abs(offsets)
    on_line = np.abs(values).max(axis=2) < 1e-9 * size
    assert np.all(on_line.any(axis=1))
    # those that switch inside of the box, and no others
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    corners = np.array([[a, b] for a in (left, right) for b in (bottom, top)])
    at_corners = corners @ normals.T + offsets
    inside = (at_corners.min(axis=0) <= 0) & (at_corners.max(axis=0) >= 0)
    np.testing.assert_array_equal(on_line.any(axis=0), inside)
    # the wider, the larger: neurons and lines have the same order
    span = np.array([right - left, top - bottom])
    bend = np.linalg.norm(network.W1 * span, axis=1) * np.abs(network.W2).sum(axis=1)
    expected = 0.3 + 1.7 * bend[inside] / bend.max()
    np.testing.assert_allclose(lines.get_linewidths(), expected)
    # they reach from border to border
    outside = (ends < [left, bottom]) | (ends > [right, top])
    assert outside.any(axis=2).all()


def test_lines_that_miss_the_picture_are_left_out():
    X = np.array([[0.0, 0.0], [10.0, 10.0]])  # the picture is [-1, 11]^2
    offsets = np.array([-21.9, -22.1, 1.9, 2.1])  # of x1 + x2: just inside or outside of a corner
    network = cvxnn.ReLUNetwork(W1=np.ones((4, 2)), b1=offsets, W2=np.ones((4, 1)))
    ax = cvxnn.plot_decision_boundary(network, X, [0, 1], resolution=10)
    (lines,) = [part for part in ax.collections if isinstance(part, LineCollection)]
    sums = np.array(lines.get_segments()).sum(axis=2)
    np.testing.assert_allclose(sums, [[21.9, 21.9], [-1.9, -1.9]])


def test_rows_are_drawn_class_by_class(classifiers, plane):
    X, y = plane
    ax = cvxnn.plot_decision_boundary(classifiers["relu"], X, y, resolution=10)
    points = {part.get_label(): part for part in ax.collections}
    for label in "abc":
        np.testing.assert_array_equal(points[label].get_offsets(), X[y == label])
    assert texts(ax.get_legend()) == ["a", "b", "c"]


def test_a_network_has_a_decision_boundary(plane):
    X, y = plane
    labels = np.where(y == "a", "no", "yes")
    network = cvxnn.ReLUNetwork(W1=[[1.0, 0.0]], b1=[-5.0], W2=[[1.0]], b2=[-0.5], flat_output=True)
    ax = cvxnn.plot_decision_boundary(network, X, labels, resolution=400)
    boundary = next(part for part in ax.collections if hasattr(part, "levels"))
    np.testing.assert_allclose(boundary.get_paths()[0].vertices[:, 0], 5.5, atol=1e-6)
    with pytest.raises(ValueError, match=r"y has 3 classes, but the network's outputs .* 2"):
        cvxnn.plot_decision_boundary(network, X, y)


def test_frames_give_their_names(plane):
    X, y = plane
    frame = pd.DataFrame(X, columns=["width", "weight"])
    model = cvxnn.GatedReLUClassifier(n_patterns=5).fit(frame, y)
    ax = cvxnn.plot_decision_boundary(model, frame, pd.Series(y), resolution=10)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "weight")


def test_a_model_of_one_region_has_no_boundary():
    X, y = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), np.array([0, 1, 1])
    model = cvxnn.GatedReLUClassifier(n_patterns=5, alpha=0.01).fit(X, y)
    constant = replace(model.network_, b2=[100.0])
    ax = cvxnn.plot_decision_boundary(constant, X, y, resolution=10)
    assert not [part for part in ax.collections if hasattr(part, "levels")]


def test_boundaries_of_wrong_input_are_refused(classifiers, regressors, plane):
    X, y = plane
    model = classifiers["relu"]
    draw = cvxnn.plot_decision_boundary
    with pytest.raises(NotFittedError, match="not fitted"):
        draw(cvxnn.ReLUClassifier(), X, y)
    with pytest.raises(TypeError, match="classifier or a network, got ReLURegressor"):
        draw(regressors["relu"], X, y)
    with pytest.raises(TypeError, match="classifier or a network, got str"):
        draw("model", X, y)
    with pytest.raises(ValueError, match="can be drawn for 2 features, but X has 3"):
        draw(model, np.ones((60, 3)), y)
    with pytest.raises(ValueError, match="X must be 2-dimensional"):
        draw(model, X[:, 0], y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        draw(model, np.where(X > 6, np.nan, X), y)
    with pytest.raises(ValueError, match="y must be 60 labels"):
        draw(model, X, y[:5])
    with pytest.raises(ValueError, match=r"labels that the model does not know: \['d'\]"):
        draw(model, X, np.where(y == "a", "d", y))
    wide = cvxnn.GatedReLUClassifier(n_patterns=5).fit(np.column_stack([X, X[:, 0] ** 2]), y)
    with pytest.raises(ValueError, match="needs a model of 2 features, got 3"):
        draw(wide, X, y)
    with pytest.raises(ValueError, match="resolution must be an integer >= 2"):
        draw(model, X, y, resolution=1)


# -- functions of one feature


@pytest.mark.parametrize("kind", ["relu", "two"])
def test_the_curve_of_a_relu_network_is_exact(regressors, line, kind):
    model, (x, _) = regressors[kind], line
    ax = cvxnn.plot_function(model, x, limits=(-3, 3))
    everywhere = np.linspace(-3, 3, 1001)
    expected = model.predict(everywhere[:, None]).reshape(1001, -1)
    drawn = [line for line in ax.get_lines() if line.get_label() != "breakpoints"]
    for k, curve in enumerate(drawn):
        found = np.interp(everywhere, curve.get_xdata(), curve.get_ydata())
        np.testing.assert_allclose(found, expected[:, k], atol=1e-12)
    assert len(drawn) == expected.shape[1]
    network = model.network_
    marked = [line for line in ax.get_lines() if line.get_label() == "breakpoints"]
    for k, dots in enumerate(marked):
        own = network.W2[:, k] != 0
        kinks = np.unique(-network.b1[own] / network.W1[own, 0])
        np.testing.assert_allclose(dots.get_xdata(), kinks[np.abs(kinks) < 3])
        heights = model.predict(dots.get_xdata()[:, None]).reshape(len(dots.get_xdata()), -1)[:, k]
        np.testing.assert_allclose(dots.get_ydata(), heights, atol=1e-12)


def test_breakpoints_are_where_the_slope_changes(regressors, line):
    model = regressors["relu"]
    ax = cvxnn.plot_function(model, *line)
    marked = curves(ax)["breakpoints"].get_xdata()
    network = model.network_
    left, right = ax.get_xlim()
    kinks = np.unique(-network.b1 / network.W1[:, 0])
    np.testing.assert_allclose(marked, kinks[(kinks > left) & (kinks < right)])
    assert len(marked) > 2
    # no bend between two of them
    ends = np.array([left, *marked, right])
    thirds = ends[:-1, None] + np.diff(ends)[:, None] * np.array([0.2, 0.5, 0.8])
    first, middle, last = model.predict(thirds.reshape(-1, 1)).reshape(-1, 3).T
    np.testing.assert_allclose((first + last) / 2, middle, atol=1e-9)


def test_a_gated_curve_is_interrupted_at_its_gates(regressors, line):
    model = regressors["gated"]
    ax = cvxnn.plot_function(model, *line)
    curve = curves(ax)["function"]
    x, values = curve.get_xdata(), curve.get_ydata()
    np.testing.assert_array_equal(np.isnan(x), np.isnan(values))
    gates = [line.get_xdata()[0] for line in ax.get_lines() if line.get_label() == "gates"]
    assert np.isnan(x).sum() == len(gates) > 2
    network = model.network_
    places = np.unique(-network.gate_bias / network.gates[0])
    assert np.isin(gates, places).all()
    before = np.flatnonzero(np.isnan(x)) - 1
    np.testing.assert_allclose(x[before], gates, atol=1e-7)
    inside = (x[:-1] + x[1:]) / 2  # between ends of one piece
    inside = inside[np.isfinite(inside)]
    whole = np.isfinite(x[:-1]) & np.isfinite(x[1:])
    middle = (values[:-1] + values[1:])[whole] / 2
    np.testing.assert_allclose(model.predict(inside[:, None]), middle, atol=1e-6)


def test_networks_need_no_data():
    bent = cvxnn.ReLUNetwork(W1=[[1.0], [-2.0]], b1=[-1.0, 6.0], W2=[[1.0], [1.0]])
    ax = cvxnn.plot_function(bent)
    np.testing.assert_allclose(curves(ax)["breakpoints"].get_xdata(), [1.0, 3.0])
    np.testing.assert_allclose(ax.get_xlim(), [0.9, 3.1])
    without = cvxnn.ReLUNetwork(W1=[[1.0]], W2=[[1.0]])
    np.testing.assert_allclose(curves(cvxnn.plot_function(without))["breakpoints"].get_xdata(), [0])
    constant = cvxnn.ReLUNetwork(W1=[[0.0]], b1=[1.0], W2=[[1.0]])
    assert cvxnn.plot_function(constant).get_xlim() == (-1.1, 1.1)


def test_data_are_drawn_under_the_curve(regressors, line):
    x, y = line
    ax = cvxnn.plot_function(regressors["relu"], x[:, 0], y)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), np.column_stack([x, y]))
    assert texts(ax.get_legend()) == ["data", "function", "breakpoints"]
    both = np.column_stack([y, x**2])
    ax = cvxnn.plot_function(regressors["two"], x, both)
    np.testing.assert_array_equal(ax.collections[1].get_offsets()[:, 1], both[:, 1])


def test_other_regressors_have_a_curve_and_no_breakpoints(line):
    x, y = line
    frame = pd.DataFrame(x, columns=["time"])
    ax = cvxnn.plot_function(LinearRegression().fit(frame, y), frame, y)
    assert ax.get_xlabel() == "time"
    assert set(curves(ax)) == {"function"}
    slopes = np.diff(curves(ax)["function"].get_ydata())
    np.testing.assert_allclose(slopes, slopes[0])


def test_functions_of_wrong_input_are_refused(regressors, classifiers, line):
    x, y = line
    model, draw = regressors["relu"], cvxnn.plot_function
    with pytest.raises(NotFittedError, match="not fitted"):
        draw(cvxnn.ReLURegressor(), x, y)
    with pytest.raises(TypeError, match=r"got ReLUClassifier; .* give its network_"):
        draw(classifiers["relu"], x, y)
    with pytest.raises(ValueError, match="one feature, but the model has 2"):
        draw(classifiers["relu"].network_)
    with pytest.raises(ValueError, match="one feature, but X has 2"):
        draw(model, np.ones((5, 2)))
    with pytest.raises(ValueError, match="y needs X"):
        draw(model, y=y)
    with pytest.raises(ValueError, match="y must have 40 rows"):
        draw(model, x, y[:3])
    for limits, reason in (((1, 0), "must rise"), ((1,), "two numbers"), ((0, np.inf), "finite")):
        with pytest.raises(ValueError, match=reason):
            draw(model, limits=limits)


# -- decompositions


@pytest.fixture(scope="module")
def decomposition():
    gated = cvxnn.solve(make_problem(n=8, d=2, C=2, share=0.02), tol=1e-8)
    return gated, cvxnn.decompose(gated)


def arrows(ax):
    return {
        part.get_label()[0]: np.array([part.U[0], part.V[0]])
        for part in ax.collections
        if isinstance(part, Quiver)
    }


def test_arrows_are_the_parts_of_a_gated_weight(decomposition):
    gated, relu = decomposition
    weights = [u for block in gated.weights for u in block.T if u.any()]
    assert len(weights) == len(relu.block_ratios) > 2
    for neuron, u in enumerate(weights):
        found = arrows(cvxnn.plot_decomposition(relu, neuron))
        v, w = found.get("v", np.zeros(2)), found.get("w", np.zeros(2))
        np.testing.assert_allclose(found["u"], u, atol=1e-9)
        np.testing.assert_allclose(v - w, u, atol=1e-9)
        ratio = (np.linalg.norm(v) + np.linalg.norm(w)) / np.linalg.norm(u)
        np.testing.assert_allclose(ratio, relu.block_ratios[neuron])


def test_the_cone_is_drawn_as_it_is(decomposition):
    _, relu = decomposition
    cones, X = relu.problem.cones, np.asarray(relu.problem.operator_double.rows())
    V, W = relu.weights
    patterns = np.argwhere(np.any(V != W, axis=1))[:, 0]
    for neuron, pattern in enumerate(patterns):
        ax = cvxnn.plot_decomposition(relu, neuron)
        apex, *arc = ax.patches[0].get_xy()[:-1]
        signed = (np.array(arc) @ X.T) * cones.signs[pattern]
        size = np.linalg.norm(arc, axis=1)[:, None] * np.linalg.norm(X, axis=1)
        assert not apex.any()
        assert (signed / size).min() > -1e-12  # inside
        assert (signed / size)[0].min() < 1e-12  # and both ends on the edge
        assert (signed / size)[-1].min() < 1e-12


def test_the_neuron_is_one_that_is_split_unless_given(decomposition):
    gated, relu = decomposition
    V, W = (np.linalg.norm(part, axis=1) for part in relu.weights)
    split = np.unravel_index(np.argmax(np.minimum(V, W)), V.shape)
    whole = np.unravel_index(np.argmin(np.minimum(V, W)), V.shape)
    first, second = (part.copy() for part in relu.weights)
    first[whole[0], :, whole[1]], second[whole[0], :, whole[1]] = 100.0, 0.0
    for given in (relu, replace(relu, weights=(first, second))):
        found = arrows(cvxnn.plot_decomposition(given))
        np.testing.assert_array_equal(found["w"], relu.weights[1][split[0], :, split[1]])
    np.testing.assert_allclose(arrows(cvxnn.plot_decomposition(gated))["w"], found["w"])


def test_a_weight_in_its_cone_is_not_split():
    X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0])
    patterns = cvxnn.Patterns.from_gates(X, [[1.0], [1.0]])
    gated = cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=0.01), tol=1e-8)
    ax = cvxnn.plot_decomposition(gated)
    assert sorted(arrows(ax)) == ["u", "v"]
    assert "= 1 ‖u‖" in ax.get_title()


def test_one_feature_and_an_intercept_are_two_columns():
    gated = cvxnn.solve(make_problem(n=8, d=1, bias=True), tol=1e-6)
    ax = cvxnn.plot_decomposition(gated)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("weight", "intercept")
    first = np.argwhere(gated.weights.any(axis=1))[0]
    found = arrows(cvxnn.plot_decomposition(gated, 0))["u"]
    np.testing.assert_allclose(found, gated.weights[first[0], :, first[1]], atol=1e-9)


def test_decompositions_of_wrong_input_are_refused(decomposition, solution):
    gated, relu = decomposition
    with pytest.raises(ValueError, match="two columns, but the problem has 4"):
        cvxnn.plot_decomposition(solution)
    with pytest.raises(TypeError, match="a Decomposition or a gated Solution, got int"):
        cvxnn.plot_decomposition(3)
    with pytest.raises(TypeError, match="Solution of a CGReLU"):
        cvxnn.plot_decomposition(cvxnn.solve(cvxnn.CReLU.from_gated(gated.problem)))
    with pytest.raises(ValueError, match=f"one of 0 to {len(relu.block_ratios) - 1}"):
        cvxnn.plot_decomposition(relu, 100)
    with pytest.raises(ValueError, match="neuron must be an integer >= 0"):
        cvxnn.plot_decomposition(relu, -1)
    zero = cvxnn.solve(gated.problem.with_lam(10.0))
    with pytest.raises(ValueError, match="nothing to decompose"):
        cvxnn.plot_decomposition(zero)


# -- performance profiles


def test_a_profile_is_the_share_of_problems_within_a_factor():
    rng = np.random.default_rng(0)
    times = {name: rng.lognormal(size=30) for name in ("a", "b", "c")}
    times["b"][rng.random(30) < 0.3] = np.inf
    times["c"][rng.random(30) < 0.5] = np.nan
    for row in times.values():
        row[7] = np.inf  # which nobody solves
    ax = cvxnn.plot_performance_profile(times)
    table = np.where(np.isnan(list(times.values())), np.inf, list(times.values()))
    quickest = table.min(axis=0)
    for name, curve in curves(ax).items():
        x, share = curve.get_xdata(), curve.get_ydata()
        assert curve.get_drawstyle() == "steps-post"
        for factor in (1.0, 1.5, 2.0, 5.0, 1e6):
            row = np.where(np.isnan(times[name]), np.inf, times[name])
            expected = np.mean(np.isfinite(row) & (row <= factor * quickest * (1 + 1e-12)))
            drawn = share[np.searchsorted(x, factor * (1 + 1e-12), side="right") - 1]
            np.testing.assert_allclose(drawn, expected)
    assert texts(ax.get_legend()) == ["a", "b", "c"]


def test_a_solver_that_solves_nothing_is_a_line_at_zero():
    ax = cvxnn.plot_performance_profile({"a": [1.0, 2000.0], "b": [np.inf, np.nan], "c": [5, 4]})
    assert not curves(ax)["b"].get_ydata().any()
    assert ax.get_xlim()[1] == pytest.approx(750)


@pytest.mark.parametrize(
    ("times", "error", "reason"),
    [
        ([1.0, 2.0], TypeError, "must be a dict of each solver's times, got list"),
        ({}, TypeError, "must be a dict"),
        ({"a": [1.0], "b": [1.0, 2.0]}, ValueError, r"'a' \(1,\), 'b' \(2,\)"),
        ({"a": []}, ValueError, "one number for each problem"),
        ({"a": [[1.0]]}, ValueError, "one number for each problem"),
        ({"a": [0.0]}, ValueError, "must be positive"),
        ({"a": [np.inf], "b": [np.nan]}, ValueError, "no solver has solved any problem"),
    ],
)
def test_times_that_are_none_are_refused(times, error, reason):
    with pytest.raises(error, match=reason):
        cvxnn.plot_performance_profile(times)
