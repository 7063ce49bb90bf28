"""``spark_source``: each row of a DataFrame once, with its types, from any position; other rows are refused."""

from __future__ import annotations

import datetime
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from engine import CollectedResults, CollectionSource, FileSink, Job, TumblingEventTimeWindows, WatermarkStrategy
from engine.checkpoint.restore import NoRestart
from engine.elements.errors import ConfigurationError, JobChangedError, JobGraphError
from operators.sources import SpoutSource
from spark_bridge import session, spark_source
from spark_bridge.batch_function import run_batch
from spark_bridge.crossing import RowSchema, arrow_table, rows_on_spark
from spark_bridge.errors import PySparkMissingError, SparkBridgeError
from spark_bridge.frames import FrameSource, frame_rows, frame_source
from spark_bridge.pipeline.batch_stages import FRAMES
from state_backends.base import CorruptStateError, check_shape
from tests.operators.sources.test_in_memory import SourceWorld, drain
from tests.runtime.support import US, every, run
from tests.spark_bridge.frames import Frame, numbers_of, readings, source_of_frame
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.local_stages import LocalStages, is_portable
from tests.spark_bridge.pipeline.runs import config, in_batches, simulated
from tests.spark_bridge.test_crossing_properties import Typed, _or_none, is_kept, types

COUNT = 60


def rows_of(source: FrameSource, size: int = 3) -> list[Any]:
    world = SourceWorld()
    return [row for split in source.splits(world) for row in drain(source.open_split(split, None, world), size)]


# -- rows and positions -----------------------------------------------------------------------------------------------


def _table(columns: Sequence[Typed], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    fields = [("id", pa.int32()), *((f"c{number}", kind[1]) for number, kind in enumerate(columns))]
    return arrow_table([(number, *row) for number, row in enumerate(rows)], RowSchema("", None, pa.schema(fields)))


@settings(max_examples=40)
@given(st.data())
def test_each_row_comes_once_with_its_types_from_any_position(data: st.DataObject) -> None:
    """Every attempt opens the splits anew, where the one before has stopped, over rows in another order."""
    columns = data.draw(st.lists(types, min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(_or_none(kind[2]) for kind in columns)), max_size=8))
    table, splits = _table(columns, rows), data.draw(st.integers(1, 3))
    found: list[Any] = []
    positions: dict[str, Any] = {}
    world = SourceWorld()
    for seed in range(30):
        source = source_of_frame(table, splits=splits, seed=seed)
        ids = source.splits(world)
        source.refuse_changed_splits(positions, ids, world)
        for split in ids:
            reader = source.open_split(split, positions.get(split), world)
            found += batch.values if (batch := reader.read(data.draw(st.integers(1, 4)))) is not None else []
            positions[split] = reader.position()
    returned = sorted(found, key=lambda row: row["id"])
    assert [row["id"] for row in returned] == list(range(len(rows)))
    for sent, back in zip(rows, returned, strict=True):
        assert is_kept(list(sent), list(back.values())[1:]), (sent, back)


def test_the_order_is_that_of_the_named_columns_first() -> None:
    """Then that of the others; without names that of all columns."""
    table = pa.table({"a": [1, 1, 2, 2], "b": ["y", "x", "x", "y"]})
    assert rows_of(source_of_frame(table)) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert [row["a"] for row in rows_of(source_of_frame(table, order_by=["b"]))] == [1, 2, 1, 2]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo"), pa.int64()])
def test_event_times_are_whole_ms(kind: pa.DataType) -> None:
    """Also before 1970, where a rest is rounded down; the column stays in the record."""
    unit = 1 if kind == pa.int64() else 1_000
    table = pa.table({"at": pa.array([-2 * unit, 5 * unit], kind)})
    if unit > 1:
        table = pa.table({"at": pa.array([-1_001, 5_999], kind)})
    source, world = source_of_frame(table, timestamps="at"), SourceWorld()
    batch = source.open_split(source.splits(world)[0], None, world).read(9)
    assert batch is not None
    assert batch.timestamps == [-2, 5]
    if unit > 1:
        assert batch.values[1] == {"at": datetime.datetime(1970, 1, 1, 0, 0, 0, 5_999, datetime.UTC)}


