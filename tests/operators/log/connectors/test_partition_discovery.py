"""Partitions that are added to a log while a job reads it: each is found, and read once from its beginning."""

from __future__ import annotations

from typing import Any

import pytest

from engine import CollectedResults, Job
from engine.elements.errors import ConfigurationError
from engine.elements.events import StopMode
from operators.log.connectors.log_source import LogSource
from operators.sources import DiscoveringSourceOperator
from operators.time import WatermarkStrategy
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.operators.files.reading.test_enumerated_source import SETTINGS, run_until
from tests.operators.harness import Checkpoint, Harness
from tests.operators.log.connectors.test_log_source import new_log, next_values, put
from tests.runtime.support import MS, US, every, execution


def source(**options: Any) -> LogSource:
    return LogSource("/log", "t", bounded=False, discovery_interval_ms=200, **options)


def reading(fs: MemoryFileSystem, restored: Checkpoint | None = None, **options: Any) -> Harness:
    operator = DiscoveringSourceOperator(source(start="latest"), discovery_interval_ms=200)
    return Harness(operator, fs=fs, restored=restored, **options)


def test_new_partitions_are_found_once_per_interval() -> None:
    """Each subtask takes its own, from the beginning, also one without a partition so far; a failed look is counted."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, "old")
    first, second = (reading(fs, subtask=number, parallelism=2) for number in range(2))
    assert next_values(first) == next_values(second) == []
    log.add_partitions("t", 4)
    for partition in range(1, 4):
        put(log, f"p{partition}", partition=partition)
    assert next_values(second) + next_values(second) == ["p1", "p3"]
    assert next_values(first) == ["p2"]
    assert (first.counter("numSplitsDiscovered"), second.counter("numSplitsDiscovered")) == (1, 2)
    fs.rename("/log/topics/t/topic", "/log/topics/t/away")
    first.advance_ms(200)
    assert first.counter("numEnumerationsFailed") == 1


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_restored_source_reads_each_partition_once(parallelism: int) -> None:
    """One found before the checkpoint goes on, one found after it begins anew, with every number of subtasks."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, "old")
    before = [reading(fs, subtask=number, parallelism=2) for number in range(2)]
    log.add_partitions("t", 2)
    put(log, "before", partition=1)
    assert [next_values(one) + next_values(one) for one in before] == [[], ["before"]]
    checkpoint = Checkpoint(1)
    for one in before:
        one.snapshot(1, checkpoint)
    log.add_partitions("t", 3)
    put(log, "after", partition=2)
    put(log, "more", partition=1)
    undisturbed = [value for one in before for value in map(str, next_values(one) + next_values(one))]
    assert sorted(undisturbed) == ["after", "more"]
    after = [reading(fs, checkpoint, subtask=number, parallelism=parallelism) for number in range(parallelism)]
    found = [value for one in after for value in map(str, next_values(one) + next_values(one) + next_values(one))]
    assert sorted(found) == ["after", "more"]


def test_partitions_of_other_subtasks_are_not_found_again() -> None:
    """Of a restored job the subtasks have other partitions than their numbers say."""
    fs = MemoryFileSystem()
    log, checkpoint = new_log(fs, 3), Checkpoint(1)
    for number in range(2):
        one = reading(fs, subtask=number, parallelism=2)
        assert next_values(one) == []
        one.snapshot(1, checkpoint)
    after = [reading(fs, checkpoint, subtask=number, parallelism=3) for number in range(3)]
    for partition in range(3):
        put(log, f"p{partition}", partition=partition)
    for one in after:
        one.advance_ms(200)
    assert [value for one in after for value in next_values(one) + next_values(one)] == ["p0", "p2", "p1"]


