"""The head of a loop, exactly-once: scenarios, by the instructions that each event leads to.

Channels 0 and 1 are forward channels, 2 and 3 are back edges.
"""

from __future__ import annotations

from typing import Any

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
from engine.checkpoint.barriers.alignment import AlignmentState
from engine.checkpoint.barriers.handler_instructions import HandlerInstructions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    SnapshotKind,
)

SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
ALIGNED = CheckpointOptions()
UNALIGNED = CheckpointOptions(AlignmentType.UNALIGNED)
TIMED = CheckpointOptions(aligned_timeout_ns=100)
FORCED = CheckpointOptions(AlignmentType.FORCED_ALIGNED)
SAVEPOINT = CheckpointOptions(AlignmentType.ALIGNED, SnapshotKind.SAVEPOINT)


class Head:
    """The handler, with a clock and a capture that sees every barrier as it is handed over."""

    kind: type[Any] = SingleCheckpointHandler
    options = ALIGNED

    def __init__(self, **settings: Any) -> None:
        self.capture = InputCapture(4)
        self.handler = self.kind(4, capture=self.capture, back_edges=(3, 2), **settings)
        self.now_ns = 0
        self.captured: dict[int, tuple[int, ...]] = {}

    def barrier(
        self, channel: int, checkpoint_id: int, options: CheckpointOptions | None = None
    ) -> HandlerInstructions:
        """A barrier that was created at 0 arrives and is taken."""
        barrier = CheckpointBarrier(checkpoint_id, 0, options or self.options)
        self.capture.channels[channel].barrier_arrived(checkpoint_id)
        return self._done(self.handler.on_barrier(channel, barrier, self.now_ns))

    def announce(self, channel: int, checkpoint_id: int) -> HandlerInstructions:
        """A timeoutable barrier waits in the queue of a channel."""
        barrier = CheckpointBarrier(checkpoint_id, 0, TIMED)
        self.capture.channels[channel].barrier_arrived(checkpoint_id)
        return self._done(self.handler.on_announcement(channel, barrier, self.now_ns))

    def cancel(self, channel: int, checkpoint_id: int) -> HandlerInstructions:
        return self._done(self.handler.on_cancel(channel, CancelCheckpointMarker(checkpoint_id), self.now_ns))

    def end(self, channel: int) -> HandlerInstructions:
        return self._done(self.handler.on_end_of_partition(channel, self.now_ns))

    def trigger(self, checkpoint_id: int, options: CheckpointOptions | None = None) -> HandlerInstructions:
        barrier = CheckpointBarrier(checkpoint_id, 0, options or self.options)
        return self._done(self.handler.on_trigger(barrier, self.now_ns))

    def timeout(self, checkpoint_id: int) -> HandlerInstructions:
        return self._done(self.handler.on_timeout(checkpoint_id, self.now_ns))

    def _done(self, instructions: HandlerInstructions) -> HandlerInstructions:
        for instruction in instructions:
            if isinstance(instruction, StartCapture):
                self.captured[instruction.checkpoint_id] = self.handler.captured_channels
                for channel in self.handler.captured_channels:
                    self.capture.channels[channel].start(instruction.checkpoint_id)
            if isinstance(instruction, StopCapture):
                for capture in self.capture.channels:
                    capture.stop(instruction.checkpoint_id)
        self.handler.validate()
        return instructions


def trigger(checkpoint_id: int, options: CheckpointOptions = ALIGNED, start_delay_ns: int = 0) -> TriggerSnapshot:
    return TriggerSnapshot(CheckpointBarrier(checkpoint_id, 0, options), AlignmentMetrics(start_delay_ns))


def finished(checkpoint_id: int, start_delay_ns: int = 0, alignment_ns: int = 0) -> AlignmentFinished:
    return AlignmentFinished(checkpoint_id, AlignmentMetrics(start_delay_ns, alignment_ns))


@pytest.mark.parametrize("options", [ALIGNED, SAVEPOINT, FORCED, TIMED])
def test_the_snapshot_waits_for_the_forward_channels_only(options: CheckpointOptions) -> None:
    """The last forward barrier starts the log of the back edges and makes the aligned snapshot due."""
    head = Head()
    timer = (ArmAlignmentTimer(1, 100),) if options is TIMED else ()

    assert head.barrier(0, 1, options) == (BlockChannel(0), *timer)
    assert head.barrier(1, 1, options) == (
        BlockChannel(1),
        StartCapture(1),
        trigger(1, options),
        ResumeChannels((0, 1)),
    )
    assert head.captured == {1: (2, 3)}
    assert head.handler.pending_checkpoint_ids == (1,)


