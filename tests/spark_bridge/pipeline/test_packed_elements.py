"""Elements of a channel come out of a block as they went in, types included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, checked_columns
from engine.elements.errors import StateError
from engine.elements.events import EndOfData, Watermark, WatermarkStatus
from spark_bridge.pipeline import packed_elements
from spark_bridge.pipeline.packed_elements import Element, pack, packed_within, unpack

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
pairs = st.tuples(st.text(max_size=3), values)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    records = draw(st.lists(pairs, min_size=1, max_size=5) | st.lists(values, min_size=1, max_size=5))
    count = len(records)
    stamps = draw(st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    keys = draw(st.none() | st.lists(st.text(max_size=3), min_size=count, max_size=count))
    return Batch(records, stamps, keys)


events = st.builds(Watermark, st.integers(-(2**63), 2**63 - 1)) | st.builds(WatermarkStatus, st.booleans())
elements = st.lists(batches() | events | st.just(EndOfData()), max_size=6)


@given(elements)
def test_elements_come_out_as_they_went_in(sent: list[Element]) -> None:
    """Records of any plain shape, with event times and keys, between events."""
    received = list(unpack(pack(sent, "edge"), "edge"))
    assert list(map(_plain, received)) == list(map(_plain, sent))


def _plain(element: Element) -> Any:
    if isinstance(element, Batch):
        return [repr(element.values), element.timestamps, element.keys]
    return element


def _near(drawn: tuple[int, list[int]]) -> list[int]:
    """Numbers near to the first one, on the side where there is room."""
    middle, distances = drawn
    return [middle - one if middle > 0 else middle + one for one in distances]


@pytest.mark.parametrize("keyed", [False, True])
def test_columns_cross_as_columns(keyed: bool) -> None:
    """Of every type; keys of several fields too."""
    columns, count = checked_columns({
        "number": np.arange(4), "part": np.array([0.5, -0.0, 1e300, 2.0]), "flag": np.array([True, False, True, True]),
        "text": np.array(["a", "", "ü", "b"], dtype=object), "bytes": np.array([b"", b"x", b"yz", b"\0"], dtype=object),
    })  # fmt: skip
    keys = np.empty(4, dtype=object)
    keys[:] = [(1, "a"), (2, "b"), (1, "a"), (3, "c")]
    sent = ColumnBatch(columns, count, np.arange(4) * 10, keys if keyed else None)
    (received,) = unpack(pack([sent], "edge"), "edge")
    assert isinstance(received, ColumnBatch)
    assert repr(received.values) == repr(sent.values)
    assert received.timestamps == sent.timestamps
    assert received.keys == sent.keys
    assert {name: column.dtype for name, column in received.columns.items()} == {
        name: column.dtype for name, column in sent.columns.items()
    }


longs = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(longs, max_size=5) | st.tuples(longs, st.lists(st.integers(0, 2**33), max_size=5)).map(_near))
def test_whole_numbers_cross_in_few_bytes(numbers: list[int]) -> None:
    """They come back as they were, near to each other or not, and cannot be written to."""
    sent = ColumnBatch({"n": np.array(numbers, dtype=np.int64)}, len(numbers))
    packed = pack([sent], "edge")
    (received,) = unpack(packed, "edge")
    assert isinstance(received, ColumnBatch)
    column = received.columns["n"]
    assert (column.tolist(), column.dtype, column.flags.writeable) == (numbers, np.dtype(np.int64), False)
    spread = max(numbers, default=0) - min(numbers, default=0)
    width = next(bytes_ for bytes_ in (1, 2, 4, 8) if spread < 2 ** (8 * bytes_))
    assert len(packed) <= width * len(numbers) + 40


def test_a_column_that_is_the_keys_crosses_once() -> None:
    """And is the keys on the other side, also of a part of the batch."""
    numbers = np.arange(10**6, 10**6 + 5_000)
    columns = {"other": numbers, "key": numbers * 2**40}
    sent = ColumnBatch(columns, 5_000, None, columns["key"]).between(0, 4_000)
    packed = pack([sent], "edge")
    (received,) = unpack(packed, "edge")
    assert isinstance(received, ColumnBatch)
    assert received.key_column is received.columns["key"]
    assert received.keys == [row["key"] for row in sent.values]
    assert len(packed) < 4_000 * (8 + 2) + 200


def test_a_record_that_cannot_cross_is_named_with_its_edge() -> None:
    """And the error says where in the record."""
    with pytest.raises(StateError, match=r"(?s)from a to b.*object.*plain values"):
        pack([Batch([{"deep": [object()]}])], "from a to b")


@given(elements, st.integers(20, 200))
def test_pieces_are_small_and_make_the_whole(sent: list[Element], most: int) -> None:
    """A piece is larger only when a single record, or an event, is."""
    pieces = list(packed_within(sent, "edge", most))
    received = [element for piece in pieces for element in unpack(piece, "edge")]
    assert _records(received) == _records(sent)
    for piece in pieces:
        inside = list(unpack(piece, "edge"))
        assert len(piece) <= most or len(inside) == 1 >= _size(inside[0])


def _size(element: Element) -> int:
    return len(element) if isinstance(element, Batch) else 1


def _records(some: list[Element]) -> list[str]:
    """Records and events in order, whatever batches they are in."""
    found = []
    for element in some:
        if isinstance(element, Batch):
            count = len(element)
            stamps, keys = element.timestamps or [None] * count, element.keys or [None] * count
            found += [repr(record) for record in zip(element.values, stamps, keys, strict=True)]
        else:
            found.append(repr(element))
    return found


def test_a_record_that_is_too_large_is_refused_with_its_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller one beside it changes nothing; the error has the way out."""
    monkeypatch.setattr(packed_elements, "LARGEST_RECORD_BYTES", 1_000)
    assert list(packed_within([Batch([b"x" * 900])], "read -> parse", 100))
    words = r"^a record on read -> parse has 1,\d\d\d bytes, and Spark moves at most 1,000 in one row\n  fix: make"
    with pytest.raises(StateError, match=words):
        list(packed_within([Batch([b"x", b"x" * 1_100])], "read -> parse", 100))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_an_int_of_more_than_64_bits_is_refused_with_its_edge(number: int) -> None:
    """As in state. The error says what to store instead."""
    with pytest.raises(StateError, match=rf"records on map -> sum.*the int {number} does not fit 64 bits. Store it as"):
        pack([Batch([(1, number)])], "map -> sum")
