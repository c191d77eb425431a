"""The rows that estimators train on: distinct, weighted, and scaled.

A row of weight w counts as w equal rows, so equal rows are merged and their weights added. The
order of summation depends on the rows alone, so that no result depends on the order in which they
are given. Columns are scaled by x -> (x - mean) / spread, with weighted means and spreads;
`Scaling.undo` takes a network back to raw rows: W1 x' + b1 = (W1 / spread) x + b1 -
W1 (mean / spread).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from cvxnn.arrays import is_stored, largest_entries
from cvxnn.estimators.components import Components
from cvxnn.networks import GatedReLUNetwork, SomeNetwork
from cvxnn.patterns import SMALLEST
from cvxnn.protocols import Problem
from cvxnn.ranks import ALONE, Ranks
from cvxnn.sharded import is_sharded, taken_apart
from cvxnn.stored import StoredRows
from cvxnn.threads import cached_property

AGREEMENT = 1e-9  # relative, of numbers computed twice, perhaps on two machines
_CONSTANT = 1e-13  # a spread below this, relative to the size of the column, is rounding


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows (n, d), their targets (n, C) and weights (n,).

    X : an array, a sparse matrix, `StoredRows` or `ShardedRows`.
    """

    X: Any
    Y: np.ndarray
    weight: np.ndarray

    @property
    def across(self) -> Ranks:
        """The processes that have the other rows."""
        return taken_apart(self.X)[1]

    def __len__(self) -> int:
        return len(self.weight)

    def merged(self) -> Rows:
        """Rows of weight zero go; equal rows with equal targets become one, in sorted order. Rows
        in files stay as they are: to sort them would be to write them again; and so do those in
        several processes, whose equals may be in another one."""
        if is_stored(self.X) or is_sharded(self.X):
            return self if np.all(self.weight > 0) else self.select(self.in_order())
        first, owner = self._contents
        order = self.in_order()
        total = np.bincount(owner[order], weights=self.weight[order], minlength=len(first))
        first, total = first[total > 0], total[total > 0]
        return Rows(self.X[first], self.Y[first], total)

    def in_order(self) -> np.ndarray:
        """The rows of positive weight, sorted by content, and equal rows by weight: the same
        sequence in whatever order the rows are given. Rows in files are in the order of the file.
        """
        if is_stored(self.X) or is_sharded(self.X):
            return np.flatnonzero(self.weight > 0)
        order = np.lexsort((self.weight, self._contents[1]))
        return order[self.weight[order] > 0]

    @cached_property
    def _contents(self) -> tuple[np.ndarray, np.ndarray]:
        """First occurrences of distinct rows, sorted by content, and which one each row equals."""
        if not isinstance(self.X, np.ndarray):
            return _distinct_sparse(self.X, self.Y)
        both = np.ascontiguousarray(np.column_stack([self.X, self.Y]) + 0.0)  # -0 is 0
        _, first, owner = np.unique(both, axis=0, return_index=True, return_inverse=True)
        return first, owner.reshape(-1)

    def select(self, rows: np.ndarray) -> Rows:
        local, _ = taken_apart(self.X)
        local = local.select(rows) if is_stored(local) and len(rows) else local[rows]
        X = self.X.with_rows(local) if is_sharded(self.X) else local
        return Rows(X, self.Y[rows], self.weight[rows])


