"""What checkpoints cost: W1 with them against W1 without, in pairs.

The run with checkpoints takes ten on a real disk, about two per second of wall time on the machine the numbers were
made on. What is counted is all of it: barriers, pinned state, writing, fsync, metadata, deleting the one before.
"""

from __future__ import annotations

from statistics import median

from benchmarks.keyed_sum import KeyedSum
from benchmarks.measure import Result, below, interleaved


def measure(quick: bool) -> list[Result]:
    """Time with checkpoints over time without."""
    count, rounds = (1_000_000, 3) if quick else (10_000_000, 5)
    with_checkpoints = KeyedSum(count, checkpoints=9)
    without = KeyedSum(count, mode="none")
    (pairs,) = interleaved(without.time, {"on": with_checkpoints.time}, rounds).values()
    checkpoints = with_checkpoints.checkpoints + 1
    extra_s = median(own - ref for own, ref in zip(pairs.seconds, pairs.reference_seconds, strict=True))
    details = {"checkpoints": checkpoints, "ms_per_checkpoint": round(1_000 * extra_s / checkpoints, 1)}
    return [Result(f"W1, {count:,} records", "% more time", pairs.extra_percent, below(5.0), details)]
