"""The parts of the handlers: the one checkpoint that is being aligned, and the back edges of a loop."""

from __future__ import annotations

import pytest

from engine.checkpoint.barriers import AbortCheckpoint, AlignmentMetrics, BlockChannel, ResumeChannels, TriggerSnapshot
from engine.checkpoint.barriers.alignment import AlignmentState, BarrierAlignment
from engine.checkpoint.barriers.back_edges import BackEdges
from engine.checkpoint.barriers.handler_instructions import HandlerInstruction, StopCapture
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier

SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 10)


def pending(channels: int, *aligned: int) -> BarrierAlignment:
    """Checkpoint 1, whose barrier has come on some channels and blocked them."""
    alignment = BarrierAlignment(channels)
    alignment.start_if_new(barrier(1), [])
    for channel in aligned:
        alignment.align(channel, barrier(1), 15)
        alignment.block(channel, [])
    alignment.state = AlignmentState.ALIGNED_COLLECTING
    alignment.validate()
    return alignment


def test_the_last_missing_channel_completes() -> None:
    """Channels count once each, and one that ends counts as aligned: the target stays."""
    alignment = pending(3, 0)
    alignment.end_channel(1)

    assert alignment.align(0, barrier(1), 16) is False
    assert alignment.align(1, barrier(1), 17) is False
    assert alignment.align(2, barrier(1), 18) is True
    assert alignment.clock.metrics(1) == AlignmentMetrics(5, 3)


def test_a_finished_checkpoint_is_obsolete() -> None:
    """So are those before it; a pending one and a newer one are not."""
    alignment = pending(2, 0)
    assert [alignment.is_obsolete(one) for one in (0, 1, 2)] == [True, False, False]
    alignment.resume((0,), [])
    alignment.finish()

    alignment.validate()
    assert [alignment.is_obsolete(one) for one in (0, 1, 2)] == [True, True, False]
    assert alignment.open == (0, 1)


def test_a_newer_checkpoint_subsumes() -> None:
    """The older one's channels are resumed in order before the task is told; a further barrier starts nothing."""
    alignment = pending(3, 2, 0)
    alignment.state = AlignmentState.UNALIGNED_COLLECTING
    out: list[HandlerInstruction] = []

    assert alignment.start_if_new(barrier(2), out) is True
    assert out == [StopCapture(1, failed=True), ResumeChannels((0, 2)), AbortCheckpoint(1, SUBSUMED)]
    assert (alignment.state, alignment.aligned) == (AlignmentState.ALIGNED_WAITING, ())
    assert alignment.start_if_new(barrier(2), out) is False


def test_only_what_is_blocked_is_resumed() -> None:
    """Each resume is emitted once, and never for a channel that has ended."""
    alignment = pending(4, 0, 1)
    alignment.align(2, barrier(1), 15)
    alignment.end_channel(1)
    out: list[HandlerInstruction] = []
    alignment.resume((0, 1, 2), out)
    alignment.resume((0, 1, 2), out)

    assert out == [ResumeChannels((0,))]


def test_the_snapshot_comes_before_the_resume() -> None:
    """A record that a resume lets through comes after the cut."""
    alignment, out = pending(2, 0), list[HandlerInstruction]()
    alignment.align(1, barrier(1), 15)
    alignment.block(1, out)
    alignment.complete_aligned(barrier(1), out)

    assert out == [BlockChannel(1), TriggerSnapshot(barrier(1), AlignmentMetrics(5)), ResumeChannels((0, 1))]


def test_what_cannot_be_is_noticed() -> None:
    """A checkpoint that no channel can complete, a channel blocked for none, and one that ends twice."""
    endless, stray = pending(2, 0), BarrierAlignment(1)
    endless.end_channel(1)
    stray.block(0, [])

    with pytest.raises(AssertionError, match="it never ends"):
        endless.validate()
    with pytest.raises(AssertionError, match="blocked for no checkpoint"):
        stray.validate()
    with pytest.raises(AssertionError, match="channel 1 ends twice"):
        endless.end_channel(1)


def test_the_cut_is_made_by_the_forward_channels() -> None:
    """Open forward channels must be aligned; awaited are the back edges that are open and not aligned."""
    edges, alignment = BackEdges(4, (3, 1)), pending(4, 0)
    assert (edges.channels, edges.forward) == ((1, 3), (0, 2))
    assert not edges.is_cut(alignment)
    alignment.end_channel(2)

    assert edges.is_cut(alignment)
    assert edges.awaited(alignment) == (1, 3)
    alignment.align(1, barrier(1), 20)
    assert edges.awaited(alignment) == (3,)
    alignment.end_channel(3)
    assert edges.awaited(alignment) == ()


def test_a_task_with_back_edges_only_has_no_input() -> None:
    """Such a loop would never begin."""
    with pytest.raises(AssertionError, match="has no input"):
        BackEdges(2, (0, 1))
