"""The death of the job manager, at every point of a run: a successor goes on from durable state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.errors import StorageError
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, CheckpointTriggered, TaskState
from engine.runtime.config import CostModel
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.files.sinks import FileSink, read_committed
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.cases import case, crossed
from tests.runtime.support import (
    US,
    Trace,
    checked,
    every,
    execution,
    expected_counts,
    files_below,
    running_count,
    storage_in,
)

RECORDS = 24
MODES = ("aligned", "at-least-once", "unaligned", "aligned-timeout")
EXACT = ("aligned", "unaligned", "aligned-timeout")
SETTINGS: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=5 * US), "master_recovery_ns": 1 * US}


def counting(into: Any, *, parallelism: int = 2) -> Job:
    """Two sources, two counts, two sinks."""
    return running_count(Job("counting", parallelism=parallelism), RECORDS, into, keys=5)


def struck(made: Execution, *after_events: int) -> Execution:
    """Kill the job manager after these numbers of kernel events, each counted from the one before."""
    run_on = made._run_kernel

    def run_kernel(progress: Any) -> None:
        for events in after_events:
            made.kernel.run(events)
            if made.kernel.stopped:
                return
            made.manager.kill_master("killed")
        run_on(progress)

    made._run_kernel = run_kernel  # type: ignore[method-assign]
    return made


@cache
def event_count() -> int:
    """How many kernel events the undisturbed run takes."""
    return execution(counting(CollectedResults()), **SETTINGS).run().events_executed


@dataclass(frozen=True)
class Killed:
    result: ExecutionResult
    records: Counter[Any]
    trace: Trace
    oracle: CutOracle


@cache
def killed_after(events: int) -> Killed:
    """The job, its job manager killed after so many kernel events."""
    results, trace, oracle = CollectedResults(), Trace(), CutOracle()
    made = execution(counting(results), instruments=[trace, oracle], **SETTINGS)
    result = struck(made, events).run().raise_on_failure()
    return Killed(result, Counter(results.records), trace, oracle)


def test_killed_behind_any_event_each_record_is_counted_once() -> None:
    """At every point of every checkpoint, and between them: each record is counted once."""
    for after in range(event_count()):
        with case(after=after):
            killed = killed_after(after)

            assert killed.records == expected_counts(RECORDS, 5)
            assert killed.result.attempts == 2
            assert killed.oracle.held


@pytest.mark.parametrize("mode", MODES)
def test_killed_again_while_it_recovers(mode: str) -> None:
    """The successor dies, too: before it has deployed any task, and soon after that."""
    # Each mode begins at another event: together they strike after every sixth event.
    for after, again in product(range(2 + 6 * MODES.index(mode), event_count(), 24), (1, 2, 5, 20)):
        with case(after=after, again=again):
            results = CollectedResults()
            made = execution(counting(results), mode=mode, **SETTINGS)
            result = struck(made, after, again).run().raise_on_failure()

            if mode == "at-least-once":
                assert not expected_counts(RECORDS, 5).keys() - Counter(results.records).keys()
            else:
                assert Counter(results.records) == expected_counts(RECORDS, 5)
            assert result.attempts in (2, 3)


@crossed(quick=3, mode=EXACT, first=["count[0]", "numbers", "job manager"], later_us=[0, 1, 2, 3, 4, 8])
def test_killed_around_a_restart_of_tasks(mode: str, first: str, later_us: int) -> None:
    """Tasks die and the job manager dies while they wait to be restarted, or the other way round."""
    for order in ((first, "job manager"), ("job manager", first)):
        results, oracle = CollectedResults(), CutOracle()
        kills = [(order[0], 12 * US), (order[1], (12 + later_us) * US)]
        made = execution(
            counting(results),
            kills=kills,
            instruments=[oracle],
            mode=mode,
            restart=FixedDelayRestart(None, 3 * US),
            cost=CostModel(storage_latency_ns=1 * US),
            inline_state_bytes=0,
            **SETTINGS,
        )
        checked(made).raise_on_failure()

        assert Counter(results.records) == expected_counts(RECORDS, 5)
        assert oracle.held


def test_its_death_is_no_failure_of_the_job() -> None:
    """No restart strategy is asked, and none of its attempts is used up; the report says when the job came back."""
    trace = Trace()
    made = execution(
        counting(CollectedResults()),
        kills=[("job manager", 8 * US)],
        instruments=[trace],
        restart=NoRestart(),
        **{**SETTINGS, "master_recovery_ns": 20 * US},
    )
    result = checked(made).raise_on_failure()

    assert [restore.time_ns - START_NS for restore in result.restores] == [0, 28 * US]
    assert any("the job manager was killed" in note for note in result.notes)
    canceled = [one for one in trace.of(TaskState) if one.state == "canceled"]
    assert {one.time_ns - START_NS for one in canceled} == {8 * US}
    assert len(canceled) == 4
    assert [one.attempt for one in trace.of(AttemptStarted)] == [1, 2]


def test_what_was_planned_before_its_death_is_void() -> None:
    """A restart, or a recovery, that was planned before the job manager died (again) does not come too early."""
    made = execution(
        counting(CollectedResults()),
        kills=[("count", 5 * US), ("job manager", 7 * US), ("count", 15 * US)],
        restart=FixedDelayRestart(None, 20 * US),
        **SETTINGS,
    )
    starts = [restore.time_ns - START_NS for restore in checked(made).raise_on_failure().restores]
    assert starts == [0, 8 * US, 35 * US]

    made = execution(
        counting(CollectedResults()),
        kills=[("job manager", 5 * US), ("job manager", 15 * US)],
        **{**SETTINGS, "master_recovery_ns": 20 * US},
    )
    starts = [restore.time_ns - START_NS for restore in checked(made).raise_on_failure().restores]
    assert starts == [0, 35 * US]


def test_ids_are_never_used_twice() -> None:
    """The successor's ids are above all ids that were pending, aborted or complete when it died."""
    for after in range(event_count()):
        ids = [one.checkpoint_id for one in killed_after(after).trace.of(CheckpointTriggered)]

        assert ids == sorted(set(ids)), after


