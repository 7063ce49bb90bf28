"""Offsets of consumer groups: how far jobs have read a log on disk, for monitoring from outside.

Rules (Kafka: ``__consumer_offsets``; Flink: ``KafkaSourceReader`` with ``commit.offsets.on.checkpoint``).

* A group commits the offset of its newest completed checkpoint, never one after records that may be read again. It is
  written after the checkpoint has completed, so it may lag. If the job ends in between, it lags for ever.
* No job starts from it: the state of a job says where it resumes. A commit that fails is counted
  (``commitsFailed``), and the job goes on.
* One file for each partition, replaced atomically: ``LOG/groups/<group>/<topic>/<number>``. Two jobs that share a group
  overwrite each other, as in Kafka with manual assignment.
* The lag of a group is the distance to the last stable offset, or to the end for a group that reads uncommitted
  records. Transaction markers have offsets too, so the lag is not a number of records.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.source import SourceContext
from operators.log.disk.log_reader import extent_of
from operators.log.disk.topics import check_name, partition_directory, partitions_of
from operators.log.port import READ_COMMITTED, LogCorruptError, check_isolation
from state_backends.base import CorruptStateError, check_shape, number, row, whole
from state_backends.codec import default_codec, seal, unseal
from state_backends.files import FileSystem, write_atomically

GROUPS_DIRECTORY = "groups"
COMMITS_SUCCEEDED, COMMITS_FAILED = "commitsSucceeded", "commitsFailed"
_MAGIC, _VERSION = b"WEIRGRUP", 1
_OFFSET = row(whole, number, number)


class GroupOffset(NamedTuple):
    """``offset``: the first that the group has not read; its checkpoint, and the checkpoint's time in virtual ns."""

    offset: int
    checkpoint_id: int
    at_ns: int


class PartitionLag(NamedTuple):
    """``committed``: ``None`` when the group has not committed an offset; ``lag`` then counts from the earliest
    remaining offset. ``end``: the offset up to which the group could read."""

    partition: int
    committed: GroupOffset | None
    end: int
    lag: int


def _path(log: str, group: str, topic: str, partition: int) -> str:
    return posixpath.join(log, GROUPS_DIRECTORY, group, topic, str(partition))


def committed_offset(fs: FileSystem, log: str, topic: str, partition: int, group: str) -> GroupOffset | None:
    """The committed offset of a group, or ``None``. Raises :class:`LogCorruptError` when the file is damaged."""
    check_name("topic", topic)
    check_name("consumer group", group)
    path = _path(log, group, topic, partition)
    try:
        with fs.open_read(path) as file:
            plain = default_codec().decode(unseal(file, path, _MAGIC, _VERSION), path)
        check_shape(plain, _OFFSET, path, "offset")
        return GroupOffset(*plain)
    except FileNotFoundError:
        return None
    except CorruptStateError as error:
        raise LogCorruptError(path, 0, error.what) from error


def consumer_lag(
    fs: FileSystem, log: str, topic: str, group: str, *, isolation: str = READ_COMMITTED
) -> list[PartitionLag]:
    """The lag of a group, by partition. Reads the whole topic without locking the log.

    Raises :class:`ConfigurationError` when there is no such topic.
    """
    check_isolation(isolation)
    check_name("topic", topic)
    count = partitions_of(fs, log, topic)
    if count is None:
        raise ConfigurationError(f"log {log!r} has no topic {topic!r}")
    lags = []
    for partition in range(count):
        # Read the committed offset before the end of the log: in the other order a lag could be below 0.
        committed = committed_offset(fs, log, topic, partition, group)
        extent = extent_of(fs, partition_directory(log, topic, partition), f"{topic}-{partition} of log {log}")
        end = extent.stable if isolation == READ_COMMITTED else extent.end
        begin = extent.earliest if committed is None else max(committed.offset, extent.earliest)
        lags.append(PartitionLag(partition, committed, end, max(0, end - begin)))
    return lags


class GroupOffsets:
    """Commits the offsets of one group, for the splits of one subtask (a
    :class:`engine.elements.source.SourceCheckpointListener`)."""

    def __init__(self, context: SourceContext, log: str, topic: str, group: str) -> None:
        self._context, self._log, self._topic, self._group = context, log, topic, group
        self._fs = context.file_system()

    def notify_checkpoint_complete(self, checkpoint_id: int, positions: Mapping[str, Any]) -> None:
        """See the protocol; the first element of a position is the offset."""
        now_ns = self._context.processing_time_ns()
        for split, (offset, *_) in positions.items():
            if offset is None:
                continue
            path = _path(self._log, self._group, self._topic, int(split.rpartition("-")[2]))
            content = seal(_MAGIC, _VERSION, default_codec().encode((offset, checkpoint_id, now_ns)))
            try:
                self._fs.make_dirs(posixpath.dirname(path))
                write_atomically(self._fs, path, content)
            except (OSError, StorageError):
                self._context.count(COMMITS_FAILED)
                return
        self._context.count(COMMITS_SUCCEEDED)

    def close(self) -> None:
        """It holds no resource."""
