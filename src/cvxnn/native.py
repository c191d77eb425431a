"""The compiled kernels, where they were built. `CVXNN_NATIVE=0` keeps to the NumPy twins."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cvxnn.arrays import Array

_LIBRARY = Path(__file__).with_name("libcvxnn.so")
_C_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@cache
def library() -> Any:
    """The loaded library, or None."""
    if os.environ.get("CVXNN_NATIVE", "1") == "0" or not _LIBRARY.is_file():
        return None
    try:
        return ctypes.CDLL(str(_LIBRARY))
    except OSError:  # built for another machine
        return None


def n_threads() -> int:
    """As many as BLAS would take: OMP_NUM_THREADS, else the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def layout_rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X as `project_blocks` reads it: rows filled up with zeros to whole vectors, and in single
    precision in tiles of 64 rows that lie feature by feature."""
    n, d = X.shape
    rows = _aligned((n, -(-d // 8) * 8), np.float64)
    rows[:, :d] = X
    tiles = _aligned((-(-n // 64), d, 64), np.float32)
    for t, tile in enumerate(tiles):
        part = X[64 * t : 64 * t + 64]
        tile[:, : len(part)] = part.T
    return rows, tiles


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that begin with a cache line, so that vectors do not cross lines."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def project_blocks(
    layouts: tuple[np.ndarray, np.ndarray],
    signs: np.ndarray,
    points: np.ndarray,
    pattern: np.ndarray,
    offsets: np.ndarray | None,
    enough: np.ndarray,
    rows: np.ndarray,
    gamma: np.ndarray,
    count: np.ndarray,
    *,
    tolerance: float,
    dependent: float,
    max_rows: int,
) -> np.ndarray:
    """Project the blocks as `cones.Cones.project` does; X is what `layout_rows` makes of it. rows,
    gamma and count (C-contiguous, int64, float64, int64) are the warm start and are overwritten."""
    X, tiles = layouts
    n, d = len(X), points.shape[1]
    points, enough = _doubles(points), _doubles(enough)
    signs = np.ascontiguousarray(signs, dtype=np.int8)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else _doubles(offsets)
    result = np.empty_like(points)

    def run(part: slice) -> None:
        failed = library().project_blocks(
            ctypes.c_int64(n),
            ctypes.c_int64(d),
            _pointer(X),
            _pointer(tiles),
            _pointer(signs),
            ctypes.c_int64(part.stop - part.start),
            _pointer(points[part]),
            _pointer(pattern[part]),
            None if offsets is None else _pointer(offsets[part]),
            _pointer(enough[part]),
            _pointer(rows[part]),
            _pointer(gamma[part]),
            _pointer(count[part]),
            _pointer(result[part]),
            ctypes.c_double(tolerance),
            ctypes.c_double(dependent),
            ctypes.c_int64(max_rows),
        )
        if failed:
            raise MemoryError("no memory for the cone projections")

    _share(run, len(points))
    return result


def hinge_coefficients(
    products: np.ndarray,
    signs: np.ndarray,
    block: np.ndarray,
    pattern: np.ndarray,
    gamma: np.ndarray,
    delta: float,
) -> np.ndarray:
    """s (gamma - delta s <x, u>)_+ for the listed blocks, from their products with all rows of X,
    (k, n), which are overwritten."""
    products = _doubles(products)

    def run(part: slice) -> None:
        library().hinge_coefficients(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta), _pointer(products[part])
        )

    _share(run, len(block))
    return products


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

    def run(part: slice) -> None:
        library().hinge_divergence(
            *_hinge_arguments(signs, block[part], pattern, gamma, delta),
            _pointer(new[part]),
            _pointer(old[part]),
            _pointer(divergence[part]),
        )

    _share(run, len(block))
    return float(divergence.sum())


def multiplies(X: Array) -> bool:
    """Whether there are kernels for products with this array."""
    return library() is not None and isinstance(X, np.ndarray) and X.dtype in _C_NAMES


def pack_bits(mask: np.ndarray) -> np.ndarray:
    """A mask (n, p) in words of 32 rows: bit b of word (w, i) is mask[32 w + b, i]."""
    n, p = mask.shape
    mask, bits = np.ascontiguousarray(mask, dtype=np.bool_), _words(n, p)
    library().pack_bits(ctypes.c_int64(n), ctypes.c_int64(p), _pointer(mask), _pointer(bits))
    return bits


def transpose_bits(bits: np.ndarray, n: int) -> np.ndarray:
    """The same bits in words of 32 columns: bit b of word (w, j) is mask[j, 32 w + b]."""
    p = bits.shape[1]
    bits, result = np.ascontiguousarray(bits), _words(p, n)
    library().transpose_bits(ctypes.c_int64(n), ctypes.c_int64(p), _pointer(bits), _pointer(result))
    return result


def nonzero_blocks(U: np.ndarray) -> np.ndarray:
    """The indices of the blocks of U (p, d, C) that are not zero."""
    U, indices = np.ascontiguousarray(U), np.empty(len(U), dtype=np.int64)
    count = getattr(library(), f"nonzero_blocks_{_C_NAMES[U.dtype]}")
    count.restype = ctypes.c_int64
    size = ctypes.c_int64(U.size // max(1, len(U)))
    return indices[: count(ctypes.c_int64(len(U)), size, _pointer(U), _pointer(indices))]


def expanded_forward(bits: np.ndarray, X: np.ndarray, U: np.ndarray) -> np.ndarray:
    """M U (n, C) as `operators.ExpandedMatrix` defines it, from the bits in words of columns."""
    (n, d), (p, _, C) = X.shape, U.shape
    if U.shape != (p, d, C) or bits.shape != (-(-p // 32), n):
        raise ValueError(f"weights of shape {U.shape} do not fit the operator")
    return _multiply("forward", bits, X, U, p, np.empty((n, C), dtype=X.dtype))


def expanded_adjoint(bits: np.ndarray, X: np.ndarray, R: np.ndarray) -> np.ndarray:
    """M'R (p, d, C), from the bits in words of rows."""
    (n, d), p, C = X.shape, bits.shape[1], R.shape[1]
    if R.shape != (n, C):
        raise ValueError(f"residuals of shape {R.shape} do not fit the operator")
    return _multiply("adjoint", bits, X, R, p, np.empty((p, d, C), dtype=X.dtype))


