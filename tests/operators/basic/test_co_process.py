"""Operators over two streams: which method gets which record, shared state and timers, restore and rescale."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import UserFunctionError
from engine.elements.operator import Operator, TwoInputOperator
from operators.basic import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessFunction,
    CoProcessOperator,
    KeyedCoProcessFunction,
    KeyedCoProcessOperator,
    KeyedProcessContext,
    ProcessContext,
)
from tests.operators.harness import START_NS, Harness
from tests.operators.keyed_cluster import KeyedCluster

Record = tuple[str, int]


def first(record: Record) -> str:
    return record[0]


def test_map_and_flat_map_use_the_function_of_the_input() -> None:
    """fn1 sees the first input and fn2 the second; timestamps travel along."""
    mapped = Harness(CoMapOperator(lambda value: value + 1, str))
    flat = Harness(CoFlatMapOperator(lambda value: [value, value], lambda value: (one for one in range(value))))
    for harness in (mapped, flat):
        harness.process([1, 2], [10, 20])
        harness.process_2([3], [30])
        harness.process_2([])

    assert mapped.take() == [Batch([2, 3], [10, 20]), Batch(["3"], [30])]
    assert flat.take() == [Batch([1, 1, 2, 2], [10, 10, 20, 20]), Batch([0, 1, 2], [30, 30, 30])]


def test_process_batch_is_the_first_input() -> None:
    """A caller that does not know of two inputs feeds the first; an operator says which input it does not handle."""
    harness = Harness(CoMapOperator(lambda value: ("one", value), lambda value: ("two", value)))
    harness.operator.process_batch(Batch([1]))
    assert isinstance(harness.operator, TwoInputOperator)
    harness.operator.process_batch_1(Batch([2]))

    assert harness.take_values() == [("one", 1), ("one", 2)]
    with pytest.raises(TypeError, match="TwoInputOperator takes no records on its first input"):
        TwoInputOperator().process_batch(Batch([1]))
    with pytest.raises(TypeError, match="TwoInputOperator takes no records on its second input"):
        TwoInputOperator().process_batch_2(Batch([1]))


class Labelled(CoProcessFunction):
    """Emits its records and their times, and counts calls in an attribute of its own."""

    closed = False

    def open(self, ctx: ProcessContext) -> None:
        self.calls = 0

    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any]:
        self.calls += 1
        ctx.side_output("odd", value)
        return [(1, value, ctx.timestamp_ms, ctx.current_watermark_ms, self.calls)]

    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        self.calls += 1
        return [(2, value, ctx.timestamp_ms, ctx.current_watermark_ms, self.calls)] if value else None

    def close(self) -> None:
        Labelled.closed = True


def test_a_co_process_function_hears_both_inputs() -> None:
    """One object for both, private to the subtask, with timestamp, watermark and side outputs."""
    function = Labelled()
    harness = Harness(CoProcessOperator(function))
    harness.watermark(5)
    harness.process(["a"], [6])
    harness.process_2([0, "b"], [7, 8])
    harness.process_2(["c"])
    harness.close()

    assert harness.take() == [
        ("watermark", 5),
        ("odd", Batch(["a"], [6])),
        Batch([(1, "a", 6, 5, 1)], [6]),
        Batch([(2, "b", 8, 5, 3)], [8]),
        Batch([(2, "c", None, 5, 4)]),
    ]
    assert not hasattr(function, "calls")
    assert Labelled.closed
    assert harness.operator.fingerprint() == 5


def _fail(*_: Any) -> Any:
    raise ArithmeticError("no")


class Failing(CoProcessFunction):
    process_element1 = _fail
    process_element2 = _fail


class KeyedFailing(KeyedCoProcessFunction):
    process_element1 = _fail
    process_element2 = _fail


@pytest.mark.parametrize(
    ("make", "first_what", "second_what"),
    [
        (lambda: CoMapOperator(_fail, _fail), "first map function", "second map function"),
        (lambda: CoFlatMapOperator(_fail, _fail), "first flat_map function", "second flat_map function"),
        (
            lambda: CoProcessOperator(Failing),
            "process_element1 of co-process function",
            "process_element2 of co-process function",
        ),
        (lambda: KeyedCoProcessOperator(KeyedFailing), "keyed co-process function", "keyed co-process function"),
    ],
)
def test_a_failing_function_is_named(make: Callable[[], Operator], first_what: str, second_what: str) -> None:
    """The error says which function failed and on which record."""
    harness = Harness(make(), key=first)
    with pytest.raises(UserFunctionError, match=f"^{first_what} of operator 'op' raised Arith") as caught_first:
        harness.process([("a", 1)])
    with pytest.raises(UserFunctionError, match=f"^{second_what} of operator 'op' raised Arith") as caught_second:
        harness.process_2([("b", 2)], key=first)

    assert (caught_first.value.record, caught_second.value.record) == (("a", 1), ("b", 2))


def test_functions_must_define_their_methods() -> None:
    """A function that defines only one of the two says which one is missing."""
    with pytest.raises(UserFunctionError, match="does not define process_element2"):
        Harness(CoProcessOperator(CoProcessFunction)).process_2([1])
    with pytest.raises(UserFunctionError, match="does not define process_element1"):
        Harness(KeyedCoProcessOperator(KeyedCoProcessFunction), key=first).process([("a", 1)])


class Join(KeyedCoProcessFunction):
    """Pairs every record of one side with the last one of the other; forgets a key 10 ms after its last record."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.left = ctx.value_state("left")
        self.right = ctx.value_state("right")
        self.forget_at = ctx.value_state("forget-at")

    def process_element1(self, value: Record, ctx: KeyedProcessContext) -> Iterable[Any]:
        self.left.update(value[1])
        return self._pair(ctx)

    def process_element2(self, value: Record, ctx: KeyedProcessContext) -> Iterable[Any]:
        self.right.update(value[1])
        return self._pair(ctx)

    def _pair(self, ctx: KeyedProcessContext) -> Iterable[Any]:
        assert ctx.timestamp_ms is not None
        if self.forget_at.get() is not None:
            ctx.delete_event_time_timer(self.forget_at.get())
        self.forget_at.update(ctx.timestamp_ms + 10)
        ctx.register_event_time_timer(ctx.timestamp_ms + 10)
        return [(ctx.current_key, self.left.get(), self.right.get())]

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        gone = (ctx.current_key, "gone", self.left.get(), self.right.get())
        for state in (self.left, self.right, self.forget_at):
            state.clear()
        return [gone]


