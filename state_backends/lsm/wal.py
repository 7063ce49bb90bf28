"""The write-ahead log: it keeps the content of the memtable, so that this survives the end of the process.

A file of records (magic ``WEIRLSMW``): ``[0, keys, values]`` writes, ``[1, first, end]`` deletes a range. Each call of
the store writes one record, so the log holds all of a batch or none of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgpack

from state_backends.base import anything, as_written, below, binary, check_shape, list_of, optional, row
from state_backends.codec import preamble
from state_backends.files import FileSystem, WritableFile
from state_backends.lsm.memtable import Memtable
from state_backends.lsm.records import LogRecordReader, LogRecordWriter

WAL_MAGIC = b"WEIRLSMW"
WAL_VERSION = 1

_WRITE = 0
_DELETE_RANGE = 1

_NO_RECORD = row(below(2), anything, anything)
_RECORDS = {
    _WRITE: row(below(2), list_of(binary), list_of(optional(binary))),
    _DELETE_RANGE: row(below(2), binary, binary),
}


class WriteAheadLog:
    """A log open for writing. ``number``: the counter in its name."""

    def __init__(self, file: WritableFile, number: int, *, sync: bool) -> None:
        self.number = number
        self._pack = msgpack.Packer(autoreset=True).pack
        self._writer = LogRecordWriter(file, sync=sync)
        self._writer.begin(WAL_MAGIC, WAL_VERSION)

    @property
    def broken(self) -> bool:
        """Whether an append failed, so that another log must begin."""
        return self._writer.broken

    def write(self, entries: Mapping[bytes, bytes | None]) -> None:
        self._writer.append(self._pack((_WRITE, list(entries), list(entries.values()))))

    def delete_range(self, first: bytes, end: bytes) -> None:
        self._writer.append(self._pack((_DELETE_RANGE, first, end)))

    def close(self) -> None:
        self._writer.close()


def replay(fs: FileSystem, path: str, into: Memtable) -> None:
    """Apply a log to a memtable, without its torn end, which was never acknowledged.

    :raises CorruptStateError: when the log is damaged elsewhere
    """
    data = fs.read_bytes(path)
    head = preamble(WAL_MAGIC, WAL_VERSION)
    if not any(data) or (len(data) < len(head) and head.startswith(data)):
        # Torn while it began: it holds nothing.
        return
    reader = LogRecordReader(data, path, WAL_MAGIC, WAL_VERSION)
    for payload in reader.records():
        with as_written(path):
            plain = msgpack.unpackb(payload)
            check_shape(plain, _RECORDS.get(plain[0], _NO_RECORD), path, "record")
            kind, left, right = plain
            if kind == _WRITE:
                into.entries.update(zip(left, right, strict=True))
            else:
                into.delete_range(left, right)