def _multiply(
    name: str, bits: np.ndarray, X: np.ndarray, factor: np.ndarray, p: int, result: np.ndarray
) -> np.ndarray:
    (n, d), C = X.shape, factor.shape[-1]
    multiply = getattr(library(), f"{name}_{_C_NAMES[X.dtype]}")
    X, factor = np.ascontiguousarray(X), np.ascontiguousarray(factor, dtype=X.dtype)
    sizes = [ctypes.c_int64(size) for size in (n, p, d, C)]
    arrays = [_pointer(array) for array in (bits, X, factor, result)]

    def run(part: slice) -> None:
        if multiply(ctypes.c_int64(part.start), ctypes.c_int64(part.stop), *sizes, *arrays):
            raise MemoryError("no memory for the products")

    # every part makes its tables anew, and a thread costs as much as some million additions
    additions = n * p * d * C // max(1, len(result))
    _share(run, len(result), least=max(256, 2**22 // max(1, additions)), per_worker=1)
    return result


def _words(rows: int, columns: int) -> np.ndarray:
    return np.empty((-(-rows // 32), columns), dtype=np.uint32)


def _hinge_arguments(
    signs: np.ndarray, block: np.ndarray, pattern: np.ndarray, gamma: np.ndarray, delta: float
) -> tuple[Any, ...]:
    return (
        ctypes.c_int64(signs.shape[1]),
        _pointer(signs),
        ctypes.c_int64(len(block)),
        _pointer(block),
        _pointer(pattern),
        _pointer(gamma),
        ctypes.c_double(delta),
    )


def _share(
    run: Callable[[slice], None], n_blocks: int, *, least: int = 8, per_worker: int = 4
) -> None:
    """Run over all blocks, shared among threads: ctypes lets go of the interpreter lock. Blocks
    are independent, so the result does not depend on how they are shared."""
    workers = min(n_threads(), n_blocks // least)
    if workers <= 1:
        run(slice(0, n_blocks))
        return
    edges = np.linspace(0, n_blocks, per_worker * workers + 1).astype(int)
    for _ in _pool(workers).map(run, [slice(a, b) for a, b in pairwise(edges.tolist())]):
        pass


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cvxnn")


def _doubles(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
