"""Callers of the compiled projections onto cones, and of what looks at blocks inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cvxnn.arrays import Matrix, is_sparse
from cvxnn.kernels.native import PRODUCT_RATE, doubles, loaded, pointer, share

if TYPE_CHECKING:
    from ctypes import _CArgObject as Flag  # what `byref` makes

LOOK_RATE = 1e8  # products that one thread looks at in a second
# Scans of all rows that a projection without a warm start takes: so many, and more a feature.
SCANS, SCANS_A_FEATURE = 20, 10


# Rows (B, k), multipliers (B, k) and their number (B,): int64, float64, int64.
Active: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


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
    start: Active | None,
    width: int,
    *,
    kept: tuple[np.ndarray, np.ndarray] | None = None,
    tolerance: float,
    dependent: float,
    max_rows: int,
    rough: bool,
) -> tuple[np.ndarray, Active]:
    """Project the blocks as `cones.Cones.project` does; X is what `layout_rows` makes of it, and
    `start` the warm start. `kept` are factors and the slot of each block (`cones.factors`), which
    are overwritten. Returns the points, and their active rows in arrays (B, width)."""
    points, enough = doubles(points), doubles(enough)
    before: list[np.ndarray | None] = [None, None, None]
    if start is not None:
        before = [np.ascontiguousarray(part) for part in start]
    start_width = 0 if start is None else start[0].shape[1]
    size = (len(points), width)
    rows, gamma = np.zeros(size, dtype=np.int64), np.zeros(size)
    count = np.empty(len(points), dtype=np.int64)
    signs = np.ascontiguousarray(signs, dtype=np.int8)
    pattern = np.ascontiguousarray(pattern, dtype=np.int64)
    offsets = None if offsets is None else doubles(offsets)
    result = np.empty_like(points)

    def run(part: slice, stop: Flag) -> None:
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
            start_width,
            *(None if array is None else pointer(array[part]) for array in before),
            width - 1,
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
    return result, (rows, gamma, count)


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


def orthonormal_rows(
    X: np.ndarray,
    rows: np.ndarray,
    count: np.ndarray,
    first: np.ndarray,
    bases: np.ndarray,
    *,
    complement: bool,
) -> None:
    """Write orthonormal bases of blocks into `bases` (R, d), that of block b from row first[b] on:
    of the span of the first count[b] rows of X (n, d) in rows[b] or, with `complement`, of what is
    orthogonal to them."""
    X, rows, d = doubles(X), np.ascontiguousarray(rows), X.shape[1]

    def run(part: slice, stop: Flag) -> None:
        its = part.stop - part.start, rows.shape[1]
        arrays = (rows[part], count[part], first[part])
        failed = loaded().orthonormal_rows(
            d, pointer(X), *its, *map(pointer, arrays), complement, pointer(bases), stop
        )
        if failed:
            raise MemoryError("no memory for the bases of faces")

    share(run, len(rows), 4 * d * d * int(count.max(initial=0)) / PRODUCT_RATE)
