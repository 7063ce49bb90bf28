"""One machine with checkpoint storage and local copies, and the attempts of one task on it, driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, OperatorStateBackend
from state_backends.base import LONG, ValueStateDescriptor, key_group_range_for_index
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.local import LocalRecoveryCounts, LocalStateStores
from state_backends.named import state_backend_named
from state_backends.snapshots import (
    CheckpointStorage,
    FileStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    StateReader,
    StreamStateHandle,
    SubtaskSnapshot,
    restore_backend,
    run_to_completion,
)
from tests.state_backends.support import told

GROUPS = 8
VALUE = ValueStateDescriptor("value")
SPLITS = "splits"


class Watched:
    """A reader that records its reads."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self.opened: list[str] = []

    def open(self, handle: StreamStateHandle) -> Any:
        if isinstance(handle, FileStateHandle):
            self.opened.append(handle.path)
        return self._reader.open(handle)


class Machine:
    """The file systems and the notes; state is never inlined, so that every piece is a file."""

    def __init__(self, backend: str = "heap", *, local: FileSystem | None = None, incremental: bool = False) -> None:
        self.fs = MemoryFileSystem()
        self.local = self.fs if local is None else local
        self.storage = CheckpointStorage(self.fs, "/s", "job", inline_threshold_bytes=0)
        self.notes: list[str] = []
        self.counts = LocalRecoveryCounts(self.notes.append)
        self.stores = LocalStateStores(self.local, "/s/job/local", self.counts)
        self.backend = state_backend_named(backend, incremental=incremental)
        self.attempts = 0
        self.completed: dict[int, list[SubtaskSnapshot]] = {}
        """By checkpoint, the state of each subtask."""

    def told(self) -> tuple[int, int, int]:
        return self.counts.local_restores, self.counts.remote_fallbacks, self.counts.secondary_failures

    def local_files(self) -> list[str]:
        """Below the root of local copies."""
        inner = getattr(self.local, "inner", self.local)
        return [path.removeprefix("/s/job/local/") for path in inner.walk_files("/s/job/local")]

    def start(self, checkpoint_id: int | None = None, subtask: int = 0, parallelism: int = 1) -> Attempt:
        """The next attempt of a subtask, restored from a checkpoint or from nothing."""
        self.attempts += 1
        return Attempt(self, self.attempts, checkpoint_id, subtask, parallelism)


class Attempt:
    """One attempt of the task, with keyed and operator state under the uid ``op``."""

    def __init__(
        self, machine: Machine, number: int, checkpoint_id: int | None, subtask: int, parallelism: int
    ) -> None:
        self.machine = machine
        self.number = number
        self.subtask = subtask
        self.groups = key_group_range_for_index(GROUPS, parallelism, subtask)
        self.recovery = machine.stores.for_task(f"op-{subtask}")
        self.recovery.restoring(checkpoint_id)
        self.disposed = 0
        self.remote: Watched | None = None
        before = [] if checkpoint_id is None else machine.completed[checkpoint_id]
        if checkpoint_id is not None:
            self.remote = Watched(machine.storage.reader(checkpoint_id))
        same = len(before) == parallelism
        mine = [before[subtask]] if same else before
        self.keyed = self._keyed([one.keyed for one in mine if one.keyed is not None])
        self.operator = self._operator(mine)

    def _environment(self, tried: int) -> BackendEnvironment:
        unique = f"op-{self.subtask}-{self.number}-{tried}"
        return BackendEnvironment(LONG, GROUPS, self.groups, self.machine.fs, f"/s/job/work/{unique}", unique)

    def _keyed(self, handles: Sequence[KeyedStateHandle]) -> KeyedStateBackend:
        cut = [one for one in (handle.intersect(self.groups) for handle in handles) if one is not None]
        create = self.machine.backend.create_keyed_backend
        if not cut:
            return create(self._environment(0))
        assert self.remote is not None

        def dispose(backend: KeyedStateBackend) -> None:
            self.disposed += 1
            backend.dispose()

        return restore_backend(
            self.recovery.keyed_candidates("op", cut, self.remote),
            lambda tried: create(self._environment(tried)),
            lambda backend, one: backend.restore(one.handles, one.reader),
            dispose,
            report=self.recovery.report("op", "keyed"),
        )

    def _operator(self, before: Sequence[SubtaskSnapshot]) -> OperatorStateBackend:
        handles = [one.operator for one in before if one.operator is not None]
        if not handles:
            return OperatorStateBackend()
        assert self.remote is not None
        return restore_backend(
            self.recovery.operator_candidates("op", handles, self.remote),
            lambda _tried: OperatorStateBackend(),
            lambda backend, one: backend.restore(one.handles, one.reader),
            report=self.recovery.report("op", "operator"),
        )

    def put(self, *keys: int, value: object = "x") -> None:
        """Keyed state for those of the keys that are of the own key groups."""
        state = self.keyed.value_state(VALUE)
        for key in keys:
            self.keyed.set_current_key(key)
            state.update(value)

    def values(self) -> dict[int, object]:
        state = self.keyed.value_state(VALUE)
        keys = self.keyed.keys(VALUE.name)
        return dict(sorted(zip(keys, state.get_many(keys), strict=True)))

    def checkpoint(self, checkpoint_id: int, *, fails: bool = False) -> SubtaskSnapshot:
        """A whole checkpoint of the task; it is not confirmed yet."""
        where = self.machine.storage.location(checkpoint_id)
        if not self.machine.fs.is_dir(where.directory):
            self.machine.storage.initialize_location(checkpoint_id)
        unique = f"{self.subtask}-{self.number}-{checkpoint_id}"
        local = self.recovery.snapshot(checkpoint_id, unique, where.reader())
        snapshot = SubtaskSnapshot()
        options = SnapshotOptions()
        for kind, backend in (("keyed", self.keyed), ("operator", self.operator)):
            strategy: Any = backend.snapshot_strategy(options)  # type: ignore[attr-defined]
            primary = where.stream_factory(f"op-{kind}-{unique}")
            factory = local.streams("op", kind, primary, strategy)
            resources = strategy.sync_prepare_resources(checkpoint_id)
            task = strategy.async_snapshot(resources, factory, options)
            if fails and kind == "operator":
                task.cancel()
                local.discard()
                return snapshot
            result = local.finished("op", kind, run_to_completion(task))
            snapshot = SubtaskSnapshot(
                keyed=result.job_manager_state if kind == "keyed" else snapshot.keyed,
                operator=result.job_manager_state if kind == "operator" else snapshot.operator,
            )
        local.store()
        self.machine.completed.setdefault(checkpoint_id, []).append(snapshot)
        return snapshot

    def confirm(self, checkpoint_id: int) -> None:
        """The coordinator says that it is complete."""
        self.recovery.confirm(checkpoint_id)
        told(self.keyed).complete(checkpoint_id)

    def run(self, checkpoint_id: int, *keys: int, value: object = "x") -> None:
        self.put(*keys, value=value)
        self.checkpoint(checkpoint_id)
        self.confirm(checkpoint_id)
