"""Failure reasons, the failure budget and barrier options, against recorded scenarios."""

from __future__ import annotations

import pytest

from engine.checkpoint.coordinator.checkpoint_ending import CheckpointFailureManager
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CheckpointOptions, SnapshotKind

EXPIRED = CheckpointFailureReason.CHECKPOINT_EXPIRED


def test_five_reasons_count() -> None:
    """Exactly five of all reasons use up the budget."""
    assert {
        "IO_EXCEPTION",
        "CHECKPOINT_ASYNC_EXCEPTION",
        "CHECKPOINT_DECLINED",
        "CHECKPOINT_EXPIRED",
        "FINALIZE_CHECKPOINT_FAILURE",
    } == {reason.name for reason in CheckpointFailureReason if reason.counted}


def test_one_checkpoint_counts_once() -> None:
    """A checkpoint that fails in several tasks is one failure; without an id each one counts."""
    manager = CheckpointFailureManager(1)

    assert not manager.on_failure(EXPIRED, 1)
    assert not manager.on_failure(EXPIRED, 1)
    assert manager.failures_in_a_row == 1
    assert manager.on_failure(EXPIRED, None)
    assert manager.failures_in_a_row == 0


def test_completion_clears_the_count() -> None:
    """Only consecutive failures count; one completed checkpoint clears the count."""
    manager = CheckpointFailureManager(1)
    manager.on_failure(EXPIRED, 1)
    manager.on_completed(2)

    assert not manager.on_failure(EXPIRED, 3)
    assert manager.on_failure(EXPIRED, 4)


def test_failure_of_a_completed_checkpoint_is_ignored() -> None:
    """A failure report about the newest completed checkpoint itself comes too late to count."""
    manager = CheckpointFailureManager(0)
    manager.on_completed(5)

    assert not manager.on_failure(EXPIRED, 5)
    assert manager.on_failure(EXPIRED, 6)


def test_older_completion_does_not_clear() -> None:
    """A completion below the newest completed id has no effect."""
    manager = CheckpointFailureManager(1)
    manager.on_completed(5)
    manager.on_failure(EXPIRED, 6)
    manager.on_completed(4)

    assert manager.on_failure(EXPIRED, 7)


@pytest.mark.parametrize("synchronous", [True, False])
def test_plain_savepoint_declined_by_a_task_counts_like_a_checkpoint(synchronous: bool) -> None:
    """A savepoint a task declines uses up the budget; only a synchronous one fails the job whatever the budget."""
    manager = CheckpointFailureManager(1)
    declined = CheckpointFailureReason.CHECKPOINT_DECLINED

    failed = manager.on_failure(declined, 1, is_savepoint=True, is_synchronous=synchronous, by_task=True)

    assert failed is synchronous
    assert manager.failures_in_a_row == (0 if synchronous else 1)


def test_fingerprint_changes_with_the_count() -> None:
    """The budget that is left is part of the state."""
    manager = CheckpointFailureManager(2)
    before = manager.fingerprint()
    manager.on_failure(EXPIRED, 1)

    assert before != manager.fingerprint()


@pytest.mark.parametrize(
    ("unaligned", "timeout_ns", "alignment"),
    [(False, 5, "ALIGNED"), (True, None, "UNALIGNED"), (True, 0, "UNALIGNED"), (True, 5, "ALIGNED")],
)
def test_timeout_decides_how_unaligned_begins(unaligned: bool, timeout_ns: int | None, alignment: str) -> None:
    """Without unaligned checkpoints the timeout has no effect; without a timeout they are unaligned at once."""
    options = CheckpointOptions.configured(unaligned=unaligned, aligned_timeout_ns=timeout_ns)

    assert AlignmentType[alignment] is options.alignment
    assert options.timeoutable is (unaligned and bool(timeout_ns))


def test_savepoints_are_aligned_without_timeout() -> None:
    """A savepoint of an unaligned job holds no records in flight."""
    configured = CheckpointOptions.configured(unaligned=True, aligned_timeout_ns=5)

    options = configured.for_snapshot(SnapshotKind.SAVEPOINT)

    assert not options.needs_channel_state
    assert configured.for_snapshot(SnapshotKind.FULL_CHECKPOINT).timeoutable
