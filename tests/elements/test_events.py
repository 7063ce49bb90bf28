"""Events are frozen values; the options of a barrier decide how it travels."""

from __future__ import annotations

import dataclasses

import pytest

from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    Event,
    SnapshotKind,
    Watermark,
    WatermarkStatus,
)

EVENTS = (
    CheckpointBarrier(1, 0),
    CancelCheckpointMarker(1),
    Watermark(5),
    WatermarkStatus(True),
    EndOfData(),
    EndOfPartition(),
)


@pytest.mark.parametrize(
    ("alignment", "needs_alignment", "is_priority"),
    [
        (AlignmentType.ALIGNED, True, False),
        (AlignmentType.FORCED_ALIGNED, True, False),
        (AlignmentType.UNALIGNED, False, True),
        (AlignmentType.AT_LEAST_ONCE, False, False),
    ],
)
def test_alignment_decides_blocking_and_overtaking(
    alignment: AlignmentType, needs_alignment: bool, is_priority: bool
) -> None:
    """Aligned forms block their channel, only unaligned barriers overtake, at-least-once ones do neither."""
    options = CheckpointOptions(alignment)

    assert options.needs_alignment is needs_alignment
    assert CheckpointBarrier(1, 0, options).is_priority is is_priority


@pytest.mark.parametrize("alignment", list(AlignmentType))
def test_only_aligned_barriers_may_time_out(alignment: AlignmentType) -> None:
    """A timeout means something for plainly aligned barriers only, and only when there is one."""
    assert CheckpointOptions(alignment, aligned_timeout_ns=5).timeoutable is (alignment is AlignmentType.ALIGNED)
    assert not CheckpointOptions(alignment).timeoutable


def test_a_plain_barrier_is_an_aligned_checkpoint() -> None:
    """Without options a barrier is that of an ordinary aligned checkpoint without timeout."""
    options = CheckpointBarrier(3, 7).options

    assert (options.alignment, options.kind, options.aligned_timeout_ns) == (
        AlignmentType.ALIGNED,
        SnapshotKind.CHECKPOINT,
        None,
    )


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_frozen_values(event: Event) -> None:
    """Two events of the same content are equal and hash alike, and none can be changed on its way."""
    copy = dataclasses.replace(event)

    assert copy == event
    assert hash(copy) == hash(event)
    names = [field.name for field in dataclasses.fields(event)] or ["anything"]
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        setattr(event, names[0], 99)
