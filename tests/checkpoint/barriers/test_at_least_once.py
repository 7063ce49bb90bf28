"""The at-least-once tracker, rule by rule where the recorded scenarios leave a gap."""

from __future__ import annotations

import pytest

from engine.checkpoint.barriers import AbortCheckpoint, AlignmentMetrics, AtLeastOnceTracker, TriggerSnapshot
from engine.checkpoint.barriers.at_least_once import MAX_PENDING_CHECKPOINTS
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
INPUT_ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
OPTIONS = CheckpointOptions(AlignmentType.AT_LEAST_ONCE)
NONE = AlignmentMetrics()
cancel = CancelCheckpointMarker


def barrier(checkpoint_id: int, timestamp_ns: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, timestamp_ns, OPTIONS)


def test_nothing_is_ever_blocked() -> None:
    """Barriers only count; no channel waits."""
    tracker = AtLeastOnceTracker(2)

    assert tracker.on_barrier(0, barrier(1), 0) == ()
    assert tracker.blocked_channels == ()
    assert (TriggerSnapshot(barrier(1), NONE),) == tracker.on_barrier(1, barrier(1), 0)


def test_oldest_of_too_many_is_forgotten() -> None:
    """Fifty checkpoints are tracked; the first of fifty-one can never complete, the second can."""
    tracker = AtLeastOnceTracker(2)
    for checkpoint_id in range(1, MAX_PENDING_CHECKPOINTS + 2):
        tracker.on_barrier(0, barrier(checkpoint_id), 0)

    assert MAX_PENDING_CHECKPOINTS == 50
    assert tracker.on_barrier(1, barrier(1), 0) == ()
    assert (TriggerSnapshot(barrier(2), NONE),) == tracker.on_barrier(1, barrier(2), 0)


def test_completion_drops_older_ones_without_a_word() -> None:
    """When a newer checkpoint completes the older ones are dropped unreported, and their last barriers are ignored."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    tracker.on_barrier(0, barrier(2), 0)

    assert (TriggerSnapshot(barrier(2), NONE),) == tracker.on_barrier(1, barrier(2), 0)
    assert tracker.pending_checkpoint_ids == ()
    assert tracker.on_barrier(1, barrier(1), 0) == ()


def test_single_channel_triggers_at_once_and_remembers_nothing() -> None:
    """With one open channel each barrier above the latest triggers; a repeated one triggers again."""
    tracker = AtLeastOnceTracker(1)

    assert (TriggerSnapshot(barrier(3), NONE),) == tracker.on_barrier(0, barrier(3), 0)
    assert (TriggerSnapshot(barrier(3), NONE),) == tracker.on_barrier(0, barrier(3), 0)
    assert (AbortCheckpoint(4, CANCELLED),) == tracker.on_cancel(0, cancel(4), 0)


def test_cancel_reports_each_older_one_once() -> None:
    """A cancel aborts its own id and all older checkpoints, with one report each."""
    tracker = AtLeastOnceTracker(3)
    for checkpoint_id in (1, 2, 3):
        tracker.on_barrier(0, barrier(checkpoint_id), 0)
    tracker.on_cancel(1, cancel(1), 0)

    assert (AbortCheckpoint(2, CANCELLED), AbortCheckpoint(3, CANCELLED)) == tracker.on_cancel(1, cancel(3), 0)
    assert tracker.on_cancel(2, cancel(3), 0) == ()
    assert tracker.pending_checkpoint_ids == ()


def test_barriers_of_a_cancelled_checkpoint_are_swallowed() -> None:
    """After a cancel for a new id its barriers trigger no snapshot, however many come."""
    tracker = AtLeastOnceTracker(3)

    assert (AbortCheckpoint(1, CANCELLED),) == tracker.on_cancel(0, cancel(1), 0)
    assert tracker.on_barrier(1, barrier(1), 0) == ()
    assert tracker.on_barrier(2, barrier(1), 0) == ()
    assert tracker.on_cancel(1, cancel(1), 0) == ()


def test_end_of_partition_aborts_everything_when_ends_do_not_count() -> None:
    """With checkpoints after tasks finish switched off, each unreported entry is aborted, oldest first."""
    tracker = AtLeastOnceTracker(3, checkpoints_after_tasks_finish=False)
    for checkpoint_id in (1, 2, 3):
        tracker.on_barrier(0, barrier(checkpoint_id), 0)
    tracker.on_cancel(1, cancel(2), 0)

    assert tracker.clock.gauge_ns(9) == 9
    assert (AbortCheckpoint(3, INPUT_ENDED),) == tracker.on_end_of_partition(1, 0)
    assert tracker.pending_checkpoint_ids == ()
    assert tracker.latest_checkpoint_id == 3
    assert tracker.clock.gauge_ns(9) == 0


def test_end_of_partition_completes_the_newest_possible() -> None:
    """The end counts from the newest entry down; the first complete one is removed with all older, newer ones stay."""
    tracker = AtLeastOnceTracker(3)
    for channel, checkpoint_id in ((0, 1), (1, 1), (0, 2), (1, 2), (0, 3)):
        tracker.on_barrier(channel, barrier(checkpoint_id), 0)

    assert (TriggerSnapshot(barrier(2), NONE),) == tracker.on_end_of_partition(2, 0)
    assert tracker.pending_checkpoint_ids == (3,)
    assert (TriggerSnapshot(barrier(3), NONE),) == tracker.on_barrier(1, barrier(3), 0)


def test_only_the_newest_is_measured() -> None:
    """An older checkpoint that completes meanwhile reports zeros and does not stop the running clock."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1, 0), 10)
    tracker.on_barrier(0, barrier(2, 0), 20)
    tracker.clock.bytes_taken += 3

    assert (TriggerSnapshot(barrier(1, 0), NONE),) == tracker.on_barrier(1, barrier(1, 0), 30)
    assert tracker.clock.gauge_ns(35) == 15
    assert (TriggerSnapshot(barrier(2, 0), AlignmentMetrics(20, 20, 3)),) == tracker.on_barrier(1, barrier(2, 0), 40)


