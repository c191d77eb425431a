"""The command line: `python -m replication [NAME ...]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from replication import EXPERIMENTS
from replication.claims import write_claims
from replication.experiment import Profile
from replication.pages import PAGES, finished, write_pages
from replication.results import Busy, Results
from replication.runner import find, run


@click.command(
    help="Run the experiments of the paper again (all of them, or those named), and make the pages "
    "of docs/replication from what there is; without names, that of all claims, too. A run that "
    "was stopped goes on where it was.",
    epilog="\b\n" + "\n".join(f"{name:10} {what}" for name, what in EXPERIMENTS.items()),
)
@click.argument("names", nargs=-1, type=click.Choice(list(EXPERIMENTS)))
@click.option(
    "--profile",
    type=click.Choice([str(profile) for profile in Profile]),
    default=str(Profile.DESK),
    show_default=True,
    help="How much of the paper's setting to run; smoke writes into a temporary folder.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--hours", type=float, default=1000.0, help="Start no further piece after so long.")
@click.option("--pages", is_flag=True, help="Run nothing; make the pages from the results.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for results and pages, instead of where the project keeps them.",
)
def main(
    names: tuple[str, ...], profile: str, jobs: int, hours: float, pages: bool, results: Path | None
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the runner ends its processes first
    chosen = [find(name) for name in names or EXPERIMENTS]
    if profile == Profile.SMOKE and results is None:
        results = Path(tempfile.mkdtemp(prefix="cvxnn-replication-"))
    failed = 0
    for experiment in [] if pages else chosen:
        try:
            found = Results(experiment.name, Profile(profile), results)
            failed += run(experiment, found, jobs=jobs, limit=3600 * hours)
        except Busy as error:
            raise click.ClickException(str(error)) from None
    for file in write_pages(chosen, results):
        click.echo(file)
    if not names:
        judged = ((experiment, finished(experiment, results)) for experiment in chosen)
        click.echo(write_claims(judged, results or PAGES))
    if failed:
        raise click.ClickException(f"{failed} pieces failed; the same command tries them again")


if __name__ == "__main__":
    main()
