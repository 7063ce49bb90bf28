"""Keyed process functions: state, timers of both clocks, side outputs, restore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import UserFunctionError
from operators.basic import KeyedProcessContext, KeyedProcessFunction, KeyedProcessOperator
from state_backends.base import StateSchemaError
from tests.operators.harness import START_NS, Harness
from tests.operators.keyed_cluster import KeyedCluster

START_MS = START_NS // 1_000_000
Record = tuple[str, int]


def first(record: Any) -> Any:
    return record[0]


class CountUntilQuiet(KeyedProcessFunction):
    """Emits the count of a key once event time is 10 ms past its last record."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.count = ctx.value_state("count", 0)
        self.timer = ctx.value_state("timer")

    def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
        assert ctx.timestamp_ms is not None
        self.count.update(self.count.get() + 1)
        if self.timer.get() is not None:
            ctx.delete_event_time_timer(self.timer.get())
        self.timer.update(ctx.timestamp_ms + 10)
        ctx.register_event_time_timer(ctx.timestamp_ms + 10)

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        count = self.count.get()
        self.count.clear()
        self.timer.clear()
        return [(ctx.current_key, count)]


def test_timers_fire_before_the_watermark_is_forwarded() -> None:
    """The output of a timer has the timer's timestamp and comes before the watermark; deleted timers do not fire."""
    harness = Harness(KeyedProcessOperator(CountUntilQuiet()), key=first)
    harness.process([("b", 0), ("a", 0), ("b", 0)], [1, 2, 5])

    harness.watermark(11)
    assert harness.take() == [("watermark", 11)]
    harness.watermark(20)

    assert harness.take() == [Batch([("a", 1), ("b", 2)], [12, 15]), ("watermark", 20)]
    assert harness.context.keyed.num_entries() == 0


def test_timers_of_one_instant_fire_in_the_order_of_keys() -> None:
    """The order does not depend on who registered first."""
    harness = Harness(KeyedProcessOperator(CountUntilQuiet()), key=first)
    harness.process([("c", 0), ("a", 0), ("b", 0)], [1, 1, 1])

    harness.watermark(11)

    assert harness.take_values() == [("a", 1), ("b", 1), ("c", 1)]


def test_a_timer_may_register_one_that_fires_in_the_same_advance() -> None:
    """A chain of timers runs through in one watermark, as far as the watermark reaches."""

    class Steps(KeyedProcessFunction):
        def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
            ctx.register_event_time_timer(10)

        def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[int]:
            ctx.register_event_time_timer(timestamp_ms + 10)
            return [timestamp_ms]

    harness = Harness(KeyedProcessOperator(Steps()), key=first)
    harness.process([("a", 0)], [0])

    harness.watermark(35)

    assert harness.take() == [Batch([10, 20, 30], [10, 20, 30]), ("watermark", 35)]


class Heartbeat(KeyedProcessFunction):
    """Emits one record 5 ms of processing time after each key was first seen."""

    def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
        if not ctx.value_state("seen", False).get():
            ctx.value_state("seen", False).update(True)
            ctx.register_processing_time_timer(ctx.processing_time_ms() + 5)

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        return [(ctx.current_key, timestamp_ms - START_MS, ctx.time_domain)]


def test_processing_time_timers_fire_at_their_time() -> None:
    """A processing-time timer fires when the virtual clock reaches it, and its output has no timestamp."""
    harness = Harness(KeyedProcessOperator(Heartbeat()), key=first)
    harness.process([("b", 0)], [1])
    harness.advance_ms(2)
    harness.process([("a", 0)], [1])

    harness.advance_ms(2)
    assert harness.take() == []
    harness.advance_ms(3)

    assert harness.take() == [Batch([("b", 5, "processing")]), Batch([("a", 7, "processing")])]


def test_processing_time_timers_are_armed_again_after_a_restore() -> None:
    """A restored timer still fires; one whose time has passed meanwhile fires at once."""
    harness = Harness(KeyedProcessOperator(Heartbeat()), key=first)
    harness.process([("a", 0)], [1])
    checkpoint = harness.snapshot(1)

    for delay_ms in (3, 50):
        restored = Harness(
            KeyedProcessOperator(Heartbeat()), key=first, restored=checkpoint, now_ns=START_NS + delay_ms * 1_000_000
        )
        restored.advance_ms(2)

        assert restored.take_values() == [("a", 5, "processing")]


