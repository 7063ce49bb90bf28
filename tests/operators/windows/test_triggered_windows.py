"""The window operator for triggers: functions, evictors, errors, restore; and a comparison with the one by batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from operators.basic import AggregateFunction, aggregates
from operators.windows import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TriggeredWindowOperator,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowContext,
    WindowOperator,
)
from tests.operators.harness import START_NS, Harness
from tests.operators.keyed_cluster import KeyedCluster
from tests.operators.windows.models import first, sorted_values, steps

TENS = TumblingEventTimeWindows.of(10)


def total() -> AggregateFunction:
    return aggregates.total(lambda record: record[1])


def triggered(aggregate: Any = None, *window_function: Any, **options: Any) -> TriggeredWindowOperator:
    return TriggeredWindowOperator(options.pop("assigner", TENS), aggregate, *window_function, **options)


@given(steps(), st.integers(1, 30), st.integers(0, 40))
def test_both_operators_give_the_same(steps: list[tuple[str, Any]], size_ms: int, lateness_ms: int) -> None:
    """Tumbling event-time windows by record are those by batch, in results, timestamps, drops and restarts."""
    clusters = [
        KeyedCluster(
            lambda operator=operator: operator(
                TumblingEventTimeWindows.of(size_ms),
                None,
                process_function=sorted_values,
                allowed_lateness_ms=lateness_ms,
                late_tag="late",
            ),
            first,
        )
        for operator in (WindowOperator, TriggeredWindowOperator)
    ]
    for step, argument in [*steps, ("watermark", MAX_TIMESTAMP_MS)]:
        for cluster in clusters:
            {"records": cluster.process, "watermark": cluster.watermark, "restart": cluster.restart}[step](argument)
        by_batch, by_record = (cluster.take_stamped() for cluster in clusters)
        assert by_record == by_batch


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (triggered(total()), [("a", 0, 10, 3)]),
        (triggered(max), [("a", 0, 10, ("a", 2))]),
        (triggered(), [("a", 0, 10, [("a", 1), ("a", 2)])]),
        (triggered(total(), lambda key, window, result: f"{key}{window.start}={result}"), ["a0=3"]),
        (triggered(total(), process_function=lambda key, window, result: [key, result]), ["a", 3]),
        (triggered(process_function=lambda key, window, records: None), []),
        (triggered(aggregates.mean(lambda record: None)), [("a", 0, 10, None)]),
    ],
)
def test_what_comes_out_of_a_window(operator: TriggeredWindowOperator, expected: list[Any]) -> None:
    """An aggregate, a reduction or all records, directly or through a function; None is a result too."""
    harness = Harness(operator, key=first)
    harness.process([("a", 1), ("a", 2)], [5, 4])
    harness.watermark(9)

    assert harness.take_stamped() == [(value, 9) for value in expected]


class Running(ProcessWindowFunction):
    """Emits a window's total, how often it has fired, and the total of all firings of the key."""

    def open(self, ctx: WindowContext) -> None:
        self.grand_total = ctx.global_state.value_state("total", 0)
        self.opened = True

    def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
        fired = ctx.window_state.value_state("total", 0)
        fired.update(fired.get() + 1)
        self.grand_total.update(self.grand_total.get() + sum(elements))
        ctx.side_output("when", (ctx.window, ctx.current_watermark_ms, ctx.processing_time_ms()))
        return [(key, list(elements), fired.get(), self.grand_total.get())]

    def clear(self, ctx: WindowContext) -> None:
        ctx.window_state.value_state("total").clear()
        ctx.side_output("gone", ctx.window)


def test_a_process_window_function_has_state_and_side_outputs() -> None:
    """State per window is cleared with the window, state per key stays; both are restored; elements is the result."""
    operator = triggered(total(), process_function=Running(), allowed_lateness_ms=10)
    harness = Harness(operator, key=first)
    harness.process([("a", 1), ("a", 2), ("a", 4)], [1, 2, 15])
    harness.watermark(9)
    now_ms = START_NS // 1_000_000
    assert harness.take() == [
        ("when", Batch([(TimeWindow(0, 10), 9, now_ms)], [9])),
        Batch([("a", [3], 1, 3)], [9]),
        ("watermark", 9),
    ]

    again = triggered(total(), process_function=Running, allowed_lateness_ms=10)
    restored = Harness(again, key=first, restored=harness.snapshot(1))
    restored.process([("a", 8)], [3])
    assert [one for one in restored.take() if isinstance(one, Batch)] == [Batch([("a", [11], 2, 14)], [9])]
    restored.watermark(MAX_TIMESTAMP_MS)

    assert restored.context.keyed.num_entries() == 1
    assert restored.context.keyed.num_entries("function.total") == 1


