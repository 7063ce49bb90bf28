"""Restore from the files of a store (RocksDBIncrementalRestoreOperation in Flink).

* One handle with exactly the backend's key groups: its files are taken as they are. Identity and base carry over, so
  the next checkpoint uploads only new files (I8).
* Any other handles, as after a change of parallelism: a new identity and no base. The handle with the most wanted key
  groups is taken as it is if at least half of its groups are wanted; ranges are deleted to clip it. The wanted rows of
  the others are inserted. A store that would mostly be clipped away is not taken: its files keep deleted rows for long,
  and all of them would be uploaded again. (Flink has the same threshold, and none by default.)

Every byte is checked against the checksum in the handle while it is copied. A restore that fails leaves no file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from state_backends.base import CorruptStateError, KeyGroupRange, StateSchemaError
from state_backends.codec import StateCodec
from state_backends.files import FileSystem
from state_backends.rows import (
    PART_BYTES,
    OrderedStore,
    RestoredBase,
    Row,
    StoreKind,
    group_prefix,
    part_prefix,
    part_rows,
    shared_files_of,
)
from state_backends.snapshots import (
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    StateReader,
    StoreFile,
    checked_chunks,
    describe_stream,
    unreadable_form,
)
from state_backends.store.meta import StoreMeta, clip_ranges

LEAST_BASE_OVERLAP = 0.5
"""The files of a store are taken as they are only if at least this share of its key groups is wanted."""


@dataclass(frozen=True, slots=True)
class NativeTarget:
    """The target of a restore.

    :ivar kind: the kind of store
    :ivar directory: the directory of the store; it does not exist yet
    :ivar scratch: the directory for stores that are only read; deleted at the end
    :ivar unique: part of the names of files, see :meth:`StoreKind.open`
    :ivar key_group_range: the key groups wanted
    """

    kind: StoreKind
    file_system: FileSystem
    directory: str
    scratch: str
    unique: str
    key_group_range: KeyGroupRange
    codec: StateCodec


class RestoredStore(NamedTuple):
    """A store with the state of a snapshot, the meaning of its rows, and the identity and files that carry over, if
    any do."""

    store: OrderedStore
    meta: StoreMeta
    base: RestoredBase | None


def restore_native(handles: Sequence[KeyedStateHandle], reader: StateReader, target: NativeTarget) -> RestoredStore:
    """Make the store of a fresh backend from snapshots, at least one of which has some of its key groups. Errors as of
    a restore; :class:`OSError` when a local file cannot be written."""
    parts = _parts(handles, target)
    assert parts, "nothing to restore from"
    restore = _Restore(reader, target)
    try:
        if len(parts) == 1 and parts[0].handle.key_group_range == target.key_group_range:
            return restore.take(parts[0].handle)
        return restore.merge(parts)
    except Exception as problem:
        restore.give_up(problem)
        raise


class _Part(NamedTuple):
    """A handle, and its key groups that are wanted."""

    handle: IncrementalKeyedStateHandle
    wanted: KeyGroupRange


def _parts(handles: Sequence[KeyedStateHandle], target: NativeTarget) -> list[_Part]:
    """The handles with wanted key groups, in the order of these."""
    parts = []
    for handle in handles:
        wanted = handle.key_group_range.intersection(target.key_group_range)
        if wanted is None:
            continue
        if not isinstance(handle, IncrementalKeyedStateHandle) or handle.store != target.kind.name:
            raise unreadable_form(handle, target.kind.name)
        parts.append(_Part(handle, wanted))
    parts.sort(key=lambda part: part.wanted.first)
    for left, right in pairwise(parts):
        if left.wanted.last >= right.wanted.first:
            raise StateSchemaError(
                f"key groups {left.wanted} and {right.wanted} overlap, so two parts of the snapshot hold the same "
                "state: they do not belong together."
            )
    return parts


@dataclass(slots=True)
class _Restore:
    """One restore under way. It knows the open stores, to close them at the end."""

    reader: StateReader
    target: NativeTarget
    open_stores: list[OrderedStore] = field(default_factory=list)

    def take(self, handle: IncrementalKeyedStateHandle) -> RestoredStore:
        """A store of the files as they are."""
        meta = self._meta(handle)
        store = self._open(handle, self.target.directory)
        base = RestoredBase(handle.backend_id, handle.checkpoint_id, shared_files_of(handle.shared_files))
        return RestoredStore(store, meta, base)

    def merge(self, parts: list[_Part]) -> RestoredStore:
        """One store from parts of several."""
        target = self.target
        metas = [self._meta(part.handle) for part in parts]
        first = _worth_taking(parts)
        if first is None:
            store = self._opened(target.directory)
            meta = replace(metas[0], states=())
        else:
            store = self._open(first.handle, target.directory)
            for start, end in clip_ranges(target.key_group_range):
                store.delete_range(start, end)
            meta = metas[parts.index(first)]
        for number, (part, its_meta) in enumerate(zip(parts, metas, strict=True)):
            if part is not first:
                meta, new_ids = meta.merged(its_meta)
                self._insert(part, store, new_ids, posixpath.join(target.scratch, str(number)))
        target.file_system.delete_tree(target.scratch)
        return RestoredStore(store, replace(meta, key_group_range=target.key_group_range), None)

    def give_up(self, problem: Exception) -> None:
        file_system = self.target.file_system
        try:
            for store in self.open_stores:
                store.close()
            file_system.delete_tree(self.target.directory)
            file_system.delete_tree(self.target.scratch)
        except OSError as another:
            problem.add_note(f"what was restored could not be deleted either: {another}")

    def _insert(self, part: _Part, store: OrderedStore, new_ids: dict[int, int], directory: str) -> None:
        source = self._open(part.handle, directory)
        path = describe_stream(part.handle.meta)
        store.ingest(_rows(source, part.wanted, new_ids, path))
        source.close()
        self.open_stores.remove(source)
        self.target.file_system.delete_tree(directory)

    def _open(self, handle: IncrementalKeyedStateHandle, directory: str) -> OrderedStore:
        file_system = self.target.file_system
        assert not file_system.exists(directory), f"{directory} exists"
        file_system.make_dirs(directory)
        for file in (*handle.shared_files, *handle.private_files):
            _download(file, self.reader, file_system, directory)
        return self._opened(directory)

    def _opened(self, directory: str) -> OrderedStore:
        target = self.target
        store = target.kind.open(target.file_system, directory, target.unique)
        self.open_stores.append(store)
        return store

    def _meta(self, handle: IncrementalKeyedStateHandle) -> StoreMeta:
        path = describe_stream(handle.meta)
        with self.reader.open(handle.meta) as file:
            data = b"".join(checked_chunks(file, handle.meta))
        meta = StoreMeta.from_bytes(data, path, self.target.codec)
        if meta.key_group_range != handle.key_group_range:
            raise CorruptStateError(
                path, f"it is about key groups {meta.key_group_range}, its handle about {handle.key_group_range}"
            )
        return meta


def _worth_taking(parts: list[_Part]) -> _Part | None:
    """The part with the most wanted key groups (the first of equals), if enough of all its key groups are wanted."""
    best = max(parts, key=lambda part: len(part.wanted))
    return best if len(best.wanted) >= LEAST_BASE_OVERLAP * len(best.handle.key_group_range) else None


def _rows(store: OrderedStore, wanted: KeyGroupRange, new_ids: dict[int, int], path: str) -> Iterator[Row]:
    """The rows of some key groups, ascending, with other state ids."""
    in_order = sorted(new_ids.items(), key=lambda one: one[1])
    if in_order == sorted(new_ids.items()):
        # The new ids are in the order of the old ones, so the rows still ascend.
        prefixes = {old.to_bytes(2, "big"): new.to_bytes(2, "big") for old, new in in_order}
        for key, value in store.scan(group_prefix(wanted.first), group_prefix(wanted.last + 1)):
            prefix = prefixes.get(key[2:PART_BYTES])
            if prefix is None:
                raise CorruptStateError(path, f"it says nothing about state {int.from_bytes(key[2:PART_BYTES])}")
            yield key[:2] + prefix + key[PART_BYTES:], value
        return
    for group in wanted:
        for old, new in in_order:
            prefix = part_prefix(group, new)
            for key, value in part_rows(store, group, old):
                yield prefix + key[PART_BYTES:], value


def _download(file: StoreFile, reader: StateReader, file_system: FileSystem, directory: str) -> None:
    if posixpath.basename(file.name) != file.name or file.name in ("", ".", ".."):
        raise CorruptStateError(describe_stream(file.stream), f"{file.name!r} is no name of a file in a store")
    target = posixpath.join(directory, file.name)
    with file_system.open_write(target, exclusive=True) as copy, reader.open(file.stream) as original:
        for piece in checked_chunks(original, file.stream):
            copy.write(piece)
