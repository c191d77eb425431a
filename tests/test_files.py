"""Files are written whole or not at all, whoever is killed or writes at the same time, and what has
no end is refused in seconds, within a stated memory."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import cvxnn
from cvxnn import ModelFileError
from cvxnn.files import read_bounded, write_atomically
from cvxnn.modelfile import MAX_HEADER
from cvxnn.tables.reading import read_table
from cvxnn.tables.table import TableError

OLD, NEW = b"old", b"new" * 100_000


@pytest.fixture(params=["nameless", "named"])
def system(request, monkeypatch):
    """Systems that have files without a name, and those that do not."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("there are no files without a name")
    return request.param


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "output"
    path.write_bytes(OLD)
    return path


# ------------------------------------------------------------------------- writing


def test_a_file_is_replaced_with_the_rights_of_the_umask(system, target):
    before = os.umask(0o027)
    try:
        write_atomically(target, NEW)
    finally:
        os.umask(before)
    assert target.read_bytes() == NEW
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(target.parent) == ["output"]


def test_errors_name_the_file_that_was_asked_for(system, target, monkeypatch):
    def failing(*arguments, **names):
        raise PermissionError(13, "Permission denied", *arguments[:1], None, *arguments[1:2])

    for call in ("replace", "open"):
        monkeypatch.setattr(os, call, failing)
        with pytest.raises(PermissionError) as caught:
            write_atomically(target, NEW)
        assert str(caught.value) == f"[Errno 13] Permission denied: {str(target)!r}"


