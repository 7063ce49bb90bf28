"""The stream operator around a Spark batch: its rows, when it runs, the settings that it gets, and its cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, UserFunctionError
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS, collect_canonical
from spark_bridge.cuts import Period, barrier_cut, event_time_cut, rows_cut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.transform import LATE_TAG, spark_transform
from tests.spark_bridge.transforms import TENS, Calls, operator_of, size_and_sum, tens_of, without_spark

DAY_MS = 86_400_000


# --- event time: which rows, when, in which order --------------------------------------------------------------


def test_a_period_is_closed_by_the_watermark(calls: Calls) -> None:
    """Nothing runs before the watermark reaches the period's last millisecond; then all of its rows run as one."""
    harness = operator_of(TENS)
    harness.process([1, 2], [0, 9])
    harness.process([4, 8], [5, 10])

    harness.watermark(8)
    assert (harness.take(), calls.batches) == ([("watermark", 8)], [])
    harness.watermark(9)
    assert calls.batches == [("op: from 0", [1, 2, 4])]


def test_results_stand_before_the_watermark_that_closed_the_period(calls: Calls) -> None:
    """Results carry the last timestamp of their period: after the watermark they would be late downstream."""
    harness = operator_of(TENS, lambda rows: [*rows, sum(rows)])
    harness.process([1, 2, 4], [3, 0, 9])

    harness.watermark(14)

    assert harness.take() == [Batch([1, 2, 4, 7], [9, 9, 9, 9]), ("watermark", 14)]


def test_periods_run_oldest_first(calls: Calls) -> None:
    """One watermark that closes several periods runs them in the order of time, in whatever order the rows came."""
    harness = operator_of(TENS)
    harness.process([4, 1, 2, 8], [25, -5, 15, 35])

    harness.watermark(29)

    assert calls.labels == ["from -10", "from 10", "from 20"]
    assert harness.take() == [Batch([(1, 1)], [-1]), Batch([(1, 2)], [19]), Batch([(1, 4)], [29]), ("watermark", 29)]


def test_the_last_watermark_closes_everything(calls: Calls) -> None:
    """After the watermark that ends a bounded stream, `finish` has no rows left."""
    harness = operator_of(TENS)
    harness.process([1, 2], [5, 10**12])

    harness.watermark(MAX_TIMESTAMP_MS)
    harness.finish()

    assert calls.rows == [[1], [2]]


def test_finish_runs_open_periods_by_themselves(calls: Calls) -> None:
    """An end without a last watermark still runs each period, under its own name and with its own timestamp."""
    harness = operator_of(TENS)
    harness.process([2, 1], [15, 5])

    harness.finish()

    assert calls.labels == ["from 0", "from 10"]
    assert harness.take() == [Batch([(1, 1)], [9]), Batch([(1, 2)], [19])]


def test_months_are_the_calendars(calls: Calls) -> None:
    """A cut by a calendar period labels and closes batches by it."""
    harness = operator_of(event_time_cut("month"))
    january_ends_ms = 31 * DAY_MS
    harness.process([1, 2, 4], [0, january_ends_ms - 1, january_ends_ms])

    harness.watermark(january_ends_ms - 1)

    assert calls.batches == [("op: 1970-01", [1, 2])]


def test_a_function_without_results_emits_none(calls: Calls) -> None:
    """An empty result emits no record, and the watermark passes."""
    harness = operator_of(TENS, lambda rows: [])
    harness.process([1], [0])

    harness.watermark(9)

    assert harness.take_stamped() == []
    assert calls.rows == [[1]]


def test_idleness_passes() -> None:
    """Idleness concerns the operators downstream."""
    harness = operator_of(TENS)

    harness.operator.process_watermark_status(True)

    assert harness.take() == [("idle", True)]


# --- lateness ---------------------------------------------------------------------------------------------------


def test_late_rows_are_counted_and_sent_aside(calls: Calls) -> None:
    """A row of a period that has run is in no batch, but in the side output with its timestamp, and counted."""
    harness = operator_of(TENS)
    harness.process([1], [5])
    harness.watermark(9)
    harness.take()

    harness.process([2, 4, 8, 16], [9, 10, 0, 11])

    assert harness.take() == [(LATE_TAG, Batch([2, 8], [9, 0]))]
    assert harness.counter("numLateRecordsDropped") == 2
    harness.watermark(MAX_TIMESTAMP_MS)
    assert calls.rows == [[1], [4, 16]]


