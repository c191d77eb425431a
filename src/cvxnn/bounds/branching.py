"""Branch and bound over cones: proofs of prices where rows span few dimensions.

A tree of cones covers all directions (trees.py). In a cone, the price is at most the norm of any
vector w with w v_j >= y_j at its vertices v_j, where y depends on the rows and on multipliers. The
kernel finds good multipliers (kernels/branching.c) and splits cones whose bound is too large. Three
things make it a proof in floating-point numbers.

The cover. Vertices are whole numbers, and the middle of an edge is exact, so nothing falls between
two halves.

The bound of a cone. With F(u) = sum_i t_i (z_i u)_+, T = sum_i |t_i| ||z_i|| and exact y as in
trees.py, computed numbers are within e_j T of y_j, where e_j counts roundings: each product and
each term of a sum is at most |t_i| ||z_i|| ||v_j||, so k roundings cost at most 1.01 k u ||v_j|| T.
A product with a new vertex comes from those with the two ends, and so does its error, plus one
rounding. That rows are found to have one sign in a cone needs no proof: if t_i > 0, then
t_i (z_i v_j)_+ is at most the computed positive part plus its error, whichever way the row was
sorted in, and stays so for all positive combinations; if t_i < 0, then s_i = 1 and s_i = 0 are
allowed for any row. Multipliers are shares of sets of rows, s_i = sum of the shares of those that
row i is in, scaled down by a few roundings so that their exact sum is at most 1.

Let w be any doubles, and x the largest (y_j + e_j T - w v_j) / ||v_j|| with all errors added, or 0.
The unit vectors c_j along v_j are in one orthant, so c = sum_j c_j has c v_j >= ||v_j||. Hence
w + x c is above y + e T at all vertices, and F <= ||w|| + x r in the cone: no matrix is inverted
for the proof, and w may come from any computation.

The scale. Rows and weights are scaled by powers of 2, so nothing overflows, and what underflows is
counted (coordinates.py).

Stages. Thresholds come down to the goal by a factor in their distance from it. A stage splits what
is above its threshold and leaves the rest for the next ones. Every node keeps the best bound proven
about it, so the tree proves something at any time. Work is cut into starting cones and counted in
nodes, so results do not depend on threads or on the clock, unless the time is up.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from cvxnn import threads
from cvxnn.bounds import growing
from cvxnn.bounds.base import Goal, Neurons, PriceBound, TimedMethod, proven_scope
from cvxnn.bounds.coordinates import Coordinates, Weighted
from cvxnn.bounds.evidence import Evidence
from cvxnn.bounds.growing import FOUND, FULL, NO_MEMORY, PAUSED, PROVEN, STUCK, Limits, Nodes
from cvxnn.bounds.trees import LEAF, MOST, ROOM, ConeTree
from cvxnn.budget import OutOfTimeError, spend
from cvxnn.kernels import native
from cvxnn.rounding import UNIT, up

STARTS = 256  # cones that work is cut into, about
AT_ONCE = 16  # of them between two looks at what was found
SLICE = 4096  # nodes of a cone in one go
SHRINK = 0.03  # of the distance from the goal, from stage to stage
NODE_RATE, TWIN_RATE = 1e5, 1e3  # nodes that one thread bounds in a second, compiled or not
ENTRY_RATE = 1e9  # entries of rows that it sorts
NODE_BYTES = 21
MANY = 32  # directions handed over
LARGE = 1e300  # a threshold that every bound is below, but not what is unknown


@dataclass(frozen=True)
class Branching(TimedMethod):
    """Bounds on prices by a tree of cones, a `PriceMethod`.

    max_rank : dimensions that rows may span, at most 8.
    max_bytes : of memory for the nodes of all trees; beyond it the search ends.
    """

    max_rank: int = 7
    max_bytes: int = 2**30

    def __post_init__(self) -> None:
        if not 1 <= self.max_rank <= MOST:
            raise ValueError(f"max_rank must be between 1 and {MOST}, got {self.max_rank!r}")

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        return bool(np.all(np.isfinite(X))) and Coordinates.of(X, self.max_rank) is not None

    def _bound(self, X: np.ndarray, Theta: np.ndarray, goal: Goal) -> PriceBound:
        """The evidence is the trees and their coordinates."""
        lam = goal.lam
        usable = bool(np.all(np.isfinite(X)) and np.all(np.isfinite(Theta)))
        coordinates = Coordinates.of(X, self.max_rank) if usable and 0 < lam < math.inf else None
        if coordinates is None:
            above = np.full(Theta.shape[1], math.inf)
            return PriceBound(above, proven_scope(math.inf), Neurons.none(X.shape[1]))
        search = Search(coordinates, Theta, lam, goal.tol, self.max_bytes)
        try:
            with spend(goal.clock):
                search.run()
        except OutOfTimeError:
            pass  # what is proven by now
        above = search.above()
        evidence = Evidence(search.trees(above), coordinates.Q)
        excess = up(float(np.max(above, initial=0.0)) / lam, 1) - 1.0
        return PriceBound(above, proven_scope(excess), search.neurons(X, Theta), evidence)


@dataclass(eq=False)
class Cone:
    """A starting cone, and the tree below it as arrays with an entry for each node.

    nodes : where the two halves of a split are, 0 for a leaf; the number of its edge; what is
        proven about the node itself; and the same with the help of its halves.
    best : the highest price met, and its direction.
    """

    vertices: np.ndarray
    nodes: Nodes = field(default_factory=lambda: _pool(16))
    count: np.ndarray = field(default_factory=lambda: np.ones(1, dtype=np.int64))
    best: np.ndarray = field(default_factory=lambda: np.zeros(1 + MOST))
    status: int = PAUSED

    @property
    def value(self) -> float:
        return float(self.nodes[3][0])

    @property
    def n_bytes(self) -> int:
        return NODE_BYTES * len(self.nodes[0])

    def grow(self) -> None:
        """Room for twice as many nodes."""
        pairs = zip(self.nodes, _pool(len(self.nodes[0])), strict=True)
        child, edge, bound, value = (np.concatenate(pair) for pair in pairs)
        self.nodes = child, edge, bound, value


def _pool(size: int) -> Nodes:
    unknown = np.full(size, math.inf)
    return np.zeros(size, np.int32), np.full(size, LEAF, np.uint8), unknown, unknown.copy()


class Side:
    """One class with one sign: its rows and its cones."""

    def __init__(self, weighted: Weighted) -> None:
        self.weighted, self.rank = weighted, weighted.rows.shape[1]
        order = np.argsort(weighted.weights < 0, kind="stable")  # positive weights first
        self.signs = np.sign(weighted.weights[order])
        self.rows = (weighted.rows * np.abs(weighted.weights)[:, None])[order]
        positive = _columns(self.rows[self.signs > 0])
        self.columns = np.hstack([positive, _columns(self.rows[self.signs < 0])])
        self.n_positive = positive.shape[1]
        first = _first_cones(self.rank)[0] if len(self.rows) else []
        self.cones = [Cone(cone * signs) for signs in _orthants(self.rank) for cone in first]
        # bounds cannot be much lower than their errors: more splits would be in vain
        self.floor = weighted.total * UNIT * (4 * len(self.rows) + 1024)

    @property
    def value(self) -> float:
        return max((cone.value for cone in self.cones), default=0.0)

    @property
    def price(self) -> float:
        """What is proven for X. Where all weights cancel, that is a multiple of what rounding may
        have lost, for a check that rounds in other places."""
        if self.cones:
            return self.weighted.above(self.value * (1 + ROOM))
        extra = self.weighted.extra
        return self.weighted.above(16 * extra) if extra > 0 else 0.0

    def limits(self, threshold: float, goal: float, found: float) -> Limits:
        """From prices on X."""
        low, goal = (min(max(self.weighted.below(x), self.floor), LARGE) for x in (threshold, goal))
        return Limits(self.weighted.total, low, goal, max(self.weighted.below(found), 0.0))

    def extend(self, cone: Cone, limits: Limits, max_bytes: int, stop: ctypes.c_int) -> None:
        """Up to `SLICE` more nodes of a cone."""
        tree = (limits, SLICE, cone.count)
        while True:
            if native.library() is not None:
                cone.status = native.branch_cone(
                    self.columns,
                    self.n_positive,
                    cone.vertices,
                    *tree,
                    cone.nodes,
                    cone.best,
                    stop,
                )
            else:
                cone.status = growing.branch_cone(
                    self.rows, self.signs, cone.vertices, *tree, cone.nodes, cone.best, stop
                )
            if cone.status != FULL or cone.n_bytes > max_bytes:
                return
            cone.grow()

    @property
    def seconds(self) -> float:
        """What `extend` may take."""
        rate = NODE_RATE if native.library() is not None else TWIN_RATE
        return SLICE * (1 / rate + self.rows.size / ENTRY_RATE)

    def tree(self, threshold: float) -> ConeTree:
        listing = growing if native.library() is None else native
        cones, parts = iter(self.cones), []
        for edge in _first_cones(self.rank)[1] * 2**self.rank:
            if edge != LEAF:
                parts.append(np.array([edge], dtype=np.uint8))
            else:
                parts.append(listing.list_cones(*next(cones).nodes[:3], threshold))
        return ConeTree(self.rank, np.concatenate(parts))


def _columns(rows: np.ndarray) -> np.ndarray:
    """Column by column, filled up with zeros to whole vectors."""
    n, r = rows.shape
    columns = np.zeros((r, -(-n // native.LANES) * native.LANES))
    columns[:, :n] = rows.T
    return columns


def _orthants(r: int) -> Iterator[np.ndarray]:
    for number in range(2**r):
        yield np.array([-1 if number >> j & 1 else 1 for j in range(r)], dtype=np.int64)


@cache
def _first_cones(r: int) -> tuple[list[np.ndarray], list[int]]:
    """The cones that the first orthant is cut into before work begins, at longest edges, and the
    nodes down to them in order. The other orthants are cut alike."""
    cones, nodes = [], []

    def cut(cone: np.ndarray, left: int) -> None:
        if left == 0:
            cones.append(cone)
            nodes.append(LEAF)
            return
        unit = cone / np.linalg.norm(cone, axis=1, keepdims=True)
        cosines = [round(float(unit[a] @ unit[b]), 9) for a, b in growing.edges(r)]
        nodes.append(int(np.argmin(cosines)))
        a, b = growing.edges(r)[nodes[-1]]
        new = growing.middle(cone[a], cone[b])
        for end in (a, b):
            half = cone.copy()
            half[end] = new
            cut(half, left - 1)

    cut(np.eye(r, dtype=np.int64), max(0, round(math.log2(STARTS)) - r) if r > 1 else 0)
    return cones, nodes


class Search:
    """All classes and signs, in stages of thresholds that come closer to the goal."""

    def __init__(
        self, coordinates: Coordinates, Theta: np.ndarray, lam: float, tol: float, max_bytes: int
    ) -> None:
        self.coordinates, self.lam, self.max_bytes = coordinates, lam, max_bytes
        self.limit = lam * (1 + tol)
        self.goal = self.limit * (1 - 2 * ROOM)
        self.pairs = [
            (Side(coordinates.weighted(theta)), Side(coordinates.weighted(-theta)))
            for theta in Theta.T
        ]

    @property
    def sides(self) -> list[Side]:
        return [side for pair in self.pairs for side in pair]

    @property
    def n_nodes(self) -> int:
        return sum(int(cone.count[0]) for side in self.sides for cone in side.cones)

    def run(self) -> None:
        """Until the goal, or something in the way of it. The first stage bounds every starting
        cone once."""
        threshold = math.inf
        while self._stage(threshold) and threshold > self.goal:
            over = SHRINK * (min(threshold, float(np.max(self.above()))) - self.goal)
            last = over <= 0.5 * (self.limit - self.lam) or over <= 1e-12 * self.lam
            threshold = self.goal if last else self.goal + over

    def above(self) -> np.ndarray:
        return np.array([max(side.price for side in pair) for pair in self.pairs])

    def trees(self, above: np.ndarray) -> tuple[tuple[bytes | None, bytes | None], ...]:
        """For each class the trees of theta and of -theta, each for the threshold that the bound of
        the class leaves it; None where no row has a weight, or nothing is proven."""

        def tree(side: Side, limit: float) -> bytes | None:
            if not side.cones or not limit < math.inf:
                return None
            threshold = max(side.value, side.weighted.below(limit) * (1 - 2 * ROOM))
            return side.tree(threshold).to_bytes()

        return tuple(
            (tree(plus, limit), tree(minus, limit))
            for (plus, minus), limit in zip(self.pairs, above.tolist(), strict=True)
        )

    def _stage(self, threshold: float) -> bool:
        """Whether everything is below the threshold, and nothing stands in the way of the next."""
        waiting = []
        found = self.limit if threshold < math.inf else math.inf
        for side in self.sides:
            limits = side.limits(threshold, self.goal, found)
            waiting += [(side, x, limits) for x in side.cones if not x.value <= limits.threshold]
        while waiting:
            for start in range(0, len(waiting), AT_ONCE):
                pieces = waiting[start : start + AT_ONCE]
                self._share(pieces)
                states = {cone.status for _, cone, _ in pieces}
                if NO_MEMORY in states:
                    raise MemoryError("no memory for the cones of branch and bound")
                if states & {FOUND, FULL, STUCK}:
                    return False
            waiting = [piece for piece in waiting if piece[1].status != PROVEN]
        return True

    def _share(self, pieces: list[tuple[Side, Cone, Limits]]) -> None:
        stop = ctypes.c_int(0)
        used = sum(cone.n_bytes for side in self.sides for cone in side.cones)
        each = (self.max_bytes - used) // AT_ONCE

        def run(piece: tuple[Side, Cone, Limits]) -> None:
            side, cone, limits = piece
            side.extend(cone, limits, each, stop)

        seconds = sum(side.seconds for side, _, _ in pieces)
        threads.share(run, pieces, seconds, lambda: setattr(stop, "value", 1), telling=False)

    def neurons(self, X: np.ndarray, Theta: np.ndarray) -> Neurons:
        """The best directions of the cones, the highest price first."""
        found = [
            (k, cone.best[1 : 1 + side.rank])
            for k, pair in enumerate(self.pairs)
            for side in pair
            for cone in side.cones
            if cone.best[0] > 0
        ]
        if not found:
            return Neurons.none(X.shape[1])
        classes = np.array([k for k, _ in found], dtype=np.intp)
        directions = self.coordinates.directions(np.array([u for _, u in found]))
        with np.errstate(over="ignore", invalid="ignore"):
            prices = np.sum(Theta[:, classes] * np.maximum(X @ directions.T, 0.0), axis=0)
        order = np.argsort(-np.abs(prices), kind="stable")[:MANY]
        return Neurons(directions[order], classes[order], prices[order])
