"""The stream operator around a Spark batch: which rows make a batch, when it runs, what a failure leaves of it.

Most of these claims are about rows, time and state, so a Python function stands where Spark would run; the last ones
run a job on Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError, JobGraphError, UserFunctionError
from engine.graph.job import Job
from engine.runtime.execution import ExecutionResult
from operators.sinks import CollectedResults
from operators.sources import SequenceSource
from operators.watermarks import WatermarkStrategy
from spark_bridge import transform
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS
from spark_bridge.cuts import Cut, Period, barrier_cut, event_time_cut, rows_cut
from spark_bridge.errors import SparkBridgeError, SparkTransformError
from spark_bridge.transform import LATE_TAG, SparkTransform, spark_transform
from tests.operators.harness import Checkpoint, Harness
from tests.runtime.support import US, every, run

DAY_MS = 86_400_000


def tens_of(timestamp_ms: int) -> Period:
    """Periods of ten milliseconds."""
    start_ms = timestamp_ms // 10 * 10
    return Period(start_ms, start_ms + 10, f"from {start_ms}")


TENS = event_time_cut(tens_of)


class Calls:
    """Stands in for ``run_batch``: calls the function on the list of rows and writes the call down."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[Any]]] = []
        self.options: list[dict[str, Any]] = []

    def __call__(self, fn: Callable[[list[Any]], list[Any]], rows: list[Any], schema: str, **options: Any) -> list[Any]:
        """Label and rows of one batch, then its results."""
        self.batches.append((options.pop("label"), list(rows)))
        self.options.append({"schema": schema, **options})
        return fn(rows)

    @property
    def labels(self) -> list[str]:
        """The labels so far, without the operator's name."""
        return [label.removeprefix("op: ") for label, _ in self.batches]

    @property
    def rows(self) -> list[list[Any]]:
        """The rows of each batch so far."""
        return [rows for _, rows in self.batches]


@contextmanager
def without_spark() -> Iterator[Calls]:
    """Batches run in Python inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        calls = Calls()
        patch.setattr(transform, "run_batch", calls)
        yield calls


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Batches run in Python, and are written down."""
    with without_spark() as made:
        yield made


def size_and_sum(rows: list[Any]) -> list[Any]:
    """One result per batch."""
    return [(len(rows), sum(rows))]


def spec(cut: Cut, fn: Any = size_and_sum, **options: Any) -> SparkTransform:
    return spark_transform(fn, schema="value int", cut=cut, **options)


def operator_of(cut: Cut, fn: Any = size_and_sum, *, restored: Checkpoint | None = None, **options: Any) -> Harness:
    return Harness(spec(cut, fn, **options).create_operator(), restored=restored)


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
    """Results carry the last timestamp of their period: behind the watermark they would be late downstream."""
    harness = operator_of(TENS, lambda rows: [*rows, sum(rows)])
    harness.process([1, 2, 4], [3, 0, 9])

    harness.watermark(14)

    assert harness.take() == [Batch([1, 2, 4, 7], [9, 9, 9, 9]), ("watermark", 14)]


def test_periods_run_oldest_first(calls: Calls) -> None:
    """One watermark that closes several periods runs them in the order of time, whatever the order of rows was."""
    harness = operator_of(TENS)
    harness.process([4, 1, 2, 8], [25, -5, 15, 35])

    harness.watermark(29)

    assert calls.labels == ["from -10", "from 10", "from 20"]
    assert harness.take() == [Batch([(1, 1)], [-1]), Batch([(1, 2)], [19]), Batch([(1, 4)], [29]), ("watermark", 29)]


def test_the_last_watermark_closes_everything(calls: Calls) -> None:
    """The watermark that ends a bounded stream leaves nothing for `finish`."""
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
    """An empty result is no record, and the watermark passes."""
    harness = operator_of(TENS, lambda rows: [])
    harness.process([1], [0])

    harness.watermark(9)

    assert harness.take_stamped() == []
    assert calls.rows == [[1]]


def test_idleness_passes() -> None:
    """Whether the stream is idle concerns who comes next."""
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
    """Late is what the watermark has passed. Were an empty period still open, its results would be late themselves."""
    harness = operator_of(TENS)
    harness.watermark(9)
    harness.take()

    harness.process([1, 2], [9, 10])

    assert harness.take() == [(LATE_TAG, Batch([1], [9]))]
    harness.watermark(19)
    assert calls.rows == [[2]]


def test_a_period_the_watermark_has_not_passed_is_open(calls: Calls) -> None:
    """A row behind the watermark whose period goes on is in time: a batch takes all rows of its period."""
    harness = operator_of(TENS)
    harness.watermark(8)

    harness.process([1], [0])
    harness.watermark(9)

    assert calls.rows == [[1]]
    assert harness.counter("numLateRecordsDropped") == 0


