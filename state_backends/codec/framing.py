"""The envelope of every binary file: a preamble, then frames, each checked by a crc.

A preamble names what the file is and in which format version, and is protected by a crc of its own, so
that a damaged version is told from a newer one. A frame is ``kind u8 | tag u16 | length u32 | crc32 u32 |
payload`` (big endian); the crc covers everything before and after it in the frame. A crc of 32 bits finds
every flipped byte; lengths beyond the file and missing end frames find every truncation.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO, NamedTuple

from state_backends.base import CorruptStateError, StateSchemaError

_PREAMBLE = struct.Struct(">8sHI")
_HEAD = struct.Struct(">BHI")
_CRC = struct.Struct(">I")

PREAMBLE_BYTES = _PREAMBLE.size
FRAME_OVERHEAD_BYTES = _HEAD.size + _CRC.size


class Frame(NamedTuple):
    """One frame as read.

    :ivar kind: what it holds; each format has its own numbers
    :ivar tag: a key group, a state index, or 0
    """

    kind: int
    tag: int
    payload: bytes


def preamble(magic: bytes, version: int) -> bytes:
    """The first bytes of a file.

    :param magic: eight bytes that name the kind of file
    """
    assert len(magic) == 8
    head = magic + version.to_bytes(2, "big")
    return head + _CRC.pack(zlib.crc32(head))


def frame(kind: int, tag: int, payload: bytes) -> bytes:
    """One frame."""
    head = _HEAD.pack(kind, tag, len(payload))
    return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head))) + payload


class FrameReader:
    """Reads a file of frames from its start, or at offsets.

    :raises CorruptStateError: from each method, when bytes are not what was written
    """

    def __init__(self, file: BinaryIO, path: str, magic: bytes, version: int) -> None:
        """Check the preamble.

        :param path: how errors name the file
        :raises StateSchemaError: when the file has a newer format version
        """
        self._file = file
        self._path = path
        self._size = file.seek(0, 2)
        file.seek(0)
        head = file.read(PREAMBLE_BYTES)
        if len(head) < PREAMBLE_BYTES:
            raise self.corrupt(f"truncated: {len(head)} bytes are less than a preamble")
        found_magic, found_version, crc = _PREAMBLE.unpack(head)
        if crc != zlib.crc32(head[:-4]) or found_magic != magic:
            raise self.corrupt(f"its first bytes are damaged or it is no {magic.decode()} file")
        if found_version > version:
            raise StateSchemaError(
                f"{path}: has format version {found_version}, this program reads up to {version}. "
                "Use the newer program that wrote it."
            )

    def corrupt(self, what: str) -> CorruptStateError:
        """An error about this file."""
        return CorruptStateError(self._path, what)

    def tell(self) -> int:
        """Where the next frame begins."""
        return self._file.tell()

    def seek(self, offset: int) -> None:
        """Go to the frame that begins at ``offset``."""
        if not PREAMBLE_BYTES <= offset <= self._size:
            raise self.corrupt(f"offset {offset} lies outside its {self._size} bytes")
        self._file.seek(offset)

    def read(self, kinds: bytes) -> Frame:
        """The next frame, whose kind must be one of ``kinds``."""
        start = self._file.tell()
        head = self._file.read(FRAME_OVERHEAD_BYTES)
        if len(head) < FRAME_OVERHEAD_BYTES:
            raise self.corrupt(f"truncated: the frame at {start} is cut off")
        kind, tag, length = _HEAD.unpack_from(head)
        (crc,) = _CRC.unpack_from(head, _HEAD.size)
        if length > self._size - start - FRAME_OVERHEAD_BYTES:
            raise self.corrupt(f"truncated or damaged: the frame at {start} ends outside its {self._size} bytes")
        payload = self._file.read(length)
        if crc != zlib.crc32(payload, zlib.crc32(head[: _HEAD.size])):
            raise self.corrupt(f"damaged: the frame at {start} does not match its checksum")
        if kind not in kinds:
            raise self.corrupt(f"the frame at {start} has kind {kind}, which does not belong there")
        return Frame(kind, tag, payload)

    def expect_end(self) -> None:
        """Check that nothing follows."""
        position = self._file.tell()
        if position != self._size:
            raise self.corrupt(f"{self._size - position} bytes follow its last frame")


def seal(magic: bytes, version: int, payload: bytes) -> bytes:
    """A file of one frame."""
    return preamble(magic, version) + frame(0, 0, payload)


def unseal(file: BinaryIO, path: str, magic: bytes, version: int) -> bytes:
    """The payload of a file that :func:`seal` made.

    :raises CorruptStateError: when any byte differs, or is missing, or is too many
    :raises StateSchemaError: when the file has a newer format version
    """
    reader = FrameReader(file, path, magic, version)
    payload = reader.read(b"\0").payload
    reader.expect_end()
    return payload
