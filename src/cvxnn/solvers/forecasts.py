"""When a run will meet its tolerance, if its gap goes on falling as it did lately.

Gaps fall by about the same factor in the same time once the active blocks have been found, so a
line is fitted to the logarithm of the gap over the second half of the run. It is a guess: it says
nothing about what is proven, and decides nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from cvxnn.solvers.results import Progress

FEWEST, MOST = 3, 40  # iterations that a line is fitted to
RECENT = 0.5  # of the time so far is what counts


def seconds_left(history: Sequence[Progress], tol: float, stop: str = "gap") -> float | None:
    """Seconds from the last iteration until the measure of the stopping rule is `tol`; None if it
    is not falling, or too little is known. It costs little, since every iteration asks."""
    value = _measure(history[-1], stop) if history else None
    if value is None or tol <= 0:
        return None
    if value <= tol:
        return 0.0
    begin = (1 - RECENT) * history[-1].seconds
    first = bisect_left(history, begin, key=attrgetter("seconds"))
    step = max(1, (len(history) - first) // MOST)
    points = []
    for k in range(len(history) - 1, first - 1, -step):
        known = _measure(history[k], stop)
        if known is not None and 0 < known < math.inf:
            points.append((history[k].seconds, math.log(known)))
    slope = _slope(points) if len(points) >= FEWEST else None
    return math.log(value / tol) / -slope if slope is not None and slope < 0 else None


def _measure(record: Progress, stop: str) -> float | None:
    """What is compared with the tolerance. While nothing is known of the optimum, the gap is 1,
    which says nothing of its pace."""
    if stop == "paper":
        return record.residual
    return record.relative_gap if record.relative_gap < 1 else None


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of the line of least squares; None if all are at one time."""
    n = len(points)
    x_mean, y_mean = (sum(part) / n for part in zip(*points, strict=True))
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    if spread == 0:
        return None
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
