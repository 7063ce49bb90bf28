"""The aligned handler, rule by rule where the recorded scenarios leave a gap."""

from __future__ import annotations

from time import process_time

import pytest

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentMetrics,
    BlockChannel,
    ResumeChannels,
    SingleCheckpointHandler,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
INPUT_ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
NONE = AlignmentMetrics()
cancel = CancelCheckpointMarker


def barrier(checkpoint_id: int, timestamp_ns: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, timestamp_ns)


def test_snapshot_comes_before_the_resume() -> None:
    """The last barrier takes the snapshot first and resumes all channels, its own included, afterwards."""
    handler = SingleCheckpointHandler(2)

    assert (BlockChannel(1),) == handler.on_barrier(1, barrier(1), 0)
    assert (BlockChannel(0), TriggerSnapshot(barrier(1), NONE), ResumeChannels((0, 1))) == handler.on_barrier(
        0, barrier(1), 0
    )
    assert handler.blocked_channels == ()


def test_resume_comes_before_the_abort_is_told() -> None:
    """A cancel marker resumes the blocked channels before it tells the task."""
    handler = SingleCheckpointHandler(3)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_barrier(2, barrier(1), 0)

    assert (ResumeChannels((0, 2)), AbortCheckpoint(1, CANCELLED)) == handler.on_cancel(1, cancel(1), 0)


def test_newer_barrier_subsumes() -> None:
    """A barrier of a newer checkpoint releases and aborts the old one before it blocks its own channel."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (ResumeChannels((0,)), AbortCheckpoint(1, SUBSUMED), BlockChannel(1)) == handler.on_barrier(1, barrier(2), 0)
    assert handler.pending_checkpoint_ids == (2,)


@pytest.mark.parametrize("late_id", [2, 1])
def test_obsolete_barrier_frees_its_channel_at_once(late_id: int) -> None:
    """A barrier of a finished or older checkpoint starts no alignment and leaves no channel blocked."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(2), 0)
    handler.on_cancel(1, cancel(2), 0)

    assert (BlockChannel(1), ResumeChannels((1,))) == handler.on_barrier(1, barrier(late_id), 0)
    assert handler.pending_checkpoint_ids == ()


def test_older_barrier_leaves_the_pending_checkpoint_alone() -> None:
    """An older barrier during an alignment has no effect."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(5), 0)

    handler.on_barrier(1, barrier(4), 0)

    assert handler.pending_checkpoint_ids == (5,)
    assert handler.blocked_channels == (0,)


def test_second_cancel_of_an_id_is_silent() -> None:
    """A cancelled checkpoint is reported once, whichever channels send the marker again."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_cancel(1, cancel(1), 0)

    assert handler.on_cancel(0, cancel(1), 0) == ()


def test_cancel_after_completion_is_ignored() -> None:
    """A late cancel marker of a completed checkpoint changes nothing."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_barrier(1, barrier(1), 0)

    assert handler.on_cancel(0, cancel(1), 0) == ()


def test_cancel_of_a_newer_id_drops_the_pending_one_silently() -> None:
    """Only the newer id is reported; the pending one is released without a report."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (ResumeChannels((0,)), AbortCheckpoint(3, CANCELLED)) == handler.on_cancel(1, cancel(3), 0)
    assert handler.pending_checkpoint_ids == ()
    assert handler.latest_checkpoint_id == 3


def test_end_of_partition_aborts_when_ends_do_not_count() -> None:
    """With checkpoints after tasks finish switched off, any end aborts, even after the channel's own barrier."""
    handler = SingleCheckpointHandler(3, checkpoints_after_tasks_finish=False)
    handler.on_barrier(0, barrier(1), 0)

    assert (ResumeChannels((0,)), AbortCheckpoint(1, INPUT_ENDED)) == handler.on_end_of_partition(1, 0)
    assert handler.on_end_of_partition(2, 0) == ()


def test_end_behind_the_own_barrier_counts_once() -> None:
    """A channel with barrier and end is one aligned channel, not two, and is not resumed any more."""
    handler = SingleCheckpointHandler(3)
    handler.on_barrier(0, barrier(1), 0)

    assert handler.on_end_of_partition(0, 0) == ()
    assert handler.pending_checkpoint_ids == (1,)
    assert handler.on_barrier(1, barrier(1), 0) == (BlockChannel(1),)
    assert handler.on_end_of_partition(2, 0) == (TriggerSnapshot(barrier(1), NONE), ResumeChannels((1,)))


