"""``weir.state``: the state in a checkpoint or savepoint as a DataFrame, one row for each entry.

Parts: ``keyed`` (with timers, whose value is their time in ms), ``operator`` (an element each; of broadcast state an
entry), ``in flight`` (a record each). The driver reads metadata only. Executors read the parts, and check the bytes
that they read: a partition has some key groups of a large part, or several small ones. State in the files of a store is
restored by one task for each subtask that wrote it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from engine.elements.suggestions import nearest
from engine.runtime.storage import FoundCheckpoint, find_checkpoint, selected_operators
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.source_options import PARTITION_BYTES, SourceOptions, file_system_of
from spark_bridge.registered.typed_columns import ROWS_PER_BATCH, Columns
from state_backends.base import KeyGroupRange
from state_backends.codec import inspecting_codec
from state_backends.offline import keyed_blocks, keyed_state_names, operator_elements
from state_backends.snapshots import (
    ChannelName,
    CheckpointLocation,
    FullKeyedStateHandle,
    KeyedStateHandle,
    OperatorSnapshot,
    StateReader,
    SubtaskSnapshot,
    read_channel_state,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "weir.state"

STATE_SCHEMA = (
    "operator string not null, part string not null, state string, kind string not null, subtask int not null,"
    " key_group int, key string, namespace string, value string not null, timestamp_ms bigint,"
    " channel struct<edge: string, sender: int, receiver: int>,"
    " key_bytes binary, namespace_bytes binary, value_bytes binary not null"
)
"""Columns: ``state`` is null for records in flight, and ``kind`` is their side (``input``, ``output``), that of keyed
state as in files (``value``, ``map``, ``timers`` …) or that of operator state (``split``, ``union``, ``broadcast``)."""

KEYED, OPERATOR, IN_FLIGHT = "keyed", "operator", "in flight"


class StateRow(NamedTuple):
    """A row before its values become columns; see :data:`STATE_SCHEMA`."""

    operator: str
    part: str
    state: str | None
    kind: str
    subtask: int
    key_group: int | None
    key: Any
    namespace: Any
    value: Any
    timestamp_ms: int | None = None
    channel: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StatePiece:
    """What a task reads of one subtask; ``key_groups``: of keyed state, first and last."""

    operator: str
    subtask: int
    part: str
    size_bytes: int
    key_groups: tuple[int, int] | None = None


class StateSource(DataSource):
    """Options: ``path``, a checkpoint, a savepoint, or a directory that stands for its newest one; ``operator``, a uid;
    ``state``, a name; ``partition_bytes``. A schema of the user declares the types of key, namespace and value.

    The checkpoint is chosen when the source is loaded. An error then names what is wrong with an option.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        chosen = SourceOptions(FORMAT, options, ["path"], ["operator", "state", "partition_bytes"])
        self._operator, self._state = chosen.get("operator"), chosen.get("state")
        self._partition_bytes = chosen.count("partition_bytes", PARTITION_BYTES)
        found = find_checkpoint(*chosen.place())
        self._directory = found.directory
        operators = _operators(found, self._operator)
        if self._state is not None:
            _check_state(self._state, operators, found)

    def schema(self) -> str:
        return STATE_SCHEMA

    def reader(self, schema: StructType) -> StateReaderOfParts:
        columns = Columns(FORMAT, STATE_SCHEMA, ["key", "namespace", "value"], schema)
        return StateReaderOfParts(self._directory, self._operator, self._state, self._partition_bytes, columns)