def test_a_period_without_rows_is_closed_too(calls: Calls) -> None:
    """A row is late once the watermark has passed its period. Results of an empty one left open would be late, too."""
    harness = operator_of(TENS)
    harness.watermark(9)
    harness.take()

    harness.process([1, 2], [9, 10])

    assert harness.take() == [(LATE_TAG, Batch([1], [9]))]
    harness.watermark(19)
    assert calls.rows == [[2]]


def test_a_period_the_watermark_has_not_passed_is_open(calls: Calls) -> None:
    """A row older than the watermark, whose period goes on, is in time: a batch takes all rows of its period."""
    harness = operator_of(TENS)
    harness.watermark(8)

    harness.process([1], [0])
    harness.watermark(9)

    assert calls.rows == [[1]]
    assert harness.counter("numLateRecordsDropped") == 0


# --- rows and barriers ------------------------------------------------------------------------------------------


def test_a_rows_cut_runs_as_soon_as_the_rows_are_there(calls: Calls) -> None:
    """Batches have exactly that many rows, in order; results have no event time, and watermarks pass."""
    harness = operator_of(rows_cut(3))
    harness.process([1, 2])
    assert calls.batches == []

    harness.process([4, 8, 16, 32, 64])
    harness.watermark(5)

    assert calls.batches == [("op: rows 1-3", [1, 2, 4]), ("op: rows 4-6", [8, 16, 32])]
    assert harness.take() == [Batch([(3, 7)]), Batch([(3, 56)]), ("watermark", 5)]


def test_what_remains_is_the_last_batch(calls: Calls) -> None:
    """`finish` runs the rows that did not fill a batch; without such rows it runs nothing."""
    harness = operator_of(rows_cut(2))
    harness.process([1, 2, 4])
    harness.finish()
    assert calls.batches == [("op: rows 1-2", [1, 2]), ("op: last rows", [4])]

    harness = operator_of(rows_cut(2))
    harness.process([1, 2])
    harness.finish()
    assert len(calls.batches) == 3


@given(st.lists(st.integers(0, 5), max_size=10), st.integers(1, 6))
def test_batches_of_rows_do_not_depend_on_how_rows_arrive(sizes: list[int], rows: int) -> None:
    """However the engine splits the stream into its own batches, Spark's are the same."""
    with without_spark() as calls:
        harness = operator_of(rows_cut(rows))
        sent = 0
        for size in sizes:
            harness.process(range(sent, sent + size))
            sent += size
        harness.finish()

    assert calls.rows == [list(range(start, min(start + rows, sent))) for start in range(0, sent, rows)]


def test_a_barrier_cut_ends_its_batch_before_the_barrier(calls: Calls) -> None:
    """Rows between two checkpoints are one batch; its results belong before the barrier, and no row waits."""
    harness = operator_of(barrier_cut())
    harness.process([1, 2])
    harness.process([4])
    assert calls.batches == []

    harness.operator.prepare_snapshot_pre_barrier(7)
    assert harness.take() == [Batch([(3, 7)])]
    checkpoint = harness.snapshot(7)
    harness.process([8])
    harness.finish()
    operator_of(barrier_cut(), restored=checkpoint).finish()

    assert calls.batches == [("op: before checkpoint 7", [1, 2, 4]), ("op: last rows", [8])]


def test_a_barrier_without_rows_makes_no_batch(calls: Calls) -> None:
    """An empty batch would cost a Spark job for nothing."""
    harness = operator_of(barrier_cut())

    harness.snapshot(1)
    harness.finish()

    assert (calls.batches, harness.take()) == ([], [])


# --- what a batch is told and what it costs ---------------------------------------------------------------------


def test_the_specification_reaches_the_batch(calls: Calls) -> None:
    """It has the schemas and the threshold of the specification."""
    specifications: list[dict[str, Any]] = [{}, {"result_schema": "n int", "parquet_threshold_rows": 3}]
    for options in specifications:
        harness = operator_of(rows_cut(1), **options)
        harness.process([1])

    same = {"schema": "value int", "period_column": None, "take": collect_canonical}
    assert calls.options == [
        {**same, "result_schema": None, "parquet_threshold_rows": DEFAULT_PARQUET_THRESHOLD_ROWS},
        {**same, "result_schema": "n int", "parquet_threshold_rows": 3},
    ]


