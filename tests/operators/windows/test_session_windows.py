"""Session windows: merging, the states of triggers and contents, lateness, restore; and a comparison by brute force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from operators.basic import AggregateFunction, aggregates
from operators.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggeredWindowOperator,
    TumblingEventTimeWindows,
)
from operators.windows.merging import Merge, MergingWindows
from tests.operators.harness import START_NS, Harness
from tests.operators.keyed_cluster import KeyedCluster
from tests.operators.windows.models import NaiveSessions, assert_agreement, first, sorted_values, steps

TEN_MS = EventTimeSessionWindows.with_gap(10)
START_MS = START_NS // 1_000_000


def sums(**options: Any) -> TriggeredWindowOperator:
    aggregate = aggregates.total(lambda record: record[1])
    return TriggeredWindowOperator(options.pop("assigner", TEN_MS), aggregate, **options)


def timers_of(harness: Harness) -> tuple[int, int]:
    service = harness.context.keyed.timer_service("window-timers")
    return len(service.event_time), len(service.processing_time)


# --- the set of sessions of a key -----------------------------------------------------------------------------------


def add(sessions: MergingWindows, window: TimeWindow) -> Merge:
    merge = sessions.plan(window)
    sessions.apply(merge)
    sessions.validate()
    return merge


def test_the_state_window_is_that_of_the_first_session() -> None:
    """Contents stay where the earliest of the merged sessions had them; those of the others are moved there."""
    sessions = MergingWindows()
    assert add(sessions, TimeWindow(20, 30)) == Merge(TimeWindow(20, 30), TimeWindow(20, 30))
    assert add(sessions, TimeWindow(0, 10)) == Merge(TimeWindow(0, 10), TimeWindow(0, 10))
    assert add(sessions, TimeWindow(2, 6)) == Merge(TimeWindow(0, 10), TimeWindow(0, 10))
    grown = Merge(TimeWindow(0, 14), TimeWindow(0, 10), (TimeWindow(0, 10),))
    assert add(sessions, TimeWindow(10, 14)) == grown
    both = Merge(TimeWindow(0, 30), TimeWindow(0, 10), (TimeWindow(0, 14), TimeWindow(20, 30)), (TimeWindow(20, 30),))
    assert add(sessions, TimeWindow(14, 20)) == both
    assert sessions.to_stored() == [(0, 30, 0, 10)]
    assert sessions.state_window(TimeWindow(0, 30)) == TimeWindow(0, 10)
    assert sessions.state_window(TimeWindow(0, 14)) is None


def test_planning_changes_nothing() -> None:
    """Only apply changes the set; the stored sessions give the same set again."""
    sessions = MergingWindows([(0, 10, 3, 4)])
    before = sessions.fingerprint()
    sessions.plan(TimeWindow(5, 20))

    assert sessions.fingerprint() == before == MergingWindows(sessions.to_stored()).fingerprint()
    sessions.retire(TimeWindow(0, 10))
    assert sessions.to_stored() == []


@pytest.mark.parametrize("stored", [[(0, 10, 0, 10), (10, 12, 10, 12)], [(0, 10, 0, 10), (20, 30, 0, 10)]])
def test_the_invariant_is_checked(stored: list[Any]) -> None:
    """Sessions that touch, or two sessions with one state window, are a bug."""
    with pytest.raises(AssertionError):
        MergingWindows(stored).validate()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=25))
def test_sessions_are_the_connected_parts_of_all_windows(windows: list[tuple[int, int]]) -> None:
    """Whatever the order, each session covers windows that touch and holds exactly their contents."""
    sessions = MergingWindows()
    contents: dict[TimeWindow, list[int]] = {}
    for number, (start, size) in enumerate(windows):
        merge = add(sessions, TimeWindow(start, start + size))
        moved = [one for source in merge.moved for one in contents.pop(source)]
        contents[merge.state_window] = [*contents.get(merge.state_window, []), *moved, number]

    covered = sorted({instant for start, size in windows for instant in range(start * 2, (start + size) * 2 + 1)})
    parts: list[list[int]] = []
    for instant in covered:
        if parts and parts[-1][-1] == instant - 1:
            parts[-1].append(instant)
        else:
            parts.append([instant])
    expected = {
        (part[0] // 2, part[-1] // 2): sorted(
            number for number, (start, _) in enumerate(windows) if part[0] <= start * 2 <= part[-1]
        )
        for part in parts
    }
    assert {
        (start, end): sorted(contents[TimeWindow(state_start, state_end)])
        for start, end, state_start, state_end in sessions.to_stored()
    } == expected
    assert len(contents) == len(expected)


# --- the operator ---------------------------------------------------------------------------------------------------


def test_a_session_ends_a_gap_after_its_last_record() -> None:
    """Records that come closer than the gap, or exactly at it, belong together; the result has the session's end."""
    harness = Harness(sums(), key=first)
    harness.process([("a", 1), ("b", 2), ("a", 4), ("a", 8), ("a", 16)], [0, 3, 10, 17, 28])

    harness.watermark(26)
    assert harness.take() == [Batch([("b", 3, 13, 2), ("a", 0, 27, 13)], [12, 26]), ("watermark", 26)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take_values() == [("a", 28, 38, 16)]
    assert (harness.context.keyed.num_entries(), timers_of(harness)) == (0, (0, 0))


def test_a_record_between_two_sessions_makes_them_one() -> None:
    """Their contents are added up, in whichever namespaces they are, and only the new session has a timer."""
    harness = Harness(sums(), key=first)
    harness.process([("a", 1), ("a", 2)], [0, 18])
    assert timers_of(harness) == (2, 0)
    harness.process([("a", 4)], [9])
    assert timers_of(harness) == (1, 0)

    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [("a", 0, 28, 7)]


def test_merged_sessions_leave_no_timers_behind() -> None:
    """Timers of the trigger and of the cleanup are deleted, in both times: the new session has its own."""
    for assigner, trigger, expected in (
        (TEN_MS, None, (2, 0)),
        (TEN_MS, CountTrigger.of(9), (1, 0)),
        (ProcessingTimeSessionWindows.with_gap(10), None, (0, 1)),
        (ProcessingTimeSessionWindows.with_gap(10), CountTrigger.of(9), (0, 1)),
    ):
        late: dict[str, Any] = {"allowed_lateness_ms": 5} if assigner is TEN_MS else {}
        harness = Harness(sums(assigner=assigner, trigger=trigger, **late), key=first)
        for stamp in (0, 9, 18):
            harness.process([("a", 1)], [stamp])
            harness.advance_ms(3)
        assert timers_of(harness) == expected


class RecordedTimers:
    """The part of a merge context that the plain triggers use."""

    current_watermark_ms = 50

    def __init__(self) -> None:
        self.timers: list[tuple[str, int]] = []

    def processing_time_ms(self) -> int:
        return 70

    def register_event_time_timer(self, time_ms: int) -> None:
        self.timers.append(("event", time_ms))

    def register_processing_time_timer(self, time_ms: int) -> None:
        self.timers.append(("processing", time_ms))


def test_plain_triggers_set_a_timer_for_a_merged_window_that_has_not_ended() -> None:
    """The timer is at its end, in the time of the trigger; a window that has ended needs none."""
    ctx: Any = RecordedTimers()
    for end in (51, 52, 71, 72):
        EventTimeTrigger().on_merge(TimeWindow(0, end), ctx)
        ProcessingTimeTrigger().on_merge(TimeWindow(0, end), ctx)

    assert ctx.timers == [("event", 51), ("event", 70), ("event", 71), ("processing", 71)]


def test_a_late_record_joins_a_session_that_is_still_open() -> None:
    """Its own window is past, but the session is not, and the session decides."""
    harness = Harness(sums(), key=first)
    harness.process([("a", 1)], [10])
    harness.watermark(15)
    harness.take()
    harness.process([("a", 2), ("b", 4)], [2, 2])

    assert harness.counter("numLateRecordsDropped") == 1
    harness.watermark(19)
    assert harness.take_values() == [("a", 2, 20, 3)]


def test_a_late_record_within_the_lateness_fires_the_session_again() -> None:
    """A session that has fired and is kept fires for each late record, also when that makes it longer."""
    harness = Harness(sums(allowed_lateness_ms=10, late_tag="late"), key=first)
    harness.process([("a", 1)], [0])
    harness.watermark(12)
    assert harness.take_values() == [("a", 0, 10, 1)]

    harness.process([("a", 2), ("a", 4), ("a", 8)], [1, 2, 8])
    assert harness.take_stamped() == [(("a", 0, 11, 3), 10), (("a", 0, 12, 7), 11)]
    harness.watermark(17)
    assert harness.take_values() == [("a", 0, 18, 15)]
    harness.watermark(27)
    harness.process([("a", 16)], [8])
    assert harness.take() == [("watermark", 27), ("late", Batch([("a", 16)], [8]))]
    assert (harness.context.keyed.num_entries(), timers_of(harness)) == (0, (0, 0))


def test_each_record_may_have_a_gap_of_its_own() -> None:
    """The record gives a dynamic gap, even one that ends long after a session in which it begins."""
    harness = Harness(sums(assigner=EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1])), key=first)
    harness.process([("a", 5), ("a", 50), ("a", 2)], [0, 3, 10])

    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [("a", 0, 53, 57)]


