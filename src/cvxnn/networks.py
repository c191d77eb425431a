"""Trained networks, and the maps between them and convex weights (paper, theorems 2.1 and 2.2).

    ReLU:   h(x) = sum_j (x W1_j + b1_j)_+ W2_j + b2
    gated:  h(x) = sum_j 1(x g_j + c_j >= 0) (x W1_j + b1_j) W2_j + b2   with fixed gates g_j, c_j

A convex solution becomes a network with one neuron for each non-zero block u (pattern, class),
W1 = u / sqrt(||u||) and W2 = +- sqrt(||u||) in its class. Both layers are balanced, so the weight
decay lam/2 (||W1||^2 + ||W2||_1^2) equals lam ||u||, and values are equal. The output bias b2 is
not penalised, and is kept apart from convex weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array, double, row_blocks, to_numpy
from cvxnn.bits import Bits
from cvxnn.losses import LossChoice, make_loss
from cvxnn.patterns import Patterns, activation_bits, activations
from cvxnn.validation import (
    check_array,
    check_features,
    check_flag,
    check_number,
    check_targets,
    check_vector,
)

if TYPE_CHECKING:
    import torch
    from sklearn.neural_network import MLPClassifier, MLPRegressor

_BLOCK = 2**22  # entries of the hidden layer held at a time
_TIE = 1e-11  # pre-activations below this, relative to their terms, are zero up to rounding


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TwoLayerNetwork(ABC):
    """What all networks share: m neurons in NumPy float64.

    W1, b1 : (m, d) and (m,), the first layer; b1 is None for neurons without an intercept.
    W2, b2 : (m, C) and (C,), the second layer; b2 is None for outputs without a bias.
    flat_output : predictions have shape (n,) instead of (n, 1).
    """

    kind: ClassVar[str]
    arrays: ClassVar[tuple[str, ...]] = ("W1", "b1", "W2", "b2")
    optional: ClassVar[frozenset[str]] = frozenset({"b1", "b2"})  # the arrays that may be None
    flags: ClassVar[tuple[str, ...]] = ("flat_output",)

    W1: np.ndarray
    W2: np.ndarray
    b1: np.ndarray | None = None
    b2: np.ndarray | None = None
    flat_output: bool = False

    def __post_init__(self) -> None:
        absent = {name for name in self.optional if getattr(self, name) is None}
        names = [name for name in self.arrays if name not in absent]
        for name in names:
            array = to_numpy(check_array(getattr(self, name), name))
            object.__setattr__(self, name, double(array))
            if name in ("W1", "W2") and (array.ndim != 2 or array.shape[1] == 0):
                raise ValueError(f"{name} must have a row for each neuron, got shape {array.shape}")
        m, d = self.W1.shape
        C = self.n_outputs
        shapes = {"gates": (d, m), "W1": (m, d), "W2": (m, C), "b2": (C,)}
        for name in names:
            wanted, got = shapes.get(name, (m,)), getattr(self, name).shape
            if got != wanted:
                raise ValueError(f"{name} must have shape {wanted}, got {got}")
        for flag in self.flags:
            object.__setattr__(self, flag, check_flag(getattr(self, flag), flag))
        if self.flat_output and self.n_outputs != 1:
            raise ValueError(f"flat_output needs one output, got {self.n_outputs}")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_features} features, {self.n_neurons} neurons, "
            f"{self.n_outputs} outputs)"
        )

    @property
    def n_neurons(self) -> int:
        return self.W1.shape[0]

    @property
    def n_features(self) -> int:
        return self.W1.shape[1]

    @property
    def n_outputs(self) -> int:
        return self.W2.shape[1]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Outputs for the rows of X: (n, C), or (n,) for a network trained on 1-d targets."""
        data = double(to_numpy(check_features(X, self.n_features), keep_sparse=True))
        Z = np.zeros((data.shape[0], self.n_outputs))
        for rows, some in row_blocks(data, _BLOCK // max(1, self.n_neurons)):
            Z[rows] = self._hidden(some) @ self.W2
        if self.b2 is not None:
            Z += self.b2
        return Z[:, 0] if self.flat_output else Z

    def objective(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        lam: float,
        *,
        loss: str | LossChoice = "squared",
        sample_weight: ArrayLike | None = None,
        huber_delta: float | None = None,
    ) -> float:
        """The non-convex objective f(h(X)) + lam/2 sum_j (||W1_j||^2 + ||W2_j||_1^2), hidden
        intercepts included in ||W1_j||; the output bias is free."""
        data = double(check_features(X, self.n_features))
        targets, _ = check_targets(Y, data)
        if targets.shape[1] != self.n_outputs:
            raise ValueError(
                f"Y has {targets.shape[1]} outputs, but the network has {self.n_outputs}"
            )
        lam = check_number(lam, "lam", minimum=0)
        fit = make_loss(
            loss, to_numpy(targets), sample_weight=sample_weight, huber_delta=huber_delta
        )
        Z = self.predict(data).reshape(targets.shape)
        first, second = self._layer_norms()
        return fit.value(Z) + 0.5 * lam * float(np.sum(first**2) + np.sum(second**2))

    @classmethod
    def mean(cls, networks: Sequence[Self], weights: ArrayLike | None = None) -> Self:
        """The network whose outputs are the mean of those of several networks of this kind, or
        their mean with these weights, scaled to a sum of one. Their neurons stand side by side."""
        if not networks or not all(type(network) is cls for network in networks):
            raise TypeError(f"networks must be of the kind {cls.__name__}, at least one")
        first = networks[0]
        same = (first.n_features, first.n_outputs, *(getattr(first, f) for f in cls.flags))
        for other in networks[1:]:
            its = (other.n_features, other.n_outputs, *(getattr(other, f) for f in cls.flags))
            if its != same:
                raise ValueError(f"{other!r} and {first!r} have no mean: they differ in shape")
        shares = np.ones(len(networks))
        if weights is not None:
            shares = check_vector(weights, "weights", len(networks))
        if np.any(shares < 0) or not shares.sum() > 0:
            raise ValueError("weights must not be negative, and not all zero")
        # a sum that is rounded once, so that the mean is the same on every machine
        pairs = list(zip(networks, shares / math.fsum(shares), strict=True))
        own: dict[str, Any] = {
            name: np.concatenate([getattr(network, name) for network in networks], axis=-1)
            for name in cls.arrays
            if name not in TwoLayerNetwork.arrays  # the gates
        }
        biased = any(network.b1 is not None for network in networks)
        lifted = any(network.b2 is not None for network in networks)
        return replace(
            first,
            W1=np.concatenate([network.W1 for network in networks]),
            b1=np.concatenate([_or_zeros(n.b1, n.n_neurons) for n in networks]) if biased else None,
            W2=np.concatenate([share * network.W2 for network, share in pairs]),
            b2=sum(s * _or_zeros(n.b2, n.n_outputs) for n, s in pairs) if lifted else None,
            **own,
        )

    def members(
        self, n_neurons: Sequence[int], W2: np.ndarray, b2: np.ndarray | None
    ) -> list[Self]:
        """The networks that this one is the mean of, by their numbers of neurons; `W2` (m, C) are
        their own second layers, one below the other, and `b2` (k, C) their output biases."""
        if sum(n_neurons) != self.n_neurons or W2.shape != self.W2.shape:
            raise ValueError("the neurons are not those of the networks that this is the mean of")
        ends = np.cumsum(n_neurons)
        parts = []
        for k, (end, count) in enumerate(zip(ends, n_neurons, strict=True)):
            own = np.arange(end - count, end)
            bias = None if b2 is None else b2[k]
            parts.append(replace(self._select(own), W2=W2[own], b2=bias))
        return parts

    def balanced(self) -> Self:
        """The same function with ||W1_j|| = ||W2_j||_1 for every neuron, where the weight decay
        is smallest; neurons that contribute nothing are dropped."""
        first, second = self._layer_norms()
        live = np.flatnonzero((first > 0) & (second > 0))
        scale = np.sqrt(second[live] / first[live])
        return replace(
            self._select(live),
            W1=self.W1[live] * scale[:, None],
            b1=None if self.b1 is None else self.b1[live] * scale,
            W2=self.W2[live] / scale[:, None],
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network to a file of data, never code; `cvxnn.load` reads it."""
        from cvxnn.modelfile import Content, write

        write(Content(self), path)

    def to_torch(
        self, *, link: str | None = None, dtype: str | torch.dtype = "float64"
    ) -> torch.nn.Module:
        """A torch module of the same function with outputs (n, C), never flat.

        A ReLU network becomes `Sequential(Linear, ReLU, Linear)`. `link` "logistic" appends a
        Sigmoid, "softmax" a Softmax over the outputs; dtype is "float64" or "float32".
        """
        from cvxnn.export import to_torch

        return to_torch(self, link=link, dtype=dtype)

    def to_onnx(
        self,
        path: str | PathLike[str],
        *,
        link: str | None = None,
        dtype: str | torch.dtype = "float64",
    ) -> None:
        """Write an ONNX model with input "X" (n, d) and output "prediction" (n, C), never flat.

        `link` adds the output "probabilities": "logistic" of -1 and +1 (n, 2), "softmax" of the
        classes (n, C). dtype is "float64" or "float32", of inputs, weights and outputs.
        """
        from cvxnn.export import to_onnx

        to_onnx(self, path, link=link, dtype=dtype)

    @abstractmethod
    def _hidden(self, X: Array) -> np.ndarray:
        """The activations of the hidden layer: (n, m)."""

    @abstractmethod
    def _merged(self, X: ArrayLike) -> Self:
        """The same function on X with the neurons of each pattern merged."""

    def _pre_activations(self, X: Array) -> np.ndarray:
        return X @ self.W1.T + (0.0 if self.b1 is None else self.b1)

    def _select(self, neurons: np.ndarray) -> Self:
        """The network of some of the neurons; the output bias stays."""
        return replace(
            self,
            W1=self.W1[neurons],
            b1=None if self.b1 is None else self.b1[neurons],
            W2=self.W2[neurons],
        )

    def _first_layer(self) -> np.ndarray:
        """W1 with the intercepts as last column."""
        return self.W1 if self.b1 is None else np.column_stack([self.W1, self.b1])

    def _layer_norms(self) -> tuple[np.ndarray, np.ndarray]:
        return _norms(self._first_layer()), np.sum(np.abs(self.W2), axis=1)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GatedReLUNetwork(TwoLayerNetwork):
    """A two-layer gated ReLU network.

    gates, gate_bias : (d, m) and (m,); neuron j is on where `x g_j + c_j >= 0` (`> 0` if strict).
    """

    kind = "gated-relu"
    arrays = ("gates", "gate_bias", *TwoLayerNetwork.arrays)
    flags = ("strict", *TwoLayerNetwork.flags)

    gates: np.ndarray
    gate_bias: np.ndarray
    strict: bool = False

    @classmethod
    def from_convex(
        cls,
        patterns: Patterns,
        U: ArrayLike,
        *,
        bias: bool = False,
        b2: np.ndarray | None = None,
        flat_output: bool = False,
    ) -> Self:
        """The network of gated weights U (p, d, C), intercepts last if `bias`, and of an output
        bias b2 (C,)."""
        if not isinstance(patterns, Patterns):
            raise TypeError(f"patterns must be Patterns, got {type(patterns).__name__}")
        if patterns.gates is None or patterns.gate_bias is None:
            raise ValueError(
                "these patterns have no gates, so no network can switch on new rows; "
                "give gates to Patterns.from_mask, or sample patterns"
            )
        d = patterns.gates.shape[0] + check_flag(bias, "bias")
        first, second, i = _neurons(_check_convex_weights(U, "U", (len(patterns), d)))
        return cls(
            gates=patterns.gates[:, i],
            gate_bias=patterns.gate_bias[i],
            W1=first[:, :-1] if bias else first,
            b1=first[:, -1] if bias else None,
            W2=second,
            b2=b2,
            strict=patterns.strict,
            flat_output=flat_output,
        )

    def to_convex(self, X: ArrayLike) -> tuple[Patterns, np.ndarray]:
        """Patterns on X and gated weights U of the same function on X; an output bias is not part
        of them.

        Neurons with the same pattern on X are summed, which never raises the objective; neurons
        that are on for no row of X are dropped.
        """
        data = check_features(X, self.n_features)
        bits = activation_bits(data, self.gates, self.gate_bias, self.strict)
        keep, position = bits.distinct()
        if len(keep) == 0:
            raise ValueError("no neuron of this network is on for any row of X")
        first = self._first_layer()
        U = np.zeros((len(keep), first.shape[1], self.n_outputs))
        seen = position >= 0
        np.add.at(U, position[seen], first[seen, :, None] * self.W2[seen, None, :])
        patterns = Patterns(bits, self.gates, self.gate_bias, self.strict).select(keep)
        return patterns, U

    def _merged(self, X: ArrayLike) -> Self:
        patterns, U = self.to_convex(X)
        return self.from_convex(
            patterns, U, bias=self.b1 is not None, b2=self.b2, flat_output=self.flat_output
        )

    def _select(self, neurons: np.ndarray) -> Self:
        return replace(
            self,
            gates=self.gates[:, neurons],
            gate_bias=self.gate_bias[neurons],
            W1=self.W1[neurons],
            b1=None if self.b1 is None else self.b1[neurons],
            W2=self.W2[neurons],
        )

    def _hidden(self, X: Array) -> np.ndarray:
        on = activations(X, self.gates, self.gate_bias, self.strict)
        return np.where(on, self._pre_activations(X), 0.0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReLUNetwork(TwoLayerNetwork):
    """A two-layer ReLU network."""

    kind = "relu"

    @classmethod
    def from_convex(
        cls,
        V: ArrayLike,
        W: ArrayLike,
        *,
        bias: bool = False,
        b2: np.ndarray | None = None,
        flat_output: bool = False,
    ) -> Self:
        """The network of C-ReLU weights V, W (p, d, C), intercepts last if `bias`, and of an output
        bias b2 (C,); equal values need both weights to be feasible."""
        check_flag(bias, "bias")
        added = _check_convex_weights(V, "V")
        subtracted = _check_convex_weights(W, "W", added.shape[:2])
        plus, minus = _neurons(added), _neurons(subtracted)
        first = np.concatenate([plus[0], minus[0]])
        return cls(
            W1=first[:, :-1] if bias else first,
            b1=first[:, -1] if bias else None,
            W2=np.concatenate([plus[1], -minus[1]]),
            b2=b2,
            flat_output=flat_output,
        )

    @classmethod
    def from_torch(cls, module: torch.nn.Module) -> ReLUNetwork:
        """The network of a torch module whose layers are Linear, ReLU, Linear, nested or not.

        The weights are copied. On random rows, the outputs of the module are compared with those of
        the network; a module whose `forward` computes something else is refused.
        """
        from cvxnn.conversion import from_torch

        return from_torch(cls, module)

    @classmethod
    def from_sklearn(cls, mlp: MLPClassifier | MLPRegressor) -> ReLUNetwork:
        """The network of a fitted MLPClassifier or MLPRegressor with one hidden layer of ReLUs.

        It predicts values before scikit-learn's output activation: for classes these are logits, a
        single one if there are two classes. The weights are copied; a single output is flat.
        """
        from cvxnn.conversion import from_sklearn

        return from_sklearn(cls, mlp)

    def to_convex(
        self, X: ArrayLike, patterns: Patterns | None = None
    ) -> tuple[Patterns, tuple[np.ndarray, np.ndarray]]:
        """Patterns on X and C-ReLU weights (V, W) of the same function on X; an output bias is
        not part of them.

        Neurons with the same pattern and sign are summed. That never raises the objective, and
        keeps it where they are collinear. Optimal neurons often lie on the boundary of their cone,
        where some rows have a pre-activation of zero. Such rows count as on, unless one of the
        given `patterns` fits with some of them off. The result has the given patterns first, and
        new ones after them.
        """
        data = double(to_numpy(check_features(X, self.n_features), keep_sparse=True))
        if patterns is not None:
            patterns.check_belong_to(data)
        mask, tied = self._patterns_on(data)
        live = np.flatnonzero((mask & ~tied).any(axis=0))
        if len(live) == 0 and patterns is None:
            raise ValueError("no neuron of this network is on for any row of X")
        mask, tied = mask[:, live], tied[:, live]
        found = np.full(len(live), -1)
        if patterns is not None:
            found = _matching(patterns.mask, mask, tied, self.W2[live])
        new = np.flatnonzero(found < 0)
        if len(new):
            keep, position = Bits.of(mask[:, new]).distinct()
            start = 0 if patterns is None else len(patterns)
            found[new] = start + position
            bias = np.zeros(self.n_neurons) if self.b1 is None else self.b1
            chosen = live[new[keep]]
            fresh = Patterns(mask[:, new[keep]], self.W1[chosen].T, bias[chosen])
            patterns = fresh if patterns is None else _append(patterns, fresh)
        assert patterns is not None
        first, second = self._first_layer()[live], self.W2[live]
        V, W = (np.zeros((len(patterns), first.shape[1], self.n_outputs)) for _ in range(2))
        np.add.at(V, found, first[:, :, None] * np.maximum(second, 0)[:, None, :])
        np.add.at(W, found, first[:, :, None] * np.maximum(-second, 0)[:, None, :])
        return patterns, (V, W)

    def merged(self, X: ArrayLike) -> Self:
        """The same function on X with one neuron for each pattern, sign and class, and never a
        higher objective. Outside X the function may differ."""
        return self if self.n_neurons == 0 else self._merged(X)

    def _merged(self, X: ArrayLike) -> Self:
        _, (V, W) = self.to_convex(X)
        return self.from_convex(
            V, W, bias=self.b1 is not None, b2=self.b2, flat_output=self.flat_output
        )

    def _hidden(self, X: Array) -> np.ndarray:
        return np.maximum(self._pre_activations(X), 0.0)

    def _patterns_on(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Where each neuron is on, and where that is a tie up to rounding: (n, m) each."""
        size = abs(X) @ np.abs(self.W1).T + (0.0 if self.b1 is None else np.abs(self.b1))
        pre = self._pre_activations(X)
        tied = np.abs(pre) <= _TIE * size
        return (pre > 0) | tied, tied


def _or_zeros(bias: np.ndarray | None, length: int) -> np.ndarray:
    return np.zeros(length) if bias is None else bias


def _norms(U: np.ndarray) -> np.ndarray:
    """The norms along axis 1. Columns in tiny units have huge weights, so a power of two is taken
    out, and no square over- or underflows. Norms of ordinary size do not change by a bit."""
    _, exponent = np.frexp(np.max(np.abs(U), axis=1, keepdims=True, initial=0.0))
    unit = np.ldexp(1.0, np.minimum(exponent, 1023))
    return np.squeeze(unit, axis=1) * np.linalg.norm(U / unit, axis=1)


def _neurons(U: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First layer, second layer and pattern of the balanced neurons of the non-zero blocks."""
    norms = _norms(U)
    i, k = np.nonzero(norms > 0)
    root = np.sqrt(norms[i, k])
    second = np.zeros((len(i), U.shape[2]))
    second[np.arange(len(i)), k] = root
    return U[i, :, k] / root[:, None], second, i


def _matching(
    given: np.ndarray, mask: np.ndarray, tied: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """For each column of `mask` a given pattern that agrees with it except at ties, or -1. Where
    several do, one that no other neuron with the same output signs uses, so that two neurons with
    different patterns are not merged."""
    on, off = (mask & ~tied).astype(float), (~mask & ~tied).astype(float)
    fits = on.T @ ~given + off.T @ given == 0
    found = np.full(len(fits), -1)
    taken = set()
    for j in np.argsort(fits.sum(axis=1), kind="stable"):
        candidates = np.flatnonzero(fits[j])
        signs = np.sign(second[j]).tobytes()
        free = [i for i in candidates if (i, signs) not in taken]
        if len(candidates):
            found[j] = free[0] if free else candidates[0]
            taken.add((found[j], signs))
    return found


def _append(patterns: Patterns, new: Patterns) -> Patterns:
    bits = patterns.bits.join(new.bits)
    if patterns.gates is None or patterns.gate_bias is None:
        return Patterns(bits, strict=patterns.strict)
    gates = np.concatenate([patterns.gates, new.gates], axis=1)
    return Patterns(
        bits, gates, np.concatenate([patterns.gate_bias, new.gate_bias]), patterns.strict
    )


def _check_convex_weights(
    U: ArrayLike, name: str, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """U as a (p, d, C) array; (p, d) is taken as (p, d, 1)."""
    weights = to_numpy(double(check_array(U, name)))
    weights = weights[:, :, None] if weights.ndim == 2 else weights
    misfit = shape is not None and weights.shape[:2] != shape
    if weights.ndim != 3 or misfit or weights.shape[2] == 0:
        wanted = "(p, d, C)" if shape is None else f"({shape[0]}, {shape[1]}, C)"
        raise ValueError(f"{name} must have shape {wanted}, got {weights.shape}")
    return weights


SomeNetwork = TypeVar("SomeNetwork", bound=TwoLayerNetwork)  # of one kind, in and out
NETWORKS: dict[str, type[TwoLayerNetwork]] = {
    cls.kind: cls for cls in (GatedReLUNetwork, ReLUNetwork)
}
