"""A file system in memory; :meth:`MemoryFileSystem.crash` loses all changes that were never made durable.

Every file keeps its content twice, as readers see it and as it was at its last fsync; every directory
keeps its names twice, as readers see them and as they were at its last directory fsync. A crash brings
the second of each back. This is the strictest reading of POSIX, and a caller that survives it survives
a real machine. A real machine may also keep *some* changes that were not made durable: ``crash`` takes a
function that chooses.

A rename without a later fsync does not lose the file. The old name is gone only if the change of the new
name survives too (ext4, XFS and btrfs journal both at once). The other way round, both names may be left
(rename(2): "there will probably be a window in which both oldpath and newpath refer to the file being
renamed"). The file is lost only if the program syncs the directory of the old name and not that of the new
one.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import BinaryIO, NamedTuple

from state_backends.base import StorageInUseError
from state_backends.files.port import DirectoryLock, FileSystem, RandomAccessFile, WritableFile

Survives = Callable[[str], bool]
"""Called with each change that was not made durable; returns whether it survives the crash."""


class _File:
    __slots__ = ("content", "durable")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""


class _Directory:
    __slots__ = ("durable", "left", "names")

    def __init__(self) -> None:
        self.names: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}
        self.left: dict[str, _Rename] = {}
        """By name, the last rename away from it since this directory's last fsync."""


class _Rename(NamedTuple):
    """The new place of a file or directory."""

    node: _File | _Directory
    directory: _Directory
    name: str

    @property
    def is_durable(self) -> bool:
        return self.directory.durable.get(self.name) is self.node


