"""Replays of the vectors about file sources.

The enumerator is the machine itself; readers are the operator of a pulled ``FileSource``, run by the operator harness;
files are real ones in a file system in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from engine.elements.batch import Batch
from operators.files.formats import list_files
from operators.files.reading import FileSource, FixedLengthFormat
from operators.files.reading.enumerated_source_operator import EnumeratedSourceOperator
from operators.files.reading.split_coordinator import SPLIT
from operators.files.reading.split_enumerator import (
    Assign,
    FileSplitEnumerator,
    Instruction,
    PendingSplits,
    SplitAssigner,
)
from operators.files.reading.splits import FileSourceSplit, FileStatus, record_positions, split_id, splits_of
from state_backends.files import MemoryFileSystem
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.operators.harness import Harness

_ENUMERATOR_FIELDS = {
    "register_reader": ("reader",),
    "unregister_reader": ("reader",),
    "request_split": ("reader",),
    "discover": ("splits",),
    "add_splits_back": ("splits", "reader"),
    "snapshot": ("label", "save_as"),
    "restore": ("from",),
}
_OPTIONAL = ("save_as", "reader")


def _needed(given: Vector, *names: str, optional: Iterable[str] = (), where: str) -> None:
    missing = [name for name in names if name not in given and name not in optional]
    if missing:
        raise MalformedVector(f"{where} has no {', '.join(missing)}")
    check_fields(given, (*names, *optional), where)


class _Enumerated:
    """An enumerator, its messages to readers since the last restore, and its snapshots."""

    def __init__(self, enumerator: FileSplitEnumerator) -> None:
        self.enumerator = enumerator
        self.saved: dict[str, PendingSplits] = {}
        self.observed: dict[str, Any] = {}
        self._start_over()

    def _start_over(self) -> None:
        self.observed["assigned"] = {}
        self.observed["no_more_splits"] = []

    def restore(self, name: str) -> None:
        if name not in self.saved:
            raise MalformedVector(f"nothing was saved as {name!r}")
        self.enumerator = FileSplitEnumerator(*self.saved[name])
        self._start_over()

    def snapshot(self, label: str, save_as: str | None) -> None:
        state = self.enumerator.snapshot()
        self.observed[label] = {
            "pending": [split.id for split in state.splits],
            "paths_already_processed": sorted(state.paths or ()),
        }
        if save_as is not None:
            self.saved[save_as] = state

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Assign):
                self.observed["assigned"].setdefault(instruction.reader, []).append(instruction.split.id)
            elif instruction.reader not in self.observed["no_more_splits"]:
                self.observed["no_more_splits"].append(instruction.reader)


def _splits(pairs: Any) -> list[FileSourceSplit]:
    return [FileSourceSplit(name, path, 0, 0) for name, path in pairs]


def _split_enumerator(vector: Vector) -> list[str]:
    given = vector["input"]
    _needed(given, "continuous", "initial_splits", "events", where="input")
    initial = _splits(given["initial_splits"])
    one = _Enumerated(FileSplitEnumerator(initial, () if given["continuous"] else None))
    for event in given["events"]:
        _enumerator_event(one, event)
    comparison = Comparison()
    check_fields(vector["expect"], one.observed, "expect")
    for name, expected in vector["expect"].items():
        found = one.observed[name]
        if name in ("assigned", "no_more_splits"):
            comparison.field(name, expected, found, as_set=name == "no_more_splits")
            continue
        check_fields(expected, found, f"expect.{name}")
        for field, wanted in expected.items():
            comparison.field(f"{name}.{field}", wanted, found[field], as_set=field == "pending")
    return comparison.finish()


def _enumerator_event(one: _Enumerated, event: Vector) -> None:
    op = event.get("op")
    if op not in _ENUMERATOR_FIELDS:
        raise MalformedVector(f"unknown operation {op!r}")
    fields = _ENUMERATOR_FIELDS[op]
    optional = [name for name in fields if name in _OPTIONAL and op in ("snapshot", "add_splits_back")]
    _needed(event, "op", *fields, optional=optional, where=op)
    enumerator = one.enumerator
    if op == "register_reader":
        enumerator.register_reader(event["reader"])
    elif op == "unregister_reader":
        enumerator.unregister_reader(event["reader"])
    elif op == "request_split":
        one.carry_out(enumerator.request_split(event["reader"]))
    elif op == "discover":
        one.carry_out(enumerator.discover(_splits(event["splits"])))
    elif op == "add_splits_back":
        enumerator.add_splits_back(_splits(event["splits"]))
    elif op == "snapshot":
        one.snapshot(event["label"], event.get("save_as"))
    else:
        one.restore(event["from"])


class _ScriptedSource:
    """A pulled source whose reader is at the vector's position."""

    monitor_interval_ms = None
    create_assigner = SplitAssigner

    def __init__(self, set_position: Any = None) -> None:
        self.set_position = set_position

    def splits(self, context: Any) -> list[str]:
        return []

    def enumerate_splits(self, context: Any, *, is_first: bool) -> list[FileSourceSplit]:
        return []

    def open_split(self, split: str, position: Any, context: Any) -> Any:
        return _ScriptedReader(self.set_position)


