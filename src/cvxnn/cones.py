"""The cones K_i = {u : (2 D_i - I) X u >= 0} on which a ReLU neuron has pattern i.

With X~ = (2 D_i - I) X the projection is a non-negative least squares problem,

    Pi_K(x) = x + X~'gamma,   gamma = argmin_{gamma >= 0} ||x + X~'gamma||,

solved for many blocks at once by an active-set method of Lawson-Hanson type: every block adds rows
that are violated most, for all blocks with one product, and drops those whose multiplier turns
negative.
The same iteration projects onto {w : X~ w >= b}, which cone decompositions need.

Sparse rows have a variant of their own, which adds many rows at a time and knows the active ones
by their products with each other only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxnn import budget, native
from cvxnn.arrays import Array, blocks, divide_rows, is_sparse, row_squares
from cvxnn.interiors import TIE, InteriorError, nudge, relative_interior
from cvxnn.patterns import Patterns
from cvxnn.spans import Span
from cvxnn.threads import cached_property

TOLERANCE = 1e-13  # of a row's violation, relative to the size of the point
DEPENDENT = 1e-12  # squared distance of a unit row from the span of others that counts as none
LIFTS = 6  # steps into a cone, each with four times the margin of the last
MARGIN = 1.5  # of the first, in multiples of what is needed: the step itself is rounded
INSIDE = 1e-12  # a block of a singular cone outside by less than this of its norm stays as it is
ZERO = 1e-14  # a projection this small, relative to the point, is zero up to rounding
MAX_SPARSE_STEPS = 1000  # of a projection with sparse rows; each adds many
_BLOCK = 2**22  # entries of a (blocks x rows) product held at a time
_CACHED = 2**19  # the same where there are many of that size


class PatternWarning(UserWarning):
    """Patterns were dropped or replaced because their cones are singular."""


@dataclass(eq=False)
class ActiveRows:
    """The rows each of B blocks holds tight, and their multipliers: a warm start for `project`.

    rows, gamma : (B, k), the first `count[b]` entries of row b are in use; gamma >= 0.
    """

    rows: np.ndarray
    gamma: np.ndarray
    count: np.ndarray

    @classmethod
    def empty(cls, n_blocks: int, size: int) -> ActiveRows:
        return cls(
            np.zeros((n_blocks, size), dtype=np.int64),
            np.zeros((n_blocks, size)),
            np.zeros(n_blocks, dtype=np.int64),
        )

    def select(self, index: Any) -> ActiveRows:
        return ActiveRows(self.rows[index], self.gamma[index], self.count[index])

    def store(self, index: Any, other: ActiveRows) -> None:
        self.rows[index], self.gamma[index], self.count[index] = (
            other.rows,
            other.gamma,
            other.count,
        )


class Cones:
    """The cones of all patterns of one data matrix.

    Points come as B blocks (B, d) with the pattern of each, (B,). Rows of X are scaled to unit
    norm, which changes no cone but for rounding; zero rows constrain nothing. `raw` are the rows
    as they came, for what has to hold exactly.

    Parameters
    ----------
    X : (n, d), float64 NumPy, dense or sparse.
    mask : (n, p) boolean.
    gates : (d, p) points that are strictly interior where no row ties, or None.
    """

    def __init__(self, X: Array, mask: np.ndarray, gates: np.ndarray | None = None) -> None:
        self.raw = X
        norms = _row_norms(X)
        self.live = norms > 0
        self.X = divide_rows(X, np.where(self.live, norms, 1.0))
        self.row_norms = norms
        self.mask = mask
        self.n, self.d = X.shape
        self.p = mask.shape[1]
        self.gates = gates
        self.signs = np.ascontiguousarray(np.where(mask.T, np.int8(1), np.int8(-1)))  # (p, n)
        self._without_gate = np.zeros(0, dtype=int)
        self._spans: dict[int, np.ndarray] = {}
        self._relative: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def width(self) -> int:
        """Room for the active rows of a block, which are independent, and one more."""
        return (min(self.n, self.d) if is_sparse(self.X) else self.d) + 1

    @property
    def _many_blocks(self) -> int:
        """Blocks whose products with all rows take a moment, and little memory."""
        moment = budget.PIECE * budget.RATE / (2 * self.n * self.d)
        return min(_BLOCK // self.n, int(moment))

    @cached_property
    def _layouts(self) -> tuple[np.ndarray, np.ndarray]:
        return native.layout_rows(self.X)

    def residuals(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """x~_j v / ||x_j||, the signed distance of every block from every half-space: (B, n)."""
        return (V @ self.X.T) * self.signs[pattern]

    def violation(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """How far each block is outside, at its worst row: (B,); 0 inside."""
        worst = np.zeros(len(V))
        for part in budget.pieces(len(V), self._many_blocks):
            worst[part] = self.residuals(V[part], pattern[part]).min(axis=1)
        return np.maximum(-worst, 0.0)

    def contains(self, V: np.ndarray, pattern: np.ndarray, tol: float = 1e-12) -> np.ndarray:
        """Membership of each block, up to `tol` of its norm: (B,) boolean."""
        return self.violation(V, pattern) <= tol * np.linalg.norm(V, axis=1)

    @cached_property
    def interior(self) -> np.ndarray:
        """A strictly interior unit vector of each cone, (p, d): the gate if no row ties with it, a
        point near it if some do, else by linear programming; NaN where there is none, that is for
        singular cones."""
        points = np.full((self.p, self.d), np.nan)
        unresolved = np.arange(self.p)
        if self.gates is not None:
            strict = self._strict(self._unit_gates, unresolved)
            points[strict] = self._unit_gates[strict]
            unresolved = unresolved[~strict]
        self._without_gate = unresolved
        if len(unresolved) and self.gates is not None:
            points[unresolved] = np.array([self._nudged(i) for i in unresolved.tolist()])
            unresolved = unresolved[~self._strict(points[unresolved], unresolved)]
        for i in unresolved.tolist():
            budget.look()
            point, tight = self.relative_interior(i)
            points[i] = np.nan if tight.any() else point / np.linalg.norm(point)
        return points

    @cached_property
    def _unit_gates(self) -> np.ndarray:
        """(p, d); zero where there is none."""
        if self.gates is None:
            return np.zeros((self.p, self.d))
        norms = np.linalg.norm(self.gates, axis=0)
        return (self.gates / np.where(norms > 0, norms, 1.0)).T

    def _strict(self, points: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        return self.slack(points, pattern) > TIE  # false for NaN

    def _nudged(self, i: int) -> np.ndarray:
        """An interior point near the gate of a pattern, if that is in its cone; NaN without one."""
        gate, signs = self._unit_gates[i], self.signs[i]
        residual = signs * (self.X @ gate)
        point = None
        if gate.any() and residual.min() >= -TIE:
            tied = np.flatnonzero((residual <= TIE) & self.live)
            rows = divide_rows(self.X[tied], signs[tied].astype(float))
            with suppress(InteriorError):  # all rows together may tell
                point = nudge(gate, residual, rows, lambda v: signs * (self.X @ v))
        return np.full(self.d, np.nan) if point is None else point

    def tie_notes(self) -> tuple[str, ...]:
        """Which gates are no interior points because rows tie with them, in words."""
        if self.gates is None:
            return ()
        regular = ~self.singular
        found = [i for i in self._without_gate.tolist() if regular[i]]
        foreign = [i for i in found if not self.gates[:, i].any()]
        tied = [i for i in found if self.gates[:, i].any()]
        reasons = ((tied, "tie with rows of X"), (foreign, "have a bias, which the cones have not"))
        return tuple(
            f"{len(which)} gate{'s' if len(which) > 1 else ''} (first: pattern {which[0]}) {why}; "
            "other interior points of their cones were found"
            for which, why in reasons
            if which
        )

    @property
    def singular(self) -> np.ndarray:
        """Patterns whose cone lies in a subspace, K - K != R^d: (p,) boolean."""
        return np.isnan(self.interior[:, 0])

    def relative_interior(self, pattern: int) -> tuple[np.ndarray, np.ndarray]:
        """A relative interior point of one cone, and the (non-zero) rows that are orthogonal to
        the whole cone, (n,) boolean."""
        if pattern not in self._relative:
            live = np.flatnonzero(self.live)
            rows = self.X if len(live) == self.n else self.X[live]
            A = divide_rows(rows, self.signs[pattern, live].astype(float))
            gate = self._unit_gates[pattern]
            try:
                point, orthogonal = relative_interior(A, gate if gate.any() else None)
            except InteriorError as error:
                raise InteriorError(
                    f"patterns: whether the cone of {pattern} has an interior could not be found "
                    f"out ({error}); leave it out"
                ) from error
            tight = np.zeros(self.n, dtype=bool)
            tight[live] = orthogonal
            self._relative[pattern] = point, tight
        return self._relative[pattern]

    def proven_inside(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """Whether each block is inside its cone beyond doubt, in real arithmetic and for the raw
        rows: (B,) boolean.

        A computed product fl(<x, v>) of d terms that is at least 1.01 (d + 4) 2^-53 fl(<|x|, |v|>)
        + d 2^-1022 has the right sign, in whatever order it was summed up. Zero blocks are always
        inside.
        """
        return self._proven(V, pattern, self.live)

    def lift(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """Move each block along the interior of its cone just far enough to be inside beyond doubt
        (see `proven_inside`). Those that are already stay as they are, to the bit; those that never
        get there, in cones hardly wider than rounding, become zero.

        Singular cones have no interior. Their blocks are moved to the subspace of the cone, up to
        rounding, and along its relative interior.
        """
        inside = np.array(V, dtype=np.float64)
        outside = np.flatnonzero(~self.proven_inside(inside, pattern))
        singular = self.singular[pattern[outside]]
        regular = outside[~singular]
        inside[regular] = self._raise(
            inside[regular], pattern[regular], self.interior[pattern[regular]], self.live
        )
        for i in np.unique(pattern[outside[singular]]).tolist():
            which = outside[singular & (pattern[outside] == i)]
            inside[which] = self._raise_in_subspace(inside[which], i)
        return inside

    def _raise(
        self, V: np.ndarray, pattern: np.ndarray, towards: np.ndarray, rows: np.ndarray
    ) -> np.ndarray:
        """V + a `towards` with the least a >= 0 that these rows (n,) boolean need."""
        V, margin = V.copy(), MARGIN
        left = np.arange(len(V))
        for _ in range(LIFTS):  # rounding may leave a row short
            if len(left) == 0:
                return V
            step = self._steps(V[left], pattern[left], towards[left], rows, margin)
            left, step = left[np.isfinite(step)], step[np.isfinite(step)]
            V[left] += step[:, None] * towards[left]
            left = left[~self._proven(V[left], pattern[left], rows)]
            margin *= 4
        V[~self._proven(V, pattern, rows)] = 0.0
        return V

    def _raise_in_subspace(self, V: np.ndarray, i: int) -> np.ndarray:
        """Blocks of a singular cone, inside up to rounding."""
        pattern = np.full(len(V), i)
        V = V.copy()
        far = np.flatnonzero(~self.contains(V, pattern, INSIDE))
        if len(far) == 0:
            return V
        point, tight = self.relative_interior(i)
        size = float(np.linalg.norm(point))
        if size == 0:  # of a cone that is a subspace, or zero
            towards = np.zeros((len(far), self.d))
        else:
            towards = np.tile(point / size, (len(far), 1))
        moved, span = V[far], self._span(i)
        for _ in range(2):
            moved = moved - (moved @ span) @ span.T
        vanished = np.linalg.norm(moved, axis=1) <= 1e-12 * np.linalg.norm(V[far], axis=1)
        moved[vanished] = 0.0
        moved = self._raise(moved, pattern[far], towards, self.live & ~tight)
        moved[~self.contains(moved, pattern[far], TIE)] = 0.0
        V[far] = moved
        return V

    def _span(self, i: int) -> np.ndarray:
        """An orthonormal basis of the rows that are orthogonal to a singular cone, (d, rank), found
        in parts: there may be many."""
        if i not in self._spans:
            span = np.zeros((self.d, 0))
            tight = np.flatnonzero(self.relative_interior(i)[1])
            for part in budget.pieces(len(tight), max(64, min(2 * self.d, _BLOCK // self.d))):
                new = self.X[tight[part]]
                new = new.toarray() if is_sparse(new) else new
                for _ in range(2):
                    new = new - (new @ span) @ span.T
                _, sizes, vectors = np.linalg.svd(new, full_matrices=False)
                span = np.hstack([span, vectors[sizes > TIE].T])
            self._spans[i] = np.linalg.qr(span)[0]
        return self._spans[i]

    def _proven(self, V: np.ndarray, pattern: np.ndarray, rows: np.ndarray) -> np.ndarray:
        proven = np.ones(len(V), dtype=bool)
        some = np.flatnonzero(V.any(axis=1))
        for block, _, product, rounding in self._doubtful(V[some], pattern[some], rows, 1.0):
            proven[some[block[~((product >= rounding) & (rounding < np.inf))]]] = False
        return proven

    def _steps(
        self,
        V: np.ndarray,
        pattern: np.ndarray,
        towards: np.ndarray,
        rows: np.ndarray,
        margin: float,
    ) -> np.ndarray:
        """How far to go from each block until all of these rows have a product of `margin` times
        its rounding; infinite where that never happens: (B,)."""
        steps = np.zeros(len(V))
        for block, row, product, rounding in self._doubtful(V, pattern, rows, margin):
            need = margin * rounding - product
            gain, loss = self._pairs(towards, pattern, block, row)
            gain -= MARGIN * loss
            step = np.where(need > 0, np.inf, 0.0)
            np.divide(need, gain, out=step, where=(need > 0) & (gain > 0))
            np.maximum.at(steps, block, np.where(np.isnan(need), np.inf, step))
        return steps

    def _doubtful(
        self, V: np.ndarray, pattern: np.ndarray, rows: np.ndarray, margin: float
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Blocks and rows whose product may be less than `margin` times its rounding: products of
        norms, which are no less, tell most of them; their products and roundings."""
        sizes = _row_norms(V)[:, None]
        for part, among in self._parts(len(V)):
            with np.errstate(over="ignore", invalid="ignore"):
                product = (V[part] @ self.raw[among].T) * self.signs[pattern[part], among]
                enough = margin * (
                    (1.01 * self._unit) * (sizes[part] * self.row_norms[among]) + self._least
                )
                pairs = np.nonzero(~((product >= enough) & (enough < np.inf)) & rows[among])
            for few in blocks(len(pairs[0]), _CACHED // (16 if is_sparse(self.X) else self.d)):
                block, row = pairs[0][few] + part.start, pairs[1][few] + among.start
                yield block, row, *self._pairs(V, pattern, block, row)

    def _pairs(
        self, V: np.ndarray, pattern: np.ndarray, block: np.ndarray, row: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """x~_j v of pairs of blocks and raw rows, and more than their rounding errors, (k,)."""
        X = self.raw[row]
        with np.errstate(over="ignore", invalid="ignore"):
            if is_sparse(X):
                pair = np.repeat(np.arange(len(row)), np.diff(X.indptr))
                terms = X.data * V[block[pair], X.indices]
                product = np.bincount(pair, terms, len(row))
                size = np.bincount(pair, np.abs(terms), len(row))
            else:
                product = np.einsum("kd,kd->k", X, V[block])
                size = np.einsum("kd,kd->k", np.abs(X), np.abs(V[block]))
            return product * self.signs[pattern[block], row], self._unit * size + self._least

    @property
    def _unit(self) -> float:
        """The rounding error of a product of d terms is less than this share of the product of
        their absolute values, as computed, and `_least` for underflow."""
        return 1.01 * (self.d + 4) * 2.0**-53

    @property
    def _least(self) -> float:
        return self.d * 2.0**-1022

    def _parts(self, n_blocks: int) -> Iterator[tuple[slice, slice]]:
        """Blocks and rows whose products fit into the cache."""
        for rows in blocks(self.n, 8192):
            for part in budget.pieces(n_blocks, _CACHED // (rows.stop - rows.start)):
                yield part, rows

    def project(
        self,
        points: np.ndarray,
        pattern: np.ndarray,
        *,
        offsets: np.ndarray | None = None,
        enough: np.ndarray | float = -1.0,
        start: ActiveRows | None = None,
        max_rows: int | None = None,
    ) -> tuple[np.ndarray, ActiveRows]:
        """Project each point onto its cone, or with `offsets` b (B, n) onto {w : X~ w >= b}.

        `enough` ends a block as soon as ||x + X~'gamma|| <= enough: every gamma >= 0 bounds the
        norm of the projection from above, so that much is proven. `max_rows` ends a block after it
        has added that many rows: a cheap bound of this kind, of a point that need not be inside.
        Returns the points (B, d) and the active rows, whose multipliers belong to unit rows.
        """
        B, d = points.shape
        state = ActiveRows.empty(B, self.width)
        if start is not None:
            width = min(self.width - 1, start.rows.shape[1])
            state.rows[:, :width], state.gamma[:, :width] = (
                start.rows[:, :width],
                start.gamma[:, :width],
            )
            state.count[:] = np.minimum(start.count, width)
        scaled = None if offsets is None else offsets / np.where(self.live, self.row_norms, 1.0)
        enough = np.broadcast_to(np.asarray(enough, dtype=float), (B,))
        max_iter = 20 * d + 100
        max_rows = max_iter if max_rows is None else min(max_rows, max_iter)
        if is_sparse(self.X):
            assert offsets is None  # decompositions do not take sparse data
            return self._project_sparse(points, pattern, enough, state, max_rows), state
        if native.library() is not None:
            result = native.project_blocks(
                self._layouts,
                self.signs,
                points,
                pattern,
                scaled,
                enough,
                state.rows,
                state.gamma,
                state.count,
                tolerance=TOLERANCE,
                dependent=DEPENDENT,
                max_rows=max_rows,
            )
            return result, state
        result = np.empty_like(points)
        for part in budget.pieces(B, _BLOCK // max(self.n, d * d)):
            search = _Projection(
                self,
                points[part],
                pattern[part],
                None if scaled is None else scaled[part],
                enough[part],
                state.select(part),
                max_rows,
            )
            result[part] = search.run(max_iter)
            state.store(part, search.state)
        return result, state

    def _project_sparse(
        self,
        points: np.ndarray,
        pattern: np.ndarray,
        enough: np.ndarray,
        state: ActiveRows,
        max_rows: int,
    ) -> np.ndarray:
        result = np.empty_like(points)
        for b, point in enumerate(points):
            budget.look()
            search = _SparseProjection(self.X, self.signs[pattern[b]], point)
            start = state.rows[b, : state.count[b]]
            result[b] = search.run(start, float(enough[b]), max_rows)
            k = state.count[b] = len(search.rows)
            state.rows[b, :k], state.gamma[b, :k] = search.rows, search.gamma
        return result

    def slack(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """The smallest residual over the non-zero rows: (B,)."""
        slack = np.full(len(V), np.inf)
        if not self.live.any():
            return slack
        for part in budget.pieces(len(V), self._many_blocks):
            slack[part] = self.residuals(V[part], pattern[part])[:, self.live].min(axis=1)
        return slack


def _row_norms(X: Array) -> np.ndarray:
    """The norms of the rows, also of those whose squares are no numbers any more."""
    with np.errstate(over="ignore"):
        norms = np.sqrt(row_squares(X)) if is_sparse(X) else np.linalg.norm(X, axis=1)
    odd = np.flatnonzero(~((norms > 1e-140) & (norms < 1e150)))
    if len(odd):
        rows = X[odd]
        largest = abs(rows).max(axis=1)
        largest = largest.toarray().reshape(-1) if is_sparse(X) else largest
        rows = divide_rows(rows, np.where(largest > 0, largest, 1.0))
        norms[odd] = largest * np.sqrt(row_squares(rows))
    return norms


def treat_singular(
    patterns: Patterns, cones: Cones, column_scale: np.ndarray, bias: bool
) -> tuple[Patterns, tuple[str, ...]]:
    """Patterns without singular cones, never with a higher optimal value, and what was done.

    The cone of pattern i lies in a subspace because of rows that are orthogonal to all of it. Any
    signs of these rows give a cone that contains it, with the same fit on it. If the other rows
    agree with those of a non-singular pattern, i is dropped; else the signs come from a generic
    vector, which makes the cone non-singular (proof of proposition 3.2). Dropping without such a
    pattern present, as the paper's theorem 3.3 has it, can raise the value.
    """
    keep = np.flatnonzero(~cones.singular).tolist()
    mask = patterns.mask.copy()
    gates = None if patterns.gates is None else patterns.gates.copy()
    gate_bias = None if patterns.gate_bias is None else patterns.gate_bias.copy()
    notes = []
    for i in np.flatnonzero(cones.singular).tolist():
        inner, tight = cones.relative_interior(i)
        others = cones.live & ~tight
        if not others.any():
            notes.append(f"pattern {i} was dropped: no gate produces it, its cone fits nothing")
            continue
        twins = [j for j in keep if np.array_equal(mask[others, j], mask[others, i])]
        if twins:
            notes.append(
                f"pattern {i} is singular and was dropped: the cone of {twins[0]} contains its own"
            )
            continue
        gate = _generic_gate(cones, i, inner, tight)
        mask[tight, i] = cones.X[tight] @ gate >= 0
        if gates is not None and gate_bias is not None:
            raw = gate / column_scale
            gates[:, i], gate_bias[i] = (raw[:-1], raw[-1]) if bias else (raw, 0.0)
        keep.append(i)
        notes.append(f"pattern {i} is singular and was replaced by one whose cone contains its own")
    if not keep:
        foreign = not bias and gate_bias is not None and gate_bias.any()
        hint = "; gates with a bias need a problem with bias=True" if foreign else ""
        raise ValueError(f"patterns: none is left, no cone holds more than zero{hint}")
    chosen = np.sort(np.asarray(keep))
    return Patterns(mask, gates, gate_bias, patterns.strict).select(chosen), tuple(notes)


def _generic_gate(cones: Cones, i: int, inner: np.ndarray, tight: np.ndarray) -> np.ndarray:
    """A vector without ties that agrees with pattern i outside `tight`: a generic direction,
    inclined to the signs that are there, plus a multiple of the relative interior point."""
    signs = cones.signs[i]
    noise = np.random.default_rng(0).standard_normal(cones.d)
    lean = signs[tight] @ cones.X[tight]
    generic = lean + 0.1 * max(float(np.linalg.norm(lean)), 1.0) * noise
    others = cones.live & ~tight
    ahead = signs[others] * (cones.X[others] @ inner)
    behind = -signs[others] * (cones.X[others] @ generic)
    return generic + (1.0 + 2.0 * max(float(np.max(behind / ahead)), 0.0)) * inner


class _Projection:
    """The active-set iteration on a batch of blocks, the twin of native.c; `live` blocks are those
    not finished."""

    def __init__(
        self,
        cones: Cones,
        points: np.ndarray,
        pattern: np.ndarray,
        offsets: np.ndarray | None,
        enough: np.ndarray,
        state: ActiveRows,
        max_rows: int,
    ) -> None:
        self.cones, self.points, self.pattern = cones, points, pattern
        self.offsets, self.enough, self.state = offsets, enough, state
        self.result = points.copy()
        self.left = np.full(len(points), max_rows)  # how many rows each block may still add
        self.banned = np.full(len(points), -1)  # a row just rejected, until the active set moves

    def run(self, max_iter: int) -> np.ndarray:
        live = np.arange(len(self.points))
        for _ in range(max_iter):
            budget.look()
            if len(live) == 0:
                break
            accepted = self._solve_on_active_rows(live)
            live = np.concatenate([live[~accepted], self._add_rows(live[accepted])])
        return self.result

    def _active(self, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Signed active rows (L, k, d), padded with zeros, their offsets and which are in use."""
        rows = self.state.rows[live]
        used = np.arange(rows.shape[1]) < self.state.count[live][:, None]
        k = max(1, int(self.state.count[live].max(initial=0)))
        rows, used = rows[:, :k], used[:, :k]
        signs = np.where(used, self.cones.signs[self.pattern[live][:, None], rows], 0)
        A = self.cones.X[rows] * signs[:, :, None]
        b = np.zeros(rows.shape)
        if self.offsets is not None:
            b = np.where(used, self.offsets[live[:, None], rows], 0.0)
        return A, b, used

    def _solve_on_active_rows(self, live: np.ndarray) -> np.ndarray:
        """Multipliers z with A w = b for w = x + A'z; blocks with z > 0 accept them, the others go
        as far as their multipliers stay non-negative and drop the rows that reach zero."""
        A, b, used = self._active(live)
        k = A.shape[1]
        x = self.points[live]
        gram = A @ A.transpose(0, 2, 1)
        index = np.arange(k)
        gram[:, index, index] += np.where(used, 1e-15, 1.0)
        z = np.zeros(b.shape)
        w = x
        for _ in range(3):  # refinement: the Gram matrix squares the condition number
            shortage = b - np.einsum("lkd,ld->lk", A, w)
            z = z + np.linalg.solve(gram, shortage[:, :, None])[:, :, 0]
            w = x + np.einsum("lkd,lk->ld", A, z)
        bad = used & (z <= 0)
        accepted: np.ndarray = np.logical_not(bad.any(axis=1))
        self.result[live[accepted]] = w[accepted]
        gamma = self.state.gamma[live, :k]
        gamma[accepted] = z[accepted]
        gamma[~used] = 0.0
        if not accepted.all():
            self._partial_step(gamma, z, bad, ~accepted, live)
        self.state.gamma[live, :k] = gamma
        if not accepted.all():
            self._drop_zero_rows(live[~accepted], k)
        return accepted

    def _partial_step(
        self,
        gamma: np.ndarray,
        z: np.ndarray,
        bad: np.ndarray,
        partial: np.ndarray,
        live: np.ndarray,
    ) -> None:
        ratio = np.where(bad, gamma / np.where(bad, np.maximum(gamma - z, 1e-300), 1.0), np.inf)
        step = np.minimum(ratio.min(axis=1), 1.0)[:, None]
        moved = gamma + step * (z - gamma)
        leaving = bad & (ratio <= step * (1 + 1e-12))
        before = gamma.copy()
        gamma[partial] = np.where(leaving, -1.0, np.maximum(moved, 0.0))[partial]
        # the row added last, thrown out again at once: its violation was rounding
        last = self.state.count[live] - 1
        at = np.arange(len(live)), np.maximum(last, 0)
        bounced = partial & (last >= 0) & leaving[at] & (before[at] == 0)
        rows = self.state.rows[live, at[1]]
        self.banned[live] = np.where(bounced, rows, self.banned[live])

    def _drop_zero_rows(self, blocks_: np.ndarray, k: int) -> None:
        """Remove the rows marked by a negative multiplier and close the ranks."""
        gamma, rows = self.state.gamma[blocks_, :k], self.state.rows[blocks_, :k]
        unused = np.arange(k) >= self.state.count[blocks_][:, None]
        leaving = (gamma < 0) | unused
        order = np.argsort(leaving, axis=1, kind="stable")
        self.state.gamma[blocks_, :k] = np.take_along_axis(np.where(leaving, 0, gamma), order, 1)
        self.state.rows[blocks_, :k] = np.take_along_axis(rows, order, 1)
        self.state.count[blocks_] = np.sum(~leaving, axis=1)

    def _add_rows(self, live: np.ndarray) -> np.ndarray:
        """Give each block its most violated row; blocks without one, below `enough` or with
        `max_rows` added, are finished. Returns those that go on."""
        w = self.result[live]
        size = np.linalg.norm(w, axis=1)
        if self.offsets is None:
            full = self.state.count[live] == self.cones.d  # nothing but zero is tight on all these
            zero = full | (size <= ZERO * self._scale(live))
            self.result[live[zero]] = 0.0
            reached = zero | (size <= self.enough[live])
            live, w, size = live[~reached], w[~reached], size[~reached]
        going = self.left[live] > 0
        live, w, size = live[going], w[going], size[going]
        self.left[live] -= 1
        if len(live) == 0:
            return live
        residual = self.cones.residuals(w, self.pattern[live])
        if self.offsets is not None:
            residual -= self.offsets[live]
        k = int(self.state.count[live].max(initial=0))
        if k:
            used = np.arange(k) < self.state.count[live][:, None]
            b, j = np.nonzero(used)
            residual[b, self.state.rows[live[b], j]] = 0.0
        barred = np.flatnonzero(self.banned[live] >= 0)
        residual[barred, self.banned[live[barred]]] = 0.0
        worst = np.argmin(residual, axis=1)
        value = residual[np.arange(len(live)), worst]
        scale = np.maximum(self._scale(live), size)
        violated = value < -TOLERANCE * scale
        live, worst = live[violated], worst[violated]
        if len(live) == 0:
            return live
        self._make_room(live, worst)
        count = self.state.count[live]
        self.state.rows[live, count] = worst
        self.state.gamma[live, count] = 0.0
        self.state.count[live] += 1
        return live

    def _scale(self, live: np.ndarray) -> np.ndarray:
        return np.linalg.norm(self.points[live], axis=1)

    def _make_room(self, live: np.ndarray, worst: np.ndarray) -> None:
        """Where the new row depends on the active ones, x~ = A'y, exchange it for one of them:
        gamma_A falls along y while the new multiplier rises, until an active one is zero."""
        A, _, used = self._active(live)
        rows = self.cones.X[worst] * self.cones.signs[self.pattern[live], worst][:, None]
        k = A.shape[1]
        gram = A @ A.transpose(0, 2, 1)
        gram[:, np.arange(k), np.arange(k)] += np.where(used, 1e-15, 1.0)
        y = np.linalg.solve(gram, (A @ rows[:, :, None]))[:, :, 0]
        distance = np.sum((rows - np.einsum("lkd,lk->ld", A, y)) ** 2, axis=1)
        dependent = (distance < DEPENDENT) & used.any(axis=1)
        self.banned[live] = -1
        if not dependent.any():
            return
        chosen = live[dependent]
        gamma, y = self.state.gamma[chosen, :k], y[dependent]
        falling = used[dependent] & (y > 1e-12)
        ratio = np.where(falling, gamma / np.where(falling, y, 1.0), np.inf)
        leaver = np.argmin(ratio, axis=1)
        step = ratio[np.arange(len(chosen)), leaver]
        step = np.where(np.isfinite(step), step, 0.0)
        gamma = np.where(used[dependent], np.maximum(gamma - step[:, None] * y, 0.0), 0.0)
        gamma[np.arange(len(chosen)), leaver] = -1.0
        self.state.gamma[chosen, :k] = gamma
        self._drop_zero_rows(chosen, k)


class _SparseProjection:
    """The active-set iteration for one point and sparse rows, without offsets.

    A product with all rows costs little here and there may be as many active rows as samples, so
    many violated rows are added at once. Every step shortens w = x + X~'gamma, so that no active
    set comes twice.
    """

    def __init__(self, X: Any, signs: np.ndarray, point: np.ndarray) -> None:
        self.X, self.signs, self.point = X, signs, point
        self.scale = float(np.linalg.norm(point))

    def run(self, start: np.ndarray, enough: float, max_rows: int) -> np.ndarray:
        """The projection; `rows` and `gamma` are then its active rows and their multipliers."""
        d = self.X.shape[1]
        banned = np.zeros(0, dtype=np.int64)  # rows just rejected, until the active set moves
        self._set_rows(start, np.zeros(len(start)))
        w = self._settle()
        for _ in range(MAX_SPARSE_STEPS):
            budget.look()
            size = float(np.linalg.norm(w))
            if size <= ZERO * self.scale or (len(self.rows) >= d and size <= TIE * self.scale):
                return np.zeros_like(w)
            if size <= enough or max_rows <= 0 or len(self.rows) >= d:
                break
            residual = self.signs * (self.X @ w)
            residual[self.rows] = residual[banned] = 0.0
            violated = np.flatnonzero(residual < -TOLERANCE * self.scale)
            if len(violated) == 0:
                break
            many = min(max(1, (d - len(self.rows)) // 4), max_rows)
            new = violated[np.argsort(residual[violated], kind="stable")[:many]]
            before, max_rows = self.rows, max_rows - len(new)
            w = self._add(new)
            unmoved = np.array_equal(self.rows, before)
            banned = np.concatenate([banned, new]) if unmoved else banned[:0]
        return w

    def _set_rows(self, rows: np.ndarray, gamma: np.ndarray) -> None:
        self.rows, self.gamma = rows, gamma
        self._span = Span(self.X, rows, self.signs)

    def _add(self, new: np.ndarray) -> np.ndarray:
        """The point of the active rows and of these; those that depend on others are left out."""
        k, added = len(self.rows), np.zeros(len(new))
        self._set_rows(np.append(self.rows, new), np.append(self.gamma, added))
        if self._span.factored:
            kept = self._span.independent()
            kept[:k] = True
            if not kept.all():
                self._set_rows(self.rows[kept], self.gamma[kept])
        return self._settle()

    def _settle(self) -> np.ndarray:
        """The w that is tight on the active rows, after those whose multipliers would not be
        positive were dropped: all of them where that shortens w, else the first to vanish."""
        size = np.linalg.norm(self._reached(self.gamma))
        while True:
            z, w = self._tight()
            bad = z <= 0
            if not bad.any():
                self.gamma = z
                return w
            clipped = np.where(bad, 0.0, z)
            clipped_size = np.linalg.norm(self._reached(clipped))
            if clipped_size < size:
                gamma, size = clipped, clipped_size
            else:
                ratio = self.gamma[bad] / np.maximum(self.gamma[bad] - z[bad], 1e-300)
                step = min(float(ratio.min()), 1.0)
                bad[bad] = ratio <= step * (1 + 1e-12)
                gamma = np.maximum(self.gamma + step * (z - self.gamma), 0.0)
                gamma[bad] = 0.0
                size = np.linalg.norm(self._reached(gamma))
            self._set_rows(self.rows[~bad], gamma[~bad])

    def _tight(self) -> tuple[np.ndarray, np.ndarray]:
        """The multipliers with which the active rows are tight, and w. They are refined, since the
        Gram matrix squares the condition number, unless one of them is not positive anyway."""
        z = self.gamma
        for _ in range(4):
            w = self._reached(z)
            short = self._span.A @ w
            if np.abs(short).max(initial=0.0) <= 0.01 * TOLERANCE * self.scale:
                break
            z = z - self._span.solve(short, 1e-5)
            if (z <= 0).any():
                break
        return z, self._reached(z)

    def _reached(self, gamma: np.ndarray) -> np.ndarray:
        """x + X~'gamma."""
        return self.point + self._span.combine(gamma)
