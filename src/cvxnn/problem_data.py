"""What the problems with the same data share, at every penalty strength."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cvxnn.least_squares import KernelFactor, RangeComplement
from cvxnn.losses import Loss
from cvxnn.operators import PatternOperator
from cvxnn.patterns import Patterns
from cvxnn.penalties import Penalty
from cvxnn.threads import cached_property


@dataclass(frozen=True, eq=False)
class ProblemData:
    """Everything about a C-GReLU problem but lam. A C-ReLU problem has the data of its gated
    relaxation, and cones beside them.

    patterns, operator : the activation patterns, and the expanded matrix M that they define.
    loss, loss_name : the loss, bound to its targets.
    penalty, penalty_name : the penalty as it was chosen, whatever its strength.
    bias, output_bias, normalize : the settings of the problem of these names.
    flat_targets : whether the targets came 1-dimensional.
    column_scale : (d,), what columns were divided by; ones if not.
    """

    patterns: Patterns
    operator: PatternOperator
    loss: Loss
    loss_name: str
    penalty: Penalty
    penalty_name: str
    bias: bool
    output_bias: bool
    normalize: bool
    flat_targets: bool
    column_scale: np.ndarray

    def with_patterns(self, patterns: Patterns) -> ProblemData:
        operator = self.operator.with_patterns(patterns.mask)
        return replace(self, patterns=patterns, operator=operator)

    @cached_property
    def operator_double(self) -> PatternOperator:
        """The operator in float64, which certificates are computed with."""
        return self.operator.in_double()

    @cached_property
    def kernel_factor(self) -> KernelFactor:
        """The factored kernel M M'; see `KernelFactor.fits`."""
        return KernelFactor(self.operator_double)

    @cached_property
    def range_complements(self) -> dict[str, RangeComplement]:
        """By method: a short time limit asks for another one."""
        return {}
