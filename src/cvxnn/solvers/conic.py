"""The independent oracle: the same problem objects, handed to a conic solver through CVXPY.

It forms the expanded matrix from the mask by itself and shares no product with the rest of the
package, so that agreement means something. For small problems.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array, is_sparse, like, to_numpy
from cvxnn.budget import OutOfTimeError
from cvxnn.problems import CReLU
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, StalledError, full_iterate

if TYPE_CHECKING:
    import cvxpy
    from cvxpy import Expression

MAX_ENTRIES = 10**8  # of the expanded matrix: 0.8 GB before the solver copies it
COMPILED = 5e5  # entries of it that CVXPY prepares in a second, which cannot be interrupted
TIME_LIMITS = {"CLARABEL": "time_limit", "SCS": "time_limit_secs", "HIGHS": "time_limit"}


@dataclass(frozen=True)
class CVXPY:
    """Any solver that CVXPY has installed, by name: "CLARABEL" (default), "SCS", "MOSEK" with a
    licence, ... `settings` are handed to it as they are."""

    name: ClassVar[str] = "cvxpy"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 1}

    backend: str = "CLARABEL"
    settings: dict[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.backend, str):
            raise TypeError(f"backend must be a solver's name, got {self.backend!r}")

    def handles(self, problem: Problem) -> bool:
        """Losses and penalties that have a formula below."""
        known = problem.lam == 0 or problem.penalty_name in _PENALTIES
        return known and problem.loss_name in _LOSSES

    def further_bytes(self, problem: Problem) -> int:
        """The expanded matrix, which nothing else forms."""
        return 8 * problem.operator.n * len(problem.patterns) * problem.operator.d

    def iterates(
        self,
        problem: Problem,
        start: Array,
        stop: str = "gap",
        state: object = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate]:
        cp = import_cvxpy()
        backend = self.backend.upper()
        if backend not in cp.installed_solvers():
            raise ValueError(
                f"CVXPY has no solver {self.backend!r} here; installed: "
                f"{', '.join(cp.installed_solvers())}"
            )
        size = problem.operator.n * len(problem.patterns) * problem.operator.d
        if size / COMPILED > budget.seconds_left() / 2:
            raise OutOfTimeError(f"CVXPY needs longer to prepare a matrix of {size:.1e} entries")
        budget.doing("CVXPY prepares the program", size / COMPILED)
        U, conic_program = program(cp, problem)
        settings = {**_time_limit(backend), **self.settings}
        budget.doing(f"{backend} solves the program", math.inf)
        try:
            with warnings.catch_warnings():
                # "may be inaccurate" is for the certificate to say, with a number
                warnings.filterwarnings("ignore", message="Solution may be inaccurate")
                conic_program.solve(solver=backend, **settings)
        except cp.error.SolverError as error:
            raise StalledError(f"{backend} gave up: {error}") from error
        budget.look()
        if any(u.value is None for u in U):
            raise StalledError(f"{backend} ended with status {conic_program.status!r}")
        weights = like(start, np.stack([u.value for u in U], axis=2))
        if isinstance(problem, CReLU):  # interior points are feasible to their tolerance only
            weights, _ = problem.make_feasible(weights)
        yield full_iterate(problem, weights)
        raise StalledError(
            f"{backend} ended with status {conic_program.status!r} by its own tolerances: "
            "tighten them through settings={...}"
        )


def _time_limit(backend: str) -> dict[str, float]:
    """The setting that ends the solver with the run, for those that have one."""
    left = budget.seconds_left()
    if not math.isfinite(left) or backend not in TIME_LIMITS:
        return {}
    return {TIME_LIMITS[backend]: max(left, 1e-3)}


def program(cp: ModuleType, problem: Problem) -> tuple[list[cvxpy.Variable], cvxpy.Problem]:
    """Variables, one (blocks, d) for each class, and the program. For C-ReLU the blocks are V over
    W, with their cone constraints."""
    X = problem.operator.rows()
    Y = to_numpy(problem.loss.Y).astype(np.float64)
    mask = problem.patterns.mask
    (n, d), p, C = X.shape, mask.shape[1], Y.shape[1]
    if n * p * d > MAX_ENTRIES:
        raise ValueError(
            f"the expanded matrix would have {n * p * d:.1e} entries; solver 'cvxpy' takes up to "
            f"{MAX_ENTRIES:.0e}: use solver='auto'"
        )
    X = (X.toarray() if is_sparse(X) else to_numpy(X)).astype(np.float64)
    M = (mask[:, :, None] * X[:, None, :]).reshape(n, p * d)
    cones = problem.kind == "C-ReLU"
    U = [cp.Variable((2 * p if cones else p, d)) for _ in range(C)]
    effective = [u[:p] - u[p:] if cones else u for u in U]
    fits = [M @ cp.reshape(u, (p * d,), order="C") for u in effective]
    if problem.output_bias:
        bias = cp.Variable(C)
        fits = [fit + bias[k] for k, fit in enumerate(fits)]
    loss = _loss(cp, problem, fits, Y)
    constraints = []
    if cones:
        signs = np.where(mask, 1.0, -1.0)
        both = np.hstack([signs, signs])
        constraints = [cp.multiply(both, X @ u.T) >= 0 for u in U]
    return U, cp.Problem(cp.Minimize(loss + _penalty(cp, problem, U)), constraints)


def _loss(cp: ModuleType, problem: Problem, fits: list[Expression], Y: np.ndarray) -> Expression:
    w = to_numpy(problem.loss.row_weight)[:, 0]
    return _LOSSES[problem.loss_name](cp, w, fits, Y, **problem.loss.settings)


def _squared(cp: ModuleType, w: np.ndarray, fits: list[Expression], Y: np.ndarray) -> Expression:
    return sum(w @ cp.square(fit - y) for fit, y in zip(fits, Y.T, strict=True)) / 2


def _huber(
    cp: ModuleType, w: np.ndarray, fits: list[Expression], Y: np.ndarray, delta: float
) -> Expression:
    """CVXPY defines it twice as large."""
    return sum(w @ cp.huber(fit - y, delta) for fit, y in zip(fits, Y.T, strict=True)) / 2


def _logistic(cp: ModuleType, w: np.ndarray, fits: list[Expression], Y: np.ndarray) -> Expression:
    return sum(w @ cp.logistic(cp.multiply(-y, fit)) for fit, y in zip(fits, Y.T, strict=True))


def _softmax(cp: ModuleType, w: np.ndarray, fits: list[Expression], Y: np.ndarray) -> Expression:
    Z = cp.vstack(fits).T
    return w @ (cp.log_sum_exp(Z, axis=1) - cp.sum(cp.multiply(Y, Z), axis=1))


def _penalty(cp: ModuleType, problem: Problem, U: list[Expression]) -> Expression:
    if problem.lam == 0:
        return 0
    return problem.lam * _PENALTIES[problem.penalty_name](cp, U)


# The formulas, by the names of what they stand for: those of losses, and those of penalties over
# lam. They are written for CVXPY on their own, so that the oracle is independent.
_LOSSES: dict[str, Callable[..., Expression]] = {
    "squared": _squared,
    "huber": _huber,
    "logistic": _logistic,
    "softmax": _softmax,
}
_PENALTIES: dict[str, Callable[[ModuleType, list[Expression]], Expression]] = {
    "neuron": lambda cp, U: sum(cp.sum(cp.norm(u, 2, axis=1)) for u in U),
    "feature": lambda cp, U: cp.sum(cp.norm(cp.vstack(U), 2, axis=0)),
    "l1": lambda cp, U: sum(cp.sum(cp.abs(u)) for u in U),
    "l2": lambda cp, U: sum(cp.sum_squares(u) for u in U) / 2,
}


def import_cvxpy() -> ModuleType:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("solver 'cvxpy' needs CVXPY: pip install 'cvxnn[cvx]'") from error
    return cvxpy
