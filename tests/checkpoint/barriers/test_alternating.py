"""The alternating handler: each cell of its table, its two clocks, and gaps in the recorded scenarios."""

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
from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    SnapshotKind,
)
from tests.checkpoint.barriers.barrier_driver import handler_of, replay

CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
NONE = AlignmentMetrics()
cancel = CancelCheckpointMarker
TIMEOUT = 10


def timed(checkpoint_id: int, timestamp_ns: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, timestamp_ns, CheckpointOptions(aligned_timeout_ns=TIMEOUT))


def unaligned(checkpoint_id: int, timestamp_ns: int = 0) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, timestamp_ns, CheckpointOptions(AlignmentType.UNALIGNED))


def savepoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0, CheckpointOptions(kind=SnapshotKind.SAVEPOINT))


def forced(checkpoint_id: int) -> CheckpointBarrier:
    options = CheckpointOptions(AlignmentType.FORCED_ALIGNED, aligned_timeout_ns=TIMEOUT)
    return CheckpointBarrier(checkpoint_id, 0, options)


# --- aligned, in time ---------------------------------------------------------------------------------------------


def test_in_time_it_is_an_aligned_checkpoint() -> None:
    """Barriers that meet before the deadline give an aligned snapshot that keeps its options."""
    handler = handler_of(2)

    assert (BlockChannel(0), ArmAlignmentTimer(1, TIMEOUT)) == handler.on_barrier(0, timed(1), 0)
    assert (
        BlockChannel(1),
        TriggerSnapshot(timed(1), AlignmentMetrics(0, 9)),
        ResumeChannels((0, 1)),
    ) == handler.on_barrier(1, timed(1), 9)


def test_one_channel_arms_no_timer() -> None:
    """A checkpoint that is complete with its first barrier has no further barrier to wait for."""
    assert (BlockChannel(0), TriggerSnapshot(timed(1), NONE), ResumeChannels((0,))) == handler_of(1).on_barrier(
        0, timed(1), 0
    )


@pytest.mark.parametrize(("now_ns", "at_ns"), [(3, 12), (12, 12), (50, 50)])
def test_the_timer_counts_from_the_creation_of_the_barrier(now_ns: int, at_ns: int) -> None:
    """It is armed for timestamp plus timeout when the id is first seen, but not before now."""
    assert ArmAlignmentTimer(1, at_ns) in handler_of(2).on_announcement(0, timed(1, 2), now_ns)


def test_only_the_first_sight_arms_the_timer() -> None:
    """A further announcement or barrier of the id does not arm a timer."""
    handler = handler_of(3)
    handler.on_announcement(0, timed(1), 0)

    assert handler.on_announcement(1, timed(1), 1) == ()
    assert handler.on_barrier(0, timed(1), 2) == (BlockChannel(0),)


@pytest.mark.parametrize("barrier", [savepoint(1), forced(1), CheckpointBarrier(1, 0)])
def test_what_cannot_time_out_never_does(barrier: CheckpointBarrier) -> None:
    """Savepoints, plain aligned and forced-aligned barriers arm no timer; they may come at any time."""
    handler = handler_of(2)

    assert handler.on_barrier(0, barrier, 1_000_000) == (BlockChannel(0),)
    assert handler.on_timeout(2, 1_000_000) == ()
    assert TriggerSnapshot(barrier, AlignmentMetrics(1_000_000, 1)) in handler.on_barrier(1, barrier, 1_000_001)


# --- announcements ------------------------------------------------------------------------------------------------


def test_an_announcement_starts_and_subsumes() -> None:
    """Before any barrier is taken the announced checkpoint is pending, and the one before it is aborted."""
    handler = handler_of(2)
    handler.on_barrier(0, timed(1), 0)

    assert (
        ResumeChannels((0,)),
        AbortCheckpoint(1, SUBSUMED),
        ArmAlignmentTimer(2, TIMEOUT),
    ) == handler.on_announcement(1, timed(2), 0)
    assert handler.pending_checkpoint_ids == (2,)


