"""Single promises of a log on disk; larger tests would not notice if it broke them."""

from __future__ import annotations

import pytest

from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_reader import PartitionReader, committed_records
from operators.log.disk.log_settings import LogSettings
from operators.log.disk.topics import partition_directory
from operators.log.port.transaction_log import LogCorruptError, Producer
from state_backends.files import FaultInjectingFileSystem, MemoryFileSystem

SEGMENT = "/log/topics/t/0/00000000000000000000.log"


def opened(fs: MemoryFileSystem) -> DiskTransactionLog:
    log = DiskTransactionLog(fs, "/log", LogSettings(segment_bytes=300))
    log.create_topic("t", 1)
    return log


def begun(log: DiskTransactionLog, *values: object) -> Producer:
    producer = log.init_transactions("a", 1_000, 0)
    log.begin(producer, 0)
    log.append(producer, "t", 0, values, 0, 0)
    return producer


def test_what_readers_have_seen_is_there_after_a_power_cut_before_anybody_recovers() -> None:
    """The marker of a commit is durable, although recovery would write it again."""
    fs = MemoryFileSystem()
    log = opened(fs)
    log.commit(begun(log, 1), 0)
    fs.crash()
    assert [one.value for one in committed_records(fs, "/log", "t")[0]] == [1]


def test_records_of_others_are_not_those_that_were_prepared() -> None:
    """A partition with as many offsets, but without the records of a prepared transaction, is damage."""
    fs, other = MemoryFileSystem(), MemoryFileSystem()
    log, stranger = opened(fs), opened(other)
    log.prepare(begun(log, 1), 0)
    stranger.append(None, "t", 0, ["x"], 0, 0)
    log.abandon()
    with fs.open_write(SEGMENT) as file:
        file.write(other.read_bytes(SEGMENT))
    with pytest.raises(LogCorruptError, match=r"a \(epoch 0\) was prepared with 1 record\(s\) there, and 0 are left"):
        opened(fs)


def test_an_end_that_is_missing_as_a_whole_is_missed() -> None:
    """A file that was cut between two batches has no bad batch, but it is shorter than its durable part."""
    fs = MemoryFileSystem()
    log = opened(fs)
    log.append(None, "t", 0, [1], 0, 0)
    size = fs.size(SEGMENT)
    log.append(None, "t", 0, [2], 0, 0)
    log.flush()
    log.abandon()
    fs.truncate(SEGMENT, size)
    with pytest.raises(LogCorruptError, match="the partition ends with offset 1, and 2 was durable"):
        opened(fs)


def test_a_segment_is_durable_before_the_next_begins() -> None:
    """A power cut takes records without a transaction from the last segment alone."""
    fs = MemoryFileSystem()
    log = opened(fs)
    for number in range(40):
        log.append(None, "t", 0, [f"{number:030}"], 0, 0)
    last = max(name for name in fs.list_dir("/log/topics/t/0"))
    fs.crash()
    assert [one.offset for one in opened(fs).read("t", 0)] == list(range(int(last.removesuffix(".log"))))


def test_an_open_transaction_in_an_older_segment_holds_back_who_begins_behind_it() -> None:
    """A reader that is given an offset has not seen which transactions are open there."""
    fs = MemoryFileSystem()
    log = opened(fs)
    blocking = begun(log, "first")
    for number in range(20):
        log.append(None, "t", 0, [f"{number:030}"], 0, 0)
    reader = PartitionReader(fs, partition_directory("/log", "t", 0), "t-0", 15)
    assert reader.read(10) == ([], [])
    log.abort(blocking, 0)
    assert len(reader.read(10)[0]) == 6


def test_the_journal_stays_small_and_is_not_written_anew_at_every_request() -> None:
    """Entries before a snapshot are deleted with it, and a snapshot comes once it saves enough."""
    fs = FaultInjectingFileSystem(MemoryFileSystem())
    log = DiskTransactionLog(fs, "/log", LogSettings(journal_bytes=2_000))
    log.create_topic("t", 1)
    largest = 0
    for _ in range(40):
        log.commit(begun(log, 1), 0)
        sizes = [fs.size(f"/log/transactions/{name}") for name in fs.list_dir("/log/transactions") if ".log" in name]
        largest = max(largest, sum(sizes))
    snapshots = [call for call in fs.calls if call.operation == "rename" and "/transactions/snapshot" in call.path]
    assert 2_000 < largest < 2_500
    assert 2 <= len(snapshots) <= 10
