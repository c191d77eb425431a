"""Bounds over all patterns, checked end to end by a second route.

    price         |T_k'(X u)_+| <= price_k for all ||u|| <= 1 (`prices.py`)
    lower bound   what a dual point of that price proves, in exact integers (`dual_points.py`)
    objective     of the network, on its own predictions, in exact integers (`programs.py`)

What is confirmed holds in real arithmetic for the numbers as they are stored: no two-layer ReLU
network of any width has an objective below the lower bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from cvxnn.bounds.base import EXACT, SDP, Bound
from cvxnn.bounds.evidence import Evidence
from cvxnn.verification.cones import Progress
from cvxnn.verification.dual_points import bound_of_prices
from cvxnn.verification.prices import CONFIRMED, NOT_FINISHED, check_prices
from cvxnn.verification.programs import Program, zero_objective_above
from cvxnn.verification.results import SLACK, Verification

_PROVEN = re.compile(
    r"all patterns \(proven, price <= \(1 \+ ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?|inf)\) lam\)"
)


def verify_bound(
    bound: Bound,
    program: Program,
    objective: float | None = None,
    *,
    columns: str = "",
    max_seconds: float = math.inf,
    report: Callable[[Progress], object] | None = None,
) -> Verification:
    """Check a bound over all patterns on the program that it is about, of which the patterns do not
    matter. `objective` is that of the network, from above, as it was found by other code; without
    it, only the lower bound is checked, and the objective is the claimed one. `columns` is what the
    scope says at its end of the columns of the program.

    A check that does not end within `max_seconds` confirms nothing. `report` is called about once
    for every few thousand leaves.
    """
    if not bound.over_all_patterns or bound.price is None:
        raise ValueError(f"the bound is over {bound.scope}: there is no price to check")
    if not program.cones:
        raise ValueError("bounds over all patterns are about C-ReLU and its networks")
    prices = np.asarray(bound.price, dtype=np.float64)
    dual = np.asarray(bound.dual, dtype=np.float64)
    if dual.shape != program.Y.shape or prices.shape != program.Y.shape[1:]:
        raise ValueError(f"the bound is for {dual.shape} targets, the data have {program.Y.shape}")
    found = check_prices(
        program.X, dual, prices, bound.evidence, max_seconds=max_seconds, report=report
    )
    lower_bound = bound_of_prices(program, dual, prices) if found.status == CONFIRMED else 0.0
    zero, zero_slack = zero_objective_above(program)
    checked = [f"price over all patterns {found.status}: {found.how}"]
    if found.status == CONFIRMED:
        checked.append("lower bound of the dual point with these prices, in exact integers")
    if objective is not None:
        checked.append("the network's own objective, in exact integers")
    else:
        checked.append("no objective: it is the claimed one, as there is no network to measure")
    differences = []
    if found.status != CONFIRMED:
        differences.append(f"price over all patterns: {found.reason}")
    elif not lower_bound >= bound.lower_bound:
        differences.append(
            f"lower_bound: claimed {bound.lower_bound:.10g}, found {lower_bound:.10g}, which is "
            "what the dual point proves"
        )
    if objective is not None and not objective <= bound.objective:
        differences.append(f"objective: claimed {bound.objective:.10g}, found {objective:.10g}")
    if not lower_bound <= bound.objective:
        differences.append(
            f"objective: claimed {bound.objective:.10g}, below the lower bound {lower_bound:.10g}: "
            "it may be that of another lam"
        )
    scope = bound.scope.removesuffix(columns)
    said = scope + columns == bound.scope  # of the columns, by a bound that is not about all
    if not (said and _fits(bound, scope, prices, program.lam)):
        differences.append(f"scope: {bound.scope!r} is not what the evidence is for")
    if not 0 <= bound.zero_objective <= zero * (1 + SLACK) + zero_slack:
        differences.append(
            f"zero_objective: claimed {bound.zero_objective:.10g}, found {zero:.10g}"
        )
    return Verification(
        objective=bound.objective if objective is None else objective,
        lower_bound=lower_bound,
        zero_objective=zero,
        max_violation=0.0,
        network_objective=objective,
        scope=f"ReLU networks of any width, {bound.scope}",
        checked=tuple(checked),
        differences=tuple(differences),
        finished=found.status != NOT_FINISHED,
    )


def _fits(bound: Bound, scope: str, prices: np.ndarray, lam: float) -> bool:
    """Whether the words of the scope are those of this kind of evidence, and of these prices."""
    evidence = Evidence() if bound.evidence is None else bound.evidence
    if evidence.multipliers is not None:
        return scope == SDP
    if evidence.trees is None:
        return scope == EXACT
    found = _PROVEN.fullmatch(scope)
    if found is None or found[1] == "inf":
        return found is not None
    most = (1 + Fraction(found[1])) * Fraction(lam)
    return all(price < math.inf and Fraction(price) <= most for price in prices.tolist())
