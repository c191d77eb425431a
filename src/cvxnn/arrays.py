"""Array libraries: everything that is not the array-API standard itself.

The numerical code is written against the array-API namespace of its inputs, so NumPy arrays,
torch tensors and any other conforming array pass through the same lines. Only what the
standard leaves open lives here: moving an array to NumPy and back, and precision.

Arrays may be on a device, such as a GPU. `to_numpy` is the one place where they are copied off it,
and `like` the one where they are copied back. Some devices have no float64; `double` is then as
wide as it can be, and certificates are computed in NumPy anyway.

Data may also be sparse: a `csr_array` of SciPy, without duplicates or stored zeros. Products with
NumPy arrays (`X @ U`, `U @ X.T`) and rows (`X[rows]`) are written as for a dense array; the rest
that differs is here. And data may be in a file (`StoredRows`), of which some rows at a time are
NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeGuard, TypeVar, cast

import array_api_compat.numpy as numpy_namespace
import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace as _namespace
from array_api_compat import device, is_array_api_obj, is_cupy_array, is_torch_array, to_device
from scipy.sparse import csr_array, hstack, issparse

from cvxnn.stored import StoredRows
from cvxnn.stored import is_stored as is_stored

Operand: TypeAlias = "Array | float"
# Entries along an axis, by number, as a slice, a list or an array; or a tuple with some for each.
_Axis: TypeAlias = "SupportsIndex | slice | Sequence[int] | Array"
Index: TypeAlias = "_Axis | tuple[_Axis | None, ...] | None"


class Array(Protocol):
    """An array of any array-API library, or a sparse matrix or rows in a file in its place; shapes
    stand in the docstrings.

    Only what the code uses is listed. Results are `Any` where the libraries differ in what they
    return, which for all of them is an array of their own.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Any: ...
    def __array__(self) -> np.ndarray: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __neg__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __add__(self, other: Operand, /) -> Any: ...
    def __radd__(self, other: Operand, /) -> Any: ...
    def __sub__(self, other: Operand, /) -> Any: ...
    def __rsub__(self, other: Operand, /) -> Any: ...
    def __mul__(self, other: Operand, /) -> Any: ...
    def __rmul__(self, other: Operand, /) -> Any: ...
    def __truediv__(self, other: Operand, /) -> Any: ...
    def __rtruediv__(self, other: Operand, /) -> Any: ...
    def __matmul__(self, other: Operand, /) -> Any: ...
    def __rmatmul__(self, other: Operand, /) -> Any: ...
    def __pow__(self, other: Operand, /) -> Any: ...
    def __le__(self, other: Operand, /) -> Any: ...
    def __lt__(self, other: Operand, /) -> Any: ...
    def __ge__(self, other: Operand, /) -> Any: ...
    def __gt__(self, other: Operand, /) -> Any: ...


SomeArray = TypeVar("SomeArray", bound=Array)  # of one library, in and out
Weights: TypeAlias = Array | tuple[Array, Array]  # as users see them: U, or the pair (V, W)
Matrix: TypeAlias = np.ndarray | csr_array  # data that NumPy computes with, dense or sparse


def is_sparse(x: object) -> TypeGuard[csr_array]:
    return isinstance(x, csr_array)


def in_numpy(x: Array) -> bool:
    """Whether NumPy computes with it, dense or sparse."""
    return isinstance(x, (np.ndarray, csr_array, StoredRows))


def array_namespace(x: Array) -> ModuleType:
    """The functions for arrays like `x`; what is computed from a sparse matrix or from rows in a
    file is NumPy's."""
    if isinstance(x, (np.ndarray, csr_array, StoredRows)):  # the common case, called very often
        return numpy_namespace
    return _namespace(x)


def to_numpy(x: Array, *, keep_sparse: bool = False) -> Any:
    """The same values as a NumPy array, copied off a device if need be. A sparse matrix and rows in
    a file are refused, or stay what they are."""
    if type(x) is np.ndarray:  # the common case, called very often
        return x
    if is_sparse(x) or is_stored(x):
        if keep_sparse:
            return x
        if is_stored(x):
            raise TypeError("X is in a file; this needs an array: X[:] reads all rows into memory")
        raise TypeError("X is a sparse matrix; this needs a dense array: pass X.toarray()")
    return x if isinstance(x, np.ndarray) else np.asarray(_off_device(x))


def _off_device(x: Any) -> Any:
    if is_torch_array(x):
        return x.detach().cpu()
    if is_cupy_array(x):
        return x.get()
    if not is_array_api_obj(x):
        return x
    host = _namespace(x).__array_namespace_info__().default_device()
    return x if device(x) == host else to_device(x, host)


def like(reference: SomeArray, values: npt.ArrayLike, dtype: object = None) -> SomeArray:
    """`values` as an array of the library, device and (unless given) dtype of `reference`."""
    xp = array_namespace(reference)
    dtype = reference.dtype if dtype is None else dtype
    if isinstance(values, np.ndarray) and xp is not numpy_namespace:
        # converted before the copy, which takes less and which a device without float64 needs
        values = values.astype(_name(dtype), copy=False)
    return xp.asarray(values, dtype=dtype, device=device(_entries(reference)))