def test_channel_that_ended_before_is_not_waited_for() -> None:
    """The target is the number of channels that were open when the checkpoint began."""
    handler = SingleCheckpointHandler(2)
    handler.on_end_of_partition(1, 0)

    decided = handler.on_barrier(0, barrier(1), 0)

    assert TriggerSnapshot(barrier(1), NONE) in decided


def test_source_is_triggered_at_once() -> None:
    """A task without inputs takes its snapshot at the trigger; the start delay is measured."""
    handler = SingleCheckpointHandler(0)

    assert (TriggerSnapshot(barrier(1, 5), AlignmentMetrics(7)),) == handler.on_trigger(barrier(1, 5), 12)
    assert handler.on_trigger(barrier(1, 5), 13) == ()


def test_trigger_completes_a_begun_alignment() -> None:
    """A coordinator trigger counts for the channels whose barrier is missing and resumes the blocked ones."""
    for begun in range(3):
        handler = SingleCheckpointHandler(3)
        handler.on_barrier(begun, barrier(4), 0)

        assert (TriggerSnapshot(barrier(4), NONE), ResumeChannels((begun,))) == handler.on_trigger(barrier(4), 0)
        handler.validate()


def test_metrics_of_an_alignment() -> None:
    """Start delay up to the first barrier, duration up to the last, bytes in between only."""
    handler = SingleCheckpointHandler(2)
    handler.clock.bytes_taken += 1000
    handler.on_barrier(0, barrier(1, 100), 130)
    handler.clock.bytes_taken += 7
    assert handler.clock.gauge_ns(140) == 10

    decided = handler.on_barrier(1, barrier(1, 100), 180)
    handler.clock.bytes_taken += 1000

    assert TriggerSnapshot(barrier(1, 100), AlignmentMetrics(30, 50, 7)) in decided
    assert handler.clock.gauge_ns(999) == 50


def test_end_behind_the_own_barrier_does_not_restart_the_clock() -> None:
    """The alignment began with the barrier; the end of its channel afterwards changes nothing."""
    handler = SingleCheckpointHandler(3)
    handler.on_barrier(0, barrier(1), 10)
    handler.on_end_of_partition(0, 20)
    handler.on_barrier(1, barrier(1), 30)

    assert TriggerSnapshot(barrier(1), AlignmentMetrics(10, 30)) in handler.on_barrier(2, barrier(1), 40)


def test_start_delay_is_never_negative() -> None:
    """A barrier from the future has a start delay of zero."""
    handler = SingleCheckpointHandler(1)

    assert TriggerSnapshot(barrier(1, 100), NONE) in handler.on_barrier(0, barrier(1, 100), 50)


def test_bytes_do_not_leak_into_the_next_checkpoint() -> None:
    """Each alignment counts from zero."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.clock.bytes_taken += 5
    handler.on_barrier(1, barrier(1), 1)
    handler.on_barrier(0, barrier(2), 2)

    assert TriggerSnapshot(barrier(2), AlignmentMetrics(2, 1, 0)) in handler.on_barrier(1, barrier(2), 3)


def test_gauge_is_zero_after_an_abort() -> None:
    """An abort of the checkpoint being measured resets the alignment gauge."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_cancel(1, cancel(1), 50)

    assert handler.clock.gauge_ns(60) == 0


def test_barriers_of_another_mode_are_a_bug() -> None:
    """A barrier that is not in aligned form never reaches the aligned handler."""
    handler = SingleCheckpointHandler(1)
    unaligned = CheckpointBarrier(1, 0, CheckpointOptions(AlignmentType.UNALIGNED))

    with pytest.raises(AssertionError, match="aligned handler got a barrier"):
        handler.on_barrier(0, unaligned, 0)


def test_barrier_from_a_blocked_channel_is_a_bug() -> None:
    """A driver that lets a blocked channel yield an element is caught."""
    handler = SingleCheckpointHandler(3)
    handler.on_barrier(0, barrier(1), 0)

    with pytest.raises(AssertionError, match="while it was blocked"):
        handler.on_barrier(0, barrier(1), 0)


def test_fingerprint_tells_states_apart_but_not_times() -> None:
    """Two handlers that will act alike have one fingerprint, whatever the creation times of their barriers."""
    early, late, other = (SingleCheckpointHandler(2) for _ in range(3))
    early.on_barrier(0, barrier(1, 10), 20)
    late.on_barrier(0, barrier(1, 500), 700)
    other.on_barrier(1, barrier(1, 10), 20)

    assert early.fingerprint() == late.fingerprint()
    assert early.fingerprint() != other.fingerprint()
    hash(early.fingerprint())


