"""Read a checkpoint for people: verify every byte, decode its state into JSON-able data.

No job is needed here: files describe themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.cli.inspection.in_flight import in_flight_totals, inspect_in_flight
from engine.cli.inspection.keyed_entries import inspect_keyed, stored
from engine.runtime.storage import FoundCheckpoint, selected_operators
from state_backends.codec import inspecting_codec, plain
from state_backends.offline import operator_elements
from state_backends.snapshots import (
    FileStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    StateReader,
    SubtaskSnapshot,
)

INSPECTION_SCHEMA = "weir-checkpoint"
INSPECTION_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The part to show: of which operator (``None`` = all), and how many entries of each state of a subtask.

    As data, records in flight are always complete; the text shows ``limit`` of each channel.
    """

    uid: str | None = None
    limit: int = 20


def inspect_checkpoint(found: FoundCheckpoint, selection: Selection) -> dict[str, Any]:
    """Verify a checkpoint and decode what is selected.

    Raises :class:`state_backends.base.StateBackendError` naming the file when anything is missing or damaged, also
    outside the selection, and
    :class:`engine.elements.errors.ConfigurationError` when no operator has the uid.
    """
    location = found.location()
    metadata = location.verify()
    operators = selected_operators(metadata.operators, selection.uid, found.directory)
    reader = location.reader()
    files = [stream for stream in metadata.streams() if isinstance(stream, FileStateHandle)]
    return {
        "schema": INSPECTION_SCHEMA,
        "schema_version": INSPECTION_SCHEMA_VERSION,
        "path": found.directory,
        "checkpoint_id": metadata.checkpoint_id,
        "kind": metadata.properties.get("kind", "checkpoint"),
        "timestamp_ns": metadata.timestamp,
        "incarnation": metadata.incarnation,
        "properties": {name: plain(value) for name, value in metadata.properties.items()},
        "state_bytes": metadata.size_bytes,
        "uploaded_bytes": _uploaded(metadata.operators),
        "in_flight": in_flight_totals(metadata.operators),
        "metadata_bytes": found.file_system.size(location.metadata_path),
        "files": len(files),
        "file_bytes": sum(file.size_bytes for file in files),
        "verified": True,
        "operators": [_operator(one, reader, selection.limit) for one in operators],
    }


def _uploaded(operators: Iterable[OperatorSnapshot]) -> int:
    """The bytes of state that were written for this checkpoint."""
    parts = [
        part
        for operator in operators
        for one in operator.subtasks.values()
        for part in (one.keyed, one.operator, one.input_channels, one.output_channels)
        if part is not None
    ]
    return sum(part.persisted_bytes for part in parts)


def _operator(operator: OperatorSnapshot, reader: StateReader, limit: int) -> dict[str, Any]:
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "state_bytes": sum(stream.size_bytes for subtask in operator.subtasks.values() for stream in subtask.streams()),
        "subtasks": [
            _subtask(index, subtask, reader, operator.max_parallelism, limit)
            for index, subtask in sorted(operator.subtasks.items())
        ],
    }


def _subtask(
    index: int, subtask: SubtaskSnapshot, reader: StateReader, max_parallelism: int, limit: int
) -> dict[str, Any]:
    return {
        "subtask": index,
        "finished": subtask.finished,
        "keyed": None if subtask.keyed is None else inspect_keyed(subtask.keyed, reader, max_parallelism, limit),
        "operator": None if subtask.operator is None else _operator_state(subtask.operator, reader, limit),
        "in_flight": inspect_in_flight(subtask, reader),
    }


def _operator_state(handle: OperatorStateHandle, reader: StateReader, limit: int) -> dict[str, Any]:
    states = [
        {
            "name": name,
            "mode": mode.value,
            "elements": len(elements),
            "shown": [plain(element) for element in elements[:limit]],
        }
        for name, mode, elements in operator_elements(handle, reader, inspecting_codec())
    ]
    return {"stored": stored(handle.stream), "states": states}
