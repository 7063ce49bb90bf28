"""Replays of the vectors about the compaction of a table's files: the coordinator and the compactors."""

from __future__ import annotations

from typing import Any

from operators.files.formats import JsonLinesRowFormat
from operators.table.partitions.partition_compaction import CompactOperator, TableCompactCoordinatorOperator
from operators.table.partitions.partition_messages import (
    ANNOUNCEMENT,
    END_MARKER,
    UNIT,
    end_marker,
    end_of_checkpoint,
    unit,
    written_file,
)
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.operators.harness import Checkpoint, Harness


def compact_coordinator(vector: Vector) -> list[str]:
    """The coordinator operator: files of some checkpoints, then one writer's end of a checkpoint."""
    given = vector["input"]
    check_fields(given, ("target_size", "checkpoints", "restart_between", "end_checkpoint"), "input")
    coordinator = Harness(TableCompactCoordinatorOperator(given["target_size"]))
    for attempt, checkpoint in enumerate(given["checkpoints"], start=2):
        check_fields(checkpoint, ("id", "files"), "checkpoint")
        coordinator.process(
            [written_file(checkpoint["id"], 0, partition, name, size) for partition, name, size in checkpoint["files"]]
        )
        snapshot = coordinator.snapshot(checkpoint["id"])
        if given.get("restart_between") and checkpoint is not given["checkpoints"][-1]:
            operator = TableCompactCoordinatorOperator(given["target_size"])
            coordinator = Harness(operator, restored=snapshot, attempt=attempt)
    coordinator.process([end_of_checkpoint(given["end_checkpoint"], 0, 1)])
    outputs: list[dict[str, Any]] = []
    units: list[Any] = []
    for kind, *rest in coordinator.take_values():
        if kind == UNIT:
            units.append(rest)
        elif kind == END_MARKER:
            outputs.append({"units": units, "end_compaction": rest[0]})
            units = []
    comparison = Comparison()
    comparison.fields(vector["expect"], {"outputs": outputs})
    return comparison.finish()


def compact_operator(vector: Vector) -> list[str]:
    given = vector["input"]
    check_fields(given, ("parallelism", "subtask", "events"), "input")
    parallelism, subtask = given["parallelism"], given["subtask"]
    fs = MemoryFileSystem()
    sources: list[str] = []
    restored: Checkpoint | None = None

    def start(attempt: int) -> Harness:
        operator = CompactOperator("table", JsonLinesRowFormat())
        return Harness(operator, fs=fs, parallelism=parallelism, subtask=subtask, restored=restored, attempt=attempt)

    compactor = start(1)
    compacted: list[str] = []
    exist: dict[str, object] = {}
    announced: dict[int, dict[str, Any]] = {}
    for position, (op, *arguments) in enumerate(given["events"]):
        match op:
            case "unit":
                unit_id, partition, names = arguments
                paths = [f"/out/table/{partition}/{name}" for name in names]
                for path in paths:
                    fs.make_dirs(f"/out/table/{partition}")
                    with fs.open_write(path) as file:
                        file.write(f"{path}\n".encode())
                sources += paths if unit_id % parallelism == subtask else []
                compactor.process([unit(unit_id, partition, names)])
            case "end_compaction":
                compactor.process([end_marker(arguments[0], arguments[0])])
            case "snapshot":
                restored = compactor.snapshot(arguments[0])
            case "restore":
                compactor = start(position + 2)
            case "notify":
                compactor.complete(arguments[0])
            case "end_input":
                # No event follows: no checkpoint need be waited for.
                compactor.context.checkpointing_enabled = False
                compactor.finish()
            case unknown:
                raise MalformedVector(f"unknown operation {unknown!r}")
        there = [fs.exists(path) for path in sources]
        exist[f"sources_exist_after_{op}"] = there[0] if len(set(there)) == 1 else there
        compacted += [name for name in _visible(fs) if name not in compacted]
        for kind, checkpoint_id, _, _, partitions in compactor.take_values():
            assert kind == ANNOUNCEMENT, kind
            announced[checkpoint_id] = {"checkpoint": checkpoint_id, "partitions": sorted(partitions)}
    expect = vector["expect"]
    wanted = expect.get("commit_info") or {"checkpoint": None}
    check_fields(wanted, ("checkpoint", "partitions"), "commit_info")
    comparison = Comparison()
    comparison.fields(expect, {"compacted": compacted, "commit_info": announced.get(wanted["checkpoint"]), **exist})
    return comparison.finish()


def _visible(fs: MemoryFileSystem) -> list[str]:
    names = [path.rpartition("/")[2] for path in fs.walk_files("/out/table")]
    return [name for name in names if not name.startswith((".", "_"))]
