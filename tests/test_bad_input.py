"""Bad input of every kind, on the command line and in Python. Each kind gives the right answer or a
clear error: the exit code says which, the message names file, column and row where there is one,
there is no traceback, and nothing is half-written.

`docs/bad-input.md` shows what is said; `python docs/update_bad_input.py` writes it from this table.
"""

from __future__ import annotations

import gzip
import inspect
import io
import os
import pickle
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save as serialize
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight

import cvxnn
from cvxnn import modelfile
from cvxnn.cli import main
from cvxnn.networks import NETWORKS
from cvxnn.tables.model import Model
from cvxnn.tables.reading import read_table
from cvxnn.tables.table import Table
from extras import optional, required

pd, resource = optional("pandas"), optional("resource")

ROOT = Path(__file__).parent.parent
N = 40
# Newer versions of scikit-learn refuse weights of zero before cvxnn does.
ZERO_WEIGHTS = (
    "at least one non-zero number"
    if "allow_all_zero_weights" in inspect.signature(_check_sample_weight).parameters
    else "sample_weight is zero for all samples"
)
HEADER = ["a", "b", "city", "label"]


# ------------------------------------------------------------------------- what is not bad


def make_rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.standard_normal((2, n)), 3)
    city = rng.choice(["Lima", "Oslo", "Rome"], n)
    label = np.where(np.abs(a) - b + (city == "Oslo") > 0.7, "yes", "no")
    return [list(map(str, row)) for row in zip(a, b, city, label, strict=True)]


ROWS = make_rows()


def text_of(rows=ROWS, header=HEADER, delimiter=","):
    return "".join(delimiter.join(row) + "\n" for row in [header, *rows])


def with_cell(name, row, value, rows=ROWS):
    """The table with another value in a row, which is counted as in the file."""
    changed = [list(fields) for fields in rows]
    changed[row - 2][HEADER.index(name)] = value
    return text_of(changed)


def with_column(name, values):
    """The table with another column, or a further one."""
    header = HEADER if name in HEADER else [*HEADER, name]
    rows = [[*row, ""][: len(header)] for row in ROWS]
    for row, value in zip(rows, values, strict=True):
        row[header.index(name)] = value
    return text_of(rows, header)


def scaled(name, factor):
    values = [float(row[HEADER.index(name)]) * factor for row in ROWS]
    return with_column(name, [repr(value) for value in values])


GOOD = text_of()
FIT = "fit data.csv --target label --patterns 8 --alpha 0.02"
PATH = "path data.csv --target label --patterns 5 --points 2"


@cache
def sound():
    """A table and a model of it, as bytes of files."""
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder, "data.csv"), Path(folder, "model.cvxnn")
        data.write_text(GOOD)
        fitted = Model.fit(read_table(data), "label", n_patterns=8, alpha=0.02)
        fitted.save(model)
        network = Path(folder, "network.cvxnn")
        fitted.network.save(network)
        return {file.name: file.read_bytes() for file in (data, model, network)}