def test_what_was_late_stays_late_after_a_restore(calls: Calls) -> None:
    """The watermark is state: a row of a period that ran before the cut makes no second batch of that period."""
    harness = operator_of(TENS)
    harness.process([1], [5])
    harness.watermark(9)

    restored = operator_of(TENS, restored=harness.snapshot(1))
    restored.process([2], [5])
    restored.watermark(3)

    assert restored.take() == [(LATE_TAG, Batch([2], [5])), ("watermark", 9)]
    restored.finish()
    assert calls.rows == [[1]]


# --- state ------------------------------------------------------------------------------------------------------

# A step is a batch of timestamps, or how far the watermark advances. A row is its own number.
steps = st.lists(st.one_of(st.lists(st.integers(-20, 60), max_size=5), st.integers(0, 25)), max_size=12)


def play(harness: Harness, script: Sequence[list[int] | int], first_row: int, watermark_ms: int) -> tuple[int, int]:
    """Feed steps; returns the number of the next row and the watermark."""
    for step in script:
        if isinstance(step, int):
            watermark_ms += step
            harness.watermark(watermark_ms)
        else:
            harness.process(range(first_row, first_row + len(step)), step)
            first_row += len(step)
    return first_row, watermark_ms


def run_in_parts(cut: Cut, parts: Sequence[Sequence[list[int] | int]]) -> tuple[list[tuple[str, list[Any]]], list[Any]]:
    """The batches and the output of a script that is snapshotted and restored between its parts."""
    with without_spark() as calls:
        row, watermark_ms, output, checkpoint = 0, -20, [], None
        for number, part in enumerate(parts):
            harness = operator_of(cut, restored=checkpoint)
            row, watermark_ms = play(harness, part, row, watermark_ms)
            checkpoint = harness.snapshot(number)
            output += harness.take()
        harness.watermark(MAX_TIMESTAMP_MS)
        harness.finish()
        return calls.batches, output + harness.take()


def batches_by_hand(script: Sequence[list[int] | int]) -> tuple[list[tuple[str, list[int]]], list[int]]:
    """What an event-time cut means: the batches in order, and the late rows. Closes periods one millisecond at a
    time."""
    row, watermark_ms, batches, late = 0, -20, [], []
    waiting: dict[int, list[int]] = {}
    for step in [*script, 200]:
        if isinstance(step, int):
            for now_ms in range(watermark_ms + 1, watermark_ms + step + 1):
                if now_ms % 10 == 9 and now_ms - 9 in waiting:
                    batches.append((f"op: from {now_ms - 9}", waiting.pop(now_ms - 9)))
            watermark_ms += step
        else:
            for timestamp_ms in step:
                period_ms = timestamp_ms - timestamp_ms % 10
                (late if period_ms + 9 <= watermark_ms else waiting.setdefault(period_ms, [])).append(row)
                row += 1
    return batches, late


@given(steps)
def test_batches_are_those_of_the_definition(script: list[list[int] | int]) -> None:
    """Each row is in exactly one batch, that of its period, or late: as a model says that knows no batches."""
    batches, output = run_in_parts(TENS, [[0, *script]])

    sent_aside = [
        value for event in output if isinstance(event, tuple) and event[0] == LATE_TAG for value in event[1].values
    ]
    assert (batches, sent_aside) == batches_by_hand(script)


@pytest.mark.parametrize("cut", [TENS, rows_cut(4)], ids=["event time", "rows"])
@given(script=steps, data=st.data())
def test_a_restore_anywhere_changes_no_batch(cut: Cut, script: list[list[int] | int], data: st.DataObject) -> None:
    """Snapshots and restores at any points leave batches, labels, results and late rows as they were."""
    points = sorted(data.draw(st.lists(st.integers(0, len(script)), max_size=3)))
    parts = [script[start:end] for start, end in pairwise([0, *points, len(script)])]

    assert run_in_parts(cut, parts) == run_in_parts(cut, [script])


def test_rows_wait_in_state(calls: Calls) -> None:
    """Every kind of row comes back as it was, with the name of its period."""
    rows: list[Any] = [{"carrier": "UA", "delay": None}, ["UA", 1.5], ("UA", 2), "text", 7]
    harness = operator_of(TENS, lambda rows: [])
    harness.process(rows, [5] * len(rows))
    checkpoint = harness.snapshot(1)
    harness.process([8], [5])

    restored = operator_of(TENS, lambda rows: [], restored=checkpoint)
    restored.watermark(9)

    assert calls.batches == [("op: from 0", rows)]


def test_no_batch_runs_at_a_barrier(calls: Calls) -> None:
    """A checkpoint is no end of a batch, unless the cut says so."""
    for cut in (TENS, rows_cut(4)):
        harness = operator_of(cut)
        harness.process([1, 2], [0, 0])
        harness.snapshot(1)

    assert calls.batches == []


