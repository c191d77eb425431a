"""The command line: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import cvxnn
from cvxnn import Status, modelfile
from cvxnn.cli import main
from cvxnn.cli.outcomes import EXIT_CODES
from cvxnn.networks import NETWORKS
from cvxnn.tables.model import Model
from cvxnn.tables.reading import read_table
from extras import needs, optional, required

fcntl, pty, termios = (optional(name) for name in ("fcntl", "pty", "termios"))
onnxruntime = optional("onnxruntime")
image = optional("matplotlib.image")
pd = optional("pandas")
torch = optional("torch")

CVXNN = Path(sys.executable).with_name("cvxnn")
QUICK = ("--patterns", "20", "--tol", "1e-2")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def read_csv(file):
    """A table to the last bit, which pandas has to be asked for before its version 3."""
    old = int(required("pandas").__version__.partition(".")[0]) < 3
    return pd.read_csv(file, **({"float_precision": "round_trip"} if old else {}))


def row(output, label):
    """The value beside a label in the table."""
    return re.search(rf"{label} *│ (.*?) *│", output).group(1)


def assert_is_picture(path):
    pixels = image.imread(path)
    assert Path(path).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert min(pixels.shape[:2]) > 200
    assert np.ptp(pixels[..., :3]) > 0.5  # something is drawn


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_the_commands(run, flag):
    result = run(flag)
    assert result.exit_code == 0
    assert "certified optimum" in result.output
    assert re.search(r"^ +demo +", result.output, flags=re.MULTILINE)


def test_help_of_demo_names_its_options_and_defaults(run):
    result = run("demo", "--help")
    assert result.exit_code == 0
    for option in ("--output", "--patterns", "--lam", "--tol", "--seed"):
        assert option in result.output
    assert "default: 1000" in result.output


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"cvxnn, version {cvxnn.__version__}"


@needs("matplotlib")
def test_demo_shows_what_is_proven_and_draws_it(run):
    result = run("demo", *QUICK)
    assert result.exit_code == 0, result.output
    objective, bound = (
        float(row(result.output, "objective")),
        float(row(result.output, "lower bound")),
    )
    assert 0 < bound <= objective
    gap = float(row(result.output, "relative duality gap"))
    assert gap == pytest.approx((objective - bound) / objective, rel=1e-2)
    assert gap <= 1e-2
    assert 0.9 < float(row(result.output, "training accuracy")) <= 1
    assert 0.9 < float(row(result.output, "test accuracy")) <= 1
    assert re.fullmatch(r"1\d of 20", row(result.output, "active neurons"))
    assert row(result.output, "status").startswith("converged")
    assert re.fullmatch(r"\d+\.\d\d s", row(result.output, "time to solve"))
    assert "demo.png" in result.output
    assert_is_picture("demo.png")


def test_demo_is_reproducible_and_listens_to_the_seed(run):
    def values(seed):
        output = run("demo", *QUICK, "--seed", seed).output
        return row(output, "objective"), row(output, "test accuracy")

    assert values(3) == values(3) != values(4)


@pytest.mark.parametrize(
    ("options", "status", "neurons"),
    [
        (("--lam", "1e9"), "converged", "0 of 20"),
        (("--lam", "0"), "converged", "20 of 20"),
        (("--tol", "5"), "converged", "0 of 20"),
        (("--tol", "0", "--lam", "0.01"), "stalled", None),
    ],
    ids=["zero model", "no penalty", "no iteration", "impossible tolerance"],
)
def test_demo_copes_with_extreme_options(run, options, status, neurons):
    result = run("demo", *QUICK, *options)
    assert result.exit_code == 0, result.output
    assert row(result.output, "status").startswith(status)
    assert neurons is None or row(result.output, "active neurons") == neurons
    assert_is_picture("demo.png")


@pytest.mark.parametrize(
    ("name", "beginning"), [("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("A.PNG", b"\x89PNG")]
)
@needs("matplotlib")
def test_demo_draws_to_the_format_of_the_name(run, name, beginning):
    result = run("demo", *QUICK, "-o", name)
    assert result.exit_code == 0, result.output
    assert Path(name).read_bytes().startswith(beginning)
    assert os.listdir() == [name]


BAD_OPTIONS = {
    "unknown command": (("dmeo",), "No such command 'dmeo'"),
    "unknown option": (("demo", "--sed", "1"), "No such option:? '?--sed"),
    "further argument": (("demo", "extra"), "unexpected extra argument"),
    "no patterns": (("demo", "--patterns", "0"), "'--patterns': 0 is not in the range"),
    "negative patterns": (("demo", "--patterns", "-3"), "'--patterns': -3 is not in the range"),
    "fractional patterns": (("demo", "--patterns", "2.5"), "'--patterns': '2.5' is not a valid"),
    "negative lam": (("demo", "--lam", "-1"), "'--lam': -1.0 is not in the range"),
    "lam nan": (("demo", "--lam", "nan"), "'--lam': nan is not finite"),
    "lam inf": (("demo", "--lam", "inf"), "'--lam': inf is not finite"),
    "lam text": (("demo", "--lam", "abc"), "'--lam': 'abc' is not a valid float"),
    "negative tol": (("demo", "--tol", "-1e-3"), "'--tol': -0.001 is not in the range"),
    "tol nan": (("demo", "--tol", "nan"), "'--tol': nan is not finite"),
    "negative seed": (("demo", "--seed", "-1"), "'--seed': -1 is not in the range"),
    "seed too large": (("demo", "--seed", str(2**32)), "'--seed': 4294967296 is not in the range"),
    "no picture": (("demo", "-o", "demo.txt"), r"--output': demo.txt does not end in \.png"),
    "no suffix": (("demo", "-o", "demo"), "--output': demo does not end in"),
    "missing folder": (("demo", "-o", "missing/a.png"), "there is no folder .*missing to write to"),
    "a folder": (("demo", "-o", "."), "--output': File '.' is a directory"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused_before_any_work(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.output.split()))
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert os.listdir() == []


def test_without_a_command_the_help_is_shown(run):
    assert re.match(r"Usage: \w+ \[OPTIONS\] COMMAND", run().output)


@needs("matplotlib")
def test_the_installed_command_runs_the_demo(tmp_path):
    required("matplotlib.font_manager")  # lists the fonts once, and says so on stderr if it is slow
    command = [Path(sys.executable).with_name("cvxnn"), "demo", *QUICK, "-o", "picture.png"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert row(result.stdout, "status").startswith("converged")
    assert os.listdir(tmp_path) == ["picture.png"]
    assert_is_picture(tmp_path / "picture.png")


def test_the_installed_command_refuses_without_a_traceback(tmp_path):
    command = [Path(sys.executable).with_name("cvxnn"), "demo", "-o", "missing/picture.png"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == click.UsageError.exit_code == 2
    assert "there is no folder" in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []


def test_a_dash_is_the_standard_input_and_no_name_of_a_model():
    command = [sys.executable, "-m", "cvxnn", "fit", "-", "--target", "c"]
    result = subprocess.run(command, input="a,b\n1,2\n", capture_output=True, text=True)
    assert result.stderr == "Error: /dev/stdin has no column 'c'; it has 'a', 'b'\n"
    assert "cannot be printed" in CliRunner().invoke(main, [*command[3:], "-o", "-"]).output


def test_a_name_that_the_shell_has_replaced_by_files_is_told(run):
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("x,y\n1,2\n")
    both, word = (run("fit", "a.csv", name, "--target", "y").stderr for name in ("b.csv", "y"))
    assert "(b.csv); a table in several files is one argument" in both
    assert word.endswith("unexpected extra argument (y)\n")


# ------------------------------------------------------------------- a table and its model

N = 60
TRAINING = ("--patterns", "10", "--alpha", "0.02")


def make_rows(n=N, seed=0):
    """Columns of a small table: numbers, texts, a missing value, two classes and a number."""
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.standard_normal((2, n)), 3)
    city = rng.choice(["Lima", "Oslo", "Rome"], n)
    value = np.abs(a) - b + (city == "Oslo") + 0.2 * rng.standard_normal(n)
    return {
        "id": [f"row {k}" for k in range(n)],
        "a": [f"{x:.3f}" for x in a],
        "b": ["" if k == 3 else f"{x:.3f}" for k, x in enumerate(b)],
        "city": city.tolist(),
        "label": np.where(value > 0.8, "yes", "no").tolist(),
        "value": [f"{x:.4f}" for x in 10 + value],
    }


def csv_text(columns, delimiter=",", end="\n"):
    lines = [delimiter.join(columns), *map(delimiter.join, zip(*columns.values(), strict=True))]
    return end.join(lines) + end


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data.csv and models of it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "data.csv").write_text(csv_text(make_rows()))
    table = read_table(folder / "data.csv")
    settings = {"alpha": 0.02, "n_patterns": 10}
    Model.fit(table, "label", drop=["value"], **settings).save(folder / "model.cvxnn")
    Model.fit(table, "value", drop=["label"], **settings).save(folder / "number.cvxnn")
    Model.fit(table, "city", **settings).save(folder / "three.cvxnn")
    return folder


@pytest.fixture
def files(run, trained):
    """The folder of `run`, with data.csv and the models."""
    for file in trained.iterdir():
        Path(file.name).write_bytes(file.read_bytes())
    return {file.name for file in trained.iterdir()}


def new_files(before):
    return set(os.listdir()) - before


def fit(run, *options, data="data.csv", target="label"):
    result = run("fit", data, "--target", target, *TRAINING, *options)
    assert result.exit_code == 0, result.output
    return result


def value_of(output, label):
    """The value beside a label of a command."""
    return re.search(rf"^ *{label}  +(.*?)$", output, flags=re.MULTILINE).group(1)


def only_json(result):
    """The one JSON object on stdout."""
    return json.loads(result.stdout)


# ----------------------------------------------------------------------------------- fit


def test_fit_on_components(run, files):
    result = fit(run, "--components", "2", "-o", "few.cvxnn")
    assert value_of(result.output, "trained on").startswith("the 2 leading principal components")
    assert "no network with these patterns on these components of the columns has" in result.output
    found = run("certify", "few.cvxnn", "data.csv")
    assert found.exit_code == 0, found.output
    assert "2 leading principal components" in found.output
    refused = run("fit", "data.csv", "--target", "label", *TRAINING, "--components", "99")
    assert refused.exit_code == 2
    assert "n_components=99, but X has" in refused.output


def test_info_shows_what_is_in_a_file(run, files):
    shown = run("info", "model.cvxnn").stdout
    assert shown.startswith("model.cvxnn: a model of 'label'\nclasses: ")
    assert value_of(shown, "city") == "3 categories: 'Lima', 'Oslo', 'Rome'"
    assert value_of(shown, "a") == "number"
    assert "held out" in value_of(shown, "rows")
    told = only_json(run("info", "model.cvxnn", "--json"))
    assert told["read_as"]["city"] == "3 categories: 'Lima', 'Oslo', 'Rome'"
    assert told["certificate"]["relative_gap"] < 1e-3
    assert run("info", "data.csv").exit_code == 2


def test_guesses_can_be_changed(run, files):
    rows = make_rows()
    rows["customer_id"] = [str(7 * k) for k in range(60)]
    rows["grade"] = [str(1 + k % 4) for k in range(60)]
    rows["day"] = [f"0{1 + k % 9}/0{1 + k % 8}/2024" for k in range(60)]
    rows["a"] = ["-999" if k == 7 else cell for k, cell in enumerate(rows["a"])]
    Path("messy.csv").write_text(csv_text(rows))
    command = ("messy.csv", "--target", "grade", "--drop", "value", *TRAINING, "-o", "new.cvxnn")
    guessed = run("fit", *command)
    assert guessed.exit_code == 0, guessed.output
    warned = [line for line in guessed.stderr.splitlines() if line.startswith("warning: ")]
    for text in ("'customer_id' looks like", "'grade' has 4 different", "as month day year"):
        assert any(text in line for line in warned)
    changes = ("--task", "regression", "--use", "customer_id", "--na", "-999", "--day-first")
    told = run("fit", *command, *changes, "--categorical", "b")
    assert told.exit_code == 0, told.output
    model = Model.load("new.cvxnn")
    assert model.task == "regression"
    assert {"customer_id", "a is missing"} <= set(model.encoder.features)
    assert "dmy" in [getattr(column, "order", "") for column in model.encoder.columns]
    assert "number" not in run("info", "new.cvxnn").stdout.split("\n  b ")[1].splitlines()[0]


def test_fit_says_what_was_done_and_what_is_proven(run, files):
    result = fit(run, "--drop", "value", "-o", "new.cvxnn")
    assert new_files(files) == {"new.cvxnn"}
    model = Model.load("new.cvxnn")
    assert result.stdout.startswith("data.csv: 60 rows, 6 columns\n")
    assert value_of(result.stdout, "task").startswith("classification, 2 classes of 'label'")
    assert value_of(result.stdout, "features") == "6, from 3 columns"
    assert value_of(result.stdout, "rows") == "48 trained on, 12 held out"
    assert value_of(result.stdout, "alpha") == "0.02, given"
    assert (
        value_of(result.stdout, "network") == f"{model.network.n_neurons} neurons, from 10 patterns"
    )
    objective, bound = (float(value_of(result.stdout, x)) for x in ("objective", "lower bound"))
    assert 0 < bound <= objective == pytest.approx(model.certificate.objective, rel=1e-7)
    assert "Proven: no network with these patterns" in result.stdout
    assert "Not proven" in result.stdout
    assert result.stdout.endswith("written to new.cvxnn\n")
    assert result.stderr.splitlines() == [
        "note: column 'id' has a different text in every row: left out",
        "note: missing values are filled in and marked: 'b'",
    ]


def test_fit_is_model_fit(run, files):
    fit(run, "--drop", "value", "--drop", "id", "--model", "gated", "--seed", "3", "-o", "x")
    table = read_table("data.csv")
    expected = Model.fit(
        table, "label", kind="gated", drop=["id", "value"], seed=3, alpha=0.02, n_patterns=10
    )
    found = Model.load("x")
    assert found.network.W1.tobytes() == expected.network.W1.tobytes()
    assert found.certificate == expected.certificate
    assert found.notes == expected.notes
    assert found.rows.tolist() == expected.rows.tolist()


def test_fit_chooses_alpha_by_cross_validation(run, files):
    result = run(
        "fit",
        "data.csv",
        "--target",
        "value",
        "--patterns",
        "8",
        "--folds",
        "2",
        "--rule",
        "one_se",
    )
    assert result.exit_code == 0, result.output
    estimator = Model.load("model.cvxnn").estimator
    assert estimator.cv_scores_.shape[0] == 2
    assert estimator.rule == "one_se"
    assert value_of(result.stdout, "alpha") == f"{estimator.alpha_:.4g}, chosen by cross-validation"
    assert value_of(result.stdout, "task").startswith("regression of 'value'")
    assert re.match(r"rmse .*, r2 ", value_of(result.stdout, "held out rows"))


def test_fit_for_machines(run, files):
    result = fit(run, "--json", "-o", "new.cvxnn")
    told, model = only_json(result), Model.load("new.cvxnn")
    assert result.stderr == ""
    assert told["model"] == "new.cvxnn"
    assert (told["task"], told["target"]) == ("classification", "label")
    assert told["classes"] == ["no", "yes"]
    assert told["features"] == model.encoder.features
    assert told["rows"] == {"training": 48, "held_out": 12, "left_out": 0}
    assert told["certificate"]["objective"] == model.certificate.objective
    assert told["certificate"]["lower_bound"] == model.certificate.lower_bound
    assert told["scores"]["held_out"] == model.scores["held out"]
    assert told["converged"] is True
    assert told["notes"] == list(model.notes)


@needs("onnx")
def test_quiet_commands_say_nothing(run, files):
    commands = {
        "fit": ("data.csv", "--target", "label", *TRAINING, "-o", "fit.cvxnn"),
        "path": ("data.csv", "--target", "label", "--patterns", "10", "--points", "2"),
        "certify": ("model.cvxnn", "data.csv"),
        "prune": ("model.cvxnn", "data.csv"),
        "improve": ("model.cvxnn", "data.csv"),
        "export": ("model.cvxnn", "-o", "model.onnx"),
        "predict": ("model.cvxnn", "data.csv", "-o", "predictions.csv"),
    }
    for name, arguments in commands.items():
        result = run(name, *arguments, "--quiet")
        assert (result.exit_code, result.output) == (0, ""), name
    made = {"fit.cvxnn", "path.csv", "pruned.cvxnn", "improved.cvxnn", "model.onnx"}
    assert new_files(files) == made | {"predictions.csv"}


def test_quiet_errors_are_said(run, files):
    result = run("fit", "data.csv", "--target", "lable", "--quiet")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "did you mean 'label'?" in result.stderr


def test_a_tolerance_that_is_not_met_is_said_by_the_exit_code(run, files):
    result = run("fit", "data.csv", "--target", "label", *TRAINING, "--tol", "0", "-o", "new.cvxnn")
    assert result.exit_code == 3
    assert "did not converge" in result.stderr
    assert not Model.load("new.cvxnn").estimator.converged_
    assert only_json(run("improve", "new.cvxnn", "data.csv", "--tol", "0", "--json"))["after"]
    assert run("improve", "new.cvxnn", "data.csv", "--tol", "0").exit_code == 3
    assert run("certify", "new.cvxnn", "data.csv").exit_code == 0  # what it claims is true


def test_options_of_fit(run, files):
    columns = make_rows()
    columns["w"] = [str(k % 3) for k in range(N)]
    Path("data.csv").write_text(csv_text(columns))

    def told(*options, target="label"):
        result = fit(run, *options, "--json", "-o", "x.cvxnn", target=target)
        return only_json(result)

    assert told("--holdout", "0")["rows"] == {"training": 60, "held_out": 0, "left_out": 0}
    assert told("--holdout", "0.5")["rows"]["held_out"] == 30
    assert told("--weight", "w")["rows"]["left_out"] == 20
    assert told("--drop", "id", "--drop", "city")["columns"] == ["a", "b", "value", "w"]
    assert told("--max-categories", "2")["columns"] == ["a", "b", "value", "w"]
    assert told("--task", "regression", target="w")["task"] == "regression"
    assert told(target="w")["classes"] == ["0", "1", "2"]
    assert told("--seed", "1")["certificate"] != told("--seed", "2")["certificate"]
    assert told("--seed", "1")["certificate"] == told("--seed", "1")["certificate"]
    assert told("--tol", "1e-8")["certificate"]["relative_gap"] <= 1e-8
    refused = run("fit", "data.csv", "--target", "label", "--missing", "refuse")
    assert refused.exit_code == 2
    assert "data.csv, column 'b', row 5: the value is missing" in refused.stderr


FORMATS = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "Windows line ends": lambda text: text.replace("\n", "\r\n").encode(),
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "semicolons": lambda text: text.replace(",", ";").encode(),
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "decimal commas": lambda text: text.replace(",", ";").replace(".", ",").encode(),
    "lines in quotes": lambda text: re.sub(r"row (\d+)", r'"row\n\1"', text).encode(),
    "parquet": lambda text: pd.read_csv(io.StringIO(text)).to_parquet(),
}


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_every_format_gives_the_same_model_and_predictions(run, files, make):
    Path("same.data").write_bytes(make(csv_text(make_rows())))
    fit(run, "--drop", "value", "-o", "new.cvxnn", data="same.data")
    expected, found = Model.load("model.cvxnn"), Model.load("new.cvxnn")
    assert found.network.W1.tobytes() == expected.network.W1.tobytes()
    assert found.fingerprint == expected.fingerprint
    by_csv = run("predict", "model.cvxnn", "data.csv").stdout
    assert run("predict", "model.cvxnn", "same.data").stdout == by_csv
    assert run("certify", "model.cvxnn", "same.data").exit_code == 0


# ------------------------------------------------------------------------------- predict


def test_predictions_are_a_table_in_the_order_of_the_rows(run, files):
    result = run("predict", "three.cvxnn", "data.csv", "-o", "predictions.csv")
    assert result.exit_code == 0
    assert result.stdout == "60 predictions written to predictions.csv\n"
    frame = read_csv("predictions.csv")
    assert list(frame) == [
        "prediction",
        "probability_Lima",
        "probability_Oslo",
        "probability_Rome",
    ]
    model, table = Model.load("three.cvxnn"), read_table("data.csv")
    X, _ = model.encoder.encode(table)
    probabilities = frame.iloc[:, 1:].to_numpy()
    assert probabilities.tobytes() == model.estimator.predict_proba(X).tobytes()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert frame["prediction"].tolist() == model.estimator.predict(X).tolist()
    rows = Path("data.csv").read_text().splitlines()
    Path("turned.csv").write_text("\n".join([rows[0], *rows[:0:-1]]) + "\n")
    run("predict", "three.cvxnn", "turned.csv", "-o", "turned-predictions.csv")
    turned = read_csv("turned-predictions.csv")
    assert turned["prediction"].tolist()[::-1] == frame["prediction"].tolist()


@pytest.mark.parametrize("output", [(), ("-o", "-")], ids=["no output", "a dash"])
def test_predictions_are_printed_and_nothing_else(run, files, output):
    result = run("predict", "number.cvxnn", "data.csv", *output)
    assert result.exit_code == 0
    header, *lines = result.stdout.splitlines()
    assert header == "prediction"
    model, table = Model.load("number.cvxnn"), read_table("data.csv")
    assert [float(line) for line in lines] == model.predictions(table)[0]["prediction"].tolist()
    assert result.stderr == (
        "note: columns that the model does not know are not used: 'id', 'label'\n"
    )
    assert run("predict", "number.cvxnn", "data.csv", "--quiet").stdout == result.stdout
    assert new_files(files) == set()


def test_a_key_may_be_kept_before_the_predictions(run, files):
    result = run("predict", "number.cvxnn", "data.csv", "--keep", "id", "--keep", "a")
    assert result.exit_code == 0
    frame = read_csv(io.StringIO(result.stdout))
    data = read_csv("data.csv")
    assert list(frame) == ["id", "a", "prediction"]
    assert frame["id"].tolist() == data["id"].tolist()
    refused = run("predict", "number.cvxnn", "data.csv", "--keep", "nix")
    assert refused.exit_code == 2
    assert "data.csv has no column 'nix'" in refused.stderr


def test_kept_texts_are_no_formulas_if_that_is_asked_for(run, files):
    columns = make_rows()
    columns["id"][:2] = ["=1+1", "-3"]
    Path("new.csv").write_text(csv_text(columns))
    command = ("predict", "model.cvxnn", "new.csv", "--keep", "id", "-q")
    for options, shown in (((), "=1+1"), (("--safe-csv",), "'=1+1")):
        result = run(*command, *options)
        assert [line.split(",")[0] for line in result.stdout.splitlines()[1:3]] == [shown, "-3"]
    run(*command, "--safe-csv", "-o", "predictions.csv")
    assert read_csv("predictions.csv")["id"][0] == "'=1+1"


def test_predictions_for_machines(run, files):
    told = only_json(run("predict", "model.cvxnn", "data.csv", "--json"))
    frame = read_csv(io.StringIO(run("predict", "model.cvxnn", "data.csv").stdout))
    assert told["rows"] == N
    for name in frame:
        assert told[name] == frame[name].tolist()
    written = only_json(run("predict", "model.cvxnn", "data.csv", "--json", "-o", "p.csv"))
    assert written == told | {"output": "p.csv"}
    assert Path("p.csv").read_text() == run("predict", "model.cvxnn", "data.csv").stdout


def test_new_rows_without_the_target_and_with_surprises(run, files):
    Path("new.csv").write_text("city,b,a,more\nOslo,0.5,1,x\nBonn,0.25,,y\n")
    result = run("predict", "model.cvxnn", "new.csv")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    notes = result.stderr.splitlines()
    assert len(notes) == 3
    assert "column 'a': 1 missing value, the first in row 3" in notes[0]
    assert "the first is 'Bonn' in row 3; they count as no category" in notes[1]
    assert notes[2].endswith("are not used: 'more'")


def test_a_reader_that_leaves_is_no_error(trained):
    command = f"{CVXNN} predict {trained}/model.cvxnn {trained}/data.csv -q | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert result.stdout == "prediction,probability_no,probability_yes\n"
    assert result.stderr == ""


# ---------------------------------------------------------------------------------- path


@needs("matplotlib", "pandas")
def test_path_writes_a_table_of_certified_points(run, files):
    command = ("path", "data.csv", "--target", "label", "--patterns", "10", "--points", "5")
    result = run(*command, "--plot", "path.png")
    assert result.exit_code == 0, result.output
    assert new_files(files) == {"path.csv", "path.png"}
    assert_is_picture("path.png")
    frame = read_csv("path.csv")
    assert list(frame) == [
        "alpha",
        "objective",
        "lower_bound",
        "relative_gap",
        "neurons",
        "training_accuracy",
        "training_log_loss",
        "held_out_accuracy",
        "held_out_log_loss",
    ]
    assert len(frame) == 5
    assert frame["alpha"].iloc[-1] == pytest.approx(frame["alpha"].iloc[0] / 100)
    assert (frame["lower_bound"] <= frame["objective"]).all()
    assert (frame["relative_gap"] <= 1e-4).all()
    assert frame["neurons"].iloc[0] == 0
    assert "5 of 5 points written to path.csv" in result.stdout
    told = only_json(run(*command, "--json"))
    assert pd.DataFrame(told["points"]).equals(frame)


@pytest.mark.parametrize("name", ["a.pdf", "a.svg"])
@needs("matplotlib")
def test_path_draws_to_the_format_of_the_name(run, files, name):
    result = run(
        *("path", "data.csv", "--target", "value", "--patterns", "5", "--points", "2"),
        *("--plot", name),
    )
    assert result.exit_code == 0, result.output
    assert Path(name).read_bytes().startswith({"a.pdf": b"%PDF", "a.svg": b"<?xml"}[name])


def test_a_path_that_misses_its_tolerance(run, files):
    result = run(
        *("path", "data.csv", "--target", "label", "--patterns", "5", "--points", "2"),
        *("--tol", "0", "--quiet"),
    )
    assert result.exit_code == 3
    assert len(read_csv("path.csv")) == 2


# ------------------------------------------------------------------------------- certify


def tamper(name, **claims):
    """Change what a model file claims, and the checksum with it."""
    content = modelfile.read(name, NETWORKS)
    content.description["certificate"] |= claims
    modelfile.write(content, name)


def test_certify_confirms_what_is_true(run, files):
    for name in ("model.cvxnn", "number.cvxnn", "three.cvxnn"):
        result = run("certify", name, "data.csv")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("confirmed: C-ReLU over 10")
        told = only_json(run("certify", name, "data.csv", "--json"))
        assert told["confirmed"] is True
        assert told["differences"] == []
        assert told["lower_bound"] <= told["objective"]


def test_certify_does_not_confirm_what_is_false(run, files):
    claimed = Model.load("model.cvxnn").certificate
    tamper("model.cvxnn", lower_bound=claimed.objective)
    result = run("certify", "model.cvxnn", "data.csv")
    assert result.exit_code == 4
    assert result.stdout.startswith("NOT CONFIRMED")
    assert "lower_bound: claimed" in value_of(result.stdout, "differs")
    result = run("certify", "model.cvxnn", "data.csv", "--json")
    assert result.exit_code == 4
    assert only_json(result)["confirmed"] is False
    assert len(only_json(result)["differences"]) == 1
    assert run("certify", "model.cvxnn", "data.csv", "--quiet").exit_code == 4


def test_every_network_of_an_ensemble_is_certified(run, files):
    options = ("--target", "label", "--folds", "2", "--patterns", "10", "--tol", "1e-3")
    result = run("fit", "data.csv", *options, "--ensemble", "folds", "-o", "mean.cvxnn")
    assert result.exit_code == 0, result.output
    assert value_of(result.output, "mean of") == "3 networks, each certified on its own rows"
    assert "nothing is proven of the mean" in result.output
    told = only_json(run("info", "mean.cvxnn", "--json"))
    assert [one["converged"] for one in told["mean_of"]] == [True] * 3
    assert sum(one["neurons"] for one in told["mean_of"]) == told["neurons"]
    result = run("certify", "mean.cvxnn", "data.csv")
    assert result.exit_code == 0, result.output
    assert value_of(result.output, "network 3").startswith("confirmed: relative gap")
    assert "Nothing is claimed of their mean." in result.output
    assert len(only_json(run("certify", "mean.cvxnn", "data.csv", "--json"))["others"]) == 2
    content = modelfile.read("mean.cvxnn", NETWORKS)
    certificate = content.description["members"][1]["certificate"]
    certificate["lower_bound"] = certificate["objective"]
    modelfile.write(content, "mean.cvxnn")
    result = run("certify", "mean.cvxnn", "data.csv")
    assert result.exit_code == 4
    assert value_of(result.output, "network 2").startswith("NOT CONFIRMED")
    assert "lower_bound: claimed" in value_of(result.output, "differs")
    assert run("prune", "mean.cvxnn", "data.csv").exit_code == 2
    result = run("fit", "data.csv", "--target", "label", "--alpha", "1", "--ensemble", "folds")
    assert result.exit_code == 2
    assert "with --alpha there is none" in result.stderr


def test_certify_wants_the_rows_of_the_training(run, files):
    columns = make_rows()
    columns["a"][:] = columns["a"][::-1]
    Path("other.csv").write_text(csv_text(columns))
    result = run("certify", "model.cvxnn", "other.csv")
    assert result.exit_code == 2
    assert "its training rows are different" in result.stderr


# ----------------------------------------------------------------------- prune, improve


def test_prune_keeps_predictions(run, files):
    result = run("prune", "model.cvxnn", "data.csv")
    assert result.exit_code == 0, result.output
    assert new_files(files) == {"pruned.cvxnn"}
    told = only_json(run("prune", "model.cvxnn", "data.csv", "--json"))
    assert told["after"]["neurons"] <= told["before"]["neurons"]
    assert told["after"]["scores"]["training"] == pytest.approx(
        told["before"]["scores"]["training"], rel=1e-6
    )
    assert run("certify", "pruned.cvxnn", "data.csv").exit_code == 0


def test_improve_never_gets_worse(run, files):
    result = run("improve", "model.cvxnn", "data.csv", "--patterns", "10", "-o", "better.cvxnn")
    assert result.exit_code == 0, result.output
    assert new_files(files) == {"better.cvxnn"}
    before, after = (float(x) for x in value_of(result.stdout, "objective").split(" -> "))
    assert after <= before
    assert run("certify", "better.cvxnn", "data.csv").exit_code == 0
    told = only_json(run("improve", "model.cvxnn", "data.csv", "--alpha", "0.1", "--json"))
    assert told["after"]["alpha"] == 0.1
    assert told["before"]["alpha"] == 0.02


# -------------------------------------------------------------------------------- export


@pytest.mark.parametrize("name", ["model", "number", "three"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@needs("onnx", "onnxruntime", "torch")
def test_exported_networks_agree_with_predict(run, files, name, dtype):
    model, table = Model.load(f"{name}.cvxnn"), read_table("data.csv")
    X = model.encoder.encode(table)[0].astype(dtype)
    columns, _ = model.predictions(table)
    predicted = columns.pop("prediction")
    expected = np.column_stack(list(columns.values()) or [predicted])
    tolerance = 1e-6 if dtype == "float64" else 1e-4
    for suffix in ("onnx", "pt2"):
        options = ("--features", "--dtype", dtype)
        result = run("export", f"{name}.cvxnn", "-o", f"x.{suffix}", *options)
        assert result.exit_code == 0, result.output
        listed = re.findall(r"^ +\d+  (.*)$", result.stdout, flags=re.MULTILINE)
        assert listed == model.encoder.features
        if suffix == "onnx":
            session = onnxruntime.InferenceSession("x.onnx", providers=["CPUExecutionProvider"])
            found = session.run(None, {"X": X})[-1]
        else:
            found = torch.export.load("x.pt2").module()(torch.asarray(X)).numpy()
        if (name, suffix) == ("model", "pt2"):
            assert "it gives the probability of 'yes'" in result.stdout
            found = np.column_stack([1 - found, found])
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@needs("onnxruntime", "torch")
def test_exports_take_the_columns_of_the_table(run, files):
    model, table = Model.load("model.cvxnn"), read_table("data.csv")
    shown = run("export", "model.cvxnn", "-o", "x.onnx").stdout
    assert shown.startswith("written to x.onnx; it takes 3 columns, by name:\n")
    assert value_of(shown, "b") == "double, a number; NaN is missing"
    assert value_of(shown, "city").startswith("string, one of 'Lima', 'Oslo', 'Rome'")
    assert "it gives 'label', and 'probabilities' of 'no', 'yes'" in shown
    given = {name: table.numbers(name)[:, None] for name in ("a", "b")}
    given["city"] = table.texts("city")[:, None]
    session = onnxruntime.InferenceSession("x.onnx", providers=["CPUExecutionProvider"])
    assert session.run(["label"], given)[0].tolist() == model.predict(table).tolist()
    told = only_json(run("export", "model.cvxnn", "-o", "x.pt2", "--json"))
    assert told["inputs"]["city"] == "0 'Lima', 1 'Oslo', 2 'Rome'; NaN is missing"
    rows = np.zeros((4, len(told["inputs"])))
    assert torch.export.load("x.pt2").module()(torch.asarray(rows)).shape == (4, 1)


def test_exported_safetensors_are_the_network(run, files):
    result = run("export", "model.cvxnn", "-o", "x.safetensors", "--json")
    told, model = only_json(result), Model.load("model.cvxnn")
    assert told["features"] == model.encoder.features
    assert told["classes"] == ["no", "yes"]
    assert cvxnn.load("x.safetensors").W1.tobytes() == model.network.W1.tobytes()


# -------------------------------------------------------------------------- report, bench


def test_report_writes_a_page(run, files):
    result = run("report", "model.cvxnn", "data.csv", "--title", "A title")
    assert result.exit_code == 0, result.output
    assert new_files(files) == {"report.html"}
    assert "<title>A title" in Path("report.html").read_text()
    assert only_json(run("report", "model.cvxnn", "data.csv", "--json"))["output"] == "report.html"


def test_bench_races_the_solvers(run, files):
    command = ("bench", "data.csv", "--target", "label", "--model", "gated", "--patterns", "5")
    limits = ("--tol", "1e-2", "--max-seconds", "1")
    result = run(*command, *limits)
    assert result.exit_code == 0, result.output
    assert re.search(r"^  newton +\d", result.stdout, flags=re.MULTILINE)
    told = only_json(run(*command, *limits, "--json"))
    gaps = {each["solver"]: each["relative_gap"] for each in told["solvers"]}
    assert {"newton", "rfista"} <= set(gaps)
    assert gaps["newton"] <= 1e-2
    assert new_files(files) == set()


# ----------------------------------------------------------------- errors, for machines too

ERRORS = {
    "unknown command": (("fti",), 2, "No such command 'fti'"),
    "unknown option": (("fit", "data.csv", "--tagret", "x"), 2, "No such option"),
    "missing argument": (("predict", "model.cvxnn"), 2, "Missing argument 'DATA'"),
    "bad option": (("fit", "data.csv", "--alpha", "nan"), 2, "nan is not finite"),
    "no target": (("fit", "data.csv"), 2, "--target has to name the column to predict; data.csv"),
    "wrong target": (("fit", "data.csv", "--target", "labl"), 2, "did you mean 'label'"),
    "no file": (("fit", "nix.csv", "--target", "label"), 2, "there is no file nix.csv"),
    "no suffix": (("export", "model.cvxnn"), 2, "-o needs a name that ends in .onnx"),
    "not written": (("predict", "model.cvxnn", "data.csv", "-o", "/proc/p.csv"), 5, "/proc/p.csv"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_are_one_json_object_too(run, files, arguments, code, message):
    plain = run(*arguments)
    assert plain.exit_code == code
    assert plain.stdout == ""
    assert message in plain.stderr
    told = run(*arguments, "--json")
    assert told.exit_code == code
    assert set(only_json(told)) == {"error", "exit_code"}
    assert message in only_json(told)["error"]
    assert only_json(told)["exit_code"] == code
    assert new_files(files) == set()


def test_faults_are_called_so(run, files, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("cvxnn.cli.files.read_table", broken)
    result = run("fit", "data.csv", "--target", "label", "--json")
    assert result.exit_code == 1
    assert "unexpected ZeroDivisionError: a secret; this is a fault of cvxnn" in result.stderr
    assert only_json(result)["exit_code"] == 1
    monkeypatch.setenv("CVXNN_DEBUG", "1")
    assert isinstance(run("fit", "data.csv", "--target", "label").exception, ZeroDivisionError)


def test_exit_codes_are_documented():
    for code in EXIT_CODES:
        assert re.search(rf"\b{code} ", cvxnn.cli.__doc__)


# ------------------------------------------------------------------------------ completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run, shell):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_CVXNN_COMPLETE={shell}_complete" in result.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cvxnn f", ["fit"]),
        ("cvxnn pr", ["predict", "prune"]),
        ("cvxnn fit --ta", ["--target", "--task"]),
        ("cvxnn fit data.csv --task ", ["classification", "regression"]),
        ("cvxnn fit data.csv --target ", ["id", "a", "b", "city", "label", "value"]),
        ("cvxnn fit --alpha 1 data.csv --drop a --weight v", ["value"]),
        ("cvxnn path data.csv --drop l", ["label"]),
        ("cvxnn bench data.csv --target c", ["city"]),
        ("cvxnn bench --target ", []),
        ("cvxnn fit nix.csv --target ", []),
        ("cvxnn fit model.cvxnn --target ", []),
    ],
)
def test_the_shell_completes_commands_options_and_columns(files, words, expected):
    *before, last = words.split(" ")
    complete = ShellComplete(main, {}, "cvxnn", "_CVXNN_COMPLETE")
    found = complete.get_completions(before[1:], last)
    assert [item.value for item in found] == expected


def test_the_installed_command_completes(trained):
    def completions(words, last):
        environment = os.environ | {
            "_CVXNN_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(last),
        }
        result = subprocess.run(
            [CVXNN], env=environment, cwd=trained, capture_output=True, text=True, timeout=120
        )
        assert result.stderr == ""
        return result.stdout.split()

    assert completions("cvxnn ce", 1) == ["plain,certify"]
    assert completions("cvxnn fit data.csv --target ci", 4) == ["plain,city"]
    Path(trained, "spaced.csv").write_text("sepal length (cm),b\n1,2\n")
    spaced = completions("cvxnn predict model.cvxnn spaced.csv --keep sepal", 5)
    assert " ".join(spaced) == "plain,'sepal length (cm)'"
    Path(trained, "spaced.csv").unlink()


# -------------------------------------------------------------- real processes and terminals


@pytest.mark.parametrize(
    "command",
    [
        "fit none.csv --target label",
        "fit data.csv --target labl",
        "fit data.csv",
        "fit data.csv --target label --ignore none",
        "predict none.cvxnn data.csv",
        "certify data.csv model.cvxnn",
        "predict data.csv data.csv",
        "predict model.cvxnn narrow.csv",
        "report model.cvxnn narrow.csv",
    ],
)
def test_a_slip_is_told_before_anything_heavy_is_imported(trained, command):
    Path(trained, "narrow.csv").write_text("a,b\n1,2\n")
    program = """
        import sys
        from cvxnn.cli import main

        try:
            main()
        except SystemExit as end:
            heavy = [name for name in ("sklearn", "scipy", "pandas", "rich") if name in sys.modules]
            print(heavy, end.code)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *command.split()],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=trained,
    )
    assert result.stdout == "[] 2\n"
    assert "Error: " in result.stderr


