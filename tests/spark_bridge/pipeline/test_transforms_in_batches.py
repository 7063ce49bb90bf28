"""A Spark transform in a job in batches: the same periods, results and late rows as in the simulator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Lock

import pytest
from pyarrow import parquet

from engine import CollectionSource, FileSink, Job, UserFunctionError
from engine.checkpoint.restore import NoRestart
from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.runtime.config import CostModel
from engine.runtime.storage import open_storage
from spark_bridge.cuts import Cut, Period, barrier_cut, event_time_cut, rows_cut
from spark_bridge.errors import RowMisfitError, SparkBridgeError, SparkTransformError
from spark_bridge.pipeline import period_files, stage_function
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.batch_stages import BETWEEN_STAGES
from spark_bridge.pipeline.period_files import PeriodWriter
from spark_bridge.transform import CutRows, spark_transform
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.local_stages import LocalStages, is_portable
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated
from tests.spark_bridge.pipeline.transform_jobs import EVENTS, Row, key_sums, key_sums_by_period, period_sums
from tests.spark_bridge.transforms import Calls, unseen

BETWEEN = f"state/periods/{BETWEEN_STAGES}"


def expected(job: Job, tmp_path: Path) -> Counter[tuple[str, str]]:
    simulated(job, tmp_path / "undisturbed", config())
    return jobs.committed(tmp_path / "undisturbed" / "out")


def test_the_rows_are_those_of_the_simulator(calls: Calls, tmp_path: Path) -> None:
    """Of two transforms, one after the other, and of a window between: results come before their watermark."""
    stages = LocalStages(3)
    result, oracle = in_batches(period_sums(), tmp_path / "batches", config(), stages=stages)
    assert result.error is None, result.error
    rows = jobs.committed(tmp_path / "batches" / "out")
    assert rows == expected(period_sums(), tmp_path)
    assert stages.batches >= 3
    assert oracle.held
    assert {place for place, _ in rows} == {"sums", "again", "windows"}, "nothing is late"
    assert max(Counter(label for label, _ in stages.flow.periods).values()) == 1, "a function ran twice on a period"
    assert sum(count for label, count in stages.flow.periods if label.startswith("sums")) == len(EVENTS)
    assert result.counters["sums", 0]["numSparkRows"] == len(EVENTS), "the first pass counts nothing"


def test_a_function_takes_all_periods_of_a_batch_at_once(calls: Calls, tmp_path: Path) -> None:
    """It is called once in a batch, and the rows are those of a function that is called once per period; in the
    simulator, too."""
    job = period_sums(fn=key_sums_by_period, period_column="period")
    stages = LocalStages(2)
    result, _ = in_batches(job, tmp_path / "batches", config(300), stages=stages)
    assert result.error is None, result.error
    rows = jobs.committed(tmp_path / "batches" / "out")
    assert rows == expected(period_sums(), tmp_path)
    simulated(job, tmp_path / "simulated", config(300))
    assert jobs.committed(tmp_path / "simulated" / "out") == rows
    periods = [label for label, _ in stages.flow.periods if label.startswith("sums")]
    made = [label for label in stages.flow.calls if label.startswith("sums")]
    assert len(periods) == EVENTS[-1][0] // 100 + 1
    assert len(made) < len(periods) / 2
    assert made[0] == "sums: from 0 to from 200"


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_is_the_same_whatever_order_rows_and_results_come_in(
    calls: Calls, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both passes, with many blocks on a channel. The order within a file, too: results are sorted where they are
    read."""
    monkeypatch.setattr(stage_function, "_MOST_BYTES", 300)
    contents = []
    for drawn in (seed, seed + 10):
        directory = tmp_path / str(drawn)
        in_batches(period_sums(1), directory, config(), seed=drawn)
        contents.append([path.read_bytes() for path in sorted((directory / "out/sums").glob("part-*"))])
    assert contents[0], "no file was committed"
    assert contents[0] == contents[1]


def test_late_rows_leave_by_the_side_output(calls: Calls, tmp_path: Path) -> None:
    """With a bound of 0 the splits of the simulator and those of batches have other watermarks: every row is in a
    period or late."""
    job = period_sums(bound_ms=0, splits=1)
    result, _ = in_batches(job, tmp_path / "batches", config())
    assert result.error is None, result.error
    rows = jobs.committed(tmp_path / "batches" / "out")
    assert rows == expected(period_sums(bound_ms=0, splits=1), tmp_path)


