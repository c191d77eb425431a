"""Bounds of prices, checked by whatever their evidence allows.

    trees of cones        leaf by leaf (`cones.py`)
    multipliers           a semidefinite bound (`relaxations.py`)
    rows in a plane       every cell, in whole numbers (`planes.py`)
    no evidence           few columns: a tree of cones that is made here

Nothing is imported from the methods that found them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cvxnn.bounds.evidence import Evidence
from cvxnn.rounding import down, up
from cvxnn.verification.cones import (
    OutOfTimeError,
    Progress,
    check_price,
    distances,
    norm_above,
)
from cvxnn.verification.planes import check_plane
from cvxnn.verification.relaxations import check_relaxation
from cvxnn.verification.trees import MOST, RefusedError, claimed_leaves

CONFIRMED, REFUSED, NOT_FINISHED = "confirmed", "refused", "not finished"


@dataclass(frozen=True)
class PriceCheck:
    """What came out of a check.

    status : "confirmed", "refused" or "not finished".
    how : what was done, in words, with its size and time.
    reason : why it was not confirmed.
    """

    status: str
    how: str
    reason: str
    n_leaves: int
    n_bytes: int
    seconds: float


def check_prices(
    X: np.ndarray,
    Theta: np.ndarray,
    above: np.ndarray,
    evidence: Evidence | None,
    *,
    max_seconds: float = math.inf,
    report: Callable[[Progress], object] | None = None,
) -> PriceCheck:
    """Check that |Theta_k'(X u)_+| <= above_k for all ||u|| <= 1 and every class k with a finite
    `above`, for the doubles X (n, d) and Theta (n, C)."""
    progress = Progress(max_seconds, report)
    evidence = Evidence() if evidence is None else evidence
    status, reason, ways = CONFIRMED, "", set()
    try:
        _check_shapes(X, Theta, above, evidence)
        progress.n_leaves = sum(
            claimed_leaves(tree) for pair in evidence.trees or () for tree in pair
        )
        for k in range(Theta.shape[1]):
            if above[k] < math.inf:
                ways.add(_check_class(k, X, Theta[:, k], float(above[k]), evidence, progress))
            progress.tell(0, 0)
    except RefusedError as error:
        status, reason = REFUSED, str(error)
    except OutOfTimeError as error:
        status, reason = NOT_FINISHED, str(error)
    how = f"{', '.join(sorted(ways))}, " if ways else ""
    if progress.leaves:
        how += f"{progress.leaves:,} leaves, "
        how += f"{progress.further:,} more by bisection, " if progress.further else ""
    size = evidence.n_bytes
    how += f"{size:,} bytes of evidence, " if size else ""
    how += f"{progress.seconds:.2f} s"
    return PriceCheck(status, how, reason, progress.leaves, size, progress.seconds)


def _check_shapes(X: np.ndarray, Theta: np.ndarray, above: np.ndarray, evidence: Evidence) -> None:
    (n, d), C = X.shape, Theta.shape[1]
    fits = Theta.shape == (n, C) and np.shape(above) == (C,)
    fits &= evidence.trees is None or len(evidence.trees) == C
    fits &= evidence.multipliers is None or evidence.multipliers.shape == (C, 2, 3, n)
    Q = evidence.coordinates
    fits &= Q is None or (Q.ndim == 2 and len(Q) == d and Q.shape[1] > 0)
    fits &= Q is None or bool(np.isfinite(Q).all())
    if not fits:
        raise RefusedError("evidence, prices or dual point do not fit the data")


def _check_class(
    k: int, X: np.ndarray, t: np.ndarray, above: float, evidence: Evidence, progress: Progress
) -> str:
    """Confirm one class, and say how, or raise `RefusedError`."""
    Q, sides = evidence.coordinates, ((0, t), (1, -t))
    if above >= 0 and not t.any():
        return "a dual point of zero"
    if evidence.multipliers is not None:
        for side, weights in sides:
            _naming(k, side, check_relaxation, X, weights, above, evidence.multipliers[k, side])
            progress.tell(0, 0)
        return "by semidefinite multipliers in exact integers"
    if evidence.trees is None and (X if Q is None else Q).shape[1] <= 2:
        _naming(k, None, check_plane, *_in_plane(X, t, above, Q))
        return "cell by cell in exact integers"
    if evidence.trees is None and X.shape[1] > MOST:
        raise RefusedError(f"there is no evidence, and {X.shape[1]} columns are too many without")
    for side, weights in sides:
        tree = None if evidence.trees is None else evidence.trees[k][side]
        _naming(k, side, check_price, X, weights, above, tree, Q, progress)
    return "leaf by leaf of trees of cones" if evidence.trees else "by trees of cones of its own"


def _naming(k: int, side: int | None, check: Callable[..., object], *given: object) -> None:
    """Run a check; what it refuses is said with the class and the sign."""
    try:
        check(*given)
    except RefusedError as error:
        sign = "" if side is None else f", {'minus theta' if side else 'theta'}"
        raise RefusedError(f"price of output {k}{sign}: {error}") from error


@np.errstate(all="ignore")
def _in_plane(
    X: np.ndarray, t: np.ndarray, above: float, Q: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows (n, 2) and weights, perhaps in other units, and the price on them that proves the one on
    X. What underflows there is less than what `up` adds to the loss of the coordinates."""
    if Q is None:
        rows, limit = X, above
    else:
        units = [int(np.frexp(np.max(np.abs(part), initial=0.0))[1]) for part in (X, t)]
        scaled, t = (np.ldexp(part, -unit) for part, unit in zip((X, t), units, strict=True))
        rows = scaled @ Q
        lost = up(float(np.abs(t) @ distances(scaled, rows, Q)), len(t) + 2)
        claim = float(np.ldexp(above, -sum(units)))
        limit = down((claim - lost) / norm_above(Q), 4) if lost < claim < math.inf else -1.0
    if rows.shape[1] == 1:
        rows = np.hstack([rows, np.zeros_like(rows)])
    return rows, t, limit
