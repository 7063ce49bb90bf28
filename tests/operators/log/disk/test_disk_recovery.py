"""A log on disk after the death of its process, a power cut, and damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError, StorageError
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_reader import PartitionReader, committed_records
from operators.log.disk.log_settings import LogSettings
from operators.log.disk.partition_log import PartitionLog, Retention
from operators.log.disk.record_batches import UnwritableRecordError
from operators.log.disk.topics import partition_directory
from operators.log.port.transaction_log import (
    ABORTED,
    COMMITTED,
    DATA,
    OPEN,
    PREPARED,
    UNKNOWN,
    InvalidTransactionError,
    LogCorruptError,
    OffsetOutOfRangeError,
    Producer,
    ProducerFencedError,
    TransactionLogError,
)
from state_backends.files import (
    FaultInjectingFileSystem,
    FaultRule,
    FileFault,
    FileSystem,
    LocalFileSystem,
    MemoryFileSystem,
    memory as memory_filesystem,
)
from state_backends.files.faulty import SimulatedCrashError

TIMEOUT_NS = 1_000
SMALL = LogSettings(segment_bytes=400, journal_bytes=600)
FIRST_SEGMENT = "/log/topics/t/0/00000000000000000000.log"


def opened(fs: FileSystem, settings: LogSettings = SMALL, partitions: int = 1) -> DiskTransactionLog:
    log = DiskTransactionLog(fs, "/log", settings)
    log.create_topic("t", partitions)
    return log


def begun(log: DiskTransactionLog, name: str = "a") -> Producer:
    producer = log.init_transactions(name, TIMEOUT_NS, 0)
    log.begin(producer, 0)
    return producer


def visible(log: DiskTransactionLog, partition: int = 0) -> list[object]:
    return [record.value for record in log.read("t", partition, log.earliest_offset("t", partition))]


def after_power_cut(fs: MemoryFileSystem, survives: Callable[[str], bool] | None = None) -> DiskTransactionLog:
    fs.crash(survives)
    return opened(fs)


# --- power cuts ---------------------------------------------------------------------------------------------------


def test_a_prepared_transaction_survives_a_power_cut_and_can_be_committed() -> None:
    """Records, state and note are there on every partition, and the commit makes the records visible."""
    fs = MemoryFileSystem()
    log = opened(fs, partitions=2)
    producer = begun(log)
    log.append(producer, "t", 0, [1, 2], 0, 0)
    log.append(producer, "t", 1, [3], 0, 0)
    log.prepare(producer, 0, note=7)

    fs.crash()
    log = opened(fs, partitions=2)
    assert log.outcome(producer, 0) == PREPARED
    assert visible(log) == []
    log.commit(producer, 0)
    assert (visible(log, 0), visible(log, 1)) == ([1, 2], [3])
    assert log.transactions("a", 0)[0].newest_note == 7


def test_what_is_committed_survives_a_power_cut_without_help_of_its_markers() -> None:
    """The commit is in the journal; recovery writes the lost markers, and only then do readers see the rest."""
    fs = MemoryFileSystem()
    log = opened(fs, partitions=2)
    producer = begun(log)
    log.append(producer, "t", 0, [1], 0, 0)
    log.append(producer, "t", 1, [2], 0, 0)
    log.prepare(producer, 0)
    lost = FaultInjectingFileSystem(fs, [FaultRule(FileFault.CRASH_BEFORE, "write", "*/topics/t/*")])
    log.abandon()
    dying = DiskTransactionLog(lost, "/log", SMALL)
    with pytest.raises(SimulatedCrashError):
        dying.commit(producer, 0)

    assert [len(records) for records in committed_records(fs, "/log", "t")] == [0, 0]
    fs.crash()
    log = opened(fs, partitions=2)
    assert log.outcome(producer, 0) == COMMITTED
    assert log.completed_markers == 2
    assert (visible(log, 0), visible(log, 1)) == ([1], [2])


def test_a_reader_goes_on_behind_an_aborted_transaction_after_a_power_cut() -> None:
    """The skipped records are still there. Else the reader would take the log for another, although nothing is lost."""
    fs = MemoryFileSystem()
    log = opened(fs)
    log.append(None, "t", 0, ["kept"], 0, 0)
    log.flush()
    producer = begun(log)
    log.append(producer, "t", 0, ["aborted"], 0, 0)
    log.abort(producer, 0)
    directory = partition_directory("/log", "t", 0)
    reader = PartitionReader(fs, directory, "t-0", 0)
    assert reader.read(10)[0] == ["kept"]
    assert reader.offset == 3
    log.abandon()
    fs.crash()

    log = opened(fs)
    log.append(None, "t", 0, ["new"], 0, 0)
    log.flush()
    assert PartitionReader(fs, directory, "t-0", reader.offset, crc=reader.crc).read(10)[0] == ["new"]


def test_ends_of_many_transactions_together_are_synced_once_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any number of names that a restarted job takes over."""
    log = opened(MemoryFileSystem(), LogSettings(), partitions=2)
    for number in range(10):
        producer = begun(log, f"p{number}")
        log.append(producer, "t", number % 2, ["x"], 0, 0)
    synced: list[int] = []
    fsync = memory_filesystem._MemoryWritableFile.fsync

    def counted(file: memory_filesystem._MemoryWritableFile) -> None:
        synced.append(1)
        fsync(file)

    monkeypatch.setattr(memory_filesystem._MemoryWritableFile, "fsync", counted)
    with log.together():
        for number in range(10):
            log.init_transactions(f"p{number}", TIMEOUT_NS, 0)
    assert len(synced) == 3, "the journal, and each partition"
    log.validate()
    assert [log.last_stable_offset("t", number) for number in (0, 1)] == [10, 10]


