"""The head of a loop, at-least-once: scenarios, by the instructions that each event leads to.

Channels 0 and 1 are forward channels, 2 and 3 are back edges.
"""

from __future__ import annotations

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentFinished,
    AlignmentMetrics,
    BackEdgeTracker,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.barriers.at_least_once import MAX_PENDING_CHECKPOINTS
from engine.checkpoint.barriers.handler_instructions import HandlerInstructions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CheckpointBarrier, CheckpointOptions
from tests.checkpoint.barriers import test_back_edges

SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM


class Head(test_back_edges.Head):
    """The tracker in the place of the handler: it blocks no channel."""

    kind = BackEdgeTracker
    options = CheckpointOptions(AlignmentType.AT_LEAST_ONCE)

    def _done(self, instructions: HandlerInstructions) -> HandlerInstructions:
        assert self.handler.blocked_channels == ()
        return super()._done(instructions)


def _barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0, Head.options)


def trigger(checkpoint_id: int, *metrics: int) -> TriggerSnapshot:
    return TriggerSnapshot(_barrier(checkpoint_id), AlignmentMetrics(*metrics))


def finished(checkpoint_id: int, *metrics: int) -> AlignmentFinished:
    return AlignmentFinished(checkpoint_id, AlignmentMetrics(*metrics))


def logging(checkpoint_id: int = 1) -> Head:
    """A head that logs its back edges for a checkpoint."""
    head = Head()
    head.barrier(0, checkpoint_id)
    assert head.barrier(1, checkpoint_id) == (StartCapture(checkpoint_id), trigger(checkpoint_id))
    return head


def test_the_snapshot_waits_for_the_forward_channels_only() -> None:
    """Then the back edges are logged until their barrier has come round; until then bytes and duration still count."""
    head = Head()
    head.now_ns = 10
    assert head.barrier(0, 1) == ()
    head.handler.clock.bytes_taken += 7
    head.now_ns = 14
    assert head.barrier(1, 1) == (StartCapture(1), trigger(1, 10, 4, 7))
    assert head.handler.captured_channels == (2, 3)
    head.now_ns = 20
    assert head.barrier(3, 1) == ()
    assert head.handler.captured_channels == (2,)
    head.handler.clock.bytes_taken += 5
    head.now_ns = 30

    assert head.barrier(2, 1) == (StopCapture(1), finished(1, 10, 20, 12))
    assert head.handler.pending_checkpoint_ids == ()


def test_a_back_edge_whose_barrier_comes_early_needs_no_log() -> None:
    """Its channel is not blocked: records that follow the barrier may be counted twice."""
    head = Head()
    assert head.barrier(2, 1) == ()
    head.barrier(0, 1)

    assert head.barrier(1, 1) == (StartCapture(1), trigger(1))
    assert head.handler.captured_channels == (3,)


def test_without_anything_to_log_the_snapshot_is_an_ordinary_one() -> None:
    """All back edges were early."""
    head = Head()
    for channel in (2, 3, 0):
        assert head.barrier(channel, 1) == ()

    assert head.barrier(1, 1) == (trigger(1),)
    assert head.handler.pending_checkpoint_ids == ()


def test_a_newer_snapshot_subsumes_the_log() -> None:
    """There is only one log at a time."""
    head = logging()
    assert head.barrier(0, 2) == ()
    assert head.handler.pending_checkpoint_ids == (1, 2)

    assert head.barrier(1, 2) == (
        StopCapture(1, failed=True),
        AbortCheckpoint(1, SUBSUMED),
        StartCapture(2),
        trigger(2),
    )
    assert head.barrier(2, 1) == ()
    assert head.handler.pending_checkpoint_ids == (2,)


def test_a_newer_barrier_on_a_back_edge_ends_a_log_that_nothing_else_would_end() -> None:
    """Its own barrier was dropped on the way round, without a report; where it has come already, no record is lost."""
    head = logging()
    assert head.barrier(2, 1) == ()
    assert head.barrier(2, 2) == ()

    assert head.barrier(3, 2) == (StopCapture(1, failed=True), AbortCheckpoint(1, SUBSUMED))
    head.barrier(0, 2)
    assert head.barrier(1, 2) == (trigger(2),)


def test_a_newer_barrier_that_waits_on_a_back_edge_refuses_the_log() -> None:
    """It has arrived, but was not taken yet: the end of the log would no longer be recognised."""
    head = Head()
    head.barrier(0, 1)
    head.capture.channels[3].barrier_arrived(2)

    assert head.barrier(1, 1) == (AbortCheckpoint(1, SUBSUMED),)
    assert head.barrier(3, 2) == ()


