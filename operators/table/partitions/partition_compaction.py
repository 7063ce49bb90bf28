"""Compaction of the small files of a table: operators around the machines of ``table_compaction``.

A unit is compacted while the task handles its message: its files are merged
(:mod:`operators.files.compaction.file_merging`) into a hidden file, which is fsynced, renamed and its directory
fsynced. Only then may files be deleted. So at every instant all rows are in the directory, and readers see them once,
because the sources are hidden.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from engine.elements.batch import Batch
from engine.elements.errors import DataLossError
from engine.elements.operator import Operator
from operators.files.compaction import merge_of, merged
from operators.files.writing import (
    Format,
    RecoverableWriter,
    UniqueNames,
    attempt_of,
    hidden_inside,
    path_inside,
    report_lost_files,
    storage_problems,
)
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_messages import (
    END_MARKER,
    END_OF_CHECKPOINT,
    FILE,
    UNIT,
    announcement,
    end_marker,
    unit,
)
from operators.table.partitions.table_compaction import (
    COMPACTED_FILES,
    COMPACTED_PREFIX,
    FILES_TO_COMPACT,
    CompactionUnit,
    TableCompactCoordinator,
    TableCompactor,
    WrittenFile,
)

_HIDDEN = re.compile(rf"\.{COMPACTED_PREFIX}.*\.inprogress\.([0-9a-f-]+)")


class TableCompactCoordinatorOperator(Operator):
    """Takes messages from writers, sends units. A table has one."""

    def __init__(self, target_size_bytes: int) -> None:
        self._machine = TableCompactCoordinator(target_size_bytes)

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state("files-to-compact", FILES_TO_COMPACT)
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
        self._state.update(self._machine.on_snapshot(checkpoint_id))

    def fingerprint(self) -> object:
        return self._machine.fingerprint()


class CompactOperator(Operator):
    """Compacts the units of this subtask, and announces their partitions.

    ``path``         the directory of the table;
    ``format``       of its files;
    ``ns_per_byte``  of virtual time that compaction takes.
    """

    spends_per_batch = True

    def __init__(self, path: str, format: Format, ns_per_byte: int = 0) -> None:
        self._path = path
        self._merge = merge_of(format)
        self._ns_per_byte = ns_per_byte
        self._finished = False
        self._announced_end = False

    def initialize_state(self) -> None:
        context = self.context
        self._machine = TableCompactor(context.subtask, context.parallelism)
        self._fs = context.file_system()
        self._directory = context.resolve_path(self._path)
        unique = UniqueNames(context.incarnation, context.attempt, context.subtask)
        self._files = RecoverableWriter(self._fs, self._directory, unique)
        self._state = context.operator_backend().list_state("compacted-files", COMPACTED_FILES)
        self._machine.restore(self._state.get())
        if not context.subtask:
            self._delete_leftovers()

    def _delete_leftovers(self) -> None:
        """Delete hidden files of attempts that died during compaction: no state contains them."""
        context = self.context
        with storage_problems(context.name, self._path):
            for path in self._fs.walk_files(self._directory):
                match = _HIDDEN.fullmatch(posixpath.basename(path))
                opened_in = match and attempt_of(match[1])
                if opened_in is not None and opened_in < (context.incarnation, context.attempt):
                    self._fs.delete(path)

    def process_batch(self, batch: Batch) -> None:
        for kind, *rest in batch.values:
            if kind == UNIT:
                unit_id, partition, names = rest
                if self._machine.selects(unit_id):
                    self._compact(CompactionUnit(unit_id, partition, tuple(names)))
                continue
            assert kind == END_MARKER, kind
            checkpoint_id, announced_id = rest
            self._announce(checkpoint_id, self._machine.on_end_marker(checkpoint_id, announced_id))
            self._announced_end = self._announced_end or checkpoint_id == END_OF_INPUT
            if self._finished or checkpoint_id == END_OF_INPUT:
                self._delete(self._machine.take_all_expired())

    def _compact(self, unit_: CompactionUnit) -> None:
        with storage_problems(self.context.name, self._path):
            directory = path_inside(self._directory, unit_.partition)
            target = path_inside(directory, unit_.target)
            sources = [hidden_inside(directory, name) for name in unit_.names]
            if self._fs.exists(target):
                # The attempt that renamed it may have died before the name was durable.
                self._fs.fsync_dir(directory)
            elif self._check_sources(sources, target):
                target = posixpath.join(unit_.partition, unit_.target)
                self._files.commit(merged(self._files, target, self._merge, self._contents(sources)))
                self._files.sync_directories()
                self.context.metrics.count("numFilesCompacted", len(sources))
        self._machine.on_compacted(unit_)

    def _check_sources(self, sources: list[str], target: str) -> bool:
        """Whether the files exist. If neither they nor their compacted file exist, their rows are lost."""
        missing = [source for source in sources if not self._fs.exists(source)]
        if len(missing) == len(sources):
            report_lost_files(self.context, self._directory, missing)
            return False
        if missing:
            raise DataLossError(
                f"{', '.join(missing)} cannot be compacted into {target}: gone, while other files of the unit are there"
                "\n  something else deletes hidden files in the table's directory; put them back, or delete the rest of"
                " the unit as well, to go on without its rows"
            )
        return True

    def _contents(self, sources: list[str]) -> Iterator[bytes]:
        for source in sources:
            content = self._fs.read_bytes(source)
            self.context.spend(len(content) * self._ns_per_byte)
            yield content

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update([tuple(element) for element in self._machine.on_snapshot(checkpoint_id)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Delete the files compacted before that checkpoint."""
        self._delete(self._machine.take_expired(checkpoint_id))

    def finish(self) -> None:
        """Announce and delete now, because there may be no further checkpoint."""
        self._finished = True
        if not self.context.checkpointing_enabled and not self._announced_end:
            self._announce(END_OF_INPUT, self._machine.on_end_marker(END_OF_INPUT, END_OF_INPUT))
        self._delete(self._machine.take_all_expired())

    def _announce(self, checkpoint_id: int, partitions: list[str] | None) -> None:
        if partitions is not None:
            context = self.context
            self.output.emit(Batch([announcement(checkpoint_id, context.subtask, context.parallelism, partitions)]))

    def _delete(self, files: list[str]) -> None:
        with storage_problems(self.context.name, self._path):
            for file in files:
                if self._files.exists(file):
                    self._files.delete(file)
            # The next checkpoint no longer names them, so a later power cut must not bring them back.
            self._files.sync_directories()

    def fingerprint(self) -> object:
        return self._machine.fingerprint(), self._finished


class CompactCoordinatorSpec:
    """Describes the coordinator to the graph."""

    name = "compact-coordinator"
    parallelism = 1

    def __init__(self, target_size_bytes: int) -> None:
        self._target_size_bytes = target_size_bytes

    def create_operator(self) -> Operator:
        return TableCompactCoordinatorOperator(self._target_size_bytes)


class CompactSpec:
    """Describes the compactors to the graph."""

    name = "compactor"

    def __init__(self, path: str, format: Format, ns_per_byte: int, parallelism: int | None) -> None:
        self._path, self._format, self._ns_per_byte = path, format, ns_per_byte
        self.parallelism = parallelism

    def create_operator(self) -> Operator:
        return CompactOperator(self._path, self._format, self._ns_per_byte)
