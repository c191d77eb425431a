"""The docstrings of cvxnn as reStructuredText.

They are plain text for readers of the code: formulas with bars and stars, and lists of the form

    name, name : what it is, on one line
        or several.

Such entries, with or without a heading (Parameters, Attributes), become bullet lists; what
reStructuredText would take for mark-up is escaped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

ENTRY = re.compile(r"^(\w+(?:, \w+)*) :(?: (.*))?$")
CHOICE = re.compile(r'^("[^"]+")\s{2,}(.*)$')
UNDERLINE = re.compile(r"^-{3,}$")
# what users get and never make: their list of attributes says it all
RESULTS = {"Certificate", "Decomposition", "Progress", "Solution", "Status"}


def escape(text: str) -> str:
    """Everything outside `code` as literal characters."""
    parts = re.split(r"(`[^`]+`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\*|]|_(?!\w))", r"\\\1", parts[i])
    return "".join(parts)


def choices(lines: list[str]) -> Iterator[str]:
    """An aligned table of '"choice"   what it does', as a nested list."""
    items: list[list[str]] = []
    for line in lines:
        match = CHOICE.match(line)
        if match:
            items.append([match[1], match[2]])
        else:
            items[-1].append(line.strip())
    for name, *text in items:
        yield f"  - ``{name}``: {escape(' '.join(text))}"


def convert(lines: list[str]) -> Iterator[str]:
    i = 0
    while i < len(lines):
        line = lines[i]
        entry = ENTRY.match(line)
        if i + 1 < len(lines) and UNDERLINE.match(lines[i + 1]):
            yield from ("", f".. rubric:: {line}", "")
            i += 2
        elif entry:
            i += 1
            body = []
            while i < len(lines) and lines[i].startswith(" "):
                body.append(lines[i])
                i += 1
            names = ", ".join(f"**{name}**" for name in entry[1].split(", "))
            body = inspect.cleandoc("\n".join(body)).splitlines()
            if entry[2] is None and body and CHOICE.match(body[0]):
                yield from ("", f"- {names}:", "", *choices(body), "")
            else:
                yield from ("", f"- {names}: {escape(' '.join([entry[2] or '', *body]).strip())}")
                if i < len(lines) and not ENTRY.match(lines[i]):
                    yield ""
        else:
            yield escape(line)
            i += 1


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = list(convert(list(lines)))


def signature(
    app: Any, what: str, name: str, obj: Any, options: Any, arguments: str, returns: str
) -> tuple[str | None, str | None]:
    if what == "class" and name.rpartition(".")[2] in RESULTS:
        return "", ""
    # dataclasses print a default that is made afresh in a way that nobody can parse
    return arguments and arguments.replace("<factory>", "..."), returns


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
