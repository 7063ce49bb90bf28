"""V4: one hot key limits the whole job."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CountingSink, Job, SequenceSource
from tests.validation.targets import Figure, Size, assert_plausible, target


def capacity_in_tasks(tenths: int, parallelism: int, records: int) -> float:
    """Throughput of the job, in that of one task. So many tenths of the records have the hot key."""
    job = Job("hot key")
    numbers = job.source(SequenceSource(0, records), name="numbers")
    spread = numbers.partition_custom(lambda n, tasks: 0 if n % 10 < tenths else (n // 10 + n) % tasks)
    spread.sink(CountingSink(), name="work", parallelism=parallelism)
    result = job.run(mode="none", batch_size=100, cost={"source_record": "0s", "record": "1ms"})
    return records * 1_000_000 / result.makespan_ns


@target("V4", "how far does a job scale with a hot key?", study=[capacity_in_tasks])
def limit(size: Size) -> Iterator[Figure]:
    """With a tenth, two or three tenths of the records on one key."""
    for parallelism, records in ((10, size.of(4_000, 40_000)), (100, size.of(0, 40_000))):
        for tenths in (1, 2, 3) if records else ():
            share = tenths / 10
            expected = 1 / (share + (1 - share) / parallelism)
            case = f"p = {parallelism}, {share:.0%} hot: tasks' worth"
            yield Figure(case, expected, capacity_in_tasks(tenths, parallelism, records), 0.02)


def test_the_hot_task_decides_the_capacity() -> None:
    """Its task has the share h + (1 - h) / p of all records, so the job handles mu / (h + (1 - h) / p): Amdahl's law,
    for keys.
    """
    assert_plausible(limit)