def test_a_checkpoint_that_was_durable_is_not_lost() -> None:
    """It died after the metadata was durable and before the notifications: the successor restores that checkpoint."""
    found = 0
    for after in range(event_count()):
        killed = killed_after(after)
        before = [one.checkpoint_id for one in killed.trace.of(CheckpointCompleted) if one.attempt == 1]
        assert killed.result.restores[1].checkpoint_id == (before[-1] if before else None), after
        rows = killed.result.checkpoints.rows()
        row = next((row for row in rows if before and row.checkpoint_id == before[-1]), None)
        found += row is not None and row.failure_cause == "the job manager died"
    assert found >= 2, "it never died between the two"


def test_what_it_had_begun_is_deleted() -> None:
    """Directories of checkpoints that were pending when it died are deleted."""
    for after in range(0, event_count(), 5):
        files = MemoryFileSystem()
        made = execution(counting(CollectedResults()), file_system=files, retained=1, inline_state_bytes=0, **SETTINGS)
        struck(made, after).run().raise_on_failure()
        listed = storage_in(files, "counting").list_checkpoints()
        where = {path.rsplit("/", 2)[1] for path in files_below(files) if "/chk-" in path}

        assert where == {f"chk-{one}" for one in listed}
        assert len(listed) == 1


def test_sinks_commit_once() -> None:
    """The notification that commits files may be lost with the job manager: the restore commits them."""
    for after in range(0, event_count(), 2):
        files = MemoryFileSystem()
        numbers = Job("files").source(SequenceSource(0, RECORDS), name="numbers", parallelism=1)
        job = numbers.map(lambda number: {"n": number}, name="row").sink(FileSink("rows"), name="out", chain=False)
        made = execution(job, file_system=files, **SETTINGS)
        struck(made, after).run().raise_on_failure()

        rows = [row for bucket in read_committed(files, "/out/rows").values() for row in bucket]
        assert sorted(rows) == sorted(f'{{"n":{number}}}' for number in range(RECORDS)), after


