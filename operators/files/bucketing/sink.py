"""The bucketing sink: rows of text in files that are in progress, pending, finished (Flink: ``BucketingSink``).

The rules for files are in :mod:`operators.files.bucketing.bucketing_parts`. The operator adds the bucket of each
record, a timer that checks for inactive parts, state, and the end.

* The states of all buckets of a subtask are *one* element of a list state. A restore redistributes the elements; any
  subtask may finish the files of any other.
* The sink tests whether files can be cut by cutting a file of seven bytes; ``use_truncate=False`` switches cutting off.
  On a file system that cuts files later, the sink takes no records until all files of a restore are cut.
* ``finish`` closes the parts, and the last checkpoint finishes them (Flink's sink had no end of input).
  ``close`` closes them too, but without a checkpoint.
* A job may go back to an older checkpoint: :mod:`operators.files.bucketing.journal`.
* Without checkpoints a part is finished as soon as it is closed, as if pending parts had no prefix and no suffix. With
  checkpoints such names would show rows too early, and are refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import NO_RECORD, ConfigurationError, StorageError, check_whole
from engine.elements.operator import Operator
from operators.basic import SinkOperator
from operators.files.bucketing.bucketing_parts import BUCKET_SNAPSHOT, BucketingParts
from operators.files.bucketing.journal import PartJournal
from operators.files.bucketing.late_truncation import POLL_INTERVAL_MS, LateTruncations, TruncatesLater
from operators.files.bucketing.names import FINISHED, BucketingNames
from operators.files.bucketing.part_writers import (
    WRITER_METHODS,
    RecordRows,
    Writer,
    WriterEncoder,
    WriterError,
    lacks_methods,
)
from operators.files.bucketing.valid_length import read_valid_length
from operators.files.formats import JsonLinesRowFormat, RowFormat
from operators.files.sinks import check_directory, checked_assigner, checked_format
from operators.files.writing import (
    BucketAssigner,
    LineRows,
    PartEncoder,
    RecordError,
    escape_path_name,
    is_bulk,
    line_end_of,
    report_lost_files,
    split_lines,
    storage_problems,
)
from state_backends.base import list_of
from state_backends.files import FileSystem

DEFAULT_BATCH_SIZE_BYTES = 384 * 1024 * 1024
DEFAULT_INACTIVE_CHECK_INTERVAL_MS = 60_000
DEFAULT_INACTIVE_THRESHOLD_MS = 60_000
DEFAULT_ASYNC_TIMEOUT_MS = 60_000

_SCRATCH = b"scratch"
"""Seven bytes."""
_SCRATCH_PREFIX = ".truncate-"


class BucketingSink:
    """Describes a bucketing sink.

    ``path``      the directory, relative to the output directory of the run;
    ``format``    how a record becomes a line; by default a line of JSON;
    ``writer``    how the records of a part become bytes, in place of ``format``: an ``AvroWriter``, a
                  ``SequenceWriter``, a ``LineWriter``, or one of your own;
    ``bucketer``  ``record -> sub-directory``, or a ``BucketAssigner`` such as ``DateTimeBucketAssigner()``; without one
                  there is one bucket;
    ``names``     prefixes and suffixes;
    ``batch_size_bytes``, ``rollover_interval_ms``  limits after which a part is closed when the next record comes; by
                  default 384 MiB and never;
    ``inactive_check_interval_ms``, ``inactive_threshold_ms``  how often the sink checks for inactive parts, and after
                  what time without a write a part is inactive; by default a minute each;
    ``use_truncate``  ``False`` = write valid lengths although files can be cut;
    ``async_timeout_ms``  how long a restore waits for a file system that cuts files later: for its lease, and for the
                  cut; by default a minute each;
    ``sync_on_flush``  ``False`` = a checkpoint does not wait until the bytes of its parts are on the disk. They survive
                  the death of the process, but not a power cut (Flink: ``syncOnFlush``, there off by default);
    ``goes_back``  ``False`` = a job that starts from an older checkpoint takes back only its parts in progress, does
                  not change valid lengths and has no journal. As in Flink, some rows then appear twice.
    """

    name = "bucketing-sink"

    def __init__(
        self,
        path: str,
        *,
        format: RowFormat | None = None,
        writer: Writer | None = None,
        bucketer: Callable[[Any], str] | BucketAssigner | None = None,
        names: BucketingNames | None = None,
        batch_size_bytes: int = DEFAULT_BATCH_SIZE_BYTES,
        rollover_interval_ms: int | None = None,
        inactive_check_interval_ms: int = DEFAULT_INACTIVE_CHECK_INTERVAL_MS,
        inactive_threshold_ms: int = DEFAULT_INACTIVE_THRESHOLD_MS,
        use_truncate: bool = True,
        async_timeout_ms: int = DEFAULT_ASYNC_TIMEOUT_MS,
        sync_on_flush: bool = True,
        goes_back: bool = True,
    ) -> None:
        check_directory(path)
        if writer is not None and format is not None:
            raise ConfigurationError("give format= or writer=, not both: LineWriter(format) is a writer")
        if writer is not None and lacks_methods(writer):
            raise ConfigurationError(
                f"writer is {writer!r}; it must have {', '.join(WRITER_METHODS)}\n"
                "  fix: use LineWriter(format), AvroWriter(schema) or SequenceWriter(), or write the missing methods"
            )
        if format is not None and is_bulk(format):
            raise ConfigurationError(
                f"a bucketing sink writes row by row, and {type(format).__name__} writes whole files\n"
                "  fix: use FileSink for files in bulk, or writer=AvroWriter(schema)"
            )
        if names is not None and not isinstance(names, BucketingNames):
            raise ConfigurationError(f"names is {names!r}; it must be BucketingNames(part_prefix=..., ...)")
        check_whole("batch_size_bytes", batch_size_bytes, 0)
        check_whole("rollover_interval_ms", rollover_interval_ms, 0, or_none=True)
        check_whole("inactive_check_interval_ms", inactive_check_interval_ms)
        check_whole("inactive_threshold_ms", inactive_threshold_ms, 0)
        check_whole("async_timeout_ms", async_timeout_ms, 0)
        self.path = path
        self.writer = writer
        self.format: Any = JsonLinesRowFormat() if format is None else checked_format(format)
        if writer is not None:
            self.format = writer
        self.sync_on_flush = sync_on_flush
        self.assigner = bucketer if isinstance(bucketer, BucketAssigner) else checked_assigner(bucketer, None)
        self.names = BucketingNames() if names is None else names
        self.batch_size_bytes = batch_size_bytes
        self.rollover_interval_ms = rollover_interval_ms
        self.inactive_check_interval_ms = inactive_check_interval_ms
        self.inactive_threshold_ms = inactive_threshold_ms
        self.use_truncate = use_truncate
        self.async_timeout_ms = async_timeout_ms
        self.goes_back = goes_back

    @property
    def part_files(self) -> str:
        """The names of its files, which no other sink of a job may have."""
        return f"{posixpath.normpath(self.path)}/{self.names.part_prefix}-*{self.names.part_suffix}"

    def create_operator(self) -> Operator:
        return _BucketingSinkOperator(self)

    def read_output(self, fs: FileSystem, directory: str) -> dict[str, list[str]]:
        """The rows that readers see in the sink's directory: bucket -> rows, sorted."""
        if self.writer is not None:
            return read_bucketing_output(fs, directory, self.names, lines_of=self.writer.lines_of)
        return read_bucketing_output(fs, directory, self.names, line_end=line_end_of(self.format))


