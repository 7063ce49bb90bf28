"""Append-only files of records, such as the manifest and the write-ahead log, and how a reader handles a torn end.

::

    file     preamble (magic, format version, crc), then records
    record   length u32 | length complemented u32 | payload | crc32 u32 of length and payload

When a process or machine dies while appending, the last record may be cut off. Or the file system has allocated its
space but not written all of it: then it is zeros to the end. Such a *torn end* was never acknowledged, and the reader
ignores it. Any other mismatch of a checksum is damage. The length is stored twice, so that a damaged length is not
taken for a torn end; that would hide all records after it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from state_backends.base import CorruptStateError
from state_backends.codec import PREAMBLE_BYTES, check_version, preamble
from state_backends.files import WritableFile

_LENGTH = struct.Struct(">II")
_CRC = struct.Struct(">I")
_ALL_ONES = 0xFFFFFFFF

RECORD_OVERHEAD_BYTES = _LENGTH.size + _CRC.size


def record(payload: bytes) -> bytes:
    length = len(payload)
    head = _LENGTH.pack(length, length ^ _ALL_ONES)
    return b"".join((head, payload, _CRC.pack(zlib.crc32(payload, zlib.crc32(head)))))


class LogRecordWriter:
    """Appends records to a file.

    :ivar broken: whether an append failed. The end of the file is then unknown, and further appends are not
        allowed: a reader would not find a record after a torn one
    """

    def __init__(self, file: WritableFile, *, sync: bool) -> None:
        """Append after the present content: a whole preamble and whole records, or nothing yet.

        :param sync: whether each record is durable when its append returns
        """
        self._file = file
        self._sync = sync
        self.broken = False

    def begin(self, magic: bytes, version: int) -> None:
        self._write(preamble(magic, version))

    def append(self, payload: bytes) -> int:
        """Add a record and return the bytes written. The operating system then has the record; with ``sync`` it is
        durable."""
        assert not self.broken, "append after a failed append"
        data = record(payload)
        self._write(data)
        return len(data)

    def _write(self, data: bytes) -> None:
        self.broken = True
        self._file.write(data)
        if self._sync:
            self._file.fsync()
        else:
            self._file.flush()
        self.broken = False

    def close(self) -> None:
        self._file.close()


class LogRecordReader:
    """Reads the records of a file that is wholly in memory."""

    def __init__(self, data: bytes, path: str, magic: bytes, version: int) -> None:
        """Check the preamble. It is refused when it is damaged, of another kind of file, or of a newer format
        version."""
        self._data = data
        self._path = path
        head = data[:PREAMBLE_BYTES]
        if len(head) < PREAMBLE_BYTES:
            raise self.corrupt(f"truncated: {len(head)} bytes are less than a preamble")
        found_version = int.from_bytes(head[len(magic) : len(magic) + 2], "big")
        if head != preamble(head[: len(magic)], found_version) or not head.startswith(magic):
            raise self.corrupt(f"its first bytes are damaged or it is no {magic.decode()} file")
        check_version(path, found_version, version)

    def corrupt(self, what: str) -> CorruptStateError:
        return CorruptStateError(self._path, what)

    def records(self, whole_bytes: int = 0) -> Iterator[bytes]:
        """The payloads, in order, without a torn end.

        :param whole_bytes: no torn end may begin within this many bytes from the start
        :raises CorruptStateError: when a record is damaged, and not just a torn end
        """
        data, position = self._data, PREAMBLE_BYTES
        while position < len(data):
            end = self._end_of_record(position)
            if end is None:
                break
            yield data[position + _LENGTH.size : end - _CRC.size]
            position = end
        if position < whole_bytes:
            raise self.corrupt(f"truncated: its records end at {position}, of {whole_bytes} bytes at least")

    def _end_of_record(self, position: int) -> int | None:
        """Where the record at ``position`` ends, or ``None`` when it is torn."""
        data = self._data
        if len(data) - position < _LENGTH.size:
            return None
        length, complement = _LENGTH.unpack_from(data, position)
        if length ^ complement != _ALL_ONES:
            if not any(data[position + _LENGTH.size :]):
                return None
            raise self.corrupt(f"damaged: the length of the record at {position} does not match itself")
        end: int = position + RECORD_OVERHEAD_BYTES + length
        if end > len(data):
            return None
        (crc,) = _CRC.unpack_from(data, end - _CRC.size)
        if crc != zlib.crc32(data[position : end - _CRC.size]):
            if crc == 0 and not any(data[end:]):
                return None
            raise self.corrupt(f"damaged: the record at {position} does not match its checksum")
        return end
