"""Sessions that merge: windows of one key become one while checkpoints, restores and rescales come in between.

The first source has the two ends of each session, too far apart for one window. The second source has the records
between them, and comes later. So each session begins as two windows, each with its state, its trigger and its timer,
and the record that joins them merges all of that. There are two forms: lists of records, which fire at the end of the
session; and counts, whose trigger fires at the third record and must add up its counts of the two windows. No
record is late: the slower source decides the watermarks.

Rows are whole sessions, the same in any order of the records. If a merge leaves state in the wrong window or does not
move a timer, or if a restore reads a set of merged windows wrongly, a row differs::

    weir explore examples/scenarios/merging_sessions.py
    weir explore examples/scenarios/merging_sessions.py --mode aligned --fault crash --fault rescale
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine import CollectionSource, CountTrigger, EventTimeSessionWindows, Job, TimeWindow, WatermarkStrategy
from operators.log.connectors import LogSink

Reading = tuple[str, int]
"""A key, and an event time in ms."""

KEYS = "abc"
SESSIONS = 5
GAP_MS = 10
ENDS_MS, BETWEEN_MS = (0, 16), (8,)
"""Of a session: alone the ends are two windows, [0, 10) and [16, 26); with 8 they touch on both sides."""
APART_MS = 60

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 6,
    "checkpoint_interval": "9rec",
    "modes": ["aligned", "unaligned", "aligned-timeout"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 300,
    "cost.stragglers.between": 4,
    "inline_state_bytes": 0,
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once", "aligned-timeout": "exactly-once"},
}


def _readings(times_ms: Sequence[int]) -> list[Reading]:
    return [(key, session * APART_MS + at) for session in range(SESSIONS) for at in times_ms for key in KEYS]


def _times(key: str, window: TimeWindow, readings: Sequence[Reading]) -> Iterable[object]:
    """The session with every time in it."""
    times = ",".join(str(at - window.start) for at in sorted(at for _, at in readings))
    return [("times", key, window.start, window.end, times)]


def _span(first: tuple[str, int, int], second: tuple[str, int, int]) -> tuple[str, int, int]:
    return (first[0], first[1] + second[1], max(first[2], second[2]))


def job(parallelism: int | None = None) -> Job:
    """Two sources, sessions in two forms, one sink; rows are ``(form, key, start, end, content)``."""
    made = Job("merging-sessions", parallelism=parallelism or 2, max_parallelism=8)
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1]).with_interval_ns(1_000)
    ends = made.source(
        CollectionSource(_readings(ENDS_MS)), watermarks=strategy, name="ends", uid="ends", parallelism=1
    )
    between = made.source(
        CollectionSource(_readings(BETWEEN_MS)), watermarks=strategy, name="between", uid="between", parallelism=1
    )
    keyed = ends.union(between).key_by(lambda reading: reading[0])
    sessions = EventTimeSessionWindows.with_gap(GAP_MS)
    times = keyed.window(sessions).process(_times, name="times", uid="times")
    spans = keyed.map(lambda reading: (reading[0], 1, reading[1]), name="span", uid="span").key_by(lambda one: one[0])
    counted = (
        spans.window(sessions)
        .trigger(CountTrigger.of(len(ENDS_MS) + len(BETWEEN_MS)))
        .reduce(
            _span,
            window_function=lambda key, window, total: ("count", key, window.start, window.end, total[1]),
            name="count",
            uid="count",
        )
    )
    return times.union(counted).sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
