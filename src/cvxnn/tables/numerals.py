"""Numbers as people write them: 73.3%, $772.93, 1,306,178, (12.50), 1.306,5 kg.

All cells of a column are written in one style. It is found in the rows that a model is trained on
and kept with the model, because a cell alone may be read in two ways: 1,306 may be 1306 or 1.306.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# Words that stand for a missing value among numbers or dates. Elsewhere they may be categories.
_ABSENT = """- -- --- – — . .. ... … n.v. n.v nv n.a. n.a n/v k.a. k.a tbd tba unknown unk
    unavailable undefined void (null) #null! #div/0! #value! #ref! #name? #num!"""
_ABSENT_PHRASES = ("n. v.", "n. a.", "k. a.", "not available", "not applicable", "no data")
ABSENT = frozenset((*_ABSENT.split(), *_ABSENT_PHRASES))
MOSTLY = 0.9  # of the cells of a column have to be numbers for the others to count as missing
_ENOUGH = 1000  # cells that show whether a column is of numbers at all

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_SYMBOL = r"[$€£¥₹₽₩₺₪฿₫₴]"
_CODE = r"(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|MXN)"
_DRESSED = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[-+−])?\s*(?P<before>(?:[A-Z]{{1,2}})?{_SYMBOL}|{_CODE})?\s*"
    r"(?P<inner>[-+−])?(?P<body>\d[\d.,'’ ]*|[.,]\d+)(?P<power>[eE][+-]?\d+)?\s*"
    rf"(?P<after>[%‰]|{_SYMBOL}|°?[^\W\d_]{{1,5}}[²³]?)?\s*(?P<close>\))?"
)
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'"})
_DRAWN = re.compile(rf"[%‰]|(?:[A-Z]{{1,2}})?{_SYMBOL}|{_CODE}")  # units that a cell may lack


@dataclass(frozen=True)
class Style:
    """How the numbers of a column are written.

    point : the decimal sign.
    group : what stands between thousands; empty if nothing does.
    unit : what stands before or after the numbers, such as % or $; empty if nothing does.
    """

    point: str = "."
    group: str = ""
    unit: str = ""

    @property
    def plain(self) -> bool:
        return self == PLAIN

    def number(self, text: str) -> float | None:
        """The number that a text is in this style."""
        if self.plain or (self.point == "," and not self.group and not self.unit):
            return float(text.replace(self.point, ".")) if is_number(text, self.point) else None
        parts = _parts(text)
        if parts is None or not (parts.unit == self.unit or (self._optional and not parts.unit)):
            return None
        if not _bodies(self.point, self.group).fullmatch(parts.body):
            return None
        digits = parts.body.replace(self.group, "") if self.group else parts.body
        value = float(digits.replace(self.point, ".") + parts.power)
        return -value if parts.negative else value

    @property
    def _optional(self) -> bool:
        return not self.unit or _DRAWN.fullmatch(self.unit) is not None

    def words(self, text: str, value: float) -> str:
        """What was made of the cells, by an example."""
        return f"{text} as {value:.15g}"


PLAIN = Style()


@dataclass(frozen=True)
class _Parts:
    """A text that may be a number in some style, in pieces."""

    negative: bool
    unit: str
    body: str
    power: str


@dataclass(frozen=True, eq=False)
class Reading:
    """A column read as numbers.

    numbers : (n,) NaN where a value is missing or not a number.
    style : the style of most of its texts.
    absent : words that count as missing.
    wrong : the first row with another text; None if there is none.
    share : of the texts that are not absent, the share that are numbers.
    """

    numbers: np.ndarray
    style: Style = PLAIN
    absent: tuple[str, ...] = ()
    wrong: int | None = None
    share: float = 1.0


def is_number(text: str, point: str = ".") -> bool:
    """Whether a text is a plain number. Not what float() takes, which includes 1_000 and nan."""
    plain = text if point == "." else text.replace(".", " ").replace(point, ".")
    return _NUMBER.fullmatch(plain) is not None


def absent(text: str) -> bool:
    return text.casefold() in ABSENT


def present(values: np.ndarray) -> np.ndarray:
    """Which cells of an array of texts are not None."""
    return np.array([value is not None for value in values.tolist()], dtype=bool)


