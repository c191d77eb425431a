"""The parts that sections are made of."""

from __future__ import annotations

from collections.abc import Sequence

from cvxnn.reports.charts import meter
from cvxnn.reports.markup import Markup, element
from cvxnn.reports.numbers import count


def figure(title: str, key: Markup | None, drawing: Markup) -> Markup:
    return element("figure", element("figcaption", title), key, drawing)


def table_of(
    heads: Sequence[str], rows: Sequence[Markup], left: int = 0, css: str | None = None
) -> Markup:
    """`left` is the number of last columns that hold words, which are aligned to the left."""
    cells = [
        element(
            "th", head, scope="col", class_="left" if k == 0 or k >= len(heads) - left else None
        )
        if head
        else element("td")
        for k, head in enumerate(heads)
    ]
    return element(
        "table",
        element("thead", element("tr", *cells)),
        element("tbody", *rows),
        class_=css,
    )


def metered(words: str, value: float, largest: float, css: str, name: str | None = None) -> Markup:
    """A cell with a number and a bar, which is full for the largest number. The name is shown where
    there is no room for the head of the table."""
    bar = meter(value / largest if largest > 0 else 0.0, css)
    return element("td", words, bar, class_="nowrap", data_name=name)


def scrolling(table: Markup, label: str) -> Markup:
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")


def and_more(n: int, thing: str) -> Markup | None:
    return element("p", f"… and {count(n, 'more ' + thing)}.", class_="more") if n > 0 else None


def rows_of(n: int, label: str) -> str:
    """1 held-out row, 1,234 held-out rows."""
    rows = lower(label)
    return f"{n:,} {rows.replace('rows', 'row') if n == 1 else rows}"


def lower(label: str) -> str:
    return label[:1].lower() + label[1:]


def facts_list(facts: Sequence[tuple[str, str]]) -> Markup | None:
    if not facts:
        return None
    pairs = [
        part
        for label, value in facts
        for part in (element("dt", label), element("dd", element("bdi", value)))
    ]
    return element("dl", *pairs, class_="facts")
