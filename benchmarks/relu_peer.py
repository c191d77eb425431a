"""The augmented Lagrangian against pyscnn's: same data, gates and lam, one thread.

How long until the network's own objective is within 1 % of the certified optimum? cvxnn stops
there by itself. pyscnn cannot tell, so the cap on its iterations is searched for: the shortest run
on a grid that returns such a network is timed, and its own default run is reported beside it.
Seconds are processor time of the one thread that each has, and the packages take turns, so that
what else the machine does matters little. A later call goes on with the cases that have no row
yet.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import judge
from benchmarks.datasets import Dataset, available
from benchmarks.instances import Instance, Size
from benchmarks.peer import PEER_PYTHON
from benchmarks.peers.protocol import Worker
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, geometric_mean, markdown_table

LAM = 1e-3
SYNTHETIC = (Size(n=250, d=50, p=100), Size(n=500, d=10, p=500))
QUICK = (Size(n=100, d=10, p=30),)
UCI = ("statlog-heart", "pima", "ionosphere", "parkinsons")
UCI_PATTERNS = 500
DTYPES = ("float64", "float32")  # of pyscnn, whose default is the second; cvxnn's is float64
JUDGED_DTYPE = "float64"

WITHIN = 1.01
CERTIFIED_TOL = 1e-3
MIN_RATIO = 2.0
REPEATS = 3
MAX_SECONDS = 300.0
DEFAULT_ITERS = 10_000  # pyscnn's
FIRST_ITERS = DEFAULT_ITERS / 2**7
BISECTIONS = 2  # the grid is refined to a factor of 2^(1/4)


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    if not (ROOT / PEER_PYTHON).exists():
        raise SystemExit("pyscnn has no environment yet: make .venv-pyscnn/.ready")
    instances = _instances(options.quick)
    dtypes, repeats = (DTYPES[:1], 1) if options.quick else (DTYPES, REPEATS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Worker(ROOT / PEER_PYTHON, "benchmarks.peers.run_pyscnn_al", ROOT) as theirs,
        Worker(sys.executable, "benchmarks.peers.run_cvxnn_al", ROOT) as ours,
    ):
        for dtype, (name, make) in itertools.product(dtypes, instances.items()):
            case = f"{name} {dtype}"
            if case not in rows:
                race = Race(make(), dtype, Path(folder), theirs, ours)
                known = [row for row in rows.values() if row["instance"] == name]
                certified = known[0]["certified"] if known else race.certify()
                rows[case] = {"instance": name, **race.run(certified, repeats)}
                yield case, rows[case]


def _instances(quick: bool) -> dict[str, Callable[[], Instance]]:
    made: dict[str, Callable[[], Instance]] = {
        str(size): size.make for size in (QUICK if quick else SYNTHETIC)
    }
    for name in () if quick else available(UCI):
        made[name] = lambda name=name: Dataset.load(name).instance(UCI_PATTERNS)
    return made


class Race:
    """One instance and one precision of pyscnn; both packages in turn."""

    def __init__(
        self, instance: Instance, dtype: str, folder: Path, theirs: Worker, ours: Worker
    ) -> None:
        self.instance, self.dtype, self.theirs, self.ours = instance, dtype, theirs, ours
        self.network = folder / "network.npz"
        data = folder / "data.npz"
        np.savez(data, X=instance.X, Y=instance.Y, gates=instance.gates)
        self.request = {"data": str(data), "network": str(self.network), "lam": LAM}

    def certify(self) -> dict[str, Any]:
        """The best known point and its bound, which no run is asked to know."""
        return self.run_ours(None)

    def run_ours(self, target: float | None) -> dict[str, Any]:
        return self.judged(
            self.ours.ask(**self.request, target=target, tol=CERTIFIED_TOL, max_seconds=MAX_SECONDS)
        )

    def run_theirs(self, max_iters: float) -> dict[str, Any]:
        return self.judged(
            self.theirs.ask(
                **self.request,
                dtype=self.dtype,
                max_iters=round(max_iters),
                max_seconds=MAX_SECONDS,
            )
        )

    def run(self, certified: dict[str, Any], repeats: int) -> Row:
        target = WITHIN * certified["convex_objective"]
        tried = self.search(target)
        reaching = [run for run in tried if run["objective"] <= target]
        theirs = min(reaching, key=lambda run: run["seconds"], default=None)
        ours = self.run_ours(target)
        row: Row = {
            "n": self.instance.X.shape[0],
            "d": self.instance.X.shape[1],
            "p": self.instance.gates.shape[1],
            "lam": LAM,
            "dtype": self.dtype,
            "target": target,
            "certified": certified,
            "tried": tried,
            "pyscnn": theirs,
            "cvxnn": ours,
            "ratio": None,
        }
        # the runs above count as the first
        times = {"pyscnn": [theirs["seconds"]] if theirs else [], "cvxnn": [ours["seconds"]]}
        for _ in range(repeats - 1):
            if theirs is not None:
                times["pyscnn"].append(self.run_theirs(theirs["max_iters"])["seconds"])
            times["cvxnn"].append(self.run_ours(target)["seconds"])
        for name, seconds in times.items():
            if seconds:
                row[name] = {
                    **row[name],
                    "seconds": statistics.median(seconds),
                    "all_seconds": seconds,
                }
        if theirs is not None:
            row["ratio"] = row["pyscnn"]["seconds"] / row["cvxnn"]["seconds"]
        return row

    def search(self, target: float) -> list[dict[str, Any]]:
        """Runs of pyscnn: with its defaults, then with growing caps on the iterations until one
        reaches the target, then between the last two caps."""
        tried = [self.run_theirs(DEFAULT_ITERS)]
        low, high = FIRST_ITERS / 2, FIRST_ITERS
        while high < DEFAULT_ITERS:
            tried.append(self.run_theirs(high))
            if tried[-1]["objective"] <= target:
                break
            low, high = high, 2 * high
        if any(run["objective"] <= target for run in tried):
            for _ in range(BISECTIONS):
                middle = math.sqrt(low * high)
                tried.append(self.run_theirs(middle))
                if tried[-1]["objective"] <= target:
                    high = middle
                else:
                    low = middle
        return tried

    def judged(self, result: dict[str, Any]) -> dict[str, Any]:
        """With the objective of the returned network; a very large one where there is none."""
        if result["status"] == "time_limit" and "lower_bound" not in result:
            return {**result, "objective": sys.float_info.max}
        net = np.load(self.network)
        X, Y = self.instance.X, self.instance.Y
        objective = judge.network_objective(X, Y, net["W1"], net["W2"], LAM)
        return {**result, "objective": objective}


def present(rows: Rows) -> str:
    versions = next(iter(rows.values()))["tried"][0]["versions"]
    return "\n\n".join(
        [
            "Seconds (processor time, one thread) from data to a ReLU network whose own objective "
            f"is within 1 % of the certified optimum at lam = {LAM:g}, medians of {REPEATS} runs, "
            "and how many times faster cvxnn is. Both packages get the same gates (on where "
            "X g > 0). The optimum is certified by cvxnn to a relative gap of "
            f"{CERTIFIED_TOL:g}, and the target is {WITHIN:g} times the objective of that point. "
            "cvxnn, always in float64, stops at the target. For pyscnn the time is that of its "
            "shortest run that gets there: the iterations of all its subproblems are capped "
            "(`max_primal_iters`) on a grid that doubles and is then refined to a factor of 1.19; "
            "the search itself is free. Its run with default settings (up to "
            f"{DEFAULT_ITERS} iterations, {MAX_SECONDS:g} s) is beside it.",
            _times(rows),
            "The networks behind it: objectives are those of the returned networks, relative to "
            "the certified point. pyscnn's may be below it, since its neurons need not stay in "
            "the cones of the given patterns. A finer grid could lower its times by up to 16 %.",
            _work(rows),
            "The peer: " + ", ".join(f"{name} {v}" for name, v in versions.items()) + ".",
        ]
    )


def _times(rows: Rows) -> str:
    header = (
        "instance",
        "precision of pyscnn",
        "pyscnn by default",
        "pyscnn to 1 %",
        "cvxnn to 1 %",
        "ratio",
    )
    lines: list[tuple] = []
    for row in rows.values():
        failed = row["pyscnn"] is None
        lines.append(
            (
                _label(row),
                row["dtype"],
                f"{row['tried'][0]['seconds']:.2f}",
                "failed" if failed else f"{row['pyscnn']['seconds']:.2f}",
                f"{row['cvxnn']['seconds']:.2f}",
                "" if failed else f"{row['ratio']:.2f}",
            )
        )
    for dtype in DTYPES:
        chosen = [row for row in rows.values() if row["dtype"] == dtype]
        ratios = [row["ratio"] for row in chosen if row["ratio"] is not None]
        if ratios:
            failures = len(chosen) - len(ratios)
            count = f" ({failures} failure{'s' if failures > 1 else ''} left out)"
            label = "**geometric mean**" + (count if failures else "")
            lines.append((label, dtype, "", "", "", f"**{geometric_mean(ratios):.2f}**"))
    return markdown_table(header, lines)


def _work(rows: Rows) -> str:
    header = (
        "instance",
        "precision of pyscnn",
        "certified optimum",
        "relative gap",
        "pyscnn by default",
        "pyscnn, best tried",
        "pyscnn, timed",
        "its cap on iterations",
        "cvxnn, timed",
        "its iterations",
    )
    lines = []
    for row in rows.values():
        best = row["certified"]["convex_objective"]

        def excess(run: Row, best: float = best) -> str:
            reached = run["objective"] < sys.float_info.max
            return f"{100 * (run['objective'] / best - 1):+.2f} %" if reached else "none in time"

        theirs = row["pyscnn"]
        lines.append(
            (
                _label(row),
                row["dtype"],
                f"{best:.6f}",
                f"{row['certified']['relative_gap']:.1e}",
                excess(row["tried"][0]),
                excess(min(row["tried"], key=lambda run: run["objective"])),
                excess(theirs) if theirs else "failed",
                theirs["max_iters"] if theirs else "",
                excess(row["cvxnn"]),
                row["cvxnn"]["iterations"],
            )
        )
    return markdown_table(header, lines)


def _label(row: Row) -> str:
    size = f"n={row['n']} d={row['d']} p={row['p']}"
    return size if row["instance"].startswith("n=") else f"{row['instance']} ({size})"


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        if not row["cvxnn"]["objective"] <= row["target"] * (1 + 1e-9):
            found.append(
                f"{case}: cvxnn's network has {row['cvxnn']['objective']:.6g}, "
                f"wanted {row['target']:.6g}"
            )
        if not row["certified"]["relative_gap"] <= CERTIFIED_TOL:
            found.append(
                f"{case}: the optimum is certified to {row['certified']['relative_gap']:.1e} only"
            )
    ratios = [
        row["ratio"]
        for row in rows.values()
        if row["dtype"] == JUDGED_DTYPE and row["ratio"] is not None
    ]
    if ratios and geometric_mean(ratios) < MIN_RATIO:
        found.append(
            f"{geometric_mean(ratios):.2f} times faster in the geometric mean in {JUDGED_DTYPE}, "
            f"wanted {MIN_RATIO:g}"
        )
    return found


BENCHMARK = Benchmark(
    "relu_peer",
    "The augmented Lagrangian against pyscnn's",
    measure,
    present,
    misses,
    resumable=True,
)
