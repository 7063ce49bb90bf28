"""The valve combines watermarks as Flink's does, compared with a model that stores only the watermarks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from engine.runtime.channels import WatermarkValve


class NaiveValve:
    """The rules in one sentence each, recomputed from all marks after every event.

    A channel counts when it is active and its watermark has caught up with the task's.
    """

    def __init__(self, channels: int) -> None:
        self.marks = [MIN_TIMESTAMP_MS] * channels
        self.active = [True] * channels
        self.out = MIN_TIMESTAMP_MS

    def watermark(self, channel: int, timestamp_ms: int) -> None:
        """The watermark of an idle channel has no effect, and no channel goes back."""
        if self.active[channel]:
            self.marks[channel] = max(self.marks[channel], timestamp_ms)
            self._advance()

    def status(self, channel: int, idle: bool) -> None:
        """Going idle releases the other channels; when all are idle, the held-back watermark is emitted at once."""
        if self.active[channel] is not idle:
            return
        self.active[channel] = not idle
        if any(self.active):
            self._advance()
        elif self.marks[channel] == self.out:
            self.out = max(self.marks)

    def _advance(self) -> None:
        counting = [mark for mark, active in zip(self.marks, self.active, strict=True) if active and mark >= self.out]
        self.out = max(self.out, min(counting, default=self.out))


EVENTS = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 12), st.booleans())), max_size=40)


@given(EVENTS)
@example([(0, 5), (1, 3), (2, 9), (1, True), (0, True), (2, True), (1, False), (1, 4), (1, 9), (0, False)])
def test_the_valve_agrees_with_the_model(events: list[tuple[int, int | bool]]) -> None:
    """After any history the valve stands where the model stands, and reported each advance exactly once."""
    valve, model = WatermarkValve(3), NaiveValve(3)
    reported, statuses = [MIN_TIMESTAMP_MS], [False]
    for channel, what in events:
        if isinstance(what, bool):
            watermark, status = valve.on_status(channel, what)
            model.status(channel, what)
            if status is not None:
                statuses.append(status)
        else:
            watermark = valve.on_watermark(channel, what)
            model.watermark(channel, what)
        if watermark is not None:
            reported.append(watermark)
        assert valve.watermark_ms == model.out == reported[-1]
        assert valve.idle is statuses[-1] is (not any(model.active))
    assert reported == sorted(set(reported))
    assert all(one is not other for one, other in pairwise(statuses))


def test_the_slowest_channel_decides() -> None:
    """The task's watermark is the minimum, and advances only with it."""
    valve = WatermarkValve(2)

    assert valve.on_watermark(0, 10) is None
    assert valve.on_watermark(1, 4) == 4
    assert valve.on_watermark(1, 12) == 10


def test_watermarks_never_go_back() -> None:
    """A lower watermark on a channel is ignored."""
    valve = WatermarkValve(1)

    assert valve.on_watermark(0, 5) == 5
    assert valve.on_watermark(0, 5) is None
    assert valve.on_watermark(0, 3) is None
    assert valve.watermark_ms == 5


def test_an_idle_channel_holds_nobody_back() -> None:
    """When the slowest channel becomes idle, the task advances to the next slowest at once."""
    valve = WatermarkValve(3)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 20)

    assert valve.on_status(2, True) == (10, None)
    assert not valve.idle


def test_watermarks_of_an_idle_channel_are_ignored() -> None:
    """An idle channel gives no guarantee; what it still sends changes nothing, also later."""
    valve = WatermarkValve(2)
    valve.on_status(0, True)

    assert valve.on_watermark(0, 50) is None
    valve.on_watermark(1, 7)
    valve.on_status(0, False)

    assert valve.on_watermark(1, 60) == 60


def test_a_channel_behind_does_not_count_until_it_has_caught_up() -> None:
    """A channel that was idle may return with a lower watermark than the task's; it does not hold the task back."""
    valve = WatermarkValve(2)
    valve.on_watermark(0, 3)
    valve.on_watermark(1, 10)
    assert valve.on_status(0, True) == (10, None)

    assert valve.on_status(0, False) == (None, None)
    assert valve.on_watermark(0, 6) is None
    assert valve.on_watermark(1, 12) == 12
    assert valve.on_watermark(0, 12) is None
    assert valve.on_watermark(1, 20) is None
    assert valve.on_watermark(0, 15) == 15


def test_when_all_are_idle_what_was_held_back_is_let_go() -> None:
    """The last channel to go idle held the watermark back: the task advances to the greatest, then is idle."""
    valve = WatermarkValve(2)
    valve.on_watermark(0, 4)
    valve.on_watermark(1, 4)
    valve.on_watermark(0, 9)
    assert valve.on_status(0, True) == (None, None)

    assert valve.on_status(1, True) == (9, True)
    assert valve.idle


def test_a_repeated_status_is_no_news() -> None:
    """Only changes of a channel's status count."""
    valve = WatermarkValve(1)

    assert valve.on_status(0, False) == (None, None)
    assert valve.on_status(0, True) == (None, True)
    assert valve.on_status(0, True) == (None, None)
    assert valve.on_status(0, False) == (None, False)


def test_an_ended_channel_holds_nobody_back() -> None:
    """The last watermark of a stream is the greatest possible one, so the other channels decide alone."""
    valve = WatermarkValve(2)
    valve.on_watermark(0, MAX_TIMESTAMP_MS)

    assert valve.on_watermark(1, 5) == 5
    assert valve.on_watermark(1, MAX_TIMESTAMP_MS) == MAX_TIMESTAMP_MS


@pytest.mark.parametrize("event", ["watermark", "idle", "active"])
def test_fingerprints_follow_every_change(event: str) -> None:
    """Every change that affects how the valve goes on changes its fingerprint."""
    valve = WatermarkValve(2)
    valve.on_status(1, True)
    before = valve.fingerprint()

    if event == "watermark":
        valve.on_watermark(0, 1)
    else:
        valve.on_status(0 if event == "idle" else 1, event == "idle")

    assert valve.fingerprint() != before
