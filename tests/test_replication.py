"""The replication goes on where it was stopped, and its data are what they are taken for."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from extras import needs

ROOT = Path(__file__).parent.parent


@pytest.fixture
def replication(monkeypatch):
    """The package, which is not installed, with the environment put back afterwards."""
    monkeypatch.syspath_prepend(str(ROOT))
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    import replication

    return replication


@pytest.fixture
def results(replication, tmp_path):
    from replication.experiment import Profile
    from replication.results import Results

    return Results("toy", Profile.SMOKE, tmp_path)


def test_a_piece_counts_as_done_with_the_same_settings_only(replication, results):
    from replication.experiment import Piece

    first, second = Piece("a", {"lam": (1, 2)}), Piece("b", {"lam": 1})
    with results.writing():
        results.append(first, {"x": 1.5}, 0.25, {"commit": "c"})
    assert results.missing([first, second]) == [second]
    assert results.missing([first._replace(settings={"lam": (1, 3)})]) != []
    (done,) = results.done().values()
    assert (done.row, done.cpu_seconds) == ({"x": 1.5}, 0.25)
    assert results.environments()[done.environment] == {"commit": "c"}


def test_half_a_line_is_cut_off_and_nothing_else(replication, results):
    from replication.experiment import Piece

    with results.writing():
        results.append(Piece("a", {}), {"x": 1}, 0.0, {})
    with results.file.open("a") as file:
        file.write('{"piece": "b", "settings"')
    assert list(results.done()) == ["a"]
    with results.writing():
        results.append(Piece("b", {}), {"x": 2}, 0.0, {})
    assert {key: piece.row["x"] for key, piece in results.done().items()} == {"a": 1, "b": 2}


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_two_processes_do_not_write_to_one_file(replication, results):
    from replication.results import Busy

    with results.writing(), pytest.raises(Busy, match="another process"), results.writing():
        pass


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Killed after its first piece; the next call does the rest, and nothing twice."""
    command = [sys.executable, "-m", "replication", "errata", "--profile", "smoke"]
    command += ["--results", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if " in " in line:
            break
    process.kill()
    process.wait()
    process.stderr.close()

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    lines = (tmp_path / "errata-smoke.jsonl").read_text().splitlines()
    keys = [piece["piece"] for piece in map(json.loads, lines) if "piece" in piece]
    assert len(keys) == len(set(keys)) > 10
    assert keys[0] not in again.stderr
    page = (tmp_path / "errata.md").read_text()
    assert "144 of 179 random cases" in page


def test_a_piece_that_dies_takes_no_other_with_it(replication, results, monkeypatch):
    from replication import runner
    from replication.experiment import Experiment, Piece

    pieces = [Piece(key, {"key": key}) for key in "abc"]
    outcomes = {"a": ({"x": 1}, 0.1), "b": "its process died", "c": ({"x": 3}, 0.1)}
    monkeypatch.setattr(
        runner, "_outcomes", lambda *_: ((piece, outcomes[piece.key]) for piece in pieces)
    )
    toy = Experiment("toy", "Toy", (), lambda _: pieces, dict, str)
    assert runner.run(toy, results) == 1
    assert list(results.done()) == ["a", "c"]


def test_pieces_have_keys_of_their_own(replication):
    from replication.experiment import Piece
    from replication.runner import check_keys

    with pytest.raises(ValueError, match="two pieces have the key 'a'"):
        check_keys([Piece("a", {"x": 1}), Piece("a", {"x": 2})])


def test_agreement_is_judged_as_printed(replication):
    from replication.pages import agreement

    assert agreement(84.24, 84.2, 1, 1.5) == "same"
    assert agreement(84.31, 84.2, 1, 1.5) == "near"
    assert agreement(86.0, 84.2, 1, 1.5) == "far"


def test_all_claims_are_there_and_all_cells(replication):
    from replication.paper import claims, printed, selected

    assert len(claims()) == 43
    assert [len(printed(table)) for table in range(1, 9)] == [5, 18, 20, 2, 28, 20, 20, 20]
    assert printed(5)["pima"]["rfista_group_norm_median"] == 78.8
    assert selected(3)["magic"]["nc_relu_sgd_step_size"] == 10


def test_the_authors_split_and_gates(replication):
    from replication.data import gates, split, synthetic

    train, test = split(768)
    assert (len(train), len(test)) == (615, 153)
    assert sorted([*train, *test]) == list(range(768))
    np.testing.assert_array_equal(
        gates(3, 4, 650), np.random.default_rng(650).standard_normal((3, 4))
    )
    task = synthetic("uniform")
    assert np.mean(task.labels) == np.mean(task.labels_test) == 0.932


def test_an_output_of_zero_is_wrong(replication):
    from replication.data import accuracy

    assert accuracy(np.array([1.0, -1.0, 0.0, 0.0]), np.array([1, 0, 1, 0])) == 50.0
    assert accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])) == 50.0


def test_sets_are_collected_from_the_publishers_files(replication, tmp_path, monkeypatch):
    from click.testing import CliRunner
    from replication import data
    from replication.collect import main

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((5, 3)), np.arange(5) % 2
    folder = tmp_path / "in" / "toy"
    folder.mkdir(parents=True)
    lines = ["\tf1\tf2\tf3\tclase"]
    lines += [
        "\t".join([str(i + 1), *(repr(float(x)) for x in row), str(label)])
        for i, (row, label) in enumerate(zip(X, y, strict=True))
    ]
    (folder / "toy_R.dat").write_text("\n".join(lines) + "\n")
    known = data.Known("uci/toy.npz", 5, 3, 2, data.sum_of([X, y]))
    monkeypatch.setattr("replication.collect.catalogue", lambda: {"toy": known})
    monkeypatch.setattr(data, "catalogue", lambda: {"toy": known})

    def collect():
        out = str(tmp_path / "out")
        return CliRunner().invoke(main, [out, "--uci", str(tmp_path / "in")])

    assert collect().exit_code == 0
    with np.load(tmp_path / "out" / "uci" / "toy.npz") as content:
        np.testing.assert_array_equal(content["X"], X)
    (folder / "toy_R.dat").write_text("\n".join(lines).replace(str(X[0, 0])[:4], "9.99") + "\n")
    refused = collect()
    assert refused.exit_code == 1
    assert "toy: its SHA-256 sum" in refused.output


@needs("torch", "matplotlib", "cvxpy")
def test_every_experiment_runs_small(tmp_path):
    """All of them, in seconds each; what needs the data folder says so where it is missing."""
    command = [sys.executable, "-m", "replication", "--profile", "smoke", "--results"]
    process = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    failures = [line for line in process.stderr.splitlines() if "FAILED" in line]
    assert all("CVXNN_DATA" in line for line in failures), process.stderr
    assert (tmp_path / "claims.md").exists()