def test_cancel_of_an_older_one_leaves_the_clock_running() -> None:
    """Only an abort of the checkpoint being measured resets the gauge."""
    tracker = AtLeastOnceTracker(3)
    tracker.on_barrier(0, barrier(1), 0)
    tracker.on_barrier(0, barrier(2), 10)

    tracker.on_cancel(1, cancel(1), 20)
    assert tracker.clock.gauge_ns(30) == 20
    tracker.on_cancel(1, cancel(2), 40)
    assert tracker.clock.gauge_ns(50) == 0


def test_end_may_complete_a_checkpoint_behind_a_newer_one() -> None:
    """An entry that its last channel skipped is still completed by that channel's end, with zero metrics."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    tracker.on_end_of_partition(0, 0)
    tracker.on_barrier(1, barrier(2), 5)

    assert (TriggerSnapshot(barrier(1), NONE),) == tracker.on_end_of_partition(1, 9)


def test_trigger_counts_for_every_open_channel() -> None:
    """A coordinator trigger completes a begun checkpoint, and a task whose inputs have ended at once."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1), 0)

    assert (TriggerSnapshot(barrier(1), NONE),) == tracker.on_trigger(barrier(1), 0)
    tracker.on_end_of_partition(0, 0)
    tracker.on_end_of_partition(1, 0)
    assert (TriggerSnapshot(barrier(2), AlignmentMetrics(4)),) == tracker.on_trigger(barrier(2), 4)


def test_barriers_of_another_mode_are_a_bug() -> None:
    """An aligned barrier would block its sender for ever, since the tracker resumes no channel."""
    tracker = AtLeastOnceTracker(1)

    with pytest.raises(AssertionError, match="at-least-once handler got a barrier"):
        tracker.on_barrier(0, CheckpointBarrier(1, 0), 0)


def test_fingerprint_tells_states_apart() -> None:
    """Counted channels and cancelled flags are part of the fingerprint, times are not."""
    one, same, cancelled = (AtLeastOnceTracker(3) for _ in range(3))
    one.on_barrier(0, barrier(1, 5), 6)
    same.on_barrier(0, barrier(1, 50), 60)
    cancelled.on_cancel(0, cancel(1), 0)

    assert one.fingerprint() == same.fingerprint()
    assert one.fingerprint() != cancelled.fingerprint()
    hash(one.fingerprint())


def test_announcements_and_timeouts_are_not_for_the_tracker() -> None:
    """Neither has an effect."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    before = tracker.fingerprint()

    assert tracker.on_announcement(1, barrier(1), 0) == ()
    assert tracker.on_timeout(1, 99) == ()
    assert tracker.fingerprint() == before


def test_a_channel_with_barrier_and_end_counts_once() -> None:
    """The channels of an entry are a set."""
    tracker = AtLeastOnceTracker(3)
    tracker.on_barrier(0, barrier(1), 0)

    assert tracker.on_end_of_partition(0, 0) == ()
    assert tracker.on_barrier(1, barrier(1), 0) == ()
    assert (TriggerSnapshot(barrier(1), NONE),) == tracker.on_barrier(2, barrier(1), 0)


def test_a_pending_cancelled_id_is_finished_through_its_entry() -> None:
    """With one channel left, a cancel of an id that began with two is counted, not reported again."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_cancel(0, cancel(1), 0)
    tracker.on_end_of_partition(0, 0)

    assert tracker.on_cancel(1, cancel(1), 0) == ()
    assert (TriggerSnapshot(barrier(2), NONE),) == tracker.on_barrier(1, barrier(2), 0)


def test_close_forgets_what_is_pending() -> None:
    """A task that ends has no pending checkpoint."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(1), 0)
    tracker.close()

    assert tracker.pending_checkpoint_ids == ()
    tracker.validate()


def test_cancelled_entries_go_once_every_channel_has_spoken() -> None:
    """A marker counts like a barrier: after the last channel's, the entry is dropped."""
    tracker, fresh = AtLeastOnceTracker(2), AtLeastOnceTracker(2)
    tracker.on_cancel(0, cancel(1), 0)
    before = tracker.fingerprint()
    tracker.on_cancel(1, cancel(1), 0)
    tracker.validate()

    assert tracker.fingerprint() not in (before, fresh.fingerprint())
    assert tracker.on_barrier(0, barrier(1), 0) == ()


def test_a_late_cancel_leaves_newer_ones_alone() -> None:
    """A marker for an id that is no longer tracked flags no other id."""
    tracker = AtLeastOnceTracker(2)
    tracker.on_barrier(0, barrier(5), 0)

    assert tracker.on_cancel(1, cancel(3), 0) == ()
    assert (TriggerSnapshot(barrier(5), NONE),) == tracker.on_barrier(1, barrier(5), 0)


def test_nothing_is_measured_before_the_first_barrier() -> None:
    """The gauge of a fresh tracker is zero, and no channel is captured."""
    tracker = AtLeastOnceTracker(2)
    tracker.clock.bytes_taken += 1

    assert tracker.clock.gauge_ns(99) == 0
    assert tracker.captured_channels == ()


def test_one_channel_never_aligns() -> None:
    """With one open channel the alignment is over as it begins."""
    tracker = AtLeastOnceTracker(1)
    tracker.on_barrier(0, barrier(1, 0), 10)

    assert tracker.clock.gauge_ns(500) == 0
