"""CSV, JSON Lines and text: the record that a line becomes, and the error of a line that is not a record."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from typing import Any, Literal

import pytest
from hypothesis import example, given, strategies as st

from engine.elements.errors import ConfigurationError
from operators.files.formats import CsvFormat, JsonLinesFormat, LineError, LineFormat, TextFormat

CELLS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"), max_size=6)


def blockwise(spec: LineFormat, lines: list[str], header: str | None = None) -> list[Any] | None:
    return spec.parser(header).parse_block(lines)


def linewise(spec: LineFormat, lines: list[str], header: str | None = None) -> list[Any]:
    parser = spec.parser(header)
    return [record for line in lines for record in parser.parse_line(line)]


@given(st.lists(st.tuples(CELLS, st.integers(), CELLS), min_size=1, max_size=10), st.sampled_from(",;\t"))
def test_csv_reads_what_the_csv_module_writes(rows: list[tuple[str, int, str]], delimiter: str) -> None:
    """Quotes, delimiters and any characters come back, in blocks and line by line alike."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    lines = text.getvalue().split("\n")[:-1]
    spec = CsvFormat(("a", "n", "b"), types={"n": int}, header=False, record="tuple", delimiter=delimiter)

    assert blockwise(spec, lines) == rows
    assert linewise(spec, lines) == rows


def test_csv_header_selects_columns_by_name() -> None:
    """With a header ``columns`` picks and orders; without ``columns`` all are read."""
    some = CsvFormat(("c", "a"), types={"a": int})
    everything = CsvFormat()

    assert blockwise(some, ["1,2,3"], "a,b,c\r") == [{"c": "3", "a": 1}]
    assert linewise(some, ["1,2,3"], "a,b,c") == [{"c": "3", "a": 1}]
    assert blockwise(everything, ["1,2,3"], "a,b,c") == [{"a": "1", "b": "2", "c": "3"}]


def test_csv_null_values() -> None:
    """A null value becomes None in every column instead of being converted."""
    spec = CsvFormat(("n", "s"), types={"n": int}, header=False, null_values=("", "NA"), record="tuple")
    lines = ["1,x", "NA,", ",NA", "7,y\r"]
    expected = [(1, "x"), (None, None), (None, None), (7, "y")]

    assert blockwise(spec, lines) == expected
    assert linewise(spec, lines) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1", "1 fields instead of 2"),
        ("1,2,3", "3 fields instead of 2"),
        ("x,2", "column 'n': 'x' is no int (ValueError: invalid literal for int() with base 10: 'x')"),
        ('1,"open', "not CSV: a quoted field does not end on its line (fields with line breaks are not supported)"),
        ('1,"a"b', "not CSV: ',' expected after '\"'"),
    ],
)
def test_a_bad_csv_line_is_explained(line: str, why: str) -> None:
    """A block with a bad line is refused as a whole; the error of the line says what is wrong with it."""
    spec = CsvFormat(("n", "s"), types={"n": int}, header=False)
    with contextlib.suppress(ValueError, csv.Error):
        assert blockwise(spec, ["1,a", line, "2,b"]) is None

    with pytest.raises(LineError) as caught:
        linewise(spec, [line])
    assert str(caught.value) == why


def test_a_quoted_line_break_is_found_in_a_block() -> None:
    """Two lines that are one record for the csv module are never read as one."""
    spec = CsvFormat(("a", "b"), header=False)

    assert blockwise(spec, ["1,2", '3,"4', '5",6', "7,8"]) is None
    assert blockwise(spec, ['3,"4', '5"']) is None


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("a,b", "the header has no column 'c'; it has ['a', 'b']"),
        ("a,a", "the header names a column twice: ['a', 'a']"),
        ("", "the header is empty"),
        ('"a', "the header is not CSV: a quoted field does not end on its line"),
    ],
)
def test_a_bad_header_is_explained(header: str, why: str) -> None:
    """A file whose header does not fit the format is refused when it is opened."""
    with pytest.raises(LineError) as caught:
        CsvFormat(("a", "c")).parser(header)
    assert str(caught.value).startswith(why)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), CELLS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(CELLS, inner, max_size=3)),
    max_leaves=5,
)


