"""Checks on what users pass in: every message names the argument and says what is wrong."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias, TypeGuard, TypeVar

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array, is_torch_array
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, spmatrix

from cvxnn.arrays import Array, array_namespace, in_numpy, is_sparse, like, to_numpy
from cvxnn.ranks import failing_together
from cvxnn.sharded import is_sharded
from cvxnn.stored import is_stored

if TYPE_CHECKING:
    from pandas import DataFrame

    from cvxnn.protocols import Problem

T = TypeVar("T")
Seed: TypeAlias = int | np.random.Generator | np.random.SeedSequence | None
PROBLEM_KINDS = ("C-GReLU", "C-ReLU")


def check_matrix(
    values: ArrayLike, name: str, rows: str = "samples", columns: str = "features"
) -> Array:
    """A finite, non-empty, real, floating 2-d array with the values of `values`."""
    array = _to_floating(_as_array(values, name), name)
    _check_two_dimensional(array, name, rows, columns)
    _check_finite(array, name)
    return array


def check_array(values: ArrayLike, name: str) -> Array:
    """A finite, real, floating array of any shape with the values of `values`."""
    array = _to_floating(_as_array(values, name), name)
    _check_finite(array, name)
    return array


def check_vector(values: ArrayLike, name: str, size: int) -> np.ndarray:
    """`size` finite numbers, as a NumPy float64 array."""
    array = to_numpy(check_array(values, name)).astype(np.float64)
    if array.shape != (size,):
        raise ValueError(f"{name} must be {size} numbers, got shape {array.shape}")
    return array


def check_features(X: ArrayLike, n_columns: int | None = None, *, sharded: bool = False) -> Array:
    """A valid data matrix X, with `n_columns` columns where that is given; sparse ones in CSR
    format. Rows in several processes are an error unless they may be `sharded`."""
    if is_sharded(X):
        if not sharded:
            raise TypeError(
                "this needs all rows in one process; ShardedRows are for sample_patterns, CGReLU "
                "and estimators"
            )
        with failing_together(X.ranks):  # a process without rows is no error
            rows = check_features(X.local) if len(X) else X.local
            if not in_numpy(rows) or is_sparse(rows):
                raise TypeError("ShardedRows hold dense rows of NumPy")
        data: Any = X.with_rows(rows)
    elif is_stored(X):
        X.check_finite()
        data = X
    else:
        data = _check_sparse(X, "X") if hasattr(X, "tocsr") else check_matrix(X, "X")
    if n_columns is not None and data.shape[1] != n_columns:
        raise ValueError(f"X has {data.shape[1]} features, but {n_columns} are expected")
    return data


def check_targets(Y: ArrayLike, X: Array, *, empty: bool = False) -> tuple[Array, bool]:
    """Targets as an (n, C) array of X's library and dtype, and whether they came 1-dimensional.
    There may be no rows if that is `empty`."""
    array = _to_floating(_as_array(Y, "Y"), "Y")
    flat = array.ndim == 1
    if array.ndim not in (1, 2):
        raise ValueError(
            f"Y must be 1-dimensional (n,) or 2-dimensional (n, C), got shape {tuple(array.shape)}"
        )
    if array.shape[0] != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but Y has {array.shape[0]}")
    if 0 in array.shape and not (empty and array.shape[0] == 0):
        raise ValueError(f"Y is empty: shape {tuple(array.shape)}")
    _check_finite(array, "Y")
    xp = array_namespace(array)
    array = xp.reshape(array, (array.shape[0], 1)) if flat else array
    return like(X, array if same_library(array, X) else to_numpy(array)), flat


def check_mask(mask: ArrayLike) -> np.ndarray:
    """Activation patterns as a boolean (n, p) NumPy array; 0/1 numbers are taken as booleans."""
    array = to_numpy(_as_array(mask, "mask"))
    if array.dtype != bool:
        if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
            raise ValueError("mask must hold booleans (or 0 and 1 only)")
        array = array.astype(bool)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"mask must be a non-empty (n, p) array, got shape {array.shape}")
    return array


def check_number(
    value: object,
    name: str,
    *,
    minimum: float = -math.inf,
    strict: bool = False,
    maximum: float = math.inf,
    strict_maximum: bool = False,
) -> float:
    """A finite real number in the given range."""
    if isinstance(value, (bool, np.bool_)) or not _is_real_scalar(value):
        raise TypeError(f"{name} must be a real number, got {_describe(value)}")
    try:
        number = float(value)
    except OverflowError:  # a Python integer beyond all floats
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if number < minimum or (strict and number == minimum):
        raise ValueError(f"{name} must be {'>' if strict else '>='} {minimum:g}, got {number:g}")
    if number > maximum or (strict_maximum and number == maximum):
        raise ValueError(
            f"{name} must be {'<' if strict_maximum else '<='} {maximum:g}, got {number:g}"
        )
    return number


def check_integer(value: object, name: str, *, minimum: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {_describe(value)}")
    if value < minimum:
        kind = "a positive integer" if minimum == 1 else f"an integer >= {minimum}"
        raise ValueError(f"{name} must be {kind}, got {value}")
    return int(value)


def check_flag(value: object, name: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {_describe(value)}")
    return bool(value)


def check_choice(value: object, name: str, choices: Iterable[str]) -> str:
    choices = list(choices)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {choices}, got {_describe(value)}")
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; {suggest(value, choices)}")
    return value


def check_object(value: T, name: str, method: str, named: Mapping[str, type]) -> T:
    """An object that has `method`, for arguments that are one of the names or such an object."""
    if isinstance(value, type) and hasattr(value, method):
        raise TypeError(
            f"{name} must be a name or an object, got the class {value.__name__}: "
            f"write {value.__name__}(...)"
        )
    if not callable(getattr(value, method, None)):
        raise TypeError(
            f"{name} must be one of {list(named)}, or an object with the method {method!r}, "
            f"got {_describe(value)}"
        )
    return value


def name_of(value: object, named: Mapping[str, type]) -> str:
    """The name of a loss or a penalty. One of the user's own goes by its attribute `name`, or by
    that of its class where it has none, or has inherited one that belongs to another class."""
    name = getattr(value, "name", None)
    if name is None or named.get(name, type(value)) is not type(value):
        return type(value).__name__
    return str(name)


def offers(value: object, quality: str) -> bool:
    """Whether a loss or a penalty declares a quality; one that says nothing does not have it."""
    return bool(getattr(value, quality, False))


def check_random_state(value: Seed) -> np.random.Generator:
    try:
        return np.random.default_rng(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"random_state must be a seed >= 0, a generator or None, got {_describe(value)}"
        ) from error


def suggest(value: str, choices: Iterable[str]) -> str:
    """'did you mean ...?' where one of the choices is near, and the list of all of them."""
    choices = list(choices)
    near = difflib.get_close_matches(value.lower(), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Choose from: {', '.join(choices)}"


def _as_array(values: Any, name: str) -> Array:
    """`values` as an array of its own library, or else of NumPy; the dtype is not looked at."""
    if values is None:
        raise TypeError(f"{name} is None; an array is expected")
    if hasattr(values, "tocsr"):
        raise TypeError(
            f"{name} is a sparse matrix; a dense array is expected: pass {name}.toarray()"
        )
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill or drop the masked values first")
    if is_torch_array(values):
        if values.layout != array_namespace(values).strided:
            raise TypeError(f"{name} is a sparse tensor; pass {name}.to_dense()")
        return values.detach()  # nothing here is differentiated
    if is_array_api_obj(values) and not is_numpy_array(values):
        return values
    if hasattr(values, "collect"):
        raise TypeError(f"{name} is a lazy frame; pass {name}.collect()")
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        return _from_frame(values, name)
    try:
        return np.asarray(values)  # also takes subclasses such as np.matrix, whose * differs
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array of numbers: {error}") from error


def _check_sparse(values: spmatrix, name: str) -> csr_array:
    """A valid SciPy matrix as a `csr_array` without duplicates or stored zeros, which shares its
    memory with `values` where they are like that already."""
    _check_two_dimensional(values, name)
    X = csr_array(values.tocsr())
    X = csr_array((_to_floating(X.data, name), X.indices, X.indptr), shape=X.shape)
    if not X.has_canonical_format or not X.data.all():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    bad = np.flatnonzero(~np.isfinite(X.data))
    if len(bad):
        row = np.searchsorted(X.indptr, bad[0], side="right") - 1
        place = f"row {row}, column {X.indices[bad[0]]}"
        raise _not_finite(name, float(X.data[bad[0]]), place, len(bad))
    return X


def _check_two_dimensional(
    array: Array, name: str, rows: str = "samples", columns: str = "features"
) -> None:
    shape = tuple(array.shape)
    if len(shape) != 2:
        hint = ""
        if len(shape) == 1:
            hint = f"; reshape a single column to (n, 1), a single row to (1, {columns})"
        raise ValueError(
            f"{name} must be 2-dimensional ({rows} x {columns}), got shape {shape}{hint}"
        )
    if 0 in shape:
        raise ValueError(f"{name} is empty: shape {shape}")


def _to_floating(array: Array, name: str) -> Array:
    xp = array_namespace(array)
    if is_numpy_array(array) and array.dtype.kind not in "biuf":
        kind = {"c": "complex numbers", "O": "Python objects", "M": "dates", "m": "durations"}
        found = kind.get(array.dtype.kind, "text" if array.dtype.kind in "USTa" else "no numbers")
        hint = ": encode labels as +-1, or one-hot for several classes" if name == "Y" else ""
        raise TypeError(
            f"{name} holds {found} (dtype {array.dtype}); real numbers are expected{hint}"
        )
    if xp.isdtype(array.dtype, "complex floating"):
        raise TypeError(f"{name} holds complex numbers; real numbers are expected")
    if array.dtype in (xp.float32, xp.float64):
        return array
    if xp.isdtype(array.dtype, "real floating"):  # half precision is for storage
        return xp.astype(array, xp.float32 if array.dtype.itemsize < 4 else xp.float64)
    return xp.astype(array, xp.float64)


def _from_frame(frame: DataFrame, name: str) -> np.ndarray:
    """A pandas or polars DataFrame, column by column: mixed numeric types are fine."""
    columns = []
    for j, label in enumerate(frame.columns):
        column = frame.iloc[:, j] if hasattr(frame, "iloc") else frame.to_series(j)
        values = np.asarray(column)
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"{name} column {label!r} holds no real numbers (dtype {column.dtype}); "
                "encode or drop it first"
            )
        columns.append(values)
    if not columns:
        return np.empty((len(frame), 0))
    all_single = all(values.dtype == np.float32 for values in columns)
    return np.stack(columns, axis=1, dtype=np.float32 if all_single else np.float64)


def _check_finite(array: Array, name: str) -> None:
    xp = array_namespace(array)
    finite = xp.isfinite(array)
    if bool(xp.all(finite)):
        return
    places = np.argwhere(~to_numpy(finite))
    value = float(array[tuple(int(i) for i in places[0])])
    axes = ("row", "column") if array.ndim <= 2 else tuple(f"axis {i}" for i in range(array.ndim))
    place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, places[0], strict=False))
    raise _not_finite(name, value, place, len(places))


def _not_finite(name: str, value: float, place: str, count: int) -> ValueError:
    return ValueError(
        f"{name} holds NaN or infinity: {value} at {place} "
        f"({count} such value{'s' if count > 1 else ''} in all)"
    )


def is_missing(value: Any) -> bool:
    """Whether this is None, NaN, NaT or the NA of pandas, none of which equals itself."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and value != value