def test_help_imports_nothing_heavy():
    program = """
        import sys
        from cvxnn.cli import main

        for arguments in (["--help"], ["fit", "--help"], ["completion", "bash"]):
            main(arguments, standalone_mode=False)
        heavy = "numpy sklearn scipy rich matplotlib torch pandas pyarrow safetensors joblib"
        sys.stderr.write(" ".join(name for name in heavy.split() if name in sys.modules))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0
    assert result.stderr == ""
    assert "Usage:" in result.stdout


def test_pipes_get_no_bars_and_no_colours(trained, tmp_path):
    command = [CVXNN, "fit", trained / "data.csv", "--target", "label", "--patterns", "5"]
    result = subprocess.run(
        [*command, "--folds", "2", "-o", tmp_path / "model.cvxnn"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"},
    )
    assert result.returncode == 0
    assert "\x1b" not in result.stdout + result.stderr
    assert "fold" not in result.stdout + result.stderr
    assert all(line.startswith(("note: ", "... ")) for line in result.stderr.splitlines())


class Terminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, *arguments, cwd):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [CVXNN, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = b""

    def wait_for(self, text=None):
        """Read until a text is shown, or to the end."""
        while text is None or text not in self.shown:
            try:
                more = os.read(self.master, 65536)
            except OSError:  # which is how a terminal ends
                more = b""
            if not more:
                assert text is None, self.shown.decode()
                break
            self.shown += more

    def end(self):
        """The exit code, after everything has been read."""
        self.wait_for()
        os.close(self.master)
        return self.process.wait(timeout=60)


def test_a_terminal_shows_progress(trained, tmp_path):
    terminal = Terminal(
        *("fit", trained / "data.csv", "--target", "label", "--patterns", "5", "--folds", "3"),
        cwd=tmp_path,
    )
    assert terminal.end() == 0
    shown = terminal.shown.decode()
    assert re.search(r"alpha \d+ of 15", shown)
    assert re.search(r"gap \d\.\de-\d\d", shown)
    assert "\x1b[" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor is back
    assert os.listdir(tmp_path) == ["model.cvxnn"]


def test_ctrl_c_while_alpha_is_chosen(trained, tmp_path):
    terminal = Terminal(
        *("fit", trained / "data.csv", "--target", "label", "--patterns", "50", "--folds", "20"),
        *("--tol", "1e-8"),
        cwd=tmp_path,
    )
    terminal.wait_for(b"alpha 1 of 15")
    os.write(terminal.master, b"\x03")
    assert terminal.end() == 130
    shown = " ".join(terminal.shown.decode().split())
    assert "interrupted while alpha was being chosen; nothing was written" in shown
    assert "Traceback" not in shown
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_during_training_keeps_the_best_network(trained, tmp_path, name, code):
    """A real signal in a real process, at an iteration that is known."""
    program = f"""
        import signal
        from cvxnn.cli import console, main

        def gap(self, tol):
            def show(progress):
                if progress.n_iter == 2:
                    signal.raise_signal(signal.{name})

            return show

        console.Bars.gap = gap
        main()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), "fit", trained / "data.csv"]
    result = subprocess.run(
        [*command, "--target", "label", "--drop", "value", *TRAINING, "--tol", "1e-9"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == code
    assert "warning: interrupted: this is the best network so far" in result.stderr
    assert "written to model.cvxnn" in result.stdout
    assert os.listdir(tmp_path) == ["model.cvxnn"]
    model = Model.load(tmp_path / "model.cvxnn")
    assert not model.estimator.converged_
    assert model.certificate.relative_gap > 1e-9
    assert model.verify(read_table(trained / "data.csv")).agrees


def test_training_goes_on_after_kill_9(trained, tmp_path, run, monkeypatch):
    """A real process, which is killed between two iterations that are known."""
    program = """
        import os, signal
        from cvxnn.cli import console, main
        from cvxnn.solvers import driver

        def gap(self, tol):
            def show(progress):
                if progress.n_iter >= 3:
                    os.kill(os.getpid(), signal.SIGKILL)

            return show

        console.Bars.gap, driver.INTERVAL = gap, 0.0
        main()
    """
    options = ["--target", "label", *TRAINING, "--tol", "1e-6", "--checkpoint", "run.part"]
    command = ["fit", str(trained / "data.csv"), *options]
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *command], cwd=tmp_path, timeout=120
    )
    assert result.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["run.part"]
    monkeypatch.chdir(tmp_path)
    resumed = run(*command)
    assert resumed.exit_code == 0, resumed.output
    assert "continuing from run.part" in resumed.stdout
    assert os.listdir(tmp_path) == ["model.cvxnn"]
    model = Model.load("model.cvxnn")
    assert model.certificate.relative_gap <= 1e-6
    assert model.verify(read_table(trained / "data.csv")).agrees
    assert run(*command[:-2], "-o", "other.cvxnn").exit_code == 0
    other = Model.load("other.cvxnn")
    assert len(model.estimator.history_) >= len(other.estimator.history_)
    objective = pytest.approx(other.certificate.objective, rel=1e-6)
    assert model.certificate.objective == objective


