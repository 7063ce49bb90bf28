"""Jobs that write to a log on disk: undisturbed, explored with power cuts and lost requests, and killed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, OutputAheadError, StorageError
from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import FaultMix
from engine.graph.job import Job
from operators.log.connectors.log_sink import LogSink
from operators.log.disk.disk_log import DiskLog
from operators.log.disk.log_reader import committed_records, entries_of
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, LocalFileSystem, MemoryFileSystem
from tests.crash.processes import KilledRun
from tests.explore.subjects import case_with
from tests.operators.harness import Checkpoint, Harness
from tests.operators.log.connectors.log_job import job

SUBJECT = Subject(lambda parallelism: job(20, sinks=2, parallelism=parallelism))
CONFIG = {"batch_size": 2, "checkpoint_interval": "5rec"}
EVERYTHING = Counter(str(number) for number in range(20))


def run(*faults: str, mix: FaultMix | None = None, seed: str = "0") -> FinishedCase:
    return run_case(SUBJECT, case_with(CONFIG, *faults, mix=mix, seed=seed), invariants_for())


# --- simulated ----------------------------------------------------------------------------------------------------


def test_a_job_that_nothing_befalls_writes_everything_once() -> None:
    """Two sinks share one log, under one lock; requests are in its history."""
    finished = run()
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert Counter(finished.committed["out0"]) == Counter(finished.committed["out1"]) == EVERYTHING
    sink = finished.view.world.sinks["out0"]
    assert isinstance(sink, LogSink)
    assert isinstance(sink.log, DiskLog)
    assert any(one.request.kind == "commit" and one.result == "ok" for one in sink.log.history)


@pytest.mark.parametrize(
    "fault",
    [
        "crash:process@before:sink.pre-commit#2",
        "crash:process@after:sink.pre-commit#3",
        "crash:process@before:sink.commit#2",
        "crash:process@after:sink.commit#3",
        "crash:out0[0]@after:sink.commit#1",
        "request-lost:commit#1",
        "answer-lost:commit#2",
        "answer-lost:prepare#1",
        "answer-lost:append#2",
        "late-marker:commit#1",
        "fence:append#3",
        "expire:append#3",
    ],
)
def test_each_crash_and_each_lost_request_is_survived(fault: str) -> None:
    """After every fault the log has every record once, and no invariant is violated."""
    finished = run(fault)
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert Counter(finished.committed["out0"]) == Counter(finished.committed["out1"]) == EVERYTHING


@pytest.mark.parametrize("seed", range(12))
def test_chance_finds_nothing(seed: int) -> None:
    """Crashes, changes of parallelism, power cuts and lost answers at random."""
    chances = {"crash": 40_000, "rescale": 5_000, "answer-lost": 20_000, "lose-unsynced": 20_000}
    mix = FaultMix(per_million=chances, most=4)
    finished = run(mix=mix, seed=str(seed))
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert Counter(finished.committed["out0"]) == Counter(finished.committed["out1"]) == EVERYTHING


# --- one operator -------------------------------------------------------------------------------------------------


def task(sink: LogSink, fs: MemoryFileSystem, **options: Any) -> Harness:
    return Harness(sink.create_operator(), fs=fs, **options)


def rows(fs: MemoryFileSystem, *, waits: bool = True) -> list[object]:
    return [one.value for part in committed_records(fs, "/out/events", "rows", waits=waits) for one in part]


def test_the_log_is_opened_with_the_first_operator_and_closed_with_the_last() -> None:
    """In between it is locked; after that another process may write."""
    fs = MemoryFileSystem()
    sink, other = (LogSink("rows", log=DiskLog("events")) for _ in range(2))
    assert not fs.exists("/out/events")
    tasks = [task(sink, fs, subtask=number, parallelism=2) for number in range(2)]
    with pytest.raises(StorageError, match="is being written to"):
        task(other, fs)
    for one in tasks:
        one.close()
        one.close()
    task(other, fs).close()


def test_a_dead_process_leaves_its_log_to_the_next() -> None:
    """Transactions pre-committed for the checkpoint are committed, later writes are aborted, memory is lost."""
    fs = MemoryFileSystem()
    sink = LogSink("rows", log=DiskLog("events"))
    first = task(sink, fs)
    first.process([1, 2])
    checkpoint = first.snapshot(1)
    first.process([3])
    fs.crash()
    first.operator.abandon()
    second = task(sink, fs, restored=checkpoint, incarnation=2)
    assert rows(fs) == [1, 2]
    second.process([3])
    second.checkpoint(2)
    assert rows(fs) == [1, 2, 3]
    second.close()


def test_a_task_of_a_dead_process_that_lets_go_late_does_not_let_go_for_its_successor() -> None:
    """The log that was opened again stays locked until the last of the new process ends."""
    fs = MemoryFileSystem()
    sink, other = (LogSink("rows", log=DiskLog("events")) for _ in range(2))
    late = task(sink, fs)
    late.process(["in memory"])
    successors = [task(sink, fs, subtask=number, parallelism=2, incarnation=2) for number in range(2)]
    late.operator.abandon()
    successors[0].close()
    with pytest.raises(StorageError, match="is being written to"):
        task(other, fs)
    successors[1].process([1])
    successors[1].close()
    assert "in memory" not in [entry.value for entry in entries_of(fs, "/out/events", "rows", 0)]
    task(other, fs).close()


def test_a_log_that_has_failed_is_opened_again_by_the_next_attempt() -> None:
    """Its tasks start again in the same process; the log finds out what is on disk."""
    inner = MemoryFileSystem()
    fs = FaultInjectingFileSystem(inner, [FaultRule(FileFault.ERROR_BEFORE, "fsync", "*/rows/0/*", at_call=1)])
    sink = LogSink("rows", log=DiskLog("events"))
    failed = Harness(sink.create_operator(), fs=fs)
    failed.process([1])
    with pytest.raises(StorageError, match="not used any more until it has been opened again"):
        failed.snapshot(1)
    again = Harness(sink.create_operator(), fs=fs, attempt=2)
    failed.close()
    again.process([1])
    again.checkpoint(2)
    assert rows(inner) == [1]
    again.close()


def test_a_zombie_in_the_same_process_is_fenced() -> None:
    """The zombie has the same log open, but its successor has its names."""
    fs = MemoryFileSystem()
    sink = LogSink("rows", log=DiskLog("events"))
    zombie = task(sink, fs)
    zombie.process([1])
    checkpoint = zombie.snapshot(1)
    successor = task(sink, fs, restored=checkpoint, attempt=2)
    with pytest.raises(StorageError, match="epoch"):
        zombie.process([9])
    zombie.complete(1)
    successor.process([2])
    successor.checkpoint(2)
    assert rows(fs) == [1, 2]
    zombie.close()
    successor.close()


def test_at_least_once_is_durable_at_each_checkpoint() -> None:
    """A power cut directly after it does not take covered records; without a guarantee it may."""
    for delivery, left in (("at-least-once", [1]), ("none", [])):
        fs = MemoryFileSystem()
        one = task(LogSink("rows", log=DiskLog("events"), delivery=delivery), fs)
        one.process([1])
        one.snapshot(1, Checkpoint(1))
        one.process([2])
        assert rows(fs) == [1, 2]
        fs.crash()
        assert rows(fs) == left


def test_at_least_once_is_durable_at_once_where_no_checkpoint_comes() -> None:
    """A record counts as handled when the sink returns, and never comes again."""
    fs = MemoryFileSystem()
    one = task(LogSink("rows", log=DiskLog("events"), delivery="at-least-once"), fs, checkpointing_enabled=False)
    one.context.publish_at_once = True
    one.process([1])
    fs.crash()
    assert rows(fs) == [1]


def test_at_least_once_is_durable_at_the_end_without_a_checkpoint() -> None:
    """Once the end of the job has been seen, there is no checkpoint to go back to."""
    fs = MemoryFileSystem()
    one = task(LogSink("rows", log=DiskLog("events"), delivery="at-least-once"), fs, checkpointing_enabled=False)
    one.process([1])
    one.finish()
    fs.crash()
    assert rows(fs) == [1]


def test_two_runs_may_write_to_one_log_under_names_of_their_own() -> None:
    """A restore of the second run does not count as older than what the first has published."""
    fs = MemoryFileSystem()
    first = task(LogSink("rows", log=DiskLog("events")), fs)
    for number in range(1, 4):
        first.process([number])
        first.checkpoint(number)
    first.close()
    sink = LogSink("rows", log=DiskLog("events"), transactional_id_prefix="second")
    second = task(sink, fs)
    second.process([4])
    checkpoint = second.snapshot(1)
    second.close()
    again = task(sink, fs, restored=checkpoint, incarnation=2)
    assert rows(fs) == [1, 2, 3, 4]
    again.close()
    with pytest.raises(ConfigurationError, match="a name without '/'"):
        LogSink("rows", transactional_id_prefix="a/b")


def test_sinks_of_one_job_with_one_path_share_the_log() -> None:
    """Each has described it by itself; other settings for the same log are refused."""
    numbers = Job("shared").source(SequenceSource(0, 6), name="numbers")
    one, other = LogSink("a", log=DiskLog("events")), LogSink("b", log=DiskLog("./events/"))
    numbers.sink(one, name="a")
    numbers.sink(other, name="b")
    assert other.log is one.log
    numbers.sink(LogSink("c", log=DiskLog("elsewhere", segment_bytes=100)), name="c")
    with pytest.raises(ConfigurationError, match=r"(?s)write to log 'events', and their settings .* differ.*give it"):
        numbers.sink(LogSink("d", log=DiskLog("events", segment_bytes=100)), name="d")


def first_run(fs: MemoryFileSystem, **options: Any) -> None:
    """Two checkpoints are committed; a third is prepared when the process ends."""
    first = task(LogSink("rows", log=DiskLog("events")), fs, **options)
    for number in (1, 2):
        first.process([number])
        first.checkpoint(number)
    first.process(["never committed"])
    first.snapshot(3)
    first.close()


@pytest.mark.parametrize("incarnation", [1, 3])
def test_a_second_run_into_a_log_is_refused_with_the_way_out(incarnation: int) -> None:
    """Whatever incarnation the first run had reached. Nothing is written, and the log is free again."""
    fs = MemoryFileSystem()
    first_run(fs, incarnation=incarnation)
    refusal = r"has committed 2 transactions .*'op-uid/0/[13].1/.*\n.*existing='append'"
    sink = LogSink("rows", log=DiskLog("events"))
    for attempt in (1, 2):
        # Also in a later attempt: this run has committed nothing.
        with pytest.raises(OutputAheadError, match=refusal):
            task(sink, fs, attempt=attempt)
    assert rows(fs, waits=False) == [1, 2]


def test_a_sink_that_cannot_use_the_topic_lets_the_log_go() -> None:
    """The next one may write to it in the same process, and in another one."""
    fs = MemoryFileSystem()
    log = DiskLog("events")
    task(LogSink("rows", log=log), fs).close()
    with pytest.raises(ConfigurationError, match="topic 'rows' has 1 partitions, not 2"):
        task(LogSink("rows", log=log, partitions=2), fs)
    task(LogSink("rows", log=DiskLog("events")), fs).close()


@pytest.mark.parametrize("incarnation", [1, 3])
def test_a_second_run_appends_if_it_is_asked_to(incarnation: int) -> None:
    """The first run's checkpoints count for nothing in the second, and its open transactions are aborted."""
    fs = MemoryFileSystem()
    first_run(fs, incarnation=incarnation)
    sink = LogSink("rows", log=DiskLog("events"), existing="append")
    second = task(sink, fs)
    second.process([3])
    checkpoint = second.checkpoint(1)
    second.operator.abandon()
    again = task(sink, fs, restored=checkpoint, incarnation=2)
    again.process([4])
    again.checkpoint(2)
    again.close()
    assert rows(fs) == [1, 2, 3, 4]
    assert again.counter("numTransactionsPublishedAgain") == 0
    with pytest.raises(ConfigurationError, match="existing is 'keep'"):
        LogSink("rows", existing="keep")