def test_fingerprints_tell_states_apart(calls: Calls) -> None:
    """Equal histories have equal fingerprints; a row, a watermark or a batch more makes another one."""

    def after(*script: list[int] | int, cut: Cut = TENS) -> object:
        harness = operator_of(cut)
        play(harness, script, 0, -20)
        return harness.operator.fingerprint()

    assert after([5]) == after([5])
    different = [after(), after([5]), after([5, 5]), after([15]), after([5], 1), after([5], 30)]
    assert len(set(different)) == len(different)
    assert after([5] * 4, cut=rows_cut(4)) != after(cut=rows_cut(4))


# --- rows and barriers ------------------------------------------------------------------------------------------


def test_a_rows_cut_runs_as_soon_as_the_rows_are_there(calls: Calls) -> None:
    """Batches of exactly that many rows, in order; results have no event time, and watermarks pass."""
    harness = operator_of(rows_cut(3))
    harness.process([1, 2])
    assert calls.batches == []

    harness.process([4, 8, 16, 32, 64])
    harness.watermark(5)

    assert calls.batches == [("op: rows 1-3", [1, 2, 4]), ("op: rows 4-6", [8, 16, 32])]
    assert harness.take() == [Batch([(3, 7)]), Batch([(3, 56)]), ("watermark", 5)]


def test_what_remains_is_the_last_batch(calls: Calls) -> None:
    """`finish` runs the rows that did not fill a batch; when there are none, nothing."""
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


def test_the_numbers_of_batches_survive_a_restore(calls: Calls) -> None:
    """Batches are numbered through, so a message names the same rows in every attempt."""
    harness = operator_of(rows_cut(2))
    harness.process([1, 2, 4, 8, 16])

    restored = operator_of(rows_cut(2), restored=harness.snapshot(1))
    restored.process([32])

    assert calls.labels == ["rows 1-2", "rows 3-4", "rows 5-6"]
    assert calls.rows[-1] == [16, 32]


def test_a_barrier_cut_ends_its_batch_before_the_barrier(calls: Calls) -> None:
    """What came between two checkpoints is one batch; its results belong before the barrier, and no row waits."""
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
    """Schemas and threshold are those of the specification."""
    for options in ({}, {"result_schema": "n int", "parquet_threshold_rows": 3}):
        harness = operator_of(rows_cut(1), **options)
        harness.process([1])

    assert calls.options == [
        {"schema": "value int", "result_schema": None, "parquet_threshold_rows": DEFAULT_PARQUET_THRESHOLD_ROWS},
        {"schema": "value int", "result_schema": "n int", "parquet_threshold_rows": 3},
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
    """Time does not go back, and has no fractions of a nanosecond."""
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
    """An argument of the wrong kind is named when the job is written; a cut that is none would never end a batch."""
    arguments: dict[str, Any] = {"fn": size_and_sum, "schema": "value int", "cut": TENS, **options}

    with pytest.raises(SparkBridgeError, match=problem):
        spark_transform(arguments.pop("fn"), **arguments)


# --- mistakes in the data and in functions ----------------------------------------------------------------------


def test_event_time_needs_timestamps(calls: Calls) -> None:
    """Rows without event time cannot be cut by it: the error says what the source lacks. No row, no error."""
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
    """The same, where the start alone would not tell."""
    harness = operator_of(event_time_cut(lambda time_ms: Period(0, time_ms + 1, "so far")))

    with pytest.raises(SparkBridgeError, match="overlaps"):
        harness.process([1, 2], [4, 5])


@pytest.mark.parametrize(
    ("before", "after"),
    [(event_time_cut("month"), event_time_cut("day")), (rows_cut(9), event_time_cut("day")), (TENS, rows_cut(9))],
    ids=["month to day", "rows to day", "event time to rows"],
)
def test_a_changed_cut_does_not_tear_batches_apart(calls: Calls, before: Cut, after: Cut) -> None:
    """Rows that wait under one cut and rows that come under another are no batch of either."""
    harness = operator_of(before)
    harness.process([1], [5])

    restored = operator_of(after, restored=harness.snapshot(1))

    with pytest.raises(SparkBridgeError, match=r"overlaps.*after a change of the cut, give the operator another uid"):
        restored.process([2], [7])


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


# --- in a job ---------------------------------------------------------------------------------------------------

EACH = 45


def number_sums(into: CollectedResults, fn: Any, **options: Any) -> Job:
    """Two splits, each with one number per millisecond of event time, cut into periods of ten milliseconds."""
    job = Job("number-sums", parallelism=2)
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda number: number % EACH).with_interval_ns(7 * US)
    numbers = job.source(SequenceSource(0, 2 * EACH, splits=2), name="numbers", watermarks=watermarks)
    rows = numbers.map(lambda number: [number, number % 3], name="row")
    sums = rows.via(spark_transform(fn, schema="number int, rest int", cut=TENS, **options), name="sums")
    return sums.collect(into, name="out", parallelism=1)