def test_an_obsolete_announcement_does_nothing() -> None:
    """The announcement of an older or finished checkpoint has no effect."""
    handler = handler_of(2)
    handler.on_cancel(0, cancel(5), 0)

    assert handler.on_announcement(0, timed(5), 0) == ()
    assert handler.on_announcement(0, timed(4), 0) == ()


def test_a_merely_announced_checkpoint_is_not_cancelled_by_its_marker() -> None:
    """A cancel acts on the pending id only when a channel is aligned; on a newer id always."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1), 0)

    assert handler.on_cancel(1, cancel(1), 0) == ()
    assert handler.pending_checkpoint_ids == (1,)
    assert handler.on_cancel(1, cancel(2), 0) == (AbortCheckpoint(2, CANCELLED),)


def test_an_end_after_an_announcement_counts_and_starts_the_clock() -> None:
    """The first aligned channel may be one that ended: the clock starts there, with the announced timestamp."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1, 1), 2)
    assert handler.on_end_of_partition(1, 4) == ()

    assert (
        BlockChannel(0),
        TriggerSnapshot(timed(1, 1), AlignmentMetrics(3, 3)),
        ResumeChannels((0,)),
    ) == handler.on_barrier(0, timed(1, 1), 7)


# --- timeouts -----------------------------------------------------------------------------------------------------


def test_with_announcements_only_a_timeout_changes_the_mode() -> None:
    """Announced barriers are promoted; the snapshot comes with the first of them."""
    handler = handler_of(2)
    handler.on_announcement(1, timed(1), 0)
    handler.on_announcement(0, timed(1), 0)

    assert handler.on_timeout(1, TIMEOUT) == (PromoteBarrier(0), PromoteBarrier(1))
    assert (
        BlockChannel(1),
        StartCapture(1),
        TriggerSnapshot(unaligned(1), AlignmentMetrics(11)),
    ) == handler.on_barrier(1, timed(1), 11)
    assert (
        BlockChannel(0),
        StopCapture(1),
        AlignmentFinished(1, AlignmentMetrics(11, 4)),
        ResumeChannels((0, 1)),
    ) == handler.on_barrier(0, timed(1), 15)


def test_with_a_barrier_taken_the_timeout_itself_triggers() -> None:
    """Promotion comes before the capture starts; channels that were blocked stay so until the end."""
    handler = handler_of(3)
    handler.on_barrier(0, timed(1), 0)
    handler.on_announcement(1, timed(1), 0)

    assert (PromoteBarrier(1), StartCapture(1), TriggerSnapshot(unaligned(1), NONE)) == handler.on_timeout(1, TIMEOUT)
    assert handler.blocked_channels == (0,)


def test_a_barrier_that_is_here_is_not_promoted() -> None:
    """The announced barrier of a channel is forgotten once it was taken."""
    handler = handler_of(3)
    handler.on_announcement(0, timed(1), 0)
    handler.on_barrier(0, timed(1), 0)

    assert PromoteBarrier(0) not in handler.on_timeout(1, TIMEOUT)


def test_late_announcements_are_promoted_at_once() -> None:
    """Once unaligned, an announced barrier goes to the front at its announcement, before and after the first one."""
    handler = handler_of(3)
    handler.on_announcement(0, timed(1), 0)
    handler.on_timeout(1, TIMEOUT)
    assert handler.on_announcement(1, timed(1), 11) == (PromoteBarrier(1),)
    handler.on_barrier(0, timed(1), 12)
    assert handler.on_announcement(2, timed(1), 13) == (PromoteBarrier(2),)


def test_an_aligned_barrier_after_the_switch_blocks_until_the_end() -> None:
    """Its sender waits, although the checkpoint is unaligned; unaligned barriers of the others do not."""
    handler = handler_of(3)
    handler.on_barrier(0, unaligned(1), 0)

    assert handler.on_barrier(1, timed(1), 0) == (BlockChannel(1),)
    assert ResumeChannels((1,)) in handler.on_barrier(2, unaligned(1), 0)


