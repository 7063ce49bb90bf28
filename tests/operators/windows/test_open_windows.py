"""Windows kept in memory until they fire: a checkpoint, the output and the errors are those of windows in the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine import CollectionSource, Job, RunConfig, WatermarkStrategy
from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import JobFailedError, UserFunctionError
from engine.explore.ledger import EffectLedger
from engine.runtime.execution import Execution
from operators.basic import AggregateFunction, aggregates
from operators.windows import (
    SlidingEventTimeWindows,
    SlidingWindowOperator,
    TumblingEventTimeWindows,
    WindowOperator,
    contents,
)
from state_backends.base import key_group_for
from state_backends.snapshots import SnapshotOptions, run_to_completion
from tests.operators.harness import MAX_PARALLELISM, Checkpoint, Harness
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
LATENESS = st.sampled_from([0, 7, 10, 30])
"""With 10 and 30, windows are forgotten at instants at which others end."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(0, 50)),
        st.tuples(st.just("checkpoint"), st.none()),
        st.tuples(st.just("restart"), LATENESS),
    ),
    max_size=20,
)


class Run:
    """One operator that adds batches of fewer records to the state, unless windows are open."""

    def __init__(self, make: Callable[[int], WindowOperator], lateness_ms: int, few: int) -> None:
        self._make, self._few = make, few
        self.harness = Harness(make(lateness_ms), key=first)
        self._checkpoints = 0

    def step(self, what: str, argument: Any) -> Any:
        """Every visible result of a step: events, or the bytes of a checkpoint."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(contents, "_FEW_RECORDS", self._few)
            if what == "records":
                self.harness.process([record for record, _ in argument], [stamp for _, stamp in argument])
            elif what == "watermark":
                self.harness.watermark(argument)
            else:
                return self._checkpoint(argument)
        return self.harness.take()

    def _checkpoint(self, then_restarts_with: int | None) -> Any:
        self._checkpoints += 1
        checkpoint = self.harness.snapshot(self._checkpoints)
        if then_restarts_with is not None:
            self.harness = Harness(self._make(then_restarts_with), key=first, restored=checkpoint)
        return checkpoint.keyed, checkpoint.operator


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("sliding", [False, True])
@given(steps=STEPS, lateness_ms=LATENESS, few=st.sampled_from([0, 3]))
def test_output_and_checkpoints_are_those_of_windows_in_the_state(
    aggregate: str, sliding: bool, steps: list[tuple[str, Any]], lateness_ms: int, few: int
) -> None:
    """After each step both have emitted the same, and each checkpoint has the same bytes."""

    def make(lateness_ms: int) -> WindowOperator:
        if sliding:
            return SlidingWindowOperator(SLIDING, AGGREGATES[aggregate](), allowed_lateness_ms=lateness_ms)
        return WindowOperator(TENS, AGGREGATES[aggregate](), allowed_lateness_ms=lateness_ms)

    opens, stores = Run(make, lateness_ms, few), Run(make, lateness_ms, few=1_000)
    for step in [*steps, ("watermark", MAX_TIMESTAMP_MS), ("checkpoint", None)]:
        assert opens.step(*step) == stores.step(*step), step


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch opens windows."""
    monkeypatch.setattr(contents, "_FEW_RECORDS", 0)


@pytest.mark.usefixtures("opens")
def test_a_window_between_two_checkpoints_never_comes_into_the_state() -> None:
    """Its contents and timers are only in memory: it is neither written to the state nor forgotten there."""
    harness = Harness(WindowOperator(TENS, aggregates.count()), key=first)
    harness.process([("a", 1), ("b", 1), ("a", 2)], [1, 2, 3])

    assert harness.context.keyed.num_entries() == 0
    harness.watermark(9)
    assert harness.take_values() == [("a", 0, 10, 2), ("b", 0, 10, 1)]
    assert harness.context.keyed.num_entries() == 0


@pytest.mark.usefixtures("opens")
def test_what_a_function_changes_in_place_after_the_snapshot_is_not_in_it() -> None:
    """The accumulator changes as soon as the snapshot is taken, long before the snapshot is written."""
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
    """The window of a later record may have been opened before it: the error does not depend on the size of batches."""
    aggregate = AggregateFunction(int, _refuse_7_and_9, int)
    operator = SlidingWindowOperator(SLIDING, aggregate) if sliding else WindowOperator(TENS, aggregate)
    harness = Harness(operator, key=first)
    first_failing = next(value for value in values if value != 1)

    with pytest.raises(UserFunctionError, match=rf"no {first_failing}\n  record  \('a', {first_failing}\)"):
        harness.process([("a", 1), *(("a", value) for value in values)], [11, 11, 21, 11])


