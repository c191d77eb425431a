"""Activation patterns and the gate vectors that produce them (paper, section 2).

A gate g in R^d, with an optional bias b, switches its neuron on for the rows of X with
`X g + b >= 0`; the pattern of these rows is one boolean column of `mask`. Patterns are sampled
(`sample_patterns`), built from given gates or masks, or harvested from a network's neurons. They
are kept as bits, and computed from some rows of X at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import (
    Array,
    Index,
    Matrix,
    array_namespace,
    blocks,
    double,
    is_sparse,
    is_stored,
    largest_entries,
    like,
    row_blocks,
    to_numpy,
)
from cvxnn.bits import WORD, Bits
from cvxnn.gates import (
    GateDistribution,
    GaussianGates,
    MixedGates,
    PatchGates,
    SparseGates,
    draw_gates,
    draw_shares,
)
from cvxnn.memory import check_memory, pattern_bytes
from cvxnn.ranks import ALONE, Ranks
from cvxnn.sharded import taken_apart
from cvxnn.stored import StoredRows
from cvxnn.validation import (
    Seed,
    check_array,
    check_features,
    check_flag,
    check_integer,
    check_mask,
    check_matrix,
    check_number,
    check_random_state,
    check_vector,
)

__all__ = [
    "GateDistribution",
    "GaussianGates",
    "MixedGates",
    "PatchGates",
    "Patterns",
    "SparseGates",
    "sample_patterns",
]

# The smallest norm that a column is divided by. Weights grow with its inverse, and would overflow.
SMALLEST = 1e-304
_BLOCK = 2**22  # entries of X @ G held at a time: 32 MB in float64
_CACHED = 2**16  # the same where they are made and used at once: they stay in the cache
# A non-zero column with the scale 1 and no entry above this was too small to be scaled.
_TINY_COLUMN = 1e-100
_CHECK_FLOPS = 4 * 10**8  # operations spent on checking that patterns belong to the data
TIED = 1e-9  # products that differ by less, relative to the largest, are one
_SHARE_ROWS = 4096  # rows at most that decide the biases of gates with random shares


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Patterns:
    """Distinct, non-zero activation patterns of one data matrix, with their gates.

    Attributes
    ----------
    mask : (n, p) boolean; column i is the pattern D_i. It is made from `bits` at every use.
    bits : the same in an eighth of the memory.
    gates : (d, p), or None for patterns given without gates. In the units of the raw X.
    gate_bias : (p,), zeros where the gates have no bias.
    strict : a row is active where `x g + b > 0` instead of `>= 0`.
    """

    bits: Bits
    gates: np.ndarray | None
    gate_bias: np.ndarray | None
    strict: bool

    def __init__(
        self,
        mask: ArrayLike | Bits,
        gates: ArrayLike | None = None,
        gate_bias: ArrayLike | None = None,
        strict: bool = False,
    ) -> None:
        bits = mask if isinstance(mask, Bits) else Bits.of(check_mask(mask))
        p, bias = bits.shape[1], gate_bias
        if gates is not None:
            gates = _check_gates(gates)
            if gates.shape[1] != p:
                raise ValueError(f"mask has {p} patterns, but gates has {gates.shape[1]}")
            bias = np.zeros(p) if bias is None else check_vector(bias, "gate_bias", p)
        elif bias is not None:
            raise ValueError("gate_bias is given without gates")
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "strict", check_flag(strict, "strict"))
        for name, array in (("gates", gates), ("gate_bias", bias)):
            if array is not None:
                array = array.view()  # the caller's own array stays writable
                array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        gates = "without gates" if self.gates is None else f"gates on {len(self.gates)} features"
        return f"Patterns({len(self)} on {self.n_samples} rows, {gates})"

    def __len__(self) -> int:
        return self.bits.shape[1]

    @property
    def n_samples(self) -> int:
        return self.bits.n

    @property
    def mask(self) -> np.ndarray:
        mask = self.bits.mask()
        mask.setflags(write=False)  # what is written there would be lost
        return mask

    @classmethod
    def from_gates(
        cls,
        X: ArrayLike,
        gates: ArrayLike,
        gate_bias: ArrayLike | None = None,
        *,
        strict: bool = False,
    ) -> Patterns:
        """The distinct, non-zero patterns that given gates (d, p) produce on X, order kept."""
        rows, across = taken_apart(check_features(X, sharded=True))
        gates = _check_gates(gates).copy()  # the caller's own may change later
        if gates.shape[0] != rows.shape[1]:
            raise ValueError(
                f"gates must have one row for each of the {rows.shape[1]} features of X, "
                f"got shape {gates.shape}"
            )
        p = gates.shape[1]
        bias = np.zeros(p) if gate_bias is None else check_vector(gate_bias, "gate_bias", p)
        strict = check_flag(strict, "strict")
        check_memory(pattern_bytes(rows.shape[0], 0, p), "patterns", n=rows.shape[0], p=p)
        return cls(activation_bits(rows, gates, bias, strict), gates, bias, strict)._distinct(
            across
        )

    @classmethod
    def from_mask(
        cls,
        mask: ArrayLike,
        gates: ArrayLike | None = None,
        gate_bias: ArrayLike | None = None,
        *,
        strict: bool = False,
    ) -> Patterns:
        """Patterns given as a boolean (n, p) mask. Without gates a solution predicts on the
        training rows only: a network needs gates to switch on new rows."""
        gates = None if gates is None else _check_gates(gates).copy()
        bias = None if gate_bias is None else to_numpy(check_array(gate_bias, "gate_bias"))
        return cls(check_mask(mask), gates, bias, strict)._distinct()

    @classmethod
    def from_network(cls, X: ArrayLike, network: object, *, strict: bool = False) -> Patterns:
        """The patterns of a network's neurons on X: a gated network's gates, which are strict or
        not by themselves, or the first-layer weights `W1` (m, d) and biases `b1` of any two-layer
        network."""
        if _is_gated(network):
            if check_flag(strict, "strict") and not network.strict:
                raise ValueError("strict=True, but the gates of the network are not strict")
            return cls.from_gates(X, network.gates, network.gate_bias, strict=network.strict)
        return cls.from_gates(X, *_first_layer(network), strict=strict)

    @classmethod
    def harvest(
        cls, X: ArrayLike, snapshots: Iterable[object], *, strict: bool = False
    ) -> Patterns:
        """The patterns that the neurons of a network have had on X in the course of its training,
        each once, in the order in which they appeared: the patterns that training goes through are
        candidates for the convex program.

        `snapshots` yields the network after every epoch, as for `from_network`; or its first layer
        alone, as gates (d, m) or as a pair of gates and their biases (m,). It may be a generator
        that trains between two of them: what it yields is copied at once, so it may yield the same
        object again and again.
        """
        layers = []
        for snapshot in snapshots:
            if _is_gated(snapshot) and snapshot.strict != strict:
                raise ValueError(f"strict={strict}, but snapshots has gates that say otherwise")
            layers.append(_first_layer(snapshot))
        if not layers:
            raise ValueError("snapshots is empty: it must yield a network, or gates, at least once")
        sizes = {gates.shape[0] for gates, _ in layers}
        if len(sizes) > 1:
            raise ValueError(f"snapshots have different numbers of features: {sorted(sizes)}")
        gates = np.concatenate([gates for gates, _ in layers], axis=1)
        bias = np.concatenate([bias for _, bias in layers])
        return cls.from_gates(X, gates, bias, strict=strict)

    def _distinct(self, across: Ranks = ALONE) -> Patterns:
        keep, _ = self.bits.distinct(across)
        if len(keep) == 0:
            raise ValueError("no patterns left: all of them are zero")
        return self if len(keep) == len(self) else self.select(keep)

    def select(self, indices: Index) -> Patterns:
        """The patterns at `indices` (integers, booleans or a slice), in that order."""
        chosen = np.atleast_1d(np.arange(len(self))[indices])
        if len(chosen) == 0:
            raise ValueError("no patterns left: indices selects none")
        bits = self.bits.select(chosen)
        if self.gates is None or self.gate_bias is None:
            return Patterns(bits, strict=self.strict)
        gates = np.ascontiguousarray(self.gates[:, chosen])
        return Patterns(bits, gates, self.gate_bias[chosen], self.strict)

    def join(self, other: Patterns) -> Patterns:
        """These patterns, then those of `other` (on the same rows) that are new."""
        if not isinstance(other, Patterns):
            raise TypeError(f"other must be Patterns, got {type(other).__name__}")
        if self.n_samples != other.n_samples:
            raise ValueError(
                f"patterns of {self.n_samples} and of {other.n_samples} rows cannot be joined"
            )
        if (self.gates is None) != (other.gates is None) or self.strict != other.strict:
            raise ValueError("patterns with and without gates, or strict and not, cannot be joined")
        bits = self.bits.join(other.bits)
        if self.gates is None or other.gates is None:
            return Patterns(bits, strict=self.strict)._distinct()
        if self.gates.shape[0] != other.gates.shape[0]:
            raise ValueError(
                f"patterns of {self.gates.shape[0]} and of {other.gates.shape[0]} features "
                "cannot be joined"
            )
        gates = np.concatenate([self.gates, other.gates], axis=1)
        bias = np.concatenate([self.gate_bias, other.gate_bias])
        return Patterns(bits, gates, bias, self.strict)._distinct()

    def check_belong_to(self, X: Array) -> None:
        """Raise unless these are patterns of X: the shapes fit, and on rows spread over X the
        gates reproduce the mask. Products within rounding of zero may have either sign."""
        n, d = X.shape
        if self.n_samples != n:
            raise ValueError(
                f"patterns belong to other data: they cover {self.n_samples} rows, X has {n}"
            )
        if self.gates is None or self.gate_bias is None:
            return
        if self.gates.shape[0] != d:
            raise ValueError(
                f"patterns belong to other data: their gates have {self.gates.shape[0]} features, "
                f"X has {d}"
            )
        n_rows = min(n, max(1, _CHECK_FLOPS // (2 * d * len(self))))
        if n_rows == n and isinstance(X, np.ndarray):  # mostly those that they were sampled from
            bits = activation_bits(X, self.gates, self.gate_bias, self.strict)
            if np.array_equal(bits.rows, self.bits.rows):
                return
        rows = np.linspace(0, n - 1, n_rows).astype(int)
        data, scale = to_numpy(X, keep_sparse=True), np.abs(self.gates).max(axis=0)
        for block in blocks(n_rows, _CACHED // max(d, len(self))):
            some = data[rows[block]].astype(np.float64, copy=False)
            product = some @ self.gates + self.gate_bias
            row, i = np.nonzero((product > 0) != self.bits.mask(rows[block]))
            size = abs(some[row]).sum(axis=1) * scale[i]
            wrong = np.abs(product[row, i]) > 1e-6 * (size + np.abs(self.gate_bias[i]))
            if wrong.any():
                row = rows[block][row[wrong][0]]
                raise ValueError(
                    "patterns belong to other data: their gates disagree with X, "
                    f"first at row {row}; sample them from this X"
                )


def sample_patterns(
    X: ArrayLike,
    n_patterns: int,
    *,
    gates: GateDistribution | None = None,
    bias: bool = False,
    active_share: float | None = None,
    normalize: bool = False,
    strict: bool = False,
    random_state: Seed = None,
) -> Patterns:
    """Sample at most `n_patterns` distinct, non-zero activation patterns of X.

    Parameters
    ----------
    X : (n, d) data, dense or sparse, or `StoredRows`, or `ShardedRows`.
    n_patterns : how many gates to draw; duplicates and the zero pattern go, order is kept.
    gates : `GaussianGates()` (default), `SparseGates(n_features)`, `PatchGates(image_shape)`,
        `MixedGates(parts)`, or anything with their `draw`. For gates of your own, use
        `Patterns.from_gates`.
    bias : give each gate a Gaussian bias, as if X had a column of ones. Gates that come with a
        share of rows to switch on have one anyway.
    active_share : set each gate's bias so that this share of the rows is active; rows that tie at
        the threshold are switched together. It takes the place of `bias`.
    normalize : draw for unit-norm columns (the paper's setting) and map the gates back, so that
        columns in large units do not decide every pattern.
    strict : a row is active for `x g > 0` (the paper's experiments) instead of `>= 0`.
    random_state : seed or generator; equal seeds give equal patterns.
    """
    data, across = taken_apart(check_features(X, sharded=True))
    p = check_integer(n_patterns, "n_patterns", minimum=1)
    bias, strict = check_flag(bias, "bias"), check_flag(strict, "strict")
    normalize = check_flag(normalize, "normalize")
    if active_share is not None:
        active_share = check_number(active_share, "active_share", minimum=0, strict=True, maximum=1)
        if bias:
            raise TypeError(
                "give bias or active_share, not both: one draws the biases of gates, the other "
                "computes them"
            )
        if is_stored(data) or across.size > 1:
            where = "in several processes" if across.size > 1 else "in a file"
            raise TypeError(f"active_share sorts all rows for every gate, and these are {where}")
    rng = check_random_state(random_state)
    n, d = data.shape
    check_memory(pattern_bytes(n, d, p), "patterns", n=n, d=d, p=p)
    if across.size > 1:  # one draw for all, whatever the seed of the others
        rng = across.gather(rng)[0]

    distribution = GaussianGates() if gates is None else gates
    G = draw_gates(distribution, rng, p, d)
    gate_bias = rng.standard_normal(p) if bias else np.zeros(p)
    if normalize:
        G /= unit_scale(to_numpy(data, keep_sparse=True), across)[:, None]
        gate_bias /= np.sqrt(across.sum(n))  # the norm of the column of ones
    if active_share is not None:
        bits, gate_bias = _activations_at_share(data, G, active_share, strict)
        return Patterns(bits, G, gate_bias, strict)._distinct()
    shares = draw_shares(distribution, rng, p)
    shared = np.flatnonzero(np.isfinite(shares))
    if len(shared) > 0:
        # shares are random anyway, so that some of many rows are enough
        rows = double(rows_over(to_numpy(data, keep_sparse=True), _SHARE_ROWS, across))
        gate_bias[shared] = _biases_near(rows @ G[:, shared], shares[shared])
    found = Patterns(activation_bits(data, G, gate_bias, strict), G, gate_bias, strict)
    return found._distinct(across)


def rows_over(X: Matrix | StoredRows, most: int, across: Ranks = ALONE) -> Matrix:
    """At most so many rows of all ranks, evenly spread."""
    mine = X[spread_over(X.shape[0], most, across)]
    return mine if across.size == 1 else np.concatenate(across.gather(mine))


def spread_over(n: int, most: int, across: Ranks = ALONE) -> np.ndarray:
    """Which of n rows here are among at most so many of all ranks, evenly spread."""
    counts = across.gather(n)
    whole, before = sum(counts), sum(counts[: across.rank])
    some = np.linspace(0, whole - 1, min(whole, most)).astype(int) - before
    return some[(some >= 0) & (some < n)]


def activation_bits(X: Array, gates: np.ndarray, bias: np.ndarray, strict: bool) -> Bits:
    """Where `X g + b >= 0` (`> 0` if strict), in blocks of rows, computed in float64 so that a
    pattern does not depend on the run's dtype."""
    n, p = X.shape[0], gates.shape[1]
    bits = Bits.empty(n, p)
    for rows, some in row_blocks(X, max(1, _CACHED // max(1, p) // WORD) * WORD):
        bits.put(activations(some, gates, bias, strict), rows)
    return bits


def activations(X: Array, gates: np.ndarray, bias: np.ndarray, strict: bool) -> np.ndarray:
    """The same for a few rows, as a boolean (n, p) NumPy array."""
    X = double(X)
    product = X @ like(X, gates) + like(X, bias)[None, :]
    return to_numpy(product > 0 if strict else product >= 0)


def column_norms(X: Array, across: Ranks = ALONE) -> np.ndarray:
    """The norms of the columns of X over the rows of all ranks, with 1 for zero columns."""
    # the largest entry is taken out, so that no square over- or underflows
    largest = across.max(largest_entries(X))
    largest = np.where(largest > 0, largest, 1.0)
    if is_sparse(X):
        squares = (X.data / largest[X.indices]) ** 2
        norms = largest * np.sqrt(np.bincount(X.indices, squares, minlength=len(largest)))
    elif is_stored(X):
        squares = sum(np.sum((block / largest) ** 2, axis=0) for _, block in X.chunks())
        norms = largest * np.sqrt(across.sum(squares))
    elif across.size > 1:
        norms = largest * np.sqrt(across.sum(np.sum((X / largest) ** 2, axis=0)))
    else:
        norms = largest * np.linalg.norm(X / largest, axis=0)
    return np.where(norms > 0, norms, 1.0)


def unit_scale(X: Array, across: Ranks = ALONE) -> np.ndarray:
    """What columns are divided by to get unit norm: their norms, but 1 for columns so small that
    weights for them would overflow. Those stay close to zero, and `warn_about_small` says so."""
    norms = column_norms(X, across)
    return np.where(norms < SMALLEST, 1.0, norms)


def warn_about_small(
    X: Array | StoredRows,
    scale: np.ndarray,
    names: Sequence[str] | None = None,
    *,
    stacklevel: int,
    across: Ranks = ALONE,
) -> None:
    """Warn about columns of X that are not zero, but too small to be scaled."""
    largest = across.max(largest_entries(X))
    unscaled = np.isclose(scale[: len(largest)], 1, rtol=1e-12, atol=0)
    small = np.flatnonzero(unscaled & (largest > 0) & (largest < _TINY_COLUMN))
    if len(small) == 0:
        return
    listing = ", ".join(
        f"{k if names is None else repr(names[k])} (largest entry {largest[k]:.2g})"
        for k in small[:5]
    )
    more = f" and {len(small) - 5} more" if len(small) > 5 else ""
    warnings.warn(
        f"these columns of X are too small to be scaled and count as zero: {listing}{more}; "
        "use other units for them",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def _first_layer(network: object) -> tuple[np.ndarray, np.ndarray]:
    """A copy of the gates (d, m) and biases (m,) of a network's neurons, or of given ones."""
    bias: ArrayLike | None = None
    if _is_gated(network):
        gates, bias = _check_gates(network.gates), network.gate_bias
    elif hasattr(network, "W1"):
        W1 = check_matrix(network.W1, "network.W1", "neurons", "features")
        gates, bias = to_numpy(W1).T, getattr(network, "b1", None)
    elif isinstance(network, tuple) and len(network) == 2:
        gates, bias = _check_gates(network[0]), network[1]
    elif isinstance(network, list | np.ndarray) or hasattr(network, "__array__"):
        gates = _check_gates(network)
    else:
        raise TypeError(f"network has neither gates nor W1: {type(network).__name__}")
    m = gates.shape[1]
    copied = np.zeros(m) if bias is None else np.array(check_vector(bias, "gate_bias", m))
    return np.array(gates, dtype=np.float64), copied


def _activations_at_share(
    X: Array, gates: np.ndarray, share: float, strict: bool
) -> tuple[Bits, np.ndarray]:
    """The bits with `share` of the rows active, and the biases that give it."""
    n, p = X.shape[0], gates.shape[1]
    X = double(X)
    bits, bias = Bits.empty(n, p), np.empty(p)
    for columns in blocks(p, _BLOCK // n):
        product = X @ like(X, gates[:, columns])
        bias[columns] = _biases_at(product, np.full(product.shape[1], share))
        product = product + like(X, bias[columns])[None, :]
        bits.put(to_numpy(product > 0 if strict else product >= 0), slice(0, n), columns)
    return bits, bias


def _biases_at(product: Array, share: np.ndarray) -> np.ndarray:
    """The biases with which `share` of the rows are active, for the products of rows with gates:
    halfway between the last active row and the first inactive one."""
    ordered = to_numpy(array_namespace(product).sort(product, axis=0))
    n, p = ordered.shape
    active = np.clip(np.rint(share * n).astype(int), 1, n)
    last_active = ordered[n - active, np.arange(p)]
    spread = np.maximum(ordered[-1] - ordered[0], np.abs(last_active) + 1e-300)
    below = ordered[np.maximum(n - active - 1, 0), np.arange(p)]
    first_inactive = np.where(active < n, below, last_active - spread / n)
    return -(last_active + first_inactive) / 2


def _biases_near(product: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The same, but halfway between values that rows have, with as near to `share` of the rows on
    as that allows. A gate that ties with many rows is no point inside its cone, and to find one
    takes linear programs."""
    bias, size = _biases_at(product, share), np.abs(product).max(axis=0)
    for j in np.flatnonzero(np.any(np.abs(product + bias) <= TIED * size, axis=0)):
        ordered = np.sort(product[:, j])
        first = np.flatnonzero(np.diff(ordered) > TIED * size[j]) + 1  # the row above each gap
        if len(first) == 0:  # all rows alike: on, without a tie
            bias[j] = max(size[j], 1.0) - ordered[0]
            continue
        k = first[np.argmin(np.abs(len(ordered) - first - share[j] * len(ordered)))]
        bias[j] = -(ordered[k - 1] + ordered[k]) / 2
    return bias


class _Gated(Protocol):
    """A network whose neurons are switched by gates (d, p) with biases (p,)."""

    gates: np.ndarray
    gate_bias: np.ndarray
    strict: bool


def _is_gated(network: object) -> TypeGuard[_Gated]:
    return hasattr(network, "gates")


def _check_gates(gates: ArrayLike) -> np.ndarray:
    return double(to_numpy(check_matrix(gates, "gates", "features", "patterns")))
