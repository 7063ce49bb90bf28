"""The durable half of a store: its present version, its manifest, readers of its files, and the pins on them.

A change of the version has four steps, in this order, so that a crash between any two of them loses nothing:

1. the new files are whole, under their names (and, with ``sync``, durable);
2. the edit that names them is in the manifest;
3. the version in memory changes, and readers see the new files;
4. files that are no longer named are deleted, once no snapshot or scan that began earlier needs them.

If step 2 fails, it is unknown whether the manifest has the edit. The new files then stay, and the version does not
change. Before the next change the store begins a new manifest with the version as it is.
"""

from __future__ import annotations

import errno
import posixpath
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from state_backends.base import CorruptStateError
from state_backends.files import TEMPORARY_SUFFIX, FileSystem
from state_backends.lsm.block import ABSENT, Columns, decoded_bytes, value_in
from state_backends.lsm.block_cache import BlockCache, OpenFiles
from state_backends.lsm.bloom import MASK_SHIFT, MASKS
from state_backends.lsm.files import (
    CURRENT_NAME,
    MANIFEST_PREFIX,
    SST_SUFFIX,
    WAL_SUFFIX,
    delete_quietly,
    is_own,
    link_or_copy,
)
from state_backends.lsm.fixed_width import FixedColumns, Widths
from state_backends.lsm.manifest import ManifestContent, ManifestLog, read_current, write_manifest
from state_backends.lsm.merge import MergeSource, pieces_of_run, ranges_of
from state_backends.lsm.sst import SstWriter, Table, open_table
from state_backends.lsm.store_options import LsmOptions
from state_backends.lsm.version import FileMeta, Version, VersionEdit, file_number


class ReadView(NamedTuple):
    """A version as readers use it: the files of level 0, newest first; and for each deeper level that has files, the
    smallest key of each file and the files."""

    level0: tuple[Table, ...]
    levels: tuple[tuple[list[bytes], tuple[Table, ...]], ...]


class Pin(NamedTuple):
    """A version with a reader: its files stay until the pin is released."""

    epoch: int
    view: ReadView


