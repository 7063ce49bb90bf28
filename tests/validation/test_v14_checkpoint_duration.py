"""V14: duration of a checkpoint against its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job
from engine.study import Arrivals, Trace
from tests.validation.targets import Figure, Size, assert_plausible, target

BANDWIDTH = 690_000_000
"""Bytes per second of all tasks together: fitted to the four published pairs."""
PUBLISHED = (("p50", 3.05, 5), ("p90", 4.52, 6), ("p99", 5.19, 7), ("p99.9", 6.49, 10))
"""Load on ValueState without the changelog, 50 tasks: GB of a checkpoint, and its seconds."""


def checkpoint(tasks: int, weight: float) -> tuple[float, int]:
    """Its seconds and its bytes. A byte of state weighs ``weight`` bytes."""
    job = Job("state", parallelism=tasks)
    records = Arrivals(Trace(["0s"] * 40 * tasks + ["60s"]), splits=1)
    keyed = job.source(records, name="numbers", parallelism=1).key_by(lambda n: n)
    keyed.reduce(lambda a, b: b, name="latest").sink(CountingSink(), name="end")
    result = job.run(
        checkpoint_interval="20s", latency=False, inline_state_bytes=0,
        cost={"shared_storage_bytes_per_s": BANDWIDTH, "virtual_state": weight},
    )
    first = next(iter(result.checkpoints))
    return first["end_to_end_ns"] / 1e9, first["checkpointed_bytes"]


@target("V14", "how long does a checkpoint of so many bytes take?", study=[checkpoint])
def duration(size: Size) -> Iterator[Figure]:
    """The state is made as large as the published one by its weight."""
    tasks = size.of(5, 50)
    real_bytes = checkpoint(tasks, 1)[1]
    for name, gigabytes, seconds in PUBLISHED[: size.of(1, 4)]:
        found_s, _ = checkpoint(tasks, gigabytes * 1e9 / real_bytes)
        yield Figure(f"{name}, {gigabytes} GB, s (fit to published data)", seconds, found_s, 0.12)


def test_the_duration_is_bytes_by_bandwidth() -> None:
    """Duration = bytes / 0.69 GB/s for all tasks together (Flink blog of 2022-05-30, generic log-based incremental
    checkpoints, first table; keys are spread by hash, so tasks differ).
    """
    assert_plausible(duration)
