"""What a mean of certified networks costs: the fit, the file, and the time to certify it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.datasets import Dataset, available
from benchmarks.record import Benchmark, Options, Row, Rows, geometric_mean, markdown_table
from cvxnn.tables.model import Model
from cvxnn.tables.table import Table

NAME = "ensembles"
SETS = ("seeds", "parkinsons", "heart-cleveland", "pima", "statlog-german-credit")
ENSEMBLES = (None, "folds", "variants")


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    for name in available(SETS[:1] if options.quick else SETS):
        for ensemble in ENSEMBLES:
            case = f"{name}: {ensemble or 'one network'}"
            if case not in rows:
                yield case, _measured(name, ensemble, 20 if options.quick else 500)


def _measured(name: str, ensemble: str | None, n_patterns: int) -> Row:
    data = Dataset.load(name)
    columns = {f"x{k}": data.X[:, k] for k in range(data.X.shape[1])}
    table = Table({**columns, "y": data.labels.astype(str).astype(object)}, name)
    started = time.process_time()
    model = Model.fit(table, "y", ensemble=ensemble, n_patterns=n_patterns)
    fitted = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.cvxnn")
        model.save(path)
        size, again = path.stat().st_size, Model.load(path)
    loaded = time.process_time()
    found = again.verify(table)
    return {
        "set": name,
        "ensemble": ensemble,
        "n": len(table),
        "d": data.X.shape[1],
        "classes": data.n_classes,
        "networks": len(model.certified),
        "neurons": model.network.n_neurons,
        "gap": max(member.certificate.relative_gap for member in model.certified),
        "fit_seconds": fitted - started,
        "bytes": size,
        "certify_seconds": time.process_time() - loaded,
        "confirmed": found.agrees,
        "held_out": model.scores["held out"],
    }


def present(rows: Rows) -> str:
    cells = [
        [
            f"{row['set']} ({row['n']} x {row['d']}, {row['classes']} classes)",
            row["ensemble"] or "none",
            row["networks"],
            row["neurons"],
            f"{row['gap']:.1e}",
            f"{row['fit_seconds']:.1f}",
            f"{row['bytes'] / 1e3:,.0f}",
            f"{row['certify_seconds']:.2f}",
            "all" if row["confirmed"] else "NO",
        ]
        for row in rows.values()
    ]
    titles = ["set", "ensemble", "networks", "neurons", "largest gap", "fit, s", "file, kB"]
    return "\n\n".join(
        [
            "Models of tables by `Model.fit` with default settings, a fifth of the rows held out. "
            "The file keeps patterns, dual point and scalings of every network, and `verify` "
            "checks them all in exact integers. Processor seconds of one thread.",
            markdown_table([*titles, "certify, s", "confirmed"], cells),
            *[_ratios(rows, ensemble) for ensemble in ENSEMBLES if ensemble is not None],
        ]
    )


def _ratios(rows: Rows, ensemble: str) -> str:
    alone = {row["set"]: row for row in rows.values() if row["ensemble"] is None}
    pairs = [
        (row, alone[row["set"]])
        for row in rows.values()
        if row["ensemble"] == ensemble and row["set"] in alone
    ]
    if not pairs:
        return ""
    fit, size, certify = (
        geometric_mean(mine[name] / one[name] for mine, one in pairs)
        for name in ("fit_seconds", "bytes", "certify_seconds")
    )
    return (
        f"`ensemble={ensemble!r}` beside one network, geometric means over the sets: the fit "
        f"{fit:.2f} times the time, the file {size:.1f} times the size, certifying {certify:.1f} "
        "times the time."
    )


def misses(rows: Rows) -> list[str]:
    return [
        f"{case}: a network is not confirmed" for case, row in rows.items() if not row["confirmed"]
    ]


BENCHMARK = Benchmark(NAME, "Ensembles: what they cost", measure, present, misses, resumable=True)
