"""Bounds in print: rounded to the side on which they still hold."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def text_above(x: float, digits: int = 10) -> str:
    """So many significant digits, rounded up: an upper bound stays one in print."""
    return _text(x, digits, ROUND_CEILING)


def text_below(x: float, digits: int = 10) -> str:
    """So many significant digits, rounded down."""
    return _text(x, digits, ROUND_FLOOR)


def _text(x: float, digits: int, rounding: str) -> str:
    if not math.isfinite(x):
        return f"{x:g}"
    rounded = Context(prec=digits, rounding=rounding).create_decimal(float(x))
    return f"{float(rounded):.{digits}g}"  # the same digits, since doubles keep fifteen
