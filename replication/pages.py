"""The pages of docs/replication, made from results and from nothing else.

One page for each experiment, and one table of all claims. Numbers stand beside the printed ones
with a sign, and a colour, for how well they agree:

    =  equal as printed        ~  as near as the experiment asks for        !  further away
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.record import ROOT, markdown_table

from cvxnn.files import write_atomically
from replication.experiment import Done, Experiment, Profile, Row, Verdict
from replication.paper import claims
from replication.results import Results

PAGES = ROOT / "docs" / "replication"
SIGNS = {"same": "=", "near": "~", "far": "!"}


def beside(here: float, printed: float | None, digits: int, tolerance: float) -> str:
    """A cell: the number here, the printed one, and how they agree. Equal means equal when both
    are rounded as the paper prints them; near, at most `tolerance` away."""
    shown = f"{here:.{digits}f}"
    if printed is None:
        return shown
    return marked(shown, f"{printed:.{digits}f}", agreement(here, printed, digits, tolerance))


def agreement(here: float, printed: float, digits: int, tolerance: float) -> str:
    """ "same", "near" or "far"."""
    if abs(round(here, digits) - printed) < 0.5 * 10.0**-digits:
        return "same"
    return "near" if abs(here - printed) <= tolerance else "far"


def marked(here: str, printed: str, kind: str) -> str:
    """A cell of two numbers with its sign and, on the site, its colour."""
    return f'<span class="{kind}">{here} {SIGNS[kind]} {printed}</span>'


def finished(experiment: Experiment, folder: Path | None = None) -> list[Done]:
    """The finished pieces of the profile that a page is made of: the desk's, with those of the
    full setting in their place where there are any; in another folder, whatever there is."""
    pieces: dict[str, Done] = {}
    for profile in (Profile.SMOKE,) if folder else (Profile.DESK, Profile.PAPER):
        done = Results(experiment.name, profile, folder).done()
        wanted = {piece.key for piece in experiment.pieces(profile)}
        pieces |= {key: piece for key, piece in done.items() if key in wanted}
    return list(pieces.values())


def write_pages(experiments: Sequence[Experiment], folder: Path | None = None) -> Iterator[Path]:
    """The pages of these experiments that have results, and the table of all claims."""
    place = folder or PAGES
    for experiment in experiments:
        pieces = finished(experiment, folder)
        if pieces:
            place.mkdir(parents=True, exist_ok=True)
            file = place / f"{experiment.name}.md"
            write_atomically(file, _page(experiment, pieces, place, folder).encode())
            yield file


def _page(experiment: Experiment, pieces: list[Done], place: Path, folder: Path | None) -> str:
    names = [] if experiment.draw is None else list(experiment.draw(pieces, place))
    parts = [
        f"<!-- Made by `python -m replication {experiment.name} --pages`. Do not edit. -->",
        f"# {experiment.title}",
        *_reduced(experiment, pieces),
        experiment.present(pieces),
        *(f"![{Path(name).stem}]({name})" for name in names),
        *_judged(experiment, pieces),
        _measured(experiment, pieces, folder),
    ]
    return "\n\n".join(parts) + "\n"


def _reduced(experiment: Experiment, pieces: list[Done]) -> list[str]:
    """What is run again, what is less than in the paper, and how much of it is there."""
    if not experiment.floats:
        return []
    texts = [f"{', '.join(experiment.floats)}, run again."]
    for profile in map(Profile, sorted({piece.profile for piece in pieces})):
        wanted = {piece.key for piece in experiment.pieces(profile)}
        there = sum(piece.profile == profile and piece.key in wanted for piece in pieces)
        less = experiment.reductions.get(profile, "The setting is the paper's in full.")
        missing = "" if there == len(wanted) else f" {there} of {len(wanted)} pieces are done."
        texts.append(f"*Profile {profile}:* {less}{missing}")
    return [" ".join(texts)]


def _judged(experiment: Experiment, pieces: list[Done]) -> list[str]:
    if experiment.verdicts is None:
        return []
    lines = [_verdict_line(verdict) for verdict in experiment.verdicts(pieces)]
    table = markdown_table(("claim", "verdict", "here", "why"), lines)
    return ["## Claims", table.replace("---:", "---")]


def _verdict_line(verdict: Verdict) -> tuple[str, str, str, str]:
    text = f"{verdict.claim}: {claims()[verdict.claim].text}".replace("|", "\\|")
    return text, str(verdict.judgement), verdict.number, verdict.reason


def _measured(experiment: Experiment, pieces: list[Done], folder: Path | None) -> str:
    """What it took, and where; commits apart, one line for each environment of some pieces."""
    known: dict[str, Row] = {}
    for profile in Profile:
        known |= Results(experiment.name, profile, folder).environments()
    seconds = sum(piece.cpu_seconds for piece in pieces)
    taken = f"{seconds / 3600:.1f} processor hours" if seconds > 600 else f"{seconds:.0f} s"
    places: dict[str, list[str]] = {}
    for piece in pieces:
        facts = known[piece.environment]
        places.setdefault(_place(facts), []).append(facts["commit"])
    lines = [
        f"- {len(commits)} of them on {place}; commits {', '.join(dict.fromkeys(commits))}."
        for place, commits in places.items()
    ]
    command = f"python -m replication {experiment.name}"
    head = f"`{command}` took {taken} for {len(pieces)} pieces, one thread each:"
    return "\n".join([head, "", *lines])


def _place(facts: Row) -> str:
    packages = ", ".join(f"{package} {v}" for package, v in facts["packages"].items())
    return (
        f"{facts['date']}: {facts['cpu']}, {facts['cores']} cores, {facts['system']}, Python "
        f"{facts['python']}, {packages}"
    )
