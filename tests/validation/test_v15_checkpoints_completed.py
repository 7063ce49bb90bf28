"""V15: how many checkpoints a run completes back to back."""

from __future__ import annotations

from collections.abc import Iterator

from engine import CollectedResults, Job, RunResult
from engine.study import Arrivals, LogNormal, Periodic
from tests.validation.targets import Figure, Size, assert_plausible, target

SPREAD = 0.2
PUBLISHED = (("RocksDB", 7.54, 10_023), ("changelog", 0.696, 108_649))
"""Seconds of a cycle on average, and checkpoints completed in 75,600 s."""
RECORDS_READ = 3_808_629_616


def long_run(seconds: float, cycle_s: float) -> RunResult:
    """One record stands for 100,000 of the 50,000 per second. A checkpoint is due 10 ms after the one before it."""
    job = Job("back to back")
    calls = job.source(Arrivals(Periodic("0.5/s"), count=round(seconds / 2)), name="calls")
    calls.collect(CollectedResults(transactional=False), name="end")
    # The median of this law that gives it the mean.
    law = LogNormal(f"{round(cycle_s * 1e9 / 2.718281828 ** (SPREAD**2 / 2))}ns", SPREAD)
    return job.run(
        checkpoint_interval="10ms", latency=False, inline_state_bytes=0,
        cost={"source_record": "0s", "storage_delay": law},
    )


@target("V15", "how many checkpoints complete back to back?", study=[long_run])
def completed(size: Size) -> Iterator[Figure]:
    """A part of the published run of 21 hours."""
    for name, cycle_s, published in PUBLISHED:
        part = size.of(100, 1) if cycle_s > 1 else size.of(1_000, 10)
        result = long_run(75_600 / part, cycle_s)
        case = f"{name}: checkpoints in 1/{part} of 21 h" if part > 1 else f"{name}: checkpoints in 21 h"
        # Few cycles vary by the spread of the law.
        error = SPREAD * (published / part) ** 0.5
        yield Figure(case, published / part, result.execution.checkpoints.completed, 0.03, error)
        yield Figure(f"{name}: records", RECORDS_READ / part, result.source_records * 100_000, 0.03)


def test_checkpoints_completed_are_run_by_cycle() -> None:
    """75,600 s / 10,023 = 7.54 s, 75,600 s / 108,649 = 0.696 s; 50,000 records per second for 75,600 s (Flink blog of
    2022-05-30, generic log-based incremental checkpoints, interval 10 ms). The law of the cycle is assumed, its mean is
    the published one.
    """
    assert_plausible(completed)