def test_what_is_not_prepared_is_lost_in_a_power_cut_and_its_producer_is_told() -> None:
    """The log has no record of it; a producer that goes on meets a gap, and the transaction may be aborted."""
    fs = MemoryFileSystem()
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, [1, 2], 0, 0)
    log = after_power_cut(fs)

    assert log.end_offset("t", 0) == 0
    with pytest.raises(InvalidTransactionError):
        log.append(producer, "t", 0, [3], 2, 0)
    successor = log.init_transactions("a", TIMEOUT_NS, 0)
    assert successor.epoch > producer.epoch
    with pytest.raises(ProducerFencedError):
        log.begin(producer, 0)


def test_records_that_survive_by_chance_belong_to_a_transaction_that_is_open() -> None:
    """A power cut loses the beginning of the transaction, but its records name it."""
    fs = MemoryFileSystem()
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, [1], 0, 0)
    log._topics["t"][0].flush()
    log = after_power_cut(fs, lambda path: "/topics/" in path)

    assert log.outcome(producer, 0) == OPEN
    log.append(producer, "t", 0, [2], 1, 0)
    log.commit(producer, 0)
    assert visible(log) == [1, 2]


@pytest.mark.parametrize(("fsync", "left"), [("append", [1]), ("transaction", []), ("never", [])])
def test_what_a_power_cut_takes_of_plain_records(fsync: str, left: list[int]) -> None:
    """With ``append`` it takes none; with ``transaction`` it takes all records since the last flush."""
    fs = MemoryFileSystem()
    settings = LogSettings(fsync=fsync)
    opened(fs, settings).append(None, "t", 0, [1], 0, 0)
    fs.crash()
    assert visible(opened(fs, settings)) == left


def test_flushed_records_survive_and_must_be_there() -> None:
    """A flush is a promise: recovery reports the loss of any record that it covers."""
    fs = MemoryFileSystem()
    log = opened(fs)
    log.append(None, "t", 0, [1], 0, 0)
    log.flush()
    log.append(None, "t", 0, [2], 0, 0)
    log = after_power_cut(fs)
    assert visible(log) == [1]

    log.abandon()
    size = fs.size(FIRST_SEGMENT)
    fs.truncate(FIRST_SEGMENT, size - 1)
    with pytest.raises(LogCorruptError) as told:
        opened(fs)
    assert (told.value.path, told.value.position) == (FIRST_SEGMENT, 14)
    assert "ends in a batch" in told.value.what


