"""Saved trees of cones, read and walked in whole numbers.

The format is described in `bounds/trees.py`; this is a second reading of that description, which
shares no code with the first. A node is a leaf or is split at an edge; its first half comes right
after it, its second half after all nodes of the first. Let p_i be the number of trees that are
still to come before node i, itself included. A split adds one, a leaf takes one away, so that the
second half of node i is the next node with the same p, and an orthant begins wherever p is lower
than ever before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 8  # coordinates
LARGEST = 2**53  # entries of vertices
_SMALL = 2.0**24  # sums of squares of eight such entries are exact in doubles


class RefusedError(Exception):
    """The proof is not one; the message says why."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree that covers all directions of r dimensions.

    splits : (N,), whether a node is split.
    edges : (N,), the number of the edge of a split.
    second : (N,), where the second half of a split is.
    roots : (2^r + 1,), where the orthants begin, and N.
    leaves : (N + 1,), the leaves before each node.
    """

    rank: int
    splits: np.ndarray
    edges: np.ndarray
    second: np.ndarray
    roots: np.ndarray
    leaves: np.ndarray

    @property
    def n_leaves(self) -> int:
        return int(self.leaves[-1])

    @classmethod
    def of(cls, data: bytes) -> Tree:
        """The tree that these bytes describe; `RefusedError` where they describe none."""
        if data[:4] != b"CNT1" or len(data) < 21:
            raise RefusedError("the bytes are not those of a tree of cones")
        rank = data[4]
        if not 1 <= rank <= MOST:
            raise RefusedError(f"a tree of {rank} dimensions; there are 1 to {MOST}")
        n_nodes, n_splits = (int.from_bytes(data[k : k + 8], "little") for k in (5, 13))
        pairs = rank * (rank - 1) // 2
        width = (pairs - 1).bit_length() if pairs > 1 else 0
        cut = 21 + (n_nodes + 7) // 8
        if n_nodes >= 2**40 or len(data) != cut + (n_splits * width + 7) // 8:
            raise RefusedError("the tree of cones is cut off, or longer than it says")
        splits = _bits(data[21:cut], n_nodes).astype(bool)
        if int(splits.sum()) != n_splits:
            raise RefusedError("the tree of cones has another number of splits than it says")
        numbers = np.zeros(n_splits, dtype=np.int64)
        for digit in _bits(data[cut:], n_splits * width).reshape(n_splits, width).T:
            numbers = 2 * numbers + digit
        if np.any(numbers >= max(pairs, 1)) or (n_splits and not pairs):
            raise RefusedError("the tree of cones splits an edge that does not exist")
        edges = np.zeros(n_nodes, dtype=np.int8)
        edges[splits] = numbers
        return cls._laid_out(rank, splits, edges)

    @classmethod
    def whole(cls, rank: int) -> Tree:
        """The orthants alone."""
        nodes = np.zeros(2**rank, dtype=np.int8)
        return cls._laid_out(rank, nodes.astype(bool), nodes)

    @classmethod
    def _laid_out(cls, rank: int, splits: np.ndarray, edges: np.ndarray) -> Tree:
        N = len(splits)
        after = 2**rank + np.cumsum(np.where(splits, 1, -1))
        if N == 0 or after[-1] != 0 or np.any(after[:-1] <= 0):
            raise RefusedError("the tree of cones does not cover all directions")
        to_come = np.concatenate([[2**rank], after[:-1]])
        order = np.argsort(to_come, kind="stable")
        following = np.append(order[1:], N)
        second = np.empty(N, dtype=np.int64)
        second[order] = following
        lowest = np.minimum.accumulate(to_come)
        roots = np.concatenate([[0], 1 + np.flatnonzero(np.diff(lowest) < 0), [N]])
        leaves = np.concatenate([[0], np.cumsum(~splits)])
        return cls(rank, splits, edges, second, roots, leaves)

    def orthant(self, number: int) -> np.ndarray:
        """The vertices (r, r) of a root."""
        signs = [-1 if number & (1 << j) else 1 for j in range(self.rank)]
        return np.diag(signs).astype(np.int64)


def claimed_leaves(data: bytes | None) -> int:
    """The number of leaves that the head of a tree claims, for progress."""
    if data is None:
        return 0
    return int.from_bytes(data[5:13], "little") - int.from_bytes(data[13:21], "little")


def edge_ends(rank: int) -> np.ndarray:
    """The two ends of each edge: (r (r - 1)/2, 2)."""
    ends = [(a, b) for a in range(rank) for b in range(a + 1, rank)]
    return np.array(ends, dtype=np.int64).reshape(-1, 2)


def middles(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The middles of edges, (k, r) whole numbers each: 2^p v_a + v_b or v_a + 2^-p v_b with the p
    for which 4^p |v_a|^2 < 2 |v_b|^2 <= 4 4^p |v_a|^2, over the largest power of 2 there is in it.
    """
    powers = _powers(first, other)
    left, right = np.maximum(powers, 0), np.maximum(-powers, 0)
    size = np.ldexp(np.abs(first).max(axis=1).astype(float), left) + np.ldexp(
        np.abs(other).max(axis=1).astype(float), right
    )
    if np.any(size > LARGEST):
        raise RefusedError("a vertex of the tree has entries that are too large")
    total = (first << left[:, None]) + (other << right[:, None])
    bits = np.bitwise_or.reduce(np.abs(total), axis=1)
    if np.any(bits == 0):
        raise RefusedError("a cone of the tree is flat")
    return total // (bits & -bits)[:, None]


def _powers(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """p of each edge: |v_b|^2 is above 2^(2p - 1) |v_a|^2, and at most four times that."""
    a, b = first.astype(float), other.astype(float)
    A, B = np.sum(a * a, axis=1), np.sum(b * b, axis=1)
    exponents = np.frexp(B)[1] - np.frexp(A)[1]
    powers = (exponents + 1) // 2
    # the quotient is within a factor of 2 of 2^exponent, so that p is one off at most
    powers += np.where(np.ldexp(A, 2 * powers + 1) < B, 1, 0)
    powers -= np.where(np.ldexp(A, 2 * powers - 1) >= B, 1, 0)
    large = np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1)) > _SMALL
    for k in np.flatnonzero(large):  # where sums of squares may round
        powers[k] = _exact_power([int(x) for x in first[k]], [int(x) for x in other[k]])
    return powers


def _exact_power(a: list[int], b: list[int]) -> int:
    A, B = sum(x * x for x in a), sum(x * x for x in b)
    p = (B.bit_length() - A.bit_length() + 1) // 2 - 2
    while B << max(1 - 2 * p, 0) > 4 * A << max(2 * p - 1, 0):
        p += 1
    return p


def _bits(data: bytes, n: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bits[n:].any():
        raise RefusedError("the tree of cones does not end with zeros")
    return bits[:n]