def same_library(a: Array, b: Array) -> bool:
    return array_namespace(a) is array_namespace(b)


def _is_real_scalar(value: Any) -> TypeGuard[SupportsFloat]:
    if isinstance(value, numbers.Real):
        return True
    return is_array_api_obj(value) and value.ndim == 0 and to_numpy(value).dtype.kind in "iuf"


def _describe(value: object) -> str:
    return f"{value!r}" if value is None or isinstance(value, (str, bool)) else type(value).__name__


__all__ = [
    "check_array",
    "check_choice",
    "check_features",
    "check_flag",
    "check_integer",
    "check_mask",
    "check_matrix",
    "check_number",
    "check_random_state",
    "check_targets",
    "check_vector",
    "is_missing",
    "suggest",
]


def check_whole(problem: Problem, what: str) -> None:
    """Raise unless all rows of the problem are in this process."""
    size = problem.operator.base.across.size
    if size > 1:
        raise ValueError(
            f"{what} needs all rows in one process, and these are in {size}; `solve` and `certify` "
            "work with rows in several"
        )


def check_problem(problem: T) -> T:
    """A convex problem, which is known by its kind."""
    if isinstance(problem, type) or getattr(problem, "kind", None) not in PROBLEM_KINDS:
        raise TypeError(f"problem must be a CGReLU or CReLU, got {type(problem).__name__}")
    return problem
