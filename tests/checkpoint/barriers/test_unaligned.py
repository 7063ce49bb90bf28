"""Unaligned checkpoints, rule by rule where the recorded scenarios leave a gap."""

from __future__ import annotations

import pytest

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentFinished,
    AlignmentMetrics,
    ArmAlignmentTimer,
    BlockChannel,
    InputCapture,
    PromoteBarrier,
    ResumeChannels,
    SingleCheckpointHandler,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier, CheckpointOptions
from tests.checkpoint.barriers.barrier_driver import handler_of

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
INPUT_ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
OPTIONS = CheckpointOptions(AlignmentType.UNALIGNED)
TIMEOUT = 5
NONE = AlignmentMetrics()
cancel = CancelCheckpointMarker


def barrier(checkpoint_id: int, timestamp_ns: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, timestamp_ns, OPTIONS)


def aligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0)


def timed(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0, CheckpointOptions(aligned_timeout_ns=TIMEOUT))


def test_one_channel_starts_triggers_and_stops_at_once() -> None:
    """With one open channel the input part of the channel state is over as soon as it was opened."""
    assert (
        StartCapture(1),
        TriggerSnapshot(barrier(1), NONE),
        StopCapture(1),
        AlignmentFinished(1, NONE),
    ) == handler_of(1).on_barrier(0, barrier(1), 0)


def test_the_first_barrier_triggers_and_the_last_one_completes() -> None:
    """The barriers in between cause no instruction, for no channel is blocked."""
    handler = handler_of(3)

    assert (StartCapture(1), TriggerSnapshot(barrier(1), NONE)) == handler.on_barrier(2, barrier(1), 0)
    assert handler.on_barrier(0, barrier(1), 0) == ()
    assert (StopCapture(1), AlignmentFinished(1, NONE)) == handler.on_barrier(1, barrier(1), 0)
    assert handler.pending_checkpoint_ids == ()


def test_metrics_are_complete_only_at_the_end() -> None:
    """The trigger knows the start delay; duration and bytes follow with the last barrier."""
    handler = handler_of(2)
    begun = handler.on_barrier(0, barrier(1, 100), 130)
    handler.clock.bytes_taken += 7
    ended = handler.on_barrier(1, barrier(1, 100), 150)
    handler.clock.bytes_taken += 99

    assert TriggerSnapshot(barrier(1, 100), AlignmentMetrics(30)) in begun
    assert AlignmentFinished(1, AlignmentMetrics(30, 20, 7)) in ended


def test_an_obsolete_barrier_needs_no_resume() -> None:
    """An unaligned barrier does not block its sender; one in aligned form still has to be resumed."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(5), 0)

    assert handler.on_barrier(1, barrier(4), 0) == ()
    assert (BlockChannel(1), ResumeChannels((1,))) == handler.on_barrier(1, aligned(3), 0)
    assert handler.pending_checkpoint_ids == (5,)


def test_an_abort_stops_the_capture_then_resumes_then_tells() -> None:
    """A triggered checkpoint can still be cancelled; the captured records are dropped."""
    handler = handler_of(3)
    handler.on_barrier(0, barrier(1), 0)
    handler.on_barrier(1, aligned(1), 0)

    assert (StopCapture(1, failed=True), ResumeChannels((1,)), AbortCheckpoint(1, CANCELLED)) == handler.on_cancel(
        2, cancel(1), 0
    )
    assert handler.on_cancel(1, cancel(1), 0) == ()


def test_a_newer_barrier_aborts_and_starts_over() -> None:
    """The newest id wins, also over one that was triggered already."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (
        StopCapture(1, failed=True),
        AbortCheckpoint(1, SUBSUMED),
        StartCapture(2),
        TriggerSnapshot(barrier(2), NONE),
    ) == handler.on_barrier(0, barrier(2), 0)


