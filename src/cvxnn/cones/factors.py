"""Cholesky factors of active rows, kept from one projection of a block to the next.

Near the end of a run, blocks are projected again and again with the same active rows, or nearly,
and most of the time of such a projection would go into the factor of their Gram matrix. The kernel
takes up a kept factor where it belongs to the rows that a block starts from, and updates it.
"""

from __future__ import annotations

import numpy as np

from cvxnn.arrays import is_sparse
from cvxnn.cones.cones import Cones

MAX_ENTRIES = 2**24  # numbers that are kept, at most: 128 MB
WORTHWHILE = 32  # features from which on factors take longer to make than to copy


class KeptFactors:
    """Room for the factors of some of B blocks; `n_sharing` such objects share what may be kept."""

    def __init__(self, cones: Cones, n_blocks: int, n_sharing: int = 1) -> None:
        most = self._most = min(cones.n, cones.d)
        size = 1 + most + most * (most + 1) // 2  # as factors.h lays them out
        worthwhile = cones.d >= WORTHWHILE and not is_sparse(cones.X)
        n_slots = MAX_ENTRIES // n_sharing // size if worthwhile else 0
        self._factors = np.zeros((n_slots, size))  # which takes no memory before it is used
        self._slot = np.full(n_blocks, -1)
        self._owner = np.full(n_slots, -1)

    def of(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All factors, and the slots of these blocks, -1 for those without one."""
        return self._factors, self._slot[blocks]

    def factor(self, block: int, rows: np.ndarray) -> np.ndarray | None:
        """U with A A' = U'U for the signed rows A of this block, packed; None where no factor of
        these rows, in this order, is kept."""
        slot, k = self._slot[block], len(rows)
        if slot < 0:
            return None
        its = self._factors[slot]
        if its[0] != k or not np.array_equal(its[1 : 1 + k], rows):
            return None
        first = 1 + self._most
        packed = its[first : first + k * (k + 1) // 2].copy()
        diagonal = np.cumsum(np.arange(1, k + 1)) - 1
        packed[diagonal] = 1 / packed[diagonal]
        return packed

    def renumber(self, source: np.ndarray) -> None:
        """Block j was block source[j], or is new for -1."""
        slot = np.full(len(source), -1)
        kept = np.flatnonzero(source >= 0)
        slot[kept] = self._slot[source[kept]]
        self._slot = slot
        held = np.flatnonzero(slot >= 0)
        self._owner[:] = -1
        self._owner[slot[held]] = held

    def release(self) -> None:
        """Keep nothing."""
        self._slot[:], self._owner[:] = -1, -1
        self._factors = np.zeros_like(self._factors)

    def make_room(self, blocks: np.ndarray) -> None:
        """Give each of these blocks a slot, as far as there are any. Others lose theirs only if
        there are no free ones."""
        new = blocks[self._slot[blocks] < 0]
        if len(new) == 0 or len(self._owner) == 0:
            return
        idle = np.ones(len(self._owner), dtype=bool)
        idle[self._slot[np.setdiff1d(blocks, new)]] = False
        idle = np.flatnonzero(idle)
        free_first = idle[np.argsort(self._owner[idle] >= 0, kind="stable")]
        slots = free_first[: len(new)]
        before = self._owner[slots]
        self._slot[before[before >= 0]] = -1
        self._owner[slots] = new[: len(slots)]
        self._slot[new[: len(slots)]] = slots
        self._factors[slots, 0] = -1.0
