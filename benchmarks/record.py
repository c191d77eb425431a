"""Results: JSON for machines, Markdown made from it for people, and on what they were measured."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import THREADS

ROOT = Path(__file__).parent.parent
RESULTS, PAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks"
PACKAGES = ("cvxnn", "numpy", "scipy", "scikit-learn", "cvxpy", "clarabel", "torch")

Row = dict[str, Any]
Rows = dict[str, Row]  # by the name of the case


@dataclass(frozen=True)
class Options:
    """What the command line asked for; without a time limit each benchmark has its own. `only` are
    words that the names of cases must have, where a benchmark can measure some of them, and `jobs`
    how many it measures at once, where it can."""

    quick: bool
    max_seconds: float | None = None
    only: tuple[str, ...] = ()
    jobs: int = 1


@dataclass(frozen=True)
class Benchmark:
    """A question, how to measure the answer, and how to present it.

    Attributes
    ----------
    measure : yields (case, row) pairs; gets the rows that are already there if `resumable`.
    present : the Markdown of the rows.
    misses : one line for each target that the rows miss.
    draw : puts a figure of the rows into a file, which the page shows.
    """

    name: str
    title: str
    measure: Callable[[Options, Rows], Iterator[tuple[str, Row]]]
    present: Callable[[Rows], str]
    misses: Callable[[Rows], list[str]]
    resumable: bool = False
    draw: Callable[[Rows, Path], None] | None = None


@dataclass(frozen=True)
class Record:
    """The files of a benchmark's results; a figure goes beside the table."""

    data: Path
    table: Path

    @classmethod
    def of(cls, name: str, folder: Path | None = None) -> Record:
        """In `folder`, or where the project keeps its results."""
        return cls((folder or RESULTS) / f"{name}.json", (folder or PAGES) / f"{name}.md")

    def rows(self) -> Rows:
        return json.loads(self.data.read_text())["rows"] if self.data.exists() else {}

    def write(self, benchmark: Benchmark, command: str, rows: Rows) -> None:
        content = {
            "benchmark": benchmark.name,
            "command": command,
            "machine": machine(),
            "rows": rows,
        }
        _replace(self.data, json.dumps(content, indent=1) + "\n")

    def write_table(self, benchmark: Benchmark) -> None:
        """Make the page from the JSON, and from nothing else."""
        content = json.loads(self.data.read_text())
        _replace(self.table, _page(benchmark, content))
        if benchmark.draw is not None:
            benchmark.draw(content["rows"], self.table.with_suffix(".png"))


def machine() -> dict[str, Any]:
    """What the numbers depend on; nothing that names the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: v for name in PACKAGES if (v := _version(name))},
        "blas_threads": THREADS,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def markdown_table(
    header: Sequence[str], lines: Iterable[Sequence[object]], *, texts: int = 1
) -> str:
    """A Markdown table; columns but the first `texts` are numbers and align right."""
    ruler = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (header, ruler, *lines))


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def _page(benchmark: Benchmark, content: dict[str, Any]) -> str:
    command, rows, facts = content["command"], content["rows"], content["machine"]
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items())
    misses = benchmark.misses(rows)
    verdict = [f"- Target missed: {miss}" for miss in misses] or ["All targets are met."]
    return "\n".join(
        [
            f"<!-- Made by `{command}`. Do not edit. -->",
            f"# {benchmark.title}",
            "",
            benchmark.present(rows),
            "",
            *verdict,
            "",
            f"Measured on {facts['date']} with `{command}`: {facts['cpu']}, {facts['cores']} cores "
            f"({facts['blas_threads']} BLAS thread used), {facts['system']}, "
            f"Python {facts['python']}, {packages}.",
            "",
        ]
    )


def _replace(path: Path, text: str) -> None:
    """Write in one step, so that an interrupted run leaves the last complete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    partial.replace(path)


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