def test_a_gap_that_is_none_names_the_record() -> None:
    """The function of the gap is the user's, so the error names its record."""
    dynamic = EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1])
    with pytest.raises(UserFunctionError, match="window assigner of operator 'op' raised ValueError") as caught:
        Harness(sums(assigner=dynamic), key=first).process([("a", 0)], [1])

    assert caught.value.record == ("a", 0)


def test_processing_time_sessions_end_by_the_clock() -> None:
    """A gap of the virtual clock without a record ends the session; records need no timestamps."""
    harness = Harness(sums(assigner=ProcessingTimeSessionWindows.with_gap(10)), key=first)
    harness.process([("a", 1)])
    harness.advance_ms(6)
    harness.process([("a", 2)])
    harness.advance_ms(9)
    harness.process([("a", 4)])
    harness.advance_ms(9)
    assert harness.take_values() == []
    harness.advance_ms(1)

    assert harness.take() == [Batch([("a", START_MS, START_MS + 25, 7)], [START_MS + 24])]
    assert (harness.context.keyed.num_entries(), timers_of(harness)) == (0, (0, 0))


def test_processing_time_sessions_go_on_after_a_restore() -> None:
    """The timer of a restored session is armed at once, and a record may still prolong it."""
    operator = lambda: sums(assigner=ProcessingTimeSessionWindows.with_gap(10))  # noqa: E731
    harness = Harness(operator(), key=first)
    harness.process([("a", 1), ("b", 2)])
    harness.advance_ms(5)

    restored = Harness(operator(), key=first, restored=harness.snapshot(1), now_ns=harness.context.now_ns)
    restored.process([("a", 4)])
    restored.advance_ms(5)
    assert restored.take_values() == [("b", START_MS, START_MS + 10, 2)]
    restored.advance_ms(5)
    assert restored.take_values() == [("a", START_MS, START_MS + 15, 5)]


