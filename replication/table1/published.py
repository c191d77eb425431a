"""CD-A as the paper has it: R-FISTA on the shortage of all blocks, and v = u + w as it comes out.

    min_w  1/2 sum_i ||(b_i - X~_i w_i)_+||^2 + rho sum_i ||w_i||      b_i = (-X~_i u_i)_+

It starts at zero and ends after 1000 iterations, or when the squared norm of the min-norm
subgradient is at most 1e-10. Nothing moves v and w into their cones afterwards, as
`cvxnn.decompose` does. The released code divides the sum of squares by the number of rows, which
the text does not say; the same tolerance is then looser by that number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import cvxnn
from cvxnn.penalties import NeuronGroups, make_penalty
from cvxnn.ranks import ALONE
from cvxnn.smooth import Point, Smooth
from cvxnn.solvers.base import StalledError
from cvxnn.solvers.rfista import RFISTA

RHO = 1e-10
SQUARED_TOL = 1e-10
MAX_ITER = 1000


class Blocks(NamedTuple):
    """The blocks of a gated solution that are not zero, one in a row."""

    pattern: np.ndarray  # (B,)
    output: np.ndarray  # (B,)
    u: np.ndarray  # (B, d)
    signs: np.ndarray  # (B, n): the rows of X~ are these times those of X

    @classmethod
    def of(cls, gated: cvxnn.Solution) -> Blocks:
        U = np.asarray(gated.weights)
        pattern, output = np.nonzero(np.any(U != 0, axis=1))
        mask = gated.problem.patterns.mask[:, pattern].T
        return cls(pattern, output, U[pattern, :, output], np.where(mask, 1.0, -1.0))

    def shortage(self, X: np.ndarray) -> np.ndarray:
        """b = (-X~u)_+, (B, n)."""
        return np.maximum(-self.signs * (self.u @ X.T), 0.0)

    def assembled(self, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Rows (B, d) as weights (p, d, C)."""
        weights = np.zeros(shape)
        weights[self.pattern, :, self.output] = rows
        return weights


class Shortage(Smooth):
    """weight/2 sum_i ||(b_i - X~_i w_i)_+||^2, with rho sum_i ||w_i|| beside it."""

    affine_gradient = False
    across = ALONE

    def __init__(self, X: np.ndarray, blocks: Blocks, weight: float) -> None:
        self.X, self.signs, self.weight = X, blocks.signs, weight
        self.target = blocks.shortage(X)
        self.penalty = make_penalty(NeuronGroups(), RHO)

    @property
    def smooth(self) -> Shortage:
        return self

    def point(self, U: np.ndarray) -> Point:
        return Point(U, self.target - self.signs * (U[:, :, 0] @ self.X.T))

    def gradient(self, point: Point) -> tuple[None, np.ndarray]:
        short = np.maximum(point.fit, 0.0)
        return None, -self.weight * ((short * self.signs) @ self.X)[:, :, None]

    def bregman(self, new: Point, old: Point) -> float:
        after, before = np.maximum(new.fit, 0.0), np.maximum(old.fit, 0.0)
        divergence = np.sum((after - before) ** 2) + 2 * np.sum(before * (after - new.fit))
        return self.weight / 2 * float(divergence)


class Approximation(NamedTuple):
    """v = u + w and w, each (p, d, C), and after how many iterations."""

    V: np.ndarray
    W: np.ndarray
    n_iter: int
    residual: float  # norm of the min-norm subgradient
    violation: float  # the largest entry of (-X~v)_+ and (-X~w)_+


def approximate(gated: cvxnn.Solution, X: np.ndarray, *, divided_by_rows: bool) -> Approximation:
    blocks = Blocks.of(gated)
    hinge = Shortage(X, blocks, 1 / len(X) if divided_by_rows else 1.0)
    w, residual, n_iter = np.zeros((*blocks.u.shape, 1)), np.inf, 0
    try:
        for n_iter, iterate in enumerate(
            RFISTA(line_search="backtracking").iterates(hinge, w, "paper")
        ):
            w, residual = iterate.U, float(iterate.residual or 0.0)
            if residual**2 <= SQUARED_TOL or n_iter >= MAX_ITER:
                break
    except StalledError:
        pass  # solved as well as rounding allows
    w = w[:, :, 0]
    shape = np.shape(gated.weights)
    both = [np.max(-blocks.signs * (part @ X.T), initial=0.0) for part in (w, blocks.u + w)]
    return Approximation(
        blocks.assembled(blocks.u + w, shape),
        blocks.assembled(w, shape),
        n_iter,
        residual,
        float(max(both)),
    )
