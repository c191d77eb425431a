"""What is proven of a network over all patterns, and the patterns that pay which a proof met."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from cvxnn import proofs
from cvxnn.bounds.base import GIVEN, Bound, Neurons, PriceBound, PriceMethod
from cvxnn.bounds.choice import NAMES, bound_over_all_patterns, method_of, why_no_method
from cvxnn.certificates import prove
from cvxnn.problems import CReLU
from cvxnn.solvers.results import Solution
from cvxnn.validation import check_choice


def check_prove(value: object) -> str | PriceMethod:
    """A name, or an object that bounds prices."""
    if value is None or value is False:
        return "none"
    if value is True:
        return "auto"
    if isinstance(value, str):
        return check_choice(value, "prove", NAMES)
    if isinstance(value, type) or not callable(getattr(value, "bound", None)):
        raise TypeError(
            f"prove must be a name ({', '.join(NAMES)}) or an object with the method `bound`, "
            f"got {type(value).__name__}"
        )
    return value  # type: ignore[return-value]


def chosen_method(wanted: str | PriceMethod, problem: CReLU) -> PriceMethod | None:
    """The method that a proof will take. None where there is none: nothing can be said about all
    patterns, or the loss does not say how exact it is."""
    if wanted == "none" or proofs.obstacles(problem):
        return None
    return method_of(problem, wanted)


def why_unproven(wanted: str | PriceMethod, problem: CReLU, *, in_time: bool) -> str:
    """Why a run that ended without a bound over all patterns has none, in words; empty where none
    was asked for."""
    if wanted == "none":
        return ""
    why = "; ".join(proofs.obstacles(problem))
    if not why and wanted == "auto":
        why = why_no_method(problem)
    return why or ("the method found no bound" if in_time else "the run ended before its proof")


def over_all_patterns(
    solution: Solution,
    method: PriceMethod,
    *,
    tol: float,
    max_seconds: float,
    return_early: bool,
) -> tuple[Bound | None, Neurons]:
    """The bound that a proof ends with, and directions that it met. With `return_early`, once it
    met a price above (1 + tol) lam, that is better news than any bound, and None comes instead."""
    problem = solution.problem
    witness = _Witness(method, problem.operator.d) if return_early else method
    bound = None
    with suppress(_FoundError):
        bound = bound_over_all_patterns(
            problem,
            problem.check_weights(solution.weights),
            solution.dual,
            witness,
            tol=tol,
            max_seconds=max_seconds,
        )
    found = witness.neurons if isinstance(witness, _Witness) else None
    return bound, Neurons.none(problem.operator.d) if found is None else found


def over_given_patterns(solution: Solution, objective: float) -> Bound:
    """The bound over the patterns of a solution; `objective` is that of its network, for losses
    that do not say how exact they are."""
    certificate = solution.certificate
    above = certificate.network_objective
    return Bound(
        objective=max(certificate.objective, objective) if above is None else above,
        lower_bound=certificate.lower_bound,
        zero_objective=certificate.zero_objective,
        scope=GIVEN,
        proven=certificate.proven,
        dual=np.asarray(solution.dual),
    )


def bounded_by(solution: Solution, dual: np.ndarray) -> Solution:
    """A solution that ended early, with the better bound if that of the program before is one: the
    patterns that are new cost it what they were found to."""
    proof = prove(solution.problem, solution.weights, dual, refuse=False)
    if proof.certificate.lower_bound <= solution.certificate.lower_bound:
        return solution
    return replace(
        solution,
        weights=solution.problem.present(proof.weights),
        certificate=proof.certificate,
        dual=proof.dual,
        multipliers=proof.multipliers,
        output_bias=proof.output_bias,
    )


class _FoundError(Exception):
    """A price above the tolerance was met."""


class _Witness:
    """A method that ends a proof with what it met, if that pays."""

    def __init__(self, method: PriceMethod, d: int) -> None:
        self.method, self.neurons = method, Neurons.none(d)
        self.relaxed_dual = getattr(method, "relaxed_dual", None)

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        return self.method.handles(X, n_outputs)

    def bound(
        self, X: np.ndarray, Theta: np.ndarray, lam: float, *, tol: float, max_seconds: float
    ) -> PriceBound:
        found = self.method.bound(X, Theta, lam, tol=tol, max_seconds=max_seconds)
        if np.any(np.abs(found.neurons.prices) > (1 + tol) * lam):
            self.neurons = found.neurons
            raise _FoundError
        return found
