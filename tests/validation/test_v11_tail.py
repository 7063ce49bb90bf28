"""V11: the tail of a checkpoint is that of its slowest task."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CollectedResults, Job
from engine.study import Arrivals, Trace, Uniform
from tests.validation.targets import Figure, Size, assert_plausible, target


def durations_s(tasks: int, checkpoints: int, seed: int) -> list[float]:
    """Of checkpoints for which each task writes a file that takes up to a second."""
    job = Job("tail", parallelism=tasks)
    ends = Arrivals(Trace([f"{checkpoints * 2 + 1}s"] * tasks), splits=tasks)
    job.source(ends, name="from").collect(CollectedResults(transactional=False), name="to")
    result = job.run(
        checkpoint_interval="2s", seed=seed, latency=False, inline_state_bytes=0,
        cost={"storage_delay": Uniform("0s", "1s")},
    )
    return [duration / 1e9 for duration in result.checkpoints["end_to_end_ns"][:checkpoints]]


@target("V11", "which tail may a task have?", study=[durations_s], seeds=4)
def quantile(size: Size) -> Iterator[Figure]:
    """The 99th percentile of checkpoints is a quantile of the law. That is uniform: a quantile is its probability."""
    for tasks, checkpoints in ((8, 9_000), (50, 400), (100, 100), (1_000, 20)) if size.full else ((8, 300),):
        found = sorted(one for seed in size.seeds for one in durations_s(tasks, checkpoints, seed))
        expected = 0.99 ** (1 / tasks)
        # Of n values, the one in place q n is off by about this much.
        spread = (0.99 * 0.01 / len(found)) ** 0.5 / (tasks * 0.99 / expected)
        yield Figure(f"{tasks} tasks", expected, found[round(0.99 * len(found)) - 1], 1e-4, spread)


def test_a_task_must_be_faster_than_its_checkpoint_in_more_cases() -> None:
    """P(all of p tasks <= x) = P(one <= x)^p, so 99 % of the checkpoints need 0.99^(1/p) of the writes: 99.99 % at
    p = 100 (Flink blog of 2022-05-30: Improving speed and stability of checkpointing with generic log-based
    incremental checkpoints).
    """
    assert_plausible(quantile)
