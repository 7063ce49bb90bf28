"""The log-structured store: a memtable in front of levels of sorted files.

Rules:

* Writes go to the memtable (and to the log, if there is one). When it is full, the next write itself makes it a file of
  level 0. The executor merges files as background work. The inline executor does so before the write goes on. With a
  deferring executor writes do not stall: flushing continues, level 0 grows, reads get slower, and the next compaction
  takes all files of level 0. The caller that schedules the work must also run it.
* Reads ask the memtable, level 0 from the newest file on, then one file per level; the first that knows the key
  answers.
* Scans and snapshots pin the present files and the memtable. A scan copies at once the part of the memtable that it
  needs. A snapshot shares the whole memtable; the next write continues with a copy.
* When a method raises ``OSError``, that call has changed nothing, and the store can still be used. If an inline
  compaction fails, the write that started it raises the error before it writes.
* Without a log, closing the store loses unflushed entries: durability comes from checkpoints, as in Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise

from state_backends.base import Executor, InlineExecutor, StateArgumentError
from state_backends.files import FileSystem
from state_backends.lsm.block import ABSENT
from state_backends.lsm.compaction import pick, whole
from state_backends.lsm.compaction_work import CompactionWork, RunWriter
from state_backends.lsm.file_set import FileSet
from state_backends.lsm.files import WAL_SUFFIX, delete_quietly
from state_backends.lsm.fixed_width import fixed_pieces
from state_backends.lsm.memtable import LsmSnapshot, Memtable, rows
from state_backends.lsm.range_tombstones import NO_RANGES
from state_backends.lsm.sst import Table
from state_backends.lsm.store_options import LsmOptions
from state_backends.lsm.version import FileMeta, Version, VersionEdit, file_number, span_of
from state_backends.lsm.wal import WriteAheadLog, replay

_INGEST_ENTRIES = 256


class LsmStore:
    """An :class:`state_backends.rows.OrderedStore` in one directory."""

    def __init__(self, fs: FileSystem, directory: str, unique: str, options: LsmOptions, executor: Executor) -> None:
        """Open the store in a directory, or a new one.

        :param unique: see :meth:`state_backends.rows.StoreKind.open`
        :raises CorruptStateError: when a file is damaged or missing, or is not a file of such a store
        :raises StateSchemaError: when a newer program wrote the store
        """
        assert unique, "a store needs a unique name"
        assert "/" not in unique, unique
        self._options = options
        self._executor = executor
        self._files = FileSet(fs, directory, unique, options)
        self._memtable = Memtable()
        # The dict of the memtable itself: each access looks up one attribute less.
        self._entries = self._memtable.entries
        self._used = 0
        # Writes compare only with this number. It is 0 when the next write must do something first: a snapshot shares
        # the memtable, a compaction is due, or a write failed and it is unknown whether it is in a file.
        self._limit = options.memtable_bytes
        self._is_shared = False
        self._is_compaction_due = False
        self._log: WriteAheadLog | None = None
        # The names of the logs whose content may be in no file yet; the present log is the last.
        self._logs: list[str] = []
        self._is_log_doubtful = False
        self._work: CompactionWork | None = None
        self._is_scheduling = False
        self._is_closed = False
        try:
            self._recover()
        except BaseException:
            self._files.close()
            raise

    def _recover(self) -> None:
        files = self._files
        self._logs = files.logs_to_replay()
        for name in self._logs:
            replay(files.fs, files.path(name), self._memtable)
        files.begin()
        if self._memtable:
            # Make the content of the old logs a file at once, so that each log belongs to one opening.
            self._flush_memtable()
        elif self._logs or self._options.wal:
            self._retire_logs()
        self._is_compaction_due = True
        self._limit = 0

    # --- reads ---

    def get(self, key: bytes) -> bytes | None:
        value = self._entries.get(key, ABSENT)
        if value is not ABSENT:
            return value
        ranges = self._memtable.ranges
        # The tuple, because the truth of ``ranges`` itself is one more call.
        if ranges.ranges and ranges.covers(key):
            return None
        return self._files.find(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """:meth:`get` for each key. Keys are looked up in their order, so that each block is read once."""
        entries = self._entries
        found = list(map(entries.get, keys))
        ranges, find = self._memtable.ranges, self._files.find
        absent = [key for key, value in zip(keys, found, strict=True) if value is None and key not in entries]
        if not absent:
            return found
        absent.sort()
        answers = {key: find(key) for key in dict.fromkeys(absent) if not (ranges and ranges.covers(key))}
        return [answers.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return rows(self._files, self._files.pin(), self._memtable, first, end)

    def snapshot(self) -> LsmSnapshot:
        self._is_shared = True
        self._limit = 0
        return LsmSnapshot(self._files, self._files.pin(), self._memtable)

    # --- writes ---

    def put(self, key: bytes, value: bytes) -> None:
        if self._used >= self._limit:
            self._make_room()
        if self._log is not None:
            self._write_log({key: value})
        self._entries[key] = value
        self._used += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        if self._used >= self._limit:
            self._make_room()
        if self._log is not None:
            self._write_log({key: None})
        self._entries[key] = None
        self._used += len(key)

    def write_many(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Store all entries; ``None`` removes a key. With a log, all of them survive a crash, or none."""
        if self._used >= self._limit:
            self._make_room()
        if self._log is not None and entries:
            self._write_log(entries)
        self._entries.update(entries)
        self._used += sum(map(len, entries)) + sum(map(len, filter(None, entries.values())))

    def delete_range(self, first: bytes, end: bytes) -> None:
        if first >= end:
            return
        if self._used >= self._limit:
            self._make_room()
        if self._log is not None:
            try:
                self._log.delete_range(first, end)
            except OSError:
                self._doubt_log()
                raise
        self._memtable.delete_range(first, end)
        self._used += len(first) + len(end)

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Bulk-load entries, without the memtable, into the deepest level that may hold them (:func:`_level_for`).

        :raises StateArgumentError: when their keys do not ascend; then none of them is stored
        """
        if self._used >= self._limit:
            self._make_room()
        self._cancel_work()
        self.flush_only()
        output = RunWriter(self._files, NO_RANGES, self._options.file_bytes)
        try:
            last: bytes | None = None
            while batch := list(islice(entries, _INGEST_ENTRIES)):
                keys = [key for key, _ in batch]
                values: list[bytes | None] = [value for _, value in batch]
                _check_ascending(keys, last)
                last = keys[-1]
                output.add((keys, values))
            output.finish()
        except BaseException:
            output.abandon()
            raise
        if output.tables:
            metas = [table.meta for table in output.tables]
            level = _level_for(self._files.version, metas, self._options)
            self._install(VersionEdit(added=tuple((level, meta) for meta in metas)), output.tables)
            self._is_compaction_due = True
            self._limit = 0

    def flush(self) -> None:
        """Make the memtable a file of level 0, and start a compaction if one is due."""
        self.flush_only()
        self._schedule()

    def flush_only(self) -> None:
        """Make the memtable a file of level 0. Merging waits for the next write."""
        assert not self._is_closed, "the store is closed"
        if self._flush_memtable():
            self._is_compaction_due = True
            self._limit = 0

    def _make_room(self) -> None:
        """Do what must come before a write: see ``_limit``."""
        assert not self._is_closed, "the store is closed"
        budget = self._options.memtable_bytes
        self._files.resolve_doubt()
        if self._used >= budget:
            # ``_used`` also counts overwritten entries. Without them the memtable may have room.
            self._used = self._memtable.size_bytes()
            if 2 * self._used >= budget:
                self._flush_memtable()
                self._is_compaction_due = True
        if self._is_log_doubtful and not self._flush_memtable():
            self._retire_logs()
        if self._is_shared:
            self._use(self._memtable.copy())
        if self._is_compaction_due:
            self._schedule()
        self._limit = budget

    def _write_log(self, entries: Mapping[bytes, bytes | None]) -> None:
        assert self._log is not None
        try:
            self._log.write(entries)
        except OSError:
            self._doubt_log()
            raise

    def _use(self, memtable: Memtable) -> None:
        self._memtable = memtable
        self._entries = memtable.entries
        self._is_shared = False

    def _flush_memtable(self) -> bool:
        """Make the memtable, if it holds anything, a file of level 0."""
        memtable, files = self._memtable, self._files
        if not memtable:
            return False
        # First: if the edit below fails, it may be written or not. Later writes are in a log that both cases replay.
        self._change_log()
        writer = files.writer()
        try:
            columns = memtable.columns()
            pieces = fixed_pieces(columns) if self._options.compression == "none" else None
            if pieces is not None:
                for piece in pieces:
                    writer.add_fixed(piece)
            elif columns[0]:
                writer.add(*columns)
            table = writer.finish(memtable.ranges)
        except BaseException:
            writer.abandon()
            raise
        self._install(VersionEdit(added=((0, table.meta),)), [table])
        self._use(Memtable())
        self._used = 0
        return True

    def _install(self, edit: VersionEdit, tables: Sequence[Table] = ()) -> None:
        """Change the version, which then holds the content of all older logs."""
        try:
            self._files.install(edit, tables, self._log_number())
        except OSError:
            self._limit = 0
            raise
        self._delete_old_logs()

    # --- the log ---

    def _doubt_log(self) -> None:
        """A write failed: it did not happen, but the log may hold it. So the log must be replaced before the next
        write."""
        self._is_log_doubtful = True
        self._limit = 0

    def _retire_logs(self) -> None:
        """Begin another log, and note that the older ones are no longer needed."""
        self._change_log()
        self._install(VersionEdit())

    def _change_log(self) -> None:
        """Begin another log, if the store has logs. The older ones stay until their content is in files."""
        if not self._options.wal:
            return
        files = self._files
        name = files.new_name(WAL_SUFFIX)
        # From now on the file may exist, even if a step below fails.
        self._logs.append(name)
        file = files.fs.open_write(files.path(name), exclusive=True)
        log = WriteAheadLog(file, file_number(name), sync=self._options.sync)
        if self._options.sync:
            files.fs.fsync_dir(files.directory)
        before, self._log = self._log, log
        if before is not None:
            before.close()

    def _log_number(self) -> int:
        """Once the memtable is in a file, so is the content of all logs with smaller numbers."""
        return self._files.next_number if self._log is None else self._log.number

    def _delete_old_logs(self) -> None:
        files = self._files
        old = [name for name in self._logs if file_number(name) < files.log_number]
        self._logs = [name for name in self._logs if file_number(name) >= files.log_number]
        self._is_log_doubtful = self._log is not None and self._log.broken
        for name in old:
            delete_quietly(files.fs, files.path(name))

    # --- compaction ---

    def compact_all(self) -> None:
        """Merge everything into one run before returning. No tombstone remains."""
        self._cancel_work()
        self.flush_only()
        task = whole(self._files.version, self._options)
        if task is not None:
            self._work = CompactionWork(self._files, task, self._work_is_over)
            InlineExecutor().submit(self._work)

    def _schedule(self) -> None:
        """Submit compactions until none is due, or until the executor has deferred one."""
        self._is_compaction_due = False
        if self._is_scheduling:
            # Called when work of the inline executor ends: the loop below is still running.
            return
        self._is_scheduling = True
        try:
            while self._work is None:
                task = pick(self._files.version, self._options)
                if task is None:
                    break
                self._work = CompactionWork(self._files, task, self._work_is_over)
                self._executor.submit(self._work)
        finally:
            self._is_scheduling = False

    def _work_is_over(self, work: CompactionWork, done: bool) -> None:
        assert work is self._work, work.name
        self._work = None
        if done and not self._is_closed:
            self._schedule()

    def _cancel_work(self) -> None:
        if self._work is not None:
            self._work.cancel()

    # --- the whole ---

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        """Flush, and make ``directory``, which must not exist, a store with the present content: see
        :meth:`state_backends.rows.OrderedStore.checkpoint`. Files are merged after it, not for it."""
        self.flush_only()
        return self._files.checkpoint(directory)

    def close(self) -> None:
        self._is_closed = True
        self._limit = 0
        self._cancel_work()
        if self._log is not None:
            self._log.close()
        self._files.close()

    @property
    def version(self) -> Version:
        return self._files.version

    def validate(self) -> None:
        self._memtable.validate()
        assert self._entries is self._memtable.entries
        assert self._limit in (0, self._options.memtable_bytes), self._limit
        assert not self._is_shared or self._limit == 0
        assert self._used >= self._memtable.size_bytes() or self._memtable.ranges, self._used
        self._files.validate()


def _check_ascending(keys: Sequence[bytes], last: bytes | None) -> None:
    before = keys if last is None else [last, *keys]
    for left, right in pairwise(before):
        if left >= right:
            raise StateArgumentError(
                f"ingest of unsorted entries: key {right!r} follows {left!r}. Sort them by key, without duplicates."
            )


def _level_for(version: Version, files: Sequence[FileMeta], options: LsmOptions) -> int:
    """The deepest level that may hold new files: neither it nor a level above says anything about their keys. When
    levels have sizes, it is the first one large enough for all files of the store."""
    span = span_of(files)
    deepest = len(version.levels) - 1
    if options.compaction == "levelled":
        size = sum(file.size_bytes for file in (*version.files(), *files))
        deepest = next((level for level in range(1, deepest) if options.level_bytes(level) >= size), deepest)
    for level in range(deepest + 1):
        if version.overlapping(level, span):
            return max(0, level - 1)
    return deepest
