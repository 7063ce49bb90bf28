"""The operator of :class:`operators.files.sinks.file_sink.FileSink`: buckets, state, timers, and files that are durable
before a checkpoint refers to them.

The rules of the operator, and their reasons:

* At a restore the operator first resets the directory to the files of the checkpoint, and gives this attempt copies of
  the open files. Then it makes these names durable, and after that it commits. A visible file is never cut.
* At a snapshot: files first (each part is fsynced when it is closed or persisted), then the directories, then the
  state. A checkpoint must not refer to a file that a crash can lose.
* The periodic check runs only for policies that close parts by time. One jump of the clock is one check, not one for
  each interval (Flink's timers register the next one from within).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from operators.basic import SinkOperator
from operators.files.writing import (
    BUCKET_STATE,
    COUNTER_STATE,
    PART_COUNTERS,
    Buckets,
    BucketsListener,
    BucketState,
    DirectoryReconciliation,
    PartEncoder,
    PartNames,
    RecordError,
    RestoredCounters,
    UniqueNames,
    counted_names,
    report_lost_files,
    rolls_on_processing_time,
    storage_problems,
)

if TYPE_CHECKING:
    from operators.files.sinks.file_sink import FileSink


class FileSinkOperator(SinkOperator):
    """One subtask of a file sink."""

    def __init__(self, spec: FileSink) -> None:
        self._spec = spec
        self._encoder = PartEncoder(spec.format)
        self._checks_time = rolls_on_processing_time(spec.rolling_policy)
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._finished = False

    # --- restore ------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Take over exactly the files of the checkpoint."""
        context, spec, backend = self.context, self._spec, self.context.operator_backend()
        self._names = UniqueNames(context.incarnation, context.attempt, context.subtask)
        self._writer = spec.open_directory(context, self._names)
        self._bucket_state = backend.list_state("buckets", BUCKET_STATE)
        self._counter_state = backend.union_list_state(PART_COUNTERS, COUNTER_STATE)
        counters = RestoredCounters(self._counter_state.get())
        states = [BucketState(*state) for state in self._bucket_state.get()]
        names = PartNames(spec.prefix, spec.suffix, context.subtask)
        self._buckets = Buckets(self._writer, self._encoder, spec.rolling_policy, names, self._listener())
        patterns = counted_names(spec.prefix, spec.suffix)
        self._directory = DirectoryReconciliation(self._writer, context, counters, patterns)
        with storage_problems(self.context.name, self._spec.path):
            if context.checkpointing_enabled:
                self._reconcile(counters)
                states = self._directory.open_parts.fence(states)
                self._writer.sync_directories()
            gone = self._buckets.initialize(states, counters.by_subtask.values())
            self._writer.sync_directories()
        self._report_gone([self._writer.path(target) for target in gone])

    def _report_gone(self, paths: list[str]) -> None:
        """Report files of the restored state that do not exist under any of their names."""
        report_lost_files(self.context, self._writer.path(""), paths)

    def _listener(self) -> BucketsListener | None:
        """The listener of the buckets; for subclasses."""
        return None

    def _reconcile(self, counters: RestoredCounters) -> None:
        """Clean up the directory. Writers with other files in it override this."""
        self._directory.clean_up()
        self._writer.sync_directories()

    def open(self) -> None:
        self._check_again()

    def _check_again(self) -> None:
        if self._checks_time:
            context = self.context
            context.register_processing_timer(context.processing_time_ms() + self._spec.bucket_check_interval_ms)

    # --- records and time ---------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        """Write each record to its bucket. If one record fails, the whole batch is not written."""
        assert not self._finished, "records after finish"
        if not len(batch):
            return
        now_ms = self.context.processing_time_ms()
        try:
            what = self._encoder.what
            rows = self._encoder.encode(batch)
            what = "bucket function"
            buckets = self._spec.bucket_assigner.buckets_of(batch, now_ms, self._watermark_ms)
        except RecordError as error:
            raise self.user_error(what, error.record, error.cause) from error.cause
        records = batch.values if self._buckets.shows_records else None
        with storage_problems(self.context.name, self._spec.path):
            if isinstance(buckets, str):
                self._buckets.write(buckets, rows, records, now_ms)
            else:
                self._buckets.write_each(buckets, rows, records, now_ms)

    def process_watermark(self, timestamp_ms: int) -> None:
        """Bucket assigners may use the watermark."""
        self._watermark_ms = timestamp_ms

    def on_processing_time(self, time_ms: int) -> None:
        if not self._finished:
            with storage_problems(self.context.name, self._spec.path):
                self._buckets.on_processing_time(self.context.processing_time_ms())
            self._check_again()

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Files, then names, then state."""
        buckets = self._buckets
        with storage_problems(self.context.name, self._spec.path):
            # Closed and durable, but hidden until the checkpoint is complete (mutant "files committed on barrier").
            states = buckets.snapshot(checkpoint_id)
            self._writer.sync_directories()
        self._bucket_state.update([tuple(state) for state in states])
        self._counter_state.update([buckets.counters(self.context.subtask)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Make its files visible."""
        with storage_problems(self.context.name, self._spec.path):
            self._buckets.commit_up_to(checkpoint_id)
            self._writer.sync_directories()
            if self._directory.open_parts.set_aside:
                self._directory.open_parts.forget_committed()

    def finish(self) -> None:
        """Close the parts. The last checkpoint commits them; without checkpoints this does."""
        self._finished = True
        with storage_problems(self.context.name, self._spec.path):
            if self.context.checkpointing_enabled:
                self._buckets.close_all_parts()
            else:
                self._buckets.commit_now()
            self._writer.sync_directories()

    def close(self) -> None:
        if hasattr(self, "_buckets"):
            self._buckets.close()

    def abandon(self) -> None:
        self.close()

    def uncommitted(self) -> list[tuple[str, str]]:
        return [
            (f"{bucket.id}: {name}" if bucket.id else name, amount)
            for _, bucket in sorted(self._buckets.active.items())
            for name, amount in bucket.uncommitted()
        ]

    def fingerprint(self) -> object:
        return self._buckets.fingerprint(), self._names.given, self._finished, self._watermark_ms
