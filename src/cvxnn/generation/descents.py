"""Starts for the search of prices that no sampling gives: neurons of networks that were trained.

A network of many random neurons is trained from scratch, by L-BFGS. Its objective is nothing
special, but its neurons have gone to where something was left to be explained, and ascents from
there reach prices that thousands of random starts miss. Neurons begin large: those that begin small
all turn to the few directions that pay at the zero network.
"""

from __future__ import annotations

import math

import numpy as np

from cvxnn.bounds.base import Neurons, Units
from cvxnn.generation.cells import starts_of
from cvxnn.generation.sliding import Sliding
from cvxnn.problems import CReLU

WIDTH = 100  # neurons of a network, more with many outputs
STEPS = 300  # of L-BFGS
MOST = 5  # networks at all, in multiples of those that may find nothing in a row
ROWS = 4000  # of a random sample that a network is trained on, where there are more


class Descents:
    """Networks that are trained one after the other, and the neurons of all of them.

    problem : whose network it is; its patterns do not matter.
    patience : how many in a row may be of no use.
    found : the neurons so far, as starts of a search.
    """

    def __init__(self, problem: CReLU, patience: int, rng: np.random.Generator) -> None:
        self._problem, self._patience, self._rng = problem, patience, rng
        self._left, self._in_vain = MOST * patience, 0
        self.found = Neurons.none(problem.operator.d)

    @property
    def worth_another(self) -> bool:
        return self._left > 0 and self._in_vain < self._patience

    def paid(self) -> None:
        """What the last one found was of use."""
        self._in_vain = 0

    def next(self) -> Neurons:
        """The neurons of one more."""
        self._left, self._in_vain = self._left - 1, self._in_vain + 1
        n, d = self._problem.operator.n, self._problem.operator.d
        rows = None
        if n > ROWS:
            rows = np.sort(self._rng.choice(n, ROWS, replace=False))
        network = Sliding(self._problem, rows)
        width, size = WIDTH * max(1, network.C // 2), network.row_size
        W = self._rng.uniform(-1, 1, (width, d)) / (size if size > 0 else 1.0)
        a = self._rng.uniform(-1, 1, width) * math.sqrt(2 * network.zero_value)
        classes = np.arange(width) % network.C
        start = Units(W * np.abs(a)[:, None], classes, np.where(a < 0, -1.0, 1.0))
        new = starts_of(network.slide(start, STEPS))
        both = zip(self.found, new, strict=True)
        self.found = Neurons(*(np.concatenate(parts) for parts in both))
        return new
