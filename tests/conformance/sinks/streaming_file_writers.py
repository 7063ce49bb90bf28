"""Replays of the vectors about the writers of a table: the writer operator, alone in its task."""

from __future__ import annotations

import heapq
from typing import Any

from operators.files.writing import DEFAULT_PARTITION_NAME, BucketAssigner, FunctionBucketAssigner
from operators.table.partitions.partition_commit import PartitionCommit
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_messages import ANNOUNCEMENT
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import WriterSpec
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.sinks.file_sink_world import policy_of
from tests.operators.harness import Checkpoint, Harness

COMMIT_CONFIG = (
    "trigger", "delay_ms", "partition_keys", "timestamp_pattern", "timestamp_formatter", "watermark_time_zone",
)  # fmt: skip


def commit_options(config: Vector) -> dict[str, Any]:
    """The arguments of ``PartitionCommit`` for the ``config`` of a committer."""
    check_fields(config, COMMIT_CONFIG, "config")
    return {
        "trigger": config["trigger"],
        "delay_ms": config["delay_ms"],
        "extractor": DefaultPartitionTimeExtractor(config.get("timestamp_pattern"), config.get("timestamp_formatter")),
        "watermark_time_zone": config.get("watermark_time_zone") or "UTC",
    }


class PathsAsGiven(WriterSpec):
    """Writers whose records contain the path of their partition: vectors need not have it in the form ``k=v``."""

    def create_assigner(self) -> BucketAssigner:
        return FunctionBucketAssigner(lambda record: str(record["partition"]))


def _spec(config: Vector) -> WriterSpec:
    check_fields(config, ("rolling_policy", "partition_commit"), "config")
    commit = config.get("partition_commit")
    return PathsAsGiven(
        "table",
        ["d"] if commit is None else commit["partition_keys"],
        None if commit is None else PartitionCommit(**commit_options(commit)),
        compacts=False,
        keeps_columns=True,
        default_partition=DEFAULT_PARTITION_NAME,
        prefix="part",
        makes_up_for_lost_announcements=False,
        rolling_policy=policy_of(config["rolling_policy"]),
    )


class _World:
    def __init__(self, spec: WriterSpec) -> None:
        self._spec = spec
        self._fs = MemoryFileSystem()
        self._saved: dict[str, Checkpoint] = {}
        self._attempt = 0
        self._writer: Harness | None = None

    def _start(self, t: int, restored: Checkpoint | None = None) -> None:
        self._attempt += 1
        self._writer = Harness(
            self._spec.create_operator(), fs=self._fs, now_ns=t * 1_000_000, attempt=self._attempt, restored=restored
        )

    @property
    def writer(self) -> Harness:
        if self._writer is None:
            raise MalformedVector("the writer is used before it is opened")
        return self._writer

    def carry_out(self, event: Vector) -> None:
        match event["op"]:
            case "open":
                check_fields(event, ("op", "t"), "event")
                self._start(event["t"])
            case "restore":
                check_fields(event, ("op", "from", "t"), "event")
                self._start(event["t"], self._saved[event["from"]])
            case "write":
                check_fields(event, ("op", "partition"), "event")
                self.writer.process([{"partition": event["partition"]}])
            case "processing_time":
                check_fields(event, ("op", "t"), "event")
                self._advance_to(event["t"] * 1_000_000)
            case "watermark":
                check_fields(event, ("op", "t"), "event")
                self.writer.watermark(event["t"])
            case "snapshot":
                check_fields(event, ("op", "id", "save_as"), "event")
                self._saved[event.get("save_as", "")] = self.writer.snapshot(event["id"])
            case "notify_complete":
                check_fields(event, ("op", "id"), "event")
                self.writer.complete(event["id"])
            case "end_input":
                check_fields(event, ("op",), "event")
                # No event follows: no checkpoint need be waited for.
                self.writer.context.checkpointing_enabled = False
                self.writer.finish()
            case unknown:
                raise MalformedVector(f"unknown operation {unknown!r}")

    def _advance_to(self, time_ns: int) -> None:
        """The clock jumps first; then every timer that is due sees the new time."""
        context = self.writer.context
        context.now_ns = time_ns
        while context.timers and context.timers[0] <= time_ns:
            self.writer.operator.on_processing_time_ns(heapq.heappop(context.timers))

    def visible(self) -> list[str]:
        paths = [path.removeprefix("/out/table/") for path in self._fs.walk_files("/out/table")]
        return sorted(path for path in paths if not path.rpartition("/")[2].startswith((".", "_")))

    def announced(self) -> list[Any]:
        return [] if self._writer is None else self._writer.take_values()


def streaming_file_writer(vector: Vector) -> list[str]:
    given, expect = vector["input"], vector["expect"]
    check_fields(given, ("config", "events"), "input")
    check_fields(expect, ("emits", "checks"), "expect")
    world = _World(_spec(given["config"]))
    emits: list[dict[str, Any]] = []
    checks: dict[str, list[str]] = {}
    for position, event in enumerate(given["events"]):
        if event["op"] == "check":
            check_fields(event, ("op", "label"), "event")
            checks[event["label"]] = world.visible()
            continue
        world.carry_out(event)
        for kind, checkpoint_id, task, number_of_tasks, partitions in world.announced():
            assert (kind, task, number_of_tasks) == (ANNOUNCEMENT, 0, 1), (kind, task, number_of_tasks)
            said = "end_of_input" if checkpoint_id == END_OF_INPUT else checkpoint_id
            emits.append({"event": position, "checkpoint": said, "partitions": sorted(partitions)})
    comparison = Comparison()
    if "emits" in expect:
        wanted = [_same_end(one) for one in expect["emits"]]
        comparison.field("emits", wanted, emits)
    if "checks" in expect:
        comparison.fields(expect["checks"], checks, "checks ")
    return comparison.finish()


def _same_end(emit: Vector) -> Vector:
    """An announcement for the end of the input may be given by its number."""
    check_fields(emit, ("event", "checkpoint", "partitions"), "emits")
    return {**emit, "checkpoint": "end_of_input"} if emit["checkpoint"] == END_OF_INPUT else emit
