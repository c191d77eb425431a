"""Tables of the results."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.record import machine, markdown_table

from fuzz.cases import KINDS, LOSSES, PENALTIES, SOLVERS
from fuzz.judge import FAILURES
from fuzz.trial import MAX_SECONDS, Line

WANTED, IN_EACH = 10_000, 300  # problems in all, and of every solver, loss, penalty and kind
GROUPS = {
    "kind": ("data", tuple(KINDS)),
    "solver": ("solver", tuple(SOLVERS)),
    "loss": ("loss", LOSSES),
    "penalty": ("penalty", PENALTIES),
    "program": ("program", ("C-GReLU", "C-ReLU")),
}
PROVEN = 0.95  # of the problems that are solved as floating-point numbers come
HEADER = (
    "problems", "failures", "to be solved", "solved", "proven", "bound gives up, median", "at most",
)  # fmt: skip


def summary(lines: list[Line]) -> dict[str, Any]:
    """All that the page says."""
    answered = [line for line in lines if "gap" in line or line["verdict"] in FAILURES]
    return {
        "problems": len(lines),
        "verdicts": dict(Counter(line["verdict"] for line in lines).most_common()),
        "judged": dict(_comparisons(answered)),
        "seconds": round(sum(sum(line.get("seconds", [0])) for line in lines), 1),
        "groups": {
            key: {name: _row([line for line in answered if line[key] == name]) for name in names}
            for key, (_, names) in GROUPS.items()
        },
        "failures": [
            {"number": line["number"], "verdict": line["verdict"], "reasons": line["reasons"]}
            for line in lines
            if line["verdict"] in FAILURES
        ][:50],
    }


def _comparisons(lines: Iterable[Line]) -> Counter[str]:
    return Counter(word for line in lines for word in line.get("judged", "").split())


def _row(lines: list[Line]) -> dict[str, Any]:
    due = [line for line in lines if _is_due(line)]
    solved = [line for line in due if line["plain"] is not None and line["plain"] <= line["tol"]]
    useful = [line for line in solved if line["positive"] or _gap(line) == 0]
    proven = [line for line in useful if _gap(line) <= line["tol"]]
    rigour = [line["rigour"] for line in lines if line.get("rigour") is not None]
    return {
        "problems": len(lines),
        "failures": sum(line["verdict"] in FAILURES for line in lines),
        "due": len(due),
        "solved": len(solved),
        "proven": len(proven),
        "rigour": statistics.median(rigour) if rigour else None,
        "worst": max(rigour, default=None),
    }


def _is_due(line: Line) -> bool:
    """Whether the tolerance should be met: moderate numbers, and a penalty below lambda_max, so
    that the answer is not zero. Without a penalty the best value may be zero, and no bound above
    it; with one, a decomposition is feasible and not optimal."""
    heuristic = line["penalty"] == "none" or line["solver"] == "decomposition"
    return line["moderate"] and line["share"] < 1 and "gap" in line and not heuristic


def _gap(line: Line) -> float:
    return math.inf if line["gap"] is None else line["gap"]


def misses(content: dict[str, Any]) -> list[str]:
    """One line for each target that was missed."""
    found = []
    if content["problems"] < WANTED:
        found.append(f"{content['problems']} problems of {WANTED}")
    found += [
        f"{content['verdicts'][verdict]} of verdict {verdict!r}"
        for verdict in FAILURES
        if verdict in content["verdicts"]
    ]
    for key, rows in content["groups"].items():
        if key != "program":
            found += [
                f"{name}: {row['problems']} problems of {IN_EACH}"
                for name, row in rows.items()
                if row["problems"] < IN_EACH
            ]
    found += [
        f"{name}: {_share(row['proven'], row['solved'])} of what is solved is proven"
        for name, row in content["groups"]["kind"].items()
        if row["proven"] < PROVEN * row["solved"]
    ]
    unjudged = content["judged"].get("no-multipliers", 0) + content["judged"].get("no-radius", 0)
    if unjudged:
        found.append(f"{unjudged} bounds without what would prove them")
    return found


def tables(content: dict[str, Any]) -> str:
    parts = []
    for key, (title, _) in GROUPS.items():
        rows = content["groups"][key].items()
        parts.append(markdown_table((title, *HEADER), [(name, *_cells(row)) for name, row in rows]))
    return "\n\n".join(parts)


def _cells(row: dict[str, Any]) -> list[str]:
    shares = [_share(row["solved"], row["due"]), _share(row["proven"], row["solved"])]
    numbers = [f"{row[name]:.1e}" if row[name] is not None else "-" for name in ("rigour", "worst")]
    return [str(row["problems"]), str(row["failures"]), str(row["due"]), *shares, *numbers]


def _share(some: int, of: int) -> str:
    return f"{some / of:.1%}" if of else "-"


def page(content: dict[str, Any]) -> str:
    facts = content["machine"]
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in content["verdicts"].items())
    kinds = "\n".join(f"- {name}: {what}" for name, what in KINDS.items())
    verdict = [f"- Target missed: {miss}" for miss in misses(content)] or ["All targets are met."]
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items())
    judged = content["judged"]
    return "\n".join(
        [
            f"<!-- Made by `{content['command']}`. Do not edit. -->",
            "# Random problems, judged exactly",
            "",
            f"{content['problems']} problems, each drawn from its number: {verdicts}. Every answer "
            "is judged in extended precision by code that shares nothing with the library: the "
            f"value attained at the weights in {judged.get('value', 0)}, what the dual point "
            f"proves in {judged.get('dual', 0)}, and the value of a conic solver in "
            f"{judged.get('conic', 0)} of them. A failure is a bound above a value that is "
            "attained or above what its dual point proves, an objective below the value of its "
            "weights, weights outside their cones, a certificate that `verify` does not confirm "
            "with another number of BLAS threads, or an exception. Refused is what the library "
            "says no to.",
            "",
            "To be solved are problems with scales from 1e-4 to 1e4, tol >= 1e-8, a penalty and "
            "lam < lambda_max, by any solver but a decomposition; solved are those of them whose "
            "gap meets the tolerance, as floating-point numbers come, within "
            f"{MAX_SECONDS:g} s; proven are those of these with a bound above 0, or a value of 0, "
            "and a proven gap that meets it too. What a bound gives up is its distance from the "
            "best bound of the same dual point in real arithmetic, relative to that.",
            "",
            tables(content),
            "",
            "The data:",
            "",
            kinds,
            "",
            *verdict,
            "",
            f"Measured on {facts['date']} with `{content['command']}` in "
            f"{content['seconds'] / 60:.0f} minutes (summed over the problems): {facts['cpu']}, "
            f"{facts['system']}, Python {facts['python']}, {packages}.",
            "",
        ]
    )


def write(content: dict[str, Any], command: str, data: Path, table: Path) -> None:
    content = {"command": command, "machine": machine(), **content}
    data.write_text(json.dumps(content, indent=1) + "\n")
    table.write_text(page(content))
