"""Columns as features: numbers, categories, missing values, and what training has not seen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cvxnn.tables.encoding import CategoryColumn, Encoder, NumberColumn
from cvxnn.tables.table import Table, TableError


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
    encoder, notes = Encoder.of(table, table.names, **options)
    return encoder, notes


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
        Encoder.of(table, ["odd"], max_categories=4)


@pytest.mark.parametrize("column", [[4.0] * 3, ["x"] * 3, [1e308] * 3, [0.0] * 3])
def test_constant_columns_are_left_out_and_named(column):
    encoder, notes = encoder_of(make_table(same=column, x=[1.0, 2, 3]))
    assert [column.name for column in encoder.columns] == ["x"]
    assert notes == ["column 'same' has only one value: left out"]


def test_columns_that_count_up_are_named():
    x = [0.5 * k for k in range(12)]
    encoder, notes = encoder_of(make_table(id=[float(k) for k in range(107, 95, -1)], x=x))
    assert encoder.features == ["id", "x"]
    assert notes == ["column 'id' counts up: ignore it if it only numbers the rows"]


@pytest.mark.parametrize(
    ("column", "text", "row"),
    [
        (["31", "42", "31", "unknown"], "'unknown'", 4),
        (["1,234", "999", "1,234", "999"], "'1,234'", 1),
        (["1_000", "2_000"] * 2, "'1_000'", 1),
        (["$5", "$6"] * 2, r"'\$5'", 1),
        (["5 %", "5 %", "6 %", "6 %"], "'5 %'", 1),
    ],
)
def test_texts_that_spoil_a_column_of_numbers_are_named(column, text, row):
    _, notes = encoder_of(make_table(odd=column))
    expected = f"column 'odd' is treated as text because {text} in row {row} is not a number"
    assert [note for note in notes if note.startswith(expected.replace("\\", ""))]


@pytest.mark.parametrize("column", [["A1", "B2"] * 2, ["no", "yes"] * 2, ["-", "+"] * 2])
def test_texts_that_are_nothing_but_texts_are_not_worth_a_word(column):
    assert encoder_of(make_table(plain=column))[1] == []


def test_decimal_commas_are_said():
    columns = {"a": np.array(["1,5", "2"], dtype=object), "b": np.array(["1.5", "2"], dtype=object)}
    encoder, notes = Encoder.of(Table(columns, decimal_comma=True), ["a", "b"])
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
