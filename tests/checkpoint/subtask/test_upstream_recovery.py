"""The channels of a gate go on after their restored output: all together, and not before the last marker."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.subtask import UpstreamRecoveryTracker


@given(st.integers(1, 12).flatmap(lambda channels: st.permutations(range(channels))))
def test_all_channels_are_resumed_at_the_last_marker(order: list[int]) -> None:
    """In whatever order the markers come: nobody before the last one, then everybody once."""
    tracker = UpstreamRecoveryTracker(len(order))
    resumed = []
    for channel in order:
        assert not tracker.is_recovered
        resumed.append(tracker.on_end_of_channel_state(channel))

    assert resumed == [()] * (len(order) - 1) + [tuple(range(len(order)))]
    assert tracker.is_recovered


def test_a_second_marker_of_one_channel_is_a_bug() -> None:
    """A marker blocks its channel, so no second one can come before the resume."""
    tracker = UpstreamRecoveryTracker(2)
    tracker.on_end_of_channel_state(1)

    with pytest.raises(AssertionError, match="channel 1 ends its channel state twice"):
        tracker.on_end_of_channel_state(1)


def test_a_task_without_channels_has_nothing_to_wait_for() -> None:
    """A source has recovered from the start."""
    assert UpstreamRecoveryTracker(0).is_recovered


def test_the_fingerprint_is_what_is_still_to_come() -> None:
    """The order of the markers before makes no difference."""

    def after(*channels: int) -> object:
        tracker = UpstreamRecoveryTracker(3)
        for channel in channels:
            tracker.on_end_of_channel_state(channel)
        return tracker.fingerprint()

    assert after(0, 1) == after(1, 0)
    assert len({after(), after(0), after(1), after(0, 1)}) == 4
