"""Results without a declared schema: those of every batch have the columns of the first one, or the job fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import JobFailedError
from spark_bridge.batch_function import run_batch
from spark_bridge.errors import SparkBridgeError, SparkTransformError
from tests.operators.harness import Harness
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated
from tests.spark_bridge.pipeline.transform_jobs import Row, key_sums, period_sums
from tests.spark_bridge.test_transform_in_jobs import run_numbers
from tests.spark_bridge.transforms import TENS, Calls, operator_of


def results(*rows: Row) -> Any:
    """A function that gives a row in each of its calls."""
    left = iter(rows)
    return lambda _: [next(left)]


def run_periods(harness: Harness, *periods: int) -> None:
    for period in periods:
        harness.process([period], [10 * period])
        harness.watermark(10 * period + 9)


@pytest.mark.parametrize(
    ("second", "changes"),
    [
        ({"x": "1", "y": 2}, "column 'x' is str, and was int"),
        ({"x": 1}, "column 'y' is missing, and was int"),
        ({"x": 1, "y": 2, "z": 0.5}, "column 'z' is new: float"),
        ({"y": 2, "x": 1}, "their order is y, x, and was x, y"),
    ],
    ids=["type", "fewer", "more", "order"],
)
@pytest.mark.parametrize("is_restored", [False, True], ids=["in one attempt", "over a restore"])
def test_other_columns_are_refused(calls: Calls, second: Row, changes: str, is_restored: bool) -> None:
    """With the first batch, the column, both types and the ways out."""
    fn = results({"x": 1, "y": 2}, {"x": 3, "y": 4}, second)
    harness = operator_of(TENS, fn)
    run_periods(harness, 0, 1)
    if is_restored:
        harness = operator_of(TENS, fn, restored=harness.snapshot(1))
    with pytest.raises(SparkBridgeError) as caught:
        run_periods(harness, 2)
    declared = ", ".join(f"{name} {type(value).__name__}" for name, value in second.items())
    assert str(caught.value) == (
        f"it returned other columns than for batch 'from 0', the first one:\n  {changes}\n"
        "  fix: select and cast the columns at the end of the function, so that every batch has the same; to go"
        f" on with the new ones, declare result_schema={declared!r}"
    )


def test_a_declared_schema_is_the_only_one(calls: Calls) -> None:
    """It is checked by itself, and no first columns are kept."""
    fn = results({"x": 1}, {"x": "1"})
    harness = operator_of(TENS, fn)
    run_periods(harness, 0)
    harness = operator_of(TENS, fn, restored=harness.snapshot(1), result_schema="x string")
    run_periods(harness, 1)
    assert calls.options[-1]["result_schema"] == "x string"


def test_the_columns_are_in_the_fingerprint(calls: Calls) -> None:
    """Two operators that refuse different results are not the same."""

    def after(row: Row) -> object:
        harness = operator_of(TENS, results(row))
        run_periods(harness, 0)
        return harness.operator.fingerprint()

    assert after({"x": 1}) == after({"x": 2})
    assert after({"x": 1}) != after({"x": "1"})


def test_columns_that_change_fail_a_job_in_batches_and_between_worlds(calls: Calls, tmp_path: Path) -> None:
    """What the simulator has seen first holds for batches on Spark; the error names operator and period."""

    def drifting(rows: list[Row]) -> list[Row]:
        return [{**one, "sum": str(one["sum"])} for one in key_sums(rows)]

    in_batches(period_sums(), tmp_path, config(400), stop_after=1)
    failed = simulated(period_sums(fn=drifting), tmp_path, config(100))
    assert "column 'sum' is str, and was int" in str(failed.error)
    failed, _ = in_batches(period_sums(fn=drifting), tmp_path, config(100))
    assert isinstance(failed.error, SparkTransformError), failed.error
    assert "Spark batch 'sums: from " in str(failed.error)
    assert "column 'sum' is str, and was int" in str(failed.error)
    result, _ = in_batches(period_sums(), tmp_path, config(100))
    assert result.error is None, result.error
    simulated(period_sums(), tmp_path / "undisturbed", config(100))
    assert jobs.committed(tmp_path / "out") == jobs.committed(tmp_path / "undisturbed" / "out")


def test_spark_tells_the_columns_before_it_computes_them(spark: Any) -> None:
    """Names and types of Spark, without the column of periods; an error names function and batch."""
    seen: list[Any] = []

    def see(columns: Any) -> None:
        seen.append(columns)
        raise SparkBridgeError("other columns")

    def fn(frame: Any) -> Any:
        return frame.selectExpr("'a' AS p", "raise_error('computed') AS x", "array(k) AS y")

    with pytest.raises(SparkTransformError, match=r"(?s)batch 'b' failed in .*fn .*:\n  other columns$"):
        run_batch(fn, [(1,)], "k int", label="b", period_column="p", see=see)
    assert seen == [[("x", "void"), ("y", "array<int>")]]


def test_a_job_on_spark_itself_refuses_other_columns(spark: Any) -> None:
    """The types are those of Spark."""

    def drifting(frame: Any) -> Any:
        late = frame.selectExpr("min(number) >= 20").first()[0]
        return frame.selectExpr("sum(number) AS sum" if not late else "string(sum(number)) AS sum")

    with pytest.raises(JobFailedError, match="number-sums") as caught:
        run_numbers(drifting)
    assert "column 'sum' is string, and was bigint" in str(caught.value.__cause__)
    assert isinstance(caught.value.__cause__, SparkTransformError)
