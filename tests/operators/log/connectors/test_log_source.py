"""The source over a log on disk, and the reader beneath it, which holds no lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, DataLossError
from operators.log.connectors.log_source import LogSource
from operators.log.disk.disk_log import DiskLog
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_reader import PartitionReader
from operators.log.disk.log_settings import LogSettings
from operators.log.disk.partition_log import Retention
from operators.log.disk.topics import partition_directory
from operators.log.port.transaction_log import READ_COMMITTED, READ_UNCOMMITTED, LogCorruptError, Producer
from operators.sources import SourceOperator
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

SMALL = LogSettings(segment_bytes=300)


def new_log(fs: FileSystem, partitions: int = 1, settings: LogSettings = SMALL) -> DiskTransactionLog:
    log = DiskTransactionLog(fs, "/log", settings)
    log.create_topic("t", partitions)
    return log


def put(log: DiskTransactionLog, *values: object, partition: int = 0, now_ns: int = 0) -> None:
    log.append(None, "t", partition, list(values), 0, now_ns)


def transaction(log: DiskTransactionLog, name: str, *values: object) -> Producer:
    producer = log.init_transactions(name, 1_000, 0)
    log.begin(producer, 0)
    log.append(producer, "t", 0, list(values), 0, 0)
    log._topics["t"][0].flush()
    return producer


def source_of(
    fs: FileSystem, restored: Checkpoint | None = None, subtask: int = 0, parallelism: int = 1, **options: Any
) -> Harness:
    operator = SourceOperator(LogSource("/log", "t", **options), records_per_turn=4)
    return Harness(operator, fs=fs, restored=restored, subtask=subtask, parallelism=parallelism)


def values_of(harness: Harness) -> list[object]:
    """The records that a bounded source reads to its end, which it must reach."""
    operator = harness.operator
    assert isinstance(operator, SourceOperator)
    for _ in range(500):
        if operator.emit_next(7) is None:
            return harness.take_values()
        harness.advance_ms(100)
    raise AssertionError("the source does not end")


def next_values(harness: Harness, count: int = 100) -> list[object]:
    """One turn of an unbounded source, after it has waited for its next poll."""
    operator = harness.operator
    assert isinstance(operator, SourceOperator)
    operator.emit_next(count)
    harness.advance_ms(100)
    operator.emit_next(count)
    return harness.take_values()


# --- what is read -------------------------------------------------------------------------------------------------


def test_committed_records_are_read_and_others_are_not() -> None:
    """Aborted records are skipped; reading stops at the first open transaction; uncommitted reading sees all."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, 0)
    log.abort(transaction(log, "aborted", "no"), 0)
    log.commit(transaction(log, "committed", 1, 2), 0)
    open_one = transaction(log, "open", "later")
    put(log, 3)
    assert values_of(source_of(fs)) == [0, 1, 2]
    assert values_of(source_of(fs, isolation=READ_UNCOMMITTED)) == [0, "no", 1, 2, "later", 3]
    log.commit(open_one, 0)
    assert values_of(source_of(fs)) == [0, 1, 2, "later", 3]


def test_an_unbounded_source_reads_what_comes() -> None:
    """It asks again and again, and emits a transaction once its marker is there, in the order of offsets."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    source = source_of(fs, bounded=False)
    assert next_values(source) == []
    first, second = transaction(log, "a", 1), transaction(log, "b", 2)
    assert next_values(source) == []
    log.commit(second, 0)
    assert next_values(source) == []
    log.commit(first, 0)
    assert next_values(source) == [1, 2]
    put(log, *range(3, 40))
    put(log, *range(40, 50))
    assert next_values(source) == list(range(3, 50))


def test_a_bounded_source_ends_where_the_log_ended_when_it_began() -> None:
    """It ends there also after a restore: its end is part of the position."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, 0, 1, 2, 3)
    source = source_of(fs)
    assert isinstance(source.operator, SourceOperator)
    source.operator.emit_next(2)
    checkpoint = source.snapshot(1)
    put(log, 4, 5)
    assert values_of(source) == [0, 1, 2, 3]
    assert values_of(source_of(fs, checkpoint)) == [2, 3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, list(range(10))),
        ({"start": "latest"}, []),
        ({"start": {0: 7}}, [7, 8, 9]),
        ({"start_at_ms": 4}, [4, 5, 6, 7, 8, 9]),
        ({"start_at_ms": 99}, []),
    ],
)
def test_where_to_begin(options: Mapping[str, Any], expected: list[int]) -> None:
    """Earliest, latest, offsets by partition, or the time of the append."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    for number in range(10):
        put(log, number, now_ns=number * 1_000_000)
    assert values_of(source_of(fs, **options)) == expected


def test_partitions_without_an_offset_begin_with_the_earliest() -> None:
    """This holds for each partition that ``start`` does not name."""
    fs = MemoryFileSystem()
    log = new_log(fs, 2)
    for number in range(3):
        put(log, number, partition=number % 2)
    assert sorted(values_of(source_of(fs, start={0: 1}))) == [1, 2]


def test_latest_means_what_comes_from_now_on() -> None:
    """A restored source goes on after the records that it has read, not at the newest."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, "old")
    source = source_of(fs, start="latest", bounded=False)
    assert next_values(source) == []
    put(log, 1)
    assert next_values(source) == [1]
    checkpoint = source.snapshot(1)
    put(log, 2)
    assert next_values(source_of(fs, checkpoint, start="latest", bounded=False)) == [2]