@pytest.mark.parametrize("failover", ["full", "region"])
def test_it_dies_with_a_region_down(failover: str) -> None:
    """The successor deploys all regions; the restart that was planned for one region does not happen in addition."""
    results = CollectedResults()
    job = Job("two")
    for name in ("a", "b"):
        source = job.source(SequenceSource(0, RECORDS), name=f"numbers-{name}")
        source.map(lambda number, name=name: (name, number), name=f"map-{name}").collect(results, name=f"out-{name}")
    made = execution(
        job,
        kills=[("map-a", 10 * US), ("job manager", 12 * US)],
        failover=failover,
        restart=FixedDelayRestart(None, 10 * US),
        **SETTINGS,
    )
    result = checked(made).raise_on_failure()

    assert result.attempts == 2
    assert Counter(results.records) == Counter((name, number) for name in ("a", "b") for number in range(RECORDS))


def test_a_dead_job_manager_hears_nothing() -> None:
    """Acknowledgements and timers that were on their way to it are dropped; the table keeps the earlier ones."""
    made = execution(
        counting(CollectedResults()),
        kills=[("job manager", 8 * US)],
        cost=CostModel(storage_latency_ns=2 * US),
        inline_state_bytes=0,
        checkpoint_timeout_ns=4 * US,
        tolerable_failures=100,
        **SETTINGS,
    )
    result = checked(made).raise_on_failure()

    rows = {row.checkpoint_id: row for row in result.checkpoints.rows()}
    assert rows[1].failure_cause == "the job manager died"
    assert result.checkpoints.in_progress == 0
    assert result.checkpoints.triggered == result.checkpoints.completed + result.checkpoints.failed


def test_a_kill_behind_the_end_strikes_nobody() -> None:
    """The job is over, and the report says so."""
    made = execution(counting(CollectedResults()), **SETTINGS)
    made.run().raise_on_failure()
    made.manager.kill_master("killed")

    assert made.manager.job.state == "finished"
    assert any("nothing to kill" in note and "finished" in note for note in made.manager.job.notes)


def test_nothing_usable_fails_the_job() -> None:
    """All completed checkpoints are damaged when the successor looks: starting from nothing would commit twice."""
    files = MemoryFileSystem()
    made = execution(counting(CollectedResults()), file_system=files, kills=[("job manager", 18 * US)], **SETTINGS)
    made.kernel.schedule(START_NS + 18 * US, "strike", Vandal(files))
    result = made.run()

    assert result.state == "failed"
    assert isinstance(result.error.__cause__ if result.error else None, StorageError)
    assert "none of the completed checkpoints can be used" in str(result.error)


class Vandal:
    """Damages the metadata of every checkpoint."""

    name = "vandal"

    def __init__(self, files: MemoryFileSystem) -> None:
        self._files = files

    def strike(self, _payload: object) -> None:
        for path in list(self._files.walk_files("/checkpoints")):
            if path.endswith("_metadata"):
                with self._files.open_write(path) as file:
                    file.write(b"damaged")


@crossed(
    quick=2,
    operation=["rename", "fsync", "fsync_dir", "write", "open_write", "make_dirs", "delete"],
    call=[1, 2, 4, 9],
)
def test_storage_fails_while_it_dies(operation: str, call: int) -> None:
    """A disk is full for one call, and the job manager dies, twice: the output is right, or the failure is clear."""
    kinds = FileFault.READ_ONLY if operation == "delete" else FileFault.DISK_FULL
    for first_us in (5, 7, 10, 16):
        results = CollectedResults()
        rule = FaultRule(kinds, operation, "/checkpoints/*", at_call=call)
        made = execution(
            counting(results),
            file_system=FaultInjectingFileSystem(MemoryFileSystem(), [rule]),
            kills=[("job manager", first_us * US), ("job manager", (first_us + 4) * US)],
            tolerable_failures=10,
            restart=FixedDelayRestart(None, 1 * US),
            inline_state_bytes=0,
            **SETTINGS,
        )
        result = checked(made)

        if result.state == "failed":
            assert "state to recover from" in str(result.error)
            assert not Counter(results.records) - expected_counts(RECORDS, 5)
        else:
            assert Counter(results.records) == expected_counts(RECORDS, 5)
