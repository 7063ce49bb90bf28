"""Records in flight as state: the records queued between two subtasks when a checkpoint overtook them.

A *piece* holds the records of one channel in their order, as columns. The name of its edge and the subtasks at its ends
identify a channel. So another job, with another parallelism, can find the new place of the records.

File: preamble ``WEIRCHAN``, a header frame with the pieces, one frame per piece, an end frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from state_backends.base import (
    StateSchemaError,
    check_shape,
    list_of,
    number,
    optional,
    positive,
    row,
    text,
    values,
    whole,
)
from state_backends.codec import FrameReader, StateCodec, default_codec, frame, preamble
from state_backends.snapshots.contract import (
    CheckpointStream,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StateReader,
    StreamFactory,
)
from state_backends.snapshots.handles import (
    ChannelName,
    ChannelStateHandle,
    ChannelStatePiece,
    StateScope,
    describe_stream,
)

_new_tuple = tuple.__new__

MAGIC = b"WEIRCHAN"
FORMAT_VERSION = 1

_HEADER, _PIECE, _END = 1, 2, 3

_PIECES = list_of(row(text, whole, whole, positive))
_COLUMNS = list_of(row(values, optional(list_of(number)), optional(values)))


class RecordColumns(NamedTuple):
    """Records in order, as parallel lists.

    :ivar values: the records
    :ivar timestamps: their event times in ms, or ``None``
    :ivar keys: their keys, or ``None``
    """

    values: Sequence[Any]
    timestamps: Sequence[int] | None
    keys: Sequence[Any] | None


class ChannelStateResources(SnapshotResources):
    """Captured records by channel. Emitted records never change, so they need no copy."""

    def __init__(self, channels: Iterable[tuple[ChannelName, Sequence[RecordColumns]]]) -> None:
        self.channels = [
            (name, sum([len(one.values) for one in parts]), parts)
            for name, columns in channels
            if (parts := joined(columns))
        ]

    def _release(self) -> None:
        self.channels = []


class ChannelStateSnapshotTask(SnapshotTask[ChannelStateHandle]):
    """Writes captured records, one channel per step."""

    def __init__(
        self, resources: ChannelStateResources, stream_factory: StreamFactory, codec: StateCodec | None = None
    ) -> None:
        super().__init__(resources)
        self._captured = resources
        self._stream_factory = stream_factory
        self._codec = codec or default_codec()
        self._stream: CheckpointStream | None = None
        self._pieces: list[ChannelStatePiece] = []

    def _advance(self) -> SnapshotResult[ChannelStateHandle] | None:
        channels, codec = self._captured.channels, self._codec
        if not channels:
            return SnapshotResult(None)
        if self._stream is None:
            self._stream = self._stream_factory.create_stream(StateScope.EXCLUSIVE)
            header = codec.encode([[*name, count] for name, count, _ in channels])
            self._stream.write(preamble(MAGIC, FORMAT_VERSION) + frame(_HEADER, 0, header))
        if len(self._pieces) < len(channels):
            name, count, columns = channels[len(self._pieces)]
            # Written out: half as long as calling the class, and there may be thousands.
            self._pieces.append(_new_tuple(ChannelStatePiece, (name, count, self._stream.tell())))
            plain = [list(map(_plain, one)) for one in columns]
            try:
                payload = codec.pack(plain)
            except Exception as problem:
                what = f"records in flight on {name.edge} from subtask {name.sender} to {name.receiver}"
                raise codec.refusal(plain, what, problem) from problem
            self._stream.write(frame(_PIECE, 0, payload))
            return None
        self._stream.write(frame(_END, 0, codec.encode(len(self._pieces))))
        stream = self._stream.close_and_get_handle()
        assert stream is not None
        return SnapshotResult(ChannelStateHandle(tuple(self._pieces), stream))

    def _discard(self) -> None:
        if self._stream is not None:
            self._stream.close()


def read_channel_state(
    reader: StateReader, handle: ChannelStateHandle, codec: StateCodec | None = None
) -> dict[ChannelName, list[RecordColumns]]:
    """The records of every piece of a handle. The whole file is read and checked.

    :raises CorruptStateError: when the bytes read differ from the bytes written
    :raises StateSchemaError: when the file, or a value in it, needs a newer program
    """
    codec = codec or default_codec()
    path = describe_stream(handle.stream)
    pieces: dict[ChannelName, list[RecordColumns]] = {}
    described: list[ChannelStatePiece] = []
    with reader.open(handle.stream) as file:
        frames = FrameReader(file, path, MAGIC, FORMAT_VERSION)
        try:
            header = codec.decode(frames.read(bytes([_HEADER])).payload, path)
        except StateSchemaError as problem:
            # The header has no values of the user.
            raise frames.corrupt(f"malformed: {problem}") from problem
        check_shape(header, _PIECES, path, "channels")
        for edge, sender, receiver, records in header:
            name = ChannelName(edge, sender, receiver)
            described.append(ChannelStatePiece(name, records, frames.tell()))
            plain = codec.decode(frames.read(bytes([_PIECE])).payload, path)
            what = f"channel {edge} {sender}->{receiver}"
            check_shape(plain, _COLUMNS, path, what)
            found = pieces[name] = [RecordColumns(*one) for one in plain]
            if sum(len(one.values) for one in found) != records or not all(map(_is_whole, found)):
                raise frames.corrupt(f"{what} does not hold {records} records")
        frames.read(bytes([_END]))
        frames.expect_end()
        if tuple(described) != handle.pieces or len(pieces) < len(described):
            raise frames.corrupt("it holds other channels, or other numbers of records, than its handle says")
    return pieces


def _is_whole(columns: RecordColumns) -> bool:
    """Whether there are records, and timestamps and keys are present for all records or for none."""
    beside = (columns.timestamps, columns.keys)
    return len(columns.values) > 0 and all(one is None or len(one) == len(columns.values) for one in beside)


def joined(columns: Sequence[RecordColumns]) -> list[RecordColumns]:
    """The same records in as few parts as possible: the bytes must not depend on how batches were cut."""
    if len(columns) == 1:
        # Record by record, most channels hold one: it is never changed, and needs no copy.
        return list(columns) if len(columns[0].values) else []
    if all(one.timestamps is None and one.keys is None for one in columns):
        plain = list(chain.from_iterable([one.values for one in columns]))
        return [RecordColumns(plain, None, None)] if plain else []
    parts: list[RecordColumns] = []
    for (has_no_timestamps, has_no_keys), run in groupby(filter(lambda part: len(part.values), columns), _shape):
        values, timestamps, keys = zip(*run, strict=True)
        parts.append(
            RecordColumns(
                list(chain.from_iterable(values)),
                None if has_no_timestamps else list(chain.from_iterable(timestamps)),
                None if has_no_keys else list(chain.from_iterable(keys)),
            )
        )
    return parts


def _shape(columns: RecordColumns) -> tuple[bool, bool]:
    return columns.timestamps is None, columns.keys is None


def _plain(column: Sequence[Any] | None) -> list[Any] | None:
    return column if column is None or type(column) is list else list(column)
