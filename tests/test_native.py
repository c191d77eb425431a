"""The compiled products against their NumPy twins; the other kernels are tested with what they
serve."""

import ctypes
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxnn import threads
from cvxnn.kernels import native, projections
from cvxnn.kernels.prototypes import FLAG, PROTOTYPES
from cvxnn.operators.dense import ExpandedMatrix

pytestmark = pytest.mark.skipif(
    native.library() is None,
    reason="the compiled kernels were not built: no C compiler at installation",
)

PRECISIONS = st.sampled_from([np.float32, np.float64])


def twins(X, mask):
    """The operator with and without the kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        plain = ExpandedMatrix(X, mask)
    return ExpandedMatrix(X, mask), plain


def assert_close(result, exact, size):
    """Equal up to the rounding of a sum, given the sum of the absolute values."""
    assert result.shape == exact.shape
    rounding = np.finfo(result.dtype).eps * size.max(initial=1.0)
    np.testing.assert_allclose(result, exact, rtol=0, atol=8 * rounding)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (32, 32), (33, 31), (5, 100), (100, 5)])
def test_bits_are_those_of_the_mask(n, p):
    mask = np.random.default_rng(0).random((n, p)) > 0.5
    rows = native.pack_bits(mask)
    columns = native.transpose_bits(rows, n)
    shifts = np.arange(32, dtype=np.uint32)[:, None]
    for bits, expected in ((rows, mask), (columns, mask.T)):
        unpacked = (bits[:, None, :] >> shifts & 1).reshape(-1, expected.shape[1])
        np.testing.assert_array_equal(unpacked[: len(expected)], expected)
        assert not unpacked[len(expected) :].any()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 80),
    st.integers(1, 140),
    st.integers(1, 80),
    st.integers(1, 5),
    PRECISIONS,
    st.integers(0, 10**6),
)
def test_products_agree_with_numpy(n, d, p, C, dtype, seed):
    rng = np.random.default_rng(seed)
    X, mask = rng.standard_normal((n, d)).astype(dtype), rng.random((n, p)) < rng.random()
    U = rng.standard_normal((p, d, C)).astype(dtype) * (rng.random((p, 1, 1)) < rng.random())
    R = rng.standard_normal((n, C)).astype(dtype)
    compiled, plain = twins(X, mask)
    exact, sizes = plain.in_double(), ExpandedMatrix(np.abs(X).astype(float), mask)
    forward, adjoint = compiled.forward(U), compiled.adjoint(R)
    assert forward.dtype == adjoint.dtype == dtype
    assert_close(forward, exact.forward(U.astype(float)), sizes.forward(np.abs(U).astype(float)))
    assert_close(adjoint, exact.adjoint(R.astype(float)), sizes.adjoint(np.abs(R).astype(float)))
    product = np.sum(forward.astype(float) * R), np.sum(U.astype(float) * adjoint)
    size = np.sum(sizes.forward(np.abs(U).astype(float)) * np.abs(R))
    assert abs(product[0] - product[1]) <= 8 * np.finfo(dtype).eps * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_more_rows_than_a_tile_holds(dtype):
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((4100, 3)).astype(dtype), rng.random((4100, 2100)) > 0.5
    compiled, plain = twins(X, mask)
    exact, tolerance = plain.in_double(), 1e4 * np.finfo(dtype).eps
    U, R = rng.standard_normal((2100, 3, 1)), rng.standard_normal((4100, 1))
    U, R = U.astype(dtype), R.astype(dtype)
    np.testing.assert_allclose(compiled.forward(U), exact.forward(U), atol=tolerance)
    np.testing.assert_allclose(compiled.adjoint(R), exact.adjoint(R), atol=tolerance)


def test_single_precision_loses_no_more_digits_than_numpy():
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((3000, 20)).astype(np.float32), rng.random((3000, 2000)) > 0.5
    U, R = rng.standard_normal((2000, 20, 1)), rng.standard_normal((3000, 1))
    U, R = U.astype(np.float32), R.astype(np.float32)
    compiled, plain = twins(X, mask)
    exact = compiled.in_double()
    for name, argument in (("forward", U), ("adjoint", R)):
        right = getattr(exact, name)(argument.astype(float))
        errors = [np.linalg.norm(getattr(o, name)(argument) - right) for o in (compiled, plain)]
        assert errors[0] < 3 * errors[1]
        assert errors[0] < 1e-6 * np.linalg.norm(right)


@pytest.mark.parametrize("C", [1, 3])
def test_threads_do_not_change_the_products(monkeypatch, C):
    rng = np.random.default_rng(0)
    operator = ExpandedMatrix(rng.standard_normal((1501, 21)), rng.random((1501, 1203)) > 0.5)
    U, R = rng.standard_normal((1203, 21, C)), rng.standard_normal((1501, C))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    forward, adjoint = operator.forward(U), operator.adjoint(R)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    parts = []
    share = threads.share

    def counted(run, pieces, *arguments):
        share(lambda part: (parts.append(part), run(part)), pieces, *arguments)

    monkeypatch.setattr(threads, "share", counted)
    np.testing.assert_array_equal(operator.forward(U), forward)
    np.testing.assert_array_equal(operator.adjoint(R), adjoint)
    assert len(parts) == 6


def test_any_memory_layout_will_do():
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((40, 7)), rng.random((40, 50)) > 0.5
    U, R = rng.standard_normal((50, 7, 3)), rng.standard_normal((40, 3))
    compiled, _ = twins(X, mask)
    strided, _ = twins(np.repeat(X, 2, axis=1)[:, ::2], np.asfortranarray(mask))
    expected = compiled.forward(U), compiled.adjoint(R)
    np.testing.assert_array_equal(strided.forward(np.asfortranarray(U)), expected[0])
    np.testing.assert_array_equal(strided.forward(U[:, :, ::-1])[:, ::-1], expected[0])
    np.testing.assert_array_equal(strided.adjoint(np.asfortranarray(R)), expected[1])
    np.testing.assert_array_equal(strided.adjoint(R[:, :1]), expected[1][:, :, :1])


def test_arrays_of_another_shape_are_refused():
    operator = ExpandedMatrix(np.ones((40, 2)), np.ones((40, 70), dtype=bool))
    for shape in ((40, 2, 1), (70, 3, 1)):
        with pytest.raises(ValueError, match="weights of shape"):
            operator.forward(np.ones(shape))
    with pytest.raises(ValueError, match="residuals of shape"):
        operator.adjoint(np.ones((41, 1)))


def test_rows_outside_a_pattern_do_not_matter():
    """Not even if they are not finite, unlike in a product with a matrix of floating numbers."""
    mask = np.ones((40, 3), dtype=bool)
    mask[7, 1] = False
    X = np.ones((40, 2))
    X[7] = np.inf
    adjoint = ExpandedMatrix(X, mask).adjoint(np.ones((40, 1)))
    np.testing.assert_array_equal(adjoint[:, 0, 0], [np.inf, 39, np.inf])


def test_an_operator_goes_on_where_there_are_no_kernels(monkeypatch):
    rng = np.random.default_rng(0)
    operator = ExpandedMatrix(rng.standard_normal((40, 3)), rng.random((40, 9)) > 0.5)
    U, R = rng.standard_normal((9, 3, 1)), rng.standard_normal((40, 1))
    forward, adjoint = operator.forward(U), operator.adjoint(R)
    travelled = pickle.loads(pickle.dumps(operator))
    monkeypatch.setattr(native, "library", lambda: None)
    np.testing.assert_allclose(travelled.forward(U), forward, atol=1e-12)
    np.testing.assert_allclose(travelled.adjoint(R), adjoint, atol=1e-12)


def test_memory_is_two_bits_for_an_entry_of_the_mask():
    operator = ExpandedMatrix(np.ones((640, 2)), np.ones((640, 320), dtype=bool))
    assert operator._float_mask is None
    assert operator.bits.rows.nbytes + operator.bits.columns.nbytes == 640 * 320 // 4


KINDS = {
    "index_t": ctypes.c_int64,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "const int *": FLAG,
}


def test_the_prototypes_are_those_of_the_header():
    header = native._SOURCES[0].read_text().replace("\\\n", "\n")
    declared = {}
    for name, arguments in re.findall(
        r"^ *(?:int|void|index_t) (\w+)(?:##NAME)?\(([^)]*)\);", header, re.M
    ):
        types = [
            re.match(r"(.*?)\w+$", argument.strip())[1].strip() for argument in arguments.split(",")
        ]
        declared[name] = [KINDS.get(kind, ctypes.c_void_p) for kind in types]
    expected = {}
    for name, (_, arguments) in PROTOTYPES.items():
        if name != "kernels_version":
            expected[re.sub("_(float|double)$", "_", name)] = arguments
    assert declared == expected


def test_a_call_that_does_not_fit_is_an_error_and_not_a_crash():
    with pytest.raises(TypeError):
        native.library().pack_bits(1, 2)
    with pytest.raises(ctypes.ArgumentError):
        native.library().nonzero_blocks_double(1.5, 2, None, None)


@pytest.fixture
def loads_again():
    """The library is loaded anew in this test, and after it."""
    native.library.cache_clear()
    yield
    native.library.cache_clear()


@pytest.mark.usefixtures("loads_again")
def test_a_library_of_other_sources_is_refused(monkeypatch, tmp_path):
    """One that was not compiled again after a change, and one from before there were versions."""
    sources = [tmp_path / source.name for source in native._SOURCES]
    for copy, source in zip(sources, native._SOURCES, strict=True):
        copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(native, "_SOURCES", sources)
    assert native.library() is not None
    sources[0].write_bytes(sources[0].read_bytes() + b"\n")
    native.library.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiled from other sources.*pip install"):
        assert native.library() is None
    assert native.library() is None  # and says so once
    native.library.cache_clear()
    monkeypatch.setattr(native, "_LIBRARY", Path(np._core._multiarray_umath.__file__))
    with pytest.warns(RuntimeWarning, match="compiled from other sources"):
        assert native.library() is None


@pytest.mark.usefixtures("loads_again")
def test_a_library_without_its_sources_is_taken_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "_SOURCES", [tmp_path / "kernels.h"])
    assert native.library() is not None


POISON = 77  # what memory holds before a kernel has written to it


def kernel_calls():
    """Each kernel that shares its work, on a small problem of several blocks."""
    rng = np.random.default_rng(0)
    n, d, p = 70, 5, 40
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    mask = X @ rng.standard_normal((d, p)) > 0  # a cone with an interior for each column
    rows, signs = native.pack_bits(mask), np.where(mask.T, 1, -1).astype(np.int8, order="C")
    columns, which = native.transpose_bits(rows, n), np.arange(p)
    points, gamma, products = (rng.standard_normal((p, size)) for size in (d, n, n))
    hinges = signs, which, which, gamma, 0.5
    tight, two = np.tile(np.arange(2), (p, 1)), np.full(p, 2)

    def bases() -> np.ndarray:
        found = np.empty((p * (d - 2), d))
        first = (d - 2) * np.arange(p)
        projections.orthonormal_rows(X, tight, two, first, found, complement=True)
        return found

    slack = projections.Slack(1e-15, 0.0, 1.5, 1.5)
    limits = {"tolerance": 1e-9, "dependent": 1e-12, "max_rows": 100, "rough": False}
    return {
        "project": lambda: projections.project_blocks(
            projections.layout_rows(X),
            signs,
            points,
            which,
            None,
            np.zeros(p),
            None,
            d + 1,
            **limits,
        )[0],
        "bases": bases,
        "look": lambda: projections.look_at_blocks(
            X, np.ones(n), np.ones(n), signs, points, np.ones(p), which, gamma[:, :d], slack
        )[1],
        "coefficients": lambda: native.hinge_coefficients(products, *hinges),
        "divergence": lambda: native.hinge_divergence(products, gamma, *hinges) / p,
        "pack": lambda: native.pack_bits(mask),
        "transpose": lambda: native.transpose_bits(rows, n),
        "forward": lambda: native.expanded_forward(columns, X, points[:, :, None]),
        "adjoint": lambda: native.expanded_adjoint(rows, X, products[:1].T),
        "logistic": lambda: native.logistic_minimum(
            products.T, np.where(gamma.T > 0, 1.0, -1.0), np.full((n, 1), 1 / n), np.zeros(p)
        )[2],
    }


@pytest.mark.parametrize("name", kernel_calls())
def test_a_kernel_that_is_asked_to_stop_does_nothing(monkeypatch, name):
    call = kernel_calls()[name]

    def stop_first(run, pieces, seconds, stop):
        stop()
        for piece in pieces:
            run(piece)

    def poisoned(shape, dtype=float):
        return np.full(getattr(shape, "shape", shape), POISON, dtype=dtype)

    monkeypatch.setattr(np, "empty", poisoned)
    monkeypatch.setattr(np, "empty_like", poisoned)
    assert not np.isin(call(), (POISON, 0)).all()
    monkeypatch.setattr(threads, "share", stop_first)
    monkeypatch.setattr(threads, "ALONE", -1.0)  # however little there is to do
    assert np.isin(call(), (POISON, 0)).all()  # some begin with zeros


INTERRUPTED = """
import sys
import numpy as np
from cvxnn.kernels import native, projections

