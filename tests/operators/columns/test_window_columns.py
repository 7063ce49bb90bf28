"""Windows of columns: the results, the late records and the state are those of the operator on rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch, as_columns
from engine.elements.errors import ConfigurationError, JobChangedError, JobGraphError, StateError, UserFunctionError
from engine.elements.operator import Operator
from engine.graph.job import Job
from operators.basic import AggregateFunction
from operators.columns import (
    ColumnAggregate,
    ColumnSource,
    ColumnWindowOperator,
    max_of,
    mean_of,
    min_of,
    open_windows,
    record_count,
    sum_of,
    window_columns,
)
from operators.windows import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    SlidingWindowOperator,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowOperator,
)
from state_backends.base import BOOL, INT, LONG, STRING, KeyGroupError, KeyType, ReducingStateDescriptor, tuple_of
from state_backends.heap import HeapKeyedStateBackend
from state_backends.heap.stored_windows import WindowTable
from state_backends.snapshots import SnapshotOptions, run_to_completion
from tests.operators.harness import Checkpoint, Harness
from tests.operators.keyed_cluster import KeyedCluster

TENS = TumblingEventTimeWindows.of(10)
ASSIGNERS = [
    TENS,
    TumblingEventTimeWindows.of(10, 3),
    SlidingEventTimeWindows.of(10, 4),
    SlidingEventTimeWindows.of(9, 3, 1),
    SlidingEventTimeWindows.of(4, 10),
]
KEYS: list[tuple[KeyType, tuple[str, ...], list[Any]]] = [
    (STRING, ("k",), ["a", "b", "bb", "ä", ""]),
    (LONG, ("k",), [0, 1, 300, -1, -40, 2**40]),
    (INT, ("k",), [5, 6, -7]),
    (BOOL, ("k",), [True, False]),
    (tuple_of(STRING, LONG), ("k", "n"), [("a", 1), ("a", -1), ("b", 1)]),
]
AGGREGATES = {
    "count": record_count(), "sum": sum_of("v"), "least": min_of("v"), "most": max_of("v"), "mean": mean_of("v"),
}  # fmt: skip


def all_in_one() -> AggregateFunction:
    """The same aggregates over rows."""

    def add(acc: tuple[Any, ...] | list[Any], row: Any) -> Any:
        value = row["v"]
        if not acc:
            return (1, value, value, value)
        return (acc[0] + 1, acc[1] + value, min(acc[2], value), max(acc[3], value))

    return AggregateFunction(tuple, add, lambda acc: (*acc, acc[1] / acc[0]))


def row_operator(assigner: Any, fields: tuple[str, ...], lateness_ms: int, tag: str | None) -> Operator:
    def result(key: Any, window: TimeWindow, values: Any) -> dict[str, Any]:
        keys = dict(zip(fields, (key,) if len(fields) == 1 else key, strict=True))
        times = {"window_start": window.start, "window_end": window.end}
        return {**keys, **times, **dict(zip(AGGREGATES, values, strict=True))}

    kind = SlidingWindowOperator if isinstance(assigner, SlidingEventTimeWindows) else WindowOperator
    return kind(assigner, all_in_one(), result, lateness_ms, tag)


def seen(harness: Harness) -> tuple[list[Any], list[Any]]:
    """The main output, watermarks included, and the late records, since the last call."""
    main: list[Any] = []
    late: list[Any] = []
    for event in harness.take():
        if isinstance(event, Batch):
            main += zip(map(repr, event.values), event.timestamps or (), strict=True)
        elif event[0] == "watermark":
            main.append(event)
        else:
            late += zip(map(repr, event[1].values), event[1].timestamps or (), strict=True)
    return main, late


@st.composite
def runs(draw: st.DrawFn) -> Any:
    """Keys, an assigner, and steps."""
    key_type, fields, keys = draw(st.sampled_from(KEYS))
    values = draw(st.sampled_from([st.integers(-(2**40), 2**40), st.floats()]))
    times = draw(st.sampled_from([st.integers(0, 60), st.integers(-1_000, 1_000)]))
    records = st.lists(st.tuples(st.sampled_from(keys), values, times), max_size=draw(st.sampled_from([4, 20])))
    step = st.one_of(
        st.tuples(st.just("records"), records),
        st.tuples(st.just("watermark"), times),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    )
    return key_type, fields, draw(st.sampled_from(ASSIGNERS)), draw(st.lists(step, max_size=15))


@pytest.mark.parametrize("in_columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("waiting", [2, open_windows.MAX_RECORDS])
@settings(max_examples=40)
@given(run=runs(), lateness_ms=st.sampled_from([0, 7, 10, 40]), tag=st.sampled_from([None, "late"]))
def test_results_are_those_of_the_operator_on_rows(
    in_columns: bool, waiting: int, run: Any, lateness_ms: int, tag: str | None
) -> None:
    """Results, their order and timestamps, late records and dropped ones, after restarts with other subtasks too; with
    state in columns, or in rows as on other backends; whether records wait to be folded together or not."""
    key_type, fields, assigner, steps = run

    def key(row: dict[str, Any]) -> Any:
        return row["k"] if len(fields) == 1 else (row["k"], row["n"])

    def record(one: Any, value: Any) -> dict[str, Any]:
        return {**dict(zip(fields, (one,) if len(fields) == 1 else one, strict=True)), "v": value}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_windows, "MAX_RECORDS", waiting)
        if not in_columns:
            patch.delattr(HeapKeyedStateBackend, "window_columns")
        rows = KeyedCluster(lambda: row_operator(assigner, fields, lateness_ms, tag), key, 2, key_type)
        columns = KeyedCluster(
            lambda: ColumnWindowOperator(assigner, AGGREGATES, fields, lateness_ms, tag), key, 2, key_type
        )
        for what, argument in [*steps, ("watermark", MAX_TIMESTAMP_MS)]:
            for cluster in (rows, columns):
                if what == "records":
                    cluster.process([(record(one, value), stamp) for one, value, stamp in argument])
                elif what == "watermark":
                    cluster.watermark(argument)
                else:
                    cluster.restart(argument)
            assert [seen(one) for one in columns.subtasks] == [seen(one) for one in rows.subtasks]
            assert columns.late_records_dropped() == rows.late_records_dropped()
    assert all(not one.operator._windows for one in columns.subtasks)  # type: ignore[attr-defined]


@settings(max_examples=40)
@given(run=runs(), lateness_ms=st.sampled_from([0, 10]))
def test_the_state_has_the_same_bytes_in_columns_and_in_rows(run: Any, lateness_ms: int) -> None:
    """So a savepoint of one backend restores into any other."""
    key_type, fields, assigner, steps = run
    key = (lambda row: row["k"]) if len(fields) == 1 else (lambda row: (row["k"], row["n"]))
    found: list[list[Any]] = []
    for in_columns in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not in_columns:
                patch.delattr(HeapKeyedStateBackend, "window_columns")
            harness = Harness(
                ColumnWindowOperator(assigner, AGGREGATES, fields, lateness_ms), key=key, key_type=key_type
            )
            found.append([])
            for number, (what, argument) in enumerate(steps):
                if what == "records" and argument:
                    keys = [dict(zip(fields, (one,) if len(fields) == 1 else one, strict=True)) for one, *_ in argument]
                    rows = [{**one, "v": value} for one, (_, value, _) in zip(keys, argument, strict=True)]
                    harness.process(rows, [stamp for *_, stamp in argument])
                elif what == "watermark":
                    harness.watermark(argument)
                elif what == "restart":
                    checkpoint = harness.snapshot(number)
                    found[-1].append((content(checkpoint), harness.context.keyed.fingerprint()))
    assert found[0] == found[1]


def test_windows_before_and_after_the_epoch_are_written_in_the_order_of_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key has a window with a negative start after those with others, as rows are written."""
    found = []
    for in_columns in (True, False):
        if not in_columns:
            monkeypatch.delattr(HeapKeyedStateBackend, "window_columns")
        harness = harness_of(operator())
        harness.operator.process_batch(batch([1] * 4, [0] * 4, [-25, -5, 5, 3_000]))
        found.append(content(harness.snapshot(1)))
    assert found[0] == found[1]