def test_an_unaligned_barrier_is_a_timeout() -> None:
    """It switches the pending checkpoint and promotes the announced barriers of the other channels, not its own."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1), 0)
    handler.on_announcement(1, timed(1), 0)

    assert (PromoteBarrier(0), StartCapture(1), TriggerSnapshot(unaligned(1), NONE)) == handler.on_barrier(
        1, unaligned(1), 0
    )


def test_an_unaligned_barrier_may_complete_what_it_switches() -> None:
    """The last barrier, unaligned, finds the others blocked: switch, trigger and end at once."""
    handler = handler_of(2)
    handler.on_barrier(0, timed(1), 0)

    metrics = AlignmentMetrics(0, 5)
    assert (
        StartCapture(1),
        TriggerSnapshot(unaligned(1), metrics),
        StopCapture(1),
        AlignmentFinished(1, metrics),
        ResumeChannels((0,)),
    ) == handler.on_barrier(1, unaligned(1), 5)


@pytest.mark.parametrize(("now_ns", "is_late"), [(TIMEOUT, False), (TIMEOUT + 1, True)])
def test_a_late_barrier_times_out_by_itself(now_ns: int, is_late: bool) -> None:
    """After its deadline a barrier that is not the last triggers unaligned; exactly at the deadline it is in time."""
    decided = handler_of(2).on_barrier(0, timed(1), now_ns)

    assert (StartCapture(1) in decided) == is_late
    assert (ArmAlignmentTimer(1, now_ns) in decided) == (not is_late)


def test_the_last_barrier_is_never_too_late() -> None:
    """The handler checks whether all barriers are here before it checks the deadline: still aligned."""
    handler = handler_of(2)
    handler.on_barrier(0, timed(1), 0)

    metrics = AlignmentMetrics(0, 400)
    assert TriggerSnapshot(timed(1), metrics) in handler.on_barrier(1, timed(1), 400)


def test_a_late_second_barrier_switches_a_collecting_checkpoint() -> None:
    """The passive check promotes, captures and triggers exactly as the timer would."""
    handler = handler_of(4)
    handler.on_barrier(0, timed(1), 0)
    handler.on_announcement(3, timed(1), 0)

    assert (
        BlockChannel(1),
        PromoteBarrier(3),
        StartCapture(1),
        TriggerSnapshot(unaligned(1), NONE),
    ) == handler.on_barrier(1, timed(1), TIMEOUT + 1)


def test_an_end_may_find_the_alignment_expired() -> None:
    """The end of a channel converts a late alignment; the deadline is that of the remembered barrier."""
    handler = handler_of(3)
    handler.on_barrier(0, timed(1), 0)

    assert (StartCapture(1), TriggerSnapshot(unaligned(1), NONE)) == handler.on_end_of_partition(1, TIMEOUT + 1)
    assert ResumeChannels((0,)) in handler.on_end_of_partition(2, TIMEOUT + 1)


def test_the_last_end_completes_aligned_even_when_late() -> None:
    """Completeness comes first for ends as for barriers."""
    handler = handler_of(2)
    handler.on_barrier(0, timed(1), 0)

    assert (TriggerSnapshot(timed(1), AlignmentMetrics(0, 400)), ResumeChannels((0,))) == handler.on_end_of_partition(
        1, 400
    )


def test_an_end_before_any_barrier_is_only_counted() -> None:
    """However late, an end before the first barrier does not convert the checkpoint."""
    handler = handler_of(3)
    handler.on_announcement(0, timed(1), 0)

    assert handler.on_end_of_partition(1, 400) == ()


def test_an_ended_channel_is_neither_promoted_nor_resumed() -> None:
    """It leaves the announced and the blocked set."""
    handler = handler_of(4)
    handler.on_barrier(0, timed(1), 0)
    handler.on_announcement(1, timed(1), 0)
    handler.on_end_of_partition(0, 0)
    handler.on_end_of_partition(1, 0)

    assert (StartCapture(1), TriggerSnapshot(unaligned(1), NONE)) == handler.on_timeout(1, TIMEOUT)


def test_a_timeout_affects_only_its_checkpoint() -> None:
    """The checkpoint after one that went unaligned is aligned again."""
    handler = handler_of(2)
    handler.on_barrier(0, timed(1), 0)
    handler.on_timeout(1, TIMEOUT)
    handler.on_barrier(1, timed(1), 20)
    handler.on_barrier(0, timed(2, 30), 31)

    assert TriggerSnapshot(timed(2, 30), AlignmentMetrics(1, 1)) in handler.on_barrier(1, timed(2, 30), 32)


def test_a_void_timer_does_nothing() -> None:
    """After completion, an abort, a newer checkpoint, a turn to unaligned, or ``close``."""
    completed, aborted, passed, switched, closed = (handler_of(2) for _ in range(5))
    for handler in (completed, aborted, passed, switched, closed):
        handler.on_barrier(0, timed(1), 0)
    completed.on_barrier(1, timed(1), 0)
    aborted.on_cancel(0, cancel(1), 0)
    passed.on_barrier(1, timed(2), 0)
    switched.on_timeout(1, TIMEOUT)
    closed.close()

    for handler in (completed, aborted, passed, switched, closed):
        before = handler.fingerprint()
        assert handler.on_timeout(1, TIMEOUT) == ()
        assert handler.fingerprint() == before
    assert closed.pending_checkpoint_ids == ()


# --- what ends a checkpoint badly ---------------------------------------------------------------------------------


def test_a_refused_capture_aborts_at_the_timer() -> None:
    """The timer of a checkpoint that a newer barrier has overtaken aborts it and resumes its channel."""
    capture = InputCapture(2)
    handler = SingleCheckpointHandler(2, capture=capture)
    handler.on_barrier(0, timed(1), 0)
    capture.channels[1].barrier_arrived(2)

    assert (ResumeChannels((0,)), AbortCheckpoint(1, SUBSUMED)) == handler.on_timeout(1, TIMEOUT)
    assert handler.pending_checkpoint_ids == ()


def test_a_refused_capture_aborts_at_a_late_end() -> None:
    """The same for an end that finds the alignment expired."""
    capture = InputCapture(3)
    handler = SingleCheckpointHandler(3, capture=capture)
    handler.on_barrier(0, timed(1), 0)
    capture.channels[2].barrier_arrived(2)

    assert (ResumeChannels((0,)), AbortCheckpoint(1, SUBSUMED)) == handler.on_end_of_partition(1, TIMEOUT + 1)


def test_an_abort_before_the_switch_stops_no_capture() -> None:
    """Only a capture that was started is stopped, also when the mode has changed already."""
    waiting = handler_of(3)
    waiting.on_announcement(0, timed(1), 0)
    waiting.on_timeout(1, TIMEOUT)
    waiting.on_end_of_partition(1, 11)
    collecting = handler_of(2)
    collecting.on_barrier(0, timed(1), 0)

    assert (AbortCheckpoint(1, CANCELLED),) == waiting.on_cancel(2, cancel(1), 12)
    assert (ResumeChannels((0,)), AbortCheckpoint(1, CANCELLED)) == collecting.on_cancel(1, cancel(1), 0)


def test_an_aborted_checkpoint_leaves_no_announcement_behind() -> None:
    """Announcements of one checkpoint are not promoted for the next."""
    handler = handler_of(2)
    handler.on_announcement(0, timed(1), 0)
    handler.on_announcement(1, timed(2), 0)

    assert handler.on_timeout(2, TIMEOUT) == (PromoteBarrier(1),)


# --- alternation --------------------------------------------------------------------------------------------------


def test_savepoints_align_between_unaligned_checkpoints() -> None:
    """Each barrier's own options decide, whatever the mode of the checkpoint before."""
    handler = handler_of(2)
    handler.on_barrier(0, unaligned(1), 0)
    handler.on_barrier(1, unaligned(1), 0)

    assert handler.on_barrier(0, savepoint(2), 0) == (BlockChannel(0),)
    assert TriggerSnapshot(savepoint(2), NONE) in handler.on_barrier(1, savepoint(2), 0)
    assert StartCapture(3) in handler.on_barrier(1, unaligned(3), 0)