def test_a_cancel_marker_goes_round_once() -> None:
    """It ends the log; when it comes back it has no effect, although a single open channel keeps no notes."""
    head = logging()
    head.end(1)

    assert head.cancel(2, 1) == (StopCapture(1, failed=True), AbortCheckpoint(1, CANCELLED))
    assert head.cancel(2, 1) == head.cancel(3, 1) == head.cancel(0, 1) == ()

    single = Head()
    single.end(1)
    for channel in (0, 2, 3):
        single.barrier(channel, 1)
    assert single.cancel(0, 1) == ()


def test_a_cancel_marker_from_outside_ends_the_log_of_its_checkpoint_and_of_older_ones() -> None:
    """The marker may cancel the checkpoint that is logged, or a newer one, which is reported last."""
    same, newer = logging(), logging()

    assert same.cancel(0, 1) == (StopCapture(1, failed=True), AbortCheckpoint(1, CANCELLED))
    assert newer.cancel(0, 2) == (
        StopCapture(1, failed=True),
        AbortCheckpoint(1, CANCELLED),
        AbortCheckpoint(2, CANCELLED),
    )


def test_a_cancel_marker_on_a_back_edge_ahead_of_the_snapshot_is_remembered() -> None:
    """The checkpoint is aborted when its snapshot is due; older ones are not affected."""
    head = Head()
    assert head.cancel(2, 2) == ()
    head.barrier(0, 1)
    assert head.barrier(1, 1) == (StartCapture(1), trigger(1))
    head.barrier(0, 2)

    assert head.barrier(1, 2) == (
        StopCapture(1, failed=True),
        AbortCheckpoint(1, SUBSUMED),
        AbortCheckpoint(2, CANCELLED),
    )


def test_a_snapshot_is_due_once() -> None:
    """A single open channel would trigger again with each barrier of an id, and so would the coordinator."""
    head = Head()
    head.end(1)
    assert head.barrier(0, 1) == (StartCapture(1), trigger(1))

    assert head.barrier(0, 1) == head.trigger(1) == ()


def test_the_end_of_a_channel_counts_as_its_barrier() -> None:
    """The last forward channel makes the snapshot due, the last back edge ends the log."""
    head = Head()
    head.barrier(0, 1)
    assert head.end(1) == (StartCapture(1), trigger(1))
    assert head.end(2) == ()

    assert head.end(3) == (StopCapture(1), finished(1))


def test_ends_abort_everything_when_they_do_not_count_as_barriers() -> None:
    """Checkpoints after tasks finish are switched off: the log and the tracker's pending checkpoints are aborted."""
    head = Head(checkpoints_after_tasks_finish=False)
    head.barrier(0, 1)
    head.barrier(1, 1)
    head.barrier(0, 2)

    assert head.end(1) == (StopCapture(1, failed=True), AbortCheckpoint(1, ENDED), AbortCheckpoint(2, ENDED))


def test_a_trigger_is_the_cut_when_no_forward_channel_is_open() -> None:
    """The loop goes on after all input has ended, and takes checkpoints."""
    head = Head()
    head.end(0)
    head.end(1)
    head.now_ns = 5

    assert head.trigger(1) == (StartCapture(1), trigger(1, 5))
    assert head.barrier(2, 1) == ()
    assert head.barrier(3, 1) == (StopCapture(1), finished(1, 5))


def test_notes_are_few() -> None:
    """Barriers that come round without effect do not accumulate; the oldest note is dropped."""
    head = Head()
    for checkpoint_id in range(MAX_PENDING_CHECKPOINTS + 1):
        head.barrier(2, checkpoint_id)

    noted = head.handler.fingerprint()[4]
    assert isinstance(noted, tuple)
    assert [checkpoint_id for checkpoint_id, _ in noted] == list(range(1, MAX_PENDING_CHECKPOINTS + 1))


def test_closing_forgets_the_log() -> None:
    """The task is not told."""
    head = logging()
    head.handler.close()

    assert head.handler.pending_checkpoint_ids == ()
    assert head.barrier(2, 1) == ()


def test_a_note_is_in_the_fingerprint() -> None:
    """Two heads that would go on differently look different."""
    one, other = Head(), Head()
    one.barrier(2, 1)

    assert one.handler.fingerprint() != other.handler.fingerprint()