@pytest.mark.parametrize("prepared", [False, True])
def test_a_bad_batch_is_cut_off_or_an_error(prepared: bool) -> None:
    """After the last fsync it is a torn tail. Before it, even if only a later batch shows that, it is damage."""
    fs = MemoryFileSystem()
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, ["x" * 50], 0, 0)
    if prepared:
        log.prepare(producer, 0)
        log.append(None, "t", 0, ["later"], 0, 0)
    else:
        log._topics["t"][0].flush()
    log.abandon()
    content = bytearray(fs.read_bytes(FIRST_SEGMENT))
    content[60] ^= 1
    with fs.open_write(FIRST_SEGMENT) as file:
        file.write(bytes(content))
    if prepared:
        fs.delete_tree("/log/transactions")
        with pytest.raises(LogCorruptError, match=r"00000\.log: damaged at byte 14: the batch does not match"):
            opened(fs)
    else:
        log = opened(fs)
        assert log.truncated_bytes == len(content) - 14
        assert log.end_offset("t", 0) == 0


@pytest.mark.parametrize("damaged", ["first batch", "last batch"])
@pytest.mark.parametrize("never_syncs", [False, True])
def test_a_segment_that_has_a_successor_was_durable(damaged: str, never_syncs: bool) -> None:
    """A bad batch there is damage, not a torn tail; without any fsync it may be a torn tail."""
    fs = MemoryFileSystem()
    options = {"segment_bytes": 400, "never_syncs": never_syncs}
    written = PartitionLog(fs, "/p", "t-0", **options)  # type: ignore[arg-type]
    written.recover()
    while written.segment_count == 1:
        written.flush()
        written.append(DATA, None, [f"record {written.end_offset}"], 0, 1)
    records = written.end_offset - 1
    written.abandon()
    first = f"/p/{fs.list_dir('/p')[0]}"
    content = bytearray(fs.read_bytes(first))
    content[60 if damaged == "first batch" else -1] ^= 1
    with fs.open_write(first) as file:
        file.write(bytes(content))

    again = PartitionLog(fs, "/p", "t-0", **options)  # type: ignore[arg-type]
    if never_syncs:
        again.recover()
        assert again.end_offset == (0 if damaged == "first batch" else records - 1)
        return
    with pytest.raises(LogCorruptError, match=r"00000\.log: damaged at byte \d+: the batch does not match"):
        again.recover()
    assert len(fs.list_dir("/p")) == 2, "nothing was deleted"


def test_damage_in_a_closed_segment_is_an_error_when_it_is_read() -> None:
    """Recovery from a snapshot does not read it again, so a reader finds the damage, and says where it is."""
    fs = MemoryFileSystem()
    log = opened(fs)
    for number in range(20):
        log.append(None, "t", 0, ["x" * 80, number], 0, 0)
    log.close()
    content = bytearray(fs.read_bytes(FIRST_SEGMENT))
    content[-5] ^= 1
    with fs.open_write(FIRST_SEGMENT) as file:
        file.write(bytes(content))
    log = opened(fs)
    with pytest.raises(LogCorruptError, match="does not match its checksum"):
        log.read("t", 0)
    with pytest.raises(LogCorruptError, match="does not match its checksum"):
        committed_records(fs, "/log", "t")


def test_a_damaged_snapshot_is_an_error() -> None:
    """Its content is nowhere else: the journal before it is deleted."""
    fs = MemoryFileSystem()
    log = opened(fs)
    begun(log)
    log.close()
    with fs.open_write("/log/transactions/snapshot") as file:
        file.write(b"nothing")
    with pytest.raises(LogCorruptError, match="snapshot"):
        opened(fs)


def test_a_prepared_transaction_whose_records_are_gone_is_an_error() -> None:
    """Deleting a partition does not make a transaction smaller."""
    fs = MemoryFileSystem()
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, [1], 0, 0)
    log.prepare(producer, 0)
    log.abandon()
    fs.delete(FIRST_SEGMENT)
    with pytest.raises(LogCorruptError):
        opened(fs)


# --- any crash ----------------------------------------------------------------------------------------------------