def test_counts_add_up_when_sessions_merge() -> None:
    """A count trigger's state moves with the windows: the third record fires, wherever the other two were."""
    harness = Harness(sums(trigger=CountTrigger.of(3)), key=first)
    harness.process([("a", 1), ("a", 2)], [0, 18])
    assert harness.take_values() == []
    harness.process([("a", 4)], [9])
    assert harness.take_values() == [("a", 0, 28, 7)]
    harness.process([("a", 8), ("a", 16)], [9, 9])
    assert harness.take_values() == []
    harness.process([("a", 32)], [9])

    assert harness.take_values() == [("a", 0, 28, 63)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert (harness.take_values(), harness.context.keyed.num_entries()) == ([], 0)


def test_a_purged_session_stays_a_session() -> None:
    """After firing and purging it holds nothing, but a further record within it still belongs to it."""
    harness = Harness(sums(trigger=PurgingTrigger.of(CountTrigger.of(2))), key=first)
    harness.process([("a", 1), ("a", 2), ("a", 4)], [0, 5, 12])
    assert harness.take_values() == [("a", 0, 15, 3)]
    harness.process([("a", 8)], [20])

    assert harness.take_values() == [("a", 0, 30, 12)]


def test_continuous_triggers_follow_a_merged_session() -> None:
    """The earliest of the next times goes on, in event time and by the clock, and old timers fire nothing."""
    by_watermark = Harness(sums(trigger=ContinuousEventTimeTrigger.of(5)), key=first)
    by_watermark.process([("a", 1), ("a", 2), ("a", 4)], [1, 17, 9])
    for watermark_ms, expected in ((4, []), (5, [("a", 1, 27, 7)]), (9, []), (10, [("a", 1, 27, 7)])):
        by_watermark.watermark(watermark_ms)
        assert by_watermark.take_values() == expected
    by_watermark.watermark(MAX_TIMESTAMP_MS)
    assert by_watermark.take_values() == [("a", 1, 27, 7)] * 4
    assert (by_watermark.context.keyed.num_entries(), timers_of(by_watermark)) == (0, (0, 0))

    by_clock = Harness(sums(trigger=ContinuousProcessingTimeTrigger.of(5)), key=first)
    by_clock.process([("a", 1)], [1])
    by_clock.advance_ms(7)
    by_clock.process([("a", 2)], [17])
    by_clock.process([("a", 4)], [9])
    assert by_clock.take_values() == [("a", 1, 11, 1)]
    by_clock.advance_ms(4)
    assert by_clock.take_values() == [("a", 1, 27, 7)]
    by_clock.watermark(MAX_TIMESTAMP_MS)
    assert (by_clock.take_values(), by_clock.context.keyed.num_entries(), timers_of(by_clock)) == ([], 0, (0, 0))


def test_evictors_see_the_records_of_merged_sessions() -> None:
    """All records of the session, with their timestamps, are there to choose from."""
    operator = TriggeredWindowOperator(
        TEN_MS, None, evictor=CountEvictor.of(2), process_function=lambda key, window, values: [sorted(values)]
    )
    harness = Harness(operator, key=first)
    harness.process([("a", 1), ("a", 2), ("a", 4)], [0, 18, 9])
    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [[("a", 2), ("a", 4)]]


def test_a_trigger_that_cannot_merge_is_refused() -> None:
    """The operator refuses it too, whichever caller builds it."""
    with pytest.raises(ConfigurationError, match="EventTimeSessionWindows merges windows, which NeverTrigger does not"):
        sums(trigger=NeverTrigger())


class MergesValues(Trigger):
    """Asks for a value state to be merged, which is not possible."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Any, ctx: Any) -> Any:
        return CountTrigger.of(100).on_element(value, timestamp_ms, window, ctx)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_state(ctx.value_state("x"))


def test_values_cannot_be_merged() -> None:
    """The error says which states can be merged."""
    harness = Harness(sums(trigger=MergesValues()), key=first)
    with pytest.raises(UserFunctionError, match="merge_state takes a list or reducing state"):
        harness.process([("a", 1), ("a", 2)], [0, 5])


def test_a_trigger_that_says_it_merges_must() -> None:
    """The base class cannot merge."""

    class Forgetful(MergesValues):
        on_merge = Trigger.on_merge

    with pytest.raises(UserFunctionError, match=r"Forgetful can_merge, but does not define on_merge\(window, ctx\)"):
        Harness(sums(trigger=Forgetful()), key=first).process([("a", 1), ("a", 2)], [0, 5])


def test_failing_merge_functions_name_the_session() -> None:
    """The aggregate's merge function is the user's."""

    def fail(a: int, b: int) -> int:
        raise ArithmeticError("no")

    aggregate = AggregateFunction(int, lambda acc, record: acc + record[1], int, fail)
    harness = Harness(TriggeredWindowOperator(TEN_MS, aggregate), key=first)
    with pytest.raises(UserFunctionError, match="aggregate function of operator 'op' raised Arith") as caught:
        harness.process([("a", 1), ("a", 2), ("a", 4)], [0, 18, 9])

    assert caught.value.record == {"key": "a", "window": TimeWindow(0, 28)}


@pytest.mark.parametrize(
    "other",
    [EventTimeSessionWindows.with_gap(11), ProcessingTimeSessionWindows.with_gap(10), TumblingEventTimeWindows(9)],
)
def test_other_windows_are_a_changed_job(other: Any) -> None:
    """A checkpoint with another gap or other windows is refused; one with another trigger too."""
    checkpoint = Harness(sums(), key=first).snapshot(1)

    with pytest.raises(
        JobChangedError, match=r"its checkpoint has EventTimeSessionWindows\(gap_ms=10\) with EventTimeTrigger\n"
    ):
        Harness(sums(assigner=other), key=first, restored=checkpoint)
    with pytest.raises(JobChangedError, match=r"has EventTimeSessionWindows\(gap_ms=10\) with CountTrigger, its"):
        Harness(sums(trigger=CountTrigger.of(2)), key=first, restored=checkpoint)


@pytest.mark.parametrize("lateness_ms", [0, 3, 50])
def test_allowed_lateness_may_change_over_a_restore(lateness_ms: int) -> None:
    """Sessions of the checkpoint are kept for the present lateness, never fire twice, and leave no state."""
    harness = Harness(sums(allowed_lateness_ms=20), key=first)
    harness.process([("fired", 1), ("open", 1)], [0, 15])
    harness.watermark(14)
    assert harness.take_values() == [("fired", 0, 10, 1)]

    restored = Harness(sums(allowed_lateness_ms=lateness_ms), key=first, restored=harness.snapshot(1))
    restored.process([("fired", 2)], [1])
    assert restored.take_values() == ([("fired", 0, 11, 3)] if lateness_ms == 50 else [])
    restored.watermark(MAX_TIMESTAMP_MS)

    assert restored.take_values() == [("open", 15, 25, 1)]
    assert (restored.context.keyed.num_entries(), timers_of(restored)) == (0, (0, 0))


@given(steps(), st.integers(1, 25), st.booleans(), st.integers(0, 40))
def test_sessions_agree_with_the_naive_model(
    steps: list[tuple[str, Any]], gap_ms: int, dynamic: bool, lateness_ms: int
) -> None:
    """Random records, watermarks and restarts at random parallelism: same results, timestamps and drops, step by
    step."""
    model = NaiveSessions((lambda value: value * 3) if dynamic else (lambda value: gap_ms), lateness_ms)
    assigner = EventTimeSessionWindows.with_gap(gap_ms)
    if dynamic:
        assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1] * 3)
    windows = KeyedCluster(
        lambda: TriggeredWindowOperator(
            assigner, None, process_function=sorted_values, allowed_lateness_ms=lateness_ms
        ),
        first,
    )

    assert_agreement(windows, model, steps)
