"""Values of state as JSON and as text, for people and programs."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import msgpack
import pytest
from hypothesis import given, strategies as st

from state_backends.codec import StateCodec, TypeRegistry, inspecting_codec, plain, shown
from state_backends.codec.plain_values import InspectingRegistry, UnregisteredValue
from state_backends.codec.registry import type_mark

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.decimals(allow_nan=False) | st.timedeltas() | st.times(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(-5, 5), inner),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_every_state_value_has_a_json_form(value: Any) -> None:
    """Whatever the codec can store can be shown; strict JSON, and as text."""
    decoded = inspecting_codec().decode(StateCodec().encode(value))

    assert json.loads(json.dumps(plain(decoded), allow_nan=False)) == plain(decoded)
    assert isinstance(shown(plain(decoded)), str)


def test_different_values_look_different() -> None:
    """1, 1.0 and True, a list and a tuple, bytes and text: values that differ in state look different."""
    day = datetime.date(2013, 1, 2)
    alike = [
        1, 1.0, True, "1", b"1", None, "None", [1], (1,), [(1,)], ([1],), {"1": 1}, {1: 1}, {"$tuple": [1]}, [], (), {},
        "", b"", 0.0, -0.0, float("nan"), float("inf"), "nan", decimal.Decimal("1"), decimal.Decimal("1.0"), day,
        datetime.datetime(2013, 1, 2), str(day), datetime.timedelta(1), [1, 0, 0],
    ]  # fmt: skip

    assert len({json.dumps(plain(value)) for value in alike}) == len(alike)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1,), "(1,)"),
        ((1, "a"), "(1, 'a')"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": b"\x01"}, "{'a': b'\\x01'}"),
        ({1: 2.5}, "{1: 2.5}"),
        ({"$tuple": 3}, "{'$tuple': 3}"),
        (float("inf"), "inf"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2013, 1, 2), "2013-01-02"),
        (datetime.timedelta(hours=3), "3:00:00"),
        (datetime.time(5, 17), "05:17:00"),
        (UnregisteredValue(40, 2, [1, "x"]), "<type 40 version 2: [1, 'x']>"),
    ],
)
def test_values_are_shown_as_python_writes_them(value: Any, text: str) -> None:
    """People read the text."""
    assert shown(plain(value)) == text


def test_types_of_other_programs_are_kept_as_they_are() -> None:
    """Reading for people needs no registration, and the shared registry learns nothing."""
    program = TypeRegistry()
    program.register_type(40, complex, lambda value: [value.real, value.imag], lambda state, version: complex(*state))
    data = StateCodec(program).encode(complex(1, 2))

    codec = inspecting_codec()
    assert codec.decode(data) == UnregisteredValue(40, 1, [1.0, 2.0])
    assert codec.encode(codec.decode(data)) == data
    assert InspectingRegistry().for_class(complex) is None


def test_types_of_a_newer_weir_are_shown() -> None:
    """The codes that belong to this project are taken as those of programs are."""
    data = msgpack.packb([type_mark(5, 1), 7])

    assert inspecting_codec().decode(data) == UnregisteredValue(5, 1, 7)
