"""The 0/1 matrix of the patterns as bits: the one form in which patterns are kept.

A boolean mask (n, p) takes eight times as much memory, floating numbers up to 64 times. Booleans
are made of some rows or some patterns at a time, where they are needed. Products with the bits are
made by table look-up (products.c).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from cvxnn.arrays import Array, blocks
from cvxnn.kernels import native
from cvxnn.ranks import ALONE, Ranks
from cvxnn.threads import cached_property

WORD = 32  # bits of a word
_BLOCK = 2**20  # entries that are unpacked at a time

_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)), bitorder="little")

Chosen = slice | np.ndarray | Sequence[int]  # rows or patterns, by number


class Bits:
    """A 0/1 matrix (n, p), for products with NumPy arrays of either precision. `rows` (ceil(n/32),
    p) holds 32 rows in a word, `columns` (ceil(p/32), n) holds 32 columns. Bits of rows beyond n
    are zero."""

    def __init__(self, rows: np.ndarray, n: int) -> None:
        self.rows, self.n = rows, n
        self._active: tuple[bytes, Bits] | None = None

    @classmethod
    def of(cls, mask: np.ndarray | Bits) -> Bits:
        """Those of a boolean mask; bits are handed on."""
        if isinstance(mask, Bits):
            return mask
        return cls(_packed(np.asarray(mask, dtype=np.bool_)), mask.shape[0])

    @classmethod
    def empty(cls, n: int, p: int) -> Bits:
        """To be filled by `put`."""
        return cls(np.zeros((-(-n // WORD), p), dtype=np.uint32), n)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.rows.shape[1]

    @cached_property
    def columns(self) -> np.ndarray:
        return native.transpose_bits(self.rows, self.n)

    def put(self, mask: np.ndarray, rows: slice, patterns: slice = slice(None)) -> None:
        """Set these rows, which begin with a whole word, and end with one or with the last row."""
        self.rows[rows.start // WORD : -(-rows.stop // WORD), patterns] = _packed(mask)

    def of_rows(self, rows: slice) -> Bits:
        """The bits of some rows, which begin with a whole word."""
        return Bits(self.rows[rows.start // WORD : -(-rows.stop // WORD)], rows.stop - rows.start)

    def select(self, patterns: np.ndarray) -> Bits:
        return Bits(self.rows.take(patterns, axis=1), self.n)

    def join(self, other: Bits) -> Bits:
        """The patterns of both, on the same rows."""
        return Bits(np.concatenate([self.rows, other.rows], axis=1), self.n)

    def mask(self, rows: Chosen = slice(None)) -> np.ndarray:
        """These rows as booleans: (rows, p)."""
        index = np.arange(self.n)[rows]
        mask = np.empty((len(index), self.rows.shape[1]), dtype=np.bool_)
        for part in blocks(len(index), _BLOCK // max(1, mask.shape[1])):
            place = index[part]
            shifted = self.rows[place // WORD] >> (place % WORD).astype(np.uint32)[:, None]
            mask[part] = shifted & 1
        return mask

    def octets(self) -> np.ndarray:
        """Eight rows in a byte, the first one highest, as files have them: (ceil(n/8), p)."""
        words, p = self.rows.astype("<u4")[:, :, None].view(np.uint8), self.rows.shape[1]
        octets = words.transpose(0, 2, 1).reshape(-1, p)[: -(-self.n // 8)]
        return _REVERSED[octets]

    @classmethod
    def of_octets(cls, octets: np.ndarray, n: int) -> Bits:
        """The bits of `octets`, by NumPy alone: they come from files."""
        rows = _words(_REVERSED[octets])
        if n % WORD:
            rows[-1] &= np.uint32(2 ** (n % WORD) - 1)
        return cls(rows, n)

    def by_pattern(self, patterns: Chosen = slice(None)) -> np.ndarray:
        """These patterns as booleans, with the rows of a pattern side by side: (patterns, n)."""
        words = np.ascontiguousarray(self.rows[:, patterns].T, dtype="<u4")
        bits = np.unpackbits(words.view(np.uint8), axis=1, count=self.n, bitorder="little")
        return bits.view(np.bool_)

    def used_rows(self) -> np.ndarray:
        """Where some pattern is on: (n,) booleans."""
        return Bits(np.bitwise_or.reduce(self.rows, axis=1)[:, None], self.n).by_pattern()[0]

    def keys(self) -> list[bytes]:
        """One key for each pattern: equal patterns of the same rows have equal keys."""
        return [
            hashlib.sha256(words.tobytes()).digest()
            for part in blocks(self.rows.shape[1], WORD)
            for words in np.ascontiguousarray(self.rows[:, part].T)
        ]

    def distinct(self, across: Ranks = ALONE) -> tuple[np.ndarray, np.ndarray]:
        """First occurrences of the distinct non-zero patterns, in order, and for each pattern the
        position of its equal among them (-1 for the zero pattern), over the rows of all ranks."""
        zero, *keys = Bits.empty(self.n, 1).keys() + self.keys()
        if across.size > 1:
            parts = across.gather([zero, *keys])
            zero, *keys = (b"".join(of_ranks) for of_ranks in zip(*parts, strict=True))
        first: dict[bytes, int] = {zero: -1}
        keep: list[int] = []
        position = np.empty(self.rows.shape[1], dtype=int)
        for i, key in enumerate(keys):
            if key not in first:
                first[key] = len(keep)
                keep.append(i)
            position[i] = first[key]
        return np.asarray(keep, dtype=int), position

    def forward(self, X: np.ndarray, U: Array) -> np.ndarray:
        """Zero blocks are left out where they are the majority. The bits that remain are kept for
        the next product: late in a solve the active set hardly moves."""
        U = np.ascontiguousarray(U, dtype=X.dtype)
        active = native.nonzero_blocks(U)
        if 2 * len(active) > len(U):
            return native.expanded_forward(self.columns, X, U)
        key, kept = active.tobytes(), self._active  # another thread may set the next one
        if kept is None or key != kept[0]:
            self._active = kept = key, self.select(active)
        return native.expanded_forward(kept[1].columns, X, U[active])

    def adjoint(self, X: np.ndarray, R: Array) -> np.ndarray:
        return native.expanded_adjoint(self.rows, X, np.asarray(R))


def _packed(mask: np.ndarray) -> np.ndarray:
    """A mask (n, p) in words of 32 rows."""
    if native.library() is not None:
        return native.pack_bits(mask)
    return _words(np.packbits(mask, axis=0, bitorder="little"))


def _words(octets: np.ndarray) -> np.ndarray:
    """Bytes of eight rows (ceil(n/8), p), the first row lowest, as words of 32 rows."""
    p = octets.shape[1]
    filled = np.zeros((-(-len(octets) // 4) * 4, p), dtype=np.uint8)
    filled[: len(octets)] = octets
    words = np.ascontiguousarray(filled.reshape(-1, 4, p).transpose(0, 2, 1))
    return words.view("<u4")[:, :, 0].astype(np.uint32)
