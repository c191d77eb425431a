"""Projections onto cones of dense rows, many at a time: the NumPy twin of `project_blocks` in C.

Pi_K(x) = x + X~'gamma with gamma = argmin_{gamma >= 0} ||x + X~'gamma||, by an active-set method of
Lawson-Hanson type: every block adds the row that is violated most, for all blocks with one product,
and drops those whose multiplier turns negative. The sweeps with which the compiled kernel begins
where features are many are not in here: they save it time, and change nothing about projections.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cvxnn import budget

TOLERANCE = 1e-13  # of a row's violation, relative to the size of the point
DEPENDENT = 1e-12  # squared distance of a unit row from the span of others that counts as none
ZERO = 1e-14  # a projection this small, relative to the point, is zero up to rounding


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

    def select(self, index: slice | np.ndarray) -> ActiveRows:
        return ActiveRows(self.rows[index], self.gamma[index], self.count[index])

    def used(self, index: np.ndarray) -> ActiveRows:
        """Those of some blocks in arrays that have no room for more: there may be far more room
        than rows."""
        count = self.count[index]
        k = int(count.max(initial=0))
        return ActiveRows(self.rows[:, :k][index], self.gamma[:, :k][index], count)

    def store(self, index: slice | np.ndarray, other: ActiveRows) -> None:
        k = int(other.count.max(initial=0))
        self.rows[index, :k], self.gamma[index, :k] = other.rows[:, :k], other.gamma[:, :k]
        self.count[index] = other.count


class Projection:
    """The active-set iteration on a batch of blocks, the twin of native.c; `live` blocks are those
    not finished."""

    def __init__(
        self,
        X: np.ndarray,
        signs: np.ndarray,
        points: np.ndarray,
        pattern: np.ndarray,
        offsets: np.ndarray | None,
        enough: np.ndarray,
        state: ActiveRows,
        max_rows: int,
    ) -> None:
        self.X, self.signs = X, signs
        self.points, self.pattern = points, pattern
        self.offsets, self.enough, self.state = offsets, enough, state
        self.result = points.copy()
        self.left = np.full(len(points), max_rows)  # how many rows each block may still add
        self.banned = np.full(len(points), -1)  # a row just rejected, until the active set moves

    def run(self, max_iter: int) -> np.ndarray:
        live = self._start()
        for _ in range(max_iter):
            budget.look()
            if len(live) == 0:
                break
            accepted = self._solve_on_active_rows(live)
            live = np.concatenate([live[~accepted], self._add_rows(live[accepted])])
        return self.result

    def _start(self) -> np.ndarray:
        """Take up the best multiple of the multipliers of the warm start. Returns the blocks for
        which it is not `enough`."""
        live = np.arange(len(self.points))
        if self.offsets is not None:
            return live
        A, _, used = self._active(live)
        k = A.shape[1]
        gamma = np.where(used, np.maximum(self.state.gamma[:, :k], 0.0), 0.0)
        pull = np.einsum("lkd,lk->ld", A, gamma)
        square = np.sum(pull * pull, axis=1)
        along = -np.sum(pull * self.points, axis=1)
        share = np.where((square > 0) & (along > 0), along / np.where(square > 0, square, 1.0), 0.0)
        self.state.gamma[:, :k] = share[:, None] * gamma
        self.result += share[:, None] * pull
        return live[np.linalg.norm(self.result, axis=1) > self.enough]

    def _active(self, live: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Signed active rows (L, k, d), padded with zeros, their offsets and which are in use."""
        rows = self.state.rows[live]
        used = np.arange(rows.shape[1]) < self.state.count[live][:, None]
        k = max(1, int(self.state.count[live].max(initial=0)))
        rows, used = rows[:, :k], used[:, :k]
        signs = np.where(used, self.signs[self.pattern[live][:, None], rows], 0)
        A = self.X[rows] * signs[:, :, None]
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
        # the small shift is for rows that are dependent up to rounding, the 1 for unused places
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
        # A row that was added last and leaves at once: its violation was rounding. Without the ban
        # it would come and go forever.
        last = self.state.count[live] - 1
        at = np.arange(len(live)), np.maximum(last, 0)
        bounced = partial & (last >= 0) & leaving[at] & (before[at] == 0)
        rows = self.state.rows[live, at[1]]
        self.banned[live] = np.where(bounced, rows, self.banned[live])

    def _drop_zero_rows(self, blocks_: np.ndarray, k: int) -> None:
        """Remove the rows marked by a negative multiplier and close the gaps."""
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
            # with as many active rows as features, only zero is tight on all of them
            full = self.state.count[live] == self.X.shape[1]
            zero = full | (size <= ZERO * self._scale(live))
            self.result[live[zero]] = 0.0
            reached = zero | (size <= self.enough[live])
            live, w, size = live[~reached], w[~reached], size[~reached]
        going = self.left[live] > 0
        live, w, size = live[going], w[going], size[going]
        self.left[live] -= 1
        if len(live) == 0:
            return live
        residual = (w @ self.X.T) * self.signs[self.pattern[live]]
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
        rows = self.X[worst] * self.signs[self.pattern[live], worst][:, None]
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
