"""How good predictions are: confusions, rankings, residuals, calibration."""

from __future__ import annotations

import numpy as np

from cvxnn.reports.charts import Plot, Scale, legend
from cvxnn.reports.contents import Contents
from cvxnn.reports.markup import Markup, element, join, name_of, shorten
from cvxnn.reports.measures import MAX_POINTS, N_BINS, Calibration, Confusion, Residuals
from cvxnn.reports.numbers import MISSING, count, number, percent, ratio
from cvxnn.reports.sections.parts import and_more, figure, lower, scrolling

_DEPTHS = 6  # shades of the colour of a cell in a matrix


def predictions(contents: Contents) -> Markup:
    if not contents.classes:
        return _regression(contents)
    first = contents.results[0].confusion
    assert first is not None
    text = (
        "Rows are the true classes, columns the predicted ones. Colours show shares of a row of "
        "the matrix; recall is the share of a class that was predicted correctly."
    )
    if first.n_other:
        text += (
            f" The {len(first.classes) - 1} classes that are most frequent in the "
            f"{lower(contents.results[0].label)} are shown; the other {first.n_other} share a row "
            "and a column."
        )
    tables = [
        _matrix(result.label, result.confusion) for result in contents.results if result.confusion
    ]
    K = len(first.classes)  # only small matrices fit side by side, and fewer on paper
    layout = "columns" if K <= 4 else "matrices" if K <= 10 else None
    return join(element("p", text), element("div", *tables, class_=layout), _ranked(contents))


def _ranked(contents: Contents) -> Markup | None:
    """How well rows are put in order, on the last of the rows: those held out, if there are any."""
    result = contents.results[-1]
    if not result.rankings:
        return None
    rankings, two = result.rankings, len(contents.classes) == 2
    css = ["a", "b", "c"][: len(rankings)]
    text: list[object] = ["The curves go through all thresholds on the output for "]
    text += ["the class ", name_of(contents.classes[1])] if two else ["a class, against all others"]
    text.append(". Better is up and to the left in the first, up and to the right in the second.")
    if not two and len(contents.classes) > len(rankings):
        text.append(f" Shown are the {count(len(rankings), 'class', 'classes')} with most rows.")
    roc = Plot(
        Scale(0.0, 1.0),
        Scale(0.0, 1.0),
        x_label="false positive rate",
        y_label="true positive rate",
        height=270,
    )
    roc.line([0, 1], [0, 1], "ideal")
    precision = Plot(
        Scale(0.0, 1.0), Scale(0.0, 1.0), x_label="recall", y_label="precision", height=270
    )
    if two:
        precision.line([0, 1], [rankings[0].share] * 2, "ideal")
    for one, colour in zip(reversed(rankings), reversed(css), strict=True):  # the network on top
        roc.line(one.roc.x, one.roc.y, colour)
        precision.line(one.precision.x, one.precision.y, colour)
    where = lower(result.label)
    figures = []
    for title, plot, curves in (
        (f"ROC curve, {where}", roc, [one.roc for one in rankings]),
        (f"Precision and recall, {where}", precision, [one.precision for one in rankings]),
    ):
        named = [
            (f"line {colour}", f"{shorten(one.name, 24)} {ratio(curve.area)}")
            for one, curve, colour in zip(rankings, curves, css, strict=True)
        ]
        areas = ", ".join(name for _, name in named)
        figures.append(figure(title, legend(*named), plot.svg(f"{title}; areas: {areas}.")))
    return join(
        element("h3", "Ranking"),
        element("p", *text),
        element("div", *figures, class_="figures"),
    )


def _matrix(label: str, confusion: Confusion) -> Markup:
    heads = [element("th", name_of(name, 24), scope="col") for name in confusion.classes]
    longest = max(len(shorten(name, 24)) for name in confusion.classes)
    tall = len(heads) > 3 and longest > 5  # long names are set vertically, to save width
    rows = []
    for i, name in enumerate(confusion.classes):
        total = int(confusion.counts[i].sum())
        cells = []
        for j, n in enumerate(confusion.counts[i].tolist()):
            depth = int(np.ceil(_DEPTHS * n / total)) if total else 0
            kind = "hit" if i == j else "miss"
            if i == j == len(confusion.classes) - 1 and confusion.n_other:
                kind = "mixed"  # right and wrong
            cells.append(element("td", f"{n:,}", class_=f"{kind} d{depth}" if n else "none"))
        recall = percent(confusion.found[i] / total) if total else MISSING
        rows.append(
            element(
                "tr",
                element("th", name_of(name, 24), scope="row"),
                *cells,
                element("td", recall, class_="recall"),
            )
        )
    table = element(
        "table",
        element("caption", label),
        element(
            "thead",
            element(
                "tr",
                element("td"),
                *heads,
                element("th", "recall", scope="col"),
            ),
            class_="tall" if tall else None,
        ),
        element("tbody", *rows),
        class_="matrix",
    )
    parts = [scrolling(table, f"Confusion matrix: {label}")]
    if len(confusion.classes) > 2 and confusion.pairs:
        frequent = [
            join(name_of(true, 24), " taken for ", name_of(predicted, 24), f" ({n:,})")
            for true, predicted, n in confusion.pairs
        ]
        parts.append(
            element("p", "Most frequent confusions: ", join(*frequent, by=", "), ".", class_="more")
        )
    return element("div", *parts)


