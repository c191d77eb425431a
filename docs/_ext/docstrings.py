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


def types_of(obj: Any) -> dict[str, str]:
    """The types and defaults of the parameters of a function or class, by their names."""
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):
        return {}
    return {name: kind for name, one in parameters.items() if (kind := type_of(one))}


def type_of(parameter: inspect.Parameter) -> str:
    """What a parameter may be, as it is annotated, and its default if that is a plain value."""
    if parameter.annotation is parameter.empty:
        return ""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    value = parameter.default
    if text and (value is None or isinstance(value, (bool, int, float, str))):
        text += f", default={value!r}"
    return text


def headed(names: list[str], text: str, types: dict[str, str]) -> tuple[str, str]:
    """The head of an entry, names with a type, and what it says. The docstrings of estimators have
    types of their own, on the first line."""
    head = ", ".join(f"**{name}**" for name in names)
    first, _, rest = text.partition("\n")
    if "default=" in first:
        return f"{head} *{escape(first)}*", rest
    kinds = list(dict.fromkeys(types[name] for name in names if name in types))
    return (f"{head} *{escape('; '.join(kinds))}*" if kinds else head), text


def convert(lines: list[str], types: dict[str, str]) -> Iterator[str]:
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
            names = entry[1].split(", ")
            body = inspect.cleandoc("\n".join(body)).splitlines()
            head, text = headed(names, "\n".join([entry[2] or "", *body]).strip(), types)
            if entry[2] is None and body and CHOICE.match(body[0]):
                yield from ("", f"- {head}:", "", *choices(body), "")
            elif head.endswith("*") and not head.endswith("**"):
                yield from ("", f"- {head}", "", f"  {escape(' '.join(text.split()))}", "")
            else:
                yield from ("", f"- {head}: {escape(' '.join(text.split()))}")
                if i < len(lines) and not ENTRY.match(lines[i]):
                    yield ""
        else:
            yield escape(line)
            i += 1


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = list(convert(list(lines), types_of(obj)))


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
