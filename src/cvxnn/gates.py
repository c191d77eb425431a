"""Where gate vectors come from: Gaussian, sparse, on patches of images, or several of these.

Anything with a method `draw` is a distribution of gates; see `GateDistribution`. One that has a
method `draw_shares` as well says which share of the rows each gate is to switch on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cvxnn.arrays import to_numpy
from cvxnn.validation import check_integer, check_matrix, check_number


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
    """Gaussian gates that look at `n_features` features each, chosen uniformly.

    With `active_share`, a pair of numbers, each gate gets a bias so that a share of the rows drawn
    uniformly between them is on, as a threshold in a tree has it; without, biases are what
    `sample_patterns` makes them.
    """

    n_features: int
    active_share: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_integer(self.n_features, "n_features", minimum=1)
        if self.active_share is not None:
            object.__setattr__(self, "active_share", _check_range(self.active_share))

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
        if self.n_features > d:
            raise ValueError(f"n_features is {self.n_features}, but X has only {d} features")
        chosen = np.argsort(rng.random((p, d)), axis=1)[:, : self.n_features]
        gates = np.zeros((p, d))
        np.put_along_axis(gates, chosen, rng.standard_normal(chosen.shape), axis=1)
        return gates

    def draw_shares(self, rng: np.random.Generator, p: int) -> np.ndarray:
        if self.active_share is None:
            return np.full(p, np.nan)
        return rng.uniform(*self.active_share, size=p)


@dataclass(frozen=True)
class MixedGates:
    """Gates of several distributions, which take turns: of the first, of the second, and so on."""

    parts: Sequence[GateDistribution]

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, Sequence) else ()
        if not parts or not all(hasattr(part, "draw") for part in parts):
            raise TypeError("parts must be distributions such as GaussianGates(), at least one")
        object.__setattr__(self, "parts", parts)

    def draw(self, rng: np.random.Generator, p: int, d: int) -> np.ndarray:
        gates = np.empty((p, d))
        for k, part in enumerate(self.parts):
            turns = gates[k :: len(self.parts)]
            if len(turns) > 0:
                turns[:] = part.draw(rng, len(turns), d)
        return gates

    def draw_shares(self, rng: np.random.Generator, p: int) -> np.ndarray:
        shares = np.empty(p)
        for k, part in enumerate(self.parts):
            turns = shares[k :: len(self.parts)]
            turns[:] = draw_shares(part, rng, len(turns))
        return shares


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


def draw_shares(gates: GateDistribution, rng: np.random.Generator, p: int) -> np.ndarray:
    """The share of the rows that each gate is to switch on; NaN where its bias is free."""
    if not hasattr(gates, "draw_shares"):
        return np.full(p, np.nan)
    shares = np.asarray(gates.draw_shares(rng, p), dtype=np.float64)
    if shares.shape != (p,) or np.any(shares <= 0) or np.any(shares > 1):
        raise ValueError(f"gates.draw_shares(...) must be {p} numbers in (0, 1], or NaN")
    return shares


def _check_range(share: object) -> tuple[float, float]:
    if not isinstance(share, Sequence) or len(share) != 2:
        raise ValueError(f"active_share must be a pair of numbers, got {share!r}")
    low, high = (
        check_number(one, "active_share", minimum=0, strict=True, maximum=1) for one in share
    )
    if low > high:
        raise ValueError(f"active_share must go from small to large, got {share!r}")
    return low, high


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