def test_announcements_and_timeouts_are_not_for_the_aligned_handler() -> None:
    """Neither starts, subsumes or triggers a checkpoint."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    before = handler.fingerprint()

    assert handler.on_announcement(1, barrier(2), 0) == ()
    assert handler.on_timeout(1, 99) == ()
    assert handler.fingerprint() == before


def test_forced_aligned_barriers_align() -> None:
    """They block like any other, and the snapshot keeps their options for the outputs."""
    options = CheckpointOptions(AlignmentType.FORCED_ALIGNED, aligned_timeout_ns=1)
    forced = CheckpointBarrier(1, 0, options)
    handler = SingleCheckpointHandler(2)

    assert handler.on_barrier(0, forced, 100) == (BlockChannel(0),)
    assert TriggerSnapshot(forced, AlignmentMetrics(100)) in handler.on_barrier(1, forced, 100)


def test_a_chained_source_is_blocked_by_its_own_trigger() -> None:
    """A source triggered first waits for the barriers of the channels; a source triggered last does not wait."""
    first, last = (SingleCheckpointHandler(2, source_channels=(1,)) for _ in range(2))

    assert first.on_barrier(1, barrier(1), 0) == (BlockChannel(1),)
    assert ResumeChannels((0, 1)) in first.on_barrier(0, barrier(1), 0)
    assert last.on_barrier(0, barrier(1), 0) == (BlockChannel(0),)
    assert TriggerSnapshot(barrier(1), NONE) in last.on_barrier(1, barrier(1), 0)


def test_an_obsolete_barrier_does_not_free_a_channel_that_is_blocked() -> None:
    """A channel that waits for the pending checkpoint stays blocked when an obsolete barrier comes on it."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(5), 0)

    assert handler.on_barrier(0, barrier(4), 0) == ()
    assert handler.blocked_channels == (0,)


def test_a_direct_trigger_subsumes() -> None:
    """A trigger of a newer id aborts the pending checkpoint, then takes its snapshot; an older one has no effect."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (
        ResumeChannels((0,)),
        AbortCheckpoint(1, SUBSUMED),
        TriggerSnapshot(barrier(2), NONE),
    ) == handler.on_trigger(barrier(2), 0)
    assert handler.on_trigger(barrier(1), 0) == ()


def test_id_zero_is_a_checkpoint() -> None:
    """No checkpoint is pending before the first barrier, and the first id may be 0."""
    handler = SingleCheckpointHandler(1)
    assert handler.pending_checkpoint_ids == ()
    assert handler.latest_checkpoint_id == -1

    assert TriggerSnapshot(barrier(0), NONE) in handler.on_barrier(0, barrier(0), 0)


def test_close_forgets_what_is_pending() -> None:
    """A task that ends has no pending checkpoint, and resumes no channel."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.close()

    assert handler.pending_checkpoint_ids == ()
    assert handler.blocked_channels == ()
    handler.validate()


def test_many_channels_cost_no_more_each() -> None:
    """A barrier is handled without a look at all other channels: 50,000 of them take negligible time."""
    channels = 50_000
    handler = SingleCheckpointHandler(channels)
    started = process_time()
    for channel in reversed(range(channels)):
        decided = handler.on_barrier(channel, barrier(1), 0)
    for channel in range(channels):
        handler.on_end_of_partition(channel, 0)

    assert decided[-1] == ResumeChannels(tuple(range(channels)))
    assert process_time() - started < 5, "quadratic, this takes minutes"


def test_an_abort_forgets_the_last_duration_too() -> None:
    """The gauge shows zero after the abort of the current id, even if no channel was aligned for it."""
    handler = SingleCheckpointHandler(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_barrier(1, barrier(1), 50)
    assert handler.clock.gauge_ns(60) == 50
    handler.on_cancel(0, cancel(2), 70)

    assert handler.clock.gauge_ns(80) == 0


def test_what_is_over_leaves_no_trace_in_the_fingerprint() -> None:
    """Two handlers that will act alike have one fingerprint, however many channels their last checkpoint had."""
    before, after = SingleCheckpointHandler(2), SingleCheckpointHandler(2)
    before.on_barrier(0, barrier(1), 0)
    before.on_barrier(1, barrier(1), 0)
    before.on_end_of_partition(1, 0)
    after.on_end_of_partition(1, 0)
    after.on_barrier(0, barrier(1), 0)

    assert before.fingerprint() == after.fingerprint()
