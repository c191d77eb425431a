"""The command line: `python -m fuzz`, from the root of the repository."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import click
from benchmarks.record import RESULTS

from fuzz import report, trial
from fuzz.judge import FAILURES
from fuzz.shrink import keep, signature
from fuzz.trial import Line


@click.command()
@click.option("--problems", default=report.WANTED, show_default=True, help="How many, in all.")
@click.option("--seconds", type=float, help="Stop after that long; the next start goes on.")
@click.option("--seed", default=0, show_default=True, help="A seed and a number make a problem.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--only", multiple=True, type=int, help="Run these numbers, and add no lines.")
@click.option("--keep", "kept", default=0, help="Failures to shrink into tests/fuzz_cases.")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS / "fuzz.jsonl",
    help="File that lines are added to, and where the run goes on. [benchmarks/results/fuzz.jsonl]",
)
@click.option(
    "--report",
    "table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Run nothing; make this page from the results, and a summary in JSON beside them.",
)
def main(
    problems: int,
    seconds: float | None,
    seed: int,
    jobs: int,
    only: tuple[int, ...],
    kept: int,
    results: Path,
    table: Path | None,
) -> None:
    """Solve random problems and judge every answer. Fails if an answer does."""
    if only:
        lines = [trial.run(seed, number) for number in only]
        click.echo("\n".join(json.dumps(line) for line in lines))
        _keep(lines, seed, kept)
        raise SystemExit(any(line["verdict"] in FAILURES for line in lines))
    if table is None:
        _run(problems, seconds, seed, jobs, results)
    lines = _read(results, seed)
    content = report.summary(lines)
    if table is not None:
        command = f"python -m fuzz --problems {content['problems']} --seed {seed}"
        report.write(content, command, results.with_suffix(".json"), table)
        return
    click.echo(report.tables(content))
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in content["verdicts"].items()))
    _keep(lines, seed, kept)
    raise SystemExit(any(line["verdict"] in FAILURES for line in lines))


def _read(results: Path, seed: int) -> list[Line]:
    """The lines of that seed; one that was cut off by an interrupt does not count."""
    lines = []
    for text in results.read_text().splitlines() if results.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line["seed"] == seed:
            lines.append(line)
    return sorted(lines, key=lambda line: line["number"])


def _run(problems: int, seconds: float | None, seed: int, jobs: int, results: Path) -> None:
    done = {line["number"] for line in _read(results, seed)}
    left = [number for number in range(problems) if number not in done]
    verdicts: Counter[str] = Counter()
    started = time.perf_counter()
    results.parent.mkdir(parents=True, exist_ok=True)
    cut_off = results.exists() and not results.read_bytes().endswith(b"\n")
    with results.open("a") as file:
        file.write("\n" if cut_off else "")
        for count, line in enumerate(_lines(seed, left, jobs), 1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            verdicts[line["verdict"]] += 1
            elapsed = time.perf_counter() - started
            if count % 50 == 0 or count == len(left):
                told = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
                click.echo(
                    f"{len(done) + count} of {problems} in {elapsed:.0f} s: {told}", err=True
                )
            if seconds is not None and elapsed > seconds:
                break


def _lines(seed: int, numbers: list[int], jobs: int) -> Iterator[Line]:
    if jobs == 1:
        yield from (trial.run(seed, number) for number in numbers)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield from pool.map(trial.run, repeat(seed), numbers, chunksize=4)
    finally:
        pool.shutdown(cancel_futures=True)


def _keep(lines: list[Line], seed: int, number: int) -> None:
    """Shrink the first failure of each sort, as many as asked for."""
    seen: set[tuple[str, ...]] = set()
    for line in lines:
        sort = (*signature(line), line["program"], line["loss"])
        if line["verdict"] not in FAILURES or sort in seen or len(seen) >= number:
            continue
        seen.add(sort)
        path = keep(seed, line)
        click.echo(f"{line['number']}: {'does not fail again' if path is None else path}")


if __name__ == "__main__":
    main()