class MemoryFileSystem(FileSystem):
    """Files in memory. Every path is taken from one root, with or without a leading ``/``.

    :ivar crashes: the number of calls of :meth:`crash`
    :ivar changes: the number of changes
    """

    def __init__(self) -> None:
        self._root = _Directory()
        self._places: dict[str, _Directory] = {}
        """By path, directories that were asked for since the last time that one was moved or deleted."""
        self._locked: set[str] = set()
        self.crashes = 0
        self.changes = 0
        self._known: tuple[int, tuple[object, ...]] = (-1, ())
        """The last fingerprint, and the number of changes before it."""

    def crash(self, survives: Survives | None = None) -> None:
        """Lose all changes that were not made durable, all open files and all locks.

        :param survives: called with the path of each unsynced file content and each unsynced name, in
            sorted order; true keeps that one change. Default: nothing unsynced survives.
        """
        self.crashes += 1
        self.changes += 1
        self._locked.clear()
        self._root = _Crash(self._root, survives or (lambda path: False)).left()
        self._places.clear()

    def survivors(self) -> MemoryFileSystem:
        """A new file system with the files after a crash now, when no unsynced change survives."""
        left = MemoryFileSystem()
        left._root = _durable_copy(self._root)
        return left

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        directory, name = self._parent(path)
        existing = directory.names.get(name)
        if isinstance(existing, _Directory):
            raise _error(errno.EISDIR, path)
        if existing is not None and exclusive:
            raise _error(errno.EEXIST, path)
        if existing is None:
            existing = directory.names[name] = _File()
        existing.content.clear()
        self.changes += 1
        return _MemoryWritableFile(self, existing, path)

    def open_append(self, path: str) -> WritableFile:
        if not self.exists(path):
            return self.open_write(path)
        return _MemoryWritableFile(self, self._file(path), path)

    def open_read(self, path: str) -> BinaryIO:
        return io.BytesIO(bytes(self._file(path).content))

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._file(path).content)

    def open_random(self, path: str) -> RandomAccessFile:
        return _MemoryRandomAccessFile(self, self._file(path), path)

    def truncate(self, path: str, size_bytes: int) -> None:
        file = self._file(path)
        del file.content[size_bytes:]
        file.content.extend(bytes(size_bytes - len(file.content)))
        self.changes += 1
        file.durable = bytes(file.content)

    def rename(self, source: str, target: str) -> None:
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        node = from_directory.names.get(from_name)
        if node is None:
            raise _error(errno.ENOENT, source)
        replaced = to_directory.names.get(to_name)
        if isinstance(replaced, _Directory) and replaced is not node:
            if not isinstance(node, _Directory):
                raise _error(errno.EISDIR, target)
            if replaced.names:
                raise _error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, _File) and isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, target)
        self.changes += 1
        if isinstance(node, _Directory):
            self._places.clear()
        del from_directory.names[from_name]
        to_directory.names[to_name] = node
        if (from_directory, from_name) != (to_directory, to_name):
            from_directory.left[from_name] = _Rename(node, to_directory, to_name)

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.changes += 1
        directory.durable = dict(directory.names)
        directory.left.clear()

    def link(self, source: str, target: str) -> None:
        file = self._file(source)
        directory, name = self._parent(target)
        if name in directory.names:
            raise _error(errno.EEXIST, target)
        directory.names[name] = file
        self.changes += 1

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def delete(self, path: str) -> None:
        directory, name = self._parent(path)
        self._file(path)
        self.changes += 1
        del directory.names[name]

    def delete_tree(self, path: str) -> None:
        if self.is_dir(path):
            # Name by name, as in a real deletion: a crash may keep some names and lose others.
            for name in self.list_dir(path):
                child = f"{path}/{name}"
                if self.is_dir(child):
                    self.delete_tree(child)
                else:
                    self.delete(child)
            directory, name = self._parent(path)
            self.changes += 1
            self._places.clear()
            del directory.names[name]

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._node(path), _Directory)

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def make_dirs(self, path: str) -> None:
        directory = self._root
        for part in _parts(path):
            child = directory.names.get(part)
            if isinstance(child, _File):
                raise _error(errno.ENOTDIR, path)
            if child is None:
                child = directory.names[part] = _Directory()
                directory.durable[part] = child
                self.changes += 1
            directory = child

    def lock_directory(self, path: str) -> DirectoryLock:
        self.make_dirs(path)
        held = "/".join(_parts(path))
        if held in self._locked:
            raise StorageInUseError(path, None)
        self._locked.add(held)
        return _MemoryDirectoryLock(self, path, held)

    def fingerprint(self) -> tuple[object, ...]:
        """All names and contents, as readers see them. Whether they are durable makes no difference to a process that
        dies, only to a machine that loses power."""
        changes, fingerprint = self._known
        if changes != self.changes:
            fingerprint = _fingerprint(self._root)
            self._known = (self.changes, fingerprint)
        return fingerprint

    def _node(self, path: str) -> _File | _Directory | None:
        place, name = _split(path)
        directory = self._places.get(place) or self._place(place)
        if directory.__class__ is not _Directory:
            return None
        return directory if name is None else directory.names.get(name)

    def _place(self, place: str) -> _File | _Directory | None:
        """The directory at a path, if it is one."""
        node: _File | _Directory | None = self._root
        for part in _parts(place):
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        if isinstance(node, _Directory):
            self._places[place] = node
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        place, name = _split(path)
        if name is None:
            raise _error(errno.EINVAL, path)
        directory = self._places.get(place) or self._place(place)
        if not isinstance(directory, _Directory):
            code = errno.ENOENT if directory is None else errno.ENOTDIR
            raise _error(code, place)
        return directory, name


class _OpenFile:
    """After a crash of its file system every use of it is an error."""

    __slots__ = ("_closed", "_crashes", "_file", "_fs", "_path")

    def __init__(self, fs: MemoryFileSystem, file: _File, path: str) -> None:
        self._fs = fs
        self._file = file
        self._path = path
        self._crashes = fs.crashes
        self._closed = False

    def _check_open(self) -> None:
        if self._closed or self._fs.crashes != self._crashes:
            raise _error(errno.EBADF, self._path)

    def close(self) -> None:
        self._closed = True


class _MemoryWritableFile(_OpenFile, WritableFile):
    __slots__ = ()

    def write(self, data: bytes) -> int:
        self._check_open()
        self._file.content += data
        self._fs.changes += 1
        return len(data)

    def tell(self) -> int:
        self._check_open()
        return len(self._file.content)

    def flush(self) -> None:
        self._check_open()

    def fsync(self) -> None:
        self._check_open()
        self._fs.changes += 1
        self._file.durable = bytes(self._file.content)


