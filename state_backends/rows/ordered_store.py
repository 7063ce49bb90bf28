"""The port of an embedded store of sorted bytes. Weir's log-structured store and the real RocksDB implement it.

Keys and values are ``bytes``; keys are ordered as bytes. :mod:`state_backends.store` keeps keyed state in it.

A store lives in one directory. It has two kinds of files. *Data files* never change after they are written and never
reuse a name, so later snapshots may refer to those of earlier ones. All others (manifest, options) change, and each
snapshot has its own.
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
        """Release the content; a second call does nothing."""


class OrderedStore(Protocol):
    """A sorted map from bytes to bytes, in files.

    Every method may raise :class:`OSError` when the disk fails, and
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
        """The entries with ``first <= key < end`` (``None``: to the last), ascending, as they are at the call: later
        writes are not seen."""

    def snapshot(self) -> StoreSnapshot:
        """Pin the present content."""

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Bulk-load entries, without the write path. Their keys ascend and are not in the store yet."""

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        """Flush, and make a store with the present content in ``directory``, which must not exist. Data files are hard
        links (copies where the file system has none), all others copies. Returns the names of its files, sorted."""

    def close(self) -> None:
        """Release files and background work; a second call does nothing. The directory stays as it is."""


class StoreKind(Protocol):
    """A kind of store.

    :ivar name: its name in handles and metadata, such as ``lsm``
    """

    name: str

    def open(self, file_system: FileSystem, directory: str, unique: str) -> OrderedStore:
        """The store in a directory, with the files that are there, or a new one.

        :param unique: part of the names of data files. It never repeats, even after a crash or a restore, so no two
            files ever have the same name
        :raises CorruptStateError: when the files there are damaged or of another kind
        """

    def is_data_file(self, name: str) -> bool:
        """Whether a file of this name is immutable, so that several snapshots may share it."""
