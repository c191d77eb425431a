"""The page of all claims: each with what is printed, the verdict, and the number that decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.record import markdown_table

from cvxnn.files import write_atomically
from replication.experiment import Done, Experiment, Judgement, Verdict
from replication.paper import claims

UNDECIDED = "no experiment has judged it yet"


def write_claims(experiments: Iterable[tuple[Experiment, list[Done]]], folder: Path) -> Path:
    """The page of the verdicts of all experiments, each with its finished pieces."""
    found: dict[str, tuple[Verdict, str]] = {}
    for experiment, pieces in experiments:
        if experiment.verdicts is not None and pieces:
            for verdict in experiment.verdicts(pieces):
                found[verdict.claim] = verdict, experiment.name
    file = folder / "claims.md"
    write_atomically(file, _page(found).encode())
    return file


def _page(found: dict[str, tuple[Verdict, str]]) -> str:
    lines = []
    for name, claim in claims().items():
        head = f"{name}, {claim.where}"
        if name in found:
            verdict, page = found[name]
            judged = f"[{verdict.judgement}]({page}.md)"
            lines.append((head, claim.text, claim.printed, judged, verdict.number, verdict.reason))
        else:
            lines.append((head, claim.text, claim.printed, "-", "", UNDECIDED))
    header = ("claim", "what it says", "printed", "verdict", "here", "why")
    table = markdown_table(header, ([_cell(text) for text in line] for line in lines))
    count = Counter(verdict.judgement for verdict, _ in found.values())
    numbers = ", ".join(f"{count[judgement]} {_PLURAL[judgement]}" for judgement in Judgement)
    parts = [
        "<!-- Made by `python -m replication --pages`. Do not edit. -->",
        "# The paper's claims, judged",
        f"{len(found)} of {len(claims())} claims are judged by the experiments: {numbers}. "
        "Verdicts link to the page whose runs decide them. A claim about times is judged by ratios "
        "of processor seconds on one core; the paper's own times are of graphics cards.",
        table.replace("---:", "---"),
    ]
    return "\n\n".join(parts) + "\n"


_PLURAL = {
    Judgement.HOLDS: "hold",
    Judgement.FAILS: "do not hold",
    Judgement.OPEN: "cannot be told",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
