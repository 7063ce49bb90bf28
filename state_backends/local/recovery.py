"""Local recovery: each checkpoint leaves a copy of a task's state beside the task, and a restore prefers that copy.

Rules (LocalRecoveryConfig, TaskStateManagerImpl in Flink):

* R1 The *primary* copy, in checkpoint storage, decides. The *secondary* copy is local. Its failure is counted and
  noted, and never fails a snapshot.
* R2 Checkpoints have local copies; savepoints and records in flight have none.
* R3 A copy is used when the same task with the same key groups restores the same checkpoint; see
  :mod:`state_backends.snapshots.restore_alternatives`. After one failure the copy is removed.
* R4 A restored backend later refers to the same files as after a remote restore.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from state_backends.files import FileSystem
from state_backends.local.state_store import LocalStateStore, LocalTaskState
from state_backends.local.task_copy import LocalSnapshot, described
from state_backends.rows import KeepLocal
from state_backends.snapshots import (
    FileStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    LocalFirstReader,
    OperatorStateHandle,
    ReportRestore,
    RestoreCandidate,
    StateReader,
    StreamStateHandle,
    SubtaskSnapshot,
    keyed_alternatives,
    remote_only,
    safe_file_name,
    single_alternatives,
)

HandleT = TypeVar("HandleT", KeyedStateHandle, OperatorStateHandle)


def _no_note(text: str) -> None:
    """Drops the note."""


@dataclass(slots=True)
class LocalRecoveryCounts:
    """The results of local recovery in one run.

    :ivar note: called with messages for the user
    :ivar local_restores: states of one operator in one subtask that were restored with a local copy
    :ivar remote_fallbacks: states fetched from checkpoint storage although local recovery is on
    :ivar secondary_failures: local copies that could not be written, read or deleted
    """

    note: Callable[[str], None] = _no_note
    local_restores: int = 0
    remote_fallbacks: int = 0
    secondary_failures: int = 0

    def secondary_failed(self, what: str, problem: Exception) -> None:
        """A local copy is lost, or cannot be deleted; this does not affect checkpoint storage."""
        self.secondary_failures += 1
        self.note(f"local recovery: {what}: {problem}")


class TaskLocalRecovery:
    """Local recovery of one attempt of one task: the copies that it makes, and those from which it restores."""

    def __init__(self, name: str, store: LocalStateStore, counts: LocalRecoveryCounts) -> None:
        self._name = name
        self._store = store
        self._counts = counts
        self._under_way: dict[int, LocalSnapshot] = {}
        self._restored_id: int | None = None
        self._restored: LocalTaskState | None = None
        self._is_damaged = False
        self._told: set[str] = set()

    @property
    def store(self) -> LocalStateStore:
        return self._store

    def restoring(self, checkpoint_id: int | None) -> None:
        """The attempt starts from this checkpoint, or without one. Call it before any state is restored."""
        self._store.prune(checkpoint_id)
        self._restored_id = checkpoint_id
        self._restored = None if checkpoint_id is None else self._store.retrieve(checkpoint_id)

    def confirm(self, checkpoint_id: int) -> None:
        self._store.confirm(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        self._store.abort(checkpoint_id)

    # -- while it runs ------------------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int, unique: str, primary: StateReader) -> LocalSnapshot:
        """Begin the local copy of a checkpoint, which must not be a savepoint.

        :param unique: goes into names of files; never repeats for this checkpoint
        :param primary: opens what this checkpoint has in checkpoint storage
        """
        if self._is_damaged and self._restored_id is not None:
            # Newer local snapshots must not use files of it.
            self._store.abort(self._restored_id)
            self._is_damaged = False
        begun = LocalSnapshot(
            self._store, checkpoint_id, unique, primary, self._keep_files, self._lost, self._under_way.__delitem__
        )
        self._under_way[checkpoint_id] = begun
        return begun

    def _keep_files(self, file_system: FileSystem) -> KeepLocal:
        """Keeps the files of a store on that file system, for any checkpoint."""

        def keep(checkpoint_id: int, directory: str, remote: IncrementalKeyedStateHandle) -> KeyedStateHandle | None:
            begun = self._under_way.get(checkpoint_id)
            return None if begun is None else begun.keep(directory, remote, file_system)

        return keep

    def _lost(self, what: str, problem: Exception) -> None:
        self._counts.secondary_failed(f"{self._name}: {what}", problem)

    # -- restore ------------------------------------------------------------------------------------------------------

    def keyed_candidates(
        self, uid: str, handles: Sequence[KeyedStateHandle], reader: StateReader
    ) -> list[RestoreCandidate[KeyedStateHandle]]:
        """The candidates for an operator's keyed state, best first."""
        copy = self._copy_of(uid).keyed
        local = [] if copy is None or not self._is_copied(handles, copy) else [[copy]]
        return self._candidates(handles, keyed_alternatives(handles, local), reader)

    def operator_candidates(
        self, uid: str, handles: Sequence[OperatorStateHandle], reader: StateReader
    ) -> list[RestoreCandidate[OperatorStateHandle]]:
        """The candidates for an operator's operator state, best first."""
        copy = self._copy_of(uid).operator
        local = [] if copy is None else [[copy]]
        return self._candidates(handles, single_alternatives(handles, local, self._is_same), reader)

    def report(self, uid: str, kind: str) -> ReportRestore[HandleT]:
        """Counts and reports the outcome of the restore of one state."""

        def told(candidate: RestoreCandidate[HandleT], problems: Sequence[Exception]) -> None:
            if candidate.local_handles:
                self._counts.local_restores += 1
            elif candidate.handles:
                self._counts.remote_fallbacks += 1
                self._tell_fallback(uid, kind, len(candidate.handles), problems)

        return told

    def _copy_of(self, uid: str) -> SubtaskSnapshot:
        none = SubtaskSnapshot()
        return none if self._restored is None else self._restored.operators.get(uid, none)

    def _is_copied(self, handles: Sequence[KeyedStateHandle], copy: KeyedStateHandle) -> bool:
        """Whether the handle of the same key groups is what the copy is of, and not cut out of something else."""
        same = [handle for handle in handles if handle.key_group_range == copy.key_group_range]
        return bool(same) and all(self._has_copies(handle.streams()) for handle in same)

    def _has_copies(self, streams: Iterable[StreamStateHandle]) -> bool:
        copies = {} if self._restored is None else self._restored.copies
        return all(stream in copies for stream in streams if isinstance(stream, FileStateHandle))

    def _is_same(self, remote: OperatorStateHandle, local: OperatorStateHandle) -> bool:
        return remote.states == local.states and self._has_copies([remote.stream])

    def _candidates(
        self, remote: Sequence[HandleT], alternatives: list[list[HandleT]], reader: StateReader
    ) -> list[RestoreCandidate[HandleT]]:
        if len(alternatives) == 1:
            return remote_only(remote, reader)
        assert self._restored is not None
        assert self._restored_id is not None
        local_first = LocalFirstReader(reader, self._store.reader(self._restored_id), self._restored.copies)
        found: list[RestoreCandidate[HandleT]] = []
        for handles in alternatives[:-1]:
            count = sum(handle is not own for handle, own in zip(handles, remote, strict=True))
            found.append(RestoreCandidate(tuple(remote), local_first, count))
        found.extend(remote_only(remote, reader))
        return found

    def _tell_fallback(self, uid: str, kind: str, handles: int, problems: Sequence[Exception]) -> None:
        if problems:
            self._is_damaged = True
            self._lost(f"the local copy of the {described(uid, kind)} in checkpoint {self._restored_id}", problems[0])
            why = "its local copy cannot be used"
        elif self._restored is None:
            why = "there is no local copy"
        elif kind == "operator" and handles > 1:
            # State that is of several subtasks by its nature, such as union lists: nothing is amiss.
            return
        else:
            why = "the local copy is of other key groups, or has not all of it"
        text = f"local recovery: {self._name} fetches checkpoint {self._restored_id} from checkpoint storage: {why}"
        if text not in self._told:
            self._told.add(text)
            self._counts.note(text)


