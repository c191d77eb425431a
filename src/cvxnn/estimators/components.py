"""Principal components: columns in the coordinates of their leading directions, and back.

With orthonormal directions Q (d, k) the rows x of scaled columns become x Q, and a neuron with the
weights w there is one with the weights Q w on the scaled columns, of the same norm. So a program on
components is the program on columns, for weights in the span of Q alone; with k = d it is the same
program.

Bounds are checked on other machines, which must pose the same program to the last bit. A product by
a BLAS does not do that, because the order of its sums is its own. So factors are cut into slices of
so few bits that sums of their products are exact in any order (Ozaki et al., Numerical Algorithms
59, 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.linalg import eigh

from cvxnn.arrays import Matrix, blocks, is_stored, largest_entries, row_blocks
from cvxnn.networks import GatedReLUNetwork, SomeNetwork
from cvxnn.stored import StoredRows

AGREEMENT = 1e-9  # relative, of what was computed twice, perhaps on two machines
_ROWS = 8192  # of X whose products are held at a time
_BITS = 53  # of a double


@dataclass(frozen=True, eq=False)
class Components:
    """Leading principal components of scaled columns.

    directions : (d, k), orthonormal.
    held, total : the variance of the components, and of all columns.
    """

    directions: np.ndarray
    held: float
    total: float

    @classmethod
    def of(cls, X: Matrix | StoredRows, weight: np.ndarray, count: int) -> Components:
        """The `count` leading components of columns that are already centred, rows weighted. Each
        direction has its largest entry positive. Products of X are in its own precision."""
        if not isinstance(X, np.ndarray | StoredRows):
            raise TypeError(
                "n_components needs a dense X: the components of sparse columns are dense; give "
                "X.toarray(), or reduce X yourself, by TruncatedSVD for instance"
            )
        d = X.shape[1]
        if count > d:
            raise ValueError(f"n_components={count}, but X has {d} column{'s' if d > 1 else ''}")
        unit = _power_above(X)  # taken out, so that no square over- or underflows
        root = np.sqrt(weight / weight.sum())[:, None].astype(X.dtype)
        moments = np.zeros((d, d))
        for rows, some in row_blocks(cast(Any, X), _ROWS):
            part = some * root[rows]
            part /= unit
            moments += part.T @ part
        values, vectors = eigh(moments, subset_by_index=[d - count, d - 1])
        directions = vectors[:, ::-1]
        largest = directions[np.argmax(np.abs(directions), axis=0), np.arange(count)]
        directions = np.ascontiguousarray(directions * np.where(largest < 0, -1.0, 1.0))
        total = float(np.trace(moments)) * unit**2
        return cls(directions, min(float(np.maximum(values, 0.0).sum()) * unit**2, total), total)

    def __len__(self) -> int:
        return self.directions.shape[1]

    @property
    def words(self) -> str:
        """What a certificate says of them."""
        share = f"{100 * (self.held / self.total if self.total > 0 else 1.0):.1f} %"
        if len(self) == 1:
            return f"the first principal component of the columns, with {share} of their variance"
        return (
            f"the {len(self)} leading principal components of the columns, with {share} of their "
            "variance"
        )

    def apply(self, X: Any) -> Any:
        """X Q, the same on every machine."""
        turn = _Turn(self.directions, _power_above(X))
        if is_stored(X):
            return X.then(turn, columns=len(self) - X.shape[1], dtype=np.float64)
        result = np.empty((X.shape[0], len(self)))
        for rows in blocks(X.shape[0], _ROWS):
            result[rows] = turn(X[rows])
        return result

    def reduce(self, network: SomeNetwork) -> SomeNetwork:
        """The network for components that equals the given one, for scaled columns."""
        return _turned(network, self.directions)

    def restore(self, network: SomeNetwork) -> SomeNetwork:
        """The network for scaled columns that equals the given one, for components."""
        return _turned(network, self.directions.T)

    def contain(self, network: SomeNetwork) -> bool:
        """Whether the weights (and gates) of a network for scaled columns are in the span of the
        directions, up to rounding."""
        vectors = [network.W1]
        if isinstance(network, GatedReLUNetwork):
            vectors.append(network.gates.T)
        Q = self.directions
        return all(
            np.linalg.norm(W - (W @ Q) @ Q.T) <= AGREEMENT * np.linalg.norm(W) for W in vectors
        )

    def differences(self, again: Components, X: Any, weight: np.ndarray) -> list[str]:
        """What does not hold of these components, in words; X (n, k) are the rows in them, and
        `again` are components computed from the same rows. Directions of equal variance may be
        turned, so it is the variance that is compared."""
        Q, slack = self.directions, AGREEMENT * again.total
        if Q.shape != again.directions.shape:
            return ["components in the file are not those of these rows"]
        found = []
        if np.max(np.abs(Q.T @ Q - np.eye(len(self)))) > AGREEMENT:
            found.append("components in the file are not orthonormal")
        held = float(weight @ np.sum(X**2, axis=1)) / float(weight.sum())
        if not (abs(self.held - held) <= slack and abs(self.total - again.total) <= slack):
            found.append("variances in the file are not those of these rows")
        if not held >= again.held - slack:
            found.append("components in the file are not the leading ones of these rows")
        return found


def _slices(A: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The leading bits of numbers up to 1, and the next ones; the rest is left out."""
    scale = 2.0**bits
    high = np.round(A * scale) / scale
    return high, np.round((A - high) * scale**2) / scale**2


def _power_above(A: Any) -> float:
    """A power of 2 above all entries."""
    largest = float(np.max(largest_entries(A), initial=0.0))
    return float(np.ldexp(1.0, np.frexp(largest)[1])) if largest > 0 else 1.0


@dataclass(frozen=True, eq=False)
class _Turn:
    """Rows x -> x Q, from slices of both; `unit` is above the entries of all rows."""

    directions: np.ndarray
    unit: float

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        bits = (_BITS - (rows.shape[1] - 1).bit_length()) // 2
        Q_high, Q_low = _slices(self.directions, bits)
        high, low = _slices(rows / self.unit, bits)
        # exact each, and added in this order
        return (high @ Q_high + (high @ Q_low + low @ Q_high)) * self.unit


def _turned(network: SomeNetwork, Q: np.ndarray) -> SomeNetwork:
    if isinstance(network, GatedReLUNetwork):
        return replace(network, W1=network.W1 @ Q, gates=Q.T @ network.gates)
    return replace(network, W1=network.W1 @ Q)