def test_the_log_ends_when_the_barrier_has_come_round_on_every_back_edge() -> None:
    """Each back edge is resumed at once; the last one completes the checkpoint and ends the alignment."""
    head = Head()
    head.now_ns = 10
    head.barrier(0, 1)
    head.barrier(1, 1)
    head.now_ns = 17

    assert head.barrier(3, 1) == (BlockChannel(3), ResumeChannels((3,)))
    head.now_ns = 30
    assert head.barrier(2, 1) == (BlockChannel(2), StopCapture(1), finished(1, 10, 20), ResumeChannels((2,)))
    assert head.handler.pending_checkpoint_ids == ()


def test_a_back_edge_whose_barrier_comes_early_waits_for_the_snapshot() -> None:
    """Records that follow that barrier come after the cut; the channel needs no log."""
    head = Head()

    assert head.barrier(2, 1) == (BlockChannel(2),)
    assert head.barrier(0, 1) == (BlockChannel(0),)
    assert head.barrier(1, 1) == (BlockChannel(1), StartCapture(1), trigger(1), ResumeChannels((0, 1, 2)))
    assert head.captured == {1: (3,)}
    assert head.barrier(3, 1) == (BlockChannel(3), StopCapture(1), finished(1), ResumeChannels((3,)))


def test_without_anything_to_log_the_snapshot_is_an_ordinary_one() -> None:
    """All back edges were early: no records are in flight on them."""
    head = Head()
    head.barrier(2, 1)
    head.barrier(3, 1)
    head.barrier(0, 1)

    assert head.barrier(1, 1) == (BlockChannel(1), trigger(1), ResumeChannels((0, 1, 2, 3)))
    assert head.handler.pending_checkpoint_ids == ()


def test_an_unaligned_barrier_triggers_wherever_it_comes_from() -> None:
    """A back edge is then like any other channel, and all of them are captured."""
    head = Head()

    assert head.barrier(3, 1, UNALIGNED) == (StartCapture(1), trigger(1, UNALIGNED))
    assert head.captured == {1: (0, 1, 2, 3)}
    assert head.barrier(0, 1, UNALIGNED) == head.barrier(1, 1, UNALIGNED) == ()
    assert head.barrier(2, 1, UNALIGNED) == (StopCapture(1), finished(1))


def test_a_forced_aligned_barrier_comes_back_to_an_unaligned_snapshot() -> None:
    """After the snapshot a back edge is resumed at once; a forward channel stays blocked until the checkpoint ends."""
    head = Head()
    head.barrier(0, 1, UNALIGNED)

    assert head.barrier(2, 1, FORCED) == (BlockChannel(2), ResumeChannels((2,)))
    assert head.barrier(1, 1, FORCED) == (BlockChannel(1),)
    assert head.barrier(3, 1, UNALIGNED) == (StopCapture(1), finished(1), ResumeChannels((1,)))


def test_a_timeout_ahead_of_the_snapshot_goes_unaligned() -> None:
    """All channels are captured; a back edge that waited for the snapshot goes on, a forward channel does not."""
    head = Head()
    head.barrier(2, 1, TIMED)
    head.barrier(0, 1, TIMED)
    head.announce(1, 1)
    head.now_ns = 100

    assert head.timeout(1) == (PromoteBarrier(1), StartCapture(1), trigger(1, UNALIGNED), ResumeChannels((2,)))
    assert head.barrier(1, 1, TIMED) == (BlockChannel(1),)
    assert head.barrier(3, 1, UNALIGNED) == (StopCapture(1), finished(1, 0, 100), ResumeChannels((0, 1)))


def test_a_late_barrier_that_makes_the_cut_still_makes_an_aligned_one() -> None:
    """Completeness of the forward barriers is checked before lateness; an earlier late barrier goes unaligned."""
    head = Head()
    head.barrier(0, 1, TIMED)
    head.now_ns = 101
    assert head.barrier(1, 1, TIMED)[1:3] == (StartCapture(1), trigger(1, TIMED))

    late = Head()
    late.now_ns = 101
    assert late.barrier(0, 1, TIMED) == (BlockChannel(0), StartCapture(1), trigger(1, UNALIGNED, 101))


def test_a_timeout_during_the_log_changes_nothing() -> None:
    """The snapshot is taken; only barriers announced on a back edge from now on are promoted."""
    head = Head()
    head.barrier(0, 1, TIMED)
    head.barrier(1, 1, TIMED)
    head.now_ns = 100

    assert head.timeout(1) == ()
    assert head.announce(2, 1) == (PromoteBarrier(2),)
    assert head.barrier(2, 1, TIMED) == (BlockChannel(2), ResumeChannels((2,)))


def test_a_newer_checkpoint_subsumes_the_one_that_is_logged() -> None:
    """One checkpoint at a time: the log is dropped, and the newer checkpoint begins."""
    head = Head()
    head.barrier(0, 1)
    head.barrier(1, 1)

    assert head.barrier(0, 2) == (StopCapture(1, failed=True), AbortCheckpoint(1, SUBSUMED), BlockChannel(0))
    assert head.barrier(2, 1) == (BlockChannel(2), ResumeChannels((2,)))
    assert head.barrier(1, 2)[1:3] == (StartCapture(2), trigger(2))


