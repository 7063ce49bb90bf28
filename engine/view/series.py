"""Series over virtual time: what went through the sources, what was under way, and what was blocked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.explore.story import RecordsRead
from engine.observe.trace_events import ChannelBlocked, ChannelResumed, Receive, Send
from engine.runtime.kernel import START_NS

BUCKETS = 60


def series_of(entries: Sequence[Any], buckets: int = BUCKETS) -> dict[str, Any]:
    """By bucket of virtual time: ``read`` records of sources, the most records ``queued`` in all channels together (how
    far the sinks lag behind), and the most channels ``blocked`` at a time."""
    if not entries:
        return {"from": 0, "width": 1, "read": [], "queued": [], "blocked": []}
    first, last = entries[0].time_ns, max(one.time_ns for one in entries)
    width = max(1, -(-(last - first + 1) // buckets))
    read, queued, blocked = [0] * buckets, [0] * buckets, [0] * buckets
    in_channel: dict[int, int] = {}
    under_way = 0
    waiting: dict[int, None] = {}
    for entry in entries:
        at = min(buckets - 1, max(0, entry.time_ns - first) // width)
        if isinstance(entry, RecordsRead):
            read[at] += len(entry.numbers)
        elif isinstance(entry, Send | Receive):
            under_way += entry.queued - in_channel.get(entry.channel, 0)
            in_channel[entry.channel] = entry.queued
            queued[at] = max(queued[at], under_way)
        elif isinstance(entry, ChannelBlocked):
            waiting[entry.channel] = None
            blocked[at] = max(blocked[at], len(waiting))
        elif isinstance(entry, ChannelResumed):
            waiting.pop(entry.channel, None)
    used = (last - first) // width + 1
    return {
        "from": first - START_NS,
        "width": width,
        "read": read[:used],
        "queued": queued[:used],
        "blocked": blocked[:used],
    }
