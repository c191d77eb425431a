"""Models of tables: files give back what was saved, to the last bit; what they claim is confirmed
if it is true and not if somebody has changed it; and files of any other content are refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import cvxnn
from cvxnn import ModelFileError, Patterns, SparseGates, modelfile
from cvxnn.estimators.base import posed_program
from cvxnn.networks import NETWORKS
from cvxnn.tables.estimation import scores
from cvxnn.tables.model import Model
from cvxnn.tables.paths import fit_path, pose
from cvxnn.tables.preparation import fingerprint_of
from cvxnn.tables.table import Table, TableError

N = 60
QUICK = {"alpha": 0.02, "n_patterns": 12}


def make_table(target, *, missing=False, weights=False, seed=0, n=N):
    """Rows with three columns of numbers and one of texts, and a target that depends on them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    city = rng.choice(["Lima", "Oslo", "Rome"], n)
    value = np.abs(X[:, 0]) - X[:, 1] + (city == "Oslo") + 0.1 * rng.standard_normal(n)
    targets = {
        "two": np.where(value > np.median(value), "yes", "no").astype(object),
        "three": np.array(["low", "mid", "top"])[np.digitize(value, [0, 1.5])].astype(object),
        "number": 10 + 3 * value,
    }
    columns = {name: X[:, k].copy() for k, name in enumerate("abc")}
    columns["city"] = city.astype(object)
    columns["y"] = targets[target]
    if missing:
        columns["a"][::7] = np.nan
        columns["city"][::9] = None
        columns["y"][5] = None if target != "number" else np.nan
    if weights:
        columns["w"] = rng.integers(0, 4, n).astype(float)
    return Table(columns, "data.csv")


FOLDS = {"alpha": None, "cv": 2, "n_alphas": 3}
CASES = {
    "two classes": ({"target": "two"}, {}),
    "three classes": ({"target": "three"}, {}),
    "numbers": ({"target": "number"}, {}),
    "two classes, gated": ({"target": "two"}, {"kind": "gated"}),
    "three classes, gated": ({"target": "three"}, {"kind": "gated"}),
    "numbers, gated": ({"target": "number"}, {"kind": "gated"}),
    "missing values": ({"target": "three", "missing": True}, {}),
    "missing numbers": ({"target": "number", "missing": True}, {}),
    "weights": ({"target": "two", "weights": True}, {"weight": "w"}),
    "weighted numbers": ({"target": "number", "weights": True}, {"weight": "w"}),
    "cross-validation": ({"target": "two"}, {"alpha": None, "cv": 2, "n_alphas": 3}),
    "cross-validated numbers": ({"target": "number"}, {"alpha": None, "cv": 2, "n_alphas": 3}),
    "squared loss": ({"target": "two"}, {"loss": "squared"}),
    "huber": ({"target": "number"}, {"loss": "huber"}),
    "no intercepts": ({"target": "two"}, {"fit_intercept": False}),
    "not scaled": ({"target": "number"}, {"scale": False}),
    "components": ({"target": "three"}, {"n_components": 4}),
    "components, gated": ({"target": "two"}, {"kind": "gated", "n_components": 3}),
    "components of weighted rows": (
        {"target": "number", "weights": True},
        {"weight": "w", "n_components": 3, "scale": False, "alpha": None, "cv": 2, "n_alphas": 3},
    ),
    "mean of folds": ({"target": "two"}, {"ensemble": "folds", **FOLDS}),
    "mean of folds, three classes": (
        {"target": "three", "weights": True},
        {"ensemble": "folds", "class_weight": "balanced", "weight": "w", "kind": "gated", **FOLDS},
    ),
    "mean of folds on components": (
        {"target": "number", "missing": True},
        {"ensemble": "folds", "n_components": 3, **FOLDS},
    ),
    "mean of variants": ({"target": "number", "n": 100}, {"ensemble": "variants", **FOLDS}),
    "nothing held out": ({"target": "two"}, {"holdout": 0.0}),
    "zero network": ({"target": "two"}, {"alpha": 1e3}),
}
MEANS = [case for case in CASES if "ensemble" in CASES[case][1]]
each_case = pytest.mark.parametrize("case", CASES)
each_single = pytest.mark.parametrize("case", [case for case in CASES if case not in MEANS])
each_mean = pytest.mark.parametrize("case", MEANS)


@cache
def table_of(case):
    return make_table(**CASES[case][0])


@cache
def model_of(case):
    with np.errstate(all="raise"):
        return fit(table_of(case), **CASES[case][1])


def fit(table, target="y", **settings):
    if settings.get("alpha", 0) == 1e3:
        with pytest.warns(UserWarning, match="all neurons are zero"):
            return Model.fit(table, target, **QUICK | settings)
    return Model.fit(table, target, **QUICK | settings)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cvxnn"


def through_file(model, path):
    model.save(path)
    return Model.load(path)


# ------------------------------------------------------------------------------ round trip


