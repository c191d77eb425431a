"""What is run: sets, strengths, numbers of patterns and samplings, and the pieces they make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from replication.data import GATE_SEED
from replication.experiment import Piece, Profile, Row

# Processor seconds of all strengths with 1000 patterns: gated, and ReLU by Newton.
SETS = {
    "primary-tumor": (6, 11),
    "monks-3": (3, 1),
    "statlog-heart": (3, 3),
    "heart-va": (8, 7),
    "hepatitis": (3, 2),
    "yeast": (6, 6),
    "synthetic-control": (42, 30),
    "chess-krvkp": (10, 60),
    "nursery": (24, 6),
    "adult": (10, 4),
}
MAIN = "primary-tumor"  # of Figure 5; the others are those of Figures 18 and 19
LAMS = np.concatenate([np.logspace(-6, -2, 20), np.logspace(-2, 0, 10)[1:]])
PATTERNS = (10, 100, 1000)
SAMPLINGS = tuple(range(GATE_SEED, GATE_SEED + 10))

MAX_ITER = 1000  # of R-FISTA
TOL = 1e-3  # relative gap of what is called the optimum
COARSE = 2  # every other strength, where one takes long
AL_SETS = (MAIN, "monks-3", "statlog-heart", "heart-va")
AL_PATTERNS, AL_SAMPLINGS = 100, 3
SLOW, LEAST = "chess-krvkp", 1e-5  # ReLU: strengths below this take minutes each


def strengths(piece: Row) -> np.ndarray:
    """Those of a piece, the smallest first."""
    return LAMS[:: piece["stride"]][LAMS[:: piece["stride"]] >= piece["least"]]


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return [
            _piece("monks-3", kind, 10, seed, stride=7)
            for kind in ("gated", "relu", "al")
            for seed in SAMPLINGS[:2]
        ]
    found = list(_full() if profile is Profile.PAPER else _desk())
    # cheap pieces of further samplings before dear ones of the first
    return sorted(found, key=lambda piece: piece.cost * (piece.settings["seed"] - GATE_SEED + 1))


def _full() -> Iterator[Piece]:
    for data in SETS:
        for p in PATTERNS:
            for seed in SAMPLINGS:
                for kind in ("gated", "relu", "al"):
                    yield _piece(data, kind, p, seed)


def _desk() -> Iterator[Piece]:
    for data in SETS:
        for p in PATTERNS:
            for seed in SAMPLINGS:
                yield _piece(data, "gated", p, seed)
                least = LEAST if data == SLOW else 0.0
                yield _piece(data, "relu", p, seed, stride=COARSE, least=least)
    for data in AL_SETS:
        for seed in SAMPLINGS[:AL_SAMPLINGS]:
            yield _piece(data, "al", AL_PATTERNS, seed, stride=COARSE)


def _piece(data: str, kind: str, p: int, seed: int, stride: int = 1, least: float = 0.0) -> Piece:
    gated, relu = SETS[data]
    seconds = {"gated": gated, "relu": 2 * relu / stride, "al": 20 * relu / stride}[kind]
    settings = {
        "data": data,
        "kind": kind,
        "patterns": p,
        "seed": seed,
        "stride": stride,
        "least": least,
        "tol": TOL,
        "max_iter": MAX_ITER,
    }
    return Piece(f"{data} {kind} {p} {seed}", settings, round(seconds * max(0.2, p / 1000), 1))
