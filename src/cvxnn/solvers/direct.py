"""Least squares problems, which need no iteration over proximal steps: lam = 0 and l2.

min_U  1/(2s) ||M U - Y||^2 + lam/2 ||U||^2   <=>   (M'M + s lam I) U = M'Y
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cvxnn import budget, least_squares
from cvxnn.arrays import Array, double, like
from cvxnn.budget import OutOfTimeError
from cvxnn.least_squares import KernelFactor, lsmr_solve
from cvxnn.solvers.base import Iterate, StalledError, full_iterate
from cvxnn.validation import offers

if TYPE_CHECKING:
    from cvxnn.problems import CGReLU
    from cvxnn.protocols import Problem


def is_least_squares(problem: Problem) -> bool:
    """Whether a linear system has the solution: both terms are squares, without cones."""
    return (
        problem.kind == "C-GReLU"
        and offers(problem.loss, "least_squares")
        and offers(problem.penalty, "squared_norm")
    )


@dataclass(frozen=True)
class Direct:
    """Through the n x n kernel (X X') o (D D'); the minimum-norm solution at lam = 0."""

    name: ClassVar[str] = "direct"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 1}

    def handles(self, problem: Problem) -> bool:
        return is_least_squares(problem)

    def iterates(
        self,
        problem: CGReLU,
        start: Array,
        stop: str = "gap",
        state: object = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate]:
        n, most = problem.operator.n, least_squares.MAX_KERNEL_ROWS
        if n > most:
            raise ValueError(
                f"solver 'direct' factors an n x n matrix and takes n <= {most}, "
                f"got n = {n}; use solver='lsmr'"
            )
        if not budget.allows(KernelFactor.seconds(n)):
            raise OutOfTimeError(f"factoring {n} x {n} numbers takes too long: use solver='lsmr'")
        U = problem.kernel_factor.solve(double(problem.loss.Y), _shift(problem))
        yield full_iterate(problem, like(start, U))
        raise StalledError("a factorization is exact up to rounding")


@dataclass(frozen=True)
class LSMR:
    """Golub-Kahan bidiagonalisation; any n. Starts from zero, so the lam = 0 solution has minimum
    norm."""

    name: ClassVar[str] = "lsmr"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 100_000}
    products_only: ClassVar[bool] = True

    def handles(self, problem: Problem) -> bool:
        return is_least_squares(problem)

    def iterates(
        self,
        problem: CGReLU,
        start: Array,
        stop: str = "gap",
        state: object = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate]:
        operator = problem.operator_double.base
        precision = 1e-3
        while precision >= 1e-15:  # LSMR knows no duality gap: tighten until the driver stops
            precision *= 1e-2
            U, n_inner = lsmr_solve(
                operator,
                double(problem.loss.Y),
                _shift(problem),
                tol=precision,
                max_iter=self.default_max_iter["gap"],
            )
            yield replace(full_iterate(problem, like(start, U)), n_inner=n_inner)


def _shift(problem: CGReLU) -> float:
    n, C = problem.loss.Y.shape
    return problem.lam * n * C