def content(checkpoint: Checkpoint) -> list[bytes]:
    reader = checkpoint.location.reader()
    return [reader.open(one.stream).read() for one in checkpoint.keyed.values()]  # type: ignore[attr-defined]


# --- one operator -----------------------------------------------------------------------------------------------------


def operator(aggregate: ColumnAggregate | None = None, **options: Any) -> ColumnWindowOperator:
    return ColumnWindowOperator(TENS, {"out": aggregate or record_count()}, ("k",), **options)


def batch(keys: list[Any], values: list[Any], stamps: list[int] | None) -> ColumnBatch:
    rows = [{"k": key, "v": value} for key, value in zip(keys, values, strict=True)]
    return as_columns(Batch(rows, stamps, keys))


def harness_of(one: Operator, restored: Checkpoint | None = None) -> Harness:
    return Harness(one, key_type=LONG, restored=restored)


def test_a_batch_of_columns_gives_columns() -> None:
    """Results are columns: the key, the window and the aggregate; writing into them raises."""
    harness = harness_of(operator(mean_of("v")))
    harness.operator.process_batch(batch([2, 1, 2], [1, 5, 2], [3, 4, 12]))
    harness.watermark(20)

    (out, _) = harness.take()
    assert isinstance(out, ColumnBatch)
    assert {name: column.tolist() for name, column in out.columns.items()} == {
        "k": [1, 2, 2], "window_start": [0, 0, 10], "window_end": [10, 10, 20], "out": [5.0, 1.0, 2.0],
    }  # fmt: skip
    assert out.timestamps == [9, 9, 19]
    for column in out.columns.values():
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_a_mean_of_great_ints_is_rounded_once() -> None:
    """As Python divides them."""
    values = [2**62 + 128, 0, 0]  # a float of the sum, divided, would be another number
    harness = harness_of(operator(mean_of("v")))
    harness.operator.process_batch(batch([1, 1, 1], values, [0, 0, 0]))
    harness.watermark(10)

    (out, _) = harness.take()
    assert out.values[0]["out"] == sum(values) / 3


