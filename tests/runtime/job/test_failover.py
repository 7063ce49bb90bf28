"""Failover: regions, restart strategies in a run, and what a regional restart leaves unchanged."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointAborted, CheckpointTriggered, TaskState
from engine.runtime.config import CostModel
from engine.runtime.job.task_deployment import failover_regions
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.cases import crossed
from tests.runtime.support import US, Trace, checked, every, execution, expected_counts, run, running_count

RECORDS = 60
EXACT = ("aligned", "unaligned", "aligned-timeout")
AT_ONCE = FixedDelayRestart(None, 0)
SETTINGS: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), "failover": "region"}


def two_jobs(into: Any, records: int = RECORDS) -> Job:
    """Two pipelines in one job, which exchange no records: two regions."""
    job = Job("two")
    for name in ("a", "b"):
        running_count_of(job, name, records, into)
    return job


def running_count_of(job: Job, name: str, records: int, into: Any) -> None:
    """A source and a count, their names ending in ``name``."""
    numbers = job.source(SequenceSource(0, records), name=f"numbers-{name}")
    pairs = numbers.map(lambda number: (number % 3, 1), name=f"pair-{name}")
    counted = pairs.key_by(lambda pair: pair[0]).reduce(lambda x, y: (x[0], x[1] + y[1]), name=f"count-{name}")
    counted.collect(into, name=f"out-{name}")


REGION_A = ("numbers-a -> pair-a[0]", "count-a -> out-a[0]")
REGION_B = ("numbers-b -> pair-b[0]", "count-b -> out-b[0]")
BOTH = expected_counts(RECORDS, 3) + expected_counts(RECORDS, 3)


# --- regions ----------------------------------------------------------------------------------------------------------


def test_regions_are_what_exchanges_records() -> None:
    """Two pipelines are two regions; a keyed edge, or a union, joins all that it connects into one region."""
    assert [len(region) for region in failover_regions(two_jobs([]).plan())] == [2, 2]
    assert len(failover_regions(running_count(Job("keyed", parallelism=3), 5, []).plan())) == 1


def test_forward_edges_keep_subtasks_apart() -> None:
    """Subtasks that feed only the subtask with their own index are regions of their own."""
    job = Job("forward", parallelism=3).source(SequenceSource(0, 9), name="numbers")
    plan = job.map(lambda number: number, chain=False).collect([], chain=False).plan()

    regions = failover_regions(plan)
    assert regions == tuple(tuple((vertex, subtask) for vertex in range(3)) for subtask in range(3))


def test_rescale_edges_connect_some_subtasks() -> None:
    """Four senders, two receivers: two regions of two senders and one receiver."""
    job = Job("rescale").source(SequenceSource(0, 9), name="numbers", parallelism=4)
    built = job.rescale().map(lambda number: number, parallelism=2).collect([], parallelism=2).plan()

    assert [len(region) for region in failover_regions(built)] == [3, 3]


# --- a regional restart -----------------------------------------------------------------------------------------------


@crossed(quick=2, mode=EXACT, target=["count-a", "numbers-b"], killed_at_us=range(1, 62, 5))
def test_a_killed_region_counts_each_record_once(mode: str, target: str, killed_at_us: int) -> None:
    """Killed twice, in both regions, at any time: each record is counted once, and every checkpoint is consistent."""
    results, oracle = CollectedResults(), CutOracle()
    made = execution(
        two_jobs(results),
        kills=[(target, killed_at_us * US), ("count-b", (killed_at_us + 3) * US)],
        instruments=[oracle],
        mode=mode,
        seed=f"{target} {killed_at_us}",
        restart=FixedDelayRestart(None, 2 * US),
        **SETTINGS,
    )
    checked(made).raise_on_failure()

    assert Counter(results.records) == BOTH
    assert oracle.held


def test_the_other_region_goes_on() -> None:
    """Its tasks stay in their attempt, read no record again, and get no request at all."""
    trace, results = Trace(), CollectedResults()
    made = execution(two_jobs(results), kills=[("count-a", 34 * US)], instruments=[trace], restart=AT_ONCE, **SETTINGS)
    result = checked(made).raise_on_failure()

    assert {name for _, name, _ in _states(trace, "canceled", "failed")} == set(REGION_A)
    attempts = {task: attempt for attempt, task, state in _states(trace, "running")}
    assert {task[-4]: attempt for task, attempt in attempts.items()} == {"a": 2, "b": 1}
    assert [restore.tasks for restore in result.restores] == [None, REGION_A]
    full = run(two_jobs([]), kills=[("count-a", 34 * US)], restart=AT_ONCE, **{**SETTINGS, "failover": "full"})
    assert result.source_records < full.source_records


def _states(trace: Trace, *states: str) -> list[tuple[int, str, str]]:
    return [(one.attempt, one.task, one.state) for one in trace.of(TaskState) if one.state in states]


def test_pending_checkpoints_die_with_the_region() -> None:
    """The failed region will not acknowledge: they are aborted for the failover; the schedule goes on by itself."""
    trace = Trace()
    run(
        two_jobs([]),
        kills=[("count-a", 15 * US)],
        instruments=[trace],
        restart=FixedDelayRestart(None, 1 * US),
        cost=CostModel(storage_latency_ns=4 * US),
        inline_state_bytes=0,
        **SETTINGS,
    )

    reasons = Counter(one.reason for one in trace.of(CheckpointAborted))
    assert reasons["JOB_FAILOVER_REGION"] == 1
    assert reasons["CHECKPOINT_COORDINATOR_SUSPEND"] <= 1, "only the one at the end of the job"
    assert any(one.time_ns - START_NS > 30 * US for one in trace.of(CheckpointTriggered))


def test_what_is_triggered_while_a_region_is_down_fails() -> None:
    """Not all required tasks run: no id is consumed, and the checkpoint counts as triggered and failed."""
    trace = Trace()
    made = execution(
        two_jobs([]),
        kills=[("count-a", 10 * US)],
        restart=FixedDelayRestart(None, 30 * US),
        instruments=[trace],
        **SETTINGS,
    )
    made.savepoint(20 * US, "/saved")
    result = checked(made).raise_on_failure()

    assert result.savepoints[0].error == "not all required tasks are running"
    during = [one for one in trace.of(CheckpointTriggered) if 10 * US < one.time_ns - START_NS < 40 * US]
    assert during == []
    # Periodic ones at 14, 21, 28 and 35 µs, and the savepoint.
    assert result.checkpoints.failed == 5
    ids = [one.checkpoint_id for one in trace.of(CheckpointTriggered)]
    assert ids == list(range(1, len(ids) + 1))


def test_both_regions_may_be_down_at_once() -> None:
    """Each comes back by itself, at its own time; what fails while its region is down is not counted again."""
    trace, results = Trace(), CollectedResults()
    made = execution(
        two_jobs(results),
        kills=[("count-a", 20 * US), ("numbers-b", 25 * US), ("count-b", 25 * US)],
        instruments=[trace],
        restart=FixedDelayRestart(2, 10 * US),
        **SETTINGS,
    )
    result = checked(made).raise_on_failure()

    starts = {restore.tasks and restore.tasks[0][8]: restore.time_ns - START_NS for restore in result.restores}
    assert starts == {None: 0, "a": 30 * US, "b": 35 * US}
    assert Counter(results.records) == BOTH


def test_a_job_of_one_region_restarts_as_a_whole() -> None:
    """All tasks restart in a new attempt; this is full failover."""
    job = running_count(Job("one", parallelism=2), RECORDS, [])
    result = run(job, kills=[("count[0]", 20 * US)], restart=AT_ONCE, **SETTINGS)

    assert [restore.tasks for restore in result.restores] == [None, None]


def test_no_restart_ends_all_regions() -> None:
    """When the strategy gives up, the tasks that still run are cancelled."""
    result = execution(two_jobs([]), kills=[("count-a", 20 * US)], restart=NoRestart(), **SETTINGS).run()

    assert result.state == "failed"
    assert {task.state for task in result.tasks} == {"failed", "canceled"}


def test_too_many_failed_checkpoints_end_all_regions() -> None:
    """This is a failure of the job, not of a region."""
    faulty = FaultInjectingFileSystem(
        MemoryFileSystem(), [FaultRule(FileFault.DISK_FULL, "rename", "*/_metadata*", at_call=2)]
    )
    result = run(two_jobs([]), file_system=faulty, restart=AT_ONCE, **SETTINGS)

    assert [restore.tasks for restore in result.restores] == [None, None]


def test_a_region_goes_back_to_an_older_checkpoint_when_the_newest_is_damaged() -> None:
    """Regions exchange no records: one may go back further than the other, and each record still counts once."""
    files, results, trace = MemoryFileSystem(), CollectedResults(), Trace()
    made = execution(
        two_jobs(results),
        file_system=files,
        kills=[("count-a", 30 * US)],
        instruments=[trace],
        restart=FixedDelayRestart(None, 1 * US),
        retained=3,
        **SETTINGS,
    )
    made.kernel.schedule(START_NS + 30 * US, "strike", Damage(files, "/checkpoints/two/chk-4/_metadata"))
    result = checked(made).raise_on_failure()

    assert result.restores[1].checkpoint_id == 3
    assert any("checkpoint 4 cannot be used" in problem for problem in result.restores[1].problems)
    # The sink of these tests does not roll back what it had committed; the counts themselves are right.
    assert Counter(results.records).keys() == BOTH.keys()


class Damage:
    name = "damage"

    def __init__(self, files: MemoryFileSystem, path: str) -> None:
        self._files = files
        self._path = path

    def strike(self, _payload: object) -> None:
        assert self._files.exists(self._path)
        with self._files.open_write(self._path) as file:
            file.write(b"damaged")


def test_a_finished_region_is_no_burden() -> None:
    """The short pipeline has finished; the long one fails and restarts; the short one does not restart."""
    trace, results = Trace(), CollectedResults()
    job = Job("two")
    running_count_of(job, "a", 12, results)
    running_count_of(job, "b", RECORDS, results)
    kills = [("count-b", 40 * US), ("count-a", 50 * US)]
    made = execution(job, kills=kills, instruments=[trace], restart=AT_ONCE, **SETTINGS)
    result = checked(made).raise_on_failure()

    assert result.attempts == 2
    assert {name for _, name, _ in _states(trace, "canceled", "failed")} == set(REGION_B)
    assert any("nothing to kill" in note and "is finished" in note for note in result.notes)
    assert Counter(results.records) == expected_counts(12, 3) + expected_counts(RECORDS, 3)


@pytest.mark.parametrize("failover", ["full", "region"])
def test_a_restart_waits_until_it_knows_which_checkpoint_is_the_newest(failover: str) -> None:
    """It waits for the answer about the metadata that is being written, and starts from that checkpoint."""
    for seed in range(20):
        results = CollectedResults()
        made = execution(two_jobs(results), seed=str(seed), restart=AT_ONCE, **{**SETTINGS, "failover": failover})
        run_on = made._run_kernel

        def strike(progress: Any, made: Any = made, run_on: Any = run_on) -> None:
            while made.manager.coordinator.pending.finalizing_id != 3:
                assert made.kernel.run(1)
            next(iter(made.manager.tasks.values())).life.fail(RuntimeError("struck"))
            run_on(progress)

        made._run_kernel = strike  # type: ignore[method-assign]
        result = made.run().raise_on_failure()

        assert [restore.checkpoint_id for restore in result.restores] == [None, 3], f"seed {seed}"
        assert Counter(results.records) == BOTH


# --- restart strategies in a run --------------------------------------------------------------------------------------


def restarts(strategy: Any, *killed_at_us: int, **settings: Any) -> Any:
    return execution(
        running_count(Job("restarts"), 400, CollectedResults()),
        kills=[("count", at * US) for at in killed_at_us],
        restart=strategy,
        **{"batch_size": 3, "checkpoint_interval": every(ns=5 * US), **settings},
    ).run()


def test_exponential_delays_grow_in_a_run() -> None:
    """10, 20, then 40 µs after the kills."""
    strategy = ExponentialDelayRestart(10 * US, 1_000 * US, 2.0, reset_after_ns=1_000 * US, jitter=0)
    result = restarts(strategy, 5, 20, 50)

    starts = [restore.time_ns - START_NS for restore in result.restores]
    assert starts == [0, 15 * US, 40 * US, 90 * US]


def test_jitter_comes_from_the_seed() -> None:
    """Another seed draws another delay, within its bounds; the same seed draws the same; it is a recorded choice."""
    strategy = ExponentialDelayRestart(100 * US, 100_000 * US, 2.0, reset_after_ns=1_000_000 * US, jitter=0.5)
    delays = []
    for seed in ("0", "0", "1", "2"):
        result = restarts(strategy, 5, 200, seed=seed)
        delays.append(result.restores[2].time_ns - START_NS - 200 * US)
        assert [choice.bound for choice in result.choices.log if choice.stream == "restart jitter"] == [
            100 * US + 1, 200 * US + 1,
        ]  # fmt: skip
    assert delays[0] == delays[1]
    assert len(set(delays)) == 3
    assert all(100 * US <= delay <= 300 * US for delay in delays)


def test_failures_that_crowd_end_the_job() -> None:
    """Two failures within 30 µs are one too many; at a longer distance the job goes on."""
    strategy = FailureRateRestart(1, 30 * US, 1 * US)

    assert restarts(strategy, 5, 40).state == "finished"
    failed = restarts(strategy, 5, 30)
    assert failed.state == "failed"
    assert "at most 1 failure within 0.03 ms" in str(failed.error)


def test_all_regions_count_against_one_strategy() -> None:
    """Two failures in two regions are two failures of the job."""
    made = execution(
        two_jobs([]),
        kills=[("count-a", 20 * US), ("count-b", 30 * US)],
        restart=FixedDelayRestart(1, 1 * US),
        **SETTINGS,
    )
    result = made.run()

    assert result.state == "failed"
    assert "at most 1 restarts" in str(result.error)


def test_the_first_checkpoint_may_come_at_a_random_time() -> None:
    """Between the pause and the interval, drawn from the seed, and recorded; each deployment draws anew."""
    firsts = set()
    for seed in range(12):
        trace = Trace()
        result = run(
            running_count(Job("first"), 200, []),
            instruments=[trace],
            seed=str(seed),
            random_first_delay=True,
            checkpoint_interval=every(ns=50 * US),
            min_pause_ns=20 * US,
        )
        first_ns = trace.of(CheckpointTriggered)[0].time_ns - START_NS
        assert 20 * US <= first_ns <= 50 * US
        assert [choice.bound for choice in result.choices.log if choice.stream == "first checkpoint"] == [30 * US + 1]
        firsts.add(first_ns)
    assert len(firsts) > 6