def tampered(change):
    """The model file after a change to its content, with the right checksum."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.cvxnn")
        path.write_bytes(sound()["model.cvxnn"])
        content = modelfile.read(path, NETWORKS)
        change(content)
        modelfile.write(content, path)
        return path.read_bytes()


def parquet(**columns):
    content = io.BytesIO()
    pd.DataFrame(columns).to_parquet(content)
    return content.getvalue()


# ---------------------------------------------------------------------------- kinds of input


@dataclass(frozen=True)
class Command:
    """A command in a folder of its own, which has data.csv and model.cvxnn.

    line : the command.
    code : how it ends.
    says : what has to be in its message, or in its notes if it succeeds.
    files : other files of the folder, by name; a function is called for its content, None is none.
    makes : files that there are afterwards, if it succeeds.
    check : whether the answer is right; called in the folder with what was printed.
    during : a context for the command.
    """

    line: str
    code: int
    says: str
    files: dict[str, Any] = field(default_factory=dict)
    makes: tuple[str, ...] = ()
    check: Callable[[str], None] | None = None
    during: Callable[[], Any] = nullcontext


@dataclass(frozen=True)
class Call:
    """A call of the library.

    error : what it raises.
    says : what has to be in the message.
    """

    call: Callable[[], Any]
    error: type[Exception]
    says: str


@dataclass(frozen=True)
class Outcome:
    code: int | str
    said: str
    before: dict[str, bytes | None]
    after: dict[str, bytes | None]
    told_apart: bool  # a message, no traceback


def fit_to(says, content, code=2, options="", **settings):
    return Command(f"{FIT} {options}".strip(), code, says, {"data.csv": content}, **settings)


def fits(says, content, check=None, options="", command=FIT):
    """A command that succeeds and writes a good model."""

    def checked(printed):
        model = Model.load("model.cvxnn")
        assert model.verify(read_table("data.csv")).agrees
        assert model.certificate.relative_gap <= 1e-4
        if check is not None:
            check(model)

    line = f"{command} {options}".strip()
    return Command(line, 0, says, {"data.csv": content}, ("model.cvxnn",), checked)


# -- checks of answers


def names_a_category(name):
    def check(model):
        assert name in model.encoder.features

    return check


def leaves_out(*names):
    def check(model):
        used = [column.name for column in model.encoder.columns]
        assert used == [name for name in ("a", "b", "city") if name not in names]

    return check


def as_good(model):
    """The same model but for the units of a column."""
    Path("plain.cvxnn").write_bytes(sound()["model.cvxnn"])
    plain = Model.load("plain.cvxnn")
    Path("plain.cvxnn").unlink()
    np.testing.assert_allclose(model.certificate.objective, plain.certificate.objective, rtol=1e-6)
    for part, values in plain.scores.items():
        assert model.scores[part] == pytest.approx(values, rel=1e-3)


def predicts_in_units_of(unit):
    def check(model):
        predictions = model.predictions(read_table("data.csv"))[0]["prediction"]
        assert np.all(np.isfinite(predictions))
        assert 0.05 * unit < np.abs(predictions).max() < 20 * unit
        assert model.scores["training"]["r2"] > 0.1
        assert 0 < model.scores["training"]["rmse"] < 2 * unit

    return check


def predicts_constant(value):
    def check(model):
        predictions = model.predictions(read_table("data.csv"))[0]["prediction"]
        np.testing.assert_allclose(predictions, value, rtol=1e-12)

    return check


def has_rows(**expected):
    def check(model):
        found = {
            name: int(np.sum(model.rows == k)) for k, name in enumerate(("fit", "test", "out"))
        }
        assert {name: found[name] for name in expected} == expected

    return check


def has_classes(*classes):
    def check(model):
        assert model.target.classes == classes

    return check


def predicts_rows(count):
    def check(printed):
        assert len(printed.splitlines()) == count + 1

    return check


# -- contexts


@contextmanager
def full_disk(size=100):
    """No file may grow beyond some bytes, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def little_memory(size=2**29):
    """Leave half a gigabyte of memory beside what is used already."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def no_rights(folder_mode=0o555, file_mode=0o644):
    """The folder, or its files, belong to somebody else; root may do everything and has to become
    nobody first."""
    files = [Path(name) for name in os.listdir() if Path(name).is_file()]
    for file in files:
        file.chmod(file_mode)
    os.chmod(".", folder_mode)
    root = os.geteuid() == 0
    if root:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)
        os.chmod(".", 0o755)
        for file in files:
            file.chmod(0o644)


def locked_files():
    return no_rights(0o755, 0o200 if os.geteuid() else 0o600)


FOLDER = object()  # instead of the content of a file

FILES = {
    "a file that is not there": Command(
        "fit nix.csv --target label", 2, "there is no file nix.csv"
    ),
    "a folder without tables": Command(
        "fit folder --target label", 2, "folder is a folder without tables", {"folder": FOLDER}
    ),
    "a name with * that fits no file": Command(
        "fit nix-*.csv --target label", 2, "there is no file nix-*.csv"
    ),
    "files with other columns": Command(
        "fit part-*.csv --target label",
        2,
        "part-2.csv lacks the column 'b', which part-1.csv has",
        {"part-1.csv": "a,b,label\n1,2,x\n", "part-2.csv": "a,label\n1,y\n"},
    ),
    "an empty file": fit_to("data.csv is empty", b""),
    "blank lines only": fit_to("data.csv is empty", "\n \n\n"),
    "a byte order mark only": fit_to("data.csv is empty", b"\xef\xbb\xbf"),
    "a header only": fit_to("data.csv has a header, but no rows", "a,b,city,label\n"),
    "one row": fit_to("data.csv has 1 row to learn from, and needs at least 2", text_of(ROWS[:1])),
    "binary": fit_to("data.csv, row 1: not text in the encoding utf-8", bytes(range(128, 256))),
    "zero bytes": fit_to("data.csv is not a table: it holds zero bytes", b"a,label\n1,\0\n"),
    "an Excel file": fit_to(
        "data.csv is a zip archive or an Excel file", b"PK\x03\x04" + bytes(99)
    ),
    "an old Excel file": fit_to(
        "data.csv is an old Excel file: save the sheet as CSV", b"\xd0\xcf\x11\xe0" + bytes(99)
    ),
    "a PDF file": fit_to("data.csv is a PDF file", b"%PDF-1.7\n"),
    "a picture": fit_to("data.csv is a picture", b"\x89PNG\r\n\x1a\n" + bytes(99)),
    "a database": fit_to("data.csv is a database", b"SQLite format 3\0" + bytes(99)),
    "bzip2": fit_to("data.csv is compressed by bzip2", b"BZh91AY" + bytes(99)),
    "xz": fit_to("data.csv is compressed by xz", b"\xfd7zXZ\0" + bytes(99)),
    "a web page": fit_to("data.csv is a web page", "\n<!DOCTYPE html>\n<title>404</title>\n"),
    "a JSON file": fit_to("data.csv is a JSON file", '[{"a": 1, "label": "yes"}]\n'),
    "a model file as data": Command(
        "predict model.cvxnn model.cvxnn", 2, "model.cvxnn is a model file, not a table"
    ),
    "a device as data": Command(
        "predict model.cvxnn /dev/zero", 2, "/dev/zero is a device, not a file"
    ),
    "a device as the model": Command(
        "predict /dev/zero data.csv", 2, "/dev/zero is a device, not a file"
    ),
    "a truncated gzip file": fit_to(
        "data.csv is a damaged gzip file", lambda: gzip.compress(GOOD.encode())[:-20]
    ),
    "a damaged gzip file": fit_to(
        "data.csv is a damaged gzip file", lambda: gzip.compress(GOOD.encode())[:-8] + bytes(8)
    ),
    "a truncated Parquet file": fit_to(
        "data.csv is a damaged Parquet file", lambda: parquet(a=[1.0, 2.0])[:-10]
    ),
    "a damaged Parquet file": fit_to(
        "data.csv is a damaged Parquet file", b"PAR1" + bytes(200) + b"PAR1"
    ),
    "Parquet without rows": fit_to(
        "data.csv has columns, but no rows", lambda: parquet(a=np.ones(0), label=np.ones(0))
    ),
    "Parquet with lists": fit_to(
        "data.csv, column 'a': values of type list", lambda: parquet(a=[[1], [2]], label=["x", "y"])
    ),
}

TEXT = {
    "latin-1 without saying so": fit_to(
        "data.csv, row 3: not text in the encoding utf-8; give another one, such as latin-1",
        with_cell("city", 3, "Köln").encode("latin-1"),
    ),
    "another encoding than said": fit_to(
        "data.csv, row 3: not text in the encoding ascii",
        with_cell("city", 3, "Köln"),
        options="--encoding ascii",
    ),
    "an encoding that does not exist": fit_to(
        "unknown encoding 'utf-9'", GOOD, options="--encoding utf-9"
    ),
    "UTF-16 without a byte order mark": fit_to(
        "it holds zero bytes, which only text in utf-16 does", GOOD.encode("utf-16-le")
    ),
    "another delimiter than said": fit_to(
        "one column only, 'a,b,city,label': is that the right delimiter?",
        GOOD,
        options="--delimiter ';'",
    ),
    "a delimiter of two characters": fit_to(
        "the delimiter must be one character, got '::'", GOOD, options="--delimiter ::"
    ),
    "an empty delimiter": fit_to(
        "the delimiter must be one character, got ''", GOOD, options="--delimiter ''"
    ),
    "a quote as the delimiter": fit_to(
        "the delimiter must be one character", GOOD, options="--delimiter '\"'"
    ),
    "columns between spaces": fit_to(
        "one column only, 'a b city label': is that the right delimiter?", text_of(delimiter=" ")
    ),
    "a row that is too short": fit_to(
        "data.csv, row 4: 3 fields, but the header has 4", text_of([*ROWS[:2], ROWS[2][:3]])
    ),
    "a row that is too long": fit_to(
        "data.csv, row 4: 5 fields, but the header has 4", text_of([*ROWS[:2], [*ROWS[2], "x"]])
    ),
    "a quote that does not end": fit_to(
        "data.csv, row 3: a quote is opened and not closed", with_cell("city", 3, '"Rome')
    ),
    "a field that is too long": fit_to(
        "data.csv, row 3: column 'city' has 131,073 characters, and at most 131,072 are read",
        with_cell("city", 3, "x" * 131_073),
    ),
    "text after a quote": fit_to(
        "data.csv, row 3: column 'city': 'me,no' follows a closing quote",
        with_cell("city", 3, '"Ro"me'),
    ),
    "quotes inside of texts, written with a backslash": fits(
        'quotes inside of texts are written as \\"',
        text_of([[a, b, f'"the \\"{city}\\", by name"', label] for a, b, city, label in ROWS]),
        names_a_category('city=the "Rome", by name'),
    ),
    "no header, numbers": fit_to(
        "data.csv has no header: its first row holds numbers only", "1.5,2\n3,4\n5,6\n"
    ),
    "no header, numbers and texts": fit_to(
        "is the first row a header?", text_of(ROWS[1:], ROWS[0])
    ),
    "two columns of one name": fit_to(
        "data.csv has more than one column 'a'", text_of(header=["a", "a", "city", "label"])
    ),
    "a column without a name": fit_to(
        "data.csv: column 2 has no name in the header", text_of(header=["a", "", "city", "label"])
    ),
}

TARGETS = {
    "no target": Command(
        "fit data.csv",
        2,
        "--target has to name the column to predict; data.csv has 'a', 'b', 'city', 'label'",
    ),
    "a misspelt target": Command(
        "fit data.csv --target lable", 2, "no column 'lable': did you mean 'label'?"
    ),
    "a target in capitals": Command("fit data.csv --target LABEL", 2, "did you mean 'label'?"),
    "a target that is not there": Command(
        "fit data.csv --target price", 2, "no column 'price'; it has 'a', 'b', 'city', 'label'"
    ),
    "a target without values": fit_to(
        "data.csv has 0 rows to learn from, and needs at least 2; "
        "40 rows left out because 'label' is missing",
        with_column("label", [""] * N),
    ),
    "a target with some missing": fits(
        "2 rows left out because 'label' is missing, the first is row 3",
        with_column("label", [["", "NA"][k % 2] if k in (1, 8) else ROWS[k][3] for k in range(N)]),
        has_rows(out=2, fit=30, test=8),
    ),
    "one class": fit_to(
        "data.csv, column 'label' has only one value, 'yes'", with_column("label", ["yes"] * N)
    ),
    "a class with one member": fits(
        "labels with a single row, too few to learn from or to test on: 'maybe'",
        with_cell("label", 5, "maybe"),
        has_classes("maybe", "no", "yes"),
    ),
    "as many labels as rows": fit_to(
        "40 different labels in 40 rows: too many to learn, is it the right column?",
        with_column("label", [f"row {k}" for k in range(N)]),
    ),
    "classes of fractions": fit_to(
        "too many to learn, is it a regression?",
        scaled("a", 1.0),
        options="--target a --task classification",
    ),
    "texts as numbers": fit_to(
        "data.csv, column 'label', row 2: 'yes' is not a number", GOOD, options="--task regression"
    ),
    "a number that is none among targets": fit_to(
        "data.csv, column 'a', row 7: 'many' is not a number",
        with_cell("a", 7, "many"),
        options="--target a --task regression",
    ),
    "an infinite target": fit_to(
        "data.csv, column 'a', row 7: inf is not finite",
        with_cell("a", 7, "inf"),
        options="--target a",
    ),
    "a constant number as the target": fits(
        "the targets do not depend on X: the model is constant",
        with_column("label", ["3.5"] * N),
        predicts_constant(3.5),
        "--task regression",
    ),
    "a path to a constant": Command(
        f"{PATH} --task regression",
        2,
        "data.csv, column 'label' does not depend on the others",
        {"data.csv": with_column("label", ["3.5"] * N)},
    ),
    "targets of size 1e300": fits(
        "", scaled("a", 1e300), predicts_in_units_of(1e300), "--target a"
    ),
    "targets of size 1e-300": fits(
        "", scaled("a", 1e-300), predicts_in_units_of(1e-300), "--target a"
    ),
}

COLUMNS = {
    "only the target": fit_to(
        "data.csv has no column to learn from besides 'label'", "label\nyes\nno\nyes\nno\n"
    ),
    "names of rows": fits(
        "column 'id' has a different text in every row: left out",
        with_column("id", [f"row {k}" for k in range(N)]),
        leaves_out(),
    ),
    "too many texts": fits(
        "column 'city' has 19 different texts: left out",
        with_column("city", [f"city {k // 2}" for k in range(N)]),
        leaves_out("city"),
        "--max-categories 10",
    ),
    "a column without values": fits(
        "column 'b' has no values: left out", with_column("b", [""] * N), leaves_out("b")
    ),
    "nothing but names": fit_to(
        "data.csv has no column to learn from; column 'id' has a different text in every row",
        with_column("id", [f"row {k}" for k in range(N)]),
        options="--drop a --drop b --drop city",
    ),
    "a constant column": fits(
        "column 'b' has only one value: left out", with_column("b", ["7"] * N), leaves_out("b")
    ),
    "a word for missing values among numbers": fits(
        "column 'b': 'unknown' counts as missing among numbers, in 1 row",
        with_cell("b", 9, "unknown"),
        options="--holdout 0",
    ),
    "a text among numbers": fits(
        "column 'b' is read as numbers, 97.5 % of its values are; others count as missing: 'lots' "
        "in row 9; categorical=['b'] (--categorical) keeps them as categories",
        with_cell("b", 9, "lots"),
        options="--holdout 0",
    ),
    "texts among few numbers": fits(
        "column 'b' is treated as text because 'lots' in row 2 is not a number",
        with_column("b", ["lots", "1", "2", "3"] * 10),
    ),
    "thousands with commas": fits(
        "column 'b' is read as numbers, 1,234 as 1234",
        with_column("b", ['"1,234"' if k % 2 == 0 else "999" for k in range(N)]),
    ),
    "percentages": fits(
        "column 'b' is read as numbers, 10% as 10",
        with_column("b", [f"{10 + k % 7}%" for k in range(N)]),
    ),
    "amounts of money": fits(
        "column 'b' is read as numbers, $772.93 as 772.93",
        with_column("b", [f"${772.93 + k % 7}" for k in range(N)]),
    ),
    "dates": fits(
        "column 'b' holds dates and becomes days since 1970, weekday",
        with_column("b", [f"2024-03-{1 + k % 28:02}" for k in range(N)]),
    ),
    "dates that leave the order open": fits(
        "is read as month day year: if the day comes first, give day_first=True (--day-first)",
        with_column("b", [f"0{1 + k % 9}/0{1 + k % 8}/2024" for k in range(4, 4 + N)]),
    ),
    "a column that counts the rows": fits(
        "column 'id' looks like an identifier, with whole numbers that count the rows: left out; "
        "use=['id'] (--use) learns from it",
        with_column("id", [str(100 + k) for k in range(N)]),
    ),
    "numbers as keys": fits(
        "column 'customer_id' looks like an identifier, with",
        with_column("customer_id", [str(100 + 7 * k) for k in range(N)]),
    ),
    "a few whole numbers as the target": fits(
        "'label' has 4 different whole numbers, which are taken as 4 classes; task='regression' "
        "(--task regression) predicts a number",
        with_column("label", [str(1 + k % 4) for k in range(N)]),
    ),
    "thousands with underscores": fits(
        "column 'b' is treated as text because '1_000' in row 2 is not a number",
        with_column("b", ["1_000" if k % 2 == 0 else "999" for k in range(N)]),
    ),
    "decimal commas": fits(
        "commas are read as decimal points,",
        text_of(delimiter=";").replace(".", ","),
        as_good,
    ),
    "decimal commas and points in one column": fits(
        "others count as missing: '1,5' in row 9",
        with_cell("b", 9, "1,5").replace(",", ";").replace("1;5", "1,5"),
        options="--holdout 0",
    ),
    "infinity": fit_to(
        "data.csv, column 'b', row 9: -inf is not finite", with_cell("b", 9, "-inf")
    ),
    "a number beyond all floats": fit_to(
        "data.csv, column 'b', row 9: 1e999 is not finite", with_cell("b", 9, "1e999")
    ),
    "Parquet, read with a delimiter": fit_to(
        "data.csv is a Parquet file, which has no delimiter: give none",
        lambda: parquet(a=[1.0, 2.0, 3.0, 4.0], label=["x", "y", "x", "y"]),
        options="--delimiter ;",
    ),
    "infinity in Parquet": fit_to(
        "data.csv, column 'a', row 2: inf is not finite",
        lambda: parquet(a=[1.0, np.inf, 2.0, 3.0], label=["x", "y", "x", "y"]),
    ),
    "numbers of size 1e300": fits("", scaled("b", 1e300), as_good),
    "numbers of size 1e-300": fits("", scaled("b", 1e-300), as_good),
    "denormal numbers": fits(
        "these columns of X are too small to be scaled and count as zero: 'b'", scaled("b", 1e-310)
    ),
    "missing values": fits("missing values are filled in and marked: 'b'", with_cell("b", 9, "")),
    "missing values, refused": fit_to(
        "data.csv, column 'b', row 9: the value is missing, and missing values are refused",
        with_cell("b", 9, "?"),
        options="--missing refuse",
    ),
    "a column to ignore that is not there": fit_to(
        "no column 'citty': did you mean 'city'?", GOOD, options="--drop citty"
    ),
    "nothing left to learn from": fit_to(
        "data.csv has no column to learn from besides 'label'",
        GOOD,
        options="--drop a --drop b --drop city",
    ),
}

WEIGHTS = {
    "a column of weights that is not there": fit_to(
        "no column 'w'; it has", GOOD, options="--weight w"
    ),
    "a negative weight": fit_to(
        "data.csv, column 'w', row 4: -1 is not a weight; weights must be >= 0",
        with_column("w", ["1", "2", "-1", *["1"] * (N - 3)]),
        options="--weight w",
    ),
    "a missing weight": fit_to(
        "data.csv, column 'w', row 4: the weight is missing",
        with_column("w", ["1", "2", "", *["1"] * (N - 3)]),
        options="--weight w",
    ),
    "a text as a weight": fit_to(
        "data.csv, column 'w', row 4: 'heavy' is not a number",
        with_column("w", ["1", "2", "heavy", *["1"] * (N - 3)]),
        options="--weight w",
    ),
    "weights that are all zero": fit_to(
        "data.csv has 0 rows to learn from, and needs at least 2; "
        "40 rows left out because the weight 'w' is 0",
        with_column("w", ["0"] * N),
        options="--weight w",
    ),
    "one weight that is not zero": fit_to(
        "data.csv has 1 row to learn from, and needs at least 2; "
        "39 rows left out because the weight 'w' is 0",
        with_column("w", ["0"] * (N - 1) + ["2"]),
        options="--weight w",
    ),
    "a class of weight zero": fit_to(
        "data.csv, column 'label' has only one value, 'yes'",
        with_column("w", ["1" if row[3] == "yes" else "0" for row in ROWS]),
        options="--weight w",
    ),
    "the target as a weight": fit_to(
        "data.csv, column 'a' is both target and weight", GOOD, options="--target a --weight a"
    ),
}

NEW_ROWS = {
    "a column that is missing": Command(
        "predict model.cvxnn data.csv",
        2,
        "data.csv lacks the column 'city' that the model was trained with; it has 'a', 'b', '",
        {"data.csv": text_of([[r[0], r[1], r[3]] for r in ROWS], ["a", "b", "label"])},
    ),
    "another name for a column": Command(
        "predict model.cvxnn data.csv",
        2,
        "data.csv lacks the column 'a' that the model was trained with; it has 'A', 'b'",
        {"data.csv": text_of(header=["A", *HEADER[1:]])},
    ),
    "columns that the model does not know": Command(
        "predict model.cvxnn data.csv",
        0,
        "columns that the model does not know are not used: 'more'",
        {"data.csv": with_column("more", ["x"] * N)},
        check=predicts_rows(N),
    ),
    "a category that training did not see": Command(
        "predict model.cvxnn data.csv",
        0,
        "column 'city': 1 value of categories that training did not see, the first is 'Bonn' in "
        "row 5; they count as no category",
        {"data.csv": with_cell("city", 5, "Bonn")},
        check=predicts_rows(N),
    ),
    "a value that is missing for the first time": Command(
        "predict model.cvxnn data.csv",
        0,
        "column 'a': 1 missing value, the first in row 5; training had none",
        {"data.csv": with_cell("a", 5, "")},
        check=predicts_rows(N),
    ),
    "a text among new numbers": Command(
        "predict model.cvxnn data.csv",
        2,
        "data.csv, column 'a', row 5: 'many' is not a number",
        {"data.csv": with_cell("a", 5, "many")},
    ),
    "infinity among new numbers": Command(
        "predict model.cvxnn data.csv",
        2,
        "data.csv, column 'a', row 5: inf is not finite",
        {"data.csv": with_cell("a", 5, "inf")},
    ),
    "new rows without a row": Command(
        "predict model.cvxnn data.csv",
        2,
        "data.csv has a header, but no rows",
        {"data.csv": "a,b,city\n"},
    ),
    "rows that were changed after training": Command(
        "certify model.cvxnn data.csv",
        2,
        "its training rows are different",
        {"data.csv": scaled("b", 2.0)},
    ),
    "fewer rows than were trained on": Command(
        "certify model.cvxnn data.csv",
        2,
        "data.csv has 39 rows, but the model was trained on a table with 40: give that one",
        {"data.csv": text_of(ROWS[:-1])},
    ),
    "a label that the model does not know": Command(
        "certify model.cvxnn data.csv",
        2,
        "'maybe' is not a known label",
        {"data.csv": with_column("label", ["maybe"] * N)},
    ),
    "labels that are gone": Command(
        "prune model.cvxnn data.csv",
        2,
        "data.csv has no column 'label'",
        {"data.csv": text_of([row[:3] for row in ROWS], HEADER[:3])},
    ),
}


def claim_more(content):
    content.description["certificate"]["lower_bound"] *= 1.1


def another_network(content):
    content.network.W2[:] *= -1


def without_dual(content):
    content.arrays["dual"] *= 0


def another_estimator(content):
    content.description["estimator"] = "Pipeline"


def damaged(place):
    def content():
        whole = bytearray(sound()["model.cvxnn"])
        whole[place] ^= 1
        return bytes(whole)

    return content


def with_header(old, new):
    def content():
        whole = sound()["model.cvxnn"]
        assert old in whole
        return whole.replace(old, new)

    return content


MODELS = {
    "a model that is not there": Command(
        "predict nix.cvxnn data.csv", 2, "there is no model file nix.cvxnn"
    ),
    "a folder as the model": Command("predict . data.csv", 2, "there is no model file ."),
    "data as the model": Command(
        "predict data.csv model.cvxnn",
        2,
        "data.csv is not a model file; the model comes first, then the table",
    ),
    "an empty model file": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is not a model file, or damaged",
        {"model.cvxnn": b""},
    ),
    "a pickle": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is not a model file, or damaged",
        {"model.cvxnn": pickle.dumps({"model": 1})},
    ),
    "safetensors of another program": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is a safetensors file, but not a cvxnn model",
        {"model.cvxnn": serialize({"weight": np.ones(3)})},
    ),
    "a network alone": Command(
        "predict network.cvxnn data.csv",
        2,
        "network.cvxnn holds only a network, without columns",
        {"network.cvxnn": lambda: sound()["network.cvxnn"]},
    ),
    "a file of a newer version": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn has format version 10, this cvxnn reads up to 9: update cvxnn",
        {"model.cvxnn": with_header(rb"\"version\": 9", rb"\"version\":10")},
    ),
    "a model of another kind": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn holds a model of unknown kind 'cube'",
        {"model.cvxnn": with_header(rb"\"kind\": \"relu\"", rb"\"kind\": \"cube\"")},
    ),
    "a truncated model file": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is not a model file, or damaged",
        {"model.cvxnn": lambda: sound()["model.cvxnn"][:-100]},
    ),
    "a damaged model file": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is damaged: its contents do not match their checksum",
        {"model.cvxnn": damaged(-5)},
    ),
    "an estimator that does not exist": Command(
        "predict model.cvxnn data.csv",
        2,
        "model.cvxnn is inconsistent: there is no estimator 'Pipeline'",
        {"model.cvxnn": lambda: tampered(another_estimator)},
    ),
    "a lower bound that was raised": Command(
        "certify model.cvxnn data.csv",
        4,
        "NOT CONFIRMED",
        {"model.cvxnn": lambda: tampered(claim_more)},
    ),
    "another network": Command(
        "certify model.cvxnn data.csv",
        4,
        "NOT CONFIRMED",
        {"model.cvxnn": lambda: tampered(another_network)},
    ),
    "another dual point": Command(
        "certify model.cvxnn data.csv",
        4,
        "NOT CONFIRMED",
        {"model.cvxnn": lambda: tampered(without_dual)},
    ),
}

NOT_WRITTEN = "could not be written: File too large"
OUTPUTS = {
    "the data as the output": Command(
        "predict model.cvxnn data.csv -o data.csv",
        2,
        "data.csv is the data file, which would be overwritten",
    ),
    "the data as the output, by another name": Command(
        "fit data.csv --target label -o ./data.csv", 2, "data.csv is the data file"
    ),
    "the model as the output": Command(
        "prune model.cvxnn data.csv -o model.cvxnn", 2, "model.cvxnn is the model file, which would"
    ),
    "a folder as the output": Command(
        "predict model.cvxnn data.csv -o folder", 2, "'folder' is a directory", {"folder": FOLDER}
    ),
    "a folder that is not there": Command(
        "predict model.cvxnn data.csv -o nix/p.csv", 2, "there is no folder nix to write to"
    ),
    "a file as the folder": Command(
        "predict model.cvxnn data.csv -o data.csv/p.csv", 2, "there is no folder data.csv"
    ),
    "a device as the output": Command(
        "predict model.cvxnn data.csv -o /dev/null", 2, "/dev/null is not an ordinary file"
    ),
    "a folder that takes no files": Command(
        "predict model.cvxnn data.csv -o /proc/p.csv", 5, "/proc/p.csv could not be written"
    ),
    "a folder without permission": Command(
        "predict model.cvxnn data.csv -o p.csv",
        2,
        "the folder . cannot be written to",
        during=no_rights,
    ),
    "data without permission": Command(
        "predict model.cvxnn data.csv", 2, "'model.cvxnn' is not readable", during=locked_files
    ),
    "a full disk: fit": Command(
        f"{FIT} -o new.cvxnn", 5, f"new.cvxnn {NOT_WRITTEN}", during=full_disk
    ),
    "a full disk: predict": Command(
        "predict model.cvxnn data.csv -o p.csv", 5, f"p.csv {NOT_WRITTEN}", during=full_disk
    ),
    "a full disk: path": Command(PATH, 5, f"path.csv.checkpoint {NOT_WRITTEN}", during=full_disk),
    "a full disk: path --plot": Command(
        f"{PATH} --plot path.png",
        5,
        f"path.png {NOT_WRITTEN}",
        makes=("path.csv", "path.csv.checkpoint"),
        during=lambda: full_disk(9000),
    ),
    "a full disk: prune": Command(
        "prune model.cvxnn data.csv", 5, f"pruned.cvxnn {NOT_WRITTEN}", during=full_disk
    ),
    "a full disk: improve": Command(
        "improve model.cvxnn data.csv", 5, f"improved.cvxnn {NOT_WRITTEN}", during=full_disk
    ),
    **{
        f"a full disk: export to {suffix}": Command(
            f"export model.cvxnn -o x{suffix}", 5, f"x{suffix} {NOT_WRITTEN}", during=full_disk
        )
        for suffix in (".onnx", ".pt2", ".safetensors")
    },
    "a full disk: report": Command(
        "report model.cvxnn data.csv", 5, f"report.html {NOT_WRITTEN}", during=full_disk
    ),
    "a picture of no known kind": Command(
        f"{PATH} --plot path.txt", 2, "path.txt does not end in .png, .pdf or .svg"
    ),
    "one name for table and picture": Command(
        f"{PATH} --plot x.png -o x.png", 2, "--plot and --output are both x.png"
    ),
    "an export of no known kind": Command(
        "export model.cvxnn -o model.h5",
        2,
        "-o needs a name that ends in .onnx, .pt2 or .safetensors",
    ),
    "an export to nowhere": Command("export model.cvxnn", 2, "-o needs a name that ends in .onnx"),
    "a checkpoint of something else": Command(
        PATH,
        2,
        "path.csv.checkpoint is not a path checkpoint, or damaged",
        {"path.csv.checkpoint": "notes of mine\n"},
    ),
}

OPTIONS = {
    "more patterns than memory": Command(
        f"{FIT} --patterns 2000000000",
        2,
        "patterns with n = 32, d = 5, p = 2,000,000,000: needs about",
        during=little_memory,
    ),
} | {
    name: Command(line, 2, says)
    for name, (line, says) in {
        "an unknown command": ("fitt data.csv", "No such command 'fitt'."),
        "an unknown option": (f"{FIT} --pattern-count 3", "--pattern-count"),
        "a missing argument": ("predict model.cvxnn", "Missing argument 'DATA'"),
        "a further argument": (f"{FIT} extra", "Got unexpected extra argument (extra)"),
        "an option without its value": ("fit data.csv --target", "requires an argument"),
        "a negative alpha": (f"{FIT} --alpha -1", "'--alpha': -1.0 is not in the range x>=0"),
        "alpha is NaN": (f"{FIT} --alpha nan", "'--alpha': nan is not finite"),
        "alpha is infinite": (f"{FIT} --alpha inf", "'--alpha': inf is not finite"),
        "alpha is a text": (f"{FIT} --alpha small", "'--alpha': 'small' is not a valid float"),
        "tol is NaN": (f"{FIT} --tol nan", "'--tol': nan is not finite"),
        "tol is negative": (f"{FIT} --tol -1", "'--tol': -1.0 is not in the range x>=0"),
        "everything held out": (f"{FIT} --holdout 1", "'--holdout': 1.0 is not in the range"),
        "holdout is NaN": (f"{FIT} --holdout nan", "'--holdout': nan is not finite"),
        "one fold": (f"{FIT} --folds 1", "'--folds': 1 is not in the range x>=2"),
        "no patterns": (f"{FIT} --patterns 0", "'--patterns': 0 is not in the range x>=1"),
        "half a pattern": (
            f"{FIT} --patterns 0.5",
            "'--patterns': '0.5' is neither a number nor 'generate'",
        ),
        "a proof about sampled patterns": (
            f"{FIT} --prove",
            "--prove is for --patterns generate",
        ),
        "a proof about gates": (
            f"{FIT} --patterns generate --model gated --prove",
            "--prove is for --model relu: gates are not all of the patterns",
        ),
        "no time at all": (
            f"{FIT} --max-seconds 0",
            "'--max-seconds': 0.0 is not in the range",
        ),
        "a checkpoint of generated patterns": (
            f"{FIT} --patterns generate --alpha 0.1 --checkpoint kept",
            "--checkpoint is for sampled patterns: rounds of generation cannot be continued",
        ),
        "one category": (f"{FIT} --max-categories 1", "'--max-categories': 1 is not in the range"),
        "a negative seed": (f"{FIT} --seed -1", "'--seed': -1 is not in the range"),
        "a seed that is too large": (f"{FIT} --seed 4294967296", "'--seed': 4294967296 is not in"),
        "an unknown kind of network": (
            f"{FIT} --model deep",
            "'deep' is not one of 'relu', 'gated'",
        ),
        "an unknown task": (f"{FIT} --task guess", "'guess' is not one of 'classification'"),
        "no points": (f"{PATH} --points 0", "'--points': 0 is not in the range x>=1"),
        "eps is zero": (f"{PATH} --eps 0", "'--eps': 0.0 is not in the range"),
        "eps is above 1": (f"{PATH} --eps 2", "'--eps': 2.0 is not in the range"),
        "improve at alpha 0": (
            "improve model.cvxnn data.csv --alpha 0",
            "'--alpha': 0.0 is not in the range",
        ),
        "an unknown shell": ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        "a race without a target": ("bench data.csv", "--target has to name the column to predict"),
    }.items()
}

# ------------------------------------------------------------------------------ in Python

X = np.array([[float(value) for value in row[:2]] for row in ROWS])
y = np.array([row[3] for row in ROWS])
NUMBERS = X[:, 0] - X[:, 1]
TABLE = Table({"a": X[:, 0], "b": X[:, 1], "label": y.astype(object)}, "data.csv")


def with_value(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


def model(**settings):
    return lambda: Model.fit(TABLE, "label", **{"alpha": 0.1, "n_patterns": 5} | settings)


def classifier(X=X, y=y, sample_weight=None, **settings):
    settings = {"n_patterns": 5} | settings
    return lambda: cvxnn.ReLUClassifier(**settings).fit(X, y, sample_weight=sample_weight)


def regressor(X=X, y=NUMBERS, sample_weight=None, **settings):
    settings = {"n_patterns": 5} | settings
    return lambda: cvxnn.ReLURegressor(**settings).fit(X, y, sample_weight=sample_weight)


def chosen(**settings):
    return lambda: cvxnn.ReLUClassifierCV(n_patterns=5, **settings).fit(X, y)


def fitted_predicts(rows):
    return lambda: cvxnn.ReLUClassifier(n_patterns=5).fit(X, y).predict(rows)


def frame_predicts():
    frame = pd.DataFrame(X, columns=["a", "b"])
    return cvxnn.ReLUClassifier(n_patterns=5).fit(frame, y).predict(frame[["b", "a"]])


PYTHON = {
    "Model.fit(frame)": Call(
        lambda: Model.fit(pd.DataFrame(X), "label"),
        ValueError,
        "the table has no column 'label'; it has '0', '1'",
    ),
    "Model.fit(number)": Call(
        lambda: Model.fit(5, "label"),
        TypeError,
        "a table is a frame of pandas, Polars or PyArrow, a cvxnn.Table, a dict of columns or of "
        "the values of one row, a list of such rows, a file or an array of two dimensions, got int",
    ),
    "Model.fit(frame with lists)": Call(
        lambda: Model.fit(pd.DataFrame({"a": [[1], [2]], "label": ["x", "y"]}), "label"),
        ValueError,
        "the table, column 'a': values of type list cannot be used; make a column of each part",
    ),
    "a frame with two columns of one name": Call(
        lambda: Model.fit(pd.DataFrame(X, columns=["a", "a"]), "a"),
        ValueError,
        "the table has more than one column 'a': rename one of them",
    ),
    'Model.fit(table, "lable")': Call(
        lambda: Model.fit(TABLE, "lable"), ValueError, "did you mean 'label'?"
    ),
    'kind="deep"': Call(model(kind="deep"), ValueError, "unknown kind 'deep'"),
    'task="guess"': Call(model(task="guess"), ValueError, "unknown task 'guess'"),
    "holdout=1": Call(model(holdout=1), ValueError, "holdout must be < 1, got 1"),
    "holdout=nan": Call(model(holdout=np.nan), ValueError, "holdout must be finite"),
    'holdout="0.2"': Call(model(holdout="0.2"), TypeError, "holdout must be a real number"),
    'drop="a"': Call(model(drop="a"), TypeError, "drop must be a list, got 'a'"),
    'drop=["a"], use=["a"]': Call(
        model(drop=["a"], use=["a"]), ValueError, "column 'a' is given as drop and as use"
    ),
    'categorical=["label"]': Call(
        model(categorical=["label"]),
        ValueError,
        "column 'label' is the target and cannot be given as categorical as well",
    ),
    "max_categories=1": Call(
        model(max_categories=1), ValueError, "max_categories must be an integer >= 2"
    ),
    "seed=-1": Call(model(seed=-1), ValueError, "seed must be an integer >= 0"),
    "impute=2": Call(model(impute=2), TypeError, "impute must be True or False"),
    "an unknown setting of Model.fit": Call(
        model(pattern=9), TypeError, "no parameter 'pattern'; did you mean 'patterns'?"
    ),
    "a table of lists": Call(
        lambda: Table({"a": [1.0, 2.0]}), TypeError, "column 'a' must be an array"
    ),
    "a table of two lengths": Call(
        lambda: Table({"a": np.ones(2), "b": np.ones(3)}), ValueError, "column 'b' has shape (3,)"
    ),
    "read_table of no file": Call(
        lambda: read_table("nix.csv"), ValueError, "there is no file nix.csv"
    ),
    "Model.load of no file": Call(lambda: Model.load("nix.cvxnn"), FileNotFoundError, "nix.cvxnn"),
    "NaN in X": Call(
        classifier(with_value(X, (3, 1), np.nan)), ValueError, "missing values (NaN) in 1 (1)"
    ),
    "infinity in X": Call(classifier(with_value(X, (3, 1), np.inf)), ValueError, "infinity"),
    "texts in X": Call(
        classifier(X.astype(str).astype(object) + "x"), ValueError, "column 0 holds text such as"
    ),
    "complex numbers in X": Call(classifier(X + 1j), ValueError, "Complex data not supported"),
    "X of one dimension": Call(classifier(X[:, 0]), ValueError, "Expected 2D array, got 1D array"),
    "X of three dimensions": Call(classifier(X[None]), ValueError, "Found array with dim 3"),
    "X without rows": Call(classifier(X[:0], y[:0]), ValueError, "Found array with 0 sample(s)"),
    "X without columns": Call(classifier(X[:, :0]), ValueError, "Found array with 0 feature(s)"),
    "X of one row": Call(classifier(X[:1], y[:1]), ValueError, "a minimum of 2 is required"),
    "X is None": Call(classifier(None), ValueError, "Expected 2D array, got scalar array"),
    "sparse X with NaN": Call(
        classifier(sparse.csr_array(with_value(X, (3, 1), np.nan))), ValueError, "contains NaN"
    ),
    "X and y of two lengths": Call(
        classifier(X, y[:-1]), ValueError, "inconsistent numbers of samples: [40, 39]"
    ),
    "y is None": Call(classifier(X, None), ValueError, "y"),
    "NaN in y": Call(
        regressor(X, with_value(NUMBERS, 3, np.nan)),
        ValueError,
        "y is missing (None or NaN) in 1 of 40 rows, the first is row 3 counted from 0",
    ),
    "labels in lists of different lengths": Call(
        classifier(X, [["a", "b"]] * (N - 1) + [["a"]]),
        ValueError,
        "y has rows of different lengths: a row has one label",
    ),
    "several targets for Model.fit": Call(
        lambda: Model.fit({"a": y, "b": y, "x": NUMBERS}, ["a", "b"]),
        TypeError,
        "target must be the name of one column, got ['a', 'b']",
    ),
    "values as the target of Model.fit": Call(
        lambda: Model.fit({"x": NUMBERS}, y),
        TypeError,
        "target must be the name of one column, got values (ndarray): put them into the table",
    ),
    "None in labels": Call(
        classifier(X, np.where(np.arange(N) < 2, None, y)),
        ValueError,
        "y is missing (None or NaN) in 2 of 40 rows, the first is row 0",
    ),
    "a date in X": Call(
        classifier(np.full((N, 1), np.datetime64("2026-01-01"))), ValueError, "column 0 holds dates"
    ),
    "categorical_features of no column": Call(
        classifier(categorical_features=[0, 9]),
        ValueError,
        "categorical_features: X has no column 9; its 2 columns have the places 0 to 1",
    ),
    "categorical_features by name, X without": Call(
        classifier(categorical_features=["city"]),
        ValueError,
        "categorical_features names columns ('city'), but X has no names of columns",
    ),
    'categorical_features="city"': Call(
        classifier(categorical_features="city"), ValueError, "for one column write ['city']"
    ),
    'categorical_features="auto" without folds': Call(
        classifier(categorical_features="auto"), ValueError, "take ReLUClassifierCV, or a list"
    ),
    "categorical_features of Model.fit": Call(
        model(categorical_features=["a"]), TypeError, "name columns of codes by categorical=[...]"
    ),
    "infinity in y": Call(
        regressor(X, with_value(NUMBERS, 3, np.inf)), ValueError, "Input y contains infinity"
    ),
    "texts as numbers in y": Call(
        regressor(X, y), ValueError, "a regression predicts numbers, a classifier labels"
    ),
    "fractions as classes": Call(
        classifier(X, NUMBERS), ValueError, "Unknown label type: continuous"
    ),
    "one class in y": Call(
        classifier(X, np.full(N, "yes")), ValueError, "needs at least two classes"
    ),
    "a table as y": Call(
        classifier(X, X), ValueError, "yes-or-no labels in each row take sklearn.multi"
    ),
    "a negative sample weight": Call(
        classifier(sample_weight=-np.ones(N)), ValueError, "Negative values in data passed"
    ),
    "sample weights of zero": Call(regressor(sample_weight=np.zeros(N)), ValueError, ZERO_WEIGHTS),
    "too few sample weights": Call(
        classifier(sample_weight=np.ones(3)), ValueError, "sample_weight.shape == (3,)"
    ),
    "sample weights with NaN": Call(
        classifier(sample_weight=np.full(N, np.nan)), ValueError, "sample_weight contains NaN"
    ),
    'solver="newtn"': Call(
        classifier(solver="newtn"), ValueError, "unknown solver 'newtn'; did you mean 'newton'?"
    ),
    "solver=3": Call(classifier(solver=3), TypeError, "solver"),
    'gates="gaussian"': Call(classifier(gates="gaussian"), TypeError, "gates"),
    "alpha=-1": Call(classifier(alpha=-1.0), ValueError, "The 'alpha' parameter of ReLUClassifier"),
    "alpha=nan": Call(classifier(alpha=np.nan), ValueError, "The 'alpha' parameter"),
    "alpha=inf": Call(classifier(alpha=np.inf), ValueError, "alpha"),
    'alpha="small"': Call(classifier(alpha="small"), ValueError, "The 'alpha' parameter"),
    "n_patterns=0": Call(classifier(n_patterns=0), ValueError, "The 'n_patterns' parameter"),
    "n_patterns=2.5": Call(classifier(n_patterns=2.5), ValueError, "The 'n_patterns' parameter"),
    'patterns="all"': Call(classifier(patterns="all"), ValueError, "The 'patterns' parameter"),
    'prove="surely"': Call(classifier(prove="surely"), ValueError, "The 'prove' parameter"),
    "max_seconds=0": Call(classifier(max_seconds=0), ValueError, "The 'max_seconds' parameter"),
    'alpha=0, patterns="generate"': Call(
        classifier(alpha=0, patterns="generate", n_patterns=500),
        ValueError,
        "alpha must be positive with patterns='generate'",
    ),
    "tol=-1": Call(classifier(tol=-1.0), ValueError, "The 'tol' parameter"),
    "tol=nan": Call(classifier(tol=np.nan), ValueError, "The 'tol' parameter"),
    "max_iter=0": Call(classifier(max_iter=0), ValueError, "The 'max_iter' parameter"),
    'loss="hinge"': Call(classifier(loss="hinge"), ValueError, "The 'loss' parameter"),
    "huber_delta=0": Call(regressor(huber_delta=0), ValueError, "The 'huber_delta' parameter"),
    'class_weight="heavy"': Call(
        classifier(class_weight="heavy"), ValueError, "The 'class_weight' parameter"
    ),
    'random_state="abc"': Call(
        classifier(random_state="abc"), ValueError, "The 'random_state' parameter"
    ),
    "cv=1": Call(chosen(cv=1), ValueError, "cv"),
    "alphas=[-1]": Call(chosen(alphas=[-1.0]), ValueError, "alphas must be positive numbers"),
    "alphas=[]": Call(chosen(alphas=[]), ValueError, "alphas must be positive numbers"),
    'scoring="best"': Call(chosen(scoring="best"), ValueError, "scoring"),
    "eps=0": Call(chosen(eps=0.0), ValueError, "The 'eps' parameter"),
    "predict before fit": Call(
        lambda: cvxnn.ReLUClassifier().predict(X), ValueError, "is not fitted yet"
    ),
    "predict other columns": Call(
        fitted_predicts(X[:, :1]), ValueError, "X has 1 features, but ReLUClassifier is expecting 2"
    ),
    "predict NaN": Call(fitted_predicts(X * np.nan), ValueError, "X has missing values (NaN)"),
    "predict a frame in another order": Call(
        frame_predicts, ValueError, "Feature names must be in the same order"
    ),
    "huber_delta without its loss": Call(
        lambda: cvxnn.CGReLU(X, X[:, 0], cvxnn.sample_patterns(X, 3), 0.1, huber_delta=2.0),
        TypeError,
        "huber_delta is for loss='huber', the loss is 'squared'",
    ),
    "cvxnn.load of a pickle": Call(
        lambda: load_bytes(pickle.dumps([1])), ValueError, "is not a model file, or damaged"
    ),
}


def load_bytes(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.cvxnn")
        path.write_bytes(content)
        return cvxnn.load(path)


SECTIONS = {
    "Files that are no tables": FILES,
    "Text files": TEXT,
    "Targets": TARGETS,
    "Columns": COLUMNS,
    "Weights": WEIGHTS,
    "Rows for a model": NEW_ROWS,
    "Model files": MODELS,
    "Outputs": OUTPUTS,
    "Options": OPTIONS,
    "Python": PYTHON,
}
CASES = {name: case for section in SECTIONS.values() for name, case in section.items()}


# -------------------------------------------------------------------------------- the test


@cache
def outcome(name):
    """What happens, in a folder that is made for it."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        os.chmod(folder, 0o755)
        try:
            return called(case) if isinstance(case, Call) else commanded(case)
        finally:
            os.chdir(before)


