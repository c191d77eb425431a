"""The blocks (pattern, sign) of each output, as the Newton solver sees them.

`GatedBlocks` are free vectors. `ConeBlocks` come in two signs and live in the cones of their
patterns, so that their prox is the soft threshold of a projection,

    prox of t (lam ||.|| + indicator of K) at x  =  (1 - t lam / ||q||)_+ q,   q = Pi_K(x),

and its derivative at a point with c = t lam / ||q|| is (1 - c) F + c q^q^', where F projects onto
the face of K that q lies in: all of R^d for free blocks.

Both keep a working set of blocks: `work` are their indices, and points of it are rows (k, d).
`JointBlocks` are those of all outputs that a loss couples, with one working set.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, TypeAlias

import numpy as np

from cvxnn.arrays import Matrix, is_sparse, to_numpy
from cvxnn.cones.cones import Cones
from cvxnn.cones.factors import KeptFactors
from cvxnn.cones.projection import ActiveRows
from cvxnn.losses import Root
from cvxnn.operators import PatternOperator, expanded_matrix
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.solvers.newton.faces import Faces, Linearisation, SparseFaces
from cvxnn.solvers.newton.joint import JointSolver
from cvxnn.solvers.newton.narrow import WIDE, NarrowFaces
from cvxnn.solvers.newton.systems import (
    MAX_ENTRIES,
    MAX_FORMED,
    MAX_FORMED_ENTRIES,
    FaceSystem,
    Products,
    ProductSystem,
    SingleRows,
    System,
)
from cvxnn.threads import cached_property

FIRST_LIMIT = 0.5  # of the longest row: how short others are made for the first working set
LIFTED = 1e-9  # by how much of its length a row may be moved over rounding without further ado

# Active rows of the last projections: of points of the working set, and of correlations.
Memory: TypeAlias = tuple[ActiveRows, ActiveRows]


def row_norms(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


class GatedBlocks:
    """Blocks without constraints, one for each pattern."""

    # A cold start solves roughly for a larger lam first, which falls by this factor; 0 for not.
    continuation: ClassVar[float] = 0.0
    constrained: ClassVar[bool] = False  # whether `lift` changes anything

    def __init__(self, operator: PatternOperator, rows: SingleRows | None = None) -> None:
        """`rows` are what the outputs of a problem share."""
        self.operator, self._single_rows = operator, rows
        self.n, self.d, self.across = operator.n, operator.d, operator.across
        self.size = operator.p
        self.work = np.zeros(0, dtype=np.int64)
        self._correlations = np.zeros((0, self.d))  # -M'theta for all blocks, at the last theta

    @property
    def X(self) -> Matrix:
        return self.operator.rows()

    @property
    def memory(self) -> Memory | None:
        """What speeds up a later run on the same patterns."""
        return None

    @memory.setter
    def memory(self, memory: Memory | None) -> None:
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

    def last_correlation(self) -> np.ndarray:
        """The same at the theta of the last `all_correlations`, without a product."""
        return self._correlations[self.work]

    @property
    def batch(self) -> int:
        """Blocks that may always join the working set at once."""
        return max(64, 4 * self.d)

    @property
    def dear(self) -> bool:
        """Whether `project` takes as long as the rest of a step."""
        return False

    def all_correlations(
        self,
        theta: np.ndarray,
        lam: float,
        known: np.ndarray | None,
        sigma: float,
        rough: bool = True,
    ) -> np.ndarray:
        """What the dual constraint bounds by lam for all blocks: (n,) -> (size, d). `known` are
        such rows of the working set, see `dual_rows`. Those that exceed lam may be a little longer
        than they need be if that is `rough`, see `shorten`."""
        self._correlations = -self.operator.adjoint(theta[:, None])[:, :, 0]
        return self._correlations

    def shorten(self, rows: np.ndarray, lam: float, few: bool = False) -> None:
        """Make those of the last `all_correlations` that exceed lam as short as they can be, or
        only a `few` of the longest: more than may join the working set."""

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

    def system(self, scale: np.ndarray, sigma: float, at: Linearisation) -> System:
        """I + S A S with S = diag(scale) and A = sigma M P M', P the derivative of the prox."""
        patterns = self.work[at.on]
        size = len(patterns) * (self.d + 1)
        most = min(MAX_FORMED, MAX_FORMED_ENTRIES // self.operator.n_all)
        if size > most or is_sparse(self.X):
            return ProductSystem(self.products, scale, sigma, patterns, at)
        mask = self.operator.mask_of(patterns)
        along = np.sqrt(at.ratio)[:, None] * (at.unit @ self.X.T) * mask
        rest = (np.sqrt(1 - at.ratio)[:, None] * mask)[:, None, :] * self.X.T
        rows = rest.reshape(len(patterns) * self.d, self.n)
        return FaceSystem(scale, sigma, np.concatenate([along, rows]), self.across)

    @cached_property
    def products(self) -> Products:
        """What all systems by products share."""
        return Products(self._single_rows or SingleRows(self.operator))

    def lift(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Rows that are feasible in spite of rounding."""
        return rows

    def release(self) -> None:
        """Let go of what is large and can be made again."""
        self.products.release()


class ConeBlocks(GatedBlocks):
    """Blocks in cones: pattern b with a positive sign for b < p, else b - p with a negative one."""

    continuation = 0.3
    constrained = True

    def __init__(
        self,
        operator: PatternOperator,
        cones: Cones,
        rows: SingleRows | None = None,
        n_outputs: int = 1,
    ) -> None:
        super().__init__(operator, rows)
        self.cones = cones
        self.p, self.size = operator.p, 2 * operator.p
        # active rows of the last projections: of points of the working set, of correlations
        self._of_points = ActiveRows.empty(self.size, cones.width)
        self.of_correlations = ActiveRows.empty(self.size, cones.width)
        self._projected = np.zeros(0, dtype=np.int64)
        self._factors = KeptFactors(cones, self.size, n_outputs)
        self._known: tuple[Linearisation, Faces] | None = None
        self._narrow = NarrowFaces(cones, self._factors)

    @property
    def memory(self) -> Memory | None:
        return self._of_points, self.of_correlations

    @memory.setter
    def memory(self, memory: Memory | None) -> None:
        if memory is not None:
            self._known = None
            self._of_points, self.of_correlations = copy.deepcopy(memory)

    def set_work(self, work: np.ndarray, scale: float) -> None:
        self._known = None
        new = np.setdiff1d(work, self.work, assume_unique=True)
        start = self.of_correlations.used(new)
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

    @property
    def batch(self) -> int:
        return 32  # each costs a projection at every step

    @property
    def dear(self) -> bool:
        return self.d >= WIDE

    def all_correlations(
        self,
        theta: np.ndarray,
        lam: float,
        known: np.ndarray | None,
        sigma: float,
        rough: bool = True,
    ) -> np.ndarray:
        # any multipliers bound the projections from above: rough ones within a few per cent
        rows = super().all_correlations(theta, lam, known, sigma)
        self._correlations = np.concatenate([rows, -rows])
        if known is not None:
            active = self._of_points.used(self.work)
            active.gamma = active.gamma / sigma
            self.of_correlations.store(self.work, active)
        rows = self._correlations.copy()
        sizes = row_norms(rows)
        if len(self.work) == 0:
            lam = max(lam, self._first_limit(rows, sizes, lam))
        if known is not None:
            sizes[self.work] = row_norms(known)
            rows[self.work] = known
        self._project_correlations(rows, np.flatnonzero(sizes > lam), lam, rough)
        return rows

    def _first_limit(self, rows: np.ndarray, sizes: np.ndarray, lam: float) -> float:
        """How short rows have to be at the start, from the longest ones, which are projected: the
        bound of a certificate rests on the longest, as does the choice of the working set."""
        longest = np.argsort(-sizes, kind="stable")[: self.batch]
        self._project_correlations(rows, longest, lam, rough=False)
        sizes[longest] = row_norms(rows[longest])
        return FIRST_LIMIT * float(sizes[longest].max())

    def shorten(self, rows: np.ndarray, lam: float, few: bool = False) -> None:
        sizes = row_norms(rows)
        large = np.flatnonzero(sizes > lam)
        if few:
            order = np.argsort(-sizes[large], kind="stable")
            large = large[order[: 2 * max(self.batch, len(self.work))]]
        self._project_correlations(rows, large, lam, rough=False)

    def _project_correlations(
        self, rows: np.ndarray, blocks: np.ndarray, lam: float, rough: bool
    ) -> None:
        """Replace rows by projections of the correlations where these are shorter."""
        shorter, state = self.cones.project(
            self._correlations[blocks],
            blocks % self.p,
            enough=lam,
            start=self.of_correlations.used(blocks),
            rough=rough,
        )
        better = np.flatnonzero(row_norms(shorter) < row_norms(rows[blocks]))
        rows[blocks[better]] = shorter[better]
        self.of_correlations.store(blocks, state)

    def project(self, x: np.ndarray, enough: float) -> np.ndarray:
        self._known = None
        q = np.zeros_like(x)
        large = np.flatnonzero(row_norms(x) > enough)
        blocks = self.work[large]
        self._factors.make_room(blocks)
        q[large], state = self.cones.project(
            x[large],
            blocks % self.p,
            enough=enough,
            start=self._of_points.used(blocks),
            kept=self._factors.of(blocks),
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

    def _faces(self, at: Linearisation) -> Faces:
        """The faces of the blocks `at.on`, which are the same until points are projected again."""
        if self._known is None or self._known[0] is not at:
            self._known = at, self._find_faces(at)
        return self._known[1]

    def _find_faces(self, at: Linearisation) -> Faces:
        blocks = self.work[at.on]
        rows, count = self._of_points.rows[blocks], self._of_points.count[blocks]
        if is_sparse(self.X):
            return SparseFaces(self.cones.X, [row[:k] for row, k in zip(rows, count, strict=True)])
        return Faces(self.cones.X, rows, count, self._narrow.of(blocks, rows, count))

    def derivative(self, at: Linearisation, rows: np.ndarray) -> np.ndarray:
        return at.shrink(self._faces(at).project(rows))

    def system(self, scale: np.ndarray, sigma: float, at: Linearisation) -> System:
        faces = self._faces(at)
        pattern = self.work[at.on] % self.p
        most = MAX_ENTRIES // self.n
        if is_sparse(self.X):  # products are cheap
            most = min(most, self.n)
        if faces.dimension.sum() > most:
            return ProductSystem(self.products, scale, sigma, pattern, at, faces)
        columns, owner = faces.columns(at, self.X)
        columns *= self.cones.signs[pattern[owner]] > 0
        return FaceSystem(scale, sigma, columns)

    def lift(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        # They are projections, to a precision that depends on the points that were projected, and
        # are projected again only where that shows.
        pattern = blocks % self.p
        lifted = self.cones.lift(rows, pattern)
        far = np.flatnonzero(row_norms(lifted - rows) > LIFTED * row_norms(rows))
        if len(far):
            again = self.cones.project(rows[far], pattern[far])[0]
            lifted[far] = self.cones.lift(again, pattern[far])
        return lifted

    def release(self) -> None:
        super().release()
        self._factors.release()


class JointBlocks:
    """The blocks of several outputs, one output after the other: block b of output k is
    k size + b, and the working sets follow each other in one array of rows (K, d)."""

    def __init__(self, parts: list[GatedBlocks]) -> None:
        self.parts = parts
        self.n, self.d, self.across = parts[0].n, parts[0].d, parts[0].across
        self.size = sum(part.size for part in parts)
        self.continuation, self.constrained = parts[0].continuation, parts[0].constrained
        self.work = np.zeros(0, dtype=np.int64)
        self._solver = JointSolver()

    @property
    def X(self) -> Matrix:
        return self.parts[0].X

    def agree(self, number: float) -> float:
        """A number that decisions depend on, as rank 0 has it."""
        return float(self.across.agree(float(number)))

    @property
    def memory(self) -> list[Memory | None]:
        return [part.memory for part in self.parts]

    @memory.setter
    def memory(self, memory: list[Memory | None]) -> None:
        for part, its in zip(self.parts, memory, strict=True):
            part.memory = its

    def set_work(self, work: np.ndarray, scale: float) -> None:
        """`work` is sorted."""
        self.work = work
        first = self.parts[0].size * np.arange(len(self.parts) + 1)
        edges = np.searchsorted(work, first).tolist()
        self._rows = [slice(*pair) for pair in pairwise(edges)]
        for part, rows, offset in zip(self.parts, self._rows, first, strict=False):
            part.set_work(work[rows] - offset, scale)

    def forward(self, U: np.ndarray) -> np.ndarray:
        """(K, d) -> (n, C)."""
        if len(self.parts) == 1:
            return self.parts[0].forward(U)[:, None]
        return np.stack([part.forward(U[rows]) for part, rows in self._zip()], axis=1)

    def correlation(self, theta: np.ndarray) -> np.ndarray:
        """(n, C) -> (K, d)."""
        return np.concatenate([p.correlation(theta[:, k]) for k, p in enumerate(self.parts)])

    def last_correlation(self) -> np.ndarray:
        return np.concatenate([part.last_correlation() for part in self.parts])

    @property
    def batch(self) -> int:
        return self.parts[0].batch

    @property
    def dear(self) -> bool:
        return self.parts[0].dear

    def all_correlations(
        self,
        theta: np.ndarray,
        lam: float,
        known: np.ndarray | None,
        sigma: float,
        rough: bool = True,
    ) -> np.ndarray:
        rows = [
            part.all_correlations(
                theta[:, k], lam, None if known is None else known[at], sigma, rough
            )
            for k, (part, at) in enumerate(self._zip())
        ]
        return np.concatenate(rows)

    def shorten(self, rows: np.ndarray, lam: float, few: bool = False) -> None:
        for part, its in zip(self.parts, np.split(rows, len(self.parts)), strict=True):
            part.shorten(its, lam, few)  # a view

    def project(self, x: np.ndarray, enough: float) -> np.ndarray:
        return np.concatenate([part.project(x[rows], enough) for part, rows in self._zip()])

    def dual_rows(
        self, correlation: np.ndarray, projected: np.ndarray, centre: np.ndarray, sigma: float
    ) -> np.ndarray:
        return np.concatenate(
            [
                part.dual_rows(correlation[rows], projected[rows], centre[rows], sigma)
                for part, rows in self._zip()
            ]
        )

    def derivative(self, at: Linearisation, rows: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [part.derivative(its, rows[chosen]) for part, its, chosen in self._split(at)]
        )

    def solve(
        self,
        root: Root,
        sigma: float,
        at: Linearisation,
        r: np.ndarray,
        tol: float,
        error: float = math.inf,
    ) -> np.ndarray:
        """The step L x with (I + L'A L) x = L'r, see systems.py: (n, C) -> (n, C)."""
        systems = [
            part.system(root.scale[:, k], sigma, its)
            for k, (part, its, _) in enumerate(self._split(at))
        ]
        return self._solver.solve(root, systems, r, tol, error)

    def release(self) -> None:
        """Let go of what is large and can be made again: there may be many outputs."""
        self._solver.release()
        for part in self.parts:
            part.release()

    def lift(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        owner = blocks // self.parts[0].size
        lifted = np.empty_like(rows)
        for k, part in enumerate(self.parts):
            lifted[owner == k] = part.lift(blocks[owner == k] - k * part.size, rows[owner == k])
        return lifted

    def _zip(self) -> Iterator[tuple[GatedBlocks, slice]]:
        return zip(self.parts, self._rows, strict=True)

    def _split(self, at: Linearisation) -> Iterator[tuple[GatedBlocks, Linearisation, slice]]:
        """Each part with its share of a linearisation, and where that is."""
        if len(self.parts) == 1:
            yield self.parts[0], at, slice(None)
            return
        for part, rows in self._zip():
            chosen = slice(*np.searchsorted(at.on, [rows.start, rows.stop]).tolist())
            its = Linearisation(at.on[chosen] - rows.start, at.unit[chosen], at.ratio[chosen])
            yield part, its, chosen


def join_active_rows(blocks: list[JointBlocks]) -> ActiveRows | None:
    """The active rows of all correlations, in the order of `CReLU.flat`; None without cones."""
    outputs = [part for joint in blocks for part in joint.parts]
    parts = [output.of_correlations for output in outputs if isinstance(output, ConeBlocks)]
    if not parts:
        return None
    if len(parts) == 1:  # no copy: any active rows are a valid start, the latest a good one
        return parts[0]
    size = len(parts) * len(parts[0].count)
    return ActiveRows(
        np.stack([part.rows for part in parts], axis=1).reshape(size, -1),
        np.stack([part.gamma for part in parts], axis=1).reshape(size, -1),
        np.stack([part.count for part in parts], axis=1).reshape(size),
    )


def make_blocks(
    problem: ConvexProblem, n_outputs: int, rows: SingleRows | None = None
) -> JointBlocks:
    """The blocks of so many coupled outputs; `rows` are what all outputs share."""
    rows = single_rows(problem) if rows is None else rows
    if isinstance(problem, CReLU):
        parts: list[GatedBlocks] = [
            ConeBlocks(rows.operator, problem.cones, rows, n_outputs) for _ in range(n_outputs)
        ]
        return JointBlocks(parts)
    return JointBlocks([GatedBlocks(rows.operator, rows) for _ in range(n_outputs)])


def single_rows(problem: ConvexProblem) -> SingleRows:
    operator = problem.operator_double.base
    if not operator.in_numpy:
        operator = expanded_matrix(to_numpy(operator.rows()), operator.bits)
    return SingleRows(operator)
