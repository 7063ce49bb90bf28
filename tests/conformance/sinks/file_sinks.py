"""Replays of the vectors about recoverable writers, rolling policies, bucket assigners and the file sink."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.elements.batch import Batch
from engine.elements.errors import StorageError
from operators.files.formats import TextRowFormat
from operators.files.writing import (
    Bucket,
    BucketContext,
    BucketState,
    DateTimeBucketAssigner,
    DefaultRollingPolicy,
    PartEncoder,
    PartNames,
    PartSettings,
    PendingFile,
    RecoverableWriter,
    ResumeHandle,
    UniqueNames,
)
from operators.files.writing.recoverable_writer import RecoverableStream
from operators.files.writing.rolling_policies import EventRule
from state_backends.files import FileSystem, MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.sinks.defaults import defaults
from tests.conformance.sinks.file_sink_world import World, check_rolling_counts

DIRECTORY = "/out"


def target_of(name: str) -> str | None:
    """The target of a hidden file, ``None`` for a visible one."""
    match = re.fullmatch(r"\.(.+)\.inprogress\.[0-9a-f-]+", name)
    return None if match is None else match[1]


# --- recoverable_writer -----------------------------------------------------------------------------------------------

_OPERATIONS: dict[str, set[str]] = {
    "open": {"stream", "target"},
    "write": {"stream", "data"},
    "persist": {"stream", "save_as"},
    "close_for_commit": {"stream", "save_as"},
    "commit": {"ref"},
    "commit_after_recovery": {"ref"},
    "recover": {"ref", "stream"},
    "close": {"stream"},
    "tamper_append": {"ref", "data"},
    "tamper_truncate": {"ref", "length"},
    "tamper_delete": {"ref"},
    "check": {"label"},
}


class _WriterWorld:
    def __init__(self, filesystem: str) -> None:
        if filesystem not in ("local", "hadoop"):
            raise MalformedVector(f"unknown filesystem {filesystem!r}")
        self.fs = MemoryFileSystem()
        self.fs.make_dirs(DIRECTORY)
        self.writer = RecoverableWriter(
            self.fs, DIRECTORY, UniqueNames(1, 1, 0), replaces=True, commits_short_files=filesystem == "hadoop"
        )
        self.streams: dict[str, RecoverableStream] = {}
        self.handles: dict[str, PendingFile | ResumeHandle] = {}

    def carry_out(self, event: Vector) -> None:
        operation = event["op"]
        match operation:
            case "open":
                self.streams[event["stream"]] = self.writer.open(event["target"])
            case "write":
                self.stream(event).write(event["data"].encode())
            case "persist":
                self.handles[event["save_as"]] = self.stream(event).persist()
            case "close_for_commit":
                self.handles[event["save_as"]] = self.stream(event).close_for_commit()
            case "commit":
                self.writer.commit(PendingFile(*self.handle(event)))
            case "commit_after_recovery":
                self.writer.commit_after_recovery(PendingFile(*self.handle(event)))
            case "recover":
                self.streams[event["stream"]] = self.writer.recover(ResumeHandle(*self.handle(event)))
            case "close":
                self.stream(event).close()
            case _:
                self.tamper(operation, event)

    def stream(self, event: Vector) -> RecoverableStream:
        if event["stream"] not in self.streams:
            raise MalformedVector(f"stream {event['stream']!r} was never opened")
        return self.streams[event["stream"]]

    def handle(self, event: Vector) -> PendingFile | ResumeHandle:
        if event["ref"] not in self.handles:
            raise MalformedVector(f"nothing was saved as {event['ref']!r}")
        return self.handles[event["ref"]]

    def tamper(self, operation: str, event: Vector) -> None:
        handle = self.handle(event)
        there = [one for one in (handle.temporary, handle.target) if self.writer.exists(one)]
        if not there:
            raise MalformedVector(f"{operation}: there is no file of {event['ref']!r}")
        path = self.writer.path(there[0])
        if operation == "tamper_append":
            with self.fs.open_append(path) as file:
                file.write(event["data"].encode())
        elif operation == "tamper_truncate":
            self.fs.truncate(path, event["length"])
        else:
            self.fs.delete(path)

    def files(self) -> list[list[str]]:
        found = []
        for relative in self.writer.files():
            bucket, _, name = relative.rpartition("/")
            target = target_of(name)
            shown = name if target is None else f"TEMP({target})"
            content = self.fs.read_bytes(self.writer.path(relative)).decode()
            found.append([f"{bucket}/{shown}" if bucket else shown, content])
        return sorted(found)


def recoverable_writer(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"filesystem", "events"}, "input")
    check_fields(expect, {"checks", "errors"}, "expect")
    world, checks, errors = _WriterWorld(given["filesystem"]), {}, {}
    for position, event in enumerate(given["events"]):
        known = _OPERATIONS.get(event.get("op"))
        if known is None:
            raise MalformedVector(f"unknown operation {event.get('op')!r}")
        check_fields(event, known | {"op"}, f"event {position}")
        if event["op"] == "check":
            checks[event["label"]] = {"files": world.files()}
            continue
        before = world.files()
        try:
            world.carry_out(event)
        except (StorageError, OSError):
            errors[str(position)] = "io_error"
            comparison.field(f"files after the error of event {position}", before, world.files())
    for label, wanted in expect.get("checks", {}).items():
        if label not in checks:
            raise MalformedVector(f"there is no check {label!r}")
        check_fields(wanted, {"files"}, f"check {label}")
        comparison.field(f"{label}.files", sorted(wanted["files"]), checks[label]["files"])
    if "errors" in expect:
        comparison.field("errors", expect["errors"], errors)
    return comparison.finish()


# --- a single bucket --------------------------------------------------------------------------------------------------


class CountingWriter(RecoverableWriter):
    def __init__(self, fs: FileSystem, *, resumes: bool = True, requires_cleanup: bool = False) -> None:
        super().__init__(fs, DIRECTORY, UniqueNames(1, 1, 0), replaces=True, resumes=resumes)
        self._requires_cleanup = requires_cleanup
        self.supports_resume_calls = self.recover_calls = self.recover_for_commit_calls = self.cleanup_calls = 0

    def supports_resume(self) -> bool:
        self.supports_resume_calls += 1
        return super().supports_resume()

    def recover(self, handle: ResumeHandle) -> RecoverableStream:
        self.recover_calls += 1
        return super().recover(handle)

    def commit(self, pending: PendingFile) -> None:
        self.recover_for_commit_calls += 1
        super().commit(pending)

    def commit_after_recovery(self, pending: PendingFile) -> bool:
        self.recover_for_commit_calls += 1
        return super().commit_after_recovery(pending)

    def requires_cleanup(self) -> bool:
        return self._requires_cleanup

    def clean_up(self, handle: ResumeHandle) -> bool:
        self.cleanup_calls += 1
        return super().clean_up(handle)


def _bucket(writer: RecoverableWriter) -> Bucket:
    encoder, names = PartEncoder(TextRowFormat()), PartNames("part", "", 0)
    policy = DefaultRollingPolicy()
    return Bucket("b", names, 0, PartSettings(writer, encoder, policy, EventRule(policy)))


def _write(bucket: Bucket, text: str) -> None:
    bucket.write(PartEncoder(TextRowFormat()).encode(Batch([text])), 1, [text], 0)


def bucket_recovery_calls(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"supports_resume", "state"}, "input")
    check_fields(given["state"], {"in_progress", "pending_checkpoints"}, "state")
    fs = MemoryFileSystem()
    before = _bucket(CountingWriter(fs))
    for checkpoint_id in range(given["state"]["pending_checkpoints"]):
        _write(before, "x")
        before.close_part()
        before.on_snapshot(checkpoint_id)
    if given["state"]["in_progress"]:
        _write(before, "x")
    state = before.on_snapshot(given["state"]["pending_checkpoints"])
    before.dispose()
    writer = CountingWriter(fs, resumes=given["supports_resume"])
    bucket = _bucket(writer)
    bucket.restore(state)
    names = ("supports_resume_calls", "recover_calls", "recover_for_commit_calls")
    observed = {name: getattr(writer, name) for name in names}
    comparison.fields(vector["expect"], {**observed, "in_progress_after": bucket.part is not None})
    return comparison.finish()


def resumable_cleanup(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"requires_cleanup", "events"}, "input")
    fs, snapshots = MemoryFileSystem(), dict[int, BucketState]()

    def fresh() -> CountingWriter:
        return CountingWriter(fs, requires_cleanup=given["requires_cleanup"])

    writer = fresh()
    bucket: Bucket | None = _bucket(writer)
    for event in given["events"]:
        match event:
            case ["write"] if bucket is not None:
                _write(bucket, "x")
            case ["snapshot", int(checkpoint_id)] if bucket is not None:
                snapshots[checkpoint_id] = bucket.on_snapshot(checkpoint_id)
            case ["notify", int(checkpoint_id)] if bucket is not None:
                bucket.on_confirmed(checkpoint_id)
            case ["crash"] if bucket is not None:
                bucket.dispose()
                bucket = None
            case ["restore", int(checkpoint_id)] if bucket is None and checkpoint_id in snapshots:
                writer = fresh()
                bucket = _bucket(writer)
                bucket.restore(snapshots[checkpoint_id])
            case _:
                raise MalformedVector(f"unknown event, or one that cannot happen now: {event!r}")
    expect = dict(vector["expect"])
    if expect.pop("counted_on", "writer instance alive at the end") != "writer instance alive at the end":
        raise MalformedVector("calls are counted on the writer instance alive at the end")
    comparison.fields(expect, {"cleanup_calls": writer.cleanup_calls})
    return comparison.finish()


# --- the whole sink ---------------------------------------------------------------------------------------------------


def streaming_file_sink(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"config", "events"}, "input")
    world = World(given["config"])
    checks = world.replay(given["events"])
    for label, wanted in expect.items():
        if label == "errors":
            wanted_errors = sorted([one["event"], one["error"]] for one in wanted)
            comparison.field("errors", wanted_errors, sorted(map(list, world.errors.items())))
            continue
        if label not in checks:
            raise MalformedVector(f"there is no check {label!r}")
        checks[label].compare(wanted, comparison, label)
    if "errors" not in expect:
        comparison.field("errors", {}, world.errors)
    return comparison.finish()


def rolling_policy(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"policy", "events"}, "input")
    check_rolling_counts(given["policy"], given["events"], vector["expect"], comparison)
    return comparison.finish()


# --- names, defaults, buckets -----------------------------------------------------------------------------------------


def constants(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ask"}, "input")
    if given["ask"] != "defaults":
        raise MalformedVector(f"nobody knows {given['ask']!r}")
    known = defaults()
    check_fields(vector["expect"], known, "expect")
    for name, wanted in vector["expect"].items():
        comparison.fields(wanted, known[name], f"{name}.")
    return comparison.finish()


def part_name(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"sink", "part_prefix", "part_suffix", "subtask", "counter", "temp"}, "input")
    check_fields(vector["expect"], {"regex"}, "expect")
    prefix, suffix = given.get("part_prefix") or "", given.get("part_suffix") or ""
    names = UniqueNames(1, 1, given.get("subtask", 0))
    match given["sink"]:
        case "StreamingFileSink":
            target = PartNames(prefix, suffix, given["subtask"]).target("", given["counter"])
        case "FileSink":
            target = PartNames(prefix, suffix, names()).target("", given["counter"])
        case other:
            raise MalformedVector(f"unknown sink {other!r}")
    name = target
    if given.get("temp", False):
        stream = RecoverableWriter(MemoryFileSystem(), DIRECTORY, names).open(target)
        name = stream.temporary
        stream.close()
    found = re.fullmatch(vector["expect"]["regex"], name)
    comparison.field(f"{name!r} matches {vector['expect']['regex']!r}", True, found is not None)
    return comparison.finish()


def bucket_assigner(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"type", "format", "time_zone", "processing_time"}, "input")
    if given.get("type", "date_time") != "date_time":
        raise MalformedVector(f"unknown assigner {given['type']!r}")
    options = {name: given[name] for name in ("format", "time_zone") if given.get(name) is not None}
    assigner = DateTimeBucketAssigner(**options)
    bucket = assigner.bucket_of(None, BucketContext(given["processing_time"], -(2**63), None))
    comparison.fields(vector["expect"], {"bucket": bucket})
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "bucket_assigner": bucket_assigner,
    "bucket_recovery_calls": bucket_recovery_calls,
    "constants": constants,
    "part_name": part_name,
    "recoverable_writer": recoverable_writer,
    "resumable_cleanup": resumable_cleanup,
    "rolling_policy": rolling_policy,
    "streaming_file_sink": streaming_file_sink,
}
