"""Curves over the strength of the penalty: one for each set, method and number of patterns, with
a row for each sampling of patterns; and what can be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replication.experiment import Done
from replication.figure5.settings import PATTERNS, SETS, strengths

ENOUGH = 5  # samplings that a curve needs to be judged
ROWS, POINTS = 2, 1.5  # a spread up to so many test rows, or percentage points, is small


class Method(NamedTuple):
    """What was trained, and where training stopped."""

    kind: str
    stop: str
    title: str


PUBLISHED = Method("gated", "published", "gated, published stop")
GATED = Method("gated", "exact", "gated, optimum")
RELU = Method("relu", "exact", "ReLU, optimum")
LAGRANGIAN = Method("al", "published", "ReLU, augmented Lagrangian")


class Curve(NamedTuple):
    """Numbers (samplings, strengths) of one set, method and number of patterns."""

    lams: np.ndarray
    accuracy: np.ndarray
    neurons: np.ndarray
    gap: np.ndarray
    test_rows: int

    @property
    def samplings(self) -> int:
        return len(self.accuracy)

    @property
    def median(self) -> np.ndarray:
        return np.median(self.accuracy, axis=0)

    @property
    def quartiles(self) -> np.ndarray:
        return np.quantile(self.accuracy, (0.25, 0.75), axis=0)

    @property
    def spread(self) -> np.ndarray:
        """The range between the quartiles, in percentage points."""
        low, high = self.quartiles
        return high - low

    @property
    def alive(self) -> np.ndarray:
        """Strengths at which most samplings have a network with neurons."""
        return np.median(self.neurons, axis=0) > 0

    @property
    def row(self) -> float:
        """A test row in percentage points."""
        return 100.0 / self.test_rows

    @property
    def best(self) -> int:
        """Where the median is best; of several such places the one with the largest strength."""
        median = np.where(self.alive, self.median, -np.inf)
        return int(len(median) - 1 - np.argmax(median[::-1]))

    @property
    def gain(self) -> float:
        """How much better the best median is than that at the smallest strength, in points."""
        return float(self.median[self.best] - self.median[0])

    @property
    def inverted(self) -> bool:
        """The best median beats both ends, the last network with neurons included, by more than
        half a test row: medians of an even number of samplings can lie between two rows."""
        last = np.flatnonzero(self.alive)[-1]
        ends = max(self.median[0], self.median[last])
        return bool(self.median[self.best] - ends > self.row / 2)

    @property
    def steady(self) -> np.ndarray:
        """Of the strengths with neurons, those with a small spread."""
        return self.spread[self.alive] <= max(ROWS * self.row, POINTS) + 1e-9


Curves = dict[tuple[Method, str, int], Curve]


def collect(pieces: Sequence[Done]) -> Curves:
    """All curves with at least one sampling at which there is a network with neurons."""
    found: Curves = {}
    for method in (PUBLISHED, GATED, RELU, LAGRANGIAN):
        for data in SETS:
            for p in PATTERNS:
                wanted = (method.kind, data, p)
                parts = [piece for piece in pieces if _asked(piece) == wanted]
                if parts:
                    curve = _curve(parts, method.stop)
                    if curve.alive.any():
                        found[method, data, p] = curve
    return found


def _asked(piece: Done) -> tuple[str, str, int]:
    return piece.settings["kind"], piece.settings["data"], piece.settings["patterns"]


def _curve(parts: list[Done], stop: str) -> Curve:
    # a curve of some samplings in full and others with fewer strengths has those of all
    grids = [strengths(part.settings) for part in parts]
    lams = min(grids, key=len)

    def rows(name: str) -> np.ndarray:
        return np.array(
            [
                np.array(part.row[stop][name])[np.isin(grid, lams)]
                for part, grid in zip(parts, grids, strict=True)
            ]
        )

    accuracy, neurons, gap = (rows(name) for name in ("accuracy", "neurons", "gap"))
    return Curve(lams, accuracy, neurons, gap, parts[0].row["test_rows"])


def judged(curves: Curves, *methods: Method) -> Curves:
    """The curves of these methods with enough samplings."""
    return {
        key: curve
        for key, curve in curves.items()
        if key[0] in methods and curve.samplings >= ENOUGH
    }
