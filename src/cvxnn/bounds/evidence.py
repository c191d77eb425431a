"""What a bound of prices rests on, as plain bytes and numbers: all that a check of it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NAMES = ("trees", "tree_lengths", "coordinates", "multipliers")
_NONE = -1  # in place of the length of a tree that is not there


class Evidence(NamedTuple):
    """Evidence for the prices of C classes. Where there is none of a kind, a check finds its own.

    trees : for each class the trees of cones (bytes, see trees.py) of theta and of -theta, each of
        which may be None.
    coordinates : (d, r), Q with rows x_i = Q z_i + e_i for z_i = Q'x_i, if prices were bounded on
        the z_i.
    multipliers : (C, 2, 3, n), those of the semidefinite bound for theta and -theta: a, beta and
        gamma.
    """

    trees: tuple[tuple[bytes | None, bytes | None], ...] | None = None
    coordinates: np.ndarray | None = None
    multipliers: np.ndarray | None = None

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """For a file."""
        found: dict[str, np.ndarray] = {}
        if self.trees is not None:
            trees = [tree for pair in self.trees for tree in pair]
            found["trees"] = np.frombuffer(b"".join(t or b"" for t in trees), dtype=np.uint8)
            lengths = [_NONE if tree is None else len(tree) for tree in trees]
            found["tree_lengths"] = np.array(lengths, dtype=np.int64).reshape(-1, 2)
        if self.coordinates is not None:
            found["coordinates"] = np.asarray(self.coordinates, dtype=np.float64)
        if self.multipliers is not None:
            found["multipliers"] = np.asarray(self.multipliers, dtype=np.float64)
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], n_classes: int) -> Evidence:
        """From the arrays of a file, which may be damaged: a ValueError says how."""
        trees = None
        if "trees" in arrays or "tree_lengths" in arrays:
            data = _checked(arrays, "trees", np.uint8, 1).tobytes()
            lengths = _checked(arrays, "tree_lengths", np.int64, 2)
            if lengths.shape != (n_classes, 2) or np.any(lengths < _NONE):
                raise ValueError(f"tree_lengths must be ({n_classes}, 2) lengths")
            ends = [0, *np.cumsum(np.maximum(lengths, 0).ravel()).tolist()]
            if ends[-1] != len(data):
                raise ValueError(f"trees have {len(data)} bytes, their lengths sum to {ends[-1]}")
            parts = [
                None if length == _NONE else data[start : start + length]
                for start, length in zip(ends[:-1], lengths.ravel().tolist(), strict=True)
            ]
            trees = tuple(zip(parts[::2], parts[1::2], strict=True))
        return cls(
            trees,
            _checked(arrays, "coordinates", np.float64, 2) if "coordinates" in arrays else None,
            _checked(arrays, "multipliers", np.float64, 4) if "multipliers" in arrays else None,
        )


def _checked(
    arrays: Mapping[str, np.ndarray], name: str, dtype: type[np.generic], ndim: int
) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"{name} are missing")
    array = arrays[name]
    if array.dtype != dtype or array.ndim != ndim:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    return array
