"""Committers: output that a complete checkpoint covers becomes visible once, in files and in the list that names them.

Two sinks in several operators take the same rows. One writes files that are merged before they are committed
(file sink with committer and compaction). The other writes documents: a committer publishes each by a rename, after
postponing it once, and a global committer enters them into a list, all documents of a checkpoint together. Readers of
the documents use the list.

If a committable is assigned to the wrong checkpoint, forgotten by a restore, or committed before its checkpoint is
complete, a row is lost, duplicated or early. Files that a compaction has read must be gone at the end::

    weir explore examples/scenarios/committers.py
    weir explore examples/scenarios/committers.py --mode aligned --fault crash --fault lose
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine import (
    Batch,
    CommitRequest,
    Committer,
    CommittingSink,
    CompactionStrategy,
    FileSink,
    Job,
    SequenceSource,
    SinkWriter,
)
from engine.elements.operator import OperatorContext
from state_backends import FileSystem

RECORDS = 40
KEYS = "ab"

SCENARIO = {
    "batch_size": 3,
    "channel_capacity": 6,
    "checkpoint_interval": "7rec",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 400,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}


class Documents(CommittingSink):
    """Documents of a few rows, and a list of those that are complete."""

    name = "documents"
    path = "documents"
    shows_whole_checkpoints = True

    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        """See :class:`Writer`."""
        return Writer(context)

    def create_committer(self, context: OperatorContext) -> Committer:
        """See :class:`Publish`."""
        return Publish(context)

    def create_global_committer(self, context: OperatorContext) -> Committer:
        """See :class:`Enter`."""
        return Enter(context)

    def read_output(self, fs: FileSystem, directory: str) -> dict[str, list[str]]:
        """The rows of all documents on the list."""
        names = _listed(fs, f"{directory}/LIST")
        rows = [row for name in names for row in fs.read_bytes(f"{directory}/{name}").decode().splitlines()]
        return {"": sorted(rows)} if rows else {}


class Writer(SinkWriter):
    """Writes the rows of a checkpoint into a document that readers do not see yet."""

    def __init__(self, context: OperatorContext) -> None:
        self._context, self._rows, self._count = context, list[object](), 0

    def write(self, batch: Batch) -> None:
        """Keep them."""
        self._rows += batch.values

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        """The name of the document, which no other attempt ever uses."""
        if not self._rows:
            return []
        context, rows, self._rows = self._context, self._rows, []
        name = f"{context.incarnation}-{context.attempt}-{context.subtask}-{self._count}"
        self._count += 1
        _write(context.file_system(), f"{context.resolve_path('documents')}/staged", name, rows)
        return [name]


class Publish(Committer):
    """Gives a document its name in the list."""

    def __init__(self, context: OperatorContext) -> None:
        self._fs, self._directory = context.file_system(), context.resolve_path("documents")

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Each is postponed once: the list waits for the last of them."""
        for request in requests:
            if not request.retries:
                request.retry_later()
            elif self._fs.exists(f"{self._directory}/{request.committable}"):
                request.signal_already_committed()
            else:
                name = request.committable
                self._fs.rename(f"{self._directory}/staged/{name}", f"{self._directory}/{name}")
        self._fs.fsync_dir(self._directory)


class Enter(Committer):
    """Enters the documents of a checkpoint into the list."""

    def __init__(self, context: OperatorContext) -> None:
        self._fs, self._directory = context.file_system(), context.resolve_path("documents")

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """All of them at once, by a rename."""
        names = _listed(self._fs, f"{self._directory}/LIST")
        names += [request.committable for request in requests if request.committable not in names]
        _write(self._fs, self._directory, "LIST.new", names)
        self._fs.rename(f"{self._directory}/LIST.new", f"{self._directory}/LIST")
        self._fs.fsync_dir(self._directory)


def _listed(fs: FileSystem, path: str) -> list[str]:
    return fs.read_bytes(path).decode().split("\n")[:-1] if fs.exists(path) else []


def _write(fs: FileSystem, directory: str, name: str, rows: Sequence[object]) -> None:
    fs.make_dirs(directory)
    with fs.open_write(f"{directory}/{name}") as file:
        file.write("".join(f"{row}\n" for row in rows).encode())
        file.fsync()
    fs.fsync_dir(directory)


def _key(number: int) -> str:
    return KEYS[number % len(KEYS)]


def job(parallelism: int | None = None) -> Job:
    """Two sources, counters, and two sinks; rows are ``(key, how many so far)``."""
    made = Job("committers", parallelism=parallelism or 2, max_parallelism=8)
    half = RECORDS // 2
    first = made.source(SequenceSource(0, half), name="first", uid="first", parallelism=1)
    second = made.source(SequenceSource(half, RECORDS), name="second", uid="second", parallelism=1)
    ones = first.union(second).key_by(_key, value=lambda number: (_key(number), 1))
    counts = ones.reduce(lambda one, two: (one[0], one[1] + two[1]), name="count", uid="count")
    files = FileSink("files", bucket=lambda row: f"key={row[0]}").compacting(CompactionStrategy(checkpoints=2))
    counts.rebalance().sink(files, name="files", uid="files")
    counts.rebalance().sink(Documents(), name="documents", uid="documents")
    return made


def expected(inputs: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[object]]:
    """The rows of the documents, as they are written."""
    counts = Counter(_key(number) for number in (*inputs["first"], *inputs["second"]))
    return {"documents": [str((key, seen + 1)) for key, count in counts.items() for seen in range(count)]}