def zeros(reference: SomeArray, shape: tuple[int, ...]) -> SomeArray:
    """Zeros like `reference`, of another shape; never sparse."""
    xp = array_namespace(reference)
    return xp.zeros(shape, dtype=reference.dtype, device=device(_entries(reference)))


def on_device(x: object) -> str:
    """The device that an array is on, in words; empty for NumPy's own memory."""
    return "" if isinstance(x, (np.ndarray, csr_array, StoredRows)) else str(device(x))


def widest(x: Array) -> Any:
    """The dtype float64, or float32 where the device of x has no float64."""
    xp = array_namespace(x)
    if xp is numpy_namespace:
        return np.dtype(np.float64)
    return _widest(xp, device(x))


@cache
def _widest(xp: ModuleType, its: Any) -> Any:
    known = xp.__array_namespace_info__().dtypes(device=its, kind="real floating")
    return known.get("float64", xp.float32)


def has_float64(x: Array) -> bool:
    return widest(x) == array_namespace(x).float64


def is_double(x: Array) -> bool:
    """Whether x has the widest numbers of its device: float64, nearly everywhere."""
    return x.dtype == widest(x)


def double(x: SomeArray) -> SomeArray:
    """`x` in the widest numbers of its device; no copy where it is already."""
    if type(x) is np.ndarray and x.dtype == np.float64:  # the common case, called very often
        return x
    return x if is_double(x) else astype(x, widest(x))


def _name(dtype: object) -> str:
    return str(dtype).rpartition(".")[2]


def astype(x: SomeArray, dtype: Any) -> SomeArray:
    if is_sparse(x):
        return x.astype(dtype)
    if is_stored(x):
        return cast(Any, x.astype(dtype))
    return array_namespace(x).astype(x, dtype)


def with_rows_set(x: SomeArray, rows: Array, chosen: Array, values: Array) -> SomeArray:
    """A copy of x (m, k) whose rows in `chosen` (m,), booleans, are `values`; `rows` are their
    numbers, in order. The standard knows no assignment to rows by number."""
    if isinstance(x, np.ndarray):
        result = x.copy()
        result[rows] = values
        return result
    if values.shape[0] == 0:
        return x
    xp = array_namespace(x)
    place = xp.cumulative_sum(xp.astype(chosen, xp.int64)) - 1
    place = xp.maximum(place, xp.zeros_like(place))
    return xp.where(chosen[:, None], xp.take(values, place, axis=0), x)


def with_ones(X: Array) -> Array:
    """X with a column of ones as its last."""
    if is_sparse(X):
        ones = csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))
        return hstack([X, ones], format="csr")
    if is_stored(X):
        return cast(Array, X.with_ones())
    xp = array_namespace(X)
    return xp.concat([X, xp.ones_like(X[:, :1])], axis=1)


def divide_columns(X: Array, scale: np.ndarray) -> Array:
    if is_sparse(X):
        return _with_entries(X, X.data / scale.astype(X.dtype)[X.indices])
    if is_stored(X):
        return cast(Array, X.divided(scale))
    return X / like(X, scale)[None, :]


def divide_rows(X: Matrix, scale: np.ndarray) -> Matrix:
    if is_sparse(X):
        return _with_entries(X, X.data / np.repeat(scale, np.diff(X.indptr)))
    return X / scale[:, None]


def row_squares(X: Matrix | StoredRows) -> np.ndarray:
    """The squared norms of the rows: (n,)."""
    if is_stored(X):
        return np.concatenate([row_squares(block) for _, block in X.chunks()])
    return (X * X).sum(axis=1) if is_sparse(X) else np.einsum("ij,ij->i", X, X)


def largest_entries(X: Any) -> np.ndarray:
    """The largest absolute value in each column of X, which may be any sparse CSR matrix: (d,)."""
    if is_stored(X):
        return np.max([largest_entries(block) for _, block in X.chunks()], axis=0)
    if not issparse(X):
        return np.max(np.abs(to_numpy(X)), axis=0, initial=0.0).astype(np.float64)
    largest = np.zeros(X.shape[1])
    np.maximum.at(largest, X.indices, np.abs(X.data))
    return largest


def row_blocks(X: Array, size: int) -> Iterator[tuple[slice, Any]]:
    """The rows of X in pieces of at most `size`, each with the slice of rows that it is."""
    if is_stored(X):
        for rows, chunk in X.chunks():
            for part in blocks(len(chunk), size):
                yield slice(rows.start + part.start, rows.start + part.stop), chunk[part]
        return
    for rows in blocks(X.shape[0], size):
        yield rows, X[rows, :]


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices that cover range(n) in pieces of at most `size`."""
    size = max(1, size)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _entries(x: Array) -> Array:
    if is_stored(x):
        return np.empty(0)
    return x.data if is_sparse(x) else x


def _with_entries(X: csr_array, entries: np.ndarray) -> csr_array:
    return csr_array((entries, X.indices, X.indptr), shape=X.shape)
