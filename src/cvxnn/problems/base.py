"""What the two problems share."""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array, Weights, array_namespace, double, to_numpy
from cvxnn.cones.projection import ActiveRows
from cvxnn.devices import Device
from cvxnn.least_squares import KernelFactor, RangeComplement
from cvxnn.losses import Loss
from cvxnn.networks import GatedReLUNetwork, ReLUNetwork
from cvxnn.operators import Operator
from cvxnn.patterns import Patterns
from cvxnn.penalties import Penalty, make_penalty
from cvxnn.problems.columns import Columns
from cvxnn.problems.data import ProblemData, check_patterns
from cvxnn.smooth import Smooth
from cvxnn.validation import check_array, check_number, same_library


def _from_data(name: str) -> Any:
    """An attribute of the data as one of the problem."""
    return property(attrgetter(f"data.{name}"))


class ConvexProblem:
    """What both problems share: a loss of a linear operator's predictions plus a penalty.

    Weights are one array of blocks inside; `check_weights` takes them in from users and `present`
    hands them out.
    """

    kind: ClassVar[str]

    data: ProblemData
    lam: float
    penalty: Penalty  # at the strength lam

    patterns: Patterns = _from_data("patterns")
    operator: Operator = _from_data("operator")
    operator_double: Operator = _from_data("operator_double")
    kernel_factor: KernelFactor = _from_data("kernel_factor")
    loss: Loss = _from_data("loss")
    loss_name: str = _from_data("loss_name")
    chosen_penalty: Penalty = _from_data("penalty")
    penalty_name: str = _from_data("penalty_name")
    bias: bool = _from_data("bias")
    output_bias: bool = _from_data("output_bias")
    normalize: bool = _from_data("normalize")
    flat_targets: bool = _from_data("flat_targets")
    column_scale: np.ndarray = _from_data("column_scale")
    _range_complements: dict[str, RangeComplement] = _from_data("range_complements")

    @classmethod
    def _of(cls, data: ProblemData, lam: float) -> Self:
        """The problem of data that were checked before."""
        problem = cls.__new__(cls)
        problem._pose(data, lam)
        return problem

    def _pose(self, data: ProblemData, lam: float) -> None:
        self.data, self.lam = data, check_number(lam, "lam", minimum=0)
        self.penalty = make_penalty(data.penalty, self.lam)

    @property
    def weight_shape(self) -> tuple[int, int, int]:
        """The shape of all blocks: (blocks, features, classes)."""
        return (self.operator.p, self.operator.d, self.loss.Y.shape[1])

    @property
    def scope(self) -> str:
        """What a certificate of this problem speaks about."""
        p = len(self.patterns)
        columns = " on unit-norm columns" if self.normalize else ""
        return f"{self.kind} over {p} given pattern{'s' if p > 1 else ''}{columns}"

    def __repr__(self) -> str:
        n, C = self.loss.Y.shape
        return (
            f"{type(self).__name__}({n} rows, {self.operator.d} columns, {C} outputs, "
            f"{len(self.patterns)} patterns, loss {self.loss_name!r}, penalty "
            f"{self.penalty_name!r}, lam={self.lam:g})"
        )

    @property
    def smooth(self) -> Smooth:
        """A new one at each use: it remembers the points of one run."""
        return Smooth(self.operator, self.loss)

    def objective(self, weights: ArrayLike) -> float:
        """f(M U) + g(U)."""
        U = self.check_weights(weights)
        return self.loss.value(self.operator.forward(U)) + self.penalty.value(U)

    def zero_weights(self) -> Array:
        return self.operator.like(np.zeros(self.weight_shape), self._weight_dtype)

    @property
    def _weight_dtype(self) -> object:
        return self.operator.dtype

    def check_weights(self, weights: ArrayLike, name: str = "weights") -> Array:
        """Weights as one array like the problem's data; (p, d) is taken as (p, d, 1)."""
        return self._check_blocks(weights, self.weight_shape, name)

    def present(self, U: Array) -> Weights:
        """Weights as users see them."""
        return U

    def dual_correlation(self, Theta: Array, start: ActiveRows | None = None) -> Array:
        """What the dual constraint bounds, block by block, for a dual candidate Theta; `start` is
        where projections onto cones start, if there are any."""
        return self.operator_double.adjoint(Theta)

    def range_complement(self, B: Array) -> Array:
        """The part of B (n, C) outside range(M), where dual points live at lam = 0; with an
        output bias outside that of [M, 1]."""
        B = self._outside_operator(B)
        if not self.output_bias:
            return B
        xp = array_namespace(B)
        ones = self._outside_operator(xp.ones_like(B[:, :1]))
        size = xp.sum(ones * ones)
        if float(size) <= 1e-20 * B.shape[0]:  # a square: 1 is in the range, up to 1e-10
            return B
        return B - ones * (xp.sum(ones * B, axis=0) / size)

    def _outside_operator(self, B: Array) -> Array:
        """Outside range(M), which is that of [M, -M] too."""
        operator, known = self.data.operator_double, self.data.range_complements
        method = RangeComplement.method_for(operator)
        if method not in known:
            known[method] = RangeComplement(operator, method)
        return known[method].of(B)

    def _output_bias(self, U: Array) -> np.ndarray | None:
        """The best output bias for these weights."""
        if not self.output_bias:
            return None
        return self.loss.intercept(self.operator_double.forward(double(U)))

    def network(self, weights: ArrayLike) -> GatedReLUNetwork | ReLUNetwork:
        """The network that the weights stand for."""
        raise NotImplementedError

    def max_violation(self, U: Array) -> float:
        return 0.0

    def proven_feasible(self, U: Array) -> tuple[Array, tuple[str, ...]]:
        """Weights next to U (float64) that are feasible in real arithmetic, and what is not proven
        about that, in words."""
        return U, ()

    def in_columns(self, columns: Columns) -> Self:
        """The same problem in other coordinates, of `data.fewer_columns` for instance."""
        return type(self)._of(self.data.in_columns(columns), self.lam)

    @property
    def on_host(self) -> Self:
        """The same problem of NumPy arrays, which certificates are computed with."""
        return self if self.operator.in_numpy else self._with_data(self.data.on_host)

    def placed(self, device: Device, *, single: bool = False) -> Self:
        """The same problem on a device, in float32 if `single` is set or where it has nothing
        wider; see `solve` for what works there."""
        return self._with_data(self.data.placed(device, single=single))

    def _with_data(self, data: ProblemData) -> Self:
        """The same problem with data of the same numbers, in another place."""
        return type(self)._of(data, self.lam)

    def with_lam(self, lam: float) -> Self:
        """The same problem at another penalty strength; the data are shared."""
        other = copy.copy(self)
        other._pose(self.data, lam)
        return other

    @overload
    def with_patterns(self, patterns: Patterns) -> Self: ...
    @overload
    def with_patterns(self, patterns: Patterns, weights: ArrayLike) -> tuple[Self, Weights]: ...
    def with_patterns(
        self, patterns: Patterns, weights: ArrayLike | None = None
    ) -> Self | tuple[Self, Weights]:
        """The same problem over other patterns of the same rows; data, loss and penalty are shared.

        With `weights` of this problem, the answer is the pair (problem, weights): a block whose
        pattern is in both problems is carried over, all others are zero. That is a feasible start
        for the new problem, because a cone depends on nothing but the data and its pattern.
        """
        other = self._over(check_patterns(patterns))
        if weights is None:
            return other
        return other, other.present(self._carried(self.check_weights(weights), other))

    def _over(self, patterns: Patterns) -> Self:
        """The same problem over these patterns."""
        raise NotImplementedError

    def _carried(self, U: Array, other: ConvexProblem) -> Array:
        """The blocks U of this problem as blocks of the other one, sign by sign for C-ReLU."""
        mine = {key: i for i, key in enumerate(self.patterns.bits.keys())}
        found = [(mine[key], j) for j, key in enumerate(other.patterns.bits.keys()) if key in mine]
        source, place = np.array(found, dtype=int).reshape(-1, 2).T
        p, q = len(self.patterns), len(other.patterns)
        carried = other.zero_weights()
        for sign in range(len(U) // p):
            carried[place + sign * q] = U[source + sign * p]
        return carried

    def _check_blocks(self, weights: ArrayLike, shape: tuple[int, int, int], name: str) -> Array:
        U = check_array(weights, name)
        U = U if same_library(U, self.loss.Y) else to_numpy(U)
        U = self.operator.like(U, self._weight_dtype)
        if U.ndim == 2 and shape[2] == 1:
            U = U[:, :, None]
        if tuple(U.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(U.shape)}")
        return U

    def _raw_units(self, U: Array) -> np.ndarray:
        """Weights for the raw X: the way back from unit-norm columns."""
        return double(to_numpy(U)) / self.column_scale[None, :, None]