FAILURES = (
    FileFault.ERROR_BEFORE,
    FileFault.ERROR_AFTER,
    FileFault.TORN_WRITE,
    FileFault.DISK_FULL,
    FileFault.CRASH_BEFORE,
    FileFault.CRASH_AFTER,
)
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["begin", "append", "append", "append", "prepare", "commit", "commit", "abort", "plain", "flush"]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
        st.integers(1, 3),
    ),
    min_size=3,
    max_size=25,
)


class Promises:
    """What the answers of a log promise, whatever happens to the log afterwards."""

    def __init__(self) -> None:
        self.producers: dict[str, Producer] = {}
        self.counts: dict[tuple[Producer, int], int] = {}
        self.written: dict[Producer, list[tuple[int, int]]] = {}
        self.prepared: set[Producer] = set()
        self.committed: set[Producer] = set()
        self.in_doubt: set[Producer] = set()
        self.ended: set[Producer] = set()
        self.plain: list[tuple[int, int]] = []
        self.flushed = 0
        self.number = 0

    def carry_out(self, log: DiskTransactionLog, step: tuple[str, str, int, int]) -> None:
        kind, name, partition, count = step
        producer = self.producers.get(name)
        values = list(range(self.number, self.number + count))
        if kind == "plain":
            self.number += count
            self.plain += [(partition, value) for value in values]
            log.append(None, "t", partition, values, 0, 0)
        elif kind == "flush":
            covered = len(self.plain)
            log.flush()
            self.flushed = covered
        elif kind == "begin" and producer is None:
            producer = log.init_transactions(name, TIMEOUT_NS, 0)
            log.begin(producer, 0)
            self.producers[name] = producer
        elif producer is None:
            return
        elif kind == "append" and producer not in self.prepared:
            self.number += count
            done = self.counts.get((producer, partition), 0)
            self.written.setdefault(producer, []).extend((partition, value) for value in values)
            log.append(producer, "t", partition, values, done, 0)
            self.counts[producer, partition] = done + count
        elif kind == "prepare":
            log.prepare(producer, 0)
            self.prepared.add(producer)
        elif kind in ("commit", "abort"):
            del self.producers[name]
            (self.in_doubt if kind == "commit" else self.ended).add(producer)
            log.commit(producer, 0) if kind == "commit" else log.abort(producer, 0)
            if kind == "commit":
                self.committed.add(producer)

    def check(self, log: DiskTransactionLog) -> None:
        """Compare with the records there are after recovery, once every remaining transaction has been decided."""
        for producer in sorted(self.prepared - self.in_doubt - self.ended):
            assert log.outcome(producer, 0) == PREPARED, producer
            log.commit(producer, 0)
            self.committed.add(producer)
        for found in log.transactions("", 0):
            if found.state in (OPEN, PREPARED):
                log.abort(found.producer, 0)
        log.validate()
        seen = [(number, one.value) for number in range(2) for one in log.read("t", number)]
        assert len(seen) == len(set(seen)), "something is there twice"
        for producer, written in self.written.items():
            there = [one for one in written if one in seen]
            assert there in ([], written), f"{producer} is published in part"
            assert log.outcome(producer, 0) == COMMITTED or not there, producer
            if producer in self.committed:
                assert there == written, f"{producer} is committed, and lost"
            elif producer not in self.in_doubt:
                assert not there, f"nobody has committed {producer}"
        plain = set(self.plain)
        assert set(self.plain[: self.flushed]) <= set(seen)
        others = {one for written in self.written.values() for one in written}
        assert set(seen) <= plain | others


