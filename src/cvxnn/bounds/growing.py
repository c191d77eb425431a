"""The tree below one cone, grown in NumPy: the slow twin of kernels/branching.c, with the same
arguments and the same kind of bounds. It splits longest edges, and computes the products of rows
and vertices anew in every cone."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from cvxnn.bounds.trees import LEAF
from cvxnn.rounding import UNIT

PROVEN, PAUSED, FULL, STUCK, FOUND, NO_MEMORY = range(6)  # what a call ends with
LARGEST = 2**53  # of the entries of vertices
DEPTH = 300
STEPS = 60

Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # child, edge, bound, value


class Limits(NamedTuple):
    """What is asked of a call.

    total : above sum_i |t_i| ||z_i||.
    threshold : cones with a bound above are split.
    goal : bounds need not be lower.
    found : a price above ends the call.
    """

    total: float
    threshold: float
    goal: float
    found: float


def middle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The middle of an edge, as trees.py defines it, in integers of any size."""
    a, b = a.astype(object), b.astype(object)
    A, B, k = int(a @ a), int(b @ b), 0
    while 2 * 4**k * A < B:
        k += 1
    while 4 ** max(k, 0) * A >= 2 * B * 4 ** max(-k, 0):
        k -= 1
    total = a * 2 ** max(k, 0) + b * 2 ** max(-k, 0)
    return total // math.gcd(*total, 2**200)


def edges(r: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(r) for b in range(a + 1, r)]


class _Cone:
    """A cone with the rows (m, r) that are open in it, and the sum of the decided ones."""

    def __init__(
        self, exact: np.ndarray, rows: np.ndarray, signs: np.ndarray, linear: np.ndarray, n: int
    ) -> None:
        r = len(exact)
        largest = np.max(np.abs(exact.astype(np.float64)), axis=1)
        self.exact = exact
        self.vertices = np.ldexp(exact.astype(np.float64), -np.frexp(largest)[1][:, None])
        self.lengths = np.sqrt(np.sum(self.vertices**2, axis=1))
        products = rows @ self.vertices.T
        below, above = np.any(products < 0, axis=1), np.any(products > 0, axis=1)
        up, keep = above & ~below, above & below
        self.rows, self.signs, self.products = rows[keep], signs[keep], products[keep]
        self.linear = linear + signs[up] @ rows[up]
        self.n_decided = n + int(np.count_nonzero(up))
        positive = self.products[self.signs > 0]
        self.base = self.vertices @ self.linear + np.sum(np.maximum(positive, 0.0), axis=0)
        # roundings of a product, of sums over rows, and of the rows themselves
        self.n_roundings = 3 * r + self.n_decided + len(self.rows) + 24

    def half(self, end: int, new: np.ndarray) -> _Cone:
        exact = self.exact.copy()
        exact[end] = new
        return _Cone(exact, self.rows, self.signs, self.linear, self.n_decided)

    def longest_edges(self) -> Iterator[int]:
        unit = self.vertices / self.lengths[:, None]
        cosines = [float(unit[a] @ unit[b]) for a, b in edges(len(unit))]
        return iter(np.argsort(cosines, kind="stable").tolist())

    def most_negative(self, u: np.ndarray) -> np.ndarray:
        """Minus the sums over the rows with t_i < 0 that are positive at u: (r,)."""
        chosen = (self.signs < 0) & (self.rows @ u > 0)
        return -np.sum(self.products[chosen], axis=0)

    def bound_above(self, w: np.ndarray, shares: np.ndarray, y: np.ndarray, total: float) -> float:
        """No less than F on the cone, for shares of the rows of y; see `Branching`."""
        r = len(w)
        norm = float(np.sqrt(np.sum(w * w))) * (1 + 32 * UNIT) + 2.0**-500
        at = self.base + shares / np.sum(shares) * (1 - 2 * (len(y) + 16) * UNIT) @ y
        error = 1.01 * UNIT * (2 * self.n_roundings + len(y)) * self.lengths * total
        over = at + error + 32 * UNIT * norm * self.lengths - self.vertices @ w
        excess = float(np.max(over / self.lengths))
        value = (norm + r * max(excess, 0.0)) * (1 + 32 * UNIT)
        return value if math.isfinite(value) else math.inf

    def bound(self, limits: Limits, best: np.ndarray) -> float:
        """By Wolfe's method: points of least norm in conv{base + y^k} + {gamma >= 0}."""
        basis, L = np.linalg.qr(self.vertices.T)
        if np.min(np.abs(np.diag(L))) < 1e-12:
            return math.inf
        rays = solve_triangular(L, np.eye(len(L)), trans="T")
        y = self.most_negative(np.sum(self.vertices / self.lengths[:, None], axis=0))[None]
        value = math.inf
        for _ in range(STEPS):
            points = rays @ (self.base + y).T
            size = float(np.linalg.norm(points[:, 0])) or 1.0
            generators = np.hstack([points, rays * (size / np.linalg.norm(rays, axis=0))])
            top = np.append(np.full(len(y), size), np.zeros(len(L)))
            target = np.append(np.zeros(len(L)), size)
            try:
                weights = nnls(np.vstack([generators, top]), target)[0]
            except RuntimeError:  # too many iterations
                break
            shares = weights[: len(y)]
            if not np.sum(shares) > 0:
                break
            w = basis @ (generators @ weights) / np.sum(shares)
            value = min(value, self.bound_above(w, shares, y, limits.total))
            norm = float(np.linalg.norm(w))
            if value <= limits.goal or norm == 0:
                break
            alpha = np.maximum(solve_triangular(L, basis.T @ w), 0.0)
            new = self.most_negative(alpha @ self.vertices)
            below = float(alpha @ (self.base + new)) / norm
            if below > limits.threshold or norm - below <= 0.01 * (norm - limits.goal):
                self._note(alpha @ self.vertices, best)
                break
            y = np.vstack([y, new])
        return value

    def _note(self, u: np.ndarray, best: np.ndarray) -> None:
        """The price of a direction in the cone."""
        u = u / np.linalg.norm(u)
        price = float(self.linear @ u + self.signs @ np.maximum(self.rows @ u, 0.0))
        if price > best[0]:
            best[: 1 + len(u)] = np.append(price, u)