def test_a_sum_that_overflows_names_key_and_window() -> None:
    """The sum never wraps around, in whichever fold it happens."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1, 3, 3], [1, 2**62, 2**62], [10, 12, 13]))
    message = r"sum of a window of [\s\S]*became 9223372036854775808[\s\S]*'key': 3, 'window': TimeWindow\(start=10"

    with pytest.raises(UserFunctionError, match=message):
        harness.watermark(19)
    late = harness_of(operator(sum_of("v"), allowed_lateness_ms=10))
    late.watermark(10)
    with pytest.raises(UserFunctionError, match="became 9223372036854775808"):
        late.operator.process_batch(batch([3, 3], [2**62, 2**62], [2, 3]))


@pytest.mark.parametrize(
    ("refused", "error", "message"),
    [
        (batch([1], [1], None), ConfigurationError, "its records have no timestamps"),
        (batch([1], ["x"], [1]), UserFunctionError, "column 'v' is STRING, neither BIGINT nor DOUBLE"),
        (batch([1], [True], [1]), UserFunctionError, "column 'v' is BOOLEAN"),
        (batch([1], [1.5], [1]), UserFunctionError, "int64 values in windows"),
        (batch([1], [1], [2**62 + 1]), UserFunctionError, r"more than 2\*\*62 ms from the epoch; give ms"),
        (batch([1], [1], [-(2**63)]), UserFunctionError, r"more than 2\*\*62 ms"),
    ],
)
def test_what_is_refused(refused: ColumnBatch, error: type[Exception], message: str) -> None:
    """Each error says what is wrong with the batch; the windows before stay as they were."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1], [7], [0]))
    with pytest.raises(error, match=message):
        harness.operator.process_batch(refused)

    harness.watermark(10)
    assert harness.take_values() == [{"k": 1, "window_start": 0, "window_end": 10, "out": 7}]


def test_a_missing_column_is_refused() -> None:
    """With the names of those that there are."""
    with pytest.raises(UserFunctionError, match="there is no column 'w'; there are k, v"):
        harness_of(operator(sum_of("w"))).operator.process_batch(batch([1], [1], [1]))


def test_nulls_in_rows_are_refused() -> None:
    """Rows that become columns hold none."""
    with pytest.raises(UserFunctionError, match=r"turning rows into columns.*no nulls"):
        harness_of(operator(sum_of("v"))).operator.process_batch(Batch([{"k": 1, "v": None}], [1], [1]))


