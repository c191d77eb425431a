"""Bounds of prices by trees of cones, checked leaf by leaf.

What is claimed of theta on the rows x_i is that max sum_i t_i (x_i u)_+ over ||u|| <= 1 is at most
A, for t = theta and t = -theta. With any doubles Q and z_i,

    sum_i t_i (x_i u)_+  <=  sum_i t_i (z_i Q'u)_+ + sum_i |t_i| ||x_i - Q z_i||,

so it is enough that sum_i t_i (z_i v)_+ <= T ||v|| for T = (A - sum |t_i| ||x_i - Q z_i||) / ||Q||
and all v. The tree covers these v with cones, in whole numbers (`trees.py`); each leaf is proven on
its own (`leaves.py`), and where that does not succeed it is bisected a few more times. Nothing here
comes from the search: the bytes of the tree and the matrix Q are all that is taken from it, and
both are free to be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from cvxnn.rounding import UNIT, down, slack, tree_sum, up
from cvxnn.verification.leaves import Rows, prove, roundings
from cvxnn.verification.trees import RefusedError, Tree, edge_ends, middles

LEAVES, PRODUCTS = 16384, 2**22  # of a piece that is proven at a time: leaves, and leaves x rows
FURTHER = 60  # bisections below a leaf, at most
MORE = 64  # leaves that bisections of one leaf may end in, on average over a piece
NESTED = 60  # pieces in each other on which rows are decided again
_TINY = 2.0**-600  # more than underflow costs a row; thresholds are between 1 and 2, or refused


class OutOfTimeError(Exception):
    """The check did not end in the time that it was given."""


@dataclass(eq=False)
class Progress:
    """How far a check is.

    leaves, further : those of the trees that are proven, and those that bisections have ended in.
    n_leaves : of all trees.
    """

    max_seconds: float = math.inf
    report: Callable[[Progress], object] | None = None
    leaves: int = 0
    further: int = 0
    n_leaves: int = 0
    started: float = field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        return perf_counter() - self.started

    def tell(self, leaves: int, further: int) -> None:
        self.leaves += leaves
        self.further += further
        if self.report is not None:
            self.report(self)
        if self.seconds > self.max_seconds:
            raise OutOfTimeError(f"not finished after {self.seconds:.1f} s")


def check_price(
    X: np.ndarray,
    t: np.ndarray,
    above: float,
    data: bytes | None,
    Q: np.ndarray | None,
    progress: Progress,
) -> None:
    """Confirm that max sum_i t_i (x_i u)_+ over ||u|| <= 1 is at most `above`, or raise
    `RefusedError` with the reason. Without a tree the orthants are bisected as often as needed."""
    if not (np.isfinite(X).all() and np.isfinite(t).all()):
        raise RefusedError("data and dual point have to be finite")
    if math.isnan(above) or above < 0:
        raise RefusedError(f"a price of at most {above} is impossible")
    if above == math.inf:
        raise RefusedError("nothing is claimed about the price")
    given = _Given.of(X, t, above, Q)
    if given.trivial:
        return
    tree = Tree.whole(given.rows.shape[1]) if data is None else Tree.of(data)
    if tree.rank != given.rows.shape[1]:
        raise RefusedError(
            f"the tree has {tree.rank} dimensions, the rows have {given.rows.shape[1]}"
        )
    if not given.threshold > 2.0**-200:
        raise RefusedError("the coordinates of the tree lose more than the price that is claimed")
    for piece in _pieces(tree, given):
        piece.prove(tree, given.threshold, progress, own=data is None)


@dataclass(frozen=True, eq=False)
class _Given:
    """sum_i (z_i v)_+ over the positive rows, less that over the negative ones; the rows are times
    |t_i|, in units in which the threshold is between 1 and 2.

    trivial : whether a sum of norms is below the threshold.
    """

    rows: np.ndarray
    positive: np.ndarray
    threshold: float
    trivial: bool
    total: float

    @classmethod
    @np.errstate(all="ignore")
    def of(cls, X: np.ndarray, t: np.ndarray, above: float, Q: np.ndarray | None) -> _Given:
        used = (t != 0) & np.any(X != 0, axis=1)
        X, t = X[used], t[used]
        units = np.frexp(np.max(np.abs(X), axis=1, initial=0.0))[1].astype(np.int64)
        X = _times_two_to(X, -units)
        weight, exponents = np.frexp(t)
        exponents = exponents + units  # |t_i| x_i = |weight| X 2^exponent, entries of X up to 1
        fraction, base = math.frexp(above) if above > 0 else (0.0, 0)
        # in units of 2^unit, the claim is between 1 and 2, or zero, or far below the rows
        unit = base - 1 if above > 0 else int(np.max(exponents, initial=0))
        unit = max(unit, int(np.max(exponents, initial=-(10**6))) - 400)
        claim = float(np.ldexp(2 * fraction, max(base - 1 - unit, -3000))) if above > 0 else 0.0
        scale = np.ldexp(np.abs(weight), np.maximum(exponents - unit, -3000))
        X, weights, lost = _merged(X, np.copysign(scale, t))
        scale, positive = np.abs(weights), weights > 0
        n, norm, Z = len(X), 1.0, X
        if Q is not None:
            if Q.ndim != 2 or Q.shape[0] != X.shape[1] or not np.isfinite(Q).all():
                raise RefusedError("the coordinates of the tree do not fit the data")
            Z = X @ Q
            norm = norm_above(Q)
            lost = up(lost + float(scale @ distances(X, Z, Q)), n + 3)
        rows = Z * scale[:, None]
        sizes = up(np.sqrt(np.sum(rows * rows, axis=1)), rows.shape[1] + 5) + _TINY
        total = up(float(tree_sum(sizes)), 80)
        threshold = down((claim - lost) / norm, 4) - _TINY * (n + 1) if claim > lost else -1.0
        trivial = not np.any(t > 0) or up(float(tree_sum(sizes[positive])), 80) <= threshold
        return cls(rows, positive, threshold, trivial, total)


def _merged(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows that are all different, with entries up to 1, the sums of their weights, and more than
    the rounding of these sums can change the price."""
    rows, group = np.unique(X + 0.0, axis=0, return_inverse=True)
    if len(rows) == len(X):
        return X, weights, 0.0
    group = group.reshape(-1)
    sums, counts = np.bincount(group, weights), np.bincount(group)
    sizes = up(np.bincount(group, np.abs(weights)), len(X))
    lost = np.where(counts > 1, 1.01 * (counts + 4) * UNIT, 0.0) * sizes
    kept = sums != 0
    return rows[kept], sums[kept], up(float(lost.sum()) * math.sqrt(X.shape[1]), len(X) + 6)


