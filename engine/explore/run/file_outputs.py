"""Readers' view of sinks that write files: how to read each kind, and which of its files must be deleted.

A file sink takes part by these members of the object whose ``create_operator`` makes its operators (or of that
object's ``sink``, where one sink is made of several operators):

* ``path``                          its directory, relative to the output directory of the run;
* ``read_output(files, directory)`` the rows that a reader sees there: bucket -> rows, as text;
* ``shows_whole_checkpoints``       optional: true if readers see all rows of a checkpoint at once; V17 uses it.

Readers of a table whose partitions are announced (``PartitionCommitterSpec``) wait for the announcement. With a trigger
that uses the time of partitions, an announced partition must be complete: its rows are then part of the announcement
when it is compared.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

from operators.files.bucketing import IN_PROGRESS, PENDING, BucketingSink
from operators.files.formats import is_hidden
from operators.table.partitions import PartitionCommitterSpec
from operators.table.staging import StagedFileSink, StagingFinalizer
from state_backends.files import FileSystem, WrappedFileSystem

Rows = Mapping[str, Sequence[str]]

_WITH = ": "


@runtime_checkable
class SinkOfFiles(Protocol):
    """A sink whose committed output is in files."""

    path: str

    def read_output(self, fs: FileSystem, directory: str) -> Rows:
        """The rows that readers see there: bucket -> rows, sorted."""


@dataclass(frozen=True, slots=True)
class FileOutput:
    """``directory``: its place in a world; ``sink``: the object that reads it."""

    directory: str
    sink: SinkOfFiles

    def rows(self, files: FileSystem) -> dict[str, list[str]]:
        """The rows that readers see now: bucket -> rows. Raises :class:`engine.elements.errors.StorageError` when they
        find a torn file."""
        if not files.exists(self.directory):
            return {}
        return {bucket: list(rows) for bucket, rows in self.sink.read_output(files, self.directory).items()}

    def is_visible(self, path: str) -> bool:
        """Whether readers may see a change of ``path``."""
        prefix = f"{self.directory}/"
        return path.startswith(prefix) and not posixpath.basename(path).startswith(".")

    def left_behind(self, files: FileSystem, *, was_disturbed: bool) -> list[str]:
        """Files that must be gone when the job has finished; ``was_disturbed``: whether an attempt of it has failed."""
        if not files.exists(self.directory) or (was_disturbed and isinstance(self.sink, BucketingSink)):
            # As in Flink, files left by crashed attempts of a bucketing sink are not deleted.
            return []
        is_unfinished = _unfinished(self.sink)
        return [path for path in files.walk_files(self.directory) if is_unfinished(path)]


def _unfinished(sink: SinkOfFiles) -> Callable[[str], bool]:
    if isinstance(sink, BucketingSink):
        names = sink.names
        # Journals begin with a dot and stay.
        return lambda path: (
            not posixpath.basename(path).startswith(".") and names.kind_of(posixpath.basename(path)) in _OPEN
        )
    if isinstance(sink, StagedFileSink):
        return lambda path: "/.staging-" in path
    # Success files begin with an underscore and stay.
    return lambda path: is_hidden(posixpath.basename(path)) and not posixpath.basename(path).startswith("_")


_OPEN = (IN_PROGRESS, PENDING)


def output_of(owner: object) -> SinkOfFiles | None:
    """The file sink for which an object makes operators, if the output has that sink's name."""
    if isinstance(owner, StagingFinalizer):
        return owner.sink
    return owner if hasattr(owner, "read_output") and isinstance(owner, SinkOfFiles) else None


def announced(spec: PartitionCommitterSpec, files: FileSystem, directory: str, rows: Rows) -> list[str]:
    """The announcements of a table's partitions, sorted; ``rows``: of the table, by partition."""
    found = []
    for kind, partition in spec.announced(files, directory):
        text = f"{kind} {partition}"
        if spec.waits_for_event_time:
            there = rows.get(partition, ())
            text += f"{_WITH}{len(there)} rows, checksum {crc32(chr(10).join(sorted(there)).encode()):08x}"
        found.append(text)
    return sorted(found)


def without_rows(announcement: str) -> str:
    """An announcement without its number of rows: its readers know only that the partition exists."""
    return announcement.partition(_WITH)[0]


def directory_in(output_dir: str, path: str) -> str:
    """The directory of a sink in a world."""
    return path.rstrip("/") if path.startswith("/") else f"{output_dir}/{path}".rstrip("/")


_CHANGES = frozenset(["open_write", "truncate", "rename", "link", "delete", "delete_tree"])
"""Writes are not among them: visible files are never written to."""


class NotedFileSystem(WrappedFileSystem):
    """Passes every call on to the disk of a world, and reports afterwards each path that was changed or removed."""

    def __init__(self, inner: FileSystem, changed: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._changed = changed

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        answer = super()._call(operation, *arguments, **options)
        if operation in _CHANGES:
            # A link does not change the file that it points to.
            for path in arguments[operation == "link" :]:
                if type(path) is str:
                    self._changed(path)
        return answer