class _MemoryRandomAccessFile(_OpenFile, RandomAccessFile):
    __slots__ = ("_size",)

    def __init__(self, fs: MemoryFileSystem, file: _File, path: str) -> None:
        super().__init__(fs, file, path)
        self._size = len(file.content)

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        self._check_open()
        return bytes(self._file.content[offset : offset + size])


class _MemoryDirectoryLock:
    def __init__(self, fs: MemoryFileSystem, path: str, held: str) -> None:
        self._fs = fs
        self._held = held
        self._crashes = fs.crashes
        self.path = path

    def release(self) -> None:
        # A crash has released this lock already; releasing it must not free a lock taken after the crash.
        if self._crashes == self._fs.crashes:
            self._fs._locked.discard(self._held)
        self._crashes = -1


def _fingerprint(directory: _Directory) -> tuple[object, ...]:
    return tuple(
        (name, bytes(node.content) if isinstance(node, _File) else _fingerprint(node))
        for name, node in sorted(directory.names.items())
    )


class _Crash:
    """Computes the tree of directories that a crash leaves."""

    def __init__(self, root: _Directory, survives: Survives) -> None:
        self._root = root
        self._survives = survives
        self._paths = dict(_directories(root, ""))
        self._known: dict[tuple[_Directory, str], bool] = {}

    def left(self) -> _Directory:
        """The tree after the crash; all of it is durable."""
        return self._directory(self._root, "")

    def _directory(self, directory: _Directory, path: str) -> _Directory:
        kept: dict[str, _File | _Directory] = {}
        for name in sorted(directory.names.keys() | directory.durable.keys()):
            child_path = f"{path}/{name}"
            chosen = directory.names if self._change_survives(directory, name) else directory.durable
            node = chosen.get(name)
            if isinstance(node, _Directory):
                kept[name] = self._directory(node, child_path)
            elif node is not None:
                kept[name] = _file_after_crash(node, child_path, self._survives)
        result = _Directory()
        result.names = kept
        result.durable = dict(kept)
        return result

    def _change_survives(self, directory: _Directory, name: str) -> bool:
        """Whether a name is as it was seen, and not as it was at the last fsync."""
        place = (directory, name)
        known = self._known.get(place)
        if known is None:
            changed = directory.names.get(name) is not directory.durable.get(name)
            known = not changed or self._survives(f"{self._paths[directory]}/{name}")
            # Names may have been renamed in a circle, so that each answer depends on another one.
            self._known[place] = known
            rename = directory.left.get(name)
            if known and rename is not None and not rename.is_durable and rename.directory in self._paths:
                known = self._known[place] = self._change_survives(rename.directory, rename.name)
        return known


def _directories(directory: _Directory, path: str) -> Iterator[tuple[_Directory, str]]:
    yield directory, path
    for name, node in {**directory.durable, **directory.names}.items():
        if isinstance(node, _Directory):
            yield from _directories(node, f"{path}/{name}")


def _durable_copy(directory: _Directory) -> _Directory:
    result = _Directory()
    for name, node in directory.durable.items():
        if isinstance(node, _Directory):
            result.names[name] = _durable_copy(node)
        else:
            file = result.names[name] = _File()
            file.content, file.durable = bytearray(node.durable), node.durable
    result.durable = dict(result.names)
    return result


def _file_after_crash(file: _File, path: str, survives: Survives) -> _File:
    # The same object, so that two names of one file still refer to one file.
    if bytes(file.content) != file.durable:
        if survives(path):
            file.durable = bytes(file.content)
        file.content = bytearray(file.durable)
    return file


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    # A checkpoint asks for the same few paths again and again.
    return tuple(part for part in path.split("/") if part not in ("", "."))


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str | None]:
    """The path of the directory that a name is in, and the name; without a name at the root."""
    parts = _parts(path)
    return ("/".join(parts[:-1]), parts[-1]) if parts else ("", None)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
