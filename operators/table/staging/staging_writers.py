"""Writers of one task of a bounded job: they write rows to its staging directory (Flink: ``PartitionWriter``).

* ``static``   one partition, known beforehand: one file;
* ``dynamic``  the partition is in the record: a file is open for each partition;
* ``grouped``  the same, when the input comes partition by partition: one file is open at a time. A partition that comes
  again gets another file.

Files are called ``{prefix}-task-{n}-file-{k}{suffix}``, with one ``k`` for all partitions of the task. A task first
deletes its own directory, and no other; the next attempt ignores the files of a dead one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from engine.elements.batch import Batch
from operators.files.writing import Format, PartEncoder, PartFile, RecoverableStream
from operators.table.partitions import PartitionColumns
from operators.table.staging.moves import StagedFile
from state_backends.files import FileSystem


class StagingWriter:
    """Writes one task's staging directory.

    ``directory``  of the task;
    ``grouped``    whether the input comes partition by partition.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        subtask: int,
        columns: PartitionColumns,
        format: Format,
        *,
        grouped: bool = False,
        prefix: str = "part",
        suffix: str = "",
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._stem = f"{prefix}-task-{subtask}-file-"
        self._suffix = suffix
        self._columns = columns
        self._encoder = PartEncoder(format)
        self._grouped = grouped
        self._files = 0
        self._open: dict[str, PartFile] = {}
        self._finished: list[StagedFile] = []
        self._changed: dict[str, None] = {}

    def open(self) -> None:
        """Delete the content of the directory."""
        self._fs.delete_tree(self.directory)

    def write(self, records: Sequence[Any]) -> None:
        """Write records to the files of their partitions. Raises :class:`RecordError`; then none of them is written."""
        partitions, values = self._columns.split(records)
        rows = self._encoder.encode(Batch(values))
        for partition, positions in self._groups(partitions):
            of_partition = rows if len(positions) == len(partitions) else self._encoder.select(rows, positions)
            file, taken = self._file(partition), 0
            while taken < len(positions):
                taken = file.add(of_partition, taken, len(positions), 0)

    def _groups(self, partitions: list[str]) -> Iterator[tuple[str, Sequence[int]]]:
        if self._grouped:
            start = 0
            for stop in range(1, len(partitions) + 1):
                if stop == len(partitions) or partitions[stop] != partitions[start]:
                    yield partitions[start], range(start, stop)
                    start = stop
            return
        groups: dict[str, list[int]] = {}
        for position, partition in enumerate(partitions):
            groups.setdefault(partition, []).append(position)
        yield from groups.items()

    def _file(self, partition: str) -> PartFile:
        file = self._open.get(partition)
        if file is None:
            if self._grouped:
                self._finish_open()
            directory = posixpath.join(self.directory, partition) if partition else self.directory
            self._fs.make_dirs(directory)
            path = posixpath.join(directory, f"{self._stem}{self._files}{self._suffix}")
            self._files += 1
            stream = RecoverableStream(self._fs.open_write(path), path, path, posixpath.basename(path))
            file = self._open[partition] = self._encoder.open(stream, partition, 0)
            self._changed[directory] = None
        return file

    def _finish_open(self) -> None:
        for partition, file in self._open.items():
            path, name, size_bytes = file.close_for_commit()
            self._finished.append(StagedFile(path, partition, name, size_bytes))
        self._open.clear()

    def finish_files(self) -> list[StagedFile]:
        """Close all open files, durably; returns the files finished since the last call."""
        self._finish_open()
        for directory in self._changed:
            self._fs.fsync_dir(directory)
        self._changed.clear()
        finished, self._finished = self._finished, []
        return finished

    def abandon(self) -> None:
        """Release the open files; no state contains them."""
        for file in self._open.values():
            file.dispose()
        self._open.clear()

    def fingerprint(self) -> object:
        open_files = [(file.stream.temporary, file.size_bytes) for file in self._open.values()]
        return self._files, open_files, tuple(self._finished)
