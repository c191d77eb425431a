"""Newton steps in the weights that are not zero, where the objective is smooth.

    (H + lam P) s = -(M'theta + lam u^),    P = (I - u^ u^') / ||u|| for each row,

inside the faces of cones if there are any: by a factorization where these have few dimensions in
all, else by conjugate gradients with the diagonal blocks as preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from cvxnn import budget, panels
from cvxnn.solvers.newton.faces import Faces
from cvxnn.solvers.newton.preconditioners import factor_shifted
from cvxnn.solvers.shrinkage import norms
from cvxnn.solvers.working_sets.pairs import Pairs
from cvxnn.threads import cached_property

RIDGE = 1e-3  # of the preconditioner's diagonal, relative
# Of the diagonal blocks of one Hessian: operations, and numbers.
MAX_WORK, MAX_ENTRIES = 4 * 10**10, 10**8
# Of a Hessian that is factored: operations, and entries of the columns that it is made of.
MAX_FACTORED, MAX_COLUMNS = 10**9, 2**24


class Point(NamedTuple):
    rows: np.ndarray  # (K, d), the weights of the pairs
    bias: np.ndarray  # (C,)
    Z: np.ndarray  # (n, C), predictions with the bias


class Support:
    """The objective around a point whose rows are all non-zero, as a quadratic in them."""

    def __init__(
        self,
        x: Point,
        pairs: Pairs,
        loss: Any,
        lam: float,
        *,
        with_bias: bool,
        X: Any,
        mask_of: Callable[[np.ndarray], np.ndarray],
        faces: Faces | None,
    ) -> None:
        self.x, self.pairs, self.loss, self.lam = x, pairs, loss, lam
        self.with_bias, self.faces = with_bias, faces
        self.X, self.mask_of = X, mask_of
        size = norms(x.rows)
        self.unit = x.rows / size[:, None]
        self.bend = (lam / size)[:, None]  # of the norm, across the row
        self.root = loss.root(x.Z)

    @staticmethod
    def is_affordable(K: int, n: int, d: int) -> bool:
        """Whether diagonal blocks of this size may be formed."""
        return K * d * d <= MAX_ENTRIES and 2 * K * n * d * d <= MAX_WORK

    @property
    def is_factored(self) -> bool:
        """Whether the faces have so few dimensions that steps are cheap."""
        if self.faces is None:
            return False
        n, C = self.x.Z.shape
        R = C + int(self.faces.dimension.sum())
        return n * R * R <= MAX_FACTORED and n * R <= MAX_COLUMNS

    def step(self, damping: float) -> Point:
        """The Newton step, with `damping` added to the Hessian in the weights."""
        return self._face_step.solve(damping) if self.is_factored else self._iterated_step(damping)

    def _inverse_blocks(self, damping: float) -> np.ndarray:
        """The inverses of the Hessian's diagonal blocks, in the precision of X: (K, d, d)."""
        d, dtype = self.x.rows.shape[1], self.X.dtype
        unit, bend = self.unit.astype(dtype), self.bend.astype(dtype)
        blocks = self._squares - bend[:, :, None] * unit[:, :, None] * unit[:, None, :]
        along = np.arange(d)
        blocks[:, along, along] += bend + damping
        blocks[:, along, along] *= 1 + RIDGE
        return np.linalg.inv(blocks)

    @cached_property
    def _squares(self) -> np.ndarray:
        """X'D_i diag(h^k) D_i X for all pairs, with the diagonal h of the loss's Hessian, as one
        product with all x_a x_b, a <= b."""
        X, weight = self.X, self.root.diagonal().astype(self.X.dtype)
        if issparse(X):
            return self._squares_of_sparse(X, weight)
        n, d = X.shape
        a, b = np.triu_indices(d)
        sums = np.zeros((len(self.x.rows), len(a)), dtype=X.dtype)
        for rows in budget.pieces(n, max(1, MAX_ENTRIES // 8 // len(a))):
            products = X[rows][:, a] * X[rows][:, b]
            for k, part in enumerate(self.pairs.parts()):
                on = self.mask_of(self.pairs.pattern[part])[:, rows] * weight[rows, k]
                sums[part] += panels.multiply(on, products)
        blocks = np.empty((len(sums), d, d), dtype=X.dtype)
        blocks[:, a, b] = sums
        blocks[:, b, a] = sums
        return blocks

    def _squares_of_sparse(self, X: Any, weight: np.ndarray) -> np.ndarray:
        d = X.shape[1]
        blocks = np.empty((len(self.x.rows), d, d), dtype=X.dtype)
        for k, part in enumerate(self.pairs.parts()):
            for j in range(part.start, part.stop):
                on = self.mask_of(self.pairs.pattern[j : j + 1])[0]
                rows = X[on]
                block = rows.T @ (rows * weight[on, k, None])
                blocks[j] = block.toarray() if issparse(block) else block  # of any sparse kind
            budget.look()
        return blocks

    @cached_property
    def _face_step(self) -> FaceStep:
        return FaceStep(self)

    def _inside(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.faces is None else self.faces.project(rows)

    def _iterated_step(self, damping: float, max_iter: int = 80, tol: float = 0.1) -> Point:
        hessian, diagonal = self.root.hessian, self.root.diagonal()
        inverse = self._inverse_blocks(damping)
        bias_inverse = self.with_bias / np.maximum(diagonal.sum(axis=0), 1e-12)

        def precondition(rows: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = np.matmul(inverse, rows[:, :, None])[:, :, 0].astype(np.float64)
            return self._inside(found), bias_inverse * bias

        _, theta = self.loss.evaluate(self.x.Z)
        r = -self._inside(self.pairs.adjoint(theta) + self.lam * self.unit)
        of_bias = -theta.sum(axis=0) * self.with_bias
        total = Point(*(np.zeros_like(part) for part in self.x))
        s, sb = precondition(r, of_bias)
        square = first = float(np.vdot(r, s)) + float(of_bias @ sb)
        for _ in range(max_iter):
            Z = self.pairs.forward(s) + sb
            curved = hessian(Z)
            along = np.einsum("ij,ij->i", self.unit, s)[:, None]
            bent = self.bend * (s - self.unit * along) + damping * s
            Hs = self._inside(self.pairs.adjoint(curved) + bent)
            Hb = curved.sum(axis=0) * self.with_bias
            curvature = float(np.vdot(s, Hs)) + float(sb @ Hb)
            if not curvature > 0:
                break
            a = square / curvature
            total = Point(total.rows + a * s, total.bias + a * sb, total.Z + a * Z)
            r, of_bias = r - a * Hs, of_bias - a * Hb
            g, gb = precondition(r, of_bias)
            before, square = square, float(np.vdot(r, g)) + float(of_bias @ gb)
            if not square >= tol**2 * first:
                break
            s, sb = g + square / before * s, gb + square / before * sb
        return total


class FaceStep:
    """The Newton step of a support whose faces have few dimensions in all: with orthonormal rows B
    of each face and columns A = D_i X B', and a column of ones for each output bias,

        (sum_k A_k' S_k^2 A_k - (S v o A)'(S v o A) + lam B P B') s = -(A'theta + lam B u^)

    for the root S (I - v v') of the loss's Hessian. Columns lie class by class.
    """

    def __init__(self, support: Support) -> None:
        self.support = support
        assert support.faces is not None
        self.basis, self.owner = support.faces.bases  # pairs lie class by class
        edges = np.searchsorted(self.owner, support.pairs.operator.offsets)
        self.parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
        columns = panels.multiply(self.basis, support.X.T.astype(np.float64))
        columns *= support.mask_of(support.pairs.pattern[self.owner])
        columns *= support.pairs.sign[self.owner]
        self.columns = columns

    def solve(self, damping: float) -> Point:
        support, (n, C) = self.support, self.support.x.Z.shape
        _, theta = support.loss.evaluate(support.x.Z)
        unit = np.einsum("rd,rd->r", self.basis, support.unit[self.owner])
        slope = support.lam * unit
        for k, part in enumerate(self.parts):
            slope[part] += self.columns[part] @ theta[:, k]
        R = len(slope)
        H = np.zeros((R + C, R + C))
        self._add_loss(H, R)
        self._add_norms(H, unit)
        right = np.concatenate([-slope, -theta.sum(axis=0) * support.with_bias])
        if not support.with_bias:
            H, right = H[:R, :R], right[:R]
        H.flat[: R * (len(H) + 1) : len(H) + 1] += damping
        H.flat[:: len(H) + 1] += 1e-12 * np.max(np.diagonal(H))  # some directions may have none
        found = np.zeros(R + C)
        found[: len(right)] = panels.cholesky_solve(factor_shifted(H), right)
        rows = np.zeros_like(support.x.rows)
        np.add.at(rows, self.owner, found[:R, None] * self.basis)
        Z = np.empty((n, C))
        for k, part in enumerate(self.parts):
            Z[:, k] = found[part] @ self.columns[part] + found[R + k]
        return Point(rows, found[R:], Z)

    def _add_loss(self, H: np.ndarray, R: int) -> None:
        scale, v = self.support.root.scale, self.support.root.unit
        C = scale.shape[1]
        coupled = np.empty((R + C, len(scale)))
        for k, part in enumerate(self.parts):
            both = np.concatenate([self.columns[part], np.ones((1, len(scale)))]) * scale[:, k]
            at = np.append(np.arange(part.start, part.stop), R + k)
            H[np.ix_(at, at)] += panels.gram(both)
            coupled[at] = both if v is None else both * v[:, k]
        if v is not None:
            H -= panels.gram(coupled)

    def _add_norms(self, H: np.ndarray, unit: np.ndarray) -> None:
        """lam (I - u^ u^') / ||u|| of each pair."""
        bend = self.support.bend[:, 0]
        edges = np.searchsorted(self.owner, np.arange(len(bend) + 1)).tolist()
        for j, (a, b) in enumerate(pairwise(edges)):
            H[a:b, a:b] += bend[j] * (np.eye(b - a) - np.outer(unit[a:b], unit[a:b]))
