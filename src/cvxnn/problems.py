"""Convex training problems: operator + loss + penalty.

`CGReLU` is the paper's C-GReLU (section 2.2), the gated ReLU network as a group lasso:

    min_U  f(sum_i D_i X U_i) + lam sum_{i,k} ||U_i^k||_2
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np

from cvxnn.arrays import Array, array_namespace, double, like, to_numpy
from cvxnn.least_squares import MAX_KERNEL_ROWS, KernelFactor, range_complement
from cvxnn.losses import Loss, make_loss
from cvxnn.networks import GatedReLUNetwork
from cvxnn.operators import ExpandedMatrix
from cvxnn.patterns import Patterns, column_norms
from cvxnn.penalties import PENALTIES, Penalty, make_penalty
from cvxnn.validation import check_features, check_flag, check_number, check_targets


class CGReLU:
    """C-GReLU: a gated ReLU network as a convex program.

    Parameters
    ----------
    X : (n, d) data; NumPy, torch or any array-API array, lists, DataFrames. float32 data are
        solved in float32 (and certified in float64), everything else in float64.
    Y : (n,) or (n, C) targets.
    patterns : `Patterns` of this X.
    lam : penalty strength >= 0, exactly as in the formula; nothing is rescaled.
    loss : "squared", 1/(2nC) ||Z - Y||^2.
    penalty : "neuron" (the paper's), "feature", "l1", "l2" (lam/2 ||U||^2) or "none".
    bias : give each neuron an intercept, a column of ones inside its group.
    normalize : solve for columns of unit norm, the paper's setting. The certificate then bounds
        that problem; networks are mapped back exactly and work on the raw X.

    Weights have shape (p, d, C), or (p, d + 1, C) with the intercepts last, in the problem's own
    units: those of the unit-norm columns if `normalize` is set.
    """

    def __init__(
        self,
        X: Any,
        Y: Any,
        patterns: Patterns,
        lam: float,
        *,
        loss: str = "squared",
        penalty: str = "neuron",
        bias: bool = False,
        normalize: bool = False,
    ) -> None:
        X = check_features(X)
        Y, self.flat_targets = check_targets(Y, X)
        self.bias = check_flag(bias, "bias")
        self.normalize = check_flag(normalize, "normalize")
        self.lam = check_number(lam, "lam", minimum=0)
        self.penalty_name = penalty
        self.penalty: Penalty = make_penalty(penalty, self.lam)
        self.loss: Loss = make_loss(loss, Y)
        if not isinstance(patterns, Patterns):
            raise TypeError(
                f"patterns must be Patterns, got {type(patterns).__name__}; "
                "see sample_patterns, Patterns.from_gates and Patterns.from_mask"
            )
        patterns.check_belong_to(X)
        self.patterns = patterns
        X, self.column_scale = _design_matrix(X, self.bias, self.normalize)
        self.operator = ExpandedMatrix(X, patterns.mask)

    @property
    def weight_shape(self) -> tuple[int, int, int]:
        return (self.operator.p, self.operator.d, self.loss.Y.shape[1])

    @property
    def scope(self) -> str:
        """What a certificate of this problem speaks about."""
        p = len(self.patterns)
        columns = " on unit-norm columns" if self.normalize else ""
        return f"C-GReLU over {p} given pattern{'s' if p > 1 else ''}{columns}"

    def objective(self, U: Any) -> float:
        """f(M U) + g(U)."""
        U = self.check_weights(U)
        return self.loss.value(self.operator.forward(U)) + self.penalty.value(U)

    def with_lam(self, lam: float) -> CGReLU:
        """The same problem at another penalty strength; data and operator are shared."""
        other = copy.copy(self)
        other.lam = check_number(lam, "lam", minimum=0)
        other.penalty = make_penalty(self.penalty_name, other.lam)
        return other

    def network(self, U: Any) -> GatedReLUNetwork:
        """The gated network with these weights, in the units of the raw X (theorem 2.2)."""
        U = to_numpy(double(self.check_weights(U))) / self.column_scale[None, :, None]
        return GatedReLUNetwork.from_convex(
            self.patterns, U, bias=self.bias, flat_output=self.flat_targets
        )

    def zero_weights(self) -> Array:
        return like(self.operator.X, np.zeros(self.weight_shape))

    def check_weights(self, U: Any) -> Array:
        """U as an array like the problem's data; (p, d) is taken as (p, d, 1)."""
        U = like(self.operator.X, U)
        xp = array_namespace(U)
        if U.ndim == 2 and self.weight_shape[2] == 1:
            U = U[:, :, None]
        if tuple(U.shape) != self.weight_shape:
            raise ValueError(f"weights must have shape {self.weight_shape}, got {tuple(U.shape)}")
        if not bool(xp.all(xp.isfinite(U))):
            raise ValueError("weights hold NaN or infinity")
        return U

    @cached_property
    def operator_double(self) -> ExpandedMatrix:
        """The operator in float64, which certificates are computed with."""
        return self.operator.in_double()

    @cached_property
    def kernel_factor(self) -> KernelFactor | None:
        """The factored kernel M M', or None where n is too large for it."""
        small = self.operator.n <= MAX_KERNEL_ROWS
        return KernelFactor(self.operator_double) if small else None

    def range_complement(self, B: Array) -> Array:
        """The part of B (n, C) outside range(M)."""
        return range_complement(self.operator_double, self.kernel_factor, B)


def lambda_max(problem: CGReLU) -> float:
    """The smallest lam for which the zero model is optimal: the dual norm of M' grad f(0)."""
    name = problem.penalty_name
    if name in ("l2", "none"):
        raise ValueError(f"penalty {name!r} has no lambda_max: no strength gives the zero model")
    xp = array_namespace(problem.loss.Y)
    gradient = problem.loss.gradient(xp.zeros_like(double(problem.loss.Y)))
    correlation = problem.operator_double.adjoint(gradient)
    return float(xp.max(PENALTIES[name](1.0).dual_norm(correlation)))  # type: ignore[attr-defined]


def _design_matrix(X: Array, bias: bool, normalize: bool) -> tuple[Array, np.ndarray]:
    """X with its column of ones and unit-norm columns, where asked for, and the column scale."""
    xp = array_namespace(X)
    if bias:
        X = xp.concat([X, xp.ones_like(X[:, :1])], axis=1)
    if not normalize:
        return X, np.ones(X.shape[1])
    scale = column_norms(to_numpy(X))
    return X / like(X, scale)[None, :], scale
