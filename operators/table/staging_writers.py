"""Writers of one task of a bounded job: its rows go to its staging directory (Flink: ``PartitionWriter``).

* ``static``   one partition, known beforehand: one file;
* ``dynamic``  the partition is in the record: a file is open for each partition;
* ``grouped``  the same, when the input comes partition by partition: one file is open at a time. A partition that comes
  again gets another file.

Files are called ``{prefix}-task-{n}-file-{k}{suffix}``, with one ``k`` for all partitions of the task. Opening a task
deletes its own directory first, and no other: what a dead attempt has left there is nothing to the next one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from operators.files.writing import (
    DEFAULT_PARTITION_NAME,
    Format,
    PartEncoder,
    PartFile,
    PartitionPathError,
    RecordError,
    RecoverableStream,
    partition_directory,
)
from operators.table.partitioning import check_columns, check_values, checked_default
from operators.table.staging import StagedFile
from state_backends.files import FileSystem


class NoPartitionError(RecordError):
    """A record names no partition of the table, or none that it may go to."""


class PartitionColumns:
    """Which of the columns of a record are in its path, and which in its row.

    ``columns``    of records that are tuples or lists, without those of the static partition; records that are dicts
                   need none;
    ``partition``  the columns in the path, in their order;
    ``static``     what is known of them beforehand;
    ``default_name``  what null and the empty text are called in the path;
    ``check``      is called with each new path; an error, a ``ValueError``, refuses the record.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        partition: Sequence[str] = (),
        static: Mapping[str, object] | None = None,
        default_name: str = DEFAULT_PARTITION_NAME,
        check: Callable[[str], object] | None = None,
    ) -> None:
        self.partition = check_columns(partition) if partition else ()
        self.static = dict(static or {})
        self._default_name = checked_default(default_name)
        self._check = check
        self._columns = None if columns is None else [name for name in columns if name not in self.static]
        _check_static(self.partition, self.static, self._columns)
        self._dynamic = [name for name in self.partition if name not in self.static]
        self._paths: dict[tuple[object, ...], str] = {}
        if self._columns is not None:
            self._places = [self._columns.index(name) for name in self._dynamic]
            self._kept = [place for place, name in enumerate(self._columns) if name not in self._dynamic]

    def path_of(self, values: Sequence[object]) -> str:
        """The partition whose dynamic columns have these values. Raises :class:`PartitionPathError`."""
        check_values(self._dynamic, values)
        given = iter(values)
        everything = [self.static[name] if name in self.static else next(given) for name in self.partition]
        path = partition_directory(self.partition, everything, self._default_name)
        if self._check is not None:
            self._check(path)
        return path

    def split(self, records: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """The partition of each record, and its row without the columns that are in the path. Raises
        :class:`NoPartitionError`."""
        if not self.partition and self._columns is None:
            return [""] * len(records), list(records)
        if len(self._paths) > _MAX_KNOWN:
            self._paths.clear()
        if self._dynamic and not self.static and (split := self._split_dicts(records)) is not None:
            return split
        partitions: list[str] = []
        rows: list[Any] = []
        paths = self._paths
        try:
            for record in records:
                values, row = self._take_apart(record)
                known = _known_as(values)
                path = paths.get(known)
                if path is None:
                    path = paths[known] = self.path_of(values)
                partitions.append(path)
                rows.append(row)
        except (TypeError, ValueError) as error:
            raise NoPartitionError(len(rows), records[len(rows)], error) from error
        return partitions, rows

    def _split_dicts(self, records: Sequence[Any]) -> tuple[list[str], list[Any]] | None:
        """The same, but faster, if all are dicts and have all columns; ``None`` if not."""
        dynamic, paths = self._dynamic, self._paths
        try:
            rows = [record.copy() for record in records if type(record) is dict]
            if len(rows) < len(records):
                return None
            columns = [[row.pop(name) for row in rows] for name in dynamic]
            texts, types = [map(str, column) for column in columns], [map(type, column) for column in columns]
            keys: list[tuple[object, ...]] = list(zip(*texts, *types, strict=True))
            for key, values in dict(zip(keys, zip(*columns, strict=True), strict=True)).items():
                if key not in paths:
                    paths[key] = self.path_of(values)
        except (KeyError, TypeError, ValueError):
            return None
        return [paths[key] for key in keys], rows

    def _take_apart(self, record: Any) -> tuple[tuple[object, ...], Any]:
        if isinstance(record, dict):
            missing = [name for name in self._dynamic if name not in record]
            if missing:
                raise ValueError(
                    f"the record has no partition column {missing[0]!r}; it has {', '.join(map(repr, record))}"
                )
            for name, value in self.static.items():
                if name in record and record[name] != value:
                    raise ValueError(f"column {name!r} is {record[name]!r}, but all records go to {name}={value}")
            values = tuple([record[name] for name in self._dynamic])
            return values, {name: value for name, value in record.items() if name not in self.partition}
        if not isinstance(record, (tuple, list)):
            raise TypeError(f"a record with columns is a dict, a tuple or a list, not {type(record).__name__}")
        if self._columns is None:
            raise TypeError(f"the record is a {type(record).__name__}: give columns=, the names of its values")
        if len(record) != len(self._columns):
            raise ValueError(f"the record has {len(record)} values, for the columns {', '.join(self._columns)}")
        return tuple([record[place] for place in self._places]), tuple([record[place] for place in self._kept])


_MAX_KNOWN = 10_000
"""Paths that are remembered."""


def _known_as(values: tuple[object, ...]) -> tuple[object, ...]:
    """Values that go to one directory, or are refused alike. Equal values need not: the decimals 1.0 and 1.00 have
    other texts, and so have equal instants of two time zones."""
    return (*map(str, values), *map(type, values))


def _check_static(partition: tuple[str, ...], static: Mapping[str, object], columns: list[str] | None) -> None:
    unknown = [name for name in static if name not in partition]
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} has a static value but is no partition column")
    try:
        check_values(list(static), list(static.values()))
    except PartitionPathError as error:
        raise ConfigurationError(f"static_partition cannot be: {error}") from None
    if columns is not None:
        missing = [name for name in partition if name not in static and name not in columns]
        if missing:
            raise ConfigurationError(f"partition column {missing[0]!r} is none of the columns {', '.join(columns)}")


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
        """Delete what is in the directory."""
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
        """Close all open files, durably; everything that was finished since the last call."""
        self._finish_open()
        for directory in self._changed:
            self._fs.fsync_dir(directory)
        self._changed.clear()
        finished, self._finished = self._finished, []
        return finished

    def abandon(self) -> None:
        """Let go of the open files; what they hold is in nobody's books."""
        for file in self._open.values():
            file.dispose()
        self._open.clear()

    def fingerprint(self) -> object:
        """What is open, and what was finished since the last call."""
        open_files = [(file.stream.temporary, file.size_bytes) for file in self._open.values()]
        return self._files, open_files, tuple(self._finished)
