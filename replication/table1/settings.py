"""What is run for Tables 1 and 5, and in which order."""

from __future__ import annotations

from replication.data import catalogue
from replication.experiment import Piece, Profile, Row
from replication.paper import printed

LAM = 1e-3
SEEDS = (650, 651, 652, 653, 654)
TABLE_1 = tuple(printed(1))
# Two rows of Table 5 hold numbers of the third of these sets, which the table does not name.
CONGRESSIONAL, SONAR = "congressional-voting", "conn-bench-sonar-mines-rocks"
UNNAMED = "breast-cancer-wisc-diag"
AL_SECONDS = 60.0
CONIC_SECONDS, CONIC_GIGABYTES = 600.0, 6.0
DESK_REDUCTION = (
    "all 28 sets, five samplings and 1000 patterns, as in the paper; the AL ends after "
    f"{AL_SECONDS:g} processor seconds at the latest. The conic programs are those of the five "
    f"sets of Table 1 with one sampling, by Clarabel, with {CONIC_SECONDS:g} processor seconds "
    f"and {CONIC_GIGABYTES:g} GB each; the paper used MOSEK, which needs a licence."
)
PAPER_DIFFERENCE = (
    "the setting is the paper's in full, with Clarabel in place of MOSEK for the conic programs."
)
SMOKE_REDUCTION = "one synthetic problem with 30 patterns: whether everything works."


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return [
            Piece("decompositions-synthetic-650", decompositions("synthetic", 650, 30), 1.0),
            Piece("al-synthetic-650", al("synthetic", 650, 1.0, 30), 1.0),
            Piece("joint-synthetic-650", conic("synthetic", "joint", 60.0, patterns=8), 3.0),
        ]
    sets = by_size([*printed(5), UNNAMED])
    conic_seeds = SEEDS[:1] if profile is Profile.DESK else SEEDS
    conic_sets = by_size(TABLE_1) if profile is Profile.DESK else sets
    conic_pairs = [(name, seed) for seed in conic_seeds for name in conic_sets]
    seconds = AL_SECONDS if profile is Profile.DESK else 3600.0
    ordered = []
    half = len(sets) // 2  # first what is cheap, and enough to judge most claims
    for part, some in ((sets[:half], conic_pairs[:3]), (sets[half:], conic_pairs[3:])):
        ordered += [_decompositions_piece(name, seed) for name in part for seed in SEEDS]
        ordered += [_al_piece(name, SEEDS[0], seconds) for name in part]
        ordered += [_conic_piece(*pair, kind) for pair in some for kind in ("joint", "separate")]
    return [
        *ordered,
        *(_al_piece(name, seed, seconds) for seed in SEEDS[1:] for name in sets),
        *(_al_piece(name, seed, seconds, released=True) for seed in SEEDS for name in sets),
    ]


def decompositions(name: str, seed: int, patterns: int = 1000) -> Row:
    """The gated problem and what decompositions make of it; both problems solved exactly."""
    return {
        "kind": "decompositions",
        "set": name,
        "seed": seed,
        "patterns": patterns,
        "lam": LAM,
        "rfista_iterations": 2000,
        "tightness": 2.0,
        "newton_tol": 1e-5,
    }


def al(
    name: str, seed: int, seconds: float, patterns: int = 1000, *, released: bool = False
) -> Row:
    """C-ReLU by the augmented Lagrangian, with the printed tolerance of its constraints, or with
    the smaller one of the released code."""
    return {
        "kind": "al-released" if released else "al",
        "set": name,
        "seed": seed,
        "patterns": patterns,
        "lam": LAM,
        "tightness": 2.0,
        "al_seconds": seconds,
        "al_inner": 2000,
        "al_gap_tol": 1e-6 if released else None,
    }


def conic(
    name: str,
    kind: str,
    seconds: float = CONIC_SECONDS,
    *,
    patterns: int = 1000,
    seed: int = SEEDS[0],
) -> Row:
    """The min-norm decomposition by Clarabel: one "joint" program, or "separate" ones."""
    return {
        "kind": kind,
        "set": name,
        "seed": seed,
        "patterns": patterns,
        "lam": LAM,
        "rfista_iterations": 2000,
        "tightness": 2.0,
        "seconds": seconds,
        "gigabytes": CONIC_GIGABYTES,
    }


def by_size(names: tuple[str, ...] | list[str]) -> list[str]:
    """The smallest (rows times columns times outputs) first."""
    return sorted(names, key=_size)


def _size(name: str) -> int:
    known = catalogue()[name]
    return known.n * known.d * (1 if known.classes == 2 else known.classes)


def _decompositions_piece(name: str, seed: int) -> Piece:
    cost = 1.0 + _size(name) / 5000
    return Piece(f"decompositions-{name}-{seed}", decompositions(name, seed), cost)


def _al_piece(name: str, seed: int, seconds: float, *, released: bool = False) -> Piece:
    settings = al(name, seed, seconds, released=released)
    cost = min(seconds, (8.0 if released else 4.0) * (1 + _size(name) / 5000))
    return Piece(f"{settings['kind']}-{name}-{seed}", settings, cost)


def _conic_piece(name: str, seed: int, kind: str) -> Piece:
    cost = 200.0 if kind == "joint" else 20.0
    return Piece(f"{kind}-{name}-{seed}", conic(name, kind, seed=seed), cost)
