"""Pulled sources: requests of readers, their state, watermarks, discovery, and whole jobs killed at any point."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.errors import ConfigurationError
from engine.elements.events import StopMode
from engine.graph.job import Job
from engine.runtime.config import CostModel
from engine.runtime.execution import JOB_MANAGER, Execution
from operators.basic import CollectedResults
from operators.files.formats import CsvFormat, TextFormat
from operators.files.reading import FileSource
from operators.files.reading.enumerated_source_operator import EnumeratedSourceOperator
from operators.files.reading.split_coordinator import DISCOVERED, LIST, LISTED, NO_MORE_SPLITS, REQUEST, SPLIT
from operators.files.reading.splits import FileSourceSplit
from operators.time import WatermarkStrategy
from state_backends.files import FileSystem, MemoryFileSystem
from tests.cases import crossed
from tests.operators.files.reading.test_file_source import file_system
from tests.operators.harness import Harness
from tests.runtime.support import MS, US, checked, every, execution

FILES = {f"/in/{name}": b"".join(b"%s%d\n" % (name.encode(), number) for number in range(6)) for name in "abc"}


def reader(source: FileSource, fs: FileSystem, **options: Any) -> Harness:
    strategy = options.pop("watermarks", None)
    return Harness(EnumeratedSourceOperator(source, strategy), fs=fs, coordinated=True, **options)


def operator_of(harness: Harness) -> EnumeratedSourceOperator:
    assert isinstance(harness.operator, EnumeratedSourceOperator)
    return harness.operator


def assign(harness: Harness, path: str) -> None:
    harness.operator.on_coordinator_event((SPLIT, tuple(FileSourceSplit(path, path, 0, 1))))


def pulled(**options: Any) -> FileSource:
    return FileSource("/in", TextFormat(), assignment="pull", **options)


# --- one reader -------------------------------------------------------------------------------------------


def test_a_reader_asks_once_and_again_when_a_split_is_finished() -> None:
    """It waits for the answer without a limit, and ends when it is told that there are no more splits."""
    one = reader(pulled(), file_system(FILES))
    source = operator_of(one)
    assert one.context.sent == [(REQUEST,)]
    assert source.emit_next(10) == 0
    assert source.available_at_ns(one.context.now_ns) is None
    assert one.context.sent == [(REQUEST,)]

    assign(one, "/in/b")
    assert source.available_at_ns(one.context.now_ns) == one.context.now_ns
    assert [source.emit_next(4), source.emit_next(4), source.emit_next(4)] == [4, 2, 0]
    assert one.context.sent == [(REQUEST,), (REQUEST,)]
    one.operator.on_coordinator_event((NO_MORE_SPLITS,))
    assert source.emit_next(4) is None
    assert one.take_values() == [f"b{number}" for number in range(6)]
    assert source._splits == [], "what is finished takes no memory"


def test_splits_are_counted_as_they_are_assigned_and_as_they_end() -> None:
    """Their difference is with the readers; a split that a restore brings back is not assigned again."""
    fs = file_system(FILES)
    first = reader(pulled(), fs)
    assign(first, "/in/a")
    assign(first, "/in/b")
    operator_of(first).emit_next(8)
    assert (first.counter("numSplitsAssigned"), first.counter("numSplitsProcessed")) == (2, 1)
    again = reader(pulled(), fs, restored=first.snapshot(1))
    while operator_of(again).emit_next(4):
        pass
    assert (again.counter("numSplitsAssigned"), again.counter("numSplitsProcessed")) == (0, 1)


def test_a_restored_reader_reads_its_splits_one_after_the_other_before_it_asks() -> None:
    """It reads on from the position of each; a finished split is no longer in the state."""
    fs = file_system(FILES)
    first = reader(pulled(), fs)
    for path in ("/in/a", "/in/b", "/in/c"):
        assign(first, path)
    operator_of(first).emit_next(8)
    first.take()
    second = reader(pulled(), fs, restored=first.snapshot(1), attempt=2)
    assert second.context.sent == []

    while operator_of(second).emit_next(5):
        pass
    assert second.take_values() == [*(f"b{number}" for number in range(2, 6)), *(f"c{number}" for number in range(6))]
    assert second.context.sent == [(REQUEST,)]
    third = reader(pulled(), fs, restored=second.snapshot(2), attempt=3)
    assert third.context.sent == [(REQUEST,)]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_splits_go_to_other_readers_with_another_parallelism(parallelism: int) -> None:
    """Each split is read on from its position; a reader that gets none asks."""
    fs = file_system(FILES)
    first = reader(pulled(), fs, parallelism=2)
    second = reader(pulled(), fs, subtask=1, parallelism=2)
    assign(first, "/in/a")
    assign(second, "/in/b")
    seen = [f"a{number}" for number in range(2)]
    assert operator_of(first).emit_next(2) == 2
    checkpoint = second.snapshot(1, first.snapshot(1))
    for subtask in range(parallelism):
        again = reader(pulled(), fs, subtask=subtask, parallelism=parallelism, restored=checkpoint)
        before = len(again.context.sent)
        while operator_of(again).emit_next(9):
            pass
        read = again.take_values()
        assert before == (0 if read else 1)
        seen += read
    assert sorted(seen) == [f"{name}{number}" for name in "ab" for number in range(6)]


def test_the_reader_of_subtask_0_lists_for_the_coordinator() -> None:
    """All files, in the order of their paths; nothing at all is an error in a bounded source only."""
    one = reader(pulled(), file_system(FILES))
    one.operator.on_coordinator_event((LIST,))
    kind, splits = one.context.sent[-1]
    assert (kind, [split[0] for split in splits]) == (LISTED, ["/in/a", "/in/b", "/in/c"])

    with pytest.raises(ConfigurationError, match="no input file at '/in'"):
        reader(pulled(), MemoryFileSystem()).operator.on_coordinator_event((LIST,))
    watching = reader(pulled(monitor_interval_ms=5), MemoryFileSystem())
    watching.operator.on_coordinator_event((LIST,))
    assert watching.context.sent[-1] == (LISTED, [])


class Broken(MemoryFileSystem):
    """Cannot list directories for a while."""

    breaks = False

    def list_dir(self, path: str) -> list[str]:
        if self.breaks:
            raise OSError(5, "Input/output error", path)
        return super().list_dir(path)


def test_discovery_passes_come_in_intervals() -> None:
    """Subtask 0 makes them, from the first interval on; a failed pass is counted, and a jump of the clock makes one."""
    fs = Broken()
    one, other = (reader(pulled(monitor_interval_ms=5), fs, subtask=subtask, parallelism=2) for subtask in (0, 1))

    def passes() -> list[list[str]]:
        found = [[split[0] for split in event[1]] for event in one.context.sent if event[0] == DISCOVERED]
        one.context.sent.clear()
        return found

    one.advance_ms(4)
    assert passes() == []
    fs.make_dirs("/in")
    with fs.open_write("/in/x") as file:
        file.write(b"1\n")
    one.advance_ms(1)
    assert passes() == [["/in/x"]]
    fs.breaks = True
    one.advance_ms(5)
    assert passes() == []
    assert one.counter("numEnumerationsFailed") == 1
    fs.breaks = False
    one.context.now_ns += 23 * MS
    one.advance_ms(0)
    assert passes() == [["/in/x"]]
    other.advance_ms(50)
    assert other.context.sent == [(REQUEST,)]


def test_a_file_that_vanishes_while_it_is_listed_is_left_out() -> None:
    """A pass that meets it goes on with the others; the listing of a bounded source fails."""

    class Vanishing(MemoryFileSystem):
        def size(self, path: str) -> int:
            if path.endswith("/b"):
                raise FileNotFoundError(2, "No such file", path)
            return super().size(path)

    fs = Vanishing()
    for path, content in FILES.items():
        fs.make_dirs("/in")
        with fs.open_write(path) as file:
            file.write(content)
    one = reader(pulled(monitor_interval_ms=5), fs)
    one.advance_ms(5)
    assert [split[0] for split in one.context.sent[-1][1]] == ["/in/a", "/in/c"]
    with pytest.raises(FileNotFoundError):
        reader(pulled(), fs).operator.on_coordinator_event((LIST,))


# --- watermarks -------------------------------------------------------------------------------------------

TIMED = {"/in/a": b"100\n110\n120\n", "/in/b": b"500\n510\n520\n"}
BY_VALUE = WatermarkStrategy.for_monotonous_timestamps(lambda row: row["t"]).with_interval_ns(1 * MS)


def timed(fs: FileSystem, *, idle_ms: int | None = 3, **options: Any) -> Harness:
    source = FileSource("/in", CsvFormat(("t",), types={"t": int}, header=False), assignment="pull")
    strategy = BY_VALUE if idle_ms is None else BY_VALUE.with_idleness(idle_ms)
    return reader(source, fs, watermarks=strategy, **options)


def events(harness: Harness) -> list[Any]:
    return [event for event in harness.take() if isinstance(event, tuple)]


def test_a_reader_without_a_split_becomes_idle() -> None:
    """It is active before the first record of its next split, even when a point of the grid lies between."""
    one = timed(file_system(TIMED))
    one.advance_ms(6)
    assert events(one) == [("idle", True)]
    assign(one, "/in/a")
    assert events(one) == [("idle", False)]
    one.advance_ms(1)
    operator_of(one).emit_next(10)
    one.advance_ms(1)
    assert events(one) == [("watermark", 119)]
    one.advance_ms(9)
    assert events(one) == [("idle", True)]


def test_a_reader_that_waits_without_a_timeout_holds_the_watermark() -> None:
    """The watermark stays where the last split has left it, also after a restore, and never falls."""
    fs = file_system(TIMED)
    one = timed(fs, idle_ms=None)
    assign(one, "/in/b")
    operator_of(one).emit_next(10)
    one.advance_ms(1)
    assert events(one) == [("watermark", 519)]
    operator_of(one).emit_next(10)
    two = timed(fs, idle_ms=None, restored=one.snapshot(1), attempt=2)
    assign(two, "/in/a")
    operator_of(two).emit_next(10)
    two.advance_ms(1)
    assert events(two) == [("watermark", 519)]


def test_a_split_that_is_not_begun_holds_the_watermark() -> None:
    """Its records may be older than those of the split that is being read."""
    one = timed(file_system(TIMED), idle_ms=None)
    assign(one, "/in/b")
    assign(one, "/in/a")
    operator_of(one).emit_next(2)
    one.advance_ms(1)
    assert events(one) == []
    assert one.operator.fingerprint() != timed(file_system(TIMED), idle_ms=None).operator.fingerprint()
    operator_of(one).emit_next(4)
    one.advance_ms(1)
    assert events(one) == [("watermark", 119)]


# --- whole jobs -------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "batch_size": 2,
    "checkpoint_interval": every(ns=9 * US),
    "restart": FixedDelayRestart(None, 2 * US),
    "cost": CostModel(record_ns=1 * US, link_latency_ns=2 * US, storage_latency_ns=1 * US),
    "inline_state_bytes": 0,
}
LINES = sorted(f"{name}{number}" for name in "abcde" for number in range(12))


def input_files() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dirs("/in")
    for name in "abcde":
        put(fs, f"/in/{name}")
    return fs


def put(fs: FileSystem, path: str) -> None:
    name = path.rpartition("/")[2]
    with fs.open_write(path) as file:
        file.write("".join(f"{name}{number}\n" for number in range(12)).encode())
        file.fsync()
    fs.fsync_dir("/in")


def job_of(source: FileSource, into: Any, *, keyed: bool = True) -> Job:
    job = Job("files", parallelism=3, max_parallelism=16)
    stream = job.source(source, name="reader", uid="reader")
    if keyed:
        stream = stream.key_by(lambda line: line).map(lambda line: line, name="spread", uid="spread")
    return stream.collect(into, name="out", uid="out", chain=False)


@crossed(quick=2, at_us=range(0, 50, 6), target=["reader[1]", "reader[0]", JOB_MANAGER], mode=["aligned", "unaligned"])
def test_every_line_is_read_once_after_a_global_failure(target: str, at_us: int, mode: str) -> None:
    """Enumerator and readers go back together, whichever task dies and when; also when a second one dies soon after."""
    results = CollectedResults()
    kills = [(target, at_us * US), ("reader[2]", (at_us + 17) * US)]
    job = job_of(pulled(split_bytes=10), results)
    settings = {**SETTINGS, "mode": mode, "seed": f"{target} {at_us}", "seeded_schedule": True}
    checked(execution(job, kills=kills, file_system=input_files(), **settings)).raise_on_failure()

    assert sorted(results.records) == LINES


@pytest.mark.parametrize("at_us", range(0, 40, 3))
def test_every_line_is_read_once_after_a_regional_failure(at_us: int) -> None:
    """The enumerator goes on, and takes back the splits that the dead reader had got since its checkpoint."""
    results = CollectedResults()
    kills = [("reader[1]", at_us * US), ("reader[0]", (at_us + 1) * US), ("reader[1]", (at_us + 19) * US)]
    job = job_of(pulled(split_bytes=10, assigner="fifo"), results, keyed=False)
    settings = {**SETTINGS, "failover": "region", "seed": f"{at_us}", "seeded_schedule": True}
    checked(execution(job, kills=kills, file_system=input_files(), **settings)).raise_on_failure()

    assert sorted(results.records) == LINES


def run_until(made: Execution, time_ns: int) -> None:
    while made.kernel.now_ns < time_ns and made.kernel.run(1):
        made.manager.validate()


@pytest.mark.parametrize("at_us", range(60, 260, 23))
def test_files_that_come_later_are_read_once(at_us: int) -> None:
    """A source that looks for new files reads each once, whichever task dies, and ends when it is told to."""
    fs = input_files()
    results = CollectedResults()
    job = job_of(pulled(monitor_interval_ms=1, split_bytes=10), results)
    settings = {**SETTINGS, "seed": f"{at_us}", "checkpoint_interval": every(ns=200 * US)}
    kills = [(f"reader[{number}]", (number * 1500 + 1000 + at_us) * US) for number in range(3)]
    made = execution(job, file_system=fs, kills=kills, **settings)
    made.savepoint(8_000 * US, "/savepoints", stop=StopMode.TERMINATE)
    began = made.begin()
    for number, name in enumerate(("x", "y", "z")):
        run_until(made, began + (number + 1) * 1500 * US)
        put(fs, f"/in/{name}")
    while made.kernel.run(1):
        made.manager.validate()

    assert made.manager.job.state == "stopped"
    assert made.manager.job.attempt == 4
    expected = sorted([*LINES, *(f"{name}{number}" for name in "xyz" for number in range(12))])
    assert sorted(results.records) == expected


def test_the_end_of_a_split_costs_nothing() -> None:
    """Virtual time is that of the records, and the batch size does not decide how much a reader gets."""
    seen = []
    for batch_size in (1, 3, 1024):
        results = CollectedResults()
        job = Job("files", parallelism=2)
        job.source(pulled(split_bytes=10, assigner="fifo"), name="reader").collect(results, name="out")
        made = execution(job, file_system=input_files(), batch_size=batch_size, mode="none")
        result = made.run().raise_on_failure()
        assert sorted(results.records) == LINES
        seen.append((result.ended_ns - result.started_ns, [task.records_out for task in made.manager.tasks.values()]))
    assert seen[0] == seen[1] == seen[2]
    assert 30 * US <= seen[0][0] <= 33 * US


def test_a_run_repeats_itself() -> None:
    """The same seed gives the same records in the same order."""
    runs = []
    for _ in range(2):
        results = CollectedResults()
        job = job_of(pulled(split_bytes=10), results)
        execution(job, file_system=input_files(), **SETTINGS).run().raise_on_failure()
        runs.append(results.records)
    assert runs[0] == runs[1]
