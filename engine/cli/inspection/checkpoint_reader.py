"""Read a checkpoint for people: find it, verify every byte, decode its state into JSON-able data.

No job is needed here: files describe themselves. Reading changes nothing, and needs no lock, because an existing
checkpoint is never written again. (An active run may delete an old one while it is read; that shows as missing.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.cli.inspection.in_flight import in_flight_totals, inspect_in_flight
from engine.cli.inspection.keyed_entries import inspect_keyed, stored
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.suggestions import nearest
from state_backends.api import OperatorStateBackend
from state_backends.codec import inspecting_codec, plain
from state_backends.files import FileSystem
from state_backends.snapshots import (
    CHECKPOINT_PREFIX,
    METADATA_FILE_NAME,
    SAVEPOINT_PREFIX,
    CheckpointLocation,
    CheckpointStorage,
    FileStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStateMode,
    StateReader,
    SubtaskSnapshot,
    checkpoint_id_of,
)

INSPECTION_SCHEMA = "weir-checkpoint"
INSPECTION_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint's directory, and that of its job (``None``: a savepoint, which contains all its files)."""

    file_system: FileSystem
    directory: str
    job_dir: str | None

    def location(self) -> CheckpointLocation:
        """The checkpoint, ready to be read. Raises :class:`state_backends.base.StateBackendError` when damaged."""
        checkpoint_id = checkpoint_id_of(self.directory)
        if self.job_dir is None or checkpoint_id is None:
            return CheckpointStorage(self.file_system, self.directory, "savepoint").savepoint_location(self.directory)
        return CheckpointLocation(self.file_system, checkpoint_id, self.directory, self.job_dir)


@dataclass(frozen=True, slots=True)
class Selection:
    """The part to show: of which operator (``None`` = all), and how many entries of each state of a subtask.

    As data, records in flight are always complete; the text shows ``limit`` of each channel.
    """

    uid: str | None = None
    limit: int = 20


# --- finding ----------------------------------------------------------------------------------------------------------


def find_checkpoint(file_system: FileSystem, path: str) -> FoundCheckpoint:
    """The checkpoint at the absolute ``path``. Raises :class:`StorageError` when there is none, or when there are
    several candidates."""
    if not file_system.exists(path):
        raise StorageError(
            f"{path}: there is no such file or directory\n  fix: name a savepoint, a checkpoint or a storage directory"
        )
    if posixpath.basename(path) == METADATA_FILE_NAME and not file_system.is_dir(path):
        path = posixpath.dirname(path)
    elif not file_system.is_dir(path):
        raise StorageError(f"{path}: is a file, but no {METADATA_FILE_NAME}\n  fix: name the checkpoint's directory")
    is_checkpoint = checkpoint_id_of(path) is not None
    if file_system.exists(posixpath.join(path, METADATA_FILE_NAME)):
        # A savepoint is never named chk-N: that name says that shared files may lie beside it.
        return FoundCheckpoint(file_system, path, posixpath.dirname(path) if is_checkpoint else None)
    if is_checkpoint:
        raise StorageError(f"{path}: has no {METADATA_FILE_NAME}, so this checkpoint was never completed")
    if posixpath.basename(path).startswith(SAVEPOINT_PREFIX):
        raise StorageError(f"{path}: has no {METADATA_FILE_NAME}, so this savepoint was never completed")
    savepoint = _only_savepoint(file_system, path)
    if savepoint is not None:
        return FoundCheckpoint(file_system, savepoint, None)
    return _newest(file_system, _job_directory(file_system, path))


def _only_savepoint(file_system: FileSystem, path: str) -> str | None:
    """The savepoint in a directory of savepoints; ``None`` when it holds none. Raises :class:`StorageError` when there
    are several."""
    below = [posixpath.join(path, name) for name in file_system.list_dir(path) if name.startswith(SAVEPOINT_PREFIX)]
    found = sorted(one for one in below if file_system.exists(posixpath.join(one, METADATA_FILE_NAME)))
    if len(found) > 1:
        raise StorageError(f"{path}: holds several savepoints ({', '.join(found)})\n  fix: name one of them")
    return found[0] if found else None


