"""Replays of the vectors about the partitions of a table, their commit and the compaction of their files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, StateError
from operators.files.writing import PartitionPathError, extract_partition_spec
from operators.files.writing.partition_names import generate_partition_path, unescape_path_name
from operators.table.partitions.commit_policies import (
    CommitPolicy,
    PartitionCommitContext,
    commit_partition,
    commit_policies,
)
from operators.table.partitions.metastore import MemoryMetastore, PathOf
from operators.table.partitions.partition_commit import PartitionCommit, PartitionCommitterOperator
from operators.table.partitions.partition_committer import END_OF_INPUT
from operators.table.partitions.partition_messages import announcement
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor, PartitionTimeError
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.sinks.streaming_file_writers import commit_options, streaming_file_writer
from tests.conformance.sinks.table_compaction import compact_coordinator, compact_operator
from tests.operators.harness import Checkpoint, Harness


class RecordingPolicy:
    """Applies another policy, if there is one, and records its partitions."""

    def __init__(self, calls: list[tuple[str, str]], kind: str = "custom", inner: CommitPolicy | None = None) -> None:
        self.kind = kind
        self._calls = calls
        self._inner = inner

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        if self._inner is not None:
            self._inner = self._inner.open(path_of, columns)
        return self

    def commit(self, context: PartitionCommitContext) -> bool:
        self._calls.append((self.kind, context.partition))
        return self._inner is None or self._inner.commit(context)


def partition_commit(vector: Vector) -> list[str]:
    """The committer operator, fed with the announcements of writers."""
    given = vector["input"]
    check_fields(given, ("config", "events"), "input")
    config, calls = given["config"], list[tuple[str, str]]()
    saved: dict[str, Checkpoint] = {}

    def start(now_ns: int, restored: Checkpoint | None = None) -> Harness:
        commit = PartitionCommit(policies=[RecordingPolicy(calls)], **commit_options(config))
        operator = PartitionCommitterOperator("table", config["partition_keys"], commit)
        return Harness(operator, now_ns=now_ns, restored=restored, attempt=1 if restored is None else 2)

    committer = start(0)
    commits: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for position, event in enumerate(given["events"]):
        try:
            match event["op"]:
                case "processing_time":
                    check_fields(event, ("op", "t"), "event")
                    committer.advance_to_ns(event["t"] * 1_000_000)
                case "watermark":
                    check_fields(event, ("op", "t"), "event")
                    committer.watermark(event["t"])
                case "snapshot":
                    check_fields(event, ("op", "id", "save_as"), "event")
                    saved[event.get("save_as", "")] = committer.snapshot(event["id"])
                case "message":
                    check_fields(event, ("op", "checkpoint", "task", "num_tasks", "partitions"), "event")
                    named = event["checkpoint"]
                    checkpoint_id = END_OF_INPUT if named == "end_of_input" else named
                    committer.process(
                        [announcement(checkpoint_id, event["task"], event["num_tasks"], event["partitions"])]
                    )
                case "restore":
                    check_fields(event, ("op", "from"), "event")
                    committer = start(committer.context.now_ns, saved[event["from"]])
                case unknown:
                    raise MalformedVector(f"unknown operation {unknown!r}")
        except StateError:
            errors.append({"event": position, "error": "checkpoint_not_snapshotted"})
        if calls:
            commits.append({"event": position, "partitions": sorted(partition for _, partition in calls)})
            calls.clear()
    comparison = Comparison()
    comparison.fields(vector["expect"], {"commits": commits, "errors": errors})
    return comparison.finish()


def commit_policy(vector: Vector) -> list[str]:
    """The chain of policies, on a table of files or one with a metastore."""
    given = vector["input"]
    check_fields(given, ("table", "policy_kind", "success_file_name", "commits"), "input")
    if given["table"] not in ("hive", "filesystem"):
        raise MalformedVector(f"unknown table {given['table']!r}")
    partitions = given.get("commits", [])
    columns = tuple(key for key, _ in extract_partition_spec(partitions[0])) if partitions else ("d",)
    metastore: MemoryMetastore | None = None
    if given["table"] == "hive":
        metastore = MemoryMetastore()
        metastore.create_table("t", columns)
    calls: list[tuple[str, str]] = []
    fs = MemoryFileSystem()
    observed: dict[str, object] = {"valid": True}
    try:
        chain = commit_policies(
            given["policy_kind"],
            success_file_name=given.get("success_file_name") or "_SUCCESS",
            metastore=metastore,
            table="t",
            custom=RecordingPolicy([]),
        )
        recording = [RecordingPolicy(calls, policy.kind, policy).open(str, columns) for policy in chain]
        for partition in partitions:
            commit_partition(recording, PartitionCommitContext(fs, "/table", partition, 0))
    except ConfigurationError:
        observed["valid"] = False
    files = {path.removeprefix("/table/"): fs.read_bytes(path).decode() for path in fs.walk_files("/table")}
    if metastore is not None and "metastore" in [kind for kind, _ in calls]:
        listed = sorted("/".join(f"{key}={value}" for key, value in entry.spec) for entry in metastore.partitions("t"))
        assert listed == sorted(dict.fromkeys(partitions)), listed
    comparison = Comparison()
    comparison.fields(vector["expect"], {**observed, "files": files, "calls": calls})
    return comparison.finish()


def partition_time_extract(vector: Vector) -> list[str]:
    given = vector["input"]
    check_fields(given, ("keys", "values", "timestamp_pattern", "timestamp_formatter"), "input")
    observed: dict[str, object] = {}
    try:
        extractor = DefaultPartitionTimeExtractor(given.get("timestamp_pattern"), given.get("timestamp_formatter"))
        observed["local"] = extractor.extract(given["keys"], given["values"]).isoformat()
    except PartitionTimeError:
        observed["error"] = "parse"
    expect = dict(vector["expect"])
    if "local" in expect:
        # "07:08" and "07:08:00" are the same time.
        expect["local"] = datetime.datetime.fromisoformat(expect["local"]).isoformat()
    comparison = Comparison()
    comparison.fields(expect, {"local": None, "error": None, **observed})
    return comparison.finish()


def partition_path(vector: Vector) -> list[str]:
    given = vector["input"]
    observed: dict[str, object] = {"path": None, "spec": None, "text": None, "error": None}
    try:
        match given["op"]:
            case "generate":
                check_fields(given, ("op", "spec"), "input")
                observed["path"] = generate_partition_path([(key, value) for key, value in given["spec"]])
            case "extract":
                check_fields(given, ("op", "path"), "input")
                observed["spec"] = extract_partition_spec(given["path"])
            case "unescape":
                check_fields(given, ("op", "text"), "input")
                observed["text"] = unescape_path_name(given["text"])
            case unknown:
                raise MalformedVector(f"unknown operation {unknown!r}")
    except PartitionPathError:
        observed["error"] = "empty"
    comparison = Comparison()
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "partition_commit": partition_commit,
    "commit_policy": commit_policy,
    "streaming_file_writer": streaming_file_writer,
    "partition_time_extract": partition_time_extract,
    "partition_path": partition_path,
    "table_compact_coordinator": compact_coordinator,
    "table_compact_operator": compact_operator,
}
