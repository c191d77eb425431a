"""The pairs (block, class) of a working set: their products, their prox, and which come next.

A block is a pattern, or with cones a pattern with a sign: block b is pattern b with a positive sign
for b < p, else pattern b - p with a negative one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from cvxnn.arrays import largest_entries
from cvxnn.cones.factors import KeptFactors
from cvxnn.cones.projection import ActiveRows
from cvxnn.cones.screening import LastProjections
from cvxnn.operators.base import PatternOperator
from cvxnn.operators.ragged import RaggedOperator
from cvxnn.patterns import column_norms
from cvxnn.problems import CReLU
from cvxnn.protocols import Problem
from cvxnn.solvers.newton.faces import Faces
from cvxnn.solvers.shrinkage import norms, shrink, shrink_in_metric

# Of the metric, in units of its largest entry. Columns that are smaller still matter little, and
# what rows there are of them may be far from the mean that the metric is about.
LEAST = 1e-2
ALIKE = 0.5  # metrics whose entries are all above this are left alone
FAR = 1e12  # entries of X beyond this, or all below its inverse, are multiplied in double precision


class Pairs(NamedTuple):
    """Blocks by class (increasing indices), and the products with them."""

    blocks: list[np.ndarray]
    pattern: np.ndarray  # of each pair: (K,)
    sign: np.ndarray  # (K, 1)
    operator: RaggedOperator
    is_positive: bool  # whether all signs are

    @classmethod
    def of(cls, operator: PatternOperator, blocks: list[np.ndarray], dtype: type) -> Self:
        every = np.concatenate(blocks)
        sign = np.where(every < operator.p, 1.0, -1.0)[:, None]
        patterns = [its % operator.p for its in blocks]
        positive = bool(np.all(every < operator.p))
        return cls(blocks, every % operator.p, sign, operator.ragged(patterns, dtype), positive)

    def in_double(self) -> Self:
        return self._replace(operator=self.operator.in_double())

    def forward(self, rows: np.ndarray) -> np.ndarray:
        """Weights (K, d) to predictions (n, C)."""
        return self.operator.forward(rows if self.is_positive else rows * self.sign)

    def adjoint(self, R: np.ndarray) -> np.ndarray:
        return self.operator.adjoint(R) * self.sign

    def parts(self) -> list[slice]:
        """The pairs of each class."""
        return [slice(a, b) for a, b in pairwise(self.operator.offsets)]


class FreeBlocks:
    """Blocks without constraints.

    metric : (d,), in which steps are taken: the mean squares of the columns, relative to the
        largest one. The curvature along a column is proportional to them, and so columns that are
        small, such as all principal axes of pictures but a few, take longer steps.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.operator = problem.operator_double.base
        X = self.operator.rows()
        largest = float(np.max(largest_entries(X), initial=0.0))
        safe = 1 / FAR <= largest <= FAR
        self.dtype: type = np.float32 if safe else np.float64
        self.single = self.operator.in_single() if safe else self.operator
        self.metric = self._metric()
        self.is_plain = bool(np.all(self.metric == 1))

    def _metric(self) -> np.ndarray:
        size = column_norms(self.operator.rows())
        metric = np.maximum((size / size.max()) ** 2, LEAST)
        return metric if metric.min() < ALIKE else np.ones_like(metric)

    def pairs(self, blocks: list[np.ndarray]) -> Pairs:
        """A working set."""
        return Pairs.of(self.operator, blocks, self.dtype)

    def prox(self, pairs: Pairs, points: np.ndarray, threshold: float) -> np.ndarray:
        """Of `threshold` times the norms, and of the cones if there are any, in the metric."""
        if self.is_plain:
            return shrink(points, threshold)
        return shrink_in_metric(points, threshold, self.metric)

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        """The rows times the metric."""
        return rows if self.is_plain else rows * self.metric

    def correlation(self, Theta: np.ndarray) -> np.ndarray:
        """What the dual constraint bounds, from products in single precision: (blocks, d, C)."""
        return np.asarray(self.single.adjoint(Theta))

    def renew(self, old: Pairs, new: Pairs, source: np.ndarray) -> None:
        """The working set has changed: pair j was pair source[j], or is new for -1."""

    def faces(self, pairs: Pairs) -> Faces | None:
        """The faces in which the rows may move; None for the whole space."""
        return None

    @property
    def active(self) -> ActiveRows | None:
        """Where projections of all correlations may start."""
        return None


class ConeBlocks(FreeBlocks):
    """Blocks in cones. Projections start from the rows that were active at the last one."""

    problem: CReLU

    def __init__(self, problem: CReLU) -> None:
        super().__init__(problem)
        self.cones = problem.cones
        self._of_points = LastProjections.none(self.cones, 0)
        self._of_points.factors = KeptFactors(self.cones, 0)
        m, _, C = problem.weight_shape
        self._of_correlations = LastProjections.none(self.cones, m * C)  # flat, class last

    def _metric(self) -> np.ndarray:
        return np.ones(self.operator.d)  # projections onto cones are in no other one

    @property
    def active(self) -> ActiveRows:
        return self._of_correlations.active

    def prox(self, pairs: Pairs, points: np.ndarray, threshold: float) -> np.ndarray:
        # the prox of a norm on a cone: project, then shrink
        result = np.zeros_like(points)
        large = np.flatnonzero(norms(points) > threshold)
        projected = self._of_points.project(
            self.cones, points[large], large, pairs.pattern[large], threshold
        )
        result[large] = shrink(projected, threshold)
        return result

    def correlation(self, Theta: np.ndarray) -> np.ndarray:
        G = super().correlation(Theta)
        rows = -self.problem.flat(np.concatenate([G, -G]))
        self.problem.shorten_correlation(rows, Theta, self._of_correlations)
        return self.problem.unflat(rows)

    def renew(self, old: Pairs, new: Pairs, source: np.ndarray) -> None:
        classes = np.repeat(np.arange(len(new.blocks)), [len(its) for its in new.blocks])
        flat = np.concatenate(new.blocks) * len(new.blocks) + classes
        start = self._of_correlations.select(flat)  # of another scale: the rows are what counts
        start.active.gamma = np.zeros_like(start.active.gamma)
        kept = np.flatnonzero(source >= 0)
        start.store(kept, self._of_points.select(source[kept]))
        start.factors = self._of_points.factors
        if start.factors is not None:
            start.factors.renumber(source)
        self._of_points = start

    def faces(self, pairs: Pairs) -> Faces:
        active = self._of_points.active
        return Faces(self.cones.X, active.rows, active.count)
