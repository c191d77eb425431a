"""Rows of which every process has some, as the X of a problem."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeGuard

import numpy as np

from cvxnn.ranks import ALONE, Ranks, TorchRanks, failing_together
from cvxnn.stored import is_stored


class ShardedRows:
    """The rows of this process; the other processes of a group have the others. They take the place
    of X in `sample_patterns` and `CGReLU`, together with the targets of these rows. Every process
    runs the same program, and all get the same weights and the same certificate.

    Parameters
    ----------
    rows : (n, d), an array or `StoredRows`, of float32 or float64 numbers; arrays become float64
        where other processes have that.
    ranks : the group of processes; by default that of `torch.distributed`.
    """

    ndim = 2

    def __init__(self, rows: Any, ranks: Ranks | None = None) -> None:
        self.local: Any = rows if is_stored(rows) else np.asarray(rows)
        self.ranks: Ranks = TorchRanks() if ranks is None else ranks
        with failing_together(self.ranks):
            if self.local.ndim != 2:
                raise ValueError(f"rows must be 2-dimensional, got shape {self.local.shape}")
        widths = self.ranks.gather(self.local.shape[1])
        if len(set(widths)) > 1:
            raise ValueError(f"rows have different numbers of columns by process: {widths}")
        self._to_one_dtype()

    def _to_one_dtype(self) -> None:
        """Weights have that of the rows, so that a certificate is about the same on all ranks."""
        dtypes = self.ranks.gather(str(self.local.dtype) if len(self.local) else "none")
        single, stored = not set(dtypes) - {"float32", "none"}, is_stored(self.local)
        with failing_together(self.ranks):
            if stored and (self.local.dtype == np.float32) != single:
                raise ValueError(
                    f"rows have different dtypes by process: {dtypes}; those in files stay as "
                    "they are, so make the others the same"
                )
        if not stored and (not len(self.local) or (self.local.dtype == np.float32 and not single)):
            self.local = self.local.astype(np.float32 if single else np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows of this process."""
        return self.local.shape[0], self.local.shape[1]

    @property
    def dtype(self) -> Any:
        return self.local.dtype

    def with_rows(self, rows: Any) -> ShardedRows:
        """Other rows, of the same processes, which need not be asked."""
        other = copy(self)
        other.local = rows
        return other

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ShardedRows({self.local!r}, process {self.ranks.rank} of {self.ranks.size})"


def is_sharded(x: object) -> TypeGuard[ShardedRows]:
    return isinstance(x, ShardedRows)


def taken_apart(X: Any) -> tuple[Any, Ranks]:
    """The rows of this process, and those that have the others."""
    return (X.local, X.ranks) if is_sharded(X) else (X, ALONE)