def test_all_kinds_of_state_belong_to_the_current_key() -> None:
    """Value, list, reducing and map state of one key are not seen by another one."""

    def remember(value: Record, ctx: KeyedProcessContext) -> Iterable[Any]:
        ctx.list_state("list").add(value[1])
        ctx.reducing_state("sum", lambda a, b: a + b).add(value[1])
        ctx.map_state("map").put(value[1], ctx.current_key)
        ctx.value_state("last", 0).update(value[1])
        yield (
            ctx.list_state("list").get(),
            ctx.reducing_state("sum", lambda a, b: a + b).get(),
            ctx.map_state("map").entries(),
            ctx.value_state("last", 0).get(),
        )

    harness = Harness(KeyedProcessOperator(remember), key=first)

    harness.process([("a", 1), ("b", 2), ("a", 3)])

    assert harness.take_values() == [
        ([1], 1, [(1, "a")], 1),
        ([2], 2, [(2, "b")], 2),
        ([1, 3], 4, [(1, "a"), (3, "a")], 3),
    ]


def test_side_outputs_from_records_and_timers() -> None:
    """Side outputs leave with the timestamp of the record or timer, before the batch is over."""

    class Echo(KeyedProcessFunction):
        def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
            ctx.side_output("seen", value)
            ctx.register_event_time_timer(50)

        def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> None:
            ctx.side_output("timer", ctx.current_key)

    harness = Harness(KeyedProcessOperator(Echo()), key=first)

    harness.process([("a", 1)], [7])
    harness.watermark(50)

    assert harness.take() == [("seen", Batch([("a", 1)], [7])), ("timer", Batch(["a"], [50])), ("watermark", 50)]


class FailsOnThree(KeyedProcessFunction):
    def process_element(self, value: Record, ctx: KeyedProcessContext) -> None:
        ctx.register_event_time_timer(value[1])
        if value[1] == 3:
            raise LookupError("three")

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> None:
        raise LookupError("timer")


def test_errors_name_the_record_or_the_timer() -> None:
    """A failing process_element is blamed on its record, a failing on_timer on its time and key."""
    harness = Harness(KeyedProcessOperator(FailsOnThree()), key=first)
    harness.process([("a", 1), ("b", 2)], [0, 0])

    with pytest.raises(UserFunctionError, match=r"^keyed process function of operator 'op'") as caught:
        harness.process([("a", 5), ("a", 3), ("a", 4)], [0, 0, 0])
    assert caught.value.record == ("a", 3)
    with pytest.raises(UserFunctionError, match=r"^on_timer of keyed process function of operator 'op'") as caught:
        harness.watermark(1)
    assert caught.value.record == {"timer_ms": 1, "key": "a", "domain": "event"}


def test_one_name_is_one_kind_of_state() -> None:
    """Asking for a map under the name of a value is an error."""

    def confused(value: Record, ctx: KeyedProcessContext) -> None:
        ctx.value_state("x").update(1)
        ctx.map_state("x")

    harness = Harness(KeyedProcessOperator(confused), key=first)

    with pytest.raises(UserFunctionError, match="state 'x' was declared as value state") as caught:
        harness.process([("a", 1)])
    assert isinstance(caught.value.__cause__, StateSchemaError)


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("records"),
                st.lists(st.tuples(st.tuples(st.sampled_from("abcdef"), st.just(0)), st.integers(0, 60)), max_size=5),
            ),
            st.tuples(st.just("watermark"), st.integers(0, 80)),
            st.tuples(st.just("restart"), st.integers(1, 3)),
        ),
        max_size=20,
    )
)
def test_restarts_change_nothing(steps: list[tuple[str, Any]]) -> None:
    """State and timers survive restarts at any parallelism: the output is that of an undisturbed operator."""
    disturbed = KeyedCluster(lambda: KeyedProcessOperator(CountUntilQuiet()), first)
    undisturbed = KeyedCluster(lambda: KeyedProcessOperator(CountUntilQuiet()), first)
    for step, argument in [*steps, ("watermark", 1000)]:
        if step == "restart":
            disturbed.restart(argument)
            continue
        for cluster in (disturbed, undisturbed):
            if step == "records":
                cluster.process(argument)
            else:
                cluster.watermark(argument)

        assert disturbed.take_stamped() == undisturbed.take_stamped()
