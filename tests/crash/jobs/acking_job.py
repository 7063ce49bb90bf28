"""The job that is killed in mode ``acking``: tens of numbers, written to a log on disk as they come. No task has
state."""

from __future__ import annotations

import time

from engine import DiskLog, Job, LogSink, SequenceSource

LOG, TOPIC, PARTITIONS = "log", "tens", 2

PACE_S = 0.0005
"""Real time for each record. Without it, a whole run takes less time than a killer may have to wait for a core."""


def ten_times(number: int) -> int:
    time.sleep(PACE_S)
    return number * 10


def job(records: str = "6000") -> Job:
    """Two splits, two relays, two writers."""
    job = Job("killed", parallelism=2)
    numbers = job.source(SequenceSource(0, int(records), splits=2), name="numbers")
    tens = numbers.rebalance().map(ten_times, name="tens")
    sink = LogSink(TOPIC, log=DiskLog(LOG), partitions=PARTITIONS, delivery="at-least-once")
    return tens.rebalance().sink(sink, name="log")
