"""Event-time windows: firing, lateness, cleanup, restore; and all of it against a naive model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, JobChangedError, UserFunctionError
from operators.basic import AggregateFunction, aggregates
from operators.windows import TimeWindow, TumblingEventTimeWindows, WindowOperator
from tests.operators.harness import Harness
from tests.operators.keyed_cluster import KeyedCluster
from tests.operators.windows.models import NaiveWindows, Record, assert_agreement, first, steps

pytestmark = pytest.mark.usefixtures("few_records")

TENS = TumblingEventTimeWindows.of(10)


def total() -> AggregateFunction:
    return aggregates.total(lambda record: record[1])


def window_harness(operator: WindowOperator, **options: Any) -> Harness:
    return Harness(operator, key=first, **options)


def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    """The result comes at watermark end - 1, not before, and only once, ahead of the watermark."""
    harness = window_harness(WindowOperator(TENS, total()))
    harness.process([("a", 1), ("b", 2), ("a", 4)], [0, 9, 5])

    harness.watermark(8)
    assert harness.take() == [("watermark", 8)]
    harness.watermark(9)
    assert harness.take() == [Batch([("a", 0, 10, 5), ("b", 0, 10, 2)], [9, 9]), ("watermark", 9)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take() == [("watermark", MAX_TIMESTAMP_MS)]


def test_results_are_ordered_by_window_and_key() -> None:
    """Results of one watermark are ordered by window end and key, in whatever order the records came."""
    harness = window_harness(WindowOperator(TENS, total()))
    harness.process([("c", 1), ("a", 2), ("b", 3), ("a", 4)], [25, 15, 5, 5])

    harness.watermark(100)

    assert harness.take_values() == [("a", 0, 10, 4), ("b", 0, 10, 3), ("a", 10, 20, 2), ("c", 20, 30, 1)]


def test_state_is_gone_after_cleanup() -> None:
    """No contents and no timers remain of a window that cannot change any more."""
    harness = window_harness(WindowOperator(TENS, total(), allowed_lateness_ms=5))
    harness.process([("a", 1)], [3])

    harness.watermark(13)
    assert harness.context.keyed.num_entries() == 1
    harness.watermark(14)

    assert harness.context.keyed.num_entries() == 0
    assert harness.context.keyed.timer_service("window-timers").event_time.next_time() is None


def test_late_records_are_dropped_and_counted() -> None:
    """Without allowed lateness a record of a window that has fired is dropped."""
    harness = window_harness(WindowOperator(TENS, total()))
    harness.watermark(9)
    harness.take()

    harness.process([("a", 1), ("a", 2), ("b", 3)], [9, 10, 0])
    harness.watermark(19)

    assert harness.take_values() == [("a", 10, 20, 2)]
    assert harness.counter("numLateRecordsDropped") == 2


def test_late_records_go_to_the_side_output() -> None:
    """With a tag, late records go there with their timestamps, and are not counted as dropped."""
    harness = window_harness(WindowOperator(TENS, total(), late_tag="late"))
    harness.watermark(9)
    harness.take()

    harness.process([("a", 1), ("a", 2)], [9, 10])

    assert harness.take() == [("late", Batch([("a", 1)], [9]))]
    assert harness.counter("numLateRecordsDropped") == 0


def test_a_record_within_the_allowed_lateness_fires_its_window_again_at_once() -> None:
    """Each such record gives a new result with everything so far; at the limit the window is gone."""
    harness = window_harness(WindowOperator(TENS, total(), allowed_lateness_ms=10))
    harness.process([("a", 1)], [0])
    harness.watermark(9)
    harness.take()

    harness.process([("a", 10), ("a", 100), ("b", 5)], [1, 2, 3])
    assert harness.take_stamped() == [(("a", 0, 10, 11), 9), (("a", 0, 10, 111), 9), (("b", 0, 10, 5), 9)]
    harness.watermark(19)
    harness.process([("a", 7)], [4])

    assert harness.take_values() == []
    assert harness.counter("numLateRecordsDropped") == 1


def test_window_and_process_functions() -> None:
    """A window function makes one record per window, a process function any number of the whole contents."""
    one = WindowOperator(TENS, total(), lambda key, window, result: f"{key}{window.start}-{window.end}={result}")
    many = WindowOperator(TENS, None, process_function=lambda key, window, records: [key, window, records])
    reducing = WindowOperator(TENS, max)
    expected: list[list[Any]] = [["a0-10=3"], ["a", TimeWindow(0, 10), [("a", 1), ("a", 2)]], [("a", 0, 10, ("a", 2))]]

    for operator, records in zip((one, many, reducing), expected, strict=True):
        harness = window_harness(operator)
        harness.process([("a", 1), ("a", 2)], [5, 4])
        harness.watermark(MAX_TIMESTAMP_MS)

        assert harness.take_stamped() == [(record, 9) for record in records]


def test_a_result_that_is_none_is_a_result() -> None:
    """The mean of nothing is None, and a window with such a result fires like any other."""
    harness = window_harness(WindowOperator(TENS, aggregates.mean(lambda record: None)))
    harness.process([("a", 1)], [5])

    harness.watermark(9)

    assert harness.take_values() == [("a", 0, 10, None)]


def _fail(*_: Any) -> Any:
    raise ArithmeticError("no")


def _fail_on_3(acc: int, record: Record) -> int:
    return acc + 1 if record[1] != 3 else _fail()


@pytest.mark.parametrize(
    ("operator", "what", "record"),
    [
        (WindowOperator(TENS, AggregateFunction(int, _fail_on_3, int)), "aggregate function", ("a", 3)),
        (WindowOperator(TENS, _fail), "reduce function", ("a", 2)),
        (
            WindowOperator(TENS, AggregateFunction(int, lambda acc, _: acc + 1, _fail)),
            "aggregate function",
            {"key": "a", "window": TimeWindow(0, 10)},
        ),
        (
            WindowOperator(TENS, total(), _fail),
            "window function",
            {"key": "a", "window": TimeWindow(0, 10), "result": 6},
        ),
    ],
)
def test_failing_functions_name_the_record_or_window(operator: WindowOperator, what: str, record: object) -> None:
    """Whichever of the user's functions fails, the error says which and on what."""
    harness = window_harness(operator)

    def run() -> None:
        harness.process([("a", 1), ("a", 2), ("a", 3)], [1, 1, 1])
        harness.watermark(9)

    with pytest.raises(UserFunctionError, match=f"^{what} of operator 'op' raised ArithmeticError: no") as caught:
        run()

    assert caught.value.record == record


