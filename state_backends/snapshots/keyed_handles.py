"""Handles of keyed state. A handle lists the parts of one subtask's snapshot of its key groups, in one of three forms.

* *full*: one stream in the full format, by key group; every backend reads it, and it can be cut to some key groups;
* *incremental*: the files of a store (SSTs and the like), most of them shared with earlier and later checkpoints;
* *changelog*: the handles of a materialised snapshot, and the log of changes made since.

Files in the shared scope are registered with their owner, which decides when they may be deleted.
:meth:`KeyedStateHandle.shared` lists them, and marks those that this very snapshot uploaded. An earlier snapshot
uploaded the others, so only their names are needed. Files in the exclusive scope are deleted with their checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from state_backends.base import (
    KeyGroupRange,
    Shape,
    StateSchemaError,
    flag,
    list_of,
    row,
    tagged,
    text,
    value_class,
    whole,
)
from state_backends.snapshots.handles import (
    STREAM,
    FileStateHandle,
    StateScope,
    StreamStateHandle,
    stream_handle_from_state,
    unknown_kind,
)

MoveStream = Callable[[StreamStateHandle], StreamStateHandle]
"""From the old handle of some bytes to their present handle."""


class SharedFile(NamedTuple):
    """A file in the shared scope that a snapshot uses.

    :ivar file: its handle; the path is its name for ever
    :ivar is_new: whether this snapshot uploaded it; otherwise an earlier one did
    """

    file: FileStateHandle
    is_new: bool


class KeyedStateHandle(ABC):
    """Keyed state of one subtask in one snapshot."""

    __slots__ = ()

    key_group_range: KeyGroupRange
    """The key groups it stands for, with or without entries."""

    @property
    def size_bytes(self) -> int:
        """The bytes of everything it refers to, even if the handle was cut to a part of it (Flink: full size)."""
        return sum(stream.size_bytes for stream in self.streams())

    @property
    @abstractmethod
    def persisted_bytes(self) -> int:
        """The bytes that were written for this snapshot (Flink: checkpointed size)."""

    @abstractmethod
    def streams(self) -> Iterator[StreamStateHandle]:
        """Everything it refers to, in a fixed order."""

    @abstractmethod
    def shared(self) -> Iterator[SharedFile]:
        """The files in the shared scope that it refers to."""

    @abstractmethod
    def with_streams(self, moved: MoveStream) -> KeyedStateHandle:
        """The same state with every stream replaced by ``moved``."""

    @abstractmethod
    def as_copied(self) -> KeyedStateHandle:
        """The same state, with all files marked as written for this snapshot, as in a copy."""

    @abstractmethod
    def intersect(self, key_group_range: KeyGroupRange) -> KeyedStateHandle | None:
        """The handle from which a subtask with these key groups restores; ``None`` if this handle has none of them.

        A handle whose files cannot be cut is returned as it is: a restore leaves out the other key groups.
        """

    @abstractmethod
    def to_state(self) -> list[Any]:
        """A plain form for files; :func:`keyed_handle_from_state` reads it."""


def _shared(stream: StreamStateHandle, is_new: bool) -> Iterator[SharedFile]:
    if isinstance(stream, FileStateHandle) and stream.scope is StateScope.SHARED:
        yield SharedFile(stream, is_new)


@value_class
class FullKeyedStateHandle(KeyedStateHandle):
    """Keyed state in the full format, by key group.

    :ivar offsets: (key group, byte offset of its frame), ascending; groups without entries are absent
    :ivar stream: the bytes
    """

    key_group_range: KeyGroupRange
    offsets: tuple[tuple[int, int], ...]
    stream: StreamStateHandle

    @property
    def size_bytes(self) -> int:
        return self.stream.size_bytes

    persisted_bytes = size_bytes

    def streams(self) -> Iterator[StreamStateHandle]:
        return iter((self.stream,))

    def shared(self) -> Iterator[SharedFile]:
        return _shared(self.stream, is_new=True)

    def with_streams(self, moved: MoveStream) -> FullKeyedStateHandle:
        return replace(self, stream=moved(self.stream))

    def as_copied(self) -> FullKeyedStateHandle:
        return self

    def intersect(self, key_group_range: KeyGroupRange) -> FullKeyedStateHandle | None:
        common = self.key_group_range.intersection(key_group_range)
        if common is None:
            return None
        return FullKeyedStateHandle(common, tuple(one for one in self.offsets if one[0] in common), self.stream)

    def to_state(self) -> list[Any]:
        return ["full", _bounds(self.key_group_range), [list(one) for one in self.offsets], self.stream.to_state()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> FullKeyedStateHandle:
        """The inverse of :meth:`to_state`, from the fields after the kind."""
        bounds, offsets, stream = fields
        pairs = cast("list[tuple[int, int]]", [tuple(pair) for pair in offsets])
        return cls(KeyGroupRange(*bounds), tuple(pairs), stream_handle_from_state(stream))


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file of a store, in checkpoint storage.

    :ivar name: its name in the store
    :ivar stream: its bytes
    :ivar uploaded: whether this snapshot uploaded it; otherwise an earlier one did
    """

    name: str
    stream: StreamStateHandle
    uploaded: bool

    def to_state(self) -> list[Any]:
        return [self.name, self.stream.to_state(), self.uploaded]

    @classmethod
    def from_state(cls, state: list[Any]) -> StoreFile:
        name, stream, uploaded = state
        return cls(name, stream_handle_from_state(stream), uploaded)


