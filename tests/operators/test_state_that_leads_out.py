"""Restored state that is well formed but names files of others: the operator does not touch these files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.errors import StateError
from operators.files.bucketing import BucketingNames, BucketingSink
from operators.files.bucketing.journal import PartJournal
from operators.files.compaction import CompactionStrategy, FileCommitter
from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import FileSink
from operators.files.sinks.compaction_operators import CompactorOperator
from operators.files.writing import RecoverableWriter
from operators.table.partitions.commit_policies import PartitionCommitContext, SuccessFilePolicy
from operators.table.partitions.partition_compaction import CompactOperator
from operators.table.partitions.partition_messages import unit
from operators.table.staging.staged_sink import StagedFileSink, StagingFinalizer
from operators.transactions import CommitRequest
from state_backends.api import OperatorStateBackend
from state_backends.base import CorruptStateError
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import SnapshotOptions, run_to_completion
from tests.operators.harness import Checkpoint, Harness

VICTIM = "/victims/.letters"
"""Hidden, so that only its place is wrong."""

REFUSED = r"do not use this checkpoint|should be a path"
OUT = ["/victims/.letters", "../../victims/.letters", "b/../../../victims/.letters"]


@pytest.fixture
def disk() -> MemoryFileSystem:
    """Files of the sinks, which are in ``/out/rows``, and of others."""
    fs = MemoryFileSystem()
    for path in (VICTIM, "/victims/run-1/task-0/x", "/out/rows/part-9-9", "/out/rows/.mine"):
        fs.make_dirs(path.rpartition("/")[0])
        with fs.open_write(path) as file:
            file.write(b"mine")
    return fs


def everything(fs: MemoryFileSystem) -> dict[str, bytes]:
    return {path: fs.read_bytes(path) for path in fs.walk_files("/")}


def forged(**lists: Sequence[Any]) -> Checkpoint:
    checkpoint, backend = Checkpoint(1), OperatorStateBackend()
    backend.union_list_state("part-counters").update([(0, 100, [])])
    for name, elements in lists.items():
        backend.list_state(name.replace("_", "-")).update(list(elements))
    resources = backend.sync_prepare_resources(1)
    streams = checkpoint.location.stream_factory("forged")
    snapshot = run_to_completion(backend.async_snapshot(resources, streams, SnapshotOptions()))
    handle = snapshot.job_manager_state
    assert handle is not None
    checkpoint.operator[0] = handle
    return checkpoint


def refused(fs: MemoryFileSystem, act: Callable[[], object]) -> None:
    before = everything(fs)
    # Names in operator state are checked when it is restored, those in messages when they are used.
    with pytest.raises((StateError, CorruptStateError), match=REFUSED):
        act()
    assert everything(fs) == before


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("size_bytes", [0, 4])
@pytest.mark.parametrize("role", ["temporary", "target", "open part", "open part's target"])
def test_a_file_sink(disk: MemoryFileSystem, out: str, size_bytes: int, role: str) -> None:
    """Neither kind of sink commits, cuts, sets aside or overwrites a file elsewhere."""
    pending = (out, "new", size_bytes) if role in ("temporary", "open part") else (".mine", out, 4)
    is_open = role.startswith("open")
    bucket = ("", [] if is_open else [(1, [pending])], (*pending, 0) if is_open else None)

    operator = FileSink("rows").create_operator()
    refused(disk, lambda: Harness(operator, fs=disk, restored=forged(buckets=[bucket]), incarnation=2))

    files = RecoverableWriter(disk, "/out/rows", lambda: "1")
    request = CommitRequest(("pending", "", *pending))
    refused(disk, lambda: FileCommitter(files).commit([request]))


@pytest.mark.parametrize("path", [*OUT, "part-9-9"])
def test_a_committer_deletes_hidden_files_of_its_own(disk: MemoryFileSystem, path: str) -> None:
    """Visible files are not among them, and are not cut to the length that a committable gives."""
    files = RecoverableWriter(disk, "/out/rows", lambda: "1")
    for committable in (("delete", "", path), ("pending", "", path, "new", 1)):
        refused(disk, partial(FileCommitter(files).commit, [CommitRequest(committable)]))


@pytest.mark.parametrize("out", OUT)
def test_a_compactor_of_a_file_sink(disk: MemoryFileSystem, out: str) -> None:
    """It reads no source elsewhere, and writes no target there."""
    spec: Any = FileSink("rows").compacting(CompactionStrategy(checkpoints=1))
    for names in ((out, ".new"), (".mine", out)):
        requests = [(-1, ("", [("pending", "", *names, 4)], []))]
        restored = forged(requests=requests)
        refused(disk, lambda: Harness(CompactorOperator(spec), fs=disk, restored=restored, incarnation=2).finish())  # noqa: B023


@pytest.mark.parametrize("bucket", ["/victims", "../../victims", ""])
@pytest.mark.parametrize("truncate", [True, False])
def test_a_bucketing_sink(disk: MemoryFileSystem, bucket: str, truncate: bool) -> None:
    """Parts in progress and pending ones, cut or with a valid length, and the names in its journal."""
    names, part = BucketingNames(), "letters" if bucket else "../../victims/letters"
    for name in ("letters", names.pending("letters"), names.in_progress("letters")):
        with disk.open_write(f"/victims/{name}") as file:
            file.write(b"mine")
    sink = BucketingSink("rows", use_truncate=truncate, goes_back=False)
    for state in ((bucket, part, 1, 0, 0, [], []), (bucket, None, -1, 0, 0, [], [(1, [part])])):
        checkpoint = forged(bucket_states=[[state]])
        refused(disk, partial(Harness, sink.create_operator(), fs=disk, restored=checkpoint))

    journal = PartJournal(disk, "/out/rows", "op", names, subtask=0, parallelism=1, attempt="2-1")
    journal.note(2, [(bucket, part)])
    refused(disk, lambda: journal.go_back(1))


def test_a_staged_sink(disk: MemoryFileSystem) -> None:
    """Files to be moved, their names, their partitions, and the directories that are deleted in the end."""
    staged = "/out/rows/.staging-op/run-1/task-0/f"
    disk.make_dirs(staged.rpartition("/")[0])
    with disk.open_write(staged) as file:
        file.write(b"mine")
    good = (staged, "", "f", 4)
    files = [
        ("/victims/run-1/task-0/x", "", "f", 4),
        ("/out/rows/.staging-op/../../../victims/.letters", "", "f", 4),
        ("../victims/.letters", "", "f", 4),
        (staged, "../../victims", "f", 4),
        (staged, "", "/victims/f", 4),
    ]
    plans = [([], file) for file in files]
    plans += [([root], good) for root in ("/victims", "/", "/out/rows", "/x/.staging-x/../victims", "/out/rows/.mine")]
    for roots, file in plans:
        plan = (False, [file[1]], [file])
        checkpoint = forged(staged_files=[(roots, [file], plan)])
        finalizer = StagingFinalizer(StagedFileSink("rows")).create_operator()
        before = everything(disk)
        with pytest.raises((StateError, CorruptStateError), match=REFUSED):
            Harness(finalizer, fs=disk, restored=checkpoint)
        note = "/out/rows/.staged-commit-op-uid"
        assert {path: data for path, data in everything(disk).items() if path != note} == before
        if disk.exists(note):
            disk.delete(note)

    moved = forged(staged_files=[(["/out/rows/.staging-op"], [good], (False, [""], [good]))])
    Harness(StagingFinalizer(StagedFileSink("rows")).create_operator(), fs=disk, restored=moved)
    assert disk.exists("/out/rows/f")
    assert not disk.exists(staged)


@pytest.mark.parametrize("out", OUT)
def test_the_compaction_of_a_table(disk: MemoryFileSystem, out: str) -> None:
    """The files of a unit, and the files that are deleted when it is compacted."""

    def operator() -> CompactOperator:
        return CompactOperator("rows", JsonLinesRowFormat())

    restored = forged(compacted_files=[(1, [out])])
    refused(disk, lambda: Harness(operator(), fs=disk, restored=restored, incarnation=2).complete(2))
    for partition, name in (("", out), (out.rpartition("/")[0], ".letters")):
        fresh = Harness(operator(), fs=disk)
        refused(disk, partial(fresh.operator.process_batch, Batch([unit(0, partition, (name,))])))


@pytest.mark.parametrize("partition", ["../../victims", "/victims", "d=1/../../.."])
def test_a_partition_elsewhere_is_not_committed(disk: MemoryFileSystem, partition: str) -> None:
    """A partition committer has the pending partitions in its state."""
    context = PartitionCommitContext(disk, "/out/rows", partition, 0)
    refused(disk, lambda: SuccessFilePolicy().commit(context))
