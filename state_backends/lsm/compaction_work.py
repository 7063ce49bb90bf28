"""Carries out a compaction, in steps of about one output file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from state_backends.base import BackgroundWork
from state_backends.lsm import fixed_width
from state_backends.lsm.block import Columns
from state_backends.lsm.compaction import CompactionTask, Run, edit_for
from state_backends.lsm.file_set import FileSet
from state_backends.lsm.files import delete_quietly
from state_backends.lsm.fixed_width import FixedColumns, NotFixedError, Widths, common_widths, merged_fixed
from state_backends.lsm.merge import BLOCKS_AT_ONCE, MergeSource, merged, pieces_of_run, ranges_of
from state_backends.lsm.range_tombstones import NO_RANGES, DeletedRanges
from state_backends.lsm.sst import SstWriter, Table
from state_backends.lsm.store_options import CompactionFilter


class RunWriter:
    """Writes a run of entries as files of bounded size, and cuts range tombstones at the ends of files."""

    def __init__(self, files: FileSet, ranges: DeletedRanges, target_bytes: int | None) -> None:
        """:param target_bytes: the size at which another file begins; ``None`` = never"""
        self._files = files
        self._ranges = ranges
        self._target_bytes = target_bytes
        self._writer: SstWriter | None = None
        # The range tombstones of the file in progress begin here.
        self._first = b""
        self.tables: list[Table] = []

    def add(self, columns: Columns | FixedColumns) -> None:
        """Append at least one entry. The keys must be greater than all keys before."""
        writer = self._writer
        if writer is not None and self._target_bytes is not None and writer.written_bytes >= self._target_bytes:
            self._finish_file(bytes(columns[0][0]))
            writer = None
        if writer is None:
            writer = self._writer = self._files.writer()
        if isinstance(columns, FixedColumns):
            writer.add_fixed(columns)
        else:
            writer.add(*columns)

    def finish(self) -> None:
        """End the last file, if there is one."""
        if self._writer is None and self._ranges.clipped(self._first, None):
            self._writer = self._files.writer()
        if self._writer is not None:
            self._finish_file(None)

    def _finish_file(self, limit: bytes | None) -> None:
        assert self._writer is not None
        self.tables.append(self._writer.finish(self._ranges.clipped(self._first, limit)))
        self._writer = None
        self._first = b"" if limit is None else limit

    @property
    def written_bytes(self) -> int:
        begun = 0 if self._writer is None else self._writer.written_bytes
        return begun + sum(table.meta.size_bytes for table in self.tables)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        for table in self.tables:
            delete_quietly(self._files.fs, table.path)
        self.tables = []


class CompactionWork(BackgroundWork):
    """Merges the files of a task; the last working step installs the result."""

    def __init__(self, files: FileSet, task: CompactionTask, over: Callable[[CompactionWork, bool], None]) -> None:
        """:param over: called once at the end, with this work and whether it was done"""
        self.name = f"compaction into level {task.output_level}"
        self.task = task
        self._files = files
        self._over = over
        self._is_over = False
        self._read_bytes = 0
        self._given_up_bytes = 0
        ranges = NO_RANGES
        self._entries: Iterator[Columns | FixedColumns] = iter(())
        if not task.is_move:
            general, ranges = self._inputs()
            self._entries = self._with_fixed_widths(general) if self._may_be_fixed() else general
        target = None if task.output_level == 0 else files.options.file_bytes
        self._output = RunWriter(files, NO_RANGES if task.is_bottom else ranges, target)

    def _inputs(self) -> tuple[Iterator[Columns], DeletedRanges]:
        sources = []
        all_ranges = NO_RANGES
        for run in self.task.runs:
            tables = [self._files.table(file.name) for file in run]
            ranges = ranges_of(tables)
            sources.append(MergeSource(pieces_of_run(self._read, tables, b"", None, BLOCKS_AT_ONCE), ranges))
            all_ranges = all_ranges.union(ranges)
        return self._cleaned(merged(sources)), all_ranges

    def _may_be_fixed(self) -> bool:
        """Whether the entries may be merged as matrices, if they are of one width: nothing is dropped or changed."""
        options = self._files.options
        return (
            not options.compaction_filter
            and options.compression == "none"
            and not any(file.deletes for file in self.task.inputs)
            and sum(file.entries for file in self.task.inputs) >= fixed_width.FEWEST_ENTRIES
        )

    def _with_fixed_widths(self, general: Iterator[Columns]) -> Iterator[Columns | FixedColumns]:
        """The merged entries, as matrices when they are of one width."""
        tables = [self._files.table(file.name) for file in self.task.inputs]
        sizes = [table.block_sizes(0, len(table.first_keys)) for table in tables]
        widths = common_widths(self._files.read(tables[0], 0, 1), sizes)
        if widths is not None:
            try:
                yield from merged_fixed([self._fixed_pieces(run, widths) for run in self.task.runs])
                return
            except NotFixedError:
                # A block with another width shows itself only when it is read: begin again. What was written has been
                # paid for (test: no step has a negative number of bytes).
                self._given_up_bytes += self._output.written_bytes
                self._output.abandon()
        yield from general

    def _fixed_pieces(self, run: Run, widths: Widths) -> Iterator[FixedColumns]:
        for table in [self._files.table(file.name) for file in run]:
            blocks = len(table.first_keys)
            for start in range(0, blocks, BLOCKS_AT_ONCE):
                stop = min(blocks, start + BLOCKS_AT_ONCE)
                self._read_bytes += sum(table.block_sizes(start, stop))
                yield self._files.read_fixed(table, start, stop, widths)

    def _read(self, table: Table, start: int, stop: int) -> Columns:
        self._read_bytes += sum(map(table.block_bytes, range(start, stop)))
        return self._files.read(table, start, stop)

    def _cleaned(self, pieces: Iterator[Columns]) -> Iterator[Columns]:
        """The merged entries, without those that the filter drops and without tombstones that hide nothing."""
        # A filter is false while it would keep every row: that of a store without time-to-live.
        ask = self._files.options.compaction_filter or None
        drops = self.task.is_bottom and (ask is not None or any(file.tombstones for file in self.task.inputs))
        for keys, values in pieces:
            if ask is not None:
                values = _filtered(ask, keys, values)
            if drops and not all(values):
                kept = [index for index, value in enumerate(values) if value is not None]
                keys, values = [keys[index] for index in kept], [values[index] for index in kept]
            if keys:
                yield keys, values

    def step(self) -> int | None:
        if self._is_over:
            return None
        before = self._moved_bytes()
        try:
            if self._merge_some():
                self._output.finish()
                done = self._moved_bytes()
                self._install()
                return done - before
        except Exception:
            self._end(done=False)
            raise
        return self._moved_bytes() - before

    def _moved_bytes(self) -> int:
        """Read and written until now."""
        return self._read_bytes + self._given_up_bytes + self._output.written_bytes

    def _merge_some(self) -> bool:
        """Merge entries for about one file; returns whether these were the last."""
        budget = self._read_bytes + self._files.options.file_bytes
        for columns in self._entries:
            self._output.add(columns)
            if self._read_bytes >= budget:
                return False
        return True

    def _install(self) -> None:
        tables = self._output.tables
        metas = self.task.inputs if self.task.is_move else tuple(table.meta for table in tables)
        edit = edit_for(self._files.version, self.task, metas)
        # From here on the manifest may name the files, even if a step below fails: this work must not delete them.
        self._output.tables = []
        self._files.install(edit, tables)
        self._end(done=True)

    def cancel(self) -> None:
        if not self._is_over:
            self._end(done=False)

    def _end(self, done: bool) -> None:
        self._is_over = True
        self._entries = iter(())
        self._output.abandon()
        self._over(self, done)


def _filtered(ask: CompactionFilter, keys: list[bytes], values: list[bytes | None]) -> list[bytes | None]:
    return [None if value is None else ask(key, value) for key, value in zip(keys, values, strict=True)]
