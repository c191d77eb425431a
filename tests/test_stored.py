"""Rows in files: they are read as they were written, and products, patterns, certificates and
solutions are those of the same rows in memory."""

import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cvxnn
from cvxnn import stored
from cvxnn.arrays import divide_columns, largest_entries, row_squares, with_ones
from cvxnn.bits import Bits
from cvxnn.memory import TooLargeError, check_size_text
from cvxnn.operators import ExpandedMatrix, StoredMatrix
from cvxnn.patterns import column_norms
from cvxnn.stored import StoredRows
from extras import needs, required

N, D, P = 1003, 7, 40


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(stored, "CHUNK", 2**13)  # 128 rows of seven doubles


def rows(n=N, d=D, dtype=np.float64):
    return np.random.default_rng(0).standard_normal((n, d)).astype(dtype)


def targets(X, seed=1):
    rng = np.random.default_rng(seed)
    return np.maximum(X @ rng.standard_normal(X.shape[1]), 0) + 0.1 * rng.standard_normal(len(X))


# -- reading and writing


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_read_as_they_were_written(dtype):
    X = rows(dtype=dtype)
    S = StoredRows.from_array(X)
    assert (S.shape, S.dtype, S.nbytes) == (X.shape, X.dtype, X.nbytes)
    assert_array_equal(S[:], X)
    assert_array_equal(S[100:301], X[100:301])
    for chosen in (np.array([5, 1002, 3, 3, 700]), X[:, 0] > 0.5, slice(10, 900, 7), np.arange(0)):
        assert_array_equal(S[chosen], X[chosen])
    seen = [(part, block.copy()) for part, block in S.chunks()]
    assert len(seen) > 3
    for part, block in seen:
        assert part.start % 64 == 0
        assert_array_equal(block, X[part])


def test_an_abandoned_pass_does_no_harm():
    X = rows()
    S = StoredRows.from_array(X)
    for _, block in S.chunks():
        first = block.copy()
        break
    assert_array_equal(np.concatenate([block.copy() for _, block in S.chunks()]), X)
    assert_array_equal(first, X[: len(first)])


def test_what_is_done_to_columns_is_done_to_every_chunk():
    X = rows()
    S, scale = StoredRows.from_array(X), np.arange(1.0, D + 1)
    expected = divide_columns(with_ones((X - scale) / scale), np.append(scale, 2.0))
    done = divide_columns(with_ones(S.scaled(scale, scale)), np.append(scale, 2.0))
    assert_array_equal(done[:], expected)
    assert_array_equal(done.written()[:], expected)
    assert_array_equal(done.select(np.array([900, 2, 2]))[:], expected[[900, 2, 2]])
    assert_array_equal(S.astype(np.float32)[:], X.astype(np.float32))
    assert_array_equal(largest_entries(S), largest_entries(X))
    assert_allclose(row_squares(S), row_squares(X), rtol=1e-15)
    assert_allclose(column_norms(S), column_norms(X), rtol=1e-14)


def test_files_of_others_are_read_where_they_are(tmp_path):
    X = rows()
    np.save(tmp_path / "X.npy", X)
    X.tofile(tmp_path / "raw")
    assert_array_equal(StoredRows.from_npy(tmp_path / "X.npy")[:], X)
    assert_array_equal(StoredRows(tmp_path / "raw", D)[:], X)
    for bad in (X[0], np.asfortranarray(X), X.astype(int)):
        np.save(tmp_path / "bad.npy", bad)
        with pytest.raises((ValueError, TypeError)):
            StoredRows.from_npy(tmp_path / "bad.npy")
    with pytest.raises(ValueError, match="not rows of 9 numbers"):
        StoredRows(tmp_path / "raw", 9)
    X[800, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match="NaN or infinity, first in row 800"):
        cvxnn.sample_patterns(StoredRows.from_npy(tmp_path / "X.npy"), 5, random_state=0)
    with pytest.raises(ValueError, match="NaN or infinity, first in row 800"):
        StoredRows.from_array(X)
    with pytest.raises(ValueError, match="equally many"):
        StoredRows.from_chunks([X[:3], X[:3, :2]])
    with pytest.raises(ValueError, match="no rows"):
        StoredRows.from_chunks([])


