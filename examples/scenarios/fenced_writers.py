"""Fences against older attempts: a writer that counts as dead comes back, and its messages must change nothing.

Three pipelines share nothing and write to a transactional log, to a database, and to files. Failover is regional: where
one pipeline restarts, the others continue, with their open transactions and pending files. Tasks pause until
they count as dead, and wake up beside their successors. Messages are lost, come late or twice; so do answers, commits
and aborts of the external systems.

If a dead attempt commits a row, the row is duplicated. If it aborts a transaction of the live one, that is lost. If a
message to an older attempt is taken for one to this attempt, a commit comes too early (V7, V8)::

    weir explore examples/scenarios/fenced_writers.py
    weir explore examples/scenarios/fenced_writers.py --param sink=database --fault pause --fault late

``sink`` is one of ``all`` (the default), ``log``, ``database`` and ``files``.
"""

from __future__ import annotations

from engine import ConfigurationError, DatabaseSink, DefaultRollingPolicy, FileSink, Job, MemoryDatabase, SequenceSource
from operators.log.connectors import LogSink

RECORDS = 18
SINKS = ("log", "database", "files")

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 6,
    "checkpoint_interval": "5rec",
    "modes": ["aligned", "unaligned", "aligned-timeout"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 500,
    "failover": "region",
    "heartbeat_timeout_ns": 6_000,
    "inline_state_bytes": 0,
    "faults": [
        "crash", "pause", "partition", "lose", "duplicate", "late", "clog", "delay", "lose-unsynced", "answer-lost",
        "request-lost", "late-marker",
    ],
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once", "aligned-timeout": "exactly-once"},
}  # fmt: skip


def _row(number: int) -> tuple[str, int]:
    return ("ab"[number % 2], number)


def job(sink: str = "all") -> Job:
    """For each sink a source, a function and two writers, apart from the others; rows are ``(key, number)``."""
    if sink not in ("all", *SINKS):
        raise ConfigurationError(f"sink is {sink!r}; it must be 'all' or one of {', '.join(SINKS)}")
    made = Job(f"fenced-writers-{sink}", parallelism=2, max_parallelism=8)
    for name in SINKS if sink == "all" else (sink,):
        numbers = made.source(SequenceSource(0, RECORDS), name=f"{name}-numbers", uid=f"{name}-numbers", parallelism=1)
        rows = numbers.rebalance().map(_row, name=f"{name}-rows", uid=f"{name}-rows", parallelism=1)
        if name == "log":
            rows.rebalance().sink(LogSink("rows"), name=name, uid=name)
        elif name == "database":
            database = DatabaseSink(MemoryDatabase(), "rows", ("key", "number"), batch_rows=2)
            rows.rebalance().sink(database, name=name, uid=name)
        else:
            files = FileSink("rows", rolling_policy=DefaultRollingPolicy(max_part_size_bytes=40))
            rows.rebalance().sink(files, name=name, uid=name)
    return made
