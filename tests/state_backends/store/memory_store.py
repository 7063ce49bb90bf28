"""An ordered store in memory, as simple as can be: keyed state over a store is tested against it too.

Its checkpoints are files: one data file with everything, and one that names it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

import msgpack
from sortedcontainers import SortedDict

from state_backends.base import CorruptStateError
from state_backends.files import FileSystem, write_atomically

_INDEX = "INDEX"
_DATA_SUFFIX = ".data"


class MemorySnapshot:
    """The content of a store at one moment: a copy."""

    def __init__(self, owner: MemoryStore) -> None:
        self._owner = owner
        self._rows = owner.rows.copy()
        self.released = False
        owner.open_snapshots += 1

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert not self.released
        return _scan(self._rows, first, end)

    def release(self) -> None:
        if not self.released:
            self.released = True
            self._owner.open_snapshots -= 1


class MemoryStore:
    """A sorted map; ``open_snapshots`` counts those that are not released."""

    def __init__(self, file_system: FileSystem, directory: str, unique: str) -> None:
        self.rows: SortedDict = SortedDict()
        self.open_snapshots = 0
        self._file_system = file_system
        self._unique = unique
        self._count = 0
        index = posixpath.join(directory, _INDEX)
        if file_system.exists(index):
            path = posixpath.join(directory, file_system.read_bytes(index).decode())
            try:
                self.rows.update(msgpack.unpackb(file_system.read_bytes(path)))
            except Exception as problem:
                raise CorruptStateError(path, f"is no list of entries ({problem})") from problem
        else:
            file_system.make_dirs(directory)
            write_atomically(file_system, posixpath.join(directory, "EMPTY"), b"")

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self.rows.get(key)
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        self.write_many({key: value})

    def delete(self, key: bytes) -> None:
        self.write_many({key: None})

    def write_many(self, entries: Mapping[bytes, bytes | None]) -> None:
        for key, value in entries.items():
            assert type(key) is bytes
            if value is None:
                self.rows.pop(key, None)
            else:
                assert type(value) is bytes
                self.rows[key] = value

    def delete_range(self, first: bytes, end: bytes) -> None:
        for key in list(self.rows.irange(first, end, (True, False))):
            del self.rows[key]

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a range, as they are at the call."""
        return iter(list(_scan(self.rows, first, end)))

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(self)

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        """Load entries that ascend and are not there yet."""
        loaded = list(entries)
        keys = [key for key, _ in loaded]
        assert keys == sorted(set(keys)), "the rows do not ascend"
        assert not any(key in self.rows for key in keys)
        self.rows.update(loaded)

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        """Write everything into a new file."""
        name = f"{self._count:06}-{self._unique}{_DATA_SUFFIX}"
        self._count += 1
        self._file_system.make_dirs(directory)
        data = msgpack.packb(list(self.rows.items()))
        write_atomically(self._file_system, posixpath.join(directory, name), data)
        write_atomically(self._file_system, posixpath.join(directory, _INDEX), name.encode())
        return name, _INDEX

    def close(self) -> None:
        """Nothing is open but snapshots, which must not be."""
        assert self.open_snapshots == 0


def _scan(rows: SortedDict, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    for key in rows.irange(first, end, (True, False)):
        yield key, rows[key]


class MemoryStoreKind:
    name = "memory"

    def open(self, file_system: FileSystem, directory: str, unique: str) -> MemoryStore:
        """The store of a checkpoint, or an empty one."""
        return MemoryStore(file_system, directory, unique)

    def is_data_file(self, name: str) -> bool:
        """Whether it is one of those that hold entries."""
        return name.endswith(_DATA_SUFFIX)