@pytest.mark.parametrize(
    "other",
    [
        lambda: ColumnWindowOperator(TENS, {"out": max_of("v")}, ("k",)),
        lambda: ColumnWindowOperator(TENS, {"other": sum_of("v")}, ("k",)),
        lambda: ColumnWindowOperator(TumblingEventTimeWindows.of(5), {"out": sum_of("v")}, ("k",)),
        lambda: ColumnWindowOperator(SlidingEventTimeWindows.of(10, 10), {"out": sum_of("v")}, ("k",)),
    ],
)
def test_a_checkpoint_of_other_windows_is_refused(other: Callable[[], ColumnWindowOperator]) -> None:
    """Windows or aggregates that have changed would give wrong results."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1], [7], [0]))
    checkpoint = harness.snapshot(1)

    with pytest.raises(JobChangedError, match=r"its checkpoint has TumblingEventTimeWindows.*with sum out"):
        harness_of(other(), checkpoint)


def test_values_of_another_type_after_a_restore_are_refused() -> None:
    """The windows in the state have ints."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1], [7], [0]))
    restored = harness_of(operator(sum_of("v")), harness.snapshot(1))

    with pytest.raises(UserFunctionError, match="int64 values in windows that have begun, and float64 now"):
        restored.operator.process_batch(batch([1], [7.5], [0]))


def test_states_that_do_not_fit_each_other_are_refused() -> None:
    """An offline writer can make such states. Sums and counts of a mean must have the same keys and windows."""
    harness = harness_of(operator(mean_of("v")))
    harness.operator.process_batch(batch([1, 2], [7, 8], [0, 0]))
    harness.operator.snapshot_state(1)
    counts = harness.context.keyed.reducing_state(ReducingStateDescriptor("count out", max))
    counts.clear_many([2], [0])
    again = operator(mean_of("v"))
    again.setup(harness.context, harness.output)

    with pytest.raises(StateError, match="'sum out' and 'count out' have windows of different keys\n  restore from"):
        again.initialize_state()


def test_a_window_after_a_snapshot_is_not_in_it() -> None:
    """The snapshot is written after records that came later, and does not have them."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1, 2], [7, 1], [0, 0]))
    checkpoint = Checkpoint(1)
    harness.operator.snapshot_state(1)
    pinned = harness.context.keyed.sync_prepare_resources(1)
    harness.operator.process_batch(batch([1, 3], [5, 5], [0, 11]))
    harness.operator.snapshot_state(2)
    streams = checkpoint.location.stream_factory("op")
    handle = run_to_completion(harness.context.keyed.async_snapshot(pinned, streams, SnapshotOptions()))
    assert handle.job_manager_state is not None
    checkpoint.keyed[0] = handle.job_manager_state

    backend = harness_of(operator(sum_of("v")), checkpoint).context.keyed
    assert backend.keys("sum out", 0) == [1, 2]
    assert backend.num_entries() == 2


def test_state_in_columns_shows_its_keys_as_rows_do() -> None:
    """By key group and encoding; and a row operator may declare the same state."""
    harness = harness_of(operator(sum_of("v")))
    harness.operator.process_batch(batch([1, 2, 1], [7, 1, 3], [0, 0, 11]))
    harness.snapshot(1)
    backend = harness.context.keyed

    assert (backend.keys("sum out", 0), backend.keys("sum out", 10), backend.keys("sum out")) == ([1, 2], [1], [])
    state = backend.reducing_state(ReducingStateDescriptor("sum out", max))
    assert state.get_many([1, 2, 1], [0, 0, 10]) == [7, 1, 3]


def test_a_key_of_another_subtask_is_refused_at_the_snapshot() -> None:
    """Its state would be lost after a restore."""
    harness = Harness(operator(), key_type=LONG, parallelism=2)
    harness.operator.process_batch(batch(list(range(50)), [0] * 50, [0] * 50))
    with pytest.raises(KeyGroupError, match="key"):
        harness.snapshot(1)


def test_a_window_of_very_many_records() -> None:
    """More than are grouped at once, in one batch and in several."""
    count = 2 * open_windows.MAX_RECORDS + 3
    keys = np.arange(count) % 1_000
    whole = ColumnBatch({"k": keys}, count, np.zeros(count, dtype=np.int64), keys)
    for cuts in ([whole], [whole.between(0, 5), whole.between(5, count)]):
        harness = harness_of(operator())
        for part in cuts:
            harness.operator.process_batch(part)
        harness.watermark(9)
        (out, _) = harness.take()
        assert np.array_equal(out.columns["out"], np.bincount(keys))


def test_records_that_wait_do_not_keep_their_batches_in_memory() -> None:
    """One record of each batch waits for a distant window; two columns of a batch are 160,000 bytes."""
    harness = harness_of(operator(sum_of("v")))
    tracemalloc.start()
    try:
        for at in range(50):
            stamps = np.full(10_000, at * 10)
            stamps[-1] = 10**9
            keys = np.full(10_000, at)
            harness.operator.process_batch(ColumnBatch({"k": keys, "v": keys + 1}, 10_000, stamps, keys))
            harness.watermark(at * 10 + 9)
            harness.take()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_windows_that_overlap_fold_when_many_records_wait_in_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a copy of its records."""
    monkeypatch.setattr(window_columns, "_MOST_WAITING", 100)
    one = ColumnWindowOperator(SlidingEventTimeWindows.of(100, 10), {"sum": sum_of("v")}, ("k",))
    harness = harness_of(one)
    for _ in range(30):
        harness.operator.process_batch(batch([1, 2, 3], [1, 2, 3], [95, 95, 85]))
        assert sum(window.waiting for window in one._windows.values()) <= 100
    harness.watermark(99)
    (*_, out, _) = harness.take()
    assert out.columns["sum"].tolist()[-3:] == [30, 60, 90]


