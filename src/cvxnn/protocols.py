"""What solvers, certificates and paths ask of a problem, and what a trained network offers.

A new kind of problem needs these members and no base class. What the data offer is `Operator`, in
operators/base.py; what a method offers is `Solver`, in solvers/base.py.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array, Weights
from cvxnn.cones.projection import ActiveRows
from cvxnn.losses import Loss
from cvxnn.operators.base import Operator
from cvxnn.patterns import Patterns
from cvxnn.penalties import Penalty
from cvxnn.smooth import Smooth


class Network(Protocol):
    """A function of rows that training ends with."""

    @property
    def n_features(self) -> int: ...

    @property
    def n_outputs(self) -> int: ...

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Outputs for the rows of X: (n, C), or (n,) for a network trained on 1-d targets."""


class Composite(Protocol):
    """A smooth function of weights plus a penalty: all that proximal steps need."""

    @property
    def smooth(self) -> Smooth:
        """The smooth part; it may remember points, so each run takes one of its own."""

    @property
    def penalty(self) -> Penalty:
        """At its strength."""


class Problem(Composite, Protocol):
    """min_U f(M U) + g(U), perhaps over cones. Weights are one array of blocks (blocks, d, C)
    inside; users may see them in another form."""

    @property
    def kind(self) -> str:
        """The name of the program, which solvers and certificates tell apart."""

    @property
    def scope(self) -> str:
        """What a certificate speaks about, in words."""

    @property
    def lam(self) -> float: ...

    @property
    def loss(self) -> Loss: ...

    @property
    def loss_name(self) -> str: ...

    @property
    def chosen_penalty(self) -> Penalty:
        """The penalty as it was chosen, also where its strength is 0."""

    @property
    def penalty_name(self) -> str: ...

    @property
    def patterns(self) -> Patterns: ...

    @property
    def operator(self) -> Operator:
        """M, in the precision of the data."""

    @property
    def operator_double(self) -> Operator:
        """M in float64, which certificates are computed with."""

    @property
    def on_host(self) -> Self:
        """The same problem of NumPy arrays, which certificates are computed with; it may be this
        one."""

    @property
    def output_bias(self) -> bool: ...

    @property
    def weight_shape(self) -> tuple[int, int, int]:
        """(blocks, features, classes)."""

    def zero_weights(self) -> Array: ...

    def check_weights(self, weights: ArrayLike, name: str = "weights") -> Array:
        """Weights of a user as one array of blocks; anything else is refused."""

    def present(self, U: Array) -> Weights:
        """Blocks as users see them."""

    def dual_correlation(self, Theta: Array, start: ActiveRows | None = None) -> Array:
        """What the dual constraint bounds, block by block, for a dual candidate Theta (n, C);
        `start` is where projections onto cones start, if there are any."""

    def range_complement(self, B: Array) -> Array:
        """The part of B (n, C) outside range(M), where dual points live at lam = 0."""

    def max_violation(self, U: Array) -> float:
        """By how much blocks are outside their cones; 0 without cones."""

    def proven_feasible(self, U: Array) -> tuple[Array, tuple[str, ...]]:
        """Weights next to U (float64) that are feasible in real arithmetic, and what is not proven
        about that, in words."""

    def with_lam(self, lam: float) -> Self:
        """The same problem at another strength of the penalty."""

    def network(self, weights: ArrayLike) -> Network:
        """The network that the weights stand for, for rows as they were given."""
