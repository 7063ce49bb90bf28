"""Replays of the vectors about staging directories and overwriting."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.files.formats import CsvRowFormat
from operators.table.partitions.commit_policies import CommitPolicy, commit_policies
from operators.table.partitions.metastore import MemoryMetastore
from operators.table.partitions.partitioning import PartitionColumns
from operators.table.staging.moves import StagedFile, StagingCommitter, nothing_staged, plan_commit
from operators.table.staging.staging_writers import StagingWriter
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_TABLE, _STAGING = "/table", "/staging"
_EVENTS: dict[str, set[str]] = {
    "stage": {"files"},
    "stage_dirs": {"dirs"},
    "put_output": {"files"},
    "delete_staging": set(),
    "commit": {"overwrite"},
    "check": {"label"},
}


def _policies(kinds: list[str], partition_columns: list[str]) -> tuple[CommitPolicy, ...]:
    """The policies of a table; a metastore takes partitioned tables only, and the committer asks it for no other."""
    if not kinds:
        return ()
    metastore = MemoryMetastore()
    metastore.create_table("t", partition_columns)
    try:
        return commit_policies(",".join(kinds), metastore=metastore, table="t")
    except ConfigurationError as error:
        raise MalformedVector(str(error)) from error


def _staged(fs: MemoryFileSystem, staging: str, columns: int) -> dict[str, list[StagedFile]]:
    """The files that tasks have staged, by partition."""
    found: dict[str, list[StagedFile]] = {}
    for task in fs.list_dir(staging):
        partitions = [""]
        for _ in range(columns):
            partitions = [
                posixpath.join(partition, name)
                for partition in partitions
                for name in fs.list_dir(posixpath.join(staging, task, partition))
            ]
        for partition in partitions:
            files = found.setdefault(partition, [])
            for name in fs.list_dir(posixpath.join(staging, task, partition)):
                path = posixpath.join(staging, task, partition, name)
                files.append(StagedFile(path, partition, name, fs.size(path)))
    return found


def _commit_staged(
    fs: MemoryFileSystem, staging: str, given: Vector, overwrite: bool, policies: tuple[CommitPolicy, ...] = ()
) -> None:
    """Commit the files below a staging directory, unless the directory is gone."""
    if not fs.is_dir(staging):
        return
    columns, tasks = given["partition_columns"], fs.list_dir(staging)
    nothing = nothing_staged(columns, given.get("static_partition") or {})
    plan = plan_commit(fs, _TABLE, _staged(fs, staging, len(columns)) if tasks else nothing, overwrite=overwrite)
    StagingCommitter(fs, _TABLE, columns, policies).execute(plan, 0)
    for task in tasks:
        fs.delete_tree(posixpath.join(staging, task))


class _Table:
    """A table, its staging directory, and the commit of one to the other."""

    def __init__(self, given: Vector) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_dirs(_STAGING)
        self._given = given

    def put(self, root: str, path: str) -> None:
        directory, name = posixpath.split(posixpath.join(root, path))
        self.fs.make_dirs(directory)
        self.fs.open_write(posixpath.join(directory, name)).close()

    def apply(self, event: Vector) -> None:
        match event["op"]:
            case "stage":
                for file in event["files"]:
                    self.put(_STAGING, file)
            case "stage_dirs":
                for directory in event["dirs"]:
                    self.fs.make_dirs(posixpath.join(_STAGING, directory))
            case "put_output":
                for file in event["files"]:
                    self.put(_TABLE, file)
            case "delete_staging":
                self.fs.delete_tree(_STAGING)
            case "commit":
                self._commit(event["overwrite"])

    def _commit(self, overwrite: bool) -> None:
        policies = _policies(self._given.get("policies", []), self._given["partition_columns"])
        _commit_staged(self.fs, _STAGING, self._given, overwrite, policies)

    def files(self) -> list[str]:
        return sorted(path.removeprefix(f"{_TABLE}/") for path in self.fs.walk_files(_TABLE))


def staging_commit(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"partition_columns", "static_partition", "policies", "events"}, "input")
    table, labels = _Table(given), set()
    for event in given["events"]:
        if event["op"] not in _EVENTS:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, {"op", *_EVENTS[event["op"]]}, f"operation {event['op']}")
        if event["op"] != "check":
            table.apply(event)
        elif event["label"] in expect:
            labels.add(event["label"])
            comparison.field(event["label"], sorted(expect[event["label"]]), table.files())
    check_fields(expect, labels, "expect")
    return comparison.finish()


# --- writing and finalizing -----------------------------------------------------------------------------------

_OUTPUT_FIELDS = {"columns", "partition_columns", "static_partition", "dynamic_grouped", "jobs", "finalize"}


class _Jobs:
    """The jobs of one vector: each writes by one task, and is finalized once."""

    def __init__(self, given: Vector) -> None:
        self.fs = MemoryFileSystem()
        self._given = given
        self._jobs: list[tuple[str, bool]] = []

    def write(self, job: Vector) -> int:
        """Write the rows of one job; returns how many files are staged then."""
        check_fields(job, {"rows", "staging", "overwrite"}, "a job")
        given, staging = self._given, posixpath.join(_STAGING, job["staging"])
        columns = PartitionColumns(given["columns"], given["partition_columns"], given.get("static_partition"))
        writer = StagingWriter(
            self.fs, f"{staging}/task-0", 0, columns, CsvRowFormat(), grouped=given.get("dynamic_grouped", False)
        )
        self._jobs.append((staging, job["overwrite"]))
        writer.open()
        writer.write([tuple(row) for row in job["rows"]])
        writer.finish_files()
        return len(list(self.fs.walk_files(staging)))

    def finalize(self, number: int) -> None:
        staging, overwrite = self._jobs[number]
        _commit_staged(self.fs, staging, self._given, overwrite)
        self.fs.delete_tree(staging)

    def output(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.fs.walk_files(_TABLE):
            partition = posixpath.dirname(path.removeprefix(f"{_TABLE}/"))
            found.setdefault(partition, []).append(self.fs.read_bytes(path).decode())
        return {partition: sorted(contents) for partition, contents in found.items()}

    def staging_deleted(self) -> bool:
        return not any(self.fs.exists(staging) for staging, _ in self._jobs)


def batch_output_format(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, _OUTPUT_FIELDS, "input")
    jobs, counts, after_each = _Jobs(given), list[int](), list[Any]()
    at_once = given["finalize"] == ["after_each"]
    for number, job in enumerate(given["jobs"]):
        counts.append(jobs.write(job))
        if at_once:
            jobs.finalize(number)
            after_each.append(jobs.output())
    for number in () if at_once else given["finalize"]:
        jobs.finalize(number)
        after_each.append(jobs.output())
    observed = {
        "staged_file_counts": counts,
        "output": jobs.output(),
        "output_after_each_finalize": after_each,
        "staging_deleted": jobs.staging_deleted(),
    }
    wanted = dict(expect)
    if "output" in wanted:
        wanted["output"] = _sorted(wanted["output"])
    if "output_after_each_finalize" in wanted:
        wanted["output_after_each_finalize"] = [_sorted(one) for one in wanted["output_after_each_finalize"]]
    comparison.fields(wanted, observed)
    return comparison.finish()


def _sorted(output: dict[str, list[str]]) -> dict[str, list[str]]:
    return {partition: sorted(contents) for partition, contents in output.items()}


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "staging_commit": staging_commit,
    "batch_output_format": batch_output_format,
}
