"""Newton steps in the weights that are not zero, where the objective is smooth.

    (H + lam P) s = -(M'theta + lam u^),    P = (I - u^ u^') / ||u|| for each row,

by conjugate gradients with the diagonal blocks as preconditioner, inside the faces of cones if
there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from cvxnn import budget
from cvxnn.solvers.newton.systems import Faces
from cvxnn.solvers.working_sets.pairs import Pairs, norms

RIDGE = 1e-3  # of the preconditioner's diagonal, relative
# Of the diagonal blocks of one Hessian: operations, and numbers.
MAX_WORK, MAX_ENTRIES = 4 * 10**10, 10**8


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
        size = norms(x.rows)
        self.unit = x.rows / size[:, None]
        self.bend = (lam / size)[:, None]  # of the norm, across the row
        root = loss.root(x.Z)
        self.hessian, diagonal = root.hessian, root.diagonal()
        self.inverse = self._inverse_blocks(X, mask_of, diagonal)
        self.bias_inverse = with_bias / np.maximum(diagonal.sum(axis=0), 1e-12)

    @staticmethod
    def is_affordable(K: int, n: int, d: int) -> bool:
        """Whether diagonal blocks of this size may be formed."""
        return K * d * d <= MAX_ENTRIES and 2 * K * n * d * d <= MAX_WORK

    def _inverse_blocks(
        self, X: Any, mask_of: Callable[[np.ndarray], np.ndarray], diagonal: np.ndarray
    ) -> np.ndarray:
        """The inverses of the Hessian's diagonal blocks, in the precision of X: (K, d, d)."""
        d = self.x.rows.shape[1]
        blocks = np.empty((len(self.x.rows), d, d), dtype=X.dtype)
        for k, part in enumerate(self.pairs.parts()):
            weight = diagonal[:, k].astype(X.dtype)
            for j in range(part.start, part.stop):
                on = mask_of(self.pairs.pattern[j : j + 1])[0]
                rows = X[on]
                scaled = rows * weight[on, None]
                block = rows.T @ scaled
                blocks[j] = block.toarray() if issparse(block) else block  # of any sparse kind
            budget.look()
        unit, bend = self.unit.astype(X.dtype), self.bend.astype(X.dtype)
        blocks -= bend[:, :, None] * unit[:, :, None] * unit[:, None, :]
        along = np.arange(d)
        blocks[:, along, along] += bend
        blocks[:, along, along] *= 1 + RIDGE
        return np.linalg.inv(blocks)

    def _inside(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.faces is None else self.faces.project(rows)

    def _precondition(self, rows: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.matmul(self.inverse, rows[:, :, None])[:, :, 0].astype(np.float64)
        return self._inside(found), self.bias_inverse * bias

    def step(self, max_iter: int = 80, tol: float = 0.1) -> Point:
        """The Newton step."""
        _, theta = self.loss.evaluate(self.x.Z)
        r = -self._inside(self.pairs.adjoint(theta) + self.lam * self.unit)
        of_bias = -theta.sum(axis=0) * self.with_bias
        total = Point(*(np.zeros_like(part) for part in self.x))
        s, sb = self._precondition(r, of_bias)
        square = first = float(np.vdot(r, s)) + float(of_bias @ sb)
        for _ in range(max_iter):
            Z = self.pairs.forward(s) + sb
            curved = self.hessian(Z)
            along = np.einsum("ij,ij->i", self.unit, s)[:, None]
            Hs = self._inside(self.pairs.adjoint(curved) + self.bend * (s - self.unit * along))
            Hb = curved.sum(axis=0) * self.with_bias
            curvature = float(np.vdot(s, Hs)) + float(sb @ Hb)
            if not curvature > 0:
                break
            a = square / curvature
            total = Point(total.rows + a * s, total.bias + a * sb, total.Z + a * Z)
            r, of_bias = r - a * Hs, of_bias - a * Hb
            g, gb = self._precondition(r, of_bias)
            before, square = square, float(np.vdot(r, g)) + float(of_bias @ gb)
            if not square >= tol**2 * first:
                break
            s, sb = g + square / before * s, gb + square / before * sb
        return total