def test_a_first_offset_behind_an_open_transaction_waits_for_it() -> None:
    """A given first offset cannot jump over the last stable offset."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    blocking = transaction(log, "a", 0)
    put(log, 1, 2)
    source = source_of(fs, start={0: 2}, bounded=False)
    assert next_values(source) == []
    log.abort(blocking, 0)
    assert next_values(source) == [2]


def test_records_carry_the_time_of_their_append() -> None:
    """In ms, as timestamps that a watermark strategy can use."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, "a", now_ns=5_000_000)
    put(log, "b", now_ns=7_999_999)
    source = source_of(fs, bounded=False)
    assert isinstance(source.operator, SourceOperator)
    source.operator.emit_next(10)
    batches = [event for event in source.take() if isinstance(event, Batch)]
    assert [stamp for batch in batches for stamp in batch.timestamps or ()] == [5, 7]


def test_partitions_are_splits() -> None:
    """Splits are divided among subtasks; some may be chosen; a restored source reads all of an added one."""
    fs = MemoryFileSystem()
    log = new_log(fs, 3)
    for partition in range(3):
        put(log, f"p{partition}", partition=partition)
    assert values_of(source_of(fs, subtask=1, parallelism=2)) == ["p1"]
    assert sorted(map(str, values_of(source_of(fs, partitions=[0, 2])))) == ["p0", "p2"]
    source = source_of(fs)
    assert len(values_of(source)) == 3
    checkpoint = source.snapshot(1)
    log.add_partitions("t", 4)
    put(log, "p3", partition=3)
    assert values_of(source_of(fs, checkpoint)) == ["p3"]


@pytest.mark.parametrize("options", [{"start": "latest"}, {"start_at_ms": 99}])
def test_a_partition_that_is_gained_is_read_from_its_beginning(options: Mapping[str, Any]) -> None:
    """All its records were written since the job began, also if nothing was read before the next checkpoint."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, "old")
    source = source_of(fs, bounded=False, group="g", **options)
    assert next_values(source) == []
    checkpoint = source.snapshot(1)
    log.add_partitions("t", 2)
    put(log, "new", partition=1)
    source = source_of(fs, checkpoint, bounded=False, group="g", **options)
    checkpoint = source.checkpoint(2)
    for _ in range(2):
        assert next_values(source) == ["new"]
        source = source_of(fs, checkpoint, bounded=False, group="g", **options)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "write", "commit", "abort", "plain"]), st.sampled_from("abc")), max_size=30
    ),
    st.integers(1, 5),
    st.integers(0, 30),
)
def test_the_reader_sees_what_the_log_says(script: list[tuple[str, str]], step: int, restart_at: int) -> None:
    """Whatever is open, committed or aborted between each other, in steps of any size, started again anywhere from its
    position: the same records as the log itself reads, each once."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    reader = PartitionReader(fs, partition_directory("/log", "t", 0), "t-0", 0)
    open_ones: dict[str, Producer] = {}
    counts: dict[str, int] = {}
    seen: list[object] = []
    for number, (kind, name) in enumerate(script):
        if kind == "plain":
            put(log, number)
        elif kind == "write":
            if name not in open_ones:
                open_ones[name] = log.init_transactions(name, 1_000, 0)
                log.begin(open_ones[name], 0)
                counts[name] = 0
            log.append(open_ones[name], "t", 0, [number, -number], counts[name], 0)
            counts[name] += 2
        elif name in open_ones:
            producer = open_ones.pop(name)
            log.commit(producer, 0) if kind == "commit" else log.abort(producer, 0)
        seen += reader.read(step)[0]
        if number == restart_at:
            directory = partition_directory("/log", "t", 0)
            reader = PartitionReader(fs, directory, "t-0", reader.offset, crc=reader.crc)
    while found := reader.read(step)[0]:
        seen += found
    assert seen == [one.value for one in log.read("t", 0, isolation=READ_COMMITTED)]


# --- what cannot be read ------------------------------------------------------------------------------------------


def test_what_retention_has_deleted_is_lost_data() -> None:
    """A restored source whose next offset is gone reports it, with the offsets that exist; it does not skip."""
    fs = MemoryFileSystem()
    log = new_log(fs, settings=LogSettings(segment_bytes=300, retention=Retention(segments=1)))
    put(log, 0)
    source = source_of(fs, bounded=False)
    assert next_values(source) == [0]
    checkpoint = source.snapshot(1)
    for number in range(1, 60):
        put(log, f"{number:030}")
    source = source_of(fs, checkpoint, bounded=False)
    with pytest.raises(DataLossError, match="deleted by retention; the partition has"):
        next_values(source)