def _regression(contents: Contents) -> Markup:
    several = len(contents.outputs) > 1
    parts: list[Markup | None] = []
    for k, name in enumerate(contents.outputs[: len(contents.results[0].residuals)]):
        if several:
            parts.append(element("h3", name_of(name, 80)))
        figures = []
        for result in contents.results:
            figures += [
                _scatter(result.label, result.residuals[k]),
                _histogram(result.label, result.residuals[k]),
            ]
        parts.append(element("div", *figures, class_="figures"))
    hidden = len(contents.outputs) - len(contents.results[0].residuals)
    drawn = [result for result in contents.results if result.n > MAX_POINTS]
    text = "Points on the dashed line are predicted without error; a residual is true − predicted."
    if drawn:
        text += f" Of more rows, {MAX_POINTS:,} random ones are drawn, the same every time."
    return join(element("p", text), *parts, and_more(hidden, "target"))


def _scatter(label: str, residuals: Residuals) -> Markup:
    both = Scale.of(np.concatenate([residuals.true, residuals.predicted]))
    plot = Plot(both, both, x_label="true", y_label="predicted", height=280)
    plot.line([both.low, both.high], [both.low, both.high], "ideal")
    plot.dots(residuals.true, residuals.predicted, "a fine" if len(residuals.true) > 100 else "a")
    words = f"Predicted against true values of {count(len(residuals.true), 'row')}."
    return figure(f"{label}: predicted and true", None, plot.svg(words))


def _histogram(label: str, residuals: Residuals) -> Markup:
    left, right = residuals.edges[:-1], residuals.edges[1:]
    plot = Plot(
        Scale(float(left[0]), float(right[-1])),
        Scale.counts(residuals.counts),
        x_label="residual",
        y_label="rows",
        height=280,
    )
    plot.bars(left, right, residuals.counts, "a")
    if left[0] < 0 < right[-1]:
        plot.upright(0.0, "ideal")
    words = (
        f"Histogram of {count(residuals.n, 'residual')} between {number(left[0])} and "
        f"{number(right[-1])}."
    )
    return figure(f"{label}: residuals", None, plot.svg(words))


def probabilities(contents: Contents) -> Markup | None:
    if not contents.classes:
        return None
    if contents.results[0].calibration is None:
        return element("p", "The model gives none: probabilities need loss='log'.")
    of: object = "the predicted class"
    if len(contents.classes) == 2:
        of = join("the class ", name_of(contents.classes[1]))
    text = element(
        "p",
        f"Rows are sorted into {N_BINS} bins by the probability of ",
        of,
        ". If the probabilities are right, the share of rows of that class in a bin equals the "
        "mean probability there, and the points lie on the dashed line. Vertical lines are 95 % "
        "intervals of the share. The expected calibration error is the mean distance from the "
        "dashed line, over the rows.",
    )
    figures = [
        _reliability(result.label, result.calibration)
        for result in contents.results
        if result.calibration
    ]
    return join(text, element("div", *figures, class_="figures"))


def _reliability(label: str, calibration: Calibration) -> Markup:
    bins, unit = calibration.bins, Scale(0.0, 1.0)
    mean, share = [one.mean for one in bins], [one.share for one in bins]
    plot = Plot(unit, unit, x_label="probability", y_label="observed share", height=270, left=58)
    plot.line([0, 1], [0, 1], "ideal")
    plot.whiskers(mean, [one.interval[0] for one in bins], [one.interval[1] for one in bins], "a")
    plot.dots(mean, share, "a")
    counts = [one.n for one in bins]
    below = Plot(unit, Scale.counts(counts), y_label="rows", height=110, left=58)
    below.bars([one.low for one in bins], [one.high for one in bins], counts, "c")
    pairs = [f"{number(one.mean, 2)}: {number(one.share, 2)} of {one.n:,}" for one in bins]
    return figure(
        f"{label}: expected calibration error {number(calibration.error, 2)}",
        None,
        join(
            plot.svg(f"Mean probability and observed share, by bin: {'; '.join(pairs)}."),
            below.svg(f"Rows in each bin: {', '.join(str(n) for n in counts)}."),
        ),
    )