def run_numbers(
    fn: Any, *, kills: Sequence[tuple[str, int]] = (), seed: int = 0, **options: Any
) -> tuple[ExecutionResult, list[Any]]:
    """One run that must end well, and what it committed."""
    results = CollectedResults()
    job = number_sums(results, fn, **options)
    result = run(job, kills=kills, seed=str(seed), batch_size=4, checkpoint_interval=every(ns=11 * US))
    return result, results.records


def sums_in_python(rows: list[list[int]]) -> list[dict[str, int]]:
    """Count and sum of the numbers with each rest, in canonical order."""
    return [
        {"rest": rest, "count": len(numbers), "sum": sum(numbers)}
        for rest in range(3)
        if (numbers := [number for number, found in rows if found == rest])
    ]


def expected_sums() -> list[dict[str, int]]:
    """The right answer, period by period."""
    rows = [[[n, n % 3] for n in range(2 * EACH) if n % EACH // 10 == period] for period in range(5)]
    return [result for period in rows for result in sums_in_python(period)]


def test_a_period_of_all_splits_is_one_batch(calls: Calls) -> None:
    """Rows of all subtasks meet in one subtask, whatever the job's parallelism, and nothing is late."""
    result, committed = run_numbers(sums_in_python)

    assert committed == expected_sums()
    assert [len(rows) for rows in calls.rows] == [20, 20, 20, 20, 10]
    assert [task.name for task in result.tasks if "sums" in task.name] == ["sums -> out[0]"]


@pytest.mark.parametrize("target", ["sums", "numbers[1]", "out"])
def test_a_kill_at_any_time_changes_no_result(calls: Calls, target: str) -> None:
    """Killed where it hurts, the job commits each period's results once, in the order of periods."""
    restored = set()
    for at_us in range(8, 48, 5):
        result, committed = run_numbers(sums_in_python, kills=[(target, at_us * US)], seed=at_us)
        assert committed == expected_sums()
        assert result.attempts == 2
        restored.add(result.restores[1].checkpoint_id)

    assert len(restored) > 2, "the kills struck before, between and after checkpoints"


def test_the_cost_of_a_batch_delays_the_job(calls: Calls) -> None:
    """Five batches of a millisecond each make the run at least that much longer, and change nothing else."""
    free, committed = run_numbers(sums_in_python)
    dear, committed_later = run_numbers(sums_in_python, cost_ns=1_000 * US)

    assert committed_later == committed
    assert dear.ended_ns - dear.started_ns >= free.ended_ns - free.started_ns + 4_000 * US


def test_a_job_cannot_ask_for_more_subtasks(calls: Calls) -> None:
    """A batch holds all rows of its cut, so there is one subtask, and asking for more is refused."""
    stream = Job("j").source(SequenceSource(0, 1), name="numbers")

    with pytest.raises(JobGraphError, match="demands parallelism=1, the call asks for parallelism=2"):
        stream.via(spec(TENS), parallelism=2)


def test_operators_are_named_after_their_function() -> None:
    """Without a name, the function's is taken, even that of a function without one."""
    assert spec(TENS).name == "size_and_sum"
    assert spec(TENS, name="mine").name == "mine"
    job = Job("j")
    job.source(SequenceSource(0, 1), name="numbers").via(spec(rows_cut(1), lambda frame: frame)).collect([])
    assert len(job.plan().subtasks) >= 1


def sums_on_spark(frame: Any) -> Any:
    """The same as ``sums_in_python``, as a DataFrame function."""
    return frame.groupBy("rest").agg({"*": "count", "number": "sum"}).toDF("rest", "count", "sum")


def test_a_job_on_spark_survives_a_kill(spark: Any) -> None:
    """On Spark itself: killed in the middle and restored from a checkpoint, the job commits what it should."""
    undisturbed, expected = run_numbers(sums_on_spark, result_schema="rest int, count bigint, sum bigint")
    killed, committed = run_numbers(sums_on_spark, kills=[("sums", 30 * US)], parquet_threshold_rows=20)

    assert committed == expected == expected_sums()
    assert undisturbed.attempts == 1
    assert killed.restores[1].checkpoint_id is not None


def test_a_failing_batch_fails_the_job_with_its_name(spark: Any) -> None:
    """The job's error leads to the batch, the function and Spark's reason."""
    with pytest.raises(Exception, match="number-sums") as caught:
        run_numbers(lambda frame: frame.select("nothing"))

    cause = caught.value.__cause__
    assert isinstance(cause, SparkTransformError)
    assert cause.label == "sums: from 0"
