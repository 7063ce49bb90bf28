"""Pending partitions: a partition is announced once all of it can be read, and no restore forgets a pending one.

Rows go to two tables of the same partitions. One announces a partition when event time has passed it by an hour, the
other after a fixed processing time since the committer first saw it. So at each checkpoint some partitions are written
and not announced yet. They are state of the committer, and a restore must recover them: no further rows of theirs
arrive as a reminder.

Rows and announcements are compared: if an announcement is lost, comes before its rows (by event time), or
disappears, the output shows it::

    weir explore examples/scenarios/pending_partitions.py
    weir explore examples/scenarios/pending_partitions.py --mode aligned --fault crash --fault lose
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import (
    CollectionSource,
    DefaultPartitionTimeExtractor,
    Job,
    PartitionCommit,
    PartitionedFileSink,
    Pause,
    SuccessFilePolicy,
    WatermarkStrategy,
)

MINUTE_MS = 60_000
MIDNIGHT_MS = 1_588_464_000_000
"""2020-05-03 00:00 UTC."""
HOURS = 5
MINUTES = (5, 25, 45)
DELAY_MS = 3
PAUSE_MS = 1

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 8,
    "checkpoint_interval": "1100us",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 600_000,
    "cost.slow_links.first": 400_000,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}


def _click(source: str, hour: int, minute: int) -> dict[str, Any]:
    return {"hour": f"{hour:02d}", "source": source, "minute": minute}


def _time_of(click: dict[str, Any]) -> int:
    return MIDNIGHT_MS + (int(click["hour"]) * 60 + int(click["minute"])) * MINUTE_MS


def _table(name: str, commit: PartitionCommit) -> PartitionedFileSink:
    return PartitionedFileSink(name, partition_by=("hour",), commit=commit)


def job(parallelism: int | None = None) -> Job:
    """Two sources of five hours with a pause after each, two tables."""
    made = Job("pending-partitions", parallelism=parallelism or 2, max_parallelism=8)
    strategy = WatermarkStrategy.for_monotonous_timestamps(_time_of).with_interval_ns(100_000)
    streams = []
    for name in ("first", "second"):
        items: list[object] = []
        for hour in range(HOURS):
            items += [_click(name, hour, minute) for minute in MINUTES]
            items.append(Pause(PAUSE_MS))
        streams.append(
            made.source(CollectionSource(items), watermarks=strategy, name=name, uid=name, parallelism=1)
        )
    clicks = streams[0].union(streams[1])
    extractor = DefaultPartitionTimeExtractor("2020-05-03 $hour:00:00")
    by_event_time = PartitionCommit(
        "partition-time", delay_ms=60 * MINUTE_MS, extractor=extractor, policies=(SuccessFilePolicy(),)
    )
    by_clock = PartitionCommit("process-time", delay_ms=DELAY_MS, policies=(SuccessFilePolicy(),))
    clicks.rebalance().sink(_table("by-event-time", by_event_time), name="timed", uid="timed")
    clicks.rebalance().sink(_table("by-clock", by_clock), name="clocked", uid="clocked")
    return made


def expected(inputs: Mapping[str, Sequence[dict[str, Any]]]) -> Mapping[str, Sequence[object]]:
    """The announcements by the clock: each hour once, at any time."""
    hours = {click["hour"]: None for clicks in inputs.values() for click in clicks}
    return {"clocked-partition-committer": [f"success-file hour={hour}" for hour in hours]}
