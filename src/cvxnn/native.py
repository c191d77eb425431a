"""The compiled kernels, where they were built. `CVXNN_NATIVE=0` keeps to the NumPy twins."""

from __future__ import annotations

import ctypes
import os
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
    float64, int64) are the warm start and are overwritten. Blocks are shared among threads; the
    result does not depend on how."""
    n, d = X.shape
    n_blocks = len(points)
    X, signs = np.ascontiguousarray(X), np.ascontiguousarray(signs, dtype=np.int8)
    points = np.ascontiguousarray(points, dtype=np.float64)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else np.ascontiguousarray(offsets, dtype=np.float64)
    enough = np.ascontiguousarray(enough, dtype=np.float64)
    result = np.empty_like(points)
    call = library().project_blocks

    def run(part: slice) -> int:
        return call(
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

    workers = min(n_threads(), max(1, n_blocks // 8))
    edges = np.linspace(0, n_blocks, (4 * workers if workers > 1 else 1) + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
    if workers == 1:
        failed = [run(part) for part in parts]
    else:
        with ThreadPoolExecutor(workers) as pool:  # ctypes lets go of the interpreter lock
            failed = list(pool.map(run, parts))
    if any(failed):
        raise MemoryError("no memory for the cone projections")
    return result


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
