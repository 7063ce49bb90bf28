"""Reads a checkpoint or savepoint without its job: every entry of keyed state, from any backend.

Full snapshots are read as they are. Files of a store, and a materialised snapshot with its log, are restored into a
backend of their own kind in memory, and read through a full snapshot of that backend. So the reader sees the same state
as a job.

Values keep the Python types of the program that wrote them. If its registered types are not known,
:func:`state_backends.codec.inspecting_codec` reads values in the form that they have in the files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from state_backends.api import BackendEnvironment, OperatorStateBackend
from state_backends.base import KeyGroupRange, StateArgumentError
from state_backends.codec import StateCodec, default_codec
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.named import state_backend_named
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    DecodedBlock,
    FullKeyedStateHandle,
    FullSnapshotReader,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStateMode,
    SnapshotOptions,
    SnapshotType,
    StateReader,
    StreamFactory,
    describe_stream,
    locate_snapshot,
    run_to_completion,
)
from state_backends.store import StoreMeta


class StateEntry(NamedTuple):
    """One entry of keyed state.

    :ivar operator: the operator's uid
    :ivar state: the state's name
    :ivar kind: what it holds, as in files (``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``timers``)
    :ivar subtask: which subtask wrote it
    :ivar key_group: the key's group
    :ivar key: the key
    :ivar namespace: its namespace, such as a window; ``None`` when it has none
    :ivar value: the value; of a timer its time
    """

    operator: str
    state: str
    kind: str
    subtask: int
    key_group: int
    key: Any
    namespace: Any
    value: Any


_EntryName = tuple[str, bytes, bytes, bytes]
"""The name of one entry of an operator in a comparison of two snapshots: its state, and its encoded key, namespace and
time of a timer."""


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """An entry that is not the same in two snapshots.

    :ivar before: in the first, ``None`` when it is not there
    :ivar after: in the second
    """

    before: StateEntry | None
    after: StateEntry | None


class SnapshotContent:
    """The keyed state in one checkpoint or savepoint.

    :ivar metadata: what it consists of
    """

    def __init__(self, location: CheckpointLocation, metadata: CheckpointMetadata, codec: StateCodec) -> None:
        self.location = location
        self.metadata = metadata
        self.codec = codec

    @classmethod
    def at(cls, file_system: FileSystem, path: str, codec: StateCodec | None = None) -> SnapshotContent:
        """The snapshot whose directory, or ``_metadata``, is at ``path``, with every byte verified.

        :raises MissingStateError: when there is none, or a file of it is not there
        :raises CorruptStateError: when any byte is not as written
        :raises StateSchemaError: when a newer program wrote it
        """
        location, _ = locate_snapshot(file_system, path)
        return cls(location, location.verify(), default_codec() if codec is None else codec)

    def operators(self, uid: str | None = None) -> tuple[OperatorSnapshot, ...]:
        """All operators, or the one with that uid.

        :raises StateArgumentError: when none has it
        """
        if uid is None:
            return self.metadata.operators
        chosen = tuple(operator for operator in self.metadata.operators if operator.uid == uid)
        if not chosen:
            known = ", ".join(repr(operator.uid) for operator in self.metadata.operators)
            raise StateArgumentError(f"{self.location.directory}: no operator has uid {uid!r}; it has {known}.")
        return chosen

    def entries(self, uid: str | None = None, state: str | None = None) -> Iterator[StateEntry]:
        """The entries of one operator or all, of one state or all: by operator, subtask, key group, state and key.

        :raises StateArgumentError: when no operator has that uid
        """
        for operator in self.operators(uid):
            for subtask, block in self._blocks(operator):
                if state is None or block.state.name == state:
                    yield from _entries_of(operator.uid, subtask, block)

    def _blocks(self, operator: OperatorSnapshot) -> Iterator[tuple[int, DecodedBlock]]:
        reader = self.location.reader()
        for subtask, snapshot in sorted(operator.subtasks.items()):
            if snapshot.keyed is not None:
                for block in keyed_blocks(snapshot.keyed, reader, operator.max_parallelism, self.codec):
                    yield subtask, block

    def by_key_group(self, uid: str) -> Iterator[tuple[int, dict[_EntryName, StateEntry]]]:
        """The entries of one operator, a key group at a time, ascending; groups without entries are left out."""
        (operator,) = self.operators(uid)
        for key_group, blocks in itertools.groupby(self._blocks(operator), key=lambda found: found[1].key_group):
            entries = (entry for subtask, block in blocks for entry in _entries_of(uid, subtask, block))
            yield key_group, {self._name(entry): entry for entry in entries}

    def _name(self, entry: StateEntry) -> _EntryName:
        encode = self.codec.encode
        time = encode(entry.value) if entry.kind == "timers" else b""
        return entry.state, encode(entry.key), encode(entry.namespace), time


def keyed_blocks(
    handle: KeyedStateHandle,
    reader: StateReader,
    max_parallelism: int,
    codec: StateCodec,
    key_groups: KeyGroupRange | None = None,
) -> Iterator[DecodedBlock]:
    """The entries of a keyed handle of any form, ordered by (key group, state, key).

    :param key_groups: only these; of a handle in full form nothing else is read. ``None`` = all
    :raises CorruptStateError: when any byte is not as written
    :raises StateArgumentError: when the package that opens such files is not installed
    """
    if isinstance(handle, FullKeyedStateHandle):
        with reader.open(handle.stream) as file:
            yield from FullSnapshotReader(file, handle, codec).blocks(key_groups or handle.key_group_range)
        return
    where = CheckpointStorage(MemoryFileSystem(), "/", "offline").initialize_location(1)
    full = write_in_full(handle, reader, max_parallelism, codec, where.stream_factory("full"))
    if full is not None:
        yield from keyed_blocks(full, where.reader(), max_parallelism, codec, key_groups)


def keyed_state_names(
    handle: KeyedStateHandle, reader: StateReader, max_parallelism: int, codec: StateCodec
) -> list[str]:
    """The names of the states with entries in a keyed handle, sorted. Errors as in :func:`keyed_blocks`."""
    if isinstance(handle, FullKeyedStateHandle):
        with reader.open(handle.stream) as file:
            names = {state.name for state in FullSnapshotReader(file, handle, codec).header.states}
    elif isinstance(handle, IncrementalKeyedStateHandle):
        with reader.open(handle.meta) as file:
            meta = StoreMeta.from_bytes(file.read(), describe_stream(handle.meta), codec)
        names = {state.name for _, state in meta.states}
    else:
        names = {block.state.name for block in keyed_blocks(handle, reader, max_parallelism, codec)}
    return sorted(names)


def operator_elements(
    handle: OperatorStateHandle, reader: StateReader, codec: StateCodec
) -> Iterator[tuple[str, OperatorStateMode, list[Any]]]:
    """The operator state of one subtask: name, mode and elements of each state, by name; of broadcast state the
    elements are ``[key, value]``. Errors as in :func:`keyed_blocks`."""
    backend = OperatorStateBackend(codec=codec)
    backend.restore([handle], reader)
    for name, where in sorted(handle.states.items()):
        if where.mode is OperatorStateMode.BROADCAST:
            yield name, where.mode, [list(entry) for entry in backend.broadcast_state(name).entries()]
        elif where.mode is OperatorStateMode.UNION:
            yield name, where.mode, backend.union_list_state(name).get()
        else:
            yield name, where.mode, backend.list_state(name).get()


def write_in_full(
    handle: KeyedStateHandle, reader: StateReader, max_parallelism: int, codec: StateCodec, streams: StreamFactory
) -> FullKeyedStateHandle | None:
    """The same state in the full format, written through a backend of the kind that reads the handle; ``None`` when it
    has no entries. Errors as in :func:`keyed_blocks`."""
    environment = BackendEnvironment(
        None, max_parallelism, handle.key_group_range, MemoryFileSystem(), "/work", "offline", codec=codec
    )
    backend = state_backend_named(backend_name(handle), incremental=True).create_keyed_backend(environment)
    try:
        backend.restore([handle], reader)
        options = SnapshotOptions(SnapshotType.CANONICAL_SAVEPOINT)
        strategy = backend.snapshot_strategy(options)
        resources = strategy.sync_prepare_resources(1)
        written = run_to_completion(strategy.async_snapshot(resources, streams, options)).job_manager_state
        assert written is None or isinstance(written, FullKeyedStateHandle), written
        return written
    finally:
        backend.dispose()


def backend_name(handle: KeyedStateHandle) -> str:
    """The state backend that reads a handle."""
    if isinstance(handle, IncrementalKeyedStateHandle):
        return handle.store
    if isinstance(handle, ChangelogKeyedStateHandle):
        inner = backend_name(handle.materialized[0]) if handle.materialized else "heap"
        return f"changelog:{inner}"
    return "heap"


def _entries_of(uid: str, subtask: int, block: DecodedBlock) -> Iterator[StateEntry]:
    state, namespaces = block.state, block.namespaces or itertools.repeat(None)
    for key, namespace, value in zip(block.keys, namespaces, block.values, strict=False):
        yield StateEntry(uid, state.name, state.kind, subtask, block.key_group, key, namespace, value)


def differences(before: SnapshotContent, after: SnapshotContent) -> Iterator[EntryDifference]:
    """The entries of keyed state that differ between two snapshots, of any backends and parallelisms: by operator, key
    group and encoded name. Memory holds one key group of each."""
    uids = sorted({operator.uid for content in (before, after) for operator in content.metadata.operators})
    for uid in uids:
        first, second = (_groups(content, uid) for content in (before, after))
        yield from _merged(first, second, before.codec)


def _groups(content: SnapshotContent, uid: str) -> Iterator[tuple[int, dict[_EntryName, StateEntry]]]:
    if any(operator.uid == uid for operator in content.metadata.operators):
        yield from content.by_key_group(uid)


def _merged(
    first: Iterator[tuple[int, dict[_EntryName, StateEntry]]],
    second: Iterator[tuple[int, dict[_EntryName, StateEntry]]],
    codec: StateCodec,
) -> Iterator[EntryDifference]:
    one, other = next(first, None), next(second, None)
    while one is not None or other is not None:
        is_first = one is not None and (other is None or one[0] <= other[0])
        is_second = other is not None and (one is None or other[0] <= one[0])
        mine = one[1] if one is not None and is_first else {}
        theirs = other[1] if other is not None and is_second else {}
        for name in sorted({**mine, **theirs}):
            before, after = mine.get(name), theirs.get(name)
            if before is None or after is None or codec.encode(before.value) != codec.encode(after.value):
                yield EntryDifference(before, after)
        one = next(first, None) if is_first else one
        other = next(second, None) if is_second else other
