"""Records in flight in a checkpoint for people: per side of a subtask and per channel, the records themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.cli.inspection.keyed_entries import stored
from engine.report.units import format_bytes, format_count, plural
from state_backends.codec import inspecting_codec, plain, shown
from state_backends.snapshots import (
    ChannelStateHandle,
    OperatorSnapshot,
    RecordColumns,
    StateReader,
    SubtaskSnapshot,
    read_channel_state,
)

MAX_SHOWN = 200
"""How many characters of a value a line of text shows."""

_SIDES = {"input": "into this subtask", "output": "out of this subtask"}


def in_flight_totals(operators: Iterable[OperatorSnapshot]) -> dict[str, int]:
    """How many records in flight a checkpoint holds, and the bytes of the files with them."""
    handles = [
        handle
        for operator in operators
        for subtask in operator.subtasks.values()
        for handle in (subtask.input_channels, subtask.output_channels)
        if handle is not None
    ]
    return {
        "records": sum(piece.records for handle in handles for piece in handle.pieces),
        "bytes": sum(handle.size_bytes for handle in handles),
    }


def inspect_in_flight(subtask: SubtaskSnapshot, reader: StateReader) -> dict[str, Any]:
    """Both sides of one subtask as plain data, every record included; ``None`` = no record was in flight there. Raises
    :class:`state_backends.base.StateBackendError` when a file is missing or damaged."""
    return {"input": _side(subtask.input_channels, reader), "output": _side(subtask.output_channels, reader)}


def _side(handle: ChannelStateHandle | None, reader: StateReader) -> dict[str, Any] | None:
    if handle is None:
        return None
    channels: list[dict[str, Any]] = [
        {"edge": name.edge, "sender": name.sender, "receiver": name.receiver, "records": list(_records(columns))}
        for name, columns in read_channel_state(reader, handle, inspecting_codec()).items()
    ]
    return {
        "stored": stored(handle.stream),
        "records": sum(len(channel["records"]) for channel in channels),
        "channels": channels,
    }


def _records(columns: Iterable[RecordColumns]) -> Iterator[dict[str, Any]]:
    for part in columns:
        for position, value in enumerate(part.values):
            record = {"value": plain(value)}
            if part.timestamps is not None:
                record["timestamp_ms"] = part.timestamps[position]
            if part.keys is not None:
                record["key"] = plain(part.keys[position])
            yield record


def in_flight_lines(in_flight: Mapping[str, Any], limit: int) -> Iterator[str]:
    """Both sides as text, with up to ``limit`` records of each channel."""
    for side, where in _SIDES.items():
        found = in_flight[side]
        if found is None:
            continue
        yield f"    {plural(found['records'], 'record')} in flight {where} ({side}), {place(found['stored'])}"
        for channel in found["channels"]:
            records = channel["records"]
            yield f"      {_channel(channel)}: {plural(len(records), 'record')}"
            yield from (f"        {_record(record)}" for record in records[:limit])
            if len(records) > limit:
                yield f"        … {plural(len(records) - limit, 'more record')}; --limit shows them"


def _channel(channel: Mapping[str, Any]) -> str:
    """``numbers[0] -> count[1]``, or the name of the edge in the file if it says more than that."""
    sender, receiver = channel["sender"], channel["receiver"]
    source, _, target = channel["edge"].removesuffix("#0").partition(">>")
    if not target or ">" in source + target or "#" in target:
        return f"edge {channel['edge']}, subtask {sender} -> {receiver}"
    return f"{source}[{sender}] -> {target}[{receiver}]"


def _record(record: Mapping[str, Any]) -> str:
    at = f" at {record['timestamp_ms']} ms" if "timestamp_ms" in record else ""
    key = f" under key {shown(record['key'])}" if "key" in record else ""
    return f"{clipped(record['value'])}{key}{at}"


# --- what all texts of an inspection share ----------------------------------------------------------------------------


def place(stored_in: Mapping[str, Any]) -> str:
    """The place and the size of some bytes."""
    where = "inline" if stored_in["file"] is None else f"{stored_in['file']} (crc32 {stored_in['crc32']})"
    return f"{format_bytes(stored_in['bytes'])} {where}"


def clipped(value: Any) -> str:
    """A JSON-able value for one line of text; a longer one is cut, and marked as cut."""
    text = shown(value)
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}… ({format_count(len(text))} characters; --json has all)"
