"""Restores from snapshots with a log: chooses the handles, and replays their logs over the materialised state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from state_backends.api import KeyedStateBackend
from state_backends.base import CorruptStateError, KeyGroupRange, StateKind, as_written, key_group_function
from state_backends.changelog.changes import Replay
from state_backends.changelog.segment import SegmentHeader, SegmentReader
from state_backends.codec import StateCodec
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    StateReader,
    StateSchemas,
    StateScope,
)


def restorable_handles(handles: Iterable[KeyedStateHandle], key_groups: KeyGroupRange) -> list[KeyedStateHandle]:
    """The handles with some of the key groups.

    :raises CorruptStateError: when the segments of a log do not follow each other
    """
    chosen = [handle for handle in handles if handle.key_group_range.intersection(key_groups) is not None]
    for handle in chosen:
        if isinstance(handle, ChangelogKeyedStateHandle):
            for before, after in pairwise(handle.log):
                if before.end != after.first:
                    raise CorruptStateError(
                        f"the log of checkpoint {handle.checkpoint_id}",
                        f"change {before.end} should be followed by that number, but {after.first} comes next",
                    )
    return chosen


def check_logs(
    handles: Iterable[KeyedStateHandle], reader: StateReader, codec: StateCodec, schemas: StateSchemas
) -> None:
    """Check the headers of all logs, before any state is changed.

    :raises StateSchemaError: when the program cannot read the values of a log
    """
    for handle in handles:
        for segment in handle.log if isinstance(handle, ChangelogKeyedStateHandle) else ():
            with reader.open(segment.stream) as file:
                _value_codec(SegmentReader(file, segment, codec), schemas)


def _value_codec(read: SegmentReader, schemas: StateSchemas) -> StateCodec:
    """The codec for the values of a segment."""
    names = [state.name for state in read.header.states if state.kind is not StateKind.TIMERS]
    return schemas.restore(read.header.schema, names, read.path)


def may_be_referred_to(handle: KeyedStateHandle, key_groups: KeyGroupRange) -> bool:
    """Whether later checkpoints of a backend with these key groups may refer to the restored files. They may if the
    handle is of a changelog with exactly these groups, and no file belongs to the restored checkpoint alone."""
    return (
        isinstance(handle, ChangelogKeyedStateHandle)
        and handle.key_group_range == key_groups
        and all(
            isinstance(stream, ByteStreamStateHandle) or stream.scope is StateScope.SHARED
            for stream in handle.streams()
        )
    )


def last_number(handles: Iterable[KeyedStateHandle]) -> int:
    """The highest number that the restored snapshots of the backend below may have."""
    last = 0
    for handle in handles:
        if isinstance(handle, ChangelogKeyedStateHandle):
            last = max(last, handle.materialization_id)
        elif isinstance(handle, IncrementalKeyedStateHandle):
            last = max(last, handle.checkpoint_id)
    return last


def replay(
    handle: ChangelogKeyedStateHandle,
    reader: StateReader,
    backend: KeyedStateBackend,
    codec: StateCodec,
    schemas: StateSchemas,
) -> None:
    """Apply the log of a snapshot to a backend that holds its materialised state. Errors as of a restore."""
    common = handle.key_group_range.intersection(backend.key_group_range)
    assert common is not None
    for segment in handle.log:
        with reader.open(segment.stream) as file:
            read = SegmentReader(file, segment, codec)
            backend.scope.check_restored(read.header.key_type, read.header.max_parallelism)
            read.codec = _value_codec(read, schemas)
            # The writer logged only keys of its own key groups.
            is_own = None if read.header.key_group_range == common else _belongs_to(common, read.header)
            todo = Replay(backend, read.header.states, is_own, read.codec)
            with as_written(read.path):
                for record in read.records():
                    todo.apply(record)
    backend.clear_current_key()


def _belongs_to(key_groups: KeyGroupRange, header: SegmentHeader) -> Callable[[Any], bool]:
    group_of = key_group_function(header.key_type, header.max_parallelism)
    known: dict[Any, bool] = {}

    def is_own(key: Any) -> bool:
        found = known.get(key)
        if found is None:
            # The same keys come up again and again in a log.
            found = known[key] = group_of(key) in key_groups
        return found

    return is_own
