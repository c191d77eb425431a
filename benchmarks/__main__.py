"""The command line: `python -m benchmarks [NAME ...]`, from the root of the repository."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import click

from benchmarks import (
    accuracy,
    all_patterns,
    big_table,
    cluster,
    decompositions,
    ensembles,
    gpu,
    growth,
    images,
    kills,
    limits,
    load,
    memory,
    messy,
    mnist,
    newton_gated,
    newton_path,
    newton_relu,
    oracle,
    out_of_core,
    peer,
    precision,
    products,
    projections,
    proofs,
    pruning,
    reading,
    relu_oracle,
    relu_peer,
    rigour,
    shards,
    size,
    startup,
    threads,
    ties,
    versions,
)
from benchmarks.record import Benchmark, Options, Record

BETWEEN_PAGES = 30.0  # seconds; results are written at once
MEASUREMENTS = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (  # the quick ones first
        oracle,
        memory,
        products,
        projections,
        startup,
        gpu,
        messy,
        reading,
        big_table,
        ensembles,
        ties,
        kills,
        cluster,
        limits,
        threads,
        load,
        versions,
        size,
        out_of_core,
        shards,
        growth,
        mnist,
        rigour,
        relu_oracle,
        decompositions,
        pruning,
        peer,
        relu_peer,
        precision,
        newton_gated,
        newton_relu,
        newton_path,
        accuracy,
        proofs,
        images,
        all_patterns,
    )
}


@click.command(
    help="Measure what cvxnn promises (all benchmarks, or those named). Fails on a missed target.",
    epilog="\b\n" + "\n".join(f"{name:14} {b.title}" for name, b in MEASUREMENTS.items()),
)
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option("--quick", is_flag=True, help="Small sizes; results go to a temporary folder.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the JSON and the tables, instead of where the project keeps them.",
)
@click.option("--max-seconds", type=float, help="Time limit of each run, where there is one.")
@click.option("--only", multiple=True, help="Words that a case must have (accuracy, shards).")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, help="Cases to measure at once (accuracy)."
)
@click.option("--tables", is_flag=True, help="Measure nothing; make the tables from the JSON.")
def main(
    names: tuple[str, ...],
    quick: bool,
    results: Path | None,
    max_seconds: float | None,
    only: tuple[str, ...],
    jobs: int,
    tables: bool,
) -> None:
    if quick and results is None:
        results = Path(tempfile.mkdtemp(prefix="cvxnn-benchmarks-"))
    if tables:
        for name in names or MEASUREMENTS:
            record = Record.of(name, results)
            if names or record.data.exists():
                record.write_table(MEASUREMENTS[name])
        return
    options = Options(quick=quick, max_seconds=max_seconds, only=only, jobs=jobs)
    missed = [
        f"{name}: {miss}"
        for name in names or MEASUREMENTS
        for miss in run(MEASUREMENTS[name], options, Record.of(name, results))
    ]
    for line in missed:
        click.echo(f"target missed, {line}", err=True)
    raise SystemExit(1 if missed else 0)


def run(benchmark: Benchmark, options: Options, record: Record) -> list[str]:
    """Measure, keeping every result as soon as it is there; the targets that were missed."""
    command = f"python -m benchmarks {benchmark.name}" + (" --quick" if options.quick else "")
    if options.max_seconds is not None:
        command += f" --max-seconds {options.max_seconds:g}"
    rows = record.rows() if benchmark.resumable else {}
    shown = -math.inf
    for case, row in benchmark.measure(options, dict(rows)):
        click.echo(f"{benchmark.name}: {case} done", err=True)
        rows[case] = row
        record.write(benchmark, command, rows)
        if time.monotonic() > shown + BETWEEN_PAGES:
            record.write_table(benchmark)
            shown = time.monotonic()
    if not rows:
        click.echo(f"{benchmark.name}: nothing was measured", err=True)
        return []
    record.write_table(benchmark)
    click.echo(record.table.read_text())
    return benchmark.misses(rows)


if __name__ == "__main__":
    main()
