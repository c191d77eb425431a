"""How long does a projection onto a cone take, from nothing, from a close one, and for a bound?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_array

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.cones.cones import Cones
from cvxnn.cones.projection import ActiveRows
from cvxnn.kernels import native

SIZES = ((2000, 10), (2000, 50), (2000, 100), (2000, 200), (4000, 500), (4000, 1000))
SPARSE = ((1000, 300, 0.02), (2000, 20_000, 0.005), (2600, 200_000, 0.0005))
QUICK, QUICK_SPARSE = ((200, 10),), ((100, 300, 0.02),)
BLOCKS, FEW = 40, 6  # projections that are measured, and those of the slower peers
MOVED = 0.02  # of the dual point between a projection and the warm one
ROOM = 1.2  # norms of projections that a bound may be longer
KINDS = ("cold", "warm", "bound")
PEER_FEATURES = 200  # of dense rows, up to which the peers take no more than seconds


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    if native.library() is None:
        return
    for n, d in QUICK if options.quick else SIZES:
        yield f"n={n} d={d}", compare(n, d)
    for n, d, density in QUICK_SPARSE if options.quick else SPARSE:
        yield f"n={n} d={d}, {density:.2%} not zero", compare(n, d, density)


def compare(n: int, d: int, density: float = 1.0) -> Row:
    """Processor seconds of one projection, by kernels and by their peer in NumPy, and of SciPy's
    non-negative least squares."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    if density < 1:
        entries = int(density * n * d)
        places = rng.integers(0, n, entries), rng.integers(0, d, entries)
        X = csr_array((rng.standard_normal(entries), places), shape=(n, d))
    gates = rng.standard_normal((d, BLOCKS))
    cones = Cones(X, np.asarray(X @ gates) >= 0, gates)
    theta = rng.standard_normal((n, BLOCKS))
    points = np.asarray((X.T @ (cones.mask * theta)).T)
    change = np.asarray((X.T @ (cones.mask * rng.standard_normal(theta.shape))).T)
    row: Row = {"kernels": times(cones, points, points + MOVED * change, BLOCKS)}
    if density == 1 and d > PEER_FEATURES:
        return row
    with mock.patch.object(native, "library", return_value=None):
        row["numpy"] = times(cones, points, points + MOVED * change, FEW)
    if density == 1:
        begin = time.process_time()
        for b in range(FEW):
            nnls((cones.signs[b][:, None] * cones.X).T, -points[b], maxiter=100 * n)
        row["nnls"] = (time.process_time() - begin) / FEW
    return row


def times(cones: Cones, points: np.ndarray, moved: np.ndarray, count: int) -> Row:
    """Seconds of a projection of each kind, and how many rows were active."""
    points, moved, pattern = points[:count], moved[:count], np.arange(count)
    cold, (projected, active) = clocked(cones, points, pattern, None, -1.0)
    warm, (projected, _) = clocked(cones, moved, pattern, active, -1.0)
    enough = ROOM * np.linalg.norm(projected, axis=1)
    bound, _ = clocked(cones, moved, pattern, active, enough)
    return {"cold": cold, "warm": warm, "bound": bound, "rows": float(active.count.mean())}


def clocked(
    cones: Cones,
    points: np.ndarray,
    pattern: np.ndarray,
    start: ActiveRows | None,
    enough: np.ndarray | float,
) -> tuple[float, tuple[np.ndarray, ActiveRows]]:
    begin = time.process_time()
    found = cones.project(points, pattern, start=start, enough=enough)
    return (time.process_time() - begin) / len(points), found


def present(rows: Rows) -> str:
    lines = []
    for case, row in rows.items():
        kernels, plain = row["kernels"], row.get("numpy")
        line = [case, f"{kernels['rows']:.0f}"]
        line += [f"{1e3 * kernels[kind]:.3g}" for kind in KINDS]
        line += [f"{plain[kind] / kernels[kind]:.1f}" if plain else "" for kind in KINDS]
        lines.append([*line, f"{row['nnls'] / kernels['cold']:.0f}" if "nnls" in row else ""])
    header = (
        "rows and features",
        "active rows",
        *(f"{kind}, ms" for kind in KINDS),
        *(f"NumPy, {kind}" for kind in KINDS),
        "SciPy nnls, cold",
    )
    return (
        "Processor milliseconds of one projection by the compiled kernels, and how many times as "
        "long its peers take: the NumPy twin, and SciPy's non-negative least squares. *cold* "
        f"starts from nothing, *warm* from the active rows of a point that is {MOVED:.0%} away, "
        f"and *bound* is a proof that the projection is no longer than {ROOM:g} times its norm, "
        "which is what most blocks of a certificate need. One run, Gaussian rows.\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}, {kind}: {row['numpy'][kind] / row['kernels'][kind]:.2f} times the speed of NumPy"
        for case, row in rows.items()
        for kind in KINDS
        if "numpy" in row and not row["numpy"][kind] >= row["kernels"][kind]
    ]


BENCHMARK = Benchmark("projections", "Projections onto cones", measure, present, misses)