def test_a_row_without_an_event_time_is_an_error() -> None:
    """It names source, column and row."""
    source, world = source_of_frame(pa.table({"at": [3, None], "n": [1, 2]}), timestamps="at"), SourceWorld()
    with pytest.raises(SparkBridgeError, match=r"source 'numbers': column 'at' .* is null in row \{'at': None, 'n': 2"):
        source.open_split(source.splits(world)[0], None, world).read(9)


# -- rows that change -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "now",
    [
        readings(COUNT, changed=COUNT - 1),
        readings(COUNT + 1),
        readings(COUNT - 1),
        readings(COUNT).set_column(0, "number", readings(COUNT).column(0).cast(pa.int32())),
        readings(COUNT).rename_columns(["numero", "at"]),
    ],
    ids=["value", "more", "fewer", "type", "name"],
)
def test_other_rows_are_refused(now: pa.Table) -> None:
    """Wherever they are: a row before the position shifts all others. The error names splits, rows and ways out."""
    world = SourceWorld()
    before = source_of_frame(readings(COUNT), splits=2).splits(world)
    source = source_of_frame(now, splits=2)
    with pytest.raises(JobChangedError) as caught:
        source.refuse_changed_splits(before, source.splits(world), world)
    assert "source 'numbers': its DataFrame has other rows" in str(caught.value)
    assert re.search(r"splits then  .*frame-[01]-of-2-30-rows-[0-9a-f]{16}\n  splits now   ", str(caught.value))
    assert "df.write.parquet(PATH)" in str(caught.value)


