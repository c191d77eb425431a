"""The blocks (pattern, sign) of one output, as the Newton solver sees them.

`GatedBlocks` are free vectors. `ConeBlocks` come in two signs and live in the cones of their
patterns, so that their prox is the soft threshold of a projection,

    prox of t (lam ||.|| + indicator of K) at x  =  (1 - t lam / ||q||)_+ q,   q = Pi_K(x),

and its derivative at a point with c = t lam / ||q|| is (1 - c) F + c q^q^', where F projects onto
the face of K that q lies in: all of R^d for free blocks.

Both keep a working set of blocks: `work` are their indices, and points of it are rows (k, d).
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np

from cvxnn.arrays import to_numpy
from cvxnn.cones import ActiveRows, Cones
from cvxnn.operators import ExpandedMatrix
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.solvers.newton_systems import (
    MAX_ENTRIES,
    Faces,
    FaceSystem,
    Linearisation,
    ProductSystem,
    System,
)


def row_norms(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


class GatedBlocks:
    """Blocks without constraints, one for each pattern."""

    # A cold start solves roughly for a larger lam first, which falls by this factor; 0 for not.
    continuation: ClassVar[float] = 0.0

    def __init__(self, operator: ExpandedMatrix) -> None:
        self.operator = operator
        self.n, self.d = operator.n, operator.d
        self.size = operator.p
        self.work = np.zeros(0, dtype=np.int64)
        self._product_system: ProductSystem | None = None

    @property
    def X(self) -> np.ndarray:
        return self.operator.X

    @property
    def memory(self) -> Any:
        """What speeds up a later run on the same patterns."""
        return None

    @memory.setter
    def memory(self, memory: Any) -> None:
        pass

    def set_work(self, work: np.ndarray, scale: float) -> None:
        """Choose the working set; multipliers of points will be `scale` times those of
        correlations."""
        self.work = work
        self._restricted = self.operator.select(work)

    def forward(self, U: np.ndarray) -> np.ndarray:
        """The predictions of the working set: (k, d) -> (n,)."""
        return self._restricted.forward(U[:, :, None])[:, 0]

    def correlation(self, theta: np.ndarray) -> np.ndarray:
        """-M'theta on the working set: (n,) -> (k, d)."""
        return -self._restricted.adjoint(theta[:, None])[:, :, 0]

    def all_correlations(self, theta: np.ndarray, lam: float) -> np.ndarray:
        """What the dual constraint bounds by lam for all blocks: (n,) -> (size, d)."""
        return -self.operator.adjoint(theta[:, None])[:, :, 0]

    def project(self, x: np.ndarray, enough: float) -> np.ndarray:
        """The projections of points of the working set; those that are found to be no longer
        than `enough` may be left unfinished."""
        return x

    def dual_rows(
        self, correlation: np.ndarray, projected: np.ndarray, centre: np.ndarray, sigma: float
    ) -> np.ndarray:
        """What the dual constraint bounds on the working set, from what `project` found at
        centre + sigma correlation."""
        return correlation

    def derivative(self, at: Linearisation, rows: np.ndarray) -> np.ndarray:
        """P applied to rows that belong to the blocks `at.on`."""
        return at.shrink(rows)

    def system(self, curvature: np.ndarray, sigma: float, at: Linearisation) -> System:
        """diag(curvature) + sigma M P M' for the derivative P of the prox."""
        return self._by_products().update(curvature, sigma, self.work[at.on], at)

    def _by_products(self) -> ProductSystem:
        if self._product_system is None:
            self._product_system = ProductSystem(self.operator)
        return self._product_system

    def lift(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Rows that are feasible in spite of rounding."""
        return rows


class ConeBlocks(GatedBlocks):
    """Blocks in cones: pattern b with a positive sign for b < p, else b - p with a negative one."""

    continuation = 0.3

    def __init__(self, operator: ExpandedMatrix, cones: Cones) -> None:
        super().__init__(operator)
        self.cones = cones
        self.p, self.size = operator.p, 2 * operator.p
        # active rows of the last projections: of points of the working set, of correlations
        self._of_points = ActiveRows.empty(self.size, self.d + 1)
        self.of_correlations = ActiveRows.empty(self.size, self.d + 1)
        self._projected = np.zeros(0, dtype=np.int64)

    @property
    def memory(self) -> Any:
        return self._of_points, self.of_correlations

    @memory.setter
    def memory(self, memory: Any) -> None:
        self._of_points, self.of_correlations = copy.deepcopy(memory)

    def set_work(self, work: np.ndarray, scale: float) -> None:
        new = np.setdiff1d(work, self.work, assume_unique=True)
        start = self.of_correlations.select(new)
        start.gamma = start.gamma * scale
        self._of_points.store(new, start)
        self.work = work
        patterns, self._place = np.unique(work % self.p, return_inverse=True)
        self._sign = np.where(work < self.p, 1.0, -1.0)
        self._n_patterns = len(patterns)
        self._restricted = self.operator.select(patterns)

    def forward(self, U: np.ndarray) -> np.ndarray:
        total = np.zeros((self._n_patterns, self.d))
        positive = self._sign > 0
        total[self._place[positive]] += U[positive]
        total[self._place[~positive]] -= U[~positive]
        return super().forward(total)

    def correlation(self, theta: np.ndarray) -> np.ndarray:
        return super().correlation(theta)[self._place] * self._sign[:, None]

    def all_correlations(self, theta: np.ndarray, lam: float) -> np.ndarray:
        rows = super().all_correlations(theta, lam)
        rows = np.concatenate([rows, -rows])
        large = np.flatnonzero(row_norms(rows) > lam)
        rows[large], state = self.cones.project(
            rows[large],
            large % self.p,
            enough=lam,
            start=self.of_correlations.select(large),
        )
        self.of_correlations.store(large, state)
        return rows

    def project(self, x: np.ndarray, enough: float) -> np.ndarray:
        q = np.zeros_like(x)
        large = np.flatnonzero(row_norms(x) > enough)
        blocks = self.work[large]
        q[large], state = self.cones.project(
            x[large], blocks % self.p, enough=enough, start=self._of_points.select(blocks)
        )
        self._of_points.store(blocks, state)
        self._projected = large
        return q

    def dual_rows(
        self, correlation: np.ndarray, projected: np.ndarray, centre: np.ndarray, sigma: float
    ) -> np.ndarray:
        # q = centre + sigma correlation + X~'gamma, and any gamma >= 0 proves something
        rows = correlation.copy()
        found = self._projected
        rows[found] = (projected[found] - centre[found]) / sigma
        return rows

    def _active_rows(self, on: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Blocks `on` by their number k of active rows: where they are, and these rows
        (len, k, d)."""
        blocks = self.work[on]
        count = self._of_points.count[blocks]
        groups = []
        for k in np.unique(count).tolist():
            which = np.flatnonzero(count == k)
            groups.append((which, self.cones.X[self._of_points.rows[blocks[which], :k]]))
        return groups

    def derivative(self, at: Linearisation, rows: np.ndarray) -> np.ndarray:
        faces = Faces(self._active_rows(at.on), len(at.on), self.d)
        return at.shrink(faces.project(rows))

    def system(self, curvature: np.ndarray, sigma: float, at: Linearisation) -> System:
        groups = self._active_rows(at.on)
        dimensions = sum(len(which) * (self.d - rows.shape[1]) for which, rows in groups)
        pattern = self.work[at.on] % self.p
        if dimensions * self.n > MAX_ENTRIES:
            faces = Faces(groups, len(at.on), self.d)
            return self._by_products().update(curvature, sigma, pattern, at, faces)
        # an orthonormal basis of each face, the direction of the block itself first
        bases, owner = [at.unit], [np.arange(len(at.on))]
        for which, rows in groups:
            k = rows.shape[1] + 1
            if k < self.d:
                spanned = np.concatenate([rows, at.unit[which][:, None, :]], axis=1)
                rest = np.linalg.qr(spanned.transpose(0, 2, 1), mode="complete")[0][:, :, k:]
                rest *= np.sqrt(1 - at.ratio[which])[:, None, None]
                bases.append(rest.transpose(0, 2, 1).reshape(-1, self.d))
                owner.append(np.repeat(which, self.d - k))
        columns = np.concatenate(bases) @ self.X.T
        columns *= self.cones.signs[pattern[np.concatenate(owner)]] > 0
        return FaceSystem(curvature, sigma, columns)

    def lift(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        pattern = blocks % self.p
        return self.cones.lift(self.cones.project(rows, pattern)[0], pattern)


def join_active_rows(outputs: list[GatedBlocks]) -> ActiveRows | None:
    """The active rows of all correlations, in the order of `CReLU.flat`; None without cones."""
    parts = [output.of_correlations for output in outputs if isinstance(output, ConeBlocks)]
    if not parts:
        return None
    size = len(parts) * len(parts[0].count)
    return ActiveRows(
        np.stack([part.rows for part in parts], axis=1).reshape(size, -1),
        np.stack([part.gamma for part in parts], axis=1).reshape(size, -1),
        np.stack([part.count for part in parts], axis=1).reshape(size),
    )


def make_blocks(problem: ConvexProblem) -> GatedBlocks:
    if isinstance(problem, CReLU):
        return ConeBlocks(problem.operator_double.base, problem.cones)
    operator = problem.operator_double
    if not isinstance(operator.X, np.ndarray):
        operator = ExpandedMatrix(to_numpy(operator.X), operator.mask)
        operator.passes = problem.operator.passes
    return GatedBlocks(operator)
