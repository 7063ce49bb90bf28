"""The trace is complete, versioned and ordered; its digest names the behaviour."""

from __future__ import annotations

import json

from engine.observe.trace import TraceDigest, TraceWriter
from engine.observe.trace_events import TRACE_VERSION, ChannelBlocked, RunEnded, Send, TraceEvent
from state_backends.files import MemoryFileSystem

EVENTS: list[TraceEvent] = [Send(1, 1, 0, 1, "records", 5, None, 5), ChannelBlocked(2, 1, 0), RunEnded(3, "finished")]


def digest_of(events: list[TraceEvent]) -> str:
    digest = TraceDigest()
    for event in events:
        digest(event)
    return digest.hexdigest()


def test_a_written_trace_has_a_version_and_every_event() -> None:
    """The first line names the schema; each event is one JSON object with its kind and fields, in order."""
    file_system = MemoryFileSystem()
    writer = TraceWriter(file_system, "/trace.jsonl")
    for _ in range(700):
        for event in EVENTS:
            writer(event)
    writer.close()
    lines = [json.loads(line) for line in file_system.read_bytes("/trace.jsonl").splitlines()]

    assert lines[0] == {"trace_version": TRACE_VERSION}
    assert len(lines) == 1 + 3 * 700
    assert [line["event"] for line in lines[1:4]] == ["Send", "ChannelBlocked", "RunEnded"]
    assert lines[1] == {"event": "Send", **EVENTS[0]._asdict()}


def test_the_digest_sees_every_event_and_its_order() -> None:
    """Another event, another order or one event less is another digest; the same events are the same."""
    digests = [digest_of(events) for events in (EVENTS, EVENTS[::-1], EVENTS[:2], [*EVENTS, EVENTS[0]])]

    assert len(set(digests)) == 4
    assert digest_of(list(EVENTS)) == digests[0]