def test_a_cancel_of_a_newer_id_fails_the_capture_of_the_pending_one() -> None:
    """The pending checkpoint is dropped without an abort of its own: only its failed capture reports it."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (StopCapture(1, failed=True), AbortCheckpoint(7, CANCELLED)) == handler.on_cancel(1, cancel(7), 0)
    assert handler.pending_checkpoint_ids == ()
    assert handler.latest_checkpoint_id == 7


def test_an_end_completes_but_triggers_nothing_again() -> None:
    """The end of the last missing channel counts as its barrier."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)

    assert (StopCapture(1), AlignmentFinished(1, NONE)) == handler.on_end_of_partition(1, 0)


def test_an_end_cannot_be_the_trigger() -> None:
    """While only an announcement is here, an end is counted; the snapshot comes with the announced barrier."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1), 0)
    assert handler.on_timeout(1, TIMEOUT) == (PromoteBarrier(0),)
    assert handler.on_end_of_partition(1, 10) == ()

    metrics = AlignmentMetrics(10, 5)
    assert (
        StartCapture(1),
        TriggerSnapshot(barrier(1), metrics),
        StopCapture(1),
        AlignmentFinished(1, metrics),
    ) == handler.on_barrier(0, barrier(1), 15)


@pytest.mark.parametrize("ending", [0, 1])
def test_any_end_aborts_when_ends_do_not_count(ending: int) -> None:
    """With checkpoints after tasks finish switched off, an end aborts, even after the channel's own barrier."""
    handler = handler_of(3, after_tasks_finish=False)
    handler.on_barrier(0, barrier(1), 0)

    assert (StopCapture(1, failed=True), AbortCheckpoint(1, INPUT_ENDED)) == handler.on_end_of_partition(ending, 0)


def test_an_announcement_subsumes_a_capture() -> None:
    """It starts the checkpoint of a newer barrier; an obsolete one has no effect."""
    handler = handler_of(2)
    handler.on_barrier(1, barrier(1), 0)

    assert (
        StopCapture(1, failed=True),
        AbortCheckpoint(1, SUBSUMED),
        ArmAlignmentTimer(2, TIMEOUT),
    ) == handler.on_announcement(0, timed(2), 0)
    assert handler.pending_checkpoint_ids == (2,)
    assert handler.on_announcement(1, timed(1), 0) == ()


def test_a_notice_behind_its_own_barrier_promotes_nothing() -> None:
    """When the barrier was taken first, there is no barrier left to move."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)

    assert handler.on_announcement(0, barrier(1), 0) == ()


def test_a_refused_capture_aborts_and_still_resumes() -> None:
    """A channel that holds the barrier of a newer checkpoint refuses: no trigger, an abort, all channels resume."""
    capture = InputCapture(2)
    handler = SingleCheckpointHandler(2, capture=capture)
    capture.channels[0].barrier_arrived(9)

    handler.on_announcement(1, timed(8), 0)
    assert handler.on_timeout(8, TIMEOUT) == (PromoteBarrier(1),)
    assert (BlockChannel(1), ResumeChannels((1,)), AbortCheckpoint(8, SUBSUMED)) == handler.on_barrier(1, aligned(8), 0)
    assert handler.pending_checkpoint_ids == ()
    assert StartCapture(9) in handler.on_barrier(0, barrier(9), 0)


def test_a_refused_last_barrier_ends_once() -> None:
    """A refusal by the only channel that is open aborts; it does not complete as well."""
    capture = InputCapture(1)
    handler = SingleCheckpointHandler(1, capture=capture)
    capture.channels[0].barrier_arrived(9)

    assert (AbortCheckpoint(8, SUBSUMED),) == handler.on_barrier(0, barrier(8), 0)
    assert handler.clock.gauge_ns(99) == 0
    handler.validate()


def test_a_chained_source_is_silent_from_the_trigger_to_the_end() -> None:
    """A snapshot triggered by a channel blocks the source; its own trigger ends the checkpoint and frees it."""
    handler = handler_of(2, source_channels=(1,))

    assert (BlockChannel(1), StartCapture(1), TriggerSnapshot(barrier(1), NONE)) == handler.on_barrier(0, barrier(1), 0)
    assert (StopCapture(1), AlignmentFinished(1, NONE), ResumeChannels((1,))) == handler.on_barrier(1, barrier(1), 0)


def test_a_chained_source_is_blocked_by_its_own_trigger_too() -> None:
    """When the coordinator's trigger comes first, the source waits for the channels, and an abort frees it."""
    handler = handler_of(2, source_channels=(1,))

    assert (BlockChannel(1), StartCapture(1), TriggerSnapshot(barrier(1), NONE)) == handler.on_barrier(1, barrier(1), 0)
    assert (StopCapture(1, failed=True), ResumeChannels((1,)), AbortCheckpoint(1, CANCELLED)) == handler.on_cancel(
        0, cancel(1), 0
    )


