"""Interior points of cones {v : A v >= 0}, for unit rows A, and what cones without any are
orthogonal to.

The best interior point solves a linear program with one column more than there are features,

    max t  subject to  A v >= t, |v_k| <= 1,

with few rows at a time: those that the last point violates are added until none is, or until the
rows so far prove that there is none. Then t = 0, and the multipliers gamma >= 0, sum gamma = 1, of
the program satisfy A'gamma = 0: rows with gamma_j > 0 are orthogonal to the whole cone. The search
goes on in the subspace that is orthogonal to them, which contains the cone and is smaller each
time, until the rows that are left have an interior point there: one of the relative interior.

Nothing here is larger than A itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import csc_array, eye_array, hstack, vstack

from cvxnn import budget
from cvxnn.arrays import (
    Matrix,
    divide_columns,
    divide_rows,
    is_sparse,
    largest_entries,
    row_squares,
)

TIE = 1e-9  # a residual of unit vectors below this is a tie
NARROW = 1e-12  # residuals of interior points are above this, which is far more than rounding
SURE = 1e-5  # a t below this may be due to the tolerances of the linear program
CENTRED = 0.1  # residuals of a point that is good enough, relative to t
NEW_ROWS = 100  # rows added to a linear program at a time, besides two for each column
ALIKE = 1e-3  # a column of unit rows with an entry above this needs no rescaling
WIDEST = 1e12  # the largest point with residuals of 1 that is looked for
MAX_DENSE = 2**24  # entries of sparse rows that are made dense
Bounds: TypeAlias = tuple[float | None, float | None]  # of a variable
METHODS = ("highs", "highs-ipm", "highs-ds")


class InteriorError(RuntimeError):
    """No linear program could tell whether a cone has an interior."""


class Search(NamedTuple):
    """point : a unit vector with A v > 0, or None if there is none.
    rows, gamma : then rows of A and multipliers gamma >= 0 that prove it, A'gamma = 0."""

    point: np.ndarray | None
    rows: np.ndarray
    gamma: np.ndarray


