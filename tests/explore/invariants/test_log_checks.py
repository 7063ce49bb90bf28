"""V9 for logs on disk: which records may be missing there, and which may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.explore.invariants.base import Invariant
from engine.explore.run import CaseView, FinishedCase, World
from engine.faults.fault import parse_fault
from engine.observe.trace_events import CheckpointCompleted
from operators.log.connectors.log_sink import LogSink
from operators.log.disk.disk_log import DiskLog
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_reader import PartitionReader
from operators.log.port.transaction_log import Producer, TransactionLogError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from tests.explore.invariants.support import healthy, texts, told, usual

SEGMENT = "/out/events/topics/rows/0/00000000000000000000.log"


class Watched:
    """A log on disk that a sink writes to, and V9 over it; ``power_cuts``: whether they may strike in the case."""

    def __init__(self, *, power_cuts: bool = True, **options: Any) -> None:
        self.fs = MemoryFileSystem()
        self.sink = LogSink("rows", log=DiskLog("events", **options))
        self.sink.live_in(self.fs, "/out", {})
        view = healthy("logged").view
        faults = (parse_fault("lose-unsynced:*#1"),) if power_cuts else ()
        case = replace(usual(), faults=faults)
        self.view: CaseView = replace(view, world=World(files=self.fs, sinks={"out": self.sink}), case=case)
        self.v9: Invariant = told("V9", view=self.view)
        self.log = self.open()

    def open(self, fs: FileSystem | None = None) -> DiskTransactionLog:
        assert isinstance(self.sink.log, DiskLog)
        log = DiskTransactionLog(fs or self.fs, "/out/events", self.sink.log.settings)
        log.keep_history(self.sink.log.history)
        log.create_topic("rows", 1)
        return log

    def write(self, name: str, *values: int) -> Producer:
        producer = self.log.init_transactions(f"out/0/{name}/0", 10**9, 0)
        self.log.begin(producer, 0)
        self.log.append(producer, "rows", 0, values, 0, 0)
        return producer

    def look(self) -> list[str]:
        """The findings of V9 once a checkpoint is complete."""
        self.v9.handlers()[CheckpointCompleted](CheckpointCompleted(2, 1, 1, 0))
        return texts(self.v9)

    def die(self, *, power_cut: bool = True) -> None:
        """The process ends, and the next one opens the log."""
        if power_cut:
            self.fs.crash()
        else:
            self.fs.crash(lambda path: True)
        self.log.abandon()
        self.v9.process_died(self.view)
        self.log = self.open()

    def end(self) -> list[str]:
        """The findings of V9 once the job is over."""
        self.v9.finished(FinishedCase(self.view, healthy("logged").results, {}, [], outcome="finished"))
        return texts(self.v9)


def test_a_log_that_is_right_is_silent() -> None:
    """Committed, aborted, open and plain records; a process that dies, and one with its machine."""
    watched = Watched()
    log = watched.log
    log.commit(watched.write("1.1", 1, 2), 0)
    log.abort(watched.write("1.2", 3), 0)
    watched.write("1.3", 4)
    log.append(None, "rows", 0, [5], 0, 0)
    assert watched.look() == []
    watched.die(power_cut=False)
    assert watched.look() == []
    watched.die()
    watched.log.commit(watched.write("2.1", 6), 0)
    assert watched.look() == []
    assert watched.end() == []
    assert getattr(watched.v9, "skipped", None) is None


def test_what_waits_in_memory_is_not_missed_before_it_is_prepared() -> None:
    """An open transaction has nothing on disk yet; a prepared one that has less than was appended is a lost write."""
    watched = Watched()
    producer = watched.write("1.1", 1, 2)
    assert watched.look() == []
    watched.log.prepare(producer, 0, 1)
    with watched.fs.open_write(SEGMENT):
        pass
    assert watched.look() == [f"log of sink 'out', rows-0: {producer} has appended 2 record(s), and others are there"]


def test_plain_records_may_vanish_with_the_power_and_not_without() -> None:
    """Unless every append was promised to be durable."""
    for options, die, expected in (
        ({}, {"power_cut": True}, []),
        ({"power_cuts": False}, {"power_cut": True}, ["log of sink 'out', rows-0: what was there has changed"]),
        ({"fsync": "append"}, {"power_cut": True}, []),
    ):
        watched = Watched(**options)
        watched.log.append(None, "rows", 0, [1], 0, 0)
        assert watched.look() == []
        watched.die(**die)
        assert watched.look() == expected


def test_an_append_that_was_promised_to_be_durable_may_not_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log claims to fsync appends, but does not."""
    monkeypatch.setattr("operators.log.disk.disk_transaction_log.FSYNC_APPEND", "forgotten")
    watched = Watched(fsync="append")
    watched.log.append(None, "rows", 0, [1], 0, 0)
    assert watched.look() == []
    watched.die()
    assert watched.look() == ["log of sink 'out', rows-0: what was there has changed"]


