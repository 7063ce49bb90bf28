"""Local copies of a task's state, so that the task need not fetch all its state after a failure.

One store belongs to one task, by name, for all its attempts; it holds at most one *local snapshot* per checkpoint.
Layout: ``<directory>/chk-N/_local_state`` beside the files that it refers to.

Rules (TaskLocalStateStoreImpl in Flink):

* L1 A confirmed checkpoint removes the local snapshots of older ones; an aborted one removes its own. A restore removes
  all except that of the restored checkpoint, also half-written ones left by a crash.
* L2 A task without state is remembered too, as a value.
* L3 A local snapshot exists when its ``_local_state`` does. One that cannot be read is removed and treated as absent.
* L4 No failure here fails a checkpoint or a restore, because checkpoint storage has the state too. Failures are only
  reported.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from state_backends.base import (
    CorruptStateError,
    MissingStateError,
    StateBackendError,
    check_shape,
    list_of,
    optional,
    row,
    text,
    whole,
)
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import FileSystem, write_atomically
from state_backends.snapshots import (
    STREAM,
    SUBTASK,
    FileStateHandle,
    FsStateReader,
    ScopeDirectories,
    StateScope,
    StreamStateHandle,
    SubtaskSnapshot,
    check_places,
    stream_handle_from_state,
)

LOCAL_STATE_FILE_NAME = "_local_state"
SNAPSHOT_PREFIX = "chk-"
MAGIC = b"WEIRLOCL"
FORMAT_VERSION = 1

_COPIES = list_of(row(STREAM, STREAM))
_LOCAL_STATE = row(whole, optional(row(list_of(row(text, SUBTASK)), _COPIES)))

ReportFailure = Callable[[str, Exception], None]
"""Called with the failed action and the error."""


@dataclass(frozen=True, slots=True)
class LocalTaskState:
    """The local copies of one checkpoint that a task has.

    :ivar operators: uid -> handles whose streams are local; state without a local copy is ``None`` there
    :ivar copies: stream in checkpoint storage -> the same bytes in the local snapshot
    """

    operators: Mapping[str, SubtaskSnapshot] = field(default_factory=dict)
    copies: Mapping[StreamStateHandle, StreamStateHandle] = field(default_factory=dict)

    def to_state(self) -> list[Any]:
        operators = [[uid, snapshot.to_state()] for uid, snapshot in sorted(self.operators.items())]
        copies = [[remote.to_state(), local.to_state()] for remote, local in self.copies.items()]
        return [operators, copies]

    @classmethod
    def from_state(cls, state: list[Any]) -> LocalTaskState:
        operators, copies = state
        read = {stream_handle_from_state(remote): stream_handle_from_state(local) for remote, local in copies}
        return cls({uid: SubtaskSnapshot.from_state(snapshot) for uid, snapshot in operators}, read)


class LocalStateStore:
    """The local snapshots of one task, in files below a directory of this task alone."""

    def __init__(
        self, file_system: FileSystem, directory: str, failed: ReportFailure, *, recovery_enabled: bool = True
    ) -> None:
        """Find the local snapshots that an earlier attempt, or process, has left.

        :param recovery_enabled: whether kept copies are returned; otherwise copies are only made
        """
        self.file_system = file_system
        self.directory = directory
        self._failed = failed
        self._recovery_enabled = recovery_enabled
        # A dict, because the order of a set differs between processes.
        self._ids = dict.fromkeys(self._found())
        self._loaded: dict[int, LocalTaskState | None] = {}

    @property
    def kept(self) -> tuple[int, ...]:
        """The checkpoints that have a local snapshot, ascending."""
        return tuple(sorted(self._ids))

    def snapshot_directory(self, checkpoint_id: int) -> str:
        return posixpath.join(self.directory, f"{SNAPSHOT_PREFIX}{checkpoint_id}")

    def reader(self, checkpoint_id: int) -> FsStateReader:
        """Opens the files that the handles of a local snapshot refer to."""
        return FsStateReader(self.file_system, ScopeDirectories(self.snapshot_directory(checkpoint_id), None))

    def store(self, checkpoint_id: int, state: LocalTaskState | None) -> bool:
        """Keep a local snapshot whose files are in its directory already; ``None``: the task had no state.

        :returns: whether it is kept; when not, its files are gone
        """
        directory = self.snapshot_directory(checkpoint_id)
        content = [checkpoint_id, None if state is None else state.to_state()]
        data = seal(MAGIC, FORMAT_VERSION, default_codec().encode(content))
        try:
            self.file_system.make_dirs(directory)
            write_atomically(self.file_system, posixpath.join(directory, LOCAL_STATE_FILE_NAME), data)
        except OSError as problem:
            self._failed(f"{directory} could not be written", problem)
            self.discard(checkpoint_id)
            return False
        self._ids[checkpoint_id] = None
        self._loaded[checkpoint_id] = state
        return True

    def retrieve(self, checkpoint_id: int) -> LocalTaskState | None:
        """The local snapshot of a checkpoint; ``None`` when there is none or the task had no state."""
        if not self._recovery_enabled or checkpoint_id not in self._ids:
            return None
        if checkpoint_id not in self._loaded:
            try:
                self._loaded[checkpoint_id] = self._read(checkpoint_id)
            except (StateBackendError, OSError) as problem:
                self._failed(f"the local copy of checkpoint {checkpoint_id} cannot be read and is removed", problem)
                self.abort(checkpoint_id)
                return None
        return self._loaded[checkpoint_id]

    def copy_of_shared(self, stream: StreamStateHandle) -> tuple[int, StreamStateHandle] | None:
        """The checkpoint whose local snapshot has the bytes of a shared file, and the file's place there."""
        if isinstance(stream, FileStateHandle) and stream.scope is StateScope.SHARED:
            for checkpoint_id, state in sorted(self._loaded.items(), reverse=True):
                if state is not None and stream in state.copies:
                    return checkpoint_id, state.copies[stream]
        return None

    def confirm(self, checkpoint_id: int) -> tuple[int, ...]:
        """The checkpoint is complete. Returns the checkpoints whose local snapshots were removed, here and below."""
        return self._delete(one for one in self._ids if one < checkpoint_id)

    def abort(self, checkpoint_id: int) -> tuple[int, ...]:
        """The checkpoint will never complete, or its local snapshot is of no use."""
        return self._delete(one for one in self._ids if one == checkpoint_id)

    def prune(self, checkpoint_id: int | None) -> tuple[int, ...]:
        """The task starts from that checkpoint, or without one."""
        return self._delete(one for one in self._ids if one != checkpoint_id)

    def dispose(self) -> tuple[int, ...]:
        gone = self._delete(self._ids)
        self._delete_tree(self.directory)
        return gone

    def discard(self, checkpoint_id: int) -> None:
        """Delete the files of a local snapshot that was not stored."""
        self._delete_tree(self.snapshot_directory(checkpoint_id))

    def _found(self) -> list[int]:
        try:
            names = self.file_system.list_dir(self.directory) if self.file_system.is_dir(self.directory) else []
        except OSError as problem:
            self._failed(f"{self.directory} cannot be listed", problem)
            return []
        start = len(SNAPSHOT_PREFIX)
        return [int(name[start:]) for name in names if name.startswith(SNAPSHOT_PREFIX) and name[start:].isdecimal()]

    def _read(self, checkpoint_id: int) -> LocalTaskState | None:
        path = posixpath.join(self.snapshot_directory(checkpoint_id), LOCAL_STATE_FILE_NAME)
        try:
            file = self.file_system.open_read(path)
        except FileNotFoundError as problem:
            raise MissingStateError(path, "was never finished, or was deleted") from problem
        with file:
            plain = default_codec().decode(unseal(file, path, MAGIC, FORMAT_VERSION), path)
        check_shape(plain, _LOCAL_STATE, path, "local state")
        found_id, state = plain
        if found_id != checkpoint_id:
            raise CorruptStateError(path, f"belongs to checkpoint {found_id}")
        if state is None:
            return None
        found = LocalTaskState.from_state(state)
        streams = [*found.copies.values(), *(one for part in found.operators.values() for one in part.streams())]
        check_places(self.file_system, self.snapshot_directory(checkpoint_id), None, streams, path)
        return found

    def _delete(self, ids: Iterable[int]) -> tuple[int, ...]:
        gone = tuple(sorted(ids))
        for checkpoint_id in gone:
            del self._ids[checkpoint_id]
            self._loaded.pop(checkpoint_id, None)
            directory = self.snapshot_directory(checkpoint_id)
            try:
                path = posixpath.join(directory, LOCAL_STATE_FILE_NAME)
                if self.file_system.exists(path):
                    # First: a half-deleted local snapshot must not look like one.
                    self.file_system.delete(path)
            except OSError as problem:
                self._failed(f"{directory} could not be deleted", problem)
                continue
            self._delete_tree(directory)
        return gone

    def _delete_tree(self, directory: str) -> None:
        try:
            self.file_system.delete_tree(directory)
        except OSError as problem:
            # The next start of the task deletes the rest.
            self._failed(f"{directory} could not be deleted", problem)
