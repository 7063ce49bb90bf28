"""The files of a job's checkpoints, as the job manager sees them: begin, complete, discard, find the newest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from engine.checkpoint.completed_store import CompletedCheckpoint
from engine.checkpoint.messages import TaskId
from engine.elements.errors import StorageError
from engine.runtime.restored_state import RestoredJob
from engine.runtime.task_checkpoint import TaskSnapshot
from state_backends.errors import StateBackendError
from state_backends.storage import CheckpointMetadata, CheckpointStorage, OperatorSnapshot, SubtaskSnapshot

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan


class CheckpointFiles:
    """Checkpoint storage plus what the plan knows about operators."""

    def __init__(
        self, storage: CheckpointStorage, plan: ExecutionPlan, incarnation: int, allow_non_restored_state: bool
    ) -> None:
        self.storage = storage
        self._plan = plan
        self._incarnation = incarnation
        self._allow_non_restored_state = allow_non_restored_state

    def initialize(self, checkpoint_id: int) -> None:
        """Make room for a checkpoint."""
        self.storage.initialize_location(checkpoint_id)

    def complete(self, checkpoint_id: int, timestamp_ns: int, snapshots: Mapping[TaskId, TaskSnapshot]) -> None:
        """Write the metadata: from here on the checkpoint exists."""
        metadata = CheckpointMetadata(
            checkpoint_id,
            timestamp_ns,
            self._incarnation,
            {"job": self._plan.job_name, "plan": self._plan.fingerprint},
            tuple(self._operators(snapshots)),
        )
        self.storage.location(checkpoint_id).write_metadata(metadata)

    def _operators(self, snapshots: Mapping[TaskId, TaskSnapshot]) -> list[OperatorSnapshot]:
        operators = []
        for vertex, operator in self._plan.operators():
            subtasks: dict[int, SubtaskSnapshot] = {}
            for subtask in range(vertex.parallelism):
                snapshot = snapshots.get((vertex.index, subtask))
                if snapshot is not None:
                    subtasks[subtask] = snapshot.operators[operator.uid]
            operators.append(
                OperatorSnapshot(operator.uid, operator.name, vertex.parallelism, vertex.max_parallelism, subtasks)
            )
        return operators

    def discard(self, checkpoint_id: int) -> None:
        """Delete a checkpoint, complete or not."""
        self.storage.discard(checkpoint_id)

    def next_checkpoint_id(self) -> int:
        """Above every id found in this directory, by checkpoints that never completed too.

        Raises :class:`StorageError` when the directory cannot be read.
        """
        try:
            return self.storage.highest_checkpoint_id() + 1
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error

    def retained(self, newest: int) -> list[CompletedCheckpoint]:
        """The completed checkpoints up to ``newest`` that an earlier incarnation has left."""
        return [CompletedCheckpoint(known) for known in self.storage.list_checkpoints() if known <= newest]

    def discard_passed_over(self, restored: RestoredJob | None) -> None:
        """Delete the checkpoints that are newer than what an attempt starts from, because they could not be read.

        A disk may give tomorrow what it refuses today. Then a resume would take one of them for the newest, while
        this attempt has gone back behind it and taken away what it had committed.

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
        """The newest usable checkpoint, assigned to the plan's subtasks, and what was wrong with newer ones.

        ``known`` limits the choice to checkpoints whose completion was announced: one that may or may not have been
        written must not be restored by the process that took it for failed.

        Raises :class:`engine.elements.errors.JobChangedError` when the job does not fit its state, and
        :class:`StorageError` when the directory cannot be read.
        """
        try:
            metadata, problems = self._newest_usable(known)
        except OSError as error:
            raise unusable_storage(self.storage.job_dir, error) from error
        if metadata is None:
            return None, tuple(problems)
        restored = RestoredJob.assign(
            metadata, self._plan, self.storage, allow_non_restored_state=self._allow_non_restored_state
        )
        return restored, tuple(problems)

    def _newest_usable(self, known: Collection[int] | None) -> tuple[CheckpointMetadata | None, list[str]]:
        if known is None:
            return self.storage.latest_usable()
        problems: list[str] = []
        for checkpoint_id in sorted(known, reverse=True):
            try:
                return self.storage.verify(checkpoint_id), problems
            except (StateBackendError, OSError) as problem:
                problems.append(f"checkpoint {checkpoint_id} cannot be used: {problem}")
        return None, problems


def unusable_storage(directory: str, error: OSError) -> StorageError:
    """The error for a storage directory that the operating system does not let us use."""
    return StorageError(
        f"storage directory {directory} cannot be used: {error.strerror or error}\n"
        "  check the disk and the permissions, then start again: completed checkpoints are not harmed"
    )
