"""How long the batches of this process took on Spark: wall time, for people. No result depends on it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_KEPT = 10_000


@dataclass(slots=True)
class BatchTime:
    """One batch: its label, how many rows it had, and the seconds from its rows to its results; ``into_spark``: until
    the rows were a table that Spark can read."""

    label: str
    rows: int
    started: float
    into_spark: float = 0.0
    seconds: float = 0.0

    def has_crossed(self) -> None:
        self.into_spark = time.perf_counter() - self.started


_times: deque[BatchTime] = deque(maxlen=_KEPT)


def batch_times() -> list[BatchTime]:
    """The last 10,000 batches that this process has run, the newest one last."""
    return list(_times)


@contextmanager
def timed_batch(label: str, rows: int) -> Iterator[BatchTime]:
    """Notes a batch when the block ends, whatever its end is."""
    batch = BatchTime(label, rows, time.perf_counter())
    try:
        yield batch
    finally:
        batch.seconds = time.perf_counter() - batch.started
        _times.append(batch)


def told_times(batches: Sequence[BatchTime]) -> str:
    """The cost of some batches, in one line for people; empty for none."""
    if not batches:
        return ""
    rows, seconds = sum(one.rows for one in batches), sum(one.seconds for one in batches)
    dearest = max(batches, key=lambda one: one.seconds)
    return (
        f"{len(batches)} batches on Spark took {seconds:.1f} s for {rows:,} rows,"
        f" {sum(one.into_spark for one in batches):.1f} s of it on their way in; the longest took"
        f" {dearest.seconds:.1f} s for {dearest.rows:,} rows: {dearest.label}"
    )
