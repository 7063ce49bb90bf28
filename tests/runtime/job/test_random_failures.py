"""Failures at random times: when they strike, what, and what they cost; against recursions and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

from engine import CountingSink, Job, SequenceSource
from engine.elements.errors import ConfigurationError, JobFailedError
from engine.elements.failure_laws import Failures, parse_failures
from engine.elements.laws import Constant, Empirical, Exponential
from engine.report import RunResult
from engine.runtime.config import config_of

MS = 1_000_000


def run(records: int = 2_000, parallelism: int = 1, **settings: Any) -> RunResult:
    """A source of 1 ms per record, and a keyed sum."""
    job = Job("failing", parallelism=parallelism)
    numbers = job.source(SequenceSource(0, records, splits=parallelism), name="numbers")
    numbers.key_by(lambda n: n % 100).reduce(max, name="max").sink(CountingSink(), name="end")
    cost = {"source_record": "1ms", **settings.pop("cost", {})}
    result = job.run(**{"checkpoint_interval": "100ms", "restart": "fixed:999:30ms", "cost": cost, **settings})
    assert isinstance(result, RunResult)
    return result


def failure_times(result: RunResult, law: Exponential) -> list[int]:
    """Of all failures that were planned, from the recorded choices."""
    values = [one.value for one in result.execution.choices.log if one.stream == "time to failure 0"]
    return list(accumulate(law.quantile_ns(value) for value in values))


def makespan_ns(failures: list[int], records: int, delay_ns: int, interval_ns: int) -> int:
    """The recursion: a failure takes the work back to the newest checkpoint, one during the delay begins it anew."""
    begun_ns = done = 0
    for failed_ns in failures:
        if failed_ns < begun_ns:
            begun_ns = failed_ns + delay_ns
            continue
        if failed_ns - begun_ns >= (records - done) * MS:
            break
        done += (failed_ns - begun_ns) // interval_ns * interval_ns // MS
        begun_ns = failed_ns + delay_ns
    return begun_ns + (records - done) * MS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", ["task", "host"])
def test_the_makespan_is_that_of_the_recursion(target: str, seed: int) -> None:
    """With the failure times of the recorded choices: to a ms for each failure, as a record in service is lost."""
    law = Exponential("300ms")
    result = run(failures=Failures(law, target), seed=seed, batch_size=1)
    expected_ns = makespan_ns(failure_times(result, law), 2_000, 30 * MS, 100 * MS)
    assert result.attempts > 2
    assert abs(result.makespan_ns - expected_ns) <= (result.attempts + 1) * MS


def test_the_time_of_a_recovery_is_the_sum_of_its_parts() -> None:
    """Detection, restart delay, deployment of the whole and of three tasks; then bytes / speed."""
    cost = {
        "detection": "7ms", "deployment": "11ms", "deployment_per_task": "2ms", "restore_bytes_per_s": 10_000,
        "virtual_state": 3,
    }
    result = run(cost=cost, kills=["max@250ms"])
    (recovery,) = result.recoveries
    tasks = len(result.execution.tasks)
    assert recovery["down_ns"] == (7 + 30 + 11 + 2 * tasks) * MS
    assert recovery["restored_at_ns"] == 250 * MS + recovery["down_ns"]
    assert recovery["checkpoint_id"] == 2
    state = next(row for row in result.checkpoints if row["checkpoint_id"] == 2)
    assert recovery["remote_bytes"] == state["full_bytes"] > 0
    assert recovery["local_bytes"] == 0
    # The tasks read side by side.
    assert recovery["read_ns"] < recovery["remote_bytes"] * 1e9 / 10_000
    assert recovery["recovery_ns"] == recovery["down_ns"] + recovery["read_ns"]
    free = next(iter(run(kills=["max@250ms"]).recoveries))
    assert (free["down_ns"], free["read_ns"], free["recovery_ns"]) == (30 * MS, 0, 30 * MS)


def test_a_shared_storage_reads_for_one_task_after_the_other() -> None:
    """So the last task has its state after all bytes of all tasks at the shared speed."""
    cost = {"restore_bytes_per_s": 1_000_000_000, "shared_storage_bytes_per_s": 10_000}
    (recovery,) = run(cost=cost, kills=["max@250ms"], parallelism=2, inline_state_bytes=100_000).recoveries
    assert recovery["read_ns"] == pytest.approx(recovery["remote_bytes"] * 1e9 / 10_000, rel=1e-6)


def test_no_checkpoint_begins_while_a_task_reads_its_state() -> None:
    """The first one after the recovery is an interval after the last task has its state."""
    cost = {"restore_bytes_per_s": 10_000}
    result = run(cost=cost, kills=["max@250ms"])
    (recovery,) = result.recoveries
    assert recovery["read_ns"] > 50 * MS
    triggered = result.checkpoints["triggered_at_ns"]
    after = [at_ns for at_ns in triggered if at_ns > recovery["restored_at_ns"]]
    assert after[0] == recovery["restored_at_ns"] + recovery["read_ns"] + 100 * MS


def test_local_copies_are_read_at_their_own_speed_unless_the_host_is_gone() -> None:
    """A failed task comes back to its disk; that of a failed host is lost."""
    cost = {"restore_bytes_per_s": 100_000, "local_restore_bytes_per_s": 10_000_000}
    once = Empirical(["250ms"])
    for target, is_local in (("task", True), ("host", False)):
        failures = Failures(once, target)
        result = run(records=300, cost=cost, failures=failures, local_recovery=True)
        recovery = next(iter(result.recoveries))
        assert (recovery["local_bytes"] > 0) is is_local, target
        assert (recovery["remote_bytes"] < 1_000) is is_local, target
        assert (recovery["read_ns"] < 8 * MS) is is_local, target


def test_a_failure_during_the_recovery_begins_it_anew_unless_it_is_left_in_peace() -> None:
    """One failure each 40 ms, 30 ms of delay and 30 ms of detection: without peace the job never comes back."""
    settings: dict[str, Any] = {"cost": {"detection": "30ms"}, "records": 50, "batch_size": 1}
    every = Constant("40ms")
    with pytest.raises(JobFailedError):
        run(failures=Failures(every), **settings, restart="fixed:20:30ms")
    result = run(failures=Failures(every, during_recovery=False), **settings, checkpoint_interval="5ms")
    assert result.attempts == 2


def test_the_job_manager_and_the_storage_fail_in_ways_of_their_own() -> None:
    """A successor takes over from storage; snapshots that are being written fail, and no task dies."""
    master = run(failures=Failures(Empirical(["250ms"]), "job manager"), master_recovery="20ms", records=400)
    assert master.recoveries["down_ns"][0] == 20 * MS
    assert any("the job manager was struck by a failure" in note for note in master.execution.notes)
    cost = {"storage_latency": "60ms"}
    storage = run(
        failures=Failures(Empirical(["150ms"]), "storage"), cost=cost, tolerable_failures=100, inline_state_bytes=0,
        records=400,
    )
    assert storage.attempts == 1
    assert storage.execution.checkpoints.failed > 0
    assert "an I/O error" in storage.checkpoints["failure"]


def test_a_host_takes_all_subtasks_of_its_index_with_it() -> None:
    """By region only the tasks of one host are deployed again."""
    job = Job("regions", parallelism=2)
    job.source(SequenceSource(0, 600, splits=2), name="numbers").map(lambda n: n, name="next", chain=False).sink(
        CountingSink(), name="end"
    )
    result = job.run(
        failures=Failures(Empirical(["150ms"]), "host"), failover="region", cost={"source_record": "1ms"},
        checkpoint_interval="50ms",
    )
    restores = [one.tasks for one in result.execution.restores if one.tasks is not None]
    assert restores
    for tasks in restores:
        assert tasks is not None
        assert len({name[-3:] for name in tasks}) == 1
        assert len(tasks) == 2 or len(tasks) == 3


def test_the_synchronous_part_takes_its_time_in_the_task() -> None:
    """It shows as sync duration, and the task handles nothing meanwhile."""
    plain, result = run(records=500), run(records=500, cost={"sync": "4ms"})
    assert {row["sync_ns"] for row in result.checkpoints if row["status"] == "COMPLETED"} == {4 * MS}
    assert result.makespan_ns >= plain.makespan_ns + 2 * 4 * MS


def test_tasks_share_the_bandwidth_of_storage() -> None:
    """The asynchronous part of the slowest task ends when the bytes of all tasks are written."""
    settings: dict[str, Any] = {
        "parallelism": 4, "inline_state_bytes": 0, "records": 250, "checkpoint_interval": "40ms",
    }
    result = run(cost={"shared_storage_bytes_per_s": 500_000}, **settings)
    first = next(iter(result.checkpoints))
    written = first["checkpointed_bytes"]
    assert first["async_ns"] == pytest.approx(written * 1e9 / 500_000, rel=0.01)
    own = next(iter(run(cost={"storage_bytes_per_s": 500_000}, **settings).checkpoints))
    assert own["async_ns"] < first["async_ns"] / 2


def test_files_begin_after_a_random_delay_and_virtual_state_weighs_more() -> None:
    """A constant law is a latency; state that weighs a hundred times as much takes a hundred times as long."""
    settings: dict[str, Any] = {"records": 150, "inline_state_bytes": 0}
    law = next(iter(run(cost={"storage_delay": "constant:3ms"}, **settings).checkpoints))
    latency = next(iter(run(cost={"storage_latency": "3ms"}, **settings).checkpoints))
    assert law == latency
    one, many = (
        next(iter(run(cost={"storage_bytes_per_s": 1_000_000, "virtual_state": factor}, **settings).checkpoints))
        for factor in (1, 100)
    )
    assert many["checkpointed_bytes"] == 100 * one["checkpointed_bytes"]
    assert many["async_ns"] == pytest.approx(100 * one["async_ns"], rel=1e-3)


def test_links_delay_elements_at_random_and_keep_their_order() -> None:
    """A constant law is a latency; of random delays, a later record waits for the one ahead of it."""
    law, latency = (run(records=150, cost={name: "3ms"}) for name in ("link_delay", "link_latency"))
    assert list(law.checkpoints) == list(latency.checkpoints)
    assert law.makespan_ns == latency.makespan_ns
    job, into = Job("order"), list[int]()
    job.source(SequenceSource(0, 200), name="numbers").rebalance().collect(into, name="end", parallelism=1)
    result = job.run(batch_size=1, cost={"link_delay": Exponential("2ms")}, seed=4)
    assert into == list(range(200))
    assert result.makespan_ns > 5_000_000


def test_failures_are_a_setting_with_a_text() -> None:
    """For the command line and for files of results."""
    text = "exponential:6h,pareto:1h:2.5@host,constant:1h@job manager@running"
    several = parse_failures(text)
    assert several == (
        Failures(Exponential("6h")),
        Failures(parse_failures("pareto:1h:2.5@host")[0].law, "host"),
        Failures(Constant("1h"), "job manager", during_recovery=False),
    )
    assert config_of({"failures": text}).failures == several
    assert parse_failures(",".join(map(str, several))) == several
    assert config_of({"failures": Failures(Exponential("6h"))}).failures == (Failures(Exponential("6h")),)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Failures(Exponential("6h"), "hosts"), "target of Failures is 'hosts'.*did you mean 'host'"),
        (lambda: Failures(Constant(0)), "law of Failures is 0 on average"),
        (lambda: parse_failures("exponential:6h@host@task"), "has two targets"),
        (lambda: config_of({"failures": "exp:6h"}), "failures 'exp:6h' is no law"),
        (lambda: config_of({"failures": (3,)}), "failures has 3; each must be like Failures"),
        (lambda: config_of({"cost.virtual_state": -1}), "virtual_state is -1; it must be 0 or more"),
    ],
)
def test_impossible_failures_are_refused(make: Callable[[], object], told: str) -> None:
    """The error names the value and what to write."""
    with pytest.raises(ConfigurationError, match=told):
        make()
