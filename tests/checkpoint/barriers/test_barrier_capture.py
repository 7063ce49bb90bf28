"""The capture of one input channel: which barrier ends it, which start is refused, what a stop leaves unchanged."""

from __future__ import annotations

import pytest

from engine.checkpoint.barriers import ChannelCapture, InputCapture
from engine.checkpoint.barriers.channel_capture import CaptureStatus


def test_a_capture_runs_from_its_start_to_its_barrier() -> None:
    """Records that arrive are captured exactly while the barrier of the started checkpoint is awaited."""
    capture = ChannelCapture()
    assert not capture.captures
    capture.start(3)
    assert capture.captures
    assert capture.barrier_arrived(3)
    assert not capture.captures
    assert (capture.status, capture.last) == (CaptureStatus.RECEIVED, 3)


def test_a_barrier_that_came_before_the_start_leaves_nothing_to_wait_for() -> None:
    """The start of an id whose barrier is here captures only the queued records."""
    capture = ChannelCapture()
    assert capture.barrier_arrived(3)
    capture.start(3)

    assert not capture.captures


@pytest.mark.parametrize("obsolete", [0, 4])
def test_an_obsolete_barrier_ends_nothing(obsolete: int) -> None:
    """A barrier of a smaller id is not recognised, neither while a capture runs nor after one was received."""
    waiting, received = ChannelCapture(), ChannelCapture()
    waiting.start(5)
    received.barrier_arrived(5)

    assert not waiting.barrier_arrived(obsolete)
    assert not received.barrier_arrived(obsolete)
    assert waiting.captures
    assert received.last == 5


def test_a_newer_barrier_ends_the_capture_of_an_older_id() -> None:
    """Barriers come in order: after that of a newer id no record of the older one can follow."""
    capture = ChannelCapture()
    capture.start(5)

    assert capture.barrier_arrived(6)
    assert not capture.captures


def test_an_older_start_is_refused_behind_a_newer_barrier() -> None:
    """A channel that holds the barrier of 6 cannot take part in 5 any more; it can in 6 and 7."""
    capture = ChannelCapture()
    capture.barrier_arrived(6)

    assert not capture.can_start(5)
    assert capture.can_start(6)
    assert capture.can_start(7)
    with pytest.raises(AssertionError, match="subsumed"):
        capture.start(5)


def test_a_newer_start_waits_although_an_older_barrier_is_here() -> None:
    """Records queued behind the barrier of an older checkpoint are in flight for the newer one."""
    capture = ChannelCapture()
    capture.barrier_arrived(1)
    capture.start(2)

    assert capture.captures


def test_stopping_an_old_id_leaves_a_newer_barrier_alone() -> None:
    """After the stop of 1 the channel still knows that the barrier of 2 is here, so 1 cannot start again."""
    capture = ChannelCapture()
    capture.start(1)
    capture.barrier_arrived(2)
    capture.stop(1)

    assert capture.status is CaptureStatus.RECEIVED
    assert not capture.can_start(1)


def test_stopping_ends_a_capture() -> None:
    """Once its checkpoint is over, no record is captured, and an older start would not be refused."""
    capture = ChannelCapture()
    capture.start(4)
    capture.stop(4)

    assert not capture.captures
    assert capture.status is CaptureStatus.IDLE
    assert capture.can_start(3)


def test_the_late_barrier_of_a_stopped_checkpoint_is_not_recognised() -> None:
    """After a stop only a newer barrier counts; a later start of a newer id waits for its own."""
    capture = ChannelCapture()
    capture.start(4)
    capture.stop(4)

    assert not capture.barrier_arrived(4)
    assert capture.status is CaptureStatus.IDLE
    assert capture.barrier_arrived(5)


def test_the_late_barrier_of_a_checkpoint_never_started_is_recognised() -> None:
    """It has no further effect: the next checkpoint captures as usual."""
    capture = ChannelCapture()
    assert capture.barrier_arrived(1)
    capture.start(2)
    assert capture.captures
    assert capture.barrier_arrived(2)


def test_a_task_can_start_only_if_every_channel_can() -> None:
    """One channel with a newer barrier is enough to refuse."""
    task = InputCapture(3)
    assert task.can_start(1)
    task.channels[2].barrier_arrived(2)

    assert not task.can_start(1)
    assert task.can_start(2)


def test_fingerprint_and_validate_cover_every_channel() -> None:
    """Status and id of each channel are in the fingerprint; a status without an id is caught."""
    one, other = InputCapture(2), InputCapture(2)
    other.channels[1].start(1)
    assert one.fingerprint() != other.fingerprint()
    before = other.fingerprint()
    other.channels[1].stop(1)
    assert other.fingerprint() not in (before, one.fingerprint())
    other.validate()
    one.channels[1].status = CaptureStatus.WAITING
    with pytest.raises(AssertionError):
        one.validate()
