"""Tables in files: the same columns, models and certificates as tables in memory."""

import gzip

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

import cvxnn
from cvxnn import stored
from cvxnn.cli import main
from cvxnn.stored import StoredRows
from cvxnn.tables import spilling
from cvxnn.tables.reading import read_table
from cvxnn.tables.spilling import spill_table
from cvxnn.tables.table import TableError
from extras import needs

N = 700


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(stored, "CHUNK", 2**13)
    monkeypatch.setattr(spilling, "ROWS", 100)
    monkeypatch.setattr(spilling, "MAX_TEXTS", 300)


def cells():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, N)).round(3)
    city = np.array(["Rome", "Oslo", "Lima, Peru"])[rng.integers(3, size=N)]
    y = np.maximum(a + b, 0) + (city == "Oslo") + 0.1 * rng.standard_normal(N)
    label = np.where(y > np.median(y), "yes", "no")
    gaps = [f"{v}" if k % 7 else "" for k, v in enumerate(b)]
    return {"a": a, "b": gaps, "city": city, "few": np.arange(N) % 4, "y": y, "label": label}


def csv_of(columns, delimiter=","):
    lines = [delimiter.join(columns)]
    for row in zip(*columns.values(), strict=True):
        quoted = [f'"{cell}"' if delimiter in str(cell) else str(cell) for cell in row]
        lines.append(delimiter.join(quoted))
    return "\n".join([lines[0], lines[1], "", *lines[2:]]) + "\n"


def assert_same(ours, theirs):
    assert ours.in_files
    assert (ours.names, len(ours)) == (theirs.names, len(theirs))
    some = np.array([3, 250, 4])
    for mine, other in ((ours, theirs), (ours.select(some), theirs.select(some))):
        for name in theirs.names:
            assert mine.is_numeric(name) == other.is_numeric(name)
            assert_array_equal(mine.missing(name), other.missing(name))
            if other.is_numeric(name):
                assert_array_equal(mine.numbers(name), other.numbers(name))
            else:
                assert_array_equal(mine.texts(name), other.texts(name))
        assert [mine.row(k) for k in (0, 2)] == [other.row(k) for k in (0, 2)]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_text_file_is_the_same_table(tmp_path, zipped, delimiter):
    columns = cells()
    if delimiter == ";":
        columns["a"] = [str(v).replace(".", ",") for v in columns["a"]]
    content, file = csv_of(columns, delimiter).encode(), tmp_path / "table.csv"
    file.write_bytes(gzip.compress(content) if zipped else content)
    assert_same(spill_table(file), read_table(file))


@needs("pyarrow")
def test_a_parquet_file_is_the_same_table(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {k: list(v) for k, v in cells().items()}
    columns["b"] = [float(v) if v else None for v in columns["b"]]
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=150)
    assert_same(spill_table(tmp_path / "t.parquet"), read_table(tmp_path / "t.parquet"))


def test_columns_of_names_are_left_out(tmp_path):
    columns = cells() | {"id": [f"n{k}" for k in range(N)]}
    (tmp_path / "t.csv").write_text(csv_of(columns))
    table = spill_table(tmp_path / "t.csv")
    assert table.names == list(cells())
    assert "'id' has more than 300 different values" in table.notes[0]


BAD = {
    "no header": "1,2\n3,4\n",
    "a, and": "a,b\n1\n",
    "more than one column 'a'": "a,a\n1,2\n",
    "without a name": "a,\n1,2\n",
    "no rows": "a,b\n",
    "is empty": "",
    "web page": "<html></html>",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_files_are_refused(tmp_path, content):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError):
        spill_table(tmp_path / "t.csv")


@pytest.mark.parametrize("target", ["y", "label"])
def test_a_model_of_rows_in_files_is_verified(tmp_path, target):
    (tmp_path / "t.csv").write_text(csv_of(cells()))
    settings = {"kind": "gated", "alpha": 0.03, "n_patterns": 20, "tol": 1e-4}
    settings["drop"] = ["label" if target == "y" else "y"]
    table, plain = spill_table(tmp_path / "t.csv"), read_table(tmp_path / "t.csv")
    ours = cvxnn.Model.fit(table, target, **settings, max_memory="1MB")
    theirs = cvxnn.Model.fit(plain, target, **settings)
    assert not ours.merged
    assert theirs.merged
    assert ours.encoder == theirs.encoder
    assert ours.fingerprint == theirs.fingerprint
    assert_allclose(ours.certificate.objective, theirs.certificate.objective, rtol=3e-4)
    ours.save(tmp_path / "model.cvxnn")
    again = cvxnn.Model.load(tmp_path / "model.cvxnn")
    assert not again.merged
    for data in (table, plain):
        assert again.verify(data).agrees
    enough = cvxnn.Model.fit(table, target, **settings, max_memory="1GB")  # read into memory
    assert enough.merged
    assert enough.certificate == theirs.certificate


def test_the_command_line_keeps_to_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("cvxnn.cli.training.used", lambda: 0)
    used = []
    made = StoredRows.from_chunks.__func__
    record = classmethod(lambda cls, *given: used.append(1) or made(cls, *given))
    monkeypatch.setattr(StoredRows, "from_chunks", record)
    (tmp_path / "t.csv").write_text(csv_of(cells()))
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--patterns", "20"]
    command += ["--alpha", "0.05", "--tol", "1e-3", "-o", str(tmp_path / "m.cvxnn")]
    done = CliRunner().invoke(main, [*command, "--model", "gated", "--memory", "1MB"])
    assert done.exit_code == 0, done.output
    assert used
    assert not cvxnn.Model.load(tmp_path / "m.cvxnn").merged
    for arguments, message in (
        (["--memory", "1MB"], "train a gated network"),
        (["--model", "gated", "--memory", "1kB"], "too little"),
        (["--memory", "plenty"], "must be bytes"),
    ):
        done = CliRunner().invoke(main, [*command, *arguments])
        assert done.exit_code != 0
        assert message in done.output + str(done.stderr if done.stderr_bytes else "")