def test_content_and_folder_are_synced_in_this_order(system, target, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*arguments, name=name, real=real):
            folder = name == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}")
            done.append("folder" if folder else name)
            return real(*arguments)

        monkeypatch.setattr(os, name, noted)
    write_atomically(target, NEW)
    assert done == ["fsync", "replace", "folder"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_what_was_there(system, target, monkeypatch, call, error):
    def failing(*arguments):
        raise error

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(type(error)):
        write_atomically(target, NEW)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["output"]


def killed(target, call, named=False):
    """Kill -9 a process that writes, in place of one of its calls."""
    program = f"""
        import os, signal
        from pathlib import Path
        from cvxnn.files import write_atomically
        {"del os.O_TMPFILE" if named else ""}
        os.{call} = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
        write_atomically(Path({str(target)!r}), b"other" * 100_000)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60)
    assert result.returncode == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="there are no files without a name")
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_kill_while_a_file_has_no_name_leaves_nothing(target, call):
    killed(target, call)
    assert os.listdir(target.parent) == ["output"]
    assert target.read_bytes() == OLD


@pytest.mark.parametrize("named", [False, True])
def test_what_a_kill_leaves_is_removed_by_the_next_write(target, named):
    killed(target, "replace", named)
    assert target.read_bytes() == OLD
    assert len(os.listdir(target.parent)) == 2
    write_atomically(target.with_name("another"), NEW)
    assert sorted(os.listdir(target.parent)) == ["another", "output"]


def test_what_another_writes_or_owns_is_not_removed(system, target, monkeypatch):
    """A second write of the folder, in the moment before the first one renames its file."""
    own = target.with_name(".cvxnn-notes.tmp")
    own.write_text("not a temporary file of ours")
    replace, others = os.replace, []

    def late(source, path):
        if not others:
            others.append(source)
            write_atomically(target, b"second")
            assert target.read_bytes() == b"second"
        replace(source, path)

    monkeypatch.setattr(os, "replace", late)
    write_atomically(target, NEW)
    assert target.read_bytes() == NEW
    assert sorted(os.listdir(target.parent)) == [own.name, "output"]


def test_a_file_that_is_taken_before_it_is_locked_is_made_again(target, monkeypatch):
    """Between its making and its locking nothing shows that somebody writes it."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.delattr(os, "O_TMPFILE")
    flock, seen = fcntl.flock, []

    def late(handle, operation):
        if not seen:
            seen.append(handle)
            (temporary,) = target.parent.glob(".cvxnn-*")
            write_atomically(target.with_name("another"), b"second")
            assert not temporary.exists()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_atomically(target, NEW)
    assert target.read_bytes() == NEW
    assert sorted(os.listdir(target.parent)) == ["another", "output"]


def test_two_writers_that_are_killed_leave_a_whole_file(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from cvxnn.files import write_atomically
        while True:
            write_atomically(Path("output"), sys.argv[1].encode() * 100_000)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    writers = [subprocess.Popen([*command, letter], cwd=tmp_path) for letter in "ab"]
    output, rng = tmp_path / "output", random.Random(0)
    try:
        while not output.exists():
            time.sleep(0.01)
        for writer in writers:
            end = time.monotonic() + rng.uniform(0.1, 0.3)
            while time.monotonic() < end:
                content = output.read_bytes()
                assert content in (b"a" * 100_000, b"b" * 100_000)
            writer.kill()
            writer.wait()
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert output.read_bytes() in (b"a" * 100_000, b"b" * 100_000)
    write_atomically(output, NEW)
    assert os.listdir(tmp_path) == ["output"]


# ------------------------------------------------------------------------- reading


def deep(content):
    """A model file whose description is this text."""
    header = {"__metadata__": {"cvxnn": content}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def packed(piece, times):
    """A gzip file that unpacks to a thousand times its size, or nearly."""
    one = gzip.compress(piece * (2**24 // len(piece)), compresslevel=9)
    return one * times


LEAST = 2**26  # the limit for these tests, which would take longer with the real one
HEAD = b"a,label\n"
ENDLESS = {
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "a sparse file of a terabyte": (lambda path: sparse(path, 2**40), "is too large: more than"),
    "zeros, packed": (lambda path: path.write_bytes(packed(b"\0" * 64, 5)), "unpacked, more than"),
    "cells, packed": (
        lambda path: path.write_bytes(packed(b"1,2\n", 3)),
        "6,710,886 cells",
    ),
    "a list of 50 MB": (lambda path: path.write_bytes(b"[" + b"1.5," * 12_500_000), "a JSON file"),
    "a row of 50 MB": (lambda path: path.write_bytes(HEAD + b"x" * 50_000_000), "column 'a' has"),
}
ENDLESS_MODELS = {
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    "a sparse file of a terabyte": (lambda path: sparse(path, 2**40), "is too large: more than"),
    "a header of a gigabyte": (
        lambda path: path.write_bytes(struct.pack("<Q", 2**30) + b"{" * 100),
        "its header has 1,073,741,824 bytes, and at most 16,777,216",
    ),
    "a list of 50 MB": (lambda path: path.write_bytes(deep("[0" + ",0" * 2**24 + "]")), "its head"),
    "nested 100,000 deep": (
        lambda path: path.write_bytes(deep('{"a":' * 100_000)),
        "damaged header",
    ),
    "no model": (lambda path: path.write_bytes(b"a" * 50_000_000), "it has no header"),
}


def sparse(path, size):
    path.touch()
    os.truncate(path, size)


LIMITS = """
import json, resource, sys, time
from cvxnn import ModelFileError, load, read_table
from cvxnn.tables.model import Model
from cvxnn.tables.table import TableError

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
for file in sys.argv[2:]:
    for read in [load, Model.load] if file.endswith("cvxnn") else [read_table]:
        start = time.process_time()
        try:
            read(file)
        except (ModelFileError, TableError) as error:
            print(file, "|", time.process_time() - start, "|", error)
"""


def refusals(memory, files):
    """What a process says of each file that may take so many bytes more than it needs to start."""
    result = subprocess.run(
        [sys.executable, "-c", LIMITS, str(memory), *files],
        capture_output=True,
        text=True,
        env={**os.environ, "CVXNN_MAX_BYTES": str(LEAST)},
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split(" | ") for line in result.stdout.splitlines()]
    assert all(float(seconds) < 5 for _, seconds, _ in lines)
    return [(file, said) for file, _, said in lines]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_tables_without_an_end_are_refused(tmp_path):
    """In four times the memory that the file may have."""
    for name, (make, _) in ENDLESS.items():
        make(tmp_path / name)
    found = dict(refusals(4 * LEAST, [tmp_path / name for name in ENDLESS]))
    for name, (_, says) in ENDLESS.items():
        assert says in found[str(tmp_path / name)]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_models_without_an_end_are_refused(tmp_path):
    """In thirty times the memory that the header may have, by both that read them."""
    files = {name: tmp_path / f"{name}.cvxnn" for name in ENDLESS_MODELS}
    for name, (make, _) in ENDLESS_MODELS.items():
        make(files[name])
    found = refusals(30 * MAX_HEADER, files.values())
    expected = [(str(files[name]), says) for name, (_, says) in ENDLESS_MODELS.items()]
    for (file, said), (wanted, says) in zip(found, np.repeat(expected, 2, axis=0), strict=True):
        assert file == wanted
        assert says in said


def test_a_parquet_file_that_claims_many_rows(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "data.parquet"
    zeros = pa.repeat(pa.scalar(0, pa.int8()), 2**20)
    parquet.write_table(pa.table({"a": zeros}), file, row_group_size=2**18)
    assert file.stat().st_size < 2**15
    monkeypatch.setenv("CVXNN_MAX_BYTES", str(2**23))
    with pytest.raises(TableError, match="more than 838,860 cells"):
        read_table(file)
    monkeypatch.setenv("CVXNN_MAX_BYTES", str(2**24))
    assert len(read_table(file)) == 2**20


def test_texts_that_a_parquet_file_repeats_are_kept_once(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = pa.array(["x" * 1_000_000, "b "])
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0] * 2000), texts)
    table = pa.table({"a": column, "b": [1.5] * 8000})
    parquet.write_table(table, tmp_path / "data.parquet", store_schema=False)
    values = read_table(tmp_path / "data.parquet").columns["a"]
    assert values[0] is values[3]  # and not four gigabytes of them
    assert list(values[1:3]) == [None, "b"]


def test_the_environment_allows_more_or_less(tmp_path, monkeypatch):
    file = tmp_path / "data.csv"
    file.write_text("a,b\n" + "1,2\n" * 100)
    monkeypatch.setenv("CVXNN_MAX_BYTES", "403")
    with pytest.raises(TableError, match="more than 403 bytes"):
        read_table(file)
    monkeypatch.setenv("CVXNN_MAX_BYTES", "404")
    with pytest.raises(TableError, match="more than 40 cells"):
        read_table(file)
    monkeypatch.setenv("CVXNN_MAX_BYTES", "4040")
    assert len(read_table(file)) == 100
    monkeypatch.setenv("CVXNN_MAX_BYTES", "1e9")
    with pytest.raises(ValueError, match="CVXNN_MAX_BYTES must be a positive whole number"):
        read_table(file)


# ------------------------------------------------------------------------- pipes


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_is_read_to_its_end_however_slowly_it_comes(pipe, monkeypatch):
    monkeypatch.setattr("cvxnn.files._WRITER_SECONDS", 0.3)

    def write():
        with open(pipe, "w") as file:
            time.sleep(0.6)  # opened in time, and written to later
            file.write("a,b\n1,2\n")
            file.flush()
            time.sleep(0.1)
            file.write("3,4\n")

    writer = threading.Thread(target=write)
    writer.start()
    table = read_table(pipe)
    writer.join()
    assert list(table.columns["b"]) == ["2", "4"]


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(pipe, monkeypatch):
    monkeypatch.setattr("cvxnn.files._WRITER_SECONDS", 0.2)
    with pytest.raises(TableError, match=r"a pipe that nobody has written to for 0\.2 seconds"):
        read_table(pipe)
    with pytest.raises(ModelFileError, match="is a pipe that nobody has written to"):
        cvxnn.load(pipe)


def test_an_endless_pipe_is_left_at_the_limit(pipe):
    def write():
        with suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
            while True:
                file.write(b"1,2\n" * 10_000)

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        read_bounded(pipe, 1_000_000, ValueError)
    writer.join()


def test_standard_input_is_a_table():
    program = "import cvxnn; print(len(cvxnn.read_table('/dev/stdin')))"
    for content, says in (("a,b\n1,2\n3,4\n", "2\n"), ("", "")):
        result = subprocess.run(
            [sys.executable, "-c", program], input=content, capture_output=True, text=True
        )
        assert result.stdout == says
        assert ("/dev/stdin is empty" in result.stderr) == (content == "")


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(IsADirectoryError):
        cvxnn.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="nix"):
        cvxnn.load(Path("nix"))
