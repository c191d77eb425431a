"""The work of Figures 4, 7 and 8 in pieces.

Two kinds of them. "programs" are the paper's own problems, 73 sets at six penalty strengths with
5000 gated or 2500 ReLU patterns, by one convex method. "rivals" are smaller ones, a set at one
strength with a tenth of the patterns, by all methods, gradient descent and interior points among
them; "full" are a few of these with all patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from replication.data import DEFAULT_SEED, GATE_SEED, catalogue, collection
from replication.descent import STEPS
from replication.experiment import Piece, Profile, Row

LAMBDAS = tuple(float(lam) for lam in np.logspace(-5, -1, 6))
KINDS = ("gated", "relu")
PATTERNS = {"gated": 5000, "relu": 2500}
SEEDS = {"gated": GATE_SEED, "relu": DEFAULT_SEED}
TOL = 1e-3  # the certified relative gap that is asked of Newton's method
LIMIT = 60.0  # processor seconds of a program
# The method of the paper for each kind of program, as published: its stop and its limits.
PUBLISHED = {
    "gated": ("rfista", {"stop": "paper", "max_iter": 2000}),
    "relu": ("al", {"stop": "paper", "max_inner": 2000}),
}
EXACT: tuple[str, Row] = ("auto", {"tol": TOL})

RIVAL_TOL = 1e-4

# At a desk
AL_LIMIT = 30.0
AL_MOST = 5.75e7  # size up to which it may end before; beyond, it would do nothing but run into it
RIVAL_PATTERNS = {"gated": 500, "relu": 250}
RIVAL_LAMBDAS = (LAMBDAS[0], LAMBDAS[2], LAMBDAS[3])
# Twelve sets with at most 1000 rows, of few and many columns, with two and more classes.
RIVAL_SETS = (
    "monks-3",
    "teaching",
    "statlog-heart",
    "seeds",
    "glass",
    "parkinsons",
    "ecoli",
    "ionosphere",
    "dermatology",
    "pima",
    "energy-y1",
    "statlog-german-credit",
)
FULL_SETS, FULL_LAMBDA = ("statlog-heart", "parkinsons", "pima"), LAMBDAS[2]
DESCENT = {"steps": list(STEPS), "seeds": [778], "epochs": 500}
RELEASED_AT = LAMBDAS[2]  # the strength at which the released scale of the loss is run as well
CONIC = {"max_seconds": LIMIT, "gigabytes": 8.0}
GENERATED_LIMIT = 10.0
# The size (rows times columns times outputs times patterns) up to which a set is one piece; those
# of larger ones are single programs.
WHOLE = {"newton/gated": 2.4e9, "newton/relu": 1.2e9, "rfista/gated": 4e9, "al/relu": 1.75e7}


def pieces(profile: Profile) -> list[Piece]:
    if profile == Profile.SMOKE:
        return [*_smoke()]
    if profile == Profile.DESK:
        smaller = _rivals(RIVAL_SETS, RIVAL_LAMBDAS, _desk_rivals)
        return sorted([*_programs(AL_LIMIT), *smaller, *_full_size()], key=_turn)
    return [*_programs(None), *_rivals(collection(), LAMBDAS, _paper_rivals)]


def _turn(piece: Piece) -> float:
    """The order at a desk: cheap pieces first, and of equal cost those that tell more."""
    worth = {"newton": 10.0, "rivals": 30.0, "full": 10.0, "rfista": 2.0}
    matching = (factor for name, factor in worth.items() if piece.key.startswith(name))
    return piece.cost / next(matching, 1.0)


def _programs(al_limit: float | None) -> Iterator[Piece]:
    """All 876 programs by Newton's method, and by the paper's own."""
    for kind in KINDS:
        published, options = PUBLISHED[kind]
        limit = {"rfista": None if al_limit is None else LIMIT, "al": al_limit}[published]
        for name in collection():
            yield from _of_set("newton", EXACT, kind, name, LIMIT)
            lams = LAMBDAS
            if published == "al" and al_limit is not None:
                lams = RIVAL_LAMBDAS if _size(name) * PATTERNS[kind] < AL_MOST else ()
            yield from _of_set(published, (published, options), kind, name, limit, lams)


def _of_set(
    key: str,
    how: tuple[str, Row],
    kind: str,
    name: str,
    limit: float | None,
    lams: Sequence[float] = LAMBDAS,
) -> Iterator[Piece]:
    """A method on the programs of a set, in one piece or in a piece for each strength."""
    solver, options = how
    size = _size(name) * PATTERNS[kind]
    cost = expected(key, kind, size, limit)
    whole = lams and size < WHOLE[f"{key}/{kind}"]
    groups = [[*lams]] if whole else [[lam] for lam in lams]
    for group in groups:
        end = "" if len(group) > 1 else f"/{group[0]:.3g}"
        settings = {
            "part": "programs",
            "set": name,
            "kind": kind,
            "patterns": PATTERNS[kind],
            "seed": SEEDS[kind],
            "lams": group,
            "solver": solver,
            "options": options,
            "max_seconds": limit,
        }
        yield Piece(f"{key}/{kind}/{name}{end}", settings, cost * len(group) / len(LAMBDAS))


def expected(method: str, kind: str, size: float, limit: float | None) -> float:
    """Processor seconds of a set's six programs: a time for every program, and one that grows with
    rows times columns times outputs times patterns."""
    fixed, rate = {
        ("newton", "gated"): (0.3, 6e7),
        ("newton", "relu"): (1.0, 3e7),
        ("rfista", "gated"): (5.0, 3e7),
        ("al", "relu"): (5.0, 5e5),
    }[method, kind]
    most = 4 * limit if limit else np.inf  # of the six, four or so are not solved by zero
    return float(min(fixed + size / rate, most))


def _size(name: str) -> int:
    """Rows for training times columns times outputs."""
    known = catalogue()[name]
    return round(0.8 * known.n) * known.d * (1 if known.classes == 2 else known.classes)


def _rivals(names: Any, lams: Any, of_program: Any) -> Iterator[Piece]:
    for lam in lams:
        for name in names:
            for kind in KINDS:
                settings = of_program(name, kind, lam)
                yield Piece(f"rivals/{kind}/{name}/{lam:.3g}", settings, settings.pop("cost"))


def _desk_rivals(name: str, kind: str, lam: float) -> Row:
    return {
        "part": "rivals",
        "set": name,
        "kind": kind,
        "patterns": RIVAL_PATTERNS[kind],
        "seed": SEEDS[kind],
        "lam": lam,
        "exact": {"tol": RIVAL_TOL, "max_seconds": LIMIT},
        "published": {**PUBLISHED[kind][1], "max_seconds": LIMIT if kind == "gated" else AL_LIMIT},
        "descent": DESCENT,
        "scales": ["convex", "released"] if lam == RELEASED_AT else ["convex"],
        "conic": CONIC,
        "generated_seconds": GENERATED_LIMIT,
        "cost": _size(name) / 400 + 10 if kind == "gated" else _size(name) / 200 + 20,
    }


def _full_size() -> Iterator[Piece]:
    """A few problems of the paper's size by all methods, to see what the smaller ones hide."""
    for name in FULL_SETS:
        for kind in KINDS:
            settings = _desk_rivals(name, kind, FULL_LAMBDA)
            cost = 10 * settings.pop("cost")
            changed = {"part": "full", "patterns": PATTERNS[kind], "scales": ["convex"]}
            yield Piece(f"full/{kind}/{name}/{FULL_LAMBDA:.3g}", {**settings, **changed}, cost)


