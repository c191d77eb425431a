"""What is run for Figures 1 and 6, and in which order."""

from __future__ import annotations

from replication.experiment import Piece, Profile, Row

TEACHERS = ("uniform", "gaussian")  # as released, as printed
SEEDS = tuple(range(650, 660))
LAM = 1e-4
AL_SECONDS = 600.0
SMOKE_REDUCTION = "ten neurons, five epochs, one seed, and the patterns of these alone."
DESK_REDUCTION = (
    "ten runs of SGD and ten programs by Newton for both teachers; ten runs of the augmented "
    "Lagrangian for uniform weights of the teacher, three for Gaussian ones, each for "
    f"{AL_SECONDS:g} processor seconds at most."
)


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        small = {"width": 10, "epochs": 5, "random_patterns": 5}
        return [
            Piece("uniform sgd", sgd("uniform", SEEDS[:1]) | small, 2.0),
            Piece("uniform newton 650", convex("newton", "uniform", 650) | small, 2.0),
            Piece("uniform al 650", convex("al", "uniform", 650, 1.0) | small, 2.0),
        ]
    full = profile is Profile.PAPER
    al_seconds = 1e9 if full else AL_SECONDS
    found = [Piece(f"{teacher} sgd", sgd(teacher, SEEDS), 5.0) for teacher in TEACHERS]
    found.append(Piece("uniform sgd released", sgd("uniform", SEEDS, "released"), 1.0))
    for teacher in TEACHERS:
        some = SEEDS if full or teacher == "uniform" else SEEDS[:3]
        found += [
            Piece(f"{teacher} newton {seed}", convex("newton", teacher, seed), 12.0)
            for seed in SEEDS
        ]
        found += [
            Piece(f"{teacher} al {seed}", convex("al", teacher, seed, al_seconds), 55.0)
            for seed in some
        ]
    return found


def sgd(teacher: str, seeds: tuple[int, ...], scale: str = "convex") -> Row:
    """NC-ReLU; step, schedule and penalty are those of the released configuration."""
    return {
        "kind": "sgd",
        "teacher": teacher,
        "lam": LAM,
        "width": 100,
        "step": 10.0,
        "batch": 25,
        "epochs": 1000,
        "halve_every": 100,
        "tol": 1e-6,
        "scale": scale,
        "seeds": list(seeds),
    }


def convex(kind: str, teacher: str, seed: int, seconds: float = AL_SECONDS) -> Row:
    """C-ReLU with random patterns and with those of the run of SGD with this seed."""
    return {
        **sgd(teacher, (seed,)),
        "kind": kind,
        "random_patterns": 100,
        "newton_tol": 1e-3,
        "seconds": seconds,
    }