def test_a_newer_barrier_that_waits_on_a_back_edge_refuses_the_log() -> None:
    """The end of the log would no longer be recognised."""
    head = Head()
    head.barrier(0, 1)
    head.capture.channels[2].barrier_arrived(2)

    assert head.barrier(1, 1) == (BlockChannel(1), ResumeChannels((0, 1)), AbortCheckpoint(1, SUBSUMED))
    assert head.handler.pending_checkpoint_ids == ()


def test_a_cancel_marker_goes_round_once() -> None:
    """It ends the log and is passed on by the task; when it comes back it has no effect."""
    head = Head()
    head.barrier(0, 1)
    head.barrier(1, 1)

    assert head.cancel(2, 1) == (StopCapture(1, failed=True), AbortCheckpoint(1, CANCELLED))
    assert head.cancel(3, 1) == ()
    assert head.cancel(2, 1) == ()


def test_an_abort_ahead_of_the_snapshot_frees_the_back_edges() -> None:
    """Back edges that waited for the snapshot are resumed."""
    head = Head()
    head.barrier(2, 1)

    assert head.cancel(0, 1) == (ResumeChannels((2,)), AbortCheckpoint(1, CANCELLED))


def test_the_end_of_the_last_forward_channel_makes_the_cut() -> None:
    """It counts as its barrier, also where only an announcement of the checkpoint is here."""
    head = Head()
    head.barrier(0, 1)
    assert head.end(1) == (StartCapture(1), trigger(1), ResumeChannels((0,)))

    announced = Head()
    announced.end(0)
    announced.announce(2, 1)
    assert announced.end(1) == (StartCapture(1), trigger(1, TIMED))
    assert announced.captured == {1: (2, 3)}


def test_the_end_of_a_back_edge_ends_its_log() -> None:
    """No further record will come back on it."""
    head = Head()
    head.barrier(0, 1)
    head.barrier(1, 1)
    head.barrier(2, 1)

    assert head.end(3) == (StopCapture(1), finished(1))


def test_ends_abort_the_log_when_they_do_not_count_as_barriers() -> None:
    """Checkpoints after tasks finish are switched off."""
    head = Head(checkpoints_after_tasks_finish=False)
    head.barrier(0, 1)
    head.barrier(1, 1)

    assert head.end(2) == (StopCapture(1, failed=True), AbortCheckpoint(1, ENDED))


def test_a_trigger_of_the_coordinator_stands_for_the_forward_barriers() -> None:
    """It blocks no channel, and the back edges are still awaited."""
    head = Head()
    head.end(0)

    assert head.trigger(1) == (StartCapture(1), trigger(1))
    assert head.trigger(1) == ()
    assert head.barrier(2, 1) == (BlockChannel(2), ResumeChannels((2,)))
    assert head.barrier(3, 1)[1:3] == (StopCapture(1), finished(1))


@pytest.mark.parametrize("options", [ALIGNED, UNALIGNED])
def test_a_trigger_is_the_cut_when_no_forward_channel_is_open(options: CheckpointOptions) -> None:
    """The loop goes on after all input has ended, and takes checkpoints."""
    head = Head()
    head.end(0)
    head.end(1)
    head.now_ns = 5

    assert head.trigger(1, options) == (StartCapture(1), trigger(1, options, 5))
    assert head.captured == {1: (2, 3)}
    head.barrier(2, 1, options)
    head.now_ns = 9
    assert finished(1, 5, 4) in head.barrier(3, 1, options)


def test_a_barrier_on_a_back_edge_triggers_when_no_forward_channel_is_open() -> None:
    """Another subtask of the head was triggered first; the coordinator's own trigger is then obsolete."""
    head = Head()
    head.end(0)
    head.end(1)

    assert head.barrier(2, 1) == (BlockChannel(2), StartCapture(1), trigger(1), ResumeChannels((2,)))
    assert head.captured == {1: (3,)}
    assert head.trigger(1) == ()
    assert head.barrier(3, 1)[1:3] == (StopCapture(1), finished(1))
    assert head.trigger(1) == ()


def test_a_closed_task_takes_its_own_snapshot() -> None:
    """No channel is open: the coordinator's trigger works as in any task."""
    head = Head()
    for channel in range(4):
        head.end(channel)

    assert head.trigger(1) == (trigger(1),)


def test_what_is_logged_is_in_the_fingerprint() -> None:
    """Two heads that would go on differently look different."""
    logging, capturing = Head(), Head()
    for channel in (0, 1):
        logging.barrier(channel, 1)
        capturing.barrier(channel, 1, UNALIGNED)

    assert logging.handler.fingerprint() != capturing.handler.fingerprint()
    assert AlignmentState.LOGGING.value in logging.handler.fingerprint()