def test_a_newer_savepoint_resumes_what_an_unaligned_one_had_blocked() -> None:
    """Subsuming a captured checkpoint releases every blocked channel before the new alignment begins."""
    handler = handler_of(3)
    handler.on_barrier(0, timed(1), TIMEOUT + 1)

    assert (
        StopCapture(1, failed=True),
        ResumeChannels((0,)),
        AbortCheckpoint(1, SUBSUMED),
        BlockChannel(1),
    ) == handler.on_barrier(1, savepoint(2), TIMEOUT + 1)


def test_forced_aligned_barriers_can_be_switched_by_others() -> None:
    """They do not expire by themselves, but an unaligned barrier of the same checkpoint ends the alignment."""
    handler = handler_of(2)
    handler.on_barrier(0, forced(1), 0)

    assert StartCapture(1) in handler.on_barrier(1, unaligned(1), 0)


def test_a_chained_source_aligns_like_a_channel() -> None:
    """In aligned mode its own trigger blocks it; a timeout then keeps it blocked until the end."""
    handler = handler_of(2, source_channels=(1,))

    assert BlockChannel(1) in handler.on_barrier(1, timed(1), 0)
    assert (StartCapture(1), TriggerSnapshot(unaligned(1), NONE)) == handler.on_timeout(1, TIMEOUT)
    assert ResumeChannels((0, 1)) in handler.on_barrier(0, timed(1), 20)


