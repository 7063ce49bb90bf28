"""map, flat_map, filter and process without keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import UserFunctionError
from engine.elements.operator import Operator
from operators.basic import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessContext,
    ProcessFunction,
    ProcessOperator,
)
from tests.operators.harness import Harness

MAKERS: dict[str, Callable[[Callable[[Any], Any]], Operator]] = {
    "map": MapOperator,
    "flat_map": lambda fn: FlatMapOperator(lambda value: [fn(value)]),
    "filter": FilterOperator,
    "process": lambda fn: ProcessOperator(lambda value, ctx: [fn(value)]),
}


def test_map_keeps_timestamps_and_drops_keys() -> None:
    """Each record becomes the function's result with its own timestamp, and is not keyed any more."""
    harness = Harness(MapOperator(lambda value: value * 10))

    harness.operator.process_batch(Batch([1, 2], [5, 6], ["a", "b"]))

    assert harness.take() == [Batch([10, 20], [5, 6], None)]


def test_flat_map_repeats_timestamps() -> None:
    """Every record that comes out of one record has its timestamp, also out of a generator."""

    def repeat(value: int) -> Iterator[str]:
        for _ in range(value):
            yield str(value)

    harness = Harness(FlatMapOperator(repeat))

    harness.process([2, 0, 1], [7, 8, 9])

    assert harness.take() == [Batch(["2", "2", "1"], [7, 7, 9])]


def test_filter_keeps_order_and_timestamps() -> None:
    """The records for which the predicate holds pass with their timestamps."""
    harness = Harness(FilterOperator(lambda value: value % 2))

    harness.process([1, 2, 3, 4], [10, 20, 30, 40])

    assert harness.take() == [Batch([1, 3], [10, 30])]


@pytest.mark.parametrize(
    "operator",
    [FilterOperator(lambda value: False), FlatMapOperator(lambda value: ()), ProcessOperator(lambda value, ctx: None)],
)
@pytest.mark.parametrize("stamps", [None, [1, 2]])
def test_nothing_left_emits_nothing(operator: Operator, stamps: list[int] | None) -> None:
    """An empty batch is not sent downstream."""
    harness = Harness(operator)

    harness.process(["a", "b"], stamps)

    assert harness.take() == []


@given(st.lists(st.tuples(st.integers(), st.integers(-5, 5)), max_size=30), st.data())
def test_batches_have_no_meaning(records: list[tuple[int, int]], data: st.DataObject) -> None:
    """However the input is cut into batches, the records that come out are the same."""

    def expand(value: int) -> list[int]:
        return [value] * (value % 3)

    for make in (MAKERS["map"], FlatMapOperator, FilterOperator, MAKERS["process"]):
        whole, cut = Harness(make(expand)), Harness(make(expand))
        whole.process([value for value, _ in records], [stamp for _, stamp in records])
        rest = records
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            cut.process([value for value, _ in rest[:size]], [stamp for _, stamp in rest[:size]])
            rest = rest[size:]

        assert whole.take_stamped() == cut.take_stamped()


def _fails_on_3(value: int) -> int:
    if value == 3:
        raise KeyError("no such thing")
    return value


def _stops_on_3(value: int) -> int:
    if value == 3:
        raise StopIteration
    return value


@pytest.mark.parametrize("fn", [_fails_on_3, _stops_on_3])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("records", [[1, 2, 3, 4], [3], [1, 3]])
@pytest.mark.parametrize("with_stamps", [False, True])
def test_a_failing_function_names_operator_and_record(
    kind: str, fn: Callable[[int], int], records: list[int], with_stamps: bool
) -> None:
    """The error names function, operator and record; a StopIteration counts as a failure too."""
    harness = Harness(MAKERS[kind](fn), attempt=4)

    with pytest.raises(UserFunctionError, match=rf"^{kind} function of operator 'op' raised ") as caught:
        harness.process(records, records if with_stamps else None)

    assert (caught.value.record, caught.value.attempt) == (3, 4)
    assert harness.take() == []


@pytest.mark.parametrize("with_stamps", [False, True])
def test_a_failing_generator_names_the_record(with_stamps: bool) -> None:
    """A flat_map function that fails while its generator is being drained is blamed on the right record."""

    def lazily(value: int) -> Iterator[int]:
        yield value
        if value == 2:
            raise ValueError("later")

    harness = Harness(FlatMapOperator(lazily))

    with pytest.raises(UserFunctionError) as caught:
        harness.process([1, 2, 3], [1, 2, 3] if with_stamps else None)

    assert caught.value.record == 2


def test_process_function_sees_time_and_uses_side_outputs() -> None:
    """A process function knows the record's timestamp and the watermark, and may send to side outputs."""

    class Split(ProcessFunction):
        def process_element(self, value: int, ctx: ProcessContext) -> Iterable[Any] | None:
            if value < 0:
                ctx.side_output("negative", value)
                return None
            return [(value, ctx.timestamp_ms, ctx.current_watermark_ms, ctx.processing_time_ms())]

    harness = Harness(ProcessOperator(Split()), now_ns=3_000_000)
    harness.watermark(100)
    harness.take()

    harness.process([1, -2, 3], [101, 102, 103])

    assert harness.take() == [("negative", Batch([-2], [102])), Batch([(1, 101, 100, 3), (3, 103, 100, 3)], [101, 103])]


def test_process_functions_are_private_to_a_subtask() -> None:
    """Each operator works on its own copy: one subtask's function does not see the attributes of another one's."""

    class Remembering(ProcessFunction):
        def open(self, ctx: ProcessContext) -> None:
            self.seen = 0

        def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[int]:
            self.seen += 1
            return [self.seen]

    shared = Remembering()
    first, second = Harness(ProcessOperator(shared)), Harness(ProcessOperator(shared))

    first.process("ab")
    second.process("c")

    assert (first.take_values(), second.take_values()) == ([1, 2], [1])
    assert Harness(ProcessOperator(Remembering)).operator is not None  # a class will do as well


def test_something_that_is_no_function_is_refused() -> None:
    """The error says what a process operator accepts."""
    with pytest.raises(TypeError, match=re.escape("7 is no process function: pass an instance of ProcessFunction")):
        ProcessOperator(7)  # type: ignore[arg-type]


def test_operators_forward_watermarks() -> None:
    """A watermark passes an operator without state unchanged."""
    for make in MAKERS.values():
        harness = Harness(make(lambda value: value))
        harness.watermark(17)
        assert harness.take() == [("watermark", 17)]
