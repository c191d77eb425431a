"""What is run for Tables 3, 7 and 8, and in which order."""

from __future__ import annotations

import numpy as np

from replication.data import DEFAULT_SEED, GATE_SEED, catalogue
from replication.experiment import Piece, Profile, Row
from replication.paper import selected

SETS = tuple(selected(3))
GATE_SEEDS = tuple(range(GATE_SEED, GATE_SEED + 5))
SEEDS = tuple(range(779, 784))  # of weights at the start and batches
GATED, RELU, RELEASED = 5000, 2500, 100  # patterns; the last of NC-GReLU in the released code
MIN_WIDTH = 50
METHODS = ("adam", "sgd")
LARGEST = 1800  # training rows, for gradient methods at the desk
SECONDS = 60.0  # of the processor, for one solve of C-ReLU
ITERATIONS, AL_INNER = 2000, 2000
CLAIMED = f"ecoli NC-GReLU {GATED} convex sgd"  # the piece that a claim is about, the first one
EPOCHS = {Profile.SMOKE: 3, Profile.DESK: 500, Profile.PAPER: 2000}
SMOKE_REDUCTION = "one synthetic problem, a few patterns, two seeds and three epochs."
DESK_REDUCTION = (
    "the penalties and step sizes are those that the authors' cross-validation selected, which is "
    f"not repeated; {EPOCHS[Profile.DESK]} epochs instead of 2000; gradient methods and C-ReLU on "
    f"the sets with at most {LARGEST} training rows, and the other penalties of the grid there "
    "too; the augmented Lagrangian with the first of "
    f"five samplings of patterns, and for {SECONDS:g} processor seconds at most."
)
PAPER_DIFFERENCE = (
    "The penalties and step sizes are those that the authors' cross-validation selected, which is "
    "not repeated; all else is in full."
)


def rows_of(name: str) -> int:
    """Training rows."""
    n = catalogue()[name].n
    return n - n // 5


def size(name: str) -> int:
    """Training rows times columns times outputs."""
    known = catalogue()[name]
    return rows_of(name) * known.d * (1 if known.classes == 2 else known.classes)


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return smoke()
    full = profile is Profile.PAPER
    sets = sorted(SETS, key=size)
    small = [name for name in sets if full or rows_of(name) <= LARGEST]
    large = [name for name in sets if name not in small]
    epochs = EPOCHS[profile]
    found = [piece for name in small for piece in of_set(name, epochs)]
    seeds = GATE_SEEDS if full else GATE_SEEDS[:1]
    found += [al(name, seed, 1e9 if full else SECONDS) for name in small for seed in seeds]
    found += [grid(name) for name in small]
    found.sort(key=lambda piece: (piece.settings.get("scale") == "released", piece.cost))
    found.sort(key=lambda piece: piece.key != CLAIMED)
    return found + [convex_gated(name, (seed,)) for name in large for seed in GATE_SEEDS]


def of_set(name: str, epochs: int) -> list[Piece]:
    found = [convex_gated(name, GATE_SEEDS), convex_relu(name, GATE_SEEDS)]
    for method in METHODS:
        found.append(relu(name, method, epochs))
        found += [gated(name, method, epochs, RELEASED, scale) for scale in ("convex", "released")]
    return found + [gated(name, method, epochs, GATED) for method in METHODS]


def smoke() -> list[Piece]:
    """With the values that were selected for a small set, but on rows that need no folder."""
    name, few = "monks-2", {"patterns": 20, "epochs": 3, "seeds": [779, 780], "check_every": 1}
    found = [
        convex_gated(name, GATE_SEEDS[:1]),
        convex_relu(name, GATE_SEEDS[:1]),
        al(name, GATE_SEEDS[0], 1.0),
        relu(name, "adam", 3),
        gated(name, "sgd", 3, GATED),
    ]
    return [
        piece._replace(
            settings={key: few.get(key, old) for key, old in piece.settings.items()}
            | {"rows": "synthetic"}
        )
        for piece in found
    ]