class FileSet:
    """The files of one open store.

    :ivar version: all files at present
    :ivar view: the same for readers
    :ivar log_number: the content of write-ahead logs with smaller numbers is in the files already
    """

    def __init__(self, fs: FileSystem, directory: str, unique: str, options: LsmOptions) -> None:
        """Open the store in the directory, or a new one; :meth:`begin` deletes unused files."""
        self.fs = fs
        self.directory = directory
        self.options = options
        self._unique = unique
        self.cache = BlockCache(options.cache_bytes)
        self._open_files = OpenFiles(fs, directory, options.max_open_files)
        self._tables: dict[str, Table] = {}
        self._pins: dict[int, int] = {}
        self._epoch = 0
        self._closed = False
        # (the last epoch that names the files, their names), oldest first
        self._obsolete: deque[tuple[int, tuple[str, ...]]] = deque()
        # Files that an edit in doubt may name.
        self._doubtful: list[str] = []
        self._manifest: ManifestLog | None = None
        fs.make_dirs(directory)
        try:
            self._open()
        except BaseException:
            self._open_files.close_all()
            raise

    # --- opening ---

    def _open(self) -> None:
        content = self._recover()
        self.version = content.version.with_depth(self.options.max_levels)
        self.log_number = content.log_number
        self._next_number = content.next_number
        for name in self.fs.list_dir(self.directory):
            self._next_number = max(self._next_number, _number_in(name) + 1)
        for file in self.version.files():
            self._tables[file.name] = self._opened(file)
        self.view = self._new_view()

    def _recover(self) -> ManifestContent:
        if self.fs.exists(self.path(CURRENT_NAME)):
            return read_current(self.fs, self.directory)
        left = [name for name in self.fs.list_dir(self.directory) if name.endswith((SST_SUFFIX, WAL_SUFFIX))]
        if left:
            raise CorruptStateError(self.path(CURRENT_NAME), f"is missing although {left[0]} is there")
        return ManifestContent(Version.empty(self.options.max_levels), next_number=1, log_number=0)

    def _opened(self, file: FileMeta) -> Table:
        path = self.path(file.name)
        if not self.fs.exists(path):
            raise CorruptStateError(path, "is missing although the manifest names it")
        return open_table(self._open_files.get(file.name), path, file)

    def logs_to_replay(self) -> list[str]:
        """The names of the write-ahead logs whose content is in no file yet, the oldest first."""
        names = [name for name in self.fs.list_dir(self.directory) if name.endswith(WAL_SUFFIX)]
        return sorted((name for name in names if _number_in(name) >= self.log_number), key=_number_in)

    def begin(self) -> None:
        """Begin this opening's manifest, then delete the store's files that it does not name."""
        self._new_manifest()
        assert self._manifest is not None
        for name in self.fs.list_dir(self.directory):
            is_used = name in self._tables or name == self._manifest.name
            is_log = name.endswith(WAL_SUFFIX) and _number_in(name) >= self.log_number
            if is_own(name) and not is_used and not is_log:
                delete_quietly(self.fs, self.path(name))

    # --- names ---

    def path(self, name: str) -> str:
        return posixpath.join(self.directory, name)

    def new_name(self, suffix: str) -> str:
        """A name that no file has had."""
        number = self._next_number
        self._next_number += 1
        return f"{number:06d}-{self._unique}{suffix}"

    @property
    def next_number(self) -> int:
        """The number of the next new name."""
        return self._next_number

    def writer(self) -> SstWriter:
        return SstWriter(self.fs, self.directory, self.new_name(SST_SUFFIX), self.options)

    # --- changes ---

    def install(self, edit: VersionEdit, tables: Iterable[Table] = (), log_number: int | None = None) -> None:
        """Change the version. When the edit cannot be written (:class:`OSError`), the version stays as it was.

        :param tables: the new files
        :param log_number: from now on, the content of write-ahead logs with smaller numbers is in the files
        """
        new = {table.meta.name: table for table in tables}
        after = self.version.applied(edit)
        log = self.log_number if log_number is None else log_number
        try:
            self._write_down(edit, log)
        except OSError:
            self._doubtful += new
            raise
        self.version = after
        self.log_number = log
        self._tables.update(new)
        kept = after.level_of()
        gone = tuple(name for name in edit.removed if name not in kept)
        if gone:
            self._obsolete.append((self._epoch, gone))
        self._epoch += 1
        self.view = self._new_view()
        self.delete_obsolete()

    def _write_down(self, edit: VersionEdit, log_number: int) -> None:
        self.resolve_doubt()
        if self._manifest is not None and self._manifest.grown_bytes >= self.options.manifest_bytes:
            self._new_manifest()
        assert self._manifest is not None
        self._manifest.append(edit, self._next_number, log_number)

    def resolve_doubt(self) -> None:
        """If the last edit failed, begin a manifest without it."""
        if self._manifest is None or self._manifest.doubtful:
            self._new_manifest()

    def _new_manifest(self) -> None:
        """Begin another manifest with the present version, and make ``CURRENT`` name it."""
        before, self._manifest = self._manifest, None
        if before is not None:
            # Even if a step below fails, the old one is not continued: CURRENT may name either.
            self._doubtful.append(before.name)
            before.close()
        name = MANIFEST_PREFIX + self.new_name("")
        self._doubtful.append(name)
        self._manifest = ManifestLog(self.fs, self.directory, name, self._content(), sync=self.options.sync)
        for doubtful in self._doubtful:
            if doubtful != name:
                delete_quietly(self.fs, self.path(doubtful))
        self._doubtful = []

    def _content(self) -> ManifestContent:
        return ManifestContent(self.version, self._next_number, self.log_number)

    def _new_view(self) -> ReadView:
        tables = [tuple(self._tables[file.name] for file in files) for files in self.version.levels]
        return ReadView(tables[0], tuple(([one.smallest for one in level], level) for level in tables[1:] if level))

    # --- pins ---

    def pin(self) -> Pin:
        self._pins[self._epoch] = self._pins.get(self._epoch, 0) + 1
        return Pin(self._epoch, self.view)

    def pin_again(self, pin: Pin) -> Pin:
        """Add a pin to a version that is pinned already."""
        self._pins[pin.epoch] += 1
        return pin

    def unpin(self, pin: Pin) -> None:
        """Release a pin. It deletes no file, because a scan may end at any time, such as when it is garbage-collected:
        the next change does, or :meth:`delete_obsolete`."""
        left = self._pins.pop(pin.epoch) - 1
        if left:
            self._pins[pin.epoch] = left

    def delete_obsolete(self) -> None:
        """Delete the files that are in neither the present version nor a pinned one."""
        if self._closed:
            return
        oldest = min(self._pins, default=self._epoch)
        while self._obsolete and self._obsolete[0][0] < oldest:
            _, names = self._obsolete.popleft()
            for name in names:
                self.cache.forget(self._tables.pop(name))
                self._open_files.close(name)
                delete_quietly(self.fs, self.path(name))

    # --- reading ---

    def find(self, key: bytes) -> bytes | None:
        """The value under a key in the files, or ``None``."""
        hashed = crc32(key)
        mask = MASKS[hashed >> MASK_SHIFT]
        blocks = self.cache.blocks
        level0, levels = self.view
        for table in level0:
            if table.words[hashed % table.word_count] & mask == mask and table.smallest <= key < table.limit:
                index = bisect_right(table.first_keys, key) - 1
                if index >= 0:
                    block = blocks.get(table.base + index)
                    value = self._value(table, index, key) if block is None else block.get(key, ABSENT)
                    if value is not ABSENT:
                        return value
            if table.ranges.ranges and table.ranges.covers(key):
                return None
        for smallest, tables in levels:
            position = bisect_right(smallest, key) - 1
            if position < 0:
                continue
            table = tables[position]
            if table.words[hashed % table.word_count] & mask == mask and key < table.limit:
                index = bisect_right(table.first_keys, key) - 1
                if index >= 0:
                    block = blocks.get(table.base + index)
                    value = self._value(table, index, key) if block is None else block.get(key, ABSENT)
                    if value is not ABSENT:
                        return value
            if table.ranges.ranges and table.ranges.covers(key):
                return None
        return None

    def _value(self, table: Table, index: int, key: bytes) -> bytes | None:
        """The value of a key in a block that is not decoded in the cache, or ``ABSENT``."""
        cache, number = self.cache, table.base + index
        data = cache.packed.get(number)
        if data is None:
            data = table.read_packed(self._open_files.get(table.meta.name), index)
            cache.put_packed(number, data)
        elif cache.is_wanted(number):
            keys, values = table.unpack(data, index)
            block = dict(zip(keys, values, strict=True))
            cache.put(number, block, decoded_bytes(len(data), len(block)))
            return block.get(key, ABSENT)
        try:
            return value_in(data, key)
        except ValueError as problem:
            raise table.senseless(index, problem) from problem

    def table(self, name: str) -> Table:
        return self._tables[name]

    def read(self, table: Table, start: int, stop: int) -> Columns:
        return table.read(self._open_files.get(table.meta.name), start, stop)

    def read_fixed(self, table: Table, start: int, stop: int, widths: Widths) -> FixedColumns:
        return table.read_fixed(self._open_files.get(table.meta.name), start, stop, widths)

    def read_cached(self, table: Table, start: int, stop: int) -> Columns:
        """The entries of some blocks; a single block is read through the cache."""
        if stop > start + 1:
            return self.read(table, start, stop)
        block = self.cache.blocks.get(table.base + start)
        if block is not None:
            return list(block), list(block.values())
        data = self.cache.packed.get(table.base + start)
        if data is None:
            data = table.read_packed(self._open_files.get(table.meta.name), start)
            self.cache.put_packed(table.base + start, data)
        return table.unpack(data, start)

    def sources(self, view: ReadView, first: bytes, end: bytes | None) -> list[MergeSource]:
        """The entries of a range in the files of a view, as sources to merge, the newest first."""
        runs: list[Sequence[Table]] = [(table,) for table in view.level0]
        for smallest, tables in view.levels:
            stop = None if end is None else bisect_left(smallest, end)
            runs.append(tables[max(0, bisect_right(smallest, first) - 1) : stop])
        sources = []
        for run in runs:
            chosen = [table for table in run if first < table.limit and (end is None or table.smallest < end)]
            if chosen:
                pieces = pieces_of_run(self.read_cached, chosen, first, end, 1)
                sources.append(MergeSource(pieces, ranges_of(chosen)))
        return sources

    # --- the whole ---

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        """Make a store of the present files in a new directory; returns the names of its files, sorted."""
        if self.fs.exists(directory):
            raise FileExistsError(errno.EEXIST, "a checkpoint needs a directory of its own", directory)
        sync = self.options.sync
        manifest = MANIFEST_PREFIX + self.new_name("")
        try:
            self.fs.make_dirs(directory)
            names = [file.name for file in self.version.files()]
            for name in names:
                link_or_copy(self.fs, self.path(name), posixpath.join(directory, name), sync=sync)
            content = ManifestContent(self.version, self._next_number, self._next_number)
            write_manifest(self.fs, directory, manifest, content, sync=sync)
        except OSError:
            with suppress(OSError):
                self.fs.delete_tree(directory)
            raise
        return tuple(sorted((*names, manifest, CURRENT_NAME)))

    def close(self) -> None:
        """Close all files; from now on the store deletes none."""
        self._closed = True
        self._open_files.close_all()
        if self._manifest is not None:
            self._manifest.close()

    def validate(self) -> None:
        self.version.validate()
        self.cache.validate()
        named = {file.name for file in self.version.files()}
        waiting = {name for _, names in self._obsolete for name in names}
        assert not named & waiting, named & waiting
        assert self._tables.keys() == named | waiting
        for name in self._tables:
            assert self.fs.exists(self.path(name)), name
            assert not self.fs.exists(self.path(name) + TEMPORARY_SUFFIX), name


def _number_in(name: str) -> int:
    try:
        return file_number(name)
    except ValueError:
        return -1
