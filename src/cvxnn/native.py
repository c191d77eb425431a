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

    def run(part: slice) -> int:
        return library().project_blocks(
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

    _share(run, len(points))
    return result


def hinge_pull(
    X: np.ndarray,
    signs: np.ndarray,
    block: np.ndarray,
    pattern: np.ndarray,
    U: np.ndarray,
    gamma: np.ndarray,
    delta: float,
) -> np.ndarray:
    """X~'(gamma - delta X~ u)_+ for the listed blocks, whose weights are the rows of U."""
    U, pull = _doubles(U), np.empty((len(block), X.shape[1]))

    def run(part: slice) -> int:
        head = _hinge_arguments(X, signs, block[part], pattern)
        return library().hinge_pull(
            *head,
            _pointer(U[part]),
            _pointer(gamma),
            ctypes.c_double(delta),
            _pointer(pull[part]),
        )

    _share(run, len(block))
    return pull


def hinge_bregman(
    X: np.ndarray,
    signs: np.ndarray,
    block: np.ndarray,
    pattern: np.ndarray,
    U_new: np.ndarray,
    U: np.ndarray,
    gamma: np.ndarray,
    delta: float,
) -> float:
    """The divergence of the hinges of the listed blocks, over delta / 2."""
    U_new, U, divergence = _doubles(U_new), _doubles(U), np.empty(len(block))

    def run(part: slice) -> int:
        head = _hinge_arguments(X, signs, block[part], pattern)
        return library().hinge_bregman(
            *head,
            _pointer(U_new[part]),
            _pointer(U[part]),
            _pointer(gamma),
            ctypes.c_double(delta),
            _pointer(divergence[part]),
        )

    _share(run, len(block))
    return float(divergence.sum())


def _hinge_arguments(
    X: np.ndarray, signs: np.ndarray, block: np.ndarray, pattern: np.ndarray
) -> tuple[Any, ...]:
    return (
        ctypes.c_int64(X.shape[0]),
        ctypes.c_int64(X.shape[1]),
        _pointer(X),
        _pointer(signs),
        ctypes.c_int64(len(block)),
        _pointer(block),
        _pointer(pattern),
    )


def _share(run: Callable[[slice], int], n_blocks: int) -> None:
    """Run over all blocks, shared among threads: ctypes lets go of the interpreter lock. Blocks
    are independent, so the result does not depend on how they are shared."""
    workers = min(n_threads(), max(1, n_blocks // 8))
    edges = np.linspace(0, n_blocks, (4 * workers if workers > 1 else 1) + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
    if any([run(part) for part in parts] if workers == 1 else _pool(workers).map(run, parts)):
        raise MemoryError("no memory for the compiled kernels")


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cvxnn")


def _doubles(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float64)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
