"""Writes a savepoint without a job: to start a job with state from elsewhere, or to change a savepoint by hand.

The result is a savepoint in canonical format: a job with any state backend and any parallelism up to the max
parallelism can start from it (Flink: the State Processor API's ``SavepointWriter``).

Each keyed operator is written through an ordinary keyed backend, so you put state in as a program does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from state_backends.api import OperatorStateBackend
from state_backends.base import KeyGroupRange, KeyType, StateArgumentError
from state_backends.codec import StateCodec, default_codec
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.offline.reader import SnapshotContent, write_in_full
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FullKeyedStateHandle,
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateReader,
    StreamCopier,
    SubtaskSnapshot,
    new_savepoint,
    run_to_completion,
)

if TYPE_CHECKING:
    from state_backends.heap import HeapKeyedStateBackend

DEFAULT_MAX_PARALLELISM = 128


class _Written:
    """An operator whose state is put in here."""

    def __init__(self, uid: str, name: str, max_parallelism: int) -> None:
        self.uid = uid
        self.name = name
        self.max_parallelism = max_parallelism
        self.keyed: HeapKeyedStateBackend | None = None
        self.operator: OperatorStateBackend | None = None
        self.coordinator_state: bytes | None = None


class SnapshotWriter:
    """A savepoint in the making: nothing is written before :meth:`write`."""

    def __init__(self, job_name: str, *, base: SnapshotContent | None = None, codec: StateCodec | None = None) -> None:
        """A savepoint without operators, or with those of ``base``.

        :param base: a snapshot whose operators are taken over as they are, unless removed or changed
        :raises StateArgumentError: when ``base`` holds records in flight: they belong to no operator's state
        """
        self._job_name = job_name
        self._base = base
        self._codec = default_codec() if codec is None else codec
        self._kept: dict[str, OperatorSnapshot] = {}
        self._written: dict[str, _Written] = {}
        for operator in base.operators() if base is not None else ():
            if any(one.input_channels or one.output_channels for one in operator.subtasks.values()):
                raise StateArgumentError(
                    f"operator {operator.name!r} (uid {operator.uid!r}) has records in flight, which would be lost. "
                    "Take a savepoint of the running job, which has none, and start from that."
                )
            self._kept[operator.uid] = operator

    def remove_operator(self, uid: str) -> None:
        """Leave an operator out.

        :raises StateArgumentError: when there is none of that uid
        """
        self._require(uid)
        self._kept.pop(uid, None)
        self._written.pop(uid, None)

    def change_uid(self, uid: str, new_uid: str) -> None:
        """Give the state of an operator to another uid.

        :raises StateArgumentError: when there is none of that uid, or the new one is taken
        """
        self._require(uid)
        self._require_free(new_uid)
        if uid in self._kept:
            self._kept[new_uid] = self._kept.pop(uid)
        else:
            written = self._written.pop(uid)
            written.uid = new_uid
            self._written[new_uid] = written

    def keyed_operator(
        self,
        uid: str,
        key_type: KeyType | None = None,
        *,
        name: str | None = None,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
    ) -> HeapKeyedStateBackend:
        """A new operator with keyed state; returns the backend to fill: declare states on it and put entries in.

        :param key_type: of all keys; ``None`` = that of the first
        :raises StateArgumentError: when the uid is taken
        :raises KeyGroupError: when there can be no such max parallelism
        """
        written = self._new(uid, name, max_parallelism)
        written.keyed = self._keyed_backend(key_type, max_parallelism)
        return written.keyed

    def list_operator(self, uid: str, *, name: str | None = None) -> OperatorStateBackend:
        """A new operator with operator state, such as the positions of a source; returns the backend to fill.

        :raises StateArgumentError: when the uid is taken
        """
        written = self._new(uid, name, DEFAULT_MAX_PARALLELISM)
        written.operator = OperatorStateBackend(codec=self._codec)
        return written.operator

    def modify_keyed_operator(self, uid: str) -> HeapKeyedStateBackend:
        """The keyed state of an operator of the base, to be changed; its operator state stays as it is.

        :raises StateArgumentError: when the base has none of that uid, or its state needs a package that is missing
        """
        if self._base is None or uid not in self._kept:
            raise StateArgumentError(f"the savepoint has no operator with uid {uid!r} to be changed.")
        old = self._kept.pop(uid)
        written = self._new(uid, old.name, old.max_parallelism)
        written.keyed = self._keyed_backend(None, old.max_parallelism)
        written.operator, written.coordinator_state = self._operator_state(old), old.coordinator_state
        written.keyed.restore(*self._in_full(old))
        return written.keyed

    def write(self, file_system: FileSystem, target: str, *, checkpoint_id: int = 1) -> str:
        """Write the savepoint below the directory ``target``; returns its own directory.

        :raises StateArgumentError: when it would be empty
        :raises StorageNotWritableError: when it cannot be created
        :raises StateSerializationError: when a value cannot be written
        :raises OSError: when the disk refuses; nothing is left then
        """
        if not self._kept and not self._written:
            raise StateArgumentError("a savepoint without operators is of no use: add one first.")
        location = new_savepoint(file_system, target, self._job_name, checkpoint_id, 0)
        try:
            operators = [*self._copied(file_system, location), *map(self._snapshot(location), self._written.values())]
            properties = {"job": self._job_name, "kind": "savepoint", "format": "canonical"}
            ordered = tuple(sorted(operators, key=lambda operator: operator.uid))
            location.write_metadata(CheckpointMetadata(checkpoint_id, 0, 0, properties, ordered))
        except BaseException as problem:
            try:
                location.discard()
            except OSError as another:
                problem.add_note(f"{location.directory} could not be deleted either: {another}")
            raise
        return location.directory

    # -- what is written ------------------------------------------------------------------------------------------

    def _copied(self, file_system: FileSystem, location: CheckpointLocation) -> list[OperatorSnapshot]:
        if self._base is None:
            return []
        source, copied = self._base.location, []
        copier = StreamCopier(file_system, source, location)
        for uid, operator in self._kept.items():
            subtasks = {}
            for index, subtask in sorted(operator.subtasks.items()):
                keyed = subtask.keyed
                if keyed is not None and not isinstance(keyed, FullKeyedStateHandle):
                    streams = location.stream_factory(f"{uid}-{index}-keyed")
                    keyed = write_in_full(keyed, source.reader(), operator.max_parallelism, self._codec, streams)
                elif keyed is not None:
                    keyed = keyed.with_streams(copier.copy)
                subtasks[index] = replace(replace(subtask, keyed=None).with_streams(copier.copy), keyed=keyed)
            copied.append(replace(operator, uid=uid, subtasks=subtasks))
        return copied

    def _snapshot(self, location: CheckpointLocation) -> Callable[[_Written], OperatorSnapshot]:
        options = SnapshotOptions(SnapshotType.CANONICAL_SAVEPOINT)

        def snapshot(written: _Written) -> OperatorSnapshot:
            keyed: KeyedStateHandle | None = None
            operator: OperatorStateHandle | None = None
            number = location.checkpoint_id
            if written.keyed is not None:
                streams = location.stream_factory(f"{written.uid}-0-keyed")
                pinned = written.keyed.sync_prepare_resources(number)
                task = written.keyed.async_snapshot(pinned, streams, options)
                keyed = run_to_completion(task).job_manager_state
            if written.operator is not None:
                streams = location.stream_factory(f"{written.uid}-0-operator")
                copied = written.operator.sync_prepare_resources(number)
                listed = written.operator.async_snapshot(copied, streams, options)
                operator = run_to_completion(listed).job_manager_state
            subtasks = {0: SubtaskSnapshot(keyed, operator)}
            return OperatorSnapshot(
                written.uid, written.name, 1, written.max_parallelism, subtasks, written.coordinator_state
            )

        return snapshot

    # -- what there is --------------------------------------------------------------------------------------------

    def _in_full(self, operator: OperatorSnapshot) -> tuple[list[FullKeyedStateHandle], StateReader]:
        """The keyed state of all subtasks in the full format, and what opens it."""
        assert self._base is not None
        reader = self._base.location.reader()
        handles = [one.keyed for _, one in sorted(operator.subtasks.items()) if one.keyed is not None]
        full = [one for one in handles if isinstance(one, FullKeyedStateHandle)]
        if len(full) == len(handles):
            return full, reader
        where = CheckpointStorage(MemoryFileSystem(), "/", "offline").initialize_location(1)
        streams = where.stream_factory("full")
        written = [write_in_full(one, reader, operator.max_parallelism, self._codec, streams) for one in handles]
        return [one for one in written if one is not None], where.reader()

    def _operator_state(self, operator: OperatorSnapshot) -> OperatorStateBackend | None:
        assert self._base is not None
        handles = [one.operator for _, one in sorted(operator.subtasks.items()) if one.operator is not None]
        if not handles:
            return None
        backend = OperatorStateBackend(codec=self._codec)
        backend.restore(handles, self._base.location.reader())
        return backend

    def _keyed_backend(self, key_type: KeyType | None, max_parallelism: int) -> HeapKeyedStateBackend:
        from state_backends.heap import HeapKeyedStateBackend  # what only reads a savepoint starts without it

        all_groups = KeyGroupRange(0, max_parallelism - 1)
        return HeapKeyedStateBackend(key_type, max_parallelism, all_groups, codec=self._codec)

    def _new(self, uid: str, name: str | None, max_parallelism: int) -> _Written:
        self._require_free(uid)
        written = self._written[uid] = _Written(uid, uid if name is None else name, max_parallelism)
        return written

    def _require(self, uid: str) -> None:
        if uid not in self._kept and uid not in self._written:
            raise StateArgumentError(f"the savepoint has no operator with uid {uid!r}; it has {self._uids()}.")

    def _require_free(self, uid: str) -> None:
        if uid in self._kept or uid in self._written:
            raise StateArgumentError(f"uid {uid!r} is taken: each operator of a job has one of its own.")

    def _uids(self) -> str:
        return ", ".join(map(repr, sorted({**self._kept, **self._written}))) or "none"
