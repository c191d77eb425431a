"""A network of few neurons, trained by L-BFGS: its neurons slide from pattern to pattern.

    min  f(sum_j a_j (X w_j)_+) + lam/2 sum_j (||w_j||^2 + a_j^2),

where neuron j belongs to one class. It is the problem of the network itself, not convex, and its
minima are no optima; but neurons that have moved to where they are of use come with patterns that
are, at a hundredth of the cost of a convex program with enough random patterns.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
from scipy.optimize import minimize

from cvxnn import budget
from cvxnn.arrays import Matrix, row_squares
from cvxnn.bounds.base import Neurons, Units
from cvxnn.budget import OutOfTimeError
from cvxnn.losses.intercepts import on_rows
from cvxnn.problems import CReLU

MEMORY = 20  # of L-BFGS
HALVINGS = 100  # of the size of new neurons, at most
SMALL = 1e-5  # neurons below this share of the largest are dropped, if that does no harm


class Sliding:
    """The network of a problem, whatever its patterns; on some rows alone, if they are given."""

    def __init__(self, problem: CReLU, rows: np.ndarray | None = None) -> None:
        self.X: Matrix = problem.operator_double.rows()
        self.loss, self.lam = problem.loss, problem.lam
        self.C = problem.weight_shape[2]
        part = None if rows is None else on_rows(problem.loss, rows)
        if part is not None:
            self.X, self.loss = self.X[rows], part
        self.zero_value = self.loss.zero_value

    @property
    def row_size(self) -> float:
        """The root mean square of the norms of the rows."""
        return math.sqrt(float(np.mean(row_squares(self.X))))

    def predictions(self, units: Units) -> np.ndarray:
        return self._outputs(np.maximum(self.X @ units.W.T, 0.0), units.classes, units.signs)

    def objective(self, units: Units) -> float:
        norms = np.linalg.norm(units.W, axis=1)
        return self.loss.value(self.predictions(units)) + self.lam * float(norms.sum())

    def dual(self, units: Units) -> np.ndarray:
        return self.loss.gradient(self.predictions(units))

    def with_new(self, units: Units, new: Neurons) -> Units:
        """The neurons, and new ones that lower the objective, all of one size."""
        added = Units(new.directions, new.classes, -np.sign(new.prices))
        Z, towards = self.predictions(units), self.predictions(added)
        size, best = self.zero_value / (self.lam * len(added.W)), math.inf
        for _ in range(HALVINGS):
            value = self.loss.value(Z + size * towards) + self.lam * size * len(added.W)
            if not value < best and math.isfinite(best):
                size *= 2
                break
            best = value if math.isfinite(value) else best
            size /= 2
        return Units(
            np.concatenate([units.W, size * added.W]),
            np.concatenate([units.classes, added.classes]),
            np.concatenate([units.signs, added.signs]),
        )

    def slide(self, units: Units, iterations: int) -> Units:
        """A better network from these neurons, or the same. When the time is up, the best one
        until then."""
        if len(units.W) == 0:
            return units
        descent = _Descent(self, units)
        options = {"maxiter": iterations, "maxcor": MEMORY}
        with suppress(OutOfTimeError):
            minimize(descent, descent.best, jac=True, method="L-BFGS-B", options=options)
        found = descent.units()
        norms = np.linalg.norm(found.W, axis=1)
        large = norms > SMALL * float(norms.max(initial=0.0))
        fewer = Units(*(part[large] for part in found))
        candidates = [(self.objective(one), one) for one in (fewer, found, units)]
        return min(candidates, key=lambda pair: pair[0])[1]

    def _outputs(self, H: np.ndarray, classes: np.ndarray, a: np.ndarray) -> np.ndarray:
        second = np.zeros((len(a), self.C))
        second[np.arange(len(a)), classes] = a
        return H @ second


class _Descent:
    """The objective of both layers as one vector, and the best one met."""

    def __init__(self, network: Sliding, units: Units) -> None:
        self.network, self.shape, self.classes = network, units.W.shape, units.classes
        roots = np.sqrt(np.linalg.norm(units.W, axis=1))
        roots = np.maximum(roots, 1e-6 * max(float(roots.max()), 1e-150))
        self.best = np.concatenate([(units.W / roots[:, None]).ravel(), units.signs * roots])
        self._value = math.inf

    def __call__(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        budget.look()
        network, classes = self.network, self.classes
        W, a = self._layers(parameters)
        A = network.X @ W.T
        H = np.maximum(A, 0.0)
        Z = network._outputs(H, classes, a)
        value, Theta = network.loss.value(Z), network.loss.gradient(Z)
        value += network.lam / 2 * float(parameters @ parameters)
        if value < self._value:
            self._value, self.best = value, parameters.copy()
        T = Theta if network.C == 1 else Theta[:, classes]
        H *= T
        slope_a = H.sum(axis=0) + network.lam * a
        slope_W = (network.X.T @ ((A > 0) * T)).T * a[:, None] + network.lam * W
        return value, np.concatenate([slope_W.ravel(), slope_a])

    def units(self) -> Units:
        """The best one as neurons: a_j (X w_j)_+ is sign(a_j) (X |a_j| w_j)_+."""
        W, a = self._layers(self.best)
        return Units(W * np.abs(a)[:, None], self.classes, np.where(a < 0, -1.0, 1.0))

    def _layers(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, d = self.shape
        return parameters[: m * d].reshape(m, d), parameters[m * d :]