@pytest.mark.usefixtures("opens")
@pytest.mark.parametrize("few", [0, 1_000])
def test_a_reduce_function_that_returns_none_is_refused(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both in open windows and in the state: else a further reduction would depend on the size of batches."""
    monkeypatch.setattr(contents, "_FEW_RECORDS", few)
    harness = Harness(WindowOperator(TENS, lambda a, b: None), key=first)

    with pytest.raises(UserFunctionError, match=r"reduce function of[^\n]*returned None[^\n]*\n  record  \('b', 2\)"):
        harness.process([("a", 1), ("b", 1), ("b", 2), ("a", 2)], [1, 1, 2, 2])


@pytest.mark.usefixtures("opens")
def test_a_key_of_another_subtask_is_refused_with_its_record() -> None:
    """An open window asks the state for each new key, so the refusal is the same."""
    harness = Harness(WindowOperator(TENS, aggregates.count()), key=first, parallelism=2)
    ordered = sorted("abcdefgh", key=lambda key: key_group_for(key, MAX_PARALLELISM))
    mine, other = ordered[0], ordered[-1]

    with pytest.raises(UserFunctionError, match=rf"KeyGroupError[\s\S]*record  \('{other}', 2\)"):
        harness.process([(mine, 1), (other, 2)], [1, 1])


class Unwritable:
    """No state can store it."""


@pytest.mark.usefixtures("opens")
@pytest.mark.parametrize("backend", ["lsm", "changelog"])
def test_an_accumulator_that_cannot_be_written_names_the_operator(backend: str) -> None:
    """The error comes when a snapshot brings the open window into the state."""
    results: list[Any] = []
    job = windows_job([("a", n) for n in range(40)], AggregateFunction(Unwritable, lambda acc, _: acc, id), results)

    with pytest.raises(JobFailedError, match=r"operator 'window': value of state .*Unwritable"):
        job.run(state_backend=backend, checkpoint_interval="10rec", restart="none")


def windows_job(records: list[Any], aggregate: Any, results: list[Any]) -> Job:
    job = Job("windows")
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda record: record[1])
    keyed = job.source(CollectionSource(records), watermarks=watermarks).key_by(first)
    keyed.window(TENS).allowed_lateness(10).aggregate(aggregate, name="window").collect(results)
    return job


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog", "changelog:lsm"])
def test_a_job_that_dies_has_all_windows_on_every_state_backend(backend: str) -> None:
    """Batches are large enough to open windows, checkpoints cut the batches, and two tasks die."""
    records = [(key, at_ms) for at_ms in range(400) for key in "abcde"]
    results: list[Any] = []

    result = windows_job(records, aggregates.count(), results).run(
        state_backend=backend,
        snapshot="incremental",
        checkpoint_interval="300rec",
        materialization_interval="1ms",
        restart="fixed:3:100us",
        kills=["window@1ms", "window@1500us"],
    )

    assert result.attempts == 3
    assert sorted(results) == sorted((key, start, start + 10, 10) for start in range(0, 400, 10) for key in "abcde")


def test_under_the_ledger_windows_fire_one_by_one() -> None:
    """One record may become many before the window: then a window is open, and is forgotten key by key."""
    job, results = Job("fanned out"), list[Any]()
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda at_ms: at_ms)
    numbers = job.source(CollectionSource([1, 11, 21]), watermarks=watermarks)
    fanned_out = numbers.flat_map(lambda at_ms: [(f"k{key}", at_ms) for key in range(30)])
    fanned_out.key_by(first).window(TENS).aggregate(aggregates.count()).collect(results)

    Execution(job.plan(), RunConfig(), provenance=EffectLedger()).run().raise_on_failure()

    assert sorted(results) == sorted((f"k{key}", start, start + 10, 1) for start in (0, 10, 20) for key in range(30))


@pytest.mark.usefixtures("opens")
def test_what_is_in_open_windows_tells_operators_apart() -> None:
    """Otherwise an exhaustive check would merge states that differ."""
    fingerprints = []
    for value in (1, 2):
        harness = Harness(WindowOperator(TENS, AGGREGATES["sum"]()), key=first)
        harness.process([("a", value)], [1])
        fingerprints.append(harness.operator.fingerprint())

    assert fingerprints[0] != fingerprints[1]
