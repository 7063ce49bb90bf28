"""A Spark transform whose function takes all closed periods at once: one call per checkpoint, and the same records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from spark_bridge.cuts import Period, event_time_cut, rows_cut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.transform import LATE_TAG, spark_transform
from tests.operators.harness import Harness
from tests.spark_bridge.transforms import TENS, Calls, operator_of, without_spark

Row = dict[str, Any]


def sums(rows: Sequence[Row], *more: Row) -> list[Row]:
    """One row per period, and some more."""
    periods = dict.fromkeys(row["period"] for row in rows)
    made = [{"period": one, "sum": sum(row["value"] for row in rows if row["period"] == one)} for one in periods]
    return [*made, *more]


def at_once(fn: Any = sums, **options: Any) -> Harness:
    return operator_of(options.pop("cut", TENS), fn, period_column="period", **options)


def values(*numbers: int) -> list[Row]:
    return [{"value": number} for number in numbers]


def test_all_closed_periods_run_before_the_barrier(calls: Calls) -> None:
    """One call, whose rows have the label of their period; results leave without it, each with the last timestamp of
    its period."""
    harness = at_once()
    harness.process(values(1, 2, 4, 8), [5, 15, 3, 25])
    harness.watermark(9)
    harness.watermark(19)
    assert calls.batches == []

    harness.operator.prepare_snapshot_pre_barrier(1)

    labelled = [(1, "from 0"), (4, "from 0"), (2, "from 10")]
    assert calls.batches == [("op: from 0 to from 10", [{"value": v, "period": p} for v, p in labelled])]
    assert calls.options[0]["schema"] == "value int, period string"
    assert [one for one in harness.take() if isinstance(one, Batch)] == [
        Batch([{"sum": 5}], [9]),
        Batch([{"sum": 2}], [19]),
    ]
    assert (harness.counter("numSparkBatches"), harness.counter("numSparkRows")) == (1, 3)


def test_the_watermark_waits_for_the_results(calls: Calls) -> None:
    """Results would be late after a watermark that has reached their timestamp."""
    harness = at_once()
    harness.process(values(1, 2), [5, 15])
    for watermark_ms in (4, 12, 30):
        harness.watermark(watermark_ms)
    harness.operator.prepare_snapshot_pre_barrier(1)
    harness.watermark(31)

    watermarks = [4, 8, 8]
    results = [Batch([{"sum": 1}], [9]), Batch([{"sum": 2}], [19])]
    assert harness.take() == [*(("watermark", ms) for ms in watermarks), *results, ("watermark", 30), ("watermark", 31)]


def test_a_row_of_a_period_that_waits_is_late(calls: Calls) -> None:
    """When the function runs makes no difference to what is late."""
    harness = at_once()
    harness.process(values(1), [5])
    harness.watermark(9)
    harness.process(values(2), [6])
    harness.operator.prepare_snapshot_pre_barrier(1)

    assert (LATE_TAG, Batch(values(2), [6])) in harness.take()
    assert [row["value"] for row in calls.rows[0]] == [1]


@pytest.mark.parametrize("end", ["last watermark", "no last watermark"])
def test_the_end_runs_what_is_left_at_once(calls: Calls, end: str) -> None:
    """The last watermark waits for nothing."""
    harness = at_once()
    harness.process(values(1, 2), [5, 15])
    if end == "last watermark":
        harness.watermark(MAX_TIMESTAMP_MS)
        assert harness.take()[-1] == ("watermark", MAX_TIMESTAMP_MS)
    harness.finish()
    assert calls.labels == ["from 0 to from 10"]


def test_without_checkpoints_nothing_waits(calls: Calls) -> None:
    """No barrier would ever come."""
    spec = spark_transform(sums, schema="value int", cut=TENS, period_column="period")  # type: ignore[arg-type]
    harness = Harness(spec.create_operator(), checkpointing_enabled=False)
    harness.process(values(1), [5])
    harness.watermark(9)
    assert harness.take() == [Batch([{"sum": 1}], [9]), ("watermark", 9)]


def test_a_barrier_without_closed_periods_calls_nothing(calls: Calls) -> None:
    """No call, no record and no watermark."""
    harness = at_once()
    harness.process(values(1), [5])
    harness.operator.prepare_snapshot_pre_barrier(1)
    assert (calls.batches, harness.take()) == ([], [])


def test_sequences_get_the_period_as_their_last_value(calls: Calls) -> None:
    """Rows may be sequences; a value that is no row stays for the error that names it."""
    harness = at_once(lambda rows: [])
    harness.process([(1,), [2], "text"], [5, 5, 5])
    harness.watermark(MAX_TIMESTAMP_MS)
    assert calls.rows == [[(1, "from 0"), (2, "from 0"), "text"]]


def test_a_result_of_no_period_is_an_error(calls: Calls) -> None:
    """It has no timestamp, so it can go nowhere."""
    harness = at_once(lambda rows: sums(rows, {"period": "from 70", "sum": 9}))
    harness.process(values(1), [5])
    with pytest.raises(
        SparkBridgeError, match=r"op: a result has period='from 70', and the periods .* from 0\n.*'sum'"
    ):
        harness.watermark(MAX_TIMESTAMP_MS)


def test_periods_of_one_label_are_an_error(calls: Calls) -> None:
    """The column would not tell them apart."""
    harness = at_once(cut=event_time_cut(lambda ms: Period(ms // 10 * 10, ms // 10 * 10 + 10, f"hour {ms // 10 % 2}")))
    harness.process(values(1, 2, 4), [5, 15, 25])
    with pytest.raises(SparkBridgeError, match="op: several periods have the label 'hour 0'"):
        harness.watermark(MAX_TIMESTAMP_MS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"period_column": "two words"}, "period_column= must be the name of a column, not 'two words'"),
        ({"period_column": 7}, "period_column= must be the name of a column, not 7"),
        (
            {"cut": rows_cut(3)},
            r"period_column= must be left out: only event_time_cut\(...\) has periods, not 'period'",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    """Only event time has periods."""
    arguments: dict[str, Any] = {"schema": "value int", "cut": TENS, "period_column": "period", **options}
    with pytest.raises(SparkBridgeError, match=problem):
        spark_transform(lambda frame: frame, **arguments)


# A step is a batch of timestamps, how far the watermark advances, or a barrier.
steps = st.lists(st.one_of(st.lists(st.integers(-20, 60), max_size=5), st.integers(0, 25), st.none()), max_size=12)


@given(steps)
def test_records_are_those_of_one_call_per_period(script: list[list[int] | int | None]) -> None:
    """Whatever the barriers, and with a restore at each of them; and no record comes behind its watermark."""

    def played(**options: Any) -> list[Any]:
        harness, row, watermark_ms, events = operator_of(TENS, **options), 0, -20, []
        for number, step in enumerate(script):
            if step is None:
                checkpoint = harness.snapshot(number)
                events += harness.take()
                harness = operator_of(TENS, restored=checkpoint, **options)
            elif isinstance(step, int):
                watermark_ms += step
                harness.watermark(watermark_ms)
            else:
                harness.process(values(*range(row, row + len(step))), step)
                row += len(step)
        harness.watermark(MAX_TIMESTAMP_MS)
        return events + harness.take()

    with without_spark() as calls:
        singly = played(fn=lambda rows: [{"sum": sum(row["value"] for row in rows)}])
        single_calls = len(calls.batches)
        at_once = played(fn=sums, period_column="period")
        assert len(calls.batches) - single_calls <= sum(step is None for step in script) + 1
    passed_ms = -(10**9)
    for event in at_once:
        if isinstance(event, Batch):
            assert event.timestamps is not None
            assert min(event.timestamps) > passed_ms
        elif event[0] == "watermark":
            assert event[1] >= passed_ms
            passed_ms = event[1]
    for kind in (Batch, tuple):
        records = [[one for one in some if is_record(one, kind)] for some in (at_once, singly)]
        assert records[0] == records[1], "records, and then late rows"


def is_record(event: Any, kind: type) -> bool:
    return isinstance(event, kind) and (kind is Batch or event[0] == LATE_TAG)