@each_case
def test_a_model_comes_back_to_the_last_bit(case, path):
    model, table = model_of(case), table_of(case)
    again = through_file(model, path)
    for name in model.network.arrays:
        saved, read = getattr(model.network, name), getattr(again.network, name)
        assert (saved is None) == (read is None)
        assert saved is None or saved.tobytes() == read.tobytes()
    for name in ("encoder", "target", "fingerprint", "scores", "notes", "versions", "certificate"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(model.bits.mask(), again.bits.mask())
    for name in ("rows", "dual"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    saved, read = model.estimator, again.estimator
    assert type(read) is type(saved)
    assert read.get_params() == saved.get_params()
    names = {name for name in vars(saved) if name.endswith("_")} - {"scorer_"}
    assert names <= set(vars(read))
    for name in names - {"network_", "bound_", "members_"}:
        np.testing.assert_array_equal(getattr(read, name), getattr(saved, name))
    assert repr(read.bound_) == repr(saved.bound_)
    predicted, notes = model.predictions(table)
    predicted_again, notes_again = again.predictions(table)
    assert list(predicted) == list(predicted_again)
    assert notes == notes_again
    for name, values in predicted.items():
        np.testing.assert_array_equal(predicted_again[name], values)
    second = path.with_name("second.cvxnn")
    again.save(second)
    assert second.read_bytes() == path.read_bytes()


def test_the_same_seed_gives_the_same_file(path):
    table = table_of("two classes")
    files = []
    for seed in (3, 3, 4):
        fit(table, seed=seed).save(path)
        content = modelfile.read(path, NETWORKS)
        history = content.arrays.pop("history")[:, [0, 2, 3, 4]]  # without the seconds
        files.append((content.network.W1.tobytes(), history.tobytes(), content.arrays["rows"]))
    assert files[0][:2] == files[1][:2] != files[2][:2]
    assert (files[0][2] == files[1][2]).all()
    assert (files[0][2] != files[2][2]).any()


def test_parameters_that_are_no_data_are_not_kept(path):
    model = fit(
        table_of("two classes"),
        gates=SparseGates(2),
        n_patterns=np.int64(9),
        class_weight={"yes": 2.0},
    )
    again = through_file(model, path)
    assert again.estimator.gates is None
    assert again.estimator.n_patterns == 9
    assert again.estimator.class_weight == {"yes": 2.0}
    assert again.verify(table_of("two classes")).agrees


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_learned_scales_are_kept_and_certified(kind, path):
    table = table_of("two classes")
    model = fit(table, kind=kind, feature_scaling="learned")
    again = through_file(model, path)
    np.testing.assert_array_equal(again.estimator.column_factors_, model.numbers.factors)
    assert again.certificate.scope.endswith("on columns in learned scales")
    assert again.verify(table).agrees
    other = replace(again, numbers=replace(again.numbers, factors=None))
    found = other.verify(table)  # the same program, but its scope is another
    assert not found.agrees


# ------------------------------------------------------------------------ means of networks


@each_mean
def test_each_network_of_a_mean_comes_back_and_is_confirmed(case, path):
    model, table = model_of(case), table_of(case)
    again = through_file(model, path)
    assert len(again.members) == len(model.members) > 2
    for ours, read in zip(model.members, again.members, strict=True):
        for name in ("W1", "b1", "W2", "b2"):
            np.testing.assert_array_equal(getattr(ours.network, name), getattr(read.network, name))
        assert (ours.certificate, ours.share, ours.alpha) == (
            read.certificate,
            read.share,
            read.alpha,
        )
    assert again.estimator.members_[1].n_rows == model.estimator.members_[1].n_rows
    found = again.verify(table)
    for one, member in zip((found, *found.others), again.members, strict=True):
        assert one.agrees, one
        assert one.objective == pytest.approx(member.certificate.objective, rel=1e-9)
        assert one.lower_bound == pytest.approx(member.certificate.lower_bound, rel=1e-9)
    X = model.encoder.encode(table)[0]
    outputs = [member.share * member.network.predict(X) for member in again.members]
    np.testing.assert_allclose(again.network.predict(X), np.sum(outputs, axis=0), rtol=1e-10)


def test_a_program_of_a_fold_has_the_rows_that_it_trained_on(path):
    """A bound of a member, by the objective of its network that other code computes from the rows
    of the table."""
    model, table = through_file(model_of("mean of folds"), path), table_of("mean of folds")
    X, y, _ = model.training_rows(table)
    tested = np.zeros(len(y), dtype=int)
    for member in model.members[1:]:
        tested += ~np.isin(np.arange(len(y)), member.places)
        network, rows = member.network, X[member.places]
        loss = np.mean(
            np.logaddexp(0, -np.where(y == "yes", 1, -1) * network.predict(X))[member.places]
        )
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        first = np.column_stack([network.W1 * spread, network.b1 + network.W1 @ mean])
        sizes = np.linalg.norm(first, axis=1) * np.abs(network.W2[:, 0])
        objective = loss + member.alpha * sizes.sum()
        assert objective == pytest.approx(member.certificate.objective, rel=1e-9)
    np.testing.assert_array_equal(tested, 1)  # every row is held out by one fold


def with_array(name, make):
    def change(network, description, arrays):
        arrays[name] = make(arrays[name])

    return change


def other_fold(network, description, arrays):
    arrays["member1_places"] = 1 - arrays["member1_places"]


def better_member(network, description, arrays):
    description["members"][2]["certificate"]["lower_bound"] *= 1.01


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (with_array("member1_dual", lambda dual: 0.5 * dual), "lower_bound"),
        (with_array("member2_row_weight", lambda weight: weight[::-1] * 1.1), "row weights"),
        (with_array("member1_column_spread", lambda spread: 2 * spread), "column spreads"),
        (better_member, "lower_bound"),
        (other_fold, "objective"),
    ],
)
def test_a_false_claim_of_one_network_of_a_mean_is_not_confirmed(change, differs, path):
    table = table_of("mean of folds")
    found = tampered(model_of("mean of folds"), path, change).verify(table)
    assert not found.agrees
    assert found.verdict == "NOT confirmed"
    assert not found.differences
    assert any(differs in text for other in found.others for text in other.differences)


def first_certificate(network, description, arrays):
    description["certificate"]["lower_bound"] = description["certificate"]["objective"]


def converged(network, description, arrays):
    description["members"][1]["converged"] = False


def shares(network, description, arrays):
    description["members"][1]["share"] *= 1.5


