"""Pictures as rows: scaled as the authors scale them, and the gates on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from benchmarks.datasets import column_norms

import cvxnn
from cvxnn.networks import TwoLayerNetwork
from replication.data import accuracy, gates, images, patterns_of, split
from replication.experiment import Row

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
PATCH = 3
CHUNK = 1000  # test rows at a time


@dataclass(frozen=True)
class Pictures:
    """Rows in single precision and their labels, for training and for the test, and patterns."""

    X: np.ndarray
    labels: np.ndarray
    X_test: np.ndarray
    labels_test: np.ndarray
    patterns: cvxnn.Patterns

    @classmethod
    def of(cls, piece: Row) -> Pictures:
        """Each channel has mean 0 and variance 1 over the rows for training, then each column the
        norm 1. Rows are those that the authors train on while they select, in the order of their
        shuffle; with more rows than that, those for validation follow."""
        data, n = piece["data"], piece["rows"]
        X, labels, X_test, labels_test = images(data)
        rows = np.concatenate(split(len(X)))[:n]
        channels = X[rows].reshape(n, SHAPES[data][0], -1).astype(np.float32)
        mean, spread = (of(channels, axis=(0, 2), keepdims=True) for of in (np.mean, np.std))

        def standardized(pictures: np.ndarray) -> np.ndarray:
            parts = pictures.reshape(len(pictures), SHAPES[data][0], -1).astype(np.float32)
            return ((parts - mean) / spread).reshape(len(pictures), -1)

        X, X_test = standardized(X[rows]), standardized(X_test)
        norms = column_norms(X).astype(np.float32)
        X, X_test = X / norms, X_test / norms
        patterns = patterns_of(X, _gates(piece))
        return cls(X, labels[rows], X_test, labels_test, patterns)

    @property
    def targets(self) -> np.ndarray:
        return np.eye(10)[self.labels]

    def active(self, X: np.ndarray) -> np.ndarray:
        """The gates of these rows, as zeros and ones."""
        assert self.patterns.gates is not None
        return X @ self.patterns.gates.astype(np.float32) > 0

    def accuracies(self, training: np.ndarray, test: np.ndarray) -> Row:
        """Of the outputs for both parts, in percent."""
        return {
            "training": accuracy(training, self.labels),
            "test": accuracy(test, self.labels_test),
        }


def _gates(piece: Row) -> np.ndarray:
    """(d, p): Gaussian on patches of 3 x 3 pixels and all channels, or on all pixels."""
    shape, p, seed = SHAPES[piece["data"]], piece["patterns"], piece["gate_seed"]
    d = int(np.prod(shape))
    if piece["gates"] == "dense":
        return gates(d, p, seed)
    patches = cvxnn.PatchGates(shape, size=PATCH, channel_axis=0)
    return patches.draw(np.random.default_rng(seed), p, d).T


def predict(network: TwoLayerNetwork, X: np.ndarray) -> np.ndarray:
    """Some rows at a time: a network of thousands of neurons has as many activations a row."""
    return np.concatenate([network.predict(X[k : k + CHUNK]) for k in range(0, len(X), CHUNK)])
