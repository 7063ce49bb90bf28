"""The codec: each value comes back exactly, or is refused with the place and the remedy."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    CorruptStateError,
    StateArgumentError,
    StateMigrationError,
    StateSchemaError,
    StateSerializationError,
)
from state_backends.codec import StateCodec, TypeRegistry, register_record_type
from tests.state_backends.support import map_keys, same, values


class Point(NamedTuple):
    """A registered NamedTuple."""

    x: int
    y: int


@dataclasses.dataclass
class Reading:
    """A registered dataclass."""

    at: datetime.datetime
    points: list[Point]


class Colour(enum.IntEnum):
    """A subclass of int."""

    RED = 1


def codec_with_types() -> StateCodec:
    """A codec that knows the classes of this module."""
    registry = TypeRegistry()
    register_record_type(32, Point, registry=registry)
    register_record_type(33, Reading, registry=registry)
    return StateCodec(registry)


@given(values)
def test_values_round_trip_exactly(value: Any) -> None:
    """Every value comes back equal, with the same types in all its parts and dicts in the same order."""
    codec = StateCodec()

    assert same(value, codec.decode(codec.encode(value)))


@given(st.floats())
def test_floats_keep_every_bit(value: float) -> None:
    """Floats keep their bits: -0.0, infinities and NaN too."""
    codec = StateCodec()

    assert struct.pack(">d", value) == struct.pack(">d", codec.decode(codec.encode(value)))


@given(st.lists(map_keys, min_size=2, max_size=2, unique=True))
def test_no_encoding_is_a_prefix_of_another(keys: list[Any]) -> None:
    """Encodings of different keys are no prefixes of each other, so they can be concatenated and compared."""
    left, right = map(StateCodec().encode, keys)

    assert not left.startswith(right)
    assert not right.startswith(left)


def test_equal_keys_of_different_types_encode_apart() -> None:
    """1, 1.0 and True, which are equal in Python, have three encodings."""
    codec = StateCodec()

    assert len({codec.encode(1), codec.encode(1.0), codec.encode(True)}) == 3
    assert codec.encode([1]) != codec.encode((1,))


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.UTC),
        datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(minutes=-90))),
        datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(0), "Zulu")),
        datetime.datetime(2024, 10, 27, 2, 30, fold=1),
        datetime.date(1, 1, 1),
        datetime.timedelta(-1, 1, 1),
        datetime.time(5, 17, 0, 1),
        datetime.time(23, 59, fold=1, tzinfo=datetime.timezone(datetime.timedelta(minutes=-90))),
        decimal.Decimal("1.50"),
        decimal.Decimal("NaN123"),
        decimal.Decimal("-0E+7"),
    ],
)
def test_built_in_types_keep_everything(value: Any) -> None:
    """Zone, zone name, fold, scale and NaN payload survive: compared by repr, which shows them all."""
    codec = StateCodec()

    assert repr(value) == repr(codec.decode(codec.encode(value)))


def test_registered_classes_round_trip_inside_each_other() -> None:
    """A dataclass that holds NamedTuples and datetimes comes back as those classes."""
    codec = codec_with_types()
    reading = Reading(datetime.datetime(2024, 1, 1), [Point(1, -2)])

    found = codec.decode(codec.encode({"r": (reading,)}))["r"][0]

    assert reading == found
    assert type(found.points[0]) is Point


@pytest.mark.parametrize(
    ("value", "path", "hint"),
    [
        ({"a": [0, 1, 2, {3}]}, r"value\['a'\]\[3\]", "no order"),
        ([(1, frozenset())], r"value\[0\]\[1\]", "no order"),
        ({(1, 1 << 64): 0}, r"value\.key\(\(1, 18446744073709551616\)\)\[1\]", "64 bits"),
        (-(1 << 63) - 1, "value", "64 bits"),
        ("a\ud800", "value", "surrogate at index 1"),
        (Colour.RED, "value", r"Colour, a subclass of int.*int\(value\)"),
        (Point(1, 2), "value", "register_record_type"),
        (collections.Counter("a"), "value", r"dict\(value\)"),
        (1j, "value", r"value\.real"),
        ([object()], r"value\[0\]", "builtins.object, which is not registered"),
        (datetime.datetime(2024, 1, 1, tzinfo=__import__("zoneinfo").ZoneInfo("UTC")), "value", "fixed offset"),
    ],
)
def test_what_cannot_come_back_is_refused(value: Any, path: str, hint: str) -> None:
    """The error names the path inside the value, what is wrong and how to mend it."""
    with pytest.raises(StateSerializationError, match=rf"(?s)^{path} cannot be written to state: .*{hint}") as info:
        StateCodec().encode(value)

    assert info.value.path.startswith("value")


def test_a_value_that_contains_itself_is_refused() -> None:
    """Infinite nesting ends in an error of ours, not in a crash."""
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(StateSerializationError, match="nested too deeply"):
        StateCodec().encode(loop)


@pytest.mark.parametrize("depth", range(1015, 1035))
def test_what_can_be_written_can_be_read(depth: int) -> None:
    """At the limit of nesting, a value is either refused when written or comes back: never written for nothing."""
    codec = StateCodec()
    value: Any = 0
    for _ in range(depth):
        value = [value]
    try:
        encoded = codec.encode(value)
    except StateSerializationError:
        return

    # Comparing such values would exhaust Python's own stack: their encodings tell.
    assert codec.encode(codec.decode(encoded)) == encoded


def test_a_failed_encoding_leaves_nothing_behind() -> None:
    """After a refusal the same codec encodes the next value as if nothing had happened."""
    codec = StateCodec()
    with pytest.raises(StateSerializationError):
        codec.encode([1, 2, {3}])

    assert codec.encode(7) == StateCodec().encode(7)


def test_old_versions_are_migrated() -> None:
    """A record written in version 1 is brought to version 2 by upgrade, which gets the old version."""
    old, new = TypeRegistry(), TypeRegistry()
    register_record_type(40, Point, registry=old)
    register_record_type(
        40,
        Point,
        version=2,
        registry=new,
        upgrade=lambda fields, version: {"x": fields["x"] * 10 + version, "y": fields["y"]},
    )
    encoded = StateCodec(old).encode([Point(1, 2)])

    assert StateCodec(new).decode(encoded) == [Point(11, 2)]
    assert StateCodec(new).decode(StateCodec(new).encode(Point(1, 2))) == Point(1, 2)


def test_a_newer_version_is_refused() -> None:
    """State of a newer program is not guessed at."""
    old, new = TypeRegistry(), TypeRegistry()
    register_record_type(40, Point, registry=old)
    register_record_type(40, Point, version=2, registry=new)

    with pytest.raises(StateSchemaError, match=r"version 2 of .*Point .*versions up to 1"):
        StateCodec(old).decode(StateCodec(new).encode(Point(1, 2)))


def test_an_unknown_type_code_is_refused() -> None:
    """A value of a class that this program has not registered says what to do."""
    with pytest.raises(StateSchemaError, match=r"type code 32, .*register_type"):
        StateCodec().decode(codec_with_types().encode(Point(1, 2)))


def test_a_failing_from_state_says_which_version_it_could_not_read() -> None:
    """An exception in from_state becomes a migration error with the class and version."""
    registry = TypeRegistry()
    registry.register_type(50, Point, list, lambda state, version: Point(*state, version))

    with pytest.raises(StateMigrationError, match=r"version 1 of .*Point"):
        StateCodec(registry).decode(StateCodec(registry).encode(Point(1, 2)))


def test_registrations_that_would_break_files_are_refused() -> None:
    """A code keeps its class, a class keeps its code, and both are in range."""
    registry = TypeRegistry()
    register_record_type(40, Point, registry=registry)
    register_record_type(40, Point, version=2, registry=registry)

    with pytest.raises(StateArgumentError, match=r"already stands for .*Point"):
        register_record_type(40, Reading, registry=registry)
    with pytest.raises(StateArgumentError, match="already registered under code 40"):
        register_record_type(41, Point, registry=registry)
    with pytest.raises(StateArgumentError, match="not within 32 to 127"):
        register_record_type(4, Reading, registry=registry)
    with pytest.raises(StateArgumentError, match="not within 1 to 65535"):
        register_record_type(42, Reading, version=0, registry=registry)
    with pytest.raises(StateArgumentError, match="neither a dataclass nor a NamedTuple"):
        register_record_type(43, Colour, registry=registry)


@given(st.binary(max_size=30))
def test_foreign_bytes_are_an_error_of_ours(data: bytes) -> None:
    """Decoding any bytes gives a value or an error of ours, never another exception."""
    with contextlib.suppress(CorruptStateError, StateSchemaError):
        StateCodec().decode(data)


def test_copies_share_nothing_mutable() -> None:
    """A copy of a value can be changed without changing the value."""
    value = {"a": [1]}
    copied = StateCodec().copy(value)
    copied["a"].append(2)

    assert value == {"a": [1]}
