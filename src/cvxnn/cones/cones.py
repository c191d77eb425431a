"""The cones K_i = {u : (2 D_i - I) X u >= 0} on which a ReLU neuron has pattern i.

With X~ = (2 D_i - I) X the projection is a non-negative least squares problem,

    Pi_K(x) = x + X~'gamma,   gamma = argmin_{gamma >= 0} ||x + X~'gamma||,

solved by an active-set method: in C, or by its twin in `projection.py`. The same iteration projects
onto {w : X~ w >= b}, which cone decompositions need. Sparse rows have a twin of their own, in
`sparse.py`, which adds many rows at a time and knows the active ones by their products with each
other only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Matrix, blocks, divide_rows, is_sparse, row_squares
from cvxnn.cones.interiors import TIE, InteriorError, nudge, relative_interior
from cvxnn.cones.projection import DEPENDENT, TOLERANCE, ActiveRows, Projection
from cvxnn.cones.sparse import SparseProjection
from cvxnn.kernels import native, projections
from cvxnn.threads import cached_property

LIFTS = 6  # steps into a cone, each with four times the margin of the one before
MARGIN = 1.5  # of the first step, in multiples of what is needed: the step itself is rounded
INSIDE = 1e-12  # blocks of singular cones, outside by less than this of their norm, are not moved
_BLOCK = 2**22  # entries of a (blocks x rows) product held at a time
_CACHED = 2**19  # the same where many such products are made: they fit into the cache


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

    def __init__(self, X: Matrix, mask: np.ndarray, gates: np.ndarray | None = None) -> None:
        self.raw = X
        norms = _row_norms(X)
        self.live = norms > 0
        self.X = divide_rows(X, np.where(self.live, norms, 1.0))
        self.row_norms = norms
        self.mask = mask
        self.n, self.d = X.shape
        self.p = mask.shape[1]
        self.gates = gates
        self.signs = 2 * np.ascontiguousarray(mask.T).view(np.int8) - 1  # (p, n)
        self._without_gate = np.zeros(0, dtype=int)
        self._spans: dict[int, np.ndarray] = {}
        self._relative: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def width(self) -> int:
        """Room for the active rows of a block, and one more. They are independent, unless a bound
        was enough: such bounds may rest on more rows."""
        return max(min(self.n, 2 * self.d), 1) + 1

    @cached_property
    def _layouts(self) -> projections.Rows:
        return projections.layout_rows(self.X)

    def residuals(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """x~_j v / ||x_j||, the signed distance of every block from every half-space: (B, n)."""
        return (V @ self.X.T) * self.signs[pattern]

    def violation(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """How far each block is outside, at its worst row: (B,); 0 inside."""
        worst = np.zeros(len(V))
        for part in budget.pieces(len(V), _CACHED // self.n):
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
            with suppress(InteriorError):  # the search over all rows comes next
                point = nudge(gate, residual, rows, lambda v: signs * (self.X @ v))
        return np.full(self.d, np.nan) if point is None else point

    def tie_notes(self) -> tuple[str, ...]:
        """Which gates are not interior points of their cones, and why, in words."""
        if self.gates is None:
            return ()
        regular = ~self.singular
        found = [i for i in self._without_gate.tolist() if regular[i]]
        biased = [i for i in found if not self.gates[:, i].any()]
        tied = [i for i in found if self.gates[:, i].any()]
        reasons = ((tied, "tie with rows of X"), (biased, "have a bias, but the cones have none"))
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
                    f"patterns: could not determine whether the cone of {pattern} has an interior "
                    f"({error}); leave this pattern out"
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
        return self._look(V, pattern, self.live)[0]

    def lift(self, V: np.ndarray, pattern: np.ndarray) -> np.ndarray:
        """Move each block along the interior of its cone just far enough to be inside beyond doubt
        (see `proven_inside`). Blocks that already are keep every bit; those that never get
        there, in cones hardly wider than rounding, become zero.

        Singular cones have no interior. Their blocks are moved to the subspace of the cone, up to
        rounding, and along its relative interior.
        """
        inside = np.array(V, dtype=np.float64)
        singular = self.singular[pattern]
        regular = np.flatnonzero(~singular)
        inside[regular] = self._raise(
            inside[regular], pattern[regular], self.interior[pattern[regular]], self.live
        )
        for i in np.unique(pattern[singular]).tolist():
            which = np.flatnonzero(pattern == i)
            which = which[~self.proven_inside(inside[which], pattern[which])]
            inside[which] = self._raise_in_subspace(inside[which], i)
        return inside

    def _raise(
        self, V: np.ndarray, pattern: np.ndarray, towards: np.ndarray, rows: np.ndarray
    ) -> np.ndarray:
        """V + a `towards` with the least a >= 0 that these rows (n,) boolean need."""
        V, margin = V.copy(), MARGIN
        left = np.arange(len(V))
        for _ in range(LIFTS + 1):  # rounding may leave a row short
            proven, steps = self._look(V[left], pattern[left], rows, margin, towards[left])
            left, steps = left[~proven], steps[~proven]
            if len(left) == 0:
                return V
            steps[~np.isfinite(steps)] = 0.0
            V[left] += steps[:, None] * towards[left]
            margin *= 4
        V[left] = 0.0
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
        for _ in range(2):  # the second time takes out what rounding left
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

    def _look(
        self,
        V: np.ndarray,
        pattern: np.ndarray,
        rows: np.ndarray,
        margin: float = 1.0,
        towards: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether each block is inside beyond doubt, and how far to go `towards` a point until all
        of these rows have a product of `margin` times its rounding; infinite where that never
        happens: (B,) each."""
        proven, steps = np.ones(len(V), dtype=bool), np.zeros(len(V))
        some = np.flatnonzero(V.any(axis=1))
        towards = None if towards is None else towards[some]
        for part in budget.pieces(len(some), _CACHED // max(self.n, 1)):
            its = some[part]
            goal = None if towards is None else towards[part]
            proven[its], steps[its] = self._look_at(V[its], pattern[its], rows, margin, goal)
        return proven, steps

    @np.errstate(over="ignore", invalid="ignore")
    def _look_at(
        self,
        V: np.ndarray,
        pattern: np.ndarray,
        rows: np.ndarray,
        margin: float,
        towards: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for blocks other than zero whose products fit into the cache."""
        if native.library() is not None and not is_sparse(self.raw):
            slack = projections.Slack(self._unit, self._least, margin, MARGIN)
            sizes = _row_norms(V)
            return projections.look_at_blocks(
                self.raw, self.row_norms, rows, self.signs, V, sizes, pattern, towards, slack
            )
        proven, steps = np.ones(len(V), dtype=bool), np.zeros(len(V))
        for block, row, product, rounding in self._doubtful(V, pattern, rows, margin):
            proven[block[~((product >= rounding) & (rounding < np.inf))]] = False
            if towards is None:
                continue
            need = margin * rounding - product
            gain, loss = self._pairs(towards, pattern, block, row)
            gain -= MARGIN * loss
            step = np.where(need <= 0, 0.0, np.inf)
            np.divide(need, gain, out=step, where=(need > 0) & (gain > 0))
            np.maximum.at(steps, block, step)
        return proven, steps

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
        rough: bool = False,
        kept: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ActiveRows]:
        """Project each point onto its cone, or with `offsets` b (B, n) onto {w : X~ w >= b}.

        `enough` ends a block as soon as ||x + X~'gamma|| <= enough: every gamma >= 0 bounds the
        norm of the projection from above, so that much is proven. `max_rows` ends a block after it
        has added that many rows: a cheap bound of this kind, of a point that need not be inside.
        With `rough` such a bound will do for all blocks, within a few per cent as a rule. `kept`
        are factors of the rows in `start`, and are brought up to date (`KeptFactors.of`).
        Returns the points (B, d) and the active rows, whose multipliers belong to unit rows.
        """
        B, d = points.shape
        enough = np.asarray(enough, dtype=float)
        enough = enough if enough.shape == (B,) else np.full(B, enough)
        scaled = None if offsets is None else offsets / np.where(self.live, self.row_norms, 1.0)
        # At most d rows are active, and a few times d steps find them. The limit is for rows that
        # rounding makes come and go; what is found until then is still a valid bound.
        max_iter = 20 * d + 100
        max_rows = max_iter if max_rows is None else min(max_rows, max_iter)
        assert offsets is None or not is_sparse(self.X)  # decompositions do not take sparse data
        if native.library() is not None:
            result, active = projections.project_blocks(
                self._layouts,
                self.signs,
                points,
                pattern,
                scaled,
                enough,
                None if start is None else (start.rows, start.gamma, start.count),
                self.width,
                kept=kept,
                tolerance=TOLERANCE,
                dependent=DEPENDENT,
                max_rows=max_rows,
                rough=rough,
            )
            return result, ActiveRows(*active)
        state = ActiveRows.empty(B, self.width)
        if start is not None:
            width = min(self.width - 1, start.rows.shape[1])
            state.rows[:, :width], state.gamma[:, :width] = (
                start.rows[:, :width],
                start.gamma[:, :width],
            )
            state.count[:] = np.minimum(start.count, width)
        if is_sparse(self.X):
            return self._project_sparse(points, pattern, enough, state, max_rows), state
        result = np.empty_like(points)
        for part in budget.pieces(B, _BLOCK // max(self.n, d * d)):
            search = Projection(
                self.X,
                self.signs,
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
            search = SparseProjection(self.X, self.signs[pattern[b]], point)
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
        everywhere = bool(self.live.all())
        for part in budget.pieces(len(V), _CACHED // self.n):
            residuals = self.residuals(V[part], pattern[part])
            slack[part] = (residuals if everywhere else residuals[:, self.live]).min(axis=1)
        return slack


def _row_norms(X: Matrix) -> np.ndarray:
    """The norms of the rows, also of those whose squares overflow or underflow."""
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
