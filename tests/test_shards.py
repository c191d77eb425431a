"""Tables in several files and in several processes: read and encoded as in one, and shared out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cvxnn
from cvxnn.ranks import ALONE, OtherRankError
from cvxnn.tables.preparation import HELD_OUT, TRAINED, TrainingData
from cvxnn.tables.shards import Piece, ShardedTable, pieces_of, read_share, shared_out
from cvxnn.tables.table import TableError
from cvxnn.tables.transformer import TableEncoder
from extras import required
from group import group

pd = required("pandas")
required("pyarrow")
required("torch")

N = 400
SETTINGS = {"kind": "gated", "alpha": 0.02, "n_patterns": 15, "seed": 1}


def frame():
    """Every kind of column, each with its decisions: medians, categories, styles, identifiers."""
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {
            "key": np.arange(N) + 1000,
            "size": rng.standard_normal(N),
            "rooms": rng.integers(1, 40, N).astype(float),
            "city": rng.choice(["Rome", "Oslo", "Lima", None], N),
            "when": pd.date_range("2024-01-01", periods=N, freq="7h").astype(str),
            "price": [f"${value:,}" for value in rng.integers(900, 3000, N)],
            "same": "x",
            "weight": rng.integers(0, 3, N).astype(float),
        }
    )
    found.loc[rng.random(N) < 0.1, "size"] = np.nan
    score = np.nan_to_num(found["size"]) + (found["city"] == "Rome") - 0.02 * found["rooms"]
    found["label"] = np.where(score > 0.2, "yes", np.where(score > -0.6, "no", None))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of unequal size, one of a single row, with columns in another order in the last."""
    folder = tmp_path_factory.mktemp("rows")
    found = frame()
    for k, (start, stop) in enumerate([(0, 70), (70, 240), (240, 241), (241, N)]):
        part = found[start:stop]
        part = part if k < 3 else part[found.columns[::-1]]
        part.to_parquet(folder / f"{k}.parquet", row_group_size=60, index=False)
    return folder


@pytest.fixture(scope="module")
def processes():
    with group(3) as made:
        yield made


# -- several files in one process


def test_files_are_one_table(folder):
    table, found = cvxnn.read_table(folder / "*.parquet"), frame()
    assert_array_equal(table.column("rooms"), found["rooms"])
    assert table.column("city").tolist() == [
        None if isinstance(text, float) else text for text in found["city"]
    ]
    assert table.names == list(found.columns)
    assert table.place("rooms", 240).endswith(
        "column 'rooms', row 1 of " + str(folder / "2.parquet")
    )
    assert "row 3 of" in table.select(np.array([72, 399])).place("rooms", 0)
    assert len(cvxnn.read_table(folder)) == N


def test_csv_files_count_rows_as_they_do_alone(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n\n3,4\n")
    (tmp_path / "b.csv").write_text("y,x\n5,six\n")
    table = cvxnn.read_table(tmp_path)
    assert table.column("x").tolist() == ["1", "3", "six"]
    assert [str(table.row(k)).split()[0] for k in range(3)] == ["2", "4", "2"]
    with pytest.raises(TableError, match=r"row 2 of .*b.csv: 'six' is not a number"):
        table.numbers("x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": ["a", "b"]}, r"b.parquet, column 'x' holds texts, but numbers in .*a.parquet"),
        ({"z": [1.0, 2.0]}, r"b.parquet has the column 'z', which .*a.parquet lacks"),
        ({"x": None}, r"b.parquet lacks the column 'x', which .*a.parquet has"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, change, said):
    given = {"x": [1.0, 2.0], "y": [1.0, 0.0]}
    pd.DataFrame(given).to_parquet(tmp_path / "a.parquet")
    other = {name: values for name, values in (given | change).items() if values is not None}
    pd.DataFrame(other).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(TableError, match=said):
        cvxnn.read_table(tmp_path)


def test_a_column_without_values_in_one_file_is_what_it_is_in_the_others(tmp_path):
    pd.DataFrame({"x": [None, None], "t": [None, None]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"x": [1.0, 2.0], "t": ["a", "b"]}).to_parquet(tmp_path / "b.parquet")
    table = cvxnn.read_table(tmp_path)
    assert_array_equal(table.column("x"), [np.nan, np.nan, 1, 2])
    assert table.column("t").tolist() == [None, None, "a", "b"]


