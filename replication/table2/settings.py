"""What is run for Tables 2 and 6, and in which order."""

from __future__ import annotations

from replication.data import catalogue
from replication.experiment import Piece, Profile, Row
from replication.paper import printed, selected

SEEDS = (650, 651, 652, 653, 654)
GATED_PATTERNS, RELU_PATTERNS = 5000, 2500
BASELINES = ("linear_svm", "rbf_svm", "random_forest")
SMALL = 1000  # rows of a set, at most, whose forests and augmented Lagrangian are run at the desk
SECONDS = 60.0
DESK_REDUCTION = (
    "all 38 sets, with the strength of the penalty and the share of active rows that the authors' "
    "cross-validation selected, five samplings, 5000 and 2500 patterns; no cross-validation of the "
    f"convex models. Newton and the AL end after {SECONDS:g} processor seconds; the AL has one "
    f"sampling, and only sets of at most {SMALL} rows, to which forests and SVMs are limited, too."
)
PAPER_DIFFERENCE = (
    "final runs in full, with the values that the authors' cross-validation selected; that "
    "cross-validation itself is not repeated."
)
SMOKE_REDUCTION = "monks-3 with 50 patterns, and one baseline: whether everything works."


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return [
            Piece("gated-monks-3-650", gated("monks-3", 650, 1.0, 50, 100), 0.5),
            Piece("relu-monks-3-650", relu("monks-3", 650, 1.0, 50), 0.5),
            Piece("al-monks-3-650", al("monks-3", 650, 1.0, 50), 1.0),
            Piece("linear_svm-monks-3", baseline("monks-3", "linear_svm"), 0.5),
        ]
    desk = profile is Profile.DESK
    sets = sorted([*printed(2), *printed(6)], key=_size)
    small = [name for name in sets if catalogue()[name].n <= SMALL]
    large = [name for name in sets if name not in small]
    seconds = SECONDS if desk else 3600.0
    return [
        *(piece for name in small for piece in _row_pieces(name, seconds, BASELINES[:2])),
        *(_baseline_piece(name, BASELINES[2]) for name in small),
        *(piece for name in large for piece in _row_pieces(name, seconds, ())),
        *(_al_piece(name, seed, seconds) for seed in SEEDS[:1] for name in small),
        *([] if desk else (_al_piece(n, seed, seconds) for seed in SEEDS[1:] for n in small)),
        *([] if desk else (_al_piece(n, seed, seconds) for seed in SEEDS for n in large)),
        *([] if desk else (_baseline_piece(n, kind) for kind in BASELINES for n in large)),
    ]


def gated(
    name: str, seed: int, seconds: float, patterns: int = GATED_PATTERNS, iterations: int = 2000
) -> Row:
    """C-GReLU: R-FISTA as released, and Newton for the optimum."""
    chosen = selected(2)[name]
    return {
        "kind": "gated",
        "set": name,
        "seed": seed,
        "patterns": patterns,
        "lam": chosen["c_grelu_lambda"],
        "half_active": "c_grelu_active_proportion" in chosen,
        "iterations": iterations,
        "tol": 1e-7**0.5,
        "newton_tol": 1e-3,
        "seconds": seconds,
    }


def relu(name: str, seed: int, seconds: float, patterns: int = RELU_PATTERNS) -> Row:
    """C-ReLU by Newton."""
    chosen = selected(2)[name]
    return {
        "kind": "relu",
        "set": name,
        "seed": seed,
        "patterns": patterns,
        "lam": chosen["c_relu_lambda"],
        "half_active": "c_relu_active_proportion" in chosen,
        "newton_tol": 1e-3,
        "seconds": seconds,
    }


def al(name: str, seed: int, seconds: float, patterns: int = RELU_PATTERNS) -> Row:
    """C-ReLU by the augmented Lagrangian as released."""
    settings = relu(name, seed, seconds, patterns)
    del settings["newton_tol"]
    return {**settings, "kind": "al", "tol": 1e-7**0.5, "gap_tol": 1e-7, "max_inner": 2000}


def baseline(name: str, kind: str) -> Row:
    """A forest or a support vector machine, cross-validated over the paper's grid."""
    return {"kind": kind, "set": name, "random_state": 650}


def _size(name: str) -> int:
    return catalogue()[name].n * catalogue()[name].d


def _row_pieces(name: str, seconds: float, baselines: tuple[str, ...]) -> list[Piece]:
    """What makes a row of the table."""
    size = _size(name)
    rfista = 2.0 + 2000 * 2.3 * size * GATED_PATTERNS / 5e10
    return [
        *(_baseline_piece(name, kind) for kind in baselines),
        *(Piece(f"gated-{name}-{seed}", gated(name, seed, seconds), rfista) for seed in SEEDS),
        *(
            Piece(f"relu-{name}-{seed}", relu(name, seed, seconds), 1 + size / 5000)
            for seed in SEEDS
        ),
    ]


def _al_piece(name: str, seed: int, seconds: float) -> Piece:
    return Piece(f"al-{name}-{seed}", al(name, seed, seconds), seconds)


def _baseline_piece(name: str, kind: str) -> Piece:
    each = {"linear_svm": 2.0, "rbf_svm": 3.0, "random_forest": 40.0}[kind]
    return Piece(f"{kind}-{name}", baseline(name, kind), each * (1 + catalogue()[name].n / 500))