def called(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(case.error) as caught:
            case.call()
    first = str(caught.value).strip()
    kind = type(caught.value).__name__
    return Outcome(kind, first, {}, listing(), told_apart=True)


def commanded(case):
    for file, content in (sound() | case.files).items():
        content = content() if callable(content) else content
        if content is FOLDER:
            Path(file).mkdir()
        elif file in case.files or file != "network.cvxnn":
            Path(file).write_bytes(content.encode() if isinstance(content, str) else content)
    before = listing()
    arguments = shlex.split(case.line)
    if case.during not in (nullcontext, little_memory):
        warm_up(arguments)
    with case.during():
        result = CliRunner().invoke(main, arguments)
    if case.check is not None and result.exit_code == case.code:
        case.check(result.stdout)
    told_apart = "Traceback" not in result.output and isinstance(
        result.exception, SystemExit | None
    )
    return Outcome(result.exit_code, message(result), before, listing(), told_apart)


def warm_up(arguments):
    """Import what a command imports, while everything may still be read."""
    with tempfile.TemporaryDirectory() as folder:
        here = os.getcwd()
        for file in sound():
            Path(folder, file).write_bytes(sound()[file])
        os.chdir(folder)
        CliRunner().invoke(main, arguments)
        os.chdir(here)


def listing():
    return {path.name: path.read_bytes() if path.is_file() else None for path in Path().iterdir()}


def message(result):
    """The error, or what was noted on the way to success."""
    if result.exit_code in (0, 3):
        return "\n".join(line.partition(": ")[2] for line in result.stderr.splitlines())
    if result.exit_code == 4:
        first, *_, last = result.stdout.splitlines()
        return f"{first}; {last.split(maxsplit=1)[1]}"
    return result.stderr.partition("Error: ")[2].strip()


NEEDED = {
    "a damaged Parquet file": "pyarrow",
    "a full disk: path --plot": "matplotlib",
    "a full disk: export to .onnx": "onnx",
    "a full disk: export to .pt2": "torch",
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_gets_a_right_answer_or_a_clear_error(name):
    if name in NEEDED:
        required(NEEDED[name])
    case, found = CASES[name], outcome(name)
    assert found.told_apart, found.said
    if isinstance(case, Call):
        assert case.says in found.said
        assert found.after == {}
        return
    assert found.code == case.code, found.said
    assert case.says in found.said if case.says else not found.said
    assert set(found.after) == set(found.before) | set(case.makes)
    for file, content in found.before.items():
        assert file in case.makes or found.after[file] == content
    if case.code in (2, 5):
        assert found.said
        assert "\n" not in found.said
        assert "unexpected" not in found.said or "extra argument" in found.said


@pytest.fixture
def update(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import update_bad_input

    return update_bad_input


def test_the_page_is_up_to_date(update):
    """Where the packages whose messages it quotes are those of constraints.txt."""
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    found = {package.name: package.version for package in distributions()}
    for package in ("click", "pandas", "pyarrow", "safetensors", "scikit-learn"):
        if found.get(package, pinned[package]) != pinned[package]:
            pytest.skip(f"the page is made with {package} {pinned[package]}")
    assert update.PAGE.read_text() == update.page(), "run python docs/update_bad_input.py"


def test_messages_on_the_page_are_the_same_everywhere(update):
    """Folders, sets and what a table takes for its own are gone."""
    assert update.shown("/tmp/abc_1/model.cvxnn is damaged\nsecond line") == (
        "`model.cvxnn is damaged`"
    )
    assert update.shown("among {'b', 'a'}") == "`among {'a', 'b'}`"
    assert update.shown("{x|y} `z`") == "`{x\\|y} 'z'`"
    assert update.shown("") == ""
    assert len(update.shown("x" * 1000)) == update.LONGEST + 2


def test_there_are_kinds_enough():
    assert len(CASES) == sum(map(len, SECTIONS.values())) >= 200  # and no name twice
