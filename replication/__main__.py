"""The command line: `python -m replication [NAME ...]`."""

from __future__ import annotations

from benchmarks.command import command_line
from benchmarks.record import ROOT, Place

from replication.table1 import experiment as table1

PLACE = Place("replication", ROOT / "replication" / "results", ROOT / "docs" / "replication")
EXPERIMENTS = {module.BENCHMARK.name: module.BENCHMARK for module in (table1,)}

main = command_line(
    PLACE,
    EXPERIMENTS,
    "Measure the paper's tables and figures again (all of them, or those named).",
)

if __name__ == "__main__":
    main()
