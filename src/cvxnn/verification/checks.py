"""Certificates, checked by another route and without rounding.

`verify` recomputes what a certificate claims from the numbers of the program alone: data X,
pattern bits, targets, row weights, lam. It shares no code with operators, losses, penalties,
cones, kernels or solvers, so that none of them vouches for itself, and it has no slack: sums and
products are exact integers, what is not exact is rounded outward (see `exact.py`). For networks
and many rows, sums over rows are rounded outward as well (see `many_rows.py`). What it confirms
holds in real arithmetic for the numbers as they are stored:

    objective     P = f(sum_i D_i X U_i + 1 b') + g(U), for C-ReLU with V_i - W_i and g of both
    lower bound   D = -f*(tau T) - g*(tau M'T), of a tau for which tau T is dual feasible
    cones         the signs of (2 D_i - I) X v; gamma >= 0 relaxes the dual constraint to
                  ||tau (-+X'D_i T^k + sum gamma (2 D_i - I)_row x_row)|| <= lam
    network       f(sum_i (X V_i)_+ - (X W_i)_+ + 1 b') + g, which knows no patterns

Losses, penalties and networks are valued in `programs.py`, dual points in `dual_points.py`; bounds
over all patterns are checked in `all_patterns.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import to_numpy
from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate, Multipliers
from cvxnn.generation.rounds import Training
from cvxnn.networks import TwoLayerNetwork
from cvxnn.protocols import Problem
from cvxnn.solvers.results import Solution
from cvxnn.validation import check_array, check_problem
from cvxnn.verification.all_patterns import verify_bound
from cvxnn.verification.cones import Progress
from cvxnn.verification.dual_points import EXACT, ROUNDED, bound_of
from cvxnn.verification.exact import Exact, roots
from cvxnn.verification.many_rows import is_large, value_of, zero_objective_of
from cvxnn.verification.programs import (
    Program,
    Scales,
    good_bias,
    largest_violation,
    loss_above,
    network_value,
    penalty_above,
    summed_outputs,
    zero_objective_above,
)
from cvxnn.verification.results import SLACK, Verification

# Distance from a cone that counts as rounding where a caveat says so, relative to the largest
# weight.
FEASIBILITY, SINGLE_FEASIBILITY = 1e-8, 1e-5


def verify(
    result: Solution | Training | Bound,
    problem: Problem | None = None,
    *,
    max_seconds: float | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> Verification:
    """Check what was certified by a route that shares no code with the one it came by.

    Parameters
    ----------
    result : a `Solution`, whose certificate is checked; a `Training`, whose bound over all patterns
        is checked as well (`over_all`); or a `Bound` over all patterns, perhaps from a file.
    problem : what a `Bound` is about. Its patterns do not matter.
    max_seconds : for the check of a bound over all patterns; one that is not finished by then
        confirms nothing.
    callback : called now and then during that check, with the number of `leaves` that are proven
        and the `seconds` since its beginning.

    Objective, lower bound, signs of the cones and the value of the ReLU network are recomputed
    from the problem's data, the weights, the output bias, the dual point and its multipliers, in
    integers that do not round. The data are those the problem is posed on, with column of ones
    and unit-norm columns where asked for.

    The certificate is confirmed if the weights are in their cones, the objective is not above the
    claimed one, and the bound that the dual point proves not below the claimed one: there is no
    slack. Only where the certificate has caveats, cones and objective may be off by rounding. At
    lam = 0 the bound is one among weights whose block norms, in units of columns, sum to at most
    the certificate's radius.

    A bound over all patterns rests on the price of its dual point. That is proven again, from the
    saved evidence: a tree of cones leaf by leaf, multipliers, or nothing but the data.

    Meant for n up to a few thousand. The cost is that of a few passes over the data. A C-ReLU
    solution without multipliers has them computed, by non-negative least squares with a d x n
    matrix, at most two for each pattern and class.
    """
    seconds = math.inf if max_seconds is None else max_seconds
    if isinstance(result, Bound):
        if problem is None:
            raise TypeError("a bound is checked on its problem: verify(bound, problem)")
        program = Program.of(check_problem(problem))
        return verify_bound(result, program, max_seconds=seconds, report=callback)
    if problem is not None:
        raise TypeError("problem is given, but not a bound")
    if isinstance(result, Solution):
        return _verify_solution(result)
    if not isinstance(result, Training):
        raise TypeError(
            "result must be a Solution, such as a point of a path, a Training or a Bound, got "
            f"{type(result).__name__}"
        )
    found = _verify_solution(result.solution)
    if not result.bound.over_all_patterns:
        return found
    program, objective = Program.of(result.problem), found.network_objective
    over_all = verify_bound(result.bound, program, objective, max_seconds=seconds, report=callback)
    return replace(found, over_all=over_all)


def _verify_solution(solution: Solution) -> Verification:
    """Check the certificate of a solution."""
    program, claim = Program.of(solution.problem), solution.certificate
    U, single = _weights(program, solution.weights)
    block, k = np.nonzero(np.any(U != 0, axis=1))
    columns = U[block, :, k].T
    pre = Exact.of(program.X) @ Exact.of(columns)
    p = program.mask.shape[1]
    on, sign = program.mask[:, block % p], np.where(block < p, 1, -1)
    Z = summed_outputs(program, np.where(on, pre.ints, 0) * sign, k, pre.exponent)
    bias = good_bias(program, Z, solution.output_bias)
    penalty, sizes = penalty_above(program, U), Exact.of(columns * program.units[:, None])
    size = roots((sizes * sizes).sum(axis=0))
    objective = (loss_above(program, Z + bias) + penalty).above()
    lower_bound, how = bound_of(
        program, solution.dual, solution.multipliers, claim.radius, size.sum().above()
    )
    network_objective, violation = None, 0.0
    checked = ["objective, by one product a pattern, in exact integers", f"lower bound, {how}"]
    if program.cones:
        Z = summed_outputs(program, np.where(pre.ints > 0, pre.ints, 0) * sign, k, pre.exponent)
        network_objective = (loss_above(program, Z + bias) + penalty).above()
        violation = largest_violation(
            program, Exact(np.where(on, -pre.ints, pre.ints), pre.exponent)
        )
        checked += ["cones, row by row", "the ReLU network's own objective, without patterns"]
    rounding = slack = 0.0
    if claim.caveats:
        rounding = (SINGLE_FEASIBILITY if single else FEASIBILITY) * np.abs(U).max(initial=0.0)
        slack = SLACK
        checked.append(f"cones and objective up to rounding only: {'; '.join(claim.caveats)}")
    zero, zero_slack = zero_objective_above(program)
    found = Verification(
        objective=objective,
        lower_bound=lower_bound,
        zero_objective=zero,
        max_violation=violation,
        network_objective=network_objective,
        scope=program.scope,
        checked=tuple(checked),
    )
    differences = _differences(found, claim, size.sum().below(), zero_slack, rounding, slack)
    return replace(found, differences=differences)


def verify_network(
    network: TwoLayerNetwork,
    program: Program,
    dual: ArrayLike,
    certificate: Certificate,
    *,
    scales: Scales | None = None,
    multipliers: Multipliers | None = None,
) -> Verification:
    """Check, by the same route, what a certificate says of a network: that its objective, measured
    on its own predictions, is not above the claimed one, that the dual point proves the claimed
    lower bound on that of `program`, and that this program is over the patterns which its neurons
    have: over other patterns, any bound would be possible. The network need not come from a solver;
    it may be pruned, improved, or read from a file. It may take raw columns and targets, if
    `scales` are those of the program.
    """
    value = value_of(network, program, scales)
    if value.rounded and (value.unmatched or not value.objective <= certificate.objective):
        value = network_value(network, program, scales)
    args = program, dual, multipliers, certificate.radius, value.size
    lower_bound, how = bound_of(*args, rounded=is_large(program))
    if is_large(program) and not lower_bound >= certificate.lower_bound:
        lower_bound, how = bound_of(*args)
    zero, zero_slack = zero_objective_of(program)
    found = Verification(
        objective=value.objective,
        lower_bound=lower_bound,
        zero_objective=zero,
        max_violation=0.0,
        network_objective=value.objective if program.cones else None,
        scope=program.scope,
        checked=(
            "the network's own objective, on its predictions"
            + (ROUNDED if value.rounded else EXACT),
            f"lower bound, {how}",
            "patterns of the neurons, row by row",
        ),
    )
    differences = _differences(found, certificate, value.size, zero_slack)
    if value.unmatched:
        differences += (
            f"patterns: {value.unmatched} neurons have a pattern that is not one of the program's",
        )
    return replace(found, differences=differences)


def _differences(
    found: Verification,
    claim: Certificate,
    size: float,
    zero_slack: float,
    rounding: float = 0.0,
    slack: float = 0.0,
) -> tuple[str, ...]:
    """The claims of the certificate that are not confirmed. One that is weaker than the truth is
    true; one that is NaN is not, since comparisons with it fail."""
    expected = {
        "objective": found.objective <= claim.objective + slack * found.objective,
        "lower_bound": found.lower_bound >= claim.lower_bound,
        # too low a scale only makes the relative gap larger: it is not a false claim
        "zero_objective": claim.zero_objective >= 0
        and claim.zero_objective - found.zero_objective
        <= SLACK * found.zero_objective + zero_slack,
        "max_violation": found.max_violation <= rounding,
    }
    if found.network_objective is not None and claim.network_objective is not None:
        expected["network_objective"] = found.network_objective <= claim.network_objective
    differences = []
    for name, holds in expected.items():
        if not holds:
            claimed, true = getattr(claim, name), getattr(found, name)
            differences.append(
                f"{name}: claimed {claimed:.10g}, found {true:.10g}{_MEANING.get(name, '')}"
                f" ({abs(claimed - true):.2g} too {'high' if claimed > true else 'low'})"
            )
    if found.lower_bound > max(found.objective, claim.objective):
        differences.append(
            "the lower bound found is above the objective found: one of them is wrong"
        )
    if claim.radius is not None and not size <= claim.radius * (1 + SLACK) < math.inf:
        differences.append(f"radius: claimed {claim.radius:.10g}, the weights have {size:.10g}")
    if claim.scope != found.scope:
        differences.append(f"scope: claimed {claim.scope!r}, found {found.scope!r}")
    return tuple(differences)


_MEANING = {
    "lower_bound": ", which is what the dual point proves",
    "max_violation": ": outside the cones an objective bounds nothing",
}


def _weights(program: Program, weights: ArrayLike) -> tuple[np.ndarray, bool]:
    """Blocks (p, d, C), for C-ReLU (2p, d, C) with those of V first; whether they are float32."""
    parts = weights if program.cones and isinstance(weights, (tuple, list)) else [weights]
    U = np.concatenate([to_numpy(check_array(part, "weights")) for part in parts])
    p = program.mask.shape[1] * (2 if program.cones else 1)
    shape = (p, program.X.shape[1], program.Y.shape[1])
    if U.shape != shape:
        raise ValueError(f"weights must have shape {shape} in all, got {U.shape}")
    return U.astype(np.float64), U.dtype == np.float32