def test_a_commit_that_vanishes_with_the_power_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have seen it: neither a commit marker nor a record before it may vanish."""
    monkeypatch.setattr("operators.log.disk.partition_log.PartitionLog.sync", lambda self: self.flush())
    watched = Watched()
    watched.log.commit(watched.write("1.1", 1), 0)
    assert watched.look() == []
    watched.fs.crash()
    watched.v9.process_died(watched.view)
    assert "log of sink 'out', rows-0: what was there has changed" in watched.look()


def test_records_of_nobody_who_committed_are_found() -> None:
    """A marker that no producer asked for makes them visible: an aborted read."""
    watched = Watched()
    producer = watched.write("1.1", 1)
    watched.log._topics["rows"][0].append("commit", producer, (), 0, 0)
    watched.log._topics["rows"][0].flush()
    assert watched.look() == [f"log of sink 'out', rows-0: records of {producer} are read, but were never committed"]


def test_a_committed_record_that_no_reader_gets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariant asks the reader that sources use."""
    watched = Watched()
    watched.log.commit(watched.write("1.1", 1), 0)
    monkeypatch.setattr(PartitionReader, "read", lambda *arguments: ([], []))
    assert watched.look() == ["log of sink 'out', rows-0: 1 committed records are to be read, and 0 are"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_request_that_broke_off_may_have_happened(kept: bool) -> None:
    """A commit is in the journal when its marker fails, and recovery writes it; an append may be there or not."""
    watched = Watched()
    watched.log.abandon()
    rule = FaultRule(FileFault.ERROR_AFTER if kept else FileFault.ERROR_BEFORE, "fsync", "*/rows/0/*", at_call=2)
    watched.log = watched.open(FaultInjectingFileSystem(watched.fs, [rule]))
    producer = watched.write("1.1", 1)
    with pytest.raises(TransactionLogError):
        watched.log.commit(producer, 0)
    assert watched.sink.log.history[-1].result == "interrupted"
    assert watched.look() == []
    watched.die(power_cut=False)
    assert watched.look() == []
    assert watched.log.commit(producer, 0).epoch == producer.epoch + 1
    assert watched.look() == []


def test_what_retention_has_deleted_is_not_missed() -> None:
    """Whole segments go from the beginning; what is left has not changed."""
    watched = Watched(segment_bytes=300, retain_segments=1)
    for number in range(1, 20):
        watched.log.commit(watched.write(f"1.{number}", number), 0)
        assert watched.look() == []
    assert watched.log.earliest_offset("rows", 0) > 0


def test_a_log_that_cannot_be_read_is_found() -> None:
    """Damage before its end that no fault has caused."""
    watched = Watched(segment_bytes=300)
    for number in range(1, 10):
        watched.log.commit(watched.write(f"1.{number}", number), 0)
    with watched.fs.open_append(SEGMENT) as file:
        file.write(b"x")
    (text,) = watched.look()
    assert text.startswith("log of sink 'out' cannot be read: ")
