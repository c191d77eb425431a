"""Figures 4, 7 and 8: performance profiles on 438 gated and 438 ReLU problems."""

from __future__ import annotations

from replication.experiment import Experiment, Profile, Row
from replication.figure4.convex import run_programs
from replication.figure4.figures import draw
from replication.figure4.judging import verdicts
from replication.figure4.page import present
from replication.figure4.rivals import run_rivals
from replication.figure4.settings import (
    AL_LIMIT,
    FULL_SETS,
    LIMIT,
    RIVAL_PATTERNS,
    RIVAL_SETS,
    pieces,
)


def run(settings: Row) -> Row:
    return run_programs(settings) if settings["part"] == "programs" else run_rivals(settings)


EXPERIMENT = Experiment(
    name="figure4",
    title="Performance profiles: Figures 4, 7 and 8",
    floats=("Figure 4", "Figure 7", "Figure 8"),
    pieces=pieces,
    run=run,
    present=present,
    draw=draw,
    verdicts=verdicts,
    reductions={
        Profile.SMOKE: "One synthetic problem with 20 patterns, and no interior points.",
        Profile.DESK: f"All programs of the convex methods have the paper's size, with at most "
        f"{LIMIT:g} processor seconds for each; the AL has {AL_LIMIT:g}, three of the six "
        "strengths, and the sets on which it may end by then. The comparison of all methods is on "
        "smaller problems: "
        f"{len(RIVAL_SETS)} sets with at most 1000 rows at three strengths, "
        f"{RIVAL_PATTERNS['gated']} gated and {RIVAL_PATTERNS['relu']} ReLU patterns, "
        f"and {len(FULL_SETS)} sets at one strength with all patterns; Adam and SGD with the seven "
        "step sizes, one seed and 500 epochs (the paper: three seeds, 2000 epochs); "
        "Clarabel for MOSEK with 60 processor seconds and 8 GB (15 minutes, 32 GB).",
    },
)
