"""Writing a bounded result into a table: tasks stage their rows, and one commit moves them (Flink:
``FileSystemOutputFormat``).

This is the whole of it outside of any job: ``open``, ``write`` and ``close`` for each task, then ``finalize`` once,
when all of them have succeeded. A job uses the same parts through
:class:`operators.table.staging.staged_sink.StagedFileSink`, which also survives failures of the commit.

Two of them with one staging directory destroy each other's rows: a task deletes what it finds in its directory, and the
first commit takes everything that is there, and deletes the rest. Where there is no staging directory at all, because
somebody else has committed it, nothing happens.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operators.files.writing import Format
from operators.table.partitions import CommitPolicy, PartitionColumns
from operators.table.staging.moves import (
    StagingCommitter,
    accepted_task_directories,
    check_staging,
    nothing_staged,
    plan_commit,
    staged_partitions,
    task_directory_name,
)
from operators.table.staging.staging_writers import StagingWriter
from state_backends.files import FileSystem


class BatchOutputFormat:
    """Writes one result.

    ``table``, ``staging``  directories; staging is deleted in the end, so it must not hold the table, and within the
                            table it must be a hidden one;
    ``columns``             of records, which are tuples; ``None`` when they are dicts;
    ``partition_columns``   those in the path, ``static_partition`` what is known of them beforehand;
    ``grouped``             whether every task's input comes partition by partition;
    ``overwrite``           whether the partitions that are written lose what they had;
    ``policies``            applied to each partition when its files are in place.

    Raises :class:`engine.elements.errors.ConfigurationError` for directories or columns that cannot be.
    """

    def __init__(
        self,
        fs: FileSystem,
        table: str,
        staging: str,
        *,
        format: Format,
        columns: Sequence[str] | None = None,
        partition_columns: Sequence[str] = (),
        static_partition: Mapping[str, object] | None = None,
        grouped: bool = False,
        overwrite: bool = False,
        policies: Sequence[CommitPolicy] = (),
        prefix: str = "part",
        suffix: str = "",
    ) -> None:
        check_staging(table, staging)
        self._fs = fs
        self._table = table
        self._staging = staging
        self._format = format
        self._columns = PartitionColumns(columns, partition_columns, static_partition)
        self._grouped = grouped
        self._overwrite = overwrite
        self._committer = StagingCommitter(fs, table, partition_columns, policies)
        self._prefix, self._suffix = prefix, suffix
        self._writers: dict[int, StagingWriter] = {}

    def open(self, subtask: int, attempt: int | None = None) -> None:
        """Begin a task, or an attempt of it."""
        writer = self._writers[subtask] = StagingWriter(
            self._fs,
            posixpath.join(self._staging, task_directory_name(subtask, attempt)),
            subtask,
            self._columns,
            self._format,
            grouped=self._grouped,
            prefix=self._prefix,
            suffix=self._suffix,
        )
        writer.open()
        self._fs.make_dirs(self._staging)

    def write(self, subtask: int, records: Sequence[Any]) -> None:
        """Write records of a task. Raises :class:`operators.files.writing.part_files.RecordError`."""
        self._writers[subtask].write(records)

    def close(self, subtask: int) -> None:
        """The task has no more records."""
        self._writers.pop(subtask).finish_files()

    def finalize(self, now_ms: int = 0, accept: Iterable[tuple[int, int]] | None = None) -> None:
        """All tasks have succeeded: move what they have staged, and delete the staging directory. ``accept``: the
        attempt of each that did, if they have numbers."""
        self.commit(now_ms, accept)
        self._fs.delete_tree(self._staging)

    def commit(self, now_ms: int = 0, accept: Iterable[tuple[int, int]] | None = None) -> None:
        """The same, but delete the directories of the tasks only."""
        fs, columns = self._fs, self._columns
        if not fs.is_dir(self._staging):
            return
        names = accepted_task_directories(fs.list_dir(self._staging), accept)
        tasks = [posixpath.join(self._staging, name) for name in names]
        staged = staged_partitions(fs, tasks, len(columns.partition))
        if not staged and not tasks:
            staged = nothing_staged(columns.partition, columns.static)
        self._committer.execute(plan_commit(fs, self._table, staged, overwrite=self._overwrite), now_ms)
        for task in tasks:
            fs.delete_tree(task)
