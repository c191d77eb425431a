"""Callers of the compiled projections onto cones, and of what looks at blocks inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvxnn.arrays import Matrix, is_sparse
from cvxnn.kernels.native import PRODUCT_RATE, doubles, loaded, pointer, share

if TYPE_CHECKING:
    from ctypes import _CArgObject as Flag  # what `byref` makes

LOOK_RATE = 1e8  # products that one thread looks at in a second
# Scans of all rows that a projection without a warm start takes: so many, and more a feature.
SCANS, SCANS_A_FEATURE = 20, 10


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
            values=doubles(X.data),
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
    points, enough = doubles(points), doubles(enough)
    signs = np.ascontiguousarray(signs, dtype=np.int8)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else doubles(offsets)
    result = np.empty_like(points)

    def run(part: slice, stop: Flag) -> None:
        rows[part], gamma[part], count[part] = (array[part] for array in start)
        failed = loaded().project_blocks(
            X.n,
            X.d,
            *(None if array is None else pointer(array) for array in X[2:]),
            pointer(signs),
            part.stop - part.start,
            pointer(points[part]),
            pointer(pattern[part]),
            None if offsets is None else pointer(offsets[part]),
            pointer(enough[part]),
            rows.shape[1] - 1,
            pointer(rows[part]),
            pointer(gamma[part]),
            pointer(count[part]),
            pointer(result[part]),
            *((None, None) if kept is None else (pointer(kept[0]), pointer(kept[1][part]))),
            tolerance,
            dependent,
            max_rows,
            rough,
            stop,
        )
        if failed:
            raise MemoryError("no memory for the cone projections")

    entries = X.n * X.d if X.values is None else len(X.values)
    share(run, len(points), (SCANS + SCANS_A_FEATURE * X.d) * entries / PRODUCT_RATE)
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
    X, (n, d) = doubles(X), X.shape
    steps, proven = np.empty(len(V)), np.empty(len(V), dtype=bool)
    rows = np.ascontiguousarray(rows, dtype=bool)
    V, pattern = doubles(V), np.ascontiguousarray(pattern, dtype=np.int64)
    products, towards = V @ X.T, None if towards is None else doubles(towards)

    def run(part: slice, stop: Flag) -> None:
        loaded().look_at_blocks(
            n,
            d,
            *(pointer(array) for array in (X, norms, rows, signs)),
            part.stop - part.start,
            *(pointer(array[part]) for array in (V, sizes, pattern, products)),
            None if towards is None else pointer(towards[part]),
            *slack,
            pointer(steps[part]),
            pointer(proven[part]),
            stop,
        )

    share(run, len(V), n / LOOK_RATE)
    return proven, steps