def test_the_encoded_entries_of_a_snapshot_are_freed_with_it() -> None:
    """A second snapshot of the same entries encodes them again."""
    harness = harness_of(operator())
    harness.operator.process_batch(batch([1, 2, 3], [1, 2, 3], [5, 5, 5]))
    first = harness.snapshot(1)
    table = harness.context.keyed.window_table("count out")
    assert isinstance(table, WindowTable)
    assert table.namespaced._shards is None
    assert content(harness.snapshot(2)) == content(first) != []


def test_floats_are_added_in_the_order_of_the_records() -> None:
    """Whatever the order of their event times, in windows that overlap too."""
    one = ColumnWindowOperator(SlidingEventTimeWindows.of(10, 5), {"out": sum_of("v")}, ("k",))
    harness = harness_of(one)
    harness.operator.process_batch(batch([1] * 3, [1e16, -1e16, 1.0], [6, 7, 1]))
    harness.watermark(9)
    assert harness.take_values()[-1]["out"] == 1e16 - 1e16 + 1.0 != 1.0 + 1e16 - 1e16


def test_a_new_key_begins_anew_when_there_is_no_room_left() -> None:
    """However many keys there are: nothing of the key in the last place is counted for it."""
    harness = harness_of(operator(sum_of("v")))
    for count in range(1, 70):
        harness.operator.process_batch(batch([count], [count], [0]))
        harness.operator.snapshot_state(count)
    harness.watermark(9)
    assert [row["out"] for row in harness.take_values()] == list(range(1, 70))


def test_a_sum_that_changes_its_sign_alone_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """From -0.0 to 0.0, in state of rows, where only changes are written."""
    monkeypatch.delattr(HeapKeyedStateBackend, "window_columns")
    harness = harness_of(operator(sum_of("v")))
    for number, value in enumerate((-0.0, 0.0)):
        harness.operator.process_batch(batch([1], [value], [0]))
        checkpoint = harness.snapshot(number)

    restored = harness_of(operator(sum_of("v")), checkpoint)
    restored.watermark(9)
    assert [repr(row["out"]) for row in restored.take_values()] == ["0.0"]


