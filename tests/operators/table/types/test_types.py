"""Types of tables: values that have them, values that do not, and the same value out of a text and out of JSON."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from operators.table.types import TypeNameError, data_type

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=2))


class Finer(datetime.datetime):
    """Has more digits than Python's own, as the timestamps of pandas."""

    nanosecond = 1


VALUES: list[tuple[str, Any, Any, str]] = [
    ("TINYINT", -128, -128, "-128"),
    ("INT", 2**31 - 1, 2**31 - 1, "2147483647"),
    ("FLOAT", 0.1, 0.10000000149011612, "0.1"),
    ("DOUBLE", 3, 3.0, "3.0"),
    ("DECIMAL(5, 2)", decimal.Decimal("1.5"), decimal.Decimal("1.50"), "1.50"),
    ("DECIMAL", 7, decimal.Decimal(7), "7"),
    ("BOOLEAN", True, True, "true"),
    ("BYTES", b"\xff\n", b"\xff\n", "/wo="),
    ("DATE", datetime.date(1969, 1, 31), datetime.date(1969, 1, 31), "1969-01-31"),
    ("TIME(3)", datetime.time(5, 17, 0, 1000), datetime.time(5, 17, 0, 1000), "05:17:00.001"),
    ("TIMESTAMP", datetime.datetime(1, 1, 1), datetime.datetime(1, 1, 1), "0001-01-01 00:00:00"),
    (
        "TIMESTAMP_LTZ(3)", datetime.datetime(2013, 1, 1, 5, tzinfo=EAST), datetime.datetime(2013, 1, 1, 3, tzinfo=UTC),
        "2013-01-01 03:00:00Z",
    ),
    ("ARRAY<INT>", (1, None), [1, None], "[1,null]"),
    ("MAP<STRING, DATE>", {"a": datetime.date(2013, 1, 1)}, {"a": datetime.date(2013, 1, 1)}, '{"a":"2013-01-01"}'),
    ("ROW<x INT, y DECIMAL(3, 1)>", {"y": 2}, {"x": None, "y": decimal.Decimal("2.0")}, '{"x":null,"y":"2.0"}'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "held", "text"), VALUES)
def test_a_value_is_the_same_everywhere(name: str, value: Any, held: Any, text: str) -> None:
    """As it is checked, as a text, and as JSON in both standards."""
    kind = data_type(name)
    checked = kind.checked(value)
    assert (repr(checked), kind.to_text(checked)) == (repr(held), text)
    assert repr(kind.of_text(text)) == repr(held)
    for iso in (False, True):
        plain = json.loads(json.dumps(kind.to_json(checked, iso=iso)))
        assert repr(kind.of_json(plain, iso=iso)) == repr(held)
        if name.startswith("TIMESTAMP"):
            assert plain[10] == "T" if iso else plain[10] == " "


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TINYINT", 128, "128 is no TINYINT: it does not fit 8 bits"),
        ("SMALLINT", -32769, "-32769 is no SMALLINT: it does not fit 16 bits"),
        ("INT", 2**31, "2147483648 is no INT: it does not fit 32 bits"),
        ("INT", True, "True is no INT"),
        ("FLOAT", 1e39, "1e[+]39 is no FLOAT: it does not fit 32 bits"),
        ("DOUBLE", -(10**400), "is no DOUBLE: it does not fit 64 bits"),
        ("BOOLEAN", 1, "1 is no BOOLEAN"),
        ("STRING", b"a", "b'a' is no STRING"),
        ("BYTES", "a", "'a' is no BYTES"),
        ("DECIMAL(5, 2)", decimal.Decimal("1.555"), "has more than 2 digits after the point"),
        ("DECIMAL(5, 2)", 1000, "1000 is no DECIMAL[(]5, 2[)]: it has more than 3 digits before the point"),
        ("DECIMAL(5, 2)", 1.5, "1.5 is no DECIMAL"),
        ("DECIMAL(5, 2)", decimal.Decimal("NaN"), "is no DECIMAL"),
        ("DATE", datetime.datetime(2013, 1, 1), "is no DATE"),
        ("TIME", datetime.time(5, 0, 0, 1), "is no TIME[(]0[)]: it has more than 0 digits of a second's fraction"),
        ("TIME", datetime.time(5, tzinfo=UTC), "is no TIME"),
        ("TIMESTAMP(3)", datetime.datetime(2013, 1, 1, 0, 0, 0, 1), "more than 3 digits of a second's fraction"),
        (
            "TIMESTAMP",
            datetime.datetime(2013, 1, 1, tzinfo=UTC),
            "it has a time zone: declare the column TIMESTAMP_LTZ",
        ),
        ("TIMESTAMP_LTZ", datetime.datetime(2013, 1, 1), "it has no time zone"),
        ("TIMESTAMP", Finer(2013, 1, 1), "it has more than 6 digits of a second's fraction"),
        ("TIMESTAMP_LTZ", datetime.datetime(1, 1, 1, tzinfo=EAST), "in UTC it is outside the years"),
        ("ARRAY<INT>", [1, "x"], "'x' is no INT"),
        ("ARRAY<INT>", "12", "'12' is no ARRAY<INT>"),
        ("MAP<STRING, INT>", {None: 1}, "a key is null"),
        ("MAP<STRING, INT>", [1], "is no MAP"),
        ("ROW<x INT>", {"x": 1, "z": 2}, "is no ROW<x INT>"),
    ],
)
def test_a_value_outside_its_type_is_told(name: str, value: Any, message: str) -> None:
    """With the value, the type and, where it is not plain, the reason."""
    with pytest.raises(ValueError, match=message):
        data_type(name).checked(value)


