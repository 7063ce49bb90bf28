"""Triggers, one by one, through the operator that calls them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.basic import aggregates
from operators.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    Trigger,
    TriggeredWindowOperator,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from tests.operators.harness import START_NS, Harness
from tests.operators.windows.models import first

TENS = TumblingEventTimeWindows.of(10)
START_MS = START_NS // 1_000_000


def sums(assigner: WindowAssigner, trigger: Trigger | None = None, **options: Any) -> Harness:
    restored = {key: options.pop(key) for key in ("restored", "now_ns") if key in options}
    aggregate = aggregates.total(lambda record: record[1])
    return Harness(TriggeredWindowOperator(assigner, aggregate, trigger=trigger, **options), key=first, **restored)


def nothing_left(harness: Harness) -> bool:
    service = harness.context.keyed.timer_service("window-timers")
    timers = len(service.event_time) + len(service.processing_time)
    return (harness.context.keyed.num_entries(), timers) == (0, 0)


def test_the_results_of_a_trigger_say_what_happens() -> None:
    """Two of the four fire, two purge."""
    assert [one.fires for one in TriggerResult] == [False, True, False, True]
    assert [one.purges for one in TriggerResult] == [False, False, True, True]


def test_event_time_trigger_fires_at_the_end_and_for_each_late_record() -> None:
    """It fires as the default does, only not by batch; the cleanup at the end of the lateness does not fire."""
    harness = sums(TENS, EventTimeTrigger(), allowed_lateness_ms=5)
    harness.process([("a", 1), ("a", 2)], [3, 12])
    harness.watermark(9)
    assert harness.take() == [Batch([("a", 0, 10, 1)], [9]), ("watermark", 9)]
    harness.process([("a", 4), ("a", 8)], [4, 5])
    assert harness.take_stamped() == [(("a", 0, 10, 5), 9), (("a", 0, 10, 13), 9)]
    harness.watermark(14)
    assert harness.take() == [("watermark", 14)]
    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [("a", 10, 20, 2)]
    assert nothing_left(harness)


def test_processing_time_windows_fire_once_their_last_millisecond_is_over() -> None:
    """A record within that millisecond is still in; the result has the window's last millisecond as its timestamp."""
    harness = sums(TumblingProcessingTimeWindows.of(10))
    harness.process([("a", 1)])
    harness.advance_ms(9)
    assert harness.take_values() == []
    harness.process([("a", 2)], [77])
    harness.advance_to_ns((START_MS + 10) * 1_000_000 - 1)
    assert harness.take_values() == []
    harness.advance_ms(1)

    assert harness.take() == [Batch([("a", START_MS, START_MS + 10, 3)], [START_MS + 9])]
    assert nothing_left(harness)


def test_sliding_processing_time_windows() -> None:
    """A record is in each window that contains its instant; watermarks are passed on and change nothing."""
    harness = sums(SlidingProcessingTimeWindows.of(10, 5))
    harness.process([("a", 1)])
    harness.watermark(MAX_TIMESTAMP_MS)
    harness.advance_ms(5)
    harness.process([("a", 2)])
    harness.advance_ms(20)

    assert harness.take() == [
        ("watermark", MAX_TIMESTAMP_MS),
        Batch([("a", START_MS - 5, START_MS + 5, 1)], [START_MS + 4]),
        Batch([("a", START_MS, START_MS + 10, 3)], [START_MS + 9]),
        Batch([("a", START_MS + 5, START_MS + 15, 2)], [START_MS + 14]),
    ]
    assert nothing_left(harness)


def test_restored_processing_time_windows_fire() -> None:
    """The wake-up of a restored window is requested at once, also when it is overdue by then."""
    harness = sums(TumblingProcessingTimeWindows.of(10))
    harness.process([("a", 1)])
    checkpoint = harness.snapshot(1)

    on_time = sums(TumblingProcessingTimeWindows.of(10), restored=checkpoint)
    on_time.advance_ms(10)
    overdue = sums(TumblingProcessingTimeWindows.of(10), restored=checkpoint, now_ns=START_NS + 10**9)
    overdue.advance_ms(0)

    assert on_time.take_values() == overdue.take_values() == [("a", START_MS, START_MS + 10, 1)]


def test_count_trigger_fires_after_every_so_many_records() -> None:
    """Contents stay; the count is per key and window; the cleanup removes the count and does not fire."""
    harness = sums(TENS, CountTrigger.of(2))
    harness.process([("a", 1), ("b", 2), ("a", 4), ("a", 8), ("a", 16), ("a", 32)], [1, 2, 3, 12, 4, 5])

    assert harness.take_stamped() == [(("a", 0, 10, 5), 9), (("a", 0, 10, 53), 9)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take_values() == []
    assert nothing_left(harness)


def test_purging_trigger_empties_what_it_fires() -> None:
    """Every result has the records since the last one; a window without contents does not fire."""
    counted = sums(TENS, PurgingTrigger.of(CountTrigger.of(2)))
    counted.process([("a", 1), ("a", 2), ("a", 4), ("a", 8), ("a", 16)], [1, 2, 3, 4, 5])
    assert counted.take_values() == [("a", 0, 10, 3), ("a", 0, 10, 12)]

    late = sums(TENS, PurgingTrigger.of(EventTimeTrigger()), allowed_lateness_ms=10)
    late.process([("a", 1)], [1])
    late.watermark(9)
    late.process([("a", 2)], [1])
    late.watermark(MAX_TIMESTAMP_MS)
    assert late.take_values() == [("a", 0, 10, 1), ("a", 0, 10, 2)]
    assert nothing_left(late)

    by_clock = sums(TENS, PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(5)))
    by_clock.process([("a", 1)], [1])
    by_clock.advance_ms(20)
    assert by_clock.take_values() == [("a", 0, 10, 1)]


