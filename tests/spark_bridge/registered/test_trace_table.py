"""``weir.trace``: the events of a run as rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.observe.trace import TraceWriter
from engine.observe.trace_events import CheckpointCut, RunEnded, Send, TraceEvent
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.trace_table import TraceTable, _lines
from state_backends.files import LocalFileSystem
from tests.spark_bridge.registered.reading import rows, tasks

EVENTS: list[TraceEvent] = [
    *(Send(1_000 + number, 1, number % 3, number, "records", number, None, 2**40) for number in range(50)),
    CheckpointCut(2_000, 1, 7, 3, 50, ((0, 4, 5), (2, 6, 1))),
    RunEnded(3_000, "finished ✓"),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    writer = TraceWriter(LocalFileSystem(), str(path))
    for event in EVENTS:
        writer(event)
    writer.close()
    return path


def test_a_row_for_each_event(trace: Path) -> None:
    """Fields under their names, null where an event has no such field; positions ascend."""
    found = rows(TraceTable, path=trace.parent)

    assert [row["event"] for row in found] == [type(event).__name__ for event in EVENTS]
    for row, event in zip(found[:50], EVENTS, strict=False):
        assert {name: row[name] for name in event._fields} == event._asdict()
    cut = [{"channel": 0, "sent": 4, "received": 5}, {"channel": 2, "sent": 6, "received": 1}]
    assert found[50]["differences"] == cut
    assert (found[51]["state"], found[51]["attempt"]) == ("finished ✓", None)
    lines = trace.read_bytes()
    assert all(json.loads(lines[row["position"] :].splitlines()[0])["event"] == row["event"] for row in found)


def test_each_event_in_one_task(trace: Path) -> None:
    """The partitions together are the trace."""
    parts = tasks(TraceTable, path=trace, partition_bytes=1_000)

    assert [row for part in parts for row in part] == rows(TraceTable, path=trace)
    assert len(parts) == -(-trace.stat().st_size // 1_000) > 5


@pytest.mark.parametrize("step", range(1, 15))
def test_each_line_in_one_range(tmp_path: Path, step: int) -> None:
    """Wherever the ranges of bytes begin: before, at and after the ends of lines; the last line has no end."""
    path, content = tmp_path / "lines", b"head\nab\nc\n\ndef\ngh"
    path.write_bytes(content)

    ranges = [(start, min(start + step, len(content))) for start in range(0, len(content), step)]
    found = [one for bounds in ranges for one in _lines(LocalFileSystem(), str(path), *bounds)]
    assert found == [(5, b"ab\n"), (8, b"c\n"), (10, b"\n"), (11, b"def\n")]


def test_a_line_that_is_longer_than_a_range(tmp_path: Path) -> None:
    """It is read to its end, by the task in whose range it begins."""
    path, long = tmp_path / "lines", b"x" * 200_000 + b"\n"
    path.write_bytes(b"head\n" + long + b"ab\n")
    end = path.stat().st_size
    parts = [list(_lines(LocalFileSystem(), str(path), *bounds)) for bounds in ((0, 10), (10, 100_000), (100_000, end))]
    assert parts == [[(5, long)], [], [(200_006, b"ab\n")]]


def test_a_trace_that_was_cut_off(trace: Path) -> None:
    """Its last line is left out, also when it is read in parts."""
    content = trace.read_bytes()
    trace.write_bytes(content[:-5])

    assert len(rows(TraceTable, path=trace)) == 51


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"trace_version": 5', b'"trace_version": 4', "is a trace of version 4"),
        (b'{"trace_version"', b'["trace_version"', "is no trace of Weir"),
        (b'"records": 30,', b'"records"; 30,', "the line at byte .* is damaged"),
        (b'"records": 30,', b'"records": "x",', "'x' of type str does not fit type int64"),
        (b"[0, 4, 5]", b"[0, 4]", "the line at byte .* is damaged"),
    ],
)
def test_a_damaged_trace(trace: Path, old: bytes, new: bytes, why: str) -> None:
    """It is an error that says where."""
    content = trace.read_bytes()
    assert content.count(old) == 1
    trace.write_bytes(content.replace(old, new))

    with pytest.raises(SparkBridgeError, match=why):
        rows(TraceTable, path=trace)
