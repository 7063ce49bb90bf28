"""The manifest: which files a store consists of, as a log of edits; and ``CURRENT``, which names the manifest.

::

    MANIFEST   a file of records (magic WEIRLSMM): [next number, log number, edit]; the first makes the whole version
    CURRENT    a sealed file (magic WEIRLSMC): [name of the manifest, bytes, crc32 of these bytes]

``CURRENT`` has the checksum of the manifest as it was when ``CURRENT`` began to name it. In a checkpoint that is the
whole manifest, so every flipped or missing byte is found. Each record appended later has its own checksum. A torn end
is an edit that never happened: the store does nothing that depends on an edit before the edit is written.

Each opening of a store begins another manifest, so no store ever appends after a torn end.
"""

from __future__ import annotations

import posixpath
import zlib
from dataclasses import dataclass

import msgpack

from state_backends.base import CorruptStateError, as_written, check_shape, row, text, whole
from state_backends.codec import preamble, seal, unseal
from state_backends.files import FileSystem
from state_backends.lsm.files import CURRENT_NAME, MANIFEST_PREFIX, write_file
from state_backends.lsm.records import LogRecordReader, LogRecordWriter, record
from state_backends.lsm.version import EDIT, Version, VersionEdit, is_plain_name

MANIFEST_MAGIC = b"WEIRLSMM"
MANIFEST_VERSION = 1
CURRENT_MAGIC = b"WEIRLSMC"
CURRENT_VERSION = 1

_EDIT = row(whole, whole, EDIT)
_CURRENT = row(text, whole, whole)


@dataclass(frozen=True, slots=True)
class ManifestContent:
    """The state of a store after all edits of a manifest.

    :ivar version: the files
    :ivar next_number: the first number that no file has had
    :ivar log_number: the content of write-ahead logs with smaller numbers is in the files already
    """

    version: Version
    next_number: int
    log_number: int


def _payload(edit: VersionEdit, next_number: int, log_number: int) -> bytes:
    data: bytes = msgpack.packb([next_number, log_number, edit.to_state()])
    return data


def manifest_bytes(content: ManifestContent) -> bytes:
    """A manifest of one record, which makes the whole version."""
    whole = _payload(content.version.as_edit(), content.next_number, content.log_number)
    return preamble(MANIFEST_MAGIC, MANIFEST_VERSION) + record(whole)


def read_manifest(data: bytes, path: str, whole_bytes: int = 0) -> ManifestContent:
    """Read a manifest: it is enough to list the files of a store that is not open.

    :param path: the manifest's name in errors
    :param whole_bytes: no torn end may begin within this many bytes from the start
    :raises CorruptStateError: when the manifest is damaged
    :raises StateSchemaError: when the manifest has a newer format version
    """
    reader = LogRecordReader(data, path, MANIFEST_MAGIC, MANIFEST_VERSION)
    content = None
    for payload in reader.records(whole_bytes):
        before = Version.empty(1) if content is None else content.version
        try:
            plain = msgpack.unpackb(payload)
            check_shape(plain, _EDIT, path, "edit")
            next_number, log_number, state = plain
            after = before.applied(VersionEdit.from_state(state))
        except ValueError as problem:
            raise reader.corrupt(f"an edit in it makes no sense: {problem}") from problem
        content = ManifestContent(after, next_number, log_number)
    if content is None:
        raise reader.corrupt("has no record")
    return content


def read_current(fs: FileSystem, directory: str) -> ManifestContent:
    """Read the manifest that ``CURRENT`` names.

    :raises CorruptStateError: when ``CURRENT`` or the manifest is damaged, or the manifest is missing
    """
    path = posixpath.join(directory, CURRENT_NAME)
    with fs.open_read(path) as file:
        payload = unseal(file, path, CURRENT_MAGIC, CURRENT_VERSION)
    with as_written(path):
        plain = msgpack.unpackb(payload)
    check_shape(plain, _CURRENT, path, "it")
    name, size, crc = plain
    if not is_plain_name(name) or not name.startswith(MANIFEST_PREFIX):
        raise CorruptStateError(path, f"malformed: {name!r} is no name of a manifest")
    manifest_path = posixpath.join(directory, name)
    if not fs.exists(manifest_path):
        raise CorruptStateError(manifest_path, f"is missing although {CURRENT_NAME} names it")
    data = fs.read_bytes(manifest_path)
    if len(data) < size or zlib.crc32(data[:size]) != crc:
        raise CorruptStateError(manifest_path, f"its first {size} bytes are not those that {CURRENT_NAME} vouches for")
    return read_manifest(data, manifest_path, size)


def write_manifest(fs: FileSystem, directory: str, name: str, content: ManifestContent, *, sync: bool) -> bytes:
    """Write a manifest of one record, make ``CURRENT`` name it, and return the manifest's bytes."""
    assert name.startswith(MANIFEST_PREFIX), name
    data = manifest_bytes(content)
    write_file(fs, posixpath.join(directory, name), data, sync=sync)
    current = msgpack.packb([name, len(data), zlib.crc32(data)])
    sealed = seal(CURRENT_MAGIC, CURRENT_VERSION, current)
    write_file(fs, posixpath.join(directory, CURRENT_NAME), sealed, sync=sync)
    return data


class ManifestLog:
    """The manifest of an open store, to which edits are appended.

    :ivar name: its file's name
    :ivar doubtful: whether an append failed. It is then unknown whether the manifest has the edit, and a new manifest
        must begin before the store changes or deletes anything else
    """

    def __init__(self, fs: FileSystem, directory: str, name: str, content: ManifestContent, *, sync: bool) -> None:
        """Begin a manifest, and make ``CURRENT`` name it."""
        self.name = name
        self._begin_bytes = len(write_manifest(fs, directory, name, content, sync=sync))
        self._size = self._begin_bytes
        self._writer = LogRecordWriter(fs.open_append(posixpath.join(directory, name)), sync=sync)

    @property
    def doubtful(self) -> bool:
        return self._writer.broken

    @property
    def grown_bytes(self) -> int:
        """The bytes appended since the manifest began."""
        return self._size - self._begin_bytes

    def append(self, edit: VersionEdit, next_number: int, log_number: int) -> None:
        self._size += self._writer.append(_payload(edit, next_number, log_number))

    def close(self) -> None:
        self._writer.close()