def fewer(network, description, arrays):
    del description["members"][-1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_array("members_W2", lambda W2: W2 * 1.01), "not the mean of its members"),
        (with_array("members_b2", lambda b2: b2 + 0.1), "not the mean of its members"),
        (with_array("member1_places", lambda places: places + 1), "places must hold 0 and 1"),
        (shares, "not the mean of its members"),
        (fewer, "members_W2 has dtype"),
        (first_certificate, "not that of the first"),
        (converged, "converged is not what is said"),
    ],
)
def test_files_that_contradict_their_mean_are_refused(change, why, path):
    with pytest.raises(ModelFileError, match=why):
        tampered(model_of("mean of folds"), path, change)


def test_files_from_before_ensembles_are_read(path):
    """They have a parameter that is no more, and that was never set in a file."""
    case = "cross-validation"
    model = tampered(model_of(case), path, with_parameter(average=False))
    assert model.verify(table_of(case)).agrees
    assert model.estimator.ensemble is None


def test_a_mean_is_neither_pruned_nor_improved():
    model, table = model_of("mean of folds"), table_of("mean of folds")
    assert "networks whose mean" in repr(model)
    for change in (model.prune, model.improve):
        with pytest.raises(ValueError, match=r"mean of 3 networks, .* train it without ensemble"):
            change(table)
    with pytest.raises(TypeError, match="with alpha there are none"):
        Model.fit(table, "y", alpha=0.1, ensemble="folds")


# ----------------------------------------------------------------------------- predictions


@each_case
def test_predictions_are_those_of_the_estimator(case):
    model, table = model_of(case), table_of(case)
    X, _ = model.encoder.encode(table)
    columns, _ = model.predictions(table)
    np.testing.assert_array_equal(columns.pop("prediction"), model.estimator.predict(X))
    if model.task == "regression" or model.estimator.loss == "squared":
        assert columns == {}
        return
    assert list(columns) == [f"probability_{label}" for label in model.target.classes]
    probabilities = np.column_stack(list(columns.values()))
    np.testing.assert_array_equal(probabilities, model.estimator.predict_proba(X))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)


def test_columns_in_another_order_and_further_ones_do_not_matter():
    model, table = model_of("missing values"), table_of("missing values")
    turned = {"new": np.zeros(N), **{name: table.columns[name] for name in reversed(table.names)}}
    expected = model.predictions(table)[0]
    without_target = {name: values for name, values in turned.items() if name != "y"}
    for columns in (turned, without_target):
        found = model.predictions(Table(columns))[0]
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)


def test_rows_are_predicted_one_by_one():
    model, table = model_of("three classes"), table_of("three classes")
    backwards = np.arange(N)[::-1]
    expected, found = model.predictions(table)[0], model.predictions(table.select(backwards))[0]
    for name, values in expected.items():
        found_values = found[name][::-1]
        if name == "prediction":
            np.testing.assert_array_equal(found_values, values)
        else:
            np.testing.assert_allclose(found_values, values, rtol=1e-12)


def test_missing_columns_and_unseen_categories_are_named():
    model, table = model_of("two classes"), table_of("two classes")
    less = Table({name: v for name, v in table.columns.items() if name not in "ab"}, "new.csv")
    with pytest.raises(TableError, match=r"new.csv lacks the columns 'a', 'b'"):
        model.predictions(less)
    city = table.columns["city"].copy()
    city[4] = "Bonn"
    columns, notes = model.predictions(Table({**table.columns, "city": city}))
    assert len(columns["prediction"]) == N
    assert len(notes) == 1
    assert "'Bonn' in row 5" in notes[0]


# ----------------------------------------------------------------------------------- target


@pytest.mark.filterwarnings("ignore::cvxnn.tables.notes.TableWarning")
@pytest.mark.parametrize(
    ("values", "task", "expected"),
    [
        (["a", "b"] * 30, None, ("a", "b")),
        (["1", "2", "3"] * 20, None, ("1", "2", "3")),
        (["1", "1.0", "2"] * 20, None, ("1", "2")),
        ([0.0, 1.0] * 30, None, ("0", "1")),
        (["0", "1"] * 30, "regression", None),
        ([f"{k}" for k in range(60)], None, None),
        (["0.5", "1.5"] * 30, None, None),
        (["0.5", "1.5"] * 30, "classification", ("0.5", "1.5")),
        ([f"{k % 12}" for k in range(60)], None, None),  # more whole numbers than classes have
        (["True", "False"] * 30, None, ("False", "True")),
    ],
)
def test_the_task_is_told_by_the_target(values, task, expected, path):
    dtype = float if isinstance(values[0], float) else object
    table = Table({"x": np.arange(60.0), "y": np.array(values, dtype=dtype)})
    model = through_file(Model.fit(table, "y", task=task, alpha=1e-4, n_patterns=5), path)
    assert model.target.classes == expected
    predictions = model.predictions(table)[0]["prediction"]
    if expected is None:
        assert predictions.dtype == float
    else:
        assert set(predictions) <= set(expected)


def test_scores_are_what_they_are_called():
    model, table = model_of("numbers"), table_of("numbers")
    predictions, y = model.predictions(table)[0]["prediction"], table.numbers("y")
    for part, label in ((0, "training"), (1, "held out")):
        error = (predictions - y)[model.rows == part]
        spread = (y - y[model.rows == part].mean())[model.rows == part]
        expected = {
            "rmse": np.sqrt(np.mean(error**2)),
            "r2": 1 - np.sum(error**2) / np.sum(spread**2),
        }
        assert model.scores[label] == pytest.approx(expected, rel=1e-10)
    model, table = model_of("two classes"), table_of("two classes")
    columns, y = model.predictions(table)[0], table.texts("y")
    for part, label in ((0, "training"), (1, "held out")):
        rows = model.rows == part
        chosen = np.where(y == "yes", columns["probability_yes"], columns["probability_no"])[rows]
        expected = {
            "accuracy": np.mean(columns["prediction"][rows] == y[rows]),
            "log_loss": -np.mean(np.log(chosen)),
        }
        assert model.scores[label] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_scores_of_extreme_targets(size):
    class Twice(RegressorMixin, BaseEstimator):
        def predict(self, X):
            return 2 * X[:, 0]

    y = size * np.array([1.0, -2.0, 3.0])
    found = scores(Twice(), y[:, None], y)
    assert found["rmse"] == pytest.approx(size * np.sqrt(14 / 3), rel=1e-12)
    assert found["r2"] == pytest.approx(1 - 14 / (14 - 4 / 3), rel=1e-12)