@settings(max_examples=120, deadline=None)
@given(steps, st.integers(1, 120), st.sampled_from(FAILURES), st.integers(0, 40), st.integers(0, 2**32), st.booleans())
def test_whatever_fails_promises_are_kept(
    script: list[tuple[str, str, int, int]],
    at_call: int,
    kind: FileFault,
    keep_bytes: int,
    mask: int,
    is_power_cut: bool,
) -> None:
    """An error or a crash at any call, then a power cut that takes any part of what was not durable: what was answered
    holds, nothing is there in part or twice."""
    inner = MemoryFileSystem()
    opened(inner, partitions=2).close()
    fs = FaultInjectingFileSystem(inner, [FaultRule(kind, at_call=at_call, keep_bytes=keep_bytes)])
    promises = Promises()
    with suppress(SimulatedCrashError, StorageError):
        log = opened(fs, partitions=2)
        for step in script:
            promises.carry_out(log, step)
    numbers = iter(range(10_000))
    inner.crash((lambda path: bool(mask >> next(numbers) % 32 & 1)) if is_power_cut else lambda path: True)
    promises.check(opened(inner, partitions=2))


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(1, 60))
def test_recovery_that_dies_begins_again(script: list[tuple[str, str, int, int]], at_call: int) -> None:
    """A second crash, at any call of the recovery, changes nothing about what is promised."""
    inner = MemoryFileSystem()
    log = opened(inner, partitions=2)
    promises = Promises()
    for step in script:
        promises.carry_out(log, step)
    inner.crash()
    dying = FaultInjectingFileSystem(inner, [FaultRule(FileFault.CRASH_AFTER, at_call=at_call)])
    with suppress(SimulatedCrashError):
        opened(dying, partitions=2)
    inner.crash()
    promises.check(opened(inner, partitions=2))


# --- writing ------------------------------------------------------------------------------------------------------


def test_after_an_error_the_log_is_not_used_any_more() -> None:
    """It is unknown what a failed fsync has written; opening the log again finds out."""
    inner = MemoryFileSystem()
    opened(inner).close()
    fs = FaultInjectingFileSystem(inner, [FaultRule(FileFault.ERROR_BEFORE, "fsync", "*/topics/*", at_call=1)])
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, [1], 0, 0)
    with pytest.raises(TransactionLogError, match="not used any more until it has been opened again"):
        log.prepare(producer, 0)
    with pytest.raises(TransactionLogError, match="it has failed before"):
        log.append(None, "t", 0, [2], 0, 0)
    assert not log.is_usable
    log.close()
    log = opened(inner)
    assert log.outcome(producer, 0) in (OPEN, UNKNOWN, PREPARED)


def test_a_record_that_cannot_be_written_changes_nothing() -> None:
    """The error names it, and the log goes on."""
    log = opened(MemoryFileSystem())
    problem = r"record\['a'\] cannot be written to the log: a set has.*\n.*\{'a'"
    with pytest.raises(UnwritableRecordError, match=problem):
        log.append(None, "t", 0, [0, {"a": {1}}], 0, 0)
    log.append(None, "t", 0, [1], 0, 0)
    assert visible(log) == [1]


def test_two_processes_cannot_write(tmp_path: object) -> None:
    """The error tells the second process which one holds the log; when the first is gone, the second may write."""
    log = DiskTransactionLog(LocalFileSystem(), f"{tmp_path}/log")
    with pytest.raises(StorageError, match=r"(?s)is being written to by process.*reading needs no lock"):
        DiskTransactionLog(LocalFileSystem(), f"{tmp_path}/log")
    log.close()
    DiskTransactionLog(LocalFileSystem(), f"{tmp_path}/log").close()


def test_a_log_on_a_real_disk_is_found_again(tmp_path: object) -> None:
    """Closed, opened, committed, and read by a reader without a lock."""
    fs, path = LocalFileSystem(), f"{tmp_path}/log"
    log = DiskTransactionLog(fs, path, SMALL)
    log.create_topic("t", 1)
    producer = begun(log)
    log.append(producer, "t", 0, [("k", 1), None, "é"], 0, 0)
    log.prepare(producer, 0)
    log.abandon()
    log = DiskTransactionLog(fs, path, SMALL)
    log.commit(producer, 0)
    assert [one.value for one in committed_records(fs, path, "t")[0]] == [("k", 1), None, "é"]
    log.close()


def test_recovery_reads_only_what_came_behind_the_snapshot() -> None:
    """However long the log is, recovery reads the journal and each partition only from the snapshot on."""
    fs = MemoryFileSystem()
    log = opened(fs)
    for number in range(60):
        producer = begun(log, f"name-{number % 3}")
        log.append(producer, "t", 0, [number], 0, 0)
        log.commit(producer, 0)
    log.close()
    watched = FaultInjectingFileSystem(fs)
    log = DiskTransactionLog(watched, "/log", SMALL)
    opened_segments = [call.path for call in watched.calls if call.operation == "open_random" and "/t/" in call.path]
    assert len(opened_segments) == 1
    assert len([name for name in fs.list_dir("/log/topics/t/0") if name.endswith(".log")]) > 5
    assert len([name for name in fs.list_dir("/log/transactions") if name.endswith(".log")]) <= 3
    assert visible(log) == list(range(60))
    assert log.transactions("name-0", 0)[0].state == COMMITTED


