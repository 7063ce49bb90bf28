"""Writes the files of a partitioned table (Flink: ``StreamingFileWriter``; with compaction ``CompactFileWriter``).

It is the file sink with one bucket for each partition, and it sends messages:

* without compaction, after the files of a checkpoint are visible: the partitions with these files
  (:mod:`operators.table.partitions.partition_announcements`);
* with compaction, before each barrier: the files closed for that checkpoint. After these are committed (hidden until
  they are compacted): the end of the checkpoint.

At the end of the input every part is closed. The checkpoint that holds them makes them visible, as any other; then
comes the announcement for ``END_OF_INPUT``. (Flink publishes at once. A failure before the last checkpoint then repeats
records.) Without checkpoints all is published when the input ends.

After the end of its own input a writer keeps announcing completed checkpoints, because the receiver waits for all
writers. (In Flink it stops. Then no partition is committed or compacted until all inputs have ended.)
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from operators.files.sinks import FileSinkOperator
from operators.files.writing import (
    BucketsListener,
    DirectoryReconciliation,
    RecordError,
    RestoredCounters,
    counted_names,
    storage_problems,
)
from operators.table.partitions.partition_announcements import PartitionAnnouncements
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_messages import Message, announcement, end_of_checkpoint, written_file
from operators.table.partitions.partitioning import without
from operators.table.partitions.table_compaction import COMPACTED_PREFIX, UNCOMPACTED_PREFIX
from state_backends.base import path_below

if TYPE_CHECKING:
    from operators.table.partitions.partitioned_file_sink import WriterSpec
    from state_backends.api import OperatorListState


class StreamingFileWriterOperator(FileSinkOperator):
    """One writer."""

    def __init__(self, spec: WriterSpec) -> None:
        super().__init__(spec)
        self._table = spec
        predicate = None if spec.commit is None else spec.commit.predicate(spec.columns)
        # With compaction every checkpoint closes all files, so no partition needs it.
        self._books = PartitionAnnouncements(None if spec.compacts else predicate)
        self._assigner = spec.create_assigner()
        self._idle = False
        self._final_id: int | None = None
        """The first checkpoint after the end of the input."""
        self._announced_end = False
        self._unannounced: OperatorListState | None = None

    def initialize_state(self) -> None:
        """Partitions whose parts continue are in progress again; unannounced ones will be announced."""
        super().initialize_state()
        if self._table.makes_up_for_lost_announcements and self.context.restored_checkpoint_id() is not None:
            # It is empty without a restore.
            backend = self.context.operator_backend()
            self._unannounced = backend.list_state("unannounced-partitions", path_below)
            self._books.restore(self._unannounced.get())
            for bucket in self._buckets.active.values():
                if bucket.part is not None:
                    self._books.resumed(bucket.id, bucket.part.created_at_ms)

    def _listener(self) -> BucketsListener | None:
        return self._books

    def _reconcile(self, counters: RestoredCounters) -> None:
        super()._reconcile(counters)
        if not self._table.compacts:
            return
        # A compacted file is named after a part, and contains only parts of the same checkpoint.
        context, prefix = self.context, COMPACTED_PREFIX + self._table.prefix.removeprefix(UNCOMPACTED_PREFIX)
        patterns = counted_names(prefix, self._table.suffix)
        DirectoryReconciliation(self._writer, context, counters, patterns).clean_up()

    def _report_gone(self, paths: list[str]) -> None:
        """With compaction a missing file may be in a larger one already. The compactor gets its name again, can derive
        the larger file's name, and reports a lost file."""
        if not self._table.compacts:
            super()._report_gone(paths)

    # --- records and time ---------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        """Write each record to its partition. If one record fails, no record of the batch is written."""
        assert not self._finished, "records after finish"
        if not len(batch):
            return
        spec, what = self._table, "partition_by"
        self._books.now_ms = now_ms = self.context.processing_time_ms()
        try:
            partitions = self._assigner.buckets_of(batch, now_ms, self._watermark_ms)
            what = self._encoder.what
            rows = self._encoder.encode(batch if spec.keeps_columns else without(spec.columns, batch))
        except RecordError as error:
            raise self.user_error(what, batch.values[error.position], error.cause) from error.cause
        records = batch.values if self._buckets.shows_records else None
        with storage_problems(self.context.name, self._spec.path):
            if isinstance(partitions, str):
                self._buckets.write(partitions, rows, records, now_ms)
            else:
                self._buckets.write_each(partitions, rows, records, now_ms)

    def process_watermark(self, timestamp_ms: int) -> None:
        """The committer of partitions needs it, too."""
        super().process_watermark(timestamp_ms)
        self.output.emit_watermark(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        self._idle = idle
        self.output.emit_watermark_status(idle)

    # --- checkpoints --------------------------------------------------------------------------------------

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """With compaction the files of a checkpoint are announced before its barrier."""
        if self._table.compacts:
            with storage_problems(self.context.name, self._spec.path):
                self._buckets.close_all_parts()
            self._emit(self._closed_files(checkpoint_id))

    def _closed_files(self, checkpoint_id: int) -> list[Message]:
        return [
            written_file(checkpoint_id, self.context.subtask, *posixpath.split(file.target), file.size_bytes)
            for _, bucket in sorted(self._buckets.active.items())
            for file in bucket.pending
        ]

    def snapshot_state(self, checkpoint_id: int) -> None:
        """First close the parts of partitions that could be committed now."""
        self._books.now_ms = self.context.processing_time_ms()
        with storage_problems(self.context.name, self._spec.path):
            # An idle writer does not hold watermarks back: its own watermark does not delay commits.
            watermark_ms = MAX_TIMESTAMP_MS if self._idle else self._watermark_ms
            for partition in self._books.to_close(watermark_ms):
                self._buckets.close_part(partition)
        super().snapshot_state(checkpoint_id)
        # Noted, and announced when the files are visible (mutant "announced before visible").
        self._books.on_snapshot(checkpoint_id)
        if self._unannounced is not None:
            # With compaction the compactors announce, and keep this in their state.
            self._unannounced.update([] if self._table.compacts else self._books.committable)
        if self._finished and self._final_id is None:
            self._final_id = checkpoint_id

    def resume_at_end(self, checkpoint_id: int) -> None:
        """What is announced next is the end."""
        self._finished = True
        self._final_id = checkpoint_id

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Make its files visible, and then announce them."""
        super().notify_checkpoint_complete(checkpoint_id)
        partitions = self._books.on_committed(checkpoint_id)
        if partitions is None:
            return
        if self._final_id is not None and checkpoint_id >= self._final_id and not self._announced_end:
            self._announced_end = True
            checkpoint_id = END_OF_INPUT
        self._announce(checkpoint_id, partitions)

    def _announce(self, checkpoint_id: int, partitions: list[str]) -> None:
        subtask, parallelism = self.context.subtask, self.context.parallelism
        if self._table.compacts:
            self._emit([end_of_checkpoint(checkpoint_id, subtask, parallelism)])
        else:
            self._emit([announcement(checkpoint_id, subtask, parallelism, partitions)])

    def _emit(self, messages: list[Message]) -> None:
        if messages:
            self.output.emit(Batch(list(messages)))

    def finish(self) -> None:
        """See the rules of the module."""
        if self.context.checkpointing_enabled:
            super().finish()
            return
        self._finished = True
        buckets = self._buckets
        with storage_problems(self.context.name, self._spec.path):
            buckets.close_all_parts()
            files = self._closed_files(END_OF_INPUT) if self._table.compacts else []
            buckets.snapshot(END_OF_INPUT)
            self._books.on_snapshot(END_OF_INPUT)
            buckets.commit_up_to(END_OF_INPUT)
            self._writer.sync_directories()
        self._emit(files)
        self._announce(END_OF_INPUT, self._books.on_committed(END_OF_INPUT) or [])

    def fingerprint(self) -> object:
        return super().fingerprint(), self._books.fingerprint(), self._final_id, self._announced_end, self._idle
