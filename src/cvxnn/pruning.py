"""Pruning: fewer neurons, the same predictions on given rows, never a higher objective.

On the rows of X, output k of a network is F 1 + b2_k. Column j of F, the fit of neuron j, holds its
activations times W2_jk, and with balanced layers its weight decay is lam a_j with
a_j = ||W1_j|| |W2_jk|. So any alpha >= 0 with F alpha = F 1 keeps the predictions if W2_jk becomes
alpha_j W2_jk, and changes the decay to lam a'alpha.

While fits are linearly dependent, sum_j beta_j f_j = 0, take beta or -beta, whichever has
a'beta >= 0, and go from alpha along -beta until the first neuron is at zero: it is dropped. The end
is a vertex of the polyhedron {alpha >= 0, F alpha = F 1}. Its fits are independent, so there are
at most n of them, and none can be dropped.

The steps are those of the simplex method on its way from an inner point to a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr, solve_triangular
from scipy.linalg.blas import dger

from cvxnn.arrays import Matrix, double, row_blocks, to_numpy, with_ones
from cvxnn.networks import SomeNetwork, TwoLayerNetwork
from cvxnn.patterns import column_norms
from cvxnn.validation import check_features, check_flag, check_number

_OFF = 1e-11  # activations below this, relative to their terms, are rounding errors
_ZERO = 1e-12  # and so are fits below this, relative to the largest one
_ENTRIES = 2**21  # of activations held at a time


def prune(
    network: SomeNetwork, X: ArrayLike, *, normalize: bool = False, tol: float = 1e-10
) -> SomeNetwork:
    """A minimal network with the same predictions on X and never a higher objective.

    It is minimal by inclusion: for each output, the fits of its neurons on X are linearly
    independent. So no neuron can be dropped, however the others are scaled, and there are at most
    n of them. Outside X predictions may change. A network that is already minimal is returned as
    it is.

    Neurons that are on for no row of X are dropped first. Neurons with the same pattern on X are
    merged if that leaves fewer of them (see `ReLUNetwork.merged`). Then the weights of the second
    layer are scaled by factors >= 0 until the fits are independent. The output bias stays.

    Parameters
    ----------
    network : `ReLUNetwork` or `GatedReLUNetwork`.
    X : (n, d), the rows on which predictions stay the same; usually the training data.
    normalize : which objective must not rise: that of a problem with `normalize`, where columns of
        X have unit norm, or, by default, `network.objective`.
    tol : fits count as dependent if one of them is this close to the span of others, relative to
        its norm. Predictions change by about as much, relative to the fits, and usually by less.
    """
    if not isinstance(network, TwoLayerNetwork):
        raise TypeError(
            f"network must be a ReLUNetwork or GatedReLUNetwork, got {type(network).__name__}"
        )
    data = double(to_numpy(check_features(X, network.n_features), keep_sparse=True))
    check_flag(normalize, "normalize")
    tol = check_number(tol, "tol", minimum=1e-13, maximum=0.1)
    while True:
        smaller = _pruned_once(network, data, normalize, tol)
        if _size(smaller) == _size(network):
            return network  # a whole round has found nothing to drop
        network = smaller.balanced()


def _size(network: TwoLayerNetwork) -> int:
    """A number that falls when a neuron is dropped, and when a neuron loses one of its outputs."""
    return network.n_neurons + int(np.count_nonzero(network.W2))


def _pruned_once(network: SomeNetwork, X: Matrix, normalize: bool, tol: float) -> SomeNetwork:
    """The network without neurons that are off, merged, and with independent fits."""
    columns = column_norms(X if network.b1 is None else with_ones(X))
    terms = np.abs(network._first_layer()) @ columns
    on = np.linalg.norm(_activations(network, X), axis=0) > _OFF * terms
    network = network._select(np.flatnonzero(on & network.W2.any(axis=1)))
    if network.n_neurons == 0:
        return network
    # a neuron with several outputs is merged output by output, which may leave more neurons
    network = min(network, network._merged(X), key=lambda candidate: candidate.n_neurons)
    norms = np.linalg.norm(network._first_layer() * (columns if normalize else 1.0), axis=1)
    hidden, W2 = _activations(network, X), network.W2.copy()
    for k in range(network.n_outputs):
        j = np.flatnonzero(W2[:, k])
        W2[j, k] *= _factors(hidden[:, j] * W2[j, k], norms[j] * np.abs(W2[j, k]), tol)
    return replace(network, W2=W2)._select(np.flatnonzero(W2.any(axis=1)))


def _activations(network: TwoLayerNetwork, X: Matrix) -> np.ndarray:
    """The hidden layer on X, or where there are more rows than neurons another matrix whose columns
    have the same inner products, in few rows: R of a QR factorization, piece by piece."""
    m, found = network.n_neurons, np.empty((0, network.n_neurons))
    for _, rows in row_blocks(X, max(_ENTRIES // max(m, 1), m)):
        found = np.vstack([found, network._hidden(rows)])
        if len(found) > m > 0:
            found = qr(found, mode="r", overwrite_a=True)[0][:m]
    return found


def _factors(fits: np.ndarray, costs: np.ndarray, tol: float) -> np.ndarray:
    """alpha >= 0 with fits @ alpha = fits @ 1 and costs @ alpha <= costs @ 1, for which the columns
    of `fits` with alpha > 0 are independent."""
    sizes = np.linalg.norm(fits, axis=0)
    factors = np.zeros(len(sizes))
    live = np.flatnonzero(sizes > _ZERO * np.max(sizes, initial=0.0))
    if len(live):
        sizes = sizes[live]
        tableau = _Tableau.of(fits[:, live] / sizes, sizes, costs[live] / sizes, tol)
        while len(tableau.rest):
            tableau.drop()
        factors[live] = tableau.amounts / sizes
    return factors


@dataclass(eq=False)
class _Tableau:
    """Columns of unit norm, each with an amount. Amounts may change, but their sum of columns does
    not.

    basis, rest : two lists of columns. A column in neither has been dropped; its amount is zero.
    T : the columns of `rest` are those of `basis` times T, up to `tol`; in Fortran order.
    amounts, prices : the amount of each column, and what a unit of it costs.
    zero : amounts below this are rounding errors.
    """

    basis: np.ndarray
    rest: np.ndarray
    T: np.ndarray
    amounts: np.ndarray
    prices: np.ndarray
    tol: float
    zero: float

    @classmethod
    def of(cls, G: np.ndarray, amounts: np.ndarray, prices: np.ndarray, tol: float) -> _Tableau:
        """The basis comes from a QR factorization with column pivoting."""
        R, order = qr(G, mode="r", pivoting=True)
        rank = int(np.sum(np.abs(np.diag(R)) > tol))
        T = np.asfortranarray(solve_triangular(R[:rank, :rank], R[:rank, rank:]))
        zero = _ZERO * float(amounts.max())
        return cls(order[:rank], order[rank:], T, amounts.copy(), prices, tol, zero)

    def drop(self) -> None:
        """Replace the last column of `rest` by its combination of the basis, or the other way
        round, whichever does not cost more, until the amount of some column is zero."""
        j, t = self.rest[-1], self.T[:, -1]
        grow = self.prices[j] < self.prices[self.basis] @ t and np.any(t > self.tol)
        change = -t if grow else t  # of the basis, for a unit of column j
        falling = np.flatnonzero(change < -self.tol)
        used = self.basis[falling] if grow else np.append(self.basis[falling], j)
        rates = -change[falling] if grow else np.append(-change[falling], 1.0)
        steps = self.amounts[used] / rates
        first = np.argmin(steps)
        self.amounts[self.basis] += steps[first] * change
        self.amounts[j] += steps[first] if grow else -steps[first]
        self.amounts[used[first]] = 0.0
        self.amounts[self.amounts <= self.zero] = 0.0
        if self.amounts[j] == 0.0:
            self._cut_last()
        for i in np.flatnonzero(self.amounts[self.basis] == 0.0)[::-1]:
            self._leave(i)

    def _leave(self, i: int) -> None:
        """Drop column i of the basis. The column of `rest` with the largest share of it takes its
        place, which keeps T from growing; if none has a share, the basis becomes smaller."""
        e = int(np.argmax(np.abs(self.T[i]))) if len(self.rest) else -1
        if e < 0 or abs(self.T[i, e]) <= self.tol:
            self.basis = np.delete(self.basis, i)
            self.T = np.asfortranarray(np.delete(self.T, i, axis=0))
            return
        row, column = self.T[i] / self.T[i, e], self.T[:, e].copy()
        self.T = dger(-1.0, column, row, a=self.T, overwrite_a=1)
        self.T[i], self.basis[i] = row, self.rest[e]
        self.T[:, e], self.rest[e] = self.T[:, -1], self.rest[-1]
        self._cut_last()

    def _cut_last(self) -> None:
        self.rest, self.T = self.rest[:-1], self.T[:, :-1]