def test_continuous_event_time_trigger() -> None:
    """Fires at the multiples of its interval after the first record, once for each, and at the window's end."""
    harness = sums(TumblingEventTimeWindows.of(100), ContinuousEventTimeTrigger.of(30))
    harness.process([("a", 1)], [35])
    for watermark_ms, fires in ((59, 0), (60, 1), (61, 0), (98, 1), (99, 1), (MAX_TIMESTAMP_MS, 0)):
        harness.watermark(watermark_ms)
        assert harness.take_values() == [("a", 0, 100, 1)] * fires
    assert nothing_left(harness)

    jump = sums(TumblingEventTimeWindows.of(100), ContinuousEventTimeTrigger.of(30))
    jump.process([("a", 1)], [35])
    jump.watermark(MAX_TIMESTAMP_MS)
    assert jump.take_values() == [("a", 0, 100, 1)] * 3


def test_continuous_event_time_trigger_and_late_records() -> None:
    """Once the window's end has passed every record fires, as with the plain trigger."""
    harness = sums(TENS, ContinuousEventTimeTrigger.of(4), allowed_lateness_ms=20)
    harness.process([("a", 1)], [1])
    harness.watermark(9)
    assert harness.take_values() == [("a", 0, 10, 1)] * 3
    harness.process([("a", 2)], [2])
    assert harness.take_values() == [("a", 0, 10, 3)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take_values() == []
    assert nothing_left(harness)


def test_continuous_event_time_trigger_of_a_global_window() -> None:
    """It fires while the input goes on, and once when it has ended: not until the end of time."""
    harness = sums(GlobalWindows.create(), ContinuousEventTimeTrigger.of(10))
    harness.process([("a", 1)], [5])
    harness.watermark(20)
    assert harness.take_stamped() == [(("a", 1), MAX_TIMESTAMP_MS)] * 2
    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [("a", 1)] * 2


def test_continuous_event_time_trigger_needs_timestamps() -> None:
    """A global window accepts records without timestamps, but then this trigger does not know when to fire."""
    harness = sums(GlobalWindows.create(), ContinuousEventTimeTrigger.of(10))
    with pytest.raises(UserFunctionError, match="ContinuousEventTimeTrigger needs event time"):
        harness.process([("a", 1)])


def test_continuous_processing_time_trigger() -> None:
    """Fires at the multiples of its interval of the clock; the last time is the end of a window of the clock."""
    harness = sums(TumblingProcessingTimeWindows.of(10), ContinuousProcessingTimeTrigger.of(4))
    harness.advance_ms(1)
    harness.process([("a", 1)])
    fired = []
    for millisecond in range(2, 25):
        harness.advance_ms(1)
        fired += [millisecond] * len(harness.take_values())

    assert fired == [5, 9, 10]
    assert nothing_left(harness)


def test_continuous_processing_time_trigger_gives_early_results() -> None:
    """Over event-time windows it fires by the clock until the window is cleaned up."""
    harness = sums(TENS, ContinuousProcessingTimeTrigger.of(5))
    harness.process([("a", 1)], [3])
    harness.advance_ms(6)
    harness.process([("a", 2)], [4])
    harness.advance_ms(5)
    assert harness.take_stamped() == [(("a", 0, 10, 1), 9), (("a", 0, 10, 3), 9)]
    harness.watermark(9)

    assert harness.take() == [("watermark", 9)]
    assert nothing_left(harness)


def test_global_windows_never_fire_by_themselves() -> None:
    """They keep their contents; with the other constructor they fire when the input has ended."""
    never = sums(GlobalWindows.create())
    never.process([("a", 1)])
    never.watermark(MAX_TIMESTAMP_MS)
    assert never.take_values() == []
    assert never.context.keyed.num_entries() == 1

    at_end = sums(GlobalWindows.create_with_end_of_stream_trigger())
    at_end.process([("a", 1), ("a", 2), ("b", 4)], [1, 2, 3])
    at_end.watermark(MAX_TIMESTAMP_MS - 1)
    assert at_end.take_values() == []
    at_end.watermark(MAX_TIMESTAMP_MS)
    assert at_end.take_stamped() == [(("a", 3), MAX_TIMESTAMP_MS), (("b", 4), MAX_TIMESTAMP_MS)]
    assert nothing_left(at_end)


class ThreeDistinct(Trigger):
    """A trigger with all kinds of state: fires when a window has had three different values, whatever else."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> TriggerResult:
        seen = ctx.map_state("seen")
        seen.put(value[1], True)
        ctx.list_state("log").add(value[1])
        ctx.value_state("last", 0).update(value[1])
        if len(seen.keys()) < 3:
            return TriggerResult.CONTINUE
        seen.clear()
        return TriggerResult.FIRE

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.PURGE if time_ms == 5 else TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: Any) -> None:
        for state in (ctx.map_state("seen"), ctx.list_state("log"), ctx.value_state("last")):
            state.clear()


def test_a_trigger_of_ones_own_keeps_state_per_key_and_window() -> None:
    """State of windows and keys does not mix, survives a restore, and is gone when the trigger clears it."""
    harness = sums(TENS, ThreeDistinct())
    harness.process([("a", 1), ("b", 2), ("a", 2), ("a", 2), ("a", 3)], [1, 1, 12, 1, 12])
    assert harness.take_values() == []

    restored = sums(TENS, ThreeDistinct(), restored=harness.snapshot(1))
    restored.process([("a", 7), ("b", 7)], [1, 1])
    assert restored.take_values() == [("a", 0, 10, 10)]
    restored.process([("a", 1), ("b", 1)], [12, 1])
    assert restored.take_values() == [("a", 10, 20, 6), ("b", 0, 10, 10)]
    restored.watermark(MAX_TIMESTAMP_MS)

    assert nothing_left(restored)


def test_what_a_trigger_does_to_its_timers() -> None:
    """Timers of both clocks can be set and deleted; PURGE empties without firing; each timer is asked about."""
    calls: list[Any] = []

    class Timers(ThreeDistinct):
        def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> TriggerResult:
            ctx.register_event_time_timer(5)
            ctx.register_event_time_timer(6)
            ctx.delete_event_time_timer(6)
            ctx.register_processing_time_timer(ctx.processing_time_ms() + 3)
            ctx.register_processing_time_timer(ctx.processing_time_ms() + 2)
            ctx.delete_processing_time_timer(ctx.processing_time_ms() + 2)
            return TriggerResult.CONTINUE

        def on_processing_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
            calls.append((time_ms - START_MS, window, ctx.current_watermark_ms))
            return TriggerResult.FIRE

    harness = sums(TENS, Timers())
    harness.process([("a", 1)], [1])
    harness.advance_ms(10)
    assert (harness.take_values(), [call[0] for call in calls]) == ([("a", 0, 10, 1)], [3])
    harness.watermark(5)
    harness.process([("a", 2)], [1])
    harness.advance_ms(10)

    assert harness.take_values() == [("a", 0, 10, 2)]
    assert calls[-1][2] == 5


def test_a_trigger_must_return_a_result() -> None:
    """None, the result of a function without a return, is an error that names the window."""

    class Silent(ThreeDistinct):
        def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> Any:
            return None

    with pytest.raises(UserFunctionError, match="a trigger returns a TriggerResult, got None"):
        sums(TENS, Silent()).process([("a", 1)], [1])
    with pytest.raises(UserFunctionError, match="Trigger does not define on_element"):
        sums(TENS, Trigger()).process([("a", 1)], [1])


def test_every_subtask_has_a_copy_of_the_trigger() -> None:
    """Attributes are not state: the attributes of one operator's trigger are not visible to another one."""

    class Counting(ThreeDistinct):
        calls = 0

        def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> TriggerResult:
            self.calls += 1
            return TriggerResult.FIRE if self.calls == 2 else TriggerResult.CONTINUE

    trigger = Counting()
    one, other = sums(TENS, trigger), sums(TENS, trigger)
    one.process([("a", 1)], [1])
    other.process([("a", 1)], [1])

    assert (one.take_values(), other.take_values(), trigger.calls) == ([], [], 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountTrigger.of(0), "count of a CountTrigger is 0; it must be a whole number from 1"),
        (lambda: ContinuousEventTimeTrigger.of(-1), "interval_ms of a ContinuousEventTimeTrigger is -1; it must be"),
        (lambda: ContinuousProcessingTimeTrigger.of(1.5), "interval_ms of a ContinuousProcessingTimeTrigger is 1.5"),
        (lambda: PurgingTrigger.of(CountTrigger), "PurgingTrigger takes a trigger, as in PurgingTrigger.of"),
    ],
)
def test_impossible_triggers_are_refused(make: Any, message: str) -> None:
    """Numbers that give no trigger are errors of the job's author."""
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_which_triggers_merge() -> None:
    """A purging trigger merges if the inner one does; the base class does not."""
    merging = [EventTimeTrigger(), ProcessingTimeTrigger(), CountTrigger.of(1), ContinuousEventTimeTrigger.of(1)]
    assert all(trigger.can_merge() and PurgingTrigger.of(trigger).can_merge() for trigger in merging)
    assert ContinuousProcessingTimeTrigger.of(1).can_merge()
    assert not NeverTrigger().can_merge()
    assert not PurgingTrigger.of(NeverTrigger()).can_merge()
    assert PurgingTrigger.of(CountTrigger.of(1)).spec() == "CountTrigger"
