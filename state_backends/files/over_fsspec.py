"""The file-system port over any file system that fsspec reaches, above all object stores (extra ``fsspec``).

An object store lacks these operations; the port replaces them:

* *fsync*: an object is invisible until it is closed; then it is whole and durable. So ``flush`` and ``fsync`` close
  it. Later writes append; most stores then write the whole object again.
* *rename*: a copy, which appears at once, and a deletion. A reader sees the old file or the new one, whole; a crash in
  between leaves both names. A directory is renamed file by file, and not atomically.
* *hard link*: a copy. For files that are not written any more, this makes no difference.
* *directories*: prefixes of names. A directory that was made has a hidden marker object, so it exists while empty.
* *exclusive creation*: a look-up, then the creation. If two processes try at once, both may succeed.
* *locks*: an object that names the holder. It stays when the holder is killed. A later run on the same host notices
  that the process has ended, and takes over; on another host the user must delete the object.

Paths may be URLs or the part after their ``://``. The port does not use directory listings cached by fsspec. Errors of
the store that are not an :class:`OSError` become one. Some implementations of fsspec run threads of their own.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from state_backends.base import StateArgumentError, StorageInUseError, StorageNotWritableError
from state_backends.files.local import LOCK_FILE_NAME, LocalFileSystem
from state_backends.files.port import DirectoryLock, FileSystem, WritableFile

MARKER_NAME = ".directory"
"""The object that makes an empty directory exist in a store that has none; never listed."""

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL_PROTOCOLS = ("file", "local")
_ERROR_NUMBERS: tuple[tuple[type[OSError], int], ...] = (
    (FileNotFoundError, errno.ENOENT),
    (FileExistsError, errno.EEXIST),
    (IsADirectoryError, errno.EISDIR),
    (NotADirectoryError, errno.ENOTDIR),
    (PermissionError, errno.EACCES),
    (TimeoutError, errno.ETIMEDOUT),
)


def file_system_for(text: str) -> tuple[FileSystem, str]:
    """The file system of a directory or URL, and the prefix of paths in it.

    Paths without ``://``, and ``file://`` URLs, are on the real file system of this machine.

    :raises StateArgumentError: when fsspec, or the package for this kind of URL, is not installed; when there is no
        such kind; on a URL that chains several kinds
    """
    if not _URL.match(text):
        return LocalFileSystem(), text
    protocol, _, rest = text.partition("://")
    if protocol.lower() in _LOCAL_PROTOCOLS:
        return LocalFileSystem(), _local_path(text)
    return FsspecFileSystem(text), f"{protocol}://{rest.rstrip('/')}"


def _local_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StateArgumentError(f"{url}: names no path on this machine. Write three slashes: file:///path")
    return parts.path


class FsspecFileSystem(FileSystem):
    """Files below a URL, through fsspec. Its implementation looks for the credentials."""

    def __init__(self, url: str, **storage_options: Any) -> None:
        """Connect; no file is touched.

        :param url: any URL on the file system
        :param storage_options: settings of fsspec's implementation
        :raises StateArgumentError: see :func:`file_system_for`
        """
        self._fs = _open_file_system(url, storage_options)
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else tuple(self._fs.protocol)
        self._prefix = re.compile(rf"^(?:{'|'.join(map(re.escape, protocols))}):/*")
        self._protocol = protocols[0]
        self._renames = any(one in _LOCAL_PROTOCOLS for one in protocols)

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        with _translated(path):
            self._require_parent(path)
            kind = self._kind(path)
            if kind == "directory":
                raise IsADirectoryError
            if kind is not None and exclusive:
                raise FileExistsError
            return _FsspecWritableFile(self._fs, self._key(path), path, 0, self._fs.open(self._key(path), "wb"))

    def open_append(self, path: str) -> WritableFile:
        if not self.exists(path):
            return self.open_write(path)
        with _translated(path):
            return _FsspecWritableFile(self._fs, self._key(path), path, self.size(path), None)

    def open_read(self, path: str) -> BinaryIO:
        with _translated(path):
            self._require_file(path)
            opened = self._fs.open(self._key(path), "rb")
            if isinstance(opened, io.BytesIO):
                # In memory, fsspec gives all readers and writers one object with one position.
                return io.BytesIO(opened.getvalue())
            return cast("BinaryIO", opened)

    def truncate(self, path: str, size_bytes: int) -> None:
        with _translated(path):
            self._require_file(path)
            data = self._fs.cat_file(self._key(path))[:size_bytes]
            self._fs.pipe_file(self._key(path), data + bytes(size_bytes - len(data)))

    def rename(self, source: str, target: str) -> None:
        with _translated(source):
            kind = self._require(source)
        with _translated(target):
            self._require_parent(target)
            replaced = self._kind(target)
            if self._key(source) == self._key(target):
                return
            if kind == "file" and replaced == "directory":
                raise IsADirectoryError
            if kind == "directory" and replaced == "file":
                raise NotADirectoryError
            if kind == "directory" and replaced == "directory" and self._names(target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            if kind == "file":
                self._move_file(self._key(source), self._key(target))
            else:
                self._move_directory(source, target)

    def fsync_dir(self, path: str) -> None:
        with _translated(path):
            self._require_directory(path)

    def link(self, source: str, target: str) -> None:
        with _translated(source):
            self._require_file(source)
        with _translated(target):
            self._require_parent(target)
            if self._kind(target) is not None:
                raise FileExistsError
            self._copy_file(self._key(source), self._key(target))

    def list_dir(self, path: str) -> list[str]:
        with _translated(path):
            self._require_directory(path)
            return self._names(path)

    def delete(self, path: str) -> None:
        with _translated(path):
            self._require_file(path)
            self._fs.rm_file(self._key(path))

    def delete_tree(self, path: str) -> None:
        with _translated(path):
            if self._kind(path) == "directory":
                self._fs.rm(self._key(path), recursive=True)

    def exists(self, path: str) -> bool:
        with _translated(path):
            return self._kind(path) is not None

    def is_dir(self, path: str) -> bool:
        with _translated(path):
            return self._kind(path) == "directory"

    def size(self, path: str) -> int:
        with _translated(path):
            self._require_file(path)
            return int(self._fs.info(self._key(path))["size"])

    def make_dirs(self, path: str) -> None:
        with _translated(path):
            missing = []
            directory = self._key(path)
            while directory.strip("/") and (kind := self._kind_of_key(directory)) != "directory":
                if kind == "file":
                    raise NotADirectoryError
                missing.append(directory)
                directory = posixpath.dirname(directory)
            if missing:
                self._fs.makedirs(missing[0], exist_ok=True)
            for one in reversed(missing):
                if self._kind_of_key(one) is None:
                    self._fs.pipe_file(f"{one}/{MARKER_NAME}", b"")

    def lock_directory(self, path: str) -> DirectoryLock:
        return FsspecDirectoryLock(self, path)

    def walk_files(self, path: str) -> Iterator[str]:
        with _translated(path):
            if self._kind(path) != "directory":
                return
            start = len(self._key(path).rstrip("/")) + 1
            found = [self._fs._strip_protocol(name)[start:] for name in self._fs.find(self._key(path))]
        for name in sorted(found, key=lambda one: one.split("/")):
            if posixpath.basename(name) != MARKER_NAME:
                yield posixpath.join(path, name)

    # -- names ----------------------------------------------------------------------------------------------------

    def _key(self, path: str) -> str:
        """The path in fsspec's form. ``dirname`` of a URL may have removed one slash too many."""
        return str(self._fs._strip_protocol(self._prefix.sub(f"{self._protocol}://", path)))

    def _names(self, path: str) -> list[str]:
        key = self._key(path).rstrip("/")
        names = (self._fs._strip_protocol(one) for one in self._fs.ls(self._key(path), detail=False))
        # Some stores list the directory itself, too.
        return sorted({posixpath.basename(one) for one in names if one.rstrip("/") != key} - {MARKER_NAME})

    # -- what is there --------------------------------------------------------------------------------------------

    def _kind(self, path: str) -> str | None:
        return self._kind_of_key(self._key(path))

    def _kind_of_key(self, key: str) -> str | None:
        """``file``, ``directory`` or ``None``. (fsspec's own ``exists`` takes a broken network for a missing file.)"""
        if not key.strip("/"):
            return "directory"
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return "directory" if info["type"] == "directory" else "file"

    def _require(self, path: str) -> str:
        kind = self._kind(path)
        if kind is None:
            raise FileNotFoundError
        return kind

    def _require_file(self, path: str) -> None:
        if self._require(path) == "directory":
            raise IsADirectoryError

    def _require_directory(self, path: str) -> None:
        if self._require(path) == "file":
            raise NotADirectoryError

    def _require_parent(self, path: str) -> None:
        parent = posixpath.dirname(self._key(path).rstrip("/"))
        kind = self._kind_of_key(parent)
        if kind is None:
            raise FileNotFoundError
        if kind == "file":
            raise NotADirectoryError

    # -- moving ---------------------------------------------------------------------------------------------------

    def _copy_file(self, source: str, target: str) -> None:
        try:
            self._fs.cp_file(source, target)
        except NotImplementedError:
            self._fs.pipe_file(target, self._fs.cat_file(source))

    def _move_file(self, source: str, target: str) -> None:
        if self._renames:
            self._fs.mv(source, target)
        else:
            self._copy_file(source, target)
            self._fs.rm_file(source)

    def _move_directory(self, source: str, target: str) -> None:
        if self._renames:
            self.delete_tree(target)
            self._fs.mv(self._key(source), self._key(target), recursive=True)
            return
        self.make_dirs(target)
        for name in self._names(source):
            self.rename(posixpath.join(source, name), posixpath.join(target, name))
        self.delete_tree(source)