@needs("pyarrow")
def test_parquet_files_become_rows(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    X = rows()
    table = pa.table({f"x{k}": X[:, k] for k in range(D)} | {"text": ["a"] * N})
    parquet.write_table(table.slice(0, 600), tmp_path / "1.parquet", row_group_size=100)
    parquet.write_table(table.slice(600), tmp_path / "2.parquet")
    names = [f"x{k}" for k in range(D)]
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    assert_array_equal(StoredRows.from_parquet(files, names)[:], X)
    assert_array_equal(StoredRows.from_parquet(files[0], ["x3", "x1"])[:], X[:600, [3, 1]])


def test_temporary_files_go_with_their_rows(tmp_path):
    S = StoredRows.from_array(rows(), folder=str(tmp_path))
    other = S.with_ones().written()
    del S
    if sys.platform == "linux":  # not even a killed process leaves one
        assert os.listdir(tmp_path) == []
    assert_array_equal(other[:], with_ones(rows()))
    del other
    assert os.listdir(tmp_path) == []


def test_rows_travel_to_other_processes():
    X = rows()
    S = StoredRows.from_array(X).with_ones()
    assert_array_equal(pickle.loads(pickle.dumps(S))[:], with_ones(X))


def test_arrays_of_all_rows_are_never_made_unasked():
    with pytest.raises(TypeError, match="in a file"):
        np.asarray(StoredRows.from_array(rows()))


# -- the operator


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [1, 3])
def test_products_are_those_in_memory(dtype, C):
    X, rng = rows(dtype=dtype), np.random.default_rng(2)
    mask = rng.random((N, P)) > 0.5
    mask[5] = False
    ours, dense = StoredMatrix(StoredRows.from_array(X), Bits.of(mask)), ExpandedMatrix(X, mask)
    U, R = rng.standard_normal((P, D, C)), rng.standard_normal((N, C))
    few = np.where(np.arange(P)[:, None, None] < 3, U, 0.0)
    for operator, expected in (
        (ours, dense),
        (ours.select(np.array([7, 1])), dense.select(np.array([7, 1]))),
        (ours.in_double(), dense.in_double()),
        (ours.in_single(), dense.in_single()),
        (ours.with_patterns(Bits.of(mask[:, 3:])), dense.with_patterns(Bits.of(mask[:, 3:]))),
    ):
        assert operator.dtype == expected.dtype
        tolerance = 1e-4 if operator.dtype == np.float32 else 1e-12
        for V in (U[: operator.p], few[: operator.p], 0 * U[: operator.p]):
            assert_allclose(operator.forward(V), expected.forward(V), atol=tolerance)
        found = operator.adjoint(R)
        assert found.dtype == expected.dtype
        assert_allclose(found, expected.adjoint(R), atol=tolerance * 100)
        assert_array_equal(operator.mask, expected.mask)
        assert_allclose(operator.block_norms(), expected.block_norms(), rtol=1e-5)
    assert_allclose(
        ours.magnitudes(np.abs(R)), dense.magnitudes(np.abs(R).astype(dtype)), rtol=1e-4
    )
    assert_allclose(ours.row_squares(), dense.row_squares(), rtol=1e-6)
    assert_array_equal(ours.rows(slice(3, 9)), X[3:9])


# -- problems


SETTINGS = {
    "plain": {},
    "bias and units": {"bias": True, "normalize": True},
    "logistic": {"loss": "logistic", "bias": True, "output_bias": True},
    "softmax": {"loss": "softmax"},
    "l1": {"penalty": "l1"},
}


