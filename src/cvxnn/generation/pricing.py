"""A search for neurons with a high price.

For a dual point Theta (n, C) the price of a direction u, ||u|| = 1, for class k is

    |F(u)|,   F(u) = Theta_k'(X u)_+ = u'g(u),   g(u) = X'D(u) Theta_k,

and a pattern pays where the price is above lam. F is linear on every cell of directions with the
same pattern, and not concave, so that the search is a heuristic: it finds local maxima, from many
starts, and **finding nothing proves nothing**. `bounds` has what does.

Starts have a class and a sign each. From each of them the ascent

    u <- unit((1 - e) u + e unit(g(u)))

is accepted where the price rises, with a longer step e afterwards, and repeated with a shorter one
where it does not. It ends at kinks, where rows change sides: `kinks.py` goes on from there. All
starts go through the rows together: a step is one product with X and one with X', in blocks that
stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Matrix, blocks, largest_entries, row_squares
from cvxnn.bounds.base import Neurons
from cvxnn.generation.kinks import polish

ROWS, STARTS = 1024, 128  # of a block: a product of both fits into the cache
GROW, SHRINK = 1.6, 0.4  # of the step of an ascent that was accepted, or not
SHORTEST = 1e-7  # step of an ascent that goes on
RISE = 1e-13  # relative, that counts
WIDE, NARROWER = 0.5, 0.8  # of the smoothing, in units of the norms of rows, and from step to step
COMBINED = 4  # rows of a start that is a combination of some
HALVINGS = 3  # of the starts of a search: the better half goes on


@dataclass(frozen=True)
class Effort:
    """What a search takes.

    gaussian, rows : starts in random directions, and in combinations of a few rows.
    steps : of each ascent.
    polished : directions that are followed along their kinks to a local maximum.
    """

    gaussian: int = 64
    rows: int = 64
    steps: int = 30
    polished: int = 8

    def times(self, factor: int) -> Effort:
        """With so many times as many starts."""
        return Effort(
            factor * self.gaussian, factor * self.rows, self.steps, factor * self.polished
        )


QUICK = Effort()
THOROUGH = Effort(gaussian=128, rows=384, steps=40, polished=48)
AFTER_DESCENT = Effort(gaussian=2, rows=0, steps=40, polished=16)  # beside neurons to start from
DEEP = Effort(gaussian=512, rows=4096, steps=60, polished=96)


class _Found(NamedTuple):
    """Directions (d, B) with a class and a sign each, and their prices, F times the sign."""

    U: np.ndarray
    classes: np.ndarray
    signs: np.ndarray
    prices: np.ndarray

    def select(self, which: np.ndarray | slice) -> _Found:
        return _Found(self.U[:, which], *(part[which] for part in self[1:]))


class Pricing:
    """Searches for neurons with a high price, on one data matrix.

    Parameters
    ----------
    X : (n, d), float64 NumPy, dense or sparse.
    rng : where the starts come from.
    """

    def __init__(self, X: Matrix, rng: np.random.Generator) -> None:
        self.X, self._rng = X, rng
        self.n, self.d = X.shape
        largest = float(np.max(largest_entries(X), initial=0.0))
        # powers of two, so that neither products nor norms over- or underflow, and nothing is lost
        self._exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
        self._scaled = X * np.ldexp(1.0, -self._exponent) if abs(self._exponent) > 100 else X
        self._unit = self._exponent if abs(self._exponent) > 100 else 0
        self._blocks = [self._scaled[rows] for rows in blocks(self.n, ROWS)]
        self._norms = np.sqrt(row_squares(self._scaled))

    def search(
        self, Theta: np.ndarray, known: Neurons | None = None, effort: Effort = QUICK
    ) -> Neurons:
        """The best directions that were found, the highest price first. `known` are directions
        to start from besides, such as those of the neurons of a network."""
        size = float(np.max(np.abs(Theta), initial=0.0))
        if not 0 < size < np.inf:
            return Neurons.none(self.d)
        unit = int(np.frexp(size)[1])
        scaled = np.ldexp(Theta, -unit)
        found = [self._follow(scaled, self._gaussian(effort, Theta.shape[1]), effort.steps, True)]
        if effort.rows:
            starts = self._combinations(effort, Theta.shape[1])
            found.append(self._follow(scaled, starts, effort.steps, False))
        if known is not None and len(known.directions):
            found.append(self._ascend(scaled, _starts_of(known), effort.steps, 0.1))
        together = _joined(found)
        order = np.argsort(-together.prices, kind="stable")
        together = together.select(order[together.prices[order] > 0])
        if len(together.prices) == 0:
            return Neurons.none(self.d)
        together = self._polished(scaled, together, effort.polished)
        with np.errstate(over="ignore"):
            prices = np.ldexp(together.signs * together.prices, unit + self._unit)
        return Neurons(np.ascontiguousarray(together.U.T), together.classes, prices)

    def prices(self, Theta: np.ndarray, neurons: Neurons) -> np.ndarray:
        """F(u) of given directions, with its sign, as computed."""
        signs = np.ones(len(neurons.classes))
        at = _Found(neurons.directions.T, neurons.classes, signs, signs)
        with np.errstate(over="ignore"):
            return np.ldexp(self._gradients(Theta, at, _on)[1], self._unit)

    # -- starts

    def _gaussian(self, effort: Effort, C: int) -> _Found:
        return self._start(self._rng.standard_normal((self.d, effort.gaussian)), C)

    def _combinations(self, effort: Effort, C: int) -> _Found:
        number = effort.rows
        weights = self._rng.standard_normal((COMBINED, number))
        chosen = self._rng.integers(self.n, size=(COMBINED, number))
        U = sum(
            _dense(self._scaled[rows]).T * weight
            for rows, weight in zip(chosen, weights, strict=True)
        )
        return self._start(np.asarray(U), C)

    def _start(self, U: np.ndarray, C: int) -> _Found:
        """Directions with all classes and signs in turn."""
        turn = np.arange(U.shape[1])
        signs = np.where(turn % 2 == 0, 1.0, -1.0)
        return _Found(_unit(U), turn // 2 % C, signs, np.full(len(turn), -np.inf))

    # -- ascents

    def _follow(self, Theta: np.ndarray, starts: _Found, steps: int, smooth: bool) -> _Found:
        """Ascents of the starts, the worse half of which is given up every now and then."""
        if smooth:
            found, steps = self._smoothed(Theta, starts, 2 * steps // 3), steps - 2 * steps // 3
            step = 0.3
        else:
            found, step = starts, 1.0
        part = max(1, steps // (HALVINGS + 1))
        for _ in range(HALVINGS):
            found = self._ascend(Theta, found, part, step)
            if len(found.prices) > STARTS:
                best = np.argsort(-found.prices, kind="stable")[: len(found.prices) // 2]
                found = found.select(np.sort(best))
            step = 0.1
        return self._ascend(Theta, found, max(steps - HALVINGS * part, 1), step)

    def _ascend(self, Theta: np.ndarray, starts: _Found, steps: int, step: float) -> _Found:
        """Monotone ascents: no price is below that of its start."""
        parts = [
            self._ascend_some(Theta, starts.select(part), steps, step)
            for part in blocks(len(starts.prices), STARTS)
        ]
        return _joined(parts) if parts else starts

    def _ascend_some(self, Theta: np.ndarray, at: _Found, steps: int, step: float) -> _Found:
        U, classes, signs, _ = at
        U, e = U.copy(), np.full(U.shape[1], step)
        G, prices = self._gradients(Theta, at, _on)
        going = np.arange(U.shape[1])
        for _ in range(steps):
            V = _unit((1 - e[going]) * U[:, going] + e[going] * _unit(G[:, going]))
            trial = _Found(V, classes[going], signs[going], prices[going])
            G_new, new = self._gradients(Theta, trial, _on)
            rises = new > prices[going] + RISE * np.abs(prices[going])
            up = going[rises]
            U[:, up], G[:, up], prices[up] = V[:, rises], G_new[:, rises], new[rises]
            e[going] = np.where(rises, np.minimum(1.0, GROW * e[going]), SHRINK * e[going])
            going = going[e[going] > SHORTEST]
            if len(going) == 0:
                break
        return _Found(U, classes, signs, prices)

    def _smoothed(self, Theta: np.ndarray, starts: _Found, steps: int) -> _Found:
        """Steps on a function whose kinks are rounded off, over a width that shrinks: they pass
        the maxima that are small and near."""
        parts = []
        for part in blocks(len(starts.prices), STARTS):
            at, width = starts.select(part), WIDE
            for _ in range(steps):
                G, _ = self._gradients(Theta, at, _rounded_off(width))
                at = at._replace(U=_unit(at.U + _unit(G)))
                width *= NARROWER
            parts.append(at)
        return _joined(parts) if parts else starts

    def _gradients(
        self, Theta: np.ndarray, at: _Found, on: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """g(u) of all directions (d, B), times the sign, and u'g(u)."""
        G, C = np.zeros(at.U.shape), Theta.shape[1]
        for rows, some in zip(blocks(self.n, ROWS), self._blocks, strict=True):
            budget.look()
            A = on(some @ at.U, self._norms[rows])
            A *= Theta[rows] if C == 1 else Theta[rows][:, at.classes]
            G += some.T @ A
        G *= at.signs
        return G, np.einsum("ij,ij->j", G, at.U)

    # -- the end

    def _polished(self, Theta: np.ndarray, found: _Found, number: int) -> _Found:
        """The best directions followed along their kinks, in the new order of prices."""
        U, prices = found.U.copy(), found.prices.copy()
        for j in self._different(found, number).tolist():
            budget.look()
            weights = found.signs[j] * Theta[:, found.classes[j]]
            U[:, j], prices[j] = polish(self._scaled, weights, U[:, j], prices[j])
        order = np.argsort(-prices, kind="stable")
        return _Found(U, found.classes, found.signs, prices).select(order)

    @staticmethod
    def _different(found: _Found, number: int) -> np.ndarray:
        """The first of these that end in different places: a polish each would be a waste."""
        key = np.round(found.prices / max(float(found.prices[0]), 1e-300), 9)
        _, first = np.unique(np.stack([key, found.classes, found.signs]), axis=1, return_index=True)
        return np.sort(first)[:number]


def _on(A: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Where a neuron is on."""
    return np.greater(A, 0, out=A)


def _rounded_off(width: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """How much a neuron is on, for pre-activations within `width` of the norm of their row."""

    def on(A: np.ndarray, norms: np.ndarray) -> np.ndarray:
        A /= np.maximum(2 * width * norms, 1e-300)[:, None]
        A += 0.5
        return np.clip(A, 0.0, 1.0, out=A)

    return on


def _starts_of(neurons: Neurons) -> _Found:
    signs = np.where(neurons.prices < 0, -1.0, 1.0)
    return _Found(_unit(neurons.directions.T), neurons.classes, signs, np.abs(neurons.prices))


def _joined(parts: list[_Found]) -> _Found:
    return _Found(
        np.concatenate([part.U for part in parts], axis=1),
        *(np.concatenate(column) for column in list(zip(*parts, strict=True))[1:]),
    )


def _unit(U: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(U, axis=0)
    return U / np.where(norms > 0, norms, 1.0)


def _dense(rows: Matrix) -> np.ndarray:
    return rows.toarray() if hasattr(rows, "toarray") else rows
