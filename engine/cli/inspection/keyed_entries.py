"""Keyed state in a checkpoint for people, in any form: its entries, and the files that contain them.

For each file of a store it says whether this checkpoint has uploaded it or only refers to it, and which checkpoint
uploaded it. For a log of changes it says which changes each segment holds. Entries are those that a restore would use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from state_backends.base import StateArgumentError
from state_backends.codec import inspecting_codec, plain
from state_backends.files import MemoryFileSystem
from state_backends.offline import write_in_full
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    CheckpointStorage,
    DecodedBlock,
    FileStateHandle,
    FullKeyedStateHandle,
    FullSnapshotReader,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    LogSegment,
    StateReader,
    StoreFile,
    StreamStateHandle,
)

_OF_A_CHECKPOINT = re.compile(r"-(\d+)-\d+$")
"""The end of the name of a file that a checkpoint has written: its number, and a counter."""


def inspect_keyed(handle: KeyedStateHandle, reader: StateReader, max_parallelism: int, limit: int) -> dict[str, Any]:
    """One subtask's keyed state as plain data.

    :param limit: how many entries of each state are shown
    :raises StateBackendError: when a file is missing or damaged
    """
    groups = handle.key_group_range
    inspected: dict[str, Any] = {
        **_form(handle, reader),
        "key_type": None,
        "key_groups": [groups.first, groups.last],
        "states": [],
    }
    if isinstance(handle, FullKeyedStateHandle):
        inspected.update(_entries_of(handle, reader, limit))
        return inspected
    restored = CheckpointStorage(MemoryFileSystem(), "/", "inspected").initialize_location(1)
    try:
        full = write_in_full(handle, reader, max_parallelism, inspecting_codec(), restored.stream_factory("full"))
    except StateArgumentError as error:
        # Files of a store whose package is not installed here: everything except the entries can be shown.
        inspected["unreadable"] = str(error)
        return inspected
    if full is not None:
        inspected.update(_entries_of(full, restored.reader(), limit))
    return inspected


# --- entries ----------------------------------------------------------------------------------------------------------


def _entries_of(handle: FullKeyedStateHandle, reader: StateReader, limit: int) -> dict[str, Any]:
    with reader.open(handle.stream) as file:
        snapshot = FullSnapshotReader(file, handle, inspecting_codec())
        states: dict[tuple[str, bool], dict[str, Any]] = {}
        for block in snapshot.blocks(handle.key_group_range):
            state = states.setdefault(
                (block.state.name, block.state.namespaced),
                {
                    "name": block.state.name,
                    "kind": block.state.kind,
                    "namespaced": block.state.namespaced,
                    "entries": 0,
                    "key_groups": {},
                    "shown": [],
                },
            )
            state["entries"] += len(block.keys)
            state["key_groups"][str(block.key_group)] = len(block.keys)
            state["shown"] += _shown(block, limit - len(state["shown"]))
    return {"key_type": str(snapshot.header.key_type), "states": [states[one] for one in sorted(states)]}


def _shown(block: DecodedBlock, limit: int) -> list[dict[str, Any]]:
    entries = []
    for position in range(min(len(block.keys), limit)):
        entry = {"key_group": block.key_group, "key": plain(block.keys[position])}
        if block.namespaces is not None:
            entry["namespace"] = plain(block.namespaces[position])
        entry["value"] = plain(block.values[position])
        entries.append(entry)
    return entries


# --- forms ------------------------------------------------------------------------------------------------------------


def stored(stream: StreamStateHandle) -> dict[str, Any]:
    """The place of some bytes."""
    if isinstance(stream, FileStateHandle):
        crc32 = f"{stream.checksum:08x}"
        return {"bytes": stream.size_bytes, "file": stream.path, "scope": stream.scope.value, "crc32": crc32}
    return {"bytes": stream.size_bytes, "file": None, "scope": "inline", "crc32": None}


def _form(handle: KeyedStateHandle, reader: StateReader) -> dict[str, Any]:
    sizes = {"full_bytes": handle.size_bytes, "uploaded_bytes": handle.persisted_bytes}
    if isinstance(handle, FullKeyedStateHandle):
        return {"form": "full", **sizes, "stored": stored(handle.stream)}
    if isinstance(handle, IncrementalKeyedStateHandle):
        return {"form": "incremental", **sizes, **_store(handle, reader)}
    assert isinstance(handle, ChangelogKeyedStateHandle), handle
    return {
        "form": "changelog",
        **sizes,
        "materialization_id": handle.materialization_id,
        "materialized_now": handle.materialized_is_new,
        "materialized": [_form(one, reader) for one in handle.materialized],
        "log": [_segment(segment) for segment in handle.log],
    }


def _store(handle: IncrementalKeyedStateHandle, reader: StateReader) -> dict[str, Any]:
    described = _described(handle, reader)
    data = [{**_file(file), **described.get(file.name, {})} for file in handle.shared_files]
    data.sort(key=lambda file: file.get("level", 0))
    return {
        "store": handle.store,
        "backend_id": handle.backend_id,
        "data_files": data,
        "levels": _levels(data),
        "private_files": [_file(file) for file in handle.private_files],
        "meta": stored(handle.meta),
    }


def _file(file: StoreFile) -> dict[str, Any]:
    return {"name": file.name, **stored(file.stream), **_origin(file.stream, file.uploaded)}


def _segment(segment: LogSegment) -> dict[str, Any]:
    changes = {"first": segment.first, "end": segment.end}
    return {**changes, **stored(segment.stream), **_origin(segment.stream, segment.uploaded)}


def _origin(stream: StreamStateHandle, uploaded: bool) -> dict[str, Any]:
    """Whether this checkpoint uploaded it; if not, which one did, as far as its name tells."""
    found = _OF_A_CHECKPOINT.search(stream.path) if isinstance(stream, FileStateHandle) and not uploaded else None
    return {"uploaded_now": uploaded, "uploaded_by": None if found is None else int(found[1])}


def _described(handle: IncrementalKeyedStateHandle, reader: StateReader) -> Mapping[str, dict[str, Any]]:
    """The description of our own store's data files, by name."""
    if handle.store != "lsm":
        return {}
    from state_backends.lsm import read_manifest

    manifest = next(file for file in handle.private_files if file.name.startswith("MANIFEST"))
    with reader.open(manifest.stream) as opened:
        levels = read_manifest(opened.read(), manifest.name).version.levels
    return {
        file.name: {"level": level, "entries": file.entries, "tombstones": file.tombstones}
        for level, files in enumerate(levels)
        for file in files
    }


def _levels(files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    levels: dict[int, dict[str, Any]] = {}
    for file in files:
        if "level" in file:
            level = levels.setdefault(file["level"], {"level": file["level"], "files": 0, "bytes": 0, "entries": 0})
            level["files"] += 1
            level["bytes"] += file["bytes"]
            level["entries"] += file["entries"]
    return [levels[level] for level in sorted(levels)]