def test_clear_may_use_side_outputs() -> None:
    """A record that a function emits while it clears its window has the window's timestamp, and is not held back."""
    harness = Harness(triggered(total(), process_function=Running), key=first)
    harness.process([("a", 1)], [1])
    harness.watermark(9)

    gone = [event for event in harness.take() if isinstance(event, tuple) and event[0] == "gone"]
    assert gone == [("gone", Batch([TimeWindow(0, 10)], [9]))]


def test_every_subtask_has_a_copy_of_the_function() -> None:
    """The original object is not used."""
    function = Running()
    Harness(triggered(total(), process_function=function), key=first)

    assert not hasattr(function, "opened")


def test_all_elements_without_an_aggregate() -> None:
    """The function gets the records themselves; close calls its close; the base class names the missing method."""
    closed: list[str] = []

    class Listing(ProcessWindowFunction):
        def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
            return [(key, ctx.window, elements)]

        def close(self) -> None:
            closed.append("closed")

    harness = Harness(triggered(process_function=Listing), key=first)
    harness.process([("a", 1), ("a", 2)], [1, 2])
    harness.watermark(9)
    harness.close()
    assert harness.take_values() == [("a", TimeWindow(0, 10), [("a", 1), ("a", 2)])]
    assert closed == ["closed"]

    bases = ((ProcessWindowFunction, r"process\(key, ctx, ele"), (ProcessAllWindowFunction, r"process\(ctx"))
    for base, missing in bases:
        harness = Harness(triggered(process_function=base), key=first)
        harness.process([("a", 1)], [1])
        with pytest.raises(UserFunctionError, match=f"{base.__name__} does not define {missing}"):
            harness.watermark(9)


