"""Replays of the vectors about the writer of a file sink with committers, its committer, and compaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from operators.files.compaction import (
    PENDING,
    CompactCoordinator,
    CompactionRequest,
    CompactionStrategy,
    Compactor,
    FileCommittable,
    FileCommitter,
)
from operators.files.compaction.file_committer import CLEAN_UP, DELETE
from operators.files.formats import TextRowFormat
from operators.files.writing import (
    Buckets,
    PartEncoder,
    PartNames,
    PendingFile,
    RecoverableWriter,
    ResumeHandle,
    UniqueNames,
)
from operators.table.partitions.table_compaction import pack
from operators.transactions import CommitRequest
from operators.transactions.committer_machine import commit_in_rounds
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.sinks.file_sink_world import policy_of

# --- the writer -------------------------------------------------------------------------------------------------

_WRITER_EVENTS = {
    "open": {"op", "task", "t"},
    "write": {"op", "task", "bucket", "t"},
    "processing_time": {"op", "task", "t"},
    "prepare_commit": {"op", "task", "flush", "label"},
    "snapshot": {"op", "task", "id", "label", "save_as"},
    "restore": {"op", "task", "from"},
    "check": {"op", "task", "label"},
}


class _WriterTask:
    """One task: the writer, its clock and its periodic check."""

    def __init__(self, name: int, given: Vector, fs: MemoryFileSystem, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._interval_ms = given["bucket_check_interval"]
        self._due_ms = now_ms + self._interval_ms
        files = RecoverableWriter(fs, "out", UniqueNames(1, name, 0), resumes=given["resume_supported"])
        policy, unique = policy_of(given["rolling_policy"]), UniqueNames(1, name, 1)
        self._encoder = PartEncoder(TextRowFormat())
        names = PartNames("part", "", 0)
        self.writer = Buckets(files, self._encoder, policy, names, unique=unique)

    def write(self, bucket: str, time_ms: int | None) -> None:
        now_ms = self.now_ms if time_ms is None else time_ms
        self.writer.write(bucket, self._encoder.encode(Batch(["12345"])), ["12345"], now_ms)

    def advance_to(self, time_ms: int) -> None:
        # The clock moves first, so one jump over several intervals causes one check.
        self.now_ms = time_ms
        if self._due_ms <= time_ms:
            self.writer.on_processing_time(time_ms)
            self._due_ms = time_ms + self._interval_ms


def file_sink_writer(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"rolling_policy", "bucket_check_interval", "resume_supported", "events"}, "input")
    fs = MemoryFileSystem()
    tasks: dict[str, _WriterTask] = {}
    saved: dict[str, Any] = {}
    labels: dict[str, dict[str, object]] = {}
    started = 0

    def start(name: str, now_ms: int = 0) -> _WriterTask:
        nonlocal started
        started += 1
        tasks[name] = _WriterTask(started, given, fs, now_ms)
        return tasks[name]

    for event in given["events"]:
        operation = event["op"]
        if operation not in _WRITER_EVENTS:
            raise MalformedVector(f"unknown operation {operation!r}")
        check_fields(event, _WRITER_EVENTS[operation], f"operation {operation!r}")
        name = event["task"]
        if operation == "open":
            start(name, event["t"])
            continue
        if operation == "restore":
            start(name).writer.initialize([state for one in event["from"] for state in saved[one]])
            continue
        task = tasks.get(name) or start(name)
        match operation:
            case "write":
                task.write(event["bucket"], event.get("t"))
            case "processing_time":
                task.advance_to(event["t"])
            case "prepare_commit":
                kinds = [type(one) for _, one in task.writer.hand_out(flush=event["flush"])]
                labels[event["label"]] = {"pending": kinds.count(PendingFile), "cleanup": kinds.count(ResumeHandle)}
            case "snapshot":
                states = saved[event.get("save_as", "")] = task.writer.persist()
                labels[event.get("label", "")] = {
                    one.bucket_id: {"in_progress_in_state": one.in_progress is not None} for one in states
                }
            case _:
                buckets = {
                    bucket_id: {"in_progress": bucket.part is not None, "pending": len(bucket.pending)}
                    for bucket_id, bucket in task.writer.active.items()
                }
                labels[event["label"]] = {"buckets": buckets}
    for label, wanted in vector["expect"].items():
        if label not in labels:
            raise MalformedVector(f"expect has {label!r}, which is no label of the vector")
        comparison.fields(wanted, labels[label], f"{label}.")
    return comparison.finish()


# --- the committer ----------------------------------------------------------------------------------------------


class _CountedFiles:
    def __init__(self) -> None:
        self.calls = {"commit_after_recovery_calls": 0, "cleanup_calls": 0}

    def commit_after_recovery(self, pending: PendingFile) -> bool:
        self.calls["commit_after_recovery_calls"] += 1
        return True

    def clean_up(self, handle: ResumeHandle) -> bool:
        self.calls["cleanup_calls"] += 1
        return True

    def delete(self, relative: str) -> None:
        raise AssertionError(relative)

    def sync_directories(self) -> None:
        pass


def file_committer(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"committables"}, "input")
    kinds = {"pending": PENDING, "cleanup_in_progress": CLEAN_UP}
    requests = []
    for number, kind in enumerate(given["committables"]):
        if kind not in kinds:
            raise MalformedVector(f"unknown committable {kind!r}")
        requests.append(CommitRequest((kinds[kind], "", f".part-{number}.inprogress", f"part-{number}", 1)))
    files = _CountedFiles()
    retried: list[int] = []
    commit_in_rounds(FileCommitter(files), requests, 10, lambda name, amount: retried.append("retried" in name))
    comparison.fields(vector["expect"], {**files.calls, "retries": sum(retried)})
    return comparison.finish()


# --- compaction -------------------------------------------------------------------------------------------------

_COORDINATOR_EVENTS = {
    "committable": {"op", "bucket", "name", "size", "kind"},
    "checkpoint": {"op", "id", "save_as"},
    "end_input": {"op"},
    "restore": {"op", "from", "size_threshold"},
}


def _committable(event: Vector) -> FileCommittable:
    match event["kind"]:
        case "pending":
            return (PENDING, event["bucket"], f"{event['name']}.inprogress", event["name"], event["size"])
        case "cleanup":
            return (CLEAN_UP, event["bucket"], f"{event['name']}.inprogress", event["name"], event["size"])
    raise MalformedVector(f"unknown kind of committable {event['kind']!r}")


def filesink_compact_coordinator(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"config", "events"}, "input")
    check_fields(given["config"], {"size_threshold", "checkpoints_before_compaction"}, "config")
    check_fields(vector["expect"], {"requests"}, "expect")
    config = given["config"]
    checkpoints = config.get("checkpoints_before_compaction")
    machine = CompactCoordinator(CompactionStrategy(config.get("size_threshold"), checkpoints))
    saved: dict[str, list[FileCommittable]] = {}
    observed: list[dict[str, Any]] = []
    for position, event in enumerate(given["events"]):
        if event["op"] not in _COORDINATOR_EVENTS:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, _COORDINATOR_EVENTS[event["op"]], f"operation {event['op']!r}")
        fired: list[CompactionRequest] = []
        match event["op"]:
            case "committable":
                request = machine.add(_committable(event))
                fired = [] if request is None else [request]
            case "checkpoint":
                fired = machine.on_checkpoint(event["id"])
                saved[event.get("save_as", "")] = machine.state()
            case "end_input":
                fired = machine.end_of_input()
            case _:
                threshold = event.get("size_threshold", config.get("size_threshold"))
                machine = CompactCoordinator(CompactionStrategy(threshold, checkpoints))
                fired = machine.restore(saved[event["from"]])
        observed += [
            {
                "event": position,
                "bucket": request.bucket_id,
                "compact": [one[3] for one in request.files],
                "passthrough": [one[3] for one in request.passed_through],
            }
            for request in fired
        ]
    comparison.field("requests", vector["expect"]["requests"], observed)
    return comparison.finish()


_ARGUMENTS = {"request": 3, "snapshot": 1, "notify": 1, "pre_barrier": 1, "restore": 0}


def _compact(bucket_id: str, target: str, sources: list[FileCommittable]) -> FileCommittable:
    return (PENDING, bucket_id, f".{target}.inprogress", target, sum(source[4] for source in sources))


def filesink_compactor(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"events"}, "input")
    check_fields(vector["expect"], {"emits"}, "expect")
    machine = Compactor()
    state: list[Any] = []
    emits: list[dict[str, Any]] = []
    for position, (operation, *arguments) in enumerate(given["events"]):
        if operation not in _ARGUMENTS:
            raise MalformedVector(f"unknown operation {operation!r}")
        if len(arguments) != _ARGUMENTS[operation]:
            raise MalformedVector(f"operation {operation!r} has {len(arguments)} arguments")
        match operation:
            case "request":
                bucket, files, passed_through = arguments
                pending = [(PENDING, bucket, f"{name}.inprogress", name, size) for name, size in files]
                machine.add(CompactionRequest(bucket, pending, [("as given", bucket, one) for one in passed_through]))
            case "snapshot":
                state = machine.on_snapshot(arguments[0])
            case "notify":
                machine.on_notification(arguments[0])
            case "pre_barrier":
                handed_out = [_shown(one) for one in machine.take_results()]
                if handed_out:
                    emits.append({"event": position, "summary": len(handed_out), "committables": handed_out})
            case _:
                machine = Compactor()
                machine.restore(state)
        while machine.has_work:
            machine.step(_compact)
    comparison.field("emits", vector["expect"]["emits"], emits)
    return comparison.finish()


def _shown(committable: FileCommittable) -> Any:
    kind, *rest = committable
    if kind == PENDING:
        return ["pending", *rest[2:]]
    return ["cleanup", rest[1]] if kind == DELETE else rest[1]


def bin_packing(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"weights", "target"}, "input")
    comparison.fields(vector["expect"], {"bins": pack(given["weights"], given["target"], int)})
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "file_sink_writer": file_sink_writer,
    "file_committer": file_committer,
    "filesink_compact_coordinator": filesink_compact_coordinator,
    "filesink_compactor": filesink_compactor,
    "bin_packing": bin_packing,
}
"""The vectors of this file by kind."""
