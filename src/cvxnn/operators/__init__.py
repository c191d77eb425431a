"""The expanded matrix M = [D_1 X ... D_p X] as an object, for every kind of data."""

import numpy as np

from cvxnn.arrays import Array, in_numpy, is_sparse, is_stored
from cvxnn.bits import Bits
from cvxnn.operators.base import Operator, PatternOperator
from cvxnn.operators.dense import ExpandedMatrix
from cvxnn.operators.devices import DeviceMatrix
from cvxnn.operators.sharded import ShardedMatrix
from cvxnn.operators.signed import SignedMatrix
from cvxnn.operators.sparse import SparseExpandedMatrix
from cvxnn.operators.stored import StoredMatrix
from cvxnn.sharded import is_sharded

__all__ = [
    "DeviceMatrix",
    "ExpandedMatrix",
    "Operator",
    "PatternOperator",
    "ShardedMatrix",
    "SignedMatrix",
    "SparseExpandedMatrix",
    "StoredMatrix",
    "expanded_matrix",
]


def expanded_matrix(X: Array, patterns: Bits | np.ndarray) -> PatternOperator:
    """The operator for this kind of data, and for patterns as bits or as a boolean mask."""
    if is_sharded(X):
        return ShardedMatrix(expanded_matrix(X.local, patterns), X.ranks)
    if is_stored(X):
        return StoredMatrix(X, patterns)
    if is_sparse(X):
        return SparseExpandedMatrix(X, patterns)
    return ExpandedMatrix(X, patterns) if in_numpy(X) else DeviceMatrix(X, patterns)
