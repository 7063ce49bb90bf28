"""Restarts: whichever task is killed, at any time, the output is that of one pass over the input."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import JobFailedError, KeyTypeMismatchError, MissingDependencyError
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import AttemptStarted, TaskState
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import CollectionSource, SequenceSource
from tests.cases import crossed
from tests.runtime.support import MS, US, Trace, checked, every, execution, expected_counts, run, running_count

RECORDS = 60
AT_ONCE = FixedDelayRestart(None, 0)


def parallel_count(into: CollectedResults) -> Job:
    """Two sources, two counts, two sinks."""
    return running_count(Job("parallel", parallelism=2), RECORDS, into, keys=5)


@crossed(quick=2, target=["numbers[0]", "count[1]", "out", "numbers"], killed_at_record=range(1, 61, 4))
def test_killed_at_any_record_each_is_counted_once(target: str, killed_at_record: int) -> None:
    """A kill of a source, a count or all of them, at every fourth record, does not change the output."""
    results, oracle = CollectedResults(), CutOracle()
    made = execution(
        parallel_count(results),
        kills=[(target, killed_at_record * US)],
        instruments=[oracle],
        seed=f"{target} {killed_at_record}",
        batch_size=3,
        checkpoint_interval=every(ns=7 * US),
        restart=AT_ONCE,
    )

    checked(made).raise_on_failure()

    assert Counter(results.records) == expected_counts(RECORDS, 5)
    assert oracle.held


@crossed(quick=3, killed_at_ns=[0, 1, 6_999, 7_000, 7_001, 14_000, 29_999, 30_000, 35_000], first_seed=range(3))
def test_killed_at_the_instant_of_a_checkpoint_each_is_counted_once(killed_at_ns: int, first_seed: int) -> None:
    """Kill and trigger, barrier or notification in one instant, in the order of thirty seeds."""
    for seed in range(first_seed, 30, 3):
        results = CollectedResults()

        run(
            parallel_count(results),
            kills=[("count[0]", killed_at_ns)],
            seed=str(seed),
            batch_size=5,
            checkpoint_interval=every(ns=7 * US),
            restart=AT_ONCE,
        )

        assert Counter(results.records) == expected_counts(RECORDS, 5), f"seed {seed}"


def test_many_kills_cost_time_but_no_record() -> None:
    """Killed ten times, in recovery too, the job comes to its end with the right output."""
    results = CollectedResults()
    kills = [(target, at * 4 * US) for at in range(1, 6) for target in ("numbers", "count[0]")]

    result = run(
        parallel_count(results),
        kills=kills,
        batch_size=4,
        checkpoint_interval=every(ns=3 * US),
        restart=FixedDelayRestart(None, 1 * US),
    )

    assert result.attempts >= 6
    assert Counter(results.records) == expected_counts(RECORDS, 5)


def test_an_attempt_starts_from_the_newest_completed_checkpoint() -> None:
    """Each attempt reports which checkpoint it starts from: the newest one completed before."""
    trace = Trace()

    result = run(
        parallel_count(CollectedResults()),
        kills=[("count", 12 * US), ("count", 30 * US)],
        instruments=[trace],
        batch_size=1,
        checkpoint_interval=every(ns=5 * US),
        restart=AT_ONCE,
    )

    restored = [one.restored_checkpoint for one in trace.of(AttemptStarted)]
    assert restored == [restore.checkpoint_id for restore in result.restores] == [None, 2, 5]
    assert [restore.attempt for restore in result.restores] == [1, 2, 3]
    assert result.checkpoints.restored == 2


def test_a_job_killed_before_its_first_checkpoint_begins_anew() -> None:
    """Without a completed checkpoint an attempt starts from nothing; the earlier attempt has committed nothing."""
    results = CollectedResults()

    result = run(
        parallel_count(results), kills=[("out", 4 * US)], checkpoint_interval=every(ns=20 * US), restart=AT_ONCE
    )

    assert [restore.checkpoint_id for restore in result.restores] == [None, None]
    assert Counter(results.records) == expected_counts(RECORDS, 5)


def test_no_restart_fails_at_once() -> None:
    """With no restart the first failure is final, and the error says so."""
    result = execution(parallel_count(CollectedResults()), kills=[("out[1]", 9 * US)], restart=NoRestart()).run()

    assert (result.state, result.attempts) == ("failed", 1)
    assert isinstance(result.error, JobFailedError)
    for part in ("'parallel'", "attempt 1", "no restart", "out[1] was killed"):
        assert part in str(result.error)
    assert {task.state for task in result.tasks} == {"failed", "canceled"}
    with pytest.raises(JobFailedError):
        result.raise_on_failure()


def test_fixed_delay_restarts_so_many_times_and_so_much_later() -> None:
    """Two restarts, each the delay after its failure; the third failure is final."""
    kills = [("count", 10 * US), ("count", 40 * US), ("count", 70 * US)]

    result = execution(
        parallel_count(CollectedResults()), kills=kills, restart=FixedDelayRestart(2, 25 * US), batch_size=2
    ).run()

    starts = [restore.time_ns - START_NS for restore in result.restores]
    assert (result.state, result.attempts) == ("failed", 3)
    assert starts == [0, 35 * US, 65 * US]
    assert "at most 2 restarts" in str(result.error)


def test_a_failed_job_publishes_nothing_of_its_last_attempt() -> None:
    """When a job fails for good its sinks hold the rows that its completed checkpoints cover."""
    results = CollectedResults()
    job = Job("fails").source(SequenceSource(0, RECORDS), name="numbers").collect(results)

    result = execution(
        job, kills=[("numbers", 33 * US)], restart=NoRestart(), batch_size=1, checkpoint_interval=every(ns=10 * US)
    ).run()

    assert result.state == "failed"
    assert results.records == list(range(30))


def test_attempts_that_end_alike_are_noted_together() -> None:
    """Each cause once, with the attempts that it ended; the same cause after another one is noted anew."""
    kills = [("count[0]", 10 * US), ("count[0]", 20 * US), ("count[0]", 30 * US), ("count[1]", 35 * US)]
    result = run(parallel_count(CollectedResults()), kills=[*kills, ("count[0]", 45 * US)], restart=AT_ONCE)

    assert result.attempts == 6
    assert [note for note in result.notes if "ended" in note] == [
        "attempts 1 to 3 ended: count -> out[0] was killed",
        "attempt 4 ended: count -> out[1] was killed",
        "attempt 5 ended: count -> out[0] was killed",
    ]


def test_what_ends_the_job_is_told_by_its_error_alone() -> None:
    """It names the earlier attempts that ended alike; other causes stay noted."""
    kills = [("count[1]", 5 * US), ("count[0]", 10 * US), ("count[0]", 15 * US)]
    made = execution(parallel_count(CollectedResults()), kills=kills, restart=FixedDelayRestart(2, 0))
    result = checked(made)

    assert str(result.error).startswith("job 'parallel' failed in attempt 3, like attempt 2 (at most 2 restarts, ")
    assert [note for note in result.notes if "ended" in note] == ["attempt 1 ended: count -> out[1] was killed"]


def test_killing_while_the_job_restarts_is_noted_and_harmless() -> None:
    """A kill that finds no running task is noted and does not strike later."""
    results = CollectedResults()

    result = run(
        parallel_count(results), kills=[("count", 10 * US), ("count", 12 * US)], restart=FixedDelayRestart(3, 50 * US)
    )

    assert result.attempts == 2
    assert any("nothing to kill" in note and "restarting" in note for note in result.notes)
    assert Counter(results.records) == expected_counts(RECORDS, 5)


def test_without_checkpoints_a_job_may_begin_anew() -> None:
    """In mode none a restarted job reads all records again; its sink publishes at the end, once."""
    results = CollectedResults()

    result = run(parallel_count(results), mode="none", kills=[("count", 20 * US)], restart=AT_ONCE, batch_size=2)

    assert [restore.checkpoint_id for restore in result.restores] == [None, None]
    assert Counter(results.records) == expected_counts(RECORDS, 5)


def test_all_tasks_end_with_the_attempt() -> None:
    """When one task fails all others of its attempt are cancelled, at the same instant."""
    trace = Trace()

    run(parallel_count(CollectedResults()), kills=[("count[0]", 20 * US)], instruments=[trace])

    first = [one for one in trace.of(TaskState) if one.attempt == 1 and one.state in ("failed", "canceled")]
    assert Counter(one.state for one in first) == {"failed": 1, "canceled": 3}
    assert {one.time_ns - START_NS for one in first} == {20 * US}


def test_latency_delays_no_recovery() -> None:
    """Records under way when a task dies belong to the old attempt; the new one reads them again."""
    for at in range(5, 100, 7):
        results = CollectedResults()

        run(
            parallel_count(results),
            kills=[("count[1]", at * US)],
            batch_size=3,
            checkpoint_interval=every(ns=20 * US),
            restart=AT_ONCE,
            cost=CostModel(link_latency_ns=15 * US, slow_links={"numbers[1]": 31 * US}),
        )

        assert Counter(results.records) == expected_counts(RECORDS, 5), f"killed at {at} µs"


def test_restarts_take_virtual_time_only() -> None:
    """A restart delay of a virtual hour takes no real time."""
    result = run(
        parallel_count(CollectedResults()), kills=[("count", 20 * US)], restart=FixedDelayRestart(1, 3_600_000 * MS)
    )

    assert result.ended_ns - START_NS > 3_600_000 * MS


def test_a_key_of_the_wrong_type_stays_wrong_after_a_restart() -> None:
    """The restored state stores the type of keys, so True is not counted as 1."""
    results = CollectedResults()
    stream = Job("keys").source(CollectionSource([1] * 40 + [True] * 3), name="numbers")
    job = stream.key_by(lambda number: number).reduce(lambda a, b: a + b, name="sum").collect(results)

    result = execution(job, checkpoint_interval=every(records=40), batch_size=4).run()

    assert result.state == "failed"
    assert [restore.checkpoint_id for restore in result.restores[:2]] == [None, 1]
    assert isinstance(result.error.__cause__ if result.error else None, KeyTypeMismatchError)


class Unequipped(Operator):
    """Needs something that is not installed."""

    def process_batch(self, batch: Batch) -> None:
        raise MissingDependencyError("install the thing")


def unequipped() -> Operator:
    return Unequipped()


def test_an_error_that_no_restart_can_help_ends_the_job_at_once() -> None:
    """What is not installed will be missing in the next attempt, too; the job says so and does not restart."""
    job = Job("missing").source(SequenceSource(0, 5), name="numbers").via(unequipped).collect([])
    result = execution(job, restart=FixedDelayRestart(3, 10 * US)).run()

    assert result.attempts == 1
    assert isinstance(result.error, JobFailedError)
    assert "no restart can help" in str(result.error)
    assert result.error.exit_code == MissingDependencyError.exit_code
