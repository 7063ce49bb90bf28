"""Rows: bytes that order and split as the snapshot format does."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, strategies as st
from sortedcontainers import SortedDict

from state_backends.codec import default_codec
from state_backends.rows import encode_time, encoded_length, group_prefix, occupied_parts, part_prefix, successor
from state_backends.rows.layout import decode_time
from tests.state_backends.support import values

codec = default_codec()
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


@given(values, values, st.binary(max_size=3))
def test_the_length_of_an_encoded_value_is_found(value: Any, behind: Any, before: bytes) -> None:
    """Whatever stands before and behind a value, its end is found."""
    encoded = codec.encode(value)
    assert encoded_length(before + encoded + codec.encode(behind), len(before)) == len(encoded)


SIZES = [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "make", [lambda n: "x" * n, bytes, lambda n: [1] * n, lambda n: dict.fromkeys(range(n)), lambda n: (None,) * n]
)
def test_the_length_is_found_at_every_width(make: Any, size: int) -> None:
    """Every form in which msgpack writes a length is known."""
    encoded = codec.encode(make(size))
    assert encoded_length(encoded + b"\xff", 0) == len(encoded)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 16, 17, 255, 256, 65_535, 65_536])
def test_the_length_of_an_extension_is_found(size: int) -> None:
    """Marks of types are extensions, of any size."""
    encoded = msgpack.packb(msgpack.ExtType(40, b"x" * size))
    assert encoded_length(encoded + b"\x00", 0) == len(encoded)


@pytest.mark.parametrize("value", [1.5, -1, -33, -129, -40_000, -(1 << 40), 127, 128, 1 << 16, 1 << 32, True, None])
def test_the_length_of_a_number_is_found(value: Any) -> None:
    """Numbers of every width, and the three words."""
    assert encoded_length(codec.encode(value) + b"\x00", 0) == len(codec.encode(value))
    single = msgpack.packb(1.5, use_single_float=True)
    assert encoded_length(single + b"\x00", 0) == len(single)


@given(st.binary(min_size=1, max_size=6).filter(lambda prefix: prefix[0] < 0xFF), st.binary(max_size=3), st.binary())
def test_a_scan_ends_behind_all_that_begin_alike(prefix: bytes, rest: bytes, other: bytes) -> None:
    """The successor of a prefix is behind everything that begins with it and before everything else that is behind."""
    end = successor(prefix)
    assert prefix <= prefix + rest < end
    assert other < end or not other.startswith(prefix)
    assert other <= prefix or other.startswith(prefix) or other >= end


@given(TIMES, TIMES)
def test_times_order_as_their_bytes(left: int, right: int) -> None:
    """Of every sign."""
    assert (left < right) == (encode_time(left) < encode_time(right))
    assert decode_time(encode_time(left)) == left


class Rows:
    """Rows that count how often they are scanned."""

    def __init__(self, keys: list[bytes]) -> None:
        self.rows = SortedDict(dict.fromkeys(keys, b""))
        self.scans = 0

    def scan(self, first: bytes, end: bytes | None) -> Any:
        self.scans += 1
        return ((key, b"") for key in self.rows.irange(first, end, (True, False)))


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 255, 65_535]), st.binary(max_size=2))))
def test_what_is_occupied_is_found_without_reading_it_all(found: list[tuple[int, int, bytes]]) -> None:
    """Exactly the parts with rows, in order, by one seek for each and few more."""
    rows = Rows([part_prefix(group, state_id) + rest for group, state_id, rest in found])
    expected = sorted({(group, state_id) for group, state_id, _ in found if 3 <= group <= 290})

    assert list(occupied_parts(rows, 3, 290)) == expected
    # Behind each group there may be a gap, over which seeks double.
    assert rows.scans <= len(expected) + 10 * (len({group for group, _ in expected}) + 1)


def test_prefixes_order_by_group_and_then_by_state() -> None:
    """Key groups and ids up to the highest."""
    prefixes = [part_prefix(group, state_id) for group in (0, 1, 255, 256, 32_767) for state_id in (0, 1, 65_535)]
    assert prefixes == sorted(prefixes)
    assert all(prefix.startswith(group_prefix(32_767)) for prefix in prefixes[-3:])
    assert prefixes[-1] + b"\xff\xff" < successor(prefixes[-1]) <= group_prefix(32_768)