@given(st.lists(JSON, min_size=1, max_size=8), st.sampled_from(["", " ", "\r"]))
def test_json_lines_reads_what_json_writes(values: list[Any], end: str) -> None:
    """Any JSON value comes back; space around it is allowed."""
    lines = [json.dumps(value, ensure_ascii=False) + end for value in values]
    spec = JsonLinesFormat()

    assert linewise(spec, lines) == values
    assert blockwise(spec, lines) == values


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("1 2", "more than one JSON value: extra text at column 2"),
        ("[1,NaN]", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("[" * 100_000, "JSON nested too deeply"),
    ],
    ids=range(5),
)
def test_a_bad_json_line_is_explained(line: str, why: str) -> None:
    """The error names the column."""
    with pytest.raises(LineError) as caught:
        linewise(JsonLinesFormat(), [line])
    assert str(caught.value) == why


def test_a_number_of_thousands_of_digits_is_a_malformed_line() -> None:
    """Python refuses to read it; the source must be able to skip it."""
    lines = ["1", "9" * 5_000]
    with pytest.raises(LineError, match="not JSON that can be read: Exceeds the limit"):
        linewise(JsonLinesFormat(), lines)


@given(
    st.lists(st.text(" \t,x\r", max_size=5), min_size=1, max_size=6),
    st.sampled_from(",\t "),
    st.sampled_from([1, 2, 3]),
)
def test_csv_blocks_and_lines_agree(lines: list[str], delimiter: str, width: int) -> None:
    """Which lines are in a block with a malformed one decides nothing: the same are blank, and the same are records of
    empty fields."""
    spec = CsvFormat(tuple("abc"[:width]), header=False, record="tuple", delimiter=delimiter)
    try:
        records = blockwise(spec, lines)
    except csv.Error:
        return
    assert records is None or records == linewise(spec, lines)


@given(
    st.lists(st.text('",; x\r\0é', max_size=5), min_size=1, max_size=6),
    st.sampled_from(",; é"),
    st.sampled_from([2, 3]),
)
@example(["x", "x,x,x"], ",", 2)
def test_csv_blocks_hold_what_the_csv_module_reads(lines: list[str], delimiter: str, width: int) -> None:
    """Lines without quotes are split without the csv module, into the same fields, if it reads a row from each."""
    spec = CsvFormat(tuple("abc"[:width]), header=False, record="tuple", delimiter=delimiter)
    try:
        rows = [tuple(row) for row in csv.reader(lines, delimiter=delimiter, strict=True)]
    except csv.Error:
        rows = []
    try:
        records = blockwise(spec, lines)
    except csv.Error:
        records = None
    assert records == (rows if len(rows) == len(lines) and {width} == set(map(len, rows)) else None)


@pytest.mark.parametrize("record", ["tuple", "dict"])
def test_long_csv_blocks_and_lines_agree(record: Literal["tuple", "dict"]) -> None:
    """A block is parsed in pieces, with and without quotes; no line is lost where they meet."""
    spec = CsvFormat(("a", "b", "c"), types={"a": int}, header=False, record=record, null_values=("n-7",))
    quoted = [f'{number},n-{number % 10},"q, {number}"' for number in range(400)]
    lines = [*quoted, *(f"{number},n-{number % 10},z" for number in range(1_200)), *quoted]

    assert blockwise(spec, lines) == linewise(spec, lines)
    assert blockwise(spec, [*lines, "1,2"]) is None


def test_a_csv_field_longer_than_the_csv_module_allows_is_refused() -> None:
    """Its limit holds for fields without quotes, too."""
    spec, limit = CsvFormat(("a", "b"), header=False), 1_000
    before = csv.field_size_limit(limit)
    try:
        assert blockwise(spec, ["1," + "x" * limit]) == linewise(spec, ["1," + "x" * limit])
        with pytest.raises(csv.Error, match="field larger than field limit"):
            blockwise(spec, ["1," + "x" * (limit + 1)])
    finally:
        csv.field_size_limit(before)


