"""Fill the comparison in README.md from benchmarks/results.

python docs/update_readme.py            write it
python docs/update_readme.py --check    fail if it is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from benchmarks import accuracy_pages, newton_gated, newton_path, newton_relu  # noqa: E402
from benchmarks.record import markdown_table  # noqa: E402

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
START = "<!-- comparison: made by docs/update_readme.py -->\n"
END = "<!-- end of comparison -->\n"
RACES = {
    "gated network": newton_gated,
    "ReLU network": newton_relu,
    "path of 50 penalties": newton_path,
}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    old = README.read_text()
    new = fill(old, text())
    if not arguments:
        README.write_text(new)
    elif new != old:
        print("README.md does not match benchmarks/results: run python docs/update_readme.py")
        return 1
    return 0


def fill(readme: str, text: str) -> str:
    """The README with `text` between the markers."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"README.md lacks the markers {START.strip()} and {END.strip()}")
    return f"{before}{start}\n{text}\n\n{end}{after}"


def text() -> str:
    found = {name: read(name) for name in (*(module.NAME for module in RACES.values()), "accuracy")}
    commands = [f"`{c['command']}` ({c['machine']['cpu']})" for c in found.values()]
    return "\n\n".join(
        [
            "The default solver against what else solves the same convex programs: how many times "
            "as much processor time\nthe other needs, on one thread, to the same certified gap. "
            "Races that the other could not run or finish are left out.",
            solvers(found),
            *classifiers(found["accuracy"]["rows"]),
            f"Measured with {', '.join(commands)}; some learners of the last table on another "
            "machine.\nInstances, versions, failures and what is slower are in the\n"
            "[benchmarks](docs/benchmarks.md).",
        ]
    )


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def solvers(found: dict[str, Any]) -> str:
    lines = []
    for problem, module in RACES.items():
        rows = found[module.NAME]["rows"]
        for duel in module.COMPARISONS:
            if duel.target is None:
                continue
            ratios = [ratio for row in rows.values() if (ratio := duel.ratio(row)) is not None]
            spread = f"{min(ratios):.2g} to {max(ratios):.2g}"
            mean = f"**{duel.mean(rows):.1f}**"
            lines.append((problem, duel.label, duel.at, len(ratios), spread, mean))
    header = ("problem", "against", "to", "races", "times faster", "geometric mean")
    return markdown_table(header, lines)


def classifiers(rows: dict[str, Any]) -> list[str]:
    """On the sets that nothing was chosen on, once these are measured; else on the others, and it
    says so."""
    part = "confirmation"
    if not accuracy_pages.entrants(rows, part)[1]:
        part = "choice"
    models, keys, found = accuracy_pages.entrants(rows, part)
    accuracy, losses, seconds = (
        found.table(models, key, keys) for key in ("accuracy", "log_loss", "seconds")
    )
    ranks = accuracy_pages.mean_ranks(-accuracy), accuracy_pages.mean_ranks(losses)
    lines = [
        (
            f"**{models[j]}ClassifierCV**" if models[j] == accuracy_pages.OURS else models[j],
            f"{100 * accuracy[:, j].mean():.1f} %",
            f"{ranks[0][j]:.1f}",
            f"{np.median(losses[:, j]):.3f}",
            f"{ranks[1][j]:.1f}",
            f"{np.median(seconds[:, j]):.2g} s",
        )
        for j in np.argsort(ranks[1], kind="stable")
    ]
    header = (f"{len(accuracy)} sets", "accuracy", "mean rank", "median log-loss", "rank", "fit")
    splits = len({split for _, split in keys})
    about = {
        "choice": "on which its defaults are chosen: what they are worth on other sets is still "
        "to be measured",
        "confirmation": "none of which a default was chosen on",
    }[part]
    return [
        "The default classifier against others on UCI sets,\n"
        f"{about}.\nMeans over the sets, {splits} random split{'s' * (splits > 1)} into 80 and 20 "
        "percent each; smaller ranks are better.",
        markdown_table(header, lines),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
