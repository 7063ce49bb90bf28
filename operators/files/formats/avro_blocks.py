"""Avro object container files: a header, then blocks of records, each with a marker after it (extra ``avro``).

Rules (Avro 1.11 specification, "Object Container Files"; Flink: ``AvroKeyValueSinkWriter``, ``AvroInputFormat``)
-----------------------------------------------------------------------------------------------------------------
* The header holds the schema, the codec and a marker of 16 bytes. Here the marker is computed from the two, so that the
  bytes of a file depend on its records alone. (Avro draws it at random.)
* A block is the number of its records, its size in bytes, the records, and the marker. A file may be cut between two
  blocks, and may go on after any of them.
* fastavro reads and writes the records. A value of another type than the schema's is an error before anything is
  written.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple

from engine.elements.errors import ConfigurationError, MissingDependencyError, shorten
from operators.files.formats.compressed_files import CorruptFileError

_MAGIC = b"Obj\x01"
_MARKER_BYTES = 16
_MOST_BYTES = 1 << 30

_PYTHON_TYPES: dict[object, str] = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


_PACK: dict[str, Callable[[bytes], bytes]] = {"null": bytes, "deflate": _deflate}
_UNPACK: dict[str, Callable[[bytes], bytes]] = {"null": bytes, "deflate": lambda data: zlib.decompress(data, -15)}


def import_fastavro() -> Any:
    """``fastavro``. Raises ``MissingDependencyError``."""
    try:
        import fastavro
        import fastavro.validation
    except ImportError as error:
        raise MissingDependencyError(
            "Avro files need fastavro, which is not installed\n  fix: pip install 'weirstream[avro]'"
        ) from error
    return fastavro


def _long(number: int) -> bytes:
    """A long of Avro: zigzag, seven bits at a time."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


class AvroRecords:
    """The records of one schema, and the framing of a file of them.

    ``schema``  an Avro schema of a record, as a dict; or the fields in order: name -> ``int``, ``float``, ``bool``,
                ``str``, ``bytes``, or an Avro type; each may then be null;
    ``codec``   ``"null"`` or ``"deflate"``.
    """

    def __init__(self, schema: object, codec: str = "null") -> None:
        if codec not in _PACK:
            raise ConfigurationError(f"codec is {codec!r}; it must be 'null' or 'deflate'")
        self._avro = import_fastavro()
        self.schema = self._schema_of(schema)
        self.codec = codec
        self.names: tuple[str, ...] = tuple(field["name"] for field in self.schema["fields"])
        text = json.dumps(self.schema, separators=(",", ":"), sort_keys=True)
        self._parsed = self._avro.parse_schema(json.loads(text))
        self.marker = blake2b(f"{codec} {text}".encode(), digest_size=_MARKER_BYTES).digest()
        meta = {"avro.codec": codec.encode(), "avro.schema": text.encode()}
        entries = b"".join(_long(len(key)) + key.encode() + _long(len(value)) + value for key, value in meta.items())
        self.header = _MAGIC + _long(len(meta)) + entries + _long(0) + self.marker

    def __reduce__(self) -> tuple[type[AvroRecords], tuple[Any, str]]:
        # The job travels to other processes.
        return AvroRecords, (self.schema, self.codec)

    def _schema_of(self, schema: object) -> dict[str, Any]:
        if isinstance(schema, Mapping) and schema and schema.get("type") != "record":
            fields = [
                {"name": name, "type": ["null", _PYTHON_TYPES.get(kind, kind) if isinstance(kind, type) else kind]}
                for name, kind in schema.items()
            ]
            schema = {"type": "record", "name": "row", "fields": fields}
        try:
            if not isinstance(schema, Mapping):
                raise ValueError("it is no dict")
            self._avro.parse_schema(json.loads(json.dumps(schema)))
            if not schema["fields"]:
                raise ValueError("it has no field")
        except Exception as error:
            raise ConfigurationError(
                f"schema is {shorten(schema)}; it must be an Avro schema of a record, or a dict from names to int,"
                f" float, bool, str, bytes or types of Avro: {error}"
            ) from error
        return dict(schema)

    def encode(self, record: Any) -> bytes:
        """The bytes of one record: a dict with exactly the fields of the schema, or a tuple or list in their order.
        Raises ``ValueError``."""
        if isinstance(record, tuple | list):
            if len(record) != len(self.names):
                raise ValueError(f"{len(record)} fields instead of {len(self.names)}: {', '.join(self.names)}")
            record = dict(zip(self.names, record, strict=True))
        if not isinstance(record, dict):
            raise ValueError(f"an Avro record is a dict, a tuple or a list, not {type(record).__name__}")
        if record.keys() != dict.fromkeys(self.names).keys():
            has = ", ".join(map(str, record))
            raise ValueError(f"a record has the fields {', '.join(self.names)}; this one has {has}")
        out = io.BytesIO()
        try:
            self._avro.validation.validate(record, self._parsed, raise_errors=True, strict=True)
            self._avro.schemaless_writer(out, self._parsed, record)
        except Exception as error:
            raise ValueError(f"the record does not fit the schema: {' '.join(str(error).split())}") from error
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        """The record of exactly these bytes. Raises ``ValueError``."""
        content = io.BytesIO(data)
        try:
            record = self._avro.schemaless_reader(content, self._parsed, None)
        except Exception as error:
            raise ValueError(f"the bytes are no record of the schema: {error}") from error
        if content.read(1):
            raise ValueError("the bytes are no record of the schema: there are more after it")
        return record

    def block(self, records: list[bytes]) -> bytes:
        """A block of encoded records."""
        data = _PACK[self.codec](b"".join(records))
        return _long(len(records)) + _long(len(data)) + data + self.marker


