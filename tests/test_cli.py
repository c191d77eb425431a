"""The command line: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import matplotlib.image
import numpy as np
import pytest
from click.testing import CliRunner

import cvxnn
from cvxnn.cli import main

QUICK = ("--patterns", "20", "--tol", "1e-2")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


def row(output, label):
    """The value beside a label in the table."""
    return re.search(rf"{label} *│ (.*?) *│", output).group(1)


def assert_is_picture(path):
    pixels = matplotlib.image.imread(path)
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
def test_demo_draws_to_the_format_of_the_name(run, name, beginning):
    result = run("demo", *QUICK, "-o", name)
    assert result.exit_code == 0, result.output
    assert Path(name).read_bytes().startswith(beginning)
    assert os.listdir() == [name]


BAD_OPTIONS = {
    "unknown command": (("dmeo",), "No such command 'dmeo'"),
    "unknown option": (("demo", "--sed", "1"), "No such option '?--sed"),
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


def test_the_installed_command_runs_the_demo(tmp_path):
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
