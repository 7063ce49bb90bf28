"""The full snapshot format: all keyed state of a key-group range, canonically ordered, in one file.

Every backend writes it with this module and reads it with :mod:`state_backends.snapshots.full_reader`, so a snapshot of
one backend restores into any other. Entries are ordered by (key group, state, encoded key, encoded namespace), states
by (name, namespaced or not). So the same state gives the same bytes: neither its history nor the order in which states
were declared matters.

File: preamble ``WEIRFULL``, a header frame, one frame per key group with entries (tag = key group),
an end frame. Byte by byte in ``docs/formats.md``.

A backend implements :class:`FullSnapshotResources`, which gives the states and key groups with entries, and the entries
of one key group as encoded columns. All backends share the rest: the order, the header, the work of a step, and the
handling of an unfinished file. So equal state gives equal bytes on every backend.
"""

from __future__ import annotations

import hashlib
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from state_backends.base import (
    KeyGroupRange,
    KeyType,
    check_shape,
    flag,
    key_type_shape,
    list_of,
    positive,
    row,
    text,
    value_class,
    whole,
)
from state_backends.codec import WRITTEN_SCHEMA, StateCodec, default_codec, frame, preamble
from state_backends.snapshots.contract import (
    CheckpointStream,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StreamFactory,
)
from state_backends.snapshots.keyed_handles import FullKeyedStateHandle, KeyedStateHandle

MAGIC = b"WEIRFULL"
FORMAT_VERSION = 1

HEADER, GROUP, END = 1, 2, 3
_ZLIB_LEVEL = 1
_WRITE_BYTES = 1 << 16
"""Frames of key groups are joined for the stream, up to about this size."""


class StateId(NamedTuple):
    """One sequence of entries in a snapshot: a state's entries with, or without, a namespace.

    :ivar name: the state's name
    :ivar namespaced: whether the entries have a namespace
    :ivar kind: the kind's name in files
    """

    name: str
    namespaced: bool
    kind: str

    def to_state(self) -> list[Any]:
        return [self.name, self.namespaced, self.kind]


class EncodedBlock(NamedTuple):
    """The entries of one state in one key group, sorted, as encoded columns.

    :ivar state: the state
    :ivar num_entries: the number of entries
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

_HEADER_SHAPE = row(key_type_shape, positive, row(whole, whole), list_of(STATE_ID), text, more=(WRITTEN_SCHEMA,))


@value_class
class SnapshotHeader:
    """The header of a full snapshot.

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
        states = [one.to_state() for one in self.states]
        bounds = [self.key_group_range.first, self.key_group_range.last]
        plain = [self.key_type.to_state(), self.max_parallelism, bounds, states, self.compression]
        return plain if self.schema is None else [*plain, self.schema]

    @classmethod
    def from_state(cls, state: list[Any], path: str) -> SnapshotHeader:
        """The header that :meth:`to_state` described.

        :raises CorruptStateError: when it is not a header
        """
        check_shape(state, _HEADER_SHAPE, path, "header")
        key_type, max_parallelism, (first, last), states, compression, *schema = state
        read = tuple(StateId(*state) for state in states)
        bounds = KeyGroupRange(first, last)
        return cls(KeyType.from_state(key_type), max_parallelism, bounds, read, compression, *schema)


@lru_cache(256)  # The states of a subtask are the same, checkpoint after checkpoint.
def _starts(states: tuple[StateId, ...]) -> Mapping[StateId, tuple[int, bytes]]:
    """Of each state its number, and the first bytes of its blocks."""
    codec = default_codec()
    start = codec.array_header(4)
    return {state: (index, start + codec.encode(index)) for index, state in enumerate(states)}


def _first_bytes(header: SnapshotHeader) -> bytes:
    return preamble(MAGIC, FORMAT_VERSION) + frame(HEADER, 0, default_codec().encode(header.to_state()))


_beginning = lru_cache(256)(_first_bytes)
"""Of a header without a schema, which has no hash."""


class FullSnapshotWriter:
    """Writes one full snapshot into a checkpoint stream, key group by key group."""

    def __init__(self, stream: CheckpointStream, codec: StateCodec, header: SnapshotHeader) -> None:
        assert list(header.states) == sorted(header.states)
        self._stream = stream
        self._codec = codec
        self._compress = header.compression == "zlib"
        self._range = header.key_group_range
        self._starts = _starts(header.states)
        self._offsets: list[tuple[int, int]] = []
        self._entries = 0
        stream.write(_beginning(header) if header.schema is None else _first_bytes(header))

    def write_groups(self, groups: Iterable[tuple[int, Sequence[EncodedBlock]]]) -> None:
        """Write the entries of key groups. Groups ascend, blocks ascend by state, and no block is empty."""
        frames: list[bytes] = []
        written, size = self._stream.tell(), 0
        for key_group, blocks in groups:
            assert not self._offsets or self._offsets[-1][0] < key_group
            self._offsets.append((key_group, written + size))
            frames.append(frame(GROUP, key_group, self._payload(blocks)))
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
        self._stream.write(frame(END, 0, self._codec.encode([len(self._offsets), self._entries])))
        stream_handle = self._stream.close_and_get_handle()
        assert stream_handle is not None
        return FullKeyedStateHandle(self._range, tuple(self._offsets), stream_handle)