@dataclass(slots=True)
class LocalStateStores:
    """The local copies of all tasks of one run (``TaskExecutorLocalStateStoresManager``).

    :ivar file_system: their file system; usually one of this machine
    :ivar root: a directory only for them
    :ivar recovery_enabled: whether copies are used; otherwise they are only made
    """

    file_system: FileSystem
    root: str
    counts: LocalRecoveryCounts = field(default_factory=LocalRecoveryCounts)
    recovery_enabled: bool = True

    def for_task(self, name: str) -> TaskLocalRecovery:
        """Local recovery of the next attempt of a task. Every attempt has the same name, incarnations included, and
        no other task."""
        failed = self.counts.secondary_failed
        directory = self._directory(name)
        store = LocalStateStore(self.file_system, directory, failed, recovery_enabled=self.recovery_enabled)
        return TaskLocalRecovery(name, store, self.counts)

    def retain(self, names: Iterable[str]) -> None:
        """Delete the copies of all tasks except these: the tasks of the job have changed."""
        wanted = {self._directory(name) for name in names}
        try:
            found = self.file_system.list_dir(self.root) if self.file_system.is_dir(self.root) else []
        except OSError as problem:
            self.counts.secondary_failed(f"{self.root} cannot be listed", problem)
            return
        for path in (posixpath.join(self.root, name) for name in found):
            if path not in wanted:
                self._delete(path)

    def dispose(self) -> None:
        self._delete(self.root)

    def _directory(self, name: str) -> str:
        return posixpath.join(self.root, safe_file_name(name))

    def _delete(self, path: str) -> None:
        try:
            self.file_system.delete_tree(path)
        except OSError as problem:
            self.counts.secondary_failed(f"{path} could not be deleted", problem)
