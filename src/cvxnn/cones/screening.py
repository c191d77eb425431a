"""Projections onto cones, again and again at points that change little.

Every gamma >= 0 bounds the norm of a projection, ||Pi_K(x)|| <= ||x + X~'gamma||. So X~'gamma of
the last projection, times the best factor s >= 0, often shows for the price of two inner products
that a new one is short enough: most blocks are projected once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from cvxnn.cones.cones import Cones
from cvxnn.cones.factors import KeptFactors
from cvxnn.cones.projection import ActiveRows


@dataclass(eq=False)
class LastProjections:
    """The last projection of each of B blocks.

    active : the rows it holds tight, and their multipliers gamma.
    shift : X~'gamma, (B, d).
    factors : those of the active rows that are kept, if any.
    """

    active: ActiveRows
    shift: np.ndarray
    factors: KeptFactors | None = None

    @classmethod
    def none(cls, cones: Cones, n_blocks: int) -> Self:
        """Blocks that were never projected."""
        return cls(ActiveRows.empty(n_blocks, cones.width), np.zeros((n_blocks, cones.d)))

    def select(self, blocks: np.ndarray) -> LastProjections:
        """Those of some blocks."""
        return LastProjections(self.active.select(blocks), self.shift[blocks])

    def store(self, blocks: np.ndarray, other: LastProjections) -> None:
        self.active.store(blocks, other.active)
        self.shift[blocks] = other.shift

    def project(
        self,
        cones: Cones,
        points: np.ndarray,
        blocks: np.ndarray,
        pattern: np.ndarray,
        enough: np.ndarray | float,
        rough: bool = False,
    ) -> np.ndarray:
        """Project points (k, d) of these blocks onto the cones of `pattern`. A result that is no
        longer than `enough`, and with `rough` every one, may be any x + X~'gamma."""
        shift = self.shift[blocks]
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", shift, shift)
            along = np.maximum(-np.einsum("ij,ij->i", points, shift), 0.0)
            scale = np.divide(along, squares, out=np.zeros_like(along), where=squares > 0)
            result = points + scale[:, None] * shift
            short = np.sqrt(np.einsum("ij,ij->i", result, result)) <= enough
        long = np.flatnonzero(~short)  # or not a number
        if self.factors is not None:
            self.factors.make_room(blocks[long])
        enough = np.broadcast_to(enough, len(points))[long]
        result[long], state = cones.project(
            points[long],
            pattern[long],
            enough=enough,
            start=self.active.used(blocks[long]),
            rough=rough,
            kept=None if self.factors is None else self.factors.of(blocks[long]),
        )
        self.active.store(blocks[long], state)
        self.shift[blocks[long]] = result[long] - points[long]
        return result