class _ScriptedReader:
    def __init__(self, position: Any) -> None:
        self._position = position

    def read(self, max_records: int) -> Batch:
        return Batch(["a record"])

    def position(self) -> Any:
        return self._position

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns

    def close(self) -> None:
        pass


def _reader(source: Any, *, splits: Iterable[FileSourceSplit] = (), **options: Any) -> Harness:
    harness = Harness(EnumeratedSourceOperator(source), coordinated=True, **options)
    for split in splits:
        harness.operator.on_coordinator_event((SPLIT, tuple(split)))
    return harness


def _source_reader(vector: Vector) -> list[str]:
    _needed(vector["input"], "restored_splits", where="input")
    count = vector["input"]["restored_splits"]
    splits = [FileSourceSplit(f"split-{number}", f"file-{number}", 0, 1) for number in range(count)]
    checkpoint = _reader(_ScriptedSource(), splits=splits).snapshot(1)
    started = _reader(_ScriptedSource(), restored=checkpoint, attempt=2)
    comparison = Comparison()
    comparison.fields(vector["expect"], {"split_requests_on_start": len(started.context.sent)})
    return comparison.finish()


def _split_state(vector: Vector) -> list[str]:
    given = vector["input"]
    _needed(given, "initial_position", "set_position", where="input")
    first = given["initial_position"]
    split = FileSourceSplit("split", "file", 0, 1, None if first is None else tuple(first))
    moved = given["set_position"]
    reader = _reader(_ScriptedSource(None if moved is None else tuple(moved)), splits=[split])
    operator = reader.operator
    assert isinstance(operator, EnumeratedSourceOperator)
    if moved is not None:
        operator.emit_next(1)
    reader.snapshot(1)
    [(_, position, *_)] = reader.context.operator.list_state("assigned-splits").get()
    comparison = Comparison()
    comparison.fields(vector["expect"], {"position": position})
    return comparison.finish()


def _record_positions(vector: Vector) -> list[str]:
    given = vector["input"]
    _needed(given, "batch_offset", "batch_skip", "records", where="input")
    positions = record_positions(given["batch_offset"], given["batch_skip"], len(given["records"]))
    comparison = Comparison()
    comparison.fields(vector["expect"], {"positions": positions})
    return comparison.finish()


class _Context:
    """The context of a source, without an operator."""

    name, attempt = "source", 1

    def __init__(self, files: MemoryFileSystem) -> None:
        self._files = files

    def file_system(self) -> MemoryFileSystem:
        return self._files

    def emit_side(self, tag: str, batch: Batch) -> None:
        raise AssertionError(tag)

    def count(self, name: str, amount: int = 1) -> None:
        raise AssertionError(name)

    def report_backlog(self, is_backlog: bool) -> None:
        raise AssertionError(is_backlog)


