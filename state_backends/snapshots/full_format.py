"""The full snapshot format: all keyed state of a key-group range, canonically ordered, in one file.

Every backend writes it through :class:`FullSnapshotWriter` (driven by the one task in
:mod:`state_backends.snapshots.full_task`) and reads it through
:class:`FullSnapshotReader`, so that a snapshot of one restores into any other. Entries are ordered by
(key group, state, encoded key, encoded namespace), states by (name, namespaced or not): the same state
gives the same bytes, whatever its history and whatever order the states were declared in.

File: preamble ``WEIRFULL``, a header frame, one frame per key group with entries (tag = key group),
an end frame. Byte by byte in ``docs/formats.md``.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from state_backends.base import (
    KeyGroupRange,
    KeyType,
    KeyTypeError,
    StateKind,
    StateSchemaError,
    check_keys,
    check_shape,
    flag,
    key_type_shape,
    list_of,
    optional,
    positive,
    row,
    text,
    values,
    whole,
)
from state_backends.codec import WRITTEN_SCHEMA, Frame, FrameReader, StateCodec, frame, preamble
from state_backends.snapshots.contract import COMPRESSIONS, CheckpointStream
from state_backends.snapshots.handles import FileStateHandle, StreamStateHandle
from state_backends.snapshots.keyed_handles import FullKeyedStateHandle

MAGIC = b"WEIRFULL"
FORMAT_VERSION = 1

_HEADER, _GROUP, _END = 1, 2, 3
_ZLIB_LEVEL = 1
_WRITE_BYTES = 1 << 16
"""Frames of key groups are put together for the stream, up to about this size."""
_KNOWN_KINDS = frozenset(kind.value for kind in StateKind)


@dataclass(frozen=True, slots=True, order=True)
class StateId:
    """One sequence of entries in a snapshot: a state's entries with, or without, a namespace.

    :ivar name: the state's name
    :ivar namespaced: whether the entries have a namespace
    :ivar kind: the kind's name in files
    """

    name: str
    namespaced: bool
    kind: str

    def to_state(self) -> list[Any]:
        """A plain form for files."""
        return [self.name, self.namespaced, self.kind]

    @classmethod
    def from_state(cls, state: list[Any]) -> StateId:
        """The id that :meth:`to_state` described."""
        return cls(*state)


class EncodedBlock(NamedTuple):
    """The entries of one state in one key group, sorted, as encoded columns.

    :ivar state: the state
    :ivar num_entries: how many entries
    :ivar keys: an encoded list of the keys
    :ivar namespaces: an encoded list of the namespaces, or the encoded ``None``
    :ivar values: an encoded list of the values
    """

    state: StateId
    num_entries: int
    keys: bytes
    namespaces: bytes
    values: bytes


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """The entries of one state in one key group, as read.

    :ivar namespaces: parallel to the keys, or ``None`` when the state is not namespaced
    """

    key_group: int
    state: StateId
    keys: list[Any]
    namespaces: list[Any] | None
    values: list[Any]


STATE_ID = row(text, flag, text)
"""The shape of the plain form of a :class:`StateId`."""

_HEADER_SHAPE = row(
    key_type_shape, positive, row(whole, whole), list_of(STATE_ID), text, more=(WRITTEN_SCHEMA,)
)
_BLOCKS = list_of(row(whole, values, optional(values), values))


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """What a full snapshot says about itself.

    :ivar key_type: the declared type of all keys
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: the key groups that the writer owned
    :ivar states: the states that have entries, sorted
    :ivar compression: of the key-group frames
    :ivar schema: how its values are written (:mod:`state_backends.snapshots.state_schemas`), if any is needed
    """

    key_type: KeyType
    max_parallelism: int
    key_group_range: KeyGroupRange
    states: tuple[StateId, ...]
    compression: str
    schema: Any = None

    def to_state(self) -> list[Any]:
        """A plain form for files."""
        states = [one.to_state() for one in self.states]
        bounds = [self.key_group_range.first, self.key_group_range.last]
        plain = [self.key_type.to_state(), self.max_parallelism, bounds, states, self.compression]
        return plain if self.schema is None else [*plain, self.schema]

    @classmethod
    def from_state(cls, state: list[Any], path: str) -> SnapshotHeader:
        """The header that :meth:`to_state` described.

        :raises CorruptStateError: when it is none
        """
        check_shape(state, _HEADER_SHAPE, path, "header")
        key_type, max_parallelism, (first, last), states, compression, *schema = state
        read = tuple(map(StateId.from_state, states))
        bounds = KeyGroupRange(first, last)
        return cls(KeyType.from_state(key_type), max_parallelism, bounds, read, compression, *schema)


class FullSnapshotWriter:
    """Writes one full snapshot into a checkpoint stream, key group by key group."""

    def __init__(self, stream: CheckpointStream, codec: StateCodec, header: SnapshotHeader) -> None:
        assert list(header.states) == sorted(header.states)
        self._stream = stream
        self._codec = codec
        self._compress = header.compression == "zlib"
        self._range = header.key_group_range
        start = codec.array_header(4)
        self._starts = {state: (index, start + codec.encode(index)) for index, state in enumerate(header.states)}
        self._offsets: list[tuple[int, int]] = []
        self._entries = 0
        stream.write(preamble(MAGIC, FORMAT_VERSION) + frame(_HEADER, 0, codec.encode(header.to_state())))

    def write_groups(self, groups: Iterable[tuple[int, Sequence[EncodedBlock]]]) -> None:
        """Write the entries of key groups; groups ascend, blocks ascend by state, none is empty."""
        frames: list[bytes] = []
        written, size = self._stream.tell(), 0
        for key_group, blocks in groups:
            assert not self._offsets or self._offsets[-1][0] < key_group
            self._offsets.append((key_group, written + size))
            frames.append(frame(_GROUP, key_group, self._payload(blocks)))
            size += len(frames[-1])
            if size >= _WRITE_BYTES:
                self._stream.write(b"".join(frames))
                written, size, frames = written + size, 0, []
        if frames:
            self._stream.write(b"".join(frames))

    def _payload(self, blocks: Sequence[EncodedBlock]) -> bytes:
        assert blocks
        parts = [self._codec.array_header(len(blocks))]
        last = -1
        for state, num_entries, keys, namespaces, encoded in blocks:
            index, start = self._starts[state]
            assert index > last
            last = index
            assert num_entries > 0
            self._entries += num_entries
            parts += (start, keys, namespaces, encoded)
        payload = b"".join(parts)
        return zlib.compress(payload, _ZLIB_LEVEL) if self._compress else payload

    def finish(self) -> FullKeyedStateHandle:
        """Write the end and make the file durable."""
        self._stream.write(frame(_END, 0, self._codec.encode([len(self._offsets), self._entries])))
        stream_handle = self._stream.close_and_get_handle()
        assert stream_handle is not None
        return FullKeyedStateHandle(self._range, tuple(self._offsets), stream_handle)


class FullSnapshotReader:
    """Reads one full snapshot.

    :ivar path: how errors name it
    :ivar header: what it says about itself
    :ivar codec: reads keys and values; may be replaced after the header was read, by one that migrates values
    :raises CorruptStateError: from each method, when bytes read are not those written
    :raises StateSchemaError: from each method, when the file, or a value in it, needs a newer program
    """

    def __init__(self, file: BinaryIO, handle: FullKeyedStateHandle, codec: StateCodec) -> None:
        self._handle = handle
        self.codec = codec
        self.path = describe_stream(handle.stream)
        self._frames = FrameReader(file, self.path, MAGIC, FORMAT_VERSION)
        header = codec.decode(self._frames.read(bytes([_HEADER])).payload, self.path)
        self.header = SnapshotHeader.from_state(header, self.path)
        self._check_header()

    def blocks(self, key_groups: KeyGroupRange) -> Iterator[DecodedBlock]:
        """The entries of some key groups, in file order.

        When those are all that the file has, it is read through and checked from end to end; otherwise
        only the groups asked for are read.
        """
        whole = self._handle.key_group_range == self.header.key_group_range
        if whole and key_groups.intersection(self.header.key_group_range) == self.header.key_group_range:
            return self._decode(self._all_groups())
        return self._decode(self._some_groups(key_groups))

    def _check_header(self) -> None:
        for state in self.header.states:
            check_kind(state, self.path)
        if self.header.compression not in COMPRESSIONS:
            raise StateSchemaError(
                f"{self.path}: compression {self.header.compression!r} is not known to this program."
            )

    def _all_groups(self) -> Iterator[Frame]:
        found = []
        while (one := self._frames.read(bytes([_GROUP, _END]))).kind == _GROUP:
            found.append(one.tag)
            yield one
        self._frames.expect_end()
        expected = [group for group, _ in self._handle.offsets]
        if found != expected:
            raise self._frames.corrupt(f"it holds key groups {found}, but its handle says {expected}")

    def _some_groups(self, key_groups: KeyGroupRange) -> Iterator[Frame]:
        for group, offset in self._handle.offsets:
            if group in key_groups:
                self._frames.seek(offset)
                one = self._frames.read(bytes([_GROUP]))
                if one.tag != group:
                    raise self._frames.corrupt(f"the frame at {offset} is of key group {one.tag}, not {group}")
                yield one

    def _decode(self, groups: Iterator[Frame]) -> Iterator[DecodedBlock]:
        for one in groups:
            payload = one.payload
            if self.header.compression == "zlib":
                payload = self._decompress(one)
            blocks = self.codec.decode(payload, self.path)
            check_shape(blocks, _BLOCKS, self.path, f"key group {one.tag}")
            for block in blocks:
                yield self._checked(one.tag, *block)

    def _checked(
        self, key_group: int, index: int, keys: list[Any], namespaces: list[Any] | None, stored: list[Any]
    ) -> DecodedBlock:
        states = self.header.states
        if index >= len(states) or states[index].namespaced is (namespaces is None):
            raise self._frames.corrupt(f"malformed: key group {key_group} has entries of a state that it does not name")
        if not len(keys) == len(stored) == len(keys if namespaces is None else namespaces):
            raise self._frames.corrupt(f"malformed: key group {key_group} has more keys than values, or fewer")
        try:
            check_keys(keys, self.header.key_type)
        except KeyTypeError as problem:
            raise self._frames.corrupt(f"malformed: {problem}") from problem
        return DecodedBlock(key_group, states[index], keys, namespaces, stored)

    def _decompress(self, one: Frame) -> bytes:
        try:
            return zlib.decompress(one.payload)
        except zlib.error as problem:
            raise self._frames.corrupt(f"key group {one.tag} cannot be decompressed ({problem})") from problem


def content_digest(codec: StateCodec, blocks: Iterable[tuple[int, EncodedBlock]]) -> bytes:
    """A digest of keyed state: equal for equal content, whatever its history and whatever keeps it.

    :param blocks: all entries as (key group, block), by state and then by key group
    """
    digest = hashlib.blake2b(digest_size=16)
    for group, block in blocks:
        state = block.state
        digest.update(codec.encode([state.name, state.namespaced, state.kind, group]))
        digest.update(block.keys + block.namespaces + block.values)
    return digest.digest()


def check_kind(state: StateId, path: str) -> None:
    """Refuse a state of a kind that only newer programs know.

    :raises StateSchemaError: naming state and kind
    """
    if state.kind not in _KNOWN_KINDS:
        raise StateSchemaError(
            f"{path}: state {state.name!r} is of kind {state.kind!r}, which this program does "
            "not know. Use the newer program that wrote it."
        )


def describe_stream(stream: StreamStateHandle) -> str:
    """How errors name a stream."""
    if isinstance(stream, FileStateHandle):
        return stream.path
    return f"state of {stream.size_bytes} bytes inlined in the checkpoint's metadata"
