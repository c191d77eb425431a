"""Which columns and which neurons matter, by measures that one sentence can explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cvxnn.arrays import Matrix
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.rows import Scaling
from cvxnn.estimators.targets import predicted_classes, targets_of
from cvxnn.estimators.tasks import Classification
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.patterns import activation_bits
from cvxnn.reports.measures import SEED, log_loss, some_rows
from cvxnn.reports.samples import Group, Sample

MAX_COLUMNS, MAX_NEURONS = 15, 12  # shown in a table
MAX_SHUFFLED, MAX_ROWS, N_SHUFFLES = 100, 1000, 5  # columns to shuffle, rows, repetitions
# Activations and outputs computed at a time. It limits the rows, because a hundred columns with
# five shuffles mean five hundred evaluations of the network.
MAX_ENTRIES = 10**6
N_TOP = 3  # columns named for a neuron


@dataclass(frozen=True)
class Column:
    """rise : how much the loss rises when the column is shuffled, the mean over the shuffles.
    weight : sum over neurons of |W1| ||W2||_1 for a step of one standard deviation, of all features
        that were made from the column at once."""

    name: str
    rise: float
    weight: float


@dataclass(frozen=True)
class Columns:
    """The most important columns of the table.

    n_features : how many numbers the network takes, which are more than the columns where these
        hold categories.
    loss : the loss that rises, in words.
    n_columns, n_shuffled : how many columns there are, and how many were shuffled; if there are
        many, these are the columns with the largest weights.
    n_rows, n_given, of : how many rows were shuffled, of how many, and what these are called.
    """

    shown: tuple[Column, ...]
    loss: str
    n_columns: int
    n_shuffled: int
    n_rows: int
    n_given: int
    of: str
    n_features: int


@dataclass(frozen=True)
class Neuron:
    """share : its share of the sum of all sizes; `on` : the share of the rows for which it is on.
    output, raises : the class or target that it acts on, None if it has several, and whether it
        adds to it or takes from it.
    columns : the largest weights of its first layer, each for a standard deviation of the column
        and relative to the norm of all of them."""

    size: float
    share: float
    on: float
    output: str | None
    raises: bool
    columns: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Neurons:
    shown: tuple[Neuron, ...]
    n_neurons: int


# -- columns


def important_columns(
    estimator: NetworkEstimator,
    sample: Sample,
    fresh: Sample,
    of: str,
    groups: Sequence[Group],
) -> Columns:
    """Columns are shuffled among the `fresh` rows; their spreads are those of `sample`."""
    network = estimator.network_
    target_spread = np.ones(network.n_outputs)
    if not isinstance(estimator, Classification):
        target_spread = column_spread(sample.y)
        target_spread[target_spread == 0] = 1.0
    second = np.abs(network.W2 / target_spread).sum(axis=1)
    every = (second @ np.abs(network.W1)) * column_spread(sample.X)
    weights = np.array([every[list(group.places)].sum() for group in groups])
    candidates = np.sort(np.argsort(-weights, kind="stable")[:MAX_SHUFFLED])
    room = MAX_ENTRIES // (network.n_neurons + network.n_outputs)
    rows = some_rows(len(fresh), min(max(room, 100), MAX_ROWS))
    loss, label = _loss(estimator, fresh.y[rows], target_spread)
    rises = _rises(network, fresh.X[rows], [groups[k].places for k in candidates], loss)
    found = [
        Column(groups[k].name, float(rise), float(weights[k]))
        for k, rise in zip(candidates, rises, strict=True)
    ]
    found.sort(key=lambda column: (-column.rise, -column.weight))
    return Columns(
        tuple(found[:MAX_COLUMNS]),
        label,
        len(groups),
        len(candidates),
        len(rows),
        len(fresh),
        of,
        network.n_features,
    )


def column_spread(X: Matrix) -> np.ndarray:
    """Standard deviations, 0 for constant columns."""
    if isinstance(X, np.ndarray):
        spread = Scaling.of(X, np.ones(X.shape[0]), centre=True).spread
        return np.where(np.ptp(X, axis=0) > 0, spread, 0.0)
    root_mean_square = Scaling.of(X, np.ones(X.shape[0]), centre=False).spread
    mean = np.asarray(X.mean(axis=0)).reshape(-1) / root_mean_square
    rest = np.where(np.asarray(abs(X).sum(axis=0)).reshape(-1) > 0, 1 - mean**2, 0.0)
    return root_mean_square * np.sqrt(np.where(rest > 1e-14, rest, 0.0))


def _loss(
    estimator: NetworkEstimator, y: np.ndarray, target_spread: np.ndarray
) -> tuple[Callable[[np.ndarray], float], str]:
    """The loss that is measured, as a function of the network's outputs, and its name."""
    if not isinstance(estimator, Classification):
        return (
            lambda scores: float(np.mean(((y - scores) / target_spread) ** 2)),
            "mean squared error (in variances of the target)",
        )
    if targets_of(estimator).has_probabilities:
        return lambda scores: log_loss(scores, y), "log-loss"
    return lambda scores: float(np.mean(predicted_classes(scores) != y)), "share of wrong classes"