# --------------------------------------------------------------------------------- held out


@each_case
def test_held_out_rows(case):
    model, table = model_of(case), table_of(case)
    share = CASES[case][1].get("holdout", 0.2)
    y = table.columns["y"]
    present = ~table.missing("y")
    if model.target.weight:
        present &= table.numbers("w") > 0
    assert np.array_equal(model.rows == 2, ~present)
    assert np.sum(model.rows == 1) == round(share * present.sum())
    if model.target.classes is not None:
        for label in model.target.classes:
            held_out = np.mean(y[model.rows == 1] == label) if share else 0
            assert share == 0 or abs(held_out - np.mean(y[present] == label)) < 0.06  # stratified
    assert set(model.scores) == ({"training", "held out"} if share else {"training"})


def test_rare_classes_are_trained_on():
    labels = np.array(["a"] * 40 + ["b"] * 18 + ["rare", "once"], dtype=object)
    table = Table({"x": np.arange(60.0), "y": labels})
    for seed in range(5):
        model = Model.fit(table, "y", alpha=0.1, n_patterns=5, seed=seed)
        assert set(labels[model.rows == 0]) == {"a", "b", "rare", "once"}


def test_a_weight_is_a_repeated_row(path):
    table = table_of("weights")
    weights = table.numbers("w").astype(int)
    repeated = table.select(np.repeat(np.arange(N), weights))
    del repeated.columns["w"]
    by_weight = fit(table, weight="w", holdout=0.0)
    by_row = fit(repeated, holdout=0.0)
    for name in by_row.network.arrays:
        np.testing.assert_array_equal(
            getattr(by_weight.network, name), getattr(by_row.network, name)
        )
    assert by_weight.scores["training"] == pytest.approx(by_row.scores["training"], rel=1e-12)


def test_a_class_of_weight_zero_is_none(path):
    table = make_table("three")
    weights = np.where(table.columns["y"] == "mid", 0.0, 1.0)
    table = Table({**table.columns, "w": weights}, "data.csv")
    model = through_file(fit(table, weight="w"), path)
    assert model.target.classes == ("low", "top")
    assert model.notes == (
        f"{int(np.sum(weights == 0))} rows left out because the weight 'w' is 0, the first is row "
        f"{int(np.argmin(weights)) + 1}",
    )
    assert model.verify(table).agrees


# ------------------------------------------------------------------------------ the same rows


@each_case
def test_honest_files_are_confirmed(case, path):
    model, table = through_file(model_of(case), path), table_of(case)
    found = model.verify(table)
    assert found.agrees, found
    assert found.objective == pytest.approx(model.certificate.objective, rel=1e-9)
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    assert found.relative_gap <= 1e-4 or not model.estimator.converged_


def changed(table, name, row, value):
    values = table.columns[name].copy()
    values[row] = value
    return Table({**table.columns, name: values}, "other.csv")


def test_other_data_are_refused(path):
    model, table = through_file(model_of("weights"), path), table_of("weights")
    trained = int(np.flatnonzero(model.rows == 0)[0])
    others = {
        "a number": changed(table, "a", trained, 0.123),
        "a text": changed(table, "city", trained, "Bonn"),
        "a label": changed(
            table, "y", trained, {"yes": "no", "no": "yes"}[table.columns["y"][trained]]
        ),
        "a weight": changed(table, "w", trained, 9.0),
        "the order": replace(table.select(np.arange(N)[::-1]), source="other.csv"),
    }
    for other in others.values():
        for use in (model.verify, model.prune, model.improve):
            with pytest.raises(TableError, match=r"^other.csv .*training rows are different"):
                use(other)
    with pytest.raises(TableError, match=r"has 59 rows, but the model was trained on .* with 60"):
        model.verify(table.select(np.arange(59)))
    with pytest.raises(TableError, match=r"column 'y', row \d+: 'other' is not a known label"):
        model.verify(changed(table, "y", trained, "other"))
    with pytest.raises(TableError, match=r"column 'y', row \d+: the label is missing"):
        model.verify(changed(table, "y", trained, None))


def test_rows_that_were_not_trained_on_may_change(path):
    model, table = through_file(model_of("two classes"), path), table_of("two classes")
    held_out = int(np.flatnonzero(model.rows == 1)[0])
    assert model.verify(changed(table, "a", held_out, 0.123)).agrees


# ---------------------------------------------------------------------------------- tampering


def tampered(model, path, change):
    """The model of a file in which somebody has changed something, and the checksum with it."""
    model.save(path)
    content = modelfile.read(path, NETWORKS)
    description, arrays = copy.deepcopy(content.description), dict(content.arrays)
    network = change(content.network, description, arrays) or content.network
    modelfile.write(modelfile.Content(network, description, arrays), path)
    return Model.load(path)


def with_certificate(**factors):
    def change(network, description, arrays):
        for name, factor in factors.items():
            description["certificate"][name] *= factor

    return change


def with_fitted(name, factor):
    def change(network, description, arrays):
        description["fitted"][name] *= factor

    return change


def with_dual(make):
    def change(network, description, arrays):
        arrays["dual"] = make(arrays["dual"])

    return change


