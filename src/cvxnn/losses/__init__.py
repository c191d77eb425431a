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

`WithIntercept` makes min_b f(Z + 1 b') a loss of Z, so that an unpenalised output bias is nobody
else's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cvxnn.arrays import Array, to_numpy
from cvxnn.losses.base import Loss, Root, _WeightedLoss
from cvxnn.losses.intercepts import WithIntercept
from cvxnn.losses.likelihoods import LogisticLoss, SoftmaxLoss
from cvxnn.losses.squared import HUBER_DELTA, HuberLoss, SquaredLoss
from cvxnn.validation import check_choice, check_number, check_vector

__all__ = [
    "HUBER_DELTA",
    "LOSSES",
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "Root",
    "SoftmaxLoss",
    "SquaredLoss",
    "WithIntercept",
    "_WeightedLoss",
    "make_loss",
]

LOSSES: dict[str, Callable[..., Any]] = {
    "squared": SquaredLoss,
    "huber": HuberLoss,
    "logistic": LogisticLoss,
    "softmax": SoftmaxLoss,
}


def make_loss(
    name: str,
    Y: Array,
    *,
    sample_weight: Any = None,
    intercept: bool = False,
    huber_delta: float | None = None,
) -> Loss:
    """The loss of that name for targets Y (n, C), weighted row by row, with an output bias that is
    chosen best for any prediction if `intercept` is set."""
    cls = LOSSES[check_choice(name, "loss", LOSSES)]
    settings: dict[str, Any] = {}
    if name == "huber":
        delta = HUBER_DELTA if huber_delta is None else huber_delta
        settings["delta"] = check_number(delta, "huber_delta", minimum=0, strict=True)
    elif huber_delta is not None:
        raise TypeError(f"huber_delta is for loss='huber', the loss is {name!r}")
    if name in _CHECKS:
        _CHECKS[name](to_numpy(Y), intercept)
    row_weight = None
    if sample_weight is not None:
        weight = check_vector(sample_weight, "sample_weight", Y.shape[0])
        if not np.all(weight > 0):
            raise ValueError("sample_weight must be positive: drop rows of weight 0")
        total = weight.sum() * (1 if cls is SoftmaxLoss else Y.shape[1])
        row_weight = weight[:, None] / total
    loss = cls(Y, row_weight, **settings)
    return WithIntercept(loss) if intercept else loss


def _check_signs(Y: np.ndarray, intercept: bool) -> None:
    if not np.all(np.abs(Y) == 1):
        raise ValueError("Y must hold -1 and 1 for the logistic loss")
    if intercept and np.any(np.all(Y[0] == Y, axis=0)):
        raise ValueError("Y has one class only: with an intercept, no finite model is optimal")


def _check_distributions(Y: np.ndarray, intercept: bool) -> None:
    if Y.shape[1] < 2:
        raise ValueError("Y must have a column for each class for the softmax loss, got one column")
    if np.any(Y < 0) or not np.allclose(Y.sum(axis=1), 1.0, rtol=0, atol=1e-6):
        raise ValueError("Y must hold rows of probabilities (one-hot) for the softmax loss")
    if intercept and not np.all(Y.any(axis=0)):
        raise ValueError("Y has a class that never occurs: with an intercept, no finite model is "
                         "optimal")  # fmt: skip


_CHECKS = {"logistic": _check_signs, "softmax": _check_distributions}