def test_a_run_that_died_before_its_first_checkpoint_is_no_second_run() -> None:
    """It has written and even prepared records in its own log, and committed none."""
    fs = MemoryFileSystem()
    for incarnation in range(1, 4):
        one = task(LogSink("rows", log=DiskLog("events")), fs, incarnation=incarnation)
        one.process([1])
        one.snapshot(1)
        fs.crash()
        one.operator.abandon()
    last = task(LogSink("rows", log=DiskLog("events")), fs, incarnation=4)
    last.process([1])
    last.checkpoint(1)
    last.close()
    assert rows(fs) == [1]


def test_without_checkpoints_a_restart_is_no_second_run() -> None:
    """It commits at its end, and again if another subtask fails after that; a second run is refused there too."""
    fs = MemoryFileSystem()
    for attempt in (1, 2):
        sink = LogSink("rows", log=DiskLog("events"))
        one = task(sink, fs, attempt=attempt, checkpointing_enabled=False)
        one.process([1])
        one.finish()
        one.close()
    assert one.counter("numTransactionsPublishedAgain") == 1
    with pytest.raises(OutputAheadError, match="starts from nothing"):
        task(sink, fs, checkpointing_enabled=False)


# --- real processes -----------------------------------------------------------------------------------------------


class KilledLogRun(KilledRun):
    job_file = Path(__file__).with_name("log_job.py")

    def rows(self) -> list[list[object]]:
        """The committed records, by partition, in the order of offsets."""
        return [
            [one.value for one in records]
            for records in committed_records(LocalFileSystem(), str(self.out / "events"), "rows0")
        ]


@pytest.mark.parametrize(
    ("records", "checkpoints"),
    [
        (6_000, (1,)),
        pytest.param(6_000, (1, 2), marks=pytest.mark.slow),
        pytest.param(60_000, (3, 8, 14, 20), marks=pytest.mark.slow),
    ],
)
def test_killed_again_and_again_the_log_has_every_record_once(
    records: int, checkpoints: tuple[int, ...], tmp_path: Path
) -> None:
    """Killed after checkpoints and in recovery; a reader has seen only records that are there at the end."""
    run, seen = KilledLogRun(tmp_path, records, "--param", f"pace_s={1.5 / records}"), list[Counter[object]]()
    instants = random.Random("log")
    for checkpoint_id in checkpoints:
        run.kill_behind_checkpoint(checkpoint_id, later_s=instants.uniform(0, 0.03))
        seen += [Counter(part) for part in run.rows()]
        run.kill_behind_start(instants.uniform(0.05, 0.15))
    assert run.go_on()
    found = run.rows()
    assert [sorted(map(str, part)) for part in found] == [
        sorted(map(str, range(remainder, records, 2))) for remainder in range(2)
    ]
    assert run.kills >= 2
    assert all(not before - Counter(found[number % 2]) for number, before in enumerate(seen))