def _rises(
    network: TwoLayerNetwork,
    X: Matrix,
    columns: Sequence[tuple[int, ...]],
    loss: Callable[[np.ndarray], float],
) -> np.ndarray:
    """The mean rise of the loss for each column, given by the places of its features, which are
    shuffled together. A step in one column changes the inputs of the neurons by that step times
    its weights, so no product with X is needed again."""
    rng = np.random.default_rng(SEED)
    orders = [rng.permutation(X.shape[0]) for _ in range(N_SHUFFLES)]
    gates = network.gates if isinstance(network, GatedReLUNetwork) else None
    strict = network.strict if isinstance(network, GatedReLUNetwork) else True
    inputs = X @ network.W1.T + (0.0 if network.b1 is None else network.b1)
    switches = inputs
    if isinstance(network, GatedReLUNetwork):
        switches = X @ network.gates + network.gate_bias
    b2 = 0.0 if network.b2 is None else network.b2

    def value(inputs: np.ndarray, switches: np.ndarray) -> float:
        on = switches > 0 if strict else switches >= 0
        return loss(np.where(on, inputs, 0.0) @ network.W2 + b2)

    before = value(inputs, switches)
    rises = np.zeros(len(columns))
    for i, places in enumerate(map(list, columns)):
        column = X[:, places] if isinstance(X, np.ndarray) else X[:, places].toarray()
        for order in orders:
            step = column[order] - column
            moved = inputs + step @ network.W1[:, places].T
            on = moved if gates is None else switches + step @ gates[places]
            rises[i] += (value(moved, on) - before) / N_SHUFFLES
    return rises


# -- neurons


def largest_neurons(
    estimator: NetworkEstimator,
    sample: Sample,
    sizes: np.ndarray,
    names: Sequence[str],
    outputs: Sequence[str],
) -> Neurons:
    """The neurons with the largest sizes; `outputs` are the names of the network's outputs."""
    network = estimator.network_
    order = np.argsort(-sizes, kind="stable")[:MAX_NEURONS]
    on = _share_on(network._select(order), sample.X) if len(order) else np.zeros(0)
    total = float(sizes.sum()) or 1.0
    first = network.W1[order] * column_spread(sample.X)
    shown = []
    for i, j in enumerate(order):
        norm = float(np.linalg.norm(first[i])) or 1.0
        top = np.argsort(-np.abs(first[i]), kind="stable")[:N_TOP]
        used = np.flatnonzero(network.W2[j])
        shown.append(
            Neuron(
                size=float(sizes[j]),
                share=float(sizes[j]) / total,
                on=float(on[i]),
                output=outputs[used[0]] if len(used) == 1 else None,
                raises=bool(network.W2[j].sum() > 0),
                columns=tuple(
                    (names[k], float(first[i, k]) / norm) for k in top if first[i, k] != 0
                ),
            )
        )
    return Neurons(tuple(shown), network.n_neurons)


def _share_on(network: TwoLayerNetwork, X: Matrix) -> np.ndarray:
    if isinstance(network, GatedReLUNetwork):
        gates, bias, strict = network.gates, network.gate_bias, network.strict
    else:
        bias = np.zeros(network.n_neurons) if network.b1 is None else network.b1
        gates, bias, strict = network.W1.T, bias, True
    return activation_bits(X, gates, bias, strict).by_pattern().mean(axis=1)
