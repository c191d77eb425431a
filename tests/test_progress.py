"""Long work is heard of: now and then, by whoever asked, and by nobody else."""

import logging
import time

import numpy as np
import pytest
from click.testing import CliRunner

import cvxnn
from cvxnn import progress
from cvxnn.cli import main
from cvxnn.cli.console import Console
from cvxnn.progress import Follower, followed, step
from cvxnn.tables import model as models

QUICK, FIRST = 0.05, progress.FIRST  # which other tests do not wait for


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", QUICK)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, np.maximum(X[:, 0], 0) + 0.1 * rng.standard_normal(60)


def test_a_silent_step_is_spoken_of_ever_more_seldom(quick):
    lines = []
    with followed(Follower(lambda line: lines.append((time.monotonic(), line)))) as follower:
        with step("reading"):
            time.sleep(0.3)
        follower.detail("of no step")
        with step("training"), step("the inner one"):
            follower.detail("gap 1e-2")
            time.sleep(2.0)
    names = [line.split(" (")[0] for _, line in lines]
    assert names[0] == "reading"
    assert names[-1] == "the inner one: gap 1e-2"
    assert set(names) == {"reading", "the inner one: gap 1e-2"}
    assert len(names) < 14  # 2.3 s in pieces of 0.1 s would be 23
    count = len(lines)
    time.sleep(0.3)
    assert len(lines) == count  # nothing after the end


def test_the_first_line_comes_within_two_seconds(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", FIRST)
    lines, started = [], time.monotonic()
    with followed(Follower(lambda line: lines.append(time.monotonic()))), step("work"):
        while not lines and time.monotonic() < started + 30:
            time.sleep(0.05)
    assert lines[0] - started >= FIRST
    assert FIRST + 0.2 < 2


def test_steps_cost_nothing_where_nobody_listens():
    with step("work"):
        pass
    assert progress._current.get() is None


def test_an_outer_follower_is_back_after_an_inner_one():
    outer, inner = Follower(print), Follower(print)
    with followed(outer):
        with followed(inner), step("inner"):
            assert inner.line().startswith("inner (")
            assert outer.line() == ""
        with step("outer"):
            assert outer.line().startswith("outer (")


def test_a_reader_that_leaves_ends_the_lines(quick):
    calls = []

    def write(line):
        calls.append(line)
        raise BrokenPipeError

    with followed(Follower(write)), step("work"):
        time.sleep(0.5)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["ReLURegressor", "GatedReLURegressor", "ReLURegressorCV"])
def test_verbose_says_how_a_fit_ended_and_changes_nothing(name, data, capsys, monkeypatch):
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    settings = {"n_patterns": 10} | ({"cv": 2, "n_alphas": 3} if name.endswith("CV") else {})
    quiet = getattr(cvxnn, name)(**settings).fit(*data)
    assert capsys.readouterr().err == ""
    told = getattr(cvxnn, name)(**settings, verbose=True).fit(*data)
    shown = capsys.readouterr()
    assert shown.out == ""
    last = shown.err.splitlines()[-1]
    assert last.startswith(f"cvxnn: {name}: converged, relative gap ")
    assert last.endswith(f" at alpha {told.alpha_:.4g}, {told.network_.n_neurons} neurons")
    np.testing.assert_array_equal(told.network_.W1, quiet.network_.W1)


@pytest.mark.filterwarnings("ignore:GatedReLURegressor did not converge")
def test_verbose_speaks_during_a_fit(data, caplog, quick, monkeypatch):
    solve = cvxnn.estimators.base.solve

    def slow(*args, callback, **options):
        def show(found):
            callback(found)
            time.sleep(0.15)

        return solve(*args, callback=show, **options)

    monkeypatch.setattr(cvxnn.estimators.base, "solve", slow)
    cvxnn.GatedReLURegressor(n_patterns=20, solver="rfista", verbose=True, max_iter=5).fit(*data)
    assert any("fitting: gap" in text for text in caplog.messages)
    assert {record.name for record in caplog.records} == {"cvxnn"}


def test_verbose_goes_to_the_handlers_of_the_logger_and_by_its_level(data, caplog, capsys):
    estimator = cvxnn.GatedReLURegressor(n_patterns=5, verbose=True)
    with caplog.at_level(logging.WARNING, "cvxnn"):
        estimator.fit(*data)
    assert caplog.messages == []
    estimator.fit(*data)
    assert len(caplog.messages) == 1
    assert capsys.readouterr().err == ""


def test_generated_patterns_are_spoken_of(data, caplog):
    cvxnn.ReLURegressor(0.05, patterns="generate", verbose=True).fit(*data)
    assert caplog.messages[-1].startswith("ReLURegressor: converged")


def test_verbose_is_checked(data):
    with pytest.raises(ValueError, match="verbose"):
        cvxnn.ReLURegressor(verbose="much").fit(*data)


@pytest.fixture
def table(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    X, y = data
    np.savetxt("t.csv", np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
    return tmp_path


FIT = ("fit", "t.csv", "--target", "y", "--patterns", "5", "--alpha", "0.1")


def test_commands_in_a_pipe_say_what_they_do(table, quick, monkeypatch):
    scores = models.scores_by_part

    def slow(*parts):
        time.sleep(0.4)
        return scores(*parts)

    monkeypatch.setattr(models, "scores_by_part", slow)
    found = CliRunner().invoke(main, FIT)
    assert found.exit_code == 0
    assert any(line.startswith("... scoring (") for line in found.stderr.splitlines())
    assert "..." not in found.stdout
    for silent in ("--json", "--quiet"):
        assert CliRunner().invoke(main, [*FIT, silent]).stderr == ""


def test_a_terminal_gets_a_bar_for_each_step(monkeypatch):
    class Drawn:
        def __init__(self):
            self.tasks, self.shown = {}, []

        def add_task(self, text, total, **fields):
            self.shown.append(text)
            self.tasks[len(self.shown)] = text
            return len(self.shown)

        def remove_task(self, task):
            del self.tasks[task]

        def update(self, task, description, completed, **fields):
            self.tasks[task] = description

    drawn = Drawn()
    bars = cvxnn.cli.console.Bars(drawn)
    bars.step("training")
    assert list(drawn.tasks.values()) == ["training"]
    bars.count("alpha")(1, 3)
    assert list(drawn.tasks.values()) == ["alpha 1 of 3"]
    bars.step("scoring")
    assert list(drawn.tasks.values()) == ["scoring"]
    bars.step("")
    assert drawn.tasks == {}


def test_nothing_is_followed_where_nothing_may_be_said(quick):
    with Console(as_json=True, quiet=False).progress() as bars, step("work"):
        time.sleep(0.3)
    bars.count("x")(1, 2)


def test_a_path_that_ran_out_of_time_goes_on(table):
    command = ("path", "t.csv", "--target", "y", "--patterns", "30", "--points", "40", "-o", "p")
    ended = CliRunner().invoke(main, [*command, "--max-seconds", "0.001"])
    assert ended.exit_code == 3
    assert "the time limit was reached" in ended.stderr
    assert CliRunner().invoke(main, command).exit_code == 0


def test_improve_ends_in_time(table):
    assert CliRunner().invoke(main, FIT).exit_code == 0
    command = ("improve", "model.cvxnn", "t.csv", "--patterns", "50", "--tol", "1e-12")
    ended = CliRunner().invoke(main, [*command, "--max-seconds", "0.001"])
    assert ended.exit_code == 3
    assert "the time limit was reached" in ended.stderr