def test_batches_and_rows_are_counted(calls: Calls) -> None:
    """The metrics say how many batches ran, on how many rows."""
    harness = operator_of(TENS)
    harness.process([1, 2, 4], [5, 15, 5])

    harness.watermark(100)

    assert (harness.counter("numSparkBatches"), harness.counter("numSparkRows")) == (2, 3)


@pytest.mark.parametrize(
    ("cost_ns", "spent_ns"), [(0, 0), (1_000, 2_000), (lambda rows: 10 + rows, 23), (lambda rows: 0, 0)]
)
def test_a_batch_takes_virtual_time(calls: Calls, cost_ns: Any, spent_ns: int) -> None:
    """Each batch is charged with its cost, constant or by its number of rows."""
    harness = operator_of(TENS, cost_ns=cost_ns)
    started_ns = harness.context.now_ns
    harness.process([1, 2, 4], [5, 15, 5])
    assert harness.context.now_ns == started_ns

    harness.watermark(100)

    assert harness.context.now_ns - started_ns == spent_ns


@pytest.mark.parametrize("answer", [-1, 0.5, None, True])
def test_a_cost_that_is_no_duration_is_an_error(calls: Calls, answer: object) -> None:
    """Time does not go back, and a cost has no fractions of a nanosecond."""
    harness = operator_of(rows_cut(2), cost_ns=lambda rows: answer)

    with pytest.raises(UserFunctionError, match=r"cost function of operator 'op' raised TypeError.*\n.*2 rows"):
        harness.process([1, 2])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fn": "select *"}, "fn= must be a function from DataFrame to DataFrame, not 'select"),
        ({"schema": ""}, "schema= must be a DDL string"),
        ({"schema": None}, "schema= must be a DDL string"),
        ({"cut": "month"}, r"cut= must be event_time_cut\(...\), .* not 'month'"),
        ({"cost_ns": -1}, "cost_ns= must be whole ns"),
        ({"cost_ns": 1.5}, "cost_ns= must be whole ns"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    """An argument of the wrong kind is named when the job is written; an invalid cut would never end a batch."""
    arguments: dict[str, Any] = {"fn": size_and_sum, "schema": "value int", "cut": TENS, **options}

    with pytest.raises(SparkBridgeError, match=problem):
        spark_transform(arguments.pop("fn"), **arguments)


# --- mistakes in the data and in functions ----------------------------------------------------------------------


def test_event_time_needs_timestamps(calls: Calls) -> None:
    """Rows without event time cannot be cut by it: the error says what the source lacks. Without rows, no error."""
    harness = operator_of(TENS)
    harness.process([])

    with pytest.raises(ConfigurationError, match=r"'op' works in event time.*no timestamps\n.*watermark strategy"):
        harness.process([1])


def test_overlapping_periods_are_an_error(calls: Calls) -> None:
    """A row that belongs to two batches belongs to none: the error names both periods."""

    def ten_and_five(timestamp_ms: int) -> Period:
        return tens_of(timestamp_ms) if timestamp_ms < 5 else Period(5, 15, "five")

    harness = operator_of(event_time_cut(ten_and_five))

    with pytest.raises(SparkBridgeError, match=r"(?s)op: .*label='from 0'.*overlaps.*label='five'"):
        harness.process([1, 2], [0, 12])


def test_periods_of_one_start_and_different_ends_are_an_error(calls: Calls) -> None:
    """The start alone would not show the overlap."""
    harness = operator_of(event_time_cut(lambda time_ms: Period(0, time_ms + 1, "so far")))

    with pytest.raises(SparkBridgeError, match="overlaps"):
        harness.process([1, 2], [4, 5])


def test_a_failing_period_function_is_the_users(calls: Calls) -> None:
    """The error names operator, function and record."""
    harness = operator_of(event_time_cut(lambda timestamp_ms: tens_of(1 // timestamp_ms)))

    with pytest.raises(UserFunctionError, match=r"period function of operator 'op' .*\n  record  77"):
        harness.process([77], [0])


def test_a_time_that_has_no_period_names_the_record(calls: Calls) -> None:
    """Nanoseconds taken for milliseconds: the error shows a row that has such a timestamp."""
    harness = operator_of(event_time_cut("month"))

    with pytest.raises(SparkBridgeError, match=r"op: event time 1357034400000000000 ms .*\n  record  77"):
        harness.process([5, 77], [0, 1_357_034_400_000_000_000])