class StateReaderOfParts(DataSourceReader):
    """Reads one checkpoint, whose directory is ``directory``."""

    def __init__(
        self, directory: str, operator: str | None, state: str | None, partition_bytes: int, columns: Columns
    ) -> None:
        self._directory, self._operator, self._state = directory, operator, state
        self._partition_bytes, self._columns = partition_bytes, columns

    def partitions(self) -> Sequence[InputPartition]:
        operators = _operators(_found(self._directory), self._operator)
        pieces = (piece for one in operators for piece in _pieces(one, self._state is None, self._partition_bytes))
        return [InputPartition(packed) for packed in _packed(pieces, self._partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        location = _found(self._directory).location()
        rows = itertools.chain.from_iterable(_read(location, partition.value, self._state))
        while chunk := list(itertools.islice(rows, ROWS_PER_BATCH)):
            yield _batch(self._columns, chunk)


def _found(directory: str) -> FoundCheckpoint:
    return find_checkpoint(*file_system_of(directory))


def _operators(found: FoundCheckpoint, uid: str | None) -> Sequence[OperatorSnapshot]:
    return selected_operators(found.location().read_metadata().operators, uid, found.directory)


def _check_state(state: str, operators: Iterable[OperatorSnapshot], found: FoundCheckpoint) -> None:
    """Raises :class:`SparkBridgeError` when no operator has a state of this name."""
    reader, names = found.location().reader(), dict[str, None]()
    for operator in operators:
        for subtask in operator.subtasks.values():
            if subtask.operator is not None:
                names.update(dict.fromkeys(sorted(subtask.operator.states)))
            if subtask.keyed is not None:
                of_keys = keyed_state_names(subtask.keyed, reader, operator.max_parallelism, inspecting_codec())
                names.update(dict.fromkeys(of_keys))
    if state not in names:
        close = nearest(state, names)
        hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(names) or 'none'}"
        raise SparkBridgeError(f"{found.directory}: no operator that is read has a state {state!r}; {hint}")


# --- partitions -------------------------------------------------------------------------------------------------------


def _pieces(operator: OperatorSnapshot, with_records: bool, partition_bytes: int) -> Iterator[StatePiece]:
    for index, subtask in sorted(operator.subtasks.items()):
        if subtask.keyed is not None:
            for groups, size in _key_groups(subtask.keyed, partition_bytes):
                yield StatePiece(operator.uid, index, KEYED, size, groups)
        if subtask.operator is not None:
            yield StatePiece(operator.uid, index, OPERATOR, subtask.operator.stream.size_bytes)
        channels = [one.size_bytes for one in (subtask.input_channels, subtask.output_channels) if one is not None]
        if channels and with_records:
            yield StatePiece(operator.uid, index, IN_FLIGHT, sum(channels))


def _key_groups(handle: KeyedStateHandle, partition_bytes: int) -> Iterator[tuple[tuple[int, int] | None, int]]:
    """Ranges of key groups, each of about that many bytes; ``None`` = all, of a handle that is read as a whole."""
    if not isinstance(handle, FullKeyedStateHandle) or handle.size_bytes <= partition_bytes:
        yield None, handle.size_bytes
        return
    first, start = handle.offsets[0]
    for (last, _), (following, end) in itertools.pairwise([*handle.offsets, (-1, handle.size_bytes)]):
        if end - start >= partition_bytes or following == -1:
            yield (first, last), end - start
            first, start = following, end


def _packed(pieces: Iterable[StatePiece], partition_bytes: int) -> Iterator[list[StatePiece]]:
    """Small pieces together, in order."""
    packed, size = list[StatePiece](), 0
    for piece in pieces:
        if packed and size + piece.size_bytes > partition_bytes:
            yield packed
            packed, size = [], 0
        packed.append(piece)
        size += piece.size_bytes
    if packed:
        yield packed


# --- rows -------------------------------------------------------------------------------------------------------------


def _read(
    location: CheckpointLocation, pieces: Sequence[StatePiece], state: str | None
) -> Iterator[Iterator[StateRow]]:
    reader = location.reader()
    operators = {one.uid: one for one in location.read_metadata().operators}
    for piece in pieces:
        operator = operators[piece.operator]
        subtask = operator.subtasks[piece.subtask]
        if piece.part == KEYED:
            rows = _keyed(piece, subtask, operator.max_parallelism, reader)
        elif piece.part == OPERATOR:
            rows = _of_operator(piece, subtask, reader)
        else:
            rows = _in_flight(piece, subtask, reader)
        yield (row for row in rows if state is None or row.state == state)


def _keyed(
    piece: StatePiece, subtask: SubtaskSnapshot, max_parallelism: int, reader: StateReader
) -> Iterator[StateRow]:
    assert subtask.keyed is not None, piece
    groups = None if piece.key_groups is None else KeyGroupRange(*piece.key_groups)
    for block in keyed_blocks(subtask.keyed, reader, max_parallelism, inspecting_codec(), groups):
        where = piece.operator, KEYED, block.state.name, block.state.kind, piece.subtask, block.key_group
        namespaces = block.namespaces or itertools.repeat(None, len(block.keys))
        for entry in zip(block.keys, namespaces, block.values, strict=True):
            yield StateRow(*where, *entry)


def _of_operator(piece: StatePiece, subtask: SubtaskSnapshot, reader: StateReader) -> Iterator[StateRow]:
    assert subtask.operator is not None, piece
    for name, mode, elements in operator_elements(subtask.operator, reader, inspecting_codec()):
        for element in elements:
            key, value = element if mode.value == "broadcast" else (None, element)
            yield StateRow(piece.operator, OPERATOR, name, mode.value, piece.subtask, None, key, None, value)


def _in_flight(piece: StatePiece, subtask: SubtaskSnapshot, reader: StateReader) -> Iterator[StateRow]:
    for side, handle in (("input", subtask.input_channels), ("output", subtask.output_channels)):
        channels = {} if handle is None else read_channel_state(reader, handle, inspecting_codec())
        for channel, columns in channels.items():
            where, named = (piece.operator, IN_FLIGHT, None, side, piece.subtask, None), _named(channel)
            for part in columns:
                keys = part.keys or itertools.repeat(None)
                times = part.timestamps or itertools.repeat(None)
                for key, value, time in zip(keys, part.values, times, strict=False):
                    yield StateRow(*where, key, None, value, time, named)


def _named(channel: ChannelName) -> dict[str, Any]:
    return {"edge": channel.edge, "sender": channel.sender, "receiver": channel.receiver}


def _batch(columns: Columns, rows: Sequence[StateRow]) -> Any:
    encode = inspecting_codec().encode
    by_name = dict(zip(StateRow._fields, zip(*rows, strict=True), strict=True))

    def column(name: str) -> Sequence[Any]:
        if name == "value":
            # A stored null is a value: as text it is "null".
            return columns.shown(by_name[name])
        if name in ("key", "namespace"):
            return columns.shown_if_any(by_name[name])
        if name == "value_bytes":
            return [encode(value) for value in by_name["value"]]
        if name.endswith("_bytes"):
            return [None if one is None else encode(one) for one in by_name[name.removesuffix("_bytes")]]
        return by_name[name]

    def place(number: int) -> str:
        row = rows[number]
        what = "a record in flight" if row.state is None else f"state {row.state!r}"
        return f"operator {row.operator!r}, subtask {row.subtask}, {what}, key {row.key!r}"

    return columns.batch(column, place)
