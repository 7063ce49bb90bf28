"""The file format of one segment of the log: ``WEIRCLOG``, byte by byte in ``docs/formats.md``.

A segment can be read alone: its header lists the states of its records. Records are not deduplicated: each change has
its record, in the order of the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from state_backends.base import (
    KeyGroupRange,
    KeyType,
    StateKind,
    check_shape,
    key_type_shape,
    list_of,
    optional,
    positive,
    row,
    text,
    values,
    whole,
)
from state_backends.codec import WRITTEN_SCHEMA, FrameReader, StateCodec, frame, preamble
from state_backends.snapshots import LogSegment, check_kind, describe_stream

MAGIC = b"WEIRCLOG"
FORMAT_VERSION = 1

_HEADER, _CHANGES, _END = 1, 2, 3
_FRAME_BYTES = 1 << 16
"""A frame ends with the record with which it reaches this size."""

_SHAPE = row(key_type_shape, positive, row(whole, whole), whole, whole, list_of(row(text, text, text)), WRITTEN_SCHEMA)
_RECORDS = list_of(row(whole, whole, values, optional(values), optional(values)))


@dataclass(frozen=True, slots=True)
class LoggedStateId:
    """A state of the records.

    :ivar name: the state's name; for timers, the name of their service
    :ivar kind: the kind of state
    :ivar variant: for timers ``event`` or ``processing``; for state with time-to-live ``ttl``; else empty
    """

    name: str
    kind: StateKind
    variant: str = ""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment.

    :ivar key_group_range: the key groups of the writer
    :ivar first: the sequence number of the first record
    :ivar end: the sequence number after the last record
    :ivar states: the states of the records; records name a state by its index here
    :ivar schema: the schema of the values, as the backend defines it
    """

    key_type: KeyType
    max_parallelism: int
    key_group_range: KeyGroupRange
    first: int
    end: int
    states: tuple[LoggedStateId, ...]
    schema: Any = None

    def to_state(self) -> list[Any]:
        bounds = [self.key_group_range.first, self.key_group_range.last]
        states = [[one.name, one.kind.value, one.variant] for one in self.states]
        described = [self.key_type.to_state(), self.max_parallelism, bounds, self.first, self.end, states]
        return [*described, self.schema]

    @classmethod
    def from_state(cls, state: list[Any], where: str) -> SegmentHeader:
        """The inverse of :meth:`to_state`. States of kinds that only newer programs know are refused."""
        check_shape(state, _SHAPE, where, "header")
        key_type, max_parallelism, (low, high), first, end, states, schema = state
        for name, kind, _ in states:
            check_kind(name, kind, where)
        read = tuple(LoggedStateId(name, StateKind(kind), variant) for name, kind, variant in states)
        groups = KeyGroupRange(low, high)
        return cls(KeyType.from_state(key_type), max_parallelism, groups, first, end, read, schema)


def encode_segment(header: SegmentHeader, records: Sequence[bytes], codec: StateCodec) -> bytes:
    """The bytes of a segment with these encoded records."""
    assert len(records) == header.end - header.first > 0
    parts = [preamble(MAGIC, FORMAT_VERSION), frame(_HEADER, 0, codec.encode(header.to_state()))]
    pending: list[bytes] = []
    size = 0
    for record in records:
        pending.append(record)
        size += len(record)
        if size >= _FRAME_BYTES:
            parts.append(frame(_CHANGES, 0, codec.joined(pending)))
            pending, size = [], 0
    if pending:
        parts.append(frame(_CHANGES, 0, codec.joined(pending)))
    parts.append(frame(_END, 0, codec.encode(len(records))))
    return b"".join(parts)


class SegmentReader:
    """Reads one segment.

    :ivar header: the header of the segment
    :ivar codec: reads the records; if their values need another codec, replace it before reading them
    :raises CorruptStateError: from each method, when the bytes read differ from the bytes written
    :raises StateSchemaError: from each method, when the file, or a value in it, needs a newer program
    """

    def __init__(self, file: BinaryIO, segment: LogSegment, codec: StateCodec) -> None:
        self.path = describe_stream(segment.stream)
        self.codec = codec
        self._frames = FrameReader(file, self.path, MAGIC, FORMAT_VERSION)
        described = codec.decode(self._frames.read(bytes([_HEADER])).payload, self.path)
        self.header = SegmentHeader.from_state(described, self.path)
        found = (self.header.first, self.header.end)
        if found != (segment.first, segment.end):
            raise self._frames.corrupt(
                f"it holds changes {found[0]} to {found[1]}, but its handle says {segment.first} to {segment.end}"
            )

    def records(self) -> Iterator[list[Any]]:
        """All records, in order. The whole file is checked before the first one is returned."""
        payloads = []
        while (one := self._frames.read(bytes([_CHANGES, _END]))).kind == _CHANGES:
            payloads.append(one.payload)
        self._frames.expect_end()
        expected = self.header.end - self.header.first
        if self.codec.decode(one.payload, self.path) != expected:
            raise self._frames.corrupt(f"its end does not confirm its {expected} changes")
        count = 0
        for payload in payloads:
            records = self.codec.decode(payload, self.path)
            check_shape(records, _RECORDS, self.path, "changes")
            count += len(records)
            yield from records
        if count != expected:
            raise self._frames.corrupt(f"it holds {count} changes, but says {expected}")
