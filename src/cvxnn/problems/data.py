"""What the problems with the same data share, at every penalty strength, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array, divide_columns, double, has_float64, on_device, to_numpy, with_ones
from cvxnn.devices import Device
from cvxnn.least_squares import KernelFactor, RangeComplement
from cvxnn.losses import LOSSES, Loss, LossChoice, make_loss
from cvxnn.operators import ExpandedMatrix, PatternOperator, ShardedMatrix, expanded_matrix
from cvxnn.patterns import Patterns, unit_scale, warn_about_small
from cvxnn.penalties import PENALTIES, Penalty
from cvxnn.problems.columns import Columns, FewerColumns, PrincipalAxes, span_bound
from cvxnn.problems.sizes import check_size
from cvxnn.ranks import ALONE, Ranks, failing_together
from cvxnn.sharded import taken_apart
from cvxnn.threads import cached_property
from cvxnn.validation import check_flag, check_targets, name_of


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
        operator = self.operator.with_patterns(patterns.bits)
        return replace(self, patterns=patterns, operator=operator)

    @cached_property
    def operator_double(self) -> PatternOperator:
        """The operator in float64, which certificates are computed with."""
        return self.operator.in_double()

    @cached_property
    def on_host(self) -> ProblemData:
        """The same data as NumPy arrays."""
        if self.operator.in_numpy:
            return self
        operator = expanded_matrix(to_numpy(self.operator.rows()), self.patterns.bits)
        loss: Any = self.loss
        return replace(self, operator=operator, loss=loss.with_targets(to_numpy(loss.Y)))

    def placed(self, device: Device, *, single: bool) -> ProblemData:
        """The same data on a device, in float32 if `single` is set or where it has nothing wider.
        They stay there as long as these do, for the next run."""
        key = device, single
        if key not in self._placed:
            X, loss = to_numpy(self.operator.rows()), cast(Any, self.loss)
            X = device.put(X.astype(np.float32, copy=False) if single else X)
            self._placed[key] = replace(
                self,
                operator=expanded_matrix(X, self.patterns.bits),
                loss=loss.with_targets(device.put(double(to_numpy(loss.Y)))),
            )
        return self._placed[key]

    @cached_property
    def _placed(self) -> dict[tuple[Device, bool], ProblemData]:
        """On devices, those in float32 and others."""
        return {}

    def __getstate__(self) -> dict[str, object]:
        """Without what is in use here only: data in other columns, and on devices, which other
        processes may not have."""
        return {k: value for k, value in vars(self).items() if k not in ("_placed", "_changed")}

    @cached_property
    def span(self) -> int:
        """A bound of the dimension of the span of the rows; see `span_bound`."""
        return span_bound(self.operator.rows())

    @cached_property
    def fewer_columns(self) -> FewerColumns:
        """Coordinates in the span of the rows; see `FewerColumns.pays`."""
        return FewerColumns(self.operator_double.rows())

    @cached_property
    def principal_axes(self) -> PrincipalAxes:
        """See `PrincipalAxes.pays`."""
        return PrincipalAxes(self.operator_double.rows())

    @cached_property
    def _changed(self) -> WeakKeyDictionary[Columns, ProblemData]:
        """In columns that are still in use."""
        return WeakKeyDictionary()

    def in_columns(self, columns: Columns) -> ProblemData:
        """The same data in these coordinates."""
        if columns not in self._changed:
            operator = ExpandedMatrix(columns.Z, self.patterns.bits, share=columns.share)
            scale = np.ones(operator.d)
            self._changed[columns] = replace(self, operator=operator, column_scale=scale)
        return self._changed[columns]

    @cached_property
    def kernel_factor(self) -> KernelFactor:
        """The factored kernel M M'; see `KernelFactor.fits`."""
        return KernelFactor(self.operator_double)

    @cached_property
    def range_complements(self) -> dict[str, RangeComplement]:
        """By method: a short time limit asks for another one."""
        return {}


def make_data(
    X: Array,
    Y: ArrayLike,
    patterns: Patterns,
    loss: LossChoice,
    penalty: Penalty,
    *,
    bias: bool,
    output_bias: bool,
    normalize: bool,
    sample_weight: ArrayLike | None,
) -> ProblemData:
    """The data of a problem, checked. The size is checked before anything large is made."""
    bias, normalize = check_flag(bias, "bias"), check_flag(normalize, "normalize")
    output_bias = check_flag(output_bias, "output_bias")
    X, across = taken_apart(X)
    _check_has_float64(X)
    with failing_together(across):
        Y, flat_targets = check_targets(Y, X, empty=across.size > 1)
        check_patterns(patterns).check_belong_to(X)
        check_size(X, len(patterns), cones=False, copies=bias + normalize)
    widths = across.gather(Y.shape[1])
    if len(set(widths)) > 1:
        raise ValueError(f"Y has different numbers of columns by process: {widths}")
    bound = make_loss(loss, Y, sample_weight=sample_weight, intercept=output_bias, across=across)
    X, column_scale = design_matrix(X, bias, normalize, across)
    operator = expanded_matrix(X, patterns.bits)
    return ProblemData(
        patterns=patterns,
        operator=operator if across.size == 1 else ShardedMatrix(operator, across),
        loss=bound,
        loss_name=name_of(loss, LOSSES),
        penalty=penalty,
        penalty_name=name_of(penalty, PENALTIES),
        bias=bias,
        output_bias=output_bias,
        normalize=normalize,
        flat_targets=flat_targets,
        column_scale=column_scale,
    )


def _check_has_float64(X: Array) -> None:
    """The problem that is certified is in float64."""
    if not has_float64(X):
        raise TypeError(
            f"X is on {on_device(X)!r}, which has no float64, and certificates need it: pass X as "
            "a NumPy array, and the device to `solve`"
        )


def check_patterns(patterns: object) -> Patterns:
    if not isinstance(patterns, Patterns):
        raise TypeError(
            f"patterns must be Patterns, got {type(patterns).__name__}; "
            "see sample_patterns, Patterns.from_gates and Patterns.from_mask"
        )
    return patterns


def design_matrix(
    X: Array, bias: bool, normalize: bool, across: Ranks = ALONE
) -> tuple[Array, np.ndarray]:
    """X with its column of ones and unit-norm columns, where asked for, and the column scale, which
    is that of the rows of all ranks."""
    if bias:
        X = with_ones(X)
    if not normalize:
        return X, np.ones(X.shape[1])
    data = to_numpy(X, keep_sparse=True)
    scale = unit_scale(data, across)
    warn_about_small(data, scale, stacklevel=4, across=across)
    return divide_columns(X, scale), scale