def test_a_row_of_empty_fields_between_tabs_is_a_record() -> None:
    """It is not a blank line, in whichever way it is read."""
    spec = CsvFormat(("a", "b", "c"), header=False, record="tuple", delimiter="\t")
    assert linewise(spec, ["\t\t", "", " "]) == [("", "", "")]


@pytest.mark.parametrize(
    "lines",
    [["1,2", "[1", "2]"], ["[1", "2]", "3,4,5"], ["1] [2"], ["[NaN]"], ["1,NaN,2"], ["", "1"], [" "]],
    ids=range(7),
)
def test_json_values_that_only_make_sense_together_are_refused(lines: list[str]) -> None:
    """Lines are parsed one by one: ``[1`` and ``2]`` together are not a record."""
    with contextlib.suppress(ValueError, KeyError):
        assert blockwise(JsonLinesFormat(), lines) is None


TOKENS = ["[", "]", "{", "}", ",", ":", "1", '"a"', " ", "NaN", "-Infinity", '"NaN"', '"Infinity"']


@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=6).map("".join), min_size=1, max_size=4))
@example(['"NaN"', "1"])
def test_json_blocks_and_lines_agree(lines: list[str]) -> None:
    """A block gives the values of its lines, or none of them. One word that is not JSON may stand in its texts."""
    try:
        values = blockwise(JsonLinesFormat(), lines)
    except (ValueError, KeyError):
        values = None
    try:
        expected = [linewise(JsonLinesFormat(), [line]) for line in lines]
    except LineError:
        expected = []
    each_is_one = bool(expected) and all(len(one) == 1 for one in expected)
    if values is None:
        text = "".join(lines)
        assert not each_is_one or ("NaN" in text and "Infinity" in text)
    else:
        assert each_is_one
        assert values == [value for [value] in expected]


def test_blank_lines() -> None:
    """Blank lines are not records, except as text."""
    assert linewise(JsonLinesFormat(), ["1", "", " \r", "2"]) == [1, 2]
    assert linewise(CsvFormat(("a",), header=False, record="tuple"), ["1", "", "2"]) == [("1",), ("2",)]
    assert linewise(TextFormat(), ["1", "", "2\r"]) == ["1", "", "2"]
    assert blockwise(TextFormat(), ["1", "", "2\r"]) == ["1", "", "2"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CsvFormat(header=False), "a CSV file without a header needs columns"),
        (lambda: CsvFormat(("a", "a")), "columns must be different names, at least one"),
        (lambda: CsvFormat(()), "columns must be different names, at least one"),
        (lambda: CsvFormat(("a",), types={"b": int}), r"types names columns \['b'\]"),
        (lambda: CsvFormat(record="list"), "record must be 'dict' or 'tuple', got 'list'"),  # type: ignore[arg-type]
        (lambda: CsvFormat(delimiter=",,"), "delimiter must be one character"),
        (lambda: CsvFormat(delimiter=5), "delimiter must be one character, got 5"),  # type: ignore[arg-type]
        (lambda: CsvFormat([1, 2]), "columns holds 1, and a column is a name"),  # type: ignore[list-item]
        (lambda: CsvFormat((("k", str), ("n", int))), r"fix: name it 'k', .* types=\{'k': str\}"),  # type: ignore[arg-type]
        (lambda: CsvFormat(types={"a": "int"}), r"types\['a'\] is 'int'; it must be a function"),  # type: ignore[dict-item]
        (lambda: TextFormat("utf-16"), "encoding 'utf-16' writes a line break as"),
        (lambda: TextFormat("klingon"), "unknown encoding 'klingon'"),
    ],
)
def test_bad_formats_are_refused(make: Any, message: str) -> None:
    """A format that cannot work is refused where it is made."""
    with pytest.raises(ConfigurationError, match=message):
        make()
