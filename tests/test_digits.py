"""Printed bounds are rounded to the safe side, so that they are still bounds."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvxnn.digits import text_above, text_below


@given(x=st.floats(1e-300, 1e300), digits=st.integers(1, 12))
def test_printed_bounds_hold_and_are_close(x, digits):
    above, below = Decimal(text_above(x, digits)), Decimal(text_below(x, digits))
    assert below <= Decimal(x) <= above
    assert above - below <= above * Decimal(10) ** (1 - digits)
    assert max(len(text.as_tuple().digits) for text in (above, below)) <= digits


@pytest.mark.parametrize(
    ("x", "above", "below"),
    [
        (1 / 3, "0.334", "0.333"),
        (8.015e-5, "8.02e-05", "8.01e-05"),
        (2.0, "2", "2"),
        (0.0, "0", "0"),
        (float("inf"), "inf", "inf"),
        (-1 / 3, "-0.333", "-0.334"),
    ],
)
def test_how_they_read(x, above, below):
    assert (text_above(x, 3), text_below(x, 3)) == (above, below)
