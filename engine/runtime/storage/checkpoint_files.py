"""The files of a job's snapshots, as the job manager sees them: begin, complete, discard, find the newest.

Checkpoints lie in the job's storage. Savepoints lie where their user wants them, and so may the snapshot that the job
was started from. The user says who owns that one when giving it (Flink: ``RestoreMode``):

* CLAIM     it is a checkpoint of this job from now on, and deleted once it is subsumed;
* NO_CLAIM  it belongs to the user alone: the job does not refer to it, so the first checkpoint is a full one;
* LEGACY    the job refers to it, and never deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.coordinator import (
    CompletedCheckpoint,
    FinishedState,
    RestoreMode,
    SharedState,
    TaskId,
    WriteMetadata,
)
from engine.elements.errors import StorageError
from engine.elements.events import SnapshotKind
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.runtime.kernel import Around, nothing_around
from engine.runtime.storage.adopted_snapshot import AdoptedSnapshot, check_claimable, note_directories, own_files
from engine.runtime.storage.restored_channels import check_channels
from engine.runtime.storage.restored_state import RestoredJob
from engine.runtime.storage.shared_files import recovered_shared_state, with_files_of_another_job
from state_backends.base import CorruptStateError, StateBackendError, value_class
from state_backends.files import FileSystem, file_system_for
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    OperatorSnapshot,
    StateScope,
    SubtaskSnapshot,
    locate_snapshot,
    new_savepoint,
)


@value_class
class TaskSnapshot:
    """A task's part of a checkpoint.

    ``operators``  uid -> handles of its state;
    ``sent``       channel index -> records sent on it before the barrier, without those in ``operators``;
    ``received``   channel index -> records received from it before the snapshot, with those in ``operators``;
    ``read``       records that a source has read in this attempt; for statistics only.

    Records in flight that were captured count as received on the input side and as not sent on the output side. Without
    an instrument, which alone is told of them, nothing is counted.
    """

    operators: dict[str, SubtaskSnapshot]
    sent: dict[int, int]
    received: dict[int, int]
    read: int = field(default=0, compare=False, repr=False)


KIND, FORMAT, STOP = "kind", "format", "stop"
"""Properties of a savepoint in its metadata; a checkpoint has none of them."""


@dataclass(frozen=True, slots=True)
class SavepointRestore:
    """The snapshot to start from: ``path`` of its directory or ``_metadata``, and who will own it."""

    path: str
    mode: RestoreMode = RestoreMode.NO_CLAIM


class CheckpointFiles:
    """Checkpoint storage, and the plan's facts about operators.

    ``plan`` is the job's until a snapshot is restored whose max parallelism takes precedence over a derived one; then
    it is the job's with that max parallelism.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        plan: ExecutionPlan,
        incarnation: int,
        allow_non_restored_state: bool,
        file_system: FileSystem,
        state_backend: str = "heap",
        provenance: Provenance | None = None,
        *,
        around: Around = nothing_around,
    ) -> None:
        """``file_system``: where savepoints are written and read; a storage in memory is none for the user.
        ``state_backend``: the name of the backend that reads keyed state. ``provenance``: knows the causes of the
        records in flight."""
        self.storage = storage
        self.plan = plan
        self.savepoint_locations: dict[int, CheckpointLocation] = {}
        """Savepoints that are being written."""
        self._incarnation = incarnation
        self._allow_non_restored_state = allow_non_restored_state
        self._file_system = file_system
        self._state_backend = state_backend
        self._provenance = provenance
        self._around = around
        self._adopted: dict[int, AdoptedSnapshot] = {}
        self._undeleted: dict[int, bool] = {}
        """Checkpoints whose deletion was begun and has not ended, and whether they lie outside of the storage. While
        they may still exist, the files they refer to stay."""

    # -- writing ------------------------------------------------------------------------------------------------

    def initialize(self, checkpoint_id: int) -> None:
        """Make room for a checkpoint."""
        self.storage.initialize_location(checkpoint_id)

    def initialize_savepoint(self, checkpoint_id: int, target: str) -> None:
        """Make the directory of a savepoint below ``target``."""
        # Its directory is not among the others, so only this records that the number is used.
        self.storage.note_used(checkpoint_id)
        self.savepoint_locations[checkpoint_id] = new_savepoint(
            self._file_system_of(target),
            target,
            self.plan.job_name,
            checkpoint_id,
            self._incarnation,
            self.storage.inline_threshold_bytes,
        )

    def _file_system_of(self, path: str) -> FileSystem:
        return file_system_for(path)[0] if "://" in path else self._file_system

    def complete(self, instruction: WriteMetadata, snapshots: Mapping[TaskId, TaskSnapshot]) -> str:
        """Write the metadata: from here on the snapshot exists. Returns its directory."""
        checkpoint_id, options = instruction.checkpoint_id, instruction.options
        properties: dict[str, Any] = {"job": self.plan.job_name, "plan": self.plan.fingerprint}
        if instruction.kind is SnapshotKind.SAVEPOINT:
            properties[KIND] = instruction.kind.value
            if options.savepoint_format is not None:
                properties[FORMAT] = options.savepoint_format.value
            if options.stop is not None:
                properties[STOP] = options.stop.value
        metadata = CheckpointMetadata(
            checkpoint_id,
            instruction.timestamp_ns,
            self._incarnation,
            properties,
            tuple(self._operators(snapshots, instruction.finished, instruction.coordinator_states)),
        )
        location = self.location(checkpoint_id)
        location.write_metadata(metadata)
        return location.directory

    def _operators(
        self,
        snapshots: Mapping[TaskId, TaskSnapshot],
        finished: FinishedState,
        coordinator_states: Iterable[tuple[str, object]],
    ) -> list[OperatorSnapshot]:
        operators, coordinators = [], dict(coordinator_states)
        for vertex in self.plan.vertices:
            fully_finished = vertex.index in finished.fully_finished_vertices
            for operator in vertex.operators:
                subtasks: dict[int, SubtaskSnapshot] = {}
                for subtask in range(vertex.parallelism):
                    task = (vertex.index, subtask)
                    if fully_finished or task in finished.finished_subtasks:
                        # The output that a finished operator had left is committed: it is not needed again.
                        subtasks[subtask] = SubtaskSnapshot(finished=True)
                    elif task in snapshots:
                        subtasks[subtask] = snapshots[task].operators[operator.uid]
                # A vertex that has finished has no subtasks left to coordinate.
                state = None if fully_finished else coordinators.get(operator.uid)
                assert state is None or isinstance(state, bytes), operator.uid
                bounds = vertex.parallelism, vertex.max_parallelism
                operators.append(OperatorSnapshot(operator.uid, operator.name, *bounds, subtasks, state))
        return operators

    def discard(self, checkpoint_id: int) -> None:
        """Delete a snapshot, complete or not, without the files that it shares."""
        self._undeleted[checkpoint_id] = checkpoint_id in self.savepoint_locations or checkpoint_id in self._adopted
        if checkpoint_id in self.savepoint_locations:
            self.savepoint_locations.pop(checkpoint_id).discard()
        elif checkpoint_id in self._adopted:
            self._adopted.pop(checkpoint_id).discard()
        else:
            self.storage.discard(checkpoint_id)
        del self._undeleted[checkpoint_id]

    def delete_shared(self, handles: Iterable[object]) -> None:
        """Delete files that no retained checkpoint refers to.

        None is deleted while a checkpoint that was to be deleted may still exist: it would lose its files. The
        sweep at the end of the run, or at the next start, finds them.

        Raises :class:`OSError` when one cannot be deleted; the others are deleted.
        """
        if self._undeleted:
            return
        problem: OSError | None = None
        for handle in handles:
            assert isinstance(handle, FileStateHandle), handle
            try:
                self.storage.delete_shared(handle)
            except OSError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def discard_private(self, checkpoint_id: int, snapshots: Iterable[SubtaskSnapshot]) -> None:
        """Delete the files that a task has written for a snapshot that does not use them.

        Raises :class:`OSError` when one cannot be deleted.
        """
        location, file_system = self.location(checkpoint_id), self.storage.file_system
        for snapshot in snapshots:
            for stream in snapshot.streams():
                if isinstance(stream, FileStateHandle) and stream.scope is StateScope.EXCLUSIVE:
                    path = location.full_path(stream)
                    if file_system.exists(path):
                        file_system.delete(path)

    def location(self, checkpoint_id: int) -> CheckpointLocation:
        """Where a snapshot is, or will be."""
        if checkpoint_id in self.savepoint_locations:
            return self.savepoint_locations[checkpoint_id]
        if checkpoint_id in self._adopted:
            return self._adopted[checkpoint_id].location
        return self.storage.location(checkpoint_id)

    # -- files of an earlier process, or job manager ----------------------------------------------------------------

    def adopt(self, savepoint: SavepointRestore) -> None:
        """Count a snapshot from elsewhere among those that the job may be restored from.

        Raises :class:`state_backends.base.StateBackendError` when there is none at its path, or its metadata is
        damaged, and :class:`StorageError` when it cannot be read.
        """
        try:
            file_system = self._file_system_of(savepoint.path)
            location, metadata = locate_snapshot(file_system, savepoint.path)
        except OSError as error:
            raise unusable_storage(savepoint.path, error) from error
        check_claimable(file_system, location.directory, savepoint.mode)
        moved = self._of_this_job(metadata, location, savepoint.mode)
        try:
            note_directories(self.storage, moved, location, file_system, savepoint.mode)
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error
        self._adopted[location.checkpoint_id] = AdoptedSnapshot(
            location,
            savepoint.mode,
            is_savepoint=metadata.properties.get(KIND) == SnapshotKind.SAVEPOINT.value,
            shared=recovered_shared_state(moved),
            own_files=own_files(metadata, location),
        )

    def is_adopted(self, checkpoint_id: int) -> bool:
        """Whether a snapshot is the one that the job was started from, not one of its own."""
        return checkpoint_id in self._adopted

    def _of_this_job(
        self, metadata: CheckpointMetadata, location: CheckpointLocation, mode: RestoreMode
    ) -> CheckpointMetadata:
        may_be_referred_to = mode is not RestoreMode.NO_CLAIM
        return with_files_of_another_job(metadata, location, self.storage, may_be_referred_to=may_be_referred_to)

    def next_checkpoint_id(self) -> int:
        """A number above every id ever used in this directory, by checkpoints that never completed too.

        Raises :class:`StorageError` when the directory cannot be read.
        """
        try:
            return self.storage.next_checkpoint_id()
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error

    def retained(self, newest: int) -> list[CompletedCheckpoint]:
        """The completed snapshots up to ``newest`` that can be restored from."""
        found = [
            CompletedCheckpoint(
                known, external_pointer=self.storage.location(known).directory, shared=self._shared_by(known)
            )
            for known in self.storage.list_checkpoints()
        ]
        found += [adopted.entry() for adopted in self._adopted.values()]
        return sorted(
            (entry for entry in found if entry.checkpoint_id <= newest), key=lambda entry: entry.checkpoint_id
        )

    def _shared_by(self, checkpoint_id: int) -> tuple[SharedState, ...]:
        try:
            return recovered_shared_state(self.storage.read_metadata(checkpoint_id))
        except (StateBackendError, OSError):
            # A damaged one, passed over by the restore. The sweep deletes nothing meanwhile.
            return ()

    def discard_leftovers(self) -> None:
        """Delete the unfinished files of a job manager that has died.

        Raises :class:`StorageError` when that fails.
        """
        try:
            self.storage.discard_leftovers()
            there = self.storage.list_checkpoints()
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error
        # Files it was deleting in this storage are gone now, or among those that its successor knows.
        self._undeleted = {one: elsewhere for one, elsewhere in self._undeleted.items() if elsewhere or one in there}

    def discard_passed_over(self, restored: RestoredJob | None) -> None:
        """Delete the checkpoints that are newer than the one an attempt starts from, because they could not be read.

        A disk may give tomorrow the file it refuses today. Then a resume would take one of them for the newest,
        although this attempt has gone back to an earlier one and taken away the newer one's commits.

        Raises :class:`StorageError` when one of them cannot be deleted.
        """
        if restored is None:
            return
        try:
            for checkpoint_id in self.storage.list_checkpoints():
                if checkpoint_id > restored.checkpoint_id:
                    self.storage.discard(checkpoint_id)
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error

    def latest(self, known: Collection[int] | None = None) -> tuple[RestoredJob | None, tuple[str, ...]]:
        """The newest usable snapshot, assigned to the plan's subtasks, and the problems of newer ones.

        ``known`` limits the choice to snapshots whose completion was announced. A snapshot that may or may not have
        been written must not be restored by the process that took it for failed.

        Raises :class:`engine.elements.errors.JobChangedError` when the job does not fit its state, and
        :class:`StorageError` when the directory cannot be read.
        """
        with self._around("restore.read"):
            try:
                metadata, problems = self._newest_usable(known)
            except OSError as error:
                raise unusable_storage(self.storage.job_dir, error) from error
        if metadata is None:
            return None, tuple(problems)
        splits = "rescale.split" if self._rescales(metadata) else None
        with self._around("restore.assign-keys"), self._around(splits):
            restored = RestoredJob.assign(
                metadata,
                self.plan,
                self.location(metadata.checkpoint_id),
                allow_non_restored_state=self._allow_non_restored_state,
                state_backend=self._state_backend,
                provenance=self._provenance,
            )
        self.plan = self.plan if restored.plan is None else restored.plan
        return restored, tuple(problems)

    def _rescales(self, metadata: CheckpointMetadata) -> bool:
        parallelism = {operator.uid: vertex.parallelism for vertex, operator in self.plan.operators()}
        return any(parallelism.get(one.uid, one.parallelism) != one.parallelism for one in metadata.operators)

    def _verified(self, checkpoint_id: int) -> CheckpointMetadata:
        location = self.location(checkpoint_id)
        metadata = location.verify()
        job = metadata.properties.get("job", self.plan.job_name)
        if checkpoint_id not in self._adopted and job != self.plan.job_name:
            raise CorruptStateError(location.metadata_path, f"is the metadata of a checkpoint of job {job!r}")
        check_channels(metadata, self.plan, location.metadata_path)
        return metadata

    def _newest_usable(self, known: Collection[int] | None) -> tuple[CheckpointMetadata | None, list[str]]:
        candidates = {*self.storage.list_checkpoints(), *self._adopted} if known is None else known
        problems: list[str] = []
        for checkpoint_id in sorted(candidates, reverse=True):
            try:
                metadata = self._verified(checkpoint_id)
                if checkpoint_id in self._adopted:
                    adopted = self._adopted[checkpoint_id]
                    metadata = self._of_this_job(metadata, adopted.location, adopted.mode)
                return metadata, problems
            except (StateBackendError, OSError) as problem:
                what = "checkpoint" if checkpoint_id not in self._adopted else "the snapshot started from, number"
                problems.append(f"{what} {checkpoint_id} cannot be used: {problem}")
        return None, problems


def unusable_storage(directory: str, error: OSError) -> StorageError:
    """The error for a storage directory that the operating system does not let us use."""
    return StorageError(
        f"storage directory {directory} cannot be used: {error.strerror or error}\n"
        "  check the disk and the permissions, then start again: completed checkpoints are not harmed"
    )