def test_the_digest_is_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those after the first piece of a large table, and it does not depend on the pieces."""
    world = SourceWorld()

    def ids(changed: int | None = None) -> Sequence[str]:
        return source_of_frame(readings(COUNT, changed=changed)).splits(world)

    whole = ids()
    monkeypatch.setattr(frame_rows, "_DIGESTED_ROWS", 7)
    assert ids() == whole
    assert len({*whole, *ids(3), *ids(8), *ids(COUNT - 1)}) == 4


def test_of_many_splits_some_are_shown() -> None:
    """The error stays readable."""
    world = SourceWorld()
    before, source = source_of_frame(readings(COUNT), splits=6).splits(world), source_of_frame(readings(4))
    with pytest.raises(JobChangedError, match=r"splits then  (frame-\d-of-6-10-rows-\w+, ){4}and 2 more\n") as caught:
        source.refuse_changed_splits(before, source.splits(world), world)
    assert re.search(r"splits now   frame-0-of-1-4-rows-\w+\n", str(caught.value))


def test_another_number_of_splits_is_refused() -> None:
    """Row i would be in another one."""
    world = SourceWorld()
    source = source_of_frame(readings(COUNT), splits=3)
    before = source_of_frame(readings(COUNT), splits=2).splits(world)
    with pytest.raises(JobChangedError, match="with the same splits="):
        source.refuse_changed_splits(before, source.splits(world), world)


def test_a_position_that_is_not_there_is_refused() -> None:
    """Such as one of a checkpoint whose file was edited; the end is there."""
    source, world = source_of_frame(readings(3)), SourceWorld()
    (split,) = source.splits(world)
    assert source.open_split(split, 3, world).read(9) is None
    with pytest.raises(JobChangedError, match=r"had come to position 4 of split .*, which goes from 0 to 3 now"):
        source.open_split(split, 4, world)
    with pytest.raises(CorruptStateError, match="position should be a number of at least 0, and is '3'"):
        check_shape("3", source.position_shape, "f", "position")


# -- on executors -----------------------------------------------------------------------------------------------------


def test_executors_get_files_and_nothing_else(tmp_path: Path) -> None:
    """No DataFrame, and no rows in memory, which would travel with every task; files are written once, to a new place:
    a worker of a dead driver may have the old ones mapped."""
    source = source_of_frame(readings(5_000), splits=2)
    assert len(pickle.dumps(source.on_executors("rows", None))) < 300
    there = source.on_executors("rows", str(tmp_path / "rows"))
    assert source.on_executors("rows", str(tmp_path / "rows")) is there
    assert len(packed := pickle.dumps(there)) < 2_000
    assert rows_of(pickle.loads(packed)) == rows_of(source)
    with pytest.raises(FileExistsError):
        source_of_frame(readings(COUNT)).on_executors("rows", str(tmp_path / "rows"))


def test_a_data_frame_in_another_source_does_not_travel_either(tmp_path: Path) -> None:
    """One that would be called back with the outcome of each record."""
    job, results = Job("wrapped"), CollectedResults()
    job.source(SpoutSource(source_of_frame(readings(COUNT))), name="rows").collect(results, name="out")
    stages = LocalStages(4)
    result, _ = in_batches(job, tmp_path, config(20), stages=stages)
    assert result.error is None, result.error
    assert all(map(is_portable, stages.flow.orders))
    assert sorted(numbers_of(results)) == list(range(COUNT))


# -- in jobs ----------------------------------------------------------------------------------------------------------


def numbers(table: pa.Table, parallelism: int = 2, splits: int = 3, seed: int = 0) -> Job:
    """Sums of the numbers in each 100 ms, with one key."""
    job = Job("frames", parallelism=parallelism)
    times = WatermarkStrategy.for_monotonous_timestamps()
    source = source_of_frame(table, splits=splits, timestamps="at", order_by=["at"], seed=seed)
    rows = job.source(source, name="rows", watermarks=times)
    windows = rows.map(lambda row: row["number"]).key_by(lambda _: "all").window(TumblingEventTimeWindows.of(100))
    windows.reduce(lambda one, other: one + other).sink(FileSink("sums"), uid="sink")
    return job


@pytest.mark.parametrize("splits", [1, 3])
def test_a_kill_at_any_time_loses_no_row_and_repeats_none(splits: int) -> None:
    """And the DataFrame is computed once in a process, however many attempts there are."""
    restored = set()
    for at_us in range(4, 60, 7):
        frame, results = Frame(readings(COUNT)), CollectedResults()
        job = Job("rows", parallelism=2)
        job.source(spark_source(frame, splits=splits), name="rows").rebalance().collect(results, name="out")
        found = run(job, kills=[("rows[0]", at_us * US)], batch_size=4, checkpoint_interval=every(ns=11 * US))
        assert sorted(numbers_of(results)) == list(range(COUNT))
        restored.update(one.checkpoint_id for one in found.restores[1:])
        assert frame.computed == 1
    assert len(restored) > 2, restored


def test_a_job_that_goes_on_refuses_other_rows_and_takes_the_same(tmp_path: Path) -> None:
    """In another process, which computes the DataFrame again, in another order."""
    settings_of_run = config(20, restart=NoRestart())
    assert simulated(numbers(readings(COUNT)), tmp_path, settings_of_run, killed_at_ns=40_000).error is not None
    refused = simulated(numbers(readings(COUNT, changed=5)), tmp_path, settings_of_run)
    assert "'rows': its DataFrame has other rows" in str(refused.error)
    result = simulated(numbers(readings(COUNT), seed=7), tmp_path, settings_of_run)
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id is not None
    simulated(numbers(readings(COUNT)), tmp_path / "undisturbed", config(20))
    assert jobs.committed(tmp_path / "out") == jobs.committed(tmp_path / "undisturbed" / "out")


def test_in_batches_and_back_the_rows_are_those_of_the_simulator(tmp_path: Path) -> None:
    """A checkpoint of batches goes on in the simulator; executors get files, and no DataFrame. Those of a driver that
    has died are deleted there, too."""
    stages = LocalStages(4)
    in_batches(numbers(readings(COUNT)), tmp_path, config(8), stop_after=2, stages=stages)
    assert all(map(is_portable, stages.flow.orders))
    assert len(list((tmp_path / "state" / "frames" / FRAMES).glob("*/0/*.arrow"))) == 3
    refused, _ = in_batches(numbers(readings(COUNT, changed=5)), tmp_path, config(8))
    assert isinstance(refused.error, JobChangedError), refused.error
    result = simulated(numbers(readings(COUNT), seed=7), tmp_path, config(8))
    assert result.error is None, result.error
    assert result.restores[0].checkpoint_id == 2
    assert not list((tmp_path / "state").rglob("*.arrow"))
    simulated(numbers(readings(COUNT)), tmp_path / "undisturbed", config(8))
    assert jobs.committed(tmp_path / "out") == jobs.committed(tmp_path / "undisturbed" / "out")


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_data_frame_is_no_collection_and_no_source() -> None:
    """The error names ``spark_source``."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    with pytest.raises(ConfigurationError, match=r"got a pyspark DataFrame .*\n.* write spark_source\(df\), from"):
        CollectionSource(frame)
    with pytest.raises(JobGraphError, match=r"source: a pyspark DataFrame .*\n.* write spark_source\(df\), from"):
        Job("j").source(frame)