def _open_file_system(url: str, storage_options: dict[str, Any]) -> Any:
    if "::" in url:
        raise StateArgumentError(f"{url}: chains several kinds of storage. Give the URL of the storage itself.")
    try:
        import fsspec
    except ImportError as problem:
        raise StateArgumentError(
            f"{url}: URLs need fsspec, which is not installed. Install the extra: pip install 'weirstream[fsspec]'"
        ) from problem
    protocol = url.partition("://")[0]
    try:
        return fsspec.core.url_to_fs(url, **storage_options)[0]
    except ImportError as problem:
        raise StateArgumentError(f"{url}: a package for {protocol}:// is missing. {problem}") from problem
    except ValueError as problem:
        raise StateArgumentError(
            f"{url}: fsspec cannot open it ({problem}). Write PROTOCOL://PATH with a protocol that fsspec knows, such "
            "as s3://bucket/directory, or a directory of this machine."
        ) from problem


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turns any error of the store into the port's: an :class:`OSError` with number and path."""
    try:
        yield
    except AssertionError:
        raise
    except OSError as problem:
        if problem.errno is not None and problem.filename is not None:
            raise
        number = problem.errno or next((no for kind, no in _ERROR_NUMBERS if isinstance(problem, kind)), errno.EIO)
        text = os.strerror(number) if problem.errno is not None or not problem.args else str(problem)
        raise OSError(number, text if text.strip() else os.strerror(number), path) from problem
    except (StateArgumentError, StorageInUseError):
        raise
    except Exception as problem:
        raise OSError(errno.EIO, f"{type(problem).__name__}: {problem}", path) from problem


