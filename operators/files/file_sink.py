"""The exactly-once file sink: rows of text in buckets (Flink: ``StreamingFileSink`` with row format).

Rules, in the words of that sink:

* A record goes to the open part of its bucket, a hidden file. At every checkpoint the open parts are closed and
  become *pending* for that checkpoint; pending files are in the state.
* When checkpoint ``n`` has completed, the pending files of all checkpoints up to ``n`` are committed: renamed to
  ``{prefix}-{subtask}-{counter}{suffix}``. Nothing becomes visible otherwise; ``close`` publishes nothing.
* A restore from checkpoint ``n`` commits the pending files in its state, leniently: some may be committed already.
* After ``finish`` the rest goes with the last checkpoint. Without checkpointing ``finish`` commits at once; then a
  failure can lose or repeat records.

Beyond Flink, a restore brings the directory back to exactly what its checkpoint covers. Hidden files of
earlier attempts that no checkpoint can commit any more are deleted. Files that a *later* checkpoint had
committed (the run went back to an older one because the newer was damaged) are hidden again: their records
will be replayed. That is why the part counters in the state carry their subtask.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.operator import Operator
from operators.files.bucket import Bucket, OnCheckpointRollingPolicy, RollingPolicy, check_bucket_id
from operators.files.file_listing import is_hidden
from operators.files.recoverable_writer import PendingFile, RecoverableWriter, name_taken
from operators.files.row_formats import JsonLinesRowFormat, RowFormat
from operators.sinks import SinkOperator
from state_backends.filesystem import FileSystem

BucketFunction = Callable[[Any], str]


class FileSink:
    """Describes a file sink.

    ``path``            the directory, relative to the output directory of the run;
    ``format``          how a record becomes a line;
    ``bucket``          ``record -> sub-directory``, such as ``"day=2013-01-01"``; without one there is one bucket;
    ``prefix, suffix``  of part names: ``{prefix}-{subtask}-{counter}{suffix}``;
    ``rolling_policy``  when parts are closed besides at checkpoints; by default never.
    """

    name = "file-sink"

    def __init__(
        self,
        path: str,
        *,
        format: RowFormat | None = None,
        bucket: BucketFunction | None = None,
        prefix: str = "part",
        suffix: str = "",
        rolling_policy: RollingPolicy | None = None,
    ) -> None:
        _check_directory(path)
        if not prefix or is_hidden(prefix) or "/" in prefix + suffix:
            raise ConfigurationError(
                f"part names would be {prefix!r}-0-0{suffix!r}: a prefix must not be empty or start with '.' or '_', "
                "and neither may contain '/'"
            )
        self.path = path
        self.format = JsonLinesRowFormat() if format is None else format
        self.bucket = bucket
        self.prefix = prefix
        self.suffix = suffix
        self.rolling_policy = OnCheckpointRollingPolicy() if rolling_policy is None else rolling_policy

    def create_operator(self) -> Operator:
        """One operator of one subtask."""
        return _FileSinkOperator(self)


def _check_directory(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"path must be the name of a directory, got {path!r}")


class _FileSinkOperator(SinkOperator):
    def __init__(self, spec: FileSink) -> None:
        self._spec = spec
        self._buckets: dict[str, Bucket] = {}
        self._max_counter = 0
        self._lagging: dict[tuple[int, str], int] = {}
        """By subtask and bucket: counters in the restored checkpoint below the greatest one of the subtask."""
        self._finished = False
        self._name = re.compile(rf"{re.escape(spec.prefix)}-(\d+)-(\d+){re.escape(spec.suffix)}")
        self._hidden_name = re.compile(rf"\.{self._name.pattern}\.inprogress\.(\d+)-(\d+)")

    # --- restore ------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        context, backend = self.context, self.context.operator_backend()
        self._files = RecoverableWriter(context.file_system(), context.resolve_path(self._spec.path))
        self._attempt = f"{context.incarnation}-{context.attempt}"
        self._bucket_state = backend.list_state("buckets")
        self._counter_state = backend.union_list_state("part-counters")
        counters: dict[int, int] = {}
        self._lagging = {}
        # (Checkpoints of older versions do not say which buckets lag.)
        for subtask, counter, *lagging in self._counter_state.get():
            counters[subtask] = max(counter, counters.get(subtask, 0))
            self._lagging.update(((subtask, bucket), lower) for pairs in lagging for bucket, lower in pairs)
        self._max_counter = max(counters.values(), default=0)
        with self._storage_errors():
            restored = [
                PendingFile(*file) for _, booked in self._bucket_state.get() for _, files in booked for file in files
            ]
            self._clean_up(counters)
            self._commit_restored(restored)

    def _commit_restored(self, restored: list[PendingFile]) -> None:
        for file in restored:
            if not self._files.commit_after_recovery(file):
                # Committed before, and taken away by a reader since: Flink says nothing, we count it.
                self.context.metrics.count("numCommittedFilesMissing")
        self._files.sync_directories()

    def _clean_up(self, counters: dict[int, int]) -> None:
        """Bring the directory back to what the restored checkpoint covers; its pending files are left alone.

        Part ``c`` of subtask ``s`` was opened behind the checkpoint if ``c`` is at least the counter of
        ``s`` in it; in a bucket that was open then, at least the bucket's own counter, which may be lower. A subtask
        that is not in it existed before (then ``c`` is below all counters) or later (then above).
        """
        context = self.context
        if not context.checkpointing_enabled:
            return
        # Without counters no checkpoint of ours can have completed, whichever attempt this is: what is visible
        # belongs to somebody else.
        begins = not counters
        for relative in self._files.files():
            name = posixpath.basename(relative)
            if match := self._name.fullmatch(name):
                if self._opened_behind(relative, match, counters):
                    if begins:
                        raise name_taken(self._files.path(relative))
                    self._files.hide(relative, self._attempt)
                    context.metrics.count("numCommittedFilesRetracted")
            elif match := self._hidden_name.fullmatch(name):
                earlier = (int(match[3]), int(match[4])) < (context.incarnation, context.attempt)
                if earlier and self._opened_behind(relative, match, counters):
                    self._files.delete(relative)

    def _opened_behind(self, relative: str, match: re.Match[str], counters: dict[int, int]) -> bool:
        subtask, counter = int(match[1]), int(match[2])
        mine = subtask % self.context.parallelism == self.context.subtask
        first = self._lagging.get((subtask, posixpath.dirname(relative)))
        return mine and counter >= (counters.get(subtask, self._max_counter) if first is None else first)

    # --- records ------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch) -> None:
        assert not self._finished, "records after finish"
        values = batch.values
        if not values:
            return
        lines = self._encode(values)
        bucket_of = self._spec.bucket
        with self._storage_errors():
            if bucket_of is None:
                self._write("", lines)
                return
            for bucket, bucket_lines in _grouped(self._bucket_ids(bucket_of, values), lines):
                self._write(bucket, bucket_lines)

    def _encode(self, values: list[Any]) -> list[str]:
        lines: list[str] = []
        try:
            lines.extend(map(self._spec.format.encode, values))
            if len(lines) != len(values):
                raise StopIteration("the format let a StopIteration escape")
        except Exception as error:
            raise self.user_error("row format", values[len(lines)], error) from error
        return lines

    def _bucket_ids(self, bucket_of: BucketFunction, values: list[Any]) -> list[str]:
        ids: list[str] = []
        known = self._buckets
        try:
            for value in values:
                bucket = bucket_of(value)
                ids.append(bucket if bucket in known else check_bucket_id(bucket))
        except Exception as error:
            raise self.user_error("bucket function", values[len(ids)], error) from error
        return ids

    def _write(self, bucket_id: str, lines: list[str]) -> None:
        bucket = self._buckets.get(bucket_id)
        if bucket is None:
            bucket = self._buckets[bucket_id] = Bucket(bucket_id, self._max_counter)
        policy = self._spec.rolling_policy
        if not policy.rolls_on_event:
            self._append(bucket, _bytes(self, lines))
            return
        for line in lines:
            part, now_ms = bucket.open_file, self.context.processing_time_ms()
            if part and policy.should_roll_on_event(part.size_bytes, part.opened_at_ms, now_ms):
                bucket.close_part()
            self._append(bucket, _bytes(self, [line]))

    def _append(self, bucket: Bucket, data: bytes) -> None:
        if bucket.open_file is None:
            name = f"{self._spec.prefix}-{self.context.subtask}-{bucket.next_counter}{self._spec.suffix}"
            target = posixpath.join(bucket.id, name)
            if self.context.checkpointing_enabled and self._files.exists(target):
                raise name_taken(self._files.path(target))
            now_ms = self.context.processing_time_ms()
            bucket.open_file = self._files.open(target, self._attempt, now_ms)
            bucket.next_counter += 1
            self._max_counter = max(self._max_counter, bucket.next_counter)
        bucket.open_file.write(data)

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: int) -> None:
        with self._storage_errors():
            for bucket in self._buckets.values():
                bucket.close_part()
                bucket.on_snapshot(checkpoint_id)
            # Names before state: a checkpoint must not refer to a file that a crash can lose.
            self._files.sync_directories()
        self._bucket_state.update(
            [
                (bucket.id, [(known, [tuple(file) for file in files]) for known, files in sorted_items(bucket)])
                for _, bucket in sorted(self._buckets.items())
                if bucket.pending_by_checkpoint
            ]
        )
        lagging = [(bucket.id, bucket.next_counter) for _, bucket in sorted(self._buckets.items())]
        lagging = [(bucket, counter) for bucket, counter in lagging if counter < self._max_counter]
        self._counter_state.update([(self.context.subtask, self._max_counter, lagging)])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        with self._storage_errors():
            for _, bucket in sorted(self._buckets.items()):
                for file in bucket.take_confirmed(checkpoint_id):
                    self._files.commit(file)
            self._files.sync_directories()
        self._forget_inactive()

    def _forget_inactive(self) -> None:
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.is_active}

    def finish(self) -> None:
        self._finished = True
        with self._storage_errors():
            for _, bucket in sorted(self._buckets.items()):
                bucket.close_part()
                if not self.context.checkpointing_enabled:
                    for file in bucket.pending:
                        self._files.commit(file, replace=True)
                    bucket.pending = []
            self._files.sync_directories()
        self._forget_inactive()

    def close(self) -> None:
        for bucket in self._buckets.values():
            if bucket.open_file is not None:
                bucket.open_file.dispose()
                bucket.open_file = None

    def abandon(self) -> None:
        self.close()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._spec.path
            raise StorageError(
                f"sink {self.context.name!r} cannot write {where}: {error.strerror or error}\n"
                "  check that the directory exists, is writable and has space; then resume from the last checkpoint"
            ) from error

    def fingerprint(self) -> object:
        buckets = [
            (
                bucket.id,
                bucket.next_counter,
                None if bucket.open_file is None else bucket.open_file.size_bytes,
                tuple(bucket.pending),
                tuple((known, tuple(files)) for known, files in sorted_items(bucket)),
            )
            for _, bucket in sorted(self._buckets.items())
        ]
        return self._max_counter, self._finished, tuple(buckets)


def sorted_items(bucket: Bucket) -> list[tuple[int, list[PendingFile]]]:
    """What a bucket has booked, by checkpoint."""
    return sorted(bucket.pending_by_checkpoint.items())


def _grouped(buckets: list[str], lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines of each bucket, in order; buckets in the order in which they appear."""
    distinct = dict.fromkeys(buckets)
    if len(distinct) == 1:
        yield buckets[0], lines
        return
    groups: dict[str, list[str]] = {bucket: [] for bucket in distinct}
    for bucket, line in zip(buckets, lines, strict=True):
        groups[bucket].append(line)
    yield from groups.items()


def _bytes(operator: Operator, lines: list[str]) -> bytes:
    try:
        return ("\n".join(lines) + "\n").encode()
    except UnicodeEncodeError as error:
        bad = next(compress(lines, [not line.isascii() and _unwritable(line) for line in lines]))
        raise operator.user_error("row format", bad, error) from error


def _unwritable(line: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in line)


def read_committed(fs: FileSystem, path: str) -> dict[str, list[str]]:
    """The committed rows below ``path``: bucket -> its lines, sorted. Hidden files and directories are left
    out.

    Raises ``StorageError`` for a file that is torn.
    """
    buckets: dict[str, list[str]] = {}
    prefix = path.rstrip("/") + "/"
    for file in fs.walk_files(path):
        relative = file.removeprefix(prefix)
        if not any(map(is_hidden, relative.split("/"))):
            lines = fs.read_bytes(file).decode().split("\n")
            if lines.pop():
                raise StorageError(f"{file} does not end with a line break, so no file sink has committed it")
            buckets.setdefault(posixpath.dirname(relative), []).extend(lines)
    return {bucket: sorted(lines) for bucket, lines in sorted(buckets.items())}