def test_a_checkpoint_needs_alpha_and_a_file_of_its_own(run, files):
    command = ("fit", "data.csv", "--target", "label", "--patterns", "5")
    result = run(*command, "--checkpoint", "run.part")
    assert result.exit_code == 2
    assert "--checkpoint needs --alpha: cross-validation cannot be continued" in result.stderr
    result = run(*command, "--alpha", "0.1", "-o", "a", "--checkpoint", "a")
    assert result.exit_code == 2
    assert "--checkpoint and --output are both a" in result.stderr
    Path("run.part").write_text("notes of mine")
    result = run(*command, "--alpha", "0.1", "--checkpoint", "run.part")
    assert result.exit_code == 2
    assert "run.part is not a run checkpoint, or damaged" in result.stderr
    assert new_files(files) == {"run.part"}
    with pytest.raises(TypeError, match="checkpoint is given without alpha"):
        Model.fit(read_table("data.csv"), "label", checkpoint="other")


@pytest.mark.parametrize("place", ["files.read_table", "training.say_model"])
def test_termination_is_said_to_have_written_what_it_has(run, files, monkeypatch, place):
    """Before anything is written, and when it just was."""
    monkeypatch.setattr(f"cvxnn.cli.{place}", terminate)
    result = run("fit", "data.csv", "--target", "label", *TRAINING, "-o", "new.cvxnn", "--json")
    assert result.exit_code == only_json(result)["exit_code"] == 143
    written = place == "training.say_model"
    assert new_files(files) == ({"new.cvxnn"} if written else set())
    what = "new.cvxnn" if written else "nothing"
    assert only_json(result)["error"] == f"interrupted; {what} was written"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # as before


