"""The compiled kernels, where they were built. `CVXNN_NATIVE=0` keeps to the NumPy twins."""

from __future__ import annotations

import ctypes
import hashlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvxnn import budget, threads
from cvxnn.arrays import Array, Matrix, is_sparse
from cvxnn.kernels.prototypes import PROTOTYPES

if TYPE_CHECKING:
    from ctypes import _CArgObject as Flag  # what `byref` makes

_LIBRARY = Path(__file__).with_name("libcvxnn.so")
_NAMES = (
    "kernels.h",
    "native.c",
    "products.c",
    "losses.c",
    "systems.c",
    "factors.h",
    "projections.c",
    "branching.c",
    "cones.h",
    "wolfe.h",
)
_SOURCES = [Path(__file__).with_name(name) for name in _NAMES]
_C_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

_MEMORY = ctypes.c_char * 0
LANES = 8  # numbers that vectors of the kernels hold
_NEVER = ctypes.byref(ctypes.c_int(0))  # a flag that nobody sets

# What one thread does in a second: products with packed bits, steps of hinges, entries of masks,
# rows of a loss with the search for their bias, and looks at products.
PRODUCT_RATE, HINGE_RATE, BIT_RATE, LOSS_RATE, LOOK_RATE = 1e10, 2e8, 5e9, 2e7, 1e8
# Scans of all rows that a projection without a warm start takes: so many, and more a feature.
SCANS, SCANS_A_FEATURE = 20, 10