def _times_two_to(X: np.ndarray, powers: np.ndarray) -> np.ndarray:
    half = powers // 2  # in two steps, as a power alone may overflow
    return np.ldexp(np.ldexp(X, half[:, None]), (powers - half)[:, None])


def norm_above(Q: np.ndarray) -> float:
    """Above ||Q||, by the largest sum of a row of |Q'Q|."""
    d, r = Q.shape
    products = np.abs(Q.T @ Q) + slack(d + 2) * (np.abs(Q).T @ np.abs(Q)) + _TINY
    return max(up(math.sqrt(float(products.sum(axis=1).max())), d + r + 8), 1e-300)


def distances(X: np.ndarray, Z: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Above ||x_i - Q z_i||: (n,)."""
    d, r = Q.shape
    terms = np.abs(X) + np.abs(Z) @ np.abs(Q).T
    gaps = np.abs(X - Z @ Q.T) + slack(r + 3) * terms
    return up(np.sqrt(np.sum(gaps * gaps, axis=1)), d + r + 8) + 2.0**-500


@dataclass(eq=False)
class _Piece:
    """A part of the tree: nodes start..stop, below a cone of these vertices."""

    start: int
    stop: int
    vertices: np.ndarray
    rows: Rows
    depth: int = 0

    def n_leaves(self, tree: Tree) -> int:
        return int(tree.leaves[self.stop] - tree.leaves[self.start])

    def is_small(self, tree: Tree) -> bool:
        leaves = self.n_leaves(tree)
        return leaves == 1 or (leaves <= LEAVES and leaves * (self.rows.n_open + 1) <= PRODUCTS)

    def halves(self, tree: Tree) -> tuple[_Piece, _Piece]:
        a, b = edge_ends(tree.rank)[tree.edges[self.start]]
        middle = middles(self.vertices[[a]], self.vertices[[b]])[0]
        first, other = self.vertices.copy(), self.vertices.copy()
        first[a], other[b] = middle, middle
        cut, rows = int(tree.second[self.start]), [self.rows, self.rows]
        if self.depth < NESTED:  # each time is one more rounding of the linear part
            rows = [decided(self.rows, half) for half in (first, other)]
        return (
            _Piece(self.start + 1, cut, first, rows[0], self.depth + 1),
            _Piece(cut, self.stop, other, rows[1], self.depth + 1),
        )

    def prove(self, tree: Tree, threshold: float, progress: Progress, own: bool) -> None:
        """Prove the leaves, or raise `RefusedError` about the first that is not."""
        table, corners, nodes = self._walk(tree)
        scaled = _unit(table)
        b = self.rows.at(scaled)[0]
        done = prove(scaled[corners], b[corners], self.rows, threshold)
        first = int(np.min(nodes[~done], initial=2**62))
        further = 0
        if not done.all():
            room = MORE * len(nodes) if not own else 2**62
            further = self._bisect(table, corners[~done], threshold, room, progress)
            if further < 0:
                leaf = int(tree.leaves[first]) + 1
                reason = (
                    f"leaf {leaf:,} of {tree.n_leaves:,} is not proven"
                    if not own
                    else ("no proof was found")
                )
                raise RefusedError(reason)
        progress.tell(len(nodes), further)

    def _walk(self, tree: Tree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All vertices (k, r), and of each leaf its corners (L, r) among them and its node (L,)."""
        ends, r = edge_ends(tree.rank), tree.rank
        tables = [self.vertices]
        corners, nodes = np.arange(r)[None], np.array([self.start])
        leaf_corners, leaf_nodes, count = [], [], r
        while len(nodes):
            split = tree.splits[nodes]
            leaf_corners.append(corners[~split])
            leaf_nodes.append(nodes[~split])
            nodes, corners = nodes[split], corners[split]
            if not len(nodes):
                break
            table = np.concatenate(tables) if len(tables) > 1 else tables[0]
            tables = [table]
            at = ends[tree.edges[nodes]]
            line = np.arange(len(nodes))
            new = middles(table[corners[line, at[:, 0]]], table[corners[line, at[:, 1]]])
            tables.append(new)
            corners = _replaced(corners, at, count)
            nodes = np.concatenate([nodes + 1, tree.second[nodes]])
            count += len(new)
        return np.concatenate(tables), np.concatenate(leaf_corners), np.concatenate(leaf_nodes)

    def _bisect(
        self,
        table: np.ndarray,
        corners: np.ndarray,
        threshold: float,
        room: int,
        progress: Progress,
    ) -> int:
        """Bisect cones at their longest edges until all are proven: how many there are in the end,
        or -1 where they are too many, too small, or one has a direction above the threshold."""
        r = table.shape[1]
        ends, count = edge_ends(r), 0
        for _ in range(FURTHER * r):
            used, places = np.unique(corners, return_inverse=True)
            table, corners = table[used], places.reshape(corners.shape)
            V = _unit(table)[corners]
            V = V / np.linalg.norm(V, axis=2, keepdims=True)
            if not len(ends) or self._exceeds(V.mean(axis=1), threshold):
                return -1
            cosines = np.einsum("lei,lei->le", V[:, ends[:, 0]], V[:, ends[:, 1]])
            at = ends[np.argmin(cosines, axis=1)]
            line = np.arange(len(corners))
            try:
                new = middles(table[corners[line, at[:, 0]]], table[corners[line, at[:, 1]]])
            except RefusedError:
                return -1
            corners = _replaced(corners, at, len(table))
            table = np.concatenate([table, new])
            scaled = _unit(table)
            b = self.rows.at(scaled)[0]
            done = prove(scaled[corners], b[corners], self.rows, threshold)
            count += int(done.sum())
            corners = corners[~done]
            if not len(corners):
                return count
            if count + len(corners) > room:
                return -1
            progress.tell(0, 0)
        return -1

    def _exceeds(self, U: np.ndarray, threshold: float) -> bool:
        """Whether a direction is surely above the threshold."""
        U = U / np.linalg.norm(U, axis=1, keepdims=True)
        b, minus = self.rows.at(U)
        return bool(np.any(b - minus > threshold + 4 * self.rows.error))


def _replaced(corners: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """The corners of the first halves, and of the second ones; new vertices are numbered from
    `count` on."""
    line = np.arange(len(corners))
    first, other = corners.copy(), corners.copy()
    first[line, at[:, 0]] = count + line
    other[line, at[:, 1]] = count + line
    return np.concatenate([first, other])


def _unit(table: np.ndarray) -> np.ndarray:
    """Vertices as doubles, over powers of 2: exactly, with a largest entry between 1/2 and 1."""
    exponents = np.frexp(np.abs(table).max(axis=1).astype(np.float64))[1]
    return np.ldexp(table.astype(np.float64), -exponents[:, None])


def _pieces(tree: Tree, given: _Given) -> Iterator[_Piece]:
    """Pieces of the tree that are small enough, in the order of their nodes."""
    whole = _whole_rows(given, tree.rank)
    for number in range(2**tree.rank):
        vertices = tree.orthant(number)
        start, stop = int(tree.roots[number]), int(tree.roots[number + 1])
        waiting = [_Piece(start, stop, vertices, decided(whole, vertices))]
        while waiting:
            piece = waiting.pop()
            if piece.is_small(tree):
                yield piece
            else:
                waiting.extend(reversed(piece.halves(tree)))


def _whole_rows(given: _Given, rank: int) -> Rows:
    """All rows, none of which is decided."""
    error = up(slack(roundings(len(given.rows), rank)) * given.total, 2) + _TINY
    return Rows(given.rows[given.positive], given.rows[~given.positive], np.zeros(rank), error)


def decided(rows: Rows, vertices: np.ndarray) -> Rows:
    """The rows on a cone (r, r): those that are positive at all vertices join the linear part,
    those that are negative at all are zero there."""
    V = _unit(vertices)
    linear, parts = rows.linear, []
    for part, sign in ((rows.positive, 1.0), (rows.negative, -1.0)):
        heights = part @ V.T
        doubt = slack(len(V) + 3) * (np.abs(part) @ np.abs(V).T) + _TINY
        on, off = np.all(heights > doubt, axis=1), np.all(heights < -doubt, axis=1)
        if on.any():
            linear = linear + sign * tree_sum(part[on], axis=0)
        parts.append(part[~(on | off)])
    return Rows(parts[0], parts[1], linear, rows.error)