def test_records_without_timestamps_are_refused() -> None:
    """Windows need event time, and the error says where to get it from."""
    harness = window_harness(WindowOperator(TENS, total()))

    with pytest.raises(ConfigurationError, match="its records have no timestamps"):
        harness.process([("a", 1)])


def test_none_is_refused() -> None:
    """None would clear the window's state, so it is refused before."""
    harness = Harness(WindowOperator(TENS, aggregates.count()), key=lambda value: "k")

    with pytest.raises(UserFunctionError, match="None cannot be reduced, aggregated or put into a window"):
        harness.process([1, None], [1, 2])


def test_lateness_is_decided_by_the_restored_watermark() -> None:
    """A record that was late before a failure is late after it: the window that fired does not fire again."""
    harness = window_harness(WindowOperator(TENS, total()))
    harness.process([("a", 1)], [5])
    harness.watermark(9)
    checkpoint = harness.snapshot(1)

    restored = window_harness(WindowOperator(TENS, total()), restored=checkpoint)
    restored.process([("a", 7)], [6])
    restored.watermark(MIN_TIMESTAMP_MS)
    restored.watermark(MAX_TIMESTAMP_MS)

    assert restored.take() == [("watermark", 9), ("watermark", MAX_TIMESTAMP_MS)]
    assert restored.counter("numLateRecordsDropped") == 1