@pytest.mark.parametrize("cut", [rows_cut(70), barrier_cut()], ids=["rows", "barrier"])
def test_other_cuts_run_as_well(calls: Calls, cut: Cut, tmp_path: Path) -> None:
    """Rows of one channel come in the same order as in the simulator; a barrier ends every batch."""
    stages = LocalStages()
    job = period_sums(1, cut=cut, splits=1)
    result, _ = in_batches(job, tmp_path, config(), stages=stages)
    assert result.error is None, result.error
    assert sum(rows for _, rows in stages.flow.periods) == len(EVENTS)
    if cut == barrier_cut():
        labels = [f"sums: before checkpoint {number}" for number in range(1, 5)]
        assert [label for label, _ in stages.flow.periods] == [*labels, "sums: last rows"]
    else:
        assert [rows for _, rows in stages.flow.periods] == [70] * 10 + [20]


# -- two worlds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_an_open_period_go_on_in_batches(calls: Calls, parallelism: int, tmp_path: Path) -> None:
    """They wait in the checkpoint of the simulator."""
    settings = config(restart=NoRestart())
    assert simulated(period_sums(), tmp_path / "run", settings, killed_at_ns=420_000).error is not None
    before = sum(len(rows) for rows in calls.rows)
    assert 0 < before < len(EVENTS)
    result, _ = in_batches(period_sums(parallelism), tmp_path / "run", config())
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id is not None
    assert jobs.committed(tmp_path / "run" / "out") == expected(period_sums(), tmp_path)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_an_open_period_go_on_in_the_simulator(calls: Calls, parallelism: int, tmp_path: Path) -> None:
    """And in batches once more: batches, simulator, batches."""
    in_batches(period_sums(), tmp_path / "run", config(100), stop_after=2)
    settings = config(100, restart=NoRestart())
    assert simulated(period_sums(parallelism), tmp_path / "run", settings, killed_at_ns=250_000).error is not None
    assert calls.rows, "no period was closed by the simulator"
    result, _ = in_batches(period_sums(), tmp_path / "run", config(100))
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "run" / "out") == expected(period_sums(), tmp_path)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_in_flight_to_a_transform_come_first(calls: Calls, parallelism: int, tmp_path: Path) -> None:
    """An unaligned checkpoint of the simulator holds some: both passes replay them."""
    options = {"cost": CostModel(record_ns=3_000), "batch_size": 20, "checkpoint_timeout_ns": 10**12}
    settings = config(100, mode="unaligned", restart=NoRestart(), **options)
    assert simulated(period_sums(), tmp_path / "run", settings, killed_at_ns=900_000).error is not None
    with open_storage(str(tmp_path / "run" / "state"), "periods") as opened:
        newest = opened.storage.read_metadata(opened.storage.list_checkpoints()[-1])
        assert list(newest.channel_state()), "no record was in flight"
    result, _ = in_batches(period_sums(parallelism), tmp_path / "run", config())
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "run" / "out") == expected(period_sums(), tmp_path)


# -- two passes -------------------------------------------------------------------------------------------------------


class Ends(Operator):
    """Counts how often it comes to its end."""

    times = 0

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch)

    def finish(self) -> None:
        Ends.times += 1


def test_an_operator_chained_to_a_transform_is_in_one_pass_only(calls: Calls, tmp_path: Path) -> None:
    """A sink would begin transactions and write twice."""
    job = Job("chained")
    events = job.source(CollectionSource([1]), name="events").map(lambda one: {"key": one, "time": one}, name="row")
    transform = spark_transform(key_sums, schema="key int, time int", cut=rows_cut(1))
    events.via(transform, name="sums").via(Ends, name="ends").sink(FileSink("sums"), uid="sink")
    assert any(len(vertex.operators) == 3 for vertex in job.plan().vertices), "nothing is chained"
    Ends.times = 0
    result, _ = in_batches(job, tmp_path, config())
    assert result.error is None, result.error
    assert Ends.times == 1


def test_a_transform_whose_input_has_ended_runs_no_more(calls: Calls, tmp_path: Path) -> None:
    """Another source goes on for several batches."""
    job = period_sums()
    job.source(CollectionSource(range(2_000), splits=1), name="long").sink(FileSink("long"), uid="long-sink")
    stages = LocalStages()
    result, _ = in_batches(job, tmp_path / "run", config(200), stages=stages)
    assert result.error is None, result.error
    assert stages.batches >= 10
    assert sum(count for label, count in stages.flow.periods if label.startswith("sums")) == len(EVENTS)


