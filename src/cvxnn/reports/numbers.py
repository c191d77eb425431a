"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "–"
_SPACE = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line


def number(value: float | None, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number with at most `digits` significant digits: 0.1235, 1.2 × 10⁻⁵, −3. For a bound, give
    a `rounding` towards the side on which it still holds."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = Context(prec=digits, rounding=rounding).create_decimal(value)
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    power = int(exponent)
    if power < -4 or power > max(digits, 6):
        return f"{_signed(_trimmed(mantissa))}{_SPACE}×{_SPACE}{power_of_ten(power)}"
    return _signed(_grouped(_trimmed(f"{rounded:.{max(digits - 1 - power, 0)}f}")))


def alike(values: Sequence[float], digits: int = 4) -> list[str]:
    """Numbers with the same number of decimals, for a column of a table; the largest one has
    `digits` significant digits."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    power = math.floor(math.log10(max(finite))) if any(finite) else 0
    if not -4 <= power <= 6:
        return [number(value, digits) for value in values]
    decimals = max(digits - 1 - power, 0)
    return [
        _signed(_grouped(f"{value:.{decimals}f}")) if math.isfinite(value) else number(value)
        for value in values
    ]


def power_of_ten(power: int) -> str:
    return "10" + str(power).translate(_SUPERSCRIPTS)


def bounds(low: float, high: float) -> tuple[str, str]:
    """A lower and an upper bound, with enough digits to tell them apart, but at most ten."""
    size = max(abs(low), abs(high))
    digits = 4
    if 0 < high - low < size:
        digits = min(max(4, 2 + math.ceil(-math.log10((high - low) / size))), 10)
    return number(low, digits, ROUND_FLOOR), number(high, digits, ROUND_CEILING)


def percent(share: float | None, digits: int = 3) -> str:
    """A share as 97.2 %. Only 1 itself is shown as 100 %, and only 0 itself as 0 %."""
    if share is None or math.isnan(share):
        return MISSING
    if 0 < abs(share) < 1e-3 or abs(share) > 10:
        return f"{number(100 * share, 2)}{_SPACE}%"
    decimals = 0 if share in (0, 1) else digits - 2
    shown = 100 * share
    if share < 1:
        shown = min(shown, 100 - 10.0**-decimals)
    return f"{_signed(f'{shown:.{decimals}f}')}{_SPACE}%"


def ratio(value: float) -> str:
    """Three decimals, for numbers of a size near 1."""
    if not abs(value) < 100:
        return number(value)
    text = f"{value:.3f}"
    return "0" if float(text) == 0 else _signed(text)


def gap(value: float) -> str:
    """A relative gap, not rounded down."""
    return number(value, 2, ROUND_CEILING)


def signed(value: float) -> str:
    """Two decimals with a sign: +0.25."""
    return _signed(f"{value:+.2f}")


def at_most(share: float) -> str:
    """A percentage that is not rounded down."""
    return f"{number(100 * share, 2, ROUND_CEILING)}{_SPACE}%"


def count(n: int, thing: str, things: str | None = None) -> str:
    """1 row, 1,234 rows."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _grouped(digits: str) -> str:
    whole, dot, rest = digits.partition(".")
    return f"{int(whole):,}{dot}{rest}" if len(whole.lstrip("-")) > 4 else digits


def _signed(digits: str) -> str:
    return digits.replace("-", "−")