def both_problems(settings, lam=1e-2):
    X = rows()
    y = targets(X)
    if settings.get("loss") == "logistic":
        y = np.where(y > np.median(y), 1.0, -1.0)
    if settings.get("loss") == "softmax":
        y = np.eye(3)[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
    how = {"bias": settings.get("bias", False), "normalize": settings.get("normalize", False)}
    problems = []
    for data in (X, StoredRows.from_array(X)):
        patterns = cvxnn.sample_patterns(data, P, random_state=0, **how)
        problems.append(cvxnn.CGReLU(data, y, patterns, lam, **settings))
    return problems


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_solutions_are_those_in_memory(settings):
    memory, file = both_problems(settings)
    assert_array_equal(file.patterns.mask, memory.patterns.mask)
    assert_allclose(cvxnn.lambda_max(file), cvxnn.lambda_max(memory), rtol=1e-12)
    ours, exact = cvxnn.solve(file, tol=1e-5), cvxnn.solve(memory, tol=1e-7)
    assert ours.converged
    assert ours.certificate.proven
    assert ours.solver.name == "rfista"
    value = exact.certificate.objective
    assert ours.certificate.lower_bound <= value <= ours.certificate.objective * (1 + 1e-7)
    assert ours.certificate.objective <= value * (1 + 2e-5)
    X = memory.operator.rows()[:, :D] * memory.column_scale[:D]
    assert_allclose(ours.network().predict(StoredRows.from_array(X)), ours.network().predict(X))


def test_certificates_are_those_in_memory_and_may_be_split():
    """A certificate of given weights needs nothing of the rows but products; a precise one splits
    the numbers of the file, as it does those of an array."""
    memory, file = both_problems({})
    U = cvxnn.solve(memory, tol=1e-9).weights
    ours, theirs = cvxnn.certify(file, U), cvxnn.certify(memory, U)
    assert ours.proven
    assert_allclose(ours.objective, theirs.objective, rtol=1e-12)
    assert_allclose(ours.lower_bound, theirs.lower_bound, rtol=1e-12)
    from cvxnn import proofs

    found, expected = (proofs._split(p.operator_double, memory.loss.Y) for p in (file, memory))
    assert_allclose(found[0], expected[0], rtol=1e-13, atol=1e-13)
    assert_allclose(found[1], expected[1], rtol=1e-2)


def test_single_precision_is_certified_in_double():
    X = rows(dtype=np.float32)
    patterns = cvxnn.sample_patterns(X, P, random_state=0)
    problem = cvxnn.CGReLU(StoredRows.from_array(X), targets(X), patterns, 2e-3)
    solution = cvxnn.solve(problem, tol=1e-4)
    assert solution.converged
    double = cvxnn.CGReLU(X.astype(np.float64), targets(X), patterns, 2e-3)
    exact = cvxnn.solve(double, tol=1e-9).certificate
    assert solution.certificate.lower_bound <= exact.objective
    assert exact.lower_bound <= solution.certificate.objective


def test_least_squares_need_products_only():
    memory, file = both_problems({"penalty": "l2"})
    ours = cvxnn.solve(file, tol=1e-6)
    assert ours.solver.name == "lsmr"
    exact = cvxnn.solve(memory, "direct", tol=1e-9)
    assert_allclose(ours.certificate.objective, exact.certificate.objective, rtol=1e-6)


def test_paths_go_through_files(tmp_path):
    memory, file = both_problems({})
    settings = {"lams": [0.3, 0.1], "tol": 1e-5}
    theirs = cvxnn.path(memory, **settings)
    for _ in range(2):  # the second time from the checkpoint
        ours = cvxnn.path(file, **settings, checkpoint=tmp_path / "path")
        for mine, other in zip(ours, theirs, strict=True):
            assert_allclose(mine.certificate.objective, other.certificate.objective, rtol=2e-5)


def test_other_patterns_and_batches_are_those_in_memory():
    memory, file = both_problems(SETTINGS["bias and units"])
    patterns = cvxnn.sample_patterns(rows(), 9, bias=True, random_state=1)
    ours, theirs = (problem.with_patterns(patterns) for problem in (file, memory))
    assert_allclose(cvxnn.lambda_max(ours), cvxnn.lambda_max(theirs), rtol=1e-12)
    some, U = np.array([7, 900, 3, 500]), np.random.default_rng(3).standard_normal((1, P, D + 1))
    mine, other = (problem.operator.batch(some) for problem in (file, memory))
    single = U.astype(np.float32)
    assert_allclose(mine.forward(single), other.forward(single), rtol=1e-5)


# -- estimators


CLASSES = {
    "regressor": (cvxnn.GatedReLURegressor, {}),
    "classifier": (cvxnn.GatedReLUClassifier, {}),
    "components": (cvxnn.GatedReLURegressor, {"n_components": 4}),
    "chosen alpha": (cvxnn.GatedReLURegressorCV, {"cv": 2, "n_alphas": 2, "eps": 0.3}),
}


@pytest.mark.parametrize(("cls", "settings"), CLASSES.values(), ids=CLASSES)
def test_estimators_keep_to_their_memory(cls, settings):
    X = 10 * rows() + 3
    y = targets(X)
    y = np.where(y > np.median(y), "a", "b") if cls is cvxnn.GatedReLUClassifier else y
    weight = np.arange(N) % 3.0
    settings = {"n_patterns": 20, "tol": 1e-4, **settings}
    theirs = cls(**settings).fit(X, y, sample_weight=weight)
    for data in (X, StoredRows.from_array(X)):
        ours = cls(**settings, max_memory="1MB").fit(data, y, sample_weight=weight)
        assert ours.converged_
        assert ours.n_features_in_ == D
        objective = theirs.certificate_.objective
        if "cv" not in settings:  # folds are those of another order of the rows
            assert_allclose(ours.certificate_.objective, objective, rtol=2e-4)
        assert_array_equal(ours.predict(X), ours.predict(StoredRows.from_array(X)))
    enough = cls(**settings, max_memory="1GB").fit(StoredRows.from_array(X), y, weight)
    assert enough.certificate_ == theirs.certificate_


def test_the_names_of_columns_are_kept():
    pandas = required("pandas")
    frame = pandas.DataFrame(rows(), columns=list("abcdefg"))
    model = cvxnn.GatedReLURegressor(n_patterns=10, max_memory="1MB").fit(frame, targets(rows()))
    assert list(model.feature_names_in_) == list("abcdefg")
    assert model.predict(frame).shape == (N,)


def test_budgets_that_cannot_be_kept_are_refused_with_what_would_fit():
    X, y = rows(), targets(rows())
    for model, message in (
        (cvxnn.ReLURegressor(max_memory="1MB"), "cones need the rows in memory.*train a gated"),
        (cvxnn.GatedReLURegressor(n_patterns=5000, max_memory="1MB"), r"n_patterns=\d+ would fit"),
        (cvxnn.GatedReLURegressor(max_memory=1000), "at least .* are needed"),
    ):
        with pytest.raises(TooLargeError, match=message):
            model.fit(X, y)
    fits = re.search(r"n_patterns=(\d+)", str(_refusal(X, y, 5000)))
    cvxnn.GatedReLURegressor(0.5, n_patterns=int(fits[1]), max_memory="1MB").fit(X, y)
    with pytest.raises(ValueError, match="max_memory must be bytes"):
        cvxnn.GatedReLURegressor(max_memory="plenty").fit(X, y)


def _refusal(X, y, n_patterns):
    with pytest.raises(TooLargeError) as caught:
        cvxnn.GatedReLURegressor(n_patterns=n_patterns, max_memory="1MB").fit(X, y)
    return caught.value


def test_solve_takes_the_leaner_method():
    memory, _ = both_problems({})
    assert cvxnn.solve(memory, max_memory="1GB").solver.name == "newton"
    assert cvxnn.solve(memory, max_memory="1MB").solver.name == "rfista"
    for solver in ("auto", "newton"):
        with pytest.raises(TooLargeError, match="too little"):
            cvxnn.solve(memory, solver, max_memory=10_000)


SIZES = {"2GB": 2 * 10**9, "500 MB": 5 * 10**8, "1.5GiB": 3 * 2**29, "7k": 7000, 12: 12, "9": 9}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_are_bytes_or_texts(text, size):
    assert check_size_text(text, "max_memory") == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", 0, True, None, "2 GBB", 1e30])
def test_other_sizes_are_refused(text):
    with pytest.raises((ValueError, TypeError), match=r"^max_memory must be"):
        check_size_text(text, "max_memory")


def test_what_needs_the_rows_says_so():
    _, file = both_problems({})
    with pytest.raises(ValueError, match=r"rows in a file.*use one of: rfista"):
        cvxnn.solve(file, "newton")
    S, y = StoredRows.from_array(rows()), targets(rows())
    with pytest.raises(TypeError, match="C-ReLU needs its rows in the memory of one process"):
        cvxnn.CReLU(S, y, file.patterns, 1e-2)
    with pytest.raises(TypeError, match="C-ReLU needs its rows in the memory of one process"):
        cvxnn.CReLU.from_gated(file)
    with pytest.raises(TypeError, match="active_share"):
        cvxnn.sample_patterns(S, 5, active_share=0.3)
    with pytest.raises(ValueError, match="other data"):
        cvxnn.CGReLU(StoredRows.from_array(rows() + 1), y, file.patterns, 1e-2)


# -- under a limit that the rows would exceed

PROGRAM = """
import re, resource, sys
import numpy as np
import cvxnn
from cvxnn import GatedReLURegressor

n, d, room = 150_000, 100, 190 * 10**6  # 120 MB of rows
status = open("/proc/self/status").read()
limit = int(re.search(r"VmData:\\s+(\\d+) kB", status)[1]) * 1024 + room
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
rng = np.random.default_rng(0)  # after the limit: what is imported does not count
u, y = rng.standard_normal(d), []


def chunks():
    for _ in range(20):
        X = rng.standard_normal((n // 20, d))
        y.append(np.maximum(X @ u, 0))
        yield X


rows = cvxnn.StoredRows.from_chunks(chunks())
if sys.argv[1] == "file":
    model = GatedReLURegressor(0.3, n_patterns=20, tol=2e-2, max_memory="180MB")
    model.fit(rows, np.concatenate(y))
    assert model.converged_ and model.certificate_.relative_gap <= 2e-2
else:
    scaled = rows[:] - 1.0
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit data")
def test_a_fit_stays_below_a_hard_limit():
    """In 190 MB beside the interpreter: twice the 120 MB of the rows, which any computation with a
    copy takes, does not fit, and the same program that reads all of them fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for how, succeeds in (("file", True), ("memory", False)):
        command = [sys.executable, "-c", PROGRAM, how]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert (done.returncode == 0) == succeeds, done.stderr
        assert succeeds == ("done" in done.stdout)
        if not succeeds:
            assert "MemoryError" in done.stderr
