"""The task's side of a checkpoint, rule by rule; recorded scenarios are replayed by the conformance tests."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask import (
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    DeclineCheckpoint,
    DiscardSnapshot,
    FailTask,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    StopTask,
    TakeSnapshot,
    TaskCheckpointProtocol,
    TaskInstructions,
)
from engine.elements.events import AlignmentType, CheckpointBarrier, CheckpointOptions, SnapshotKind, StopMode

SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
ASYNC_FAILED = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
METRICS = AlignmentMetrics()


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0)


def due(protocol: TaskCheckpointProtocol, checkpoint_id: int) -> TaskInstructions:
    return protocol.on_snapshot_due(barrier(checkpoint_id), METRICS)


def test_ids_must_grow() -> None:
    """A snapshot whose id is not above the last one is refused silently."""
    protocol = TaskCheckpointProtocol()

    assert (TakeSnapshot(barrier(5), METRICS),) == due(protocol, 5)
    assert due(protocol, 5) == ()
    assert due(protocol, 4) == ()
    assert (TakeSnapshot(barrier(6), METRICS),) == due(protocol, 6)


@pytest.mark.parametrize("timeout_ns", [None, 5])
def test_a_barrier_that_had_to_be_aligned_goes_on_in_its_own_form(timeout_ns: int | None) -> None:
    """Unaligned, and so before all records, or timeoutable again."""
    alignment = AlignmentType.UNALIGNED if timeout_ns is None else AlignmentType.ALIGNED
    own = CheckpointBarrier(1, 0, CheckpointOptions(alignment, aligned_timeout_ns=timeout_ns))
    forced = own.with_options(own.options.with_unaligned_unsupported())
    assert not forced.is_priority

    (taken,) = TaskCheckpointProtocol().on_snapshot_due(forced, METRICS)

    assert taken == TakeSnapshot(own, METRICS)


def test_a_restored_id_is_not_taken_again() -> None:
    """Ids start above the one the attempt was restored from."""
    assert due(TaskCheckpointProtocol(7), 7) == ()


def test_alignment_abort_declines_first_then_cancels_downstream() -> None:
    """The coordinator gets the decline and all outputs get a marker; a later barrier of that id has no effect."""
    protocol = TaskCheckpointProtocol()

    assert (DeclineCheckpoint(3, SUBSUMED), BroadcastCancelMarker(3)) == protocol.on_alignment_aborted(3, SUBSUMED)
    assert due(protocol, 3) == ()


def test_alignment_abort_forgets_older_notes() -> None:
    """Notes below the aborted id can never be needed again."""
    protocol = TaskCheckpointProtocol()
    for checkpoint_id in (2, 3, 5):
        protocol.on_abort(checkpoint_id)

    protocol.on_alignment_aborted(5, SUBSUMED)

    assert protocol.remembered_aborts == (5,)


def test_forgotten_note_still_counts() -> None:
    """An id far below the highest noted one counts as aborted although its note is gone."""
    protocol = TaskCheckpointProtocol(max_recorded_aborts=2)
    for checkpoint_id in (1, 2, 3, 4):
        protocol.on_abort(checkpoint_id)
    assert protocol.remembered_aborts == (3, 4)

    assert (BroadcastCancelMarker(1),) == due(protocol, 1)
    assert (TakeSnapshot(barrier(2), METRICS),) == due(protocol, 2)


def test_snapshot_is_acknowledged_or_discarded() -> None:
    """The loser of the race between upload and abort has no effect."""
    protocol = TaskCheckpointProtocol()
    due(protocol, 1)

    assert (CancelSnapshot(1), NotifyOperatorsAborted(1)) == protocol.on_abort(1)
    assert (DiscardSnapshot(1),) == protocol.on_snapshot_written(1)
    assert protocol.on_snapshot_failed(1) == ()


def test_failed_upload_declines() -> None:
    """A failing asynchronous part costs the checkpoint, once."""
    protocol = TaskCheckpointProtocol()
    due(protocol, 1)

    assert (DeclineCheckpoint(1, ASYNC_FAILED),) == protocol.on_snapshot_failed(1)
    assert protocol.on_snapshot_failed(1) == ()


@pytest.mark.parametrize(("is_closing", "reason"), [(False, "NOT_READY"), (True, "CLOSING")])
def test_trigger_at_a_task_that_does_not_run(is_closing: bool, reason: str) -> None:
    """The trigger is declined, with the reason."""
    (decline,) = TaskCheckpointProtocol().on_trigger_refused(1, is_closing)

    assert CheckpointFailureReason[f"CHECKPOINT_DECLINED_TASK_{reason}"] is decline.reason  # type: ignore[union-attr]


def test_complete_comes_before_aborted() -> None:
    """An abort notification first repairs the completion that it overtook; the late completion is then ignored."""
    protocol = TaskCheckpointProtocol()

    assert (NotifyOperatorsComplete(2), NotifyOperatorsAborted(1)) == protocol.on_abort(1, 2)
    assert protocol.on_complete(2) == ()


def test_subsumed_follows_complete() -> None:
    """Operators hear of the completion, then of the subsumed checkpoint, each once."""
    protocol = TaskCheckpointProtocol()

    assert (NotifyOperatorsComplete(4), NotifyOperatorsSubsumed(3)) == protocol.on_complete(4, 3)
    assert protocol.on_complete(3, 2) == ()
    assert (NotifyOperatorsComplete(5),) == protocol.on_complete(5, -1)


def test_final_checkpoint_is_the_first_after_the_end_of_data() -> None:
    """A snapshot from before the end of data commits too little; the first one after it, or a later one, is enough."""
    protocol = TaskCheckpointProtocol()
    due(protocol, 1)
    protocol.on_end_of_data()
    protocol.on_complete(1)
    assert not protocol.final_checkpoint_completed

    assert (TakeSnapshot(barrier(2), METRICS, final=True),) == due(protocol, 2)
    assert (TakeSnapshot(barrier(3), METRICS),) == due(protocol, 3)
    protocol.on_abort(2)
    assert not protocol.final_checkpoint_completed
    protocol.on_complete(3)
    assert protocol.final_checkpoint_completed


def stopping(protocol: TaskCheckpointProtocol, checkpoint_id: int) -> None:
    """The barrier of a savepoint that stops the job is due, and its snapshot is written."""
    options = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, stop=StopMode.SUSPEND)
    protocol.on_snapshot_due(CheckpointBarrier(checkpoint_id, 0, options), METRICS)
    protocol.on_snapshot_written(checkpoint_id)
    protocol.validate()


def test_a_stopping_savepoint_waits_for_exactly_its_own_completion() -> None:
    """Another id reaches the operators and releases no task; its own finishes the task, after the operators."""
    protocol = TaskCheckpointProtocol()
    due(protocol, 1)
    stopping(protocol, 2)
    assert protocol.stopping_id == 2

    assert protocol.on_complete(1) == (NotifyOperatorsComplete(1),)
    assert protocol.on_complete(2) == (NotifyOperatorsComplete(2), StopTask(2))


def test_a_lost_completion_of_a_stopping_savepoint_is_repaired() -> None:
    """An abort of a later id that names the savepoint as the latest complete one lets the task finish."""
    protocol = TaskCheckpointProtocol()
    stopping(protocol, 2)

    told = protocol.on_abort(3, 2)

    assert told == (NotifyOperatorsComplete(2), StopTask(2), NotifyOperatorsAborted(3))


def test_abort_of_a_stopping_savepoint_fails_the_task() -> None:
    """The task has given up its work for it; the abort of another id does not fail the task."""
    protocol = TaskCheckpointProtocol()
    due(protocol, 1)
    stopping(protocol, 2)

    assert protocol.on_abort(1) == (CancelSnapshot(1), NotifyOperatorsAborted(1))
    assert protocol.on_abort(2) == (NotifyOperatorsAborted(2), FailTask(2))


def test_an_ordinary_savepoint_stops_nobody() -> None:
    """Only the barrier of a savepoint that stops the job makes the task wait."""
    protocol = TaskCheckpointProtocol()
    barrier_of_savepoint = CheckpointBarrier(1, 0, CheckpointOptions(kind=SnapshotKind.SAVEPOINT))
    protocol.on_snapshot_due(barrier_of_savepoint, METRICS)

    assert protocol.stopping_id is None
    assert protocol.on_complete(1) == (NotifyOperatorsComplete(1),)


def test_a_task_is_stopped_by_one_savepoint_only() -> None:
    """A second stopping savepoint is a bug; one aborted before its barrier makes no task wait."""
    protocol = TaskCheckpointProtocol()
    protocol.on_abort(1)
    stopping(protocol, 1)
    assert protocol.stopping_id is None
    before = protocol.fingerprint()
    stopping(protocol, 2)

    assert before != protocol.fingerprint()
    with pytest.raises(AssertionError, match="both stop"):
        stopping(protocol, 3)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["due", "written", "failed", "complete", "abort", "cancelled"]), st.integers(1, 8)),
    max_size=40,
)


@given(EVENTS)
def test_any_sequence_keeps_the_promises(events: list[tuple[str, int]]) -> None:
    """Snapshot ids grow, each ends at most once, and operators see complete ids grow strictly."""
    protocol = TaskCheckpointProtocol(max_recorded_aborts=3)
    taken: list[int] = []
    ended: list[int] = []
    completed: list[int] = []
    for event, checkpoint_id in events:
        instructions: TaskInstructions
        match event:
            case "due":
                instructions = due(protocol, checkpoint_id)
            case "written":
                instructions = protocol.on_snapshot_written(checkpoint_id)
            case "failed":
                instructions = protocol.on_snapshot_failed(checkpoint_id)
            case "complete":
                instructions = protocol.on_complete(checkpoint_id)
            case "abort":
                instructions = protocol.on_abort(checkpoint_id, checkpoint_id - 1)
            case _:
                instructions = protocol.on_alignment_aborted(checkpoint_id, SUBSUMED)
        protocol.validate()
        hash(protocol.fingerprint())
        for instruction in instructions:
            if isinstance(instruction, TakeSnapshot):
                taken.append(instruction.barrier.checkpoint_id)
            elif isinstance(instruction, AcknowledgeCheckpoint | CancelSnapshot):
                ended.append(instruction.checkpoint_id)
            elif isinstance(instruction, NotifyOperatorsComplete):
                completed.append(instruction.checkpoint_id)

    assert taken == sorted(set(taken))
    assert len(ended) == len(set(ended))
    assert set(ended) <= set(taken)
    assert completed == sorted(set(completed))