def content_digest(codec: StateCodec, blocks: Iterable[tuple[int, EncodedBlock]]) -> bytes:
    """A digest of keyed state: equal for equal content, on every backend and after any history.

    :param blocks: all entries as (key group, block), by state and then by key group
    """
    digest = hashlib.blake2b(digest_size=16)
    for group, block in blocks:
        state = block.state
        digest.update(codec.encode([state.name, state.namespaced, state.kind, group]))
        digest.update(block.keys + block.namespaces + block.values)
    return digest.digest()


def block_entries(codec: StateCodec, block: EncodedBlock) -> Iterator[tuple[Any, Any, Any]]:
    """Key, namespace (``None`` without one) and value of each entry of a block."""
    keys, values = codec.decode(block.keys, "keys"), codec.decode(block.values, "values")
    namespaces = codec.decode(block.namespaces, "namespaces") or [None] * len(keys)
    return zip(keys, namespaces, values, strict=True)


class Contents(NamedTuple):
    """The states and key groups with entries in a pinned view.

    :ivar states: the states with entries, sorted
    :ivar key_groups: the key groups with entries, ascending
    """

    states: list[StateId]
    key_groups: list[int]


@dataclass(eq=False)
class FullSnapshotResources(SnapshotResources):
    """A pinned view of all keyed state of a subtask. The key type is absent only before the first key."""

    codec: StateCodec
    key_type: KeyType | None
    max_parallelism: int
    key_group_range: KeyGroupRange
    schema: Any = None

    def header(self, states: Iterable[StateId], key_group_range: KeyGroupRange, compression: str) -> SnapshotHeader:
        """The header of a file with entries of these contents."""
        assert self.key_type is not None, "there are entries, so some key had a type"
        states = tuple(states)
        return SnapshotHeader(self.key_type, self.max_parallelism, key_group_range, states, compression, self.schema)

    @abstractmethod
    def contents(self) -> Contents:
        """The states and key groups with entries. Called once, before any block."""

    @abstractmethod
    def blocks(self, key_group: int) -> list[EncodedBlock]:
        """The entries of a key group, a block for each state that has some, by state.

        It is called once for each key group of :meth:`contents`, in that order.

        :raises StateSerializationError: names the value that cannot be written
        """


class FullSnapshotTask(SnapshotTask[KeyedStateHandle]):
    """Writes a pinned view in the full format.

    A step writes whole key groups, at least one, until it has written ``entries_per_step`` entries. Without entries
    there is no file and the result is empty.
    """

    def __init__(
        self, resources: FullSnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> None:
        super().__init__(resources)
        self._pinned = resources
        self._stream_factory = stream_factory
        self._options = options
        self._stream: CheckpointStream | None = None
        self._writer: FullSnapshotWriter | None = None
        self._groups: list[int] = []
        self._next_group = 0

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self._writer is None:
            states, self._groups = self._pinned.contents()
            if not states:
                return SnapshotResult(None)
            self._writer = self._open(states)
        self._writer.write_groups(self._some_groups())
        if self._next_group < len(self._groups):
            return None
        return SnapshotResult(self._writer.finish())

    def _some_groups(self) -> Iterator[tuple[int, list[EncodedBlock]]]:
        passed = 0
        while self._next_group < len(self._groups) and passed < self._options.entries_per_step:
            group = self._groups[self._next_group]
            blocks = self._pinned.blocks(group)
            for block in blocks:
                passed += block.num_entries
            self._next_group += 1
            yield group, blocks

    def _open(self, states: list[StateId]) -> FullSnapshotWriter:
        header = self._pinned.header(states, self._pinned.key_group_range, self._options.compression)
        self._stream = self._stream_factory.create_stream()
        return FullSnapshotWriter(self._stream, self._pinned.codec, header)

    def _discard(self) -> None:
        if self._stream is not None:
            self._stream.close()


class FullSnapshotStrategy:
    """Takes full snapshots only: pins a view and writes it."""

    def __init__(self, pin: Callable[[], FullSnapshotResources]) -> None:
        self._pin = pin

    def sync_prepare_resources(self, checkpoint_id: int) -> FullSnapshotResources:
        return self._pin()

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> FullSnapshotTask:
        assert isinstance(resources, FullSnapshotResources)
        return FullSnapshotTask(resources, stream_factory, options)