def read_numbers(values: np.ndarray, *, decimal_comma: bool) -> Reading:
    """An array of texts as numbers, in the style that fits most of them."""
    there = present(values)
    quick = _plain(values[there])
    if quick is not None:
        return Reading(_spread(quick, there))
    counts = Counter(values[there].tolist())
    if not _promising(counts):
        return _read_all(values, PLAIN)
    style = _best_style(counts, decimal_comma)
    return _read_all(values, style)


def read_as(values: np.ndarray, style: Style, missing: tuple[str, ...] = ()) -> Reading:
    """An array of texts as numbers in a given style; `missing` are further words that count as
    missing."""
    if style.plain:
        there = present(values)
        quick = _plain(values[there])
        if quick is not None:
            return Reading(_spread(quick, there))
    return _read_all(values, style, frozenset(missing))


def _plain(texts: np.ndarray) -> np.ndarray | None:
    """The numbers of texts that are all plain numbers, at the speed of NumPy."""
    if len(texts) and not is_number(texts[0]):
        return None
    try:
        found = texts.astype(np.float64)
    except ValueError:
        return None
    odd = np.isnan(found).any() or any("_" in text for text in texts.tolist())
    return None if odd else found


def _spread(numbers: np.ndarray, there: np.ndarray) -> np.ndarray:
    found = np.full(len(there), np.nan)
    found[there] = numbers
    return found


def _read_all(values: np.ndarray, style: Style, missing: frozenset[str] = frozenset()) -> Reading:
    known: dict[str | None, float] = {None: np.nan}
    words, wrong = [], set()
    for text in dict.fromkeys(values.tolist()):
        if text is None:
            continue
        number = None if text in missing else style.number(text)
        known[text] = np.nan if number is None else number
        if number is None and (text in missing or absent(text)):
            words.append(text)
        elif number is None:
            wrong.add(text)
    numbers = np.array([known[text] for text in values.tolist()], dtype=np.float64)
    if not wrong:
        return Reading(numbers, style, tuple(words))
    bad = np.array([text in wrong for text in values.tolist()])
    n_good = int(np.sum(~np.isnan(numbers)))
    share = n_good / (n_good + int(bad.sum()))
    return Reading(numbers, style, tuple(words), int(np.argmax(bad)), share)


def _promising(counts: Mapping[str, int]) -> bool:
    """Whether half of the first texts may be numbers: most columns of texts end here."""
    first = [text for text, _ in zip(counts, range(_ENOUGH), strict=False) if not absent(text)]
    return 2 * sum(_parts(text) is not None for text in first) >= max(len(first), 1)


def _best_style(counts: Mapping[str, int], decimal_comma: bool) -> Style:
    """The style that most cells are written in; of equals, the plainest."""
    # the first texts, and the longest, which show what stands between thousands
    shown = [*list(counts)[:_ENOUGH], *sorted(counts, key=len)[-_ENOUGH:]]
    counts = {text: counts[text] for text in shown}
    units = Counter[str]()
    for text, n in counts.items():
        parts = _parts(text)
        if parts is not None:
            units[parts.unit] += n
    unit = max(units, key=lambda unit: (bool(unit), units[unit]), default="")
    both = [",", "."] if decimal_comma else [".", ","]
    candidates = [PLAIN, *([Style(",")] if decimal_comma else [])]
    for point in both:
        groups = [sign for sign in (",", ".", " ", "'") if sign != point]
        candidates += [Style(point, group, u) for u in {unit, ""} for group in ("", *groups)]
    scores = [
        sum(n for text, n in counts.items() if style.number(text) is not None)
        for style in candidates
    ]
    return candidates[int(np.argmax(scores))]


@lru_cache(maxsize=4096)
def _parts(text: str) -> _Parts | None:
    found = _DRESSED.fullmatch(text.translate(_SPACES).strip())
    if found is None or (found["open"] is None) != (found["close"] is None):
        return None
    signs = [found[name] for name in ("sign", "inner") if found[name]]
    if len(signs) > 1 or (signs and found["open"]) or (found["before"] and found["after"]):
        return None
    negative = found["open"] is not None or signs[:1] in (["-"], ["−"])
    unit = found["before"] or found["after"] or ""
    return _Parts(negative, unit, found["body"].rstrip(" "), found["power"] or "")


@lru_cache(maxsize=64)
def _bodies(point: str, group: str) -> re.Pattern[str]:
    point, group = re.escape(point), re.escape(group)
    grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+(?:{point}\d+)?|" if group else ""
    return re.compile(rf"{grouped}\d+(?:{point}\d*)?|{point}\d+")