def test_retention_that_overtakes_a_reader_is_lost_data() -> None:
    """This also happens while it reads."""
    fs = MemoryFileSystem()
    log = new_log(fs, settings=LogSettings(segment_bytes=300, retention=Retention(segments=1)))
    put(log, 0)
    source = source_of(fs, bounded=False)
    assert next_values(source) == [0]
    for number in range(1, 60):
        put(log, f"{number:030}")
    with pytest.raises(DataLossError, match="retention has deleted what comes next"):
        next_values(source)


def test_a_bounded_source_whose_log_ends_before_its_end_is_lost_data() -> None:
    """It was cut behind the position: to wait for the rest would be for ever."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, 0)
    put(log, 1, 2)
    source = source_of(fs)
    source.operator.emit_next(1)  # type: ignore[attr-defined]
    checkpoint = source.snapshot(1)
    log.abandon()
    fs.delete_tree("/log")
    put(new_log(fs), 0)
    with pytest.raises(DataLossError, match=r"was to be read up to offset 3, and has 1\n  put the log back"):
        values_of(source_of(fs, checkpoint))


@pytest.mark.parametrize("again", [0, 4])
def test_a_log_that_was_cut_or_replaced_is_found_out(again: int) -> None:
    """The log ends before the position, or has another record there: it was rewound, and the source reports that."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, 0, 1, 2)
    source = source_of(fs, bounded=False)
    assert next_values(source) == [0, 1, 2]
    checkpoint = source.snapshot(1)
    log.abandon()
    fs.delete_tree("/log")
    log = new_log(fs)
    if again:
        put(log, *"abcd")
    with pytest.raises(DataLossError, match="was cut"):
        next_values(source_of(fs, checkpoint, bounded=False))


def test_a_torn_tail_is_waited_for_and_damage_is_not() -> None:
    """An incomplete batch may become complete; a bad batch in a segment that has a successor never will."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    put(log, 0)
    put(log, 1)
    path = "/log/topics/t/0/00000000000000000000.log"
    whole = fs.read_bytes(path)
    with fs.open_write(path) as file:
        file.write(whole[:-3])
    source = source_of(fs, bounded=False)
    assert next_values(source) == [0]
    with fs.open_append(path) as file:
        file.write(whole[-3:])
    assert next_values(source) == [1]
    with fs.open_write(path) as file:
        file.write(whole[:-3] + b"xyz")
    for number in range(20):
        put(log, f"{number:030}")
    with pytest.raises(LogCorruptError, match="does not match its checksum"):
        next_values(source_of(fs, bounded=False))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"isolation": "dirty"}, "isolation is 'dirty'"),
        ({"start": "middle"}, "start is 'middle'"),
        ({"start": {0: -1}}, "offset from 0"),
        ({"start_at_ms": -1}, "start_at_ms is -1"),
        ({"start": "latest", "start_at_ms": 1}, "both say where to begin"),
        ({"poll_ms": 0}, "poll_ms is 0"),
        ({"partitions": []}, r"partitions is \[\]; it must be the numbers"),
        ({"partitions": [0, 1, 0]}, "each once"),
        ({"partitions": ["0"]}, r"partitions is \['0'\]"),
        ({"partitions": [-1]}, r"partitions is \[-1\]"),
        ({"partitions": 3}, "partitions is 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Mapping[str, Any], words: str) -> None:
    """They are refused when the job is built."""
    with pytest.raises(ConfigurationError, match=words):
        LogSource(DiskLog("log"), "t", **options)


def test_topics_partitions_and_offsets_that_are_not_there_are_refused() -> None:
    """The error says which ones exist."""
    fs = MemoryFileSystem()
    new_log(fs, 2)
    with pytest.raises(ConfigurationError, match=r"no topic 'u' \(there are: t\)"):
        Harness(SourceOperator(LogSource("/log", "u")), fs=fs)
    with pytest.raises(ConfigurationError, match="partitions 0 to 1, and no 2"):
        source_of(fs, partitions=[2])
    with pytest.raises(ConfigurationError, match="offset 5 is after the end; the partition has 0 to 0"):
        next_values(source_of(fs, start={0: 5}))
    with pytest.raises(ConfigurationError, match=r"for partition 7 of topic 't', which is not read \(it reads 0, 1\)"):
        source_of(fs, start={7: 0})
    with pytest.raises(ConfigurationError, match=r"partition 0 of topic 't', which is not read \(it reads 1\)"):
        source_of(fs, start={0: 0}, partitions=[1])



def test_a_segment_that_cannot_be_opened_is_no_end() -> None:
    """The segment is listed, so more records follow: a bounded source must not end silently before them."""
    fs = MemoryFileSystem()
    log = new_log(fs)
    for number in range(20):
        put(log, f"{number:030}")
    last = f"/log/topics/t/0/{fs.list_dir('/log/topics/t/0')[-1]}"
    rule = FaultRule(FileFault.MISSING, "open_random", last, at_call=1)
    faulty = FaultInjectingFileSystem(fs, [rule])
    with pytest.raises(FileNotFoundError):
        next_values(source_of(faulty))
    assert len(values_of(source_of(faulty))) == 20