def test_a_folder_without_tables_and_names_that_fit_nothing_are_refused(tmp_path):
    with pytest.raises(TableError, match="is a folder without tables"):
        cvxnn.read_table(tmp_path)
    with pytest.raises(TableError, match=r"there is no file .*\*\.parquet"):
        cvxnn.read_table(tmp_path / "*.parquet")


def test_pieces_are_shared_out_in_order_and_about_evenly():
    rng = np.random.default_rng(0)
    for n_pieces in (1, 3, 50):
        pieces = [Piece(Path(str(k)), (), int(rng.integers(1, 9))) for k in range(n_pieces)]
        for n in (1, 2, 7):
            shares = shared_out(pieces, n)
            assert [piece for share in shares for piece in share] == pieces
            sizes = [sum(piece.size for piece in share) for share in shares]
            assert max(sizes) <= sum(sizes) / n + 9


def test_row_groups_are_pieces(folder, monkeypatch):
    monkeypatch.setattr("cvxnn.tables.shards._PIECE", 1)
    pieces = pieces_of(folder / "1.parquet")
    assert [piece.groups for piece in pieces] == [(0,), (1,), (2,)]
    table = pieces[1].read(None, None)
    assert_array_equal(table.column("rooms"), frame()["rooms"][130:190])
    assert table.row(0) == 61


# -- several processes


def prepared(table):
    data = TrainingData.of(table, "label", None, "weight", 0.2, 3, TableEncoder(na=["39"]))
    return {
        "encoder": data.encoder,
        "target": data.target,
        "notes": data.notes,
        "rows": data.rows,
        "parts": [data.part(which) for which in (TRAINED, HELD_OUT)],
    }


def prepared_by(ranks, folder, placing):
    """With the parts of the table in files that follow each other, or anywhere."""
    if placing == "shares":
        return prepared(read_share(folder, ranks))
    parts = {
        k: [cvxnn.read_table(folder / f"{k}.parquet")] for k in range(4) if placing[k] == ranks.rank
    }
    return prepared(ShardedTable.of(parts, str(folder), ranks))


@pytest.mark.parametrize("placing", ["shares", (1, 0, 1, 2), (2, 2, 0, 0)])
def test_columns_are_encoded_as_in_one_process(processes, folder, placing):
    """To the last bit, with the same notes, whoever has which rows."""
    here = prepared(cvxnn.read_table(folder))
    there = processes.run(prepared_by, 3, folder, placing)
    for found in there:
        assert found["encoder"] == here["encoder"]
        assert found["target"] == here["target"]
        assert found["notes"] == here["notes"]
        assert_array_equal(found["rows"], here["rows"])
    assert any("identifier" in note for note in here["notes"])
    for part, (X, y, weights) in enumerate(here["parts"]):
        found = [process["parts"][part] for process in there]
        together = np.concatenate(
            [np.column_stack([X, y == "yes", weights]) for X, y, weights in found]
        )
        whole = np.column_stack([X, y == "yes", weights])
        if placing != "shares":  # in another order
            together, whole = (rows[np.lexsort(rows.T)] for rows in (together, whole))
        assert_array_equal(together, whole)


def fitted(ranks, folder, target):
    table = read_share(folder, ranks) if ranks is not ALONE else cvxnn.read_table(folder)
    drop = ["label"] if target == "rooms" else []
    model = cvxnn.Model.fit(table, target, weight="weight", drop=drop, on_data=list, **SETTINGS)
    return model


@pytest.mark.parametrize("target", ["label", "rooms"])
def test_a_model_is_that_of_one_process(processes, folder, target, tmp_path):
    here = fitted(ALONE, folder, target)
    there = processes.run(fitted, 3, folder, target)
    table = cvxnn.read_table(folder)
    for model in there:
        assert_allclose(model.certificate.objective, here.certificate.objective, rtol=2e-4)
        assert model.certificate.lower_bound <= here.certificate.objective
        assert model.certificate.objective >= here.certificate.lower_bound
        assert model.certificate.proven
        for part, scores in here.scores.items():
            assert model.scores[part].keys() == scores.keys()
            for name, score in scores.items():
                assert_allclose(model.scores[part][name], score, rtol=0.05)
    there[0].save(tmp_path / "model.cvxnn")
    again = cvxnn.load(tmp_path / "model.cvxnn")
    assert_array_equal(again.predict(table), there[2].predict(table))
    with pytest.raises(TableError, match=r"in several processes.* cannot be checked again"):
        again.verify(table)


