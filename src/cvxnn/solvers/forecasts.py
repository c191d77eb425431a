"""When a run will meet its tolerance, if its gap goes on falling as it did lately.

Gaps fall by about the same factor in the same time once the active blocks have been found, so the
logarithm of the gap is fitted by a line over the second half of the run. It is a guess: it says
nothing about what is proven, and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cvxnn.solvers.results import Progress

FEWEST = 4  # iterations that a line is fitted to
RECENT = 0.5  # of the time so far is what counts
MOST = 1000  # iterations are looked at


def seconds_left(history: Sequence[Progress], tol: float, stop: str = "gap") -> float | None:
    """Seconds from the last iteration until the measure of the stopping rule is `tol`; None if it
    is not falling, or too little is known."""
    if not history or tol <= 0:
        return None
    last = history[-1].seconds
    recent = [
        (record.seconds, value)
        for record in history[-MOST:]
        if record.seconds >= (1 - RECENT) * last
        and (value := _measure(record, stop)) is not None
        and value < math.inf
    ]
    if not recent or recent[-1][1] <= tol:
        return 0.0 if recent else None
    # while nothing is known of the optimum the gap is 1, and says nothing of its pace
    moving = [(at, value) for at, value in recent if stop != "gap" or value < 1]
    if len(moving) < FEWEST or moving[-1][0] <= moving[0][0]:
        return None
    at, value = np.array(moving).T
    slope = float(np.polyfit(at - at.mean(), np.log(np.maximum(value, 1e-300)), 1)[0])
    return math.log(value[-1] / tol) / -slope if slope < 0 else None


def _measure(record: Progress, stop: str) -> float | None:
    return record.relative_gap if stop == "gap" else record.residual