def nudge(
    gate: np.ndarray,
    residual: np.ndarray,
    tied: Matrix,
    change: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray | None:
    """A point of the interior of a cone near a gate of it: `residual` are the products of its rows
    with the gate, `tied` those rows that tie with it (m, d), and `change(v)` gives the products
    with any v. Every direction that all tied rows have a positive product with will do, and where
    there is none the cone has no interior: None."""
    direction = strict_point(tied).point
    if direction is None:
        return None
    moved = change(direction)
    falling = (residual > TIE) & (moved < 0)
    reach = float(np.min(residual[falling] / -moved[falling], initial=2.0))
    point = gate + 0.5 * reach * direction
    return point / np.linalg.norm(point)


def strict_point(A: Matrix, start: np.ndarray | None = None) -> Search:
    """A unit vector with A v > 0, for unit rows A (m, d), looked for from `start`, or from the mean
    of the rows."""
    if A.shape[0] == 0:  # the whole space
        return Search(np.eye(A.shape[1])[0], np.zeros(0, dtype=np.int64), np.zeros(0))
    point = np.asarray(A.mean(axis=0)).reshape(-1) if start is None else start
    search = _RowByRow(A)
    t = search.run(point)
    if search.point is None and t <= SURE:
        search.run_scaled()
    if search.point is None and t > SURE:
        raise InteriorError(
            f"the linear program claims a slack of {t:.1g}, but its point is not inside"
        )
    return Search(search.point, search.rows, search.gamma)


def relative_interior(A: Matrix, start: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A point of the relative interior of {v : A v >= 0}, and the rows that are orthogonal to all
    of it, (m,) boolean. Columns in very different units, on which linear programs fail, are
    rescaled first."""
    largest = largest_entries(A)
    units = np.where(largest > 0, largest, 1.0)
    if units.min() > ALIKE:
        return _relative_interior(A, start)
    A = divide_columns(A, units)
    A = divide_rows(A, np.sqrt(row_squares(A)))
    point, tight = _relative_interior(A, None if start is None else start * units)
    return point / units, tight


def _relative_interior(A: Matrix, start: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    found = strict_point(A, start)
    tight = np.zeros(A.shape[0], dtype=bool)
    if found.point is not None:
        return found.point, tight
    m, d = A.shape
    if is_sparse(A) and m * min(m, d) > MAX_DENSE:
        return _by_sparse_program(A)
    basis: np.ndarray | None = None  # of the subspace that is searched: the whole space
    if d > m:  # rows do not constrain what is orthogonal to all of them
        basis = np.linalg.qr(A.toarray().T if is_sparse(A) else A.T)[0]
    elif is_sparse(A):
        A = A.toarray()
    inside = A if basis is None else A @ basis  # the rows in the coordinates of the subspace
    left = np.arange(m)
    for _ in range(d + 1):
        orthogonal = found.rows[_proven(inside, found)]
        if len(orthogonal) == 0:
            break
        tight[left[orthogonal]] = True
        complement = _complement(inside[orthogonal])
        basis = complement if basis is None else basis @ complement
        left = left[~tight[left]]
        inside = A[left] @ basis
        sizes = np.linalg.norm(inside, axis=1)
        tight[left[sizes <= TIE]] = True  # in the span of rows that are
        left, inside = left[sizes > TIE], inside[sizes > TIE] / sizes[sizes > TIE, None]
        if len(left) == 0:
            return np.zeros(d), tight
        found = strict_point(inside)
        if found.point is not None:
            return basis @ found.point, tight
    return _by_sparse_program(A)


class _RowByRow:
    """The linear program over more and more of the rows."""

    def __init__(self, A: Matrix) -> None:
        self.A = A
        self.point: np.ndarray | None = None
        self.rows, self.gamma = np.zeros(0, dtype=np.int64), np.zeros(0)

    def run(self, point: np.ndarray) -> float:
        """Look for a point from this one; the best t of the rows so far."""
        t = 0.0
        while self._violated(point, TIE, CENTRED * t):
            point, t, self.gamma = _best_point(self.A[self.rows])
            if t <= SURE:
                break
        return t

    def run_scaled(self) -> None:
        """The same for narrow cones, A v >= 1 with v as small as possible: errors of the program
        are then relative to what is looked for."""
        known = len(self.rows)
        point = _smallest_point(self.A[self.rows])
        while point is not None and self._violated(point, NARROW, CENTRED):
            point = _smallest_point(self.A[self.rows])
        if self.point is None and len(self.rows) > known:
            self.gamma = _best_point(self.A[self.rows])[2]

    def _violated(self, point: np.ndarray, relative: float, wanted: float) -> bool:
        """Keep the point if its residuals are above `wanted`, and `relative` of its size; else add
        the rows where they are not, those that are violated most. Whether there were any to add."""
        residual = self.A @ point
        size = float(np.linalg.norm(point))
        limit = max(relative * size, wanted)
        if size > 0 and float(residual.min(initial=np.inf)) > limit:
            self.point = point / size
            return False
        residual[self.rows] = np.inf
        new = np.flatnonzero(residual <= limit)
        most = NEW_ROWS + 2 * self.A.shape[1]
        if len(new) > most:
            new = new[np.argpartition(residual[new], most)[:most]]
        self.rows = np.concatenate([self.rows, new])
        return len(new) > 0


def _best_point(A: Matrix) -> tuple[np.ndarray, float, np.ndarray]:
    """The v and t of the program, and the multipliers of its rows; it is feasible and bounded."""
    m, d = A.shape
    answer = _solve(
        np.append(np.zeros(d), -1.0),
        _beside(-A, np.ones((m, 1))),
        np.zeros(m),
        [(-1.0, 1.0)] * d + [(0.0, 1.0)],
    )
    if answer.x is None:
        raise InteriorError(f"HiGHS gave no answer: {answer.message}")
    gamma = np.maximum(-np.asarray(answer.ineqlin.marginals, dtype=float), 0.0)
    return answer.x[:d], float(answer.x[d]), gamma


def _smallest_point(A: Matrix) -> np.ndarray | None:
    """min r subject to A v >= 1, |v_k| <= r; None where nothing up to `WIDEST` is feasible."""
    m, d = A.shape
    unit = eye_array(d, format="csc")
    ones = csc_array(np.ones((d, 1)))
    rows = _beside(-A, csc_array((m, 1)))
    sides = [hstack([sign * unit, -ones]) for sign in (1, -1)]
    answer = _solve(
        np.append(np.zeros(d), 1.0),
        vstack([rows, *sides], format="csc"),
        np.concatenate([-np.ones(m), np.zeros(2 * d)]),
        [(None, None)] * d + [(0.0, WIDEST)],
    )
    return None if answer.x is None else answer.x[:d]


def _by_sparse_program(A: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """The relative interior by one program with a t for each row,

        max sum t  subject to  A v >= t, 0 <= t <= 1:

    cones can be scaled, so every row that is positive somewhere reaches t = 1."""
    m, d = A.shape
    answer = _solve(
        np.concatenate([np.zeros(d), -np.ones(m)]),
        _beside(-A, eye_array(m)),
        np.zeros(m),
        [(None, None)] * d + [(0.0, 1.0)] * m,
    )
    if answer.x is None:
        raise InteriorError(f"HiGHS gave no answer: {answer.message}")
    return answer.x[:d], answer.x[d:] < 0.5


def _solve(c: np.ndarray, A: csc_array, b: np.ndarray, bounds: Sequence[Bounds]) -> OptimizeResult:
    """The answer of the first method of HiGHS that has one; "infeasible" is an answer, too."""
    for method in METHODS:
        budget.look()
        limits = budget.limits_of_highs()
        answer = linprog(c, A_ub=A, b_ub=b, bounds=bounds, method=method, options=limits)
        if answer.x is not None or answer.status == 2:
            break
    return answer


def _beside(A: Matrix, other: np.ndarray | csc_array) -> csc_array:
    return hstack([csc_array(A), csc_array(other)], format="csc")


def _proven(A: np.ndarray, found: Search) -> np.ndarray:
    """Which of the rows found have a gamma that proves them orthogonal to the cone, (k,) boolean:
    gamma_j <a_j, v> <= <A'gamma, v> for all v of the cone."""
    gamma = found.gamma / max(float(found.gamma.sum()), 1e-300)
    some = np.flatnonzero(gamma > NARROW)
    rows = A[found.rows[some]]
    # without its error: what is not orthogonal to the columns of these rows
    gamma[some] -= rows @ np.linalg.lstsq(rows, gamma[some], rcond=TIE)[0]
    left = np.linalg.norm(gamma[some] @ rows)
    return (found.gamma > 0) & (gamma > NARROW) & (left <= TIE * gamma)


def _complement(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what is orthogonal to the rows: (k, k - rank)."""
    _, sizes, vectors = np.linalg.svd(rows, full_matrices=True)
    return vectors[int(np.sum(sizes > TIE)) :].T