@pytest.mark.parametrize("wrong", [[1, 2], None, "SELECT 1", readings(3)])
def test_anything_else_is_no_data_frame(wrong: Any) -> None:
    """The error says what to use for other rows."""
    with pytest.raises(SparkBridgeError, match=r"spark_source: df must be a Spark DataFrame, or a function .* not "):
        spark_source(wrong)


THREE = pa.table({"id": [2, 0, 1], "text": ["c", "a", "b"], "at": pa.array([1, 3, 2], pa.timestamp("us", "UTC"))})


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of a session get none."""
    monkeypatch.setattr(frame_source, "get_session", lambda: None)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timestamps": "att"}, "timestamps= names 'att', which is no column of the DataFrame; did you mean 'at'?"),
        (
            {"timestamps": "att", "order_by": "id"},
            "timestamps= names 'att', which is no column of the DataFrame; did you mean 'at'?",
        ),
        ({"order_by": "tex"}, "order_by= names 'tex', which is no column of the DataFrame; did you mean 'text'?"),
        (
            {"order_by": ["id", "nothing"]},
            "order_by= names 'nothing', which is no column of the DataFrame; it has id, text, at",
        ),
        ({"timestamps": "text"}, "timestamps= names column 'text' of type string; it must be a timestamp, or whole ms"),
        ({"splits": 0}, "splits"),
    ],
)
def test_arguments_are_checked_when_the_job_is_built(options: dict[str, Any], words: str) -> None:
    """A wrong name is told with the nearest one, a wrong type with what is wanted. Of a function the DataFrame is
    checked when it is there."""
    with pytest.raises((SparkBridgeError, ConfigurationError), match=re.escape(words)):
        spark_source(Frame(THREE), **options)
    with pytest.raises((SparkBridgeError, ConfigurationError), match=re.escape(words)):
        rows_of(spark_source(lambda _: Frame(THREE), **options))


def test_rows_are_in_the_order_of_event_time_unless_another_is_named() -> None:
    """By the name of one column, or by several."""
    for options, order in (
        ({"timestamps": "at"}, [2, 1, 0]),
        ({"timestamps": "at", "order_by": "text"}, [0, 1, 2]),
        ({"order_by": ["text", "id"]}, [0, 1, 2]),
    ):
        assert [row["id"] for row in rows_of(spark_source(Frame(THREE), **options))] == order


class Broken(Frame):
    """Cannot be computed."""

    error: Exception = ZeroDivisionError("no rows")

    def toArrow(self) -> pa.Table:
        raise self.error


@pytest.mark.usefixtures("no_session")
def test_a_data_frame_that_cannot_be_read() -> None:
    """The error names the source; an error of the user's function is chained, one of Spark or of ours is not."""
    broken = Broken(THREE)
    with pytest.raises(SparkBridgeError, match=r"'numbers': its DataFrame cannot be read:\n  Zero.*rows") as caught:
        rows_of(spark_source(broken))
    assert caught.value.__cause__ is broken.error
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SparkBridgeError, match=r"cannot be read:\n  the result has more than one column") as caught:
        rows_of(spark_source(Frame(twice)))
    assert caught.value.__cause__ is None
    with pytest.raises(SparkBridgeError, match=r"cannot be read:\n  spark_source: df must be a Spark DataFrame, or a"):
        rows_of(spark_source(lambda _: THREE))


