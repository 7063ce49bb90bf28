"""Incremental snapshots of the heap backend: only key groups whose bytes have changed are uploaded.

Each key group with entries is one file in the full format. So the unit is coarse: one changed entry uploads its key
group. Small key groups make many small files. Use it with larger state, or with fewer key groups (a lower max
parallelism).

Rules (I1 to I8 of :mod:`state_backends.rows.incremental`, whose bookkeeping is used):

* A file is named after its key group and a digest of its content, so equal names mean equal bytes.
* The base is the newest confirmed checkpoint at the synchronous part. CHECKPOINT refers to the files that the base has.
  FULL_CHECKPOINT uploads all groups, and later ones may build on it; NATIVE_SAVEPOINT uploads all, exclusively.
* Unlike the files of a store, a key group may come back to content that it had before. A checkpoint between the base
  and this one may have other content, or another copy of the same; once it completes, the base's copy may be deleted.
  So a group is referred to only if every checkpoint begun in between, unless it is known to have failed, has this very
  copy of it; otherwise it is uploaded again. This also closes the hazard of two copies (H1).
* All groups are encoded for each checkpoint: this saves uploads and storage, not work.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from state_backends.base import KeyGroupRange
from state_backends.codec import StateCodec
from state_backends.rows import RestoredBase, UploadHistory, shared_files_of
from state_backends.snapshots import (
    CheckpointStream,
    Contents,
    EncodedBlock,
    FileStateHandle,
    FullKeyedStateHandle,
    FullSnapshotResources,
    FullSnapshotWriter,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotHeader,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    SnapshotType,
    StateId,
    StateReader,
    StateScope,
    StoreFile,
    StreamFactory,
    StreamStateHandle,
    checked_chunks,
    discard_all,
    full_handle,
)

STORE_NAME = "heap"
"""The name of this form in handles."""

_GROUP_DIGITS = 5
_META_SCOPE = StateScope.EXCLUSIVE


@dataclass(eq=False, slots=True)
class TakenGroups:
    """The known copies of the key groups of one checkpoint, while it is taken and after.

    :ivar checkpoint_id: the number of the checkpoint
    :ivar files: for each key group taken so far, its copy in storage
    :ivar is_finished: whether ``files`` is complete
    :ivar is_dropped: whether the checkpoint will never complete
    """

    checkpoint_id: int
    files: dict[int, StreamStateHandle] = field(default_factory=dict)
    is_finished: bool = False
    is_dropped: bool = False


class GroupHistory:
    """The copies of key groups that a checkpoint may refer to: pure bookkeeping."""

    def __init__(self, restored: RestoredBase | None = None) -> None:
        self.uploads = UploadHistory(restored)
        self._begun: list[TakenGroups] = []

    def begin(self, checkpoint_id: int) -> tuple[TakenGroups, CopyOf]:
        """A checkpoint begins; returns the object that notes its key groups, and the copies it may refer to."""
        view = partial(_copy_of, self.uploads.base(), tuple(self._begun))
        taken = TakenGroups(checkpoint_id)
        self._begun.append(taken)
        return taken, view

    def finish(self, taken: TakenGroups, files: Mapping[str, FileStateHandle]) -> None:
        """All files of a checkpoint are in storage."""
        taken.is_finished = True
        self.uploads.uploaded(taken.checkpoint_id, files)

    def give_up(self, taken: TakenGroups) -> None:
        """A snapshot is over; if it did not finish as a checkpoint, it is dropped."""
        if not taken.is_finished:
            self._drop(taken)

    def abort(self, checkpoint_id: int) -> None:
        for taken in [one for one in self._begun if one.checkpoint_id == checkpoint_id]:
            self._drop(taken)
        self.uploads.abort(checkpoint_id)

    def _drop(self, taken: TakenGroups) -> None:
        taken.is_dropped = True
        self._begun = [one for one in self._begun if one is not taken]

    def complete(self, checkpoint_id: int) -> None:
        self.uploads.complete(checkpoint_id)
        if self.uploads.base_checkpoint == checkpoint_id:
            self._begun = [taken for taken in self._begun if taken.checkpoint_id > checkpoint_id]

    def subsumed(self, checkpoint_id: int) -> None:
        """A checkpoint will never be restored from: neither it nor an older one is a base any more."""
        self.uploads.subsumed(checkpoint_id)
        self._begun = [taken for taken in self._begun if taken.checkpoint_id > checkpoint_id]

    def validate(self) -> None:
        self.uploads.validate()
        assert not any(taken.is_dropped for taken in self._begun)
        base = self.uploads.base_checkpoint
        assert base is None or all(taken.checkpoint_id != base for taken in self._begun), base


CopyOf = Callable[[int, str], FileStateHandle | None]
"""From a key group and the name of its file to the copy to refer to, if any. It is a copy of the base that cannot be
deleted before this checkpoint completes, because every checkpoint begun since the base has it too."""


def _copy_of(
    base: Mapping[str, FileStateHandle], between: Sequence[TakenGroups], group: int, name: str
) -> FileStateHandle | None:
    file = base.get(name)
    if file is None or any(not one.is_dropped and one.files.get(group) != file for one in between):
        return None
    return file


class IncrementalHeapResources(SnapshotResources):
    """The pinned state, the copies that the snapshot may refer to as of its synchronous part, and its own key
    groups."""

    def __init__(self, full: FullSnapshotResources, history: GroupHistory, checkpoint_id: int) -> None:
        self.full = full
        self.taken, self.base = history.begin(checkpoint_id)
        self._history = history

    def _release(self) -> None:
        try:
            self.full.release()
        finally:
            self._history.give_up(self.taken)


class IncrementalHeapStrategy:
    """Incremental and native snapshots of one heap backend.

    :ivar backend_id: names the backend in handles; a restore of the same key groups keeps it
    :ivar history: the uploaded copies
    """

    def __init__(
        self,
        pin: Callable[[], FullSnapshotResources],
        key_group_range: KeyGroupRange,
        backend_id: str,
        restored: RestoredBase | None = None,
    ) -> None:
        """``pin``: pins the present state. ``backend_id``: never given to another backend; the id in ``restored`` takes
        precedence."""
        self.backend_id = backend_id if restored is None else restored.backend_id
        self.history = GroupHistory(restored)
        self.key_group_range = key_group_range
        self._pin = pin

    def sync_prepare_resources(self, checkpoint_id: int) -> IncrementalHeapResources:
        return IncrementalHeapResources(self._pin(), self.history, checkpoint_id)

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> IncrementalHeapTask:
        assert isinstance(resources, IncrementalHeapResources)
        return IncrementalHeapTask(self, resources, stream_factory, options)


class IncrementalHeapTask(SnapshotTask[KeyedStateHandle]):
    """Encodes key group by key group, and uploads those that have changed.

    A step takes whole key groups, at least one, until it has encoded ``entries_per_step`` entries.
    """

    def __init__(
        self,
        strategy: IncrementalHeapStrategy,
        resources: IncrementalHeapResources,
        stream_factory: StreamFactory,
        options: SnapshotOptions,
    ) -> None:
        super().__init__(resources)
        assert options.type is not SnapshotType.CANONICAL_SAVEPOINT, "the full strategy writes canonical savepoints"
        self._strategy = strategy
        self._pinned = resources
        self._stream_factory = stream_factory
        self._options = options
        self._base = resources.base if options.type is SnapshotType.CHECKPOINT else None
        self._contents: Contents | None = None
        self._files: list[StoreFile] = []
        self._next_group = 0
        self._streams: list[CheckpointStream] = []

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self._contents is None:
            self._contents = self._pinned.full.contents()
        groups = self._contents.key_groups
        encoded = 0
        while self._next_group < len(groups) and encoded < self._options.entries_per_step:
            encoded += self._take(groups[self._next_group])
            self._next_group += 1
        if self._next_group < len(groups):
            return None
        result: SnapshotResult[KeyedStateHandle] = SnapshotResult(self._handle() if groups else None)
        # This comes last: uploads of a failed snapshot are deleted, so the history must not know them.
        if not self._options.type.is_savepoint:
            self._strategy.history.finish(self._pinned.taken, shared_files_of(self._files))
        return result

    def _take(self, group: int) -> int:
        """Refer to a key group or upload it; returns the number of its entries."""
        blocks = self._pinned.full.blocks(group)
        header = self._header((block.state for block in blocks), KeyGroupRange(group, group))
        name = f"{group:0{_GROUP_DIGITS}}-{_digest(header, blocks, self._pinned.full.codec)}"
        known = None if self._base is None else self._base(group, name)
        if known is None:
            file = StoreFile(name, self._write(header, self._data_scope, group, blocks), uploaded=True)
        else:
            file = StoreFile(name, known, uploaded=False)
        self._files.append(file)
        self._pinned.taken.files[group] = file.stream
        return sum(block.num_entries for block in blocks)

    @property
    def _data_scope(self) -> StateScope:
        return StateScope.EXCLUSIVE if self._options.type.is_savepoint else StateScope.SHARED

    def _header(self, states: Iterable[StateId], groups: KeyGroupRange) -> SnapshotHeader:
        return self._pinned.full.header(states, groups, self._options.compression)

    def _write(
        self, header: SnapshotHeader, scope: StateScope, group: int | None = None, blocks: Sequence[EncodedBlock] = ()
    ) -> StreamStateHandle:
        stream = self._stream_factory.create_stream(scope)
        self._streams.append(stream)
        writer = FullSnapshotWriter(stream, self._pinned.full.codec, header)
        if group is not None:
            writer.write_groups([(group, blocks)])
        return writer.finish().stream

    def _handle(self) -> IncrementalKeyedStateHandle:
        assert self._contents is not None
        meta = self._write(self._header(self._contents.states, self._strategy.key_group_range), _META_SCOPE)
        return IncrementalKeyedStateHandle(
            STORE_NAME,
            self._strategy.backend_id,
            self._strategy.key_group_range,
            self._pinned.taken.checkpoint_id,
            tuple(self._files),
            (),
            meta,
        )

    def _discard(self) -> None:
        discard_all(self._streams)


def _digest(header: SnapshotHeader, blocks: Sequence[EncodedBlock], codec: StateCodec) -> str:
    """A digest of everything that determines the bytes of a key group's file."""
    digest = hashlib.blake2b(codec.encode(header.to_state()), digest_size=16)
    for block in blocks:
        # No encoding is a prefix of another, so the joined bytes can be divided in one way only.
        digest.update(block.keys + block.namespaces + block.values)
    return digest.hexdigest()


