"""The format of a log on disk: batches, one after the other, each with a checksum.

A batch holds what one request has appended: records of one producer, or the marker of a transaction. It begins with a
fixed head (big endian)::

    magic u16 | length u32 | crc32 u32 | kind u8 | first offset u64 | records u32 | epoch i32 | sequence u32
    | time ns u64 | durable u64 | length of the transactional id u16 || transactional id | records (msgpack list)

``length`` counts the bytes after the checksum, and the checksum covers the same bytes. So the length is checked as
well: the batch must end inside the file, and its bytes must match the checksum.

A batch stores up to which offset its partition was *durable* (fsynced) when the batch was written. By this recovery
tells a torn tail from damage. After a power cut, the bytes after the last fsync may be cut anywhere and may have holes:
recovery cuts the file back to the first bad batch. If a bad batch is *before* that offset, it had been durable, and the
log had already answered for it: this is damage, and an error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from engine.elements.errors import UserFunctionError, WeirError, shorten
from operators.log.port import ABORT_MARKER, COMMIT_MARKER, DATA, LogCorruptError, LogEntry, LogRecord, Producer
from state_backends.base import CorruptStateError, StateSchemaError
from state_backends.codec import PREAMBLE_BYTES, StateCodec, default_codec, preamble
from state_backends.files import RandomAccessFile

MAGIC = 0xA11D
_MAGIC_BYTES = MAGIC.to_bytes(2, "big")
SEGMENT_MAGIC, FORMAT_VERSION = b"WEIRLOGS", 1
SEGMENT_PREAMBLE = preamble(SEGMENT_MAGIC, FORMAT_VERSION)
assert len(SEGMENT_PREAMBLE) == PREAMBLE_BYTES

_KINDS = (DATA, COMMIT_MARKER, ABORT_MARKER)
_KIND_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}

_FRONT = struct.Struct(">HII")
_BODY = struct.Struct(">BQIiIQQH")
HEAD_BYTES = _FRONT.size + _BODY.size
MAX_BATCH_BYTES = 1 << 30


class UnwritableRecordError(WeirError):
    """A record has a type that a log cannot hold. The message names the part of the record with that type."""

    exit_code = UserFunctionError.exit_code


class RecordBatch(NamedTuple):
    """One batch; ``length`` is how many offsets it takes, ``position`` where it begins in its segment, ``payload`` its
    encoded records."""

    kind: str
    first_offset: int
    length: int
    producer: Producer | None
    sequence: int
    at_ns: int
    durable_offset: int
    crc: int
    position: int
    size_bytes: int
    payload: bytes

    @property
    def end_offset(self) -> int:
        """The offset after its last entry."""
        return self.first_offset + self.length

    def values(self, where: str) -> list[Any]:
        """Its records; ``where`` names the file in errors.

        Raises :class:`LogCorruptError` when they cannot be decoded, usually because of an unregistered type.
        """
        try:
            values: list[Any] = default_codec().decode(self.payload, where)
        except (CorruptStateError, StateSchemaError) as error:
            raise LogCorruptError(where, self.position, str(error)) from error
        return values

    def records(self, where: str) -> list[LogRecord]:
        """Its records with their offsets; empty for a marker."""
        if self.kind != DATA:
            return []
        producer, first = self.producer, self.first_offset
        return [LogRecord(first + at, value, producer) for at, value in enumerate(self.values(where))]

    def entries(self, where: str) -> list[LogEntry]:
        """Its records or its marker."""
        if self.kind != DATA:
            return [LogEntry(self.first_offset, self.kind, self.producer, None)]
        return [LogEntry(offset, DATA, producer, value) for offset, value, producer in self.records(where)]


def encode_batch(
    kind: str,
    first_offset: int,
    values: Sequence[object],
    producer: Producer | None,
    sequence: int,
    at_ns: int,
    durable_offset: int,
) -> bytes:
    """The bytes of one batch; a marker has no ``values`` and takes one offset.

    Raises :class:`UnwritableRecordError` when a record cannot be written.
    """
    if kind == DATA:
        codec, listed = default_codec(), values if type(values) is list else list(values)
        try:
            payload = codec.pack(listed)
        except Exception as problem:
            raise _refusal(codec, listed, problem) from problem
        count = len(listed)
    else:
        payload, count = b"", 1
    name, epoch = (b"", -1) if producer is None else (producer.transactional_id.encode(), producer.epoch)
    body = (
        _BODY.pack(_KIND_NUMBERS[kind], first_offset, count, epoch, sequence, at_ns, durable_offset, len(name))
        + name
        + payload
    )
    return _FRONT.pack(MAGIC, len(body), zlib.crc32(body)) + body


def _unwritable(why: Exception, record: object) -> UnwritableRecordError:
    return UnwritableRecordError(
        f"{why}\n  record  {shorten(record)}\n  fix: map it to plain values before the sink".replace(
            "cannot be written to state", "cannot be written to the log", 1
        )
    )


def _refusal(codec: StateCodec, values: list[object], problem: Exception) -> UnwritableRecordError:
    """An error that names the first record that cannot be encoded by itself."""
    for value in values:
        try:
            codec.pack(value)
        except Exception as own:
            return _unwritable(codec.refusal(value, "record", own), value)
    return _unwritable(codec.refusal(values, "records", problem), values)


class BadBatch(NamedTuple):
    """The first bytes that are not a batch: their position, and why."""

    position: int
    why: str


def read_batch(data: bytes, at: int, position: int) -> RecordBatch | BadBatch:
    """The batch that begins at ``data[at]``, which is ``position`` in its segment."""
    head_end = at + HEAD_BYTES
    if head_end > len(data):
        return BadBatch(position, f"the file ends in the head of a batch, after {len(data) - at} bytes")
    magic, length, crc = _FRONT.unpack_from(data, at)
    if magic != MAGIC or not _BODY.size <= length <= MAX_BATCH_BYTES:
        return BadBatch(position, "no batch begins here")
    start = at + _FRONT.size
    end = start + length
    if end > len(data):
        return BadBatch(position, f"the file ends in a batch of {length} bytes, after {len(data) - start}")
    body = data[start:end]
    if zlib.crc32(body) != crc:
        return BadBatch(position, "the batch does not match its checksum")
    kind, first_offset, count, epoch, sequence, at_ns, durable, name_length = _BODY.unpack_from(body)
    name_end = _BODY.size + name_length
    producer = Producer(body[_BODY.size : name_end].decode(), epoch) if name_length else None
    return RecordBatch(
        _KINDS[kind],
        first_offset,
        count,
        producer,
        sequence,
        at_ns,
        durable,
        crc,
        position,
        _FRONT.size + length,
        body[name_end:],
    )


def _needed_bytes(data: bytes, at: int) -> int:
    """The size of the batch at ``data[at]`` if its head is valid, else that of a head."""
    if at + _FRONT.size > len(data):
        return HEAD_BYTES
    magic, length, _ = _FRONT.unpack_from(data, at)
    return int(_FRONT.size + length) if magic == MAGIC and length <= MAX_BATCH_BYTES else HEAD_BYTES


def read_batches(
    file: RandomAccessFile, position: int, end: int, next_offset: int | None, chunk_bytes: int = 1 << 18
) -> Iterator[RecordBatch | BadBatch]:
    """The batches of a segment between two positions; the last may be a bad one.

    With ``next_offset``, a batch with another first offset than expected is bad too.
    """
    while position < end:
        data = file.read_at(position, min(chunk_bytes, end - position))
        if not data:
            yield BadBatch(position, f"the file ends before byte {end}")
            return
        at = 0
        while at < len(data):
            if at + _needed_bytes(data, at) > len(data) and position + len(data) < end:
                break
            found = read_batch(data, at, position + at)
            if isinstance(found, RecordBatch) and next_offset is not None and found.first_offset != next_offset:
                found = BadBatch(found.position, f"offset {found.first_offset} stands where {next_offset} should")
            yield found
            if isinstance(found, BadBatch):
                return
            next_offset = found.end_offset
            at += found.size_bytes
        position += at
        if not at:
            chunk_bytes = max(2 * chunk_bytes, _needed_bytes(data, 0))


def whole_batches_behind(data: bytes, at: int) -> Iterator[RecordBatch]:
    """Every whole batch anywhere in ``data`` from ``at`` on, also after a bad one."""
    while (at := data.find(_MAGIC_BYTES, at)) >= 0:
        found = read_batch(data, at, at)
        if isinstance(found, BadBatch):
            at += 1
        else:
            yield found
            at += found.size_bytes
