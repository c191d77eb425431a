"""Fill the comparison in README.md from benchmarks/results/peer.json.

python docs/update_readme.py            write it
python docs/update_readme.py --check    fail if it is out of date
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "peer.json"
START = "<!-- comparison: made by docs/update_readme.py -->\n"
END = "<!-- end of comparison -->\n"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    old = README.read_text()
    new = fill(old, comparison(json.loads(RESULTS.read_text())))
    if not arguments:
        README.write_text(new)
    elif new != old:
        print(f"README.md does not match {RESULTS.name}: run python docs/update_readme.py")
        return 1
    return 0


def fill(readme: str, text: str) -> str:
    """The README with `text` between the markers."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"README.md lacks the markers {START.strip()} and {END.strip()}")
    return f"{before}{start}\n{text}\n{end}{after}"


def comparison(content: dict[str, Any]) -> str:
    rows, facts = list(content["rows"].values()), content["machine"]
    peer = ", ".join(f"{name} {v}" for name, v in rows[0]["pyscnn"]["versions"].items())
    lower = sum(row["to_both"]["objective"] <= row["pyscnn"]["objective"] for row in rows)
    gaps = [row["to_both"]["relative_gap"] for row in rows]
    repeats = len(rows[0]["pyscnn"]["all_seconds"])
    return "\n".join(
        [
            "R-FISTA here and in pyscnn, the package of the paper's authors: the same data, gates",
            "and penalty, both stopped by the paper's rule, and cvxnn not before it has reached",
            "pyscnn's objective. Seconds from data to solution, medians of "
            f"{repeats} runs in turn; cvxnn's",
            f"objective is at or below pyscnn's in {lower} of {len(rows)} cases.",
            "",
            table(rows),
            "",
            f"Measured with `{content['command']}` on {facts['date']}: {facts['cpu']}, "
            f"{facts['blas_threads']} BLAS thread; {peer}.",
            "`make bench` sets up both packages and runs all [benchmarks](docs/benchmarks.md).",
            f"The published rule is a loose one: where it stops, cvxnn's certified relative gap is "
            f"between {min(gaps):.1g} and {max(gaps):.1g}.",
            "",
        ]
    )


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each instance and lam, with three columns for each precision."""
    dtypes = sorted({row["dtype"] for row in rows})
    header, ruler = ["instance", "lam"], ["---", "---:"]
    for dtype in dtypes:
        header += [f"{dtype}: pyscnn", "cvxnn", "ratio"]
        ruler += ["---:"] * 3
    cells: dict[tuple[str, float], dict[str, list[str]]] = {}
    for row in rows:
        seconds = [f"{row[name]['seconds']:.2f} s" for name in ("pyscnn", "to_both")]
        here = cells.setdefault((row["size"], row["lam"]), {})
        here[row["dtype"]] = [*seconds, f"{row['ratio']:.1f}"]
    lines = [header, ruler]
    for (size, lam), by_dtype in cells.items():
        line = [size, f"{lam:g}"]
        for dtype in dtypes:
            line += by_dtype.get(dtype, [""] * 3)
        lines.append(line)
    mean = ["**geometric mean**", ""]
    for dtype in dtypes:
        ratios = [row["ratio"] for row in rows if row["dtype"] == dtype]
        mean += ["", "", f"**{math.exp(sum(map(math.log, ratios)) / len(ratios)):.1f}**"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, mean])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
