"""The synthetic instances: Gaussian data with unit columns, labelled by a random teacher."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TEACHER_NEURONS, WIDE_TEACHER = 10, 100


@dataclass(frozen=True)
class Instance:
    """Data X (n, d) and Y (n, C), gates (d, p)."""

    X: np.ndarray
    Y: np.ndarray
    gates: np.ndarray


@dataclass(frozen=True)
class Size:
    n: int
    d: int
    p: int
    c: int = 1

    def __str__(self) -> str:
        classes = f" C={self.c}" if self.c > 1 else ""
        return f"n={self.n} d={self.d} p={self.p}{classes}"

    def make(self, seed: int = 0, neurons: int = TEACHER_NEURONS) -> Instance:
        """Y is the sign of a two-layer ReLU teacher about its median, or the one-hot class of
        its largest output."""
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((self.n, self.d))
        first = rng.standard_normal((self.d, neurons))
        second = rng.standard_normal((neurons, self.c))
        output = np.maximum(X @ first, 0) @ second
        if self.c == 1:
            Y = np.where(output > np.median(output), 1.0, -1.0)
        else:
            Y = np.eye(self.c)[output.argmax(axis=1)]
        return Instance(X / np.linalg.norm(X, axis=0), Y, rng.standard_normal((self.d, self.p)))


SMALL = Size(n=1000, d=20, p=1000)
TALL = Size(n=4000, d=57, p=1000)
MULTICLASS = Size(n=2000, d=30, p=500, c=5)
LARGE = Size(n=10000, d=30, p=5000)
GATED = (SMALL, Size(n=4000, d=57, p=2500), LARGE, Size(n=2000, d=200, p=1000))
RELU = (
    Size(n=250, d=50, p=100),
    Size(n=500, d=10, p=500),
    SMALL,
    Size(n=2000, d=30, p=1000),
    Size(n=4000, d=57, p=500),
)

COMPARED = (SMALL, TALL, MULTICLASS)
QUICK = (Size(n=200, d=10, p=100), Size(n=200, d=10, p=50, c=3))
LAMBDAS = (1e-3, 1e-5)
DTYPES = ("float32", "float64")
