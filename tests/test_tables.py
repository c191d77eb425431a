"""Tables: the same columns come out of every kind of file, numbers are numbers and nothing else,
and what cannot be read is refused with the file, the row and the reason."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import re

import numpy as np
import pytest

from cvxnn.tables.reading import read_table
from cvxnn.tables.table import Table, TableError, number_text, write_csv
from extras import optional

pd = optional("pandas")
pa = optional("pyarrow")
pq = optional("pyarrow.parquet")

PLAIN = 'id,size,"a city"\n1,0.5,Rome\n2,,Oslo\n3,-2e3,\n'
NAMES = ["id", "size", "a city"]


@pytest.fixture(params=["csv", "pyarrow"])
def read(request, tmp_path, monkeypatch):
    """Write a file and read it as a table, with and without PyArrow, which is for large files."""
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr("cvxnn.tables.arrow.LEAST", 0)

    def write_and_read(content, name="data.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, **options)

    return write_and_read


def assert_is_plain(table):
    """It has the content of PLAIN."""
    assert table.names == NAMES
    assert len(table) == 3
    assert table.texts("id").tolist() == ["1", "2", "3"]
    np.testing.assert_array_equal(table.numbers("size"), [0.5, np.nan, -2000.0])
    assert table.texts("a city").tolist() == ["Rome", "Oslo", None]
    assert table.missing("size").tolist() == [False, True, False]
    assert table.missing("a city").tolist() == [False, False, True]
    assert [table.is_numeric(name) for name in NAMES] == [True, True, False]


# ------------------------------------------------------------------------- kinds of files

KINDS = {
    "plain": (PLAIN.encode(), {}),
    "Windows line ends": (PLAIN.replace("\n", "\r\n").encode(), {}),
    "old Mac line ends": (PLAIN.replace("\n", "\r").encode(), {}),
    "no line end at the end": (PLAIN.rstrip("\n").encode(), {}),
    "byte order mark": (PLAIN.encode("utf-8-sig"), {}),
    "byte order mark, encoding given": (PLAIN.encode("utf-8-sig"), {"encoding": "utf-8"}),
    "UTF-16, little": (b"\xff\xfe" + PLAIN.encode("utf-16-le"), {}),
    "UTF-16, big": (b"\xfe\xff" + PLAIN.encode("utf-16-be"), {}),
    "UTF-16 without a mark": (PLAIN.encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "latin-1": (PLAIN.encode("latin-1"), {"encoding": "latin-1"}),
    "gzip": (gzip.compress(PLAIN.encode()), {}),
    "semicolon": (PLAIN.replace(",", ";").encode(), {}),
    "tab": (PLAIN.replace(",", "\t").encode(), {}),
    "bar": (PLAIN.replace(",", "|").encode(), {}),
    "another delimiter": (PLAIN.replace(",", ":").encode(), {"delimiter": ":"}),
    "tab by its name": (PLAIN.replace(",", "\t").encode(), {"delimiter": "tab"}),
    "tab as shells pass it": (PLAIN.replace(",", "\t").encode(), {"delimiter": r"\t"}),
    "decimal comma": (PLAIN.replace(",", ";").replace(".", ",").encode(), {}),
    "quotes everywhere": (
        b'"id","size","a city"\n"1","0.5","Rome"\n"2","","Oslo"\n"3","-2e3",""\n',
        {},
    ),
    "spaces around": (b"id , size,a city\n 1 , 0.5 ,Rome\n2, , Oslo\n3,-2e3, \n", {}),
    "blank lines": (b"\n" + PLAIN.replace("\n", "\n\n").encode() + b"  \n", {}),
    "index without a name": (b",id,size,a city\n0,1,0.5,Rome\n1,2,,Oslo\n2,3,-2e3,\n", {}),
    "empty column without a name": (b"id,size,a city,\n1,0.5,Rome,\n2,,Oslo,\n3,-2e3,,\n", {}),
}


@pytest.mark.parametrize(("content", "options"), KINDS.values(), ids=KINDS)
def test_every_kind_of_text_file_gives_the_same_table(read, content, options):
    assert_is_plain(read(content, **options))


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_parquet_gives_the_same_table(tmp_path, compression):
    columns = {"id": [1, 2, 3], "size": [0.5, None, -2e3], "a city": ["Rome", "Oslo", None]}
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content)
    content = content.getvalue()
    path = tmp_path / "data.parquet"
    path.write_bytes(content if compression is None else gzip.compress(content))
    assert_is_plain(read_table(path))


def test_a_frame_gives_the_same_table_by_csv_and_by_parquet(tmp_path):
    frame = pd.DataFrame(
        {
            "flag": [True, False, True],
            "small": np.array([1, -2, 3], dtype=np.int8),
            "single": np.array([0.1, 2, np.nan], dtype=np.float32),
            "kind": pd.Categorical(["x", None, "y"]),
            "text": ["a", "NA", "b, c"],
        },
        index=[7, 8, 9],
    )
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.to_parquet(tmp_path / "data.parquet")
    by_csv, by_parquet = read_table(tmp_path / "data.csv"), read_table(tmp_path / "data.parquet")
    assert by_parquet.names == by_csv.names == list(frame.columns)
    for name in frame.columns:
        assert by_parquet.is_numeric(name) == by_csv.is_numeric(name)
        if by_csv.is_numeric(name):
            np.testing.assert_allclose(by_parquet.numbers(name), by_csv.numbers(name), rtol=1e-7)
        else:
            assert by_parquet.texts(name).tolist() == by_csv.texts(name).tolist()


def test_parquet_types(tmp_path):
    columns = {
        "whole": pa.array([1, 2**40], pa.int64()),
        "money": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)),
        "day": pa.array([datetime.date(2024, 2, 29), None]),
        "coded": pa.array(["a", "b"]).dictionary_encode(),
        "nothing": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.numbers("whole").tolist() == [1, 2**40]
    np.testing.assert_array_equal(table.numbers("money"), [1.5, np.nan])
    assert table.texts("day").tolist() == ["2024-02-29", None]
    assert table.texts("coded").tolist() == ["a", "b"]
    assert table.missing("nothing").all()
    assert table.row(0) == 1  # there is no header to count


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([[1], [2]]), "list"),
        (pa.array([{"x": 1}] * 2), "struct"),
        (pa.array([b"1", b"2"]), "binary"),
        (pa.array([b"1", b"2"], pa.large_binary()), "large_binary"),
    ],
)
def test_parquet_columns_that_are_no_values_are_refused(tmp_path, values, what):
    pq.write_table(pa.table({"odd": values}), tmp_path / "data.parquet")
    with pytest.raises(TableError, match=rf"data.parquet, column 'odd': values of type {what}"):
        read_table(tmp_path / "data.parquet")


def test_quotes_may_hold_delimiters_quotes_and_line_ends(read):
    table = read('a,b,c\n"x, ""y""\nz",1,2\n3,4,bad\n')
    assert table.texts("a").tolist() == ['x, "y"\nz', "3"]
    assert table.row(1) == 3  # rows, not lines


def test_the_header_may_hold_line_ends_and_foreign_delimiters(read):
    table = read('"a, very,\nlong, name";b\n1;2\n')
    assert table.names == ["a, very,\nlong, name", "b"]


def test_a_tsv_file_is_one_although_its_names_hold_commas(read):
    assert read("a,x,y\tb\n1\t2\n", "data.tsv").names == ["a,x,y", "b"]


def test_columns_that_a_program_has_counted_have_names(read):
    table = read("0,1,2\n5,6,7\n")
    assert table.names == ["0", "1", "2"]


def test_what_is_left_out_is_said(read):
    assert read(",a\n0,5\n1,6\n").notes == (
        "the first column has no name and numbers the rows: left out",
    )
    assert read(",a\n17,5\n4,6\n").names == ["a"]  # of some rows of a frame
    assert read("Unnamed: 0,a\n0,5\n1,6\n").names == ["a"]  # written and read and written
    assert read("a,\n5,\n6,NA\n").notes == ("column 2 has neither a name nor values: left out",)
    assert read("a\n5\n").notes == ()


@pytest.mark.parametrize("text", ["", "?", "NA", "n/a", "#N/A", "NaN", "null", "None", "<NA>"])
def test_words_for_missing_values(read, text):
    assert read(f"a,b\n{text},1\n").missing("a").all()


# --------------------------------------------------------------------------------- numbers

NUMBERS = {
    "7": 7.0,
    "-0.5": -0.5,
    "+3": 3.0,
    ".5": 0.5,
    "5.": 5.0,
    "1e5": 1e5,
    "1E-300": 1e-300,
    "1e300": 1e300,
    "0.1000000000000000055511151231257827": 0.1,
    "00012": 12.0,
}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items(), ids=NUMBERS)
def test_numbers(read, text, value):
    assert read(f"a,b\n{text},1\n").numbers("a").tolist() == [value]


@pytest.mark.parametrize(
    "text",
    ["1_000", "0x10", "1,23,4", "1.2.3", "1e", "e5", "--1", "1 2", "$$5", "5-6", "NaNa", "1j"],
)
def test_other_texts_are_no_numbers(read, text):
    table = read(f'a,b\n3,1\n"{text}",1\n')
    assert not table.is_numeric("a")
    with pytest.raises(TableError, match=r"data.csv, column 'a', row 3: '.*' is not a number"):
        table.numbers("a")


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e400"])
def test_infinity_is_refused_with_its_place(read, text):
    with pytest.raises(TableError, match=f"column 'a', row 2: {text} is not finite"):
        read(f"a,b\n{text},1\n").numbers("a")


def test_infinity_in_parquet_is_refused_with_its_place(tmp_path):
    pq.write_table(pa.table({"a": [1.0, np.inf]}), tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.texts("a").tolist() == ["1", "inf"]
    with pytest.raises(TableError, match="column 'a', row 2: inf is not finite"):
        table.numbers("a")


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (["1,5", "2", "-0,25", ""], [1.5, 2, -0.25, np.nan]),
        (["1.5", "2"], [1.5, 2]),
        (["1,234", "0,5"], [1.234, 0.5]),
        (["1,5", "2.5"], None),  # which of them is the decimal sign?
        (["1.234,5", "2,5"], [1234.5, 2.5]),
        (["1,234,567", "2"], [1234567, 2]),
    ],
)
def test_decimal_commas_are_told_by_the_column(read, column, numbers):
    table = read("a;b\n" + "".join(f"{text};1\n" for text in column))
    assert table.is_numeric("a") == (numbers is not None)
    if numbers is not None:
        np.testing.assert_array_equal(table.numbers("a"), numbers)


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (["1,5"], [1.5]),
        (["1,500", "20"], [1500, 20]),
        (["1,500", "0,25"], [1.5, 0.25]),
        (["1,234.5", "2"], [1234.5, 2]),
        (["1.234,5", "2"], [1234.5, 2]),
        (["1 306 178", "12"], [1306178, 12]),
        (["1\u202f306", "12,5"], [1306, 12.5]),
        (["1'306.5", "12"], [1306.5, 12]),
        (["73.3%", "-5 %", "0"], [73.3, -5, 0]),
        (["$772.93", "$1,306,178", "-$5", "($12.50)"], [772.93, 1306178, -5, -12.5]),
        (["1.306,50 €", "12 €"], [1306.5, 12]),
        (["US$5", "US$1,000"], [5, 1000]),
        (["EUR 5", "EUR 1e3"], [5, 1000]),
        (["12 kg", "3.5 kg"], [12, 3.5]),
        (["3.5", "n.v.", "-", "#DIV/0!", "Unknown"], [3.5] + [np.nan] * 4),
        (["$5", "€5"], None),  # amounts of two currencies
        (["12 kg", "3"], None),  # of what?
        (["5'10", "6'2"], None),
        (["1,5", "2.5"], None),
        (["A1", "B2"], None),
        (["10-20", "20-30"], None),
        (["-", "+"], None),
    ],
)
def test_numbers_as_people_write_them(read, column, numbers):
    table = read("a,b\n" + "".join(f'"{text}",1\n' for text in column))
    assert table.is_numeric("a") == (numbers is not None)
    if numbers is not None:
        np.testing.assert_array_equal(table.numbers("a"), numbers)
        np.testing.assert_array_equal(table.missing("a"), np.isnan(numbers))


def test_a_cell_alone_is_read_as_in_its_column(read):
    decimal = read('a,b\n"1,500",1\n"0,25",1\n').reading("a").style
    table = read('a,b\n"1,500",1\n')
    assert table.numbers("a").tolist() == [1500]
    assert table.numbers("a", decimal).tolist() == [1.5]
    dollars = read("a,b\n$5,1\n").reading("a").style
    assert read("a,b\n7.5,1\n").numbers("a", dollars).tolist() == [7.5]
    with pytest.raises(TableError, match=r"row 2: '€7\.5' is not a number"):
        read("a,b\n€7.5,1\n").numbers("a", dollars)


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3"), (-0.0, "0"), (0.1, "0.1"), (1e300, "1e+300"), (np.inf, "inf")]
)
def test_numbers_as_texts(value, text):
    assert number_text(value) == text


# ---------------------------------------------------------------------------------- tables


def test_selected_rows_keep_their_numbers(read):
    table = read("a,b\n1,x\n\n2,y\nbad,z\n").select(np.array([False, True, True]))
    assert table.texts("b").tolist() == ["y", "z"]
    assert [table.row(0), table.row(1)] == [4, 5]  # as a spreadsheet counts, blank lines too
    with pytest.raises(TableError, match="column 'a', row 5: 'bad'"):
        table.numbers("a")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("siez", r"has no column 'siez': did you mean 'size'\? It has 'id', 'size', 'a city'$"),
        ("SIZE", r"did you mean 'size'\?"),
        ("qqqq", r"has no column 'qqqq'; it has 'id', 'size', 'a city'$"),
    ],
)
def test_unknown_columns_are_refused_with_a_hint(read, name, hint):
    with pytest.raises(TableError, match=hint):
        read(PLAIN).column(name)


def test_one_column_only_is_a_hint_at_the_delimiter(read):
    with pytest.raises(TableError, match=r"one column only, 'a b': is that the right delimiter\?"):
        read("a b\n1 2\n").column("b")


def test_numbers_as_names_are_a_hint_at_the_header(read):
    with pytest.raises(TableError, match=r"it has '5.1', 'setosa': is the first row a header\?"):
        read("5.1,setosa\n4.9,setosa\n").column("label")


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"a": [1.0]}, TypeError),
        ({"a": np.array([1])}, TypeError),
        ({"a": np.array(["x"])}, TypeError),
        ({"a": np.ones(2), "b": np.ones(3)}, ValueError),
        ({"a": np.ones((2, 1))}, ValueError),
    ],
)
def test_tables_are_arrays_of_one_length(columns, error):
    with pytest.raises(error, match=r"column '[ab]'"):
        Table(columns)


# --------------------------------------------------------------------------------- writing


def test_what_is_written_is_read_again_to_the_last_bit(read):
    values = np.array([0.1, 1e300, 5e-324, -0.0, 1 / 3])
    texts = ["plain", 'with "quotes"', "a,b", "two\nlines", "é\rè"]
    table = read(write_csv({"x": values, "label": texts, "none": [None] * 5, "n": range(5)}))
    assert table.numbers("x").tobytes() == values.tobytes()
    assert table.texts("label").tolist() == texts
    assert table.missing("none").all()
    assert table.texts("n").tolist() == list("01234")


def test_columns_of_different_lengths_are_not_written():
    with pytest.raises(ValueError, match="zip"):
        write_csv({"a": [1], "b": [1, 2]})


def test_safe_texts_are_no_formulas_and_numbers_stay_numbers():
    formulas = ["=1+1", "+a", "-a", "@sum(A1)", "\tx", "\rx", "--1", "-1.5.2"]
    harmless = ["a=b", "'=1", " =1", "", "-1.5", "+2e3", "-.5", "x"]
    text = write_csv({"=name": formulas, "-1": harmless, "x": [-1.5] * 8}, safe=True)
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["'=name", "-1", "x"]
    assert [row[0] for row in rows] == ["'" + formula for formula in formulas]
    assert [row[1] for row in rows] == harmless
    assert {row[2] for row in rows} == {"-1.5"}
    plain = write_csv({"=name": formulas})
    assert [row[0] for row in csv.reader(io.StringIO(plain, newline=""))] == ["=name", *formulas]


# ---------------------------------------------------------------------------- long fields

LONG = "x" * 131_072  # the longest field that the csv module reads
LONG_FIELDS = {
    "plain": (f"a,b\n1,2\n3,{LONG}x\n", "row 3: column 'b' has 131,073 characters"),
    "of the header": (f"{LONG}x,b\n1,2\n", "row 1: column 1 has 131,073 characters"),
    "beyond the header": (f"a,b\n1,2,{LONG}x\n", "row 2: column 3 has 131,073 characters"),
    "in quotes": (f'a,b\n"1,2","{LONG}""x"\n', "row 2: column 'b' has 131,074 characters"),
    "after lines in quotes": (f'a,b\n"1\n2",3\n\n4,{LONG}y\n', "row 4: column 'b' has 131,073"),
    "of lines": (f'a;b\n1;"{LONG}\ny"\n', "are read: is a quote not closed?"),
    "without an end": (f'a,b\n1,"2""\n{LONG}', "row 2: a quote is opened and not closed"),
}


@pytest.mark.parametrize("name", LONG_FIELDS)
def test_a_field_that_is_too_long_is_named(read, name):
    text, says = LONG_FIELDS[name]
    with pytest.raises(TableError, match=re.escape(says)):
        read(text)


def test_the_longest_field_is_read(read):
    assert read(f'a,b\n1,"{LONG}"\n').columns["b"][0] == LONG


SAME = {
    "plain": PLAIN,
    "quotes": 'a,b\n"x, y",1\n"says ""no""",2\n"two\nlines",3\n',
    "blanks": "a,b\n  x ,1\n NA , 2\n",
    "quotes after blanks": 'a, b\nx, "1"\ny, "2"\n',
    "carriage returns": "a,b\r\nx,1\r\ny,2\r\n",
    "old line ends": "a,b\rx,1\ry,2\r",
    "blank lines": "a,b\nx,1\n\ny,2\n",
    "no line end": "a;b\nx;1,5\ny;2",
    "a byte order mark": "\ufeffa,b\nx,1\n",
    "numbers of all kinds": "a,b\n+3,1\n.5,2\n5.,3\n1e400,4\n00012,5\n",
    "words for numbers": "a,b\nnan,1\ninf,2\n-Infinity,3\n1_000,4\n",
    "an index": ",a\n0,x\n1,y\n",
    "letters": "ä,ö\né,1\n日本,2\n",
}


