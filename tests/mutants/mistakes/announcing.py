"""Mistakes of partition commit and of committers: pending partitions, covered files, and agreement of all subtasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operators.files.sinks.compaction_operators import CompactorOperator
from operators.table.partitions.partition_announcements import PartitionAnnouncements
from operators.table.partitions.partition_committer import END_OF_INPUT as END_OF_PARTITIONS, PartitionCommitter
from operators.table.partitions.partition_triggers import PartitionTimeTrigger, ProcessTimeTrigger
from operators.transactions import END_OF_INPUT
from operators.transactions.committer_machine import CommitterMachine
from operators.transactions.global_committer_machine import GlobalCommitterMachine
from tests.mutants.mutant import replaced, together

# --- pending partitions ------------------------------------------------------------------------------------------


@contextmanager
def pending_partitions_not_restored() -> Iterator[None]:
    """A restored committer knows only the partitions that are announced from then on."""
    restore = PartitionTimeTrigger.restore

    def forgetting(trigger: Any, lists: dict[str, list[Any]]) -> None:
        restore(trigger, lists)
        trigger._named_ms = {}

    with together(
        replaced(PartitionTimeTrigger, restore=forgetting),
        replaced(ProcessTimeTrigger, restore=lambda trigger, lists: None),
    ):
        yield


@contextmanager
def judged_by_the_watermark_of_the_completion() -> Iterator[None]:
    """Event time at the announcement of the checkpoint counts, not at its snapshot."""
    on_message = PartitionCommitter.on_message

    def judging(committer: Any, checkpoint_id: int, *announced: Any) -> list[str]:
        trigger = committer._trigger
        if isinstance(trigger, PartitionTimeTrigger) and checkpoint_id in trigger._watermarks:
            trigger._watermarks[checkpoint_id] = committer._watermark_ms
        return on_message(committer, checkpoint_id, *announced)

    with replaced(PartitionCommitter, on_message=judging):
        yield


@contextmanager
def only_the_newest_announced() -> Iterator[None]:
    """A writer announces the partitions of the completed checkpoint, but not those of checkpoints before it."""

    def announcing(books: Any, checkpoint_id: int) -> list[str] | None:
        if checkpoint_id <= books._announced_id:
            return None
        books._announced_id = checkpoint_id
        announced, books._committable = books._committable, {}
        announced |= books._new_by_checkpoint.pop(checkpoint_id, {})
        if checkpoint_id == END_OF_PARTITIONS:
            books._new_by_checkpoint.clear()
        return list(announced)

    with replaced(PartitionAnnouncements, on_committed=announcing):
        yield


# --- committers --------------------------------------------------------------------------------------------------


@contextmanager
def any_notification_covers_the_end() -> Iterator[None]:
    """After the end of the input the next notification commits everything, whichever checkpoint it is of."""
    notify = CommitterMachine.notify

    def covering(machine: Any, checkpoint_id: int) -> Any:
        return notify(machine, END_OF_INPUT if machine._ended else checkpoint_id)

    with replaced(CommitterMachine, notify=covering):
        yield


@contextmanager
def not_all_subtasks_awaited() -> Iterator[None]:
    """The global committer takes a checkpoint for whole once no file is missing of the subtasks heard so far."""
    with replaced(GlobalCommitterMachine, _has_all_reports=lambda machine, checkpoint: True):
        yield


@contextmanager
def compacted_before_completion() -> Iterator[None]:
    """Compaction begins with the snapshot, while its files can still be taken back."""
    snapshot_state = CompactorOperator.snapshot_state

    def beginning(compactor: Any, checkpoint_id: int) -> None:
        snapshot_state(compactor, checkpoint_id)
        compactor.notify_checkpoint_complete(checkpoint_id)

    with replaced(CompactorOperator, snapshot_state=beginning):
        yield
