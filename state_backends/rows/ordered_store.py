"""The port of an embedded store of sorted bytes: implemented by our log-structured one and by the real RocksDB.

Keys and values are ``bytes``; keys are ordered as bytes. :mod:`state_backends.store` makes keyed state of it.

A store lives in one directory. Its files are of two kinds: *data files* are immutable once written and never reuse a
name, so that later snapshots may refer to those of earlier ones; all others (manifest, options) change and belong to
one snapshot each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from state_backends.files import FileSystem


class StoreSnapshot(Protocol):
    """The content of a store at one moment."""

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries with ``first <= key < end`` (``None``: to the last), ascending."""

    def release(self) -> None:
        """Pin nothing any more; a second call does nothing."""


class OrderedStore(Protocol):
    """A sorted map from bytes to bytes, in files.

    Every method may raise :class:`OSError` when the disk refuses, and
    :class:`state_backends.base.CorruptStateError` when a file is damaged.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or ``None``."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """:meth:`get` for each key."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store one entry."""

    def delete(self, key: bytes) -> None:
        """Remove an entry if it is there."""

    def write_many(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Store all entries; ``None`` removes."""

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Remove all entries with ``first <= key < end``."""

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries with ``first <= key < end`` (``None``: to the last), ascending, as they are at the call: what is
        written while iterating is not seen."""

    def snapshot(self) -> StoreSnapshot:
        """Pin the present content."""

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Bulk-load entries whose keys ascend and which are not in the store yet, past the write path."""

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        """Flush, and make ``directory``, which must not exist, a store with the present content: data files as hard
        links (copies where the file system has none), all others as copies. Returns the names of its files, sorted."""

    def close(self) -> None:
        """Release files and background work; a second call does nothing. The directory stays as it is."""


class StoreKind(Protocol):
    """A kind of store.

    :ivar name: stands in handles and metadata, such as ``lsm``
    """

    name: str

    def open(self, file_system: FileSystem, directory: str, unique: str) -> OrderedStore:
        """The store in a directory, with the files that are there, or a new one.

        :param unique: goes into the names of data files, and never repeats, crashes and restores included: so no two
            files ever have one name
        :raises CorruptStateError: when the files there are damaged or of another kind
        """

    def is_data_file(self, name: str) -> bool:
        """Whether a file of this name is immutable, so that several snapshots may share it."""