def _paper_rivals(name: str, kind: str, lam: float) -> Row:
    desk = _desk_rivals(name, kind, lam)
    return {
        **desk,
        "patterns": PATTERNS[kind],
        "published": PUBLISHED[kind][1],
        "descent": {"steps": list(STEPS), "seeds": [778, 779, 780], "epochs": 2000},
        "scales": ["convex", "released"],
        "conic": {"max_seconds": 900.0, "gigabytes": 32.0},
        "generated_seconds": 900.0,
        "cost": 12 * desk["cost"],
    }


def _smoke() -> Iterator[Piece]:
    """The synthetic problem, which needs no files, with few patterns."""
    small = {"set": "synthetic", "patterns": 20, "seed": GATE_SEED}
    for kind in KINDS:
        for key, (solver, options) in {
            "newton": EXACT,
            PUBLISHED[kind][0]: PUBLISHED[kind],
        }.items():
            settings = {
                **small,
                "part": "programs",
                "kind": kind,
                "lams": [1e-3, 1.0],
                "solver": solver,
                "options": options,
                "max_seconds": 0.5,
            }
            yield Piece(f"{key}/{kind}/synthetic", settings)
        settings = {
            **small,
            "part": "rivals",
            "kind": kind,
            "lam": 1e-3,
            "exact": {"tol": 1e-2, "max_seconds": 0.5},
            "published": {**PUBLISHED[kind][1], "max_seconds": 0.5},
            "descent": {"steps": [1.0, 0.01], "seeds": [778], "epochs": 5},
            "scales": ["convex"],
            "conic": None,
            "generated_seconds": 0.5,
        }
        yield Piece(f"rivals/{kind}/synthetic/0.001", settings)