def test_a_subtask_without_a_partition_becomes_idle_and_active_again() -> None:
    """Otherwise it would hold back the watermark of all others."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda value: value).with_idleness(50)
    operator = DiscoveringSourceOperator(source(), strategy, discovery_interval_ms=200)
    one = Harness(operator, fs=fs, subtask=1, parallelism=2)
    one.advance_ms(150)
    assert ("idle", True) in one.take()
    log.add_partitions("t", 2)
    put(log, 7, partition=1)
    one.advance_ms(50)
    assert one.operator.emit_next(5) == 1  # type: ignore[attr-defined]
    assert ("idle", False) in one.take()


def test_a_look_that_fails_by_the_disk_is_made_again() -> None:
    """The source goes on with the partitions that it knows, and finds the new one at the next look."""
    fs = MemoryFileSystem()
    log, strikes = new_log(fs), list[str]()
    failing = FaultInjectingFileSystem(
        fs, decide=lambda operation, _: FaultRule(FileFault.ERROR_BEFORE) if operation in strikes else None
    )
    one = Harness(DiscoveringSourceOperator(source(), discovery_interval_ms=200), fs=failing)
    log.add_partitions("t", 2)
    put(log, "new", partition=1)
    strikes.append("open_read")
    one.advance_ms(200)
    assert one.counter("numEnumerationsFailed") == 1
    strikes.clear()
    one.advance_ms(200)
    assert next_values(one) == ["new"]


@pytest.mark.parametrize("subtask", [0, 1])
def test_a_new_partition_does_not_wait_for_the_next_poll_of_the_others(subtask: int) -> None:
    """A subtask is asked again when it looks for partitions, also one that has none."""
    fs = MemoryFileSystem()
    new_log(fs)
    slow = LogSource("/log", "t", bounded=False, poll_ms=60_000, discovery_interval_ms=200)
    one = Harness(DiscoveringSourceOperator(slow, discovery_interval_ms=200), fs=fs, subtask=subtask, parallelism=2)
    operator: Any = one.operator
    assert operator.emit_next(5) == 0
    assert operator.available_at_ns(one.context.now_ns) == one.context.now_ns + 200 * MS


@pytest.mark.parametrize("at_us", [60, 152, 244])
def test_partitions_that_come_while_a_job_runs_are_read_once_whatever_dies(at_us: int) -> None:
    """Three are added in turn; one task dies after each, before or after the next checkpoint."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, *range(10))
    results, job = CollectedResults(), Job("growing", parallelism=2, max_parallelism=16)
    grown = LogSource("/log", "t", bounded=False, poll_ms=1, discovery_interval_ms=1)
    job.source(grown, name="reader", uid="reader").key_by(lambda n: n).map(lambda n: n, name="spread").collect(results)
    settings = {**SETTINGS, "seed": f"{at_us}", "checkpoint_interval": every(ns=200 * US)}
    kills = [(f"reader[{number % 2}]", (number * 1500 + 1000 + at_us) * US) for number in range(3)]
    made = execution(job, file_system=fs, kills=kills, **settings)
    made.savepoint(8_000 * US, "/savepoints", stop=StopMode.TERMINATE)
    began = made.begin()
    for number in range(1, 4):
        run_until(made, began + number * 1500 * US)
        log.add_partitions("t", number + 1)
        put(log, *range(number * 10, number * 10 + 10), partition=number)
    while made.kernel.run(1):
        made.manager.validate()
    assert (made.manager.job.state, made.manager.job.attempt) == ("stopped", 4)
    assert sorted(results.records) == list(range(40))


def test_a_look_may_fall_into_a_slice_without_records() -> None:
    """The slice ends with none, and the source is asked again after the look, which is about to be made."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    results, job = CollectedResults(), Job("slices")
    grown = LogSource("/log", "t", bounded=False, poll_ms=7, discovery_interval_ms=1)
    job.source(grown, name="reader", uid="reader").collect(results)
    made = execution(job, file_system=fs, **{**SETTINGS, "batch_size": 4_000, "checkpoint_interval": every(ns=5 * MS)})
    made.savepoint(20 * MS, "/savepoints", stop=StopMode.TERMINATE)
    run_until(made, made.begin() + 2_500 * US)
    log.add_partitions("t", 2)
    put(log, 1, partition=1)
    while made.kernel.run(1):
        made.manager.validate()
    assert (made.manager.job.state, results.records) == ("stopped", [1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounded": True}, "a bounded source ends with .*set bounded=False"),
        ({"partitions": [0], "bounded": False}, "partitions= names .*leave out partitions="),
        ({"bounded": False, "discovery_interval_ms": 0}, "discovery_interval_ms"),
    ],
)
def test_a_source_that_cannot_gain_partitions_is_refused(options: dict[str, Any], message: str) -> None:
    """With the way out."""
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        LogSource("/log", "t", **{"discovery_interval_ms": 5, **options})
