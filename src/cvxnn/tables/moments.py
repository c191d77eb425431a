"""Dates and times as numbers: days since 1970, and what recurs in them.

A column of dates is written in one order of day, month and year, which is found in the rows that a
model is trained on and kept with the model. Times are those of the clock that wrote them: an offset
from UTC is read and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import numpy as np

from cvxnn.tables.numerals import absent

YEAR = 365.2425  # days, on average
ORDERS = ("ymd", "dmy", "mdy", "time")
PARTS = ("days since 1970", "day of year", "weekday", "hour")
_EPOCH = date(1970, 1, 1).toordinal()
_TRIED = 1000  # texts that show whether a column is of dates at all

_NAMES = """january february march april may june july august september october november
    december"""
_MONTHS = {name[:n]: k for k, name in enumerate(_NAMES.split(), 1) for n in range(3, len(name) + 1)}
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s*(?P<half>[AaPp]\.?[Mm]"
    r"\.?)?\s*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
)
_SEP = r"(?P<sep>[-/. ])"
_NAME = r"(?P<name>[A-Za-z]{3,9})\.?"
_DATES = tuple(
    re.compile(rf"(?:[A-Za-z]{{3,9}}day,?\s+)?(?:{day})(?:(?:T|\s+|,\s*){_CLOCK})?")
    for day in (
        rf"(?P<y>\d{{4}}){_SEP}(?P<m>\d{{1,2}})(?:(?P=sep)(?P<d>\d{{1,2}}))?",
        rf"(?P<first>\d{{1,2}}){_SEP}\s?(?P<second_>\d{{1,2}})(?P=sep)\s?(?P<y>\d{{4}}|\d{{2}})",
        rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)?[-/. ]*{_NAME}[-/., ]*(?P<y>\d{{4}}|\d{{2}})",
        rf"{_NAME}[-/. ]*(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,\s*|[-/. ]+)(?P<y>\d{{4}})",
        rf"{_NAME}[-/., ]+(?P<y>\d{{4}})",
    )
)
_TIME = re.compile(_CLOCK)


@dataclass(frozen=True)
class DateReading:
    """What was found in the texts of a column.

    order : one of `ORDERS`.
    certain : whether no other order fits.
    """

    order: str
    certain: bool


def find_order(texts: Iterable[str], day_first: bool | None = None) -> DateReading | None:
    """The order in which all texts are dates, but those that stand for missing values; None if
    there is none. `day_first` decides where day and month may be exchanged."""
    some = [text for text in texts if not absent(text)]
    if not some or not all(_match(text) or _TIME.fullmatch(text) for text in some[:_TRIED]):
        return None
    if all(days_of(text, "time") is not None for text in some):
        return DateReading("time", True)
    wanted = day_first if day_first is not None else any("." in text[:3] for text in some[:1])
    orders = ["dmy", "mdy"] if wanted else ["mdy", "dmy"]
    fitting = [o for o in orders if all(days_of(text, o) is not None for text in some)]
    if not fitting:
        return None
    if not any(_exchangeable(text) for text in some):  # the order is written in all of them
        return DateReading("ymd", True)
    return DateReading(fitting[0], len(fitting) == 1 or any("." in t[:3] for t in some[:1]))


def days_of(text: str, order: str) -> float | None:
    """Days since 1970 of a date, or the part of the day of a time; None for another text."""
    if order == "time":
        clock = _TIME.fullmatch(text)
        return None if clock is None else _part_of_day(clock)
    found = _match(text)
    if found is None:
        return None
    parts = found.groupdict()
    day, month = parts.get("d") or "1", parts.get("m")
    if parts.get("first"):
        if order not in ("dmy", "mdy"):
            return None
        day, month = parts["first"], parts["second_"]
        if order == "mdy":
            day, month = month, day
    number = _MONTHS.get(parts["name"].lower(), 0) if parts.get("name") else int(month or 0)
    year = int(parts["y"])
    if len(parts["y"]) == 2:  # as POSIX reads them
        year += 1900 if year >= 69 else 2000
    try:
        whole = date(year, number, int(day)).toordinal() - _EPOCH
    except ValueError:
        return None
    rest = _part_of_day(found) if parts["hour"] else 0.0
    return None if rest is None else whole + rest


def part_of(days: np.ndarray, part: str) -> np.ndarray:
    """One of `PARTS` of days since 1970. A year is an average one here, so that the day of the year
    may be off by one; the same sums are part of exported models."""
    if part == "days since 1970":
        return days
    if part == "day of year":
        return days - YEAR * np.floor(days / YEAR)
    if part == "weekday":  # 0 is Monday; 1 January 1970 was a Thursday
        shifted = np.floor(days) + 3
        return shifted - 7 * np.floor(shifted / 7)
    return 24 * (days - np.floor(days))


def useful_parts(days: np.ndarray, order: str) -> tuple[str, ...]:
    """The parts that tell these days apart and are not a function of others."""
    if order == "time":
        return ("hour",)
    parts = ["days since 1970"]
    if np.ptp(days) > 366:
        parts.append("day of year")
    of_month = {int(str(d)[-2:]) for d in np.floor(np.unique(days)).astype("datetime64[D]")}
    if np.ptp(days) >= 14 and len(of_month) > 1:
        parts.append("weekday")
    if np.ptp(part_of(days, "hour")) > 0:
        parts.append("hour")
    return tuple(parts)


def _match(text: str) -> re.Match[str] | None:
    return next((found for form in _DATES if (found := form.fullmatch(text))), None)


def _exchangeable(text: str) -> bool:
    found = _match(text)
    return found is not None and "first" in found.groupdict()


def _part_of_day(found: re.Match[str]) -> float | None:
    hour, minute = int(found["hour"]), int(found["minute"])
    second = float((found["second"] or "0").replace(",", "."))
    half = (found["half"] or "").lower().replace(".", "")
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 24 or minute > 59 or second >= 61:
        return None
    return (hour * 3600 + minute * 60 + second) / 86400
