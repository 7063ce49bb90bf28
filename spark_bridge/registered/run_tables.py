"""``weir.checkpoints``: the checkpoint table of a run as a DataFrame, one row for each checkpoint, the oldest first.

Names and meanings are those of ``run.json`` and of ``docs/checkpoint-table.md``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.source_options import SourceOptions, file_system_of
from spark_bridge.registered.typed_columns import Columns
from state_backends.base import parse_json, unseal_json
from state_backends.files import FileSystem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "weir.checkpoints"

_SUBTASK = (
    "vertex string, index int, status string, ack_timestamp bigint, end_to_end_duration bigint,"
    " checkpointed_size bigint, state_size bigint, sync_duration bigint, async_duration bigint,"
    " alignment_duration bigint, start_delay bigint, processed_data bigint, persisted_data bigint,"
    " unaligned_checkpoint boolean, aborted boolean, finished boolean"
)

CHECKPOINT_SCHEMA = (
    "job string not null, id bigint not null, status string not null, is_savepoint boolean, savepointFormat string,"
    " checkpoint_type string, kind string, request_timestamp bigint, trigger_timestamp bigint,"
    " latest_ack_timestamp bigint, checkpointed_size bigint, state_size bigint, end_to_end_duration bigint,"
    " processed_data bigint, persisted_data bigint, num_subtasks int, num_acknowledged_subtasks int,"
    " external_path string, discarded boolean, retained boolean, failure_timestamp bigint, failure_reason string,"
    " failure_message string, orphans bigint, in_transit bigint,"
    f" subtasks array<struct<{_SUBTASK}>>"
)
"""Times and durations are ns of virtual time, sizes bytes. ``subtasks`` is empty once their reports were dropped."""


class CheckpointTable(DataSource):
    """Option: ``path``, a ``run.json``, the directory with it, or a storage directory."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        file_system, path = SourceOptions(FORMAT, options, ["path"], []).place()
        self._path = file_of_run(FORMAT, file_system, path, "run.json")
        _history(file_system, self._path)

    def schema(self) -> str:
        return CHECKPOINT_SCHEMA

    def reader(self, schema: StructType) -> CheckpointTableReader:
        return CheckpointTableReader(self._path, Columns(FORMAT, CHECKPOINT_SCHEMA, [], schema))


class CheckpointTableReader(DataSourceReader):
    """Reads the table of one ``run.json``, in one task."""

    def __init__(self, path: str, columns: Columns) -> None:
        self._path, self._columns = path, columns

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._path)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = _history(*file_system_of(self._path))
        if rows:
            place = f"{self._path}: checkpoint"
            yield self._columns.batch(
                lambda name: [row[name] for row in rows], lambda number: f"{place} {rows[number]['id']}"
            )


def file_of_run(format: str, file_system: FileSystem, path: str, name: str) -> str:
    """The file of a run that ``path`` means: itself, or ``name`` in it, as of a run or of a storage directory.

    :raises SparkBridgeError: there is none
    """
    if not file_system.exists(path):
        raise SparkBridgeError(f"{format}: {path}: there is no such file or directory")
    if not file_system.is_dir(path):
        return path
    for candidate in (posixpath.join(path, name), posixpath.join(path, "out", name)):
        if file_system.exists(candidate):
            return candidate
    raise SparkBridgeError(
        f"{format}: {path}: holds no {name}, so it is no directory of a run\n"
        f"  fix: name the directory that the run printed after `output in`, or the {name} itself"
    )


def _history(file_system: FileSystem, path: str) -> list[dict[str, Any]]:
    """The rows, the oldest first. Raises :class:`SparkBridgeError`."""
    try:
        text = file_system.read_bytes(path).decode()
        # The file of a run that still runs, or was killed, has no table yet.
        report = unseal_json(text) if "checkpoints" in parse_json(text) else {}
    except (OSError, ValueError) as error:
        raise SparkBridgeError(f"{FORMAT}: {path}: is damaged, or is no run.json ({error})") from None
    if not report:
        raise SparkBridgeError(
            f"{FORMAT}: {path}: has no checkpoint table: the run has not ended\n"
            "  fix: wait for its end, or resume it if it was killed"
        )
    return [_row(report["job"]["name"], one) for one in reversed(report["checkpoints"]["history"])]


def _row(job: str, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    subtasks = [
        _subtask(vertex, one) for vertex, task in checkpoint["tasks"].items() for one in task["subtasks"]
    ]
    return {**checkpoint, "job": job, "subtasks": subtasks}


def _subtask(vertex: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """The two levels of a subtask as one; nulls while it has not reported."""
    parts, alignment = one.get("checkpoint", {}), one.get("alignment", {})
    names = ("ack_timestamp", "end_to_end_duration", "checkpointed_size", "state_size", "start_delay",
             "unaligned_checkpoint", "aborted", "finished")  # fmt: skip
    return {
        "vertex": vertex,
        "index": one["index"],
        "status": one["status"],
        **{name: one.get(name) for name in names},
        "sync_duration": parts.get("sync"),
        "async_duration": parts.get("async"),
        "alignment_duration": alignment.get("duration"),
        "processed_data": alignment.get("processed"),
        "persisted_data": alignment.get("persisted"),
    }
