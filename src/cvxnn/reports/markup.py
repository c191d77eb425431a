"""HTML and SVG as nested calls. Everything that is not `Markup` is text, and text is always
escaped, so that the code of a page cannot forget to."""

from __future__ import annotations

import re
from html import escape

# Control characters, halves of surrogate pairs and non-characters: not allowed in HTML, and the
# halves cannot even be encoded.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_VOID = frozenset({"meta"})


class Markup(str):
    """Text that is already markup, and is not escaped."""

    __slots__ = ()


def clean(text: object) -> str:
    """Text in which U+FFFD replaces characters that are not allowed in HTML."""
    return _FORBIDDEN.sub("\ufffd", str(text).replace("\r\n", "\n").replace("\r", "\n"))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """<tag attribute="...">children</tag>. Children and attributes that are None are left out;
    `class_` becomes class, and `aria_label` becomes aria-label."""
    parts = [tag]
    for key, value in attributes.items():
        if value is not None:
            key = key.removesuffix("_").replace("_", "-")
            parts.append(f'{key}="{escape(clean(value))}"')
    opening = f"<{' '.join(parts)}>"
    if tag in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(*children)}</{tag}>")


def join(*children: object, by: str = "") -> Markup:
    """Children one after the other."""
    return Markup(
        by.join(
            child if isinstance(child, Markup) else escape(clean(child))
            for child in children
            if child is not None
        )
    )


def shorten(text: object, length: int = 40) -> str:
    """Text on one line of at most `length` characters. It is cut in the middle, because long names
    often differ at their ends."""
    line = " ".join(clean(text).split())
    if len(line) <= length:
        return line
    tail = length // 3
    return f"{line[: length - tail - 1]}…{line[-tail:]}"


def name_of(text: object, length: int = 40) -> Markup:
    """A name that users chose. The element bdi keeps its writing direction from affecting the text
    around it; a tooltip shows it in full."""
    short = shorten(text, length)
    full = None if short == clean(text) else shorten(text, 500)
    return element("bdi", short, title=full)
