"""What a store looks like from outside: its levels and files, for inspection."""

from __future__ import annotations

from dataclasses import dataclass

from state_backends.lsm.manifest import read_manifest
from state_backends.lsm.version import FileMeta, Version


@dataclass(frozen=True, slots=True)
class FileDescription:
    """A file of entries.

    :ivar level: 0 = flushed and not compacted yet
    :ivar entries: tombstones included
    :ivar smallest: the first key that it says anything about
    :ivar largest: the last one, or the end of a range that it deletes
    """

    name: str
    level: int
    size_bytes: int
    entries: int
    tombstones: int
    range_tombstones: int
    smallest: bytes
    largest: bytes


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """A store at one moment.

    :ivar files: by level; in level 0 the newest first, elsewhere ascending by key
    :ivar memtable_entries: in memory only, tombstones included
    :ivar memtable_bytes: of their keys and values
    :ivar cache_bytes: the estimated size of decoded blocks in memory
    """

    files: tuple[FileDescription, ...]
    memtable_entries: int = 0
    memtable_bytes: int = 0
    cache_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def files_of(version: Version) -> tuple[FileDescription, ...]:
    """The files of a version."""
    return tuple(_described(level, file) for level, files in enumerate(version.levels) for file in files)


def _described(level: int, file: FileMeta) -> FileDescription:
    return FileDescription(
        file.name, level, file.size_bytes, file.entries, file.tombstones, file.range_tombstones,
        file.smallest, file.largest,
    )  # fmt: skip


def describe_manifest(data: bytes, path: str = "MANIFEST") -> StoreDescription:
    """What a store that is not open consists of, from the bytes of its manifest alone.

    :param path: how errors name it
    :raises CorruptStateError: when it is damaged
    :raises StateSchemaError: when a newer program wrote it
    """
    return StoreDescription(files_of(read_manifest(data, path).version))
