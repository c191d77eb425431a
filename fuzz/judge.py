"""Whether what a solution claims is true, in extended precision.

A certificate without caveats claims that

- `objective` is no less than P at the weights and their output bias, which are in their cones;
- `network_objective` is no less than the objective of the network itself;
- `lower_bound` is no more than the best bound of the dual point and its multipliers. Hence it is
  no more than any value that is attained: that of the weights, or of a conic solver's.

Verdicts, the worst first:

    false bound   an attained value is below the lower bound, or above what is claimed of it
    outside       the weights are outside their cones
    unproven      the dual point does not prove the lower bound
    caveats       the certificate claims less than it has to
    ok
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flint import arb
from scipy.optimize import minimize

from fuzz import conic, exact
from fuzz.exact import Program

FAILURES = ("false bound", "outside", "unproven", "caveats", "not confirmed", "error")


@dataclass(frozen=True)
class Judgement:
    """The verdict with its reasons, and what it was derived from.

    value : P at the weights, rounded.
    bound : the best bound of the dual point, rounded; None if it could not be judged.
    rigour : (bound - lower_bound) / bound, what the certificate has given away.
    judged : what was compared, in words.
    """

    verdict: str
    reasons: tuple[str, ...]
    value: float
    bound: float | None
    rigour: float | None
    judged: tuple[str, ...]


@dataclass
class _Findings:
    """Verdicts and comparisons as they come."""

    verdicts: list[tuple[str, str]] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)

    def at_most(self, small: Any, large: Any, verdict: str, reason: str, judged: str) -> None:
        """Note the verdict if small > large for certain."""
        self.judged.append(judged)
        if small > large:
            excess = (small - large) / abs(large) if not large.is_zero() else small - large
            self.verdicts.append((verdict, f"{reason} by {float(excess):.2g}"))

    def worst(self) -> str:
        found = {verdict for verdict, _ in self.verdicts}
        return next((verdict for verdict in FAILURES if verdict in found), "ok")


def judge(solution: Any, *, with_conic: bool = False) -> Judgement:
    program, claim = Program.of(solution.problem), solution.certificate
    found = _Findings()
    numbers = [claim.objective, claim.lower_bound]
    if any(math.isnan(x) for x in numbers) or math.isinf(claim.lower_bound):
        return Judgement("error", (f"certificate of {numbers}",), math.nan, None, None, ())
    if claim.caveats and not _may_have_caveats(solution.problem):
        found.verdicts.append(("caveats", "; ".join(claim.caveats)))
    lower, objective = arb(claim.lower_bound), arb(claim.objective)
    found.at_most(lower, objective, "false bound", "bound above objective", "certificate")
    value = _judge_weights(program, solution, lower, objective, found)
    if with_conic:
        _judge_by_conic(program, solution, lower, found)
    bound = _judge_dual(program, solution, lower, found)
    rigour = None
    if bound is not None and bound > 0:
        rigour = float((bound - lower) / bound)
    return Judgement(
        verdict=found.worst(),
        reasons=tuple(f"{verdict}: {reason}" for verdict, reason in found.verdicts),
        value=float(value),
        bound=None if bound is None else float(bound),
        rigour=rigour,
        judged=tuple(found.judged),
    )


def _may_have_caveats(problem: Any) -> bool:
    """Kept singular cones may."""
    return problem.kind == "C-ReLU" and bool(np.any(problem.cones.singular))


def _judge_weights(
    program: Program, solution: Any, lower: Any, objective: Any, found: _Findings
) -> Any:
    """P at the weights."""
    claim, U = solution.certificate, exact.blocks(program, solution.weights)
    Z, penalty = exact.predictions(program, U), exact.penalty(program, U)
    b, chosen_by_us = _output_bias(program, solution, Z)
    value = exact.loss(program, Z, b) + penalty
    feasible = True
    if program.cones:
        inside = exact.neurons(program, U)
        feasible = bool(exact.in_cones(program, inside).all())
        found.judged.append("cones")
        if not feasible and claim.proven:
            found.verdicts.append(("outside", "weights outside their cones"))
        if claim.network_objective is not None and not chosen_by_us:
            network = exact.loss(program, exact.network_predictions(program, inside), b) + penalty
            claimed = arb(claim.network_objective)
            found.at_most(network, claimed, "false bound", "network above its claim", "network")
    if feasible and _within_radius(program, claim, U):
        found.at_most(lower, value, "false bound", "bound above the value attained", "value")
    if feasible and not chosen_by_us and math.isfinite(claim.objective):
        found.at_most(value, objective, "false bound", "objective below the value", "objective")
    return value


def _within_radius(program: Program, claim: Any, U: np.ndarray) -> bool:
    if claim.radius is None:
        return True
    return math.isinf(claim.radius) or bool(exact.size(program, U) <= arb(claim.radius))


def _output_bias(program: Program, solution: Any, Z: exact.Rows) -> tuple[Any, bool]:
    """The bias of the solution, or one that is as good up to rounding; whether it is only that."""
    if not program.output_bias:
        return None, False
    if solution.output_bias is not None:
        return np.asarray(solution.output_bias).tolist(), False
    if program.loss == "squared":
        return exact.best_mean(program, Z), False
    shape = program.Y.shape
    plain = np.array([float(z) for row in Z for z in row]).reshape(shape)
    return _good_bias(program, plain).tolist(), True


def _good_bias(program: Program, Z: np.ndarray) -> np.ndarray:
    """A minimiser of f(Z + 1 b') in floats; any b attains a value."""
    Y, w = program.Y, program.w[:, None] / program.w.max()

    def value_and_slope(b: np.ndarray) -> tuple[float, np.ndarray]:
        F = Z + b
        if program.loss == "huber":
            inner = np.clip(F - Y, -program.delta, program.delta)
            return float(np.sum(w * inner * (F - Y - inner / 2))), np.sum(w * inner, axis=0)
        if program.loss == "logistic":
            slope = -Y * np.exp(-np.logaddexp(0.0, Y * F))
            return float(np.sum(w * np.logaddexp(0.0, -Y * F))), np.sum(w * slope, axis=0)
        lse = np.logaddexp.reduce(F, axis=1, keepdims=True)
        return float(np.sum(w * Y * (lse - F))), np.sum(w * (np.exp(F - lse) - Y), axis=0)

    start = (Y - Z).mean(axis=0) if program.loss == "huber" else -Z.mean(axis=0)
    return minimize(value_and_slope, start, jac=True, method="BFGS", options={"gtol": 1e-14}).x


def _judge_by_conic(program: Program, solution: Any, lower: Any, found: _Findings) -> None:
    claim = solution.certificate
    if claim.dual_infeasibility > 0 and claim.radius is None:
        return  # a bound among weights of some size, but nobody knows which
    answer = conic.attained(program)
    if answer is None:
        return
    U, b = answer
    if program.cones and not exact.in_cones(program, exact.neurons(program, U)).all():
        return
    if _within_radius(program, claim, U):
        value = exact.loss(program, exact.predictions(program, U), b) + exact.penalty(program, U)
        found.at_most(lower, value, "false bound", "bound above a conic solver's value", "conic")


def _judge_dual(program: Program, solution: Any, lower: Any, found: _Findings) -> Any:
    """The best bound of the dual point, or None where what it needs was not handed out."""
    claim, multipliers = solution.certificate, solution.multipliers
    if program.penalty == "none" and claim.radius is None and lower > 0:
        found.judged.append("no radius")
        return None
    T = exact.dual_point(program, solution.dual)
    try:
        bound = exact.dual_bound(program, T, multipliers, claim.radius).max(arb(0))
    except ValueError as error:  # a negative multiplier
        found.verdicts.append(("unproven", str(error)))
        return None
    if program.cones and multipliers is None and lower > bound:
        found.judged.append("no multipliers")
        return None
    verdict = "unproven" if claim.proven else "ok"
    found.at_most(lower, bound, verdict, "bound above what the dual point proves", "dual")
    return bound
