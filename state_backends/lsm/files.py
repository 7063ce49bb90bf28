"""The names of a store's files, and functions that write and link files.

====================================  ==========================================================================
``<number>-<unique>.sst``             entries; immutable, the only *data* files
``<number>-<unique>.wal``             a write-ahead log
``MANIFEST-<number>-<unique>``        the log of changes of the list of files
``CURRENT``                           names the manifest that counts
``*.inprogress``                      not whole yet
====================================  ==========================================================================

The number counts all files of a store and is kept in the manifest; ``unique`` differs at each opening. So no name is
used twice, not even by two stores that began with the same checkpoint.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import suppress

from state_backends.files import TEMPORARY_SUFFIX, FileSystem

SST_SUFFIX = ".sst"
WAL_SUFFIX = ".wal"
MANIFEST_PREFIX = "MANIFEST-"
CURRENT_NAME = "CURRENT"

_NO_LINKS = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
)
"""The errors after which a copy is tried because a link cannot be made."""

_COPY_BYTES = 1 << 20


def is_own(name: str) -> bool:
    """Whether a name has a form that stores give: a store may delete such a file when nothing refers to it."""
    return name.endswith((SST_SUFFIX, WAL_SUFFIX, TEMPORARY_SUFFIX)) or name.startswith(MANIFEST_PREFIX)


def write_file(fs: FileSystem, path: str, data: bytes, *, sync: bool) -> None:
    """Make a file hold exactly ``data``: readers see the old one or the new one, whole. With ``sync`` this holds after
    a crash of the machine too."""
    temporary = path + TEMPORARY_SUFFIX
    with fs.open_write(temporary) as file:
        file.write(data)
        if sync:
            file.fsync()
    put_in_place(fs, temporary, path, sync=sync)


def put_in_place(fs: FileSystem, temporary: str, path: str, *, sync: bool) -> None:
    fs.rename(temporary, path)
    if sync:
        fs.fsync_dir(posixpath.dirname(path))


def link_or_copy(fs: FileSystem, source: str, target: str, *, sync: bool) -> None:
    """Link a file under a second name; copy it where no link can be made."""
    try:
        fs.link(source, target)
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        _copy(fs, source, target, sync=sync)


def _copy(fs: FileSystem, source: str, target: str, *, sync: bool) -> None:
    with fs.open_read(source) as reader, fs.open_write(target, exclusive=True) as writer:
        while data := reader.read(_COPY_BYTES):
            writer.write(data)
        if sync:
            writer.fsync()


def delete_quietly(fs: FileSystem, path: str) -> None:
    """Delete a file that nothing refers to, if it exists. If that fails, the next opening deletes it."""
    with suppress(OSError):
        fs.delete(path)
