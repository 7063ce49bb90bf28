"""Records as lines of text."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from operators.files.formats import CsvRowFormat, JsonLinesRowFormat
from operators.files.writing import partition_path
from operators.files.writing.bucket import check_bucket_id

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)


@given(st.dictionaries(TEXTS, st.one_of(st.none(), st.integers(), TEXTS), max_size=4))
def test_json_rows_come_back(record: dict[str, Any]) -> None:
    """Any text is one line, and reading it gives the record in its own order."""
    line = JsonLinesRowFormat().encode(record)

    assert "\n" not in line
    assert list(json.loads(line).items()) == list(record.items())


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(TEXTS, st.integers()), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(VALUES)
def test_json_rows_are_those_of_the_json_module(value: Any) -> None:
    """The fast way gives the very text of ``json.dumps``."""
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    assert JsonLinesRowFormat().encode(value) == expected


def test_json_rows_are_compact_and_know_dates() -> None:
    """No spaces, text as it is, dates and times in ISO 8601, decimals as text."""
    record = {"é": datetime.date(2013, 1, 2), "t": datetime.datetime(2013, 1, 2, 3, 4), "d": decimal.Decimal("1.10")}

    assert JsonLinesRowFormat().encode(record) == '{"é":"2013-01-02","t":"2013-01-02T03:04:00","d":"1.10"}'


@pytest.mark.parametrize("record", [{"a": float("nan")}, {"a": {1, 2}}, object()])
def test_what_is_not_json_is_refused(record: object) -> None:
    """What JSON cannot express exactly is not written."""
    with pytest.raises((TypeError, ValueError)):
        JsonLinesRowFormat().encode(record)


FIELDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"), max_size=5)


@given(st.lists(FIELDS, min_size=1))
def test_csv_rows_come_back(row: list[str]) -> None:
    """Whatever is in a field, reading the line gives it again."""
    line = CsvRowFormat().encode(row)

    assert list(csv.reader([line], strict=True)) == [row]


def test_a_column_that_a_record_lacks_is_named() -> None:
    """The error also names the columns that the record has."""
    with pytest.raises(ValueError, match="the record has no column 'b'; it has 'a', 'c'"):
        CsvRowFormat(("a", "b")).encode({"a": 1, "c": 2})


@pytest.mark.parametrize("delimiter", ["||", "", '"', "\n", None])
def test_a_delimiter_is_one_character(delimiter: Any) -> None:
    """Another one is refused where the format is made."""
    with pytest.raises(ConfigurationError, match="delimiter must be one character"):
        CsvRowFormat(delimiter=delimiter)


def test_csv_rows_from_dicts() -> None:
    """Columns select and order the fields of a dict; None is an empty field."""
    assert CsvRowFormat(("b", "a"), delimiter=";").encode({"a": None, "b": 1.5, "c": 3}) == "1.5;"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"a": 1}, "give CsvRowFormat the columns to write"),
        ("text", "a CSV row is a tuple, a list or a dict, not str"),
        (("a\nb",), "a field has a line break"),
    ],
)
def test_what_is_no_csv_row_is_refused(record: object, problem: str) -> None:
    """The error says which rows are accepted."""
    with pytest.raises((TypeError, ValueError), match=problem):
        CsvRowFormat().encode(record)


@pytest.mark.parametrize("columns", ["ab", ()])
def test_bad_columns_are_refused(columns: Any) -> None:
    """A single string is not a sequence of names here."""
    with pytest.raises(ConfigurationError, match="columns must be a sequence of names"):
        CsvRowFormat(columns)


def test_partition_paths() -> None:
    """Hive's escapes: special characters as %XX, nothing as the default partition."""
    assert partition_path(year=2013, city="São Paulo") == "year=2013/city=São Paulo"
    assert partition_path(a="x/y=z:%", b=None, c="") == (
        "a=x%2Fy%3Dz%3A%25/b=__DEFAULT_PARTITION__/c=__DEFAULT_PARTITION__"
    )


@given(st.dictionaries(st.from_regex(r"[a-z]+", fullmatch=True), TEXTS, min_size=1, max_size=3))
def test_partition_paths_are_buckets(columns: dict[str, str]) -> None:
    """Whatever the values are, the path stays below the sink's directory and is seen by readers."""
    assert check_bucket_id(partition_path(**columns)).count("/") == len(columns) - 1


@pytest.mark.parametrize("bucket", ["/etc", "../x", "a//b", "a/..", ".hidden", "a/_temporary", "a/", "a\0b", 7, None])
def test_bad_buckets_are_refused(bucket: Any) -> None:
    """A bucket can neither leave the sink's directory nor hide from readers."""
    with pytest.raises((TypeError, ValueError)):
        check_bucket_id(bucket)