class Causes:
    """Writes down what an operator reports, between what it emits."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def emitting(self, key: Any, namespace: Any = None) -> None:
        self._events.append(("emitting", key, namespace))

    def emitted(self) -> None:
        self._events.append("emitted")

    def waits(self, records: int, namespace: Any = None) -> None:
        raise AssertionError("records of windows have keys")


def test_under_a_ledger_each_result_names_its_cause() -> None:
    """The key, with all its fields, and the window."""
    one = ColumnWindowOperator(TENS, {"out": record_count()}, ("k", "v"))
    harness = Harness(one, key_type=tuple_of(LONG, LONG), key=lambda row: (row["k"], row["v"]))
    one.lineage = Causes(harness.output.events)
    harness.process([{"k": 1, "v": 2}, {"k": 1, "v": 1}, {"k": 1, "v": 2}], [0, 0, 11])
    harness.watermark(19)

    events = [one.values if isinstance(one, Batch) else one for one in harness.take()]
    assert [one for one in events if one[0] == "emitting"] == [
        ("emitting", (1, 1), 0), ("emitting", (1, 2), 0), ("emitting", (1, 2), 10),
    ]  # fmt: skip
    assert events[1] == [{"k": 1, "v": 1, "window_start": 0, "window_end": 10, "out": 1}]
    assert events[2:10:3] == ["emitted"] * 3


# --- the methods ------------------------------------------------------------------------------------------------------


def windowed(assigner: Any = TENS) -> Any:
    return Job("windows").source(ColumnSource({"k": [1], "v": [1]})).key_by_column("k").window(assigner)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: windowed(EventTimeSessionWindows.with_gap(5)).count_column(), "not EventTimeSessionWindows.*\n.*rows"),
        (lambda: windowed(TumblingProcessingTimeWindows.of(5)).count_column(), "not TumblingProcessingTimeWindows"),
        (lambda: windowed().trigger(CountTrigger.of(2)).sum_column("v"), "sum_column takes.*without CountTrigger"),
        (lambda: windowed().evictor(CountEvictor.of(2)).sum_column("v"), "without an evictor; CountEvictor"),
        (lambda: windowed().sum_column("v", into="window_end"), "two of the name 'window_end'"),
        (lambda: windowed().min_column("k"), r"two of the name 'k'\n  let the aggregate go into another column"),
        (
            lambda: windowed()._stream._job.source(ColumnSource({"window_end": [1]})).key_by_column("window_end")
            .window(TENS).count_column(),
            "window_end, window_start, window_end, count: there are two of the name 'window_end'",
        ),
        (lambda: windowed().sum_column(5, into="x"), "the name of a column is a str"),
        (lambda: windowed().aggregate_columns({}), "nothing to aggregate"),
        (lambda: windowed(TumblingEventTimeWindows.of(2**63)).sum_column("v"), r"at most 2\*\*62 ms long"),
        (lambda: windowed().aggregate_columns({"x": max}), "is no aggregate; give sum_of.*mean_of"),
        (
            lambda: windowed()._stream._job.source(ColumnSource({"k": [1]})).key_by(len).window(TENS).count_column(),
            "count_column: results of windows have the columns of the key.*\n.*use key_by_column",
        ),
        (
            lambda: windowed()._stream.aggregate_columns({"x": mean_of("v")}),
            "'x': mean_of is for windows; take sum_of and record_count",
        ),
    ],
)
def test_what_cannot_be_built(build: Callable[[], Any], message: str) -> None:
    """The error comes where the job is built, and says what to use."""
    with pytest.raises((JobGraphError, ConfigurationError), match=message):
        build()


def test_each_method_gives_its_aggregate() -> None:
    """Named like the folded column, or as given."""
    table = {"k": ["a", "a", "b"], "v": [1, 4, 7], "t": [0, 9, 9]}
    found: dict[str, list[Any]] = {}
    for method, *arguments in (
        ("sum_column", "v"), ("min_column", "v", "least"), ("max_column", "v"), ("mean_column", "v"), ("count_column",),
    ):  # fmt: skip
        job = Job("windows")
        windows = job.source(ColumnSource(table, timestamps="t")).key_by_column("k").window(TENS)
        getattr(windows.trigger(EventTimeTrigger()), method)(*arguments).collect(found.setdefault(method, []))
        job.run()

    def rows(name: str, a: Any, b: Any) -> list[Any]:
        return [{"k": key, "window_start": 0, "window_end": 10, name: one} for key, one in (("a", a), ("b", b))]

    assert found == {
        "sum_column": rows("v", 5, 7), "min_column": rows("least", 1, 7), "max_column": rows("v", 4, 7),
        "mean_column": rows("v", 2.5, 7.0), "count_column": rows("count", 2, 1),
    }  # fmt: skip