class _FsspecWritableFile(WritableFile):
    """A file that is being written; the module explains the effect of a flush."""

    __slots__ = ("_fs", "_is_closed", "_key", "_path", "_raw", "_size")

    def __init__(self, fs: Any, key: str, path: str, size: int, raw: Any) -> None:
        """
        :param raw: fsspec's open file, or ``None`` = to be opened at its present end
        """
        self._fs = fs
        self._key = key
        self._path = path
        self._size = size
        self._raw = raw
        self._is_closed = False

    def write(self, data: bytes) -> int:
        with _translated(self._path):
            self._check_open()
            if self._raw is None:
                self._raw = self._open_behind_end()
            self._raw.write(data)
            self._size += len(data)
            return len(data)

    def tell(self) -> int:
        with _translated(self._path):
            self._check_open()
        return self._size

    def flush(self) -> None:
        with _translated(self._path):
            self._check_open()
            self._publish()

    fsync = flush

    def close(self) -> None:
        with _translated(self._path):
            self._is_closed = True
            self._publish()

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def _publish(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            try:
                descriptor = raw.fileno()
            except (AttributeError, io.UnsupportedOperation):
                pass
            else:
                raw.flush()
                os.fsync(descriptor)
            raw.close()

    def _open_behind_end(self) -> Any:
        try:
            return self._fs.open(self._key, "ab")
        except (NotImplementedError, ValueError):
            # The object stays as it is until the new one is whole.
            before = self._fs.cat_file(self._key)
            raw = self._fs.open(self._key, "wb")
            raw.write(before)
            return raw


class FsspecDirectoryLock:
    """An object that names its holder: the host, the process, and a number of the lock."""

    _taken = 0

    def __init__(self, fs: FsspecFileSystem, path: str) -> None:
        """Take the lock now.

        :raises StorageInUseError: when another holder has it
        :raises StorageNotWritableError: when it cannot be written
        """
        FsspecDirectoryLock._taken += 1
        self._fs = fs
        self.path = path
        self._object = posixpath.join(path, LOCK_FILE_NAME)
        self._holder = f"{os.getpid()}\n{socket.gethostname()}\n{FsspecDirectoryLock._taken}\n".encode()
        self._is_held = False
        try:
            fs.make_dirs(path)
            self._refuse_held()
            with fs.open_write(self._object) as file:
                file.write(self._holder)
            found = fs.read_bytes(self._object)
        except OSError as problem:
            raise StorageNotWritableError(path, problem.strerror or str(problem)) from problem
        if found != self._holder:
            # Another run has looked at the same time, and has written after this one.
            raise self._in_use(found)
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            if self._fs.exists(self._object) and self._fs.read_bytes(self._object) == self._holder:
                self._fs.delete(self._object)

    def _refuse_held(self) -> None:
        if self._fs.exists(self._object):
            found = self._fs.read_bytes(self._object)
            if not _is_gone(found):
                raise self._in_use(found)

    def _in_use(self, found: bytes) -> StorageInUseError:
        pid, host = _pid_and_host(found)
        where = f" on {host}" if host else ""
        hint = f"If no run{where} uses it any more, one was killed: delete {self._object}, which it has left."
        return StorageInUseError(self.path, pid, hint)


def _pid_and_host(holder: bytes) -> tuple[int | None, str]:
    pid, host, *_ = [*holder.decode(errors="replace").split("\n"), "", ""]
    return (int(pid) if pid.isdecimal() else None), host


def _is_gone(holder: bytes) -> bool:
    """Whether the holder was a process of this host that has ended. A reused process id looks alive."""
    pid, host = _pid_and_host(holder)
    if pid is None or host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
