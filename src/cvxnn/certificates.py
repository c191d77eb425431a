"""Bounds on the optimal value: what is proven about a point, and of which problem.

For feasible weights U with predictions Z = M U and any dual candidate Theta (n, C),

    P(U) = f(Z) + g(U)   >=   optimal value   >=   D = -f*(tau Theta) - g*(tau M'Theta),

where tau scales Theta into the dual feasible set, class by class where the penalty allows it.
Cones relax the dual constraint: for C-ReLU it bounds the projections Pi_K(+-M'Theta), or any
M'Theta - X~'gamma with gamma >= 0 (`problem.dual_correlation`). At an optimum Theta = grad f(Z)
closes the gap P - D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvxnn.arrays import Array, array_namespace, double, is_double
from cvxnn.penalties import NoPenalty
from cvxnn.validation import check_array

if TYPE_CHECKING:
    from cvxnn.problems import ConvexProblem

# At lam = 0 a dual point has to satisfy M'Theta = 0; it counts if it does so to this precision.
DUAL_FEASIBILITY = 1e-9
# Distance from a cone, relative to the largest weight, that counts as rounding.
FEASIBILITY, SINGLE_FEASIBILITY = 1e-9, 1e-5


class Multipliers(NamedTuple):
    """The multipliers gamma >= 0 of cone constraints behind a lower bound, all of them (m,).

    block : flat blocks, as `CReLU.flat` orders them: sign, then pattern, then class.
    row : of X, as the problem holds it.
    value : gamma; the dual constraint bounds -+X'D_i Theta^k + sum gamma (2 D_i - I)_row x_row.
    """

    block: np.ndarray
    row: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Certificate:
    """A two-sided bound on the optimal value of a convex program.

    Attributes
    ----------
    objective : value at the weights, which are feasible, in float64; an upper bound.
    lower_bound : value of a feasible dual point; no weights have a smaller objective.
    zero_objective : loss of the zero prediction, which sets the scale of the relative gap where
        the objective itself vanishes.
    scope : the problem that is bounded, in words.
    dual_infeasibility : ||M'Theta|| / (||M|| ||Theta||) at lam = 0, where the dual constraint is
        an equation that holds to rounding only; exactly 0 otherwise. The lower bound takes it into
        account and then holds among weights no larger than these.
    max_violation : largest distance of a block from a half-space of its cone; 0 without cones.
    network_objective : value of the mapped network itself, measured on its own predictions: an
        upper bound for the non-convex problem whatever the patterns are. None without cones.
    radius : at lam = 0 the lower bound holds among weights whose block norms sum to at most this;
        None where it holds among all weights.
    caveats : what is true up to rounding only, in words; empty where both bounds are proven.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    scope: str
    dual_infeasibility: float = 0.0
    max_violation: float = 0.0
    network_objective: float | None = None
    radius: float | None = None
    caveats: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether both bounds hold in real arithmetic, for the numbers as they are stored."""
        return not self.caveats

    @property
    def gap(self) -> float:
        return max(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """gap / max(objective, 1e-8 zero_objective), with 0/0 = 0."""
        return relative_gap(self.objective, self.lower_bound, self.zero_objective)

    def __str__(self) -> str:
        limited = " among weights no larger than these" if self.dual_infeasibility > 0 else ""
        return (
            f"{self.objective:.10g} >= optimal value >= {self.lower_bound:.10g} "
            f"(relative gap {self.relative_gap:.2g}) for {self.scope}{limited}"
        )


def relative_gap(objective: float, lower_bound: float, zero_objective: float) -> float:
    gap = max(objective - lower_bound, 0.0)
    return 0.0 if gap == 0 else gap / max(objective, 1e-8 * zero_objective)


def certify(problem: ConvexProblem, weights: Any, Theta: Array | None = None) -> Certificate:
    """Bound the optimal value of `problem` at feasible weights, in float64 with fresh products.

    `Theta` is a further dual candidate, for instance the best one of a solver's run; the
    gradient at the weights is always tried.
    """
    if Theta is not None:
        from cvxnn.problems import check_problem

        shape = tuple(check_problem(problem).loss.Y.shape)
        Theta = check_array(Theta, "Theta")
        if Theta.ndim == 1 and shape[1] == 1:
            Theta = Theta[:, None]
        if tuple(Theta.shape) != shape:
            raise ValueError(f"Theta must have shape {shape}, got {tuple(Theta.shape)}")
    return certify_with_dual(problem, weights, Theta)[0]


def certify_with_dual(
    problem: ConvexProblem,
    weights: Any,
    Theta: Array | None = None,
    *,
    start: Any = None,
    enough: float = -1.0,
) -> tuple[Certificate, Array]:
    """The certificate, and the dual candidate that gave its lower bound. `start` may speed up the
    bound of Theta (see `problem.dual_correlation`); if that leaves a relative gap of at most
    `enough`, no other candidate is tried."""
    from cvxnn.problems import check_problem  # which certifies nothing by itself

    checked = check_problem(problem).check_weights(weights)
    U = double(checked)
    violation, size = problem.max_violation(U), float(array_namespace(U).max(abs(U)))
    if violation > (FEASIBILITY if is_double(checked) else SINGLE_FEASIBILITY) * size:
        raise ValueError(
            f"weights are outside their cones by {violation:.2g}, so their objective bounds "
            "nothing; problem.project(weights) projects them"
        )
    Z = problem.operator_double.forward(U)
    objective, zero_objective = (
        problem.loss.value(Z) + problem.penalty.value(U),
        problem.loss.zero_value,
    )
    dual, lower_bound, infeasibility = None, -math.inf, 0.0
    if Theta is not None:
        dual = problem.loss.dual_candidate(double(Theta))
        correlation = None if start is None else problem.dual_correlation(dual, start)
        lower_bound, infeasibility = lower_bound_of(problem, dual, correlation)
    if dual is None or relative_gap(objective, lower_bound, zero_objective) > enough:
        gradient = problem.loss.gradient(Z)
        bound, its_infeasibility = lower_bound_of(problem, gradient)
        if bound > lower_bound:
            dual, lower_bound, infeasibility = gradient, bound, its_infeasibility
    if infeasibility > 0:
        lower_bound = max(lower_bound - _error_of_bound(problem, U, dual), 0.0)
    certificate = Certificate(
        objective=objective,
        lower_bound=lower_bound,
        zero_objective=zero_objective,
        scope=problem.scope,
        dual_infeasibility=infeasibility,
        max_violation=violation,
        network_objective=problem.network_objective(U),
    )
    return certificate, dual


def _error_of_bound(problem: ConvexProblem, U: Array, Theta: Array) -> float:
    """What M'Theta = e != 0 may cost at lam = 0: f(M U) >= D + <e, U>, which is no less than
    D - sum ||e_i|| ||U_i||, so that the bound holds among weights no larger than U."""
    xp = array_namespace(U)
    e = problem.operator_double.adjoint(problem.range_complement(Theta))
    return float(xp.sum(xp.sqrt(xp.sum(e * e, axis=1) * xp.sum(U * U, axis=1))))


def lower_bound_of(
    problem: ConvexProblem, Theta: Array, correlation: Array | None = None
) -> tuple[float, float]:
    """The bound that a dual candidate proves, and its infeasibility (lam = 0 only)."""
    if isinstance(problem.penalty, NoPenalty):
        return unpenalised_bound(problem, Theta)
    if correlation is None:
        correlation = problem.dual_correlation(Theta)
    return dual_bound(problem, Theta, correlation), 0.0


def dual_bound(problem: ConvexProblem, Theta: Array, correlation: Array) -> float:
    """The lower bound of the best scaling of Theta; losses here are never negative."""
    limit = problem.penalty.dual_limit(correlation)
    _, value = problem.loss.best_dual(Theta, limit, problem.penalty.conjugate(correlation))
    return max(value, 0.0)


def unpenalised_bound(problem: ConvexProblem, Theta: Array) -> tuple[float, float]:
    """The bound at lam = 0 from the part of Theta outside range(M), and its infeasibility. A
    candidate that does not satisfy M'Theta = 0 to rounding proves nothing but 0."""
    operator = problem.operator_double
    xp = array_namespace(Theta)
    outside = problem.loss.dual_candidate(problem.range_complement(double(Theta)))
    product = operator.adjoint(outside)
    size = float(xp.sqrt(xp.sum(operator.block_norms() ** 2) * xp.sum(outside**2)))
    infeasibility = float(xp.sqrt(xp.sum(product**2))) / size if size > 0 else 0.0
    if infeasibility > DUAL_FEASIBILITY:
        return 0.0, 0.0
    return dual_bound(problem, outside, product), infeasibility