@cache
def library() -> ctypes.CDLL | None:
    """The loaded library, or None."""
    if os.environ.get("CVXNN_NATIVE", "1") == "0" or not _LIBRARY.is_file():
        return None
    try:
        kernels = ctypes.CDLL(str(_LIBRARY))
    except OSError:  # built for another machine
        return None
    if not _is_current(kernels):
        warnings.warn(
            f"{_LIBRARY} was compiled from other sources than those beside it, so the slower NumPy "
            "kernels are used; compile it again with `pip install --editable .` (or `make test`) "
            "where these sources are, or install cvxnn again",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    for name, (result, arguments) in PROTOTYPES.items():
        kernel = getattr(kernels, name)
        kernel.restype, kernel.argtypes = result, arguments
    return kernels


def _loaded() -> ctypes.CDLL:
    """The library, for callers that have made sure that there is one."""
    kernels = library()
    assert kernels is not None
    return kernels


def _is_current(kernels: ctypes.CDLL) -> bool:
    """Whether these kernels were compiled from the sources beside them, where there are any."""
    if not all(source.is_file() for source in _SOURCES):
        return True
    try:
        version = kernels.kernels_version
    except AttributeError:
        return False
    version.restype = ctypes.c_uint64
    return version() == source_version(_SOURCES)


def source_version(sources: list[Path]) -> int:
    """What `kernels_version` returns once these are compiled, see hatch_build.py."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    return int.from_bytes(digest.digest()[:8], "big")


class Rows(NamedTuple):
    """Rows as `project_blocks` reads them, dense or sparse; what does not apply is None."""

    n: int
    d: int
    X: np.ndarray | None = None  # (n, whole vectors)
    tiles: np.ndarray | None = None  # in single precision, 64 rows that lie feature by feature
    starts: np.ndarray | None = None  # (n + 1), where the entries of a row begin,
    columns: np.ndarray | None = None  # their columns
    values: np.ndarray | None = None  # and themselves


def layout_rows(X: Matrix) -> Rows:
    """X for `project_blocks`: filled up with zeros to whole vectors, and once more in tiles; or,
    where it is sparse, by its entries."""
    n, d = X.shape
    if is_sparse(X):
        return Rows(
            n,
            d,
            starts=np.ascontiguousarray(X.indptr, dtype=np.int64),
            columns=np.ascontiguousarray(X.indices, dtype=np.int64),
            values=_doubles(X.data),
        )
    rows = _aligned((n, -(-d // 8) * 8), np.float64)
    rows[:, :d] = X
    tiles = _aligned((-(-n // 64), d, 64), np.float32)
    for t, tile in enumerate(tiles):
        part = X[64 * t : 64 * t + 64]
        tile[:, : len(part)] = part.T
    return Rows(n, d, rows, tiles)


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that begin with a cache line, so that vectors do not cross lines."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def project_blocks(
    X: Rows,
    signs: np.ndarray,
    points: np.ndarray,
    pattern: np.ndarray,
    offsets: np.ndarray | None,
    enough: np.ndarray,
    rows: np.ndarray,
    gamma: np.ndarray,
    count: np.ndarray,
    *,
    kept: tuple[np.ndarray, np.ndarray] | None = None,
    tolerance: float,
    dependent: float,
    max_rows: int,
    rough: bool,
) -> np.ndarray:
    """Project the blocks as `cones.Cones.project` does; X is what `layout_rows` makes of it. rows,
    gamma and count (C-contiguous, int64, float64, int64) are the warm start, and `kept` factors and
    the slot of each block (`cones.factors`); all are overwritten."""
    start = rows.copy(), gamma.copy(), count.copy()  # for a piece that has to be run again
    points, enough = _doubles(points), _doubles(enough)
    signs = np.ascontiguousarray(signs, dtype=np.int8)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else _doubles(offsets)
    result = np.empty_like(points)

    def run(part: slice, stop: Flag) -> None:
        rows[part], gamma[part], count[part] = (array[part] for array in start)
        failed = _loaded().project_blocks(
            X.n,
            X.d,
            *(None if array is None else _pointer(array) for array in X[2:]),
            _pointer(signs),
            part.stop - part.start,
            _pointer(points[part]),
            _pointer(pattern[part]),
            None if offsets is None else _pointer(offsets[part]),
            _pointer(enough[part]),
            rows.shape[1] - 1,
            _pointer(rows[part]),
            _pointer(gamma[part]),
            _pointer(count[part]),
            _pointer(result[part]),
            *((None, None) if kept is None else (_pointer(kept[0]), _pointer(kept[1][part]))),
            tolerance,
            dependent,
            max_rows,
            rough,
            stop,
        )
        if failed:
            raise MemoryError("no memory for the cone projections")

    entries = X.n * X.d if X.values is None else len(X.values)
    _share(run, len(points), (SCANS + SCANS_A_FEATURE * X.d) * entries / PRODUCT_RATE)
    return result


class Slack(NamedTuple):
    """What a product of rows has to be at least: `unit` times that of absolute values plus `least`
    is its rounding error, of which `margin` is asked for, and `loss` is lost by a move."""

    unit: float
    least: float
    margin: float
    loss: float


def look_at_blocks(
    X: np.ndarray,
    norms: np.ndarray,
    rows: np.ndarray,
    signs: np.ndarray,
    V: np.ndarray,
    sizes: np.ndarray,
    pattern: np.ndarray,
    towards: np.ndarray | None,
    slack: Slack,
) -> tuple[np.ndarray, np.ndarray]:
    """Which blocks V are inside their cones beyond doubt, and how far the others have to go: see
    `cones.Cones`. X (n, d) are raw rows with their norms, `rows` (n,) those that count; `sizes` are
    the norms of the blocks."""
    X, (n, d) = _doubles(X), X.shape
    steps, proven = np.empty(len(V)), np.empty(len(V), dtype=bool)
    rows = np.ascontiguousarray(rows, dtype=bool)
    V, pattern = _doubles(V), np.ascontiguousarray(pattern, dtype=np.int64)
    products, towards = V @ X.T, None if towards is None else _doubles(towards)

    def run(part: slice, stop: Flag) -> None:
        _loaded().look_at_blocks(
            n,
            d,
            *(_pointer(array) for array in (X, norms, rows, signs)),
            part.stop - part.start,
            *(_pointer(array[part]) for array in (V, sizes, pattern, products)),
            None if towards is None else _pointer(towards[part]),
            *slack,
            _pointer(steps[part]),
            _pointer(proven[part]),
            stop,
        )

    _share(run, len(V), n / LOOK_RATE)
    return proven, steps


def hinge_coefficients(
    products: np.ndarray,
    signs: np.ndarray,
    block: np.ndarray,
    pattern: np.ndarray,
    gamma: np.ndarray,
    delta: float,
) -> np.ndarray:
    """s (gamma - delta s <x, u>)_+ for the listed blocks, from their products with all rows of X,
    (k, n)."""
    products, coefficients = _doubles(products), np.empty(products.shape)

    def run(part: slice, stop: Flag) -> None:
        _loaded().hinge_coefficients(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta),
            _pointer(products[part]),
            _pointer(coefficients[part]),
            stop,
        )

    _share(run, len(block), signs.shape[1] / HINGE_RATE)
    return coefficients


def hinge_divergence(
    new: np.ndarray,
    old: np.ndarray,
    signs: np.ndarray,
    block: np.ndarray,
    pattern: np.ndarray,
    gamma: np.ndarray,
    delta: float,
) -> float:
    """The divergence of the hinges of the listed blocks, over delta / 2, from their new and old
    products with all rows of X."""
    new, old, divergence = _doubles(new), _doubles(old), np.empty(len(block))

    def run(part: slice, stop: Flag) -> None:
        _loaded().hinge_divergence(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta),
            _pointer(new[part]),
            _pointer(old[part]),
            _pointer(divergence[part]),
            stop,
        )

    _share(run, len(block), signs.shape[1] / HINGE_RATE)
    return float(divergence.sum())


def logistic_minimum(
    Z: np.ndarray, Y: np.ndarray, row_weight: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """The best output bias (C,) of predictions Z (n, C), found from a start, and there the logistic
    loss, its gradient, and the square root of its curvature, (n, C)."""
    Z, Y, row_weight = _doubles(Z), _doubles(Y), _doubles(row_weight)
    bias, value = np.empty(len(start)), np.empty(1)
    gradient, scale = np.empty(Z.shape), np.empty(Z.shape)

    def run(_: slice, stop: Flag) -> None:
        bias[:] = start  # once more for a piece that has to be run again
        _loaded().logistic_minimum(
            *Z.shape,
            _pointer(Z),
            _pointer(Y),
            _pointer(row_weight),
            _pointer(bias),
            _pointer(value),
            _pointer(gradient),
            _pointer(scale),
            stop,
        )

    _share(run, 1, Z.size / LOSS_RATE)
    return bias, float(value[0]), gradient, scale


def logistic_dual(
    Theta: np.ndarray, Y: np.ndarray, row_weight: np.ndarray, limit: np.ndarray
) -> tuple[np.ndarray, float]:
    """The longest scaling of Theta (n, C) up to `limit`, (C,) or (1,), inside the domain of the
    logistic loss's conjugate, and the value of minus the conjugate there."""
    Theta, Y, row_weight = _doubles(Theta), _doubles(Y), _doubles(row_weight)
    tau, value = np.array(limit, dtype=np.float64), np.empty(1)
    budget.look()
    _loaded().logistic_dual(
        *Theta.shape,
        len(tau),
        *(_pointer(array) for array in (Theta, Y, row_weight, tau, value)),
    )
    return tau, float(value[0])


def branch_cone(
    columns: np.ndarray,
    n_positive: int,
    vertices: np.ndarray,
    limits: tuple[float, float, float, float],
    max_nodes: int,
    count: np.ndarray,
    nodes: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    best: np.ndarray,
    stop: ctypes.c_int,
) -> int:
    """Grow the tree of one cone, see branching.c; `bounds.growing` has its twin. Rows come as
    columns (r, n), those with positive weights first; both parts are filled up with zeros to whole
    vectors. The caller shares calls among threads."""
    columns, vertices = _doubles(columns), np.ascontiguousarray(vertices, dtype=np.int64)
    r, n = columns.shape
    return _loaded().branch_cone(
        *(r, n_positive, n - n_positive),
        *(_pointer(array) for array in (columns, vertices)),
        *limits,
        *(max_nodes, len(nodes[0])),
        *(_pointer(array) for array in (count, *nodes, best)),
        ctypes.byref(stop),
    )


def list_cones(
    child: np.ndarray, edge: np.ndarray, bound: np.ndarray, threshold: float
) -> np.ndarray:
    """The nodes of a tree in order, as `bounds.trees.ConeTree` has them; those whose own bound is
    within the threshold become leaves."""
    nodes = np.empty(len(child), dtype=np.uint8)
    arrays = [_pointer(array) for array in (child, edge, bound)]
    return nodes[: _loaded().list_cones(*arrays, threshold, _pointer(nodes))].copy()


def multiplies(X: Array) -> bool:
    """Whether there are kernels for products with this array."""
    return library() is not None and isinstance(X, np.ndarray) and X.dtype in _C_NAMES


def pack_bits(mask: np.ndarray) -> np.ndarray:
    """A mask (n, p) in words of 32 rows: bit b of word (w, i) is mask[32 w + b, i]."""
    n, p = mask.shape
    mask, bits = np.ascontiguousarray(mask, dtype=np.bool_), _words(n, p)

    def run(part: slice, stop: Flag) -> None:
        _loaded().pack_bits(part.start, part.stop, n, p, _pointer(mask), _pointer(bits), stop)

    _share(run, len(bits), 32 * p / BIT_RATE)
    return bits


def transpose_bits(bits: np.ndarray, n: int) -> np.ndarray:
    """The same bits in words of 32 columns: bit b of word (w, j) is mask[j, 32 w + b]."""
    p = bits.shape[1]
    bits, result = np.ascontiguousarray(bits), _words(p, n)

    def run(part: slice, stop: Flag) -> None:
        _loaded().transpose_bits(
            part.start, part.stop, n, p, _pointer(bits), _pointer(result), stop
        )

    _share(run, len(result), 32 * n / BIT_RATE)
    return result


def nonzero_blocks(U: np.ndarray) -> np.ndarray:
    """The indices of the blocks of U (p, d, C) that are not zero."""
    U, indices = np.ascontiguousarray(U), np.empty(len(U), dtype=np.int64)
    count = getattr(_loaded(), f"nonzero_blocks_{_C_NAMES[U.dtype]}")
    size = U.size // max(1, len(U))
    return indices[: count(len(U), size, _pointer(U), _pointer(indices))]


def expanded_forward(bits: np.ndarray, X: np.ndarray, U: np.ndarray) -> np.ndarray:
    """M U (n, C) as `operators.ExpandedMatrix` defines it, from the bits in words of columns."""
    (n, d), (p, _, C) = X.shape, U.shape
    if U.shape != (p, d, C) or bits.shape != (-(-p // 32), n):
        raise ValueError(f"weights of shape {U.shape} do not fit the operator")
    return _multiply("forward", bits, X, U, p, np.empty((n, C), dtype=X.dtype), n)


def expanded_adjoint(bits: np.ndarray, X: np.ndarray, R: np.ndarray) -> np.ndarray:
    """M'R (p, d, C), from the bits in words of rows. In memory, classes come first."""
    (n, d), p, C = X.shape, bits.shape[1], R.shape[1]
    if R.shape != (n, C):
        raise ValueError(f"residuals of shape {R.shape} do not fit the operator")
    result = _multiply("adjoint", bits, X, R, p, np.empty((C, p, d), dtype=X.dtype), p)
    return result.transpose(1, 2, 0)


def _multiply(
    name: str,
    bits: np.ndarray,
    X: np.ndarray,
    factor: np.ndarray,
    p: int,
    result: np.ndarray,
    shared: int,  # rows or blocks, which threads share
) -> np.ndarray:
    (n, d), C = X.shape, factor.shape[-1]
    multiply = getattr(_loaded(), f"{name}_{_C_NAMES[X.dtype]}")
    X, factor = np.ascontiguousarray(X), np.ascontiguousarray(factor, dtype=X.dtype)
    arrays = [_pointer(array) for array in (bits, X, factor, result)]

    def run(part: slice, stop: Flag) -> None:
        if multiply(part.start, part.stop, n, p, d, C, *arrays, stop):
            raise MemoryError("no memory for the products")

    seconds = n * p * d * C / max(1, shared) / PRODUCT_RATE
    _share(run, shared, seconds, least=256, per_worker=1)  # every part makes its tables anew
    return result


def ragged_forward(
    bits: np.ndarray, offsets: np.ndarray, X: np.ndarray, U: np.ndarray
) -> np.ndarray:
    """Predictions (C, n) of blocks U (K, d) that belong to one class each, class after class;
    `offsets` (C + 1) says where classes begin, and `bits` are words of columns, class by class."""
    (n, d), C = X.shape, len(offsets) - 1
    words = int(np.sum(-(-np.diff(offsets) // 32)))
    if U.shape != (offsets[-1], d) or bits.shape != (words, n):
        raise ValueError(f"weights of shape {U.shape} do not fit the working sets")
    return _multiply_ragged("forward", bits, offsets, X, U, np.empty((C, n), dtype=X.dtype), n)


def ragged_adjoint(
    bits: np.ndarray, offsets: np.ndarray, X: np.ndarray, R: np.ndarray
) -> np.ndarray:
    """Correlations (K, d) of the blocks with residuals (C, n), each with those of its class; `bits`
    are words of rows for all blocks."""
    (n, d), C, K = X.shape, len(offsets) - 1, int(offsets[-1])
    if R.shape != (C, n) or bits.shape != (-(-n // 32), K):
        raise ValueError(f"residuals of shape {R.shape} do not fit the working sets")
    return _multiply_ragged("adjoint", bits, offsets, X, R, np.empty((K, d), dtype=X.dtype), K)


def _multiply_ragged(
    name: str,
    bits: np.ndarray,
    offsets: np.ndarray,
    X: np.ndarray,
    factor: np.ndarray,
    result: np.ndarray,
    shared: int,  # rows or blocks, which threads share
) -> np.ndarray:
    (n, d), C = X.shape, len(offsets) - 1
    multiply = getattr(_loaded(), f"ragged_{name}_{_C_NAMES[X.dtype]}")
    X, factor = np.ascontiguousarray(X), np.ascontiguousarray(factor, dtype=X.dtype)
    offsets, bits = np.ascontiguousarray(offsets, dtype=np.int64), np.ascontiguousarray(bits)
    arrays = [_pointer(array) for array in (offsets, bits, X, factor, result)]

    def run(part: slice, stop: Flag) -> None:
        if multiply(part.start, part.stop, n, d, C, *arrays, stop):
            raise MemoryError("no memory for the products")

    seconds = n * int(offsets[-1]) * d / max(1, shared) / PRODUCT_RATE
    _share(run, shared, seconds, least=256, per_worker=1)
    return result


def solve_system(
    bits: tuple[np.ndarray, np.ndarray],
    X: np.ndarray,
    scale: np.ndarray,
    weight: np.ndarray,
    along: np.ndarray,
    unit: np.ndarray,
    span: np.ndarray,
    preconditioner: tuple[np.ndarray | None, np.ndarray | None, np.ndarray],
    r: np.ndarray,
    start: np.ndarray | None,
    *,
    tol: float,
    error: float,
    max_iter: int,
) -> tuple[np.ndarray, int, bool]:
    """Conjugate gradients for (I + S M P M'S) x = r among the x orthogonal to the span (m, n): the
    solution, the iterations, and whether they sufficed. `bits` are those of the patterns of M by
    rows and by columns, P takes the row q of a block to weight q + along <q, unit> unit, and the
    preconditioner is (root, V, factor), or (None, None, factor); see systems.c."""
    (n, d), a = X.shape, len(weight)
    if bits[0].shape != (-(-n // 32), a) or bits[1].shape != (-(-a // 32), n):
        raise ValueError(f"bits of shapes {bits[0].shape}, {bits[1].shape} do not fit {X.shape}")
    rows, columns, X = (np.ascontiguousarray(array) for array in (*bits, X))
    factor = np.ascontiguousarray(preconditioner[2], dtype=np.float32)
    woodbury = [
        None if part is None else np.ascontiguousarray(part, dtype=np.float32)
        for part in preconditioner[:2]
    ]
    vectors = [_doubles(array) for array in (scale, weight, along, unit, span)]
    solve = getattr(_loaded(), f"solve_system_{_C_NAMES[X.dtype]}")
    left, x, count = np.empty(n), np.empty(n), 0

    def run(_: slice, stop: Flag) -> None:
        nonlocal count
        left[:], x[:] = r, 0.0 if start is None else start  # anew where a piece is run again
        count = solve(
            *(n, a, d, len(span), len(factor)),
            *(_pointer(array) for array in (rows, columns, X, *vectors)),
            *(None if part is None else _pointer(part) for part in woodbury),
            *(_pointer(array) for array in (factor, left, x)),
            *(tol, error, max_iter, stop),
        )
        if count < -max_iter:
            raise MemoryError("no memory for the products")

    _share(run, 1, max_iter * 2 * n * a * d / PRODUCT_RATE)
    return x, abs(count), count >= 0


def _words(rows: int, columns: int) -> np.ndarray:
    return np.empty((-(-rows // 32), columns), dtype=np.uint32)


def _hinge_arguments(
    signs: np.ndarray, block: np.ndarray, pattern: np.ndarray, gamma: np.ndarray, delta: float
) -> tuple[object, ...]:
    return (
        signs.shape[1],
        _pointer(signs),
        len(block),
        _pointer(block),
        _pointer(pattern),
        _pointer(gamma),
        delta,
    )


def _share(
    run: Callable[[slice, Flag], None],
    n_blocks: int,
    seconds: float,
    *,
    least: int = 8,
    per_worker: int = 4,
) -> None:
    """Run over all blocks, of so many seconds each, shared among threads: ctypes releases the
    interpreter lock. Blocks are independent, so the result does not depend on how they are shared.
    The kernels return early once the flag is set that `run` hands to them."""
    if n_blocks * seconds <= threads.ALONE:  # nobody will ask to stop within so short a time
        budget.look()
        run(slice(0, n_blocks), _NEVER)
        return
    stop = ctypes.c_int(0)
    flag = ctypes.byref(stop)
    workers = min(threads.n_threads(), n_blocks // least)
    count = per_worker * workers if workers > 1 else 1
    edges = [n_blocks * part // count for part in range(count + 1)]
    parts = [slice(*edge) for edge in pairwise(edges)]
    threads.share(
        lambda part: run(part, flag), parts, n_blocks * seconds, lambda: setattr(stop, "value", 1)
    )


def _doubles(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _pointer(array: np.ndarray) -> ctypes.Array[ctypes.c_char] | int:
    """The memory of an array; that of a writable one costs a quarter of the time."""
    if not array.flags.writeable:
        return array.ctypes.data
    return _MEMORY.from_buffer(array)  # type: ignore[arg-type]
