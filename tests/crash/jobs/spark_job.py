"""The job whose driver is killed on Spark: a count per key, one sink beside it, and another one a stage later.

Rows are those of ``sinks_job``, each once in each sink, with the name of the sink instead of the hour. A function in
each stage looks into the file ``orders``: a Python worker that comes to the record named there kills the driver, and
works on.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from engine import DefaultRollingPolicy, FileSink, Job, OnCheckpointRollingPolicy, SequenceSource
from operators.files.writing import RollingPolicy
from tests.crash.jobs.sinks_job import SPLITS, TABLE, Row, row_of

FIRST, SECOND = "first", "second"
STAGES = (0, 1, 2)


def expected_rows(records: int) -> list[Row]:
    """The rows of both sinks, computed without the engine."""
    rows = [row_of(number, records) for number in range(records)]
    return [row._replace(hour=sink) for sink in (FIRST, SECOND) for row in rows]


def order(orders: str, victim: int, stage: int, number: int) -> None:
    """Have the worker that comes to this record, in this stage, kill the process with this id; ``orders.done`` is there
    afterwards."""
    Path(f"{orders}.done").unlink(missing_ok=True)
    Path(orders).write_text(json.dumps([victim, stage, number]), encoding="utf-8")


def _at(stage: int, orders: str, row: dict[str, Any]) -> dict[str, Any]:
    try:
        text = Path(orders).read_text(encoding="utf-8")
    except FileNotFoundError:
        return row
    victim, *place = json.loads(text)
    if place == [stage, row["number"]]:
        done = f"{orders}.done"
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            Path(done).touch()
        # A batch that is run again comes here again.
        Path(orders).unlink(missing_ok=True)
    return row


def _record(total: int, number: int) -> dict[str, Any]:
    return {"number": number, "key": row_of(number, total).key, "seen": 1}


def _count(before: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "seen": before["seen"] + 1}


def _sink(name: str, policy: RollingPolicy) -> FileSink:
    return FileSink(f"{TABLE}/hour={name}", rolling_policy=policy)


def job(records: str = "800", orders: str = "") -> Job:
    """Three stages: numbers, counts with the first sink, and the second sink."""
    job = Job("killed", parallelism=2)
    numbers = job.source(SequenceSource(0, int(records), splits=SPLITS), name="numbers")
    rows = numbers.map(partial(_record, int(records)), name="row").map(partial(_at, 0, orders), name="at-0")
    counts = rows.key_by(lambda row: row["key"]).reduce(_count, name="count").map(partial(_at, 1, orders), name="at-1")
    # Its parts stay open over checkpoints: a worker whose driver is dead may still write to them.
    counts.sink(_sink(FIRST, DefaultRollingPolicy(max_part_size_bytes=4_096)), name=FIRST)
    later = counts.rebalance().map(partial(_at, 2, orders), name="at-2")
    return later.sink(_sink(SECOND, OnCheckpointRollingPolicy()), name=SECOND)