@pytest.mark.parametrize("name", ["DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "BYTES"])
def test_a_number_in_json_is_no_text(name: str) -> None:
    """It is malformed, and can be left out like other malformed values."""
    with pytest.raises(ValueError, match=rf"5 is no {name}"):
        data_type(name).of_json(5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INT INT", "'INT' comes after the end of INT"),
        ("INT;", "there is no place for ';' in it"),
        ("ARRAY<" * 33 + "INT" + ">" * 33, "nested more than 32 deep"),
        ("ARRAY(INT)", "'<' is expected where '[(]' is"),
        ("DECIMAL(1, 2, 3)", "DECIMAL takes 2 numbers"),
        ("DECIMAL(0)", "must have 1 to 38 digits"),
        ("DECIMAL(39)", "must have 1 to 38 digits"),
        ("TIME(x)", "'x' is no number of digits"),
        ("TIME(1 2)", "'[)]' is expected where '2' is"),
        ("MAP<ARRAY<INT>, INT>", "the key of a MAP is a simple type"),
        ("MAP<INT>", "',' is expected where '>' is"),
        ("ROW<< INT>", "the name of a field is expected where '<' is"),
    ],
)
def test_a_text_that_names_no_type_is_told(text: str, message: str) -> None:
    """With the place where it goes wrong."""
    with pytest.raises(TypeNameError, match=message):
        data_type(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INT", "2147483648"), ("INT", "-2147483649"), ("INT", "1_0"), ("FLOAT", "1e39"), ("DOUBLE", "1_0.5"),
        ("DOUBLE", "1 "), ("BOOLEAN", "yes"), ("DECIMAL(5, 2)", "1.555"), ("DECIMAL(5, 2)", "x"),
        ("BYTES", "?"), ("DATE", "2013-02-30"), ("DATE", "20130201"), ("TIME(3)", "05:17:00.0001"), ("TIME", "5:17"),
        ("TIMESTAMP(3)", "2013-01-01 00:00:00.0001"), ("TIMESTAMP", "2013-01-01 00:00:00Z"),
        ("TIMESTAMP_LTZ", "2013-01-01 00:00:00"), ("TIMESTAMP", "2013-01-01T00:00:00"), ("ARRAY<INT>", "[1"),
        ("ARRAY<INT>", "[1.5]"), ("ROW<x INT>", '{"x":"1"}'),
    ],
)  # fmt: skip
def test_a_text_that_stands_for_no_value_is_told(name: str, text: str) -> None:
    """Also one that would have to be cut or rounded."""
    with pytest.raises(ValueError, match=r"\w"):
        data_type(name).of_text(text)


def test_a_time_that_a_clock_shows_twice_is_the_one_that_is_meant() -> None:
    """An instant keeps its hour when clocks are set back; a local time has none to keep."""
    zone = ZoneInfo("Europe/Berlin")
    shown = [datetime.datetime(2013, 10, 27, 2, 30, tzinfo=zone, fold=fold) for fold in (0, 1)]
    assert [data_type("TIMESTAMP_LTZ").checked(one).hour for one in shown] == [0, 1]
    assert data_type("TIMESTAMP").checked(shown[1].replace(tzinfo=None)).fold == 0


@given(st.floats(width=32))
def test_the_text_of_a_float_is_read_as_the_same_float(value: float) -> None:
    """Though it is the shortest one, and most have no short decimal."""
    kind = data_type("FLOAT")
    assert repr(kind.of_text(kind.to_text(kind.checked(value)))) == repr(value)


@given(st.decimals(min_value=-(10**20), max_value=10**20, places=6))
def test_a_decimal_keeps_its_digits(value: decimal.Decimal) -> None:
    """More than a double has."""
    kind = data_type("DECIMAL(30, 6)")
    assert kind.of_text(kind.to_text(kind.checked(value))) == value
