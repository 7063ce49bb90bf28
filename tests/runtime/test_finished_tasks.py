"""Tasks that finish before their job: checkpoints go on, know of them, and are restored with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restart import FixedDelayRestart
from engine.checkpoint.restore import FinishedMarkersError
from engine.elements.errors import JobFailedError
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.events import AttemptStarted, CheckpointCompleted, SnapshotTaken, TaskState
from engine.runtime.checkpoint_files import SavepointRestore
from engine.runtime.config import RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import Execution
from engine.runtime.failover import FinalCheckpointError
from engine.runtime.kernel import START_NS
from operators.sinks import CollectedResults
from operators.sources import SequenceSource
from state_backends.filesystem import FaultInjectingFileSystem, FaultKind, FaultRule, MemoryFileSystem
from state_backends.storage import CheckpointStorage
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
    """When each task finished."""
    return {
        one.task.split(" ")[0].removesuffix("[0]"): one.time_ns - START_NS
        for one in trace.of(TaskState)
        if one.state == "finished" and one.attempt == attempt
    }


# --- while they finish ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_source_that_ends_early_finishes_early(mode: str) -> None:
    """It goes with the first checkpoint behind its end; who reads from it only follows; the others go on."""
    trace, results = Trace(), CollectedResults()
    checked(execution(uneven(results), instruments=[trace], mode=mode, **SETTINGS)).raise_on_failure()

    ended = {one.task: one.time_ns - START_NS for one in trace.of(TaskState) if one.state == "end_of_data"}
    at = finished_at(trace)
    assert 10 * US <= ended["short -> side[0]"] < at["short"] == at["aside"] < 15 * US
    assert at["long"] == at["count"] > 80 * US
    assert Counter(results.records) == expected()


def test_no_source_finishes_before_a_checkpoint_behind_its_end() -> None:
    """Without periodic checkpoints it waits for the last one of the job."""
    trace = Trace()
    run(uneven([]), instruments=[trace], batch_size=2, checkpoint_interval=None)

    assert set(finished_at(trace).values()) == {80 * US}


def test_switched_off_all_tasks_finish_together() -> None:
    """Checkpoints after tasks finish off: a task at its end stays, and every checkpoint has every task."""
    trace, results = Trace(), CollectedResults()
    run(uneven(results), instruments=[trace], checkpoints_after_tasks_finish=False, **SETTINGS)

    assert min(finished_at(trace).values()) >= 80 * US
    taken = Counter(one.checkpoint_id for one in trace.of(SnapshotTaken))
    assert set(taken.values()) == {4}
    assert Counter(results.records) == expected()


def test_checkpoints_go_on_without_the_finished() -> None:
    """They wait for nobody who is not there, and are consistent."""
    trace, oracle = Trace(), CutOracle()
    run(uneven([]), instruments=[trace, oracle], **SETTINGS)

    taken = Counter(one.checkpoint_id for one in trace.of(SnapshotTaken))
    completed = [one.checkpoint_id for one in trace.of(CheckpointCompleted)]
    assert taken[completed[0]] == 4
    assert taken[completed[-1]] == 2
    assert oracle.held
    assert len(oracle.verdicts) == len(completed)


def test_who_has_only_finished_inputs_is_triggered_directly() -> None:
    """A slow task behind a finished source still takes part: the coordinator asks it itself."""
    trace, results = Trace(), CollectedResults()
    job = Job("slow").source(SequenceSource(0, 40), name="numbers")
    job.map(lambda number: number, name="slow", chain=False).collect(results, name="out", chain=False)
    made = execution(
        job._job,
        instruments=[trace],
        batch_size=40,
        mode="unaligned",
        channel_capacity=1_000,
        checkpoint_interval=every(ns=50 * US),
        cost=CostModel(record_ns=5 * US),
    )
    checked(made).raise_on_failure()

    at = finished_at(trace)
    behind = [one for one in trace.of(SnapshotTaken) if one.time_ns - START_NS > at["numbers"]]
    assert at["numbers"] < at["slow"]
    assert {one.task for one in behind} <= {"slow[0]", "out[0]"}
    assert results.records == list(range(40))


def test_a_source_waits_until_what_it_sent_is_consumed() -> None:
    """An unaligned barrier overtakes records; a source that went while they are on their way would take them along."""
    trace, results = Trace(), CollectedResults()
    job = Job("backlog").source(SequenceSource(0, 100), name="numbers")
    job.map(lambda number: number, name="slow", chain=False).collect(results, name="out")
    settings: dict[str, Any] = {
        "batch_size": 100,
        "channel_capacity": 1_000,
        "checkpoint_interval": every(ns=130 * US),
        "cost": CostModel(record_ns=10 * US),
        "restart": FixedDelayRestart(None, 0),
    }
    run(job._job, instruments=[trace], mode="unaligned", **settings)

    ended = {one.task: one.time_ns - START_NS for one in trace.of(TaskState) if one.state == "end_of_data"}
    completed = [one.time_ns - START_NS for one in trace.of(CheckpointCompleted)]
    assert any(ended["numbers[0]"] < at < ended["slow -> out[0]"] for at in completed), "nothing was overtaken"
    assert finished_at(trace)["numbers"] >= ended["slow -> out[0]"]


# --- restoring them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EXACT)
@pytest.mark.parametrize("target", ["count", "long", "short", "aside", "job manager"])
@pytest.mark.parametrize("killed_at_us", [9, 12, 15, 22, 40, 78, 80])
def test_killed_before_and_behind_the_first_end_each_is_counted_once(
    mode: str, target: str, killed_at_us: int
) -> None:
    """Whether the tasks that have finished are restored as such, or run again, the output is that of one pass."""
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
    """Their operators are not run again: no record, no snapshot, no close; what they fed learns that it ends."""
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
    assert {one.time_ns for one in trace.of(TaskState) if one.attempt == 2 and one.task in ("short[0]", "aside[0]")} == {
        began
    }


def test_the_metadata_says_who_had_finished() -> None:
    """Every operator of the vertex, every subtask, and no state of theirs."""
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
    """A savepoint behind the end of the short source, restored with other subtasks: it is not read again."""
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
    """Its records would reach nobody; the error names both."""
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
    """A disk on which no checkpoint completes."""
    return FaultInjectingFileSystem(
        MemoryFileSystem(), [FaultRule(FaultKind.DISK_FULL, "rename", "*/_metadata*")]
    )


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_last_checkpoint_that_cannot_complete_fails_the_job(attempts: int) -> None:
    """Tried so many times, whatever failures are tolerated and however often the job may restart; then the error says
    what failed, and that what came behind the newest checkpoint is not committed."""
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
    """A disk that is full for a while costs a while."""
    results, trace = CollectedResults(), Trace()
    faulty = FaultInjectingFileSystem(
        MemoryFileSystem(),
        [FaultRule(FaultKind.DISK_FULL, "rename", "*/_metadata*", at_call=call) for call in (1, 2, 3)],
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
