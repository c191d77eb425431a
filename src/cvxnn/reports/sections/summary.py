"""The numbers to know: tiles, measures beside a baseline, notes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvxnn.reports.contents import Contents, Result
from cvxnn.reports.markup import Markup, clean, element, join, name_of, shorten
from cvxnn.reports.measures import Measure
from cvxnn.reports.numbers import count, gap, number, percent, ratio
from cvxnn.reports.sections.parts import and_more, lower, scrolling

MAX_OUTPUTS = 12  # targets of a regression shown in the table
MAX_NOTES = 20_000  # characters
_FORMATS: dict[str, Callable[[float], str]] = {"share": percent, "ratio": ratio, "number": number}


def tiles(contents: Contents) -> Markup:
    certificate = contents.certificate
    tiles = [
        *(
            (name, _value(measure), f"{where}; constant model {_constant(measure)}")
            for name, measure, where in _headline(contents.results[-1])
        ),
        (
            "relative gap",
            gap(certificate.relative_gap),
            f"{'converged' if contents.converged else 'not converged'}; "
            f"tolerance {number(contents.tol, 2)}",
        ),
        (
            "neurons",
            f"{contents.n_neurons:,}",
            f"from {count(contents.n_patterns, 'pattern')}; alpha = {number(contents.alpha, 2)}",
        ),
    ]
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", value, class_="value"),
                element("dd", detail, class_="detail"),
            )
            for name, value, detail in tiles
        ),
        class_="tiles",
    )


def _headline(result: Result) -> list[tuple[str, Measure, str]]:
    """The two most telling measures, each with a name and the rows that it is measured on."""
    where = lower(result.label)
    named = {measure.name: measure for measure in result.measures}
    if "mean R²" in named:
        parts = [measure for measure in result.measures if measure.name == "R²"]
        worst = min(parts, key=lambda measure: np.nan_to_num(measure.value))
        return [
            ("mean R²", named["mean R²"], where),
            ("lowest R²", worst, f"{shorten(worst.output, 24)}, {where}"),
        ]
    second = "log-loss" if "log-loss" in named else "balanced accuracy"
    names = ("R²", "RMSE") if "R²" in named else ("accuracy", second)
    return [(name, named[name], where) for name in names]


def summary(contents: Contents) -> Markup:
    several = len(contents.outputs) > 1
    hidden = max(len(contents.outputs) - MAX_OUTPUTS, 0)
    tables = [
        scrolling(_measured(contents, result, hidden), f"Measures: {result.label}")
        for result in contents.results
    ]
    remarks = [f"The constant model predicts {contents.baseline}.", *_about_rivals(contents)]
    if several:
        remarks.append("The mean R² gives all targets the same weight.")
    if contents.weighted:
        remarks.append("Measures use the sample weights; pictures count every row once.")
    return join(
        element("div", *tables, class_="columns measures"),
        and_more(hidden, "target"),
        element("p", " ".join(remarks), class_="more"),
        _notes(contents.notes),
    )


def _measured(contents: Contents, result: Result, hidden: int) -> Markup:
    """The measures of the network on some rows, beside those of simpler models."""
    rivals = [] if contents.rivals is None else [one.name for one in contents.rivals.models]
    heads = ["", "network", *rivals, "constant"]
    rows = []
    for measure in result.measures[: len(result.measures) - 3 * hidden]:  # three for each target
        label: str = measure.name
        if measure.output is not None:
            label = join(name_of(measure.output), f": {measure.name}")
        others = [_FORMATS[measure.unit](value) for value in measure.rivals]
        rows.append(
            element(
                "tr",
                element("th", label, scope="row", class_="name"),
                element("td", _value(measure), class_="own"),
                *(element("td", text) for text in (*others, _constant(measure))),
            )
        )
    return element(
        "table",
        element("caption", f"{result.label} ({result.n:,})"),
        element("thead", element("tr", *(element("th", name, scope="col") for name in heads))),
        element("tbody", *rows),
    )


def _about_rivals(contents: Contents) -> list[str]:
    rivals = contents.rivals
    if rivals is None or not rivals.models:
        return []
    kind = "A logistic regression" if contents.classes else "A linear regression"
    trees = " and boosted trees" if len(rivals.models) > 1 else ""
    rows = "the same rows"
    if rivals.n_rows < rivals.n_given:
        rows = f"{rivals.n_rows:,} of the {rivals.n_given:,} training rows"
    text = f"{kind}{trees} of scikit-learn, with default settings, are trained on {rows}."
    if not trees:
        text = text.replace(" are trained", " is trained")
    if len(contents.results) == 1:
        text += " Scores on rows that models were trained on favour those that fit them closely."
    return [text]


def _notes(notes: str | None) -> Markup | None:
    if notes is None or not notes.strip():
        return None
    text = clean(notes).strip()
    cut = len(text) - MAX_NOTES
    rest = f" … ({cut:,} more characters)" if cut > 0 else ""
    return join(
        element("h3", "Notes"),
        element("p", text[:MAX_NOTES] + rest, class_="notes", dir="auto"),
    )


def _value(measure: Measure) -> str:
    return _FORMATS[measure.unit](measure.value)


def _constant(measure: Measure) -> str:
    return _FORMATS[measure.unit](measure.baseline)