def test_an_aligned_trigger_finds_its_source_blocked() -> None:
    """The trigger of a source that the capture has blocked does not block it again."""
    handler = handler_of(2, source_channels=(1,))
    handler.on_barrier(0, barrier(1), 0)

    assert BlockChannel(1) not in handler.on_barrier(1, aligned(1), 0)


def test_source_records_are_never_in_flight() -> None:
    """All open channels except the chained sources are captured; a source that has ended is not blocked either."""
    handler = handler_of(4, source_channels=(1, 3))
    assert handler.captured_channels == (0, 2)
    handler.on_end_of_partition(1, 0)
    handler.on_end_of_partition(2, 0)

    assert handler.captured_channels == (0,)
    assert BlockChannel(1) not in handler.on_barrier(0, barrier(1), 0)
    assert handler.blocked_channels == (3,)


def test_a_direct_trigger_blocks_nobody() -> None:
    """The coordinator's trigger counts for every open channel: first the snapshot, and the end with the last one."""
    assert (
        StartCapture(1),
        TriggerSnapshot(barrier(1), NONE),
        StopCapture(1),
        AlignmentFinished(1, NONE),
    ) == handler_of(3).on_trigger(barrier(1), 0)


def test_a_task_without_open_channels_still_opens_channel_state() -> None:
    """Its outputs may hold records that the barrier overtakes."""
    handler = handler_of(1)
    handler.on_end_of_partition(0, 0)

    metrics = AlignmentMetrics(4)
    assert (
        StartCapture(1),
        TriggerSnapshot(barrier(1), metrics),
        StopCapture(1),
        AlignmentFinished(1, metrics),
    ) == handler.on_trigger(barrier(1), 4)
    assert handler.on_trigger(barrier(1), 5) == ()


def test_close_forgets_what_is_pending() -> None:
    """A task that ends has no pending checkpoint; the task is not told."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.close()

    assert handler.pending_checkpoint_ids == ()
    handler.validate()


def test_fingerprint_knows_whether_a_capture_runs() -> None:
    """A promoted barrier and a running capture leave the handler in different states."""
    announced, captured = handler_of(3), handler_of(3)
    announced.on_announcement(0, barrier(1), 0)
    announced.on_end_of_partition(1, 0)
    captured.on_barrier(0, barrier(1), 0)
    captured.on_end_of_partition(1, 0)

    assert announced.fingerprint() != captured.fingerprint()
    hash(captured.fingerprint())


@pytest.mark.parametrize("timed_out", [False, True])
def test_ends_alone_trigger_nothing(timed_out: bool) -> None:
    """If every channel ends without the announced barrier, the checkpoint is over and no capture is stopped."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1), 0)
    if timed_out:
        handler.on_timeout(1, TIMEOUT)

    assert handler.on_end_of_partition(0, 0) == ()
    assert handler.on_end_of_partition(1, 0) == ()
    assert handler.pending_checkpoint_ids == ()
    handler.validate()


def test_the_trigger_knows_nothing_of_the_alignment_before() -> None:
    """Duration and bytes of the checkpoint before do not show in the metrics of the next trigger."""
    handler = handler_of(2)
    handler.on_barrier(0, barrier(1), 0)
    handler.clock.bytes_taken += 5
    handler.on_barrier(1, barrier(1), 9)
    handler.clock.bytes_taken += 5

    assert TriggerSnapshot(barrier(2, 9), NONE) in handler.on_barrier(0, barrier(2, 9), 9)
