"""Convex losses f(Z) of the predictions Z (n, C), bound to their targets and weights.

    squared    1/(2s) sum w (z - y)^2            s = C sum w
    huber      1/s sum w h(z - y)                h(r) = r^2/2 up to |r| = delta, linear beyond
    logistic   1/s sum w log(1 + exp(-y z))      y = +-1
    softmax    1/s sum w sum_k y_k (log sum exp(z) - z_k)   rows y of probabilities, s = sum w

A loss gives its value and gradient, the Bregman divergence that a line search tests (computed
without cancellation), a square root of its Hessian for Newton's method, and its side of the dual
problem: the lower bound

    D(tau) = -f*(tau Theta) - tau^2 q

of a scaling tau of a dual candidate Theta, where the penalty says how far tau may go (`limit`)
and what quadratic it adds (`q`). Theta = grad f(Z) at the optimum gives the optimal value.

What a certificate claims is computed apart from that, with a bound on every rounding error (see
rounding.py): `value_above` from predictions with their errors, `dual_below` from a `dual_point`,
which satisfies the equations of the dual exactly. A loss that declares its rounding has all three.

Users choose a loss before there are targets: by its name, or by an object with its settings such
as `Huber(delta=0.5)`, which `make_loss` binds to the targets.

`WithIntercept` makes min_b f(Z + 1 b') a loss of Z, so that no other module has to know about the
unpenalised output bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array
from cvxnn.losses.base import Loss, Root, WeightedLoss
from cvxnn.losses.choices import LOSSES, Huber, Logistic, LossChoice, Softmax, Squared
from cvxnn.losses.intercepts import WithIntercept
from cvxnn.losses.likelihoods import LogisticLoss, SoftmaxLoss
from cvxnn.losses.squared import HUBER_DELTA, HuberLoss, SquaredLoss
from cvxnn.ranks import ALONE, Ranks, failing_together
from cvxnn.validation import (
    check_choice,
    check_number,
    check_object,
    check_vector,
    name_of,
    offers,
)

__all__ = [
    "HUBER_DELTA",
    "LOSSES",
    "Huber",
    "HuberLoss",
    "Logistic",
    "LogisticLoss",
    "Loss",
    "LossChoice",
    "Root",
    "Softmax",
    "SoftmaxLoss",
    "Squared",
    "SquaredLoss",
    "WeightedLoss",
    "WithIntercept",
    "choose_loss",
    "make_loss",
]


def choose_loss(loss: str | LossChoice, huber_delta: float | None = None) -> LossChoice:
    """The object behind a name; an object is taken as it is."""
    if isinstance(loss, str):
        chosen = LOSSES[check_choice(loss, "loss", LOSSES)]()
        if loss == "huber" and huber_delta is not None:
            return Huber(check_number(huber_delta, "huber_delta", minimum=0, strict=True))
    else:
        chosen = check_object(loss, "loss", "bind", LOSSES)
    if huber_delta is not None:
        raise TypeError(f"huber_delta is for loss='huber', the loss is {loss!r}")
    return chosen


def make_loss(
    loss: str | LossChoice,
    Y: Array,
    *,
    sample_weight: ArrayLike | None = None,
    intercept: bool = False,
    huber_delta: float | None = None,
    across: Ranks = ALONE,
) -> Loss:
    """The loss for targets Y (n, C), weighted row by row, with an output bias that is chosen best
    for any prediction if `intercept` is set. Other ranks may have further rows."""
    choice = choose_loss(loss, huber_delta)
    with failing_together(across):
        if sample_weight is not None:
            sample_weight = check_vector(sample_weight, "sample_weight", Y.shape[0])
            if not np.all(sample_weight > 0):
                raise ValueError("sample_weight must be positive: drop rows of weight 0")
        bound: Any = choice.bind(Y, sample_weight)
    if across.size > 1:
        bound = _over_ranks(bound, choice, sample_weight, across)
    bound.check_targets(intercept)
    if intercept and not hasattr(bound, "best_intercept"):
        raise ValueError(
            f"loss {name_of(choice, LOSSES)!r} has no output bias: it lacks the methods "
            "best_intercept and balance"
        )
    return WithIntercept(bound) if intercept else bound


def _over_ranks(
    bound: Any, choice: LossChoice, sample_weight: np.ndarray | None, across: Ranks
) -> Any:
    """The loss with weights that are shares of the rows of all ranks."""
    if not offers(bound, "sums_ranks"):
        raise TypeError(
            f"loss {name_of(choice, LOSSES)!r} does not declare `sums_ranks`: it may sum over the "
            "rows of one process alone"
        )
    n, C = bound.Y.shape
    weight = np.ones(n) if sample_weight is None else sample_weight
    whole = float(across.sum(weight.sum())) * (1 if bound.coupled else C)
    other = bound.with_rows(bound.Y, weight[:, None] / whole)
    other.across = across
    return other