@pytest.mark.parametrize("now_ns", [0, 100])
def test_a_direct_trigger_completes_or_goes_unaligned(now_ns: int) -> None:
    """The coordinator's trigger, in time aligned, late unaligned, blocks no channel and leaves no timer."""
    decided = handler_of(3).on_trigger(timed(1), now_ns)

    delay = AlignmentMetrics(now_ns)
    if now_ns <= TIMEOUT:
        assert decided == (TriggerSnapshot(timed(1), delay),)
    else:
        assert decided == (
            StartCapture(1),
            TriggerSnapshot(unaligned(1), delay),
            StopCapture(1),
            AlignmentFinished(1, delay),
        )


def test_fingerprint_knows_deadline_and_announcements() -> None:
    """Handlers that will time out differently differ; those that only measure differently do not."""
    handlers = [handler_of(3) for _ in range(5)]
    early, late, more, plain, plain_late = handlers
    early.on_announcement(0, timed(1, 0), 0)
    late.on_announcement(0, timed(1, 5), 5)
    more.on_announcement(0, timed(1, 0), 0)
    more.on_announcement(1, timed(1, 0), 0)
    plain.on_barrier(0, CheckpointBarrier(1, 0), 0)
    plain_late.on_barrier(0, CheckpointBarrier(1, 5), 5)

    assert len({handler.fingerprint() for handler in handlers}) == 4
    assert plain.fingerprint() == plain_late.fingerprint()


# --- with real channels -------------------------------------------------------------------------------------------


def timeoutable(channel: int, checkpoint_id: int) -> list[object]:
    return ["barrier", channel, checkpoint_id, {"kind": "aligned_timeout", "timeout_ms": 5}]


def test_records_a_barrier_was_promoted_past_go_on() -> None:
    """The promoted barrier still blocks its sender; the records it overtook are with the receiver and are captured."""
    driver = replay("aligned_timeout", 2, delivery="manual")
    for operation in (
        ["rec", 0, "a"],
        timeoutable(0, 1),
        ["rec", 0, "b"],
        ["poll_announcement", 0],
        ["advance_ms", 5],
        ["poll_all"],
    ):
        driver.apply(operation)

    assert driver.observed.output == [["ckpt", 1], "a"]
    assert driver.observed.inflight == {1: ["a"]}
    assert driver.blocked == {0}


def test_two_promotions_on_one_channel_capture_nothing_from_behind() -> None:
    """The barrier of an older checkpoint, promoted and never taken, does not shift the cut of the next one."""
    driver = replay("aligned_timeout", 1, delivery="manual")
    for operation in (
        timeoutable(0, 0),
        ["poll_announcement", 0],
        timeoutable(0, 1),
        ["rec", 0, "behind"],
        ["advance_ms", 6],
        ["poll_announcement", 0],
        ["fire_timers"],
        ["poll_all"],
    ):
        driver.apply(operation)

    assert driver.completed == [1]
    assert driver.observed.inflight == {1: []}