@pytest.mark.parametrize("lateness_ms", [0, 5, 50])
def test_allowed_lateness_may_change_over_a_restore(lateness_ms: int) -> None:
    """Windows of the checkpoint fire once and are forgotten, whatever lateness the job allows now."""
    harness = window_harness(WindowOperator(TENS, total(), allowed_lateness_ms=20))
    harness.process([("fired", 1), ("open", 1)], [5, 15])
    harness.watermark(9)

    restored = window_harness(
        WindowOperator(TENS, total(), allowed_lateness_ms=lateness_ms), restored=harness.snapshot(1)
    )
    restored.watermark(MAX_TIMESTAMP_MS)

    assert restored.take_values() == [("open", 10, 20, 1)]
    assert restored.context.keyed.num_entries() == 0


def test_other_windows_are_a_changed_job() -> None:
    """A checkpoint with windows of another size or offset is refused, for its windows would never fire."""
    checkpoint = window_harness(WindowOperator(TENS, total())).snapshot(1)

    for other in (TumblingEventTimeWindows.of(20), TumblingEventTimeWindows.of(10, 5)):
        with pytest.raises(JobChangedError, match=r"its checkpoint has windows of 10 ms \(offset 0 ms\)"):
            window_harness(WindowOperator(other, total()), restored=checkpoint)


def _summary() -> AggregateFunction:
    def second(record: Record) -> int:
        return record[1]

    return aggregates.combined(n=aggregates.count(), sum=aggregates.total(second), max=aggregates.maximum(second))


@given(steps("abcdefgh", least_value=-100), st.integers(1, 30), st.integers(0, 40), st.data())
def test_windows_agree_with_the_naive_model(
    steps: list[tuple[str, Any]], size_ms: int, lateness_ms: int, data: st.DataObject
) -> None:
    """Random records, watermarks and restarts at random parallelism: same results, timestamps and drops, step by
    step."""
    offset_ms = data.draw(st.integers(-size_ms + 1, size_ms - 1))
    assigner = TumblingEventTimeWindows.of(size_ms, offset_ms)
    model = NaiveWindows(size_ms, lambda stamp: [stamp - (stamp - offset_ms) % size_ms], lateness_ms)
    windows = KeyedCluster(lambda: WindowOperator(assigner, _summary(), allowed_lateness_ms=lateness_ms), first)

    assert_agreement(
        windows, model, steps, lambda values: {"n": len(values), "sum": sum(values), "max": max(values)}
    )


@given(st.permutations([("a", n) for n in range(8)]), st.lists(st.integers(1, 8), max_size=4))
def test_results_do_not_depend_on_the_order_of_arrival(records: list[Record], cuts: list[int]) -> None:
    """Ready-made aggregates give the same result for every order of the records and every cut into batches."""
    harness = window_harness(WindowOperator(TENS, _summary()))
    for size in [*cuts, len(records)]:
        part, records = records[:size], records[size:]
        if part:
            harness.process(part, [record[1] for record in part])

    harness.watermark(9)

    assert harness.take_values() == [("a", 0, 10, {"n": 8, "sum": 28, "max": 7})]


def test_two_functions_are_refused() -> None:
    """window_function and process_function are alternatives."""
    fn: Callable[..., Any] = _fail
    with pytest.raises(ConfigurationError, match="either a window_function or a process_function"):
        WindowOperator(TENS, total(), fn, process_function=fn)
    with pytest.raises(ConfigurationError, match="allowed_lateness_ms is -1; it must be a whole number from 0"):
        WindowOperator(TENS, total(), allowed_lateness_ms=-1)
    with pytest.raises(ConfigurationError, match="a window takes an AggregateFunction"):
        window_harness(WindowOperator(TENS, 5))  # type: ignore[arg-type]