def convex_gated(name: str, gate_seeds: tuple[int, ...]) -> Piece:
    settings: Row = {
        "set": name,
        "kind": "C-GReLU",
        "lam": selected(3)[name]["c_grelu_rfista_lambda"],
        "patterns": GATED,
        "gate_seeds": list(gate_seeds),
        "iterations": ITERATIONS,
        "newton_tol": 1e-4,
        "seconds": SECONDS,
    }
    cost = len(gate_seeds) * size(name) * 2e-4
    key = f"{name} C-GReLU" + (f" {gate_seeds[0]}" if len(gate_seeds) == 1 else "")
    return Piece(key, settings, cost)


def grid(name: str) -> Piece:
    """All penalties that the authors chose from, to see which of them a printed cell may have."""
    settings: Row = {
        "set": name,
        "kind": "grid",
        "lams": [float(f"{lam:.6g}") for lam in np.logspace(-6, -2, 10)],
        "patterns": GATED,
        "gate_seeds": [GATE_SEEDS[0]],
        "iterations": ITERATIONS,
    }
    return Piece(f"{name} C-GReLU grid", settings, 10 + size(name) * 5e-3)


def convex_relu(name: str, gate_seeds: tuple[int, ...]) -> Piece:
    settings: Row = {
        "set": name,
        "kind": "C-ReLU",
        "lam": selected(3)[name]["c_relu_al_lambda"],
        "patterns": RELU,
        "gate_seeds": list(gate_seeds),
        "newton_tol": 1e-3,
        "seconds": SECONDS,
    }
    return Piece(f"{name} C-ReLU", settings, len(gate_seeds) * min(SECONDS, size(name) * 4e-4))


def al(name: str, gate_seed: int, seconds: float) -> Piece:
    settings: Row = {
        "set": name,
        "kind": "AL",
        "lam": selected(3)[name]["c_relu_al_lambda"],
        "patterns": RELU,
        "gate_seeds": [gate_seed],
        "max_inner": AL_INNER,
        "seconds": seconds,
    }
    return Piece(f"{name} AL {gate_seed}", settings, min(seconds, size(name) * 2.5e-3))


def relu(name: str, method: str, epochs: int) -> Piece:
    """As wide as the solution of C-ReLU with the same penalty has neurons."""
    settings = {
        **_descent(name, f"nc_relu_{method}", method, epochs),
        "kind": "NC-ReLU",
        "patterns": RELU,
        "gate_seed": GATE_SEEDS[0],
        "width": MIN_WIDTH,
        "seconds": SECONDS,
        "scale": "convex",
    }
    return Piece(f"{name} NC-ReLU {method}", settings, 3 + epochs * rows_of(name) * 1e-5)


def gated(name: str, method: str, epochs: int, patterns: int, scale: str = "convex") -> Piece:
    """With the gates of C-GReLU, or with the hundred that the released code has."""
    alike = patterns == RELEASED
    settings = {
        **_descent(name, f"nc_grelu_{method}", method, epochs),
        "kind": "NC-GReLU",
        "patterns": patterns,
        "gate_seeds": [DEFAULT_SEED] if alike else list(GATE_SEEDS),
        "scale": scale,
    }
    narrow = 24 * rows_of(name)  # where the time goes into passes over the gates
    cost = 3 + epochs * patterns * max(size(name), narrow) * 7e-10
    return Piece(f"{name} NC-GReLU {patterns} {scale} {method}", settings, cost)


def _descent(name: str, column: str, method: str, epochs: int) -> Row:
    values = selected(3)[name]
    return {
        "set": name,
        "method": method,
        "lam": values[f"{column}_lambda"],
        "step": values[f"{column}_step_size"],
        "seeds": list(SEEDS),
        "epochs": epochs,
        "check_every": 10,
    }