def test_a_function_for_all_windows_gets_no_key() -> None:
    """A ProcessAllWindowFunction is the same without the key, in all of its methods."""
    calls: list[str] = []

    class All(ProcessAllWindowFunction):
        def open(self, ctx: WindowContext) -> None:
            calls.append("open")

        def process(self, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[Any]:
            return [(ctx.window, elements)]

        def clear(self, ctx: WindowContext) -> None:
            calls.append("clear")

        def close(self) -> None:
            calls.append("close")

    harness = Harness(triggered(total(), process_function=All), key=first)
    harness.process([("a", 1)], [1])
    harness.watermark(9)
    harness.close()

    assert harness.take_values() == [(TimeWindow(0, 10), [1])]
    assert calls == ["open", "clear", "close"]
    Harness(triggered(process_function=ProcessAllWindowFunction), key=first).close()


def test_sessions_have_no_state_per_window() -> None:
    """It would belong to no single window once two are merged. State per key is available."""
    operator = triggered(total(), assigner=EventTimeSessionWindows.with_gap(5), process_function=Running)
    harness = Harness(operator, key=first)
    harness.process([("a", 1)], [1])
    with pytest.raises(UserFunctionError, match="sessions have no state per window"):
        harness.watermark(100)


# --- evictors -------------------------------------------------------------------------------------------------------


def evicting(evictor: Evictor, aggregate: Any = None, **options: Any) -> Harness:
    return Harness(triggered(aggregate, evictor=evictor, **options), key=first)


def test_count_evictor_keeps_the_last_records() -> None:
    """It evicts before the window is computed, or after it, for the next firing; evicted records do not come back."""
    before = evicting(CountEvictor.of(2), trigger=CountTrigger.of(1))
    before.process([("a", 1), ("a", 2), ("a", 3)], [1, 1, 1])
    assert before.take_values() == [
        ("a", 0, 10, [("a", 1)]),
        ("a", 0, 10, [("a", 1), ("a", 2)]),
        ("a", 0, 10, [("a", 2), ("a", 3)]),
    ]
    after = evicting(CountEvictor.of(1, evict_after=True), trigger=CountTrigger.of(2))
    after.process([("a", number) for number in range(4)], [1] * 4)
    assert after.take_values() == [
        ("a", 0, 10, [("a", 0), ("a", 1)]),
        ("a", 0, 10, [("a", 1), ("a", 2), ("a", 3)]),
    ]


def test_time_evictor_keeps_the_newest_records() -> None:
    """It keeps those less than the window older than the newest, in any order of arrival; without time, all."""
    harness = evicting(TimeEvictor.of(3), total())
    harness.process([("a", 1), ("a", 2), ("a", 4), ("a", 8)], [7, 3, 4, 5])
    harness.watermark(9)
    assert harness.take_values() == [("a", 0, 10, 9)]

    no_time = evicting(TimeEvictor.of(3), total(), assigner=GlobalWindows.create(), trigger=CountTrigger.of(2))
    no_time.process([("a", 1), ("a", 2)])
    assert no_time.take_values() == [("a", 3)]
    element = TimestampedValue("x", 5)
    assert TimeEvictor.of(3, evict_after=True).evict_before([element], TimeWindow(0, 1), None) == [element]  # type: ignore[arg-type]
    assert TimeEvictor.of(3).evict_before([], TimeWindow(0, 1), None) == []  # type: ignore[arg-type]


def test_evicted_records_are_gone_after_a_restore() -> None:
    """The state has the records that the evictor left, with timestamps."""
    harness = evicting(TimeEvictor.of(3), total(), trigger=CountTrigger.of(1))
    harness.process([("a", 1), ("a", 2)], [1, 5])
    operator = triggered(total(), evictor=TimeEvictor.of(100), trigger=CountTrigger.of(1))
    restored = Harness(operator, key=first, restored=harness.snapshot(1))
    restored.process([("a", 4)], [6])

    assert restored.take_values() == [("a", 0, 10, 6)]


def test_a_window_whose_records_were_all_evicted() -> None:
    """A reduction of no records does not exist; an aggregate of none, and an empty list, are results."""
    for aggregate, expected in ((max, []), (total(), [("a", 0, 10, 0)]), (None, [("a", 0, 10, [])])):
        harness = evicting(CountEvictor.of(0), aggregate)
        harness.process([("a", 1)], [1])
        harness.watermark(9)
        assert harness.take_values() == expected
        assert harness.context.keyed.num_entries() == 0


def test_a_reduction_over_what_is_left() -> None:
    """Reduce functions run over the records when the window fires."""
    harness = evicting(CountEvictor.of(2), lambda a, b: (a[0], a[1] + b[1]))
    harness.process([("a", 1), ("a", 2), ("a", 4)], [1, 2, 3])
    harness.watermark(9)

    assert harness.take_values() == [("a", 0, 10, ("a", 6))]


class Odd(Evictor):
    """Evicts odd values, and checks the clocks that it sees."""

    def evict_before(self, elements: list[TimestampedValue], window: Any, ctx: Any) -> list[TimestampedValue]:
        assert (ctx.current_watermark_ms, ctx.processing_time_ms()) == (9, START_NS // 1_000_000)
        return [element for element in elements if element.value[1] % 2 == 0]


def test_an_evictor_of_ones_own() -> None:
    """It sees values and timestamps, the window and the clocks; the base class evicts nothing."""
    harness = evicting(Odd(), total())
    harness.process([("a", 1), ("a", 2), ("a", 4)], [1, 2, 3])
    harness.watermark(9)
    assert harness.take_values() == [("a", 0, 10, 6)]

    plain = evicting(Evictor(), total())
    plain.process([("a", 1), ("a", 2)], [1, 2])
    plain.watermark(9)
    assert plain.take_values() == [("a", 0, 10, 3)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountEvictor.of(-1), "max_count of a CountEvictor is -1; it must be a whole number from 0"),
        (lambda: TimeEvictor.of(0), "window_ms of a TimeEvictor is 0; it must be a whole number from 1"),
        (lambda: triggered(allowed_lateness_ms=-1), "allowed_lateness_ms is -1; it must be a whole number from 0"),
        (lambda: triggered(None, max, process_function=max), "either a window_function or a process_function"),
    ],
)
def test_impossible_settings_are_refused(make: Any, message: str) -> None:
    """Impossible numbers and functions are errors of the job's author."""
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize("evictor", [None, CountEvictor.of(3)])
def test_what_is_no_aggregate_is_refused(evictor: Evictor | None) -> None:
    """It is refused with an evictor and without."""
    with pytest.raises(ConfigurationError, match="a window takes an AggregateFunction"):
        Harness(triggered(5, evictor=evictor), key=first)


# --- errors, time, restore ------------------------------------------------------------------------------------------


def _fail(*_: Any) -> Any:
    raise ArithmeticError("no")


class FailingTrigger(CountTrigger):
    on_event_time = _fail


class FailingClear(CountTrigger):
    clear = _fail


class FailingEvictor(Evictor):
    evict_before = _fail


@pytest.mark.parametrize(
    ("operator", "what", "record"),
    [
        (triggered(_fail), "reduce function", ("a", 2)),
        (triggered(AggregateFunction(int, _fail, int)), "aggregate function", ("a", 1)),
        (
            triggered(AggregateFunction(int, lambda acc, _: acc + 1, _fail)),
            "aggregate function",
            {"key": "a", "window": TimeWindow(0, 10)},
        ),
        (
            triggered(total(), _fail),
            "window function",
            {"key": "a", "window": TimeWindow(0, 10), "result": 3},
        ),
        (
            triggered(total(), trigger=FailingTrigger(9)),
            "trigger",
            {"key": "a", "window": TimeWindow(0, 10), "timer_ms": 9},
        ),
        (triggered(total(), trigger=FailingClear(9)), "trigger", {"key": "a", "window": TimeWindow(0, 10)}),
        (triggered(total(), evictor=FailingEvictor()), "evictor", {"key": "a", "window": TimeWindow(0, 10)}),
        (triggered(_fail, evictor=Evictor()), "reduce function", {"key": "a", "window": TimeWindow(0, 10)}),
    ],
)
def test_failing_functions_name_the_record_or_window(operator: Any, what: str, record: object) -> None:
    """Whichever of the user's functions fails, the error says which and on what."""
    harness = Harness(operator, key=first)

    def run() -> None:
        harness.process([("a", 1), ("a", 2)], [1, 1])
        harness.watermark(9)

    with pytest.raises(UserFunctionError, match=f"^{what} of operator 'op' raised ArithmeticError: no") as caught:
        run()

    assert caught.value.record == record


