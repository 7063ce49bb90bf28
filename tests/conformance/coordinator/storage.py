"""Where checkpoint files lie, and when state is a file at all."""

from __future__ import annotations

import posixpath
import re

from state_backends.files import MemoryFileSystem
from state_backends.snapshots import (
    ByteStreamStateHandle,
    CheckpointLocation,
    CheckpointStorage,
    FileStateHandle,
    StateScope,
    new_savepoint,
)
from state_backends.snapshots.savepoints import job_id
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_BASE, _TARGET, _JOB = "/base", "/target", "job"


def _file_of(location: CheckpointLocation, fs: MemoryFileSystem, scope: StateScope) -> str:
    stream = location.stream_factory("operator-0").create_stream(scope)
    stream.write(b"state")
    handle = stream.close_and_get_handle()
    assert isinstance(handle, FileStateHandle), handle
    (path,) = fs.walk_files("/")
    return path


def storage_layout(vector: Vector) -> list[str]:
    """``storage_layout``: the directory of a state file, or the path of the metadata."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"location", "scope", "checkpoint_id"}, "input")
    fs, checkpoint_id = MemoryFileSystem(), given["checkpoint_id"]
    match given["location"]:
        case "checkpoint":
            storage = CheckpointStorage(fs, _BASE, _JOB, inline_threshold_bytes=0)
            location = storage.initialize_location(checkpoint_id)
        case "savepoint":
            location = new_savepoint(fs, _TARGET, _JOB, checkpoint_id, 1, inline_threshold_bytes=0)
        case other:
            raise MalformedVector(f"unknown location {other!r}")
    if given["scope"] == "METADATA":
        path = location.metadata_path
    elif given["scope"] in StateScope.__members__:
        path = posixpath.dirname(_file_of(location, fs, StateScope[given["scope"]]))
    else:
        raise MalformedVector(f"unknown scope {given['scope']!r}")
    comparison.fields(vector["expect"], {"path": _pattern(path)})
    return comparison.finish()


def _pattern(path: str) -> str:
    path = re.sub(rf"^{_BASE}/{_JOB}(?=/|$)", "<base>/<job-id>", path)
    return re.sub(rf"^{_TARGET}/savepoint-{job_id(_JOB)[:6]}-[^/]+", "<target>/savepoint-<job6>-<rand>", path)


def stream_handle_kind(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"bytes_written", "buffer_size", "inline_threshold"}, "input")
    written, threshold = given["bytes_written"], given["inline_threshold"]
    # ``buffer_size`` says when a stream writes to its file at the latest. Ours writes as soon as it holds more than the
    # threshold, and like all that a storage makes never before (Flink: the buffer is at least as large as that).
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, _BASE, _JOB, inline_threshold_bytes=threshold)
    stream = storage.initialize_location(1).stream_factory("operator-0").create_stream()
    left = written
    while left:
        piece = min(left, 100)
        stream.write(bytes(piece))
        left -= piece
    handle = stream.close_and_get_handle()
    kinds = {FileStateHandle: "FILE", ByteStreamStateHandle: "INLINE_BYTES", type(None): None}
    comparison.fields(vector["expect"], {"handle": kinds[type(handle)]})
    comparison.field("files", int(isinstance(handle, FileStateHandle)), len(list(fs.walk_files("/"))))
    return comparison.finish()


KINDS = {"storage_layout": storage_layout, "stream_handle_kind": stream_handle_kind}
