"""Array libraries: everything that is not the array-API standard itself.

The numerical code is written against the array-API namespace of its inputs, so NumPy arrays,
torch tensors and any other conforming array pass through the same lines. Only what the
standard leaves open lives here: moving an array to NumPy and back, and precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

Array = Any  # an array of any array-API library; shapes stand in the docstrings

__all__ = ["Array", "array_namespace", "blocks", "double", "is_double", "like", "to_numpy"]


def to_numpy(x: Array) -> np.ndarray:
    """The same values as a NumPy array, copied off an accelerator if need be."""
    return np.asarray(x.detach().cpu()) if is_torch_array(x) else np.asarray(x)


def like(reference: Array, values: Any, dtype: Any = None) -> Array:
    """`values` as an array of the library, device and (unless given) dtype of `reference`."""
    xp = array_namespace(reference)
    dtype = reference.dtype if dtype is None else dtype
    return xp.asarray(values, dtype=dtype, device=device(reference))


def is_double(x: Array) -> bool:
    return x.dtype == array_namespace(x).float64


def double(x: Array) -> Array:
    """`x` in float64; no copy where it is already."""
    xp = array_namespace(x)
    return x if x.dtype == xp.float64 else xp.astype(x, xp.float64)


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices that cover range(n) in pieces of at most `size`."""
    size = max(1, size)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