def with_network(**parts):
    def change(network, description, arrays):
        return replace(
            network, **{name: make(getattr(network, name)) for name, make in parts.items()}
        )

    return change


def with_parameter(**values):
    def change(network, description, arrays):
        description["parameters"] |= values

    return change


def without_multipliers(arrays):
    for name in [name for name in arrays if name.startswith("multiplier")]:
        del arrays[name]


def with_fewer_patterns(network, description, arrays):
    arrays["mask"] = arrays["mask"][:, 1:]
    description["fitted"]["n_patterns"] -= 1
    without_multipliers(arrays)


def with_other_patterns(network, description, arrays):
    arrays["mask"] = arrays["mask"] ^ 255


def with_another_scope(network, description, arrays):
    description["certificate"]["scope"] = "all networks whatever"


def with_a_network_less(network, description, arrays):
    return replace(network, W1=network.W1[:-1], b1=network.b1[:-1], W2=network.W2[:-1])


TAMPERED = {
    "objective lowered": with_certificate(objective=0.99),
    "lower bound raised": with_certificate(lower_bound=1.01),
    "bounds meet": with_certificate(objective=0.9999, lower_bound=1.0001),
    "zero objective": with_certificate(zero_objective=2.0),
    "scope": with_another_scope,
    "dual is zero": with_dual(np.zeros_like),
    "dual is noise": with_dual(lambda d: np.random.default_rng(0).standard_normal(d.shape)),
    "dual is turned": with_dual(lambda d: -d),
    "dual of other rows": with_dual(lambda d: np.roll(d, 1, axis=0)),
    "first layer": with_network(W1=lambda W1: 1.2 * W1),
    "second layer": with_network(W2=lambda W2: 0.9 * W2),
    "hidden bias": with_network(b1=lambda b1: b1 + 0.1),
    "output bias": with_network(b2=lambda b2: b2 + 0.1),
    "network of another sign": with_network(W2=lambda W2: -W2),
    "a neuron is missing": with_a_network_less,
    "alpha raised": with_fitted("alpha", 1.5),
    "alpha lowered": with_fitted("alpha", 0.5),
    "other patterns": with_other_patterns,
    "fewer patterns": with_fewer_patterns,
    "other loss": with_parameter(loss="squared"),
    "not scaled": with_parameter(scale=False),
    "class weights": with_parameter(class_weight={"yes": 3.0}),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_tampered_files_are_not_confirmed(change, path):
    table = table_of("two classes")
    found = tampered(model_of("two classes"), path, change).verify(table)
    assert not found.agrees
    assert found.differences


@pytest.mark.parametrize("case", ["numbers", "three classes", "numbers, gated"])
@pytest.mark.parametrize(
    "change",
    [TAMPERED[name] for name in ("objective lowered", "lower bound raised", "dual is noise")],
    ids=["objective", "lower bound", "dual"],
)
def test_tampered_files_of_other_kinds_are_not_confirmed(case, change, path):
    assert not tampered(model_of(case), path, change).verify(table_of(case)).agrees


def turned(Q):
    other = np.roll(Q, 1, axis=0)
    return np.linalg.qr(other)[0]


def off_the_components(network, description, arrays):
    """Weights that no row of the program sees."""
    Q, spread = arrays["components"], arrays["column_spread"]
    outside = np.eye(len(Q))[0] - Q @ Q[0]
    return replace(network, W1=network.W1 + outside / spread)


def with_array(name, make):
    def change(network, description, arrays):
        arrays[name] = make(arrays[name])

    return change


TAMPERED_COMPONENTS = {
    "others": (with_array("components", turned), "components in the file are not the leading"),
    "longer": (with_array("components", lambda Q: 1.1 * Q), "are not orthonormal"),
    "variance": (with_array("component_variance", lambda v: v * [1.05, 1.0]), "variances in the"),
    "scope": (with_array("component_variance", lambda v: v * [1.05, 1.0]), "scope: claimed"),
    "network": (off_the_components, "depends on more than the components"),
}


@pytest.mark.parametrize("case", ["components", "components, gated"])
@pytest.mark.parametrize(
    ("change", "reason"), TAMPERED_COMPONENTS.values(), ids=TAMPERED_COMPONENTS
)
def test_tampered_components_are_not_confirmed(case, change, reason, path):
    found = tampered(model_of(case), path, change).verify(table_of(case))
    assert not found.agrees
    assert any(reason in difference for difference in found.differences), found.differences


@pytest.mark.parametrize(
    "change",
    [
        lambda d, a: a.pop("components"),
        lambda d, a: a.pop("component_variance"),
        lambda d, a: a.update(components=a["components"][:, 1:]),
        lambda d, a: a.update(components=a["components"] * np.nan),
        lambda d, a: a.update(component_variance=a["component_variance"][::-1].copy()),
        lambda d, a: d["parameters"].update(n_components=2),
        lambda d, a: d["parameters"].update(n_components="3"),
    ],
)
def test_files_with_damaged_components_are_refused(change, path):
    model_of("components").save(path)
    content = modelfile.read(path, NETWORKS)
    change(content.description, content.arrays)
    modelfile.write(content, path)
    with pytest.raises(ModelFileError):
        Model.load(path)


@pytest.mark.parametrize("case", ["two classes", "two classes, gated"])
def test_bounds_of_other_patterns_are_not_confirmed(case, path):
    """A forgery in which every number is right: patterns that are poor, the dual point that belongs
    to them, and a network whose objective is just what it proves."""
    model, table = model_of(case), table_of(case)
    problem = posed_program(
        model.estimator, *model.training_rows(table), model.estimator.alpha_
    ).problem
    rows = np.random.default_rng(0).permutation(model.bits.n)[:2]
    poor = np.zeros(model.bits.shape, dtype=bool)
    poor[rows] = True
    poor[rows[0], 1:] = np.arange(poor.shape[1] - 1) % 2 == 0
    X = problem.operator.rows()[:, :-1]  # without the column of ones
    other = type(problem)(
        X,
        problem.loss.Y,
        Patterns(poor),
        model.estimator.alpha_,
        bias=True,
        output_bias=True,
        loss=problem.loss_name,
        sample_weight=np.asarray(problem.loss.row_weight)[:, 0],
        **({"singular": "keep"} if problem.kind == "C-ReLU" else {}),
    )
    dual = cvxnn.solve(other, tol=1e-6).dual
    claim = model.verify(table)

    def forged(share):
        def change(network, description, arrays):
            arrays["dual"] = dual
            without_multipliers(arrays)
            arrays["mask"] = np.packbits(poor, axis=0)
            description["certificate"] |= {
                "objective": claim.objective,
                "network_objective": claim.network_objective,
                "lower_bound": claim.lower_bound,
                "scope": claim.scope,
            }
            return replace(network, W2=share * network.W2)

        return tampered(model, path, change).verify(table)

    low, high = 0.0, 0.8
    for _ in range(30):
        share = (low + high) / 2
        claim = forged(share)
        low, high = (low, share) if claim.lower_bound > claim.objective else (share, high)
    claim = forged(low)
    found = forged(low)
    assert 0.999 * found.objective < found.lower_bound <= found.objective
    assert found.objective > 1.001 * model.certificate.objective
    assert [text.split(":")[0] for text in found.differences] == ["patterns"]
    assert "have a pattern that is not one of the program's" in found.differences[0]


def test_claims_that_are_weaker_than_the_truth_are_true(path):
    change = with_certificate(objective=1.01, lower_bound=0.99)
    model = tampered(model_of("two classes"), path, change)
    assert model.verify(table_of("two classes")).agrees


def test_rows_of_another_choice_are_refused(path):
    def other_rows(network, description, arrays):
        arrays["rows"] = np.roll(arrays["rows"], 1)

    model = tampered(model_of("two classes"), path, other_rows)
    with pytest.raises(TableError, match="training rows are different"):
        model.verify(table_of("two classes"))


def test_another_fingerprint_does_not_help(path):
    """Rows and fingerprint changed together: the bounds do not hold for other rows."""
    table = table_of("two classes")
    rows = np.roll(model_of("two classes").rows, 1)

    def other_rows(network, description, arrays):
        arrays["rows"] = rows.astype(np.uint8)
        some = table.select(rows == 0)
        model = model_of("two classes")
        part = model.encoder.encode(some)[0], model.target.values(some), None
        description["fingerprint"] = fingerprint_of(*part)

    model = tampered(model_of("two classes"), path, other_rows)
    assert not model.verify(table).agrees  # no network has these patterns on the other rows
    gated = tampered(model_of("two classes, gated"), path, other_rows)
    assert not gated.verify(table).agrees


# ------------------------------------------------------------------------- prune and improve


@each_single
def test_pruning_keeps_its_promises(case, path):
    model, table = model_of(case), table_of(case)
    smaller = through_file(model.prune(table), path)
    assert smaller.network.n_neurons <= model.network.n_neurons
    trained = table.select(model.rows == 0)
    before, after = model.predictions(trained)[0], smaller.predictions(trained)[0]
    for name, values in before.items():
        if values.dtype == float:
            np.testing.assert_allclose(after[name], values, rtol=1e-6, atol=1e-8)
        else:
            np.testing.assert_array_equal(after[name], values)
    assert smaller.scores["training"] == pytest.approx(model.scores["training"], rel=1e-6)
    found = smaller.verify(table)
    assert found.agrees, found
    assert found.objective <= model.certificate.objective * (1 + 1e-8)


def test_pruning_drops_neurons_that_are_there_twice(path):
    model, table = model_of("two classes"), table_of("two classes")
    network = model.network
    doubled = replace(
        network,
        W1=np.concatenate([network.W1] * 2) / np.sqrt(2),
        b1=np.concatenate([network.b1] * 2) / np.sqrt(2),
        W2=np.concatenate([network.W2] * 2) / np.sqrt(2),
    )
    twice = model._with_network(doubled, table)
    assert twice.verify(table).agrees
    assert twice.prune(table).network.n_neurons <= network.n_neurons


@each_single
def test_improving_keeps_its_promises(case, path):
    model, table = model_of(case), table_of(case)
    better = through_file(model.improve(table, n_patterns=5), path)
    found = better.verify(table)
    assert found.agrees, found
    assert found.objective <= model.certificate.objective * (1 + 1e-8)
    assert better.certificate.objective == pytest.approx(found.objective, rel=1e-8)
    assert better.estimator.converged_
    assert better.certificate.relative_gap <= 1e-4
    assert better.rows.tolist() == model.rows.tolist()
    assert set(better.scores) == set(model.scores)


def test_improving_at_another_strength():
    model, table = model_of("two classes"), table_of("two classes")
    better = model.improve(table, alpha=0.1)
    assert better.estimator.alpha_ == 0.1
    assert better.verify(table).agrees
    assert better.network.n_neurons < model.network.n_neurons


# ------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("case", ["two classes", "numbers", "three classes, gated"])
def test_paths_of_tables(case):
    options = {name: v for name, v in CASES[case][1].items() if name == "kind"}
    found = fit_path(table_of(case), "y", n_alphas=4, eps=0.05, n_patterns=12, **options)
    assert [point["alpha"] for point in found.points] == found.path.lams.tolist()
    assert found.points[0]["neurons"] == 0
    assert found.points[-1]["neurons"] > 0
    for point in found.points:
        assert point["lower_bound"] <= point["objective"]
        assert point["relative_gap"] <= 1e-4
    name = "training_rmse" if case == "numbers" else "training_log_loss"
    assert found.points[0][name] > found.points[-1][name]
    last = fit(table_of(case), alpha=found.points[-1]["alpha"], **options)
    assert last.certificate.objective == pytest.approx(found.points[-1]["objective"], rel=2e-4)


def test_a_class_that_the_rows_do_not_have_is_refused():
    model = model_of("two classes")
    estimator = copy.copy(model.estimator)
    estimator.classes_ = np.array([*model.estimator.classes_, "zz"])
    with pytest.raises(ModelFileError, match="classes are not those of its rows"):
        replace(model, estimator=estimator).verify(table_of("two classes"))


def test_a_model_says_how_its_run_ended(path):
    model = model_of("two classes")
    assert model.status is cvxnn.Status.CONVERGED
    assert through_file(model, path).status is None  # which is about a run, not about a model
    assert not hasattr(model.estimator, "solution_")


def test_the_posed_problem_is_that_of_a_fit():
    table = table_of("two classes")
    problem = pose(table, "y", alpha=0.02, n_patterns=12)
    model = fit(table, holdout=0.0)
    np.testing.assert_array_equal(problem.patterns.mask, model.bits.mask())
    solution = cvxnn.solve(problem, tol=model.estimator.tol)
    np.testing.assert_array_equal(solution.dual, model.dual)


# ------------------------------------------------------------------------------ hostile files


def put(*place_and_value):
    *places, name, value = place_and_value

    def change(description, arrays):
        target = description
        for place in places:
            target = target[place]
        target[name] = value

    return change


def drop(*places):
    def change(description, arrays):
        target = description
        for place in places[:-1]:
            target = target[place]
        del target[places[-1]]

    return change


def array(name, make):
    def change(description, arrays):
        arrays[name] = make(arrays[name])

    return change


def lose(name):
    return lambda description, arrays: arrays.pop(name)


WORDS = ("estimator", "parameters", "fitted", "certificate", "columns", "target", "fingerprint")
NUMBERS = [
    *(("fitted", name) for name in ("alpha", "lambda_max", "n_iter", "n_patterns", "n_dual_rows")),
    *(("certificate", name) for name in ("objective", "lower_bound", "zero_objective")),
    ("fitted", "best_index"),
]
NO_NUMBERS = {
    "text": "1",
    "null": None,
    "list": [1],
    "object": {},
    "NaN": float("nan"),
    "infinity": float("inf"),
    "negative": -1,
    "huge": 10**400,
}
HOSTILE = {
    **{f"no {name}": drop(name) for name in (*WORDS, "scores", "notes", "versions")},
    **{f"{name} is null": put(name, None) for name in (*WORDS, "scores", "notes", "versions")},
    **{f"{name} is a number": put(name, 7) for name in (*WORDS, "scores", "notes", "versions")},
    **{f"{name} is a list": put(name, [7]) for name in (*WORDS, "scores", "versions")},
    **{
        f"{name} is {what}": put(*place, name, value)
        for *place, name in NUMBERS
        for what, value in NO_NUMBERS.items()
        if (what, *place, name) != ("huge", "fitted", "n_iter")  # so be it
        if (what, *place) != ("negative", "certificate")
    },
    "unknown estimator": put("estimator", "MLPClassifier"),
    "private estimator": put("estimator", "_NetworkEstimator"),
    "a function": put("estimator", "path"),
    "estimator of another task": put("estimator", "ReLURegressor"),
    "unknown parameter": put("parameters", {"colour": "red"}),
    "bad parameter": put("parameters", "tol", -1),
    "parameters are code": put("parameters", {"n_patterns": "__import__('os')"}),
    "converged is a text": put("fitted", "converged", "yes"),
    "rows by the exabyte": put("fitted", "n_dual_rows", 2**62),
    "patterns by the exabyte": put("fitted", "n_patterns", 2**62),
    "best index out of range": put("fitted", "best_index", 3),
    "scope is a number": put("certificate", "scope", 3),
    "network objective is a text": put("certificate", "network_objective", "3"),
    "further claim": put("certificate", "proof", 1.0),
    "no objective": drop("certificate", "objective"),
    "target without a name": put("target", "name", None),
    "weight is a number": put("target", "weight", 3),
    "target without classes": drop("target", "classes"),
    "one class": put("target", "classes", ["yes"]),
    "classes are numbers": put("target", "classes", [0, 1]),
    "classes are equal": put("target", "classes", ["yes", "yes"]),
    "classes out of order": put("target", "classes", ["yes", "no"]),
    "another class": put("target", "classes", ["maybe", "no", "yes"]),
    "classes are a text": put("target", "classes", "no"),
    "no classes": put("target", "classes", None),
    "another column": lambda d, a: d["columns"].append({"name": "z", "fill": 1.0, "marked": False}),
    "a column less": lambda d, a: d["columns"].pop(),
    "columns are texts": put("columns", ["a", "b"]),
    "scores are texts": put("scores", {"training": {"accuracy": "good"}}),
    "scores are flat": put("scores", {"training": 0.9}),
    "notes are numbers": put("notes", [1, 2]),
    "versions are numbers": put("versions", {"numpy": 2}),
    "fingerprint is a list": put("fingerprint", ["abc"]),
    **{
        f"no {name}": lose(name)
        for name in ("rows", "mask", "dual", "history", "alphas", "cv_scores", "cv_neurons")
    },
    "rows of floats": array("rows", lambda rows: rows.astype(float)),
    "rows of another kind": array("rows", lambda rows: rows + 3),
    "rows by columns": array("rows", lambda rows: rows.reshape(2, -1)),
    "empty rows": array("rows", lambda rows: rows[:0]),
    "no row trained on": array("rows", np.ones_like),
    "mask of floats": array("mask", lambda mask: mask.astype(float)),
    "mask of other rows": array("mask", lambda mask: mask[1:]),
    "mask of other patterns": array("mask", lambda mask: mask[:, 1:]),
    "flat mask": array("mask", lambda mask: mask.reshape(-1)),
    "dual is NaN": array("dual", lambda dual: dual * np.nan),
    "dual is infinite": array("dual", lambda dual: dual + np.inf),
    "dual of other rows": array("dual", lambda dual: dual[1:]),
    "dual of other outputs": array("dual", lambda dual: np.repeat(dual, 3, axis=1)),
    "flat dual": array("dual", lambda dual: dual.reshape(-1)),
    "single dual": array("dual", lambda dual: dual.astype(np.float32)),
    "short history": array("history", lambda history: history[:, 1:]),
    "history of whole numbers": array("history", lambda history: np.ones(history.shape, dtype=int)),
    "history is NaN": array("history", lambda history: history * np.nan),
    "alphas are NaN": array("alphas", lambda alphas: alphas * np.nan),
    "scores of other alphas": array("cv_scores", lambda values: values[:, 1:]),
    "neurons of other folds": array("cv_neurons", lambda values: values[1:]),
    "neurons in halves": array("cv_neurons", lambda values: values / 2),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The content of a sound file."""
    path = tmp_path_factory.mktemp("sound") / "model.cvxnn"
    model_of("cross-validation").save(path)
    return modelfile.read(path, NETWORKS)


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_files_that_are_no_models_are_refused(change, sound, path):
    description, arrays = copy.deepcopy(sound.description), dict(sound.arrays)
    change(description, arrays)
    modelfile.write(modelfile.Content(sound.network, description, arrays), path)
    with pytest.raises(ModelFileError, match=f"^{path} is (inconsistent|incomplete)"):
        Model.load(path)


def test_the_sound_file_is_sound(sound, path):
    modelfile.write(sound, path)
    assert Model.load(path).verify(table_of("cross-validation")).agrees


def test_a_network_alone_is_no_model(path):
    model_of("two classes").network.save(path)
    with pytest.raises(ModelFileError, match="holds only a network"):
        Model.load(path)


def test_changes_without_the_checksum_are_noticed(path):
    model_of("two classes").save(path)
    content = path.read_bytes()
    header = content.index(b"fingerprint")
    for place in (header + 20, len(content) - 5):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="do not match their checksum"):
            Model.load(path)


def test_loading_runs_no_code(path):
    """Nothing is compiled, imported, unpickled or started, and no other file is opened."""
    model_of("cross-validation").save(path)
    program = """
        import json, sys
        from cvxnn.tables.model import Model

        path, events = sys.argv[1], []
        Model.load(path)  # what it needs is imported now
        watched = {"exec", "compile", "import", "open", "pickle.find_class", "os.system"}
        sys.addaudithook(
            lambda name, args: events.append([name, str(args[0])])
            if name in watched or name.startswith(("subprocess", "socket", "ctypes"))
            else None
        )
        Model.load(path)
        sys.stdout.write(json.dumps(events))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), path],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(result.stdout) == [["open", str(path)]]