@pytest.mark.parametrize("case", SAME)
def test_pyarrow_reads_the_same_cells(tmp_path, monkeypatch, case):
    pytest.importorskip("pyarrow")
    file = tmp_path / "data.csv"
    file.write_bytes(SAME[case].encode())
    expected = read_table(file)
    monkeypatch.setattr("cvxnn.tables.arrow.LEAST", 0)
    found = read_table(file)
    assert (found.names, found.notes) == (expected.names, expected.notes)
    assert found.decimal_comma == expected.decimal_comma
    every = slice(None)
    for ours, theirs in ((found, expected), (found.select(every), expected.select(every))):
        for name in expected.names:
            assert ours.texts(name).tolist() == theirs.texts(name).tolist()
            assert ours.is_numeric(name) == theirs.is_numeric(name)
            np.testing.assert_array_equal(ours.reading(name).numbers, theirs.reading(name).numbers)
        assert [ours.row(k) for k in range(len(ours))] == [theirs.row(k) for k in range(len(ours))]
    some = np.array([len(found) - 1, 0])
    assert found.select(some).texts(found.names[0]).tolist() == [
        expected.texts(expected.names[0])[k] for k in some
    ]


@pytest.mark.parametrize("bad", ["a,b\n1\n", 'a,b\n"x,1\n', "a,a\n1,2\n", "1,2\n3,4\n", "a,b\n"])
def test_pyarrow_leaves_errors_to_those_who_name_them(tmp_path, monkeypatch, bad):
    pytest.importorskip("pyarrow")
    (tmp_path / "data.csv").write_text(bad)
    said = []
    for least in (10**9, 0):
        monkeypatch.setattr("cvxnn.tables.arrow.LEAST", least)
        with pytest.raises(TableError) as caught:
            read_table(tmp_path / "data.csv")
        said.append(str(caught.value))
    assert said[0] == said[1]
