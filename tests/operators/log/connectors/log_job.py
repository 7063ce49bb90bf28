"""A job that writes to a log on disk, for tests that run it, explore it and kill it."""

from __future__ import annotations

import time
from typing import Any

from engine.graph.job import Job
from operators.log.connectors.log_sink import LogSink
from operators.log.disk.disk_log import DiskLog
from operators.sources import SequenceSource


def job(
    records: int | str = 20,
    delivery: str = "exactly-once",
    sinks: int = 1,
    parallelism: int | None = None,
    pace_s: float | str = 0,
) -> Job:
    """Numbers go to the partition of their remainder, in one or several topics of one log.

    ``pace_s``: real time for each record, so that a kill comes before the end.
    """
    records, pause_s = int(records), float(pace_s)

    def keep(number: Any) -> Any:
        if pause_s:
            time.sleep(pause_s)
        return number

    made = Job("killed", max_parallelism=4)
    log = DiskLog("events", segment_bytes=600 if records < 1_000 else 1 << 16, journal_bytes=400)
    numbers = made.source(SequenceSource(0, records, splits=2), name="numbers", uid="numbers", parallelism=2)
    for number in range(sinks):
        sink = LogSink(f"rows{number}", log=log, partitions=2, partition=lambda n, _: n % 2, delivery=delivery)
        kept = numbers.rebalance().map(keep, name=f"keep{number}", uid=f"keep{number}", parallelism=2)
        kept.sink(sink, name=f"out{number}", uid=f"out{number}", parallelism=parallelism, chain=False)
    return made
