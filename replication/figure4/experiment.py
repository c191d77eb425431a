"""Figures 4, 7 and 8: performance profiles on 438 gated and 438 ReLU problems."""

from __future__ import annotations

from replication.experiment import Experiment, Row
from replication.figure4.convex import run_programs
from replication.figure4.rivals import run_rivals
from replication.figure4.settings import pieces


def run(settings: Row) -> Row:
    return {"programs": run_programs, "rivals": run_rivals}[settings["part"]](settings)


EXPERIMENT = Experiment(
    name="figure4",
    title="Performance profiles: Figures 4, 7 and 8",
    floats=("Figure 4", "Figure 7", "Figure 8"),
    pieces=pieces,
    run=run,
    present=lambda done: "",
)