def _distinct_sparse(X: csr_array, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First occurrences of distinct rows, sorted by content, and the one that each row equals."""
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = []
    for i in range(X.shape[0]):
        entries = slice(X.indptr[i], X.indptr[i + 1])
        keys.append(
            X.indices[entries].tobytes() + b"|" + X.data[entries].tobytes() + Y[i].tobytes()
        )
    place: dict[bytes, int] = {}
    for i, key in enumerate(keys):
        place.setdefault(key, i)
    ordered = sorted(place)
    rank = {key: k for k, key in enumerate(ordered)}
    return np.array([place[key] for key in ordered]), np.array([rank[key] for key in keys])


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> (x - mean) / spread for columns; sparse ones keep their zeros, with a mean of 0."""

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, X: Any, weight: np.ndarray, centre: bool, across: Ranks = ALONE) -> Scaling:
        """Of the rows of all ranks."""
        share = weight / across.sum(weight.sum())
        if across.size > 1:
            return cls._of_ranks(X, share, centre, across)
        if is_stored(X):
            return cls._of_stored(X, share, centre)
        if not isinstance(X, np.ndarray):
            mean = np.zeros(X.shape[1])
            size = largest_entries(X)
            size = np.where(size > 0, size, 1.0)
            scaled = X.copy()
            scaled.data = X.data / size[X.indices]  # whose inverse may overflow
            spread = size * np.sqrt(np.asarray(scaled.multiply(scaled).T @ share).reshape(-1))
            return cls(mean, np.where(spread > 0, spread, 1.0))
        size = largest_entries(X)
        size = np.where(size > 0, size, 1.0)  # taken out, so that no square over- or underflows
        scaled = X / size
        mean = share @ scaled
        spread = np.sqrt(share @ (scaled - (mean if centre else 0.0)) ** 2)
        return cls._of_moments(size, scaled[0], mean, spread, centre)

    @classmethod
    def _of_ranks(cls, X: Any, share: np.ndarray, centre: bool, across: Ranks) -> Scaling:
        """The same in three passes over the rows here, with a sum at the end of each."""
        parts = [(slice(0, len(X)), X)] if isinstance(X, np.ndarray) else None

        def passed(of_chunk: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
            total = np.zeros(X.shape[1])
            for rows, chunk in parts or X.chunks():
                total += share[rows] @ of_chunk(chunk / size)
            return across.sum(total)

        size = across.max(largest_entries(X))
        size = np.where(size > 0, size, 1.0)
        mean = passed(lambda scaled: scaled)
        origin = mean if centre else 0.0
        spread = np.sqrt(passed(lambda scaled: (scaled - origin) ** 2))
        firsts = [row for row in across.gather(X[:1]) if len(row)]
        return cls._of_moments(size, firsts[0][0] / size, mean, spread, centre)

    @classmethod
    def _of_stored(cls, X: StoredRows, share: np.ndarray, centre: bool) -> Scaling:
        """The same in three passes over the file."""
        size = largest_entries(X)
        size = np.where(size > 0, size, 1.0)
        mean = sum(share[rows] @ (chunk / size) for rows, chunk in X.chunks())
        origin = mean if centre else 0.0
        squares = sum(share[rows] @ (chunk / size - origin) ** 2 for rows, chunk in X.chunks())
        return cls._of_moments(size, X[:1][0] / size, mean, np.sqrt(squares), centre)

    @classmethod
    def _of_moments(
        cls,
        size: np.ndarray,
        first: np.ndarray,
        mean: np.ndarray,
        spread: np.ndarray,
        centre: bool,
    ) -> Scaling:
        """From what columns are after a division by their size; `first` is the first row."""
        constant = spread <= _CONSTANT
        mean = np.where(constant, first, mean)  # exactly, so that it becomes zero
        spread = np.where(constant, 1.0, spread)
        return cls(size * mean if centre else np.zeros_like(mean), size * spread)

    @classmethod
    def none(cls, d: int) -> Scaling:
        return cls(np.zeros(d), np.ones(d))

    def of_columns(self) -> Scaling:
        """The scaling for features. Columns so small that weights divided by their spread would
        overflow are left unscaled, and so stay close to zero."""
        small = self.spread < SMALLEST
        return Scaling(np.where(small, 0.0, self.mean), np.where(small, 1.0, self.spread))

    def apply(self, X: Any) -> Any:
        if is_sharded(X):
            return X.with_rows(self.apply(X.local))
        if is_stored(X):
            return X.scaled(self.mean, self.spread)
        if not isinstance(X, np.ndarray):
            return X.multiply(1 / self.spread).tocsr()
        return (X - self.mean) / self.spread

    def inverse(self) -> Scaling:
        """The way from scaled columns to raw ones; its `undo` turns a network for raw rows into one
        for scaled rows."""
        return Scaling(-self.mean / self.spread, 1 / self.spread)

    def undo(self, network: SomeNetwork) -> SomeNetwork:
        """The network for raw rows that equals the given one on scaled rows."""
        shift = self.mean / self.spread
        b1 = None if network.b1 is None else network.b1 - network.W1 @ shift
        if isinstance(network, GatedReLUNetwork):
            return replace(
                network,
                W1=network.W1 / self.spread,
                b1=b1,
                gates=network.gates / self.spread[:, None],
                gate_bias=network.gate_bias - network.gates.T @ shift,
            )
        return replace(network, W1=network.W1 / self.spread, b1=b1)

    def undo_outputs(self, network: SomeNetwork) -> SomeNetwork:
        """The network with raw outputs that corresponds to the given one with scaled outputs."""
        first = np.sqrt(np.exp(np.mean(np.log(self.spread))))  # balanced for one output
        b2 = self.mean if network.b2 is None else network.b2 * self.spread + self.mean
        return replace(
            network,
            W1=network.W1 * first,
            b1=None if network.b1 is None else network.b1 * first,
            W2=network.W2 * self.spread / first,
            b2=b2 if np.any(b2 != 0) or network.b2 is not None else None,
        )


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers that define a convex program together with its rows, patterns and lam. All else
    is computed from them elementwise, so that every machine poses the same program.

    row_weight : (n,), the shares of merged rows in the loss.
    columns, targets : how both are scaled; with `factors`, columns are so by them as well.
    components : of the scaled columns, where a program is posed on these.
    factors : (d,), what columns of unit variance were multiplied by, where that was learned.
    """

    row_weight: np.ndarray
    columns: Scaling
    targets: Scaling
    components: Components | None = None
    factors: np.ndarray | None = None

    @property
    def scope(self) -> str:
        """What a certificate says of the columns, beside the program itself."""
        if self.factors is not None:
            return " on columns in learned scales"
        return "" if self.components is None else f" on {self.components.words}"

    @property
    def unit_spread(self) -> np.ndarray:
        """What raw columns are divided by to have unit variance."""
        spread = self.columns.spread
        return spread if self.factors is None else spread * self.factors

    def with_weights_of(self, problem: Problem) -> Numbers:
        """The same, with the row weights that the loss of a program has."""
        return replace(self, row_weight=np.asarray(problem.loss.row_weight)[:, 0])

    def scaled(self, rows: Rows) -> Rows:
        """Raw rows, scaled as in the program."""
        X = self.columns.apply(rows.X)
        if self.components is not None:
            X = self.components.apply(X)
        return replace(rows, X=X, Y=self.targets.apply(rows.Y))

    def scale_network(self, network: SomeNetwork) -> SomeNetwork:
        """The network for scaled rows and outputs that equals the given one for raw ones."""
        scaled = self.columns.inverse().undo(network)
        if self.components is not None:
            scaled = self.components.reduce(scaled)
        return self.targets.inverse().undo_outputs(scaled)

    def unscale_network(self, network: SomeNetwork) -> SomeNetwork:
        """The network for raw rows and outputs that equals the given one for scaled ones."""
        if self.components is not None:
            network = self.components.restore(network)
        return self.targets.undo_outputs(self.columns.undo(network))

    def differences(self, again: Numbers, scaled: Rows) -> list[str]:
        """Which numbers differ from those computed again, in words; `scaled` are the rows by these
        numbers. Means are compared relative to the spread as well, because a mean may be zero."""
        pairs = {
            "row weights": (self.row_weight, again.row_weight, 0.0),
            "column spreads": (self.columns.spread, again.columns.spread, 0.0),
            "column means": (self.columns.mean, again.columns.mean, again.columns.spread),
            "target spreads": (self.targets.spread, again.targets.spread, 0.0),
            "target means": (self.targets.mean, again.targets.mean, again.targets.spread),
        }
        found = []
        for name, (mine, other, size) in pairs.items():
            slack = np.where(other == 0, 0.0, AGREEMENT * (np.abs(other) + size))
            if np.shape(mine) != np.shape(other) or not np.all(np.abs(mine - other) <= slack):
                found.append(f"{name} in the file are not those of these rows")
        if self.components is not None and again.components is not None:
            found += self.components.differences(again.components, scaled.X, self.row_weight)
        return found
