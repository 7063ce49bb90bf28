"""Windows kept in memory until they fire: a checkpoint, the output and the errors are those of windows in the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import UserFunctionError
from operators.basic import AggregateFunction, aggregates
from operators.windows import (
    SlidingEventTimeWindows,
    SlidingWindowOperator,
    TumblingEventTimeWindows,
    WindowOperator,
    contents,
)
from state_backends.snapshots import SnapshotOptions, run_to_completion
from tests.operators.harness import Checkpoint, Harness
from tests.operators.windows.models import first

TENS = TumblingEventTimeWindows.of(10)
SLIDING = SlidingEventTimeWindows.of(10, 4)

AGGREGATES: dict[str, Callable[[], Any]] = {
    "count": aggregates.count,
    "sum": lambda: aggregates.total(lambda record: record[1]),
    "lists changed in place": lambda: AggregateFunction(list, lambda acc, record: acc.append(record[1]) or acc, tuple),
    "reduce": lambda: lambda a, b: (a[0], a[1] + b[1]),
    "all records": lambda: None,
}

RECORDS = st.lists(st.tuples(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), st.integers(0, 40)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(0, 50)),
        st.tuples(st.just("checkpoint"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=20,
)


class Run:
    """One operator that adds batches of fewer records to the state, unless windows are open."""

    def __init__(self, make: Callable[[], WindowOperator], few: int) -> None:
        self._make, self._few = make, few
        self.harness = Harness(make(), key=first)
        self._checkpoints = 0

    def step(self, what: str, argument: Any) -> Any:
        """Everything that can be seen of a step: events, or the bytes of a checkpoint."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(contents, "_FEW_RECORDS", self._few)
            if what == "records":
                self.harness.process([record for record, _ in argument], [stamp for _, stamp in argument])
            elif what == "watermark":
                self.harness.watermark(argument)
            else:
                return self._checkpoint(what == "restart")
        return self.harness.take()

    def _checkpoint(self, restarts: bool) -> Any:
        self._checkpoints += 1
        checkpoint = self.harness.snapshot(self._checkpoints)
        if restarts:
            self.harness = Harness(self._make(), key=first, restored=checkpoint)
        return checkpoint.keyed, checkpoint.operator


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("sliding", [False, True])
@given(steps=STEPS, lateness_ms=st.sampled_from([0, 7]), few=st.sampled_from([0, 3]))
def test_output_and_checkpoints_are_those_of_windows_in_the_state(
    aggregate: str, sliding: bool, steps: list[tuple[str, Any]], lateness_ms: int, few: int
) -> None:
    """After each step both have emitted the same, and each checkpoint has the same bytes."""

    def make() -> WindowOperator:
        if sliding:
            return SlidingWindowOperator(SLIDING, AGGREGATES[aggregate](), allowed_lateness_ms=lateness_ms)
        return WindowOperator(TENS, AGGREGATES[aggregate](), allowed_lateness_ms=lateness_ms)

    opens, stores = Run(make, few), Run(make, few=1_000)
    for step in [*steps, ("watermark", MAX_TIMESTAMP_MS), ("checkpoint", None)]:
        assert opens.step(*step) == stores.step(*step), step


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch opens windows."""
    monkeypatch.setattr(contents, "_FEW_RECORDS", 0)


@pytest.mark.usefixtures("opens")
def test_a_window_between_two_checkpoints_never_comes_into_the_state() -> None:
    """Its contents and timers are in memory only: nothing is written, nothing is forgotten."""
    harness = Harness(WindowOperator(TENS, aggregates.count()), key=first)
    harness.process([("a", 1), ("b", 1), ("a", 2)], [1, 2, 3])

    assert harness.context.keyed.num_entries() == 0
    harness.watermark(9)
    assert harness.take_values() == [("a", 0, 10, 2), ("b", 0, 10, 1)]
    assert harness.context.keyed.num_entries() == 0


@pytest.mark.usefixtures("opens")
def test_what_a_function_changes_in_place_after_the_snapshot_is_not_in_it() -> None:
    """An accumulator goes on as soon as the snapshot is taken, long before it is written."""
    appending = AggregateFunction(list, lambda acc, record: acc.append(record[1]) or acc, tuple)
    harness = Harness(WindowOperator(TENS, appending), key=first)
    harness.process([("a", 1)], [1])
    checkpoint = Checkpoint(1)
    harness.operator.snapshot_state(1)
    keyed = harness.context.keyed
    pinned = keyed.sync_prepare_resources(1)

    harness.process([("a", 2)], [2])
    handle = run_to_completion(
        keyed.async_snapshot(pinned, checkpoint.location.stream_factory("op"), SnapshotOptions())
    ).job_manager_state

    assert handle is not None
    checkpoint.keyed[0] = handle
    restored = Harness(WindowOperator(TENS, appending), key=first, restored=checkpoint)
    for one, expected in ((restored, (1,)), (harness, (1, 2))):
        one.watermark(9)
        assert one.take_values() == [("a", 0, 10, expected)]


@pytest.mark.usefixtures("opens")
def test_more_windows_than_memory_may_hold_go_to_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit all are written, with their timers, and the results are the same."""
    monkeypatch.setattr(contents, "_MOST_CELLS", 3)
    harness = Harness(WindowOperator(TENS, aggregates.count()), key=first)

    harness.process([(key, 1) for key in "abc"], [1, 11, 21])
    assert harness.context.keyed.num_entries() == 0
    harness.process([("d", 1), ("a", 1)], [1, 1])

    assert harness.context.keyed.num_entries() == 4
    assert len(harness.context.keyed.timer_service("window-timers").event_time) == 4
    harness.process([("a", 1)], [2])
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take_values() == [("a", 0, 10, 3), ("d", 0, 10, 1), ("b", 10, 20, 1), ("c", 20, 30, 1)]


def _refuse_7_and_9(acc: int, record: tuple[str, int]) -> int:
    if record[1] in (7, 9):
        raise ArithmeticError(f"no {record[1]}")
    return acc + 1


@pytest.mark.usefixtures("opens")
@pytest.mark.parametrize("values", [[1, 7, 9], [1, 9, 7], [7, 1, 9]])
@pytest.mark.parametrize("sliding", [False, True])
def test_the_first_record_that_a_function_fails_on_is_told(values: list[int], sliding: bool) -> None:
    """Also when the window of a later one was opened before: the error does not depend on the size of batches."""
    aggregate = AggregateFunction(int, _refuse_7_and_9, int)
    operator = SlidingWindowOperator(SLIDING, aggregate) if sliding else WindowOperator(TENS, aggregate)
    harness = Harness(operator, key=first)
    first_failing = next(value for value in values if value != 1)

    with pytest.raises(UserFunctionError, match=rf"no {first_failing}\n  record  \('a', {first_failing}\)"):
        harness.process([("a", 1), *(("a", value) for value in values)], [11, 11, 21, 11])
