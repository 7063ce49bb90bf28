"""State that operators and logs read back, well framed but malformed inside, gives an error of ours that says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.elements.errors import StateError, StorageError
from engine.graph.job import Job
from engine.runtime.acking import OFFSETS_FILE_NAME, AckingRun
from engine.runtime.config import RunConfig
from engine.runtime.kernel import Kernel
from engine.runtime.storage import take_over_state
from operators.basic import CollectedResults, CollectSink
from operators.log.disk.consumer_groups import GROUPS_DIRECTORY, committed_offset
from operators.log.disk.topics import _topic_file, partitions_of, write_topic
from operators.log.disk.transaction_journal import TransactionJournal
from operators.log.port.transaction_log import LogCorruptError
from operators.sources import SequenceSource
from state_backends.base import StateBackendError, StateSchemaError
from state_backends.codec import seal
from state_backends.files import MemoryFileSystem
from state_backends.local.state_store import LOCAL_STATE_FILE_NAME, LocalStateStore, LocalTaskState
from state_backends.snapshots import CheckpointStorage, FileStateHandle, StateScope, SubtaskSnapshot
from tests.malformed import framed_variants, packed
from tests.operators.log.disk.test_disk_recovery import begun, opened


def restoring(checkpoint_id: int | None) -> Any:
    """An operator that expects a pair in its state, but finds none."""

    def initialize_state() -> None:
        _current, _pending = None  # type: ignore[misc]

    context = SimpleNamespace(uid="out", restored_checkpoint_id=lambda: checkpoint_id)
    return SimpleNamespace(context=context, initialize_state=initialize_state)


def test_an_operator_that_stumbles_over_its_state_is_told_apart_from_a_bug() -> None:
    """After a restore the error names operator and checkpoint; without a restore the original error is raised."""
    with pytest.raises(StateError, match="operator 'out' cannot take over its state from checkpoint 7"):
        take_over_state(restoring(7))
    with pytest.raises(TypeError):
        take_over_state(restoring(None))


def refused_of(fs: MemoryFileSystem, path: str, read: Callable[[], Any], kinds: Any) -> float:
    """The share of all variants of a file that is refused with an error of these kinds; any other error is raised."""
    refused = 0
    others = list(framed_variants(fs.read_bytes(path)))
    for data in others:
        fs.delete(path)
        with fs.open_write(path) as file:
            file.write(data)
        try:
            read()
        except kinds:
            refused += 1
    return refused / len(others)


def test_offsets_of_acked_sources_are_checked() -> None:
    """Any content of the file of a run with record acking is checked: without the file the job would begin again."""
    job = Job("acked")
    job.source(SequenceSource(0, 9), name="numbers", uid="numbers").sink(CollectSink(CollectedResults()), name="out")
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, "/state", "acked")

    def acking() -> AckingRun:
        config = RunConfig(mode="acking")
        return AckingRun(job.plan(), config, kernel=Kernel(), storage=storage, instrument=None)

    acking().commit("numbers", {"sequence-0-of-1": (5, False)})
    path = f"{storage.job_dir}/{OFFSETS_FILE_NAME}"
    assert refused_of(fs, path, lambda: acking().begin(restore=True), StorageError) > 0.6


def test_the_snapshot_of_a_transaction_journal_is_checked() -> None:
    """Any content is checked: names, their outcomes and the points of partitions."""
    fs = MemoryFileSystem()
    log = opened(fs)
    producer = begun(log)
    log.append(producer, "t", 0, ["x"], 0, 0)
    log.prepare(producer, 0, 1)
    log.commit(producer, 0, 1)
    log.close()
    path = "/log/transactions/snapshot"

    def read() -> None:
        TransactionJournal(fs, "/log", segment_bytes=1 << 20, never_syncs=True).recover()

    assert refused_of(fs, path, read, (LogCorruptError, StateSchemaError)) > 0.6


def test_local_snapshots_are_checked() -> None:
    """A bad one is removed and reported as unreadable, and checkpoint storage is read instead."""
    fs = MemoryFileSystem()
    stream = FileStateHandle("x", StateScope.EXCLUSIVE, 3, 7)
    state = LocalTaskState({"out": SubtaskSnapshot()}, {stream: stream})
    assert LocalStateStore(fs, "/local", lambda what, error: None).store(1, state)
    path = f"/local/chk-1/{LOCAL_STATE_FILE_NAME}"
    whole = fs.read_bytes(path)
    others = list(framed_variants(whole))
    told = 0
    for data in others:
        with fs.open_write(path) as file:
            file.write(data)
        problems: list[Exception] = []
        store = LocalStateStore(fs, "/local", lambda what, error: problems.append(error))  # noqa: B023 - called at once
        if store.retrieve(1) is None and problems:
            assert not fs.exists(path)
            assert isinstance(problems[0], StateBackendError)
            told += 1
        fs.make_dirs("/local/chk-1")
    assert told > 0.7 * len(others)


def test_offsets_of_groups_and_topics_are_checked() -> None:
    """Any content of the two files beside the records of a log is checked."""
    fs = MemoryFileSystem()
    write_topic(fs, "/log", "t", 2)
    offset = f"/log/{GROUPS_DIRECTORY}/g/t/0"
    fs.make_dirs(f"/log/{GROUPS_DIRECTORY}/g/t")
    with fs.open_write(offset) as file:
        file.write(seal(b"WEIRGRUP", 1, packed([5, 2, 9])))
    assert committed_offset(fs, "/log", "t", 0, "g") == (5, 2, 9)
    for path, read in (
        (_topic_file("/log", "t"), lambda: partitions_of(fs, "/log", "t")),
        (offset, lambda: committed_offset(fs, "/log", "t", 0, "g")),
    ):
        assert refused_of(fs, path, read, (LogCorruptError, StateSchemaError)) > 0.7
