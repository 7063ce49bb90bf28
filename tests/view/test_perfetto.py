"""A trace for Perfetto, read back with Perfetto's own messages."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import MissingDependencyError
from engine.observe.trace_events import ChannelBlocked, ChannelResumed, SnapshotTaken, TraceEvent
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.kernel import START_NS
from engine.view import perfetto_trace
from examples.teaching import counting

pytest.importorskip("perfetto")


class _Read:
    """What a trace holds. ``tracks``: names of a track and of those above it, by number."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets: list[Any] = list(trace.packet)
        self.tracks: dict[int, tuple[str, ...]] = {}
        for track in [one.track_descriptor for one in self.packets if one.HasField("track_descriptor")]:
            above = self.tracks[track.parent_uuid] if track.HasField("parent_uuid") else ()
            self.tracks[track.uuid] = (*above, track.name)
        self.events = [one for one in self.packets if one.HasField("track_event")]

    def of(self, kind: str) -> list[tuple[int, tuple[str, ...], Any]]:
        """The events of a kind: time, track and event."""
        number = self.events[0].track_event.Type.Value(f"TYPE_{kind}")
        return [
            (one.timestamp, self.tracks[one.track_event.track_uuid], one.track_event)
            for one in self.events
            if one.track_event.type == number
        ]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[_Read, list[TraceEvent]]:
    """A run whose counter is killed, as a trace for Perfetto and as events."""
    path = tmp_path_factory.mktemp("perfetto") / "run.pftrace"
    plan, events = counting.job().plan(), []
    config = RunConfig(mode="aligned", batch_size=1, checkpoint_interval=CheckpointInterval.parse("2rec"))
    with perfetto_trace(str(path), plan) as trace:
        execution = Execution(plan, config, instruments=[trace, events.append])
        execution.kill("count[0]", 3_000)
        execution.run()
    return _Read(path), events


def test_subtasks_are_tracks(traced: tuple[_Read, list[TraceEvent]]) -> None:
    """Each subtask has a track with a span for each attempt; each span has an end, and time is virtual."""
    read, events = traced
    begins, ends = read.of("SLICE_BEGIN"), read.of("SLICE_END")

    spans = [event.name for _, track, event in begins if track == ("count[0]",)]
    assert spans == ["attempt 1", "attempt 2"]
    open_spans: dict[tuple[str, ...], int] = defaultdict(int)
    for packet in read.events:
        track = read.tracks[packet.track_event.track_uuid]
        kind = packet.track_event.Type.Name(packet.track_event.type)
        open_spans[track] += {"TYPE_SLICE_BEGIN": 1, "TYPE_SLICE_END": -1}.get(kind, 0)
        assert open_spans[track] in (0, 1)
    assert set(open_spans.values()) == {0}
    assert len(begins) == len(ends)
    assert max(packet.timestamp for packet in read.events) == events[-1].time_ns - START_NS


def test_blocked_channels_are_spans(traced: tuple[_Read, list[TraceEvent]]) -> None:
    """The spans are those of the events: the same channels, from the same ns on."""
    read, events = traced

    spans = sorted(time for time, _, event in read.of("SLICE_BEGIN") if event.name == "blocked")
    assert spans == sorted(one.time_ns - START_NS for one in events if isinstance(one, ChannelBlocked))
    ends = [time for time, track, _ in read.of("SLICE_END") if track[-1].startswith("blocked: from ")]
    assert {one.time_ns - START_NS for one in events if isinstance(one, ChannelResumed)} <= set(ends)
    assert {track[0] for _, track, event in read.of("SLICE_BEGIN") if event.name == "blocked"} >= {"count[0]"}


def test_a_checkpoint_is_a_flow(traced: tuple[_Read, list[TraceEvent]]) -> None:
    """A flow leads from the trigger over the snapshot of every task to the end, and no two checkpoints share one."""
    read, events = traced
    flows: dict[int, list[str]] = defaultdict(list)
    for _, _, event in read.of("INSTANT"):
        for number in (*event.flow_ids, *event.terminating_flow_ids):
            flows[number].append(event.name)

    snapshots = [one for one in events if isinstance(one, SnapshotTaken)]
    assert sum("snapshot" in name for names in flows.values() for name in names) == len(snapshots) > 0
    for names in flows.values():
        assert names[0].startswith("trigger checkpoint ")
        assert names[-1].startswith(f"checkpoint {names[0].rpartition(' ')[2]} ")


def test_queues_are_counters(traced: tuple[_Read, list[TraceEvent]]) -> None:
    """The records in a channel go up when one is sent, and down when it is taken."""
    read, _ = traced
    values = [event.counter_value for _, track, event in read.of("COUNTER") if track[-1] == "queued: from left[0]"]

    assert max(values) >= 1
    assert values[-1] == 0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names what to install, and no file is left."""
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    path, plan = tmp_path / "run.pftrace", counting.job().plan()

    with pytest.raises(MissingDependencyError, match=r"weirstream\[trace\]"), perfetto_trace(str(path), plan):
        pass

    assert not path.exists()
