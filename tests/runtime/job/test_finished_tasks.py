"""Tasks that finish before their job: checkpoints go on, record them as finished, and restore them as such."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.checkpoint.restore.restore_plan import FinishedMarkersError
from engine.elements.errors import JobFailedError
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotTaken,
    TaskState,
)
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.job.failover import FinalCheckpointError
from engine.runtime.kernel import START_NS
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.cases import crossed
from tests.runtime.support import (
    US,
    RecordingSink,
    Trace,
    checked,
    every,
    execution,
    expected_counts,
    run,
    running_count,
    storage_in,
)

MODES = ("aligned", "at-least-once", "unaligned", "aligned-timeout")
EXACT = ("aligned", "unaligned", "aligned-timeout")


def uneven(into: Any, *, short: int = 10, long: int = 80, parallelism: int = 1) -> Job:
    """A short and a long source; the short one feeds a sink of its own and, with the long one, a count."""
    job = Job("uneven", parallelism=parallelism)
    a = job.source(SequenceSource(0, short), name="short")
    b = job.source(SequenceSource(0, long), name="long")
    a.map(lambda number: ("a", number), name="side").collect(into, name="aside", chain=False)
    keyed = a.union(b).key_by(lambda number: number % 3, value=lambda number: (number % 3, 1))
    keyed.reduce(lambda left, right: (left[0], left[1] + right[1]), name="count").collect(into, name="out")
    return job


def expected(short: int = 10, long: int = 80) -> Counter[Any]:
    """What ``uneven`` collects."""
    sizes = Counter([*(number % 3 for number in range(short)), *(number % 3 for number in range(long))])
    counts: Counter[Any] = Counter((key, count) for key, size in sizes.items() for count in range(1, size + 1))
    return counts + Counter(("a", number) for number in range(short))


SETTINGS: dict[str, Any] = {"batch_size": 2, "checkpoint_interval": every(ns=7 * US)}


def finished_at(trace: Trace, attempt: int = 1) -> dict[str, int]:
    return {
        one.task.split(" ")[0].removesuffix("[0]"): one.time_ns - START_NS
        for one in trace.of(TaskState)
        if one.state == "finished" and one.attempt == attempt
    }


# --- while they finish ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_ends_early_finishes_early(mode: str) -> None:
    """It finishes with the first checkpoint after its end; its receivers finish later; the other tasks go on."""
    trace, results = Trace(), CollectedResults()
    checked(execution(uneven(results), instruments=[trace], mode=mode, **SETTINGS)).raise_on_failure()

    ended = {one.task: one.time_ns - START_NS for one in trace.of(TaskState) if one.state == "end_of_data"}
    at = finished_at(trace)
    assert 10 * US <= ended["short -> side[0]"] < at["short"] == at["aside"] < 15 * US
    assert at["long"] == at["count"] > 80 * US
    assert Counter(results.records) == expected()


def test_no_source_finishes_before_a_checkpoint_behind_its_end() -> None:
    """Without periodic checkpoints it waits for the last checkpoint of the job."""
    trace = Trace()
    run(uneven([]), instruments=[trace], batch_size=2, checkpoint_interval=None)

    assert len(set(finished_at(trace).values())) == 1
    assert min(finished_at(trace).values()) >= 80 * US


def test_switched_off_all_tasks_finish_together() -> None:
    """Checkpoints after tasks finish off: a task at its end stays, and every checkpoint has every task."""
    trace, results = Trace(), CollectedResults()
    run(uneven(results), instruments=[trace], checkpoints_after_tasks_finish=False, **SETTINGS)

    assert min(finished_at(trace).values()) >= 80 * US
    taken = Counter(one.checkpoint_id for one in trace.of(SnapshotTaken))
    assert set(taken.values()) == {4}
    assert Counter(results.records) == expected()


def test_checkpoints_go_on_without_the_finished() -> None:
    """They wait only for tasks that still run, and are consistent."""
    trace, oracle = Trace(), CutOracle()
    run(uneven([]), instruments=[trace, oracle], **SETTINGS)

    taken = Counter(one.checkpoint_id for one in trace.of(SnapshotTaken))
    completed = [one.checkpoint_id for one in trace.of(CheckpointCompleted)]
    assert taken[completed[0]] == 4
    assert taken[completed[-1]] == 2
    assert oracle.held
    assert len(oracle.verdicts) == len(completed)


def backlog(into: Any) -> Job:
    """A source, a task as fast, and a slow one; records queue up between the last two."""
    stream = Job("backlog").source(SequenceSource(0, 100), name="numbers")
    fast = stream.rebalance().map(lambda number: number, name="fast")
    return fast.rebalance().map(lambda number: number, name="slow").collect(into, name="out", chain=False)


BACKLOG: dict[str, Any] = {
    "mode": "unaligned",
    "batch_size": 10,
    "channel_capacity": 1_000,
    "checkpoint_interval": every(ns=60 * US),
    "cost": CostModel(record_ns=1, stragglers={"slow": 10_000}),
}


def test_who_has_only_finished_inputs_is_triggered_directly() -> None:
    """A task whose source has finished still takes part: the coordinator triggers it directly."""
    trace, results, oracle = Trace(), CollectedResults(), CutOracle()
    checked(execution(backlog(results), instruments=[trace, oracle], **BACKLOG)).raise_on_failure()

    at = finished_at(trace)
    behind = [one for one in trace.of(SnapshotTaken) if one.time_ns - START_NS > at["numbers"]]
    assert at["numbers"] < at["fast"]
    assert {one.task.split("[")[0] for one in behind} == {"fast", "slow", "out"}
    assert results.records == list(range(100))
    assert oracle.held


def test_a_task_waits_until_what_it_sent_is_consumed() -> None:
    """An unaligned barrier overtakes records; a task that finished before they arrive would lose them."""
    trace = Trace()
    run(backlog([]), instruments=[trace], **BACKLOG)

    states = trace.of(TaskState)
    ended = {one.task.split("[")[0]: one.time_ns - START_NS for one in states if one.state == "end_of_data"}
    completed = [one.time_ns - START_NS for one in trace.of(CheckpointCompleted)]
    assert any(ended["fast"] < at < ended["slow"] for at in completed), "nothing was overtaken"
    assert finished_at(trace)["fast"] >= ended["slow"]


@pytest.mark.parametrize("killed_at_us", range(50, 1_200, 70))
def test_killed_while_finished_tasks_have_left_a_backlog(killed_at_us: int) -> None:
    """Records in flight from a task that has finished, or waits to, are neither lost nor doubled."""
    results, oracle = CollectedResults(), CutOracle()
    made = execution(
        backlog(results),
        kills=[("slow", killed_at_us * US)],
        instruments=[oracle],
        restart=FixedDelayRestart(None, 1 * US),
        **BACKLOG,
    )
    checked(made).raise_on_failure()

    assert results.records == list(range(100))
    assert oracle.held


# --- restoring them ---------------------------------------------------------------------------------------------------


@crossed(
    quick=3,
    mode=EXACT,
    target=["count", "long", "short", "aside", "job manager"],
    killed_at_us=[9, 12, 15, 22, 40, 78, 80],
)
def test_killed_before_and_behind_the_first_end_each_is_counted_once(mode: str, target: str, killed_at_us: int) -> None:
    """Whether the finished tasks are restored as finished, or run again, each record is counted once."""
    results, oracle = CollectedResults(), CutOracle()
    made = execution(
        uneven(results),
        kills=[(target, killed_at_us * US)],
        instruments=[oracle],
        mode=mode,
        restart=FixedDelayRestart(None, 1 * US),
        master_recovery_ns=1 * US,
        seed=f"{target} {killed_at_us}",
        **SETTINGS,
    )
    checked(made).raise_on_failure()

    assert Counter(results.records) == expected()
    assert oracle.held


def test_finished_vertices_are_restored_as_finished() -> None:
    """Their operators are not run again: no record, no snapshot, no close; their receivers get the end of data."""
    trace, sink = Trace(), RecordingSink()
    job = Job("restored")
    job.source(SequenceSource(0, 10), name="short").sink(sink, name="aside", chain=False)
    job.source(SequenceSource(0, 80), name="long").collect([], name="out")
    made = execution(
        job, kills=[("long", 40 * US)], instruments=[trace], restart=FixedDelayRestart(None, 0), **SETTINGS
    )
    result = checked(made).raise_on_failure()

    assert result.attempts == 2
    assert [what for attempt, what, _ in sink.calls if attempt == 2] == []
    states = {one.task: one.state for one in trace.of(TaskState) if one.attempt == 2}
    assert states["short[0]"] == states["aside[0]"] == "finished"
    began = next(one.time_ns for one in trace.of(AttemptStarted) if one.attempt == 2)
    told = [one for one in trace.of(TaskState) if one.attempt == 2 and one.task in ("short[0]", "aside[0]")]
    assert [(one.time_ns, one.state) for one in told] == [(began, "finished")] * 2


def test_the_metadata_says_who_had_finished() -> None:
    """The metadata marks every operator of the vertex and every subtask, and holds no state of theirs."""
    files = MemoryFileSystem()
    run(uneven([], parallelism=2), file_system=files, retained=1, **SETTINGS)
    storage = storage_in(files, "uneven")
    metadata = storage.verify(storage.list_checkpoints()[-1])

    marks = {operator.name: [one.finished for one in operator.subtasks.values()] for operator in metadata.operators}
    assert marks["short"] == marks["side"] == marks["aside"] == [True, True]
    assert marks["long"] == marks["count"] == [False, False]
    short = next(operator for operator in metadata.operators if operator.name == "short")
    assert not any(list(one.streams()) for one in short.subtasks.values())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_finished_stays_finished_with_another_parallelism(parallelism: int) -> None:
    """A savepoint after the end of the short source, restored with other subtasks: the source is not read again."""
    files, results = MemoryFileSystem(), CollectedResults()
    made = execution(uneven(results, parallelism=2), file_system=files, **SETTINGS)
    made.savepoint(30 * US, "/saved")
    path = made.run().savepoints[0].path
    assert path is not None
    trace, again = Trace(), CollectedResults()
    job = uneven(again, parallelism=parallelism)
    storage = CheckpointStorage(MemoryFileSystem(), "/other", "uneven")
    started = Execution(
        job.plan(),
        RunConfig(**SETTINGS),
        storage=storage,
        file_system=files,
        instruments=[trace],
        restore_from=SavepointRestore(path),
    )
    checked(started).raise_on_failure()

    assert not [record for record in again.records if record[0] == "a"]
    assert {one.task for one in trace.of(TaskState) if one.state == "running"} >= {"long[0]"}
    assert not any(one.task.startswith("short") for one in trace.of(TaskState) if one.state == "running")
    assert not Counter(again.records) - expected()


def test_a_job_that_would_feed_a_finished_vertex_is_refused() -> None:
    """The finished vertex could not read the records; the error names both vertices."""
    files = MemoryFileSystem()
    made = execution(uneven(CollectedResults()), file_system=files, **SETTINGS)
    made.savepoint(30 * US, "/saved")
    path = made.run().savepoints[0].path
    assert path is not None
    job = Job("uneven")
    a = job.source(SequenceSource(0, 10), name="short")
    b = job.source(SequenceSource(0, 80), name="long")
    side = a.map(lambda number: ("a", number), name="side")
    side.union(b.map(lambda number: ("b", number), name="news")).collect([], name="aside", chain=False)
    keyed = a.union(b).key_by(lambda number: number % 3, value=lambda number: (number % 3, 1))
    keyed.reduce(lambda left, right: (left[0], left[1] + right[1]), name="count").collect([], name="out")
    storage = CheckpointStorage(MemoryFileSystem(), "/other", "uneven")

    with pytest.raises(FinishedMarkersError, match="'aside' had fully finished"):
        Execution(
            job.plan(), RunConfig(), storage=storage, file_system=files, restore_from=SavepointRestore(path)
        ).run()


# --- the last checkpoint ----------------------------------------------------------------------------------------------


def never_durable() -> FaultInjectingFileSystem:
    return FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.DISK_FULL, "rename", "*/_metadata*")])


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_last_checkpoint_that_cannot_complete_fails_the_job(attempts: int) -> None:
    """After so many tries, whatever failures are tolerated; the error names the failure and what is not committed."""
    results = CollectedResults()
    made = execution(
        running_count(Job("endless"), 30, results),
        file_system=never_durable(),
        checkpoint_interval=None,
        tolerable_failures=1_000,
        final_checkpoint_attempts=attempts,
        restart=FixedDelayRestart(None, 0),
    )
    result = checked(made)

    assert (result.state, result.attempts) == ("failed", 1)
    assert result.checkpoints.failed == attempts
    assert isinstance(result.error, JobFailedError)
    assert isinstance(result.error.__cause__, FinalCheckpointError)
    assert f"failed {attempts} times in a row, at last with FINALIZE_CHECKPOINT_FAILURE" in str(result.error)
    assert results.records == []


def test_a_last_checkpoint_is_tried_again() -> None:
    """A disk that is full for a while delays the end."""
    results, trace = CollectedResults(), Trace()
    faulty = FaultInjectingFileSystem(
        MemoryFileSystem(),
        [FaultRule(FileFault.DISK_FULL, "rename", "*/_metadata*", at_call=call) for call in (1, 2, 3)],
    )
    made = execution(
        running_count(Job("later"), 30, results),
        file_system=faulty,
        instruments=[trace],
        checkpoint_interval=None,
        tolerable_failures=1_000,
    )
    result = checked(made).raise_on_failure()

    assert result.checkpoints.failed == 3
    assert Counter(results.records) == expected_counts(30)


# --- union state ------------------------------------------------------------------------------------------------------


def union_state(parallel: Any) -> tuple[Job, dict[str, Any]]:
    """Two subtasks of a file sink, which keeps part counters as union state, and a source that runs on."""
    job = Job("union")
    numbers = job.source(SequenceSource(0, 60, splits=2), name="numbers", parallelism=2)
    parallel(numbers.map(lambda number: {"n": number}, name="row", parallelism=2)).sink(
        FileSink("rows"), name="out", parallelism=2, chain=False
    )
    job.source(SequenceSource(0, 900), name="other").collect([], name="sink")
    settings = {"batch_size": 10, "channel_capacity": 1_000, "checkpoint_interval": every(ns=40 * US), "retained": 50}
    return job, settings


def closed_at(trace: Trace) -> list[int]:
    finished = [one for one in trace.of(TaskState) if one.state == "finished" and one.task.startswith("out")]
    return [one.time_ns - START_NS for one in finished]


def test_a_slow_subtask_holds_its_vertex() -> None:
    """Two subtasks close together: a checkpoint that contains only one of them could not be restored."""
    files, trace = MemoryFileSystem(), Trace()
    job, settings = union_state(lambda stream: stream.rebalance())
    made = execution(
        job,
        file_system=files,
        instruments=[trace],
        mode="unaligned",
        cost=CostModel(record_ns=1, stragglers={"out[1]": 15_000}),
        **settings,
    )
    checked(made).raise_on_failure()

    ended = [one.time_ns - START_NS for one in trace.of(TaskState) if one.state == "end_of_data"]
    assert len([at for at in ended if at < max(ended) - 100 * US]) >= 3
    first, second = closed_at(trace)
    assert first == second
    rows = [row for bucket in read_committed(files, "/out/rows").values() for row in bucket]
    assert len(rows) == 60


def test_half_a_vertex_with_union_state_is_in_no_checkpoint() -> None:
    """Checkpoints triggered meanwhile are declined, which does not count as a failure."""
    files, trace = MemoryFileSystem(), Trace()
    job, settings = union_state(lambda stream: stream.forward())
    made = execution(
        job,
        file_system=files,
        instruments=[trace],
        tolerable_failures=0,
        cost=CostModel(slow_links={"row[1]": 150 * US}),
        **settings,
    )
    result = checked(made).raise_on_failure()

    first, second = closed_at(trace)
    assert second - first > 100 * US, "they closed together: this test tested nothing"
    reasons = {one.reason for one in trace.of(CheckpointAborted) if first < one.time_ns - START_NS < second}
    assert reasons == {"CHECKPOINT_DECLINED_TASK_CLOSING"}
    assert result.attempts == 1
    storage = storage_in(files, "union")
    for checkpoint_id in storage.list_checkpoints():
        sink = next(one for one in storage.verify(checkpoint_id).operators if one.name == "out")
        assert [one.finished for one in sink.subtasks.values()] in ([False, False], [True, True])


# --- backlog ----------------------------------------------------------------------------------------------------------


class Catching(SequenceSource):
    """Has a backlog in its first half, and reports it."""

    def open_split(self, split: str, position: Any, context: Any) -> Any:
        """A reader that checks its position."""
        context.report_backlog(True)
        return Looking(super().open_split(split, position, context), context)


class Looking:
    """A reader that reports when half of the input is read."""

    def __init__(self, reader: Any, context: Any) -> None:
        self._reader = reader
        self._context = context
        self.position = reader.position
        self.available_at_ns = reader.available_at_ns
        self.close = reader.close

    def read(self, max_records: int) -> Any:
        if self.position() >= 100:
            self._context.report_backlog(False)
        return self._reader.read(max_records)


@pytest.mark.parametrize(("slow_us", "early"), [(None, 4), (50, 2), (0, 1)])
def test_checkpoints_are_rarer_while_a_source_catches_up(slow_us: int | None, early: int) -> None:
    """Until its backlog is worked off the interval is the one for backlogs, or none."""
    trace = Trace()
    job = Job("backlog").source(Catching(0, 200), name="numbers").collect([], name="out")
    run(
        job,
        instruments=[trace],
        batch_size=5,
        checkpoint_interval=every(ns=20 * US),
        interval_during_backlog_ns=None if slow_us is None else slow_us * US,
    )

    triggered = [(one.time_ns - START_NS) // US for one in trace.of(CheckpointTriggered)]
    assert len([at for at in triggered if at < 99]) == early
    assert len([at for at in triggered if 101 < at < 200]) >= 4
