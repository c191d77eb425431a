"""The command line of measurements, for `python -m benchmarks` and `python -m replication`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks.record import Benchmark, Options, Place, Record


def command_line(place: Place, measurements: Mapping[str, Benchmark], about: str) -> click.Command:
    """A command that runs all measurements, or those named, and fails if a target is missed."""

    @click.command(
        help=about,
        epilog="\b\n" + "\n".join(f"{name:14} {b.title}" for name, b in measurements.items()),
    )
    @click.argument("names", nargs=-1, type=click.Choice(list(measurements)))
    @click.option("--quick", is_flag=True, help="Small sizes; results go to a temporary folder.")
    @click.option(
        "--results",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for the JSON and the tables, instead of where the project keeps them.",
    )
    @click.option("--max-seconds", type=float, help="Time limit of each run, where there is one.")
    @click.option("--tables", is_flag=True, help="Measure nothing; make the tables from the JSON.")
    def main(
        names: tuple[str, ...],
        quick: bool,
        results: Path | None,
        max_seconds: float | None,
        tables: bool,
    ) -> None:
        if quick and results is None:
            results = Path(tempfile.mkdtemp(prefix=f"cvxnn-{place.package}-"))
        if tables:
            for name in names or measurements:
                record = Record.of(name, results, place)
                if names or record.data.exists():
                    record.write_table(measurements[name])
            return
        options = Options(quick=quick, max_seconds=max_seconds)
        missed = [
            f"{name}: {miss}"
            for name in names or measurements
            for miss in run(measurements[name], options, Record.of(name, results, place), place)
        ]
        for line in missed:
            click.echo(f"target missed, {line}", err=True)
        raise SystemExit(1 if missed else 0)

    return main


def run(benchmark: Benchmark, options: Options, record: Record, place: Place) -> list[str]:
    """Measure, keeping every result as soon as it is there; the targets that were missed."""
    command = f"python -m {place.package} {benchmark.name}" + (" --quick" if options.quick else "")
    if options.max_seconds is not None:
        command += f" --max-seconds {options.max_seconds:g}"
    rows = record.rows() if benchmark.resumable else {}
    for case, row in benchmark.measure(options, dict(rows)):
        click.echo(f"{benchmark.name}: {case} done", err=True)
        rows[case] = row
        record.write(benchmark, command, rows)
    if not rows:
        click.echo(f"{benchmark.name}: nothing was measured", err=True)
        return []
    click.echo(record.table.read_text())
    return benchmark.misses(rows)
