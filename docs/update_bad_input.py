"""Write docs/bad-input.md from the table in tests/test_bad_input.py.

python docs/update_bad_input.py            write it
python docs/update_bad_input.py --check    fail if it is out of date
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "bad-input.md"
LONGEST = 160  # characters of a message that are shown

BEGINNING = """# Bad input

What is said about input that is wrong, or only odd. Every line is tried by a test: it gives the
right answer or a clear error, and nothing is half-written. `python docs/update_bad_input.py` writes
this page from the table in `tests/test_bad_input.py`.

On the command line 0 is the exit code of success, with what was noted on the way. The others are
those of every [command](command-line.md): 2 for bad input or options, 4 if a certificate was not
confirmed, 5 if a file could not be read or written. With `--json` the message is in a JSON object,
too. In Python errors are exceptions with the same messages.
"""


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    new = page()
    if not arguments:
        PAGE.write_text(new)
    elif not PAGE.exists() or PAGE.read_text() != new:
        print(f"{PAGE.name} is out of date: run python docs/update_bad_input.py")
        return 1
    return 0


def page() -> str:
    sys.path.insert(0, str(ROOT / "tests"))
    from test_bad_input import SECTIONS, outcome

    lines = [BEGINNING]
    for title, cases in SECTIONS.items():
        python = title == "Python"
        header = ("call", "exception", "message") if python else ("input", "exit code", "message")
        lines += [f"## {title}\n", row(*header), row("---", "---", "---")]
        for name in cases:
            found = outcome(name)
            label = f"`{name}`" if python and re.search(r"[=(]", name) else name
            lines.append(row(label, str(found.code), shown(found.said)))
        lines.append("")
    return "\n".join(lines)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def shown(said: str) -> str:
    """The first line of a message; without the names of folders, and sets in order."""
    text = re.sub(r"/tmp/\w+/", "", said.partition("\n")[0])
    text = re.sub(r"\{('.*?')\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", text)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`" if text else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
