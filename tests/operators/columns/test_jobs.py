"""Whole jobs in columns give the same results as the same job in rows, whatever happens to them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.restore import NoRestart
from engine.elements.columns import ColumnBatch
from engine.elements.errors import JobFailedError
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import RecordsCaptured
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults, CountedRecords, CountingSink
from operators.columns import ColumnSource
from operators.sources import CollectionSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage, FullKeyedStateHandle
from tests.operators.columns.jobs import WITH_COLUMNS, Pipeline, Record, check_sums, expected
from tests.runtime.support import US, Trace, checked, every, execution, storage_in

MODES = ("aligned", "unaligned", "aligned-timeout")
KEYS = [st.integers(-(2**63), 2**63 - 1), st.integers(0, 3), st.text("ab\U0001f600", max_size=2)]


@st.composite
def records(draw: st.DrawFn, most: int = 40) -> list[Record]:
    """Records of one type of key with few keys, of longs or of doubles."""
    keys = draw(st.lists(draw(st.sampled_from(KEYS)), min_size=1, max_size=4, unique=True))
    values = draw(st.sampled_from([st.integers(-1000, 1000), st.floats(-1e9, 1e9)]))
    picked = st.tuples(st.sampled_from(keys), values, st.integers(-5, 10**12))
    return draw(st.lists(picked, min_size=1, max_size=most))


@settings(max_examples=60)
@given(records(), st.sampled_from(WITH_COLUMNS), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_any_form_gives_what_rows_give(
    rows: list[Record], form: str, parallelism: int, splits: int, batch_size: int, from_rows: bool
) -> None:
    """Values, event times and their order, for any cut into batches and any number of subtasks and splits."""
    settings_ = {"batch_size": batch_size, "mode": "none"}
    plain = Pipeline("rows", rows, parallelism, splits, from_rows)
    other = Pipeline(form, rows, parallelism, splits, from_rows)
    for one in (plain, other):
        execution(one.job, **settings_).run().raise_on_failure()

    assert repr(other.collected) == repr(plain.collected)
    if splits == parallelism == 1:
        assert other.collected == expected(rows)


def numbered(count: int, keys: int = 7) -> list[Record]:
    """Records with event times that are all different."""
    return [(number * 31 % keys, number + 1, number * 10) for number in range(count)]


SLOW = CostModel(source_record_ns=1_000, record_ns=1_500)
"""The operator that sums is slower than the source: batches queue up."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", WITH_COLUMNS)
def test_crashes_lose_and_repeat_nothing(mode: str, form: str) -> None:
    """Tasks die again and again, also while batches are in flight, and every result is committed once."""
    pipeline, trace, oracle = Pipeline(form, numbered(400), parallelism=2, splits=2), Trace(), CutOracle()
    run = execution(
        pipeline.job,
        mode=mode,
        batch_size=16,
        channel_capacity=20,
        output_capacity=40,
        checkpoint_interval=every(ns=40 * US),
        cost=SLOW,
        aligned_timeout_ns=5 * US if mode == "aligned-timeout" else None,
        kills=[("sum[0]", 130 * US), ("in[1]", 10_000 * US + 300 * US)],
        instruments=[oracle, trace],
    )
    result = checked(run).raise_on_failure()

    assert [restore.checkpoint_id is None for restore in result.restores] == [True, False, False]
    assert oracle.held
    assert bool(trace.of(RecordsCaptured)) == (mode != "aligned")
    assert check_sums(pipeline.records, pipeline.collected) == 0
    assert len(pipeline.collected) == 320


def snapshots_of(pipeline: Pipeline, files: MemoryFileSystem, mode: str) -> list[str]:
    """Run a job that keeps all its checkpoints; where they lie."""
    execution(
        pipeline.job,
        file_system=files,
        mode=mode,
        batch_size=16,
        channel_capacity=20,
        output_capacity=40,
        checkpoint_interval=every(ns=30 * US),
        cost=SLOW,
        retained=1000,
    ).run().raise_on_failure()
    storage = storage_in(files, pipeline.job.name)
    return [storage.location(one).directory for one in storage.list_checkpoints()]


