"""Stopping a job with a savepoint: both ways, how another run goes on, and all that may fail on the way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.events import StopMode
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointAborted, CheckpointTriggered, TaskState
from engine.runtime.config import CostModel
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS
from engine.runtime.storage import SavepointRestore
from engine.runtime.tasks import Task
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from operators.windows import TumblingEventTimeWindows
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage, locate_snapshot
from tests.cases import crossed
from tests.runtime.support import US, RecordingSink, Trace, checked, every, execution, expected_counts, running_count

RECORDS = 60
MODES = ("aligned", "at-least-once", "unaligned", "aligned-timeout")
TARGET = "/saved"


def counting(into: Any) -> Job:
    """Two sources, two counts, two sinks."""
    return running_count(Job("counting", parallelism=2), RECORDS, into, keys=5)


def stopping(
    into: Any, at_ns: int, stop: StopMode = StopMode.SUSPEND, *, job: Job | None = None, **settings: Any
) -> Execution:
    """A run that is to stop at a time."""
    settings = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), **settings}
    made = execution(counting(into) if job is None else job, **settings)
    made.savepoint(at_ns, TARGET, stop=stop)
    return made


def going_on(job: Job, files: FileSystem, path: str | None, **config: Any) -> Execution:
    """A run that starts from the savepoint."""
    from engine.runtime.config import RunConfig

    assert path is not None
    settings: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), **config}
    storage = CheckpointStorage(MemoryFileSystem(), "/other", job.name)
    return Execution(
        job.plan(), RunConfig(**settings), storage=storage, file_system=files, restore_from=SavepointRestore(path)
    )


@crossed(quick=2, mode=MODES, stop=StopMode, at_us=[0, 1, 7, 16, 29])
def test_what_stops_goes_on_where_it_stopped(mode: str, stop: StopMode, at_us: int) -> None:
    """The commits of the stopped run and those of the next run together hold each record once."""
    files, results, oracle = MemoryFileSystem(), CollectedResults(), CutOracle()
    settings: dict[str, Any] = {"mode": mode, "instruments": [oracle], "inline_state_bytes": 0}
    settings["cost"] = CostModel(storage_latency_ns=3 * US)
    result = checked(stopping(results, at_us * US, stop, file_system=files, **settings))
    (report,) = result.savepoints

    assert (result.state, result.error, report.error) == ("stopped", None, None)
    assert {task.state for task in result.tasks} == {"finished"}
    assert len(results.records) == result.source_records
    again = checked(going_on(counting(results), files, report.path, mode=mode)).raise_on_failure()
    assert again.source_records == RECORDS - result.source_records
    assert Counter(results.records) == expected_counts(RECORDS, 5)
    assert oracle.held or mode == "at-least-once"


def test_the_savepoint_says_how_the_job_stopped() -> None:
    """In its metadata."""
    for stop in StopMode:
        files = MemoryFileSystem()
        path = stopping([], 20 * US, stop, file_system=files).run().savepoints[0].path
        assert path is not None
        assert locate_snapshot(files, path)[1].properties["stop"] == stop.value


def windowed(into: CollectedResults) -> Job:
    """Sums over windows of ten records of event time."""
    job = Job("windows")
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda number: number).with_interval_ns(5 * US)
    stamped = job.source(SequenceSource(0, 100), name="numbers", watermarks=watermarks)
    keyed = stamped.key_by(lambda number: number % 2)
    keyed.window(TumblingEventTimeWindows(10)).reduce(lambda a, b: a + b, name="sum").collect(into, name="out")
    return job


def summed(results: CollectedResults) -> int:
    """The sum over all windows, each ``(key, start, end, sum)``."""
    return sum(record[-1] for record in results.records)


def test_suspending_leaves_windows_open() -> None:
    """Event time is not over: the open window stays in the savepoint, and the next run closes it, once."""
    files, results = MemoryFileSystem(), CollectedResults()
    made = stopping(results, 45 * US, StopMode.SUSPEND, job=windowed(results), file_system=files, batch_size=5)
    path = made.run().raise_on_failure().savepoints[0].path
    before = len(results.records)
    going_on(windowed(results), files, path).run().raise_on_failure()

    whole = CollectedResults()
    execution(windowed(whole)).run()
    assert 0 < before < len(whole.records)
    assert Counter(results.records) == Counter(whole.records)


def test_draining_closes_windows_first() -> None:
    """Open windows fire with the records they have; records read after resuming from the savepoint are late."""
    files, results = MemoryFileSystem(), CollectedResults()
    made = stopping(results, 45 * US, StopMode.TERMINATE, job=windowed(results), file_system=files, batch_size=5)
    result = made.run().raise_on_failure()
    suspended = CollectedResults()
    stopping(suspended, 45 * US, StopMode.SUSPEND, job=windowed(suspended), batch_size=5).run()

    assert len(results.records) == len(suspended.records) + 2
    assert summed(results) == sum(range(result.source_records))
    going_on(windowed(results), files, result.savepoints[0].path).run().raise_on_failure()
    assert summed(results) == sum(range(result.source_records))


@pytest.mark.parametrize(("stop", "finishes"), [(StopMode.SUSPEND, False), (StopMode.TERMINATE, True)])
def test_only_draining_finishes_operators(stop: StopMode, finishes: bool) -> None:
    """End-of-input effects are for the end of input: a suspended operator is closed without them."""
    sink = RecordingSink()
    job = Job("recording").source(SequenceSource(0, RECORDS), name="numbers").sink(sink, name="out")
    stopping(sink, 20 * US, stop, job=job, checkpoint_interval=None).run().raise_on_failure()

    told = [what for _, what, _ in sink.calls if what != "record"]
    assert ("finish" in told) is finishes
    assert told[-1] == "close"
    assert told.count("complete") == 1
    assert told.index("snapshot") < told.index("complete")
    assert "record" not in [what for _, what, _ in sink.calls][sink.calls.index((1, "snapshot", 1)) :]


@pytest.mark.parametrize("stop_mode", list(StopMode))
def test_everything_pending_dies_first(stop_mode: StopMode) -> None:
    """Pending checkpoints and savepoints are aborted, and no checkpoint is triggered after the savepoint."""
    trace = Trace()
    cost = CostModel(storage_latency_ns=5 * US)
    made = stopping([], 22 * US, stop_mode, instruments=[trace], cost=cost, inline_state_bytes=0)
    made.savepoint(21 * US, TARGET)
    made.savepoint(23 * US, TARGET)
    result = made.run().raise_on_failure()

    reasons = {one.checkpoint_id: one.reason for one in trace.of(CheckpointAborted)}
    assert set(reasons.values()) == {"CHECKPOINT_COORDINATOR_SUSPEND"}
    stop, before, after = result.savepoints
    assert stop.path is not None
    assert before.error == "the job left the running state"
    assert after.error == "the job is stopping with another savepoint"
    assert max(one.checkpoint_id for one in trace.of(CheckpointTriggered)) == stop.checkpoint_id
    assert result.checkpoints.rows()[-1].checkpoint_id == stop.checkpoint_id


def test_tasks_wait_for_exactly_their_savepoint() -> None:
    """A task that hears of another completed snapshot stays; it stops when it hears of this one."""
    trace = Trace()
    made = execution(
        counting([]),
        instruments=[trace],
        checkpoint_interval=None,
        cost=CostModel(storage_latency_ns=5 * US),
        inline_state_bytes=0,
    )
    made.savepoint(1 * US, TARGET)
    made.savepoint(20 * US, TARGET, stop=StopMode.SUSPEND)
    messenger = Messenger(made, 1)
    made.kernel.schedule(START_NS + 22 * US, "strike", messenger)
    result = made.run().raise_on_failure()

    assert (result.state, messenger.struck) == ("stopped", 4)
    finished = [one.time_ns - START_NS for one in trace.of(TaskState) if one.state == "finished"]
    assert len(finished) == 4
    assert min(finished) > 22 * US


class Messenger:
    """Tells every task that a checkpoint is complete."""

    name = "messenger"

    def __init__(self, made: Execution, checkpoint_id: int) -> None:
        self._made = made
        self._checkpoint_id = checkpoint_id
        self.struck = 0

    def strike(self, _payload: object) -> None:
        for task in self._made.manager.tasks.values():
            assert task.end.is_stopping
            self.struck += 1
            self._made.manager.post.to_task(task, "notify_checkpoint_complete", self._checkpoint_id, -1)


def test_a_failed_savepoint_lets_the_job_go_on() -> None:
    """The directory cannot be made: no task has seen the trigger, checkpoints begin again, and no record is lost."""
    files, results, trace = MemoryFileSystem(), CollectedResults(), Trace()
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.DISK_FULL, "make_dirs", f"{TARGET}*")])
    result = checked(stopping(results, 20 * US, file_system=faulty, instruments=[trace]))
    (report,) = result.savepoints

    assert (result.state, result.attempts) == ("finished", 1)
    assert report.error == "the savepoint failed: an I/O error; the job goes on"
    assert max(one.time_ns - START_NS for one in trace.of(CheckpointTriggered)) > 27 * US
    assert Counter(results.records) == expected_counts(RECORDS, 5)


@pytest.mark.parametrize("stop", list(StopMode))
@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_that_fails_at_the_end_costs_an_attempt(mode: str, stop: StopMode) -> None:
    """The tasks have stopped for it and cannot go on: they fail, and the job goes back to its newest checkpoint."""
    files, results = MemoryFileSystem(), CollectedResults()
    rule = FaultRule(FileFault.DISK_FULL, "fsync_dir", f"{TARGET}*", at_call=1)
    made = stopping(results, 20 * US, stop, file_system=FaultInjectingFileSystem(files, [rule]), mode=mode)
    result = checked(made).raise_on_failure()
    (report,) = result.savepoints

    assert (result.state, result.attempts) == ("finished", 2)
    assert report.error == "the savepoint failed: the checkpoint could not be finalized; the job goes on"
    assert any("savepoint" in note and "was aborted" in note for note in result.notes)
    assert Counter(results.records) == expected_counts(RECORDS, 5)
    assert files.list_dir(TARGET) == []


def test_the_end_of_all_input_waits_for_a_failed_stop() -> None:
    """All input ended while the job was about to stop; when the stop fails, the last checkpoint is taken after all."""
    files, results = MemoryFileSystem(), CollectedResults()
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.DISK_FULL, "make_dirs", f"{TARGET}*")])
    made = stopping(results, RECORDS // 2 * US, file_system=faulty, checkpoint_interval=None)
    result = checked(made).raise_on_failure()

    assert result.state == "finished"
    assert Counter(results.records) == expected_counts(RECORDS, 5)


@pytest.mark.parametrize("target", ["count[0]", "numbers", "out", "job manager"])
@pytest.mark.parametrize("late_us", [0, 1, 3, 5, 7, 9, 11])
def test_killed_while_it_stops_the_job_goes_on(target: str, late_us: int) -> None:
    """There is a whole savepoint or none, the report says which, and each record is counted once."""
    files, results = MemoryFileSystem(), CollectedResults()
    made = stopping(
        results,
        20 * US,
        file_system=files,
        seed=f"{target} {late_us}",
        restart=FixedDelayRestart(None, 1 * US),
        master_recovery_ns=1 * US,
        cost=CostModel(storage_latency_ns=3 * US),
        inline_state_bytes=0,
    )
    made.kill(target, (20 + late_us) * US)
    result = checked(made).raise_on_failure()
    (report,) = result.savepoints

    if result.state == "stopped":
        assert report.error is None
        checked(going_on(counting(results), files, report.path)).raise_on_failure()
    else:
        assert report.error is not None
    assert Counter(results.records) == expected_counts(RECORDS, 5)
    for name in files.list_dir(TARGET) if files.exists(TARGET) else []:
        # A dead job manager may leave a directory, but none that looks like a savepoint without being one.
        if files.exists(f"{TARGET}/{name}/_metadata"):
            locate_snapshot(files, f"{TARGET}/{name}")[0].verify()


def test_a_task_that_dies_behind_the_savepoint_keeps_it() -> None:
    """Savepoint complete, a task not finished: the job fails over as a whole, and the error names the savepoint."""
    files, results = MemoryFileSystem(), CollectedResults()
    made = stopping(results, 20 * US, file_system=files, restart=FixedDelayRestart(None, 0), failover="region")
    mail_at_once = made.manager.post.to_task
    struck: list[str] = []

    def mail(task: Task, operation: str, *arguments: object) -> None:
        if made.manager.savepoints.is_stopping and operation == "notify_stop_complete" and not struck:
            struck.append(task.name)
            mail_at_once(task, "kill", RuntimeError("struck behind the savepoint"))
        else:
            mail_at_once(task, operation, *arguments)

    made.manager.post.to_task = mail  # type: ignore[method-assign]
    result = checked(made).raise_on_failure()
    (report,) = result.savepoints

    assert (result.state, result.attempts) == ("finished", 2)
    assert report.path is not None
    assert report.error is not None
    assert "did not stop properly" in report.error
    assert "the savepoint is kept" in report.error
    assert files.exists(f"{report.path}/_metadata")


def test_a_region_that_dies_while_the_job_stops_takes_the_others_along() -> None:
    """Two pipelines: the other one has stopped already when a task dies after the savepoint; it cannot go on alone."""
    results = CollectedResults()
    job = Job("two")
    for name in ("a", "b"):
        source = job.source(SequenceSource(0, RECORDS), name=f"numbers-{name}")
        source.map(lambda number, name=name: (name, number), name=f"map-{name}").collect(results, name=f"out-{name}")
    made = stopping(
        results,
        20 * US,
        job=job,
        restart=FixedDelayRestart(None, 0),
        failover="region",
        cost=CostModel(storage_latency_ns=5 * US),
        inline_state_bytes=0,
    )
    made.kill("map-a", 22 * US)
    result = checked(made).raise_on_failure()

    assert [restore.tasks for restore in result.restores] == [None, None]
    assert Counter(results.records) == Counter((name, number) for name in ("a", "b") for number in range(RECORDS))


class Ticking(Operator):
    """Emits at every tick of a timer, and writes down when."""

    ticks: list[int]

    def open(self) -> None:
        self.context.register_processing_timer_ns(self.context.processing_time_ns() + 3 * US)

    def process_batch(self, batch: Batch) -> None:
        """Wait for the timer."""

    def on_processing_time_ns(self, time_ns: int) -> None:
        self.ticks.append(time_ns - START_NS)
        self.output.emit(Batch(["tick"]))
        self.context.register_processing_timer_ns(time_ns + 3 * US)


def test_no_timer_fires_behind_the_snapshot() -> None:
    """It is in the savepoint; if it also fired here, a resumed run would repeat it."""
    ticks: list[int] = []

    def ticking() -> Operator:
        operator = Ticking()
        operator.ticks = ticks
        return operator

    job = Job("ticks").source(SequenceSource(0, RECORDS), name="numbers").via(ticking, name="tick").collect([])
    cost = CostModel(storage_latency_ns=20 * US)
    made = stopping([], 20 * US, job=job, cost=cost, inline_state_bytes=0, checkpoint_interval=None)
    assert made.run().raise_on_failure().state == "stopped"

    assert ticks == [at * US for at in range(3, 20, 3)]


def test_a_job_that_may_not_restart_fails_when_it_cannot_stop() -> None:
    """No restart: a savepoint that fails at the end takes the job with it."""
    rule = FaultRule(FileFault.DISK_FULL, "fsync_dir", f"{TARGET}*", at_call=1)
    files = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    result = stopping([], 20 * US, file_system=files, restart=NoRestart()).run()

    assert result.state == "failed"
    assert "with which the job was to stop, was aborted" in str(result.error)


def test_a_job_stops_once() -> None:
    """A second order to stop is refused."""
    made = stopping([], 20 * US)
    with pytest.raises(ConfigurationError, match="asked for twice"):
        made.savepoint(30 * US, TARGET, stop=StopMode.TERMINATE)
    with pytest.raises(ConfigurationError, match="stopping with a savepoint needs a mode that takes snapshots"):
        stopping([], 20 * US, mode="none")


def test_stopping_while_the_job_restarts_fails() -> None:
    """There is no task to stop; the job goes on later."""
    made = stopping([], 20 * US, kills=[("count", 15 * US)], restart=FixedDelayRestart(None, 50 * US))
    result = made.run().raise_on_failure()

    assert result.state == "finished"
    assert result.savepoints[0].error == "the job is restarting"
