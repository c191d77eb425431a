"""The expanded matrix on a device, such as a GPU: arrays that NumPy does not compute with.

The patterns are on the device too, as floating numbers where these fit into `cache_bytes`, else as
octets, of which rows are unpacked there as a product needs them: 32 or 64 times fewer numbers, and
none of them crosses the bus again. Devices work on larger pieces at a time than processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from cvxnn import budget
from cvxnn.arrays import Array, like, on_device
from cvxnn.operators.dense import ExpandedMatrix
from cvxnn.threads import cached_property

_BLOCK = 2**26  # entries of D U held at a time
RATE = 2e12  # operations of a device in a second, at least: pieces of work are cut by it
OCTET = 8  # rows in a byte


class DeviceMatrix(ExpandedMatrix):
    """[D_1 X ... D_p X] for an array X of any library but NumPy, on any device."""

    @cached_property
    def _octets(self) -> Array:
        """The patterns with eight rows in a byte, the first one highest: (ceil(n/8), p)."""
        return like(self.X, self.bits.octets(), self._xp.uint8)

    def _mask_rows(self, rows: slice) -> Array:
        xp = self._xp
        octets = self._octets[rows.start // OCTET : -(-rows.stop // OCTET), :]
        place = like(self.X, np.arange(OCTET - 1, -1, -1, dtype=np.uint8), xp.uint8)
        bits = xp.bitwise_right_shift(octets[:, None, :], place[None, :, None]) % 2
        mask = xp.reshape(bits, (OCTET * octets.shape[0], octets.shape[1]))
        return xp.astype(mask[: rows.stop - rows.start, :], self.X.dtype).T

    def _row_blocks(self, C: int) -> Iterator[slice]:
        width = self.d * C + (self.p if self._float_mask is None else 0)
        rate = budget.RATE if on_device(self.X) == "cpu" else RATE
        moment = budget.PIECE * rate / max(1, 2 * self.p * self.d * C)
        size = min(_BLOCK // width, int(moment)) // OCTET * OCTET  # whole octets
        return budget.pieces(self.n, max(size, OCTET))

    def select(self, patterns: np.ndarray, dtype: DTypeLike | None = None) -> Self:
        chosen = super().select(patterns, dtype)
        chosen.__dict__.pop("_octets", None)
        return chosen
