"""Where gate vectors come from: Gaussian, sparse, or on patches of images.

Anything with a method `draw` is a distribution of gates; see `GateDistribution`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cvxnn.arrays import to_numpy
from cvxnn.validation import check_integer, check_matrix


class GateDistribution(Protocol):
    """Where gate vectors come from: `draw` returns p gates for d features as a (p, d) array."""

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray: ...


@dataclass(frozen=True)
class GaussianGates:
    """Gates g ~ N(0, I), the paper's choice. The first gates do not depend on how many follow."""

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
        return rng.standard_normal((p, d))


@dataclass(frozen=True)
class SparseGates:
    """Gaussian gates that look at `n_features` features each, chosen uniformly."""

    n_features: int

    def __post_init__(self) -> None:
        check_integer(self.n_features, "n_features", minimum=1)

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
        if self.n_features > d:
            raise ValueError(f"n_features is {self.n_features}, but X has only {d} features")
        chosen = np.argsort(rng.random((p, d)), axis=1)[:, : self.n_features]
        gates = np.zeros((p, d))
        np.put_along_axis(gates, chosen, rng.standard_normal(chosen.shape), axis=1)
        return gates


@dataclass(frozen=True)
class PatchGates:
    """Gaussian gates on a `size` x `size` patch of an image, placed uniformly (paper, MNIST).

    `image_shape` is (height, width), or three numbers with the channels on `channel_axis`;
    the rows of X are such images, flattened in C order. A patch spans all channels.
    """

    image_shape: Sequence[int]
    size: int = 3
    channel_axis: int = -1

    def __post_init__(self) -> None:
        if not hasattr(self.image_shape, "__iter__"):
            raise TypeError(f"image_shape must be 2 or 3 integers, got {self.image_shape!r}")
        shape = tuple(check_integer(s, "image_shape", minimum=1) for s in self.image_shape)
        if len(shape) not in (2, 3):
            raise ValueError(f"image_shape must have 2 or 3 entries, got {shape}")
        check_integer(self.size, "size", minimum=1)
        if self.channel_axis not in (-3, -2, -1, 0, 1, 2):
            raise ValueError(f"channel_axis must be one of the 3 axes, got {self.channel_axis}")
        object.__setattr__(self, "image_shape", shape)
        if self.size > min(self._pixels.shape[:2]):
            raise ValueError(f"patches of size {self.size} do not fit into images {shape}")

    @property
    def _pixels(self) -> np.ndarray:
        """The flat position in X of each (row, column, channel)."""
        pixels = np.arange(int(np.prod(self.image_shape))).reshape(self.image_shape)
        return np.moveaxis(pixels, self.channel_axis, -1) if pixels.ndim == 3 else pixels[..., None]

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
        pixels = self._pixels
        if pixels.size != d:
            raise ValueError(
                f"image_shape {self.image_shape} has {pixels.size} values, but X has {d} features"
            )
        height, width, channels = pixels.shape
        top = rng.integers(height - self.size + 1, size=(p, 1, 1, 1))
        left = rng.integers(width - self.size + 1, size=(p, 1, 1, 1))
        i, j, k = np.ogrid[: self.size, : self.size, :channels]
        chosen = pixels[top + i, left + j, k].reshape(p, -1)
        gates = np.zeros((p, d))
        np.put_along_axis(gates, chosen, rng.standard_normal(chosen.shape), axis=1)
        return gates


def draw_gates(gates: GateDistribution, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
    """Gates of the distribution as a (d, p) array of our own, checked: `draw` may be a user's."""
    if isinstance(gates, type) or not hasattr(gates, "draw"):
        got = gates.__name__ if isinstance(gates, type) else type(gates).__name__
        raise TypeError(
            f"gates must be a distribution such as GaussianGates(), got {got}; "
            "for gate vectors of your own use Patterns.from_gates"
        )
    draws = to_numpy(check_matrix(gates.draw(rng, p, d), "gates.draw(...)", "patterns"))
    if draws.shape != (p, d):
        raise ValueError(f"gates.draw(...) must have shape {(p, d)}, got {draws.shape}")
    return np.array(draws.T, dtype=np.float64, order="C")