@dataclass(frozen=True, slots=True)
class IncrementalKeyedStateHandle(KeyedStateHandle):
    """The files of a store (IncrementalRemoteKeyedStateHandle).

    :ivar store: the kind of store that can open them, such as ``lsm``
    :ivar backend_id: names the backend; a restore with the same key groups keeps it
    :ivar checkpoint_id: the snapshot for which it was made
    :ivar shared_files: the immutable data files, by name; in the shared scope, or exclusive when nothing is shared
    :ivar private_files: all others, by name
    :ivar meta: key type, states and schemas of the backend
    """

    store: str
    backend_id: str
    key_group_range: KeyGroupRange
    checkpoint_id: int
    shared_files: tuple[StoreFile, ...]
    private_files: tuple[StoreFile, ...]
    meta: StreamStateHandle

    @property
    def persisted_bytes(self) -> int:
        files = (*self.shared_files, *self.private_files)
        return self.meta.size_bytes + sum(file.stream.size_bytes for file in files if file.uploaded)

    def streams(self) -> Iterator[StreamStateHandle]:
        yield self.meta
        for file in (*self.shared_files, *self.private_files):
            yield file.stream

    def shared(self) -> Iterator[SharedFile]:
        yield from _shared(self.meta, is_new=True)
        for file in (*self.shared_files, *self.private_files):
            yield from _shared(file.stream, file.uploaded)

    def with_streams(self, moved: MoveStream) -> IncrementalKeyedStateHandle:
        return replace(
            self,
            shared_files=tuple(replace(file, stream=moved(file.stream)) for file in self.shared_files),
            private_files=tuple(replace(file, stream=moved(file.stream)) for file in self.private_files),
            meta=moved(self.meta),
        )

    def as_copied(self) -> IncrementalKeyedStateHandle:
        return replace(
            self,
            shared_files=tuple(replace(file, uploaded=True) for file in self.shared_files),
            private_files=tuple(replace(file, uploaded=True) for file in self.private_files),
        )

    def intersect(self, key_group_range: KeyGroupRange) -> IncrementalKeyedStateHandle | None:
        return None if self.key_group_range.intersection(key_group_range) is None else self

    def to_state(self) -> list[Any]:
        shared = [file.to_state() for file in self.shared_files]
        private = [file.to_state() for file in self.private_files]
        where = [_bounds(self.key_group_range), self.checkpoint_id]
        return ["incremental", self.store, self.backend_id, *where, shared, private, self.meta.to_state()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> IncrementalKeyedStateHandle:
        """The inverse of :meth:`to_state`, from the fields after the kind."""
        store, backend_id, bounds, checkpoint_id, shared, private, meta = fields
        return cls(
            store,
            backend_id,
            KeyGroupRange(*bounds),
            checkpoint_id,
            tuple(map(StoreFile.from_state, shared)),
            tuple(map(StoreFile.from_state, private)),
            stream_handle_from_state(meta),
        )


@value_class
class LogSegment:
    """A part of a log of state changes, in checkpoint storage.

    :ivar first: the sequence number of its first change
    :ivar end: the sequence number of the first change after it
    :ivar stream: its bytes
    :ivar uploaded: whether this snapshot is the first that refers to it
    """

    first: int
    end: int
    stream: StreamStateHandle
    uploaded: bool

    def to_state(self) -> list[Any]:
        return [self.first, self.end, self.stream.to_state(), self.uploaded]

    @classmethod
    def from_state(cls, state: list[Any]) -> LogSegment:
        first, end, stream, uploaded = state
        return cls(first, end, stream_handle_from_state(stream), uploaded)


@dataclass(frozen=True, slots=True)
class ChangelogKeyedStateHandle(KeyedStateHandle):
    """A materialised snapshot and the changes since (ChangelogStateBackendHandle).

    :ivar checkpoint_id: the snapshot that it was made for
    :ivar materialization_id: the materialisation, by its own number; 0 before the first
    :ivar materialized: its handles; several only after a restore at another parallelism
    :ivar materialized_is_new: whether no earlier snapshot refers to that materialisation
    :ivar log: the changes since, in order; segments of several subtasks after such a restore
    """

    key_group_range: KeyGroupRange
    checkpoint_id: int
    materialization_id: int
    materialized: tuple[KeyedStateHandle, ...]
    materialized_is_new: bool
    log: tuple[LogSegment, ...]

    @property
    def persisted_bytes(self) -> int:
        written = sum(segment.stream.size_bytes for segment in self.log if segment.uploaded)
        if self.materialized_is_new:
            written += sum(handle.persisted_bytes for handle in self.materialized)
        return written

    def streams(self) -> Iterator[StreamStateHandle]:
        for handle in self.materialized:
            yield from handle.streams()
        for segment in self.log:
            yield segment.stream

    def shared(self) -> Iterator[SharedFile]:
        for handle in self.materialized:
            for file, is_new in handle.shared():
                yield SharedFile(file, is_new and self.materialized_is_new)
        for segment in self.log:
            yield from _shared(segment.stream, segment.uploaded)

    def with_streams(self, moved: MoveStream) -> ChangelogKeyedStateHandle:
        return replace(
            self,
            materialized=tuple(handle.with_streams(moved) for handle in self.materialized),
            log=tuple(replace(segment, stream=moved(segment.stream)) for segment in self.log),
        )

    def as_copied(self) -> ChangelogKeyedStateHandle:
        return replace(
            self,
            materialized=tuple(handle.as_copied() for handle in self.materialized),
            materialized_is_new=True,
            log=tuple(replace(segment, uploaded=True) for segment in self.log),
        )

    def intersect(self, key_group_range: KeyGroupRange) -> ChangelogKeyedStateHandle | None:
        if self.key_group_range.intersection(key_group_range) is None:
            return None
        cut = tuple(handle.intersect(key_group_range) for handle in self.materialized)
        return replace(self, materialized=tuple(handle for handle in cut if handle is not None))

    def to_state(self) -> list[Any]:
        numbers = [_bounds(self.key_group_range), self.checkpoint_id, self.materialization_id]
        materialized = [handle.to_state() for handle in self.materialized]
        return ["changelog", *numbers, materialized, self.materialized_is_new, [one.to_state() for one in self.log]]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> ChangelogKeyedStateHandle:
        """The inverse of :meth:`to_state`, from the fields after the kind."""
        bounds, checkpoint_id, materialization_id, materialized, is_new, log = fields
        handles = tuple(map(keyed_handle_from_state, materialized))
        segments = tuple(map(LogSegment.from_state, log))
        return cls(KeyGroupRange(*bounds), checkpoint_id, materialization_id, handles, is_new, segments)


_CLASSES: dict[str, type[FullKeyedStateHandle | IncrementalKeyedStateHandle | ChangelogKeyedStateHandle]] = {
    "full": FullKeyedStateHandle,
    "incremental": IncrementalKeyedStateHandle,
    "changelog": ChangelogKeyedStateHandle,
}
_KINDS: dict[str, Shape] = {}
KEYED_STATE = tagged(_KINDS)
"""The shape of the plain form of any of them."""

_BOUNDS = row(whole, whole)
_FILES = list_of(row(text, STREAM, flag))
_KINDS["full"] = row(_BOUNDS, list_of(row(whole, whole)), STREAM)
_KINDS["incremental"] = row(text, text, _BOUNDS, whole, _FILES, _FILES, STREAM)
_KINDS["changelog"] = row(_BOUNDS, whole, whole, list_of(KEYED_STATE), flag, list_of(row(whole, whole, STREAM, flag)))


def keyed_handle_from_state(state: list[Any]) -> KeyedStateHandle:
    """The inverse of ``to_state``.

    :raises StateSchemaError: when the kind is unknown
    """
    kind, *fields = state
    if kind not in _CLASSES:
        raise unknown_kind(kind)
    return _CLASSES[kind].from_fields(fields)


def full_handle(handle: KeyedStateHandle, backend: str) -> FullKeyedStateHandle:
    """The same handle, for a backend that reads only the full format.

    :param backend: the name of the backend
    :raises StateSchemaError: when the handle is in another form
    """
    if isinstance(handle, FullKeyedStateHandle):
        return handle
    raise unreadable_form(handle, backend)


def unreadable_form(handle: KeyedStateHandle, backend: str) -> StateSchemaError:
    """The error for a handle in a form that a backend does not read."""
    if isinstance(handle, IncrementalKeyedStateHandle):
        form = f"holds the files of a {handle.store} store"
    elif isinstance(handle, FullKeyedStateHandle):
        form = "is in the full format in one of its parts only"
    else:
        form = "is a materialised snapshot with a log of changes"
    return StateSchemaError(
        f"the snapshot {form}, which the {backend} backend cannot read. Start with the state backend that wrote it, "
        "or take a savepoint in canonical format, which every backend reads, and start from that."
    )


def _bounds(key_group_range: KeyGroupRange) -> list[int]:
    return [key_group_range.first, key_group_range.last]