def relu(ranks, folder):
    table = read_share(folder, ranks)
    settings = SETTINGS | {"kind": "relu"}
    return cvxnn.Model.fit(table, "rooms", drop=["label"], on_data=list, **settings)


def test_a_relu_network_is_trained_on_a_sample_and_bounded_on_all_rows(processes, folder, tmp_path):
    first, second = processes.run(relu, 2, folder)
    first.save(tmp_path / "m.cvxnn")
    again, bounds = cvxnn.load(tmp_path / "m.cvxnn"), first.certificate
    table = cvxnn.read_table(folder)
    assert_array_equal(again.predict(table), second.predict(table))
    assert again.certificate == bounds == second.certificate
    assert bounds.lower_bound <= bounds.objective == bounds.network_objective
    assert "ReLU networks over" in bounds.scope


def test_scores_are_those_of_scikit_learn(processes, folder):
    """Of the same network, on the rows of all processes."""
    from cvxnn.tables.estimation import scores_by_part

    for target in ("label", "rooms"):
        model = processes.run(fitted, 2, folder, target)[0]
        drop = ["label"] if target == "rooms" else []
        encoder = TableEncoder(drop=drop)
        table = cvxnn.read_table(folder)
        data = TrainingData.of(table, target, None, "weight", 0.2, 1, encoder)
        parts = {"training": data.part(TRAINED), "held out": data.part(HELD_OUT)}
        for part, scores in scores_by_part(model.estimator, parts).items():
            for name, score in scores.items():
                assert_allclose(model.scores[part][name], score, rtol=1e-9)


def unlucky(ranks, folder):
    try:
        read_share(folder, ranks)
    except Exception as error:
        return type(error).__name__, str(error)


def test_a_file_that_one_process_cannot_read_is_named_by_all(processes, tmp_path):
    for k in range(4):
        pd.DataFrame({"x": np.arange(50.0)}).to_parquet(tmp_path / f"{k}.parquet")
    content = bytearray((tmp_path / "3.parquet").read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page
    (tmp_path / "3.parquet").write_bytes(content)
    first, second = processes.run(unlucky, 2, tmp_path)
    assert first[0] == OtherRankError.__name__
    assert second[0] == TableError.__name__
    assert "3.parquet is a damaged Parquet file" in second[1]
    assert second[1] in first[1]
    pd.DataFrame({"x": ["a"]}).to_parquet(tmp_path / "3.parquet")
    for answer in processes.run(unlucky, 2, tmp_path):
        assert answer[0] == TableError.__name__
        assert "3.parquet, column 'x' holds texts, but numbers in" in answer[1]


# -- the command line


def torchrun(*arguments, **options):
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    return subprocess.Popen(
        [sys.executable, *words, "-m", "cvxnn", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


FIT = ("--target", "label", "--drop", "weight", "--alpha", "0.02", "--patterns", "15")


def test_torchrun_trains_the_model_of_one_process(folder, tmp_path):
    process = torchrun("fit", folder / "*.parquet", *FIT, "--json", "-o", tmp_path / "m.cvxnn")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    told = json.loads(out)  # by one process
    here = cvxnn.Model.fit(
        cvxnn.read_table(folder), "label", drop=["weight"], on_data=list, **SETTINGS | {"seed": 0}
    )
    assert_allclose(told["certificate"]["objective"], here.certificate.objective, rtol=2e-4)
    model = cvxnn.load(tmp_path / "m.cvxnn")
    assert model.certificate.objective == told["certificate"]["objective"]
    assert type(model.estimator).__name__ == "GatedReLUClassifier"


def test_torchrun_tells_an_error_once(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes((folder / "1.parquet").read_bytes())
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    content[4:40] = b"\xff" * 36
    (tmp_path / "b.parquet").write_bytes(content)
    process = torchrun("fit", tmp_path, *FIT, "--json", "-o", tmp_path / "m.cvxnn")
    out, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    answer = json.loads(out)
    assert "process 1: " in answer["error"]
    assert "b.parquet is a damaged Parquet file" in answer["error"]
    assert not (tmp_path / "m.cvxnn").exists()