_READ_FIELDS = (
    "record_bytes",
    "num_records",
    "batch_bytes",
    "num_splits",
    "split_rule",
    "reader_reports_positions",
    "recover_after_records",
)
_SPLIT_RULE = (
    "range = file_len // num_splits, last split takes the rest; "
    "a split owns records whose start lies in (start, end] except split 0 which also owns offset 0"
)


def _source_read_recover(vector: Vector) -> list[str]:
    given = vector["input"]
    _needed(given, *_READ_FIELDS, where="input")
    if given["split_rule"] != _SPLIT_RULE:
        raise MalformedVector(f"a rule for splits that is not documented: {given['split_rule']!r}")
    width, count = given["record_bytes"], given["num_records"]
    files = MemoryFileSystem()
    with files.open_write("ints") as file:
        file.write(b"".join(number.to_bytes(width, "big") for number in range(count)))
    size = width * count // given["num_splits"]
    bounds: list[int | None] = [size * index for index in range(given["num_splits"])] + [None]
    ids = [split_id("ints", start or 0, end) for start, end in pairwise(bounds)]
    form = FixedLengthFormat(
        width,
        lambda data: int.from_bytes(data, "big"),
        fetch_bytes=given["batch_bytes"],
        reports_positions=given["reader_reports_positions"],
    )
    read = _read_recovering(FileSource("ints", form), ids, _Context(files), given["recover_after_records"])
    _needed(vector["expect"], "records", where="expect")
    comparison = Comparison()
    comparison.field("records", _expected_records(vector["expect"]["records"]), read)
    return comparison.finish()


def _expected_records(told: Any) -> list[int]:
    if isinstance(told, list):
        return told
    said = re.fullmatch(r"(\d+)\.\.(\d+) exactly once in order", str(told))
    if said is None:
        raise MalformedVector(f"records that nobody understands: {told!r}")
    return list(range(int(said[1]), int(said[2]) + 1))


def _read_recovering(source: FileSource, ids: list[str], context: _Context, recover_after: list[int]) -> list[int]:
    read: list[int] = []
    recoveries = sorted(recover_after)
    for name in ids:
        reader = source.open_split(name, None, context)
        while (batch := reader.read(1)) is not None:
            read += batch.values
            if recoveries and len(read) == recoveries[0]:
                recoveries.pop(0)
                position = reader.position()
                reader.close()
                reader = source.open_split(name, position, context)
    if recoveries:
        raise MalformedVector(f"there are no {recoveries[0]} records to recover after")
    return read


def _file_enumeration(vector: Vector) -> list[str]:
    given = vector["input"]
    _needed(given, "splitting", "root", "files", where="input")
    files = MemoryFileSystem()
    blocks: dict[str, tuple[tuple[int, int], ...]] = {}
    for one in given["files"]:
        _needed(one, "path", "length", optional=("blocks",), where="a file")
        path = one["path"]
        files.make_dirs(path.rpartition("/")[0])
        with files.open_write(path) as file:
            file.write(bytes(one["length"]))
        blocks[path] = tuple((start, size) for start, size in one.get("blocks", ()))
    splits = [
        split
        for path in list_files(files, [given["root"]])
        for split in splits_of(FileStatus(path, files.size(path), blocks[path]), splittable=given["splitting"])
    ]
    comparison = Comparison()
    check_fields(vector["expect"], ("paths", "splits"), "expect")
    if "paths" in vector["expect"]:
        comparison.field("paths", vector["expect"]["paths"], sorted({split.path for split in splits}))
    if "splits" in vector["expect"]:
        found = [(split.path, split.offset, split.length) for split in splits]
        comparison.field("splits", vector["expect"]["splits"], found)
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "split_enumerator": _split_enumerator,
    "source_reader": _source_reader,
    "split_state": _split_state,
    "record_positions": _record_positions,
    "source_read_recover": _source_read_recover,
    "file_enumeration": _file_enumeration,
}