class CheckedReader:
    """Reads whole files and checks them. A file of an older checkpoint in the place of a newer one is undamaged; only
    the checksum in the handle shows that it is the wrong file."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        """The bytes, at their start; an error when any byte is not as it was written."""
        with self._reader.open(handle) as file:
            return io.BytesIO(b"".join(checked_chunks(file, handle)))


def full_format_parts(handle: KeyedStateHandle) -> Iterator[FullKeyedStateHandle]:
    """The files in the full format of a handle, for the heap backend. The file to compare with the program comes first.
    A handle in a form that the heap backend cannot read is refused."""
    if not isinstance(handle, IncrementalKeyedStateHandle) or handle.store != STORE_NAME:
        yield full_handle(handle, STORE_NAME)
        return
    yield FullKeyedStateHandle(handle.key_group_range, (), handle.meta)
    for file in handle.shared_files:
        group = int(file.name[:_GROUP_DIGITS])
        # The offset is not needed: the file is read from its beginning to its end.
        yield FullKeyedStateHandle(KeyGroupRange(group, group), ((group, 0),), file.stream)


def restored_base(handles: Sequence[KeyedStateHandle], key_group_range: KeyGroupRange) -> RestoredBase | None:
    """The identity and files that carry over to a backend restored from these handles, if any do (I8)."""
    if len(handles) != 1 or handles[0].key_group_range != key_group_range:
        return None
    (handle,) = handles
    if not isinstance(handle, IncrementalKeyedStateHandle) or handle.store != STORE_NAME:
        return None
    return RestoredBase(handle.backend_id, handle.checkpoint_id, shared_files_of(handle.shared_files))
