"""What is run: sizes, gates, methods with the values that the authors selected, and the pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replication.data import DEFAULT_SEED
from replication.experiment import Piece, Profile, Row

DATA = ("mnist", "cifar10")
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
FEATURES = {"mnist": 784, "cifar10": 3072}
GATES = ("patch", "dense")
METHODS = ("rfista", "adam", "sgd", "adagrad")  # the columns of the table
STOCHASTIC = METHODS[1:]

# (step, lam) that the authors' validation selected; R-FISTA finds its own step from 0.1 on
SELECTED = {
    "mnist": {
        "rfista": (0.1, 1e-7),
        "adam": (0.01, 1e-6),
        "sgd": (1.0, 1e-7),
        "adagrad": (0.01, 1e-7),
    },
    "cifar10": {
        "rfista": (0.1, 1e-6),
        "adam": (0.01, 1e-4),
        "sgd": (1.0, 1e-5),
        "adagrad": (0.01, 1e-5),
    },
}
RESIDUAL = {"mnist": 1e-4, "cifar10": 1e-3}  # the min-norm subgradient at which R-FISTA stops
SEED = 778  # of starts and batches; gates have the authors' default seed


class Size(NamedTuple):
    """Rows and gates, iterations of R-FISTA at most, epochs of the others."""

    rows: int
    gates: int
    iterations: int
    epochs: int


SIZES = {
    "smoke": {"mnist": Size(300, 20, 20, 5), "cifar10": Size(300, 10, 20, 5)},
    "small": {"mnist": Size(5_000, 250, 500, 300), "cifar10": Size(5_000, 125, 500, 300)},
    "large": {"mnist": Size(20_000, 1_000, 200, 200), "cifar10": Size(10_000, 500, 200, 200)},
    "full": {"mnist": Size(60_000, 5_000, 500, 1_000), "cifar10": Size(50_000, 4_000, 500, 1_000)},
}
ORDER = tuple(SIZES)  # from small to large
OPTIMUM = {
    "smoke",
    "small",
}  # sizes at which R-FISTA's program is solved exactly as well, for patches
TOL = 1e-2  # its certified relative gap

# Processor seconds for each row, gate and column: an iteration of R-FISTA, an epoch.
ITERATION, EPOCH = 2.7e-10, 8e-11
NEWTON = 1000  # iterations of R-FISTA that Newton's method takes about as long as


def work(data: str, size: Size) -> float:
    """Rows times gates times columns, which an iteration and an epoch are proportional to."""
    return float(size.rows) * size.gates * FEATURES[data]


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return list(_of("smoke", "patch", ("mnist",)))
    if profile is Profile.PAPER:
        return [piece for gates in GATES for piece in _of("full", gates, DATA)]
    return [
        *(piece for gates in GATES for piece in _of("small", gates, DATA)),
        *_of("large", "patch", DATA),
    ]


def _of(name: str, gates: str, sets: tuple[str, ...]) -> Iterator[Piece]:
    for data in sets:
        for method in METHODS:
            yield _piece(name, data, gates, method)
        yield _piece(name, data, gates, "sgd", scale="released")
        if name in OPTIMUM and gates == "patch":
            yield _piece(name, data, gates, "optimum")


def _piece(name: str, data: str, gates: str, method: str, scale: str = "convex") -> Piece:
    size = SIZES[name][data]
    step, lam = SELECTED[data]["rfista" if method == "optimum" else method]
    settings: Row = {
        "size": name,
        "data": data,
        "gates": gates,
        "method": method,
        "rows": size.rows,
        "patterns": size.gates,
        "gate_seed": DEFAULT_SEED,
        "lam": lam,
    }
    if method == "optimum":
        settings["tol"] = TOL
        cost = ITERATION * NEWTON
    elif method == "rfista":
        settings |= {"step": step, "iterations": size.iterations, "residual": RESIDUAL[data]}
        cost = ITERATION * size.iterations
    else:
        settings |= {"step": step, "epochs": size.epochs, "scale": scale, "seed": SEED}
        cost = EPOCH * size.epochs
    key = f"{name} {data} {gates} {method}{'' if scale == 'convex' else ' ' + scale}"
    return Piece(key, settings, round(cost * work(data, size), 1))
