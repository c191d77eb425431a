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

_LIBRARY = Path(__file__).with_name("libcvxnn.so")


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


def project_blocks(
    X: np.ndarray,
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
    max_iter: int,
) -> np.ndarray:
    """Project the blocks as `cones.Cones.project` does; rows, gamma and count (C-contiguous, int64,
    float64, int64) are the warm start and are overwritten."""
    n, d = X.shape
    X, points, enough = _doubles(X), _doubles(points), _doubles(enough)
    signs = np.ascontiguousarray(signs, dtype=np.int8)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else _doubles(offsets)
    result = np.empty_like(points)

    def run(part: slice) -> None:
        failed = library().project_blocks(
            ctypes.c_int64(n),
            ctypes.c_int64(d),
            _pointer(X),
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
            ctypes.c_int64(max_iter),
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


def _share(run: Callable[[slice], None], n_blocks: int) -> None:
    """Run over all blocks, shared among threads: ctypes lets go of the interpreter lock. Blocks
    are independent, so the result does not depend on how they are shared."""
    workers = min(n_threads(), max(1, n_blocks // 8))
    edges = np.linspace(0, n_blocks, (4 * workers if workers > 1 else 1) + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
    for _ in map(run, parts) if workers == 1 else _pool(workers).map(run, parts):
        pass


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cvxnn")


def _doubles(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
