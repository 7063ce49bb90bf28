"""Encodes a Python value as bytes and decodes exactly that value again; and the envelope of values in files.

The base is msgpack. Where msgpack is not exact, an array that begins with an extension mark is used:

* a tuple is ``[mark(TUPLE), *elements]``, so that tuples and lists stay different;
* a value of a registered type is ``[mark(code, version), state]``, where ``state`` is the plain value
  that the type's ``to_state`` returned.

The mark is an *element* of the array and not a nested blob: so one packer walks the whole value in C,
and Python is called only once per tuple. A value that cannot come back exactly is refused: sets have
no order of their own, and subclasses (``Enum``, ``NamedTuple``, ``defaultdict``, numpy scalars) would
come back as their base. A dict's insertion order is part of its value, and a ``bytearray`` comes back
as ``bytes``.

The encoding of a value depends on the value and its types only, so the bytes of a key identify it.

The envelope of every binary file is a preamble, then frames, each checked by a crc. A preamble has the kind of
file and its format version. It has its own crc, so that a reader can tell a damaged version from a newer one.
A frame is ``kind u8 | tag u16 | length u32 | crc32 u32 | payload`` (big endian); the crc
covers everything before and after it in the frame. A crc of 32 bits finds every flipped byte; lengths beyond
the file and missing end frames find every truncation.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgpack

from state_backends.base import CorruptStateError, StateSchemaError, StateSerializationError
from state_backends.codec.problems import explain_refusal
from state_backends.codec.registry import TypeRegistry, default_registry

_PREAMBLE = struct.Struct(">8sHI")
_HEAD = struct.Struct(">BHI")
_CRC = struct.Struct(">I")

PREAMBLE_BYTES = _PREAMBLE.size
FRAME_OVERHEAD_BYTES = _HEAD.size + _CRC.size

LARGE_BYTES = 1 << 20
"""So many bytes are written to a file by themselves. To join them to others would copy them."""

_TUPLE_CODE = 0
_TUPLE_MARK = msgpack.ExtType(_TUPLE_CODE, b"")


class _Mark:
    """What an extension mark decodes to: the first element of an array that is not a plain list."""

    __slots__ = ("code", "version")

    def __init__(self, code: int, version: int) -> None:
        self.code = code
        self.version = version


_DECODED_TUPLE_MARK = _Mark(_TUPLE_CODE, 0)


class StateCodec:
    """Encoder and decoder over one registry of types.

    :ivar pack: the raw encoder, for loops: it raises whatever msgpack raises. On any exception call
        :meth:`refusal` with the same value to get the error to show.

    Not re-entrant: a ``to_state`` must return a plain value and must not encode with the same codec.
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self.registry = default_registry if registry is None else registry
        self._packer = msgpack.Packer(default=self._pack_special, strict_types=True, use_bin_type=True, autoreset=True)
        self.pack: Callable[[Any], bytes] = self._packer.pack

    def __deepcopy__(self, memo: dict[int, Any]) -> StateCodec:
        # A codec holds no state between calls and the C packer cannot be copied: copies share it.
        return self

    def encode(self, value: Any, what: str = "value") -> bytes:
        """The bytes of a value.

        :param what: how an error message names the value
        :raises StateSerializationError: naming the path inside the value, the type and how to mend it
        """
        try:
            return self.pack(value)
        except Exception as problem:
            raise self.refusal(value, what, problem) from problem

    def decode(self, data: bytes, what: str = "encoded state") -> Any:
        """The value of some bytes.

        :param what: how an error message names the bytes
        :raises CorruptStateError: when the bytes are no encoded value
        :raises StateSchemaError: when a type code is unknown or its version newer than the program's
        """
        try:
            return msgpack.unpackb(data, list_hook=self._unpack_array, ext_hook=self._unpack_mark, strict_map_key=False)
        except StateSchemaError:
            raise
        except Exception as problem:
            raise CorruptStateError(what, f"not an encoded value ({problem})") from problem

    def copy(self, value: Any) -> Any:
        """A copy of a value that shares nothing mutable with it."""
        return self.decode(self.encode(value))

    def refusal(self, value: Any, what: str, problem: Exception) -> StateSerializationError:
        """The error that says which part of ``value`` made :attr:`pack` raise ``problem``."""
        return explain_refusal(value, what, self.registry, problem)

    def sorted_map(self, entries: dict[Any, Any]) -> dict[Any, Any]:
        """The same map with its entries in the order of their encoded keys."""
        return {key: entries[key] for key in sorted(entries, key=self.encode)}

    def array_header(self, length: int) -> bytes:
        """The bytes that stand before ``length`` encoded elements to make them one encoded list."""
        header: bytes = self._packer.pack_array_header(length)
        return header

    def joined(self, encoded: Sequence[bytes]) -> bytes:
        """The encoded list of elements that are encoded already."""
        return self.array_header(len(encoded)) + b"".join(encoded)

    def map_header(self, length: int) -> bytes:
        """The bytes that stand before ``length`` pairs of encoded key and value to make them one encoded map."""
        header: bytes = self._packer.pack_map_header(length)
        return header

    def _pack_special(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple:
            return [_TUPLE_MARK, *value]
        registered = self.registry.for_class(kind)
        if registered is None:
            raise TypeError(f"no registered type for {kind.__qualname__}")
        return [registered.mark, registered.to_state(value)]

    def _unpack_array(self, items: list[Any]) -> Any:
        if not items or type(items[0]) is not _Mark:
            return items
        mark = items[0]
        if mark.code == _TUPLE_CODE:
            return tuple(items[1:])
        return self.restore_object(mark.code, mark.version, items[1])

    def _unpack_mark(self, code: int, data: bytes) -> _Mark:
        if code == _TUPLE_CODE:
            return _DECODED_TUPLE_MARK
        # Also where it marks nothing: it would pass for a value.
        self.registry.check_code(code)
        return _Mark(code, int.from_bytes(data, "big"))

    def restore_object(self, code: int, version: int, state: Any) -> Any:
        """The object that was written as ``state`` under a code and version."""
        return self.registry.restore(code, version, state)


_default_codec: StateCodec | None = None


def default_codec() -> StateCodec:
    """The codec over the registry that :func:`register_type` fills."""
    global _default_codec  # noqa: PLW0603 - one codec per process is the point: packers are reused
    if _default_codec is None:
        _default_codec = StateCodec()
    return _default_codec


# --- the envelope of files --------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """One frame as read.

    :ivar kind: what it holds; each format has its own numbers
    :ivar tag: a key group, a state index, or 0
    """

    kind: int
    tag: int
    payload: bytes


def preamble(magic: bytes, version: int) -> bytes:
    """The first bytes of a file. ``magic``: eight bytes that name the kind of file."""
    assert len(magic) == 8
    head = magic + version.to_bytes(2, "big")
    return head + _CRC.pack(zlib.crc32(head))


def frame(kind: int, tag: int, payload: bytes) -> bytes:
    """One frame."""
    return _frame_head(kind, tag, payload) + payload


def frame_parts(kind: int, tag: int, payload: bytes) -> Sequence[bytes]:
    """One frame, to be written part after part: a large payload is a part itself, and not copied."""
    head = _frame_head(kind, tag, payload)
    return (head, payload) if len(payload) >= LARGE_BYTES else (head + payload,)


def _frame_head(kind: int, tag: int, payload: bytes) -> bytes:
    head = _HEAD.pack(kind, tag, len(payload))
    return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head)))


def check_version(path: str, found: int, known: int) -> None:
    """Refuse a file whose format is newer than this program knows.

    :raises StateSchemaError: naming the file and both versions
    """
    if found > known:
        raise StateSchemaError(
            f"{path}: has format version {found}, this program reads up to {known}. "
            "Use the newer program that wrote it."
        )


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
        check_version(path, found_version, version)

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


def in_encoded_order(keys: Collection[Any]) -> list[Any] | None:
    """The keys in the order of their encodings, if that can be seen without encoding each; ``None`` if not.

    msgpack writes ints from 0 on big-endian after a first byte that grows with their width, so they ascend. Of bytes
    and text the length is written first, in the same way: shorter ones come first, equally long ones by content, and
    the length of text is that of its UTF-8. All keys of a table have one type, so one of them is enough to know it.
    """
    kind = type(next(iter(keys), None))
    if kind is int and min(keys) >= 0:
        return sorted(keys)
    if kind is bytes or (kind is str and "".join(keys).isascii()):
        return sorted(sorted(keys), key=len)
    return None