def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()

def project():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20000, 200))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    signs = np.where(rng.standard_normal((200, 200)) @ X.T > 0, 1, -1).astype(np.int8)
    points = rng.standard_normal((200, 200))
    layouts = projections.layout_rows(X)
    return lambda: projections.project_blocks(layouts, signs, points, np.arange(200), None,
        np.zeros(200), None, 401, tolerance=1e-9, dependent=1e-12, max_rows=10**6,
        rough=False)

def multiply(size=16000):
    bits = np.arange(size // 32 * size, dtype=np.uint32).reshape(-1, size)
    X, R = np.ones((size, 64)), np.ones((size, 16))
    return lambda: native.expanded_adjoint(bits, X, R)

for make in project, multiply:
    call = make()
    say("begins")
    try:
        call()
    except KeyboardInterrupt:
        say("interrupted")
multiply(640)()
say("goes on")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_ends_a_long_kernel_within_a_second():
    """A projection and a product of many seconds; the pool of threads works on afterwards."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        try:
            for _ in range(2):
                assert program.stdout.readline() == "begins\n"
                time.sleep(0.3)
                sent = time.perf_counter()
                program.send_signal(signal.SIGINT)
                assert program.stdout.readline() == "interrupted\n"
                assert time.perf_counter() - sent < 1
            assert program.stdout.readline() == "goes on\n"
        finally:
            program.kill()
