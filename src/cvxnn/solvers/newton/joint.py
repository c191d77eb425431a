"""Newton systems of all outputs together: directly where that is possible, else by iterations.

A loss that couples the outputs of a row has a Hessian that does (`losses.Root`); the systems of
single outputs, and how they are multiplied with and preconditioned, are in systems.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from cvxnn import budget, panels
from cvxnn.losses import Root
from cvxnn.solvers.newton.formed import (
    KEPT_ITERATIONS,
    NEW_ITERATIONS,
    PRECISE,
    WORTHWHILE,
    SingleFaces,
)
from cvxnn.solvers.newton.preconditioners import (
    MAX_DIRECTIONS,
    CoupledPreconditioner,
    Preconditioner,
    factor_shifted,
)
from cvxnn.solvers.newton.systems import (
    GRAM_RATE,
    SINGLE_PRECISION,
    FaceSystem,
    ProductSystem,
    System,
    conjugate_gradients,
    positive,
)

MAX_ITERATIONS = 300  # of conjugate gradients
FEW_ITERATIONS = 100  # for systems whose single outputs are factored; 20 is usual
MAX_COUPLED = 1500  # columns of all outputs for which a coupled system is factored
MAX_COUPLED_ROWS = 2000  # rows for which coupled outputs are preconditioned by dense inverses


class CoupledInverse:
    """The inverse of T (I + S A S) T on the range of T = I - v v' - Q Q', from the inverses N of
    the single outputs: N - N V (V'N V)^-1 V'N takes the directions v out, which couple the outputs
    of each row, and the same with Q those few that are left."""

    def __init__(self, inverses: list[np.ndarray], root: Root) -> None:
        assert root.unit is not None
        # One precision throughout: a product of two would convert a whole inverse each time.
        dtype = np.result_type(*inverses)
        inverses = self._inverses = [inverse.astype(dtype, copy=False) for inverse in inverses]
        v = self._v = root.unit.astype(dtype)
        K = np.zeros_like(inverses[0], dtype=dtype)
        for k, inverse in enumerate(inverses):
            budget.look()
            K += inverse * v[:, k] * v[:, [k]]
        self._factor = factor_shifted(K)
        self._Q = None
        if root.span is not None:
            Q = root.span.astype(dtype)
            shape = (*v.shape, Q.shape[1])
            NQ = self._without_unit(Q.reshape(shape)).reshape(Q.shape)
            self._Q, self._NQ, self._small = Q, NQ, np.linalg.pinv(Q.T @ NQ, hermitian=True)

    def __call__(self, r: np.ndarray) -> np.ndarray:
        """(n, C) -> (n, C)."""
        x = self._without_unit(r.astype(self._v.dtype)[:, :, None])[:, :, 0]
        if self._Q is None:
            return x
        return x - (self._NQ @ (self._small @ (self._Q.T @ x.reshape(-1)))).reshape(x.shape)

    def _without_unit(self, r: np.ndarray) -> np.ndarray:
        """For several right-hand sides (n, C, m)."""
        y = np.stack([panels.multiply(N, r[:, k]) for k, N in enumerate(self._inverses)], axis=1)
        along = np.einsum("ik,ikm->im", self._v, y)
        solved = panels.cholesky_solve(self._factor, along)
        for k, N in enumerate(self._inverses):
            y[:, k] -= panels.multiply(N, self._v[:, [k]] * solved)
        return y


def _joint_is_cheaper(sizes: list[int], n: int) -> bool:
    """Whether to factor one matrix for the columns of all outputs, instead of n x n matrices."""
    total = sum(sizes)
    if total > MAX_COUPLED or n > MAX_COUPLED_ROWS:
        return total <= MAX_COUPLED
    smaller = [min(size, n) for size in sizes]
    joint = total**3 / 3 + n * total**2
    apart = sum(n * s * (size + n) + s**3 / 3 for size, s in zip(sizes, smaller, strict=True))
    return joint <= apart + n**3 / 3


@dataclass(frozen=True, eq=False)
class JointSystem:
    """I + L'A L for all outputs, from the root L and the systems I + S A S of single outputs."""

    root: Root
    systems: list[System]

    def with_precision(self, tol: float) -> JointSystem:
        """The same with products that are precise enough for residuals down to `tol`."""
        parts: list[System] = [
            part.with_precision(tol) if isinstance(part, ProductSystem) else part
            for part in self.systems
        ]
        return replace(self, systems=parts)

    @property
    def iterated(self) -> list[ProductSystem]:
        """Those of the systems that are not formed."""
        return [system for system in self.systems if isinstance(system, ProductSystem)]

    def product(self, x: np.ndarray) -> np.ndarray:
        """S A S x, output by output: (n, C) -> (n, C)."""
        parts = [system.product(x[:, k]) for k, system in enumerate(self.systems)]
        return np.stack(parts, axis=1)

    def inverse(self, r: np.ndarray) -> np.ndarray:
        """(I + S A S)^-1 r, output by output, or something like it."""
        parts = [system.inverse(r[:, k]) for k, system in enumerate(self.systems)]
        return np.stack(parts, axis=1)

    def coupled_preconditioner(self) -> CoupledPreconditioner | None:
        """From those of single outputs; None where these are too many directions to be coupled."""
        if self.root.unit is None:
            return None
        parts = [system.preconditioner for system in self.systems]
        known = [part for part in parts if part is not None and part.V is not None]
        if len(known) < len(parts) or sum(part.n_directions for part in known) > MAX_DIRECTIONS:
            return None
        return CoupledPreconditioner(known, self.root.unit, self.root.across)

    def is_solved(self, x: np.ndarray, b: np.ndarray, tol: float) -> bool:
        """Whether the residual of x is at most tol ||b||, in the precision of these systems."""
        residual = self.root.project(b - x - self.product(x))
        return bool(np.linalg.norm(residual) <= tol * np.linalg.norm(b))

    def solve_directly(self, b: np.ndarray) -> np.ndarray:
        """Minimise x'(I + S A S) x / 2 - b'x over the x orthogonal to the span."""
        x = self.inverse(b)
        Q = self.root.span
        if Q is None or Q.shape[1] == 0:  # no curvature is left along an output bias
            return x
        columns = [self.inverse(q.reshape(b.shape)).reshape(-1) for q in Q.T]
        SQ = np.stack(columns, axis=1)
        across = self.root.across
        multipliers = np.linalg.solve(across.sum(Q.T @ SQ), across.sum(Q.T @ x.reshape(-1)))
        return x - (SQ @ multipliers).reshape(b.shape)


def _solve_coupled(root: Root, columns: list[np.ndarray], b: np.ndarray) -> np.ndarray:
    """(I + T C'C T)^-1 b for the columns C of all outputs and T = I - v v' - Q Q'; b = T b."""
    v, across = root.unit, root.across
    assert v is not None
    K = block_diag(*[panels.gram(part) for part in columns])
    K -= panels.gram(np.concatenate([part * v[:, k] for k, part in enumerate(columns)]))
    K = across.sum(K)
    if root.span is not None:
        Q = root.span.reshape(*b.shape, root.span.shape[1])
        along = np.concatenate([part @ Q[:, k] for k, part in enumerate(columns)])
        K -= panels.gram(across.sum(along))
    K.flat[:: len(K) + 1] += 1
    right = across.sum(np.concatenate([part @ b[:, k] for k, part in enumerate(columns)]))
    solved = panels.cholesky_solve(positive(panels.cholesky(K)), right)
    edges = np.cumsum([len(part) for part in columns])[:-1]
    pieces = np.split(solved, edges)
    moved = [part.T @ piece for part, piece in zip(columns, pieces, strict=True)]
    return b - root.project(np.stack(moved, axis=1))


class Accuracy(NamedTuple):
    """What is asked of a solution x: a residual of at most tol ||b|| and error ||x||."""

    tol: float
    error: float


class JointSolver:
    """Solves for the steps of all outputs, directly where that is possible, else by preconditioned
    conjugate gradients. Preconditioners are kept for later systems as long as they serve: that,
    and how well the last one did, is all that it remembers."""

    def __init__(self) -> None:
        self._dense = False
        self._count_when_new = 0
        self._coupled_inverse: CoupledInverse | CoupledPreconditioner | None = None
        # of formed systems: a factor in single precision, and whether these did not suffice
        self._kept: Preconditioner | None = None
        self._double = False

    def release(self) -> None:
        """Let go of what is large and can be made again."""
        if self._kept is not None and self._kept.is_large:
            self._kept = None

    def solve(
        self,
        root: Root,
        systems: list[System],
        r: np.ndarray,
        tol: float,
        error: float = math.inf,
    ) -> np.ndarray:
        """L x for (I + L'A L) x = L'r, r (n, C), to a residual of `tol` ||L'r|| and `error` ||x||
        at most."""
        b, joint = root.adjoint(r), JointSystem(root, systems)
        formed = [system.columns for system in systems if isinstance(system, FaceSystem)]
        if len(formed) == len(systems):
            if root.unit is None:
                return root.apply(self._formed(joint, formed, b, Accuracy(tol, error)))
            n = int(root.across.sum(float(len(b))))
            if _joint_is_cheaper([len(columns) for columns in formed], n):
                return root.apply(_solve_coupled(root, formed, b))
        return root.apply(self._by_iteration(joint.with_precision(tol), b, Accuracy(tol, error)))

    def _formed(
        self, joint: JointSystem, columns: list[np.ndarray], b: np.ndarray, accuracy: Accuracy
    ) -> np.ndarray:
        """Solve systems of faces: one that is large by iterations with a factor in single
        precision, that of an earlier system as long as it serves, until that does not suffice."""
        small = len(columns) > 1 or min(columns[0].shape) < WORTHWHILE
        if self._double or small or joint.root.across.size > 1:
            return joint.solve_directly(b)
        system = SingleFaces(columns[0], self._kept)
        single = replace(joint, systems=[system])
        accuracy = Accuracy(min(max(accuracy.tol, SINGLE_PRECISION), PRECISE), accuracy.error)
        if self._kept is not None:
            x, _, done = self._iterate(single, b, accuracy, KEPT_ITERATIONS)
            if done and joint.is_solved(x, b, 3 * accuracy.tol):
                return x
        try:
            system.renew()
            self._kept = system.preconditioner
            x, _, done = self._iterate(single, b, accuracy, NEW_ITERATIONS)
        except np.linalg.LinAlgError:
            done = False
        if done and joint.is_solved(x, b, 3 * accuracy.tol):
            return x
        self._double, self._kept = True, None
        return joint.solve_directly(b)

    def _by_iteration(self, joint: JointSystem, b: np.ndarray, accuracy: Accuracy) -> np.ndarray:
        iterated = joint.iterated
        x: np.ndarray | None = None  # of an earlier preconditioner
        if not iterated:  # outputs apart, and iterations for what couples them, are cheap
            apart = joint.root.across.size > 1  # where there are no dense inverses
            limit = MAX_ITERATIONS if apart else FEW_ITERATIONS
            x, done = self._renewed(joint, False, b, accuracy, limit)
            if done or apart:
                return x
            return self._renewed(joint, True, b, accuracy, MAX_ITERATIONS)[0]
        product, cheap, dense = np.sum([system.costs for system in iterated], axis=0)
        if joint.root.unit is not None:
            n = iterated[0].shared.rows.operator.n_all
            cheap += n * sum(system.n_directions for system in iterated) ** 2 / GRAM_RATE
        if self._coupled_inverse is not None or all(system.ready for system in iterated):
            worth = int((dense if self._dense else cheap) / product)
            x, _, done = self._iterate(joint, b, accuracy, self._count_when_new + max(worth, 3))
            if done:
                return x
        may_be_dense = all(system.may_be_dense for system in iterated)
        if dense <= cheap:  # with about as many columns as rows, the better one costs less, too
            self._dense = True
        if not (self._dense and may_be_dense):
            limit = max(20, int(dense / product)) if may_be_dense else MAX_ITERATIONS
            x, done = self._renewed(joint, False, b, accuracy, limit, x)
            if done or not may_be_dense:
                return x
            self._dense = True
        return self._renewed(joint, True, b, accuracy, MAX_ITERATIONS, x)[0]

    def _renewed(
        self,
        joint: JointSystem,
        dense: bool,
        b: np.ndarray,
        accuracy: Accuracy,
        limit: int,
        start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, bool]:
        """The solution with new preconditioners, and whether the iterations sufficed. `start` is
        what an earlier preconditioner has left unfinished."""
        self._coupled_inverse = None
        if dense and joint.root.unit is not None and len(b) <= MAX_COUPLED_ROWS:
            inverses = [system.dense_inverse() for system in joint.systems]
            self._coupled_inverse = CoupledInverse(inverses, joint.root)
        else:
            for system in joint.iterated:
                system.renew(dense)
            if not dense:
                self._coupled_inverse = joint.coupled_preconditioner()
        x, count, done = self._iterate(joint, b, accuracy, limit, start)
        # the rest of a solution takes fewer iterations than the next one will
        self._count_when_new = count if start is None else max(count, self._count_when_new)
        return x, done

    def _iterate(
        self,
        joint: JointSystem,
        b: np.ndarray,
        accuracy: Accuracy,
        limit: int,
        start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, int, bool]:
        shape, root = b.shape, joint.root
        if start is not None and root.across.max(float(not np.isfinite(start).all())):
            start = None
        if len(joint.systems) == 1 and joint.iterated and root.unit is None:
            before = None if start is None else start[:, 0]
            found = joint.iterated[0].iterate(root.span, b[:, 0], before, *accuracy, limit)
            if found is not None:
                x, count, done = found
                return x[:, None], count, done
        inverse = self._coupled_inverse or joint.inverse

        def apply(x: np.ndarray) -> np.ndarray:
            x = x.reshape(shape)
            return root.project(x + joint.product(x)).reshape(-1)

        def precondition(r: np.ndarray) -> np.ndarray:
            return root.project(inverse(r.reshape(shape))).reshape(-1)

        x, count, done = conjugate_gradients(
            apply,
            precondition,
            b.reshape(-1),
            accuracy.tol,
            limit,
            accuracy.error,
            None if start is None else start.reshape(-1),
            root.across,
        )
        return x.reshape(shape), count, done