class _Growth:
    """One call: the tree, and what is left to do."""

    def __init__(
        self, limits: Limits, left: int, count: np.ndarray, nodes: Nodes, best: np.ndarray
    ) -> None:
        self.limits, self.left, self.count, self.best = limits, left, count, best
        self.child, self.edge, self.bound, self.value = nodes

    def visit(self, node: int, cone: _Cone, depth: int, stop: ctypes.c_int) -> int:
        """PROVEN, or why the visit had to end."""
        if self.value[node] <= self.limits.threshold:
            return PROVEN
        if self.child[node] == 0:
            status = self._split(node, cone, depth, stop)
            if status != PROVEN or self.child[node] == 0:
                return status
        child, status = int(self.child[node]), PROVEN
        a, b = edges(len(cone.exact))[self.edge[node]]
        new = middle(cone.exact[a], cone.exact[b])
        for half, end in enumerate((a, b)):
            if status == PROVEN and not self.value[child + half] <= self.limits.threshold:
                status = self.visit(child + half, cone.half(end, new), depth + 1, stop)
        worst = max(self.value[child], self.value[child + 1])
        self.value[node] = min(self.value[node], worst)
        return status

    def _split(self, node: int, cone: _Cone, depth: int, stop: ctypes.c_int) -> int:
        self.left -= 1
        if self.left < 0 or stop.value:
            return PAUSED
        bound = cone.bound(self.limits, self.best)
        if bound < self.bound[node]:
            self.bound[node] = self.value[node] = bound
        if self.best[0] > self.limits.found:
            return FOUND
        if self.value[node] <= self.limits.threshold:
            return PROVEN
        edge = self._edge(cone) if depth < DEPTH else None
        if edge is None:
            return STUCK
        child = int(self.count[0])
        if child + 2 > len(self.child):
            return FULL
        self.count[0] += 2
        self.child[child : child + 2], self.edge[child : child + 2] = 0, LEAF
        self.bound[child : child + 2] = self.value[child : child + 2] = self.bound[node]
        self.child[node], self.edge[node] = child, edge
        return PROVEN

    def _edge(self, cone: _Cone) -> int | None:
        for edge in cone.longest_edges():
            a, b = edges(len(cone.exact))[edge]
            if max(abs(x) for x in middle(cone.exact[a], cone.exact[b])) <= LARGEST:
                return edge
        return None


def branch_cone(
    rows: np.ndarray,
    signs: np.ndarray,
    vertices: np.ndarray,
    limits: Limits,
    max_nodes: int,
    count: np.ndarray,
    nodes: Nodes,
    best: np.ndarray,
    stop: ctypes.c_int,
) -> int:
    """Grow the tree of one cone over rows (m, r), |t_i| z_i, with the signs (m,) of the t_i."""
    growth = _Growth(limits, max_nodes, count, nodes, best)
    cone = _Cone(vertices.astype(object), rows, signs, np.zeros(rows.shape[1]), 0)
    return growth.visit(0, cone, 0, stop)


def list_cones(
    child: np.ndarray, edge: np.ndarray, bound: np.ndarray, threshold: float
) -> np.ndarray:
    """The twin of `native.list_cones`."""
    found, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        leaf = child[node] == 0 or bound[node] <= threshold
        found.append(LEAF if leaf else edge[node])
        if not leaf:
            waiting += [child[node] + 1, child[node]]
    return np.array(found, dtype=np.uint8)
