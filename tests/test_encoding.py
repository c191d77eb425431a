"""Columns as features: numbers, categories, missing values, and what training has not seen."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from cvxnn.tables.columns import CategoryColumn, DateColumn, NumberColumn
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.notes import Guess
from cvxnn.tables.table import Table, TableError
from cvxnn.tables.transformer import TableEncoder


def make_table(**columns):
    """Lists of texts (None is missing) or of numbers (NaN is missing) as a table."""
    return Table(
        {
            name: np.array(values, dtype=float if isinstance(values[0], float) else object)
            for name, values in columns.items()
        },
        "data.csv",
    )


def encoder_of(table, **options):
    return TableEncoder(**options).learn(table)


MIXED = make_table(
    size=["1", "3", None, "8"],
    city=["Rome", "Oslo", "Rome", None],
    full=["5", "6", "7", "8"],
    kind=["a", "b", "b", "b"],
)


def test_numbers_categories_and_missing_values():
    encoder, notes = encoder_of(MIXED)
    X, surprises = encoder.encode(MIXED)
    assert encoder.features == [
        "size",
        "size is missing",
        "city=Oslo",
        "city=Rome",
        "city is missing",
        "full",
        "kind=a",
        "kind=b",
    ]
    expected = [
        [1, 0, 0, 1, 0, 5, 1, 0],
        [3, 0, 1, 0, 0, 6, 0, 1],
        [3, 1, 0, 1, 0, 7, 0, 1],  # the median of 1, 3, 8
        [8, 0, 0, 0, 1, 8, 0, 1],
    ]
    np.testing.assert_array_equal(X, expected)
    assert surprises == []
    assert notes == ["missing values are filled in and marked: 'size', 'city'"]


def test_columns_may_come_in_any_order_and_with_others():
    encoder, _ = encoder_of(MIXED)
    turned = Table({name: MIXED.columns[name] for name in reversed(MIXED.names)})
    more = Table({"other": np.zeros(4), **turned.columns})
    for table in (turned, more):
        np.testing.assert_array_equal(encoder.encode(table)[0], encoder.encode(MIXED)[0])


def test_numbers_are_numbers_whether_the_file_says_so_or_not():
    texts = make_table(a=["1", "2.5", None, "4"], b=["x", "7", "x", "7"])
    floats = make_table(a=[1.0, 2.5, np.nan, 4.0], b=["x", "7", "x", "7"])
    encoder, _ = encoder_of(texts)
    np.testing.assert_array_equal(encoder.encode(floats)[0], encoder.encode(texts)[0])
    whole = make_table(a=[1.0, 2.5, np.nan, 4.0], b=[7.0, 7.0, 7.0, 7.0])
    assert encoder.encode(whole)[0][:, encoder.features.index("b=7")].tolist() == [1.0] * 4


def test_missing_columns_are_named():
    encoder, _ = encoder_of(MIXED)
    one = Table({name: MIXED.columns[name] for name in ("size", "kind", "city")}, "new.csv")
    with pytest.raises(TableError, match=r"^new.csv lacks the column 'full' that the model was"):
        encoder.encode(one)
    none = make_table(Size=["1"], x=["2"])
    with pytest.raises(TableError, match=r"lacks the columns 'size', .* it has 'Size', 'x'$"):
        encoder.encode(none)


def test_categories_that_training_did_not_see_count_as_none_and_are_named():
    encoder, _ = encoder_of(MIXED)
    new = make_table(size=["1"] * 3, city=["Bonn", "Oslo", "Lima"], full=["1"] * 3, kind=["a"] * 3)
    X, notes = encoder.encode(new)
    np.testing.assert_array_equal(X[:, 2:5], [[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    assert notes == [
        "column 'city': 2 values of categories that training did not see, the first is 'Bonn' in "
        "row 1; they count as no category"
    ]


def test_missing_values_that_training_did_not_have_are_filled_in_and_named():
    encoder, _ = encoder_of(MIXED)
    new = make_table(size=[None, "2"], city=["Oslo"] * 2, full=["1", None], kind=[None, "a"])
    X, notes = encoder.encode(new)
    np.testing.assert_array_equal(X, [[3, 1, 1, 0, 0, 1, 0, 1], [2, 0, 1, 0, 0, 6.5, 1, 0]])
    assert notes == [
        "column 'full': 1 missing value, the first in row 2; training had none, so 6.5 is "
        "filled in",
        "column 'kind': 1 missing value, the first in row 1; training had none, so 'b' is "
        "filled in",
    ]


def test_missing_values_are_refused_if_that_is_asked_for():
    with pytest.raises(TableError, match=r"^data.csv, column 'size', row 3: the value is missing"):
        encoder_of(MIXED, impute=False)[0].encode(MIXED)
    full = make_table(full=["5", "6"], kind=["a", "b"])
    encoder, _ = encoder_of(full, impute=False)
    assert encoder.features == ["full", "kind=a", "kind=b"]
    np.testing.assert_array_equal(encoder.encode(full)[0], [[5, 1, 0], [6, 0, 1]])
    for name, hole in (("full", [None, "6"]), ("kind", [None, "b"])):
        new = Table({**full.columns, name: np.array(hole, dtype=object)})
        with pytest.raises(TableError, match=f"column '{name}', row 1: the value is missing"):
            encoder.encode(new)


def test_texts_in_a_column_of_numbers_are_refused_with_their_place():
    encoder, _ = encoder_of(MIXED)
    new = Table({**MIXED.columns, "full": np.array(["1", "2", "many", "4"], dtype=object)}, "n.csv")
    with pytest.raises(TableError, match=r"^n.csv, column 'full', row 3: 'many' is not a number"):
        encoder.encode(new)


LEFT_OUT = {
    "no values": ([None] * 6, "has no values: left out"),
    "all different": (list("abcdef"), "has a different text in every row: left out"),
    "all different but the missing": (
        ["a", None, "c", None, "e", None],
        "has a different text in every row: left out",
    ),
    "too many": (list("aabcde"), "has 5 different texts: left out"),
}


@pytest.mark.parametrize(("column", "reason"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_columns_of_no_use_are_left_out_and_named(column, reason):
    table = make_table(odd=column, x=[1.0, 2, 3, 4, 5, 6])
    encoder, notes = encoder_of(table, max_categories=4)
    assert encoder.features == ["x"]
    assert notes[-1] == f"column 'odd' {reason}"
    with pytest.raises(TableError, match="no column to learn from; column 'odd' " + reason):
        TableEncoder(drop=["x"], max_categories=4).learn(table)


@pytest.mark.parametrize("column", [[4.0] * 3, ["x"] * 3, [1e308] * 3, [0.0] * 3])
def test_constant_columns_are_left_out_and_named(column):
    encoder, notes = encoder_of(make_table(same=column, x=[1.0, 2, 3]))
    assert [column.name for column in encoder.columns] == ["x"]
    assert notes == ["column 'same' has only one value: left out"]


KEYS = {
    "counts up": ("x", [float(k) for k in range(107, 95, -1)], "whole numbers that count the rows"),
    "counts up with gaps": ("x", [1.0, 2, 3, 5, 6, 8, 9, 10, 12, 13, 14, 15], "count the rows"),
    "named a key": ("customer_id", [7.0 * k for k in range(12)], "12 different whole numbers"),
    "named a key, in another spelling": ("orderID", [7.0 * k for k in range(12)], "12 different"),
    "a number": ("House No", [float(k * k) for k in range(12)], "in every row"),
    "a year": ("year", [1990.0 + k for k in range(12)], None),
    "a year in two digits": ("x", [float(k % 6) for k in range(12)], None),
    "measured": ("x", [0.5 * k for k in range(12)], None),
    "whole numbers far apart": ("people", [7.0 * k for k in range(12)], None),
    "few rows": ("id", [1.0, 2, 3], None),
    "a key of few things": ("store_id", [1.0, 2, 3] * 4, None),
}


@pytest.mark.parametrize(("name", "values", "why"), KEYS.values(), ids=KEYS)
def test_columns_that_look_like_identifiers_are_left_out_and_named(name, values, why):
    other = [0.5 * (k % 5) for k in range(len(values))]
    table = make_table(**{name: values, "other": other})
    encoder, notes = encoder_of(table)
    assert encoder.features == (["other"] if why else [name, "other"])
    assert len(notes) == (why is not None)
    if why:
        assert notes[0].startswith(f"column {name!r} looks like an identifier, with ")
        assert why in notes[0]
        assert isinstance(notes[0], Guess)
        assert encoder_of(table, use=[name])[0].features == [name, "other"]


def test_what_counts_the_rows_is_used_if_there_is_nothing_else():
    values = [float(k) for k in range(12)]
    assert encoder_of(make_table(t=values))[0].features == ["t"]
    with pytest.raises(TableError, match="no column to learn from; column 'id' looks like"):
        encoder_of(make_table(id=values))


def test_numbers_can_be_categories():
    table = make_table(zip=[10115.0, 80331, 10115, np.nan], x=["1", "2", "3", "4"])
    encoder, _ = encoder_of(table, categorical=["zip", "x"], use=["x"])
    assert encoder.features[:3] == ["zip=10115", "zip=80331", "zip is missing"]
    np.testing.assert_array_equal(
        encoder.encode(table)[0][:, :3], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    )


def test_further_texts_and_numbers_stand_for_missing_values():
    table = make_table(a=["1", "-999", "3", "x"], b=[-999.0, 1, 2, 5], c=["u", "v", "X", "u"])
    encoder, _ = encoder_of(table, na=[-999, "x"])
    X, notes = encoder.encode(table)
    assert encoder.features == [
        *("a", "a is missing", "b", "b is missing"),
        *("c=u", "c=v", "c is missing"),
    ]
    np.testing.assert_array_equal(X[:, 1], [0, 1, 0, 1])
    np.testing.assert_array_equal(X[:, 3], [1, 0, 0, 0])
    np.testing.assert_array_equal(X[:, 6], [0, 0, 1, 0])
    assert notes == []
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())), list(encoder.na))
    np.testing.assert_array_equal(again.encode(table)[0], X)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (["1,234", "999"] * 2, "column 'odd' is read as numbers, 1,234 as 1234"),
        (["$5", "$6"] * 2, "column 'odd' is read as numbers, $5 as 5"),
        (["5 %", "6 %"] * 2, "column 'odd' is read as numbers, 5 % as 5"),
        (["1_000", "2_000"] * 2, "treated as text because '1_000' in row 1 is not a number"),
        (["31", "42", "31", "lots"], "treated as text because 'lots' in row 4 is not a number"),
        (["31", "42", "31", "unknown"], "'unknown' counts as missing among numbers, in 1 row"),
    ],
)
def test_cells_that_are_not_plain_numbers_are_named(column, said):
    _, notes = encoder_of(make_table(odd=column))
    assert [note for note in notes if said in note]


def test_a_few_texts_among_many_numbers_count_as_missing():
    numbers = [str(0.5 * (k % 40)) for k in range(100)]
    table = make_table(a=[*numbers[:97], "lots", "few", "-"])
    encoder, notes = encoder_of(table)
    X, _ = encoder.encode(table)
    assert encoder.features == ["a", "a is missing"]
    np.testing.assert_array_equal(X[:97, 0], [float(text) for text in numbers[:97]])
    np.testing.assert_array_equal(X[:, 1], [0] * 97 + [1] * 3)
    assert (
        "98 % of its values are; others count as missing: 'lots' in row 98 and 1 more" in notes[0]
    )
    kept, _ = encoder_of(table, categorical=["a"])
    assert "a=lots" in kept.features
    with pytest.raises(TableError, match="row 1: 'many' is not a number"):  # new to the encoder
        encoder.encode(make_table(a=["many"]))


# ------------------------------------------------------------------------------------- dates

DATES = {  # texts -> days since 1970, by the calendar of Python
    "ISO": (["2024-01-31", "1969-12-31"], [19753, -1]),
    "slashes": (["2024/1/31", "1970/1/2"], [19753, 1]),
    "day first": (["31.01.2024", "1.2.2024"], [19753, 19754]),
    "day first, by one date": (["31/01/2024", "01/02/2024"], [19753, 19754]),
    "month first": (["01/31/2024", "02/01/2024"], [19753, 19754]),
    "two digits": (["31.01.24", "31.01.70"], [19753, 30]),
    "names": (["Jan 31, 2024", "February 1 2024"], [19753, 19754]),
    "names in the middle": (["31-Jan-2024", "1 Feb 24"], [19753, 19754]),
    "months": (["Jan 1970", "February 1970"], [0, 31]),
    "with times": (["2024-01-31 12:00", "2024-01-31T18:00:00Z"], [19753.5, 19753.75]),
    "with halves of a day": (["01/31/2024 06:00 PM", "1/31/2024 12:00 am"], [19753.75, 19753]),
    "times": (["06:00", "18:00:00"], [0.25, 0.75]),
    "with a word": (["2024-01-31", "n.v.", "2024-02-01"], [19753, np.nan, 19754]),
}


@pytest.mark.parametrize(("texts", "days"), DATES.values(), ids=DATES)
def test_dates_become_days(texts, days):
    table = make_table(when=texts * 3, x=[float(k) / 2 for k in range(3 * len(texts))])
    encoder, _ = encoder_of(table)
    column = encoder.columns[0]
    assert isinstance(column, DateColumn)
    np.testing.assert_array_equal(column.days(table), days * 3)
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(again.encode(table)[0], encoder.encode(table)[0])


@pytest.mark.parametrize(
    "texts",
    [
        ["31/31/2024", "01/01/2024"],
        ["2024-02-30"] * 2,
        ["25:61", "10:00"],
        ["Area 2000", "May 2000"],
    ],
)
def test_texts_that_are_no_dates_stay_texts(texts):
    encoder, _ = encoder_of(make_table(when=[*texts, texts[0], "x"][:4], x=[1.0, 2, 3, 5]))
    assert not isinstance(encoder.columns[0], DateColumn)


def test_parts_of_dates_are_those_of_the_calendar():
    days = [datetime(2023, 1, 1) + timedelta(days=37 * k, hours=5 * k) for k in range(30)]
    table = make_table(when=[str(day) for day in days])
    encoder, notes = encoder_of(table)
    parts = ("days since 1970", "day of year", "weekday", "hour")
    assert encoder.features == [f"when: {part}" for part in parts]
    X, _ = encoder.encode(table)
    assert X[:, 2].tolist() == [day.weekday() for day in days]
    np.testing.assert_allclose(X[:, 3], [day.hour for day in days], atol=1e-6)
    of_year = [day.timetuple().tm_yday - 1 + day.hour / 24 for day in days]
    assert np.all(np.abs((X[:, 1] - of_year + 180) % 365.2425 - 180) <= 1.5)
    assert notes == [f"column 'when' holds dates and becomes {', '.join(parts)}"]


def test_an_open_order_of_day_and_month_is_asked_about():
    table = make_table(when=["01/02/2024", "03/04/2024"] * 3)
    american, notes = encoder_of(table)
    assert american.columns[0].order == "mdy"
    assert isinstance(notes[0], Guess)
    assert "give day_first=True (--day-first)" in notes[0]
    british, notes = encoder_of(table, day_first=True)
    assert british.columns[0].order == "dmy"
    assert british.encode(table)[0][0, 0] == (date(2024, 2, 1) - date(1970, 1, 1)).days


def test_a_text_among_new_dates_is_refused_with_its_place():
    encoder, _ = encoder_of(make_table(when=["31/01/2024", "01/02/2024"] * 3))
    for text in ("soon", "13/13/2024", "02/31/2024"):
        with pytest.raises(TableError, match=r"row 1: '.*' is not a date \(day month year\)"):
            encoder.encode(make_table(when=[text]))
    X, notes = encoder.encode(make_table(when=["-", "2024-02-01"]))
    assert X[1, 0] == 19754
    assert "1 missing value, the first in row 1" in notes[0]


@pytest.mark.parametrize("column", [["A1", "B2"] * 2, ["no", "yes"] * 2, ["-", "+"] * 2])
def test_texts_that_are_nothing_but_texts_are_not_worth_a_word(column):
    assert encoder_of(make_table(plain=column))[1] == []


def test_decimal_commas_are_said():
    columns = {"a": np.array(["1,5", "2"], dtype=object), "b": np.array(["1.5", "2"], dtype=object)}
    encoder, notes = encoder_of(Table(columns, decimal_comma=True))
    assert notes == ["commas are read as decimal points, 1,5 as 1.5: 'a'"]
    np.testing.assert_array_equal(
        encoder.encode(Table(columns, decimal_comma=True))[0], [[1.5, 1.5], [2, 2]]
    )


@pytest.mark.parametrize("size", [1e308, 1e-308])
def test_the_median_of_extreme_numbers_is_one_of_them(size):
    encoder, _ = encoder_of(make_table(a=[size, size, np.nan, size, size]))
    assert encoder.columns[0].fill == size


# ------------------------------------------------------------------------------------ JSON


def test_an_encoder_comes_back_from_json():
    encoder, _ = encoder_of(MIXED)
    strict, _ = encoder_of(make_table(a=["1", "2"], b=["x", "y"]), impute=False)
    odd = Encoder((NumberColumn("é\n", 0.1 + 0.2, False), CategoryColumn("c", ('"', ""), "", True)))
    for original in (encoder, strict, odd):
        assert Encoder.from_json(json.loads(json.dumps(original.to_json()))) == original


NUMBER = {"name": "a", "fill": 1.0, "marked": False}
CATEGORY = {"name": "a", "fill": "x", "marked": False, "categories": ["x", "y"]}
WRONG = {
    "nothing": None,
    "no list": {"a": NUMBER},
    "no columns": [],
    "no object": ["a"],
    "no name": [{"fill": 1.0, "marked": False}],
    "name is a number": [NUMBER | {"name": 3}],
    "two of one name": [NUMBER, CATEGORY],
    "marked is a number": [NUMBER | {"marked": 1}],
    "not marked": [{"name": "a", "fill": 1.0}],
    "fill is a text": [NUMBER | {"fill": "1"}],
    "fill is true": [NUMBER | {"fill": True}],
    "fill is NaN": [NUMBER | {"fill": float("nan")}],
    "fill is infinite": [NUMBER | {"fill": float("inf")}],
    "fill is too large": [NUMBER | {"fill": 10**400}],
    "fill is a list": [NUMBER | {"fill": [1.0]}],
    "missing are numbers": [NUMBER | {"missing": [1]}],
    "an unknown style": [NUMBER | {"style": {"dot": "."}}],
    "an unknown decimal sign": [NUMBER | {"style": {"point": ";"}}],
    "an unknown order of dates": [NUMBER | {"order": "ydm", "parts": ["hour"]}],
    "no parts of dates": [NUMBER | {"order": "ymd", "parts": []}],
    "unknown parts of dates": [NUMBER | {"order": "ymd", "parts": ["minute"]}],
    "categories are a text": [CATEGORY | {"categories": "xy"}],
    "categories are numbers": [CATEGORY | {"categories": [1, 2]}],
    "categories are none": [CATEGORY | {"categories": []}],
    "categories are null": [CATEGORY | {"categories": None}],
    "categories are equal": [CATEGORY | {"categories": ["x", "x"]}],
    "fill is no category": [CATEGORY | {"fill": "z"}],
    "fill is a number": [CATEGORY | {"fill": 1}],
}


@pytest.mark.parametrize("columns", WRONG.values(), ids=WRONG)
def test_what_is_no_encoder_is_refused(columns):
    with pytest.raises((ValueError, TypeError), match="column"):
        Encoder.from_json(columns)
