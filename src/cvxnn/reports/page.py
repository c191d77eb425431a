"""The page: HTML around what `contents` has computed. It loads nothing and runs nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from cvxnn.reports.contents import Contents
from cvxnn.reports.markup import Markup, element, join, name_of, shorten
from cvxnn.reports.numbers import count
from cvxnn.reports.sections.inside import columns, neurons
from cvxnn.reports.sections.parts import rows_of
from cvxnn.reports.sections.predictions import predictions, probabilities
from cvxnn.reports.sections.reproduce import reproduce
from cvxnn.reports.sections.summary import summary, tiles
from cvxnn.reports.sections.training import penalty, proven, training

MAX_TITLE = 200  # characters


def page_of(contents: Contents) -> str:
    """The whole page."""
    sections = [
        ("summary", "Summary", summary(contents)),
        ("proven", "What is proven", proven(contents)),
        ("training", "Training", training(contents)),
        ("penalty", "Penalty", penalty(contents)),
        ("predictions", "Predictions", predictions(contents)),
        ("probabilities", "Probabilities", probabilities(contents)),
        ("columns", "Columns", columns(contents)),
        ("neurons", "Neurons", neurons(contents)),
        ("reproduce", "Reproduce", reproduce(contents)),
    ]
    present = [(key, heading, body) for key, heading, body in sections if body]
    body = element(
        "body",
        _header(contents, [(key, heading) for key, heading, _ in present]),
        element("main", *(_section(*part) for part in present)),
        _footer(contents),
    )
    return f"<!doctype html>\n{element('html', _head(contents), body, lang='en')}\n"


def _head(contents: Contents) -> Markup:
    style = (files("cvxnn.reports") / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"cvxnn {contents.versions[0][1]}"),
        element("title", shorten(contents.title, MAX_TITLE)),
        element("style", Markup(style)),
    )


def _header(contents: Contents, sections: Sequence[tuple[str, str]]) -> Markup:
    kind = "gated ReLU network" if contents.gated else "ReLU network"
    if contents.classes:
        task = f"classification into {count(len(contents.classes), 'class', 'classes')}"
    elif len(contents.outputs) == 1:
        task = "regression"
    else:
        task = f"regression of {count(len(contents.outputs), 'target')}"
    rows = " and ".join(rows_of(result.n, result.label) for result in contents.results)
    links = [element("li", element("a", name, href=f"#{key}")) for key, name in sections]
    return element(
        "header",
        element("h1", name_of(contents.title, MAX_TITLE)),
        element(
            "p",
            f"A two-layer {kind} for {task}: {_columns(contents)}, {rows}.",
            class_="lead",
        ),
        tiles(contents),
        element("nav", element("ul", *links), aria_label="Sections"),
    )


def _columns(contents: Contents) -> str:
    """What the network takes: columns, and features where these are more."""
    n_columns = contents.columns.n_columns
    columns = count(n_columns, "column")
    if n_columns == contents.n_columns:
        return columns
    return f"{columns} with {contents.n_columns:,} features"


def _section(key: str, heading: str, body: Markup) -> Markup:
    return join("\n", element("section", element("h2", heading), body, id=key))


def _footer(contents: Contents) -> Markup:
    return element(
        "footer",
        element(
            "p",
            f"Made by cvxnn {contents.versions[0][1]}. This page loads nothing and runs nothing.",
        ),
    )