def test_an_improved_model_has_a_given_alpha(path):
    """Whatever chose that of the one it came from."""
    table = table_of("three classes") if "three classes" in CASES else table_of(next(iter(CASES)))
    model = fit(table, cv=2, n_alphas=3, alpha=None)
    assert hasattr(model.estimator, "cv_scores_")
    better = through_file(model.improve(table, alpha=0.05, tol=1e-6), path)
    assert not hasattr(better.estimator, "cv_scores_")
    assert better.estimator.alpha == better.estimator.alpha_ == 0.05
    assert better.estimator.tol == 1e-6
    assert better.estimator.lambda_max_ != model.estimator.lambda_max_  # of another program
    assert better.notes[-1].startswith("improved: solved again over")
    assert better.verify(table).agrees


def test_held_out_rows_are_new_to_the_encoder():
    """A category that occurs in held-out rows only is none, and medians are of training rows."""
    n = 60
    x = np.arange(n) ** 2.0
    x[::7] = np.nan
    table = Table({"x": x, "y": np.array(["a", "b"] * (n // 2), dtype=object)})
    model = Model.fit(table, "y", n_patterns=5, alpha=1e-3)
    trained = model.rows == 0
    assert model.encoder.columns[0].fill == np.nanmedian(x[trained]) != np.nanmedian(x)


# ------------------------------------------------------------------------- what load returns


def test_load_gives_a_model_for_the_file_of_a_model(tmp_path):
    table = table_of("two classes")
    model = Model.fit(table, "y", **QUICK)
    model.save(tmp_path / "m.cvxnn")
    model.network.save(tmp_path / "n.cvxnn")
    read, network = cvxnn.load(tmp_path / "m.cvxnn"), cvxnn.load(tmp_path / "n.cvxnn")
    assert type(read) is Model
    assert type(network) is type(model.network)
    assert read.network.W1.tobytes() == network.W1.tobytes()
    assert read.verify(table).agrees
    np.testing.assert_array_equal(
        read.predictions(table)[0]["prediction"], model.predictions(table)[0]["prediction"]
    )


# ------------------------------------------------------------------------- columns next to zero


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_a_column_of_denormal_numbers_is_named_and_not_used(kind):
    columns = dict(table_of("numbers").columns)
    columns["a"] = 1e-310 * columns["a"]
    table = Table(columns, "data.csv")
    with pytest.warns(UserWarning, match=r"and count as zero: 'a' \(largest entry .*e-310\);"):
        model = Model.fit(table, "y", kind=kind, **QUICK)
    assert model.verify(table).agrees
    columns["a"] = np.zeros(N)
    predictions = model.predictions(table)[0]["prediction"]
    np.testing.assert_array_equal(model.predictions(Table(columns))[0]["prediction"], predictions)
