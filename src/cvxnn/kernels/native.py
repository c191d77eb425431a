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
from typing import TYPE_CHECKING

import numpy as np

from cvxnn import budget, threads
from cvxnn.arrays import Array
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
    "vectors.h",
    "factors.h",
    "projections.c",
    "faces.c",
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
# and rows of a loss with the search for their bias.
PRODUCT_RATE, HINGE_RATE, BIT_RATE, LOSS_RATE = 1e10, 2e8, 5e9, 2e7


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


def loaded() -> ctypes.CDLL:
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
    products, coefficients = doubles(products), np.empty(products.shape)

    def run(part: slice, stop: Flag) -> None:
        loaded().hinge_coefficients(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta),
            pointer(products[part]),
            pointer(coefficients[part]),
            stop,
        )

    share(run, len(block), signs.shape[1] / HINGE_RATE)
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
    new, old, divergence = doubles(new), doubles(old), np.empty(len(block))

    def run(part: slice, stop: Flag) -> None:
        loaded().hinge_divergence(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta),
            pointer(new[part]),
            pointer(old[part]),
            pointer(divergence[part]),
            stop,
        )

    share(run, len(block), signs.shape[1] / HINGE_RATE)
    return float(divergence.sum())


def logistic_minimum(
    Z: np.ndarray, Y: np.ndarray, row_weight: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """The best output bias (C,) of predictions Z (n, C), found from a start, and there the logistic
    loss, its gradient, and the square root of its curvature, (n, C)."""
    Z, Y, row_weight = doubles(Z), doubles(Y), doubles(row_weight)
    bias, value = np.empty(len(start)), np.empty(1)
    gradient, scale = np.empty(Z.shape), np.empty(Z.shape)

    def run(_: slice, stop: Flag) -> None:
        bias[:] = start  # once more for a piece that has to be run again
        loaded().logistic_minimum(
            *Z.shape,
            pointer(Z),
            pointer(Y),
            pointer(row_weight),
            pointer(bias),
            pointer(value),
            pointer(gradient),
            pointer(scale),
            stop,
        )

    share(run, 1, Z.size / LOSS_RATE)
    return bias, float(value[0]), gradient, scale


def logistic_dual(
    Theta: np.ndarray, Y: np.ndarray, row_weight: np.ndarray, limit: np.ndarray
) -> tuple[np.ndarray, float]:
    """The longest scaling of Theta (n, C) up to `limit`, (C,) or (1,), inside the domain of the
    logistic loss's conjugate, and the value of minus the conjugate there."""
    Theta, Y, row_weight = doubles(Theta), doubles(Y), doubles(row_weight)
    tau, value = np.array(limit, dtype=np.float64), np.empty(1)
    budget.look()
    loaded().logistic_dual(
        *Theta.shape,
        len(tau),
        *(pointer(array) for array in (Theta, Y, row_weight, tau, value)),
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
    columns, vertices = doubles(columns), np.ascontiguousarray(vertices, dtype=np.int64)
    r, n = columns.shape
    return loaded().branch_cone(
        *(r, n_positive, n - n_positive),
        *(pointer(array) for array in (columns, vertices)),
        *limits,
        *(max_nodes, len(nodes[0])),
        *(pointer(array) for array in (count, *nodes, best)),
        ctypes.byref(stop),
    )


def list_cones(
    child: np.ndarray, edge: np.ndarray, bound: np.ndarray, threshold: float
) -> np.ndarray:
    """The nodes of a tree in order, as `bounds.trees.ConeTree` has them; those whose own bound is
    within the threshold become leaves."""
    nodes = np.empty(len(child), dtype=np.uint8)
    arrays = [pointer(array) for array in (child, edge, bound)]
    return nodes[: loaded().list_cones(*arrays, threshold, pointer(nodes))].copy()


def multiplies(X: Array) -> bool:
    """Whether there are kernels for products with this array."""
    return library() is not None and isinstance(X, np.ndarray) and X.dtype in _C_NAMES


def pack_bits(mask: np.ndarray) -> np.ndarray:
    """A mask (n, p) in words of 32 rows: bit b of word (w, i) is mask[32 w + b, i]."""
    n, p = mask.shape
    mask, bits = np.ascontiguousarray(mask, dtype=np.bool_), _words(n, p)

    def run(part: slice, stop: Flag) -> None:
        loaded().pack_bits(part.start, part.stop, n, p, pointer(mask), pointer(bits), stop)

    share(run, len(bits), 32 * p / BIT_RATE)
    return bits


def transpose_bits(bits: np.ndarray, n: int) -> np.ndarray:
    """The same bits in words of 32 columns: bit b of word (w, j) is mask[j, 32 w + b]."""
    p = bits.shape[1]
    bits, result = np.ascontiguousarray(bits), _words(p, n)

    def run(part: slice, stop: Flag) -> None:
        loaded().transpose_bits(part.start, part.stop, n, p, pointer(bits), pointer(result), stop)

    share(run, len(result), 32 * n / BIT_RATE)
    return result


def nonzero_blocks(U: np.ndarray) -> np.ndarray:
    """The indices of the blocks of U (p, d, C) that are not zero."""
    U, indices = np.ascontiguousarray(U), np.empty(len(U), dtype=np.int64)
    count = getattr(loaded(), f"nonzero_blocks_{_C_NAMES[U.dtype]}")
    size = U.size // max(1, len(U))
    return indices[: count(len(U), size, pointer(U), pointer(indices))]


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
    multiply = getattr(loaded(), f"{name}_{_C_NAMES[X.dtype]}")
    X, factor = np.ascontiguousarray(X), np.ascontiguousarray(factor, dtype=X.dtype)
    arrays = [pointer(array) for array in (bits, X, factor, result)]

    def run(part: slice, stop: Flag) -> None:
        if multiply(part.start, part.stop, n, p, d, C, *arrays, stop):
            raise MemoryError("no memory for the products")

    seconds = n * p * d * C / max(1, shared) / PRODUCT_RATE
    share(run, shared, seconds, least=256, per_worker=1)  # every part makes its tables anew
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
    multiply = getattr(loaded(), f"ragged_{name}_{_C_NAMES[X.dtype]}")
    X, factor = np.ascontiguousarray(X), np.ascontiguousarray(factor, dtype=X.dtype)
    offsets, bits = np.ascontiguousarray(offsets, dtype=np.int64), np.ascontiguousarray(bits)
    arrays = [pointer(array) for array in (offsets, bits, X, factor, result)]

    def run(part: slice, stop: Flag) -> None:
        if multiply(part.start, part.stop, n, d, C, *arrays, stop):
            raise MemoryError("no memory for the products")

    seconds = n * int(offsets[-1]) * d / max(1, shared) / PRODUCT_RATE
    share(run, shared, seconds, least=256, per_worker=1)
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
    vectors = [doubles(array) for array in (scale, weight, along, unit, span)]
    solve = getattr(loaded(), f"solve_system_{_C_NAMES[X.dtype]}")
    left, x, count = np.empty(n), np.empty(n), 0

    def run(_: slice, stop: Flag) -> None:
        nonlocal count
        left[:], x[:] = r, 0.0 if start is None else start  # anew where a piece is run again
        count = solve(
            *(n, a, d, len(span), len(factor)),
            *(pointer(array) for array in (rows, columns, X, *vectors)),
            *(None if part is None else pointer(part) for part in woodbury),
            *(pointer(array) for array in (factor, left, x)),
            *(tol, error, max_iter, stop),
        )
        if count < -max_iter:
            raise MemoryError("no memory for the products")

    share(run, 1, max_iter * 2 * n * a * d / PRODUCT_RATE)
    return x, abs(count), count >= 0


def _words(rows: int, columns: int) -> np.ndarray:
    return np.empty((-(-rows // 32), columns), dtype=np.uint32)


def _hinge_arguments(
    signs: np.ndarray, block: np.ndarray, pattern: np.ndarray, gamma: np.ndarray, delta: float
) -> tuple[object, ...]:
    return (
        signs.shape[1],
        pointer(signs),
        len(block),
        pointer(block),
        pointer(pattern),
        pointer(gamma),
        delta,
    )


def share(
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


def doubles(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float64)


def pointer(array: np.ndarray) -> ctypes.Array[ctypes.c_char] | int:
    """The memory of an array; that of a writable one costs a quarter of the time."""
    if not array.flags.writeable:
        return array.ctypes.data
    return _MEMORY.from_buffer(array)  # type: ignore[arg-type]
