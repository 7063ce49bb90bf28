"""A file sink's buckets on a shared file system, driven by the events of a vector."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import StorageError
from operators.files.formats import TextRowFormat
from operators.files.sinks.file_sink import DEFAULT_BUCKET_CHECK_INTERVAL_MS, DEFAULT_PART_PREFIX, DEFAULT_PART_SUFFIX
from operators.files.writing import (
    Bucket,
    Buckets,
    BucketState,
    CheckpointRollingPolicy,
    DefaultRollingPolicy,
    Format,
    OnCheckpointRollingPolicy,
    PartEncoder,
    PartFileInfo,
    PartNames,
    RecoverableWriter,
    RollingPolicy,
    TableRollingPolicy,
    UniqueNames,
)
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_DIRECTORY = "/out"

_EVENTS: dict[str, set[str]] = {
    "open": {"task", "subtask", "parallelism", "t"},
    "restore": {"task", "subtask", "parallelism", "union", "assigned", "t"},
    "processing_time": {"task", "t"},
    "bucket_check": {"task", "t"},
    "write": {"task", "bucket", "data", "t"},
    "snapshot": {"task", "id", "save_as"},
    "notify_complete": {"task", "id"},
    "notify_aborted": {"task", "id"},
    "close": {"task"},
    "crash": {"task"},
    "check": {"label", "task"},
}


class OnProcessingTimePolicy(RollingPolicy):
    """Rolls by age only."""

    def __init__(self, rollover_interval_ms: int) -> None:
        self._rollover_interval_ms = rollover_interval_ms

    def should_roll_on_processing_time(self, part: PartFileInfo, now_ms: int) -> bool:
        return now_ms - part.created_at_ms >= self._rollover_interval_ms


class EachElementPolicy(RollingPolicy):
    """Rolls before every record."""

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return True


class CustomSizePolicy(CheckpointRollingPolicy):
    """Rolls by size, at checkpoints, and by idle time."""

    def __init__(self, max_part_size: int, inactivity_interval: int) -> None:
        self._max_part_size = max_part_size
        self._inactivity_interval = inactivity_interval

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return part.size_bytes > self._max_part_size

    def should_roll_on_processing_time(self, part: PartFileInfo, now_ms: int) -> bool:
        return now_ms - part.last_update_ms >= self._inactivity_interval


def policy_of(given: Vector) -> RollingPolicy:
    sizes = {"type", "max_part_size", "rollover_interval", "inactivity_interval"}
    match given.get("type"):
        case "default":
            check_fields(given, sizes, "rolling_policy")
            return DefaultRollingPolicy(**_intervals(given))
        case "table":
            check_fields(given, sizes | {"roll_on_checkpoint"}, "rolling_policy")
            return TableRollingPolicy(roll_on_checkpoint=given["roll_on_checkpoint"], **_intervals(given))
        case "on_checkpoint":
            check_fields(given, {"type"}, "rolling_policy")
            return OnCheckpointRollingPolicy()
        case "on_processing_time":
            check_fields(given, {"type", "rollover_interval"}, "rolling_policy")
            return OnProcessingTimePolicy(given["rollover_interval"])
        case "each_element":
            check_fields(given, {"type"}, "rolling_policy")
            return EachElementPolicy()
        case "custom_size":
            check_fields(given, {"type", "max_part_size", "inactivity_interval"}, "rolling_policy")
            return CustomSizePolicy(given["max_part_size"], given["inactivity_interval"])
        case other:
            raise MalformedVector(f"unknown rolling policy {other!r}")


def _intervals(given: Vector) -> dict[str, int]:
    names = {
        "max_part_size": "max_part_size_bytes",
        "rollover_interval": "rollover_interval_ms",
        "inactivity_interval": "inactivity_interval_ms",
    }
    return {ours: given[theirs] for theirs, ours in names.items() if theirs in given}


class TextBulkFormat:
    """Writes texts as they are, like a bulk format: record by record, and an ending."""

    is_bulk = True

    def encode_batch(self, batch: Batch) -> list[str]:
        return list(batch.values)

    def select(self, rows: list[str], positions: Sequence[int]) -> list[str]:
        return [rows[position] for position in positions]

    def open_writer(self, write: Callable[[bytes], None]) -> TextBulkWriter:
        return TextBulkWriter(write)

    def encode(self, record: Any) -> str:
        return str(record)

    def lines_of(self, path: str, content: bytes) -> list[str]:
        return content.decode().splitlines()


class TextBulkWriter:
    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def add(self, rows: list[str], start: int, stop: int) -> int:
        self._write(rows[start].encode())
        return start + 1

    def finish(self) -> None:
        pass

    def dispose(self) -> None:
        pass


@dataclass
class Listener:
    lifecycle: list[list[str]] = field(default_factory=list)
    opened: dict[str, list[str]] = field(default_factory=dict)

    def bucket_created(self, bucket_id: str) -> None:
        self.lifecycle.append(["created", bucket_id])

    def bucket_inactive(self, bucket_id: str) -> None:
        self.lifecycle.append(["inactive", bucket_id])

    def part_opened(self, bucket_id: str, target: str) -> None:
        self.opened.setdefault(bucket_id, []).append(target.rpartition("/")[2])


class _Task:
    """One subtask: its buckets, its clock and its one timer."""

    def __init__(self, buckets: Buckets, listener: Listener, now_ms: int, interval_ms: int) -> None:
        self.buckets = buckets
        self.listener = listener
        self.now_ms = now_ms
        self.interval_ms = interval_ms
        self.next_check_ms = now_ms + interval_ms

    def advance_to(self, now_ms: int) -> None:
        """A timer callback sees the new clock and registers the next timer from there: one jump, one check."""
        self.now_ms = now_ms
        if self.next_check_ms <= now_ms:
            self.buckets.on_processing_time(now_ms)
            self.next_check_ms = now_ms + self.interval_ms


@dataclass(frozen=True)
class Snapshot:
    """The snapshot of one subtask for one checkpoint."""

    states: list[BucketState]
    max_part_counter: int


@dataclass(frozen=True)
class Check:
    """The files and states visible at one moment."""

    files: list[dict[str, str]]
    logical: dict[str, Any] | None
    lifecycle: list[list[str]] | None
    opened: dict[str, list[str]] | None

    def compare(self, wanted: Vector, comparison: Comparison, label: str) -> None:
        of_a_task = {} if self.logical is None else {"lifecycle": self.lifecycle, "opened": self.opened}
        hidden = sum(file["state"] == "hidden" for file in self.files)
        seen = {"hidden": hidden, "finished": len(self.files) - hidden, **of_a_task}
        check_fields(wanted, {*seen, "files", *(["logical"] if of_a_task else [])}, f"check {label}")
        for name, expected in wanted.items():
            if name == "files":
                comparison.field(f"{label}.files", expected, self.files, as_set=True)
            elif name == "logical":
                self._compare_logical(expected, comparison, f"{label}.logical")
            else:
                comparison.field(f"{label}.{name}", expected, seen[name])

    def _compare_logical(self, wanted: Vector, comparison: Comparison, where: str) -> None:
        assert self.logical is not None
        check_fields(wanted, self.logical, where)
        if "max_part_counter" in wanted:
            comparison.field(f"{where}.max_part_counter", wanted["max_part_counter"], self.logical["max_part_counter"])
        if "buckets" in wanted:
            buckets = self.logical["buckets"]
            comparison.field(f"{where}.buckets", sorted(wanted["buckets"]), sorted(buckets))
            for bucket_id, expected in wanted["buckets"].items():
                if bucket_id in buckets:
                    comparison.fields(expected, buckets[bucket_id], f"{where}.{bucket_id}.")


class World:
    """One directory and the subtasks that write to it."""

    def __init__(self, config: Vector, policy: RollingPolicy | None = None) -> None:
        check_fields(
            config,
            {"format", "rolling_policy", "bucket_check_interval", "part_prefix", "part_suffix", "resume_supported"},
            "config",
        )
        formats: dict[str, Format] = {"row": TextRowFormat(line_end=""), "bulk": TextBulkFormat()}
        if config.get("format", "row") not in formats:
            raise MalformedVector(f"unknown format {config['format']!r}")
        self._encoder = PartEncoder(formats[config.get("format", "row")])
        self._policy = policy_of(config["rolling_policy"]) if policy is None else policy
        self._interval_ms = config.get("bucket_check_interval", DEFAULT_BUCKET_CHECK_INTERVAL_MS)
        self._prefix = config.get("part_prefix", DEFAULT_PART_PREFIX) or ""
        self._suffix = config.get("part_suffix", DEFAULT_PART_SUFFIX) or ""
        self._resumes = config.get("resume_supported", True)
        self._fs = MemoryFileSystem()
        self._tasks: dict[str, _Task] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._attempts = 0
        self.errors: dict[int, str] = {}
        self.checks: dict[str, Check] = {}
        self.on_check: Callable[[str], None] = lambda label: None

    def replay(self, events: Sequence[Vector]) -> dict[str, Check]:
        """Carry out the events; returns the checks by label."""
        for position, event in enumerate(events):
            known = _EVENTS.get(event.get("op", ""))
            if known is None:
                raise MalformedVector(f"unknown event {event.get('op')!r}")
            check_fields(event, known | {"op"}, f"event {position}")
            try:
                self._carry_out(event)
            except (StorageError, OSError):
                self.errors[position] = "io_error"
        return self.checks

    def start(self, event: Vector, states: list[BucketState], counters: list[int]) -> None:
        """Another subtask, or another attempt of one."""
        self._attempts += 1
        names = UniqueNames(1, self._attempts, event.get("subtask", 0))
        writer = RecoverableWriter(self._fs, _DIRECTORY, names, replaces=True, resumes=self._resumes)
        listener = Listener()
        part_names = PartNames(self._prefix, self._suffix, event.get("subtask", 0))
        buckets = Buckets(writer, self._encoder, self._policy, part_names, listener)
        buckets.initialize(states, counters)
        self._tasks[event["task"]] = _Task(buckets, listener, event.get("t", 0), self._interval_ms)

    def _carry_out(self, event: Vector) -> None:
        match event["op"]:
            case "open":
                self.start(event, [], [])
            case "restore":
                union = [self._snapshot(name).max_part_counter for name in event["union"]]
                assigned = [state for name in event["assigned"] for state in self._snapshot(name).states]
                self.start(event, assigned, union)
            case "check":
                self.on_check(event["label"])
                self.checks[event["label"]] = self._seen(event.get("task"))
            case "close" | "crash":
                self._task(event).buckets.close()
                del self._tasks[event["task"]]
            case operation:
                self._carry_out_in(self._task(event), operation, event)

    def _carry_out_in(self, task: _Task, operation: str, event: Vector) -> None:
        buckets = task.buckets
        match operation:
            case "processing_time":
                task.advance_to(event["t"])
            case "bucket_check":
                buckets.on_processing_time(event["t"])
            case "write":
                rows = self._encoder.encode(Batch([event["data"]]))
                buckets.write(event["bucket"], rows, [event["data"]], event.get("t", task.now_ms))
            case "snapshot":
                snapshot = Snapshot(buckets.snapshot(event["id"]), buckets.max_part_counter)
                if "save_as" in event:
                    self._snapshots[event["save_as"]] = snapshot
            case "notify_complete":
                buckets.commit_up_to(event["id"])
            case "notify_aborted":
                # No action is due, and the sink's operator takes none.
                pass

    def _task(self, event: Vector) -> _Task:
        if event["task"] not in self._tasks:
            raise MalformedVector(f"task {event['task']!r} is not running")
        return self._tasks[event["task"]]

    def _snapshot(self, name: str) -> Snapshot:
        if name not in self._snapshots:
            raise MalformedVector(f"no snapshot was saved as {name!r}")
        return self._snapshots[name]

    def _seen(self, task_name: str | None) -> Check:
        files = []
        for path in self._fs.walk_files(_DIRECTORY):
            bucket, _, name = path.removeprefix(_DIRECTORY + "/").rpartition("/")
            hidden = re.fullmatch(r"\.(.+)\.inprogress\.[0-9a-f-]+", name)
            content = self._fs.read_bytes(path).decode()
            state = "finished" if hidden is None else "hidden"
            part = name if hidden is None else hidden[1]
            files.append({"bucket": bucket, "part": part, "state": state, "content": content})
        if task_name is None:
            return Check(files, None, None, None)
        task = self._task({"task": task_name})
        active = task.buckets.active
        logical = {
            "max_part_counter": task.buckets.max_part_counter,
            "buckets": {bucket_id: _logical(bucket) for bucket_id, bucket in active.items()},
        }
        listener = task.listener
        opened = {bucket: list(parts) for bucket, parts in listener.opened.items()}
        return Check(files, logical, list(listener.lifecycle), opened)


def _logical(bucket: Bucket) -> dict[str, Any]:
    part = bucket.part
    return {
        "in_progress": None if part is None else _name(part.stream.target),
        "pending_current": [_name(file.target) for file in bucket.pending],
        "pending_by_checkpoint": {
            str(known): [_name(file.target) for file in files] for known, files in bucket.booked()
        },
        "next_part_counter": bucket.next_counter,
    }


def _name(target: str) -> str:
    return target.rpartition("/")[2]


# --- how often policies are asked -------------------------------------------------------------------------------------


class CountingPolicy(RollingPolicy):
    """Counts the questions to another policy, and how often it says yes."""

    def __init__(self, inner: RollingPolicy) -> None:
        self._inner = inner
        moments = ("checkpoint", "event", "time")
        self.counts = {f"{moment}_{what}": 0 for moment in moments for what in ("calls", "rolls")}

    def _counted(self, moment: str, rolls: bool) -> bool:
        self.counts[f"{moment}_calls"] += 1
        self.counts[f"{moment}_rolls"] += rolls
        return rolls

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return self._counted("event", self._inner.should_roll_on_event(part, record))

    def should_roll_on_checkpoint(self, part: PartFileInfo) -> bool:
        return self._counted("checkpoint", self._inner.should_roll_on_checkpoint(part))

    def should_roll_on_processing_time(self, part: PartFileInfo, now_ms: int) -> bool:
        return self._counted("time", self._inner.should_roll_on_processing_time(part, now_ms))


def check_rolling_counts(policy: Vector, events: Sequence[Vector], expect: Vector, comparison: Comparison) -> None:
    """Replay ``events`` against one subtask 0, which is there from the beginning, and compare the counts."""
    counting = CountingPolicy(policy_of(policy))
    world = World({"rolling_policy": policy}, counting)
    counts: dict[str, dict[str, int]] = {}
    world.on_check = lambda label: counts.__setitem__(label, dict(counting.counts))
    if not any(event.get("op") in ("open", "restore") for event in events[:1]):
        world.start({"task": "A"}, [], [])
    world.replay(events)
    for label, wanted in expect.items():
        if label not in counts:
            raise MalformedVector(f"there is no check {label!r}")
        comparison.fields(wanted, counts[label], f"{label}.")
    comparison.field("errors", {}, world.errors)