def test_a_stream_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rows to come back to; the error says what to do."""
    monkeypatch.setattr(Frame, "isStreaming", True)
    with pytest.raises(SparkBridgeError, match=r"df is a stream, which has no end .*weir.log.*LogSource"):
        spark_source(Frame(THREE))


def test_without_pyspark_there_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the job is run."""
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(PySparkMissingError, match="pyspark and pyarrow not installed"):
        spark_source(lambda _: None)  # type: ignore[arg-type, return-value]


@pytest.mark.usefixtures("spark")
def test_mistakes_in_a_data_frame_of_spark(spark: Any) -> None:
    """As without it."""
    with pytest.raises(SparkBridgeError, match="df is a stream, which has no end"):
        spark_source(spark.readStream.format("rate").load())
    with pytest.raises(SparkBridgeError, match=r"(?s)'numbers': its DataFrame cannot be read:.*DIVIDE_BY_ZERO"):
        rows_of(spark_source(spark.range(3).selectExpr("1 / (id - id) AS x")))
    with pytest.raises(SparkBridgeError, match=r"(?s)cannot be read:.*which is no column of the DataFrame"):
        rows_of(spark_source(lambda session: session.range(3), order_by="x"))


@pytest.mark.usefixtures("spark")
def test_a_job_on_spark_reads_a_data_frame(spark: Any, tmp_path: Path) -> None:
    """The rows of the simulator, which are those of Spark, with values of every kind; no file of rows is left."""

    def kinds(session: Any) -> Any:
        return session.range(20).selectExpr(
            "id", "timestamp_seconds(id) AS at", "decimal(id) / 4 AS exact", "named_struct('a', id, 'b', null) AS pair",
            "map('x', id) AS ends", "array(id, null) AS list", "if(id % 2 = 0, null, 0.5D) AS half",
        )  # fmt: skip

    def job(into: CollectedResults) -> Job:
        made = Job("kinds", parallelism=2)
        source = spark_source(kinds, splits=2, timestamps="at")
        made.source(source, name="rows", watermarks=WatermarkStrategy.for_monotonous_timestamps()).collect(
            into, name="out", parallelism=1
        )
        return made

    here, there = CollectedResults(), CollectedResults()
    job(here).run()
    job(there).run(on="spark", storage=tmp_path / "st", output_dir=tmp_path / "out", checkpoint_interval="6rec")
    expected = run_batch(lambda frame: kinds(frame.sparkSession), [(0,)], "x int", session=spark)
    for found in (here, there):
        assert repr(sorted(found.records, key=lambda row: row["id"])) == repr(expected)
    # Before the storage is opened again: that would empty the directory.
    assert list((tmp_path / "st").rglob(FRAMES)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@settings(max_examples=20)
@given(data=st.data())
def test_rows_of_any_type_come_from_spark_as_they_went(data: st.DataObject) -> None:
    """Through Spark itself, both ways."""
    columns = data.draw(st.lists(types, min_size=1, max_size=3))
    ddl = ", ".join(["id int", *(f"c{number} {kind[0]}" for number, kind in enumerate(columns))])
    rows = data.draw(st.lists(st.tuples(*(_or_none(kind[2]) for kind in columns)), max_size=8))
    with rows_on_spark([(number, *row) for number, row in enumerate(rows)], ddl) as frame:
        returned = rows_of(spark_source(frame, splits=2))
    returned.sort(key=lambda row: row["id"])
    assert len(returned) == len(rows)
    for sent, back in zip(rows, returned, strict=True):
        assert is_kept(list(sent), list(back.values())[1:]), (sent, back)