def test_a_large_period_is_stored_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part can go to another executor."""
    monkeypatch.setattr(period_files, "_PART_ROWS", 4)
    writer = PeriodWriter(str(tmp_path), 3, LocalStages().flow.schema("key int"))
    spec = spark_transform(key_sums, schema="key int", cut=rows_cut(9))
    assert writer(spec, "sums", [CutRows("rows 1-9", [[key] for key in range(9)])], unseen) == [()]
    (closed,) = writer.closed
    assert (closed.label, closed.rows, closed.subtask) == ("rows 1-9", 9, 3)
    parts = sorted(Path(closed.directory).iterdir())
    assert [parquet.read_table(part).column("key").to_pylist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_function_that_raises_names_the_period_and_commits_nothing_of_its_batch(tmp_path: Path) -> None:
    """The error of the simulator; no file is left between the stages."""

    def fussy(rows: list[Row]) -> list[Row]:
        if any(row["time"] == 504 for row in rows):
            raise ValueError("not this one")
        return key_sums(rows)

    result, _ = in_batches(period_sums(fn=fussy), tmp_path / "run", config(100))
    assert isinstance(result.error, SparkTransformError), result.error
    assert "Spark batch 'sums: from 500' failed" in str(result.error)
    assert not (tmp_path / "run" / BETWEEN).exists()
    good = period_sums(fn=key_sums)
    result, _ = in_batches(good, tmp_path / "run", config(100))
    assert result.error is None, result.error


def test_a_row_that_does_not_fit_is_an_error_with_operator_row_and_column(tmp_path: Path) -> None:
    """It is found where the rows are, by the rules of the simulator."""
    result, _ = in_batches(period_sums(schema="key string, time int"), tmp_path, config())
    assert isinstance(result.error, SparkBridgeError), result.error
    assert "column 'key': 0 of type int does not fit type string" in str(result.error)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"key": "4"}, "column 'key': '4' of type str does not fit type int32 (str is another type). Convert"),
        ({"kee": 4}, "missing ['key'], unknown ['kee']. Add, rename or drop them before the batch"),
    ],
)
def test_a_form_that_changes_between_periods_is_told_with_period_types_and_repair(
    row: Row, problem: str, tmp_path: Path
) -> None:
    """Rows of the first period fit, one of the second does not."""
    writer = PeriodWriter(str(tmp_path), 0, LocalStages().flow.schema("key int"))
    spec = spark_transform(key_sums, schema="key int", cut=rows_cut(9))
    writer(spec, "sums", [CutRows("2013-01", [{"key": 1}, {"key": 2}])], unseen)

    with pytest.raises(RowMisfitError) as caught:
        writer(spec, "sums", [CutRows("2013-02", [{"key": 3}, row])], unseen)

    assert str(caught.value).startswith("batch 'sums: 2013-02', row 1: ")
    assert problem in str(caught.value)


def test_no_function_runs_on_half_a_stage(tmp_path: Path) -> None:
    """A subtask before the transform has failed: its error is told, and the function gets no rows of the batch."""

    def picky(event: tuple[int, int, int]) -> Row:
        if event[0] == 1_204:
            raise ValueError("not this one")
        return {"key": event[1], "time": event[0]}

    stages = LocalStages()
    result, _ = in_batches(period_sums(row=picky, cut=rows_cut(9)), tmp_path, config(1_000), stages=stages)
    assert isinstance(result.error, UserFunctionError), result.error
    assert not stages.flow.periods


def test_a_period_function_that_depends_on_more_than_the_timestamp_is_found(tmp_path: Path) -> None:
    """Both passes must close the same periods."""
    calls = iter(range(10**9))
    cut = event_time_cut(lambda ms: Period(ms // 100 * 100, ms // 100 * 100 + 100, f"call {next(calls)}"))
    result, _ = in_batches(period_sums(cut=cut), tmp_path, config(1_000))
    assert isinstance(result.error, SparkBridgeError), result.error
    assert "must depend on the timestamp only" in str(result.error)


def test_a_function_does_not_travel(calls: Calls, tmp_path: Path) -> None:
    """It may hold DataFrames, which cannot, nor can this lock."""
    lock = Lock()

    def locked(rows: list[Row]) -> list[Row]:
        with lock:
            return key_sums(rows)

    stages = LocalStages()
    result, _ = in_batches(period_sums(fn=locked), tmp_path, config(), stages=stages)
    assert result.error is None, result.error
    assert stages.flow.orders
    assert all(map(is_portable, stages.flow.orders))


def test_a_cost_of_a_batch_plays_no_role(tmp_path: Path) -> None:
    """The clock of a batch stands: time that an operator spends would never pass."""
    result, _ = in_batches(period_sums(cost_ns=10**6), tmp_path, config())
    assert result.error is None, result.error


def test_files_of_a_process_that_has_died_are_deleted(tmp_path: Path) -> None:
    """Its executors may have written them at any time; nothing remains after a batch."""
    left = tmp_path / BETWEEN / "1-1-2" / "task-1" / "rows.arrow"

    def write(_driver: BatchDriver) -> None:
        left.parent.mkdir(parents=True)
        left.write_bytes(b"torn")

    result, _ = in_batches(period_sums(), tmp_path, config(), watch=write)
    assert result.error is None, result.error
    assert not (tmp_path / BETWEEN).exists()