def go_on(pipeline: Pipeline, files: MemoryFileSystem, snapshot: str, mode: str) -> int:
    """Go on from a snapshot of another run and check the results; returns how many records lay before it."""
    storage = CheckpointStorage(files, f"/from{snapshot}", pipeline.job.name)
    start = SavepointRestore(snapshot, RestoreMode.NO_CLAIM)
    config = RunConfig(mode=mode, batch_size=16, cost=SLOW)
    run = Execution(
        pipeline.job.plan(), config, storage=storage, file_system=files, output_dir="/out", restore_from=start
    )
    checked(run).raise_on_failure()
    return check_sums(pipeline.records, pipeline.collected)


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("form", WITH_COLUMNS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_with_other_subtasks(mode: str, form: str, parallelism: int) -> None:
    """State in columns, and batches in flight, find their new place, from every checkpoint of a run."""
    files, rows = MemoryFileSystem(), numbered(300)
    snapshots = snapshots_of(Pipeline(form, rows, 2, 2, transactional=False), files, mode)[:3]
    before = [go_on(Pipeline(form, rows, parallelism, 2, transactional=False), files, one, mode) for one in snapshots]

    assert before == sorted(before)
    assert 0 < before[0] < 240
    assert any(has_records_in_flight(files, one) for one in snapshots) == (mode == "unaligned")


def has_records_in_flight(files: MemoryFileSystem, snapshot: str) -> bool:
    """Whether a checkpoint stores records in flight."""
    metadata = storage_in(files, "pipeline").read_metadata(int(snapshot.rpartition("-")[2]))
    subtasks = [subtask for operator in metadata.operators for subtask in operator.subtasks.values()]
    return any(one.input_channels or one.output_channels for one in subtasks)


@pytest.mark.parametrize(("first", "second"), [("columns", "sums in rows"), ("sums in rows", "columns")])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_reduce_and_sum_column_take_each_others_place(first: str, second: str, parallelism: int) -> None:
    """Under the same uid the state of one is that of the other, with as many subtasks or more."""
    files, rows = MemoryFileSystem(), numbered(300)
    snapshots = snapshots_of(Pipeline(first, rows, 2, 2, transactional=False), files, "aligned")
    before = go_on(Pipeline(second, rows, parallelism, 2, transactional=False), files, snapshots[1], "aligned")

    assert 0 < before < 240


def test_the_state_is_the_same_to_the_byte() -> None:
    """A checkpoint of the sums has the same bytes whether columns or rows were folded."""
    found = []
    for form in ("columns", "sums in rows"):
        files = MemoryFileSystem()
        (newest,) = snapshots_of(Pipeline(form, numbered(300), 2, 2, transactional=False), files, "aligned")[-1:]
        metadata = storage_in(files, "pipeline").read_metadata(int(newest.rpartition("-")[2]))
        (operator,) = [one for one in metadata.operators if one.uid == "sum"]
        reader = storage_in(files, "pipeline").reader(metadata.checkpoint_id)
        found.append(
            [
                reader.open(subtask.keyed.stream).read()
                for _, subtask in sorted(operator.subtasks.items())
                if isinstance(subtask.keyed, FullKeyedStateHandle)
            ]
        )

    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["lsm", "changelog"])
def test_other_backends_give_the_same(backend: str) -> None:
    """Where state is not held in columns, records are folded one by one: the same results, also after a crash."""
    pipeline = Pipeline("columns", numbered(200), parallelism=2)
    run = execution(
        pipeline.job,
        state_backend=backend,
        batch_size=16,
        checkpoint_interval=every(ns=30 * US),
        kills=[("sum[1]", 75 * US)],
    )
    result = run.run().raise_on_failure()

    assert [restore.checkpoint_id is None for restore in result.restores] == [True, False]
    assert check_sums(pipeline.records, pipeline.collected) == 0
    assert len(pipeline.collected) == 160


def test_a_sum_that_overflows_fails_the_job_and_names_the_record() -> None:
    """On any backend: the sum never wraps around."""
    rows = [(1, 2**61 - 1, 10), (2, 4, 20), (1, 2**61 - 1, 30), (1, 4, 40)]
    for backend in ("heap", "lsm"):
        pipeline = Pipeline("columns", [(key, value, stamp) for key, value, stamp in rows], splits=1)
        with pytest.raises(JobFailedError, match=r"the running sum became 92233720368547758\d\d, which does") as why:
            execution(pipeline.job, state_backend=backend, restart=NoRestart()).run().raise_on_failure()
        assert "{'k': 1, 'v': 8}" in str(why.value)


def test_a_column_that_changes_its_type_fails_the_job() -> None:
    """A column has one type, in a batch and from one to the next."""
    job, results = Job("j"), CollectedResults()
    items = [{"k": 1, "v": 1}, {"k": 1, "v": 2.5}]
    job.source(CollectionSource(items)).key_by_column("k").sum_column("v").collect(results)
    with pytest.raises(JobFailedError, match="holds int64 values, but the column folded into it takes float64 values"):
        execution(job, batch_size=1, restart=NoRestart()).run().raise_on_failure()


def test_windows_stand_behind_columns() -> None:
    """Row operators with state, timers and event time take keyed columns as rows."""
    results = CollectedResults()
    table = {"k": ["a", "b", "a", "a"], "v": [1, 2, 3, 4], "t": [0, 1, 9, 10]}
    job = Job("windows", parallelism=2)
    times = WatermarkStrategy.for_monotonous_timestamps()
    stream = job.source(ColumnSource(table, timestamps="t"), watermarks=times).map_columns(dict)
    windows = stream.key_by_column("k").window(TumblingEventTimeWindows.of(10))
    windows.reduce(lambda a, b: {**b, "v": a["v"] + b["v"]}).collect(results)
    execution(job).run().raise_on_failure()

    assert sorted((key, start, row["v"]) for key, start, _, row in results.records) == [
        ("a", 0, 4),
        ("a", 10, 4),
        ("b", 0, 2),
    ]


def test_columns_reach_a_columnar_operator_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a columnar source through chains and channels, no record becomes a row."""

    def no_rows(_batch: ColumnBatch) -> list[Any]:
        raise AssertionError("rows were made")

    counted = CountedRecords()
    job = Job("columns", parallelism=3)
    table = {"k": list(range(100)), "v": list(range(100))}
    some = job.source(ColumnSource(table, 3)).rebalance().filter_columns(lambda c: c["v"] % 2 == 0)
    summed = some.map_columns(dict).key_by_column("k").sum_column("v").union(some)
    summed.sink(CountingSink(counted))
    monkeypatch.setattr(ColumnBatch, "values", property(no_rows))
    execution(job, batch_size=7).run().raise_on_failure()

    assert counted.total == 100