def test_both_inputs_share_the_state_and_the_timers_of_a_key() -> None:
    """Each side reads the state that the other stores, and can delete the timers that the other sets."""
    harness = Harness(KeyedCoProcessOperator(Join), key=first)
    harness.process([("a", 1)], [0])
    harness.process_2([("a", 2), ("b", 3)], [5, 6], key=first)
    assert harness.take_values() == [("a", 1, None), ("a", 1, 2), ("b", None, 3)]

    harness.watermark(14)
    assert harness.take_values() == []
    harness.watermark(20)

    assert harness.take() == [Batch([("a", "gone", 1, 2), ("b", "gone", None, 3)], [15, 16]), ("watermark", 20)]
    assert harness.context.keyed.num_entries() == 0


class Alarm(KeyedCoProcessFunction):
    """The first side sets a processing-time timer, the second one cancels it."""

    def process_element1(self, value: Record, ctx: KeyedProcessContext) -> None:
        ctx.register_processing_time_timer(value[1])

    def process_element2(self, value: Record, ctx: KeyedProcessContext) -> None:
        ctx.delete_processing_time_timer(value[1])

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any]:
        return [(ctx.current_key, timestamp_ms, ctx.time_domain)]


def test_processing_time_timers_are_armed_again_after_a_restore() -> None:
    """A restored timer fires without another record, and its output has no timestamp."""
    due_ms = START_NS // 1_000_000 + 50
    harness = Harness(KeyedCoProcessOperator(Alarm), key=first)
    harness.process([("a", due_ms), ("b", due_ms)])
    harness.process_2([("b", due_ms)], key=first)

    restored = Harness(KeyedCoProcessOperator(Alarm), key=first, restored=harness.snapshot(1))
    restored.advance_ms(50)

    assert restored.take() == [Batch([("a", due_ms, "processing")])]


STEPS = st.one_of(
    st.tuples(st.just("left"), st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), st.integers(0, 60)),
    st.tuples(st.just("right"), st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), st.integers(0, 60)),
    st.tuples(st.just("watermark"), st.none(), st.integers(0, 90)),
    st.tuples(st.just("restart"), st.none(), st.integers(1, 4)),
)


@given(st.lists(STEPS, max_size=30))
def test_joins_agree_with_a_dict_whatever_the_parallelism(steps: list[tuple[str, Any, int]]) -> None:
    """Random records of both sides, watermarks and rescales: as if one dict held everything."""
    cluster = KeyedCluster(lambda: KeyedCoProcessOperator(Join), first)
    model: dict[str, list[Any]] = {}
    watermark_ms = -1
    for step, record, number in steps:
        expected: list[Any] = []
        if step == "restart":
            cluster.restart(number)
        elif step == "watermark":
            watermark_ms = max(watermark_ms, number)
            cluster.watermark(number)
            for key in sorted(key for key, (_, _, last) in model.items() if last + 10 <= watermark_ms):
                left, right, last = model.pop(key)
                expected.append(((key, "gone", left, right), last + 10))
        else:
            key, value = record
            left, right, _ = model.get(key, (None, None, 0))
            model[key] = [value, right, number] if step == "left" else [left, value, number]
            expected.append(((key, *model[key][:2]), number))
            if step == "left":
                cluster.process([(record, number)])
            else:
                cluster.process_2([(record, number)], first)

        assert cluster.take_stamped() == sorted(expected, key=repr)
