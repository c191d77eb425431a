"""Charts as inline SVG. Colours and strokes come from classes in the page's style sheet, so that
charts follow its light, dark and printed form.

Lengths are in units of the view box, which is 350 wide: about the width of a phone. Larger screens
have room for two charts side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.reports.markup import Markup, element, join
from cvxnn.reports.numbers import bounds, number, power_of_ten

WIDTH, HEIGHT = 350, 220
TOP, RIGHT, BOTTOM = 26, 14, 40
TINY = 1e-300  # arithmetic with numbers below this would underflow
CHARACTER = 7.4  # width of a character, a generous guess because fonts differ


@dataclass(frozen=True)
class Scale:
    """An interval of numbers, linear or logarithmic; `whole` puts ticks at whole numbers only."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @classmethod
    def of(cls, values: ArrayLike, *, log: bool = False, include: Sequence[float] = ()) -> Scale:
        """A scale that finite values fit into, with a little room at both ends."""
        inside = np.append(np.asarray(values, dtype=float).reshape(-1), include)
        inside = inside[np.isfinite(inside)]
        if log:
            inside = np.log10(inside[inside > TINY])
        if len(inside) == 0:
            return cls(1.0, 10.0, True) if log else cls(0.0, 1.0)
        low, high = float(inside.min()), float(inside.max())
        if high - low <= max(1e-12 * max(abs(low), abs(high)), TINY):
            room = 0.5 if log or abs(low) <= TINY else 0.5 * abs(low)
            low, high = low - room, high + room
        else:
            room = 0.04 * (high - low)
            kept = () if log else include  # no room beyond an end that was asked for
            low, high = low - room * (low not in kept), high + room * (high not in kept)
        return cls(10.0**low, 10.0**high, True) if log else cls(low, high)

    @classmethod
    def counts(cls, values: ArrayLike) -> Scale:
        """From zero to a little above the largest."""
        return cls(0.0, 1.06 * max(1.0, float(np.max(np.asarray(values)))), whole=True)

    def place(self, values: ArrayLike) -> np.ndarray:
        """Where values lie on the scale, from 0 at its low end to 1 at its high end."""
        given = np.asarray(values, dtype=float)
        if not self.log:
            return (given - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(given)
        return (logs - math.log(self.low)) / (math.log(self.high) - math.log(self.low))

    def ticks(self, at_most: int) -> list[tuple[float, str]]:
        """Round numbers and their labels."""
        if self.log:
            return _log_ticks(self.low, self.high, at_most)
        return _linear_ticks(self.low, self.high, at_most, 1.0 if self.whole else 0.0)


def _linear_ticks(
    low: float, high: float, at_most: int, least: float = 0.0
) -> list[tuple[float, str]]:
    rough = max((high - low) / max(at_most, 2), least)
    power = math.floor(math.log10(rough))
    step = next(m * 10.0**power for m in (1, 2, 5, 10) if m * 10.0**power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [k * step for k in range(first, last + 1)]
    size = max(abs(low), abs(high))
    digits = max(1, math.floor(math.log10(size)) - math.floor(math.log10(step * 1.001)) + 1)
    return [(value, number(value, digits)) for value in values]


def _log_ticks(low: float, high: float, at_most: int) -> list[tuple[float, str]]:
    first, last = (
        math.ceil(math.log10(low) - 1e-9),
        math.floor(math.log10(high) + 1e-9),
    )
    readable = first >= -4 and last <= 4
    for multiples in ((1, 2, 5), (1, 3)):
        values = [m * 10.0**k for k in range(first - 1, last + 1) for m in multiples]
        values = [value for value in values if low <= value <= high]
        if 2 <= len(values) <= at_most and readable:
            return [(value, number(value, 2)) for value in values]
    powers = list(range(first, last + 1))
    if len(powers) < 2:
        return _linear_ticks(low, high, at_most)
    powers = powers[:: math.ceil(len(powers) / at_most)]
    return [(10.0**k, number(10.0**k) if readable else power_of_ten(k)) for k in powers]


class Plot:
    """Two axes, and marks drawn in the order in which they are added, with their CSS classes."""

    def __init__(
        self,
        x: Scale,
        y: Scale,
        *,
        x_label: str = "",
        y_label: str = "",
        height: float = HEIGHT,
        left: float | None = None,
    ) -> None:
        self.x, self.y, self.x_label, self.y_label = x, y, x_label, y_label
        self.height = height
        self.bottom = height - (BOTTOM if x_label else 22)
        self.y_ticks = y.ticks(max(3, int((self.bottom - TOP) / 28)))
        widest = max((len(label) for _, label in self.y_ticks), default=0)
        self.left = left or max(24.0, CHARACTER * widest + 10)
        self.marks: list[Markup] = []

    def at(self, x: ArrayLike, y: ArrayLike) -> np.ndarray:
        """(n, 2) points of the drawing."""
        across = self.left + self.x.place(x) * (WIDTH - RIGHT - self.left)
        down = self.bottom - self.y.place(y) * (self.bottom - TOP)
        return np.column_stack([np.atleast_1d(across), np.atleast_1d(down)])

    def line(self, x: ArrayLike, y: ArrayLike, css: str) -> None:
        self._path(f"line {css}", _run(self.at(x, y)))

    def dots(self, x: ArrayLike, y: ArrayLike, css: str) -> None:
        """Lines of no length with round ends: a thousand of them are one short element."""
        points = self.at(x, y)
        points = points[np.isfinite(points).all(axis=1)]
        self._path(f"dots {css}", "".join(f"M{_pair(point)}h0" for point in points))

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, css: str) -> None:
        there, back = self.at(x, high), self.at(x, low)[::-1]
        kept = np.isfinite(there).all(axis=1) & np.isfinite(back[::-1]).all(axis=1)
        if kept.sum() > 1:
            self._path(f"band {css}", f"{_run(there[kept])}L{_run(back[kept[::-1]])[1:]}z")

    def whiskers(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, css: str) -> None:
        ends = zip(self.at(x, low), self.at(x, high), strict=True)
        lines = [f"M{_pair(a)}L{_pair(b)}" for a, b in ends if np.isfinite([a, b]).all()]
        self._path(f"whisker {css}", "".join(lines))

    def bars(self, left: ArrayLike, right: ArrayLike, heights: ArrayLike, css: str) -> None:
        tops = np.asarray(heights)
        lows, highs = self.at(left, np.full(len(tops), self.y.low)), self.at(right, tops)
        shapes = []
        for (x0, y0), (x1, y1) in zip(lows, highs, strict=True):
            if y1 < y0:
                shapes.append(_rectangle(x0 + 0.5, y0, x1 - 0.5, y1))
        self._path(f"bar {css}", "".join(shapes))

    def upright(self, x: float, css: str) -> None:
        """A vertical line over the whole height."""
        across = _digits(self.at(x, self.y.low)[0, 0])
        self._path(f"line {css}", f"M{across} {TOP}V{_digits(self.bottom)}")

    def _path(self, css: str, d: str) -> None:
        if d:
            self.marks.append(element("path", class_=css, d=d))

    def svg(self, label: str) -> Markup:
        """The drawing. `label` says in words what it shows, for those who cannot see it."""
        return drawing(WIDTH, self.height, label, *self._axes(), *self.marks)

    def _axes(self) -> Iterable[Markup]:
        rules = []
        for value, label in self.y_ticks:
            y = self.at(self.x.low, value)[0, 1]
            rules.append(f"M{_digits(self.left)} {_digits(y)}H{WIDTH - RIGHT}")
            yield text(self.left - 6, y + 4, label, "end")
        for value, label in self._x_ticks():
            x = self.at(value, self.y.low)[0, 0]
            rules.append(f"M{_digits(x)} {_digits(self.bottom)}v4")
            yield text(x, self.bottom + 17, label, "middle")
        yield element("path", class_="rule", d="".join(rules))
        yield element(
            "path", class_="axis", d=f"M{_digits(self.left)} {_digits(self.bottom)}H{WIDTH - RIGHT}"
        )
        if self.y_label:
            yield text(2, 14, self.y_label, "start", "name")
        if self.x_label:
            yield text(WIDTH - RIGHT, self.height - 6, self.x_label, "end", "name")

    def _x_ticks(self) -> list[tuple[float, str]]:
        """As many ticks as fit side by side inside the drawing."""
        for at_most in range(8 if self.x.log else 6, 1, -1):
            found = []
            for value, label in self.x.ticks(at_most):
                half = CHARACTER * len(label) / 2
                middle = self.at(value, self.y.low)[0, 0]
                if middle + half <= WIDTH and middle - half >= 0:
                    found.append((middle - half, middle + half, value, label))
            if all(before[1] + 6 <= after[0] for before, after in pairwise(found)):
                break
        return [(value, label) for _, _, value, label in found]


def interval(lower_bound: float, objective: float, constant: float, constant_name: str) -> Markup:
    """The optimal value between its bounds: both on a line from zero to the constant model, and
    below it the space between them, magnified."""
    line, glass, height = 54, 92, 156
    left, right = 22, WIDTH - 22
    inner, outer = 40, WIDTH - 40
    end = max(objective, constant) or 1.0
    a, b, c = (left + (right - left) * value / end for value in (lower_bound, objective, constant))
    low, high = bounds(lower_bound, objective)
    start, stop = min(a, b - 1), max(b, a + 1)  # wide enough to be seen
    zoom = f"M{_digits(start)} {line}L{inner} {glass}H{outer}L{_digits(stop)} {line}z"
    parts = [
        element("path", class_="zoom", d=zoom),
        element("path", class_="axis", d=f"M{left} {line}H{right}M{left} {line - 4}v8"),
        text(left - 6, line + 4, "0", "end"),
        element("path", class_="constant", d=f"M{_digits(c)} {line - 30}V{line + 8}"),
        text(c, line - 36, f"{constant_name} {number(constant)}", _anchor(c)),
        element("path", class_="bar between", d=_rectangle(start, line - 4, stop, line + 4)),
        text((a + b) / 2, line - 12, "this network", _anchor((a + b) / 2), "strong"),
        element("path", class_="bar between", d=_rectangle(inner, glass, outer, glass + 22)),
        text(WIDTH / 2, glass + 15, "the optimal value is in here", "middle", "on-bar"),
        element("path", class_="line bound", d=f"M{inner} {glass - 6}v34"),
        element("path", class_="line objective", d=f"M{outer} {glass - 6}v34"),
        text(inner - 20, glass + 42, low, "start", "strong"),
        text(outer + 20, glass + 42, high, "end", "strong"),
        text(inner - 20, glass + 57, "lower bound", "start"),
        text(outer + 20, glass + 57, "objective", "end"),
    ]
    label = (
        f"The optimal value lies between the lower bound {low} and the objective {high} of this "
        f"network; the {constant_name} has {number(constant)}."
    )
    return drawing(WIDTH, height, label, *parts)


def two_intervals(
    lower_bound: float, objective: float, over_all: float, objective_over_all: float
) -> Markup:
    """The optimal value over the given patterns, and that over all patterns, between their bounds,
    on one scale."""
    left, right, height = 22.0, WIDTH - 22.0, 146
    low, high = min(lower_bound, over_all), max(objective, objective_over_all)
    width = max(high - low, TINY)
    rows = [
        ("over the given patterns", lower_bound, objective, 30),
        ("over all patterns", over_all, objective_over_all, 88),
    ]
    parts, words = [], []
    for name, below, above, top in rows:
        ends = [left + (right - left) * (value - low) / width for value in (below, above)]
        start, stop = min(ends[0], ends[1] - 2), max(ends[1], ends[0] + 2)  # wide enough to be seen
        start, stop = max(start, left), min(max(stop, left + 2), right)
        texts = bounds(below, above)
        parts += [
            text(WIDTH / 2, top - 8, f"optimal value {name}", "middle"),
            element("path", class_="bar between", d=_rectangle(start, top, stop, top + 16)),
            element("path", class_="line bound", d=f"M{_digits(start)} {top - 4}v24"),
            element("path", class_="line objective", d=f"M{_digits(stop)} {top - 4}v24"),
            text(left - 6, top + 32, texts[0], "start", "strong"),
            text(right + 6, top + 32, texts[1], "end", "strong"),
        ]
        words.append(f"the optimal value {name} lies between {texts[0]} and {texts[1]}")
    parts += [
        text(left - 6, height - 6, "lower bounds", "start"),
        text(right + 6, height - 6, "objective", "end"),
    ]
    sentence = "; ".join(words)
    return drawing(WIDTH, height, f"{sentence[0].upper()}{sentence[1:]}.", *parts)


def meter(share: float, css: str) -> Markup:
    """A bar for a cell of a table; it shows the number in the cell, so screen readers skip it."""
    width = round(100 * min(max(share, 0.0), 1.0), 1)
    bar = element("rect", class_=f"bar {css}", width=width, height=10)
    return element(
        "svg",
        bar,
        class_="meter",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def drawing(width: float, height: float, label: str, *parts: Markup) -> Markup:
    return element(
        "svg", *parts, class_="chart", viewBox=f"0 0 {width} {height}", role="img", aria_label=label
    )


def text(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> Markup:
    return element(
        "text",
        words,
        x=_digits(x),
        y=_digits(y),
        text_anchor=None if anchor == "start" else anchor,
        class_=css or None,
    )


def legend(*entries: tuple[str, str]) -> Markup:
    """A key to lines and bars: for each (class, name), a sample and the name."""
    keys = []
    for css, name in entries:
        kind, _, _ = css.partition(" ")
        d = {"line": "M1 6H19", "dots": "M10 6h0"}.get(kind, "M1 1H19V11H1z")
        sample = element(
            "svg",
            element("path", class_=css, d=d),
            class_="key",
            viewBox="0 0 20 12",
            aria_hidden="true",
        )
        keys.append(element("span", sample, join(" ", name)))
    return element("p", *keys, class_="legend")


def _anchor(x: float) -> str:
    """The anchor that keeps text at x inside the drawing."""
    return "start" if x < 70 else "end" if x > WIDTH - 110 else "middle"


def _rectangle(x0: float, y0: float, x1: float, y1: float) -> str:
    return f"M{_pair((x0, y0))}H{_digits(x1)}V{_digits(y1)}H{_digits(x0)}z"


def _run(points: np.ndarray) -> str:
    """A path through the finite points, interrupted where a point is not finite."""
    d, drawing_on = [], False
    for point in points:
        finite = bool(np.isfinite(point).all())
        if finite:
            d.append(("L" if drawing_on else "M") + _pair(point))
        drawing_on = finite
    return "".join(d)


def _pair(point: Iterable[float]) -> str:
    return " ".join(_digits(value) for value in point)


def _digits(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