class AvroBlock(NamedTuple):
    """A block of a file: where it begins, where it ends, how many records it has, and their bytes."""

    offset: int
    end: int
    size: int
    data: bytes


class AvroFile:
    """Reads a container file block by block. Raises :class:`CorruptFileError` where it is none."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._avro = import_fastavro()
        self._file = file
        self._path = path
        self._reading = "its header"
        file.seek(0)
        if file.read(len(_MAGIC)) != _MAGIC:
            raise self._corrupt("it does not begin as an Avro file")
        meta = self._meta()
        self.codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
        if self.codec not in _UNPACK:
            raise self._corrupt(f"its codec is {self.codec!r}, which is not read: use 'null' or 'deflate'")
        self.marker = self._exactly(_MARKER_BYTES)
        try:
            self.schema = json.loads(meta["avro.schema"])
            self._parsed = self._avro.parse_schema(self.schema)
        except Exception as error:
            raise self._corrupt(f"its schema cannot be read: {error}") from error
        self.first = file.tell()
        """Where the first block begins."""

    def _meta(self) -> dict[str, bytes]:
        meta: dict[str, bytes] = {}
        while (count := self._read_long()) != 0:
            if count < 0:
                count = -count
                self._read_long()
            for _ in range(count):
                key = self._exactly(self._read_long()).decode("utf-8", "replace")
                meta[key] = self._exactly(self._read_long())
        return meta

    def block_at(self, offset: int, *, data: bool = True) -> AvroBlock | None:
        """The block that begins at ``offset``; ``None`` at the end of the file. Without ``data`` only its place."""
        file = self._file
        file.seek(offset)
        if not file.read(1):
            return None
        file.seek(offset)
        self._reading = f"the block at byte {offset}"
        count, size = self._read_long(), self._read_long()
        if count < 0 or not 0 <= size <= _MOST_BYTES:
            raise self._corrupt(f"{self._reading} says that it has {count} records in {size} bytes")
        if data:
            content = self._exactly(size)
        else:
            file.seek(size, 1)
            content = b""
        if self._exactly(_MARKER_BYTES) != self.marker:
            raise self._corrupt(f"{self._reading} does not end with the file's marker")
        return AvroBlock(offset, file.tell(), count, content)

    def places(self) -> Iterator[AvroBlock]:
        """The places of all blocks."""
        offset = self.first
        while (block := self.block_at(offset, data=False)) is not None:
            yield block
            offset = block.end

    def records(self, block: AvroBlock) -> list[Any]:
        """The records of a block."""
        try:
            data = io.BytesIO(_UNPACK[self.codec](block.data))
            found = [self._avro.schemaless_reader(data, self._parsed, None) for _ in range(block.size)]
            if data.read(1):
                raise ValueError("it has bytes after its last record")
        except Exception as error:
            raise self._corrupt(f"the block at byte {block.offset} cannot be read: {error}") from error
        return found

    def all_records(self) -> Iterator[Any]:
        """The records of the whole file."""
        offset = self.first
        while (block := self.block_at(offset)) is not None:
            yield from self.records(block)
            offset = block.end

    def _read_long(self) -> int:
        shift = value = 0
        while True:
            byte = self._exactly(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise self._corrupt(f"a number in {self._reading} has too many bytes")

    def _exactly(self, count: int) -> bytes:
        if not 0 <= count <= _MOST_BYTES:
            raise self._corrupt(f"a length in {self._reading} is {count}")
        data = self._file.read(count)
        if len(data) < count:
            raise self._corrupt(f"it ends in the middle of {self._reading}")
        return data

    def _corrupt(self, why: str) -> CorruptFileError:
        return CorruptFileError(self._path, "Avro", why)
