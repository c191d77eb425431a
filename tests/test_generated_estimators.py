"""Generated patterns in estimators and cross-validation: contract, objectives, starts, words."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxnn
from cvxnn.bounds.base import EXACT, GIVEN
from cvxnn.estimators import base
from cvxnn.estimators.base import Watch, train
from cvxnn.generation import programs
from cvxnn.generation.rounds import Round
from cvxnn.memory import TooLargeError
from cvxnn.paths import Steps
from cvxnn.solvers.results import Status

PLAIN = (
    cvxnn.ReLUClassifier,
    cvxnn.ReLURegressor,
    cvxnn.GatedReLUClassifier,
    cvxnn.GatedReLURegressor,
)
WITH_CV = (
    cvxnn.ReLUClassifierCV,
    cvxnn.ReLURegressorCV,
    cvxnn.GatedReLUClassifierCV,
    cvxnn.GatedReLURegressorCV,
)
GENERATE = {"patterns": "generate"}
QUICK = {**GENERATE, "tol": 1e-2}
QUICK_CV = {**QUICK, "n_alphas": 3, "eps": 0.03, "cv": 2}

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 3))
SIGNAL = np.abs(X[:, 0]) - np.maximum(X[:, 1] + X[:, 2], 0)
y = SIGNAL + 0.1 * rng.standard_normal(60)
MEDIAN = float(np.median(SIGNAL))
labels = np.where(SIGNAL > MEDIAN, "high", "low")


def targets(cls):
    return labels if "Classifier" in cls.__name__ else y


# ---- the contract -------------------------------------------------------------------------------

ROUGH = {**GENERATE, "tol": 0.1}
CHECKS = (
    "check_dict_unchanged",
    "check_dont_overwrite_attributes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_sample_weight_equivalence_on_dense_data",
)


ALL_CHECKS = parametrize_with_checks(
    [cvxnn.ReLUClassifier(0.03, **ROUGH), cvxnn.GatedReLURegressor(0.03, **ROUGH)]
)
SOME_CHECKS = pytest.mark.parametrize(
    ALL_CHECKS.args[0],
    [pair for pair in ALL_CHECKS.args[1] if getattr(pair[1], "func", None).__name__ in CHECKS],
    **ALL_CHECKS.kwargs,
)


@pytest.mark.filterwarnings("ignore")
@SOME_CHECKS
def test_scikit_learn_contract(estimator, check, quick_search):
    check(estimator)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [cls(0.03, **ROUGH) for cls in PLAIN]
    + [cls(**ROUGH, n_alphas=2, cv=2, eps=0.3) for cls in WITH_CV]
)
def test_the_whole_scikit_learn_contract(estimator, check, quick_search):
    check(estimator)


def test_every_estimator_fits_predicts_is_cloned_and_pickled(quick_search):
    for cls, settings in [
        *((cls, {"alpha": 0.03, **QUICK}) for cls in PLAIN),
        *((cls, QUICK_CV) for cls in WITH_CV),
    ]:
        model = cls(**settings)
        assert clone(model).get_params() == model.get_params()
        assert model.get_params()["patterns"] == "generate"
        model.fit(X, targets(cls))
        assert model.converged_, cls.__name__
        assert model.certificate_.relative_gap <= model.tol
        assert model.score(X, targets(cls)) > 0.8
        assert model.n_patterns_ == int(model.certificate_.scope.split()[2])
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert not model.bound_.over_all_patterns  # nothing was proven about others
        assert model.bound_.scope == GIVEN
        assert model.bound_.lower_bound == model.certificate_.lower_bound
        assert model.bound_.dual.size == 0  # pickles do not grow with the rows


@pytest.mark.parametrize("cls", PLAIN[:2])
@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_the_objective_is_never_above_that_of_sampled_patterns(cls, alpha):
    generated = cls(alpha, **GENERATE).fit(X, targets(cls))
    sampled = cls(alpha, n_patterns=300).fit(X, targets(cls))
    assert generated.certificate_.objective < sampled.certificate_.objective
    assert generated.n_patterns_ < sampled.n_patterns_
    # the objective is that of the network itself, on its own predictions
    assert generated.bound_.objective == pytest.approx(generated.certificate_.objective, rel=1e-9)


def test_three_classes_several_targets_weights_and_no_intercept(quick_search):
    three = np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.7]))
    for model, target in (
        (cvxnn.ReLUClassifier(0.05, **QUICK), three),
        (cvxnn.ReLURegressor(0.05, **QUICK), np.column_stack([y, X[:, 0]])),
        (cvxnn.ReLURegressor(0.05, **QUICK, loss="huber", fit_intercept=False), y),
    ):
        weight = np.arange(len(X)) % 3
        model.fit(X, target, weight)
        assert model.converged_
        kept = np.repeat(np.arange(len(X)), weight)
        repeated = clone(model).fit(X[kept], target[kept])
        np.testing.assert_array_equal(repeated.network_.W1, model.network_.W1)


def test_sparse_rows_and_components(quick_search):
    rows = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    model = cvxnn.ReLURegressor(0.02, **QUICK, scale=False).fit(rows, y)
    dense = cvxnn.ReLURegressor(0.02, **QUICK, scale=False).fit(rows.toarray(), y)
    assert model.certificate_.objective == pytest.approx(dense.certificate_.objective, rel=2e-2)
    few = cvxnn.ReLURegressor(0.02, **QUICK, n_components=2).fit(X, y)
    assert "2 leading principal components" in few.certificate_.scope


def test_equal_seeds_give_equal_fits_and_other_seeds_other_searches(quick_search):
    first, second, other = (
        cvxnn.ReLURegressor(0.02, **QUICK, random_state=seed).fit(X, y) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.network_.W1, second.network_.W1)
    strip = [replace(record, seconds=0.0) for record in first.history_]
    assert strip == [replace(record, seconds=0.0) for record in second.history_]
    assert [record.price_ratio for record in other.history_] != [
        record.price_ratio for record in first.history_
    ]


def test_history_and_iterations_are_rounds(quick_search):
    seen = []
    model = cvxnn.ReLURegressor(0.02, **QUICK)
    fit = train(model, X, y, watch=Watch(on_round=seen.append))
    assert all(isinstance(record, Round) for record in model.history_)
    assert model.n_iter_ == len(model.history_) == len([r for r in seen if not r.note])
    assert np.all(np.diff([record.objective for record in model.history_]) <= 1e-12)
    assert fit.point.training.history == model.history_
    limited = cvxnn.ReLURegressor(1e-4, **QUICK, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        limited.fit(X, y)
    assert not limited.converged_
    assert limited.certificate_.proven  # what is known of it is


def test_gated_networks_take_generated_gates(quick_search):
    model = cvxnn.GatedReLURegressor(0.02, **GENERATE)
    fit = train(model, X, y)
    relu = fit.point.training
    sampled = cvxnn.GatedReLURegressor(0.02)
    random = train(sampled, X, y).solution.problem.patterns
    both = random.join(relu.patterns)
    assert len(random) < len(both) == model.n_patterns_
    np.testing.assert_array_equal(both.gates, fit.solution.problem.patterns.gates)
    # random gates suit a gated network better, and stay beside those of the ReLU network
    assert sampled.certificate_.lower_bound < model.certificate_.objective
    assert model.certificate_.objective <= sampled.certificate_.objective * (1 + 1e-4)
    # V - W is feasible for the gated program, so that its optimum is no higher
    assert model.certificate_.lower_bound <= relu.objective * (1 + 1e-12)
    assert model.certificate_.objective <= relu.objective * (1 + 1e-6)
    assert model.lambda_max_ == cvxnn.lambda_max(fit.solution.problem)
    assert not isinstance(model.history_[0], Round)


def test_a_warm_start_takes_fewer_rounds(quick_search):
    model = cvxnn.ReLURegressor(0.01, **QUICK, warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.set_params(alpha=0.009).fit(X, y)
    fresh = cvxnn.ReLURegressor(0.009, **QUICK).fit(X, y)
    assert model.n_iter_ <= min(cold, fresh.n_iter_)
    assert model.certificate_.objective == pytest.approx(fresh.certificate_.objective, rel=2e-2)
    model.fit(X[:, :2], y)  # neurons of other columns are of no use
    assert model.network_.n_features == 2
    gated = cvxnn.GatedReLURegressor(0.01, **QUICK, warm_start=True).fit(X, y)
    assert gated.fit(X, y).converged_
    sampled = cvxnn.ReLURegressor(0.01, warm_start=True).fit(X, y)
    assert sampled.set_params(**QUICK).fit(X, y).converged_


def test_an_interrupt_gives_the_best_so_far(quick_search, monkeypatch):
    monkeypatch.setattr(base, "IN_A_ROW", 0.0)
    for cls in (cvxnn.ReLURegressor, cvxnn.GatedReLURegressor):
        model = cls(1e-3, **QUICK)

        def interrupt(record):
            if record.n_round >= 2:
                raise KeyboardInterrupt

        with pytest.warns(ConvergenceWarning, match="it was interrupted"):
            fit = train(model, X, y, watch=Watch(on_round=interrupt))
        assert fit.solution.status is Status.INTERRUPTED
        assert not model.converged_
        assert model.certificate_.proven
        assert model.score(X, y) > 0.5
    slow = cvxnn.ReLURegressorCV(**QUICK_CV, scoring=_interrupting)
    with pytest.raises(KeyboardInterrupt):  # a choice of alpha needs all folds
        slow.fit(X, y)


def _interrupting(*_, **__):
    raise KeyboardInterrupt


def test_a_second_interrupt_ends_a_search(quick_search, monkeypatch):
    fits, fit_generated = [], base.fit_generated

    def interrupted(estimator, posed, watch, *rest):
        fits.append(estimator.alpha)
        return fit_generated(estimator, posed, Watch(on_round=_interrupting), *rest)

    monkeypatch.setattr(base, "fit_generated", interrupted)
    monkeypatch.setattr(base.NetworkEstimator, "_interrupted_at", -math.inf)
    grid = GridSearchCV(cvxnn.ReLURegressor(**QUICK), {"alpha": [0.1, 0.03]}, cv=2)
    with (
        pytest.warns(ConvergenceWarning, match="it was interrupted"),
        pytest.raises(KeyboardInterrupt),
    ):
        grid.fit(X, y)
    assert len(fits) == 2
    monkeypatch.setattr(base, "IN_A_ROW", 0.0)  # the next one comes much later
    with pytest.warns(ConvergenceWarning, match="it was interrupted"):
        grid.fit(X, y)
    assert len(fits) == 2 + 5


def test_a_time_limit_gives_the_best_so_far():
    model = cvxnn.ReLURegressor(1e-4, **GENERATE, tol=1e-9, max_seconds=0.3)
    with pytest.warns(ConvergenceWarning, match="raise max_seconds"):
        model.fit(X, y)
    assert model.certificate_.objective >= model.certificate_.lower_bound > 0
    assert np.isfinite(model.predict(X)).all()


def test_a_time_limit_covers_the_folds(quick_search, monkeypatch):
    rounds, limits, to = [], [], Steps.to

    def limited(steps, alpha, max_seconds):
        limits.append(max_seconds)
        solution, bound = to(steps, alpha, max_seconds)
        if len(limits) == 6:  # the third strength of the second fold takes too long
            solution = replace(solution, status=Status.TIME_LIMIT)
        return solution, bound

    monkeypatch.setattr(Steps, "to", limited)
    model = cvxnn.ReLURegressorCV(**QUICK_CV, max_seconds=100.0)
    with pytest.warns(ConvergenceWarning, match="chosen from the 2 largest alone"):
        train(model, X, y, watch=Watch(on_round=rounds.append))
    assert len(limits) == 6
    assert 50 < max(limits) <= 70
    assert model.cv_scores_.shape == model.cv_neurons_.shape == (2, 2)
    assert len(model.alphas_) == 2
    assert len(rounds) > len(model.history_)  # those of folds as well


def test_too_little_time_for_folds_is_an_error():
    model = cvxnn.ReLURegressorCV(**{**QUICK_CV, "tol": 1e-9}, max_seconds=1e-3)
    with pytest.raises(ValueError, match=r"max_seconds=0\.001 is too short to choose alpha"):
        model.fit(X, y)


# ---- bounds over all patterns -------------------------------------------------------------------


def test_one_input_is_proven_over_all_networks_of_any_width():
    x, target = X[:, :1], np.abs(X[:, 0]) + 0.1 * X[:, 1]
    model = cvxnn.ReLURegressor(0.01, **GENERATE, prove=True)
    fit = train(model, x, target)
    assert model.bound_.over_all_patterns
    assert model.bound_.scope == EXACT
    assert model.bound_.proven
    assert model.bound_.relative_gap <= 1e-4
    assert fit.bound.dual.shape == (60, 1)  # which the estimator does not keep
    # no network has less, over however many patterns
    other = cvxnn.ReLURegressor(0.01, n_patterns=500).fit(x, target)
    assert other.certificate_.objective >= model.bound_.lower_bound
    assert other.bound_.scope == GIVEN
    # the exact method is the quickest for one input, and its proof comes with it
    assert cvxnn.ReLURegressor(0.01, **GENERATE).fit(x, target).bound_.scope == EXACT
    classifier = cvxnn.ReLUClassifierCV(
        **GENERATE, prove="exact", cv=2, alphas=[0.1, 0.03], class_weight="balanced"
    ).fit(x, labels)
    assert classifier.bound_.scope == EXACT
    one = cvxnn.ReLURegressor(0.05, **GENERATE, prove=True, n_components=1).fit(X, y)
    assert one.bound_.scope.startswith(f"{EXACT} on the first principal component")
    assert one.bound_.over_all_patterns


def test_few_columns_are_proven_by_a_tree_of_cones():
    model = cvxnn.ReLUClassifier(0.05, **GENERATE, prove=True, max_seconds=30)
    model.fit(X[:, :2], labels)
    assert model.bound_.scope.startswith("all patterns (proven, price <= (1 + ")
    assert model.bound_.relative_gap <= 1e-3
    assert model.history_[-1].kind == "prove"
    sampled = cvxnn.ReLUClassifier(0.05, n_patterns=500).fit(X[:, :2], labels)
    assert sampled.certificate_.objective >= model.bound_.lower_bound


# ---- the strength of the penalty ----------------------------------------------------------------


def test_lambda_max_is_that_of_all_patterns_as_far_as_a_search_knows(quick_search):
    generated = cvxnn.ReLURegressor(0.1, **GENERATE).fit(X, y)
    sampled = cvxnn.ReLURegressor(0.1, n_patterns=500).fit(X, y)
    # more patterns can only raise it
    assert generated.lambda_max_ >= sampled.lambda_max_ * (1 - 1e-12)
    below = cvxnn.ReLURegressor(0.98 * generated.lambda_max_, **GENERATE, tol=1e-6).fit(X, y)
    assert below.network_.n_neurons > 0
    with pytest.warns(UserWarning, match="above which no search found a neuron that pays"):
        above = cvxnn.ReLURegressor(1.001 * generated.lambda_max_, **GENERATE).fit(X, y)
    assert above.network_.n_neurons == 0


def test_folds_generate_patterns_of_their_own_and_the_last_fit_starts_from_one(
    quick_search, monkeypatch
):
    starts = []
    original = programs.Generation.at

    def spy(self, lam, place=0, **limits):
        starts.append((self._neurons, lam))
        return original(self, lam, place, **limits)

    monkeypatch.setattr(programs.Generation, "at", spy)
    model = cvxnn.ReLURegressorCV(**QUICK_CV).fit(X, y)
    assert model.alphas_[0] < model.lambda_max_
    assert len(starts) == 2 * len(model.alphas_) + 1
    assert [neurons for neurons, _ in starts[:-1]] == [None] * (len(starts) - 1)
    assert starts[-1][1] == model.alpha_
    assert len(starts[-1][0].W) == model.cv_neurons_[0, model.best_index_]
    plain = cvxnn.ReLURegressor(model.alpha_, **QUICK).fit(X, y)
    assert model.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=2e-2)


# ---- what is refused, and what has no effect -----------------------------------------------------


def test_parameters_without_effect_are_warned_about(quick_search):
    for settings, name in (
        ({**QUICK, "n_patterns": 7}, "n_patterns"),
        ({**QUICK, "gates": cvxnn.SparseGates(1)}, "gates"),
        ({"prove": True, "n_patterns": 5}, "prove"),
    ):
        with pytest.warns(UserWarning, match=f"^{name} is given, but"):
            cvxnn.ReLURegressor(0.1, **settings).fit(X, y)
    with pytest.warns(UserWarning, match="prove is given.*for ReLU networks"):
        cvxnn.GatedReLURegressor(0.1, **QUICK, prove=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cvxnn.ReLURegressor(0.1, **QUICK).fit(X, y)


def test_what_cannot_be_generated_is_refused():
    with pytest.raises(ValueError, match="alpha must be positive with patterns='generate'"):
        cvxnn.ReLURegressor(0.0, **GENERATE).fit(X, y)
    with pytest.raises(ValueError, match="The 'patterns' parameter of ReLURegressor"):
        cvxnn.ReLURegressor(patterns="generated").fit(X, y)
    with pytest.raises(ValueError, match="The 'prove' parameter of ReLURegressor"):
        cvxnn.ReLURegressor(**GENERATE, prove="surely").fit(X, y)
    with pytest.raises(TooLargeError, match="to generate patterns on 60 rows"):
        cvxnn.GatedReLURegressor(**GENERATE, max_memory=1000).fit(X, y)


@pytest.mark.usefixtures("quick_search")
def test_a_proof_that_was_asked_for_and_cannot_be_had_is_a_warning():
    X, y = np.random.default_rng(0).standard_normal((60, 9)), np.arange(60) % 7
    with pytest.warns(UserWarning, match="nothing is proven over all patterns: rows span"):
        model = cvxnn.ReLURegressor(0.01, **GENERATE, prove=True).fit(X, y)
    assert not model.bound_.over_all_patterns