def test_records_without_timestamps_or_values_are_refused() -> None:
    """Event-time windows need event time, unless they are global; None is never stored in state."""
    with pytest.raises(ConfigurationError, match="its records have no timestamps"):
        Harness(triggered(total()), key=first).process([("a", 1)])
    with pytest.raises(UserFunctionError, match="None cannot be reduced, aggregated or put into a window"):
        Harness(triggered(), key=lambda value: "k").process([None], [1])


def test_late_records() -> None:
    """They are dropped and counted, or go to the side output with their timestamps, in one batch."""
    counted = Harness(triggered(total()), key=first)
    tagged = Harness(triggered(total(), late_tag="late"), key=first)
    for harness in (counted, tagged):
        harness.watermark(9)
        harness.take()
        harness.process([("a", 1), ("a", 2), ("b", 4)], [9, 10, 0])

    assert counted.counter("numLateRecordsDropped") == 2
    assert tagged.take() == [("late", Batch([("a", 1), ("b", 4)], [9, 0]))]
    assert tagged.counter("numLateRecordsDropped") == 0


def test_an_empty_batch_changes_nothing() -> None:
    """This holds even for windows that need timestamps."""
    harness = Harness(triggered(total()), key=first)
    harness.process([])

    assert harness.take() == []


def test_a_checkpoint_of_the_operator_by_batch_is_refused() -> None:
    """The windows are the same, but kept in another way, since a trigger was added under the same uid."""
    checkpoint = Harness(WindowOperator(TENS, total()), key=first).snapshot(1)

    with pytest.raises(JobChangedError, match=r"TumblingEventTimeWindows\(size_ms=10, offset_ms=0\) with CountTrig"):
        Harness(triggered(total(), trigger=CountTrigger.of(1)), key=first, restored=checkpoint)


def test_equal_state_has_equal_bytes() -> None:
    """A snapshot does not depend on the order in which windows and sessions were made."""
    files = []
    for order in ([0, 1, 2], [2, 0, 1]):
        harness = Harness(triggered(total(), assigner=EventTimeSessionWindows.with_gap(5)), key=first)
        harness.process([[("a", 1), ("b", 2), ("a", 4)][one] for one in order], [[1, 2, 30][one] for one in order])
        checkpoint = harness.snapshot(1)
        files.append((checkpoint.keyed, checkpoint.operator, harness.operator.fingerprint()))

    assert files[0] == files[1]


CLOCK_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("records"), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=5)
        ),
        st.tuples(st.just("wait"), st.integers(0, 25)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=25,
)


@given(CLOCK_STEPS, st.integers(1, 20), st.data())
def test_processing_time_windows_agree_with_a_dict(
    steps: list[tuple[str, Any]], size_ms: int, data: st.DataObject
) -> None:
    """Random records, pauses and restarts at random parallelism: a window comes out once the clock is past its end."""
    offset_ms = data.draw(st.integers(-size_ms + 1, size_ms - 1))
    assigner = TumblingProcessingTimeWindows.of(size_ms, offset_ms)
    cluster = KeyedCluster(lambda: triggered(assigner=assigner, process_function=sorted_values), first)
    now_ms = START_NS // 1_000_000
    contents: dict[tuple[str, int], list[int]] = {}

    for step, argument in [*steps, ("wait", 2 * size_ms)]:
        if step == "records":
            cluster.process([(record, 0) for record in argument])
            for key, value in argument:
                start = now_ms - (now_ms - offset_ms) % size_ms
                contents.setdefault((key, start), []).append(value)
        elif step == "wait":
            cluster.advance_ms(argument)
            now_ms += argument
        else:
            cluster.restart(argument)
        over = [one for one in contents if one[1] + size_ms <= now_ms]
        expected = [
            ((key, start, start + size_ms, sorted(contents.pop((key, start)))), start + size_ms - 1)
            for key, start in over
        ]
        assert cluster.take_stamped() == sorted(expected, key=repr)
    assert [harness.context.keyed.num_entries() for harness in cluster.subtasks] == [0] * len(cluster.subtasks)
