"""Handles: small descriptions that travel in place of snapshotted state, and give its place.

The bytes of a stream handle are inlined in the handle, or in a file. An operator handle adds for each state name the
offset of each element. Rescaling cuts an operator handle to some elements without touching the bytes. Handles of keyed
state, of which there are several kinds, are in :mod:`state_backends.snapshots.keyed_handles`.

Each handle has a plain form (``to_state`` / ``from_state``) that goes into a checkpoint's metadata. The
first element of the form names the kind.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from state_backends.base import (
    StateSchemaError,
    binary,
    list_of,
    one_of,
    positive,
    row,
    tagged,
    text,
    value_class,
    whole,
)


class StateScope(enum.Enum):
    """The users of a file, which decide its place (CheckpointedStateScope)."""

    EXCLUSIVE = "exclusive"
    """Belongs to one checkpoint; in its ``chk-N`` directory."""
    SHARED = "shared"
    """May be referred to by several checkpoints; in ``shared``."""
    TASK_OWNED = "taskowned"
    """Deleted by tasks only; in ``taskowned``."""


class OperatorStateMode(enum.Enum):
    """The way an operator's list state is redistributed when the parallelism changes."""

    SPLIT_DISTRIBUTE = "split"
    UNION = "union"
    BROADCAST = "broadcast"

    __hash__ = object.__hash__  # That of enums is in Python, and every file of operator state asks for it.


@value_class
class ByteStreamStateHandle:
    """Bytes small enough to travel inside the handle.

    :ivar data: the bytes
    """

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def to_state(self) -> list[Any]:
        return ["bytes", self.data]


@value_class
class FileStateHandle:
    """A file in checkpoint storage.

    :ivar path: relative to the checkpoint's directory (EXCLUSIVE) or to the job's (else), so that a
        checkpoint directory without shared files can be moved
    :ivar scope: which of them
    :ivar size_bytes: the file's size
    :ivar checksum: crc32 of the whole file
    """

    path: str
    scope: StateScope
    size_bytes: int
    checksum: int

    def to_state(self) -> list[Any]:
        return ["file", self.path, self.scope.value, self.size_bytes, self.checksum]


StreamStateHandle = ByteStreamStateHandle | FileStateHandle
"""Where some bytes are."""

STREAM = tagged({"bytes": row(binary), "file": row(text, one_of(*(scope.value for scope in StateScope)), whole, whole)})
"""The shape of its plain form."""


def stream_handle_from_state(state: list[Any]) -> StreamStateHandle:
    """The handle that ``to_state`` described.

    :raises StateSchemaError: when the kind is none of ours
    """
    kind, *fields = state
    if kind == "bytes":
        return ByteStreamStateHandle(*fields)
    if kind == "file":
        path, scope, size_bytes, checksum = fields
        return FileStateHandle(path, StateScope(scope), size_bytes, checksum)
    raise unknown_kind(kind)


@value_class
class StateOffsets:
    """Where the elements of one operator state are.

    :ivar mode: how they are redistributed
    :ivar offsets: the byte offset of each element's frame, in the order of the elements
    """

    mode: OperatorStateMode
    offsets: tuple[int, ...]


class _InOneStream:
    """State of one subtask that is in one stream."""

    __slots__ = ()

    stream: StreamStateHandle

    @property
    def size_bytes(self) -> int:
        """The bytes of the whole stream, also when the handle was cut to a part of it."""
        return self.stream.size_bytes

    persisted_bytes = size_bytes
    """The bytes that were written for this snapshot: all."""


@value_class
class OperatorStateHandle(_InOneStream):
    """Operator state of one subtask, by name and element.

    :ivar states: per state name, in sorted order, where its elements are
    :ivar stream: the bytes
    """

    states: Mapping[str, StateOffsets]
    stream: StreamStateHandle

    def with_states(self, states: Mapping[str, StateOffsets]) -> OperatorStateHandle:
        """The handle with other elements of the same stream, as redistribution makes them."""
        return OperatorStateHandle(dict(sorted(states.items())), self.stream)

    def to_state(self) -> list[Any]:
        states = [[name, one.mode.value, list(one.offsets)] for name, one in sorted(self.states.items())]
        return ["operator", states, self.stream.to_state()]

    @classmethod
    def from_state(cls, state: list[Any]) -> OperatorStateHandle:
        """The handle that :meth:`to_state` described.

        :raises StateSchemaError: when the kind is none of ours
        """
        kind, *fields = state
        if kind != "operator":
            raise unknown_kind(kind)
        states, stream = fields
        read = {name: StateOffsets(OperatorStateMode(mode), tuple(offsets)) for name, mode, offsets in states}
        return cls(read, stream_handle_from_state(stream))


OPERATOR_STATE = tagged(
    {"operator": row(list_of(row(text, one_of(*(mode.value for mode in OperatorStateMode)), list_of(whole))), STREAM)}
)
"""The shape of the plain form of an :class:`OperatorStateHandle`."""


class ChannelName(NamedTuple):
    """Which channel: the stable name of its edge and the subtasks at its ends."""

    edge: str
    sender: int
    receiver: int


class ChannelStatePiece(NamedTuple):
    """Where the records of one channel are. (There are many of them, and a tuple is made in a third of the time.)

    :ivar channel: whose
    :ivar records: how many
    :ivar offset: the byte offset of their frame
    """

    channel: ChannelName
    records: int
    offset: int


@dataclass(frozen=True, slots=True)
class ChannelStateHandle(_InOneStream):
    """Records in flight on one side of one subtask.

    :ivar pieces: per channel where its records are, in the order of the channels
    :ivar stream: the bytes
    """

    pieces: tuple[ChannelStatePiece, ...]
    stream: StreamStateHandle

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.pieces)

    def to_state(self) -> list[Any]:
        pieces = [[*channel, records, offset] for channel, records, offset in self.pieces]
        return ["channels", pieces, self.stream.to_state()]

    @classmethod
    def from_state(cls, state: list[Any]) -> ChannelStateHandle:
        """The handle that :meth:`to_state` described.

        :raises StateSchemaError: when the kind is none of ours
        """
        kind, *fields = state
        if kind != "channels":
            raise unknown_kind(kind)
        pieces, stream = fields
        read = tuple(
            ChannelStatePiece(ChannelName(edge, sender, receiver), records, offset)
            for edge, sender, receiver, records, offset in pieces
        )
        return cls(read, stream_handle_from_state(stream))


CHANNEL_STATE = tagged({"channels": row(list_of(row(text, whole, whole, positive, whole)), STREAM)})
"""The shape of the plain form of a :class:`ChannelStateHandle`."""


def unknown_kind(kind: Any) -> StateSchemaError:
    """The error for a handle in a form that this program does not know."""
    return StateSchemaError(f"state handle kind {kind!r} is unknown: was it written by a newer version?")


def describe_stream(stream: StreamStateHandle) -> str:
    if isinstance(stream, FileStateHandle):
        return stream.path
    return f"state of {stream.size_bytes} bytes inlined in the checkpoint's metadata"
