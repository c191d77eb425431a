"""Generated patterns at the command line, in model files and on the pages of reports."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import cvxnn
from cvxnn.bounds.base import EXACT, GIVEN
from cvxnn.cli import describing, main
from cvxnn.cli.console import Bars, Console
from cvxnn.estimators.generating import found_no_more
from cvxnn.generation import programs
from cvxnn.generation.rounds import Round
from cvxnn.modelfile import ModelFileError
from cvxnn.reports.contents import contents_of
from cvxnn.reports.page import page_of
from cvxnn.solvers.results import Status
from cvxnn.tables.histories import arrays_of, history_of
from cvxnn.tables.model import Model
from cvxnn.tables.paths import fit_path, pose
from cvxnn.tables.table import Table, write_csv

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 2))
VALUE = np.abs(X[:, 0]) - np.maximum(X[:, 1], 0)
MEDIAN = float(np.median(VALUE))
COLUMNS = {
    "a": X[:, 0],
    "b": X[:, 1],
    "value": VALUE + 0.1 * rng.standard_normal(60),
    "label": np.array(["high" if one > MEDIAN else "low" for one in VALUE], dtype=object),
}
TABLE = Table(COLUMNS, "data.csv")
GENERATE = {"patterns": "generate", "tol": 1e-3}

pytestmark = pytest.mark.usefixtures("quick_search")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(write_csv(COLUMNS))
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def regression(**settings):
    return Model.fit(TABLE, "value", drop=["label"], alpha=0.03, **GENERATE, **settings)


def with_proof(model):
    """The model as it were if something had been proven about all patterns."""
    estimator = model.estimator
    bound = replace(estimator.bound_, scope=EXACT, lower_bound=0.999 * estimator.bound_.lower_bound)
    estimator.bound_ = bound
    return model


# ---- model files --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relu", "gated"])
def test_a_model_is_saved_loaded_and_verified(kind, tmp_path):
    seen = []
    model = regression(kind=kind, on_round=seen.append)
    assert isinstance(seen[0], Round)
    assert model.status is Status.CONVERGED
    assert model.verify(TABLE).agrees
    assert model.proof is None
    model.save(tmp_path / "model.cvxnn")
    again = cvxnn.load(tmp_path / "model.cvxnn")
    assert again.verify(TABLE).agrees
    assert again.estimator.patterns == "generate"
    assert again.estimator.history_ == model.estimator.history_
    assert again.estimator.n_iter_ == model.estimator.n_iter_
    assert again.estimator.n_patterns_ == model.bits.shape[1]
    assert again.estimator.bound_.scope == GIVEN
    assert again.estimator.bound_.lower_bound == model.certificate.lower_bound
    np.testing.assert_array_equal(
        again.predictions(TABLE)[0]["prediction"], model.predictions(TABLE)[0]["prediction"]
    )
    smaller = again.prune(TABLE)
    assert smaller.estimator.bound_.objective == smaller.certificate.objective
    better = again.improve(TABLE, n_patterns=5, alpha=0.02)
    assert not found_no_more(better.estimator)  # these patterns were not searched for
    assert found_no_more(again.estimator) == (kind == "relu")
    assert better.estimator.bound_.lower_bound == better.certificate.lower_bound


def test_a_proof_is_kept_by_the_model_and_its_file_and_has_to_be_one(monkeypatch, tmp_path):
    original = programs.generate

    def proving(problem, **options):
        training = original(problem, **options)
        lower = 0.9 * training.bound.lower_bound
        bound = replace(training.bound, scope=EXACT, lower_bound=lower, price=np.full(1, 1e3))
        return replace(training, bound=bound)

    monkeypatch.setattr(programs, "generate", proving)
    model = regression()
    assert model.proof.scope == EXACT
    assert len(model.proof.dual) == model.bits.n
    assert model.estimator.bound_.scope == EXACT
    assert model.estimator.bound_.dual.size == 0
    model.save(tmp_path / "model.cvxnn")
    again = cvxnn.load(tmp_path / "model.cvxnn")
    assert again.estimator.bound_.scope == EXACT
    assert again.proof.description() == model.proof.description()
    assert not again.verify(TABLE).agrees  # such a price does not prove so much
    assert model.improve(TABLE).proof is None
    few = Model.fit(TABLE, "value", drop=["label"], alpha=0.03, **GENERATE, n_components=1)
    assert re.search("principal component", few.estimator.bound_.scope)
    assert few.estimator.bound_.over_all_patterns


def test_a_proof_on_components_is_confirmed_with_what_it_says_of_them():
    settings = {**GENERATE, "prove": True, "n_components": 1}
    model = Model.fit(TABLE, "value", drop=["label"], alpha=0.03, **settings)
    assert model.verify(TABLE).agrees
    for scope in ("all patterns (exact)", model.proof.scope + ", and more"):
        found = replace(model, proof=replace(model.proof, scope=scope)).verify(TABLE)
        assert any(text.startswith("scope") for text in found.over_all.differences)


def test_rounds_in_files_are_checked():
    record = Round(1, "slide", 0.5, 0.25, 0.0, 3, 4, 1.5)
    last = Round(2, "prove", 0.75, 0.2, 0.1, 5, 6, float("inf"))
    arrays = arrays_of((record, last))
    assert history_of(arrays) == (record, last)
    assert history_of(arrays_of(())) == ()
    rounds = arrays["rounds"]
    for wrong in (rounds[:, :-1], rounds.astype(np.float32), rounds[0]):
        with pytest.raises(ValueError, match="rounds has dtype"):
            history_of({**arrays, "rounds": wrong})
    for kind in (-1, 9, 0.5):
        damaged = rounds.copy()
        damaged[0, 1] = kind
        with pytest.raises(ValueError, match="there is no round of kind"):
            history_of({**arrays, "rounds": damaged})


def test_a_damaged_file_is_refused(tmp_path, monkeypatch):
    model = regression()
    monkeypatch.setattr(
        "cvxnn.tables.description.arrays_of",
        lambda history: {"history": np.zeros((0, 8)), "rounds": np.zeros((1, 2))},
    )
    model.save(tmp_path / "model.cvxnn")
    with pytest.raises(ModelFileError, match="rounds has dtype"):
        cvxnn.load(tmp_path / "model.cvxnn")


def test_settings_without_effect_are_refused(tmp_path):
    with pytest.raises(TypeError, match="checkpoint is given with patterns='generate'"):
        regression(checkpoint=tmp_path / "file")
    with pytest.raises(TypeError, match="n_patterns is given, but nothing reads it"):
        regression(n_patterns=500)
    with pytest.raises(TypeError, match="prove is given, but nothing reads it"):
        Model.fit(TABLE, "value", alpha=0.03, prove=True)
    with pytest.raises(TypeError, match="alpha is given, but nothing reads it"):
        fit_path(TABLE, "value", **GENERATE, alpha=1.0)
    with pytest.raises(TypeError, match="pose takes no patterns='generate'"):
        pose(TABLE, "value", alpha=0.1, patterns="generate")


# ---- the command line ---------------------------------------------------------------------------

FIT = ("fit", "data.csv", "--target", "value", "--drop", "label", "--tol", "1e-3")


def test_fit_certify_predict_and_report(run, tmp_path):
    result = run(*FIT, "--patterns", "generate", "--alpha", "0.03")
    assert result.exit_code == 0, result.output
    assert re.search(r"network +\d+ neurons, from \d+ generated patterns", result.output)
    assert "Not proven: that other patterns are no better" in result.output
    assert "A search for patterns that pay found no more, which proves nothing." in result.output
    sampled = run(*FIT, "--alpha", "0.03", "--json", "-o", "sampled.cvxnn")
    answer = json.loads(run(*FIT, "--patterns", "generate", "--alpha", "0.03", "--json").output)
    other = json.loads(sampled.output)
    assert answer["bound"]["scope"] == other["bound"]["scope"] == GIVEN
    assert answer["bound"]["all_patterns"] is False
    assert answer["bound"]["lower_bound"] == answer["certificate"]["lower_bound"]
    assert answer["certificate"]["objective"] < other["certificate"]["objective"]
    assert "found no more" not in run(*FIT, "--alpha", "0.03", "-o", "sampled.cvxnn").output
    assert run("certify", "model.cvxnn", "data.csv").output.startswith("confirmed")
    assert run("predict", "model.cvxnn", "data.csv", "-o", "out.csv").exit_code == 0
    assert run("report", "model.cvxnn", "data.csv").exit_code == 0
    assert "Patterns were generated" in (tmp_path / "report.html").read_text()


def test_alpha_is_chosen_on_generated_patterns(tmp_path):
    settings = {"patterns": "generate", "tol": 1e-2, "n_alphas": 3, "eps": 0.03, "cv": 2}
    model = Model.fit(TABLE, "label", drop=["value"], **settings)
    assert model.estimator.converged_
    assert model.scores["training"]["accuracy"] > 0.8
    model.save(tmp_path / "model.cvxnn")
    again = cvxnn.load(tmp_path / "model.cvxnn")
    np.testing.assert_array_equal(again.estimator.cv_scores_, model.estimator.cv_scores_)
    assert again.verify(TABLE).agrees


def test_fit_proves_a_bound_over_all_networks(run):
    command = (*FIT, "--drop", "b", "--alpha", "0.03", "--patterns", "generate", "--prove")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "Proven: no two-layer ReLU network of any width" in result.output
    answer = json.loads(run(*command, "--json").output)["bound"]
    assert answer["all_patterns"]
    assert answer["scope"] == EXACT
    assert 0 <= answer["objective"] - answer["lower_bound"] <= 1e-3 * answer["objective"]
    assert run("certify", "model.cvxnn", "data.csv").output.startswith("confirmed")


def test_a_path_keeps_its_points_and_goes_on(run, tmp_path, monkeypatch):
    path = ("path", "data.csv", "--target", "value", "--drop", "label", "--points", "3")
    path = (*path, "--patterns", "generate", "--tol", "1e-2", "--json")
    whole = json.loads(run(*path, "-o", "whole.csv").output)
    assert all(point["patterns"] >= 1 for point in whole["points"])
    assert whole["points"][0]["neurons"] == 0 < whole["points"][2]["neurons"]
    original = programs.Generation.at

    def interrupted(self, lam, place=0):
        if place == 2:
            raise KeyboardInterrupt
        return original(self, lam, place)

    monkeypatch.setattr(programs.Generation, "at", interrupted)
    result = run(*path, "-o", "part.csv")
    assert result.exit_code == 130
    assert "the same command continues from there" in result.output
    monkeypatch.setattr(programs.Generation, "at", original)
    assert run(*path, "-o", "part.csv").exit_code == 0
    assert (tmp_path / "part.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_the_end_says_what_is_proven_about_all_patterns(capsys):
    model = with_proof(regression())
    describing.say_model(Console(as_json=False, quiet=False), model)
    shown = capsys.readouterr().out
    assert re.search(
        r"all networks +lower bound [\d.]+, relative gap 0\.001\d*, over all patterns \(exact\)",
        shown,
    )
    assert "Proven: no two-layer ReLU network of any width has an objective below" in shown
    assert "other patterns" not in shown
    answer = describing.about(model)
    assert answer["bound"]["all_patterns"] is True
    assert answer["bound"]["scope"] == EXACT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prove",), "--prove is for --patterns generate"),
        (("--patterns", "generate", "--model", "gated", "--prove"), "--prove is for --model relu"),
        (
            ("--patterns", "generate", "--alpha", "1", "--checkpoint", "c"),
            "--checkpoint is for sampled patterns",
        ),
        (("--patterns", "many"), "'many' is neither a number nor 'generate'"),
        (("--patterns", "0"), "0 is not in the range x>=1"),
    ],
)
def test_options_without_effect_are_refused(run, options, message):
    result = run(*FIT, *options)
    assert result.exit_code == 2
    assert message in result.output


def test_options_reach_the_estimator(run, monkeypatch):
    given = {}

    def fit(*arguments, **settings):
        given.update(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "fit", fit)
    options = ("--alpha", "1", "--prove", "--max-seconds", "9")
    assert run(*FIT, "--patterns", "generate", *options).exit_code == 130
    assert given["patterns"] == "generate"
    assert given["prove"] is True
    assert given["max_seconds"] == 9
    assert "n_patterns" not in given
    given.clear()
    assert run(*FIT, "--patterns", "7").exit_code == 130
    assert given["n_patterns"] == 7
    assert {"patterns", "prove", "max_seconds"}.isdisjoint(given)


def test_progress_names_the_round_what_was_found_and_what_is_done():
    texts = []

    class Drawn:
        def add_task(self, text, total, **fields):
            return 0

        def update(self, task, description, completed, **fields):
            texts.append(description)

    show = Bars(Drawn()).rounds()
    show(Round(1, "slide", 0.1, 0.5, 0.0, 9, 9, 1.25))
    show(Round(2, "solve", 0.2, 0.25, 0.2, 12, 9, 1.0625))
    show(Round(2, "solve", 0.3, 0.25, 0.2, 12, 9, float("nan"), "solving: relative gap 1e-02"))
    assert texts == [
        "round 1, objective 0.5, price found 1.25 alpha",
        "round 2, objective 0.25, 12 patterns, price found 1.062 alpha",
        "round 2, objective 0.25, 12 patterns, solving: relative gap 1e-02",
    ]


# ---- reports ------------------------------------------------------------------------------------


def page(model):
    return page_of(contents_of(model.estimator, *model.training_rows(TABLE)[:2]))


def test_a_report_shows_rounds_and_calls_no_price_a_bound():
    text = page(regression())
    assert "The highest price that a search found" in text
    assert "A price that a search finds is no bound" in text
    assert "found no more, which proves nothing" in text
    assert "from which on a search found no neuron that pays" in text
    assert "That other patterns could not do better" in text
    assert "Of all two-layer ReLU networks" not in text
    assert "optimal value over all patterns" not in text
    assert "patterns=&#x27;generate&#x27;" in text or "patterns='generate'" in text


def test_a_report_has_a_sentence_and_a_picture_of_a_bound_over_all_patterns():
    model = with_proof(regression())
    text, bound = page(model), model.estimator.bound_
    assert "Of all two-layer ReLU networks, whatever their patterns and their width, none" in text
    assert f"over {EXACT}" in text
    assert "That other patterns could not do better" not in text
    shown = re.search(r"over all patterns lies between ([\d.]+) and ([\d.]+\d)", text)
    assert float(shown[1]) <= bound.lower_bound < bound.objective <= float(shown[2])
    start, stop = re.findall(r'bar between" d="M([\d.]+) \d+H([\d.]+)V', text)[-1]
    assert float(start) < float(stop)  # the wider of the two bars begins at the left end


def test_a_report_on_a_gated_network_speaks_of_its_own_training():
    text = page(regression(kind="gated"))
    assert "Other gates might do better." in text
    assert "over the data" in text
