"""Formulas as MathML, which browsers draw themselves: pages need no script and no network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

# What the converter does not know, in other words that it knows.
_SYNONYMS = {"{aligned}": "{align*}", r"\mathbb{1}": "𝟙"}
_WITH_LIMITS = {"min", "max", "argmin", "∑"}  # what an index stands under, in formulas of their own
_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", _NAMESPACE)


def visit_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def mathml(latex: str, display: str) -> str:
    """The formula as MathML, with its source for those who cannot see it."""
    known = latex
    for ours, theirs in _SYNONYMS.items():
        known = known.replace(ours, theirs)
    formula = ElementTree.fromstring(convert(known, display=display))
    unknown = re.search(r"\\\w*", "".join(formula.itertext()))
    if unknown:  # the converter leaves commands as they are, without a word
        raise ValueError(f"there is no MathML for {unknown[0]} in the formula {latex}")
    for part in formula.iter(f"{{{_NAMESPACE}}}msub"):
        if display == "block" and part[0].text in _WITH_LIMITS:
            part.tag = f"{{{_NAMESPACE}}}munder"
    formula.set("alttext", latex)
    return ElementTree.tostring(formula, encoding="unicode")


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
