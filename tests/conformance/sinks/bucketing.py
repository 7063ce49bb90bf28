"""Replays of the vectors about the bucketing sink: its operator on a file system in memory, task by task."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from operators.files.bucketing import IN_PROGRESS, PENDING, BucketingNames, BucketingSink
from operators.files.bucketing.names import FINISHED, VALID_LENGTH
from operators.files.bucketing.valid_length import read_valid_length
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.sinks.two_phase import Assigned
from tests.operators.files.bucketing.test_sink import Untruncatable
from tests.operators.harness import Checkpoint, Harness

_DIRECTORY = "/out/rows"
_FOREVER = 2**63 - 1
_KINDS = (IN_PROGRESS, PENDING, FINISHED, VALID_LENGTH)
_AFFIXES = [f"{what}_{affix}" for what in ("part", *_KINDS) for affix in ("prefix", "suffix") if what != FINISHED]
_SETTINGS = {
    "batch_size": "batch_size_bytes",
    "batch_rollover_interval": "rollover_interval_ms",
    "inactive_check_interval": "inactive_check_interval_ms",
    "inactive_threshold": "inactive_threshold_ms",
}
_EVENTS: dict[str, set[str]] = {
    "open": {"task", "subtask", "parallelism", "t"},
    "restore": {"task", "subtask", "parallelism", "assigned", "t"},
    "processing_time": {"task", "t"},
    "write": {"task", "bucket", "bytes"},
    "snapshot": {"task", "id", "save_as"},
    "notify_complete": {"task", "id"},
    "close": {"task"},
    "crash": {"task"},
    "check": {"label"},
}
_STATE = "bucket-states"


class _Rows:
    """A row is ``(bucket, size in bytes)``, its line break included."""

    def encode(self, record: Any) -> str:
        return "x" * (record[1] - 1)


class _World:
    def __init__(self, config: Vector) -> None:
        check_fields(config, {*_AFFIXES, *_SETTINGS, "truncate_supported"}, "config")
        self.names = BucketingNames(**{name: config[name] or "" for name in _AFFIXES if name in config})
        settings = {keyword: config[name] for name, keyword in _SETTINGS.items() if name in config}
        if settings.get("rollover_interval_ms") == _FOREVER:
            settings["rollover_interval_ms"] = None
        self.sink = BucketingSink(
            "rows", format=_Rows(), bucketer=lambda row: row[0], names=self.names, goes_back=False, **settings
        )
        self.fs = MemoryFileSystem() if config.get("truncate_supported", True) else Untruncatable()
        self.tasks: dict[str, Harness] = {}
        self.snapshots: dict[str, Checkpoint] = {}
        self._attempts = 0

    def start(self, event: Vector, restored: Any = None) -> None:
        self._attempts += 1
        self.tasks[event["task"]] = Harness(
            self.sink.create_operator(),
            fs=self.fs,
            subtask=event["subtask"],
            parallelism=event["parallelism"],
            attempt=self._attempts,
            now_ns=event["t"] * 1_000_000,
            checkpointing_enabled=not self.names.finishes_on_close,
            restored=restored,
        )

    def apply(self, event: Vector) -> None:
        match event["op"]:
            case "open":
                self.start(event)
            case "restore":
                self.start(event, Assigned([self.snapshots[name] for name in event["assigned"]], _STATE))
            case "close":
                self.tasks.pop(event["task"]).close()
            case "crash":
                self.tasks.pop(event["task"]).operator.abandon()
            case _:
                self._drive(self.tasks[event["task"]], event)

    def _drive(self, task: Harness, event: Vector) -> None:
        match event["op"]:
            case "processing_time":
                # The clock stands at its new time before the first timer fires; timers armed then are due later.
                task.context.now_ns = now_ns = event["t"] * 1_000_000
                while task.context.timers and task.context.timers[0] <= now_ns:
                    task.operator.on_processing_time_ns(heapq.heappop(task.context.timers))
            case "write":
                if event["bytes"] < 1:
                    raise MalformedVector(f"a row of {event['bytes']} bytes")
                task.process([(event["bucket"], event["bytes"])])
            case "snapshot":
                checkpoint = task.snapshot(event["id"])
                if "save_as" in event:
                    self.snapshots[event["save_as"]] = checkpoint
            case "notify_complete":
                task.complete(event["id"])

    def observe(self) -> dict[str, object]:
        counts, files = dict.fromkeys(_KINDS, 0), dict[str, object]()
        for path in self.fs.walk_files(_DIRECTORY):
            kind = self.names.kind_of(path.rpartition("/")[2])
            if kind is not None:
                counts[kind] += 1
            files[path.removeprefix(f"{_DIRECTORY}/")] = (
                {"valid_length": read_valid_length(self.fs, path)} if kind == VALID_LENGTH else self.fs.size(path)
            )
        return {**counts, "files": files}


def bucketing_sink(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"config", "preexisting", "events"}, "input")
    world = _World(given["config"])
    for name in given.get("preexisting", ()):
        path = f"{_DIRECTORY}/{name}"
        world.fs.make_dirs(path.rpartition("/")[0])
        world.fs.open_write(path).close()
    labels = set()
    for event in given["events"]:
        if event["op"] not in _EVENTS:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, {"op", *_EVENTS[event["op"]]}, f"operation {event['op']}")
        if event["op"] != "check":
            world.apply(event)
        elif event["label"] in vector["expect"]:
            labels.add(event["label"])
            comparison.fields(vector["expect"][event["label"]], world.observe(), f"{event['label']} ")
    check_fields(vector["expect"], labels, "expect")
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {"bucketing_sink": bucketing_sink}
