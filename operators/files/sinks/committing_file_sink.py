"""The file sink in several operators: writers, committers, and compaction between them (Flink: ``FileSink``).

    FileSink(path, ...).with_committer()        writer -> committer
    FileSink(path, ...).compacting(strategy)    writer -> compact coordinator -> compactor -> committer

Readers see the same records as with one operator, but in files called ``{prefix}-{unique}-{counter}{suffix}``. With
compaction they see them later, in larger files. Rules: :mod:`operators.files.writing.bucket` and
:mod:`operators.files.compaction.file_committer`; for compaction :mod:`operators.files.compaction.compact_coordinator`
and :mod:`operators.files.compaction.compactor`; for the files of failed attempts
:mod:`operators.files.compaction.instance_reconciliation`.

This sink can read the state of the one-operator sink. So a job that switches to committers keeps its open and pending
files, if the sink keeps its ``uid``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.errors import check_whole
from engine.elements.operator import OperatorContext
from operators.files.compaction import (
    COMMITTABLE_SHAPE,
    INSTANCE_STATE,
    PENDING,
    CompactionStrategy,
    FileCommitter,
    RestoredInstances,
    committable_of,
    delete,
    merge_of,
    unique_names,
)
from operators.files.sinks.compaction_operators import CompactCoordinatorOperator, CompactorOperator
from operators.files.sinks.file_sink import FileSink
from operators.files.writing import (
    BUCKET_STATE,
    COUNTER_STATE,
    PART_COUNTERS,
    Buckets,
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
from operators.transactions import Committer, CommittingSink, SinkPart, SinkWriter, WriteError, part_options


class CommittingFileSink(CommittingSink, FileSink):
    """A file sink with committers. Made by :meth:`FileSink.with_committer` and :meth:`FileSink.compacting`.

    ``spec``                    the sink as one operator;
    ``compaction``              when files are compacted, ``None`` = never;
    ``compaction_ns_per_byte``  virtual time that compaction takes.

    Raises :class:`engine.elements.errors.ConfigurationError` for a format whose files cannot be compacted.
    """

    name = FileSink.name
    writer_state = "buckets"
    writer_state_shape = staticmethod(BUCKET_STATE)
    committable_shape = staticmethod(COMMITTABLE_SHAPE)

    def __init__(
        self, spec: FileSink, compaction: CompactionStrategy | None = None, compaction_ns_per_byte: int = 0
    ) -> None:
        vars(self).update(vars(spec))
        if compaction is not None:
            compaction.checked()
            merge_of(self.format)
        check_whole("compaction_ns_per_byte", compaction_ns_per_byte, 0)
        self.compaction = compaction
        self.compaction_ns_per_byte = compaction_ns_per_byte

    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        return FileSinkWriter(self, context, restored)

    def create_committer(self, context: OperatorContext) -> Committer:
        files = self.open_directory(context, UniqueNames(context.incarnation, context.attempt, context.subtask))

        def lost(targets: list[str]) -> None:
            report_lost_files(context, files.path(""), [files.path(target) for target in targets])

        refusals = partial(storage_problems, context.name, self.path)
        return FileCommitter(files, context.metrics.count, lost, refusals)

    def add_pre_commit(self, stream: Any, options: Any) -> Any:
        """Add compaction, if configured."""
        if self.compaction is None:
            return stream
        coordinator = SinkPart(f"{self.name}-compact-coordinator", lambda: CompactCoordinatorOperator(self))
        compactor = SinkPart(f"{self.name}-compactor", lambda: CompactorOperator(self))
        parallelism = {key: options[key] for key in ("parallelism", "max_parallelism") if options.get(key) is not None}
        # Only edges to the direct neighbours: on other edges barriers may overtake records.
        requests = stream.rescale().via(coordinator, **part_options(options, "compact-coordinator"), parallelism=1)
        return requests.rescale().via(compactor, **part_options(options, "compactor"), **parallelism)


class FileSinkWriter(SinkWriter):
    """Writes the files of one subtask."""

    def __init__(self, spec: CommittingFileSink, context: OperatorContext, restored: list[Any]) -> None:
        self._spec = spec
        self._context = context
        self._encoder = PartEncoder(spec.format)
        self._watermark_ms = MIN_TIMESTAMP_MS
        # Without checkpoints an earlier attempt had the same names, and its files are replaced.
        attempt = (context.incarnation, context.attempt) if context.checkpointing_enabled else (0, 0)
        self._names = UniqueNames(*attempt, context.subtask)
        self._temporary_names = UniqueNames(context.incarnation, context.attempt, context.subtask)
        self._files = spec.open_directory(context, self._temporary_names)
        names = PartNames(spec.prefix, spec.suffix, context.subtask, hidden=spec.compaction is not None)
        self._writer = Buckets(self._files, self._encoder, spec.rolling_policy, names, unique=self._names)
        self._instances = context.operator_backend().union_list_state("writers", INSTANCE_STATE)
        states = [BucketState(*state) for state in restored]
        instances, patterns = RestoredInstances(self._instances.get()), unique_names(spec.prefix, spec.suffix)
        self._directory = DirectoryReconciliation(self._files, context, instances, patterns)
        with self._storage_problems():
            if context.checkpointing_enabled:
                states = self._reconciled(states)
            self._writer.initialize(states)
            self._files.sync_directories()

    def _reconciled(self, states: list[BucketState]) -> list[BucketState]:
        self._clean_up_after_one_operator()
        self._directory.clean_up()
        fenced = self._directory.open_parts.fence(states)
        # Before files are handed out: a crash must not show the hidden files again.
        self._files.sync_directories()
        return fenced

    def _clean_up_after_one_operator(self) -> None:
        """Clean up the files that the one-operator sink opened after its last checkpoint."""
        context, spec, backend = self._context, self._spec, self._context.operator_backend()
        if PART_COUNTERS not in backend.state_names():
            return
        counters = backend.union_list_state(PART_COUNTERS, COUNTER_STATE)
        restored = RestoredCounters(counters.get())
        # The next checkpoint is ours. If kept, each subtask would store all of it, and a restore would read every copy.
        counters.clear()
        if not restored.is_empty:
            patterns = counted_names(spec.prefix, spec.suffix)
            DirectoryReconciliation(self._files, context, restored, patterns).clean_up()

    def open(self) -> None:
        if rolls_on_processing_time(self._spec.rolling_policy):
            context = self._context
            context.register_processing_timer(context.processing_time_ms() + self._spec.bucket_check_interval_ms)

    def write(self, batch: Batch) -> None:
        """Write each record to its bucket. If one record fails, no record of the batch is written."""
        if not len(batch):
            return
        now_ms = self._context.processing_time_ms()
        what = self._encoder.what
        try:
            rows = self._encoder.encode(batch)
            what = "bucket function"
            buckets = self._spec.bucket_assigner.buckets_of(batch, now_ms, self._watermark_ms)
        except RecordError as error:
            raise WriteError(what, error.record, error.cause) from error
        records = batch.values if self._writer.shows_records else None
        with self._storage_problems():
            if isinstance(buckets, str):
                self._writer.write(buckets, rows, records, now_ms)
            else:
                self._writer.write_each(buckets, rows, records, now_ms)

    def process_watermark(self, timestamp_ms: int) -> None:
        """Bucket assigners may use the watermark."""
        self._watermark_ms = timestamp_ms

    def on_processing_time(self, time_ms: int) -> None:
        with self._storage_problems():
            self._writer.on_processing_time(self._context.processing_time_ms())
        self.open()

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        """Make files, then names durable, then hand them out; with each, the files set aside until it is visible."""
        with self._storage_problems():
            handed_out = [committable_of(*one) for one in self._writer.hand_out(flush=end_of_input)]
            self._files.sync_directories()
        let_go = self._directory.open_parts.let_go
        targets = [(bucket_id, rest[1]) for kind, bucket_id, *rest in handed_out if kind == PENDING]
        set_aside = [delete(bucket_id, path) for bucket_id, target in targets for path in let_go(target)]
        return [*set_aside, *handed_out]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """The open parts, and the names that were given."""
        context = self._context
        with self._storage_problems():
            # Every open part was opened before files were handed out, so its name is durable.
            states = self._writer.persist()
        in_use = [(bucket.names.owner, bucket.next_counter) for _, bucket in sorted(self._writer.active.items())]
        given = (context.subtask, context.incarnation, context.attempt, self._names.given, in_use)
        self._instances.update([given])
        return [tuple(state) for state in states if state.in_progress is not None]

    def close(self) -> None:
        self._writer.close()

    def _storage_problems(self) -> Any:
        return storage_problems(self._context.name, self._spec.path)

    def fingerprint(self) -> object:
        return self._writer.fingerprint(), self._names.given, self._temporary_names.given, self._watermark_ms
