"""Compaction of the small files of a table: operators around the machines of :mod:`operators.table.table_compaction`.

A unit is compacted while the task handles its message: its files are written one behind the other into a hidden file,
which is fsynced, renamed and its directory fsynced. Only then may anything be deleted, so that at every instant all
rows are in the directory, and readers see them once: the sources are hidden.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.elements.batch import Batch
from engine.elements.errors import DataLossError, StorageError
from engine.elements.operator import Operator
from operators.files.unique_names import UniqueNames, attempt_of
from operators.table.partition_committer import END_OF_INPUT
from operators.table.partition_messages import END_MARKER, END_OF_CHECKPOINT, FILE, UNIT, announcement, end_marker, unit
from operators.table.table_compaction import (
    COMPACTED_PREFIX,
    CompactCoordinator,
    CompactionUnit,
    Compactor,
    WrittenFile,
)
from state_backends.filesystem import FileSystem

_COPIED_BYTES = 1 << 20
_HIDDEN = re.compile(rf"\.{COMPACTED_PREFIX}.*\.inprogress\.([0-9a-f-]+)")


class FileMerger(Protocol):
    """How files of one format become one."""

    def merge(self, fs: FileSystem, sources: Sequence[str], write: Callable[[bytes], object]) -> None:
        """Write the rows of all ``sources``, in order, as one file. Raises ``StorageError`` for one that is torn."""


class Concatenation:
    """For formats of which two files, one behind the other, are a file: lines of text, compressed or not."""

    def merge(self, fs: FileSystem, sources: Sequence[str], write: Callable[[bytes], object]) -> None:
        """See ``FileMerger``."""
        for source in sources:
            with fs.open_read(source) as file:
                while data := file.read(_COPIED_BYTES):
                    write(data)


class CompactCoordinatorOperator(Operator):
    """Takes what writers say, sends units. There is one."""

    def __init__(self, target_size_bytes: int) -> None:
        self._machine = CompactCoordinator(target_size_bytes)

    def initialize_state(self) -> None:
        """See ``Operator``."""
        self._state = self.context.operator_backend().list_state("files-to-compact")
        self._machine.restore(self._state.get(), self.context.restored_checkpoint_id())

    def process_batch(self, batch: Batch) -> None:
        """Files, and ends of checkpoints."""
        for kind, checkpoint_id, *rest in batch.values:
            if kind == FILE:
                self._machine.on_file(checkpoint_id, WrittenFile(*rest))
                continue
            assert kind == END_OF_CHECKPOINT, kind
            task, number_of_tasks = rest
            for compacted in self._machine.on_end_of_checkpoint(checkpoint_id, task, number_of_tasks):
                messages = [unit(*one) for one in compacted.units]
                messages.append(end_marker(compacted.checkpoint_id, compacted.announced_id))
                self.output.emit(Batch(messages))

    def snapshot_state(self, checkpoint_id: int) -> None:
        """See ``Operator``."""
        self._state.update(self._machine.on_snapshot(checkpoint_id))

    def fingerprint(self) -> object:
        """See ``Operator``."""
        return self._machine.fingerprint()


class CompactOperator(Operator):
    """Compacts the units that are for this subtask, and announces their partitions.

    ``path``  the directory of the table.
    """

    def __init__(self, path: str, merger: FileMerger) -> None:
        self._path = path
        self._merger = merger
        self._finished = False

    def initialize_state(self) -> None:
        """See ``Operator``."""
        context = self.context
        self._machine = Compactor(context.subtask, context.parallelism)
        self._fs = context.file_system()
        self._directory = context.resolve_path(self._path)
        self._state = context.operator_backend().list_state("compacted-files")
        self._machine.restore(self._state.get())
        self._unique = UniqueNames(context.incarnation, context.attempt, context.subtask)
        if not context.subtask:
            self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        """Hidden files of earlier attempts that died while they compacted: no state knows of them."""
        context = self.context
        try:
            for path in self._fs.walk_files(self._directory):
                match = _HIDDEN.fullmatch(posixpath.basename(path))
                opened_in = match and attempt_of(match[1])
                if opened_in is not None and opened_in < (context.incarnation, context.attempt):
                    self._fs.delete(path)
        except OSError as error:
            raise self._storage_error(error) from error

    def process_batch(self, batch: Batch) -> None:
        """Units and end markers."""
        for kind, *rest in batch.values:
            if kind == UNIT:
                unit_id, partition, names = rest
                if self._machine.selects(unit_id):
                    self._compact(CompactionUnit(unit_id, partition, tuple(names)))
                continue
            assert kind == END_MARKER, kind
            checkpoint_id, announced_id = rest
            partitions = self._machine.on_end_marker(checkpoint_id, announced_id)
            if partitions is not None:
                context = self.context
                message = announcement(checkpoint_id, context.subtask, context.parallelism, partitions)
                self.output.emit(Batch([message]))
            if self._finished or checkpoint_id == END_OF_INPUT:
                self._delete(self._machine.take_all_expired())

    def _compact(self, unit_: CompactionUnit) -> None:
        try:
            directory = posixpath.join(self._directory, unit_.partition)
            target = posixpath.join(directory, unit_.target)
            sources = [posixpath.join(directory, name) for name in unit_.names]
            if not self._fs.exists(target) and self._check_sources(sources, target):
                self._write(directory, unit_.target, sources)
                self.context.metrics.count("numFilesCompacted", len(sources))
        except OSError as error:
            raise self._storage_error(error) from error
        self._machine.on_compacted(unit_)

    def _check_sources(self, sources: list[str], target: str) -> bool:
        """Whether the files are there. None of them: they were compacted, and somebody has taken the result away."""
        missing = [source for source in sources if not self._fs.exists(source)]
        if len(missing) == len(sources):
            self.context.metrics.count("numCommittedFilesMissing", len(missing))
            return False
        if missing:
            raise DataLossError(
                f"{', '.join(missing)} cannot be compacted into {target}: they are gone, while other files of the unit are"
                " there\n"
                "  something else deletes hidden files in the table's directory; put them back, or delete the rest of the"
                " unit as well, to go on without its rows"
            )
        return True

    def _write(self, directory: str, name: str, sources: list[str]) -> None:
        fs = self._fs
        hidden = posixpath.join(directory, f".{name}.inprogress.{self._unique()}")
        with fs.open_write(hidden) as file:
            self._merger.merge(fs, sources, file.write)
            file.fsync()
        fs.rename(hidden, posixpath.join(directory, name))
        fs.fsync_dir(directory)

    def snapshot_state(self, checkpoint_id: int) -> None:
        """See ``Operator``."""
        self._state.update([tuple(element) for element in self._machine.on_snapshot(checkpoint_id)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """What was compacted before that checkpoint is not needed any more."""
        self._delete(self._machine.take_expired(checkpoint_id))

    def finish(self) -> None:
        """No checkpoint need follow what comes now."""
        self._finished = True
        self._delete(self._machine.take_all_expired())

    def _delete(self, files: list[str]) -> None:
        try:
            for file in files:
                path = posixpath.join(self._directory, file)
                if self._fs.exists(path):
                    self._fs.delete(path)
        except OSError as error:
            raise self._storage_error(error) from error

    def _storage_error(self, error: OSError) -> StorageError:
        where = error.filename or self._path
        return StorageError(
            f"{self.context.name!r} cannot compact files at {where}: {error.strerror or error}\n"
            "  check that the directory is writable and has space; then resume from the last checkpoint"
        )

    def fingerprint(self) -> object:
        """See ``Operator``."""
        return self._machine.fingerprint(), self._finished


class CompactCoordinatorSpec:
    """Describes the coordinator to the graph."""

    name = "compact-coordinator"
    parallelism = 1

    def __init__(self, target_size_bytes: int) -> None:
        self._target_size_bytes = target_size_bytes

    def create_operator(self) -> Operator:
        """A fresh one."""
        return CompactCoordinatorOperator(self._target_size_bytes)


class CompactSpec:
    """Describes the compactors to the graph."""

    name = "compactor"

    def __init__(self, path: str, merger: FileMerger) -> None:
        self._path, self._merger = path, merger

    def create_operator(self) -> Operator:
        """A fresh one."""
        return CompactOperator(self._path, self._merger)