def test_outcomes_take_no_room_as_long_as_they_are_alike() -> None:
    """Thousands of committed transactions of one name are one run; an aborted one splits it into three."""
    log = opened(MemoryFileSystem())
    producer = log.init_transactions("a", TIMEOUT_NS, 0)
    for number in range(50):
        log.begin(producer, 0)
        producer = log.abort(producer, 0) if number == 20 else log.commit(producer, 0, number)
    assert len(log._names["a"].ended.runs) == 3
    assert [log.outcome(Producer("a", epoch), 0) for epoch in (0, 19, 20, 21, 49, 50)] == [
        COMMITTED,
        COMMITTED,
        ABORTED,
        COMMITTED,
        COMMITTED,
        UNKNOWN,
    ]


# --- retention and topics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "retention",
    [Retention(bytes=800), Retention(records=8), Retention(segments=2)],
    ids=["bytes", "records", "segments"],
)
def test_retention_deletes_whole_old_segments(retention: Retention) -> None:
    """At least the requested amount is kept, and not much more, also after a power cut; older offsets are errors."""
    fs = MemoryFileSystem()
    settings = LogSettings(fsync="append", segment_bytes=400, retention=retention)
    log = opened(fs, settings)
    for number in range(40):
        log.append(None, "t", 0, [f"{number:040}"], 0, 0)
    earliest = log.earliest_offset("t", 0)
    kept = len(visible(log))
    assert 40 - earliest == kept
    assert kept < 24
    assert kept >= (retention.records or 1)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"offset 0 is deleted by retention; the partition has {earliest} to 40"
    ):
        log.read("t", 0, 0)
    with pytest.raises(OffsetOutOfRangeError, match="after the end"):
        log.read("t", 0, 41)
    log.validate()
    fs.crash()
    assert opened(fs, settings).earliest_offset("t", 0) == earliest


def test_retention_waits_for_the_oldest_open_transaction() -> None:
    """No record after the last stable offset is deleted, however many there are; once decided, they may be."""
    log = opened(MemoryFileSystem(), LogSettings(segment_bytes=400, retention=Retention(segments=1)))
    producer = begun(log)
    log.append(producer, "t", 0, ["first"], 0, 0)
    for number in range(40):
        log.append(None, "t", 0, [f"{number:040}"], 0, 0)
    assert log.earliest_offset("t", 0) == 0
    log.commit(producer, 0)
    assert log.earliest_offset("t", 0) > 0
    assert "first" not in visible(log)


def test_a_topic_can_grow_and_not_shrink() -> None:
    """New partitions exist after a restart; fewer partitions are refused."""
    fs = MemoryFileSystem()
    log = opened(fs)
    log.add_partitions("t", 3)
    log.append(None, "t", 2, [1], 0, 0)
    log.flush()
    with pytest.raises(ConfigurationError, match="none is ever taken away"):
        log.add_partitions("t", 2)
    fs.crash()
    log = opened(fs, partitions=3)
    assert visible(log, 2) == [1]


@pytest.mark.parametrize("topic", ["", "..", "a/b", "x" * 250, "ä"])
def test_topics_need_names_that_directories_can_have(topic: str) -> None:
    """Any other name is refused before anything is written."""
    log = opened(MemoryFileSystem())
    with pytest.raises(ConfigurationError, match="cannot be kept on disk"):
        log.create_topic(topic, 1)


@pytest.mark.parametrize(
    "settings",
    [LogSettings(fsync="sometimes"), LogSettings(segment_bytes=0), LogSettings(retention=Retention(records=0))],
)
def test_settings_that_make_no_sense_are_refused(settings: LogSettings) -> None:
    """They are refused before a directory is made."""
    fs = MemoryFileSystem()
    with pytest.raises(ConfigurationError):
        DiskTransactionLog(fs, "/log", settings)
    assert not fs.exists("/log")