class _BucketingSinkOperator(SinkOperator):
    def __init__(self, spec: BucketingSink) -> None:
        self._spec = spec
        encoder: Any = PartEncoder(spec.format) if spec.writer is None else WriterEncoder(spec.writer)
        self._encoder = encoder
        self._watermark_ms = -(2**63)
        self._parts: BucketingParts | None = None
        self._journal: PartJournal | None = None
        self._next_check_ms = self._next_look_ms = 0
        self._finished = False

    # --- life cycle ---------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        spec, context = self._spec, self.context
        names = spec.names
        if names.finishes_on_close and context.checkpointing_enabled:
            raise ConfigurationError(
                f"sink {context.name!r}: pending_prefix and pending_suffix are both empty, so that readers would see"
                " rows before their checkpoint is complete\n"
                "  fix: leave one of them, or run the job without checkpoints (--mode none)"
            )
        if not context.checkpointing_enabled:
            names = replace(names, pending_prefix="", pending_suffix="")
        self._directory = context.resolve_path(spec.path)
        fs, late = context.file_system(), None
        if isinstance(fs, TruncatesLater):
            late = LateTruncations(fs, spec.async_timeout_ms)
        parts = self._parts = BucketingParts(
            fs,
            self._directory,
            names,
            subtask=context.subtask,
            batch_size_bytes=spec.batch_size_bytes,
            rollover_interval_ms=spec.rollover_interval_ms,
            inactive_threshold_ms=spec.inactive_threshold_ms,
            truncates=self._can_truncate,
            keeps_valid_length=not spec.goes_back,
            missing=self._report_missing,
            late=late,
            open_part=self._encoder.open,
            sync=spec.sync_on_flush,
        )
        if spec.goes_back and context.checkpointing_enabled:
            self._journal = PartJournal(
                context.file_system(),
                self._directory,
                escape_path_name(context.uid),
                names,
                subtask=context.subtask,
                parallelism=context.parallelism,
                attempt=f"{context.incarnation}-{context.attempt}",
            )
        self._state = context.operator_backend().list_state("bucket-states", list_of(BUCKET_SNAPSHOT))
        with self._storage_errors():
            self._delete_scratch()
            if self._journal is not None:
                retracted = self._journal.go_back(context.restored_checkpoint_id())
                context.metrics.count("numCommittedFilesRetracted", retracted)
            for buckets in self._state.get():
                parts.restore((tuple(bucket) for bucket in buckets), context.processing_time_ms())

    def _report_missing(self, path: str) -> None:
        report_lost_files(self.context, self._directory, [path])

    def _delete_scratch(self) -> None:
        """Delete the test files of attempts that died while they tried to cut them."""
        context, fs = self.context, self.context.file_system()
        attempt = f"-{context.incarnation}-{context.attempt}"
        for name in fs.list_dir(self._directory) if fs.is_dir(self._directory) else ():
            if name.startswith(_SCRATCH_PREFIX) and not name.endswith(attempt):
                fs.delete(posixpath.join(self._directory, name))

    def _can_truncate(self) -> bool:
        if not self._spec.use_truncate:
            return False
        context, fs = self.context, self.context.file_system()
        if isinstance(fs, TruncatesLater):
            return True
        fs.make_dirs(self._directory)
        name = f"{_SCRATCH_PREFIX}{context.subtask}-{context.incarnation}-{context.attempt}"
        path = posixpath.join(self._directory, name)
        try:
            with fs.open_write(path) as file:
                file.write(_SCRATCH)
            try:
                fs.truncate(path, 2)
            except (OSError, NotImplementedError):
                return False
            return fs.read_bytes(path) == _SCRATCH[:2]
        finally:
            if fs.exists(path):
                fs.delete(path)

    @property
    def _machine(self) -> BucketingParts:
        assert self._parts is not None, "used before initialize_state"
        return self._parts

    def open(self) -> None:
        self._arm()
        if self._machine.is_cutting:
            # Hold rows and the end until they are cut. Otherwise the sink would have ended, or be ahead of its parts.
            self.context.hold_input()
            self._look_again_soon()

    def _arm(self) -> None:
        self._next_check_ms = self.context.processing_time_ms() + self._spec.inactive_check_interval_ms
        self.context.register_processing_timer(self._next_check_ms)

    def _look_again_soon(self) -> None:
        self._next_look_ms = self.context.processing_time_ms() + POLL_INTERVAL_MS
        self.context.register_processing_timer(self._next_look_ms)

    def on_processing_time(self, time_ms: int) -> None:
        now_ms = self.context.processing_time_ms()
        if self._machine.is_cutting and now_ms >= self._next_look_ms:
            with self._storage_errors():
                is_over = self._machine.look_again(now_ms)
            if is_over:
                self.context.release_input()
            else:
                self._look_again_soon()
        if now_ms >= self._next_check_ms:
            with self._storage_errors():
                self._machine.close_inactive(now_ms)
            self._arm()

    def finish(self) -> None:
        self._finished = True
        with self._storage_errors():
            self._machine.close_parts()

    def close(self) -> None:
        if self._parts is None:
            return
        if self.context.checkpointing_enabled or self._spec.names.finishes_on_close:
            try:
                self._parts.close_parts()
            except (OSError, StorageError, WriterError):
                # No checkpoint depends on it, and the error must not hide the reason for closing the task.
                self.context.metrics.count("numPartsNotClosed")
        # Without checkpoints, parts are open here because the job has failed; closing them would finish them.
        self._parts.abandon()

    def abandon(self) -> None:
        if self._parts is not None:
            self._parts.abandon()

    # --- records ------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp_ms: int) -> None:
        self._watermark_ms = timestamp_ms

    def process_batch(self, batch: Batch) -> None:
        assert not self._finished, "records after finish"
        if not batch.values:
            return
        try:
            rows = self._encoder.encode(batch)
        except RecordError as error:
            raise self.user_error("row format", error.record, error.cause) from error.cause
        try:
            buckets = self._spec.assigner.buckets_of(batch, self.context.processing_time_ms(), self._watermark_ms)
        except RecordError as error:
            raise self.user_error("bucketer", error.record, error.cause) from error.cause
        if isinstance(buckets, str):
            self._write(buckets, rows)
            return
        for bucket, group in self._encoder.group(rows, buckets, 0, len(buckets)).items():
            self._write(bucket, group)

    def _write(self, bucket: str, rows: LineRows | RecordRows) -> None:
        now_ms = self.context.processing_time_ms()
        try:
            with self._storage_errors():
                self._machine.write(bucket, rows, now_ms)
        except RecordError as error:
            raise self.user_error("writer", error.record, error.cause) from error.cause

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> None:
        with self._storage_errors():
            state = self._machine.snapshot(checkpoint_id)
            if self._journal is not None:
                self._journal.note(checkpoint_id, self._machine.take_opened())
            self._state.update([state])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        with self._storage_errors():
            self._machine.commit(checkpoint_id)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Errors of the storage, and of the writer, name the operator."""
        try:
            with storage_problems(self.context.name, self._spec.path):
                yield
        except WriterError as error:
            raise self.user_error(error.what, NO_RECORD, error.cause) from error.cause

    def fingerprint(self) -> object:
        return self._machine.fingerprint(), self._finished, self._watermark_ms


def read_bucketing_output(
    fs: FileSystem,
    path: str,
    names: BucketingNames | None = None,
    *,
    line_end: str = "\n",
    lines_of: Callable[[str, bytes], list[str]] | None = None,
) -> dict[str, list[str]]:
    """The rows of finished parts below ``path``, each read up to its valid length: bucket -> its lines, sorted.

    ``names``: those of the sink; ``line_end``: that of its format; ``lines_of``: that of its writer. Raises
    ``StorageError`` for a part that is torn or shorter than its valid length.
    """
    known = BucketingNames() if names is None else names
    buckets: dict[str, list[str]] = {}
    prefix = path.rstrip("/") + "/"
    for file in fs.walk_files(path):
        bucket, name = posixpath.split(file.removeprefix(prefix))
        if known.kind_of(name) != FINISHED:
            continue
        data = fs.read_bytes(file)
        marker = posixpath.join(posixpath.dirname(file), known.valid_length(name))
        if fs.exists(marker):
            length_bytes = read_valid_length(fs, marker)
            if length_bytes > len(data):
                raise StorageError(f"{file} has {len(data)} bytes, of which {length_bytes} should be valid")
            data = data[:length_bytes]
        lines = split_lines(file, data, line_end) if lines_of is None else lines_of(file, data)
        buckets.setdefault(bucket, []).extend(lines)
    return {bucket: sorted(lines) for bucket, lines in sorted(buckets.items())}
