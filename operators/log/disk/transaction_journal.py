"""The journal of a log on disk: the changes of its transactional ids (Kafka: ``__transaction_state``).

The journal is a partition of its own. Its records are changes of names, as plain values; a name is the result of all
its changes. A *snapshot* of the names limits how many changes recovery has to read again. It also stores, for each
partition, the point from which recovery has to read. The snapshot is one file, replaced atomically. After that the
journal segments before it are deleted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from operators.log.disk.partition_log import PartitionLog, RecoveryPoint
from operators.log.port import DATA, EpochRun, LogCorruptError, Name, Outcomes
from state_backends.base import (
    CorruptStateError,
    anything,
    as_written,
    check_shape,
    list_of,
    number,
    optional,
    row,
    text,
    whole,
)
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import FileSystem, write_atomically

JOURNAL_DIRECTORY, SNAPSHOT_NAME = "transactions", "snapshot"
_MAGIC, _VERSION = b"WEIRLOGT", 2

_NAME = row(
    text, number, number, optional(text), number, optional(number), number, list_of(row(number, number, text)),
    optional(number),
)  # fmt: skip
_POINT = row(text, whole, whole, whole, whole, list_of(anything))
_SNAPSHOT = row(whole, number, number, list_of(_NAME), list_of(_POINT))

Place = tuple[str, int]
"""Topic and number of a partition."""


class JournalSnapshot(NamedTuple):
    """``offset``: the first change of the journal that the snapshot lacks; ``first_epoch``: the epoch of new names."""

    offset: int
    now_ns: int
    first_epoch: int
    names: dict[str, Name]
    points: dict[Place, RecoveryPoint]


class TransactionJournal:
    """See the module."""

    def __init__(self, fs: FileSystem, directory: str, *, segment_bytes: int, never_syncs: bool) -> None:
        self._fs = fs
        self._directory = posixpath.join(directory, JOURNAL_DIRECTORY)
        self._changes = PartitionLog(
            fs, self._directory, JOURNAL_DIRECTORY, segment_bytes=segment_bytes, never_syncs=never_syncs
        )
        self.bytes_since_snapshot = 0

    @property
    def truncated_bytes(self) -> int:
        """How much of the journal recovery has cut off."""
        return self._changes.truncated_bytes

    def recover(self) -> JournalSnapshot:
        """The last snapshot; :meth:`changes` gives the changes after it."""
        snapshot = self._read_snapshot()
        self._changes.recover(snapshot.offset)
        if self._changes.earliest_offset > snapshot.offset:
            raise LogCorruptError(self._snapshot_path, 0, "the journal before it is deleted, and it is not there")
        return snapshot

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wraps code that applies changes.

        Raises :class:`LogCorruptError` when a change holds values that a name cannot have.
        """
        try:
            with as_written(self._directory):
                yield
        except CorruptStateError as error:
            raise LogCorruptError(error.path, 0, error.what) from error

    def changes(self, offset: int) -> Iterator[tuple[int, Any]]:
        """The changes from ``offset`` on, each with the time at which it was written."""
        for batch in self._changes.batches(offset):
            for record in batch.records(self._directory):
                if record.offset >= offset:
                    yield batch.at_ns, record.value

    def append(self, change: Sequence[Any], at_ns: int) -> None:
        """Append a change, in memory so far."""
        before = self._changes.size_bytes
        self._changes.append(DATA, None, [tuple(change)], 0, at_ns)
        self.bytes_since_snapshot += max(0, self._changes.size_bytes - before)

    def sync(self) -> None:
        """Make all changes as durable as the log's settings allow."""
        self._changes.sync()

    def write_snapshot(
        self, now_ns: int, first_epoch: int, names: Mapping[str, Name], points: Mapping[Place, RecoveryPoint]
    ) -> None:
        """Write a snapshot. Everything that ``points`` refer to must be durable."""
        self._changes.roll()
        offset = self._changes.end_offset
        plain = (
            offset,
            now_ns,
            first_epoch,
            [_plain(key, name) for key, name in names.items()],
            [(*place, *point) for place, point in points.items()],
        )
        write_atomically(self._fs, self._snapshot_path, seal(_MAGIC, _VERSION, default_codec().encode(plain)))
        self._changes.delete_before(offset)
        self.bytes_since_snapshot = 0

    @property
    def _snapshot_path(self) -> str:
        return posixpath.join(self._directory, SNAPSHOT_NAME)

    def _read_snapshot(self) -> JournalSnapshot:
        path = self._snapshot_path
        if not self._fs.exists(path):
            return JournalSnapshot(0, 0, 0, {}, {})
        try:
            with self._fs.open_read(path) as file:
                plain = default_codec().decode(unseal(file, path, _MAGIC, _VERSION), path)
            check_shape(plain, _SNAPSHOT, path, "snapshot")
        except CorruptStateError as error:
            raise LogCorruptError(path, 0, error.what) from error
        offset, now_ns, first_epoch, names, points = plain
        return JournalSnapshot(
            offset,
            now_ns,
            first_epoch,
            dict(map(_name, names)),
            {(topic, partition): RecoveryPoint(*point) for topic, partition, *point in points},
        )

    def close(self) -> None:
        """Give everything to the operating system."""
        self._changes.close()

    def abandon(self) -> None:
        """Close the file, as it is when a process dies."""
        self._changes.abandon()


def _plain(key: str, name: Name) -> tuple[Any, ...]:
    # Recovery counts the records of an open transaction again, from the partitions.
    return (key, name.epoch, name.timeout_ns, name.state, name.begun_ns, name.note, name.used_ns, *name.ended.plain())


def _name(plain: tuple[Any, ...]) -> tuple[str, Name]:
    key, epoch, timeout_ns, state, begun_ns, note, used_ns, runs, newest_note = plain
    ended = Outcomes([EpochRun(*run) for run in runs], newest_note)
    return key, Name(epoch, timeout_ns, state, begun_ns, note, ended=ended, used_ns=used_ns)
