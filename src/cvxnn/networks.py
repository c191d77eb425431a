"""Trained networks, and the maps between them and convex weights (paper, theorem 2.2).

A gated ReLU network is

    h(x) = sum_j 1(x g_j + c_j >= 0) (x W1_j + b1_j) W2_j,

with fixed gates and one neuron for each non-zero block (pattern, class) of a convex solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from cvxnn.arrays import blocks, double, to_numpy
from cvxnn.losses import make_loss
from cvxnn.patterns import Patterns, activations, distinct_patterns
from cvxnn.validation import check_features, check_number, check_targets

_BLOCK = 2**22  # entries of the hidden layer held at a time


@dataclass(frozen=True, eq=False)
class GatedReLUNetwork:
    """A two-layer gated ReLU network with m neurons, in NumPy float64.

    Attributes
    ----------
    gates, gate_bias : (d, m) and (m,); neuron j is on where `x g_j + c_j >= 0` (`> 0` if strict).
    W1, b1 : (m, d) and (m,), the first layer; b1 is None for neurons without an intercept.
    W2 : (m, C), the second layer.
    strict : see gates.
    flat_output : predictions have shape (n,) instead of (n, 1).
    """

    kind: ClassVar[str] = "gated-relu"

    gates: np.ndarray
    gate_bias: np.ndarray
    W1: np.ndarray
    b1: np.ndarray | None
    W2: np.ndarray
    strict: bool = False
    flat_output: bool = False

    def __post_init__(self) -> None:
        m, d = self.W1.shape
        shapes = {"gates": (d, m), "gate_bias": (m,), "W2": (m, self.W2.shape[-1])}
        if self.b1 is not None:
            shapes["b1"] = (m,)
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {getattr(self, name).shape}")
        if self.flat_output and self.n_outputs != 1:
            raise ValueError(f"flat_output needs one output, got {self.n_outputs}")

    @property
    def n_neurons(self) -> int:
        return self.W1.shape[0]

    @property
    def n_features(self) -> int:
        return self.W1.shape[1]

    @property
    def n_outputs(self) -> int:
        return self.W2.shape[1]

    @classmethod
    def from_convex(
        cls, patterns: Patterns, U: np.ndarray, *, bias: bool = False, flat_output: bool = False
    ) -> GatedReLUNetwork:
        """The network of gated weights U (p, d, C), intercepts last if `bias`: block u becomes a
        neuron with W1 = u / sqrt(||u||) and W2 = sqrt(||u||) in its class. The first and second
        layer are balanced, so the weight decay lam/2 (||W1||^2 + W2^2) equals lam ||u||."""
        if patterns.gates is None or patterns.gate_bias is None:
            raise ValueError(
                "these patterns have no gates, so no network can switch on new rows; "
                "give gates to Patterns.from_mask, or sample patterns"
            )
        norms = np.linalg.norm(U, axis=1)
        i, k = np.nonzero(norms > 0)
        root = np.sqrt(norms[i, k])
        first = U[i, :, k] / root[:, None]
        second = np.zeros((len(i), U.shape[2]))
        second[np.arange(len(i)), k] = root
        return cls(
            gates=patterns.gates[:, i],
            gate_bias=patterns.gate_bias[i],
            W1=first[:, :-1] if bias else first,
            b1=first[:, -1] if bias else None,
            W2=second,
            strict=patterns.strict,
            flat_output=flat_output,
        )

    def to_convex(self, X: Any) -> tuple[Patterns, np.ndarray]:
        """Patterns on X and gated weights U of the same function on X.

        Neurons with one pattern on X are summed, which never raises the objective; neurons that
        are on nowhere in X drop out.
        """
        X = check_features(X, self.n_features)
        mask = activations(X, self.gates, self.gate_bias, self.strict)
        keep, position = distinct_patterns(mask)
        if len(keep) == 0:
            raise ValueError("no neuron of this network is on for any row of X")
        first = self.W1 if self.b1 is None else np.column_stack([self.W1, self.b1])
        U = np.zeros((len(keep), first.shape[1], self.n_outputs))
        seen = position >= 0
        np.add.at(U, position[seen], first[seen, :, None] * self.W2[seen, None, :])
        patterns = Patterns(mask, self.gates, self.gate_bias, self.strict).select(keep)
        return patterns, U

    def predict(self, X: Any) -> np.ndarray:
        """Outputs for the rows of X: (n, C), or (n,) for a network trained on 1-d targets."""
        X = double(to_numpy(check_features(X, self.n_features)))
        Z = np.zeros((X.shape[0], self.n_outputs))
        for rows in blocks(X.shape[0], _BLOCK // max(1, self.n_neurons)):
            on = activations(X[rows], self.gates, self.gate_bias, self.strict)
            hidden = X[rows] @ self.W1.T + (0.0 if self.b1 is None else self.b1)
            Z[rows] = np.where(on, hidden, 0.0) @ self.W2
        return Z[:, 0] if self.flat_output else Z

    def objective(self, X: Any, Y: Any, lam: float, *, loss: str = "squared") -> float:
        """NC-GReLU: f(h(X)) + lam/2 sum_j (||W1_j||^2 + ||W2_j||_1^2), intercepts included."""
        X = double(check_features(X, self.n_features))
        Y, _ = check_targets(Y, X)
        if Y.shape[1] != self.n_outputs:
            raise ValueError(f"Y has {Y.shape[1]} outputs, but the network has {self.n_outputs}")
        lam = check_number(lam, "lam", minimum=0)
        Z = self.predict(X).reshape(Y.shape)
        first, second = self._layer_norms()
        return make_loss(loss, to_numpy(Y)).value(Z) + 0.5 * lam * float(
            np.sum(first**2) + np.sum(second**2)
        )

    def balanced(self) -> GatedReLUNetwork:
        """The same function with ||W1_j|| = ||W2_j||_1 for every neuron, where the weight decay
        is smallest; neurons that contribute nothing go."""
        first, second = self._layer_norms()
        live = (first > 0) & (second > 0)
        scale = np.sqrt(second[live] / first[live])
        return GatedReLUNetwork(
            gates=self.gates[:, live],
            gate_bias=self.gate_bias[live],
            W1=self.W1[live] * scale[:, None],
            b1=None if self.b1 is None else self.b1[live] * scale,
            W2=self.W2[live] / scale[:, None],
            strict=self.strict,
            flat_output=self.flat_output,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network to a file of data, never code; `cvxnn.load` reads it."""
        from cvxnn.modelfile import save

        save(self, path)

    def _layer_norms(self) -> tuple[np.ndarray, np.ndarray]:
        squares = np.sum(self.W1**2, axis=1) + (0.0 if self.b1 is None else self.b1**2)
        return np.sqrt(squares), np.sum(np.abs(self.W2), axis=1)