def _job_directory(file_system: FileSystem, path: str) -> str:
    """The directory that contains the ``chk-N``: ``path`` itself, or the one job below it."""
    if _checkpoint_ids(file_system, path):
        return path
    below = [posixpath.join(path, name) for name in file_system.list_dir(path)]
    jobs = [one for one in below if file_system.is_dir(one) and _checkpoint_ids(file_system, one)]
    if len(jobs) > 1:
        raise StorageError(f"{path}: holds several jobs ({', '.join(jobs)})\n  fix: name one of these directories")
    if not jobs:
        raise StorageError(
            f"{path}: holds no completed checkpoint and no savepoint\n"
            "  fix: name a savepoint, a checkpoint or a storage directory in which a checkpoint has completed"
        )
    return jobs[0]


def _newest(file_system: FileSystem, job_dir: str) -> FoundCheckpoint:
    ids = _checkpoint_ids(file_system, job_dir)
    if not ids:
        raise StorageError(f"{job_dir}: holds no completed checkpoint yet")
    return FoundCheckpoint(file_system, posixpath.join(job_dir, f"{CHECKPOINT_PREFIX}{ids[-1]}"), job_dir)


def _checkpoint_ids(file_system: FileSystem, directory: str) -> list[int]:
    """The numbers of the completed checkpoints in a directory, ascending."""
    if not file_system.is_dir(directory):
        return []
    found = [
        checkpoint_id_of(name)
        for name in file_system.list_dir(directory)
        if file_system.exists(posixpath.join(directory, name, METADATA_FILE_NAME))
    ]
    return sorted(number for number in found if number is not None)


# --- reading ----------------------------------------------------------------------------------------------------------


def inspect_checkpoint(found: FoundCheckpoint, selection: Selection) -> dict[str, Any]:
    """Verify a checkpoint and decode what is selected.

    Raises :class:`state_backends.base.StateBackendError` naming the file when anything is missing or damaged, also
    outside the selection, and :class:`ConfigurationError` when no operator has the uid.
    """
    location = found.location()
    metadata = location.verify()
    operators = selected_operators(metadata.operators, selection, found.directory)
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


def selected_operators(
    operators: tuple[OperatorSnapshot, ...], selection: Selection, path: str
) -> Iterable[OperatorSnapshot]:
    """The operators to show. Raises :class:`ConfigurationError` when none has the uid."""
    if selection.uid is None:
        return operators
    chosen = [one for one in operators if one.uid == selection.uid]
    if not chosen:
        uids = [one.uid for one in operators]
        close = nearest(selection.uid, uids)
        hint = f"did you mean {close!r}?" if close else f"it has: {', '.join(uids)}"
        raise ConfigurationError(f"{path}: no operator has uid {selection.uid!r}; {hint}")
    return chosen


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


def _elements(backend: OperatorStateBackend, name: str, mode: OperatorStateMode) -> list[Any]:
    if mode is OperatorStateMode.BROADCAST:
        return [list(entry) for entry in backend.broadcast_state(name).entries()]
    is_union = mode is OperatorStateMode.UNION
    return (backend.union_list_state(name) if is_union else backend.list_state(name)).get()


def _operator_state(handle: OperatorStateHandle, reader: StateReader, limit: int) -> dict[str, Any]:
    backend = OperatorStateBackend(codec=inspecting_codec())
    backend.restore([handle], reader)
    states = []
    for name, where in sorted(handle.states.items()):
        elements = _elements(backend, name, where.mode)
        states.append(
            {
                "name": name,
                "mode": where.mode.value,
                "elements": len(elements),
                "shown": [plain(element) for element in elements[:limit]],
            }
        )
    return {"stored": stored(handle.stream), "states": states}