def terminate(*arguments, **options):
    signal.raise_signal(signal.SIGTERM)


def test_whoever_ignores_termination_is_not_terminated(run, files):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cvxnn.cli.training.say_model", terminate)
            assert run("fit", "data.csv", "--target", "label", *TRAINING).exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, before)


PATH = ("--target", "value", "--drop", "label", "--patterns", "20", "--points", "25")


@pytest.fixture(scope="module")
def whole_path(trained, tmp_path_factory):
    """What `cvxnn path` writes if nobody interrupts it."""
    output = tmp_path_factory.mktemp("path") / "path.csv"
    result = CliRunner().invoke(
        main, ["path", str(trained / "data.csv"), *PATH, "--eps", "1e-3", "-o", str(output)]
    )
    assert result.exit_code == 0, result.output
    return read_csv(output)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGKILL],
    ids=["Ctrl-C", "termination", "kill -9"],
)
def test_a_path_goes_on_where_it_was_stopped(run, trained, whole_path, number, monkeypatch):
    command = ["path", str(trained / "data.csv"), *PATH, "--eps", "1e-3", "-o", "path.csv"]
    process = subprocess.Popen(
        [CVXNN, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not Path("path.csv.checkpoint").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert not Path("path.csv").exists()
    kept = 1
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        said = re.search(r"interrupted.* after (\d+) of 25 points; what is done is kept in", err)
        kept = int(said[1])
        assert os.listdir() == ["path.csv.checkpoint"]
    else:
        assert process.returncode == -signal.SIGKILL
        assert "path.csv.checkpoint" in os.listdir()
    solved = []
    monkeypatch.setattr(
        "cvxnn.paths.solve", lambda *a, **k: solved.append(1) or cvxnn.solve(*a, **k)
    )
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert len(solved) <= 25 - kept  # what was done is not done again
    assert "continuing from path.csv.checkpoint" in result.stdout
    found = read_csv("path.csv")
    assert list(found) == list(whole_path)
    np.testing.assert_array_equal(found["alpha"], whole_path["alpha"])
    # the points are certified, so that those of both paths differ by no more than the tolerance
    np.testing.assert_allclose(found["objective"], whole_path["objective"], rtol=1e-4)
    assert (found["relative_gap"] <= 1e-4).all()
    assert (found["lower_bound"] <= whole_path["objective"]).all()
    assert (whole_path["lower_bound"] <= found["objective"]).all()
    np.testing.assert_allclose(found["training_r2"], whole_path["training_r2"], atol=1e-3)
    assert "path.csv.checkpoint" not in os.listdir()


def test_a_checkpoint_of_another_path_is_not_used(run, files):
    command = ("path", "data.csv", "--target", "label", "--patterns", "5", "--points", "3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cvxnn.cli.training.write_csv", interrupt)
        result = run(*command, "--json")
    assert result.exit_code == only_json(result)["exit_code"] == 130
    assert new_files(files) == {"path.csv.checkpoint"}
    result = run(*command, "--seed", "1")
    assert result.exit_code == 2
    assert "path.csv.checkpoint belongs to another problem" in result.stderr
    assert run(*command).exit_code == 0
    assert new_files(files) == {"path.csv"}


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


def test_ctrl_c_ends_a_race(run, files, monkeypatch):
    def interrupted(problem, name, **options):
        solution = cvxnn.solve(problem, name, **options)
        return replace(solution, status=Status.INTERRUPTED)

    monkeypatch.setattr("cvxnn.cli.racing.solve", interrupted)
    result = run("bench", "data.csv", "--target", "label", "--patterns", "5", "--model", "gated")
    assert result.exit_code == 130
    assert "rfista" not in result.stdout


def test_ctrl_c_keeps_the_best_improvement(run, files, monkeypatch):
    def interrupted(problem, *arguments, **options):
        solution = cvxnn.solve(problem, *arguments, **options)
        return replace(solution, status=Status.INTERRUPTED)

    monkeypatch.setattr("cvxnn.improvement.solve", interrupted)
    assert run("improve", "model.cvxnn", "data.csv").exit_code == 130
    assert run("certify", "improved.cvxnn", "data.csv").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("predict", "model.cvxnn", "data.csv"), ("export", "model.cvxnn", "--json")],
)
def test_a_full_disk_behind_stdout(trained, arguments):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [CVXNN, *arguments],
            cwd=trained,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert result.returncode == 5
    assert result.stderr.splitlines()[-1] == "Error: output: No space left on device"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("fit data.csv --target label --alpha 0.1 --folds 3", "--folds"),
        ("fit data.csv --target label --alpha 0.1 --rule one_se", "--rule"),
        ("export model.cvxnn -o x.safetensors --dtype float32", "--dtype"),
        ("improve model.cvxnn data.csv --seed 1", "--seed"),
        ("bench --target label", "--target"),
    ],
)
def test_options_that_would_not_be_read_are_refused(run, files, arguments, option):
    result = run(*arguments.split())
    assert result.exit_code == 2
    assert f"{option} is for" in result.stderr
    assert new_files(files) == set()


@pytest.mark.parametrize("option", [("--ensemble", "folds"), ("--jobs", "2")])
def test_what_several_processes_would_not_read_is_refused(run, tmp_path, monkeypatch, option):
    table = tmp_path / "rows.csv"
    table.write_text("a,label\n1,0\n2,1\n")
    command = ("fit", table, "--target", "label", *option)
    found = run(*command, "--cluster", "tcp://127.0.0.1:1")
    assert found.exit_code == 2
    assert f"{option[0]} is for one process, and --cluster is for several" in found.output
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    found = run(*command)
    assert found.exit_code == 2
    assert f"{option[0]} is for one process, and torchrun has started several" in found.output
