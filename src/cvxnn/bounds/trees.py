"""The saved proof of branch and bound: a tree of cones that covers all directions.

What is proven. For rows z_i of r numbers and weights t_i,

    F(u) = sum_i t_i (z_i u)_+  <=  threshold ||u||     for all u in R^r.

F is positively homogeneous, so it is enough to prove that in each of finitely many cones that cover
R^r. A cone is the set of all sum_j alpha_j v_j, alpha >= 0, for r vertices v_0 ... v_{r-1}, vectors
of r whole numbers.

The cones. The tree starts with the 2^r orthants: in orthant number o the vertex v_j has a single
entry that is not zero, in place j: -1 where bit j of o (of value 2^j) is set, and 1 otherwise. A
node is a leaf or is split at an edge {a, b}, a < b. Its two halves have the same vertices, in the
same order, except that the first has the middle of the edge in place of v_a, and the second has it
in place of v_b. As the middle is a positive combination of v_a and v_b, both halves together cover
the cone exactly.

The middle of an edge. Let A and B be the sums of squares of the entries of v_a and v_b, and k the
only integer, of any sign, with 4^k A < 2 B and B <= 2 4^k A. Then

    middle = (2^k v_a + v_b) / 2^m   for k >= 0,   (v_a + 2^-k v_b) / 2^m   for k < 0,

with the largest m for which all entries are whole. All entries in a tree are at most 2^53 in
absolute value, so doubles hold them.

The numbers of edges: {0,1}, {0,2} ... {0,r-1}, {1,2} ... {r-2,r-1} are 0, 1, 2 ...

The order of nodes: orthants in the order of their numbers, and below each a node, then the whole
tree of its first half, then that of its second half.

The bytes: "CNT1"; r in one byte; the number of nodes N and the number of splits S, 8 bytes each,
lowest byte first; N bits, a node each in the order above, 1 for a split and 0 for a leaf; S numbers
of edges in the same order, of as many bits as r (r - 1)/2 - 1 needs, highest bit first (none for
r <= 2). Bits fill bytes from the highest bit on, both lists begin with a new byte, and the last
byte of each is filled up with zeros.

How a leaf can be checked. On a cone with vertices v_j, for any numbers s_i in [0, 1],

    F(sum_j alpha_j v_j)  <=  sum_j alpha_j y_j,
    y_j = sum_{t_i > 0} t_i (z_i v_j)_+ + sum_{t_i < 0} s_i t_i (z_i v_j):

the first sum is convex and homogeneous in u, hence at most its interpolation between the vertices,
and the second is linear in u and no less than that of the terms, as -(x)_+ <= -s x. So the leaf is
proven by any vector w with w v_j >= y_j for all j and ||w|| <= threshold. The best s are 1 where
z_i w > 0 and 0 where z_i w < 0; only rows with z_i w = 0 need others. In a leaf such s and w are
known to exist with room to spare: the search has found them for a threshold that is smaller by
`ROOM` of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 8  # coordinates
LEAF = 255
ROOM = 2.0**-30  # of the threshold
_MAGIC = b"CNT1"


def n_edges(r: int) -> int:
    return r * (r - 1) // 2


def _edge_bits(r: int) -> int:
    return max(n_edges(r) - 1, 0).bit_length()


@dataclass(frozen=True, eq=False)
class ConeTree:
    """A tree of cones in r dimensions, as the module describes it.

    rank : r.
    nodes : (N,), uint8, in order: the number of the edge of a split, or `LEAF`.
    """

    rank: int
    nodes: np.ndarray

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= MOST:
            raise ValueError(f"a tree of cones has 1 to {MOST} dimensions, not {self.rank}")
        splits = self.nodes != LEAF
        if np.any(self.nodes[splits] >= n_edges(self.rank)):
            raise ValueError("a tree of cones splits an edge that does not exist")
        missing = 2**self.rank + np.cumsum(np.where(splits, 1, -1))  # trees after each node
        if len(missing) == 0 or missing[-1] != 0 or np.any(missing[:-1] <= 0):
            raise ValueError("a tree of cones has to have one tree for each orthant")

    @property
    def n_leaves(self) -> int:
        return int(np.count_nonzero(self.nodes == LEAF))

    @property
    def n_bytes(self) -> int:
        N, S = len(self.nodes), len(self.nodes) - self.n_leaves
        return len(_MAGIC) + 17 + -(-N // 8) + -(-S * _edge_bits(self.rank) // 8)

    def to_bytes(self) -> bytes:
        splits = self.nodes != LEAF
        edges, bits = self.nodes[splits], _edge_bits(self.rank)
        shifts = np.arange(bits - 1, -1, -1, dtype=np.uint8)
        sizes = len(self.nodes).to_bytes(8, "little") + len(edges).to_bytes(8, "little")
        return b"".join(
            [
                _MAGIC,
                bytes([self.rank]),
                sizes,
                np.packbits(splits).tobytes(),
                np.packbits(edges[:, None] >> shifts & 1).tobytes(),
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> ConeTree:
        start = len(_MAGIC) + 17
        if len(data) < start or data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("these bytes are not a tree of cones")
        rank = data[len(_MAGIC)]
        if not 1 <= rank <= MOST:
            raise ValueError(f"a tree of cones has 1 to {MOST} dimensions, not {rank}")
        N = int.from_bytes(data[start - 16 : start - 8], "little")
        S = int.from_bytes(data[start - 8 : start], "little")
        bits, middle = _edge_bits(rank), start + -(-N // 8)
        if S > N or len(data) != middle + -(-S * bits // 8):
            raise ValueError("a tree of cones is cut off, or has bytes too many")
        splits = _unpacked(data[start:middle], N).astype(bool)
        if np.count_nonzero(splits) != S:
            raise ValueError("a tree of cones has another number of splits than it says")
        digits = _unpacked(data[middle:], S * bits).reshape(S, bits)
        powers = 1 << np.arange(bits - 1, -1, -1)
        nodes = np.full(N, LEAF, dtype=np.uint8)
        nodes[splits] = digits @ powers
        return cls(rank, nodes)


def _unpacked(data: bytes, n: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if np.any(bits[n:]):
        raise ValueError("a tree of cones does not end with zeros")
    return bits[:n]
